"""Random orders of lists, in integer arithmetic. No I/O, no JAX."""

from __future__ import annotations

import enum
import functools
import threading

import numpy as np

from .._cpu import shuffle_epochs


class Draw(enum.IntEnum):
    """The purpose of a permutation. It is part of the counter, so that different purposes use different random bits."""

    LIST = 0
    BUFFER = 1
    REST = 2
    EPOCH = 3
    RUNS = 4


# The shuffled list must be the same for all shards, even in pipelines with different seeds (DALI's examples pass ``seed=12 + device_id``).
# Otherwise shards would overlap, and samples would be lost. So its seed is a constant, as in DALI.
LIST_SEED = 0x6A61_7864_616C_69

EPOCHS_SEED = 524287  # seed of `shuffle_after_epoch`, as in DALI


def raw(seed: int, what: Draw, epoch: int, shard: int, n: int) -> np.ndarray:
    """n random 64-bit integers. NumPy guarantees that Philox's raw stream never changes."""
    key = np.array([seed % 2**64, 0], np.uint64)
    counter = np.array([0, epoch, shard, int(what)], np.uint64)
    return np.random.Philox(key=key, counter=counter).random_raw(n)


def permutation(seed: int, what: Draw, epoch: int, shard: int, n: int) -> np.ndarray:
    """The numbers 0 .. n - 1 in random order."""
    return np.argsort(raw(seed, what, epoch, shard, n), kind="stable")


@functools.lru_cache(maxsize=8)
def list_order(n: int, seed: int, what: Draw, epoch: int) -> np.ndarray:
    """The whole list in shuffled order, before it is split into shards."""
    order = permutation(seed, what, epoch, 0, n)
    order.flags.writeable = False
    return order


class _Reshuffled:
    """The orders of a list that is shuffled again before each epoch, starting from the order before, as DALI shuffles file names."""

    def __init__(self, n: int, seed: int):
        self._n, self._seed = n, seed % 2**64
        self._lock = threading.Lock()  # guards the epoch and its order
        self._restart()

    def _restart(self):
        self._epoch, self._order = -1, np.arange(self._n)

    def at(self, epoch: int) -> np.ndarray:
        with self._lock:
            if epoch < self._epoch:
                self._restart()
            shuffle_epochs(self._order, self._seed, self._epoch + 2, epoch + 1)  # DALI counts from 1
            self._epoch = epoch
            return self._order.copy()


_reshuffled = functools.lru_cache(maxsize=8)(_Reshuffled)


@functools.lru_cache(maxsize=8)
def epoch_order(n: int, seed: int, epoch: int, containers: tuple[int, ...] = ()) -> np.ndarray:
    """The list's order with `shuffle_after_epoch`, as in DALI. It is the same for all shards.

    Args:
      containers: for a list of records in containers: the first record of each container, and the number of records. Then only the order of
        the containers changes, and does not depend on earlier epochs.
    """
    if not containers:
        order = _reshuffled(n, seed).at(epoch)
    else:
        which = np.arange(len(containers) - 1)
        shuffle_epochs(which, seed % 2**64, epoch + 1, epoch + 1)
        order = np.concatenate([np.arange(containers[k], containers[k + 1]) for k in which])
    order.flags.writeable = False
    return order


@functools.lru_cache(maxsize=64)
def buffer_order(n: int, fill: int, seed: int, epoch: int, shard: int) -> np.ndarray:
    """The order in which n entries leave a shuffle buffer of `fill` places.

    The buffer holds the first `fill` entries. Each step returns the entry at a random place and puts the next entry there. The entries that
    are left at the end come in random order.
    """
    fill = min(fill, n)
    steps = n - fill
    place = (raw(seed, Draw.BUFFER, epoch, shard, steps) % np.uint64(fill)).astype(np.int64)
    # Step t puts entry t + fill at its place. So the entry that a step returns was put there by the last step with the same place. The
    # initial entries count as put there by the steps -fill .. -1.
    all_places = np.concatenate([np.arange(fill), place])
    by_place = np.argsort(all_places, kind="stable")  # groups the entries of each place, in the order in which they were put there
    same = all_places[by_place[1:]] == all_places[by_place[:-1]]
    order = np.empty(n, np.int64)
    order[by_place[1:][same] - fill] = by_place[:-1][same]
    last = np.append(~same, True)
    order[steps:] = by_place[last][permutation(seed, Draw.REST, epoch, shard, fill)]
    order.flags.writeable = False
    return order


WINDOW = 50  # runs that are sorted together: more make the lengths in a run more similar, fewer keep more of the previous order


def by_length(lengths: np.ndarray, run: int, seed: int | None, epoch: int, shard: int) -> np.ndarray:
    """An order in which each `run` consecutive samples have similar lengths.

    Each `WINDOW` runs of the previous order are sorted by length and cut into runs. These come in random order, or without `seed` in the
    order of their first samples. A run that is not full comes last.
    """
    order = []
    for number, begin in enumerate(range(0, len(lengths), WINDOW * run)):
        window = begin + np.argsort(lengths[begin : begin + WINDOW * run], kind="stable")
        full = len(window) // run
        runs = window[: full * run].reshape(full, run)
        places = runs.min(axis=1, initial=len(lengths)) if seed is None else raw(seed + number, Draw.RUNS, epoch, shard, full)
        order += [runs[np.argsort(places, kind="stable")].reshape(-1), window[full * run :]]
    return np.concatenate(order) if order else np.zeros(0, np.int64)
