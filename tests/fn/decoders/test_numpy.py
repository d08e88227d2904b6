"""fn.decoders.numpy: conversions as in DALI 2.4, and refused files."""

import io

import numpy as np
import pytest
import strange_headers
from pipelines import run

from jaxdali import SampleError, fn, types
from jaxdali._core.errors import OperatorError


def npy(x, version=(1, 0)):
    with io.BytesIO() as f:
        np.lib.format.write_array(f, np.asarray(x), version)
        return np.frombuffer(f.getvalue(), np.uint8)


def decoded(samples, **arguments):
    (output,) = run(lambda x: fn.decoders.numpy(x, **arguments), samples)
    return [np.asarray(x) for x in output]


@pytest.mark.parametrize(
    "x",
    [
        np.int16([1, -2]),
        np.float64(3.5),
        np.array([True, False]),
        np.float16([[1.5], [-2]]),
        np.zeros((0, 3), np.uint64),
        np.arange(24, dtype=np.uint32).reshape(2, 3, 4),
        np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        np.array([1, 2], ">i4"),
    ],
    ids=lambda x: f"{x.dtype} {x.shape}",
)
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_types(x, version):
    for array in decoded([npy(x, version)] * 2):
        np.testing.assert_array_equal(array, x)
        assert array.dtype == x.dtype.newbyteorder("=")


# The results of DALI 2.4.
@pytest.mark.parametrize(
    ("x", "dtype", "expected"),
    [
        (np.float32([1.5, -2.5, 2.5, 300]), types.UINT8, [2, 0, 3, 255]),
        (np.float32([-1.5, 2.5, 1e10, np.nan, -0.5]), types.INT32, [-2, 3, 2147483647, -2147483648, -1]),
        (np.int64([70000, -3]), types.FLOAT16, [np.inf, -3]),
        (np.float32([0, 0.3, -2]), types.BOOL, [False, False, True]),
        (np.uint64([2**63, 5]), types.INT8, [127, 5]),
    ],
)
def test_conversion(x, dtype, expected):
    np.testing.assert_array_equal(decoded([npy(x)], dtype=dtype)[0], np.array(expected, types.to_numpy_type(dtype)))


def test_shapes_and_with_dtype_types_may_differ():
    arrays = decoded([npy(np.int16([1, 2])), npy(np.float64([2.5]))], dtype=types.INT32)
    assert [x.tolist() for x in arrays] == [[1, 2], [3]]
    for array in (np.int32([1]), np.int16([[1]])):
        with pytest.raises(OperatorError, match="must be of one type and number of dimensions in all samples"):
            decoded([npy(np.int16([1])), npy(array)])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (npy(np.int16([1, -2]))[:-1], "it has 131 bytes, but its header describes 132"),
        (np.append(npy(np.int16([1, -2])), np.uint8([0, 0, 0])), "it has 135 bytes, but its header describes 132"),
        (np.frombuffer(b"hello", np.uint8), "it is not a .npy file"),
        (np.zeros(0, np.uint8), "it is not a .npy file"),
        (npy(np.complex64([1])), "its elements are of type complex64"),
        *((np.frombuffer(x, np.uint8), message) for x, message in strange_headers.FILES),
    ],
)
def test_damaged_files(bad, message):
    with pytest.raises(SampleError, match=f"sample 1.*{message}"):
        decoded([npy(np.int16([1])), bad])
    with pytest.raises(OperatorError, match=message):
        decoded([bad])


def test_other_types_are_refused():
    with pytest.raises(TypeError, match=r"decoders.numpy.*files as 1-D uint8, got 1-D int16"):
        decoded([np.int16([1])])
