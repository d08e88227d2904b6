"""TIFF files of any number of samples, which are written here, or by tifffile if it is installed.

DALI 2.4 on the CPU gives the same values for those whose samples are contiguous, up to rounding.
"""

import io
import re
import resource
import struct
import zlib

import numpy as np
import pytest
from images import decode, decode_pipeline

import jaxdali
from jaxdali import fn, types
from jaxdali.fn._decode import pillow as _pillow

pytest.importorskip("imagecodecs")

HEIGHT, WIDTH = 21, 30
TYPES = {"uint8": types.UINT8, "uint16": types.UINT16, "float32": types.FLOAT}
SAMPLE_FORMATS = {"u": 1, "i": 2, "f": 3}
WEIGHTS = [0.299, 0.587, 0.114]


def bands(count, dtype="uint16"):
    rng = np.random.default_rng(count)
    if np.dtype(dtype).kind == "f":
        return rng.normal(0.5, 0.4, (HEIGHT, WIDTH, count)).astype(dtype)
    return rng.integers(0, 1 << 8 * np.dtype(dtype).itemsize, (HEIGHT, WIDTH, count)).astype(dtype)


def tiff(pixels, planar=False, order="<", tags=()):
    """A file of one strip, or of one for each plane, compressed by deflate.

    Args:
      pixels: ``[H, W, C]``.
      planar: whether each sample has a plane.
      order: of the bytes.
      tags: a dict of further tags, or of others in place of those written here: number to values of 16 bits.
    """
    height, width, count = pixels.shape
    stored = pixels.astype(pixels.dtype.newbyteorder(order))
    strips = [zlib.compress(x.tobytes()) for x in (np.moveaxis(stored, -1, 0) if planar else [stored])]
    shorts = {256: [width], 257: [height], 258: [8 * pixels.itemsize] * count, 259: [8], 262: [1], 277: [count]}
    shorts |= {278: [height], 284: [1 + planar], 339: [SAMPLE_FORMATS[pixels.dtype.kind]] * count} | dict(tags)
    longs = {273: np.cumsum([8, *map(len, strips)])[:-1].tolist(), 279: [len(x) for x in strips]}
    # Values that do not fit into an entry stand before the directory.
    body, directory = b"".join(strips), b""
    for tag, numbers in sorted((shorts | longs).items()):
        code, letter = (4, "I") if tag in longs else (3, "H")
        packed = struct.pack(f"{order}{len(numbers)}{letter}", *numbers).ljust(4, b"\0")
        if len(packed) > 4:
            packed, body = struct.pack(f"{order}I", 8 + len(body)), body + packed
        directory += struct.pack(f"{order}HHI", tag, code, len(numbers)) + packed
    header = struct.pack(f"{order}2sHI", b"II" if order == "<" else b"MM", 42, 8 + len(body))
    return b"".join((header, body, struct.pack(f"{order}H", len(shorts | longs)), directory, bytes(4)))


def with_entries(file, before=(), behind=(), as_page=False):
    """A little-endian file with further entries, (tag, type, value), before and behind those of its directory.

    as_page: whether the file's own directory stays the first, and that with the entries becomes a second one.
    """
    (start,) = struct.unpack_from("<I", file, 4)
    end = start + 2 + 12 * struct.unpack_from("<H", file, start)[0]
    packed = [b"".join(struct.pack("<HHII", tag, kind, 1, x) for tag, kind, x in part) for part in (before, behind)]
    entries = packed[0] + file[start + 2 : end] + packed[1]
    place, body = end if as_page else 4, bytearray(file)  # of the offset of the new directory
    body[place : place + 4] = struct.pack("<I", len(file))
    return bytes(body) + struct.pack("<H", len(entries) // 12) + entries + bytes(4)


def same(actual, expected):
    for x, y in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(x, y)


def refusal(file, **arguments):
    with pytest.raises(jaxdali.SampleError) as e:
        decode([file], **arguments)
    return str(e.value)


@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_all_samples_are_channels(dtype, planar):
    images = [bands(count, dtype) for count in (1, 2, 3, 4, 5, 13)]
    files = [tiff(x, planar) for x in images]
    same(decode(files, output_type=types.ANY_DATA, dtype=TYPES[dtype]), images)
    same(decode(files, fn.peek_image_shape, image_type=types.ANY_DATA), [x.shape for x in images])
    # Of one or two samples the first is gray, of more the first three are RGB.
    rgb = [x[..., :3] if x.shape[2] > 2 else np.repeat(x[..., :1], 3, -1) for x in images]
    same(decode(files, dtype=TYPES[dtype]), rgb)
    same(decode(files, output_type=types.BGR, dtype=TYPES[dtype]), [x[..., ::-1] for x in rgb])
    rounding = 1e-6 if dtype == "float32" else 1
    for x, y in zip(decode(files, output_type=types.GRAY, dtype=TYPES[dtype]), rgb, strict=True):
        np.testing.assert_allclose(x[..., 0], y @ WEIGHTS, atol=rounding, rtol=0)


def test_photometric_interpretations_and_byte_orders():
    image, rgb = bands(13), bands(5, "uint8")
    # 262 is PhotometricInterpretation, 0 WhiteIsZero, 2 RGB; 338 is ExtraSamples.
    files = [tiff(image, order=">"), tiff(image, tags={262: [0]}), tiff(image, planar=True, tags={262: [0]})]
    same(decode(files, output_type=types.ANY_DATA, dtype=types.UINT16), [image, 65535 - image, 65535 - image])
    files = [tiff(rgb[..., :n], tags={262: [2], 338: [0] * (n - 3)}) for n in (4, 5)]  # neither extra sample is alpha
    files += [tiff(rgb[..., :2], tags={338: [extra]}) for extra in (0, 2)]
    same(decode(files, output_type=types.ANY_DATA), [rgb[..., :n] for n in (4, 5, 2, 2)])


@pytest.mark.parametrize("has_imagecodecs", [True, False])
def test_floats_where_white_is_zero(has_imagecodecs, monkeypatch):
    image = bands(1, "float32")
    image[0, :8, 0] = -5, 2, 3, 10, 1e30, np.nan, np.inf, -np.inf
    if not has_imagecodecs:
        monkeypatch.setattr(_pillow, "library", lambda name: None)
    inverse = decode([tiff(image, tags={262: [0]})], output_type=types.ANY_DATA, dtype=types.FLOAT)
    same(inverse, [1 - image])


def test_orientation_and_regions():
    image = bands(13)
    file = tiff(image, tags={274: [6]})
    turned = np.rot90(image, -1)
    arguments = {"output_type": types.ANY_DATA, "dtype": types.UINT16}
    same(decode([file], **arguments), [turned])
    same(decode([file], adjust_orientation=False, **arguments), [image])
    for x, y in ((file, turned), (tiff(image), image)):
        crop = decode([x], fn.decoders.image_crop, crop=(12, 9), crop_pos_x=1.0, crop_pos_y=0.0, **arguments)
        same(crop, [y[:12, -9:]])


def test_bands_in_a_chain():
    images = [bands(13), bands(13)[:, :18]]

    def normalized(encoded):
        image = fn.decoders.image(encoded, output_type=types.ANY_DATA, dtype=types.UINT16)
        return fn.crop_mirror_normalize(image, crop=(15, 16), mean=[100.0] * 13, std=[50.0] * 13)

    expected = [(x[3:18, c : c + 16].astype(np.float32) - 100) / 50 for x, c in zip(images, (7, 1), strict=True)]
    for x, y in zip(decode([tiff(x) for x in images], normalized), expected, strict=True):
        np.testing.assert_allclose(x, np.moveaxis(y, -1, 0), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_bands_in_the_cache(dtype):
    images = [bands(13, dtype), bands(2, dtype)]
    files = [tiff(x) for x in images]
    pipeline = decode_pipeline(files, output_type=types.ANY_DATA, dtype=TYPES[dtype], cache="10MB")
    for _ in range(2):  # the first run fills it
        same([np.array(x) for x in pipeline.run()[0].as_cpu()], images)


def test_floats_keep_their_values():
    image = bands(3, "float32")
    image[0, :4, 0] = np.nan, np.inf, -np.inf, 1e4
    file = tiff(image)
    arguments = {"output_type": types.ANY_DATA}
    same(decode([file], dtype=types.FLOAT, **arguments), [image])
    same(decode([file], dtype=types.FLOAT16, **arguments), [image.astype(np.float16)])
    same(decode([file], dtype=types.FLOAT64, **arguments), [image.astype(np.float64)])
    for dtype, name in ((types.UINT8, "uint8"), (types.INT16, "int16"), (types.UINT32, "uint32")):
        limits = np.iinfo(name)
        scaled = np.nan_to_num(image.astype(np.float64) * limits.max, nan=0, posinf=np.inf, neginf=-np.inf)
        expected = np.clip(np.sign(scaled) * np.floor(np.abs(scaled) + 0.5), limits.min, limits.max)
        same(decode([file], dtype=dtype, **arguments), [expected.astype(name)])
    ycbcr = decode([file], output_type=types.YCbCr, dtype=types.FLOAT)[0][1:]
    np.testing.assert_allclose(ycbcr[..., 0], 16 / 255 + image[1:] @ WEIGHTS * 219 / 255, atol=1e-6)


def test_tiles_predictors_and_compressions():
    tifffile = pytest.importorskip("tifffile")

    def written(pixels, **options):
        file = io.BytesIO()
        tifffile.imwrite(file, pixels, photometric="minisblack", planarconfig="contig", metadata=None, **options)
        return file.getvalue()

    image, floats = bands(13), bands(4, "float32")
    options = [{"tile": (16, 16), "compression": "zlib"}, {"predictor": 2, "compression": "zlib"}, {"bigtiff": True}]
    options += [{"tile": (16, 32), "compression": "lzw"}, {"compression": "zstd"}, {"rowsperstrip": 5}]
    files = [written(image, **x) for x in options]
    same(decode(files, output_type=types.ANY_DATA, dtype=types.UINT16), [image] * len(files))
    files = [written(floats, compression="zlib", predictor=x) for x in (None, 3)]
    same(decode(files, output_type=types.ANY_DATA, dtype=types.FLOAT), [floats] * 2)


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (tiff(bands(13, "int16")), "13 of 16 bits, signed, photometric interpretation 1"),
        (tiff(bands(1, "uint32")), "1 of 32 bits, unsigned, photometric interpretation 1"),
        (tiff(bands(2, "float64")), "2 of 64 bits, floating-point, photometric interpretation 1"),
        (tiff(bands(3, "uint8"), tags={258: [4] * 3}), "3 of 4 bits, unsigned, photometric interpretation 1"),
        (tiff(bands(7, "uint8"), tags={262: [5]}), "7 of 8 bits, unsigned, photometric interpretation 5"),
    ],
)
def test_other_samples_are_refused(file, reason, capfd, caplog):
    text = refusal(file, output_type=types.ANY_DATA)
    assert f"TIFF: the samples of a pixel ({reason}) are not supported; a decoder for them can be registered" in text
    assert not caplog.records  # Pillow's
    assert not capfd.readouterr().err


def with_type(file, tag, code):
    """A little-endian file in which the entry of a tag has another type."""
    entry = struct.pack("<HH", tag, 3)
    assert file.count(entry) == 1
    return file.replace(entry, struct.pack("<HH", tag, code))


FIVE, FLOATS, BYTE = bands(5, "uint8"), bands(5, "float32"), 1  # the number of the type


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (with_entries(tiff(FIVE), [(277, 3, 1)]), "the tag 277 is there twice"),  # 1, then 5
        (with_entries(tiff(FIVE), behind=[(277, 3, 1)]), "the tag 277 is there twice"),
        (with_entries(tiff(FLOATS), [(258, 3, 8)]), "the tag 258 is there twice"),
        (with_entries(tiff(FLOATS), behind=[(258, 3, 8)]), "the tag 258 is there twice"),
        (with_entries(tiff(FIVE), [(339, 3, 3)]), "the tag 339 is there twice"),
        (with_entries(tiff(FIVE), [(262, 11, 0)]), "the tag 262 is there twice"),  # the first is a float
        # The header parser knows no tags of this type, libtiff does.
        (
            with_type(tiff(FIVE), 277, BYTE),
            "(5 of 8 bits, unsigned, photometric interpretation 1) have tags of unusual",
        ),
        (with_type(tiff(bands(1)), 258, BYTE), "(1 of 16 bits, unsigned, photometric interpretation 1) have tags of"),
        (with_type(tiff(FIVE, tags={262: [6]}), 262, BYTE), "(5 of 8 bits, unsigned, photometric interpretation 6)"),
    ],
)
def test_contradictions_are_damage(file, reason):
    text = refusal(file, output_type=types.ANY_DATA)
    assert "TIFF: the image data are damaged: the " in text
    assert reason in text
    assert "Error" not in text
    with pytest.raises(jaxdali.SampleError, match=re.escape(reason)):
        decode([file], fn.peek_image_shape)


def test_contradictions_of_a_page():
    file = with_entries(tiff(FIVE), [(277, 3, 1)], as_page=True)
    same(decode([file], output_type=types.ANY_DATA), [FIVE])
    assert "damaged: the tag 277 is there twice" in refusal(file, output_type=types.ANY_DATA, page=1)


def test_equal_entries():
    repeated = [(277, 3, 5), (277, 4, 5), (262, BYTE, 1)]  # also of another type
    files = [with_entries(tiff(FIVE), repeated, repeated), with_type(tiff(FIVE), 262, BYTE)]
    files += [with_entries(tiff(FIVE), [(305, 3, 1)], [(305, 3, 2)])]  # not of the samples
    same(decode(files, output_type=types.ANY_DATA), [FIVE] * 3)


def test_samples_unknown_to_pillow():
    text = refusal(tiff(bands(2, "uint8"), tags={262: [8]}))  # CIELab
    assert "samples of a pixel (2 of 8 bits, unsigned, photometric interpretation 8) are not supported, or the" in text


@pytest.mark.parametrize(
    ("dtype", "count", "factor"),
    [
        *(("uint8", count, 1) for count in (1, 2, 3, 4)),
        ("uint8", 5, 2),
        ("uint8", 13, 4),
        ("uint16", 4, 1),
        ("uint16", 13, 4),
        ("float32", 1, 1),
        ("float32", 4, 4),
    ],
)
def test_pixels_by_samples(dtype, count, factor):
    image, limit = bands(count, dtype), factor * HEIGHT * WIDTH
    arguments = {"output_type": types.ANY_DATA, "dtype": TYPES[dtype]}
    same(decode([tiff(image)], max_pixels=limit, **arguments), [image])
    assert "TIFF: the image is too large: " in (text := refusal(tiff(image), max_pixels=limit - 1, **arguments))
    assert f"{WIDTH} x {HEIGHT} pixels{f' of {count} samples' * (count > 4)}, max_pixels is {limit - 1}" in text


def test_limits():
    image = bands(13)
    # Files that promise what they do not hold: 8 GB of samples, and as many slices (ImageDepth, TileDepth).
    half_of_tile = refusal(tiff(image, tags={322: [16], 278: [65535]}), max_pixels=1 << 20)
    assert "its tiles have 16 x 65535 pixels of 13 samples, max_pixels is" in half_of_tile
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "the image is too large: 30000 x 30000" in refusal(tiff(image, tags={256: [30000], 257: [30000]}))
    size = {256: [13300], 257: [13300], 278: [13300]}  # 177 million pixels, below the default of max_pixels
    floats = refusal(tiff(bands(4, "float32"), tags=size), output_type=types.ANY_DATA)
    assert "the image of floats has 13300 x 13300 pixels, max_pixels is 178956970" in floats
    for tag in (32997, 32998):
        assert "a TIFF of 60000 slices is a volume" in refusal(tiff(image, tags={tag: [60000]}))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 200_000  # kB
    with pytest.raises(jaxdali.SampleError, match="TIFF: the image data are damaged"):
        decode([tiff(image, tags={278: [HEIGHT // 2]})])  # strips are missing


def test_without_imagecodecs(monkeypatch):
    monkeypatch.setattr(_pillow, "library", lambda name: None)
    gray = bands(1, "float32")
    same(decode([tiff(gray)], output_type=types.GRAY, dtype=types.FLOAT), [gray])
    for image, name in ((bands(5, "uint8"), "TIFF of 5 samples"), (bands(13), "TIFF of more than 8 bits")):
        assert f"{name}" in (text := refusal(tiff(image)))
        assert "needs the package imagecodecs: pip install jaxdali[formats]" in text
