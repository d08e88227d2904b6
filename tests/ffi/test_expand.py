"""The native broadcast against NumPy's."""

import numpy as np
import pytest
from kernel_calls import Case, run

SIZE_MISMATCH = 6


def expand(samples, shapes, stacked=False):
    """Its outputs, and the status of each sample."""
    return run(Case("expand", samples, samples[0].dtype, [tuple(s) for s in shapes], (), {}), stacked=stacked)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.int64, np.bool_])
@pytest.mark.parametrize("dense", [False, True])
def test_broadcasts_as_numpy_does(dtype, dense):
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
            actual, status = expand(samples, shapes, dense)
            assert not status.any()
            for g, s, shape in zip(actual, samples, shapes, strict=True):
                np.testing.assert_array_equal(g, np.broadcast_to(s, tuple(shape)))


def test_wrong_extents_fail_their_sample_only():
    rows = [np.arange(3, dtype=np.float32), np.arange(2, dtype=np.float32)]
    actual, status = expand(rows, [(4, 3), (4, 3)])
    assert status.tolist() == [0, SIZE_MISMATCH]
    np.testing.assert_array_equal(actual[0], np.broadcast_to(rows[0], (4, 3)))
