"""constant, cat, stack, one_hot, zeros, ones, full, cast_like: against NumPy, on the host and in programs, ragged and
dense.
"""

import numpy as np
import pytest
from pipelines import run

from jaxdali import OperatorError, SampleError, fn, types

rng = np.random.default_rng(5)
RAGGED = [rng.integers(0, 255, (n, 7, 3)).astype(np.uint8) for n in (4, 30, 9)]
DENSE = [rng.normal(size=(5, 6)).astype(np.float32) for _ in range(3)]
DENSE[0][0, :3] = np.nan, -0.0, np.inf


def check(define, expected, *inputs, layouts=(), layout=None):
    """`define` in all placements: host, program, and inputs in both."""
    for on_device in (False, True):
        (out,) = run(define, *inputs, on_device=on_device, layouts=layouts)
        assert len(out) == len(expected)
        for x, want in zip(map(np.asarray, out), expected, strict=True):
            assert (x.dtype, x.shape) == (want.dtype, want.shape)
            assert x.tobytes() == np.ascontiguousarray(want).tobytes()
        assert layout is None or out.layout() == layout


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float16, np.int64, np.float64, np.bool_])
def test_cat_of_ragged(dtype):
    a, b = [x.astype(dtype) for x in RAGGED], [x[: k + 1].astype(dtype) for k, x in enumerate(RAGGED)]
    check(
        lambda x, y: fn.cat(x, y, x),
        [np.concatenate([p, q, p]) for p, q in zip(a, b)],
        a,
        b,
        layouts=("HWC", "HWC"),
        layout="HWC",
    )


def test_cat():
    check(lambda x: fn.cat(x, x, axis=-1), [np.concatenate([x, x], 2) for x in RAGGED], RAGGED)
    check(
        lambda x: fn.cat(x, x, axis_name="W"),
        [np.concatenate([x, x], 1) for x in RAGGED],
        RAGGED,
        layouts=("HWC",),
        layout="HWC",
    )
    check(lambda x: fn.cat(x, x, axis=1), [np.concatenate([x, x], 1) for x in DENSE], DENSE)
    check(lambda x: fn.cat(x), DENSE, DENSE)
    check(lambda x: fn.cat(x, x[0:0]), DENSE, DENSE)


def test_stack():
    check(lambda x: fn.stack(x, x, axis=1), [np.stack([x, x], 1) for x in RAGGED], RAGGED, layout="")
    check(
        lambda x: fn.stack(x, x, axis=-1, axis_name="Q"),
        [np.stack([x, x], -1) for x in RAGGED],
        RAGGED,
        layouts=("HWC",),
        layout="HWCQ",
    )
    check(lambda x: fn.stack(x, x), [np.stack([x, x]) for x in DENSE], DENSE)
    scalars = [np.float32(k) for k in range(3)]
    check(lambda x: fn.stack(x, x, axis_name="Q"), [np.stack([x, x]) for x in scalars], scalars, layout="Q")


def test_one_hot():
    classes = [np.int32(k) for k in (3, 0, 9)]
    check(lambda x: fn.one_hot(x, num_classes=5), [np.eye(10, 5, dtype=np.float32)[c] for c in classes], classes)
    # A vector of one element is a scalar.
    (out,) = run(lambda x: fn.one_hot(x, num_classes=5), [c.reshape(1) for c in classes])
    assert [np.asarray(x).shape for x in out] == [(5,)] * 3
    for axis in (0, 1, -1):  # only without an axis
        expected = [np.eye(10, 5, dtype=np.float32)[c].reshape((5, 1) if axis == 0 else (1, 5)) for c in classes]
        check(lambda x, a=axis: fn.one_hot(x, num_classes=5, axis=a), expected, [c.reshape(1) for c in classes])
    some = [np.arange(n, dtype=np.int32) for n in (1, 3, 0, 2)]
    check(lambda x: fn.one_hot(x, num_classes=5, axis=-1), [np.eye(3, 5, dtype=np.float32)[c] for c in some], some)
    for on_device in (False, True):
        with pytest.raises(SampleError, match=r"3 elements, but the first sample had one.*axis=-1 takes any number"):
            run(lambda x: fn.one_hot(x, num_classes=5), some, on_device=on_device)
    many = [rng.integers(0, 6, (n, 3)).astype(np.uint8) for n in (2, 40, 1)]
    for axis in (0, 1, 2, -1):
        expected = [np.moveaxis(np.where(np.eye(8, 5, dtype=bool)[m], 2, -1).astype(np.int32), -1, axis) for m in many]
        check(
            lambda x, a=axis: fn.one_hot(x, num_classes=5, axis=a, on_value=2.6, off_value=-1.5, dtype=types.INT32),
            expected,
            many,
        )
    expected = [np.eye(9, 2, dtype=np.float32)[m].transpose(0, 2, 1) for m in many]
    check(lambda x: fn.one_hot(x, num_classes=2, axis=1, axis_name="Z"), expected, many, layouts=("HW",), layout="HZW")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_one_hot_of_fractions(dtype):
    """As in DALI, they are cut."""
    values = np.array([0.7, 1.2, 1.9, -0.5, 2.5, -1.2, np.nan, np.inf, -np.inf], dtype)
    want = np.eye(4, 3, dtype=np.float32)[[0, 1, 1, 0, 2, 3, 3, 3, 3]]
    check(lambda x: fn.one_hot(x, num_classes=3, axis=-1), [want, want[2:4]], [values, values[2:4]])
    check(lambda x: fn.one_hot(x, num_classes=3), [want, want], [values, values])
    check(lambda x: fn.one_hot(x, num_classes=3), list(want), list(values))


def test_filled():
    check(lambda x: fn.zeros_like(x), [np.zeros_like(x) for x in RAGGED], RAGGED, layouts=("HWC",), layout="HWC")
    check(lambda x: fn.ones_like(x, dtype=types.FLOAT16), [np.ones(x.shape, np.float16) for x in RAGGED], RAGGED)
    check(lambda x: fn.full_like(x, 300), [np.full(x.shape, 255, np.uint8) for x in RAGGED], RAGGED)
    check(lambda x: fn.full_like(x, 7), [np.full(x.shape, 7, np.float32) for x in DENSE], DENSE)
    check(lambda x: fn.full(x, shape=[2, 5, 6]), [np.broadcast_to(x, (2, 5, 6)) for x in DENSE], DENSE)
    check(lambda x: fn.full(x), DENSE, DENSE)
    scalars = [np.int16(k) for k in range(3)]
    check(lambda x: fn.full(x, shape=[2, 3]), [np.full((2, 3), k) for k in scalars], scalars)
    check(lambda x: fn.zeros(shape=x.shape(), dtype=types.UINT8), [np.zeros(x.shape, np.uint8) for x in RAGGED], RAGGED)
    check(lambda x: fn.ones(shape=[2, 3], layout="HW"), [np.ones((2, 3), np.int32)] * 3, DENSE, layout="HW")
    check(lambda x: fn.zeros(), [np.zeros((), np.int32)] * 3, DENSE)
    check(
        lambda x: fn.zeros(shape=x.shape(), dtype=types.UINT8, device="gpu"),
        [np.zeros(x.shape, np.uint8) for x in RAGGED],
        RAGGED,
    )


def test_shapes_of_a_source():
    (zeros,) = run(lambda shape: fn.zeros(shape=shape), [np.array([2, 3]), np.array([1, 4])])
    assert [np.asarray(x).shape for x in zeros] == [(2, 3), (1, 4)]


def test_cast_like():
    check(lambda x, y: fn.cast_like(x, y), [x.astype(np.float32) for x in RAGGED], RAGGED, DENSE)


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda x: fn.cat(x, fn.cast(x, dtype=types.FLOAT)), "input 0 is 3-D uint8, input 1 is 3-D float32"),
        (lambda x: fn.cat(x, x, axis=5), "axis=5 is not one of the 3 dimensions"),
        (lambda x: fn.cat(x, x, axis_name="Q"), "'Q' is not an axis of the layout 'HWC'"),
        (lambda x: fn.cat(x, x[1:], axis=1), r"sample 0: the inputs have the shapes \(4, 7, 3\) and \(3, 7, 3\)"),
        (lambda x: fn.stack(x, x[1:]), r"sample 0: the inputs have the shapes"),
        (lambda x: fn.stack(x, x, axis=4), "axis=4 is not one of the 4 dimensions of the result"),
        (lambda x: fn.stack(x, x, axis_name="QW"), "axis_name must be one letter"),
        (lambda x: fn.one_hot(x, num_classes=3, axis=7), "axis=7 must be -1 or one of 0 ... 3"),
        (lambda x: fn.one_hot(x, num_classes=3, dtype=types.BOOL), "converts numbers to numbers"),
        (lambda x: fn.full(x, shape=[2, 3]), "can't be broadcast to .2, 3."),
        (lambda x: fn.zeros(shape=[2, 3], layout="H"), "the layout 'H' does not fit 2 dimensions"),
    ],
)
def test_bad_arguments(define, message):
    with pytest.raises((OperatorError, ValueError), match=message):
        run(define, RAGGED, layouts=("HWC",))


def test_constant():
    cases = [
        ({"fdata": 1.5}, np.float32([1.5])),
        ({"fdata": [2.5, 300.0, -1.5], "dtype": types.UINT8}, np.uint8([3, 255, 0])),
        ({"idata": [300, -5], "dtype": types.UINT8}, np.uint8([255, 0])),
        ({"idata": range(6), "shape": (2, 3), "dtype": types.INT64, "layout": "HW"}, np.arange(6).reshape(2, 3)),
        ({"idata": 7, "shape": (2, 2)}, np.full((2, 2), 7, np.int32)),
        ({"idata": [1], "shape": []}, np.int32(1)),
        ({"fdata": [], "shape": [0, 2]}, np.zeros((0, 2), np.float32)),
    ]
    for device in ("cpu", "gpu"):
        outputs = run(lambda x, d=device: tuple(fn.constant(**c, device=d) for c, _ in cases), DENSE)
        for out, (arguments, want) in zip(outputs, cases, strict=True):
            assert out.layout() == arguments.get("layout", "")
            for x in map(np.asarray, out):
                assert (x.dtype, x.shape, x.tolist()) == (want.dtype, want.shape, want.tolist())
    for bad, message in [
        ({}, "either fdata or idata, got neither"),
        ({"fdata": 1, "idata": 1}, "got both"),
        ({"idata": [1, 2], "shape": [3]}, r"2 elements don't fill the shape \(3,\)"),
        ({"idata": [1, 2], "layout": "HW"}, "layout 'HW' does not fit"),
    ]:
        with pytest.raises(ValueError, match=f"^constant: .*{message}"):
            fn.constant(**bad)
