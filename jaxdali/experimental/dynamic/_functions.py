"""DALI's functions from those of `jaxdali.dynamic`: the same, with a default generator and DALI's classes."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from ..._core.names import did_you_mean
from ..._core.tracebacks import boundary
from ..._core.words import of_values
from ...dynamic._batch import Batch, Tensor
from ...dynamic._engine import NeedsKey
from . import random
from ._contexts import Device
from ._values import as_tensor, own

_OWN = ("batch", "jit", "readers", "set_num_threads", "get_num_threads", "tensor")  # this module has its own, or none
_STREAMS = "XLA manages streams: leave it out"
_INSTEAD = {
    **dict.fromkeys(("stream", "set_current_stream", "set_default_stream"), _STREAMS),
    "ThreadPool": "a process has one pool of threads, see set_num_threads",
    "optical_flow": "it needs NVIDIA's engine",
    "pytorch": "call functions in the collate_fn of a torch.utils.data.DataLoader",
}

_drawing: set[Callable[..., Any]] = set()  # functions that are known to draw random numbers


def function_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that takes ``rng=`` from the default generator, and `Device`s."""

    @boundary
    @boundary
    @functools.wraps(function)
    def called(*inputs: Any, **arguments: Any) -> Any:
        if isinstance(device := arguments.get("device"), Device):
            with device:  # refuses another device than the first
                arguments["device"] = device.device_type
        inputs = tuple(map(_sample, inputs))
        keyed = arguments.get("rng") is not None or arguments.get("key") is not None
        if not keyed and function in _drawing:
            arguments["rng"], keyed = random.get_default_rng(), True
        try:
            return own(function(*inputs, **arguments))
        except NeedsKey:
            if keyed:
                raise
        _drawing.add(function)
        return own(function(*inputs, **{**arguments, "rng": random.get_default_rng()}))

    return called


def _sample(x: Any) -> Any:
    """An array is one sample, as in DALI; in `jaxdali.dynamic` it is a batch."""
    if isinstance(x, (Batch, Tensor, Tracer)) or not (isinstance(x, (np.ndarray, jax.Array)) or hasattr(x, "__dlpack__")) or not x.ndim:
        return x
    return as_tensor(x)


def functions_of(module: types.ModuleType, name: str) -> dict[str, Any]:
    """The functions of a module of `jaxdali.dynamic`, and modules with those of its parts."""
    found: dict[str, Any] = {}
    for public in dir(module):
        x = getattr(module, public)
        if public in _OWN or public.startswith("_"):
            continue
        if inspect.isfunction(x) and x.__module__ == module.__name__:
            found[public] = function_of(x)
        elif inspect.ismodule(x) and x.__name__ == f"{module.__name__}.{public}":
            part = f"{name}.{public}"
            made = sys.modules.get(part) or types.ModuleType(part, f"The functions of `{x.__name__}`, with DALI's defaults.")
            sys.modules[part] = made
            vars(made).update(functions_of(x, part))
            found[public] = made
    return found


def missing(module: str, name: str, there: Iterable[str]) -> AttributeError:
    """The error for a name that is not there, which says what to use instead."""
    if name in _INSTEAD:
        return AttributeError(f"{module.removeprefix('jaxdali.')}.{name} of DALI is not in jaxdali: {_INSTEAD[name]}", name=name)
    return AttributeError(of_values(f"module {module!r} has no attribute {name!r}{did_you_mean(name, there)}"), name=name)
