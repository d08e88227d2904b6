"""``fn.peek_image_shape``: the size of encoded images, from their headers."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ... import types
from ..._core.context import HostContext
from ..._core.declaration import DType, OneOf
from ..._core.graph import DataNode
from ..._core.operator import HostOperator
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Info
from . import decode as _decode

DTYPES = tuple(np.dtype(t) for t in (np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64))


class PeekImageShape(HostOperator):
    """Shapes that `decoders.image` would give."""

    name = "peek_image_shape"
    dtype: np.dtype
    image_type: types.DALIImageType
    adjust_orientation: bool

    def infer(self, encoded: Spec) -> tuple[Spec, ...]:
        _decode.check_encoded(encoded)
        return (Spec(self.dtype, 1, (3,)),)

    def run(self, ctx: HostContext, encoded: Value) -> tuple[np.ndarray]:
        source = _decode.packed(ctx, encoded)
        info = _decode.parse_headers(source)
        for i in np.flatnonzero((info[:, Info.STATUS] != 0) & ctx.present).tolist():
            ctx.fail(i, int(info[i, Info.STATUS]), _decode.refusal(source, info, i))
        return (_decode.output_shapes(info, self.image_type, self.adjust_orientation).astype(self.dtype),)


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
    """The shape an image will have after decoding; only its header is read.

    Args:
      input: encoded images, 1-D uint8. A host value.
      dtype: INT32, UINT32, INT64, UINT64, FLOAT or FLOAT64.
      adjust_orientation: the shape after the EXIF orientation is applied.
      image_type: as `output_type` of `decoders.image`; decides the number of channels.
      device: "cpu".
      name: name of the node.

    Returns:
      1-D, height, width and channels. A host value: it can be an argument of other operators.

    Raises:
      ValueError: an unknown `image_type`.
      TypeError: another `dtype`, or the input is not 1-D uint8.

    Example:
      >>> shape = fn.peek_image_shape(jpegs)
    """
    ...
