"""GIF, AVIF, JPEG XL and HEIC beside Pillow, imagecodecs and pillow-heif used directly, and files that hold several
pictures.
"""

import io
import itertools

import numpy as np
import pytest
from images import decode, decode_pipeline, encode, picture
from PIL import Image, ImageSequence

import jaxdali
from jaxdali import Pipeline, extend, fn, types
from jaxdali.fn._decode import formats

imagecodecs = pytest.importorskip("imagecodecs")
pillow_heif = pytest.importorskip("pillow_heif")

SIZE = 37, 53
COLOUR, ALPHA, GRAY = (picture(*SIZE, channels) for channels in (3, 4, 1))
DEEP = picture(*SIZE, 3, np.uint16)


def heic(*pictures, primary=0):
    file = io.BytesIO()
    heif = pillow_heif.HeifFile()
    for pixels in pictures:
        heif.add_from_pillow(Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels))
    heif.save(file, primary_index=primary)
    return file.getvalue()


def jxl(pixels, **options):
    return imagecodecs.jpegxl_encode(
        pixels[..., 0] if pixels.shape[-1] == 1 else pixels, **{"lossless": True, **options}
    )


def by_pillow(data, mode):
    return np.asarray(Image.open(io.BytesIO(data)).convert(mode))


def same(actual, expected):
    for x, y in itertools.zip_longest(actual, expected):
        np.testing.assert_array_equal(x, y)


def test_gif():
    palette = Image.fromarray(COLOUR).convert("P", palette=Image.Palette.ADAPTIVE, colors=200)
    transparent, file = io.BytesIO(), io.BytesIO()
    palette.save(transparent, "GIF", transparency=3)
    palette.save(file, "GIF")
    files = [file.getvalue(), transparent.getvalue(), encode(GRAY, "GIF")]
    same(decode(files), [by_pillow(f, "RGB") for f in files])
    whole = decode(files, output_type=types.ANY_DATA)
    same(whole, [by_pillow(f, mode) for f, mode in zip(files, ("RGB", "RGBA", "RGB"), strict=True)])
    assert (whole[1][..., 3] == 0).any()


def test_gif_frames_may_exceed_the_screen():
    file = bytearray(encode(picture(9, 8), "GIF"))
    file[6:10] = b"\5\0\4\0"
    same(decode([bytes(file)]), [by_pillow(bytes(file), "RGB")])


@pytest.mark.parametrize("pixels", [COLOUR, ALPHA, GRAY], ids=["colour", "alpha", "gray"])
def test_avif_heic_and_jpeg_xl(pixels):
    files = [encode(pixels, "AVIF"), heic(pixels), jxl(pixels), jxl(pixels, usecontainer=True)]
    avif = imagecodecs.avif_decode(files[0]).reshape(pixels.shape)
    decoded = np.asarray(pillow_heif.open_heif(files[1])[0]).reshape(pixels.shape)
    same(decode(files, output_type=types.ANY_DATA), [avif, decoded, pixels, pixels])
    assert np.abs(avif.astype(int) - pixels).mean() < 12  # what is compared is the picture
    assert np.abs(decoded.astype(int) - pixels).mean() < 12
    if pixels is COLOUR:
        same(decode(files, output_type=types.BGR), [x[..., ::-1] for x in (avif, decoded, pixels, pixels)])
        same(decode(files, fn.peek_image_shape), [pixels.shape] * 4)


def test_values_of_more_than_8_bits():
    files = [
        jxl(DEEP),
        jxl(DEEP >> 4, bitspersample=12),
        *(imagecodecs.avif_encode(DEEP >> 16 - n, bitspersample=n) for n in (10, 12)),
    ]
    decoded = decode(files, dtype=types.UINT16)
    expected = [
        DEEP,
        (DEEP >> 4) / 4095 * 65535,
        *(imagecodecs.avif_decode(files[k]) / (2**n - 1) * 65535 for k, n in ((2, 10), (3, 12))),
    ]
    for x, y in zip(decoded, expected, strict=True):
        assert np.abs(x - y.astype(float)).max() <= 0.5


def test_avif_without_imagecodecs(monkeypatch):
    file, deep = encode(COLOUR, "AVIF"), imagecodecs.avif_encode(DEEP >> 6, bitspersample=10)
    monkeypatch.setattr(formats, "library", lambda name: None)
    monkeypatch.setattr("jaxdali.fn._decode.pillow.library", lambda name: None)
    same(decode([file, deep]), [by_pillow(file, "RGB"), by_pillow(deep, "RGB")])


def test_a_missing_package_is_named(monkeypatch):
    files = [jxl(COLOUR), heic(COLOUR)]
    monkeypatch.setattr(formats, "library", lambda name: None)
    for file, text in zip(
        files, ("JPEG XL images need the package imagecodecs", "HEIC images need the package pillow-heif"), strict=True
    ):
        with pytest.raises(jaxdali.SampleError, match=rf"{text}: pip install jaxdali\[formats\]"):
            decode([file])
        pipeline = decode_pipeline([file, encode(COLOUR, "PNG")], on_error="replace")
        pipeline.run()
        assert [text in r.reason for r in pipeline.bad_samples()] == [True]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(orientation):
    file = encode(COLOUR, "AVIF", orientation=orientation)
    stored = imagecodecs.avif_decode(file)
    turn = {1: lambda x: x, 2: np.fliplr, 3: lambda x: np.rot90(x, 2), 4: np.flipud, 5: lambda x: x.swapaxes(0, 1)}
    turn |= {6: lambda x: np.rot90(x, 3), 7: lambda x: np.rot90(x, 2).swapaxes(0, 1), 8: np.rot90}
    same(decode([file]), [turn[orientation](stored)])
    same(decode([file], adjust_orientation=False), [stored])


def test_headers_limit_pixels_before_decoding(monkeypatch):
    files = [encode(COLOUR, "GIF"), encode(COLOUR, "AVIF"), heic(COLOUR), jxl(COLOUR)]
    monkeypatch.setattr("jaxdali.fn._decode.pillow.decode", lambda *_: pytest.fail("nothing is decoded"))
    for file in files:
        with pytest.raises(jaxdali.SampleError, match="too large: 53 x 37 pixels"):
            decode([file], max_pixels=1900)


FRAMES = [picture(*SIZE, seed=seed) for seed in range(3)]


def animation(kind, **options):
    file = io.BytesIO()
    first, *later_frames = map(Image.fromarray, FRAMES)
    first.save(file, kind, save_all=True, append_images=later_frames, **options)
    return file.getvalue()


def big_tiff():
    file = io.BytesIO()
    first, *later_frames = map(Image.fromarray, FRAMES)
    first.save(file, "TIFF", save_all=True, append_images=later_frames, big_tiff=True)
    return file.getvalue()


SEVERAL = {
    "GIF": animation("GIF"),
    "PNG": animation("PNG"),
    "WebP": animation("WEBP", lossless=True),
    "AVIF": animation("AVIF"),
    "TIFF": animation("TIFF", compression="tiff_lzw"),
    "BigTIFF": big_tiff(),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_pages_are_pillows(name):
    file = SEVERAL[name]
    expected = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(Image.open(io.BytesIO(file)))]
    pages = [np.array(k) for k in (0, 1, 2)]
    decoded = decode([file] * 3, lambda x: fn.decoders.image(x, page=fn.external_source(lambda: pages)))
    same(decoded, expected)
    same(decode([file], page=2), expected[2:])
    same(decode([file]), expected[:1])
    with pytest.raises(jaxdali.SampleError, match="page 3 does not exist: the file holds 3 pictures"):
        decode([file], page=3)


def test_pages_of_jpeg_xl_and_heic():
    moving = jxl(np.stack(FRAMES), photometric="rgb")
    sizes = [picture(20, 30), picture(31, 17), picture(8, 9)]
    several = heic(*sizes, primary=1)
    images = [np.asarray(x) for x in pillow_heif.open_heif(several)]
    same([decode([several], page=k)[0] for k in range(3)], [images[1], images[0], images[2]])
    with pytest.raises(jaxdali.SampleError, match="page 3 does not exist: the file holds 3 pictures"):
        decode([several], page=3)
    same(decode([moving]), FRAMES[:1])
    with pytest.raises(
        jaxdali.SampleError, match="page 1: of a JPEG XL file only the first frame, page 0, is supported"
    ):
        decode([moving], page=1)


def test_pages_differ_in_size_and_depth():
    file = io.BytesIO()
    sizes = [picture(9, 8), picture(20, 31), picture(5, 6, 1)]
    images = [Image.fromarray(x if x.shape[2] == 3 else x[..., 0]) for x in sizes]
    images[0].save(file, "TIFF", save_all=True, append_images=images[1:])
    same([decode([file.getvalue()], page=k, output_type=types.ANY_DATA)[0] for k in range(3)], sizes)
    deep = io.BytesIO()
    gray = [DEEP[..., 0], 65535 - DEEP[..., 0]]
    Image.fromarray(gray[0]).save(deep, "TIFF", save_all=True, append_images=[Image.fromarray(gray[1])])
    decoded = [decode([deep.getvalue()], page=k, output_type=types.GRAY, dtype=types.UINT16)[0] for k in range(2)]
    same(decoded, [x[..., None] for x in gray])


def test_windows_of_pages():
    file = SEVERAL["TIFF"]
    crop = decode([file], lambda x: fn.decoders.image_crop(x, crop=(10, 12), crop_pos_x=0.0, crop_pos_y=0.0, page=1))
    part = decode([file], lambda x: fn.decoders.image_slice(x, start=(3, 4), shape=(5, 6), axis_names="HW", page=2))
    same([*crop, *part], [FRAMES[1][:10, :12], FRAMES[2][3:8, 4:10]])
    random, whole = (decode([file], lambda x, k=k: fn.decoders.image_random_crop(x, seed=3, page=k))[0] for k in (1, 0))
    assert random.shape == whole.shape
    assert (random != whole).any()


def test_pages_in_the_cache():
    """The cache keeps the finished picture, not the raster of the file."""

    def images(data):
        return fn.decoders.image(
            data, cache="1MB", page=fn.external_source(pages()), output_type=types.BGR, dtype=types.FLOAT
        )

    pipeline = decode_pipeline([SEVERAL["TIFF"]] * 2, images)
    for _ in range(3):
        for x, y in zip(pipeline.run()[0].as_cpu(), FRAMES[:2], strict=True):
            np.testing.assert_allclose(np.asarray(x), y[..., ::-1] / 255, atol=1e-6)


def pages():
    return lambda: [np.array(k) for k in (0, 1)]


def test_where_there_are_no_pages():
    with pytest.raises(jaxdali.SampleError, match=r"page 1 does not exist: the file holds 1 picture$"):
        decode([encode(COLOUR, "JPEG")], page=1)
    with pytest.raises(ValueError, match="page must be"):
        decode([encode(COLOUR, "JPEG")], page=-1)
    sequence = np.frombuffer(SEVERAL["GIF"], np.uint8)[None]
    with pytest.raises(ValueError, match="the samples are sequences"):
        decode([b""], lambda _: fn.decoders.image(fn.external_source(lambda: [sequence], ndim=2, layout="F*"), page=1))


# Images among others, and outputs that the decoder determines.
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_registered_decoders_have_no_pages(dtype):
    extend.register_decoder(lambda data: data[:4] == b"mine", lambda data: np.zeros((4, 5, 3), dtype), name="mine")
    try:
        with pytest.raises(jaxdali.SampleError, match="page must be 0 for files that registered decoders decode"):
            decode([b"mine"], page=1)
    finally:
        extend.unregister_decoder("mine")


@pytest.mark.parametrize(
    ("pixels", "kind"), [(COLOUR, "BMP"), (GRAY, "TIFF"), (ALPHA, "TIFF"), (DEEP[..., :1], "TIFF"), (COLOUR, "GIF")]
)
def test_chains_read_rasters_in_place(pixels, kind):
    """With the same pixels as without chains, for windows, channels in another order, and files that are turned."""
    turned = [{}, {"orientation": 6}] if kind == "TIFF" else [{}]
    files = [np.frombuffer(encode(pixels, kind, **options), np.uint8) for options in turned] * 3
    dtype = types.UINT16 if pixels.dtype == np.uint16 else types.UINT8

    def results(data):
        for output_type in types.ANY_DATA, types.BGR:
            options = {"output_type": output_type, "dtype": dtype}
            window = fn.decoders.image_crop(data, crop=(9, 11), crop_pos_x=0.3, crop_pos_y=0.6, **options)
            yield fn.resize(window, size=(8, 7))
            yield fn.resize(fn.decoders.image(data, **options), size=(8, 7))
            yield fn.crop(fn.resize(fn.decoders.image(data, **options), size=(20, 30)), crop=(6, 5))

    def run(fuse):
        with Pipeline(batch_size=len(files), num_threads=2, device_id=None, fuse=fuse) as pipe:
            pipe.set_outputs(*results(fn.external_source(lambda: files)))
        outputs = [[np.asarray(x) for x in output] for output in pipe.run()]
        pipe.close()
        return outputs

    for x, y in zip(run(fuse=True), run(fuse=False), strict=True):
        same(x, y)


def test_a_circle_of_tiff_pages_ends():
    file = bytearray(SEVERAL["TIFF"])
    directory = int.from_bytes(file[4:8], "little")
    entries = int.from_bytes(file[directory : directory + 2], "little")
    file[directory + 2 + 12 * entries : directory + 6 + 12 * entries] = directory.to_bytes(4, "little")
    with pytest.raises(jaxdali.SampleError, match=r"page 5 does not exist: the file holds 1 picture$"):
        decode([bytes(file)], page=5)


@pytest.mark.parametrize("kind", ["GIF", "AVIF", "HEIC", "JPEG XL", "WebP", "TIFF"])
@pytest.mark.parametrize("page", [0, 1])
def test_damage_is_an_error_or_a_picture(kind, page):
    good = (
        {"HEIC": heic(COLOUR), "JPEG XL": jxl(COLOUR, lossless=False)}.get(kind)
        or SEVERAL.get(kind)
        or encode(COLOUR, kind)
    )
    rng = np.random.default_rng(0)
    files = [good[: len(good) * k // 8] for k in range(8)]
    for _ in range(72):
        x = bytearray(good)
        for position in rng.integers(0, min(len(x), rng.choice([64, 600, 1 << 30])), rng.integers(1, 5)):
            x[position] = rng.integers(0, 256)
        files.append(bytes(x))
    pipeline = decode_pipeline(
        [encode(COLOUR, "PNG"), *files], on_error="replace", replace_shape=(1, 1, 3), max_pixels=1 << 20, page=page
    )
    assert len(pipeline.run()[0]) == len(files) + 1
    assert sum(bad.count for bad in pipeline.bad_samples()) >= 5
    assert not any(" at 0x" in bad.reason for bad in pipeline.bad_samples())
