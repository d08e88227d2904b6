"""Samples of a ragged batch on a device."""

import counts
import jax
import ml_dtypes
import numpy as np
import pytest

from jaxdali._core.ragged import ALIGNMENT, LEAST_PINNED, BufferPool, DeviceSamples, Packed, plan_offsets
from jaxdali.backend import TensorListGPU

TYPES = [np.uint8, np.bool_, np.int64, np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex64]


@pytest.fixture
def dlpack_of_cuda(monkeypatch):
    """Imitates JAX's plugin for CUDA, which can't copy an array that it takes through DLPack."""
    take = jax.dlpack.from_dlpack

    def from_dlpack(x, device=None, copy=None):
        if copy:
            raise jax.errors.JaxRuntimeError(
                "UNIMPLEMENTED: PJRT C API does not support HostBufferSemantics other than ..."
            )
        return take(x, device=device)

    monkeypatch.setattr(jax.dlpack, "from_dlpack", from_dlpack)


@pytest.mark.parametrize("dtype", TYPES)
def test_samples_of_many_shapes_compile_nothing(dtype, dlpack_of_cuda):
    rng = np.random.default_rng(0)
    shapes = np.concatenate([rng.integers(1, 40, (60, 3)), [[0, 3, 4], [1, 1, 1]]])
    offsets, elements = plan_offsets(shapes, 1)
    flat = rng.integers(0, 2 if dtype is np.bool_ else 100, elements + ALIGNMENT).astype(dtype)
    samples = [flat[o * ALIGNMENT :][: s.prod()].reshape(s) for o, s in zip(offsets, shapes, strict=True)]
    with jax.enable_x64(True):
        data = jax.device_put(flat, jax.devices()[1])
    batch = TensorListGPU(DeviceSamples(data, offsets, shapes))
    with counts.compilations() as compiled:
        single = [batch.at(i) for i in range(len(shapes))]
        copied = batch.as_cpu()
        iterated = [np.asarray(x.as_cpu()) for x in batch]
    assert not compiled
    address, size = data.unsafe_buffer_pointer(), data.nbytes
    del data
    for i, x in enumerate(samples):
        array = jax.numpy.asarray(single[i])
        assert array.devices() == {jax.devices()[1]}
        assert not address <= array.unsafe_buffer_pointer() < address + size  # memory of its own, which may be donated
        for actual in (array, copied.at(i), iterated[i]):
            assert actual.dtype == dtype
            np.testing.assert_array_equal(actual, x)


def test_large_buffers_are_page_locked():
    """Large buffers come from the allocator, or from ordinary memory when it has no more. Their memory is used
    again.
    """
    sizes = []

    def pinned(size):
        sizes.append(size)
        return np.zeros(size, np.uint8) if len(sizes) < 3 else None

    pool = BufferPool(pinned)
    pool.empty((1, 100), np.uint8)
    assert not sizes
    buffers = [pool.empty((2, LEAST_PINNED), np.uint8) for _ in range(3)]
    assert len(sizes) == 3
    assert len({x.ctypes.data for x in buffers}) == 3
    for i, x in enumerate(buffers):
        assert x.ctypes.data % 64 == 0
        x[:] = i
    first = buffers[0].ctypes.data
    del buffers[0], x
    assert pool.empty((2, LEAST_PINNED), np.uint8).ctypes.data == first
    pool.empty((3, LEAST_PINNED), np.uint8)
    assert len(sizes) == 3  # the allocator had no more


def test_stacked_samples_are_views():
    """Samples of one shape are one array, unless another shard or sample lies between them."""
    for shape in [(), (3, 0), (5, 7), (8, 8), (65,)]:
        shapes = np.tile(np.array(shape, np.int64), (6, 1))
        offsets, elements = plan_offsets(shapes, 1)
        packed = Packed(np.arange(elements + ALIGNMENT)[None], offsets, shapes)
        stacked = packed.stacked()
        assert np.shares_memory(stacked, packed.data) or not stacked.size
        np.testing.assert_array_equal(stacked, np.stack([*packed]))
    assert Packed(packed.data, offsets[::-1], shapes).stacked() is None
    assert Packed(packed.data.reshape(2, -1), offsets, shapes).stacked() is None
    assert Packed(packed.data, offsets, np.arange(6)[:, None]).stacked() is None
