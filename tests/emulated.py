"""The CUDA kernels, run by the emulation on the CPU: the module that JAXDALI_EMULATED builds."""

import functools
import importlib
import os

import jax
import pytest


@functools.cache
def targets() -> dict[str, str]:
    """For each kernel what `_ffi.call` is to call instead. ModuleNotFoundError: the module is not built."""
    names = {}
    for target, handler in importlib.import_module("jaxdali._emulated").targets().items():
        kernel = target.removeprefix("jaxdali_")
        names[kernel] = f"emulated_{kernel}"
        jax.ffi.register_ffi_target(f"jaxdali_{names[kernel]}", handler, platform="cpu")
    return names


def required() -> dict[str, str]:
    """The same for tests: without the module they are skipped; with JAXDALI_REQUIRE_EMULATED=1 they fail."""
    try:
        return targets()
    except ModuleNotFoundError:
        if os.environ.get("JAXDALI_REQUIRE_EMULATED") == "1":
            raise
        pytest.skip("built without JAXDALI_EMULATED", allow_module_level=True)
