"""Definitions: calls of them, nodes made outside of them, one node in several pipelines. Values are those of DALI 2.4."""

import contextlib
import pathlib
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdali
from jaxdali import ArgumentError, OperatorError, Pipeline, fn, math, ops, pipeline_def, types
from jaxdali._pipeline import pipeline as pipeline_module
from jaxdali.plugin.jax import DALIGenericIterator, data_iterator

HERE = re.escape(__file__)
ARGUMENTS = {"batch_size": 2, "num_threads": 1}


def source():
    return [np.array([1, 2], np.int32)] * 2


def first(pipe):
    """The first sample of each output."""
    return [np.asarray(x.at(0)).tolist() for x in pipe.run()]


def test_definition_is_called_with_the_pipeline():
    pipes = []
    for shard in range(2):

        @pipeline_def(**ARGUMENTS)
        def define():
            return types.Constant([shard]) + shard  # noqa: B023

        pipes.append(define())
    assert [first(p) for p in pipes] == [[[0]], [[2]]]

    @pipeline_def(**ARGUMENTS)
    def fails():
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fails()


def test_iterator_calls_definition_once_per_shard(tmp_path):
    shard_ids, path = [], tmp_path / "x"
    path.write_bytes(b"1")
    sharding = jax.sharding.NamedSharding(jax.make_mesh((8,), ("batch",)), jax.sharding.PartitionSpec("batch"))

    @data_iterator(output_map=["x"], reader_name="r", sharding=sharding)
    def define(shard_id, num_shards):
        shard_ids.append(shard_id)
        _, label = fn.readers.file(files=[str(path)] * 16, name="r", shard_id=shard_id, num_shards=num_shards)
        return label

    iterators = [define(batch_size=16, num_threads=1) for _ in range(2)]
    assert shard_ids == list(range(8)) * 2
    for it in iterators:
        it.close()


def test_detached_nodes():
    pipe = Pipeline(**ARGUMENTS)
    pipe.set_outputs(fn.external_source(source) + 1)
    assert first(pipe) == [[2, 3]]

    x = fn.external_source(source)
    y = x * 2
    pipe = Pipeline(**ARGUMENTS)
    with pipe:
        pipe.set_outputs(y + 1, x)
    assert first(pipe) == [[3, 5], [1, 2]]

    class Subclass(Pipeline):
        def __init__(self):
            super().__init__(**ARGUMENTS)
            self.x = fn.external_source(source, name="x")
            self.device, self.graph = "cpu", 3  # names that the user chose

        def define_graph(self):
            return self.x + types.Constant([1, 1])

    assert first(Subclass()) == [[2, 3]]


def test_one_node_in_two_pipelines():
    x = fn.external_source(source)
    y = x * 2
    a, b = Pipeline(**ARGUMENTS), Pipeline(**ARGUMENTS)
    a.set_outputs(y)
    b.set_outputs(y + 1, x)
    assert (first(a), first(b), first(a)) == ([[2, 4]], [[3, 5], [1, 2]], [[2, 4]])
    owner = Pipeline(**ARGUMENTS)
    with owner:
        z = fn.external_source(source)
        owner.set_outputs(z)
    foreign = Pipeline(**ARGUMENTS)
    with (
        foreign,
        pytest.raises(
            OperatorError,
            match=rf"{HERE}:\d+\): it is made in the definition of another pipeline.* input 0 of arithmetic",
        ),
    ):
        _ = z + 1
    foreign.set_outputs(z)
    with pytest.raises(OperatorError, match=rf"{HERE}:\d+\): it is made in the definition of another pipeline"):
        foreign.build()
    assert first(owner) == [[1, 2]]


X, Y = np.arange(6, dtype=np.int32).reshape(2, 3), np.arange(10, 16, dtype=np.int32).reshape(2, 3)
IMAGE = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
ARRAY_CALLS = {  # calls without a DataNode, and NumPy's result
    "cat": (lambda: fn.cat(X, Y), np.concatenate([X, Y])),
    "cat of JAX": (lambda: fn.cat(jnp.asarray(X), Y, axis=1), np.concatenate([X, Y], 1)),
    "stack": (lambda: fn.stack(X, types.Constant(Y)), np.stack([X, Y])),
    "cast": (lambda: fn.cast(X, dtype=types.FLOAT), X.astype(np.float32)),
    "cast a number": (lambda: fn.cast(3, dtype=types.FLOAT), np.float32(3)),
    "cast a list": (lambda: fn.cast([1, 2], dtype=types.UINT8), np.uint8([1, 2])),
    "cast a constant": (lambda: fn.cast(types.Constant(3), dtype=types.INT16), np.int16(3)),
    "cast_like": (lambda: fn.cast_like(X, np.float32(3)), X.astype(np.float32)),
    "full": (lambda: fn.full(3, shape=(2, 2)), np.full((2, 2), 3, np.int32)),
    "full_like": (lambda: fn.full_like(X, 7), np.full_like(X, 7)),
    "zeros_like": (lambda: fn.zeros_like(X), np.zeros_like(X)),
    "ones_like": (lambda: fn.ones_like(X, dtype=types.UINT8), np.ones_like(X, np.uint8)),
    "reshape": (lambda: fn.reshape(X, shape=fn.cast(np.float32([3, 2]), dtype=types.INT32)), X.reshape(3, 2)),
    "reductions": (lambda: fn.reductions.max(X), X.max()),
    "slice": (lambda: fn.slice(X, 1, 1, axes=[1]), X[:, 1:2]),
    "pad": (lambda: fn.pad(X, axes=[0], shape=[3]), np.pad(X, ((0, 1), (0, 0)))),
    "one_hot": (lambda: fn.one_hot(np.int32(1), num_classes=3), np.eye(3, dtype=np.float32)[1]),
    "flip": (lambda: fn.flip(IMAGE), IMAGE[:, ::-1]),
    "crop": (lambda: fn.crop(IMAGE, crop=(1, 2), crop_pos_x=0.0, crop_pos_y=0.0), IMAGE[:1, :2]),
    "lookup_table": (lambda: fn.lookup_table(np.uint8([1, 0, 3]), keys=[1, 3], values=[5, 7]), np.float32([5, 0, 7])),
    "coord_transform": (lambda: fn.coord_transform(np.float32([[1, 2]]), T=np.float32([3, 4])), np.float32([[4, 6]])),
    "transforms": (lambda: fn.transforms.scale(scale=[2, 3]), np.float32([[2, 0, 0], [0, 3, 0]])),
    "transforms of one": (
        lambda: fn.transforms.scale(np.float32([[1, 0, 1], [0, 1, 2]]), scale=[2, 3]),
        np.float32([[2, 0, 2], [0, 3, 6]]),
    ),
    "python_function": (lambda: fn.python_function(X, function=lambda x: x + 1), X + 1),
    "sets": (
        lambda: fn.cast([fn.cat(X, Y), fn.ones(shape=2)], dtype=types.UINT8)[0],
        np.concatenate([X, Y]).astype(np.uint8),
    ),
    "arithmetic": (lambda: X + fn.cat(X, Y)[:2] * 2, X + X * 2),
    "math": (lambda: math.sqrt(np.float32([1, 4])), np.float32([1, 2])),
    "math of two": (lambda: math.min([1, 4], 3), np.int32([1, 3])),
    "ops": (lambda: ops.Cat(axis=1)(X, Y), np.concatenate([X, Y], 1)),
}


@pytest.mark.parametrize("case", ARRAY_CALLS)
def test_arrays_outside_of_a_definition(case):
    """As in DALI, the node may be used in several later pipelines of any kind."""
    call, expected = ARRAY_CALLS[case]
    node = call()

    class Old(Pipeline):
        def define_graph(self):
            return node

    direct, entered = Pipeline(**ARGUMENTS), Pipeline(**ARGUMENTS)
    direct.set_outputs(node)
    with entered:
        entered.set_outputs(node)
    decorated = [
        pipeline_def(lambda: node, **options)(**ARGUMENTS)
        for options in ({}, {"debug": True}, {"enable_conditionals": True})
    ]
    for pipe in (direct, entered, *decorated, Old(**ARGUMENTS), pipeline_def(call)(**ARGUMENTS)):
        for _ in range(2):
            (batch,) = pipe.run()
            value = np.asarray(batch[0])
            assert value.dtype == expected.dtype
            np.testing.assert_array_equal(value, expected)


def test_random_operators_of_arrays_outside():
    """They draw the same numbers as inside the definition."""
    mask = np.zeros((9, 9), np.int32)
    mask[2:5, 3:8] = 1
    draws = [
        lambda: fn.random.uniform(np.zeros(3, np.float32)),
        lambda: fn.segmentation.random_object_bbox(mask, foreground_prob=1.0),
    ]
    for draw in draws:
        outside = draw()
        runs = [
            pipeline_def(f)(batch_size=4, num_threads=1, seed=3).run() for f in (lambda outside=outside: outside, draw)
        ]
        for a, b in zip(*runs, strict=True):
            np.testing.assert_array_equal(a.as_array(), b.as_array())
    np.testing.assert_array_equal(runs[0][0].as_array(), [[2, 3]] * 4)
    np.testing.assert_array_equal(runs[0][1].as_array(), [[3, 5]] * 4)


def test_conditions_from_outside():
    condition, x = fn.cast(1, dtype=types.BOOL), fn.cat([1, 2], [3])

    @pipeline_def(enable_conditionals=True)
    def define():
        if condition:
            y = x + 1
        else:
            y = x
        return y

    assert first(define(**ARGUMENTS)) == [[2, 3, 4]]


def test_one_hot_needs_the_number_of_classes():
    with pytest.raises(ArgumentError, match="one_hot: argument num_classes is required"):
        pipeline_def(lambda: fn.one_hot(np.int32(1)))(**ARGUMENTS).build()


def test_random_numbers_depend_on_the_pipeline_alone():
    """Nodes made before or outside of the pipeline make no difference."""

    def draw(pipe, is_inside):
        with pipe if is_inside else contextlib.nullcontext():
            x, y = fn.random.uniform(range=[0, 1]), fn.random.uniform(range=[0, 1])
        pipe.set_outputs(x, y)
        return first(pipe)

    a, b = draw(Pipeline(seed=7, **ARGUMENTS), True), draw(Pipeline(seed=7, **ARGUMENTS), False)
    x = fn.random.uniform(range=[0, 1])
    y = fn.random.uniform(range=[0, 1])
    detached = Pipeline(seed=7, **ARGUMENTS)
    detached.set_outputs(x, y)
    assert a == b == first(detached)
    assert a[0] != a[1]


def test_detached_nodes_have_stable_names():
    def make(checkpoint=None):
        x = fn.external_source(lambda info: np.int32(info.idx_in_epoch), batch=False)
        pipe = Pipeline(enable_checkpointing=True, checkpoint=checkpoint, **ARGUMENTS)
        pipe.set_outputs(x)
        return pipe

    original = make()
    original.run()
    restored = make(original.checkpoint())
    assert [s.tolist() for s in restored.run()[0].as_array()] == [2, 3]


def test_feeding_detached_nodes():
    """They can be fed by the node and by its name."""
    outer = fn.external_source()
    detached = fn.external_source()
    pipe = Pipeline(**ARGUMENTS)
    with pipe:
        inner = fn.external_source()
        pipe.set_outputs(outer, detached, inner)
    for value, node in ((1, outer), (2, detached), (3, inner)):
        pipe.feed_input(node, np.full(2, value, np.int32))
    assert first(pipe) == [1, 2, 3]
    pipe.feed_input(inner.name, np.full(2, 6, np.int32))
    pipe.feed_input(outer, np.full(2, 4, np.int32))
    pipe.feed_input(detached, np.full(2, 5, np.int32))
    assert first(pipe) == [4, 5, 6]
    with pytest.raises(KeyError, match="no external_source named"):
        pipe.feed_input(fn.external_source(), np.zeros(2))


def test_names_must_differ():
    x, y = fn.external_source(source, name="a"), fn.external_source(source, name="a")
    pipe = Pipeline(**ARGUMENTS)
    pipe.set_outputs(x, y)
    with pytest.raises(
        OperatorError,
        match=r"the name 'a' is taken by another operator of this pipeline, created at .*test_definition.py",
    ):
        pipe.build()
    pipe = Pipeline(**ARGUMENTS)
    pipe.set_outputs(x)  # unused nodes do not count
    assert first(pipe) == [[1, 2]]


def test_outputs():
    pipe = Pipeline(**ARGUMENTS)
    pipe.set_outputs(1)
    pipe.set_outputs(np.array([1, 2, 3]), 5, [1, 2], 1.5)
    assert [(x.dtype, x.shape()[0]) for x in pipe.run()] == [
        (types.INT32, (3,)),
        (types.INT32, ()),
        (types.INT32, (2,)),
        (types.FLOAT, ()),
    ]
    with pytest.raises(RuntimeError, match="set_outputs comes too late"):
        pipe.set_outputs(1)
    x = fn.external_source(source)
    for bad in ([x, x],), (x, (x, 1)):
        with pytest.raises(TypeError, match=rf"output {len(bad) - 1} of the pipeline is a \w+ of DataNodes: spread it"):
            Pipeline(**ARGUMENTS).set_outputs(*bad)
    pipe = Pipeline(**ARGUMENTS)
    with pipe:
        x = fn.external_source(source)
        pipe.set_outputs(x)
    with pipe:
        pipe.set_outputs(x + 1)
    assert first(pipe) == [[2, 3]]


def test_current():
    current = [Pipeline.current()]
    pipe, nested = Pipeline(**ARGUMENTS), Pipeline(**ARGUMENTS)
    with pipe:
        current.append(Pipeline.current())
        with nested:
            current.append(Pipeline.current())
        Pipeline.push_current(nested)
        Pipeline.pop_current()
        current.append(Pipeline.current())

    @pipeline_def(**ARGUMENTS)
    def define():
        current.append(Pipeline.current())
        return 1

    defined = define()
    current.append(Pipeline.current())
    assert current == [None, pipe, nested, pipe, defined, None]
    with pytest.raises(RuntimeError, match="no current pipeline"):
        Pipeline.pop_current()


def test_sinks():
    calls = []

    def counted():
        calls.append(1)
        return source()

    pipe = Pipeline(**ARGUMENTS)
    sink = fn.external_source(counted)
    pipe.set_outputs(fn.external_source(source))
    pipe.add_sink(sink * 2)
    assert first(pipe) == [[1, 2]]
    assert calls
    with pytest.raises(TypeError, match="add_sink takes a DataNode, got int"):
        Pipeline().add_sink(3)
    calls.clear()
    pipe = Pipeline(**ARGUMENTS)
    pipe.set_outputs(fn.external_source(source))
    fn.external_source(counted)  # of no pipeline
    assert first(pipe) == [[1, 2]]
    assert not calls


def test_iterator_over_detached_nodes():
    pipe = Pipeline(**ARGUMENTS)
    pipe.set_outputs(fn.external_source(source) + 1)
    with DALIGenericIterator(pipe, ["x"]) as it:
        assert next(it)["x"].tolist() == [[2, 3]] * 2


def numbers(**arguments):
    @pipeline_def(**ARGUMENTS, **arguments)
    def define():
        x = fn.external_source(lambda: [np.zeros((2, 3), np.uint8)] * 2, layout="XY")
        return x, x, x

    return define()


def test_arguments_of_pipelines():
    pipe = numbers(
        py_num_workers=3,
        py_start_method="spawn",
        py_callback_pickler=pickle,
        enable_memory_stats=True,
        bytes_per_sample=9,
    )
    assert (pipe.py_num_workers, pipe.py_start_method, pipe.enable_memory_stats, pipe.exec_dynamic) == (
        3,
        "spawn",
        True,
        True,
    )
    pipe = numbers(
        stream_policy=jaxdali.StreamPolicy.SINGLE, concurrency=jaxdali.OperatorConcurrency.FULL, exec_dynamic=False
    )
    assert (pipe.stream_policy, pipe.concurrency, pipe.exec_dynamic) == (
        jaxdali.StreamPolicy.SINGLE,
        jaxdali.OperatorConcurrency.FULL,
        False,
    )
    pipe.start_py_workers()
    assert pipe.executor_statistics() == {}
    nothing = numbers(py_num_workers=None, py_start_method=None, bytes_per_sample=None, exec_pipelined=None, seed=None)
    assert (nothing.py_num_workers, nothing.py_start_method, nothing.exec_pipelined) == (1, "fork", False)
    placed = Pipeline(2, 3, None, 4, False, 5, False, 0, False, None, None, True, True, None, 6, "spawn")
    assert (placed.exec_pipelined, placed.prefetch_queue_depth, placed.exec_async, placed.enable_memory_stats) == (
        False,
        5,
        False,
        True,
    )
    assert (placed.py_num_workers, placed.py_start_method) == (6, "spawn")
    with pytest.warns(DeprecationWarning, match="use exec_dynamic"):
        assert numbers(experimental_exec_dynamic=True).exec_dynamic


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"py_num_workers": -1}, ValueError, "py_num_workers must be a whole number at least 0, got -1"),
        ({"py_num_workers": "a"}, TypeError, "py_num_workers must be a whole number"),
        ({"py_start_method": "thread"}, ValueError, "must be one of 'fork', 'spawn', got 'thread'"),
        ({"py_callback_pickler": pickle}, ValueError, "py_callback_pickler is for py_start_method='spawn'"),
        ({"py_callback_pickler": 3, "py_start_method": "spawn"}, TypeError, "must have dumps and loads"),
        ({"stream_policy": 1}, TypeError, "stream_policy must be a StreamPolicy, got 1"),
        ({"concurrency": "full"}, TypeError, "concurrency must be a OperatorConcurrency, got 'full'"),
        ({"output_layout": 3}, TypeError, "output_layout must be a string"),
        ({"output_layout": ["HW", 4]}, TypeError, "output_layout must be a string"),
        ({"output_dtype": types.NO_TYPE}, ValueError, "can't be NO_TYPE"),
        ({"bytes_per_sample": -3}, ValueError, "bytes_per_sample must be a whole number at least 0, got -3"),
        ({"enable_conditionals": "yes"}, TypeError, "enable_conditionals must be"),
        (
            {"exec_dynamic": True, "prefetch_queue_depth": {"cpu_size": 2, "gpu_size": 2}},
            RuntimeError,
            "can't be given together",
        ),
        ({"output_dtype": [types.UINT8]}, RuntimeError, "output_dtype has 1 entries, the pipeline 3 outputs"),
        ({"output_layout": ["XY", None]}, RuntimeError, "output_layout has 2 entries, the pipeline 3 outputs"),
        (
            {"output_layout": [None, "HW", None]},
            RuntimeError,
            r"output_layout: output 1 \(made at .*\) has XY, expected HW",
        ),
    ],
)
def test_refused_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        numbers(**arguments).run()
    with pytest.raises(error, match=message):
        DALIGenericIterator(numbers(**arguments), ["a", "b", "c"])


def test_output_requirements():
    pipe = numbers(output_dtype=[types.UINT8, None, None], output_ndim=2, output_layout=["XY", None, ""])
    assert pipe.output_dtype() == [types.UINT8, None, None]
    assert pipe.output_ndim() == [2, 2, 2]
    assert pipe.output_layout() == ["XY", None, None]
    assert pipe.run()[0].layout() == "XY"
    fed = Pipeline(output_layout="HW", **ARGUMENTS)
    with fed:
        x = fn.external_source()
        fed.set_outputs(x)
    fed.feed_input(x, np.zeros((2, 2, 2)), layout="XY")
    with pytest.raises(RuntimeError, match="output_layout: output 0"):
        fed.run()


@pytest.mark.parametrize(
    ("name", "expected", "actual"),
    [("output_dtype", types.UINT8, "object"), ("output_ndim", 1, "0"), ("output_layout", "X", "none")],
)
def test_requirements_on_metadata(name, expected, actual):
    """Requirements on all outputs do not concern them."""

    def run(requirement):
        pipe = Pipeline(batch_size=1, num_threads=1, **{name: requirement})
        with pipe:
            data, _, source = fn.readers.file(files=[__file__], metadata=["filename"])
            pipe.set_outputs(fn.reshape(data, layout="X"), source)
        return pipe.run()[1]

    assert run(expected) == run([expected, None]) == [__file__]
    with pytest.raises(RuntimeError, match=rf"{name}: output 1 \(made at .*\) has {actual}, expected"):
        run([expected, expected])


def test_constants_with_names_and_scalar_constants():
    assert types.Constant(3, name="c").name == types.Constant([1, 2], name="c").name == "c"
    for value, dtype in (
        (1, types.INT32),
        (1.5, types.FLOAT),
        (True, types.BOOL),
        (np.int64(3), types.INT64),
        (np.array([3]), types.INT64),
    ):
        c = types.ScalarConstant(value)
        assert (c.value, c.dtype) == (value, dtype)
    for bad in ([1], "a", None):
        with pytest.raises(TypeError, match="expected a bool, an int or a float"):
            types.ScalarConstant(bad)


def test_shapes_of_nodes():
    pipe = Pipeline(**ARGUMENTS)
    x = fn.external_source(source)
    pipe.set_outputs(x.shape(), x.shape(dtype=types.FLOAT), x.shape(device="gpu"))
    assert x.shape(device="gpu").device == "gpu"
    outputs = pipe.run()
    assert [o.dtype for o in outputs] == [types.INT64, types.FLOAT, types.INT64]
    assert [np.asarray(o.as_cpu().at(0)).tolist() for o in outputs] == [[2], [2], [2]]
    with pytest.raises(ValueError, match="device must be 'cpu' or 'gpu', got 'x'"):
        x.shape(device="x")


def test_properties(tmp_path):
    for i in range(2):
        (tmp_path / f"{i}.bin").write_bytes(bytes([i]))
    pipe = Pipeline(**ARGUMENTS)
    data, label = fn.readers.file(files=[str(tmp_path / f"{i}.bin") for i in range(2)])
    x = fn.external_source(source, layout="X")
    pipe.set_outputs(
        (data + 1).source_info(),
        label.property("source_info", device="gpu"),
        x.property("layout"),
        data.property("layout"),
    )
    outputs = pipe.run()
    assert [bytes(np.asarray(o.as_cpu().at(1))) for o in outputs[:3]] == [str(tmp_path / "1.bin").encode(), b"", b"X"]
    assert outputs[3].shape() == [(0,), (0,)]
    with pytest.raises(ValueError, match="key"):
        data.property("text")


def test_subclasses_may_use_any_attribute_name():
    """They may use every private name of the library's classes, and public names that DALI's Pipeline does not have."""
    sources = pathlib.Path(pipeline_module.__file__).parent.glob("*.py")
    private_names = {name for p in sources for name in re.findall(r"\bself\.(_(?!_)\w+)", p.read_text())}
    names = sorted(
        private_names | {"_device", "_graph", "_session", "_settings", "_seed", "_claim", "fuse", "enable_statistics"}
    )
    assert "_setups" in names

    class Subclass(Pipeline):
        def __init__(self):
            super().__init__(batch_size=2, num_threads=1, device_id=None, seed=5, enable_statistics=True)
            for name in names:
                setattr(self, name, name)

        def define_graph(self):
            return fn.external_source(lambda: np.arange(2, dtype=np.int32), name="x") + 1

    pipe = Subclass()
    assert "seed=5" in repr(pipe)
    pipe.build()
    assert pipe.run()[0].as_array().tolist() == [1, 2]
    assert pipe.statistics()
    assert [getattr(pipe, name) for name in names] == names
    assert np.asarray(next(DALIGenericIterator(Subclass(), ["y"]))["y"]).tolist() == [1, 2]
