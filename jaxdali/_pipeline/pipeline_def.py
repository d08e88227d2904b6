"""`pipeline_def`: makes a factory of pipelines from a function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, overload

from .._core.names import unexpected
from .._core.tracebacks import boundary
from .conditionals import is_excluded
from .factory import Decorator, Factory, P
from .pipeline import ARGUMENTS, Pipeline, internals_of


@overload
def pipeline_def(fn: Callable[P, Any], **pipeline_kwargs: Any) -> Factory[P, Pipeline]: ...
@overload
def pipeline_def(fn: None = None, **pipeline_kwargs: Any) -> Decorator[Pipeline]: ...
def pipeline_def(fn: Callable[..., Any] | None = None, **pipeline_kwargs: Any) -> Any:
    """Turns a function that creates operators and returns outputs into a factory of pipelines.

    It can be used with or without arguments. The factory takes the arguments of the function and of `Pipeline`; the
    latter override the decorator's.

    With ``enable_conditionals=True``, `if` (`elif`, `else`, early `return`), `and`, `or` and `not` accept DataNodes:
    one number per sample, and for `and` and `or` truth values. Each branch gets the samples that take it. A result must
    be assigned to a variable that has a value in all branches, with the same type, number of dimensions and layout;
    lists, tuples and dicts are merged element by element. Readers, `random.*` and constants are always evaluated for
    all samples. Ordinary Python conditions do not change. For this, the function and everything that it calls, except
    libraries, is rewritten; the decorator `jaxdali.pipeline.do_not_convert` prevents that.

    Example:
      >>> @pipeline_def(batch_size=8, num_threads=4)
      ... def pipe(image_dir):
      ...     jpegs, labels = fn.readers.file(file_root=image_dir)
      ...     images = fn.decoders.image(jpegs)
      ...     return fn.resize(images, size=(256, 256)), labels
      >>> images, labels = pipe("photos").run()

    Args:
      fn: the function.
      **pipeline_kwargs: arguments of `Pipeline`.

    Raises:
      TypeError: an argument belongs neither to the function nor to `Pipeline`.
    """
    for name in pipeline_kwargs:
        if name not in ARGUMENTS:
            raise TypeError(unexpected("pipeline_def", name, ARGUMENTS))
    if fn is None:
        return functools.partial(pipeline_def, **pipeline_kwargs)
    if is_excluded(fn):
        raise ValueError(
            f"the pipeline definition {name_of(fn)} must not be marked with @do_not_convert, as only functions that it calls may be"
        )

    @boundary
    @functools.wraps(fn)
    def factory(*args: Any, **kwargs: Any) -> Pipeline:
        pipeline_arguments, function_arguments = split_arguments(fn, kwargs)
        pipeline = Pipeline(**{**pipeline_kwargs, **pipeline_arguments})
        internals_of(pipeline).definition.define(functools.partial(fn, *args, **function_arguments))
        return pipeline

    factory._is_pipeline_def = True  # pyright: ignore[reportAttributeAccessIssue]
    factory._pipeline_kwargs = pipeline_kwargs  # pyright: ignore[reportAttributeAccessIssue]
    return factory


def name_of(fn: Callable[..., Any]) -> str:
    """The name of a pipeline definition, for messages."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__name__", type(fn).__name__)


def split_arguments(fn: Callable[..., Any], kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits the keyword arguments of a pipeline definition into (the Pipeline's, the function's).

    If a parameter of the function has the name of a Pipeline argument, the function gets it.
    """
    parameters = inspect.signature(fn).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        raise TypeError(
            f"the pipeline definition {name_of(fn)} takes **{[p.name for p in parameters.values() if p.kind is p.VAR_KEYWORD][0]}: "
            "name its arguments instead, so that they can be distinguished from those of Pipeline"
        )
    function_arguments = {k: v for k, v in kwargs.items() if k in parameters}
    pipeline_arguments = {k: v for k, v in kwargs.items() if k not in parameters}
    for name in pipeline_arguments:
        if name not in ARGUMENTS:
            raise TypeError(unexpected(name_of(fn), name, (*parameters, *ARGUMENTS)))
    return pipeline_arguments, function_arguments
