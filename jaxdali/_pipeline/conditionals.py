"""`if`, `and`, `or`, `not` on DataNodes. A definition and the functions that it calls are rewritten so that these
become calls.

autograph (`diastatic-malt`) rewrites the code; this module has the functions that the rewritten code calls. Rewritten
code has the line numbers of the user's file.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import logging
import os
import re
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

# Packages whose functions never test DataNodes, so they run unchanged.
_LIBRARIES = frozenset(
    "PIL absl chex cv2 etils flax h5py imageio jax jaxlib malt matplotlib ml_dtypes numpy optax orbax pandas pytest scipy skimage sklearn "
    "tensorflow torch torchvision tqdm".split()
)

# Guards `_factory_codes` and `_nested_originals`, so that a function is rewritten once, and a thread that needs it
# waits for the one that rewrites it.
_rewriting = threading.RLock()  # a warning that is an error may be logged inside of it
# By the code of a function: the code that makes the rewritten function; None if it can't be rewritten.
_factory_codes: weakref.WeakKeyDictionary[types.CodeType, types.CodeType | None] = weakref.WeakKeyDictionary()
# A function that is defined inside a rewritten one is passed to others (`jax_function`, a source) as the user wrote it;
# a call from rewritten code uses its rewritten twin. Here are the original codes, by file, name and first line.
_nested_originals: dict[tuple[str, str, int], list[types.CodeType]] = {}
_twins: weakref.WeakKeyDictionary[types.FunctionType, types.FunctionType] = weakref.WeakKeyDictionary()


def do_not_convert(function: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Decorator: in a pipeline with ``enable_conditionals=True`` the function, and the functions that it calls, are not
    rewritten.

    Use it for functions that can't be rewritten, or that never test a DataNode and take long to rewrite.

    Args:
      function: a function, which is wrapped, or a class or other callable, which remains the same object. None, as in
        ``@do_not_convert()``: returns the decorator itself.

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
            function._is_excluded = True  # pyright: ignore[reportFunctionMemberAccess]
            return function

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    wrapper._is_excluded = True  # pyright: ignore[reportAttributeAccessIssue]
    wrapper.autograph_info__ = None  # pyright: ignore[reportAttributeAccessIssue]  how autograph marks what is converted
    return wrapper


def is_excluded(f: Any) -> bool:
    """Whether `do_not_convert` has marked a function."""
    return getattr(f, "_is_excluded", False)


def converted(f: Any) -> Any:
    """The function to call in place of `f`: rewritten if this is possible and makes a difference, otherwise `f`."""
    if isinstance(f, functools.partial):
        return functools.partial(converted(f.func), *f.args, **f.keywords)
    if isinstance(f, types.MethodType):
        function = _rewrite(f.__func__)
        return f if function is f.__func__ else types.MethodType(function, f.__self__)
    if isinstance(f, types.FunctionType):
        return _rewrite(f)
    call = inspect.getattr_static(type(f), "__call__", None)
    if not isinstance(f, type) and isinstance(call, types.FunctionType) and not is_excluded(f):
        function = _rewrite(call)
        return f if function is call else types.MethodType(function, f)
    return f


def _is_in_stdlib(f: types.FunctionType) -> bool:
    """Whether a function is in Python's standard library. It looks at the file, because users also name modules `test`,
    `code` or `pipes`.
    """
    return f.__code__.co_filename.startswith(("<frozen", os.path.dirname(os.__file__) + os.sep))


def _rewrite(f: Any) -> Any:
    """Returns the rewritten function; `f` itself if it is not rewritten: generators, library code, code without source."""
    # Rewritten functions, and those that `do_not_convert` has wrapped, have the attribute `autograph_info__`.
    if not isinstance(f, types.FunctionType) or hasattr(f, "autograph_info__") or f.__code__.co_flags & _GENERATOR:
        return f
    if (twin := _twins.get(f)) is not None:
        return twin
    package = f.__globals__.get("__name__", "").partition(".")[0]
    if (
        package in _LIBRARIES
        or (package in sys.stdlib_module_names and _is_in_stdlib(f))
        or in_package(f.__code__.co_filename)
    ):
        return f
    code = _factory_code_of(f)
    if code is None:
        return f
    # The code is cached, but each function has cells (the values of its free variables) of its own.
    cells = dict(zip(f.__code__.co_freevars, f.__closure__ or (), strict=True))
    factory = types.FunctionType(code, f.__globals__, f.__name__, (), tuple(cells[n] for n in code.co_freevars))
    rewritten = factory(_operators())
    rewritten.__code__ = rewritten.__code__.replace(co_name=f.__name__, co_qualname=f.__qualname__)
    rewritten.__defaults__, rewritten.__kwdefaults__ = f.__defaults__, f.__kwdefaults__
    rewritten.__qualname__, rewritten.__doc__, rewritten.__module__ = f.__qualname__, f.__doc__, f.__module__
    rewritten.autograph_info__ = None
    return rewritten


def _factory_code_of(f: types.FunctionType) -> types.CodeType | None:
    """The result of `_compile_factory`, cached by the code of `f`; None: `f` can't be rewritten."""
    with _rewriting:
        if f.__code__ not in _factory_codes:
            try:
                _factory_codes[f.__code__] = _compile_factory(f)
            except Exception as e:  # autograph raises various exceptions for unknown code
                _log.warning(
                    "%s, %s:%d, runs unchanged, without conditionals: %s",
                    f.__qualname__,
                    *_source_location(f),
                    _reason(f, e),
                )
                _factory_codes[f.__code__] = None
        return _factory_codes[f.__code__]


def _reason(f: types.FunctionType, e: Exception) -> str:
    """The reason why a function can't be rewritten, for the log."""
    try:
        inspect.getsource(f)
        _check_source(f)
    except OSError:  # autograph's own message is about TensorFlow's decorators
        return (
            "its source can't be read, as it was typed in, piped in or made by exec: put it into a file or a notebook"
        )
    except Exception:  # for example, the file has changed
        pass
    return str(e)


def _check_source(f: types.FunctionType) -> None:
    """Raises OSError if the source that Python finds is of other code. From 3.13 on it has the text of ``python -c``
    under a name of a file that all code made by exec has.
    """
    name = f.__code__.co_name
    if f.__code__.co_filename == "<string>" and name != "<lambda>":
        # The first line may be that of a decorator.
        lines, _ = inspect.getsourcelines(f)
        if not any(re.match(rf"\s*(async\s+)?def\s+{name}\b", line) for line in lines):
            raise OSError("the source is of other code")


# The flags of generators and coroutines, which are not rewritten.
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _source_location(f: types.FunctionType) -> tuple[str, int]:
    """The file and the first line of a function."""
    return f.__code__.co_filename, f.__code__.co_firstlineno


def _compile_factory(f: types.FunctionType) -> types.CodeType:
    """Compiles a function that takes autograph's operators and returns `f` rewritten. Its free variables are those of
    `f`.
    """
    from malt.core.converter import ConversionOptions, ProgramContext
    from malt.impl.api import PyToPy
    from malt.pyct import anno, transpiler

    _check_source(f)
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

    def set_lines(ast_node: ast.AST, line: int):
        """Gives a node and its children the line numbers of the user's file. A node that autograph added has no origin
        and gets the line of its parent.
        """
        origin: Any = anno.getanno(ast_node, anno.Basic.ORIGIN, default=None)
        if origin is not None:
            line = origin.loc.lineno
        if "lineno" in ast_node._attributes:
            ast_node.lineno = ast_node.end_lineno = line  # pyright: ignore[reportAttributeAccessIssue]
            ast_node.col_offset = ast_node.end_col_offset = -1  # pyright: ignore[reportAttributeAccessIssue]  none, so nothing is underlined
        for child in ast.iter_child_nodes(ast_node):
            set_lines(child, line)

    file, first_line = _source_location(f)
    set_lines(module, first_line)
    for code in _nested_codes(f.__code__):
        _nested_originals.setdefault((file, code.co_name, code.co_firstlineno), []).append(code)
    namespace: dict[str, Any] = {}
    exec(compile(module, file, "exec", flags=f.__code__.co_flags & _FUTURE_FLAGS, dont_inherit=True), namespace)
    return namespace["outer"]().__code__


def _nested_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yields the codes of the functions that are defined inside a function, at any depth."""
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield c
            yield from _nested_codes(c)


def _restore_original(twin: Any, autograph_info: Any = None) -> Any:
    """The original of `twin`, which was rewritten as part of another function; `twin` itself if the original is
    unknown.

    It takes the place of autograph's `autograph_artifact`, which rewritten code calls with each function and lambda
    that it defines, to mark it as rewritten.

    Args:
      twin: the rewritten function.
      autograph_info: the content of the mark, a parameter of autograph's function.
    """
    code = twin.__code__
    cells = dict(zip(code.co_freevars, twin.__closure__ or (), strict=True))
    candidates = dict.fromkeys(_nested_originals.get((code.co_filename, code.co_name, code.co_firstlineno), ()))
    twin.autograph_info__ = autograph_info  # the mark: `_rewrite` leaves such functions alone
    # Unknown: two functions have one name and line, or the original needs a variable that rewriting has removed.
    if len(candidates) != 1 or not set((original := next(iter(candidates))).co_freevars) <= cells.keys():
        return twin
    function = types.FunctionType(
        original, twin.__globals__, original.co_name, twin.__defaults__, tuple(cells[n] for n in original.co_freevars)
    )
    function.__kwdefaults__, function.__doc__, function.__module__ = twin.__kwdefaults__, twin.__doc__, twin.__module__
    function.__annotations__, function.__qualname__ = twin.__annotations__, original.co_qualname
    _twins[function] = twin
    return function


_FUTURE_FLAGS = 0x1FF0000 & ~0x100000  # CO_FUTURE_... in `co_flags`, except CO_FUTURE_PRINT_FUNCTION


@functools.cache
def _operators() -> Any:
    """The functions that rewritten code calls: autograph's module, with our functions where an operand may be a
    DataNode.
    """
    from malt.impl.api import PyToPy

    operators = PyToPy().get_extra_locals()["ag__"]
    operators.autograph_artifact = _restore_original
    operators.if_stmt, operators.if_exp, operators.converted_call = _if, _if_expression, _call
    operators.and_, operators.or_, operators.not_ = _and, _or, _not
    return operators


def _call(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, scope: Any = None, options: Any = None) -> Any:
    """Calls a function in rewritten code, as autograph's `converted_call`.

    Args:
      f, args, kwargs: the function and its arguments.
      scope: autograph's record of the calling function, by which `eval`, `super`, `locals` and `globals` find its
        variables.
      options: autograph's; not used.
    """
    if inspect.isbuiltin(f) or (isinstance(f, type) and f.__module__ == "builtins"):
        # These look at the frame of their caller, which rewriting has changed.
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
    orelse: Callable[[], Any],
    get_state: Callable[[], tuple[Any, ...]],
    set_state: Callable[[Sequence[Any]], None],
    names: Sequence[str],
    outputs: int,
) -> None:
    """Runs an `if` statement of rewritten code, as autograph's `if_stmt`.

    Args:
      condition: a DataNode, or any Python value.
      body, orelse: run the two sides.
      get_state: returns the values of the variables that the statement sets.
      set_state: sets these variables.
      names: their names.
      outputs: how many of them, the first ones, are read after the statement.
    """
    if not is_node(condition):
        (body if condition else orelse)()
        return
    state_before = get_state()

    def run(branch: Callable[[], Any]) -> tuple[Any, ...]:
        """Runs a side from the state before the statement. Returns the values of the variables that are read later."""
        set_state(state_before)
        branch()
        return get_state()[:outputs]

    set_state(
        (*_run_branches(condition, lambda: run(body), lambda: run(orelse), names[:outputs]), *state_before[outputs:])
    )


def either(condition: DataNode, if_true: Callable[[], Any], if_false: Callable[[], Any]) -> Any:
    """Returns the result of one of two functions for each sample, as a rewritten `if` does; for code that is not
    rewritten.
    """
    # One variable, whose name stands in messages.
    return _run_branches(condition, lambda: (if_true(),), lambda: (if_false(),), ("of each branch",))[0]


def _if_expression(condition: Any, if_true: Callable[[], Any], if_false: Callable[[], Any], text: str) -> Any:
    """``a if condition else b``, which DALI does not support."""
    if not is_node(condition):
        return if_true() if condition else if_false()
    return _run_branches(condition, lambda: (if_true(),), lambda: (if_false(),), (text,))[0]


def _and(a: Callable[[], Any], b: Callable[[], Any]) -> Any:
    """``a and b``: only samples whose left side is true evaluate the right side."""
    left = a()
    if not is_node(left):
        return left and b()
    left = language().logical(left, "and", "left")
    return _run_branches(left, lambda: (language().logical(b(), "and", "right"),), lambda: (left,), ("and",))[0]


def _or(a: Callable[[], Any], b: Callable[[], Any]) -> Any:
    """``a or b``: only samples whose left side is false evaluate the right side."""
    left = a()
    if not is_node(left):
        return left or b()
    left = language().logical(left, "or", "left")
    return _run_branches(left, lambda: (left,), lambda: (language().logical(b(), "or", "right"),), ("or",))[0]


def _not(a: Any) -> Any:
    return language().logical(a, "not", "right") if is_node(a) else not a


def _run_branches(
    condition: DataNode,
    if_true: Callable[[], Sequence[Any]],
    if_false: Callable[[], Sequence[Any]],
    names: Sequence[str],
) -> list[Any]:
    """Runs both sides of an `if`, each in its branch, and merges the values that they give to the variables `names`.
    Returns a value for each name.

    Args:
      condition: one number for each sample.
      if_true, if_false: run a side, and return the values of the variables.
      names: of the variables, for messages.
    """
    location, outer_branch = user_line(), current_branch()
    check_reach(condition, outer_branch, f"by the `if` at {location}")
    predicate = language().predicate_of(condition)
    results = []
    for side, body in ((True, if_true), (False, if_false)):
        with inside(Branch(predicate, side, outer_branch, location)):
            results.append(body())
    return [_merge_values(a, b, predicate, name, location) for a, b, name in zip(*results, names, strict=True)]


def _merge_values(a: Any, b: Any, predicate: DataNode, name: str, location: str) -> Any:
    """Merges the values that the branches gave to a variable: numbers, DataNodes, or lists, tuples and dicts of these.

    Args:
      a, b: the values of the `if` and of the `else` branch.
      predicate: true for the samples of the `if` branch.
      name: of the variable, for messages.
      location: of the `if` statement, for messages.

    Raises:
      OperatorError: only one branch gave it a value.
      ValueError: the values have different structures.
      TypeError: the values are of types that can't differ from sample to sample.
    """
    from malt.operators.variables import Undefined, UndefinedReturnValue

    # autograph's placeholders of a variable, or of the function's result, that has no value.
    undefined = [isinstance(x, (Undefined, UndefinedReturnValue)) for x in (a, b)]
    if all(undefined):
        return a
    if any(undefined):
        assigning, lacking = ("else", "if") if undefined[0] else ("if", "else")
        if any(isinstance(x, UndefinedReturnValue) for x in (a, b)):
            raise OperatorError(
                "if",
                location,
                f"the `{assigning}` branch returns a value, so the `{lacking}` branch must return one, too",
            )
        raise OperatorError(
            "if",
            location,
            f"the `{assigning}` branch gives {name!r} a value, so the `{lacking}` branch must, too, or the code before",
        )
    (true_leaves, structure), (false_leaves, false_structure) = jax.tree.flatten(a), jax.tree.flatten(b)
    if structure != false_structure:
        raise ValueError(
            f"the `if` at {location} gives the variable {name!r} another structure in each branch: {_structure_text(structure)} and "
            f"{_structure_text(false_structure)}; "
            "lists, tuples and dicts must have the same lengths and keys, so that their elements become one"
        )
    leaves = [_merge_leaves(x, y, predicate, name, location) for x, y in zip(true_leaves, false_leaves, strict=True)]
    return jax.tree.unflatten(structure, leaves)


def _merge_leaves(a: Any, b: Any, predicate: DataNode, name: str, location: str) -> Any:
    """Merges two elements of the values that the branches gave to a variable into one node, which takes each sample from
    its branch.

    Args:
      a, b: the elements of the `if` and of the `else` branch.
      predicate: true for the samples of the `if` branch.
      name: of the variable, for messages.
      location: of the `if` statement, for messages.
    """
    if a is b:  # neither branch changed it
        return a
    try:
        return language().merge(as_node(a, "if"), as_node(b, "if"), predicate)
    except TypeError:
        raise TypeError(
            f"the `if` at {location} gives the variable {name!r} values of types {type(a).__name__} and {type(b).__name__}: "
            "only DataNodes, numbers and arrays can differ from sample to sample"
        ) from None


def _structure_text(structure: Any) -> str:
    return str(structure).removeprefix("PyTreeDef(").removesuffix(")")
