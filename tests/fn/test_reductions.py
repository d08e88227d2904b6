"""Reductions on the host, which work block by block and axis by axis, against their definition."""

import numpy as np
import pipelines
import pytest

from jaxdali import fn


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.float32])
@pytest.mark.parametrize("axes", [None, 0, 1, (0, 1), (0, 2), (1, 2)])
def test_as_defined(dtype, axes):
    rng = np.random.default_rng(1)
    samples = [
        rng.integers(0 if dtype == np.uint8 else -9999, 256, (h, w, 3)).astype(dtype) for h, w in ((3, 5), (300, 211))
    ]
    over = tuple(np.atleast_1d((0, 1, 2) if axes is None else axes).tolist())

    def define(x):
        mean = fn.reductions.mean(x, axes=axes)
        r, keep = fn.reductions, {"axes": axes, "keep_dims": True}
        return (
            mean,
            r.sum(x, **keep),
            r.min(x, axes=axes),
            r.max(x, **keep),
            r.mean_square(x, axes=axes),
            r.variance(x, mean, axes=axes),
        )

    mean, total, smallest, largest, square, variance = (
        [np.asarray(x) for x in o] for o in pipelines.run(define, samples)
    )
    for i, x in enumerate(samples):
        y = x.astype(np.float64)
        np.testing.assert_allclose(mean[i], y.mean(axis=over), rtol=1e-5, atol=1e-3)
        np.testing.assert_allclose(total[i], y.sum(axis=over, keepdims=True), rtol=1e-6)
        np.testing.assert_array_equal(smallest[i], x.min(axis=over))
        np.testing.assert_array_equal(largest[i], x.max(axis=over, keepdims=True))
        np.testing.assert_allclose(square[i], (y**2).mean(axis=over), rtol=1e-6)
        np.testing.assert_allclose(variance[i], y.var(axis=over), rtol=1e-4)


def test_reductions_without_elements():
    total, smallest = pipelines.run(
        lambda x: (fn.reductions.sum(x, axes=0), fn.reductions.min(x, axes=0)), [np.zeros((0, 2), np.float32)] * 2
    )
    assert [np.asarray(x).tolist() for x in total] == [[0, 0]] * 2
    assert [np.asarray(x).tolist() for x in smallest] == [[np.inf, np.inf]] * 2
