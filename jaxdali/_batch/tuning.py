"""`Tuner`: tunes ``num_threads="auto"`` and ``prefetch_queue_depth="auto"`` by the waiting times of the meter."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from .meter import Meter

WINDOW = 16  # batches between two decisions
MOST_AHEAD = 8  # batches, which are all in memory

# Parts of the time of a window.
_MIN_WAIT = 0.05  # the user waits for batches, or the queue for the user, if it takes more than this part
_MIN_GAIN = 0.05  # more threads are kept if a batch takes at least this much less time
_MAX_IDLE = 0.6  # half the threads are tried if the queue is full for more than this part

_log = logging.getLogger("jaxdali")


class Tuner:
    """Decides, batch by batch, the number of threads and of batches made ahead. Neither changes what is compiled.

    While the user waits for batches, the number of threads is doubled, as long as that makes batches faster. If batches
    are fast enough on average, and the user waits for some anyway, one more is made ahead. Threads without effect are
    released.

    Args:
      meter: an enabled meter.
      tuned: the settings to tune, by the names of the pipeline's arguments.
      threads, depth: the initial values.
      cores: maximum number of threads.
      clock: returns seconds.

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
        self._min_threads, self._max_threads = (1, max(cores, 1)) if "num_threads" in tuned else (threads, threads)
        self._max_depth = MOST_AHEAD if "prefetch_queue_depth" in tuned else depth
        self._num_taken = 0
        # When the window began, and the waiting times of the user and of the queue up to then, in seconds.
        self._window_start: tuple[float, float, float] | None = None
        # While another number of threads is tried: the number before, and the seconds of a window's work with it.
        self._before_trial: tuple[int, float] | None = None

    def note_taken(self) -> bool:
        """Notes that the user has taken a batch. Returns whether `threads` or `depth` changed."""
        self._num_taken += 1
        if self._num_taken % WINDOW:  # it decides only at the end of a window of batches
            return False
        times = self._clock(), self._meter.seconds("wait", "user"), self._meter.seconds("wait", "queue")
        start, self._window_start = self._window_start, times
        if start is None:  # programs are compiled in the first window
            return False
        old_settings = self.threads, self.depth
        # The differences: seconds of the window, and of waiting in it.
        self._decide(*(a - b for a, b in zip(times, start, strict=True)))
        changed = (self.threads, self.depth) != old_settings
        if changed:
            _log.info(
                "num_threads=%d, prefetch_queue_depth=%d; were %d and %d", self.threads, self.depth, *old_settings
            )
        return changed

    def _decide(self, seconds: float, user_wait: float, queue_wait: float):
        """Decides after a window of `seconds`. In this time the user waited `user_wait` seconds for batches, and a full
        queue waited `queue_wait` seconds for the user.
        """
        work = seconds - queue_wait  # the time in which batches were made
        user_waits = user_wait > _MIN_WAIT * seconds
        # Without a trial the numbers of threads are equal, so the first two cases don't apply.
        old_threads, old_work = self._before_trial or (self.threads, work)
        self._before_trial = None
        if old_threads < self.threads and work > (1 - _MIN_GAIN) * old_work:
            self.threads = self._max_threads = old_threads  # more threads were not faster: go back, and never try again
        elif old_threads > self.threads and user_waits:
            self.threads = self._min_threads = old_threads  # fewer threads were too slow: go back, and never try again
        elif user_waits and queue_wait > _MIN_WAIT * seconds:
            self.depth = min(self.depth + 1, self._max_depth)  # both wait, so batches differ: keep more of them
        elif user_waits:
            self._try(min(2 * self.threads, self._max_threads), work)
        elif queue_wait > _MAX_IDLE * seconds:
            self._try(max(self.threads // 2, self._min_threads), work)

    def _try(self, threads: int, work: float):
        """Tries another number of threads. `work`: seconds of a window's work with the present one."""
        if threads != self.threads:
            self._before_trial, self.threads = (self.threads, work), threads
