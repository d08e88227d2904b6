"""sequence_rearrange and per_frame against NumPy: on the host and in programs, ragged and dense."""

import numpy as np
import pytest
from pipelines import run

from jaxdali import OperatorError, fn

rng = np.random.default_rng(2)
RAGGED = [rng.integers(0, 255, (f, h, 5)).astype(np.int16) for f, h in ((3, 4), (5, 9), (4, 1))]
FRAMES = [rng.integers(0, 255, (f, 4, 5)).astype(np.float16) for f in (3, 5, 4)]
DENSE = [rng.normal(size=(4, 6)).astype(np.float32) for _ in range(3)]
ORDERS = [np.int32(o) for o in ([2, 2, 0], [4, 3, 2, 1, 0, 4], [1])]


def check(define, expected, layout, *inputs, layouts=()):
    for on_device in (False, True):
        (out,) = run(lambda x, *y, d=on_device: define(x.gpu() if d else x, *y), *inputs, layouts=layouts)
        assert out.layout() == layout
        for x, want in zip(map(np.asarray, out), expected, strict=True):
            assert x.dtype == want.dtype
            np.testing.assert_array_equal(x, want)


@pytest.mark.parametrize("samples", [RAGGED, FRAMES, DENSE], ids=["ragged", "frames", "dense"])
def test_sequence_rearrange(samples):
    layout = "F" + "HW"[: samples[0].ndim - 1]
    check(
        lambda x: fn.sequence_rearrange(x, new_order=[2, 0, 0]),
        [x[[2, 0, 0]] for x in samples],
        layout,
        samples,
        layouts=(layout,),
    )
    check(lambda x: fn.sequence_rearrange(x, new_order=1), [x[[1]] for x in samples], "", samples)
    orders = [np.minimum(o, len(x) - 1) for o, x in zip(ORDERS, samples)]
    check(
        lambda x, o: fn.sequence_rearrange(x, new_order=o),
        [x[o] for x, o in zip(samples, orders)],
        layout,
        samples,
        orders,
        layouts=(layout, ""),
    )
    (out,) = run(lambda x: fn.sequence_rearrange(x.gpu()[:, :1], new_order=[0, 2]), samples)  # some extents are known
    np.testing.assert_array_equal(np.asarray(out[1]), samples[1][[0, 2], :1])


def test_bad_orders():
    with pytest.raises(RuntimeError, match=r"sequence_rearrange .*first axis is F, got 2-D data of layout 'HW'"):
        run(lambda x: fn.sequence_rearrange(x, new_order=[0]), DENSE, layouts=("HW",))
    with pytest.raises(RuntimeError, match=r"sequence_rearrange .*new_order is empty"):
        run(lambda x: fn.sequence_rearrange(x, new_order=[]), DENSE)
    for on_device in (False, True):
        with pytest.raises(OperatorError, match=r"sequence_rearrange .*new_order must be numbers from 0 to 3, got 4"):
            run(lambda x: fn.sequence_rearrange(x, new_order=[0, 4]), DENSE, on_device=on_device)


def test_per_frame():
    for layout, expected in (("", "F**"), ("FHW", "FHW")):
        check(lambda x: fn.per_frame(x), RAGGED, expected, RAGGED, layouts=(layout,))
    check(lambda x: fn.per_frame(x, replace=True), DENSE, "FW", DENSE, layouts=("HW",))
    with pytest.raises(RuntimeError, match=r"per_frame .*must begin with F, got 'HW'; replace=True"):
        run(lambda x: fn.per_frame(x), DENSE, layouts=("HW",))
    with pytest.raises(RuntimeError, match=r"per_frame .*a scalar"):
        run(lambda x: fn.per_frame(x), [np.float32(1)])


def test_elements_are_named_in_programs():
    with pytest.raises(OperatorError, match=r"^element_extract .*index 4 is out of range"):
        run(lambda x: fn.element_extract(x, element_map=[0, 4]), RAGGED, on_device=True)
