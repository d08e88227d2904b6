"""segmentation.random_mask_pixel: the possible pixels, which are equally likely."""

import collections

import numpy as np
import pytest
from pipelines import run

from jaxdali import OperatorError, fn

MASK = np.zeros((4, 5), np.uint8)
MASK[1, 2], MASK[3, 4], MASK[0, 0] = 7, 3, 1
EVERY = [(y, x) for y in range(4) for x in range(5)]
N = 800


@pytest.mark.parametrize(
    ("mask", "arguments", "pixels"),
    [  # DALI 2.4 draws from the same sets
        (MASK, {}, EVERY),
        (MASK, {"foreground": 1}, [(0, 0), (1, 2), (3, 4)]),
        (MASK.astype(bool), {"foreground": -1}, [(0, 0), (1, 2), (3, 4)]),
        (MASK, {"foreground": 1, "threshold": 2.0}, [(1, 2), (3, 4)]),
        (MASK.astype(np.float32), {"foreground": 1, "threshold": 3.0}, [(1, 2)]),
        (MASK, {"foreground": 1, "value": 3}, [(3, 4)]),
        (MASK, {"foreground": 1, "value": 9}, EVERY),
        (np.stack([MASK, MASK]), {"foreground": 1, "value": 1}, [(0, 0, 0), (1, 0, 0)]),
    ],
)
def test_pixels(mask, arguments, pixels):
    (out,) = run(lambda m: fn.segmentation.random_mask_pixel(m, **arguments), [mask] * N)
    drawn_pixels = out.as_array()
    assert drawn_pixels.dtype == np.int64
    counts = collections.Counter(map(tuple, drawn_pixels.tolist()))
    assert sorted(counts) == pixels
    expected = N / len(pixels)
    assert sum((n - expected) ** 2 / expected for n in counts.values()) < len(pixels) + 5 * np.sqrt(2 * len(pixels))


def test_per_sample():
    (out,) = run(
        lambda m, f, v: fn.segmentation.random_mask_pixel(m, foreground=f, value=v),
        [MASK, MASK[1:]],
        np.int32([1, 1]),
        np.int32([7, 3]),
    )
    assert [np.asarray(x).tolist() for x in out] == [[1, 2], [2, 4]]


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"^segmentation.random_mask_pixel: give either threshold or value"):
        run(lambda m: fn.segmentation.random_mask_pixel(m, threshold=1.0, value=2), [MASK])
    with pytest.raises(OperatorError, match=r"segmentation.random_mask_pixel .*the mask is empty, of shape \(0, 5\)"):
        run(lambda m: fn.segmentation.random_mask_pixel(m), [MASK[:0]])
