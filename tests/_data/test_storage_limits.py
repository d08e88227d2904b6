"""Everything that comes in has a limit: bodies of URLs, local files, entries of the cache; and redirects."""

import functools
import gzip
import http.server
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest

import jaxdali
from jaxdali import ArgumentError, OperatorError, SampleError, fn, pipeline_def
from jaxdali._core.ragged import BufferPool
from jaxdali._data import files as files_module
from jaxdali._data.files import Files, refused_files
from jaxdali._data.storage import Store
from jaxdali._data.urls import origin

pytest.importorskip("fsspec")
aiohttp = pytest.importorskip("aiohttp")
Faulty = pytest.importorskip("faulty").Faulty

GOOD = bytes(range(250)) * 400
LIMIT = 1 << 20


@functools.cache
def bomb() -> bytes:
    """64 MiB in some kilobytes."""
    return gzip.compress(bytes(1 << 26), 1)


class Handler(http.server.BaseHTTPRequestHandler):
    """The beginning of a path says what the server does."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        server = self.server
        server.requests.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
        kind, _, target = self.path[1:].partition("/")
        try:
            getattr(self, kind.partition("-")[0])(target)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_HEAD = do_GET

    def answer(self, data, status=200, **headers):
        self.send_response(status)
        for name, value in {"Content_Length": len(data), **headers}.items():
            if value is not None:
                self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.send(data)

    def send(self, data):
        if self.command == "GET":
            self.wfile.write(data)
            self.server.sent += len(data)

    def forever(self, data):
        # Far more than what may lie in the buffers of a connection.
        while self.command == "GET" and self.server.sent < 1 << 28:
            self.send(data)
        self.close_connection = True

    def good(self, _):
        self.answer(GOOD)

    def endless(self, _, status=200):
        self.answer(b"", status, Content_Length=None, Transfer_Encoding="chunked")
        self.forever(b"10000\r\n" + bytes(1 << 16) + b"\r\n")

    def error(self, _):
        self.endless(_, status=503)

    def huge(self, _):
        self.answer(b"", Content_Length=10**13)
        self.forever(bytes(1 << 16))

    def nolength(self, _):
        self.answer(b"", Content_Length=None, Connection="close")
        self.forever(bytes(1 << 16))

    def packed(self, _):
        self.answer(bomb(), Content_Encoding="gzip")

    def long(self, _):
        self.answer(bytes(100 << 20))

    def double(self, _):
        self.answer(GOOD * (1 + (self.command == "GET")))

    def longer(self, _):
        """It has 50 bytes more than HEAD says, also for those who ask for a range."""
        data = GOOD + bytes(50)
        if self.command == "HEAD":
            self.answer(GOOD)
        else:
            first, _, last = self.headers["Range"].partition("=")[2].partition("-")
            part = data[int(first) : int(last) + 1]
            self.answer(part, 206, Content_Range=f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}")

    def part(self, status):
        """A part of what was requested, or nothing, unasked."""
        kind = "multipart/byteranges; boundary=x" if status == "200" else "image/jpeg"
        data = b"" if status in ("204", "304") else GOOD[:50]
        self.answer(data, int(status), Content_Range=f"bytes 0-49/{len(GOOD)}", Content_Type=kind)

    def to(self, target):
        """Redirects: status, then the origin ("r": a relative path), then the next path."""
        status, origin, path = target.partition("?")[0].split("/", 2)
        self.answer(b"", int(status), Location=self.server.origins[origin] + "/" + path)


@pytest.fixture(scope="module")
def servers():
    both = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2)]
    a, b = (f"127.0.0.1:{s.server_port}" for s in both)
    for s in both:
        s.daemon_threads, s.requests, s.sent = True, [], 0
        s.origins = {
            "a": f"http://{a}",
            "b": f"http://{b}",
            "r": "",
            "name": f"http://{a.replace('127.0.0.1', 'localhost')}",
        }
    threads = [threading.Thread(target=s.serve_forever) for s in both]
    for t in threads:
        t.start()
    yield both
    for s, t in zip(both, threads):
        s.shutdown()
        s.server_close()
        t.join()


@pytest.fixture
def url(servers, monkeypatch):
    pytest.importorskip("aiohttp")
    monkeypatch.setattr("jaxdali._data.storage._FIRST_WAIT", 0.001)
    monkeypatch.setattr("jaxdali._data.request_threads._IDLE", 0.01)  # threads of builds that fail end by themselves
    for server in servers:
        server.requests.clear()
        server.sent = 0
    return servers[0].origins["a"]


def read(files, on_error="raise", **storage):
    """(contents, (file, reason) of each that is bad)."""

    @pipeline_def(batch_size=len(files), num_threads=2, device_id=None, prefetch_queue_depth=1)
    def pipeline():
        return fn.readers.file(files=files, storage=jaxdali.Storage(**storage), on_error=on_error)[0]

    pipe = pipeline()
    try:
        data = [np.asarray(x).tobytes() for x in pipe.run()[0]]
        return data, [(b.file, b.reason) for b in pipe.bad_samples()]
    finally:
        pipe.close()


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("endless", f"it would take more than {LIMIT} bytes, Storage(max_record_bytes={LIMIT}) allows no more"),
        ("nolength", f"it would take more than {LIMIT} bytes, Storage(max_record_bytes={LIMIT}) allows no more"),
        ("packed", f"it would take more than {LIMIT} bytes, Storage(max_record_bytes={LIMIT}) allows no more"),
        ("huge", f"it would take 10000000000000 bytes, Storage(max_record_bytes={LIMIT}) allows no more"),
        ("error", "503"),
    ],
    ids=["endless", "nolength", "packed", "huge", "error"],
)
def test_bodies_end_at_the_limit(servers, url, kind, reason):
    names = [f"{url}/good-1/", f"{url}/{kind}/", f"{url}/good-2/"]
    data, bad = read(names, "skip", max_record_bytes=LIMIT, retries=1)
    assert data == [GOOD, GOOD]
    ((name, text),) = bad
    assert name == names[1]
    assert reason in text
    # What is too large is not requested again. Connections buffer some megabytes.
    requests = sum(path.startswith(f"/{kind}/") for _, path, _ in servers[0].requests)
    assert requests == (2 if kind == "error" else 1)
    assert servers[0].sent < 1 << 26
    with pytest.raises(SampleError, match=rf"{kind}/: "):
        read(names, max_record_bytes=LIMIT, retries=0)


def test_lists_end_at_the_limit(servers, url, monkeypatch):
    monkeypatch.setattr("jaxdali._data.storage._RECORD_BYTES", LIMIT)
    for arguments in ({"file_list": f"{url}/endless/"}, {"file_root": f"{url}/endless/"}):
        with pytest.raises(RuntimeError, match=r"it would take more than 1048576 bytes"):
            pipeline_def(
                lambda arguments=arguments: fn.readers.file(**arguments, storage=jaxdali.Storage(max_record_bytes=10)),
                batch_size=1,
                num_threads=1,
                device_id=None,
            )().build()
        assert servers[0].sent < 1 << 26


@pytest.mark.parametrize("kind", ["double", "longer"])
def test_bodies_have_the_announced_size(url, kind):
    """Files of a known size, announced to the store or not."""
    name = f"{url}/{kind}/"
    store = Store(jaxdali.Storage(retries=1))
    (size,) = store.sizes([name])
    files = Files("", [name.encode()], store, [size])
    if kind == "longer":  # a range is as long as it was requested
        assert store.read(name, 0, size) == GOOD
    for announced in (False, True):
        if announced:
            files.ahead(np.zeros(1, int), 1)
        with pytest.raises(OSError, match=r"more than 100000 bytes from 0 on where 100000 were expected \(after 2"):
            files.read(0)
    store.close()


@pytest.mark.parametrize("status", [200, 202, 204, 206, 304])
def test_parts_are_no_whole_files(url, tmp_path, status):
    name = f"{url}/part/{status}"
    store = Store(jaxdali.Storage(retries=0, cache_dir=tmp_path))
    files = Files("", [name.encode()], store)
    for read_whole in (lambda: files.read(0), lambda: store.read(name)):
        with pytest.raises(OSError, match=f"not the content that was requested: {status} ") as e:
            read_whole()
        assert e.value.filename == name
    if status == 206:
        assert store.read(name, 0, 50) == GOOD[:50]
        with pytest.raises(OSError, match="not the content that was requested: 206 "):  # it is of another place
            store.read(name, 50, 50)
    store.close()


def test_addresses_of_ipv6_are_hosts(url):
    class Server(http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET6

    try:
        server = Server(("::1", 0), Handler)
    except OSError:
        pytest.skip("there is no IPv6")
    server.daemon_threads, server.requests, server.sent = True, [], 0
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    name = f"http://[::1]:{server.server_port}/good/"
    try:
        assert read([name, f"{name}?["]) == ([GOOD] * 2, [])
        store = Store(jaxdali.Storage(retries=0))
        assert store.sizes([name]) == [len(GOOD)]
        with pytest.raises(OSError, match="the content that was requested") as e:
            store.read(name.replace("good/", "part/206"))
        assert e.value.filename == name.replace("good/", "part/206")
        store.close()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert origin("http://[::1]:80/a") == origin("http://[0:0::1]/b")
    store = Store()
    for url in ("http://[::1]/a::file:///x", "http://[::1::2]/a", "http://[http::file]/a", "zip://x::http://[::1]/a"):
        with pytest.raises(OSError, match=r"allow_chained=True"):
            store.read(url)
    store.close()


@pytest.mark.parametrize("byte_range", ["bytes=-500", "bytes=0-99,200-299", "bytes=5-"])
def test_ranges_of_users_have_the_limit(url, byte_range):
    for limit, expected in ((len(GOOD), None), (len(GOOD) - 1, "it would take 100000 bytes")):
        store = Store(jaxdali.Storage(retries=0, max_record_bytes=limit, options={"headers": {"Range": byte_range}}))
        if expected is None:
            assert Files("", [f"{url}/good/".encode()], store).read(0) == GOOD
        else:
            with pytest.raises(OSError, match=expected):
                Files("", [f"{url}/good/".encode()], store).read(0)
        store.close()


def test_bodies_leave_some_memory(url, monkeypatch):
    for memory, expected in ((1 << 40, None), (200 << 20, "memory does not suffice: ")):
        monkeypatch.setattr("jaxdali._data.http_client.available_memory", lambda memory=memory: memory)
        store = Store(jaxdali.Storage(retries=0))
        if expected is None:
            assert len(store.read(f"{url}/long/")) == 100 << 20
        else:
            with pytest.raises(OSError, match=expected):
                store.read(f"{url}/long/")
        store.close()


def test_other_file_systems_have_the_limit():
    Faulty.start({"data/a": bytes(100), "data/b": bytes(101)})
    data, bad = read(["faulty://data/a", "faulty://data/b"], "skip", max_record_bytes=100)
    assert (data, len(Faulty.requests)) == ([bytes(100)], 2)
    assert bad == [("faulty://data/b", "it would take 101 bytes, Storage(max_record_bytes=100) allows no more")]
    # A size that is known is refused without a request, and one that is wrong is noticed.
    store = Store(jaxdali.Storage(max_record_bytes=100, retries=0))
    with pytest.raises(OSError, match="it would take 101 bytes"):
        Files("faulty://data", [b"b"], store, [101]).read(0)
    assert len(Faulty.requests) == 2
    with pytest.raises(OSError, match="more than 99 bytes from 0 on where 99 were expected"):
        Files("faulty://data", [b"a"], store, [99]).read(0)
    store.close()


def test_cached_files_have_the_limit(tmp_path):
    Faulty.start({"data/a": bytes(101)})
    assert read(["faulty://data/a"], cache_dir=tmp_path)[0] == [bytes(101)]
    with pytest.raises(SampleError, match=r"it would take 101 bytes, Storage\(max_record_bytes=100\)"):
        read(["faulty://data/a"], cache_dir=tmp_path, max_record_bytes=100)
    (entry,) = tmp_path.rglob("*.record")
    os.truncate(entry, 1 << 40)
    assert read(["faulty://data/a"], cache_dir=tmp_path)[0] == [bytes(101)]  # fetched again
    assert entry.stat().st_size < 1000


# --- local files ----------------------------------------------------------------------------------------------------


def sparse(path: pathlib.Path, size: int) -> str:
    path.touch()
    os.truncate(path, size)
    return str(path)


def test_local_files_have_the_limit_given(tmp_path):
    names = [sparse(tmp_path / str(n), n) for n in (7, 8, 5)]
    data, bad = read(names, "skip", max_record_bytes=7)
    assert [len(x) for x in data] == [7, 5]
    assert bad == [(names[1], "it would take 8 bytes, Storage(max_record_bytes=7) allows no more")]
    with pytest.raises(OSError, match="it would take 8 bytes"):
        Files(tmp_path, [b"8"], Store(jaxdali.Storage(max_record_bytes=7))).read(0)
    # Without a given limit, records have one, and local files have none.
    assert jaxdali.Storage().too_large((1 << 30) + 1)
    assert not jaxdali.Storage(max_record_bytes=1 << 40).too_large(1 << 40)


def test_local_files_fit_into_memory(tmp_path, monkeypatch):
    names = [sparse(tmp_path / f"{i}", n) for i, n in enumerate((30_000, 130_000, 40_000, 10))]
    memory = 80_000
    monkeypatch.setattr(files_module, "UNCHECKED_BYTES", 65_536)
    monkeypatch.setattr(files_module, "available_memory", lambda: memory)
    data, bad = read(names, "skip")
    assert [len(x) for x in data] == [30_000, 40_000, 10]
    reason = (
        "it would take 130000 bytes, and memory has room for 80000; Storage(max_record_bytes=) would replace that limit"
    )
    assert bad == [(names[1], reason)]
    # None of these is at fault, and no good sample is left out.
    names[1] = sparse(tmp_path / "1", 20_000)
    for on_error in ("raise", "skip", "replace"):
        with pytest.raises(
            ValueError, match=r"^readers.file \(created at .*: the files of the batch have 90010 bytes.* 80000"
        ):
            read(names, on_error)


def test_batches_larger_than_memory_name_the_reader(tmp_path, monkeypatch):
    """The limit that the user gives may be more than memory has."""
    np.save(tmp_path / "a.npy", np.zeros(1 << 20, np.uint8))
    files, storage, empty = [str(tmp_path / "a.npy")], jaxdali.Storage(max_record_bytes=1 << 40), BufferPool.empty

    def limited(pool, shape, dtype):
        return empty(pool, (1 << 50,) if np.prod(shape) >= 1 << 20 else shape, dtype)

    monkeypatch.setattr(BufferPool, "empty", limited)
    for make, error, text in (
        (
            lambda: fn.readers.file(files=files, storage=storage)[0],
            ArgumentError,
            r"readers\.file .*max_record_bytes=\)",
        ),
        (
            lambda: fn.readers.numpy(files=files, storage=storage),
            OperatorError,
            r"readers\.numpy .*: MemoryError: Unable",
        ),
    ):
        pipe = pipeline_def(make, batch_size=1, num_threads=1, device_id=None)()
        with pytest.raises(error, match=rf"^{text}") as e:
            pipe.run()
        assert f"created at {__file__}:" in str(e.value)
        pipe.close()


def test_batches_reuse_the_memory_of_earlier_ones(tmp_path, monkeypatch):
    memory = [100_000]  # each time that it is looked up; then there is none
    monkeypatch.setattr(files_module, "UNCHECKED_BYTES", 65_536)
    monkeypatch.setattr(files_module, "available_memory", lambda: memory.pop() if memory else 0)
    files = [sparse(tmp_path / "a", 50_000)] * 2

    @pipeline_def(batch_size=2, num_threads=1, device_id=None, exec_async=False, exec_pipelined=False)
    def define():
        return fn.readers.file(files=files)[0]

    pipe = define()
    for _ in range(3):
        assert [len(np.asarray(x)) for x in pipe.run()[0]] == [50_000] * 2
    assert not memory
    pipe.close()
    # The memory of a batch that is in use counts no more than any other.
    pool = BufferPool()
    batches = [pool.empty((n,), np.uint8) for n in (100_000, 100_000, 10)]
    sizes = np.array([40_000, 40_000])
    store, memory[:] = Store(), [10_000, 100_000]
    assert refused_files(store, sizes, lambda: pool.free_bytes(1)) == {}
    # Less than one file takes, whose fault that is not.
    with pytest.raises(ValueError, match="the files of the batch have 80000 bytes, and memory has room for 10000"):
        refused_files(store, sizes, lambda: pool.free_bytes(1))
    batches.clear()
    assert refused_files(store, sizes, lambda: pool.free_bytes(1)) == {}
    assert (pool.free_bytes(1), pool.free_bytes(9)) == (102_400, 2 * 102_400 + 4096)


CHILD = """
import json, os, resource, sys
import jax, numpy as np
jax.devices()
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
from jaxdali import fn, pipeline_def
folder, names = sys.argv[1], ["a.bin", "large.bin", "b.bin"]
files = [os.path.join(folder, n) for n in names]
def tried(make):
    try:
        pipe = pipeline_def(make, batch_size=3, num_threads=2, device_id=None, prefetch_queue_depth=1)()
        lengths = [len(np.asarray(x)) for x in pipe.run()[0]]
        bad = [(b.file, b.reason) for b in pipe.bad_samples()]
        pipe.close()
        return [lengths, bad]
    except Exception as e:
        return [type(e).__name__, str(e)]
results = {on_error: tried(lambda: fn.readers.file(files=files, on_error=on_error)[0]) for on_error in ("raise", "skip", "replace")}
paths = lambda: [np.frombuffer(f.encode(), np.uint8) for f in files]
results["paths"] = tried(lambda: fn.io.file.read(fn.external_source(paths, batch=True)))
results["arrays"] = tried(lambda: fn.readers.numpy(files=[f[:-3] + "npy" for f in files], on_error="skip"))
results["list"] = tried(lambda: fn.readers.file(file_list=files[1])[0])
results["index"] = tried(lambda: fn.readers.webdataset(paths=files[0], index_paths=files[1], ext=["x"]))
print(json.dumps(results))
"""


@pytest.mark.skipif(not pathlib.Path("/proc/self/statm").exists(), reason="there is no /proc")
def test_files_larger_than_memory_fail_alone(tmp_path):
    """A child process has an address space of 6 GiB, and one file has 40 GiB."""
    size = 40 << 30
    for name in "ab":
        (tmp_path / f"{name}.bin").write_bytes(b"good")
        np.save(tmp_path / f"{name}.npy", np.arange(4, dtype=np.uint8))
    large = sparse(tmp_path / "large.bin", size)
    with open(tmp_path / "large.npy", "wb") as f:
        np.lib.format.write_array_header_1_0(f, {"descr": "|u1", "fortran_order": False, "shape": (size,)})
        f.truncate(f.tell() + size)
    run = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-2000:]
    results = json.loads(run.stdout.splitlines()[-1])
    reason = f"it would take {size} bytes, and memory has room for "
    for name in ("raise", "paths"):
        assert results[name][0] == "SampleError", results
        assert f"{large}: {reason}" in results[name][1]
        assert "Storage(max_record_bytes=)" in results[name][1]
    for name, expected in (("skip", [4, 4]), ("replace", [4, 4, 4]), ("arrays", [4, 4])):
        lengths, bad = results[name]
        assert lengths == expected, results
        ((file, text),) = bad
        assert file == (large if name != "arrays" else str(tmp_path / "large.npy"))
        assert text.startswith(reason)
    assert "memory has room for" in results["list"][1], results
    assert "is not an index" in results["index"][1], results


# --- redirects ------------------------------------------------------------------------------------------------------

SECRET = {"X-Token": "TOKEN123", "PRIVATE-TOKEN": "TOKEN123", "Authorization": "Bearer TOKEN123"}
WAYS = {
    "headers": {"headers": {**SECRET, "User-Agent": "mine/1"}},
    "headers of the client": {"client_kwargs": {"headers": {**SECRET, "User-Agent": "mine/1"}}},
    "cookies": {"cookies": {"session": "TOKEN123"}},
    "cookies of the client": {"client_kwargs": {"cookies": {"session": "TOKEN123"}}},
    "parameters": {"params": {"token": "TOKEN123"}},
}


@pytest.mark.filterwarnings("ignore:.*(auth|BasicAuth).*deprecated:DeprecationWarning")
@pytest.mark.parametrize("way", [*WAYS, "password", "password of the client"])
def test_redirects_drop_credentials(servers, url, way):
    """Each request, of contents and of sizes, is (server, whether it has credentials)."""
    password = {"auth": aiohttp.BasicAuth("me", "TOKEN123")}
    options = {**WAYS, "password": password, "password of the client": {"client_kwargs": password}}[way]
    within = way != "parameters"  # a location has its own
    for path, expected in {
        "to/302/r/good/": [("a", True), ("a", within)],
        "to/302/a/good/": [("a", True), ("a", within)],
        "to/302/name/good/": [("a", True), ("a", False)],
        **{f"to/{status}/b/good/": [("a", True), ("b", False)] for status in (301, 302, 303, 307, 308)},
        "to/307/b/to/302/a/good/": [("a", True), ("b", False), ("a", False)],
        "to/302/r/to/302/b/good/": [("a", True), ("a", within), ("b", False)],
    }.items():
        for read_or_size, result in (("read", GOOD), ("size", len(GOOD))):
            for server in servers:
                server.requests.clear()
            store = Store(jaxdali.Storage(retries=0, options=options))
            assert getattr(store, read_or_size)(store.named(f"{url}/{path}")) == result
            store.close()
            requests = {name: [*s.requests] for name, s in zip("ab", servers)}
            actual = []
            for name, _ in expected:
                method, target, headers = requests[name].pop(0)
                assert method == ("GET" if read_or_size == "read" else "HEAD")
                text = f"{target} {headers}"
                has_secret = "TOKEN123" in text or any(h in headers for h in ("authorization", "cookie", "x-token"))
                actual.append((name, has_secret))
                if "headers" in way:
                    assert headers["user-agent"] == "mine/1"
            assert (path, actual) == (path, expected)
            assert not any(requests.values())


def test_redirects_elsewhere_are_errors(servers, url):
    store = Store(jaxdali.Storage(retries=0))
    servers[0].origins["file"] = "file:///etc"
    for path, text in (("to/302/r/" * 12 + "good/", "TooManyRedirects"), ("to/302/file/passwd", "file:///etc/passwd")):
        with pytest.raises(OSError, match=text):
            store.read(f"{url}/{path}")
    store.close()
