"""Argument types of `Pipeline`, and checks of its outputs and device against the arguments."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from .._core.graph import Graph
from .._core.values import Spec


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


def per_output(graph: Graph, name: str, requirement: Any) -> list[Any]:
    """The requirement on each output, from one of the arguments `OUTPUTS`: a tuple has one for each output, anything
    else is for all.

    Raises:
      RuntimeError: a tuple has another length.
    """
    n = len(graph.outputs)
    values = [*requirement] if isinstance(requirement, tuple) else [requirement] * n
    if len(values) != n:
        raise RuntimeError(f"{name} has {len(values)} entries, the pipeline {n} outputs")
    return values


def check_outputs(graph: Graph, specs: Sequence[Spec | None], requirements: Mapping[str, Any]) -> bool:
    """Compares the outputs with the arguments `output_dtype`, `output_ndim` and `output_layout`.

    Args:
      graph: has the outputs.
      specs: of the outputs; None: not known yet, as for results of a function or for fed data before the first batch.
      requirements: the three arguments by name.

    Returns:
      Whether all outputs could be compared.

    Raises:
      RuntimeError: an output differs from its requirement.
    """
    all_checked = True
    for name in OUTPUTS:
        for i, (expected, x) in enumerate(zip(per_output(graph, name, requirements[name]), graph.outputs, strict=True)):
            # A requirement on all outputs does not concern metadata.
            if expected is None or (x.metadata is not None and not isinstance(requirements[name], tuple)):
                continue
            spec = specs[i]
            if spec is None:
                all_checked = False
                continue
            actual = getattr(spec, name.removeprefix("output_"))  # its dtype, ndim or layout
            if actual != expected:
                raise RuntimeError(
                    f"{name}: output {i} (made at {x.node.where}) has {'none' if actual == '' else actual}, expected {expected}"
                )
    return all_checked


OUTPUTS = ("output_dtype", "output_ndim", "output_layout")


device_hooks: list[Callable[[], Any]] = []  # called before a pipeline asks JAX for its devices, which opens them


def local_device(device_id: int | None) -> jax.Device:
    """Returns ``jax.local_devices()[device_id]``; for None, the user's default device, or the first one.

    Raises:
      ValueError: there are fewer devices.
    """
    for hook in device_hooks:
        hook()
    devices = jax.local_devices()
    if device_id is None:
        default = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
        return default if isinstance(default, jax.Device) else devices[0]
    if not 0 <= device_id < len(devices):
        raise ValueError(
            f"device_id={device_id}: JAX has {len(devices)} local device(s) here, numbered from 0: {devices}"
        )
    return devices[device_id]
