"""Subscripts of DataNodes against NumPy's, on the host and in the compiled program."""

import numpy as np
import pipelines
import pytest

import jaxdali
from jaxdali import newaxis, types

RAGGED = [np.arange(h * w * 3, dtype=np.uint16).reshape(h, w, 3) for h, w in ((5, 6), (7, 4), (4, 9))]
DENSE = [RAGGED[0]] * 3  # a constant: its shape is known when the pipeline is built


def run(f, *inputs, compiled):
    """Outputs of ``f(x, *indices)`` for a batch of the given samples, and their layout."""

    def define(x, *indices):
        if inputs[0] is DENSE:
            x = types.Constant(DENSE[0], layout="HWC")
        return f(x.gpu() if compiled else x, *indices)

    (out,) = pipelines.run(define, *inputs, layouts=["HWC"] + [""] * (len(inputs) - 1))
    return [np.array(x) for x in out], out.layout()


KEYS = [
    np.s_[::2],
    np.s_[::-1],
    np.s_[4:1:-1],
    np.s_[3:1],
    np.s_[2:20, -20:3],
    np.s_[7:],
    np.s_[-3:-1, ::-2, 1],
    np.s_[1],
    np.s_[:, -1],
    np.s_[2, 3, 1],
    np.s_[:],
    np.s_[()],
    np.s_[:, 1:2, ::2],
    np.s_[: 10**30 : 10**20],
]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("samples", [DENSE, RAGGED], ids=["dense", "ragged"])
def test_static_keys_select_as_numpy(samples, compiled):
    for key in KEYS:
        selected, layout = run(lambda x, key=key: x[key], samples, compiled=compiled)
        axes = (*(key if isinstance(key, tuple) else (key,)), *[slice(None)] * 3)[:3]
        assert layout == "".join(c for c, k in zip("HWC", axes, strict=True) if isinstance(k, slice)), key
        for g, s in zip(selected, samples, strict=True):
            np.testing.assert_array_equal(g, s[key], err_msg=str(key))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("samples", [DENSE, RAGGED], ids=["dense", "ragged"])
def test_each_sample_has_its_own_indices(samples, compiled):
    index = [np.int32(i) for i in (1, -2, 3)]
    start = [np.uint8(i) for i in (0, 3, 1)]
    stop = [np.int64(i) for i in (-1, 99, 2)]
    step = [np.int16(i) for i in (1, -1, 2)]
    selected, layout = run(lambda x, a, b, c, d: x[a, b:c:d], samples, index, start, stop, step, compiled=compiled)
    assert layout == "WC"
    for i, s in enumerate(samples):
        np.testing.assert_array_equal(selected[i], s[index[i], start[i] : stop[i] : step[i]])


@pytest.mark.parametrize("compiled", [False, True])
def test_newaxis_inserts_an_axis(compiled):
    selected, layout = run(lambda x: x[newaxis("F"), 1:, newaxis("Z"), 0], RAGGED, compiled=compiled)
    assert layout == "FHZC"
    for g, s in zip(selected, RAGGED, strict=True):
        np.testing.assert_array_equal(g, s[None, 1:, None, 0])
    assert run(lambda x: x[0, newaxis], RAGGED, compiled=compiled)[1] == ""


@pytest.mark.parametrize("compiled", [False, True])
def test_index_out_of_range_fails_the_sample(compiled):
    index = [np.int32(4), np.int32(4), np.int32(4)]
    with pytest.raises(jaxdali.SampleError, match="index 4 is out of range for axis 0 of extent 4"):
        run(lambda x, i: x[i], RAGGED, index, compiled=compiled)
    with pytest.raises(ValueError, match="index -6 is out of range for axis 0 of extent 5"):
        run(lambda x: x[-6], DENSE, compiled=compiled)


@pytest.mark.parametrize("compiled", [False, True])
def test_constants_as_indices(compiled):
    one, two = types.Constant(1), types.Constant(np.int64(2))
    keys = [(one, 1), (types.Constant(True), 1), ((slice(one, two.uint8()), two), np.s_[1:2, 2])]
    keys.append(((slice(None), types.Constant(-1)), np.s_[:, -1]))
    for key, plain in keys:
        selected, _ = run(lambda x, key=key: x[key], RAGGED, compiled=compiled)
        for g, s in zip(selected, RAGGED, strict=True):
            np.testing.assert_array_equal(g, s[plain])


@pytest.mark.parametrize("key", [1.5, [0, 1], "H", slice(0, 2.5), types.Constant(1.5)])
def test_other_types_of_indices_are_refused(key):
    advice = "external_source have numbers, num_outputs=2" if isinstance(key, str) else ""
    with pytest.raises(TypeError, match=f"an index must be an integer.*{advice}"):
        run(lambda x: x[key], DENSE, compiled=False)


def test_unsupported_keys_are_refused():
    with pytest.raises(NotImplementedError, match="Ellipsis"):
        run(lambda x: x[..., 0], DENSE, compiled=False)
    with pytest.raises(ValueError, match="step"):
        run(lambda x: x[::0], DENSE, compiled=False)
    with pytest.raises(ValueError, match="4 indices for 3-D data"):
        run(lambda x: x[:, :, :, 0], DENSE, compiled=False)
    with pytest.raises(TypeError, match="integer scalar per sample"):
        run(lambda x, i: x[i], DENSE, [np.float32(1)] * 3, compiled=False)
