"""`if`, `and`, `or`, `not` on DataNodes. A definition and the functions that it calls are rewritten so that these
become calls.

autograph (`diastatic-malt`) rewrites the code; this module has the functions that the rewritten code calls. The user's
line numbers are kept.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import logging
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from .._core.building import as_node, current_branch, inside, is_node, user_line
from .._core.errors import OperatorError, in_package
from .._core.graph import Branch, DataNode, check_reach
from .._core.language import language

_log = logging.getLogger(__name__)

# Packages that never test DataNodes: their functions run unchanged.
_LIBRARIES = frozenset(
    "PIL absl chex cv2 etils flax h5py imageio jax jaxlib malt matplotlib ml_dtypes numpy optax orbax pandas pytest scipy skimage sklearn "
    "tensorflow torch torchvision tqdm".split()
)

# Guards `_code` and `_inner`, so that a function is rewritten once, and a thread that needs it waits for the one that
# rewrites it.
_rewriting = threading.RLock()  # a warning that is an error may be logged inside of it
# The code that makes the rewritten function, by the original code.
_code: weakref.WeakKeyDictionary[types.CodeType, types.CodeType | None] = weakref.WeakKeyDictionary()
# Functions that are defined inside rewritten ones stay as the user wrote them when they are passed to others
# (`jax_function`, a source); a call from rewritten code uses the rewritten twin. This is their original code, by its
# place.
_inner: dict[tuple[str, str, int], list[types.CodeType]] = {}
_twins: weakref.WeakKeyDictionary[types.FunctionType, types.FunctionType] = weakref.WeakKeyDictionary()


def do_not_convert(function: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Decorator: in a pipeline with ``enable_conditionals=True`` the function, and the functions that it calls, are not
    rewritten.

    Use it for functions that can't be rewritten, or that never test a DataNode and take long to rewrite.

    Args:
      function: a function, class or other callable, which remains the same object. None, as in ``@do_not_convert()``:
        returns the decorator itself.

    Raises:
      TypeError: it is not callable.
      ValueError: it is a pipeline definition.
    """
    if function is None:
        return do_not_convert
    if not callable(function):
        raise TypeError(f"do_not_convert marks functions, got {function!r}")
    if getattr(function, "_is_pipeline_def", False):
        raise ValueError(
            "a pipeline definition must not be marked with @do_not_convert: it marks what a definition calls"
        )
    if not isinstance(function, (types.FunctionType, types.MethodType, functools.partial)):
        with contextlib.suppress(AttributeError, TypeError):  # an object without attributes is wrapped
            function._is_kept = True  # pyright: ignore[reportFunctionMemberAccess]
            return function

    @functools.wraps(function)
    def as_it_is(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    as_it_is._is_kept = True  # pyright: ignore[reportAttributeAccessIssue]
    as_it_is.autograph_info__ = None  # pyright: ignore[reportAttributeAccessIssue]  how autograph marks what is converted
    return as_it_is


def is_kept(f: Any) -> bool:
    """Whether `do_not_convert` has marked it."""
    return getattr(f, "_is_kept", False)


def converted(f: Any) -> Any:
    """The function to call in place of `f`: rewritten if this is possible and makes a difference, otherwise `f`."""
    if isinstance(f, functools.partial):
        return functools.partial(converted(f.func), *f.args, **f.keywords)
    if isinstance(f, types.MethodType):
        function = _rewritten(f.__func__)
        return f if function is f.__func__ else types.MethodType(function, f.__self__)
    if isinstance(f, types.FunctionType):
        return _rewritten(f)
    call = inspect.getattr_static(type(f), "__call__", None)
    if not isinstance(f, type) and isinstance(call, types.FunctionType) and not is_kept(f):
        function = _rewritten(call)
        return f if function is call else types.MethodType(function, f)
    return f


def _is_pythons(f: types.FunctionType) -> bool:
    """Whether a function is in Python's own library. Names do not tell: users also call modules `test`, `code` or
    `pipes`.
    """
    return f.__code__.co_filename.startswith(("<frozen", os.path.dirname(os.__file__) + os.sep))


def _rewritten(f: Any) -> Any:
    if not isinstance(f, types.FunctionType) or hasattr(f, "autograph_info__") or f.__code__.co_flags & _GENERATOR:
        return f
    if (twin := _twins.get(f)) is not None:
        return twin
    package = f.__globals__.get("__name__", "").partition(".")[0]
    if (
        package in _LIBRARIES
        or (package in sys.stdlib_module_names and _is_pythons(f))
        or in_package(f.__code__.co_filename)
    ):
        return f
    code = _code_of(f)
    if code is None:
        return f
    cells = dict(zip(f.__code__.co_freevars, f.__closure__ or (), strict=True))
    make = types.FunctionType(code, f.__globals__, f.__name__, (), tuple(cells[n] for n in code.co_freevars))
    made = make(_operators())
    made.__code__ = made.__code__.replace(co_name=f.__name__, co_qualname=f.__qualname__)
    made.__defaults__, made.__kwdefaults__ = f.__defaults__, f.__kwdefaults__
    made.__qualname__, made.__doc__, made.__module__ = f.__qualname__, f.__doc__, f.__module__
    made.autograph_info__ = None
    return made


def _code_of(f: types.FunctionType) -> types.CodeType | None:
    """The code that makes the rewritten function; None: it can't be rewritten."""
    with _rewriting:
        if f.__code__ not in _code:
            try:
                _code[f.__code__] = _factory(f)
            except Exception as e:  # autograph raises various exceptions for unknown code
                _log.warning(
                    "%s, %s:%d, runs unchanged, without conditionals: %s", f.__qualname__, *_place(f), _reason(f, e)
                )
                _code[f.__code__] = None
        return _code[f.__code__]


def _reason(f: types.FunctionType, e: Exception) -> str:
    """Why a function can't be rewritten."""
    try:
        inspect.getsource(f)
    except OSError:  # autograph's text is about TensorFlow's decorators
        return (
            "its source can't be read, as it was typed in, piped in or made by exec: put it into a file or a notebook"
        )
    except Exception:  # for example, the file has changed
        pass
    return str(e)


_GENERATOR = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _place(f: types.FunctionType) -> tuple[str, int]:
    return f.__code__.co_filename, f.__code__.co_firstlineno


def _factory(f: types.FunctionType) -> types.CodeType:
    """Code of a function that takes autograph's operators and returns `f` rewritten. Its free variables are those of
    `f`.
    """
    from malt.core.converter import ConversionOptions, ProgramContext
    from malt.impl.api import PyToPy
    from malt.pyct import anno, transpiler

    options = ConversionOptions(recursive=True, user_requested=True, optional_features=())  # pyright: ignore[reportArgumentType]
    node: Any
    node, context = transpiler.GenericTranspiler.transform_function(PyToPy(), f, ProgramContext(options=options))
    name = context.info.name
    if isinstance(node, ast.Lambda):
        node = ast.Assign(targets=[ast.Name(name, ctx=ast.Store())], value=node)
    else:
        node.name = name
    # Cells are bound when a function is made from the code. Here only their names are needed.
    cells = "".join(f"    {n} = None\n" for n in f.__code__.co_freevars)
    module = ast.parse(f"def outer():\n{cells}    def inner(ag__):\n        return {name}\n    return inner\n")
    outer = module.body[0]
    assert isinstance(outer, ast.FunctionDef)
    inner = next(n for n in outer.body if isinstance(n, ast.FunctionDef))
    inner.body.insert(0, node)

    def place(n: ast.AST, line: int):
        """Gives nodes the lines of the file that the user wrote. Nodes that autograph added get the lines of the code
        they come from.
        """
        origin: Any = anno.getanno(n, anno.Basic.ORIGIN, default=None)
        if origin is not None:
            line = origin.loc.lineno
        if "lineno" in n._attributes:
            n.lineno = n.end_lineno = line  # pyright: ignore[reportAttributeAccessIssue]
            n.col_offset = n.end_col_offset = -1  # pyright: ignore[reportAttributeAccessIssue]  none, so nothing is underlined
        for child in ast.iter_child_nodes(n):
            place(child, line)

    file, first = _place(f)
    place(module, first)
    for code in _codes_in(f.__code__):
        _inner.setdefault((file, code.co_name, code.co_firstlineno), []).append(code)
    namespace: dict[str, Any] = {}
    exec(compile(module, file, "exec", flags=f.__code__.co_flags & _FUTURE, dont_inherit=True), namespace)
    return namespace["outer"]().__code__


def _codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield c
            yield from _codes_in(c)


def _as_written(twin: Any, extras: Any = None) -> Any:
    """The original of a function that was rewritten as part of another one; the function itself if the original is
    unknown.
    """
    code = twin.__code__
    cells = dict(zip(code.co_freevars, twin.__closure__ or (), strict=True))
    found = dict.fromkeys(_inner.get((code.co_filename, code.co_name, code.co_firstlineno), ()))
    twin.autograph_info__ = extras
    if len(found) != 1 or not set((own := next(iter(found))).co_freevars) <= cells.keys():
        return twin
    f = types.FunctionType(
        own, twin.__globals__, own.co_name, twin.__defaults__, tuple(cells[n] for n in own.co_freevars)
    )
    f.__kwdefaults__, f.__doc__, f.__module__ = twin.__kwdefaults__, twin.__doc__, twin.__module__
    f.__annotations__, f.__qualname__ = twin.__annotations__, own.co_qualname
    _twins[f] = twin
    return f


_FUTURE = 0x1FF0000 & ~0x100000  # flags of `from __future__ import`


@functools.cache
def _operators() -> Any:
    """The functions that rewritten code calls: autograph's module, with our functions where an operand may be a
    DataNode.
    """
    from malt.impl.api import PyToPy

    operators = PyToPy().get_extra_locals()["ag__"]
    operators.autograph_artifact = _as_written
    operators.if_stmt, operators.if_exp, operators.converted_call = _if, _if_expression, _call
    operators.and_, operators.or_, operators.not_ = _and, _or, _not
    return operators


def _call(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, scope: Any = None, options: Any = None) -> Any:
    """Calls a function in rewritten code."""
    if inspect.isbuiltin(f) or (isinstance(f, type) and f.__module__ == "builtins"):
        if f in (eval, super, locals, globals):
            from malt.operators import py_builtins

            if f is eval:
                return py_builtins.eval_in_original_context(f, args, scope)
            if f is super:
                return py_builtins.super_in_original_context(f, args, scope)
            return (py_builtins.locals_in_original_context if f is locals else py_builtins.globals_in_original_context)(
                scope
            )
        args = tuple(converted(x) if isinstance(x, types.FunctionType) else x for x in args)  # map, sorted, ...
        return f(*args, **(kwargs or {}))
    return converted(f)(*args, **(kwargs or {}))


def _if(
    condition: Any,
    body: Callable[[], Any],
    otherwise: Callable[[], Any],
    get_state: Callable[[], tuple[Any, ...]],
    set_state: Callable[[Sequence[Any]], None],
    names: Sequence[str],
    outputs: int,
) -> None:
    """An `if` statement. The first `outputs` of the variables that it sets are read after it."""
    if not is_node(condition):
        (body if condition else otherwise)()
        return
    before = get_state()

    def run(side: Callable[[], Any]) -> tuple[Any, ...]:
        set_state(before)
        side()
        return get_state()[:outputs]

    set_state((*_joined(condition, lambda: run(body), lambda: run(otherwise), names[:outputs]), *before[outputs:]))


def either(condition: DataNode, if_true: Callable[[], Any], if_false: Callable[[], Any]) -> Any:
    """The result of one of two functions for each sample: what an `if` is rewritten to, for code that is not rewritten."""
    return _joined(condition, lambda: (if_true(),), lambda: (if_false(),), ("of each branch",))[0]


def _if_expression(condition: Any, if_true: Callable[[], Any], if_false: Callable[[], Any], text: str) -> Any:
    """``a if condition else b``, which DALI does not support."""
    if not is_node(condition):
        return if_true() if condition else if_false()
    return _joined(condition, lambda: (if_true(),), lambda: (if_false(),), (text,))[0]


def _and(a: Callable[[], Any], b: Callable[[], Any]) -> Any:
    left = a()
    if not is_node(left):
        return left and b()
    left = language().logical(left, "and", "left")
    return _joined(left, lambda: (language().logical(b(), "and", "right"),), lambda: (left,), ("and",))[0]


def _or(a: Callable[[], Any], b: Callable[[], Any]) -> Any:
    left = a()
    if not is_node(left):
        return left or b()
    left = language().logical(left, "or", "left")
    return _joined(left, lambda: (left,), lambda: (language().logical(b(), "or", "right"),), ("or",))[0]


def _not(a: Any) -> Any:
    return language().logical(a, "not", "right") if is_node(a) else not a


def _joined(
    condition: DataNode,
    if_true: Callable[[], Sequence[Any]],
    if_false: Callable[[], Sequence[Any]],
    names: Sequence[str],
) -> list[Any]:
    """Runs both sides of an `if`, each in its branch, and merges their results."""
    where, outer = user_line(), current_branch()
    check_reach(condition, outer, f"by the `if` at {where}")
    predicate = language().predicate_of(condition)
    results = []
    for side, body in ((True, if_true), (False, if_false)):
        with inside(Branch(predicate, side, outer, where)):
            results.append(body())
    return [_merged(a, b, predicate, name, where) for a, b, name in zip(*results, names, strict=True)]


def _merged(a: Any, b: Any, predicate: DataNode, name: str, where: str) -> Any:
    """Merges the values that the branches gave to a variable."""
    from malt.operators.variables import Undefined, UndefinedReturnValue

    undefined = [isinstance(x, (Undefined, UndefinedReturnValue)) for x in (a, b)]
    if all(undefined):
        return a
    if any(undefined):
        one, other = ("else", "if") if undefined[0] else ("if", "else")
        if any(isinstance(x, UndefinedReturnValue) for x in (a, b)):
            raise OperatorError(
                "if", where, f"the `{one}` branch returns a value, so the `{other}` branch must return one, too"
            )
        raise OperatorError(
            "if",
            where,
            f"the `{one}` branch gives {name!r} a value, so the `{other}` branch must, too, or the code before",
        )
    (these, form), (those, other) = jax.tree.flatten(a), jax.tree.flatten(b)
    if form != other:
        raise ValueError(
            f"the `if` at {where} gives the variable {name!r} another structure in each branch: {_shown(form)} and {_shown(other)}; "
            "lists, tuples and dicts must have the same lengths and keys, so that their elements become one"
        )
    return jax.tree.unflatten(form, [_one(x, y, predicate, name, where) for x, y in zip(these, those, strict=True)])


def _one(a: Any, b: Any, predicate: DataNode, name: str, where: str) -> Any:
    if a is b:  # neither branch changed it
        return a
    try:
        return language().merge(as_node(a, "if"), as_node(b, "if"), predicate)
    except TypeError:
        raise TypeError(
            f"the `if` at {where} gives the variable {name!r} values of types {type(a).__name__} and {type(b).__name__}: "
            "only DataNodes, numbers and arrays can differ from sample to sample"
        ) from None


def _shown(form: Any) -> str:
    return str(form).removeprefix("PyTreeDef(").removesuffix(")")
