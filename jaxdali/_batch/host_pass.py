"""The host pass of one batch: host operators, the setup of operators in programs, and eager functions in between."""

from __future__ import annotations

import dataclasses
import functools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .._core import ffi as _ffi
from .._core.building import warn
from .._core.context import HostContext
from .._core.errors import OperatorError
from .._core.graph import DataNode
from .._core.operator import EagerOperator, HostOperator, ProgramOperator, SourceOperator
from .._core.ragged import pack, rounded_up
from .._core.redaction import shown_error
from .._core.values import Spec, Value
from .._plan.binding import BoundPlan
from .._plan.plan import Plan, Ref, Step
from . import repair
from .batch import InFlightBatch
from .eager import EagerCalls
from .meter import Meter
from .origins import source_info
from .outputs import Outputs
from .resources import RunResources


@dataclasses.dataclass(frozen=True)
class _SingleStep:
    """A step of the host pass.

    Attributes:
      shapes: for each output of static shape, ``i64[N, ndim]``.
      fetched: results of programs that the step needs on the host, each with the step.
    """

    step: Step
    shapes: tuple[np.ndarray | None, ...]
    fetched: list[tuple[Step, Ref]]

    @functools.cached_property
    def waits(self) -> bool:
        """Whether it runs after programs, which must have succeeded."""
        return bool(self.fetched) or isinstance(self.step.op, EagerOperator)


@dataclasses.dataclass(frozen=True)
class _Pointwise:
    """Consecutive steps of the host pass that need only their inputs' data: see `HostOperator.compute`."""

    # With the function that computes it, and the shapes of its output.
    steps: list[tuple[Step, Callable[..., np.ndarray], np.ndarray]]
    fetched: list[tuple[Step, Ref]] = dataclasses.field(default_factory=list)  # see `_SingleStep`

    @property
    def waits(self) -> bool:
        """See `_SingleStep`."""
        return bool(self.fetched)

    def __call__(self, batch: InFlightBatch, meter: Meter):
        values, everywhere = batch.values, batch.present_in(None)
        with np.errstate(all="ignore"), meter.annotation("host", "pointwise"):
            for step, compute, shapes in self.steps:
                ref = step.outputs[0]
                if ref not in values:
                    try:
                        if meter.enabled:
                            with meter.stage("host", step.op.name, step.name):
                                data = compute(*[values[r].data for r in step.inputs])
                            meter.count("host", step.name, len(data), data.nbytes)
                        else:
                            data = compute(*[values[r].data for r in step.inputs])
                    except (ValueError, TypeError, ArithmeticError) as e:
                        raise step.node.failure(e) from shown_error(e)
                    present = everywhere if step.presence is None else batch.present_in(step.presence)
                    values[ref] = Value(step.specs[0], shapes, data, present)


def _prepared(plan: Plan, number: int, N: int) -> list[_SingleStep | _Pointwise]:
    """The host pass of phase `number` of a plan."""
    prepared: list[_SingleStep | _Pointwise] = []
    made: dict[int, int] = {}  # index of the part after which the outputs of a step exist
    for step in plan.steps:
        if step.phase != number or isinstance(step.op, SourceOperator):
            continue
        compute = None
        if step.stage == "host" and isinstance(step.op, HostOperator):
            compute = step.op.compute(N, *map(plan.spec, step.inputs))
        shapes = tuple(static_shapes(s, N) for s in step.specs)
        fetched = [(step, r) for r in plan.fetched(step)]
        if compute is None:
            prepared.append(_SingleStep(step, shapes, fetched))
            made[step.id] = len(prepared)
            continue
        assert shapes[0] is not None, step.op.name
        # In the first run after everything that it needs, so that there are few runs.
        ready = max((made[r.step] for r in step.needs if r.step in made), default=0)
        new = len(prepared), _Pointwise([])
        at, run = next(((i, x) for i, x in enumerate(prepared) if i >= ready and isinstance(x, _Pointwise)), new)
        if at == len(prepared):
            prepared.append(run)
        run.steps.append((step, compute, shapes[0]))
        run.fetched.extend(fetched)
        made[step.id] = at
    return prepared


class HostPass:
    """Runs the steps of a plan that run on the host.

    Args:
      bound: the plan, which grows with what the first batch shows.
      resources: the resources for making batches.
      capacity: returns the capacity, in elements, of the buffer that a program has for a ragged value; 0: not known.
      outputs: converts values to the form that functions take.
    """

    def __init__(self, bound: BoundPlan, resources: RunResources, capacity: Callable[[Ref], int], outputs: Outputs):
        self._bound = bound
        self._resources = resources
        self._capacity = capacity
        self._outputs = outputs
        self._eager = EagerCalls(resources, outputs, self._buffer)
        self._warned: set[tuple[int, str]] = set()  # what each node's data had that there was a warning of
        self._told: set[Ref] = set()  # values that were reported as copied to the host
        self._passed_on: dict[Ref, Ref] = {}  # ragged values that an operator passed on unchanged
        self._passes: dict[int, tuple[Plan, list[_SingleStep | _Pointwise]]] = {}

    def run(self, number: int, batch: InFlightBatch) -> dict[int, dict[int, int]]:
        """Runs the host steps of a phase, see Note [Phases], and the setup of its other steps. If samples have failed,
        it stops before a step that needs programs.

        Returns:
          Those samples: by native step, with their codes.
        """
        failed: dict[int, dict[int, int]] = {}
        for step in self._bound.plan.steps if batch.bad else ():
            for r in step.inputs if step.id in batch.bad else ():
                failed[r.step] = {**failed.get(r.step, {}), **batch.bad[step.id]}
        done: set[int] = set()
        waited = False
        plan = None
        while plan is not self._bound.plan:  # the plan grows with what is learned from the first batch
            if self._bound.plan.awaited:
                self._learn(batch)
            plan = self._bound.plan
            for item in self._prepared(number):
                if isinstance(item, _SingleStep) and item.step.id in done:
                    continue
                if item.waits and not waited:
                    if bad := repair.failed(batch, self._resources.meter):
                        return bad
                    waited = True
                for reader, ref in item.fetched:
                    self._fetch(reader, ref, batch)
                if isinstance(item, _Pointwise):
                    item(batch, self._resources.meter)
                    if plan.awaited and self._learn(batch):
                        break
                    continue
                step = item.step
                done.add(step.id)
                with self._resources.meter.stage("host" if step.stage == "host" else "setup", step.op.name, step.name):
                    self._run(item, batch, failed.get(step.id, {}))
                if batch.failures:
                    # A sample fails where it was read or looked at first, so the first failing step is the one to name.
                    raise repair.sample_error(batch.failures[0][0], batch, *batch.failures[0][1:])
                if self._bound.plan.awaited:
                    self._learn(batch)
                if self._bound.plan is not plan:
                    break
        return {}

    def _learn(self, batch: InFlightBatch) -> bool:
        """Binds the steps that awaited values which the batch now has. Returns whether there were any."""
        shapes: dict[Ref, tuple[int, ...]] = {}
        samples: dict[Ref, Sequence[np.ndarray]] = {}
        for ref in (r for r in self._bound.plan.awaited if r in batch.values):
            maker = self._bound.plan.maker(ref)
            present = batch.present_in(maker.presence)
            if present is not None and not present.any():
                raise maker.node.error(
                    "no sample of the first batch takes its branch, so its number of elements is not known, which determines the number of "
                    "dimensions of other operators' outputs"
                )
            shapes[ref], samples[ref] = self._first(ref, batch)
        self._bound.learn(shapes, samples)
        return bool(shapes)

    def _first(self, ref: Ref, batch: InFlightBatch) -> tuple[tuple[int, ...], Sequence[np.ndarray]]:
        """The shape of the first sample of a value, and its samples as far as the host has them. There is a sample."""
        value, present = batch.values[ref], batch.present_in(self._bound.plan.maker(ref).presence)
        shape = value.shapes[0 if present is None else int(present.argmax())]
        there = range(len(value)) if present is None else np.flatnonzero(present).tolist()
        return tuple(shape.tolist()), [] if value.data is None else [value.sample(i) for i in there]

    def binding_facts(self, batch: InFlightBatch) -> tuple[dict[Ref, tuple[int, ...]], dict[Ref, Sequence[np.ndarray]]]:
        """First shapes and samples of a batch by which steps are bound, see `BoundPlan.binding_refs`; not of values that it
        has none of.
        """

        def there(ref: Ref) -> bool:
            present = batch.present_in(self._bound.plan.maker(ref).presence) if ref in batch.values else None
            return ref in batch.values and (present is None or bool(present.any()))

        shapes, samples = ([r for r in refs if there(r)] for refs in self._bound.binding_refs)
        return {r: self._first(r, batch)[0] for r in shapes}, {r: self._first(r, batch)[1] for r in samples}

    def _fetch(self, reader: Step, ref: Ref, batch: InFlightBatch):
        """Copies a program's result to the host, for a step that reads it there."""
        if batch.values[ref].data is not None:
            return
        maker, meter = self._bound.plan.maker(ref), self._resources.meter
        with meter.stage("to host", maker.op.name, maker.name):
            value = batch.values[ref] = self._outputs.host_value(ref, batch)
        data = value.data
        assert data is not None, maker.op.name
        if meter.enabled:
            samples = self._resources.N if (present := batch.present_in(maker.presence)) is None else int(present.sum())
            meter.count("to host", maker.name, samples, data.nbytes)
        if ref not in self._told:
            self._told.add(ref)
            _tell(reader, maker)

    def run_alone(self, batch: InFlightBatch, bad: repair.Bad) -> bool:
        """Runs the host steps for samples that are made again alone, and the setup of the steps that make them.

        Args:
          batch: its `repaired` are these samples; its values and setups are replaced.

        Returns:
          False: a sample fails here, or is replaced by another.
        """
        for id, samples in bad.items():
            step = self._bound.plan.step(id)
            for maker in {r.step: self._bound.plan.maker(r) for r in step.inputs}.values():
                if maker.stage != "host" or not isinstance(maker.op, HostOperator):
                    continue  # made by a source or an earlier program
                ctx = self.context(maker, batch, samples)
                with self._resources.meter.stage("host", maker.op.name, maker.name):
                    self.store(
                        maker, batch, maker.op.run(ctx, *(batch.values[r].of(ctx.present) for r in maker.inputs))
                    )
            if batch.failures or batch.replaced:
                return False
            assert isinstance(step.op, ProgramOperator)
            with self._resources.meter.stage("setup", step.op.name, step.name):
                batch.setups[id] = step.op.setup(
                    self.context(step, batch, samples), *(batch.values[r] for r in step.inputs)
                )
        return True

    def _prepared(self, number: int) -> list[_SingleStep | _Pointwise]:
        """The host pass of a phase."""
        plan, prepared = self._passes.get(number, (None, []))
        if plan is not self._bound.plan:
            plan = self._bound.plan
            prepared = _prepared(plan, number, self._resources.N)
            self._passes[number] = plan, prepared
        return prepared

    def _run(self, alone: _SingleStep, batch: InFlightBatch, bad: Mapping[int, int]):
        step, op = alone.step, alone.step.op
        ctx = self.context(step, batch, bad)
        specs: tuple[Spec, ...] = ()
        try:
            values = [] if isinstance(op, EagerOperator) else [batch.values[r] for r in step.inputs]
            if isinstance(op, EagerOperator):
                specs = self._eager.call(self._bound.plan, step, op, batch, ctx)
            elif step.stage != "host":
                assert isinstance(op, ProgramOperator)
                batch.setups[step.id] = op.setup(ctx, *values)
            else:
                assert isinstance(op, HostOperator)
                if step.presence is None:
                    self.store(step, batch, op.run(ctx, *values))
                elif ctx.present.any():
                    self.store(step, batch, op.run(ctx, *(v.of(ctx.present) for v in values)))
                else:
                    self.store(step, batch, [_nothing(s, ctx.N) for s in step.specs])
        except OperatorError:
            raise
        except (ValueError, TypeError, IndexError, KeyError, ArithmeticError, OSError, MemoryError) as e:
            raise step.node.failure(e) from shown_error(e)
        if isinstance(op, EagerOperator):
            if not step.known:
                self._bound.learn_results(step, specs, _common_shapes(step, batch))
        elif step.stage != "host":
            for ref, spec, static, shapes in zip(
                step.outputs, step.specs, alone.shapes, batch.setups[step.id].shapes, strict=True
            ):
                batch.values[ref] = Value(spec, np.asarray(shapes, np.int64) if static is None else static)

    def context(self, step: Step, batch: InFlightBatch, bad: Mapping[int, int]) -> HostContext:
        """The context of an operator or source in the host pass."""
        resources, ids = self._resources, batch.ids
        epoch, position = (resources.zeros, resources.zeros) if ids is None else (ids.epoch, ids.position)
        epoch, position = batch.drawn.get(step.id, (epoch, position))
        present = batch.present_in(step.presence)
        present = resources.everywhere if present is None else present

        def empty(elements: int, dtype: Any, index: int = 0) -> np.ndarray:
            return self._buffer(step.outputs[index], elements, dtype)

        def fail(i: int, code: int, reason: str = ""):
            if present[i]:
                batch.failures.append((step, i, code, reason))

        def report_bad(i: int, code: int, reason: str = ""):
            if present[i]:
                batch.replaced.append((batch.path_of(step.node, i), reason or _ffi.STATUS.get(code, str(code))))

        def warn_once(about: str, text: str):
            if (step.node.id, about) not in self._warned:
                self._warned.add((step.node.id, about))
                warn(f"{step.op.name}: {text}", where=step.node.where)

        def source_of(i: int) -> str:
            names = source_info(batch, DataNode(step.node, 0), resources.B)
            return "" if names is None else names[i]

        return HostContext(
            S=resources.S,
            B=resources.B,
            N=resources.N,
            shard_ids=resources.shards.ids,
            num_shards=resources.shards.num,
            seed=resources.seed,
            num_threads=resources.num_threads,
            pool=resources.pool_id,
            epoch=epoch,
            position=position,
            present=present,
            specs=step.specs,
            random_index=step.node.random_index,
            bad=bad,
            empty=empty,
            fail=fail,
            report_bad=report_bad,
            source_of=source_of,
            resource=functools.partial(resources.resource, step.name),
            warn=warn_once,
        )

    def store(self, step: Step, batch: InFlightBatch, outputs: Sequence[Any]):
        """Stores what a host operator or a source returned."""
        N = self._resources.N
        for ref, spec, data in zip(step.outputs, step.specs, outputs, strict=True):
            shapes = static_shapes(spec, N)
            if shapes is not None:
                assert data.shape == (N, *(spec.shape or ())) and data.dtype == spec.dtype, (
                    step.op.name,
                    data.shape,
                    data.dtype,
                    spec,
                )
            else:
                if isinstance(data, list):
                    data = pack(data, self._resources.S, functools.partial(self._buffer, ref))
                assert data.data.dtype == spec.dtype and data.shapes.shape == (N, spec.ndim), (
                    step.op.name,
                    data.shapes.shape,
                    spec,
                )
                shapes = data.shapes
                for r in step.inputs:
                    if batch.values[r].data is data:
                        self._passed_on[r] = ref
            present = batch.present_in(step.presence)
            batch.values[ref] = Value(spec, shapes, data, present)
            if self._resources.meter.enabled:
                stage = "read" if isinstance(step.op, SourceOperator) else "host"
                self._resources.meter.count(
                    stage, step.name, 0 if ref.index else N if present is None else int(present.sum()), data.nbytes
                )

    def _buffer(self, ref: Ref, elements: int, dtype: Any) -> np.ndarray:
        """A pooled buffer ``[S, capacity]`` for a ragged host value, with the capacity of the program that reads it, if
        that is large enough.
        """
        while ref in self._passed_on:
            ref = self._passed_on[ref]
        return self._resources.pool.empty((self._resources.S, max(rounded_up(elements), 1, self._capacity(ref))), dtype)


_log = logging.getLogger(__name__)
_logged: set[tuple[str, str]] = set()
_log_lock = threading.Lock()  # guards `_logged`


def _tell(reader: Step, maker: Step):
    """Logs once that each batch makes a round trip between two lines of a definition. Predicates of branches are not
    logged.
    """
    lines = reader.node.where, maker.node.where
    if reader.op.name in ("if", "and", "or", "not"):
        return
    with _log_lock:
        new = lines not in _logged
        _logged.add(lines)
    if new:
        _log.warning(
            "%s (created at %s) needs on the host what %s (created at %s) makes in a compiled program: each batch waits for that program, "
            "and its result is copied to the host",
            reader.op.name,
            reader.node.where,
            maker.op.name,
            maker.node.where,
        )


def _common_shapes(step: Step, batch: InFlightBatch) -> dict[Ref, tuple[int, ...]]:
    """The shapes of a step's results, if all samples agree."""
    made = ((r, batch.values[r].shapes) for r in step.outputs if r in batch.values and step.presence is None)
    return {r: tuple(shapes[0].tolist()) for r, shapes in made if len(shapes) and (shapes == shapes[0]).all()}


def static_shapes(spec: Spec, N: int) -> np.ndarray | None:
    """``i64[N, ndim]``, the shapes of all samples if they are equal; None: they are not."""
    return None if spec.shape is None else _repeated(spec.shape, N)


def _nothing(spec: Spec, N: int) -> Any:
    """A placeholder for an output without samples."""
    if spec.shape is not None:
        return np.zeros((N, *spec.shape), spec.dtype)
    return [np.zeros((0,) * spec.ndim, spec.dtype)] * N


@functools.lru_cache(maxsize=1024)
def _repeated(shape: tuple[int, ...], N: int) -> np.ndarray:
    return np.broadcast_to(np.asarray(shape, np.int64).reshape(1, -1), (N, len(shape)))
