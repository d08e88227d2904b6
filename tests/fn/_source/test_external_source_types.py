"""Types, layouts and shapes of external_source's data, given as arguments or determined by the first batch."""

import numpy as np
import pytest
from pipelines import external

import jaxdali.backend
from jaxdali import fn, pipeline_def, types
from jaxdali.plugin.jax.fn import jax_function


def test_layout_dtype_ndim_are_checked():
    data = lambda: np.zeros((3, 2, 4), np.float32)
    assert external(data, layout="HW", dtype=types.FLOAT, ndim=2).run()[0].layout() == "HW"
    for kwargs, text in [
        ({"dtype": types.FLOAT64}, "float64.*float32"),
        ({"dtype": types.FLOAT64, "ndim": 2}, "float64.*float32"),
        ({"ndim": 3}, "3 dimensions"),
        ({"layout": "HWC"}, "3 dimensions"),
        ({"layout": "HW", "ndim": 3}, "ndim is 3"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            external(data, **kwargs).run()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (np.zeros(4), "4 samples"),
        ([np.zeros(2), np.zeros(2, np.int32)], "one dtype"),
        ([np.zeros(2), np.zeros((2, 2))], "one dtype"),
        ([1, 2, 3], "got int"),
        (None, "NoneType"),
        ("text", "str"),
        (np.float32(3), "batch axis"),
        (np.zeros(3, np.complex64), "complex64"),
        (np.array(["a", "b", "c"]), r"U1.*text\.encode"),
        ([b"a", b"b"], r"got bytes; .*np\.frombuffer\(data"),
    ],
)
def test_bad_data(data, text):
    with pytest.raises(RuntimeError, match=text):
        external(lambda: data).run()


def test_type_and_rank_may_not_change():
    for second in (np.zeros(3, np.int32), np.zeros((3, 1))):
        pipe = external([np.zeros(3), second])
        pipe.run()
        with pytest.raises(RuntimeError, match="first batch"):
            pipe.run()
    with pytest.raises(RuntimeError, match="2 items, got 1"):
        external(lambda: (np.zeros(3),), num_outputs=2).run()
    with pytest.raises(RuntimeError, match="different numbers"):
        external(lambda: (np.zeros(3), np.zeros(2)), num_outputs=2).run()


def test_layouts_of_tensors_are_kept():
    tensor = jaxdali.backend.TensorCPU(np.zeros((2, 3, 4), np.uint8), "CHW")

    @pipeline_def(batch_size=2, prefetch_queue_depth=1)
    def define():
        return (
            fn.external_source(lambda: [tensor] * 2),
            fn.external_source(lambda i: tensor, batch=False),
            fn.external_source(name="in"),
        )

    pipe = define()
    pipe.feed_input("in", [tensor] * 2)
    assert [x.layout() for x in pipe.run()] == ["CHW"] * 3


def images(*shapes):
    return [np.full(s, i + 1, np.uint8) for i, s in enumerate(shapes)]


def summed(batches, **kwargs):
    """Results of a function behind external_source and resize, and the text of the program."""

    @pipeline_def(batch_size=2, prefetch_queue_depth=1)
    def define():
        return jax_function(lambda x: x.sum(axis=(1, 2)))(fn.resize(fn.external_source(batches, **kwargs), size=(2, 2)))

    pipe = define()
    results = [pipe.run()[0].as_array().tolist() for _ in batches]
    text = pipe.lower().as_text()
    pipe.close()
    return results, text


@pytest.mark.parametrize(
    "kwargs", [{"layout": "HWC"}, {"layout": "HWC", "shape": (None, None, 3), "dtype": types.UINT8}]
)
def test_functions_after_resize_join_its_program(kwargs):
    batches = [images((5, 4, 3), (3, 3, 3)), images((7, 2, 3), (2, 8, 3)), images((9, 9, 3), (1, 1, 3))]
    results, text = summed(batches, **kwargs)
    assert results == [[[4] * 3, [8] * 3]] * 3
    assert "custom_call @jaxdali_resize" in text
    assert "stablehlo.reduce" in text


def test_other_numbers_of_channels_are_errors():
    batches = [images((5, 4, 3), (3, 3, 3)), images((7, 2, 1), (2, 8, 1))]
    with pytest.raises(
        RuntimeError, match=r"shape \(7, 2, 1\).* first batch had 3 channels.*pass shape=\(None, None, None\)"
    ):
        summed(batches, layout="HWC")
    results, _ = summed(batches, layout="HWC", shape=(None, None, None))
    assert results == [[[4] * 3, [8] * 3], [[4], [8]]]
    mixed = external([images((5, 4, 3), (3, 3, 1), (2, 2, 3)), images((5, 4, 1), (3, 3, 1), (2, 2, 1))], layout="HWC")
    assert [[s[2] for s in mixed.run()[0].shape()] for _ in range(2)] == [[3, 1, 3], [1, 1, 1]]


def test_given_shapes_are_checked_and_dense():
    pipe = external([np.ones((3, 2, 4)), np.ones((3, 2, 5))], shape=(2, 4))
    assert pipe.run()[0].as_array().tolist() == np.ones((3, 2, 4)).tolist()
    with pytest.raises(RuntimeError, match=r"must have the shape \(2, 4\).*got \(2, 5\)"):
        pipe.run()
    short = external([[np.ones((2, 4), np.int32)]], shape=[(2, None)], num_outputs=None, layout="HW")
    assert short.run()[0].shape() == [(2, 4)]
