"""Integer arithmetic that decides when an epoch of an iterator is over. No I/O, no JAX."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .walk import Walk, shard_bounds


@dataclasses.dataclass(frozen=True)
class EpochPlan:
    """The numbers that determine the lengths of an iterator's epochs. Make one with `of_readers` or `of_size`.

    Attributes:
      sizes: number of samples in each shard, of all shards, not only this iterator's. A `size` given by the user counts
        as one shard.
      shard_ids: the shard that each pipeline of this iterator begins with.
      batch_size: that of one pipeline.
      unit: samples that one step of the iterator takes from a shard: `batch_size`, or with `of_size` that of all
        pipelines together.
      policy: "FILL", "DROP" or "PARTIAL": what happens to the last batch if the samples don't fill it.
      padded: whether the last sample is repeated to fill it; otherwise samples of the next epoch fill it.
      stick: whether each pipeline keeps its shard; otherwise it moves to the next one in the next epoch.
      size: as given by the user; None with `of_readers`.
    """

    sizes: tuple[int, ...]
    shard_ids: tuple[int, ...]
    batch_size: int
    unit: int
    policy: str
    padded: bool
    stick: bool
    size: int | None

    def __post_init__(self):
        if self.policy not in ("FILL", "DROP", "PARTIAL"):
            raise ValueError(f"policy must be 'FILL', 'DROP' or 'PARTIAL', got {self.policy!r}")
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}")
        if self.size is not None and self.size < 1:
            raise ValueError(f"size must be at least 1 (or -1: the epoch ends when the data do), got {self.size}")

    @property
    def moves_away(self) -> bool:
        """Whether epochs of several shards leave the readers' rounds, so that after the first one the rest of an epoch
        can't be divided among another number of shards.
        """
        full = len(set(self.sizes)) == 1 and self.sizes[0] % self.unit == 0
        return self.size is None and self.policy != "FILL" and not self.padded and len(self.sizes) > 1 and not full

    @staticmethod
    def of_readers(metas: Sequence[Mapping[str, int]], batch_size: int, policy: str) -> EpochPlan:
        """From the metadata (`Walk.meta`) of the reader in each pipeline. Raises ValueError if they don't belong
        together.
        """
        for key in ("epoch_size", "number_of_shards", "pad_last_batch", "stick_to_shard"):
            values = [m[key] for m in metas]
            if any(v != values[0] for v in values):
                raise ValueError(f"the readers of all pipelines must have the same {key}, got {values}")
        meta = metas[0]
        bounds = [
            shard_bounds(meta["epoch_size"], meta["number_of_shards"], i) for i in range(meta["number_of_shards"])
        ]
        return EpochPlan(
            sizes=tuple(behind - first for first, behind in bounds),
            shard_ids=tuple(m["shard_id"] for m in metas),
            batch_size=batch_size,
            unit=batch_size,
            policy=policy,
            padded=bool(meta["pad_last_batch"]),
            stick=bool(meta["stick_to_shard"]),
            size=None,
        )

    @staticmethod
    def of_size(size: int, num_pipelines: int, batch_size: int, padded: bool, policy: str) -> EpochPlan:
        """From a number of samples for all pipelines together."""
        return EpochPlan(
            sizes=(size,),
            shard_ids=(0,) * num_pipelines,
            batch_size=batch_size,
            unit=batch_size * num_pipelines,
            policy=policy,
            padded=padded,
            stick=True,
            size=size,
        )


class EpochCounter:
    """Counts the batches of an iterator: when an epoch is over, and which samples of a batch belong to it.

    Pipelines give batches without end; this class decides after which one an epoch ends. With "FILL" and no padding,
    samples of the next epoch that fill a batch count for that epoch, per shard. An epoch ends when every shard has been
    read.
    """

    def __init__(self, plan: EpochPlan):
        self.plan = plan
        self._round = 0
        self._given = 0
        # Samples of this epoch that were taken with another batch size, before the batches that are counted.
        self._before = 0
        self._lacking = 0  # empty places in this epoch's batches, after the sources of some shards ended
        self._ended = False  # the epoch before ended under another number of shards, and `reset` has not been called
        self._ahead = np.zeros(len(plan.sizes), np.int64)  # samples read ahead of the epoch, by first shard
        self._shards = np.array(plan.sizes, np.int64)
        self._parts: dict[int, np.ndarray] = {}  # sizes of the shards in rounds that another number of shards began
        self._start()

    def _start(self):
        """Computes what `next` needs for every batch, once per epoch."""
        sizes = self._sizes()
        left = sizes - self._ahead - self._before
        self._left: list[int] = left.tolist()
        if self.plan.policy == "DROP":  # the first shard that can't fill another batch ends the epoch
            self._batches = (int(sizes.min()) - self._before) // self.plan.unit
        else:
            self._batches = -(-(int(left.max()) + self._lacking) // self.plan.unit)

    def _sizes(self) -> np.ndarray:
        """Samples of the shard that each pipeline reads in this epoch."""
        if self._round in self._parts:
            return self._parts[self._round]
        return self._shards if self.plan.stick else np.roll(self._shards, -self._round)

    @property
    def size(self) -> int:
        """Number of samples in an epoch: as given, else those of one shard; without padding rounded up to full batches,
        for this epoch.
        """
        plan = self.plan
        if plan.size is not None:
            return plan.size
        if plan.policy == "DROP":
            return int(self._sizes().min())
        return int(self._sizes().max()) if plan.padded else self._before + self._batches * plan.unit

    @property
    def length(self) -> int:
        """Number of batches in an epoch, which is ``len`` of the iterator."""
        return self.size // self.plan.unit if self.plan.policy == "DROP" else -(-self.size // self.plan.unit)

    @property
    def epoch(self) -> int:
        """Number of the epoch."""
        return self._round

    @property
    def is_over(self) -> bool:
        """Whether the epoch has ended: `reset` starts the next one."""
        return self._ended or self._given >= self._batches

    can_reset = is_over

    def valid(self) -> tuple[int, ...]:
        """How many samples of the next batch belong to this epoch, for each pipeline; they are its first ones."""
        plan = self.plan
        taken = self._given * plan.unit
        if plan.size is None:
            left = [self._left[i] - taken for i in plan.shard_ids]
        else:
            left = [self._left[0] + self._lacking - taken - plan.batch_size * i for i in range(len(plan.shard_ids))]
        return tuple(min(max(n, 0), plan.batch_size) for n in left)

    def advance(self, lacking: int = 0) -> tuple[int, ...]:
        """Counts one batch; returns its `valid`. `lacking`: its empty places, which extend an epoch of given size."""
        valid = self.valid()
        self._given += 1
        if lacking and self.plan.size is not None:
            self._lacking += lacking
            self._start()
        return valid

    def reset(self) -> int:
        """Starts the next epoch. Returns how many batches must be read and dropped before."""
        assert self.is_over
        if self._ended:
            self._ended = False
            return 0
        plan = self.plan
        dropped = 0
        if plan.policy == "DROP" and plan.padded:  # up to the end of the readers' shards
            dropped = -(-(int(self._sizes().max()) - self._before) // plan.unit) - self._given
        elif plan.policy == "DROP":
            dropped = int((int(self._sizes().min()) - self._before) % plan.unit > 0)
        elif plan.policy == "FILL" and not plan.padded:
            self._ahead += self._taken - self._sizes()
        self._round += 1
        self._given = self._before = self._lacking = 0
        # Shards smaller than a batch: a whole epoch was read ahead.
        while self._ahead.any() and (self._sizes() <= self._ahead).all():
            self._ahead -= self._sizes()
            self._round += 1
        self._start()
        return dropped

    @property
    def _taken(self) -> int:
        """Samples of each shard that were taken in this epoch."""
        return self._before + self._given * self.plan.unit

    # --- state --------------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """A JSON-able state for `set_state` of a counter with as many shards and any batch size."""
        state: dict[str, Any] = {"round": self._round, "taken": self._taken, "ahead": self._ahead.tolist()}
        if self._parts:
            state["parts"] = {str(k): v.tolist() for k, v in self._parts.items()}
        if self._ended:
            state["ended"] = True
        if self._lacking:
            state["lacking"] = self._lacking
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores a state that `get_state` returned."""
        if len(state["ahead"]) != len(self._ahead):
            raise ValueError(f"the state is of {len(state['ahead'])} shards, this iterator has {len(self._ahead)}")
        self._round = int(state["round"])
        self._given, self._before = divmod(int(state["taken"]), self.plan.unit)
        self._ahead = np.array(state["ahead"], np.int64)
        self._parts = {int(k): np.array(v, np.int64) for k, v in state.get("parts", {}).items()}
        self._ended = bool(state.get("ended", False))
        self._lacking = int(state.get("lacking", 0))
        self._start()

    def begin(self, number: int) -> None:
        """Goes to the start of an epoch, for which nothing was read ahead. Only for a new counter."""
        self._round = number
        self._start()

    def settle(self) -> int:
        """Ends an epoch that has no batches left, as `reset` does."""
        return self.reset() if self.is_over else 0

    def redistribute(
        self, old: EpochCounter, walk: Walk, cursor: dict[str, Any], before: tuple[Walk, dict[str, Any]], ended: bool
    ) -> None:
        """Continues an epoch that was begun with another number of shards. See Note [Redistribution].

        Args:
          old: the counter of those shards, after `settle`.
          walk: that of any shard of this iterator; `cursor`: as `Walk.redistributed` returned it.
          before: the walk of one of the old shards, and its cursor.
          ended: whether `settle` ended an epoch that was not reset.

        Raises:
          ValueError: the iterator's epoch is not the readers' round, so it is unknown what is left of it.
        """
        for shard, left in enumerate(old._left):
            at = before[0].beside(before[1], shard)
            read = dataclasses.replace(before[0], shard_id=shard)._count(old._round, at.get("rest"))
            left -= old._given * old.plan.unit
            wanted = (old._round, read - left) if left > 0 or before[0].pad_last_batch else (old._round + 1, -left)
            if (at["round"], at["offset"]) != wanted:
                raise ValueError(
                    f"with last_batch_policy={old.plan.policy} and without padding the epochs of the iterator have moved away from "
                    f"those of the reader (shard {shard} is at sample {at['offset']} of the reader's epoch {at['round']}), so what is left "
                    "of the epoch is not a part of the data set; pad_last_batch=True keeps them together"
                )
        self._round, self._given, self._before, self._ended = old._round, 0, 0, ended
        self._ahead = np.zeros(len(self.plan.sizes), np.int64)
        parts = ((k, walk.parts(k, cursor)) for k in (cursor["round"], cursor["round"] + 1))
        self._parts = {k: np.array(p, np.int64) for k, p in parts if p is not None}
        self._start()
