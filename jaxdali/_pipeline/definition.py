"""What a pipeline is before it runs: its graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Self

from .._core.building import Scope, as_node, building, current_scope, user_line
from .._core.graph import DataNode, Graph, Node
from ..types import DALIDataType, dali_type_of
from . import arguments as check
from .conditionals import converted
from .settings import Configured, Settings


class Definition(Configured):
    """The graph that a user's code describes, and how it describes it."""

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self._made: list[Node] = []  # while it was current
        self._number: int | None = None
        self._outputs: tuple[DataNode, ...] | None = None
        self._sinks: list[DataNode] = []
        self._collected: Graph | None = None
        self._contexts: list[contextlib.AbstractContextManager[None]] = []

    @property
    def num_outputs(self) -> int:
        """How many outputs the definition has."""
        return len(self._graph.outputs)

    def output_dtype(self) -> list[DALIDataType | None]:
        """The type that each output must have, as the argument of this name says; None: any."""
        each = check.per_output(self._graph, "output_dtype", self._settings.output_dtype)
        return [None if x is None else dali_type_of(x) for x in each]

    def output_ndim(self) -> list[int | None]:
        """The number of dimensions that each output must have, as the argument of this name says; None: any."""
        return list(check.per_output(self._graph, "output_ndim", self._settings.output_ndim))

    def output_layout(self) -> list[str | None]:
        """The layout that each output must have, as the argument of this name says; None: any. Not in DALI."""
        return list(check.per_output(self._graph, "output_layout", self._settings.output_layout))

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
        scope = Scope(self, self._made) if self._number is None else Scope(self, self._made, self._number)
        self._number = scope.number
        return scope

    def _define(self, function: Callable[[], Any]):
        """Calls a definition, and sets the outputs that it returns."""
        if self._settings.enable_conditionals:
            function = converted(function)
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
        self._settings.check_to_run()
        for name, wanted in self._settings.outputs.items():
            check.per_output(self._graph, name, wanted)


def _as_outputs(outputs: Sequence[Any]) -> tuple[DataNode, ...]:
    for i, x in enumerate(outputs):
        if isinstance(x, (list, tuple)) and any(isinstance(e, DataNode) for e in x):
            raise TypeError(f"output {i} of the pipeline is a {type(x).__name__} of DataNodes: spread it, *nodes, or name its elements")
        if isinstance(x, (str, bytes, dict)):
            raise TypeError(f"output {i} of the pipeline must be a DataNode, a number or an array, got {type(x).__name__}: {x!r:.80}")
    return tuple(as_node(x, f"output {i} of the pipeline") for i, x in enumerate(outputs))
