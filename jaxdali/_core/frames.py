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
    """The operator for inputs with these specs: on frames, if an argument or input that may come per frame is a
    sequence.

    Raises:
      ArgumentError: an argument is a sequence but may not be, or the inputs it applies to are not sequences.
    """
    if op.name not in declared or not any(s.layout.startswith("F") for s in specs):
        return op
    described = _described(op, len(specs))
    sequences = tuple(_layout(s, a).startswith("F") for s, a in zip(specs, described, strict=True))
    found = [i for i, a in enumerate(described) if sequences[i] and (a.per_frame or not a.is_input)]
    for i in found:
        name, layout = described[i].name, specs[i].layout
        if not described[i].per_frame:
            raise ArgumentError(
                f"argument {name} is a sequence, of layout {layout!r}: it may come per sample, but not per frame"
            )
        for a, s in zip(described, specs, strict=True):
            if (
                a.is_input
                and not a.per_frame
                and not op.repeats_input
                and not (_layout(s, a).startswith("F") and s.ndim > 1)
            ):
                got = f"is of layout {s.layout!r}" if s.layout else f"has {s.ndim} dimensions and no layout"
                raise ArgumentError(
                    f"{_what(described[i])} is a sequence, of layout {layout!r}, but {_what(a)} is not: it {got}"
                )
    return Frames(inner=op, sequences=sequences) if found else op


def _described(op: Operator, inputs: int) -> list[Argument]:
    """The arguments that a function declares, for each input of its operator."""
    known = declared[op.name]()
    own = [a for a in known.values() if a.is_input]  # perhaps *inputs
    return [
        *(own[min(i, len(own) - 1)] for i in range(inputs - len(op.args.inputs))),
        *(known[n] for n in op.args.inputs),
    ]


def _layout(spec: Spec, a: Argument) -> str:
    """The layout, with the default for images without one."""
    return spec.layout or (_WITHOUT_LAYOUT.get(spec.ndim, "") if a.is_input and not a.per_frame else "")


def _what(a: Argument) -> str:
    return f"argument {a.name}" if not a.is_input else "the input" if a.name == "input" else f"the input {a.name}"


class Frames(Operator):
    """Runs `inner` on frames. For each sample its batch has K samples, the frames, of which some may be missing.

    If all samples have the same number of frames, K is that number. Otherwise K is rounded up, so that few programs are
    compiled.

    Attributes:
      sequences: whether each input is a sequence. All frames share the other inputs.
    """

    inner: Operator
    sequences: tuple[bool, ...]
    on_host: bool = False

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.name

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        on_host = ctx.stage == "host" or (self.inner.repeats_input and not self.sequences[0])
        if on_host:
            ctx = dataclasses.replace(ctx, stage="host")
        kind = _OnHost if on_host else _InProgram
        made = kind(inner=self.inner, sequences=self.sequences, on_host=on_host)

        def first_shape(i: int) -> tuple[int, ...] | None:
            shape = ctx.first_shape(i)
            return shape if shape is None or not self.sequences[i] else shape[1:]

        inner = self.inner.bind(dataclasses.replace(ctx, first_shape=first_shape), *made.frames(specs))
        return dataclasses.replace(made, inner=inner)

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        described = _described(self.inner, len(specs))
        first = self.sequences.index(True)
        counts = [s.extent(0) if seq else None for s, seq in zip(specs, self.sequences, strict=True)]
        for i, n in enumerate(counts):
            if None not in (n, counts[first]) and n != counts[first] and (described[i].is_input or n != 1):
                raise ArgumentError(_numbers_differ(described[i], n, described[first], counts[first]))
        (frame,) = self.inner.infer(*self.frames(specs))
        n = counts[first]
        extents = n, *(frame.extent(d) for d in range(frame.ndim))
        shape = None if n is None or frame.shape is None else (n, *frame.shape)
        unnamed = "*" * frame.ndim if self.sequences[0] else ""  # as in DALI
        layout = "F" + (frame.layout or unnamed) if frame.layout or unnamed else ""
        return (Spec(frame.dtype, frame.ndim + 1, shape, layout, None if shape is not None else extents),)

    def frames(self, specs: Sequence[Spec]) -> list[Spec]:
        """Specs of the inputs that `inner` gets."""
        return [
            self._frame(i, s, a) if self.sequences[i] else s
            for i, (s, a) in enumerate(zip(specs, _described(self.inner, len(specs))))
        ]

    def _frame(self, i: int, spec: Spec, a: Argument) -> Spec:
        extents = tuple(spec.extent(d) for d in range(1, spec.ndim))
        known = tuple(n for n in extents if n is not None)
        static = len(known) == len(extents) and (spec.shape is not None or self._reads_on_host(i))
        shape, dims = (known, None) if static else (None, extents)
        return Spec(spec.dtype, len(extents), shape, _layout(spec, a)[1:].strip("*"), dims)

    def _reads_on_host(self, i: int) -> bool:
        return self.on_host or not isinstance(self.inner, ProgramOperator) or self.inner.setup_reads(i)

    def _unfolded(
        self, ctx: HostContext, values: Sequence[Value], out: Spec
    ) -> tuple[HostContext, list[Value], np.ndarray]:
        """The context and the inputs of `inner`, and the number of frames in each sample, ``i64[N]``."""
        described = _described(self.inner, len(values))
        first = self.sequences.index(True)
        counts = values[first].shapes[:, 0]
        for i, v in enumerate(values):
            if self.sequences[i]:
                differ = (v.shapes[:, 0] != counts) & (True if described[i].is_input else v.shapes[:, 0] != 1)
                for k in np.flatnonzero(differ & ctx.present):
                    reason = _numbers_differ(described[i], v.shapes[k, 0], described[first], counts[k])
                    ctx.fail(int(k), Status.INPUT, reason)
        known = values[first].spec.extent(0)
        most = int(counts[ctx.present].max(initial=1))
        # Rounded up, so that few programs are compiled.
        K = (1 << (most - 1).bit_length() if known is None else known) or 1
        present = ctx.present[:, None] & (np.arange(K) < counts[:, None])

        def fail(i: int, code: int, reason: str = ""):
            if present[divmod(i, K)]:
                ctx.fail(i // K, code, f"frame {i % K}: {reason or _ffi.STATUS.get(code, code)}")

        inner = dataclasses.replace(
            ctx,
            B=ctx.B * K,
            N=ctx.N * K,
            frames=K,
            epoch=np.repeat(ctx.epoch, K),
            position=np.repeat(ctx.position, K),
            present=present.reshape(-1),
            specs=(out,),
            bad={},
            fail=fail,
            report_bad=lambda i, code, reason="": ctx.report_bad(i // K, code, reason),
            source_of=lambda i: ctx.source_of(i // K),
        )
        specs = self.frames([v.spec for v in values])
        made = [self._value(ctx, i, v, specs[i], K) for i, v in enumerate(values)]
        return inner, made, counts

    def _value(self, ctx: HostContext, i: int, value: Value, spec: Spec, K: int) -> Value:
        """An input for `inner`. A sample's missing frames repeat its last one."""
        shapes = np.repeat(value.shapes[:, 1:] if self.sequences[i] else value.shapes, K, axis=0)
        data = value.data if self._reads_on_host(i) else None
        if data is None:
            return Value(spec, shapes)
        here = None if value.present is None else np.repeat(value.present, K)
        if not self.sequences[i]:
            if isinstance(data, Packed):
                return Value(spec, shapes, Packed(data.data, np.repeat(data.offsets, K), shapes), here)
            return Value(spec, shapes, np.repeat(data, K, axis=0), here)
        rows = [np.asarray(value.sample(k)) for k in range(ctx.N)]
        which = [np.minimum(np.arange(K), max(len(r) - 1, 0)) for r in rows]
        frames = [f for r, w in zip(rows, which) for f in (r[w] if len(r) else np.zeros((K, *r.shape[1:]), r.dtype))]
        if spec.shape is None:
            return Value(spec, shapes, pack(frames, ctx.S, lambda n, dtype: np.empty((ctx.S, n), dtype)), here)
        missing = np.zeros(spec.shape, spec.dtype)
        return Value(spec, shapes, np.stack([f if f.shape == spec.shape else missing for f in frames]), here)


def _numbers_differ(a: Argument, got: Any, first: Argument, frames: Any) -> str:
    also = "" if a.is_input else ", or 1 for all"
    return f"{_what(a)} has values for {got} frames, {_what(first)} has {frames}: these must be equal{also}"


class _OnHost(Frames, HostOperator):
    def run(self, ctx: HostContext, *values: Value) -> tuple[Any, ...]:
        assert isinstance(self.inner, HostOperator)
        (out,) = self.inner.infer(*self.frames([v.spec for v in values]))
        inner, frames, counts = self._unfolded(ctx, values, out)
        (data,) = self.inner.run(inner, *frames)
        K = inner.frames
        if ctx.spec.shape is not None:
            return (np.asarray(data).reshape(ctx.N, *ctx.spec.shape),)
        nothing = np.zeros((0,) * ctx.spec.ndim, ctx.spec.dtype)
        here = (counts > 0) & ctx.present
        return ([np.stack([data[i * K + f] for f in range(counts[i])]) if here[i] else nothing for i in range(ctx.N)],)


class _InProgram(Frames, NativeOperator):
    """Copies the frames of ragged sequences to aligned places before `inner`, and joins them after it, because samples
    must be aligned. The frames of dense sequences are already in place.
    """

    @property
    def kernel(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
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
        specs = self.frames([v.spec for v in values])
        inner, frames, counts = self._unfolded(ctx, values, self._out(specs, ctx.spec))
        made = self._operator.setup(inner, *frames)
        N, K = ctx.N, inner.frames
        params = {n: x.reshape(N, K, *x.shape[1:]) for n, x in made.params.items()}
        params["frames.present"] = inner.present.reshape(N, K).astype(np.int32)

        def place(name: str, shapes: np.ndarray):
            shapes = np.where(inner.present[:, None], shapes, 0)
            offsets, _ = plan_offsets(shapes, ctx.S)
            params[f"frames.{name}.offsets"] = offsets.reshape(N, K)
            params[f"frames.{name}.shapes"] = shapes.reshape(N, K, -1).astype(np.int32)

        for i, v in enumerate(frames):
            if v.spec.shape is None and not self.setup_reads(i):
                place(str(i), v.shapes)
        (shapes,) = made.shapes
        if shapes is None:
            return Setup((None,), params, made.scratch)
        shapes = np.asarray(shapes, np.int64)
        place("out", shapes)
        each = shapes.reshape(N, K, -1)
        assert not ((each != each[:, :1]).any(axis=2) & inner.present.reshape(N, K)).any(), self.name
        return Setup((np.concatenate([counts[:, None], each[:, 0]], axis=1),), params, made.scratch)

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        own = {n: x for n, x in ctx.params.items() if n.startswith("frames.")}
        K = own["frames.present"].shape[1]
        B = ctx.B * K
        specs = self.frames(ctx.inputs)
        status = jnp.zeros((ctx.B,), jnp.int32)
        images: list[Any] = []
        for i, x in enumerate(arrays):
            if isinstance(x, Ragged):
                at = Out(x.data.shape[0] + ALIGNMENT * B, own[f"frames.{i}.offsets"], own[f"frames.{i}.shapes"])
                x, code = _unfolded(ctx, x, at)
                status = jnp.where(status == 0, code, status)
            elif x is not None:
                x = x.reshape(B, *x.shape[2:])
            images.append(x)
        spec, out = self._out(specs, ctx.spec), None
        if ctx.out[0] is not None:
            offsets, shapes = own["frames.out.offsets"], own["frames.out.shapes"]
            out = Out(ctx.out[0].capacity + ALIGNMENT * B, offsets.reshape(-1), shapes.reshape(B, -1))
        inner = dataclasses.replace(
            ctx,
            B=B,
            inputs=tuple(specs),
            specs=(spec,),
            control=jnp.concatenate([ctx.control[:1], (ctx.control[1:, None] * own["frames.present"]).reshape(-1)]),
            out=(out,),
            params={n: x.reshape(B, *x.shape[2:]) for n, x in ctx.params.items() if n not in own},
        )
        results = self._operator.lower(inner, *images)
        if isinstance(self.inner, NativeOperator):
            results, codes = results
            status = jnp.where(status == 0, codes.reshape(ctx.B, K).max(axis=1), status)
        (y,) = results
        if ctx.out[0] is None:
            return (y.reshape(ctx.B, *(ctx.spec.shape or ())),), status
        y, code = _folded(ctx, y, K)
        return (y,), jnp.where(status == 0, code, status)


def _unfolded(ctx: LowerContext, x: Ragged, at: Out) -> tuple[Ragged, Any]:
    """Splits sequences into ragged frames at separate places. It copies them as rows of elements, padded to the
    alignment.
    """
    size = at.shapes[:, 0].prod(axis=1, dtype=np.int32)
    rows = -(-size // ALIGNMENT) * ALIGNMENT
    count = x.shapes[:, 0]
    flat = Ragged(x.data, x.offsets, jnp.stack([count, size], axis=1))
    y, code = _copied(ctx, flat, Out(at.capacity, at.offsets[:, 0], jnp.stack([count, rows], axis=1)))
    return Ragged(y, at.offsets.reshape(-1), at.shapes.reshape(-1, at.shapes.shape[2])), code


def _folded(ctx: LowerContext, y: Ragged, K: int) -> tuple[Ragged, Any]:
    """Joins such frames into sequences."""
    (out,) = ctx.out
    assert out is not None
    count, size = out.shapes[:, 0], out.shapes[:, 1:].prod(axis=1, dtype=np.int32)
    rows = -(-size // ALIGNMENT) * ALIGNMENT
    flat = Ragged(y.data, y.offsets[::K], jnp.stack([count, rows], axis=1))
    data, code = _copied(ctx, flat, Out(out.capacity, out.offsets, jnp.stack([count, size], axis=1)))
    return Ragged(data, out.offsets, out.shapes), code


def _copied(ctx: LowerContext, x: Ragged, out: Out) -> tuple[Any, Any]:
    """Copies rows to rows of other lengths, padded with zeros. Returns the buffer and the status."""
    zeros, ones, none = jnp.zeros_like(out.shapes), jnp.ones_like(out.shapes), jnp.zeros((ctx.B, 0), jnp.float32)
    fill = jnp.zeros((ctx.B, 1), jnp.float32)
    params = (zeros, ones, out.shapes, fill, none, none)
    y, code = _ffi.call("window", ctx, x, Spec(x.dtype, 2, None), out, *params, permutation=(0, 1), channel=-1)
    return y.data, code
