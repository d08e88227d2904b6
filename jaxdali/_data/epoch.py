"""Pure integers: when an epoch of an iterator is over. No I/O, no JAX."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .walk import Walk, shard_bounds


@dataclasses.dataclass(frozen=True)
class EpochPlan:
    """What decides the lengths of an iterator's epochs. Make one with `of_readers` or `of_size`.

    Attributes:
      sizes: samples of each shard, of all there are, not only this iterator's; a `size` given by the user is one shard.
      shard_ids: which of them the pipelines of this iterator begin with.
      batch_size: of one pipeline.
      unit: samples of a shard that one step of the iterator takes: `batch_size`, or with `of_size` that of all pipelines.
      policy: "FILL", "DROP" or "PARTIAL": what happens to the last batch when the samples don't fill it.
      padded: whether the last sample is repeated to fill it; else it is filled from the next epoch.
      stick: whether the pipelines keep their shards; else each goes on with the next one in the next epoch.
      size: as the user gave it; None with `of_readers`.
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

    @staticmethod
    def of_readers(metas: Sequence[Mapping[str, int]], batch_size: int, policy: str) -> EpochPlan:
        """From the metadata (`Walk.meta`) of the reader in each pipeline. ValueError when they don't belong together."""
        for key in ("epoch_size", "number_of_shards", "pad_last_batch", "stick_to_shard"):
            values = [m[key] for m in metas]
            if any(v != values[0] for v in values):
                raise ValueError(f"the readers of all pipelines must have the same {key}, got {values}")
        meta = metas[0]
        bounds = [shard_bounds(meta["epoch_size"], meta["number_of_shards"], i) for i in range(meta["number_of_shards"])]
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

    Every pipeline gives batch after batch without end; this class says after which one an epoch ends. With "FILL" and no
    padding, what was read ahead of the next epoch counts for that, per shard: it ends when every shard has been read.
    """

    def __init__(self, plan: EpochPlan):
        self.plan = plan
        self._round = 0
        self._given = 0
        self._before = 0  # samples of this epoch that were taken with another batch size and fill no batch of this one
        self._lacking = 0  # places of this epoch's batches that were empty, as the sources of some shards ended before those of others
        self._ended = False  # the epoch before was over, under another number of shards, and `reset` is still to come
        self._ahead = np.zeros(len(plan.sizes), np.int64)  # per pipeline of all processes, by the shard it began with
        self._shards = np.array(plan.sizes, np.int64)
        self._parts: dict[int, np.ndarray] = {}  # the same for the rounds that another number of shards began
        self._start()

    def _start(self):
        """Works out what `next` asks for with every batch, once per epoch."""
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
        """Samples of an epoch: as given, else of one shard; without padding rounded up to full batches, of this epoch."""
        plan = self.plan
        if plan.size is not None:
            return plan.size
        if plan.policy == "DROP":
            return int(self._sizes().min())
        return int(self._sizes().max()) if plan.padded else self._before + self._batches * plan.unit

    @property
    def length(self) -> int:
        """Batches of an epoch, as ``len`` of the iterator."""
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
        """Counts one batch, in which so many places were `lacking` a sample, of an epoch of a given size; returns its `valid`."""
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
        if plan.policy == "DROP" and plan.padded:  # up to where the readers end the shard
            dropped = -(-(int(self._sizes().max()) - self._before) // plan.unit) - self._given
        elif plan.policy == "DROP":
            dropped = int((int(self._sizes().min()) - self._before) % plan.unit > 0)
        elif plan.policy == "FILL" and not plan.padded:
            self._ahead += self._taken - self._sizes()
        self._round += 1
        self._given = self._before = self._lacking = 0
        while self._ahead.any() and (self._sizes() <= self._ahead).all():  # a whole epoch was read ahead: shards smaller than a batch
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
        """JSON-able; for `set_state` of a counter of as many shards, whatever its batch size."""
        state: dict[str, Any] = {"round": self._round, "taken": self._taken, "ahead": self._ahead.tolist()}
        if self._parts:
            state["parts"] = {str(k): v.tolist() for k, v in self._parts.items()}
        if self._ended:
            state["ended"] = True
        if self._lacking:
            state["lacking"] = self._lacking
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes to the state that `get_state` returned."""
        if len(state["ahead"]) != len(self._ahead):
            raise ValueError(f"the state is of {len(state['ahead'])} shards, this iterator has {len(self._ahead)}")
        self._round = int(state["round"])
        self._given, self._before = divmod(int(state["taken"]), self.plan.unit)
        self._ahead = np.array(state["ahead"], np.int64)
        self._parts = {int(k): np.array(v, np.int64) for k, v in state.get("parts", {}).items()}
        self._ended = bool(state.get("ended", False))
        self._lacking = int(state.get("lacking", 0))
        self._start()

    def settle(self) -> int:
        """Ends an epoch of which nothing is left, as `reset` does."""
        return self.reset() if self.is_over else 0

    def redistribute(self, old: EpochCounter, walk: Walk, cursor: dict[str, Any], before: tuple[Walk, dict[str, Any]], ended: bool) -> None:
        """Goes on with the epoch that the shards of another number began.

        Args:
          old: their counter, after `settle`.
          walk: that of any shard of this iterator; `cursor`: as `Walk.redistributed` returned it.
          before: the walk of one of the shards before, and its cursor.
          ended: whether `settle` ended an epoch that was not reset.

        Raises:
          ValueError: the epoch of the iterator is not the round of the readers, so nobody knows what is left of it.
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
                    "of the epoch is no part of the data set; pad_last_batch=True keeps them together"
                )
        self._round, self._given, self._before, self._ended = old._round, 0, 0, ended
        self._ahead = np.zeros(len(self.plan.sizes), np.int64)
        parts = ((k, walk.parts(k, cursor)) for k in (cursor["round"], cursor["round"] + 1))
        self._parts = {k: np.array(p, np.int64) for k, p in parts if p is not None}
        self._start()
