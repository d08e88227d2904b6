"""normalize against NumPy: on the host and in programs, ragged and dense, statistics of samples, of batches, and given."""

import numpy as np
import pytest
from pipelines import run

import jaxdali
from jaxdali import OperatorError, fn, types

rng = np.random.default_rng(5)
RAGGED = [rng.integers(0, 256, (h, w, 3)).astype(np.uint8) for h, w in ((30, 41), (7, 60), (1, 9))]
DENSE = [RAGGED[0]] * 3


def check(define, expected, samples, *more):
    """`define` of host values, of values in the program, and, where the samples are `DENSE`, of a constant there."""

    def constant(x, *y):
        return define(types.Constant(DENSE[0], layout="HWC", device="gpu"), *y)

    for form, on_device in ((define, False), (define, True), *([(constant, False)] if samples is DENSE else [])):
        (out,) = run(
            lambda x, *y, f=form, d=on_device: f(x.gpu() if d else x, *y),
            samples,
            *more,
            layouts=("HWC", *[""] * len(more)),
        )
        assert out.layout() == "HWC"
        for x, want in zip(map(np.asarray, out), expected, strict=True):
            np.testing.assert_allclose(x, want, rtol=1e-4, atol=1e-4)


def standard(x, axes, ddof=0, epsilon=0.0):
    x = x.astype(np.float64)
    variance = ((x - x.mean(axes, keepdims=True)) ** 2).sum(axes, keepdims=True) / (
        np.prod([x.shape[d] for d in axes]) - ddof
    )
    return (x - x.mean(axes, keepdims=True)) / np.where(variance + epsilon == 0, np.inf, np.sqrt(variance + epsilon))


@pytest.mark.parametrize("samples", [RAGGED, DENSE], ids=["ragged", "dense"])
def test_statistics_of_each_sample(samples):
    check(lambda x: fn.normalize(x), [standard(x, (0, 1, 2)) for x in samples], samples)
    check(
        lambda x: fn.normalize(x, axes=(0, 1), ddof=1, epsilon=0.5),
        [standard(x, (0, 1), 1, 0.5) for x in samples],
        samples,
    )
    check(
        lambda x: fn.normalize(x, axis_names="W", scale=2.0, shift=7.0),
        [standard(x, (1,)) * 2 + 7 for x in samples],
        samples,
    )


@pytest.mark.parametrize("samples", [RAGGED, DENSE], ids=["ragged", "dense"])
def test_statistics_of_the_batch(samples):
    whole = np.concatenate([x.reshape(-1, 1, 3) for x in samples]).astype(np.float64)
    mean, deviation = whole.mean(0), np.sqrt(((whole - 100) ** 2).mean())
    check(lambda x: fn.normalize(x, axes=(0, 1), batch=True), [(x - mean) / whole.std(0) for x in samples], samples)
    check(lambda x: fn.normalize(x, mean=100.0, batch=True), [(x - 100.0) / deviation for x in samples], samples)


def test_batch_statistics_of_unknown_extents():
    """The kept axes are known when the batch is there; a sample that a short batch lacks does not count."""
    samples = [rng.normal(size=(n, 70)).astype(np.float32) for n in (5, 1, 9)]
    both = np.concatenate(samples[:2])
    for count, expected in ((3, np.concatenate(samples)), (2, both)):
        batches = iter([samples[:count]])

        @jaxdali.pipeline_def(batch_size=3, num_threads=1, device_id=None)
        def pipeline(batches=batches):
            return fn.normalize(fn.external_source(source=lambda: next(batches)).gpu(), axes=0, batch=True)

        (out,) = pipeline().run()
        for x, y in zip(samples[:count], map(np.asarray, out.as_cpu()), strict=True):
            np.testing.assert_allclose(y, (x - expected.mean(0)) / expected.std(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("samples", [RAGGED, DENSE], ids=["ragged", "dense"])
def test_given_statistics(samples):
    means = [rng.uniform(50, 200, (1, 1, 3)).astype(np.float32) for _ in samples]
    constant = np.float32([[[10, 0, 20]]])
    about = [np.sqrt(((x.astype(np.float64) - m) ** 2).mean((0, 1))) for x, m in zip(samples, means)]
    check(
        lambda x, m: fn.normalize(x, mean=m, axes=(0, 1)),
        [(x - m) / d for x, m, d in zip(samples, means, about)],
        samples,
        means,
    )
    check(
        lambda x, m: fn.normalize(x, mean=m, stddev=4.0, epsilon=9.0),
        [(x - m) / 5 for x, m in zip(samples, means)],
        samples,
        means,
    )
    scaled = [(x - x.mean((0, 1))) * np.float32([0.1, 0, 0.05]) for x in samples]
    check(lambda x: fn.normalize(x, stddev=constant), scaled, samples)  # over the axes in which it has extent 1
    halves = [np.minimum(np.trunc((x - 10.0) / 2 + np.copysign(0.5, x - 10.0)), 127) for x in samples]
    check(lambda x: fn.normalize(x, mean=10.0, stddev=2.0, dtype=types.INT8), halves, samples)


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda x: fn.normalize(x, axes=[]), "at least one axis must be reduced"),
        (lambda x: fn.normalize(x, axes=0, axis_names="H"), "either axes or axis_names"),
        (lambda x: fn.normalize(x, axes=3), "axes must be in -3 ... 2"),
        (lambda x: fn.normalize(x, mean=1.0, stddev=2.0, axes=0), "axes have no meaning"),
        (lambda x: fn.normalize(x, stddev=0.0), "must be above 0"),
        (lambda x: fn.normalize(x, mean=np.zeros((1, 1, 3)), batch=True), "mean must be a number, not a tensor"),
        (lambda x: fn.normalize(x, mean=np.zeros(3), axes=(0, 1)), "must have the input's 3 dimensions"),
        (
            lambda x: fn.normalize(x, mean=np.zeros((1, 1, 4)), stddev=1.0),
            "must have the input's 3 dimensions, of its extents or 1",
        ),
        (
            lambda x: fn.normalize(x, mean=np.zeros(3), stddev=1.0),
            r"of its extents or 1; got 1: one number per channel has the shape \(1, 1, 3\)",
        ),
        (
            lambda x: fn.normalize(fn.transpose(x, perm=[2, 0, 1]), mean=np.zeros(3), stddev=1.0),
            r"one number per channel has the shape \(3, 1, 1\)",
        ),
        (lambda x: fn.normalize(x, mean=np.zeros(4), stddev=1.0), "of its extents or 1; got 1$"),
        (
            lambda x: fn.normalize(x, mean=np.zeros((1, 41, 3)), stddev=1.0),
            r"sample 1 of shape \(7, 60, 3\) does not fit a mean or stddev",
        ),
        (lambda x: fn.normalize(x, axes=2, batch=True), "may only differ in the reduced axes"),
        (lambda x: fn.normalize(fn.cast(x, dtype=types.INT64)), "the input must be uint8, .* got int64"),
        (
            lambda x: fn.normalize(x, mean="a"),
            "argument mean must be an array of numbers or a finite number, or a batch with a value per sample, got 'a'",
        ),
    ],
)
def test_bad_arguments(define, message):
    with pytest.raises((OperatorError, ValueError, TypeError), match=message):
        run(define, RAGGED, layouts=("HWC",))
