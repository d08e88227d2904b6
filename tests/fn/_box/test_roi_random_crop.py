"""roi_random_crop: the possible places, which are equally likely."""

import numpy as np
import pytest
from pipelines import run

from jaxdali import OperatorError, fn, pipeline_def

N = 1000


def drawn(**arguments):
    (out,) = run(lambda x: fn.roi_random_crop(**arguments), [np.uint8(0)] * N)
    x = out.as_array()
    assert x.dtype == np.int64
    return x


@pytest.mark.parametrize(
    ("arguments", "low", "high"),
    [  # DALI 2.4 draws from the same ranges
        ({"crop_shape": 3, "roi_start": 5, "roi_end": 15}, [5], [12]),
        ({"crop_shape": 10, "roi_start": 5, "roi_end": 8}, [-2], [5]),
        ({"crop_shape": 10, "roi_start": 5, "roi_end": 8, "in_shape": 12}, [0], [2]),
        ({"crop_shape": [3], "roi_start": [5], "roi_end": [15], "in_shape": [20]}, [5], [12]),
        ({"crop_shape": [3], "roi_start": [5], "roi_shape": [3]}, [5], [5]),
        ({"crop_shape": [3, 4], "roi_start": [5, 1], "roi_shape": [10, 2]}, [5, -1], [12, 1]),
        ({"crop_shape": [3, 3], "roi_start": 5, "roi_end": 15}, [5, 5], [12, 12]),
    ],
)
def test_places(arguments, low, high):
    x = drawn(**arguments)
    for k, (a, b) in enumerate(zip(low, high, strict=True)):
        counts = np.bincount(x[:, k] - a, minlength=b - a + 1)
        assert len(counts) == b - a + 1
        expected = N / len(counts)
        assert ((counts - expected) ** 2 / expected).sum() < len(counts) + 5 * np.sqrt(2 * len(counts))


def test_per_sample():
    images = [np.zeros((20, 30, 3), np.uint8), np.zeros((9, 12, 3), np.uint8)]
    start, crop = [np.int32([5, 5]), np.int32([0, 10])], [np.int32([20, 4]), np.int32([9, 1])]

    def define(image, start, crop):
        image = image[:, :, 0]
        return fn.roi_random_crop(image, crop_shape=crop, roi_start=start, roi_shape=[2, 2]), fn.roi_random_crop(
            image.gpu(), crop_shape=crop, roi_start=start, roi_shape=2
        )

    for out in run(define, images, start, crop):
        (y0, x0), (y1, x1) = (np.asarray(x).tolist() for x in out)
        assert y0 == y1 == 0
        assert 3 <= x0 <= 5
        assert x1 in (10, 11)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"roi_end": 15, "roi_shape": 10}, ValueError, "either roi_end or roi_shape"),
        ({}, ValueError, "either roi_end or roi_shape"),
        (
            {"roi_end": 15, "in_shape": 12},
            OperatorError,
            r"the region 5 ... 15 and crop_shape 3 must be inside of the extent 12 of axis 0",
        ),
        (
            {"roi_end": [8, 9, 9]},
            RuntimeError,
            "one number of axes, at most the 3 of the input; got .*'crop_shape': 2, .*'roi_end': 3",
        ),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=f"roi_random_crop.*{message}"):
        drawn(**{"crop_shape": [3, 3], "roi_start": 5, **arguments})


def test_number_of_axes_of_the_first_batch():
    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def pipeline():
        x = fn.external_source(source=[[np.int32([2, 3])] * 2])
        return fn.roi_random_crop(crop_shape=x * 1, roi_start=x * 4, roi_shape=x * 1)

    (start,) = pipeline().run()
    assert start.as_array().tolist() == [[8, 12]] * 2  # DALI 2.4 gives this
