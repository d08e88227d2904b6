"""Checks of what users pass to `Pipeline`."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from .._core.declaration import Auto, Whole, checked
from .._core.graph import Graph
from .._core.values import Spec
from ..types import NO_TYPE, numpy_dtype


class StreamPolicy(enum.Enum):
    """DALI's choice of CUDA streams; without effect, as streams are XLA's."""

    SINGLE = "single"
    PER_BACKEND = "per_backend"
    PER_OPERATOR = "per_operator"
    UNSPECIFIED = "unspecified"


class OperatorConcurrency(enum.Enum):
    """DALI's choice of which operators run at the same time; without effect, as XLA plans each program."""

    NONE = "none"
    BACKEND = "backend"
    FULL = "full"
    UNSPECIFIED = "unspecified"


def whole(name: str, x: Any) -> int:
    """A whole number as an int; TypeError for anything else."""
    return checked("Pipeline", name, Whole, x)


AUTO = "auto"


def depth(x: Any) -> int | dict[str, int] | str:
    """A prefetch queue depth of the right type: of both stages, one for each, or "auto"."""
    if isinstance(x, dict):
        if set(x) != {"cpu_size", "gpu_size"}:
            raise ValueError(f'prefetch_queue_depth must be a number or {{"cpu_size": n, "gpu_size": m}}, got {x!r}')
        return {k: whole(f"prefetch_queue_depth[{k!r}]", v) for k, v in x.items()}
    return checked("Pipeline", "prefetch_queue_depth", Whole | Auto, x)


def check_range(name: str, x: int, most: int | None = None):
    """ValueError for a number below 1 or above `most`."""
    if x < 1:
        raise ValueError(f"{name} must be at least 1, got {x}")
    if most is not None and x > most:
        raise ValueError(f"{name} must be at most {most}, got {x}")


def pickler(start_method: str, given: Any):
    """ValueError, TypeError: `py_callback_pickler` is none, or is given without need."""
    if given is not None:
        if start_method == "fork":
            raise ValueError("py_callback_pickler is for py_start_method='spawn'")
        first = given[0] if isinstance(given, tuple) and given else given
        if not (hasattr(first, "dumps") and hasattr(first, "loads")):
            raise TypeError(f"py_callback_pickler must have dumps and loads, or be a tuple that begins with what has, got {given!r}")


def output_dtypes(x: Any) -> Any:
    """`output_dtype` with NumPy's dtypes, for all outputs or as a list; None: any. TypeError for anything that is not a type."""
    if isinstance(x, (list, tuple)):
        return [output_dtypes(e) for e in x]
    if x is NO_TYPE:
        raise ValueError("output_dtype can't be NO_TYPE; None stands for any type")
    return None if x is None else numpy_dtype(x)


def output_ndims(x: Any) -> Any:
    """`output_ndim`, for all outputs or as a list; None: any."""
    if isinstance(x, (list, tuple)):
        return [output_ndims(e) for e in x]
    if x is not None and whole("output_ndim", x) < 0:
        raise ValueError(f"output_ndim must be a number >= 0, got {x!r}")
    return x


def output_layouts(x: Any) -> Any:
    """`output_layout`, for all outputs or as a list; None: any, and so is an empty text, as in DALI."""
    if isinstance(x, (list, tuple)):
        return [output_layouts(e) for e in x]
    if x is not None and not isinstance(x, str):
        raise TypeError(f"output_layout must be a text such as 'HWC', a list of such, or None, got {x!r}")
    return x or None


def per_output(graph: Graph, name: str, wanted: Any) -> list[Any]:
    """What `output_dtype` and the like say about each output. RuntimeError when they are not as many."""
    n = len(graph.outputs)
    each = wanted if isinstance(wanted, list) else [wanted] * n
    if len(each) != n:
        raise RuntimeError(f"{name} has {len(each)} entries, the pipeline {n} outputs")
    return each


def check_outputs(graph: Graph, specs: Sequence[Spec | None], wanted: Mapping[str, Any]) -> bool:
    """Compares the outputs, of these `specs` (None: not known yet), with `output_dtype`, `output_ndim` and `output_layout`.

    Returns:
      Whether all could be compared: types of a function's results, or of data that are fed, are known when it has run.

    Raises:
      RuntimeError: they differ.
    """
    complete = True
    for name in OUTPUTS:
        for i, (want, x) in enumerate(zip(per_output(graph, name, wanted[name]), graph.outputs, strict=True)):
            if want is None or (x.metadata is not None and not isinstance(wanted[name], list)):
                continue
            spec = specs[i]
            if spec is None:
                complete = False
                continue
            got = getattr(spec, name.removeprefix("output_"))
            if got != want:
                raise RuntimeError(f"{name}: output {i} (made at {x.node.where}) has {'none' if got == '' else got}, expected {want}")
    return complete


OUTPUTS = ("output_dtype", "output_ndim", "output_layout")


def local_device(device_id: int | None) -> jax.Device:
    """``jax.local_devices()[device_id]``; None: the user's default device, or the first.

    Raises:
      ValueError: there are fewer devices.
    """
    devices = jax.local_devices()
    if device_id is None:
        default = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
        return default if isinstance(default, jax.Device) else devices[0]
    if not 0 <= device_id < len(devices):
        raise ValueError(f"device_id={device_id}: JAX has {len(devices)} local device(s) here, numbered from 0: {devices}")
    return devices[device_id]
