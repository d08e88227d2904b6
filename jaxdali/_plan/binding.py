"""Binds the steps of a plan to the specs of their inputs."""

from __future__ import annotations

import dataclasses
import functools
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
from .passes import compact, cut, fused, narrowed, simplified
from .plan import Plan, Ref, Step
from .run_options import RunOptions


@dataclasses.dataclass(frozen=True)
class BindingContext:
    """The context in which steps are bound.

    Attributes:
      options: how batches are made.
      kernels: the native kernels of the accelerator; none on the CPU.
      accelerator: whether programs run on devices that are not CPUs.
      placed: the outputs that are put there in any case, by number.
      settings: JAX's settings in the user's thread.
      sources: the running source of each source step, by its id.
      of_shards: the operator of each node in each local shard's graph, by the node's id.
      first_samples: the samples in the first batch of values that steps awaited; empty but while these steps are bound.
      first_shapes: the shapes of first samples, for values that steps awaited and for results of functions whose
        samples agree.
      shape_refs, sample_refs: the values by whose first shapes, and those by whose first samples, steps are bound;
        not those of sources.
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
    """The plan of a graph, bound as far as its inputs are known. It is the only object that grows while batches are
    made.

    The specs of an eager function's results are known when it has run for the first time, and the shapes of some values
    with the first batch. The steps that depend on them are bound then, so those who make batches read `plan` anew for
    each batch.

    Args:
      plan: a plan that is not bound yet.
      context: the context in which its steps are bound.

    Attributes:
      plan: the operators to run, as far as they are known.
    """

    def __init__(self, plan: Plan, context: BindingContext):
        self.plan = plan
        self._context = context
        self._is_read = False  # whether a batch has been read, in the form that sources then had

    @property
    def binding_refs(self) -> tuple[Set[Ref], Set[Ref]]:
        """The values by whose first shapes, and those by whose first samples, steps are bound, see `BindingContext`."""
        return self._context.shape_refs, self._context.sample_refs

    def bind_sources(self):
        """Binds the sources. It reads first batches if these are needed to determine the types."""
        self.plan = bound(self.plan, self._context, SourceOperator)

    def bind(self):
        """Binds the steps whose inputs are known."""
        self._bind(self.plan)

    def _bind(self, plan: Plan):
        plan = simplified(bound(plan, self._context))
        if self._context.accelerator:
            placed = frozenset(r for i, r in enumerate(plan.outputs) if i in self._context.placed)
            plan = cut(plan, self._context.kernels, placed)
            if not self._is_read:  # these change what steps give that may have run
                plan = compact(plan, self._context.kernels, placed, self._context.sources)
                plan = narrowed(plan, self._context.kernels) if self._context.options.fuse else plan
        self.plan = fused(plan, self._context.kernels) if self._context.options.fuse else plan

    def learn(self, first_shapes: Mapping[Ref, tuple[int, ...]], first_samples: Mapping[Ref, Sequence[np.ndarray]]):
        """Stores the shapes of first samples, and binds the steps that awaited them."""
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
          first_shapes: those of the results whose samples agree.
        """
        self._is_read = True
        for ref, shape in first_shapes.items():
            self._context.first_shapes.setdefault(ref, shape)
        self._bind(self.plan.with_specs(step, specs))  # outside the step's own errors: a later step reports its own


def bound(plan: Plan, where: BindingContext, kind: type[Operator] = Operator) -> Plan:
    """The plan in which every step of a kind whose inputs are known is bound; the same plan if there is none.

    Errors name the operator and the user's line.
    """
    steps: dict[int, Step] = {}
    hosted = _wanted_on_host(plan)
    for step in plan.steps:
        steps[step.id] = step
        if step.phase < 0 and isinstance(step.op, kind) and all(steps[r.step].known for r in step.needs):
            steps[step.id] = _bound(step, where, steps, step.id in hosted)
    same = all(a is b for a, b in zip(steps.values(), plan.steps, strict=True))
    return plan if same else dataclasses.replace(plan, steps=tuple(steps.values()))


def _wanted_on_host(plan: Plan) -> set[int]:
    """The steps that can run on the host and whose results the host needs, as far as this is known before they are
    bound.
    """
    needed: set[Ref] = set()
    found: set[int] = set()
    shown = {*plan.outputs, *plan.sinks}
    for step in reversed(plan.steps):
        op, outputs = step.op, [Ref(step.id, i) for i in range(step.op.num_outputs)]
        if (
            op.has_host_form
            and not needed.isdisjoint(outputs)
            and not (step.stage == "device" and not shown.isdisjoint(outputs))
        ):
            found.add(step.id)
        if step.presence is not None:
            needed.update(step.presence.predicates)
        for i, r in enumerate(step.inputs):
            reads = (
                op.setup_reads(i)
                if isinstance(op, ProgramOperator)
                else isinstance(op, HostOperator) and op.run_reads(i)
            )
            if reads or step.id in found:
                needed.add(r)
    return found


def _before_copies(ref: Ref, steps: Mapping[int, Step]) -> Ref:
    """The value on the host of which this one is a copy; the value itself if there is none."""
    copied = ref
    while (m := steps[copied.step]).stage != "host":
        if not m.op.is_identity(*(steps[r.step].specs[r.index] for r in m.inputs)):
            return ref
        copied = m.inputs[0]
    return copied


def _about_first(op: Operator, image: Spec, shape: tuple[int, ...]) -> str:
    """A warning about an image, by the shape of a batch's first one; "" if there is none."""
    # This is asked for each batch.
    about = op.about_axes(dataclasses.replace(image, dims=shape)) if shape[-1] > 4 else ""
    return about and f"{op.name}: {about}"


def _bound(step: Step, where: BindingContext, steps: Mapping[int, Step], wanted: bool) -> Step:
    """Binds a step. `wanted`: the host needs its result, and it may be able to run there."""
    node, op, stage = step.node, step.op, step.stage
    if wanted and stage != "host":
        copied = tuple(_before_copies(r, steps) for r in step.inputs)
        # Values with more axes may be images, which belong into programs.
        small = all(steps[r.step].specs[r.index].ndim <= 2 for r in copied)
        if small and all(steps[r.step].stage == "host" for r in copied):
            step, stage = dataclasses.replace(step, inputs=copied), "host"
    makers, asked = ([steps[r.step] for r in refs] for refs in (step.inputs, step.needs[len(step.inputs) :]))
    inputs = tuple(m.specs[r.index] for m, r in zip(makers, step.inputs, strict=True))
    if (
        stage == "cpu"
        and can_be_on_host(node)
        and all(m.stage == "host" and not isinstance(m.op, EagerOperator) for m in makers)
    ):
        stage = "host"  # an input was bound to a host operator

    def original(ref: Ref) -> Ref:
        """The value that this one is a copy of: copies may be removed from the plan."""
        while (m := steps[ref.step]).op.is_identity(*(steps[r.step].specs[r.index] for r in m.inputs)):
            ref = m.inputs[0]
        return ref

    def first_shape(i: int) -> tuple[int, ...] | None:
        ref = original(step.inputs[i])
        source = where.sources.get(ref.step)
        shape = source.first_shape(ref.index) if source is not None else None
        if shape is None:
            where.shape_refs.add(ref)
            shape = where.first_shapes.get(ref)
        if shape is None:
            awaits.append(ref)
        return shape

    def first_samples(i: int) -> Sequence[np.ndarray] | None:
        ref = original(step.inputs[i])
        if ref.step not in where.sources:
            where.sample_refs.add(ref)
        samples = where.first_samples.get(ref)
        if samples is None:
            awaits.append(ref)
        return samples

    def doubts() -> tuple[str, str]:
        """Stores the doubts about the first input as an image, and about the arguments."""
        if not inputs:
            return "", ""
        image, ref = inputs[0], original(step.inputs[0])
        source = where.sources.get(ref.step)
        takes_image = not image.layout and node.op.takes_image(image)
        if (
            takes_image
            and image.shape is None
            and source is not None
            and (shape := source.seen_shape(ref.index)) is not None
        ):
            image = dataclasses.replace(image, dims=shape)
        about = node.op.about_axes(image) if takes_image else ""
        if takes_image and steps[ref.step].op.of_values:
            about = about or flat_image_warning(image)
        return about, node.op.doubts(image, *inputs[1:])

    def advice() -> str:
        """How the message of an error ends."""
        return "".join(
            f"; {x}" for x in (doubts()[0] if inputs and inputs[0].ndim > 2 else "", unpacking_hint(node)) if x
        )

    specs: tuple[Spec, ...] = ()
    awaits: list[Ref] = []
    try:
        of_shards = where.of_shards[node.id]
        ctx = BuildContext(
            B=where.options.batch_size,
            stage=stage,
            where=node.where,
            kernels=where.kernels,
            settings=where.settings,
            of_shards=of_shards,
            first_shape=first_shape,
            first_samples=first_samples,
            literals=[steps[_before_copies(r, steps).step].op.literal for r in step.inputs],
            on_host=all(m.stage == "host" for m in makers),
            in_branch=step.presence is not None,
        )
        op = per_frame(op, *inputs).bind(ctx, *inputs)
        if isinstance(op, SourceOperator):
            specs = tuple(where.sources[node.id].specs())
        elif not isinstance(op, EagerOperator):
            specs = tuple(op.infer(*inputs))
    except OperatorError:
        raise
    except (ArgumentError, InputTypeError) as e:
        if awaits:
            return dataclasses.replace(step, awaits=tuple(awaits))  # it may be valid once these are known
        e.args = (located_message(op.name, node.where, f"{e}{advice()}"),)
        raise
    except Exception as e:
        if isinstance(op, SourceOperator):  # may be user code, whose error is passed on unchanged
            e.add_note(f"in {op.name} (created at {node.where})")
        if isinstance(op, SourceOperator) or not isinstance(e, (ValueError, TypeError, RuntimeError)):
            raise
        # In DALI every error about an operator's inputs is a RuntimeError.
        kind = type(e) if isinstance(e, RuntimeError) else InputTypeError if isinstance(e, TypeError) else ArgumentError
        raise kind(located_message(op.name, node.where, f"{e}{advice()}")) from e
    for text in filter(None, doubts()):
        warn_or_defer(DeferredWarning(node.where, f"{node.op.name}: {text}"))
    if inputs and inputs[0].shape is None and node.op.takes_image(inputs[0]) and not inputs[0].layout:
        value = steps[original(step.inputs[0]).step].op
        if value.of_values:
            warn_or_defer(
                DeferredWarning(
                    node.where, value=value, text_of_shape=functools.partial(_about_first, node.op, inputs[0])
                )
            )
    eager = isinstance(op, EagerOperator)
    on_host = eager or (isinstance(op, HostOperator) and not isinstance(op, ProgramOperator))
    made = Step(node, op, step.inputs, "host" if on_host else stage, 0, specs, step.presence)
    read = tuple(_before_copies(r, steps) if made.needs_on_host(i) else r for i, r in enumerate(made.inputs))
    if read != made.inputs:
        made, makers = dataclasses.replace(made, inputs=read), [steps[r.step] for r in read]
    # A program ends with what an eager function or the host needs from it. The step runs after it.
    waits = [eager or made.needs_on_host(i) for i in range(len(makers))] + [True] * len(asked)
    phases = (m.phase + (wait and m.stage != "host") for m, wait in zip((*makers, *asked), waits, strict=True))
    return dataclasses.replace(made, phase=max(phases, default=0))
