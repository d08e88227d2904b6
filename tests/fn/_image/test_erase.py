"""`fn.erase` against NumPy: on the host and in a program, dense and ragged; its golden data is in test_golden.py."""

import numpy as np
import pytest
from pipelines import run

from jaxdali import fn, types

RNG = np.random.default_rng(5)
RAGGED = [RNG.integers(1, 200, s, np.uint8) for s in ((13, 40, 3), (5, 7, 3), (30, 2, 3))]
DENSE = [RAGGED[0]] * 3


@pytest.mark.parametrize("samples", [RAGGED, DENSE], ids=["ragged", "dense"])
@pytest.mark.parametrize("on_device", [False, True], ids=["host", "program"])
def test_regions_per_sample_of_another_number_each(samples, on_device):
    anchors = [np.float32([1.9, 2, 4, -3]), np.float32([]), np.float32([3, 0])]  # y0, x0, y1, x1
    shapes = [np.float32([3.2, 9, 100, 5]), np.float32([]), np.float32([2, 1])]

    def define(x, anchor, shape):
        x = types.Constant(DENSE[0], layout="HWC") if samples is DENSE else x
        x = x.gpu() if on_device else x
        return fn.erase(x, anchor=anchor, shape=shape, fill_value=(7.9, 300, -1))  # cut, and wrapped around

    (erased,) = run(define, samples, anchors, shapes, layouts=["HWC", "", ""])
    want = [x.copy() for x in samples]
    want[0][1:5, 2:11] = want[0][4:, :2] = want[2][3:5, :1] = (7, 44, 255)
    for g, w in zip(erased, want, strict=True):
        np.testing.assert_array_equal(np.array(g), w)


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "program"])
def test_normalized_and_centered_anchors(on_device):
    x = RNG.normal(size=(3, 8, 10)).astype(np.float32)

    def define(x):
        x = x.gpu() if on_device else x
        whole = fn.erase(x, anchor=(0.5, 0.5), shape=(0.5, 0.2), axis_names="HW", normalized=True, centered_anchor=True)
        return (
            whole,
            fn.erase(x, anchor=0.5, shape=1, axes=1, normalized_anchor=True),
            fn.erase(x, anchor=1, shape=0.4, axes=0, normalized_shape=True),
        )

    outputs = run(define, [x], layouts=["CHW"])
    for (erased,), region in zip(outputs, ((slice(None), slice(2, 6), slice(4, 6)), (slice(None), 4), 1), strict=True):
        want = x.copy()
        want[region] = 0
        np.testing.assert_array_equal(np.array(erased), want)


def test_errors_name_the_argument():
    def erase(**arguments):
        return run(lambda x: fn.erase(x, **arguments), RAGGED, layouts=["HWC"])

    with pytest.raises(ValueError, match="either normalized or normalized_anchor"):
        erase(normalized=True, normalized_shape=False)
    with pytest.raises(ValueError, match="axis_names must be axes of the layout 'HWC', got 'D'"):
        erase(axis_names="D")
    with pytest.raises(RuntimeError, match=r"erase.*anchor and shape must have 2 numbers for each region, got 2 and 3"):
        erase(anchor=(1, 1), shape=(1, 1, 1))
    with pytest.raises(RuntimeError, match=r"erase.*fill_value must be 1 number or 3, got 2"):
        erase(fill_value=(1, 2))
