"""`InFlightBatch`, a batch while it is made, and `FinishedBatch`, its result."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._core.errors import printable
from .._core.graph import Node
from .._core.operator import Names, Setup
from .._core.ragged import Sizes
from .._core.redaction import redacted
from .._core.values import Spec, Value
from .._data.source import SampleIds
from .._plan.plan import Presence, Ref, Step


@dataclasses.dataclass(frozen=True)
class BadSample:
    """A sample that could not be read or decoded, and was replaced (``on_error="replace"``) or skipped ("skip").

    Attributes:
      file: the sample's file, as a path that can be opened.
      reason: the error.
      count: how often this happened so far.
    """

    file: str
    reason: str
    count: int

    @staticmethod
    def of(counts: Mapping[tuple[str, str], int]) -> list[BadSample]:
        """The bad samples of counts by (file, reason), without the secrets in URLs."""
        return [BadSample(redacted(file), printable(reason), count) for (file, reason), count in dict(counts).items()]


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
      offsets: where the samples of each ragged value begin, ``i32[N]`` in units of `ALIGNMENT` elements.
      needs: elements of the buffer of each ragged value, and bytes of each native step's working memory, that the batch
        needs. The keys are the numbers in `Phase.ragged` and `Phase.scratch`.
      sizes: the sizes that are available.
    """

    offsets: Mapping[Ref, np.ndarray]
    needs: Mapping[int, int]
    sizes: Sizes


class SampleFailure(NamedTuple):
    """A sample that failed in the host pass.

    Attributes:
      step: the step in which it failed.
      sample: its place in the batch.
      code, reason: the status code, and details or "".
    """

    step: Step
    sample: int
    code: int
    reason: str


class ProgramStatus(NamedTuple):
    """The status that a program with native steps returns beside its results.

    Attributes:
      program: its name.
      native: its native steps.
      codes: status codes ``i32[S*B, steps]``.
      times: the times of these steps; None: they are not measured, or were counted already.
    """

    program: str
    native: tuple[Step, ...]
    codes: Any
    times: Any


@dataclasses.dataclass(frozen=True)
class EagerResults:
    """The results of an eager function for a batch.

    Attributes:
      outputs: the result of `EagerOperator.call` or `SampleOperator.call_samples`.
      specs: the spec of each output.
      failures: the samples that the call marked as failed.
      replaced: (file, reason) of the samples that the call reported as replaced.
    """

    outputs: Sequence[Any]
    specs: tuple[Spec, ...]
    failures: Sequence[SampleFailure]
    replaced: Sequence[tuple[str, str]]


@dataclasses.dataclass
class InFlightBatch:
    """One batch while it is made.

    Attributes:
      before, after: the states before and after the batch.
      read: the values of the sources.
      values: the shapes of all values, and the data of host values.
      setups: the setups of steps in programs, by the steps' ids.
      origins: the ids of the samples of each source, by its node's id.
      names: where the samples of a value came from, such as their files; None: it is not known. Values are added when
        somebody asks for them, see `origins.py`.
      ids: epoch and position of each sample.
      random_keys: by step, the keys of its random numbers if they are not epoch and position: two ``[N]`` arrays that
        take the places of these.
      results: the results of programs and eager functions: arrays, `Ragged` or `EagerArrays`.
      status: the status of each program with native steps.
      failures: samples that failed in the host pass.
      replaced: (file, reason) of samples that operators replaced.
      unread: (file, reason) of samples that sources could not read. It is kept when the batch is made again.
      bad: after a launch, the samples that failed and their codes, by native step; see `HostContext.bad`.
      memory: the memory of each phase's programs, by the phase's number.
      repaired: ``bool[N]``, the samples that are made again while the rest of the batch is kept; None: the whole batch
        is made.
      eager_results: the results of eager functions, by step, for another executor that makes the batch again; None:
        they are not kept.
      tickets: for a batch that workers make, a ticket of each local shard, with which its result is fetched.
      error: the exception of a source.
      ended: whether a source has ended. This and an error stop the batch after the other sources have been read.
    """

    before: dict
    after: dict
    read: dict[Ref, Value] = dataclasses.field(default_factory=dict)
    values: dict[Ref, Value] = dataclasses.field(default_factory=dict)
    setups: dict[int, Setup] = dataclasses.field(default_factory=dict)
    origins: dict[int, SampleIds] = dataclasses.field(default_factory=dict)
    names: dict[Ref, Names] = dataclasses.field(default_factory=dict)
    ids: SampleIds | None = None
    random_keys: Mapping[int, tuple[np.ndarray, np.ndarray]] = dataclasses.field(default_factory=dict)
    results: dict[Ref, Any] = dataclasses.field(default_factory=dict)
    status: list[ProgramStatus] = dataclasses.field(default_factory=list)
    failures: list[SampleFailure] = dataclasses.field(default_factory=list)
    replaced: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    unread: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    bad: Mapping[int, Mapping[int, int]] = dataclasses.field(default_factory=dict)
    memory: dict[int, PhaseMemory] = dataclasses.field(default_factory=dict)
    repaired: np.ndarray | None = None
    eager_results: dict[int, EagerResults] | None = None
    tickets: list[Any] = dataclasses.field(default_factory=list)
    error: BaseException | None = None
    ended: bool = False
    # The results of `present_in`, which the ids determine.
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
        """Stores the ids of the batch's samples, as far as the sources read so far determine them."""
        self.ids = ids
        self._present_in.clear()

    def present_in(self, presence: Presence | None) -> np.ndarray | None:
        """Returns ``bool[N]``, the samples that a step with this presence works on; None: all. The batch must have the
        values of the predicates.
        """
        if presence in self._present_in:
            return self._present_in[presence]
        if presence is None:  # outside of branches
            present = self.present if self.short else None
            present = (
                self.repaired if present is None else present if self.repaired is None else present & self.repaired
            )
        else:
            predicate = self.values[presence.predicate].data
            assert isinstance(predicate, np.ndarray), presence
            is_true, outer = predicate.reshape(-1).astype(bool, copy=False), self.present_in(presence.outer)
            present = is_true if presence.side else ~is_true
            present = present if outer is None else present & outer
        self._present_in[presence] = present
        return present

    def path_of(self, node: Node, i: int) -> str:
        """Returns the file of sample `i` of a node, for messages: a path that can be opened; "" if there is none."""
        ids = None if node.source is None else self.origins.get(node.source.id)
        return ids.paths[i] if ids is not None else ""


@dataclasses.dataclass
class FinishedBatch:
    """A batch that is checked and complete.

    Attributes:
      outputs: one per pipeline output: a global `jax.Array` (`as_arrays`; or what `finish` made from it), otherwise a
        `Value`.
      state: the state after this batch.
      ids: epoch, position and presence of each sample.
      names: the source infos of the samples of each output (none with `as_arrays`), see `origins.py`. They are computed
        when they are read, which takes longer than reading small records.
      replaced: (file, reason) of each sample that was replaced or skipped.
    """

    outputs: tuple[Any, ...]
    state: dict
    ids: SampleIds
    names: tuple[Sequence[str], ...]
    replaced: Sequence[tuple[str, str]] = ()


class SourceError(Exception):
    """A source failed. Its own exception is the cause. `after` is the state to continue from."""

    def __init__(self, after: dict):
        super().__init__()
        self.after = after
