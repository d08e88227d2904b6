"""``fn.copy``, ``node.gpu()`` and ``node.cpu()``. Without an accelerator both are the CPU, but the graph keeps them
apart.
"""

import numpy as np
from pipelines import run

from jaxdali import fn, types


def test_where_values_are():
    seen = []

    def define(x):
        there = x.gpu()
        back = there.cpu()
        seen.extend([x, there, back, back + 1, there + 1])
        assert there.gpu() is there
        assert x.cpu() is x
        assert back.cpu() is back
        return there, back, back * 2, there * 2

    samples = [np.full((n, 3), n, np.uint8) for n in (1, 50)]
    out = run(define, samples)
    assert [n.device for n in seen] == ["cpu", "gpu", "cpu", "cpu", "gpu"]
    for got, factor in zip(out, (1, 1, 2, 2), strict=True):
        for i, x in enumerate(samples):
            np.testing.assert_array_equal(got.at(i), x.astype(got.at(i).dtype) * factor)


def test_device_and_name_arguments():
    seen = []

    def define(x):
        seen.extend(
            [
                fn.cast(x, dtype=types.FLOAT, device="gpu", name="wide"),
                fn.shapes(x, device="gpu"),
                fn.shapes(x, name="extents"),
            ]
        )
        return tuple(seen)

    out = run(define, [np.zeros((2, 3), np.uint8)])
    assert [(n.device, n.name) for n in seen[::2]] == [("gpu", "wide"), ("cpu", "extents")]
    assert seen[1].device == "gpu"
    assert [x.at(0).tolist() for x in out[1:]] == [[2, 3], [2, 3]]


def test_copy():
    seen = []

    def define(x):
        seen.extend(
            [fn.copy(x), fn.copy(x, device="gpu", name="there"), fn.copy(x.gpu()), fn.copy(x.gpu(), device="cpu")]
        )
        return tuple(seen)

    samples = [np.full((n, 3), n, np.uint8) for n in (1, 50)]
    for got in run(define, samples, layouts=("HW",)):
        assert got.layout() == "HW"
        for i, x in enumerate(samples):
            np.testing.assert_array_equal(got.at(i), x)
    assert [n.device for n in seen] == ["cpu", "gpu", "gpu", "cpu"]
    assert seen[1].name == "there"
