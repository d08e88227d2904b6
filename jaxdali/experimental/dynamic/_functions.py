"""DALI's functions from those of `jaxdali.dynamic`: the same, with a default generator and DALI's classes."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from jax.core import Tracer

from ..._core.arguments import declared
from ..._core.building import is_node, user_line
from ..._core.declaration import Argument
from ..._core.names import did_you_mean
from ..._core.tracebacks import boundary
from ..._core.words import of_values
from ...dynamic._batch import Batch, Tensor
from ...dynamic._docstrings import with_generator
from ...dynamic._engine import current_trace
from ...dynamic._values import batch, is_column, is_numbers
from . import random
from ._contexts import Device
from ._dtypes import DType, numpy_of
from ._values import FILE, as_tensor, is_array, own, plain
from ._values import Tensor as OwnTensor

_OWN = ("batch", "jit", "readers", "set_num_threads", "get_num_threads", "tensor")  # this module has its own, or none
_STREAMS = "XLA manages streams: leave it out"
_INSTEAD = {
    **dict.fromkeys(("stream", "set_current_stream", "set_default_stream"), _STREAMS),
    "ThreadPool": "a process has one pool of threads, see set_num_threads",
    "optical_flow": "it needs NVIDIA's engine",
    "pytorch": "call functions in the collate_fn of a torch.utils.data.DataLoader, or iterate over a reader in a node of torchdata",
    "experimental.readers": "use readers.Video; for FITS, astropy in an ExternalSource",
}


def function_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that takes ``rng=`` from the default generator, DALI's classes, and what DALI makes tensors of."""
    operator = ".".join((*function.__module__.split(".")[2:], function.__name__))

    @boundary
    @boundary
    @functools.wraps(function)
    def called(*inputs: Any, **arguments: Any) -> Any:
        try:
            inputs = tuple(map(_input, inputs))
        except (TypeError, ValueError, OverflowError) as e:
            e.args = (f"{operator}: {e} (called at {user_line()})",)
            raise
        values = (*inputs, *arguments.values())
        sizes = [len(x) for x in values if isinstance(x, Batch)]
        N = arguments.get("batch_size") or (sizes[0] if sizes else None)
        known = declared[operator]() if operator in declared else {}
        single = False
        if current_trace() is None and not any(map(_is_traced, values)):
            single = N is None and any(isinstance(x, OwnTensor) for x in arguments.values())
            arguments = {n: _computed(known.get(n), x, N or 1) for n, x in arguments.items()}
        arguments = {n: _argument(known.get(n), x, N) for n, x in arguments.items()}
        if getattr(function, "draws", False) and arguments.get("rng") is None and arguments.get("key") is None:
            arguments["rng"] = random.get_default_rng()
        return own(function(*inputs, **arguments), single)

    called.__doc__ = with_generator(function.__doc__ or "")
    return called


def _input(x: Any) -> Any:
    """A positional input. A list of numbers or of arrays is one sample, as everything but a batch."""
    if isinstance(x, (list, tuple)):
        if any(is_node(e) or isinstance(e, Tracer) for e in x):
            return x
        files = bool(x) and all(isinstance(e, FILE) for e in x)  # their lengths differ
        return batch(x) if files else plain(as_tensor(x))
    if is_column(x):
        return batch(x)
    if isinstance(x, (Batch, Tensor, Tracer)) or not (isinstance(x, (bool, int, float)) or is_array(x)):
        return plain(x)
    return plain(as_tensor(x))


def _is_traced(x: Any) -> bool:
    return isinstance(x._data if isinstance(x, Batch) else x, Tracer)


def _computed(a: Argument | None, x: Any, N: int) -> Any:
    """A named argument that is a tensor, as a value of each of N samples: what is compiled for a number would serve
    once.
    """
    if a is None or a.is_input or not a.per_sample or not isinstance(x, OwnTensor):
        return x
    return batch(np.broadcast_to(np.asarray(x), (N, *x.shape)), x.layout)


def _argument(a: Argument | None, x: Any, N: int | None) -> Any:
    """A named argument.

    Args:
      a: what is known of it.
      N: samples of the call; None: there is one, which is no batch.
    """
    if isinstance(x, Device):
        with x:  # refuses another device than the first
            return x.device_type
    if isinstance(x, DType):
        return numpy_of(x)
    if a is not None and a.is_input:
        return _input(x)
    if isinstance(x, str) and a is not None and a.name.endswith("dtype"):
        return numpy_of(DType.parse(x))
    if type(x) in (list, tuple) and a is not None and a.extents and is_numbers(x):
        x = np.asarray(x)
    if type(x) in (list, tuple):
        if a is not None and a.many and x and all(type(row) in (list, tuple) for row in x):
            x = [e for row in x for e in row]  # a matrix by its rows
        if N is None and a is not None and not a.many and len(x) == 1 and isinstance(x[0], (bool, int, float)):
            return x[0]
        return type(x)(e.item() if isinstance(e, OwnTensor) and not e.ndim else plain(e) for e in x)
    if a is None or not is_array(x) or isinstance(x, (Batch, np.generic, Tracer)):
        return plain(x)
    # An array is one value, but where DALI refuses it and it can be one for each sample.
    shape: tuple[int, ...] = np.shape(x)
    if shape == (1,) and not a.many:
        return np.asarray(x).item()
    each = N is not None and (len(shape) == 1 if not a.many else len(shape) > 1 and shape[-1] in a.lengths)
    return plain(x if each else as_tensor(x))


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
            made = sys.modules.get(part) or types.ModuleType(
                part, f"The functions of `{x.__name__}`, with DALI's defaults."
            )
            sys.modules[part] = made
            vars(made).update(functions_of(x, part), __getattr__=functools.partial(_refuse, part, public))
            found[public] = made
    return found


def _refuse(module: str, path: str, name: str) -> Any:
    if f"{path}.{name}" in _INSTEAD:
        raise missing(__name__.rpartition(".")[0], f"{path}.{name}", ())
    raise missing(module, name, vars(sys.modules[module]))


def missing(module: str, name: str, there: Iterable[str]) -> AttributeError:
    """The error for a name that is not there, which says what to use instead."""
    if name in _INSTEAD:
        return AttributeError(
            f"{module.removeprefix('jaxdali.')}.{name} of DALI is not in jaxdali: {_INSTEAD[name]}", name=name
        )
    return AttributeError(
        of_values(f"module {module!r} has no attribute {name!r}{did_you_mean(name, there)}"), name=name
    )
