"""decoders.image against Pillow (the same libjpeg arithmetic: equal pixels), NumPy definitions, and damaged files."""

import io
import re
import struct

import golden
import numpy as np
import pytest
from images import decode, decode_pipeline, encode, picture, pillow, png
from jpeg_encoder import exif
from PIL import Image, ImageFile, ImageOps
from png_encoder import chunk

import jaxdali
from jaxdali import _cpu, fn, types
from jaxdali._cpu import Info, Status
from jaxdali.fn._decode import pillow as _pillow
from jaxdali.fn._decode.foreign import path_advice

FILES = {p.name: p.read_bytes() for p in golden.IMAGES}
GOOD_JPEGS = [
    b
    for n, b in FILES.items()
    if n.endswith(".jpg") and not n.startswith("bad") and "cmyk" not in n and n != "ycck.jpg"
]


def jpegs():
    options = [
        {"subsampling": s, "quality": q, "progressive": p} for s in (0, 1, 2) for q in (20, 95) for p in (False, True)
    ]
    files = [encode(picture(*size), "JPEG", **o) for size in ((33, 47), (16, 16), (1, 9), (75, 2)) for o in options]
    files += [encode(picture(50, 61), "JPEG", restart_marker_blocks=n, subsampling=s) for n in (1, 5) for s in (0, 2)]
    return [*files, encode(picture(21, 30, 1), "JPEG"), *GOOD_JPEGS]


def same(actual, expected):
    assert [x.shape for x in actual] == [x.shape for x in expected]
    assert all((x == y).all() for x, y in zip(actual, expected, strict=True))


def test_jpeg_equals_pillow():
    files = jpegs()
    same(decode(files), [pillow(f) for f in files])
    same(decode(files, output_type=types.BGR), [pillow(f)[..., ::-1] for f in files])


def test_gray_of_jpeg_is_its_luma():
    files = [
        f
        for f in jpegs()
        if Image.open(io.BytesIO(f)).mode == "L" or f not in (FILES["rgbjpeg.jpg"], FILES["odd_pil_sample_rgb.jpg"])
    ]
    expected = []
    for f in files:
        image = Image.open(io.BytesIO(f))
        image.draft("L", image.size)
        orientation = image.getexif().get(0x112, 1)
        exif = Image.Exif()
        exif[0x112] = orientation
        luma = encode(np.asarray(image), "PNG", exif=exif)
        expected.append(pillow(luma, "L"))
    same(decode(files, output_type=types.GRAY), expected)


@pytest.mark.parametrize("dtype", [types.UINT8, types.FLOAT])
def test_orientations(dtype):
    pixels = picture(37, 21)
    files = [encode(pixels, kind, orientation=o) for kind in ("JPEG", "PNG", "TIFF", "WEBP") for o in range(1, 9)]
    scale = 1 if dtype == types.UINT8 else np.float32(255)
    same(decode(files, dtype=dtype), [pillow(f) / scale if scale != 1 else pillow(f) for f in files])
    assert {x.shape for x in decode(files, dtype=dtype)} == {(37, 21, 3), (21, 37, 3)}
    stored = decode(files, dtype=dtype, adjust_orientation=False)
    same(stored, [x for x in stored[::8] for _ in range(8)])


def test_the_first_valid_orientation_of_several():
    plain, xmp = exif(0).replace(b"\x12\x01", b"\x1a\x01"), b"\xff\xe1\0\x20http://ns.adobe.com/xap/1.0/\0 "
    orders = [
        (exif(6),),
        (xmp, exif(6)),
        (plain, exif(6)),
        (exif(9), xmp, plain, exif(6), exif(3)),
        (exif(6), exif(1)),
        (exif(1), exif(6)),
    ]
    bare, options = picture(20, 31), {"quality": 90, "subsampling": 0}
    jpeg = encode(bare, "JPEG", **options)
    expected = [pillow(encode(bare, "JPEG", orientation=o, **options)) for o in (6, 6, 6, 6, 6, 1)]
    same(decode([jpeg[:2] + b"".join(segments) + jpeg[2:] for segments in orders]), expected)
    bodies = [[segment[10:] for segment in segments if segment is not xmp] for segments in orders]
    turned = [pillow(encode(bare, "PNG", orientation=o)) for o in (6, 6, 6, 6, 6, 1)]
    whole = encode(bare, "PNG")
    same(
        decode([whole[:33] + b"".join(chunk(b"eXIf", body) for body in several) + whole[33:] for several in bodies]),
        turned,
    )
    webp = encode(bare, "WEBP", lossless=True, orientation=1)
    exif_at = webp.index(b"EXIF")
    several = [
        webp[:exif_at] + b"".join(b"EXIF" + struct.pack("<I", len(body)) + body for body in group) for group in bodies
    ]
    same(decode([file[:4] + struct.pack("<I", len(file) - 8) + file[8:] for file in several]), turned)


def test_cmyk():
    files = [
        encode(picture(40, 30), "JPEG", mode="CMYK"),
        FILES["cmyk.jpg"],
        FILES["ycck.jpg"],
        FILES["odd_pil_sample_cmyk.jpg"],
    ]
    for kind in (types.RGB, types.ANY_DATA):
        for x, f in zip(decode(files, output_type=kind), files, strict=True):
            assert np.abs(x.astype(int) - pillow(f)).max() <= 1


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_png(interlaced, dtype):
    images = [picture(23, 37, c, dtype) for c in (1, 2, 3, 4)] + [
        picture(*size, 3, dtype) for size in ((1, 1), (2, 9), (40, 3))
    ]
    files = [png(x, interlaced) for x in images]
    element = types.UINT8 if dtype == np.uint8 else types.UINT16
    same(decode(files, output_type=types.ANY_DATA, dtype=element), images)
    rgb = [np.repeat(x[..., :1], 3, -1) if x.shape[2] < 3 else x[..., :3] for x in images]
    same(decode(files, dtype=element), rgb)
    same(decode(files, dtype=element, output_type=types.BGR), [x[..., ::-1] for x in rgb])
    gray = [np.floor(x @ [0.299, 0.587, 0.114] + 0.5) for x in rgb]
    for x, y in zip(decode(files, dtype=element, output_type=types.GRAY), gray, strict=True):
        assert np.abs(x[..., 0] - y).max() <= 1
    if dtype == np.uint16:
        same(decode(files), [np.floor(x / 65535 * 255 + 0.5).astype(np.uint8) for x in rgb])


def test_png_with_palette_and_transparency():
    rgb = Image.fromarray(picture(19, 26))
    files = []
    for image, transparency in (
        (rgb.quantize(200), 3),
        (rgb.quantize(4), 1),
        (rgb.convert("1"), None),
        (rgb, (1, 2, 3)),
        (rgb.convert("L"), 7),
    ):
        file = io.BytesIO()
        image.save(file, "PNG", **({} if transparency is None else {"transparency": transparency}))
        files.append(file.getvalue())
    without = [pillow(f, "RGBA")[..., :3] for f in files]
    same(decode(files), without)
    channels = [x.shape[2] for x in decode(files, output_type=types.ANY_DATA)]
    assert channels == [3, 3, 1, 3, 1]


def masks():
    """Files with palettes, and their indices ``[H, W, 1]``."""
    rng, files = np.random.default_rng(0), []
    for kind, colours, options in (
        ("PNG", 21, {}),
        ("PNG", 256, {"transparency": 255}),
        ("PNG", 2, {"bits": 1}),
        ("PNG", 4, {"bits": 2, "orientation": 6}),
        ("PNG", 16, {"bits": 4}),
        ("GIF", 30, {"interlace": 0}),
        ("GIF", 100, {"transparency": 3}),
        ("BMP", 200, {}),
        ("BMP", 2, {}),
        ("TIFF", 77, {"compression": "tiff_lzw"}),
        ("TIFF", 9, {"orientation": 8}),
    ):
        for palette in (
            rng.integers(0, 256, (colours, 3)),
            np.arange(colours)[:, None] * [1, 1, 1],
            np.full((colours, 3), 7),
        ):
            image = Image.fromarray(rng.integers(0, colours, (19, 33)).astype(np.uint8))
            image.putpalette(palette.astype(np.uint8).tobytes())
            save_options, file = dict(options), io.BytesIO()
            if "orientation" in save_options:
                save_options["exif"] = Image.Exif()
                save_options["exif"][0x112] = save_options.pop("orientation")
            image.save(file, kind, optimize=False, **save_options)
            files.append(file.getvalue())
    return files, [
        np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(f)))).astype(np.uint8)[..., None] for f in files
    ]


def test_palette_indices():
    files, expected = masks()
    same(decode(files, palette="index"), expected)
    same(decode(files, palette="index", output_type=types.ANY_DATA, adjust_orientation=True, cache="1MB"), expected)
    small = decode(
        files,
        lambda x, **more: fn.resize(fn.decoders.image(x, **more), size=(5, 6), interp_type=types.INTERP_NN),
        palette="index",
    )
    same(
        small,
        decode(
            [png(x) for x in expected],
            lambda x: fn.resize(fn.decoders.image(x, output_type=types.GRAY), size=(5, 6), interp_type=types.INTERP_NN),
        ),
    )
    window = {"start": (3, 5), "shape": (9, 11), "axis_names": "HW", "palette": "index"}
    same(decode(files, fn.decoders.image_slice, **window), [x[3:12, 5:16] for x in expected])


def test_no_palette():
    gif = encode(picture(5, 6, 1), "GIF")
    table = 3 << (gif[10] & 7) + 1
    bare = gif[:10] + bytes([gif[10] & 0x7F]) + gif[11:13] + gif[13 + table :]
    files, expected = masks()
    colours = [
        bare,
        *(encode(picture(5, 6, c), "PNG") for c in (1, 3, 4)),
        *(encode(picture(5, 6), k) for k in ("JPEG", "WEBP", "BMP", "TIFF")),
    ]
    for file in colours:
        with pytest.raises(
            jaxdali.SampleError, match=r'palette="index" needs a PNG, .*this image has no palette .*types\.GRAY'
        ):
            decode([files[0], file], palette="index")
    pipeline = decode_pipeline([*colours, files[0]], palette="index", on_error="replace")
    (result,) = pipeline.run()
    same([np.array(x) for x in result.as_cpu()], [expected[0]] * 9)
    assert sum(r.count for r in pipeline.bad_samples()) == 8
    (black, _) = decode([colours[0], files[0]], palette="index", on_error="replace", replace_shape=(2, 3, 1))
    assert black.shape == (2, 3, 1)


def test_palette_indices_of_pages():
    frames = [Image.fromarray(x) for x in np.random.default_rng(0).integers(0, 9, (2, 8, 7)).astype(np.uint8)]
    for frame in frames:
        frame.putpalette(np.random.default_rng(1).integers(0, 256, 27).astype(np.uint8).tobytes())
    files = []
    for kind in ("TIFF", "PNG", "GIF"):
        file = io.BytesIO()
        frames[0].save(file, kind, save_all=True, append_images=frames[1:])
        files.append(file.getvalue())
    expected = np.asarray(frames[1])[..., None]
    same(decode(files[:2], palette="index", page=1), [expected, expected])
    with pytest.raises(jaxdali.SampleError, match="picture 1 has no palette of its own"):
        decode(files[2:], palette="index", page=1)


@pytest.mark.parametrize("name", ["UINT8", "INT8", "UINT16", "INT16", "UINT32", "INT32", "FLOAT16", "FLOAT", "FLOAT64"])
def test_dtype_scales_to_full_range(name):
    element = np.dtype(types.to_numpy_type(getattr(types, name)))
    eight, sixteen = picture(60, 50), picture(60, 50, dtype=np.uint16)
    full_scale = 1.0 if element.kind == "f" else np.iinfo(element.name).max
    for image, pixels, maximum in zip(
        decode([png(eight), png(sixteen)], dtype=getattr(types, name)), (eight, sixteen), (255, 65535), strict=True
    ):
        expected = pixels / maximum * full_scale
        assert image.dtype == element
        if element.kind == "f":
            assert np.abs(image - expected).max() <= np.finfo(element).eps / 2
        else:
            assert (image == np.floor(expected + 0.5)).all()


def test_ycbcr_is_studio_range():
    pixels = picture(30, 20)
    matrix = np.array([[65.481, 128.553, 24.966], [-37.797, -74.203, 112.0], [112.0, -93.786, -18.214]]) / 255
    (image,) = decode([png(pixels)], output_type=types.YCbCr)
    assert (image == np.floor(pixels @ matrix.T + [16, 128, 128] + 0.5)).all()


def test_fast_idct():
    (accurate,), (fast,) = decode([FILES["ss444.jpg"]]), decode([FILES["ss444.jpg"]], use_fast_idct=True)
    difference = np.abs(accurate.astype(int) - fast)
    assert 0 < difference.max() <= 12
    assert difference.mean() < 1.5


def test_other_formats():
    """Cases that the golden files don't have."""
    pixels, deep = picture(24, 31), picture(24, 31, dtype=np.uint16)
    imagecodecs = pytest.importorskip("imagecodecs")
    ascii_ppm = b"P3 # a comment\n31 24\n255\n" + " ".join(map(str, pixels.ravel())).encode()
    maximum_1000 = b"P6\n31 24 1000\n" + (deep // 66).astype(">u2").tobytes()
    images = decode([encode(pixels, "BMP", mode="RGBA"), ascii_ppm, encode(pixels, "TIFF", mode="CMYK")])
    same(images[:2], [pixels] * 2)
    assert np.abs(images[2].astype(int) - pixels).max() <= 1
    tiff = imagecodecs.tiff_encode(deep[..., 0], photometric="miniswhite")
    planar = imagecodecs.tiff_encode(
        np.ascontiguousarray(np.moveaxis(deep, -1, 0)), photometric="rgb", planarconfig="separate"
    )
    jpeg2000 = imagecodecs.jpeg2k_encode(deep >> 4, reversible=True, level=0, bitspersample=12, codecformat="jp2")
    jpeg12 = imagecodecs.jpeg_encode((deep >> 4), bitspersample=12, level=99, subsampling="444")
    lossless = imagecodecs.ljpeg_encode(deep[..., 0], bitspersample=16)
    files = [maximum_1000, tiff, planar, jpeg2000, jpeg12, lossless]
    images = decode(files, output_type=types.ANY_DATA, dtype=types.UINT16)
    full_scale = 65535.0
    expected = [
        np.minimum(deep // 66, 1000) / 1000 * full_scale,
        full_scale - deep[..., :1],
        deep,
        (deep >> 4) / 4095 * full_scale,
        deep,
        deep[..., :1],
    ]
    for i, (x, y) in enumerate(zip(images, expected, strict=True)):
        assert x.shape == y.shape
        assert np.abs(x - y.astype(float)).max() <= (1500 if i == 4 else 0.5), i


def test_deep_files_without_imagecodecs(monkeypatch):
    monkeypatch.setattr(_pillow, "library", lambda name: None)
    deep = picture(9, 8, 1, np.uint16)
    pgm = b"P5\n8 9\n65535\n" + deep.astype(">u2").tobytes()
    same(decode([pgm, encode(deep, "TIFF")], output_type=types.GRAY, dtype=types.UINT16), [deep] * 2)
    for name in ("rgb16.tif", "odd_16bit.cropped.jp2"):
        with pytest.raises(jaxdali.SampleError, match=r"pip install jaxdali\[formats\]"):
            decode([FILES[name]])


def huge_png():
    small = png(picture(1, 1))
    return small[:16] + struct.pack(">II", 60000, 30000) + small[24:]


BAD = {
    "truncated": (FILES["bad_trunc.jpg"], "JPEG: the image data end early"),
    "truncated progressive": (FILES["prog420.jpg"][:-200], "end early"),
    "no end marker": (FILES["ss420.jpg"][:-2], "end early"),
    "truncated PNG": (FILES["rgb.png"][:-400], "PNG: the image data end early"),
    "truncated BMP": (FILES["rgb.bmp"][:-400], "BMP: the image data end early"),
    "junk": (FILES["bad_junk.jpg"], "known format"),
    "bytes before SOI": (b"\0" + FILES["ss420.jpg"], "known format"),
    "header only": (FILES["ss420.jpg"][:50], "end early"),
    "checksum": (FILES["rgb.png"][:1000] + b"\0" + FILES["rgb.png"][1001:], "PNG: the image data are damaged"),
    "more pixels than bytes can hold": (huge_png(), "PNG: the image is too large"),
    "empty": (b"", "empty"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_file_raises(name):
    data, reason = BAD[name]
    with pytest.raises(jaxdali.SampleError, match=reason) as e:
        decode([FILES["ss420.jpg"], data])
    assert e.value.operator == "decoders.image"


FOREIGN = {
    "an icon (ICO)": encode(picture(16, 16), "ICO"),
    "a DDS texture": encode(picture(4, 4), "DDS"),
    "a Targa image (TGA)": encode(picture(4, 4), "TGA"),
    "a PCX image": encode(picture(4, 4), "PCX"),
    "an SGI image": encode(picture(4, 4), "SGI"),
    "an icon (ICNS)": encode(picture(16, 16), "ICNS"),
    "a PostScript document": encode(picture(4, 4), "EPS"),
    # SOI, a comment, the frame, and the beginning of a scan
    "a JPEG-LS image": bytes.fromhex(
        "ffd8 fffe 0004 6162 fff7 000b 08 0004 0004 01 01 11 00 ffda 0008 01 01 00 00 00 00"
    ),
    "a DICOM file, for which a decoder can be registered": bytes(128) + b"DICM" + bytes(40),
    "a video or another file of the MP4 family": b"\0\0\0\x18ftypmp42\0\0\0\0isommp42" + bytes(40),
    "a Photoshop image (PSD)": b"8BPS\0\1" + bytes(40),
    "an HTML page, which servers send instead of a missing file": b"\n<!DOCTYPE html><html>not found</html>",
    "a NumPy array, which decoders.numpy takes": b"\x93NUMPY\1\0" + bytes(40),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_refused_formats_are_named(name):
    reason = f"this is {name}; supported: JPEG, PNG, WebP, GIF, BMP, TIFF, PNM, JPEG 2000, AVIF, JPEG XL, HEIC"
    with pytest.raises(jaxdali.SampleError, match=f"{re.escape(reason)}$"):
        decode([FOREIGN[name]])
    pipeline = decode_pipeline([FOREIGN[name], FILES["ss420.jpg"]], on_error="replace")
    pipeline.run()
    assert [r.reason for r in pipeline.bad_samples()] == [reason]


@pytest.mark.parametrize("decoder", [fn.decoders.image, lambda x: fn.decoders.audio(x)[0], fn.decoders.video])
def test_names_in_place_of_files(decoder):
    """The error shows the name, and an operator that reads the file."""
    text = "this is the text 'img/0.jpg', not the bytes of a file: fn.io.file.read(x) reads the file of that name"
    pipe = jaxdali.pipeline_def(lambda: decoder(fn.readers.source(["img/0.jpg"])), batch_size=1, device_id=None)()
    with pytest.raises(jaxdali.SampleError, match=re.escape(text)):
        pipe.run()


@pytest.mark.parametrize("text", ["1.50", "version 1.10", "a.5th"])
def test_numbers_are_no_names_of_files(text):
    assert not path_advice(text.encode())


def test_damaged_scan_decodes_as_in_pillow():
    damaged = bytearray(FILES["ss420.jpg"])
    damaged[4000:4010] = b"\x55" * 10
    same(decode([bytes(damaged)]), [pillow(bytes(damaged))])


def cut_files():
    """Cut JPEG files, baseline and progressive: at random bytes of their scans, and 1 to 3 bytes before their ends."""
    rng, files = np.random.default_rng(1), []
    for progressive in (False, True):
        for options in (
            {"subsampling": 0},
            {"subsampling": 2},
            {"subsampling": 1, "restart_marker_blocks": 3},
            {"mode": "L"},
        ):
            whole = encode(picture(70, 91), "JPEG", progressive=progressive, **options)
            first = whole.index(b"\xff\xda") + 20
            files += [whole[:n] for n in (*rng.integers(first, len(whole), 6), *range(len(whole) - 3, len(whole)))]
    return files


def as_libjpeg_shows(file, mode="RGB"):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
        return pillow(file, mode)


def test_truncated_files_are_accepted():
    files = cut_files()
    half = len(files) // 2
    images, shown = decode(files, truncated="accept"), list(map(as_libjpeg_shows, files))
    same(images[:half], shown[:half])
    shows = [k for k in range(half, len(files)) if shown[k].any()]  # Pillow shows black if a file ends between scans
    assert len(shows) > half * 0.7
    for k in shows:  # versions of libjpeg-turbo smooth incomplete scans in different ways
        assert np.abs(images[k].astype(int) - shown[k]).mean() < 1
    for k in range(half, len(files)):
        assert images[k].std() > 10
    same(images, [jaxdali.decode_jpeg(f, truncated="accept") for f in files])
    gray = decode(files, truncated="accept", output_type=types.GRAY)
    assert [x.shape[2] for x in gray] == [1] * len(files)
    window = {"start": (30, 20), "shape": (35, 60), "axis_names": "HW", "truncated": "accept"}
    same(decode(files, fn.decoders.image_slice, **window), [x[30:65, 20:80] for x in images])
    turned = [f[:2] + exif(6) + f[2:] for f in files]
    same(decode(turned, truncated="accept"), [np.rot90(x, 3) for x in images])


def test_truncated_headers_are_not_accepted():
    for whole in (encode(picture(30, 40), "JPEG", progressive=p) for p in (False, True)):
        scan = whole.index(b"\xff\xda")
        first = scan + 2 + whole[scan + 3]
        for n in (20, 100, scan, scan + 1, scan + 2, *range(scan + 3, first + 1)):
            with pytest.raises(
                jaxdali.SampleError, match=r"JPEG: the image data end early.*before its picture begins; on_error"
            ):
                decode([whole[:n]], truncated="accept")
        (image,) = decode([whole[: first + 1]], truncated="accept")
        assert image.shape == (30, 40, 3)


def test_advice_about_truncated_files(tmp_path):
    advice = {"JPEG": '; truncated="accept" decodes what there is; on_error="replace" replaces the sample'}
    for kind in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"):
        path = tmp_path / f"cut.{kind.lower()}"
        file = encode(picture(40, 50), kind)
        path.write_bytes(file[: len(file) - len(file) // 3])

        @jaxdali.pipeline_def(batch_size=1, num_threads=1, device_id=None)
        def pipeline(path=path, truncated="error"):
            return fn.decoders.image(fn.readers.file(files=[str(path)])[0], truncated=truncated)

        with pytest.raises(
            jaxdali.SampleError, match=re.escape(advice.get(kind, '; on_error="replace" replaces the sample')) + "$"
        ) as e:
            pipeline().run()
        assert e.value.source == str(path)
        if kind != "JPEG":
            with pytest.raises(
                jaxdali.SampleError,
                match=r'truncated="accept" is for JPEG only; on_error="replace" replaces the sample$',
            ):
                pipeline(truncated="accept").run()


def test_replace_by_neighbour():
    good = [encode(picture(10 + i, 12), "PNG") for i in range(3)]
    bad = [data for data, _ in BAD.values()]
    pipeline = decode_pipeline(
        [good[0], *bad[:3], good[1], *bad[3:], good[2], FILES["bad_trunc.jpg"]], on_error="replace"
    )
    for _ in range(2):
        (result,) = pipeline.run()
        k = len(bad) - 3
        expected = [good[0], good[1], good[1], good[1], good[1], *[good[2]] * k, good[2], good[0]]
        same([np.array(x) for x in result.as_cpu()], [pillow(f) for f in expected])
    reports = pipeline.bad_samples()
    assert sum(r.count for r in reports) == 2 * (len(bad) + 1)


def test_replace_by_shape():
    files = [FILES["exif6.jpg"], FILES["bad_junk.jpg"], FILES["bad_trunc.jpg"]]
    images = decode(files, on_error="replace", replace_shape=(5, 7, 1), output_type=types.GRAY)
    assert [x.shape for x in images] == [(33, 48, 1), (5, 7, 1), (5, 7, 1)]
    assert not images[1].any()
    assert not images[2].any()


def test_nothing_to_replace_with():
    with pytest.raises(jaxdali.SampleError, match="no valid sample"):
        decode([FILES["bad_junk.jpg"], FILES["bad_trunc.jpg"]], on_error="replace")


def test_header_parser_takes_any_prefix():
    """Every prefix and many one-byte changes of every file: no crash, and a verdict of the table."""
    rng = np.random.default_rng(0)
    files = []
    for data in FILES.values():
        files += [data[:n] for n in (*range(0, 64, 3), *rng.integers(0, len(data), 8))]
        for position in rng.integers(0, min(len(data), 200), 40):
            files.append(data[:position] + bytes([rng.integers(256)]) + data[position + 1 :])
    sizes = np.array([len(p) for p in files], np.int64)
    ends = np.cumsum(-(-sizes // 64))
    offsets = (ends - -(-sizes // 64)).astype(np.int32)
    buffer = np.zeros((1, ends[-1] * 64), np.uint8)
    for start, file in zip(offsets, files, strict=True):
        buffer[0, start * 64 : start * 64 + len(file)] = np.frombuffer(file, np.uint8)
    info = np.empty((len(files), _cpu.INFO_COLUMNS), np.int32)
    _cpu.parse_headers(buffer, offsets, sizes, info)
    is_valid = info[:, Info.STATUS] == Status.OK
    assert set(info[:, Info.STATUS]) <= set(Status)
    assert (info[is_valid][:, [Info.HEIGHT, Info.WIDTH, Info.CHANNELS]] > 0).all()
    assert ((info[:, Info.ORIENTATION] >= 1) & (info[:, Info.ORIENTATION] <= 8)).all()
    assert 0.3 < is_valid.mean() < 0.95


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"output_type": 7}, ValueError, "output_type must be one of"),
        ({"dtype": types.INT64}, TypeError, "dtype must be one of"),
        ({"on_error": "skip"}, ValueError, "'raise', 'replace'"),
        ({"replace_shape": (2, 2, 3)}, ValueError, "on_error='replace'"),
        (
            {"replace_shape": (2, 2, 3), "on_error": "replace", "output_type": types.GRAY},
            ValueError,
            r"\(height, width, 1\)",
        ),
        ({"device": "npu"}, ValueError, "device must be"),
        ({"palette": "indices"}, ValueError, "palette must be"),
        ({"palette": "index", "dtype": types.INT32}, ValueError, "dtype must be UINT8"),
        ({"palette": "index", "output_type": types.BGR}, ValueError, "output_type is for colours, got BGR"),
        ({"truncated": "yes"}, ValueError, "truncated must be"),
    ],
)
def test_wrong_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        decode([FILES["gray.jpg"]], **arguments)


def test_wrong_input():
    with pytest.raises(TypeError, match="encoded images, 1-D uint8"):
        decode([FILES["gray.jpg"]], lambda x: fn.decoders.image(fn.decoders.image(x).shape()))
