"""Pipelines as text, and back."""

import json
import os
import pathlib

import containers as c
import numpy as np
import places
import pytest

from jaxdali import Pipeline, Storage, fn, newaxis, pipeline_def, tfrecord, types
from jaxdali._pipeline.checks import CHECKSUM, digest
from jaxdali.plugin.jax.fn import jax_function


@pipeline_def(batch_size=3, num_threads=2, seed=5)
def drawn(folder):
    files, labels = fn.readers.file(file_root=folder, random_shuffle=True, name="Reader", initial_fill=4)
    fn.random.uniform(range=(0.0, 1.0))  # it has a number among the random operators, although nothing needs it
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
    results = [
        [(np.asarray(x).tolist(), x.source_info(), x.layout()) for o in pipe.run() for x in o.as_cpu()]
        for _ in range(n)
    ]
    pipe.close()
    return results


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
    overriding = Pipeline(batch_size=2, seed=7, prefetch_queue_depth={"cpu_size": 1, "gpu_size": 3})
    overriding.deserialize_and_build(text)
    assert (overriding.batch_size, overriding.num_threads, overriding.seed) == (2, 2, 7)
    assert overriding.prefetch_queue_depth == {"cpu_size": 1, "gpu_size": 3}
    assert (overriding.cpu_queue_size, overriding.gpu_queue_size) == (1, 3)
    assert batches(overriding) == batches(drawn(folder, batch_size=2, seed=7))
    with pytest.raises(RuntimeError, match="defined already"):
        overriding.deserialize_and_build(text)


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
        ("function", "os.system"),
        ("function", "DALIDataType"),
        ("function", "jax_function"),
        ("function", ["cast"]),
        ("arguments", {}),
        ("arguments", {"dtype": {"dtype": "object"}}),
        ("arguments", {"dtype": {"dtype": "V1000000000"}}),
        ("arguments", {"dtype": {"call": "eval"}}),
        ("arguments", {"dtype": {"enum": "DALIDataType.__class__"}}),
        ("arguments", {"dtype": {"enum": "DALIDataType.FLOAT"}, "types": 1}),
        ("arguments", {"dtype": {"enum": "DALIDataType.FLOAT"}, "device": "npu"}),
        ("inputs", [{"node": [1, 0]}]),
        ("inputs", [{"node": [0, 1]}]),
        ("inputs", [{"node": [-1, 0]}]),
        ("inputs", 3),
        ("names", ["__constant_0"]),
        ("names", [3]),
        ("random", [1]),
        ("line", None),
    ],
)
def test_damaged_text(name, value):
    tree = json.loads(
        pipeline_def(lambda: fn.cast(types.Constant([1, 2]), dtype=types.FLOAT))(batch_size=1).serialize()
    )
    assert Pipeline.deserialize(json.dumps(tree)).run()[0].as_array().tolist() == [[1, 2]]
    tree["calls"][1][name] = value
    with pytest.raises(RuntimeError, match="damaged"):
        Pipeline.deserialize(json.dumps(tree))


def test_a_file_of_this_version_stays_readable(folder, monkeypatch):
    """A change of the format requires a higher VERSION."""
    stored = places.DATA / "pipeline_3.json"
    monkeypatch.chdir(folder)
    assert batches(Pipeline.deserialize(filename=stored)) == batches(drawn("."))
    stored_tree, new_tree = (json.loads(text) for text in (stored.read_bytes(), drawn(".").serialize()))
    for call in (*stored_tree["calls"], *new_tree["calls"]):
        del call["line"], call["names"]
    assert (stored_tree["calls"], stored_tree["outputs"]) == (new_tree["calls"], new_tree["outputs"])


@pytest.mark.parametrize("version", [1, 2, 4, None])
def test_a_file_of_another_version_is_refused(version):
    with pytest.raises(RuntimeError, match=rf"has version {version}; this jaxdali reads version 3: serialize it again"):
        Pipeline.deserialize(json.dumps({"format": "jaxdali pipeline", "version": version, "calls": []}))


def test_features_of_earlier_texts(tmp_path):
    """A feature was its shape, type, default value and partial shape."""
    examples = [c.example({"label": [4, 5], "sizes": [1, 2, 3, 4]}), c.example({"name": [b"x"]})]
    c.write_tfrecord(tmp_path / "x", examples, tmp_path / "x.idx")
    earlier = {
        "label": [{"tuple": [2]}, "int64", -1, {"tuple": []}],
        "sizes": [None, "int64", 0, {"tuple": [2]}],
        "name": [{"tuple": []}, "string", None, {"tuple": []}],
    }

    @pipeline_def(batch_size=2, num_threads=1, seed=1)
    def definition():
        features = {
            "label": tfrecord.FixedLenFeature([2], tfrecord.int64, -1),
            "sizes": tfrecord.VarLenFeature([2], tfrecord.int64, 0),
            "name": tfrecord.FixedLenFeature((), tfrecord.string, ""),
        }
        values = fn.readers.tfrecord(path=str(tmp_path / "x"), index_path=str(tmp_path / "x.idx"), features=features)
        return tuple(values[name] for name in earlier)

    tree = json.loads(definition().serialize())
    (call,) = (call for call in tree["calls"] if call["function"] == "readers.tfrecord")
    call["arguments"]["features"] = {"dict": [[name, {"feature": x}] for name, x in earlier.items()]}
    tree[CHECKSUM] = digest(tree)
    assert batches(Pipeline.deserialize(json.dumps(tree)), 1) == batches(definition(), 1)


def test_text_holds_arguments_as_written():
    @pipeline_def(batch_size=1, seed=1)
    def definition():
        x = fn.external_source(name="in")
        angle = fn.random.uniform(range=[-10, 10])
        images = fn.resize(
            fn.decoders.image(x, device="mixed", replace_shape=None),
            size=(4, np.float32(5)),
            interp_type=types.INTERP_CUBIC,
        )
        return fn.rotate(images, angle=angle * types.Constant(2).float32()), x.shape()

    tree = json.loads(definition().serialize())
    calls = {call["function"]: (call["inputs"], call["arguments"]) for call in tree["calls"]}
    assert calls == {
        "external_source": ([], {"name": "in"}),
        "random.uniform": ([], {"range": [-10, 10]}),
        "decoders.image": ([{"node": [0, 0]}], {"device": "mixed"}),
        "resize": (
            [{"node": [2, 0]}],
            {
                "size": {"tuple": [4, {"array": ["float32", [], "AACgQA=="]}]},
                "interp_type": {"enum": "DALIInterpType.INTERP_CUBIC"},
            },
        ),
        "arithmetic": (["mul", {"node": [1, 0]}, {"constant": [2, "FLOAT"]}], {}),
        "rotate": ([{"node": [3, 0]}], {"angle": {"node": [4, 0]}}),
        "shapes": ([{"node": [0, 0]}], {"dtype": {"enum": "DALIDataType.INT64"}}),
    }
    assert tree["outputs"] == [[5, 0], [6, 0]]


def test_lists_of_inputs_subscripts_and_unused_nodes():
    @pipeline_def(batch_size=2, seed=3)
    def definition():
        x, i = types.Constant(np.arange(24).reshape(4, 3, 2)), fn.random.choice(3)
        dropped = fn.cast(x, dtype=types.FLOAT)
        fn.random.normal()
        _, b = fn.rotate(
            [fn.random.uniform(shape=[2, 2, 1]), x.gpu().gpu()], angle=fn.random.uniform(range=(0.0, 90.0)), size=[4, 4]
        )
        first, _ = fn.cast([x, dropped], dtype=types.INT16)
        return x[1, :, ::-1], x[i, newaxis("Z"), None:2], b, first, -x / 7, fn.random.coin_flip(probability=0.25)

    copy = Pipeline.deserialize(definition().serialize())
    assert copy.serialize() == definition().serialize()
    assert batches(copy) == batches(definition())


def test_text_before_and_after_the_first_batch():
    pipe = pipeline_def(lambda: fn.resize(types.Constant(np.zeros((4, 5, 3), np.uint8), layout="HWC"), size=3))(
        batch_size=1
    )
    text = pipe.serialize()
    pipe.run()
    assert pipe.serialize() == text
    pipe.close()


def test_errors_name_the_line_of_the_definition():
    def definition():
        return fn.resize(fn.external_source(name="x"), size=3)

    copy = Pipeline.deserialize(pipeline_def(definition)(batch_size=1).serialize())
    copy.feed_input("x", [np.zeros(3, np.float64)])
    with pytest.raises(
        (ValueError, TypeError, RuntimeError), match=rf"{__file__}:{definition.__code__.co_firstlineno + 1}\)"
    ):
        copy.run()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"junk",
        b"\xff\xfe\x00",
        b"[]",
        b"{}",
        b'{"format": "jaxdali pipeline"}',
        b'{"format": "jaxdali pipeline", "version": 3}',
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
    for index, (name, expected) in enumerate(
        {"show_tensors": '"in[0]"[shape=box]', "show_ids": '"in (0)"', "use_colors": 'color="#76b900"'}.items()
    ):
        text = saved(**{name: True})
        assert expected in text
        assert expected not in plain
        assert saved(*[i == index for i in range(3)]) == text


def test_nodes_from_outside_and_sinks():
    outside = fn.cast(fn.random.uniform(range=(0.0, 9.0)), dtype=types.INT32) + 1
    pipe = Pipeline(batch_size=2, seed=4)
    with pipe:
        pipe.add_sink(fn.cast(outside, dtype=types.INT64))
        pipe.set_outputs(outside, fn.random.normal())
    copy = Pipeline.deserialize(pipe.serialize())
    assert copy.serialize() == pipe.serialize()
    assert batches(copy) == batches(pipe)


def test_a_storage_is_written_without_credentials(folder):
    def pipeline(storage):
        @pipeline_def(batch_size=2, num_threads=1)
        def define():
            return fn.readers.file(file_root=folder, storage=storage)[0]

        return define()

    storage = Storage(read_ahead=7, timeout=2.5)
    text = pipeline(storage).serialize()
    assert Pipeline.deserialize(text).serialize() == text
    assert b'"read_ahead": 7' in text
    with pytest.raises(ValueError, match=r"argument storage: the options of a Storage, which may be credentials"):
        pipeline(Storage(options={"secret": "x"})).serialize()


def test_names_beyond_utf8(tmp_path):
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xc3\xa4\xff")
    pathlib.Path(name).write_bytes(b"x")
    pipe = pipeline_def(lambda: fn.readers.file(files=[name])[0])(batch_size=1, num_threads=1)
    text = pipe.serialize()
    assert "ä\\udcff".encode() in text
    assert batches(Pipeline.deserialize(text), 1) == batches(pipe, 1)


def test_a_changed_byte_is_noticed():
    """A damaged text either raises an error that mentions it, or gives the same pipeline."""

    def define():
        return fn.crop(
            types.Constant(np.ones((4, 5, 3), np.uint8)), crop=(2, 3), crop_pos_x=fn.random.uniform(range=(0.25, 0.75))
        )

    text = pipeline_def(define)(batch_size=1, seed=7).serialize()
    num_equal = 0
    for i in range(len(text)):
        for damaged in (text[:i] + bytes([text[i] ^ 1 << i % 7]) + text[i + 1 :], text[:i] + text[i + 1 :], text[:i]):
            try:
                result = Pipeline.deserialize(damaged).serialize()
            except RuntimeError as e:
                result, error = None, str(e)
                if "serialized pipeline" not in error:
                    raise
            num_equal += result == text
            assert result in (None, text)
    assert num_equal < len(text)  # changed white space makes no difference

    tree = json.loads(text)
    del tree["checksum"]
    assert Pipeline.deserialize(json.dumps(tree)).serialize() == text  # as in files of earlier versions
    tree["calls"][-1]["random"] = []
    with pytest.raises(RuntimeError, match="serialized pipeline is damaged"):
        Pipeline.deserialize(json.dumps({**tree, "checksum": "0"}))


def test_serialize_with_a_definition(tmp_path):
    def define():
        return fn.random.uniform(range=(0.0, 1.0), shape=[2])

    arguments = {"batch_size": 2, "num_threads": 1, "device_id": None, "seed": 3}
    text = Pipeline(**arguments).serialize(define)
    assert batches(Pipeline.deserialize(text)) == batches(pipeline_def(define)(**arguments))
    with pytest.raises(RuntimeError, match="the pipeline has a definition already"):
        pipeline_def(define)(**arguments).serialize(define)
    for name in (tmp_path / "pipe.json", str(tmp_path / "pipe.json")):
        with pytest.raises(TypeError, match=r"define_graph must be callable.*filename="):
            pipeline_def(define)(**arguments).serialize(name)  # pyright: ignore[reportArgumentType]
