"""readers.tfrecord of files that are compressed by GZIP or ZLIB: the same records as those of the plain file."""

import base64
import contextlib
import gzip
import json
import lzma
import os
import random
import zlib

import containers as c
import numpy as np
import places
import pytest
from damaged import damage, labels

from jaxdali import SampleError, Storage, fn, index, pipeline_def, tfrecord
from jaxdali._data import compressed_extents
from jaxdali._data.files import Files

FEATURES = {
    "label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
    "data": tfrecord.FixedLenFeature((), tfrecord.string, ""),
}
COUNT = 300  # records of the file
INDICES = [None, "x.idx"]

pytestmark = pytest.mark.filterwarnings("ignore:.*there is no index of")


def members(data: bytes) -> bytes:
    """Several GZIP members, one of them empty and one that ends within a record's head, with zeros behind some."""
    k = len(data) // 3
    parts = data[:k], data[k : k + 5], b"", data[k + 5 :]
    return b"".join(gzip.compress(part) + bytes(7 * (i % 2)) for i, part in enumerate(parts))


COMPRESS = {"GZIP": gzip.compress, "ZLIB": zlib.compress, "members": members}


def payload(i: int) -> bytes:
    return random.Random(i).randbytes(i % 97) + bytes([i % 256]) * (i * 7 % 300)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 2 KB, and a cache that does not hold the file."""
    monkeypatch.setattr(compressed_extents, "_BLOCK_BYTES", 2048)
    monkeypatch.setattr(compressed_extents, "_CACHE_BYTES", 16384)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A plain file, its index, and compressed ones."""
    folder = tmp_path_factory.mktemp("compressed")
    examples = [c.example({"label": [i], "data": [payload(i)]}) for i in range(COUNT)]
    c.write_tfrecord(folder / "plain", examples, folder / "x.idx")
    for kind, compress in COMPRESS.items():
        (folder / kind).write_bytes(compress((folder / "plain").read_bytes()))
    return folder


def pipe_of(path, index_path=None, batch_size=10, checkpoint=None, **arguments):
    @pipeline_def(batch_size=batch_size, num_threads=2, seed=3, enable_checkpointing=True, checkpoint=checkpoint)
    def pipeline():
        outputs = fn.readers.tfrecord(path=path, index_path=index_path, features=FEATURES, name="r", **arguments)
        return outputs["label"], outputs["data"]

    return pipeline()


def read(pipe, count):
    """Labels of the next records. Each has the data of its label."""
    numbers = []
    while len(numbers) < count:
        label, data = pipe.run()
        for i, number in enumerate(np.asarray(label.as_array()).ravel().tolist()):
            assert np.asarray(data[i]).tobytes() == payload(number)
            numbers.append(number)
    return numbers[:count]


@pytest.mark.parametrize("index_name", INDICES)
@pytest.mark.parametrize("kind", COMPRESS)
def test_records_of_each_compression(folder, small_blocks, kind, index_name):
    index_path = index_name and folder / index_name
    with contextlib.closing(pipe_of(folder / kind, index_path)) as pipe:
        assert read(pipe, 2 * COUNT) == [*range(COUNT)] * 2
    with contextlib.closing(pipe_of(folder / kind, index_path, shuffle="global")) as pipe:
        first, second = read(pipe, COUNT), read(pipe, COUNT)
    assert sorted(first) == sorted(second) == [*range(COUNT)]
    assert first != second
    assert np.mean(np.abs(np.diff(first)) > 5) > 0.5  # records of several blocks are mixed


@pytest.mark.parametrize("order", [{"shuffle": "global"}, {"random_shuffle": True, "initial_fill": 50}])
def test_a_cached_list_is_shuffled_by_records(folder, order):
    numbers = []
    for name in ("plain", "GZIP"):
        with contextlib.closing(pipe_of(folder / name, folder / "x.idx", **order)) as pipe:
            numbers.append(read(pipe, 2 * COUNT))
    assert numbers[0] == numbers[1]


@pytest.mark.parametrize("index_name", INDICES)
def test_large_lists_have_large_blocks(folder, small_blocks, monkeypatch, index_name):
    """There are at most so many restart points, without which a file takes 30."""
    monkeypatch.setattr(compressed_extents, "_MAX_POINTS", 9)
    index_path = index_name and folder / index_name
    files = Files.of([folder / "GZIP", folder / "ZLIB"], None, compressions=("GZIP", "ZLIB"))
    extents = compressed_extents.CompressedExtents("x", files, [index_path] * 2)
    for i in random.Random(0).sample(range(2 * COUNT), 2 * COUNT):
        data = bytes(extents.fetched(i))
        assert payload(i % COUNT) in data
        assert len(data) == extents.table[i, 1]
    assert 5 < sum(len(points) - 1 for points in extents._points.values()) <= 9
    groups = extents.groups()
    assert groups is not None
    assert groups.sizes.sum() == 2 * COUNT
    assert 10_000 < groups.nbytes.max() < 20_000


def test_plain_and_compressed_files_together(folder, small_blocks):
    paths = [folder / name for name in ("GZIP", "plain", "ZLIB")]
    with contextlib.closing(pipe_of(paths, [folder / "x.idx"] * 3, shuffle="global")) as pipe:
        assert sorted(read(pipe, 3 * COUNT)) == sorted([*range(COUNT)] * 3)
    with contextlib.closing(pipe_of(paths, weights=(1, 1, 2), random_shuffle=True)) as pipe:
        assert np.bincount(read(pipe, 4 * COUNT)).tolist() == [4] * COUNT


@pytest.mark.parametrize("index_name", INDICES)
def test_shards_and_checkpoints(folder, small_blocks, index_name):
    def shard(shard_id, **arguments):
        index_path = index_name and folder / index_name
        return pipe_of(
            folder / "GZIP",
            index_path,
            random_shuffle=True,
            num_shards=3,
            shard_id=shard_id,
            stick_to_shard=True,
            **arguments,
        )

    epoch = []
    for shard_id in range(3):
        with contextlib.closing(shard(shard_id)) as pipe:
            numbers = read(pipe, COUNT // 3)
        epoch += numbers
        with contextlib.closing(shard(shard_id)) as pipe:
            read(pipe, 30)
            state = pipe.checkpoint()
        with contextlib.closing(shard(shard_id, checkpoint=state)) as pipe:
            assert read(pipe, COUNT // 3 - 30) == numbers[30:]
    assert sorted(epoch) == [*range(COUNT)]


@pytest.mark.parametrize("kind", ["GZIP", "ZLIB"])
def test_files_of_tensorflow(tmp_path, kind):
    recorded = json.loads(lzma.decompress((places.DATA / "tf_examples.json.xz").read_bytes()))["files"]
    (tmp_path / "x").write_bytes(base64.b64decode(recorded[kind]))

    @pipeline_def(batch_size=20, num_threads=1)
    def pipeline():
        features = {"label": FEATURES["label"], "text": FEATURES["data"]}
        outputs = fn.readers.tfrecord(path=tmp_path / "x", features=features, compression_type=kind)
        return outputs["label"], outputs["text"]

    label, text = pipeline().run()
    assert label.as_array().ravel().tolist() == [*range(20)]
    assert [np.asarray(text[i]).tobytes() for i in range(20)] == [str(i).encode() * 1000 * i for i in range(20)]


def test_metadata_are_of_the_decompressed_file(folder, small_blocks):
    @pipeline_def(batch_size=COUNT, num_threads=1)
    def pipeline():
        features = {"label": FEATURES["label"]}
        outputs = fn.readers.tfrecord(path=folder / "ZLIB", features=features, metadata=["offset", "data", "filename"])
        return tuple(outputs[name] for name in ("offset", "data", "filename"))

    offsets, data, names = pipeline().run()
    assert list(offsets) == np.loadtxt(folder / "x.idx", int)[:, 0].tolist()
    assert [x.encode() if isinstance(x, str) else x for x in data] == [payload(i) for i in range(COUNT)]
    assert set(names) == {str(folder / "ZLIB")}


# --- indices --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", COMPRESS)
def test_indices_equal_indices_of_plain_files(folder, tmp_path, capsys, kind):
    assert index.main([str(folder / kind), "-o", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/{kind}.idx: {COUNT} records\n"
    assert (tmp_path / f"{kind}.idx").read_text() == (folder / "x.idx").read_text()


@pytest.mark.parametrize("count", [1, COUNT, COUNT + 1])
def test_indices_beside_compressed_files_are_not_used(folder, tmp_path, count):
    """Nothing tells whether one lists all records: the decompressed size is not known."""
    (tmp_path / "x").write_bytes((folder / "GZIP").read_bytes())
    lines = (folder / "x.idx").read_text().splitlines(keepends=True)
    lines.append(f"{sum(map(int, lines[-1].split()))} 50\n")
    (tmp_path / "x.idx").write_text("".join(lines[:count]))
    message = (
        rf"{tmp_path}/x\.idx can't be compared with its compressed file: it is made in memory.*; index_path= uses it"
    )
    with pytest.warns(UserWarning, match=message) as said, contextlib.closing(pipe_of(tmp_path / "x")) as pipe:
        assert read(pipe, 2 * COUNT) == [*range(COUNT)] * 2
    assert "jaxdali.index writes" not in "".join(str(w.message) for w in said)


def test_advice_on_indices_of_compressed_files(folder):
    """Without index_path=, the index that the command writes would not be used."""
    message = r"no index of .*GZIP: .*writes it to a file, which index_path= has to name$"
    with pytest.warns(UserWarning, match=message), contextlib.closing(pipe_of(folder / "GZIP")) as pipe:
        pipe.build()


def test_compressed_archives_have_no_index(tmp_path, capsys):
    c.write_tar(tmp_path / "x.tar", [("0.cls", b"1")])
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress((tmp_path / "x.tar").read_bytes()))
    assert index.main([str(tmp_path / "x.tar.gz")]) == 1
    assert f"{tmp_path}/x.tar.gz: it is compressed by GZIP" in capsys.readouterr().err


def test_wrong_indices_are_errors(folder, tmp_path, small_blocks):
    lines = (folder / "x.idx").read_text().splitlines(keepends=True)
    (tmp_path / "gap").write_text("".join(lines[:5] + lines[6:]))
    with pytest.raises(RuntimeError, match=r"gap, record 5: .* each record must begin where the one before ends"):
        labels(
            lambda: fn.readers.tfrecord(path=folder / "GZIP", index_path=tmp_path / "gap", features=FEATURES)["label"]
        )
    end = sum(map(int, lines[-1].split()))
    (tmp_path / "long").write_text("".join([*lines, f"{end} 50\n", f"{end + 50} 5000\n", f"{end + 5050} 50\n"]))

    def define():
        return fn.readers.tfrecord(path=folder / "GZIP", index_path=tmp_path / "long", features=FEATURES)["label"]

    values, errors, _ = labels(define, COUNT + 3)
    missing = values.index(None)  # the first record of the last block
    assert missing > COUNT - 20
    assert values == [[i] for i in range(missing)] + [None] * (COUNT + 3 - missing)
    assert f"the decompressed file ends at {end}, before" in errors[0]


# --- faults ---------------------------------------------------------------------------------------------------------


def label_of(path, **arguments):
    return lambda: fn.readers.tfrecord(path=path, features={"label": FEATURES["label"]}, **arguments)["label"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-100], "its GZIP data are cut off: they end after"),
        (lambda data: data[:-1], "its GZIP data are cut off"),
        (lambda data: data[:-8] + b"XXXX" + data[-4:], r"its GZIP data are damaged after \d+ decompressed bytes \(incorrect data check\)"),
        (lambda data: data + b"more", r"its GZIP data are damaged after \d+ decompressed bytes \(incorrect header check\)"),
        (lambda data: data[:5000] + bytes(300) + data[5300:], r"(its GZIP data are damaged|record \d+)"),
        (lambda data: gzip.compress(gzip.decompress(data)[:-3]), "record 299 at index .* the file ends"),
        (lambda data: gzip.compress(gzip.decompress(data) + b"\1"), "record 300 at index .* the file ends 1 bytes later"),
        (lambda data: gzip.compress(bytes(1 << 24)), "record 0 at index 0 has no data, and no checksum"),
        (lambda data: gzip.compress(b"a text"), "record 0 at index 0 .* not a TFRecord file"),
        (lambda data: gzip.compress(b"\xff" * 40), "record 0 at index 0 .* not a TFRecord file"),
    ],
)  # fmt: skip
def test_damaged_files_are_refused(folder, tmp_path, small_blocks, change, message):
    (tmp_path / "x").write_bytes(change((folder / "GZIP").read_bytes()))
    with pytest.raises(RuntimeError, match=f"{tmp_path}/x: {message}"):
        labels(label_of(tmp_path / "x"))


def test_damage_fails_the_records_behind_it(folder, tmp_path, small_blocks):
    (tmp_path / "x").write_bytes((folder / "GZIP").read_bytes()[:-300])
    arguments = {"index_path": folder / "x.idx"}
    values, errors, _ = labels(label_of(tmp_path / "x", **arguments), COUNT)
    bad = values.index(None)
    assert 200 < bad < COUNT - 1
    assert values == [[i] for i in range(bad)] + [None] * (COUNT - bad)
    assert all("its GZIP data are cut off" in e and f"{tmp_path}/x" in e for e in errors)
    _, errors, reports = labels(label_of(tmp_path / "x", on_error="replace", **arguments), 20, 15)
    assert not errors
    assert sum(r.count for r in reports) == COUNT - bad


def test_the_checksum_of_the_file_is_compared(folder, tmp_path, small_blocks):
    """GZIP's checksum stands behind the last record: with an index, the last block fails."""
    content = (folder / "GZIP").read_bytes()
    (tmp_path / "x").write_bytes(content[:-8] + b"XXXX" + content[-4:])
    values, errors, _ = labels(label_of(tmp_path / "x", index_path=folder / "x.idx"), COUNT)
    assert COUNT - 20 < values.index(None) < COUNT
    assert "incorrect data check" in errors[-1]


def test_mutants_are_read_or_refused(folder, tmp_path, small_blocks):
    """Bytes of files and digits of indices change. A record is an error of its own, or has its bytes."""
    rng, index_text = random.Random(0), (folder / "x.idx").read_bytes()
    sources = {kind: (folder / kind).read_bytes() for kind in COMPRESS}
    counts = {"read": 0, "refused": 0, "files": 0}
    for _ in range(150):
        kind = rng.choice([*COMPRESS])
        content, lines = bytearray(sources[kind]), bytearray(index_text)
        for _ in range(rng.randrange(1, 4)):
            if rng.random() < 0.7:
                content[rng.randrange(len(content))] = rng.randrange(256)
            else:
                lines[rng.randrange(len(lines))] = rng.choice(b"0123456789 ")
        (tmp_path / "x").write_bytes(content[: rng.choice([len(content), rng.randrange(len(content))])])
        (tmp_path / "i").write_bytes(lines)
        known = "ZLIB" if kind == "ZLIB" else "GZIP"
        files = Files.of(tmp_path / "x", None, compressions=("GZIP", "ZLIB"), known=known)
        try:
            extents = compressed_extents.CompressedExtents("x", files, [rng.choice([None, tmp_path / "i"])])
        except RuntimeError:
            counts["files"] += 1
            continue
        for i in rng.sample(range(len(extents)), min(len(extents), 20)):
            try:
                assert len(extents.fetched(i)) == extents.table[i, 1]
                counts["read"] += 1
            except OSError:
                counts["refused"] += 1
    assert min(counts.values()) > 50


def test_failing_remote_lists_leave_no_threads(folder, own_threads, monkeypatch):
    monkeypatch.setattr("jaxdali._data.request_threads._IDLE", 1000)  # idle threads don't end by themselves
    Faulty = pytest.importorskip("faulty").Faulty
    Faulty.start({"data/x": (folder / "GZIP").read_bytes(), "data/i": b"0 8\n99 8\n", "data/j": b"text"})
    for compression, index_path in (("GZIP", "i"), ("GZIP", "j"), ("", "j")):
        pipe = pipe_of("faulty://data/x", f"faulty://data/{index_path}", compression_type=compression)
        with pytest.raises(RuntimeError, match=f"faulty://data/{index_path}"):
            pipe.build()
        own_threads.end()


def test_wrong_checksums_of_records_are_errors(folder, tmp_path, small_blocks):
    (tmp_path / "plain").write_bytes((folder / "plain").read_bytes())
    damage(tmp_path / "plain", np.loadtxt(folder / "x.idx", int)[9, 0] + 14, b"\xff\xfe")
    (tmp_path / "x").write_bytes(zlib.compress((tmp_path / "plain").read_bytes()))
    values, errors, _ = labels(label_of(tmp_path / "x"), 12)
    assert [i for i, x in enumerate(values) if x is None] == [9]
    assert "its checksum (CRC) is wrong" in errors[0]


def test_large_records_are_not_decompressed(tmp_path, small_blocks):
    """A record of 300 MB has 300 KB in the file. It is passed, but never in memory."""
    import resource

    examples = [c.example({"label": [i]}) for i in range(3)]
    frame = lambda data: (
        len(data).to_bytes(8, "little") + c.masked(len(data).to_bytes(8, "little")) + data + c.masked(data)
    )
    size = (300 << 20).to_bytes(8, "little")
    with gzip.open(tmp_path / "x", "wb", compresslevel=1) as f:
        f.write(frame(examples[0]) + size + c.masked(size))
        for _ in range(300):
            f.write(bytes(1 << 20))
        f.write(bytes(4) + frame(examples[1]) + frame(examples[2]))
    first_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    values, errors, _ = labels(label_of(tmp_path / "x", storage=Storage(max_record_bytes=1 << 20)), 4)
    assert values == [[0], None, [1], [2]]
    assert "it would take 314572816 bytes, Storage(max_record_bytes=1048576) allows no more" in errors[0]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - first_peak < 100_000  # KB


def test_changed_files_are_errors(folder, tmp_path, small_blocks):
    path = tmp_path / "x"
    path.write_bytes((folder / "GZIP").read_bytes())
    with contextlib.closing(pipe_of(path, batch_size=1)) as pipe:
        read(pipe, 1)
        os.utime(path, ns=(1, 1))
        with pytest.raises(SampleError, match="the file has changed since the pipeline was built"):
            read(pipe, COUNT)


def test_compression_type_is_checked(folder):
    for path, kind, message in (
        ("plain", "GZIP", "it is not compressed by GZIP, or damaged"),
        ("ZLIB", "GZIP", "it is not compressed by GZIP, or damaged"),
        ("GZIP", "ZLIB", "it is not compressed by ZLIB, or damaged"),
    ):
        with pytest.raises(RuntimeError, match=f"{folder}/{path}: {message}"):
            labels(label_of(folder / path, compression_type=kind))
    for path in ("plain", "GZIP"):
        assert labels(label_of(folder / path, compression_type=""), 2)[0] == [[0], [1]]
    with pytest.raises(ValueError, match="compression_type"):
        labels(label_of(folder / "GZIP", compression_type="BZ2"))  # pyright: ignore[reportArgumentType]


def test_remote_files(folder, small_blocks):
    files = pytest.importorskip("fsspec").filesystem("memory")
    for name, path in (("x.gz", "GZIP"), ("x", "ZLIB"), ("x.idx", "x.idx")):
        files.pipe_file(f"/compressed/{name}", (folder / path).read_bytes())
    url = "memory://compressed/"
    for name, kind in (("x.gz", None), ("x", "ZLIB")):
        arguments = {"compression_type": kind, "shuffle": "global"}
        with contextlib.closing(pipe_of(url + name, url + "x.idx", **arguments)) as pipe:
            first, second = read(pipe, COUNT), read(pipe, COUNT)
        assert sorted(first) == sorted(second) == [*range(COUNT)]
    with pytest.raises(RuntimeError, match=r"no index of memory://compressed/x.gz: python -m jaxdali\.index makes it"):
        labels(label_of(url + "x.gz"))
    files.pipe_file("/compressed/x.gz.idx", (folder / "x.idx").read_bytes())
    with pytest.raises(
        RuntimeError, match=r"x\.gz\.idx can't be compared with its compressed file: index_path= uses it"
    ):
        labels(label_of(url + "x.gz"))
