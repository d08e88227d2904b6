"""Pure integers: which samples a reader's shard reads, and when an epoch of an iterator is over. No I/O, no JAX."""

from __future__ import annotations

import dataclasses
import enum
import functools
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
        if self.stick_to_shard or self.shuffle_after_epoch:
            shard, epoch = self.shard_id, number
        else:
            epoch, shard = divmod(self.shard_id + number, self.num_shards)
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
          (index ``i64[n]`` in the list as given, epoch ``i64[n]``: how often the walk over the list has wrapped,
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
