"""Patterns in paths: braces as bash expands them, and names that exist although they look like patterns."""

import subprocess
import tarfile
import threading

import pytest

from jaxdali import fn, index, pipeline_def
from jaxdali._data.files import Files
from jaxdali._data.patterns import braces

BRACES = """
x-{00000..00003}.tar {0..3} {a,b} {train,val}-{00..02}.tar {a,b{1,2},} {3..0} {008..10} {-1..1} {-01..1} {0..10..3} {10..0..-4}
{a..e} {e..a..2}
{} {a} {a,b {a,b{c,d} a} x{0..3 {{1,2}} {0..x} {1.5..2} a{,}b {a,b}{c,d}/{e,f} {0...3} {,,} }{ {1..2}}{3..4} {05..5} {0..0}
""".split()


def test_braces_of_bash():
    for text in BRACES:
        command = ["bash", "-c", f"printf '%s\\n' x{text}"]
        assert (
            braces(f"x{text}")
            == subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        ), text


@pytest.mark.parametrize("text", ["{0..1000000}", "{0..999999999999999999}", "{0..1023}{0..1023}", "{a,b}" * 30])
def test_too_many_braces(text):
    with pytest.raises(RuntimeError, match=r"the braces of .* stand for [0-9]+ paths; at most 1000000"):
        braces(text)


@pytest.fixture(params=["local", "remote"])
def fill(request, tmp_path):
    """A function that writes files into a folder and returns the folder's path or URL."""
    fs = pytest.importorskip("fsspec").filesystem("file" if request.param == "local" else "memory")

    def write(*names):
        for name in names:
            fs.makedirs(f"{tmp_path}/{name}".rpartition("/")[0], exist_ok=True)
            fs.pipe_file(f"{tmp_path}/{name}", name.encode())
        return str(tmp_path) if request.param == "local" else f"memory://{tmp_path}"

    yield write
    if request.param == "remote":
        fs.rm(str(tmp_path), recursive=True)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("photos [2024]/x.tar", ["photos [2024]/x.tar"]),
        ("photos [2024]/{x,y}.tar", ["photos [2024]/x.tar", "photos [2024]/y.tar"]),
        ("photos [2024]/*.tar", ["photos [2024]/x.tar", "photos [2024]/y.tar"]),
        ("photos [2024]/[y].tar", ["photos [2024]/y.tar"]),
        ("s-{00..01}.tar", ["s-{00..01}.tar"]),  # a file of this name exists
        ("s-{00..02}.tar", ["s-00.tar", "s-01.tar", "s-02.tar"]),
        ("s-{02,0[01]}.tar", ["s-02.tar", "s-00.tar", "s-01.tar"]),
        ("{s,photos [2024]/x}{-00,}.tar", ["s-00.tar", "s.tar", "photos [2024]/x-00.tar", "photos [2024]/x.tar"]),
        ("a[1].tar", ["a[1].tar"]),
        ("a[12].tar", ["a1.tar", "a2.tar"]),
        ("what?.tar", ["what?.tar"]),
        ("s-{0.tar", ["s-{0.tar"]),
    ],
)
def test_names_of_files(fill, pattern, names):
    root = fill(
        *names,
        "photos [2024]/x.tar",
        "photos [2024]/y.tar",
        "a1.tar",
        "a2.tar",
        "a[1].tar",
        "whats.tar",
        "s-00.tar",
        "s-01.tar",
    )
    files = Files.of(f"{root}/{pattern}", None)
    assert [files.read(i).decode() for i in range(len(files))] == names
    files.store.close()


def test_wildcards_leave_out_indices(fill):
    root = fill("x.tar", "x.tar.idx", "y.tar", "z.idx")
    for pattern, names in (
        ("*", ["x.tar", "y.tar", "z.idx"]),
        ("*.idx", ["x.tar.idx", "z.idx"]),
        ("x.tar{,.idx}", ["x.tar", "x.tar.idx"]),
    ):
        files = Files.of(f"{root}/{pattern}", None)
        assert [files.read(i).decode() for i in range(len(files))] == names
        files.store.close()


def test_names_of_missing_files(fill):
    root = fill("s-00.tar")
    for pattern, message in (
        ("s-{00..01}.tar", r"can't open paths .*/s-01\.tar: No such file"),
        ("s-{00.tar", r"can't open paths .*/s-\{00\.tar: No such file"),
        ("{s,t}-*.tar", r"no file matches .*/t-\*\.tar"),
        ("s-{0..9999999}.tar", r"stand for 10000000 paths"),
    ):
        with pytest.raises(RuntimeError, match=message):
            Files.of([f"{root}/{pattern}"], None, "paths")


def test_names_in_an_unlistable_bucket(monkeypatch):
    pytest.importorskip("fsspec")
    faulty = __import__("faulty").Faulty
    # Reached only if the three requests run at the same time.
    barrier = threading.Barrier(3, timeout=10)

    def exists(self, path, **_):
        barrier.wait()
        if path not in self.files:
            raise PermissionError(path)
        return True

    monkeypatch.setattr(faulty, "exists", exists)
    faulty.start({name: name.encode() for name in ("b/x.tar?part=1", "b/x.tar?part=2", "b/s-0.tar", "b/s-1.tar")})
    files = Files.of([f"faulty://b/{name}" for name in ("x.tar?part=1", "s-{0..1}.tar", "x.tar?part=2")], None)
    assert [files.read(i).decode() for i in range(len(files))] == [
        "b/x.tar?part=1",
        "b/s-0.tar",
        "b/s-1.tar",
        "b/x.tar?part=2",
    ]
    files.store.close()


def test_shards_with_their_indices(tmp_path):
    for k in range(3):
        (tmp_path / "0.txt").write_text(str(k))
        with tarfile.open(tmp_path / f"s-{k:02}.tar", "w") as archive:
            archive.add(tmp_path / "0.txt", f"{k}.txt")
    assert index.main([str(tmp_path / f"s-{k:02}.tar") for k in range(3)]) == 0

    @pipeline_def(batch_size=3, num_threads=1)
    def definition():
        arguments = {"paths": [f"{tmp_path}/s-{{01..02}}.tar", f"{tmp_path}/s-00.tar"], "ext": "txt"}
        return fn.readers.webdataset(
            index_paths=[f"{tmp_path}/s-{{01..02}}.tar.idx", f"{tmp_path}/s-0[0].tar.idx"], **arguments
        )

    (texts,) = definition().run()
    assert [bytes(texts.at(i)) for i in range(3)] == [b"1", b"2", b"0"]
