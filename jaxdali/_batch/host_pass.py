"""`HostPass`: runs host operators, the setup of operators in programs, and eager functions between programs."""

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
from .batch import InFlightBatch, SampleFailure
from .eager import EagerCalls
from .meter import Meter
from .origins import source_info
from .outputs import Outputs
from .resources import RunResources


@dataclasses.dataclass(frozen=True)
class _SingleStep:
    """An item of the host pass: one step.

    Attributes:
      shapes: ``i64[N, ndim]`` for each output of static shape, None for others.
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
    """An item of the host pass: consecutive steps that need only the data of their inputs, see `HostOperator.compute`.
    They run in one loop without the contexts and checks of other steps, which would take longer than the arithmetic.

    Attributes:
      steps: each step with its function, which maps the data of its inputs to those of its output, and the shapes of
        the output, ``i64[N, ndim]``.
      fetched: results of programs that the steps need on the host, each with its step.
    """

    steps: list[tuple[Step, Callable[..., np.ndarray], np.ndarray]]
    fetched: list[tuple[Step, Ref]] = dataclasses.field(default_factory=list)

    @property
    def waits(self) -> bool:
        """Whether it runs after programs, which must have succeeded."""
        return bool(self.fetched)

    def __call__(self, batch: InFlightBatch, meter: Meter):
        """Computes the outputs of the steps, and stores them in the batch."""
        # `everywhere`: the samples that steps outside of branches work on.
        values, everywhere = batch.values, batch.present_in(None)
        with np.errstate(all="ignore"), meter.annotation("host", "pointwise"):
            for step, compute, shapes in self.steps:
                ref = step.outputs[0]
                if ref not in values:  # it is there already if the pass began again, see `HostPass.run`
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


def _items_of_phase(plan: Plan, number: int, N: int) -> list[_SingleStep | _Pointwise]:
    """Orders the steps of a phase into the items of its host pass. Steps that need only the data of their inputs are
    gathered in few `_Pointwise` items.

    Args:
      number: of the phase.
      N: samples of a batch, of all local shards.
    """
    items: list[_SingleStep | _Pointwise] = []
    # By step: the index of the first item that can use its outputs. Later steps of a pointwise item can use the outputs
    # of its earlier ones, but a single step's outputs can be used only by the next item.
    ready_at: dict[int, int] = {}
    for step in plan.steps:
        if step.phase != number or isinstance(step.op, SourceOperator):
            continue
        compute = None
        if step.stage == "host" and isinstance(step.op, HostOperator):
            compute = step.op.compute(N, *map(plan.spec, step.inputs))
        shapes = tuple(static_shapes(s, N) for s in step.specs)
        fetched = [(step, r) for r in plan.fetched(step)]  # results of programs that it needs on the host
        if compute is None:
            items.append(_SingleStep(step, shapes, fetched))
            ready_at[step.id] = len(items)
            continue
        assert shapes[0] is not None, step.op.name  # `compute` has one output, of static shape
        # The step joins the first pointwise item after everything that it needs, so that there are few items.
        earliest = max((ready_at[r.step] for r in step.needs if r.step in ready_at), default=0)
        new_item = len(items), _Pointwise([])
        index, item = next(
            ((i, x) for i, x in enumerate(items) if i >= earliest and isinstance(x, _Pointwise)), new_item
        )
        if index == len(items):
            items.append(item)
        item.steps.append((step, compute, shapes[0]))
        item.fetched.extend(fetched)
        ready_at[step.id] = index
    return items


class HostPass:
    """Runs the steps of a plan that run on the host.

    Steps in a branch of an `if` work on some of the N samples only, which are present in the branch (see Note
    [Presence]). A value is ragged if its samples may differ in shape; otherwise its shape is static.

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
        self._warned: set[tuple[int, str]] = set()  # the warnings so far: node id, and a word for the property
        self._logged_fetches: set[Ref] = set()  # values that were reported as copied to the host
        # Ragged values that an operator passed on unchanged, and the outputs that they became. A buffer for the first
        # gets the capacity of the last, which a program reads.
        self._passed_on: dict[Ref, Ref] = {}
        # By number of the phase: its items, and the plan of which they were made.
        self._items_by_phase: dict[int, tuple[Plan, list[_SingleStep | _Pointwise]]] = {}

    def run(self, number: int, batch: InFlightBatch) -> dict[int, dict[int, int]]:
        """Runs the host steps of a phase, see Note [Phases], and the setup of its other steps.

        Args:
          number: of the phase.

        Returns:
          Samples that failed in earlier programs and can be repaired: by the id of the native step, the status code of
          each. The pass then has stopped before the first step that needs these programs. Empty: the pass is complete.
        """
        # Samples that failed in an earlier launch of this batch, with their status codes, by the steps that made the
        # inputs of the failed step: these must replace them, or process them on the host (`HostContext.bad`).
        bad_inputs: dict[int, dict[int, int]] = {}
        for step in self._bound.plan.steps if batch.bad else ():
            for r in step.inputs if step.id in batch.bad else ():
                bad_inputs[r.step] = {**bad_inputs.get(r.step, {}), **batch.bad[step.id]}
        done: set[int] = set()
        has_waited = False
        plan = None
        # The first batch may show what steps awaited. Then the plan grows, and the pass begins again with the steps
        # that are not done.
        while plan is not self._bound.plan:
            if self._bound.plan.awaited:
                self._learn(batch)
            plan = self._bound.plan
            for item in self._items(number):
                if isinstance(item, _SingleStep) and item.step.id in done:
                    continue
                if item.waits and not has_waited:
                    if bad := repair.failed(batch, self._resources.meter):
                        return bad
                    has_waited = True
                for reader, ref in item.fetched:
                    self._fetch(reader, ref, batch)
                if isinstance(item, _Pointwise):
                    item(batch, self._resources.meter)
                else:
                    step = item.step
                    done.add(step.id)
                    stage = "host" if step.stage == "host" else "setup"
                    with self._resources.meter.stage(stage, step.op.name, step.name):
                        self._run(item, batch, bad_inputs.get(step.id, {}))
                    repair.raise_first_failure(batch)
                if self._bound.plan.awaited:
                    self._learn(batch)
                if self._bound.plan is not plan:  # it has grown: begin again with its items
                    break
        return {}

    def _learn(self, batch: InFlightBatch):
        """Binds the steps that awaited values which the batch now has, if there are any."""
        shapes: dict[Ref, tuple[int, ...]] = {}
        samples: dict[Ref, Sequence[np.ndarray]] = {}
        for ref in (r for r in self._bound.plan.awaited if r in batch.values):
            # Without a sample of it, the steps that await the value could never be bound.
            maker = self._bound.plan.maker(ref)
            present = batch.present_in(maker.presence)
            if present is not None and not present.any():
                raise maker.node.error(
                    "no sample of the first batch takes its branch, so its number of elements is not known, which determines the number of "
                    "dimensions of other operators' outputs"
                )
            shapes[ref], samples[ref] = self._first(ref, batch)
        self._bound.learn(shapes, samples)

    def _first(self, ref: Ref, batch: InFlightBatch) -> tuple[tuple[int, ...], Sequence[np.ndarray]]:
        """Returns the shape of the first sample of a value, and its samples if they are on the host, else none. The
        batch must have a sample of it.
        """
        value, present = batch.values[ref], batch.present_in(self._bound.plan.maker(ref).presence)
        shape = value.shapes[0 if present is None else int(present.argmax())]
        places = range(len(value)) if present is None else np.flatnonzero(present).tolist()
        return tuple(shape.tolist()), [] if value.data is None else [value.sample(i) for i in places]

    def binding_facts(self, batch: InFlightBatch) -> tuple[dict[Ref, tuple[int, ...]], dict[Ref, Sequence[np.ndarray]]]:
        """Returns the first shapes, and the samples, of a batch by which steps are bound, see `BoundPlan.binding_refs`.
        Values of which the batch has no sample are left out.
        """

        def has_samples(ref: Ref) -> bool:
            present = batch.present_in(self._bound.plan.maker(ref).presence) if ref in batch.values else None
            return ref in batch.values and (present is None or bool(present.any()))

        shape_refs, sample_refs = ([r for r in refs if has_samples(r)] for refs in self._bound.binding_refs)
        return {r: self._first(r, batch)[0] for r in shape_refs}, {r: self._first(r, batch)[1] for r in sample_refs}

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
        if ref not in self._logged_fetches:
            self._logged_fetches.add(ref)
            _log_round_trip(reader, maker)

    def run_alone(self, batch: InFlightBatch, bad: repair.Bad) -> bool:
        """Runs the host steps for samples that are made again alone, and the setup of the steps that make them. See
        Note [Repair alone].

        Args:
          batch: its `repaired` are these samples. Its values and setups are replaced.
          bad: by the id of the native step that failed, the samples and their status codes.

        Returns:
          Whether this succeeded; False: a sample fails here, or is replaced by another.
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

    def _items(self, number: int) -> list[_SingleStep | _Pointwise]:
        """The items of the host pass of a phase, which are kept until the plan grows."""
        plan, items = self._items_by_phase.get(number, (None, []))
        if plan is not self._bound.plan:
            plan = self._bound.plan
            items = _items_of_phase(plan, number, self._resources.N)
            self._items_by_phase[number] = plan, items
        return items

    def _run(self, item: _SingleStep, batch: InFlightBatch, bad: Mapping[int, int]):
        """Runs a step on the host, its eager function, or its setup, and stores the results in the batch.

        Args:
          bad: the samples of the step's outputs with which a later step failed in an earlier launch of the batch, and
            the status codes.
        """
        step, op = item.step, item.step.op
        ctx = self.context(step, batch, bad)
        specs: tuple[Spec, ...] = ()  # of an eager function's results
        try:
            # An eager function takes its inputs from where they are, also from programs.
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
                    self.store(step, batch, [_empty_output(s, ctx.N) for s in step.specs])
        except OperatorError:
            raise
        except (ValueError, TypeError, IndexError, KeyError, ArithmeticError, OSError, MemoryError) as e:
            raise step.node.failure(e) from shown_error(e)
        if isinstance(op, EagerOperator):
            if not step.known:  # its first results show the types of its outputs
                self._bound.learn_results(step, specs, _common_shapes(step, batch))
        elif step.stage != "host":
            # A program will make the data. The host knows the shapes already, from the spec or from the setup.
            for ref, spec, static, shapes in zip(
                step.outputs, step.specs, item.shapes, batch.setups[step.id].shapes, strict=True
            ):
                batch.values[ref] = Value(spec, np.asarray(shapes, np.int64) if static is None else static)

    def context(self, step: Step, batch: InFlightBatch, bad: Mapping[int, int]) -> HostContext:
        """Makes the context of an operator or source in the host pass. `HostContext` documents the functions in it.

        Args:
          bad: the samples of the step's outputs with which a later step failed in an earlier launch of the batch, and
            the status codes; see `HostContext.bad`.
        """
        resources, ids = self._resources, batch.ids
        # The key of each sample's random numbers.
        epoch, position = (resources.zeros, resources.zeros) if ids is None else (ids.epoch, ids.position)
        epoch, position = batch.random_keys.get(step.id, (epoch, position))
        present = batch.present_in(step.presence)
        present = resources.all_present if present is None else present

        def empty(elements: int, dtype: Any, index: int = 0) -> np.ndarray:
            return self._buffer(step.outputs[index], elements, dtype)

        # Operators may also check the samples that are absent, whose contents are arbitrary.
        def fail(i: int, code: int, reason: str = ""):
            if present[i]:
                batch.failures.append(SampleFailure(step, i, code, reason))

        def report_bad(i: int, code: int, reason: str = ""):
            if present[i]:
                batch.replaced.append((batch.path_of(step.node, i), reason or _ffi.STATUS.get(code, str(code))))

        def warn_once(about: str, text: str):
            if (step.node.id, about) not in self._warned:
                self._warned.add((step.node.id, about))
                warn(f"{step.op.name}: {text}", where=step.node.where)

        def source_of(i: int) -> str:
            names = source_info(batch, DataNode(step.node, 0), resources.B)  # of the first output
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
            free_bytes=resources.pool.free_bytes,
        )

    def store(self, step: Step, batch: InFlightBatch, outputs: Sequence[Any]):
        """Stores the outputs of a host operator or a source in the batch.

        Args:
          outputs: each dense ``[N, ...]``, or for a ragged value `Packed` or a list of samples.
        """
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
                # The operator passed an input on unchanged. `_buffer` sizes the input's buffer for the reader of `ref`.
                for r in step.inputs:
                    if batch.values[r].data is data:
                        self._passed_on[r] = ref
            present = batch.present_in(step.presence)
            batch.values[ref] = Value(spec, shapes, data, present)
            if self._resources.meter.enabled:
                stage = "read" if isinstance(step.op, SourceOperator) else "host"
                # Samples are counted once, with the first output; bytes are those of all outputs.
                self._resources.meter.count(
                    stage, step.name, 0 if ref.index else N if present is None else int(present.sum()), data.nbytes
                )

    def _buffer(self, ref: Ref, elements: int, dtype: Any) -> np.ndarray:
        """Returns a pooled buffer ``[S, capacity]`` for a ragged host value. If the program that reads the value has a
        larger capacity, the buffer has it too, so that the program reads it in place.
        """
        while ref in self._passed_on:
            ref = self._passed_on[ref]
        return self._resources.pool.empty((self._resources.S, max(rounded_up(elements), 1, self._capacity(ref))), dtype)


_log = logging.getLogger(__name__)
_logged_lines: set[tuple[str, str]] = set()
_log_lock = threading.Lock()  # guards `_logged_lines`


def _log_round_trip(reader: Step, maker: Step):
    """Logs once that each batch makes a round trip between two lines of a definition. Predicates of branches are not
    logged.
    """
    lines = reader.node.where, maker.node.where
    if reader.op.name in ("if", "and", "or", "not"):
        return
    with _log_lock:
        is_new = lines not in _logged_lines
        _logged_lines.add(lines)
    if is_new:
        _log.warning(
            "%s (created at %s) needs on the host what %s (created at %s) makes in a compiled program: each batch waits for that program, "
            "and its result is copied to the host",
            reader.op.name,
            reader.node.where,
            maker.op.name,
            maker.node.where,
        )


def _common_shapes(step: Step, batch: InFlightBatch) -> dict[Ref, tuple[int, ...]]:
    """The shape of each of a step's results whose samples agree in shape. Empty for a step in a branch, whose results
    may lack samples.
    """
    results = ((r, batch.values[r].shapes) for r in step.outputs if r in batch.values and step.presence is None)
    return {r: tuple(shapes[0].tolist()) for r, shapes in results if len(shapes) and (shapes == shapes[0]).all()}


def static_shapes(spec: Spec, N: int) -> np.ndarray | None:
    """Returns ``i64[N, ndim]``, the shapes of all samples, if the spec has one shape for all; otherwise None."""
    return None if spec.shape is None else _repeated(spec.shape, N)


def _empty_output(spec: Spec, N: int) -> Any:
    """A placeholder for an output without samples."""
    if spec.shape is not None:
        return np.zeros((N, *spec.shape), spec.dtype)
    return [np.zeros((0,) * spec.ndim, spec.dtype)] * N


@functools.lru_cache(maxsize=1024)
def _repeated(shape: tuple[int, ...], N: int) -> np.ndarray:
    """Returns ``i64[N, ndim]``, the same shape for all samples."""
    return np.broadcast_to(np.asarray(shape, np.int64).reshape(1, -1), (N, len(shape)))
