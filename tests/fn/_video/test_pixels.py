"""Conversion of planes to RGB, beside a definition in NumPy and beside swscale."""

import numpy as np
import pytest
import videos

from jaxdali import _cpu
from jaxdali.fn._video.pixels import PixelForm, Pixels
from jaxdali.fn._video.planes import factors


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("shared", [(1, 1), (1, 2), (2, 2), (2, 1)])
def test_planes_become_rgb(shared, full):
    draw = np.random.default_rng(0)
    for height, width in ((2, 2), (2, 16), (6, 18), (10, 64), (4, 94), (8, 130)):
        planes = [draw.integers(0, 256, (height, width + 7)).astype(np.uint8)[:, :width]]  # rows are longer in memory
        planes += [
            draw.integers(0, 256, (height // shared[0], width // shared[1] + 3)).astype(np.uint8)[:, :-3]
            for _ in range(2)
        ]
        out = np.zeros((height, width, 3), np.uint8)
        _cpu.yuv_to_rgb(*planes, factors("bt601", full), out)
        np.testing.assert_array_equal(out, videos.converted(*planes, full))


@pytest.mark.parametrize(("matrix", "number"), [("bt601", 5), ("bt709", 1), ("bt2020", 9)])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("bits", [8, 10])
def test_matrices(matrix, number, full, bits):
    """Matrices are close to the exact conversion, for even and odd sizes."""
    draw = np.random.default_rng(bits)
    dtype = np.uint8 if bits == 8 else np.uint16
    for rows, columns in ((1, 1), (1, 2), (2, 2), (2, 1)):
        for height, width in ((1, 1), (3, 5), (7, 48), (4, 33), (9, 130)):
            extents = [(height, width), *[(-(-height // rows), -(-width // columns))] * 2]
            planes = [draw.integers(0, 1 << bits, x).astype(dtype) for x in extents]
            out = np.zeros((height, width, 3), np.uint8)
            _cpu.yuv_to_rgb(*planes, factors(matrix, full, bits), out)
            assert np.abs(out - videos.exact(*planes, number, full, bits)).max() < 0.55


def test_planes_of_other_sizes_are_refused():
    y, u, out = np.zeros((4, 6), np.uint8), np.zeros((2, 3), np.uint8), np.zeros((4, 6, 3), np.uint8)
    for planes in ((y, u, u[:1]), (y, u[:, :2], u[:, :2]), (u, u, u), (y, u[:1], u[:1]), (y.T, u, u)):
        with pytest.raises(ValueError, match="yuv_to_rgb: the planes"):
            _cpu.yuv_to_rgb(*planes, factors("bt601", False), out)


@pytest.mark.parametrize("form", ["yuv420p", "yuv422p", "yuv444p", "yuvj420p", "yuv420p10le", "gray", "rgb24", "nv12"])
def test_pixels_equal_swscales(form):
    """Pixels equal those of swscale with its options for accuracy, which DALI uses.

    The one difference: colours out of gamut are limited, where swscale wraps around.
    """
    av = pytest.importorskip("av")
    from av.video.reformatter import Interpolation

    interpolation = Interpolation.BILINEAR | Interpolation.FULL_CHR_H_INT | Interpolation.ACCURATE_RND
    for size in ((48, 64), (36, 50), (35, 47)):
        frame = av.VideoFrame.from_ndarray(videos.picture(3, *size), "rgb24").reformat(format=form)
        expected = frame.to_ndarray(
            format="rgb24", interpolation=interpolation, src_colorspace="ITU601", dst_colorspace="ITU601"
        )
        out = np.zeros((*size, 3), np.uint8)
        Pixels(PixelForm()).convert(frame, out)
        worst = np.abs(out.astype(int) - expected).max()
        assert worst <= (2 if "10" in form and size != (35, 47) else 0)  # first rounded to 8 bits
