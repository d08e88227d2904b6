"""What a pipeline is before it runs: its arguments and its graph."""

from __future__ import annotations

import contextlib
import functools
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Self

import jax

from .._core.building import Scope, as_node, building, current_scope, user_line
from .._core.graph import DataNode, Graph, Node
from ..types import DALIDataType, dali_type_of
from . import arguments as check

DEFAULT_NUM_THREADS = 4
MAX_DEPTH = 4096  # of batches made ahead, all of which are in memory


class Definition:
    """The arguments of a `Pipeline` and the graph that its definition describes.

    Args:
      given: the arguments by name, of the right types; None: not given.
    """

    def __init__(self, given: dict[str, Any]):
        self._given = given
        self._seed: int = given["seed"] if given["seed"] is not None else secrets.randbits(31)
        self._made: list[Node] = []  # while it was current
        self._outputs: tuple[DataNode, ...] | None = None
        self._sinks: list[DataNode] = []
        self._collected: Graph | None = None
        self._contexts: list[contextlib.AbstractContextManager[None]] = []

    @property
    def batch_size(self) -> int:
        """Samples per batch; -1 when it was not given."""
        given = self._given["batch_size"]
        return -1 if given is None else given

    @property
    def max_batch_size(self) -> int:
        """The same as `batch_size`."""
        return self.batch_size

    @property
    def num_threads(self) -> int:
        """CPU threads of the native operators."""
        given = self._given["num_threads"]
        return DEFAULT_NUM_THREADS if given is None else given

    @property
    def device_id(self) -> int | None:
        """Place of the device in ``jax.local_devices()``; None: the first."""
        return self._given["device_id"]

    @property
    def seed(self) -> int:
        """The seed, given or drawn."""
        return self._seed

    @property
    def exec_pipelined(self) -> bool:
        """Whether batches are made ahead."""
        return self._given["exec_pipelined"]

    @property
    def exec_async(self) -> bool:
        """As given; without effect."""
        return self._given["exec_async"]

    @property
    def prefetch_queue_depth(self) -> int | dict[str, int]:
        """Batches made ahead, as given: a number or a dict."""
        return self._given["prefetch_queue_depth"]

    @property
    def set_affinity(self) -> bool:
        """As given; without effect."""
        return self._given["set_affinity"]

    @property
    def max_streams(self) -> int:
        """As given, -1: no limit; without effect."""
        return self._given["max_streams"]

    @property
    def default_cuda_stream_priority(self) -> int:
        """As given; without effect."""
        return self._given["default_cuda_stream_priority"]

    @property
    def exec_dynamic(self) -> bool | None:
        """As given; else True where DALI's default would be that; without effect."""
        given = self._given["exec_dynamic"]
        return given if given is not None else (self.exec_pipelined and self.exec_async and not self.exec_separated) or None

    @property
    def exec_separated(self) -> bool:
        """Whether `prefetch_queue_depth` is a dict."""
        return isinstance(self.prefetch_queue_depth, dict)

    @property
    def stream_policy(self) -> check.StreamPolicy | None:
        """As given; without effect."""
        return self._given["stream_policy"]

    @property
    def concurrency(self) -> check.OperatorConcurrency | None:
        """As given; without effect."""
        return self._given["concurrency"]

    @property
    def enable_statistics(self) -> bool:
        """Whether `Pipeline.statistics` may be called."""
        return self._given["enable_statistics"]

    @property
    def enable_memory_stats(self) -> bool:
        """As given; without effect."""
        return self._given["enable_memory_stats"]

    @property
    def py_num_workers(self) -> int:
        """Threads for sources with ``parallel=True``."""
        return self._given["py_num_workers"]

    @property
    def py_start_method(self) -> str:
        """As given; without effect: the workers are threads."""
        return self._given["py_start_method"]

    @property
    def num_outputs(self) -> int:
        """How many outputs the definition has."""
        return len(self._graph.outputs)

    def output_dtype(self) -> list[DALIDataType | None]:
        """The type that each output must have, as the argument of this name says; None: any."""
        each = check.per_output(self._graph, "output_dtype", self._given["output_dtype"])
        return [None if x is None else dali_type_of(x) for x in each]

    def output_ndim(self) -> list[int | None]:
        """The number of dimensions that each output must have, as the argument of this name says; None: any."""
        return list(check.per_output(self._graph, "output_ndim", self._given["output_ndim"]))

    def output_layout(self) -> list[str | None]:
        """The layout that each output must have, as the argument of this name says; None: any. Not in DALI."""
        return list(check.per_output(self._graph, "output_layout", self._given["output_layout"]))

    def executor_statistics(self) -> dict[str, Any]:
        """Empty, as from DALI's default executor: memory is XLA's."""
        return {}

    def external_source_shm_statistics(self) -> dict[str, list[int]]:
        """Empty lists: sources run in threads, and share no memory between processes."""
        return {"capacities": [], "per_sample_capacities": []}

    def start_py_workers(self):
        """Without effect: workers are threads, which start with the pipeline, and need no care before CUDA is used."""

    @property
    def _depth(self) -> int:
        """Batches made ahead, as one number."""
        depth = self.prefetch_queue_depth
        return max(depth.values()) if isinstance(depth, dict) else depth

    @functools.cached_property
    def _device(self) -> jax.Device:
        """The device of "mixed" and "gpu" operators, and of the outputs."""
        return check.local_device(self.device_id)

    # --- definition ---------------------------------------------------------------------------------------------

    def define_graph(self) -> Any:
        """Overridden by subclasses: creates operators and returns the outputs, one DataNode or several."""
        raise NotImplementedError(
            f"{type(self).__name__} defines no graph: override define_graph, use @pipeline_def, or call set_outputs inside `with pipeline:`"
        )

    def set_outputs(self, *outputs: DataNode | Any):
        """Sets the outputs, in place of those it had: DataNodes, wherever they were made, and numbers or arrays, which become constants.

        Raises:
          TypeError: an output is none of these; a list of DataNodes must be spread: ``set_outputs(*nodes)``.
          RuntimeError: the pipeline is built already.
        """
        self._check_open("set_outputs")
        with building(self._scope):
            self._outputs = _as_outputs(outputs)

    def add_sink(self, edge: DataNode):
        """Keeps an operator that no output depends on, and runs it with each batch."""
        self._check_open("add_sink")
        if not isinstance(edge, DataNode):
            raise TypeError(f"add_sink takes a DataNode, got {type(edge).__name__}")
        self._sinks.append(edge)

    def _check_open(self, what: str):
        if self._collected is not None:
            raise RuntimeError(f"{what} comes too late: the pipeline is built already")

    @staticmethod
    def current() -> Definition | None:
        """The pipeline that is being defined in this thread: inside a definition, and inside ``with pipeline:``; else None."""
        scope = current_scope()
        return scope.owner if scope is not None else None

    @staticmethod
    def push_current(pipeline: Definition):
        """Begins what ``with pipeline:`` does."""
        pipeline.__enter__()

    @staticmethod
    def pop_current():
        """Ends what `push_current` began. RuntimeError when there is no current pipeline."""
        pipeline = Definition.current()
        if pipeline is None:
            raise RuntimeError("pop_current: there is no current pipeline")
        pipeline.__exit__(None, None, None)

    def __enter__(self) -> Self:
        self._check_open("`with pipeline:`")
        context = building(self._scope)
        context.__enter__()
        self._contexts.append(context)
        return self

    def __exit__(self, *exc: Any):
        self._contexts.pop().__exit__(*exc)

    @property
    def _scope(self) -> Scope:
        return Scope(self, self._made)

    def _define(self, function: Callable[[], Any]):
        """Calls a definition, and sets the outputs that it returns."""
        self._device  # noqa: B018  no such device: say so before the user's function runs
        where = user_line()
        with building(self._scope):
            outputs = function()
            if outputs is None:
                raise NotImplementedError(f"the pipeline definition used at {where} returns None: it must return its outputs")
            self._outputs = _as_outputs(outputs if isinstance(outputs, (tuple, list)) else (outputs,))

    @property
    def _graph(self) -> Graph:
        """What was defined. From its first use on it stays as it is."""
        if self._collected is None:
            if self._outputs is None:
                self._define(self.define_graph)
            assert self._outputs is not None
            self._collected = Graph.collect(self._made, self._outputs, self._sinks)
        return self._collected

    def _check_arguments(self):
        if self._given["batch_size"] is None:
            raise ValueError("batch_size must be at least 1, and none was given")
        check.check_range("batch_size", self.batch_size)
        check.check_range("num_threads", self.num_threads)
        depth = self.prefetch_queue_depth
        for x in depth.values() if isinstance(depth, dict) else [depth]:
            check.check_range("prefetch_queue_depth", x, MAX_DEPTH)
        if isinstance(depth, dict) and not self.exec_async:
            raise ValueError(f"prefetch_queue_depth={depth} needs exec_async=True; pass a number instead")
        if isinstance(depth, dict) and self._given["exec_dynamic"]:
            raise RuntimeError(f"prefetch_queue_depth={depth} and exec_dynamic=True exclude each other; pass a number instead")
        for name in check.OUTPUTS:
            check.per_output(self._graph, name, self._given[name])


def _as_outputs(outputs: Sequence[Any]) -> tuple[DataNode, ...]:
    for i, x in enumerate(outputs):
        if isinstance(x, (list, tuple)) and any(isinstance(e, DataNode) for e in x):
            raise TypeError(f"output {i} of the pipeline is a {type(x).__name__} of DataNodes: spread it, *nodes, or name its elements")
        if isinstance(x, (str, bytes, dict)):
            raise TypeError(f"output {i} of the pipeline must be a DataNode, a number or an array, got {type(x).__name__}: {x!r:.80}")
    return tuple(as_node(x, f"output {i} of the pipeline") for i, x in enumerate(outputs))
