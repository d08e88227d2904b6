"""Refusals of a `DataNode`, which has no value: conversions, iteration, functions of NumPy and JAX. The messages name
an alternative.
"""

from __future__ import annotations

import functools
import linecache
import types
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Protocol

from .arguments import declared
from .calls import Call, functions
from .errors import ArgumentError
from .names import ONLY_IN_PIPELINES, did_you_mean
from .tracebacks import boundaries, is_ours

# Attributes through which libraries access the memory of an array.
_OF_ARRAYS = ("__array_interface__", "__cuda_array_interface__", "__dlpack__")


class _Node(Protocol):
    """The parts of a `graph.Node` that messages name."""

    op: Any
    where: str
    call: Call | None
    pipeline: int


def has_values(name: str) -> bool:
    """Whether `jaxdali.dynamic` has the function of this name, a key of `calls.functions`."""
    in_fn = name in declared and functions[name].__module__.startswith(f"{__name__.partition('.')[0]}.fn.")
    return in_fn and not {*name.split(".")}.intersection((*ONLY_IN_PIPELINES, "auto_aug"))


def missing_value_reason(node: _Node | None) -> str:
    """The reason why a node has no value, and an alternative: the end of a message. None: the node is not known."""
    batch = "stands for a batch that does not exist yet"
    operators = (
        "use operators (fn.cast, fn.stack, fn.reductions.mean, jaxdali.math.clamp, ...), or do it in a jax_function, "
        "which gets the batch: jax.vmap(f) gives f one sample"
    )
    if node is None or node.pipeline:
        return f"{batch}: {operators}"
    name = node.call.function if node.call is not None else ""
    immediate = f"jaxdali.dynamic.{name} evaluates" if has_values(name) else "Functions of jaxdali.dynamic evaluate"
    return (
        f"{batch}: {node.op.name}, called at {node.where} outside a pipeline definition, made a node of a pipeline, which is evaluated "
        f"when a pipeline runs. {immediate} immediately; in a pipeline {operators}"
    )


def unreadable_advice(frame: types.FrameType | None) -> str:
    """The end of a message about conditionals: advice if the source of the user's code can't be read; otherwise "".

    Args:
      frame: the innermost one.
    """
    while frame is not None and is_ours(frame):
        frame = frame.f_back
    if frame is None or linecache.getline(frame.f_code.co_filename, frame.f_lineno, frame.f_globals):
        return ""
    return (
        "; enable_conditionals=True needs the source of this code, which can't be read, as it was typed in, piped in or made by exec: "
        "put it into a file or a notebook"
    )


def no_value_message(operation: str, node: _Node) -> str:
    """The message for an operation that needs a value."""
    return f"{operation} of a DataNode: it {missing_value_reason(node)}"


def not_array_message(takes: str, node: _Node | None) -> str:
    """The message if a function that takes arrays gets a node.

    Args:
      takes: the beginning of the message, such as "numpy.asarray takes".
    """
    return f"{takes} arrays, but a DataNode {missing_value_reason(node)}"


def no_attribute_message(name: str, node: _Node, known: Iterable[str]) -> str:
    """The message for an unknown attribute."""
    private = name.startswith("_")
    advice = "" if private else did_you_mean(name, known, "DataNode")
    text = f"a DataNode has no attribute {name!r}{advice}"
    if node.pipeline or (private and name not in _OF_ARRAYS):
        return text
    return f"{text}{' ' if advice.endswith('?') else '. '}It {missing_value_reason(node)}"


# Functions of JAX that check whether a value can be an array. Callers of those in `_CHECKS_WITH_OWN_TEXT` replace the
# text of a TypeError by their own. Operators of JAX arrays check their other operand, too: they refuse a node, and
# Python then calls the node's operator.
_ARRAY_CHECKS = frozenset(
    (
        "_arraylike",
        "_convert",
        "array",
        "asarray",
        "bind",
        "full_like",
        "ones_like",
        "shaped_abstractify",
        "typeof",
        "zeros_like",
    )
)
_CHECKS_WITH_OWN_TEXT = frozenset(("bind", "shaped_abstractify", "typeof"))


def refuse_jax(node: _Node, caller: types.FrameType):
    """Raises an error if a function of JAX checks whether a node can be an array. JAX's own messages differ from
    function to function.

    Args:
      caller: the frame that looked for `__jax_array__` of the node.
    """
    name = caller.f_code.co_name
    if name not in _ARRAY_CHECKS or caller.f_globals.get("__name__", "").partition(".")[0] != "jax":
        return
    if name not in _CHECKS_WITH_OWN_TEXT:
        raise TypeError(not_array_message("functions of JAX take", node))
    if not node.pipeline or name == "typeof":  # in a definition `building` replaces JAX's text
        raise ArgumentError(not_array_message("functions of JAX take", node))


def _refused(conversion: str) -> Callable[..., NoReturn]:
    """A method that raises the TypeError for a conversion that needs a value."""

    def refuse(self: Any, *_: Any) -> NoReturn:
        raise TypeError(no_value_message(conversion, self.node))

    return refuse


@boundaries
class Unreadable:
    """Python's conversions and protocols that need a value. A node refuses them all."""

    __slots__ = ()

    __bytes__ = _refused("bytes()")
    __complex__ = _refused("complex()")
    __contains__ = _refused("`in`")
    __float__ = _refused("float()")
    __index__ = _refused("an index")
    __int__ = _refused("int()")
    __len__ = _refused("len()")
    __round__ = _refused("round()")

    def __iter__(self: Any) -> NoReturn:
        several = "; an operator with several outputs gives a list of DataNodes, any other a single one"
        raise TypeError(no_value_message("iteration", self.node) + several)

    def __format__(self, spec: str) -> str:
        if spec:
            raise TypeError(no_value_message(f"the format {spec!r}", self.node))  # pyright: ignore[reportAttributeAccessIssue]
        return str(self)


class NodeType(type):
    """The type of `DataNode`: `collections.abc` does not see `Unreadable`.

    Users tell one output from several by `collections.abc.Iterable`, which every class with a method `__iter__` is
    otherwise.
    """

    @property
    def __mro__(cls) -> tuple[type, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return tuple(c for c in type.mro(cls) if c is not Unreadable)


class Method:
    """A descriptor for a method of nodes with the name of an attribute of arrays, such as ``shape``. If the method is
    used as if it were that attribute, an error says that it is a method.
    """

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def __get__(self, x: Any, kind: type | None = None) -> Any:
        return self._function if x is None else _BoundMethod(types.MethodType(self._function, x))


@boundaries
class _BoundMethod:
    """A bound `Method`: it can be called, and refuses all uses as an array."""

    __hash__ = object.__hash__

    def __init__(self, method: types.MethodType):
        functools.update_wrapper(self, method)
        self._method = method

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._method(*args, **kwargs)

    def __repr__(self) -> str:
        return repr(self._method)

    def __iter__(self, *_: Any, **__: Any) -> NoReturn:
        """Refuses a use as an array. All methods of arrays below are this one."""
        name, node = self._method.__name__, self._method.__self__.node  # pyright: ignore[reportAttributeAccessIssue]
        raise TypeError(
            f"{name} of a DataNode is a method, and x.{name}() a value of the pipeline: the node {missing_value_reason(node)}"
        )

    __array__ = __eq__ = __ge__ = __getitem__ = __gt__ = __le__ = __len__ = __lt__ = __ne__ = __iter__
