"""laplacian, against a definition in NumPy."""

import numpy as np
import pytest
from pipelines import run

from jaxdali import fn, types

SMOOTH = {1: [1], 3: [1, 2, 1], 5: [1, 4, 6, 4, 1]}
SECOND = {3: [1, -2, 1], 5: [1, 0, -2, 0, 1]}


def along(x: np.ndarray, window: list[int], axis: int) -> np.ndarray:
    half = len(window) // 2
    padded = np.pad(x, [(half, half) if d == axis else (0, 0) for d in range(x.ndim)], mode="reflect")
    views = np.lib.stride_tricks.sliding_window_view(padded, len(window), axis=axis)
    return views @ np.array(window, np.float64)


def laplacian(x, axes, sizes, smoothing, scale):
    total = np.zeros(x.shape)
    for k, axis in enumerate(axes):
        derivative = along(x.astype(np.float64), SECOND[sizes[k]], axis)
        for j, smoothed_axis in enumerate(axes):
            if j != k:
                derivative = along(derivative, SMOOTH[smoothing[j] if smoothing else sizes[k]], smoothed_axis)
        total += derivative * scale[k]
    return total


@pytest.mark.parametrize(
    ("layout", "axes"), [("HWC", (0, 1)), ("CHW", (1, 2)), ("FHWC", (1, 2)), ("DHWC", (0, 1, 2)), ("", (0, 1))]
)
@pytest.mark.parametrize("uniform", [True, False])
def test_laplacian(layout, axes, uniform):
    rng = np.random.default_rng(1)
    rank = len(layout) or 2
    samples = [
        rng.integers(0, 256, tuple(6 + d + (0 if uniform else i) for d in range(rank)), np.uint8) for i in range(3)
    ]
    sizes, smoothing = [5, 3, 3][: len(axes)], [1, 5, 3][: len(axes)]
    scale = [0.25, -0.5, 1.5][: len(axes)]

    def make(x):
        exact = fn.laplacian(x, window_size=sizes, smoothing_size=smoothing, scale=scale, dtype=types.FLOAT)
        return exact, fn.laplacian(x, window_size=5), fn.laplacian(x, normalized_kernel=True)

    exact, rounded, normalized = run(make, samples, layouts=[layout or None])
    for i, x in enumerate(samples):
        n = len(axes)
        np.testing.assert_allclose(
            np.array(exact[i]), laplacian(x, axes, sizes, smoothing, scale), atol=2e-2, rtol=1e-5
        )
        np.testing.assert_array_equal(np.array(rounded[i]), np.clip(laplacian(x, axes, [5] * n, None, [1] * n), 0, 255))
        whole = laplacian(x, axes, [3] * n, None, [2.0 ** (2 - 2 * n)] * n)
        assert np.abs(np.array(normalized[i]) - np.clip(whole, 0, 255)).max() <= 0.5


def test_sizes_per_sample():
    x = np.random.default_rng(0).standard_normal((9, 8)).astype(np.float32)
    sizes = [np.int32([3]), np.int32([5])]
    (y,) = run(
        lambda x: fn.laplacian(x, window_size=fn.external_source(source=[sizes], batch=True)), [x, x], layouts=["HW"]
    )
    for filtered, n in zip(y, (3, 5), strict=True):
        np.testing.assert_allclose(np.array(filtered), laplacian(x, (0, 1), [n, n], None, [1, 1]), atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"window_size": 4}, "window_size must be odd and in 3 ... 31, got \\[4, 4\\]"),
        ({"smoothing_size": [1, 33]}, "smoothing_size must be odd and in 1 ... 31, got \\[1, 33\\]"),
        ({"normalized_kernel": True, "scale": 2.0}, "scale must not be given with normalized_kernel=True"),
        ({"window_size": [3, 3, 3]}, "argument window_size must have 1 or 2 numbers"),
    ],
)
def test_errors(arguments, text):
    with pytest.raises(Exception, match=text):
        run(lambda x: fn.laplacian(x, **arguments), [np.zeros((4, 4), np.uint8)], layouts=["HW"])
