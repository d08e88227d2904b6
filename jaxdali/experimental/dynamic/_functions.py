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
from ...dynamic._values import as_batch, is_column, is_numbers
from . import random
from ._contexts import Device
from ._dtypes import DType, numpy_of
from ._values import FILE, as_tensor, is_array, to_dali_classes, to_plain
from ._values import Tensor as DaliTensor

# Names of `jaxdali.dynamic` for which this package has its own object, or none.
_SKIPPED_NAMES = ("batch", "jit", "readers", "set_num_threads", "get_num_threads", "tensor")
_STREAMS = "XLA manages streams: leave it out"
_ADVICE = {  # names of DALI that are missing here, with the reason or the replacement
    **dict.fromkeys(("stream", "set_current_stream", "set_default_stream"), _STREAMS),
    "ThreadPool": "a process has one pool of threads, see set_num_threads",
    "optical_flow": "it needs NVIDIA's engine",
    "pytorch": "call functions in the collate_fn of a torch.utils.data.DataLoader, or iterate over a reader in a node of torchdata",
    "experimental.readers": "use readers.Video; for FITS, astropy in an ExternalSource",
}


def with_dali_defaults(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function of `jaxdali.dynamic`: it accepts DALI's classes and everything that DALI converts to tensors,
    and takes random numbers from the default generator.
    """
    # The name of the operator in `fn`, such as "random.uniform".
    operator = ".".join((*function.__module__.split(".")[2:], function.__name__))
    call_by_dali = getattr(function, "call_by_dali", function)

    @boundary
    @functools.wraps(function)
    def call_with_defaults(*inputs: Any, **arguments: Any) -> Any:
        """Converts the inputs and arguments, calls the function, and converts the results to DALI's classes."""
        try:
            inputs = tuple(map(_input, inputs))
        except (TypeError, ValueError, OverflowError) as e:
            e.args = (f"{operator}: {e} (called at {user_line()})",)
            raise
        values = (*inputs, *arguments.values())
        sizes = [len(x) for x in values if isinstance(x, Batch)]
        # None: a call of single samples.
        N = arguments.get("batch_size") or (sizes[0] if sizes else None)
        declared_arguments = declared[operator]() if operator in declared else {}
        returns_single = False
        if current_trace() is None and not any(map(_is_traced, values)):
            # Tensors become arguments per sample, so that a call of single samples runs as a batch of one.
            returns_single = N is None and any(isinstance(x, DaliTensor) for x in arguments.values())
            arguments = {n: _to_batch(declared_arguments.get(n), x, N or 1) for n, x in arguments.items()}
        arguments = {n: _argument(declared_arguments.get(n), x, N) for n, x in arguments.items()}
        if getattr(function, "draws", False) and arguments.get("rng") is None and arguments.get("key") is None:
            arguments["rng"] = random.get_default_rng()
        return to_dali_classes(call_by_dali(*inputs, **arguments), returns_single)

    call_with_defaults.__doc__ = with_generator(function.__doc__ or "")
    return call_with_defaults


def _input(x: Any) -> Any:
    """Converts a positional input. Everything but a batch, a column and a list of files is one sample."""
    if isinstance(x, (list, tuple)):
        # In a function of `jit` or of JAX, lists with values of these stay as they are.
        if any(is_node(e) or isinstance(e, Tracer) for e in x):
            return x
        is_files = bool(x) and all(isinstance(e, FILE) for e in x)  # their lengths differ
        return as_batch(x) if is_files else to_plain(as_tensor(x))
    if is_column(x):
        return as_batch(x)
    if isinstance(x, (Batch, Tensor, Tracer)) or not (isinstance(x, (bool, int, float)) or is_array(x)):
        return to_plain(x)
    return to_plain(as_tensor(x))


def _is_traced(x: Any) -> bool:
    return isinstance(x._data if isinstance(x, Batch) else x, Tracer)


def _to_batch(a: Argument | None, x: Any, N: int) -> Any:
    """Repeats a named argument that is a tensor for N samples. Returns other arguments unchanged.

    As a static number, each new value would compile anew.

    Args:
      a: its declaration; None if the function does not declare it.
    """
    if a is None or a.is_input or not a.per_sample or not isinstance(x, DaliTensor):
        return x
    return as_batch(np.broadcast_to(np.asarray(x), (N, *x.shape)), x.layout)


def _argument(a: Argument | None, x: Any, N: int | None) -> Any:
    """Converts a named argument.

    Args:
      a: its declaration; None if the function does not declare it.
      N: number of samples of the call; None for a single sample.
    """
    if isinstance(x, Device):
        with x:  # raises an error if it is not the first device
            return x.device_type
    if isinstance(x, DType):
        return numpy_of(x)
    if a is not None and a.is_input:
        return _input(x)
    if isinstance(x, str) and a is not None and a.name.endswith("dtype"):
        return numpy_of(DType.parse(x))
    # Sizes in a list are converted as arrays are: fractions are cut, as in DALI.
    if type(x) in (list, tuple) and a is not None and a.extents and is_numbers(x):
        x = np.asarray(x)
    if type(x) in (list, tuple):
        if a is not None and a.many and x and all(type(row) in (list, tuple) for row in x):
            x = [e for row in x for e in row]  # the rows of a matrix
        if N is None and a is not None and not a.many and len(x) == 1 and isinstance(x[0], (bool, int, float)):
            return x[0]
        return type(x)(e.item() if isinstance(e, DaliTensor) and not e.ndim else to_plain(e) for e in x)
    if a is None or not is_array(x) or isinstance(x, (Batch, np.generic, Tracer)):
        return to_plain(x)
    # An array is one value for all samples, unless its shape only fits one value for each sample. DALI refuses those.
    shape: tuple[int, ...] = np.shape(x)
    if shape == (1,) and not a.many:
        return np.asarray(x).item()
    is_per_sample = N is not None and (len(shape) == 1 if not a.many else len(shape) > 1 and shape[-1] in a.lengths)
    return to_plain(x if is_per_sample else as_tensor(x))


def functions_with_dali_defaults(module: types.ModuleType, name: str) -> dict[str, Any]:
    """Wraps the functions of a module of `jaxdali.dynamic`, and makes modules of such functions for its submodules."""
    functions: dict[str, Any] = {}
    for public in dir(module):
        x = getattr(module, public)
        if public in _SKIPPED_NAMES or public.startswith("_"):
            continue
        if inspect.isfunction(x) and x.__module__ == module.__name__:
            functions[public] = with_dali_defaults(x)
        elif inspect.ismodule(x) and x.__name__ == f"{module.__name__}.{public}":
            path = f"{name}.{public}"
            submodule = sys.modules.get(path) or types.ModuleType(
                path, f"The functions of `{x.__name__}`, with DALI's defaults."
            )
            sys.modules[path] = submodule
            vars(submodule).update(
                functions_with_dali_defaults(x, path),
                __getattr__=boundary(functools.partial(_raise_missing_name, path, public)),
            )
            functions[public] = submodule
    return functions


def _raise_missing_name(module: str, path: str, name: str) -> Any:
    """Raises the AttributeError for a missing name of a submodule. `path`: the last part of the module's name."""
    if f"{path}.{name}" in _ADVICE:
        raise missing_name_error(__name__.rpartition(".")[0], f"{path}.{name}", ())
    raise missing_name_error(module, name, vars(sys.modules[module]))


def missing_name_error(module: str, name: str, public_names: Iterable[str]) -> AttributeError:
    """The AttributeError for a missing name, which says what to use instead."""
    if name in _ADVICE:
        return AttributeError(
            f"{module.removeprefix('jaxdali.')}.{name} of DALI is not in jaxdali: {_ADVICE[name]}", name=name
        )
    return AttributeError(
        of_values(f"module {module!r} has no attribute {name!r}{did_you_mean(name, public_names)}"), name=name
    )
