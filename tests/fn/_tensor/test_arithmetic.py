"""Arithmetic on DataNodes beyond the golden data: ragged batches in programs, corner cases of integers, errors."""

import operator

import jax.numpy as jnp
import numpy as np
import pytest
from pipelines import run

from jaxdali import fn, math, pipeline_def, types
from jaxdali.fn._tensor.pointwise import promote

BOTH = pytest.mark.parametrize("on_device", [False, True], ids=["host", "program"])
I32 = np.iinfo(np.int32)


def values(define, *samples, on_device=False):
    """The one output of a pipeline over one sample per input."""
    (out,) = run(define, *([x] for x in samples), on_device=on_device)
    return np.array(out[0])


@pytest.mark.parametrize(
    ("a", "b", "common"),
    [
        ("uint64", "int64", "int64"),
        ("uint64", "uint8", "uint64"),
        ("uint64", "float32", "float32"),
        ("uint32", "int8", "int64"),
        ("bool", "uint16", "uint16"),
        ("float16", "int32", "float16"),
        ("float16", "float32", "float32"),
        ("float16", "bfloat16", "float32"),
        ("bfloat16", "float64", "float64"),
    ],
)
def test_promotion(a, b, common):
    assert promote([jnp.dtype(a), jnp.dtype(b)]) == promote([jnp.dtype(b), jnp.dtype(a)]) == jnp.dtype(common)


@BOTH
def test_integer_division(on_device):
    a = np.array([-7, 7, -7, 7, 5, I32.min, 0], np.int32)
    b = np.array([2, -2, -2, 2, 0, -1, 3], np.int32)
    expected = [-3, -3, 3, 3, 0, I32.min, 0]  # towards zero; by zero 0; the one overflow wraps
    out = run(lambda a, b: (a // b, a % b, a / b), [a], [b], on_device=on_device)
    np.testing.assert_array_equal(out[0].at(0), expected)
    np.testing.assert_array_equal(out[1].at(0), [-1, 1, -1, 1, 0, 0, 0])
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(out[2].at(0), a.astype(np.float32) / b.astype(np.float32), rtol=1e-6)


@BOTH
def test_unsigned_division(on_device):
    a = np.array([200, 255, 9], np.uint8)
    np.testing.assert_array_equal(values(lambda a: a // types.Constant(7).uint8(), a, on_device=on_device), a // 7)


@BOTH
def test_integer_power(on_device):
    base = np.array([3, -2, 1, -1, -1, 2, 0, 7], np.int32)
    exponent = np.array([40, 3, -5, -5, -4, -1, 0, 0], np.int32)
    expected = [pow(3, 40, 1 << 32) - (1 << 32) * (pow(3, 40, 1 << 32) > I32.max), -8, 0, 0, 0, 0, 1, 1]  # as in DALI
    np.testing.assert_array_equal(values(lambda a, b: a**b, base, exponent, on_device=on_device), expected)


@BOTH
@pytest.mark.parametrize("other", ["int8", "int64"])
def test_comparison_across_signedness(on_device, other):
    a = np.array([0, 3, 2**63, 5, 2**64 - 1], np.uint64)
    b = np.array([0, -3, -1, 7, -1], other)
    define = lambda a, b: (a < b, a <= b, a > b, a >= b, a == b, a != b, b < a, b == a)
    out = [x.at(0).tolist() for x in run(define, [a], [b], on_device=on_device)]
    pairs = list(zip(map(int, a), map(int, b), strict=True))
    expected = [
        [f(x, y) for x, y in pairs] for f in (int.__lt__, int.__le__, int.__gt__, int.__ge__, int.__eq__, int.__ne__)
    ]
    assert out == [*expected, expected[2], expected[4]]


@BOTH
def test_nan_compares_false(on_device):
    a = np.array([np.nan, 1], np.float32)
    out = run(lambda a: (a < 2, a >= 2, a == a, a != a), [a], on_device=on_device)
    assert [x.at(0).tolist() for x in out] == [[False, True], [False, False], [False, True], [True, False]]


@BOTH
def test_bits(on_device):
    a = np.array([1, 6, 200], np.uint8)
    out = run(
        lambda a: (~a, a << types.Constant(1).uint8(), a >> types.Constant(1).uint8(), ~(a > 5)),
        [a],
        on_device=on_device,
    )
    for actual, want in zip(out, [~a, a << 1, a >> 1, a <= 5], strict=True):
        np.testing.assert_array_equal(actual.at(0), want)


@BOTH
def test_ragged(on_device):
    """Images of several sizes with per-sample numbers, vectors, masks and each other; broadcasting is NumPy's."""
    rng = np.random.default_rng(1)
    sizes = [(5, 7), (1, 3), (40, 33)]
    images = [rng.integers(0, 255, (*s, 3), np.uint8) for s in sizes]
    masks = [rng.random((*s, 1), np.float32) for s in sizes]
    rows = [rng.random((s[1], 1), np.float32) for s in sizes]
    gains = [np.float32(g) for g in (0.5, 2, 3)]
    mean = np.array([1, 2, 3], np.float32)

    def define(image, mask, row, gain):
        return (
            image * gain + 1.5,
            (image - mean) * mask,
            image + row,
            image * image,
            image + image * 2,
            -image,
            math.max(gain, image),
        )

    out = run(define, images, masks, rows, gains, on_device=on_device, layouts=["HWC", "", "", ""])
    for i, (x, m, r, g) in enumerate(zip(images, masks, rows, gains, strict=True)):
        expected = [x * g + np.float32(1.5), (x - mean) * m, x + r, x * x, x + x * np.int32(2), -x, np.maximum(x, g)]
        for actual, want in zip(out, expected, strict=True):
            assert actual.layout() == "HWC"
            assert actual.at(i).dtype == want.dtype
            np.testing.assert_allclose(actual.at(i), want, rtol=1e-6)


@BOTH
def test_ragged_broadcast_to_a_dense_constant(on_device):
    columns = [np.ones((n, 1), np.float32) for n in (1, 4, 1)]
    table = np.arange(8, dtype=np.float32).reshape(4, 2)
    (out,) = run(lambda c: c + table, columns, on_device=on_device)
    assert out.is_dense_tensor()
    np.testing.assert_array_equal(out.as_array(), np.broadcast_to(table + 1, (3, 4, 2)))


@BOTH
def test_scalars_per_sample(on_device):
    (out,) = run(
        lambda x, s: x * s,
        [np.full((2, 3), i, np.int32) for i in range(4)],
        [np.int32(10 + i) for i in range(4)],
        on_device=on_device,
    )
    np.testing.assert_array_equal(out.as_array()[:, 1, 2], [0, 11, 24, 39])


def test_dense_in_program():
    """Values of a shape known at build; numbers and vectors per sample are aligned at the last axes."""
    image = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
    rows = [np.arange(6, dtype=np.int16).reshape(2, 3) * i for i in range(3)]

    def define(gain, row):
        x = types.Constant(image, device="gpu")
        return x * gain, x - row.gpu(), x * x + 1, math.sqrt(x)

    out = run(define, [np.float32(i) for i in range(3)], rows)
    for i, row in enumerate(rows):
        for actual, want in zip(
            out,
            [image * np.float32(i), image - row, image * image + np.int32(1), np.sqrt(image.astype(np.float32))],
            strict=True,
        ):
            assert actual.at(i).dtype == want.dtype
            np.testing.assert_allclose(actual.at(i), want, rtol=1e-6)


def test_operands():
    a = np.array([1, 2], np.uint8)
    cases = {
        "python": (lambda x: 3 - x, np.int32),
        "numpy": (lambda x: np.array([3, 3], np.int16) - x, np.int16),
        "numpy 64 bits": (lambda x: np.array([3, 3]) - x, np.int32),
        "numpy scalar": (lambda x: np.int64(3) - x, np.int32),  # on the left Python's number, as in DALI
        "numpy scalar, unsigned": (lambda x: np.uint8(3) - x, np.int32),
        "numpy scalar, float": (lambda x: np.float64(3) - x, np.float32),
        "numpy, no axes": (lambda x: np.array(3) - x, np.int32),
        "numpy scalar, right": (lambda x: -(x - np.int64(3)), np.int64),
        "numpy, no axes, right": (lambda x: -(x - np.array(3)), np.int64),
        "jax": (lambda x: jnp.array([3, 3], jnp.int32) - x, np.int32),
        "list": (lambda x: [3.0, 3.0] - x, np.float32),
        "constant": (lambda x: types.Constant(3).uint8() - x, np.uint8),
        "constant, 64 bits": (lambda x: types.Constant(3, types.INT64) - x, np.int64),
        "constant array": (lambda x: types.Constant([3, 3]) - x, np.int32),
    }
    out = run(lambda x: tuple(f(x) for f, _ in cases.values()), [a])
    for actual, (name, (_, dtype)) in zip(out, cases.items(), strict=True):
        assert actual.at(0).dtype == dtype, name
        assert actual.at(0).tolist() == [2, 1], name


@pytest.mark.parametrize(
    "number", [np.int64(1), np.uint8(1), np.float32(1), np.float64(1.5), np.bool_(True), np.array(1)]
)
def test_numpy_scalar_on_the_left(number):
    x = np.array([0, 1, 3], np.int16)
    operators = [
        operator.add,
        operator.sub,
        operator.mul,
        operator.truediv,
        operator.floordiv,
        operator.mod,
        operator.pow,
    ]
    operators += [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge]
    operators += [operator.and_, operator.or_, operator.xor] if np.asarray(number).dtype.kind in "iub" else []
    actual = run(lambda x: tuple(f(number, x) for f in operators), [x])
    want = run(lambda x: tuple(f(number.item(), x) for f in operators), [x])
    for f, a, b in zip(operators, actual, want, strict=True):
        assert a.at(0).dtype == b.at(0).dtype, f
        np.testing.assert_array_equal(a.at(0), b.at(0), err_msg=str(f))


def test_numbers_are_no_inputs():
    """They are in the program, where XLA folds them."""
    nodes = []
    run(lambda x: nodes.append(x * 2 + types.Constant(1).uint8()) or nodes[-1], [np.float32(1)])
    assert len(nodes[0].node.inputs) == 1


@pytest.mark.parametrize(
    ("define", "error", "text"),
    [
        (lambda a, b: (a > 0) + (a > 1), TypeError, "bool . bool"),
        (lambda a, b: a & 1.5, TypeError, "must be integers"),
        (lambda a, b: (a > 0) << (a > 0), TypeError, "all bool"),
        (lambda a, b: math.sqrt(a > 0), TypeError, r"sqrt\(bool\)"),
        (lambda a, b: a + 2**31, ValueError, "does not fit into int32"),
        (lambda a, b: a + np.array([2**40]), ValueError, "does not fit into int32"),
        (lambda a, b: a + "x", TypeError, "unsupported operand"),
        (lambda a, b: a if a else b, TypeError, "truth value"),
        (
            lambda a, b: np.mean(a),
            TypeError,
            r"numpy.mean takes arrays.*jax_function, which gets the batch: .*one sample \(called at ",
        ),
        (lambda a, b: np.stack([a, b]), TypeError, "numpy.stack takes arrays"),
        (lambda a, b: math.max(1, 2), TypeError, "at least one operand"),
        (lambda a, b: math.clamp(a, None, 3), TypeError, "NoneType"),
        (lambda a, b: types.Constant(np.ones((2, 3))) + np.ones((4, 3)), ValueError, r"\(2, 3\) \+ \(4, 3\)"),
        (lambda a, b: a + b, ValueError, "layouts do not match: HW . WC"),
    ],
)
def test_errors_at_build(define, error, text):
    with pytest.raises(error, match=text):
        run(define, [np.ones((2, 3), np.uint8)], [np.ones((2, 3), np.uint8)], layouts=["HW", "WC"])


@BOTH
def test_incompatible_shapes_are_named(on_device):
    a, b = [np.ones((n, 3)) for n in (2, 4)], [np.ones((n, 3)) for n in (2, 5)]
    with pytest.raises(RuntimeError, match=r"sample 1: the shapes do not broadcast: \(4, 3\) \+ \(5, 3\)"):
        run(lambda a, b: a + b, a, b, on_device=on_device)


@BOTH
def test_ragged_by_constant_in_a_short_batch(on_device):
    """A missing sample has no elements in the ragged operand, but it has a shape."""
    ragged, factors = [np.ones((n, 2, 3), np.float32) for n in (2, 4)], np.float32([[[1, 2, 3]]])

    @pipeline_def(batch_size=4, num_threads=1)
    def pipeline():
        x = fn.external_source(source=[ragged])
        return (x.gpu() if on_device else x) * factors

    (out,) = pipeline(prefetch_queue_depth=1).run()
    assert [np.array(x).tolist() for x in out.as_cpu()] == [(x * factors).tolist() for x in ragged]


def test_clamp_and_floor_types():
    a = np.array([-3.5, 200.5], np.float64)
    out = run(lambda a: (math.floor(a), math.clamp(a, 0, 100)), [a])
    assert [x.at(0).dtype for x in out] == [np.float64, np.float64]
    assert [x.at(0).tolist() for x in out] == [[-4, 200], [0, 100]]


def test_abs():
    (absolute,) = run(abs, [np.array([-3, 0, 5], np.int16)])
    np.testing.assert_array_equal(absolute.at(0), np.array([3, 0, 5], np.int16))


def test_images_of_several_slabs_on_the_host():
    rng = np.random.default_rng(3)
    images = [rng.integers(0, 256, s, np.uint8) for s in ((401, 333, 3), (1, 700, 3), (9, 0, 3))]
    masks = [rng.integers(0, 2, (*x.shape[:2], 1), np.uint8) for x in images]
    mean, std = rng.random((2, 3), np.float32)
    normalized, masked = run(lambda x, mask: ((x - mean) / std, x * mask), images, masks, layouts=["HWC", "HWC"])
    for i, (x, mask) in enumerate(zip(images, masks, strict=True)):
        np.testing.assert_array_equal(normalized.at(i), (x - mean) / std)
        np.testing.assert_array_equal(masked.at(i), x * mask)
