"""Frames that only an accelerator reads are sent to it as planes, and their pixels stay the same. CPU devices stand in
for the accelerator.
"""

import jax
import numpy as np
import pytest
import shardings
import videos

from jaxdali import fn, types
from jaxdali._core import ffi
from jaxdali._program.sharding import Shards
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import data_iterator

pytest.importorskip("av")
B, F, H, W = 4, 5, 48, 64
PIXELS = "pixels of planes"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Videos of limited and of full range, of 10 bits, one in which frames can't be decoded, and one with whole chroma."""
    folder = tmp_path_factory.mktemp("videos")
    paths = [
        videos.write(folder / "limited.mp4"),
        videos.write(folder / "full.mp4", form="yuvj420p", color_range=2, first=30),
        videos.write(folder / "deep.mkv", codec="libx265", form="yuv420p10le", n=12),
        videos.write(folder / "bad.mp4"),
        videos.write(folder / "444.mp4", form="yuv444p"),
    ]
    data = bytearray((folder / "bad.mp4").read_bytes())
    data[len(data) // 3 : len(data) // 2] = bytes(len(data) // 2 - len(data) // 3)
    (folder / "bad.mp4").write_bytes(data)
    return paths


def batches(filenames, transform=lambda frames: frames, devices=0, device="gpu", **arguments):
    """Returns two batches, the names of the operators in programs, and the bytes that each program reads."""

    def define(num_shards=1, shard_id=0):
        shard = {"num_shards": num_shards, "shard_id": shard_id, "pad_last_batch": True}
        order = {"random_shuffle": True, "pad_sequences": True, "name": "reader", **shard, **arguments}
        frames, labels = fn.readers.video(filenames=filenames, labels=[], sequence_length=F, device=device, **order)
        return transform(frames), labels

    sharding = shardings.of_batch(devices) if devices else None
    partial = {"mask_name": "is_there", "last_batch_policy": LastBatchPolicy.PARTIAL}  # samples may be missing
    with data_iterator(define, ["frames", "labels"], sharding=sharding, reader_name="reader", repeat=True, **partial)(
        batch_size=B, seed=3
    ) as it:
        result = [{k: np.asarray(v) for k, v in next(it).items()} for _ in range(2)]
        launcher = it._stream.executors[0]._launcher
        names = [s.op.name for phase in launcher._phases._phases for segment in phase.segments for s in segment.steps]
        return (
            result,
            names,
            [sum(a.nbytes for a in jax.tree.leaves(operands)) for _, operands in launcher.ran.values()],
        )


@pytest.fixture
def play(monkeypatch):
    """A function after which CPU devices stand in for accelerators with some kernels."""

    def play(*kernels):
        monkeypatch.setattr(ffi, "kernels_on", lambda device: frozenset(kernels))
        monkeypatch.setattr(Shards, "accelerator", property(lambda self: True))

    return play


def cropped(frames):
    return fn.crop_mirror_normalize(
        frames, crop=(32, 40), mean=[1.0, 2.0, 3.0], mirror=fn.random.coin_flip(), output_layout="FCHW"
    )


@pytest.mark.parametrize(
    ("transform", "devices", "device"),
    [
        (lambda x: x, 0, "gpu"),
        (lambda x: x, 2, None),
        (cropped, 2, "gpu"),
        (lambda x: x / 255.0, 0, "gpu"),
        (lambda x: x[1:, :, 3:40], 0, "gpu"),
    ],
)
def test_planes_have_equal_pixels(files, transform, devices, device, play):
    expected, names_on_cpu, _ = batches(files[:3], transform, devices, device)
    play()
    actual, names, read = batches(files[:3], transform, devices, device)
    assert PIXELS in names
    assert PIXELS not in names_on_cpu
    assert B * F * H * W * 3 // 2 <= max(read) <= B * F * (H * W * 3 // 2 + 1) + 1000
    for a, b in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(b["labels"], a["labels"])
        np.testing.assert_allclose(b["frames"], a["frames"], rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("arguments", [{"apply_rotation": True}, {"apply_rotation": False, "color_matrix": "stream"}])
def test_upright_frames_and_colours_of_the_stream(tmp_path, files, arguments, play):
    """A rotated clip is coded with height and width exchanged. Each video has its own colour matrix."""
    turn, size = ("right", (W, H)) if arguments["apply_rotation"] else ("none", (H, W))
    marked = [videos.write(tmp_path / f"{n}.mp4", size=size, turn=turn, colorspace=n, first=n) for n in (1, 9)]
    expected, _, _ = batches([*files[:2], *marked], devices=2, **arguments)
    play()
    pixels, names, _ = batches([*files[:2], *marked], devices=2, **arguments)
    assert PIXELS in names
    for a, b in zip(expected, pixels, strict=True):
        assert len(set(b["labels"].ravel().tolist())) > 1
        np.testing.assert_array_equal(b["frames"], a["frames"])


def test_missing_frames_are_black(files, play):
    (expected, _), _, _ = batches(files[2:3], device="cpu", step=2)  # 12 frames: clips of 5 end behind them
    play()
    (actual, _), names, _ = batches(files[2:3], step=2)
    assert PIXELS in names
    np.testing.assert_array_equal(actual["frames"], expected["frames"])
    assert (actual["frames"].reshape(-1, H * W * 3).max(1) == 0).any()


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_damaged_videos(files, on_error, play):
    expected, _, _ = batches(files[2:4], on_error=on_error)
    play()
    actual, names, _ = batches(files[2:4], on_error=on_error)
    assert PIXELS in names
    for a, b in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(b["is_there"], a["is_there"])
        np.testing.assert_array_equal(b["frames"], a["frames"])


def test_pixels_for_readers_on_the_host(files, play):
    """Pixels are sent if a step on the host reads them, and for videos without such planes or with more bits."""
    play()
    for filenames, transform, arguments in (
        (files[:1], lambda x: fn.resize(x, size=(24, 30)), {}),
        (files[:1], lambda x: x, {"device": "cpu"}),
        (files[:1], lambda x: x, {"image_type": types.YCbCr}),
        (files[4:], lambda x: x, {}),
        (files[2:3], lambda x: x, {"color_matrix": "stream"}),
        (files[:1] + files[4:], lambda x: x, {}),
    ):
        assert PIXELS not in batches(filenames, transform, **arguments)[1]


def test_resized_by_a_kernel(files, play):
    expected, _, _ = batches(files[:2], lambda x: fn.resize(x, size=(24, 30)))
    play("resize")
    actual, names, read = batches(files[:2], lambda x: fn.resize(x, size=(24, 30)))
    assert names.index(PIXELS) < names.index("resize")
    assert len(read) == 1
    np.testing.assert_array_equal(actual[1]["frames"], expected[1]["frames"])
