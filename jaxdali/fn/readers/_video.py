"""readers.video: clips of video files. `fn/_video` indexes and decodes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Unpack

import numpy as np

from ... import types
from ..._core.building import add
from ..._core.declaration import DType, OneOf, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Default, operator_function
from ..._data.files import Path, Paths, as_list
from ..._data.storage import Store
from .._tensor.cast import cast
from .._video.clips import ClipForm, Clips, VideoEntry, list_videos, videos_argument
from .._video.pixels import PixelForm
from .._video.planes import ColorMatrix
from .._video.video_index import VideoIndex
from ._reader import Reader, StoredArguments

FrameNum = bool | Literal["none", "scalar", "sequence"]


class ClipReader(Reader):
    """The base of `readers.video` and `experimental.readers.video`; the fields are arguments of both."""

    filenames: Paths
    file_root: Path | None
    file_list: Path | None
    labels: int | Sequence[int] | None
    sequence_length: int
    step: int
    stride: int
    enable_frame_num: FrameNum | None
    enable_timestamps: bool
    image_type: types.DALIImageType
    apply_rotation: bool | None
    color_matrix: ColorMatrix

    def __post_init__(self):
        super().__post_init__()
        if self.image_type == types.YCbCr and self.color_matrix != "bt601":
            raise ArgumentError(
                "color_matrix is for image_type=RGB: YCbCr are the samples of the stream, whose matrix they have"
            )

    @property
    def pixels(self) -> PixelForm:
        """The form of the pixels."""
        return PixelForm(
            ycbcr=self.image_type == types.YCbCr, upright=bool(self.apply_rotation), color_matrix=self.color_matrix
        )

    @property
    def form(self) -> ClipForm:
        """The outputs for each clip."""
        raise NotImplementedError(self.name)

    def _clips(self, index: VideoIndex, entry: VideoEntry, path: str) -> list[tuple[int, int, int]]:
        """The clips of a video, as triples (first, begin, end): see `_video.clips.Clip`."""
        raise NotImplementedError(self.name)

    @property
    def num_arrays(self) -> int:
        return self.form.num_outputs

    def open(self) -> Clips:
        """See `Reader.open`. The indices of all videos are made here."""
        store = Store(self.storage)
        labels = None if self.labels is None else as_list(self.labels)
        root, entries, doubts = list_videos(
            self.name, store, as_list(self.filenames), labels, self.file_root, self.file_list
        )
        clips = Clips(self.name, root, entries, store, self.form, self._clips, self.apply_rotation)
        clips.doubts = [*doubts, *clips.doubts]
        return clips


class ReadVideo(ClipReader):
    """`readers.video`; the fields are its further arguments."""

    name: ClassVar[str] = "readers.video"

    pad_sequences: bool
    file_list_frame_num: bool
    file_list_include_preceding_frame: bool

    def __post_init__(self):
        super().__post_init__()
        # As in DALI, which gives numbers and times of frames only in these cases.
        source_argument = videos_argument(self.filenames, self.file_root, self.file_list, self.labels)
        if source_argument == "file_root" or (source_argument == "filenames" and self.labels is None):
            for name, value in (
                ("enable_frame_num", self.frame_num != "none"),
                ("enable_timestamps", self.enable_timestamps),
            ):
                if value:
                    raise ArgumentError(f"{name} needs file_list, or filenames with labels")

    @property
    def frame_num(self) -> str:
        """The form of the output with numbers of frames: "none", "scalar" or "sequence"."""
        return frame_num_of(self.enable_frame_num)

    @property
    def form(self) -> ClipForm:
        """The outputs for each clip."""
        return ClipForm(
            length=self.sequence_length,
            stride=self.stride,
            uniform=False,
            pad_mode="constant",
            fill=(0,),
            pixels=self.pixels,
            # `file_root` and `file_list` always give labels, `filenames` only with `labels`.
            labels=self.labels is not None or not self.filenames,
            frame_num=self.frame_num,
            timestamps=self.enable_timestamps,
            onward=not self.random_shuffle and self.shuffle is None,
        )

    def _clips(self, index: VideoIndex, entry: VideoEntry, path: str) -> list[tuple[int, int, int]]:
        """The clips of a video, as triples (first, begin, end): see `_video.clips.Clip`."""
        # A clip begins at each `step`-th frame of the part; with padding, it may reach beyond the part's end.
        begin, end = self._part(index, entry, path)
        step = self.step if self.step > 0 else self.sequence_length * self.stride
        last = end if self.pad_sequences else end - (self.sequence_length - 1) * self.stride
        return [(first, begin, end) for first in range(begin, last, step)]

    def _part(self, index: VideoIndex, entry: VideoEntry, path: str) -> tuple[int, int]:
        """The frames ``begin .. end - 1`` that a list asks for, as DALI rounds them.

        Raises:
          RuntimeError: the video, whose path is `path`, does not have them.
        """
        count = len(index)
        if not entry.start and not entry.end:
            return 0, count
        # A negative start or end counts from the end of the video, and an end of 0 is the video's end.
        if self.file_list_frame_num:
            begin, end = int(entry.start), int(entry.end)
            begin, end = begin if entry.start >= 0 else count + begin, end if entry.end > 0 else count + end
        else:
            up, down = math.ceil, math.floor
            round_start, round_end = (down, up) if self.file_list_include_preceding_frame else (up, down)
            begin, end = round_start(index.frame_at(entry.start)), round_end(index.frame_at(entry.end))
            begin, end = begin if entry.start >= 0 else count + begin, end if entry.end > 0 else count + end
        if not 0 <= begin <= end <= count:
            raise RuntimeError(f"{path} has {count} frames, and file_list asks for frames {begin} to {end - 1}")
        return begin, end


def frame_num_of(value: FrameNum | None) -> str:
    """The argument `enable_frame_num` as "none", "scalar" or "sequence"; True means "scalar"."""
    return value if isinstance(value, str) else "scalar" if value else "none"


class VideoHints(StoredArguments, total=False):
    """DALI's hints to readers of videos."""

    dont_use_mmap: bool | None


class VideoArguments(VideoHints, total=False):
    """The arguments of `readers.video` and `readers.video_resize`.

    DALI's `skip_vfr_check` is a hint: variable frame rates need no check, as frames are told apart by their time
    stamps.
    """

    additional_decode_surfaces: int | None
    skip_vfr_check: bool | None

    filenames: Annotated[Paths, Default((), "paths of the videos.")]
    file_root: Annotated[
        Path | None,
        Default(
            None,
            "a directory whose sub-directories hold the videos. Sub-directories are numbered from 0 in byte order of their names,\n"
            "    which are the labels. The files come in byte order of their paths.",
        ),
    ]
    file_list: Annotated[
        Path | None,
        Default(
            None,
            "a text file with lines ``path label [start [end]]``. Relative paths start at the current directory. Start and end are\n"
            "    seconds, or frames with `file_list_frame_num`; `end` itself is not read, and negative ones count from the video's end.",
        ),
    ]
    labels: Annotated[
        int | Sequence[int] | None,
        Default(
            None,
            "one integer for each of `filenames`; an empty list: 0, 1, 2, ... If it is not given, `filenames` have no labels.",
        ),
    ]
    step: Annotated[
        int,
        Default(
            -1,
            "distance from the first frame of a clip to that of the next one. Default: ``sequence_length * stride``.",
        ),
    ]
    stride: Annotated[int, Range(1), Default(1, "distance from one frame of a clip to the next.")]
    enable_frame_num: Annotated[
        FrameNum | None,
        Default(
            "none",
            'whether to also return numbers of frames. "scalar" or True: of the first one of the clip; "sequence": of each. Needs\n'
            "    `file_list`, or `filenames` with `labels`.",
        ),
    ]
    enable_timestamps: Annotated[
        bool,
        Default(
            False,
            "whether to also return when each frame is shown, in seconds since the first one of the video. Needs the same.",
        ),
    ]
    pad_sequences: Annotated[
        bool,
        Default(
            False,
            "whether to read the incomplete clips at the end of a video, too. Missing frames are 0; their numbers and times are -1.",
        ),
    ]
    file_list_frame_num: Annotated[
        bool, Default(False, "whether start and end in `file_list` are frames, counted from 0.")
    ]
    file_list_include_preceding_frame: Annotated[
        bool,
        Default(
            False,
            "whether to round the time of the start down to a frame and that of the end up, instead of up and down.",
        ),
    ]
    channels: Annotated[int, Range(3, 3), Default(3, "3.")]
    dtype: Annotated[DType, OneOf(np.dtype(np.uint8), np.dtype(np.float32)), Default(types.UINT8, "UINT8 or FLOAT.")]
    normalized: Annotated[bool, Default(False, "whether FLOAT means 0 .. 1 instead of 0 .. 255.")]
    image_type: Annotated[types.DALIImageType, OneOf(types.RGB, types.YCbCr), Default(types.RGB, "RGB or YCbCr.")]
    apply_rotation: Annotated[
        bool | None,
        Default(
            None,
            "whether to turn frames upright, by multiples of 90 degrees, and to mirror them, as the file's display matrix says.\n"
            "    Default: no, as in DALI, with a warning of videos that have one. Not in DALI.",
        ),
    ]
    color_matrix: Annotated[
        ColorMatrix,
        Default(
            "bt601",
            'the matrix that makes RGB: "bt601", as in DALI; "stream": the one that the stream names, BT.601, BT.709 or BT.2020\n'
            "    (also FCC and SMPTE 240M), and BT.601 if it names none, as FFmpeg does. The range is the stream's in any case.\n"
            "    Not in DALI.",
        ),
    ]
    device: Annotated[  # pyright: ignore[reportIncompatibleVariableOverride]: other readers have the host only
        Literal["cpu", "gpu"] | None,
        Default(None, 'with "gpu", the outputs are moved to the accelerator. The host decodes in any case.'),
    ]


def add_video(
    op: Reader, order: Mapping[str, Any], transform: Callable[[DataNode], DataNode] = lambda frames: frames
) -> Any:
    """Adds a reader of videos to the pipeline, and converts its frames.

    Args:
      order: the operator's arguments, see `VideoArguments`; of these `dtype`, `normalized`, `device` and `name` are
        read here.
      transform: applied to the frames before they become `dtype`.

    Returns:
      The nodes of the outputs, on the requested device.
    """
    nodes = add(op, device="cpu", name=order.get("name"))
    frames, *extras = nodes if isinstance(nodes, list) else [nodes]
    on_device = order.get("device") == "gpu"
    frames = transform(frames.gpu() if on_device else frames)
    if np.dtype(order["dtype"]) == np.float32:
        frames = cast(frames, dtype=types.FLOAT)
        frames = frames * np.float32(1 / 255) if order["normalized"] else frames
    return (
        [frames, *(x.gpu() if on_device and x.metadata is None else x for x in extras)]
        if isinstance(nodes, list)
        else frames
    )


@operator_function("readers.video")
def video(*, sequence_length: Annotated[int, Range(1)], **order: Unpack[VideoArguments]) -> DataNode | list[DataNode]:
    """Reads clips of video files: sequences of frames.

    FFmpeg decodes them on the host, with all the codecs it has (package av).

    Frame n is the n-th that FFmpeg shows, also with a variable frame rate. An index of each file's frames is made when
    the pipeline is built, and one frame of each file is decoded for it; `Storage.cache_dir` keeps the indices. Clips in
    a batch that share frames are decoded together, and files stay open. Videos at URLs are fetched whole, ahead of
    their use. If only an accelerator reads the frames and all videos have one size and 4:2:0 chroma, their planes are
    sent to it, half the bytes of RGB, and it makes the pixels (with `color_matrix="stream"` only if samples have 8
    bits).

    Exactly one of `filenames`, `file_root` and `file_list` names the videos.

    Args:
      sequence_length: number of frames in a clip.
      metadata: names, each of which adds an output of Python objects after the others, for `python_function` and for
        the lists of a batch (not in DALI). "filename": the path; "frame": the number of the first frame, from 0, an
        int; "index": the number of the clip in the list; "source_info".

    Returns:
      Frames ``[sequence_length, height, width, 3]``, layout FHWC; then those that are asked for of: label ``int32[1]``
      (with `file_list`, `file_root` or `labels`), numbers of frames ``int32[1]`` or ``int32[sequence_length]``, times
      ``float64[sequence_length]``. Their source_info is the path. A batch of labels is ``[N, 1]``; ``labels[:, 0]`` is
      ``[N]``.

    Raises:
      ImportError: when the pipeline is built, PyAV (``pip install "jaxdali[video]"``) is missing.
      ValueError, TypeError: arguments that contradict each other or are out of range.
      RuntimeError: when the pipeline is built, no video can be read or none is long enough, or `file_list` asks for
        frames that a video does not have. A video that can't be read or decoded fails when its batch runs; the error
        names file, frame and time. That includes a video whose clips are larger than `storage` allows (1 GiB unless it
        says otherwise), or whose frames have more than 178,956,970 pixels.

    Differs from DALI: also runs on the CPU; all codecs, pixel formats and frame rates that FFmpeg decodes;
    `random_shuffle` gives another order. As in DALI, colours are converted by BT.601, in the video's range, whatever
    matrix the file names, unless `color_matrix` says otherwise. HDR (PQ, HLG) is not mapped to SDR; a warning says so.

    Example:
      >>> clips = fn.readers.video(filenames=["a.mp4", "b.mkv"], sequence_length=16, stride=2, random_shuffle=True)
    """
    return add_video(ReadVideo(sequence_length=sequence_length, **ReadVideo.shared(order)), order)
