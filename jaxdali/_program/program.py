"""The jitted programs of segments, and their cache."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec, Sharding

from .._core import ffi as _ffi
from .._core.context import LowerContext, Out
from .._core.operator import NativeOperator, ProgramOperator, StageOperator
from .._core.ragged import Capacities, Ragged
from .._core.values import narrow
from .._plan.plan import Plan, Ref, Step
from .._plan.segments import Segment
from .operands import Layout
from .sharding import Shards


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """A compiled program.

    Attributes:
      run: ``run(args, buffers, carried, donated) -> (exports, status i32[S*B, native steps], times)``. The times are
        None, or ``i32[shards that run at once, native steps]``: the time of each step's calls, in units of `TIME_UNIT`.
      donated: shape and type of the array that is donated for each export that reuses memory.
      shardings: those that `delivered` gives to the exports; None: they have them already.
    """

    run: Callable[..., Any]
    donated: Mapping[Ref, jax.ShapeDtypeStruct]
    shardings: tuple[Sharding, ...] | None

    def delivered(self, exports: Sequence[Any]) -> tuple[Any, ...]:
        """The exports of `run` on the shardings that `program_for` got. No data are moved.

        A program over several devices can't name another mesh than ours for its results: JAX refuses that where a
        user's function calls back, or calls our kernels.
        """
        if self.shardings is None:
            return tuple(exports)
        return tuple(
            e
            if isinstance(e, Ragged) or e.sharding == sharding
            else jax.make_array_from_single_device_arrays(e.shape, sharding, [x.data for x in e.addressable_shards])
            for e, sharding in zip(exports, self.shardings, strict=True)
        )


_programs: dict[Any, Callable[..., Any]] = {}
_capacities: dict[Any, Capacities] = {}
_programs_lock = threading.Lock()  # guards `_programs` and `_capacities`
TIME_UNIT = 1e-7  # seconds
MIN_DONATED_BYTES = 1 << 20  # malloc keeps the memory of smaller exports
MAX_PROGRAMS = 256  # and sets of capacities; beyond this, the least recently used ones are dropped


def capacities_for(key: Any, samples: int, roomy: bool) -> Capacities:
    """The capacities that all iterators with the same programs share, see Note [Shared capacities].

    Args:
      key: the key of the programs.
      samples: number of samples in a batch of one shard.
      roomy: whether unused parts of buffers cost neither time nor memory, so that the first buffers may be much larger
        than needed.
    """
    with _programs_lock:
        return _used(_capacities, (key, samples), lambda: Capacities(samples, roomy))


class ProgramForm(NamedTuple):
    """How the program of a segment is made.

    Attributes:
      layout: the layout of the operands, which contains the capacities of ragged values.
      shards: the local shards, on whose devices it runs.
      B: samples in each shard.
      out_shardings: the sharding of each export (for a ragged one, that of each of its three parts).
      narrowed: whether exports are narrowed to 32 bits.
      stacked: whether dense exports get a leading axis of the shards.
      timed: whether it returns the times of its native steps. Only on the CPU.
      donated_exports: places in `Segment.exports` of those that are written into donated arrays. Only for one device.
    """

    layout: Layout
    shards: Shards
    B: int
    out_shardings: tuple[Sharding, ...]
    narrowed: bool
    stacked: bool
    timed: bool
    donated_exports: tuple[int, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for forms with which a segment has one program: of the shards, only the devices count."""
        return self.layout, self.shards.devices, *self[2:]


def program_for(segment: Segment, form: ProgramForm, reuse: bool) -> Program:
    """Returns the program of a segment, from the cache or newly made.

    Args:
      segment: the steps of the program.
      form: how it is made, without `donated_exports`.
      reuse: whether large exports are written into donated arrays, see Note [Output reuse]. Only for one device.
    """
    donated = _donated(segment, form) if reuse else {}
    shardings = None
    if len(form.shards.devices) > 1:
        shardings = form.out_shardings
        form = form._replace(out_shardings=(form.shards.local,) * len(shardings))
    form = form._replace(donated_exports=tuple(map(segment.exports.index, donated)))
    key = segment.key, form.key
    with _programs_lock:
        return Program(_used(_programs, key, lambda: _jit(segment, form)), donated, shardings)


def _used(cache: dict[Any, Any], key: Any, make: Callable[[], Any]) -> Any:
    """Returns an entry of a cache, or makes it. The cache is in the order of use, least recent first."""
    entry = cache.pop(key) if key in cache else make()
    cache[key] = entry
    while len(cache) > MAX_PROGRAMS:
        del cache[next(iter(cache))]
    return entry


def _donated(segment: Segment, form: ProgramForm) -> dict[Ref, jax.ShapeDtypeStruct]:
    """The exports for which arrays are donated, with shape and type of the array: large ones that steps of the segment
    make. Of a ragged export, its flat data.
    """
    donated: dict[Ref, jax.ShapeDtypeStruct] = {}
    for step, step_layout in zip(segment.steps, form.layout.steps, strict=True):
        for ref, spec, out in zip(step.outputs, step.specs, step_layout.outputs, strict=True):
            # A stacked export has an axis of one shard: results are donated for one device only.
            shape = (out.capacity,) if out is not None else (*(1,) * form.stacked, form.B, *(spec.shape or ()))
            dtype = narrow(spec.dtype) if form.narrowed else spec.dtype
            if ref in segment.exports and math.prod(shape) * dtype.itemsize >= MIN_DONATED_BYTES:
                donated[ref] = jax.ShapeDtypeStruct(shape, dtype)
    return donated


def _jit(segment: Segment, form: ProgramForm) -> Callable[..., Any]:
    """Jits the function `Program.run`."""
    layout, shards, B = form.layout, form.shards, form.B

    def jaxdali_pipeline(
        args: jax.Array, buffers: Sequence[jax.Array], carried: Sequence[Any], donated: Sequence[jax.Array]
    ) -> tuple[tuple[Any, ...], jax.Array, jax.Array | None]:
        """Computes one shard: the only row of `args` and of each buffer. XLA uses only the memory of `donated`.

        Args:
          args: ``i32[1, words]``, the argument buffer.
          buffers: the other operands, each ``[1, ...]``.
          carried: the values of earlier programs: arrays ``[B, ...]``, or `Ragged`.
          donated: arrays in whose memory XLA may write exports.

        Returns:
          The exports, the status ``i32[B, native steps]``, and the times, which are None unless the program is timed.
        """
        # All shards run on devices of one platform.
        arguments = layout.read(args[0], buffers, on_cpu=shards.devices[0][0].platform == "cpu")
        values: dict[Ref, Any] = dict(zip(segment.operands, arguments.values, strict=True))
        values |= zip(segment.carried, carried, strict=True)
        controls = [arguments.controls[segment.presences[s.presence]] for s in segment.steps]
        times: dict[int, list[Any]] | None = {s.id: [] for s in segment.native} if form.timed else None
        codes = lowered(segment.plan, segment.steps, B, values, controls, arguments.steps, times)
        exports = tuple(values[r] for r in segment.exports)
        if form.narrowed:
            exports = tuple(jax.tree.map(lambda a: a.astype(narrow(a.dtype)), exports))
        if form.stacked:
            exports = tuple(e if isinstance(e, Ragged) else e[None] for e in exports)
        status = jnp.stack([codes[s.id] for s in segment.native], axis=1) if codes else jnp.zeros((B, 0), jnp.int32)
        # A step may make several native calls, whose times are added up.
        step_times = None if times is None else jnp.stack([sum(t, jnp.int32(0)) for t in times.values()])[None]
        return exports, status, step_times

    # A ragged export has three arrays, data, offsets and shapes, on one sharding.
    ragged = [segment.plan.spec(r).shape is None for r in segment.exports]
    outputs = tuple(Ragged(s, s, s) if r else s for r, s in zip(ragged, form.out_shardings, strict=True))
    if len(shards.devices) == 1:
        donated_shardings = tuple(form.out_shardings[i] for i in form.donated_exports)
        in_shardings = shards.local, shards.local, shards.local, donated_shardings
        result_shardings = outputs, shards.local, shards.local
        return jax.jit(
            jaxdali_pipeline,
            in_shardings=in_shardings,
            out_shardings=result_shardings,
            donate_argnames="donated",
            keep_unused=True,  # XLA must keep `donated`, whose contents the program does not use
        )
    S = len(shards.devices) // len(set(shards.primaries))  # shards on each device, which all have as many
    on_device: Callable[..., Any] = jaxdali_pipeline
    if S > 1:  # a device, such as the CPU beside several accelerators, runs its shards one after the other

        def in_turn(*operands: Any) -> Any:
            """Computes S shards as `jaxdali_pipeline` does one. The operands have the rows of all."""
            results = [
                jaxdali_pipeline(*jax.tree.map(lambda a, s=s: a[s * (len(a) // S) : (s + 1) * (len(a) // S)], operands))
                for s in range(S)
            ]
            exports, status, times = jax.tree.map(lambda *parts: jnp.concatenate(parts), *results)
            return exports, status, None if times is None else times.sum(axis=0, keepdims=True)

        on_device = in_turn
    if len(set(shards.primaries)) == 1:
        return jax.jit(on_device, in_shardings=shards.local, out_shardings=(outputs, shards.local, shards.local))
    spec = PartitionSpec("shard")
    mapped = jax.shard_map(on_device, mesh=shards.mesh, in_specs=spec, out_specs=spec, check_vma=False)
    return jax.jit(mapped, in_shardings=shards.local, out_shardings=(outputs, shards.local, shards.local))


def lowered(
    plan: Plan,
    steps: Sequence[Step],
    B: int,
    values: dict[Ref, Any],
    controls: Sequence[Any],
    placed: Sequence[tuple[tuple[Out | None, ...], Mapping[str, Any], int]],
    times: Mapping[int, list[Any]] | None = None,
) -> dict[int, Any]:
    """Lowers steps for one shard, in a program that is traced.

    Args:
      values: the values that the steps read; their results are added.
      controls: the control operand of each step.
      placed: for each step the places of its outputs, its parameters, and its working memory in bytes.
      times: lists by the ids of native steps, to which the time of each of their calls is appended; None: it is not
        measured.

    Returns:
      The status of native steps, ``i32[B]`` each, by their ids.
    """
    codes: dict[int, Any] = {}  # by step: 0 for each sample that succeeded
    # By values that exist only inside a native call (Note [The chain]): the call's input, and its stages so far.
    chains: dict[Ref, tuple[Any, list[_Stage]]] = {}
    for step, control, (out, params, scratch) in zip(steps, controls, placed, strict=True):
        op = step.op
        assert isinstance(op, ProgramOperator)
        times_of_step = None if times is None else times.get(step.id)
        specs = tuple(map(plan.spec, step.inputs))
        ctx = LowerContext(B, specs, step.specs, control, out, params, scratch, times_of_step)
        # The step is a stage of a native call: its own image, or that of the step before it, has no buffer.
        if step.fused or (step.inputs and step.inputs[0] in chains):
            assert isinstance(op, StageOperator)
            image, earlier_stages = chains.get(step.inputs[0]) or (values[step.inputs[0]], [])
            stages = [*earlier_stages, _Stage(step, op, ctx)]
            if step.fused:  # the call goes on with the step that reads this one's output
                chains[step.outputs[0]] = image, stages
                continue
            results = _call_stages(image, stages, codes)
        else:
            with jax.named_scope(op.name):
                results = op.lower(
                    ctx, *(None if step.reads_on_host(i) else values[r] for i, r in enumerate(step.inputs))
                )
            if isinstance(op, NativeOperator):
                results, codes[step.id] = results
        _check_results(step, results, B)
        values |= zip(step.outputs, results, strict=True)
    return codes


@dataclasses.dataclass(frozen=True)
class _Stage:
    """A step inside a native call."""

    step: Step
    op: StageOperator
    ctx: LowerContext


def _call_stages(image: Any, stages: Sequence[_Stage], codes: dict[int, Any]) -> tuple[Any]:
    """Makes one native call of several stages. Returns the result of the last one, and adds the status of each to
    `codes`.
    """
    with jax.named_scope(" ".join(s.op.name for s in stages)):
        result, codes_of_stages = _ffi.call_chain(image, [(s.op.kernel, s.ctx, s.op.call(s.ctx)) for s in stages])
    codes.update(zip((s.step.id for s in stages), codes_of_stages, strict=True))
    return (result,)


def _check_results(step: Step, results: Sequence[Any], B: int):
    """Checks our own invariant: an operator's results have the specs that its infer returned."""
    assert len(results) == len(step.specs), step.op.name
    for r, spec in zip(results, step.specs, strict=True):
        assert isinstance(r, Ragged) == (spec.shape is None), (step.op.name, spec)
        assert r.dtype == spec.dtype, (step.op.name, r.dtype, spec)
        assert isinstance(r, Ragged) or r.shape == (B, *(spec.shape or ())), (step.op.name, r.shape, spec)
