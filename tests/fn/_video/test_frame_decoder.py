"""Frames by number, beside FFmpeg's own decoding of the whole file."""

import io
import pathlib

import numpy as np
import pytest
import videos

pytest.importorskip("av")

import av

from jaxdali.fn._video.frame_decoder import FrameDecoder
from jaxdali.fn._video.indexing import make_index
from jaxdali.fn._video.open_videos import OpenVideos, read_frames
from jaxdali.fn._video.pixels import PixelForm, Pixels
from jaxdali.fn._video.video_index import VideoIndex

pytestmark = pytest.mark.same_with_any_jax

VARIABLE = np.cumsum(np.random.default_rng(1).integers(10, 90, 45)).tolist()
CASES = {  # file: codec, and how it is written
    "closed.mp4": ("libx264", {"bf": "3"}),
    "open.mp4": ("libx264", {"x264-params": "bframes=3:open-gop=1"}),
    "open.mkv": ("libx264", {"x264-params": "bframes=3:open-gop=1"}),
    "open.ts": ("libx264", {"x264-params": "bframes=3:open-gop=1"}),
    # With threads, x264 varies and may refer back.
    "refresh.mp4": ("libx264", {"x264-params": "intra-refresh=1:keyint=12:threads=1"}),
    "variable.mp4": ("libx264", {"pts": VARIABLE}),
    "variable.mkv": ("libvpx-vp9", {"pts": VARIABLE}),
    "444.mp4": ("libx264", {"form": "yuv444p"}),
    "422.mp4": ("libx264", {"form": "yuv422p"}),
    "10 bits.mp4": ("libx264", {"form": "yuv420p10le"}),
    "odd.mkv": ("libx264", {"size": (47, 63), "form": "yuv444p"}),
    "hevc.mp4": ("libx265", {"x265-params": "log-level=none:open-gop=1:bframes=4"}),
    "hevc.ts": ("libx265", {}),
    "mpeg4.mp4": ("mpeg4", {"bf": "2"}),
    "mpeg4.avi": ("mpeg4", {"bf": "2"}),
    "mpeg2.ts": ("mpeg2video", {"bf": "2"}),
    "mpeg1.mpg": ("mpeg1video", {}),
    "vp8.webm": ("libvpx", {"auto-alt-ref": "1", "lag-in-frames": "10"}),
    "vp9.webm": ("libvpx-vp9", {"auto-alt-ref": "1", "lag-in-frames": "20"}),
    "av1.mp4": ("libsvtav1", {}),
    "jpeg.avi": ("mjpeg", {"form": "yuvj420p"}),
    "raw.264": ("libx264", {"container": "h264"}),
    "png.mov": ("png", {"form": "rgb24"}),
    "wmv.wmv": ("wmv2", {}),
}


def check(path: str, tries: int = 16):
    """Compares random clips of a file with the frames that FFmpeg gives in one run through it. Returns the index."""
    expected = [(f.pts, videos.planes(f)) for f in videos.decoded(path)]
    index = make_index(path)
    assert len(index) == len(expected)
    if not index.is_counted:
        assert index.pts.tolist() == [t for t, _ in expected]
    restored = VideoIndex.from_bytes(index.to_bytes())
    assert restored is not None
    assert (restored.pts.tolist(), restored.keys.tolist(), restored.size) == (
        index.pts.tolist(),
        index.keys.tolist(),
        index.size,
    )
    draw, n = np.random.default_rng(0), len(index)
    decoder = FrameDecoder(path, index, strict=not index.is_counted and index.cut == len(index.packet_pts))
    for k in range(tries):
        first, count, stride = int(draw.integers(n)), int(draw.integers(1, 9)), int(draw.integers(1, 4))
        frames = [f for f in range(first, first + count * stride, stride) if f < n]
        frames = sorted({*draw.integers(0, n, 6).tolist()}) if k % 4 == 3 else frames
        planes: dict[int, bytes] = {}
        decoder.read(
            frames, lambda i, image, planes=planes: planes.update({i: videos.planes(image)}), onward=bool(k % 2)
        )
        assert sorted(planes) == frames
        assert [i for i in frames if planes[i] != expected[i][1]] == []
    decoder.close()
    return index


@pytest.mark.parametrize("name", CASES)
def test_frames_are_ffmpegs(tmp_path, name):
    codec, options = CASES[name]
    check(videos.write(tmp_path / name, 45, codec, **options))


@pytest.mark.parametrize("name", ["cut.mp4", "cut.mkv", "cut.ts", "cut.264"])
def test_files_cut_off_within_a_group(tmp_path, name):
    """A file may end within a group of pictures: packets are missing at its end, or it is cut off within one."""
    container = "h264" if name.endswith("264") else None
    whole = videos.write(tmp_path / name, 30, container=container, gop=10, bf="3")
    content = pathlib.Path(whole).read_bytes()
    if name == "cut.mp4":  # its table stands at the end, so the packets are copied to another file
        with av.open(whole) as source, av.open(str(tmp_path / "short.mp4"), "w") as output:
            stream = output.add_stream_from_template(source.streams.video[0])
            for packet in list(source.demux(video=0))[:25]:
                packet.stream = stream
                output.mux(packet)
        index = check(str(tmp_path / "short.mp4"))
        assert len(index) == 25
        return
    for part in (0.7, 0.83, 0.97):
        path = tmp_path / f"{part} {name}"
        path.write_bytes(content[: int(part * len(content))])
        index = check(str(path), 6)
        assert 5 < len(index) < 30


def test_edit_lists(tmp_path):
    """Frames before the beginning that an edit list gives are decoded, but not shown."""
    whole = videos.write(tmp_path / "a.mp4", 30, gop=10, bf="2")
    with av.open(whole) as source, av.open(str(tmp_path / "b.mp4"), "w") as output:
        stream = output.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size and packet.pts is not None and packet.dts is not None:
                packet.pts, packet.dts = packet.pts - 6 * 512, packet.dts - 6 * 512
                packet.stream = stream
                output.mux(packet)
    index = check(str(tmp_path / "b.mp4"))
    assert len(index) < 30


def test_following_frames_are_decoded_once(tmp_path):
    """Reading on needs no key frame; clips of one group of pictures are decoded in one go."""
    path = videos.write(tmp_path / "a.mp4", 40, gop=40, bf="0")
    decoder = FrameDecoder(path, make_index(path))
    packets, read = [], decoder._next_packet

    def record():
        packets.append(read())
        return packets[-1]

    decoder._next_packet = record
    for first in range(0, 40, 8):
        decoder.read(range(first, first + 8), lambda i, frame: None, onward=True)
    decoder.close()
    assert len(packets) == 40


def test_errors_name_frame_and_time(tmp_path):
    path = pathlib.Path(videos.write(tmp_path / "a.mp4", 40, gop=10, size=(96, 128)))
    index = make_index(str(path))
    with av.open(str(path)) as container:
        places = {p.pts: (p.pos, p.size) for p in container.demux(video=0) if p.size}
    data = bytearray(path.read_bytes())
    pos, size = places[index.pts[20]]
    assert pos is not None
    data[pos + 30 : pos + size] = bytes(size - 30)
    path.write_bytes(data)
    decoder = FrameDecoder(str(path), index)
    decoder.read(range(10, 20), lambda i, frame: None)
    with pytest.raises(ValueError, match=r"frame 2\d \(0\.8\d0 s\): Invalid data"):
        decoder.read(range(18, 26), lambda i, frame: None)
    later = []
    decoder.read(range(31, 40), lambda i, frame: later.append(i))  # the other frames can be read
    assert later == list(range(31, 40))
    decoder.close()


@pytest.mark.parametrize("content", [b"", b"no video", bytes(1000), b"\x00\x00\x00\x18ftypisom" + bytes(100)])
def test_files_without_video_are_refused(tmp_path, content):
    (tmp_path / "a.mp4").write_bytes(content)
    for source in (str(tmp_path / "a.mp4"), content):
        with pytest.raises(ValueError, match=r"\w"):
            make_index(source)


def test_damaged_files_neither_hang_nor_crash(tmp_path):
    """Bytes anywhere in the file are changed. The result is an error, or frames of the right size."""
    draw = np.random.default_rng(0)
    for name, codec in (
        ("a.mp4", "libx264"),
        ("a.mkv", "mpeg4"),
        ("a.ts", "mpeg2video"),
        ("a.webm", "libvpx-vp9"),
        ("a.avi", "mpeg4"),
    ):
        whole = np.fromfile(videos.write(tmp_path / name, 20, codec), np.uint8)
        for _ in range(40):
            data = whole.copy()
            places = draw.integers(0, len(data), int(draw.integers(1, 20)))
            data[places] = draw.integers(0, 256, len(places))
            try:
                index = make_index(data.tobytes())
                decoder = FrameDecoder(data.tobytes(), index)
                for first in range(0, len(index), 5):
                    decoder.read(range(first, min(first + 5, len(index))), lambda i, frame, index=index: None)
                decoder.close()
            except (ValueError, OSError):
                pass


def test_clips_of_a_batch_share_decoding(tmp_path, monkeypatch):
    """Overlapping clips of a batch take one run over their frames, in whatever order they come.

    Later batches go on from there.
    """
    from jaxdali import fn, pipeline_def

    packets, frames = [], []
    read, convert = FrameDecoder._next_packet, Pixels.convert
    monkeypatch.setattr(FrameDecoder, "_next_packet", lambda self: packets.append(1) or read(self))
    monkeypatch.setattr(Pixels, "convert", lambda self, frame, out: frames.append(1) or convert(self, frame, out))
    path = videos.write(tmp_path / "a.mp4", 24, gop=24, bf="0")

    @pipeline_def(batch_size=8, num_threads=3, prefetch_queue_depth=1)
    def pipeline():
        return fn.readers.video(filenames=path, sequence_length=8, step=1, stick_to_shard=True, pad_last_batch=True)

    pipe = pipeline(exec_pipelined=False, exec_async=False)
    pipe.run()
    pipe.close()
    assert len(packets) <= 2 * 24  # of at most two batches, the second made ahead
    assert len(frames) <= 2 * 15


def test_open_files_are_limited(tmp_path):
    path = videos.write(tmp_path / "a.mp4", 4, gop=2)
    content = pathlib.Path(path).read_bytes()
    index = make_index(path)
    out = np.zeros((48, 64, 3), np.uint8)
    for source, limits in ((path, {"max_open": 3}), (content, {"max_bytes": 3 * len(content)})):
        still_open = OpenVideos(**limits)
        for key in range(8):
            read_frames(still_open, key, lambda source=source: source, index, [1], lambda f: [out], PixelForm())
        assert [key for key in range(8) if still_open.has(key)] == [5, 6, 7]
        still_open.close()
        assert not any(still_open.has(key) for key in range(8))


def test_later_streams_are_left_out(tmp_path):
    """PyAV knows the streams of the file's beginning only, and raises an IndexError for a packet of another one."""
    whole, draw, num_found = (
        np.fromfile(videos.write(tmp_path / "a.ts", 45, "mpeg2video", bf="2"), np.uint8),
        np.random.default_rng(0),
        0,
    )
    for _ in range(1500):
        data = whole.copy()
        places = draw.integers(0, len(data), 29)
        data[places] = draw.integers(0, 256, len(places))
        try:
            with av.open(io.BytesIO(data.tobytes())) as container:
                list(container.demux(video=0))
        except IndexError:
            try:
                index = make_index(data.tobytes())
            except ValueError:  # there is other damage, too
                continue
            assert len(index) > 0
            num_found += 1
            if num_found == 3:
                return
        except (ValueError, OSError, av.error.FFmpegError):
            continue
    pytest.skip("this FFmpeg finds no such stream in damaged files")
