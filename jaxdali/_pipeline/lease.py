"""`lease`: takes over pipelines for an iterator, which then runs them. All iterators use it."""

from __future__ import annotations

import dataclasses
import functools
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from .._batch.delivery import Delivery, Finish
from .._batch.executor import Executor
from .._batch.remote import RemoteExecutor, WorkerBackend
from .._core.graph import DataNode, Node
from .._core.operator import EagerOperator
from .._data.epoch import EpochCounter
from .._program.sharding import Shards
from .._runner.runner import Runner
from .._runner.shutdown import close_collected, close_together
from ..fn.readers._reader import Reader
from .pipeline import Pipeline, internals_of
from .session import Session


class Lease:
    """Pipelines that iterators use one after the other. Each continues where the previous one stopped.

    When an iterator ends, its threads stop, but their batches are kept. Everything is released with the pipelines.

    Attributes:
      executors: one for all pipelines, or one for each.
      runners: of the executors. They may hold a user's sources, which may hold the pipelines. So no thread and no
        finalizer holds a lease that has no iterator.
      key: equal for all iterators that use the lease one after the other.
      counter: counts the epochs; None: they are not counted.
      user: a weak reference to the iterator that uses the lease.
      released: whether `Pipeline.reset` allows another iterator although this one still exists.
    """

    def __init__(self, pipelines: Sequence[Pipeline], executors: list[Executor], key: Any):
        self._pipelines = [weakref.ref(p) for p in pipelines]
        self.executors = executors
        self.runners: list[Runner] = []
        self.counter: EpochCounter | None = None
        self.key = key
        self.user: weakref.ref[Any] | None = None
        self.released = False
        self._closed = False
        for p in pipelines:
            internals_of(p).session.lease = self

    @staticmethod
    def of(pipelines: Sequence[Pipeline], key: Any) -> Lease | None:
        """Returns the lease that an iterator with these pipelines and arguments can take over; None: they had no
        iterator yet.

        Raises:
          RuntimeError: another iterator uses them, or was closed, or had other arguments.
        """
        leases = [internals_of(p).session.lease for p in pipelines]
        lease = leases[0]  # all must have this one
        if not any(leases):
            return None
        if lease is None or any(x is not lease for x in leases) or lease.pipelines != list(pipelines):
            raise RuntimeError("these pipelines are in use already, by iterators over others: make one for each")
        if lease._closed:
            raise RuntimeError(
                "this pipeline is in use already, by an iterator that was closed, and its data with it: make one for each"
            )
        if lease.key != key:
            raise RuntimeError(
                "this pipeline is in use already, by an iterator with other arguments: make one for each"
            )
        user = lease.user() if lease.user is not None else None
        if user is not None and not lease.released and not lease.at_end:
            raise RuntimeError(
                "this pipeline is in use already, by another iterator, which is not at the end of its epoch: make one for each, or let go "
                "of that with reset() of the pipeline"
            )
        return lease

    @property
    def pipelines(self) -> list[Pipeline]:
        """The pipelines, one for each local shard. They hold the lease, so it has only weak references to them."""
        return [p for r in self._pipelines if (p := r()) is not None]

    @property
    def depth(self) -> int:
        """Number of batches to make ahead."""
        return internals_of(self.pipelines[0]).settings.depth

    @property
    def enable_checkpointing(self) -> bool:
        """Whether the pipelines allow checkpoints."""
        return internals_of(self.pipelines[0]).settings.enable_checkpointing

    @property
    def states(self) -> list[dict[str, Any]]:
        """The state from which each executor starts."""
        return [e.reader.initial_state for e in self.executors]

    @property
    def restored(self) -> tuple[list[dict[str, Any]], dict[str, Any] | None] | None:
        """The records of the pipelines' checkpoints, and the iterator's position; None: no pipeline has a checkpoint.

        Raises:
          RuntimeError: only some have one, or they were taken at different times.
        """
        starts = [internals_of(p).session.start for p in self.pipelines]
        if not any(starts):
            return None
        if not all(starts):
            raise RuntimeError("some pipelines have a checkpoint and some have none: pass one to each, or to none")
        # The iterator has one position, which each checkpoint repeats.
        records, positions = zip(*(r for r in starts if r is not None))
        if any(p != positions[0] for p in positions):
            raise RuntimeError(
                "the pipelines' checkpoints are of different moments: pass what one call of checkpoints() returned"
            )
        return list(records), positions[0]

    def check_outputs(self):
        """Checks the outputs against the pipelines' arguments. Pipelines of one executor share its graph."""
        for p, _ in zip(self.pipelines, self.executors):  # of one executor, the first pipeline only
            internals_of(p).session.check_outputs()

    def reseed(self, states: Sequence[dict[str, Any]]):
        """Sets the seeds of the executors, and of the pipelines, to those of executors' states."""
        for executor, state in zip(self.executors, states, strict=True):
            executor.reseed(state["seed"])
        for p in self.pipelines:
            internals = internals_of(p)
            assert internals.session.executor is not None
            internals.seed = internals.session.executor.resources.seed

    def checkpoint_with(self, method: Callable[[], list[bytes]]):
        """Makes `Pipeline.checkpoint` call a bound method, which returns the checkpoints of all pipelines. The method's
        object is not kept alive.
        """
        weak_method = weakref.WeakMethod(method)
        for i, p in enumerate(self.pipelines):
            internals_of(p).session.checkpoint_of_iterator = functools.partial(_checkpoint_of, weak_method, i)

    @property
    def at_end(self) -> bool:
        """Whether the epoch is over."""
        return any(r.at_end for r in self.runners) or (self.counter is not None and self.counter.is_over)

    def lend(self, iterator: Any) -> weakref.finalize:
        """Lends the lease to an iterator. Returns a finalizer of the iterator, which parks the runners."""
        # The runners now belong to the new iterator, and the end of the previous one must not park them.
        previous_iterator = self.user() if self.user is not None else None
        if previous_iterator is not None:
            previous_iterator._finalizer.detach()
        self.user, self.released = weakref.ref(iterator), False
        return weakref.finalize(iterator, close_collected, self._park)

    def _park(self):
        """Stops the threads but keeps the batches for the next iterator. Closes the lease at exit, or without
        pipelines.
        """
        if threading.main_thread().is_alive() and self.pipelines:
            for r in self.runners:
                r.park()
        else:
            self.close(collected=True)

    def close(self, collected: bool = False):
        """Closes runners and executors. `collected`: whether it is called because of garbage collection."""
        if not self._closed:
            self._closed = True
            close_together(self.runners, self.executors, collected=collected)

    # A default argument, because at exit the module's names may be gone already.
    def __del__(self, exiting: Callable[[], bool] = sys.is_finalizing):
        if not exiting():
            self.close(collected=True)


def own_places(pipelines: Sequence[Pipeline]) -> list[Shards]:
    """The places of pipelines that run alone, each on its own device."""
    return [Shards.single(internals_of(p).device) for p in pipelines]


def reads_the_same(pipeline: Pipeline, other: Pipeline, reader: str) -> bool:
    """Whether both pipelines have a reader of this name, with equal arguments."""
    first, second = ([n.op for n in internals_of(p).graph.nodes if n.name == reader] for p in (pipeline, other))
    return bool(first) and first == second and _first_items(first) == _first_items(second)


def _first_items(ops: Sequence[Any]) -> list[tuple[int, bytes]]:
    """The length and the first item of each data set of `readers.source`. Users' data sets can't be compared otherwise,
    and are no part of an operator's key.
    """
    parts = [part for op in ops for part in getattr(getattr(op, "data", None), "parts", ())]
    return [(len(part), pickle.dumps(part[0])) for part in parts]


def shard_of_reader(pipeline: Pipeline, reader: str) -> tuple[int, int] | None:
    """The arguments num_shards and shard_id of the reader of this name; None: there is none."""
    ops = [n.op for n in internals_of(pipeline).graph.nodes if n.name == reader and isinstance(n.op, Reader)]
    return (ops[0].num_shards, ops[0].shard_id) if ops else None


def function_over_processes(pipeline: Pipeline) -> Node | None:
    """A node of the pipeline that calls a function whose sharding has devices of other processes; None: there is none."""
    for node in internals_of(pipeline).graph.nodes:
        sharding = node.op.sharding if isinstance(node.op, EagerOperator) else None
        if sharding is not None and not sharding.is_fully_addressable:
            return node
    return None


def has_reader(pipeline: Pipeline) -> bool:
    """Whether a source of the pipeline is a reader, whose name an iterator can take."""
    return any(isinstance(node.op, Reader) for node in internals_of(pipeline).graph.nodes)


def outputs_of(pipeline: Pipeline) -> tuple[DataNode, ...]:
    """The outputs of its definition."""
    return internals_of(pipeline).graph.outputs


def num_outputs(pipeline: Pipeline) -> int:
    """The number of outputs of its definition."""
    return len(outputs_of(pipeline))


def lease(
    pipelines: Sequence[Pipeline],
    places: Sequence[Shards],
    *,
    key: Any,
    delivery: Delivery,
    finish: Sequence[Finish] | None = None,
    workers: WorkerBackend | None = None,
) -> Lease:
    """Takes over pipelines and makes the executors that run them; or takes both over from the previous iterator.

    Args:
      pipelines: at least one, one for each local shard.
      places: one place for all pipelines, which then have one executor; or one for each.
      key: the caller's class and all arguments that determine the batches. An iterator that differs in them can't
        continue.
      delivery: the form of the batches; shardings are for one place.
      finish: for each place, its own `Delivery.finish`.
      workers: where batches are made; None: in this process.

    Raises:
      ValueError: the pipelines differ in batch_size or enable_checkpointing.
      RuntimeError: a pipeline is already in use, by something that this iterator can't replace.
    """
    existing = Lease.of(pipelines, key)
    if existing is not None:
        return existing
    sizes = [p.batch_size for p in pipelines]
    if len(set(sizes)) > 1:
        raise ValueError(f"the pipelines must have one batch size, got {sizes}")
    enabled = [internals_of(p).settings.enable_checkpointing for p in pipelines]
    if len(set(enabled)) > 1:
        raise ValueError(f"enable_checkpointing must be the same for all pipelines, got {enabled}")
    groups = [pipelines] if len(places) == 1 else [[p] for p in pipelines]
    executors: list[Executor] = []
    try:
        for group, place, finish_function in zip(groups, places, finish or [None] * len(places), strict=True):
            first = group[0]
            sources = [internals_of(p).claim() for p in group]
            executor_class = Executor if workers is None else functools.partial(RemoteExecutor, workers)
            executor = executor_class(
                [internals_of(p).graph for p in group],
                place,
                internals_of(first).settings.run_options(first.seed),
                dataclasses.replace(delivery, finish=finish_function),
                setups=[setup for p in group for setup in internals_of(p).setups],
                # One pipeline's open sources serve its executor. For several, a source reads the data of all shards, so
                # the executor opens its own.
                sources=sources[0] if len(sources) == 1 else None,
            )
            executors.append(executor)
            for i, p in enumerate(group):
                session = internals_of(p).session
                assert isinstance(session, Session)  # `claim` refuses others
                session.run_by(executor, i, internals_of(p).graph)
    except BaseException:
        for e in executors:
            e.close()
        raise
    return Lease(pipelines, executors, key)


def _checkpoint_of(weak_method: weakref.WeakMethod[Callable[[], list[bytes]]], index: int) -> bytes | None:
    """The checkpoint of one pipeline, by its number among those of the iterator; None: the iterator is gone."""
    method = weak_method()
    return method()[index] if method is not None else None
