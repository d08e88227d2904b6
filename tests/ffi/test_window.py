"""The native window copy against NumPy slicing."""

import numpy as np
import pytest
from kernel_calls import Case, run

from jaxdali import _cpu

OUT_OF_BOUNDS = _cpu.Status.OUT_OF_BOUNDS


def window(samples, start, step, extent, stacked=False):
    """Its outputs, and the status of each sample."""
    none = np.zeros((len(samples), 0), np.float32)
    params = (*(np.array(x, np.int32) for x in (start, step, extent)), none, none, none)
    attrs = {"permutation": tuple(range(samples[0].ndim)), "channel": -1}
    return run(Case("window", samples, samples[0].dtype, [tuple(e) for e in extent], params, attrs), stacked=stacked)


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.int32, np.float64, np.bool_])
@pytest.mark.parametrize("dense", [False, True])
def test_windows_of_random_arrays(dtype, dense):
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
            want.append(
                samples[-1][np.ix_(*(list(r) for r in key))]
                if all(map(len, key))
                else np.zeros([len(r) for r in key], dtype)
            )
        actual, status = window(samples, start, step, extent, dense)
        assert not status.any()
        for g, w in zip(actual, want, strict=True):
            np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize(
    ("start", "step", "extent"), [(-1, 1, 2), (3, 1, 3), (5, 1, 1), (1, -1, 3), (0, 2, 4), (2**31 - 1, 2**31 - 1, 3)]
)
def test_windows_outside_fail_their_sample_only(start, step, extent):
    x = np.arange(10, dtype=np.int32).reshape(5, 2)
    actual, status = window([x, x], [[0, 0], [start, 0]], [[1, 1], [step, 1]], [[5, 2], [extent, 2]])
    assert status.tolist() == [0, OUT_OF_BOUNDS]
    np.testing.assert_array_equal(actual[0], x)


def test_an_empty_window_may_start_anywhere():
    actual, status = window([np.zeros((0, 3), np.uint8)], [[7, -1]], [[1, 1]], [[0, 3]])
    assert (status.tolist(), actual[0].size) == ([0], 0)


@pytest.mark.parametrize("width", [224, 226])  # rows of planes that are aligned to vectors, and such as are not
def test_planes_of_a_large_batch(width):
    rng = np.random.default_rng(1)
    samples = [rng.integers(0, 256, (256, width, 3), np.uint8) for _ in range(8)]  # more than 4 MB of float32
    scale, offset = (rng.standard_normal((8, 3)).astype(np.float32) for _ in range(2))
    start, step = np.zeros((8, 3), np.int32), np.ones((8, 3), np.int32)
    start[1::2, 1], step[1::2, 1] = width - 1, -1  # mirrored
    params = (start, step, np.array([s.shape for s in samples], np.int32), np.zeros((8, 0), np.float32), scale, offset)
    attrs = {"permutation": (2, 0, 1), "channel": 2}
    actual, status = run(
        Case("window", samples, np.dtype(np.float32), [(3, 256, width)] * 8, params, attrs), stacked=True
    )
    assert not status.any()
    for i, (g, s) in enumerate(zip(actual, samples, strict=True)):
        want = s[:, ::-1] if i % 2 else s
        np.testing.assert_array_equal(g, (want * scale[i] + offset[i]).transpose(2, 0, 1))
