"""A graph of operators whose inputs are given by the caller: it is traced and compiled once, then called."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from .._batch.batch import EagerResults, InFlightBatch
from .._batch.executor import Executor
from .._core.building import DeferredWarnings, Scope, add, building, current_scope, replaying_draws, user_line, warn
from .._core.calls import flat
from .._core.errors import ArgumentError, OperatorError, located_message
from .._core.ffi import TargetDevice
from .._core.graph import DataNode, Graph, Node, dependencies
from .._core.jax_settings import own_settings
from .._core.operator import SourceOperator
from .._core.tracebacks import boundaries
from .._core.values import Spec
from .._data.source import PlaceholderSource, SampleIds, Source
from .._plan.options import RunOptions
from .._program.sharding import Shards
from ..fn._decode import registered
from . import _threads
from ._batch import Batch, Draw
from ._keys import KeyOf, KeysOf, numbers_of
from ._singles import for_several, single


class Given(SourceOperator):
    """A value that the caller gives.

    Attributes:
      first: shape of the first sample; None: it is that of all samples. asked: a set that
        gets the number of the value when `first` is read.
    """

    name = "input"
    of_values = True
    spec: Spec
    number: int = 0
    first: tuple[int, ...] | None = None
    asked: Any = dataclasses.field(default=None, compare=False)

    def make_source(self, ops: Sequence[Any], seed: int) -> Source:
        return _Given(self)


class _Given(PlaceholderSource):
    def __init__(self, op: Given):
        super().__init__(op.spec)
        self._op = op

    def first_shape(self, output: int) -> tuple[int, ...] | None:
        if self._op.asked is not None:
            self._op.asked.add(self._op.number)
        return self._op.first

    def seen_shape(self, output: int) -> tuple[int, ...] | None:
        return None  # each batch has another


_local = threading.local()


def current_trace() -> Trace | None:
    """The trace that functions of values add operators to, in this thread; None: they are evaluated."""
    return _local.__dict__.get("trace")


class NeedsKey(ArgumentError):
    """A function draws random numbers, and was given nothing that these are keyed by."""


class SizeAsked(Exception):
    """Within a program a function asks for a number of samples that its values do not have."""

    def __init__(self, name: str, size: int):
        super().__init__(name, size)
        self.name, self.size = name, size


class OtherFirsts(Exception):
    """A compiled function is for batches whose first samples have other shapes."""


@boundaries
class DynamicDataNode(DataNode):
    """A value in a function of values that is traced: a batch, or a single value. See Note [One key]."""

    __slots__ = ("_draw", "_trace")

    def __init__(self, node: Node, index: int, trace: Trace, draw: Draw | None):
        """`draw` None: it is a batch, with something for each sample."""
        super().__init__(node, index)
        self._trace, self._draw = trace, draw

    def __len__(self) -> int:
        if self._draw is not None:
            raise TypeError(
                "len() of a single value: it has no samples. For one file or image, leave out batch_size=: what is drawn is for it alone"
            )
        assert self._trace.N is not None
        return self._trace.N

    @property
    def slice(self) -> _Parts:
        """Takes a part of each sample, as `Batch.slice` does."""
        return _Parts(self)

    def _with_draw(self, draw: Draw | None) -> DynamicDataNode:
        return DynamicDataNode(self.node, self.index, self._trace, draw)


class _Parts:
    """Takes a part of each sample of a value."""

    def __init__(self, value: DynamicDataNode):
        self._value = value

    def __getitem__(self, key: Any) -> DynamicDataNode:
        return self._value[key]


# Note [One key]
# One key draws one number, N keys or `batch_size=N` draw N, and a function of N samples draws for each of them. In a
# traced function every value has N samples, so each `DynamicDataNode` knows whether it stands for a batch or for a
# single value, and whether that was drawn. The samples of a single value that was drawn all use the key that the first
# has, so that it is what the same call gives by itself. Where it meets a batch there is an error: the user may have
# meant one number for each sample, or one for all.


class Trace:
    """The state while a function is traced.

    Attributes:
      N: samples of the values; None: there is no value that says it.
      keys: those that random operators use; keyed: the places of these, by the numbers of random nodes.
    """

    def __init__(self, keys: Sequence[int | None], N: int):
        """`keys`: how many each of the keys stands for."""
        self._given = [KeyOf(i, count) for i, count in enumerate(keys)]
        self.keys: list[KeyOf | KeysOf] = []
        self.keyed: dict[int, int] = {}
        self.N: int | None = N
        self._draws: list[int] = []
        self._of_batch: bool | None = None  # whether the function that is called gives batches; None: there is none

    def value(self, node: Node, index: int) -> DynamicDataNode:
        """The traced function's value of a node's output: a batch if the node depends on one."""
        if self._of_batch:
            return DynamicDataNode(node, index, self, None)
        if node.op.random:
            return DynamicDataNode(node, index, self, None if self._of_batch is None else Draw.ONE)
        draws = [x._draw if isinstance(x, DynamicDataNode) else Draw.NONE for x in dependencies(node)]
        of_singles = [d for d in draws if d is not None]
        if len(of_singles) == len(draws):
            return DynamicDataNode(node, index, self, max(of_singles, default=Draw.NONE))
        if Draw.ONE in of_singles and self.N != 1:
            i = draws.index(Draw.ONE)
            raise for_several(
                node.op.name,
                f"input {i}" if i in (node.op.joins or range(len(node.inputs))) else "the condition",
                self.N,
            )
        return DynamicDataNode(node, index, self, None)

    def call(
        self,
        name: str,
        function: Callable[..., Any],
        inputs: Iterable[Any],
        arguments: Mapping[str, Any],
        key: Any = None,
        batch_size: int | None = None,
    ) -> Any:
        """Calls a function of DataNodes whose random operators use a key. They are numbered anew, so that each call
        draws the same numbers as alone.
        """
        if key is not None and not isinstance(key, (KeyOf, KeysOf)):
            raise ArgumentError(
                f"key must be one of the keys that the function was called with, or be derived from one, got {type(key).__name__}"
            )
        inputs = list(inputs)
        values = [(f"input {i}", x) for i, x in enumerate(inputs)] + [
            (f"argument {n}", x) for n, x in arguments.items()
        ]
        values = [(what, x) for what, tree in values for x in flat(tree) if isinstance(x, DynamicDataNode)]
        of_batch = batch_size is not None or any(x._draw is None for _, x in values)
        if key is not None and key.count is not None and not of_batch:
            if self.N is None:
                raise SizeAsked(name, key.count)
            of_batch = True
        if (
            of_batch
            and self.N != 1
            and (one := next((what for what, x in values if x._draw is Draw.ONE), None)) is not None
        ):
            raise for_several(name, one, self.N)
        scope = current_scope()
        assert scope is not None
        before, outer, self._of_batch = len(scope.nodes), self._of_batch, of_batch
        try:
            with replaying_draws(self._draws):
                result = function(*inputs, **arguments)
        finally:
            self._of_batch = outer
        for node in scope.nodes[before:]:
            if node.op.random and node.id not in self.keyed:
                if key is None:
                    raise NeedsKey(
                        f"{node.op.name}: it draws random numbers: pass key=jax.random.key(...) or a key for each sample, "
                        "or rng=jaxdali.dynamic.random.RNG(seed)"
                    )
                if node.op.of_batch and not of_batch and self.N not in (None, 1):
                    raise ArgumentError(f"{node.op.name}: it draws for a whole batch: pass batch_size=len(images)")
                of_node = key if of_batch else dataclasses.replace(key, single=True)
                if of_node not in self.keys:
                    self.keys.append(of_node)
                self.keyed[node.id] = self.keys.index(of_node)
        return result

    def of(self, function: Callable[..., Any], nodes: list[DynamicDataNode]) -> tuple[list[DynamicDataNode], Any]:
        """The result of a function for these values: nodes, and the tree whose leaves they are."""
        before, _local.trace = current_trace(), self
        try:
            result = function(self, nodes, self._given)
        finally:
            _local.trace = before
        leaves, tree = jax.tree.flatten(result, is_leaf=lambda x: isinstance(x, DataNode))
        for x in leaves:
            if not isinstance(x, DynamicDataNode):
                raise TypeError(f"a function of values must return batches, got {type(x).__name__}")
        return leaves, tree


class Graphed:
    """The graph of a function of values.

    Args:
      function: gets a `Trace`, a `DynamicDataNode` for each input, and the keys; returns a pytree of such.
      keys: as of `Trace`; N: samples.
      draws: of each input, as of `DynamicDataNode`.
      inputs: makes a node for each input.

    Attributes:
      graph; tree: of the outputs.
      inputs: the numbers of the inputs' nodes; None: of those that no output needs.
      keys: of random operators, each a `KeyOf`; keyed: their places, by the numbers of random nodes.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        keys: Sequence[int | None],
        N: int,
        draws: Sequence[Draw | None],
        inputs: Callable[[], list[DynamicDataNode]],
    ):
        trace = Trace(keys, N)
        scope = Scope(None, [], handle=trace.value)
        with building(scope):
            nodes = inputs()
            leaves, self.tree = trace.of(function, [x._with_draw(d) for x, d in zip(nodes, draws, strict=True)])
        self._draws = [x._draw for x in leaves]
        self.graph = Graph.collect(scope.nodes, leaves)
        copies = self.graph.copies
        kept = {n.id for n in self.graph.nodes}
        sources = [next(iter(x.node.inputs), x).node for x in nodes]  # before they are moved to an accelerator
        self.inputs = [copies[n.id].id if copies[n.id].id in kept else None for n in sources]
        self.keys = trace.keys
        self.keyed = {copies[n].id: key for n, key in trace.keyed.items() if n in copies}

    def results(self, outputs: Iterable[Batch]) -> Any:
        """The outputs as the function gives them: batches and single values."""
        return jax.tree.unflatten(
            self.tree, [b if d is None else single(b, d) for b, d in zip(outputs, self._draws, strict=True)]
        )

    def executor(self, N: int, device: jax.Device | TargetDevice) -> Executor:
        """Runs the graph for N samples, with the native threads that all functions of values share."""
        return Executor.of_values(
            self.graph,
            device,
            RunOptions(batch_size=N, num_threads=_threads.get_num_threads(), pool_id=_threads.SHARED),
        )


@dataclasses.dataclass
class _Bound:
    """An executor, and what its operators are bound to that depends on the values of batches.

    Attributes:
      types: of what eager functions return, and the first shapes and samples of `Executor.asked`: what is known of
        them.
    """

    executor: Executor
    types: dict[Any, Any] = dataclasses.field(default_factory=dict)

    def fits(self, types: Mapping[Any, Any]) -> bool:
        """Whether they are those of the executor's batches."""
        return all(self.types.get(place, x) == x for place, x in types.items())

    def learns(self, types: dict[Any, Any], batch: InFlightBatch) -> bool:
        """Adds what a batch shows to `types`, and to its own if they fit. Returns whether they do."""
        types |= {
            step: [(s.dtype, s.ndim, s.layout) for s in results.specs] for step, results in (batch.called or {}).items()
        }
        shapes, samples = self.executor.asked(batch)
        types |= shapes
        types |= {("images", ref): registered.kind_of(x) for ref, x in samples.items()}
        if not self.fits(types):
            return False
        self.types |= types
        return True


class Engine:
    """A function of batches.

    Args:
      function, keys, N, draws: as of `Graphed`.
      specs: of the inputs.
      device: where it runs.
      firsts: shape of the first sample of each ragged input, by which some operators are bound; None: of dense ones.
    """

    KEPT = 4  # executors that wait for the next call
    KEPT_BY_TYPES = 8  # where the types of results depend on values

    def __init__(
        self,
        function: Callable[..., Any],
        specs: Sequence[Spec],
        keys: Sequence[int | None],
        N: int,
        draws: Sequence[Draw | None],
        device: jax.Device,
        firsts: Sequence[tuple[int, ...] | None],
    ):
        self._N, self._firsts = N, firsts
        self._asked: set[int] = set()
        self._warnings, self._warnings_of_graph = (
            DeferredWarnings(),
            DeferredWarnings(),
        )  # of the executors, which find the same
        self._device = device

        def inputs() -> list[DynamicDataNode]:
            given = [
                add(Given(spec=s, number=i, first=f, asked=self._asked))
                for i, (s, f) in enumerate(zip(specs, firsts, strict=True))
            ]
            return [x.gpu() for x in given] if Shards.single(device).accelerator else given

        with self._warnings_of_graph:
            self._graphed = Graphed(function, keys, N, draws, inputs)
        # An executor makes one batch at a time: each thread that calls has one.
        self._idle: collections.deque[_Bound] = collections.deque()

    def __call__(self, batches: Sequence[Batch], keys: Sequence[Any], firsts: Sequence[tuple[int, ...] | None]) -> Any:
        """The outputs, see `Graphed.results`.

        Args:
          firsts: as of the constructor, of these batches.

        Raises:
          OtherFirsts: operators are bound by first samples of other shapes.
        """
        self._check(firsts)
        drawn = (
            [numbers_of(np.asarray(k.words(keys, self._N))) for k in self._graphed.keys] if self._graphed.keyed else []
        )
        # Each function is called once, also if another executor makes the batch again.
        called: dict[int, EagerResults] = {}
        types: dict[Any, Any] = {}
        while True:
            bound = self._fitting(types)
            executor = bound.executor
            batch = None
            try:
                with own_settings():
                    with self._warnings:
                        executor.build()
                    self._warnings_of_graph.warn()
                    self._warnings.warn(lambda value: firsts[value.number])
                    # Again: what operators ask for is known when the first executor is built, maybe by another thread.
                    self._check(firsts)
                    batch = self._in_flight(
                        executor, batches, {step: drawn[k] for step, k in self._graphed.keyed.items()}, called
                    )
                    result = executor.check(executor.launch(batch))
                if not bound.learns(types, batch):
                    continue
                for _, reason in result.replaced:
                    warn(f"a sample that failed was replaced: {reason}")
            except Exception as e:
                if batch is not None and not bound.learns(types, batch):
                    continue
                if isinstance(e, OperatorError):
                    name_line(e, user_line())
                raise
            finally:
                self._keep(bound)
            return self._graphed.results(map(Batch._of, result.outputs))

    def _check(self, firsts: Sequence[tuple[int, ...] | None]):
        if any(firsts[i] != self._firsts[i] for i in self._asked.copy()):
            raise OtherFirsts

    def _fitting(self, types: Mapping[Any, Any]) -> _Bound:
        """An idle executor whose batches had these types, the one used last; a new one if there is none."""
        for bound in reversed(self._idle.copy()):
            if bound.fits(types):
                with contextlib.suppress(ValueError):  # another thread took it
                    self._idle.remove(bound)
                    bound.executor.resources.num_threads = _threads.get_num_threads()
                    return bound
        return _Bound(self._graphed.executor(self._N, self._device))

    def _keep(self, bound: _Bound):
        self._idle.append(bound)
        while len(self._idle) > (self.KEPT_BY_TYPES if bound.types else self.KEPT):
            with contextlib.suppress(IndexError):
                self._idle.popleft().executor.close()

    def _in_flight(
        self,
        executor: Executor,
        batches: Sequence[Batch],
        drawn: Mapping[int, tuple[np.ndarray, np.ndarray]],
        called: dict[int, EagerResults],
    ) -> InFlightBatch:
        """The batch that is to be made."""
        nowhere = [""] * self._N
        values: dict[int, tuple[Any, ...]] = {}
        for node, given in zip(self._graphed.inputs, batches, strict=True):
            assert node is not None  # sources stay
            values[node] = (given._on_host,)
        return executor.given(
            values, SampleIds(executor.resources.zeros, np.arange(self._N), names=nowhere, paths=nowhere), drawn, called
        )


def name_line(e: OperatorError, line: str):
    """Makes an error name the line of this call, instead of the first call with these types."""
    e.args = (located_message(e.operator, line, e.reason),)
    e.where = line
