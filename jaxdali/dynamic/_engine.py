"""Compiled functions of values: a graph of operators that is traced and bound once, then called with batches."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from .._batch.batch import EagerResults, InFlightBatch
from .._batch.executor import Executor
from .._batch.host_input import HostInput
from .._core.building import (
    DeferredWarnings,
    Scope,
    add,
    building,
    current_scope,
    reading_images,
    replaying_draws,
    user_line,
    warn,
)
from .._core.calls import flat
from .._core.errors import ArgumentError, OperatorError, located_message
from .._core.ffi import TargetDevice
from .._core.graph import DataNode, Graph, Node, dependencies
from .._core.jax_settings import own_settings
from .._core.tracebacks import boundaries
from .._core.values import Spec
from .._data.source import SampleIds
from .._plan.run_options import RunOptions
from .._program.sharding import Shards
from ..fn._decode import registered
from . import _threads
from ._batch import Batch, Draw, apart_from, is_committed, uncommitted
from ._keys import TracedKey, TracedKeys, key_halves
from ._singles import ambiguous_draw, single

# `trace`: the `TraceState` of the function of values that this thread traces.
_local = threading.local()


# What is folded into keys for random nodes outside of calls counts from the first, far from numbers that users fold in.
# The second is folded in before a seed.
_FIRST_OUTSIDE, _OF_SEEDS = 1 << 31, (1 << 31) - 1


def current_trace() -> TraceState | None:
    """The trace of this thread, to which functions of values add operators. None: they are evaluated at once."""
    return _local.__dict__.get("trace")


class BatchSizeRequest(Exception):
    """Raised while a program is traced: a function asks for `size` samples, and the trace has another number, or none
    yet.

    Attributes:
      name: of the function.
      size: the number of samples that it asks for.
    """

    def __init__(self, name: str, size: int):
        super().__init__(name, size)
        self.name, self.size = name, size


class FirstShapesChanged(Exception):
    """The compiled function is bound to the shapes of first samples, and those of this call differ."""


@boundaries
class DynamicDataNode(DataNode):
    """A value inside a traced function of values: a batch, or a single value. See Note [One key]."""

    __slots__ = ("_draw", "_trace")

    def __init__(self, node: Node, index: int, trace: TraceState, draw: Draw | None):
        """Makes the value of output `index` of a node.

        Args:
          draw: how a single value depends on random numbers; None: the value is a batch.
        """
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
    def slice(self) -> _NodeSlices:
        """Takes a part of each sample, see `Batch.slice`."""
        return _NodeSlices(self)

    def _with_draw(self, draw: Draw | None) -> DynamicDataNode:
        return DynamicDataNode(self.node, self.index, self._trace, draw)


class _NodeSlices:
    """Takes a part of each sample of a value, as `Slices` does of a batch."""

    def __init__(self, value: DynamicDataNode):
        self._value = value

    def __getitem__(self, key: Any) -> DynamicDataNode:
        return self._value[key]


# Note [One key]
# One key draws one number, N keys or `batch_size=N` draw N numbers, and a function of N samples draws for each of them.
# In a traced function every value has N samples, so each `DynamicDataNode` records whether it stands for a batch or for
# a single value, and whether that value was drawn. All samples of a single drawn value use the key of sample 0, so that
# the value equals that of the same call outside of the trace. Combining it with a batch is an error: the user may have
# meant one number for each sample, or one for all.


@dataclasses.dataclass
class _Draws:
    """The draws of a function of `jit` outside of calls.

    Attributes:
      keys: with which it is called.
      number: of its draws so far that have no seed.
    """

    keys: Sequence[TracedKey]
    number: int = 0


class TraceState:
    """The state while a function of values is traced.

    Attributes:
      N: number of samples of the values; None: not known yet, as no value has one.
      keys: the keys that random operators use.
      key_of_node: index into `keys` for the id of each random node.
    """

    def __init__(self, keys: Sequence[int | None], N: int):
        """`keys`: for each key that the function is called with, the number of keys in it; None: it is a single key."""
        self._input_keys = [TracedKey(i, count) for i, count in enumerate(keys)]
        self._draws = _Draws(self._input_keys)
        self.keys: list[TracedKey | TracedKeys] = []
        self.key_of_node: dict[int, int] = {}
        self.N: int | None = N
        # Ids of random nodes by their position in a call. Each call draws the numbers of these nodes, so that equal
        # calls draw equal numbers.
        self._random_nodes: list[int] = []
        # Whether the function that is being called returns batches; None: no function is being called.
        self._returns_batch: bool | None = None

    def value(self, node: Node, index: int) -> DynamicDataNode:
        """Wraps output `index` of a node: as a batch if the node depends on one, otherwise as a single value."""
        if self._returns_batch:
            return DynamicDataNode(node, index, self, draw=None)
        # A number that is drawn in a call without batches is single. Outside of all calls it counts as a batch.
        if node.op.random:
            if self._returns_batch is None:
                self._draw_outside_calls(node)
            return DynamicDataNode(node, index, self, None if self._returns_batch is None else Draw.ONE)
        draws = [x._draw if isinstance(x, DynamicDataNode) else Draw.NONE for x in dependencies(node)]
        single_draws = [d for d in draws if d is not None]
        # All operands are single values, so the result is one, too.
        if len(single_draws) == len(draws):
            return DynamicDataNode(node, index, self, max(single_draws, default=Draw.NONE))
        # A batch and a drawn value meet. The user may mean one number for each sample, or one for all, see Note
        # [One key].
        if Draw.ONE in single_draws and self.N != 1:
            i = draws.index(Draw.ONE)
            raise ambiguous_draw(
                node.op.name,
                # `draws` are those of the inputs, and of the conditions of the branches that the node is in. An operator
                # that joins branches has its condition among the inputs.
                f"input {i}" if i in (node.op.joins or range(len(node.inputs))) else "the condition",
                self.N,
            )
        return DynamicDataNode(node, index, self, draw=None)

    def call(
        self,
        name: str,
        function: Callable[..., Any],
        inputs: Iterable[Any],
        arguments: Mapping[str, Any],
        key: Any = None,
        batch_size: int | None = None,
        reads_images: bool = True,
    ) -> Any:
        """Calls a function of DataNodes whose random operators use `key`. Returns its result.

        The random operators of each call are numbered from 0, so that the call draws the same numbers inside and
        outside of a trace.

        Args:
          name: of the function, for messages.
          function: takes and returns DataNodes.
          inputs, arguments: of the function: values (`DynamicDataNode`), and static ones.
          key: a `TracedKey` or `TracedKeys`; None: the function must not draw.
          batch_size: as the user passes it; the result is then a batch.
          reads_images: see `building.reads_images`.

        Raises:
          BatchSizeRequest: the call has another number of samples than the trace knows.
          ArgumentError: the function draws, and has no key.
        """
        if key is not None and not isinstance(key, (TracedKey, TracedKeys)):
            raise ArgumentError(
                f"key must be one of the keys that the function was called with, or be derived from one, got {type(key).__name__}"
            )
        inputs = list(inputs)
        # (name for messages, value) of all values among the inputs and arguments.
        values = [(f"input {i}", x) for i, x in enumerate(inputs)] + [
            (f"argument {n}", x) for n, x in arguments.items()
        ]
        values = [(label, x) for label, tree in values for x in flat(tree) if isinstance(x, DynamicDataNode)]
        returns_batch = batch_size is not None or any(x._draw is None for _, x in values)
        # N keys draw N numbers, even if no value is a batch.
        if key is not None and key.count is not None and not returns_batch:
            if self.N is None:
                raise BatchSizeRequest(name, key.count)
            returns_batch = True
        if (
            returns_batch
            and self.N != 1
            and (drawn_label := next((label for label, x in values if x._draw is Draw.ONE), None)) is not None
        ):
            raise ambiguous_draw(name, drawn_label, self.N)
        scope = current_scope()
        assert scope is not None
        num_nodes, outer_returns_batch, self._returns_batch = len(scope.nodes), self._returns_batch, returns_batch
        try:
            with replaying_draws(self._random_nodes), reading_images(reads_images):
                result = function(*inputs, **arguments)
        finally:
            self._returns_batch = outer_returns_batch
        for node in scope.nodes[num_nodes:]:
            if node.op.random and node.id not in self.key_of_node:
                if key is None:
                    raise ArgumentError(
                        f"{node.op.name}: it draws random numbers: pass key=jax.random.key(...) or a key for each sample, "
                        "or rng=jaxdali.dynamic.random.RNG(seed)"
                    )
                if node.op.of_batch and not returns_batch and self.N not in (None, 1):
                    raise ArgumentError(f"{node.op.name}: it draws for a whole batch: pass batch_size=len(images)")
                # All samples of a single value use the key of sample 0.
                node_key = key if returns_batch else dataclasses.replace(key, single=True)
                if node_key not in self.keys:
                    self.keys.append(node_key)
                self.key_of_node[node.id] = self.keys.index(node_key)
        return result

    @contextlib.contextmanager
    def inlined(self, keys: Sequence[TracedKey]):
        """Runs the function of another `jit`, which was called with these keys, as a part of this trace."""
        previous, self._draws = self._draws, _Draws(keys)
        try:
            yield
        finally:
            self._draws = previous

    def _draw_outside_calls(self, node: Node) -> None:
        """Gives a random node that the user's function makes by `fn` or `auto_aug` a key of its own, which is derived
        from the key of the function. Nodes with equal seeds get equal keys.

        Raises:
          ArgumentError: the function has no key, or several.
          BatchSizeRequest: the number of samples is not known, and is that of the keys.
        """
        if node.id in self.key_of_node:  # another output of the node
            return
        keys, seed = self._draws.keys, getattr(node.op, "seed", -1)
        if not keys and seed >= 0:
            return  # as without `jit`, the seed alone determines the numbers
        if len(keys) != 1:
            reason = f"has {len(keys)} keys, and this draws from a single one" if keys else "needs a key"
            raise ArgumentError(
                f"{node.op.name}: it draws random numbers, and the function of jit {reason}: call it with one, such as jax.random.key(0)"
            )
        (key,) = keys
        if key.count is not None and self.N is None:
            raise BatchSizeRequest(node.op.name, key.count)
        if seed >= 0:
            key = key.derived("fold_in", _OF_SEEDS, key.count).derived("fold_in", seed % 2**32, key.count)
        else:
            key = key.derived("fold_in", _FIRST_OUTSIDE + self._draws.number, key.count)
            self._draws.number += 1
        if key not in self.keys:
            self.keys.append(key)
        self.key_of_node[node.id] = self.keys.index(key)
        # The numbers depend on the key alone, as those of a call with one random node.
        self._random_nodes = self._random_nodes or [node.random_index]
        node.random_index = self._random_nodes[0]

    def run(self, function: Callable[..., Any], nodes: list[DynamicDataNode]) -> tuple[list[DynamicDataNode], Any]:
        """Calls `function` with the nodes and the keys. Returns the nodes of its result, and their pytree."""
        outer_trace, _local.trace = current_trace(), self
        try:
            result = function(self, nodes, self._input_keys)
        finally:
            _local.trace = outer_trace
        return jax.tree.flatten(result, is_leaf=lambda x: isinstance(x, DataNode))


class FunctionGraph:
    """The graph of a function of values.

    Args:
      function: takes a `TraceState`, a `DynamicDataNode` for each input, and the keys; returns a pytree of
        `DynamicDataNode`s.
      keys: for each key that the function is called with, the number of keys in it; None: it is a single key.
      N: number of samples.
      draws: how each input depends on random numbers, if it is a single value; None: it is a batch.
      inputs: makes a node for each input.

    Attributes:
      graph: of the operators that the outputs need.
      tree: the structure of the outputs.
      inputs: id of the node of each input; None: no output needs it.
      keys: the keys that random operators use.
      key_of_node: index into `keys` for the id of each random node of `graph`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        keys: Sequence[int | None],
        N: int,
        draws: Sequence[Draw | None],
        inputs: Callable[[], list[DynamicDataNode]],
    ):
        trace = TraceState(keys, N)
        scope = Scope(owner=None, nodes=[], handle=trace.value, reads_images=True)
        with building(scope):
            nodes = inputs()
            leaves, self.tree = trace.run(function, [x._with_draw(d) for x, d in zip(nodes, draws, strict=True)])
        self._draws = [x._draw for x in leaves]
        self.graph = Graph.collect(scope.nodes, leaves)
        copies = self.graph.copies  # `collect` copies the nodes that are needed, and gives them other ids
        # For an accelerator `nodes` are the results of `.gpu()`, and their inputs are the sources. Sources have no
        # input.
        sources = [next(iter(x.node.inputs), x).node for x in nodes]
        self.inputs = [copies[n.id].id if n.id in copies else None for n in sources]
        self.keys = trace.keys
        self.key_of_node = {copies[n].id: key for n, key in trace.key_of_node.items() if n in copies}

    def results(self, outputs: Iterable[Batch]) -> Any:
        """The outputs in the structure that the function returned: batches and single values."""
        return jax.tree.unflatten(
            self.tree, [b if d is None else single(b, d) for b, d in zip(outputs, self._draws, strict=True)]
        )

    def executor(self, N: int, device: jax.Device | TargetDevice) -> Executor:
        """Makes an executor of the graph for N samples.

        It uses the native threads that all functions of values share.
        """
        return Executor.of_values(
            self.graph,
            device,
            RunOptions(batch_size=N, num_threads=_threads.get_num_threads(), pool_id=_threads.SHARED),
        )

    def batch(
        self,
        executor: Executor,
        inputs: Sequence[Any],
        random_keys: Sequence[Any],
        eager_results: dict[int, EagerResults] | None = None,
    ) -> InFlightBatch:
        """Makes a batch that an executor of the graph is to compute.

        Args:
          executor: as the method `executor` makes it.
          inputs: the values of the inputs, as `Executor.batch_of` takes them; None: the host does not read the input.
          random_keys: for each of `keys`, two ``i64[N]`` that key the random numbers of the samples.
          eager_results: the results of eager functions that were called for this batch already, by step; None: they are
            not kept.
        """
        values = zip(self.inputs, inputs, strict=True)
        zeros = executor.resources.zeros
        return executor.batch_of(
            {node: (x,) for node, x in values if node is not None and x is not None},
            SampleIds.unnamed(epoch=zeros, position=np.arange(len(zeros))),
            {node: tuple(random_keys[k]) for node, k in self.key_of_node.items()},
            eager_results,
        )


@dataclasses.dataclass
class _BoundExecutor:
    """An executor, and the facts about values of batches that its operators are bound to.

    A batch with other facts needs another executor.

    Attributes:
      types: the facts that batches have shown so far: the types that eager functions return (by step), and the first
        shapes and samples of `Executor.binding_facts`.
    """

    executor: Executor
    types: dict[Any, Any] = dataclasses.field(default_factory=dict)

    def fits(self, types: Mapping[Any, Any]) -> bool:
        """Whether none of `types` contradicts the executor's."""
        return all(self.types.get(place, x) == x for place, x in types.items())

    def record(self, types: dict[Any, Any], batch: InFlightBatch) -> bool:
        """Adds the facts that a batch shows to `types`, and to the executor's if they fit. Returns whether they fit."""
        types |= {
            step: [(s.dtype, s.ndim, s.layout) for s in results.specs]
            for step, results in (batch.eager_results or {}).items()
        }
        shapes, samples_of_ref = self.executor.binding_facts(batch)
        types |= shapes
        # The dtype and rank to which registered decoders decode the files in a value.
        types |= {("images", ref): registered.kind_of(samples) for ref, samples in samples_of_ref.items()}
        if not self.fits(types):
            return False
        self.types |= types
        return True


class Engine:
    """A compiled function of batches. Threads may call it at the same time.

    Args:
      function: takes a `TraceState`, a `DynamicDataNode` for each input, and the keys; returns a pytree of
        `DynamicDataNode`s, see `FunctionGraph`.
      specs: of the inputs.
      keys: for each key that the function is called with, the number of keys in it; None: it is a single key.
      N: number of samples.
      draws: how each input depends on random numbers, if it is a single value; None: it is a batch.
      device: where the function runs.
      first_shapes: shape of the first sample of each ragged input, by which some operators are bound; None for a dense
        input.
    """

    MAX_IDLE = 4  # executors that wait for the next call
    MAX_IDLE_BY_TYPES = 8  # the same where the types of results depend on values

    def __init__(
        self,
        function: Callable[..., Any],
        specs: Sequence[Spec],
        keys: Sequence[int | None],
        N: int,
        draws: Sequence[Draw | None],
        device: jax.Device,
        first_shapes: Sequence[tuple[int, ...] | None],
    ):
        self._N, self._first_shapes = N, first_shapes
        # The inputs by whose first shapes operators are bound. Nodes refer to this set, and not to the engine.
        self._shape_reads = shape_reads = set[int]()
        # Warnings while an executor is built, and while the graph is made. They are given in each call.
        self._warnings, self._graph_warnings = DeferredWarnings(), DeferredWarnings()
        self._device = device

        def first_shape(number: int, output: int) -> tuple[int, ...] | None:
            """The first shape of an input, by which an operator is bound."""
            shape_reads.add(number)
            return first_shapes[number]

        def inputs() -> list[DynamicDataNode]:
            """Adds a node for each input to the graph. For an accelerator, `.gpu()` moves the inputs there."""
            nodes = [
                add(HostInput(specs=(s,), of_values=True, number=i, first_shape=functools.partial(first_shape, i)))
                for i, s in enumerate(specs)
            ]
            return [x.gpu() for x in nodes] if Shards.single(device).accelerator else nodes

        with self._graph_warnings:
            self._function_graph = FunctionGraph(function, keys, N, draws, inputs)
        # An executor makes one batch at a time, so each calling thread takes one. The executor that was used last is at
        # the right end.
        self._idle: collections.deque[_BoundExecutor] = collections.deque()

    def __call__(
        self, batches: Sequence[Batch], keys: Sequence[Any], first_shapes: Sequence[tuple[int, ...] | None]
    ) -> Any:
        """Returns the outputs in the structure that the function returns: batches and single values.

        Args:
          batches: the inputs, of N samples each.
          keys: the JAX keys, or arrays of keys, in the order of the constructor's `keys`.
          first_shapes: as in the constructor, of these batches.

        Raises:
          FirstShapesChanged: operators are bound by first samples of other shapes.
        """
        self._check_first_shapes(first_shapes)
        random_keys = (
            [key_halves(np.asarray(k.words(keys, self._N))) for k in self._function_graph.keys]
            if self._function_graph.key_of_node
            else []
        )
        # Each eager function is called once per call, even if a second executor has to make the batch again.
        eager_results: dict[int, EagerResults] = {}
        types: dict[Any, Any] = {}
        while True:
            bound = self._take_executor(types)
            executor = bound.executor
            batch = None
            try:
                with own_settings():
                    with self._warnings:
                        executor.build()
                    self._graph_warnings.warn()
                    # `value` is the `HostInput` whose first shape a warning depends on.
                    self._warnings.warn(lambda value: first_shapes[value.number])
                    # Checked again: only `build` tells which first shapes operators read, maybe in another thread.
                    self._check_first_shapes(first_shapes)
                    batch = self._function_graph.batch(
                        executor, [b._on_host for b in batches], random_keys, eager_results
                    )
                    result = executor.check(executor.launch(batch))
                    outputs = map(Batch._of, result.outputs)
                    # Like an array of NumPy, what comes from the host may be used on any device. Programs commit their
                    # results to their device.
                    if not any(map(is_committed, batches)):
                        outputs = map(uncommitted, outputs)
                    if lenders := [b for b in batches if b.is_borrowed]:
                        outputs = map(functools.partial(apart_from, lenders), outputs)
                    results = self._function_graph.results(outputs)
                # The batch showed types that this executor is not bound to: make it again with one that fits.
                if not bound.record(types, batch):
                    continue
                for _, reason in result.replaced:
                    warn(f"a sample that failed was replaced: {reason}")
            except Exception as e:
                if batch is not None and not bound.record(types, batch):
                    continue
                if isinstance(e, OperatorError):
                    name_line(e, user_line())
                raise
            finally:
                self._return_executor(bound)
            return results

    def _check_first_shapes(self, first_shapes: Sequence[tuple[int, ...] | None]):
        """Raises FirstShapesChanged if operators have read a first shape that differs in this call."""
        if any(first_shapes[i] != self._first_shapes[i] for i in self._shape_reads.copy()):
            raise FirstShapesChanged

    def _take_executor(self, types: Mapping[Any, Any]) -> _BoundExecutor:
        """Takes the last used idle executor whose batches had these types; makes a new one if there is none."""
        for bound in reversed(self._idle.copy()):
            if bound.fits(types):
                with contextlib.suppress(ValueError):  # another thread took it
                    self._idle.remove(bound)
                    # The user may have set another number meanwhile.
                    bound.executor.resources.num_threads = _threads.get_num_threads()
                    return bound
        return _BoundExecutor(self._function_graph.executor(self._N, self._device))

    def _return_executor(self, bound: _BoundExecutor):
        """Makes an executor available for the next call, and closes those that were idle longest if there are too many."""
        self._idle.append(bound)
        while len(self._idle) > (self.MAX_IDLE_BY_TYPES if bound.types else self.MAX_IDLE):
            with contextlib.suppress(IndexError):
                self._idle.popleft().executor.close()


def name_line(e: OperatorError, line: str):
    """Replaces the line in an error, which is that of the first call with these types, by the line of this call."""
    e.args = (located_message(e.operator, line, e.reason),)
    e.where = line
