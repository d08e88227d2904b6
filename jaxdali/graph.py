"""The graph a pipeline definition describes: operators, nodes and the `DataNode` a user holds."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .errors import OperatorError
from .expressions import Expression
from .ragged import Packed

if TYPE_CHECKING:
    from .executor import Executor
    from .host import HostContext
    from .lowering import LowerContext
    from .source import Source

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


@dataclasses.dataclass(frozen=True)
class Spec:
    """What is known of a value when the pipeline is built.

    Attributes:
      dtype: NumPy dtype of the elements.
      ndim: dimensions of one sample (the batch axis is not counted).
      shape: the shape all samples have, or None: ragged.
      layout: one letter per axis, e.g. ``"HWC"``; ``""`` when unknown.
      dims: of a ragged value, the extents that are known all the same (None: varies), or None: nothing is known.
    """

    dtype: np.dtype
    ndim: int
    shape: tuple[int, ...] | None
    layout: str = ""
    dims: tuple[int | None, ...] | None = None

    def __post_init__(self):
        object.__setattr__(self, "dtype", np.dtype(self.dtype))
        assert self.shape is None or len(self.shape) == self.ndim, self
        assert self.layout == "" or len(self.layout) == self.ndim, self
        assert self.dims is None or len(self.dims) == self.ndim, self

    def extent(self, axis: int) -> int | None:
        """The extent all samples have along `axis`; None: it varies or is unknown."""
        if self.shape is not None:
            return self.shape[axis]
        return self.dims[axis] if self.dims is not None else None


@dataclasses.dataclass
class Value:
    """A value in the host pass, all local shards at once (N = S*B samples).

    Attributes:
      spec: what is known at build.
      shapes: ``i64[N, ndim]``, always known.
      data: ``[N, *shape]`` array (dense), `Packed` (ragged), or None for a value made in a program.
    """

    spec: Spec
    shapes: np.ndarray
    data: np.ndarray | Packed | None = None

    def __len__(self) -> int:
        return len(self.shapes)

    def sample(self, i: int) -> np.ndarray:
        """Sample `i` of a host value, as a view."""
        assert self.data is not None
        return self.data[i]

    def dense(self, what: str = "the input", present: np.ndarray | None = None) -> np.ndarray:
        """A host value as one array ``[N, ...]``; ValueError when the samples differ in shape.

        Args:
          present: the samples that a short batch has; the others get the value of the first of them.
        """
        assert self.data is not None
        if isinstance(self.data, np.ndarray) and (present is None or present.all()):
            return self.data
        here = self.indices(present)
        shapes = self.shapes[here]
        if len(shapes) and (shapes != shapes[0]).any():
            raise ValueError(f"{what} must have one shape for all samples of a batch, got {sorted(set(map(tuple, shapes.tolist())))}")
        return np.stack([self.data[i] for i in here])

    def indices(self, present: np.ndarray | None) -> list[int]:
        """For each sample itself; for those that a short batch lacks, the first that it has."""
        if present is None or not present.any():
            return list(range(len(self)))
        return np.where(present, np.arange(len(self)), int(present.argmax())).tolist()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operator:
    """One call of a function of `jaxdali.fn`. Its fields are static attributes: they stand in the key of compiled programs.

    `infer` is called once, when the pipeline is built; `run` or `setup` once per batch on the host; `lower` once per
    compilation. An operator has `run`, or `lower` (with `setup`, when it is native), or both.
    """

    name: ClassVar[str]  # as users know it: "decoders.image"
    runs: ClassVar[frozenset[str]]  # subset of {"host", "compute"}: which of run and lower exist
    native: ClassVar[bool] = False  # lower() is a native call and also returns status i32[B]
    kernel: ClassVar[str] = ""  # of a native operator: what lower() calls
    reads_shapes_only: ClassVar[bool] = False  # run() works on values made in a program too: it gets their shapes, no data
    source: ClassVar[bool] = False  # reader or external_source: one instance and one state per shard
    random: ClassVar[bool] = False  # draws random numbers: is numbered among the random operators of its pipeline
    moves: ClassVar[bool] = False  # its output lives where `device` says, wherever its input is
    eager: ClassVar[bool] = (
        False  # call(ctx, inputs, shards) runs between programs, on arrays of each shard; specs are those of its results
    )
    setup_reads: ClassVar[tuple[int, ...] | None] = (
        None  # inputs whose values setup reads: they must be host values. None: all but the first
    )

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def preserved(self) -> bool:
        """Whether it runs even when no output depends on it."""
        return False

    @property
    def key(self) -> Any:
        """What distinguishes this operator's programs from another's."""
        return self

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        """Specs of the outputs. Raises ValueError or TypeError on inputs it does not take."""
        raise NotImplementedError(self.name)

    def bind(self, executor: Executor, node: Node, ops: Sequence[Operator], specs: tuple[Spec, ...]) -> Operator:
        """What really runs, for operators that decide it when their inputs' specs are known.

        Args:
          ops: this operator in each local shard's graph.
        """
        return self

    def is_native(self, *specs: Spec) -> bool:
        """Whether `lower` returns ``(outputs, status)`` for inputs of these specs."""
        return self.native

    def make_source(self, ops: Sequence[Any], seed: int) -> Source:
        """The running source of a reader or external_source; `ops` are this operator in each local shard's graph."""
        raise NotImplementedError(self.name)

    def setup(self, ctx: HostContext, *values: Value) -> tuple[np.ndarray | None, ...]:
        """Shapes ``i64[N, ndim]`` of each output, None for a static one. Called when the operator is native or an output ragged.

        Per-sample parameters of the kernel are handed to `lower` with ``ctx.param(name, array)``.
        """
        raise NotImplementedError(self.name)

    def run(self, ctx: HostContext, *values: Value) -> tuple[Any, ...]:
        """Outputs, each an array ``[N, *shape]`` (static), or a list of N arrays or a `Packed` (ragged)."""
        raise NotImplementedError(self.name)

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        """One shard's outputs, traced: a tuple of arrays ``[B, ...]`` or `Ragged`; native: ``(outputs, status)``."""
        raise NotImplementedError(self.name)


@dataclasses.dataclass(eq=False)
class Node:
    """A use of an operator in a graph."""

    id: int
    op: Operator
    inputs: tuple[DataNode, ...]
    device: str  # as asked for: "cpu", "mixed", "gpu" or "" (follow the inputs)
    where: str
    name: str
    random_index: int = -1  # number among the random operators
    specs: tuple[Spec, ...] = ()  # of the outputs, known after Graph.infer
    stage: str = ""  # "host", "cpu" or "device"
    native: bool = False  # op.is_native for these inputs, known after Graph.infer
    phase: int = -1  # how many times an eager function must have run before; known after Graph.infer

    def reads_on_host(self, i: int) -> bool:
        """Whether `setup` reads the values of input `i`; `lower` then gets None in its place."""
        reads = self.op.setup_reads
        return self.native and (i in reads if reads is not None else i > 0)

    def error(self, reason: str) -> OperatorError:
        return OperatorError(self.op.name, self.where, reason)


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
        return "gpu" if requested_on_device(self.node) else "cpu"

    @property
    def source(self) -> Node:
        return self.node

    def __repr__(self) -> str:
        return f"DataNode(name={self.node.name!r}, device={self.device!r})"

    def __bool__(self):
        raise TypeError(
            "a DataNode has no truth value while the pipeline is defined: `if`, `and`, `or`, `not` on it can't work; "
            "use &, |, == and arithmetic on DataNodes instead"
        )

    def __iter__(self):
        raise TypeError("a DataNode can't be iterated: it stands for a batch that does not exist yet")


@dataclasses.dataclass
class Graph:
    """All nodes of one traced pipeline definition, in topological order."""

    nodes: list[Node] = dataclasses.field(default_factory=list)
    outputs: tuple[DataNode, ...] = ()
    num_random: int = 0

    def add(self, op: Operator, inputs: tuple[DataNode, ...], device: str, name: str | None, where: str) -> Node:
        for i, x in enumerate(inputs):
            if not any(x.node is n for n in self.nodes):
                raise OperatorError(op.name, where, f"input {i} was created in another pipeline")
        names = {n.name for n in self.nodes}
        if name is not None and name in names:
            raise OperatorError(op.name, where, f"the name {name!r} is taken by another operator of this pipeline")
        node = Node(len(self.nodes), op, inputs, device, where, name or f"__{op.name}_{len(self.nodes)}")
        node.stage = _stage(node)
        if op.random:
            node.random_index = self.num_random
            self.num_random += 1
        self.nodes.append(node)
        return node

    def prune(self):
        """Drops the nodes that no output depends on.

        Sources stay, as they have a state and readers are asked for their size, and so does what is to be preserved.
        """
        needed = {id(x.node) for x in self.outputs}
        for node in reversed(self.nodes):
            if id(node) in needed or node.op.source or node.op.preserved:
                needed |= {id(x.node) for x in node.inputs} | {id(node)}
        self.nodes = [n for n in self.nodes if id(n) in needed]

    def infer(self, node: Node, sources: Mapping[int, Source], ops: Sequence[Operator], executor: Executor):
        """Fills in specs, phase, and what else depends on the inputs' specs, which are known; errors name the operator and the user's line.

        Args:
          sources: the running source of each source node, by the node's id.
          ops: this node's operator in the graph of each local shard.
        """
        try:
            specs = tuple(x.spec for x in node.inputs)
            node.op = node.op.bind(executor, node, ops, specs)
            if node.op.eager:
                node.stage = "host"
            elif node.op.source:
                node.specs = tuple(sources[node.id].specs())
            else:
                node.specs = tuple(node.op.infer(*specs))
                node.native = node.stage != "host" and node.op.is_native(*specs)
        except OperatorError:
            raise
        except (ValueError, TypeError, RuntimeError) as e:
            if node.op.source:  # perhaps of the user's own code: comes out as it is
                e.add_note(f"in {node.op.name} (created at {node.where})")
                raise
            raise type(e)(f"{node.op.name} (created at {node.where}): {e}") from e
        for i, x in enumerate(node.inputs):
            if node.reads_on_host(i) and x.node.stage != "host":
                raise node.error(
                    f"input {i} is read on the host before the batch is launched, but {x.node.op.name} "
                    f"(created at {x.node.where}) makes it in the compiled program. Arguments must come from host operators: "
                    "readers, external_source, random.*, peek_image_shape, shapes, arithmetic and constants, jax_function with jit=False"
                )
        node.phase = max((x.node.phase + (node.op.eager and x.node.stage != "host") for x in node.inputs), default=0)

    @property
    def key(self) -> tuple:
        """The structure, for comparing the graphs of two shards."""
        number = {id(n): i for i, n in enumerate(self.nodes)}
        nodes = tuple(
            (n.op.name, () if n.op.source else n.op.key, n.stage, tuple((number[id(x.node)], x.index) for x in n.inputs))
            for n in self.nodes
        )
        return nodes, tuple((number[id(x.node)], x.index) for x in self.outputs)


def requested_on_device(node: Node) -> bool:
    """Whether the user asked for a value on the accelerator, here or upstream."""
    if node.op.moves:
        return node.device == "gpu"
    return node.device in ("mixed", "gpu") or any(requested_on_device(x.node) for x in node.inputs)


def _stage(node: Node) -> str:
    on_device = node.device in ("mixed", "gpu")
    stages = [x.node.stage for x in node.inputs]
    if node.op.reads_shapes_only or node.op.eager or ("host" in node.op.runs and not on_device and all(s == "host" for s in stages)):
        return "host"
    if "compute" not in node.op.runs:
        if on_device and all(s == "host" for s in stages):
            return "host"
        made = next(x.node for x in node.inputs if x.node.stage != "host")
        raise node.error(
            f"it runs on the host, but its input is made in the compiled program by {made.op.name} (created at {made.where})"
            + (": pass jit=False to jax_function" if made.op.name == "jax_function" else "")
        )
    return "device" if on_device or ("device" in stages and not node.op.moves) else "cpu"


# --- building ---------------------------------------------------------------------------------------------------

_local = threading.local()


@contextlib.contextmanager
def building(graph: Graph):
    """While active in this thread, operators are added to `graph`."""
    stack = _local.__dict__.setdefault("stack", [])
    stack.append(graph)
    try:
        yield graph
    except (TypeError, ValueError) as e:
        _add_line(e)
        raise
    finally:
        stack.pop()


def _add_line(e: Exception):
    """Adds operator and the user's line to the message of an exception that a call of an operator raised."""
    line, called = "", None  # the innermost one outside this package, and the frame inside that it went to
    for frame, number in traceback.walk_tb(e.__traceback__):
        if not os.path.abspath(frame.f_code.co_filename).startswith(_PACKAGE):
            line, called = f"{frame.f_code.co_filename}:{number}", None
        else:
            called = called or frame
    # The call itself may be wrong, which Python finds before the operator runs.
    in_call = type(e) is TypeError and re.search(r"\(\) (got|missing|takes)", str(e))
    if not line or line in str(e) or not (called or in_call):
        return
    name = ""
    if called is not None:
        place = called.f_globals["__name__"].partition(".fn.")[2]  # "decoders", "readers._file", "_cast"
        name = ".".join(x for x in (*place.split("."), called.f_code.co_name) if x and x[0] != "_") if place else ""
    e.args = (f"{'' if name in str(e) else f'{name}: '}{e} (called at {line})", *e.args[1:])


def current_graph() -> Graph | None:
    """The graph being defined in this thread."""
    stack = _local.__dict__.get("stack")
    return stack[-1] if stack else None


def user_line() -> str:
    """``"file:line"`` of the innermost frame outside this package."""
    frame = sys._getframe(1)
    while frame is not None and os.path.abspath(frame.f_code.co_filename).startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "?"


def add(op: Operator, *inputs: Any, device: str | None = None, name: str | None = None) -> Any:
    """Adds an operator to the pipeline being defined.

    Args:
      op: the operator.
      *inputs: DataNodes; numbers, NumPy and JAX arrays become constants.
      device: "cpu", "mixed", "gpu" or None: follow the inputs.
      name: the user's name for it.

    Returns:
      A `DataNode`, or a tuple of them where the operator has several outputs.
    """
    graph = current_graph()
    where = user_line()
    if graph is None:
        raise OperatorError(
            op.name,
            where,
            "operators can only be used inside a pipeline definition: a function decorated with @pipeline_def or @data_iterator, "
            "define_graph, or `with pipeline:`",
        )
    if device not in (None, "cpu", "mixed", "gpu"):
        raise ValueError(f"{op.name}: device must be 'cpu', 'mixed' or 'gpu', got {device!r}")
    nodes = tuple(as_node(x, op.name) for x in inputs)
    node = graph.add(op, nodes, device or "", name, where)
    if op.num_outputs == 1:
        return DataNode(node, 0)
    return tuple(DataNode(node, i) for i in range(op.num_outputs))


def as_node(x: Any, name: str) -> DataNode:
    """A DataNode as it is; a number or array as a constant, the same for all samples."""
    if isinstance(x, DataNode):
        return x
    from .fn._constant import constant_node

    try:
        return constant_node(x)
    except TypeError as e:
        raise TypeError(f"{name}: an input must be a DataNode, a number or an array, got {type(x).__name__}") from e


def is_node(x: Any) -> bool:
    """Whether it is a DataNode."""
    return isinstance(x, DataNode)


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Numeric arguments of one operator call, each a static value or a per-sample argument input.

    Fields of an `Operator` must be hashable and the same for all samples; a DataNode among the arguments becomes an
    additional input. This object, itself such a field, remembers which is which.

    Attributes:
      static: (name, value) pairs; numbers, or tuples of numbers.
      inputs: names of those that come as inputs, in the order they were appended.
      first: index of the first of these among the operator's inputs.
    """

    static: tuple[tuple[str, Any], ...]
    inputs: tuple[str, ...]
    first: int

    @staticmethod
    def split(operator: str, first: int, **arguments: Any) -> tuple[Arguments, tuple[DataNode, ...]]:
        """Splits keyword arguments (None: absent) into static ones and argument inputs.

        A list or tuple that contains DataNodes becomes one input, stacked.
        """
        static, names, nodes = [], [], []
        for name, x in arguments.items():
            if x is None:
                continue
            if isinstance(x, (list, tuple)) and any(is_node(e) for e in x):
                from .fn._constant import stack_nodes

                x = stack_nodes(x)
            if is_node(x):
                names.append(name)
                nodes.append(x)
            else:
                static.append((name, _static(operator, name, x)))
        return Arguments(tuple(static), tuple(names), first), tuple(nodes)

    def __contains__(self, name: str) -> bool:
        return name in self.inputs or any(n == name for n, _ in self.static)

    def is_static(self, name: str) -> bool:
        return name not in self.inputs

    def get(self, name: str, default: Any = None) -> Any:
        """The static value of an argument."""
        assert name not in self.inputs, name
        return next((v for n, v in self.static if n == name), default)

    def values(
        self, ctx: HostContext, values: Sequence[Value], name: str, default: Any = None, width: int | None = None
    ) -> np.ndarray | None:
        """Per-sample values ``[N]`` (width None) or ``[N, width]`` as float64 in the host pass; None: absent and no default.

        A scalar is repeated to `width`. Raises ValueError on a wrong number of elements.
        """
        if name in self.inputs:
            a = values[self.first + self.inputs.index(name)].dense(f"argument {name}", ctx.present).astype(np.float64)
            a = a.reshape(len(a), -1)
        else:
            x = self.get(name, default)
            if x is None:
                return None
            a = _repeated(x, ctx.N)
        if width is None:
            if a.shape[1] != 1:
                raise ValueError(f"argument {name} must be one number per sample, got {a.shape[1]}")
            return a[:, 0]
        if a.shape[1] == 1:
            a = np.broadcast_to(a, (len(a), width))
        if a.shape[1] != width:
            raise ValueError(f"argument {name} must have 1 or {width} numbers per sample, got {a.shape[1]}")
        return a


@functools.lru_cache(maxsize=1024)
def _repeated(x: Any, N: int) -> np.ndarray:
    """A static argument for N samples, ``f64[N, numbers]``."""
    a = np.asarray(x, np.float64).reshape(1, -1)
    return np.broadcast_to(a, (N, a.shape[1]))


def _static(operator: str, name: str, x: Any) -> Any:
    if isinstance(x, (bool, int, float)):
        return x
    try:
        a = np.asarray(x)
    except Exception as e:
        raise TypeError(f"{operator}: argument {name} must be a number, a list of numbers or a DataNode, got {type(x).__name__}") from e
    if a.dtype == object or a.dtype.kind in "USV":
        raise TypeError(f"{operator}: argument {name} must be a number, a list of numbers or a DataNode, got {x!r}")
    if a.ndim == 0:
        return a.item()
    return tuple(a.reshape(-1).tolist())
