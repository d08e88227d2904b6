"""The graph that a pipeline definition describes: nodes, and the `DataNode` a user holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from .._data.source import Source
from ..errors import ArgumentError, InputTypeError, OperatorError
from .calls import Call
from .context import BuildContext
from .expressions import Expression
from .operator import EagerOperator, HostOperator, Operator, ProgramOperator, SourceOperator
from .values import Spec


@dataclasses.dataclass(eq=False)
class Node:
    """A use of an operator: as it was made, or a graph's copy of that (`Graph.collect`)."""

    id: int  # place in its graph; of one that was made: in the order of all that were
    op: Operator
    inputs: tuple[DataNode, ...]
    device: str  # as asked for: "cpu", "mixed", "gpu" or "" (follow the inputs)
    where: str
    name: str
    named: bool  # whether the name is the user's
    random_index: int = -1  # number among the random operators of its graph; of one that was made: that of a node that draws the same
    specs: tuple[Spec, ...] = ()  # of the outputs, known after Graph.infer
    stage: str = ""  # "host", "cpu" or "device"
    on_device: bool = False  # whether the user asked for a value on the accelerator, here or upstream
    call: Call | None = None  # of a public function, that made it; None: it was made otherwise
    phase: int = -1  # how many times an eager function must have run before; known after Graph.infer

    def reads_on_host(self, i: int) -> bool:
        """Whether `setup` reads the values of input `i`; `lower` then gets None in its place."""
        return self.stage != "host" and isinstance(self.op, ProgramOperator) and self.op.setup_reads(i)

    def error(self, reason: str) -> OperatorError:
        return OperatorError(self.op.name, self.where, reason)

    @staticmethod
    def of(id: int, op: Operator, inputs: tuple[DataNode, ...], device: str, where: str, name: str, *, named: bool = True) -> Node:
        """With what follows from its inputs. OperatorError when it can't run where they are made."""
        node = Node(id, op, inputs, device, where, name, named)
        node.stage = _stage(node)
        node.on_device = op.is_on_device(device, any(x.node.on_device for x in inputs))
        return node


class DataNode(Expression):
    """A value of a pipeline definition: the output of an operator. Carries no data."""

    __slots__ = ("index", "node")

    def __init__(self, node: Node, index: int):
        self.node = node
        self.index = index

    @property
    def spec(self) -> Spec:
        return self.node.specs[self.index]

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def device(self) -> str:
        """``"gpu"`` when the value is made on, or was moved to, the accelerator; else ``"cpu"``."""
        return "gpu" if self.node.on_device else "cpu"

    @property
    def source(self) -> Node:
        return self.node

    def __repr__(self) -> str:
        output = f", output={self.index}" if self.node.op.num_outputs > 1 else ""
        return f"DataNode(name={self.name!r}, operator={self.node.op.name!r}{output}, device={self.device!r}, created at {self.node.where})"

    def __bool__(self):
        raise TypeError(
            "a DataNode has no truth value while the pipeline is defined: `if`, `and`, `or`, `not` on it can't work; "
            "use &, |, == and arithmetic on DataNodes instead"
        )

    def __iter__(self) -> Iterator[DataNode]:  # as a list of nodes given to an operator makes a list of them
        raise TypeError("a DataNode can't be iterated: it stands for a batch that does not exist yet")


@dataclasses.dataclass
class Graph:
    """All nodes of one pipeline, in topological order."""

    nodes: list[Node] = dataclasses.field(default_factory=list)
    outputs: tuple[DataNode, ...] = ()
    copies: dict[int, Node] = dataclasses.field(default_factory=dict)  # of nodes that were made, by their numbers

    @staticmethod
    def collect(made: Sequence[Node], outputs: Sequence[DataNode], sinks: Sequence[DataNode] = ()) -> Graph:
        """The graph of a definition: what it made, and what its outputs need, wherever that was made; in the order of making.

        The nodes are copies, so that each may be used in several pipelines. Here they get the numbers, and those that the
        definition did not make and nobody named the names, on which seeds, checkpoints and files depend: what else was made before
        makes no difference. Those that no output and no sink depends on are left out, but for sources, which have a state and are
        asked for their size, and for what is to be preserved.

        Raises:
          OperatorError: two of them have one name.
        """
        found = {n.id: n for n in made}
        own, foreign = set(found), len(found)
        todo = [*made, *(x.node for x in (*outputs, *sinks))]
        while todo:
            node = todo.pop()
            found[node.id] = node
            todo += [x.node for x in node.inputs if x.node.id not in found]
        graph, draws = Graph(), dict[int, int]()
        for number in sorted(found):
            node = found[number]
            name = node.name
            if number not in own and not node.named:
                name, foreign = f"__{node.op.name}_{foreign}", foreign + 1
            inputs = tuple(DataNode(graph.copies[x.node.id], x.index) for x in node.inputs)
            copy = graph.copies[number] = graph.add(node.op, inputs, node.device, name, node.where)
            copy.call = node.call
            if node.op.random:
                copy.random_index = draws.setdefault(node.random_index, len(draws))
        graph.outputs = tuple(DataNode(graph.copies[x.node.id], x.index) for x in outputs)
        graph._prune({graph.copies[x.node.id].id for x in sinks})
        taken: dict[str, Node] = {}
        for node in graph.nodes:
            if taken.setdefault(node.name, node) is not node:
                where = taken[node.name].where
                raise node.error(f"the name {node.name!r} is taken by another operator of this pipeline, created at {where}")
        return graph

    def find(self, handle: DataNode | str) -> Node | None:
        """The node that a `DataNode` of the user's, or a name, refers to."""
        if isinstance(handle, DataNode):
            node = self.copies.get(handle.node.id)
            return node if node in self.nodes else None
        return next((n for n in self.nodes if n.name == handle), None)

    def add(self, op: Operator, inputs: tuple[DataNode, ...], device: str, name: str, where: str) -> Node:
        """Appends a node, whose inputs are in this graph. Who calls it numbers it among the random operators."""
        node = Node.of(len(self.nodes), op, inputs, device, where, name)
        self.nodes.append(node)
        return node

    def _prune(self, needed: set[int]):
        needed |= {x.node.id for x in self.outputs}
        for node in reversed(self.nodes):
            if node.id in needed or isinstance(node.op, SourceOperator) or node.op.preserved:
                needed |= {x.node.id for x in node.inputs} | {node.id}
        self.nodes = [n for n in self.nodes if n.id in needed]

    def infer(self, node: Node, sources: Mapping[int, Source], ctx: BuildContext):
        """Fills in specs, phase, and what else depends on the inputs' specs, which are known; errors name the operator and the user's line.

        Args:
          sources: the running source of each source node, by the node's id.
        """
        try:
            specs = tuple(x.spec for x in node.inputs)
            node.op = node.op.bind(ctx, *specs)
            if isinstance(node.op, EagerOperator):
                node.stage = "host"
            elif isinstance(node.op, SourceOperator):
                node.specs = tuple(sources[node.id].specs())
            else:
                node.specs = tuple(node.op.infer(*specs))
        except OperatorError:
            raise
        except (ValueError, TypeError, RuntimeError) as e:
            if isinstance(node.op, SourceOperator):  # perhaps of the user's own code: comes out as it is
                e.add_note(f"in {node.op.name} (created at {node.where})")
                raise
            # In DALI whatever an operator has to say about its inputs is a RuntimeError.
            kind = type(e) if isinstance(e, RuntimeError) else InputTypeError if isinstance(e, TypeError) else ArgumentError
            raise kind(f"{node.op.name} (created at {node.where}): {e}") from e
        for i, x in enumerate(node.inputs):
            if node.reads_on_host(i) and x.node.stage != "host":
                raise node.error(
                    f"input {i} is read on the host before the batch is launched, but {x.node.op.name} "
                    f"(created at {x.node.where}) makes it in the compiled program. Arguments must come from host operators: "
                    "readers, external_source, random.*, peek_image_shape, shapes, arithmetic and constants, jax_function with jit=False"
                )
        eager = isinstance(node.op, EagerOperator)
        node.phase = max((x.node.phase + (eager and x.node.stage != "host") for x in node.inputs), default=0)

    @property
    def key(self) -> tuple:
        """The structure, for comparing the graphs of two shards."""
        number = {id(n): i for i, n in enumerate(self.nodes)}
        keys = [() if isinstance(n.op, SourceOperator) else n.op.key for n in self.nodes]
        nodes = tuple(
            (n.op.name, key, n.stage, tuple((number[id(x.node)], x.index) for x in n.inputs))
            for n, key in zip(self.nodes, keys, strict=True)
        )
        return nodes, tuple((number[id(x.node)], x.index) for x in self.outputs)


def _stage(node: Node) -> str:
    """Where a node runs: "host", or in a program on the "cpu" or the "device"."""
    op, stages = node.op, [x.node.stage for x in node.inputs]
    if isinstance(op, ProgramOperator):
        on_host = isinstance(op, HostOperator) and node.device not in ("mixed", "gpu") and all(s == "host" for s in stages)
        return "host" if on_host else "device" if op.is_on_device(node.device, "device" in stages) else "cpu"
    if isinstance(op, HostOperator):
        for i, x in enumerate(node.inputs):
            if x.node.stage != "host" and op.run_reads(i):
                raise node.error(
                    f"it runs on the host, but its input {i} is made in the compiled program by {x.node.op.name} "
                    f"(created at {x.node.where})" + (": pass jit=False to jax_function" if x.node.op.name == "jax_function" else "")
                )
    return "host"
