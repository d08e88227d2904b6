"""What readers and external_source are to the executor: a `Source` per operator, for all local shards at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .graph import Spec

if TYPE_CHECKING:
    from .host import HostContext


@dataclasses.dataclass(frozen=True)
class SampleIds:
    """Which samples a batch holds: the key of their random numbers, and their names for messages.

    Attributes:
      epoch: ``i64[N]``.
      position: ``i64[N]``; (epoch, position) depends neither on the number of shards nor on the batch size.
      names: N texts, e.g. paths; ``""`` where a sample has none.
      present: ``bool[N]``, False for the places a smaller batch leaves empty. None: all are present.
    """

    epoch: np.ndarray
    position: np.ndarray
    names: Sequence[str]
    present: np.ndarray | None = None


class Source:
    """Feeds one source operator of a pipeline, for the S local shards together.

    A source is a function of its cursors as far as its data allow: `read` gets the cursors and returns the new ones, so
    that a checkpoint is a list of cursors and prefetching never has to be undone.

    Attributes:
      metas: for readers, one dict per local shard, as `Pipeline.reader_meta` returns it; empty for other sources.
      fed: whether the data come from `feed`.
    """

    metas: tuple[dict[str, int], ...] = ()
    fed: bool = False

    @property
    def meta(self) -> dict[str, int]:
        """The first local shard's metadata; {} when this is not a reader."""
        return self.metas[0] if self.metas else {}

    def specs(self) -> tuple[Spec, ...]:
        """Specs of the outputs. May look at the first batch, which the next `read` then returns."""
        raise NotImplementedError(type(self).__name__)

    def fingerprint(self) -> str:
        """A readable text that two sources share only when a cursor of one means the same to the other."""
        raise NotImplementedError(type(self).__name__)

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

    def feed(self, data: Any, layout: str | None = None, shard: int = 0) -> None:
        """Gives a fed source its next batch for local shard `shard`. RuntimeError where the data come from elsewhere."""
        raise RuntimeError("this source has data of its own; only an external_source without a source can be fed")

    def close(self) -> None:
        """Lets go of what the source holds; it is not used any more."""
