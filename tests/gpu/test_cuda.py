"""The CUDA kernels against the CPU's, on an NVIDIA GPU; see run.sh. They have not been run on one so far."""

import os
import pathlib

import jax
import jpeg_checks
import numpy as np
import pytest
from images import decode
from jax.sharding import SingleDeviceSharding
from jpeg_corpus import is_covered, of_all_kinds
from kernels import CASES, compare

from jaxdali import _cpu, _ffi, fn, types
from jaxdali.plugin.jax import data_iterator

PHOTOS = str(pathlib.Path(__file__).parents[2] / "examples" / "images")


@pytest.fixture(scope="module")
def gpu():
    """The first GPU. Without one, or without the CUDA module, tests are skipped; with JAXDALI_REQUIRE_CUDA=1 they fail."""
    try:
        device = jax.devices("cuda")[0]
        problem = "" if _ffi.CUDA_KERNELS else f"CUDA module: {_ffi.CUDA}"
    except RuntimeError as e:
        device, problem = None, str(e)
    if problem:
        (pytest.fail if os.environ.get("JAXDALI_REQUIRE_CUDA") == "1" else pytest.skip)(problem)
    return device


@pytest.mark.parametrize("kernel", CASES)
def test_same_as_on_the_cpu(kernel, gpu):
    assert compare(kernel, device=gpu) > 0


@pytest.fixture
def jpeg_kernels(gpu):
    return jpeg_checks.Kernels("decode", gpu)


def test_jpeg_corpus(jpeg_kernels):
    assert jpeg_checks.check_corpus(jpeg_kernels) >= 500


def test_jpeg_regions_orientations_and_types(jpeg_kernels):
    jpeg_checks.check_parts(jpeg_kernels)


def test_damaged_jpeg(jpeg_kernels):
    good, refused = jpeg_checks.check_damaged(jpeg_kernels, 3000)
    assert good > 250
    assert refused > 500


def test_absent_and_broken_jpeg(jpeg_kernels):
    jpeg_checks.check_absent(jpeg_kernels)


@pytest.mark.parametrize(("kind", "dtype"), [(types.RGB, types.UINT8), (types.ANY_DATA, types.UINT16), (types.GRAY, types.FLOAT)])
def test_batch_of_all_kinds(monkeypatch, gpu, kind, dtype):
    files, taken, make = of_all_kinds(), [], _cpu.make_jpeg_tables

    def spied(data, offsets, sizes, info, usable, tables, pool):
        make(data, offsets, sizes, info, usable, tables, pool)
        taken.append(int((tables[:, 0] != 0).sum()))

    with jax.default_device(jax.devices("cpu")[0]):
        want = decode(files, output_type=kind, dtype=dtype)
    monkeypatch.setattr(_cpu, "make_jpeg_tables", spied)
    with jax.default_device(gpu):
        got = decode(files, output_type=kind, dtype=dtype, device="mixed")
    assert taken == [sum(map(is_covered, files))]
    for i, (x, y) in enumerate(zip(got, want, strict=True)):
        jpeg_checks.assert_same(x, y, f"file {i}: {files[i][:8]!r}")


def test_pipeline(gpu):
    """All of it on the GPU, in one program."""

    def batch(device):
        @data_iterator(output_map=["images", "labels"], reader_name="reader", sharding=SingleDeviceSharding(device))
        def define(num_shards=1, shard_id=0):
            jpegs, labels = fn.readers.file(file_root=PHOTOS, num_shards=num_shards, shard_id=shard_id, name="reader")
            images = fn.decoders.image(jpegs, device="mixed")
            images = fn.rotate(images, angle=fn.random.uniform(range=(-10.0, 10.0)), fill_value=0)
            return fn.resize(images, size=(48, 64)), labels

        with define(batch_size=4, seed=0) as iterator:
            return next(iterator), iterator._executors[0]._last

    (got, programs), (want, _) = batch(gpu), batch(jax.devices("cpu")[0])
    assert len(programs) == 1
    assert got["images"].devices() == {gpu}
    np.testing.assert_allclose(np.asarray(got["images"], np.int32), np.asarray(want["images"], np.int32), atol=2)
    np.testing.assert_array_equal(got["labels"], want["labels"])
