"""readers.file: lists, labels, contents, order, errors."""

import os
from typing import Any

import numpy as np
import pytest
from PIL import Image

from jaxdali import OperatorError, SampleError, fn, pipeline_def, types
from jaxdali.fn.readers import _file
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import DALIGenericIterator

NAMES = ["2/b.jpg", "10/a.png", "10/B.JPG", "10/notes.txt", "a/x.bin", "a/c.tiff"]


@pytest.fixture
def root(tmp_path):
    for name in NAMES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    (tmp_path / "Empty").mkdir()
    return tmp_path


def read(batches=1, batch_size=4, seed=0, pipeline_seed=1, **kwargs):
    """(names, labels, contents) of some batches."""

    @pipeline_def(batch_size=batch_size, num_threads=2, seed=pipeline_seed)
    def pipeline():
        return fn.readers.file(seed=seed, **kwargs)

    pipe = pipeline()
    names, labels, contents = [], [], []
    for _ in range(batches):
        data, label = pipe.run()
        assert label.shape() == [(1,)] * batch_size
        names += [data[i].source_info() for i in range(batch_size)]
        labels += label.as_array()[:, 0].tolist()
        contents += [np.asarray(data[i]).tobytes().decode() for i in range(batch_size)]
    return names, labels, contents


def test_directories_in_byte_order_are_classes(root):
    names, labels, contents = read(file_root=root)
    assert names == ["10/B.JPG", "10/a.png", "2/b.jpg", "a/c.tiff"]  # "Empty" is class 2
    assert labels == [0, 0, 1, 3]
    assert contents == names
    assert read(file_root=str(root))[0] == names


def test_filters(root):
    assert read(file_root=root, batch_size=2, file_filters=["*.txt", "*.bin"])[0] == ["10/notes.txt", "a/x.bin"]
    assert read(file_root=root, batch_size=2, file_filters="[ab].*")[0] == ["10/B.JPG", "10/a.png"]
    assert read(file_root=root, batch_size=1, file_filters=["*.jpg"])[0] == ["10/B.JPG"]
    assert read(file_root=root, batch_size=1, file_filters=["*.jpg"], case_sensitive_filter=True)[0] == ["2/b.jpg"]
    assert read(file_root=root, batch_size=2, dir_filters=["2", "A"])[:2] == (["2/b.jpg", "a/c.tiff"], [0, 1])
    assert read(file_root=root, batch_size=2, dir_filters=["2", "A"], case_sensitive_filter=True)[0] == ["2/b.jpg"] * 2


FOLDERS = [
    ".ipynb_checkpoints/a-checkpoint.jpg",
    *(
        "cats/._1.jpg",
        "cats/1.jpg",
        "cats/2.HEIC",
        "cats/3.gif",
        "cats/4.gif",
        "cats/notes.txt",
        "cats/Thumbs.db",
        "cats/._2.gif",
    ),
    *("cats/2024/5.jpg", "cats/2024/may/6.gif", "cats/2024/notes.txt", "cats/.cache/7.jpg"),
    *("dogs/8.png", "dogs/9.cr2", "dogs/10.mp3", "cover.jpg", "cover.gif", "classes.txt", ".hidden.jpg"),
]


@pytest.fixture(params=["local", "remote"])
def folders(request, tmp_path):
    """A root with what people do not expect in one."""
    place = str(tmp_path) if request.param == "local" else f"memory://{tmp_path}"
    fs = pytest.importorskip("fsspec").filesystem("file" if request.param == "local" else "memory")
    for name in FOLDERS:
        fs.makedirs(os.path.dirname(f"{tmp_path}/{name}"), exist_ok=True)
        fs.pipe_file(f"{tmp_path}/{name}", name.encode())
    yield place
    fs.rm(str(tmp_path), recursive=True)


def test_warning_about_folders(folders):
    with pytest.warns(UserWarning) as record:
        names, labels, _ = read(file_root=folders)
    # The labels are DALI's.
    assert list(zip(names, labels, strict=True)) == [
        *((".ipynb_checkpoints/a-checkpoint.jpg", 0), ("cats/._1.jpg", 1), ("cats/1.jpg", 1), ("dogs/8.png", 2))
    ]
    (text,) = (str(w.message) for w in record)
    assert text.startswith("readers.file: ")
    assert "files in the sub-directories are not listed: 2 .gif, 1 .HEIC, 1 .cr2, 1 .mp3 (" in text
    assert 'file_filters="images" lists all' in text
    assert "adding '*.cr2', '*.mp3' to file_filters lists these" in text
    assert '.ipynb_checkpoints as class 0 (dir_filters="[!.]*"' in text
    assert "hold no samples are listed: 1 ._* (" in text
    deeper = "files in deeper folders, such as cats/2024, are not listed: 2"
    assert f"files beside the sub-directories are not listed: 2 and {deeper} (files=" in text


def test_all_images_of_folders(folders, monkeypatch):
    options = {"file_root": folders, "file_filters": "images", "dir_filters": "[!.]*"}
    with pytest.warns(
        UserWarning, match=r"in the sub-directories are not listed: 1 \.cr2 .*in deeper folders[^;]*: 2 [^;]*$"
    ):
        names, labels, _ = read(**options, batch_size=5)
    assert names == ["cats/1.jpg", "cats/2.HEIC", "cats/3.gif", "cats/4.gif", "dogs/8.png"]
    assert labels == [0, 0, 0, 0, 1]
    assert set(_file.decodable_extensions()) > {f.removeprefix("*") for f in _file.FILE_FILTERS[:-3]}
    monkeypatch.setattr(_file, "decodable_extensions", lambda: (".jpg",))
    with pytest.warns(UserWarning, match=r"2 \.gif.*\.gif, \.heic, \.png can be decoded after pip install"):
        assert read(**options, batch_size=1)[0] == ["cats/1.jpg"]


def test_kinds_of_explicit_filters(folders):
    with pytest.warns(
        UserWarning, match=r"hold no samples.*1 \._\*.*; files beside [^;]*: 1 and files in deeper [^;]*: 1 "
    ) as record:
        read(file_root=folders, file_filters=["*.gif"], dir_filters="cats", batch_size=3)
    assert "in the sub-directories" not in str(record[0].message)


@pytest.mark.parametrize(("case_sensitive", "pattern"), [(True, "*.CR2"), (False, "*.cr2")])
def test_addition_of_kinds(tmp_path, case_sensitive, pattern):
    (tmp_path / "a").mkdir()
    for name in ("1.jpg", "2.CR2"):
        (tmp_path / "a" / name).write_text(name)
    options = {"file_root": tmp_path, "case_sensitive_filter": case_sensitive}
    with pytest.warns(UserWarning, match=r"1 \.CR2 .*\(adding '(\S+)' to file_filters lists them\)") as record:
        read(**options, batch_size=1)
    assert repr(pattern) in str(record[0].message)
    assert read(**options, file_filters=[*_file.FILE_FILTERS, pattern], batch_size=2)[0] == ["a/1.jpg", "a/2.CR2"]


def test_only_unlisted_kinds(tmp_path):
    for name in ("a/1.gif", "a/2.gif", "b/3.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(OperatorError, match=r'match file_filters.*; there are 2 \.gif: file_filters="images" lists'):
        read(file_root=tmp_path)
    (tmp_path / "train" / "b").mkdir(parents=True)
    (tmp_path / "train" / "b" / "4.jpg").write_bytes(b"")
    with pytest.raises(
        OperatorError,
        match=r"match file_filters.*; there are 1 in deeper folders, such as train/b, which are not entered",
    ):
        read(file_root=tmp_path, dir_filters="train")


def test_files_and_labels(root):
    paths = [root / "a/x.bin", str(root / "2/b.jpg")]
    assert read(files=paths, batch_size=2) == ([str(p) for p in paths], [0, 1], ["a/x.bin", "2/b.jpg"])
    assert read(files=["a/x.bin", "2/b.jpg"], file_root=root, labels=[-7, 5], batch_size=2)[:2] == (
        ["a/x.bin", "2/b.jpg"],
        [-7, 5],
    )
    assert read(files=paths[1], labels=3, batch_size=1)[1] == [3]


def test_file_list(root):
    (root / "beside.jpg").write_text("beside.jpg")
    (root / "list.txt").write_text(f"2/b.jpg 5\n\n  \nbeside.jpg\t 17 \r\n{root}/a/x.bin 0")
    names, labels, contents = read(file_list=root / "list.txt", batch_size=3)
    assert names == ["2/b.jpg", "beside.jpg", f"{root}/a/x.bin"]
    assert labels == [5, 17, 0]
    assert contents == ["2/b.jpg", "beside.jpg", "a/x.bin"]
    (root / "spaces in name.jpg").write_bytes(b"s")
    (root / "other.txt").write_text("spaces in name.jpg 2")
    assert read(file_list=root / "other.txt", file_root=root, batch_size=1) == (["spaces in name.jpg"], [2], ["s"])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_file_list_of_windows(root, encoding):
    """Such a list begins with a byte-order mark."""
    (root / "ü 0.jpg").write_bytes(b"u")
    (root / "list.txt").write_bytes("\ufeffü 0.jpg 5\r\n2/b.jpg\t7\r\n".encode(encoding))
    assert read(file_list=root / "list.txt", batch_size=2) == (["ü 0.jpg", "2/b.jpg"], [5, 7], ["u", "2/b.jpg"])
    if encoding != "utf-8":
        (root / "list.txt").write_bytes("2/b.jpg 7\n".encode(encoding))
        with pytest.raises(RuntimeError, match=r"list\.txt has zero bytes: save it as UTF-8"):
            read(file_list=root / "list.txt")
        (root / "list.txt").write_bytes("\ufeff2/b.jpg 7\n".encode(encoding)[:-1])
        with pytest.raises(
            RuntimeError, match=rf"list\.txt begins like a text in {encoding}, and is none: truncated data"
        ):
            read(file_list=root / "list.txt")


def many(tmp_path, n=20):
    for i in range(n):
        (tmp_path / f"{i:03d}").write_bytes(bytes([65 + i]))
    return {"file_root": tmp_path, "files": [f"{i:03d}" for i in range(n)]}


def test_shards_and_padding(tmp_path):
    data = many(tmp_path, 10)
    options = {"num_shards": 3, "shard_id": 0, "batch_size": 2, "batches": 3}
    assert read(**data, **options)[1] == [0, 1, 2, 3, 4, 5]
    assert read(**data, **options, stick_to_shard=True)[1] == [0, 1, 2, 0, 1, 2]
    assert read(**data, **options, pad_last_batch=True)[1] == [0, 1, 2, 2, 3, 4]
    assert read(**data, **{**options, "shard_id": 2})[1] == [6, 7, 8, 9, 0, 1]


def test_shuffling(tmp_path):
    data = {**many(tmp_path), "batch_size": 5, "batches": 8}
    order = read(**data, random_shuffle=True)[1]
    assert sorted(order[:20]) == sorted(order[20:]) == list(range(20))
    assert order[:20] != order[20:] != list(range(20))
    assert read(**data, random_shuffle=True, pipeline_seed=2)[1] == order  # its own seed, 0, decides
    assert read(**data, random_shuffle=True, seed=5)[1] != order
    unseeded = read(**data, random_shuffle=True, seed=-1, pipeline_seed=1)[1]
    assert unseeded == read(**data, random_shuffle=True, seed=-1, pipeline_seed=1)[1]
    assert unseeded != read(**data, random_shuffle=True, seed=-1, pipeline_seed=2)[1]
    in_list_order = read(**data, random_shuffle=True, initial_fill=1)[1]
    assert in_list_order[:20] == in_list_order[20:] != order[:20]
    after_epoch = read(**data, shuffle_after_epoch=True)[1]
    assert sorted(after_epoch[:20]) == list(range(20))
    assert after_epoch[:20] != after_epoch[20:]
    assert after_epoch == read(**data, shuffle_after_epoch=True, seed=9)[1]
    assert after_epoch != read(**data, shuffle_after_epoch=True, shuffle_after_epoch_seed=9)[1]


def test_batch_size_does_not_change_the_order(tmp_path):
    data = many(tmp_path)
    assert (
        read(**data, random_shuffle=True, batch_size=4, batches=10)[1]
        == read(**data, random_shuffle=True, batch_size=8, batches=5)[1]
    )


def test_reader_meta(tmp_path):
    @pipeline_def(batch_size=2)
    def pipeline():
        return fn.readers.file(**many(tmp_path, 10), num_shards=3, shard_id=1, pad_last_batch=True, name="reader")

    pipe = pipeline()
    assert pipe.epoch_size("reader") == 12
    assert pipe.reader_meta("reader") == {
        "epoch_size": 10,
        "epoch_size_padded": 12,
        "number_of_shards": 3,
        "shard_id": 1,
        "pad_last_batch": 1,
        "stick_to_shard": 0,
    }


def test_unreadable_files_fail_their_batch_only(tmp_path):
    data = many(tmp_path, 6)

    @pipeline_def(batch_size=2, num_threads=2, prefetch_queue_depth=1)
    def pipeline():
        return fn.readers.file(**data)

    os.remove(tmp_path / "001")
    os.remove(tmp_path / "005")
    os.mkdir(tmp_path / "005")
    pipe = pipeline()
    with pytest.raises(SampleError, match=f"{tmp_path}/001: No such file") as e:
        pipe.run()
    assert e.value.source == f"{tmp_path}/001"
    assert pipe.run()[1].as_array()[:, 0].tolist() == [2, 3]
    with pytest.raises(SampleError, match="directory"):
        pipe.run()


def test_empty_file(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    assert read(files=[tmp_path / "empty"], batch_size=2)[2] == ["", ""]


def test_errors_when_built(root):
    (root / "no_label.txt").write_text("2/b.jpg\n")
    (root / "text_label.txt").write_text("2/b.jpg 1\n2/b.jpg cat\n")
    (root / "empty.txt").write_text("\n")
    (root / "big.txt").write_text("2/b.jpg 4294967297\n")
    for kwargs, text in [
        ({"file_root": root / "missing"}, "missing: No such file"),
        ({"file_root": root / "Empty"}, "Empty has no sub-directories"),
        ({"file_root": root, "file_filters": ["*.webp"]}, r"match file_filters \['\*.webp'\]"),
        ({"file_root": root, "dir_filters": ["z"]}, "dir_filters"),
        ({"file_list": root / "missing.txt"}, "missing.txt"),
        ({"file_list": root / "no_label.txt"}, "no_label.txt, line 1"),
        ({"file_list": root / "text_label.txt"}, "text_label.txt, line 2"),
        ({"file_list": root / "empty.txt"}, "names no files"),
        ({"file_list": root / "big.txt"}, "32-bit"),
        ({"file_root": root, "num_shards": 5}, "4 samples for 5 shards"),
        ({"file_root": root, "num_shards": 2, "shard_id": 2}, "shard_id"),
        ({"file_root": root, "shard_id": -1}, "shard_id"),
        ({"file_root": root, "num_shards": 0}, "num_shards"),
        ({"file_root": root, "initial_fill": 0}, "initial_fill"),
        ({"file_root": root, "random_shuffle": True, "shuffle_after_epoch": True}, "shuffle_after_epoch"),
        ({"files": ["a", "b"], "labels": [1]}, "equally long"),
        ({"files": []}, "files is empty"),
        ({"files": f"{root}/*/*.jpg"}, r"got the pattern '.*/\*/\*\.jpg': pass files=glob\.glob"),
        ({"files": ["*.jpg"], "file_root": root}, r"got the pattern '\*\.jpg'"),
        ({"files": ["a"], "file_list": "b"}, "file_list"),
        ({"file_root": root, "labels": [1]}, "labels"),
        ({"file_root": root, "device": "gpu"}, "device"),
        ({}, "file_root"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            read(**kwargs)
    with pytest.warns(UserWarning, match="shuffle_after_epoch_seed has no effect"):
        read(file_root=root, shuffle_after_epoch_seed=1)
    with pytest.raises(TypeError, match="file_root"):
        read(file_root=3)
    with pytest.raises(TypeError, match="labels"):
        read(files=["a"], labels=[1.5])


def test_hints_change_nothing(root):
    hints = {
        "bytes_per_sample_hint": 100,
        "dont_use_mmap": True,
        "lazy_init": True,
        "prefetch_queue_depth": 3,
        "preserve": True,
        "read_ahead": True,
        "skip_cached_images": True,
        "tensor_init_bytes": 1,
    }
    assert read(file_root=root, **hints) == read(file_root=root)


def test_unreadable_files_can_be_left_out(tmp_path):
    """The samples left out are reported, and nothing else changes: random numbers, other sources, checkpoints."""
    paths = [tmp_path / f"{i}.jpg" for i in range(10)]
    for i, path in enumerate(paths):
        path.write_bytes(bytes([i]))

    @pipeline_def(batch_size=4, num_threads=2, seed=1, enable_checkpointing=True)
    def pipeline():
        files, _ = fn.readers.file(files=paths, on_error="skip")
        numbers = fn.external_source(lambda info: np.int32(info.idx_in_epoch), batch=False, dtype=types.INT32)
        return files, fn.cast(files, dtype=types.FLOAT) * fn.random.uniform(range=(1, 2)), numbers

    def read_batches(pipe: Any, batches: int) -> list[list[list[float]]]:
        return [[[np.asarray(x).item() for x in output] for output in pipe.run()] for _ in range(batches)]

    complete = read_batches(pipeline(), 4)
    removed = {1, 4, 5, 6, 7}  # of the first batch one, of the second all
    for i in removed:
        paths[i].unlink()
    expected = [
        [[x for x, i in zip(output, batch[0], strict=True) if i not in removed] for output in batch]
        for batch in complete
    ]
    assert [len(batch[0]) for batch in expected] == [3, 0, 3, 2]
    damaged = pipeline()
    first = read_batches(damaged, 1)
    resumed = pipeline(checkpoint=damaged.checkpoint())
    assert first + read_batches(damaged, 3) == expected
    assert read_batches(resumed, 3) == expected[1:]
    assert {(b.file, b.count) for b in damaged.bad_samples()} == {
        (str(paths[i]), 2 if i in (1, 4, 5) else 1) for i in removed
    }


@pytest.mark.parametrize("order", [1, -1])
def test_operators_skip_samples_left_out(tmp_path, order):
    """Whichever source is read first: an empty file could not be decoded."""
    paths = [tmp_path / f"{i}.png" for i in range(4)]
    for i, path in enumerate(paths):
        Image.new("L", (1, 1), i).save(path)

    @pipeline_def(batch_size=4, num_threads=2)
    def pipeline():
        sources = [
            lambda: fn.readers.file(files=paths, on_error="skip")[0],
            lambda: fn.external_source(lambda info: np.int32(info.idx_in_epoch), batch=False, dtype=types.INT32),
        ]
        files, numbers = [source() for source in sources[::order]][::order]
        return fn.decoders.image(files, output_type=types.GRAY), numbers

    pipe = pipeline()
    pipe.build()
    paths[2].unlink()
    pixels, numbers = ([np.asarray(x).item() for x in output] for output in pipe.run())
    assert pixels == numbers == [0, 1, 3]


def test_arrays_of_incomplete_batches(tmp_path):
    """Shapes of JAX's arrays don't change: a mask says which samples there are; without one it is an error."""
    (tmp_path / "class").mkdir()
    for i in range(6):
        (tmp_path / "class" / f"{i}.jpg").write_bytes(bytes([i] * 3))

    @pipeline_def(batch_size=4, num_threads=1)
    def pipeline():
        return fn.readers.file(file_root=tmp_path, on_error="skip", name="files")[0]

    with_mask, without_mask = pipeline(), pipeline()
    with_mask.build()
    without_mask.build()
    (tmp_path / "class" / "2.jpg").unlink()
    options = {"reader_name": "files", "last_batch_policy": LastBatchPolicy.PARTIAL}
    arrays = [
        (np.asarray(b["x"]), np.asarray(b["mask"]).tolist())
        for b in DALIGenericIterator(with_mask, ["x"], mask_name="mask", **options)
    ]
    assert [x.shape for x, _ in arrays] == [(4, 3), (4, 3)]
    assert [mask for _, mask in arrays] == [[True, True, False, True], [True, True, False, False]]
    assert [i for x, mask in arrays for i in x[mask, 0].tolist()] == [0, 1, 3, 4, 5]
    with pytest.raises(ValueError, match=r"a source gave 3 of 4 samples.*or pass mask_name.*2\.jpg: No such file"):
        next(DALIGenericIterator(without_mask, ["x"], reader_name="files"))


def test_empty_batches_keep_the_shape(tmp_path):
    (tmp_path / "class").mkdir()
    paths = [tmp_path / "class" / f"{i}.png" for i in range(4)]
    for path in paths:
        Image.new("RGB", (3, 2)).save(path)

    @pipeline_def(batch_size=2, num_threads=1)
    def pipeline():
        return fn.decoders.image(fn.readers.file(file_root=tmp_path, on_error="skip", name="files")[0])

    def shapes(removed: list[int]) -> list[tuple[int, ...]]:
        pipe = pipeline()
        pipe.build()
        for i in removed:
            paths[i].rename(paths[i].with_suffix(".gone"))
        try:
            options = {"reader_name": "files", "last_batch_policy": LastBatchPolicy.PARTIAL, "mask_name": "mask"}
            return [b["x"].shape for b in DALIGenericIterator(pipe, ["x"], **options)]
        finally:
            for i in removed:
                paths[i].with_suffix(".gone").rename(paths[i])

    assert shapes([2, 3]) == [(2, 2, 3, 3)] * 2
    with pytest.raises(OperatorError, match=r"decoders\.image.*no sample of the first batch could be read"):
        shapes([0, 1])


def test_unreadable_files_can_be_replaced(tmp_path):
    data = many(tmp_path, 12)
    for i in (1, 2, 5, 11):
        os.remove(tmp_path / f"{i:03d}")

    @pipeline_def(batch_size=4, num_threads=2, prefetch_queue_depth=1)
    def pipeline(on_error):
        return fn.readers.file(**data, on_error=on_error)

    pipe = pipeline("replace")
    labels = [pipe.run()[1].as_array()[:, 0].tolist() for _ in range(3)]
    assert labels == [[0, 4, 3, 3], [4, 6, 6, 7], [8, 9, 10, 0]]  # 1 -> 2 -> 4, 2 -> 3, 5 -> 6, 11 -> 0
    assert [(b.file, b.count) for b in pipe.bad_samples()] == [
        (f"{tmp_path}/{name}", 1) for name in ("001", "002", "005", "011")
    ]
    assert pipe.bad_samples()[0].reason == "No such file or directory"

    with pytest.raises(SampleError, match="001"):
        pipeline("raise").run()
    for i in range(12):
        (tmp_path / f"{i:03d}").unlink(missing_ok=True)
    with pytest.raises(SampleError, match=r"000: .*No such file.*no record that could replace it"):
        pipeline("replace").run()


def test_tuples_of_files(tmp_path):
    """Image and mask stay together in every order, also where some can't be read, and over URLs."""
    n = 11
    for i in range(n):
        (tmp_path / f"{i}.jpg").write_bytes(b"image %d" % i)
        (tmp_path / f"{i}.png").write_bytes(b"mask %d" % i)
    (tmp_path / "4.png").unlink()
    pairs = [(f"{i}.jpg", f"{i}.png") for i in range(n)]

    def rows(root=tmp_path, **kwargs):
        @pipeline_def(batch_size=3, num_threads=2, seed=2)
        def pipeline():
            return fn.readers.file(file_root=str(root), files=pairs, **kwargs)

        pipe, samples = pipeline(), []
        for _ in range(8):
            samples += [tuple(np.asarray(x).tobytes() for x in row) for row in zip(*pipe.run())]
        pipe.close()
        return samples

    for order in ({}, {"shuffle": "global"}, {"random_shuffle": True, "num_shards": 2, "shard_id": 1}):
        samples = rows(on_error="skip", **order)
        assert all(
            (a, b) == (b"image %d" % k, b"mask %d" % k) for a, b, c in samples for k in np.frombuffer(c, np.int32)
        )
        assert b"image 4" not in [a for a, *_ in samples]
        assert len({a for a, *_ in samples}) == n - 1
    fsspec = pytest.importorskip("fsspec")
    for name in os.listdir(tmp_path):
        fsspec.filesystem("memory").pipe_file(f"/pairs/{name}", (tmp_path / name).read_bytes())
    assert rows("memory://pairs", on_error="skip") == rows(on_error="skip")
    with pytest.raises(SampleError, match=r"4\.png"):
        rows()
    for wrong in ([("a", "b"), "c"], [("a", "b"), ("c",)], [("a",)]):
        with pytest.raises(
            ValueError, match="tuples of two or more paths that belong together, all of the same length"
        ):
            fn.readers.file(files=wrong)
