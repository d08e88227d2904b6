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
    Draw,
    Groups,
    buffer_order,
    by_length,
    epoch_order,
    fractions,
    grouped_order,
    list_order,
    spread,
)


# Every batch needs the round of each shard, and computing a round takes time proportional to the list.
@functools.lru_cache(maxsize=32)
def _whole_round(walk: Walk, number: int) -> tuple[np.ndarray, np.ndarray]:
    """(index in the list as given, position in the list as shuffled) for a round that one walk reads from its start."""
    index, position = _ungrouped(walk, number)
    if walk.lengths is None:
        return index, position
    seed = walk.seed if walk.random_shuffle or walk.anew else None
    order = by_length(walk.lengths.values[index], walk.group_by_length, seed, number, walk._shard(number))
    return index[order], position[order]


def _ungrouped(walk: Walk, number: int) -> tuple[np.ndarray, np.ndarray]:
    shard = walk._shard(number)
    first, behind = shard_bounds(walk.size, walk.num_shards, shard)
    if walk.groups is not None:
        return _in_groups(walk, walk.groups, number)
    position = np.arange(first, behind)
    if walk.random_shuffle:
        # Keyed by the shard, not by the reader, so that an epoch is the same for any number of readers.
        position = first + buffer_order(behind - first, walk.initial_fill, walk.seed, number, shard)
        return list_order(walk.size, LIST_SEED, Draw.LIST, 0)[position], position
    if walk.shuffle == "global":
        return list_order(walk.size, walk.seed, Draw.EPOCH, number)[first:behind], position
    if walk.shuffle_after_epoch:
        return epoch_order(walk.size, walk.shuffle_after_epoch_seed, number, walk.containers)[first:behind], position
    return position, position


def _in_groups(walk: Walk, groups: Groups, number: int) -> tuple[np.ndarray, np.ndarray]:
    """The same for a shuffled list of groups: see Note [Shuffled groups]."""
    shard = walk._shard(number)
    first, end = shard_bounds(walk.size, walk.num_shards, shard)
    seed, purpose, epoch = walk.seed, Draw.EPOCH, number
    if walk.random_shuffle:
        seed, purpose, epoch = LIST_SEED, Draw.LIST, 0
    elif walk.shuffle_after_epoch:
        seed = walk.shuffle_after_epoch_seed
    order, entries = grouped_order(groups, seed, purpose, epoch)
    # Of the parts of the groups that the shard reads.
    sizes = np.diff(np.clip(np.cumsum([0, *groups.sizes[order]]), first, end))
    order, sizes = order[sizes > 0], sizes[sizes > 0]
    times, moves = fractions(seed, Draw.SPREAD, epoch, shard, end - first), None
    if walk.random_shuffle and walk.initial_fill > 1:
        moves = fractions(walk.seed, Draw.MOVES, number, shard, end - first)
    position = first + spread(sizes, groups.nbytes[order], groups.buffer, times, moves, walk.initial_fill)
    return entries[position], position


@functools.lru_cache(maxsize=8)
def _unread(walk: Walk, cursor: str, number: int) -> tuple[np.ndarray, np.ndarray] | None:
    """(index, position) of the samples of a round that no shard has read when the first one is at `cursor` (JSON).
    None: all of them.
    """
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
    """The first entry of a shard, and the end of its entries."""
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
        list. Of containers only the order is shuffled. The orders are DALI's.
      shuffle_after_epoch_seed: the seed for that, the same for all shards; None: DALI's.
      shuffle: "global": shuffles the whole list, by `seed`. Not in DALI.
      seed: for the shuffle buffer or "global"; negative: the pipeline's.
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
        """The walk through a list of `size` records, in a pipeline with that seed.

        Args:
          bounds: as `Walk.containers`.
          lengths: of the records, for `group_by_length`.
          groups: of the records, for random orders.
        """
        fields: dict[str, Any] = {f.name: getattr(self, f.name) for f in dataclasses.fields(Order)}
        fields["seed"] = self.seed if self.seed >= 0 else seed
        own = self.shuffle_after_epoch_seed
        fields["shuffle_after_epoch_seed"] = (EPOCHS_SEED if own is None else own) if self.shuffle_after_epoch else 0
        of = Lengths(lengths) if self.group_by_length and lengths is not None else None
        containers = tuple(bounds) if self.shuffle_after_epoch else ()
        return Walk(
            size=size,
            containers=containers,
            lengths=of,
            groups=groups if self.shuffles(bool(containers)) else None,
            **fields,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Lengths:
    """Lengths of records, ``[N]``. Compared by identity, so that it can be part of a cache's key at any size."""

    values: np.ndarray


# Note [Redistribution]
# T shards can continue from a checkpoint of S shards. The order of a round is a function of the seed and the round
# alone. So one cursor determines what the S shards had read, and what they had not read is a list that every new shard
# can compute without the others. This list is split into T parts. Samples keep their epoch and position, and with them
# their random numbers. From the next round on the T shards split the whole list as if they had been there from the
# start.
@dataclasses.dataclass(frozen=True, kw_only=True)
class Walk(Order):
    """How one reader goes through a list of samples, in its `Order`.

    Shard i of S holds the entries ``floor(i*N/S) .. floor((i+1)*N/S) - 1``. A *round* is one pass over a shard. Unless
    the reader sticks to its shard, the next round is that of the next shard. A *cursor* ``{"round": r, "offset": o}``
    is the position of the next sample to read. Everything else is a function of it.

    All shards advance in lockstep, so one cursor determines those of all shards (`beside`). After a change of the
    number of shards (`redistributed`) the cursor has a third entry, ``"rest": {"start": r, "num_shards": S, "cursor":
    c}``. Then rounds r and r + 1 consist of what the S shards had not read of them when their first one was at c.

    Attributes:
      size: N, entries of the list.
      containers: parts that `shuffle_after_epoch` keeps together: the first entry of each container, and the number of
        entries.
      lengths: of the entries; None: they are not grouped by length.
      groups: of the entries, for random orders; None: entries are read one by one, or in order.
      seed: for the shuffle buffer, or for ``shuffle="global"``.
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
                f"there are {self.size} samples for {self.num_shards} shards; each shard needs at least one"
            )

    def initial(self, number: int = 0) -> dict[str, int]:
        """The cursor of the start of a round."""
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
        stays = self.stick_to_shard or self.anew
        return self.shard_id if stays else (self.shard_id + number) % self.num_shards

    def _left(self, number: int, rest: dict[str, Any] | None) -> tuple[np.ndarray, np.ndarray] | None:
        """(index, position) of what all shards together read in a round that other shards began. None: it is a whole
        round.
        """
        if rest is None or not rest["start"] <= number <= rest["start"] + 1:
            return None
        before = dataclasses.replace(self, num_shards=rest["num_shards"], shard_id=0)
        return _unread(before, json.dumps(rest["cursor"]), number)

    def parts(self, number: int, cursor: dict[str, Any]) -> list[int] | None:
        """Number of samples that each shard, by `shard_id`, reads in a round that other shards began. None: it is a
        whole round.
        """
        left = self._left(number, cursor.get("rest"))
        if left is None:
            return None
        walks = [dataclasses.replace(self, shard_id=i) for i in range(self.num_shards)]
        return [
            behind - first
            for first, behind in (shard_bounds(len(left[0]), w.num_shards, w._shard(number)) for w in walks)
        ]

    def round_size(self, cursor: dict[str, Any]) -> int:
        """Number of samples that this shard reads in the whole round of a cursor, including padding."""
        left = self._left(cursor["round"], cursor.get("rest"))
        if self.pad_last_batch:
            return -(-(self.size if left is None else len(left[0])) // self.num_shards)
        return self._count(cursor["round"], cursor.get("rest"))

    def _round(self, number: int, rest: dict[str, Any] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """One round: (index in the list as given, position in the list as shuffled)."""
        left = self._left(number, rest)
        if left is not None:
            first, behind = shard_bounds(len(left[0]), self.num_shards, self._shard(number))
            return left[0][first:behind], left[1][first:behind]
        return _whole_round(self, number)

    def take(
        self, cursor: dict[str, Any], n: int, batch_size: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """The next n samples, in batches of `batch_size`.

        Returns:
          (index ``i64[n]`` in the list as given, epoch ``i64[n]``: number of the round, position ``i64[n]``: place in
          the list as shuffled before the split, the new cursor). Samples that pad a shard repeat its last one, with its
          epoch and position.
        """
        number, offset, rest = cursor["round"], cursor["offset"], cursor.get("rest")
        entries, places = self._round(number, rest)
        if offset + n < len(entries):  # the usual case: inside one round
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
                # This shard has nothing left: another shard's last sample fills its batches.
                if left is not None and not count:
                    entries, places, count = left[0][-1:], left[1][-1:], 1
                padded = -(-(self.size if left is None else len(left[0])) // self.num_shards)
                # The last sample fills up a batch that reaches the end of the padded shard.
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
            # The epoch is the number of the round, not the number of passes of this walk. Otherwise a sample that one
            # shard read in its first round would get the same random numbers again when the previous shard reads it in
            # its second round.
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
        whole = number if rest is None else number + 2  # the first round that is certainly whole
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
        """After how many rounds, and samples, a shard is read again."""
        if self.stick_to_shard or self.anew:
            return 1, self._count(number, None)
        return self.num_shards, self.size

    def redistributed(self, cursor: dict[str, Any], num_shards: int, shard_id: int) -> dict[str, Any]:
        """The cursor from which to continue when shard `shard_id` of another number of shards was at `cursor`.

        What those shards together had not read of their round, and of the next one, is split again, so that each sample
        is still read once. Samples keep their epoch and position.

        Raises:
          ValueError: the shards are more than one round apart.
        """
        old = dataclasses.replace(self, num_shards=num_shards, shard_id=shard_id)
        rounds = [old.beside(cursor, i)["round"] for i in range(num_shards)]
        if max(rounds) - min(rounds) > 1:
            raise ValueError(
                f"the {num_shards} shards, which differ in size and are read again and again without padding, have drifted "
                f"apart: they are in rounds {min(rounds)} to {max(rounds)}, so there is no common epoch to divide; "
                "pad_last_batch=True, or leaving out stick_to_shard, keeps shards together"
            )
        rest = {"start": min(rounds), "num_shards": num_shards, "cursor": old.beside(cursor, 0)}
        return {"round": min(rounds), "offset": 0, "rest": rest}

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
