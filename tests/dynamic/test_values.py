"""Inputs of functions of values: columns of other libraries, types, layouts, arguments."""

import collections.abc
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from photos_of_values import FILES, images

import jaxdali.dynamic as jd
from jaxdali.dynamic._batch import buffers


class Column(collections.abc.Sequence):
    """A sequence, as of libraries that read a sample when it is indexed."""

    def __init__(self, values):
        self._values = values

    def __len__(self):
        return len(self._values)

    def __getitem__(self, key):
        return self._values[key]


def objects(values):
    column = np.empty(len(values), object)
    column[:] = values
    return column


def arrow(values):
    return pytest.importorskip("pyarrow").array(values)


def chunks(values):
    return pytest.importorskip("pyarrow").chunked_array([values[:2], values[2:]])


def pandas(values):
    return pytest.importorskip("pandas").Series(values)


class Exported:
    """An array of another library."""

    def __init__(self, x):
        self.__dlpack__, self.__dlpack_device__ = x.__dlpack__, x.__dlpack_device__


@jd.jit
def passing_on(x, numbers, key):
    return x, jd.copy(x), numbers, jd.random.uniform(key=key, batch_size=2)


# Sizes below and above that of a recycled buffer, with memory that JAX may use in place.
@pytest.mark.parametrize("shape", [(2, 3), (2, 300, 500)])
@pytest.mark.parametrize(
    "make",
    [
        lambda x: [jd.batch(x), jd.tensor(x), jd.batch(x, layout="A" * (x.ndim - 1)), jd.tensor(jd.tensor(x))],
        lambda x: [
            jd.batch(list(x)),
            jd.batch(Exported(x)),
            jd.tensor(Exported(x)),
            jd.tensor(memoryview(x).cast("B")),
        ],
        lambda x: [jd.copy(x), jd.cast(x, dtype=np.float32), jd.reshape(x, shape=[-1])],
        lambda x: passing_on(x, x.reshape(2, -1)[:, 0], jax.random.key(0))[:3],
        lambda x: passing_on([*x], jd.batch(x.reshape(2, -1)[:, 0]), jax.random.key(0))[:3],
        lambda x: [jd.jit(lambda x: x)(x), jd.jit(lambda x: jd.copy(x))(x)],
    ],
    ids=["array", "other forms", "functions", "jit", "jit of a list", "jit without keys"],
)
def test_memory_of_callers_is_not_kept(make, shape):
    x = buffers.empty(shape, np.float32)
    x[...] = np.arange(x.size).reshape(shape)
    results = make(x)
    expected = [np.array(r) for r in results]
    x[...] = -1
    for result, array in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, array)
        assert not np.may_share_memory(np.asarray(result), x)


@pytest.mark.parametrize("column", [objects, Column, tuple, arrow, chunks, pandas])
def test_columns_of_files(column):
    expected = jd.resize(jd.decoders.image(FILES), size=(8, 8)).numpy()
    resize_files = lambda files: jd.resize(jd.decoders.image(files), size=(8, 8))
    for run in (resize_files, jd.jit(resize_files)):
        np.testing.assert_array_equal(run(column(FILES)).numpy(), expected)


@pytest.mark.parametrize("column", [Column, arrow, chunks, pandas])
def test_columns_of_numbers(column):
    angle = [0.0, 10.0, 20.0, 30.0]
    assert jd.batch(column(angle)).numpy().tolist() == angle
    rotated = jd.rotate(images(), angle=column(angle), keep_size=True)
    np.testing.assert_array_equal(rotated.numpy(), jd.rotate(images(), angle=np.array(angle), keep_size=True).numpy())


def test_lists_keep_layouts_of_tensors():
    channels_first = [jd.tensor(np.moveaxis(x[: 9 + i], 2, 0), layout="CHW") for i, x in enumerate(images())]
    for flipped in (jd.flip(channels_first), jd.jit(jd.flip)(channels_first)):
        assert flipped.layout == "CHW"
        for a, b in zip(flipped, channels_first):
            np.testing.assert_array_equal(a, b[:, :, ::-1])
    with pytest.raises(ValueError, match="must have one layout, got 'HWC' and 'CHW'"):
        jd.batch([jd.tensor(images()[0], layout="HWC"), jd.tensor(images()[1], layout="CHW")])


@pytest.mark.parametrize(
    ("moved", "layout"),
    [
        (lambda x: np.moveaxis(x, 2, 0), "CHW"),
        (lambda x: x.transpose(2, 0, 1), "CHW"),
        (lambda x: np.transpose(x), "CWH"),
        (lambda x: x.T, "CWH"),
        (lambda x: x.swapaxes(0, -1), "CWH"),
        (lambda x: x.transpose((1, -1, 0)), "WCH"),
        (lambda x: x[::2], "HWC"),
        (lambda x: x[0].transpose(), "CW"),
        (lambda x: x[..., 0], "HW"),
        (lambda x: x[:, 0, None], ""),
    ],
)
def test_a_layout_goes_with_its_axes(moved, layout):
    x = images()[0]
    assert moved(jd.tensor(x, layout="HWC")).layout == layout
    np.testing.assert_array_equal(moved(jd.tensor(x, layout="HWC")), moved(x))


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.float64])
def test_numbers_of_64_bits(dtype):
    """They keep their bits even without x64 in JAX: dense and ragged ones, in single calls and in one program."""
    big = (np.arange(8).reshape(4, 2) + 2**40).astype(dtype)
    for x in (big, list(big)):
        for run in (lambda x, y: jd.batch(x) + y, jd.jit(lambda x, y: x + y)):
            total = run(x, jd.batch(big))
            assert total.dtype == dtype
            np.testing.assert_array_equal(total.numpy(), big + big)
    np.testing.assert_array_equal((jd.batch(np.arange(3)) * 2 - 1).numpy(), [-1, 1, 3])
    shifted = jax.jit(lambda x: (jd.batch(x) + jd.batch(np.arange(4))).jax())(jnp.ones(4, jnp.int32))
    np.testing.assert_array_equal(np.asarray(shifted), np.arange(4) + 1)


def test_unsupported_types():
    with pytest.raises(TypeError, match="flip: arrays of type complex64 are not supported"):
        jd.flip(images().astype(np.complex64))
    with pytest.raises(TypeError, match=r"decoders\.image: arrays of type \|S.* drops zeros"):
        jd.decoders.image(np.array(FILES))
    with pytest.raises(TypeError, match=r"flip: .*a random key is passed by name, as key=key"):
        jd.flip(jax.random.split(jax.random.key(0), 3))
    np.testing.assert_array_equal(jd.batch(np.array([1, 2], ">i4")).numpy(), [1, 2])
    assert jd.batch(np.array([1, 2], ">i4")).dtype == np.int32


def test_images_of_pillow():
    image = pytest.importorskip("PIL.Image")
    opened = [image.fromarray(x[: 9 + i]) for i, x in enumerate(images())]
    for x, y in zip(jd.flip(opened), images()):
        np.testing.assert_array_equal(x, y[: len(x), ::-1])
    np.testing.assert_array_equal(jd.flip(opened[0]), images()[0, :9, ::-1])
    with pytest.raises(TypeError, match="a batch is made of a list of images, got one image"):
        jd.batch(opened[0])


def test_equal_shapes_are_one_array():
    """Functions whose result has a shape that depends on values return a ragged batch, even if all shapes are equal."""
    ragged = jd.resize([images()[0], images()[1, :10]], size=(6, 8))
    expected = ragged.numpy()
    assert not ragged.is_dense
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: x * 2)(ragged)), expected.astype(np.int32) * 2)
    np.testing.assert_allclose(float(jnp.mean(ragged)), expected.mean(), rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: jd.flip(x).jax())(ragged)), expected[:, :, ::-1])
    assert jax.tree.map(lambda x: x, ragged).is_dense
    assert jax.tree.structure(ragged) == jax.tree.structure(jd.batch(expected, layout="HWC"))
    different = jd.batch([images()[0], images()[1, :10]])
    assert len(jax.tree.leaves(different)) == 2
    assert jax.tree.map(lambda x: x, different).shapes == different.shapes


OPERATORS = "add sub mul truediv floordiv mod and_ or_ xor lshift rshift pow eq ne lt le gt ge"


def outcome(function, *operands):
    """Type, values and layout of a result, or None if the operands are refused."""
    try:
        result = function(*operands)
    except TypeError:
        return None
    return result.dtype, str(np.asarray(result[0] if isinstance(result, jd.Batch) else result).tolist()), result.layout


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.bool_])
def test_arithmetic_of_single_samples(dtype):
    """It follows the rules of batches."""
    x = np.array([[1, 0, 1], [5, 7, 100]]).astype(dtype)
    sample, batch = jd.tensor(x, "XY"), jd.batch([x], "XY")
    operands = [2, 3.5, True, np.int64(3), np.float32(0.5), x[0], jd.tensor(x[:, :1])]
    for function in (getattr(operator, name) for name in OPERATORS.split()):
        for operand in operands:
            batch_operand = (
                [operand] if isinstance(operand, np.ndarray) else operand
            )  # a batch reads an array as samples
            assert outcome(function, sample, operand) == outcome(function, batch, batch_operand)
            assert outcome(function, operand, sample) == outcome(function, batch_operand, batch)
    if dtype == np.uint8:
        assert (sample * 2).dtype == (2 * sample).dtype == np.int32
        assert np.add(sample, 250)[1, 0] == 255
        assert np.add(sample, 251)[1, 0] == 0  # a function of NumPy
        assert (float(np.mean(sample)), float(np.var(sample))) == (x.mean(), x.var())


def test_tensors_in_place():
    sample = jd.tensor(np.array([250, 255], np.uint8), "X")
    original, array = sample, np.array([1, 2], np.uint8)
    sample += 10
    sample //= 2
    assert (sample.dtype, sample.tolist(), sample.layout, original.tolist()) == (np.int32, [130, 132], "X", [250, 255])
    array += original  # an array of NumPy stays an array
    assert (type(array), array.tolist()) == (np.ndarray, [251, 1])
    assert (np.float32(2) * original).tolist() == [500, 510]
    with pytest.raises(TypeError, match="divmod"):
        divmod(sample, 2)
