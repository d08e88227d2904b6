"""`BoundPlan`: a plan whose steps are bound to the specs of their inputs."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence, Set

import numpy as np

from .._core.building import DeferredWarning, warn_or_defer
from .._core.context import BuildContext
from .._core.errors import ArgumentError, InputTypeError, OperatorError, located_message
from .._core.frames import per_frame
from .._core.graph import can_be_on_host, unpacking_hint
from .._core.input_warnings import flat_image_warning
from .._core.jax_settings import UserSettings
from .._core.operator import EagerOperator, HostOperator, Operator, ProgramOperator, SourceOperator
from .._core.values import Spec
from .._data.source import Source
from .passes import compact, cut, fused, informed, narrowed, simplified
from .plan import Plan, Ref, Step
from .run_options import RunOptions

_MAX_ELEMENTS = 1 << 48  # of a sample: with fewer than 2^15 samples, a batch of them fits 64 bits


@dataclasses.dataclass(frozen=True)
class BindingContext:
    """The context in which steps are bound.

    Attributes:
      options: how batches are made.
      kernels: the native kernels of the accelerator; none on the CPU.
      accelerator: whether programs run on devices that are not CPUs.
      placed: the outputs that are put on these devices in any case, by number.
      settings: JAX's settings in the user's thread.
      sources: the running source of each source step, by its id.
      of_shards: the operator of each node in each local shard's graph, by the node's id.
      first_samples: the samples of the first batch, for values that steps awaited. It is filled only while these steps
        are bound.
      first_shapes: the shapes of first samples, for values that steps awaited and for results of functions whose
        samples agree.
      shape_refs: the values whose first shapes have determined how steps are bound. Values of sources are left out.
      sample_refs: the same for first samples.
    """

    options: RunOptions
    kernels: frozenset[str]
    accelerator: bool
    placed: frozenset[int]
    settings: UserSettings
    sources: Mapping[int, Source]
    of_shards: Mapping[int, Sequence[Operator]]
    first_shapes: dict[Ref, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    first_samples: dict[Ref, Sequence[np.ndarray]] = dataclasses.field(default_factory=dict)
    shape_refs: set[Ref] = dataclasses.field(default_factory=set)
    sample_refs: set[Ref] = dataclasses.field(default_factory=set)


class BoundPlan:
    """The plan of a graph, bound as far as the inputs of its steps are known. It is the only object that grows while
    batches are made.

    The specs of an eager function's results are known when it has run for the first time, and the shapes of some values
    with the first batch. The steps that depend on them are bound then. So the code that makes batches must read the
    attribute `plan` anew for each batch.

    Args:
      plan: a plan that is not bound yet.
      context: the context in which its steps are bound.

    Attributes:
      plan: the operators to run, as far as they are known.
    """

    def __init__(self, plan: Plan, context: BindingContext):
        self.plan = plan
        self._context = context
        self._is_read = False  # whether a batch has been read: from then on the form of the sources' outputs is fixed

    @property
    def binding_refs(self) -> tuple[Set[Ref], Set[Ref]]:
        """`BindingContext.shape_refs` and `BindingContext.sample_refs`."""
        return self._context.shape_refs, self._context.sample_refs

    def bind_sources(self):
        """Binds the sources. It reads first batches if these are needed to determine the types."""
        self.plan = bound(self.plan, self._context, SourceOperator)

    def bind(self):
        """Binds the steps whose inputs are known."""
        self._bind(self.plan)

    def _bind(self, plan: Plan):
        """Binds the steps of `plan` whose inputs are known, runs the passes, and keeps the result as the attribute
        `plan`.
        """
        plan = simplified(bound(plan, self._context))
        if not self._is_read:
            plan = informed(plan)
        if self._context.accelerator:
            placed = frozenset(r for i, r in enumerate(plan.outputs) if i in self._context.placed)
            plan = cut(plan, self._context.kernels, placed)
            if not self._is_read:  # these passes change the outputs of steps that may have run
                plan = compact(plan, self._context.kernels, placed, self._context.sources)
                plan = narrowed(plan, self._context.kernels) if self._context.options.fuse else plan
        self.plan = fused(plan, self._context.kernels) if self._context.options.fuse else plan

    def learn(self, first_shapes: Mapping[Ref, tuple[int, ...]], first_samples: Mapping[Ref, Sequence[np.ndarray]]):
        """Stores what the first batch shows, and binds the steps that awaited it.

        Args:
          first_shapes: the shapes of the first samples of awaited values.
          first_samples: all samples of these values that are on the host; they are dropped when the steps are bound.
        """
        self._is_read = True
        self._context.first_shapes.update(first_shapes)
        self._context.first_samples.update(first_samples)
        try:
            if first_shapes:
                self.bind()
        finally:
            self._context.first_samples.clear()  # they would keep the memory of the batch

    def learn_results(self, step: Step, specs: tuple[Spec, ...], first_shapes: Mapping[Ref, tuple[int, ...]]):
        """Stores the specs of an eager function's first results, and binds the steps that need them.

        Args:
          step: the step of the function.
          specs: of its outputs.
          first_shapes: the shapes of the results whose samples agree.
        """
        self._is_read = True
        for ref, shape in first_shapes.items():
            self._context.first_shapes.setdefault(ref, shape)
        self._bind(self.plan.with_specs(step, specs))  # outside the step's own errors: a later step reports its own


def bound(plan: Plan, context: BindingContext, kind: type[Operator] = Operator) -> Plan:
    """Binds every step whose operator is of a kind and whose inputs are known. Returns the same plan if there is none.

    Args:
      plan: the plan, of which some steps may be bound already.
      context: the context of binding.
      kind: the class of the operators.

    Errors name the operator and the user's line.
    """
    steps: dict[int, Step] = {}
    wanted_on_host = _wanted_on_host(plan)
    for step in plan.steps:
        steps[step.id] = step
        if step.phase < 0 and isinstance(step.op, kind) and all(steps[r.step].known for r in step.needs):
            steps[step.id] = _Binding(step, context, steps, step.id in wanted_on_host).bind()
    is_unchanged = all(a is b for a, b in zip(steps.values(), plan.steps, strict=True))
    return plan if is_unchanged else dataclasses.replace(plan, steps=tuple(steps.values()))


def _wanted_on_host(plan: Plan) -> set[int]:
    """The ids of the steps that can run on the host and whose results the host needs, as far as this is known before
    they are bound.
    """
    needed: set[Ref] = set()  # values that the host needs
    step_ids: set[int] = set()
    pipeline_outputs = {*plan.outputs, *plan.sinks}
    # From the last step to the first: if a step runs on the host, the host needs its inputs, too.
    for step in reversed(plan.steps):
        op, outputs = step.op, [Ref(step.id, i) for i in range(step.op.num_outputs)]
        # A result that is also an output or a sink on the accelerator is made there, and the host gets a copy of it.
        if (
            op.has_host_form
            and not needed.isdisjoint(outputs)
            and not (step.stage == "device" and not pipeline_outputs.isdisjoint(outputs))
        ):
            step_ids.add(step.id)
        if step.presence is not None:
            needed.update(step.presence.predicates)
        for i, r in enumerate(step.inputs):
            reads = (
                op.setup_reads(i)
                if isinstance(op, ProgramOperator)
                else isinstance(op, HostOperator) and op.run_reads(i)
            )
            if reads or step.id in step_ids:
                needed.add(r)
    return step_ids


def _before_copies(ref: Ref, steps: Mapping[int, Step]) -> Ref:
    """Follows a value through steps that only copy it, to a value on the host. Returns `ref` itself if it is not a copy
    of such a value.
    """
    original = ref
    while (maker := steps[original.step]).stage != "host":
        if not maker.op.is_identity(*(steps[r.step].specs[r.index] for r in maker.inputs)):
            return ref
        original = maker.inputs[0]
    return original


def _doubt_about_first_image(op: Operator, image: Spec, shape: tuple[int, ...]) -> str:
    """Returns a warning about an image, by the shape of a batch's first one; "" if there is none."""
    # Each batch calls this, so the usual numbers of channels are dealt with first.
    text = op.about_axes(dataclasses.replace(image, dims=shape)) if shape[-1] > 4 else ""
    return text and f"{op.name}: {text}"


def _original(ref: Ref, steps: Mapping[int, Step]) -> Ref:
    """Returns the value that this one is a copy of, since copies may be removed from the plan."""
    while (maker := steps[ref.step]).op.is_identity(*(steps[r.step].specs[r.index] for r in maker.inputs)):
        ref = maker.inputs[0]
    return ref


def _check_sizes(specs: Sequence[Spec]):
    """Raises ArgumentError if a sample could not be in memory by far. Sums and products of extents then fit 64 bits."""
    for spec in specs:
        extents = [n for axis in range(spec.ndim) if (n := spec.extent(axis)) is not None]
        if max(map(abs, extents), default=0) > _MAX_ELEMENTS or math.prod(extents) > _MAX_ELEMENTS:
            shown = ", ".join("?" if (n := spec.extent(axis)) is None else f"{n:g}" for axis in range(spec.ndim))
            raise ArgumentError(f"the result would be too large, of shape ({shown})")


class _Binding:
    """The binding of one step: chooses where it runs and the operator that runs, and determines the specs of its
    outputs and its phase.

    Args:
      step: the step.
      context: the context of binding.
      steps: the earlier steps, by id.
      wanted_on_host: whether the host needs its result, and the operator has a form that runs there.
    """

    def __init__(self, step: Step, context: BindingContext, steps: Mapping[int, Step], wanted_on_host: bool):
        self._context = context
        self._steps = steps
        self._node = step.node
        self._awaits: list[Ref] = []  # values of the first batch that `bind` asks for and that are not known yet
        # The stage says where the step runs: "host", or in a program on the "cpu" or the "device".
        self._step, self._stage = step, step.stage
        if wanted_on_host and step.stage != "host":
            host_inputs = tuple(_before_copies(r, steps) for r in step.inputs)
            # Values with more axes may be images, which belong into programs.
            are_small = all(steps[r.step].specs[r.index].ndim <= 2 for r in host_inputs)
            if are_small and all(steps[r.step].stage == "host" for r in host_inputs):
                self._step, self._stage = dataclasses.replace(step, inputs=host_inputs), "host"
        # The steps that make the inputs.
        self._makers = [steps[r.step] for r in self._step.inputs]
        self._inputs = tuple(m.specs[r.index] for m, r in zip(self._makers, self._step.inputs, strict=True))
        if (
            self._stage == "cpu"
            and can_be_on_host(step.node)
            and all(m.stage == "host" and not isinstance(m.op, EagerOperator) for m in self._makers)
        ):
            self._stage = "host"  # an input was bound to a host operator

    def bind(self) -> Step:
        """Returns the bound step; or the step with the values that it awaits (`Step.awaits`), if it can't be bound yet."""
        node, op, inputs = self._node, self._step.op, self._inputs
        specs: tuple[Spec, ...] = ()
        try:
            ctx = self._build_context()
            # On sequences, an operator with arguments per frame is replaced by one to which frames are samples.
            op = per_frame(op, *inputs).bind(ctx, *inputs)
            if isinstance(op, SourceOperator):
                specs = tuple(self._context.sources[node.id].specs())
            elif not isinstance(op, EagerOperator):
                specs = tuple(op.infer(*inputs))
                _check_sizes(specs)
        except OperatorError:
            raise
        except (ArgumentError, InputTypeError) as e:
            if self._awaits:  # it may be valid once these are known
                return dataclasses.replace(self._step, awaits=tuple(self._awaits))
            e.args = (located_message(op.name, node.where, f"{e}{self._advice()}"),)
            raise
        except Exception as e:
            if isinstance(op, SourceOperator):  # may be user code, whose error is passed on unchanged
                e.add_note(f"in {op.name} (created at {node.where})")
            if isinstance(op, SourceOperator) or not isinstance(e, (ValueError, TypeError, RuntimeError)):
                raise
            # In DALI every error about an operator's inputs is a RuntimeError.
            argument_error = InputTypeError if isinstance(e, TypeError) else ArgumentError
            error_type = type(e) if isinstance(e, RuntimeError) else argument_error
            raise error_type(located_message(op.name, node.where, f"{e}{self._advice()}")) from e
        self._warn()
        return self._in_phase(op, specs)

    def _build_context(self) -> BuildContext:
        """The context in which the operator is bound."""
        context, steps = self._context, self._steps
        return BuildContext(
            B=context.options.batch_size,
            stage=self._stage,
            where=self._node.where,
            kernels=context.kernels,
            settings=context.settings,
            of_shards=context.of_shards[self._node.id],
            first_shape=self._first_shape,
            first_samples=self._first_samples,
            literals=[steps[_before_copies(r, steps).step].op.literal for r in self._step.inputs],
            on_host=all(m.stage == "host" for m in self._makers),
            in_branch=self._step.presence is not None,
        )

    def _first_shape(self, i: int) -> tuple[int, ...] | None:
        """Returns the shape of input `i` in the first batch. None: it is not known yet, and the step awaits it."""
        context, ref = self._context, _original(self._step.inputs[i], self._steps)
        source = context.sources.get(ref.step)
        shape = source.first_shape(ref.index) if source is not None else None
        if shape is None:
            context.shape_refs.add(ref)
            shape = context.first_shapes.get(ref)
        if shape is None:
            self._awaits.append(ref)
        return shape

    def _first_samples(self, i: int) -> Sequence[np.ndarray] | None:
        """Returns the samples of input `i` in the first batch. None: as `_first_shape`."""
        context, ref = self._context, _original(self._step.inputs[i], self._steps)
        if ref.step not in context.sources:
            context.sample_refs.add(ref)
        samples = context.first_samples.get(ref)
        if samples is None:
            self._awaits.append(ref)
        return samples

    def _doubts(self) -> tuple[str, str]:
        """Returns the doubts about the first input as an image, and about the arguments; "" if there are none."""
        if not self._inputs:
            return "", ""
        op, image, ref = self._node.op, self._inputs[0], _original(self._step.inputs[0], self._steps)
        source, maker = self._context.sources.get(ref.step), self._steps[ref.step].op
        takes_image = not image.layout and op.takes_image(image)  # a layout names the axes, so none is in doubt
        if (
            takes_image
            and image.shape is None
            and source is not None
            and not maker.of_values  # its shapes are known only with each batch
            and (shape := source.seen_shape(ref.index)) is not None
        ):
            image = dataclasses.replace(image, dims=shape)
        image_doubt = op.about_axes(image) if takes_image else ""
        if takes_image and maker.of_values:
            image_doubt = image_doubt or flat_image_warning(image)
        return image_doubt, op.doubts(image, *self._inputs[1:])

    def _advice(self) -> str:
        """Returns the end of an error's message: doubts about an image, and a hint; "" if there are none."""
        image_doubt = self._doubts()[0] if self._inputs and self._inputs[0].ndim > 2 else ""
        return "".join(f"; {x}" for x in (image_doubt, unpacking_hint(self._node)) if x)

    def _warn(self):
        """Warns of doubts. If they depend on the shapes of a batch, which are not known yet, it does so later."""
        node, inputs = self._node, self._inputs
        for text in filter(None, self._doubts()):
            warn_or_defer(DeferredWarning(node.where, f"{node.op.name}: {text}"))
        if inputs and inputs[0].shape is None and node.op.takes_image(inputs[0]) and not inputs[0].layout:
            value = self._steps[_original(self._step.inputs[0], self._steps).step].op
            if value.of_values:  # its shapes are known only with each batch
                warn_or_defer(
                    DeferredWarning(
                        node.where,
                        value=value,
                        text_of_shape=functools.partial(_doubt_about_first_image, node.op, inputs[0]),
                    )
                )

    def _in_phase(self, op: Operator, specs: tuple[Spec, ...]) -> Step:
        """The bound step. `op`: the operator that runs; `specs`: those of its outputs."""
        step, steps, makers = self._step, self._steps, self._makers
        is_eager = isinstance(op, EagerOperator)
        # `bind` may have returned an operator of another kind, which decides where the step runs.
        on_host = is_eager or (isinstance(op, HostOperator) and not isinstance(op, ProgramOperator))
        # Without its phase, which is determined last.
        bound_step = Step(
            self._node,
            op,
            step.inputs,
            stage="host" if on_host else self._stage,
            phase=0,
            specs=specs,
            presence=step.presence,
        )
        # Where the host needs an input, it reads the value on the host, and not a copy in a program.
        input_refs = tuple(
            _before_copies(r, steps) if bound_step.needs_on_host(i) else r for i, r in enumerate(bound_step.inputs)
        )
        if input_refs != bound_step.inputs:
            bound_step, makers = dataclasses.replace(bound_step, inputs=input_refs), [steps[r.step] for r in input_refs]
        predicate_makers = [steps[r.step] for r in step.needs[len(step.inputs) :]]
        # A step that needs the result of a program on the host waits for it, and so stands in the phase after it.
        waits = [is_eager or bound_step.needs_on_host(i) for i in range(len(makers))] + [True] * len(predicate_makers)
        phases = (
            m.phase + (wait and m.stage != "host") for m, wait in zip((*makers, *predicate_makers), waits, strict=True)
        )
        return dataclasses.replace(bound_step, phase=max(phases, default=0))
