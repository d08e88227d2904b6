"""Pure integers: which samples a reader's shard reads, and when an epoch of an iterator is over. No I/O, no JAX."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._core.errors import ArgumentError
from .shuffle import LIST_SEED, Draw, buffer_order, list_order


@functools.lru_cache(maxsize=32)  # a batch asks for the round of each shard; making one takes time in proportion to the list
def _whole_round(walk: Walk, number: int) -> tuple[np.ndarray, np.ndarray]:
    """(index in the list as given, position in the list as shuffled) of a round that one walk reads from its start."""
    shard = walk._shard(number)
    first, behind = shard_bounds(walk.size, walk.num_shards, shard)
    position = np.arange(first, behind)
    if walk.random_shuffle:
        # Keyed by the shard read, not by the reader: an epoch is the same however many readers share it out.
        position = first + buffer_order(behind - first, walk.initial_fill, walk.seed, number, shard)
        return list_order(walk.size, LIST_SEED, Draw.LIST, 0)[position], position
    if walk.anew:
        seed = walk.seed if walk.shuffle == "global" else walk.shuffle_after_epoch_seed
        return list_order(walk.size, seed, Draw.EPOCH, number)[first:behind], position
    return position, position


@functools.lru_cache(maxsize=8)
def _unread(walk: Walk, cursor: str, number: int) -> tuple[np.ndarray, np.ndarray] | None:
    """(index, position) of what no shard has read of a round when the first one is at `cursor` (JSON); None: all of it."""
    index, position = [], []
    for shard in range(walk.num_shards):
        other = dataclasses.replace(walk, shard_id=shard)
        at = walk.beside(json.loads(cursor), shard)
        entries, places = other._round(number, at.get("rest"))
        read = len(entries) if at["round"] > number else at["offset"] if at["round"] == number else 0
        index.append(entries[read:])
        position.append(places[read:])
    left = np.concatenate(index), np.concatenate(position)
    return None if len(left[0]) == walk.size else left


def shard_bounds(size: int, num_shards: int, shard: int) -> tuple[int, int]:
    """First entry of a shard, and the one behind its last."""
    return size * shard // num_shards, size * (shard + 1) // num_shards


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """In which order the shards of a reader read its list: the arguments that every reader has.

    Attributes:
      num_shards: S, the shards that the list is split into.
      shard_id: the shard the first round reads.
      stick_to_shard: every round reads that shard.
      pad_last_batch: each shard is filled with its last sample to ``ceil(N/S)``, and then to a full batch.
      random_shuffle: the list is shuffled once before it is split (the same for all seeds), and each round of a
        shard comes in an order of its own, drawn with a buffer of `initial_fill` places.
      initial_fill: places of the shuffle buffer. 1 leaves the order of the shuffled list, the same in every epoch.
      shuffle_after_epoch: instead of moving on to the next shard, every round takes its part of a newly shuffled list.
      shuffle_after_epoch_seed: seed of that, the same for all shards; None: a fixed one.
      shuffle: "global": as `shuffle_after_epoch`, by `seed`. Beyond DALI.
      seed: of the shuffle buffer or of "global"; negative: the pipeline's.
    """

    num_shards: int = 1
    shard_id: int = 0
    stick_to_shard: bool = False
    pad_last_batch: bool = False
    random_shuffle: bool = False
    initial_fill: int = 1024
    shuffle_after_epoch: bool = False
    shuffle_after_epoch_seed: int | None = None
    shuffle: str | None = None
    seed: int = -1

    def __post_init__(self):
        if self.num_shards < 1:
            raise ArgumentError(f"num_shards must be at least 1, got {self.num_shards}")
        if not 0 <= self.shard_id < self.num_shards:
            raise ArgumentError(f"shard_id must be 0 .. num_shards - 1 = {self.num_shards - 1}, got {self.shard_id}")
        if self.initial_fill < 1:
            raise ArgumentError(f"initial_fill must be at least 1, got {self.initial_fill}")
        if self.shuffle_after_epoch and (self.random_shuffle or self.stick_to_shard):
            other = "random_shuffle" if self.random_shuffle else "stick_to_shard"
            raise ArgumentError(f"shuffle_after_epoch can't be used together with {other}: pass one of them")
        for other in ("random_shuffle", "shuffle_after_epoch", "stick_to_shard"):
            if self.shuffle is not None and getattr(self, other):
                raise ArgumentError(f'shuffle="{self.shuffle}" can\'t be used together with {other}: pass one of them')

    @property
    def anew(self) -> bool:
        """Whether every round takes its part of a newly shuffled list."""
        return self.shuffle_after_epoch or self.shuffle == "global"

    def walk(self, size: int, seed: int) -> Walk:
        """The way through a list of `size` records, in a pipeline with that seed."""
        fields: dict[str, Any] = {f.name: getattr(self, f.name) for f in dataclasses.fields(Order)}
        fields["seed"] = self.seed if self.seed >= 0 else seed
        fields["shuffle_after_epoch_seed"] = self.shuffle_after_epoch_seed or 0
        return Walk(size=size, **fields)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Walk(Order):
    """The way of one reader through a list of samples, in its `Order`.

    Shard i of S holds the entries ``floor(i*N/S) .. floor((i+1)*N/S) - 1``. A *round* is one pass over a shard; unless the
    reader sticks to its shard, the next round is that of the next shard. Where the reader stands is a *cursor*
    ``{"round": r, "offset": o}``, the next sample to read: everything else is a function of it.

    All shards advance in lockstep, so that one cursor tells all the others (`beside`). After a change of the number of shards
    (`redistributed`) the cursor has a third entry, ``"rest": {"start": r, "num_shards": S, "cursor": c}``: what the S shards before
    had not read of rounds r and r + 1 when their first one was at c is what these two rounds consist of now.

    Attributes:
      size: N, entries of the list.
      seed: of the shuffle buffer, or of ``shuffle="global"``.
    """

    size: int
    shuffle_after_epoch_seed: int = 0
    seed: int = 0

    def __post_init__(self):
        super().__post_init__()
        if self.size < self.num_shards:
            raise ArgumentError(f"there are {self.size} samples for {self.num_shards} shards; each shard needs at least one")

    def initial(self) -> dict[str, int]:
        """The cursor of the start."""
        return {"round": 0, "offset": 0}

    def meta(self) -> dict[str, int]:
        """As `Pipeline.reader_meta` returns it."""
        return {
            "epoch_size": self.size,
            "epoch_size_padded": -(-self.size // self.num_shards) * self.num_shards if self.pad_last_batch else self.size,
            "number_of_shards": self.num_shards,
            "shard_id": self.shard_id,
            "pad_last_batch": int(self.pad_last_batch),
            "stick_to_shard": int(self.stick_to_shard or self.anew),
        }

    def _shard(self, number: int) -> int:
        stays = self.stick_to_shard or self.anew
        return self.shard_id if stays else (self.shard_id + number) % self.num_shards

    def _left(self, number: int, rest: dict[str, Any] | None) -> tuple[np.ndarray, np.ndarray] | None:
        """(index, position) of what all shards together read in a round that others began; None: it is a whole one."""
        if rest is None or not rest["start"] <= number <= rest["start"] + 1:
            return None
        before = dataclasses.replace(self, num_shards=rest["num_shards"], shard_id=0)
        return _unread(before, json.dumps(rest["cursor"]), number)

    def parts(self, number: int, cursor: dict[str, Any]) -> list[int] | None:
        """How many samples each shard, in the order of `shard_id`, reads in a round that others began; None: it is a whole one."""
        left = self._left(number, cursor.get("rest"))
        if left is None:
            return None
        walks = [dataclasses.replace(self, shard_id=i) for i in range(self.num_shards)]
        return [behind - first for first, behind in (shard_bounds(len(left[0]), w.num_shards, w._shard(number)) for w in walks)]

    def _round(self, number: int, rest: dict[str, Any] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """One round: (index in the list as given, position in the list as shuffled)."""
        left = self._left(number, rest)
        if left is not None:
            first, behind = shard_bounds(len(left[0]), self.num_shards, self._shard(number))
            return left[0][first:behind], left[1][first:behind]
        return _whole_round(self, number)

    def take(self, cursor: dict[str, Any], n: int, batch_size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """The next n samples, in batches of `batch_size`.

        Returns:
          (index ``i64[n]`` in the list as given, epoch ``i64[n]``: number of the round,
          position ``i64[n]``: place in the list as shuffled before the split, the new cursor). Samples that pad a shard
          repeat its last one, epoch and position included.
        """
        number, offset, rest = cursor["round"], cursor["offset"], cursor.get("rest")
        entries, places = self._round(number, rest)
        if offset + n < len(entries):  # nearly always: inside of one round
            here = slice(offset, offset + n)
            epoch = np.empty(n, np.int64)
            epoch.fill(number)
            return entries[here], epoch, places[here], self._cursor(number, offset + n, rest)
        index, epoch, position = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
        done = 0
        while done < n:
            entries, places = self._round(number, rest)
            count = len(entries)
            if self.pad_last_batch:
                left = self._left(number, rest)
                if left is not None and not count:  # nothing is left for this shard: another one's last sample fills its batches
                    entries, places, count = left[0][-1:], left[1][-1:], 1
                padded = -(-(self.size if left is None else len(left[0])) // self.num_shards)
                # A batch that reaches the padded shard's end is filled up with the last sample.
                room = min(n - done, batch_size - done % batch_size)
                until = done + room
                which = np.minimum(np.arange(offset, offset + room), count - 1)
                index[done:until], position[done:until] = entries[which], places[which]
                offset += room
                ended = offset >= padded
            else:
                until = min(n, done + count - offset)
                behind = offset + until - done
                index[done:until], position[done:until] = entries[offset:behind], places[offset:behind]
                offset = behind
                ended = offset >= count
            # The epoch is the number of the round, not how often the walk has wrapped: that would give a sample which one shard
            # read in its first round the same random numbers again when the shard before reads it in its second.
            epoch[done:until] = number
            done = until
            if ended:
                number, offset = number + 1, 0
        return index, epoch, position, self._cursor(number, offset, rest)

    @staticmethod
    def _cursor(number: int, offset: int, rest: dict[str, Any] | None) -> dict[str, Any]:
        return {"round": number, "offset": offset} | ({"rest": rest} if rest is not None else {})

    # --- other shards -------------------------------------------------------------------------------------------

    def beside(self, cursor: dict[str, Any], shard_id: int) -> dict[str, Any]:
        """The cursor of shard `shard_id` when this one is at `cursor`."""
        if self.pad_last_batch:  # rounds are equally long
            return cursor
        other, rest = dataclasses.replace(self, shard_id=shard_id), cursor.get("rest")
        number = begin = 0 if rest is None else rest["start"]
        taken = cursor["offset"]
        whole = number if rest is None else number + 2  # the first round that is whole for certain
        taken += sum(self._count(k, rest) for k in range(begin, min(whole, cursor["round"])))
        if cursor["round"] > whole:
            rounds, period = self._period(whole)
            cycles, more = divmod(cursor["round"] - whole, rounds)
            taken += cycles * period + sum(self._count(whole + k, None) for k in range(more))
        while taken >= (count := other._count(number, rest)):
            if number >= whole and taken >= (cycle := other._period(number))[1]:
                number, taken = number + cycle[0] * (taken // cycle[1]), taken % cycle[1]
            else:
                number, taken = number + 1, taken - count
        return self._cursor(number, taken, rest)

    def _count(self, number: int, rest: dict[str, Any] | None) -> int:
        left = self._left(number, rest)
        first, behind = shard_bounds(self.size if left is None else len(left[0]), self.num_shards, self._shard(number))
        return behind - first

    def _period(self, number: int) -> tuple[int, int]:
        """After how many rounds, and samples, a shard comes again."""
        if self.stick_to_shard or self.anew:
            return 1, self._count(number, None)
        return self.num_shards, self.size

    def redistributed(self, cursor: dict[str, Any], num_shards: int, shard_id: int) -> dict[str, Any]:
        """The cursor to go on from where shard `shard_id` of another number of shards was at `cursor`.

        What these shards together had not yet read of their round, and of the next, is split anew, so that each sample is
        still read once. They keep their epoch and position.

        Raises:
          ValueError: the shards are more than a round apart.
        """
        old = dataclasses.replace(self, num_shards=num_shards, shard_id=shard_id)
        rounds = [old.beside(cursor, i)["round"] for i in range(num_shards)]
        if max(rounds) - min(rounds) > 1:
            raise ValueError(
                f"the {num_shards} shards, which differ in size and are read again and again without padding, have drifted "
                f"apart: they are in rounds {min(rounds)} to {max(rounds)}, so no epoch is there to be shared out; "
                "pad_last_batch=True, or leaving out stick_to_shard, keeps shards together"
            )
        rest = {"start": min(rounds), "num_shards": num_shards, "cursor": old.beside(cursor, 0)}
        return {"round": min(rounds), "offset": 0, "rest": rest}

    def fingerprint(self) -> dict[str, Any]:
        """The fields a cursor's meaning depends on."""
        fields = dataclasses.asdict(self)
        del fields["seed"]  # it comes from the checkpoint
        return fields


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
            self._batches = -(-int(left.max()) // self.plan.unit)

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
            left = [self._left[0] - taken - plan.batch_size * i for i in range(len(plan.shard_ids))]
        return tuple(min(max(n, 0), plan.batch_size) for n in left)

    def advance(self) -> tuple[int, ...]:
        """Counts one batch; returns its `valid`."""
        valid = self.valid()
        self._given += 1
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
        self._given = self._before = 0
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
