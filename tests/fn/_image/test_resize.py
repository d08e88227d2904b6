"""`fn.resize` against its definition in float64, and the rules for sizes and arguments."""

from typing import Any

import numpy as np
import pytest
from pipelines import run

import jaxdali
from jaxdali import fn, pipeline_def, types
from jaxdali._core.arguments import Arguments
from jaxdali._core.values import Spec
from jaxdali.fn._image.resize import Resize

NN, LINEAR, CUBIC, LANCZOS3, GAUSSIAN = (
    getattr(types, f"INTERP_{n}") for n in ("NN", "LINEAR", "CUBIC", "LANCZOS3", "GAUSSIAN")
)


def noise(*shape, dtype: Any = np.uint8, seed=0):
    rng = np.random.default_rng([seed, *shape])
    if np.dtype(dtype).kind == "f":
        return (rng.random(shape) * 255).astype(dtype)
    return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def weights(n_in, n_out, lo, hi, filters, antialias):
    """The resampling of one axis as a matrix ``[n_out, n_in]``."""
    interp = filters[n_out >= abs(hi - lo)]
    centre = lo + (np.arange(n_out) + 0.5) * (hi - lo) / n_out - 0.5
    if interp == NN:
        first, taps, value = np.floor(centre + 0.5), 1, np.ones_like
    else:
        widen = max(1, abs(hi - lo) / n_out) if antialias else 1
        radius = {CUBIC: 2, LANCZOS3: 3}.get(interp, 1)
        entries = {CUBIC: 129, LANCZOS3: 193, GAUSSIAN: 65}.get(interp, 3)
        step = 2 * radius / (entries - 1)
        t = np.linspace(-radius - step, radius + step, entries + 2)  # filters are tables, interpolated; 0 beyond
        a = np.abs(t)
        table = {
            CUBIC: np.where(a < 1, 1.5 * a**3 - 2.5 * a**2 + 1, -0.5 * a**3 + 2.5 * a**2 - 4 * a + 2),
            LANCZOS3: np.sinc(t) * np.sinc(t / 3),
            GAUSSIAN: np.exp(-((2 * t) ** 2)),
        }.get(interp, 1 - a) * (np.abs(t) <= radius + step / 2)
        first, taps = np.ceil(centre - radius * widen), int(np.ceil(2 * radius * widen))
        value = lambda d: np.interp(d / widen, t, table, left=0, right=0)
    matrix = np.zeros((n_out, n_in))
    for j in range(taps):
        np.add.at(matrix, (np.arange(n_out), np.clip(first + j, 0, n_in - 1).astype(int)), value(first + j - centre))
    return matrix / matrix.sum(axis=1, keepdims=True)


def model(image, first_axis, sizes, intervals, filters=(LINEAR, LINEAR), antialias=True):
    """The resized array in float64, not rounded; `filters`: (shrinking, enlarging)."""
    out = image.astype(np.float64)
    for axis, (n, (lo, hi)) in enumerate(zip(sizes, intervals, strict=True), first_axis):
        matrix = weights(image.shape[axis], n, lo, hi, filters, antialias)
        out = np.moveaxis(np.tensordot(matrix, out, (1, axis)), 0, axis)
    return out


def resize(images, layout="HWC", **kwargs: Any):
    return [np.array(x) for x in run(lambda x: fn.resize(x, **kwargs), images, layouts=[layout])[0]]


def assert_close(resized, want):
    if resized.dtype.kind == "f":
        assert np.abs(resized - want).max() <= (5e-4 if resized.dtype == np.float16 else 1e-4) * np.abs(want).max()
        return
    limits = np.iinfo(resized.dtype)
    error = np.abs(resized - np.clip(want, limits.min, limits.max))
    positions = 3e-6 * (limits.max - limits.min)  # the error of positions that are rounded to float32
    assert error.max() < 0.6 + positions  # of exact arithmetic: 0.5
    assert (error > 0.52 + positions).mean() < 0.02


@pytest.mark.parametrize("interp", [NN, LINEAR, CUBIC, LANCZOS3, GAUSSIAN], ids=lambda x: x.name)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int16, np.float16, np.float32], ids=lambda d: d.__name__)
def test_definition(interp, dtype):
    """Shrinking and enlarging, straight and mirrored, in one ragged batch; with one, three and five channels."""
    # No output lies exactly on a source pixel: there, the rounding of float32 decides on which side the Gaussian has
    # one more pixel.
    cases = [
        ((37, 61, 3), (20, 34)),
        ((11, 90, 1), (50, -31)),
        ((64, 9, 5), (-13, 70)),
        ((23, 47, 4), (-24, 98)),
        ((1, 1, 3), (3, 5)),
    ]
    images = [noise(*shape, dtype=dtype) for shape, _ in cases]
    sizes = [np.array(s, np.float32) for _, s in cases]
    (out,) = run(lambda x, s: fn.resize(x, size=s, interp_type=interp), images, sizes, layouts=["HWC", ""])
    for image, size, resized in zip(images, sizes, map(np.array, out), strict=True):
        intervals = [(n, 0) if s < 0 else (0, n) for s, n in zip(size, image.shape, strict=False)]
        want = model(image, 0, [abs(int(s)) for s in size], intervals, (interp, interp))
        assert_close(resized, want)


@pytest.mark.parametrize("interp", [NN, LINEAR, CUBIC, LANCZOS3], ids=lambda x: x.name)
def test_same_size(interp):
    images = [noise(37, 61, 3), noise(37, 61, 2), noise(9, 5, 3)]
    for resized, image in zip(resize(images, size=[0, 0], interp_type=interp), images, strict=True):
        np.testing.assert_array_equal(resized, image)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_every_width(channels):
    """The vectorised uint8 rows, at widths and numbers of taps that end at any place of a vector."""
    rng = np.random.default_rng(channels)
    images = [noise(int(rng.integers(1, 40)), w, channels, seed=w) for w in range(1, 60)]
    sizes = [rng.integers(1, 45, 2).astype(np.float32) for _ in images]
    (out,) = run(lambda x, s: fn.resize(x, size=s), images, sizes, layouts=["HWC", ""])
    for image, size, resized in zip(images, sizes, map(np.array, out), strict=True):
        assert_close(resized, model(image, 0, size.astype(int).tolist(), [(0, image.shape[0]), (0, image.shape[1])]))


@pytest.mark.parametrize(
    ("roi", "kwargs"),
    [
        (((3, 5), (30, 50)), {}),
        (((30.25, 5), (3, 50.5)), {"interp_type": LANCZOS3}),
        (((-6, 20), (20, 90)), {"interp_type": CUBIC}),
        (((200, -90), (230, -80)), {}),
    ],
    ids=["inside", "mirrored", "beyond the edge", "outside"],
)
def test_region(roi, kwargs):
    image = noise(37, 61, 3)
    (resized,) = resize([image], size=[21, 40], roi_start=roi[0], roi_end=roi[1], **kwargs)
    interp = kwargs.get("interp_type", LINEAR)
    assert_close(resized, model(image, 0, (21, 40), list(zip(*roi, strict=True)), (interp, interp)))


@pytest.mark.parametrize(
    ("layout", "shape", "first"), [("CHW", (2, 30, 41), 1), ("FHWC", (3, 30, 41, 3), 1), ("FCHW", (2, 3, 30, 41), 2)]
)
def test_layouts(layout, shape, first):
    image = noise(*shape)
    (resized,) = resize([image], layout, size=[17, 50])
    assert_close(resized, model(image, first, (17, 50), [(0, 30), (0, 41)]))


def test_volume():
    image = noise(6, 14, 17, 2)
    (resized,) = resize([image], "DHWC", size=[4, 20, 9], interp_type=CUBIC)
    assert_close(resized, model(image, 0, (4, 20, 9), [(0, 6), (0, 14), (0, 17)], (CUBIC, CUBIC)))
    (resized,) = resize([image], "DHWC", resize_z=12)  # y and x keep the aspect ratio
    assert resized.shape == (12, 28, 34, 2)


def test_extreme_ratio():
    """With more taps than 16-bit weights are precise enough for."""
    image = noise(900, 700, 3)
    (resized,) = resize([image], size=[3, 2])
    assert_close(resized, model(image, 0, (3, 2), [(0, 900), (0, 700)]))


def test_ties_round_to_even():
    """As in DALI."""
    (resized,) = resize([np.array([[[1], [2], [4], [5]]], np.uint8)], size=[1, 2], antialias=False)
    assert resized.ravel().tolist() == [2, 4]


@pytest.mark.parametrize(
    ("kwargs", "shape"),
    [
        ({"resize_x": 30}, (18, 30)),
        ({"resize_x": 30, "mode": "stretch"}, (37, 30)),
        ({"resize_y": 74}, (74, 122)),
        ({"resize_x": 20, "resize_y": -50}, (50, 20)),
        ({"resize_shorter": 20}, (20, 33)),
        ({"resize_shorter": 50, "max_size": 61}, (37, 61)),
        ({"resize_longer": 30.5}, (19, 31)),
        ({"size": [100, 61], "mode": "not_larger"}, (37, 61)),
        ({"size": [100, 61], "mode": "not_smaller"}, (100, 165)),
        ({"size": [100, 61], "mode": "not_smaller", "max_size": [0, 122]}, (74, 122)),
        ({"size": [0, 0.1]}, (1, 1)),
        ({"size": [90, 90], "max_size": 40}, (40, 40)),
        ({"resize_x": 100, "roi_start": [0, 0], "roi_end": [20, 50]}, (40, 100)),
        ({"resize_x": 100, "roi_start": [0, 0], "roi_end": [0.5, 1], "roi_relative": True}, (30, 100)),
    ],
    ids=str,
)
def test_sizes(kwargs, shape):
    assert resize([noise(37, 61, 1)], **kwargs)[0].shape == (*shape, 1)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"size": 20}, {"size": 20, "antialias": False}),
        ({"size": 20}, {"size": 20, "min_filter": CUBIC}),
        ({"size": 90}, {"size": 90, "mag_filter": NN}),
        ({"size": 90}, {"size": 90, "interp_type": CUBIC}),
        ({"resize_x": 30}, {"resize_x": 30, "subpixel_scale": False}),
        (
            {"size": 20, "interp_type": LANCZOS3},
            {"size": 20, "min_filter": LANCZOS3, "mag_filter": NN, "antialias": False},
        ),
    ],
    ids=str,
)
def test_argument_matters(first, second):
    images = [noise(37, 61, 3)]
    assert (resize(images, **first)[0] != resize(images, **second)[0]).any()


def test_filter_by_axis():
    image = noise(30, 30, 3)
    (resized,) = resize([image], size=[12, 50], min_filter=CUBIC, mag_filter=NN)
    assert_close(resized, model(image, 0, (12, 50), [(0, 30), (0, 30)], (CUBIC, NN)))


def test_subpixel_scale():
    """The rounding of 18.2 rows to 18 narrows the source interval, so that the scale stays 61 / 30."""
    image = noise(37, 61, 3, dtype=np.float32)
    lo, hi = 18.5 - 9 * 61 / 30, 18.5 + 9 * 61 / 30
    assert_close(resize([image], resize_x=30)[0], model(image, 0, (18, 30), [(lo, hi), (0, 61)]))
    assert_close(resize([image], resize_x=30, subpixel_scale=False)[0], model(image, 0, (18, 30), [(0, 37), (0, 61)]))


def test_float_output():
    image = noise(37, 61, 3)
    (resized,) = resize([image], size=[20, 70], interp_type=CUBIC, dtype=types.FLOAT)
    assert resized.dtype == np.float32
    assert resized.min() < 0  # not clamped
    assert_close(resized, model(image, 0, (20, 70), [(0, 37), (0, 61)], (CUBIC, CUBIC)))


def test_arguments_per_sample():
    """Each argument given per sample has the effect of the same static one."""
    images = [noise(37, 61, 3), noise(50, 20, 3)]
    values = {
        "resize_shorter": [12.0, 30.0],
        "max_size": [40.0, 33.0],
        "roi_start": [[1.0, 2.0], [30.0, 3.0]],
        "roi_end": [[30.0, 60.0], [2.0, 19.0]],
        "interp_type": [NN, CUBIC],
    }
    inputs = [[np.array(x, np.int32 if k == "interp_type" else np.float32) for x in v] for k, v in values.items()]
    (out,) = run(
        lambda x, *a: fn.resize(x, **dict(zip(values, a, strict=True))),
        images,
        *inputs,
        layouts=["HWC"] + [""] * len(values),
    )
    for i, resized in enumerate(map(np.array, out)):
        (want,) = resize([images[i]], **{k: v[i] for k, v in values.items()})
        np.testing.assert_array_equal(resized, want)


def test_save_attrs():
    images = [noise(37, 61, 3), noise(50, 20, 3)]
    out, extents = run(lambda x: fn.resize(x, size=10, save_attrs=True), images, layouts=["HWC"])
    assert np.array(extents[1]).dtype == np.int32
    assert [np.array(x).tolist() for x in extents] == [[37, 61], [50, 20]]
    assert np.array(out[0]).shape == (10, 10, 3)


def infer(spec, **arguments):
    mode = arguments.pop("mode", None)
    args, _ = Arguments.of(arguments, lambda x: False)
    return Resize(
        args=args, mode=mode, antialias=True, subpixel_scale=True, roi_relative=False, dtype=None, save_attrs=False
    ).infer(spec)[0]


def test_static_shape():
    decoded = Spec(np.dtype(np.uint8), 3, None, "HWC", (None, None, 3))
    assert infer(decoded, size=(20, 30.4)).shape == (20, 30, 3)
    assert infer(decoded, size=20, mode="stretch").shape == (20, 20, 3)
    assert infer(decoded, size=20, roi_start=(5, 9), roi_end=(10, 20), mode="not_larger").shape == (9, 20, 3)
    for varies in ({"resize_x": 20}, {"size": 20, "mode": "not_larger"}, {"resize_shorter": 20}):
        spec = infer(decoded, **varies)
        assert spec.shape is None
        assert spec.dims == (None, None, 3)
        assert infer(Spec(np.dtype(np.uint8), 3, (40, 60, 3)), **varies).shape is not None
    spec = infer(Spec(np.dtype(np.uint8), 3, None), size=20)
    assert spec.shape is None
    assert spec.dims == (20, 20, None)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({}, "exactly one of .* got none"),
        ({"size": 10, "resize_x": 10}, "got size, resize_x"),
        ({"resize_shorter": 10, "mode": "stretch"}, "implies a mode"),
        ({"size": 10, "mode": "larger"}, "mode must be one of"),
        ({"size": 10, "roi_start": 0}, "given together"),
        ({"size": [1, 2, 3]}, "size must have 1 or 2 numbers"),
        ({"resize_z": 3}, "resize_z needs"),
        ({"resize_x": float("nan")}, "resize_x must be a finite number"),
        ({"size": 10, "interp_type": 9}, "interp_type must be one of"),
        ({"size": 10, "min_filter": "linear"}, "min_filter must be one of"),
        ({"size": 10, "dtype": types.INT16}, "dtype must be the input's"),
    ],
    ids=str,
)
def test_bad_arguments(kwargs, message):
    with pytest.raises((ValueError, TypeError), match=message):
        resize([noise(8, 8, 3)], **kwargs)


def test_unused_resize_needs_no_size():
    """As in DALI, an operator without a size is refused only if its result is used."""

    def define(x):
        fn.resize(x, mode="stretch")
        return x

    (output,) = run(define, [noise(8, 8, 3)], layouts=["HWC"])
    assert output.layout() == "HWC"


def test_bad_input():
    with pytest.raises(TypeError, match="got int32"):
        resize([noise(8, 8, 3, dtype=np.int32)], size=10)
    with pytest.raises(ValueError, match=r"got layout 'HW'; fn\.expand_dims\(x, axes=\[2\]"):
        resize([noise(8, 8)], "HW", size=10)
    with pytest.raises(
        ValueError, match=r"got 1-D samples without a layout; fn\.decoders\.image makes images of files"
    ):
        resize([noise(8)], "", size=10)
    for image, size in ((noise(8, 8, 3), 1e9), (noise(8, 8, 3), np.nan)):
        with pytest.raises(jaxdali.SampleError):
            run(lambda x, s: fn.resize(x, size=s), [image], [np.array(size, np.float32)], layouts=["HWC", ""])


def test_filters_per_sample():
    """As numbers, or in the type that DALI requires."""
    image = noise(9, 14, 3)
    for as_filter in (
        lambda x: x,
        lambda x: fn.reinterpret(x, dtype=types.INTERP_TYPE),
        lambda x: fn.cast(x, dtype=types.INTERP_TYPE),
    ):
        filters = [np.int32(CUBIC), np.int32(NN)]
        (out,) = run(
            lambda x, f, as_filter=as_filter: fn.resize(x, size=[20, 5], interp_type=as_filter(f)),
            [image] * 2,
            filters,
            layouts=["HWC", ""],
        )
        for resized, filter in zip(out, (CUBIC, NN), strict=True):
            np.testing.assert_array_equal(np.array(resized), resize([image], size=[20, 5], interp_type=filter)[0])


@pytest.mark.parametrize(
    ("size", "start", "end", "expected"),
    [
        ([2, 2], [1, 6], [3, 4], [[75.72, 40.54], [68.76, 33.54]]),
        ([3, 1], [3, 5], [4, 4], [[28.61], [27.03], [25.69]]),
        ([3, 3], [4, 5], [2, 8], [[63.21, 98.39, 36.69], [66.26, 52.76, 39.74], [69.31, 7.12, 42.79]]),
    ],
)
def test_gauss_of_regions_at_whole_pixels(size, start, end, expected):
    """The numbers are DALI's. The rounding of positions decides which pixel at the end of the filter counts."""
    x = (np.arange(64).reshape(8, 8, 1) * 37 % 101).astype(np.float32)

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def define():
        images = fn.external_source(lambda: [x], layout="HWC")
        return fn.resize(images, size=size, roi_start=start, roi_end=end, interp_type=types.INTERP_GAUSSIAN)

    (output,) = define().run()
    assert np.allclose(output.as_array()[0, ..., 0], expected, atol=0.01)
