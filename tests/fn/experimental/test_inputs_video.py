"""experimental.inputs.video: sequences of videos that are fed."""

import pathlib

import numpy as np
import pytest
import videos

from jaxdali import fn, pipeline_def

pytest.importorskip("av")


@pipeline_def(batch_size=3, num_threads=1)
def pipeline(policy="partial", device="cpu"):
    return fn.experimental.inputs.video(name="video", sequence_length=5, last_sequence_policy=policy, device=device)


def content(path: str) -> np.ndarray:
    return np.frombuffer(pathlib.Path(path).read_bytes(), np.uint8)


@pytest.mark.parametrize(("policy", "device"), [("partial", "cpu"), ("pad", "cpu"), ("partial", "mixed")])
def test_videos_come_in_batches_of_sequences(tmp_path, policy, device):
    """As in DALI: 37 frames are two batches of three sequences, and one of two, the last of which is shorter or padded."""
    paths = [videos.write(tmp_path / f"{n}.mp4", n, bf="2", first=n) for n in (37, 15)]
    expected = [videos.rgb(p) for p in paths]
    pipe = pipeline(policy, device, exec_pipelined=False, exec_async=False)
    for path in paths:
        pipe.feed_input("video", [content(path)])
    batches = [[np.asarray(x) for x in pipe.run()[0].as_cpu()] for _ in range(4)]
    assert [len(batch) for batch in batches] == [3, 3, 2, 3]
    for sequences, frames in (([x for batch in batches[:3] for x in batch], expected[0]), (batches[3], expected[1])):
        joined = np.concatenate(sequences)
        np.testing.assert_array_equal(joined[: len(frames)], frames)
        assert len(joined) == (40 if policy == "pad" and len(frames) == 37 else len(frames))
        assert not joined[len(frames) :].any()
    with pytest.raises(IndexError, match="there is no video left; call feed_input"):
        pipe.run()
    pipe.feed_input("video", content(paths[1])[None])  # another one, as an array of one
    np.testing.assert_array_equal(np.concatenate([np.asarray(x) for x in pipe.run()[0].as_cpu()]), expected[1])
    pipe.close()


def test_upright_frames_and_colours_of_the_stream(tmp_path):
    path = videos.write(tmp_path / "a.mp4", 8, turn="left", colorspace=1)

    def batch(**arguments):
        @pipeline_def(batch_size=2, num_threads=1)
        def define():
            return fn.experimental.inputs.video(name="video", sequence_length=5, **arguments)

        pipe = define(exec_pipelined=False, exec_async=False)
        for _ in range(2):
            pipe.feed_input("video", [content(path)])
        frames = np.concatenate([np.asarray(x) for x in pipe.run()[0].as_cpu()])
        pipe.close()
        return frames

    assert (
        np.abs(batch(apply_rotation=True, color_matrix="stream") - videos.upright(videos.exact_rgb(path), "left")).max()
        < 0.55
    )
    with pytest.warns(UserWarning, match="some videos are .* apply_rotation=True") as caught:
        np.testing.assert_array_equal(batch(), videos.rgb(path))
    assert len(caught) == 1


def test_fed_data_are_checked(tmp_path):
    path = videos.write(tmp_path / "a.mp4", 5)
    pipe = pipeline()
    for data, message in (
        ([content(path)] * 2, "one video at a time must be fed, got 2"),
        ([np.zeros(100, np.uint8)], "the video can't be read"),
        ([np.zeros((2, 2, 2), np.uint8)], "must be 1-D uint8"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            pipe.feed_input("video", data)
    pipe.close()
