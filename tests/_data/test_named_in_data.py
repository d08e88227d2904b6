"""Names of files in data can't lead out of their folder, and URLs that open other URLs are refused."""

import json

import fsspec
import numpy as np
import pytest

from jaxdali import ArgumentError, SampleError, Storage, fn, pipeline_def
from jaxdali._data.named_in_data import check_name, check_names

OUTSIDE = [
    "../secret", "a/../../secret", "./../secret", "http://host/x", "HTTP://host/x", "file:///etc/hostname", "memory://x",
    "reference://x::file:///refs.json", "simplecache::memory://x", "a::b", "zip://x::file:///y.zip",
]  # fmt: skip


@pytest.fixture
def secret(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "a").write_bytes(b"of a")
    return folder


def first_batch(make, **kw):
    @pipeline_def(batch_size=1, num_threads=1, device_id=None, prefetch_queue_depth=1)
    def definition():
        return make()

    pipe = definition(**kw)
    try:
        return [bytes(np.asarray(x[0])) for x in pipe.run()]
    finally:
        pipe.close()


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_leading_elsewhere(secret, name):
    for absolute in (True, False):
        with pytest.raises(ValueError, match=r"allow_outside=True"):
            check_name(name, str(secret), Storage(), absolute=absolute)
        check_name(name, str(secret), Storage(allow_outside=True), absolute=absolute)


@pytest.mark.parametrize("name", ["%2e%2e/x", "%252e%252e/x", "a/..%2f../x", "..\\x", "/x", "a/%2E./.%2e/x"])
def test_names_leading_out_of_a_server(name):
    with pytest.raises(ValueError, match=r"allow_outside=True"):
        check_name(name, "http://host/data", Storage(), absolute=True)


@pytest.mark.parametrize("name", ["a", "./a", "b/../a", "a..b", "..a", "b/c:d", "50%.jpg", "b/..c/d", "x:y"])
def test_names_inside_the_root(name):
    for root in ("", "/data", "s3://bucket/data"):
        check_name(name, root, Storage(), absolute=False)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a\0.jpg", "a zero byte"),
        ("../a\0", "a zero byte"),
        ("a\ud800", r"the character '\\ud800'"),
        ("x" * 10_000_000, "10000000 characters"),
    ],
)
def test_impossible_names(name, problem):
    for storage in (Storage(), Storage(allow_outside=True)):
        for names in (["a", name], [name]):
            with pytest.raises(ValueError, match=problem) as e:
                check_names(names, "", storage, absolute=True)
            assert len(str(e.value)) < 400
    # Other control characters, and bytes that are no UTF-8.
    check_names(["a\tb\x1b", "a\udcff"], "", Storage(), absolute=True)


def test_paths_have_no_zero_byte(secret):
    """At a zero byte native code would end the name, and read another file."""
    path = f"{secret / 'a'}\0.jpg"
    for files in ([path], [(str(secret / "a"), path)]):
        with pytest.raises(ArgumentError, match=r"readers.file: argument files .*a\\x00.jpg' has a zero byte"):
            first_batch(lambda files=files: tuple(fn.readers.file(files=files)))
    content = {"images": [{"id": 1, "file_name": "a\0.jpg", "width": 1, "height": 1}], "categories": [{"id": 1}]}
    (secret / "a.json").write_text(json.dumps(content))
    with pytest.raises(RuntimeError, match=r"readers.coco.*a\.json: image entry 0: .*'a\\x00.jpg' has a zero byte"):
        first_batch(
            lambda: tuple(
                fn.readers.coco(
                    file_root=str(secret),
                    annotations_file=str(secret / "a.json"),
                    storage=Storage(allow_outside=True),
                )
            )
        )


@pytest.mark.parametrize("name", [*OUTSIDE, "/etc/hostname"])
def test_parquet(secret, name):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])

    def read(path, **storage):
        pq.write_table(pa.table({"image": pa.array([{"bytes": None, "path": path}], kind)}), secret / "t.parquet")
        return first_batch(
            lambda: fn.readers.parquet(path=str(secret / "t.parquet"), columns="image", storage=Storage(**storage))
        )

    assert read("a") == [b"of a"]
    with pytest.raises(SampleError, match=r"t\.parquet, row 0.*allow_outside=True"):
        read(name)
    if name.startswith(".."):
        assert read(name, allow_outside=True) == [b"secret"]


@pytest.mark.parametrize("name", [*OUTSIDE, "/etc/hostname"])
def test_coco(secret, name):
    content = {"images": [{"id": 1, "file_name": name, "width": 1, "height": 1}], "categories": [{"id": 1}]}
    content["annotations"] = [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1], "iscrowd": 0, "area": 1}]
    (secret / "c.json").write_text(json.dumps(content))
    with pytest.raises(RuntimeError, match=r"c\.json.*allow_outside=True"):
        first_batch(lambda: fn.readers.coco(file_root=str(secret), annotations_file=str(secret / "c.json"))[0])


@pytest.mark.parametrize("name", OUTSIDE)
def test_lists_of_files(secret, name):
    (secret / "list").write_text(f"a 0\n{name} 1\n")
    for reader in (fn.readers.file, fn.readers.numpy):
        with pytest.raises(RuntimeError, match=r"file_list .*list: entry 1.*allow_outside=True"):
            first_batch(lambda reader=reader: reader(file_list=str(secret / "list")))
    (secret / "list").write_text(f"{secret / 'a'} 0\n")
    assert first_batch(lambda: fn.readers.file(file_list=str(secret / "list"))[0]) == [b"of a"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_manifests(secret, name):
    pytest.importorskip("soundfile")
    (secret / "m.json").write_text(json.dumps({"audio_filepath": name, "duration": 1.0, "text": "x"}))
    with pytest.raises(RuntimeError, match=r"m\.json: entry 0.*allow_outside=True"):
        first_batch(lambda: fn.readers.nemo_asr(manifest_filepaths=[str(secret / "m.json")])[0])


@pytest.mark.parametrize(
    "url", ["reference://a", "simplecache::memory://x", "zip://x::memory://y.zip", "FILECACHE://x", "dir://x"]
)
def test_urls_opening_other_urls(url):
    for make in (
        lambda: fn.readers.file(files=[url])[0],
        lambda: fn.readers.numpy(files=[url]),
        lambda: fn.readers.zip(path=[url]),
    ):
        with pytest.raises((RuntimeError, SampleError), match=r"allow_chained=True"):
            first_batch(make)


def test_chained_urls_where_they_are_allowed():
    fs = fsspec.filesystem("memory")
    fs.pipe_file("/chained/a", b"of a")
    url = "simplecache::memory://chained/a"
    assert first_batch(lambda: fn.readers.file(files=[url], storage=Storage(allow_chained=True))[0]) == [b"of a"]


def test_a_file_can_not_allow_chained_urls(secret):
    def definition(**storage):
        @pipeline_def(batch_size=1, num_threads=1, device_id=None)
        def pipeline():
            return fn.readers.file(file_root="", files=[str(secret / "a")], storage=Storage(**storage))[0]

        return pipeline()

    with pytest.raises(ValueError, match="allow_chained"):
        definition(allow_chained=True).serialize()
    text = definition(retries=7).serialize().decode()
    from jaxdali import Pipeline

    with pytest.raises(RuntimeError, match="can't allow chained URLs"):
        Pipeline.deserialize(text.replace('"retries": 7', '"retries": 7, "allow_chained": true'))
