"""readers.video: clips, labels, numbers and times of frames."""

import gc
import json
import pathlib

import numpy as np
import places
import pytest
import videos
from data_sets import failing

import jaxdali
from jaxdali import fn, pipeline_def, types
from jaxdali._core.errors import ArgumentError

pytest.importorskip("av")


def read(batches: int, batch_size: int = 1, reader=fn.readers.video, num_threads: int = 2, **arguments):
    """The outputs of each batch, as lists of NumPy arrays."""

    @pipeline_def(batch_size=batch_size, num_threads=num_threads)
    def pipeline():
        nodes = reader(**arguments)
        return tuple(nodes) if isinstance(nodes, list) else (nodes,)

    pipe = pipeline()
    outputs = [[[np.asarray(x) for x in output] for output in pipe.run()] for _ in range(batches)]
    pipe.close()
    return outputs


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three videos of 20, 11 and 7 frames."""
    folder = tmp_path_factory.mktemp("videos")
    return [
        videos.write(folder / f"{n}.mp4", n, bf="2", sc_threshold="0", first=100 * k) for k, n in enumerate((20, 11, 7))
    ]


@pytest.fixture(scope="module")
def frames(files):
    return [videos.rgb(f) for f in files]


def test_clips_are_the_frames(files, frames):
    batches = read(
        9, filenames=files, labels=[5, 3, 4], sequence_length=4, enable_frame_num="sequence", enable_timestamps=True
    )
    for (clip,), (label,), (numbers,), (times,) in batches:
        k = {5: 0, 3: 1, 4: 2}[int(label[0])]
        np.testing.assert_array_equal(clip, frames[k][numbers])
        np.testing.assert_allclose(times, numbers / 25)
    firsts = [(int(label[0]), int(numbers[0])) for _, (label,), (numbers,), _ in batches]
    assert firsts == [(5, 0), (5, 4), (5, 8), (5, 12), (5, 16), (3, 0), (3, 4), (4, 0), (5, 0)]
    assert batches[0][0][0].shape == (4, 48, 64, 3)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"sequence_length": 6}, [0, 6, 12]),
        ({"sequence_length": 6, "stride": 2}, [0]),
        ({"sequence_length": 6, "stride": 2, "step": 3}, [0, 3, 6, 9]),
        ({"sequence_length": 3, "stride": 3, "step": 1}, list(range(14))),
        ({"sequence_length": 6, "pad_sequences": True}, [0, 6, 12, 18]),
        ({"sequence_length": 30, "pad_sequences": True, "step": 7}, [0, 7, 14]),
    ],
)
def test_where_clips_begin(files, frames, arguments, expected):
    """As in DALI's loader: a clip is read if its last frame is there; with pad_sequences each that has a frame."""
    batches = read(
        len(expected), filenames=files[:1], labels=[], enable_frame_num="sequence", enable_timestamps=True, **arguments
    )
    assert [int(numbers[0]) for _, _, (numbers,), _ in batches] == expected
    stride = arguments.get("stride", 1)
    for (clip,), _, (numbers,), (times,) in batches:
        frame_numbers = numbers[0] + stride * np.arange(arguments["sequence_length"])
        assert numbers.tolist() == np.where(frame_numbers < 20, frame_numbers, -1).tolist()
        np.testing.assert_array_equal(clip, np.where((numbers >= 0)[:, None, None, None], frames[0][numbers], 0))
        np.testing.assert_allclose(times, np.where(numbers < 0, -1, numbers / 25))


@pytest.mark.parametrize(
    ("line", "arguments", "expected"),
    [
        ("3", {}, (0, 20)),
        ("3 0.1 0.5", {}, (3, 12)),  # ceil(2.5), floor(12.5)
        ("3 0.1 0.5", {"file_list_include_preceding_frame": True}, (2, 13)),
        ("3 0.4", {}, (11, 20)),  # DALI holds 0.4 in float32, which is more
        ("3 -0.4 -0.1", {}, (10, 17)),
        ("3 2 9", {"file_list_frame_num": True}, (2, 9)),
        ("3 -6 -2", {"file_list_frame_num": True}, (14, 18)),
        ("3 5", {"file_list_frame_num": True}, (5, 20)),
    ],
)
def test_parts_of_videos(files, tmp_path, line, arguments, expected):
    (tmp_path / "list").write_text(f"{files[0]} {line}\n")
    begin, end = expected
    batches = read(end - begin, file_list=str(tmp_path / "list"), sequence_length=1, enable_frame_num=True, **arguments)
    assert [int(numbers[0]) for _, _, (numbers,) in batches] == list(range(begin, end))
    assert {int(label[0]) for _, (label,), _ in batches} == {3}


def test_directories_are_labels(tmp_path, frames, files):
    for folder, k in (("b", 0), ("a", 1), ("c", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.mp4").write_bytes(pathlib.Path(files[k]).read_bytes())
    batches = read(3, file_root=str(tmp_path), sequence_length=7, step=100)
    assert [int(label[0]) for _, (label,) in batches] == [0, 1, 2]
    for ((clip,), _), k in zip(batches, (1, 0, 2)):
        np.testing.assert_array_equal(clip, frames[k][:7])


def test_warning_about_folders(tmp_path, files):
    for name in (".cache/x.txt", "a/x.mp4", "a/part/y.MP4", "a/part/y.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(pathlib.Path(files[0]).read_bytes())
    (tmp_path / ".cache" / "x.txt").unlink()
    with pytest.warns(
        UserWarning,
        match=r"\.cache as class 0 \(file_list=.*; files in deeper folders, such as a/part, are not listed: 1",
    ):
        assert [int(label[0]) for _, (label,) in read(1, file_root=str(tmp_path), sequence_length=2)] == [1]


def test_types(files, frames):
    y = read(1, filenames=files[0], sequence_length=3, dtype=types.FLOAT, normalized=True)[0][0][0]
    np.testing.assert_allclose(y, frames[0][:3] / np.float32(255), rtol=1e-6)
    x = read(1, filenames=files[0], sequence_length=3, dtype=types.FLOAT)[0][0][0]
    np.testing.assert_array_equal(x, frames[0][:3].astype(np.float32))
    z = read(1, filenames=files[0], sequence_length=3, image_type=types.YCbCr)[0][0][0]
    luma = np.stack([np.frombuffer(f.planes[0], np.uint8).reshape(48, -1)[:, :64] for f in videos.decoded(files[0])])
    np.testing.assert_array_equal(z[..., 0], luma[:3])


def test_sizes_may_differ(tmp_path, files, frames):
    small = videos.write(tmp_path / "small.mp4", 5, size=(32, 48))
    clips = read(1, 2, filenames=[files[2], small], sequence_length=5, step=50)[0][0]
    np.testing.assert_array_equal(clips[0], frames[2][:5])
    np.testing.assert_array_equal(clips[1], videos.rgb(small))


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("order", [{}, {"random_shuffle": True}, {"shuffle": "global"}])
def test_clips_with_common_frames(files, frames, order, num_threads):
    """Clips share frames within a batch, and with batches that follow."""
    arguments = {"sequence_length": 5, "step": 2, "stride": 2, "enable_frame_num": "sequence"}
    for outputs in read(6, 5, num_threads=num_threads, filenames=files, labels=[], **arguments, **order):
        for clip, label, numbers in zip(*outputs):
            np.testing.assert_array_equal(clip, frames[label[0]][numbers])


def test_on_an_accelerator_and_with_operators(files, frames):
    """`device="gpu"` is accepted everywhere; clips go through the operators of sequences."""

    @pipeline_def(batch_size=2, num_threads=1)
    def pipeline():
        clips, label = fn.readers.video(
            filenames=files, labels=[], sequence_length=4, device="gpu", random_shuffle=True
        )
        return fn.crop_mirror_normalize(clips, crop=(32, 32), output_layout="FCHW"), label

    pipe = pipeline()
    clips, _ = pipe.run()
    assert [np.asarray(x).shape for x in clips] == [(4, 3, 32, 32)] * 2
    pipe.close()


def test_damaged_videos(tmp_path, files):
    """One that can't be opened, and one whose data are damaged: the error names file, frame and time, and others can be
    read.
    """
    broken, damaged = tmp_path / "broken.mp4", tmp_path / "damaged.mp4"
    broken.write_bytes(b"no video")
    av = pytest.importorskip("av")
    data = bytearray(pathlib.Path(files[0]).read_bytes())
    with av.open(files[0]) as container:
        pos, size = [(p.pos, p.size) for p in container.demux(video=0) if p.is_keyframe][1]
    assert pos is not None
    data[pos + 20 : pos + size] = bytes(size - 20)
    damaged.write_bytes(data)
    arguments = {"filenames": [files[1], str(broken), str(damaged)], "sequence_length": 4, "labels": []}
    good, errors = failing("video", arguments, 8)
    assert good == 5
    assert "broken.mp4: " in errors[0]
    assert all("readers.video" in e for e in errors)
    assert [f"damaged.mp4: frame {k} ({t} s)" in e for e, k, t in zip(errors[1:], (8, 12), ("0.320", "0.480"))] == [
        True,
        True,
    ]
    for on_error in ("skip", "replace"):
        assert failing("video", {**arguments, "on_error": on_error}, 8) == (8, [])


@pytest.mark.parametrize("reader", [fn.readers.video, fn.experimental.readers.video])
def test_clips_are_limited(tmp_path, files, reader):
    """By their memory: that of 4 frames of 48x64 pixels."""
    large = videos.write(tmp_path / "large.mp4", 9, size=(48, 66))
    storage, reason = (
        jaxdali.Storage(max_record_bytes=4 * 48 * 64 * 3),
        r"a clip has 4 frames of 48x66 pixels: .*=36864\)",
    )
    arguments = {"sequence_length": 4, "storage": storage}

    @pipeline_def(batch_size=2, num_threads=2)
    def pipeline(on_error="raise", shuffle=None):
        return reader(filenames=[files[0], large], on_error=on_error, shuffle=shuffle, seed=1, **arguments)

    pipe = pipeline()
    for _ in range((len(videos.rgb(files[0])) // 4) // 2):  # the batches without a clip of the large video
        pipe.run()
    with pytest.raises(jaxdali.SampleError, match=rf"readers\.video .*large\.mp4: {reason}"):
        pipe.run()
    pipe.close()
    pipe = pipeline(on_error="replace", shuffle="global")
    assert {np.asarray(x).shape for _ in range(9) for x in pipe.run()[0]} == {(4, 48, 64, 3)}
    pipe.close()
    with pytest.raises(jaxdali.OperatorError, match=rf"readers\.video .*no video can be read\. .*large\.mp4: {reason}"):
        read(1, filenames=[large], reader=reader, **arguments)


def test_indices_are_kept(tmp_path, files, monkeypatch):
    """Indices are kept in the process, and with a cache directory also for other processes."""
    from jaxdali.fn._video import clips

    indexed = []
    monkeypatch.setattr(clips, "make_index", lambda source, make=clips.make_index: indexed.append(1) or make(source))
    for _ in range(2):
        monkeypatch.setattr(clips, "INDICES", clips.Indices())
        for _ in range(2):
            read(1, filenames=files, sequence_length=4, storage=jaxdali.Storage(cache_dir=tmp_path))
        assert len(indexed) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one of filenames, file_root and file_list"),
        ({"filenames": "a.mp4", "file_root": "b"}, "got filenames and file_root"),
        ({"file_root": "b", "labels": [1]}, "labels belong to filenames"),
        ({"filenames": ["a", "b"], "labels": [1]}, "labels must have a number for each of the 2 filenames"),
        (
            {"filenames": "a.mp4", "enable_timestamps": True},
            "enable_timestamps needs file_list, or filenames with labels",
        ),
        ({"file_root": "b", "enable_frame_num": True}, "enable_frame_num needs"),
        ({"filenames": "a.mp4", "channels": 1}, "channels"),
        ({"filenames": "a.mp4", "image_type": types.GRAY}, "image_type"),
        ({"filenames": "a.mp4", "stride": 0}, "stride"),
        ({"filenames": "a.mp4", "color_matrix": "bt709"}, "color_matrix"),
        (
            {"filenames": "a.mp4", "color_matrix": "stream", "image_type": types.YCbCr},
            "color_matrix is for image_type=RGB",
        ),
    ],
)
def test_arguments(arguments, message):
    with pytest.raises((ArgumentError, TypeError, ValueError), match=message):
        read(1, sequence_length=2, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"filenames": "/nowhere/x.mp4"}, "no video can be read. /nowhere/x.mp4: No such file"),
        ({"filenames": "/dev"}, r"/dev: Is a directory; filenames=sorted\(glob\.glob\('/dev/\*'\)\) are its files"),
        ({"file_list": "/nowhere/list"}, "can't read file_list"),
        ({"file_root": "/nowhere"}, "can't list file_root"),
    ],
)
def test_missing_files(arguments, message):
    with pytest.raises(RuntimeError, match=message):
        read(1, sequence_length=2, **arguments)


def test_short_videos_and_bad_lists(tmp_path, files):
    with pytest.raises(RuntimeError, match="no video is long enough for a clip; the first one has 7 frames"):
        read(1, filenames=files[2], sequence_length=8)
    for text, message in (
        ("x.mp4", "line 1: expected a file name"),
        (f"{files[0]} 1 30 40", "20.mp4 has 20 frames, and file_list asks for"),
    ):
        (tmp_path / "list").write_text(text)
        with pytest.raises(RuntimeError, match=message):
            read(1, file_list=str(tmp_path / "list"), file_list_frame_num=True, sequence_length=2)


@pytest.fixture(scope="module")
def turned(tmp_path_factory):
    """A video for each display matrix."""
    folder = tmp_path_factory.mktemp("turned")
    return {
        turn: videos.write(folder / f"{turn}.mp4", 4, turn=turn, first=10 * k) for k, turn in enumerate(videos.TURNS)
    }


@pytest.mark.parametrize("reader", [fn.readers.video, fn.experimental.readers.video])
@pytest.mark.parametrize("image_type", [types.RGB, types.YCbCr])
def test_upright_frames(turned, reader, image_type):
    """Also beside clips that are not turned, in one batch."""
    arguments = {"filenames": list(turned.values()), "sequence_length": 4, "reader": reader, "image_type": image_type}
    (clips,), (coded,) = (read(1, len(turned), apply_rotation=value, **arguments)[0] for value in (True, False))
    for turn, clip, frames in zip(turned, clips, coded):
        np.testing.assert_array_equal(clip, videos.upright(frames, turn))


def test_upright_frames_of_odd_extents(tmp_path):
    """swscale converts their colours, not the kernel."""
    path = videos.write(tmp_path / "odd.mkv", 3, "ffv1", size=(35, 47), turn="right")
    clip = read(1, filenames=path, sequence_length=3, apply_rotation=True)[0][0][0]
    np.testing.assert_array_equal(
        clip, videos.upright(read(1, filenames=path, sequence_length=3, apply_rotation=False)[0][0][0], "right")
    )


@pytest.mark.parametrize("turn", list(videos.TURNS))
@pytest.mark.parametrize("form", ["yuv420p", "yuv422p10le"])
def test_colours_of_upright_frames_of_odd_extents(tmp_path, turn, form):
    """The last sample of chroma has one row or column of luma, also where it becomes the first."""
    path = videos.write(tmp_path / "odd.mkv", 3, "ffv1", size=(35, 47), form=form, turn=turn, colorspace=1)
    clip = read(1, filenames=path, sequence_length=3, apply_rotation=True, color_matrix="stream")[0][0][0]
    assert np.abs(clip - videos.upright(videos.exact_rgb(path), turn)).max() < 0.55


@pytest.mark.parametrize("codec", ["libx264", "mpeg4"])
def test_upright_frames_of_trimmed_clips(tmp_path, codec):
    """Clips that phones trim begin with a key frame and others that an edit list hides."""
    import av

    path, trimmed = videos.write(tmp_path / "a.mp4", 32, codec, gop=32, turn="right", bf="0"), str(tmp_path / "b.mp4")
    with av.open(path) as source, av.open(trimmed, "w", options={"avoid_negative_ts": "disabled"}) as output:
        stream = output.add_stream_from_template(source.streams.video[0])
        stream.set_display_matrix([0, 1 << 16, 0, -1 << 16, 0, 0, 0, 0, 1 << 30])
        for packet in source.demux(video=0):
            if packet.size:
                packet.pts -= 24 * packet.duration
                packet.dts -= 24 * packet.duration
                packet.stream = stream
                output.mux(packet)
    arguments = {"filenames": trimmed, "sequence_length": 5}
    clip, coded = (read(1, apply_rotation=value, **arguments)[0][0][0] for value in (True, False))
    np.testing.assert_array_equal(clip, videos.upright(coded, "right"))
    with pytest.warns(UserWarning, match="1 of 1 videos"):
        read(1, **arguments)


def test_resizing_of_upright_frames(turned):
    arguments = {"filenames": turned["left"], "sequence_length": 2, "apply_rotation": True}
    clip = read(
        1,
        reader=fn.readers.video_resize,
        resize_x=12,
        roi_start=(0.5, 0),
        roi_end=(1, 1),
        roi_relative=True,
        **arguments,
    )[0][0][0]
    assert clip.shape == (2, 8, 12, 3)  # they are 64x48, and their lower half is 32x48


def test_warnings_of_rotated_clips(turned):
    """One for each reader, with counts, unless the argument is given."""
    filenames = [turned["none"], turned["left"], turned["mirror"]]
    with pytest.warns(UserWarning, match=r"readers.video: 2 of 3 videos .* apply_rotation=True") as caught:
        read(2, filenames=filenames, sequence_length=2)
    assert len(caught) == 1
    for value in (True, False):
        read(1, filenames=filenames, sequence_length=2, apply_rotation=value)  # warnings are errors


@pytest.mark.parametrize("transfer", [16, 18])
def test_warning_of_hdr(tmp_path, files, transfer):
    path = videos.write(tmp_path / "hdr.mp4", 3, form="yuv420p10le", colorspace=9, color_trc=transfer)
    with pytest.warns(UserWarning, match=r"readers.video: 1 of 2 videos are HDR \(PQ or HLG\).* tonemap") as caught:
        read(1, filenames=[path, files[2]], sequence_length=2)
    assert len(caught) == 1


@pytest.mark.parametrize("matrix", [1, 5, 9, 2])
@pytest.mark.parametrize(
    ("codec", "form", "size"),
    [("libx264", "yuv420p", (48, 64)), ("ffv1", "yuv420p10le", (35, 47)), ("ffv1", "yuv422p", (35, 47))],
)
@pytest.mark.parametrize("color_range", [1, 2])
def test_matrix_of_the_stream(tmp_path, codec, form, size, matrix, color_range):
    path = videos.write(tmp_path / "a.mkv", 2, codec, form=form, size=size, colorspace=matrix, color_range=color_range)
    clip = read(1, filenames=path, sequence_length=2, color_matrix="stream")[0][0][0]
    assert np.abs(clip - videos.exact_rgb(path)).max() < 0.55
    if matrix in (1, 9):
        assert np.abs(clip.astype(int) - read(1, filenames=path, sequence_length=2)[0][0][0]).max() > 4


def test_matrices_without_factors(tmp_path):
    path = videos.write(tmp_path / "a.mp4", 2, form="yuv444p", colorspace=8)
    assert read(1, filenames=path, sequence_length=2)[0][0][0].shape == (2, 48, 64, 3)
    with pytest.raises(jaxdali.SampleError, match=r"a.mp4: frame 0 .* matrix 8 of ISO/IEC 23091-2"):
        read(1, filenames=path, sequence_length=2, color_matrix="stream")


# --- DALI's newer reader, and the one that resizes --------------------------------------------------------------------

DATA = places.ROOT / "tests" / "data" / "video"
RECORDED = json.loads((DATA / "dali.json").read_text())["readers"]


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: f"{case['list']} {case['arguments']}")
def test_clips_equal_dalis_newer_reader(tmp_path, case):
    """The numbers of the frames, their times and their pixels are those of DALI 2.4 on the CPU."""
    source = {"filenames": str(DATA / "601.mp4")}
    if case["list"] is not None:
        (tmp_path / "list").write_text(f"{DATA / '601.mp4'} 3 {case['list']}\n")
        source = {"file_list": str(tmp_path / "list")}
    arguments = {"enable_frame_num": "sequence", "enable_timestamps": True, **case["arguments"]}
    for batch, expected in zip(
        read(5, reader=fn.experimental.readers.video, **source, **arguments), case["clips"], strict=True
    ):
        clip, *_, numbers, times = (output[0] for output in batch)
        assert numbers.tolist() == expected["frames"]
        np.testing.assert_allclose(times, expected["times"], atol=1e-5)
        assert clip.reshape(len(clip), -1).astype(np.int64).sum(1).tolist() == expected["sums"]


def test_labels_and_shards_of_the_newer_reader(files, frames):
    arguments = {"filenames": files, "labels": [7, 8, 9], "sequence_length": 3, "enable_frame_num": "scalar"}
    clips_read = []
    for shard in range(2):
        batches = read(
            6,
            reader=fn.experimental.readers.video,
            num_shards=2,
            shard_id=shard,
            stick_to_shard=True,
            device="gpu",
            **arguments,
        )
        for (clip,), (label,), (number,) in batches:
            np.testing.assert_array_equal(clip, frames[label[0] - 7][number[0] : number[0] + 3])
            clips_read.append((int(label[0]), int(number[0])))
    assert {*clips_read} == {(7, k) for k in range(0, 18, 3)} | {(8, 0), (8, 3), (8, 6), (9, 0), (9, 3)}


@pytest.mark.parametrize("more", [{}, {"dtype": types.FLOAT, "normalized": True}])
def test_resized_clips(files, more):
    """`readers.video_resize` equals `resize` of the clips of `readers.video`."""
    resizing = {"resize_shorter": 24, "interp_type": types.INTERP_CUBIC}

    @pipeline_def(batch_size=2, num_threads=2)
    def pipeline():
        clips, labels = fn.readers.video_resize(filenames=files, labels=[], sequence_length=3, **resizing, **more)
        plain, plain_labels = fn.readers.video(filenames=files, labels=[], sequence_length=3, **more)
        return clips, labels, fn.resize(plain, **resizing), plain_labels

    clips, labels, expected, plain_labels = ([np.asarray(x) for x in output.as_cpu()] for output in pipeline().run())
    assert labels == plain_labels
    assert clips[0].shape == (3, 24, 32, 3)
    for x, y in zip(clips, expected):
        np.testing.assert_allclose(x, y, atol=1e-5)


def test_buffers_of_clips_are_let_go(files):
    """At once, without the garbage collector: they are large, and fresh memory takes longer than decoding."""

    @pipeline_def(batch_size=2, num_threads=2)
    def pipeline():
        return fn.readers.video(filenames=files, sequence_length=7)

    pipe = pipeline(exec_pipelined=False, exec_async=False)
    gc.collect()
    gc.disable()
    try:
        addresses = [pipe.run()[0].as_array().ctypes.data for _ in range(12)]
    finally:
        gc.enable()
    pipe.close()
    assert len({*addresses}) <= 5
