"""decoders.video: the frames of files, compared with FFmpeg's own and with those of DALI 2.4."""

import json
import pathlib
import warnings
from fractions import Fraction

import numpy as np
import places
import pytest
import videos
from images import encode, picture
from pipelines import run

import jaxdali
from jaxdali import dynamic, fn, pipeline_def, types

pytest.importorskip("av")

DATA = places.ROOT / "tests" / "data" / "video"
RECORDED = json.loads((DATA / "dali.json").read_text())["decoders"]


def sums(frames: np.ndarray) -> list[int]:
    return frames.reshape(len(frames), -1).astype(np.int64).sum(1).tolist()


def decode(*paths, **arguments):
    return [
        np.asarray(x)
        for x in run(lambda x: fn.decoders.video(x, **arguments), [np.fromfile(p, np.uint8) for p in paths])[0]
    ]


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: str(case["arguments"]))
def test_frames_are_dalis(case):
    """To the bit; an error where DALI raises one."""
    if case["sums"] is None:
        with pytest.raises((jaxdali.SampleError, ValueError, TypeError)):
            decode(DATA / "601.mp4", **case["arguments"])
    else:
        assert sums(decode(DATA / "601.mp4", **case["arguments"])[0]) == case["sums"]


@pytest.mark.parametrize("name", ["601.mp4", "709.mp4", "709 full.mp4", "422.mp4", "444.mp4", "odd.mp4", "jpeg.avi"])
def test_colours_are_dalis(name):
    """Both ranges, and each arrangement of chroma. DALI converts BT.709 as BT.601, too."""
    with np.load(DATA / "dali.npz") as recorded:
        expected = recorded[name].astype(int)
    clip = decode(DATA / name, frames=[0, 3])[0]
    assert np.abs(clip - expected).max() <= 1


def test_arguments_per_sample(tmp_path):
    paths = [videos.write(tmp_path / f"{n}.mp4", n, bf="2", first=n) for n in (20, 11, 15)]
    expected = [videos.rgb(p) for p in paths]
    starts, lengths = [np.int32(x) for x in (3, 9, 0)], [np.int32(x) for x in (5, 2, 7)]
    frames = [np.int32(x) for x in ([5, 1], [0, 10], [3, 3])]
    data = [np.fromfile(p, np.uint8) for p in paths]
    clips, chosen = run(
        lambda x, start, length, f: (fn.decoders.video(x, start_frame=start, sequence_length=length), fn.decoders.video(x, frames=f)),
        data, starts, lengths, frames,
    )  # fmt: skip
    for k in range(3):
        np.testing.assert_array_equal(np.asarray(clips[k]), expected[k][starts[k] : starts[k] + lengths[k]])
        np.testing.assert_array_equal(np.asarray(chosen[k]), expected[k][frames[k]])
    assert clips.layout() == "FHWC"


@pytest.mark.parametrize("device", ["cpu", "mixed", "gpu"])
def test_devices_and_operators(tmp_path, device):
    path = videos.write(tmp_path / "a.mp4", 12)

    @pipeline_def(batch_size=2, num_threads=2, enable_conditionals=True)
    def pipeline():
        data, label = fn.readers.file(files=[path, path])
        if label[0] == 1:
            clip = fn.decoders.video(data, sequence_length=4, device=device)
        else:
            clip = fn.decoders.video(data, start_frame=8, sequence_length=4, device=device)
        return fn.crop_mirror_normalize(clip, crop=(24, 32), dtype=types.FLOAT, output_layout="FHWC", mean=0.0, std=1.0)

    expected = videos.rgb(path).astype(np.float32)[:, 12:36, 16:48]
    clips = [np.asarray(x) for x in pipeline().run()[0].as_cpu()]
    np.testing.assert_array_equal(clips[0], expected[8:])
    np.testing.assert_array_equal(clips[1], expected[:4])


def test_other_files_are_refused(tmp_path):
    good = pathlib.Path(videos.write(tmp_path / "a.mp4", 5))
    (tmp_path / "b.mp4").write_bytes(good.read_bytes()[:300])
    for content in (tmp_path / "b.mp4", DATA / "dali.json"):
        with pytest.raises(jaxdali.SampleError, match=r"decoders.video .*sample 1: \w"):
            decode(good, content)
    with pytest.raises((TypeError, jaxdali.OperatorError), match="must be encoded files"):
        run(fn.decoders.video, [np.zeros((3, 3), np.uint8)])


def test_large_videos_are_refused(tmp_path):
    """The size of what is decoded is bounded by the storage of the file's reader."""
    path = videos.write(tmp_path / "a.mp4", 30)

    @pipeline_def(batch_size=1, num_threads=1)
    def pipeline(length):
        data, _ = fn.readers.file(files=[path], storage=jaxdali.Storage(max_record_bytes=100_000))
        return fn.decoders.video(data, sequence_length=length)

    assert np.asarray(pipeline(10).run()[0].as_cpu()[0]).shape == (10, 48, 64, 3)
    with pytest.raises(jaxdali.SampleError, match="max_record_bytes=100000"):
        pipeline(11).run()


def test_requested_frames_are_limited(tmp_path):
    path = videos.write(tmp_path / "a.mp4", 5)
    for arguments, count in (
        ({"sequence_length": 2**62}, 2**62),
        ({"end_frame": 2**62}, 2**62),
        ({"start_frame": -(2**40), "stride": 2}, r"\d+"),
        ({"frames": np.zeros(120_000, np.int32)}, 120_000),
    ):
        nodes = {name: [np.int64(x)] for name, x in arguments.items()}
        with pytest.raises(jaxdali.SampleError, match=f"it has {count} frames of 48x64 pixels: .*max_record_bytes="):
            run(
                lambda x, *values, names=tuple(nodes): fn.decoders.video(x, **dict(zip(names, values, strict=True))),
                [np.fromfile(path, np.uint8)],
                *nodes.values(),
            )


@pytest.mark.parametrize("position", [0, 3])
def test_frames_larger_than_the_container_says(tmp_path, position, monkeypatch):
    """Motion JPEG in AVI: each frame has a size of its own. The limit also holds while FFmpeg looks for streams."""
    from jaxdali.fn._video import video_file

    av, path = pytest.importorskip("av"), tmp_path / "a.avi"
    with av.open(str(path), "w") as output:
        stream = output.add_stream("mjpeg", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuvj420p"
        for k in range(6):
            packet = av.Packet(encode(picture(200, 300) if k == position else picture(48, 64), "JPEG"))
            packet.stream, packet.pts, packet.dts, packet.is_keyframe = stream, k, k, True
            packet.time_base = stream.time_base or Fraction(1, 25)
            output.mux(packet)
    with pytest.raises(
        jaxdali.SampleError, match=r"frame 3 .*: it is 200x300, and the video 48x64" if position else "200x300"
    ):
        decode(path)
    monkeypatch.setattr(video_file, "MAX_PIXELS", 59_999)
    with pytest.raises(jaxdali.SampleError, match=r"the size of its frames is unknown, or above \d+ pixels"):
        decode(path)
    monkeypatch.setattr(video_file, "MAX_PIXELS", 48 * 64 - 1)
    good = videos.write(tmp_path / "a.mp4", 5)
    with pytest.raises(jaxdali.SampleError, match="its frames have 48x64 pixels, more than 3071"):
        decode(good)


def test_upright_frames_and_colours_of_the_stream(tmp_path):
    paths = [videos.write(tmp_path / f"{turn}.mp4", 4, turn=turn, colorspace=1) for turn in ("none", "right", "flip")]
    for path, frames in zip(paths, decode(*paths, apply_rotation=True, color_matrix="stream"), strict=True):
        assert np.abs(frames - videos.upright(videos.exact_rgb(path), pathlib.Path(path).stem)).max() < 0.55
    with pytest.warns(UserWarning, match=r"decoders.video: some videos are .* apply_rotation=True") as caught:
        coded = decode(*paths)
    assert len(caught) == 1
    np.testing.assert_array_equal(coded[1], videos.rgb(paths[1]))


def test_calls_warn_once_of_rotated_videos(tmp_path):
    """Not again with each number of them."""
    files = [np.fromfile(videos.write(tmp_path / f"{turn}.mp4", 2, turn=turn), np.uint8) for turn in ("none", "right")]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for batch in (files[1:], files, [*files, files[1]]):
            dynamic.decoders.video(batch)
    assert len(caught) == 1


def test_without_the_package(tmp_path, monkeypatch):
    path = videos.write(tmp_path / "a.mp4", 3)
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(ImportError, match=r'decoders.video needs PyAV: pip install "jaxdali\[video\]"'):
        decode(path)
