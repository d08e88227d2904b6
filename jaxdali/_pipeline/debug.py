"""`DebugSession`: runs a pipeline with ``debug=True``."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from .. import _cpu
from .._batch.batch import BadSample, FinishedBatch, InFlightBatch, SourceError
from .._batch.executor import Executor
from .._batch.host_input import HostInput, InputSource
from .._batch.reading import joined_ids
from .._core.graph import DataNode, Graph, Node
from .._core.jax_settings import own_settings
from .._core.operator import EagerOperator, NativeOperator, SourceOperator
from .._core.ragged import DeviceSamples, Packed, is_on_accelerator
from .._core.values import Spec, Value
from .._data.source import SampleIds, Source
from .._runner.fork_guard import ExclusiveUse
from ..backend import TensorListCPU, TensorListGPU
from . import argument_checks
from .definition import Definition
from .pipeline_settings import PipelineSettings
from .schedule import tensor_lists
from .session import FED_OPERATORS, ApiUse

# Note [Debug]
#
# With ``debug=True`` the definition runs once for each batch, and each node is evaluated when the definition makes it.
# The outputs are still those of the compiled pipeline:
#
# * When the definition has returned, its whole graph runs, as that of a compiled pipeline would, for the samples that
#   were read. The values shown before may differ from its values by one level of 255, because nothing was fused.
# * Each node is evaluated by a graph of its own. In that graph, inputs (`HostInput`) replace the nodes that were
#   evaluated before. The graph is collected from all nodes made so far. So its nodes have the same numbers as in the
#   whole graph, and random numbers depend on these.
# * User functions are called once: the whole graph reuses their results, unless these are on an accelerator.
# * In the branch of an `if` on nodes, and for nodes that depend on it, values are computed on demand, because a branch
#   may have no samples.
# * Random numbers belong to samples, which the first source identifies. In the first batch, nodes may come before the
#   first source, so their evaluation waits for it. If a value is needed earlier, sample ids are assumed as in a
#   pipeline without sources. If the first source then gives other ids, the definition is called again.


_SAMPLES_SHOWN = 4  # of a value that is printed


class _WrongSampleIds(BaseException):
    """Raised when the sample ids assumed for the batch are not those of its first source: the definition must be called
    again.
    """


@dataclasses.dataclass
class _OpenSource:
    """A source, with an executor of that source alone, which reads it."""

    node: Node
    executor: Executor
    state: dict[str, Any]
    batch: InFlightBatch | None = None  # the current one

    @property
    def source(self) -> Source:
        return self.executor.sources[self.node.id]


@dataclasses.dataclass
class _NodeValue:
    """The outputs of a node for the current batch.

    Attributes:
      outputs: as tensor lists.
      specs: of the outputs.
      data: the outputs for graphs of later nodes; None: these graphs compute them again.
      names: of the samples of each output, for messages.
      paths: of the files that the samples came from.
      from_user_function: whether a user function returned the outputs.
    """

    outputs: tuple[TensorListCPU | TensorListGPU, ...]
    specs: tuple[Spec, ...]
    data: tuple[Any, ...] | None
    names: tuple[Sequence[str], ...]
    paths: Sequence[str]
    from_user_function: bool


class Evaluation:
    """Evaluates the nodes for one batch, while the definition runs: an `Evaluator`.

    Args:
      session: holds the sources, which outlive the batch.
    """

    def __init__(self, session: DebugSession):
        self._session = session
        self._nodes: list[Node] = []  # the definition adds to it
        self._values: dict[int, _NodeValue] = {}  # of nodes that are not sources, by id
        self._sources: dict[int, _OpenSource] = {}  # by the ids of their nodes
        self._num_calls: collections.Counter[str] = collections.Counter()  # of source operators, by name
        self._deferred: list[Node] = []  # nodes that wait for the first source
        self._conditional: set[int] = set()  # ids of nodes in branches, and of nodes that depend on these
        # The ids that were used before the first source was read; None: none were.
        self._assumed_ids: SampleIds | None = None

    @property
    def nodes(self) -> list[Node]:
        """The nodes made so far."""
        return self._nodes

    def evaluate(self, node: Node) -> None:
        """Takes a node that the definition has just made. A source is opened at once. A node in a branch, or one that
        depends on such a node, is left to `value`. All others are evaluated when the ids of the samples are known, see
        Note [Debug].
        """
        if isinstance(node.op, SourceOperator):
            self._open(node)
        elif node.branch is not None or any(x.node.id in self._conditional for x in node.inputs):
            self._conditional.add(node.id)
        else:
            self._deferred.append(node)
        # The first source has been read, or none will come.
        if self._session.ids is not None or self._session.complete:
            deferred, self._deferred = self._deferred, []
            for deferred_node in deferred:
                self._evaluate(deferred_node)

    def text(self, x: DataNode) -> str:
        """The text of a node's value, for `print` in the definition: its type and shape, and its first samples."""
        value = self.value(x)
        if isinstance(value, list):  # metadata
            return repr(value)
        host = value.as_cpu()
        arrays = [np.asarray(host.at(i)) for i in range(min(len(host), _SAMPLES_SHOWN))]
        samples = [
            np.array2string(x.reshape(-1) if x.ndim else x, threshold=8, edgeitems=3, precision=5) for x in arrays
        ]
        ellipsis = [f"... and {len(host) - _SAMPLES_SHOWN} more"] if len(host) > _SAMPLES_SHOWN else []
        return "\n".join((repr(value), *samples, *ellipsis))

    def value(self, x: DataNode) -> Any:
        """The value of a node for this batch: a tensor list, or a list of objects if it is metadata. Reads or computes it
        if that was not done yet.
        """
        if x.node.id in self._sources:
            return self._read_value(x)
        if x.node.id not in self._values:
            self._evaluate(x.node)
        return self._values[x.node.id].outputs[x.index]

    def _open(self, node: Node):
        """Opens the source of a node. Raises `_WrongSampleIds` if it is the first one and other ids were assumed."""
        is_first_source = self._session.ids is None
        index = self._num_calls[node.op.name]
        self._num_calls[node.op.name] += 1
        self._sources[node.id] = self._session.open(node, index)
        if is_first_source and self._assumed_ids is not None:
            ids = self._session.sample_ids()
            if not (
                np.array_equal(ids.epoch, self._assumed_ids.epoch)
                and np.array_equal(ids.position, self._assumed_ids.position)
            ):
                raise _WrongSampleIds

    def _sample_ids(self) -> SampleIds:
        """The ids of the batch's samples, which are remembered as assumed as long as a first source may still come."""
        if self._session.ids is None and not self._session.complete:
            self._assumed_ids = self._session.sample_ids()
        return self._session.sample_ids()

    def _read_value(self, x: DataNode) -> Any:
        """The value of a source, as a tensor list."""
        open_source = self._sources[x.node.id]
        batch = open_source.batch
        assert batch is not None and batch.ids is not None
        with own_settings():
            finished = open_source.executor.check(batch)
        return tensor_lists(dataclasses.replace(finished, ids=self._session.sample_ids()))[x.index]

    def _evaluate(self, node: Node):
        """Computes the outputs of one node, by a graph of its own, and keeps them for the batch."""
        outputs = [DataNode(node, i) for i in range(node.op.num_outputs)]
        # A function that returns nothing is called, as it may print: a node without outputs is a sink of the graph.
        graph = Graph.collect(self._nodes, outputs, () if outputs else [DataNode(node, 0)])
        executor, batch, finished = self._run(graph, self._values)
        with contextlib.closing(executor):
            # `copies`: the graph's node by the id of the definition's. None: the plan has left the node out, because it
            # changes nothing.
            step = next((s for s in executor.plan.steps if s.id == graph.copies[node.id].id), None)
            present = batch.present_in(step.presence) if step is not None else None
            if present is not None:  # the value has the samples of the node's branch only
                finished.ids = dataclasses.replace(finished.ids, present=present)
            # Values of branches may lack samples, so the graphs of later nodes compute them again.
            data = None if node.id in self._conditional else _on_host(finished.outputs)
            is_user_function = step is not None and isinstance(step.op, EagerOperator)
            specs = tuple(v.spec for v in finished.outputs)
            self._values[node.id] = _NodeValue(
                tensor_lists(finished), specs, data, finished.names, self._paths(node, finished.ids), is_user_function
            )

    def _paths(self, node: Node, ids: SampleIds) -> Sequence[str]:
        """The files of the samples of a node: those of its source, or, if it has none, those of `ids`."""
        open_source = self._sources.get(node.source.id) if node.source is not None else None
        if open_source is None or open_source.batch is None:
            return ids.paths
        return open_source.batch.origins[open_source.node.id].paths

    def outputs(self, outputs: Sequence[DataNode], sinks: Sequence[DataNode]) -> tuple[Executor, FinishedBatch, Graph]:
        """Runs the whole graph of the definition with these outputs and sinks. Returns its executor, which the caller
        closes, the batch, and the graph.
        """
        for node in self._deferred:
            self._evaluate(node)
        self._deferred = []
        graph = Graph.collect(self._nodes, outputs, sinks)
        executor, _, finished = self._run(
            graph, {number: value for number, value in self._values.items() if value.from_user_function}
        )
        return executor, finished, graph

    def _run(self, graph: Graph, values: Mapping[int, _NodeValue]) -> tuple[Executor, InFlightBatch, FinishedBatch]:
        """Runs a graph that was collected from the definition's nodes. Returns its executor, which the caller closes, and
        the batch as it was launched and as it is finished.

        Args:
          graph: the graph.
          values: of evaluated nodes, by their ids in the definition. Nodes whose values are on the host are not
            computed again.
        """
        # A repair runs the operators that made the inputs of the failed one again, so no values replace them.
        repair_inputs = {
            x.node.id
            for node in self._nodes
            if isinstance(node.op, NativeOperator) and node.op.repairs(_cpu.Status.REFUSED)
            for x in node.inputs
        }
        values = {n: v for n, v in values.items() if v.data is not None and n not in repair_inputs}
        graph.with_values({n: HostInput(specs=value.specs) for n, value in values.items()})
        # From here on nodes are those that the graph still has. They are its own, copies of the definition's.
        copies = graph.copies
        node_values = {copies[n].id: value for n, value in values.items() if n in copies}
        sources = {copies[n].id: open_source for n, open_source in self._sources.items() if n in copies}
        executor = self._session.executor_of(graph, {i: open_source.source for i, open_source in sources.items()})
        try:
            with own_settings():
                executor.build()
                batch = executor.launch(self._make_batch(executor, sources, node_values))
                return executor, batch, executor.check(batch)
        except BaseException:
            executor.close()
            raise

    def _make_batch(
        self, executor: Executor, sources: Mapping[int, _OpenSource], node_values: Mapping[int, _NodeValue]
    ) -> InFlightBatch:
        """Makes the batch of a graph from the values of its sources and of its evaluated nodes.

        Args:
          executor: runs the graph.
          sources: the session's sources, which were read, by their ids in the graph.
          node_values: the values of evaluated nodes, by their ids in the graph. They have data.
        """
        ids = self._sample_ids()
        values: dict[int, Sequence[Any]] = {}
        origins: dict[int, SampleIds] = {}
        unread: list[tuple[str, str]] = []
        for i, open_source in sources.items():
            source_batch = open_source.batch
            assert source_batch is not None
            values[i] = [v.data for v in source_batch.values.values()]
            origins[i] = source_batch.origins[open_source.node.id]
            unread += source_batch.unread
        for i, node_value in node_values.items():
            assert node_value.data is not None
            values[i] = node_value.data
            names = node_value.names  # for each output; `SampleIds.names` are those of the first
            origins[i] = dataclasses.replace(
                ids, names=names[0], paths=node_value.paths, of_output=names.__getitem__, unread={}
            )
        batch = executor.batch_of(values, ids)
        batch.origins, batch.unread = origins, unread
        return batch


def _on_host(outputs: Sequence[Value]) -> tuple[Any, ...] | None:
    """The data of values in the form in which host operators return them; None: some are on an accelerator."""
    if any(isinstance(v.data, DeviceSamples) or is_on_accelerator(v.data) for v in outputs):
        return None
    arrays: list[Any] = [v.data if isinstance(v.data, Packed) else np.asarray(v.data) for v in outputs]
    # A dense array whose spec has no shape is dense by chance, in this batch only: later graphs get a list of samples.
    return tuple(
        [*x] if v.spec.shape is None and isinstance(x, np.ndarray) else x for v, x in zip(outputs, arrays, strict=True)
    )


class DebugSession(ApiUse):
    """Runs a definition once for each batch, see Note [Debug]. It has the methods of a `Session`.

    Attributes:
      complete: whether a definition has run to its end, so that all sources are known.
      ids: of the samples of the current batch; None: no source has been read yet.
    """

    def __init__(self, settings: PipelineSettings, definition: Definition):
        super().__init__()
        self._settings, self._definition = settings, definition
        # As in `Session`, but only `build` looks at `start`, to refuse a checkpoint.
        self.start: Any = None
        self.lease: Any = None
        self.checkpoint_of_iterator: Any = None
        self.executor: Executor | None = None  # of the whole graph of the batch that was made last
        self.complete = False
        self.ids: SampleIds | None = None
        self._device: jax.Device | None = None
        self._seed = 0
        self._pool_id: int | None = None
        self._setups: Sequence[Callable[[], None]] = ()
        # By the name of the operator, and the number of its call in the definition.
        self._sources: dict[tuple[str, int], _OpenSource] = {}
        # Data that were fed before the first batch, with their layouts, by the name of the external_source.
        self._early_data: dict[str, list[tuple[Any, str | None]]] = collections.defaultdict(list)
        # Batches begun in this epoch, the epoch, batches that are scheduled and not taken, and batches begun in all.
        self._iteration = self._epoch = self._pending = self._num_batches = 0
        self._ended = self._closed = False
        # How often samples were replaced or left out, by file and reason.
        self._bad_counts = collections.Counter[tuple[str, str]]()
        self._evaluation: Evaluation | None = None  # of the batch that was made last
        self._exclusive_use = ExclusiveUse("pipeline")

    @property
    def built(self) -> bool:
        """Whether it can run."""
        return self._device is not None

    def build(self, setups: Sequence[Callable[[], None]], device: jax.Device, seed: int):
        """Prepares for the first batch. The operators are made with that.

        Args:
          setups: user functions that are called before each batch.
          device: the device of "mixed" and "gpu" operators.
          seed: the seed of the pipeline.
        """
        if self.start is not None:
            raise RuntimeError("a pipeline with debug=True can't start from a checkpoint: leave debug out")
        self._device, self._seed, self._setups = device, seed, setups
        self._pool_id = _cpu.pool_create(self._settings.threads)
        self._finalizer = weakref.finalize(self, _close_all, self._pool_id, self._sources)

    def claim(self) -> Any:
        """Raises RuntimeError: iterators can't use this session."""
        raise RuntimeError(
            "a pipeline with debug=True is run by run(): an iterator makes batches ahead, which needs a graph; leave debug out"
        )

    def check_outputs(self):
        """Does nothing: outputs are checked with each batch."""

    # --- batches ------------------------------------------------------------------------------------------------

    def schedule(self, *, fill: bool = False):
        """Schedules a batch; with `fill` only if none is scheduled. It is made when it is taken."""
        if not (fill and self._pending):
            self._pending += 1

    @property
    def empty(self) -> bool:
        """Whether all batches that were scheduled have been taken."""
        return not self._pending

    def take(self) -> tuple[TensorListCPU | TensorListGPU, ...]:
        """Makes the next batch: calls the definition, and runs its graph."""
        with self._exclusive_use:
            if self._closed:
                raise RuntimeError("this pipeline is closed")
            if not self._pending or self._ended:
                self._pending = 0
                raise StopIteration
            self._pending -= 1
            try:
                self._begin()
                while True:
                    with contextlib.suppress(_WrongSampleIds):
                        return self._run()
            except StopIteration:
                self._ended, self._pending = True, 0
                raise

    def _begin(self):
        """Reads the next batch of all known sources. Each source is read, even if another one fails or ends."""
        for setup in self._setups:
            setup()
        self.ids = None
        self._num_batches += 1
        is_ended, error = False, None
        for open_source in self._sources.values():
            try:
                self._read(open_source)
            except StopIteration:
                is_ended = True
            except Exception as e:
                error = error or e
        if is_ended:
            raise StopIteration
        self._iteration += 1
        if error is not None:
            raise error

    def _run(self) -> tuple[TensorListCPU | TensorListGPU, ...]:
        """Calls the definition and runs its whole graph. Raises `_WrongSampleIds` if this must be done again."""
        self._evaluation = evaluation = Evaluation(self)  # nodes do not hold it
        outputs, sinks = self._definition.evaluate(evaluation, evaluation.nodes)
        executor, batch, graph = evaluation.outputs(outputs, sinks)
        if self.executor is not None:
            self.executor.close()
        self.executor, self.complete = executor, True
        argument_checks.check_outputs(graph, executor.plan.output_specs, self._settings.output_requirements)
        self._bad_counts.update(batch.replaced)
        return tensor_lists(batch)

    def executor_of(self, graph: Graph, sources: Mapping[int, Source]) -> Executor:
        """An executor of a part of the definition, which uses the session's threads.

        Args:
          sources: the session's sources in the graph, by node id. It neither reads nor closes them.
        """
        assert self._device is not None
        options = dataclasses.replace(self._settings.run_options(self._seed), pool_id=self._pool_id, tuned=())
        lent_sources = {i: InputSource(s.specs(), s.first_shape, s.counts) for i, s in sources.items()}
        return Executor.of_values(graph, self._device, options, sources=lent_sources)

    def reset(self):
        """Starts the next epoch at the end of the data."""
        if self._ended:
            for open_source in self._sources.values():
                open_source.state = open_source.executor.reader.after_end(open_source.state)
            self._ended, self._iteration = False, 0
            self._epoch += 1

    def bad_samples(self) -> list[BadSample]:
        """The samples that were replaced or left out in the batches taken so far."""
        return BadSample.of(self._bad_counts)

    def close(self):
        """Stops the session. No batch can be taken afterwards."""
        self._closed = True
        if self.executor is not None:
            self.executor.close()
            self.executor = self._evaluation = None
        if self.built:
            self._finalizer()

    # --- sources ------------------------------------------------------------------------------------------------

    def sample_ids(self) -> SampleIds:
        """The ids of the samples of the current batch; without a source, consecutive positions in the epoch."""
        if self.ids is not None:
            return self.ids
        assert self._settings.batch_size is not None
        B = self._settings.batch_size
        return SampleIds.unnamed(np.full(B, self._epoch), np.arange(B) + (self._iteration - 1) * B)

    def open(self, node: Node, index: int) -> _OpenSource:
        """Returns the source of a node, which is the definition's `index`th of its operator. Opens and reads a new one."""
        open_source = self._sources.get((node.op.name, index))
        if open_source is not None:
            if node.op.name not in FED_OPERATORS and open_source.node.op != node.op:
                raise node.error(
                    "its arguments differ from those in the batches before: with debug=True, too, readers stay as they are"
                )
            return open_source
        graph = Graph()
        node_copy = graph.add(node.op, (), node.device, node.name, node.where, -1)  # -1: it is not random
        graph.outputs = tuple(DataNode(node_copy, i) for i in range(node.op.num_outputs))
        executor = self.executor_of(graph, {})
        open_source = self._sources[node.op.name, index] = _OpenSource(
            node_copy, executor, executor.reader.initial_state
        )
        for data, layout in self._early_data.pop(node.name, ()):
            open_source.source.feed(data, layout)
        for _ in range(self._num_batches - 1):  # a source that is new in a later batch skips the earlier ones
            self._advance(open_source)
        self._read(open_source)
        return open_source

    def _advance(self, open_source: _OpenSource) -> InFlightBatch:
        """Reads the next batch of a source. If that fails, the batch counts as read."""
        executor = open_source.executor
        executor.build()
        request = executor.reader.begin_batch(open_source.state)
        try:
            with own_settings():
                batch = executor.reader.read(open_source.state, request)
        except SourceError as e:
            open_source.state = e.after
            assert e.__cause__ is not None
            raise e.__cause__ from None
        open_source.state = batch.after
        return batch

    def _read(self, open_source: _OpenSource):
        """Reads the next batch of a source, and adds the ids of its samples to those of the batch."""
        open_source.batch = None
        open_source.batch = batch = self._advance(open_source)
        assert batch.ids is not None
        is_primary = next(iter(self._sources.values())) is open_source
        self.ids = joined_ids(open_source.node, batch.ids, self.ids, is_primary)

    def feed(self, handle: DataNode | str, data: Any, layout: str | None):
        """See `Session.feed`. Before the first batch, data are kept for the external_source of this name."""
        name = handle if isinstance(handle, str) else handle.name
        fed_sources = [s for s in self._sources.values() if s.node.op.name in FED_OPERATORS]
        open_source = next((s for s in fed_sources if s.node.name == name), None)
        if open_source is not None:
            open_source.source.feed(data, layout)
        elif self.complete:
            names = [s.node.name for s in fed_sources]
            raise KeyError(f"there is no external_source named {name!r} in the pipeline; there are {names}")
        else:
            self._early_data[name].append((data, layout))

    def metas(self) -> dict[str, dict[str, int]]:
        """See `Session.metas`. Raises RuntimeError before the first batch."""
        if not self.complete:
            raise RuntimeError("with debug=True the readers are known after the first batch")
        return {x.node.name: dict(x.source.metas[0]) if x.source.metas else {} for x in self._sources.values()}

    def checkpoint(self) -> bytes:
        """Raises RuntimeError: there are no checkpoints."""
        raise RuntimeError(
            "a pipeline with debug=True has no checkpoints: its operators may differ from batch to batch; leave debug out"
        )


def _close_all(pool_id: int, sources: Mapping[Any, _OpenSource]):
    """Closes the sources of a session, and ends its threads."""
    for open_source in sources.values():
        open_source.executor.close()
    _cpu.pool_destroy(pool_id)
