"""The CUDA kernels, run by the emulation on the CPU: the module that JAXDALI_EMULATED builds."""

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any

import jax
import pytest

from jaxdali._core import ffi as _ffi


@functools.cache
def targets() -> dict[str, str]:
    """For each kernel what `_ffi.call` is to call instead. ModuleNotFoundError: the module is not built."""
    names = {}
    for target, handler in importlib.import_module("jaxdali._emulated").targets().items():
        kernel = target.removeprefix("jaxdali_")
        names[kernel] = f"emulated_{kernel}"
        jax.ffi.register_ffi_target(f"jaxdali_{names[kernel]}", handler, platform="cpu")
    return names


def functions(*kernels: str) -> dict[str, Callable[..., Any]]:
    """The functions of `_core/ffi.py` that take the place of its own, by their names: then CPU devices have these
    emulated kernels, or all of them.
    """
    names, call, call_chain = (
        {k: t for k, t in targets().items() if k in kernels or not kernels},
        _ffi.call,
        _ffi.call_chain,
    )

    def call_chain_of_device(image: Any, stages: Any, **options: Any) -> Any:
        """A GPU's chain ends with a window. Others are the CPU's, also where there is a GPU."""
        kernel = names["chain"] if stages[-1][0] == "window" else "chain"
        return call_chain(image, stages, kernel=kernel, **options)

    return {
        "call": lambda kernel, *args, **options: call(names.get(kernel, kernel), *args, **options),
        "call_chain": call_chain_of_device,
        "kernels_on": lambda device: frozenset(names),
    }


def required() -> dict[str, str]:
    """The same for tests: without the module they are skipped; with JAXDALI_REQUIRE_EMULATED=1 they fail."""
    try:
        return targets()
    except ModuleNotFoundError:
        if os.environ.get("JAXDALI_REQUIRE_EMULATED") == "1":
            raise
        pytest.skip("built without JAXDALI_EMULATED", allow_module_level=True)
