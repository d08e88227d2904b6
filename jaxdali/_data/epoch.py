"""Integer arithmetic that decides when an epoch of an iterator is over. No I/O, no JAX."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._core.errors import quoted
from .walk import Walk, shard_bounds

MOST_IN_BATCH = 1 << 24  # samples of one pipeline, in states: more than a batch has


@dataclasses.dataclass(frozen=True)
class EpochPlan:
    """The numbers that determine the lengths of an iterator's epochs. Make one with `of_readers` or `of_size`.

    Attributes:
      sizes: the number of samples in each shard of the reader, not only those of this iterator. With `of_size`, all
        samples are one shard.
      shard_ids: the first shard of each pipeline of this iterator; with `of_size`, the number of the pipeline.
      batch_size: samples in a batch of one pipeline.
      unit: samples that one step of the iterator takes from a shard: `batch_size`, or with `of_size` that of all
        pipelines together, in all processes.
      policy: "FILL", "DROP" or "PARTIAL": the treatment of the last batch if the samples don't fill it.
      padded: whether the last sample is repeated to fill the last batch; otherwise samples of the next epoch fill it.
      stick: whether each pipeline keeps its shard; otherwise it moves to the next one in the next epoch.
      size: the user's number of samples in an epoch; None with `of_readers`.
      equal_parts: whether each pipeline counts an equal part of `size`, rounded up. Otherwise all count together, which
        several processes can't if their sources end at different places.
    """

    sizes: tuple[int, ...]
    shard_ids: tuple[int, ...]
    batch_size: int
    unit: int
    policy: str
    padded: bool
    stick: bool
    size: int | None
    equal_parts: bool = False

    def __post_init__(self):
        """Checks the numbers and the policy. Raises ValueError."""
        if self.policy not in ("FILL", "DROP", "PARTIAL"):
            raise ValueError(f"policy must be 'FILL', 'DROP' or 'PARTIAL', got {quoted(self.policy)}")
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}")
        if self.size is not None and self.size < 1:
            raise ValueError(f"size must be at least 1 (or -1: the epoch ends when the data do), got {self.size}")

    @property
    def moves_away(self) -> bool:
        """Whether the epochs of several shards and the readers' rounds drift apart. Then, after the first epoch, the
        remainder of an epoch can't be divided among another number of shards.
        """
        full = len(set(self.sizes)) == 1 and self.sizes[0] % self.unit == 0  # every epoch has full batches only
        return self.size is None and self.policy != "FILL" and not self.padded and len(self.sizes) > 1 and not full

    @staticmethod
    def of_readers(metas: Sequence[Mapping[str, int]], batch_size: int, policy: str) -> EpochPlan:
        """Makes a plan from the metadata (`Walk.meta`) of the reader in each pipeline. Raises ValueError if the readers
        don't belong together.
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
            sizes=tuple(end - first for first, end in bounds),
            shard_ids=tuple(m["shard_id"] for m in metas),
            batch_size=batch_size,
            unit=batch_size,
            policy=policy,
            padded=bool(meta["pad_last_batch"]),
            stick=bool(meta["stick_to_shard"]),
            size=None,
        )

    @staticmethod
    def of_size(
        size: int,
        num_pipelines: int,
        batch_size: int,
        padded: bool,
        policy: str,
        ids: Sequence[int] | None = None,
        equal_parts: bool = False,
    ) -> EpochPlan:
        """Makes a plan from the number of samples in an epoch of all pipelines together, which count as one shard.

        Args:
          num_pipelines: in all processes.
          ids: the numbers of this iterator's pipelines among them; None: it has all.
        """
        return EpochPlan(
            sizes=(size,),
            shard_ids=tuple(range(num_pipelines) if ids is None else ids),
            batch_size=batch_size,
            unit=batch_size * num_pipelines,
            policy=policy,
            padded=padded,
            stick=True,
            size=size,
            equal_parts=equal_parts,
        )


class EpochCounter:
    """Counts the batches of an iterator: when an epoch is over, and which samples of a batch belong to it.

    Pipelines give batches without end; this class decides after which one an epoch ends. With "FILL" and no padding,
    samples of the next epoch that fill a batch count for that epoch, per shard. An epoch ends when every shard has been
    read.
    """

    def __init__(self, plan: EpochPlan):
        self.plan = plan
        self._round = 0  # the number of the epoch
        self._num_batches = 0  # batches taken in this epoch
        # Samples of this epoch that were taken with another batch size, before the batches that are counted.
        self._taken_before = 0
        # Places without a sample in this epoch's batches, after the sources of some shards ended.
        self._empty_places = 0
        # Whether the previous epoch ended under another number of shards, and `reset` has not been called since.
        self._ended = False
        # Samples of this epoch that already filled up the previous one, for each walk, by its first shard.
        self._ahead = np.zeros(len(plan.sizes), np.int64)
        self._shards = np.array(plan.sizes, np.int64)
        # Sizes of the shards in rounds that another number of shards began, by round. See Note [Redistribution].
        self._parts: dict[int, np.ndarray] = {}
        self._start()

    def _start(self):
        """Computes the numbers that `valid` and `is_over` need, when an epoch starts and when its batches have empty places."""
        sizes = self._sizes()
        remaining = sizes - self._ahead - self._taken_before
        # By the pipelines' first shards: the samples of this epoch that remained before `_num_batches` began to count.
        self._remaining: list[int] = remaining.tolist()
        # Then `_batches`: the number of batches at which this epoch is over.
        if self.plan.policy == "DROP":  # the first shard that can't fill another batch ends the epoch
            self._batches = (int(sizes.min()) - self._taken_before) // self.plan.unit
        else:
            self._batches = -(-(int(remaining.max()) + self._empty_places) // self.plan.unit)

    def _sizes(self) -> np.ndarray:
        """Samples of the shard that each pipeline reads in this epoch, by the pipeline's first shard."""
        if self._round in self._parts:
            return self._parts[self._round]
        # Each pipeline moves to the next shard after each epoch, unless it keeps its shard.
        return self._shards if self.plan.stick else np.roll(self._shards, -self._round)

    @property
    def size(self) -> int:
        """Number of samples in an epoch: the user's number, or that of one shard. Without padding, it is rounded up to
        full batches, and may differ between epochs.
        """
        plan = self.plan
        if plan.size is not None:
            return plan.size
        if plan.policy == "DROP":
            return int(self._sizes().min())
        return int(self._sizes().max()) if plan.padded else self._taken_before + self._batches * plan.unit

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
        return self._ended or self._num_batches >= self._batches

    def valid(self) -> tuple[int, ...]:
        """The number of samples of the next batch that belong to this epoch, for each pipeline. They are its first
        ones.
        """
        plan = self.plan
        num_taken = self._num_batches * plan.unit
        # Either each pipeline has a shard, or all take turns with the samples of a single one, or divide it.
        if plan.size is None:
            remaining = [self._remaining[i] - num_taken for i in plan.shard_ids]
        else:
            of_all = self._remaining[0] + self._empty_places - num_taken
            part = -(-of_all // (plan.unit // plan.batch_size))
            remaining = [part if plan.equal_parts else of_all - plan.batch_size * i for i in plan.shard_ids]
        return tuple(min(max(n, 0), plan.batch_size) for n in remaining)

    def advance(self, lacking: int = 0) -> tuple[int, ...]:
        """Counts one batch, and returns its `valid`.

        Args:
          lacking: the number of places of the batch without a sample. They extend an epoch that has a `size`.
        """
        valid = self.valid()
        self._num_batches += 1
        if lacking and self.plan.size is not None:
            self._empty_places += lacking
            self._start()
        return valid

    def reset(self) -> int:
        """Starts the next epoch. Returns the number of batches that must be read and dropped before it."""
        assert self.is_over
        if self._ended:
            self._ended = False
            return 0
        plan = self.plan
        dropped = 0  # batches up to the end of the readers' shards, which this epoch does not have
        if plan.policy == "DROP" and plan.padded:
            dropped = -(-(int(self._sizes().max()) - self._taken_before) // plan.unit) - self._num_batches
        elif plan.policy == "DROP":  # the batch that the smallest shard does not fill
            dropped = int((int(self._sizes().min()) - self._taken_before) % plan.unit > 0)
        elif plan.policy == "FILL" and not plan.padded:  # the next epoch has fewer samples left
            self._ahead += self._taken - self._sizes()
        self._round += 1
        self._num_batches = self._taken_before = self._empty_places = 0
        self._pass_epochs_ahead()
        self._start()
        return dropped

    def _pass_epochs_ahead(self):
        """Passes over epochs that were read ahead as a whole, because shards are smaller than a batch."""
        sizes = self._sizes()
        while self._ahead.any() and (sizes <= self._ahead).all():
            # The sizes of whole epochs repeat, so all repetitions are passed over at once. Epochs in parts come first.
            period, samples = (1, sizes) if self.plan.stick else (len(sizes), sizes.sum())
            times = 0 if max(self._parts, default=-1) >= self._round else int((self._ahead // samples).min())
            if times:
                self._ahead -= times * samples
                self._round += times * period
            else:
                self._ahead -= sizes
                self._round += 1
            sizes = self._sizes()

    @property
    def _taken(self) -> int:
        """Samples of each shard that were taken in this epoch."""
        return self._taken_before + self._num_batches * self.plan.unit

    # --- state --------------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """A JSON-able state for `set_state` of a counter with as many shards and any batch size. It lacks entries that
        have their initial values.
        """
        state: dict[str, Any] = {"round": self._round, "taken": self._taken, "ahead": self._ahead.tolist()}
        if self._parts:
            state["parts"] = {str(k): v.tolist() for k, v in self._parts.items()}
        if self._ended:
            state["ended"] = True
        if self._empty_places:
            state["lacking"] = self._empty_places
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores a state that `get_state` returned. Raises ValueError, which names the entry, if no counter comes to
        such a state.
        """
        sizes, number = self.plan.sizes, int(state["round"])
        num_taken, empty_places = int(state["taken"]), int(state.get("lacking", 0))
        ahead, parts = state["ahead"], {int(k): v for k, v in state.get("parts", {}).items()}
        if len(ahead) != len(sizes):
            raise ValueError(f"the state is of {len(ahead)} shards, this iterator has {len(sizes)}")
        # The last batch of an epoch may go beyond its end, and may have had another size than now.
        most_taken = max(sizes) + empty_places + MOST_IN_BATCH * (self.plan.unit // self.plan.batch_size)
        if not 0 <= num_taken <= most_taken:
            raise ValueError(f"iterator.counter.taken is {num_taken}, expected 0 ... {most_taken}")
        # A batch reads equally many samples of each shard, and shards differ by one sample in an epoch.
        most_ahead = max(sizes) + number
        for i, n in enumerate(ahead):
            if not 0 <= n <= most_ahead:
                raise ValueError(f"iterator.counter.ahead[{i}] is {n}, expected 0 ... {most_ahead}")
        for k, part in parts.items():
            if len(part) != len(sizes) or min(part) < 0 or max(part) - min(part) > 1 or sum(part) > sum(sizes):
                raise ValueError(
                    f"iterator.counter.parts[{k}] is {quoted(part)}, expected equal parts of {sum(sizes)} samples for {len(sizes)} shards"
                )
            if k > number + 1:
                raise ValueError(f"iterator.counter.parts has epoch {k}, after iterator.counter.round, {number}")
        self._round = number
        self._num_batches, self._taken_before = divmod(num_taken, self.plan.unit)
        self._ahead = np.array(ahead, np.int64)
        self._parts = {k: np.array(part, np.int64) for k, part in parts.items()}
        self._ended = bool(state.get("ended", False))
        self._empty_places = empty_places
        self._start()

    def begin(self, number: int) -> None:
        """Goes to the start of epoch `number`, of which no samples were read ahead. Only for a new counter."""
        self._round = number
        self._start()

    def settle(self) -> int:
        """Calls `reset` if the epoch has no batches left. Returns the number of batches to drop."""
        return self.reset() if self.is_over else 0

    def redistribute(
        self,
        old: EpochCounter,
        walk: Walk,
        cursor: dict[str, Any],
        old_position: tuple[Walk, dict[str, Any]],
        ended: bool,
    ) -> None:
        """Continues an epoch that was begun with another number of shards. Checks that the readers of the old shards
        are where the old counter expects them; then counts the samples that they left, as they are divided among the
        new shards. See Note [Redistribution] in walk.py.

        Args:
          old: the counter of the old shards, after `settle`.
          walk: the walk of any shard of this iterator.
          cursor: its cursor, as `Walk.redistributed` returned it.
          old_position: (the walk of one of the old shards, its cursor).
          ended: whether `settle` ended an epoch that was not reset.

        Raises:
          ValueError: the iterator's epoch is not the readers' round, so its remaining samples are not known.
        """
        # First the check for each old shard, then the state of the new ones: nothing of the remainder is read yet.
        old_walk, old_cursor = old_position
        for shard, remaining in enumerate(old._remaining):
            shard_cursor = old_walk.cursor_of_shard(old_cursor, shard)
            # If the iterator's epoch is the reader's round, the reader is `remaining` samples before the end of its
            # shard. If `remaining` is not positive, it is that far in the next round; or with padding still in this
            # one, where a shorter shard repeats its last sample until the longest has ended.
            shard_size = dataclasses.replace(old_walk, shard_id=shard)._count(old._round, shard_cursor.get("rest"))
            remaining -= old._num_batches * old.plan.unit
            expected = (
                (old._round, shard_size - remaining)
                if remaining > 0 or old_walk.pad_last_batch
                else (old._round + 1, -remaining)
            )
            if (shard_cursor["round"], shard_cursor["offset"]) != expected:
                raise ValueError(
                    f"with last_batch_policy={old.plan.policy} and without padding the epochs of the iterator have moved away from "
                    f"those of the reader (shard {shard} is at sample {shard_cursor['offset']} of the reader's epoch "
                    f"{shard_cursor['round']}), so what is left of the epoch is not a part of the data set; "
                    "pad_last_batch=True keeps them together"
                )
        self._round, self._num_batches, self._taken_before, self._ended = old._round, 0, 0, ended
        self._ahead = np.zeros(len(self.plan.sizes), np.int64)
        # Some of the old shards may have begun the next round, so two rounds may be left in part. A whole round (None)
        # has no entry.
        parts = ((k, walk.parts(k, cursor)) for k in (cursor["round"], cursor["round"] + 1))
        self._parts = {k: np.array(p, np.int64) for k, p in parts if p is not None}
        self._start()
