"""Files in the rows of sequences, with zeros behind them."""

import numpy as np
import pytest
from images import encode, picture

import jaxdali
import jaxdali.dynamic as jd
from jaxdali.fn._decode.rows_of_files import file_of

FILES = {
    "JPEG": encode(picture(90, 70), "JPEG"),
    "JPEG with zeros behind": encode(picture(90, 70), "JPEG") + bytes(100),
    "progressive JPEG": encode(picture(90, 70), "JPEG", progressive=True),
    "PNG": encode(picture(90, 70), "PNG"),
    "GIF": encode(picture(90, 70), "GIF"),
    "WebP": encode(picture(90, 70), "WEBP"),
    "lossless WebP": encode(picture(90, 70), "WEBP", lossless=True),
    "WebP with zeros in its last chunk": encode(picture(90, 70), "WEBP", exif=b"Exif\0\0II*\0" + bytes(500)),
    "BMP with zeros at its end": encode(np.zeros((90, 70, 3), np.uint8), "BMP"),
}


def row_of(file, zeros):
    return np.frombuffer(file + bytes(zeros), np.uint8)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("zeros", [0, 1, 70_000, 200_000])
def test_whole_files(name, zeros):
    rows = row_of(FILES[name], zeros)[None]
    (expected,) = jd.decoders.image([FILES[name]])
    (frames,) = jd.decoders.image(jd.batch([rows], layout="F*"))
    np.testing.assert_array_equal(np.asarray(frames)[0], np.asarray(expected))


@pytest.mark.parametrize("name", [n for n in FILES if "zeros" not in n])
@pytest.mark.parametrize("fraction", [0.5, 0.9])
def test_incomplete_files(name, fraction):
    """The zeros are no part of the image, wherever the file ends."""
    file = FILES[name][: int(fraction * len(FILES[name]))]
    assert file_of(row_of(file, 70_000)).size <= len(file)
    chat = [row_of(x, 80_000 - len(x)) for x in (file, FILES[name])]
    with pytest.raises(jaxdali.SampleError, match=r"image 0 of the sample.* end early"):
        jd.decoders.image_patches(jd.batch([np.stack(chat)], layout="F*"), size=32, patch_size=16, length=8)


def test_rows_of_zeros():
    assert file_of(row_of(b"", 0)).size == 0
    for size in (1, 65_536, 65_537, 200_000):
        assert file_of(row_of(b"", size)).size == size  # of no known format
    assert file_of(row_of(b"\xff\xd8", 200_000)).size == 2
