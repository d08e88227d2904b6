"""transpose, element_extract, lookup_table and color_space_conversion against NumPy: ragged and dense, on the host and
in programs.
"""

import numpy as np
import pytest
from pipelines import run

from jaxdali import OperatorError, fn, types

rng = np.random.default_rng(5)
RAGGED = [rng.integers(0, 256, (h, w, 3)).astype(np.uint8) for h, w in ((30, 41), (7, 60), (1, 9))]
DENSE = [RAGGED[0]] * 3


def outputs(define, samples):
    """Of host values, of values in the program, and, where the samples are `DENSE`, of a constant there."""
    for on_device in (False, True):
        yield run(lambda x, d=on_device: define(x.gpu() if d else x), samples, layouts=("HWC",))
    if samples is DENSE:
        yield run(lambda x: define(types.Constant(DENSE[0], layout="HWC", device="gpu")), samples, layouts=("HWC",))


@pytest.mark.parametrize("samples", [RAGGED, DENSE], ids=["ragged", "dense"])
def test_transpose(samples):
    def define(x):
        floats = fn.cast(x, dtype=types.FLOAT)
        return (
            fn.transpose(x),
            fn.transpose(floats, perm=[2, 0, 1], transpose_layout=False),
            fn.transpose(x, perm=[1, 0, 2], output_layout="ABC"),
        )

    for outs in outputs(define, samples):
        assert [o.layout() for o in outs] == ["CWH", "HWC", "ABC"]
        for perm, out in zip(((2, 1, 0), (2, 0, 1), (1, 0, 2)), outs, strict=True):
            for x, y in zip(samples, map(np.asarray, out), strict=True):
                np.testing.assert_array_equal(y, x.transpose(perm))


@pytest.mark.parametrize("samples", [RAGGED, DENSE], ids=["ragged", "dense"])
@pytest.mark.parametrize("dtype", [types.UINT8, types.INT64])
def test_lookup_table(samples, dtype):
    """Keys of any integer type; beyond the table, and below 0, is the default."""

    def define(x):
        signed = fn.cast(x, dtype=dtype) - 100 if dtype == types.INT64 else x
        return fn.lookup_table(signed, keys=[3, 100, 3], values=[1, -2.5, 300], default_value=7.0, dtype=types.INT16)

    for (out,) in outputs(define, samples):
        for x, y in zip(samples, map(np.asarray, out), strict=True):
            x = x.astype(np.int64) - 100 if dtype == types.INT64 else x
            np.testing.assert_array_equal(y, np.where(x == 3, 300, np.where(x == 100, -3, 7)).astype(np.int16))


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"])
@pytest.mark.parametrize("largest_key", [255, 65534, 65535])
@pytest.mark.parametrize("on_device", [False, True], ids=["host", "program"])
def test_lookup_of_the_limits_of_types(dtype, largest_key, on_device):
    """-1 is no key, even where its bits are those of 255 or 65535."""
    limits = np.iinfo(dtype)
    x = np.array([limits.min, limits.max, -1 if limits.min else 0, 0, 1, 127, min(largest_key, limits.max)], dtype)
    values = {0: 5, 127: 6, largest_key: 7}

    def define(x):
        return fn.lookup_table(x, keys=[*values], values=[*values.values()], default_value=-1, dtype=types.INT8)

    ((y,),) = run(define, [x], on_device=on_device)
    np.testing.assert_array_equal(y, [values.get(k, -1) for k in x.tolist()])


@pytest.mark.parametrize("samples", [RAGGED, DENSE], ids=["ragged", "dense"])
def test_color_spaces(samples):
    def define(x):
        def to(y, source, result):
            return fn.color_space_conversion(y, image_type=source, output_type=result)

        gray = to(x, types.RGB, types.GRAY)
        return (
            to(x, types.RGB, types.BGR),
            gray,
            to(gray, types.GRAY, types.BGR),
            to(to(x, types.BGR, types.YCbCr), types.YCbCr, types.BGR),
        )

    for bgr, gray, spread, back in outputs(define, samples):
        assert gray.layout() == "HWC"
        for i, x in enumerate(samples):
            np.testing.assert_array_equal(np.asarray(bgr[i]), x[..., ::-1])
            want = np.floor(x @ np.array([0.299, 0.587, 0.114]) + 0.5)[..., None]
            assert np.abs(np.asarray(gray[i]) - want).max() <= 1
            np.testing.assert_array_equal(np.asarray(spread[i]), np.asarray(gray[i]).repeat(3, axis=2))
            assert np.abs(np.asarray(back[i]).astype(int) - x).max() <= 3


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda x: fn.transpose(x, perm=[0, 0, 1]), "perm must have each of the axes 0 ... 2 once"),
        (lambda x: fn.transpose(x, perm=[1, 0]), "perm must have each of the axes 0 ... 2 once"),
        (lambda x: fn.transpose(x, output_layout="AB"), "output_layout must have a letter for each of the 3 axes"),
        (lambda x: fn.element_extract(x, element_map=[]), "element_map must have at least one index"),
        (lambda x: fn.element_extract(x, element_map=-1), "argument element_map must be"),
        (
            lambda x: fn.element_extract(x, element_map=7),
            "element_extract.*sample 1.*index 7 is out of range for axis 0 of extent 7",
        ),
        (
            lambda x: fn.lookup_table(x, keys=[1, 2], values=[3.0]),
            "must be a value for each key, got 2 keys and 1 values",
        ),
        (lambda x: fn.lookup_table(x, keys=[-1], values=[3.0]), "argument keys must be"),
        (
            lambda x: fn.lookup_table(fn.cast(x, dtype=types.FLOAT), keys=[1], values=[3.0]),
            "must be integers, got float32",
        ),
        (lambda x: fn.color_space_conversion(x, image_type=types.RGB, output_type=types.RGB), "both RGB"),
        (lambda x: fn.color_space_conversion(x, image_type=types.GRAY, output_type=types.RGB), "must have 1 channel"),
        (
            lambda x: fn.color_space_conversion(x, image_type=types.ANY_DATA, output_type=types.RGB),
            "argument image_type must be one of types.RGB",
        ),
        (
            lambda x: fn.color_space_conversion(
                fn.cast(x, dtype=types.FLOAT), image_type=types.RGB, output_type=types.BGR
            ),
            "must be uint8",
        ),
    ],
)
def test_bad_arguments(define, message):
    with pytest.raises((OperatorError, ValueError, TypeError), match=message):
        run(define, RAGGED, layouts=("HWC",))


@pytest.mark.parametrize("samples", [RAGGED, DENSE], ids=["ragged", "dense"])
def test_element_extract(samples):
    for outs in outputs(
        lambda x: (*fn.element_extract(fn.transpose(x), element_map=[2, 0]), fn.element_extract(x, element_map=0)),
        samples,
    ):
        assert [o.layout() for o in outs] == ["WH", "WH", "WC"]
        for i, x in enumerate(samples):
            for y, want in zip(outs, (x[..., 2].T, x[..., 0].T, x[0]), strict=True):
                np.testing.assert_array_equal(np.asarray(y[i]), want)
