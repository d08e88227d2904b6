"""Operators of the families against their definitions in NumPy: dense and ragged, with numbers per sample, on the host
where they can.
"""

from typing import Unpack

import numpy as np
import pytest
from pipelines import run

import jaxdali
from jaxdali import fn, pipeline_def, types
from jaxdali.extend import DataNode, Elementwise, Hints, Input, PerSample, operator_function

RNG = np.random.default_rng(3)
RAGGED = [RNG.integers(0, 256, (h, w, 3), np.uint8) for h, w in ((30, 41), (17, 60), (52, 9))]
DENSE = [RAGGED[0]] * 3


def images(define, samples, *arguments, layout="HWC", on_device=False):
    """The outputs of ``define(images, *arguments)``, dense where the samples are `DENSE`."""

    def whole(x, *inputs):
        if samples is DENSE:
            x = types.Constant(DENSE[0], layout=layout)
        return define(x.gpu() if on_device else x, *inputs)

    outputs = run(whole, samples, *arguments, layouts=[layout, *[""] * len(arguments)])
    return [[np.array(x) for x in out] for out in outputs]


class Solarize(Elementwise):
    name = "test.solarize"

    def element(self, xp, x, threshold):
        return xp.where(x.astype(np.int32) < threshold, x, np.uint8(255) - x)

    def numbers(self, ctx, values):
        return {"threshold": self.arguments(ctx, values).threshold.astype(np.int32)}


@operator_function(Solarize)
def solarize(
    input: Input, /, *, threshold: PerSample[int] = 128, name: str | None = None, **hints: Unpack[Hints]
) -> DataNode: ...


@pytest.mark.parametrize("samples", [RAGGED, DENSE], ids=["ragged", "dense"])
@pytest.mark.parametrize("on_device", [False, True], ids=["host", "program"])
def test_elementwise_function_with_numbers_per_sample(samples, on_device):
    thresholds = [np.int32(t) for t in (64, 128, 250)]
    per_sample, constant = images(
        lambda x, t: (solarize(x, threshold=t), solarize(x, threshold=100)), samples, thresholds, on_device=on_device
    )
    for e, s, x, t in zip(per_sample, constant, samples, thresholds, strict=True):
        np.testing.assert_array_equal(e, np.where(x < t, x, 255 - x))
        np.testing.assert_array_equal(s, np.where(x < 100, x, 255 - x))


@pytest.mark.parametrize("samples", [RAGGED, DENSE], ids=["ragged", "dense"])
def test_flip_each_sample_its_own_way(samples):
    (flipped,) = images(lambda x, h: fn.flip(x, horizontal=h, vertical=1), samples, [np.int32(i % 2) for i in range(3)])
    for i, (g, x) in enumerate(zip(flipped, samples, strict=True)):
        np.testing.assert_array_equal(g, x[::-1, :: -1 if i % 2 else 1])


@pytest.mark.parametrize("samples", [RAGGED, DENSE], ids=["ragged", "dense"])
@pytest.mark.parametrize("layout", ["CHW", "HWC"])
def test_crop_mirror_normalize(samples, layout):
    mean, std = np.array([120.0, 110, 100], np.float32), np.array([50.0, 60, 70], np.float32)
    (normalized,) = images(
        lambda x, m: fn.crop_mirror_normalize(
            x,
            crop=(15, 8),
            crop_pos_x=0.0,
            crop_pos_y=1.0,
            mirror=m,
            mean=list(mean),
            std=list(std),
            output_layout=layout,
            pad_output=True,
        ),
        samples,
        [np.int32(1), np.int32(0), np.int32(1)],
    )
    for i, (g, x) in enumerate(zip(normalized, samples, strict=True)):
        want = ((x[-15:, :8].astype(np.float32) - mean) / std)[:, :: 1 if i == 1 else -1]
        want = np.concatenate([want, np.zeros((15, 8, 1))], axis=2)
        np.testing.assert_allclose(g, want.transpose(2, 0, 1) if layout == "CHW" else want, atol=2e-5)


@pytest.mark.parametrize("samples", [RAGGED, DENSE], ids=["ragged", "dense"])
def test_brightness_contrast_and_blur_in_one_program(samples):
    factor = [np.float32(f) for f in (0.5, 1.5, 1.0)]
    (outputs,) = images(
        lambda x, b: fn.brightness_contrast(x, brightness=b, contrast=2.0, dtype=types.FLOAT), samples, factor
    )
    for g, x, f in zip(outputs, samples, factor, strict=True):
        np.testing.assert_allclose(g, f * (128 + 2 * (x.astype(np.float64) - 128)), rtol=1e-5, atol=1e-3)
    (outputs,) = images(lambda x: fn.gaussian_blur(x, window_size=(3, 5), sigma=1.0, dtype=types.FLOAT), samples)
    for g, x in zip(outputs, samples, strict=True):
        want = np.pad(x.astype(np.float64), ((1, 1), (2, 2), (0, 0)), mode="reflect")
        for axis, n in ((0, 3), (1, 5)):
            w = np.exp(-((np.arange(n) - n // 2) ** 2) / 2)
            want = sum(
                wi / w.sum() * np.take(want, range(i, want.shape[axis] - n + 1 + i), axis=axis)
                for i, wi in enumerate(w)
            )
        np.testing.assert_allclose(g, want, atol=1e-3)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.float64])
def test_filters_of_64_bits(dtype):
    x = np.random.default_rng(0).integers(0, 1 << 17, (9, 8)).astype(dtype)
    (blurred,) = run(lambda a: fn.gaussian_blur(a, window_size=(1, 3), sigma=1.0), [x])
    w = np.exp([-0.5, 0, -0.5])
    wide = np.pad(x.astype(np.float64), ((0, 0), (1, 1)), mode="reflect")
    want = (wide[:, :-2] * w[0] + wide[:, 1:-1] * w[1] + wide[:, 2:] * w[2]) / w.sum()
    actual = np.asarray(blurred[0])
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual, want, atol=0.6 if dtype != np.float64 else 0.02)
    (edges,) = run(lambda a: fn.laplacian(a, window_size=3, smoothing_size=1), [x])
    wide = np.pad(x.astype(np.int64), 1, mode="reflect")
    want = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:] - 4 * wide[1:-1, 1:-1]
    np.testing.assert_array_equal(np.asarray(edges[0]), np.maximum(want, 0) if dtype == np.uint64 else want)
    with pytest.raises(ValueError, match=r"^gaussian_blur .*must be numbers, got bool"):
        run(lambda a: fn.gaussian_blur(a, window_size=3), [x > 9])


@pytest.mark.parametrize("samples", [RAGGED, DENSE], ids=["ragged", "dense"])
@pytest.mark.parametrize("decoded", [False, True], ids=["host", "program"])
def test_reductions(samples, decoded):
    def define(x):
        x = fn.flip(x, horizontal=0) if decoded else x  # after a native operator it is in the program
        mean = fn.reductions.mean(x, axes=(0,))
        return (
            mean,
            fn.reductions.std_dev(x, mean, axes=(0,)),
            fn.reductions.sum(x, axis_names="HW"),
            fn.reductions.max(x),
        )

    mean, deviation, total, largest = images(define, samples)
    for i, x in enumerate(samples):
        np.testing.assert_allclose(mean[i], x.mean(axis=0), rtol=1e-6)
        np.testing.assert_allclose(deviation[i], x.std(axis=0), rtol=1e-5)
        np.testing.assert_array_equal(total[i], x.sum(axis=(0, 1)))
        assert (largest[i].shape, largest[i].item(), total[i].dtype) == ((), x.max(), np.uint64)


def test_slice_pad_and_errors():
    (padded,) = images(
        lambda x: fn.pad(fn.slice(x, start=(2, 3), end=(10, 9), axes=(0, 1)), axis_names="HW", align=16, fill_value=7),
        RAGGED,
    )
    for g, x in zip(padded, RAGGED, strict=True):
        np.testing.assert_array_equal(g, np.pad(x[2:10, 3:9], ((0, 8), (0, 10), (0, 0)), constant_values=7))
    with pytest.raises(jaxdali.SampleError, match=r"the window .* reaches outside the sample, of shape"):
        images(lambda x: fn.crop(x, crop=(20, 20)), RAGGED)
    with pytest.raises(ValueError, match="output_layout must have the axes"):
        images(lambda x: fn.crop_mirror_normalize(x, output_layout="FCHW"), RAGGED)


def test_types_of_windows():
    """The types of DALI 2.4, with its results: the input's type, and three that any other type is converted to."""
    wide = [np.array([[-1, 300], [2, 1 << 40]]), np.array([[7, 8, -9]])]
    unchanged, small, real = run(
        lambda x: [
            fn.slice(x, start=[0], shape=[1], axes=[0], dtype=t) for t in (types.INT64, types.UINT8, types.FLOAT)
        ],
        wide,
    )
    for x, a, b, c in zip(wide, unchanged, small, real, strict=True):
        np.testing.assert_array_equal(np.asarray(a), x[:1])
        np.testing.assert_array_equal(np.asarray(b), np.clip(x[:1], 0, 255).astype(np.uint8))
        np.testing.assert_array_equal(np.asarray(c), x[:1].astype(np.float32))
    (cut,) = run(lambda x: fn.crop(x, crop=(1, 1), dtype=types.INT16), [np.ones((2, 2, 1), np.int16)], layouts=["HWC"])
    assert np.asarray(cut[0]).dtype == np.int16
    # A fill value's fraction is cut, as by DALI 2.4; elements are rounded.
    for function in (fn.crop, fn.crop_mirror_normalize):
        (padded,) = run(
            lambda x, f=function: f(
                x, crop=(1, 2), out_of_bounds_policy="pad", crop_pos_x=1.0, fill_values=2.6, dtype=types.UINT8
            ),
            [np.full((1, 1, 1), 3.6, np.float32)],
            layouts=["HWC"],
        )
        assert np.asarray(padded[0]).ravel().tolist() == [2, 4]
    (padded,) = run(lambda x: fn.pad(x, shape=[3], fill_value=-2.6), [np.ones(2, np.int16)])
    assert np.asarray(padded[0]).tolist() == [1, 1, -2]
    with pytest.raises(
        ValueError,
        match="dtype must be the input's type, UINT8, FLOAT16, BFLOAT16 or FLOAT; got int32, the input is int64",
    ):
        run(lambda x: fn.slice(x, start=[0], shape=[1], axes=[0], dtype=types.INT32), wide)


@pytest.mark.parametrize("fill", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize(
    ("dtype", "whole"),
    [(np.uint8, 0), (np.int16, 0), (np.int32, -(2**31)), (np.int64, -(2**63)), (np.float16, None), (np.float32, None)],
)
def test_infinite_and_nan_fill_values(fill, dtype, whole):
    """The results are those of DALI 2.4."""
    outside = {"crop": (1, 2), "crop_pos_x": 1.0, "out_of_bounds_policy": "Pad", "fill_values": fill}

    def define(x, number):
        yield fn.pad(x, shape=[1, 2, 1], fill_value=fill)
        yield fn.pad(x, shape=[1, 2, 1], fill_value=number)
        yield fn.slice(x, start=[0], shape=[2], axes=[1], out_of_bounds_policy="PAD", fill_values=[fill])
        if dtype != np.int64:
            yield fn.crop(x, **outside)
            yield fn.erase(fn.pad(x, shape=[1, 2, 1]), anchor=[1.0], shape=[1.0], axes=[1], fill_value=fill)

    image = np.full((1, 1, 1), 3, dtype)
    for on_device in (False, True):
        outputs = run(
            lambda *x: tuple(define(*x)), [image], [np.float32(fill)], layouts=["HWC", ""], on_device=on_device
        )
        for k, out in enumerate(outputs):
            actual = (
                sorted(np.asarray(out[0]).ravel().tolist())
                if whole is not None
                else np.asarray(out[0]).ravel().tolist()
            )
            want = sorted([3, whole]) if whole is not None else [fill, 3] if k == 3 else [3, fill]
            np.testing.assert_array_equal(actual, want, err_msg=str(k))


def test_infinite_and_nan_constants():
    define = lambda _: (
        fn.constant(fdata=[np.inf, -np.inf, np.nan]),
        fn.constant(fdata=[np.inf, -np.inf, np.nan], dtype=types.INT32),
    )
    real, whole = run(define, [np.float32(0)])
    np.testing.assert_array_equal(np.asarray(real[0]), [np.inf, -np.inf, np.nan])
    assert np.asarray(whole[0]).tolist() == [2**31 - 1, -(2**31), -(2**31)]


@pytest.mark.parametrize("function", [lambda x, f: x * f, lambda x, f: f - x, lambda x, f: x > f])
def test_numbers_of_samples_meet_ragged_images(function):
    """Also where a sample is empty: it has no block of its own."""
    samples, factor = [RAGGED[0], RAGGED[1][:0], RAGGED[2]], [np.float32(f) for f in (0.25, 3, 100)]
    (outputs,) = run(lambda x, f: function(x.gpu(), f), samples, factor)
    for g, x, f in zip(outputs, samples, factor, strict=True):
        np.testing.assert_array_equal(np.array(g), function(x.astype(np.float32), f))


@pytest.mark.parametrize("shapes", [[(3, 4)] * 6, [()] * 5, [(0, 4)] * 3, [(3, 4), (4, 3)], [(300, 500)] * 2])
def test_small_samples_are_computed_together(shapes, monkeypatch):
    """A call takes longer than its arithmetic. Samples of other shapes, and large ones, are computed one by one."""
    counts, element = [], Solarize.element
    monkeypatch.setattr(
        Solarize, "element", lambda self, xp, x, threshold: counts.append(x.shape) or element(self, xp, x, threshold)
    )
    samples = [RNG.integers(0, 256, shape, np.uint8) for shape in shapes]
    thresholds = [np.int32(20 * i) for i in range(len(shapes))]
    (outputs,) = run(lambda x, t: solarize(x, threshold=t), samples, thresholds)
    for y, x, t in zip(outputs, samples, thresholds, strict=True):
        np.testing.assert_array_equal(y, np.where(x < t, x, 255 - x))
    assert len(counts) == (1 if len({*shapes}) == 1 and np.prod(shapes[0]) < 100_000 else len(shapes)), counts


@pytest.mark.parametrize("threads", [1, 2])
def test_subnormal_numbers_in_all_threads(threads):
    """XLA's threads flush them to zero, those of the pool do not."""
    image = np.full((300, 300, 3), 1e-41, np.float32)

    @pipeline_def(batch_size=8, num_threads=threads, device_id=None)
    def pipeline():
        images = fn.external_source(source=lambda: [image] * 8, batch=True, layout="HWC")
        return fn.brightness(images, brightness=1.5), fn.rotate(images, angle=90, fill_value=0)

    brighter, rotated = (np.asarray(x.as_cpu().as_array()) for x in pipeline().run())
    np.testing.assert_array_equal(brighter, np.broadcast_to(image * np.float32(1.5), brighter.shape))
    np.testing.assert_array_equal(rotated, np.broadcast_to(image, rotated.shape))
