"""fn.io.file.read: files whose paths are data."""

import numpy as np
import pytest
from pipelines import run

from jaxdali import Pipeline, SampleError, Storage, fn, pipeline_def


def encoded(path):
    return np.frombuffer(str(path).encode(), np.uint8)


def test_paths_are_data(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"first")
    (tmp_path / "ä b").write_bytes(b"the second")
    (tmp_path / "empty").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    paths = [tmp_path / "ä b", "a", f"file://{tmp_path}/a", tmp_path / "empty", "a\0 and more", "a"]
    (contents,) = run(fn.io.file.read, [encoded(p) for p in paths])
    assert [np.asarray(x).tobytes() for x in contents] == [b"the second", b"first", b"first", b"", b"first", b"first"]
    (contents,) = run(fn.io.file.read, [encoded("a").astype(np.int8)])
    assert np.asarray(contents[0]).tobytes() == b"first"


def test_other_types_are_refused():
    for x, actual in ((np.zeros((1, 2), np.uint8), "2-D uint8"), (np.zeros(2, np.int32), "1-D int32")):
        with pytest.raises(TypeError, match=f"io.file.read.*paths as 1-D uint8, got {actual}"):
            run(fn.io.file.read, [x])


def test_missing_files_fail_alone(tmp_path):
    (tmp_path / "a").write_bytes(b"first")
    names = iter([f"{tmp_path}/a", f"{tmp_path}/none", f"{tmp_path}/a"])
    pipe = Pipeline(
        batch_size=1, num_threads=1, device_id=None, prefetch_queue_depth=1, exec_async=False, exec_pipelined=False
    )
    with pipe:
        pipe.set_outputs(fn.io.file.read(fn.external_source(lambda: encoded(next(names)), batch=False)))
    assert np.asarray(pipe.run()[0][0]).tobytes() == b"first"
    with pytest.raises(SampleError, match=rf"io.file.read.*{tmp_path}/none: No such file or directory"):
        pipe.run()
    assert np.asarray(pipe.run()[0][0]).tobytes() == b"first"


def test_branches_read_their_samples_only(tmp_path):
    (tmp_path / "a").write_bytes(b"first")

    @pipeline_def(batch_size=2, num_threads=1, device_id=None, enable_conditionals=True)
    def pipeline():
        paths = fn.external_source(lambda: [encoded(tmp_path / "a"), encoded(tmp_path / "none")], batch=True)
        good = fn.external_source(lambda: [np.array(True), np.array(False)], batch=True)
        if good:
            x = fn.io.file.read(paths)
        else:
            x = paths[:3]
        return x

    (contents,) = pipeline().run()
    assert [np.asarray(x).tobytes() for x in contents] == [b"first", encoded(tmp_path).tobytes()[:3]]


def test_urls(monkeypatch):
    pytest.importorskip("fsspec")
    monkeypatch.setattr("jaxdali._data.request_threads._IDLE", 0.01)  # the pipelines stay open
    Faulty = __import__("faulty").Faulty
    Faulty.start(
        {"data/a": b"first", "data/b": b"second"},
        fault=lambda name, number: ConnectionResetError() if number == 0 else None,
    )
    paths = [encoded(f"faulty://data/{n}") for n in "abba"]
    (contents,) = run(lambda x: fn.io.file.read(x, storage=Storage(retries=2)), paths)
    assert [np.asarray(x).tobytes() for x in contents] == [b"first", b"second", b"second", b"first"]
    with pytest.raises(SampleError, match=r"faulty://data/c: No such file"):
        run(fn.io.file.read, [encoded("faulty://data/c"), paths[0]])
    with pytest.raises(SampleError, match=r"allow_chained=True"):
        run(fn.io.file.read, [encoded("simplecache::faulty://data/a")])
