"""``fn.copy``, ``node.gpu()`` and ``node.cpu()``. Without an accelerator both are the CPU, but the graph keeps them
apart.
"""

import numpy as np
from pipelines import run

from jaxdali import fn, types


def test_devices_of_values():
    nodes = []

    def define(x):
        on_gpu = x.gpu()
        on_cpu = on_gpu.cpu()
        nodes.extend([x, on_gpu, on_cpu, on_cpu + 1, on_gpu + 1])
        assert on_gpu.gpu() is on_gpu
        assert x.cpu() is x
        assert on_cpu.cpu() is on_cpu
        return on_gpu, on_cpu, on_cpu * 2, on_gpu * 2

    samples = [np.full((n, 3), n, np.uint8) for n in (1, 50)]
    out = run(define, samples)
    assert [n.device for n in nodes] == ["cpu", "gpu", "cpu", "cpu", "gpu"]
    for output, factor in zip(out, (1, 1, 2, 2), strict=True):
        for i, x in enumerate(samples):
            np.testing.assert_array_equal(output.at(i), x.astype(output.at(i).dtype) * factor)


def test_device_and_name_arguments():
    nodes = []

    def define(x):
        nodes.extend(
            [
                fn.cast(x, dtype=types.FLOAT, device="gpu", name="wide"),
                fn.shapes(x, device="gpu"),
                fn.shapes(x, name="extents"),
            ]
        )
        return tuple(nodes)

    out = run(define, [np.zeros((2, 3), np.uint8)])
    assert [(n.device, n.name) for n in nodes[::2]] == [("gpu", "wide"), ("cpu", "extents")]
    assert nodes[1].device == "gpu"
    assert [x.at(0).tolist() for x in out[1:]] == [[2, 3], [2, 3]]


def test_copy():
    nodes = []

    def define(x):
        nodes.extend(
            [fn.copy(x), fn.copy(x, device="gpu", name="there"), fn.copy(x.gpu()), fn.copy(x.gpu(), device="cpu")]
        )
        return tuple(nodes)

    samples = [np.full((n, 3), n, np.uint8) for n in (1, 50)]
    for copied in run(define, samples, layouts=("HW",)):
        assert copied.layout() == "HW"
        for i, x in enumerate(samples):
            np.testing.assert_array_equal(copied.at(i), x)
    assert [n.device for n in nodes] == ["cpu", "gpu", "gpu", "cpu"]
    assert nodes[1].name == "there"
