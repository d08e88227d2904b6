"""`fn.cast`, over every pair of types, against Python's integers and fractions."""

import fractions
import math

import numpy as np
import pytest
from pipelines import run

from jaxdali import fn, types

INTEGERS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
EDGES = [
    0,
    1,
    -1,
    127,
    128,
    255,
    256,
    -128,
    -129,
    32767,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32,
    2**53,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -(2**63),
]
FLOATS = [
    0.5,
    1.5,
    2.5,
    -0.5,
    -1.5,
    -2.5,
    0.49999997,
    254.5,
    255.5,
    1e30,
    -1e30,
    math.inf,
    -math.inf,
    math.nan,
    8388609.0,
    2.0**31,
    2.0**63,
    2.0**64,
]


def expected(x, dtype: str):
    """Rounding half away from zero, then saturation; NaN by DALI's rule."""
    limits = np.iinfo(dtype)
    if isinstance(x, float) and math.isnan(x):
        return limits.min if dtype in ("int32", "int64") else 0
    if isinstance(x, float) and math.isinf(x):
        return limits.max if x > 0 else limits.min
    rounded = int(abs(fractions.Fraction(x)) + fractions.Fraction(1, 2))
    return min(max(rounded if x >= 0 else -rounded, limits.min), limits.max)


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "program"])
@pytest.mark.parametrize("source", [*INTEGERS, "float32", "float64"])
def test_to_integers(source, on_device):
    if source.startswith("float"):
        data = np.array(FLOATS, source)
    else:
        limits = np.iinfo(source)
        data = np.array([x for x in EDGES if limits.min <= x <= limits.max], source)
    out = run(lambda x: tuple(fn.cast(x, dtype=np.dtype(t)) for t in INTEGERS), [data], on_device=on_device)
    for actual, dtype in zip(out, INTEGERS, strict=True):
        assert actual.at(0).dtype == dtype
        assert actual.at(0).tolist() == [expected(x, dtype) for x in data.tolist()], (source, dtype)


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "program"])
def test_ragged(on_device):
    samples = [np.full((n, 2), n + 0.5, np.float32) for n in (1, 300, 3)]
    out = run(
        lambda x: (fn.cast(x, dtype=types.UINT8), fn.cast(x, dtype=types.FLOAT16), fn.cast(x, dtype=bool)),
        samples,
        on_device=on_device,
        layouts=["HW"],
    )
    assert [x.layout() for x in out] == ["HW"] * 3
    for i, (n, byte) in enumerate([(1, 2), (300, 255), (3, 4)]):
        np.testing.assert_array_equal(out[0].at(i), np.full((n, 2), byte, np.uint8))
        np.testing.assert_array_equal(out[1].at(i), np.full((n, 2), n + 0.5, np.float16))
        assert out[2].at(i).dtype == bool


def test_errors():
    with pytest.raises(TypeError, match="numeric type"):
        run(lambda x: fn.cast(x, dtype="text"), [np.float32(1)])
