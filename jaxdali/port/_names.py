"""Lookup of DALI's names in jaxdali."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import pathlib
import re
import types
import warnings
from typing import Any

import jaxdali

from .._core.calls import functions
from .._core.names import instead
from .._core.operator import HostOperator, NativeOperator, Operator, ProgramOperator, SampleOperator, SourceOperator


class MissingName(Exception):
    """Raised for a name that jaxdali does not have."""


@functools.cache
def look_up(name: str) -> Any:
    """Returns the object for DALI's name `name` under ``nvidia.dali``; None: it belongs to a plugin whose framework is
    not installed. Raises `MissingName` if jaxdali lacks the name.
    """
    value: Any = jaxdali
    for name_part in name.split("."):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated names work
            try:
                value = getattr(value, name_part)
            except AttributeError:
                value = _submodule(value, name_part)
        if value is None:  # a name of a plugin whose framework is not installed
            break
    return value


def _submodule(parent: Any, part: str) -> Any:
    """Imports a submodule. Raises `MissingName`. If its framework is not installed, it is a module whose names are all
    None.
    """
    if not isinstance(parent, types.ModuleType) or not hasattr(parent, "__path__"):
        raise MissingName(part)
    spec = importlib.util.find_spec(f"{parent.__name__}.{part}")
    if spec is None or instead(parent.__name__, part):
        raise MissingName(part)
    try:
        return importlib.import_module(spec.name)
    except ImportError:  # the framework of a plugin is not installed: the names are read from the plugin's code
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
    names = frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        return names
    return names | pipeline_keywords() if x is jaxdali.pipeline_def else None


def devices(x: Any) -> frozenset[str] | None:
    """The values of the argument `device` of an operator's function or class; None: they are unknown."""
    if not operator_of(x):
        return None
    parameter = inspect.signature(x).parameters.get("device")
    if parameter is None or "Literal" not in str(parameter.annotation):
        return None
    choices = frozenset(re.findall(r"'(\w+)'", str(parameter.annotation)))
    return choices | {"tpu"} if "gpu" in choices else choices


def pipeline_keywords() -> frozenset[str]:
    """The keyword arguments of `Pipeline`."""
    return keywords(jaxdali.Pipeline) or frozenset()


# --- where operators run ---------------------------------------------------------------------------------------------


@functools.cache
def _classes_of(operator: str) -> set[type[Operator]]:
    """The classes of an operator whose function is known. Others are imported later, so the classes of all are unknown."""
    classes: set[type[Operator]] = set()
    pending = [Operator]
    while pending:
        operator_class = pending.pop()
        pending += operator_class.__subclasses__()
        if vars(operator_class).get("name") == operator:
            classes.add(operator_class)
    return classes


def operator_of(x: Any) -> str:
    """The name of the operator of a function in `jaxdali.fn` or a class in `jaxdali.ops`; "" if it is uncertain."""
    function = getattr(x, "function", x) if isinstance(x, type) else x
    name = next((n for n, f in functions.items() if f is function), "")
    return name if _classes_of(name) else ""


@functools.cache
def side(operator: str) -> str:
    """Where an operator runs: "host", "program", or "either" (where its inputs are); "" if it is uncertain."""
    if operator.startswith("decoders.image"):
        return "program"  # it becomes an operator of the program when its inputs are known
    classes = _classes_of(operator)
    if all(
        issubclass(operator_class, (HostOperator, SourceOperator, SampleOperator))
        and not issubclass(operator_class, ProgramOperator)
        for operator_class in classes
    ):
        return "host"
    if not all(issubclass(operator_class, ProgramOperator) for operator_class in classes):
        return ""
    # An operator that says itself whether it has a form for the host runs where its inputs are.
    host_forms = {operator_class.has_host_form for operator_class in classes}
    return (
        "program"
        if host_forms == {Operator.has_host_form}
        and not any(issubclass(operator_class, HostOperator) for operator_class in classes)
        else "either"
    )


@functools.cache
def host_reads(operator: str, argument: bool) -> bool:
    """Whether the host certainly reads the data of an operator's first input, or of an argument per sample, wherever
    the operator runs.

    Args:
      argument: whether an argument is meant, not the first input.
    """
    classes = _classes_of(operator)
    if all(
        issubclass(operator_class, HostOperator) and not issubclass(operator_class, ProgramOperator)
        for operator_class in classes
    ):
        # By default an operator of the host reads all inputs. One with a `run_reads` of its own may not read this one.
        return all(
            operator_class.run_reads is HostOperator.run_reads
            for operator_class in classes
            if issubclass(operator_class, HostOperator)
        )
    return argument and all(
        issubclass(operator_class, NativeOperator) and operator_class.setup_reads is NativeOperator.setup_reads
        for operator_class in classes
    )
