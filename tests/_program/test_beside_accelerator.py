"""Accelerators without native kernels, emulated by CPU devices: native operators run on the first CPU device instead."""

import collections
import threading
import types
from typing import Any

import jax
import jax.numpy as jnp
import jpeg_checks
import numpy as np
import places
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

import jaxdali
from jaxdali import fn
from jaxdali._batch import launch, outputs
from jaxdali._core import ffi as _ffi
from jaxdali._pipeline import schedule
from jaxdali._program import program
from jaxdali._program.sharding import Shards
from jaxdali.backend import TensorGPU, TensorListCPU, TensorListGPU
from jaxdali.plugin.jax import data_iterator
from jaxdali.plugin.jax.fn import jax_function

PHOTOS = str(places.PHOTOS)


def second_batch(sharding):
    """Returns the second batch of a pipeline with native operators before, between and after others, and with host and
    device outputs; and the number of programs.
    """

    @data_iterator(output_map=["images", "labels", "halves", "small"], reader_name="reader", sharding=sharding)
    def define(num_shards=1, shard_id=0):
        jpegs, labels = fn.readers.file(file_root=PHOTOS, num_shards=num_shards, shard_id=shard_id, name="reader")
        images = fn.decoders.image(jpegs, device="mixed")
        images = fn.rotate(images, angle=fn.random.uniform(range=(-10.0, 10.0)), fill_value=0)
        images = fn.resize(images, size=(48, 64))
        halves = images * 0.5
        return images, labels, halves, fn.resize(halves, size=(16, 16))

    with define(batch_size=4, seed=0) as iterator:
        next(iterator)
        batch = next(iterator)
        programs = iterator._stream.executors[0].programs()
    return batch, programs


def on(first, last):
    return NamedSharding(Mesh(jax.devices()[first:last], ("batch",)), PartitionSpec("batch"))


@pytest.mark.parametrize(
    "sharding",
    [lambda: SingleDeviceSharding(jax.devices()[1]), lambda: on(1, 2), lambda: on(1, 3)],
    ids=["device", "mesh of 1", "mesh of 2"],
)
@pytest.mark.parametrize(
    ("kernels", "count"),
    [
        ((), 3),  # the CPU, the accelerator, and the CPU again for the last resize
        (("resize", "warp"), 2),  # only decoding stays on the CPU
        (("decode", "resize", "warp"), 1),
    ],
)
def test_same_batches_as_without(monkeypatch, sharding, kernels, count):
    sharding = sharding()
    expected, programs = second_batch(sharding)
    assert programs == 1
    monkeypatch.setattr(Shards, "accelerator", property(lambda self: True))
    monkeypatch.setattr(_ffi, "kernels_on", lambda device: frozenset(kernels))
    if "decode" in kernels:
        monkeypatch.setattr(_ffi, "call", jpeg_checks.native_calls(jpeg_checks.emulated_kernels()))
    batch, programs = second_batch(sharding)
    assert programs == count
    for name, value in batch.items():
        assert value.sharding == sharding
        np.testing.assert_array_equal(value, expected[name])


@pytest.mark.parametrize("sharding", [lambda: on(1, 2), lambda: on(1, 3)], ids=["mesh of 1", "mesh of 2"])
def test_operands_are_put_on_the_accelerator(monkeypatch, sharding):
    """A program of a GPU waits for copies of NumPy arrays, see Note [Pinned memory]."""
    monkeypatch.setattr(Shards, "accelerator", property(lambda self: self.primaries[0] != jax.devices()[0]))
    monkeypatch.setattr(_ffi, "kernels_on", lambda device: frozenset(("resize", "warp")))
    jit, arguments = program._jit, []

    def spied(segment, form):
        run = jit(segment, form)
        return lambda *args: arguments.extend((segment.on_device, x) for x in jax.tree.leaves(args)) or run(*args)

    monkeypatch.setattr(program, "_jit", spied)
    monkeypatch.setattr(program, "_programs", collections.OrderedDict())
    second_batch(sharding())
    assert {on_device for on_device, _ in arguments} == {True, False}
    for on_device, x in arguments:
        assert not on_device or isinstance(x, jax.Array)


def test_function_of_global_arrays_stays_on_accelerators(monkeypatch):
    sharding, shardings = on(0, 4), []

    def centred(x):
        shardings.append(x.sharding)
        return x - x.mean()

    @data_iterator(output_map=["x", "y"], size=8, sharding=sharding)
    def define(num_shards=1, shard_id=0):
        x = fn.external_source(source=lambda i: np.full(3, i.idx_in_batch + 2 * shard_id, np.float32), batch=False)
        return x, jax_function(centred, sharding=sharding)(x)

    monkeypatch.setattr(Shards, "accelerator", property(lambda self: True))
    with define(batch_size=8) as iterator:
        batch = next(iterator)
    np.testing.assert_allclose(batch["y"], batch["x"] - 3.5)
    assert shardings[-1] == sharding == batch["y"].sharding


def cuda_gpu(number, capability):
    """A stand-in for an NVIDIA GPU, with the attributes that our code reads."""
    client = types.SimpleNamespace(platform_version="cuda 13000")
    return types.SimpleNamespace(
        platform="gpu", client=client, local_hardware_id=number, device_kind="Tesla T4", compute_capability=capability
    )


def test_warning_of_missing_kernels(monkeypatch):
    """If a GPU's kernels are missing, a pipeline that needs them warns once, with the reason."""
    gpu = types.SimpleNamespace(platform="gpu", client=types.SimpleNamespace(platform_version="cuda 13000"))
    rocm_gpu = types.SimpleNamespace(platform="gpu", client=types.SimpleNamespace(platform_version="rocm 6"))
    monkeypatch.setattr(_ffi, "CUDA", "failed to load: libcudart.so.13: no such file")
    monkeypatch.setattr(_ffi, "CUDA_KERNELS", frozenset())
    assert "failed to load: libcudart.so.13" in _ffi.why_no_kernels(gpu)
    assert _ffi.why_no_kernels(rocm_gpu) == _ffi.why_no_kernels(jax.devices()[0]) == ""

    def batch(device):
        @data_iterator(output_map=["images"], reader_name="reader")
        def define():
            jpegs, _ = fn.readers.file(file_root=PHOTOS, name="reader")
            return fn.resize(fn.decoders.image(jpegs, device=device), size=(8, 8))

        return next(define(batch_size=2))

    monkeypatch.setattr(Shards, "accelerator", property(lambda self: True))
    monkeypatch.setattr(_ffi, "kernels_on", lambda device: frozenset())
    monkeypatch.setattr(_ffi, "is_cuda", lambda device: True)
    monkeypatch.setattr(_ffi, "_loaders", {})
    with pytest.warns(
        RuntimeWarning, match=r"decoders\.image, resize will run on the CPU.* failed to load: libcudart"
    ) as warned:
        batch("mixed")
    assert len(warned) == 1
    batch("cpu")  # silent: pytest makes errors of warnings


def test_kernels_are_loaded_before_the_first_batch(monkeypatch):
    """Kernels of the module and of a user's library are loaded once into each GPU, and into all GPUs at the same time.
    A GPU that can't run them is an error with the reason.
    """
    gpus, loaded, barrier = [cuda_gpu(i, "9.0") for i in range(3)], [], threading.Barrier(4, timeout=60)

    def load(library):
        def into(device):
            if device == 2:
                return "color: no kernel image is available"
            barrier.wait()
            loaded.append((library, device))
            return ""

        return into

    monkeypatch.setattr(_ffi, "CUDA_KERNELS", frozenset({"color"}))
    monkeypatch.setattr(_ffi, "_loaders", {"jaxdali": load("jaxdali"), "own.so": load("own.so")})
    monkeypatch.setattr(_ffi, "_loaded", set())
    for _ in range(2):
        _ffi.load_kernels([gpus[0], gpus[1], jax.devices()[0]])
    assert sorted(loaded) == [("jaxdali", 0), ("jaxdali", 1), ("own.so", 0), ("own.so", 1)]
    with pytest.raises(RuntimeError, match=r"CUDA kernels of jaxdali can't be loaded into .*: color: no kernel image"):
        _ffi.load_kernels(gpus)

    events: list[Any] = []
    monkeypatch.setattr(_ffi, "load_kernels", events.append)
    monkeypatch.setattr(
        launch, "program_for", lambda *args, real=launch.program_for: events.append("program") or real(*args)
    )
    second_batch(on(1, 3))
    assert events[:2] == [tuple(jax.devices()[1:3]), "program"]


def test_gpu_older_than_the_kernels(monkeypatch):
    """For an old GPU native operators run on the CPU. The kernels of a user's library may support the GPU."""
    old, loaded = cuda_gpu(0, "7.5"), []
    monkeypatch.setattr(_ffi, "CUDA_KERNELS", frozenset({"resize", "warp"}))
    monkeypatch.setattr(_ffi, "_kernels", {"cpu": set(), "CUDA": {"resize", "warp", "own"}})
    monkeypatch.setattr(_ffi, "_oldest", 8.0)
    monkeypatch.setattr(_ffi, "_loaded", set())
    monkeypatch.setattr(
        _ffi, "_loaders", dict.fromkeys(("jaxdali", "own.so"), lambda device: loaded.append(device) or "")
    )
    assert (
        _ffi.why_no_kernels(old)
        == "jaxdali's CUDA kernels are for compute capability 8.0 and newer, and Tesla T4 has 7.5"
    )
    assert _ffi.kernels_on(old) == {"own"}
    _ffi.load_kernels([old])
    assert loaded == [0]
    for newer in ("8.0", "9.0", "12.1"):
        assert _ffi.kernels_on(cuda_gpu(1, newer)) == {"own", "resize", "warp"}


def test_ragged_outputs_stay_on_the_accelerator(monkeypatch):
    """`Pipeline.run` returns a TensorListGPU, as for dense outputs. Only `as_cpu` copies, and only occupied memory."""
    sizes = [(7, 5, 3), (40, 30, 3), (1, 1, 3), (16, 4, 3)]
    images = [np.random.default_rng(i).integers(0, 255, s, np.uint8) for i, s in enumerate(sizes)]

    @jaxdali.pipeline_def(batch_size=4, num_threads=2, device_id=None)
    def define():
        x = fn.external_source(source=lambda: images, layout="HWC")
        return x.gpu() + np.uint8(1), x

    for module in (outputs, schedule):
        monkeypatch.setattr(module, "is_on_accelerator", lambda x: isinstance(x, jax.Array))
    device, host = define().run()
    assert (type(device), type(host)) == (TensorListGPU, TensorListCPU)
    assert (device.shape(), device.layout(), device.dtype, device.is_dense_tensor()) == (
        sizes,
        "HWC",
        host.dtype,
        False,
    )
    copied = device.as_cpu()
    for i, image in enumerate(images):
        assert isinstance(device[i], TensorGPU)
        np.testing.assert_array_equal(jnp.asarray(device.at(i)), image + np.uint8(1))
        np.testing.assert_array_equal(copied.at(i), image + np.uint8(1))
        assert copied.at(i).base is not None  # a view of the one copy
    external = np.empty(sum(x.size for x in images), np.uint8)
    device.block_until_ready().copy_to_external(external.ctypes.data)
    np.testing.assert_array_equal(external, np.concatenate([x.ravel() + np.uint8(1) for x in images]))
