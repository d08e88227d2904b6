"""`RemoteExecutor`: an executor whose batches are made by other processes, perhaps on other machines."""

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
from .batch import FinishedBatch, InFlightBatch, SourceError
from .delivery import Delivery
from .executor import Executor
from .meter import Statistics
from .reading import BatchReader


# Note [Batches by position]
# A batch is a function of the pipeline, its seed and the cursors of its readers. So batches can be made anywhere, in
# any order, and again after a failure. This process only advances the cursors, which reads nothing. A worker that has
# the same pipeline gets the state before a batch, and returns the pipeline's outputs. So order, shards, epochs and
# checkpoints are those of an iterator without workers.
@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerSpec:
    """The description of an executor from which a worker makes its batches. It can be pickled by cloudpickle.

    Attributes:
      graphs: the graphs of the local shards.
      shard_ids: the places of the local shards among the `num_shards` shards.
      options: how batches are made.
      reader: name of the source that determines the epoch and position of samples; None: the first.
      padded: the names of the sources that pad their rounds to full batches.
      fingerprints: for each local shard, by the names of the sources, the values that identify their data. A worker
        must find the same.
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
    """One shard of a batch, as a worker returns it.

    Attributes:
      values: the outputs.
      present: ``bool[B]``, the samples that the shard has; None: all.
      unread: the samples that could not be read, by their places in the shard, with the reasons.
      replaced: (file, reason) of each sample that was replaced or skipped.
      error: the exception of making the shard; the other attributes are then empty.
    """

    values: Sequence[Value] = ()
    present: np.ndarray | None = None
    unread: Mapping[int, str] = dataclasses.field(default_factory=dict)
    replaced: Sequence[tuple[str, str]] = ()
    error: BaseException | None = None


class BatchMaker:
    """Makes batches in a worker."""

    def __init__(self, spec: WorkerSpec):
        self._spec = spec
        self._executors: dict[int, Executor] = {}  # by local shard

    def make(self, shard: int, state: dict[str, Any]) -> ShardBatch:
        """Makes a local shard of the batch after `state`, which has only this shard's cursors. Errors are in the
        result.
        """
        try:
            executor = self._executor(shard)
            # After a checkpoint was restored, the iterator goes on with the checkpoint's seed.
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
        """The executor of a local shard, made the first time. Raises RuntimeError if its sources have other data."""
        if shard not in self._executors:
            spec = self._spec
            shards = Shards(spec.num_shards, (spec.shard_ids[shard],), ((jax.local_devices(backend="cpu")[0],),))
            delivery = Delivery(as_arrays=False, reader=spec.reader)
            executor = Executor([spec.graphs[shard]], shards, spec.options, delivery)
            for name, source in executor.reader.named.items():
                if name in spec.padded:
                    source.pad_rounds()
                # A worker's machine may have other files. The executor has one shard, so there is one fingerprint.
                (fingerprint,), expected = source.fingerprint(), spec.fingerprints[shard][name]
                if fingerprint != expected:
                    different = ", ".join(
                        k for k in {**fingerprint, **expected} if fingerprint.get(k) != expected.get(k)
                    )
                    raise RuntimeError(
                        f"a worker finds other data for {name!r} than the process that uses the iterator ({different} differ): all need "
                        "the same files under the same paths"
                    )
            executor.build()
            self._executors[shard] = executor
        return self._executors[shard]


class WorkerPool(Protocol):
    """The workers that make the batches of one executor."""

    def submit(self, shard: int, state: dict[str, Any]) -> Any:
        """Begins to make a shard of the batch after `state`. Returns a ticket for `result`."""
        ...

    def result(self, ticket: Any) -> ShardBatch:
        """Waits for the shard of a ticket, and returns it."""
        ...

    def cancel(self) -> None:
        """Makes `result` raise RuntimeError for the tickets that exist, where it would wait. Called from any thread."""
        ...

    def statistics(self) -> Sequence[Statistics]:
        """Returns the statistics of each worker."""
        ...

    def close(self) -> None:
        """Ends the workers."""
        ...


class WorkerBackend(Protocol):
    """The argument `workers` of iterators: starts workers that make batches. `jaxdali.ray.Workers` is one."""

    num_workers: int

    def start(self, definition: WorkerSpec) -> WorkerPool:
        """Starts the workers. Raises TypeError if `definition` can't be sent to them."""
        ...


class RemoteReader(BatchReader):
    """Advances the sources without reading them."""

    def read(self, state: dict, begun: InFlightBatch | None = None) -> InFlightBatch:
        """Returns a batch with the ids of its samples, and no values. `begun` has no effect, because workers can't make
        data that must be read in the caller's thread.
        """
        after = {**state, "iteration": state["iteration"] + 1, "sources": {}}
        batch = InFlightBatch(state, after)
        for node in self._nodes:
            cursors, ids = self._sources[node.id].advance(self._resources.B, state["sources"][node.name]["cursors"])
            after["sources"][node.name] = {"cursors": cursors}
            batch.origins[node.id] = ids
            # The first source identifies the samples, until the primary one does.
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
        return 2 * self._workers.num_workers  # so that each worker has its next batch when it finishes one

    def tuner(self, depth: int) -> None:
        return None  # nothing is tuned: the threads are the workers'

    def _worker_spec(self) -> WorkerSpec:
        """Describes this executor for the workers."""
        named = self.reader.named
        return WorkerSpec(
            graphs=self._graphs,
            shard_ids=self.shards.ids,
            num_shards=self.shards.num,
            options=self._options,
            reader=self._delivery.reader,
            padded=tuple(name for name, s in named.items() if any(w.pad_last_batch for w in s.walks)),
            # A source has one fingerprint for each local shard.
            fingerprints=[{name: s.fingerprint()[i] for name, s in named.items()} for i in range(len(self._graphs))],
        )

    def prepare(self, batch: InFlightBatch) -> InFlightBatch:
        return batch  # workers prepare it

    def dispatch(self, batch: InFlightBatch) -> InFlightBatch:
        """Submits each shard of the batch to a worker. Starts the workers the first time."""
        if self._pool is None:
            self._pool = self._workers.start(self._worker_spec())
        for s in range(len(self._graphs)):
            # The state before the batch, with the cursors of this shard alone.
            sources = {name: {"cursors": [entry["cursors"][s]]} for name, entry in batch.before["sources"].items()}
            batch.tickets.append(self._pool.submit(s, {**batch.before, "sources": sources}))
        return batch

    def check(self, batch: InFlightBatch) -> FinishedBatch:
        """Waits for the shards of a batch, joins them, and converts the outputs to their final form. Raises the first
        error of a shard.
        """
        assert self._pool is not None and batch.ids is not None
        shards = []
        for s, ticket in enumerate(batch.tickets):
            with self.resources.meter.stage("wait", operators="for a worker", step="batch"):
                # After an interrupt the batch is checked again, and a result can be taken once.
                batch.tickets[s] = ticket if isinstance(ticket, ShardBatch) else self._pool.result(ticket)
                shards.append(batch.tickets[s])
            if (error := shards[s].error) is not None:
                if isinstance(error, SampleError):
                    error.index += s * self.B  # from a place in the shard to one in the batch
                raise error
        # Only the workers have read the samples, so only they know which are missing.
        # With replacements (`on_error="replace"`) no sample is missing, but some are unread.
        unread = {s * self.B + i: reason for s, shard in enumerate(shards) for i, reason in shard.unread.items()}
        if any(shard.present is not None for shard in shards):
            present = np.concatenate(
                [np.ones(self.B, bool) if shard.present is None else shard.present for shard in shards]
            )
            batch.identify(dataclasses.replace(batch.ids, present=present, unread=unread))
        elif unread:
            batch.identify(dataclasses.replace(batch.ids, unread=unread))
        for k, ref in enumerate(self.plan.outputs):
            batch.values[ref] = _joined([shard.values[k] for shard in shards])
        batch.replaced += [report for shard in shards for report in shard.replaced]
        with self.resources.meter.stage("output", operators="", step="outputs"):
            return self._finished(batch, batch.ids)

    def statistics(self) -> Statistics:
        local = super().statistics()
        return local if self._pool is None else Statistics.merged([local, *self._pool.statistics()])

    def cancel(self):
        if self._pool is not None:
            self._pool.cancel()

    def close(self):
        pool, self._pool = self._pool, None
        if pool is not None:
            with contextlib.suppress(Exception):  # the cluster may have ended
                pool.close()
        super().close()


def _check_movable(executor: Executor, setups: Sequence[Callable[[], None]]):
    """Raises an error if a pipeline has parts that work in this process only."""
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
    """Returns the data of an output as NumPy arrays, without unused memory, to be sent to another process."""
    if isinstance(data, Packed):
        return Packed(np.ascontiguousarray(data.data[:, : data.used]), data.offsets, data.shapes)
    return np.asarray(data)


def _joined(parts: Sequence[Value]) -> Value:
    """Joins values, each of one shard, into one of all these shards. Dense ones are joined along the samples; each
    ragged one has one row, and these become rows of equal length.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    shapes = np.concatenate([p.shapes for p in parts])
    if not isinstance(first.data, Packed):
        return Value(first.spec, shapes, np.concatenate([np.asarray(p.data) for p in parts]))
    packed = [p.data for p in parts if isinstance(p.data, Packed)]
    # Offsets count from the beginning of a shard's row, so they stay valid in a longer row.
    rows = np.zeros((len(packed), max(p.data.shape[1] for p in packed)), first.spec.dtype)
    for row, p in zip(rows, packed, strict=True):
        row[: p.data.shape[1]] = p.data[0]
    return Value(first.spec, shapes, Packed(rows, np.concatenate([p.offsets for p in packed]), shapes))
