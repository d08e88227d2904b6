"""`fn.rotate` against a float model of its definition, and between two paths that must agree."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from pipelines import run

import jaxdali
from jaxdali import fn, types

NN, LINEAR = types.INTERP_NN, types.INTERP_LINEAR


def rotated_size(h, w, degrees):
    """H', W' by the rule of DALI, which computes the angle with 32 bits."""
    a = float(np.float32(degrees) * np.float32(math.pi / 180))
    c, s = abs(math.cos(a)), abs(math.sin(a))
    sizes = []
    for n, other_extent in ((h, w), (w, h)):
        extent = math.ceil(c * n + s * other_extent - 0.01)
        sizes.append(extent + (extent + (n if s <= c else other_extent)) % 2)
    return sizes


def model(image, degrees, size=None, fill=None, interp=LINEAR):
    """The rotated HWC image as float64, not yet rounded."""
    h, w, _ = image.shape
    oh, ow = size or rotated_size(h, w, degrees)
    a = math.radians(degrees)
    v, u = np.mgrid[:oh, :ow] + 0.5 - np.array([oh, ow])[:, None, None] / 2
    x = math.cos(a) * u - math.sin(a) * v + w / 2
    y = math.sin(a) * u + math.cos(a) * v + h / 2

    def pixel(i, j):
        p = image[np.clip(i, 0, h - 1), np.clip(j, 0, w - 1)].astype(np.float64)
        outside = (i < 0) | (i >= h) | (j < 0) | (j >= w)
        return p if fill is None else np.where(outside[..., None], float(fill), p)

    if interp == NN:
        return pixel(np.floor(y).astype(int), np.floor(x).astype(int))
    i, j = np.floor(y - 0.5).astype(int), np.floor(x - 0.5).astype(int)
    qy, qx = (y - 0.5 - i)[..., None], (x - 0.5 - j)[..., None]
    top = pixel(i, j) * (1 - qx) + pixel(i, j + 1) * qx
    bottom = pixel(i + 1, j) * (1 - qx) + pixel(i + 1, j + 1) * qx
    return top * (1 - qy) + bottom * qy


def rotate(images, layout="HWC", **kwargs):
    (out,) = run(lambda x: fn.rotate(x, **kwargs), images, layouts=[layout])
    assert out.layout() == (layout or {3: "HWC", 4: "FHWC"}[images[0].ndim])
    return [np.array(x) for x in out]


def noise(*shape, dtype=np.uint8, seed=0):
    rng = np.random.default_rng([seed, *shape])
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)


IMAGES = [noise(h, w, 3) for h, w in ((37, 61), (1, 9), (8, 1), (2, 2), (50, 33), (1, 1), (16, 640))]


@pytest.mark.parametrize("fill", [None, 0, 77])
@pytest.mark.parametrize("angle", [0, 3.3, -30, 45, 89.99, 135, 200.5, -721])
def test_linear_uint8(angle, fill):
    for rotated, image in zip(rotate(IMAGES, angle=angle, fill_value=fill), IMAGES, strict=True):
        want = model(image, angle, fill=fill)
        assert rotated.shape == want.shape
        error = np.abs(rotated - want)
        assert error.max() < 0.6, (image.shape, error.max())  # of exact arithmetic: 0.5
        assert (error > 0.51).mean() < 0.01


@pytest.mark.parametrize("fill", [None, 9])
def test_vector_and_scalar_paths_agree(fill):
    # Single channels are computed pixel by pixel, three and four with AVX2 where there is AVX2.
    for channels in (3, 4):
        images = [noise(h, w, channels) for h, w in ((37, 61), (2, 2), (21, 600))]
        for angle in (7, 45.5, -100, 180):
            whole = rotate(images, angle=angle, fill_value=fill)
            for c in range(channels):
                for a, b in zip(
                    whole, rotate([x[..., c : c + 1] for x in images], angle=angle, fill_value=fill), strict=True
                ):
                    np.testing.assert_array_equal(a[..., c : c + 1], b)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.float16, np.float32])
@pytest.mark.parametrize("interp", [NN, LINEAR])
def test_types(dtype, interp):
    image = noise(19, 23, 2, dtype=dtype)
    kwargs = {"angle": 17.3, "interp_type": interp, "fill_value": 5}
    want = model(image, 17.3, fill=5, interp=interp)
    scale = np.abs(want).max()
    (same_type,), (as_float,) = rotate([image], **kwargs), rotate([image], **kwargs, dtype=types.FLOAT)
    assert (same_type.dtype, as_float.dtype) == (dtype, np.float32)
    np.testing.assert_allclose(as_float, want, atol=scale * 1e-5)
    np.testing.assert_allclose(
        same_type,
        want,
        atol=scale * (5e-4 if dtype == np.float16 else 1e-5) + (0.51 if np.dtype(dtype).kind != "f" else 0),
    )
    if dtype == np.float32:
        for result in (np.uint8, np.int16, np.int32):
            (rotated,) = rotate([image * 300], **kwargs, dtype=result)
            limits = np.iinfo(result)
            want = np.clip(model(image * 300, 17.3, fill=5, interp=interp), limits.min, limits.max)
            assert rotated.dtype == result
            assert np.abs(rotated - want).max() < 0.51
        (rotated,) = rotate([image], **kwargs, dtype=types.FLOAT16)
        np.testing.assert_array_equal(rotated, as_float.astype(np.float16))  # rounded once


def test_quarter_turns_only_move_pixels():
    image = IMAGES[0]
    for interp in (NN, LINEAR):
        for quarters in range(-2, 6):
            (rotated,) = rotate([image], angle=90 * quarters, interp_type=interp, fill_value=1)
            np.testing.assert_array_equal(rotated, np.rot90(image, quarters))


def test_size_and_keep_size():
    image = IMAGES[0]
    h, w, _ = image.shape
    cases: list[tuple[tuple[int, int], dict[str, Any]]] = [
        ((h, w), {"keep_size": True}),
        ((70, 41), {"size": (70, 41)}),
        ((3, 1), {"size": (2.5, 0.4), "keep_size": True}),
    ]
    for size, kwargs in cases:
        for fill in (None, 0):
            (rotated,) = rotate([image], angle=25, fill_value=fill, **kwargs)
            assert rotated.shape == (*size, 3)
            assert np.abs(rotated - model(image, 25, size=size, fill=fill)).max() < 0.6
    assert rotate([image], angle=25)[0].shape == (*rotated_size(h, w, 25), 3)


def test_static_and_ragged_results_agree():
    def both(x):
        constant = types.Constant(IMAGES[0], layout="HWC")
        return tuple(fn.rotate(y, angle=31, keep_size=keep) for keep in (False, True) for y in (constant, x))

    static, ragged, static_kept, ragged_kept = run(both, IMAGES[:1], layouts=["HWC"])
    np.testing.assert_array_equal(static.at(0), ragged.at(0))
    np.testing.assert_array_equal(static_kept.at(0), ragged_kept.at(0))


def test_arguments_per_sample():
    images = IMAGES[:3]
    angles, sizes = [10.0, -60.0, 199.0], [(5, 6), (7, 8), (20, 3)]
    (rotated,) = run(
        lambda x, a, s: fn.rotate(x, angle=a, size=s, fill_value=3),
        images,
        [np.float32(a) for a in angles],
        [np.array(s) for s in sizes],
        layouts=["HWC", "", ""],
    )
    for g, image, angle, size in zip(rotated, images, angles, sizes, strict=True):
        np.testing.assert_array_equal(np.array(g), rotate([image], angle=angle, size=size, fill_value=3)[0])


def test_fill_value_is_rounded_and_saturated():
    image = IMAGES[0]
    np.testing.assert_array_equal(
        rotate([image], angle=30, fill_value=300.7)[0], rotate([image], angle=30, fill_value=255)[0]
    )
    np.testing.assert_array_equal(
        rotate([image], angle=30, fill_value=2.5)[0], rotate([image], angle=30, fill_value=3)[0]
    )


@pytest.mark.parametrize("layout", ["FHWC", ""])
def test_all_frames_of_a_sequence_turn_alike(layout):
    video = noise(3, 20, 31, 3)
    (rotated,) = rotate([video], layout=layout, angle=33, fill_value=0)
    for frame, want in zip(rotated, rotate(list(video), angle=33, fill_value=0), strict=True):
        np.testing.assert_array_equal(frame, want)


def test_volumes_turn_about_their_axis():
    volume = noise(7, 20, 31, 2)
    for interp, fill in ((NN, 0), (LINEAR, None), (LINEAR, 9)):
        kwargs = {"interp_type": interp, "fill_value": fill}
        (about_z,) = rotate([volume], layout="DHWC", angle=33, axis=(0, 0, 1), **kwargs)
        for plane, want in zip(about_z, rotate(list(volume), angle=-33, **kwargs), strict=True):
            assert np.abs(plane.astype(int) - want).max() <= 1
        (reversed_axis,) = rotate([volume], layout="DHWC", angle=-33, axis=(0, 0, -5), **kwargs)
        np.testing.assert_array_equal(reversed_axis, about_z)
    # A cyclic change of the axes is a rotation itself: it may be done before or after.
    (whole,) = rotate([volume], layout="DHWC", angle=40, axis=(1, 2, 3), fill_value=0)
    (cycled,) = rotate([volume.transpose(1, 2, 0, 3)], layout="DHWC", angle=40, axis=(3, 1, 2), fill_value=0)
    assert np.abs(cycled.astype(int) - whole.transpose(1, 2, 0, 3)).max() <= 1


def test_sequences_of_volumes():
    volume = noise(2, 5, 6, 7, 1)
    (rotated,) = rotate([volume], layout="FDHWC", angle=20, axis=(0, 1, 1), size=(6, 7, 8))
    for g, v in zip(rotated, volume, strict=True):
        np.testing.assert_array_equal(g, rotate([v], layout="DHWC", angle=20, axis=(0, 1, 1), size=(6, 7, 8))[0])


@pytest.mark.parametrize(
    ("shape", "layout", "kwargs", "message"),
    [
        ((3, 8, 9), "CHW", {}, "layout"),
        ((8, 9), "", {}, "2-D data without a layout"),
        ((8, 9, 3), "HWC", {"interp_type": types.INTERP_CUBIC}, "one of types.INTERP_LINEAR, types.INTERP_NN"),
        ((8, 9, 3), "HWC", {"dtype": types.INT16}, "uint8 to int16"),
        ((8, 9, 3), "HWC", {"size": 5}, "size must have 2 numbers"),
        ((8, 9, 3), "HWC", {"size": (5, 0)}, "size must be .* above 0"),
        ((8, 9, 3), "HWC", {"angle": math.inf}, "angle must be a finite number"),
        ((4, 8, 9, 3), "DHWC", {}, "axis"),
        ((4, 8, 9, 3), "DHWC", {"axis": (0, 0, 0)}, "zero vector"),
    ],
)
def test_wrong_arguments_are_named(shape, layout, kwargs, message):
    with pytest.raises(ValueError, match=message):
        run(lambda x: fn.rotate(x, **{"angle": 5, **kwargs}), [noise(*shape)], layouts=[layout])
    colour: Any = [1, 2, 3]
    with pytest.raises(TypeError, match="fill_value"):
        run(lambda x: fn.rotate(x, angle=5, fill_value=colour), IMAGES[:1])


def test_other_types_are_for_cast():
    with pytest.raises(ValueError, match=r"got uint16 to uint16; fn\.cast converts it"):
        run(lambda x: fn.rotate(x, angle=5), [noise(8, 9, 3).astype(np.uint16)])


def test_a_bad_argument_blames_the_sample():
    with pytest.raises(jaxdali.SampleError, match="angle must be finite, got nan"):
        run(lambda x, a: fn.rotate(x, angle=a), IMAGES[:2], [np.float32(1), np.float32(np.nan)])
    with pytest.raises(jaxdali.SampleError, match="empty"):
        run(lambda x: fn.rotate(x, angle=90, size=(3, 3)), [IMAGES[0], IMAGES[0][:0]])


@pytest.mark.parametrize(
    "operator", [lambda x, **a: fn.rotate(x, angle=0, **a), lambda x, **a: fn.warp_affine(x, matrix=np.eye(2, 3), **a)]
)
def test_fractions_of_sizes(operator):
    """As in DALI, sizes in lists are rounded, and those in arrays, constants and values per sample lose their
    fractions. Extents are at least 1.
    """
    array = np.array([3.7, 4.5])

    def define(x, size):
        for s in (
            [3.7, 4.5],
            (3.7, 4.4),
            array,
            jnp.asarray(array, jnp.float32),
            types.Constant(array),
            size,
            [0.2, 0.7],
            array / 8,
        ):
            yield operator(x, size=s)

    outputs = run(lambda *x: tuple(define(*x)), [IMAGES[0]] * 2, [np.float32([3.7, 4.5]), np.float32([0.3, 5.9])])
    shapes = [[np.asarray(x).shape[:2] for x in out] for out in outputs]
    assert shapes[:2] == [[(4, 5)] * 2, [(4, 4)] * 2]
    assert shapes[2:5] == [[(3, 4)] * 2] * 3
    assert shapes[5:] == [[(3, 4), (1, 5)], [(1, 1)] * 2, [(1, 1)] * 2]


def test_fractional_sizes_and_large_fill_values():
    """As in DALI, a size per sample loses its fraction, and INTERP_NN keeps a fill value that only the result's type
    can hold.
    """
    image = IMAGES[0]
    (rotated,) = run(lambda x, s: fn.rotate(x, angle=20, size=s), [image], [np.array([5.7, 6.5], np.float32)])
    assert np.array(rotated[0]).shape == (5, 6, 3)
    (rotated,) = run(
        lambda x: fn.rotate(x, angle=45, fill_value=70000, interp_type=types.INTERP_NN, dtype=types.FLOAT), [image]
    )
    assert np.array(rotated[0])[0, 0].tolist() == [70000.0] * 3
