"""readers.zip: members, labels, damaged archives."""

import zipfile

import numpy as np
import pytest

from jaxdali import SampleError, Storage, fn, pipeline_def


def test_too_large_members_are_refused(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as z:
        for name, compression in (("a.jpg", zipfile.ZIP_STORED), ("b.jpg", zipfile.ZIP_DEFLATED)):
            z.writestr(name, b"small", compression)
            z.writestr("large " + name, bytes(100_000), compression)
    storage = Storage(max_record_bytes=10_000)
    for name in ("a.jpg", "b.jpg"):
        assert len(read(1, path=path, file_filter=name, storage=storage)) == 1
        with pytest.raises(SampleError, match=rf"large {name}: .*100000 bytes, Storage\(max_record_bytes=10000\)"):
            read(1, path=path, file_filter="large " + name, storage=storage)
        assert len(read(1, path=path, file_filter="large " + name)[0][1]) == 100_000


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as z:
        z.comment = b"a comment " * 50
        z.mkdir("b")
        for name, data in (
            ("b/1.jpg", b"stored " * 9),
            ("a/2.jpg", b"second"),
            ("b/notes.txt", b"notes"),
            ("top.jpg", b""),
        ):
            z.writestr(name, data)
        z.writestr("a/3.jpg", b"deflated " * 1000, zipfile.ZIP_DEFLATED)
        with z.open("a/4.jpg", "w") as f:  # of unknown size: its checksum stands behind it
            f.write(b"streamed")
    return path


def read(n, **kwargs):
    @pipeline_def(batch_size=n, num_threads=2)
    def pipeline():
        return fn.readers.zip(**kwargs)

    pipe = pipeline()
    data, labels = pipe.run()
    pipe.close()
    return [(x.source_info(), np.asarray(x).tobytes(), int(np.asarray(y)[0])) for x, y in zip(data, labels)]


def test_members_and_labels(archive):
    members = read(5, path=archive, file_filter="*.jpg")
    contents = [
        ("b/1.jpg", b"stored " * 9, 2),
        ("a/2.jpg", b"second", 1),
        ("top.jpg", b"", 0),
        ("a/3.jpg", b"deflated " * 1000, 1),
    ]
    assert members == [
        (f"{archive}/{name}", data, label) for name, data, label in [*contents, ("a/4.jpg", b"streamed", 1)]
    ]
    assert [x[1] for x in read(2, path=archive, file_filter=["*.txt", "1.*"])] == [b"stored " * 9, b"notes"]
    with pytest.raises(RuntimeError, match=r"no member of .*x\.zip matches file_filter \['\*\.png'\]"):
        read(1, path=archive, file_filter="*.png")


def test_an_archive_of_macos(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as z:
        for name in ("a/1.jpg", "__MACOSX/a/._1.jpg", "b/2.jpg", "__MACOSX/b/._2.jpg"):
            z.writestr(name, name)
    with pytest.warns(UserWarning, match=r"x\.zip: 2 members named \._\* are listed.*file_filter=\"\[!\.\]\*\""):
        assert [x[2] for x in read(4, path=tmp_path / "x.zip")] == [2, 0, 3, 1]
    assert [x[2] for x in read(2, path=tmp_path / "x.zip", file_filter="[!.]*")] == [0, 1]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d.replace(b"second", b"Second"), r"a/2\.jpg \(at \d+\): its checksum is wrong"),
        (lambda d: d.replace(b"PK\3\4", b"PK\3\5"), r"there is no member where the archive's table says"),
    ],
)
def test_damaged_members_are_named(archive, change, text):
    archive.write_bytes(change(archive.read_bytes()))
    with pytest.raises(SampleError, match=text):
        read(2, path=archive)


def test_a_member_without_a_name_is_damage(archive):
    data = archive.read_bytes()
    name_at = data.rindex(b"PK\1\2") + 46  # a name in the archive's table; it ends at a zero
    archive.write_bytes(data[:name_at] + b"\0" + data[name_at + 1 :])
    with pytest.raises(RuntimeError, match=r"x\.zip: a member has no name"):
        read(1, path=archive)


def test_other_files_are_refused(archive, tmp_path):
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RuntimeError, match=r"x\.zip: File is not a zip file"):
        read(1, path=archive)
    with zipfile.ZipFile(tmp_path / "y.zip", "w", zipfile.ZIP_LZMA) as z:
        z.writestr("1", b"x")
    with pytest.raises(
        RuntimeError, match=r"y\.zip: 1 is compressed by method 14; only stored or deflated members can be read"
    ):
        read(1, path=tmp_path / "y.zip")
