"""decoders.image(dct_scaling=True): JPEG, WebP and JPEG 2000 at a fraction of their size, ahead of a resize."""

import io

import numpy as np
import pytest
from images import encode, picture, resize_by_pillow
from PIL import Image, ImageOps

import jaxdali.dynamic as jd
from jaxdali import SampleError, _cpu, fn, pipeline_def, types
from jaxdali._cpu import Info
from jaxdali.fn._decode.headers import ImageHeaders

pytestmark = pytest.mark.same_with_any_jax

SIZES = [(900, 1203), (401, 300), (130, 97), (64, 64)]
FILES = [encode(picture(*size), "JPEG", quality=95) for size in SIZES]


@pytest.fixture
def decoded(monkeypatch):
    """Extents of the rasters that are decoded, batch by batch."""
    extents, run = [], ImageHeaders.run

    def spy(self, ctx, *values):
        result = run(self, ctx, *values)
        extents.append([tuple(x) for x in result[1][:, [Info.HEIGHT, Info.WIDTH]].tolist()])
        return result

    monkeypatch.setattr(ImageHeaders, "run", spy)
    return extents


def run(files, then, **decoder):
    @pipeline_def(batch_size=len(files), num_threads=2, seed=1, exec_pipelined=False)
    def define():
        batch = [np.frombuffer(f, np.uint8) for f in files]
        return then(fn.decoders.image(fn.external_source(lambda: batch), **decoder))

    pipe = define()
    outputs = [[np.asarray(x) for x in out] for out in pipe.run()]
    pipe.close()
    return outputs


def psnr(x, y):
    return 10 * np.log10(255**2 / np.mean((x.astype(float) - y) ** 2))


@pytest.mark.parametrize(
    ("resize", "scales"),
    [
        ({"size": (64, 64)}, (8, 4, 1, 1)),
        ({"size": (50, 150)}, (8, 2, 1, 1)),
        ({"resize_shorter": 100}, (8, 2, 1, 1)),
        ({"resize_longer": 60}, (8, 4, 2, 1)),
        ({"resize_x": 75}, (8, 4, 1, 1)),
        ({"size": (113, 151)}, (8, 1, 1, 1)),
        ({"size": (114, 151)}, (4, 1, 1, 1)),
        ({"size": (113, 150)}, (8, 2, 1, 1)),
    ],
)
def test_as_small_as_the_resize_allows(resize, scales, decoded):
    """The scale is the largest of 1, 2, 4 and 8 at which the image has at least the pixels of the result.

    The result is close to that of resizing the whole image.
    """
    (whole,) = run(FILES, lambda x: (fn.resize(x, **resize),))
    (scaled,) = run(FILES, lambda x: (fn.resize(x, **resize),), dct_scaling=True)
    assert decoded[0] == SIZES
    assert decoded[-1] == [(-(-h // d), -(-w // d)) for (h, w), d in zip(SIZES, scales, strict=True)]
    for x, y, d in zip(scaled, whole, scales, strict=True):
        assert np.abs(np.subtract(x.shape, y.shape)).max() <= 1
        if d == 1:
            np.testing.assert_array_equal(x, y)
        elif x.shape == y.shape:
            assert psnr(x, y) > 36
            assert (x != y).any()


@pytest.mark.parametrize("scale", [2, 4, 8])
@pytest.mark.parametrize(
    "options",
    [
        {"subsampling": 0},
        {"subsampling": 1},
        {"subsampling": 2},
        {"progressive": True},
        {"mode": "L"},
        {"mode": "CMYK"},
    ],
)
def test_pixels_are_libjpegs(options, scale):
    """The result of libjpeg-turbo at that scale (Pillow's draft mode), which is also the size that the resize returns."""
    file = encode(picture(333, 512), "JPEG", quality=90, **options)
    image = Image.open(io.BytesIO(file))
    image.draft(image.mode, (512 // scale, 333 // scale))
    expected = np.asarray(image.convert("RGB"))
    assert expected.shape == (-(-333 // scale), 512 // scale, 3)
    ((pixels,),) = run([file], lambda x: (fn.resize(x, size=expected.shape[:2]),), dct_scaling=True)
    assert np.abs(pixels.astype(int) - expected).max() <= (1 if options == {"mode": "CMYK"} else 0)


def test_scans_without_tables():
    """A progressive file gets no standard tables, not even where the scan is not looked at, at 1/8 of its size."""
    file = encode(picture(333, 512, 1), "JPEG", progressive=True)
    tables = [i for i in range(len(file)) if file[i : i + 2] == b"\xff\xc4"]
    broken = bytearray(file)
    for i in tables:
        if file[i + 4] >> 4:  # of coefficients after the first
            broken[i + 1] = 0xE5  # application data, which is skipped
    with pytest.raises(SampleError, match="damaged"):
        run([bytes(broken)], lambda x: (fn.resize(x, size=(333 // 8, 512 // 8)),), dct_scaling=True)


def test_turned_images():
    """The sizes are those of the upright image."""
    pixels = picture(400, 200)
    files = [encode(pixels, "JPEG", quality=95, orientation=o) for o in (1, 6, 8)]
    upright = [
        np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(f))).resize((90, 60), Image.Resampling.BILINEAR))
        for f in files
    ]
    (scaled,) = run(files, lambda x: (fn.resize(x, size=(60, 90)),), dct_scaling=True)
    assert [psnr(x, y) > 34 for x, y in zip(scaled, upright, strict=True)] == [True] * 3


def size_of_a_program():
    noise = fn.random.uniform(range=(60.0, 64.0), shape=(4, 4, 1))
    return fn.reductions.max(fn.resize(noise, size=(2, 2)))


@pytest.mark.parametrize(
    "then",
    [
        lambda x: (x,),
        lambda x: (fn.resize(x, size=(64, 64)), x),
        lambda x: (fn.resize(x, size=(64, 64)), fn.shapes(x)),
        lambda x: (fn.resize(fn.flip(x), size=(64, 64)),),
        lambda x: (fn.resize(x, size=size_of_a_program()),),
        lambda x: (fn.resize(x, size=(64, 64), roi_start=(0, 0), roi_end=(100, 100)),),
        lambda x: (fn.random_resized_crop(x, size=(64, 64)),),
    ],
)
def test_whole_images_for_other_readers(then, decoded):
    run(FILES, then, dct_scaling=True)
    assert decoded[-1] == SIZES


def scaled_by_pillow(file: bytes, scale: int, size: tuple[int, int]) -> np.ndarray:
    """A JPEG in Pillow's draft mode at 1/scale of its size, resized to `size` (height, width)."""
    image = Image.open(io.BytesIO(file))
    image.draft("RGB", (image.width // scale, image.height // scale))
    return np.asarray(resize_by_pillow(image.convert("RGB"), size, Image.Resampling.BICUBIC))


CUBIC = {"interp_type": types.INTERP_CUBIC, "convention": "pillow"}
SAMPLE_SIZES = {  # per sample, and the scales for them
    (113, 151): 8,
    (110, 150): 2,
    (20, 90): 1,
    (8, 8): 8,
}


def resized_to_samples(encoded, sizes):
    return fn.resize(fn.decoders.image(encoded, dct_scaling=True), size=sizes, **CUBIC)


def resized_by_headers(encoded, sizes):
    """The same sizes by a rule from the headers' extents, which runs on the host."""
    return resized_to_samples(encoded, sizes + 0 * fn.peek_image_shape(encoded)[:2])


def resized_in_a_branch(encoded, sizes):
    if sizes[0] > 0:
        return resized_to_samples(encoded, sizes)
    return fn.decoders.image(encoded)


@pytest.mark.parametrize("define", [resized_to_samples, resized_by_headers, resized_in_a_branch])
def test_sizes_of_samples_choose_scales(define, decoded):
    @pipeline_def(batch_size=len(FILES), num_threads=2, enable_conditionals=True)
    def definition():
        encoded = fn.external_source(lambda: [np.frombuffer(f, np.uint8) for f in FILES])
        return define(encoded, fn.external_source(lambda: [np.float32(size) for size in SAMPLE_SIZES]))

    (images,) = definition().run()
    scales = SAMPLE_SIZES.values()
    assert [(-(-h // d), -(-w // d)) for (h, w), d in zip(SIZES, scales, strict=True)] in decoded
    for i, (size, scale) in enumerate(SAMPLE_SIZES.items()):
        np.testing.assert_array_equal(images.at(i), scaled_by_pillow(FILES[i], scale, size))


def test_sizes_of_samples_in_jit(decoded):
    @jd.jit
    def resized(encoded, sizes):
        return jd.resize(jd.decoders.image(encoded, dct_scaling=True), size=sizes, **CUBIC)

    images = resized(jd.batch([np.frombuffer(f, np.uint8) for f in FILES]), np.float32([*SAMPLE_SIZES]))
    for i, (size, scale) in enumerate(SAMPLE_SIZES.items()):
        np.testing.assert_array_equal(images[i], scaled_by_pillow(FILES[i], scale, size))


def test_failing_size_is_its_samples_error():
    sizes = [np.float32([64, 64]), np.float32([np.nan, 64])]

    @pipeline_def(batch_size=2, num_threads=2)
    def definition():
        encoded = fn.external_source(lambda: [np.frombuffer(f, np.uint8) for f in FILES[:2]])
        return resized_to_samples(encoded, fn.external_source(lambda: sizes))

    with pytest.raises(SampleError, match=r"resize.*sample 1") as error:
        definition().run()
    assert "decoders.image" not in str(error.value)


def test_mirroring_of_samples_allows_scales(decoded):
    def then(x):
        return (fn.resize_crop_mirror(x, resize_shorter=60, crop=(50, 50), mirror=fn.random.coin_flip()),)

    run(FILES, then, dct_scaling=True)
    assert decoded[-1] == [(113, 151), (101, 75), (130, 97), (64, 64)]


def test_beside_a_cache_and_other_formats(decoded):
    """The cache keeps images of each scale separately; other formats stay whole."""
    files = [FILES[0], encode(picture(*SIZES[0]), "PNG")]
    small = {"cache": "31MB", "dct_scaling": True}
    first = run(files, lambda x: (fn.resize(x, size=(64, 64)),), **small)
    second = run(files, lambda x: (fn.resize(x, size=(300, 300)),), **small)
    assert decoded == [[(113, 151), SIZES[0]], [(450, 602), SIZES[0]]]
    expected = run(files, lambda x: (fn.resize(x, size=(300, 300)),), dct_scaling=True)
    np.testing.assert_array_equal(second, expected)
    assert psnr(np.array(first[0][0]), np.array(first[0][1])) > 30


def test_resize_crop_mirror(decoded):
    (whole,) = run(FILES, lambda x: (fn.resize_crop_mirror(x, resize_shorter=60, crop=(50, 50), mirror=1),))
    (scaled,) = run(
        FILES, lambda x: (fn.resize_crop_mirror(x, resize_shorter=60, crop=(50, 50), mirror=1),), dct_scaling=True
    )
    assert decoded[-1] == [(113, 151), (101, 75), (130, 97), (64, 64)]
    assert all(psnr(x, y) > 30 for x, y in zip(scaled[:2], whole[:2], strict=True))


def test_other_types():
    expected = run(FILES, lambda x: (fn.resize(x, size=(40, 40)),), dct_scaling=True, output_type=types.GRAY)
    scaled = run(
        FILES,
        lambda x: (fn.resize(x, size=(40, 40), dtype=types.FLOAT),),
        dct_scaling=True,
        output_type=types.GRAY,
        dtype=types.FLOAT,
    )
    assert np.abs(np.array(scaled) * 255 - np.array(expected)).max() < 0.51


@pytest.mark.parametrize(
    ("mode", "options"), [("RGB", {}), ("L", {"irreversible": True}), ("RGBA", {"num_resolutions": 2})]
)
def test_jpeg2000_by_resolution_levels(mode, options, decoded):
    """Sizes that Pillow rounds down are among these; a file with too few levels is decoded whole and reduced."""
    sizes = [(900, 1203), (896, 1200), (401, 300)]
    files = [encode(np.asarray(Image.fromarray(picture(*size)).convert(mode)), "JPEG2000", **options) for size in sizes]
    scaled, whole = (
        run(files, lambda x: (fn.resize(x, size=(64, 64)),), dct_scaling=scaling, output_type=types.ANY_DATA)[0]
        for scaling in (True, False)
    )
    assert decoded == [[(113, 151), (112, 150), (101, 75)], sizes]
    assert min(psnr(x, y) for x, y in zip(scaled, whole, strict=True)) > 25


def test_jpeg2000_level_is_pillows():
    file = encode(picture(896, 1200), "JPEG2000")
    ((pixels,),) = run([file], lambda x: (fn.resize(x, size=(112, 150)),), dct_scaling=True)
    with Image.open(io.BytesIO(file)) as image:
        image.reduce = 3
        np.testing.assert_array_equal(pixels, np.asarray(image))


def test_damaged_jpeg2000_at_a_fraction():
    broken = encode(picture(401, 300), "JPEG2000")[:400]
    with pytest.raises(SampleError, match=r"truncated|damaged|broken"):
        run([broken], lambda x: (fn.resize(x, size=(64, 64)),), dct_scaling=True)


@pytest.mark.skipif(not _cpu.build_info()["webp"], reason="built without libwebp")
@pytest.mark.parametrize("options", [{"quality": 90}, {"lossless": True}])
@pytest.mark.parametrize("channels", [3, 4])
def test_webp_by_libwebps_scaling(channels, options, decoded):
    files = [encode(picture(*size, channels), "WEBP", **options) for size in SIZES]
    for kind in types.RGB, types.GRAY, types.ANY_DATA:
        scaled, whole = (
            run(files, lambda x: (fn.resize(x, size=(64, 64)),), dct_scaling=scaling, output_type=kind)[0]
            for scaling in (True, False)
        )
        assert decoded[-2] == [(113, 151), (101, 75), (130, 97), (64, 64)]
        assert min(psnr(x, y) for x, y in zip(scaled[:2], whole[:2], strict=True)) > 25
        assert all((x == y).all() for x, y in zip(scaled[2:], whole[2:], strict=True))
