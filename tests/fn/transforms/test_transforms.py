"""fn.transforms, against results of DALI 2.4 for cases that are not in the golden data."""

import numpy as np
import pytest

from jaxdali import OperatorError, Pipeline, SampleError, fn

T = fn.transforms


def matrix(define, batch_size=1):
    with Pipeline(batch_size=batch_size, num_threads=1, seed=1) as pipe:
        pipe.set_outputs(define())
    (out,) = pipe.run()
    assert out.layout() == "**"
    return np.stack([np.asarray(out.at(i)) for i in range(batch_size)])


@pytest.mark.parametrize(
    ("define", "expected"),
    [
        (lambda: T.scale(scale=2.0), [[2, 0]]),
        (lambda: T.scale(scale=2.0, ndim=2), [[2, 0, 0], [0, 2, 0]]),
        (lambda: T.translation(offset=[3.0, 1, 2]), [[1, 0, 0, 3], [0, 1, 0, 1], [0, 0, 1, 2]]),
        (lambda: T.translation(T.rotation(angle=90.0), offset=[3.0, 1]), [[0, -1, 3], [1, 0, 1]]),
        (lambda: T.translation(T.rotation(angle=90.0), offset=[3.0, 1], reverse_order=True), [[0, -1, -1], [1, 0, 3]]),
        (lambda: T.shear(shear=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]), [[1, 0.1, 0.2, 0], [0.3, 1, 0.4, 0], [0.5, 0.6, 1, 0]]),
        (
            lambda: T.rotation(angle=30.0, axis=[1.0, 2, 3], center=[1.0, 2, 3]),
            [
                [0.875595, -0.38175262, 0.29597008, 0],
                [0.42003107, 0.90430373, -0.0762129, 0],
                [-0.2385524, 0.1910483, 0.952152, 0],
            ],
        ),
        (
            lambda: T.crop(
                from_start=[1.0, 2.0], from_end=[0.0, 5.0], to_start=[3.0, 1.0], to_end=[2.0, 4.0], absolute=True
            ),
            [[1, 0, 2], [0, 1, -1]],
        ),
        (lambda: T.crop(), [[1, 0]]),
        (lambda: T.crop(from_start=[1.0], from_end=[1.0]), [[np.inf, -np.inf]]),
        (
            lambda: T.combine(T.translation(offset=[1.0, 0]), T.rotation(angle=90.0), T.scale(scale=[2.0, 3.0])),
            [[0, -2, 0], [3, 0, 3]],
        ),
        (lambda: T.translation(np.array([[1, 0, 0], [0, 1, 0]], np.float32), offset=[3.0, 1]), [[1, 0, 3], [0, 1, 1]]),
    ],
)
def test_matrix(define, expected):
    np.testing.assert_allclose(matrix(define)[0], np.array(expected, np.float32), atol=1e-6)


def test_per_sample():
    angles = np.array([0.0, 90.0, 45.0], np.float32)
    matrices = matrix(lambda: T.rotation(angle=fn.external_source(lambda: angles), center=(1.0, 2.0)), batch_size=3)
    for m, a in zip(matrices, np.deg2rad(angles), strict=True):
        rotation = np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
        np.testing.assert_allclose(m, np.c_[rotation, [1, 2] - rotation @ [1, 2]], atol=1e-6)


@pytest.mark.parametrize(
    ("make", "numbers"),
    [
        (lambda x: T.translation(offset=x), [3.0, 1.0]),
        (lambda x: T.scale(scale=x), [2.0, 3.0, 4.0]),
        (lambda x: T.shear(shear=x), [0.1, 0.2]),
        (lambda x: T.crop(to_end=x), [2.0, 3.0]),
    ],
)
def test_dimensions_of_a_source(make, numbers):
    samples = np.array([numbers, numbers[::-1]], np.float32)
    matrices = matrix(lambda: make(fn.external_source(lambda: samples)), batch_size=2)
    for m, x in zip(matrices, samples, strict=True):
        np.testing.assert_array_equal(m, matrix(lambda x=x: make(x.tolist()))[0])


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda: T.scale(scale=[2.0, 1.0], center=[1.0, 2.0, 3.0]), "center must have 1 or 2"),
        (lambda: T.scale(scale=[2.0, 1.0], ndim=3), "ndim=3, but scale has 2"),
        (lambda: T.shear(angles=[0.1, 0.2], shear=[0.1, 0.2]), "either shear or angles"),
        (lambda: T.shear(), "either shear or angles"),
        (lambda: T.shear(shear=[0.1, 0.2, 0.3]), "2 or 6"),
        (
            lambda: T.combine(T.translation(offset=[1.0, 0]), T.translation(offset=[1.0, 0, 0])),
            r"numbers of dimensions: \[2, 3\]",
        ),
        (lambda: T.combine(T.translation(offset=[1.0, 0])), "at least two"),
        (
            lambda: T.translation(T.rotation(angle=90.0), offset=[3.0, 1, 2]),
            "the input is a 2-D transform, the arguments",
        ),
        (
            lambda: T.rotation(np.zeros((2, 2), np.float32), angle=1.0),
            r"float32 of shape \[D, D\+1\], got float32 of shape 2x2",
        ),
    ],
)
def test_bad_arguments(define, message):
    with pytest.raises((OperatorError, ValueError), match=message):
        matrix(define)


def test_arguments_sliced_from_vectors():
    """As in detection pipelines: the number of elements of a slice is known if its shape is a number."""
    extents = [np.float32([10, 20, 3]), np.float32([30, 40, 3])]

    def define():
        x = fn.external_source(lambda: extents, batch=True)
        height, width = (fn.slice(x, k, 1, axes=[0]) for k in (0, 1))
        return T.crop(to_start=np.zeros(2, np.float32), to_end=fn.cat(width, height))

    np.testing.assert_array_equal(matrix(define, 2), [[[20, 0, 0], [0, 10, 0]], [[40, 0, 0], [0, 30, 0]]])
    with pytest.raises(
        SampleError, match=r"sample 1: the window 1 \.\.\. 4 reaches outside the sample, of shape \(3,\)$"
    ):
        matrix(
            lambda: fn.slice(fn.external_source(lambda: [np.arange(4), np.arange(3)], batch=True), 1, 3, axes=[0]), 2
        )
