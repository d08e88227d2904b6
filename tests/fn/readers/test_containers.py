"""Readers of containers: the same as real DALI's, record by record, shard by shard, epoch by epoch."""

import bz2
import functools
import gzip
import json
import lzma
import os
import re
import sys
import zlib

import containers as c
import numpy as np
import places
import pytest
import reader_cases
from damaged import damage, labels

import jaxdali
from jaxdali import _cpu, fn, index, pipeline_def, tfrecord
from jaxdali._core.errors import SampleError
from jaxdali._data.index import tfrecord_extents, write_index
from jaxdali.fn.readers import _tfrecord

DALI = json.loads((places.DATA / "readers" / "dali.json").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("containers")
    reader_cases.prepare(folder)
    return folder


@pytest.mark.filterwarnings("ignore:.*there is no index of", "ignore:readers.webdataset. .* the member")
@pytest.mark.parametrize("name", DALI)
def test_as_dali(folder, name):
    for k, expected in enumerate(DALI[name]):
        outputs = reader_cases.outputs(jaxdali, name, k, folder)
        for (sources, *values), (expected_sources, *expected_values) in zip(outputs, expected, strict=True):
            assert values == expected_values, reader_cases.CASES[name].order[k]
            if not name.startswith("nemo_asr"):  # audio has a name here, beyond DALI
                assert sources == expected_sources


def test_every_case_was_recorded():
    assert {name: len(case.order) for name, case in reader_cases.CASES.items()} == {
        name: len(x) for name, x in DALI.items()
    }


# --- faults ---------------------------------------------------------------------------------------------------------

LABEL = {"label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1)}


def read(folder, indices="x.idx", **arguments):
    path = None if indices is None else [folder / i for i in ([indices] if isinstance(indices, str) else indices)]
    return lambda: fn.readers.tfrecord(path=folder / "x", index_path=path, features=LABEL, **arguments)["label"]


@pytest.fixture
def records(tmp_path):
    """A TFRecord file of four records of 28 bytes and one of 40,000."""
    examples = [c.example({"label": [i]}) for i in range(4)] + [c.example({"label": [4], "large": [bytes(40_000)]})]
    c.write_tfrecord(tmp_path / "x", examples, tmp_path / "x.idx")
    return tmp_path


def test_checksums_of_any_length():
    """Long ones are computed in parts side by side, of 1024 bytes each."""
    data = np.random.default_rng(0).bytes(6200)
    for n in (0, 1, 7, 8, 1023, 3071, 3072, 3073, 6144, 6159):
        assert _cpu.crc32c(data[n % 5 : n % 5 + n]) == c.crc32c(data[n % 5 : n % 5 + n])


def test_wrong_checksums_are_errors_of_their_records(records):
    offsets = np.loadtxt(records / "x.idx", int)[:, 0]
    damage(records / "x", offsets[1] + 8, b"\xff")  # of the length
    damage(records / "x", offsets[2] + 12 + 5, b"X")  # in the data
    damage(records / "x", offsets[4] + 30_000, b"X")  # where nothing is read
    values, errors, _ = labels(read(records), 5)
    assert values == [[0], None, None, [3], None]
    assert f"{records}/x at index {offsets[1]}: " in errors[0]
    assert "the checksum (CRC) of its length is wrong" in errors[0]
    assert f"{records}/x at index {offsets[2]}: " in errors[1]
    assert "its checksum (CRC) is wrong" in errors[1]
    assert "its checksum (CRC) is wrong" in errors[2]
    assert "readers.tfrecord (created at " in errors[0]


def test_a_truncated_file(records):
    size = (records / "x").stat().st_size
    os.truncate(records / "x", size - 1)
    values, errors, _ = labels(read(records), 5)
    assert values[:4] == [[0], [1], [2], [3]]
    assert f"it lies outside the file, which has {size - 1} bytes" in errors[0]
    with (
        pytest.warns(UserWarning, match=f"{records}/x.idx (is older than|does not fit) its file"),
        pytest.raises(RuntimeError, match=r"record 4 at index .* the file ends"),
    ):
        labels(read(records, None))


def test_replaced_records_are_reported(records):
    damage(records / "x", np.loadtxt(records / "x.idx", int)[1, 0] + 8, b"\xff")
    values, errors, bad = labels(read(records, on_error="replace"), 3, 2)
    assert values == [[0, 2], [2, 3], [4, 0]]
    assert not errors
    assert [(b.file.rpartition("/")[2], b.count) for b in bad] == [
        (f"x at index {np.loadtxt(records / 'x.idx', int)[1, 0]}", 1)
    ]
    assert "checksum" in bad[0].reason


def test_the_index_of_another_file(records):
    c.write_tfrecord(records / "y", [c.example({"label": [2**40 + i]}) for i in range(5)], records / "y.idx")
    with pytest.warns(UserWarning, match="ends before the file does"):
        values, errors, _ = labels(read(records, "y.idx"), 5)
    assert values == [None] * 5
    assert all("the index is of another file, or the file is damaged" in e for e in errors)
    (records / "empty.idx").write_text("")
    with pytest.raises(RuntimeError, match=r"empty.idx is not an index"):
        labels(read(records, "empty.idx"))
    (records / "text.idx").write_text("0 28\n28 x\n")
    with pytest.raises(RuntimeError, match=r"text.idx, line 2: expected two whole numbers, got b'x"):
        labels(read(records, "text.idx"))
    with pytest.raises(RuntimeError, match="an index for each file"):
        labels(read(records, ["x.idx", "y.idx"]))


@pytest.mark.parametrize("name", ["x", "x.gz"])
@pytest.mark.parametrize(
    ("compress", "message"),
    [
        (gzip.compress, "GZIP.*gunzip"),
        (zlib.compress, "ZLIB.*write it without compression"),
        (bz2.compress, "bzip2.*bunzip2"),
        (lzma.compress, "XZ.*unxz"),
    ],
)
def test_compressed_files_are_refused_by_name(tmp_path, capsys, own_threads, name, compress, message):
    c.write_tfrecord(tmp_path / "plain", [c.example({"label": [i]}) for i in range(5)], tmp_path / "x.idx")
    content = compress((tmp_path / "plain").read_bytes())
    (tmp_path / name).write_bytes(content)
    readers = [
        lambda path: fn.readers.webdataset(paths=path, ext="cls"),
        lambda path: fn.readers.mxnet(path=path, index_path=tmp_path / "x.idx")[1],
    ]
    if compress not in (gzip.compress, zlib.compress):  # readers.tfrecord reads these: test_compressed_tfrecord.py
        readers.append(
            lambda path: fn.readers.tfrecord(path=path, index_path=tmp_path / "x.idx", features=LABEL)["label"]
        )
        readers.append(lambda path: fn.readers.tfrecord(path=path, features=LABEL)["label"])
        assert index.main([str(tmp_path / name)]) == 1
        assert re.match(rf"{tmp_path}/{name}: it is compressed by {message}", capsys.readouterr().err)
    for read_of in readers:
        with pytest.raises(RuntimeError, match=rf"{tmp_path}/{name}: it is compressed by {message}"):
            labels(functools.partial(read_of, tmp_path / name))
    if name.endswith(".gz"):  # servers are only asked where the name says so
        pytest.importorskip("fsspec").filesystem("memory").pipe_file("/far/x.gz", content)
        with pytest.raises(RuntimeError, match=rf"memory://far/x\.gz: it is compressed by {message}"):
            labels(lambda: fn.readers.webdataset(paths="memory://far/x.gz", ext="cls"))
        assert not own_threads("jaxdali-storage")


def test_sizes_may_look_like_compression(tmp_path):
    """A record begins with its size, whose bytes can be those of a compressed file."""
    sizes = [0x088B1F, 0x9C78, 0x0178]  # GZIP, ZLIB
    for k, size in enumerate(sizes):
        fill = size
        while len(record := c.example({"label": [k], "fill": [bytes(fill)]})) > size:
            fill -= len(record) - size
        assert len(record) == size
        c.write_tfrecord(tmp_path / f"{k}", [record], tmp_path / f"{k}.idx")
    paths, indices = ([tmp_path / f"{k}{end}" for k in range(3)] for end in ("", ".idx"))
    assert labels(lambda: fn.readers.tfrecord(path=paths, index_path=indices, features=LABEL)["label"], 3)[0] == [
        [0],
        [1],
        [2],
    ]


def test_an_index_of_windows(records):
    text = (records / "x.idx").read_text()
    (records / "y.idx").write_text("\ufeff" + text)
    assert labels(read(records, "y.idx"), 5)[0] == [[0], [1], [2], [3], [4]]
    (records / "y.idx").write_text(text, encoding="utf-16")
    with pytest.raises(RuntimeError, match=r"y\.idx is in UTF-16: save it as UTF-8"):
        labels(read(records, "y.idx"))


def test_a_missing_index_is_made_and_said(records):
    (records / "x.idx").unlink()
    with pytest.warns(
        UserWarning, match=rf"readers.tfrecord: there is no index of {records}/x: .*python -m jaxdali.index"
    ) as said:
        assert labels(read(records, None), 5)[0] == [[0], [1], [2], [3], [4]]
    assert len(said) == 1
    with pytest.warns(UserWarning, match="no index"):
        assert labels(read(records, "none.idx"), 5)[0] == [[0], [1], [2], [3], [4]]


def test_the_index_beside_a_file_is_used(records, monkeypatch):
    """As the warning says: after `jaxdali.index` there is no more warning, and the file is not looked through."""
    assert index.main([str(records / "x")]) == 0
    monkeypatch.setattr(_tfrecord, "tfrecord_extents", None)
    assert labels(read(records, None), 5)[0] == [[0], [1], [2], [3], [4]]


def test_files_without_records(tmp_path):
    (tmp_path / "x").touch()
    with (
        pytest.warns(UserWarning, match="there is no index of"),
        pytest.raises(RuntimeError, match=rf"there are no records in {tmp_path}/x$"),
    ):
        labels(read(tmp_path, None))


def test_wildcards_leave_out_indices(records):
    assert labels(lambda: fn.readers.tfrecord(path=records / "*", features=LABEL)["label"], 5)[0] == [
        [0],
        [1],
        [2],
        [3],
        [4],
    ]


def without_line(text: str, k: int) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(lines[:k] + lines[k + 1 :])


@pytest.mark.parametrize(
    "damage_text",
    [
        lambda text: "",
        lambda text: "no index",
        lambda text: without_line(text, 0),
        lambda text: without_line(text, 2),
        lambda text: without_line(text, 4),
        lambda text: text + "40200 20\n",
        lambda text: text.replace("0 ", "1 ", 1),
        lambda text: f"0 {2**63 - 1}\n{2**63 - 1} {2**63 - 1}\n",
        lambda text: b"\xff\xfe\n",  # as UTF-16 begins
    ],
)
def test_unfit_indices_beside_files_are_not_used(records, damage_text):
    text = damage_text((records / "x.idx").read_text())
    (records / "x.idx").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.warns(UserWarning, match=r"readers.tfrecord: .*x.idx.*made in memory.*index writes it anew"):
        assert labels(read(records, None), 5)[0] == [[0], [1], [2], [3], [4]]


def test_older_indices_beside_files_are_not_used(records):
    examples = [c.example({"label": [7]}), *(c.example({"label": [i]}) for i in range(3))]
    c.write_tfrecord(records / "x", examples)
    os.utime(records / "x.idx", (1, 1))
    with pytest.warns(UserWarning, match="x.idx is older than its file"):
        assert labels(read(records, None), 4)[0] == [[7], [0], [1], [2]]


def test_indices_beside_some_files(records):
    for name in ("y", "z"):
        c.write_tfrecord(records / name, [c.example({"label": [ord(name)]})])
    (records / "z.idx").write_text("0 7\n")
    with pytest.warns(UserWarning) as said:
        paths = [records / name for name in "xyz"]
        values = labels(lambda: fn.readers.tfrecord(path=paths, features=LABEL)["label"], 7)[0]
    assert values == [[0], [1], [2], [3], [4], [121], [122]]
    assert sorted("z.idx does not fit its file" in str(w.message) for w in said) == [False, True]


def test_changed_and_removed_open_files_are_errors(records):
    @pipeline_def(batch_size=1, prefetch_queue_depth=1, num_threads=2)
    def pipeline():
        return read(records)()

    pipe = pipeline(exec_pipelined=False, exec_async=False)
    assert pipe.run()[0].as_array().tolist() == [[0]]
    content = (records / "x").read_bytes()
    (records / "x").write_bytes(content[:-100])
    errors = []
    for _ in range(4):  # one batch or two were made ahead
        try:
            pipe.run()
        except SampleError as e:
            errors.append(str(e))
    assert "the file has changed since the pipeline was built" in errors[-1]
    (records / "x").unlink()
    with pytest.raises(SampleError, match="No such file"):
        [pipe.run() for _ in range(3)]


def test_no_file_and_no_permission(records):
    with pytest.raises(RuntimeError, match=f"readers.tfrecord .*{records}/none"):
        labels(lambda: fn.readers.tfrecord(path=records / "none", features=LABEL)["label"])


def test_missing_and_misfit_features(tmp_path):
    F, V = tfrecord.FixedLenFeature, tfrecord.VarLenFeature
    rows = [
        c.example({"a": [1.5, 2.5]}),
        c.example({"a": [3], "b": [b"x"]}),
        b"",
        c.example({"a": [1.0, 2.0, 3.0], "c": []}),
    ]
    c.write_tfrecord(tmp_path / "x", rows, tmp_path / "x.idx")

    def read_feature(feature, name):
        return lambda: fn.readers.tfrecord(
            path=tmp_path / "x", index_path=tmp_path / "x.idx", features={name: feature}
        )[name]

    values, errors, _ = labels(read_feature(F([2], tfrecord.float32, -7.0), "a"), 4)
    assert values == [[1.5, 2.5], None, [-7.0, -7.0], None]
    assert "its feature 'a' consists of integers, not of float32" in errors[0]
    assert "its feature 'a' has 3 values, expected 2" in errors[1]
    values, errors, _ = labels(read_feature(V([3], tfrecord.float32, 0.0), "a"), 4)
    assert "its feature 'a' has 2 values, not a multiple of 3" in errors[0]

    @pipeline_def(batch_size=3)
    def pipeline():
        with_default = read_feature(F((), tfrecord.string, "jpeg"), "b")()
        return (
            read_feature(F((), tfrecord.string, ""), "b")(),
            read_feature(V(tfrecord.int64, 0), "c")(),
            read_feature(F([], tfrecord.int64, 3), "c")(),
            with_default,
        )

    text, ints, one, with_default = pipeline().run()
    assert [np.asarray(with_default[i]).tobytes() for i in range(3)] == [b"jpeg", b"x", b"jpeg"]
    assert [np.asarray(text[i]).tobytes() for i in range(3)] == [b"", b"x", b""]
    assert ints.shape() == [(0,)] * 3
    assert one.as_array().tolist() == [3, 3, 3]


def test_first_of_several_strings(tmp_path):
    """DALI 2.4 reads the first string where a feature has a default value; TensorFlow's form refuses several."""
    c.write_tfrecord(tmp_path / "x", [c.example({"names": [b"first", b"second"]})], tmp_path / "x.idx")

    def read(*default):
        features = {"names": tfrecord.FixedLenFeature([1], tfrecord.string, *default)}

        @pipeline_def(batch_size=1, num_threads=1)
        def pipe():
            return fn.readers.tfrecord(path=tmp_path / "x", index_path=tmp_path / "x.idx", features=features)["names"]

        return bytes(np.asarray(pipe().run()[0].at(0)))

    assert read("") == b"first"
    with pytest.raises(SampleError, match="feature 'names' has 2 values, expected 1"):
        read()


def test_features_are_checked():
    F, V = tfrecord.FixedLenFeature, tfrecord.VarLenFeature
    with pytest.raises(ValueError, match=r"the default has 3 values, the feature's shape \(2,\) has 2"):
        F([2], tfrecord.string, ["", "", ""])
    with pytest.raises(TypeError, match=r"the default of a string feature must be a string, got 3"):
        F((), tfrecord.string, 3)
    with pytest.raises(TypeError, match=r"dtype must be tfrecord.int64, tfrecord.float32 or tfrecord.string, got 7"):
        V(7, 0)
    with pytest.raises(TypeError, match="features must be a dict from names to Features"):
        labels(lambda: fn.readers.tfrecord(path="x", features=["a"]))
    with pytest.raises(ValueError, match="use_o_direct"):
        labels(lambda: fn.readers.tfrecord(path="x", features=LABEL, use_o_direct=True))


# --- RecordIO -------------------------------------------------------------------------------------------------------


def image_of(path, index_path):
    @pipeline_def(batch_size=1)
    def pipeline():
        return fn.readers.mxnet(path=path, index_path=index_path)

    return [np.asarray(x[0]) for x in pipeline().run()]


def test_a_record_split_at_the_magic_word(tmp_path):
    magic = (0xCED7230A).to_bytes(4, "little")
    first, rest_of_image = c.image_record([1.0, 2.0], b"left"), b"right, and more"
    parts = [(1, first), (2, b"middle--"), (3, rest_of_image)]
    content = b"".join(
        magic + (kind << 29 | len(x)).to_bytes(4, "little") + x + bytes(-len(x) % 4) for kind, x in parts
    )
    (tmp_path / "x").write_bytes(content)
    (tmp_path / "x.idx").write_text("0\t0\n")
    image, label = image_of(tmp_path / "x", tmp_path / "x.idx")
    assert image.tobytes() == b"left" + magic + b"middle--" + magic + rest_of_image
    assert label.tolist() == [1, 2]
    (tmp_path / "x").write_bytes(content[:60])
    with pytest.raises(SampleError, match=r"its last part is missing|it ends early"):
        image_of(tmp_path / "x", tmp_path / "x.idx")


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, b"x", "no record begins there"),
        (4, b"\xff\xff", "it ends early"),
        (8, b"\xff\xff\xff\x7f", "too short for its 2147483647 labels"),
    ],
)
def test_damaged_image_records(tmp_path, at, value, message):
    c.write_recordio(tmp_path / "x", [c.image_record(1.0, b"image")], tmp_path / "x.idx")
    damage(tmp_path / "x", at, value)
    with pytest.raises(SampleError, match=f"x at index 0: .*{message}"):
        image_of(tmp_path / "x", tmp_path / "x.idx")


# --- LMDB -----------------------------------------------------------------------------------------------------------


def test_raw_images_without_data_are_errors(tmp_path):
    """A damaged record may state the shape of an image that it lacks."""
    c.write_lmdb(tmp_path / "x", [c.datum(None, 1, encoded=False, shape=(3, 2, 4))])
    _, errors, _ = labels(lambda: fn.readers.caffe(path=tmp_path / "x")[0])
    assert "its image has 0 values, which does not match its shape" in errors[0]


@pytest.mark.parametrize("reader", ["caffe", "caffe2"])
def test_too_large_values_of_databases(tmp_path, reader):
    pytest.importorskip("lmdb")

    def value(n, i):
        if reader == "caffe":
            return c.datum(bytes(n), i)
        return c.tensors(c.tensor(c.STRING, [bytes(n)]), c.tensor(c.INT32, [i]))

    c.write_lmdb(tmp_path / "db", [value(10, 0), value(20_000, 1), value(10, 2)])

    def read_of(limit, **arguments):
        return lambda: getattr(fn.readers, reader)(
            path=tmp_path / "db", storage=jaxdali.Storage(max_record_bytes=limit), **arguments
        )[1]

    values, (error,), _ = labels(read_of(10_000), 3)
    assert values == [[0], None, [2]]
    assert "db at key 00000001: it would take 20" in error
    assert "Storage(max_record_bytes=10000) allows no more" in error
    assert labels(read_of(10_000, on_error="replace"), 3)[0] == [[0], [2], [2]]
    assert labels(read_of(30_000), 3)[0] == [[0], [1], [2]]
    with pytest.raises(RuntimeError, match=r"max_record_bytes=5\)"):
        labels(read_of(5))


def test_sparse_labels_become_vectors(tmp_path):
    image = c.tensor(c.STRING, [b"image"])
    c.write_lmdb(tmp_path / "sparse", [c.tensors(image, c.tensor(c.INT32, x)) for x in ([0, 3], [], [1])])
    c.write_lmdb(
        tmp_path / "weights",
        [c.tensors(image, c.tensor(c.INT32, [2, 0]), c.tensor(c.FLOAT, [0.5, 0.25]), c.tensor(c.INT32, [9]))],
    )
    c.write_lmdb(tmp_path / "outside", [c.tensors(image, c.tensor(c.INT32, [4]))])

    @pipeline_def(batch_size=1)
    def pipeline(database, label_type, additional=0):
        return tuple(
            fn.readers.caffe2(
                path=tmp_path / database, label_type=label_type, num_labels=4, additional_inputs=additional
            )
        )

    pipe = pipeline("sparse", 1)
    assert [pipe.run()[1].as_array().tolist() for _ in range(3)] == [[[1, 0, 0, 1]], [[0, 0, 0, 0]], [[0, 1, 0, 0]]]
    _, dense, additional = pipeline("weights", 3, 1).run()
    assert dense.as_array().tolist() == [[0.25, 0, 0.5, 0]]
    assert np.asarray(additional[0]).tolist() == [9]
    with pytest.raises(SampleError, match="its label has the class 4, but num_labels is 4"):
        pipeline("outside", 1).run()


def test_damaged_databases(tmp_path):
    good = [c.datum(b"image", i) for i in range(3)]
    c.write_lmdb(tmp_path / "bad", [good[0], good[1][:-1], b"\x22\xff\x01ab", good[2], c.datum(b"x", None)])

    def read_labels():
        return fn.readers.caffe(path=tmp_path / "bad", image_available=False)

    values, errors, _ = labels(read_labels, 5)
    assert values == [[0], None, None, [2], None]
    assert "bad at key 00000001: " in errors[0]
    assert "it is damaged" in errors[0]
    assert "its label has 0 values, expected 1" in errors[2]
    os.truncate(tmp_path / "bad" / "data.mdb", 8192)
    with pytest.raises(RuntimeError, match=r"data.mdb is truncated|can't open"):
        labels(read_labels)
    with pytest.raises(RuntimeError, match=f"can't open the LMDB database {tmp_path}/none: No such file"):
        labels(lambda: fn.readers.caffe(path=tmp_path / "none"))


def test_readers_and_pipelines_share_a_database(folder):
    @pipeline_def(batch_size=2)
    def pipeline():
        path = folder / "a.caffe"
        return fn.readers.caffe(path=path, image_available=False), fn.readers.caffe(
            path=path, image_available=False, num_shards=2, shard_id=1
        )

    first, second = pipeline(), pipeline()
    for pipe in (first, second):
        a, b = pipe.run()
        assert (a.as_array().tolist(), b.as_array().tolist()) == ([[-5], [-2]], [[1], [4]])


def test_without_the_package(tmp_path, monkeypatch):
    c.write_lmdb(tmp_path / "x", [c.datum(b"image", 1)])
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(RuntimeError, match=r'readers.caffe .*pip install "jaxdali\[containers\]"'):
        labels(lambda: fn.readers.caffe(path=tmp_path / "x"))


# --- indices --------------------------------------------------------------------------------------------------------


def test_the_index_tool(records, capsys):
    expected = (records / "x.idx").read_text()
    (records / "out").mkdir()
    assert index.main([str(records / "x"), "--output", str(records / "out")]) == 0
    assert (records / "out" / "x.idx").read_text() == expected
    assert capsys.readouterr().out == f"{records}/out/x.idx: 5 records\n"
    os.truncate(records / "x", 100)
    assert index.main([str(records / "x"), str(records / "none")]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert "at index" in lines[0]
    assert lines[1] == f"can't read {records}/none: No such file or directory"
    with pytest.raises(RuntimeError, match=r"can't read .*/none: No such file"):
        write_index(records / "none", records / "none.idx")


def test_the_index_of_a_grown_file(records):
    """Its last record does not end where the file ends. The lines may have any order."""
    lines = (records / "x.idx").read_text().splitlines(keepends=True)
    (records / "y.idx").write_text("".join(lines[::-1]))
    assert labels(read(records, "y.idx"), 5)[0] == [[4], [3], [2], [1], [0]]
    (records / "y.idx").write_text("".join(lines[:4]))
    size = (records / "x").stat().st_size
    text = f"readers.tfrecord: the index of {records}/x ends before the file does, at 136 of {size} bytes"
    with pytest.warns(UserWarning, match=re.escape(text)):
        assert labels(read(records, "y.idx"), 4)[0] == [[0], [1], [2], [3]]


def test_unwritable_indices_are_named(records, capsys):
    """An OSError of a full disk has no file name. The file that was begun is removed."""
    folder = records / "nowhere"
    assert index.main([str(records / "x"), "--output", str(folder)]) == 1
    assert capsys.readouterr().err == f"can't write {folder}/x.idx: No such file or directory\n"
    folder.mkdir()
    (folder / "x.idx.new").symlink_to("/dev/full")
    assert index.main([str(records / "x"), "--output", str(folder)]) == 1
    assert capsys.readouterr().err == f"can't write {folder}/x.idx: No space left on device\n"
    assert not list(folder.iterdir())


def test_the_index_of_a_sparse_file(tmp_path):
    """A hole has only zeros, and no record begins so, even if it has no data."""
    path = c.write_tfrecord(tmp_path / "x", [b"", b"data", b""])
    size = path.stat().st_size
    assert len(tfrecord_extents(path)) == 3
    os.truncate(path, 1 << 40)
    with pytest.raises(RuntimeError, match=f"record 3 at index {size} has no data"):
        tfrecord_extents(path)
