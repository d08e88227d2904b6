"""What DALI's names are here."""

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
    """A name is not here."""


@functools.cache
def look_up(name: str) -> Any:
    """What is called `name` in DALI, under ``nvidia.dali``, as it is here. Raises `Missing`."""
    found: Any = jaxdali
    for part in name.split("."):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of deprecated names, which work
            try:
                found = getattr(found, part)
            except AttributeError:
                found = _module(found, part)
        if found is None:  # it stands in a text: what it has is not known
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
    except ImportError:  # of a plugin whose framework is not installed: what it defines stands in its text
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
    """The keyword arguments that a function or class takes; None: any, or unknown."""
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
    """Those of `Pipeline`."""
    return keywords(jaxdali.Pipeline) or frozenset()


@functools.cache
def refuses(argument: str, value: Any) -> bool:
    """Whether a pipeline says of this value that it is not there yet."""
    try:
        jaxdali.Pipeline(**{argument: value})
    except NotImplementedError:
        return True
    except Exception:  # wrong here and in DALI: the user will hear of it
        return False
    return False


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
    """The name of the operator that a function of `jaxdali.fn`, or a class of `jaxdali.ops`, stands for; "" where that is not certain."""
    function = getattr(x, "function", x) if isinstance(x, type) else x
    name = next((n for n, f in functions.items() if f is function), "")
    return name if name in _kinds() else ""


@functools.cache
def side(operator: str) -> str:
    """Where an operator runs: "host", "program", or "either": where its inputs are. "" where that is not certain."""
    if operator.startswith("decoders.image"):
        return "program"  # which is bound only when it is known how
    kinds = _kinds()[operator]
    if all(issubclass(k, (HostOperator, SourceOperator, SampleOperator)) and not issubclass(k, ProgramOperator) for k in kinds):
        return "host"
    if not all(issubclass(k, ProgramOperator) for k in kinds):
        return ""
    form = {k.has_host_form for k in kinds}
    return "program" if form == {Operator.has_host_form} and not any(issubclass(k, HostOperator) for k in kinds) else "either"


@functools.cache
def host_reads(operator: str, argument: bool) -> bool:
    """Whether the host certainly reads the data of an operator's first input, or of an argument that comes per sample, wherever it runs."""
    kinds = _kinds()[operator]
    if all(issubclass(k, HostOperator) and not issubclass(k, ProgramOperator) for k in kinds):
        return all(k.run_reads is HostOperator.run_reads for k in kinds if issubclass(k, HostOperator))
    return argument and all(issubclass(k, NativeOperator) and k.setup_reads is NativeOperator.setup_reads for k in kinds)
