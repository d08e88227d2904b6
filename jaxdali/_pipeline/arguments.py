"""Checks of what users pass to `Pipeline`."""

from __future__ import annotations

from typing import Any

import jax

from .._core.graph import Graph
from ..types import numpy_dtype


def whole(name: str, x: Any) -> int:
    """A whole number as an int; TypeError for anything else."""
    if isinstance(x, bool) or not hasattr(x, "__index__"):
        raise TypeError(f"{name} must be a whole number, got {x!r}")
    return x.__index__()


def optional(name: str, x: Any) -> int | None:
    """A whole number; None and -1: not given."""
    return None if x is None or whole(name, x) == -1 else whole(name, x)


def not_negative(name: str, x: Any) -> int | None:
    """A whole number; None and negative ones: not given."""
    return None if x is None or whole(name, x) < 0 else whole(name, x)


def depth(x: Any) -> int | dict[str, int]:
    """A prefetch queue depth of the right type."""
    if isinstance(x, dict):
        if set(x) != {"cpu_size", "gpu_size"}:
            raise ValueError(f'prefetch_queue_depth must be a number or {{"cpu_size": n, "gpu_size": m}}, got {x!r}')
        return {k: whole(f"prefetch_queue_depth[{k!r}]", v) for k, v in x.items()}
    return whole("prefetch_queue_depth", x)


def check_range(name: str, x: int, most: int | None = None):
    """ValueError for a number below 1 or above `most`."""
    if x < 1:
        raise ValueError(f"{name} must be at least 1, got {x}")
    if most is not None and x > most:
        raise ValueError(f"{name} must be at most {most}, got {x}")


def output_dtypes(x: Any) -> Any:
    """`output_dtype` with NumPy's dtypes, for all outputs or as a list; None: any. TypeError for what is no type."""
    if isinstance(x, (list, tuple)):
        return [output_dtypes(e) for e in x]
    return None if x is None else numpy_dtype(x)


def output_ndims(x: Any) -> Any:
    """`output_ndim`, for all outputs or as a list; None: any."""
    if isinstance(x, (list, tuple)):
        return [output_ndims(e) for e in x]
    if x is not None and whole("output_ndim", x) < 0:
        raise ValueError(f"output_ndim must be a number >= 0, got {x!r}")
    return x


def check_outputs(graph: Graph, dtype: Any, ndim: Any) -> bool:
    """Compares the outputs with `output_dtype` and `output_ndim`.

    Returns:
      Whether all could be compared: types of a function's results, or of data that are fed, are known when it has run.

    Raises:
      RuntimeError: they differ.
    """
    complete = True
    n = len(graph.outputs)
    for name, wanted in (("output_dtype", dtype), ("output_ndim", ndim)):
        each = wanted if isinstance(wanted, list) else [wanted] * n
        if len(each) != n:
            raise RuntimeError(f"{name} has {len(each)} entries, the pipeline {n} outputs")
        for i, (want, x) in enumerate(zip(each, graph.outputs, strict=True)):
            if want is None:
                continue
            if not x.node.specs:
                complete = False
                continue
            got = x.spec.dtype if name == "output_dtype" else x.spec.ndim
            if got != want:
                raise RuntimeError(f"{name}: output {i} (made at {x.node.where}) has {got}, expected {want}")
    return complete


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
