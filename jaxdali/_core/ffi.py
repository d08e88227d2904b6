"""Loads and registers the native modules; `call` is the only user of `jax.ffi`."""

from __future__ import annotations

import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .context import LowerContext, Out
from .ragged import Ragged
from .values import Spec

try:
    from .. import _cpu
except ImportError as e:
    raise ImportError(
        f"jaxdali's compiled module does not load ({e}). If {__file__} is the source folder and not the installed package: "
        "install with `pip install -e .`, after which both are one, or run Python from another folder"
    ) from e

STATUS: dict[int, str] = _cpu.status_table()  # code -> text, from ffi/common/status.h
REFUSED = 12  # the one code that users never see: what the kernel of an accelerator leaves to the host

for _name, _capsule in _cpu.targets().items():
    jax.ffi.register_ffi_target(_name, _capsule, platform="cpu")


def _load_cuda() -> tuple[str, frozenset[str]]:
    """Registers the CUDA kernels. Returns what `show_config` prints, and the kernels' names."""
    try:
        cuda = importlib.import_module(".._cuda", __package__)
    except ModuleNotFoundError:
        return "not built", frozenset()
    except ImportError as e:
        return f"failed to load: {e}", frozenset()
    if problem := cuda.driver_problem():
        return f"not used: {problem}", frozenset()
    for name, capsule in cuda.targets().items():
        jax.ffi.register_ffi_target(name, capsule, platform="CUDA")
    kernels = frozenset(name.removeprefix("jaxdali_") for name in cuda.targets())
    info = cuda.build_info()
    return f"loaded: {', '.join(sorted(kernels))} (CUDA {info['cuda']}, {info['architectures']})", kernels


CUDA, CUDA_KERNELS = _load_cuda()


def kernels_on(device: jax.Device) -> frozenset[str]:
    """The native kernels that JAX programs on a device can call. Where one is missing, its operators run on the CPU."""
    if device.platform == "cpu":
        return frozenset(name.removeprefix("jaxdali_") for name in _cpu.targets())
    # AMD's platform is called "gpu" too.
    is_cuda = device.platform == "cuda" or (device.platform == "gpu" and "cuda" in device.client.platform_version.lower())
    return CUDA_KERNELS if is_cuda else frozenset()


def flat(x: Any) -> tuple[Any, Any, Any]:
    """A dense or ragged batch as the operands (data, offsets, shapes) of a native call."""
    if isinstance(x, Ragged):
        return x.data, x.offsets, x.shapes
    return x, jnp.zeros((0,), jnp.int32), jnp.zeros((0, x.ndim - 1), jnp.int32)


def call(
    kernel: str, ctx: LowerContext, image: Any, spec: Spec, out: Out | None, *params: Any, scratch: int | None = None, **attrs: Any
) -> tuple[Any, Any]:
    """Calls a native kernel on one shard's batch.

    Args:
      kernel: the kernel's name; the target is ``jaxdali_<kernel>``.
      image: the batch, dense ``[B, ...]`` or `Ragged`.
      spec: of the output.
      out: layout of a ragged output, None when `spec.shape` is static.
      *params: further operands, one row per sample.
      scratch: bytes of working memory, for a kernel whose last result that is: XLA plans it with the rest of the program's memory.
      **attrs: small static attributes (int, float, bool, str, or a tuple of int).

    Returns:
      (output, status ``i32[B]``).
    """
    if out is None:
        assert spec.shape is not None
        result = jax.ShapeDtypeStruct((ctx.B, *spec.shape), spec.dtype)
        layout = (jnp.zeros((0,), jnp.int32), jnp.zeros((0, spec.ndim), jnp.int32))
    else:
        result = jax.ShapeDtypeStruct((out.capacity,), spec.dtype)
        layout = (out.offsets, out.shapes)
    results = (result, jax.ShapeDtypeStruct((ctx.B,), jnp.int32))
    if scratch is not None:
        results += (jax.ShapeDtypeStruct((scratch,), jnp.uint8),)
    data, status, *_ = jax.ffi.ffi_call(f"jaxdali_{kernel}", results)(
        *flat(image), *layout, ctx.control, *params, **{k: _attribute(v) for k, v in attrs.items()}
    )
    return (data if out is None else Ragged(data, out.offsets, out.shapes)), status


def _attribute(v: Any) -> Any:
    if isinstance(v, bool):
        return np.bool_(v)
    if isinstance(v, int):
        return np.int32(v)
    if isinstance(v, float):
        return np.float32(v)
    if isinstance(v, tuple):
        return np.asarray(v, np.int64)
    return v
