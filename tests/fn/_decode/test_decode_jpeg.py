"""`jaxdali.decode_jpeg`: files to arrays, without a pipeline. The reference is Pillow, which has libjpeg-turbo of its
own.
"""

import io
import threading

import jpeg_encoder
import numpy as np
import pytest
from images import encode, picture
from jpeg_corpus import PHOTOS, SAMPLINGS
from PIL import Image

import jaxdali
from jaxdali import _cpu, fn, types

pytestmark = pytest.mark.same_with_any_jax

PHOTO = PHOTOS[0].read_bytes()


def by_pillow(data: bytes, mode: str = "RGB") -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert(mode) if mode == "RGB" else image)


def test_one_file():
    pixels = jaxdali.decode_jpeg(PHOTO)
    assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(pixels, by_pillow(PHOTO))


def test_many_files():
    files = [p.read_bytes() for p in PHOTOS[:5]]
    arrays = [np.frombuffer(f, np.uint8) for f in files[3:]]
    images = jaxdali.decode_jpeg([files[0], bytearray(files[1]), memoryview(files[2]), *arrays], num_threads=3)
    for pixels, file in zip(images, files, strict=True):
        np.testing.assert_array_equal(pixels, by_pillow(file))
    assert jaxdali.decode_jpeg([]) == []


@pytest.mark.parametrize("quality", [30, 75, 97])
@pytest.mark.parametrize("name", ["4:4:4", "4:2:2", "4:2:0", "4:4:0", "4:1:1", "4:1:0"])
def test_samplings(name: str, quality: int):
    data = jpeg_encoder.encode(picture(75, 101), SAMPLINGS[name], quality, restart=quality % 4)
    whole = jaxdali.decode_jpeg(data)
    np.testing.assert_array_equal(whole, by_pillow(data))
    np.testing.assert_array_equal(jaxdali.decode_jpeg(data, output_type=types.BGR), whole[..., ::-1])
    for y, x, h, w in ((0, 0, 1, 1), (74, 100, 1, 1), (13, 7, 20, 50), (31, 0, 33, 101), (0, 64, 75, 5)):
        np.testing.assert_array_equal(jaxdali.decode_jpeg(data, region=(y, x, h, w)), whole[y : y + h, x : x + w])


def test_kinds():
    data = encode(picture(40, 30), "JPEG", progressive=True)
    np.testing.assert_array_equal(jaxdali.decode_jpeg(data), by_pillow(data))
    gray = encode(picture(40, 30, 1), "JPEG")
    np.testing.assert_array_equal(jaxdali.decode_jpeg(gray, output_type=types.ANY_DATA)[..., 0], by_pillow(gray, "L"))
    np.testing.assert_array_equal(jaxdali.decode_jpeg(gray), by_pillow(gray))
    with Image.open(io.BytesIO(PHOTO)) as image:
        image.draft("L", None)
        np.testing.assert_array_equal(jaxdali.decode_jpeg(PHOTO, output_type=types.GRAY)[..., 0], np.asarray(image))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(orientation: int):
    data = jpeg_encoder.encode(picture(33, 20), markers=jpeg_encoder.exif(orientation))
    stored = jaxdali.decode_jpeg(data, adjust_orientation=False)
    np.testing.assert_array_equal(stored, by_pillow(data))
    upright = jaxdali.decode_jpeg(data)
    assert upright.shape[:2] == ((20, 33) if orientation >= 5 else (33, 20))
    np.testing.assert_array_equal(np.sort(upright, axis=None), np.sort(stored, axis=None))
    np.testing.assert_array_equal(
        jaxdali.decode_jpeg([data, data], region=[(3, 5, 9, 7), (0, 1, 2, 3)])[0], upright[3:12, 5:12]
    )


def test_truncated():
    whole = encode(picture(60, 80), "JPEG", quality=90)
    cut = whole[: len(whole) // 2]
    with pytest.raises(
        ValueError, match=r'file 1: the image data end early .*; truncated="accept" decodes what there is$'
    ):
        jaxdali.decode_jpeg([whole, cut])
    with pytest.raises(ValueError, match="truncated must be 'error' or 'accept', got 'yes'"):
        jaxdali.decode_jpeg(cut, truncated="yes")  # pyright: ignore[reportArgumentType, reportCallIssue]
    complete, part = jaxdali.decode_jpeg([whole, cut], truncated="accept")
    np.testing.assert_array_equal(complete[:15], part[:15])
    assert (part[50:] == 128).all()


def test_threads_at_once():
    expected = by_pillow(PHOTO)
    failed_threads: list[int] = []

    def work(i: int):
        for _ in range(5):
            if not np.array_equal(jaxdali.decode_jpeg(PHOTO), expected):
                failed_threads.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed_threads


def test_errors():
    with pytest.raises(ValueError, match=r"file 1: .*truncated"):
        jaxdali.decode_jpeg([PHOTO, PHOTO[: len(PHOTO) // 2]])
    with pytest.raises(ValueError, match="empty"):
        jaxdali.decode_jpeg(b"")
    with pytest.raises(ValueError, match="another format"):
        jaxdali.decode_jpeg(encode(picture(8, 8), "PNG"))
    with pytest.raises(ValueError, match="not an image"):
        jaxdali.decode_jpeg(b"no image at all")
    with pytest.raises(ValueError, match="outside the image"):
        jaxdali.decode_jpeg(PHOTO, region=(0, 0, 1, 10**6))
    with pytest.raises(ValueError, match="empty or outside"):
        jaxdali.decode_jpeg(PHOTO, region=(0, 0, 0, 1))
    with pytest.raises(ValueError, match="region must be"):
        jaxdali.decode_jpeg([PHOTO], region=[(0, 0, 1, 1)] * 2)
    with pytest.raises(ValueError, match="region must be"):
        jaxdali.decode_jpeg(PHOTO, region=(0.5, 0, 1, 1))  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(ValueError, match="num_threads"):
        jaxdali.decode_jpeg(PHOTO, num_threads=0)
    with pytest.raises(ValueError, match="output_type"):
        jaxdali.decode_jpeg(PHOTO, output_type=99)  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(TypeError, match="str"):
        jaxdali.decode_jpeg("photo.jpg")  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(TypeError, match="got 2-D uint8 array"):
        jaxdali.decode_jpeg(np.zeros((2, 2), np.uint8))


def large(channels: int = 3, **options: object) -> bytes:
    """A file that is worth several threads."""
    grain = np.random.default_rng(1).integers(-20, 21, (1203, 1001, channels))
    return encode(
        np.clip(picture(1203, 1001, channels) + grain, 0, 255).astype(np.uint8), "JPEG", quality=95, **options
    )


@pytest.mark.parametrize(
    "options",
    [
        {"subsampling": 2},
        {"subsampling": 1, "optimize": True},
        {"subsampling": 0},
        {"channels": 1},
        {"subsampling": 2, "restart_marker_rows": 1},
        {"subsampling": 1, "restart_marker_blocks": 7},
        {"subsampling": 2, "restart_marker_rows": 70},
        {"progressive": True},  # by one thread
    ],
)
def test_threads_on_one_file(options: dict):
    data = large(**options)
    assert len(data) > 3 * _cpu.BYTES_PER_THREAD
    expected = by_pillow(data)
    for threads in (2, 5):
        np.testing.assert_array_equal(jaxdali.decode_jpeg(data, num_threads=threads), expected)
    np.testing.assert_array_equal(
        jaxdali.decode_jpeg(data, num_threads=4, region=(401, 100, 799, 700)), expected[401:1200, 100:800]
    )


def test_threads_on_a_damaged_file():
    data = bytearray(large())
    for offset in (len(data) // 3, len(data) * 3 // 4):
        data[offset : offset + 3] = b"\x55\xaa\x12"
        np.testing.assert_array_equal(jaxdali.decode_jpeg(data, num_threads=4), jaxdali.decode_jpeg(data))
    with pytest.raises(ValueError, match="truncated"):
        jaxdali.decode_jpeg(data[: len(data) // 2], num_threads=4)


@pytest.mark.parametrize("dct_scaling", [False, True])
def test_threads_of_a_pipeline(dct_scaling: bool):
    files = [np.frombuffer(large(subsampling=s), np.uint8) for s in (0, 2)]

    def run(num_threads: int, **options: object) -> list[np.ndarray]:
        @jaxdali.pipeline_def(batch_size=2, num_threads=num_threads, seed=1, exec_pipelined=False, **options)
        def define():
            encoded = fn.external_source(lambda: files)
            images = fn.decoders.image(encoded, dct_scaling=dct_scaling)
            return fn.resize(images, size=(120, 90)), fn.rotate(fn.decoders.image(encoded), angle=7)

        pipe = define()
        outputs = [np.asarray(image) for output in pipe.run() for image in output]
        pipe.close()
        return outputs

    for one, several in zip(run(1), run(6), strict=True):
        np.testing.assert_array_equal(one, several)
