"""WebP by libwebp, beside Pillow's libwebp: the same bits."""

import io

import numpy as np
import pytest
from PIL import Image

from jaxdali import Pipeline, SampleError, _cpu, fn, types

pytestmark = pytest.mark.same_with_any_jax

NATIVE = bool(_cpu.build_info()["webp"])


def encoded(pixels, **options):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "WEBP", **options)
    return np.frombuffer(file.getvalue(), np.uint8)


def drawn(rng, channels):
    """Blocks of random colours, of a random size."""
    height, width, block = rng.integers(9, 120), rng.integers(9, 120), rng.integers(1, 9)
    pixels = rng.integers(0, 256, (-(-height // block), -(-width // block), channels), np.uint8)
    return pixels.repeat(block, 0).repeat(block, 1)[:height, :width]


@pytest.fixture(scope="module")
def files():
    """Lossy and lossless files, of odd and even sizes, with alpha and without."""
    rng = np.random.default_rng(3)
    lossy = [{"quality": int(rng.integers(5, 101)), "method": int(rng.integers(0, 5))} for _ in range(40)]
    return [
        encoded(drawn(rng, 3 + (i % 4 == 0)), **options)
        for i, options in enumerate([*lossy, *[{"lossless": True}] * 20])
    ]


def run(define):
    with Pipeline(batch_size=60, num_threads=2, device_id=None, seed=1) as pipe:
        pipe.set_outputs(*define())
    outputs = [[np.asarray(x) for x in output] for output in pipe.run()]
    pipe.close()
    return outputs


def test_pixels_are_pillows(files):
    kinds = types.RGB, types.BGR, types.ANY_DATA
    outputs = run(lambda: [fn.decoders.image(fn.external_source(lambda: files), output_type=kind) for kind in kinds])
    for rgb, bgr, whole, file in zip(*outputs, files, strict=True):
        expected = np.asarray(Image.open(io.BytesIO(file.tobytes())))
        np.testing.assert_array_equal(whole, expected)
        np.testing.assert_array_equal(rgb, expected[..., :3])
        np.testing.assert_array_equal(bgr, expected[..., 2::-1])


@pytest.mark.parametrize("fuse", [True, False])
def test_windows_equal_parts_of_whole_images(files, fuse):
    """libwebp's own cropping changes pixels at the edges of the window, which are therefore decoded with a margin."""

    def define():
        data = fn.external_source(lambda: files)
        size = fn.random.uniform(range=(0.2, 1.0), shape=[2])
        anchor = fn.random.uniform(range=(0.0, 1.0), shape=[2]) * (1 - size)
        window = fn.decoders.image_slice(data, anchor, size, axes=[0, 1])
        gray = fn.decoders.image_slice(data, anchor, size, axes=[0, 1], output_type=types.GRAY)
        whole = fn.decoders.image(data)
        return window, fn.slice(whole, anchor, size, axes=[0, 1]), gray, fn.resize(window, size=(16, 16)), whole

    with Pipeline(batch_size=60, num_threads=2, device_id=None, seed=1, fuse=fuse) as pipe:
        pipe.set_outputs(*define())
    window, expected, gray, _, _ = ([np.asarray(x) for x in output] for output in pipe.run())
    pipe.close()
    for x, y, g in zip(window, expected, gray, strict=True):
        np.testing.assert_array_equal(x, y)
        assert g.shape == (*y.shape[:2], 1)


def test_the_first_frame_of_an_animation():
    file = io.BytesIO()
    frames = [Image.fromarray(np.full((20, 30, 3), v, np.uint8)) for v in (200, 100, 50)]
    frames[0].save(file, "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    ((pixels,),) = run_one(np.frombuffer(file.getvalue(), np.uint8))
    np.testing.assert_array_equal(pixels, np.asarray(frames[0]))


def run_one(data):
    with Pipeline(batch_size=1, num_threads=1, device_id=None) as pipe:
        pipe.set_outputs(fn.decoders.image(fn.external_source(lambda: [data])))
    try:
        return [[np.asarray(x) for x in output] for output in pipe.run()]
    finally:
        pipe.close()


@pytest.mark.skipif(not NATIVE, reason="built without libwebp")
@pytest.mark.parametrize("options", [{"quality": 80}, {"lossless": True}])
def test_damaged_files(options):
    rng = np.random.default_rng(0)
    data = encoded(drawn(rng, 3), **options)
    with pytest.raises(SampleError, match="truncated"):
        run_one(data[: len(data) * 2 // 3])
    num_refused = 0
    for _ in range(200):
        x = data.copy()
        x[rng.integers(12, len(x), 3)] = rng.integers(0, 256, 3)
        try:
            run_one(x)
        except SampleError:
            num_refused += 1
    assert num_refused  # most damage gives other pixels
