"""Functions whose results have types or numbers of dimensions that depend on values, and change from call to call."""

import io
import threading

import jax.numpy as jnp
import numpy as np
import pytest

import jaxdali.dynamic as jd
from jaxdali import OperatorError, SampleError, extend, fn, pipeline_def, types
from jaxdali.plugin.jax.fn import jax_function


def file_of(array) -> bytes:
    f = io.BytesIO()
    np.save(f, array)
    return f.getvalue()


ARRAYS = [
    np.arange(60, dtype=np.uint8).reshape(4, 5, 3),
    np.arange(8, dtype=np.float32).reshape(2, 4),
    np.arange(3),
    np.float32(2),
    np.zeros((0, 4)),
    np.array([True, False]),
]


def equal(batch, arrays):
    for a, b in zip(batch, arrays, strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_array_equal(np.asarray(a), b)


@pytest.mark.parametrize("compiled", [False, True])
def test_decoded_arrays(compiled):
    decode = jd.jit(lambda files: jd.decoders.numpy(files)) if compiled else jd.decoders.numpy
    for _ in range(2):
        for a in ARRAYS:
            equal(decode([file_of(a), file_of(a)]), [a, a])
    mixed = [file_of(ARRAYS[0]), file_of(ARRAYS[1])]
    with pytest.raises(OperatorError, match="must be of one type and number of dimensions in all samples"):
        decode(mixed)
    with pytest.raises(SampleError, match="sample 1: "):
        decode([file_of(ARRAYS[1]), b"damaged"])
    equal(decode([file_of(ARRAYS[1])] * 2), [ARRAYS[1]] * 2)


def test_types_in_threads():
    failed = []

    def run(k):
        for i in range(30):
            a = ARRAYS[(k + i) % len(ARRAYS)]
            try:
                equal(jd.decoders.numpy([file_of(a)] * 3), [a] * 3)
            except Exception as e:
                failed.append(e)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


def halve_or_expand(x):
    """Halves an array of large numbers as floats; adds an axis to any other array."""
    return x.astype(np.float32) / 2 if x.max() > 5 else x[None]


SMALL, LARGE = np.array([1, 2], np.int32), np.array([8, 2], np.int32)


@pytest.mark.parametrize("batch_processing", [False, True])
@pytest.mark.parametrize("name", ["python_function", "dl_tensor_python_function"])
def test_python_functions_are_called_once(name, batch_processing):
    calls = []

    class Exchanged:
        __dlpack_device__ = SMALL.__dlpack_device__

        def __init__(self, capsule):
            self.capsule = capsule

        def __dlpack__(self, **_):
            return self.capsule

    def of_sample(x):
        return halve_or_expand(x if name == "python_function" else np.from_dlpack(Exchanged(x)))

    def function(x):
        calls.append(x)
        return [of_sample(a) for a in x] if batch_processing else of_sample(x)

    call = getattr(jd, name)
    for x in (SMALL, LARGE, SMALL, LARGE, LARGE):
        equal(call([x, x, x], function=function, batch_processing=batch_processing), [halve_or_expand(x)] * 3)
    assert len(calls) == 5 * (1 if batch_processing else 3)


def test_types_of_a_compiled_function():
    """Two functions in one program change their types independently, and the steps after them follow."""
    calls = []

    def counted(x):
        calls.append(x)
        return halve_or_expand(x)

    @jd.jit
    def of_two(x, y):
        a, b = jd.python_function(x, function=counted), jd.python_function(y, function=counted)
        return a + 1, jd.cat(b, b), jd.reductions.sum(a)

    for x, y in ((SMALL, LARGE), (LARGE, LARGE), (SMALL, SMALL), (LARGE, SMALL), (SMALL, LARGE)):
        a, b, c = of_two([x, x], [y, y])
        equal(a, [halve_or_expand(x) + 1] * 2)
        equal(b, [np.concatenate([halve_or_expand(y)] * 2)] * 2)
        assert [float(v) for v in c] == [halve_or_expand(x).sum()] * 2
    assert len(calls) == 5 * 2 * 2


def test_errors_of_functions_call_once():
    calls = []

    def failing(x):
        calls.append(x)
        raise KeyError("no")

    first = jd.jit(lambda x: jd.python_function(jd.python_function(x, function=halve_or_expand), function=failing))
    for x in (SMALL, LARGE):
        with pytest.raises(OperatorError, match="KeyError: 'no'"):
            first([x])
    assert len(calls) == 2


def test_numbers_of_dimensions_by_values():
    """The shape for a reshape is known only when the operators before it have run."""
    x = np.arange(12)
    joined = jd.jit(lambda x, a, b: jd.reshape(x, shape=jd.cat(a, b)))
    positive = jd.jit(lambda x, a: jd.reshape(x, shape=jd.python_function(a, function=lambda a: a[a > 0])))
    for shape in ((3, 4), (3, 2, 2), (6, 2), (2, 1, 2, 3), (3, 4)):
        ends = np.array(shape[:-1], np.int32), np.array(shape[-1:], np.int32)
        equal(joined([x, x], [ends[0]] * 2, [ends[1]] * 2), [x.reshape(shape)] * 2)
        padded = np.array((*shape, 0, 0, 0)[:4], np.int32)
        equal(positive([x, x], [padded, padded]), [x.reshape(shape)] * 2)


def test_branches_of_different_types():
    @jd.jit(enable_conditionals=True)
    def cast_in_branch(x, condition):
        if condition:
            y = jd.cast(x, dtype=types.FLOAT)
        else:
            y = x
        return y

    x = np.arange(3, dtype=np.uint8)
    for condition in (True, False, True):
        equal(
            cast_in_branch([x, x], np.array([condition, condition])),
            [x.astype(np.float32 if condition else np.uint8)] * 2,
        )
    with pytest.raises(OperatorError, match="its branches give a variable values of different types"):
        cast_in_branch([x, x], np.array([True, False]))


def test_eager_jax_functions():
    """A function that looks at values is not compiled."""

    def by_values(x):
        x = np.asarray(x)
        return jnp.asarray(x.astype(np.float32) if x.max() > 5 else x[..., None])

    call = jd.jit(lambda x: jax_function(by_values)(x) + 1)
    for x in (SMALL, LARGE, SMALL):
        equal(call(np.stack([x, x])), list(by_values(np.stack([x, x])) + 1))


def test_registered_decoders_within_a_program(tmp_path):
    """The type of images that are decoded from files which the program itself reads."""
    images = {b"U16": np.full((2, 2, 1), 300, np.uint16), b"F32": np.full((2, 2, 2, 1), 0.5, np.float32)}
    read = jd.jit(lambda paths: jd.decoders.image(jd.io.file.read(paths)))
    try:
        for content, image in images.items():
            extend.register_decoder(lambda data, c=content: data == c, lambda _, x=image: x, name=content.decode())
            (tmp_path / content.decode()).write_bytes(content)
        for content in (b"U16", b"F32", b"U16"):
            path = np.frombuffer(str(tmp_path / content.decode()).encode(), np.uint8)
            equal(read([path, path]), [images[content]] * 2)
    finally:
        for content in images:
            extend.unregister_decoder(content.decode())


def test_types_in_a_pipeline_stay():
    arrays = iter([SMALL, LARGE])
    pipe = pipeline_def(
        lambda: fn.python_function(fn.external_source(lambda: [next(arrays)]), function=halve_or_expand)
    )(batch_size=1, num_threads=1)
    pipe.run()
    with pytest.raises(
        RuntimeError, match=r"output 0 had 2 dimensions of int32, now 1 of float32; these may not change"
    ):
        pipe.run()
