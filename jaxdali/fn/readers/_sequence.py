"""readers.sequence: videos whose frames are files."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Unpack

import numpy as np

from ... import _cpu, types
from ..._core import ffi as _ffi
from ..._core.declaration import OneOf, Range
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._core.redaction import redacted
from ..._core.values import Spec
from ..._cpu import Format, Info
from ..._data.files import Files, Path, in_directories
from ..._data.listed import Reader, Records
from ..._data.storage import Store
from .._decode import registered
from .._decode.decode import num_channels, output_shapes
from .._decode.foreign import known_as
from ._file import FileArguments

_COLOURS = (types.RGB, types.BGR, types.GRAY)


class _Clips(Records):
    """Sequences of frames, each frame a file."""

    def __init__(self, op: ReadSequence):
        store = Store(op.storage)
        streams, sizes = in_directories(op.file_root, store, lambda name: True)
        self.stored = self._files = Files(op.file_root, [name for stream in streams for name in stream], store, sizes)
        span = (op.sequence_length - 1) * op.stride + 1
        first, begin = [], 0
        for stream in streams:
            first += range(begin, begin + len(stream) - span + 1, op.step)
            begin += len(stream)
        if not first:
            raise RuntimeError(f"no sub-directory of file_root {op.file_root} has {span} files, which one sequence needs")
        self._first = np.array(first, np.int64)
        self._frames = np.arange(op.sequence_length, dtype=np.int64) * op.stride
        self._type = types.DALIImageType(op.image_type)
        self.specs = (Spec(np.dtype(np.uint8), 4, None, "FHWC", (op.sequence_length, None, None, num_channels(self._type))),)
        digest = self._files.digest.copy()
        digest.update(f"{op.sequence_length} {op.step} {op.stride}".encode())
        self.digest = digest.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self._first)

    def name(self, i: int) -> str:
        return self._files.name(int(self._first[i]))

    def full_name(self, i: int) -> str:
        return self._files.path(int(self._first[i]))

    def facts(self) -> dict[str, Callable[[int], Any]]:
        frames = lambda i: [redacted(self._files.path(k)) for k in (self._first[i] + self._frames).tolist()]
        return super().facts() | {"filenames": frames}

    def ahead(self, index: np.ndarray, now: int) -> None:
        self._files.ahead((self._first[index][:, None] + self._frames).reshape(-1), now * len(self._frames))

    def read(self, i: int) -> tuple[np.ndarray, ...]:
        frames = []
        for k in (self._first[i] + self._frames).tolist():
            try:
                frames.append(_decoded(self._files.read(k), self._type))
            except ValueError as e:
                raise ValueError(f"{self._files.path(k)}: {e}") from e
            if frames[-1].shape != frames[0].shape:
                raise ValueError(f"{self._files.path(k)}: the frame is {frames[-1].shape}, but the first of its sequence {frames[0].shape}")
        return (np.stack(frames),)


def _decoded(data: Any, image_type: types.DALIImageType) -> np.ndarray:
    """A frame, decoded as by `decoders.image`. Raises ValueError if it is not an image."""
    encoded = np.frombuffer(data, np.uint8)
    if registered.names() and (x := registered.decoded(encoded)) is not None:
        channels = num_channels(image_type)
        if isinstance(x, registered.DecodeError):
            raise ValueError(str(x))
        if x.dtype != np.uint8 or x.ndim != 3 or x.shape[2] not in (1, channels):
            raise ValueError(f"a frame must be an 8-bit image of {channels} channels, a registered decoder gives {x.dtype}{list(x.shape)}")
        return np.broadcast_to(x, (*x.shape[:2], channels or 3))
    info = np.empty((1, _cpu.INFO_COLUMNS), np.int32)
    _cpu.parse_headers(encoded.reshape(1, -1), np.zeros(1, np.int32), np.array([encoded.size]), info)
    code = int(info[0, Info.STATUS])
    if not code and info[0, Info.FORMAT] in (Format.JPEG, Format.PNG):
        out = np.empty(output_shapes(info, image_type, True)[0], np.uint8)
        code = _cpu.decode_images([encoded], info, [out], int(image_type), True, False, _alone())[0]
        if not code:
            return out
    if code:
        raise ValueError(f"{_ffi.STATUS[code]}{known_as(encoded)}")
    return _by_pillow(encoded, image_type)


@functools.cache
def _alone() -> int:
    """A native pool without threads: the reader's threads decode clips in parallel."""
    return _cpu.pool_create(1)


def _by_pillow(encoded: np.ndarray, image_type: types.DALIImageType) -> np.ndarray:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(encoded.tobytes())) as image:
            pixels = np.asarray(image.convert("L" if image_type == types.GRAY else "RGB"))
    except (OSError, SyntaxError, Image.DecompressionBombError) as e:
        raise ValueError(str(e)) from e
    return pixels[..., None] if pixels.ndim == 2 else pixels[..., ::-1] if image_type == types.BGR else pixels


class ReadSequence(Reader):
    """`readers.sequence`; the fields are its arguments."""

    name: ClassVar[str] = "readers.sequence"

    file_root: Path
    sequence_length: int
    step: int
    stride: int
    image_type: types.DALIImageType

    def open(self) -> _Clips:
        return _Clips(self)


@operator_function(ReadSequence)
def sequence(
    *,
    file_root: Path,
    sequence_length: Annotated[int, Range(1)],
    step: Annotated[int, Range(1)] = 1,
    stride: Annotated[int, Range(1)] = 1,
    image_type: Annotated[types.DALIImageType, OneOf(*_COLOURS)] = types.RGB,
    **order: Unpack[FileArguments],
) -> DataNode:
    """Reads and decodes sequences of frames that are files. The files of a sub-directory are one video, in byte order of their names.

    Sequences stay within a video, and only complete ones are read.

    Differs from DALI: source_info is the path of the first frame, and `shuffle`, `on_error` and `storage` are not in DALI.

    Args:
      file_root: the directory whose sub-directories hold the frames, and nothing else. Deeper levels are not entered.
      sequence_length: number of frames in a sequence.
      step: distance from the first frame of a sequence to that of the next.
      stride: distance from one frame of a sequence to the next.
      image_type: RGB, BGR or GRAY: the channels of the frames.
      metadata: names, each of which adds an output of Python objects after the others, for `python_function` and for the lists of a
        batch (not in DALI). "filename": the path of the first frame; "filenames": those of all frames; "index": the number in the list;
        "source_info".

    Returns:
      The frames, uint8 ``[sequence_length, height, width, channels]``, layout FHWC.

    Raises:
      ValueError, TypeError: arguments that are out of range.
      RuntimeError: when the pipeline is built, no sub-directory has enough frames for a sequence. A frame that is not an image, or that
        differs in size from the first of its sequence, fails when its batch runs.

    Example:
      >>> clips = fn.readers.sequence(file_root="frames", sequence_length=16, step=8, stride=2, random_shuffle=True)
    """
    ...
