"""`Lockstep`: several runners as one."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .._batch.batch import Batch
from .._batch.executor import Executor
from .._core.jax_settings import own_settings
from .._runner.runner import Runner


# Note [Lockstep]
# An iterator over several pipelines gives the n-th batch of each together, even if one of them fails. If the others did
# not take their n-th batch then, their samples would be shifted from there on. So each runner takes a batch before an
# error is raised. A `StopIteration` of one ends the epoch of all, or, with a mask, is followed by batches without
# samples until all have ended.
class Lockstep:
    """Runners whose batches are taken together: the n-th of one with the n-th of all others, even after errors.

    Attributes:
      pads_ended: whether a runner whose data have ended gives batches without samples until the data of all have ended.

    Args:
      runners: one for each executor. The owner of the list may replace them.
      executors: those of the runners, for `pads_ended`.
    """

    def __init__(self, runners: Sequence[Runner], executors: Sequence[Executor] = ()):
        self.pads_ended = False
        self._runners = runners
        self._executors = executors

    def begin_batches(self):
        """Reads the sources that belong to the caller's thread for all runners first, so that their pipelines work at
        the same time.
        """
        for r in self._runners:
            r.begin_batches()

    def wait(self) -> bool:
        """Waits until every runner has its next batch, or its error. Returns False if the data have ended. Takes
        nothing.
        """
        ready = [r.wait() for r in self._runners]
        return any(ready) if self.pads_ended else all(ready)

    def get(self) -> list[Batch]:
        """Takes a batch of each runner, even if one fails."""
        batches: list[Batch | None] = []
        error: BaseException | None = None
        ended = self._ended
        for r, at_end in zip(self._runners, ended):
            try:
                batches.append(None if at_end else r.get())
            except BaseException as e:
                error = error or e
        if error is not None:
            try:
                raise error
            finally:
                del error  # it refers to this frame
        return self._filled(batches)

    @property
    def _ended(self) -> list[bool]:
        """The runners that give batches without samples now."""
        ended = self.at_end if self.pads_ended else [False] * len(self._runners)
        return [False] * len(ended) if all(ended) else ended

    def _filled(self, batches: Sequence[Batch | None]) -> list[Batch]:
        """Replaces None by batches without samples, which are copies of another runner's batch whose samples are
        absent.
        """
        found = [b for b in batches if b is not None]
        if len(found) < len(batches):
            found = [
                b or _without_samples(found[0], e, r.state) for b, e, r in zip(batches, self._executors, self._runners)
            ]
        return found

    def drop(self):
        """Takes and drops a batch of each runner, and ignores its errors."""
        for r in self._runners:
            with contextlib.suppress(Exception):
                r.get()

    def peek(self) -> list[Batch]:
        """The batches or the error that `get` gives next."""
        return self._filled([None if at_end else r.peek() for r, at_end in zip(self._runners, self._ended)])

    @property
    def at_end(self) -> list[bool]:
        """Which runners are at the end of their data."""
        return [r.at_end for r in self._runners]

    def restart(self):
        """Continues after the end of the data."""
        for r in self._runners:
            r.restart()

    def stop(self):
        """Ends the threads, so that other runners can take over."""
        for r in self._runners:
            r.close()
        for r in self._runners:
            r.join()


def _without_samples(like: Batch, executor: Executor, state: dict) -> Batch:
    """A batch of an executor with the shapes and types of another executor's batch, in which no sample is present."""
    with own_settings():
        outputs = tuple(_absent(x, executor.shards.primaries[0]) for x in like.outputs)
    n = len(like.ids.epoch)
    ids = dataclasses.replace(like.ids, names=[""] * n, paths=[""] * n, present=np.zeros(n, bool), unread={})
    return Batch(outputs, state, ids, ())


def _absent(output: Any, device: jax.Device) -> Any:
    """An output without samples, on another device. Lengths are 0, and a list is empty."""
    if isinstance(output, list):
        return [jax.device_put(np.zeros((0,) * x.ndim, x.dtype), device) for x in output]
    if isinstance(output, tuple):
        samples, lengths = output
        return jax.device_put(samples, device), jax.device_put(np.zeros(lengths.shape, lengths.dtype), device)
    return jax.device_put(output, device)
