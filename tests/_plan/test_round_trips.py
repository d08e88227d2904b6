"""Values that a program computes and the host needs: the program ends with them, and another program follows."""

import logging

import numpy as np
import pytest
import shardings
from images import encode, picture
from pipelines import run

from jaxdali import fn, pipeline_def, types
from jaxdali.plugin.jax import data_iterator

RNG = np.random.default_rng(0)
IMAGES = [RNG.integers(0, 255, (10 + i, 12 - i, 3), dtype=np.uint8) for i in range(4)]
BOXES = [np.sort(RNG.random((n, 2, 2)), axis=1).reshape(n, 4).astype(np.float32) for n in (3, 5, 2, 4)]
SCALARS = np.array([0.5, 0.25, 1.0, 0.75], np.float32)


def measured(pipe):
    """Returns the number of rows of the stages "launch" and "to host" in the statistics."""
    stages = [row.stage for row in pipe.statistics() if row.calls]
    return {stage: stages.count(stage) for stage in ("launch", "to host")}


def outputs(define, **options):
    """Returns the samples of each output of the second batch, and the result of `measured`."""
    pipe = pipeline_def(
        define, batch_size=4, num_threads=2, device_id=None, seed=1, enable_statistics=True, **options
    )()
    pipe.run()
    samples = [[np.asarray(x) for x in output.as_cpu()] for output in pipe.run()]
    rows = measured(pipe)
    pipe.close()
    return samples, rows


def fed(samples, layout=None):
    return fn.external_source(lambda: list(samples), layout=layout)


def with_mean(images):
    """Expected results of `brightness=mean(image) / 128`."""
    return [np.clip(np.round(x * (x.mean() / 128)), 0, 255) for x in images]


def test_argument_from_images(caplog):
    def define():
        images = fed(IMAGES, "HWC")
        return fn.brightness_contrast(images, brightness=fn.reductions.mean(fn.flip(images)) / 128.0), fn.flip(images)

    with caplog.at_level(logging.WARNING):
        (bright, flipped), rows = outputs(define)
    for actual, expected in zip(bright, with_mean(IMAGES), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1)
    for actual, image in zip(flipped, IMAGES, strict=True):
        np.testing.assert_array_equal(actual, image[:, ::-1])
    assert rows == {"launch": 2, "to host": 1}
    (record,) = [r for r in caplog.records if "brightness_contrast" in r.getMessage()]  # once, not in each batch
    assert f"{__file__}:" in record.getMessage()


def test_crop_to_box_of_padded_label():
    """The foreground crop of 3-D training: label and image are padded, and cut to an object of the label."""
    labels = []
    for i in range(4):
        label = np.zeros((5 + i, 6, 7, 1), np.uint8)
        label[1 : 3 + i, 2:4, 3:6] = 1
        labels.append(label)
    volumes = [RNG.random(x.shape).astype(np.float32) for x in labels]

    def define():
        image, label = (fn.pad(fed(x, "DHWC"), axes=[0, 1, 2], shape=[10, 9, 8]) for x in (volumes, labels))
        start, stop = fn.segmentation.random_object_bbox(
            label, foreground_prob=1.0, background=0, format="start_end", ignore_class=True
        )
        cut = [fn.slice(x, start[:3], stop[:3] - start[:3], axes=[0, 1, 2]) for x in (image, label)]
        return start, stop, *cut

    (start, stop, image, label), rows = outputs(define)
    for i in range(4):
        assert (start[i].tolist(), stop[i].tolist()) == ([1, 2, 3, 0], [3 + i, 4, 6, 1])
        np.testing.assert_array_equal(image[i], volumes[i][1 : 3 + i, 2:4, 3:6])
        np.testing.assert_array_equal(label[i], 1)
    assert rows == {"launch": 2, "to host": 1}


def test_boxes_stay_on_the_host():
    """Boxes that are transposed, cut, padded and mirrored before a crop of detection training need no program."""

    def define():
        boxes = fn.transpose(fn.transpose(fed(BOXES), perm=[1, 0]), perm=[1, 0])
        boxes = fn.pad(fn.slice(boxes, 0, 2, axes=[0]), axes=[0], shape=[3], fill_value=0.5)
        boxes = fn.bb_flip(boxes.gpu(), ltrb=True)
        whole = {"thresholds": [0.0], "scaling": [1.0, 1.0], "aspect_ratio": [1.0, 1.0]}
        cropped = fn.random_bbox_crop(boxes, bbox_layout="xyXY", allow_no_crop=False, **whole)[2]
        coded, _ = fn.box_encoder(
            boxes, fed([np.arange(3, dtype=np.int32)] * 4), anchors=[0.0, 0.0, 1.0, 1.0], criteria=0.0
        )
        return cropped, coded

    (cropped, coded), rows = outputs(define)
    for crop, code, box in zip(cropped, coded, BOXES, strict=True):
        x0, y0, x1, y1 = np.vstack([box[:2], np.full((1, 4), 0.5, np.float32)]).T
        np.testing.assert_allclose(crop, np.stack([1 - x1, y0, 1 - x0, y1], axis=1), rtol=1e-6)
        assert code.shape == (1, 4)
    assert rows == {"launch": 0, "to host": 0}


@pytest.mark.parametrize(
    "window",
    [
        lambda x: fn.transpose(x, perm=[1, 0]),
        lambda x: fn.pad(x, axes=[0], align=4, fill_value=7.6),
        lambda x: fn.slice(x, start=[-1, 1], shape=[3, 5], axes=[0, 1], out_of_bounds_policy="pad", fill_values=3),
        lambda x: fn.slice(x, rel_start=[0.5, 0.0], rel_shape=[0.5, 0.5], axes=[0, 1], dtype=types.FLOAT),
        lambda x: fn.slice(x, start=9, shape=2, axes=[0], out_of_bounds_policy="pad", fill_values=3),
        lambda x: fn.flip(fn.reshape(x, layout="HW"), horizontal=1, vertical=1),
        lambda x: fn.slice(
            fn.reshape(x, layout="WC"), 2, 5, axis_names="C", out_of_bounds_policy="pad", fill_values=[1, 2, 3, 4]
        ),
    ],
)
@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.uint8])
def test_small_window_on_host_equals_the_kernel(window, dtype):
    data = [RNG.integers(0, 100, (n, 4)).astype(dtype) for n in (3, 5, 2, 4)]
    kernel = run(window, data, on_device=True)[0]

    def define():
        x = window(fed(data))
        return x, fn.random.choice(1, p=fn.reshape(x, shape=[-1])[:1] * 0.0 + 1.0)  # needs it on the host

    (host, _), rows = outputs(define)
    assert rows == {"launch": 0, "to host": 0}
    for a, b in zip(kernel, host, strict=True):
        np.testing.assert_array_equal(np.asarray(a), b)
        assert np.asarray(a).dtype == b.dtype


def test_copies_are_looked_through():
    """As in NVIDIA's notebook on warps: a value that was moved to the accelerator is read at its source."""

    def define():
        images = fed(IMAGES, "HWC").gpu()
        matrix = fn.transforms.rotation(angle=30.0)
        size = fn.constant(fdata=[8.0, 9.0])
        return fn.warp_affine(images, matrix.gpu(), size=size.gpu().cpu()), fn.warp_affine(
            images, matrix=matrix, size=size
        )

    (moved, direct), rows = outputs(define)
    for a, b in zip(moved, direct, strict=True):
        assert a.shape == (8, 9, 3)
        np.testing.assert_array_equal(a, b)
    assert rows == {"launch": 1, "to host": 0}


@pytest.mark.parametrize("shape_source", ["an image", "a function", "a vector"])
def test_number_of_axes_from_the_first_batch(shape_source):
    """The number of elements of a shape is the number of axes of the output."""
    vectors = [np.array([2, n], np.int32) for n in (3, 4, 5, 6)]

    def define():
        if shape_source == "an image":
            shape = fn.cast(
                fn.slice(fed(IMAGES), [0, 0, 0], [1, 1, 2], axes=[0, 1, 2])[0][0] * 0, dtype=types.INT32
            ) + fn.constant(idata=[2, 3])
        elif shape_source == "a function":
            shape = fn.python_function(fed(vectors), function=lambda a: a)
        else:
            shape = fn.transpose(fed(vectors))
        random = fn.random.uniform(shape=shape)
        return random, fn.reshape(random, shape=shape[::-1] if shape_source == "a vector" else shape), shape

    (random, reshaped, shapes), _ = outputs(define)
    for a, b, shape in zip(random, reshaped, shapes, strict=True):
        assert list(a.shape) == shape.tolist()
        assert b.shape == (a.shape[::-1] if shape_source == "a vector" else a.shape)


def test_in_branches():
    """A predicate of an image, and an argument that a program makes for the samples of a branch alone."""

    def define():
        images = fed(IMAGES, "HWC")
        if fn.reductions.mean(fn.flip(images)) * fed(SCALARS) > 70.0:
            result = fn.brightness_contrast(images, brightness=fn.reductions.mean(fn.flip(images)) / 128.0)
        else:
            result = fn.flip(images)
        return result

    (result,), _ = outputs(define, enable_conditionals=True)
    takes = [x.mean() * s > 70 for x, s in zip(IMAGES, SCALARS, strict=True)]
    assert set(takes) == {True, False}
    for actual, image, bright, takes_branch in zip(result, IMAGES, with_mean(IMAGES), takes, strict=True):
        np.testing.assert_allclose(actual, bright if takes_branch else image[:, ::-1], atol=1 if takes_branch else 0)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "c").mkdir()
    for i in range(16):
        (tmp_path / "c" / f"{i:02}.jpg").write_bytes(encode(picture(16 + i, 20, seed=i), "jpeg", quality=95))
    return tmp_path


def definition(folder, num_shards=1, shard_id=0, on_error="raise"):
    jpegs, _ = fn.readers.file(
        file_root=str(folder), name="reader", num_shards=num_shards, shard_id=shard_id, random_shuffle=True
    )
    images = fn.decoders.image(jpegs, on_error=on_error, replace_shape=[8, 8, 3] if on_error == "replace" else None)
    bright = fn.brightness_contrast(images, brightness=fn.reductions.mean(images) / 128.0)
    return (
        fn.resize(bright, size=[8, 8]),
        fn.resize(images, size=[8, 8]),
        fn.reductions.mean(images),
        fn.random.uniform(),
    )


NAMES = ["bright", "small", "mean", "number"]


@pytest.mark.parametrize("shards", [1, 4])
def test_on_several_devices_and_resumed(folder, shards):
    factory = data_iterator(
        definition, output_map=NAMES, reader_name="reader", sharding=shardings.of_batch(shards), auto_reset=True
    )
    with factory(folder, batch_size=8, seed=3, num_threads=2) as iterator:
        next(iterator)
        state = iterator.get_state()
        batches = [next(iterator)]
    with factory(folder, batch_size=8, seed=3, num_threads=2) as iterator:
        iterator.set_state(state)
        for batch in batches:
            resumed = next(iterator)
            for name in NAMES:
                np.testing.assert_array_equal(resumed[name], batch[name])
    for batch in batches:
        for bright, small, mean in zip(*(np.asarray(batch[n]).astype(np.float64) for n in NAMES[:3]), strict=True):
            np.testing.assert_allclose(bright.mean(), np.clip(small * (mean / 128), 0, 255).mean(), atol=2)


def test_bad_samples_are_replaced_before_host_reads(folder):
    bad = folder / "c" / "03.jpg"
    bad.write_bytes(bad.read_bytes()[:200])
    pipe = pipeline_def(definition, batch_size=16, num_threads=2, device_id=None, seed=1)(folder, on_error="replace")
    bright, _, means, _ = pipe.run()
    zeros = [i for i, m in enumerate(means.as_array()) if m == 0]
    assert len(zeros) == 1
    assert len(pipe.bad_samples()) == 1
    assert np.asarray(bright[zeros[0]]).max() == 0
    pipe.close()
