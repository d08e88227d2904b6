"""resize_crop_mirror and random_resized_crop against resize; the windows of random_crop_generator."""

import counts
import numpy as np
import pytest
from images import encode
from pipelines import run

from jaxdali import OperatorError, fn, pipeline_def, types

rng = np.random.default_rng(5)
IMAGES = [rng.integers(0, 256, (h, w, 3)).astype(np.uint8) for h, w in ((40, 61), (77, 30), (25, 25))]


def close(x, y, tolerance):
    for a, b in zip(map(np.asarray, x), map(np.asarray, y), strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        assert np.abs(a.astype(float) - b).max() <= tolerance


@pytest.mark.parametrize(
    "how", [{"resize_shorter": 32}, {"size": (50.5, 41)}, {"resize_x": 33, "roi_start": (3, 4), "roi_end": (20, 24)}]
)
def test_resize_crop_mirror(how):
    place, mirror = [np.float32(p) for p in (0.1, 0.9, 0.5)], [np.int32(m) for m in (0, 3, 1)]
    mirrored, whole, cropped = run(
        lambda x, p, m: (
            fn.resize_crop_mirror(x, crop=(22, 19), crop_pos_x=p, mirror=m, dtype=types.FLOAT, **how),
            fn.resize_crop_mirror(x, mirror=2, **how),
            fn.crop(fn.resize(x, dtype=types.FLOAT, **how), crop=(22, 19), crop_pos_x=p),
        ),
        IMAGES,
        place,
        mirror,
        layouts=("HWC", "", ""),
    )
    close(
        mirrored,
        [x[:: -1 if m & 2 else 1, :: -1 if m & 1 else 1] for x, m in zip(map(np.asarray, cropped), mirror)],
        2e-2,
    )
    (resized,) = run(lambda x: fn.resize(x, **how), IMAGES, layouts=("HWC",))
    close(whole, [np.asarray(x)[::-1] for x in resized], 1)


@pytest.mark.parametrize(
    "size", [{"crop": (0, 20)}, {"crop": (-5, 20.5)}, {"crop_h": 0, "crop_w": 20}, {"crop_h": -1.0, "crop_w": 20}]
)
def test_a_crop_of_all_rows(size):
    (crops,) = run(lambda x: fn.crop(x, crop_pos_x=0.0, **size), IMAGES, layouts=("HWC",))
    close(crops, [x[:, :20] for x in IMAGES], 0)


@pytest.mark.parametrize("operator", ["crop", "crop_mirror_normalize", "resize_crop_mirror"])
def test_center_of_torchvision(operator):
    """Padding of an odd number of rows has one more at the end. The corner is rounded half to even."""
    images = [
        np.full((h, w, 1), 9, np.uint8) + np.arange(w, dtype=np.uint8)[:, None]
        for h in range(12, 16)
        for w in range(5, 18)
    ]
    arguments = {
        "crop": {"out_of_bounds_policy": "pad"},
        "resize_crop_mirror": {"mode": "stretch", "resize_x": 0, "interp_type": types.INTERP_NN},
    }
    arguments["crop_mirror_normalize"] = {**arguments["crop"], "output_layout": "HWC"}
    (windows,) = run(
        lambda x: getattr(fn, operator)(x, crop=(10, 11), rounding="torchvision", **arguments[operator]),
        images,
        layouts=["HWC"],
    )
    for x, y in zip(images, windows, strict=True):
        free = x.shape[1] - 11
        padding = "edge" if operator == "resize_crop_mirror" else "constant"
        x = np.pad(x, ((0, 0), (max(-free // 2, 0), max((1 - free) // 2, 0)), (0, 0)), padding)
        row, column = round((x.shape[0] - 10) / 2), round(max(free, 0) / 2)
        np.testing.assert_array_equal(y, x[row : row + 10, column : column + 11])


def test_all_rows_of_some_samples():
    """Also of all samples of a batch, which is not an error either."""
    for rows in ((0, 7, -3), (0, 0, 0)):
        (crops,) = run(
            lambda x, h: fn.crop(x, crop_h=h, crop_w=20, crop_pos_x=0.0, crop_pos_y=0.0),
            IMAGES,
            list(map(np.float32, rows)),
            layouts=("HWC", ""),
        )
        close(crops, [x[: n if n > 0 else None, :20] for n, x in zip(rows, IMAGES)], 0)


def test_outside_the_edge_is_repeated():
    (images,) = run(
        lambda x: fn.resize_crop_mirror(x, size=(10, 10), crop=(20, 10), interp_type=types.INTERP_NN),
        IMAGES,
        layouts=("HWC",),
    )
    for x in map(np.asarray, images):
        assert x.shape == (20, 10, 3)
        assert (x[:5] == x[0]).all()
        assert (x[15:] == x[19]).all()
        assert (x[6] != x[0]).any()


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_random_resized_crop(layout):
    """The window that the generator draws, resized to a size per sample."""
    images = [x if layout == "HWC" else x.transpose(2, 0, 1) for x in IMAGES]
    sizes = [np.int32(s) for s in ((13, 20), (64, 7), (9, 9))]
    axes = [layout.index("H"), layout.index("W")]

    def define(x, size):
        start, extent = fn.random_crop_generator(x.shape()[axes[0] : axes[1] + 1], seed=9, random_area=(0.1, 0.6))
        region = fn.resize(x, size=size, roi_start=start, roi_end=start + extent)
        return (
            fn.random_resized_crop(x, size=size, seed=9, random_area=(0.1, 0.6)),
            region,
            start,
            extent,
            fn.random_resized_crop(x, size=8),
        )

    actual, region, start, extent, fixed = run(define, images, sizes, layouts=(layout, ""))
    close(actual, region, 0)
    for x, (y0, x0), (height, width) in zip(IMAGES, map(np.asarray, start), map(np.asarray, extent), strict=True):
        assert 0 <= y0 <= y0 + height <= x.shape[0]
        assert 0 <= x0 <= x0 + width <= x.shape[1]
        assert 0.08 < height * width / (x.shape[0] * x.shape[1]) < 0.65
    assert actual.layout() == layout
    assert len({np.asarray(x).shape for x in fixed}) == 1


@pytest.mark.parametrize("decoded", [False, True])
def test_one_seed_draws_equal_windows(decoded):
    """An image and its mask stay together, also if other operators draw between them."""
    options = {"size": (9, 9), "interp_type": types.INTERP_NN}

    def cropped(x, output_type, **seed):
        if decoded:
            return fn.decoders.image_random_crop(x, output_type=output_type, **seed)
        return fn.random_resized_crop(x, **options, **seed)

    def define(x, mask):
        first = cropped(x, types.RGB, seed=3)
        return first, cropped(x, types.RGB), cropped(mask, types.GRAY, seed=3)

    samples = IMAGES, [x[..., :1] for x in IMAGES]
    if decoded:
        samples = ([np.frombuffer(encode(x, "PNG"), np.uint8) for x in y] for y in samples)
    image, _, mask = run(define, *samples, layouts=("", "") if decoded else ("HWC", "HWC"))
    close([np.asarray(x)[..., :1] for x in image], mask, 0)


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda x: fn.random_resized_crop(x, size=(0, 3)), "argument size must be"),
        (lambda x: fn.random_resized_crop(x, size=3, random_area=(0.5, 0.2)), "random_area must be .lowest, highest."),
        (lambda x: fn.random_resized_crop(x, size=(3, 3, 3)), "argument size must have 1 or 2 numbers"),
        (lambda x: fn.random_resized_crop(fn.cast(x, dtype=types.INT32), size=3), "must be uint8, int16"),
        (lambda x: fn.random_crop_generator(x), "must be shapes .H, W."),
        (lambda x: fn.resize_crop_mirror(x, size=3, crop_h=3), "crop_h and crop_w must be given together"),
        (lambda x: fn.resize_crop_mirror(x, size=3, crop=(2, 2), crop_pos_x=2.0), "argument crop_pos_x must be"),
        (lambda x: fn.resize_crop_mirror(x, crop=(2, 2)), "exactly one of size"),
    ],
)
def test_bad_arguments(define, message):
    with pytest.raises((OperatorError, ValueError, TypeError), match=message):
        run(define, IMAGES, layouts=("HWC",))


def test_slices_of_vectors_stay_on_the_host():
    """So they can be arguments, such as an anchor without its first number."""
    vectors = [np.arange(n, dtype=np.int32) for n in (3, 5, 4)]
    volume = np.arange(120, dtype=np.uint8).reshape(4, 5, 6)

    def define(x):
        anchor = fn.slice(x, 1, 2, axes=[0])
        return (
            anchor,
            fn.slice(x, 2, 3, axes=[0], out_of_bounds_policy="pad", fill_values=-1, dtype=types.FLOAT),
            fn.slice(volume, anchor, (1, 2), axes=(0, 1)),
        )

    anchor, padded, window = run(define, vectors)
    assert [np.asarray(x).tolist() for x in anchor] == [[1, 2]] * 3
    assert [np.asarray(x).tolist() for x in padded] == [[2, -1, -1], [2, 3, 4], [2, 3, -1]]
    np.testing.assert_array_equal(np.asarray(window[0]), volume[1:2, 2:4])
    with pytest.raises(
        OperatorError, match=r"slice .*sample 0: the window 2 \.\.\. 4 reaches outside the sample, of shape \(3"
    ):
        run(lambda x: fn.slice(x, 2, 2, axes=[0]), vectors)


def test_fractions_of_slices_round_as_in_dali():
    """Products of fractions and extents are close to halves. The numbers are (start, extent) of DALI 2.4's slices."""
    extents, fractions = [50, 25, 5, 10], [np.float32([f]) for f in (0.29, 0.58, 0.9, 0.35)]

    def define(x, f):
        windows = (
            {"rel_end": f},
            {"rel_start": f},
            {"rel_shape": f},
            {"start": [1], "rel_shape": f},
            {"rel_start": 0 * f, "rel_shape": f},
            {"rel_start": 0.01 + 0 * f, "rel_shape": f},
            {"rel_end": [0.29]},
        )
        named = [fn.slice(x, axes=[0], out_of_bounds_policy="trim_to_shape", **w) for w in windows]
        return *named, fn.slice(x, f * 0, f, axes=[0])

    outputs = run(define, [np.arange(n, dtype=np.uint8) for n in extents], fractions)
    assert [[(x[0] if x.size else None, x.size) for x in map(np.asarray, output)] for output in outputs] == [
        [(0, 15), (0, 15), (0, 5), (0, 4)],
        [(15, 35), (15, 10), (None, 0), (4, 6)],
        [(0, 15), (0, 15), (0, 5), (0, 4)],
        [(1, 15), (1, 15), (1, 4), (1, 4)],
        [(0, 14), (0, 14), (0, 4), (0, 3)],
        [(1, 14), (0, 15), (0, 5), (0, 4)],
        [(0, 15), (0, 7), (0, 1), (0, 3)],
        [(0, 14), (0, 14), (0, 4), (0, 3)],
    ]


def test_slices_of_sound_need_no_indices():
    """The memory of a batch is that of its results, and of one sample that stands for missing ones."""
    sound = [np.arange(n, dtype=np.float32) for n in (50_000, 60_000)]

    @pipeline_def(batch_size=2, num_threads=1, device_id=None, exec_pipelined=False, exec_async=False)
    def pipeline():
        x = fn.external_source(lambda: sound)
        return fn.slice(x, start=[500], shape=[40_000], axes=[0])

    pipe = pipeline()
    for _ in range(4):
        pipe.run()
    with counts.allocations() as memory:
        (windows,) = pipe.run()
    assert memory.most < 2 * 2 * 40_000 * 4
    for window, x in zip(windows, sound, strict=True):
        np.testing.assert_array_equal(window, x[500:40_500])


def test_windows_of_floats_are_rounded_to_bytes():
    """DALI 2.4 gives 98, 7, 255 and 0."""
    x = np.float32([98.67, 7.5, 300, -1]).reshape(1, 4, 1)
    outputs = run(
        lambda x: (
            fn.crop(x, crop=(1, 4), dtype=types.UINT8),
            fn.slice(x, start=[0], shape=[4], axes=[1], dtype=types.UINT8),
        ),
        [x],
        layouts=["HWC"],
    )
    for output in outputs:
        assert np.asarray(output[0]).ravel().tolist() == [99, 8, 255, 0]
