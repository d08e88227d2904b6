"""readers.sequence: which frames make a sequence (as DALI 2.4 has it), and what they look like."""

import numpy as np
import pytest
from PIL import Image

import jaxdali
from jaxdali import fn, pipeline_def, types


@pytest.fixture
def videos(tmp_path):
    for name, frames, end in (("b", 5, "png"), ("a", 7, "png"), ("c", 2, "bmp")):
        (tmp_path / name).mkdir()
        for i in range(frames):
            pixels = np.zeros((8, 10, 3), np.uint8)
            pixels[:] = ord(name), 10 * i, 5
            Image.fromarray(pixels).save(tmp_path / name / f"{i:03}.{end}")
    return tmp_path


def sequences(folder, batches, **arguments):
    @pipeline_def(batch_size=1, num_threads=2, device_id=None)
    def definition():
        return fn.readers.sequence(file_root=str(folder), name="reader", **arguments)

    pipe = definition()
    pipe.build()
    clips = [np.asarray(pipe.run()[0].at(0)) for _ in range(batches)]
    return pipe.epoch_size("reader"), clips


def names(clips):
    return ["".join(f"{chr(f[0, 0, 0])}{f[0, 0, 1] // 10}" for f in x) for x in clips]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"sequence_length": 3}, "a0a1a2 a1a2a3 a2a3a4 a3a4a5 a4a5a6 b0b1b2 b1b2b3 b2b3b4"),
        ({"sequence_length": 2, "step": 3, "stride": 2}, "a0a2 a3a5 b0b2"),
        ({"sequence_length": 2, "step": 9}, "a0a1 b0b1 c0c1"),
        (
            {"sequence_length": 3, "num_shards": 2, "shard_id": 1},
            "a4a5a6 b0b1b2 b1b2b3 b2b3b4 a0a1a2 a1a2a3 a2a3a4 a3a4a5",
        ),
    ],
)
def test_frames(videos, arguments, expected):
    size, clips = sequences(videos, len(expected.split()), **arguments)
    assert size == len(expected.split())
    assert names(clips) == expected.split()
    assert clips[0].shape == (arguments["sequence_length"], 8, 10, 3)


def test_warning_about_folders(videos):
    for name in (".thumbnails/000.png", "c/.DS_Store", "b/more/005.png"):
        (videos / name).parent.mkdir(exist_ok=True)
        (videos / name).write_bytes((videos / "c" / "000.bmp").read_bytes())
    text = r"others: \.thumbnails \(files=.*; files that hold no .* listed: 1 \.DS_Store .*; files in deeper .* b/more, are not listed: 1"
    with pytest.warns(UserWarning, match=text):
        assert sequences(videos, 0, sequence_length=1)[0] == 1 + 7 + 5 + 3


@pytest.mark.parametrize("kind", ["RGB", "BGR", "GRAY"])
def test_colours(videos, kind):
    _, clips = sequences(videos, 3, sequence_length=2, step=9, image_type=getattr(types, kind))
    for x, name in zip(clips, "abc"):
        red, green, blue = ord(name), 10, 5
        gray = round(0.299 * red + 0.587 * green + 0.114 * blue)
        expected = {"RGB": [red, green, blue], "BGR": [blue, green, red], "GRAY": [gray]}[kind]
        assert np.abs(x[1, 3, 4].astype(int) - expected).max() <= (kind == "GRAY")


def test_palette_indices(tmp_path):
    masks = np.random.default_rng(0).integers(0, 3, (2, 8, 10)).astype(np.uint8)
    (tmp_path / "a").mkdir()
    for i, mask in enumerate(masks):
        image = Image.fromarray(mask)
        image.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0])
        image.save(tmp_path / "a" / f"{i}.png")
    _, (indices,) = sequences(tmp_path, 1, sequence_length=2, palette="index")
    np.testing.assert_array_equal(indices, masks[..., None])


def test_files_in_lists(videos):
    files = [
        [str(videos / "b" / f"{k:03}.png") for k in (4, 0, 2)],
        [videos / "c" / "000.png"],
        [videos / "a" / "006.png"] * 2,
    ]

    @pipeline_def(batch_size=1, num_threads=2, device_id=None)
    def definition():
        return fn.readers.sequence(files=files, sequence_length=2, name="reader", metadata="filename")

    pipe = definition()
    batches = [pipe.run() for _ in range(3)]
    assert names([np.asarray(x.at(0)) for x, _ in batches]) == ["b4b0", "b0b2", "a6a6"]
    assert list(batches[0][1]) == [files[0][0]]
    for arguments, message in (
        ({"sequence_length": 4}, "no list in files has 4 files"),
        ({"file_root": str(videos)}, "exactly one .* got both"),
    ):
        with pytest.raises((RuntimeError, ValueError), match=message):
            pipeline_def(
                lambda a=arguments: fn.readers.sequence(files=files, **{"sequence_length": 1, **a}), batch_size=1
            )().build()


def test_sequences_are_limited(videos):
    """By the memory of all frames: each has 8 x 10 x 3 bytes."""
    storage = jaxdali.Storage(max_record_bytes=719)
    assert len(sequences(videos, 1, sequence_length=2, storage=storage)[1][0]) == 2
    with pytest.raises(
        jaxdali.SampleError,
        match=r"a/000\.png: a sequence has 3 frames \(8, 10, 3\): it would take 720 bytes, .*=719\)",
    ):
        sequences(videos, 1, sequence_length=3, storage=storage)


def test_wrong_frames_are_named(videos):
    with pytest.raises(RuntimeError, match=r"readers\.sequence .*: no sub-directory of file_root .* has 9 files"):
        sequences(videos, 1, sequence_length=9)
    (videos / "a" / "001.png").write_bytes(b"no image")
    with pytest.raises(RuntimeError, match=r"a/001\.png"):
        sequences(videos, 1, sequence_length=2)
    Image.new("RGB", (4, 4)).save(videos / "a" / "001.png")
    with pytest.raises(
        RuntimeError, match=r"a/001\.png: the frame is \(4, 4, 3\), but the first of its sequence \(8, 10, 3\)"
    ):
        sequences(videos, 1, sequence_length=2)
