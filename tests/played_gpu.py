"""A pytest plugin: CPU devices play GPUs with the emulated kernels, and decoders decode on them unless a test says where.

    PYTHONPATH=tests pytest -p played_gpu tests/test_golden.py ...

Needs the module that JAXDALI_EMULATED builds. Not for tests that count programs or ask where arrays are.
"""

import importlib

import jax
import numpy as np

from jaxdali import _ffi, backend, fn
from jaxdali.sharding import Shards


def pytest_configure(config):
    targets = importlib.import_module("jaxdali._emulated").targets()
    for name, handler in targets.items():
        jax.ffi.register_ffi_target(f"played_{name}", handler, platform="cpu")
    _ffi.target = lambda kernel: f"played_jaxdali_{kernel}"
    _ffi.kernels_on = lambda device: frozenset(name.removeprefix("jaxdali_") for name in targets)
    Shards.accelerator = property(lambda self: True)  # pyright: ignore[reportAttributeAccessIssue]
    decoders = fn.decoders
    for decoder in (decoders.image, decoders.image_crop, decoders.image_slice, decoders.image_random_crop):
        decoder.__kwdefaults__ = {**(decoder.__kwdefaults__ or {}), "device": "mixed"}
    # Tests read outputs as NumPy arrays; those on an accelerator refuse that.
    for kind in (backend.TensorGPU, backend.TensorListGPU):
        kind.__array__ = lambda self, dtype=None, copy=None: np.asarray(self.as_cpu(), dtype)
