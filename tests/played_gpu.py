"""A pytest plugin: CPU devices play GPUs with the emulated kernels, and decoders decode on them unless a test says
where.

    PYTHONPATH=tests pytest -p played_gpu tests/fn/test_golden.py ...

Needs the module that JAXDALI_EMULATED builds. Not for tests that count programs or ask where arrays are.
"""

import inspect
from typing import Any

import emulated
import jax
import numpy as np

from jaxdali import backend, fn
from jaxdali._core import ffi as _ffi
from jaxdali._program.sharding import Shards


def pytest_configure(config):
    for name, function in emulated.functions().items():
        setattr(_ffi, name, function)
    play()


def play():
    """CPU devices become accelerators, where decoders put images, and whose arrays tests may read."""
    Shards.accelerator = property(lambda self: True)  # pyright: ignore[reportAttributeAccessIssue]
    jax.lax.platform_dependent = lambda *args, default, **platforms: default(*args)
    for decoder in (fn.decoders.image, fn.decoders.image_crop, fn.decoders.image_slice, fn.decoders.image_random_crop):
        declaration: Any = inspect.getclosurevars(inspect.getattr_static(decoder, "__wrapped__")).nonlocals[
            "declaration"
        ]
        parameters = declaration.signature.parameters
        device = parameters["device"].replace(default="mixed")
        declaration.signature = declaration.signature.replace(parameters=[*{**parameters, "device": device}.values()])
    # Tests read outputs as NumPy arrays; those on an accelerator refuse that.
    for kind in (backend.TensorGPU, backend.TensorListGPU):
        kind.__array__ = lambda self, dtype=None, copy=None: np.asarray(self.as_cpu(), dtype)
