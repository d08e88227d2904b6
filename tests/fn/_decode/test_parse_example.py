"""parse_example, and the same features in readers: forms of outputs, defaults, errors, damaged messages."""

import random

import containers as c
import numpy as np
import pytest
import riegeli
from images import encode
from pipelines import run

import jaxdali.dynamic as jd
from jaxdali import Pipeline, SampleError, fn, pipeline_def, tfrecord, types

F, V, S = tfrecord.FixedLenFeature, tfrecord.VarLenFeature, tfrecord.FixedLenSequenceFeature
R, L = tfrecord.RaggedFeature, tfrecord.LengthsFeature
STRING, INT64, FLOAT = tfrecord.string, tfrecord.int64, tfrecord.float32


def parse(message, features=None, sequence_features=None):
    """The outputs of one message as lists; strings as bytes."""
    arguments = {"features": features, "sequence_features": sequence_features}
    result = jd.parse_example(message, **{n: x for n, x in arguments.items() if x is not None})
    # The same in a batch that a pipeline parses.
    (*nodes,) = run(lambda x: tuple(fn.parse_example(x, **arguments).values()), [np.frombuffer(message, np.uint8)] * 3)
    for (name, x), output in zip(result.items(), nodes, strict=True):
        for i in range(3):
            assert np.array_equal(np.asarray(x), np.asarray(output[i])), name
    return {n: x.tolist() for n, x in ((n, np.asarray(x)) for n, x in result.items())}


def texts(rows):
    return [bytes(r) for r in rows]


def test_forms_of_values():
    message = c.example({"i": [1, -2, 3, 4], "f": [0.5, 1.5], "s": [b"a", b"", b"long"], "one": [7], "text": [b"word"]})
    out = parse(
        message,
        {
            "i": F([2, 2], INT64),
            "one": F([], np.int64),
            "text": F((), bytes),
            "f": V(FLOAT),
            "s": V(STRING),
            "none": V(FLOAT),
            "no text": V(str),
            "rows": S([2], "float32", allow_missing=True),
        },
    )
    assert out["i"] == [[1, -2], [3, 4]]
    assert out["one"] == 7
    assert out["f"] == [0.5, 1.5]
    assert bytes(out["text"]) == b"word"
    assert texts(out["s"]) == [b"a\0\0\0", b"\0\0\0\0", b"long"]
    assert out["none"] == []
    assert out["no text"] == []
    assert out["rows"] == []


@pytest.mark.parametrize("packed", [True, False])
def test_integers_of_all_lengths(packed):
    rng = np.random.default_rng(3)
    for n in (0, 1, 7, 300):
        numbers = (rng.integers(-(2**63), 2**63 - 1, n) >> rng.integers(0, 63, n)).tolist()
        assert (
            np.asarray(jd.parse_example(c.example({"x": numbers}, packed), features={"x": V(INT64)})["x"]).tolist()
            == numbers
        )
    for varint in (b"\xff" * 10 + b"\1", b"\x80" * 3, b"\1" * 6 + b"\xff" * 11, b"\xff" * 16):
        entry = c.field(1, b"x") + c.field(2, c.field(3, c.field(1, varint)))
        with pytest.raises(SampleError, match="it is damaged"):
            jd.parse_example(c.field(1, c.field(1, entry)), features={"x": V(INT64)})


def test_padding_is_zero_in_used_memory():
    full = c.sequence_example({"s": [b"\xff" * 40] * 4}, {"t": [[-1] * 5] * 4})
    short = c.sequence_example({"s": [b"a", b"b" * 40, b"", b"c"]}, {"t": [[], [1], [2] * 5, []]})
    for message in (full, short):  # the second one gets the buffers of the first
        out = jd.parse_example([message] * 8, features={"s": V(STRING)}, sequence_features={"t": V(INT64)})
        strings, rows = np.asarray(out["s"][3]), np.asarray(out["t"][3])
        del out
    assert texts(strings) == [s.ljust(40, b"\0") for s in (b"a", b"b" * 40, b"", b"c")]
    assert rows.tolist() == [[0] * 5, [1, 0, 0, 0, 0], [2] * 5, [0] * 5]


def test_shapes_with_an_unknown_extent():
    message = c.example({"box": [float(i) for i in range(12)], "s": [b"ab", b"c", b"d", b""]})
    boxes = np.arange(12.0).tolist()
    assert parse(message, {"box": F((None, 4), FLOAT)})["box"] == np.reshape(boxes, (3, 4)).tolist()
    assert parse(message, {"box": F([2, -1, 3], FLOAT)})["box"] == np.reshape(boxes, (2, 2, 3)).tolist()
    assert parse(message, {"box": V([2, 2], FLOAT, 0.0)})["box"] == np.reshape(boxes, (3, 2, 2)).tolist()
    assert parse(message, {"s": F((None, 2), STRING)})["s"] == [[[97, 98], [99, 0]], [[100, 0], [0, 0]]]
    assert parse(message, {"none": F((None, 4), FLOAT, [])})["none"] == []
    with pytest.raises(SampleError, match="its feature 'box' has 12 values, not a multiple of 5"):
        parse(message, {"box": F((None, 5), FLOAT)})
    with pytest.raises(ValueError, match="may have one extent of None"):
        F((None, None), FLOAT)


def test_defaults():
    empty = c.example({"x": [1]})
    assert parse(empty, {"a": F([2], FLOAT, -1)})["a"] == [-1, -1]
    assert parse(empty, {"a": F([2, 2], INT64, [[1, 2], [3, 4]])})["a"] == [[1, 2], [3, 4]]
    assert bytes(parse(empty, {"a": F([1], STRING, "jpeg")})["a"]) == b"jpeg"
    assert bytes(parse(empty, {"a": F([], STRING, "")})["a"]) == b""
    out = parse(empty, {"a": F([2], STRING, ["a", "bcd"]), "n": L("a")} | {"n": L("a")})
    assert texts(out["a"]) == [b"a\0\0", b"bcd"]
    assert out["n"] == [1, 3]
    assert texts(parse(empty, {"a": F([2], STRING, b"xy")})["a"]) == [b"xy", b"xy"]
    for feature in (F([], INT64), F([], STRING), S([2], FLOAT), F((None,), INT64)):
        with pytest.raises(SampleError, match="sample 0: it has no feature 'a', for which there is no default"):
            parse(empty, {"a": feature})
    with pytest.raises(ValueError, match=r"fn.pad\(fill_value=...\) pads them"):
        S([], FLOAT, True, 3.0)


def test_lengths_of_strings_and_rows():
    message = c.sequence_example(
        {"s": [b"a", b"", b"bcd"], "v": [1, 2, 3], "l": [2, 1]}, {"t": [[1, 2, 3], [], [4]], "w": [[b"xy"], [b"z"]]}
    )
    ragged = R(INT64, "v", [R.RowLengths("l")])
    out = parse(
        message,
        {"s": V(STRING), "sn": L("s"), "v": ragged, "vn": L("v")},
        {"t": V(INT64), "tn": L("t"), "w": S((), STRING), "wn": L("w")},
    )
    assert out["sn"] == [1, 0, 3]
    assert out["vn"] == [2, 1]
    assert out["tn"] == [3, 0, 1]
    assert out["wn"] == [2, 1]
    assert out["v"] == [[1, 2], [3, 0]]
    assert out["t"] == [[1, 2, 3], [0, 0, 0], [4, 0, 0]]
    for features in ({"n": L("none")}, {"a": F([], INT64), "n": L("a")}, {"n": L("n")}):
        with pytest.raises(ValueError, match="LengthsFeature"):
            parse(message, features)


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        ([R.RowLengths("lengths")], [[1, 2, 0], [0, 0, 0], [3, 4, 5]]),
        ([R.RowSplits("splits")], [[1, 2, 0], [0, 0, 0], [3, 4, 5]]),
        ([R.RowStarts("starts")], [[1, 2, 0], [0, 0, 0], [3, 4, 5]]),
        ([R.RowLimits("limits")], [[1, 2, 0], [0, 0, 0], [3, 4, 5]]),
        ([R.ValueRowIds("ids")], [[1, 2, 0], [0, 0, 0], [3, 4, 5]]),
        ([R.UniformRowLength(5)], [[1, 2, 3, 4, 5]]),
        ([R.RowLengths("outer"), R.RowSplits("splits")], [[[1, 2, 0], [0, 0, 0]], [[3, 4, 5], [0, 0, 0]]]),
    ],
)
def test_partitions_of_ragged_features(partitions, expected):
    numbers = {"lengths": [2, 0, 3], "splits": [0, 2, 2, 5], "starts": [0, 2, 2], "limits": [2, 2, 5]}
    message = c.example({"v": [1, 2, 3, 4, 5], "ids": [0, 0, 2, 2, 2], "outer": [2, 1], **numbers})
    assert parse(message, {"x": R(INT64, "v", partitions)})["x"] == expected
    wrong = c.example({"v": [1, 2, 3, 4, 5, 6], "ids": [0, 0, 2, 2, 1], "outer": [2, 2], "starts": [1], **numbers})
    if partitions[0].kind != "RowStarts":
        with pytest.raises(SampleError, match="values"):
            parse(wrong, {"x": R(INT64, "v", partitions)})


def test_sequence_examples():
    message = c.sequence_example(
        {"label": [5]},
        {"xy": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "id": [[1], [2]], "w": [[b"a", b"bc"], [b"d"]], "e": []},
    )
    out = parse(
        message,
        {"label": F([], INT64)},
        {"xy": S([2], FLOAT), "id": S([], INT64), "w": V(STRING), "e": S([], INT64), "no": S([3], FLOAT, True)},
    )
    assert out["xy"] == [[1, 2], [3, 4], [5, 6]]
    assert out["id"] == [1, 2]
    assert out["label"] == 5
    assert out["w"] == [[[97, 0], [98, 99]], [[100, 0], [0, 0]]]
    assert out["e"] == []
    assert out["no"] == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"features": {"frames": F([], STRING, "")}}, "its feature 'frames' is a feature list: pass it in sequence_f"),
        ({"features": {"frames": V(STRING)}}, "its feature 'frames' is a feature list"),
        ({"sequence_features": {"label": S([], INT64)}}, "its feature list 'label' is a feature of the example"),
        ({"sequence_features": {"none": S([], INT64)}}, "it has no feature list 'none'"),
        ({"sequence_features": {"frames": S([], INT64)}}, "feature list 'frames' consists of bytes, not of int64"),
        ({"sequence_features": {"rows": S([], INT64)}}, "a step of its feature list 'rows' has 2 values, expected 1"),
        ({"sequence_features": {"mixed": V(INT64)}}, "its feature list 'mixed' has values of different types"),
        ({"features": {"label": F([], FLOAT)}}, "its feature 'label' consists of integers, not of float32"),
        ({"features": {"texts": F([], STRING)}}, "its feature 'texts' has 2 values, expected 1"),
        ({"features": {"texts": F([3], STRING)}}, "its feature 'texts' has 2 values, expected 3"),
    ],
)
def test_misfits_name_the_feature(arguments, error):
    lists = {"frames": [[b"a"], [b"b"]], "rows": [[1, 2], [3]], "mixed": [[1], [1.5]]}
    message = c.sequence_example({"label": [1], "texts": [b"a", b"b"]}, lists)
    with pytest.raises(SampleError, match=f"parse_example .*test_parse_example.py.*sample 1: .*{error}"):
        jd.parse_example([fitting(arguments), message], **arguments)


def fitting(arguments):
    """A message that fits the features."""
    values = {INT64: 1, FLOAT: 1.0, STRING: b"x"}
    context = {n: [values[f.dtype]] * (3 if f.shape == (3,) else 1) for n, f in arguments.get("features", {}).items()}
    lists = {n: [[values[f.dtype]]] for n, f in arguments.get("sequence_features", {}).items()}
    return c.sequence_example(context, lists)


def test_refused_arguments():
    message = c.example({"a": [1]})
    a = F([], INT64)
    for features, sequence_features, error in [
        ({"a": 3}, None, "must be a dict from names to Features"),
        (["a"], None, r"must be a dict from names to Features, got \['a'\]"),
        (None, None, "nothing to parse"),
        ({}, {}, "nothing to parse"),
        ({"a": a}, {"a": S([], INT64)}, "'a' is in both"),
        (None, {"a": a}, r"FixedLenSequenceFeature\(shape, dtype\)"),
        (None, {"a": R(INT64, "v", [R.RowLengths("n")])}, "RaggedFeature with partitions"),
    ]:
        with pytest.raises((ValueError, TypeError), match=error):
            jd.parse_example(message, features=features, sequence_features=sequence_features)
    with pytest.raises(TypeError, match="the input must be serialized examples, 1-D uint8"):
        jd.parse_example([np.zeros((2, 2), np.uint8)], features={"a": a})
    with pytest.raises(TypeError, match=r"pass the features by name: features=\{...\}"):
        jd.parse_example(message, {"a": a})
    with pytest.raises(TypeError, match=r"partitions must be a list of RaggedFeature.RowLengths"):
        R(INT64, "v", R.RowLengths("n"))
    for shape in ("a", (2.5,), None):
        with pytest.raises(TypeError, match="a shape must be a list of whole numbers"):
            F(shape, INT64)
    for shape in ([1 << 40], [1 << 62, None], [1 << 40, 1 << 40]):
        with pytest.raises(ValueError, match=r"the shape \(.*\) has [0-9]+ values, a batch has at most 137438953472"):
            F(shape, INT64)
    for default in (float("nan"), float("inf"), 2**63, 1.5):
        with pytest.raises(TypeError, match="must be a whole number of 64 bits"):
            F([], INT64, default)
    for dtype in (np.int32, "bool", float, types.UINT8, np.float64):
        with pytest.raises(TypeError, match="examples have no other types"):
            F([], dtype)
    assert F([], types.FLOAT) == F([], np.float32) == F([], tfrecord.float32)
    assert V(dtype=bytes) == V(STRING)


def test_messages_with_strides():
    content = np.random.default_rng(0).bytes(30_000)
    message = np.frombuffer(c.example({"a": [content]}), np.uint8)
    columns = np.stack([message, message], axis=1)
    for messages in (columns.T, [columns[:, 0], columns[:, 1]]):
        for parsed in jd.parse_example(messages, features={"a": F([], STRING)})["a"]:
            assert np.asarray(parsed).tobytes() == content


def test_encoded_frames_become_images():
    images = [[encode(np.full((16, 24, 3), 40 * i, np.uint8), "JPEG") for i in range(n)] for n in (3, 1)]
    messages = [c.sequence_example({}, {"image/encoded": [[x] for x in frames]}) for frames in images]
    frames = jd.jit(
        lambda x: jd.decoders.image(
            jd.parse_example(x, sequence_features={"image/encoded": S((), STRING)})["image/encoded"]
        )
    )(messages)
    assert frames.layout == "FHWC"
    for sequence, encoded in zip(frames, images, strict=True):
        assert np.array_equal(sequence, [np.asarray(jd.decoders.image(x)) for x in encoded])


# --- in readers -----------------------------------------------------------------------------------------------------

MESSAGES = [
    c.sequence_example(
        {"image": [b"image %d " % i * (i % 5 + 1)], "label": [i], "note": [b"note %d" % i]},
        {"t": [[k] for k in range(i % 4)]},
    )
    for i in range(11)
]
FEATURES = {"image": F((), STRING, ""), "label": F([1], INT64, -1)}
LISTS = {"t": S([], INT64)}


def expected(i):
    return b"image %d " % i * (i % 5 + 1), [i], [*range(i % 4)]


@pytest.mark.parametrize("kind", ["uncompressed", "groups", "zstd"])
def test_examples_in_array_record(tmp_path, kind):
    if kind != "uncompressed":
        pytest.importorskip("zstandard")
    path = tmp_path / "x.array_record"
    riegeli.array_record(path, MESSAGES, group=3 if kind == "groups" else 1, zstd=kind == "zstd")

    @pipeline_def(batch_size=4, num_threads=2, seed=1)
    def pipeline():
        arguments = {"features": FEATURES, "sequence_features": LISTS, "metadata": ("record", "index", "note")}
        out = fn.readers.array_record(path=path, shuffle="global", **arguments)
        return tuple(out[n] for n in ("image", "label", "t", "record", "note"))

    pipe = pipeline()
    numbers = []
    for _ in range(3):
        image, label, t, record, note = pipe.run()
        numbers += list(record)
        assert list(note) == [f"note {i}" for i in record]
        for i in range(4):
            assert (np.asarray(image[i]).tobytes(), label.at(i).tolist(), t.at(i).tolist()) == expected(record[i])
            assert image[i].source_info() == f"{path}, record {record[i]}"
    assert sorted(numbers[:11]) == [*range(11)]
    Pipeline.deserialize(pipe.serialize()).run()
    epoch = [*jd.readers.ArrayRecord(path=path, features=FEATURES, sequence_features=LISTS).next_epoch()]
    assert [(x["image"].tobytes(), x["label"].tolist(), x["t"].tolist()) for x in map(arrays, epoch)] == [
        expected(i) for i in range(11)
    ]


def arrays(x):
    return {n: np.asarray(v) for n, v in x.items()}


def test_bad_examples_fail_in_array_record(tmp_path):
    path = tmp_path / "x.array_record"
    riegeli.array_record(path, [*MESSAGES[:2], MESSAGES[2][:-1], c.example({"image": [3]})])
    for features, error in (
        (FEATURES, "readers.array_record .*x.array_record, record 2: it is damaged"),
        ({"image": FEATURES["image"]}, "record 2: it is damaged"),
    ):

        @pipeline_def(batch_size=2, num_threads=1)
        def pipeline(features=features):
            return tuple(fn.readers.array_record(path=path, features=features).values())

        pipe = pipeline()
        pipe.run()
        with pytest.raises(SampleError, match=error):
            pipe.run()


@pytest.mark.parametrize("large", [False, True])
def test_sequence_examples_in_tfrecord(tmp_path, large):
    """Large records are read field by field, straight to their places."""
    image = bytes(range(256)) * 200 if large else b""
    records = [c.sequence_example({"image": [image], "n": [i]}, {"t": [[k] * k for k in range(i)]}) for i in range(4)]
    c.write_tfrecord(tmp_path / "x", records, tmp_path / "x.idx")

    @pipeline_def(batch_size=4, num_threads=2)
    def pipeline():
        out = fn.readers.tfrecord(
            path=tmp_path / "x",
            index_path=tmp_path / "x.idx",
            features={"image": F([], STRING), "n": F([], INT64)},
            sequence_features={"t": V(INT64), "lengths": L("t")},
        )
        return out["image"], out["n"], out["t"], out["lengths"]

    images, n, t, lengths = pipeline().run()
    assert [np.asarray(x).tobytes() for x in images] == [image] * 4
    assert n.as_array().tolist() == [0, 1, 2, 3]
    assert t.at(3).tolist() == [[0, 0], [1, 0], [2, 2]]
    assert lengths.at(3).tolist() == [0, 1, 2]


def test_strings_in_tfrecord(tmp_path):
    """Strings of large records, which are read straight to their rows."""
    strings = [bytes([65 + k]) * n for k, n in enumerate((20_000, 3, 0, 30_000, 40))]
    c.write_tfrecord(tmp_path / "x", [c.example({"s": strings})], tmp_path / "x.idx")

    @pipeline_def(batch_size=1, num_threads=1)
    def pipeline():
        paths = {"path": tmp_path / "x", "index_path": tmp_path / "x.idx"}
        out = fn.readers.tfrecord(**paths, features={"s": V(STRING), "n": L("s")})
        return out["s"], out["n"]

    rows, lengths = pipeline().run()
    assert texts(rows.at(0)) == [s.ljust(30_000, b"\0") for s in strings]
    assert lengths.at(0).tolist() == [len(s) for s in strings]


# --- damaged messages -----------------------------------------------------------------------------------------------


def test_damaged_messages_fail_or_parse():
    """Any bytes give arrays or a SampleError."""
    rng = random.Random(1)
    features = {"image": F((), STRING), "label": F([1], INT64, -1), "s": V(STRING), "n": L("s")}
    message = c.sequence_example({"image": [b"image"], "label": [7], "s": [b"a", b"bc"]}, {"t": [[1, 2], [3]]})
    failures = 0
    for _ in range(400):
        data = bytearray(message)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 10, 18, 127, 128, 255, rng.randrange(256)])
        del data[rng.randrange(len(data) + 1) :: rng.choice([1, 50])]
        try:
            out = jd.parse_example(bytes(data), features=features, sequence_features={"t": V(INT64)})
            assert np.asarray(out["s"]).shape[0] == len(np.asarray(out["n"]))
        except SampleError:
            failures += 1
    assert 50 < failures < 400


def test_padding_has_a_limit():
    """A few bytes for each of many empty strings beside a long one."""
    message = c.field(
        1, c.field(1, c.field(1, b"s") + c.field(2, c.field(1, c.field(1, bytes(1 << 20)) + b"\x0a\0" * 5000)))
    )
    with pytest.raises(SampleError, match="its feature 's' is too large: 5001 rows, padded to the longest"):
        jd.parse_example(message, features={"s": V(STRING)})
