"""Integer arithmetic that decides which samples the shards of a reader read, and in which order. No I/O, no JAX."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._core.errors import ArgumentError
from .shuffle import (
    EPOCHS_SEED,
    LIST_SEED,
    Groups,
    ShufflePurpose,
    buffer_order,
    by_length,
    check_epoch,
    epoch_order,
    fractions,
    grouped_order,
    list_order,
    spread,
)


# Every batch needs the round of each shard, and computing a round takes time proportional to the list.
@functools.lru_cache(maxsize=32)
def _whole_round(walk: Walk, number: int) -> tuple[np.ndarray, np.ndarray]:
    """(index in the original list, position in the shuffled list) of the samples of a round that a shard reads as a
    whole.
    """
    index, position = _ungrouped(walk, number)
    if walk.lengths is None:
        return index, position
    seed = walk.seed if walk.random_shuffle or walk.anew else None  # None: runs do not come in random order
    order = by_length(walk.lengths.values[index], walk.group_by_length, seed, number, walk._shard(number))
    return index[order], position[order]


def _ungrouped(walk: Walk, number: int) -> tuple[np.ndarray, np.ndarray]:
    """(index, position) as `_whole_round`, before samples of similar lengths are brought together."""
    shard = walk._shard(number)
    first, end = shard_bounds(walk.size, walk.num_shards, shard)
    if walk.groups is not None:
        return _in_groups(walk, walk.groups, number)
    position = np.arange(first, end)
    if walk.random_shuffle:
        # Keyed by the shard, not by the reader, so that an epoch is the same for any number of readers.
        position = first + buffer_order(end - first, walk.initial_fill, walk.seed, number, shard)
        return list_order(walk.size, LIST_SEED, ShufflePurpose.LIST, 0)[position], position
    if walk.shuffle == "global":
        return list_order(walk.size, walk.seed, ShufflePurpose.EPOCH, number)[first:end], position
    if walk.shuffle_after_epoch:
        return epoch_order(walk.size, walk.shuffle_after_epoch_seed, number, walk.containers)[first:end], position
    return position, position


def _in_groups(walk: Walk, groups: Groups, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns (index in the original list, position in the shuffled list) of the samples that a shard reads in a round,
    if the entries come in groups that are read as a whole. The groups come in random order, and their entries are mixed
    as far as the buffer holds several groups: see Note [Shuffled groups] in shuffle.py.
    """
    shard = walk._shard(number)
    first, end = shard_bounds(walk.size, walk.num_shards, shard)
    # With "global" and `shuffle_after_epoch` each round has an order of its own, otherwise all have the same.
    seed, purpose, epoch = walk.seed, ShufflePurpose.EPOCH, number
    if walk.random_shuffle:
        seed, purpose, epoch = LIST_SEED, ShufflePurpose.LIST, 0
    elif walk.shuffle_after_epoch:
        seed = walk.shuffle_after_epoch_seed
    order, entries = grouped_order(groups, seed, purpose, epoch)
    # The number of entries of each group that the shard reads: less than the group has at the ends of the shard.
    sizes = np.diff(np.clip(np.cumsum([0, *groups.sizes[order]]), first, end))
    order, sizes = order[sizes > 0], sizes[sizes > 0]
    # When each entry comes while its group is in the buffer, and how far it moves then (None: not at all): see `spread`
    # in shuffle.py.
    times, moves = fractions(seed, ShufflePurpose.SPREAD, epoch, shard, end - first), None
    if walk.random_shuffle and walk.initial_fill > 1:
        moves = fractions(walk.seed, ShufflePurpose.MOVES, number, shard, end - first)
    position = first + spread(sizes, groups.nbytes[order], groups.buffer, times, moves, walk.initial_fill)
    return entries[position], position


@functools.lru_cache(maxsize=8)
def _unread(walk: Walk, cursor: str, number: int) -> tuple[np.ndarray, np.ndarray] | None:
    """(index, position) of the samples of a round that no shard has read when shard 0 is at a cursor. None: all
    samples.

    Args:
      walk: the walk of shard 0.
      cursor: the cursor as JSON, which can be a key of the cache.
    """
    index, position = [], []
    # Cursors are described in `Walk`.
    for shard in range(walk.num_shards):
        other_walk = dataclasses.replace(walk, shard_id=shard)
        other_cursor = walk.cursor_of_shard(json.loads(cursor), shard)
        entries, places = other_walk._round(number, other_cursor.get("rest"))
        # All if the shard is in a later round, none if it is in an earlier one.
        num_read = (
            len(entries)
            if other_cursor["round"] > number
            else other_cursor["offset"]
            if other_cursor["round"] == number
            else 0
        )
        index.append(entries[num_read:])
        position.append(places[num_read:])
    unread = np.concatenate(index), np.concatenate(position)
    return None if len(unread[0]) == walk.size else unread


def shard_bounds(size: int, num_shards: int, shard: int) -> tuple[int, int]:
    """(first entry of a shard, end of its entries)."""
    return size * shard // num_shards, size * (shard + 1) // num_shards


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """The order in which the shards of a reader read its list: arguments that every reader has.

    Attributes:
      num_shards: S, the number of shards that the list is split into.
      shard_id: the shard of the first round.
      stick_to_shard: every round reads that shard.
      pad_last_batch: repeats the last sample of each shard until the shard has ``ceil(N/S)`` samples, and then until
        the batch is full.
      random_shuffle: shuffles the list once before it is split (in the same way for all seeds), and each round of a
        shard by a shuffle buffer with `initial_fill` places.
      initial_fill: places of the shuffle buffer. With 1 every epoch has the order of the shuffled list.
      shuffle_after_epoch: instead of moving on to the next shard, every round takes the same part of a newly shuffled
        list. If the list has containers, only their order is shuffled. The orders are DALI's.
      shuffle_after_epoch_seed: the seed for `shuffle_after_epoch`, the same for all shards; None: DALI's.
      shuffle: "global": shuffles the whole list, by `seed`. Not in DALI.
      seed: the seed of the shuffle buffer or of "global"; negative: the pipeline's.
      group_by_length: this many consecutive samples have similar lengths, if the list knows lengths; 0: they are not
        grouped.
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
    group_by_length: int = 0

    def __post_init__(self):
        """Checks the arguments. Raises ArgumentError."""
        if self.num_shards < 1:
            raise ArgumentError(f"num_shards must be at least 1, got {self.num_shards}")
        if not 0 <= self.shard_id < self.num_shards:
            raise ArgumentError(f"shard_id must be 0 .. num_shards - 1 = {self.num_shards - 1}, got {self.shard_id}")
        if self.initial_fill < 1:
            raise ArgumentError(f"initial_fill must be at least 1, got {self.initial_fill}")
        if self.shuffle_after_epoch and (self.random_shuffle or self.stick_to_shard):
            option = "random_shuffle" if self.random_shuffle else "stick_to_shard"
            raise ArgumentError(f"shuffle_after_epoch can't be used together with {option}: pass one of them")
        for option in ("random_shuffle", "shuffle_after_epoch", "stick_to_shard"):
            if self.shuffle is not None and getattr(self, option):
                raise ArgumentError(f'shuffle="{self.shuffle}" can\'t be used together with {option}: pass one of them')

    @property
    def anew(self) -> bool:
        """Whether every round takes the same part of a newly shuffled list."""
        return self.shuffle_after_epoch or self.shuffle == "global"

    def shuffles(self, containers: bool) -> bool:
        """Whether the records come in random order. `containers`: whether the list has containers."""
        return self.random_shuffle or self.shuffle == "global" or (self.shuffle_after_epoch and not containers)

    def walk(
        self,
        size: int,
        seed: int,
        bounds: Sequence[int] = (),
        lengths: np.ndarray | None = None,
        groups: Groups | None = None,
    ) -> Walk:
        """The walk of a shard through a list of `size` records.

        Args:
          seed: the pipeline's seed.
          bounds: as `Walk.containers`.
          lengths: of the records, for `group_by_length`.
          groups: of the records, for random orders.
        """
        fields: dict[str, Any] = {f.name: getattr(self, f.name) for f in dataclasses.fields(Order)}
        fields["seed"] = self.seed if self.seed >= 0 else seed
        epoch_seed = self.shuffle_after_epoch_seed
        fields["shuffle_after_epoch_seed"] = (
            (EPOCHS_SEED if epoch_seed is None else epoch_seed) if self.shuffle_after_epoch else 0
        )
        length_table = Lengths(lengths) if self.group_by_length and lengths is not None else None
        containers = tuple(bounds) if self.shuffle_after_epoch else ()
        return Walk(
            size=size,
            containers=containers,
            lengths=length_table,
            groups=groups if self.shuffles(bool(containers)) else None,
            **fields,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Lengths:
    """Lengths of records, ``[N]``. It is compared by identity, so it can be part of a cache's key at any size."""

    values: np.ndarray


# Note [Redistribution]
# T shards can continue from a checkpoint of S shards. The order of a round is a function of the seed and the round
# alone. So one cursor determines what the S shards had read, and what they had not read is a list that every new shard
# can compute without the others. This list is split into T parts. Samples keep their epoch and position, and with them
# their random numbers. From the next round on the T shards split the whole list as if they had been there from the
# start.
@dataclasses.dataclass(frozen=True, kw_only=True)
class Walk(Order):
    """The way of one shard of a reader through a list of samples, in an `Order`.

    Shard i of S holds the entries ``floor(i*N/S) .. floor((i+1)*N/S) - 1``. A *round* is one pass over a shard. Unless
    the reader sticks to its shard, the next round is that of the next shard. A *cursor* ``{"round": r, "offset": o}``
    is the position of the next sample to read. Everything else is a function of it. The number of a round is called
    `number` in this class.

    All shards advance in lockstep, so one cursor determines those of all shards (`cursor_of_shard`). After a change of
    the number of shards (`redistributed`) the cursor has a third entry, ``"rest": {"start": r, "num_shards": S,
    "cursor": c}``, called `division` in this class. Then rounds r and r + 1 consist of the samples that the S shards
    had not read of them when shard 0 was at c.

    Attributes:
      size: N, entries of the list.
      containers: parts that `shuffle_after_epoch` keeps together: the first entry of each container, and the number of
        entries.
      lengths: of the entries; None: they are not grouped by length.
      groups: of the entries, for random orders; None: entries are read one by one, or in order.
      seed: the seed of the shuffle buffer, or of ``shuffle="global"``.
    """

    size: int
    containers: tuple[int, ...] = ()
    lengths: Lengths | None = None
    groups: Groups | None = None
    shuffle_after_epoch_seed: int = 0
    seed: int = 0

    def __post_init__(self):
        super().__post_init__()
        if self.size < self.num_shards:
            raise ArgumentError(
                f"there are {self.size} samples for {self.num_shards} shards; each shard needs at least one: pass a smaller num_shards "
                "(to an iterator, a sharding of fewer devices); a second reader reads all samples in each shard without num_shards "
                "and shard_id, in another order in each with seed=shard_id"
            )

    def initial(self, number: int = 0) -> dict[str, int]:
        """The cursor at the start of a round."""
        return {"round": number, "offset": 0}

    def meta(self) -> dict[str, int]:
        """The metadata that `Pipeline.reader_meta` returns."""
        return {
            "epoch_size": self.size,
            "epoch_size_padded": -(-self.size // self.num_shards) * self.num_shards
            if self.pad_last_batch
            else self.size,
            "number_of_shards": self.num_shards,
            "shard_id": self.shard_id,
            "pad_last_batch": int(self.pad_last_batch),
            "stick_to_shard": int(self.stick_to_shard or self.anew),
        }

    def _shard(self, number: int) -> int:
        """The shard that this walk reads in a round."""
        stays = self.stick_to_shard or self.anew
        return self.shard_id if stays else (self.shard_id + number) % self.num_shards

    def _remainder(self, number: int, division: dict[str, Any] | None) -> tuple[np.ndarray, np.ndarray] | None:
        """(index, position) of the samples that all shards together read in a round that other shards began. None: the
        round is a whole one.
        """
        if division is None or not division["start"] <= number <= division["start"] + 1:
            return None
        old_walk = dataclasses.replace(self, num_shards=division["num_shards"], shard_id=0)
        return _unread(old_walk, json.dumps(division["cursor"]), number)

    def parts(self, number: int, cursor: dict[str, Any]) -> list[int] | None:
        """Number of samples that each shard, by `shard_id`, reads in a round that other shards began. None: the round
        is a whole one.
        """
        remainder = self._remainder(number, cursor.get("rest"))
        if remainder is None:
            return None
        index, _ = remainder
        walks = [dataclasses.replace(self, shard_id=i) for i in range(self.num_shards)]
        return [end - first for first, end in (shard_bounds(len(index), w.num_shards, w._shard(number)) for w in walks)]

    def round_size(self, cursor: dict[str, Any]) -> int:
        """Number of samples that this shard reads in the whole round of a cursor, including padding."""
        number, division = cursor["round"], cursor.get("rest")
        return self._padded_count(number, division) if self.pad_last_batch else self._count(number, division)

    def _round(self, number: int, division: dict[str, Any] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(index in the original list, position in the shuffled list) of the samples that this shard reads in a
        round.
        """
        remainder = self._remainder(number, division)
        if remainder is not None:
            index, position = remainder
            first, end = shard_bounds(len(index), self.num_shards, self._shard(number))
            return index[first:end], position[first:end]
        return _whole_round(self, number)

    def take(
        self, cursor: dict[str, Any], n: int, batch_size: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """The next n samples, in batches of `batch_size`.

        Returns:
          (index ``i64[n]`` in the original list; epoch ``i64[n]``, the number of the round; position ``i64[n]``, the
          place in the shuffled list before the split; the new cursor). Samples that pad a shard repeat its last one,
          with its epoch and position.
        """
        number, offset, division = cursor["round"], cursor["offset"], cursor.get("rest")
        entries, places = self._round(number, division)
        if offset + n < len(entries):  # the usual case: inside one round
            block = slice(offset, offset + n)
            epoch = np.empty(n, np.int64)
            epoch.fill(number)
            return entries[block], epoch, places[block], self._cursor(number, offset + n, division)
        index, epoch, position = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
        done = 0
        while done < n:
            entries, places = self._round(number, division)
            count = len(entries)
            if self.pad_last_batch:
                # In a round that other shards began, none may remain for this shard: the last sample of another shard
                # fills its batches.
                if not count and (remainder := self._remainder(number, division)) is not None:
                    entries, places, count = remainder[0][-1:], remainder[1][-1:], 1
                # The last sample fills up a batch that reaches the end of the padded shard.
                count_in_batch = min(n - done, batch_size - done % batch_size)
                stop = done + count_in_batch
                indices = np.minimum(np.arange(offset, offset + count_in_batch), count - 1)
                index[done:stop], position[done:stop] = entries[indices], places[indices]
                offset += count_in_batch
                ended = offset >= self._padded_count(number, division)
            else:
                stop = min(n, done + count - offset)
                new_offset = offset + stop - done
                index[done:stop], position[done:stop] = entries[offset:new_offset], places[offset:new_offset]
                offset = new_offset
                ended = offset >= count
            # The epoch is the number of the round, not the number of passes of this walk. Otherwise a sample that one
            # shard read in its first round would get the same random numbers again when the previous shard reads it in
            # its second round.
            epoch[done:stop] = number
            done = stop
            if ended:
                number, offset = number + 1, 0
        return index, epoch, position, self._cursor(number, offset, division)

    @staticmethod
    def _cursor(number: int, offset: int, division: dict[str, Any] | None) -> dict[str, Any]:
        return {"round": number, "offset": offset} | ({"rest": division} if division is not None else {})

    def check(self, cursor: dict[str, Any], path: str = "cursor"):
        """Checks a cursor from a checkpoint, whose entries are whole numbers. Raises ValueError, which names the entry,
        if no walk comes to this cursor, or if its order takes hours to compute.

        Args:
          path: the place of the cursor in the checkpoint.
        """
        number, division = cursor["round"], cursor.get("rest")
        if self.shuffle_after_epoch and not self.containers and self.groups is None:
            try:
                check_epoch(self.size, number)
            except ValueError as e:
                raise ValueError(f"{path}.round is {number}: {e}") from None
        if division is not None:
            start, old_cursor = division["start"], division["cursor"]
            if not start <= old_cursor["round"] <= start + 1 or number < start:
                raise ValueError(
                    f"{path}.rest.start is {start}, but {path}.rest.cursor.round {old_cursor['round']} and {path}.round {number}"
                )
            old_walk = dataclasses.replace(self, num_shards=division["num_shards"], shard_id=0)
            old_walk.check(old_cursor, f"{path}.rest.cursor")
        if cursor["offset"] and cursor["offset"] >= (size := self.round_size(cursor)):
            raise ValueError(f"{path}.offset is {cursor['offset']}, but the shard has {size} samples in this epoch")

    # --- other shards -------------------------------------------------------------------------------------------

    def cursor_of_shard(self, cursor: dict[str, Any], shard_id: int) -> dict[str, Any]:
        """The cursor of shard `shard_id` when this one is at `cursor`.

        All shards have read equally many samples. So this method counts the samples that this shard has read since a
        round in which all shards began together, and then counts as many in the rounds of the other shard.
        """
        if self.pad_last_batch:  # rounds are equally long
            return cursor
        other_walk, division = dataclasses.replace(self, shard_id=shard_id), cursor.get("rest")
        # All shards began round `begin` together. `num_taken` counts the samples since then, and `number` goes through
        # the rounds of the other shard.
        number = begin = 0 if division is None else division["start"]
        num_taken = cursor["offset"]
        first_whole = number if division is None else number + 2  # the first round that no other shards began
        num_taken += sum(self._count(k, division) for k in range(begin, min(first_whole, cursor["round"])))
        if cursor["round"] > first_whole:
            num_taken += self._whole_rounds(first_whole, cursor["round"] - first_whole)
        while number < first_whole and num_taken >= (count := other_walk._count(number, division)):
            number, num_taken = number + 1, num_taken - count
        if number >= first_whole:
            number, num_taken = other_walk._after(number, num_taken)
        return self._cursor(number, num_taken, division)

    def _whole_rounds(self, number: int, n: int) -> int:
        """Number of samples that this shard reads in n whole rounds from round `number` on, without padding."""
        if self.stick_to_shard or self.anew:
            return n * self._count(number, division=None)
        shard = self._shard(number)  # in each round the next one; after the last shard the first one
        passes, last = divmod(shard + n, self.num_shards)
        first, end = (shard_bounds(self.size, self.num_shards, i)[0] for i in (shard, last))
        return passes * self.size + end - first

    def _after(self, number: int, n: int) -> tuple[int, int]:
        """(round, offset) of this shard n samples after the start of round `number`, if only whole rounds follow it."""
        if self.stick_to_shard or self.anew:
            rounds, offset = divmod(n, self._count(number, division=None))
            return number + rounds, offset
        first, _ = shard_bounds(self.size, self.num_shards, self._shard(number))
        passes, entry = divmod(first + n, self.size)
        shard = -(-(entry + 1) * self.num_shards // self.size) - 1  # the shard that has this entry
        first, _ = shard_bounds(self.size, self.num_shards, shard)
        return number + passes * self.num_shards + shard - self._shard(number), entry - first

    def _total(self, number: int, division: dict[str, Any] | None) -> int:
        """Number of samples that all shards together read in a round, without padding."""
        remainder = self._remainder(number, division)
        return self.size if remainder is None else len(remainder[0])

    def _count(self, number: int, division: dict[str, Any] | None) -> int:
        """Number of samples that this shard reads in a round, without padding."""
        first, end = shard_bounds(self._total(number, division), self.num_shards, self._shard(number))
        return end - first

    def _padded_count(self, number: int, division: dict[str, Any] | None) -> int:
        """Number of samples that each shard reads in a round, with padding."""
        return -(-self._total(number, division) // self.num_shards)

    def redistributed(self, cursor: dict[str, Any], num_shards: int, shard_id: int) -> dict[str, Any]:
        """The cursor from which to continue when shard `shard_id` of another number of shards was at `cursor`.

        The samples that those shards together had not read of their round, and of the next one, are split again, so
        that each sample is still read once. Samples keep their epoch and position.

        Raises:
          ValueError: the shards are more than one round apart.
        """
        old_walk = dataclasses.replace(self, num_shards=num_shards, shard_id=shard_id)
        rounds = [old_walk.cursor_of_shard(cursor, i)["round"] for i in range(num_shards)]
        if max(rounds) - min(rounds) > 1:
            raise ValueError(
                f"the {num_shards} shards, which differ in size and are read again and again without padding, have drifted "
                f"apart: they are in rounds {min(rounds)} to {max(rounds)}, so there is no common epoch to divide; "
                "pad_last_batch=True, or leaving out stick_to_shard, keeps shards together"
            )
        division = {"start": min(rounds), "num_shards": num_shards, "cursor": old_walk.cursor_of_shard(cursor, 0)}
        return {"round": min(rounds), "offset": 0, "rest": division}

    def fingerprint(self) -> dict[str, Any]:
        """The fields that determine the meaning of a cursor."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        # Stored elsewhere in the checkpoint, or in the digest.
        del fields["seed"], fields["containers"], fields["lengths"]
        if self.groups is None:  # as in checkpoints of versions without them
            del fields["groups"]
        else:
            fields["groups"] = self.groups.description
        if not self.group_by_length:  # as in checkpoints of versions without it
            del fields["group_by_length"]
        return fields
