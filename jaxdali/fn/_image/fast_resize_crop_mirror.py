"""fast_resize_crop_mirror: `resize_crop_mirror` without antialiasing."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

from ... import types
from ..._core.declaration import DType, Len, Range
from ..._core.graph import DataNode
from ..._core.operator_function import Input, ListOf, OneOrMore, PerSample, operator_function
from .._families.cropping import Rounding
from .resize import ResizeHints
from .resize_crop_mirror import ResizeCropMirror


class FastResizeCropMirror(ResizeCropMirror):
    """The same operator under its older name."""

    name = "fast_resize_crop_mirror"


@operator_function(FastResizeCropMirror)
def fast_resize_crop_mirror(
    input: Input,
    /,
    *,
    antialias: bool = False,
    crop: Annotated[PerSample[ListOf[float]] | None, Len(2, 3)] = None,
    crop_d: PerSample[float] | None = None,
    crop_h: PerSample[float] | None = None,
    crop_pos_x: Annotated[PerSample[float], Range(0, 1)] = 0.5,
    crop_pos_y: Annotated[PerSample[float], Range(0, 1)] = 0.5,
    crop_pos_z: Annotated[PerSample[float], Range(0, 1)] = 0.5,
    crop_w: PerSample[float] | None = None,
    dtype: DType | None = None,
    interp_type: PerSample[types.DALIInterpType] = types.INTERP_LINEAR,
    mag_filter: PerSample[types.DALIInterpType] | None = None,
    max_size: PerSample[OneOrMore[float]] | None = None,
    min_filter: PerSample[types.DALIInterpType] | None = None,
    mirror: PerSample[int] = 0,
    mode: Literal["default", "stretch", "not_larger", "not_smaller"] | None = None,
    resize_longer: PerSample[float] | None = None,
    resize_shorter: PerSample[float] | None = None,
    resize_x: PerSample[float] | None = None,
    resize_y: PerSample[float] | None = None,
    resize_z: PerSample[float] | None = None,
    roi_end: PerSample[OneOrMore[float]] | None = None,
    roi_relative: bool = False,
    roi_start: PerSample[OneOrMore[float]] | None = None,
    rounding: Rounding = "round",
    size: PerSample[OneOrMore[float]] | None = None,
    subpixel_scale: bool = True,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[ResizeHints],
) -> DataNode:
    """Like `resize_crop_mirror`, but without antialiasing unless it is asked for.

    DALI recommends `resize_crop_mirror` instead.

    Args:
      input: as in `resize`.
      antialias: whether the filter is widened when an axis shrinks.
      crop, crop_d, crop_h, crop_w, crop_pos_x, crop_pos_y, crop_pos_z, mirror, rounding: as in `resize_crop_mirror`.
      dtype, interp_type, mag_filter, max_size, min_filter, mode: as in `resize`.
      resize_longer, resize_shorter, resize_x, resize_y, resize_z, size, subpixel_scale: as in `resize`.
      roi_start, roi_end, roi_relative: as in `resize`.

    Returns:
      The window, in the input's layout.

    Raises:
      ValueError, TypeError: as in `resize` and `crop`.

    Example:
      >>> fn.fast_resize_crop_mirror(images, resize_shorter=256, crop=(224, 224), mirror=fn.random.coin_flip())
    """
    ...
