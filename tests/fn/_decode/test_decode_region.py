"""decoders.image_crop, image_slice, image_random_crop: cuts of the whole image, with the windows that DALI takes."""

import functools

import numpy as np
import pytest
import shardings
from images import decode, decode_pipeline, encode, picture, png

import jaxdali
from jaxdali import fn, types
from jaxdali._pipeline.pipeline import internals_of
from jaxdali.fn._families.random_windows import random_windows
from jaxdali.plugin.jax import data_iterator

pytestmark = pytest.mark.same_with_any_jax

crop, slice_, random_crop = fn.decoders.image_crop, fn.decoders.image_slice, fn.decoders.image_random_crop


def coordinates(height, width):
    """An image whose pixels say where they are."""
    y, x = np.mgrid[:height, :width]
    return png(np.stack([y % 256, x % 256, y // 256 * 16 + x // 256], -1).astype(np.uint8))


def window(image):
    """(y, x, height, width) of a part of an image of `coordinates`."""
    y, x, high = image[0, 0].tolist()
    return y + high // 16 * 256, x + high % 16 * 256, *image.shape[:2]


def window_of(operator, size=(97, 131), inputs=(), **arguments):
    """The window of an image that an operator returns; arrays among inputs and arguments are per sample."""

    def source(x):
        return fn.external_source(source=lambda: [x]) if isinstance(x, np.ndarray) else x

    def apply(images, **_):
        return operator(images, *map(source, inputs), **{k: source(v) for k, v in arguments.items()})

    return window(decode([coordinates(*size)], apply)[0])


KINDS = [
    ("JPEG", {"subsampling": 2}),
    ("JPEG", {"subsampling": 1, "progressive": True}),
    ("JPEG", {"subsampling": 0}),
    ("PNG", {}),
    ("TIFF", {}),
]
FILES = [
    encode(picture(61, 47, seed=o), kind, orientation=o, **options) for kind, options in KINDS for o in range(1, 9)
]
FILES += [
    encode(picture(61, 47, 1), "JPEG"),
    png(picture(47, 61, 4), interlaced=True),
    png(picture(47, 61, 3, np.uint16)),
]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"output_type": types.GRAY},
        {"output_type": types.YCbCr, "dtype": types.FLOAT},
        {"output_type": types.ANY_DATA, "dtype": types.UINT16},
        {"adjust_orientation": False},
        {"use_fast_idct": True, "output_type": types.BGR},
    ],
)
def test_is_a_cut_of_the_whole_image(arguments):
    whole = decode(FILES, **arguments)
    rng = np.random.default_rng(1)
    for _ in range(6):
        size = rng.integers(1, 48, (len(FILES), 2))
        start = np.array([rng.integers(0, np.array(x.shape[:2]) - s + 1) for x, s in zip(whole, size, strict=True)])

        def cut(files, start=start, size=size, **arguments):
            start, size = (fn.external_source(source=functools.partial(list, x)) for x in (start, size))
            return slice_(files, start, size, axes=(0, 1), **arguments)

        for i, x in enumerate(decode(FILES, cut, **arguments)):
            (y0, x0), (h, w) = start[i], size[i]
            np.testing.assert_array_equal(x, whole[i][y0 : y0 + h, x0 : x0 + w], err_msg=f"file {i}: {y0, x0, h, w}")


f32 = np.float32


# What DALI 2.4 takes of an image of 97 x 131.
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, (0, 0, 97, 131)),
        ({"crop": (40.5, 50.9)}, (29, 41, 40, 50)),
        ({"crop": (3, 40, 50)}, (29, 41, 40, 50)),
        ({"crop": (0, 50)}, (0, 41, 97, 50)),
        ({"crop": (97.5, 131)}, (0, 0, 97, 131)),
        ({"crop": np.array([40.5, 50], f32)}, (29, 41, 40, 50)),
        ({"crop_h": 0.5, "crop_w": 10}, (0, 61, 97, 10)),
        ({"crop_h": np.array(40, f32), "crop_w": np.array(31.5, f32)}, (29, 50, 40, 31)),
        ({"crop_h": 40, "crop_w": 20, "crop_d": 3, "crop_pos_z": 9.0}, (29, 56, 40, 20)),
        ({"crop": (40, 50), "crop_pos_x": 0.0}, (29, 0, 40, 50)),
        ({"crop": (40, 51), "crop_pos_x": np.array(0.3, f32)}, (29, 24, 40, 51)),
        ({"crop": (40, 50), "crop_pos_y": 1.0}, (57, 41, 40, 50)),
        ({"crop": (40, 50), "rounding": "truncate"}, (28, 40, 40, 50)),
        ({"crop": (40, 50), "rounding": "torchvision"}, (28, 40, 40, 50)),
        ({"crop": (38, 48), "rounding": "torchvision"}, (30, 42, 38, 48)),
        ({"crop": (7, 31), "crop_pos_y": 0.35, "crop_pos_x": 0.35}, (31, 35, 7, 31)),  # 0.35 * 90 is less than 31.5
    ],
)
def test_crop(arguments, expected):
    assert window_of(crop, **arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"start": (5, 3)}, (3, 5, 94, 126)),
        ({"end": (50, 40)}, (0, 0, 40, 50)),
        ({"shape": (50, 40)}, (0, 0, 40, 50)),
        ({"rel_start": (0.1, 0.2)}, (19, 13, 78, 118)),
        ({"rel_end": (0.5, 0.6)}, (0, 0, 58, 66)),
        ({"rel_shape": (0.5, 0.6)}, (0, 0, 58, 66)),
        ({"start": (3, 5), "end": (20, 30)}, (5, 3, 25, 17)),
        ({"start": (3, 5), "rel_end": (0.5, 0.6)}, (5, 3, 53, 63)),
        ({"start": (3, 4), "rel_shape": (0.5, 0.6)}, (4, 3, 58, 66)),
        ({"rel_start": (0.1, 0.2), "shape": (20, 30)}, (19, 13, 30, 20)),
        ({"rel_start": (0.1, 0.3), "rel_shape": (0.5, 0.5)}, (29, 13, 49, 66)),
        ({"start": 5, "shape": (20, 30)}, (5, 5, 30, 20)),
        ({"start": (5, 6), "shape": 20, "axes": (0, 1)}, (5, 6, 20, 20)),
        ({"start": (5, 6), "shape": (20, 30), "axes": (-2, -1)}, (5, 6, 20, 30)),
        ({"start": 5, "shape": 30, "axes": 0}, (5, 0, 30, 131)),
        ({"start": (5, 6), "shape": (30, 20), "axes": np.array([0, 1], np.int32)}, (5, 6, 30, 20)),
        ({"start": (5, 6), "shape": (20, 30), "axis_names": "HW"}, (5, 6, 20, 30)),
        ({"start": (5,), "shape": (30,), "axis_names": "W"}, (0, 5, 97, 30)),
        ({"rel_start": (-0.001, 0), "rel_end": (0.5, 1.001)}, (0, 0, 97, 66)),
        ({"start": np.array([5, 6], np.int32), "shape": np.array([20, 30], np.int32)}, (6, 5, 30, 20)),
        ({"rel_start": np.array([0.1, 0.2], f32), "rel_shape": np.array([0.3, 0.4], f32)}, (19, 13, 39, 39)),
        ({"inputs": (np.array([0.1, 0.2], f32), np.array([0.5, 0.5], f32))}, (19, 13, 49, 66)),
        ({"inputs": (np.array([5, 6]), np.array([20, 30]))}, (6, 5, 30, 20)),
        ({"inputs": (np.array([0.1, 0.1], f32), np.array([20, 30], f32)), "normalized_shape": False}, (10, 13, 30, 20)),
        ({"inputs": (np.array([5, 6], f32), np.array([0.5, 0.5], f32)), "normalized_anchor": False}, (6, 5, 49, 66)),
        ({"inputs": (np.array([0.1, 0.2], f32), np.array([0.5, 0.5], f32)), "axes": (0, 1)}, (10, 26, 48, 66)),
        ({"rel_start": 0.65, "rel_shape": 0.04, "size": (150, 150)}, (98, 98, 5, 5)),  # 0.69 * 150 is less than 103.5
    ],
)
def test_slice(arguments, expected):
    assert window_of(slice_, **arguments) == expected


def drawn(n=3000, size=(97, 131), seed=0, **arguments):
    """Windows of n samples."""
    image = coordinates(*size)
    return np.array(
        [window(x) for x in decode([image] * n, lambda x: random_crop(x, seed=seed, **arguments))], np.float64
    )


@pytest.mark.parametrize(
    ("size", "arguments", "means"),
    [
        ((97, 131), {}, (13.38, 28.67, 70.16, 73.31)),
        ((100, 100), {"random_area": (0.3, 0.3), "random_aspect_ratio": (2.0, 2.0)}, None),
        ((41, 37), {"num_attempts": 2, "random_area": (0.5, 0.9)}, (4.159, 2.620, 32.68, 31.75)),
        ((100, 150), {"num_attempts": 1}, (9.08, 27.26, 82.13, 95.45)),
        ((20, 400), {"random_area": (0.05, 0.06)}, (0.388, 187.7, 19.23, 22.61)),
        ((400, 20), {"random_area": (0.05, 0.2)}, (187.3, 0.097, 25.10, 19.81)),
        ((20, 400), {}, (0, 187.4, 20, 26)),  # no window of an allowed shape is large enough
    ],
)
def test_random_crop_is_distributed_as_in_dali(size, arguments, means):
    """`means`: of y, x, height, width in DALI 2.4, of 3000 to 12000 windows."""
    windows = drawn(size=size, **arguments)
    if means is None:
        assert (windows[:, 2:] == (38, 77)).all()  # 39 is too high for the ratio
        means = (31, 11.5, 38, 77)  # all places are equally likely
    error = windows.std(axis=0) * np.sqrt(1 / 3000 + 1 / 3000)
    assert (np.abs(windows.mean(axis=0) - means) <= 4 * error + 0.01).all()


def test_random_crop_of_whole_images():
    assert (drawn(9, random_area=1.0, random_aspect_ratio=131 / 97) == (0, 0, 97, 131)).all()
    assert (drawn(9, random_area=1.0)[:, [0, 2, 3]] == (0, 97, 129)).all()


def test_random_windows_fit():
    rng = np.random.default_rng(0)
    extents = rng.integers(1, 60, (20000, 2))
    for area, aspect_ratio in (((0.0, 2.0), (0.01, 100.0)), ((0.5, 1.0), (3.0, 3.0)), ((1.5, 2.0), (0.5, 2.0))):
        start, size = random_windows(rng.random((20000, 8)), extents, area, aspect_ratio)
        assert (size >= 1).all()
        assert (start >= 0).all()
        assert (start + size <= extents).all()


def test_seed():
    assert (drawn(9) == drawn(9)).all()
    assert (drawn(9) != drawn(9, seed=1)).any()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """24 images, each of its own colour."""
    path = tmp_path_factory.mktemp("images")
    for i in range(24):
        (path / "class").mkdir(exist_ok=True)
        image = picture(40, 50)
        image[..., 2] = 10 * i
        (path / "class" / f"{i:02}.png").write_bytes(png(image))
    return path


def iterator(folder, shards, batch_size):
    @data_iterator(output_map=["images", "shapes"], reader_name="reader", sharding=shardings.of_batch(shards))
    def define(num_shards=1, shard_id=0):
        files, _ = fn.readers.file(
            file_root=folder, random_shuffle=True, name="reader", num_shards=num_shards, shard_id=shard_id
        )
        images = random_crop(files)
        return fn.resize(images, size=(8, 8), interp_type=types.INTERP_NN), images.shape()

    return define(batch_size=batch_size, seed=4, enable_checkpointing=True)


def windows_by_image(batches):
    return [
        {
            int(image[0, 0, 2]): (tuple(shape), image.tobytes())
            for image, shape in zip(*map(np.asarray, b.values()), strict=True)
        }
        for b in batches
    ]


def test_random_crop_belongs_to_the_sample(folder):
    """The window depends neither on the batch size nor on the number of shards, nor on a checkpoint between."""

    def epoch(batches):
        return {k: v for b in windows_by_image(batches) for k, v in b.items()}

    with iterator(folder, 1, 4) as it:
        first, second = epoch(it), epoch(it)
    assert len(first) == len(second) == 24
    assert first != second
    for shards, batch_size in ((1, 6), (2, 8), (4, 24)):
        with iterator(folder, shards, batch_size) as it:
            assert epoch(it) == first
            assert epoch(it) == second
    with iterator(folder, 1, 4) as it:
        next(it)
        state = it.get_state()
        remaining = windows_by_image(it)
        with iterator(folder, 1, 4) as resumed:
            resumed.set_state(state)
            assert windows_by_image(resumed) == remaining


def test_serialization(folder):
    @jaxdali.pipeline_def(batch_size=4, seed=1, exec_pipelined=False, exec_async=False)
    def define():
        files, labels = fn.readers.file(file_root=folder)
        return (
            crop(files, crop=(9, 8), crop_pos_x=fn.random.uniform(range=(0.0, 1.0))),
            slice_(files, end=labels + 5),
            random_crop(files),
        )

    pipe = define()
    restored = jaxdali.Pipeline.deserialize(pipe.serialize())
    for x, y in zip(pipe.run(), restored.run(), strict=True):
        for a, b in zip(x.as_cpu(), y.as_cpu(), strict=True):
            np.testing.assert_array_equal(a, b)


def test_known_sizes_are_static():
    """So that the result is one array."""

    def shapes(make):
        pipeline = decode_pipeline([coordinates(97, 131)], make)
        pipeline.run()
        (spec,) = internals_of(pipeline).session.executor.plan.output_specs
        return spec.shape, spec.dims

    assert shapes(lambda x: crop(x, crop=(40, 50))) == ((40, 50, 3), None)
    assert shapes(lambda x: crop(x, crop_h=0, crop_w=50)) == (None, (None, 50, 3))
    assert shapes(lambda x: crop(x, crop=(40, 50), output_type=types.ANY_DATA)) == (None, (40, 50, None))
    assert shapes(lambda x: crop(x, crop=fn.random.uniform(range=(4.0, 4.5), shape=2))) == (None, (None, None, 3))
    assert shapes(lambda x: slice_(x, rel_start=0.1, shape=(50, 40))) == ((40, 50, 3), None)
    assert shapes(lambda x: slice_(x, start=1, shape=(50,), axis_names="W")) == (None, (None, 50, 3))
    assert shapes(lambda x: slice_(x, start=1, end=(50, 40))) == (None, (None, None, 3))
    replace = {"on_error": "replace", "replace_shape": (40, 7, 3)}
    assert shapes(lambda x: crop(x, crop=(40, 50), **replace)) == (None, (40, None, 3))


@pytest.mark.parametrize(
    ("define", "rows"),
    [
        (lambda x: crop(x, crop=(30, 20)), "reaches outside the image: rows -5 to 25, columns 5 to 25"),
        (lambda x: slice_(x, end=(31, 9)), "reaches outside the image: rows 0 to 9, columns 0 to 31"),
        (lambda x: slice_(x, start=20, axis_names="H"), "is empty: rows 20 to 20, columns 0 to 30"),
        (lambda x: slice_(x, start=20, rel_end=0.5, axis_names="W"), "is empty: rows 0 to 20, columns 20 to 15"),
    ],
)
def test_window_outside_raises(tmp_path, define, rows):
    for i, size in enumerate([(60, 60), (20, 30)]):
        (tmp_path / f"{i}.png").write_bytes(coordinates(*size))

    @jaxdali.pipeline_def(batch_size=2)
    def pipeline():
        files, _ = fn.readers.file(files=[str(tmp_path / f"{i}.png") for i in (0, 1)])
        return define(files)

    with pytest.raises(jaxdali.SampleError, match=rf"1\.png: the window .*{rows}.* height 20 and width 30") as e:
        pipeline().run()
    assert e.value.source.endswith("1.png")
    assert e.value.operator in ("decoders.image_crop", "decoders.image_slice")
    assert "test_decode_region.py" in e.value.where


def test_bad_samples_are_replaced():
    files = [coordinates(97, 131), b"no image", coordinates(20, 131), coordinates(50, 60), coordinates(50, 50)[:200]]
    pipeline = decode_pipeline(files, crop, crop=(40, 50), on_error="replace")
    (images,) = pipeline.run()
    assert [window(np.array(x)) for x in images.as_cpu()] == [(29, 41, 40, 50), *[(5, 5, 40, 50)] * 3, (29, 41, 40, 50)]
    reasons = [b.reason for b in pipeline.bad_samples()]
    assert len(reasons) == 3
    assert any("rows -10 to 30" in r for r in reasons)
    replaced = decode(files, crop, crop=(40, 50), on_error="replace", replace_shape=(3, 4, 3))
    assert [x.shape[:2] for x in replaced] == [(40, 50), (3, 4), (3, 4), (40, 50), (3, 4)]


def test_errors_name_the_operator():
    for operator, arguments in ((crop, {}), (slice_, {"start": 1}), (random_crop, {})):
        for data in (b"no image", encode(picture(60, 60), "JPEG")[:640]):  # ends soon after the headers
            with pytest.raises(jaxdali.SampleError) as e:
                decode([data], operator, **arguments)
            assert e.value.operator == f"decoders.{operator.__name__}"


anchor = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("operator", "arguments", "error", "text"),
    [
        (crop, {"crop": 40}, ValueError, "crop must be a list of 2 or 3 .*, got 40"),
        (crop, {"crop": (40, float("inf"))}, ValueError, "crop must be a list of 2 or 3 finite"),
        (crop, {"crop": np.ones(1, f32)}, RuntimeError, "crop must have 2 or 3 numbers per sample, got 1"),
        (crop, {"crop_h": 40}, ValueError, "crop_h and crop_w must be given together"),
        (crop, {"crop": (4, 5), "crop_d": 1}, ValueError, "crop_d must be given together with"),
        (crop, {"crop": (4, 5), "crop_h": 4, "crop_w": 5}, ValueError, "not both"),
        (crop, {"crop": (4, 5), "crop_pos_x": 1.5}, ValueError, "crop_pos_x must be a number in 0 ... 1"),
        (
            crop,
            {"crop": (4, 5), "crop_pos_y": np.array(-1, f32)},
            RuntimeError,
            "crop_pos_y must be in 0 ... 1, got -1",
        ),
        (crop, {"crop": (4, 5), "rounding": "up"}, ValueError, "rounding must be"),
        (crop, {"output_type": 9}, ValueError, "output_type must be"),
        (slice_, {}, ValueError, "the window must be given"),
        (slice_, {"inputs": (anchor,)}, ValueError, "anchor and shape must be given together"),
        (slice_, {"inputs": (anchor, anchor), "start": 1}, ValueError, "got the inputs and start"),
        (slice_, {"inputs": (anchor, np.zeros(2, int))}, TypeError, "both be integers or both be floats"),
        (
            slice_,
            {"inputs": (anchor[:1], anchor[:1])},
            RuntimeError,
            "anchor must have a number for each of the 2 axes, got 1",
        ),
        (slice_, {"start": 1, "rel_start": 0.5}, ValueError, "only one of start, rel_start"),
        (
            slice_,
            {"end": 1, "shape": 1},
            ValueError,
            "only one of end, rel_end, shape, rel_shape can be given, got end, shape",
        ),
        (slice_, {"start": (1, 2, 3)}, ValueError, "start must have a number for each of the 2 axes"),
        (slice_, {"start": np.ones(3, int)}, RuntimeError, "start must have 1 or 2 numbers per sample, got 3"),
        (slice_, {"shape": (5, 0)}, ValueError, "shape must be positive"),
        (slice_, {"start": 1, "axes": (0, 0)}, ValueError, "axes must be"),
        (slice_, {"start": 1, "axes": (0, 2)}, ValueError, "axes must be"),
        (slice_, {"start": 1, "axes": np.array([0, -2])}, RuntimeError, "axes must be"),
        (slice_, {"start": 1, "axis_names": "HWC"}, ValueError, "axis_names must be"),
        (slice_, {"start": 1, "axis_names": "H", "axes": 0}, ValueError, "either axes or axis_names"),
        (random_crop, {"random_area": (0.5, 0.2)}, ValueError, r"random_area must be \(lowest, highest\)"),
        (random_crop, {"random_area": (0.1, 0.2, 0.3)}, ValueError, "random_area must be"),
        (random_crop, {"random_aspect_ratio": (0, 1)}, ValueError, "random_aspect_ratio must be"),
        (random_crop, {"num_attempts": 0}, ValueError, "num_attempts must be .* at least 1"),
        (random_crop, {"num_attempts": 2.5}, ValueError, "num_attempts must be a whole number at least 1, got 2.5"),
        (random_crop, {"random_area": "large"}, ValueError, "random_area must be"),
        (crop, {"crop": (4, 5), "crop_pos_x": (0.5, 0.5)}, ValueError, "crop_pos_x must be a number in 0 ... 1"),
        (crop, {"crop": (4, 5), "crop_pos_x": "left"}, TypeError, "crop_pos_x must be a number"),
        (
            crop,
            {"on_error": "replace", "replace_shape": (4.5, 5, 3)},
            TypeError,
            "replace_shape must be a list of 3 whole",
        ),
        (crop, {"on_error": "replace", "replace_shape": (4, 5)}, ValueError, "replace_shape must be a list of 3"),
        (
            crop,
            {"on_error": "replace", "replace_shape": (4, 5, 1)},
            ValueError,
            r"replace_shape must be \(height, width, 3\)",
        ),
        (slice_, {"start": (0.5, 1)}, TypeError, r"start must be .* whole numbers.*got \(0.5, 1\)"),
        (slice_, {"rel_start": float("nan")}, ValueError, "rel_start must be .* finite number.*got nan"),
        (slice_, {"rel_start": np.array([np.nan, 0], f32)}, RuntimeError, "rel_start must be finite, got"),
    ],
)
def test_wrong_arguments(operator, arguments, error, text):
    with pytest.raises(error, match=f"decoders.{operator.__name__}.*{text}"):
        window_of(operator, **arguments)


@pytest.mark.parametrize(
    "arguments", [{"start": (-1, 3)}, {"rel_start": -0.5}, {"start": -1, "end": 0}, {"rel_start": 1.5}]
)
def test_windows_outside_of_all_images(arguments):
    with pytest.raises(jaxdali.SampleError, match=r"the window (reaches outside the image|is empty): "):
        window_of(slice_, **arguments)
