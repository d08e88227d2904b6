"""readers.video: clips of video files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Unpack

import numpy as np

from ... import types
from ..._core.building import add
from ..._core.declaration import DType, OneOf, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._data.files import Path, Paths, as_list
from ..._data.listed import Reader, StoredArguments
from ..._data.storage import Store
from .._tensor.cast import cast
from .._video.clips import ClipForm, Clips, Listed, listed, which_videos
from .._video.files import VideoIndex

FrameNum = bool | Literal["none", "scalar", "sequence"]


class ReadVideo(Reader):
    """`readers.video`; the fields are its arguments."""

    name: ClassVar[str] = "readers.video"

    filenames: Paths
    file_root: Path | None
    file_list: Path | None
    labels: int | Sequence[int] | None
    sequence_length: int
    step: int
    stride: int
    enable_frame_num: FrameNum | None
    enable_timestamps: bool
    pad_sequences: bool
    file_list_frame_num: bool
    file_list_include_preceding_frame: bool
    image_type: types.DALIImageType

    def __post_init__(self):
        super().__post_init__()
        which = which_videos(self.filenames, self.file_root, self.file_list, self.labels)
        if which == "file_root" or (which == "filenames" and self.labels is None):
            for name, value in (("enable_frame_num", self.frame_num != "none"), ("enable_timestamps", self.enable_timestamps)):
                if value:
                    raise ArgumentError(f"{name} needs file_list, or filenames with labels")

    @property
    def frame_num(self) -> str:
        """Which numbers of frames are an output."""
        return frame_num_of(self.enable_frame_num)

    @property
    def form(self) -> ClipForm:
        """What is read of each clip."""
        return ClipForm(
            length=self.sequence_length,
            stride=self.stride,
            uniform=False,
            pad_mode="constant",
            fill=(0,),
            ycbcr=self.image_type == types.YCbCr,
            labels=self.labels is not None or not self.filenames,
            frame_num=self.frame_num,
            timestamps=self.enable_timestamps,
            onward=not self.random_shuffle and self.shuffle is None,
        )

    @property
    def num_outputs(self) -> int:
        return self.form.num_outputs

    def open(self) -> Clips:
        store = Store(self.storage)
        labels = None if self.labels is None else as_list(self.labels)
        root, entries = listed(self.name, store, as_list(self.filenames), labels, self.file_root, self.file_list)
        return Clips(self.name, root, entries, store, self.form, self._clips)

    def _clips(self, index: VideoIndex, entry: Listed, path: str) -> list[tuple[int, int, int]]:
        """First frame, and the part of the video that it is in, of each clip."""
        begin, end = self._part(index, entry, path)
        step = self.step if self.step > 0 else self.sequence_length * self.stride
        last = end if self.pad_sequences else end - (self.sequence_length - 1) * self.stride
        return [(first, begin, end) for first in range(begin, last, step)]

    def _part(self, index: VideoIndex, entry: Listed, path: str) -> tuple[int, int]:
        """The frames ``begin .. end - 1`` that a list asks for, as DALI rounds them."""
        count = len(index)
        if not entry.start and not entry.end:
            return 0, count
        if self.file_list_frame_num:
            begin, end = int(entry.start), int(entry.end)
            begin, end = begin if entry.start >= 0 else count + begin, end if entry.end > 0 else count + end
        else:
            up, down = math.ceil, math.floor
            first, last = (down, up) if self.file_list_include_preceding_frame else (up, down)
            begin, end = first(index.place(entry.start)), last(index.place(entry.end))
            begin, end = begin if entry.start >= 0 else count + begin, end if entry.end > 0 else count + end
        if not 0 <= begin <= end <= count:
            raise RuntimeError(f"{path} has {count} frames, and file_list asks for frames {begin} to {end - 1}")
        return begin, end


def frame_num_of(value: FrameNum | None) -> str:
    """The form of `enable_frame_num` with a name."""
    return value if isinstance(value, str) else "scalar" if value else "none"


class VideoArguments(StoredArguments, total=False):
    """DALI's hints to `video`. Variable frame rates need no check: frames are told apart by their time stamps."""

    additional_decode_surfaces: int | None
    dont_use_mmap: bool | None
    skip_vfr_check: bool | None


def add_video(op: Reader, dtype: Any, normalized: bool, device: str | None, name: str | None) -> DataNode | list[DataNode]:
    """The nodes of a reader of videos: the frames converted to `dtype`, and everything on `device`."""
    nodes = add(op, device="cpu", name=name)
    frames, *others = nodes if isinstance(nodes, list) else [nodes]
    frames = frames.gpu() if device == "gpu" else frames
    if np.dtype(dtype) == np.float32:
        frames = cast(frames, dtype=types.FLOAT)
        frames = frames * np.float32(1 / 255) if normalized else frames
    found = [frames, *(x.gpu() if device == "gpu" else x for x in others)]
    return found if isinstance(nodes, list) else frames


@operator_function("readers.video")
def video(
    *,
    filenames: Paths = (),
    file_root: Path | None = None,
    file_list: Path | None = None,
    labels: int | Sequence[int] | None = None,
    sequence_length: Annotated[int, Range(1)],
    step: int = -1,
    stride: Annotated[int, Range(1)] = 1,
    enable_frame_num: FrameNum | None = "none",
    enable_timestamps: bool = False,
    pad_sequences: bool = False,
    file_list_frame_num: bool = False,
    file_list_include_preceding_frame: bool = False,
    channels: Annotated[int, Range(3, 3)] = 3,
    dtype: Annotated[DType, OneOf(np.dtype(np.uint8), np.dtype(np.float32))] = types.UINT8,
    normalized: bool = False,
    image_type: Annotated[types.DALIImageType, OneOf(types.RGB, types.YCbCr)] = types.RGB,
    device: Literal["cpu", "gpu"] | None = None,
    **order: Unpack[VideoArguments],  # pyright: ignore[reportGeneralTypeIssues]: this reader's `device` is another
) -> DataNode | list[DataNode]:
    """Reads clips of video files: sequences of frames. FFmpeg decodes them on the host, with all the codecs it has (package av).

    Frame n is the n-th that FFmpeg shows, also with a variable frame rate. An index of each file's frames is made when the pipeline is
    built, without decoding; `Storage.cache_dir` keeps the indices. Clips in a batch that share frames are decoded together, and files stay
    open.

    Exactly one of `filenames`, `file_root` and `file_list` names the videos.

    Args:
      filenames: paths of the videos.
      file_root: a directory whose sub-directories hold the videos. Sub-directories are numbered from 0 in byte order of their names, which
        are the labels. The files come in byte order of their paths.
      file_list: a text file with lines ``path label [start [end]]``. Relative paths start at the current directory. Start and end are
        seconds, or frames with `file_list_frame_num`; `end` itself is not read, and negative ones count from the end of the video.
      labels: one integer for each of `filenames`; an empty list: 0, 1, 2, ... Without it, filenames have no labels.
      sequence_length: number of frames in a clip.
      step: distance from the first frame of a clip to that of the next one. Default: ``sequence_length * stride``.
      stride: distance from one frame of a clip to the next.
      enable_frame_num: whether to also return numbers of frames. "scalar" or True: of the clip's first one; "sequence": of each. Needs
        `file_list`, or `filenames` with `labels`.
      enable_timestamps: whether to also return when each frame is shown, in seconds since the first one of the video. Needs the same.
      pad_sequences: whether to read the incomplete clips at the end of a video, too. Missing frames are 0; their numbers and times are -1.
      file_list_frame_num: whether start and end in `file_list` are frames, counted from 0.
      file_list_include_preceding_frame: whether to round the time of the start down and that of the end up to frames, instead of up and
        down.
      channels: 3.
      dtype: UINT8 or FLOAT.
      normalized: whether FLOAT means 0 .. 1 instead of 0 .. 255.
      image_type: RGB or YCbCr.
      device: with "gpu", the outputs are moved to the accelerator. The host decodes in any case.

    Returns:
      Frames ``[sequence_length, height, width, 3]``, layout FHWC; then those that are asked for of: label ``int32[1]`` (with `file_list`,
      `file_root` or `labels`), numbers of frames ``int32[1]`` or ``int32[sequence_length]``, times ``float64[sequence_length]``. Their
      source_info is the path.

    Raises:
      ImportError: when the pipeline is built, PyAV (``pip install "jaxdali[video]"``) is missing.
      ValueError, TypeError: arguments that contradict each other or are out of range.
      RuntimeError: when the pipeline is built, no video can be read or none is long enough, or `file_list` asks for frames that a video
        does not have. A video that can't be read or decoded fails when its batch runs; the error names file, frame and time.

    Differs from DALI: also runs on the CPU; all codecs, pixel formats and frame rates that FFmpeg decodes; `random_shuffle` gives another
    order. As in DALI, colours are converted by BT.601, in the video's range, whatever matrix the file names.

    Example:
      >>> clips = fn.readers.video(filenames=["a.mp4", "b.mkv"], sequence_length=16, stride=2, random_shuffle=True)
    """
    op = ReadVideo(
        filenames=filenames,
        file_root=file_root,
        file_list=file_list,
        labels=labels,
        sequence_length=sequence_length,
        step=step,
        stride=stride,
        enable_frame_num=enable_frame_num,
        enable_timestamps=enable_timestamps,
        pad_sequences=pad_sequences,
        file_list_frame_num=file_list_frame_num,
        file_list_include_preceding_frame=file_list_include_preceding_frame,
        image_type=image_type,
        **ReadVideo.shared(order),
    )
    return add_video(op, dtype, normalized, device, order.get("name"))
