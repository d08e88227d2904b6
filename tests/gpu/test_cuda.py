"""The CUDA kernels against the CPU's, on an NVIDIA GPU; see run.sh.

Settings in the environment: CASES, how many of each kernel's batches are compared (default: all), and of damaged files
in hundreds; JAXDALI_REQUIRE_CUDA=1, fail where there is no GPU; JAXDALI_DRY_RUN=1, a CPU device stands in for the GPU.
"""

import functools
import os
import pathlib
import subprocess
import sys

import jax
import jpeg_checks
import numpy as np
import pytest
import stand_in
from images import decode
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from jpeg_corpus import corpus, is_covered, of_all_kinds
from kernels import CASES, compare

from jaxdali import SampleError, _cpu, fn, types
from jaxdali._core import ffi as _ffi
from jaxdali.plugin.jax import data_iterator

PHOTO = (pathlib.Path(__file__).parents[1] / "data" / "golden" / "files" / "ss420.jpg").read_bytes()
PHOTOS = str(pathlib.Path(__file__).parents[2] / "examples" / "images")


CASES_EACH = int(os.environ.get("CASES", "0"))
DRY_RUN = os.environ.get("JAXDALI_DRY_RUN") == "1"


@pytest.fixture(scope="module")
def targets(gpu):
    """The functions that are called for each kernel."""
    return gpu_and_targets()[1]


@functools.cache
def gpu_and_targets():
    return stand_in.make() if DRY_RUN else (jax.devices("cuda")[0], {})


@pytest.fixture(scope="module")
def gpu():
    """The first GPU. Without one, or without the CUDA module, tests are skipped; with JAXDALI_REQUIRE_CUDA=1 they fail."""
    try:
        device = gpu_and_targets()[0]
        problem = "" if _ffi.CUDA_KERNELS or DRY_RUN else f"CUDA module: {_ffi.CUDA}"
    except (RuntimeError, ModuleNotFoundError) as e:
        device, problem = None, str(e)
    if problem:
        (pytest.fail if os.environ.get("JAXDALI_REQUIRE_CUDA") == "1" else pytest.skip)(problem)
    return device


@pytest.mark.parametrize("kernel", CASES)
def test_same_as_on_the_cpu(kernel, gpu, targets):
    assert compare(kernel, targets.get(kernel, ""), device=gpu, most=CASES_EACH) > 0


@pytest.fixture
def jpeg_kernels(gpu, targets):
    return jpeg_checks.Kernels(targets.get("decode", "decode"), gpu)


def test_jpeg_corpus(jpeg_kernels):
    files = corpus()[:: 20 if DRY_RUN else 1]
    assert jpeg_checks.check_corpus(jpeg_kernels, files) >= 500 / (20 if DRY_RUN else 1)


def test_jpeg_regions_orientations_and_types(jpeg_kernels):
    jpeg_checks.check_parts(jpeg_kernels)


def test_damaged_jpeg(jpeg_kernels):
    number = min(3000, 100 * CASES_EACH or 3000)
    good, refused = jpeg_checks.check_damaged(jpeg_kernels, number)
    assert good > number // 12
    assert refused > number // 6


def test_flat_jpeg(jpeg_kernels):
    jpeg_checks.check_flat(jpeg_kernels)


def test_dc_values_of_many_blocks(jpeg_kernels):
    jpeg_checks.check_dc(jpeg_kernels)


def test_absent_and_broken_jpeg(jpeg_kernels):
    jpeg_checks.check_absent(jpeg_kernels)


@pytest.mark.parametrize(
    ("kind", "dtype"), [(types.RGB, types.UINT8), (types.ANY_DATA, types.UINT16), (types.GRAY, types.FLOAT)]
)
def test_batch_of_all_kinds(monkeypatch, gpu, kind, dtype):
    files, counts, make, compact = of_all_kinds(), [], _cpu.make_jpeg_tables, _cpu.compact_jpegs

    def spied(data, offsets, sizes, info, usable, tables, pool):
        make(data, offsets, sizes, info, usable, tables, pool)
        counts.append(int((tables[:, 0] != 0).sum()))

    def spied_compact(*arguments):
        coefficients = compact(*arguments)
        counts[-1] += sum(x is not None for x in coefficients)
        return coefficients

    with jax.default_device(jax.devices("cpu")[0]):
        expected = decode(files, output_type=kind, dtype=dtype)
    monkeypatch.setattr(_cpu, "make_jpeg_tables", spied)
    monkeypatch.setattr(_cpu, "compact_jpegs", spied_compact)
    with jax.default_device(gpu):
        actual = decode(files, output_type=kind, dtype=dtype, device="mixed")
    assert counts == [sum(map(is_covered, files))]
    for i, (x, y) in enumerate(zip(actual, expected, strict=True)):
        jpeg_checks.assert_same(x, y, f"file {i}: {files[i][:8]!r}")


def test_pipeline(gpu):
    """All of it on the GPU, in one program."""

    def batch(device):
        @data_iterator(output_map=["images", "labels"], reader_name="reader", sharding=SingleDeviceSharding(device))
        def define(num_shards=1, shard_id=0):
            jpegs, labels = fn.readers.file(file_root=PHOTOS, num_shards=num_shards, shard_id=shard_id, name="reader")
            images = fn.decoders.image(jpegs, device="mixed")
            images = fn.rotate(images, angle=fn.random.uniform(range=(-10.0, 10.0)), fill_value=0)
            return fn.resize(images, size=(48, 64)), labels

        with define(batch_size=4, seed=0) as iterator:
            return next(iterator), iterator._stream.executors[0]._launcher.ran

    (actual, programs), (expected, _) = batch(gpu), batch(jax.devices("cpu")[0])
    assert len(programs) == 1
    assert actual["images"].devices() == {gpu}
    np.testing.assert_allclose(np.asarray(actual["images"], np.int32), np.asarray(expected["images"], np.int32), atol=2)
    np.testing.assert_array_equal(actual["labels"], expected["labels"])


def test_fused(gpu):
    """A resize and a warp that make the windows of their images: few values differ, by one level of the image, where
    rounding was close.
    """

    def batch(fuse):
        @data_iterator(output_map=["resized", "warped"], reader_name="reader", sharding=SingleDeviceSharding(gpu))
        def define(num_shards=1, shard_id=0):
            jpegs, _ = fn.readers.file(file_root=PHOTOS, num_shards=num_shards, shard_id=shard_id, name="reader")
            images, mirror = fn.decoders.image(jpegs, device="mixed"), fn.random.coin_flip()
            numbers = {"mean": [124.0, 116.0, 104.0], "std": [58.0, 57.0, 57.0]}
            resized = fn.crop_mirror_normalize(
                fn.resize(images, resize_shorter=64), crop=(56, 51), mirror=mirror, **numbers
            )
            warped = fn.rotate(images, angle=fn.random.uniform(range=(-10.0, 10.0)), fill_value=0)
            return resized, fn.crop_mirror_normalize(
                warped, crop=(90, 95), mirror=mirror, output_layout="HWC", **numbers
            )

        with define(batch_size=4, seed=0, fuse=fuse) as iterator:
            batch = {name: np.asarray(x) for name, x in next(iterator).items()}
            if not DRY_RUN:  # what stands in for a program has no text
                assert ("@jaxdali_chain" in iterator.lower().as_text()) == fuse
            return batch

    actual, expected = batch(True), batch(False)
    assert actual.keys() == expected.keys()
    for name, x in actual.items():
        np.testing.assert_allclose(x, expected[name], rtol=0, atol=1.01 / 57)
        assert (x != expected[name]).mean() < 0.01


def assert_close_batches(got, want):
    """The same images to 1, the same labels."""
    assert len(got) == len(want)
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(x["images"], np.int32), np.asarray(y["images"], np.int32), atol=1)
        np.testing.assert_array_equal(x["labels"], y["labels"])


@pytest.fixture
def folder(tmp_path):
    """21 files of several kinds in 3 classes."""
    files = [f for f in of_all_kinds() if f[:2] == b"\xff\xd8" or f[1:4] == b"PNG"]
    for i, data in enumerate(files[:21]):
        path = tmp_path / f"class{i // 7}" / f"{i:02}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return tmp_path


def iterator(folder, sharding, on_error="raise"):
    @data_iterator(output_map=["images", "labels"], reader_name="reader", sharding=sharding)
    def define(num_shards=1, shard_id=0):
        jpegs, labels = fn.readers.file(file_root=str(folder), name="reader", num_shards=num_shards, shard_id=shard_id)
        images = fn.decoders.image(jpegs, device="mixed", on_error=on_error)
        return fn.resize(images, size=(16, 20)), labels.gpu()

    return define(batch_size=7)


def test_damaged_files(gpu, folder):
    cpu = SingleDeviceSharding(jax.devices("cpu")[0])
    with iterator(folder, cpu) as it:
        whole = list(it)
    for name in ("class1/08.jpg", "class2/17.jpg"):
        (folder / name).write_bytes(PHOTO[: len(PHOTO) // 2])
    with iterator(folder, cpu, on_error="replace") as it:
        want = list(it)
    with iterator(folder, SingleDeviceSharding(gpu), on_error="replace") as it:
        assert_close_batches(list(it), want)
        assert sorted(b.file for b in it.bad_samples()) == [f"{folder}/class1/08.jpg", f"{folder}/class2/17.jpg"]
    with iterator(folder, SingleDeviceSharding(gpu)) as it:
        assert_close_batches([next(it)], whole[:1])
        for name in ("class1/08.jpg", "class2/17.jpg"):
            with pytest.raises(SampleError, match=rf"{name}: .*truncated"):
                next(it)


@pytest.mark.parametrize("axes", [("batch",), ("batch", "model")])
def test_sharding(gpu, folder, axes):
    """Over all GPUs; data come by themselves to the devices along other axes."""
    devices = np.array([gpu] if DRY_RUN else jax.devices("cuda")).reshape(-1, *[1] * (len(axes) - 1))
    if 7 % len(devices):
        devices = devices[:1]
    sharding = NamedSharding(Mesh(devices, axes), PartitionSpec("batch"))
    with iterator(folder, sharding) as it, iterator(folder, SingleDeviceSharding(jax.devices("cpu")[0])) as reference:
        batches = list(it)
        assert_close_batches(batches, list(reference))
    assert all(v.sharding == sharding for batch in batches for v in batch.values())


def test_labels_stay_on_the_cpu(gpu, folder):
    @data_iterator(output_map=["images", "labels", "moved"], reader_name="reader")
    def define():
        jpegs, labels = fn.readers.file(file_root=str(folder), name="reader")
        return fn.resize(fn.decoders.image(jpegs, device="mixed"), size=(16, 20)), labels, labels.gpu()

    with jax.default_device(gpu), define(batch_size=4) as it:
        batch = next(it)
    assert {k: v.devices() for k, v in batch.items()} == {
        "images": {gpu},
        "labels": {jax.devices("cpu")[0]},
        "moved": {gpu},
    }
    np.testing.assert_array_equal(batch["labels"], batch["moved"])


EPOCHS = """
import hashlib, sys
import numpy as np
from jaxdali import fn
from jaxdali.plugin.jax import data_iterator

@data_iterator(output_map=["images"], reader_name="reader")
def define():
    jpegs, _ = fn.readers.file(file_root=sys.argv[1], name="reader")
    images = fn.rotate(fn.decoders.image(jpegs, device="mixed"), angle=9.0, fill_value=0)
    return fn.resize(images, size=(48, 64))

with define(batch_size=21) as iterator:
    for _ in range(5):
        for batch in iterator:
            print(hashlib.sha256(np.asarray(batch["images"]).tobytes()).hexdigest())
"""


def test_command_buffers(gpu, folder):
    """One program run five times: as XLA records and replays it by default, with all of it in the command buffer, and
    without one.
    """

    def digests(flags):
        env = os.environ | {
            "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip(),
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }
        return subprocess.run(
            [sys.executable, "-c", EPOCHS, folder], env=env, check=True, capture_output=True, text=True
        ).stdout.split()

    without = digests("--xla_gpu_enable_command_buffer=")
    assert digests("") == without
    assert len(without) == 5
    assert len(set(without)) == 1
    assert (
        digests(
            "--xla_gpu_enable_command_buffer=FUSION,CUSTOM_CALL,DYNAMIC_SLICE_FUSION --xla_gpu_graph_min_graph_size=1"
        )
        == without
    )
