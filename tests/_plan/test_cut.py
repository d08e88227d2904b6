"""Transfers from the host to an accelerator without kernels: few bytes are sent, and none come back. CPU devices stand
in for the accelerator.
"""

import jax
import numpy as np
import places
import pytest
import shardings

import jaxdali
from jaxdali import fn, pipeline_def, types
from jaxdali.plugin.jax import data_iterator

PHOTOS = str(places.PHOTOS)
MEAN, STD = [124.0, 116.0, 104.0], [58.0, 57.0, 57.0]


def decoded(device="mixed", size=(40, 56), num_shards=1, shard_id=0):
    jpegs, _ = fn.readers.file(
        file_root=PHOTOS, name="reader", num_shards=num_shards, shard_id=shard_id, pad_last_batch=True
    )
    return fn.resize(
        fn.decoders.image(jpegs, device=device), **({"resize_shorter": 48} if size is None else {"size": size})
    )


def normalised(images, **arguments):
    return fn.crop_mirror_normalize(images, mean=MEAN, std=STD, **arguments)


def second_batch(define, sharding=None, **arguments):
    """Returns the second batch, and for each program the names of its operators, and the bytes that it reads."""
    iterator = data_iterator(define, ["images"], sharding=sharding, reader_name="reader")
    with iterator(batch_size=4, seed=3, enable_conditionals=True, **arguments) as it:
        next(it)
        images = next(it)["images"]
        launcher = it._stream.executors[0]._launcher
        segments = [s for phase in launcher._phases._phases for s in phase.segments]
        read = [sum(a.nbytes for a in jax.tree.leaves(operands)) for _, operands in launcher.ran.values()]
    return np.asarray(images), [[s.op.name for s in segment.steps] for segment in segments], read


def train(num_shards=1, shard_id=0):
    return normalised(decoded(num_shards=num_shards, shard_id=shard_id), mirror=fn.random.coin_flip())


def half(num_shards=1, shard_id=0):
    return normalised(
        decoded(num_shards=num_shards, shard_id=shard_id),
        mirror=fn.random.coin_flip(),
        dtype=types.FLOAT16,
        output_layout="HWC",
        pad_output=True,
    )


def evaluation(num_shards=1, shard_id=0):
    return normalised(
        decoded(size=None, num_shards=num_shards, shard_id=shard_id), crop=(32, 40), scale=2.0, shift=0.25
    )


def per_sample(num_shards=1, shard_id=0):
    mean = fn.random.uniform(range=(100.0, 150.0), shape=3)
    return fn.crop_mirror_normalize(
        decoded(num_shards=num_shards, shard_id=shard_id),
        crop_h=24,
        crop_w=24,
        crop_pos_x=fn.random.uniform(range=(0.0, 1.0)),
        mean=mean,
        std=STD,
    )


def in_branches(num_shards=1, shard_id=0):
    images = decoded(num_shards=num_shards, shard_id=shard_id)
    if fn.random.coin_flip(dtype=types.BOOL):
        result = normalised(images, mirror=1)
    else:
        result = normalised(images, output_layout="CHW")
    return result


def outside(num_shards=1, shard_id=0):
    """Padding is not normalised, so the operator is not divided: it stays one step, on the host."""
    return normalised(
        decoded(num_shards=num_shards, shard_id=shard_id),
        crop=(50, 50),
        out_of_bounds_policy="pad",
        fill_values=[1.0, 2.0, 3.0],
    )


def on_host(num_shards=1, shard_id=0):
    """The user's operators are on the host. The sharding of the output puts it on the accelerator."""
    return normalised(decoded(device="cpu", num_shards=num_shards, shard_id=shard_id), mirror=fn.random.coin_flip())


def flipped(num_shards=1, shard_id=0):
    """Windows of images that the accelerator made."""
    images = fn.cast(decoded(num_shards=num_shards, shard_id=shard_id), dtype=types.FLOAT)
    images = fn.flip(images, horizontal=fn.random.coin_flip(), vertical=fn.random.coin_flip())
    images = fn.crop(images, crop=(45, 30), out_of_bounds_policy="pad", fill_values=[7.5, 8.5, 9.5])
    images = fn.pad(images, axes=[1], shape=[35], fill_value=-1.0)
    return normalised(fn.transpose(images, perm=[1, 0, 2]), mirror=fn.random.coin_flip())


NORMALIZE = ["crop_mirror_normalize"]
PHOTO = 40 * 56 * 3


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize(
    ("define", "programs", "nbytes"),
    [
        (train, [["decoders.image", "resize", *NORMALIZE], NORMALIZE], PHOTO),
        (half, [["decoders.image", "resize", *NORMALIZE], NORMALIZE], PHOTO),
        (evaluation, [["decoders.image", "resize", *NORMALIZE], NORMALIZE], 32 * 40 * 3),
        (per_sample, [["decoders.image", "resize", *NORMALIZE], NORMALIZE], 24 * 24 * 3),
        (on_host, [["decoders.image", "resize", *NORMALIZE], NORMALIZE], PHOTO),
        (flipped, [["decoders.image", "resize"], ["cast", "flip", "crop", "pad", "transpose", *NORMALIZE]], PHOTO),
        (outside, [["decoders.image", "resize", *NORMALIZE]], None),
        (in_branches, None, None),
    ],
)
def test_same_batches(define, programs, nbytes, devices, played):
    sharding = shardings.of_batch(devices)
    expected, cpu_programs, _ = second_batch(define, sharding)
    assert define is in_branches or len(cpu_programs) == 1
    played()
    images, actual_programs, read = second_batch(define, sharding)
    assert images.dtype == expected.dtype
    tolerance = 2e-3 if define is half else 1e-5
    np.testing.assert_allclose(images.astype(np.float32), expected.astype(np.float32), rtol=tolerance, atol=tolerance)
    assert programs is None or actual_programs == programs
    if nbytes is not None:  # and a few numbers for each sample
        assert 4 * nbytes <= read[-1] <= 4 * (nbytes + 256)


def test_operators_on_the_host_stay_there(played):
    """Without a sharding, an operator on the host is one on the host."""
    played()
    _, programs, _ = second_batch(on_host)
    assert programs == [["decoders.image", "resize", *NORMALIZE]]


def test_pipeline_without_an_iterator(played):
    @pipeline_def(batch_size=4, num_threads=2, seed=5)
    def define(device):
        return normalised(decoded(device=device), mirror=fn.random.coin_flip(), output_layout="HWC")

    (expected,) = define("cpu").run()
    played()
    for device in ("cpu", "mixed"):
        (out,) = define(device).run()
        np.testing.assert_allclose(np.asarray(out.as_cpu().as_array()), expected.as_array(), rtol=1e-5, atol=1e-5)


def test_statistics_show_bytes_of_the_link(played):
    """`lower` and the bytes of `statistics` show that pixels are sent as bytes, and that arithmetic and one-hot labels
    are made on the accelerator. No transfer is implicit.
    """
    played()

    @pipeline_def(batch_size=4, num_threads=2, seed=5, enable_statistics=True)
    def define():
        label = fn.random.uniform(range=(0, 9), dtype=types.INT32)
        images = normalised(decoded(), mirror=fn.random.coin_flip()) * 2.0 + 1.0
        return images, fn.pad(fn.one_hot(label.gpu(), num_classes=10), axes=[0], shape=[100])

    pipe = define()
    with jax.transfer_guard("disallow"):
        for _ in range(3):
            pipe.run()
    (on_host, on_accelerator) = (pipe.lower(i).as_text().partition("main(")[2].partition("\n")[0] for i in range(2))
    pixels, images, padded = "tensor<4x40x56x3xui8>", "tensor<4x3x40x56xf32>", "tensor<4x100xf32>"
    assert [x in on_host for x in (pixels, images)] == [True, False]
    operands, _, results = on_accelerator.partition("->")
    assert [x in operands for x in (pixels, images)] == [True, False]
    assert [x in results for x in (pixels, images, padded)] == [False, True, True]
    launched = [m.bytes / m.calls for m in pipe.statistics() if m.stage == "launch"]
    assert 4 * PHOTO <= launched[1] <= 4 * (PHOTO + 256)


def test_error_names_operator_and_sample(played):
    played()

    def define():
        return normalised(decoded(), crop=(41, 20))

    with pytest.raises(jaxdali.SampleError, match=r"crop_mirror_normalize.*test_cut.py:\d+.*the window -1 \.\.\. 40"):
        second_batch(define)
