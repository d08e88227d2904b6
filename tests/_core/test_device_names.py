""" "tpu" names the accelerator as "gpu" does, wherever a device is named."""

from typing import Any

import numpy as np
import pytest

import jaxdali.dynamic as jd
import jaxdali.experimental.dynamic as ndd
from jaxdali import Pipeline, fn, ops, pipeline_def, types
from jaxdali._core.arguments import declared
from jaxdali.auto_aug.core import augmentation
from jaxdali.plugin.jax.fn import jax_function

TPU: Any = "tpu"  # annotations have DALI's names


def test_every_operator():
    devices = {name: arguments()["device"] for name, arguments in declared.items() if "device" in arguments()}
    accepting = {name: a for name, a in devices.items() if "'gpu'" in a.expected}
    assert len(accepting) > 80, "most operators run on the accelerator"
    for name, a in accepting.items():
        assert a.check(name, "tpu") == "gpu"
    for name in devices.keys() - accepting.keys():
        with pytest.raises(ValueError, match="got 'tpu'"):
            devices[name].check(name, "tpu")


def image():
    return fn.external_source(source=lambda: [np.arange(12, dtype=np.uint8).reshape(2, 2, 3)], layout="HWC")


@augmentation(mag_range=(0, 1), param_device=TPU)
def moved(image, magnitude):
    return image, magnitude


@pytest.mark.parametrize(
    "make",
    [
        lambda: fn.flip(image().gpu(), device=TPU),
        lambda: fn.external_source(source=lambda: [np.float32(1)], device=TPU),
        lambda: fn.random.uniform(device=TPU),
        lambda: fn.copy(image(), device=TPU),
        lambda: types.Constant([1, 2], device=TPU),
        lambda: image().shape(device=TPU),
        lambda: image().property("layout", device=TPU),
        lambda: jax_function(lambda x: x, device=TPU)(image().gpu()),
        lambda: ops.Flip(device=TPU)(image().gpu()),
        lambda: ops.Compose([ops.Flip(device=TPU)])(image()),
        lambda: moved(image().gpu(), magnitude_bin=types.Constant(1), num_magnitude_bins=3)[1],
    ],
)
def test_nodes(make):
    nodes = []

    @pipeline_def(batch_size=1, num_threads=1)
    def define():
        nodes.append(make())
        return nodes[0]

    pipeline = define()
    pipeline.run()
    assert nodes[0].device == "gpu"


def test_a_serialized_pipeline():
    @pipeline_def(batch_size=1, num_threads=1)
    def define():
        return fn.cast(types.Constant([1, 2]), dtype=types.FLOAT, device=TPU)

    (out,) = Pipeline.deserialize(define().serialize()).run()
    assert out.as_cpu().as_array().tolist() == [[1, 2]]


def test_values():
    x = np.arange(12, dtype=np.uint8).reshape(1, 2, 2, 3)
    np.testing.assert_array_equal(jd.flip(x, device=TPU).numpy(), x[:, :, ::-1])
    assert ndd.Device("tpu:0") == ndd.Device("gpu")
    with pytest.raises(ValueError, match="a device is"):
        ndd.Device("npu")
