"""What the CUDA kernels compute, run by the emulation on the CPU, against the CPU kernels."""

import emulated
import pytest
from kernels import CASES, compare

TARGETS = emulated.required()


@pytest.mark.parametrize("kernel", CASES)
def test_same_as_on_the_cpu(kernel):
    assert compare(kernel, TARGETS[kernel]) > 20 - 5 * (kernel != "warp")


def test_every_cuda_kernel_is_compared():
    assert TARGETS.keys() == CASES.keys() | {"decode"}  # which test_jpeg_kernels.py compares
