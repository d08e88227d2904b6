"""Arguments per frame: runs an operator on the frames of sequences as if each frame were a sample."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._cpu import Status
from . import ffi as _ffi
from .arguments import declared
from .context import BuildContext, HostContext, LowerContext, Out
from .declaration import Argument
from .errors import ArgumentError
from .operator import HostOperator, NativeOperator, Operator, ProgramOperator, Setup
from .ragged import ALIGNMENT, Packed, Ragged, pack, plan_offsets
from .values import Spec, Value

_WITHOUT_LAYOUT = {4: "FHWC", 5: "FDHWC"}  # images and volumes by number of dimensions


def per_frame(op: Operator, *specs: Spec) -> Operator:
    """The operator for inputs with these specs. It runs on frames if an argument or input that may come per frame is a
    sequence.

    Raises:
      ArgumentError: an argument is a sequence but may not be, or the inputs it applies to are not sequences.
    """
    if op.takes_sequences or op.name not in declared or not any(s.layout.startswith("F") for s in specs):
        return op  # it reads frames itself, it has no public function, or there is no sequence
    declarations = _declarations(op, len(specs))
    sequences = tuple(_layout(s, a).startswith("F") for s, a in zip(specs, declarations, strict=True))
    sequence_indices = [i for i, a in enumerate(declarations) if sequences[i] and (a.per_frame or not a.is_input)]
    # Every input that takes frames must be a sequence, too.
    for i in sequence_indices:
        name, layout = declarations[i].name, specs[i].layout
        if not declarations[i].per_frame:
            raise ArgumentError(
                f"argument {name} is a sequence, of layout {layout!r}: it may come per sample, but not per frame"
            )
        for a, s in zip(declarations, specs, strict=True):
            if (
                a.is_input
                and not a.per_frame
                and not op.repeats_input
                and not (_layout(s, a).startswith("F") and s.ndim > 1)
            ):
                form = f"of layout {s.layout!r}" if s.layout else f"{s.ndim}-D without a layout"
                raise ArgumentError(
                    f"{_subject(declarations[i])} is a sequence, of layout {layout!r}, so the first axis of {_subject(a)} "
                    f"must be that of the frames, F, too: it is {form}"
                )
    return Frames(inner=op, sequences=sequences) if sequence_indices else op


def _declarations(op: Operator, num_inputs: int) -> list[Argument]:
    """The declaration of each of the `num_inputs` inputs of an operator: inputs proper, then arguments per sample."""
    arguments = declared[op.name]()
    declared_inputs = [a for a in arguments.values() if a.is_input]
    return [
        # A function with *inputs declares fewer inputs than there are: the last declaration is for all others.
        *(declared_inputs[min(i, len(declared_inputs) - 1)] for i in range(num_inputs - len(op.args.inputs))),
        *(arguments[n] for n in op.args.inputs),
    ]


def _layout(spec: Spec, a: Argument) -> str:
    """The layout of an input, with a default for images without one."""
    return spec.layout or (_WITHOUT_LAYOUT.get(spec.ndim, "") if a.is_input and not a.per_frame else "")


def _subject(a: Argument) -> str:
    """The name of an input or argument in a message."""
    return f"argument {a.name}" if not a.is_input else "the input" if a.name == "input" else f"the input {a.name}"


class Frames(Operator):
    """Runs `inner` on frames. Each sample becomes K samples of the batch of `inner`, of which some may be missing.

    If all samples have the same number of frames, K is that number. Otherwise K is rounded up, so that few programs are
    compiled.

    Attributes:
      inner: the operator.
      sequences: for each input, whether it is a sequence. All frames of a sample share the other inputs.
      on_host: whether `inner` runs on the host.
    """

    inner: Operator
    sequences: tuple[bool, ...]
    on_host: bool = False

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.name

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        """See `Operator.bind`. Binds `inner` to the specs of frames."""
        # Only `_OnHost` repeats an input that is not a sequence for all frames.
        on_host = ctx.stage == "host" or (self.inner.repeats_input and not self.sequences[0])
        if on_host:
            ctx = dataclasses.replace(ctx, stage="host")
        kind = _OnHost if on_host else _InProgram
        bound = kind(inner=self.inner, sequences=self.sequences, on_host=on_host)

        def first_shape(i: int) -> tuple[int, ...] | None:
            """The shape of the first frame, or of the first sample if the input is not a sequence."""
            shape = ctx.first_shape(i)
            return shape if shape is None or not self.sequences[i] else shape[1:]

        inner = self.inner.bind(dataclasses.replace(ctx, first_shape=first_shape), *bound.frames(specs))
        return dataclasses.replace(bound, inner=inner)

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        """The output of `inner`, with the frames as the first axis."""
        declarations = _declarations(self.inner, len(specs))
        first = self.sequences.index(True)  # this sequence determines the number of frames
        counts = [s.extent(0) if seq else None for s, seq in zip(specs, self.sequences, strict=True)]
        for i, n in enumerate(counts):
            # An argument may have one value for all frames.
            if None not in (n, counts[first]) and n != counts[first] and (declarations[i].is_input or n != 1):
                raise ArgumentError(_frame_counts_differ(declarations[i], n, declarations[first], counts[first]))
        (frame,) = self.inner.infer(*self.frames(specs))
        n = counts[first]
        extents = n, *(frame.extent(d) for d in range(frame.ndim))
        shape = None if n is None or frame.shape is None else (n, *frame.shape)
        unnamed = "*" * frame.ndim if self.sequences[0] else ""  # axes without names, as in DALI
        layout = "F" + (frame.layout or unnamed) if frame.layout or unnamed else ""
        return (Spec(frame.dtype, frame.ndim + 1, shape, layout, None if shape is not None else extents),)

    def frames(self, specs: Sequence[Spec]) -> list[Spec]:
        """Specs of the inputs of `inner`."""
        return [
            self._frame(i, s, a) if self.sequences[i] else s
            for i, (s, a) in enumerate(zip(specs, _declarations(self.inner, len(specs))))
        ]

    def _frame(self, i: int, spec: Spec, a: Argument) -> Spec:
        """The spec of the frames of input `i`, a sequence with this spec. It has a static shape if all extents are
        known, and the sequence is dense or read on the host.
        """
        extents = tuple(spec.extent(d) for d in range(1, spec.ndim))
        static_extents = tuple(n for n in extents if n is not None)
        is_static = len(static_extents) == len(extents) and (spec.shape is not None or self._reads_on_host(i))
        shape, dims = (static_extents, None) if is_static else (None, extents)
        layout = _layout(spec, a)[1:].strip("*")  # without "F", and without axes that have no names
        return Spec(spec.dtype, len(extents), shape, layout, dims)

    def _reads_on_host(self, i: int) -> bool:
        """Whether `inner` reads the data of input `i` on the host."""
        return self.on_host or not isinstance(self.inner, ProgramOperator) or self.inner.setup_reads(i)

    def _unfold(
        self, ctx: HostContext, values: Sequence[Value], out: Spec
    ) -> tuple[HostContext, list[Value], np.ndarray]:
        """Makes samples of the frames: frame k of sample i is sample ``i * K + k``. Samples whose inputs differ in the
        number of frames fail.

        Args:
          out: spec of the output of `inner`.

        Returns:
          (context of `inner`, its inputs, number of frames in each sample ``i64[N]``).
        """
        declarations = _declarations(self.inner, len(values))
        first = self.sequences.index(True)
        counts = values[first].shapes[:, 0]
        for i, v in enumerate(values):
            if self.sequences[i]:
                differs = (v.shapes[:, 0] != counts) & (True if declarations[i].is_input else v.shapes[:, 0] != 1)
                for k in np.flatnonzero(differs & ctx.present):
                    reason = _frame_counts_differ(declarations[i], v.shapes[k, 0], declarations[first], counts[k])
                    ctx.fail(int(k), Status.INPUT, reason)
        inner_ctx = context_of_frames(ctx, counts, values[first].spec.extent(0), "frame {}")
        specs = self.frames([v.spec for v in values])
        inner_values = [self._value(ctx, i, v, specs[i], inner_ctx.frames) for i, v in enumerate(values)]
        return dataclasses.replace(inner_ctx, specs=(out,)), inner_values, counts

    def _value(self, ctx: HostContext, i: int, value: Value, spec: Spec, K: int) -> Value:
        """Input `i` of `inner`. Missing frames of a sample repeat its last frame."""
        shapes = np.repeat(value.shapes[:, 1:] if self.sequences[i] else value.shapes, K, axis=0)
        data = value.data if self._reads_on_host(i) else None
        if data is None:
            return Value(spec, shapes)
        present = None if value.present is None else np.repeat(value.present, K)
        if not self.sequences[i]:  # all frames of a sample get its value
            if isinstance(data, Packed):
                return Value(spec, shapes, Packed(data.data, np.repeat(data.offsets, K), shapes), present)
            return Value(spec, shapes, np.repeat(data, K, axis=0), present)
        rows = [np.asarray(value.sample(k)) for k in range(ctx.N)]
        frame_indices = [np.minimum(np.arange(K), max(len(r) - 1, 0)) for r in rows]
        frames = [
            f
            for r, indices in zip(rows, frame_indices)
            for f in (r[indices] if len(r) else np.zeros((K, *r.shape[1:]), r.dtype))
        ]
        if spec.shape is None:
            return Value(spec, shapes, pack(frames, ctx.S, lambda n, dtype: np.empty((ctx.S, n), dtype)), present)
        missing = np.zeros(spec.shape, spec.dtype)  # in place of frames of absent samples, whose shapes may differ
        return Value(spec, shapes, np.stack([f if f.shape == spec.shape else missing for f in frames]), present)


def context_of_frames(ctx: HostContext, counts: np.ndarray, static_count: int | None, subject: str) -> HostContext:
    """The context of a batch whose samples are the frames of sequences, K for each: `HostContext.frames`.

    Args:
      counts: ``i64[N]``, the frames of each sample.
      static_count: the number of frames that all samples have; None: it differs, and K is rounded up to a power of two,
        so that few programs are compiled.
      subject: in errors, a frame, for ``subject.format(number)``.
    """
    # Counts of all samples, also of those that are not in the branch of an `if`: predicates must not change programs.
    largest_count = int(counts.max(initial=1))
    K = (1 << (largest_count - 1).bit_length() if static_count is None else static_count) or 1
    present = ctx.present[:, None] & (np.arange(K) < counts[:, None])

    def fail(i: int, code: int, reason: str = ""):
        """Fails the sample of frame `i`, unless the frame is missing."""
        if present[divmod(i, K)]:  # (sample, frame)
            ctx.fail(i // K, code, f"{subject.format(i % K)}: {reason or _ffi.STATUS.get(code, code)}")

    return dataclasses.replace(
        ctx,
        B=ctx.B * K,
        N=ctx.N * K,
        frames=K,
        epoch=np.repeat(ctx.epoch, K),
        position=np.repeat(ctx.position, K),
        present=present.reshape(-1),
        bad={},
        fail=fail,
        report_bad=lambda i, code, reason="": ctx.report_bad(i // K, code, reason),
        source_of=lambda i: ctx.source_of(i // K),
    )


def _frame_counts_differ(a: Argument, count: Any, reference: Argument, reference_count: Any) -> str:
    """The message about an input with another number of frames than the first sequence, `reference`."""
    also = "" if a.is_input else ", or 1 for all"
    return f"{_subject(a)} has values for {count} frames, {_subject(reference)} has {reference_count}: these must be equal{also}"


class _OnHost(Frames, HostOperator):
    """Runs `inner` on frames on the host."""

    def run(self, ctx: HostContext, *values: Value) -> tuple[Any, ...]:
        """Runs `inner` once for all frames, and stacks the frames of each sample. Samples without frames become empty
        arrays.
        """
        assert isinstance(self.inner, HostOperator)
        (out,) = self.inner.infer(*self.frames([v.spec for v in values]))
        inner_ctx, frames, counts = self._unfold(ctx, values, out)
        (data,) = self.inner.run(inner_ctx, *frames)
        K = inner_ctx.frames
        if ctx.spec.shape is not None:
            return (np.asarray(data).reshape(ctx.N, *ctx.spec.shape),)
        empty = np.zeros((0,) * ctx.spec.ndim, ctx.spec.dtype)
        has_frames = (counts > 0) & ctx.present
        return (
            [np.stack([data[i * K + f] for f in range(counts[i])]) if has_frames[i] else empty for i in range(ctx.N)],
        )


class _InProgram(Frames, NativeOperator):
    """Runs `inner` on frames in a program.

    Frames become samples, which must be aligned (`ALIGNMENT`). So the frames of ragged sequences are copied to aligned
    places before `inner`, and joined after it. The frames of dense sequences are already in place.
    """

    @property
    def kernel(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The kernel of `inner`. If it has none, "window", which copies frames of ragged sequences."""
        return self.inner.kernel if isinstance(self.inner, NativeOperator) else "window"

    @property
    def mixes(self) -> bool:
        return self._operator.mixes

    @property
    def _operator(self) -> ProgramOperator:
        assert isinstance(self.inner, ProgramOperator)
        return self.inner

    def setup_reads(self, i: int) -> bool:
        return self._operator.setup_reads(i)

    def _out(self, frames: Sequence[Spec], out: Spec) -> Spec:
        """Spec of the output of `inner`, ragged if the sequences are ragged."""
        (spec,) = self.inner.infer(*frames)
        if out.shape is not None or spec.shape is None:
            return spec
        return dataclasses.replace(spec, shape=None, dims=spec.shape)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        """The setup of `inner` for all frames, as a setup for sequences: its parameters become ``[N, K, ...]``.

        Further parameters, "frames...", are for `lower`: the presence of frames, and the layout of each ragged batch of
        frames.
        """
        specs = self.frames([v.spec for v in values])
        inner_ctx, frames, counts = self._unfold(ctx, values, self._out(specs, ctx.spec))
        frame_setup = self._operator.setup(inner_ctx, *frames)
        N, K = ctx.N, inner_ctx.frames
        params = {n: x.reshape(N, K, *x.shape[1:]) for n, x in frame_setup.params.items()}
        params["frames.present"] = inner_ctx.present.reshape(N, K).astype(np.int32)

        def add_layout(name: str, shapes: np.ndarray):
            """Adds offsets and shapes of frames to the parameters, from which `lower` makes an `Out`."""
            shapes = np.where(inner_ctx.present[:, None], shapes, 0)
            offsets, _ = plan_offsets(shapes, ctx.S)
            params[f"frames.{name}.offsets"] = offsets.reshape(N, K)
            params[f"frames.{name}.shapes"] = shapes.reshape(N, K, -1).astype(np.int32)

        for i, v in enumerate(frames):
            if v.spec.shape is None and not self.setup_reads(i):
                add_layout(str(i), v.shapes)
        (shapes,) = frame_setup.shapes
        if shapes is None:
            return Setup((None,), params, frame_setup.scratch)
        shapes = np.asarray(shapes, np.int64)
        add_layout("out", shapes)
        frame_shapes = shapes.reshape(N, K, -1)
        # All frames of a sequence must have one shape.
        assert not ((frame_shapes != frame_shapes[:, :1]).any(axis=2) & inner_ctx.present.reshape(N, K)).any(), (
            self.name
        )
        return Setup((np.concatenate([counts[:, None], frame_shapes[:, 0]], axis=1),), params, frame_setup.scratch)

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        """Lowers `inner`, which has one output, for the B * K frames of a shard. The status of a sample is that of one
        of its frames.
        """
        frame_params = {n: x for n, x in ctx.params.items() if n.startswith("frames.")}
        K = frame_params["frames.present"].shape[1]
        B = ctx.B * K
        specs = self.frames(ctx.inputs)
        status = jnp.zeros((ctx.B,), jnp.int32)
        images: list[Any] = []
        # Sequences become batches of frames: ragged ones are copied to aligned places, dense ones are reshaped.
        for i, x in enumerate(arrays):
            if isinstance(x, Ragged):
                layout = Out(
                    x.data.shape[0] + ALIGNMENT * B,  # each frame is padded by less than `ALIGNMENT` elements
                    frame_params[f"frames.{i}.offsets"],
                    frame_params[f"frames.{i}.shapes"],
                )
                x, code = _unfold_ragged(ctx, x, layout)
                status = jnp.where(status == 0, code, status)
            elif x is not None:
                x = x.reshape(B, *x.shape[2:])
            images.append(x)
        spec, out = self._out(specs, ctx.spec), None
        if ctx.out[0] is not None:
            offsets, shapes = frame_params["frames.out.offsets"], frame_params["frames.out.shapes"]
            out = Out(ctx.out[0].capacity + ALIGNMENT * B, offsets.reshape(-1), shapes.reshape(B, -1))
        # In `control`, a frame is present if its sample is, and has that frame.
        inner_ctx = dataclasses.replace(
            ctx,
            B=B,
            inputs=tuple(specs),
            specs=(spec,),
            control=jnp.concatenate(
                [ctx.control[:1], (ctx.control[1:, None] * frame_params["frames.present"]).reshape(-1)]
            ),
            out=(out,),
            params={n: x.reshape(B, *x.shape[2:]) for n, x in ctx.params.items() if n not in frame_params},
        )
        results = self._operator.lower(inner_ctx, *images)
        if isinstance(self.inner, NativeOperator):
            results, codes = results
            status = jnp.where(status == 0, codes.reshape(ctx.B, K).max(axis=1), status)
        (y,) = results
        if ctx.out[0] is None:
            return (y.reshape(ctx.B, *(ctx.spec.shape or ())),), status
        y, code = _fold_ragged(ctx, y, K)
        return (y,), jnp.where(status == 0, code, status)


def _unfold_ragged(ctx: LowerContext, x: Ragged, out: Out) -> tuple[Ragged, Any]:
    """Splits sequences into ragged frames at the places of `out`. Returns the frames and the status ``i32[B]``.

    A sequence is copied as a matrix with one row of elements for each frame. The rows are padded to the alignment.

    Args:
      out: the places, with offsets ``i32[B, K]`` and shapes ``i32[B, K, ndim]``, K frames for each sequence.
    """
    # All frames of a sequence have one shape. For each sequence: elements of a frame, also padded; number of frames.
    size = out.shapes[:, 0].prod(axis=1, dtype=np.int32)
    rows = -(-size // ALIGNMENT) * ALIGNMENT
    count = x.shapes[:, 0]
    flat = Ragged(x.data, x.offsets, jnp.stack([count, size], axis=1))
    y, code = _copy_rows(ctx, flat, Out(out.capacity, out.offsets[:, 0], jnp.stack([count, rows], axis=1)))
    return Ragged(y, out.offsets.reshape(-1), out.shapes.reshape(-1, out.shapes.shape[2])), code


def _fold_ragged(ctx: LowerContext, y: Ragged, K: int) -> tuple[Ragged, Any]:
    """Joins frames, K for each sample, into sequences. The reverse of `_unfold_ragged`. Returns the sequences and the
    status ``i32[B]``.
    """
    (out,) = ctx.out
    assert out is not None
    # As in `_unfold_ragged`: for each sequence the number of frames, and the elements of a frame, also padded.
    count, size = out.shapes[:, 0], out.shapes[:, 1:].prod(axis=1, dtype=np.int32)
    rows = -(-size // ALIGNMENT) * ALIGNMENT
    # A sequence begins where its first frame does, and its frames follow one another.
    flat = Ragged(y.data, y.offsets[::K], jnp.stack([count, rows], axis=1))
    data, code = _copy_rows(ctx, flat, Out(out.capacity, out.offsets, jnp.stack([count, size], axis=1)))
    return Ragged(data, out.offsets, out.shapes), code


def _copy_rows(ctx: LowerContext, x: Ragged, out: Out) -> tuple[Any, Any]:
    """Copies rows to rows of other lengths, padded with zeros. Returns the buffer and the status."""
    # Operands of the kernel "window": start, step, extent and fill value of each window, and no scale and offset.
    zeros, ones, none = jnp.zeros_like(out.shapes), jnp.ones_like(out.shapes), jnp.zeros((ctx.B, 0), jnp.float32)
    fill = jnp.zeros((ctx.B, 1), jnp.float32)
    params = (zeros, ones, out.shapes, fill, none, none)
    y, code = _ffi.call(
        "window", ctx, x, Spec(x.dtype, ndim=2, shape=None), out, *params, permutation=(0, 1), channel=-1
    )
    return y.data, code
