"""TensorList objects as pipelines return them, and copies to pointers."""

import ctypes
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding

from jaxdali import fn, pipeline_def, types
from jaxdali._tensors import copying as _copying
from jaxdali._tensors import cuda_driver as _cuda_driver
from jaxdali.backend import TensorCPU, TensorGPU, TensorListCPU, TensorListGPU


@pytest.mark.parametrize("ahead", [True, False])
def test_lists_stay_valid_after_later_runs(ahead):
    def source(info):
        return [
            np.full((info.idx_in_epoch + 1, 2), info.idx_in_epoch, np.int32),
            np.full(3, info.idx_in_epoch, np.float32),
        ]

    @pipeline_def(batch_size=2, exec_pipelined=ahead)
    def pipe():
        ragged, static = fn.external_source(source=source, num_outputs=2, batch=False)
        return ragged, ragged + 1, static * 2.0, fn.shapes(ragged)

    p = pipe()
    batches = [p.run() for _ in range(6)]
    p.close()
    del p
    for i, (ragged, computed, static, shape) in enumerate(batches):
        for k in range(2):
            n = 2 * i + k
            assert ragged[k].shape() == [n + 1, 2]
            assert (np.asarray(ragged[k]) == n).all()
            assert (computed.at(k) == n + 1).all()
            assert static.at(k).tolist() == [2 * n] * 3
            assert shape.at(k).tolist() == [n + 1, 2]


def test_dtype_is_a_callable_property():
    for x in (
        TensorCPU(np.zeros(2, np.uint8)),
        TensorListCPU(np.zeros((2, 2), np.uint8)),
        TensorGPU(jnp.zeros(2, jnp.uint8)),
    ):
        assert x.dtype == types.UINT8
        assert np.dtype(x.dtype()) == np.uint8
    with pytest.raises(TypeError, match="no NumPy equivalent"):
        types.STRING()


def test_all_become_numpy_arrays():
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    for x in (TensorCPU(data), TensorListCPU(data), TensorGPU(jnp.asarray(data)), TensorListGPU(jnp.asarray(data))):
        np.testing.assert_array_equal(np.asarray(x), data)
        assert np.asarray(x, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="without a copy"):
        np.array(TensorGPU(jnp.asarray(data)), copy=False)
    with pytest.raises(ValueError, match="inhomogeneous"):
        np.asarray(TensorListCPU([data, data[:1]]))


def test_errors_have_dalis_types():
    for error in (ValueError, RuntimeError):
        with pytest.raises(error, match="6 elements"):
            TensorListCPU(np.zeros((2, 3))).as_reshaped_tensor((7,))
        with pytest.raises(error, match="dim must be in"):
            TensorCPU(np.zeros((2, 3))).squeeze(2)
    with pytest.raises(TypeError, match="c_void_p"):
        TensorCPU(np.zeros(1)).copy_to_external("memory")
    with pytest.raises(ValueError, match="null"):
        TensorGPU(jnp.zeros(1)).copy_to_external(ctypes.c_void_p(0))


def test_copy_from_the_accelerator():
    """On the CPU, and on the GPU where there is one: to host memory, and to memory of the device."""
    for device in {jax.devices()[0], jax.local_devices(backend="cpu")[0]}:
        array = jax.device_put(np.arange(6, dtype=np.int32).reshape(2, 3), device)
        for x in (TensorGPU(array), TensorListGPU(array), TensorListGPU([array[0], array[1]])):
            out = np.zeros(6, np.int32)
            x.copy_to_external(ctypes.c_void_p(out.ctypes.data), cuda_stream=0, non_blocking=True)
            assert out.tolist() == [0, 1, 2, 3, 4, 5]
            device_array = jax.block_until_ready(
                jax.jit(lambda: jnp.zeros(6, jnp.int32), out_shardings=SingleDeviceSharding(device))()
            )
            x.copy_to_external(device_array.unsafe_buffer_pointer())
            assert device_array.tolist() == [0, 1, 2, 3, 4, 5]


def test_cuda_copies_use_device_and_stream(monkeypatch):
    """The calls of the CUDA driver, which needs a GPU; a stand-in for the driver copies host memory."""
    calls = []

    class Driver:
        def __getattr__(self, name):
            def call(*args):
                calls.append((name, args))
                if name == "cuPointerGetAttribute":
                    assert args[1] == 9  # the device's ordinal
                    args[0]._obj.value = 3
                if name == "cuMemcpyAsync":
                    ctypes.memmove(args[0].value, args[1].value, args[2].value)
                return 0

            return call

    monkeypatch.setattr(_cuda_driver, "_driver", Driver)
    out = np.zeros(5, np.float32)
    _cuda_driver.copy_to_pointer([jnp.ones(2), jnp.zeros(0), jnp.full(3, 2.0)], out.ctypes.data, 7)
    assert out.tolist() == [1, 1, 2, 2, 2]
    assert [c[0] for c in calls] == 2 * [
        "cuPointerGetAttribute",
        "cuDevicePrimaryCtxRetain",
        "cuCtxPushCurrent_v2",
        "cuMemcpyAsync",
        "cuStreamSynchronize",
        "cuCtxPopCurrent_v2",
        "cuDevicePrimaryCtxRelease_v2",
    ]
    assert {c[1][-1].value for c in calls if c[0].startswith("cuDevicePrimaryCtx")} == {3}
    assert {c[1][-1].value for c in calls if c[0] in ("cuMemcpyAsync", "cuStreamSynchronize")} == {7}

    monkeypatch.setattr(Driver, "__getattr__", lambda self, name: lambda *args: 700)
    with pytest.raises(RuntimeError, match="CUDA error 700"):
        _cuda_driver.copy_to_pointer([jnp.ones(2)], out.ctypes.data, 0)


@pytest.mark.parametrize(
    ("platform", "version", "by_driver"),
    [("gpu", "cuda 13000", True), ("cuda", "13.0", True), ("gpu", "rocm 6", False), ("tpu", "", False)],
)
def test_cuda_copies_of_nvidia_gpus_alone(monkeypatch, platform, version, by_driver):
    """NVIDIA's GPUs are recognised by each of their names in JAX. Otherwise the host would write to a device's memory."""

    class Array(np.ndarray):
        def devices(self):
            return [SimpleNamespace(platform=platform, client=SimpleNamespace(platform_version=version))]

    calls = []
    monkeypatch.setattr(_copying, "jax", SimpleNamespace(Array=Array))
    monkeypatch.setattr(_copying, "copy_to_pointer", lambda arrays, address, stream: calls.append((address, stream)))
    out = np.zeros(3, np.int32)
    _copying.copy_from_device([np.arange(3, dtype=np.int32).view(Array)], out.ctypes.data, 7)
    assert calls == ([(out.ctypes.data, 7)] if by_driver else [])
    assert out.tolist() == ([0, 0, 0] if by_driver else [0, 1, 2])


def test_short_batch_has_fewer_samples():
    data = [np.float32([1]), np.float32([2])]

    @pipeline_def(batch_size=3, exec_pipelined=False)
    def pipe():
        return fn.external_source(name="x") * 2.0

    (out,) = pipe().run(x=data)
    assert isinstance(out, TensorListCPU)
    assert len(out) == 2
    assert out.as_array().tolist() == [[2], [4]]


# The expected values are those of DALI 2.4.
@pytest.mark.parametrize("cls", [TensorCPU, TensorGPU])
def test_layout_type_and_properties_of_a_tensor(cls):
    x = cls(np.arange(6, dtype=np.int32).reshape(2, 3), "HW")
    x.set_layout("AB")
    assert (x.layout(), x.get_property("layout"), x.get_property("source_info"), x.get_property("other")) == (
        "AB",
        "AB",
        None,
        None,
    )
    with pytest.raises(ValueError, match="'ABC' does not fit data of 2"):
        x.set_layout("ABC")
    x.set_layout(None)
    assert x.layout() == ""
    x.reinterpret(types.FLOAT)
    assert x.dtype == types.FLOAT
    np.testing.assert_array_equal(np.asarray(x).view(np.int32).ravel(), np.arange(6))
    with pytest.raises(RuntimeError, match="another size"):
        x.reinterpret(types.INT8)


@pytest.mark.parametrize("cls", [TensorListCPU, TensorListGPU])
def test_layout_type_and_broadcast_of_a_list(cls):
    tensor = cls._tensor(np.arange(3, dtype=np.int32), "X")
    batch = cls.broadcast(tensor, 4)
    assert (len(batch), batch.layout(), batch.shape(), np.asarray(batch[3]).tolist()) == (4, "X", [(3,)] * 4, [0, 1, 2])
    assert len(cls.broadcast(tensor, 0)) == 0
    with pytest.raises(ValueError, match="num_samples must be at least 0, got -1"):
        cls.broadcast(tensor, -1)
    batch.set_layout("Y")
    batch.reinterpret(types.UINT32)
    assert (batch[0].layout(), batch.dtype, batch[0].dtype) == ("Y", types.UINT32, types.UINT32)
    with pytest.raises(ValueError, match="does not fit"):
        batch.set_layout("XY")
    with pytest.raises(RuntimeError, match="another size"):
        batch.reinterpret(types.FLOAT64)
    assert batch.data_ptr() == batch.as_tensor().data_ptr()


def test_data_ptr_of_a_list():
    data = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert TensorListCPU(data).data_ptr() == data.ctypes.data
    with pytest.raises(RuntimeError, match="differ in shape"):
        TensorListCPU([np.zeros(2), np.zeros(3)]).data_ptr()
