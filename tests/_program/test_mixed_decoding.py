"""Pipelines that decode on a GPU, emulated by CPU devices with the emulated kernels: the pixels are those of the CPU
pipeline.
"""

import contextlib
import io
import pathlib
import re
import threading

import jax
import jpeg_checks
import jpeg_encoder
import numpy as np
import pytest
import shardings
from images import decode, picture, png
from jax.sharding import SingleDeviceSharding
from jpeg_corpus import GOLDEN, Contents, by_pillow, frame, is_covered, of_all_kinds
from PIL import Image

from jaxdali import SampleError, _cpu, fn, types
from jaxdali._batch import repair
from jaxdali._batch.launch import Launcher
from jaxdali._core import ffi as _ffi
from jaxdali._core.ragged import Packed
from jaxdali._cpu import Status
from jaxdali._program.sharding import Shards
from jaxdali.fn._decode import headers
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import data_iterator
from jaxdali.plugin.jax.fn import jax_function

HERE = re.escape(__file__)


class Spy:
    """Records the samples that went to the kernels, and those that failed.

    Attributes:
      taken: the number of samples of each call of the kernels, for a batch or for samples that are made again.
      refused: for each call in which samples failed, their codes by index.
    """

    def __init__(self):
        self.taken: list[int] = []
        self.refused: list[dict[int, int]] = []


@pytest.fixture
def played(monkeypatch):
    """A context in which CPU devices are GPUs whose only kernel is the emulated decoder."""
    kernels = jpeg_checks.emulated_kernels()

    @contextlib.contextmanager
    def context():
        spy, make, compact, all_bad = Spy(), _cpu.make_jpeg_tables, _cpu.compact_jpegs, repair.all_bad

        def spied_make(data, offsets, sizes, info, usable, tables, pool):
            make(data, offsets, sizes, info, usable, tables, pool)
            spy.taken.append(int((tables[:, 0] != 0).sum()))

        def spied_compact(data, info, most, tables, output_type, pool):
            payloads = compact(data, info, most, tables, output_type, pool)
            spy.taken[-1] += sum(x is not None for x in payloads)
            return payloads

        def spied_after(work, bad):
            spy.refused += bad.values()
            return all_bad(work, bad)

        with monkeypatch.context() as m:
            m.setattr(Shards, "accelerator", property(lambda self: True))
            m.setattr(_ffi, "kernels_on", lambda device: frozenset({"decode"}))
            m.setattr(_ffi, "call", jpeg_checks.native_calls(kernels))
            m.setattr(_cpu, "make_jpeg_tables", spied_make)
            m.setattr(_cpu, "compact_jpegs", spied_compact)
            m.setattr(repair, "all_bad", spied_after)
            m.setattr(headers, "_refused", headers._Refused())  # as in a new process
            yield spy

    return context


FILES = of_all_kinds()
COVERED = sum(map(is_covered, FILES))


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(k, types.UINT8) for k in types.DALIImageType]
    + [
        (types.RGB, t)
        for t in (
            types.INT8,
            types.UINT16,
            types.INT16,
            types.UINT32,
            types.INT32,
            types.FLOAT16,
            types.FLOAT,
            types.FLOAT64,
        )
    ]
    + [(types.ANY_DATA, types.UINT16), (types.YCbCr, types.FLOAT)],
)
def test_a_batch_of_all_kinds(played, kind, dtype):
    expected = decode(FILES, output_type=kind, dtype=dtype)
    with played() as spy:
        actual = decode(FILES, output_type=kind, dtype=dtype, device="mixed")
    assert spy.taken == [COVERED]
    assert not spy.refused
    for i, (x, y) in enumerate(zip(actual, expected, strict=True)):
        jpeg_checks.assert_same(x, y, f"file {i}: {FILES[i][:8]!r}")


def test_orientation_kept(played):
    expected = decode(FILES, adjust_orientation=False)
    with played():
        actual = decode(FILES, adjust_orientation=False, device="mixed")
    for x, y in zip(actual, expected, strict=True):
        jpeg_checks.assert_same(x, y, "as stored")


WINDOWS = {
    "crop": lambda x, **a: fn.decoders.image_crop(
        x, crop=(9, 12), crop_pos_y=fn.random.uniform(range=(0.0, 1.0), seed=5), **a
    ),
    "slice": lambda x, **a: fn.decoders.image_slice(x, rel_start=(0.2, 0.3), rel_end=(0.7, 0.9), axes=(0, 1), **a),
    "random crop": lambda x, **a: fn.decoders.image_random_crop(x, seed=3, **a),
}


@pytest.mark.parametrize("dtype", [types.UINT8, types.FLOAT])
@pytest.mark.parametrize("window", WINDOWS)
def test_windows(played, window, dtype):
    files = [f for f, x in zip(FILES, decode(FILES), strict=True) if min(x.shape[:2]) >= 12]
    expected = decode(files, WINDOWS[window], dtype=dtype)
    assert len(files) > 80
    with played() as spy:
        actual = decode(files, WINDOWS[window], dtype=dtype, device="mixed")
    covered = sum(map(is_covered, files))
    assert spy.taken[0] == covered or dtype == types.UINT8
    # Coefficients of progressive files may be more bytes than the pixels of such small windows.
    assert covered - sum(is_covered(f) and frame(f)[0] == 2 for f in files) <= spy.taken[0] <= covered
    assert not spy.refused
    for i, (x, y) in enumerate(zip(actual, expected, strict=True)):
        jpeg_checks.assert_same(x, y, f"file {i}: {files[i][:8]!r}")


def missing_piece():
    """libjpeg decodes it with a warning, the rest of the image gray: the kernels leave it to libjpeg."""
    data = (GOLDEN[0].parent / "ss420.jpg").read_bytes()
    return data[:4000] + data[4100:]


def coefficient_past_the_last():
    """More zeros than a block has coefficients, which libjpeg accepts silently."""
    data = jpeg_encoder.encode(np.zeros((8, 8, 1), np.uint8))
    bits = "00" + 4 * "11111111001"  # no difference, four times sixteen zeros
    scan = int(bits.ljust(48, "1"), 2).to_bytes(6, "big")
    return data[: data.index(b"\xff\xda") + 10] + scan.replace(b"\xff", b"\xff\0") + b"\xff\xd9"


def fill_byte_before_data():
    """libjpeg-turbo leaves some of its first attempt in such a block."""
    data = (GOLDEN[0].parent / "odd_hopper_orientation_5.jpg").read_bytes()
    return data[:1011] + b"\xff" + data[1012:]


def restart_markers_out_of_order():
    data = jpeg_encoder.encode(Contents(np.random.default_rng(0)).photo(64, 64), restart=2)
    return data.replace(b"\xff\xd2", b"\xff\xd5", 1)


@pytest.mark.parametrize(
    "make", [missing_piece, coefficient_past_the_last, fill_byte_before_data, restart_markers_out_of_order]
)
def test_refused_images_come_from_the_cpu(played, make):
    files = [*FILES[:9], make(), *FILES[9:12]]
    expected = decode(files)
    with played() as spy:
        first = decode(files, device="mixed")
        assert spy.refused == [{9: Status.REFUSED}]
        covered = 1 + sum(map(is_covered, FILES[:12]))
        assert spy.taken == [covered, 0]  # nothing is decoded twice
        second = decode(files[::-1], device="mixed")[::-1]  # in another place of another pipeline's batch
        assert spy.taken == [covered, 0, covered - 1]
        assert len(spy.refused) == 1
    for i, (x, y, z) in enumerate(zip(first, expected, second, strict=True)):
        jpeg_checks.assert_same(x, y, f"file {i}")
        jpeg_checks.assert_same(z, y, f"file {i}, the second time")


def test_progressive_files_sent_as_pixels(played):
    """Progressive files are decoded by the host and sent as pixels if their last scans are missing (libjpeg smooths
    them), if they are damaged, or if they have more coefficients than pixels.
    """
    noise = np.random.default_rng(0).integers(0, 256, (40, 56, 3), np.uint8)
    whole = by_pillow(picture(64, 50), quality=90, progressive=True)
    scans = [m.start() for m in re.finditer(b"\xff\xda", whole)]
    without_last, damaged = whole[: scans[-1]] + whole[-2:], whole[: scans[-1] + 100] + whole[scans[-1] + 130 :]
    dense = by_pillow(noise, quality=100, subsampling=0, progressive=True)
    files = [whole, without_last, FILES[0], damaged, dense, png(picture(23, 37)), whole]
    expected = decode(files)
    with played() as spy:
        actual = decode(files, device="mixed")
    assert spy.taken == [2 + is_covered(FILES[0])]
    assert not spy.refused
    for i, (x, y) in enumerate(zip(actual, expected, strict=True)):
        jpeg_checks.assert_same(x, y, f"file {i}")


def test_flat_image(played):
    """The same few bits are repeated, so the threads of the kernel find the beginnings of symbols late."""
    files = [by_pillow(np.full((2500, 2500, 1), 77, np.uint8), quality=90), *FILES[:3]]
    expected = decode(files)
    with played() as spy:
        actual = decode(files, device="mixed")
    assert not spy.refused
    jpeg_checks.assert_same(actual[0], expected[0], "flat")


def test_cut_off_below_the_window(played):
    """The missing part is not needed, so there is no error, although the kernels refuse the file."""
    data = by_pillow(picture(160, 96), quality=90)
    files = [data[: len(data) * 3 // 4], *FILES[:3]]

    def top(x, **arguments):
        return fn.decoders.image_slice(x, rel_start=(0.0, 0.1), rel_shape=(0.4, 0.8), axes=(0, 1), **arguments)

    expected = decode(files, top)
    with played() as spy:
        actual = decode(files, top, device="mixed")
    assert spy.refused == [{0: Status.REFUSED}]
    for x, y in zip(actual, expected, strict=True):
        jpeg_checks.assert_same(x, y, "cut off")


def test_accepted_truncated_files(played):
    """The kernels decode complete files, and the host truncated ones, progressive or not."""
    cut = [by_pillow(picture(160, 96), quality=90, progressive=p) for p in (False, True)]
    files = [cut[0][: len(cut[0]) // 2], FILES[0], cut[1][: len(cut[1]) // 2], cut[0][:-1], cut[1][:-2]]
    expected = decode(files, truncated="accept")
    with played() as spy:
        actual = decode(files, truncated="accept", device="mixed")
    assert spy.refused == [{0: Status.REFUSED, 3: Status.REFUSED}]
    for x, y in zip(actual, expected, strict=True):
        jpeg_checks.assert_same(x, y, "cut off")


def test_palette_indices(played):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 9, (20, 30)).astype(np.uint8))
    image.putpalette([7] * 27)
    file = io.BytesIO()
    image.save(file, "PNG")
    with played():
        (indices,) = decode([file.getvalue()], palette="index", device="mixed")
    np.testing.assert_array_equal(indices[..., 0], image)


@pytest.fixture
def folder(tmp_path):
    """21 files of several kinds in 3 classes."""
    for i, data in enumerate(FILES[:21]):
        path = tmp_path / "root" / f"class{i // 7}" / f"{i:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "root"


def truncate(path: pathlib.Path) -> None:
    data = by_pillow(picture(64, 50, seed=int(path.stem)))
    path.write_bytes(data[: len(data) // 2])


def iterator(folder, device="mixed", batch_size=6, **options):
    @data_iterator(output_map=["images", "labels"], reader_name="reader", **options)
    def define(num_shards=1, shard_id=0, on_error="raise"):
        jpegs, labels = fn.readers.file(file_root=folder, name="reader", num_shards=num_shards, shard_id=shard_id)
        images = fn.decoders.image(jpegs, device=device, on_error=on_error)
        return fn.resize(images, size=(16, 20)), labels

    return lambda **more: define(batch_size=batch_size, **more)


def numpy(batches):
    return [{k: np.asarray(v) for k, v in b.items()} for b in batches]


def assert_equal_batches(actual, expected):
    assert len(actual) == len(expected)
    for x, y in zip(actual, expected, strict=True):
        assert x.keys() == y.keys()
        for name in x:
            np.testing.assert_array_equal(x[name], y[name])


def test_bytes_of_the_link(played):
    """The bytes that are sent, which `statistics` counts, are those of the encoded images and at most a third more.
    They have less room than results.
    """
    files = [by_pillow(picture(400, 300, seed=i), quality=95) for i in range(8)]

    @data_iterator(output_map=["x"], sharding=SingleDeviceSharding(jax.devices()[0]))
    def define(num_shards=1, shard_id=0):
        encoded = fn.external_source(source=lambda i: np.frombuffer(files[i.idx_in_batch], np.uint8), batch=False)
        return fn.resize(fn.decoders.image(encoded, device="mixed"), size=(8, 8))

    with played() as spy, define(batch_size=8, enable_statistics=True) as it:
        next(it)
        (launch,) = (m for m in it.statistics() if m.stage == "launch" and "decode" in m.step)
    assert set(spy.taken) == {8}
    encoded, numbers = sum(map(len, files)), 8 * 4096  # tables and other numbers of each image
    assert encoded < launch.bytes / launch.calls < encoded * 4 / 3 + numbers < encoded * 1.5


@pytest.mark.parametrize("options", [{}, {"replace_shape": (5, 7, 1)}])
def test_replacement_of_another_type(played, options):
    options = {"output_type": types.GRAY, "dtype": types.FLOAT, "on_error": "replace", **options}
    cut = by_pillow(picture(64, 50))[:700]
    files = [FILES[0], cut, b"no image", missing_piece(), FILES[1], cut]
    expected = decode(files, **options)
    with played() as spy:
        actual = decode(files, device="mixed", **options)
    (refused,) = spy.refused
    assert refused.keys() >= {1, 3, 5}
    assert set(refused.values()) == {Status.REFUSED}
    for i, (x, y) in enumerate(zip(actual, expected, strict=True)):
        jpeg_checks.assert_same(x, y, f"file {i}")


def test_truncated_file_fails_only_its_batch(played, folder):
    device = SingleDeviceSharding(jax.devices()[0])
    with iterator(folder, "cpu", sharding=device)() as it:
        expected = numpy(it)
    truncate(folder / "class1" / "08.jpg")
    with played() as spy, iterator(folder, sharding=device)() as it:
        batches = [next(it)]
        with pytest.raises(
            SampleError, match=rf"decoders\.image \(created at {HERE}:\d+\): {folder}/class1/08\.jpg: .*truncated"
        ) as e:
            next(it)
        assert e.value.source == f"{folder}/class1/08.jpg"
        batches.append(next(it))
        assert {2: Status.REFUSED} in spy.refused
        assert_equal_batches(numpy(batches), [expected[0], expected[2]])


@pytest.mark.parametrize("devices", [1, 3])
def test_replace(played, folder, devices):
    for name in ("class0/03.jpg", "class1/08.jpg", "class2/17.jpg"):
        truncate(folder / name)
    (folder / "class2" / "19.jpg").write_bytes(b"this is no image")
    with iterator(folder, "cpu", sharding=shardings.of_batch(devices))(on_error="replace") as it:
        expected = numpy(it)
        bad = [(b.file, b.count, b.reason) for b in it.bad_samples()]
    assert len(bad) == 4
    with played() as spy, iterator(folder, sharding=shardings.of_batch(devices))(on_error="replace") as it:
        actual = numpy(it)
        assert [(b.file, b.count, b.reason) for b in it.bad_samples()] == bad
    assert sum(len(r) for r in spy.refused) >= 3
    assert {c for r in spy.refused for c in r.values()} == {Status.REFUSED}
    assert_equal_batches(actual, expected)


SEEN: list[int] = []  # sums of the batches that a function has got


def seen(images):
    assert len(images) == 6
    SEEN.append(int(np.asarray(images, np.int64).sum()))
    return images


def resized(images):
    return fn.resize(images, size=(16, 20))


AFTER = {
    "arithmetic": lambda x: 255 - resized(x),
    "a function": lambda x: jax_function(seen, jit=False)(resized(x)) + 1,
    "other samples": lambda x: fn.permute_batch(resized(x), indices=[5, 4, 3, 2, 1, 0]),
    "a traced function": lambda x: jax_function(lambda a: a + a[::-1])(resized(x)),
}


@pytest.mark.parametrize(
    ("after", "devices"), [("arithmetic", 1), ("arithmetic", 3), ("a function", 1), *((a, 1) for a in [*AFTER][2:])]
)
def test_refused_images_alone_are_made_again(played, tmp_path, after, devices):
    """Only refused images are made again, unless other samples of the batch depend on them. In the next epoch the host
    decodes them at once.
    """
    data = [f for f in FILES if is_covered(f)][:18]
    data[7], data[9] = missing_piece(), restart_markers_out_of_order()
    files = [str(tmp_path / f"{i:02}.jpg") for i in range(len(data))]
    for path, contents in zip(files, data, strict=True):
        pathlib.Path(path).write_bytes(contents)

    @data_iterator(output_map=["images", "windows"], reader_name="reader", sharding=shardings.of_batch(devices))
    def define(device, num_shards=1, shard_id=0):
        jpegs, _ = fn.readers.file(files=files, name="reader", num_shards=num_shards, shard_id=shard_id)
        images = fn.decoders.image(jpegs, device=device)
        return AFTER[after](images), fn.crop(images, crop=(2, 3))

    with define("cpu", batch_size=6) as it:
        expected = [numpy(it), (it.reset(), numpy(it))[1]]
    SEEN.clear()
    with played() as spy, define("mixed", batch_size=6) as it:
        assert_equal_batches(numpy(it), expected[0])
        seen_once = list(SEEN)  # each batch once and in order, perhaps followed by the first ones of the next epoch
        assert len(set(seen_once)) == 3 * (after == "a function")
        assert seen_once == (3 * seen_once[:3])[: len(seen_once)]
        it.reset()
        assert_equal_batches(numpy(it), expected[1])
    batches = 1 if devices == 1 else 2
    assert len(spy.refused) == batches
    is_alone = after in ("arithmetic", "a function")
    assert spy.taken.count(0) == batches * is_alone  # nothing but the refused images, and these not by the kernels
    # In the first epoch each image went to the kernels once, or with its batch twice.
    passes = [n for n in spy.taken if n]
    if is_alone:
        assert passes[:3] == [6, 6, 6]
    else:  # the first batch of the next epoch may have been prepared before
        assert sorted(passes[:5]) == [4, 6, 6, 6, 6]


def test_files_are_read_into_the_operand(played, tmp_path, monkeypatch):
    """After the first batches, which show how large the operand must be, files are read directly into it."""
    is_sent, dispatch = list[bool](), Launcher._dispatch

    def spied(self, number, segment, phase, operands, batch):
        files = [v.data.data for v in batch.values.values() if isinstance(v.data, Packed)]
        if number == 0:
            is_sent.append(any(np.shares_memory(files[0], b) for b in operands.buffers))
        return dispatch(self, number, segment, phase, operands, batch)

    monkeypatch.setattr(Launcher, "_dispatch", spied)
    files = [tmp_path / f"{i}.jpg" for i in range(8)]
    for i, path in enumerate(files):
        path.write_bytes(by_pillow(picture(64 + i, 50, seed=i)))

    @data_iterator(output_map=["images"], reader_name="reader")
    def define():
        jpegs, _ = fn.readers.file(files=files * 6, name="reader")
        return fn.resize(fn.decoders.image(jpegs, device="mixed"), size=(8, 8))

    with played(), define(batch_size=4) as it:
        assert len(list(it)) == 12
    assert len(is_sent) >= 12
    assert all(is_sent[6:])


@pytest.mark.parametrize("devices", [1, 2, 3])
@pytest.mark.parametrize("policy", [LastBatchPolicy.FILL, LastBatchPolicy.PARTIAL])
def test_shards_and_a_short_last_batch(played, folder, devices, policy):
    options = {"sharding": shardings.of_batch(devices), "last_batch_policy": policy}
    options |= {"mask_name": "valid"} if policy is LastBatchPolicy.PARTIAL else {}
    with iterator(folder, "cpu", **options)() as it:
        expected = numpy(it)
    with played() as spy, iterator(folder, **options)() as it:
        batches = list(it)
    assert all(v.sharding == options["sharding"] for b in batches for v in (b["images"], b["labels"]))
    assert sum(spy.taken) > 0
    assert_equal_batches(numpy(batches), expected)


def test_labels_stay_on_the_cpu(played, folder):
    @data_iterator(output_map=["images", "labels", "moved"], reader_name="reader")
    def define():
        jpegs, labels = fn.readers.file(file_root=folder, name="reader")
        return fn.resize(fn.decoders.image(jpegs, device="mixed"), size=(16, 20)), labels, labels.gpu()

    gpu = jax.devices()[1]
    with played(), jax.default_device(gpu), define(batch_size=4) as it:
        batch = next(it)
    assert {k: v.devices() for k, v in batch.items()} == {"images": {gpu}, "labels": {jax.devices()[0]}, "moved": {gpu}}
    np.testing.assert_array_equal(batch["labels"], batch["moved"])


def test_on_the_cpu_beside_a_gpu(played):
    """A decoder with ``device="cpu"`` doesn't use the kernels."""
    expected = decode(FILES)
    with played() as spy:
        actual = decode(FILES, device="cpu")
    assert not spy.taken
    for x, y in zip(actual, expected, strict=True):
        jpeg_checks.assert_same(x, y, "on the CPU")


def test_host_decodes_while_earlier_batch_is_computed(played, monkeypatch, tmp_path):
    """Files that the kernels don't decode are decoded in the host pass. That of the second batch does not wait for the
    results of the first.
    """
    second, calls, began = threading.Event(), [], []
    decode_images, failed = _cpu.decode_images, repair.failed
    files = [str(tmp_path / f"{i}.png") for i in range(8)]
    for i, path in enumerate(files):
        pathlib.Path(path).write_bytes(png(picture(20, 30, seed=i)))

    def spied_decode(*arguments):
        calls.append(1)
        if len(calls) == 2:
            second.set()
        return decode_images(*arguments)

    def spied_failed(batch, meter):  # waits for the results
        began.append(second.wait(30))
        return failed(batch, meter)

    @data_iterator(output_map=["x"], reader_name="reader", sharding=SingleDeviceSharding(jax.devices()[0]))
    def define(num_shards=1, shard_id=0):
        encoded, _ = fn.readers.file(files=files, name="reader", num_shards=num_shards, shard_id=shard_id)
        return fn.resize(fn.decoders.image(encoded, device="mixed"), size=(8, 8))

    monkeypatch.setattr(_cpu, "decode_images", spied_decode)
    monkeypatch.setattr(repair, "failed", spied_failed)
    with played(), define(batch_size=4) as it:
        next(it)
    assert began[0]
