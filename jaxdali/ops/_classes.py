"""Operator classes from the functions of `jaxdali.fn`."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from typing import Any, ClassVar

from .._core.kinds import device_named
from .._core.names import DALI_OPERATORS, class_name, did_you_mean, instead, members, unexpected
from .._core.tracebacks import boundaries, boundary


@boundaries
class OperatorClass:
    """Base of the classes of `jaxdali.ops`.

    Attributes:
      function: the function of `jaxdali.fn`, which a call of the operator calls.
      device: the constructor's argument: "cpu", "mixed" or "gpu". Default: "cpu".
    """

    function: ClassVar[Callable[..., Any]]

    def __init__(self, **arguments: Any):
        self._check_names(arguments)
        self._arguments = arguments

    @classmethod
    def _check_names(cls, arguments: dict[str, Any]):
        """Raises TypeError for an argument that the function does not have."""
        parameters = inspect.signature(cls.function).parameters
        names = [
            p.name for p in parameters.values() if p.kind is not p.POSITIONAL_ONLY and p.kind is not p.VAR_POSITIONAL
        ]
        for name in arguments:
            if name not in names:
                raise TypeError(unexpected(f"{cls.__module__.partition('.')[2]}.{cls.__name__}", name, names))

    @property
    def device(self) -> str:
        return device_named(self._arguments.get("device")) or "cpu"

    def __call__(self, *inputs: Any, **arguments: Any) -> Any:
        """Adds the operator to the pipeline being defined.

        Args:
          *inputs: the inputs of the function.
          **arguments: further arguments of the function. Each may be passed to the constructor or to the call, but not
            to both; None counts as not passed.

        Raises:
          TypeError: the function has no argument of a name.
          ValueError: an argument was passed to the constructor, too.
        """
        self._check_names(arguments)
        merged = dict(self._arguments)
        for name, x in arguments.items():
            if x is None:  # not passed here: the constructor's value stays
                merged.setdefault(name)
            elif merged.get(name) is None:
                merged[name] = x
            else:
                raise ValueError(f"{type(self).__name__}: the argument {name!r} was given to the constructor already")
        return type(self).function(*inputs, **merged)

    def __repr__(self) -> str:
        return f"ops.{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self._arguments.items())})"


class ExternalSource(OperatorClass):
    """`fn.external_source`; `source` and `num_outputs` may be given by position, as in DALI."""

    def __init__(self, source: Any = None, num_outputs: int | None = None, **arguments: Any):
        super().__init__(**_without_none(source=source, num_outputs=num_outputs), **arguments)


class PythonFunction(OperatorClass):
    """`fn.python_function`, or one that takes the same; its first arguments may be given by position, as in DALI."""

    def __init__(
        self,
        function: Callable[..., Any] | None = None,
        num_outputs: int | None = None,
        device: str | None = None,
        batch_processing: bool | None = None,
        **arguments: Any,
    ):
        # None counts as not passed: the call may pass it.
        passed = _without_none(
            function=function, num_outputs=num_outputs, device=device, batch_processing=batch_processing
        )
        super().__init__(**passed, **arguments)


def _without_none(**arguments: Any) -> dict[str, Any]:
    """The arguments that are passed."""
    return {k: v for k, v in arguments.items() if v is not None}


class Classes(dict[str, Any]):
    """A dict of the classes of an index module of `jaxdali.fn`, and of modules with the classes of its submodules. A
    missing name raises AttributeError, as of a module.

    Args:
      functions: the module of the functions.
      name: the name of the module of the classes.
    """

    def __init__(self, functions: types.ModuleType, name: str):
        """Makes the classes of all functions at once, also of those in submodules."""
        super().__init__()
        self._name = name
        # Functions of the module, and modules below it; not those that it only imports from elsewhere.
        for public, x in members(functions).items():
            if inspect.isfunction(x):
                self[class_name(public)] = _make_class(x, class_name(public), name)
            elif inspect.ismodule(x) and x.__name__ == f"{functions.__name__}.{public}":
                self[public] = _make_module(x, f"{name}.{public}")

    def __missing__(self, name: str) -> Any:
        """Raises AttributeError with advice: a replacement, a class of DALI that jaxdali lacks, or the closest name."""
        if text := instead(self._name, name):
            raise AttributeError(text)
        group = self._name.partition("jaxdali.ops")[2].lstrip(".")
        if name in (class_name(n.rpartition(".")[2]) for n in DALI_OPERATORS if n.rpartition(".")[0] == group):
            raise AttributeError(f"{self._name.removeprefix('jaxdali.')}.{name} of DALI is not in jaxdali")
        raise AttributeError(f"{self._name} has no class {name!r}{did_you_mean(name, self)}")


def _make_module(functions: types.ModuleType, name: str) -> types.ModuleType:
    """Makes and registers a module of the classes for a module of functions."""
    module = sys.modules[name] = types.ModuleType(name, f"The classes of `{functions.__name__}`.")
    classes = Classes(functions, name)
    vars(module).update(
        classes, __all__=sorted(classes), __getattr__=boundary(classes.__getitem__), __dir__=lambda: sorted(classes)
    )
    return module


def _make_class(function: Callable[..., Any], name: str, module: str) -> type[OperatorClass]:
    """Makes the class of a function. Its signature has the keyword arguments, for help and completion; inputs are passed
    to its call.
    """
    base = {
        "ExternalSource": ExternalSource,
        "PythonFunction": PythonFunction,
        "DLTensorPythonFunction": PythonFunction,
    }.get(name, OperatorClass)
    parameters = inspect.signature(function).parameters.values()
    # The positional `source` of `external_source` is an argument, too.
    signature = inspect.Signature([p for p in parameters if p.kind is p.KEYWORD_ONLY or base is ExternalSource])
    attributes = {
        "function": staticmethod(function),
        "__doc__": function.__doc__,
        "__module__": module,
        "__signature__": signature,
    }
    return type(name, (base,), attributes)  # pyright: ignore[reportReturnType]
