"""The plan: the operators of a graph as steps, in order. The graph stays as the user wrote it."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

from .._core.graph import Branch, Graph, Node
from .._core.operator import HostOperator, Operator, ProgramOperator
from .._core.values import Spec


class Ref(NamedTuple):
    """A value: an output of a step."""

    step: int
    index: int


# Note [Presence]
# A branch of an `if` applies to some samples of a batch, and only the batch shows which. Values in a branch still have
# N places, of which some are empty; nothing is gathered or scattered. So the shapes of buffers do not depend on the
# predicate, and another division of a batch compiles nothing. The mask is used where samples are processed: in
# `HostContext.present`, and in the control operand of native calls. A short batch at the end of the data is the same
# case, with a mask for all steps.
@dataclasses.dataclass(frozen=True, eq=False)
class Presence:
    """The samples of a batch in a branch of an `if`. A plan has one presence for each branch, which the branch's steps
    share.

    Attributes:
      predicate: a host value with a number for each sample.
      side: True: the samples for which the predicate is true; False: the others.
      outer: the presence in the enclosing branch; None: there is none.
    """

    predicate: Ref
    side: bool
    outer: Presence | None

    @functools.cached_property
    def predicates(self) -> tuple[Ref, ...]:
        """All predicates that determine which samples are present."""
        return (*(self.outer.predicates if self.outer is not None else ()), self.predicate)


# Note [Phases]
# A host operator or an eager function may need the result of a program. The program ends there, the result is copied to
# the host, and steps that depend on it belong to the next phase: `Step.phase` counts how often a batch waits for
# programs before the step can run. All host steps and programs of a phase run before those of the next. Most pipelines
# have only phase 0, and never wait. An additional phase costs each batch a round trip, so it is logged once.
@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """A use of an operator.

    Attributes:
      node: the node that the user wrote.
      op: the operator; once the step is bound, the one that really runs.
      inputs: values of earlier steps.
      stage: "host", or in a program on the "cpu" or the "device".
      phase: number of times that a batch waits for programs before the step can run, see Note [Phases]; -1: the step is
        not bound, because its inputs are not known yet.
      specs: the specs of the outputs; () for an eager function that has not run yet.
      presence: the samples that it works on; None: all.
      fused: whether its output exists only inside a native call, for the step that reads it.
      awaits: the values whose first shapes or samples are needed to bind it.
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
        """The values that must exist before it runs: its inputs, then its predicates."""
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
        """Whether the step runs on the host and reads only the shapes of input `i`."""
        return self.stage == "host" and isinstance(self.op, HostOperator) and not self.op.run_reads(i)


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """The steps of a pipeline in topological order, its outputs, and sinks, which are kept although no output depends
    on them.
    """

    steps: tuple[Step, ...]
    outputs: tuple[Ref, ...]
    sinks: tuple[Ref, ...]

    @functools.cached_property
    def _by_id(self) -> dict[int, Step]:
        return {s.id: s for s in self.steps}

    def step(self, id: int) -> Step:
        """The step of a node, by the node's id."""
        return self._by_id[id]

    def maker(self, ref: Ref) -> Step:
        """The step that makes a value."""
        return self._by_id[ref.step]

    def spec(self, ref: Ref) -> Spec:
        """The spec of a value, once its step is known."""
        return self._by_id[ref.step].specs[ref.index]

    def alike(self, ref: Ref) -> set[Ref]:
        """The values that must have the same type as this one, because an `if` selects one of them."""
        groups = [{s.outputs[0], *(s.inputs[i] for i in s.op.joins)} for s in self.steps if s.op.joins]
        # Merges may be nested, so groups that share a value are joined until nothing is added.
        refs, previous = {ref}, set[Ref]()
        while refs != previous:
            previous = refs
            refs = refs.union(*(g for g in groups if g & refs))
        return refs

    @property
    def output_specs(self) -> tuple[Spec | None, ...]:
        """The specs of the pipeline's outputs; None while they depend on an eager function or on fed data."""
        return tuple(self.spec(r) if self.maker(r).known else None for r in self.outputs)

    @functools.cached_property
    def read(self) -> frozenset[Ref]:
        """The values that any step needs."""
        return frozenset(r for s in self.steps for r in s.needs)

    def fetched(self, step: Step) -> tuple[Ref, ...]:
        """The results of programs that a step needs on the host. The step waits for these."""
        host_inputs = [r for i, r in enumerate(step.inputs) if step.needs_on_host(i)]
        predicates = step.presence.predicates if step.presence is not None else ()
        return tuple(dict.fromkeys(r for r in (*host_inputs, *predicates) if self.maker(r).stage != "host"))

    @functools.cached_property
    def awaited(self) -> tuple[Ref, ...]:
        """The values that unbound steps await, see `Step.awaits`."""
        return tuple(dict.fromkeys(r for s in self.steps if s.phase < 0 for r in s.awaits))

    @functools.cached_property
    def last_phase(self) -> int:
        return max((s.phase for s in self.steps), default=0)

    def ends_with(self, phase: int) -> bool:
        """Whether nothing runs after the programs of a phase."""
        return all(0 <= s.phase <= phase for s in self.steps)

    def with_specs(self, step: Step, specs: tuple[Spec, ...]) -> Plan:
        """The same plan, with the specs of an eager step's results."""
        return dataclasses.replace(
            self, steps=tuple(dataclasses.replace(s, specs=specs) if s.id == step.id else s for s in self.steps)
        )


def make_plan(graph: Graph) -> Plan:
    """Returns the plan of a graph, not bound yet."""
    presences: dict[Branch | None, Presence | None] = {None: None}
    # A path begins with the outermost branch, so the presence of the outer branch exists already.
    for b in (b for n in graph.nodes if n.branch is not None for b in n.branch.path):
        if b not in presences:
            presences[b] = Presence(Ref(b.predicate.node.id, b.predicate.index), b.side, presences[b.outer])
    steps = tuple(
        Step(n, n.op, tuple(Ref(x.node.id, x.index) for x in n.inputs), n.stage, presence=presences[n.branch])
        for n in graph.nodes
    )
    outputs, sinks = (tuple(Ref(x.node.id, x.index) for x in values) for values in (graph.outputs, graph.sinks))
    return Plan(steps, outputs, sinks)
