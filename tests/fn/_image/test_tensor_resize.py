"""`fn.tensor_resize` against what DALI 2.4 gave, and against `fn.resize`, which golden data checks."""

import numpy as np
import pytest
from images import picture
from pipelines import run

from jaxdali import fn, types


def test_recorded_by_dali():
    image = ((np.arange(30).reshape(5, 6, 1) * 37) % 251).astype(np.uint8)
    aligned, smaller = run(
        lambda a: (
            fn.tensor_resize(a, scales=[0.7, 1.3], axes=[0, 1], alignment=[0.0, 1.0], size_rounding="ceil"),
            fn.tensor_resize(a, sizes=[3, 0, 0], mode="not_smaller", roi_start=[1, 5, 0], roi_end=[4, 1, 1]),
        ),
        [image],
        layouts=["HWC"],
    )
    want = [
        (
            (4, 8, 1),
            "69 48 38 66 95 123 152 176 204 171 111 37 58 85 114 138 162 181 198 191 101 67 72 96 135 154 182 210 239 123 45 69",
        ),
        ((3, 4, 1), "119 82 45 8 90 53 16 230 61 24 238 201"),
    ]
    for actual, (shape, expected) in zip((aligned, smaller), want, strict=True):
        assert np.array(actual[0]).shape == shape
        np.testing.assert_allclose(np.array(actual[0]).astype(int).ravel(), [int(v) for v in expected.split()], atol=1)


@pytest.mark.parametrize("shapes", [[(20, 31, 3)] * 2, [(20, 31, 3), (17, 9, 3)]])
def test_image_axes_match_resize(shapes):
    images = [picture(*s, seed=i) for i, s in enumerate(shapes)]
    sizes = [np.float32([13.4, 24.6]), np.float32([30, 0])]
    outputs = run(
        lambda a, size: (
            fn.tensor_resize(a, sizes=size, axis_names="HW", mode="stretch"),
            fn.resize(a, size=size, mode="stretch"),
            fn.tensor_resize(fn.reshape(a, layout="XYZ"), sizes=size, axes=[-3, -2], mode="stretch"),
            fn.tensor_resize(fn.transpose(a, perm=[2, 0, 1]), sizes=size[::-1], axis_names="WH", mode="stretch"),
        ),
        images,
        sizes,
        layouts=["HWC", ""],
    )
    named, want, numbered, planar = outputs
    assert [x.layout() for x in outputs] == ["HWC", "HWC", "XYZ", "CHW"]
    for i in range(2):
        np.testing.assert_array_equal(np.array(named[i]), np.array(want[i]))
        np.testing.assert_array_equal(np.array(numbered[i]), np.array(want[i]))
        np.testing.assert_allclose(np.moveaxis(np.array(planar[i]), 0, 2).astype(int), np.array(want[i]), atol=1)


def test_any_rank():
    x = np.random.default_rng(0).random((3, 4, 5, 6, 2), np.float32)
    ends, middle, line = run(
        lambda a, b: (
            fn.tensor_resize(a, scales=[1, 1, 1, 2, 0.5]),
            fn.tensor_resize(a, sizes=[4, 0, 8, 0, 0], interp_type=types.INTERP_NN, mode="stretch"),
            fn.tensor_resize(b, scales=3),
        ),
        [x],
        [np.float32([1, 2])],
    )
    pairs = x.mean(axis=4, keepdims=True)  # of two channels, by a triangular filter as wide as both
    assert np.array(ends[0]).shape == (3, 4, 5, 12, 1)
    np.testing.assert_allclose(
        np.array(ends[0])[..., 1:-1:2, 0], 0.75 * pairs[..., :-1, 0] + 0.25 * pairs[..., 1:, 0], atol=1e-6
    )
    np.testing.assert_array_equal(
        np.array(middle[0]),
        x[np.floor((np.arange(4) + 0.5) * 0.75).astype(int)][:, :, np.floor((np.arange(8) + 0.5) * 5 / 8).astype(int)],
    )
    np.testing.assert_allclose(np.array(line[0]), [1, 1, 4 / 3, 5 / 3, 2, 2], atol=1e-6)


def test_errors():
    for arguments, message in [
        ({}, "give either sizes or scales"),
        ({"sizes": 4, "scales": 2}, "give either sizes or scales"),
        ({"sizes": [4, 4]}, "argument sizes must have 1 or 4 numbers"),
        ({"scales": 2}, r"at most 3 axes that are neighbours can be resized at once, got 0 \.\.\. 3"),
        ({"scales": [2, 2], "axes": [0, 0]}, "an axis occurs twice"),
        ({"scales": [2], "axes": [4]}, r"axes must be in -4 \.\.\. 3"),
        ({"scales": [2], "axis_names": "X"}, "axis_names must be axes of the layout"),
        ({"scales": [2], "axes": [0], "axis_names": "F"}, "give either axes or axis_names"),
        ({"scales": [2], "axes": [0], "mode": "not_larger"}, "mode 'not_larger' needs sizes"),
        ({"scales": [2], "axes": [0], "roi_start": [1]}, "roi_start and roi_end must be given together"),
        (
            {"scales": [2], "axes": [0], "dtype": types.INT16},
            ".*the output the same, FLOAT, FLOAT16 or BFLOAT16; got uint8 to int16",
        ),
    ]:
        with pytest.raises((ValueError, TypeError), match=f"^tensor_resize.*: {message}"):
            run(
                lambda a, arguments=arguments: fn.tensor_resize(a, **arguments),
                [np.zeros((2, 4, 5, 3), np.uint8)],
                layouts=["FHWC"],
            )


@pytest.mark.parametrize(
    ("arguments", "blurred"),
    [  # DALI 2.4 blurs these axes, of those that keep their extents
        ({"scales": [1, 1, 1]}, [1, 2]),
        ({"scales": [1.5, 1, 1]}, [1]),
        ({"scales": [1, 1.5, 1]}, [2]),
        ({"scales": [1, 1, 1.5]}, [1]),
        ({"scales": [1.5, 1, 1.5]}, [1]),
        ({"scales": [1, 1.5, 1.5]}, []),
        ({"scales": [1.5], "axes": [0]}, [1]),
        ({"scales": [1.5], "axes": [2]}, [1]),
        ({"sizes": [0, 8, 0], "mode": "stretch"}, [2]),
    ],
)
def test_gaussian_blurs_two_axes_at_least(arguments, blurred):
    x = np.zeros((4, 5, 6), np.float32)
    x[1, 1, 1] = 100
    (result,) = run(lambda a: fn.tensor_resize(a, interp_type=types.INTERP_GAUSSIAN, **arguments), [x], layouts=["XYZ"])
    y = np.asarray(result[0])
    unchanged = [d for d in range(3) if y.shape[d] == x.shape[d]]
    assert [d for d in unchanged if np.delete(y, 1, axis=d).any()] == blurred


def test_gaussian_blur_of_a_kept_axis():
    image = picture(9, 14, 3)
    tensor, want = run(
        lambda a: (
            fn.tensor_resize(a, scales=[2], axis_names="H", interp_type=types.INTERP_GAUSSIAN),
            fn.resize(a, size=(18, 14), interp_type=types.INTERP_GAUSSIAN),
        ),
        [image],
        layouts=["HWC"],
    )
    np.testing.assert_array_equal(np.asarray(tensor[0]), np.asarray(want[0]))
