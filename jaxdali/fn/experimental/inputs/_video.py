"""experimental.inputs.video: a long video that is fed, and decoded batch by batch. `fn/_video` decodes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Unpack

import numpy as np

from ...._core.building import add, warn
from ...._core.context import HostContext
from ...._core.declaration import Range
from ...._core.errors import ArgumentError
from ...._core.graph import DataNode
from ...._core.operator_function import Hints, operator_function
from ...._data.source import Source
from ...._data.storage import Storage
from ..._source.external_sources import ExternalSource, FedSource
from ..._video.indexing import make_index
from ..._video.open_videos import OpenVideos, read_frames
from ..._video.pixels import PixelForm, doubts_about
from ..._video.planes import ColorMatrix
from ..._video.video_file import package
from ..._video.video_index import VideoIndex

NAME = "experimental.inputs.video"


class VideoInput(ExternalSource):
    """`experimental.inputs.video`: an external source of which the data are encoded videos."""

    name: ClassVar[str] = NAME

    sequence_length: int
    pads: bool
    apply_rotation: bool | None
    color_matrix: ColorMatrix

    def make_source(self, ops: Sequence[VideoInput], seed: int) -> Source:
        package(NAME)
        return _Videos(ops)


class _Video:
    """A video that was fed.

    Attributes:
      content: the bytes of the file.
      next_frame: the number of the frame that comes next.
      decoders: the video's decoder, which stays open between batches.
    """

    def __init__(self, content: bytes):
        self.content, self.next_frame = content, 0
        self.index: VideoIndex = make_index(content)
        self.decoders = OpenVideos(max_open=1)


class _Videos(FedSource):
    """The sequences of the videos that were fed, in order. The queues have a `_Video` in place of a batch."""

    def __init__(self, ops: Sequence[VideoInput]):
        super().__init__(ops)
        op = ops[0]  # those of the other shards have the same arguments
        self._length, self._pads = op.sequence_length, op.pads
        self._apply_rotation = op.apply_rotation
        self._form = PixelForm(upright=bool(self._apply_rotation), color_matrix=op.color_matrix)
        self._warned: set[str] = set()  # the subjects of warnings so far
        self._max_sequences = 1  # of a batch: the batch size, known when the first batch is read

    def feed(self, data: Any, layout: str | None = None, shard: int = 0) -> None:
        """Appends a video: an array ``uint8[bytes]``, or a list or an array of one."""
        content = (
            data
            if isinstance(data, (bytes, bytearray, memoryview))
            else np.asarray(data[0] if isinstance(data, (list, tuple)) else data)
        )
        content = np.frombuffer(content, np.uint8) if not isinstance(content, np.ndarray) else content
        if (isinstance(data, (list, tuple)) and len(data) != 1) or (content.ndim == 2 and len(content) != 1):
            raise ArgumentError(f"{NAME}: one video at a time must be fed, got {len(data)}")
        content = content[0] if content.ndim == 2 else content
        if content.ndim != 1 or content.dtype != np.uint8:
            raise TypeError(f"{NAME}: the contents of a video must be 1-D uint8, got {content.ndim}-D {content.dtype}")
        try:
            video = _Video(content.tobytes())
        except ValueError as e:
            raise ArgumentError(f"{NAME}: the video can't be read: {e}") from None
        height, width = video.index.size
        if reason := Storage().too_large(self._length * height * width * 3):
            raise ArgumentError(f"{NAME}: {self._length} frames of {height}x{width} pixels are too many: {reason}")
        for subject, text in doubts_about([video.index], self._apply_rotation, counts=False).items():
            if subject not in self._warned:
                self._warned.add(subject)
                warn(f"{NAME}: {text}")
        with self._changed:
            self._queues[shard].append(video)
            self._changed.notify_all()

    @property
    def available(self) -> int:
        """The number of batches that the videos in the queues make, for every shard."""
        frames = self._max_sequences * self._length
        return min(sum(-(-(len(v.index) - v.next_frame) // frames) for v in list(queue)) for queue in self._queues)

    def read(self, ctx: HostContext, cursors: Sequence[Any]):
        """See `Source.read`. Notes the batch size for `available` and `_next`."""
        self._max_sequences = ctx.B
        return super().read(ctx, cursors)

    def _next(self, shard: int, keep: bool) -> list[Any]:
        """Decodes the next sequences of the first video in the queue, as many as the batch has.

        Returns the only output, a list of sequences ``u8[frames, H, W, 3]``. `keep` is not used: specs are known, so
        that no batch is read for them.
        """
        queue = self._queues[shard]
        with self._changed:
            if self._op.blocking:
                self._changed.wait_for(lambda: queue or self._closed)
            if not queue:
                raise IndexError(f"{NAME}: there is no video left; call feed_input before this run")
            video: _Video = queue[0]
        frames = range(video.next_frame, min(video.next_frame + self._max_sequences * self._length, len(video.index)))
        shape = (self._length, *video.index.extents(self._form.upright), 3)
        clips = [np.empty(shape, np.uint8) for _ in range(-(-len(frames) // self._length))]
        # The place of each frame: one array of its sequence.
        places = {f: [clips[k // self._length][k % self._length]] for k, f in enumerate(frames)}
        # The position moves before decoding, so that a frame that fails is not decoded again.
        with self._changed:
            video.next_frame = frames.stop
            if video.next_frame >= len(video.index):
                queue.popleft()
        try:
            read_frames(
                video.decoders,
                0,  # the key: `decoders` is for this video alone
                lambda: video.content,
                video.index,
                frames,
                places.__getitem__,
                self._form,
                onward=True,
            )
        except ValueError as e:
            raise RuntimeError(f"{NAME}: {e}") from None
        if video.next_frame >= len(video.index):
            video.decoders.close()
        if remainder := len(frames) % self._length:
            clips[-1][remainder:] = 0
            clips[-1] = clips[-1] if self._pads else clips[-1][:remainder]
        return [clips]


class VideoInputHints(Hints, total=False):
    """DALI's hints to `experimental.inputs.video`."""

    affine: bool | None
    no_copy: bool | None


@operator_function(NAME)
def video(
    *,
    sequence_length: Annotated[int, Range(1)],
    last_sequence_policy: Literal["partial", "pad"] = "partial",
    blocking: bool = False,
    apply_rotation: bool | None = None,
    color_matrix: ColorMatrix = "bt601",
    device: Literal["cpu", "mixed", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[VideoInputHints],
) -> DataNode:
    """Decodes videos that are fed with `Pipeline.feed_input`, batch by batch.

    For long videos, which are too large when they are decoded whole.

    Each call of `feed_input` gives one video, an array ``uint8[1, bytes]``. Each run of the pipeline returns the next
    sequences of it, as many as the batch size; the last batch of a video may have fewer. Then the next video follows.
    FFmpeg decodes on the host (package av).

    Args:
      sequence_length: number of frames in a sequence.
      last_sequence_policy: what becomes of the incomplete sequence at the end of a video. "partial": it is shorter;
        "pad": the missing frames are 0.
      blocking: whether to wait for a video instead of raising IndexError if there is none.
      apply_rotation: whether to turn frames upright, by multiples of 90 degrees, and to mirror them, as the file's
        display matrix says. Default: no, as in DALI, with a warning of videos that have one. Not in DALI.
      color_matrix: the matrix that makes RGB: "bt601", as in DALI; "stream": the one that the stream names, see
        `decoders.video`.
      device: with "mixed" or "gpu", the result is moved to the accelerator.
      name: the name of the node, for `feed_input`.

    Returns:
      Frames ``uint8[sequence_length, height, width, 3]`` in RGB, layout FHWC.

    Raises:
      ImportError: when the pipeline is built, PyAV (``pip install "jaxdali[video]"``) is missing.
      ValueError, TypeError: from `feed_input`, what is fed is not one video.
      RuntimeError: when a batch is made, a frame can't be decoded; the error says which.

    Example:
      >>> clips = fn.experimental.inputs.video(name="video", sequence_length=16)
    """
    op = VideoInput(
        feeder=None,
        arguments=0,
        outputs=None,
        metadata=None,
        shapes=((None, None, None, 3),),
        cycle="no",
        batch=True,
        batch_info=False,
        parallel=False,
        dtypes=(np.dtype(np.uint8),),
        ndims=(4,),
        layouts=("FHWC",),
        no_copy=False,
        repeat_last=False,
        blocking=blocking,
        sequence_length=sequence_length,
        pads=last_sequence_policy == "pad",
        apply_rotation=apply_rotation,
        color_matrix=color_matrix,
    )
    node = add(op, device="cpu", name=name)
    return node.gpu() if device in ("mixed", "gpu") else node
