"""readers.video_resize: clips of video files, of another size."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Unpack

from ... import types
from ..._core.declaration import Range
from ..._core.graph import DataNode
from ..._core.operator_function import OneOrMore, PerSample, operator_function
from .._image.resize import resize
from ._video import ReadVideo, VideoArguments, add_video


class ReadResizedVideo(ReadVideo):
    """The reader of `readers.video_resize`."""

    name: ClassVar[str] = "readers.video_resize"


class VideoResizeArguments(VideoArguments, total=False):
    """The hints of both `readers.video` and `resize`."""

    minibatch_size: int | None
    temp_buffer_hint: int | None


@operator_function("readers.video_resize")
def video_resize(
    *,
    sequence_length: Annotated[int, Range(1)],
    antialias: bool = True,
    interp_type: PerSample[types.DALIInterpType] = types.INTERP_LINEAR,
    mag_filter: PerSample[types.DALIInterpType] | None = None,
    max_size: PerSample[OneOrMore[float]] | None = None,
    min_filter: PerSample[types.DALIInterpType] | None = None,
    mode: Literal["default", "stretch", "not_larger", "not_smaller"] | None = None,
    resize_longer: PerSample[float] | None = None,
    resize_shorter: PerSample[float] | None = None,
    resize_x: PerSample[float] | None = None,
    resize_y: PerSample[float] | None = None,
    roi_end: PerSample[OneOrMore[float]] | None = None,
    roi_relative: bool = False,
    roi_start: PerSample[OneOrMore[float]] | None = None,
    size: PerSample[OneOrMore[float]] | None = None,
    subpixel_scale: bool = True,
    **order: Unpack[VideoResizeArguments],
) -> DataNode | list[DataNode]:
    """Reads clips of video files, and resizes them.

    The arguments are those of `readers.video`, and those of `resize`, where they are described.

    Args:
      sequence_length: number of frames in a clip.
      antialias: see `resize`, as for all arguments that follow up to `subpixel_scale`.
      interp_type: the filter.
      mag_filter: the filter of axes that don't shrink.
      max_size: a limit of the extents.
      min_filter: the filter of axes that shrink.
      mode: what becomes of axes without a size.
      resize_longer: extent of the longer axis.
      resize_shorter: extent of the shorter axis.
      resize_x: width.
      resize_y: height.
      roi_end: end of the source region.
      roi_relative: whether the region is in units of the frame's extents.
      roi_start: start of the source region.
      size: extents: one number for both, or height and width.
      subpixel_scale: whether rounding the extents keeps the scale.
      metadata: names, each of which adds an output of Python objects after the others, for `python_function` and for
        the lists of a batch (not in DALI). "filename": the path; "frame": the number of the first frame, from 0, an
        int; "index": the number of the clip in the list; "source_info".

    Returns:
      As `readers.video`, with resized frames.

    Example:
      >>> clips = fn.readers.video_resize(filenames=["a.mp4"], sequence_length=16, resize_shorter=256)
    """

    def resize_frames(frames: DataNode) -> DataNode:
        """Passes the arguments on to `resize`."""
        return resize(
            frames,
            antialias=antialias,
            dtype=order.get("dtype"),
            interp_type=interp_type,
            mag_filter=mag_filter,
            max_size=max_size,
            min_filter=min_filter,
            mode=mode,
            resize_longer=resize_longer,
            resize_shorter=resize_shorter,
            resize_x=resize_x,
            resize_y=resize_y,
            roi_end=roi_end,
            roi_relative=roi_relative,
            roi_start=roi_start,
            size=size,
            subpixel_scale=subpixel_scale,
        )

    return add_video(
        ReadResizedVideo(sequence_length=sequence_length, **ReadResizedVideo.shared(order)), order, resize_frames
    )
