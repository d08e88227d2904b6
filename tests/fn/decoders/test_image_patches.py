"""Files to patches in one native call, compared with Pillow and NumPy image by image."""

import concurrent.futures
import functools
import io

import jax
import numpy as np
import pytest
import shardings
from images import encode, picture, png, resize_by_pillow
from PIL import Image, ImageOps

import jaxdali
import jaxdali.dynamic as jd
from jaxdali import fn, pipeline_def, types, vlm
from jaxdali._core import ffi
from jaxdali._program.sharding import Shards
from jaxdali.plugin.jax import data_iterator

MEAN, STD = (122.77, 116.75, 104.09), (68.5, 66.63, 70.32)
CUTS = {"patch_size": 8, "merge_size": 2, "temporal_patch_size": 2, "patch_layout": "CFHW", "mean": MEAN, "std": STD}
RESIZE = {"interp_type": types.INTERP_CUBIC, "convention": "pillow"}
FILES = [
    encode(picture(90, 130), "JPEG", quality=90),
    png(picture(77, 95, seed=1)),
    encode(picture(64, 110, seed=2), "JPEG", orientation=6),
    encode(picture(60, 50, seed=3), "GIF"),
    encode(picture(300, 420, seed=4), "BMP"),
    encode(picture(75, 61, seed=5), "JPEG", progressive=True),
    encode(picture(61, 75, 1, seed=6), "JPEG"),
    encode(picture(90, 80, seed=7), "WEBP"),
    encode(picture(40, 300, seed=8), "TIFF"),
]
SIZES = [(32, 48), (16, 16), (48, 32), (32, 32), (64, 16), (16, 80), (32, 16), (48, 48), (16, 48)]
SAMPLES = [[0], [], [1, 2, 3], [4, 5, 6, 7, 8]]  # files
LENGTH = 160


def rows(files):
    result = np.full((len(files), max(map(len, files), default=0)), 7, np.uint8)  # bytes after a file do not matter
    for row, data in zip(result, files, strict=True):
        row[: len(data)] = np.frombuffer(data, np.uint8)
    return result


def vector(data):
    return np.frombuffer(data, np.uint8)


@functools.cache
def pixels(file, size, scale=1, resample=Image.Resampling.BICUBIC):
    """A file, decoded and resized by Pillow. `scale`: of a JPEG that is decoded at a fraction of its size."""
    image = Image.open(io.BytesIO(file))
    image.draft("RGB", (image.width // scale, image.height // scale))
    return np.asarray(resize_by_pillow(ImageOps.exif_transpose(image).convert("RGB"), size, resample))


def patches_of(image):
    """The tokens of Qwen2-VL, as in its processor, their places, and the grid."""
    x = np.stack([(image.astype(np.float64) - MEAN) / STD] * 2).transpose(0, 3, 1, 2)
    rows, columns = image.shape[0] // 8, image.shape[1] // 8
    x = (
        x.reshape(2, 3, rows // 2, 2, 8, columns // 2, 2, 8)
        .transpose(2, 5, 3, 6, 1, 0, 4, 7)
        .reshape(rows * columns, -1)
    )
    places = np.indices((rows, columns)).reshape(2, rows // 2, 2, columns // 2, 2).transpose(1, 3, 2, 4, 0)
    return x.astype(np.float32), places.reshape(-1, 2).astype(np.int32), np.int32([rows, columns])


def packed(samples, sizes=SIZES):
    """The four outputs for lists of numbers of files."""
    for sample in samples:
        patches, positions = np.zeros((LENGTH, 384), np.float32), np.zeros((LENGTH, 2), np.int32)
        segments, grids, end = np.zeros(LENGTH, np.int32), np.zeros((len(sample), 2), np.int32), 0
        for k, n in enumerate(sample):
            x, places, grids[k] = patches_of(pixels(FILES[n], sizes[n]))
            begin, end = end, end + len(x)
            patches[begin:end], positions[begin:end], segments[begin:end] = x, places, k + 1
        yield patches, segments, positions, grids


def source(samples, files=FILES):
    return fn.external_source(lambda: [rows([files[n] for n in s]) for s in samples], layout="F*", ndim=2)


def sizes_of(samples, sizes=SIZES):
    values = [np.array([sizes[n] for n in s], np.int32).reshape(-1, 2) for s in samples]
    return fn.external_source(lambda: values, layout="F*", ndim=2)


def run(define, batch_size=4, **options):
    pipe = pipeline_def(define, **{"batch_size": batch_size, "num_threads": 2, "seed": 1, **options})()
    outputs = [[np.asarray(x) for x in output.as_cpu()] for output in pipe.run()]
    return outputs, pipe


def assert_equal(outputs, expected):
    for i, values in enumerate(expected):
        for actual, value in zip(outputs, values, strict=True):
            assert actual[i].dtype == value.dtype
            np.testing.assert_allclose(actual[i], value, atol=1e-6)


def test_sequences_are_packed():
    """Sequences of 0, 1, 3 and 5 images of all formats, each with a size of its own, by one native call."""

    def define():
        return tuple(
            fn.decoders.image_patches(source(SAMPLES), size=sizes_of(SAMPLES), length=LENGTH, **RESIZE, **CUTS)
        )

    outputs, pipe = run(define)
    assert_equal(outputs, packed(SAMPLES))
    text = pipe.lower(0).as_text()
    assert text.count("@jaxdali_chain") == 1
    assert text.count("@jaxdali_") == 1 + text.count("@jaxdali_unpack")


@pytest.mark.parametrize("length", [None, 40])
def test_single_images(length):
    def define():
        files = fn.external_source(lambda: [vector(f) for f in FILES])
        sizes = fn.external_source(lambda: [np.int32(s) for s in SIZES])
        return tuple(fn.decoders.image_patches(files, size=sizes, length=length, **RESIZE, **CUTS))

    outputs, _ = run(define, batch_size=len(FILES))
    for i, (file, size) in enumerate(zip(FILES, SIZES, strict=True)):
        patches, positions, grid = patches_of(pixels(file, size))
        n = len(patches)
        assert [len(x[i]) for x in outputs[:3]] == [length or n] * 3
        np.testing.assert_allclose(outputs[0][i][:n], patches, atol=1e-6)
        np.testing.assert_array_equal(outputs[1][i], [1] * n + [0] * (len(outputs[1][i]) - n))
        np.testing.assert_array_equal(outputs[2][i][:n], positions)
        np.testing.assert_array_equal(outputs[3][i], grid)
        assert not outputs[0][i][n:].any()


def test_sizes_by_headers():
    """A rule gives sizes from the shapes of all images of a sample, which are those after the EXIF orientation."""

    def define():
        files = source(SAMPLES)
        shapes = fn.peek_image_shape(files, dtype=types.INT32)
        sizes = shapes[:, :2] // 16 * 16
        return shapes, *fn.decoders.image_patches(files, size=sizes, length=900, patch_size=16)

    (shapes, patches, segments, _, grids), _ = run(define)
    for i, sample in enumerate(SAMPLES):
        images = [ImageOps.exif_transpose(Image.open(io.BytesIO(FILES[n]))) for n in sample]
        expected = np.array([(x.height, x.width, 3) for x in images], np.int32).reshape(-1, 3)
        np.testing.assert_array_equal(shapes[i], expected)
        np.testing.assert_array_equal(grids[i], expected[:, :2] // 16)
        assert np.bincount(segments[i], minlength=1)[1:].tolist() == grids[i].prod(axis=1).tolist()
        assert not patches[i][segments[i] == 0].any()


@pytest.mark.parametrize("size", [(32, 48), "per sample"])
def test_one_size_for_all_images(size):
    sizes = SIZES[: len(SAMPLES)] if size == "per sample" else [size] * len(SAMPLES)

    def define():
        sizes_node = fn.external_source(lambda: [np.int32(s) for s in sizes]) if size == "per sample" else size
        return tuple(fn.decoders.image_patches(source(SAMPLES), size=sizes_node, length=LENGTH, **RESIZE, **CUTS))

    outputs, _ = run(define)
    expected = [next(packed([s], dict.fromkeys(s, sizes[i]))) for i, s in enumerate(SAMPLES)]
    assert_equal(outputs, expected)


def test_arguments_of_samples():
    """Means and filters per sample apply to all images of the sample."""
    means = [np.float32([i, 2 * i, 3]) for i in range(4)]
    filters = {types.INTERP_LINEAR: "BILINEAR", types.INTERP_CUBIC: "BICUBIC", types.INTERP_LANCZOS3: "LANCZOS"}
    filters = [*filters.items(), (types.INTERP_AREA, "BOX")]

    def define():
        arguments = {
            "mean": fn.external_source(lambda: means),
            "interp_type": fn.external_source(lambda: [np.int32(f) for f, _ in filters]),
        }
        options = {"length": LENGTH, "patch_size": 16, "convention": "pillow"}
        return tuple(fn.decoders.image_patches(source(SAMPLES), size=sizes_of(SAMPLES), **options, **arguments))

    (patches, segments, _, _), _ = run(define)
    for i, sample in enumerate(SAMPLES):
        for k, n in enumerate(sample):
            image = pixels(FILES[n], SIZES[n], resample=Image.Resampling[filters[i][1]]) - means[i]
            rows, columns = SIZES[n][0] // 16, SIZES[n][1] // 16
            expected = image.reshape(rows, 16, columns, 16, 3).swapaxes(1, 2).reshape(rows * columns, -1)
            np.testing.assert_allclose(patches[i][segments[i] == k + 1], expected, atol=1e-5)


def test_images_at_a_fraction_of_their_size():
    files = [encode(picture(400, 600, seed=k), "JPEG", quality=95) for k in range(3)]
    sizes, scales = [(96, 144), (208, 304), (48, 80)], (4, 1, 4)

    def define():
        data = fn.external_source(lambda: [rows(files), rows(files[:1])], layout="F*", ndim=2)
        size = fn.external_source(lambda: [np.int32(sizes), np.int32(sizes[:1])], layout="F*", ndim=2)
        options = {"length": 1300, "dct_scaling": True, **RESIZE, **CUTS}
        return tuple(fn.decoders.image_patches(data, size=size, **options)[:2])

    (patches, segments), _ = run(define, batch_size=2)
    for k, (file, size, scale) in enumerate(zip(files, sizes, scales, strict=True)):
        expected, _, _ = patches_of(pixels(file, size, scale))
        np.testing.assert_allclose(patches[0][segments[0] == k + 1], expected, atol=1e-6)
    np.testing.assert_array_equal(patches[1][segments[1] > 0], patches[0][segments[0] == 1])


def test_truncated_files():
    """The beginning of a picture is decoded where that is asked for."""
    whole = encode(picture(64, 64, seed=9), "JPEG", quality=95)
    data = rows([whole, whole[: len(whole) // 2]])

    def define(**options):
        files = fn.external_source(lambda: [data], layout="F*", ndim=2)
        return fn.decoders.image_patches(files, size=(64, 64), length=128, patch_size=8, **options)[0]

    (patches,), _ = run(lambda: define(truncated="accept"), batch_size=1)
    first, second = patches[0].reshape(2, 8, 8, 192)
    np.testing.assert_array_equal(first[:1], second[:1])
    assert (first[6:] != second[6:]).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({2: b"no image"}, "image 2 of the sample: the data are not an image of a known format"),
        ({1: b""}, "image 1 of the sample: .*(empty|not an image)"),
        ({0: FILES[5][:700]}, "image 0 of the sample: JPEG.*end early"),
        ({1: FILES[1][:900] + b"xx" + FILES[1][902:]}, "image 1 of the sample: PNG.*damaged"),
        ({2: FILES[3][:200]}, "image 2 of the sample: GIF"),
    ],
)
def test_damaged_files_are_named(change, message):
    """Also where only the program finds the damage."""
    files = [change.get(k, FILES[k]) for k in range(3)]
    batch = [rows(FILES[:2]), rows(files)]

    def define():
        data = fn.external_source(lambda: batch, layout="F*", ndim=2)
        return fn.decoders.image_patches(data, size=(32, 48), length=LENGTH, **CUTS)[0]

    with pytest.raises(jaxdali.SampleError, match=message) as error:
        run(define, batch_size=2)
    assert error.value.operator == "decoders.image_patches"
    assert error.value.index == 1
    assert 0 < error.value.code < 20
    assert "on_error" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"length": 71},
            r"image 2 of the sample: its 4 x 6 patches, and the 48 of the images before it, are more than length=71, "
            "and all 3 images have 72 ",
        ),
        ({"length": 23}, r"image 0 of the sample: .*32 x 48 pixels.*has 24 patches, more than length=23"),
        ({"size": (32, 40)}, r"image 0 of the sample: .*32 x 40 pixels.*merge_size=2.*multiple of 16"),
        ({"size": (32, 0.2)}, r"image 0 of the sample: "),
        ({"max_pixels": 9000}, r"image 0 of the sample: JPEG: the image is too large: 130 x 90 pixels"),
    ],
)
def test_other_errors_of_samples(options, message):
    def define():
        arguments = {"size": (32, 48), "length": LENGTH, **CUTS, **options}
        return fn.decoders.image_patches(source([[], [0, 1, 2]]), **arguments)[0]

    with pytest.raises(jaxdali.SampleError, match=message):
        run(define, batch_size=2)


def test_size_of_other_images_fails():
    def define():
        return fn.decoders.image_patches(source([[0, 1], [0]]), size=sizes_of([[0], [0]]), length=LENGTH, patch_size=8)[
            0
        ]

    with pytest.raises(jaxdali.SampleError, match=r"size has the shape \(1, 2\), and the sample 2 images"):
        run(define, batch_size=2)


def test_segments_of_images():
    """Each image has a given number, e.g. that of its item, and a sample without images has none."""
    numbers = [np.int32(n) for n in ([4], [], [1, 1, 3], [5, 6, 6, 6, 9])]
    options = {"size": (32, 48), "patch_size": 16, "length": 40}

    def define():
        segments = fn.external_source(lambda: numbers, layout="F", ndim=1)
        return fn.decoders.image_patches(source(SAMPLES), segments=segments, **options)[1]

    (outputs,), _ = run(define)
    for segments, n in zip(outputs, numbers, strict=True):
        assert segments.dtype == np.int32
        assert segments.tolist() == np.repeat(n, 6).tolist() + [0] * (40 - 6 * len(n))
    files = [[FILES[n] for n in sample] for sample in SAMPLES]
    patches = functools.partial(jd.decoders.image_patches, **options)
    for function in (patches, jd.jit(patches)):
        segments = np.asarray(function(files, segments=jd.batch(numbers))[1])
        np.testing.assert_array_equal(segments, np.stack(outputs))
    assert np.asarray(patches(FILES[:2], segments=7)[1]).max() == 7  # of single images


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([1, 1], r"for each image of the sample: got \[1.*, 1.*\] for 1 images"),
        ([-1], "of 0 ... 2"),
        ([2**31], "of 0 ... 2"),
    ],
)
def test_segments_of_other_images_fail(numbers, message):
    def define():
        segments = fn.external_source(lambda: [np.int64([5]), np.int64(numbers)], layout="F", ndim=1)
        return fn.decoders.image_patches(
            source([[0], [1]]), size=(16, 16), segments=segments, length=LENGTH, patch_size=8
        )[1]

    with pytest.raises(jaxdali.SampleError, match=f"sample 1.*argument segments must have .*{message}") as error:
        run(define, batch_size=2)
    assert error.value.operator == "decoders.image_patches"


@pytest.mark.parametrize("pixels", [np.zeros((2, 32, 32, 3), np.uint8), [Image.new("L", (16, 16))]])
def test_decoded_images_are_refused(pixels):
    with pytest.raises(TypeError, match=r"of decoded images jd\.resize and jd\.patchify make patches"):
        jd.decoders.image_patches(pixels, size=16, patch_size=8)


def test_length_of_sequences_is_needed():
    with pytest.raises(ValueError, match="need the argument length"):
        run(lambda: fn.decoders.image_patches(source(SAMPLES), size=(16, 16), patch_size=8)[0])


def test_dense_sequences_of_values():
    """All samples have two images, so that grid and shapes are dense, too."""
    data = rows([FILES[n] for n in (0, 1, 4, 7)]).reshape(2, 2, -1)
    files = jd.batch(data, layout="F*")
    outputs = [np.asarray(x) for x in jd.decoders.image_patches(files, size=(32, 48), length=60, **RESIZE, **CUTS)]
    for i, x in enumerate(patches_of(pixels(FILES[n], (32, 48)))[0] for n in (0, 1, 4, 7)):
        np.testing.assert_allclose(outputs[0][i // 2, 24 * (i % 2) :][:24], x, atol=1e-6)
    assert [x.shape for x in outputs] == [(2, 60, 384), (2, 60), (2, 60, 2), (2, 2, 2)]
    shapes = np.asarray(jd.peek_image_shape(files))
    assert shapes.tolist() == [[[90, 130, 3], [77, 95, 3]], [[300, 420, 3], [90, 80, 3]]]


def test_headers_of_damaged_files_are_named():
    with pytest.raises(jaxdali.SampleError, match="image 1 of the sample: the data are not an image"):
        jd.peek_image_shape(jd.batch([rows([FILES[0], b"no image"])], layout="F*"))


def test_lists_of_files():
    """In functions of values a sample may be a list of files."""
    files = [[FILES[n] for n in sample] for sample in SAMPLES]
    shapes = jd.peek_image_shape(files)
    size = vlm.processors["qwen2-vl"].size(shapes)
    for numbers, sizes, images in zip(SAMPLES, size, shapes, strict=True):
        heights_and_widths = [ImageOps.exif_transpose(Image.open(io.BytesIO(FILES[n]))).size[::-1] for n in numbers]
        np.testing.assert_array_equal(np.asarray(images)[:, :2], np.reshape(heights_and_widths, (-1, 2)))
        assert np.asarray(sizes).shape == (len(numbers), 2)
    patches = functools.partial(jd.decoders.image_patches, size=(32, 48), length=LENGTH, **RESIZE, **CUTS)
    expected = [*packed(SAMPLES, dict.fromkeys(range(len(FILES)), (32, 48)))]
    for function in (patches, jd.jit(patches)):
        assert_equal([[np.asarray(x) for x in output] for output in function(files)], expected)


def test_batches_without_files():
    """Empty lists have no type, so the layout tells that they are lists of files."""
    files = jd.batch([[], []], layout="F*")
    assert (files.dtype, np.asarray(files).shape) == (np.uint8, (2, 0, 0))
    assert np.asarray(jd.peek_image_shape(files)).shape == (2, 0, 3)
    outputs = jd.decoders.image_patches(files, size=16, length=4, patch_size=8)
    assert [np.asarray(x).shape for x in outputs] == [(2, 4, 192), (2, 4), (2, 4, 2), (2, 0, 2)]
    assert not any(np.asarray(x).any() for x in outputs)
    with pytest.raises(TypeError, match=r'empty lists, which have no type; of files give jd\.batch\(.*layout="F\*"\)'):
        jd.peek_image_shape([[], []])


def test_functions_of_values_in_threads():
    expected = [patches_of(pixels(f, (32, 48)))[0] for f in FILES]

    def patches(k):
        files = [FILES[k % len(FILES)], FILES[(k + 1) % len(FILES)]]
        outputs = jd.decoders.image_patches(files, size=(32, 48), **RESIZE, **CUTS)
        return [np.asarray(x) for x in outputs[0]]

    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        for k, (a, b) in enumerate(threads.map(patches, range(32))):
            np.testing.assert_allclose(a, expected[k % len(FILES)], atol=1e-6)
            np.testing.assert_allclose(b, expected[(k + 1) % len(FILES)], atol=1e-6)


def sharded(num_shards=1, shard_id=0):
    samples = SAMPLES[shard_id * 2 : shard_id * 2 + 2] if num_shards == 2 else SAMPLES
    options = {"length": LENGTH, **RESIZE, **CUTS}
    return tuple(fn.decoders.image_patches(source(samples), size=sizes_of(samples), **options)[:3])


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("kernels", [True, False])
def test_shards_and_accelerators(devices, kernels, monkeypatch):
    """An accelerator gets the patches as bytes, and normalises them."""
    if not kernels:
        monkeypatch.setattr(ffi, "kernels_on", lambda device: frozenset())
        monkeypatch.setattr(Shards, "accelerator", property(lambda self: True))
    names = ["patches", "segments", "positions"]
    iterator = data_iterator(sharded, names, sharding=shardings.of_batch(devices), size=4)
    with iterator(batch_size=4, num_threads=2) as it:
        batch = next(it)
        launcher = it._stream.executors[0]._launcher
        largest = max(x.nbytes for _, operands in list(launcher.ran.values())[-1:] for x in jax.tree.leaves(operands))
    outputs = [[*np.asarray(batch[name])] for name in names]
    assert_equal(outputs, [x[:3] for x in packed(SAMPLES)])
    if not kernels:
        assert largest <= 4 * LENGTH * 384


def test_in_branches():
    def define():
        files = fn.external_source(lambda: [vector(f) for f in FILES[:3]])
        shape = fn.peek_image_shape(files)
        if shape[0] > shape[1]:
            patches, _, _, grid = fn.decoders.image_patches(files, size=(48, 32), length=24, **RESIZE, **CUTS)
        else:
            patches, _, _, grid = fn.decoders.image_patches(files, size=(32, 48), length=24, **RESIZE, **CUTS)
        return patches, grid

    (patches, grids), _ = run(define, batch_size=3, enable_conditionals=True)
    for i, size in enumerate([(32, 48), (32, 48), (48, 32)]):
        expected, _, grid = patches_of(pixels(FILES[i], size))
        np.testing.assert_allclose(patches[i], expected, atol=1e-6)
        assert grids[i].tolist() == grid.tolist()


def test_debug_mode():
    def define():
        return tuple(
            fn.decoders.image_patches(source(SAMPLES), size=sizes_of(SAMPLES), length=LENGTH, **RESIZE, **CUTS)
        )

    outputs, _ = run(define, debug=True)
    assert_equal(outputs, packed(SAMPLES))
