"""Storage: listing, reading, retries, read-ahead, the cache on disk; and readers that use it."""

import inspect
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import jaxdali
from jaxdali import SampleError, fn, pipeline_def
from jaxdali._data.disk_cache import DiskCache
from jaxdali._data.files import Files
from jaxdali._data.ranges import Ranges
from jaxdali._data.request_threads import RequestThreads
from jaxdali._data.storage import ByteRange, Store

fsspec = pytest.importorskip("fsspec")
Faulty = __import__("faulty").Faulty

NAMES = [f"{c}/{i:02}.jpg" for c in "ab" for i in range(20)]
CONTENT = {f"data/{n}": f"content of {n}".encode() * (1 + i % 3) for i, n in enumerate(NAMES)}


@pytest.fixture(autouse=True)
def no_thread_remains(own_threads):
    yield
    assert not own_threads("jaxdali-storage")


def reader(batch_size=4, seed=7, **kwargs):
    @pipeline_def(batch_size=batch_size, num_threads=2, seed=seed, enable_statistics=True)
    def pipeline():
        return fn.readers.file(name="reader", **{"file_root": "faulty://data"} | kwargs)

    return pipeline()


def take(pipe, batches):
    samples = []
    for _ in range(batches):
        data, labels = pipe.run()
        samples += [(x.source_info(), np.asarray(x).tobytes(), int(np.asarray(y)[0])) for x, y in zip(data, labels)]
    return samples


def take_and_close(pipe, batches):
    try:
        return take(pipe, batches)
    finally:
        pipe.close()


@pytest.mark.parametrize("url", ["memory://bucket", "file://", ""])
def test_a_folder_reads_alike_wherever_it_is(tmp_path, url):
    """file_root, file_list and files; the order is that of the local folder."""
    root = url if url.startswith("memory") else f"{url}{tmp_path}"
    fs, folder = fsspec.url_to_fs(root or str(tmp_path))
    for name, data in CONTENT.items():
        fs.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
        fs.pipe_file(f"{folder}/{name}", data)
    fs.pipe_file(f"{folder}/data/list.txt", b"b/03.jpg 5\na/01.jpg 6\n")
    assert take_and_close(reader(file_root=f"{root}/data"), 10) == [
        (n, CONTENT[f"data/{n}"], int(n[0] == "b")) for n in NAMES
    ]
    listed = take_and_close(reader(file_root=None, file_list=f"{root}/data/list.txt", batch_size=2), 1)
    assert listed == [(n, CONTENT[f"data/{n}"], k) for n, k in (("b/03.jpg", 5), ("a/01.jpg", 6))]
    name = f"{root}/data/b/03.jpg"
    samples = take_and_close(reader(file_root=None, files=[name], batch_size=1), 1)
    assert samples == [(name.removeprefix("file://"), CONTENT["data/b/03.jpg"], 0)]


def test_arrays_are_read_from_urls():
    fs = fsspec.filesystem("memory")
    arrays = [np.arange(12, dtype=np.float32).reshape(3, 4) + i for i in range(4)]
    for i, x in enumerate(arrays):
        with fs.open(f"/arrays/{i}.npy", "wb") as f:
            np.save(f, np.asfortranarray(x) if i == 2 else x)

    @pipeline_def(batch_size=4, num_threads=2)
    def pipeline():
        return fn.readers.numpy(file_root="memory://arrays"), fn.readers.numpy(
            file_root="memory://arrays", roi_start=(1, 1), roi_end=(3, 3)
        )

    pipe = pipeline()
    whole, part = (np.asarray(x.as_array()) for x in pipe.run())
    pipe.close()
    assert (whole == arrays).all()
    assert (part == np.stack(arrays)[:, 1:3, 1:3]).all()


@pytest.mark.parametrize(
    "order", [{}, {"random_shuffle": True, "initial_fill": 9}, {"shuffle_after_epoch": True}, {"pad_last_batch": True}]
)
def test_latency_does_not_change_the_order(order):
    def fault(name, number):
        return ConnectionResetError("reset") if number == 0 and name.endswith("1.jpg") else None

    Faulty.start(CONTENT)
    expected = take_and_close(reader(batch_size=3, storage=jaxdali.Storage(read_ahead=0), **order), 30)
    Faulty.start(CONTENT, latency=0.002, fault=fault)
    assert take_and_close(reader(batch_size=3, storage=jaxdali.Storage(read_ahead=11), **order), 30) == expected


def test_next_files_are_fetched_together():
    Faulty.start(CONTENT, latency=0.05)
    store = Store(jaxdali.Storage(read_ahead=16))
    files = Files("faulty://data", [n.encode() for n in NAMES], store)
    files.ahead(np.arange(16), 4)
    assert [files.read(i) for i in range(16)] == [CONTENT[f"data/{n}"] for n in NAMES[:16]]
    assert Faulty.most > 8  # requests under way at a time
    files.ahead(np.arange(8, 24), 4)
    files.read(20)
    assert len(Faulty.requests) == 24  # the files 8 .. 15 were fetched already
    store.close()


def test_read_ahead_is_bounded(monkeypatch):
    monkeypatch.setattr("jaxdali._data.storage._AHEAD_BYTES", 300)
    Faulty.start({"big": bytes(1000)})
    store = Store()
    store.ahead((ByteRange("faulty://big", 100 * i, 100) for i in range(10)), now=1)
    assert len(store._futures) == 3
    store.ahead((ByteRange("faulty://big", 100 * i, 100) for i in range(10)), now=5)
    assert len(store._futures) == 5  # those that are needed now are fetched in spite of the limit
    store.close()


def quick(monkeypatch):
    monkeypatch.setattr("jaxdali._data.storage._FIRST_WAIT", 0.001)


@pytest.mark.parametrize(
    "fault", [ConnectionResetError("reset by peer"), TimeoutError(), Exception("503 Slow Down"), 3]
)
def test_temporary_errors_are_retried_and_counted(monkeypatch, fault):
    quick(monkeypatch)
    Faulty.start(CONTENT, fault=lambda name, number: fault if number < 2 and name == "data/a/01.jpg" else None)
    pipe = reader()
    assert take_and_close(pipe, 1)[1][1] == CONTENT["data/a/01.jpg"]
    rows = {m.stage: m for m in pipe.statistics() if m.step == "reader"}
    assert rows["retry"].calls == 2
    assert rows["fetch"].calls >= 4
    assert rows["fetch"].bytes >= sum(len(CONTENT[f"data/{n}"]) for n in NAMES[:4])


@pytest.mark.parametrize(
    ("fault", "text", "requests"),
    [
        (FileNotFoundError("gone"), "No such file", 1),
        (PermissionError("403"), "Permission denied", 1),
        (ConnectionResetError(104, "reset by peer"), r"reset by peer \(after 3 attempts\)", 3),
        (3, r"3 bytes from 0 on where \d+ were expected \(after 3 attempts\)", 3),
    ],
)
def test_permanent_errors_name_url_and_record(monkeypatch, fault, text, requests):
    quick(monkeypatch)
    Faulty.start(CONTENT, fault=lambda name, number: fault if name == "data/a/01.jpg" else None)
    pipe = reader(storage=jaxdali.Storage(retries=2))
    with pytest.raises(SampleError, match=rf"(?s)faulty://data/a/01\.jpg: {text}") as e:
        pipe.run()
    assert "a/01.jpg" in str(e.value)
    assert [x[0] for x in take(pipe, 1)] == NAMES[4:8]  # the pipeline continues with the next batch
    pipe.close()
    assert [r[0] for r in Faulty.requests].count("data/a/01.jpg") == requests


def test_hanging_requests_time_out(own_threads):
    hanging = threading.Event()
    Faulty.start(CONTENT, fault=lambda name, number: hanging.wait(20) and None)
    pipe = reader(storage=jaxdali.Storage(timeout=0.01, retries=0))
    monkey = pytest.MonkeyPatch()
    monkey.setattr("jaxdali._data.storage._LONGEST_WAIT", 0.05)
    monkey.setattr("jaxdali._data.request_threads._END_WAIT", 0.05)
    with pytest.raises(SampleError, match=r"no answer within 0\.01 s"):
        pipe.run()
    pipe.close()
    monkey.undo()
    hanging.set()
    assert own_threads.ended("jaxdali-storage")


def test_closing_while_a_request_begins(monkeypatch):
    Faulty.start(CONTENT)
    store, (name, content) = Store(jaxdali.Storage(timeout=0.1, retries=0)), next(iter(CONTENT.items()))
    submit = RequestThreads.submit

    def late(*request):
        monkeypatch.setattr(RequestThreads, "submit", submit)
        store.close()  # as another thread may at this moment
        return submit(*request)

    monkeypatch.setattr(RequestThreads, "submit", late)
    with pytest.raises(OSError, match="the reader was closed"):
        store.read(f"faulty://{name}")
    assert store.read(f"faulty://{name}") == content
    store.close()


def test_closing_interrupts_retries():
    Faulty.start(CONTENT, fault=lambda name, number: ConnectionResetError())
    store = Store(jaxdali.Storage(retries=50))
    store.ahead([ByteRange(f"faulty://{n}") for n in CONTENT])
    while len(Faulty.requests) < 5:
        time.sleep(0.001)
    begin = time.monotonic()
    store.close()
    assert time.monotonic() - begin < 20


def test_resuming_does_not_depend_on_read_ahead():
    @pipeline_def(batch_size=3, num_threads=2, seed=3, enable_checkpointing=True)
    def pipeline(read_ahead):
        return fn.readers.file(
            file_root="faulty://data", random_shuffle=True, storage=jaxdali.Storage(read_ahead=read_ahead)
        )

    Faulty.start(CONTENT, latency=0.001)
    first = pipeline(20)
    take(first, 5)
    saved = first.checkpoint()
    expected = take_and_close(first, 20)
    assert take_and_close(pipeline(0, checkpoint=saved), 20) == expected
    assert take_and_close(pipeline(7, checkpoint=saved), 20) == expected


# --- ranges ---------------------------------------------------------------------------------------------------------


def test_ranges_outside_of_their_file_are_refused(tmp_path):
    (tmp_path / "x").write_bytes(bytes(10))
    files = Files.of(tmp_path / "x", None)
    for start, size in ((0, 11), (11, 0), (-1, 5), (5, -1)):
        with pytest.raises(RuntimeError, match=rf"/x: {size} bytes from {start} on exceed its size of 10"):
            Ranges(files, np.zeros(2, np.int64), np.array([0, start]), np.array([10, size]))


def test_patterns_name_files(tmp_path):
    fs = fsspec.filesystem("memory")
    for name in ("b.rec", "a.rec", "c.txt"):
        (tmp_path / name).write_bytes(name.encode())
        fs.pipe_file(f"/patterns/{name}", name.encode())
    for root in (str(tmp_path), "memory://patterns"):
        files = Files.of([f"{root}/*.rec", f"{root}/c.txt"], None)
        assert [files.read(i) for i in range(len(files))] == [b"a.rec", b"b.rec", b"c.txt"]
        assert files.sizes == [5, 5, 5]
        with pytest.raises(RuntimeError, match=r"no file matches .*\.tar"):
            Files.of(f"{root}/*.tar", None)
        with pytest.raises(RuntimeError, match=r"can't open .*/missing: No such file"):
            Files.of(f"{root}/missing", None)
        files.store.close()


@pytest.mark.parametrize("name", ["read_ahead", "cache_size", "retries", "max_record_bytes", "timeout"])
def test_numbers_of_a_storage(name):
    storage = jaxdali.Storage(**{name: np.int64(4)})
    assert storage == jaxdali.Storage(**{name: 4})
    assert not isinstance(getattr(storage, name), np.generic)
    for value in ("3", -1, np.nan, *([] if name == "timeout" else [True])):
        with pytest.raises((TypeError, ValueError), match=rf"Storage: argument {name} must be .*, got {value!r}"):
            jaxdali.Storage(**{name: value})


# --- the cache on disk ----------------------------------------------------------------------------------------------


def test_the_second_epoch_comes_from_the_cache(tmp_path):
    Faulty.start(CONTENT)
    storage = jaxdali.Storage(cache_dir=tmp_path / "cache")
    first = take_and_close(reader(storage=storage), 10)
    Faulty.start(CONTENT, fault=lambda name, number: ConnectionResetError())
    assert take_and_close(reader(storage=storage), 20) == first * 2
    assert not Faulty.requests


class Endpoints(fsspec.AbstractFileSystem):
    """``endpoints://``: a file holds the name of the server, by the option `endpoint_url`."""

    protocol = "endpoints"

    def cat_file(self, path, **_):
        return self.storage_options.get("endpoint_url", "default").encode()


fsspec.register_implementation("endpoints", Endpoints)


@pytest.mark.parametrize(
    ("changed", "hits"),
    [
        ({"token": "b"}, 1),
        ({"headers": {"Authorization": "b"}}, 1),
        ({"session": object()}, 1),
        ({"connection_string": "AccountName=a;AccountKey=b"}, 1),
        ({"connection_string": "AccountName=b;AccountKey=a"}, 0),
        ({"endpoint_url": "b"}, 0),
    ],
)
def test_cache_belongs_to_a_server(tmp_path, changed, hits):
    options = {"token": "a", "headers": {"Authorization": "a"}, "session": object(), "endpoint_url": "a"}
    options["connection_string"] = "AccountName=a;AccountKey=a"
    for settings, cached in ((options, 0), (options | changed, hits), (options, 1)):
        store = Store(jaxdali.Storage(cache_dir=tmp_path, options=settings))
        assert store.read("endpoints://bucket/x") == settings["endpoint_url"].encode()
        assert store.counts["cached"] == cached
        store.close()


def size_of(folder):
    return sum(p.stat().st_size for p in folder.rglob("*") if p.suffix == ".record")


def test_cache_keeps_its_limit_and_recent_entries(tmp_path):
    cache = DiskCache(str(tmp_path), 1520)  # each has a header of 52 bytes
    for i in range(9):
        cache.put((i,), bytes([i]) * 100)
        os.utime(cache._path((i,)), (i, i))
    assert cache.get((0,)) == bytes(100)  # this use makes entry 1 the oldest
    cache.put((9,), bytes(100))
    cache.put((10,), bytes(100))
    assert size_of(tmp_path) <= 1520
    assert [i for i in range(11) if cache.get((i,)) is None] == [1, 2]
    cache.put((11,), bytes(1500))
    assert cache.get((11,)) is None


def _fill(folder, seed):
    cache = DiskCache(folder, 20_000)
    for i in np.random.default_rng(seed).integers(0, 60, 300).tolist():
        data = cache.get((i,))
        if data is None:
            cache.put((i,), bytes([i]) * 900)
        elif data != bytes([i]) * 900:
            raise AssertionError("damaged")


def test_processes_share_a_cache(tmp_path):
    head = "import numpy as np\n" + "from jaxdali._data.disk_cache import DiskCache\n"
    programs = [head + inspect.getsource(_fill) + f"_fill({str(tmp_path)!r}, {seed})\n" for seed in range(2)]
    processes = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    _fill(str(tmp_path), 9)
    assert [p.wait(60) for p in processes] == [0, 0]
    assert size_of(tmp_path) <= 20_000
    assert int((tmp_path / "jaxdali-cache/.total").read_text()) == size_of(tmp_path)


def damage(kind, path):
    data = path.read_bytes()
    damaged = {
        "flipped": data[:-1] + bytes([data[-1] ^ 4]),
        "cut": data[:-1],
        "empty": b"",
        "longer": data + b"x",
        "zeros": bytes(len(data)),
    }
    path.write_bytes(damaged[kind])


@pytest.mark.parametrize("kind", ["flipped", "cut", "empty", "longer", "zeros", "of another"])
def test_damaged_cache_entries_are_fetched_again(tmp_path, kind):
    Faulty.start(CONTENT)
    storage = jaxdali.Storage(cache_dir=tmp_path / "cache")
    first = take_and_close(reader(storage=storage), 10)
    records = sorted((tmp_path / "cache").rglob("*.record"))
    assert len(records) == len(CONTENT)
    for path in records[:5]:
        if kind == "of another":
            path.write_bytes(records[7].read_bytes())
        else:
            damage(kind, path)
    pipe = reader(storage=storage)
    assert take(pipe, 10) == first
    rows = {m.stage: m.calls for m in pipe.statistics() if m.step == "reader"}
    pipe.close()
    assert (rows["damaged"], rows["cache"], len(Faulty.requests)) == (5, len(CONTENT) - 5, len(CONTENT) + 5), rows
    Faulty.start(CONTENT, fault=lambda name, number: ConnectionResetError())
    assert take_and_close(reader(storage=storage), 10) == first  # the cache has them again


def test_cached_ranges_of_wrong_length_are_dropped(tmp_path):
    cache = DiskCache(str(tmp_path), 10_000)
    cache.put(ByteRange("memory://x", 0, 5), b"four")
    assert cache.get(ByteRange("memory://x", 0, 5), 5) is None
    assert not list(tmp_path.rglob("*.record"))


def test_users_share_a_cache(tmp_path, monkeypatch):
    """Others may read what the umask allows, but not change its times."""
    cache = DiskCache(str(tmp_path), 10_000)
    cache.put((0,), b"data")
    (tmp_path / "plain").touch()
    assert cache._path((0,)).stat().st_mode == (tmp_path / "plain").stat().st_mode

    def refused(path):
        raise PermissionError

    monkeypatch.setattr("os.utime", refused)
    assert cache.get((0,)) == b"data"


def test_the_cache_deletes_nothing_of_others(tmp_path):
    foreign = [
        "precious/thesis.doc",
        "ab/" + "0" * 38,
        ".new-notes",
        "jaxdali-cache/notes/a",
        "jaxdali-cache/ab/thesis",
        "thesis.record",
    ]
    (tmp_path / "jaxdali-cache").mkdir()
    (tmp_path / "jaxdali-cache" / "CACHEDIR.TAG").write_bytes(b"x")
    for name in foreign:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(200))
        os.utime(tmp_path / name, (1, 1))
    cache = DiskCache(str(tmp_path), 1000)
    for i in range(40):
        cache.put((i,), bytes(100))
    assert [n for n in foreign if not (tmp_path / n).exists()] == []
    assert cache.get((39,)) == bytes(100)
    assert cache.get((0,)) is None


def test_a_foreign_cache_folder_is_refused(tmp_path):
    (tmp_path / "jaxdali-cache").mkdir()
    (tmp_path / "jaxdali-cache" / "thesis.doc").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"jaxdali-cache.*CACHEDIR.TAG"):
        Store(jaxdali.Storage(cache_dir=tmp_path))


@pytest.mark.parametrize("content", [b"", b"junk", b"\xff\xfe", b"-5", b"9" * 5000, b"1_0", b"12 34"])
def test_a_damaged_total_is_made_anew(tmp_path, content):
    cache = DiskCache(str(tmp_path), 10_000)
    cache.put((0,), bytes(100))
    (tmp_path / "jaxdali-cache" / ".total").write_bytes(content)
    cache.put((1,), bytes(100))
    assert cache.get((0,)) == cache.get((1,)) == bytes(100)
    assert int((tmp_path / "jaxdali-cache" / ".total").read_bytes()) == size_of(tmp_path)
