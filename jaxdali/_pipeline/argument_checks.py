"""What `Pipeline` takes of types of its own, and how outputs and devices that were given are compared with those there
are.
"""

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


def per_output(graph: Graph, name: str, wanted: Any) -> list[Any]:
    """What `output_dtype` and the like say about each output. RuntimeError when they are not as many."""
    n = len(graph.outputs)
    each = [*wanted] if isinstance(wanted, tuple) else [wanted] * n
    if len(each) != n:
        raise RuntimeError(f"{name} has {len(each)} entries, the pipeline {n} outputs")
    return each


def check_outputs(graph: Graph, specs: Sequence[Spec | None], wanted: Mapping[str, Any]) -> bool:
    """Compares the outputs, of these `specs` (None: not known yet), with `output_dtype`, `output_ndim` and
    `output_layout`.

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
                raise RuntimeError(
                    f"{name}: output {i} (made at {x.node.where}) has {'none' if got == '' else got}, expected {want}"
                )
    return complete


OUTPUTS = ("output_dtype", "output_ndim", "output_layout")


before_devices: list[Callable[[], Any]] = []  # called before pipelines have JAX open its devices


def local_device(device_id: int | None) -> jax.Device:
    """``jax.local_devices()[device_id]``; None: the user's default device, or the first.

    Raises:
      ValueError: there are fewer devices.
    """
    for call in before_devices:
        call()
    devices = jax.local_devices()
    if device_id is None:
        default = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
        return default if isinstance(default, jax.Device) else devices[0]
    if not 0 <= device_id < len(devices):
        raise ValueError(
            f"device_id={device_id}: JAX has {len(devices)} local device(s) here, numbered from 0: {devices}"
        )
    return devices[device_id]
