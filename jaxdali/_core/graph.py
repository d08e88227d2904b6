"""The graph that a pipeline definition describes: nodes, and the `DataNode` a user holds."""

from __future__ import annotations

import dataclasses
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .calls import Call
from .errors import OperatorError, is_self_explanatory
from .expressions import Expression
from .operator import HostOperator, Operator, ProgramOperator, SourceOperator
from .refusals import (
    Method,
    NodeType,
    Unreadable,
    missing_value_reason,
    no_attribute_message,
    no_value_message,
    not_array_message,
    refuse_jax,
)
from .tracebacks import boundaries


@dataclasses.dataclass(frozen=True, eq=False)
class Branch:
    """The samples of a batch that one side of an `if` is for.

    Attributes:
      predicate: the condition, a number for each sample.
      side: True: the branch is for samples whose predicate is true; False: for the others.
      outer: the branch that contains the `if`; None: there is none.
      where: the user's line.
      by_inputs: whether the branch is not a place in the user's code; values that are made from values in it are also
        in it (`fn._conditional.split`).
    """

    predicate: DataNode
    side: bool
    outer: Branch | None
    where: str
    by_inputs: bool = False

    @property
    def path(self) -> tuple[Branch, ...]:
        """From the outermost branch to this one."""
        found: list[Branch] = [self]
        branch = self.outer
        while branch is not None:
            found.append(branch)
            branch = branch.outer
        return tuple(found[::-1])


class Evaluator(Protocol):
    """Gives the nodes of a definition their values for one batch, while the definition runs."""

    def evaluate(self, node: Node) -> None:
        """Evaluates a node that has just been made."""
        ...

    def value(self, x: DataNode) -> Any:
        """The value of a node: a tensor list, as `Pipeline.run` gives it."""
        ...

    def text(self, x: DataNode) -> str:
        """The value, for people."""
        ...


@dataclasses.dataclass(eq=False)
class Node:
    """A use of an operator as the user wrote it: the original node, or a graph's copy of it (`Graph.collect`).

    Attributes:
      id: its place in its graph; for an original node, its place among all nodes ever made.
      device: the device that the user asked for: "cpu", "mixed", "gpu" or "" (follow the inputs).
      where: the user's line.
      named: whether the name is the user's.
      random_index: its number among the random operators of its graph; for an original node, the number of a node that
        draws the same; -1: it is not random.
      call: the call of a public function that made it; None: it was made in another way.
      branch: the branch whose samples it works on; None: all samples.
      pipeline: the number of the pipeline in whose definition it was made; 0: it was made outside, so that any pipeline
        may use it.
      splits: for `fn._conditional.split`, both branches of one of its outputs, by output and enclosing branch.
      evaluator: has its values, in a pipeline with ``debug=True``; None: it has no values yet. It is not held, since
        cached programs hold nodes.
      stage: where it runs: "host", or in a program on the "cpu" or the "device".
      on_device: whether the user asked for its outputs on the accelerator, here or upstream.
      source: the first source upstream of it, or itself.

    Raises:
      OperatorError: it can't run where its inputs are made.
    """

    id: int
    op: Operator
    inputs: tuple[DataNode, ...]
    device: str
    where: str
    name: str
    named: bool = True
    random_index: int = -1
    call: Call | None = None
    branch: Branch | None = None
    pipeline: int = 0
    splits: dict[tuple[int, Branch | None], tuple[Branch, Branch]] = dataclasses.field(default_factory=dict)
    evaluator: weakref.ref[Evaluator] | None = None
    stage: str = dataclasses.field(init=False)
    on_device: bool = dataclasses.field(init=False)
    source: Node | None = dataclasses.field(init=False)

    def __post_init__(self):
        # Computed once from the inputs: a walk over the graph would visit some nodes many times.
        on_device = self.op.is_on_device(self.device, any(x.node.on_device for x in self.inputs))
        upstream = (x.node.source for x in self.inputs)
        source = self if isinstance(self.op, SourceOperator) else next((s for s in upstream if s is not None), None)
        self.stage, self.on_device, self.source = _stage(self), on_device, source

    def error(self, reason: str) -> OperatorError:
        return OperatorError(self.op.name, self.where, reason)

    def failure(self, e: Exception) -> OperatorError:
        """The error for an exception that an operator or a user function raised while it ran."""
        return self.error(str(e) if is_self_explanatory(e) else f"{type(e).__name__}: {e}")


# For operators whose left operand is an array: the node's method, by the NumPy function that the operator calls.
_REFLECTED = {
    "add": "__radd__",
    "subtract": "__rsub__",
    "multiply": "__rmul__",
    "divide": "__rtruediv__",
    "floor_divide": "__rfloordiv__",
    "power": "__rpow__",
    "remainder": "__rmod__",
    "bitwise_and": "__rand__",
    "bitwise_or": "__ror__",
    "bitwise_xor": "__rxor__",
    "left_shift": "__rlshift__",
    "right_shift": "__rrshift__",
    "equal": "__eq__",
    "not_equal": "__ne__",
    "less": "__gt__",
    "less_equal": "__ge__",
    "greater": "__lt__",
    "greater_equal": "__le__",
}


@boundaries
class DataNode(Unreadable, Expression, metaclass=NodeType):
    """A value of a pipeline definition: the output of an operator. Carries no data."""

    __slots__ = ("index", "node")

    def __init__(self, node: Node, index: int):
        self.node = node
        self.index = index

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def device(self) -> str:
        """``"gpu"`` if the value is made on, or was moved to, the accelerator; else ``"cpu"``."""
        return "gpu" if self.node.on_device else "cpu"

    @property
    def source(self) -> Node:
        return self.node

    @property
    def metadata(self) -> str | None:
        """The name of the metadata that it is, see `SourceOperator`; None: it is a batch of arrays."""
        op = self.node.op
        k = self.index - op.num_arrays if isinstance(op, SourceOperator) else -1
        return op.metadata_names[k] if k >= 0 and isinstance(op, SourceOperator) else None

    def get(self) -> Any:
        """The value of this batch, as `Pipeline.run` gives it: a `TensorListCPU` or `TensorListGPU`.

        Raises:
          RuntimeError: the pipeline is not made with ``debug=True``, or a later batch has begun.
        """
        if self.node.evaluator is None:
            raise RuntimeError(
                no_value_message("get()", self.node)
                + "; pipeline_def(debug=True) calls the definition once for each batch, with values"
            )
        evaluator = self.node.evaluator()
        if evaluator is None:
            raise RuntimeError(
                "get() of a DataNode: its batch is over, and its values are gone: call get() before the next run()"
            )
        return evaluator.value(self)

    def __repr__(self) -> str:
        evaluator = self.node.evaluator() if self.node.evaluator is not None else None
        if evaluator is not None:
            return f"DataNode(name={self.name!r}, operator={self.node.op.name!r}, data={evaluator.text(self)})"
        output = f", output={self.index}" if self.node.op.num_outputs > 1 else ""
        return f"DataNode(name={self.name!r}, operator={self.node.op.name!r}{output}, device={self.device!r}, created at {self.node.where})"

    def __bool__(self):
        raise TypeError(
            "a DataNode has no truth value while the pipeline is defined: `if`, `and`, `or`, `not` work on it, sample by sample, in a "
            "pipeline or a jaxdali.dynamic.jit with enable_conditionals=True (but not `while`, `assert`, or `break` in an `if`); "
            f"or use &, |, == and arithmetic on DataNodes{'' if self.node.pipeline else f'. It {missing_value_reason(self.node)}'}"
        )

    def __getattr__(self, name: str):
        if name == "__jax_array__":
            refuse_jax(self.node, sys._getframe(1))
        if name in DataNode.__slots__:  # of a copy that is being made
            raise AttributeError(name)
        # Without an object Python adds no suggestion.
        raise AttributeError(no_attribute_message(name, self.node, dir(type(self))), name=name)

    # For NumPy and JAX. Without these methods np.mean(node) would be node / 1, the mean of one object, and other
    # functions raise unclear errors.

    def __array_function__(self, function: Callable[..., object], *_: object):
        raise TypeError(not_array_message(f"{function.__module__}.{function.__name__} takes", self.node))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Python operators on an array and a node make a node; other functions are refused."""
        reflected = _REFLECTED.get(ufunc.__name__)
        if (
            method == "__call__"
            and reflected
            and not options
            and len(inputs) == 2
            and inputs[1] is self
            and inputs[0] is not self
        ):
            found = getattr(self, reflected)(inputs[0])
            if found is not NotImplemented:
                return found
        raise TypeError(not_array_message(f"numpy.{ufunc.__name__} takes", self.node))

    def __array__(self, *_: object, **__: object):
        raise TypeError(not_array_message("numpy.asarray takes", self.node))

    if not TYPE_CHECKING:
        shape = Method(Expression.shape)


@dataclasses.dataclass
class Graph:
    """All nodes of one pipeline, in topological order. They are collected once and never changed."""

    nodes: list[Node] = dataclasses.field(default_factory=list)
    outputs: tuple[DataNode, ...] = ()
    sinks: tuple[DataNode, ...] = ()  # kept although no output depends on them
    copies: dict[int, Node] = dataclasses.field(default_factory=dict)  # of nodes that were made, by their numbers

    @staticmethod
    def collect(made: Sequence[Node], outputs: Sequence[DataNode], sinks: Sequence[DataNode] = ()) -> Graph:
        """The graph of a definition, in the order of making: the nodes that it made, and nodes made elsewhere that its
        outputs need.

        The nodes are copies, so that each may be used in several pipelines. They get numbers here, and unnamed nodes
        from outside the definition get names. Seeds, checkpoints and files depend on both, so nodes of other pipelines
        must not affect them. Nodes that no output and no sink depends on are left out, except readers, which have a
        state and a size, and preserved operators.

        Raises:
          OperatorError: two nodes have the same name, or a node was made in another pipeline.
        """
        for x in outputs:
            check_reach(x, None, "as an output")
        found = {n.id: n for n in made}
        own, foreign = set(found), len(found)
        todo = [*made, *(x.node for x in (*outputs, *sinks))]
        while todo:
            node = todo.pop()
            found[node.id] = node
            todo += [x.node for x in dependencies(node) if x.node.id not in found]
        for number in found.keys() - own:
            if found[number].pipeline:
                raise found[number].error(
                    "it is made in the definition of another pipeline: call the operator in this definition, too"
                )
        graph, draws = Graph(), dict[int, int]()
        branches: dict[Branch | None, Branch | None] = {None: None}  # the graph has copies of branches, too
        for number in sorted(found):
            node = found[number]
            name = node.name
            if number not in own and not node.named:
                name, foreign = f"__{node.op.name}_{foreign}", foreign + 1
            inputs = tuple(DataNode(graph.copies[x.node.id], x.index) for x in node.inputs)
            random_index = draws.setdefault(node.random_index, len(draws)) if node.op.random else -1
            for b in node.branch.path if node.branch is not None else ():
                if b not in branches:
                    predicate = DataNode(graph.copies[b.predicate.node.id], b.predicate.index)
                    branches[b] = Branch(predicate, b.side, branches[b.outer], b.where)
            graph.copies[number] = graph.add(node.op, inputs, node.device, name, node.where, random_index)
            graph.copies[number].call = node.call
            graph.copies[number].branch = branches[node.branch]
        graph.outputs = tuple(DataNode(graph.copies[x.node.id], x.index) for x in outputs)
        graph.sinks = tuple(DataNode(graph.copies[x.node.id], x.index) for x in sinks)
        graph._prune()
        taken: dict[str, Node] = {}
        for node in graph.nodes:
            if taken.setdefault(node.name, node) is not node:
                where = taken[node.name].where
                raise node.error(
                    f"the name {node.name!r} is taken by another operator of this pipeline, created at {where}"
                )
        return graph

    def find(self, handle: DataNode | str) -> Node | None:
        """The node that a user's `DataNode` or a name refers to."""
        if isinstance(handle, DataNode):
            node = self.copies.get(handle.node.id)
            return node if node in self.nodes else None
        return next((n for n in self.nodes if n.name == handle), None)

    def add(
        self, op: Operator, inputs: tuple[DataNode, ...], device: str, name: str, where: str, random_index: int
    ) -> Node:
        """Appends a node, whose inputs are in this graph."""
        node = Node(len(self.nodes), op, inputs, device, where, name, random_index=random_index)
        self.nodes.append(node)
        return node

    def with_values(self, ops: Mapping[int, Operator]):
        """Replaces nodes by sources of their values, by the numbers of the nodes, and leaves out what only those depend
        on.
        """
        for node in self.nodes:
            if node.id in ops:
                node.op, node.inputs, node.device = ops[node.id], (), ""
            node.__post_init__()  # where a node runs follows from its inputs
        self._prune()

    def used(self, node: Node) -> frozenset[int]:
        """The outputs of a node that something depends on."""
        values = (*self.outputs, *self.sinks, *(x for n in self.nodes for x in dependencies(n)))
        return frozenset(x.index for x in values if x.node is node)

    def _prune(self):
        needed = {x.node.id for x in (*self.outputs, *self.sinks)}
        for node in reversed(self.nodes):
            if node.id in needed or (isinstance(node.op, SourceOperator) and node.op.stays) or node.op.preserved:
                needed |= {x.node.id for x in dependencies(node)} | {node.id}
        self.nodes = [n for n in self.nodes if n.id in needed]

    @property
    def key(self) -> tuple:
        """The structure, for comparing the graphs of two shards."""
        number = {id(n): i for i, n in enumerate(self.nodes)}
        keys = [() if isinstance(n.op, SourceOperator) else n.op.key for n in self.nodes]
        nodes = tuple(
            (n.op.name, key, n.stage, tuple((number[id(x.node)], x.index) for x in n.inputs), _asked(n, number))
            for n, key in zip(self.nodes, keys, strict=True)
        )
        return nodes, tuple((number[id(x.node)], x.index) for x in self.outputs)


def unpacking_hint(node: Node) -> str:
    """The end of a message if the call was repeated for each output of another operator, which were not taken apart;
    else "".
    """
    for x in node.call.inputs if node.call is not None else ():
        several = isinstance(x, list) and len(x) > 1 and all(isinstance(e, DataNode) and e.node is x[0].node for e in x)
        if several and len(x) == x[0].node.op.num_outputs:
            name = x[0].node.op.name
            names = "files, labels" if name == "readers.file" else ", ".join("abcdefgh"[: len(x)])
            return f"{name} has {len(x)} outputs, and the call is for each of them: take them apart, {names} = fn.{name}(...)"
    return ""


def dependencies(node: Node) -> list[DataNode]:
    """The values that a node depends on: its inputs, and the predicates of its branches."""
    return [*node.inputs, *(b.predicate for b in (node.branch.path if node.branch is not None else ()))]


def innermost_branch(inputs: Sequence[DataNode], branch: Branch | None) -> Branch | None:
    """The branch of a node that is made in `branch` from these inputs: the innermost one that follows inputs."""
    for x in inputs:
        made = x.node.branch
        if made is not None and made.by_inputs and (branch is None or branch in made.path):
            branch = made
    return branch


def check_reach(x: DataNode, branch: Branch | None, how: str):
    """Raises OperatorError if a value made in a branch is used where some samples may not take it."""
    made = x.node.branch
    if made is not None and not (branch is not None and made in branch.path):
        raise x.node.error(
            f"it is made in a branch of the `if` at {made.where}, so not for all samples, but is used outside of it {how}: "
            "assign it to a variable that gets a value in all branches"
        )


def check_pipeline(x: DataNode, pipeline: int, how: str):
    """Raises OperatorError for a value made in the definition of another pipeline."""
    if x.node.pipeline and pipeline and x.node.pipeline != pipeline:
        raise x.node.error(
            f"it is made in the definition of another pipeline, but is used in this one {how}: call the operator in this definition, too"
        )


def _asked(node: Node, number: Mapping[int, int]) -> tuple:
    path = node.branch.path if node.branch is not None else ()
    return tuple((number[id(b.predicate.node)], b.predicate.index, b.side) for b in path)


def check_same_structure(graphs: Sequence[Graph]):
    """Raises an error if the definition gives different graphs for two shards."""
    for shard, g in enumerate(graphs[1:], 1):
        if g.key == graphs[0].key:
            continue
        for a, b in zip(graphs[0].nodes, g.nodes, strict=False):
            same = (a.op.name, a.stage, len(a.inputs)) == (b.op.name, b.stage, len(b.inputs))
            if not same or (not isinstance(a.op, SourceOperator) and a.op.key != b.op.key):
                raise b.error(
                    f"the pipeline definition gives another graph for shard {shard} than for shard 0 "
                    f"({a.op.name} created at {a.where}): {_differences(a, b)}"
                )
        raise ValueError(
            f"the pipeline definition gives {len(g.nodes)} operators for shard {shard}, {len(graphs[0].nodes)} for shard 0, "
            "or connects them differently"
        )


def _differences(a: Node, b: Node) -> str:
    """For a message: the arguments that differ between the calls that made two corresponding nodes."""
    if a.call is None or b.call is None or a.call.function != b.call.function:
        return (
            f"{a.op.name} there is {b.op.name} here" if a.op.name != b.op.name else "their inputs or arguments differ"
        )
    there, here = a.call.arguments, b.call.arguments
    plain = [n for n in here if not any(isinstance(arguments.get(n), DataNode) for arguments in (there, here))]
    found = [
        f"{n} is {there.get(n)!r:.80} there, {here[n]!r:.80} here" for n in plain if repr(there.get(n)) != repr(here[n])
    ]
    return "; ".join(found) or "their inputs or arguments differ"


def _stage(node: Node) -> str:
    """Where a node runs: "host", or in a program on the "cpu" or the "device". A node that is bound to a host operator
    moves to the host.
    """
    op, stages = node.op, [x.node.stage for x in node.inputs]
    if not isinstance(op, ProgramOperator) or (can_be_on_host(node) and all(s == "host" for s in stages)):
        return "host"
    return "device" if op.is_on_device(node.device, "device" in stages) else "cpu"


def can_be_on_host(node: Node) -> bool:
    """Whether a node runs on the host if all its inputs do."""
    return isinstance(node.op, HostOperator) and node.device not in ("mixed", "gpu")
