"""What the iterators of all frameworks share: the last-batch policies."""

from __future__ import annotations

import enum


class LastBatchPolicy(enum.Enum):
    """What an iterator does when the samples of an epoch don't fill its last batch.

    Attributes:
      FILL: the batch is filled, with the last sample again (padded) or with the first ones of the next epoch.
      DROP: an incomplete batch is left out.
      PARTIAL: the batch is shorter. Not for JAX iterators, as JAX needs static shapes.
    """

    FILL = 0
    DROP = 1
    PARTIAL = 2
