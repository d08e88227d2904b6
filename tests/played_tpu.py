"""A pytest plugin: CPU devices play an accelerator without native kernels, as a TPU is. Decoders put images there
unless a test says where.

    PYTHONPATH=tests pytest -p played_tpu tests/fn/test_golden.py ...

Not for tests that count programs or ask where arrays are.
"""

import played_gpu

from jaxdali._core import ffi as _ffi


def pytest_configure(config):
    _ffi.kernels_on = lambda device: frozenset()
    played_gpu.play()
