"""Patches of images and videos, compared with the code of the processors of `transformers` in NumPy."""

import itertools

import jax
import numpy as np
import places
import pytest
from pipelines import run

import jaxdali
import jaxdali.dynamic as jd
from jaxdali import Pipeline, fn, ops, pipeline_def, types

RNG = np.random.default_rng(3)
PHOTOS = str(places.PHOTOS)
SHAPES = [(32, 48, 3), (16, 16, 3), (64, 32, 3), (48, 96, 3)]
IMAGES = [RNG.integers(0, 256, shape, np.uint8) for shape in SHAPES]
CLIPS = [RNG.integers(0, 256, shape, np.uint8) for shape in ((1, 16, 32, 3), (4, 32, 16, 3), (3, 16, 16, 3))]
MEAN, STD = (122.77, 116.75, 104.09), (68.5, 66.63, 70.32)
QWEN = {"patch_size": 8, "merge_size": 2, "temporal_patch_size": 2, "patch_layout": "CFHW", "mean": MEAN, "std": STD}


def qwen(frames, patch=8, merge=2, frames_in_patch=2):
    """`Qwen2VLImageProcessor._preprocess`, after it has resized: the flat patches of frames FHWC, and their grid."""
    x = np.stack([(frame.astype(np.float64) - MEAN) / STD for frame in frames]).transpose(0, 3, 1, 2)
    if len(x) % frames_in_patch:
        x = np.concatenate([x, np.repeat(x[-1:], frames_in_patch - len(x) % frames_in_patch, axis=0)])
    _, channels, height, width = x.shape
    grid = len(x) // frames_in_patch, height // patch, width // patch
    x = x.reshape(grid[0], frames_in_patch, channels, grid[1] // merge, merge, patch, grid[2] // merge, merge, patch)
    x = x.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)
    return x.reshape(np.prod(grid), channels * frames_in_patch * patch**2), grid


def siglip(image, patch=8):
    """`convert_image_to_patches` of SigLIP 2."""
    rows, columns = image.shape[0] // patch, image.shape[1] // patch
    x = image.reshape(rows, patch, columns, patch, -1).transpose(0, 2, 1, 3, 4)
    return x.reshape(rows * columns, -1)


def places_of(grid, merge):
    """The place of each token, by loops."""
    times, rows, columns = grid
    return [
        (t, a * merge + c, b * merge + d)
        for t, a, b, c, d in itertools.product(
            range(times), range(rows // merge), range(columns // merge), range(merge), range(merge)
        )
    ]


def arrays(outputs):
    return [[np.asarray(x) for x in output] for output in outputs]


def test_images_of_qwen():
    patches, segments, positions, grids = arrays(run(lambda x: fn.patchify(x, **QWEN), IMAGES, layouts=["HWC"]))
    for k, image in enumerate(IMAGES):
        expected, grid = qwen([image, image])
        np.testing.assert_allclose(patches[k], expected, atol=1e-6)
        assert patches[k].dtype == np.float32
        assert grids[k].tolist() == list(grid[1:])
        assert segments[k].tolist() == [1] * len(expected)
        assert [tuple(p) for p in positions[k].tolist()] == [p[1:] for p in places_of(grid, 2)]


@pytest.mark.parametrize("length", [None, 32])
def test_videos_of_qwen(length):
    patches, segments, positions, grids = arrays(
        run(lambda x: fn.patchify(x, length=length, **QWEN), CLIPS, layouts=["FHWC"])
    )
    for k, clip in enumerate(CLIPS):
        expected, grid = qwen(clip)
        n = len(expected)
        np.testing.assert_allclose(patches[k][:n], expected, atol=1e-6)
        assert not patches[k][n:].any()
        assert len(patches[k]) == len(segments[k]) == len(positions[k]) == (length or n)
        assert grids[k].tolist() == list(grid)
        assert segments[k].tolist() == [1] * n + [0] * (len(patches[k]) - n)
        assert [tuple(p) for p in positions[k][:n].tolist()] == places_of(grid, 2)
        assert not positions[k][n:].any()


def test_padded_patches_of_siglip():
    def define(x):
        return fn.patchify(x, patch_size=8, mean=127.5, std=127.5, length=80)

    patches, mask, positions, grids = run(define, IMAGES)
    assert patches.as_array().shape == (4, 80, 192)
    for k, image in enumerate(IMAGES):
        expected = siglip(image / 127.5 - 1)
        n = len(expected)
        np.testing.assert_allclose(np.asarray(patches[k])[:n], expected, atol=1e-6)
        assert not np.asarray(patches[k])[n:].any()
        assert np.asarray(mask[k]).sum() == n
        rows, columns = np.asarray(grids[k])
        np.testing.assert_array_equal(
            np.asarray(positions[k])[:n, 0] * columns + np.asarray(positions[k])[:n, 1], range(n)
        )
        assert rows * columns == n


@pytest.mark.parametrize("layout", ["HWC", "CHW", "CWH", "WHC", "FHWC", "WCHF", "HFWC"])
def test_orders_of_elements(layout):
    """Rectangular patches, of which each element is looked up by itself."""
    height, width, frames = 4, 8, 3 if "F" in layout else 1

    def define(x):
        options = {"temporal_patch_size": frames, "patch_layout": layout, "dtype": types.UINT8}
        return fn.patchify(x, patch_size=(height, width), merge_size=2, **options)[0]

    extents = {"F": frames, "H": height, "W": width, "C": 3}
    for clips, names in ((CLIPS, "FHWC"), (IMAGES, "HWC")):
        (patches,) = arrays(run(define, clips, layouts=[names]))
        for clip, actual in zip(clips, patches, strict=True):
            x = clip if clip.ndim == 4 else clip[None]
            grid = -(-len(x) // frames), x.shape[1] // height, x.shape[2] // width
            expected = []
            for t, row, column in places_of(grid, 2):
                for index in itertools.product(*(range(extents[a]) for a in layout)):
                    index_of = {"F": 0, **dict(zip(layout, index, strict=True))}
                    f = min(t * frames + index_of["F"], len(x) - 1)
                    expected.append(x[f, row * height + index_of["H"], column * width + index_of["W"], index_of["C"]])
            assert actual.ravel().tolist() == expected


@pytest.mark.parametrize(
    ("source", "dtype"),
    [
        ("uint8", "float16"),
        ("uint8", "bfloat16"),
        ("int16", "uint8"),
        ("uint16", "float32"),
        ("float16", "bfloat16"),
        ("bfloat16", "float32"),
        ("float32", "uint8"),
        ("float32", "float32"),
    ],
)
def test_types(source, dtype):
    images = [(x.astype(np.int32) * (37 if source in ("int16", "uint16") else 1)).astype(source) for x in IMAGES]

    def define(x):
        options = {"mean": (3.0, 4.0, 5.0), "std": 7.0, "scale": 20.0, "shift": 2.0}
        return fn.patchify(x, patch_size=16, dtype=types.numpy_dtype(np.dtype(dtype)), **options)[0]

    (patches,) = arrays(run(define, images))
    for image, actual in zip(images, patches, strict=True):
        expected = siglip(20 * (image.astype(np.float64) - (3, 4, 5)) / 7 + 2, 16)
        assert actual.dtype == np.dtype(dtype)
        if dtype == "uint8":
            assert np.abs(actual - expected.clip(0, 255)).max() <= 0.501
        else:
            limit = np.finfo(np.float16).max if dtype == "float16" else np.inf
            tolerance = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 1e-2}[dtype]
            is_finite = np.abs(expected) < limit * 0.99
            np.testing.assert_allclose(
                actual.astype(np.float64)[is_finite], expected[is_finite], rtol=tolerance, atol=tolerance
            )


def test_statistics_per_sample():
    means = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9], [0, 0, 0]], np.float32)
    stds = np.array([[2], [3], [4], [5]], np.float32)

    def define(x, mean, std):
        return fn.patchify(x, patch_size=8, mean=mean, std=std, length=80)[0]

    (patches,) = run(define, IMAGES, means, stds)
    for k, image in enumerate(IMAGES):
        expected = siglip((image - means[k].astype(np.float64)) / stds[k])
        np.testing.assert_allclose(np.asarray(patches[k])[: len(expected)], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        (
            (40, 64, 3),
            {"merge_size": 2},
            r"40 x 64 pixels.*patch_size=\(8, 8\), merge_size=2.*multiple of 16.*length=None",
        ),
        ((64, 36, 3), {"length": 9}, r"64 x 36 pixels.*patch_size=\(8, 8\), merge_size=1.*multiple of 8.*length=9"),
        ((4, 4, 3), {}, r"4 x 4 pixels.*multiple of 8"),
        ((0, 64, 3), {}, r"empty image of shape \(0, 64, 3\)"),
        (
            (64, 64, 3),
            {"length": 63},
            r"64 x 64 pixels.*has 64 patches, more than length=63 \(patch_size=\(8, 8\), merge_size=1\)",
        ),
    ],
)
def test_sample_errors(shape, options, message):
    good = np.zeros((16, 16, 3), np.uint8)
    for output in range(4):  # each of them alone needs the check
        with pytest.raises(jaxdali.SampleError, match=message) as error:
            run(
                lambda x, k=output: fn.patchify(x, **{"patch_size": 8, **options})[k],
                [good, np.zeros(shape, np.uint8), good],
                layouts=["HWC"],
            )
        assert error.value.operator == "patchify"
        assert error.value.index == 1
    with pytest.raises((ValueError, RuntimeError), match=message):
        jd.patchify(np.zeros((2, *shape), np.uint8), **{"patch_size": 8, **options})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"patch_layout": "HWK"}, ValueError, "patch_layout must be a permutation"),
        ({"patch_layout": "HW"}, ValueError, "patch_layout must be a permutation"),
        ({"temporal_patch_size": 2}, ValueError, "needs a patch_layout with F"),
        ({"std": [1.0, 0.0, 1.0]}, ValueError, "std divides"),
        ({"mean": [1.0, 2.0]}, ValueError, "argument mean must have 1 or 3 numbers"),
        ({"std": [1.0, 2.0, 3.0, 4.0]}, ValueError, "argument std must have 1 or 3 numbers"),
        ({"dtype": types.INT32}, TypeError, "argument dtype"),
        ({"patch_size": (1, 2, 3)}, ValueError, "argument patch_size"),
        ({"patch_size": 0}, ValueError, "argument patch_size"),
        ({"length": 0}, ValueError, "argument length"),
    ],
)
def test_argument_errors(options, error, message):
    with pytest.raises(error, match=message):
        run(
            lambda x: fn.patchify(fn.resize(x, size=(16, 16)), **{"patch_size": 8, **options})[0],
            [np.zeros((16, 16, 3), np.uint8)],
            layouts=["HWC"],
        )


@pytest.mark.parametrize(
    ("x", "layout", "message"),
    [
        (np.zeros((3, 16, 16), np.uint8), "CHW", "layout HWC, FHWC"),
        (np.zeros((16, 16), np.uint8), "HW", 'new_axis_names="C"'),
        (np.zeros((16, 16, 3), np.int32), "HWC", "fn.cast"),
    ],
)
def test_other_inputs_are_errors(x, layout, message):
    with pytest.raises((ValueError, TypeError), match=message):
        run(lambda x: fn.patchify(x, patch_size=8)[0], [x], layouts=[layout])


def test_means_of_other_images_fail():
    with pytest.raises(jaxdali.SampleError, match="3 numbers in mean or std, but the image has 1 channels"):
        run(lambda x: fn.patchify(x, patch_size=8, mean=MEAN)[0], [IMAGES[1], IMAGES[1][:, :, :1]])


def photos(length=None, fuse=True, shapes=False, **options):
    """The outputs of a batch of photos, and the text of its program."""

    @pipeline_def(batch_size=6, num_threads=2, seed=1, fuse=fuse, **options)
    def define():
        jpegs, _ = fn.readers.file(file_root=PHOTOS)
        size = fn.random.uniform(values=[32.0, 48.0, 64.0], shape=2)
        images = fn.resize(fn.decoders.image(jpegs), size=size, interp_type=types.INTERP_CUBIC)
        outputs = fn.patchify(images, length=length, **QWEN)
        return *outputs, *((fn.shapes(images),) if shapes else ())

    p = define()
    return arrays(x.as_cpu() for x in p.run()), p.lower(0).as_text()


@pytest.mark.parametrize("shapes", [False, True])
@pytest.mark.parametrize("length", [None, 64])
def test_one_native_call_from_bytes(length, shapes):
    """All four outputs, and the shapes of the images, are there without the images."""
    fused, text = photos(length, shapes=shapes)
    expected, plain = photos(length, shapes=shapes, fuse=False)
    assert text.count("@jaxdali_chain") == 1
    assert "@jaxdali_patchify" not in text
    assert "@jaxdali_chain" not in plain
    for a, b in zip(fused, expected, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y, atol=1.01 / 66)  # a level of 255


def test_images_with_other_readers_stay():
    @pipeline_def(batch_size=2, num_threads=2, seed=1)
    def define():
        jpegs, _ = fn.readers.file(file_root=PHOTOS)
        images = fn.resize(fn.decoders.image(jpegs), size=(32, 48))
        return images, fn.patchify(images, patch_size=8, dtype=types.UINT8)[0]

    p = define()
    images, patches = p.run()
    for image, x in zip(images, patches, strict=True):
        np.testing.assert_array_equal(np.asarray(x), siglip(np.asarray(image)))


def test_unused_outputs_cost_nothing():
    @pipeline_def(batch_size=4, num_threads=2, enable_statistics=True)
    def define():
        images = fn.external_source(lambda: IMAGES, layout="HWC")
        return fn.patchify(images, patch_size=8, name="patches")[0]

    p = define()
    p.run()
    assert len([m for m in p.statistics() if m.stage == "host" and "patchify" in m.step]) == 1  # the grid


@pytest.mark.parametrize("kind", [np.asarray, jax.numpy.asarray, list])
def test_functions_of_values(kind):
    image = IMAGES[0]
    patches, segments, positions, grids = jd.patchify(kind([image, image]), **QWEN)
    expected, grid = qwen([image, image])
    np.testing.assert_allclose(np.asarray(patches[1]), expected, atol=1e-6)
    assert np.asarray(grids[1]).tolist() == list(grid[1:])
    assert np.asarray(segments[1]).sum() == len(expected) == len(np.asarray(positions[1]))


@pytest.mark.parametrize("compiler", [jax.jit, jd.jit])
def test_in_compiled_programs(compiler):
    images = np.stack([IMAGES[0]] * 2)

    @compiler
    def patches(x):
        return jd.patchify(x, length=30, **QWEN)

    outputs = [np.asarray(x) for x in patches(images)]
    expected, _ = qwen([IMAGES[0]] * 2)
    assert [x.shape for x in outputs] == [(2, 30, 384), (2, 30), (2, 30, 2), (2, 2)]
    np.testing.assert_allclose(outputs[0][1, :24], expected, atol=1e-6)
    assert not outputs[0][:, 24:].any()
    assert outputs[1].sum() == 48


def test_class_of_ops():
    patchify = ops.Patchify(**QWEN)
    (patches,) = arrays(run(lambda x: patchify(x)[0], IMAGES))
    np.testing.assert_allclose(patches[0], qwen([IMAGES[0]] * 2)[0], atol=1e-6)


@pytest.mark.parametrize("debug", [False, True])
def test_in_branches(debug):
    batch = [*IMAGES]

    @pipeline_def(batch_size=4, num_threads=2, enable_conditionals=True, debug=debug)
    def define():
        images = fn.external_source(lambda: batch, layout="HWC")
        if images.shape()[0] > 40:
            patches, mask, positions, grid = fn.patchify(images, patch_size=16, merge_size=2, length=30)
        else:
            patches, mask, positions, grid = fn.patchify(images, patch_size=16, length=30)
        return patches, mask, positions, grid

    # The last image is no multiple of a block, and takes the first branch.
    with pytest.raises(jaxdali.SampleError, match="48 x 96"):
        define().run()
    batch[3] = batch[2]
    patches, mask, positions, grids = arrays(define().run())
    for k, image in enumerate(batch):
        merge = 2 if image.shape[0] > 40 else 1
        grid = 1, image.shape[0] // 16, image.shape[1] // 16
        expected = places_of(grid, merge)
        assert [tuple(p) for p in positions[k][: len(expected)].tolist()] == [p[1:] for p in expected]
        assert mask[k].sum() == len(expected)
        assert grids[k].tolist() == list(grid[1:])
        for row, (_, y, x) in zip(patches[k], expected):
            np.testing.assert_array_equal(row, image[16 * y : 16 * y + 16, 16 * x : 16 * x + 16].ravel())


def test_serialized_pipeline():
    @pipeline_def(batch_size=4, num_threads=2)
    def define():
        return tuple(fn.patchify(fn.external_source(name="images", layout="HWC"), length=80, **QWEN))

    p = define()
    copy = Pipeline.deserialize(p.serialize())
    for x in (p, copy):
        x.feed_input("images", IMAGES)
    for a, b in zip(arrays(p.run()), arrays(copy.run()), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("dtype", "on_device", "operand"),
    [
        (types.UINT8, False, "tensor<4x30x384xui8>"),
        (types.UINT8, True, "tensor<4x32x48x3xui8>"),
        (types.INT16, False, None),
    ],
)
def test_accelerator_without_kernels(played, dtype, on_device, operand):
    """Where the images are on the accelerator, it makes the patches. Otherwise it gets them as bytes. Those of wider
    integers come from the CPU as they are.
    """

    @pipeline_def(batch_size=4, num_threads=2, seed=1)
    def define():
        jpegs, _ = fn.readers.file(file_root=PHOTOS)
        images = fn.resize(fn.decoders.image(jpegs, device="mixed", dtype=dtype), size=(32, 48))
        images = fn.cast(images, dtype=types.FLOAT) if on_device else images
        return tuple(fn.patchify(images, length=30, **QWEN))

    expected = arrays(x.as_cpu() for x in define().run())
    played()
    p = define()
    actual = arrays(x.as_cpu() for x in p.run())
    for a, b in zip(actual, expected, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y, atol=1e-5)
    if operand is not None:
        assert operand in p.lower(1).as_text().partition("main(")[2].partition("\n")[0]
