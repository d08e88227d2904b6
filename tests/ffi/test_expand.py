"""The native broadcast against NumPy's."""

import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdali import _cpu
from jaxdali._core import ffi as _ffi
from jaxdali._core.ragged import Ragged, pack, plan_offsets
from jaxdali._core.values import Spec

SIZE_MISMATCH = 6


@pytest.fixture
def control():
    pool = _cpu.pool_create(2)
    yield lambda n: jnp.asarray([pool] + [1] * n, jnp.int32)
    _cpu.pool_destroy(pool)


def expand(samples, shapes, control, dense=False):
    """The kernel over a batch; returns the outputs and the status of each sample."""
    n, ndim = len(samples), len(shapes[0])
    ctx: Any = types.SimpleNamespace(B=n, control=control(n))
    shapes = np.array(shapes, np.int64).reshape(n, ndim)
    with jax.enable_x64(True):
        if dense:
            x = jnp.asarray(np.stack(samples))
        else:
            p = pack(samples, 1, lambda elements, dtype: np.zeros((1, elements), dtype))
            x = Ragged(jnp.asarray(p.data[0]), jnp.asarray(p.offsets), jnp.asarray(p.shapes.astype(np.int32)))
        offsets, need = plan_offsets(shapes, 1)
        out = _ffi.Out(max(need, 1), jnp.asarray(offsets), jnp.asarray(shapes.astype(np.int32)))
        y, status = _ffi.call("expand", ctx, x, Spec(samples[0].dtype, ndim, None), out)
        data = np.asarray(y.data)
    return [data[o * 64 : o * 64 + s.prod()].reshape(s) for o, s in zip(offsets, shapes, strict=True)], np.asarray(status)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.int64, np.bool_])
@pytest.mark.parametrize("dense", [False, True])
def test_broadcasts_as_numpy_does(dtype, dense, control):
    rng = np.random.default_rng(3)
    for ndim in range(1, 5):
        for rank in range(ndim + 1):
            full = rng.integers(0, 2, rank).astype(bool)
            fixed = rng.integers(1, 7, ndim)
            samples, shapes = [], []
            for _ in range(6):
                shape = fixed if dense else rng.integers(0 if rng.random() < 0.1 else 1, 7, ndim)
                keep = full if dense else rng.integers(0, 2, rank).astype(bool)
                samples.append(rng.integers(0, 100, np.where(keep, shape[ndim - rank :], 1)).astype(dtype))
                shapes.append(shape)
            got, status = expand(samples, shapes, control, dense)
            assert not status.any()
            for g, s, shape in zip(got, samples, shapes, strict=True):
                np.testing.assert_array_equal(g, np.broadcast_to(s, tuple(shape)))


def test_other_extents_are_refused_for_that_sample_only(control):
    rows = [np.arange(3, dtype=np.float32), np.arange(2, dtype=np.float32)]
    got, status = expand(rows, [(4, 3), (4, 3)], control)
    assert status.tolist() == [0, SIZE_MISMATCH]
    np.testing.assert_array_equal(got[0], np.broadcast_to(rows[0], (4, 3)))
