"""`Lockstep`: several runners whose batches are taken together."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .._batch.batch import FinishedBatch
from .._batch.executor import Executor
from .._core.jax_settings import own_settings
from .._runner.runner import Runner


# Note [Lockstep]
# An iterator over several pipelines gives the n-th batch of each together, even if one of them fails. If the others did
# not take their n-th batch then, their samples would be shifted from there on. So each runner takes a batch before an
# error is raised. A `StopIteration` of one ends the epoch of all, or, with a mask, is followed by batches without
# samples until all have ended.
class Lockstep:
    """Runners whose batches are taken together: the n-th of one with the n-th of all others, even after errors. See
    Note [Lockstep].

    Attributes:
      pads_ended: whether a runner whose data have ended gives batches without samples until the data of all have ended.

    Args:
      runners: one for each executor. The owner of the list may replace them.
      executors: the executors of the runners. They are needed only with `pads_ended`.
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
        """Waits until every runner has its next batch or its error, and takes nothing. Returns False if the data have
        ended: those of one runner, or with `pads_ended` those of all.
        """
        has_next = [r.wait() for r in self._runners]
        return any(has_next) if self.pads_ended else all(has_next)

    def get(self) -> list[FinishedBatch]:
        """Takes a batch of each runner, even if one fails. Then raises the first error."""
        batches: list[FinishedBatch | None] = []
        error: BaseException | None = None
        for r, is_padded in zip(self._runners, self._is_padded):
            try:
                batches.append(None if is_padded else r.get())
            except BaseException as e:
                error = error or e
        if error is not None:
            try:
                raise error
            finally:
                del error  # it refers to this frame
        return self._padded(batches)

    @property
    def _is_padded(self) -> list[bool]:
        """For each runner, whether its next batch is one without samples, because its data have ended."""
        ended = self.at_end if self.pads_ended else [False] * len(self._runners)
        return [False] * len(ended) if all(ended) else ended  # if all have ended, `get` raises StopIteration

    def _padded(self, batches: Sequence[FinishedBatch | None]) -> list[FinishedBatch]:
        """Replaces each None by a copy of another runner's batch in which no sample is present."""
        present = [b for b in batches if b is not None]  # at least one: not all are padded, see `_is_padded`
        if len(present) == len(batches):
            return present
        return [
            b or _without_samples(present[0], e, r.state) for b, e, r in zip(batches, self._executors, self._runners)
        ]

    def drop(self):
        """Takes and drops a batch of each runner, and ignores its errors."""
        for r in self._runners:
            with contextlib.suppress(Exception):
                r.get()

    def peek(self) -> list[FinishedBatch]:
        """Returns the batches, or raises the error, of the next `get`, without taking them."""
        return self._padded([None if is_padded else r.peek() for r, is_padded in zip(self._runners, self._is_padded)])

    @property
    def at_end(self) -> list[bool]:
        """Whether each runner is at the end of its data."""
        return [r.at_end for r in self._runners]

    def restart(self):
        """Continues with the next epoch. Has no effect on runners that are not at the end of their data."""
        for r in self._runners:
            r.restart()

    def stop(self):
        """Ends the threads, so that other runners can take over."""
        for r in self._runners:
            r.close()
        for r in self._runners:
            r.join()


def _without_samples(template: FinishedBatch, executor: Executor, state: dict) -> FinishedBatch:
    """Returns a batch of an executor with the shapes and types of another executor's batch, in which no sample is
    present.
    """
    with own_settings():
        outputs = tuple(_absent(x, executor.shards.primaries[0]) for x in template.outputs)
    n = len(template.ids.epoch)
    ids = dataclasses.replace(template.ids, names=[""] * n, paths=[""] * n, present=np.zeros(n, bool), unread={})
    return FinishedBatch(outputs, state, ids, ())


def _absent(output: Any, device: jax.Device) -> Any:
    """Returns an output for a batch without samples, on another device. Its contents don't matter, but lengths are 0,
    and the arrays of a list are empty.
    """
    if isinstance(output, list):
        return [jax.device_put(np.zeros((0,) * x.ndim, x.dtype), device) for x in output]
    if isinstance(output, tuple):
        samples, lengths = output
        return jax.device_put(samples, device), jax.device_put(np.zeros(lengths.shape, lengths.dtype), device)
    return jax.device_put(output, device)
