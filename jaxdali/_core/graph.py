"""The graph of a pipeline definition: nodes, and the `DataNode` that users get for an output of a node."""

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
    unreadable_advice,
)
from .tracebacks import boundaries


@dataclasses.dataclass(frozen=True, eq=False)
class Branch:
    """One side of an `if`, which works on a part of the samples of a batch.

    Attributes:
      predicate: the condition, a number for each sample.
      side: True: the branch is for samples whose predicate is true; False: for the other samples.
      outer: the branch that contains the `if`; None: there is none.
      where: the user's line.
      by_inputs: whether an operator belongs to the branch if one of its inputs does, as for `fn._conditional.split`.
        Otherwise the branch is the body of an `if` in the user's code, and has the operators that are called there.
    """

    predicate: DataNode
    side: bool
    outer: Branch | None
    where: str
    by_inputs: bool = False

    @property
    def path(self) -> tuple[Branch, ...]:
        """The branches from the outermost one to this one."""
        branches: list[Branch] = [self]
        branch = self.outer
        while branch is not None:
            branches.append(branch)
            branch = branch.outer
        return tuple(branches[::-1])


class Evaluator(Protocol):
    """Computes the values of a definition's nodes for one batch, while the definition runs (`debug=True`)."""

    def evaluate(self, node: Node) -> None:
        """Evaluates a node that has just been made."""
        ...

    def value(self, x: DataNode) -> Any:
        """The value of a node: a tensor list, as `Pipeline.run` returns it."""
        ...

    def text(self, x: DataNode) -> str:
        """The value as text for people."""
        ...


@dataclasses.dataclass(eq=False)
class Node:
    """One call of an operator: the original node that the call made, or a graph's copy of it (`Graph.collect`).

    Attributes:
      id: its index in its graph; for an original node, its number among all nodes ever made.
      op: the operator.
      inputs: the values that it reads.
      device: the device that the user asked for: "cpu", "mixed", "gpu" or "" (follow the inputs).
      where: the user's line.
      name: the user's name for it, or a generated one.
      named: whether the name is the user's.
      random_index: its number among the random operators of its graph; for an original node, the number of a node that
        draws the same random numbers; -1: it is not random.
      call: the call of a public function that made it; None: it was made in another way.
      branch: the branch whose samples it works on; None: all samples.
      pipeline: the number of the pipeline in whose definition it was made; 0: it was made outside of one, and any
        pipeline may use it.
      splits: for `fn._conditional.split`, both branches of one of its outputs, by output and enclosing branch.
      evaluator: a weak reference to the evaluator of its values, in a pipeline with ``debug=True``; None: it has no
        values. The reference is weak since cached programs hold nodes.
      stage: the place where it runs: "host", or in a program on the "cpu" or the "device".
      on_device: whether the user asked for its outputs on the accelerator, here or upstream.
      source: the first source upstream of it, or itself; None: there is none.

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
        """The error for this call of the operator, with the user's line."""
        return OperatorError(self.op.name, self.where, reason)

    def failure(self, e: Exception) -> OperatorError:
        """The error for an exception that an operator or a user function raised while it ran."""
        return self.error(str(e) if is_self_explanatory(e) else f"{type(e).__name__}: {e}")


# The node's method for an operator whose left operand is an array, by the NumPy function that the operator calls.
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
        """The name of the metadata, if the value is metadata (see `SourceOperator`); None: it is a batch of arrays."""
        op = self.node.op
        # Metadata are the last outputs of a source.
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
            f"{unreadable_advice(sys._getframe(1))}"
        )

    def __getattr__(self, name: str):
        """Refuses an attribute that nodes don't have, with advice."""
        if name == "__jax_array__":  # JAX looks for this method where it needs an array
            refuse_jax(self.node, sys._getframe(1))
        if name in DataNode.__slots__:  # not set yet: `copy` or `pickle` is making the object
            raise AttributeError(name)
        # Without an object Python adds no suggestion.
        raise AttributeError(no_attribute_message(name, self.node, dir(type(self))), name=name)

    # Refusals of NumPy and JAX. Without these methods np.mean(node) would be node / 1, the mean of one object, and
    # other functions would raise unclear errors.

    def __array_function__(self, function: Callable[..., object], *_: object):
        raise TypeError(not_array_message(f"{function.__module__}.{function.__name__} takes", self.node))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Python operators on an array and a node make a node; other functions are refused.

        NumPy turns ``array + node`` into the ufunc `add` and calls this method.
        """
        reflected = _REFLECTED.get(ufunc.__name__)
        # An operator has an array on the left and the node on the right; with the node on the left, Python calls it.
        if (
            method == "__call__"
            and reflected
            and not options
            and len(inputs) == 2
            and inputs[1] is self
            and inputs[0] is not self
        ):
            result = getattr(self, reflected)(inputs[0])
            if result is not NotImplemented:  # else the array can't be an operand
                return result
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
    sinks: tuple[DataNode, ...] = ()  # values that are computed although no output depends on them
    copies: dict[int, Node] = dataclasses.field(
        default_factory=dict
    )  # this graph's nodes, by the `id` of the originals

    @staticmethod
    def collect(nodes: Sequence[Node], outputs: Sequence[DataNode], sinks: Sequence[DataNode] = ()) -> Graph:
        """Collects the graph of a definition: the nodes that it made, and nodes from outside that its outputs need, in
        the order in which they were made.

        The graph has copies of the nodes, so that a node may be used in several pipelines. Copies are numbered within
        the graph, and unnamed nodes from outside the definition get names. Seeds, checkpoints and files depend on
        numbers and names, so nodes of other pipelines must not affect them. Nodes that no output and no sink depends on
        are left out, except readers, which have a state and a size, and preserved operators.

        Args:
          nodes: the nodes that the definition made.

        Raises:
          OperatorError: two nodes have the same name, or a node was made in another pipeline.
        """
        for x in outputs:
            check_reach(x, branch=None, usage="as an output")
        # All nodes of the definition, and those from outside that these or the outputs depend on.
        nodes_by_id = {n.id: n for n in nodes}
        own_ids, next_number = set(nodes_by_id), len(nodes_by_id)
        pending = [*nodes, *(x.node for x in (*outputs, *sinks))]
        while pending:
            node = pending.pop()
            nodes_by_id[node.id] = node
            pending += [x.node for x in dependencies(node) if x.node.id not in nodes_by_id]
        for number in nodes_by_id.keys() - own_ids:
            if nodes_by_id[number].pipeline:  # otherwise it was made outside of all definitions
                raise nodes_by_id[number].error(
                    "it is made in the definition of another pipeline: call the operator in this definition, too"
                )
        graph, random_indices = Graph(), dict[int, int]()
        branches: dict[Branch | None, Branch | None] = {None: None}  # the graph has copies of branches, too
        for number in sorted(nodes_by_id):  # inputs come before their nodes
            node = nodes_by_id[number]
            name = node.name
            if number not in own_ids and not node.named:
                name, next_number = f"__{node.op.name}_{next_number}", next_number + 1
            inputs = tuple(DataNode(graph.copies[x.node.id], x.index) for x in node.inputs)
            # Nodes that draw the same random numbers get the same new number.
            random_index = random_indices.setdefault(node.random_index, len(random_indices)) if node.op.random else -1
            for b in node.branch.path if node.branch is not None else ():
                # From the outermost branch on, so that the copy of the outer branch exists.
                # `by_inputs` is left out: it matters only while the definition makes nodes.
                if b not in branches:
                    predicate = DataNode(graph.copies[b.predicate.node.id], b.predicate.index)
                    branches[b] = Branch(predicate, b.side, branches[b.outer], b.where)
            graph.copies[number] = graph.add(node.op, inputs, node.device, name, node.where, random_index)
            graph.copies[number].call = node.call
            graph.copies[number].branch = branches[node.branch]
        graph.outputs = tuple(DataNode(graph.copies[x.node.id], x.index) for x in outputs)
        graph.sinks = tuple(DataNode(graph.copies[x.node.id], x.index) for x in sinks)
        graph._prune()
        node_of_name: dict[str, Node] = {}
        for node in graph.nodes:
            if node_of_name.setdefault(node.name, node) is not node:
                line = node_of_name[node.name].where
                raise node.error(
                    f"the name {node.name!r} is taken by another operator of this pipeline, created at {line}"
                )
        return graph

    def find(self, handle: DataNode | str) -> Node | None:
        """The node that a user's `DataNode` or a name refers to; None: it is not in this graph."""
        if isinstance(handle, DataNode):
            return self.copies.get(handle.node.id)
        return next((n for n in self.nodes if n.name == handle), None)

    def add(
        self, op: Operator, inputs: tuple[DataNode, ...], device: str, name: str, where: str, random_index: int
    ) -> Node:
        """Appends a node, whose inputs are in this graph."""
        node = Node(len(self.nodes), op, inputs, device, where, name, random_index=random_index)
        self.nodes.append(node)
        return node

    def with_values(self, ops: Mapping[int, Operator]):
        """Replaces nodes by inputs for their values, and removes the nodes that only the replaced ones depended on.

        Args:
          ops: the inputs, by the `id` of the original nodes. Nodes that are not in this graph are ignored.
        """
        for number in ops.keys() & self.copies.keys():
            node = self.copies[number]
            node.op, node.inputs, node.device = ops[number], (), ""
        for node in self.nodes:
            node.__post_init__()  # where a node runs follows from its inputs
        self._prune()

    def used(self, node: Node) -> frozenset[int]:
        """The indices of the outputs of a node that another node, an output or a sink of the graph depends on."""
        values = (*self.outputs, *self.sinks, *(x for n in self.nodes for x in dependencies(n)))
        return frozenset(x.index for x in values if x.node is node)

    def _prune(self):
        """Removes the nodes that nothing needs."""
        needed = {x.node.id for x in (*self.outputs, *self.sinks)}
        for node in reversed(self.nodes):
            if node.id in needed or (isinstance(node.op, SourceOperator) and node.op.stays) or node.op.preserved:
                needed |= {x.node.id for x in dependencies(node)} | {node.id}
        self.nodes = [n for n in self.nodes if n.id in needed]
        self.copies = {number: n for number, n in self.copies.items() if n.id in needed}

    @property
    def key(self) -> tuple:
        """The structure of the graph, to compare the graphs of two shards: for each node the operator, the stage, the
        inputs as (index of the node, output), and the branches. Sources may differ in their arguments.
        """
        index_of_node = {id(n): i for i, n in enumerate(self.nodes)}
        keys = [() if isinstance(n.op, SourceOperator) else n.op.key for n in self.nodes]
        node_keys = tuple(
            (
                n.op.name,
                key,
                n.stage,
                tuple((index_of_node[id(x.node)], x.index) for x in n.inputs),
                _branch_key(n, index_of_node),
            )
            for n, key in zip(self.nodes, keys, strict=True)
        )
        return node_keys, tuple((index_of_node[id(x.node)], x.index) for x in self.outputs)


def unpacking_hint(node: Node) -> str:
    """Advice for the end of an error message: to unpack the outputs of an operator; "" if they are unpacked.

    A call with a list of all outputs of another operator is repeated for each of them, which is seldom meant.
    """
    for x in node.call.inputs if node.call is not None else ():
        if advice := advice_for_outputs(x):
            return f"{advice[0]}, and the call is for each of them: {advice[1]}"
    return ""


# Names for the outputs of operators in messages.
_NAMES_OF_OUTPUTS = {"readers.file": "files, labels", "decoders.audio": "audio, rate"}


def advice_for_outputs(x: object) -> tuple[str, str] | None:
    """The parts of an error message if `x` is the list of all outputs of one operator: that it has several, and how to
    take them apart. Otherwise None.
    """
    if not (isinstance(x, (list, tuple)) and len(x) > 1 and isinstance(x[0], DataNode)):
        return None
    node = x[0].node
    if len(x) != node.op.num_outputs or not all(isinstance(e, DataNode) and e.node is node for e in x):
        return None
    name = node.op.name
    names = _NAMES_OF_OUTPUTS.get(name) or ", ".join("abcdefgh"[: len(x)])
    return f"{name} has {len(x)} outputs", f"take them apart, {names} = fn.{name}(...)"


def dependencies(node: Node) -> list[DataNode]:
    """The values that a node depends on: its inputs, and the predicates of its branches."""
    return [*node.inputs, *(b.predicate for b in (node.branch.path if node.branch is not None else ()))]


def innermost_branch(inputs: Sequence[DataNode], branch: Branch | None) -> Branch | None:
    """The branch of a node that is made in `branch` from these inputs: the innermost of `branch` and those branches of
    inputs that have `by_inputs`.
    """
    for x in inputs:
        input_branch = x.node.branch
        if input_branch is not None and input_branch.by_inputs and (branch is None or branch in input_branch.path):
            branch = input_branch
    return branch


def check_reach(x: DataNode, branch: Branch | None, usage: str):
    """Raises OperatorError if a value made in a branch is used outside of it, where other samples lack the value.

    Args:
      branch: the branch of the use; None: all samples.
      usage: the use in the words of the message: "as an output".
    """
    value_branch = x.node.branch
    if value_branch is not None and not (branch is not None and value_branch in branch.path):
        raise x.node.error(
            f"it is made in a branch of the `if` at {value_branch.where}, so not for all samples, but is used outside of it {usage}: "
            "assign it to a variable that gets a value in all branches"
        )


def check_pipeline(x: DataNode, pipeline: int, usage: str):
    """Raises OperatorError for a value made in the definition of another pipeline."""
    if x.node.pipeline and pipeline and x.node.pipeline != pipeline:
        raise x.node.error(
            f"it is made in the definition of another pipeline, but is used in this one {usage}: call the operator in this definition, too"
        )


def _branch_key(node: Node, index_of_node: Mapping[int, int]) -> tuple:
    """The predicates and sides of a node's branches, for `Graph.key`."""
    path = node.branch.path if node.branch is not None else ()
    return tuple((index_of_node[id(b.predicate.node)], b.predicate.index, b.side) for b in path)


def check_same_structure(graphs: Sequence[Graph]):
    """Raises an error if the definition gives different graphs for two shards."""
    for shard, g in enumerate(graphs[1:], 1):
        if g.key == graphs[0].key:
            continue
        for a, b in zip(graphs[0].nodes, g.nodes, strict=False):
            is_same = (a.op.name, a.stage, len(a.inputs)) == (b.op.name, b.stage, len(b.inputs))
            if not is_same or (not isinstance(a.op, SourceOperator) and a.op.key != b.op.key):
                raise b.error(
                    f"the pipeline definition gives another graph for shard {shard} than for shard 0 "
                    f"({a.op.name} created at {a.where}): {_differences(a, b)}"
                )
        raise ValueError(
            f"the pipeline definition gives {len(g.nodes)} operators for shard {shard}, {len(graphs[0].nodes)} for shard 0, "
            "or connects them differently"
        )


def _differences(a: Node, b: Node) -> str:
    """The arguments that differ between the calls that made two corresponding nodes, as text for a message."""
    if a.call is None or b.call is None or a.call.function != b.call.function:
        return (
            f"{a.op.name} there is {b.op.name} here" if a.op.name != b.op.name else "their inputs or arguments differ"
        )
    first, second = a.call.arguments, b.call.arguments
    constants = [n for n in second if not any(isinstance(x.get(n), DataNode) for x in (first, second))]
    differences = [
        f"{n} is {first.get(n)!r:.80} there, {second[n]!r:.80} here"
        for n in constants
        if repr(first.get(n)) != repr(second[n])
    ]
    return "; ".join(differences) or "their inputs or arguments differ"


def _stage(node: Node) -> str:
    """The place where a node runs: "host", or in a program on the "cpu" or the "device". Binding to a host operator may
    still move it to the host.
    """
    op, stages = node.op, [x.node.stage for x in node.inputs]
    if not isinstance(op, ProgramOperator) or (can_be_on_host(node) and all(s == "host" for s in stages)):
        return "host"
    return "device" if op.is_on_device(node.device, "device" in stages) else "cpu"


def can_be_on_host(node: Node) -> bool:
    """Whether a node runs on the host if all its inputs do."""
    return isinstance(node.op, HostOperator) and node.device not in ("mixed", "gpu")
