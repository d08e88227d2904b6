"""jpeg_compression_distortion, against libjpeg-turbo itself, by Pillow."""

import io

import numpy as np
import pytest
from images import picture
from PIL import Image
from pipelines import run

from jaxdali import fn


def compressed(image: np.ndarray, quality: int) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality, subsampling="4:2:0")
    return np.asarray(Image.open(file))


SIZES = [(16, 16), (1, 1), (17, 33), (40, 3), (5, 4), (31, 70), (64, 2)]


@pytest.mark.parametrize("quality", [1, 30, 50, 75, 100])
def test_same_as_libjpeg(quality):
    rng = np.random.default_rng(0)
    images = [picture(*size, seed=i) for i, size in enumerate(SIZES)] + [rng.integers(0, 256, (29, 35, 3), np.uint8)]
    (y,) = run(lambda x: fn.jpeg_compression_distortion(x, quality=quality), images, layouts=["HWC"])
    for distorted, x in zip(map(np.array, y), images, strict=True):
        np.testing.assert_array_equal(distorted, compressed(x, quality), err_msg=str(x.shape))


def test_sequences_and_quality_per_sample():
    samples = [np.stack([picture(20, 30, seed=k) for k in range(3)])] * 3
    qualities = [np.int32(5), np.int32(500), np.int32(-3)]
    (y,) = run(lambda x, q: fn.jpeg_compression_distortion(x, quality=q), samples, qualities, layouts=["FHWC", ""])
    for distorted, x, quality in zip(map(np.array, y), samples, (5, 100, 1), strict=True):
        np.testing.assert_array_equal(distorted, np.stack([compressed(frame, quality) for frame in x]))


@pytest.mark.parametrize(
    ("x", "layout", "text"),
    [
        (np.zeros((4, 4, 3), np.int16), "HWC", "the input must be uint8, got int16"),
        (np.zeros((4, 4, 1), np.uint8), "HWC", "the input must have 3 channels, got 1"),
        (np.zeros((3, 4, 4), np.uint8), "CHW", "the input must have layout HWC, FHWC or none"),
    ],
)
def test_errors(x, layout, text):
    with pytest.raises(Exception, match=text):
        run(lambda x: fn.jpeg_compression_distortion(x), [x], layouts=[layout])
