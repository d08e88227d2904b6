"""What the CUDA kernels compute, run by the emulation on the CPU (built with JAXDALI_EMULATED), against the CPU kernels."""

import importlib
import os

import jax
import pytest
from kernels import CASES, compare

try:
    emulated = importlib.import_module("jaxdali._emulated")
except ModuleNotFoundError:
    if os.environ.get("JAXDALI_REQUIRE_EMULATED") == "1":
        raise
    pytest.skip("built without JAXDALI_EMULATED", allow_module_level=True)


@pytest.mark.parametrize("kernel", CASES)
def test_same_as_on_the_cpu(kernel):
    jax.ffi.register_ffi_target(f"jaxdali_emulated_{kernel}", emulated.targets()[f"jaxdali_{kernel}"], platform="cpu")
    assert compare(kernel, f"emulated_{kernel}") > 20 - 5 * (kernel != "rotate")


def test_every_cuda_kernel_is_compared():
    elsewhere = {"jaxdali_decode"}  # test_jpeg_kernels.py
    assert set(emulated.targets()) == {f"jaxdali_{kernel}" for kernel in CASES} | elsewhere
