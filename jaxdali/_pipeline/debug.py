"""`DebugSession`: what runs a pipeline with ``debug=True``."""

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
from .._batch.batch import BadSample, Batch, InFlightBatch, SourceError
from .._batch.executor import Executor
from .._batch.reading import joined_ids
from .._core.graph import DataNode, Graph, Node
from .._core.jax_settings import own_settings
from .._core.operator import EagerOperator, SourceOperator
from .._core.ragged import DeviceSamples, Packed, is_on_accelerator
from .._core.values import Spec, Value
from .._data.source import PlaceholderSource, SampleIds, Source
from .._runner.fork_guard import ExclusiveUse
from ..backend import TensorListCPU, TensorListGPU
from . import argument_checks
from .definition import Definition
from .pipeline_settings import PipelineSettings
from .schedule import tensor_lists
from .session import FED, ApiUse

# Note [Debug]
#
# With ``debug=True`` the definition runs once for each batch, and each node has its value when it is made. The outputs
# are still those of the compiled pipeline:
#
# * When the definition has returned, its whole graph runs as that of a compiled pipeline would, for the samples that
#   were read. The values shown before may differ from it by one level of 255, because nothing is fused then.
# * A graph of its own evaluates each node. In it, sources that hold values replace the nodes that were evaluated
#   before. The graph is collected from all nodes made so far. So its nodes have the numbers of the whole graph, on
#   which random numbers depend.
# * User functions are not called a second time: the whole graph gets what they returned, unless that is on an
#   accelerator.
# * In the branch of an `if` on nodes, and after it, values are computed when they are asked for: a branch may have no
#   samples.
# * Random numbers belong to samples, which the first source identifies. In the first batch no source is known before it
#   is made, so the nodes before it are evaluated once it is there. If their values are asked for earlier, the batch is
#   taken for one without sources. If that turns out to be wrong, the definition is called again.


_SHOWN = 4  # samples


class Evaluated(SourceOperator):
    """The value of a node that was evaluated."""

    name = "value"
    specs: tuple[Spec, ...]
    stays = False

    @property
    def num_outputs(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return len(self.specs)

    def make_source(self, ops: Sequence[Any], seed: int) -> Source:
        return PlaceholderSource(*self.specs)


class _Lent(PlaceholderSource):
    """A source as a part of the definition sees it, which neither reads nor closes it."""

    def __init__(self, source: Source):
        super().__init__(*source.specs())
        self._source = source

    def first_shape(self, output: int) -> tuple[int, ...] | None:
        return self._source.first_shape(output)

    def counts(self) -> Mapping[str, int]:
        return self._source.counts()


class _Again(BaseException):
    """The batch was taken for another one than it is: the definition must be called again."""


@dataclasses.dataclass
class _Opened:
    """A source, and what reads it: an executor of that source alone."""

    node: Node
    executor: Executor
    state: dict[str, Any]
    read: InFlightBatch | None = None  # of the current batch

    @property
    def source(self) -> Source:
        return self.executor.sources[self.node.id]


@dataclasses.dataclass
class _Value:
    """The outputs of a node for the current batch.

    Attributes:
      outputs: as tensor lists. specs, data: for graphs that need them; None: a program has to make them again.
      names, paths: where the samples of each output came from, and what messages call them.
      called: whether a user function made them.
    """

    outputs: tuple[TensorListCPU | TensorListGPU, ...]
    specs: tuple[Spec, ...]
    data: tuple[Any, ...] | None
    names: tuple[Sequence[str], ...]
    paths: Sequence[str]
    called: bool


class Evaluation:
    """One batch while the definition runs: an `Evaluator`.

    Args:
      session: has the sources.
    """

    def __init__(self, session: DebugSession):
        self._session = session
        self._nodes: list[Node] = []
        self._values: dict[int, _Value] = {}
        self._sources: dict[int, _Opened] = {}
        self._seen: collections.Counter[str] = collections.Counter()
        self._waiting: list[Node] = []  # for the first source
        self._branched: set[int] = set()  # made in branches, or of what is made there
        self._guessed: SampleIds | None = None

    @property
    def nodes(self) -> list[Node]:
        """The nodes made so far."""
        return self._nodes

    def evaluate(self, node: Node) -> None:
        """See `Evaluator`."""
        if isinstance(node.op, SourceOperator):
            self._open(node)
        elif node.branch is not None or any(x.node.id in self._branched for x in node.inputs):
            self._branched.add(node.id)
        else:
            self._waiting.append(node)
        if self._session.ids is not None or self._session.complete:
            waiting, self._waiting = self._waiting, []
            for x in waiting:
                self._evaluate(x)

    def text(self, x: DataNode) -> str:
        """See `Evaluator`."""
        value = self.value(x)
        if isinstance(value, list):  # metadata
            return repr(value)
        host = value.as_cpu()
        first = [np.asarray(host.at(i)) for i in range(min(len(host), _SHOWN))]
        samples = [
            np.array2string(x.reshape(-1) if x.ndim else x, threshold=8, edgeitems=3, precision=5) for x in first
        ]
        more = [f"... and {len(host) - _SHOWN} more"] if len(host) > _SHOWN else []
        return "\n".join((repr(value), *samples, *more))

    def value(self, x: DataNode) -> Any:
        """See `Evaluator`."""
        if x.node.id in self._sources:
            return self._read_value(x)
        if x.node.id not in self._values:
            self._evaluate(x.node)
        return self._values[x.node.id].outputs[x.index]

    def _open(self, node: Node):
        first = self._session.ids is None
        number = self._seen[node.op.name]
        self._seen[node.op.name] += 1
        self._sources[node.id] = self._session.open(node, number)
        if first and self._guessed is not None:
            ids = self._session.identities()
            if not (
                np.array_equal(ids.epoch, self._guessed.epoch) and np.array_equal(ids.position, self._guessed.position)
            ):
                raise _Again

    def _identities(self) -> SampleIds:
        if self._session.ids is None and not self._session.complete:
            self._guessed = self._session.identities()
        return self._session.identities()

    def _read_value(self, x: DataNode) -> Any:
        opened = self._sources[x.node.id]
        read = opened.read
        assert read is not None and read.ids is not None
        with own_settings():
            made = opened.executor.check(read)
        return tensor_lists(dataclasses.replace(made, ids=self._session.identities()))[x.index]

    def _evaluate(self, node: Node):
        """Computes the outputs of one node."""
        outputs = [DataNode(node, i) for i in range(node.op.num_outputs)]
        # A function that returns nothing is called, as it may print.
        graph = Graph.collect(self._nodes, outputs, () if outputs else [DataNode(node, 0)])
        executor, batch = self._launched(graph, self._values)
        try:
            with own_settings():
                made = executor.check(batch)
            # None: it changes nothing.
            step = next((s for s in executor.plan.steps if s.id == graph.copies[node.id].id), None)
            present = batch.present_in(step.presence) if step is not None else None
            if present is not None:
                made.ids = dataclasses.replace(made.ids, present=present)
            data = None if node.id in self._branched else _on_host(made.outputs)
            called = step is not None and isinstance(step.op, EagerOperator)
            specs = tuple(v.spec for v in made.outputs)
            self._values[node.id] = _Value(
                tensor_lists(made), specs, data, made.names, self._paths(node, made.ids), called
            )
        finally:
            executor.close()

    def _paths(self, node: Node, ids: SampleIds) -> Sequence[str]:
        opened = self._sources.get(node.source.id) if node.source is not None else None
        return ids.paths if opened is None or opened.read is None else opened.read.origins[opened.node.id].paths

    def outputs(self, outputs: Sequence[DataNode], sinks: Sequence[DataNode]) -> tuple[Executor, Batch, Graph]:
        """Runs the whole graph. The caller closes the executor."""
        for node in self._waiting:
            self._evaluate(node)
        self._waiting = []
        graph = Graph.collect(self._nodes, outputs, sinks)
        executor, batch = self._launched(graph, {n: v for n, v in self._values.items() if v.called})
        try:
            with own_settings():
                return executor, executor.check(batch), graph
        except BaseException:
            executor.close()
            raise

    def _launched(self, graph: Graph, values: Mapping[int, _Value]) -> tuple[Executor, InFlightBatch]:
        """Launches the batch of a graph of the definition. The caller closes the executor.

        Args:
          values: of nodes that are not computed again, where their values are on the host; by the numbers of the
            definition's nodes.
        """
        held = {graph.copies[n].id: v for n, v in values.items() if v.data is not None}
        graph.with_values({i: Evaluated(specs=v.specs) for i, v in held.items()})
        there = {n.id for n in graph.nodes}
        read = {
            graph.copies[n].id: opened
            for n, opened in self._sources.items()
            if n in graph.copies and graph.copies[n].id in there
        }
        executor = self._session.executor_of(graph, {i: opened.source for i, opened in read.items()})
        try:
            with own_settings():
                executor.build()
                return executor, executor.launch(
                    self._given(executor, read, {i: v for i, v in held.items() if i in there})
                )
        except BaseException:
            executor.close()
            raise

    def _given(self, executor: Executor, sources: Mapping[int, _Opened], held: Mapping[int, _Value]) -> InFlightBatch:
        """The batch, with the values of the sources of a graph and of its nodes that are not computed again."""
        ids = self._identities()
        values: dict[int, Sequence[Any]] = {}
        origins: dict[int, SampleIds] = {}
        unread: list[tuple[str, str]] = []
        for i, opened in sources.items():
            read = opened.read
            assert read is not None
            values[i] = [v.data for v in read.values.values()]
            origins[i] = read.origins[opened.node.id]
            unread += read.unread
        for i, v in held.items():
            assert v.data is not None
            values[i] = v.data
            origins[i] = dataclasses.replace(
                ids, names=v.names[0], paths=v.paths, of_output=v.names.__getitem__, unread={}
            )
        batch = executor.given(values, ids)
        batch.origins, batch.unread = origins, unread
        for value in batch.values.values() if batch.short else ():
            value.present = batch.present
        return batch


def _on_host(outputs: Sequence[Value]) -> tuple[Any, ...] | None:
    """Values as host operators return them; None: some are on an accelerator."""
    if any(isinstance(v.data, DeviceSamples) or is_on_accelerator(v.data) for v in outputs):
        return None
    found: list[Any] = [v.data if isinstance(v.data, Packed) else np.asarray(v.data) for v in outputs]
    # Where only the batch tells that samples have one shape, they are given as samples.
    return tuple(
        [*x] if v.spec.shape is None and isinstance(x, np.ndarray) else x for v, x in zip(outputs, found, strict=True)
    )


class DebugSession(ApiUse):
    """Runs a definition once for each batch, see Note [Debug]. It has the methods of a `Session`.

    Attributes:
      complete: whether a definition has run to its end, so that the sources are known.
      ids: of the samples of the current batch, as far as sources have been read; None: none has been.
    """

    def __init__(self, settings: PipelineSettings, definition: Definition):
        super().__init__()
        self._settings, self._definition = settings, definition
        self.start: Any = None
        self.lease: Any = None
        self.checkpoint_of_iterator: Any = None
        self.executor: Executor | None = None
        self.complete = False
        self.ids: SampleIds | None = None
        self._device: jax.Device | None = None
        self._seed = 0
        self._pool: int | None = None
        self._setups: Sequence[Callable[[], None]] = ()
        self._sources: dict[tuple[str, int], _Opened] = {}
        self._fed: dict[str, list[tuple[Any, str | None]]] = collections.defaultdict(list)
        self._iteration = self._epoch = self._pending = self._begun = 0
        self._ended = self._closed = False
        self._bad: dict[tuple[str, str], int] = {}
        self._evaluation: Evaluation | None = None  # of the batch that was made last
        self._use = ExclusiveUse("pipeline")

    @property
    def built(self) -> bool:
        """Whether it can run."""
        return self._device is not None

    def build(self, setups: Sequence[Callable[[], None]], device: jax.Device, seed: int):
        """Prepares for the first batch, with which the operators are made."""
        if self.start is not None:
            raise RuntimeError("a pipeline with debug=True can't start from a checkpoint: leave debug out")
        self._device, self._seed, self._setups = device, seed, setups
        self._pool = _cpu.pool_create(self._settings.threads)
        self._finalizer = weakref.finalize(self, _destroy, self._pool, self._sources)

    def claim(self) -> Any:
        """Iterators can't use it."""
        raise RuntimeError(
            "a pipeline with debug=True is run by run(): an iterator makes batches ahead, which needs a graph; leave debug out"
        )

    def check_outputs(self):
        """They are checked with each batch."""

    # --- batches ------------------------------------------------------------------------------------------------

    def schedule(self):
        """Schedules a batch. It is made when it is taken."""
        self._pending += 1

    @property
    def empty(self) -> bool:
        """Whether all batches that were scheduled have been taken."""
        return not self._pending

    def take(self) -> tuple[TensorListCPU | TensorListGPU, ...]:
        """Makes the next batch: calls the definition, and runs what it returned."""
        with self._use:
            if self._closed:
                raise RuntimeError("this pipeline is closed")
            if not self._pending or self._ended:
                self._pending = 0
                raise StopIteration
            self._pending -= 1
            try:
                self._begin()
                while True:
                    with contextlib.suppress(_Again):
                        return self._run()
            except StopIteration:
                self._ended, self._pending = True, 0
                raise

    def _begin(self):
        """Reads the sources that are known."""
        for f in self._setups:
            f()
        self.ids = None
        self._begun += 1
        ended, error = False, None
        for opened in self._sources.values():
            try:
                self._read(opened)
            except StopIteration:
                ended = True
            except Exception as e:
                error = error or e
        if ended:
            raise StopIteration
        self._iteration += 1
        if error is not None:
            raise error

    def _run(self) -> tuple[TensorListCPU | TensorListGPU, ...]:
        self._evaluation = evaluation = Evaluation(self)  # nodes do not hold it
        outputs, sinks = self._definition.evaluate(evaluation, evaluation.nodes)
        executor, batch, graph = evaluation.outputs(outputs, sinks)
        if self.executor is not None:
            self.executor.close()
        self.executor, self.complete = executor, True
        argument_checks.check_outputs(graph, executor.plan.output_specs, self._settings.outputs)
        for report in batch.replaced:
            self._bad[report] = self._bad.get(report, 0) + 1
        return tensor_lists(batch)

    def executor_of(self, graph: Graph, sources: Mapping[int, Source]) -> Executor:
        """An executor of a part of the definition."""
        assert self._device is not None
        options = dataclasses.replace(self._settings.run_options(self._seed), pool_id=self._pool, tuned=())
        return Executor.of_values(
            graph, self._device, options, sources={i: _Lent(source) for i, source in sources.items()}
        )

    def reset(self):
        """Starts the next epoch at the end of the data."""
        if self._ended:
            for opened in self._sources.values():
                opened.state = opened.executor.reader.after_end(opened.state)
            self._ended, self._iteration = False, 0
            self._epoch += 1

    def bad_samples(self) -> list[BadSample]:
        """As of `Executor`."""
        return [BadSample(file, reason, count) for (file, reason), count in self._bad.items()]

    def close(self):
        """Stops. Nothing can be taken afterwards."""
        self._closed = True
        if self.executor is not None:
            self.executor.close()
            self.executor = self._evaluation = None
        if self.built:
            self._finalizer()

    # --- sources ------------------------------------------------------------------------------------------------

    def identities(self) -> SampleIds:
        """Of the samples of the current batch."""
        if self.ids is not None:
            return self.ids
        assert self._settings.batch_size is not None
        B = self._settings.batch_size
        nowhere = [""] * B
        return SampleIds(
            np.full(B, self._epoch), np.arange(B) + (self._iteration - 1) * B, names=nowhere, paths=nowhere
        )

    def open(self, node: Node, number: int) -> _Opened:
        """The source of a node, which is the definition's `number`th of its operator; opened and read if it is new."""
        opened = self._sources.get((node.op.name, number))
        if opened is not None:
            if node.op.name not in FED and opened.node.op != node.op:
                raise node.error(
                    "its arguments differ from those in the batches before: with debug=True, too, readers stay as they are"
                )
            return opened
        graph = Graph()
        copy = graph.add(node.op, (), node.device, node.name, node.where, -1)
        graph.outputs = tuple(DataNode(copy, i) for i in range(node.op.num_outputs))
        executor = self.executor_of(graph, {})
        opened = self._sources[node.op.name, number] = _Opened(copy, executor, executor.reader.initial_state)
        for data, layout in self._fed.pop(node.name, ()):
            opened.source.feed(data, layout)
        for _ in range(self._begun - 1):  # a source that comes late goes as far as the others
            self._advance(opened)
        self._read(opened)
        return opened

    def _advance(self, opened: _Opened) -> InFlightBatch:
        executor = opened.executor
        executor.build()
        asked = executor.reader.ask(opened.state)
        try:
            with own_settings():
                read = executor.reader.read(opened.state, asked)
        except SourceError as e:
            opened.state = e.after
            assert e.__cause__ is not None
            raise e.__cause__ from None
        opened.state = read.after
        return read

    def _read(self, opened: _Opened):
        opened.read = None
        opened.read = read = self._advance(opened)
        assert read.ids is not None
        primary = next(iter(self._sources.values())) is opened
        self.ids = joined_ids(opened.node, read.ids, self.ids, primary)

    def feed(self, handle: DataNode | str, data: Any, layout: str | None):
        """As of `Session`. Before the first batch, data are kept for the external_source of this name."""
        name = handle if isinstance(handle, str) else handle.name
        opened = next((x for x in self._sources.values() if x.node.name == name and x.node.op.name in FED), None)
        if opened is not None:
            opened.source.feed(data, layout)
        elif self.complete:
            there = [x.node.name for x in self._sources.values() if x.node.op.name in FED]
            raise KeyError(f"there is no external_source named {name!r} in the pipeline; there are {there}")
        else:
            self._fed[name].append((data, layout))

    def metas(self) -> dict[str, dict[str, int]]:
        """As of `Session`."""
        if not self.complete:
            raise RuntimeError("with debug=True the readers are known after the first batch")
        return {x.node.name: dict(x.source.metas[0]) for x in self._sources.values() if x.source.metas}

    def checkpoint(self) -> bytes:
        """There are none."""
        raise RuntimeError(
            "a pipeline with debug=True has no checkpoints: its operators may differ from batch to batch; leave debug out"
        )


def _destroy(pool: int, sources: Mapping[Any, _Opened]):
    for opened in sources.values():
        opened.executor.close()
    _cpu.pool_destroy(pool)
