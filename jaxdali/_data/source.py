"""The interface of readers and external_source to the executor: one `Source` per operator, for all local shards."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.context import HostContext
from .._core.errors import cut, quoted
from .._core.values import Spec

if TYPE_CHECKING:
    from .walk import Walk


@dataclasses.dataclass(frozen=True)
class SampleIds:
    """The identity of a batch's samples: the keys of their random numbers, and their origins.

    Attributes:
      epoch: ``i64[N]``.
      position: ``i64[N]``; (epoch, position) depends neither on the number of shards nor on the batch size.
      names: N strings for source_info; ``""`` for a sample without a name.
      paths: such strings for messages, in which files are paths that can be opened.
      repeated: whether the source returned the samples before. If another source has fewer samples, the last ones of
        this source are dropped.
      of_output: ``of_output(k)``: the names for output `k`, if outputs have different origins.
      present: ``bool[N]``, False for the empty places of a smaller batch. None: all are present.
      unread: the samples that could not be read, with the reason. Others replace them, or they are not present.
    """

    epoch: np.ndarray
    position: np.ndarray
    names: Sequence[str]
    paths: Sequence[str]
    present: np.ndarray | None = None
    unread: Mapping[int, str] = dataclasses.field(default_factory=dict)
    of_output: Callable[[int], Sequence[str]] | None = None
    repeated: bool = False

    @staticmethod
    def unnamed(epoch: np.ndarray, position: np.ndarray) -> SampleIds:
        """The ids of samples that have neither names nor files."""
        no_names = [""] * len(position)
        return SampleIds(epoch, position, names=no_names, paths=no_names)


@dataclasses.dataclass(frozen=True)
class Saved:
    """The state of one shard of a source in a checkpoint: its cursor, and the fingerprint that gives the cursor a
    meaning.
    """

    fingerprint: dict[str, Any]
    cursor: Any


class Source:
    """Gives data to one source operator of a pipeline, for all S local shards.

    As far as its data allow, a source is a function of its cursors: `read` takes cursors and returns the new ones. So a
    checkpoint is a list of cursors, and prefetching never has to be undone.

    Attributes:
      metas: for readers, one dict per local shard, as `Pipeline.reader_meta` returns it; empty for other sources.
      fed: whether `feed` provides the data.
      ends_reads: whether `close` may be called while another thread is in `read`; it ends that call.
      in_caller: whether `read` must be called in the thread that takes the batches, under its JAX settings.
      workers: number of threads in which it may call a user's function at the same time, if the user allows that.
      movable: whether other processes can read the same data, so that `advance` works.
      walks: for readers, the walk of each local shard through the list.
      has_own_states: whether a shard continues from its own state alone, that of a user's object with get_state.
      dropped: number of samples at the end of the data that no batch contains, because they do not fill one, or because
        another shard has ended.
      drops_more: whether there may be more such samples than `dropped` counts.
    """

    walks: Sequence[Walk] = ()
    metas: tuple[dict[str, int], ...] = ()
    fed: bool = False
    ends_reads: bool = False
    in_caller: bool = False
    workers: int = 1
    movable: bool = False
    has_own_states: bool = False
    dropped: int = 0
    drops_more: bool = False

    def set_used_outputs(self, outputs: frozenset[int]) -> None:
        """Tells the source which outputs are used. It is called before all other methods."""

    def specs(self) -> tuple[Spec, ...]:
        """Specs of the outputs. It may read the first batch, which the next `read` then returns."""
        raise NotImplementedError(type(self).__name__)

    def compact(self) -> tuple[Spec, Any] | None:
        """A form of the first output that has fewer bytes: its spec, and the `ProgramOperator` that makes the output
        from it. None: there is no such form.

        It is for accelerators, see Note [The cut]. `read` returns the form that `HostContext.spec` has.
        """
        return None

    def first_shape(self, output: int) -> tuple[int, ...] | None:
        """Shape of an output's first sample, if it is known before anything is read; None otherwise."""
        return None

    def seen_shape(self, output: int) -> tuple[int, ...] | None:
        """Shape of an output's first sample for a message, for which nothing is compiled; None: it is not known."""
        return self.first_shape(output)

    def doubts(self) -> Sequence[str]:
        """Warnings about properties of the data that most users don't expect. A pipeline warns once of each, after the
        operator's name.
        """
        return ()

    def fingerprint(self) -> list[dict[str, Any]]:
        """For each local shard, the JSON-able values that determine the meaning of a cursor, by names that users
        know.
        """
        raise NotImplementedError(type(self).__name__)

    def reseed(self, seed: int) -> None:
        """Continues with another seed of the pipeline, from a checkpoint."""

    def initial(self) -> list[Any]:
        """The cursors of the start, one JSON-able value per local shard."""
        raise NotImplementedError(type(self).__name__)

    def read(self, ctx: HostContext, cursors: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any], SampleIds]:
        """Reads the next batch of every local shard.

        Returns:
          (outputs in the form of `HostOperator.run`, the new cursors, the identity of the samples).

        Raises:
          StopIteration: the data have ended; `after_end` returns where the next epoch starts.
        """
        raise NotImplementedError(type(self).__name__)

    def advance(self, batch_size: int, cursors: Sequence[Any]) -> tuple[list[Any], SampleIds]:
        """Returns the cursors and the identity of the samples like `read`, but reads nothing. Only for a movable
        source.

        Samples that can't be read are not known here.
        """
        raise NotImplementedError(type(self).__name__)

    def after_end(self, cursors: Sequence[Any]) -> list[Any]:
        """The cursors from which the next epoch starts, after `read` raised StopIteration at `cursors`."""
        return list(cursors)

    def after_error(self, batch_size: int, cursors: Sequence[Any]) -> list[Any]:
        """The cursors after the batch that begins at `cursors`, for which `read` raised an exception other than
        StopIteration. The batch is lost, whatever the exception was: the other sources continue with the next one, too.
        """
        return self.advance(batch_size, cursors)[0]

    def commit(self) -> None:
        """Ends the first batch that was read and not committed: every source has given its part, or the batch is
        lost.
        """

    def undo(self) -> None:
        """Cancels the last call of `read` that is not committed, even if it raised an exception."""

    def saved(self, cursors: Sequence[Any]) -> list[Saved]:
        """The states of all local shards for a checkpoint."""
        return [Saved(f, c) for f, c in zip(self.fingerprint(), cursors, strict=True)]

    def resume(self, saved: Sequence[Saved], same_shards: bool, same_number: bool = False) -> list[Any]:
        """The cursors from which to continue. The source does not change; the next `read` with these cursors moves it.

        Args:
          saved: the states of the local shards if `same_shards`; otherwise the state of at least one other shard.
          same_shards: whether the states are of the same shards as this source's.
          same_number: whether they are of other shards among equally many, such as those of another process.

        Raises:
          ValueError: the states are of another source, or the samples that remain for this number of shards are not
            known.
        """
        check_fingerprints(self.fingerprint(), saved)
        if not same_shards:
            raise ValueError("it can't tell which of its data remain for another number of shards")
        return [s.cursor for s in saved]

    def check_restart(self, saved: Sequence[Saved]) -> None:
        """Checks that the epoch of saved states can begin anew in this source. Raises ValueError if it can't."""
        raise ValueError("only a reader can begin an epoch anew")

    def feed(self, data: Any, layout: str | None = None, shard: int = 0) -> None:
        """Gives a fed source its next batch for local shard `shard`. Raises RuntimeError if the source has its own
        data.
        """
        raise RuntimeError("this source has its own data; only an external_source without a source can be fed")

    @property
    def available(self) -> int:
        """Number of batches that were fed and not read yet."""
        return 0

    def pad_rounds(self) -> None:
        """Pads every round of a reader to full batches, as with ``pad_last_batch=True``. Call it before anything is
        read.
        """
        raise RuntimeError("mask_name needs a reader that can pad its rounds; pass size instead of reader_name")

    def give_rest(self) -> None:
        """Returns samples that do not fill a batch at the end of the data as a short batch. Call it before anything is
        read.
        """

    @property
    def why_empty(self) -> str:
        """The reason why an epoch that has just ended had no data, with a remedy; "" if the source is not the
        reason.
        """
        return ""

    def counts(self) -> Mapping[str, int]:
        """Counts of the requests to the storage, for `Pipeline.statistics`; see `Store.counts`."""
        return {}

    def close(self) -> None:
        """Releases data, and ends threads that wait for data. The source is not used afterwards, unless `reopen` is
        called.
        """

    def reopen(self) -> None:
        """Prepares a closed source for further use. Batches that were read and not committed are undone."""


def check_fingerprints(
    fingerprints: Sequence[dict[str, Any]], saved: Sequence[Saved], ignored: Sequence[str] = ()
) -> None:
    """Raises a ValueError that names the differences between the source and the source of a checkpoint, if there are
    any.

    Args:
      fingerprints: of the local shards of the source.
      saved: the states in the checkpoint.
      ignored: names of values that may differ.
    """
    for i, state in enumerate(saved):
        # There may be more states than shards here: those of other shards are compared with the last one.
        fingerprint = fingerprints[min(i, len(fingerprints) - 1)]
        # The names of the values of both, each once.
        names = [n for n in (*fingerprint, *(n for n in state.fingerprint if n not in fingerprint)) if n not in ignored]
        different = [
            f"{cut(n)} is {fingerprint.get(n)!r} here and {quoted(state.fingerprint.get(n))} in the checkpoint"
            for n in names
            if fingerprint.get(n) != state.fingerprint.get(n)
        ]
        if different:
            raise ValueError("; ".join(different))
