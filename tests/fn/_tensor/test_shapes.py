"""`fn.shapes` and ``node.shape()``, also of values made in programs."""

import numpy as np
import pytest
from pipelines import run

from jaxdali import fn, types

SAMPLES = [np.zeros(s, np.uint8) for s in [(2, 3, 3), (70, 1, 3)]]


def test_values():
    out = run(lambda x: (fn.shapes(x), x.shape(dtype=types.FLOAT)), SAMPLES, layouts=["HWC"])
    assert [(x.dtype, x.layout()) for x in out] == [(types.INT64, ""), (types.FLOAT, "")]
    for x in out:
        np.testing.assert_array_equal(x.as_array(), [[2, 3, 3], [70, 1, 3]])


def test_shape_of_a_program_value_as_argument():
    """Shapes are known before the program runs, so values computed from them can determine other shapes."""

    def define(x):
        half = fn.cast(x.gpu(), dtype=types.FLOAT)
        return half.shape(), fn.shapes(half + half, dtype=types.INT32) // 2

    out = run(define, SAMPLES)
    np.testing.assert_array_equal(out[0].as_array(), [[2, 3, 3], [70, 1, 3]])
    np.testing.assert_array_equal(out[1].as_array(), [[1, 1, 1], [35, 0, 1]])


def test_list_of_numbers_and_nodes():
    images = [np.full((h, 8, 3), 7, np.uint8) for h in (10, 30)]
    (out,) = run(lambda x: fn.resize(x, size=[x.shape()[0] // 2, 4]), images, layouts=["HWC"])
    assert out.shape() == [(5, 4, 3), (15, 4, 3)]


def test_dtype():
    with pytest.raises(TypeError, match=r"INT32, types.UINT32.*got <DALIDataType.INT8"):
        run(lambda x: fn.shapes(x, dtype=types.INT8), SAMPLES)
