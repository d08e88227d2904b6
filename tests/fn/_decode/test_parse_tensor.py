"""parse_tensor: messages written by hand as tensor.proto says; test_tensorflow_examples.py has those of TensorFlow."""

import random

import containers as c
import ml_dtypes
import numpy as np
import pytest
from pipelines import run

import jaxdali.dynamic as jd
from jaxdali import SampleError, fn, types

TYPES = {  # number, and the field with values one by one
    "float32": (1, 5),
    "float64": (2, 6),
    "int32": (3, 7),
    "uint8": (4, 7),
    "int16": (5, 7),
    "int8": (6, 7),
    "int64": (9, 10),
    "bool": (10, 11),
    "bfloat16": (14, 13),
    "uint16": (17, 7),
    "float16": (19, 13),
    "uint32": (22, 16),
    "uint64": (23, 17),
}


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def shape(*extents):
    return c.field(2, b"".join(c.field(2, c.field(1, n) if n else b"") for n in extents))


def values_of(x):
    """The values as they are stored one by one: floats as bytes, halves as their bits, others as integers."""
    if x.dtype in (np.float32, np.float64):
        return x.tobytes()
    numbers = x.view(np.uint16) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x
    return b"".join(c.varint(int(n)) for n in numbers.reshape(-1))


@pytest.mark.parametrize("name", TYPES)
def test_types_and_forms(name):
    number, field = TYPES[name]
    x = np.array([[1, 0, 3], [0, 100, 7]]).astype(dtype_of(name))
    if x.dtype.kind in "if":
        x[0, 0] = -x[0, 0]
    head = c.field(1, number) + shape(2, 3)
    content = head + c.field(4, x.tobytes())
    one_by_one = c.field(field, values_of(x)) + head
    for message in (content, one_by_one):
        y = np.asarray(jd.parse_tensor(message))
        assert y.dtype == x.dtype
        assert y.shape == (2, 3)
        assert y.tobytes() == x.tobytes()
    # The last value stands for all that follow.
    y = np.asarray(jd.parse_tensor(head + c.field(field, values_of(x[1, 1:]))))
    assert y.tobytes() == np.array([x[1, 1], *[x[1, 2]] * 5], x.dtype).tobytes()
    assert not np.asarray(jd.parse_tensor(head)).astype(np.float32).any()
    scalar = np.asarray(jd.parse_tensor(c.field(1, number) + c.field(2, b"") + c.field(4, x[1, 1].tobytes())))
    assert scalar.shape == ()
    assert scalar.tobytes() == x[1, 1].tobytes()
    assert np.asarray(jd.parse_tensor(c.field(1, number) + shape(0, 3))).shape == (0, 3)


def test_batches_and_conversion():
    arrays = [np.arange(n * 2, dtype=np.float32).reshape(n, 2) * 60 for n in (1, 3, 2)]
    messages = [c.field(1, 1) + shape(*x.shape) + c.field(4, x.tobytes()) for x in arrays]
    encoded = [np.frombuffer(m, np.uint8) for m in messages]
    (plain,) = run(fn.parse_tensor, encoded)
    (converted,) = run(lambda x: fn.parse_tensor(x, dtype=types.UINT8), encoded)
    for i, x in enumerate(arrays):
        assert np.array_equal(plain.at(i), x)
        assert np.array_equal(converted.at(i), np.minimum(x, 255).astype(np.uint8))


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (c.field(1, 7) + shape(), "a tensor of strings, which is not supported"),
        (c.field(1, 8) + shape(1), "complex64"),
        (c.field(1, 99), "of the unknown type 99"),
        (shape(1), "it is no TensorProto"),
        (c.field(1, 1) + shape(2) + c.field(4, bytes(4)), r"it has 4 bytes, but its shape \(2,\) of float32 has 8"),
        (c.field(1, 3) + shape(2) + c.field(7, b"\1\2\3"), r"it has 3 values, but its shape \(2,\) has 2"),
        (c.field(1, 1) + c.field(2, c.field(3, 1)), "its number of dimensions is unknown"),
        (c.field(1, 1) + shape(-1), "extent 0 of its shape is unknown"),
        (c.field(1, 1) + shape(1 << 20, 1 << 20), "bytes, for 0 values"),
        (c.field(1, 1) + b"\x22\x05ab", "ends after its message"),
        (c.field(1, 1) + shape(1) + c.field(5, b"abc"), "damaged"),
        (c.field(1, 1) + c.field(2, 1), "of another type"),
    ],
)
def test_bad_messages_are_named(message, error):
    good = c.field(1, 1) + shape(1) + c.field(4, bytes(4))
    with pytest.raises(SampleError, match=f"parse_tensor .*test_parse_tensor.py.*sample 1: .*{error}"):
        jd.parse_tensor([good, message])


def test_damaged_messages_fail_or_parse():
    rng = random.Random(2)
    message = c.field(1, 3) + shape(2, 3) + c.field(7, values_of(np.arange(6)))
    failures = 0
    for _ in range(200):
        data = bytearray(message)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 8, 127, 255, rng.randrange(256)])
        try:
            np.asarray(jd.parse_tensor(bytes(data)))
        except RuntimeError:
            failures += 1
    assert 20 < failures < 200


def test_other_inputs_are_refused():
    with pytest.raises(TypeError, match="the input must be serialized tensors as 1-D uint8"):
        jd.parse_tensor([np.zeros((2, 2), np.uint8)])
