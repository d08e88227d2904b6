"""Data sets that are damaged, changed or unreadable: an error that names file and record, or another record."""

import collections
import dataclasses
import gc
import io
import json
import os
import pathlib
import re
import resource
import shutil
import tarfile
import tempfile
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import containers
import numpy as np
import pytest
from data_sets import MAKERS, READERS, SIZE, Shards, failing, nodes_in, replaced
from faulty import Faulty
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jaxdali
from jaxdali import fn, pipeline_def

NONE = "/nowhere/there is none"


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("file", {"file_root": NONE}, f"can't list file_root {NONE}"),
        ("file", {"file_list": NONE}, f"can't read file_list {NONE}"),
        ("file", {"files": [NONE]}, NONE),
        ("numpy", {"file_root": NONE}, f"can't list file_root {NONE}"),
        ("numpy", {"files": [NONE]}, f"can't read {NONE}"),
        ("coco", {"file_root": ".", "annotations_file": NONE}, f"can't read annotations_file {NONE}"),
        ("mxnet", {"path": NONE, "index_path": NONE}, f"can't open path {NONE}"),
        ("webdataset", {"paths": NONE, "ext": "jpg"}, f"can't open paths {NONE}"),
        ("caffe", {"path": NONE}, f"can't open the LMDB database {NONE}"),
        ("zip", {"path": NONE}, f"can't open path {NONE}"),
        ("nemo_asr", {"manifest_filepaths": [NONE]}, f"can't read the manifest {NONE}"),
    ],
)
def test_missing_files_are_named_once(name, arguments, problem):
    """The error names file, operator, argument and line once, without the tracebacks of the errors behind it."""

    @pipeline_def(batch_size=1, num_threads=1)
    def pipeline():
        nodes = getattr(fn.readers, name)(**arguments)
        return tuple(nodes) if isinstance(nodes, list) else (nodes,)

    with pytest.raises(jaxdali.OperatorError) as e:
        pipeline().run()
    assert re.fullmatch(
        rf"readers\.{name} \(created at {re.escape(__file__)}:\d+\): {problem}: No such file or directory", str(e.value)
    )
    assert "".join(traceback.format_exception(e.value)).count("Traceback") == 1


@pytest.mark.parametrize("argument", ["file_root", "file_list", "files"])
def test_missing_relative_paths_have_a_folder(argument, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = f"none: No such file or directory (the path is relative to {tmp_path})"
    with pytest.raises(jaxdali.OperatorError, match=rf"{re.escape(text)}$"):
        pipeline_def(lambda: fn.readers.file(**{argument: "none"})[0], batch_size=1, num_threads=1)().run()


@pytest.mark.parametrize("name", [name for name in READERS if MAKERS[name].urls])
def test_no_permission_is_said_at_once(data_sets, name):
    """The store's error comes when the list is made, or for the record; the store is not asked again."""
    data_sets(name)  # before its files are copied
    arguments = {**data_sets.remote(name), "storage": jaxdali.Storage(read_ahead=0)}
    Faulty.fault = staticmethod(lambda file, number: PermissionError(13, "Permission denied"))
    try:
        _, errors = failing(name, arguments)
    except RuntimeError as e:
        errors = [str(e)]
    assert errors
    for e in errors:
        assert re.search(rf"readers.{name}.*faulty://.*Permission denied", e)
    assert max(collections.Counter(Faulty.requests).values()) == 1


@pytest.mark.parametrize("name", READERS)
def test_no_permission_for_files(data_sets, name):
    """Local files without permission to read. Root may read them anyway, so the test drops root's rights."""
    source = data_sets(name)
    with tempfile.TemporaryDirectory() as top:
        shutil.copytree(data_sets.folder(name), f"{top}/{name}")
        arguments = replaced(source, str(data_sets.folder(name)), f"{top}/{name}")
        assert failing(name, source, 1) == (1, [])  # also imports what is needed
        for path in [p for p in pathlib.Path(top).rglob("*") if p.is_file()]:
            path.chmod(0)
        pathlib.Path(top).chmod(0o755)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            good, errors = failing(name, arguments)
        except RuntimeError as e:
            good, errors = 0, [str(e)]
        finally:
            os.seteuid(user)
        assert (good, bool(errors)) == (0, True)
        for e in errors:
            assert all(text in e for text in (f"readers.{name}", f"{top}/{name}", "Permission denied"))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("name", ["array_record", "mxnet", "parquet", "tfrecord", "webdataset", "zip"])
def test_other_than_files_are_refused_at_once(data_sets, tmp_path, name, make):
    make(path := tmp_path / "x")
    arguments = {k: [str(path)] if k in ("path", "paths") else v for k, v in data_sets(name).items()}
    with pytest.raises(RuntimeError, match=f"{path}.*it is no regular file"):
        Shards(name, arguments, 0, 1)


@pytest.mark.parametrize("reader", ["file", "numpy"])
@pytest.mark.parametrize("position", [0, 1])
def test_a_pipe_in_place_of_a_file(tmp_path, reader, position):
    paths = [tmp_path / "0.npy", tmp_path / "1.npy"]
    os.mkfifo(paths[position])
    np.save(paths[1 - position], np.zeros(3))

    @pipeline_def(batch_size=2, num_threads=1)
    def define():
        return getattr(fn.readers, reader)(files=list(map(str, paths)))

    with pytest.raises(RuntimeError, match=f"{paths[position]}: it is no regular file"):
        define().run()


LONG = "x" * 10_000_000
IMAGE = {"id": 1, "file_name": "a.jpg", "width": 4, "height": 4}


def list_of(content: str) -> Callable[[pathlib.Path], Any]:
    return lambda folder: {"file_list": write(folder / "list.txt", content)}


def coco(content: Any) -> Callable[[pathlib.Path], Any]:
    """Annotations: the images, or a text."""
    text = content if isinstance(content, str) else json.dumps({"images": content, "categories": [], "annotations": []})
    return lambda folder: {"file_root": str(folder), "annotations_file": write(folder / "a.json", text)}


def manifest(content: str) -> Callable[[pathlib.Path], Any]:
    return lambda folder: {"manifest_filepaths": write(folder / "m.json", content)}


def index(content: str) -> Callable[[pathlib.Path], Any]:
    """An index of an archive."""
    return lambda folder: {
        "paths": str(containers.write_tar(folder / "a.tar", [("a.jpg", b"x")])),
        "index_paths": write(folder / "a.idx", content),
        "ext": "png",
        "missing_component_behavior": "skip",
    }


def write(path: pathlib.Path, content: str) -> str:
    path.write_text(content)
    return str(path)


@pytest.mark.parametrize(
    ("name", "make", "file", "text"),
    [
        ("file", list_of(LONG), "list.txt, line 1", "expected a file name"),
        ("file", list_of(f"a {'9' * 10_000}"), "list.txt, line 1", "expected a file name"),
        ("file", list_of(f"{LONG} 1"), "list.txt", "10000000 characters"),
        ("video", list_of(f"{LONG} x"), "list.txt, line 1", "expected a file name"),
        ("coco", coco("[" * 100_000), "a.json", "RecursionError"),
        ("coco", coco(LONG), "a.json", "JSONDecodeError"),
        ("coco", coco([{**IMAGE, "file_name": LONG}]), "a.json", "10000000 characters"),
        ("coco", coco([{**IMAGE, "file_name": [LONG]}]), "a.json", "the file_name of an image is"),
        ("coco", coco([{**IMAGE, "width": LONG}]), "a.json", "could not convert"),
        ("nemo_asr", manifest('{"a": ' * 100_000), "m.json: entry 0", "RecursionError"),
        ("nemo_asr", manifest(json.dumps({"audio_filepath": "a", "offset": 10**400})), "m.json: entry 0", "too large"),
        ("webdataset", index(f"v1.2 1\n{LONG[:1_000_000]} 512 1 a\n"), "a.tar", "there are no samples"),
    ],
)
def test_messages_name_file_and_stay_short(tmp_path, name, make, file, text):
    """Reader and file, but not more than the beginning of what is wrong."""
    arguments = {"sequence_length": 2} if name == "video" else {}

    @pipeline_def(batch_size=1, num_threads=1)
    def pipeline():
        return tuple(nodes_in(getattr(fn.readers, name)(**make(tmp_path), **arguments)))

    with pytest.raises(jaxdali.OperatorError, match=text) as e:
        pipeline().run()
    assert re.match(rf"readers\.{name} .*{re.escape(str(tmp_path))}/{file}", str(e.value))
    assert len(str(e.value)) < 900
    assert len("".join(traceback.format_exception(e.value))) < 20_000


@pytest.fixture
def few_descriptors():
    """Limits the process to three hundred more open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 300, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("name", ["file", "webdataset"])
def test_batches_may_exceed_the_open_files(tmp_path, pool, few_descriptors, name):
    n, sizes = 400, [100, 40_000]  # the second is read when its place is known
    content = [bytes([i % 251]) * sizes[i % 2] for i in range(n)]
    for i, data in enumerate(content):
        if name == "file":
            (tmp_path / f"{i:03}").write_bytes(data)
        else:
            with tarfile.open(tmp_path / f"{i:03}.tar", "w") as f:
                member = tarfile.TarInfo("a.x")
                member.size = len(data)
                f.addfile(member, io.BytesIO(data))
    files = sorted(map(str, tmp_path.iterdir()))

    with warnings.catch_warnings(action="ignore"):  # indices are made
        shards = Shards(name, {"files": files} if name == "file" else {"paths": files, "ext": ["x"]}, pool, 4)
    contents = [record[0] for rows in shards.read(n // 4) for _, _, record in rows]
    shards.close()
    assert contents == content


# Damage of a data set: (kind, number of the file, position in it in 1/10000, value).
KINDS = ["bit", "byte", "cut", "out", "twice", "zeros", "grow"]
damage = st.tuples(st.sampled_from(KINDS), st.integers(0, 99), st.integers(0, 9999), st.integers(0, 255))
CHECKED = {"array_record", "tfrecord", "zip"}  # the first output has a checksum, so damage never changes it


def spoil(data: bytearray, kind: str, at: int, value: int):
    match kind:
        case "bit":
            data[at] ^= 1 << value % 8
        case "byte":
            data[at] = value
        case "cut":
            del data[at:]
        case "out":
            del data[at : at + 1 + value % 16]
        case "twice":
            data[at:at] = data[at : at + 1 + value % 16]
        case "zeros":
            data[at : at + value] = bytes(len(data[at : at + value]))
        case "grow":
            data += bytes([value]) * (1 + value % 16)


@pytest.mark.filterwarnings("ignore::UserWarning")
# LMDB's library trusts its pages: the messages in them are damaged by ffi/fuzz/fuzz_records.cc.
@pytest.mark.parametrize("name", [name for name in READERS if not name.startswith("caffe")])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged=damage, end=st.booleans())
def test_damage_is_an_error_or_another_record(data_sets, pool, name, damaged, end):
    kind, file_number, position, value = damaged
    arguments = data_sets(name)
    top = pathlib.Path(data_sets.folder(name))
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(top, copy, dirs_exist_ok=True)
        files = sorted(p for p in pathlib.Path(copy).rglob("*") if p.is_file() and p.stat().st_size)
        path = files[file_number % len(files)]
        data = bytearray(path.read_bytes())
        first = len(data) * 49 // 50 if end else 0  # tables are at the end of many a container
        spoil(data, kind, first + (len(data) - first) * position // 10000, value)
        path.write_bytes(data)

        def names_a_file(text: str) -> bool:  # perhaps one that a damaged manifest names
            of_manifest = path.suffix == ".json" and re.search(
                r"/\S+: (No such file|Is a directory|it can't be decoded)", text
            )
            return copy in text or any(p.name in text for p in files) or of_manifest is not None

        try:
            shards = Shards(name, replaced(arguments, str(top), copy), pool, 1)
        except RuntimeError as e:
            assert names_a_file(str(e)), e  # noqa: PT017
            return
        records = set()
        for _ in range(SIZE):
            failed: dict[int, str] = {}
            (((_, _, record),),) = shards.read(1, failed)
            assert all(map(names_a_file, failed.values())), failed
            records |= {record[0]} if not failed else set()
        shards.close()
        if name in CHECKED and path.suffix != ".idx":
            (expected,) = Shards(name, arguments, pool, 1).epochs(1, 1)
            assert records <= {x[2][0] for x in expected}


# --- readers and faults ---------------------------------------------------------------------------------------------


def truncate_file(path: pathlib.Path):
    os.truncate(path, path.stat().st_size * 3 // 4)


def extend_file(path: pathlib.Path):
    with open(path, "ab") as f:
        f.write(b"more")


def remove_file(path: pathlib.Path):
    path.unlink()


def flip_byte(path: pathlib.Path):
    """Flips a bit in the data of record 5 or 1, or, if these are compressed, in the middle of the file."""
    content = bytearray(path.read_bytes())
    content[
        next((found_at for i in (5, 1) if (found_at := content.find(b"record %d " % i)) >= 0), len(content) // 2)
    ] ^= 1
    path.write_bytes(content)


def replace_by_text(path: pathlib.Path):
    path.write_text("no index\n")


def use_other_index(path: pathlib.Path):
    """Replaces the index of a container by that of the next one."""
    shutil.copy(path.with_name({"2.idx": "11.idx", "1.idx": "2.idx"}[path.name]), path)


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault of a data set of `data_sets`, which has 23 records; the second container has the records 2 to 10.

    Attributes:
      readers: the names of the readers.
      do: damages the file.
      path: the file; "": that of `PATHS`.
      why: a pattern of the errors' messages.
      lost: the records that are errors then; None: making the list raises RuntimeError.
      meanwhile: whether it happens when two records have been read, instead of before.
    """

    readers: str
    do: Callable[[pathlib.Path], object]
    path: str
    why: str
    lost: Sequence[int] | None = None
    meanwhile: bool = False


SECOND = range(2, 11)
PATHS = {
    "array_record": "1.array_record", "caffe": "2/data.mdb", "caffe2": "2/data.mdb", "coco": "5.jpg", "file": "class 2/005.jpg",
    "mxnet": "2.rec", "nemo_asr": "5.wav", "numpy": "005.npy", "parquet": "1.parquet", "tfrecord": "2", "webdataset": "1.tar",
    "video": "1.mp4", "zip": "1.zip",
}  # fmt: skip
CHANGED, OUTSIDE = (
    "the file has changed since the pipeline was built",
    "it lies outside the file, which has .* or the file is truncated",
)
FAULTS = [
    Fault("tfrecord mxnet", truncate_file, "", OUTSIDE, [8, 9, 10]),
    Fault("webdataset", truncate_file, "", OUTSIDE, [9, 10]),
    Fault("numpy", truncate_file, "", "it is shorter than its header says", [5]),
    Fault("nemo_asr", truncate_file, "", "5.wav: it can't be decoded: Error in WAV file", [5]),
    Fault("caffe caffe2", truncate_file, "", "data.mdb is truncated"),
    Fault("array_record", truncate_file, "", r"not an ArrayRecord file, or it is cut off"),
    Fault("parquet", truncate_file, "", "magic bytes not found"),
    Fault("zip", truncate_file, "", "not a zip file"),
    Fault("tfrecord", flip_byte, "", r"2 at index \d+: .*its checksum \(CRC\) is wrong", [5]),
    Fault("array_record", flip_byte, "", "the checksum of a chunk is wrong", [4, 5]),
    Fault("zip", flip_byte, "0.zip", r"0.zip/class 1/1.txt \(at \d+\): its checksum is wrong", [1]),
    Fault("tfrecord mxnet", replace_by_text, "2.idx", r"2.idx, line 1: expected two whole numbers, got b'no index"),
    Fault("webdataset", replace_by_text, "1.idx", r"1.idx is not an index of a tar archive"),
    Fault("tfrecord", use_other_index, "2.idx", "2 at index .*the index is of another file", range(2, 14)),
    Fault(
        "mxnet",
        use_other_index,
        "2.idx",
        "it ends early|no record begins there: the index is of another file|outside",
        range(2, 14),
    ),
    Fault("webdataset", use_other_index, "1.idx", "1.tar:.*(the index is of another file|outside)", range(2, 14)),
    Fault("tfrecord mxnet webdataset caffe caffe2 parquet", truncate_file, "", CHANGED, SECOND, True),
    Fault("tfrecord mxnet webdataset caffe caffe2 parquet", extend_file, "", CHANGED, SECOND, True),
    Fault("video", truncate_file, "", CHANGED, SECOND, True),
    Fault(
        "tfrecord mxnet webdataset caffe caffe2 parquet array_record video zip",
        remove_file,
        "",
        "No such file",
        SECOND,
        True,
    ),
    Fault("numpy", truncate_file, "", "it is shorter than its header says", [5], True),
    Fault("nemo_asr", truncate_file, "", "5.wav: it can't be decoded: Error in WAV file", [5], True),
    Fault("file", remove_file, "", "005.jpg: No such file", [17], True),
    Fault("coco nemo_asr numpy", remove_file, "", "No such file", [5], True),
]
CASES = [(name, fault) for fault in FAULTS for name in fault.readers.split()]


@pytest.mark.parametrize(
    ("name", "fault"), CASES, ids=[f"{n}-{f.do.__name__}{'-meanwhile' * f.meanwhile}" for n, f in CASES]
)
def test_faults_are_errors_of_their_records(data_sets, name, fault):
    """Each error names the reader and the file, and all other records are read.

    With "replace" other records take their place, with "skip" none; both report them.
    """
    whole = [record for record, _ in records_of(name, data_sets(name))[0]]
    assert None not in whole
    for on_error in ("raise", "replace", "skip"):
        with tempfile.TemporaryDirectory() as top:
            shutil.copytree(data_sets.folder(name), top, dirs_exist_ok=True)
            for manifest in pathlib.Path(top).glob("manifest.json"):
                manifest.write_text(manifest.read_text().replace(str(data_sets.folder(name)), top))
            arguments = {**replaced(data_sets(name), str(data_sets.folder(name)), top), "on_error": on_error}
            path = pathlib.Path(top) / (fault.path or PATHS[name])
            if not fault.meanwhile:
                fault.do(path)
            if fault.lost is None:
                with pytest.raises(RuntimeError, match=f"readers.{name} .*{top}.*{fault.why}"):
                    records_of(name, arguments)
                continue
            results, bad = records_of(name, arguments, (lambda path=path: fault.do(path)) if fault.meanwhile else None)
        errors = {i: error for i, (record, error) in enumerate(results) if record is None}
        if on_error == "raise":
            assert sorted(errors) == list(fault.lost)
            file = re.escape(path.name if not fault.path else pathlib.Path(PATHS[name]).name)
            assert all(
                re.search(rf"readers.{name} .*({top}|{file}).*({fault.why})", error, re.S) for error in errors.values()
            ), errors
            unaffected = [record for i, (record, _) in enumerate(results) if i not in fault.lost]
            assert all(record in whole for record in unaffected)
            assert len({*unaffected}) == len(unaffected)
        else:
            assert (sorted(errors), {*errors.values()}) == (
                (list(fault.lost), {"left out"}) if on_error == "skip" else ([], set())
            )
            assert {record for record, _ in results} - {None} <= {*whole}
            assert sum(b.count for b in bad) == len(fault.lost)
            assert all(re.search(fault.why, f"{b.file}: {b.reason}") for b in bad)


def records_of(
    name: str, arguments: dict[str, Any], meanwhile: Callable[[], object] | None = None
) -> tuple[list[tuple[Any, str]], Any]:
    """For each record of an epoch its first output and "", or None and the error (or "left out"); and `bad_samples`."""

    @pipeline_def(batch_size=1, num_threads=1, prefetch_queue_depth=1)
    def pipeline():
        return tuple(nodes_in(getattr(fn.readers, name)(**arguments)))

    pipe = pipeline(exec_pipelined=False, exec_async=False)
    results, size = [], SIZE
    while len(results) < size:
        if len(results) == 2 and meanwhile is not None:
            meanwhile()
        try:
            output = pipe.run()[0]
            results.append((np.asarray(output[0]).tobytes(), "") if len(output) else (None, "left out"))
        except jaxdali.SampleError as e:
            results.append((None, str(e)))
        size = pipe.epoch_size()[next(iter(pipe.epoch_size()))]
    bad = pipe.bad_samples()
    pipe.close()
    del pipe
    gc.collect()  # LMDB's environments end with what refers to them
    return results, bad
