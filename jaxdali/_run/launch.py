"""The launch of one batch: the host pass, eager functions, and the programs, which are dispatched and not waited for."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.profiler import TraceAnnotation

from .._core import ffi as _ffi
from .._core.context import HostContext
from .._core.graph import Graph
from .._core.operator import EagerOperator, HostOperator, ProgramOperator, SourceOperator
from .._core.ragged import Capacities, Packed, pack, plan_offsets
from .._core.values import Spec, Value
from .._data.source import Source
from ..errors import OperatorError
from . import repair
from .operands import Layout, Operands
from .outputs import DifferentShapes, Outputs
from .passes import simplified
from .plan import Plan, Ref, Step, Surroundings, bound, make_plan
from .program import Program, capacities_for, program_for
from .segments import Segment, segments
from .sharding import Shards
from .work import EagerArrays, Work
from .workplace import Workplace


@dataclasses.dataclass(frozen=True)
class Phase:
    """What runs without an eager function in between: host steps, and then programs.

    Attributes:
      segments: the programs; first: number of the first in the pipeline.
      ragged: of each ragged value that the programs read or make, the place of its capacity.
      scratch: the same of each native step's working memory.
      capacities: shared with all iterators that have the same programs.
      last: whether the last program is the pipeline's last.
    """

    segments: tuple[Segment, ...]
    first: int
    ragged: Mapping[Ref, int]
    scratch: Mapping[int, int]
    capacities: Capacities
    last: bool


@dataclasses.dataclass(frozen=True)
class _Alone:
    """A step of the host pass. `shapes`: of each output of a static shape, ``i64[N, ndim]``."""

    step: Step
    shapes: tuple[np.ndarray | None, ...]


@dataclasses.dataclass(frozen=True)
class _Run:
    """Steps of the host pass that need no more than their inputs' data, one after the other: see `HostOperator.compute`."""

    steps: list[tuple[Step, Callable[..., np.ndarray], np.ndarray]]  # with what computes it, and the shapes of its output

    def __call__(self, values: dict[Ref, Value]):
        with np.errstate(all="ignore"):
            for step, compute, shapes in self.steps:
                ref = step.outputs[0]
                if ref not in values:
                    try:
                        values[ref] = Value(step.specs[0], shapes, compute(*[values[r].data for r in step.inputs]))
                    except (ValueError, TypeError, ArithmeticError) as e:
                        raise step.node.error(f"{type(e).__name__}: {e}") from e


class Launcher:
    """Launches the batches of an executor.

    Args:
      graphs: one per local shard.
      place: where and how they run.
      sources: by the id of their node.
      shardings: of the outputs.
      outputs: gives values the form in which functions take them.

    Attributes:
      plan: what runs. It grows when an eager function has run for the first time.
      ran: each program that has run, with its last operands, by its number.
    """

    def __init__(
        self,
        graphs: Sequence[Graph],
        place: Workplace,
        sources: Mapping[int, Source],
        shardings: Sequence[jax.sharding.Sharding | None],
        outputs: Outputs,
    ):
        of_shards = {n.id: [g.nodes[i].op for g in graphs] for i, n in enumerate(graphs[0].nodes)}
        self._place = place
        self._surroundings = Surroundings(place.B, place.kernels, place.settings, sources, of_shards)
        self._shardings = tuple(shardings)
        self._outputs = outputs
        self._phases: list[Phase] = []
        self._host_passes: dict[int, tuple[Plan, list[_Alone | _Run]]] = {}
        self._programs: dict[Any, tuple[Layout, Program, Shards]] = {}
        self.ran: dict[int, tuple[Program, Any]] = {}
        self.plan = make_plan(graphs[0])

    def build(self):
        """Binds the steps, as far as no eager function has to run for that."""
        self._replan(self.plan)

    def build_sources(self):
        """Binds the sources; reads first batches where only these tell the types."""
        self.plan = bound(self.plan, self._surroundings, SourceOperator)

    def _replan(self, plan: Plan):
        self.plan = simplified(bound(plan, self._surroundings))

    def launch(self, work: Work):
        """Host steps and eager functions in turn with programs.

        Returns:
          The work, or what was launched in its stead because samples had failed before an eager function.

        Raises:
          SampleError: a sample failed on the host; nothing of its phase was launched.
          OperatorError: an operator failed.
        """
        if work.failures:  # of what was read: no host step may follow
            raise repair.sample_error(work.failures[0][0], work, *work.failures[0][1:])
        number = 0
        while True:
            if bad := self._run_host(number, work):
                # A function that keeps Python state sees each batch once, whole, and in order.
                return self.launch(repair.again(work, bad))
            self._run_programs(self._phase(number), work)
            number += 1
            if number > self.plan.last_phase:
                return work

    # --- host ---------------------------------------------------------------------------------------------------

    def _run_host(self, number: int, work: Work) -> dict[int, dict[int, int]]:
        """The host steps of a phase, and the setup of its others. Stops at an eager function when samples have failed: returns these."""
        failed: dict[int, dict[int, int]] = {}
        for step in self.plan.steps if work.bad else ():
            for r in step.inputs if step.id in work.bad else ():
                failed[r.step] = {**failed.get(r.step, {}), **work.bad[step.id]}
        done: set[int] = set()
        plan = None
        while plan is not self.plan:  # an eager function that runs for the first time makes it longer
            plan = self.plan
            for item in self._prepared(number):
                if isinstance(item, _Run):
                    with TraceAnnotation("jaxdali host pointwise"):
                        item(work.values)
                    continue
                step = item.step
                if step.id in done:
                    continue
                done.add(step.id)
                if isinstance(step.op, EagerOperator) and (bad := repair.failed(work)):
                    return bad
                with TraceAnnotation(f"jaxdali host {step.op.name}"):
                    self._run(item, work, failed.get(step.id, {}))
                if work.failures:
                    # A sample fails where it was read or looked at first, so the first failing step is the one to name.
                    raise repair.sample_error(work.failures[0][0], work, *work.failures[0][1:])
                if self.plan is not plan:
                    break
        return {}

    def _prepared(self, number: int) -> list[_Alone | _Run]:
        """The host pass of a phase."""
        plan, prepared = self._host_passes.get(number, (None, []))
        if plan is not self.plan:
            plan, N = self.plan, self._place.N
            prepared = []
            for step in plan.steps:
                if step.phase != number or isinstance(step.op, SourceOperator):
                    continue
                compute = None
                if step.stage == "host" and isinstance(step.op, HostOperator):
                    compute = step.op.compute(N, *map(plan.spec, step.inputs))
                shapes = tuple(static_shapes(s, N) for s in step.specs)
                if compute is None:
                    prepared.append(_Alone(step, shapes))
                    continue
                assert shapes[0] is not None, step.op.name
                last = prepared[-1] if prepared else None
                if not isinstance(last, _Run):
                    last = _Run([])
                    prepared.append(last)
                last.steps.append((step, compute, shapes[0]))
            self._host_passes[number] = plan, prepared
        return prepared

    def _run(self, alone: _Alone, work: Work, bad: Mapping[int, int]):
        step, op = alone.step, alone.step.op
        ctx = self.context(step, work, bad)
        try:
            if isinstance(op, EagerOperator):
                self._place.calling = step.node
                self._run_eager(step, op, work, ctx)
                return
            values = [work.values[r] for r in step.inputs]
            if step.stage == "host":
                assert isinstance(op, HostOperator)
                self.store(step, work, op.run(ctx, *values))
                return
            assert isinstance(op, ProgramOperator)
            setup = work.setups[step.id] = op.setup(ctx, *values)
        except OperatorError:
            raise
        except (ValueError, TypeError, IndexError, KeyError, ArithmeticError, OSError, MemoryError) as e:
            raise step.node.error(f"{type(e).__name__}: {e}") from e
        finally:
            self._place.calling = None
        for ref, spec, static, shapes in zip(step.outputs, step.specs, alone.shapes, setup.shapes, strict=True):
            work.values[ref] = Value(spec, np.asarray(shapes, np.int64) if static is None else static)

    def context(self, step: Step, work: Work, bad: Mapping[int, int]) -> HostContext:
        """What an operator or source gets in the host pass."""
        place, ids = self._place, work.ids

        def empty(elements: int, dtype: Any, index: int = 0) -> np.ndarray:
            return self._buffer(step.outputs[index], elements, dtype)

        def fail(i: int, code: int, reason: str = ""):
            work.failures.append((step, i, code, reason))

        def report_bad(i: int, code: int, reason: str = ""):
            work.replaced.append((work.source_of(step.node, i), reason or _ffi.STATUS.get(code, str(code))))

        return HostContext(
            S=place.S,
            B=place.B,
            N=place.N,
            shard_ids=place.shards.ids,
            num_shards=place.shards.num,
            seed=place.seed,
            num_threads=place.num_threads,
            pool=place.pool_id,
            epoch=ids.epoch if ids is not None else place.zeros,
            position=ids.position if ids is not None else place.zeros,
            present=ids.present if ids is not None and ids.present is not None else place.everywhere,
            specs=step.specs,
            random_index=step.node.random_index,
            bad=bad,
            empty=empty,
            fail=fail,
            report_bad=report_bad,
        )

    def store(self, step: Step, work: Work, outputs: Sequence[Any]):
        """Keeps what a host operator or a source returned."""
        N = self._place.N
        for ref, spec, data in zip(step.outputs, step.specs, outputs, strict=True):
            shapes = static_shapes(spec, N)
            if shapes is not None:
                assert data.shape == (N, *(spec.shape or ())) and data.dtype == spec.dtype, (step.op.name, data.shape, data.dtype, spec)
            else:
                if isinstance(data, list):
                    data = pack(data, self._place.S, functools.partial(self._buffer, ref))
                assert data.data.dtype == spec.dtype and data.shapes.shape == (N, spec.ndim), (step.op.name, data.shapes.shape, spec)
                shapes = data.shapes
            work.values[ref] = Value(spec, shapes, data)

    def _buffer(self, ref: Ref, elements: int, dtype: Any) -> np.ndarray:
        """A pooled buffer ``[S, capacity]`` for a ragged host value, of the capacity that the program reading it has, if that is enough."""
        capacity = max(elements, 1)
        for phase in self._phases:
            if ref in phase.ragged:
                capacity = max(capacity, phase.capacities.get(phase.ragged[ref]))
        return self._place.pool.empty((self._place.S, capacity), dtype)

    def _run_eager(self, step: Step, op: EagerOperator, work: Work, ctx: HostContext):
        """Calls an eager function on each shard's arrays. Its results are what it returned; later steps see them as host values."""
        place = self._place
        inputs = []
        for i, r in enumerate(step.inputs):
            try:
                inputs.append(self._outputs.parts(r, self.plan.maker(r), work, narrowed=not place.settings.x64))
            except DifferentShapes as e:
                raise step.node.error(op.not_uniform(i, e.shapes)) from e
        beside = place.accelerator and step.node.device not in ("mixed", "gpu") and op.sharding is None
        results = op.call(ctx, inputs, place.cpu_shards if beside else place.shards)
        specs: list[Spec] = []
        for i, parts in enumerate(results):
            ndim = parts[0].ndim - 1
            specs.append(Spec(parts[0].dtype, ndim, None if ndim else (), op.layout_of(i, ndim)))
            if step.known and (step.specs[i].dtype, step.specs[i].ndim) != (specs[i].dtype, ndim):
                before = step.specs[i]
                raise step.node.error(
                    f"output {i} had {before.ndim} dimensions of {before.dtype}, now {ndim} of {specs[i].dtype}; these may not change"
                )
        for ref, spec, parts in zip(step.outputs, specs, results, strict=True):
            work.results[ref] = EagerArrays(parts)
            shape = np.asarray(parts[0].shape[1:], np.int64)
            value = work.values[ref] = Value(spec, np.broadcast_to(shape, (place.N, spec.ndim)))
            if ref in self.plan.read:
                made = iter([row for p in parts for row in np.asarray(p)])
                missing = np.zeros(parts[0].shape[1:], spec.dtype)
                rows = [next(made) if here else missing for here in ctx.present.tolist()]
                if spec.shape is not None:
                    value.data = np.asarray(rows, spec.dtype)
                else:
                    value.data = pack(rows, place.S, functools.partial(self._buffer, ref))
        if not step.known:
            self._replan(self.plan.with_specs(step, tuple(specs)))

    # --- programs -----------------------------------------------------------------------------------------------

    def _phase(self, number: int) -> Phase:
        """The programs of a phase whose host steps have run, and whose steps are therefore known."""
        if number == len(self._phases):
            place, plan = self._place, self.plan
            last = plan.ends_with(number)
            ride = place.as_arrays and last and (any(s is not None for s in self._shardings) or not place.accelerator)
            found = segments(plan, number, place.accelerator, place.kernels, ride)
            read_or_made = [r for s in found for r in (*s.operands, *(r for step in s.steps for r in step.outputs))]
            ragged = dict.fromkeys(r for r in read_or_made if plan.spec(r).shape is None)
            scratch = [step.id for s in found for step in s.native]
            capacities = capacities_for((tuple(s.key for s in found), place.shards.devices), place.B)
            first = sum(len(p.segments) for p in self._phases)
            self._phases.append(
                Phase(
                    found,
                    first,
                    {r: i for i, r in enumerate(ragged)},
                    {step: len(ragged) + i for i, step in enumerate(scratch)},
                    capacities,
                    last,
                )
            )
        return self._phases[number]

    def _run_programs(self, phase: Phase, work: Work):
        """Dispatches the programs of a phase."""
        place = self._place
        offsets: dict[Ref, np.ndarray] = {}
        needs: dict[int, int] = {}
        for ref, at in phase.ragged.items():
            value = work.values[ref]
            if isinstance(value.data, Packed):
                offsets[ref], needs[at] = value.data.offsets, value.data.used
            else:
                try:
                    offsets[ref], needs[at] = plan_offsets(value.shapes, place.S)
                except ValueError as e:
                    raise self.plan.maker(ref).node.error(str(e)) from e
        needs |= {at: size for step, at in phase.scratch.items() if (size := work.setups[step].scratch)}
        capacities = phase.capacities.fit(needs)
        for at, segment in enumerate(phase.segments, phase.first):
            operands = Operands(place.S, place.B, place.pool)
            operands.control(place.pool_id, work.present)
            for ref in segment.operands:
                operands.value(work.values[ref], capacities[phase.ragged[ref]] if ref in phase.ragged else 0)
            for step in segment.steps:
                setup = work.setups[step.id]
                made = [
                    (capacities[phase.ragged[r]], offsets[r], work.values[r].shapes) if r in phase.ragged else None for r in step.outputs
                ]
                operands.step(made, setup.params, capacities[phase.scratch[step.id]] if setup.scratch else 0)
            layout, program, shards = self._program(at, segment, phase, operands)
            carried = tuple(work.results[r] for r in segment.carried)
            carried = jax.device_put(carried, shards.local) if carried else ()
            arguments = (operands.packed(layout), tuple(operands.buffers), carried)
            if place.S > 1 and jax.process_count() > 1:  # with several processes JAX takes no NumPy array to be sharded
                arguments = jax.device_put(arguments, shards.local)
            with TraceAnnotation(f"jaxdali launch {segment.name}"):
                exports, codes = program.run(*arguments)
            if segment.native:
                codes.copy_to_host_async()
                work.status.append((segment.native, codes))
            self.ran[at] = (program, arguments)
            work.results |= zip(segment.exports, exports, strict=True)

    def _program(self, at: int, segment: Segment, phase: Phase, operands: Operands) -> tuple[Layout, Program, Shards]:
        """The program for operands of these shapes, and where they stand."""
        key = at, operands.key
        found = self._programs.get(key)
        if found is None:
            place, plan = self._place, segment.plan
            layout = operands.layout()
            shards = place.shards if segment.on_device else place.cpu_shards
            last = phase.last and segment is phase.segments[-1] and place.as_arrays
            # Of an output that is wanted on several shardings the program writes the first.
            wanted = dict(zip(plan.outputs[::-1], self._shardings[::-1], strict=True)) if last else {}
            direct = {r: s for r, s in wanted.items() if s is not None and shards.direct(s)}
            placed = tuple(shards.local if plan.spec(r).shape is None else direct.get(r, shards.local) for r in segment.exports)
            # What a later program reads must keep its type, but after the last program there is none.
            narrowed = last and not place.x64
            program = program_for(segment, layout, shards, place.B, placed, narrowed, bool(direct) and self._outputs.stacked)
            found = self._programs[key] = layout, program, shards
        return found


def static_shapes(spec: Spec, N: int) -> np.ndarray | None:
    """``i64[N, ndim]``, the shapes of samples that all have one; None: they don't."""
    return None if spec.shape is None else _repeated(spec.shape, N)


@functools.lru_cache(maxsize=1024)
def _repeated(shape: tuple[int, ...], N: int) -> np.ndarray:
    return np.broadcast_to(np.asarray(shape, np.int64).reshape(1, -1), (N, len(shape)))
