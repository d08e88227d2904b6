"""What a pipeline is before it runs: its arguments and its graph."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable
from typing import Any, Self

import jax

from .._core.building import as_node, building, user_line
from .._core.graph import DataNode, Graph
from . import arguments as check

DEFAULT_NUM_THREADS = 4


class Definition:
    """The arguments of a `Pipeline` and the graph that its definition describes.

    Args:
      given: the arguments by name, of the right types; None: not given.
    """

    def __init__(self, given: dict[str, Any]):
        self._given = given
        self._seed: int = given["seed"] if given["seed"] is not None else secrets.randbits(31)
        self._function: Callable[[], Any] | None = None
        self._graph: Graph | None = None
        self._context: Any = None

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
    def num_outputs(self) -> int:
        """How many outputs the definition has."""
        return len(self.graph.outputs)

    @property
    def _depth(self) -> int:
        """Batches made ahead, as one number."""
        depth = self.prefetch_queue_depth
        return max(depth.values()) if isinstance(depth, dict) else depth

    @functools.cached_property
    def device(self) -> jax.Device:
        """The device of "mixed" and "gpu" operators, and of the outputs."""
        return check.local_device(self.device_id)

    # --- definition ---------------------------------------------------------------------------------------------

    def define_graph(self) -> Any:
        """Overridden by subclasses: creates operators and returns the outputs, one DataNode or several."""
        raise NotImplementedError(
            f"{type(self).__name__} defines no graph: override define_graph, use @pipeline_def, or call set_outputs inside `with pipeline:`"
        )

    def set_outputs(self, *outputs: DataNode | Any):
        """Sets the outputs of a pipeline defined inside ``with pipeline:``, there or after it."""
        if self._graph is None or (self._context is None and self._graph.outputs):
            raise RuntimeError("set_outputs is for use inside `with pipeline:`, or once after it")
        with building(self._graph):
            self._graph.outputs = tuple(as_node(x, "an output of the pipeline") for x in outputs)
        if self._context is None:
            self._graph.prune()

    def __enter__(self) -> Self:
        if self._graph is not None:
            raise RuntimeError("this pipeline is defined already")
        self._graph = Graph()
        self._context = building(self._graph)
        self._context.__enter__()
        return self

    def __exit__(self, *exc: Any):
        assert self._graph is not None
        context, self._context = self._context, None
        context.__exit__(*exc)
        if self._graph.outputs:
            self._graph.prune()

    @property
    def graph(self) -> Graph:
        """The traced definition. The user's function is called once, at first use."""
        if self._graph is None:
            self.device  # noqa: B018  no such device: say so before the user's function runs
            graph = Graph()
            where = user_line()
            with building(graph):
                outputs = self._function() if self._function is not None else self.define_graph()
                if outputs is None:
                    raise NotImplementedError(f"the pipeline definition used at {where} returns None: it must return its outputs")
                if not isinstance(outputs, (tuple, list)):
                    outputs = (outputs,)
                for i, x in enumerate(outputs):
                    if isinstance(x, (list, tuple, str, bytes, dict)):
                        raise TypeError(
                            f"output {i} of the pipeline must be a DataNode, a number or an array, got {type(x).__name__}: {x!r:.80}"
                        )
                graph.outputs = tuple(as_node(x, f"output {i} of the pipeline") for i, x in enumerate(outputs))
            graph.prune()
            self._graph = graph
        return self._graph

    def _check_arguments(self):
        if self._given["batch_size"] is None:
            raise ValueError("batch_size must be at least 1, and none was given")
        check.check_range("batch_size", self.batch_size)
        check.check_range("num_threads", self.num_threads)
        depth = self.prefetch_queue_depth
        for x in depth.values() if isinstance(depth, dict) else [depth]:
            check.check_range("prefetch_queue_depth", x)
        if isinstance(depth, dict) and not self.exec_async:
            raise ValueError(f"prefetch_queue_depth={depth} needs exec_async=True; pass a number instead")
