"""``fn.peek_image_shape``: the size of encoded images, from their headers."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Unpack

import numpy as np

from ... import types
from ..._core.context import HostContext
from ..._core.declaration import DType, OneOf
from ..._core.graph import DataNode
from ..._core.operator import HostOperator
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.ragged import Packed
from ..._core.values import Spec, Value
from ..._cpu import Format, Info, Status
from .._families.layouts import spec_of
from . import info_rows, registered
from .image_sequence import ImageSlots

DTYPES = tuple(np.dtype(t) for t in (np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64))


class PeekImageShape(HostOperator):
    """The shapes of the images that `decoders.image` would return."""

    name = "peek_image_shape"
    dtype: np.dtype
    image_type: types.DALIImageType
    adjust_orientation: bool

    takes_sequences = True

    def infer(self, encoded: Spec) -> tuple[Spec, ...]:
        info_rows.check_encoded(encoded)
        if info_rows.is_sequence(encoded):
            return (spec_of(self.dtype, (encoded.extent(0), 3), "F*"),)
        return (Spec(self.dtype, 1, (3,)),)

    def run(self, ctx: HostContext, encoded: Value) -> tuple[Any]:
        """See `HostOperator.run`: height, width and channels of each image, ``[N, 3]`` or, of sequences, a list of
        ``[F, 3]``.
        """
        slots, source = ImageSlots.of_encoded(ctx, encoded)
        shapes = self._shapes(slots.ctx, source)
        if not info_rows.is_sequence(encoded.spec):
            return (shapes,)
        shapes = shapes.reshape(ctx.N, slots.K, 3)
        if ctx.spec.shape is not None:
            return (shapes[:, : ctx.spec.shape[0]],)
        return ([x[:n] for x, n in zip(shapes, np.where(ctx.present, slots.counts, 0).tolist(), strict=True)],)

    def _shapes(self, ctx: HostContext, source: Packed) -> np.ndarray:
        """Height, width and channels of each file, ``[N, 3]``."""
        info, _ = info_rows.parse_headers(ctx, source)
        # Files that registered decoders decode have rows of zeros, so that no other error is reported for them.
        registered_shapes = dict[int, tuple[int, ...]]()
        for i in np.flatnonzero(ctx.present).tolist() if registered.names() else ():
            result = registered.decode_registered(source[i])
            if isinstance(result, np.ndarray) and result.ndim == 3:
                info[i], registered_shapes[i] = 0, result.shape
            elif isinstance(result, np.ndarray):
                info[i] = 0
                ctx.fail(i, Status.UNSUPPORTED, f"it is a volume of the shape {result.shape}")
            elif result is not None:
                info[i] = 0
                ctx.fail(i, result.code, str(result))
        for i in np.flatnonzero((info[:, Info.STATUS] != 0) & ctx.present).tolist():
            ctx.fail(i, int(info[i, Info.STATUS]), info_rows.refusal(source[i], info[i]))
        shapes = info_rows.output_shapes(info, self.image_type, self.adjust_orientation)
        if self.image_type == types.ANY_DATA:
            # `decoders.image` converts CMYK to RGB, but DALI's operator of this name returns 4 channels.
            for i in np.flatnonzero((info[:, Info.FORMAT] == Format.JPEG) & (shapes[:, 2] > 1) & ctx.present).tolist():
                shapes[i, 2] = _components(source[i].tobytes())
        for i, shape in registered_shapes.items():
            shapes[i] = shape
        return shapes.astype(self.dtype)


def _components(jpeg: bytes) -> int:
    """The number of components in a JPEG file's frame header; 3 if it is not found. The headers were parsed before.

    Markers and the frame header are those of ITU-T T.81, table B.1 and B.2.2.
    """
    offset = 2
    while offset + 10 <= len(jpeg):
        marker = jpeg[offset + 1]
        if jpeg[offset] != 0xFF or marker == 0xFF:  # fill bytes
            offset += 1
        elif marker in (0x00, 0x01) or 0xD0 <= marker <= 0xD8:  # TEM, RSTn, SOI: no segment follows
            offset += 2
        # SOFn begin a frame; DHT, JPG and DAC have numbers among theirs. Ten bytes: marker (2), length of the segment
        # (2), bits of a sample (1), height (2), width (2), number of components (1).
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return jpeg[offset + 9]
        else:
            offset += 2 + int.from_bytes(jpeg[offset + 2 : offset + 4], "big")
    return 3


@operator_function(PeekImageShape)
def peek_image_shape(
    input: Input,
    /,
    *,
    dtype: Annotated[DType, OneOf(*DTYPES)] = types.INT64,
    adjust_orientation: bool = True,
    image_type: types.DALIImageType = types.RGB,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Reads the shape that an image will have after decoding from its header.

    Args:
      input: encoded images, 1-D uint8. A host value. Sequences of encoded images (not in DALI) are 2-D uint8 with a
        layout that begins with F, a row of bytes for each, in which anything may follow the file.
      dtype: INT32, UINT32, INT64, UINT64, FLOAT or FLOAT64.
      adjust_orientation: whether the shape is that after the EXIF orientation is applied.
      image_type: as `output_type` of `decoders.image`; it determines the number of channels. With `types.ANY_DATA`,
        CMYK and YCCK JPEG files have 4 channels, as in DALI, although `decoders.image` converts them to RGB.

    Returns:
      1-D: height, width and channels; of sequences ``[F, 3]``. This is a host value, so it can be an argument of other
      operators.

    Raises:
      ValueError: an unknown `image_type`.
      TypeError: an unsupported `dtype`, or the input is not encoded images.

    Example:
      >>> shape = fn.peek_image_shape(jpegs)
    """
    ...
