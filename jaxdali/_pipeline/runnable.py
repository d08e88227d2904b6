"""`Runnable`: a definition that runs."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NoReturn

import jax

from .._core.building import refuse_tracing
from .._core.graph import DataNode
from .._data.source import Source
from .._run.meter import Statistics
from .._run.work import BadSample
from ..backend import TensorListCPU, TensorListGPU
from .definition import Definition
from .session import Session
from .settings import Settings


class Runnable(Definition):
    """What users do with a pipeline that runs: take batches, feed data, ask about readers. Its `Session` does it."""

    def __init__(self, settings: Settings, session: Session):
        super().__init__(settings)
        self._session = session

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Pipeline can't be pickled or copied: make it in the process that uses it, or serialize() it")

    def build(self):
        """Traces the definition, opens the sources, and checks types and arguments. Optional, and harmless to repeat.

        What depends on data that are fed, or on what a function returns, is checked with the first batch.
        """
        if not self._session.built:
            self._check_arguments()
            self._session.build(self._graph, self._setups(), self._device, self._seed)

    def _claim(self) -> dict[int, Source]:
        """Hands the pipeline over to an iterator, and the sources that `build` has opened."""
        self._check_arguments()
        return self._session.claim()

    def _setups(self) -> list[Callable[[], None]]:
        """`iter_setup`, if a subclass has one of its own."""
        if type(self).iter_setup is Runnable.iter_setup:
            return []
        weak = weakref.WeakMethod(self.iter_setup)  # what runs a pipeline must not keep it alive

        def call():
            method = weak()
            if method is not None:
                method()

        return [call]

    def run(self, cuda_stream: Any = None, /, **pipeline_inputs: Any) -> tuple[TensorListCPU | TensorListGPU, ...]:
        """The next batch: a tensor list for each output. Not to be mixed with `schedule_run`, `share_outputs`, `outputs`.

        Args:
          cuda_stream: without effect: streams are XLA's.
          **pipeline_inputs: data for external_sources, by name, as for `feed_input`. Needs ``prefetch_queue_depth=1`` or
            ``exec_pipelined=False``.

        Raises:
          StopIteration: the data are at their end (of sources that end, not of readers, or iter_setup raised it); `reset`
            starts the next epoch.
          RuntimeError: the pipeline is used otherwise already, or `pipeline_inputs` can't be taken.
          SampleError: a sample failed; the next call gives the next batch.
        """
        if pipeline_inputs and self.exec_pipelined and self._settings.depth > 1:
            raise RuntimeError(
                f"run({', '.join(f'{k}=...' for k in pipeline_inputs)}) needs prefetch_queue_depth=1 or exec_pipelined=False, got "
                f"prefetch_queue_depth={self.prefetch_queue_depth}; or use feed_input"
            )
        refuse_tracing("run()")
        self._session.check_use("run()")
        self.build()
        for name, data in pipeline_inputs.items():
            self.feed_input(name, data)
        self._session.schedule()
        return self._session.take()

    def schedule_run(self):
        """Schedules a batch; the first call as many as are made ahead. Take them with `share_outputs` or `outputs`."""
        self._session.check_use("schedule_run()")
        self.build()
        self._session.schedule()

    def share_outputs(self, cuda_stream: Any = None) -> tuple[TensorListCPU | TensorListGPU, ...]:
        """The batch that was scheduled first. Unlike DALI's, it stays valid after `release_outputs`.

        Args:
          cuda_stream: without effect.

        Raises:
          StopIteration: nothing is scheduled, or the data are at their end.
        """
        refuse_tracing("share_outputs()")
        self._session.check_use("schedule_run()")
        self.build()
        return self._session.take()

    def release_outputs(self):
        """Without effect: a batch is freed when nothing refers to it."""
        self._session.check_use("schedule_run()")

    def outputs(self, cuda_stream: Any = None) -> tuple[TensorListCPU | TensorListGPU, ...]:
        """`release_outputs` and `share_outputs`."""
        return self.share_outputs(cuda_stream)

    def empty(self) -> bool:
        """Whether all batches that were scheduled have been taken."""
        return self._session.empty

    def enable_api_check(self, enable: bool):
        """Whether mixing `run` with `schedule_run`, `share_outputs` and so on raises.

        Differs from DALI: a pipeline that an iterator uses can't be run otherwise in any case.
        """
        self._session.mixing = not enable

    def iter_setup(self):
        """Overridden by subclasses: called once for each batch, before it is made, e.g. to call `feed_input`.

        StopIteration raised by it ends the epoch. It is called in the thread that calls `run` or the iterator's ``next``, as many
        batches ahead as are made ahead.
        """

    def feed_input(
        self,
        data_node: DataNode | str | None = None,
        data: Any = None,
        layout: str | None = None,
        cuda_stream: Any = None,
        use_copy_kernel: bool = False,
        *,
        ref: DataNode | str | None = None,
    ):
        """Gives an `external_source` without a source the data of one batch. Batches are taken in the order they were fed.

        Differs from DALI: one may feed `prefetch_queue_depth` batches before the first `run`, to have the next one made ahead,
        or just one before each `run`.

        Args:
          data_node: the DataNode the external_source returned, or its name.
          data: an array ``[N, ...]`` or a list of N arrays, N at most the batch size.
          layout: e.g. ``"HWC"``.
          cuda_stream, use_copy_kernel: without effect.
          ref: DALI's older name of `data_node`.

        Raises:
          KeyError: there is no such external_source.
          RuntimeError: it has a source of its own.
          TypeError: `data_node` or `data` is missing.
        """
        data_node = ref if data_node is None else data_node
        if data_node is None or data is None:
            raise TypeError(f"feed_input: {'data_node' if data_node is None else 'data'} is missing")
        self.build()
        self._session.feed(data_node, data, layout)

    def reset(self):
        """Starts the next epoch after the data were at their end; without effect before that.

        Of a pipeline that an iterator uses: another iterator may take its place, and goes on where it stands; at the end of an epoch
        with the next one. The same goes when the iterator is gone.
        """
        self._session.reset()

    def close(self):
        """Stops the pipeline's threads. It can't run afterwards. Also done when it is garbage, and at exit."""
        self._session.close()

    # --- about readers ------------------------------------------------------------------------------------------

    def reader_meta(self, name: str | None = None) -> dict[str, Any]:
        """What a reader says about its data: epoch_size, epoch_size_padded, number_of_shards, shard_id, pad_last_batch, stick_to_shard.

        Args:
          name: of the reader. None: a dict of all readers by name.
        """
        self.build()
        metas = self._session.metas()
        if name is None:
            return metas
        if name not in metas:
            raise RuntimeError(f"there is no reader named {name!r} in the pipeline; there are {sorted(metas)}")
        return metas[name]

    def epoch_size(self, name: str | None = None) -> Any:
        """Padded epoch size of a reader, or of all readers as a dict."""
        if name is None:
            return {k: v["epoch_size_padded"] for k, v in self.reader_meta().items()}
        return self.reader_meta(name)["epoch_size_padded"]

    # --- how it runs --------------------------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """Seconds, calls, samples and bytes of each stage and step so far, as rows; printed it is a table. Beyond DALI.

        Stages: reading of sources, operators on the host, setup and launch of programs, waiting for them, form of the outputs. A program
        that runs while nobody waits for it costs nothing here; JAX's profiler shows what is inside.

        Raises:
          RuntimeError: the pipeline was not made with ``enable_statistics=True``, or has not run yet.
        """
        executor = self._session.executor
        if executor is None:
            raise RuntimeError("statistics: the pipeline has not run yet")
        return executor.statistics()

    def executor_statistics(self) -> dict[str, Any]:
        """Empty, as from DALI's default executor: memory is XLA's."""
        return {}

    def external_source_shm_statistics(self) -> dict[str, list[int]]:
        """Empty lists: sources run in threads, and share no memory between processes."""
        return {"capacities": [], "per_sample_capacities": []}

    def start_py_workers(self):
        """Without effect: workers are threads, which start with the pipeline, and need no care before CUDA is used."""

    def lower(self, segment: int = 0) -> jax.stages.Lowered:
        """JAX's own `Lowered` object of the very program that ran last: `.as_text()`, `.compile().cost_analysis()` and so on.

        Args:
          segment: number of the program, where the pipeline has several.

        Raises:
          RuntimeError: no batch was made yet.
        """
        executor = self._session.executor
        if executor is None:
            raise RuntimeError("no program has run yet: take a batch first")
        return executor.lower(segment)

    def bad_samples(self) -> list[BadSample]:
        """The samples that ``on_error="replace"`` replaced and "skip" left out so far: file, reason, count. Beyond DALI."""
        return self._session.executor.bad_samples() if self._session.executor is not None else []
