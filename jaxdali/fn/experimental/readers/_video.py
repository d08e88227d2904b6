"""experimental.readers.video: clips of video files, with DALI's newer arguments. `fn/_video` decodes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Unpack

import numpy as np

from .... import types
from ...._core.building import add
from ...._core.declaration import OneOf, Range
from ...._core.errors import ArgumentError
from ...._core.graph import DataNode
from ...._core.operator_function import operator_function
from ...._data.files import Path, Paths, as_list
from ..._video.clips import ClipForm, PadMode, VideoEntry, videos_argument
from ..._video.planes import ColorMatrix
from ..._video.video_index import VideoIndex
from ...readers._video import ClipReader, FrameNum, VideoHints, frame_num_of

Rounding = Literal["start_down_end_up", "start_up_end_down", "all_up", "all_down"]


class ReadClips(ClipReader):
    """`experimental.readers.video`; the fields are its further arguments."""

    name: ClassVar[str] = "experimental.readers.video"

    pad_mode: PadMode
    fill_value: int | Sequence[int]
    file_list_format: Literal["frames", "timestamps"]
    file_list_rounding: Rounding
    file_list_include_end: bool
    uniform_sample: bool

    def __post_init__(self):
        super().__post_init__()
        # Raises ArgumentError unless exactly one of them is given, with labels that fit.
        videos_argument(self.filenames, self.file_root, self.file_list, self.labels)
        if len(as_list(self.fill_value)) not in (1, 3):
            raise ArgumentError(
                f"fill_value must be one number, or one for each of the 3 channels, got {list(as_list(self.fill_value))}"
            )

    @property
    def form(self) -> ClipForm:
        """The outputs for each clip."""
        return ClipForm(
            length=self.sequence_length,
            stride=self.stride,
            uniform=self.uniform_sample,
            pad_mode=self.pad_mode or "none",
            fill=as_list(self.fill_value),
            pixels=self.pixels,
            # `file_root` and `file_list` always give labels, `filenames` only with `labels`.
            labels=self.labels is not None or not self.filenames,
            frame_num=frame_num_of(self.enable_frame_num),
            timestamps=self.enable_timestamps,
            onward=not self.random_shuffle and self.shuffle is None,
        )

    def _clips(self, index: VideoIndex, entry: VideoEntry, path: str) -> list[tuple[int, int, int]]:
        """The clips of a video, as triples (first, begin, end): see `_video.clips.Clip`."""
        begin, end = self._part(index, entry)
        if not 0 <= begin < end:  # the part is empty, or begins before the video
            return []
        if self.uniform_sample:
            return [(begin, begin, end)]
        span = self.stride * self.sequence_length
        step = self.step if self.step > 0 else span
        # Complete clips. With padding, the frames that are left are a further clip.
        clips = [(first, begin, end) for first in range(begin, end - span + 1, step)]
        last_first = begin + len(clips) * step
        return clips if self.pad_mode in ("", "none") or last_first >= end else [*clips, (last_first, begin, end)]

    def _part(self, index: VideoIndex, entry: VideoEntry) -> tuple[int, int]:
        """The part ``begin .. end - 1`` of the video that its entry in `file_list` names."""
        count = len(index)
        if not entry.start and not entry.end:
            return 0, count
        rounding = self.file_list_rounding
        # Of start and end.
        rounds_down = rounding in ("start_down_end_up", "all_down"), rounding in ("start_up_end_down", "all_down")
        if self.file_list_format == "frames":
            positions = [x + count if x < 0 else x for x in (entry.start, entry.end)]
            begin, end = (int(np.floor(x) if is_down else np.ceil(x)) for x, is_down in zip(positions, rounds_down))
        else:
            # As DALI, in whole units of the file's time.
            ticks = [int(x / float(index.time_base)) for x in (entry.start, entry.end)]
            stamps = index.pts - index.pts[0]
            begin, end = (
                int(np.searchsorted(stamps, t, "right")) - 1 if is_down else int(np.searchsorted(stamps, t))
                for t, is_down in zip(ticks, rounds_down)
            )
        return begin, min(end, count)


@operator_function("experimental.readers.video")
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
    pad_mode: PadMode = "none",
    fill_value: Annotated[int | Sequence[int], Range(0, 255)] = 0,
    file_list_format: Literal["frames", "timestamps"] = "timestamps",
    file_list_rounding: Rounding = "start_down_end_up",
    file_list_include_end: bool = True,
    image_type: Annotated[types.DALIImageType, OneOf(types.RGB, types.YCbCr)] = types.RGB,
    uniform_sample: bool = False,
    apply_rotation: bool | None = None,
    color_matrix: ColorMatrix = "bt601",
    device: Literal["cpu", "gpu"] | None = None,
    **order: Unpack[VideoHints],  # pyright: ignore[reportGeneralTypeIssues]: this reader's `device` is another
) -> DataNode | list[DataNode]:
    """Reads clips of video files: sequences of frames. As `readers.video`, with DALI's newer arguments.

    Exactly one of `filenames`, `file_root` and `file_list` names the videos.

    Args:
      filenames: paths of the videos.
      file_root: a directory whose sub-directories hold the videos. The sub-directories, in byte order of their names,
        are the labels.
      file_list: a text file with lines ``path label [start [end]]``. Relative paths start at the current directory.
      labels: one integer for each of `filenames`. Without it, `filenames` have no labels.
      sequence_length: number of frames in a clip.
      step: distance from the first frame of a clip to that of the next one. Default: ``sequence_length * stride``.
      stride: distance from one frame of a clip to the next. A clip needs ``sequence_length * stride`` frames.
      enable_frame_num: whether to also return numbers of frames. "scalar" or True: of the clip's first one; "sequence":
        of each; -1 for padding.
      enable_timestamps: whether to also return when each frame is shown, in seconds since the first one; -1 for
        padding.
      pad_mode: what becomes of the incomplete clip at the end. "none": it is not read; "constant": missing frames have
        the value `fill_value`; "edge" or "repeat": the last frame is repeated; "reflect_1001" or "symmetric",
        "reflect_101" or "reflect": the frames come backwards, with or without the last one.
      fill_value: one number, or one for each channel.
      file_list_format: what start and end in `file_list` are: "timestamps", in seconds, or "frames", of which negative
        ones count from the end. `end` itself is not read.
      file_list_rounding: where start and end are between two frames, which one is meant.
      file_list_include_end: has no effect, as in DALI, but that there `False` makes an end behind the video's end an
        error.
      image_type: RGB or YCbCr.
      uniform_sample: whether each video gives one clip, with frames spread evenly over it. It ignores `step`, `stride`
        and `pad_mode`.
      apply_rotation: whether to turn frames upright, by multiples of 90 degrees, and to mirror them, as the file's
        display matrix says. Default: no, as in DALI, with a warning of videos that have one. Not in DALI.
      color_matrix: the matrix that makes RGB: "bt601", as in DALI, or "stream"; see `readers.video`.
      device: with "gpu", the outputs are moved to the accelerator. The host decodes in any case.
      metadata: names, each of which adds an output of Python objects after the others, for `python_function` and for
        the lists of a batch (not in DALI). "filename": the path; "frame": the number of the first frame, from 0, an
        int; "index": the number of the clip in the list; "source_info".

    Returns:
      Frames ``uint8[sequence_length, height, width, 3]``, layout FHWC; then those that are asked for of: label
      ``int32[1]``, numbers of frames ``int32[1]`` or ``int32[sequence_length]``, times ``float64[sequence_length]``.
      Their source_info is the path.

    Raises:
      ImportError: when the pipeline is built, PyAV (``pip install "jaxdali[video]"``) is missing.
      ValueError, TypeError: arguments that contradict each other or are out of range.
      RuntimeError: when the pipeline is built, no video can be read, or none is long enough. A video that can't be read
        or decoded, or whose clips are larger than `storage` allows (1 GiB unless it says otherwise), fails when its
        batch runs; the error names file, frame and time.

    Differs from DALI: all codecs and pixel formats that FFmpeg decodes; YCbCr also works on the CPU; a time after the
    video's last frame means its end, where DALI reads nothing; `random_shuffle` gives another order.

    Example:
      >>> clips, labels = fn.experimental.readers.video(file_root="videos", sequence_length=8, uniform_sample=True)
    """
    op = ReadClips(
        filenames=filenames,
        file_root=file_root,
        file_list=file_list,
        labels=labels,
        sequence_length=sequence_length,
        step=step,
        stride=stride,
        enable_frame_num=enable_frame_num,
        enable_timestamps=enable_timestamps,
        pad_mode=pad_mode,
        fill_value=fill_value,
        file_list_format=file_list_format,
        file_list_rounding=file_list_rounding,
        file_list_include_end=file_list_include_end,
        image_type=image_type,
        apply_rotation=apply_rotation,
        color_matrix=color_matrix,
        uniform_sample=uniform_sample,
        **ReadClips.shared(order),
    )
    nodes = add(op, device="cpu", name=order.get("name"))
    if device != "gpu":
        return nodes
    return [x.gpu() if x.metadata is None else x for x in nodes] if isinstance(nodes, list) else nodes.gpu()
