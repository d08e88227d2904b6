"""Bad input raises a Python exception that names the operator, the user's line and the file. The next batch is good."""

import pathlib
import re
import shutil
import struct
import threading
import time
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from PIL import Image

from jaxdali import OperatorError, Pipeline, SampleError, fn, pipeline_def, tfrecord, types
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import data_iterator
from jaxdali.plugin.jax.fn import jax_function

HERE = re.escape(__file__)


@pytest.fixture
def folder(tmp_path):
    """24 JPEGs, 32x32, labels 0..2; the content of file i is grey level i."""
    for i in range(24):
        path = tmp_path / "root" / f"class{i // 8}" / f"{i:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(i).integers(0, 60, (32, 32, 3))
        Image.fromarray((noise + 8 * i).astype(np.uint8)).save(path, quality=95)
    return tmp_path / "root"


def truncate(path: pathlib.Path):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def make(folder, **options):
    @data_iterator(output_map=["images", "labels"], reader_name="reader", **options)
    def definition(num_shards=1, shard_id=0, on_error="raise", replace_shape=None):
        jpegs, labels = fn.readers.file(file_root=folder, name="reader", num_shards=num_shards, shard_id=shard_id)
        images = fn.decoders.image(jpegs, on_error=on_error, replace_shape=replace_shape)
        return fn.resize(images, size=(16, 16)), labels

    return definition


@pytest.mark.parametrize("where", [None, "mesh"])
def test_truncated_file_fails_only_its_batch(folder, where):
    """The batch counts as taken: the next call returns the batch after it, and the epoch ends as usual."""
    with make(folder)(batch_size=8) as it:
        good = [np.asarray(b["images"]) for b in it]
    truncate(folder / "class1" / "11.jpg")
    sharding = NamedSharding(Mesh(np.array(jax.devices()), ("batch",)), PartitionSpec("batch")) if where else None
    with make(folder, sharding=sharding)(batch_size=8) as it:
        if sharding is None:
            np.testing.assert_array_equal(next(it)["images"], good[0])
            bad_index = 1
        else:
            bad_index = 2  # shard 3 has the files 9, 10, 11
            for _ in range(bad_index):
                next(it)
        with pytest.raises(
            SampleError, match=rf"decoders\.image \(created at {HERE}:\d+\): {folder}/class1/11\.jpg: .*truncated"
        ) as e:
            next(it)
        assert e.value.source == f"{folder}/class1/11.jpg"  # which can be opened
        if sharding is None:
            np.testing.assert_array_equal(next(it)["images"], good[2])
        with pytest.raises(StopIteration):
            next(it)
        it.reset()
        for i in range(len(it)):  # the next epoch: the same again
            if i == bad_index:
                with pytest.raises(SampleError):
                    next(it)
            else:
                next(it)
    with make(folder, sharding=sharding)(batch_size=8) as it:  # and a new iterator works
        next(it)


def test_parameters_survive_a_truncated_file(folder):
    truncate(folder / "class2" / "20.jpg")

    @jax.jit
    def step(w, x):
        return w + x.astype(jnp.float32).mean()

    step = jax.jit(step, donate_argnums=0)
    w = jnp.zeros(())
    num_steps = 0
    with make(folder)(batch_size=8) as it:
        while True:
            try:
                batch = next(it)
            except StopIteration:
                break
            except SampleError:
                continue
            w = step(w, batch["images"])
            num_steps += 1
    assert num_steps == 2
    assert np.isfinite(w)
    assert w > 0


@pytest.mark.parametrize("damage", ["truncated", "junk", "empty"])
@pytest.mark.parametrize("shape", [None, (16, 16, 3)])
def test_replace(folder, damage, shape):
    with make(folder)(batch_size=8) as it:
        good = [np.asarray(b["images"]) for b in it]
    path = folder / "class1" / "11.jpg"
    if damage == "truncated":
        truncate(path)
    else:
        path.write_bytes(b"this is no image" * 10 if damage == "junk" else b"")
    with make(folder)(batch_size=8, on_error="replace", replace_shape=shape) as it:
        actual = [np.asarray(b["images"]) for b in it]
        bad = it.bad_samples()
    expected = [images.copy() for images in good]
    expected[1][3] = expected[1][4] if shape is None else 0
    np.testing.assert_array_equal(actual, expected)
    assert [(b.file, b.count) for b in bad] == [(f"{folder}/class1/11.jpg", 1)]
    assert {"truncated": "end early", "junk": "not an image", "empty": "empty"}[damage] in bad[0].reason


def test_replace_by_a_sample_of_another_shard(folder):
    """With one sample per shard, the replacement comes from another shard."""
    for name in ("class1/11.jpg", "class1/15.jpg"):
        truncate(folder / name)
    sharding = NamedSharding(Mesh(np.array(jax.devices()), ("batch",)), PartitionSpec("batch"))
    with make(folder, sharding=sharding)(batch_size=8, on_error="replace") as it:
        batches = [np.asarray(b["images"]) for b in it]
        assert [(b.file, b.count) for b in it.bad_samples()] == [
            (f"{folder}/class1/15.jpg", 1),
            (f"{folder}/class1/11.jpg", 1),
        ]
    np.testing.assert_array_equal(batches[2][3], batches[2][4])  # shard 3 has the files 9, 10, 11
    np.testing.assert_array_equal(batches[0][5], batches[0][6])


def test_each_replaced_file_has_its_own_reason(folder):
    """The truncated file has a good header, so at first it replaces the two others."""
    (folder / "class1" / "10.jpg").write_bytes(b"this is no image")
    (folder / "class1" / "11.jpg").write_bytes(b"P5 32 32 255 too short")
    truncate(folder / "class1" / "12.jpg")
    with make(folder)(batch_size=8, on_error="replace") as it:
        for _ in it:
            pass
        reasons = {str(pathlib.Path(b.file).relative_to(folder)): b.reason for b in it.bad_samples()}
    assert reasons.keys() == {"class1/10.jpg", "class1/11.jpg", "class1/12.jpg"}
    assert "not an image" in reasons["class1/10.jpg"]
    assert "OSError" in reasons["class1/11.jpg"]
    assert "end early" in reasons["class1/12.jpg"]


def test_eager_function_gets_repaired_batches_in_order(folder):
    for name in ("class0/03.jpg", "class1/08.jpg", "class2/17.jpg"):
        truncate(folder / name)
    calls = []

    def count(images, labels):
        calls.append((threading.current_thread().name, np.asarray(labels).ravel().tolist()))
        return jnp.asarray(np.asarray(images).astype(np.int32) + len(calls))

    @data_iterator(output_map=["images"], reader_name="reader", last_batch_policy=LastBatchPolicy.DROP)
    def definition():
        jpegs, labels = fn.readers.file(file_root=folder, name="reader")
        images = fn.resize(fn.decoders.image(jpegs, on_error="replace"), size=(4, 4))
        return jax_function(count, jit=False)(images, labels)

    with definition(batch_size=4) as it:
        assert len(list(it)) == 6
    assert [labels for _, labels in calls[:6]] == [[0] * 4, [0] * 4, [1] * 4, [1] * 4, [2] * 4, [2] * 4]
    assert len({thread for thread, _ in calls}) == 1


@pytest.mark.parametrize("kind", ["jpeg", "png", "bmp", "tiff", "webp", "ppm", "jpeg2000"])
@pytest.mark.parametrize(
    "decode", [fn.decoders.image, fn.decoders.image_crop, fn.decoders.image_slice, fn.decoders.image_random_crop]
)
def test_too_many_pixels(tmp_path, kind, decode):
    """The limit applies to the stored image, not to the window that is decoded."""
    path = tmp_path / "class0" / f"file.{kind}"
    path.parent.mkdir()
    Image.new("RGB", (20, 30)).save(path, kind)

    def run(**options):
        window = {"rel_end": (0.5, 0.5)} if decode is fn.decoders.image_slice else {}

        @pipeline_def(batch_size=1, seed=1)
        def definition():
            return decode(fn.readers.file(files=[str(path)])[0], **window, **options)

        pipe = definition()
        try:
            return [np.asarray(x).shape for x in pipe.run()[0]], pipe.bad_samples()
        finally:
            pipe.close()

    run(max_pixels=600)
    with pytest.raises(
        SampleError, match=rf"\(created at {HERE}:\d+\): .*file\.{kind}: .*too large: 20 x 30 pixels, max_pixels is 599"
    ):
        run(max_pixels=599)
    (shape,), (bad,) = run(max_pixels=599, on_error="replace", replace_shape=(4, 5, 3))
    assert shape == (4, 5, 3)
    assert "max_pixels" in bad.reason
    for wrong in (0, 2.5):
        with pytest.raises((ValueError, TypeError), match="max_pixels must be a whole number at least 1"):
            run(max_pixels=wrong)


def test_pixels_are_limited_as_in_pillow(tmp_path):
    """A PNG file of 22 kB with one pixel more than Pillow accepts."""
    width = 178_956_971
    header = struct.pack(">IIBBBBB", width, 1, 1, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(1 + (width + 7) // 8))), (b"IEND", b"")]
    path = tmp_path / "bomb.png"
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    )
    with pytest.raises(Image.DecompressionBombError):
        Image.open(path)
    with pytest.raises(SampleError, match="178956971 x 1 pixels, max_pixels is 178956970"):
        pipeline_def(lambda: fn.decoders.image(fn.readers.file(files=[str(path)])[0]))(batch_size=1).run()


def test_missing_file(folder):
    (folder / "class0" / "02.jpg").unlink()
    (folder / "class0" / "02.jpg").symlink_to(folder / "nowhere.jpg")
    with pytest.raises(
        SampleError, match=rf"readers\.file \(created at {HERE}:\d+\): {folder}/class0/02\.jpg: No such file"
    ):
        make(folder)(batch_size=8)  # the first batch is made in the constructor


def test_missing_and_empty_directories(tmp_path):
    with pytest.raises(RuntimeError, match=rf"readers\.file \(created at {HERE}:\d+\).*nowhere"):
        make(tmp_path / "nowhere")(batch_size=8)
    (tmp_path / "empty").mkdir()
    with pytest.raises(RuntimeError, match=rf"readers\.file \(created at {HERE}:\d+\).*empty"):
        make(tmp_path / "empty")(batch_size=8)


def test_ragged_output_names_sizes_and_advice(folder):
    Image.new("RGB", (40, 20)).save(folder / "class0" / "03.jpg")

    @data_iterator(output_map=["images"], reader_name="reader", prepare_first_batch=False)
    def definition():
        jpegs, _ = fn.readers.file(file_root=folder, name="reader")
        return fn.decoders.image(jpegs)

    with definition(batch_size=8) as it:
        with pytest.raises(
            OperatorError,
            match=rf"decoders\.image \(created at {HERE}:\d+\): .*\(20, 40, 3\), \(32, 32, 3\).*fn\.resize.*fn\.pad",
        ):
            next(it)
        assert next(it)["images"].shape == (8, 32, 32, 3)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: fn.resize(x, sizes=(2, 2)), TypeError),
        (lambda x: fn.resize(x, size="big"), TypeError),
        (lambda x: fn.resize(x, size=(2, 2), interp_type="linear"), TypeError),
        (lambda x: fn.rotate(x), TypeError),
        (lambda x: fn.rotate(x, angle="a"), TypeError),
        (lambda x: fn.rotate("x", angle=1.0), TypeError),
        (lambda x: fn.cast(x, dtype="much"), (TypeError, ValueError)),
        (lambda x: fn.decoders.image(x, on_error="ignore"), ValueError),
        (lambda x: fn.decoders.image(x, device="npu"), ValueError),
    ],
)
def test_wrong_arguments_raise_at_the_users_line(call, error):
    @pipeline_def(batch_size=1)
    def definition():
        return call(fn.external_source(source=lambda: [np.zeros((4, 4, 3), np.uint8)]))

    operator = next(
        n for n in ("resize", "rotate", "cast", "decoders.image") if n.split(".")[-1] in call.__code__.co_names
    )
    with pytest.raises(error, match=rf"^{operator}.+ \(called at {HERE}:\d+\)$") as e:
        definition().build()
    assert any(str(t.path) == __file__ and t.name == "<lambda>" for t in e.traceback)
    assert str(e.value).count(__file__) == 1


def test_wrong_input_type_names_operator_and_line():
    @pipeline_def(batch_size=1)
    def definition():
        x = fn.external_source(source=lambda: [np.zeros((4, 4, 3), np.int64)], layout="HWC")
        return fn.resize(x, size=(2, 2))

    with pytest.raises((TypeError, ValueError), match=rf"resize \(created at {HERE}:\d+\): .*int64"):
        definition().build()


def test_unknown_pipeline_arguments():
    with pytest.raises(TypeError, match="batchsize"):
        pipeline_def(batchsize=2)(lambda: 1)
    with pytest.raises(TypeError, match="batchsize"):
        pipeline_def(lambda: 1)(batchsize=2)
    with pytest.raises(ValueError, match=r"device_id=99.*8 local"):
        pipeline_def(lambda: 1)(batch_size=1, device_id=99).build()
    with pytest.raises(ValueError, match=r"batch_size must be at least 1, and none was given: .*batch_size=8"):
        pipeline_def(lambda: 1)().build()


def test_source_exception_loses_one_batch():
    def source(info):
        if info.iteration == 1:
            raise KeyError("mine")
        return np.full((2,), info.iteration, np.int32)

    @pipeline_def(batch_size=2)
    def definition():
        return fn.external_source(source=source, batch=False)

    pipe = definition()
    assert pipe.run()[0].as_array().tolist() == [[0, 0], [0, 0]]
    with pytest.raises(KeyError, match="mine") as e:
        pipe.run()
    assert any("external_source" in n and __file__ in n for n in e.value.__notes__)
    assert pipe.run()[0].as_array().tolist() == [[2, 2], [2, 2]]
    pipe.close()


def test_wrong_data_name_operator_and_line():
    @pipeline_def(batch_size=2)
    def definition():
        return fn.external_source(source=lambda i: [np.zeros((2,) * (1 + (i == 1)))] * 2)

    pipe = definition()
    pipe.run()
    with pytest.raises(
        ValueError, match=rf"^external_source \(created at {HERE}:\d+\): output 0 has samples of 1 dimensions"
    ):
        pipe.run()
    assert pipe.run()[0].as_array().shape == (2, 2)
    pipe.close()


def test_bad_samples_counts_only_taken_batches(folder):
    truncate(folder / "class0" / "05.jpg")
    with make(folder)(batch_size=4, on_error="replace", prefetch_queue_depth=3) as it:
        for count in (0, 1, 1):
            next(it)
            time.sleep(0.3)  # meanwhile other batches are made ahead
            assert sum(b.count for b in it.bad_samples()) == count


def test_node_in_if():
    @pipeline_def(batch_size=1)
    def definition():
        x = fn.random.coin_flip()
        return x if x == 1 else x + types.Constant(1)

    with pytest.raises(TypeError, match="truth value"):
        definition().build()


def test_folder_can_be_repaired(folder):
    backup = (folder / "class0" / "00.jpg").read_bytes()
    truncate(folder / "class0" / "00.jpg")
    with pytest.raises(SampleError, match=r"class0/00\.jpg"):
        make(folder)(batch_size=8)
    (folder / "class0" / "00.jpg").write_bytes(backup)
    with make(folder)(batch_size=8) as it:
        assert len(list(it)) == 3
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("define", "text"),
    [
        (
            lambda x: fn.resize(x, size=[2**23, 2**23]),
            r"^resize \(created at .*sample 0, of shape \(8388608, 8388608, 3\)",
        ),
        (lambda x: fn.resize(x, size=[2.0**30, 2]), "^resize .*size"),
        (lambda x: fn.random.uniform(shape=[2**20, 2**20]), "^random.uniform .*MemoryError: Unable to allocate"),
    ],
)
def test_sizes_beyond_memory(define, text):
    pipe = Pipeline(batch_size=2, num_threads=1)
    with pipe:
        x = fn.external_source(source=lambda: [np.zeros((4, 4, 3), np.uint8)] * 2, layout="HWC")
        pipe.set_outputs(define(x))
    with pytest.raises((RuntimeError, ValueError), match=text):
        pipe.run()


@pytest.mark.parametrize(
    ("name", "data", "size"),
    [
        (
            "png",
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (60000).to_bytes(4) * 2 + b"\x08\2\0\0\0" + bytes(40),
            "60000 x 60000 pixels",
        ),
        (
            "png",
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (9000).to_bytes(4) * 2 + b"\x08\2\0\0\0" + bytes(40),
            "9000 x 9000 pixels, which is more than its bytes",
        ),
        (
            "jpg",
            b"\xff\xd8\xff\xc0\0\x11\x08" + (60000).to_bytes(2) * 2 + b"\3\1\x11\0\2\x11\0\3\x11\0" + bytes(40),
            "60000 x 60000 pixels",
        ),
        (
            "bmp",
            b"BM" + bytes(12) + b"\x28\0\0\0" + (60000).to_bytes(4, "little") * 2 + b"\1\0\x18\0" + bytes(60),
            "60000 x 60000 pixels",
        ),
        ("ppm", b"P6 60000 60000 255\n" + bytes(40), "60000 x 60000 pixels"),
        ("pbm", b"P4 3000000000 4\n" + bytes(40), "more than 2147483647 pixels"),
    ],
)
def test_headers_beyond_any_limit_say_their_figures(tmp_path, name, data, size):
    (tmp_path / f"x.{name}").write_bytes(data)

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline():
        return fn.decoders.image(fn.readers.file(files=[str(tmp_path / f"x.{name}")])[0])

    with pytest.raises(SampleError, match=rf"x\.{name}: .*the image is too large: .*{size}.*max_pixels is \d+"):
        pipeline().run()


@pytest.mark.parametrize(
    "window",
    [
        lambda x: fn.decoders.image_slice(x, start=1e30),
        lambda x: fn.decoders.image_slice(x, start=[1e30, 0], shape=[2, 2], axes=[0, 1]),
        lambda x: fn.slice(types.Constant(np.zeros((4, 4, 3), np.uint8)), start=[-1e30, 0], shape=[2, 2], axes=[0, 1]),
    ],
)
def test_numbers_beyond_64_bits_name_their_argument(window):
    pipe = pipeline_def(lambda: window(fn.external_source(source=lambda: [np.zeros(4, np.uint8)])))(
        batch_size=1, num_threads=1
    )
    with pytest.raises(RuntimeError, match=r"argument start must fit into 64 bits, got .*10000000000000000"):
        pipe.run()


@pytest.mark.parametrize("number", [np.float32(1e30), np.float64(-1e30), np.uint64(2**64 - 1)])
def test_numbers_per_sample_beyond_64_bits(number):
    @pipeline_def(batch_size=2, num_threads=1)
    def pipeline():
        extent = fn.external_source(source=lambda: [type(number)(3), number])
        return fn.pad(types.Constant(np.zeros((4, 4), np.uint8)), axes=[0], shape=extent)

    with pytest.raises(SampleError, match=r"pad .*sample 1: argument shape must fit into 64 bits, got \[-?1"):
        pipeline().run()


@pytest.mark.parametrize("name", ["é\ud800", "\ud800", ["float32", "\udcff"], "junk"])
def test_undecodable_names_are_no_types(name):
    with pytest.raises(TypeError, match=r"must be a numeric type such as types\.FLOAT or np\.float32, or a list of"):
        pipeline_def(lambda: fn.random.coin_flip())(batch_size=1, num_threads=1, device_id=None, output_dtype=name)


@pytest.mark.parametrize("reader", ["file", "numpy", "parquet", "webdataset", "tfrecord", "root"])
def test_impossible_file_names(reader):
    name = "é\ud800.x"
    make = {
        "file": lambda: fn.readers.file(files=[name])[0],
        "root": lambda: fn.readers.file(file_root=name)[0],
        "numpy": lambda: fn.readers.numpy(files=[name]),
        "parquet": lambda: fn.readers.parquet(path=name, columns="x"),
        "webdataset": lambda: fn.readers.webdataset(paths=name, ext="x"),
        "tfrecord": lambda: fn.readers.tfrecord(
            path=name, index_path=name, features={"x": tfrecord.FixedLenFeature([], tfrecord.int64, 0)}
        ),
    }[reader]
    if reader == "parquet":
        pytest.importorskip("pyarrow")
    with pytest.raises(OperatorError, match=r"'é\\ud800.x' can't be the name of a file"):
        pipeline_def(lambda: make() if reader != "tfrecord" else make()["x"])(
            batch_size=1, num_threads=1, device_id=None
        ).build()
