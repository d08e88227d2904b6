"""What runs, in which order: the operators of a graph, bound to what is known of their inputs. The graph stays as the user wrote it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .._core.context import BuildContext
from .._core.errors import ArgumentError, InputTypeError, OperatorError, about
from .._core.frames import per_frame
from .._core.graph import Branch, Graph, Node, can_be_on_host
from .._core.operator import EagerOperator, HostOperator, Operator, ProgramOperator, SourceOperator
from .._core.settings import UserSettings
from .._core.values import Spec
from .._data.source import Source


class Ref(NamedTuple):
    """A value: which output of which step."""

    step: int
    index: int


# Note [Presence]
# A branch of an `if` is for some samples of a batch, and which these are is known only when the batch is there. Values of a branch still
# have N places, of which some hold nothing; nothing is gathered or scattered. So shapes of buffers do not depend on the predicate, and
# another split of a batch compiles nothing. The mask goes where samples are worked on: into `HostContext.present`, and into the control
# operand of native calls. A short batch at the end of the data is the same case, with a mask for all steps.
@dataclasses.dataclass(frozen=True, eq=False)
class Presence:
    """Which samples of a batch there are in a branch of an `if`: a plan has one for each branch, which its steps share.

    Attributes:
      predicate: a host value, a number for each sample.
      side: True: the samples for which the predicate is true; False: the others.
      outer: the presence in the enclosing branch; None: there is none.
    """

    predicate: Ref
    side: bool
    outer: Presence | None

    @functools.cached_property
    def predicates(self) -> tuple[Ref, ...]:
        """All that decide who is there."""
        return (*(self.outer.predicates if self.outer is not None else ()), self.predicate)


# Note [Phases]
# A host operator or an eager function may need what a program makes. The program ends there, its result comes to the host, and what
# depends on that belongs to the next phase: `Step.phase` counts how often a batch waits for programs before a step can run. All host
# steps and programs of one phase run before those of the next. Most pipelines have phase 0 alone, and never wait; where a phase is added,
# the log says so once, since each batch then makes a round trip.
@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """A use of an operator.

    Attributes:
      node: what the user wrote.
      op: the operator; what really runs, once it is bound.
      inputs: values of earlier steps.
      stage: "host", or in a program on the "cpu" or the "device".
      phase: how many times programs must have been waited for before, as an eager function or the host needs what they make; -1: not
        bound, as its inputs are not known yet.
      specs: of the outputs; () where an eager function has yet to tell.
      presence: the samples that it is for; None: all.
      fused: its output goes within one native call to the step that reads it, and is nowhere else.
      awaits: what it can't be bound without the first samples' shapes of.
    """

    node: Node
    op: Operator
    inputs: tuple[Ref, ...]
    stage: str
    phase: int = -1
    specs: tuple[Spec, ...] = ()
    presence: Presence | None = None
    fused: bool = False
    awaits: tuple[Ref, ...] = ()

    @property
    def id(self) -> int:
        return self.node.id

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def needs(self) -> tuple[Ref, ...]:
        """What must be there before: its inputs, and what says for which samples it is."""
        return self.inputs if self.presence is None else (*self.inputs, *self.presence.predicates)

    @functools.cached_property
    def outputs(self) -> tuple[Ref, ...]:
        return tuple(Ref(self.id, i) for i in range(self.op.num_outputs))

    @property
    def known(self) -> bool:
        """Whether the outputs' specs are known."""
        return self.phase >= 0 and len(self.specs) == self.op.num_outputs

    def reads_on_host(self, i: int) -> bool:
        """Whether `setup` reads the data of input `i`; `lower` then gets None in its place."""
        return self.stage != "host" and isinstance(self.op, ProgramOperator) and self.op.setup_reads(i)

    def needs_on_host(self, i: int) -> bool:
        """Whether the host reads the data of input `i`. (Eager functions take values from where they are.)"""
        if self.stage == "host":
            return isinstance(self.op, HostOperator) and self.op.run_reads(i)
        return self.reads_on_host(i)

    def reads_shape_only(self, i: int) -> bool:
        """Whether the step runs on the host and reads no more of input `i` than its shapes."""
        return self.stage == "host" and isinstance(self.op, HostOperator) and not self.op.run_reads(i)


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """The steps of a pipeline, in topological order, its outputs, and what is kept although no output depends on it."""

    steps: tuple[Step, ...]
    outputs: tuple[Ref, ...]
    sinks: tuple[Ref, ...]

    @functools.cached_property
    def _by_id(self) -> dict[int, Step]:
        return {s.id: s for s in self.steps}

    def step(self, id: int) -> Step:
        """The step of a node."""
        return self._by_id[id]

    def maker(self, ref: Ref) -> Step:
        """The step that makes a value."""
        return self._by_id[ref.step]

    def spec(self, ref: Ref) -> Spec:
        """What is known of a value; only once its step is known."""
        return self._by_id[ref.step].specs[ref.index]

    def alike(self, ref: Ref) -> set[Ref]:
        """The values that have to be of the type of one, as an `if` gives one or the other."""
        groups = [{s.outputs[0], *(s.inputs[i] for i in s.op.joins)} for s in self.steps if s.op.joins]
        found, before = {ref}, set[Ref]()
        while found != before:
            before = found
            found = found.union(*(g for g in groups if g & found))
        return found

    @property
    def output_specs(self) -> tuple[Spec | None, ...]:
        """Of the pipeline's outputs; None where an eager function, or data that are fed, have yet to tell."""
        return tuple(self.spec(r) if self.maker(r).known else None for r in self.outputs)

    @functools.cached_property
    def read(self) -> frozenset[Ref]:
        """The values that some step needs."""
        return frozenset(r for s in self.steps for r in s.needs)

    def fetched(self, step: Step) -> tuple[Ref, ...]:
        """What programs make and a step needs on the host: they are waited for before it."""
        read = [r for i, r in enumerate(step.inputs) if step.needs_on_host(i)]
        asked = step.presence.predicates if step.presence is not None else ()
        return tuple(dict.fromkeys(r for r in (*read, *asked) if self.maker(r).stage != "host"))

    @functools.cached_property
    def awaited(self) -> tuple[Ref, ...]:
        """The values of which the first samples' shapes say how steps are bound."""
        return tuple(dict.fromkeys(r for s in self.steps if s.phase < 0 for r in s.awaits))

    @functools.cached_property
    def last_phase(self) -> int:
        return max((s.phase for s in self.steps), default=0)

    def ends_with(self, phase: int) -> bool:
        """Whether nothing runs after the programs of a phase."""
        return all(0 <= s.phase <= phase for s in self.steps)

    def with_specs(self, step: Step, specs: tuple[Spec, ...]) -> Plan:
        """The same, with the specs that an eager step's results have."""
        return dataclasses.replace(self, steps=tuple(dataclasses.replace(s, specs=specs) if s.id == step.id else s for s in self.steps))


def make_plan(graph: Graph) -> Plan:
    """The plan of a graph, nothing bound yet."""
    presences: dict[Branch | None, Presence | None] = {None: None}
    for b in (b for n in graph.nodes if n.branch is not None for b in n.branch.path):
        if b not in presences:
            presences[b] = Presence(Ref(b.predicate.node.id, b.predicate.index), b.side, presences[b.outer])
    steps = tuple(
        Step(n, n.op, tuple(Ref(x.node.id, x.index) for x in n.inputs), n.stage, presence=presences[n.branch]) for n in graph.nodes
    )
    outputs, sinks = (tuple(Ref(x.node.id, x.index) for x in values) for values in (graph.outputs, graph.sinks))
    return Plan(steps, outputs, sinks)


@dataclasses.dataclass(frozen=True)
class BindingContext:
    """What steps are bound in.

    Attributes:
      B: samples per shard.
      kernels: the native kernels of the accelerator; none on the CPU.
      fuse: whether native calls on the CPU are made one where that is possible.
      settings: the JAX settings of the user's thread.
      sources: the running source of each source step, by its id.
      of_shards: the operator of each node as each local shard's graph has it, by the node's id.
      first_shapes: of values that steps awaited, and of what functions make alike, the shapes of the first samples that there were.
    """

    B: int
    kernels: frozenset[str]
    fuse: bool
    settings: UserSettings
    sources: Mapping[int, Source]
    of_shards: Mapping[int, Sequence[Operator]]
    first_shapes: dict[Ref, tuple[int, ...]] = dataclasses.field(default_factory=dict)


def bound(plan: Plan, where: BindingContext, kind: type[Operator] = Operator) -> Plan:
    """The plan with every step of a kind bound whose inputs are known; itself when there is none.

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
    """The steps that can run on the host, and make what it needs, as far as that can be told before they are bound."""
    needed: set[Ref] = set()
    found: set[int] = set()
    shown = {*plan.outputs, *plan.sinks}
    for step in reversed(plan.steps):
        op, outputs = step.op, [Ref(step.id, i) for i in range(step.op.num_outputs)]
        if op.has_host_form and not needed.isdisjoint(outputs) and not (step.stage == "device" and not shown.isdisjoint(outputs)):
            found.add(step.id)
        if step.presence is not None:
            needed.update(step.presence.predicates)
        for i, r in enumerate(step.inputs):
            reads = op.setup_reads(i) if isinstance(op, ProgramOperator) else isinstance(op, HostOperator) and op.run_reads(i)
            if reads or step.id in found:
                needed.add(r)
    return found


def _before_copies(ref: Ref, steps: Mapping[int, Step]) -> Ref:
    """A value on the host that this one is a copy of; itself when there is none."""
    copied = ref
    while (m := steps[copied.step]).stage != "host":
        if not m.op.is_identity(*(steps[r.step].specs[r.index] for r in m.inputs)):
            return ref
        copied = m.inputs[0]
    return copied


def _bound(step: Step, where: BindingContext, steps: Mapping[int, Step], wanted: bool) -> Step:
    """A step, bound. `wanted`: the host needs what it makes, and it might run there."""
    node, op, stage = step.node, step.op, step.stage
    if wanted and stage != "host":
        copied = tuple(_before_copies(r, steps) for r in step.inputs)
        # What has more axes may be an image, and those belong into programs.
        small = all(steps[r.step].specs[r.index].ndim <= 2 for r in copied)
        if small and all(steps[r.step].stage == "host" for r in copied):
            step, stage = dataclasses.replace(step, inputs=copied), "host"
    makers, asked = ([steps[r.step] for r in refs] for refs in (step.inputs, step.needs[len(step.inputs) :]))
    inputs = tuple(m.specs[r.index] for m, r in zip(makers, step.inputs, strict=True))
    if stage == "cpu" and can_be_on_host(node) and all(m.stage == "host" and not isinstance(m.op, EagerOperator) for m in makers):
        stage = "host"  # an input was bound to a host operator

    def first_shape(i: int) -> tuple[int, ...] | None:
        ref = step.inputs[i]
        while (m := steps[ref.step]).op.is_identity(*(steps[r.step].specs[r.index] for r in m.inputs)):
            ref = m.inputs[0]
        source = where.sources.get(ref.step)
        shape = source.first_shape(ref.index) if source is not None else None
        shape = where.first_shapes.get(ref) if shape is None else shape
        if shape is None:
            awaits.append(ref)
        return shape

    specs: tuple[Spec, ...] = ()
    awaits: list[Ref] = []
    try:
        of_shards = where.of_shards[node.id]
        ctx = BuildContext(
            B=where.B,
            stage=stage,
            where=node.where,
            kernels=where.kernels,
            settings=where.settings,
            of_shards=of_shards,
            first_shape=first_shape,
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
            return dataclasses.replace(step, awaits=tuple(awaits))  # perhaps it is right once these are known
        e.args = (about(op.name, node.where, e),)
        raise
    except Exception as e:
        if isinstance(op, SourceOperator):  # perhaps user code: its error comes out as it is
            e.add_note(f"in {op.name} (created at {node.where})")
        if isinstance(op, SourceOperator) or not isinstance(e, (ValueError, TypeError, RuntimeError)):
            raise
        # In DALI whatever an operator has to say about its inputs is a RuntimeError.
        kind = type(e) if isinstance(e, RuntimeError) else InputTypeError if isinstance(e, TypeError) else ArgumentError
        raise kind(about(op.name, node.where, e)) from e
    eager = isinstance(op, EagerOperator)
    on_host = eager or (isinstance(op, HostOperator) and not isinstance(op, ProgramOperator))
    made = Step(node, op, step.inputs, "host" if on_host else stage, 0, specs, step.presence)
    read = tuple(_before_copies(r, steps) if made.needs_on_host(i) else r for i, r in enumerate(made.inputs))
    if read != made.inputs:
        made, makers = dataclasses.replace(made, inputs=read), [steps[r.step] for r in read]
    # What an eager function or the host needs of a program ends that: the step comes after it.
    waits = [eager or made.needs_on_host(i) for i in range(len(makers))] + [True] * len(asked)
    phases = (m.phase + (wait and m.stage != "host") for m, wait in zip((*makers, *asked), waits, strict=True))
    return dataclasses.replace(made, phase=max(phases, default=0))
