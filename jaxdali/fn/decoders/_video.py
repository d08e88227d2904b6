"""decoders.video: frames from the contents of video files. `fn/_video` indexes and decodes them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal, Unpack

import numpy as np

from ..._core.arguments import Arguments, Values
from ..._core.building import add, as_node, is_node
from ..._core.context import BuildContext, HostContext
from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator, Operator
from ..._core.operator_function import Hints, Input, OneOrMore, PerSample, operator_function
from ..._core.ragged import Packed, plan_offsets
from ..._core.system import thread_pool
from ..._core.values import Spec, Value
from ..._cpu import Status
from ..._data.files import as_list
from ..._data.storage import Storage
from .._decode.foreign import path_advice
from .._tensor.copy import copy_to
from .._video.clips import PadMode, pad_frames
from .._video.indexing import make_index
from .._video.open_videos import read_frames
from .._video.pixels import PixelForm, Showing, doubts_about
from .._video.planes import ColorMatrix
from .._video.video_file import package
from .._video.video_index import VideoIndex
from ..readers._reader import storage_of

_RANGE = ("start_frame", "end_frame", "sequence_length", "stride")


@functools.lru_cache(maxsize=8)
def _threads(num_threads: int) -> ThreadPoolExecutor:
    return thread_pool(num_threads, "jaxdali-video")


class DecodeVideo(HostOperator):
    """Decodes the requested frames of each file."""

    name = "decoders.video"
    pad_mode: PadMode
    fill_value: int | Sequence[int]
    apply_rotation: bool | None
    color_matrix: ColorMatrix
    storage: Storage

    def __post_init__(self):
        """Raises ArgumentError if arguments contradict each other."""
        if "frames" in self.args and (range_arguments := [n for n in _RANGE if n in self.args]):
            raise ArgumentError(f"frames and {range_arguments[0]} can't be given together; pass one of them")
        if "sequence_length" in self.args and "end_frame" in self.args:
            raise ArgumentError("sequence_length and end_frame can't be given together; pass one of them")
        if len(as_list(self.fill_value)) not in (1, 3):
            raise ArgumentError(
                f"fill_value must be one number, or one for each of the 3 channels, got {list(as_list(self.fill_value))}"
            )

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        package(self.name)
        return self

    def infer(self, data: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        if data.ndim != 1 or data.dtype != np.uint8:
            raise TypeError(f"the input must be encoded files, 1-D uint8, got {data.ndim}-D {data.dtype}")
        return (Spec(np.dtype(np.uint8), 4, None, "FHWC", (None, None, None, 3)),)

    def run(self, ctx: HostContext, data: Value, *arguments: Value) -> tuple[Any, ...]:
        """See `HostOperator.run`. All indices are made first, which tell how large the output is."""
        values = self.arguments(ctx, arguments)
        form = PixelForm(upright=bool(self.apply_rotation), color_matrix=self.color_matrix)
        present = np.flatnonzero(ctx.present).tolist()
        contents = [data.sample(i).tobytes() if ctx.present[i] else b"" for i in range(ctx.N)]

        def plan(i: int) -> tuple[VideoIndex, np.ndarray] | str:
            """The index of a file and its requested frames, or the reason why it can't be decoded."""
            try:
                index = make_index(contents[i], decodes=form.upright)
                frames = self._frames(values, i, index)
            except (ValueError, OSError) as e:
                return path_advice(contents[i]) or str(e)
            return index, frames

        parallel_map = self._map(ctx, present)
        plans = dict(zip(present, parallel_map(plan, present)))
        shapes = np.zeros((ctx.N, 4), np.int64)
        for i, planned in plans.items():
            if isinstance(planned, str):
                ctx.fail(i, Status.RECORD, planned)
            else:
                index, frames = planned
                shapes[i] = len(frames), *index.extents(form.upright), 3
        offsets, num_bytes = plan_offsets(shapes, ctx.S)
        packed = Packed(ctx.empty(num_bytes, np.uint8), offsets, shapes)

        def decode(i: int) -> Showing | str | None:
            """Decodes the frames of a file into `packed`.

            Returns how they are to be shown, the reason if decoding fails, or None if no frame is decoded.
            """
            planned = plans[i]
            if isinstance(planned, str):
                return None
            index, frames = planned
            out, places = packed[i], dict[int, list[np.ndarray]]()
            for k, frame in enumerate(frames.tolist()):
                if frame < 0:
                    out[k] = as_list(self.fill_value)
                else:
                    places.setdefault(frame, []).append(out[k])
            try:
                # None: each file is decoded once, so that its decoder need not stay open.
                if places:
                    return read_frames(None, i, lambda: contents[i], index, sorted(places), places.__getitem__, form)
            except (ValueError, OSError) as e:
                return str(e)
            return None

        showings = []
        for i, result in zip(present, parallel_map(decode, present)):
            if isinstance(result, str):
                ctx.fail(i, Status.RECORD, result)
            elif result is not None:
                showings.append(result)
        for subject, text in doubts_about(showings, self.apply_rotation, counts=False).items():
            ctx.warn(subject, text)
        return (packed,)

    def _map(self, ctx: HostContext, present: Sequence[int]) -> Callable[..., Any]:
        """`map` for the present samples, which runs in threads if there are several."""
        return map if ctx.num_threads == 1 or len(present) < 2 else _threads(ctx.num_threads).map

    def _frames(self, values: Values, i: int, index: VideoIndex) -> np.ndarray:
        """The numbers of the requested frames of sample `i`; -1 for padding.

        Args:
          values: the arguments.
          index: the index of the video.

        Raises:
          ValueError: the video does not have these frames, or they are too large.
        """
        count, has_padding = len(index), self.pad_mode not in ("none", "")

        def check_size(length: int):
            """Raises ValueError if so many frames are too large."""
            if reason := self.storage.too_large(length * index.size[0] * index.size[1] * 3):
                raise ValueError(f"it has {length} frames of {index.size[0]}x{index.size[1]} pixels: {reason}")

        if "frames" in values:
            frames = np.atleast_1d(values["frames"][i]).astype(np.int64)
            check_size(len(frames))
        else:
            start, stride = (
                int(values[n][i]) if n in values else default for n, default in (("start_frame", 0), ("stride", 1))
            )
            if start >= count:
                raise ValueError(f"start_frame is {start}, and the video has {count} frames")
            if stride < 1:
                raise ValueError(f"stride must be at least 1, got {stride}")
            # The number of frames up to the end of the video; numbers of frames are rounded up.
            available = -(-(count - start) // stride)
            if "sequence_length" in values:
                length = int(values["sequence_length"][i])
                if length < 1:
                    raise ValueError(f"sequence_length must be at least 1, got {length}")
                length = length if has_padding else min(length, available)
            elif "end_frame" in values:
                end = int(values["end_frame"][i])
                if end <= start:
                    raise ValueError(f"end_frame must be above start_frame, got {end} and {start}")
                length = -(-(end - start) // stride)
                length = length if has_padding else min(length, available)
            else:
                length = available
            check_size(length)
            frames = start + np.arange(length) * stride
        if not has_padding and len(frames) and not (frames.min() >= 0 and frames.max() < count):
            outside = frames[(frames < 0) | (frames >= count)][0]
            raise ValueError(
                f"frame {outside} is requested, but the video has {count} frames; pad_mode selects how to fill such frames"
            )
        return pad_frames(frames, 0, count, self.pad_mode)


class VideoDecoderHints(Hints, total=False):
    """DALI's hints to `decoders.video`."""

    affine: bool | None
    build_index: bool | None


@operator_function("decoders.video")
def video(
    input: Input,
    /,
    *,
    start_frame: PerSample[int] | None = None,
    end_frame: PerSample[int] | None = None,
    sequence_length: Annotated[PerSample[int] | None, Range(1)] = None,
    stride: Annotated[PerSample[int] | None, Range(1)] = None,
    frames: PerSample[OneOrMore[int]] | None = None,
    pad_mode: PadMode = "constant",
    fill_value: Annotated[int | Sequence[int], Range(0, 255)] = 0,
    apply_rotation: bool | None = None,
    color_matrix: ColorMatrix = "bt601",
    device: Literal["cpu", "mixed", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[VideoDecoderHints],
) -> DataNode:
    """Decodes video files, or some frames of each. FFmpeg decodes on the host, with all the codecs it has (package av).

    Frame n is the n-th that FFmpeg shows. Arguments marked * may be DataNodes with a value per sample.

    Args:
      input: the files, 1-D uint8.
      start_frame: * the first frame. Default: 0. A negative one begins with padding.
      end_frame: * the frame after the last one. Default: the video's end.
      sequence_length: * number of frames, instead of `end_frame`.
      stride: * distance from one frame to the next. Default: 1.
      frames: * the numbers of frames, in any order, also repeatedly; instead of the other four.
      pad_mode: what stands for frames that the video does not have. "constant": `fill_value`; "edge" or "repeat": the
        nearest frame; "reflect_1001" or "symmetric", "reflect_101" or "reflect": the frames backwards, with or without
        the last one; "none": nothing, the sequence is shorter. A negative number, or one in `frames` that is too large,
        is then an error.
      fill_value: one number, or one for each channel.
      apply_rotation: whether to turn frames upright, by multiples of 90 degrees, and to mirror them, as the file's
        display matrix says. Default: no, as in DALI, with a warning of videos that have one. Not in DALI.
      color_matrix: the matrix that makes RGB: "bt601", as in DALI; "stream": the one that the stream names, BT.601,
        BT.709 or BT.2020 (also FCC and SMPTE 240M), and BT.601 if it names none, as FFmpeg does. The range is the
        stream's in any case. Not in DALI.
      device: with "mixed" or "gpu", the result is moved to the accelerator. The host decodes in any case.

    Returns:
      Frames ``uint8[frames, height, width, 3]`` in RGB, layout FHWC. HDR (PQ, HLG) is not mapped to SDR; a warning says
      so.

    Raises:
      TypeError: the input is not 1-D uint8.
      ImportError: when the pipeline is built, PyAV (``pip install "jaxdali[video]"``) is missing.
      SampleError: a file can't be decoded, lacks some of the frames, or has larger ones than the `Storage` of its reader
        allows (1 GiB unless it says otherwise), or of more than 178,956,970 pixels each.

    Example:
      >>> clips = fn.decoders.video(files, start_frame=fn.random.uniform(range=(0, 100), dtype=types.INT32), sequence_length=16)
    """
    encoded = as_node(input, "decoders.video")
    values = {
        "start_frame": start_frame,
        "end_frame": end_frame,
        "sequence_length": sequence_length,
        "stride": stride,
        "frames": frames,
    }
    args, nodes = Arguments.of(values, is_node)
    op = DecodeVideo(
        args=args,
        pad_mode=pad_mode,
        fill_value=fill_value,
        apply_rotation=apply_rotation,
        color_matrix=color_matrix,
        storage=storage_of(encoded),
    )
    node = add(op, copy_to(encoded, "cpu"), *nodes, name=name)
    return node.gpu() if device in ("mixed", "gpu") or encoded.device == "gpu" else node
