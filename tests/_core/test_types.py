"""Types, constants, and the tensors that `Pipeline.run` returns."""

import ctypes

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pipelines import run

from jaxdali import types
from jaxdali.backend import TensorCPU, TensorGPU, TensorListCPU, TensorListGPU


def test_enum_values_equal_dalis():
    names = "UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FLOAT16 FLOAT FLOAT64 BOOL STRING".split()
    assert [int(getattr(types, n)) for n in names] == list(range(13))
    assert [int(getattr(types, f"INTERP_{n}")) for n in "NN LINEAR CUBIC LANCZOS3 TRIANGULAR GAUSSIAN".split()] == list(
        range(6)
    )
    assert [int(getattr(types, n)) for n in "RGB BGR GRAY YCbCr ANY_DATA".split()] == list(range(5))
    assert [
        int(getattr(types, n))
        for n in "FEATURE IMAGE_TYPE DATA_TYPE INTERP_TYPE TENSOR_LAYOUT PYTHON_OBJECT NO_TYPE".split()
    ] == [
        17,
        20,
        21,
        22,
        23,
        24,
        -1,
    ]
    assert repr(types.RGB) == "<DALIImageType.RGB: 0>"
    assert str(types.FLOAT) == "DALIDataType.FLOAT"


@pytest.mark.parametrize(
    ("x", "dtype"),
    [
        (types.FLOAT, "float32"),
        (np.float64, "float64"),
        (float, "float32"),
        (int, "int32"),
        ("uint8", "uint8"),
        (jnp.int8, "int8"),
    ],
)
def test_conversion_of_types(x, dtype):
    assert types.numpy_dtype(x) == np.dtype(dtype)
    assert types.to_numpy_type(types.to_dali_type(np.dtype(dtype))) == np.dtype(dtype)


@pytest.mark.parametrize("x", [None, 3, "text", types.STRING, object, np.complex64])
def test_no_numeric_type(x):
    with pytest.raises(TypeError):
        types.numpy_dtype(x)


def test_scalar_constant():
    assert types.Constant(3) == types.Constant(3, types.INT32)
    assert types.Constant(3) != types.Constant(3.0)
    assert (types.Constant(2.7).int32().value, types.Constant(0.5).bool().value) == (2, True)
    with pytest.raises(ValueError, match=r"300 is outside the range of UINT8: 0 \.\.\. 255"):
        types.Constant(300).uint8()
    with pytest.raises(TypeError, match="got str"):
        types.Constant("x")


def test_constant_tensors():
    def define(_):
        return (
            types.Constant([1, 2, 3]),
            types.Constant(7, shape=[2, 1], layout="HW"),
            types.Constant(np.arange(4), shape=[2, 2], dtype=types.FLOAT),
            types.Constant(np.array([0.5]), device="gpu"),
            types.Constant([2**40], types.INT64),
        )

    out = run(define, [0, 0])
    assert [(x.dtype, x.layout()) for x in out] == [
        (types.INT32, ""),
        (types.INT32, "HW"),
        (types.FLOAT, ""),
        (types.FLOAT, ""),
        (types.INT64, ""),
    ]
    for tensors, expected in zip(out, [[1, 2, 3], [[7], [7]], [[0, 1], [2, 3]], [0.5], [2**40]], strict=True):
        assert tensors.at(0).tolist() == tensors.at(1).tolist() == expected


def test_dense_list():
    data = np.arange(6, dtype=np.uint8).reshape(2, 1, 3)
    batch = TensorListCPU(data, "HW", source_info=["a", "b"])
    assert (len(batch), batch.shape(), batch.ndim(), batch.dtype, batch.layout(), batch.is_dense_tensor()) == (
        2,
        [(1, 3)] * 2,
        2,
        types.UINT8,
        "HW",
        True,
    )
    assert batch.as_array() is data
    whole = batch.as_tensor()
    assert (whole.shape(), whole.layout()) == ([2, 1, 3], "NHW")
    assert batch.as_reshaped_tensor((3, 2)).shape() == [3, 2]
    assert [x.source_info() for x in batch] == ["a", "b"]
    assert batch[-1].source_info() == "b"
    assert np.shares_memory(np.asarray(batch[1]), data)
    assert batch.as_cpu() is batch
    with pytest.raises(IndexError):
        batch[2]
    with pytest.raises(RuntimeError, match="sample 2 of a batch of 2"):
        batch.at(2)
    with pytest.raises(ValueError, match="6 elements"):
        batch.as_reshaped_tensor([4])


def test_ragged_list():
    batch = TensorListCPU([np.ones((2, 3)), np.zeros((4, 3))])
    assert not batch.is_dense_tensor()
    for f in (batch.as_array, batch.as_tensor):
        with pytest.raises(RuntimeError, match="differ in shape"):
            f()
    out = np.full(18, -1.0)
    batch.copy_to_external(ctypes.c_void_p(out.ctypes.data))
    assert out.tolist() == [1] * 6 + [0] * 12


def test_squeeze_is_in_place():
    x = TensorCPU(np.zeros((1, 2, 1)), "CHW")
    assert not x.squeeze(1)
    assert x.squeeze(0)
    assert (x.shape(), x.layout()) == ([2, 1], "HW")
    assert x.squeeze()
    assert (x.shape(), x.layout(), x.ndim()) == ([2], "H", 1)
    with pytest.raises(ValueError, match="dim must be in"):
        x.squeeze(1)


def test_other_libraries_take_tensors():
    array = jnp.arange(8, dtype=jnp.float32).reshape(2, 4)
    batch = TensorListCPU(array)
    assert np.shares_memory(batch.as_array(), np.asarray(array))
    assert jax.block_until_ready(batch.as_tensor()).shape() == [2, 4]
    for x in (
        jnp.asarray(batch[1]),
        np.asarray(batch[1]),
        jnp.from_dlpack(batch[1]),
        np.from_dlpack(TensorCPU(np.array(array[1]))),
    ):
        np.testing.assert_array_equal(x, [4, 5, 6, 7])
    out = np.zeros(4, np.float32)
    batch[1].copy_to_external(out.ctypes.data)
    assert out.tolist() == [4, 5, 6, 7]


def test_accelerator_list():
    """A list of a jax.Array. In this test the accelerator is the CPU."""
    array = jnp.arange(6, dtype=jnp.int32).reshape(2, 3)
    batch = TensorListGPU(array, "W", source_info=["a", "b"])
    assert isinstance(batch[0], TensorGPU)
    assert isinstance(batch.at(1), TensorGPU)
    assert jnp.asarray(batch.as_tensor()) is array
    assert (batch.as_cpu()[1].source_info(), batch.as_cpu().layout()) == ("b", "W")
    ragged = TensorListGPU([jnp.ones((2,)), jnp.ones((3,))])
    assert ragged.shape() == [(2,), (3,)]
    assert [x.tolist() for x in map(np.asarray, ragged.as_cpu())] == [[1, 1], [1, 1, 1]]
