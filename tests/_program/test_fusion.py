"""Operators that become one native call (the pass `fused`): the results are equal, in less memory. `fuse=False` is the
reference.
"""

from typing import Any

import emulated
import jax
import numpy as np
import places
import pytest
from images import encode, picture, png
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxdali import SampleError, fn, pipeline_def, types
from jaxdali._core import ffi as _ffi
from jaxdali._program.sharding import Shards
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import data_iterator

PHOTOS = str(places.PHOTOS)


def files() -> list[np.ndarray]:
    """Photos of all kinds that decoders treat differently: formats, orientations, subsampling, sizes."""
    encoded = [encode(picture(90 + 7 * o, 130, seed=o), "JPEG", quality=90, orientation=o) for o in (1, 3, 6, 8)]
    encoded += [encode(picture(64, 210, seed=k), "JPEG", quality=80, subsampling=k) for k in (0, 1, 2)]
    encoded += [encode(picture(75, 61), "JPEG", progressive=True), png(picture(77, 95)), png(picture(70, 60, 2))]
    encoded += [
        encode(picture(80, 70, 1), "JPEG"),
        encode(picture(390, 510, 1), "JPEG", progressive=True, orientation=6),
    ]
    encoded += [
        encode(picture(66, 70), "JPEG") + b"behind the end",
        encode(picture(300, 420), "BMP"),
        encode(picture(500, 310), "JPEG"),
    ]
    return [np.frombuffer(f, np.uint8) for f in encoded]


FILES = files()


def batches(define, n=1, fuse=True, program=0, **options: Any) -> tuple[list[list[np.ndarray]], str]:
    """Returns the outputs of n batches, sample by sample, and the text of a program. `program`: its number."""
    pipe = pipeline_def(define, **{"batch_size": len(FILES), "num_threads": 2, "seed": 3, "fuse": fuse, **options})()
    samples = [[np.array(x) for output in pipe.run() for x in output.as_cpu()] for _ in range(n)]
    text = pipe.lower(program).as_text()
    pipe.close()
    return samples, text


def source(batch=FILES):
    return fn.external_source(lambda: batch)


def both(define, calls: int = 1, level: float = 1.0, **options: Any):
    """Asserts that fused results differ by at most `level` from the others, and that the program has `calls` fused
    calls.
    """
    (fused,), text = batches(define, fuse=True, **options)
    (unfused,), plain = batches(define, fuse=False, **options)
    assert text.count("@jaxdali_chain") == calls
    assert "@jaxdali_chain" not in plain
    assert len(fused) == len(unfused) > 0
    for a, b in zip(fused, unfused, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert np.abs(a.astype(np.float64) - b.astype(np.float64)).max() <= level * 1.0001
    return text


def chosen(rng, *ways):
    return ways[rng.integers(len(ways))]


def decoded(rng, data):
    coin = fn.random.uniform(range=(0.0, 1.0))
    kind = chosen(rng, "image", "image", "crop", "slice", "random")
    options = {
        "output_type": chosen(rng, types.RGB, types.BGR, types.GRAY, types.YCbCr),
        "adjust_orientation": bool(rng.random() < 0.7),
    }
    if kind == "crop":
        return fn.decoders.image_crop(data, crop=(50, 40), crop_pos_x=coin, crop_pos_y=coin, **options), options
    if kind == "slice":
        return fn.decoders.image_slice(
            data, rel_start=(0.2, 0.1), rel_end=(0.9, 0.7), axis_names="HW", **options
        ), options
    if kind == "random":
        return fn.decoders.image_random_crop(data, seed=int(rng.integers(99)), **options), options
    return fn.decoders.image(data, dtype=chosen(rng, types.UINT8, types.UINT8, types.FLOAT), **options), options


def resized(rng, images):
    options = {
        "interp_type": chosen(
            rng, types.INTERP_NN, *[types.INTERP_LINEAR] * 3, types.INTERP_CUBIC, types.INTERP_LANCZOS3
        )
    }
    options["antialias"] = bool(rng.random() < 0.7)
    if rng.random() < 0.15:
        options["dtype"] = types.FLOAT
    kind = chosen(rng, "size", "shorter", "roi", "random", "mirror", "width")
    if kind == "size":
        return fn.resize(images, size=(int(rng.integers(34, 150)), int(rng.integers(34, 150))), **options)
    if kind == "shorter":
        return fn.resize(images, resize_shorter=fn.random.uniform(range=(34.0, 90.0)), **options)
    if kind == "roi":
        roi = {"roi_start": (0.1, 0.9), "roi_end": (0.8, 0.2), "roi_relative": True}
        return fn.resize(images, size=(60, 44), **roi, **options)
    if kind == "random":
        return fn.random_resized_crop(images, size=(48, 56), seed=int(rng.integers(99)), **options)
    if kind == "width":
        return fn.tensor_resize(images, sizes=(70,), axes=(1,), **options)
    return fn.resize_crop_mirror(images, resize_shorter=70, crop=(40, 44), mirror=fn.random.coin_flip(), **options)


def windowed(rng, images, channels):
    coin = fn.random.uniform(range=(0.0, 1.0))
    kind = chosen(rng, "crop", "flip", "slice", "normalize", "normalize", "pad", "warp", "none")
    if kind == "warp" and rng.random() < 0.5:
        turned = fn.rotate(images, angle=fn.random.uniform(range=(-40.0, 40.0)), fill_value=chosen(rng, 9.0, None))
        return fn.crop(turned, crop=(20, 22), crop_pos_x=coin, crop_pos_y=coin)
    if kind == "warp":
        return fn.flip(
            fn.warp_affine(
                images, matrix=[0.9, 0.2, 3.0, -0.1, 1.1, 4.0], size=(33, 44), fill_value=0, inverse_map=False
            )
        )
    if kind == "crop":
        return fn.crop(images, crop=(30, 25), crop_pos_x=coin, crop_pos_y=coin, out_of_bounds_policy="trim_to_shape")
    if kind == "flip":
        return fn.flip(images, horizontal=fn.random.coin_flip(), vertical=1)
    if kind == "slice":
        return fn.slice(images, rel_start=(0.1, 0.3), rel_end=(0.6, 1.0), axis_names="HW")
    if kind == "pad":
        return fn.crop(images, crop=(200, 33), out_of_bounds_policy="pad", fill_values=17.0)
    if kind == "none":
        return images
    return fn.crop_mirror_normalize(
        images,
        crop=chosen(rng, (32, 34), None),
        out_of_bounds_policy="pad",
        crop_pos_x=coin,
        mirror=fn.random.coin_flip(),
        mean=[20.0, 30.0, 40.0][:channels],
        std=[1.0, 2.0, 4.0][:channels],
        output_layout=chosen(rng, "CHW", "HWC"),
        pad_output=bool(rng.random() < 0.3),
        dtype=chosen(rng, types.FLOAT, types.FLOAT16),
    )


@pytest.mark.parametrize("case", range(12))
def test_random_pipelines(case):
    def define():
        rng = np.random.default_rng([7, case])
        images, options = decoded(rng, source())
        images = (
            windowed(rng, images, 3)
            if rng.random() < 0.1 and options["output_type"] != types.GRAY
            else resized(rng, images)
        )
        if images.name.startswith("__crop_mirror"):
            return images
        return windowed(rng, images, 1 if options["output_type"] == types.GRAY else 3)

    both(define)


def test_train_and_eval():
    """The most frequent pipeline is one call."""

    def train():
        images = fn.decoders.image_random_crop(source(), seed=1)
        images = fn.resize(images, size=(48, 56))
        return fn.crop_mirror_normalize(
            images, mirror=fn.random.coin_flip(), mean=[124.0, 116.0, 104.0], std=[58.0, 57.0, 57.0]
        )

    def evaluate():
        images = fn.resize(fn.decoders.image(source(), device="mixed"), resize_shorter=64)
        return fn.crop_mirror_normalize(images, crop=(56, 56), mean=[124.0, 116.0, 104.0], std=[58.0, 57.0, 57.0])

    def turned():
        images = fn.rotate(fn.decoders.image(source()), angle=fn.random.uniform(range=(-10.0, 10.0)), fill_value=0)
        return fn.resize(images, size=(48, 40))

    assert 'kernels = "decode warp resize"' in both(turned)
    for define in (train, evaluate):
        text = both(define, level=1 / 57)
        assert 'kernels = "decode resize window"' in text
        assert not any(f"@jaxdali_{kernel}" in text for kernel in ("decode", "resize", "window"))


@pytest.mark.parametrize("size", [(61, 53), (300, 9), (24, 700)])
@pytest.mark.parametrize("filters", [types.INTERP_LINEAR, types.INTERP_LANCZOS3])
def test_gray_files_as_rgb(filters, size):
    """One channel is decoded and resized, and the three channels of an RGB image repeat it to the bit."""
    encoded = [encode(picture(180, 270, 1, seed=k), "JPEG", quality=90, progressive=k > 0) for k in (0, 1)]
    encoded += [png(picture(90, 131, k)) for k in (1, 2)]
    gray = [np.frombuffer(f, np.uint8) for f in encoded]

    def define():
        kinds = (types.RGB, types.BGR, types.GRAY)
        return tuple(
            fn.resize(fn.decoders.image(source(gray), output_type=kind), size=size, interp_type=filters)
            for kind in kinds
        )

    (fused,), text = batches(define, batch_size=len(gray))
    (unfused,), _ = batches(define, batch_size=len(gray), fuse=False)
    assert text.count("@jaxdali_chain") == 3
    for a, b, one in zip(fused, unfused, 3 * fused[8:], strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, np.broadcast_to(one, a.shape))


def test_a_chain_without_a_decoder():
    images = [picture(40 + 9 * k, 70, seed=k) for k in range(len(FILES))]

    def define():
        x = fn.resize(fn.external_source(lambda: images, layout="HWC"), size=(50, 60))
        return fn.crop_mirror_normalize(x, crop=(32, 30), crop_pos_y=0.9, output_layout="CHW")

    assert 'kernels = "resize window"' in both(define)


def test_axes_around_a_call():
    """Steps that remove axes (a frame of a video, a row of an image) or exchange them are before, after or between
    fused calls.
    """
    rng = np.random.default_rng(1)
    videos = [rng.integers(0, 256, (3, 20 + k, 30, 3)).astype(np.uint8) for k in range(len(FILES))]

    def define():
        video = fn.external_source(lambda: videos, layout="FHWC")
        frame = fn.resize(video[1], size=(11, 12))
        row = fn.resize(fn.decoders.image(source()), size=(18, 20))[3]
        return (
            frame,
            row,
            fn.flip(
                fn.transpose(
                    fn.resize(fn.decoders.image(source()), size=(9, 8)), perm=(1, 0, 2), transpose_layout=False
                )
            ),
        )

    both(define, calls=2)


def test_images_with_other_readers_are_made():
    """An image that is an output, has a second reader, or is read as an argument, also exists outside of a call."""

    def define():
        images = fn.decoders.image(source())
        small = fn.resize(images, size=(40, 40))
        tiny = fn.resize(fn.resize(images, size=(50, 50)), size=(9, 9))
        return images, small, fn.flip(small), tiny

    text = both(define)
    assert 'kernels = "resize resize"' in text
    assert "@jaxdali_decode" in text


def test_values_in_a_call_have_no_memory():
    """Of values inside a call only the shapes are operands, so one program serves images of any size."""
    huge, small = picture(900, 1200), picture(50, 60)
    sizes = iter([small, huge, small])

    @pipeline_def(batch_size=1, num_threads=1, prefetch_queue_depth=1, exec_pipelined=False)
    def define():
        images = fn.decoders.image(fn.external_source(lambda: [np.frombuffer(encode(next(sizes), "JPEG"), np.uint8)]))
        return fn.resize(images, size=(32, 32))

    pipe = define()
    for _ in range(2):
        pipe.run()
    memory = pipe.lower().compile().memory_analysis()
    pipe.close()
    assert memory.temp_size_in_bytes + memory.output_size_in_bytes < huge.size / 4


# --- errors ---------------------------------------------------------------------------------------------------------


def cut(data: np.ndarray) -> np.ndarray:
    return data[: len(data) * 9 // 10]


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("bad", ["JPEG", "progressive", "PNG"])
def test_error_names_the_failed_operator(bad, fuse):
    """The error names the decoder, even if the window does not need the missing rows."""
    whole = png(picture(77, 95)) if bad == "PNG" else encode(picture(77, 95), "JPEG", progressive=bad == "progressive")
    batch = [FILES[0], cut(np.frombuffer(whole, np.uint8))]

    def define():
        images = fn.resize(fn.decoders.image(source(batch)), size=(40, 40))  # the line that is named
        return fn.crop(images, crop=(8, 8), crop_pos_y=0.0)

    with pytest.raises(
        SampleError, match=r"decoders\.image \(created at .*test_fusion\.py:\d+\).*(sample 1|truncated)"
    ) as e:
        batches(define, fuse=fuse, batch_size=2)
    assert "truncated" in str(e.value) or "damaged" in str(e.value)


@pytest.mark.parametrize("fuse", [True, False])
def test_an_error_of_a_later_stage(fuse):
    def define():
        images = fn.resize(fn.decoders.image(source()), size=(40, 40))
        return fn.crop(images, crop=(50, 8))

    with pytest.raises(SampleError, match=r"crop .*the window -5 \.\.\. 45.*reaches outside the sample"):
        batches(define, fuse=fuse)


def test_replaced_samples_are_the_same():
    batch = [FILES[0], cut(FILES[4]), FILES[5], np.frombuffer(b"nothing", np.uint8), cut(FILES[9])]

    def define():
        images = fn.decoders.image(source(batch), on_error="replace")
        return fn.crop(fn.resize(images, size=(40, 44)), crop=(8, 8), crop_pos_y=0.0)

    def run(fuse):
        pipe = pipeline_def(define, batch_size=5, num_threads=2, fuse=fuse)()
        (output,) = pipe.run()
        bad = pipe.bad_samples()
        pipe.close()
        return [np.array(x) for x in output.as_cpu()], bad

    fused, unfused = run(True), run(False)
    np.testing.assert_array_equal(fused[0], unfused[0])
    assert fused[1] == unfused[1]
    assert len(fused[1]) == 3 or sum(b.count for b in fused[1]) == 3


# --- batches --------------------------------------------------------------------------------------------------------


def test_conditionals():
    def define():
        images = fn.decoders.image(source())
        if fn.random.coin_flip(dtype=types.INT32, seed=4):
            images = fn.crop(fn.resize(images, size=(60, 50)), crop=(40, 30), crop_pos_x=0.0)
        else:
            images = fn.flip(fn.resize(images, size=(40, 30)))
        return images

    text = both(define, calls=2, enable_conditionals=True)
    assert "@jaxdali_decode" in text  # both sides read it


def photos(fuse, **options: Any):
    partial = {"last_batch_policy": LastBatchPolicy.PARTIAL, "mask_name": "mask"}

    @data_iterator(output_map=["images", "labels"], reader_name="reader", **(options or partial))
    def define(num_shards=1, shard_id=0):
        jpegs, labels = fn.readers.file(
            file_root=PHOTOS, random_shuffle=True, num_shards=num_shards, shard_id=shard_id, name="reader"
        )
        images = fn.resize(fn.decoders.image_random_crop(jpegs, device="mixed"), size=(48, 56))
        return fn.crop_mirror_normalize(images, mirror=fn.random.coin_flip(), std=[58.0, 57.0, 57.0]), labels.gpu()

    return define(batch_size=8, seed=2, fuse=fuse)


def epoch(iterator):
    return [{k: np.asarray(v) for k, v in batch.items()} for batch in iterator]


@pytest.mark.parametrize("devices", [1, 4])
def test_epochs_with_a_short_batch_over_shards(devices):
    sharding = NamedSharding(Mesh(np.array(jax.devices()[:devices]), ("batch",)), PartitionSpec("batch"))
    options = {"sharding": sharding, "last_batch_policy": LastBatchPolicy.FILL} if devices > 1 else {}
    epochs = []
    for fuse in (True, False):
        with photos(fuse, **options) as iterator:
            epochs.append(epoch(iterator))
            assert ("jaxdali_chain" in iterator.lower().as_text()) == fuse
    assert len(epochs[0]) == len(epochs[1]) > 1
    for a, b in zip(*epochs, strict=True):
        np.testing.assert_array_equal(a["labels"], b["labels"])
        is_valid = a["mask"].astype(bool) if "mask" in a else slice(None)
        np.testing.assert_allclose(a["images"][is_valid], b["images"][is_valid], atol=1 / 57)


def test_fused_resumes_unfused_and_reverse():
    with photos(True) as fused:
        next(fused)
        state = fused.get_state()
        expected = epoch(fused)
    with photos(False) as unfused:
        unfused.set_state(state)
        for a, b in zip(expected, epoch(unfused), strict=True):
            np.testing.assert_array_equal(a["labels"], b["labels"])
            is_valid = a["mask"].astype(bool)
            np.testing.assert_allclose(a["images"][is_valid], b["images"][is_valid], atol=1 / 57)


def test_statistics_name_each_operator():
    def define():
        return fn.flip(
            fn.resize(fn.decoders.image(source(), name="decoded"), size=(40, 40), name="small"), name="turned"
        )

    pipe = pipeline_def(define, batch_size=len(FILES), enable_statistics=True)()
    pipe.run()
    rows = {(m.stage, m.step) for m in pipe.statistics()}
    pipe.close()
    assert {
        ("setup", "small"),
        ("setup", "turned"),
        ("launch", "0: decoders.image resize flip"),
        ("check", "0: decoders.image resize flip"),
    } <= rows
    assert any(stage == "setup" and step.startswith("decoded") for stage, step in rows)


def test_an_accelerator_keeps_its_kernels(monkeypatch):
    """On an accelerator with kernels, operators that run there are not fused; those on the CPU are."""
    monkeypatch.setattr(_ffi, "kernels_on", lambda device: frozenset({"decode", "resize", "window"}))
    monkeypatch.setattr(Shards, "accelerator", property(lambda self: True))

    def define():
        jpegs = source()
        return (
            fn.flip(fn.resize(fn.decoders.image(jpegs), size=(40, 40))).gpu(),
            fn.flip(fn.resize(fn.decoders.image(jpegs).gpu(), size=(40, 40))),
        )

    pipe = pipeline_def(define, batch_size=len(FILES), num_threads=2)()
    first, second = ([np.array(x) for x in output.as_cpu()] for output in pipe.run())
    programs = [pipe.lower(i).as_text() for i in (0, 1)]
    pipe.close()
    np.testing.assert_array_equal(first, second)
    assert [p.count("@jaxdali_chain") for p in programs] == [1, 0]
    assert "@jaxdali_decode" in programs[0]
    assert "@jaxdali_resize" in programs[1]


# --- on GPUs --------------------------------------------------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch):
    """CPU devices stand in for GPUs with emulated kernels. The CPU decodes files."""
    emulated.required()
    for name, function in emulated.functions("resize", "warp", "window", "chain").items():
        monkeypatch.setattr(_ffi, name, function)
    monkeypatch.setattr(Shards, "accelerator", property(lambda self: True))


def same_on_gpu(define, chains: list[str], **options: Any):
    """Asserts that fused results equal the others to the bit, and that the fused calls have these stages."""
    (fused,), text = batches(define, fuse=True, program=1, **options)  # the first one decodes
    (unfused,), plain = batches(define, fuse=False, program=1, **options)
    assert text.count("@jaxdali_emulated_chain") == len(chains)
    assert all(f'kernels = "{chain}"' in text for chain in chains)
    assert "_chain" not in plain
    assert len(fused) == len(unfused) > 0
    for a, b in zip(fused, unfused, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


@pytest.mark.parametrize("case", range(8))
def test_windows_of_resized_images_on_a_gpu(gpu, case):
    def define():
        rng = np.random.default_rng([8, case])
        images = fn.decoders.image(source()).gpu()
        coin = fn.random.uniform(range=(0.0, 1.0))
        filters = {
            "interp_type": chosen(rng, types.INTERP_NN, types.INTERP_LINEAR, types.INTERP_CUBIC, types.INTERP_LANCZOS3)
        }
        if case % 4 == 0:
            fill = chosen(rng, 9.0, None)
            images = fn.rotate(
                images, angle=fn.random.uniform(range=(-40.0, 40.0)), fill_value=fill, interp_type=types.INTERP_LINEAR
            )
        elif case % 4 == 1:
            dtype = types.FLOAT if case > 4 else types.UINT8
            images = fn.resize(images, resize_shorter=fn.random.uniform(range=(34.0, 90.0)), dtype=dtype, **filters)
        elif case % 4 == 2:
            images = fn.random_resized_crop(images, size=(48, 57), seed=int(rng.integers(99)), **filters)
        else:
            images = fn.warp_affine(
                images, matrix=[0.9, 0.2, 3.0, -0.1, 1.1, 4.0], size=(35, 44), fill_value=0, interp_type=types.INTERP_NN
            )
        return fn.crop_mirror_normalize(
            images,
            crop=chosen(rng, (32, 34), None),
            crop_pos_x=coin,
            mirror=fn.random.coin_flip(),
            mean=[20.0, 30.0, 40.0],
            std=[1.0, 2.0, 4.0],
            output_layout=chosen(rng, "CHW", "HWC"),
            dtype=chosen(rng, types.FLOAT, types.FLOAT16, types.UINT8),
        )

    same_on_gpu(define, ["resize window" if case % 4 in (1, 2) else "warp window"])


def test_fusion_on_a_gpu(gpu):
    """Windows of each kind are fused, except those with fill or of images with many channels."""
    images = [picture(40 + 9 * k, 70, seed=k) for k in range(len(FILES))]
    many = [np.concatenate([x, x[..., :2]], axis=2) for x in images]

    def define():
        small = lambda: fn.resize(fn.decoders.image(source()).gpu(), size=(40, 44))
        return (
            fn.crop_mirror_normalize(
                fn.resize(fn.external_source(lambda: images, layout="HWC").gpu(), size=(40, 44)), mirror=1
            ),
            fn.crop_mirror_normalize(fn.resize(fn.external_source(lambda: many, layout="HWC").gpu(), size=(40, 44))),
            fn.flip(small(), horizontal=fn.random.coin_flip(), vertical=1),
            fn.slice(small(), rel_start=(0.1, 0.3), rel_end=(0.6, 1.0), axis_names="HW"),
            fn.transpose(small(), perm=(2, 0, 1)),
            fn.crop(small(), crop=(50, 30), out_of_bounds_policy="pad"),
            fn.crop_mirror_normalize(small(), pad_output=True),
        )

    same_on_gpu(define, ["resize window"] * 4)


def test_branches_on_a_gpu(gpu):
    def define():
        images = fn.decoders.image(source()).gpu()
        if fn.random.coin_flip(dtype=types.INT32, seed=4):
            images = fn.crop(fn.resize(images, size=(60, 50)), crop=(40, 30), crop_pos_x=0.0)
        else:
            images = fn.flip(fn.resize(images, size=(40, 30)))
        return images

    same_on_gpu(define, ["resize window"] * 2, enable_conditionals=True)


def test_fuse_is_a_setting():
    with pytest.raises(TypeError, match="fuse"):
        pipeline_def(lambda: source(), batch_size=1, fuse="no")()
    pipe = pipeline_def(lambda: source(), batch_size=1)()
    assert pipe.fuse
