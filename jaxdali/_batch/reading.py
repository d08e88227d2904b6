"""Reads the sources, which is the first stage of a batch, and computes the state after it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from .._core.errors import ArgumentError, OperatorError, located_message
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
      graph: of the pipeline.
      sources: by the id of their node.
      resources: the resources for making batches.
      bound: the plan.
      host: makes the contexts of the sources, and stores what they return.
      name: name of the source that determines the epoch and position of samples; None: the first.
      setups: user functions that are called once for each batch before the sources are read.
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
        self._is_set_up = False
        named = [n for n in self._nodes if n.name == name]
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
        """The state of the next epoch, when a source has ended this one."""
        state = copy.deepcopy(state)
        state["epoch"] += 1
        state["iteration"] = 0
        for name, source in self.named.items():
            entry = state["sources"][name]
            entry["cursors"] = source.after_end(entry["cursors"])
        return state

    @property
    def begins_in_caller(self) -> bool:
        """Whether batches begin with `begin_batch`."""
        return self.sets_up or any(s.in_caller for s in self._sources.values())

    @property
    def sets_up(self) -> bool:
        """Whether a user function is called before each batch."""
        return bool(self._setups)

    def set_up_first(self):
        """Calls it for the first batch, because fed data determine the types. Raises RuntimeError if there are no data."""
        try:
            self._set_up()
        except StopIteration:
            raise RuntimeError("there are no data: iter_setup raised StopIteration before the first batch") from None

    def _set_up(self):
        if not self._is_set_up:
            for f in self._setups:
                f()
            self._is_set_up = True

    def begin_batch(self, state: dict) -> InFlightBatch:
        """Begins a batch in the thread that takes it, under that thread's settings: sets up, and reads the sources that
        belong there.

        Returns:
          A batch that `read` completes. In its `after`, only the cursors of these sources have advanced.

        Raises:
          BaseException: for example, a KeyboardInterrupt is raised at once, and the next `begin_batch` begins the same batch.
        """
        try:
            self._set_up()
        except StopIteration:
            return InFlightBatch(state, state, ended=True)
        self._is_set_up = False
        batch = InFlightBatch(state, _following(state))
        self._read([n for n in self._nodes if self._sources[n.id].in_caller], batch)
        return batch

    def read(self, state: dict, asked: InFlightBatch | None = None) -> InFlightBatch:
        """Reads the (other) sources. The batch's `after` is the state to continue from, even if the batch fails.

        Args:
          asked: what `begin_batch` returned. Its place in those sources is known from there, the rest from `state`.

        Raises:
          StopIteration: a source has no more data.
          SourceError: a source failed in another way; it carries the state to continue from.
        """
        batch = asked or InFlightBatch(state, state)
        before, batch.before, batch.after = batch.after, state, _following(state)
        here = []
        for node in self._nodes:
            if asked is not None and self._sources[node.id].in_caller:
                batch.after["sources"][node.name] = before["sources"][node.name]
            else:
                here.append(node)
        self._read(here, batch)
        if batch.ended:
            raise StopIteration
        for source in self._sources.values():
            source.commit()
        if batch.error is not None:
            raise SourceError(batch.after) from batch.error
        for value in batch.values.values() if batch.short else ():
            value.present = batch.present
        batch.read = dict(batch.values)
        self._identify_by_number(batch, state)
        return batch

    def _identify_by_number(self, batch: InFlightBatch, state: dict):
        """Numbers the samples of a batch without sources."""
        if batch.ids is None:
            resources = self._resources
            sample = np.arange(resources.B)[None] + resources.B * np.asarray(resources.shards.ids)[:, None]
            position = (sample + state["iteration"] * resources.B * resources.shards.num).reshape(-1)
            nowhere = [""] * resources.N
            batch.identify(SampleIds(np.full(resources.N, state["epoch"]), position, names=nowhere, paths=nowhere))

    def _read(self, nodes: Sequence[Node], batch: InFlightBatch):
        """Reads a batch of some sources. All are read even if one fails or has ended, so that they stay in step."""
        for k, node in enumerate(nodes):
            entry = batch.after["sources"][node.name]
            source, before, step = self._sources[node.id], entry["cursors"], self._bound.plan.step(node.id)
            try:
                if not source.in_caller:
                    self._resources.note_call(node)
                with self._resources.meter.stage("read", node.op.name, node.name):
                    outputs, entry["cursors"], ids = source.read(self._host.context(step, batch, {}), before)
                    self._host.store(step, batch, outputs)
                batch.origins[node.id] = ids
                batch.unread += [(ids.paths[i], reason) for i, reason in ids.unread.items()]
                batch.identify(joined_ids(node, ids, batch.ids, node is self.primary))
            except StopIteration:
                # The others are still read, so that iterators which restart by themselves stay in step.
                batch.ended = True
            except BaseException as e:
                # Such as KeyboardInterrupt, which this thread must raise now.
                if source.in_caller and not isinstance(e, Exception):
                    for n in nodes[: k + 1]:
                        self._sources[n.id].undo()
                    raise
                if entry["cursors"] is before:
                    entry["cursors"] = source.after_error(before)
                if isinstance(e, ArgumentError):  # our exceptions; a user's exceptions are passed on unchanged
                    e.args = (located_message(node.op.name, node.where, e),)
                elif not isinstance(e, OperatorError):
                    e.add_note(f"in {node.op.name} (created at {node.where})")
                batch.error = batch.error or e
            finally:
                self._resources.note_call(None)


def _following(state: dict) -> dict:
    """The state after a batch, with the sources' cursors still from before it."""
    return {**state, "iteration": state["iteration"] + 1, "sources": {k: dict(v) for k, v in state["sources"].items()}}


def joined_ids(node: Node, ids: SampleIds, others: SampleIds | None, primary: bool) -> SampleIds:
    """The ids of a batch, joined with the `others` of earlier sources: a sample that one source could not read is
    absent in all.

    If a repeated batch has more samples than other sources, its last samples are left out.

    Args:
      primary: whether epoch and position are those of `ids`.

    Raises:
      OperatorError: otherwise, the sources gave different numbers of samples.
    """
    if others is None:
        return ids
    joined = dataclasses.replace(ids if primary else others, repeated=ids.repeated and others.repeated)
    if ids.present is None and others.present is None:
        return joined
    here, there = (np.ones(len(x.epoch), bool) if x.present is None else x.present for x in (ids, others))
    unread = {**others.unread, **ids.unread}
    different = (here & ~there & (not ids.repeated)) | (there & ~here & (not others.repeated))
    different[list(unread)] = False
    if different.any():
        raise node.error(
            f"it gave {int(here.sum())} samples for a batch of which another source gave {int(there.sum())}; these must agree"
        )
    return dataclasses.replace(joined, present=here & there, unread=unread)
