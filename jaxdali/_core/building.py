"""Adds operators to the pipeline that is being defined in this thread."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import sys
import threading
import traceback
from typing import Any

from ..errors import OperatorError
from .graph import DataNode, Graph
from .operator import Operator

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_local = threading.local()


@contextlib.contextmanager
def building(graph: Graph):
    """While active in this thread, operators are added to `graph`."""
    stack = _local.__dict__.setdefault("stack", [])
    stack.append(graph)
    try:
        yield graph
    except (TypeError, ValueError) as e:
        _add_line(e)
        raise
    finally:
        stack.pop()


def _add_line(e: Exception):
    """Adds operator and the user's line to the message of an exception that a call of an operator raised."""
    line, called = "", None  # the innermost one outside this package, and the frame inside that it went to
    for frame, number in traceback.walk_tb(e.__traceback__):
        if not os.path.abspath(frame.f_code.co_filename).startswith(_PACKAGE):
            line, called = f"{frame.f_code.co_filename}:{number}", None
        else:
            called = called or frame
    # The call itself may be wrong, which Python finds before the operator runs.
    in_call = type(e) is TypeError and re.search(r"\(\) (got|missing|takes)", str(e))
    if not line or line in str(e) or not (called or in_call):
        return
    name = ""
    if called is not None:
        place = called.f_globals["__name__"].partition(".fn.")[2]  # public folders, then private names: "readers._file", "_tensor.cast"
        public = itertools.takewhile(lambda part: part[:1] != "_", place.split("."))
        name = ".".join((*public, called.f_code.co_name)) if place else ""
    e.args = (f"{'' if name in str(e) else f'{name}: '}{e} (called at {line})", *e.args[1:])


def current_graph() -> Graph | None:
    """The graph being defined in this thread."""
    stack = _local.__dict__.get("stack")
    return stack[-1] if stack else None


def random_count() -> int:
    """How many random operators the graph being defined has."""
    graph = current_graph()
    return graph.num_random if graph is not None else 0


def restart_random(count: int):
    """The next random operator gets this number: the same numbers as an earlier one."""
    graph = current_graph()
    if graph is not None:
        graph.num_random = count


def user_line() -> str:
    """``"file:line"`` of the innermost frame outside this package."""
    frame = sys._getframe(1)
    while frame is not None and os.path.abspath(frame.f_code.co_filename).startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "?"


def add(op: Operator, *inputs: Any, device: str | None = None, name: str | None = None) -> Any:
    """Adds an operator to the pipeline being defined.

    Args:
      op: the operator.
      *inputs: DataNodes; numbers, NumPy and JAX arrays become constants.
      device: "cpu", "mixed", "gpu" or None: follow the inputs.
      name: the user's name for it.

    Returns:
      A `DataNode`, or a tuple of them where the operator has several outputs.
    """
    graph = current_graph()
    where = user_line()
    if graph is None:
        raise OperatorError(
            op.name,
            where,
            "operators can only be used inside a pipeline definition: a function decorated with @pipeline_def or @data_iterator, "
            "define_graph, or `with pipeline:`",
        )
    if device not in (None, "cpu", "mixed", "gpu"):
        raise ValueError(f"{op.name}: device must be 'cpu', 'mixed' or 'gpu', got {device!r}")
    nodes = tuple(as_node(x, op.name) for x in inputs)
    node = graph.add(op, nodes, device or "", name, where)
    if op.num_outputs == 1:
        return DataNode(node, 0)
    return tuple(DataNode(node, i) for i in range(op.num_outputs))


def as_node(x: Any, name: str) -> DataNode:
    """A DataNode as it is; a number or array as a constant, the same for all samples."""
    if isinstance(x, DataNode):
        return x
    from ..fn._tensor.constant import constant_node

    try:
        return constant_node(x)
    except TypeError as e:
        raise TypeError(f"{name}: an input must be a DataNode, a number or an array, got {type(x).__name__}") from e


def is_node(x: Any) -> bool:
    """Whether it is a DataNode."""
    return isinstance(x, DataNode)
