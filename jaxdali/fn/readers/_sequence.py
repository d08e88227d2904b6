"""readers.sequence: videos whose frames are files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal, Unpack

import numpy as np

from ... import types
from ..._core.declaration import OneOf, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._core.redaction import redacted
from ..._core.values import Spec
from ..._data.directories import in_directories
from ..._data.files import Files, Path, matcher
from ..._data.records import Records
from ..._data.storage import Store
from .._decode.decode import DecodeImage
from .._decode.decoded_arrays import ArrayDecoder
from .._decode.formats import EXTENSIONS, DecodeError
from .._decode.info_rows import num_channels
from ..decoders._decoder import MAX_PIXELS
from ._file import FileArguments
from ._reader import Reader

_COLOURS = (types.RGB, types.BGR, types.GRAY)


class _Clips(Records):
    """Sequences of frames, each frame a file.

    The files of all videos are one list. `_first` has the number of each sequence's first frame in it, and `_frames`
    the distance of a sequence's frames from the first.
    """

    def __init__(self, op: ReadSequence):
        """Lists the frames and the sequences, and makes the decoder of frames.

        Attributes of `Records` are set here: `specs` of the output, `stored`, the files of the frames, `doubts`, warnings,
        and `digest`, by which checkpoints recognize the list.
        """
        store = Store(op.storage)
        root, sizes = op.file_root or "", None
        if op.files:
            streams = [[os.fsencode(os.fspath(store.named(f))) for f in stream] for stream in op.files]
        else:
            images = matcher([f"*{x}" for extensions in EXTENSIONS.values() for x in extensions], case_sensitive=False)
            listing = in_directories(root, store, lambda name: True, is_sample=images)
            streams, sizes = listing.names, listing.sizes
            self.doubts = listing.doubts(
                dict.fromkeys(("folders", "system_files", "deeper"), "files= names the frames"), labels=False
            )
        self.stored = self._files = Files(root, [name for stream in streams for name in stream], store, sizes)
        span = (op.sequence_length - 1) * op.stride + 1  # from the first frame of a sequence to its last
        # The numbers of the first frames of all sequences, in the list of all frames.
        first, begin = [], 0
        for stream in streams:
            first += range(begin, begin + len(stream) - span + 1, op.step)
            begin += len(stream)
        if not first:
            place = "list in files" if op.files else f"sub-directory of file_root {op.file_root}"
            raise RuntimeError(f"no {place} has {span} files, which one sequence needs")
        self._first = np.array(first, np.int64)
        # The distance of each frame of a sequence from the first.
        self._frames = np.arange(op.sequence_length, dtype=np.int64) * op.stride
        # `on_error` is only for the advice in messages of the decoder: this reader replaces whole sequences.
        images = DecodeImage(
            output_type=types.GRAY if op.palette == "index" else op.image_type,
            dtype=np.dtype(np.uint8),
            adjust_orientation=True,
            use_fast_idct=False,
            on_error="raise" if op.on_error == "raise" else "replace",
            palette=op.palette,
            truncated=op.truncated,
        )
        self._decoder = ArrayDecoder(images, MAX_PIXELS)
        self.specs = (
            Spec(
                np.dtype(np.uint8), 4, None, "FHWC", (op.sequence_length, None, None, num_channels(images.output_type))
            ),
        )
        digest = self._files.digest.copy()
        videos = f" {list(map(len, streams))}" if op.files else ""
        digest.update(f"{op.sequence_length} {op.step} {op.stride}{videos}".encode())
        self.digest = digest.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self._first)

    def name(self, i: int) -> str:
        return self._files.name(int(self._first[i]))

    def full_name(self, i: int) -> str:
        return self._files.path(int(self._first[i]))

    def facts(self) -> dict[str, Callable[[int], Any]]:
        """See `Records.facts`. Credentials in URLs are hidden here; `ListSource` hides those of "filename" only."""
        frames = lambda i: [redacted(self._files.path(k)) for k in (self._first[i] + self._frames).tolist()]
        return super().facts() | {"filenames": frames}

    def ahead(self, index: np.ndarray, now: int) -> None:
        self._files.ahead((self._first[index][:, None] + self._frames).reshape(-1), now * len(self._frames))

    def read(self, i: int) -> tuple[np.ndarray, ...]:
        """See `Records.read`: the decoded frames ``u8[F, H, W, C]``, which must have one size."""
        frames = np.zeros((0, 0, 0, 0), np.uint8)
        for n, k in enumerate((self._first[i] + self._frames).tolist()):
            x = self._decoder.frame(np.frombuffer(self._files.read(k), np.uint8))
            if isinstance(x, DecodeError):
                raise ValueError(f"{self._files.path(k)}: {x}")
            if n == 0:
                if reason := self._files.store.settings.too_large(len(self._frames) * x.nbytes):
                    raise ValueError(
                        f"{self._files.path(k)}: a sequence has {len(self._frames)} frames {x.shape}: {reason}"
                    )
                frames = np.empty((len(self._frames), *x.shape), x.dtype)
            if x.shape != frames.shape[1:]:
                raise ValueError(
                    f"{self._files.path(k)}: the frame is {x.shape}, but the first of its sequence {frames.shape[1:]}"
                )
            frames[n] = x
        return (frames,)


class ReadSequence(Reader):
    """`readers.sequence`; the fields are its arguments."""

    name: ClassVar[str] = "readers.sequence"

    file_root: Path | None
    files: tuple[tuple[Path, ...], ...]
    sequence_length: int
    step: int
    stride: int
    image_type: types.DALIImageType
    palette: str
    truncated: str

    def __post_init__(self):
        super().__post_init__()
        if (self.file_root is None) == (not self.files):
            raise ArgumentError(
                f"exactly one of file_root and files must be given, got {'both' if self.files else 'none'}"
            )

    def open(self) -> _Clips:
        return _Clips(self)


@operator_function(ReadSequence)
def sequence(
    *,
    file_root: Path | None = None,
    sequence_length: Annotated[int, Range(1)],
    files: Sequence[Sequence[Path]] = (),
    step: Annotated[int, Range(1)] = 1,
    stride: Annotated[int, Range(1)] = 1,
    image_type: Annotated[types.DALIImageType, OneOf(*_COLOURS)] = types.RGB,
    palette: Literal["color", "index"] = "color",
    truncated: Literal["error", "accept"] = "error",
    **order: Unpack[FileArguments],
) -> DataNode:
    """Reads and decodes sequences of frames that are files.

    The files of a sub-directory are one video, in byte order of their names.

    Sequences stay within a video, and only complete ones are read. Exactly one of `file_root` and `files` names the
    frames.

    Differs from DALI: source_info is the path of the first frame, and `files`, `shuffle`, `on_error` and `storage` are
    not in DALI.

    Args:
      file_root: the directory whose sub-directories hold the frames, and nothing else. Deeper levels are not entered.
      files: the frames of each video in their order, as lists of paths, instead of `file_root`.
      sequence_length: number of frames in a sequence.
      step: distance from the first frame of a sequence to that of the next.
      stride: distance from one frame of a sequence to the next.
      image_type: RGB, BGR or GRAY: the channels of the frames.
      palette, truncated: as in `decoders.image`: with palette="index" the frames are the indices of their palettes, one
        channel. Not in DALI.
      metadata: names, each of which adds an output of Python objects after the others, for `python_function` and for
        the lists of a batch (not in DALI). "filename": the path of the first frame; "filenames": those of all frames;
        "index": the number in the list; "source_info".

    Returns:
      The frames, uint8 ``[sequence_length, height, width, channels]``, layout FHWC.

    Raises:
      ValueError, TypeError: arguments that are out of range.
      RuntimeError: when the pipeline is built, no sub-directory has enough frames for a sequence. A frame that is not
        an image, or that differs in size from the first of its sequence, fails when its batch runs, as does a sequence
        that is larger than `storage` allows (1 GiB unless it says otherwise).

    Example:
      >>> clips = fn.readers.sequence(file_root="frames", sequence_length=16, step=8, stride=2, random_shuffle=True)
    """
    ...
