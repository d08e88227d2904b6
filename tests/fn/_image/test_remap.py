"""Gathers by coordinate maps against a definition in NumPy, and against results of DALI 2.4."""

import numpy as np
import pytest
from images import picture
from pipelines import run

from jaxdali import Pipeline, SampleError, fn, types

NN, LINEAR, CUBIC = types.INTERP_NN, types.INTERP_LINEAR, types.INTERP_CUBIC
BORDERS = ("constant", "replicate", "reflect", "reflect_101", "wrap")
NUMPY_MODES = {"replicate": "edge", "reflect": "symmetric", "reflect_101": "reflect", "wrap": "wrap"}


def gather(image, x, y, interp=NN, border="constant", fill=0.0):
    """The HWC image at points (x, y) from its corner, as float64."""
    margin = 64  # no point is further outside
    pad = ((margin, margin), (margin, margin), (0, 0))
    image = image.astype(np.float64)
    if border == "constant":
        padded = np.stack(
            [
                np.pad(c, pad[:2], constant_values=f)
                for c, f in zip(np.moveaxis(image, 2, 0), np.broadcast_to(fill, image.shape[2]))
            ],
            -1,
        )
    else:
        padded = np.pad(image, pad, mode=NUMPY_MODES[border])
    if interp == NN:
        return padded[np.floor(y).astype(int) + margin, np.floor(x).astype(int) + margin]
    i, j = np.floor(y - 0.5).astype(int), np.floor(x - 0.5).astype(int)
    taps = {LINEAR: (0, 1), CUBIC: (-1, 0, 1, 2)}[interp]
    weights = {LINEAR: lambda t: 1 - abs(t), CUBIC: keys}[interp]
    out = np.zeros((*x.shape, image.shape[2]))
    for b in taps:
        for a in taps:
            w = weights(y - 0.5 - (i + b)) * weights(x - 0.5 - (j + a))
            out += w[..., None] * padded[i + b + margin, j + a + margin]
    return out


def keys(t, a=-0.75):
    t = np.abs(t)
    return np.where(t <= 1, (a + 2) * t**3 - (a + 3) * t**2 + 1, a * (t**3 - 5 * t**2 + 8 * t - 4))


def assert_near(actual, want, interp=LINEAR):
    low, high = (
        (np.iinfo(actual.dtype).min, np.iinfo(actual.dtype).max) if actual.dtype.kind in "iu" else (-np.inf, np.inf)
    )
    error = np.abs(actual.astype(np.float64) - np.clip(want, low, high))
    size = max(1.0, np.abs(want).max())
    if interp == NN:  # where a point lies on the border of two pixels, either
        assert (error > 0).mean() < 0.01
    elif actual.dtype.kind == "f":
        assert error.max() < (2e-3 if actual.dtype == np.float16 else 1e-5) * size
    else:
        assert error.max() < 0.5 + 1e-5 * size


def sample_images(dtype=np.uint8, channels=3):
    return [picture(h, w, channels, seed=h).astype(dtype) for h, w in ((37, 61), (40, 12), (1, 9), (24, 24))]


def index(image):
    y, x = np.mgrid[: image.shape[0], : image.shape[1]].astype(np.float64)
    return x, y


@pytest.mark.parametrize(
    ("dtype", "interp", "fill"),
    [(np.uint8, NN, 9.0), (np.uint8, LINEAR, 0.0), (np.float32, LINEAR, 7.5), (np.uint16, NN, 3.0)],
)
def test_sphere_and_water(dtype, interp, fill):
    images = sample_images(dtype)
    waves = {"ampl_x": 3.0, "ampl_y": 5.0, "freq_x": 0.31, "freq_y": 0.17, "phase_x": 0.2, "phase_y": 1.1}
    sphere, water = run(
        lambda a: (
            fn.sphere(a, interp_type=interp, fill_value=fill),
            fn.water(a, interp_type=interp, fill_value=fill, **waves),
        ),
        images,
        layouts=["HWC"],
    )
    assert sphere.layout() == water.layout() == "HWC"
    for image, ball, waved in zip(images, map(np.array, sphere), map(np.array, water), strict=True):
        (x, y), (h, w) = index(image), image.shape[:2]
        dx, dy = x + 0.5 - w / 2, y + 0.5 - h / 2
        by = np.hypot(dx, dy) / (max(h, w) // 2)
        assert_near(ball, gather(image, w / 2 + by * dx, h / 2 + by * dy, interp, fill=fill), interp)
        assert_near(
            waved,
            gather(image, x + 3 * np.sin(0.31 * y + 0.2), y + 5 * np.cos(0.17 * x + 1.1), interp, fill=fill),
            interp,
        )


def test_recorded_by_dali():
    image = ((np.arange(30).reshape(5, 6, 1) * 37) % 251).astype(np.uint8)
    waves = {
        "ampl_x": 1.5,
        "ampl_y": 1.2,
        "freq_x": 0.9,
        "freq_y": 0.7,
        "phase_x": 0.3,
        "phase_y": 0.1,
        "fill_value": 9.0,
    }
    matrix = [0.9, 0.2, 0.3, -0.1, 1.1, 0.2, 0.01, 0.02, 1.0]
    outputs = run(
        lambda a: (
            fn.sphere(a, interp_type=LINEAR, fill_value=9.0),
            fn.water(a, **waves),
            fn.water(a, interp_type=LINEAR, **waves),
            fn.experimental.warp_perspective(a, matrix=matrix, fill_value=9, interp_type=CUBIC),
            fn.experimental.warp_perspective(a, matrix=matrix, border_mode="wrap", interp_type=CUBIC),
        ),
        [image],
        layouts=["HWC"],
    )
    want = [  # 5 x 6 pixels each
        "3 37 62 87 129 136 171 59 38 52 85 144 208 70 31 38 62 112 176 175 81 60 50 91 100 191 208 126 74 52",
        "222 37 74 9 9 9 230 45 82 148 9 9 201 16 53 119 185 9 135 201 238 53 119 156 9 9 135 201 16 53",
        "146 30 46 9 9 9 166 40 90 116 67 17 202 117 57 117 168 43 105 181 165 48 99 133 9 48 164 200 68 58",
        "35 44 77 98 114 139 167 7 53 88 122 182 255 141 3 65 94 143 189 255 134 0 72 115 148 196 255 154 37 86",
        "1 35 79 124 130 145 155 7 53 86 120 164 253 141 3 65 94 120 187 255 134 0 72 98 152 197 255 142 19 57",
    ]
    for actual, expected in zip(outputs, want, strict=True):
        np.testing.assert_allclose(np.array(actual[0]).astype(int).ravel(), [int(v) for v in expected.split()], atol=1)


def test_masked_samples_stay():
    images, mask = sample_images(), [1, 0, 1, 0]
    outputs = run(
        lambda a, m: (fn.sphere(a, mask=m), fn.water(a, mask=m), fn.jitter(a, mask=m, nDegree=9)),
        images,
        mask,
        layouts=["HWC", ""],
    )
    for out in outputs:
        assert [np.array_equal(np.array(x), image) for x, image in zip(out, images, strict=True)][1::2] == [True, True]
        assert not np.array_equal(np.array(out[0]), images[0])


def test_jitter_is_uniform_in_the_square():
    place = np.arange(90 * 70, dtype=np.uint16).reshape(90, 70, 1)
    define = lambda a: (
        fn.jitter(a, nDegree=4, seed=3),
        fn.jitter(a, nDegree=4, seed=3),
        fn.jitter(a, nDegree=0),
        fn.jitter(a),
    )
    first, repeated, unmoved, small = (
        [np.array(x).astype(int)[..., 0] for x in out] for out in run(define, [place, place], layouts=["HWC"])
    )
    for i in range(2):
        y, x = np.divmod(first[i], 70) - np.mgrid[:90, :70]
        counts = np.histogram2d(y[2:-2, 2:-2].ravel(), x[2:-2, 2:-2].ravel(), bins=[np.arange(-2.5, 3)] * 2)[0]
        assert counts.sum() == 86 * 66
        assert np.abs(counts / counts.sum() - 1 / 25).max() < 0.01
        np.testing.assert_array_equal(repeated[i], first[i])
        np.testing.assert_array_equal(unmoved[i], place[..., 0])
        assert {*np.unique(np.divmod(small[i], 70) - np.mgrid[:90, :70])} == {-1, 0, 1}
    assert not np.array_equal(first[0], first[1])


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32])
def test_grid_mask(dtype):
    images, angles = sample_images(dtype), np.array([0.0, 0.3, -1.2, 2.0], np.float32)
    (out,) = run(
        lambda a, angle: fn.grid_mask(a, tile=9, ratio=0.4, angle=angle, shift_x=2.0, shift_y=-3.0),
        images,
        angles,
        layouts=["HWC", ""],
    )
    for masked, image, angle in zip(map(np.array, out), images, angles, strict=True):
        x, y = index(image)
        c, s = np.cos(angle) / 9, np.sin(angle) / 9
        along, across = (c * x - s * y - 2 / 9) % 1, (s * x + c * y + 3 / 9) % 1
        black = (along < 0.4) & (across < 0.4)
        assert (masked != np.where(black[..., None], 0, image)).mean() < 0.02


MATRIX = np.array([[0.9, 0.2, 3.0], [-0.1, 1.1, -2.0], [0.002, -0.003, 1.0]])


@pytest.mark.parametrize("interp", [NN, LINEAR, CUBIC])
@pytest.mark.parametrize("border", BORDERS)
def test_perspective(border, interp):
    images = sample_images()[:2]
    fill = (5.0, 6.0, 7.0) if border == "constant" else 0.0
    (out,) = run(
        lambda a: fn.experimental.warp_perspective(
            a, matrix=MATRIX.ravel(), border_mode=border, interp_type=interp, fill_value=fill, size=(30, 25)
        ),
        images,
        layouts=["HWC"],
    )
    y, x = np.mgrid[:30, :25] + 0.5
    u, v, w = np.einsum("ij,jyx->iyx", MATRIX, [x, y, np.ones_like(x)])
    for warped, image in zip(map(np.array, out), images, strict=True):
        want = gather(image, u / w, v / w, interp, border, fill)
        assert_near(warped, want, interp)


def test_perspective_layouts_origins_and_directions():
    images = sample_images(np.int16)[:2]
    sequences, matrices = [np.stack([x, x[::-1]]) for x in images], [MATRIX, np.linalg.inv(MATRIX)]
    warp = fn.experimental.warp_perspective
    half = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
    hwc, chw, seq, hw, backward, center = run(
        lambda a, f, m: (
            warp(a, m),
            warp(fn.transpose(a, perm=[2, 0, 1]), m),
            warp(f, m),
            warp(fn.reshape(a[:, :, 1], layout="HW"), m),
            warp(a, matrix=np.linalg.inv(MATRIX).ravel(), inverse_map=False),
            warp(a, matrix=(np.linalg.inv(half) @ MATRIX @ half).ravel(), pixel_origin="center"),
        ),
        images,
        sequences,
        [m.astype(np.float32) for m in matrices],
        layouts=["HWC", "FHWC", ""],
    )
    assert [t.layout() for t in (hwc, chw, seq, hw)] == ["HWC", "CHW", "FHWC", "HW"]
    for i in range(2):
        want = np.array(hwc[i])
        np.testing.assert_array_equal(np.moveaxis(np.array(chw[i]), 0, 2), want)
        np.testing.assert_array_equal(np.array(seq[i])[0], want)
        np.testing.assert_array_equal(np.array(hw[i]), want[..., 1])
    for equivalent in (backward, center):
        assert np.abs(np.array(equivalent[0]).astype(int) - np.array(hwc[0])).max() <= 1


@pytest.mark.parametrize(
    ("dtype", "interp", "origin"),
    [(np.uint8, LINEAR, "corner"), (np.float32, CUBIC, "center"), (np.int16, NN, "corner")],
)
def test_remap(dtype, interp, origin):
    images, rng = sample_images(dtype, 1), np.random.default_rng(2)
    maps = [rng.uniform(-5, 70, (2, h, w)).astype(np.float32) for h, w in ((20, 30), (8, 50), (1, 1), (40, 3))]
    (out,) = run(
        lambda a, x, y: fn.experimental.remap(a, x, y, interp=interp, pixel_origin=origin),
        images,
        [m[0] for m in maps],
        [m[1] for m in maps],
        layouts=["HWC", "HW", "HW"],
    )
    for remapped, image, m in zip(map(np.array, out), images, maps, strict=True):
        x, y = m.astype(np.float64) + (0.5 if origin == "center" else 0)
        assert_near(remapped, gather(np.pad(image, ((0, 80), (0, 80), (0, 0))), x, y, interp), interp)


def test_remap_with_maps_per_frame_or_shared():
    frames = np.stack(sample_images()[:1] * 3) + np.arange(3, dtype=np.uint8)[:, None, None, None]
    y, x = np.mgrid[:37, :61].astype(np.float32)
    maps_per_frame = np.stack([x, x[:, ::-1], x]), np.stack([y, y, y[::-1]])
    remap = lambda a, u, v: fn.experimental.remap(a, u, v, interp=NN, pixel_origin="center")
    out, shared = run(
        lambda a, u, v, s, t: (remap(a, u, v), remap(a, s, t)),
        *([v] for v in (frames, *maps_per_frame, x[..., None], y[::-1, :, None])),
        layouts=["FHWC", "FHW", "FHW", "HWC", "HWC"],
    )
    np.testing.assert_array_equal(np.array(out[0]), [frames[0], frames[1][:, ::-1], frames[2][::-1]])
    np.testing.assert_array_equal(np.array(shared[0]), frames[:, ::-1])


def test_errors():
    image, m = [np.zeros((4, 5, 3), np.uint8)] * 2, [np.zeros((4, 5), np.float32)] * 2
    warp, remap = fn.experimental.warp_perspective, fn.experimental.remap
    for define, message in [
        (lambda a, x: warp(a), "experimental.warp_perspective.*: the matrix must be given"),
        (lambda a, x: warp(a, x, matrix=[1.0] * 9), "the matrix must be given"),
        (lambda a, x: warp(a, matrix=[1.0] * 8), "argument matrix must be .* 9"),
        (
            lambda a, x: warp(a, matrix=[1.0] * 9, fill_value=(1, 2)),
            "fill_value must be one number or one per channel, of which there are 3; got 2",
        ),
        (lambda a, x: warp(a, matrix=[1.0] * 9, border_mode="none"), "argument border_mode must be one of 'constant'"),
        (lambda a, x: warp(a, matrix=[0.0] * 9, inverse_map=False), "sample 0.*: the matrix must have an inverse"),
        (lambda a, x: fn.sphere(fn.cast(a, dtype=types.INT64)), "sphere.*: the input must be uint8, .*, got int64"),
        (
            lambda a, x: fn.water(a, interp_type=CUBIC),
            "water: argument interp_type must be one of types.INTERP_NN, types.INTERP_LINEAR",
        ),
        (lambda a, x: fn.grid_mask(a, tile=0), "grid_mask: argument tile must be .* at least 1"),
        (lambda a, x: fn.jitter(fn.transpose(a, perm=[2, 0, 1])), "jitter.*: the input must have layout HWC, FHWC"),
        (lambda a, x: remap(a, x, fn.cast(x, dtype=types.INT32)), "the maps must be float32, got int32"),
        (lambda a, x: remap(a, x, x[1:]), r"both maps must have one shape, got \[4, 5\] and \[3, 5\]"),
        (lambda a, x: remap(a, x[0], x[0]), "the maps of a HWC input must have the layout HW or HWC, got 1-D"),
    ]:
        with pytest.raises((ValueError, TypeError, SampleError, RuntimeError), match=message):
            run(define, image, m, layouts=["HWC", ""])


def test_map_made_in_the_program():
    images = sample_images()[:2]
    (out,) = run(
        lambda a, x: fn.experimental.remap(a, x.gpu() * 2.0, x.gpu() * 0.0 + 0.5, interp=NN),
        images,
        [np.tile(np.arange(6, dtype=np.float32) + 0.3, (2, 1))] * 2,
        layouts=["HWC", "HW"],
    )
    for remapped, image in zip(map(np.array, out), images, strict=True):
        np.testing.assert_array_equal(remapped[0], image[0, [0, 2, 4, 6, 8, 10]])


def test_the_pipeline_seed_changes_jitter():
    image = np.arange(400, dtype=np.uint16).reshape(20, 20, 1)

    def once(seed):
        pipe = Pipeline(batch_size=1, num_threads=1, seed=seed)
        with pipe:
            pipe.set_outputs(fn.jitter(fn.external_source(lambda: [image], layout="HWC")))
        return np.array(pipe.run()[0].as_cpu()[0])

    assert np.array_equal(once(1), once(1))
    assert not np.array_equal(once(1), once(2))
