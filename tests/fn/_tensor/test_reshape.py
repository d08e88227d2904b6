"""reshape, reinterpret, squeeze, expand_dims: the same bytes, whatever the batch is made of."""

import numpy as np
import pytest
from pipelines import run

from jaxdali import OperatorError, Pipeline, fn, types

IMAGES = [np.arange(72, dtype=np.uint8).reshape(4, 6, 3), np.arange(24, dtype=np.uint8).reshape(2, 4, 3)]
UNIFORM = [np.arange(24, dtype=np.float32).reshape(2, 4, 3) + k for k in range(3)]


def check(define, want, samples=IMAGES, layout="HWC", expected_layout=None):
    for on_device in (False, True):
        (out,) = run(define, samples, on_device=on_device, layouts=[layout])
        for i, (x, shape) in enumerate(zip(map(np.asarray, out), want, strict=True)):
            assert (x.shape, x.tobytes()) == (tuple(shape), samples[i].tobytes()), (on_device, i)
        if expected_layout is not None:
            assert out.layout() == expected_layout


# Shapes and layouts as DALI 2.4 gives them.
@pytest.mark.parametrize(
    ("arguments", "shapes", "layout"),
    [
        ({"shape": [-1, 2, 3]}, [(12, 2, 3), (4, 2, 3)], "HWC"),
        ({"shape": -1}, [(72,), (24,)], ""),
        ({"layout": "XYZ"}, [(4, 6, 3), (2, 4, 3)], "XYZ"),
        ({"rel_shape": [0.5, -1, 1]}, [(2, 12, 3), (1, 8, 3)], "HWC"),
        ({"rel_shape": [1, -1]}, [(4, 18), (2, 12)], ""),
        ({"rel_shape": [1, 1, 1, -1]}, [(4, 6, 3, 1), (2, 4, 3, 1)], ""),
        ({"src_dims": [1, 0, 2]}, [(6, 4, 3), (4, 2, 3)], "HWC"),
        ({"src_dims": [-1, 0, 1, 2], "layout": "FHWC"}, [(1, 4, 6, 3), (1, 2, 4, 3)], "FHWC"),
        ({"src_dims": [0, 1], "rel_shape": [1, -1]}, [(4, 18), (2, 12)], ""),
        ({"src_dims": [-1, 0, 1], "rel_shape": [1, 1, -1]}, [(1, 4, 18), (1, 2, 12)], "HWC"),
    ],
)
def test_reshape(arguments, shapes, layout):
    check(lambda x: fn.reshape(x, **arguments), shapes, expected_layout=layout)


def test_relative_extents_are_rounded():
    samples = [np.zeros((7, 6, 1), np.uint8)] * 2
    for factor, extent in ((0.3, 2), (0.36, 3)):
        (out,) = run(lambda x, factor=factor: fn.reshape(x, rel_shape=[factor, -1]), samples)
        assert np.asarray(out.at(0)).shape == (extent, 42 // extent)


def test_shape_per_sample():
    factors, added = np.array([2, 0, 1], np.int32), np.array([0, -1, 0], np.int32)
    for define in (lambda x, s: fn.reshape(x, s), lambda x, s: fn.reshape(x, shape=s)):
        check(lambda x, define=define: define(x, x.shape() * factors + added), [(8, 3, 3), (4, 2, 3)])


def test_dense_and_ragged_in_a_program():
    """A batch that resize made dense, and one with samples that have equal numbers of elements by chance."""
    check(lambda x: fn.reshape(x, shape=[-1, 4]), [(6, 4)] * 3, UNIFORM)
    check(lambda x: fn.reshape(x, shape=[4, 6]), [(4, 6)] * 3, UNIFORM)
    turned = [np.arange(24, dtype=np.int16).reshape(s) for s in ((2, 12), (4, 6), (24, 1))]
    check(lambda x: fn.reshape(x, shape=[3, 8]), [(3, 8)] * 3, turned, "HW")
    (out,) = run(lambda x: fn.reshape(fn.resize(x, size=(4, 4)), shape=[-1]), IMAGES, on_device=True, layouts=["HWC"])
    assert [np.asarray(y).shape for y in out] == [(48,), (48,)]


def test_shapes_of_a_source():
    """The first sample determines the number of dimensions."""
    shapes = [np.array([3, -1]), np.array([2, -1])]
    for define in (lambda x, s: fn.reshape(x, shape=s), fn.reshape, lambda x, s: fn.reinterpret(x, shape=s)):
        for on_device in (False, True):
            (out,) = run(lambda x, s, f=define, gpu=on_device: f(x.gpu() if gpu else x, s), IMAGES, shapes)
            assert [np.asarray(x).shape for x in out] == [(3, 24), (2, 12)]
    with pytest.raises(OperatorError, match="shape"):
        run(lambda x, s: fn.reshape(x, shape=s), IMAGES, [np.array([3, -1]), np.array([2, -1, 1])])


@pytest.mark.parametrize("dtype", [types.UINT16, types.INT32, types.FLOAT64, types.INT8, types.UINT8])
def test_reinterpret(dtype):
    many = [np.random.default_rng(i).integers(0, 256, (n, 40), np.uint8) for i, n in enumerate((3, 70, 1, 12))]
    size = np.dtype(np.uint8) if dtype == types.UINT8 else None
    for on_device in (False, True):
        (out,) = run(lambda x: fn.reinterpret(x, dtype=dtype), many, on_device=on_device)
        (back,) = run(
            lambda x: fn.reinterpret(fn.reinterpret(x, dtype=dtype), dtype=types.UINT8, shape=[-1]),
            many,
            on_device=on_device,
        )
        for x, y, original in zip(out, back, many, strict=True):
            assert np.asarray(x).tobytes() == original.tobytes()
            np.testing.assert_array_equal(np.asarray(y), original.reshape(-1))
            assert size is None or np.asarray(x).dtype == size


def test_squeeze_and_expand_dims():
    samples = [np.arange(n * 5, dtype=np.uint8).reshape(1, n, 1, 5, 1) for n in (4, 7)]
    check(lambda x: fn.squeeze(x, axes=[0, 2]), [(4, 5, 1), (7, 5, 1)], samples, "ABCDE", "BDE")
    check(lambda x: fn.squeeze(x, axis_names="EA"), [(4, 1, 5), (7, 1, 5)], samples, "ABCDE", "BCD")
    check(lambda x: fn.squeeze(x, axes=[0]), [()], [np.ones(1, np.uint8)], "")
    check(
        lambda x: fn.expand_dims(x, axes=[2, 0], new_axis_names="XY"),
        [(1, 4, 1, 6, 3), (1, 2, 1, 4, 3)],
        expected_layout="YHXWC",
    )
    check(lambda x: fn.expand_dims(x, axes=3), [(4, 6, 3, 1), (2, 4, 3, 1)], expected_layout="")


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda x: fn.reshape(x), "reshape: give a shape"),
        (lambda x: fn.reshape(x, shape=[-1], rel_shape=[1.0]), "shape and rel_shape can't be given together"),
        (lambda x: fn.reshape(x, shape=[-1, -1]), "only one extent may be negative"),
        (lambda x: fn.reshape(x, shape=[0, 5]), "an extent may not be 0"),
        (
            lambda x: fn.reshape(x, shape=[5, -1]),
            r"sample 0 of shape \(4, 6, 3\) has 72 elements, the shape \(5, 14\) needs 70",
        ),
        (lambda x: fn.reshape(x, shape=[-1], layout="AB"), "the layout 'AB' does not fit 1 dimensions"),
        (lambda x: fn.reshape(x, rel_shape=[1, 1, 1, 1]), "rel_shape has 4 elements for 3 dimensions"),
        (lambda x: fn.reinterpret(x, dtype=types.UINT16), "does not make up whole elements of uint16"),
        (lambda x: fn.reinterpret(x, shape=[5, -1], dtype=types.INT64), "has 72 bytes, the shape .* needs 40"),
        (lambda x: fn.squeeze(x, axes=[1]), "only axes of extent 1 can be removed"),
        (lambda x: fn.squeeze(x, axes=[0], axis_names="H"), "either axes or axis_names"),
        (lambda x: fn.squeeze(x, axis_names="a"), "axis_names='a' has the axis 'a', which is not in the layout 'HWC'"),
        (lambda x: fn.expand_dims(x, axes=[5]), r"axes=\[5\] has 5, which is not one of the 4 dimensions"),
        (lambda x: fn.expand_dims(x, axes=[0, 0]), "an axis is given twice"),
        (lambda x: fn.expand_dims(x, axes=[0], new_axis_names="XY"), "must have a letter for each"),
    ],
)
def test_bad_arguments(define, message):
    for on_device in (False, True):
        with pytest.raises((OperatorError, ValueError), match=message) as info:
            run(define, IMAGES, on_device=on_device, layouts=["HWC"])
        assert __file__ in str(info.value)  # the user's line


def test_short_last_batch():
    """Missing samples have no effect."""

    batches = iter([IMAGES, IMAGES[:1]])
    with Pipeline(batch_size=2, num_threads=1, exec_pipelined=False) as pipe:
        x = fn.external_source(lambda: next(batches), layout="HWC").gpu()
        pipe.set_outputs(fn.reshape(x, shape=[-1, 3]), fn.reshape(x, shape=[-1, 4, 3]))
    for count in (2, 1):
        first, second = (o.as_cpu() for o in pipe.run())
        for i in range(count):
            np.testing.assert_array_equal(np.asarray(first.at(i)), IMAGES[i].reshape(-1, 3))
            np.testing.assert_array_equal(np.asarray(second.at(i)), IMAGES[i].reshape(-1, 4, 3))
        assert len(first) == count


@pytest.mark.parametrize("shape", [(0, 1, 2), (0, 2, 2)])
def test_squeeze_keeps_the_number_of_elements(shape):
    """As in DALI, an empty sample loses an axis only if it stays empty."""
    with pytest.raises(
        (ValueError, RuntimeError), match=rf"squeeze.*sample 1 has shape \({shape[0]}, {shape[1]}, {shape[2]}\)"
    ):
        run(lambda x: fn.squeeze(x, axes=[0]), [np.ones((1, 2, 2)), np.zeros(shape)])
    (squeezed,) = run(lambda x: fn.squeeze(x, axes=[1]), [np.ones((2, 1, 2)), np.zeros((0, 2, 2))])
    assert [np.array(x).shape for x in squeezed] == [(2, 2), (0, 2)]
