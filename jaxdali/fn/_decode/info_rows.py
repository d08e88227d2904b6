"""Encoded images as operators get them, and their info rows: what the header of each says, as numbers."""

from __future__ import annotations

import numpy as np

from ... import _cpu, types
from ..._core.context import HostContext
from ..._core.ragged import Packed, pack
from ..._core.values import Spec, Value
from ..._cpu import Format, Info, Status
from .foreign import describe_unsupported
from .formats import complete_headers, failure, reason_of


def parse_headers(ctx: HostContext, encoded: Packed) -> tuple[np.ndarray, int]:
    """Parses the headers of encoded images by one native call, without the GIL.

    Args:
      encoded: N byte strings, u8, 1-D.

    Returns:
      (info rows, largest). The rows are ``i32[N, INFO_COLUMNS]`` with the columns `Info`; the region to decode is
      initially the whole image, and absent samples have zeros. `largest` is the number of pixels of the largest image,
      or -1 if some images have failed, or need more than the native decoders.
    """
    info = np.empty((len(encoded), _cpu.INFO_COLUMNS), np.int32)
    sizes = np.ascontiguousarray(encoded.shapes[:, 0])
    largest = _cpu.parse_headers(encoded.data, encoded.offsets, sizes, info, ctx.present, ctx.pool)
    if largest < 0:
        complete_headers(info, encoded.__getitem__)
    return info, largest


def refusal(data: np.ndarray, row: np.ndarray) -> str:
    """The reason why an encoded image was refused when its header was parsed. `row` is its info row."""
    code = int(row[Info.STATUS])
    reason = describe_unsupported(data) if code == Status.UNKNOWN_FORMAT else reason_of(data, row)
    return failure(row[Info.FORMAT], code, reason)


def row_of_pixels(kind: Format, height: int, width: int, channels: int) -> np.ndarray:
    """The info row of an image that the host pass has decoded, with 8 bits and upright."""
    row = np.zeros(_cpu.INFO_COLUMNS, np.int32)
    size = {Info.HEIGHT: height, Info.WIDTH: width, Info.REGION_H: height, Info.REGION_W: width}
    values = {
        **size,
        Info.FORMAT: kind,
        Info.CHANNELS: channels,
        Info.DEPTH: 8,
        Info.ORIENTATION: 1,
        Info.ORIENTATION_AT: -1,  # there is no place in a file
    }
    row[list(values)] = list(values.values())
    return row


def output_shapes(info: np.ndarray, output_type: types.DALIImageType, adjust_orientation: bool) -> np.ndarray:
    """Shapes ``i64[N, 3]`` of the decoded images."""
    shapes = np.empty((len(info), 3), np.int64)
    _cpu.region_shapes(info, adjust_orientation, num_channels(output_type) or 0, shapes)
    return shapes


def num_channels(output_type: types.DALIImageType) -> int | None:
    """The number of channels of a decoded image; None: as in the file."""
    return {types.GRAY: 1, types.ANY_DATA: None}.get(output_type, 3)


def check_encoded(encoded: Spec):
    """Raises when an input can't be encoded images, or sequences of them."""
    if encoded.dtype != np.uint8 or (encoded.ndim != 1 and not is_sequence(encoded)):
        raise TypeError(
            "the input must be encoded images, 1-D uint8 (a file's bytes), or sequences of them, 2-D uint8 of a layout that begins with F; "
            f"got {encoded.ndim}-D {encoded.dtype}{f' of layout {encoded.layout}' if encoded.layout else ''}"
            f"{'; these are pixels, which need no decoder' if encoded.ndim > 2 else ''}"
        )


def is_sequence(encoded: Spec) -> bool:
    """Whether a sample is a sequence of encoded images, a row of bytes for each. A row may be longer than its file."""
    return encoded.ndim == 2 and encoded.layout.startswith("F")


def packed(ctx: HostContext, encoded: Value) -> Packed:
    """A host value of encoded images as a packed batch."""
    if isinstance(encoded.data, Packed):
        return encoded.data
    assert encoded.data is not None
    return pack(list(encoded.data), ctx.S, ctx.empty)
