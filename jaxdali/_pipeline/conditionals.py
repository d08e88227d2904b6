"""`if`, `and`, `or`, `not` on DataNodes: a definition's function and all that it calls, rewritten so that these are calls.

The rewriting is autograph's (`diastatic-malt`); what the rewritten code calls is here. It keeps the lines of the user's file.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import logging
import os
import sys
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

# Packages in which no DataNode is asked for anything: they run as they are.
_LIBRARIES = frozenset(
    "PIL absl chex cv2 etils flax h5py imageio jax jaxlib malt matplotlib ml_dtypes numpy optax orbax pandas pytest scipy skimage sklearn "
    "tensorflow torch torchvision tqdm".split()
)

_code: weakref.WeakKeyDictionary[types.CodeType, types.CodeType | None] = weakref.WeakKeyDictionary()  # what makes the rewritten function
# Functions that are defined inside of rewritten ones stay as the user wrote them, for whoever gets them (`jax_function`, a source); who
# calls them calls the rewritten twin. Their code, by where it is.
_inner: dict[tuple[str, str, int], list[types.CodeType]] = {}
_twins: weakref.WeakKeyDictionary[types.FunctionType, types.FunctionType] = weakref.WeakKeyDictionary()


def do_not_convert(function: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """A decorator: in a pipeline with ``enable_conditionals=True`` the function runs as it is, and what it calls, too.

    For functions that can't be rewritten, or that ask for nothing that is a DataNode and take long.

    Args:
      function: also a class or another object that can be called, which stays the same object. None, as in ``@do_not_convert()``: the
        decorator itself.

    Raises:
      TypeError: it can't be called.
      ValueError: it is a pipeline definition.
    """
    if function is None:
        return do_not_convert
    if not callable(function):
        raise TypeError(f"do_not_convert marks functions, got {function!r}")
    if getattr(function, "_is_pipeline_def", False):
        raise ValueError("a pipeline definition must not be marked with @do_not_convert: it marks what a definition calls")
    if not isinstance(function, (types.FunctionType, types.MethodType, functools.partial)):
        with contextlib.suppress(AttributeError, TypeError):  # what takes no attributes is wrapped
            function._is_kept = True  # pyright: ignore[reportFunctionMemberAccess]
            return function

    @functools.wraps(function)
    def as_it_is(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    as_it_is._is_kept = True  # pyright: ignore[reportAttributeAccessIssue]
    as_it_is.autograph_info__ = None  # pyright: ignore[reportAttributeAccessIssue]  how autograph marks what is converted
    return as_it_is


def is_kept(f: Any) -> bool:
    """Whether `do_not_convert` marks it."""
    return getattr(f, "_is_kept", False)


def converted(f: Any) -> Any:
    """What to call in place of `f`: rewritten where that is possible and makes a difference; else itself."""
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
    """Whether a function stands among Python's own files: modules of users, too, are called `test`, `code` or `pipes`."""
    return f.__code__.co_filename.startswith(("<frozen", os.path.dirname(os.__file__) + os.sep))


def _rewritten(f: Any) -> Any:
    if not isinstance(f, types.FunctionType) or hasattr(f, "autograph_info__") or f.__code__.co_flags & _GENERATOR:
        return f
    if (twin := _twins.get(f)) is not None:
        return twin
    package = f.__globals__.get("__name__", "").partition(".")[0]
    if package in _LIBRARIES or (package in sys.stdlib_module_names and _is_pythons(f)) or in_package(f.__code__.co_filename):
        return f
    code = _code.get(f.__code__)
    if f.__code__ not in _code:
        try:
            code = _factory(f)
        except Exception as e:  # whatever autograph makes of code that it does not know
            _log.warning("%s, %s:%d, runs as it is, without conditionals: %s", f.__qualname__, *_place(f), _reason(f, e))
        _code[f.__code__] = code
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


def _reason(f: types.FunctionType, e: Exception) -> str:
    """Why a function can't be rewritten."""
    try:
        inspect.getsource(f)
    except OSError:  # autograph's text speaks of TensorFlow's decorators
        return "its source can't be read, as it was typed in, piped in or made by exec: put it into a file or a notebook"
    except Exception:  # the file is another one by now, say
        pass
    return str(e)


_GENERATOR = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _place(f: types.FunctionType) -> tuple[str, int]:
    return f.__code__.co_filename, f.__code__.co_firstlineno


def _factory(f: types.FunctionType) -> types.CodeType:
    """Code of a function of the operators that returns `f` rewritten. Its free variables are those of `f`."""
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
    # A closure's cells are given when a function is made of the code: here are only their names.
    cells = "".join(f"    {n} = None\n" for n in f.__code__.co_freevars)
    module = ast.parse(f"def outer():\n{cells}    def inner(ag__):\n        return {name}\n    return inner\n")
    outer = module.body[0]
    assert isinstance(outer, ast.FunctionDef)
    inner = next(n for n in outer.body if isinstance(n, ast.FunctionDef))
    inner.body.insert(0, node)

    def place(n: ast.AST, line: int):
        """Gives nodes the lines of the user's file; what autograph added, those of what it was made of."""
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
    """The function as the user wrote it, of one that was rewritten as part of another; that itself where it is not known which it is."""
    code = twin.__code__
    cells = dict(zip(code.co_freevars, twin.__closure__ or (), strict=True))
    found = dict.fromkeys(_inner.get((code.co_filename, code.co_name, code.co_firstlineno), ()))
    twin.autograph_info__ = extras
    if len(found) != 1 or not set((own := next(iter(found))).co_freevars) <= cells.keys():
        return twin
    f = types.FunctionType(own, twin.__globals__, own.co_name, twin.__defaults__, tuple(cells[n] for n in own.co_freevars))
    f.__kwdefaults__, f.__doc__, f.__module__ = twin.__kwdefaults__, twin.__doc__, twin.__module__
    f.__annotations__, f.__qualname__ = twin.__annotations__, own.co_qualname
    _twins[f] = twin
    return f


_FUTURE = 0x1FF0000 & ~0x100000  # what `from __future__ import` sets


@functools.cache
def _operators() -> Any:
    """What rewritten code calls: autograph's own module, with ours in place of what may get DataNodes."""
    from malt.impl.api import PyToPy

    operators = PyToPy().get_extra_locals()["ag__"]
    operators.autograph_artifact = _as_written
    operators.if_stmt, operators.if_exp, operators.converted_call = _if, _if_expression, _call
    operators.and_, operators.or_, operators.not_ = _and, _or, _not
    return operators


def _call(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, scope: Any = None, options: Any = None) -> Any:
    """Every call in rewritten code."""
    if inspect.isbuiltin(f) or (isinstance(f, type) and f.__module__ == "builtins"):
        if f in (eval, super, locals, globals):
            from malt.operators import py_builtins

            if f is eval:
                return py_builtins.eval_in_original_context(f, args, scope)
            if f is super:
                return py_builtins.super_in_original_context(f, args, scope)
            return (py_builtins.locals_in_original_context if f is locals else py_builtins.globals_in_original_context)(scope)
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
    """An `if` statement. Of the variables that it sets the first `outputs` are read after it."""
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
    """What one of two functions gives, for each sample: what an `if` is rewritten to, for code that is not rewritten."""
    return _joined(condition, lambda: (if_true(),), lambda: (if_false(),), ("of each branch",))[0]


def _if_expression(condition: Any, if_true: Callable[[], Any], if_false: Callable[[], Any], text: str) -> Any:
    """``a if condition else b``. DALI has it not."""
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
    """Both sides of an `if`, each in its branch, and what they made as one."""
    where, outer = user_line(), current_branch()
    check_reach(condition, outer, f"by the `if` at {where}")
    predicate = language().predicate_of(condition)
    results = []
    for side, body in ((True, if_true), (False, if_false)):
        with inside(Branch(predicate, side, outer, where)):
            results.append(body())
    return [_merged(a, b, predicate, name, where) for a, b, name in zip(*results, names, strict=True)]


def _merged(a: Any, b: Any, predicate: DataNode, name: str, where: str) -> Any:
    """What the branches gave a variable, as one."""
    from malt.operators.variables import Undefined, UndefinedReturnValue

    undefined = [isinstance(x, (Undefined, UndefinedReturnValue)) for x in (a, b)]
    if all(undefined):
        return a
    if any(undefined):
        one, other = ("else", "if") if undefined[0] else ("if", "else")
        if any(isinstance(x, UndefinedReturnValue) for x in (a, b)):
            raise OperatorError("if", where, f"the `{one}` branch returns a value, so the `{other}` branch must return one, too")
        raise OperatorError("if", where, f"the `{one}` branch gives {name!r} a value, so the `{other}` branch must, too, or what is before")
    (these, form), (those, other) = jax.tree.flatten(a), jax.tree.flatten(b)
    if form != other:
        raise ValueError(
            f"the `if` at {where} gives the variable {name!r} another structure in each branch: {_shown(form)} and {_shown(other)}; "
            "lists, tuples and dicts must have the same lengths and keys, so that their elements become one"
        )
    return jax.tree.unflatten(form, [_one(x, y, predicate, name, where) for x, y in zip(these, those, strict=True)])


def _one(a: Any, b: Any, predicate: DataNode, name: str, where: str) -> Any:
    if a is b:  # neither branch touched it
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
