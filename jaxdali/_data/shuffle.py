"""Random orders of lists, in integer arithmetic. No I/O, no JAX."""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import threading

import numpy as np

from .._cpu import shuffle_epochs


class ShufflePurpose(enum.IntEnum):
    """The purpose of random numbers. It is part of Philox's counter, so that different purposes use different bits. The
    values must not change: they determine the orders of epochs.
    """

    LIST = 0  # the order of the list, once for all epochs
    BUFFER = 1  # places in the shuffle buffer
    REST = 2  # the order of the entries that are left in the buffer at the end
    EPOCH = 3  # the order of the list in one epoch
    RUNS = 4  # the order of runs of similar lengths
    SPREAD = 5  # the times of a group's entries while it is in the buffer
    MOVES = 6  # moves of entries within the time of their group


# The shuffled list must be the same for all shards, even in pipelines with different seeds (DALI's examples pass
# ``seed=12 + device_id``). Otherwise shards would overlap, and samples would be lost. So its seed is a constant, as in
# DALI.
LIST_SEED = 0x6A61_7864_616C_69  # the letters "jaxdali"

EPOCHS_SEED = 524287  # seed of `shuffle_after_epoch`, as in DALI


def raw(seed: int, purpose: ShufflePurpose, epoch: int, shard: int, n: int) -> np.ndarray:
    """n random 64-bit integers. NumPy guarantees that Philox's raw stream never changes."""
    key = np.array([seed % 2**64, 0], np.uint64)
    counter = np.array([0, epoch, shard, int(purpose)], np.uint64)
    return np.random.Philox(key=key, counter=counter).random_raw(n)


def permutation(seed: int, purpose: ShufflePurpose, epoch: int, shard: int, n: int) -> np.ndarray:
    """The numbers 0 .. n - 1 in random order."""
    return np.argsort(raw(seed, purpose, epoch, shard, n), kind="stable")


@functools.lru_cache(maxsize=8)
def list_order(n: int, seed: int, purpose: ShufflePurpose, epoch: int) -> np.ndarray:
    """The whole list in shuffled order, before it is split into shards."""
    order = permutation(seed, purpose, epoch, 0, n)
    order.flags.writeable = False
    return order


# Shuffling a list costs as much as shuffling so many entries, besides its entries. One native call shuffles about
# `_ENTRIES_AT_ONCE` entries (20 ms), and a state from a checkpoint at most `_MOST_ENTRIES` (half an hour).
_ENTRIES_OF_A_SHUFFLE = 500
_ENTRIES_AT_ONCE = 1 << 22
_MOST_ENTRIES = 1 << 38


def check_epoch(n: int, epoch: int):
    """Raises ValueError if it takes hours to compute the order of an epoch of n entries with `shuffle_after_epoch`."""
    if epoch * (n + _ENTRIES_OF_A_SHUFFLE) > _MOST_ENTRIES:
        max_epochs = _MOST_ENTRIES // (n + _ENTRIES_OF_A_SHUFFLE)
        raise ValueError(
            f"shuffle_after_epoch shuffles {n} samples once for each epoch before it, which takes hours for more than {max_epochs} epochs"
        )


class _Reshuffled:
    """The orders of a list that is shuffled again before each epoch. Each order is a shuffle of the previous one, as
    DALI shuffles file names.
    """

    def __init__(self, n: int, seed: int):
        self._n, self._seed = n, seed % 2**64
        self._lock = threading.Lock()  # guards `_last`
        self._last = self._begin()

    def _begin(self) -> tuple[int, np.ndarray]:
        return -1, np.arange(self._n)

    def at(self, epoch: int) -> np.ndarray:
        """The order of an epoch."""
        epochs_at_once = max(1, _ENTRIES_AT_ONCE // (self._n + _ENTRIES_OF_A_SHUFFLE))
        while True:  # between the steps interrupts are heard, and other threads get the lock
            with self._lock:
                last_epoch, order = self._last
                if epoch == last_epoch:
                    return order
                if epoch < last_epoch:  # the order before is not known any more
                    last_epoch, order = self._begin()
                next_epoch, order = min(epoch, last_epoch + epochs_at_once), order.copy()
                # From the shuffle after that of the last epoch to that of this one: DALI counts shuffles from 1.
                shuffle_epochs(order, self._seed, last_epoch + 2, next_epoch + 1)
                self._last = next_epoch, order  # only now: an interrupt leaves the last epoch with its order


_reshuffled = functools.lru_cache(maxsize=8)(_Reshuffled)


@functools.lru_cache(maxsize=8)
def epoch_order(n: int, seed: int, epoch: int, containers: tuple[int, ...] = ()) -> np.ndarray:
    """The list's order with `shuffle_after_epoch`, as in DALI. It is the same for all shards.

    Args:
      containers: for a list of records in containers: the first record of each container, and the number of records.
        Then only the order of the containers changes, and does not depend on earlier epochs.
    """
    if not containers:
        order = _reshuffled(n, seed).at(epoch)
    else:
        container_order = np.arange(len(containers) - 1)
        shuffle_epochs(container_order, seed % 2**64, epoch + 1, epoch + 1)  # only the shuffle of this epoch
        order = np.concatenate([np.arange(containers[k], containers[k + 1]) for k in container_order])
    order.flags.writeable = False
    return order


@functools.lru_cache(maxsize=64)
def buffer_order(n: int, fill: int, seed: int, epoch: int, shard: int) -> np.ndarray:
    """The order in which n entries leave a shuffle buffer of `fill` places.

    The buffer holds the first `fill` entries. Each step returns the entry at a random place and puts the next entry
    there. The entries that are left at the end come in random order.
    """
    fill = min(fill, n)
    steps = n - fill
    places = (raw(seed, ShufflePurpose.BUFFER, epoch, shard, steps) % np.uint64(fill)).astype(np.int64)
    # Step t returns the entry at `places[t]`, and puts entry t + fill there. So the entry that it returns was put there
    # by the last earlier step with the same place. The initial entries count as put there by the steps -fill .. -1.
    all_places = np.concatenate([np.arange(fill), places])
    # Groups the entries of each place, in the order in which they were put there.
    by_place = np.argsort(all_places, kind="stable")
    has_same_place = all_places[by_place[1:]] == all_places[by_place[:-1]]
    order = np.empty(n, np.int64)
    # Of two neighbours in `by_place` with the same place, the second one's step returns the first one.
    order[by_place[1:][has_same_place] - fill] = by_place[:-1][has_same_place]
    last = np.append(~has_same_place, True)  # marks the last entry of each place, which is left at the end
    order[steps:] = by_place[last][permutation(seed, ShufflePurpose.REST, epoch, shard, fill)]
    order.flags.writeable = False
    return order


# Note [Shuffled groups]
# A row group of a Parquet file is decoded as a whole, so in a random order of all rows each row costs a group. Lists
# with such groups have another random order, in which few groups are in memory at a time, and each is decoded once:
# 1. The groups come in random order, and the list as shuffled has their entries one group after another. Shards divide
#    that list, so a shard shares at most the first and the last of its groups with other shards.
# 2. In each shard a buffer holds consecutive groups, as many as its bytes allow. When a group has been read, the next
#    ones enter. The entries of a group come at random times while it is in the buffer, so those of all groups in the
#    buffer are mixed.
# 3. `random_shuffle` does both once for all epochs, and then moves entries as `initial_fill` says, each within the time
#    of its group.
# All of this is computed from the sizes of the groups, before anything is read. MosaicML's `py1e` shuffles in a similar
# way, in shards of equal sizes.


@dataclasses.dataclass(frozen=True, eq=False)
class Groups:
    """Groups of a list's entries that are read as a whole, see Note [Shuffled groups].

    Compared by identity, so that it can be part of a cache's key at any size.

    Attributes:
      sizes: ``i64[G]``, the number of entries of each group.
      nbytes: ``i64[G]``, the memory that each group takes, in bytes.
      buffer: bytes of the groups that a shard holds at a time. A group that is larger is alone in the buffer.
      entries: ``i64[N]``, the entries of the list, one group after another; None: they are in order.
      containers: ``i64[G]``, the container of each group; random orders mix containers evenly. None: groups come in any
        order.
    """

    sizes: np.ndarray
    nbytes: np.ndarray
    buffer: int
    entries: np.ndarray | None = None
    containers: np.ndarray | None = None

    @functools.cached_property
    def description(self) -> str:
        """A text that determines the random orders, for checkpoints and their errors. It has a digest of the arrays."""
        digest = hashlib.sha256(str(self.buffer).encode())
        for x in (self.sizes, self.nbytes, self.entries, self.containers):
            digest.update(b"-" if x is None else np.ascontiguousarray(x, np.int64).data)
        return f"{len(self.sizes)} in a buffer of {self.buffer >> 20} MB, digest {digest.hexdigest()[:16]}"


@functools.lru_cache(maxsize=8)
def grouped_order(groups: Groups, seed: int, purpose: ShufflePurpose, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    """(groups ``i64[G]`` in random order, entries ``i64[N]`` of the list in the order of their groups), before it is
    split into shards.
    """
    order = permutation(seed, purpose, epoch, 0, len(groups.sizes))
    if groups.containers is not None:
        # Mixes the containers: if the middle of a group is at 0.3 of its container, it is at 0.3 of the list.
        order = order[np.argsort(groups.containers[order], kind="stable")]
        sizes, containers = groups.sizes[order], groups.containers[order]
        total = np.bincount(containers, sizes)
        middle = np.cumsum(sizes) - (np.cumsum(total) - total)[containers] - sizes / 2
        order = order[np.argsort(middle / np.maximum(total[containers], 1), kind="stable")]
    # The entries from the first one of each group on, one group after another: at place p of the result, in a group
    # that begins at place b there, is the entry first + p - b.
    sizes = groups.sizes[order]
    first = (np.cumsum(groups.sizes) - groups.sizes)[order]
    entries = np.repeat(first - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    if groups.entries is not None:
        entries = groups.entries[entries]
    entries.flags.writeable = False
    return order, entries


def fractions(seed: int, purpose: ShufflePurpose, epoch: int, shard: int, n: int) -> np.ndarray:
    """n random numbers, ``f64[n]`` in [0, 1)."""
    bits = raw(seed, purpose, epoch, shard, n)
    bits >>= np.uint64(11)  # 53 bits remain, as many as a double has
    return bits * 2.0**-53


def spread(
    sizes: np.ndarray,
    nbytes: np.ndarray,
    buffer: int,
    times: np.ndarray,
    moves: np.ndarray | None = None,
    fill: int = 1,
) -> np.ndarray:
    """An order of the entries of consecutive groups, in which a buffer holds all groups that have begun and not ended.

    Args:
      sizes: ``i64[G]``, the number of entries of each group.
      nbytes: ``i64[G]``, the memory that each group takes, in bytes.
      buffer: bytes of the groups that the buffer holds. A group that is larger is alone in the buffer.
      times: ``f64[entries]`` in [0, 1), the time at which each entry comes: 0 when its group enters the buffer, 1 when
        it leaves.
      moves: ``f64[entries]`` in [0, 1), the moves of entries afterwards, by up to ``(fill - 1) / 2`` places, but within
        the time of their groups; None: they don't move.
    """
    last = len(sizes) - 1
    ends = np.cumsum(nbytes)
    # The first group that can still be in the buffer when a group enters, and the last group that can enter while a
    # group is there.
    earliest = np.minimum(np.searchsorted(ends - nbytes, ends - buffer), np.arange(len(sizes)))
    latest = np.searchsorted(earliest, np.arange(len(sizes)), "right") - 1
    # Time is the number of entries read. When a group has ended, half of the entries behind it in the buffer have been
    # read on average. Groups that are in the buffer at the end stay there.
    end = np.cumsum(sizes)
    leaves = np.where(latest == last, end[last], (end + end[latest]) / 2)
    enters = np.where(earliest > 0, leaves[earliest - 1], 0)
    time = times * np.repeat(leaves - enters, sizes)
    time += np.repeat(enters, sizes)
    if moves is not None:
        # Each entry moves to a random time between `first` and the last one that it may have, which `time` becomes.
        reach = (fill - 1) / 2
        first = np.maximum(time - reach, np.repeat(enters, sizes))
        time += reach
        np.minimum(time, np.repeat(leaves, sizes), out=time)
        time = first + moves * (time - first)
    return np.argsort(time, kind="stable")


# The number of runs that are sorted together: more make the lengths in a run more similar, fewer keep more of the
# previous order.
WINDOW = 50


def by_length(lengths: np.ndarray, run: int, seed: int | None, epoch: int, shard: int) -> np.ndarray:
    """An order in which each run of `run` consecutive samples has similar lengths.

    Each `WINDOW` runs of the previous order are sorted by length and cut into runs. These come in random order, or
    without `seed` in the order of their first samples. A run that is not full comes last.
    """
    order = []
    for window_number, begin in enumerate(range(0, len(lengths), WINDOW * run)):
        window = begin + np.argsort(lengths[begin : begin + WINDOW * run], kind="stable")
        num_full = len(window) // run  # full runs; samples that fill none come last
        runs = window[: num_full * run].reshape(num_full, run)
        sort_keys = (
            runs.min(axis=1, initial=len(lengths))
            if seed is None
            else raw(seed + window_number, ShufflePurpose.RUNS, epoch, shard, num_full)
        )
        order += [runs[np.argsort(sort_keys, kind="stable")].reshape(-1), window[num_full * run :]]
    return np.concatenate(order) if order else np.zeros(0, np.int64)
