"""The schedule of a stand-alone pipeline: counts batches that are scheduled and taken, up to the end of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._batch.batch import FinishedBatch
from .._batch.executor import Executor
from .._core.ragged import DeviceSamples, HostSamples, Packed, is_on_accelerator
from .._core.texts import Texts
from .._core.values import Value
from .._data.source import Source
from .._runner.choose import runner_of
from .._runner.fork_guard import ExclusiveUse
from .._runner.runner import Runner
from .._runner.shutdown import close_together, refuse
from ..backend import TensorListCPU, TensorListGPU


class Schedule:
    """Counts the batches that were scheduled and not yet taken, like DALI's `schedule_run` and `outputs`.

    Args:
      executor: the executor of the pipeline.
      state: the initial state.
      depth: number of batches made ahead.
      pipelined: whether batches are made ahead; otherwise each batch is made when it is scheduled.
      by_user: whether the user's code supplies the data of each batch, with `feed_input` or `iter_setup`. Then batches
        are made in the user's thread, and only when they are scheduled.
    """

    def __init__(self, executor: Executor, state: dict, depth: int, *, pipelined: bool, by_user: bool):
        self.executor = executor
        self._by_user = by_user or not pipelined
        # Made when the first batch is scheduled, because it may read the sources at once.
        self._runner: Runner | None = None
        self._start = state  # before the first batch
        self._depth = depth if pipelined else 1
        self._fed_sources = [s for s in executor.sources.values() if s.fed]
        self._has_setups = executor.reader.sets_up
        self._is_filled = False  # whether batches were scheduled in this epoch: later calls schedule one
        self._pending = 0  # batches that are scheduled and not taken
        self._num_taken = 0  # batches of this epoch
        self._closed = False
        self._exclusive_use = ExclusiveUse("pipeline")

    @property
    def started(self) -> bool:
        """Whether a batch was ever scheduled."""
        return self._runner is not None

    @property
    def state(self) -> dict:
        """The state after the batch that was taken last."""
        return self._start if self._runner is None else self._runner.state

    def schedule(self, *, fill: bool = False):
        """Schedules one batch; the first time, as many as are made ahead. With fed data, as many as were fed and fit.

        Args:
          fill: whether as many are scheduled as fit, also later.
        """
        with self._exclusive_use:
            self._schedule(fill)

    def _schedule(self, fill: bool):
        """Does the work of `schedule`."""
        if self._closed:
            refuse("pipeline")
        if self._runner is None:
            self._runner = runner_of(self.executor, self._start, self._depth, ahead=self._depth, by_user=self._by_user)
        # With `iter_setup`, data are fed when a batch is requested; otherwise they must be there already.
        if self._fed_sources and not self._has_setups:
            capacity = max(self._runner.depth - self._pending, 1)
            # If nothing is fed and nothing is scheduled, one batch is requested: its source raises an error or waits.
            count = max(min(capacity, *(s.available for s in self._fed_sources)), int(not self._pending))
        else:
            count = max(self._runner.depth - self._pending, 0) if fill or not self._is_filled else 1
        self._is_filled = True
        self._pending += self._runner.request(count)

    def take(self) -> FinishedBatch:
        """Returns the batch that was scheduled first. Raises StopIteration if nothing is scheduled, or the data have
        ended.
        """
        with self._exclusive_use:
            if not self._pending or self._runner is None:
                raise StopIteration
            try:
                batch = self._runner.get()
            except StopIteration:
                self._pending = 0
                advice = "; with batch=True the last batch may be smaller"
                self.executor.warn_at_end(self._runner.state["epoch"], empty=not self._num_taken, instead=advice)
                raise
            except Exception:  # it takes its batch; an interrupt does not
                self._pending -= 1
                raise
            self._pending -= 1
            self._num_taken += 1
            return batch

    @property
    def empty(self) -> bool:
        """Whether all scheduled batches were taken. It waits for the next batch, because the data may end before it."""
        return not self._pending or self._runner is None or not self._runner.wait()

    def reset(self):
        """Starts the next epoch if all batches of this one were taken."""
        if self._runner is not None and self._runner.ended():
            self._runner.restart()
            self._is_filled = False
            self._pending = self._num_taken = 0

    def close(self, collected: bool = False):
        """Stops the threads and closes the executor. `collected`: whether it is called because of garbage collection."""
        self._closed = True
        for source in self._fed_sources:
            source.close()  # a thread may wait for data there
        close_together([] if self._runner is None else [self._runner], [self.executor], collected=collected)

    def hand_over(self) -> dict[int, Source]:
        """Returns the sources, of which nothing was read, and closes the executor without them."""
        sources, self.executor.sources = self.executor.sources, {}
        self.executor.close()
        return sources


def tensor_lists(batch: FinishedBatch) -> tuple[Any, ...]:
    """The outputs of a finished batch as DALI's containers; metadata as lists."""
    return tuple(_tensor_list(v, n, batch.ids.present) for v, n in zip(batch.outputs, batch.names, strict=True))


def _tensor_list(
    value: Value, names: Sequence[str], present: np.ndarray | None
) -> TensorListCPU | TensorListGPU | list[Any]:
    """One output as a tensor list, or as a list of objects if it is metadata. Samples that are not present are left out.

    Args:
      names: the source info of each of the N samples.
      present: ``bool[N]``, the samples that a short batch has; None: all.
    """
    spec = value.spec
    data: Any = value.data
    indices = range(len(value)) if present is None else np.flatnonzero(present).tolist()
    infos = Texts(lambda i: names[int(indices[i])], len(indices))
    if spec.is_metadata:
        return [data[i] for i in indices]
    if isinstance(data, DeviceSamples):
        return TensorListGPU(data.of(indices), spec.layout, source_info=infos, dtype=spec.dtype, ndim=spec.ndim)
    list_class = TensorListGPU if is_on_accelerator(data) else TensorListCPU
    if isinstance(data, Packed) or len(indices) < len(value):
        assert data is not None
        samples = HostSamples(data, indices) if isinstance(data, Packed) else [data[i] for i in indices]
        return list_class(samples, spec.layout, source_info=infos, owner=data, dtype=spec.dtype, ndim=spec.ndim)
    return list_class(data, spec.layout, source_info=infos)
