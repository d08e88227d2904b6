"""The definition of a pipeline: its graph."""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from .._core.building import Scope, as_node, building, user_line
from .._core.graph import DataNode, Evaluator, Graph, Node, advice_for_outputs
from . import argument_checks
from .conditionals import converted
from .pipeline_settings import PipelineSettings


class Definition:
    """The graph that a user's code describes.

    Args:
      pipeline: the pipeline that is defined. It is not kept.
      settings: its arguments.
    """

    def __init__(self, pipeline: Any, settings: PipelineSettings):
        self._pipeline = weakref.ref(pipeline)
        self._settings = settings
        self._nodes: list[Node] = []  # all that were made while the pipeline was current
        self._scope_number: int | None = None  # the same each time that the scope is entered
        self._outputs: tuple[DataNode, ...] | None = None
        self._sinks: list[DataNode] = []
        self._graph: Graph | None = None
        self._contexts: list[contextlib.AbstractContextManager[None]] = []
        self._function: Callable[[], Any] | None = None  # the user's definition, with debug=True

    @property
    def graph(self) -> Graph:
        """The graph. It is fixed when it is first used."""
        if self._graph is None:
            if self._settings.debug:
                raise RuntimeError(
                    "a pipeline with debug=True has no graph, as its definition runs anew for each batch; leave debug out"
                )
            if self._outputs is None:
                self.define(self._owner().define_graph)
            self._graph = self.current_graph
            assert self._graph is not None
        return self._graph

    @graph.setter
    def graph(self, graph: Graph):
        self._graph = graph

    @property
    def current_graph(self) -> Graph | None:
        """The graph of the present outputs, which may still change; None: there are no outputs yet."""
        if self._graph is not None or self._outputs is None:
            return self._graph
        return Graph.collect(self._nodes, self._outputs, self._sinks)

    @property
    def is_begun(self) -> bool:
        """Whether there are outputs or a graph."""
        return self._graph is not None or self._outputs is not None or self._function is not None

    def set_outputs(self, outputs: Sequence[Any]):
        """Sets the outputs, replacing earlier ones: DataNodes, or numbers and arrays, which become constants."""
        self._check_open("set_outputs")
        self._check_not_debug("set_outputs")
        with building(self._scope()):
            self._outputs = _as_outputs(outputs)

    def add_sink(self, edge: DataNode):
        """Keeps an operator that no output depends on, by one of its results, so that it runs with each batch."""
        self._check_open("add_sink")
        if not isinstance(edge, DataNode):
            raise TypeError(f"add_sink takes a DataNode, got {type(edge).__name__}")
        self._sinks.append(edge)

    def enter(self):
        """Makes the pipeline the current one."""
        self._check_open("`with pipeline:`")
        self._check_not_debug("`with pipeline:`")
        context = building(self._scope())
        context.__enter__()
        self._contexts.append(context)

    def leave(self, *exc: Any):
        """Ends `enter`."""
        self._contexts.pop().__exit__(*exc)

    def define(self, function: Callable[[], Any]):
        """Calls the user's definition, and sets the outputs that it returns. With debug=True it only keeps the definition,
        which `evaluate` calls for each batch.
        """
        if self._settings.enable_conditionals:
            function = converted(function)
        # Reports a missing device before the user's function runs.
        argument_checks.local_device(self._settings.device_id)
        self._location = user_line()
        if self._settings.debug:
            self._function = function
            return
        with building(self._scope()):
            self._outputs = self._call_function(function)

    def evaluate(self, evaluator: Evaluator, nodes: list[Node]) -> tuple[tuple[DataNode, ...], Sequence[DataNode]]:
        """Calls the user's definition for one batch, with debug=True. Returns its outputs and sinks.

        Args:
          evaluator: evaluates the nodes.
          nodes: a list, to which each new node is added.
        """
        if self._function is None:
            self.define(self._owner().define_graph)
            assert self._function is not None
        self._sinks = []
        with building(Scope(self._owner(), nodes, evaluator=evaluator)):
            return self._call_function(self._function), self._sinks

    def _call_function(self, function: Callable[[], Any]) -> tuple[DataNode, ...]:
        """Calls the user's definition. Returns its outputs."""
        outputs = function()
        if outputs is None:
            raise NotImplementedError(
                f"the pipeline definition used at {self._location} returns None: it must return its outputs"
            )
        return _as_outputs(outputs if isinstance(outputs, (tuple, list)) else (outputs,))

    def _owner(self) -> Any:
        """The pipeline, which exists while one of its methods runs."""
        pipeline = self._pipeline()
        assert pipeline is not None
        return pipeline

    def _scope(self) -> Scope:
        """The scope in which nodes belong to this pipeline. It may be entered several times, with one number."""
        scope = Scope(self._owner(), self._nodes)
        if self._scope_number is not None:
            scope = dataclasses.replace(scope, number=self._scope_number)
        self._scope_number = scope.number
        return scope

    def _check_not_debug(self, action: str):
        if self._settings.debug:
            raise RuntimeError(
                f"{action} can't be used with debug=True, which needs a definition that can be called for each batch: @pipeline_def"
            )

    def _check_open(self, action: str):
        if self._graph is not None:
            raise RuntimeError(f"{action} comes too late: the pipeline is built already")


def _as_outputs(outputs: Sequence[Any]) -> tuple[DataNode, ...]:
    """The outputs as DataNodes; numbers and arrays become constants. Raises TypeError for anything else."""
    for i, x in enumerate(outputs):
        if isinstance(x, (list, tuple)) and any(isinstance(e, DataNode) for e in x):
            advice = advice_for_outputs(x)
            raise TypeError(
                f"output {i} of the pipeline is a {type(x).__name__} of DataNodes: "
                + ("; ".join(advice) if advice else "spread it, *nodes, or name its elements")
            )
        if isinstance(x, dict):
            names = list(map(str, x))
            raise TypeError(
                f"output {i} of the pipeline must be a DataNode, a number or an array, got a dict: return its values, {', '.join(names)}, "
                f"and name them by output_map={names} of the iterator"
            )
        if isinstance(x, (str, bytes)):
            raise TypeError(
                f"output {i} of the pipeline must be a DataNode, a number or an array, got {type(x).__name__}: {x!r:.80}"
            )
    return tuple(as_node(x, f"output {i} of the pipeline") for i, x in enumerate(outputs))
