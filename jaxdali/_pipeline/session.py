"""`Session`: runs a pipeline, by its own schedule or for an iterator."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax

from .._batch.batch import BadSample
from .._batch.executor import Executor
from .._core.graph import DataNode, Graph
from .._data.source import Source
from .._runner.shutdown import close_aside, close_collected
from ..backend import TensorListCPU, TensorListGPU
from . import argument_checks
from . import checkpoint as checkpoints
from .pipeline_settings import PipelineSettings
from .schedule import Schedule, tensor_lists

FED_OPERATORS = ("external_source", "experimental.inputs.video")  # operators that `feed_input` can feed


class ApiUse:
    """Remembers by which API the batches of a pipeline are taken, `run` or `schedule_run`.

    Attributes:
      allows_mixing: whether both may be used.
    """

    def __init__(self):
        self.allows_mixing = False
        self._used_with = ""

    def check_use(self, api: str, method: str = ""):
        """Raises RuntimeError if batches were taken by another API before. `method`: see `Session.check_use`."""
        if not self.allows_mixing:
            if self._used_with not in ("", api):
                raise RuntimeError(
                    f"this pipeline is used with {self._used_with} already, not to be mixed with {api}; enable_api_check(False) allows it"
                )
            self._used_with = api


class Session(ApiUse):
    """An executor, and either the pipeline's own schedule or the lease of an iterator.

    It does not hold the pipeline, so that the pipeline is collected, and stops, when its user drops it.

    Attributes:
      executor: runs the graph; None: it is not built yet.
      lease: the `Lease` that iterators over the pipeline pass on to each other; None: it had no iterator.
      start: the checkpoint to start from, as `checkpoint.from_bytes` returns it; None: start anew.
      checkpoint_of_iterator: returns the iterator's checkpoint for this pipeline; None if the iterator is gone.
    """

    def __init__(self, settings: PipelineSettings):
        super().__init__()
        self._settings = settings
        self.start: tuple[dict[str, Any], dict[str, Any] | None] | None = None
        self.executor: Executor | None = None
        self.lease: Any = None
        self.checkpoint_of_iterator: Callable[[], bytes | None] | None = None
        self._graph: Graph | None = None
        self._schedule: Schedule | None = None
        self._shard = 0  # the number of this pipeline among the shards of the executor
        self._outputs_checked = False
        self._is_leased = False  # whether an iterator has taken over the pipeline

    @property
    def built(self) -> bool:
        """Whether the pipeline has a schedule or an iterator."""
        return self._is_leased or self._schedule is not None

    def build(self, graph: Graph, setups: Sequence[Callable[[], None]], device: jax.Device, seed: int):
        """Makes the executor and the schedule of a stand-alone pipeline.

        Args:
          graph: the graph of the pipeline.
          setups: user functions that are called before each batch.
          device: the device of "mixed" and "gpu" operators.
          seed: the seed of the pipeline.
        """
        settings = self._settings
        executor = Executor.of_values(graph, device, settings.run_options(seed), setups=setups)
        self.executor, self._graph = executor, graph
        # With fed data, types are known with the first batch: then the executor is built and the outputs are checked.
        by_user = bool(setups) or any(s.fed for s in executor.sources.values())
        try:
            if not by_user:
                executor.build()
                self.check_outputs()
            if self.start:
                record, _ = self.start
                start = checkpoints.state_of(executor, [record], [(0, 1)])  # shard 0 of 1
            else:
                start = executor.reader.initial_state
        except BaseException:
            self.executor = None
            executor.close()
            raise
        self._schedule = Schedule(
            executor, start, settings.depth, pipelined=bool(settings.exec_pipelined), by_user=by_user
        )
        self._finalizer = weakref.finalize(
            self, close_collected, functools.partial(self._schedule.close, collected=True)
        )

    def claim(self) -> dict[int, Source]:
        """Hands the pipeline over to an iterator. Returns the sources that `build` has opened."""
        if self._is_leased or (self._schedule is not None and self._schedule.started):
            raise RuntimeError("this pipeline is in use already, by run() or by another iterator: make one for each")
        self._is_leased = True
        if self._schedule is None:
            return {}
        self._finalizer.detach()
        schedule, self._schedule = self._schedule, None
        return schedule.hand_over()

    def run_by(self, executor: Executor, shard: int, graph: Graph):
        """Sets the executor that runs the claimed pipeline, as one of its shards."""
        self.executor, self._shard, self._graph = executor, shard, graph

    def check_outputs(self):
        """Checks the outputs against the arguments. After all of them are checked, it does nothing."""
        if not self._outputs_checked:
            assert self.executor is not None and self._graph is not None
            specs = self.executor.plan.output_specs
            self._outputs_checked = argument_checks.check_outputs(
                self._graph, specs, self._settings.output_requirements
            )

    # --- batches ------------------------------------------------------------------------------------------------

    def check_use(self, api: str, method: str = ""):
        """Raises RuntimeError if batches were taken by another API before, or if an iterator takes them.

        Args:
          method: the method that was called, if it is not named like the API.
        """
        if self._is_leased:
            raise RuntimeError(
                f"this pipeline is used by an iterator: take batches from the iterator, not with {method or api}"
            )
        super().check_use(api)

    def schedule(self, *, fill: bool = False):
        """Schedules one batch; the first time, or with `fill`, as many as are made ahead."""
        assert self._schedule is not None
        self._schedule.schedule(fill=fill)

    def take(self) -> tuple[TensorListCPU | TensorListGPU, ...]:
        """Returns the batch that was scheduled first."""
        assert self._schedule is not None
        batch = self._schedule.take()
        self.check_outputs()
        return tensor_lists(batch)

    @property
    def empty(self) -> bool:
        """Whether all batches that were scheduled have been taken."""
        return self._schedule is None or self._schedule.empty

    def reset(self):
        """Starts the next epoch at the end of the data. Allows another iterator to replace the present one."""
        if self.lease is not None:
            self.lease.released = True
        if self._schedule is not None:
            self._schedule.reset()

    def close(self):
        """Stops the threads of a schedule. An iterator stops its own threads."""
        if self._schedule is not None and self._finalizer.detach() is not None:
            close_aside(self._schedule.close)

    def bad_samples(self) -> list[BadSample]:
        """The samples that were replaced or left out in the batches taken so far."""
        return self.executor.bad_samples() if self.executor is not None else []

    # --- sources ------------------------------------------------------------------------------------------------

    def feed(self, handle: DataNode | str, data: Any, layout: str | None):
        """Gives the data of a batch to an external_source, found by its DataNode or name. Raises KeyError if there is
        none.
        """
        assert self.executor is not None and self._graph is not None
        node = self._graph.find(handle)
        if node is None or node.op.name not in FED_OPERATORS:
            name = handle if isinstance(handle, str) else handle.name
            names = [n.name for n in self._graph.nodes if n.op.name in FED_OPERATORS]
            raise KeyError(
                f"there is no external_source named {name!r} that an output of the pipeline depends on; there are {names}"
            )
        self.executor.sources[node.id].feed(data, layout, self._shard)

    def metas(self) -> dict[str, dict[str, int]]:
        """The metadata of each source, by its name; empty for one that is no reader."""
        assert self.executor is not None and self._graph is not None
        sources = self.executor.reader.named
        return {name: dict(s.metas[self._shard]) if s.metas else {} for name, s in sources.items()}

    # --- state --------------------------------------------------------------------------------------------------

    def checkpoint(self) -> bytes:
        """The state of the pipeline, or of its iterator, after the batch that was taken last."""
        if self.checkpoint_of_iterator is not None:
            data = self.checkpoint_of_iterator()
            if data is None:
                raise RuntimeError("the iterator of this pipeline no longer exists")
            return data
        assert self.executor is not None and self._schedule is not None
        (record,) = checkpoints.records_of(self.executor, self._schedule.state, [(0, 1)])  # shard 0 of 1
        return checkpoints.to_bytes(record, iterator=None)
