"""Looks up DALI's names in jaxdali."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import pathlib
import types
import warnings
from typing import Any

import jaxdali

from .._core.calls import functions
from .._core.names import instead
from .._core.operator import HostOperator, NativeOperator, Operator, ProgramOperator, SampleOperator, SourceOperator


class Missing(Exception):
    """jaxdali does not have a name."""


@functools.cache
def look_up(name: str) -> Any:
    """The object for DALI's name `name` under ``nvidia.dali``. Raises `Missing`."""
    found: Any = jaxdali
    for part in name.split("."):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated names work
            try:
                found = getattr(found, part)
            except AttributeError:
                found = _module(found, part)
        if found is None:  # a stand-in, whose contents are unknown
            break
    return found


def _module(parent: Any, part: str) -> Any:
    if not isinstance(parent, types.ModuleType) or not hasattr(parent, "__path__"):
        raise Missing(part)
    spec = importlib.util.find_spec(f"{parent.__name__}.{part}")
    if spec is None or instead(parent.__name__, part):
        raise Missing(part)
    try:
        return importlib.import_module(spec.name)
    except ImportError:  # the plugin's framework is not installed: its text tells what it defines
        assert spec.origin is not None
        module = types.ModuleType(spec.name)
        for node in ast.parse(pathlib.Path(spec.origin).read_text()).body:
            names = [node.name] if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else []
            if isinstance(node, ast.ImportFrom):
                names = [alias.asname or alias.name for alias in node.names]
            for name in names:
                setattr(module, name, None)
        return module


def keywords(x: Any) -> frozenset[str] | None:
    """The keyword arguments of a function or class; None: any, or unknown."""
    if not callable(x):
        return None
    try:
        parameters = inspect.signature(x).parameters.values()
    except (TypeError, ValueError):
        return None
    found = frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        return found
    return found | pipeline_keywords() if x is jaxdali.pipeline_def else None


def pipeline_keywords() -> frozenset[str]:
    """The keyword arguments of `Pipeline`."""
    return keywords(jaxdali.Pipeline) or frozenset()


# --- where operators run ---------------------------------------------------------------------------------------------


@functools.cache
def _kinds() -> dict[str, set[type[Operator]]]:
    """The classes of each operator, by its name."""
    found: dict[str, set[type[Operator]]] = {}
    todo = [Operator]
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        if "name" in vars(kind):
            found.setdefault(kind.name, set()).add(kind)
    return found


def operator_of(x: Any) -> str:
    """The name of the operator of a function in `jaxdali.fn` or a class in `jaxdali.ops`; "" if it is uncertain."""
    function = getattr(x, "function", x) if isinstance(x, type) else x
    name = next((n for n, f in functions.items() if f is function), "")
    return name if name in _kinds() else ""


@functools.cache
def side(operator: str) -> str:
    """Where an operator runs: "host", "program", or "either" (where its inputs are); "" if it is uncertain."""
    if operator.startswith("decoders.image"):
        return "program"  # bound later, when its inputs are known
    kinds = _kinds()[operator]
    if all(
        issubclass(k, (HostOperator, SourceOperator, SampleOperator)) and not issubclass(k, ProgramOperator)
        for k in kinds
    ):
        return "host"
    if not all(issubclass(k, ProgramOperator) for k in kinds):
        return ""
    form = {k.has_host_form for k in kinds}
    return (
        "program"
        if form == {Operator.has_host_form} and not any(issubclass(k, HostOperator) for k in kinds)
        else "either"
    )


@functools.cache
def host_reads(operator: str, argument: bool) -> bool:
    """Whether the host certainly reads the data of an operator's first input, or of an argument per sample, wherever
    the operator runs.
    """
    kinds = _kinds()[operator]
    if all(issubclass(k, HostOperator) and not issubclass(k, ProgramOperator) for k in kinds):
        return all(k.run_reads is HostOperator.run_reads for k in kinds if issubclass(k, HostOperator))
    return argument and all(
        issubclass(k, NativeOperator) and k.setup_reads is NativeOperator.setup_reads for k in kinds
    )
