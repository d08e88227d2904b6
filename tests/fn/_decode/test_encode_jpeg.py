"""`jaxdali.encode_jpeg`: arrays to files, without a pipeline. The reference is Pillow, which has libjpeg-turbo of its
own.
"""

import io
import threading

import counts
import jax.numpy as jnp
import jpeg_encoder
import numpy as np
import pytest
from images import encode, picture
from PIL import Image

import jaxdali
import jaxdali.dynamic as jd
from jaxdali import types

pytestmark = pytest.mark.same_with_any_jax

BY_PILLOW = {"444": 0, "422": 1, "420": 2}


def decoded(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image)


@pytest.mark.parametrize("quality", [1, 50, 80, 95, 100])
@pytest.mark.parametrize("subsampling", BY_PILLOW)
def test_bytes_equal_pillows(subsampling: str, quality: int):
    for size in ((1, 1), (7, 3), (16, 16), (75, 101)):
        data = jaxdali.encode_jpeg(picture(*size), quality=quality, subsampling=subsampling)
        assert data == encode(picture(*size), "JPEG", quality=quality, subsampling=BY_PILLOW[subsampling]), size


def test_defaults():
    assert jaxdali.encode_jpeg(picture(33, 40)) == encode(picture(33, 40), "JPEG", quality=95, subsampling=2)


@pytest.mark.parametrize(("subsampling", "factors"), [("440", (1, 2)), ("411", (4, 1))])
def test_subsamplings_beyond_pillow(subsampling: str, factors: tuple[int, int]):
    pixels = picture(50, 70)
    data = jaxdali.encode_jpeg(pixels, subsampling=subsampling)
    with Image.open(io.BytesIO(data)) as image:
        assert [layer[1:3] for layer in image.layer] == [factors, (1, 1), (1, 1)]
    defined = jpeg_encoder.encode(pixels, (factors, (1, 1), (1, 1)), 95)
    assert np.abs(decoded(data).astype(int) - decoded(defined)).mean() < 2


def test_gray():
    gray = picture(40, 31, 1)
    expected = encode(gray, "JPEG", quality=95)
    for form in (gray, gray[..., 0], jd.batch([gray[..., 0]])[0]):
        assert jaxdali.encode_jpeg(form) == expected
        assert jaxdali.encode_jpeg(form, input_type=types.GRAY, subsampling="444") == expected


def test_there_and_back():
    """An image that `decode_jpeg` decodes as some type can be encoded as this type."""
    file = encode(picture(64, 80), "JPEG", quality=95)
    for output_type in (types.RGB, types.BGR, types.GRAY, types.ANY_DATA):
        pixels = jaxdali.decode_jpeg(file, output_type=output_type)
        encoded = jaxdali.encode_jpeg(pixels, quality=100, subsampling="444", input_type=output_type)
        assert np.abs(jaxdali.decode_jpeg(encoded, output_type=output_type).astype(int) - pixels).max() <= 4
    assert jaxdali.encode_jpeg(picture(9, 9)[..., ::-1], input_type=types.BGR) == jaxdali.encode_jpeg(picture(9, 9))


def test_values_of_all_kinds():
    pixels = np.stack([picture(20, 30, seed=i) for i in range(3)])
    expected = [encode(x, "JPEG", quality=90, subsampling=2) for x in pixels]
    planes = np.moveaxis(pixels, -1, 1)
    forms = [
        pixels,
        list(pixels),
        tuple(jnp.asarray(pixels)),
        jnp.asarray(pixels),
        jd.batch(pixels),
        jd.batch(list(pixels), layout="HWC"),
    ]
    forms += [jd.batch(planes, layout="CHW"), pixels[:, ::-1][:, ::-1], [Image.fromarray(x) for x in pixels]]
    for form in forms:
        assert jaxdali.encode_jpeg(form, quality=90, num_threads=2) == expected
    for one in (
        jd.tensor(pixels[1]),
        jd.tensor(planes[1], layout="CHW"),
        jnp.asarray(pixels[1]),
        Image.fromarray(pixels[1]),
    ):
        assert jaxdali.encode_jpeg(one, quality=90) == expected[1]
    assert jaxdali.encode_jpeg([]) == []
    assert jaxdali.encode_jpeg(jd.batch(pixels[..., 0], layout="HW")) == [
        encode(x[..., :1], "JPEG", quality=95) for x in pixels
    ]


def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    pixels = picture(20, 30)
    assert jaxdali.encode_jpeg([torch.from_numpy(pixels)] * 2) == [jaxdali.encode_jpeg(pixels)] * 2
    assert jaxdali.encode_jpeg(torch.from_numpy(pixels)) == jaxdali.encode_jpeg(pixels)


def test_images_of_many_sizes_in_threads():
    rng = np.random.default_rng(0)
    images = [picture(*rng.integers(1, 120, 2).tolist(), seed=i) for i in range(40)]
    expected = [encode(x, "JPEG", quality=95, subsampling=2) for x in images]
    failed_threads: list[int] = []

    def work(i: int):
        if jaxdali.encode_jpeg(images, num_threads=i % 3 + 1) != expected:
            failed_threads.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed_threads


def test_a_file_larger_than_its_pixels():
    noise = np.random.default_rng(0).integers(0, 256, (200, 300, 3), np.uint8)
    assert jaxdali.encode_jpeg(noise, quality=100, subsampling="444") == encode(
        noise, "JPEG", quality=100, subsampling=0
    )
    # Larger than the buffer that is allocated first.
    assert len(jaxdali.encode_jpeg(noise, quality=100, subsampling="444")) > noise.size


def test_the_largest_sizes():
    long = np.zeros((1, 65_500, 1), np.uint8)
    assert decoded(jaxdali.encode_jpeg(long)).shape == (1, 65_500)
    for x in (np.zeros((1, 65_501, 3), np.uint8), np.zeros((65_501, 1, 3), np.uint8)):
        with pytest.raises(ValueError, match=r"image 1 must have 1 to 65500 rows and columns, got \d+ x \d+"):
            jaxdali.encode_jpeg([long, x])


def test_nothing_is_kept():
    pixels = picture(300, 300)
    jaxdali.encode_jpeg([pixels] * 4)
    with counts.allocations() as memory:
        for _ in range(20):
            jaxdali.encode_jpeg([pixels] * 4)
    assert memory.kept < 200_000


def test_errors_name_argument_and_image():
    good = picture(8, 8)
    for wrong, message in (
        (good.astype(np.float32), r"image 1 must be uint8, got float32"),
        (good[..., :2], r"image 1 must be \[height, width\] or \[height, width, 1 or 3\], got \[8, 8, 2\]"),
        (np.zeros((2, 8, 8, 3), np.uint8), r"image 1 must be .*got \[2, 8, 8, 3\]"),
        (np.zeros(5, np.uint8), r"image 1 must be .*got \[5\]"),
        (np.zeros((0, 8, 3), np.uint8), r"image 1 must have 1 to 65500 rows and columns, got 0 x 8"),
        (b"bytes", r"image 1 must be a uint8 array of pixels, got bytes"),
        (None, r"image 1 must be uint8, got NoneType"),
        ([[1, 2], [3]], r"image 1 must be a uint8 array of pixels, got list"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"encode_jpeg: {message}"):
            jaxdali.encode_jpeg([good, wrong])
    with pytest.raises(TypeError, match="encode_jpeg: images must be uint8, got int64"):
        jaxdali.encode_jpeg(good.astype(np.int64))
    with pytest.raises(ValueError, match=r"image 0 must be \[height, width\] or \[height, width, 1\], got \[8, 8, 3\]"):
        jaxdali.encode_jpeg([good], input_type=types.GRAY)
    with pytest.raises(ValueError, match="image 0 must have the layout HWC, CHW or HW, got 'FHW'"):
        jaxdali.encode_jpeg(jd.batch(good[None], layout="FHW"))
    for arguments, message in (
        ({"quality": 0}, "quality must be 1 to 100, got 0"),
        ({"quality": 101}, "quality must be 1 to 100, got 101"),
        ({"subsampling": "4:2:0"}, "subsampling must be one of '444', '422', '420', '440', '411', got '4:2:0'"),
        ({"subsampling": 2}, "subsampling must be one of .*, got 2"),
        (
            {"input_type": types.YCbCr},
            r"input_type must be one of types\.RGB, types\.BGR, types\.GRAY, types\.ANY_DATA",
        ),
        ({"num_threads": 0}, "num_threads must be 1 or more, got 0"),
    ):
        with pytest.raises(ValueError, match=f"encode_jpeg: {message}"):
            jaxdali.encode_jpeg(good, **arguments)
    with pytest.raises(TypeError):
        jaxdali.encode_jpeg(good, quality=9.5)  # pyright: ignore[reportArgumentType, reportCallIssue]
