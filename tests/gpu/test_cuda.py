"""The CUDA kernels against the CPU's, on an NVIDIA GPU; see run.sh. They have not been run on one so far."""

import os
import pathlib

import jax
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding
from kernels import CASES, compare

from jaxdali import _ffi, fn
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


def test_pipeline(gpu):
    """Decoding on the CPU, the rest on the GPU."""

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
    assert len(programs) == 2
    assert got["images"].devices() == {gpu}
    np.testing.assert_allclose(np.asarray(got["images"], np.int32), np.asarray(want["images"], np.int32), atol=2)
    np.testing.assert_array_equal(got["labels"], want["labels"])
