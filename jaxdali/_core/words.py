"""Rephrases messages for functions of values (`jaxdali.dynamic`): operators speak of nodes and pipelines, also when
such a function calls them.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import OperatorError, raised_by_package
from .names import class_name

F = TypeVar("F", bound=Callable[..., Any])

READING = "fn.readers.file(files=...) reads files"
_FILES = "read files first: [pathlib.Path(p).read_bytes() for p in paths], or jd.io.file.read([os.fsencode(p) for p in paths])"
_SAMPLES = (
    "the first axis of an array counts samples: for one image pass [x], or x[None]; "
    "gray images need an axis of channels, image[..., None]"
)
_TRACED = "while a function of jaxdali.dynamic.jit is traced"
_FLAT = (
    r"(got [12]-D (?:data|samples) without a layout)(?!: the first)"
    r"(?:; gray images [^;(]*; external_source [^;(]*samples|; fn\.decoders\.image [^;(]*files)?"
)
# Patterns of texts about nodes, and the texts about values that replace them, in this order.
_NODES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"object of type 'DataNode' has no len\(\)", f"a batch has no len() {_TRACED}"),
    (re.escape(READING), _FILES),
    (_FLAT, rf"\1: {_SAMPLES}"),
    (r"external_source takes a layout", "jd.batch(x, layout=...) takes a layout"),
    (r"external_source gives each sample a row", "jd.batch(rows) gives each sample a row"),
    (r"fn\.reshape\(x, layout=", "jd.batch(x, layout="),
    (r"(?<![\w./\\])fn\.readers\.(\w+)", lambda m: f"jd.readers.{class_name(m[1])}"),
    (r"(?<![\w./\\])fn\.(?!readers\b|external_source|inputs\b|experimental\.(?:readers|inputs)\b|_)(?=\w)", "jd."),
    (r"; a list of DataNodes is accepted, and gives a list of results", ""),
    (r", or a list that contains only DataNodes", ""),
    (r"stands for a batch that does not exist yet(, so it has no value here)?", f"has no values {_TRACED}"),
    (r"what the iterator gives has values", "what the function returns has them"),
    (r"while the pipeline is defined", _TRACED),
    (r"known when the pipeline is built", "known before the function is called"),
    (r"known when the pipeline runs", "known when the function runs"),
    (r"a value of the pipeline: the node ", "a value: the batch "),
    (r"is a value of the pipeline", "has it"),
    (r"in a pipeline with enable_conditionals=True", "in a jaxdali.dynamic.jit with enable_conditionals=True"),
    (r"in a pipeline or a jaxdali\.dynamic\.jit", "in a jaxdali.dynamic.jit"),
    (r"\(created at ", "(called at "),
    (r"DataNode\(name=[^()]*\)", "a batch"),
    (r"a DataNode", "a batch"),
    (r"(?<![\w./\\])DataNodes\b", "batches"),
    (r"(?<![\w./\\])DataNode\b", "batch"),
    (r", or do it in a jax_function, .*?one sample", ", or do it with the result"),
)


@functools.lru_cache(maxsize=256)
def of_values(text: str) -> str:
    """A message about nodes and pipelines, rephrased for values and functions."""
    for pattern, words in _NODES:
        text = re.sub(pattern, words, text)
    return text


def _rephrase(e: BaseException):
    """Rephrases the message of an exception for values, if this package wrote it, or Python wrote it about a node."""
    if (
        e.args
        and isinstance(text := e.args[0], str)
        and (raised_by_package(e) or (type(e) is TypeError and "'DataNode'" in text))
    ):
        e.args = (of_values(text), *e.args[1:])
        if isinstance(e, OperatorError):
            e.reason = of_values(e.reason)


def in_values(f: F) -> F:
    """Decorator of a function that calls operators with values: rephrases the messages of its errors."""

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return f(*args, **kwargs)
        except Exception as e:
            _rephrase(e)
            raise

    return wrapped  # pyright: ignore[reportReturnType]


def sample_advice(x: Any) -> str:
    """The end of a message about a value that can't be a batch: advice if it has names of files, or None among its
    samples; otherwise "".
    """
    if isinstance(x, (str, os.PathLike)):
        return f"; {READING}"
    if isinstance(x, (list, tuple)):
        if any(isinstance(e, (str, os.PathLike)) for e in x):
            return f" with names of files; {READING}"
        index = next((i for i, e in enumerate(x) if e is None), None)
        return "" if index is None else f" whose element {index} is None"
    return ""
