"""Batches that are made by other processes, perhaps on other machines."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from .._core.errors import SampleError
from .._core.graph import Graph
from .._core.jax_settings import own_settings
from .._core.operator import EagerOperator
from .._core.ragged import Packed
from .._core.values import Value
from .._data.source import Source
from .._plan.run_options import RunOptions
from .._program.sharding import Shards
from .batch import Batch, InFlightBatch, SourceError
from .delivery import Delivery
from .executor import Executor
from .meter import Statistics
from .reading import BatchReader


# Note [Batches by position]
# A batch is a function of the pipeline, its seed and the cursors of its readers. So batches can be made anywhere, in
# any order, and again after a failure. This process only advances the cursors, which reads nothing; a worker that has
# the same pipeline gets the state before a batch and returns what the pipeline's outputs are. Order, shards, epochs and
# checkpoints are therefore those of an iterator without workers.
@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerSpec:
    """What a worker needs in order to make the batches of an executor. It can be pickled by cloudpickle.

    Attributes:
      graphs: of the local shards; shard_ids: their places among the `num_shards` shards.
      options: how batches are made.
      reader: see `Delivery.reader`.
      padded: the sources that pad their rounds.
      fingerprints: of the sources of each local shard.
    """

    graphs: Sequence[Graph]
    shard_ids: tuple[int, ...]
    num_shards: int
    options: RunOptions
    reader: str | None
    padded: tuple[str, ...]
    fingerprints: Sequence[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class ShardBatch:
    """What a worker returns for one shard of a batch.

    Attributes:
      values: the outputs; present: ``bool[B]``, the samples that it has, None: all.
      unread: see `SampleIds`; replaced: see `Batch`.
      error: the exception of making it; the rest is then empty.
    """

    values: Sequence[Value] = ()
    present: np.ndarray | None = None
    unread: Mapping[int, str] = dataclasses.field(default_factory=dict)
    replaced: Sequence[tuple[str, str]] = ()
    error: BaseException | None = None


class BatchMaker:
    """Makes batches in a worker."""

    def __init__(self, definition: WorkerSpec):
        self._definition = definition
        self._executors: dict[int, Executor] = {}

    def make(self, shard: int, state: dict[str, Any]) -> ShardBatch:
        """The batch of a local shard after `state`, which has this shard's cursors alone. Errors are in the result."""
        try:
            executor = self._executor(shard)
            if state["seed"] != executor.resources.seed:
                executor.reseed(state["seed"])
            with own_settings():
                batch = executor.check(executor.launch(executor.reader.read(state)))
        except SourceError as e:
            return ShardBatch(error=e.__cause__)
        except Exception as e:
            return ShardBatch(error=e)
        values = [Value(v.spec, v.shapes, _on_host(v.data)) for v in batch.outputs]
        return ShardBatch(values, batch.ids.present, dict(batch.ids.unread), list(batch.replaced))

    def statistics(self) -> Statistics:
        """The costs of the stages so far, if they are measured."""
        return Statistics.merged(e.statistics() for e in self._executors.values())

    def _executor(self, shard: int) -> Executor:
        if shard not in self._executors:
            d = self._definition
            place = Shards(d.num_shards, (d.shard_ids[shard],), ((jax.local_devices(backend="cpu")[0],),))
            executor = Executor([d.graphs[shard]], place, d.options, Delivery(as_arrays=False, reader=d.reader))
            for name, source in executor.reader.named.items():
                if name in d.padded:
                    source.pad_rounds()
                (found,), expected = source.fingerprint(), d.fingerprints[shard][name]
                if found != expected:
                    different = ", ".join(k for k in {**found, **expected} if found.get(k) != expected.get(k))
                    raise RuntimeError(
                        f"a worker finds other data for {name!r} than the process that uses the iterator ({different} differ): all need "
                        "the same files under the same paths"
                    )
            executor.build()
            self._executors[shard] = executor
        return self._executors[shard]


class WorkerPool(Protocol):
    """Workers that make the batches of one executor."""

    def submit(self, shard: int, state: dict[str, Any]) -> Any:
        """Begins to make a shard of a batch. Returns a ticket for `result`."""
        ...

    def result(self, ticket: Any) -> ShardBatch:
        """Waits for it."""
        ...

    def statistics(self) -> Sequence[Statistics]:
        """Of all workers."""
        ...

    def close(self) -> None:
        """Ends the workers."""
        ...


class WorkerBackend(Protocol):
    """Where batches are made: the argument `workers` of iterators."""

    num_workers: int

    def start(self, definition: WorkerSpec) -> WorkerPool:
        """Starts workers. Raises TypeError if the definition can't be sent to them."""
        ...


class RemoteReader(BatchReader):
    """Advances the sources without reading them."""

    def read(self, state: dict, asked: InFlightBatch | None = None) -> InFlightBatch:
        after = {**state, "iteration": state["iteration"] + 1, "sources": {}}
        batch = InFlightBatch(state, after)
        for node in self._nodes:
            cursors, ids = self._sources[node.id].advance(self._resources.B, state["sources"][node.name]["cursors"])
            after["sources"][node.name] = {"cursors": cursors}
            batch.origins[node.id] = ids
            if batch.ids is None or node is self.primary:
                batch.identify(ids)
        self._identify_by_number(batch, state)
        return batch


class RemoteExecutor(Executor):
    """An executor whose batches are made by `workers`. See Note [Batches by position].

    Raises:
      ValueError: the pipeline has a source or a function that works in this process only.
    """

    reader_type = RemoteReader

    def __init__(
        self,
        workers: WorkerBackend,
        graphs: Sequence[Graph],
        shards: Shards,
        options: RunOptions,
        delivery: Delivery,
        *,
        sources: Mapping[int, Source] | None = None,
        setups: Sequence[Callable[[], None]] = (),
    ):
        self._pool: WorkerPool | None = None
        self._workers, self._graphs, self._options = workers, graphs, options
        super().__init__(graphs, shards, options, delivery, sources=sources, setups=setups)
        try:
            _check_movable(self, setups)
        except BaseException:
            self.close()
            raise

    @property
    def uses_reader_thread(self) -> bool:
        return False  # the workers read

    @property
    def max_dispatched(self) -> int:
        return 2 * self._workers.num_workers

    def tuner(self, depth: int) -> None:
        return None

    def _definition(self) -> WorkerSpec:
        named = self.reader.named
        return WorkerSpec(
            graphs=self._graphs,
            shard_ids=self.shards.ids,
            num_shards=self.shards.num,
            options=self._options,
            reader=self._delivery.reader,
            padded=tuple(name for name, s in named.items() if any(w.pad_last_batch for w in s.walks)),
            fingerprints=[{name: s.fingerprint()[i] for name, s in named.items()} for i in range(len(self._graphs))],
        )

    def prepare(self, batch: InFlightBatch) -> InFlightBatch:
        return batch

    def dispatch(self, batch: InFlightBatch) -> InFlightBatch:
        if self._pool is None:
            self._pool = self._workers.start(self._definition())
        for s in range(len(self._graphs)):
            sources = {name: {"cursors": [entry["cursors"][s]]} for name, entry in batch.before["sources"].items()}
            batch.tickets.append(self._pool.submit(s, {**batch.before, "sources": sources}))
        return batch

    def check(self, batch: InFlightBatch) -> Batch:
        assert self._pool is not None and batch.ids is not None
        made = []
        for s, ticket in enumerate(batch.tickets):
            with self.resources.meter.stage("wait", "for a worker", "batch"):
                made.append(self._pool.result(ticket))
            if (error := made[s].error) is not None:
                if isinstance(error, SampleError):
                    error.index += s * self.B
                raise error
        if any(m.present is not None for m in made):
            present = np.concatenate([np.ones(self.B, bool) if m.present is None else m.present for m in made])
            unread = {s * self.B + i: reason for s, m in enumerate(made) for i, reason in m.unread.items()}
            batch.identify(dataclasses.replace(batch.ids, present=present, unread=unread))
        elif any(m.unread for m in made):
            unread = {s * self.B + i: reason for s, m in enumerate(made) for i, reason in m.unread.items()}
            batch.identify(dataclasses.replace(batch.ids, unread=unread))
        for k, ref in enumerate(self.plan.outputs):
            batch.values[ref] = _joined([m.values[k] for m in made])
        batch.replaced += [report for m in made for report in m.replaced]
        with self.resources.meter.stage("output", "", "outputs"):
            return self._finished(batch, batch.ids)

    def statistics(self) -> Statistics:
        own = super().statistics()
        return own if self._pool is None else Statistics.merged([own, *self._pool.statistics()])

    def close(self):
        pool, self._pool = self._pool, None
        if pool is not None:
            with contextlib.suppress(Exception):  # the cluster may have ended
                pool.close()
        super().close()


def _check_movable(executor: Executor, setups: Sequence[Callable[[], None]]):
    for node in executor.graph.nodes:
        source = executor.sources.get(node.id)
        if source is not None and not source.movable:
            raise node.error(
                "its data can't be made by workers, because only this process has its source; use a reader, such as readers.source for a "
                "map-style data set"
            )
        if isinstance(node.op, EagerOperator) and node.op.sharding is not None:
            raise node.error("a function with a sharding can't run in workers, which do not have these devices")
    if setups:
        raise ValueError(
            "a pipeline with iter_setup can't be run by workers, because iter_setup is called in this process"
        )


def _on_host(data: Any) -> np.ndarray | Packed:
    if isinstance(data, Packed):
        return Packed(np.ascontiguousarray(data.data[:, : data.used]), data.offsets, data.shapes)
    return np.asarray(data)


def _joined(parts: Sequence[Value]) -> Value:
    """The values of several shards as one."""
    first = parts[0]
    if len(parts) == 1:
        return first
    shapes = np.concatenate([p.shapes for p in parts])
    if not isinstance(first.data, Packed):
        return Value(first.spec, shapes, np.concatenate([np.asarray(p.data) for p in parts]))
    packed = [p.data for p in parts if isinstance(p.data, Packed)]
    rows = np.zeros((len(packed), max(p.data.shape[1] for p in packed)), first.spec.dtype)
    for row, p in zip(rows, packed, strict=True):
        row[: p.data.shape[1]] = p.data[0]
    return Value(first.spec, shapes, Packed(rows, np.concatenate([p.offsets for p in packed]), shapes))
