"""``num_threads="auto"`` and ``prefetch_queue_depth="auto"``: settings that are tuned by the meter's waiting times."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from .meter import Meter

WINDOW = 16  # batches between two decisions
MOST_AHEAD = 8  # batches, which are all in memory

_WAITS = 0.05  # waiting for less than this part of the time does not count
_GAIN = 0.05  # twice the threads are worthwhile if batches take this much less time
_IDLE = 0.6  # half the threads are tried if a full queue is made in less than the rest of the time

_log = logging.getLogger("jaxdali")


class Tuner:
    """Decides, batch by batch, the number of threads and of batches made ahead. Neither changes what is compiled.

    While the user waits for batches, the number of threads is doubled, as long as that makes batches faster. If batches
    are fast enough on average, and the user waits for some anyway, one more is made ahead. Threads without effect are
    released.

    Args:
      meter: an enabled meter.
      tuned: which of the settings, by the names of the pipeline's arguments.
      threads, depth: the initial values.
      cores: maximum number of threads.

    Attributes:
      threads, depth: the current values.
    """

    def __init__(
        self,
        meter: Meter,
        tuned: Collection[str],
        threads: int,
        depth: int,
        cores: int,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self.threads, self.depth = threads, depth
        self._meter, self._clock = meter, clock
        self._least, self._most = (1, max(cores, 1)) if "num_threads" in tuned else (threads, threads)
        self._farthest = MOST_AHEAD if "prefetch_queue_depth" in tuned else depth
        self._taken = 0
        self._window: tuple[float, float, float] | None = None  # its begin, and the waiting times up to then
        # The threads and the time of a batch, before another number was tried.
        self._before: tuple[int, float] | None = None

    def note_taken(self) -> bool:
        """Called when the user has taken a batch. Returns whether `threads` or `depth` changed."""
        self._taken += 1
        if self._taken % WINDOW:
            return False
        now = self._clock(), self._meter.seconds("wait", "user"), self._meter.seconds("wait", "queue")
        last, self._window = self._window, now
        if last is None:  # programs are compiled in the first window
            return False
        before = self.threads, self.depth
        self._decide(*(a - b for a, b in zip(now, last, strict=True)))
        changed = (self.threads, self.depth) != before
        if changed:
            _log.info("num_threads=%d, prefetch_queue_depth=%d; were %d and %d", self.threads, self.depth, *before)
        return changed

    def _decide(self, seconds: float, user: float, queue: float):
        """Decides after `seconds`, of which the user waited `user` for batches, and the queue waited `queue` for the
        user.
        """
        batch, starved, tried = seconds - queue, user > _WAITS * seconds, self._before
        self._before = None
        if tried is not None and tried[0] < self.threads and batch > (1 - _GAIN) * tried[1]:
            self.threads = self._most = tried[0]
        elif tried is not None and tried[0] > self.threads and starved:
            self.threads = self._least = tried[0]
        elif starved and queue > _WAITS * seconds:
            self.depth = min(self.depth + 1, self._farthest)
        elif starved:
            self._try(min(2 * self.threads, self._most), batch)
        elif queue > _IDLE * seconds:
            self._try(max(self.threads // 2, self._least), batch)

    def _try(self, threads: int, batch: float):
        if threads != self.threads:
            self._before, self.threads = (self.threads, batch), threads
