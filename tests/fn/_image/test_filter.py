"""filter, median_blur, dilate and erode, against definitions in NumPy."""

import numpy as np
import pytest
from pipelines import run

from jaxdali import fn, types

PAD = {"reflect_101": "reflect", "reflect_1001": "symmetric", "wrap": "wrap", "clamp": "edge", "edge": "edge"}


def windows(x, size, anchor, axes, mode, **options):
    """The window around each element, flat, as the last axis."""
    pad = [(0, 0)] * x.ndim
    for axis, n, a in zip(axes, size, anchor, strict=True):
        pad[axis] = (a, n - 1 - a)
    views = np.lib.stride_tricks.sliding_window_view(np.pad(x, pad, mode=mode, **options), size, axis=axes)
    return views.reshape(*x.shape, -1)


@pytest.mark.parametrize("border", [*PAD, "constant"])
@pytest.mark.parametrize("layout", ["HW", "HWC", "FCHW", "DHWC", "FDHW"])
def test_filter(border, layout):
    rng = np.random.default_rng(2)
    axes = tuple(d for d, letter in enumerate(layout) if letter in "DHW")
    samples = [rng.integers(0, 256, tuple(4 + i + d for d in range(len(layout))), np.uint8) for i in range(3)]
    filters = [
        rng.uniform(-0.3, 0.4, tuple(1 + (i + k) % 3 for k in range(len(axes)))).astype(np.float32) for i in range(3)
    ]
    fills = [np.uint8(50 * i) for i in range(3)]

    def make(x, f, fill):
        inputs = (x, f, fill) if border == "constant" else (x, f)
        valid = fn.filter(x, f, mode="valid")
        return fn.filter(*inputs, border=border, dtype=types.FLOAT), fn.filter(*inputs, border=border, anchor=0), valid

    exact, first, valid = run(make, samples, filters, fills, layouts=[layout, "", ""])
    for i, (x, f) in enumerate(zip(samples, filters, strict=True)):
        options = {"mode": "constant", "constant_values": fills[i]} if border == "constant" else {"mode": PAD[border]}
        want = windows(x, f.shape, [n // 2 for n in f.shape], axes, **options) @ f.reshape(-1).astype(np.float64)
        np.testing.assert_allclose(np.array(exact[i]), want, atol=1e-3)
        want = windows(x, f.shape, [0] * f.ndim, axes, **options) @ f.reshape(-1).astype(np.float64)
        assert np.abs(np.array(first[i]) - np.clip(want, 0, 255)).max() <= 0.5 + 1e-3
        valid_region = tuple(
            slice(0, n - f.shape[axes.index(d)] + 1) if d in axes else slice(None) for d, n in enumerate(x.shape)
        )
        assert np.abs(np.array(valid[i]) - np.clip(want[valid_region], 0, 255)).max() <= 0.5 + 1e-3
    assert exact.layout() == layout


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *[(n, "reflect") for n in ("101", "reflect101", "Reflect_101")],
        *[(n, "symmetric") for n in ("1001", "reflect1001", "REFLECT_1001", "reflect")],
        *[(n, "edge") for n in ("Clamp", "EDGE")],
        *[(n, "constant") for n in ("fill", "Pad", "Constant")],
        ("WRAP", "wrap"),
    ],
)
def test_names_of_borders(name, mode):
    """All names that DALI 2.4 accepts."""
    x, f = np.arange(20, dtype=np.float32).reshape(4, 5), np.arange(15, dtype=np.float32).reshape(3, 5)
    (filtered,) = run(lambda x: fn.filter(x, f, border=name, mode="Same"), [x])
    np.testing.assert_allclose(
        np.asarray(filtered[0]), windows(x, (3, 5), (1, 2), (0, 1), mode) @ f.reshape(-1), rtol=1e-6
    )


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float16, np.float32])
@pytest.mark.parametrize("layout", ["HW", "HWC", "CHW", "FHWC", "FCHW"])
def test_median_blur(dtype, layout):
    rng = np.random.default_rng(3)
    axes = (layout.index("H"), layout.index("W"))
    samples = [
        (rng.standard_normal(tuple(6 + i + d for d in range(len(layout)))) * 50 + 100).astype(dtype) for i in range(3)
    ]
    sizes = [np.array(s, np.int32) for s in ((3, 3), (5, 1), (9, 7))]  # the last one is too large for vectors
    (y,) = run(lambda x, s: fn.experimental.median_blur(x, window_size=s), samples, sizes, layouts=[layout, ""])
    for blurred, x, (width, height) in zip(map(np.array, y), samples, sizes, strict=True):
        want = np.median(windows(x, (height, width), (height // 2, width // 2), axes, "edge"), axis=-1)
        np.testing.assert_array_equal(blurred, want)


MODES = {"replicate": "edge", "reflect": "symmetric", "reflect_101": "reflect", "wrap": "wrap", "constant": "constant"}


@pytest.mark.parametrize("border", MODES)
@pytest.mark.parametrize("operator", ["dilate", "erode"])
def test_dilate_and_erode(border, operator):
    rng = np.random.default_rng(4)
    samples = [rng.integers(0, 256, (9 + i, 8, 3), np.uint8) for i in range(3)]
    masks, anchors = (
        [np.int32([3, 3]), np.int32([4, 1]), np.int32([2, 5])],
        [np.int32([-1, -1]), np.int32([3, 0]), np.int32([0, -1])],
    )

    def make(x, mask, anchor):
        morphology = getattr(fn.experimental, operator)
        once = morphology(x, mask_size=mask, anchor=anchor, border_mode=border)
        return once, morphology(x, mask_size=mask, anchor=anchor, border_mode=border, iterations=3)

    once, thrice = run(make, samples, masks, anchors, layouts=["HWC", "", ""])
    extreme, outside = (np.max, 0) if operator == "dilate" else (np.min, 255)
    for i, x in enumerate(samples):
        (width, height), (x_anchor, y_anchor) = (
            masks[i],
            [m // 2 if a == -1 else a for m, a in zip(masks[i], anchors[i], strict=True)],
        )
        options = {"constant_values": outside} if border == "constant" else {}

        def step(z, size=(height, width), anchor=(y_anchor, x_anchor), options=options):
            return extreme(windows(z, size, anchor, (0, 1), MODES[border], **options), axis=-1)

        np.testing.assert_array_equal(np.array(once[i]), step(x))
        if border == "constant":  # with other borders, the second pass would continue the first result, not the image
            np.testing.assert_array_equal(np.array(thrice[i]), step(step(step(x))))


@pytest.mark.parametrize(("operator", "extreme"), [("dilate", np.fmax), ("erode", np.fmin)])
def test_extremes_leave_out_nans(operator, extreme):
    rng = np.random.default_rng(5)
    image = rng.standard_normal((9, 80, 1)).astype(np.float32)
    image[rng.random(image.shape) < 0.3] = np.nan
    (result,) = run(lambda x: getattr(fn.experimental, operator)(x, mask_size=[3, 5]), [image], layouts=["HWC"])
    want = extreme.reduce(windows(image, (5, 3), (2, 1), (0, 1), "edge"), axis=-1)
    np.testing.assert_array_equal(result.at(0), want)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda x: fn.filter(x, np.ones((2, 2), np.float32), anchor=2),
            r"anchor must be inside of the filter \[2, 2\], got \[2, 2\]",
        ),
        (
            lambda x: fn.filter(x, np.ones((9, 2), np.float32), mode="valid"),
            r"the filter must not be larger than the image; .*\[9, 2\]",
        ),
        (lambda x: fn.filter(x, np.ones((1, 4097), np.float32)), r"at most 4096 .* along an axis, got \[1, 4097\]"),
        (
            lambda x: fn.experimental.dilate(x, mask_size=[1, 1023], iterations=5),
            r"at most 4096 .* along an axis, got \[5111, 1\]",
        ),
        (lambda x: fn.filter(x, np.ones((3, 3, 3), np.float32)), "the filter must be 2-D and float32, got 3-D float32"),
        (
            lambda x: fn.filter(x, np.ones((3, 3), np.float32), np.float32(1), border="constant"),
            "fill_value must be .* uint8, got 0-D float32",
        ),
        (lambda x: fn.experimental.median_blur(x, window_size=[3, 4]), r"window_size must be odd, got \[3, 4\]"),
        (
            lambda x: fn.experimental.dilate(x, mask_size=[3, 2], anchor=[1, 2]),
            r"anchor must be inside of the mask \[3, 2\], got \[1, 2\]",
        ),
        (lambda x: fn.experimental.erode(fn.cast(x, dtype=types.INT32)), "the input must be uint8, .* got int32"),
        (
            lambda x: fn.experimental.erode(x, border_mode="clamp"),
            "border_mode must be one of 'constant', .* got 'clamp'",
        ),
    ],
)
def test_errors(make, text):
    with pytest.raises(Exception, match=text):
        run(make, [np.zeros((4, 4), np.uint8)], layouts=["HW"])
