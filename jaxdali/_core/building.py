"""Makes nodes, for the pipeline that is being defined in this thread or for any later one."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import re
import sys
import threading
import traceback
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.core

from . import calls
from .errors import ArgumentTypeError, printable
from .graph import Branch, DataNode, Evaluator, Node, check_pipeline, check_reach, innermost_branch
from .kinds import device_named
from .language import language
from .operator import Operator
from .refusals import not_array_message
from .tracebacks import is_ours
from .words import of_values, sample_advice

# Of each thread, absent until it is first set: `stack`, the scopes of the definitions that run; `branch`, the branch
# that is being defined; `draws`, what `replaying_draws` replays; `deferred`, the lists of the `DeferredWarnings` that
# are entered.
_local = threading.local()
_numbers = itertools.count()  # counts all nodes, in the order of creation
_pipelines = itertools.count(1)  # numbers of definitions; 0 stands for nodes outside of any


@dataclasses.dataclass(frozen=True)
class Scope:
    """The definition of a pipeline.

    Attributes:
      owner: the pipeline.
      nodes: its nodes so far, in order.
      number: the number of the pipeline, which its nodes remember.
      evaluator: computes the values of nodes when they are made; None: nodes have no values.
      handle: makes the object that the user's function gets for an output of a node.
      reads_images: whether data without a layout are images, outside of `reading_images`.
    """

    owner: Any
    nodes: list[Node]
    number: int = dataclasses.field(default_factory=_pipelines.__next__)
    evaluator: Evaluator | None = None
    handle: Callable[[Node, int], DataNode] = DataNode
    reads_images: bool = False


@contextlib.contextmanager
def building(scope: Scope):
    """Adds the nodes that this thread makes to `scope`. Errors get the operator's name and the user's line."""
    stack = _local.__dict__.setdefault("stack", [])
    stack.append(scope)
    try:
        with inside(None):  # an outer definition may be inside an `if`; this one begins outside of all
            yield
    except (TypeError, ValueError) as e:
        _add_line(e)
        raise
    finally:
        stack.pop()


@contextlib.contextmanager
def reading_images(value: bool):
    """Makes `value` the answer of `reads_images` in this thread."""
    previous = _local.__dict__.get("reads_images")
    _local.reads_images = value
    try:
        yield
    finally:
        _local.reads_images = previous


def reads_images() -> bool:
    """Whether operators that this thread makes take data without a layout for images, HWC. For DALI's filters, all axes
    of such data are spatial. See `Scope.reads_images`.
    """
    scope, value = current_scope(), _local.__dict__.get("reads_images")
    return scope is not None and (scope.reads_images if value is None else value)


@contextlib.contextmanager
def inside(branch: Branch | None):
    """Puts the nodes that this thread makes from other nodes into a branch."""
    previous = current_branch()
    _local.branch = branch
    try:
        yield
    finally:
        _local.branch = previous


def current_branch() -> Branch | None:
    """The branch of an `if` that is being defined in this thread."""
    return _local.__dict__.get("branch")


def _is_from_jax(e: Exception) -> bool:
    """Whether an exception was raised in JAX, by its traceback or its text."""
    by_frames = any(
        f.f_globals.get("__name__", "").partition(".")[0] == "jax" for f, _ in traceback.walk_tb(e.__traceback__)
    )
    # JAX may have removed its frames.
    return by_frames or any("JAX" in text for text in (str(e), *getattr(e, "__notes__", ())))


def _reason_for_jax(text: str) -> str:
    """The reason why JAX raised a TypeError with this text: a node in place of an array, or a key that has no value
    yet. "": another one.
    """
    if re.search(r"(got|of type|Value) [^,]*DataNode", text):
        reason = not_array_message("functions of JAX take", node=None)
        return of_values(reason) if "DynamicDataNode" in text else reason
    if "PRNG key type" in text and "TracedKey" in text:
        return (
            "functions of jax.random take keys that have a value, but a key has none while a function of jaxdali.dynamic.jit is "
            "traced: jd.random.split and jd.random.fold_in make further keys of it"
        )
    return ""


def _add_line(e: Exception):
    """Adds the operator and the user's line to the message of an exception from a call of an operator. Other exceptions,
    and messages that have the line, do not change.
    """
    # The innermost line outside this package, and the frame of this package that it called.
    line, called_frame = "", None
    for frame, number in traceback.walk_tb(e.__traceback__):
        # A frame of JAX is neither the user's line nor the call of an operator.
        if frame.f_globals.get("__name__", "").partition(".")[0] == "jax":
            continue
        if not is_ours(frame):
            line, called_frame = f"{frame.f_code.co_filename}:{number}", None
        elif frame.f_globals["__name__"] != calls.__name__:
            called_frame = called_frame or frame
    if type(e) is TypeError and line and (reason := _reason_for_jax(str(e))) and _is_from_jax(e):
        e.args = (f"{reason} (at {line}): {e}",)
        return
    # The call itself may not fit the signature, which Python finds before the operator runs. Then no frame of the
    # operator is in the traceback.
    in_call = type(e) is TypeError and re.search(r"\(\) (got|missing|takes)", str(e))
    if not line or line in str(e) or not (called_frame or in_call):
        return
    name = ""
    if called_frame is not None:
        # Public folders, then private names: "readers._file", "_tensor.cast".
        place = called_frame.f_globals["__name__"].partition(".fn.")[2]
        public = itertools.takewhile(lambda part: part[:1] != "_", place.split("."))
        name = ".".join((*public, called_frame.f_code.co_name)) if place else ""
    e.args = (f"{'' if name in str(e) else f'{name}: '}{e} (called at {line})", *e.args[1:])


def current_scope() -> Scope | None:
    """The innermost definition that runs in this thread; None: there is none."""
    stack = _local.__dict__.get("stack")
    return stack[-1] if stack else None


@contextlib.contextmanager
def replaying_draws(numbers: list[int]):
    """Gives the random operators that this thread makes the random numbers of earlier nodes, in this order.

    With an empty list at first, and the same list each time, all repetitions of a call draw what the first one drew.

    Args:
      numbers: the numbers of those nodes. If more operators are made than it has, theirs are appended.
    """
    previous = _local.__dict__.get("draws")
    _local.draws = (numbers, itertools.count())
    try:
        yield
    finally:
        _local.draws = previous


def _draw_number(number: int) -> int:
    """The number of the node whose random numbers the node `number` draws: its own, except in `replaying_draws`.

    There it is the next one of the numbers to replay. After the last one, the node's own number is appended for the
    next replay.
    """
    draws = _local.__dict__.get("draws")
    if draws is None:
        return number
    numbers, positions = draws
    index = next(positions)
    if index == len(numbers):
        numbers.append(number)
    return numbers[index]


def user_line() -> str:
    """``"file:line"`` of the innermost frame outside this package."""
    if (line := calls.current_line()) is not None:
        return line
    frame = _user_frame()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "?"


def _user_frame() -> types.FrameType | None:
    """The innermost frame outside this package."""
    frame = sys._getframe(1)
    while frame is not None and is_ours(frame):
        frame = frame.f_back
    return frame


def _trace_state() -> Any:
    """The state of JAX's tracing, which can only be compared. Its function moved in jax 0.9."""
    from jax.extend import core  # not at import: it comes with Pallas, 12 ms

    get_state = getattr(core, "get_opaque_trace_state", None) or jax.core.get_opaque_trace_state
    return get_state(convention="jaxdali")


@functools.cache
def _idle_trace_state() -> Any:
    """The state while JAX traces nothing. It is taken from a new thread, as the first caller may be a traced
    function.
    """
    states: list[Any] = []
    thread = threading.Thread(target=lambda: states.append(_trace_state()))
    thread.start()
    thread.join()
    return states[0]


def refuse_tracing(call: str):
    """Raises RuntimeError while JAX traces a function.

    The call would run once, while tracing, and its batch would become a constant of the compiled program.

    Args:
      call: the call in the words of the message, such as "run()".
    """
    if _trace_state() != _idle_trace_state():
        raise RuntimeError(
            f"{call} at {user_line()} is called while JAX traces a function (under jit, vmap, grad, scan, ...): that happens once, and "
            "the batch would become a constant of what is compiled. Take the batch outside, and pass it to the function as an argument"
        )


def warn(text: str, category: type[Warning] = UserWarning, where: str | None = None):
    """Warns at the user's line and in the user's module, as `warnings.warn` does: filters apply, and each line warns
    once.

    Args:
      where: ``"file:line"``; None: the line of the present call.
    """
    if _in_function_of_values():
        text = of_values(text)
    module = (_user_frame() or sys._getframe()).f_globals
    # `warnings.warn` finds line and module by counting frames, which depends on the caller.
    file, _, line = (where or user_line()).rpartition(":")
    registry = module.setdefault("__warningregistry__", {})
    warnings.warn_explicit(
        printable(text), category, file, int(line) if line.isdecimal() else 0, module.get("__name__"), registry
    )


@dataclasses.dataclass(frozen=True)
class DeferredWarning:
    """A warning about a probable mistake in a call of an operator.

    Attributes:
      where: the user's line.
      text: of the warning; "" if it depends on a batch.
      value: the operator of the value that the text depends on; None: the text depends on no value.
      text_of_shape: computes the text, or "", from the shape of that value's first sample; None: `text` is complete.
    """

    where: str
    text: str = ""
    value: Any = None
    text_of_shape: Callable[[tuple[int, ...]], str] | None = None


class DeferredWarnings:
    """The warnings of a definition that is compiled once and called from several lines, each of which warns.

    While it is entered in this thread, `warn_or_defer` stores warnings here. Only those of the first time are kept.

    Attributes:
      warnings: the stored warnings.
      line: of the call for which the definition was compiled.
    """

    def __init__(self):
        self.warnings: list[DeferredWarning] = []
        self.line = ""

    def __enter__(self):
        _local.__dict__.setdefault("deferred", []).append([])

    def __exit__(self, exception_type: object, *_: object):
        new_warnings = _local.deferred.pop()
        if not self.line and exception_type is None:
            self.warnings, self.line = new_warnings, user_line()

    def warn(self, first_shape: Callable[[Any], tuple[int, ...] | None] = lambda value: None):
        """Warns at the lines where the operators were called.

        The line of the call for which the definition was compiled is replaced by that of the present call.

        Args:
          first_shape: gives the shape of the first sample of an operator's value in this batch; None: it is unknown.
        """
        for warning in self.warnings:
            shape = None if warning.text_of_shape is None else first_shape(warning.value)
            if warning.text_of_shape is None:
                text = warning.text
            else:
                text = warning.text_of_shape(shape) if shape is not None else ""
            if text:
                warn(text, where=user_line() if warning.where == self.line else warning.where)


def warn_or_defer(warning: DeferredWarning):
    """Warns at once, or stores the warning while a `DeferredWarnings` is entered in this thread."""
    entered = _local.__dict__.get("deferred")
    if entered:
        entered[-1].append(warning)
    elif warning.text:
        warn(warning.text, where=warning.where)


def _in_function_of_values() -> bool:
    """Whether this thread runs a function of `jaxdali.dynamic`, called by the innermost user's frame."""
    frame = _user_frame()
    inner = sys._getframe(1)  # from here outwards, up to the user's frame
    while inner is not None and inner is not frame:
        if inner.f_globals.get("__name__", "").startswith(f"{__name__.partition('.')[0]}.dynamic"):
            return True
        inner = inner.f_back
    return False


def add(op: Operator, *inputs: Any, device: str | None = None, name: str | None = None) -> Any:
    """Makes a node for the pipeline that is being defined. Outside a definition, any later pipeline may use the node.

    Args:
      op: the operator.
      *inputs: DataNodes; numbers, NumPy and JAX arrays become constants.
      device: "cpu", "mixed", "gpu" (or "tpu") or None: follow the inputs.
      name: the user's name for it.

    Returns:
      A `DataNode`, or a list of them if the operator has several outputs.

    Raises:
      OperatorError: an input was made in a branch of an `if` that is left, or in another pipeline.
    """
    device = device_named(device)
    if device not in (None, "cpu", "mixed", "gpu"):
        raise ValueError(f"{op.name}: device must be 'cpu', 'mixed' or 'gpu', got {device!r}")
    nodes = tuple(as_node(x, op.name) for x in inputs)
    # A node that depends on nothing is made for all samples, as in DALI.
    branch = current_branch() if op.of_batch or any(isinstance(x, DataNode) for x in inputs) else None
    line = user_line()
    # Only an operator that joins the branches of an `if` may read values from inside of them.
    branch = innermost_branch([x for i, x in enumerate(nodes) if i not in op.joins], branch)
    for i, x in enumerate(nodes if not op.joins else ()):
        check_reach(x, branch, f"as input {i} of {op.name}, at {line}")
    for i, x in enumerate(nodes if not op.takes_metadata else ()):
        if (metadata := x.metadata) is not None:
            # Arguments that come per sample are the last inputs; a negative index means an input proper.
            k = i - (len(nodes) - len(op.args.inputs))
            raise ArgumentTypeError(
                f"{op.name}: {f'input {i}' if k < 0 else f'argument {op.args.inputs[k]}'} is the metadata {metadata!r} of {x.node.op.name} "
                f"(created at {x.node.where}), Python objects, which only python_function takes (called at {line})"
            )
    scope, number = current_scope(), next(_numbers)
    for i, x in enumerate(nodes):
        check_pipeline(x, scope.number if scope is not None else 0, f"as input {i} of {op.name}, at {line}")
    # In a definition the name depends on the order of its nodes only, so it is the same in every run.
    default_name = f"__{op.name}_{len(scope.nodes)}" if scope is not None else f"__{op.name}_detached_{number}"
    random_index = _draw_number(number) if op.random else -1
    node = Node(number, op, nodes, device or "", line, name or default_name, name is not None, random_index)
    node.call, node.branch = calls.current_call(), branch
    if scope is not None:
        node.pipeline = scope.number
        scope.nodes.append(node)
        if scope.evaluator is not None:
            node.evaluator = weakref.ref(scope.evaluator)
            scope.evaluator.evaluate(node)
    handle = DataNode if scope is None else scope.handle
    if op.num_outputs == 1 and not op.gives_list:
        return handle(node, 0)
    return [handle(node, i) for i in range(op.num_outputs)]


def as_node(x: Any, name: str) -> DataNode:
    """Returns a DataNode unchanged, and makes a constant from a number or array."""
    if isinstance(x, DataNode):
        return x
    try:
        return language().constant_node(x)
    except TypeError as e:
        raise TypeError(
            f"{name}: an input must be a DataNode, a number or an array, got {type(x).__name__}{sample_advice(x)}"
        ) from e


def is_node(x: Any) -> bool:
    """Whether `x` is a DataNode."""
    return isinstance(x, DataNode)
