"""`EagerCalls`: calls eager functions, which are user functions that run between programs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._core.context import HostContext
from .._core.errors import DifferentShapes, OperatorError
from .._core.operator import EagerOperator, SampleOperator
from .._core.ragged import Packed, pack
from .._core.redaction import shown_error
from .._core.values import Spec, Value
from .._plan.plan import Plan, Ref, Step
from .batch import EagerArrays, EagerResults, InFlightBatch
from .outputs import Outputs
from .resources import RunResources


class EagerCalls:
    """Calls the eager functions of a pipeline, and stores their results in the batch.

    A function in a branch of an `if` gets only the samples that take the branch, which are present there.

    Args:
      resources: the resources for making batches.
      outputs: converts values to the form that functions take.
      buffer: returns a pooled buffer for a ragged value, from the number and type of its elements.
    """

    def __init__(self, resources: RunResources, outputs: Outputs, buffer: Callable[[Ref, int, Any], np.ndarray]):
        self._resources = resources
        self._outputs = outputs
        self._buffer = buffer

    def call(
        self, plan: Plan, step: Step, op: EagerOperator, batch: InFlightBatch, ctx: HostContext
    ) -> tuple[Spec, ...]:
        """Calls the function of a step, and stores its results in the batch. Returns the specs of its outputs.

        Args:
          plan: has the steps that make the inputs, and those that use the results.
          step: the step of the function.
          op: the operator of the step, which calls the function.
          batch: has the inputs.
          ctx: the context of the call: `ctx.present` are the samples that the function gets.
        """
        self._resources.note_call(step.node)
        try:
            if isinstance(op, SampleOperator):
                return self._call_samples(plan, step, op, batch, ctx)
            return self._call(plan, step, op, batch, ctx)
        finally:
            self._resources.note_call(None)

    def _call(
        self, plan: Plan, step: Step, op: EagerOperator, batch: InFlightBatch, ctx: HostContext
    ) -> tuple[Spec, ...]:
        """Calls a function with each shard's arrays of the present samples. Its results are arrays. If later steps use
        them, they get a copy on the host with all samples. Returns the specs of the results.
        """
        resources = self._resources
        inputs = []
        present = batch.present_in(step.presence)
        for i, r in enumerate(step.inputs):
            try:
                inputs.append(
                    self._outputs.parts(r, plan.maker(r), batch, present, narrowed=not resources.settings.x64)
                )
            except DifferentShapes as e:
                raise step.node.error(op.not_uniform(i, e.shapes)) from e
        # A function that the user has not put on the accelerator runs on the CPU beside it.
        on_cpu = resources.accelerator and step.node.device not in ("mixed", "gpu") and op.sharding is None
        # Without samples the function is not called, unless only its results show the types of its outputs.
        specs = None if ctx.present.any() else _expected(plan, step, op)
        if specs is not None:
            outputs = [[np.zeros((0,) * (1 + s.ndim), s.dtype)] * resources.S for s in specs]
        else:
            results = self._call_or_reuse(
                step,
                op,
                batch,
                lambda: op.call(ctx, inputs, resources.cpu_shards if on_cpu else resources.shards),
                lambda i, parts: _result_spec(op, i, parts[0].dtype, parts[0].ndim - 1),
            )
            outputs, specs = results.outputs, results.specs
        for ref, spec, parts in zip(step.outputs, specs, outputs, strict=True):
            arrays = batch.results[ref] = EagerArrays(parts)
            arrays.present = present
            shape = np.asarray(parts[0].shape[1:], np.int64)
            value = batch.values[ref] = Value(spec, np.broadcast_to(shape, (resources.N, spec.ndim)), present=present)
            if ref in plan.read:
                # The steps that read it find a row for each of the N samples.
                present_rows = iter([row for p in parts for row in np.asarray(p)])
                missing = np.zeros(parts[0].shape[1:], spec.dtype)
                rows = [next(present_rows) if is_present else missing for is_present in ctx.present.tolist()]
                if spec.shape is not None:
                    value.data = np.asarray(rows, spec.dtype)
                else:
                    value.data = pack(rows, resources.S, functools.partial(self._buffer, ref))
        return specs

    def _call_samples(
        self, plan: Plan, step: Step, op: SampleOperator, batch: InFlightBatch, ctx: HostContext
    ) -> tuple[Spec, ...]:
        """Calls a function with samples. Its results are host values. Returns their specs."""
        if ctx.present.any():
            results = self._call_or_reuse(
                step,
                op,
                batch,
                lambda: self._results_of_samples(step, op, batch, ctx),
                lambda i, samples: _spec_of_samples(step, op, i, samples),
            )
            outputs, specs = results.outputs, results.specs
        else:
            specs = _expected(plan, step, op)
            if specs is None:
                raise step.node.error(
                    "no sample of the first batch takes its branch, so the types of its outputs are not known, but other operators "
                    "use them; return them from the `if`, or call the function before it"
                )
            outputs = [[None] * ctx.N for _ in specs]
        for ref, spec, samples in zip(step.outputs, specs, outputs, strict=True):
            rows = [np.zeros((0,) * spec.ndim, spec.dtype) if x is None else x for x in samples]  # None: absent
            data = pack(rows, self._resources.S, functools.partial(self._buffer, ref)) if spec.ndim else np.array(rows)
            shapes = data.shapes if isinstance(data, Packed) else np.zeros((self._resources.N, 0), np.int64)
            batch.values[ref] = Value(spec, shapes, data, batch.present_in(step.presence))
        return specs

    def _results_of_samples(
        self, step: Step, op: SampleOperator, batch: InFlightBatch, ctx: HostContext
    ) -> Sequence[Any]:
        """Calls the function. Returns what `SampleOperator.call_samples` does."""
        try:
            return op.call_samples(ctx, [self._outputs.host_value(r, batch) for r in step.inputs])
        except OperatorError:
            raise
        except Exception as e:  # a user function may raise anything
            raise step.node.failure(e) from shown_error(e)

    @staticmethod
    def _call_or_reuse(
        step: Step,
        op: EagerOperator,
        batch: InFlightBatch,
        call: Callable[[], Sequence[Any]],
        spec_of: Callable[[int, Any], Spec],
    ) -> EagerResults:
        """Calls a function, or returns its earlier results if the batch has them (`InFlightBatch.eager_results`).

        Args:
          step: the step of the function.
          op: its operator, for messages.
          batch: gets the failures and replacements of the call.
          call: calls the function, and returns a value for each output.
          spec_of: returns the spec of an output, from its number and its value.

        Raises:
          OperatorError: outputs have other types or dimensions than in the batch before.
        """
        results = batch.eager_results.get(step.id) if batch.eager_results is not None else None
        if results is not None:  # as if the call had been made again
            batch.failures += results.failures
            batch.replaced += results.replaced
        else:
            num_failures, num_replaced = len(batch.failures), len(batch.replaced)
            outputs = call()
            specs = tuple(spec_of(i, x) for i, x in enumerate(outputs))
            results = EagerResults(outputs, specs, batch.failures[num_failures:], batch.replaced[num_replaced:])
            if batch.eager_results is not None:
                batch.eager_results[step.id] = results
        for i, (first, spec) in enumerate(zip(step.specs, results.specs, strict=True) if step.known else ()):
            layouts = {first.layout, spec.layout} - {""}
            if (first.dtype, first.ndim) != (spec.dtype, spec.ndim) or len(layouts) > 1:
                raise step.node.error(op.changed(i, first, spec))
        return results


def _expected(plan: Plan, step: Step, op: EagerOperator) -> tuple[Spec, ...] | None:
    """The specs of a function's outputs in a branch that no sample takes. If the function was never called, these are
    the specs of the values with which an `if` joins the outputs, or else of those that the operator declares for this
    case (`EagerOperator.unseen`). None: they are not known.
    """
    if step.known:
        return step.specs
    specs = [next((plan.spec(r) for r in plan.alike(ref) if plan.maker(r).known), op.unseen) for ref in step.outputs]
    known_types = [(s.dtype, s.ndim) for s in specs if s is not None]
    if len(known_types) < len(specs):
        return None
    return tuple(_result_spec(op, i, dtype, ndim) for i, (dtype, ndim) in enumerate(known_types))


def _spec_of_samples(step: Step, op: EagerOperator, i: int, samples: Any) -> Spec:
    """The spec of output `i`, from its samples. Raises OperatorError if they differ in type or number of dimensions."""
    kinds = sorted({(x.dtype.name, x.ndim) for x in samples if x is not None})
    if len(kinds) != 1:
        raise step.node.error(f"output {i} must be of one type and number of dimensions in all samples, got {kinds}")
    dtype, ndim = next((x.dtype, x.ndim) for x in samples if x is not None)
    return _result_spec(op, i, dtype, ndim)


def _result_spec(op: EagerOperator, i: int, dtype: np.dtype, ndim: int) -> Spec:
    """The spec of output `i` of an eager function."""
    return Spec(dtype, ndim, None if ndim else (), op.layout_of(i, ndim))
