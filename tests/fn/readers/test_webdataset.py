"""readers.webdataset: damaged archives and indices, members that are missing; the rest is among tests/reader_cases.py."""

import io
import itertools
import os
import re
import tarfile

import containers as c
import numpy as np
import pytest
import reader_cases
from damaged import labels

from jaxdali import _cpu, fn, index, pipeline_def, types
from jaxdali._data.index import write_index


def web(folder, **arguments):
    return lambda: fn.readers.webdataset(
        paths=folder / "x.tar", index_paths=folder / "x.tar.idx", ext=["cls", "jpg"], **arguments
    )[0]


@pytest.fixture
def archive(tmp_path):
    c.write_tar(
        tmp_path / "x.tar", [(f"{i}.{e}", bytes([i]) * n) for i in range(3) for e, n in (("jpg", 1000), ("cls", 1))]
    )
    assert index.main([str(tmp_path / "x.tar")]) == 0
    return tmp_path


def sparse_header(name, size, kind, pax=None):
    """Blocks of a sparse member of 512 bytes of data, as GNU tar writes them."""
    info = tarfile.TarInfo(name)
    info.size = 512
    if pax is not None:
        info.pax_headers = pax
        return info.tobuf(tarfile.PAX_FORMAT) + bytes(512)
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[156:157] = kind
    header[386:410] = b"%011o\0%011o\0" % (size - 512, 512)
    header[483:495] = b"%011o\0" % size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(512)


def remote(folder):
    """The same archive and index, far away."""
    fs = pytest.importorskip("fsspec").filesystem("memory")
    for name in ("x.tar", "x.tar.idx"):
        fs.pipe_file(f"/far/{name}", (folder / name).read_bytes())
    return lambda: fn.readers.webdataset(paths="memory://far/x.tar", index_paths="memory://far/x.tar.idx", ext=["jpg"])


@pytest.mark.parametrize(
    ("kind", "pax"),
    [
        (b"S", None),
        (
            b"0",
            {
                "GNU.sparse.size": "100000",
                "GNU.sparse.numblocks": "1",
                "GNU.sparse.offset": "0",
                "GNU.sparse.numbytes": "512",
            },
        ),
        (
            b"0",
            {
                "GNU.sparse.size": "100000",
                "GNU.sparse.numblocks": "1000",
                **{f"GNU.sparse.offset{i}": "0" for i in range(1000)},
            },
        ),
        (b"0", {"GNU.sparse.size": "100000", "GNU.sparse.name": "1.jpg", "GNU.sparse.map": "0,512"}),
        (
            b"0",
            {
                "GNU.sparse.major": "1",
                "GNU.sparse.minor": "0",
                "GNU.sparse.name": "1.jpg",
                "GNU.sparse.realsize": "100000",
            },
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:.*there is no index")
def test_sparse_members_are_refused_by_name(tmp_path, kind, pax):
    c.write_tar(tmp_path / "x.tar", [("0.cls", b"0"), ("0.jpg", b"first")])
    whole = (tmp_path / "x.tar").read_bytes().rstrip(b"\0")
    whole += bytes(-len(whole) % 512)
    stored = "GNUSparseFile.0/1.jpg" if pax and "GNU.sparse.name" in pax else "1.jpg"
    (tmp_path / "x.tar").write_bytes(whole + sparse_header(stored, 100_000, kind, pax) + bytes(1024))
    with pytest.raises(
        RuntimeError, match=r"x\.tar: 1\.jpg at index \d+ is a sparse file, which can't be read: .*--sparse"
    ):
        labels(lambda: fn.readers.webdataset(paths=tmp_path / "x.tar", ext=["cls", "jpg"])[0])
    assert index.main([str(tmp_path / "x.tar")]) != 0
    # An index that another program made says nothing of it: it has the size in the archive, or that of the file, like
    # wds2idx.
    data_offset = (tmp_path / "x.tar").read_bytes().rindex(stored.encode() + b"\0") + 512
    for size, extra in ((512, 0), (100_000, 0), (100_000, 200_000)):
        (tmp_path / "x.tar.idx").write_text(f"v1.2 1\ncls 512 1 0.cls jpg {data_offset} {size} 1.jpg\n")
        os.truncate(tmp_path / "x.tar", data_offset + 1536 + extra)
        assert "sparse file, which can't be read" in str(labels(web(tmp_path))[1])
        if size + extra == 512 or extra:
            assert "sparse file, which can't be read" in str(labels(remote(tmp_path))[1])


def test_other_pax_headers_are_no_sparse_members(tmp_path):
    """Python's tarfile writes one for each time with a fraction, WebDataset's writer too."""
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as f:
        for name in ("0.cls", "0.jpg"):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = 3, 1.5
            f.addfile(info, io.BytesIO(b"12\n"))
    assert index.main([str(tmp_path / "x.tar")]) == 0
    assert labels(web(tmp_path)) == ([[49, 50, 10]], [], [])
    assert labels(remote(tmp_path)) == ([[49, 50, 10]], [], [])


@pytest.mark.parametrize("text", [b"x\n", b"x" * 5000 + b"\n", b"word \n" * 900, b"7 a=b\n", b"7 a=b\n" * 900, b"\n"])
def test_text_members_are_not_sparse(tmp_path, text):
    """Nor is a member sparse after text that looks like the end of a PAX header."""
    c.write_tar(tmp_path / "x.tar", [("0.txt", text), ("0.jpg", b"an image")])
    assert index.main([str(tmp_path / "x.tar")]) == 0
    local = labels(
        lambda: fn.readers.webdataset(paths=tmp_path / "x.tar", index_paths=tmp_path / "x.tar.idx", ext=["jpg"])
    )
    assert local == labels(remote(tmp_path)) == ([list(b"an image")], [], [])


def test_damaged_archives(archive, capsys):
    assert labels(web(archive), 3)[0] == [[0], [1], [2]]
    lines = (archive / "x.tar.idx").read_text().splitlines()
    for text, message in (
        ("", "x.tar.idx is not an index of a tar archive"),
        ("v2.0 3\n", "is not an index"),
        ("v1.2 3\n" + lines[1], "is not an index"),
        ("v1.2 1\njpg 512 x 0.jpg\n", "line 2: expected extension, offset, size and name"),
    ):
        (archive / "x.tar.idx").write_text(text)
        with pytest.raises(RuntimeError, match=message):
            labels(web(archive))
    (archive / "x.tar.idx").write_text("v1.2 2\n" + lines[1] + "\ncls 512000 1 1.cls\n")
    values, errors, _ = labels(web(archive), 2)
    assert values == [[0], None]
    assert "x.tar:512000:1.cls: " in errors[0]
    assert "it lies outside the file" in errors[0]
    os.truncate(archive / "x.tar", 4200)
    assert index.main([str(archive / "x.tar")]) == 1
    assert re.search("x.tar has 4200 bytes, .* it is truncated", capsys.readouterr().err)
    (archive / "x.tar").write_bytes(b"text" * 256)
    with (
        pytest.warns(UserWarning, match="x.tar.idx (is older than|does not fit) its file"),
        pytest.raises(RuntimeError, match=r"x.tar is not a tar archive, or it is damaged"),
    ):
        labels(lambda: fn.readers.webdataset(paths=archive / "x.tar", ext="jpg"))


def test_missing_and_misfit_members(archive):
    with pytest.raises(RuntimeError, match=r"x.tar.idx: sample 0.jpg has no member 'png'$"):
        labels(lambda: fn.readers.webdataset(paths=archive / "x.tar", index_paths=archive / "x.tar.idx", ext=["jpg", "png"],
                                             missing_component_behavior="error")[0])  # fmt: skip
    with pytest.raises(RuntimeError, match=r"x.tar.idx: sample 0.jpg has no member 'png;json'$"):
        labels(web(archive, metadata=["png;json"], missing_component_behavior="error"))
    with pytest.raises(
        RuntimeError, match=r"x.tar: output 0 of 0.cls has 1 bytes, which is not a multiple of the 4 bytes of int32"
    ):
        labels(web(archive, dtypes=[types.INT32, types.UINT8]))
    with pytest.raises(ValueError, match="dtypes must have as many elements as ext, got 1 and 2"):
        labels(web(archive, dtypes=types.INT32))


@pytest.mark.filterwarnings("ignore:.*there is no index of")
@pytest.mark.parametrize("indexed", [True, False])
def test_extensions_in_other_letters(tmp_path, indexed):
    members = [(f"{i}.{e}", bytes([i])) for i in range(3) for e in ("JPG", "Cls", "txt")]
    c.write_tar(tmp_path / "x.tar", [*members, ("3.jpg", b"3"), ("3.JPG", b"x")])
    reader_cases.write_index(tmp_path / "x.tar", tmp_path / "x.tar.idx")

    def read(ext, **arguments):
        path = {"index_paths": tmp_path / "x.tar.idx"} if indexed else {}
        return labels(lambda: fn.readers.webdataset(paths=tmp_path / "x.tar", ext=ext, **path, **arguments)[0], 4)[0]

    every = rf"the extensions in {tmp_path}/x\.tar are Cls, JPG, jpg, txt"
    with pytest.warns(
        UserWarning, match=rf"3 samples have the member 'jpg' only in other letters \(case_sensitive_ext.*\): {every}"
    ):
        assert read(["jpg", "txt"]) == [[], [], [], [51]]
    for ext in ("cls", "png;CLS"):
        only = rf"3 samples have the member '{ext}' only in other letters"
        with pytest.raises(RuntimeError, match=rf"{only}.*{every}\. missing_component_behavior=\"empty\" permits"):
            read([ext, "txt"])
        with pytest.warns(UserWarning, match=only):
            assert read([ext, "txt"], missing_component_behavior="empty") == [[]] * 4
        with pytest.raises(RuntimeError, match=rf"there are no samples in .*; {only}"):
            read([ext, "txt"], missing_component_behavior="skip")
        with pytest.raises(
            RuntimeError, match=rf"has no member '{ext}' in these letters: case_sensitive_extensions=False"
        ):
            read([ext, "txt"], missing_component_behavior="error")
        assert read([ext, "txt"], case_sensitive_extensions=False) == [[0], [1], [2], []]
    with pytest.warns(UserWarning, match=rf"no sample has the member 'png': {every}"):
        read(["png", "txt"])
    assert read(["png", "txt"], missing_component_behavior="empty") == [[]] * 4
    with pytest.raises(
        RuntimeError, match=r"metadata 'json': no sample has a member of this extension, but of Cls, JPG"
    ):
        read(["txt", "JPG"], metadata=["json"])


def test_long_names_in_pax_headers(tmp_path):
    c.write_tar(tmp_path / "x.tar", [("y" * 300 + "/0.cls", b"a")], tarfile.PAX_FORMAT)
    with pytest.warns(UserWarning, match="no index"):
        assert labels(lambda: fn.readers.webdataset(paths=tmp_path / "x.tar", ext="cls"))[0] == [[97]]


def test_a_damaged_header_between_members(archive, capsys):
    content = bytearray((archive / "x.tar").read_bytes())
    second = content.index(b"1.jpg")
    content[second + 20] ^= 1
    (archive / "x.tar").write_bytes(content)
    assert index.main([str(archive / "x.tar")]) == 1
    assert f"x.tar is damaged at {second}: no member begins there" in capsys.readouterr().err
    with (
        pytest.warns(UserWarning, match="x.tar.idx (is older than|does not fit) its file"),
        pytest.raises(RuntimeError, match=f"x.tar is damaged at {second}"),
    ):
        labels(lambda: fn.readers.webdataset(paths=archive / "x.tar", ext="jpg"))


def test_the_index_of_a_larger_archive(archive):
    """Sizes that no memory would hold are not asked for."""
    (archive / "x.tar.idx").write_text(
        f"v1.2 2\ncls 512 {1 << 50} 0.cls jpg 0 0 0.jpg\ncls 2048 1 1.cls jpg {1 << 55} 1 1.jpg\n"
    )
    values, errors, _ = labels(web(archive), 2)
    assert values == [None, None]
    assert all("it lies outside the file, which has 10240 bytes: the index is of another file" in e for e in errors)
    assert "x.tar:512:0.cls" in errors[0]


@pytest.mark.filterwarnings("ignore:.*there is no index of")
def test_errors_without_advice_about_letters(tmp_path):
    c.write_tar(tmp_path / "x.tar", [("0.JPG", b"0"), ("0.cls", b"1"), ("1.jpg", b"2"), ("1.cls", b"3")])
    (tmp_path / "x.idx").write_text("v1.2 2\nJPG 512 1 0.JPG cls 1536 1 0.cls\njpg 2560 x 1.jpg\n")

    def read(*ext, **arguments):
        return labels(lambda: fn.readers.webdataset(paths=tmp_path / "x.tar", ext=list(ext), **arguments)[0])

    with pytest.raises(RuntimeError, match=r"line 3: expected extension, offset, size and name of each member$"):
        read("jpg", "cls", index_paths=tmp_path / "x.idx")
    with pytest.raises(RuntimeError, match=r"sample 0\.JPG has no member 'png'$"):
        read("png", "jpg", missing_component_behavior="error")
    with pytest.raises(
        RuntimeError, match=r"there are no samples .*; no sample has all of the members 'png', 'cls': the extensions"
    ):
        read("png", "cls", missing_component_behavior="skip")


@pytest.mark.parametrize("none", [None, [], ()])
def test_no_indices(archive, none):
    """As in DALI, an empty list is none."""
    expected = labels(web(archive))
    (archive / "x.tar.idx").unlink()
    with pytest.warns(UserWarning, match="there is no index of"):
        actual = labels(lambda: fn.readers.webdataset(paths=archive / "x.tar", index_paths=none, ext=["cls", "jpg"])[0])
    assert actual == expected


def test_the_index_beside_an_archive_is_used(archive, monkeypatch):
    expected = labels(web(archive), 3)
    monkeypatch.setattr(_cpu.TarSamples, "scan", None)
    assert labels(lambda: fn.readers.webdataset(paths=archive / "x.tar", ext=["cls", "jpg"])[0], 3) == expected


@pytest.mark.parametrize("indexed", ["", "a", "b", "ab"])
@pytest.mark.filterwarnings("ignore:.*there is no index")
def test_indices_beside_some_archives(tmp_path, indexed):
    """The samples and their names are the same, whichever archives have an index."""
    for name, numbers in (("a", range(70)), ("b", range(70, 90))):
        c.write_tar(tmp_path / f"{name}.tar", [(f"{name}/{i}.cls", b"%d" % i) for i in numbers])
        if name in indexed:
            assert index.main([str(tmp_path / f"{name}.tar")]) == 0

    @pipeline_def(batch_size=90)
    def pipeline():
        return fn.readers.webdataset(paths=[tmp_path / "a.tar", tmp_path / "b.tar"], ext="cls")

    (classes,) = pipeline().run()
    assert [np.asarray(x).tobytes() for x in classes] == [b"%d" % i for i in range(90)]
    names = [x.source_info().rpartition(":")[2] for x in classes]
    assert names == [f"{'ab'[i >= 70]}/{i}.cls" for i in range(90)]


def test_archives_without_members_need_no_index(archive, recwarn):
    """`jaxdali.index` refuses them, so no warning advises it."""
    c.write_tar(archive / "empty.tar", [])
    assert index.main([str(archive / "empty.tar")]) == 1
    expected = labels(web(archive), 3)
    paths = [archive / "empty.tar", archive / "x.tar"]
    assert labels(lambda: fn.readers.webdataset(paths=paths, ext=["cls", "jpg"])[0], 3) == expected
    assert not [w for w in recwarn if "index" in str(w.message)]


def last_line_lost(text: str) -> str:
    return "v1.2 2\n" + "".join(text.splitlines(keepends=True)[1:-1])


@pytest.mark.parametrize(
    "damage_text",
    [
        lambda text: "",
        lambda text: "v1.2 3",
        last_line_lost,
        lambda text: text.replace("v1.2 3", "v1.2 4"),
        lambda text: text.replace("jpg 512", "jpg x"),
        lambda text: "v1.2 0\n",
        lambda text: text.rstrip("\n").rpartition("\n")[0] + f"\njpg 512 {2**40} 2.jpg\n",
    ],
)
def test_unfit_indices_beside_archives_are_not_used(archive, damage_text):
    expected, path = labels(web(archive), 3), archive / "x.tar.idx"
    path.write_text(damage_text(path.read_text()))
    with pytest.warns(UserWarning, match=r"readers.webdataset: .*x.tar.idx.*made in memory.*index writes it anew"):
        assert labels(lambda: fn.readers.webdataset(paths=archive / "x.tar", ext=["cls", "jpg"])[0], 3) == expected


def test_indices_beside_archives_with_other_members_fit(tmp_path):
    """Behind the last sample, an archive may have folders and hidden files."""
    with tarfile.open(tmp_path / "x.tar", "w") as f:
        for name in ("0.cls", ".hidden.cls", "folder"):
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE if name == "folder" else tarfile.REGTYPE
            info.size = 0 if name == "folder" else 1
            f.addfile(info, io.BytesIO(b"7"))
    assert index.main([str(tmp_path / "x.tar")]) == 0
    assert labels(lambda: fn.readers.webdataset(paths=tmp_path / "x.tar", ext="cls"))[0] == [[ord("7")]]


def test_files_without_extensions_end_a_sample(tmp_path):
    """A file without an extension is a sample without members, as in DALI, whether the archive has an index or not."""
    names = "0.cls", "README", "1.cls", "x", "1.txt", "2.", "3.cls", "LICENSE"
    c.write_tar(tmp_path / "x.tar", [(name, b"7") for name in names])
    read = lambda: fn.readers.webdataset(paths=tmp_path / "x.tar", ext="cls", missing_component_behavior="empty")
    expected = [[ord("7")], [], [ord("7")], [], [], [], [ord("7")], []]
    with pytest.warns(UserWarning, match=r"there is no index of .*x\.tar"):
        assert labels(read, 8)[0] == expected
    assert index.main([str(tmp_path / "x.tar")]) == 0
    assert labels(read, 8)[0] == expected
    with pytest.raises(RuntimeError, match=r"no sample has all of the members 'jpg': the ext.* are cls, txt$"):
        labels(lambda: fn.readers.webdataset(paths=tmp_path / "x.tar", ext="jpg", missing_component_behavior="skip"))


def test_indices_beside_remote_archives_are_used(archive):
    expected = labels(remote(archive), 3)
    read = lambda: fn.readers.webdataset(paths="memory://far/x.tar", ext=["jpg"])
    assert labels(read, 3) == expected
    fs = pytest.importorskip("fsspec").filesystem("memory")
    fs.pipe_file("/far/x.tar.idx", last_line_lost((archive / "x.tar.idx").read_text()).encode())
    with pytest.raises(RuntimeError, match=r"far/x.tar.idx does not fit its file: .* from a local copy"):
        labels(read)


def test_names_are_found_again_in_the_index(tmp_path):
    members = [(f"d{i % 7}/{i}.{e}", b"%d" % i) for i in range(400) for e in (("cls",) if i % 3 else ("jpg", "cls"))]
    for name, some in (("a", members[:300]), ("b", members[300:])):
        c.write_tar(tmp_path / f"{name}.tar", some)
        reader_cases.write_index(tmp_path / f"{name}.tar", tmp_path / f"{name}.idx")

    @pipeline_def(batch_size=100)
    def pipeline():
        paths, indices = ([tmp_path / f"{name}.{end}" for name in "ab"] for end in ("tar", "idx"))
        return fn.readers.webdataset(
            paths=paths, index_paths=indices, ext=["jpg", "cls"], missing_component_behavior="skip"
        )

    (tmp_path / "a.idx").write_text("\ufeff" + (tmp_path / "a.idx").read_text())  # as on Windows
    pipe = pipeline()
    images, _ = pipe.run()
    expected = [f"d{i % 7}/{i}.jpg" for i in range(0, 300, 3)]
    assert [x.source_info().rpartition(":")[2] for x in images] == expected
    (tmp_path / "a.idx").write_text("v1.2 1\njpg 512 1 another.jpg\n")
    names = [x.source_info() for x in pipe.run()[0]]
    assert {x.rpartition(":")[2] for x in names} <= {"", *(f"d{i % 7}/{i}.jpg" for i in range(400))}
    assert "another.jpg" not in "".join(names)


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_the_index_of_every_kind_of_archive(tmp_path, format):
    """The index equals one that is made with Python's tarfile."""
    long = "long/" * 25 if format == tarfile.USTAR_FORMAT else "long/" * 70
    names = [
        "a.jpg",
        "a.seg.png",
        f"{long}b.jpg",
        f"{long}b.cls",
        "\u00e4/c.jpg",
        "d/e/f.txt",
        os.fsdecode(b"\xff/g.jpg"),
        "none",
        "h.jpg",
    ]
    with tarfile.open(tmp_path / "x.tar", "w", format=format) as f:
        for i, name in enumerate(names):
            info = tarfile.TarInfo(name)
            info.size = 300 * i
            f.addfile(info, io.BytesIO(bytes(300 * i)))
            for kind in (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE):
                info = tarfile.TarInfo(f"other.{i}")
                info.type, info.linkname = kind, "a.jpg"
                f.addfile(info)
    with tarfile.open(tmp_path / "x.tar") as f:
        members = [m for m in f if m.isreg()]
    groups = itertools.groupby(members, lambda m: m.name.partition(".")[0])
    lines = [
        " ".join(f"{m.name.partition('.')[2] or '.'} {m.offset_data} {m.size} {m.name}" for m in group)
        for _, group in groups
    ]
    assert write_index(tmp_path / "x.tar", tmp_path / "x.idx") == len(lines)
    assert os.fsdecode((tmp_path / "x.idx").read_bytes()).splitlines() == [f"v1.2 {len(lines)}", *lines]
