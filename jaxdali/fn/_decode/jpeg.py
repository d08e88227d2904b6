"""JPEG files to NumPy arrays, without a pipeline."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Literal, TypeAlias, overload

import numpy as np

from ... import _cpu, types
from ..._core import ffi as _ffi
from ..._core.kinds import is_foreign
from ..._core.tracebacks import boundary
from ..._cpu import Format, Info, Status
from .decode_arguments import OUTPUT_TYPES
from .info_rows import output_shapes

Encoded: TypeAlias = bytes | bytearray | memoryview | np.ndarray
Region: TypeAlias = tuple[int, int, int, int]


@overload
def decode_jpeg(
    data: Encoded,
    /,
    *,
    output_type: types.DALIImageType = types.RGB,
    region: Region | None = None,
    adjust_orientation: bool = True,
    truncated: Literal["error", "accept"] = "error",
    num_threads: int = 1,
) -> np.ndarray: ...


@overload
def decode_jpeg(
    data: Sequence[Encoded],
    /,
    *,
    output_type: types.DALIImageType = types.RGB,
    region: Region | Sequence[Region] | None = None,
    adjust_orientation: bool = True,
    truncated: Literal["error", "accept"] = "error",
    num_threads: int = 1,
) -> list[np.ndarray]: ...


@boundary
def decode_jpeg(
    data: Encoded | Sequence[Encoded],
    /,
    *,
    output_type: types.DALIImageType = types.RGB,
    region: Region | Sequence[Region] | None = None,
    adjust_orientation: bool = True,
    truncated: Literal["error", "accept"] = "error",
    num_threads: int = 1,
) -> np.ndarray | list[np.ndarray]:
    """Decodes JPEG files outside any pipeline, without holding the GIL. Not in DALI.

    The pixels equal those of `fn.decoders.image` and libjpeg-turbo bit by bit. Baseline and progressive files take half
    of libjpeg-turbo's time.

    Args:
      data: a file's bytes (bytes, bytearray, memoryview or 1-D uint8 array), or a list of these.
      output_type: RGB, BGR, GRAY, YCbCr or ANY_DATA (the channels of the file), as in `fn.decoders.image`.
      region: (y, x, height, width) of the part to decode, in pixels of the upright image; for a list of files, one
        region for all or a list of them. The pixels are the same as those cut out of the whole image; the part above is
        skipped over, and the part below is not read. None: the whole image.
      adjust_orientation: whether to apply the EXIF orientation.
      truncated: what becomes of a file that ends early, as in `fn.decoders.image`.
      num_threads: how many threads decode. They decode different files, and parts of the same file if it is baseline
        and has 0.25 MB or more.

    Returns:
      uint8 ``[height, width, channels]``, or a list of these.

    Raises:
      ValueError: a file is not JPEG, is damaged so that nothing can be decoded, ends early, or is of an unsupported
        kind; a region is empty or reaches outside the image; `output_type` or `truncated` is unknown; `num_threads` is
        below 1. The message says which file of a list.
      TypeError: `data` is not bytes.

    Example:
      >>> pixels = jaxdali.decode_jpeg(pathlib.Path("photo.jpg").read_bytes())
      >>> left, right = jaxdali.decode_jpeg([file, file], region=[(0, 0, 100, 100), (0, 100, 100, 100)], num_threads=2)
    """
    single = not isinstance(data, list | tuple)
    files = [_bytes_of(d) for d in ([data] if single else data)]
    if output_type not in OUTPUT_TYPES or is_foreign(output_type, types.DALIImageType):
        raise ValueError(
            f"output_type must be one of {', '.join(f'types.{t.name}' for t in OUTPUT_TYPES)}, got {output_type!r}"
        )
    if truncated not in ("error", "accept"):
        raise ValueError(f"truncated must be 'error' or 'accept', got {truncated!r}")
    if operator.index(num_threads) < 1:
        raise ValueError(f"num_threads must be 1 or more, got {num_threads}")

    def fail(i: int, reason: str):
        raise ValueError(f"decode_jpeg: {reason}" if single else f"decode_jpeg: file {i}: {reason}")

    # Each file is a packed batch of one for the parser: its bytes, its offset 0, and its size.
    info = np.empty((len(files), _cpu.INFO_COLUMNS), np.int32)
    for i, file in enumerate(files):
        _cpu.parse_headers(file.reshape(1, -1), np.zeros(1, np.int32), np.array([file.size]), info[i : i + 1])
        if info[i, Info.STATUS]:
            fail(i, _ffi.STATUS[int(info[i, Info.STATUS])])
        if info[i, Info.FORMAT] != Format.JPEG:
            fail(i, "the data are an image of another format than JPEG")
    info[:, Info.TRUNCATED] = truncated == "accept"
    if region is not None and files:
        windows = np.atleast_2d(np.asarray(region))
        if windows.dtype.kind != "i" or windows.shape not in ((1, 4), (len(files), 4)):
            raise ValueError(
                f"region must be (y, x, height, width), or a list of one for each of {len(files)} files, got {region}"
            )
        windows = np.broadcast_to(windows, (len(files), 4))
        extents = np.empty((len(files), 2), np.int64)
        _cpu.upright_extents(info, adjust_orientation, extents)
        start, size = (np.ascontiguousarray(x, np.float64) for x in (windows[:, :2], windows[:, 2:]))
        for i in _cpu.set_regions(info, adjust_orientation, start, size):
            fail(
                i,
                f"region {tuple(windows[i].tolist())} is empty or outside the image, {extents[i, 0]} x {extents[i, 1]} (height x width)",
            )

    out = [np.empty(shape, np.uint8) for shape in output_shapes(info, output_type, adjust_orientation).tolist()]
    # No more threads than there is work: one for each file, or several for a large one.
    pool = _cpu.pool_create(min(num_threads, sum(max(1, file.size // _cpu.BYTES_PER_THREAD) for file in files) or 1))
    try:
        codes = _cpu.decode_images(files, info, out, int(output_type), adjust_orientation, fast_idct=False, pool=pool)
    finally:
        _cpu.pool_destroy(pool)
    for i, code in enumerate(codes):
        if code == Status.TRUNCATED and truncated == "error":
            fail(i, f'{_ffi.STATUS[code]}; truncated="accept" decodes what there is')
        if code:
            fail(i, _ffi.STATUS[code])
    return out[0] if single else out


def _bytes_of(data: object) -> np.ndarray:
    """Converts a file's bytes to a 1-D uint8 array, without a copy where that is possible."""
    if isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 1:
        return np.ascontiguousarray(data)
    if not isinstance(data, bytes | bytearray | memoryview):
        actual = f"{data.ndim}-D {data.dtype} array" if isinstance(data, np.ndarray) else type(data).__name__
        raise TypeError(f"decode_jpeg: data must be a file's bytes (bytes or a 1-D uint8 array), got {actual}")
    return np.frombuffer(data, np.uint8)
