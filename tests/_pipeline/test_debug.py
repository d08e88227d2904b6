"""``debug=True``: values while the definition runs, and the outputs of the compiled pipeline."""

import collections
import gc

import jax.numpy as jnp
import numpy as np
import places
import pytest

from jaxdali import Pipeline, fn, pipeline_def, types
from jaxdali.auto_aug import rand_augment
from jaxdali.backend import TensorListCPU
from jaxdali.data_node import DataNode
from jaxdali.plugin.jax import DALIGenericIterator
from jaxdali.plugin.jax.fn import jax_function

IMAGES = str(places.ROOT / "examples" / "images")


def read(**order):
    return fn.readers.file(file_root=IMAGES, name="reader", **order)


def batches(pipeline, count):
    """Runs batches. Returns samples, source_info and form of all outputs, or the error of each batch. The next epoch
    begins when the data end.
    """
    results = []
    for _ in range(count):
        try:
            outputs = pipeline.run()
        except StopIteration:
            results.append("the end")
            pipeline.reset()
        except RuntimeError as e:
            results.append(f"{type(e).__name__}: {e}")
        else:
            results.append(
                [
                    (type(x), x.dtype, x.layout(), [(np.asarray(s.as_cpu()), s.source_info()) for s in x])
                    for x in outputs
                ]
            )
    return results


def check(definition, count=3, **arguments):
    """Compares a pipeline with the same one with debug=True. Returns the errors of its batches."""
    arguments = {"batch_size": 4, "num_threads": 2, "device_id": None, "seed": 7, **arguments}
    compiled, debugged = (
        batches(pipeline_def(definition, debug=debug, **arguments)(), count) for debug in (False, True)
    )
    for expected, actual in zip(compiled, debugged, strict=True):
        if isinstance(expected, str):
            assert actual == expected
            continue
        assert not isinstance(actual, str), actual
        for (list_type, dtype, layout, samples), (
            debugged_type,
            debugged_dtype,
            debugged_layout,
            debugged_samples,
        ) in zip(expected, actual, strict=True):
            assert (list_type, dtype, layout) == (debugged_type, debugged_dtype, debugged_layout)
            for (sample, info), (debugged_sample, debugged_info) in zip(samples, debugged_samples, strict=True):
                np.testing.assert_array_equal(sample, debugged_sample)
                assert info == debugged_info
    return [x for x in compiled if isinstance(x, str)]


def tutorial():
    angle = fn.random.uniform(range=(-10.0, 10.0))  # before the reader, to whose samples the numbers belong
    jpegs, labels = read(random_shuffle=True, num_shards=3, shard_id=1)
    images = fn.rotate(fn.decoders.image(jpegs, device="mixed"), angle=angle, fill_value=0)
    return fn.resize(images, size=(64, 64)), labels.gpu()


def training():
    jpegs, labels = read(random_shuffle=True)
    images = fn.resize(fn.decoders.image_random_crop(jpegs), size=(48, 48))
    mirror = fn.random.coin_flip()
    return fn.crop_mirror_normalize(images, mirror=mirror, mean=[120.0] * 3, std=[50.0] * 3, dtype=types.FLOAT), labels


def conditions():
    jpegs, labels = read(random_shuffle=True)
    images = fn.resize(fn.decoders.image(jpegs), size=(32, 32))
    if fn.random.coin_flip() == 1:
        images = fn.rotate(images, angle=fn.random.uniform(range=(-30.0, 30.0)), keep_size=True)
    else:
        images = fn.flip(images)
    return rand_augment.rand_augment(images, n=1, m=10), labels


def different_sizes():
    jpegs, labels = read()
    images = fn.decoders.image(jpegs)
    return (
        images,
        images.shape(),
        fn.peek_image_shape(jpegs),
        images[:10, :9],
        fn.reductions.mean(images),
        fn.stack(labels, labels),
        5,
    )


def functions():
    jpegs, labels = read()
    rows = fn.python_function(fn.decoders.image(jpegs), function=lambda x: x[::2])
    return rows, jax_function(lambda x: jnp.sin(x.astype(jnp.float32)))(labels)


def two_readers():
    first = fn.random.normal()
    _, a = fn.readers.file(file_root=IMAGES, random_shuffle=True, pad_last_batch=True)
    _, b = fn.readers.file(file_root=IMAGES, shuffle_after_epoch=True)
    return a, b, first, fn.random.uniform(shape=(2,))


def no_source():
    return fn.random.uniform(), fn.random.coin_flip(), fn.constant(idata=[1, 2, 3]), np.ones(3)


def two_outputs_that_end():
    data = [([np.full((i + 1, 2), i, np.float32)] * (4 - i), [np.float32(i)] * (4 - i)) for i in range(3)]
    a, b = fn.external_source(source=data, num_outputs=2, cycle="raise")
    return a, b + fn.random.uniform()


@pytest.mark.parametrize(
    "definition",
    [tutorial, training, conditions, different_sizes, functions, two_readers, no_source, two_outputs_that_end],
)
def test_outputs_equal_the_compiled_pipelines(definition):
    ends = check(definition, count=9, enable_conditionals=definition is conditions)
    assert ends == (["the end"] * 2 if definition is two_outputs_that_end else [])


def test_errors_equal_the_compiled_pipelines():
    def too_large():
        return fn.crop(fn.decoders.image(read()[0]), crop=(10000, 10000))

    def no_image():
        return fn.rotate(fn.random.uniform(), angle=3.0)

    assert "astronaut_0.jpg: the window" in check(too_large, 1)[0]
    assert "rotate (created at" in check(no_image, 1)[0]


@pytest.mark.parametrize("has_header", [False, True])
def test_replaced_samples(has_header):
    """A file without a header fails on the host, and one that ends after it in the program."""
    good = (places.ROOT / "examples" / "images" / "astronaut" / "astronaut_0.jpg").read_bytes()
    bad = good[: good.index(b"\xff\xda")] if has_header else b"rubbish"

    @pipeline_def(batch_size=2, num_threads=1, device_id=None, debug=True)
    def pipeline():
        data = fn.external_source(source=lambda: [np.frombuffer(x, np.uint8) for x in (bad, good)])
        return fn.resize(fn.decoders.image(data, on_error="replace"), size=(8, 8))

    p = pipeline()
    (images,) = p.run()
    np.testing.assert_array_equal(np.asarray(images[0]), np.asarray(images[1]))
    assert [x.count for x in p.bad_samples()] == [1]


def test_values_while_the_definition_runs():
    values = []

    @pipeline_def(batch_size=3, num_threads=1, device_id=None, seed=3, debug=True)
    def pipeline():
        _, labels = read()
        shifted = labels + 10
        assert isinstance(shifted, DataNode)
        assert isinstance(shifted.get(), TensorListCPU)
        values.append(
            (labels.get().as_array().ravel().tolist(), shifted.get().as_array().ravel().tolist(), str(shifted))
        )
        if shifted.get().as_array().sum() > 31:  # plain Python
            return fn.cast(shifted, dtype=types.FLOAT)
        return shifted

    p = pipeline()
    outputs = [p.run()[0] for _ in range(3)]
    assert [labels for labels, _, _ in values] == [[0, 0, 0], [1, 1, 1], [2, 2, 2]]
    assert (
        [x.as_array().ravel().tolist() for x in outputs]
        == [shifted for _, shifted, _ in values]
        == [[10, 10, 10], [11, 11, 11], [12, 12, 12]]
    )
    assert [x.dtype for x in outputs] == [types.INT32, types.FLOAT, types.FLOAT]
    assert "operator='arithmetic" in values[0][2]
    assert "[10]\n[10]\n[10]" in values[0][2]


def test_values_before_the_reader_is_known():
    """Shard 1 of 3 begins in the middle of the data, unlike the batch that is assumed, so the definition is called
    again.
    """
    calls = []

    def definition():
        number = fn.random.uniform()
        if number.node.evaluator is not None:
            calls.append(number.get().as_array().ravel().tolist())
        return read(num_shards=3, shard_id=1)[1], number

    assert check(definition) == []
    assert len(calls) == 4
    assert calls[0] != calls[1]


def test_metadata():
    shown = []

    def definition():
        _, labels, names = read(metadata="filename", random_shuffle=True)
        if names.node.evaluator is not None:
            shown.append(str(names))
        return labels, fn.python_function(names, function=lambda name: np.array(len(name)))

    assert check(definition) == []
    assert "astronaut_" in "".join(shown)


def test_user_functions_are_called_once_per_sample():
    calls = collections.Counter()

    @pipeline_def(batch_size=4, num_threads=1, device_id=None, debug=True)
    def pipeline():
        _, labels = read()

        def count(x):
            calls["python"] += 1
            return x + calls["python"]

        fn.python_function(labels, function=lambda x: calls.update(["printed"]), num_outputs=0)
        return fn.python_function(labels, function=count)

    p = pipeline()
    (first,), (second,) = p.run(), p.run()
    assert calls == {"python": 8, "printed": 8}
    assert [x.as_array().ravel().tolist() for x in (first, second)] == [[1, 2, 3, 5], [6, 7, 9, 10]]


def test_fed_data():
    @pipeline_def(batch_size=4, num_threads=1, device_id=None, debug=True)
    def pipeline():
        return fn.external_source(name="x") * 2

    p = pipeline()
    p.feed_input("x", [np.float32(3)] * 2)  # before the first batch, from which the operators are known
    assert p.run()[0].as_array().tolist() == [6, 6]
    p.feed_input("x", [np.float32(4)] * 3)
    assert p.run()[0].as_array().tolist() == [8, 8, 8]
    with pytest.raises(KeyError, match="no external_source named 'y'"):
        p.feed_input("y", [np.float32(4)])


def test_readers_stay_as_they_are():
    shards = [2, 3]

    @pipeline_def(batch_size=4, num_threads=1, device_id=None, debug=True)
    def pipeline():
        return read(num_shards=shards.pop(0))[1]

    p = pipeline()
    with pytest.raises(RuntimeError, match="known after the first batch"):
        p.epoch_size("reader")
    p.run()
    assert p.epoch_size("reader") == 21
    with pytest.raises(RuntimeError, match=r"readers.file \(created at .*its arguments differ"):
        p.run()


def test_a_definition_in_a_class():
    class Mine(Pipeline):
        def define_graph(self):
            return fn.random.uniform()

    expected, actual = (
        Mine(batch_size=2, device_id=None, seed=5, debug=debug).run()[0].as_array() for debug in (False, True)
    )
    np.testing.assert_array_equal(expected, actual)


def test_refusals_for_lack_of_a_graph():
    arguments = {"batch_size": 2, "num_threads": 1, "device_id": None, "debug": True}
    p = pipeline_def(no_source, **arguments)()
    with pytest.raises(RuntimeError, match="no graph, as its definition runs anew"):
        p.serialize()
    with pytest.raises(RuntimeError, match="no checkpoints"):
        pipeline_def(no_source, enable_checkpointing=True, **arguments)().checkpoint()
    with pytest.raises(RuntimeError, match="no graph"):
        DALIGenericIterator(p, ["a", "b", "c", "d"])
    with (
        pytest.raises(RuntimeError, match="needs a definition that can be called for each batch"),
        Pipeline(**arguments),
    ):
        pass


def test_without_debug_there_are_no_values():
    with pytest.raises(RuntimeError, match="debug=True"):
        fn.random.uniform().get()


def test_values_last_until_the_next_batch():
    """Compiled programs are cached and hold nodes. These must not hold the values of their batch."""
    nodes = []

    @pipeline_def(batch_size=3, num_threads=1, device_id=None, debug=True)
    def pipeline():
        nodes.append(read()[1] + 1)
        return nodes[-1]

    p = pipeline()
    evaluators = []
    for expected in (1, 2):
        p.run()
        assert nodes[-1].get().as_array().ravel().tolist() == [expected] * 3
        evaluators.append(nodes[-1].node.evaluator)
    gc.collect()
    assert [x() is None for x in evaluators] == [True, False]
    with pytest.raises(RuntimeError, match="its batch is over"):
        nodes[0].get()
    assert "created at" in repr(nodes[0])
