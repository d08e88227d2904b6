"""`BatchReader`: reads the sources, which is the first stage of a batch, and computes the state after it."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from .._core.errors import ArgumentError, OperatorError, located_message, raised_by_package
from .._core.graph import Graph, Node
from .._core.operator import SourceOperator
from .._data.source import SampleIds, Source
from .._plan.binding import BoundPlan
from .batch import InFlightBatch, SourceError
from .host_pass import HostPass
from .resources import RunResources

STATE_VERSION = 1


class BatchReader:
    """Reads the sources of a pipeline, and computes its states: JSON-able dicts with the cursors of the sources.

    Args:
      graph: the graph of the pipeline.
      sources: the sources, by the id of their node.
      resources: the resources for making batches.
      bound: the plan.
      host: makes the contexts of the sources, and stores the values that they return.
      name: name of the source that determines the epoch and position of samples; None: the first source.
      setups: user functions that are called once for each batch before the sources are read.

    Attributes:
      primary: the node of the source that determines the epoch and position of samples; None: there is no source.
    """

    def __init__(
        self,
        graph: Graph,
        sources: Mapping[int, Source],
        resources: RunResources,
        bound: BoundPlan,
        host: HostPass,
        name: str | None,
        setups: Sequence[Callable[[], None]],
    ):
        self._nodes = [n for n in graph.nodes if isinstance(n.op, SourceOperator)]
        self._sources = sources
        self._resources = resources
        self._bound = bound
        self._host = host
        self._setups = setups
        self._is_set_up = False  # whether `set_up_first` has called `setups` for the first batch
        named = [n for n in self._nodes if n.name == name]
        # The source of this name; if there is none, the first source; if there are no sources, None.
        self.primary = (named or self._nodes or [None])[0]

    @property
    def named(self) -> dict[str, Source]:
        """The sources by their operators' names."""
        return {n.name: self._sources[n.id] for n in self._nodes}

    @property
    def initial_state(self) -> dict:
        """The state before the first batch."""
        sources = {name: {"cursors": source.initial()} for name, source in self.named.items()}
        return {"version": STATE_VERSION, "seed": self._resources.seed, "epoch": 0, "iteration": 0, "sources": sources}

    def after_end(self, state: dict) -> dict:
        """Returns the first state of the next epoch, from the state in which a source ended this one."""
        state = copy.deepcopy(state)
        state["epoch"] += 1
        state["iteration"] = 0
        for name, source in self.named.items():
            entry = state["sources"][name]
            entry["cursors"] = source.after_end(entry["cursors"])
        return state

    @property
    def begins_in_caller(self) -> bool:
        """Whether each batch begins with `begin_batch`, in the thread that takes the batches."""
        return self.sets_up or any(s.in_caller for s in self._sources.values())

    @property
    def sets_up(self) -> bool:
        """Whether a user function is called before each batch."""
        return bool(self._setups)

    def set_up_first(self):
        """Calls the user functions for the first batch, because the data that they feed determine the types.

        Raises:
          RuntimeError: there are no data.
        """
        try:
            self._set_up()
        except StopIteration:
            raise RuntimeError("there are no data: iter_setup raised StopIteration before the first batch") from None

    def _set_up(self):
        """Calls the user functions, unless `set_up_first` has called them for this batch."""
        if not self._is_set_up:
            for f in self._setups:
                f()
            self._is_set_up = True

    def begin_batch(self, state: dict) -> InFlightBatch:
        """Begins a batch in the thread that takes the batches, under its settings: calls the user functions that set
        up, and reads the sources that belong to this thread.

        Returns:
          A batch that `read` completes. In its `after`, only the cursors of these sources have advanced.

        Raises:
          BaseException: for example, a KeyboardInterrupt is raised at once. The next call begins the same batch.
        """
        try:
            self._set_up()
        except StopIteration:
            return InFlightBatch(state, state, ended=True)
        batch = InFlightBatch(state, _following(state))
        self._read([n for n in self._nodes if self._sources[n.id].in_caller], batch)
        self._is_set_up = False  # the next batch needs a call of its own; one that was interrupted does not
        return batch

    def read(self, state: dict, begun: InFlightBatch | None = None) -> InFlightBatch:
        """Reads the sources of a batch. The batch's `after` is the state to continue from, even if the batch fails.

        Args:
          state: the state before the batch.
          begun: the batch that `begin_batch` returned. The sources that were read there are not read again, and their
            cursors come from it.

        Raises:
          StopIteration: a source has no more data.
          SourceError: a source failed in another way. The error has the state to continue from.
        """
        batch = begun or InFlightBatch(state, state)
        # Batches begin before the ones before them are read. So of the states in `begun` only the cursors of the
        # sources that were read there count.
        after_begin, batch.before, batch.after = batch.after, state, _following(state)
        remaining = []
        for node in self._nodes:
            if begun is not None and self._sources[node.id].in_caller:
                batch.after["sources"][node.name] = after_begin["sources"][node.name]
            else:
                remaining.append(node)
        self._read(remaining, batch)
        if batch.ended:
            raise StopIteration
        for source in self._sources.values():
            source.commit()
        if batch.error is not None:
            raise SourceError(batch.after) from batch.error
        # The sources together show which samples are absent, when some of the values are stored already.
        for value in batch.values.values() if batch.short else ():
            value.present = batch.present
        batch.read = dict(batch.values)
        self._identify_by_number(batch, state)
        return batch

    def _identify_by_number(self, batch: InFlightBatch, state: dict):
        """If a batch has no sources, which know their samples, numbers its samples one after the other, over all
        shards.
        """
        if batch.ids is None:
            resources = self._resources
            index_in_batch = np.arange(resources.B)[None] + resources.B * np.asarray(resources.shards.ids)[:, None]
            position = (index_in_batch + state["iteration"] * resources.B * resources.shards.num).reshape(-1)
            batch.identify(SampleIds.unnamed(np.full(resources.N, state["epoch"]), position))

    def _read(self, nodes: Sequence[Node], batch: InFlightBatch):
        """Reads a batch of some sources. All are read even if one fails or has ended, so that they stay in step. Stores
        their values, their new cursors (in `batch.after`) and the ids of their samples in the batch. Stores the first
        error as `batch.error`, and an end as `batch.ended`.
        """
        for k, node in enumerate(nodes):
            entry = batch.after["sources"][node.name]
            source, cursors, step = self._sources[node.id], entry["cursors"], self._bound.plan.step(node.id)
            try:
                if not source.in_caller:
                    self._resources.note_call(node)
                with self._resources.meter.stage("read", node.op.name, node.name):
                    outputs, entry["cursors"], ids = source.read(self._host.context(step, batch, {}), cursors)
                    self._host.store(step, batch, outputs)
                batch.origins[node.id] = ids
                batch.unread += [(ids.paths[i], reason) for i, reason in ids.unread.items()]
                batch.identify(joined_ids(node, ids, batch.ids, node is self.primary))
            except StopIteration:
                # The others are still read, so that iterators which restart by themselves stay in step.
                batch.ended = True
            except BaseException as e:
                # An exception such as KeyboardInterrupt must be raised in this thread now. The batch is not consumed,
                # so the sources that were read go back.
                if source.in_caller and not isinstance(e, Exception):
                    for n in nodes[: k + 1]:
                        self._sources[n.id].undo()
                    raise
                if entry["cursors"] is cursors:  # `read` itself failed, so it has not advanced them
                    entry["cursors"] = source.after_error(self._resources.B, cursors)
                batch.error = batch.error or _located(e, node)
            finally:
                self._resources.note_call(None)


def _located(e: BaseException, node: Node) -> BaseException:
    """An exception of a source, with its operator and the user's line, as far as its class allows."""
    # A frozen dataclass, for example, takes no note. That must not keep the other sources from being read.
    with contextlib.suppress(Exception):
        if isinstance(e, ArgumentError):  # our exceptions; a user's exceptions are passed on unchanged
            e.args = (located_message(node.op.name, node.where, e),)
        elif isinstance(e, MemoryError) and raised_by_package(e):
            return node.failure(e)
        elif not isinstance(e, OperatorError):
            e.add_note(f"in {node.op.name} (created at {node.where})")
    return e


def _following(state: dict) -> dict:
    """Returns a copy of a state with the next iteration. The cursors of the sources are still those before the batch."""
    return {**state, "iteration": state["iteration"] + 1, "sources": {k: dict(v) for k, v in state["sources"].items()}}


def joined_ids(node: Node, ids: SampleIds, others: SampleIds | None, primary: bool) -> SampleIds:
    """Joins the ids of a source's samples with the `others` of earlier sources. A sample that one source could not read
    is absent in all.

    If a source repeats one batch, and it has more samples than the other sources, its last samples are left out.

    Args:
      node: the node of the source, for messages.
      primary: whether epoch and position are those of `ids`; otherwise, those of `others`.

    Raises:
      OperatorError: the sources gave different numbers of samples, and none of them repeats one batch.
    """
    if others is None:
        return ids
    joined = dataclasses.replace(ids if primary else others, repeated=ids.repeated and others.repeated)
    if ids.present is None and others.present is None:
        return joined
    present, other_present = (np.ones(len(x.epoch), bool) if x.present is None else x.present for x in (ids, others))
    unread = {**others.unread, **ids.unread}
    # Places that only one of the two has. That is no error where a source that repeats its batch has more, or where a
    # sample could not be read.
    differs = (present & ~other_present & (not ids.repeated)) | (other_present & ~present & (not others.repeated))
    differs[list(unread)] = False
    if differs.any():
        raise node.error(
            f"it gave {int(present.sum())} samples for a batch of which another source gave {int(other_present.sum())}; "
            "these must agree"
        )
    return dataclasses.replace(joined, present=present & other_present, unread=unread)
