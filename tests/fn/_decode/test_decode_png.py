"""PNG of all kinds against the pixels that the files were made of."""

import io
import struct
import zlib

import numpy as np
import png_encoder
import pytest
from images import decode, pillow
from PIL import Image
from png_encoder import GRAY, KINDS, PALETTE, RGB, chunk, encode_png

from jaxdali import SampleError, _cpu, fn, types
from jaxdali._cpu import Info
from jaxdali.fn._decode import pillow as fallback

pytestmark = pytest.mark.same_with_any_jax

SIZES = [(1, 1), (1, 9), (7, 1), (3, 2), (5, 8), (8, 5), (33, 70), (19, 131)]


def image(color, bits, size, seed, **options):
    """Returns a file, and the values to which it is decoded."""
    rng = np.random.default_rng([seed, color, bits, *size])
    y, x = np.mgrid[: size[0], : size[1]]
    channels = png_encoder.SAMPLES[color]
    waves = np.sin(y[..., None] / 5 + x[..., None] / (7 + np.arange(channels)) + seed) / 2 + 0.5
    samples = np.where(rng.random((*size, 1)) < 0.3, rng.random((*size, channels)), waves)
    samples = (samples * ((1 << bits) - 1) + 0.5).astype(int)
    palette = rng.integers(0, 256, (1 << bits, 3)) if color == PALETTE else None
    file = encode_png(samples, color, bits, palette=palette, rng=rng, **options)
    if palette is not None:
        return file, palette[samples[..., 0]].astype(np.uint8)
    return file, (samples * 255 // ((1 << bits) - 1)).astype(np.uint8) if bits <= 8 else samples.astype(np.uint16)


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(("color", "bits"), KINDS)
def test_all_kinds(color, bits, interlaced):
    filters = [(f,) for f in range(5)] + [(0, 1, 2, 3, 4), (3, 4)]
    cases = [
        image(color, bits, size, seed, interlaced=interlaced, filters=f, pieces=1 + seed % 3)
        for seed, f in enumerate(filters)
        for size in SIZES
    ]
    decoded = decode(
        [f for f, _ in cases], output_type=types.ANY_DATA, dtype=types.UINT16 if bits == 16 else types.UINT8
    )
    for pixels, (_, expected) in zip(decoded, cases, strict=True):
        np.testing.assert_array_equal(pixels, expected)


def test_equals_pillow():
    files = [
        image(color, bits, size, 3, interlaced=interlaced, pieces=4)[0]
        for color, bits in KINDS
        if bits < 16
        for interlaced in (False, True)
        for size in SIZES
    ]
    for mode, output_type in (("RGB", types.RGB), ("L", types.GRAY)):
        for pixels, file in zip(decode(files, output_type=output_type), files, strict=True):
            expected = pillow(file, mode)
            assert np.abs(pixels.astype(int) - expected).max() <= (
                mode == "L"
            )  # whose weights Pillow rounds in another way


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("filters", [(0,), (4,), (3,), (1, 2, 4)])
@pytest.mark.parametrize("window", [((0, 0), (5, 70)), ((20, 30), (13, 40)), ((12, 3), (20, 1))])
def test_windows(window, filters, interlaced):
    (top_row, left_column), (height, width) = window
    cases = [
        image(color, bits, (33, 70), 5, interlaced=interlaced, filters=filters) for color, bits in KINDS if bits < 16
    ]
    decoded = decode(
        [f for f, _ in cases],
        fn.decoders.image_slice,
        start=[top_row, left_column],
        shape=[height, width],
        axis_names="HW",
        output_type=types.RGB,
    )
    for pixels, (_, whole) in zip(decoded, cases, strict=True):
        expected = whole[top_row : top_row + height, left_column : left_column + width]
        np.testing.assert_array_equal(
            pixels, expected[..., :3] if expected.shape[2] >= 3 else np.repeat(expected[..., :1], 3, 2)
        )


def test_index_beyond_the_palette_is_black():
    samples = np.arange(16).reshape(4, 4, 1)
    palette = np.arange(30).reshape(10, 3) + 1
    (pixels,) = decode([encode_png(samples, PALETTE, 8, palette=palette)])
    np.testing.assert_array_equal(pixels, np.concatenate([palette, np.zeros((6, 3))]).reshape(4, 4, 3))


def test_transparent_palette_by_pillow():
    """Where libpng is left out, Pillow decodes. It warns that such a palette loses its transparency, and warnings are
    errors here.
    """
    colors = np.random.default_rng(0).integers(0, 256, (256, 3), np.uint8)
    indices = np.arange(256, dtype=np.uint8).reshape(16, 16)
    image = Image.fromarray(indices, "P")
    image.putpalette(colors.tobytes())
    file = io.BytesIO()
    image.save(file, "PNG", transparency=bytes(range(256)))
    info = np.zeros(len(Info), np.int32)
    columns = [Info.FORMAT, Info.HEIGHT, Info.WIDTH, Info.CHANNELS, Info.DEPTH, Info.ORIENTATION]
    info[columns] = _cpu.Format.PNG, 16, 16, 3, 8, 1
    encoded = np.frombuffer(file.getvalue(), np.uint8)
    np.testing.assert_array_equal(fallback.decode(encoded, info), colors[indices])


def test_other_chunks_are_left_out():
    other_chunks = [
        (b"gAMA", struct.pack(">I", 45455)),
        (b"tRNS", b"\0\1" * 3),
        (b"prVt", b"?" * 1000),
        (b"tEXt", b"\0"),
    ]
    file, expected = image(RGB, 8, (19, 23), 1, others=other_chunks)
    (pixels,) = decode([file])
    np.testing.assert_array_equal(pixels, expected)


def damaged():
    """For each damaged file: a description of the change, whether the file still decodes, and the file."""
    rng = np.random.default_rng(2)
    samples = rng.integers(0, 256, (40, 50, 3))
    good = encode_png(samples, RGB, 8, filters=(0,), pieces=2)
    head, end = png_encoder.SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", 50, 40, 8, RGB, 0, 0, 0)), chunk(b"IEND")
    rows = b"".join(b"\0" + row.tobytes() for row in samples.astype(np.uint8))
    packed = zlib.compress(rows)
    wrong_sum = packed[:-1] + bytes([packed[-1] ^ 1])
    bad_filter = zlib.compress(rows[: 151 * 20] + b"\7" + rows[151 * 20 + 1 :])
    small_window = zlib.compressobj(wbits=9)
    far = small_window.compress(rows) + small_window.flush()
    return samples, [
        ("no IEND", True, good[:-12]),
        ("cut off", False, good[: len(good) // 2]),
        ("a wrong CRC", False, good[:200] + bytes([good[200] ^ 1]) + good[201:]),
        ("a filter that there isn't", False, head + chunk(b"IDAT", bad_filter) + end),
        ("too few rows", False, head + chunk(b"IDAT", zlib.compress(rows[:-151])) + end),
        ("too many rows", True, head + chunk(b"IDAT", zlib.compress(rows + rows[:151])) + end),
        ("a wrong Adler sum", False, head + chunk(b"IDAT", wrong_sum) + end),
        ("bytes behind the stream", True, head + chunk(b"IDAT", packed + b"?") + end),
        ("a small window", True, head + chunk(b"IDAT", far) + end),
        ("empty chunks of image data", True, head + chunk(b"IDAT") + chunk(b"IDAT", packed) + chunk(b"IDAT") + end),
        (
            "a chunk between them",
            False,
            head + chunk(b"IDAT", packed[:999]) + chunk(b"tEXt", b"a\0b") + chunk(b"IDAT", packed[999:]) + end,
        ),
        ("an unknown critical chunk", False, head + chunk(b"CRIT") + chunk(b"IDAT", packed) + end),
        ("a gray file's palette", True, encode_png(samples[..., :1], GRAY, 8, palette=np.zeros((4, 3)))),
    ]


@pytest.mark.skipif(not _cpu.build_info()["png"], reason="built without libpng")
def test_damaged_files_equal_libpngs_result():
    samples, cases = damaged()
    for change, decodes, file in cases:
        try:
            (pixels,) = decode([file])
        except SampleError:
            assert not decodes, change
        else:
            assert decodes, change
            np.testing.assert_array_equal(
                pixels, np.repeat(samples[..., :1], 3, 2) if "gray" in change else samples, err_msg=change
            )
