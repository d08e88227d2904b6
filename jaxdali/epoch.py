"""Pure integers: which samples a reader's shard reads, and when an epoch of an iterator is over. No I/O, no JAX."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .errors import ArgumentError


class _Draw(enum.IntEnum):
    """What a permutation is for: part of its counter, so that no two of them share random bits."""

    LIST = 0
    BUFFER = 1
    REST = 2
    EPOCH = 3


# The shuffled list must be the same for all shards, also for pipelines that got different seeds (DALI's examples pass
# ``seed=12 + device_id``): otherwise the shards would overlap and lose samples. So its seed is a constant, as in DALI.
_LIST_SEED = 0x6A61_7864_616C_69


def _raw(seed: int, what: _Draw, epoch: int, shard: int, n: int) -> np.ndarray:
    """n random 64-bit integers; Philox's raw stream is one that NumPy promises to keep."""
    key = np.array([seed % 2**64, 0], np.uint64)
    counter = np.array([0, epoch, shard, int(what)], np.uint64)
    return np.random.Philox(key=key, counter=counter).random_raw(n)


def _permutation(seed: int, what: _Draw, epoch: int, shard: int, n: int) -> np.ndarray:
    return np.argsort(_raw(seed, what, epoch, shard, n), kind="stable")


@functools.lru_cache(maxsize=8)
def _list_order(n: int, seed: int, what: _Draw, epoch: int) -> np.ndarray:
    """The whole list as shuffled before it is split into shards."""
    order = _permutation(seed, what, epoch, 0, n)
    order.flags.writeable = False
    return order


@functools.lru_cache(maxsize=64)
def _buffer_order(n: int, fill: int, seed: int, epoch: int, shard: int) -> np.ndarray:
    """The order in which n entries leave a shuffle buffer of `fill` places.

    The buffer holds the first `fill` entries; each step hands out the entry in a random place and puts the next one there;
    what is left in the end comes in random order.
    """
    fill = min(fill, n)
    steps = n - fill
    place = (_raw(seed, _Draw.BUFFER, epoch, shard, steps) % np.uint64(fill)).astype(np.int64)
    # Step t puts entry t + fill into its place, so what a step hands out was put there by the last step with that place.
    # The initial entries count as put there by the steps -fill .. -1.
    all_places = np.concatenate([np.arange(fill), place])
    by_place = np.argsort(all_places, kind="stable")  # entries of one place stand together, in the order they were put there
    same = all_places[by_place[1:]] == all_places[by_place[:-1]]
    order = np.empty(n, np.int64)
    order[by_place[1:][same] - fill] = by_place[:-1][same]
    last = np.append(~same, True)
    order[steps:] = by_place[last][_permutation(seed, _Draw.REST, epoch, shard, fill)]
    order.flags.writeable = False
    return order


def shard_bounds(size: int, num_shards: int, shard: int) -> tuple[int, int]:
    """First entry of a shard, and the one behind its last."""
    return size * shard // num_shards, size * (shard + 1) // num_shards


@dataclasses.dataclass(frozen=True)
class Walk:
    """The way of one reader through a list of samples.

    Shard i of S holds the entries ``floor(i*N/S) .. floor((i+1)*N/S) - 1``. A *round* is one pass over a shard; unless the
    reader sticks to its shard, the next round is that of the next shard. Where the reader stands is a *cursor*
    ``{"round": r, "offset": o}``, the next sample to read: everything else is a function of it.

    Attributes:
      size: N, entries of the list.
      num_shards: S.
      shard_id: the shard the first round reads.
      stick_to_shard: every round reads that shard.
      pad_last_batch: each shard is filled with its last sample to ``ceil(N/S)``, and then to a full batch.
      random_shuffle: the list is shuffled once before it is split (the same for all seeds), and each round of a
        shard comes in an order of its own, drawn with a buffer of `initial_fill` places.
      shuffle_after_epoch: instead of moving on to the next shard, every round takes its part of a newly shuffled list.
      shuffle_after_epoch_seed: seed of that; the same for all shards.
      initial_fill: places of the shuffle buffer. 1 leaves the order of the shuffled list, the same in every epoch.
      seed: of the shuffle buffer.
    """

    size: int
    num_shards: int = 1
    shard_id: int = 0
    stick_to_shard: bool = False
    pad_last_batch: bool = False
    random_shuffle: bool = False
    shuffle_after_epoch: bool = False
    shuffle_after_epoch_seed: int = 0
    initial_fill: int = 1024
    seed: int = 0

    def __post_init__(self):
        if self.num_shards < 1:
            raise ArgumentError(f"num_shards must be at least 1, got {self.num_shards}")
        if not 0 <= self.shard_id < self.num_shards:
            raise ArgumentError(f"shard_id must be 0 .. num_shards - 1 = {self.num_shards - 1}, got {self.shard_id}")
        if self.size < self.num_shards:
            raise ArgumentError(f"there are {self.size} samples for {self.num_shards} shards; each shard needs at least one")
        if self.initial_fill < 1:
            raise ArgumentError(f"initial_fill must be at least 1, got {self.initial_fill}")
        if self.shuffle_after_epoch and (self.random_shuffle or self.stick_to_shard):
            other = "random_shuffle" if self.random_shuffle else "stick_to_shard"
            raise ArgumentError(f"shuffle_after_epoch can't be used together with {other}: pass one of them")

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
            "stick_to_shard": int(self.stick_to_shard),
        }

    def _round(self, number: int) -> tuple[np.ndarray, np.ndarray, int]:
        """One round: (index in the list as given, position in the list as shuffled, epoch)."""
        # The epoch is the number of the round, not how often the walk has wrapped: that would give a sample which one shard read
        # in its first round the same random numbers again when the shard before reads it in its second.
        epoch = number
        shard = self.shard_id if self.stick_to_shard or self.shuffle_after_epoch else (self.shard_id + number) % self.num_shards
        first, behind = shard_bounds(self.size, self.num_shards, shard)
        position = np.arange(first, behind)
        if self.random_shuffle:
            # Keyed by the shard read, not by the reader: an epoch is the same however many readers share it out.
            position = first + _buffer_order(behind - first, self.initial_fill, self.seed, epoch, shard)
            return _list_order(self.size, _LIST_SEED, _Draw.LIST, 0)[position], position, epoch
        if self.shuffle_after_epoch:
            return _list_order(self.size, self.shuffle_after_epoch_seed, _Draw.EPOCH, number)[first:behind], position, epoch
        return position, position, epoch

    def take(self, cursor: dict[str, int], n: int, batch_size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, int]]:
        """The next n samples, in batches of `batch_size`.

        Returns:
          (index ``i64[n]`` in the list as given, epoch ``i64[n]``: number of the round,
          position ``i64[n]``: place in the list as shuffled before the split, the new cursor). Samples that pad a shard
          repeat its last one, epoch and position included.
        """
        number, offset = cursor["round"], cursor["offset"]
        index, epoch, position = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
        done = 0
        while done < n:
            entries, places, epoch_here = self._round(number)
            count = len(entries)
            if self.pad_last_batch:
                padded = -(-self.size // self.num_shards)
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
            epoch[done:until] = epoch_here
            done = until
            if ended:
                number, offset = number + 1, 0
        return index, epoch, position, {"round": number, "offset": offset}

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
        self._ahead = np.zeros(len(plan.sizes), np.int64)  # per pipeline of all processes, by the shard it began with
        self._shards = np.array(plan.sizes, np.int64)
        self._start()

    def _start(self):
        """Works out what `next` asks for with every batch, once per epoch."""
        left = self._sizes() - self._ahead
        self._left: list[int] = left.tolist()
        if self.plan.policy == "DROP":  # the first shard that can't fill another batch ends the epoch
            self._batches = int(self._shards.min()) // self.plan.unit
        else:
            self._batches = -(-int(left.max()) // self.plan.unit)

    def _sizes(self) -> np.ndarray:
        """Samples of the shard that each pipeline reads in this epoch."""
        return self._shards if self.plan.stick else np.roll(self._shards, -self._round)

    @property
    def size(self) -> int:
        """Samples of an epoch: as given, else of one shard; without padding rounded up to full batches, of this epoch."""
        plan = self.plan
        if plan.size is not None:
            return plan.size
        if plan.policy == "DROP":
            return int(self._shards.min())
        return int(self._shards.max()) if plan.padded else self._batches * plan.unit

    @property
    def length(self) -> int:
        """Batches of an epoch, as ``len`` of the iterator."""
        return self.size // self.plan.unit if self.plan.policy == "DROP" else -(-self.size // self.plan.unit)

    @property
    def is_over(self) -> bool:
        """Whether the epoch has ended: `reset` starts the next one."""
        return self._given >= self._batches

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
        plan = self.plan
        dropped = 0
        if plan.policy == "DROP" and plan.padded:  # up to where the readers end the shard
            dropped = -(-int(self._shards.max()) // plan.unit) - self._given
        elif plan.policy == "DROP":
            dropped = int(self._shards.min() % plan.unit > 0)
        elif plan.policy == "FILL" and not plan.padded:
            self._ahead += self._given * plan.unit - self._sizes()
        self._round += 1
        self._given = 0
        while self._ahead.any() and (self._sizes() <= self._ahead).all():  # a whole epoch was read ahead: shards smaller than a batch
            self._ahead -= self._sizes()
            self._round += 1
        self._start()
        return dropped

    def get_state(self) -> dict[str, Any]:
        """JSON-able; for `set_state` of a counter with the same plan."""
        return {"round": self._round, "given": self._given, "ahead": self._ahead.tolist()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes to the state that `get_state` returned."""
        if len(state["ahead"]) != len(self._ahead):
            raise ValueError(f"the state is of {len(state['ahead'])} shards, this iterator has {len(self._ahead)}")
        self._round, self._given = int(state["round"]), int(state["given"])
        self._ahead = np.array(state["ahead"], np.int64)
        self._start()
