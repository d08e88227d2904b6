"""readers.numpy: files, types, regions (as real DALI cuts them), order, errors."""

import json

import numpy as np
import places
import pytest
import strange_headers

from jaxdali import SampleError, fn, pipeline_def, types

# [arguments, result of NVIDIA DALI 2.4, null if it refuses them], for the 5x7 array of tests/data/readers_numpy.py.
REGIONS = json.loads((places.DATA / "readers_numpy.json").read_text())


def read(batch_size=1, batches=1, **kwargs):
    """The arrays of some batches and where they are from."""

    @pipeline_def(batch_size=batch_size, num_threads=2, seed=1, prefetch_queue_depth=1)
    def pipeline():
        return fn.readers.numpy(**kwargs)

    pipe = pipeline()
    samples = [x for _ in range(batches) for x in pipe.run()[0]]
    return [np.asarray(x) for x in samples], [x.source_info() for x in samples]


@pytest.fixture
def root(tmp_path):
    for k, name in enumerate(["b.npy", "a.npy", "+x/1.npy", "!y/2.npy", "!y/.deep/3.npy"]):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.full((k + 1, 2), k, np.int32))
    (tmp_path / "c.txt").write_text("text")
    return tmp_path


def test_files(root):
    """DALI lists the files of the root first, then one level of sub-directories, in byte order."""
    arrays, names = read(batch_size=5, file_root=root)
    assert names == ["./a.npy", "./b.npy", "!y/2.npy", "+x/1.npy", "./a.npy"]
    assert [x.shape for x in arrays] == [(2, 2), (1, 2), (4, 2), (3, 2), (2, 2)]
    assert [x[0, 0] for x in arrays] == [1, 0, 3, 2, 1]
    assert read(batch_size=2, file_root=root, file_filter="[ab].*")[1] == ["./a.npy", "./b.npy"]
    assert read(batch_size=2, files=["b.npy", root / "a.npy"], file_root=root)[1] == ["b.npy", str(root / "a.npy")]
    (root / "list.txt").write_text("b.npy\n\n!y/.deep/3.npy\r\n")
    assert read(batch_size=2, file_list=root / "list.txt")[1] == ["b.npy", "!y/.deep/3.npy"]


def test_warning_about_folders(root):
    for name in ("+x/._1.npy", "+x/deep/3.npy", "!y/4.NPY", ".git/5.npy", ".empty/6.txt"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes((root / "a.npy").read_bytes())
    with pytest.warns(UserWarning) as record:
        assert read(batch_size=6, file_root=root)[1] == [
            "./a.npy",
            "./b.npy",
            "!y/2.npy",
            "+x/._1.npy",
            "+x/1.npy",
            ".git/5.npy",
        ]
    (text,) = (str(w.message) for w in record)
    for part in (
        "sub-directories are not listed: 1 .NPY",
        'file_filter="*.[nN][pP][yY]"',
        "others: .git (files=",
        "listed: 1 ._* (",
        "files in deeper folders, such as +x/deep",
    ):
        assert part in text
    with pytest.warns(UserWarning, match="deeper folders"):
        assert "!y/4.NPY" in read(batch_size=7, file_root=root, file_filter="*.[nN][pP][yY]")[1]


@pytest.mark.parametrize(
    "x",
    [
        np.float32(3.5),
        np.arange(3, dtype=np.int64),
        np.array([True, False]),
        np.array([[1.5]], np.float16),
        np.array([2**63], np.uint64),
        np.zeros((0, 3), np.float32),
        np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)),
        np.array([1, 2], ">i4"),
    ],
    ids=lambda x: f"{x.dtype}{list(x.shape)}",
)
@pytest.mark.parametrize("cache", [False, True])
def test_types(x, cache, tmp_path):
    np.save(tmp_path / "x.npy", x)
    for array in read(batches=2, files=tmp_path / "x.npy", cache_header_information=cache)[0]:
        np.testing.assert_array_equal(array, x, strict=x.dtype.isnative)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_versions_of_the_format(version, tmp_path):
    with open(tmp_path / "x.npy", "wb") as f:
        np.lib.format.write_array(f, np.arange(3), version=version)
    assert read(files=tmp_path / "x.npy")[0][0].tolist() == [0, 1, 2]


def check_region(array, expected):
    if expected is None:
        assert array is None
    else:
        np.testing.assert_array_equal(array, np.array(expected, np.int16).reshape(array.shape))


def test_regions(tmp_path):
    """160 random regions of an array in Fortran's order, cut from the mapped file and from the whole one."""
    np.save(tmp_path / "x.npy", np.asfortranarray(np.arange(35, dtype=np.int16).reshape(5, 7)))

    @pipeline_def(batch_size=1, num_threads=1, prefetch_queue_depth=1)
    def pipeline(kwargs, whole):
        return fn.readers.numpy(files=tmp_path / "x.npy", dont_use_mmap=whole, **kwargs)

    for k, (kwargs, expected) in enumerate(REGIONS):
        try:
            array = np.asarray(pipeline(kwargs, k % 2 == 0).run()[0][0])
        except (RuntimeError, ValueError):
            array = None
        check_region(array, expected)


def test_regions_of_each_sample(tmp_path):
    """The same regions, by arguments that differ within a batch."""
    np.save(tmp_path / "x.npy", np.asfortranarray(np.arange(35, dtype=np.int16).reshape(5, 7)))
    cases = [
        (k, w) for k, w in REGIONS if w is not None and {"rel_roi_start", "roi_end"} <= set(k) and "roi_axes" not in k
    ]
    num_tried = 0
    for policy, fill in {(k["out_of_bounds_policy"], k["fill_value"]) for k, _ in cases}:
        batch = [(k, w) for k, w in cases if (k["out_of_bounds_policy"], k["fill_value"]) == (policy, fill)]
        columns = {
            n: [np.broadcast_to(np.array(k[n], t), 2) for k, _ in batch]
            for n, t in (("rel_roi_start", "f4"), ("roi_end", "i4"))
        }

        @pipeline_def(batch_size=len(batch), num_threads=1, prefetch_queue_depth=1)
        def pipeline(columns=columns, policy=policy, fill=fill):
            nodes = {n: fn.external_source(source=[x], cycle=True) for n, x in columns.items()}
            return fn.readers.numpy(files=tmp_path / "x.npy", out_of_bounds_policy=policy, fill_value=fill, **nodes)

        for array, (_, expected) in zip(pipeline().run()[0], batch, strict=True):
            check_region(np.asarray(array), expected)
        num_tried += len(batch)
    assert num_tried >= 4


def test_a_region_outside_of_one_sample(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((4, 4)))

    @pipeline_def(batch_size=2, num_threads=1)
    def pipeline():
        start = fn.external_source(source=[[np.int32(1), np.int32(3)]], cycle=True)
        return fn.readers.numpy(files=tmp_path / "x.npy", roi_start=start, roi_shape=2)

    with pytest.raises(
        SampleError, match=r"readers.numpy.*x.npy: .*the region from \[3, 3\] to \[5, 5\] reaches outside"
    ):
        pipeline().run()


def test_a_known_shape_is_dense(tmp_path):
    """A patch of a given shape goes into programs as one array, wherever it is cut."""
    for n in (8, 9):
        np.save(tmp_path / f"{n}.npy", np.full((n, n), n, np.float32))

    @pipeline_def(batch_size=2, num_threads=1, seed=3)
    def pipeline():
        start = fn.random.uniform(range=(0, 5), shape=2, dtype=types.INT32)
        static = fn.readers.numpy(file_root=tmp_path, roi_start=(1, 1), roi_end=(4, 5))
        return static, fn.readers.numpy(file_root=tmp_path, roi_start=start, roi_shape=(3, 4)) * 2

    static, moved = pipeline().run()
    assert static.as_array().shape == moved.as_array().shape == (2, 3, 4)
    assert moved.as_array()[:, 0, 0].tolist() == [16, 18]


def test_readers_with_one_seed_agree(root):
    """Images from one list, masks from another: as in DALI both come in one order, whatever shuffles them."""
    names = [f"{k}.npy" for k in range(20)]
    for folder in ("images", "masks"):
        (root / folder).mkdir()
        for k, name in enumerate(names):
            np.save(root / folder / name, np.full(1, k if folder == "images" else -k))

    @pipeline_def(batch_size=10, num_threads=2)
    def pipeline():
        order = {"random_shuffle": True, "seed": 7}
        return [fn.readers.numpy(files=names, file_root=root / f, **order) for f in ("images", "masks")]

    pipe = pipeline()
    for _ in range(4):
        images, masks = (x.as_array()[:, 0] for x in pipe.run())
        assert images.tolist() == (-masks).tolist()
        assert images.tolist() != sorted(images)


def test_shards(root):
    assert read(batches=2, file_root=root, num_shards=2, shard_id=1)[1] == ["!y/2.npy", "+x/1.npy"]
    assert read(batches=3, file_root=root, num_shards=3, shard_id=2, stick_to_shard=True)[1] == [
        "!y/2.npy",
        "+x/1.npy",
        "!y/2.npy",
    ]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda p: p.write_bytes(b"no array"), "magic"),
        (lambda p: p.write_bytes(b""), "magic"),
        (lambda p: p.write_bytes((p.parent / "0.npy").read_bytes()[:-1]), "shorter than its header says"),
        (lambda p: np.save(p, np.zeros(3, np.float32)), "1 dimensions of float32, the first file 2 of int32"),
        (lambda p: np.save(p, np.zeros((3, 3), np.int16)), "2 dimensions of int16"),
        (lambda p: np.save(p, np.zeros((3, 3), ">c8")), "type >c8"),
        (lambda p: np.save(p, np.zeros(3, [("a", "i4")])), "does not describe an array of numbers"),
        (
            lambda p: p.write_bytes((p.parent / "0.npy").read_bytes().replace(b"'<i4'", b"'<,4'")),
            "'<,4' in its header is not a type",
        ),
        (lambda p: None, "No such file"),
        *((lambda p, x=x: p.write_bytes(x), message) for x, message in strange_headers.FILES),
    ],
)
def test_a_bad_file_is_named(write, message, tmp_path):
    """At build when it is the first; else when its batch runs, and the next batch is good."""
    np.save(tmp_path / "0.npy", np.zeros((2, 2), np.int32))
    write(tmp_path / "1.npy")

    @pipeline_def(batch_size=1, num_threads=2)
    def pipeline(first):
        return fn.readers.numpy(files=[f"{first}.npy", f"{1 - first}.npy"], file_root=tmp_path)

    pipe = pipeline(0)
    pipe.run()
    with pytest.raises(SampleError, match=f"readers.numpy.*1.npy.*{message}"):
        pipe.run()
    assert np.asarray(pipe.run()[0][0]).shape == (2, 2)
    if "first file" not in message and "int16" not in message:
        with pytest.raises(RuntimeError, match=f"{tmp_path}/1.npy.*{message}"):
            pipeline(1).run()


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({}, ValueError, "file_root"),
        ({"files": [], "file_root": "x"}, ValueError, "files is empty"),
        ({"files": "x", "file_list": "y"}, ValueError, "together"),
        ({"file_root": "/nowhere"}, RuntimeError, "/nowhere: No such file"),
        ({"file_filter": "*.zip"}, RuntimeError, r"match file_filter '\*.zip'"),
        ({"device": "mixed"}, ValueError, "device"),
        ({"roi_start": 0, "rel_roi_start": 0}, ValueError, "roi_start and rel_roi_start"),
        ({"roi_end": 1, "rel_roi_shape": 0.5}, ValueError, "roi_end and rel_roi_shape"),
        ({"roi_shape": [1, -1]}, ValueError, "roi_shape must be a whole number at least 0"),
        ({"roi_start": [1, 1, 1]}, RuntimeError, "roi_start must have 1 or 2 numbers"),
        ({"roi_start": 0, "roi_axes": [0, -2]}, RuntimeError, "/a.npy: roi_axes"),
        ({"roi_start": 2, "roi_end": 1}, RuntimeError, "ends before it starts"),
        (
            {"out_of_bounds_policy": "wrap"},
            ValueError,
            "out_of_bounds_policy must be one of 'error', 'pad', 'trim_to_shape'",
        ),
        ({"use_o_direct": True}, ValueError, "dont_use_mmap"),
        ({"num_shards": 1.5}, TypeError, "num_shards must be a whole number at least 1, got 1.5"),
        ({"random_shuffle": "False"}, TypeError, "random_shuffle must be True or False"),
    ],
)
def test_wrong_arguments(kwargs, error, message, root):
    with pytest.raises(error, match=f"^readers.numpy.*{message}"):
        read(**({"file_root": root} if not {"files", "file_list"} & set(kwargs) and kwargs else {}) | kwargs)


@pytest.mark.parametrize("region", [{}, {"roi_shape": [2]}])
def test_arrays_on_the_accelerator(tmp_path, region):
    """The host reads them in any case; the reader is found by its name."""
    np.save(tmp_path / "x.npy", np.arange(4))

    @pipeline_def(batch_size=1, num_threads=1)
    def define():
        start = {"roi_start": fn.constant(idata=[0])} if region else {}
        x = fn.readers.numpy(files=tmp_path / "x.npy", device="gpu", name="reader", **region, **start)
        assert x.device == "gpu"
        return x

    pipe = define()
    assert np.asarray(pipe.run()[0][0]).tolist() == ([0, 1] if region else [0, 1, 2, 3])
    assert pipe.epoch_size("reader") == 1
