"""What readers and external_source are to the executor: a `Source` per operator, for all local shards at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.context import HostContext
from .._core.values import Spec

if TYPE_CHECKING:
    from .walk import Walk


@dataclasses.dataclass(frozen=True)
class SampleIds:
    """Which samples a batch holds: the key of their random numbers, and where they are from.

    Attributes:
      epoch: ``i64[N]``.
      position: ``i64[N]``; (epoch, position) depends neither on the number of shards nor on the batch size.
      names: N texts, as source_info has them; ``""`` where a sample has none.
      paths: the same as messages have them: files as they can be opened.
      repeated: the samples were there before: where another source has fewer, the last ones are left out.
      of_output: ``of_output(k)``: the names of output `k`, where they are not the same for all.
      present: ``bool[N]``, False for the places a smaller batch leaves empty. None: all are present.
      unread: the samples that could not be read, and why. Others are in their place, or they are not present.
    """

    epoch: np.ndarray
    position: np.ndarray
    names: Sequence[str]
    paths: Sequence[str]
    present: np.ndarray | None = None
    unread: Mapping[int, str] = dataclasses.field(default_factory=dict)
    of_output: Callable[[int], Sequence[str]] | None = None
    repeated: bool = False


@dataclasses.dataclass(frozen=True)
class Saved:
    """What a checkpoint says about one shard of a source: where it stood, and what that depends on."""

    fingerprint: dict[str, Any]
    cursor: Any


class Source:
    """Feeds one source operator of a pipeline, for the S local shards together.

    A source is a function of its cursors as far as its data allow: `read` gets the cursors and returns the new ones, so
    that a checkpoint is a list of cursors and prefetching never has to be undone.

    Attributes:
      metas: for readers, one dict per local shard, as `Pipeline.reader_meta` returns it; empty for other sources.
      fed: whether the data come from `feed`.
      ends_reads: whether `close` may be called while another thread is in `read`, which it ends.
      in_caller: whether `read` must be called in the thread that takes the batches, under its JAX settings.
      workers: threads in which it may call a function of the user at the same time, where the user wants that.
      walks: for readers, the way of each local shard through the list.
      dropped: samples at the end of the data that fill no batch, or that other shards have beyond the end of one, so that nobody gets them.
      drops_more: whether there may be more of these than it counted.
    """

    walks: Sequence[Walk] = ()
    metas: tuple[dict[str, int], ...] = ()
    fed: bool = False
    ends_reads: bool = False
    in_caller: bool = False
    workers: int = 1
    dropped: int = 0
    drops_more: bool = False

    def use(self, outputs: frozenset[int]) -> None:
        """Told before anything else which outputs are used."""

    def specs(self) -> tuple[Spec, ...]:
        """Specs of the outputs. May look at the first batch, which the next `read` then returns."""
        raise NotImplementedError(type(self).__name__)

    def first_shape(self, output: int) -> tuple[int, ...] | None:
        """Shape of the first sample of an output, where it can be had before anything is read; None otherwise."""
        return None

    def fingerprint(self) -> list[dict[str, Any]]:
        """What the meaning of a cursor depends on, JSON-able and under names that a user knows; for each local shard."""
        raise NotImplementedError(type(self).__name__)

    def reseed(self, seed: int) -> None:
        """Goes on with another seed of the pipeline, that of a checkpoint."""

    def initial(self) -> list[Any]:
        """The cursors of the start, one JSON-able value per local shard."""
        raise NotImplementedError(type(self).__name__)

    def read(self, ctx: HostContext, cursors: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any], SampleIds]:
        """Reads the next batch of every local shard.

        Returns:
          (outputs as `Operator.run` returns them, the new cursors, what was read).

        Raises:
          StopIteration: the data are at their end; `after_end` tells where the next epoch starts.
        """
        raise NotImplementedError(type(self).__name__)

    def after_end(self, cursors: Sequence[Any]) -> list[Any]:
        """The cursors from which the next epoch starts, after `read` raised StopIteration at `cursors`."""
        return list(cursors)

    def after_error(self, cursors: Sequence[Any]) -> list[Any]:
        """The cursors from which to go on after `read` raised another exception than StopIteration: its batch is consumed."""
        return list(cursors)

    def commit(self) -> None:
        """The batch that was read first of those not yet committed is whole, or lost: every source has given its part."""

    def undo(self) -> None:
        """The `read` that was called last, and is not committed, counts as not called; it may have raised an exception."""

    def saved(self, cursors: Sequence[Any]) -> list[Saved]:
        """What to write into a checkpoint, for each local shard."""
        return [Saved(f, c) for f, c in zip(self.fingerprint(), cursors, strict=True)]

    def resume(self, saved: Sequence[Saved], same_shards: bool) -> list[Any]:
        """The cursors to go on from. This source stays as it is; the `read` of these cursors takes it there.

        Args:
          saved: one for each local shard with `same_shards`; else those of other shards, at least one.
          same_shards: whether they are of this very source's shards.

        Raises:
          ValueError: they are of another source, or it is not known what remains for this number of shards.
        """
        check_fingerprints(self.fingerprint(), saved)
        if not same_shards:
            raise ValueError("it does not tell which of its data remain for another number of shards")
        return [s.cursor for s in saved]

    def feed(self, data: Any, layout: str | None = None, shard: int = 0) -> None:
        """Gives a fed source its next batch for local shard `shard`. RuntimeError where the data come from elsewhere."""
        raise RuntimeError("this source has data of its own; only an external_source without a source can be fed")

    @property
    def available(self) -> int:
        """Batches that were fed and not read yet."""
        return 0

    def pad_rounds(self) -> None:
        """Has every round of a reader filled up to full batches, as with ``pad_last_batch=True``. Before anything is read."""
        raise RuntimeError("mask_name needs a reader that can pad its rounds; pass size instead of reader_name")

    def give_rest(self) -> None:
        """Has samples at the end of the data that fill no batch given as a short one. Before anything is read."""

    @property
    def why_empty(self) -> str:
        """Why an epoch that has just ended had no data, and what to do about it; "" where the source is not to blame."""
        return ""

    def counts(self) -> Mapping[str, int]:
        """What storage did so far, for `Pipeline.statistics`: see `Store.counts`."""
        return {}

    def close(self) -> None:
        """Lets go of what the source holds, and of threads that wait for data; it is not used any more, unless `reopen` is called."""

    def reopen(self) -> None:
        """Makes a source that was closed ready for use again; what was read and not committed is undone."""


def check_fingerprints(here: Sequence[dict[str, Any]], saved: Sequence[Saved], but: Sequence[str] = ()) -> None:
    """Raises a ValueError that says in what the sources differ; `but` are names that may."""
    for i, s in enumerate(saved):
        mine = here[min(i, len(here) - 1)]
        names = [n for n in (*mine, *(n for n in s.fingerprint if n not in mine)) if n not in but]
        different = [
            f"{n} is {mine.get(n)!r} here and {s.fingerprint.get(n)!r} in the checkpoint"
            for n in names
            if mine.get(n) != s.fingerprint.get(n)
        ]
        if different:
            raise ValueError("; ".join(different))
