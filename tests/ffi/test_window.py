"""The native window copy against NumPy slicing."""

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
from jaxdali.fn._families import call_window

OUT_OF_BOUNDS = 7


@pytest.fixture
def control():
    pool = _cpu.pool_create(2)
    yield lambda n: jnp.asarray([pool] + [1] * n, jnp.int32)
    _cpu.pool_destroy(pool)


def window(samples, start, step, extent, control, dense=False):
    """The kernel over a batch; returns its outputs, flat, and the status of each sample."""
    n = len(samples)
    ctx: Any = types.SimpleNamespace(B=n, control=control(n))
    with jax.enable_x64(True):
        if dense:
            x = jnp.asarray(np.stack(samples))
        else:
            p = pack(samples, 1, lambda elements, dtype: np.zeros((1, elements), dtype))
            x = Ragged(jnp.asarray(p.data[0]), jnp.asarray(p.offsets), jnp.asarray(p.shapes.astype(np.int32)))
        shapes = np.asarray(extent, np.int64).prod(axis=1, keepdims=True)  # flat: the rank of the output is free
        offsets, need = plan_offsets(shapes, 1)
        out = _ffi.Out(max(need, 1), jnp.asarray(offsets), jnp.asarray(shapes.astype(np.int32)))
        ctx.spec, ctx.out = Spec(samples[0].dtype, 1, None), (out,)
        y, status = call_window(ctx, x, *(jnp.asarray(np.asarray(a, np.int32)) for a in (start, step, extent)))
        data = np.asarray(y.data)
    return [data[o * 64 : o * 64 + k] for o, (k,) in zip(offsets, shapes, strict=True)], np.asarray(status)


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.int32, np.float64, np.bool_])
@pytest.mark.parametrize("dense", [False, True])
def test_windows_of_random_arrays(dtype, dense, control):
    rng = np.random.default_rng(5)
    for ndim in (1, 2, 3, 4):
        samples, start, step, extent, want = [], [], [], [], []
        fixed = rng.integers(1, 9, ndim)
        for _ in range(12):
            dims = fixed if dense else rng.integers(1, 9, ndim)
            samples.append(rng.integers(0, 100, dims).astype(dtype))
            key = []
            for n in dims:
                a, b = rng.integers(-1, n + 1, 2)
                s = rng.choice([1, 1, 1, 2, -1, -3])
                key.append(range(*slice(None if a < 0 else int(a), None if b < 0 else int(b), int(s)).indices(int(n))))
            start.append([r.start if len(r) else 0 for r in key])
            step.append([r.step for r in key])
            extent.append([len(r) for r in key])
            want.append(samples[-1][np.ix_(*(list(r) for r in key))] if all(map(len, key)) else np.zeros(0, dtype))
        got, status = window(samples, start, step, extent, control, dense)
        assert not status.any()
        for g, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(g, w.reshape(-1))


@pytest.mark.parametrize(("start", "step", "extent"), [(-1, 1, 2), (3, 1, 3), (5, 1, 1), (1, -1, 3), (0, 2, 4), (2**31 - 1, 2**31 - 1, 3)])
def test_a_window_that_leaves_the_array_is_refused_for_that_sample_only(start, step, extent, control):
    x = np.arange(10, dtype=np.int32).reshape(5, 2)
    got, status = window([x, x], [[0, 0], [start, 0]], [[1, 1], [step, 1]], [[5, 2], [extent, 2]], control)
    assert status.tolist() == [0, OUT_OF_BOUNDS]
    np.testing.assert_array_equal(got[0], x.reshape(-1))


def test_an_empty_window_may_start_anywhere(control):
    got, status = window([np.zeros((0, 3), np.uint8)], [[7, -1]], [[1, 1]], [[0, 3]], control)
    assert (status.tolist(), got[0].size) == ([0], 0)
