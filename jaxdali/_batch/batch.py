"""A batch while it is made, and a finished batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._core.graph import Node
from .._core.operator import Names, Setup
from .._core.ragged import Sizes
from .._core.values import Spec, Value
from .._data.source import SampleIds
from .._plan.plan import Presence, Ref, Step


@dataclasses.dataclass(frozen=True)
class BadSample:
    """A sample that could not be read or decoded, and was replaced (``on_error="replace"``) or skipped ("skip").

    Attributes:
      file: where it came from, as a path that can be opened; reason: the error; count: how often that happened so far.
    """

    file: str
    reason: str
    count: int


class EagerArrays(tuple):
    """The result of an eager function: one array for each local shard, of the samples that it was called with.

    Attributes:
      present: the samples that it was called with, ``bool[N]``; None: all.
    """

    present: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class PhaseMemory:
    """The memory of a phase's programs for one batch.

    Attributes:
      offsets: where the samples of each ragged value begin.
      needs, sizes: elements of its buffer, and bytes of each native step's working memory: as needed, and as available.
        Indexed by the places in `Phase`.
    """

    offsets: Mapping[Ref, np.ndarray]
    needs: Mapping[int, int]
    sizes: Sizes


@dataclasses.dataclass(frozen=True)
class EagerResults:
    """The results of an eager function for a batch.

    Attributes:
      outputs: of `EagerOperator.call` or `SampleOperator.call_samples`; specs: of each.
      failures, replaced: what the call added to those of the batch.
    """

    outputs: Sequence[Any]
    specs: tuple[Spec, ...]
    failures: Sequence[tuple[Step, int, int, str]]
    replaced: Sequence[tuple[str, str]]


@dataclasses.dataclass
class InFlightBatch:
    """One batch while it is made.

    Attributes:
      before, after: the states before and after the batch.
      read: the values of the sources.
      values: the shapes of all values, and the data of host values.
      setups: the setups of steps in programs, by the steps' ids.
      origins: what the sources returned about their samples, by node; names: where the samples of values came from, see
        `origins.py`.
      ids: epoch and position of each sample; drawn: in their place, the keys of the random numbers, by step.
      results: the results of programs and eager functions: arrays, `Ragged` or `EagerArrays`.
      status: for each program with native steps: (the program, these steps, codes ``i32[S*B, steps]``, their times or
        None).
      failures: samples that failed in the host pass: (step, sample, code, reason); replaced: (file, reason) of samples
        that were replaced.
      unread: the same for samples that sources could not read. It is kept when the batch is made again.
      bad: after a launch, the samples that failed and their codes, by native step; see `HostContext.bad`.
      memory: the memory of each phase's programs, by the phase's number.
      repaired: ``bool[N]``, the samples that are made again while the rest of the batch is kept; None: the whole batch
        is made.
      called: what eager functions returned, by step, for another executor that makes the batch again; None: it is not
        kept.
      tickets: for a batch that workers make, what stands for each local shard until it arrives.
      error: the exception of a source; ended: whether a source has ended. Both stop the batch after the other sources
        have been read.
    """

    before: dict
    after: dict
    read: dict[Ref, Value] = dataclasses.field(default_factory=dict)
    values: dict[Ref, Value] = dataclasses.field(default_factory=dict)
    setups: dict[int, Setup] = dataclasses.field(default_factory=dict)
    origins: dict[int, SampleIds] = dataclasses.field(default_factory=dict)
    names: dict[Ref, Names] = dataclasses.field(default_factory=dict)
    ids: SampleIds | None = None
    drawn: Mapping[int, tuple[np.ndarray, np.ndarray]] = dataclasses.field(default_factory=dict)
    results: dict[Ref, Any] = dataclasses.field(default_factory=dict)
    status: list[tuple[str, tuple[Step, ...], Any, Any]] = dataclasses.field(default_factory=list)
    failures: list[tuple[Step, int, int, str]] = dataclasses.field(default_factory=list)
    replaced: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    unread: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    bad: Mapping[int, Mapping[int, int]] = dataclasses.field(default_factory=dict)
    memory: dict[int, PhaseMemory] = dataclasses.field(default_factory=dict)
    repaired: np.ndarray | None = None
    called: dict[int, EagerResults] | None = None
    tickets: list[Any] = dataclasses.field(default_factory=list)
    error: BaseException | None = None
    ended: bool = False
    _present_in: dict[Presence | None, np.ndarray | None] = dataclasses.field(default_factory=dict)

    @property
    def present(self) -> np.ndarray | None:
        """``bool[N]``: the samples that a short batch has; None: all."""
        return self.ids.present if self.ids is not None else None

    @property
    def short(self) -> bool:
        """Whether samples are missing."""
        return self.present is not None and not self.present.all()

    def identify(self, ids: SampleIds):
        """Stores which samples the batch has, as far as the sources read so far determine it."""
        self.ids = ids
        self._present_in.clear()

    def present_in(self, presence: Presence | None) -> np.ndarray | None:
        """``bool[N]``, the samples that a step with this presence works on; None: all. Its predicates must have been
        made.
        """
        if presence in self._present_in:
            return self._present_in[presence]
        if presence is None:
            present = self.present if self.short else None
            present = (
                self.repaired if present is None else present if self.repaired is None else present & self.repaired
            )
        else:
            asked = self.values[presence.predicate].data
            assert isinstance(asked, np.ndarray), presence
            takes, outer = asked.reshape(-1).astype(bool, copy=False), self.present_in(presence.outer)
            present = takes if presence.side else ~takes
            present = present if outer is None else present & outer
        self._present_in[presence] = present
        return present

    def path_of(self, node: Node, i: int) -> str:
        """Where sample `i` of a node came from, for messages: a path that can be opened; "" if there is none."""
        ids = None if node.source is None else self.origins.get(node.source.id)
        return ids.paths[i] if ids is not None else ""


@dataclasses.dataclass
class Batch:
    """A finished batch.

    Attributes:
      outputs: one per pipeline output: a global `jax.Array` (`as_arrays`; or what `finish` made from it), otherwise a
        `Value`.
      state: the state after this batch.
      ids: epoch, position and presence of each sample.
      names: where the samples of each output came from (not with `as_arrays`).
      replaced: file and reason of each sample that was replaced or skipped.
    """

    outputs: tuple[Any, ...]
    state: dict
    ids: SampleIds
    names: tuple[Sequence[str], ...]
    replaced: Sequence[tuple[str, str]] = ()


class SourceError(Exception):
    """A source failed (the cause says how); `after` is the state to continue from."""

    def __init__(self, after: dict):
        super().__init__()
        self.after = after
