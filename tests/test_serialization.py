"""Pipelines as text, and back."""

import json

import numpy as np
import pytest

from jaxdali import Pipeline, fn, pipeline_def, types
from jaxdali.plugin.jax.fn import jax_function


@pipeline_def(batch_size=3, num_threads=2, seed=5)
def drawn(folder):
    files, labels = fn.readers.file(file_root=folder, random_shuffle=True, name="Reader", initial_fill=4)
    fn.random.uniform(range=(0.0, 1.0))  # numbered among the random operators, though nothing needs it
    size = fn.random.uniform(range=(4.0, 9.0), shape=[2])
    odd = fn.cast(labels % 2, dtype=types.BOOL)
    vector = types.Constant(np.float32([[1, np.inf]]), layout="XY")
    picked = fn.random.choice([1, 2, 3], p=[0.5, 0.25, 0.25], device="cpu")
    return files[:4], size, odd, vector, picked, labels.gpu() + 1.5


@pytest.fixture
def folder(tmp_path):
    for i in range(7):
        path = tmp_path / str(i % 2) / f"{i}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(range(i, i + 6)))
    return str(tmp_path)


def batches(pipe, n=4):
    with_info = [[(np.asarray(x).tolist(), x.source_info(), x.layout()) for o in pipe.run() for x in o.as_cpu()] for _ in range(n)]
    pipe.close()
    return with_info


def test_same_data_and_random_numbers(folder, tmp_path):
    text = drawn(folder).serialize(filename=tmp_path / "pipe.json")
    expected = batches(drawn(folder))
    assert batches(Pipeline.deserialize(text)) == expected
    assert batches(Pipeline.deserialize(text.decode())) == expected
    assert batches(Pipeline.deserialize(filename=str(tmp_path / "pipe.json"))) == expected
    assert Pipeline.deserialize(text).serialize() == text
    assert batches(Pipeline.deserialize(text, seed=6)) != expected

    used = drawn(folder)
    used.run()
    assert used.serialize() == text  # the state is not in it
    used.close()


def test_a_drawn_seed_is_left_out():
    """As by DALI 2.4: the text is the same for all pipelines of a definition, and each draws its own numbers."""

    @pipeline_def(batch_size=2)
    def draw():
        return fn.random.normal()

    pipe = draw()
    assert draw().serialize() == pipe.serialize()
    copy = Pipeline.deserialize(pipe.serialize())
    assert copy.serialize() == pipe.serialize()
    assert batches(copy) != batches(pipe)


def test_deserialize_and_build(folder):
    text = drawn(folder).serialize()
    empty = Pipeline()
    empty.deserialize_and_build(text)
    assert (empty.batch_size, empty.num_threads, empty.seed) == (3, 2, 5)
    assert batches(empty) == batches(drawn(folder))
    own = Pipeline(batch_size=2, seed=7, prefetch_queue_depth={"cpu_size": 1, "gpu_size": 3})
    own.deserialize_and_build(text)
    assert (own.batch_size, own.num_threads, own.seed) == (2, 2, 7)
    assert own.prefetch_queue_depth == {"cpu_size": 1, "gpu_size": 3}
    assert batches(own) == batches(drawn(folder, batch_size=2, seed=7))
    with pytest.raises(RuntimeError, match="defined already"):
        own.deserialize_and_build(text)


def test_every_argument_is_in_the_text():
    arguments = {
        "batch_size": 4,
        "num_threads": 3,
        "device_id": 2,
        "seed": 9,
        "exec_pipelined": False,
        "prefetch_queue_depth": {"cpu_size": 2, "gpu_size": 1},
        "exec_async": True,
        "set_affinity": True,
        "max_streams": 5,
        "default_cuda_stream_priority": -1,
    }
    pipe = pipeline_def(lambda: 1)(**arguments, output_dtype=[np.int32], output_ndim=0)
    copy = Pipeline.deserialize(pipe.serialize())
    assert {k: getattr(copy, k) for k in arguments} == arguments
    with pytest.raises(RuntimeError, match="output_ndim"):
        Pipeline.deserialize(pipe.serialize(), output_ndim=1).build()
    with pytest.raises(RuntimeError, match="output_dtype"):
        Pipeline.deserialize(pipe.serialize(), output_dtype=types.FLOAT).build()


def test_python_functions_stay_out():
    with pytest.raises(ValueError, match=r"external_source \(created at .*test_serialization.py:\d+\).*function"):
        pipeline_def(lambda: fn.external_source(source=lambda: np.zeros((1, 2))))(batch_size=1).serialize()
    with pytest.raises(ValueError, match=r"jax_function .*Python function"):
        pipeline_def(lambda: jax_function(lambda x: x)(types.Constant([1, 2])))(batch_size=1).serialize()
    fed = Pipeline.deserialize(pipeline_def(lambda: fn.external_source(name="x"))(batch_size=1).serialize())
    fed.feed_input("x", [np.int32(3)])
    assert fed.run()[0].as_array().tolist() == [3]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("operator", "os.system"),
        ("operator", "DALIDataType"),
        ("operator", "Arguments"),
        ("attributes", {}),
        ("attributes", {"dtype": {"dtype": "object"}}),
        ("attributes", {"dtype": {"dtype": "V1000000000"}}),
        ("attributes", {"dtype": {"call": "eval"}}),
        ("attributes", {"dtype": {"enum": "Cast.__class__"}}),
        ("inputs", [["x", 0]]),
        ("inputs", [["__constant_0", 1]]),
        ("inputs", 3),
        ("name", "__constant_0"),
        ("device", "tpu"),
        ("where", None),
    ],
)
def test_damaged_text(name, value):
    tree = json.loads(pipeline_def(lambda: fn.cast(types.Constant([1, 2]), dtype=types.FLOAT))(batch_size=1).serialize())
    tree["operators"][1][name] = value
    with pytest.raises(RuntimeError, match="damaged"):
        Pipeline.deserialize(json.dumps(tree))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"junk",
        b"\xff\xfe\x00",
        b"[]",
        b"{}",
        b'{"format": "jaxdali pipeline"}',
        b'{"format": "jaxdali pipeline", "version": 2}',
        b"[" * 10000,
    ],
)
def test_junk(text):
    for load in (Pipeline.deserialize, Pipeline().deserialize_and_build):
        with pytest.raises(RuntimeError, match="serialized pipeline"):
            load(text)


def test_wrong_calls(tmp_path):
    with pytest.raises(ValueError, match="either"):
        Pipeline.deserialize()
    with pytest.raises(ValueError, match="either"):
        Pipeline.deserialize(b"x", filename="y")
    with pytest.raises(FileNotFoundError):
        Pipeline.deserialize(filename=tmp_path / "none")
    with pytest.raises(TypeError, match="batchsize"):
        Pipeline.deserialize(pipeline_def(lambda: 1)(batch_size=1).serialize(), batchsize=2)


def test_dot_file(tmp_path):
    @pipeline_def(batch_size=1)
    def pipe():
        return fn.resize(fn.decoders.image(fn.external_source(name="in"), device="mixed"), size=8)

    def saved(*args, **options):
        pipe().save_graph_to_dot_file(tmp_path / "g.dot", *args, **options)
        return (tmp_path / "g.dot").read_text()

    plain = saved()
    assert plain.startswith("digraph")
    assert '"in" -> "__decoders.image_1";' in plain
    assert '-> "output 0";' in plain
    assert "box" not in plain
    for place, (name, expected) in enumerate(
        {"show_tensors": '"in[0]"[shape=box]', "show_ids": '"in (0)"', "use_colors": 'color="#76b900"'}.items()
    ):
        text = saved(**{name: True})
        assert expected in text
        assert expected not in plain
        assert saved(*[i == place for i in range(3)]) == text
