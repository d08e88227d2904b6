"""decoders.image_crop: decodes a window of a given size."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Literal, Unpack

from ... import types
from ..._core.declaration import DType, Len, OneOf, Range
from ..._core.graph import DataNode
from ..._core.operator_function import Input, ListOf, PerSample, operator_function
from .._decode.decode_arguments import DTYPES
from .._decode.region import (
    CropHeaders,
    DecodeCrop,
    crop_arguments,
)
from .._families.cropping import Rounding
from ._decoder import MAX_PIXELS, RegionHints, add_decoder, page_argument


@operator_function("decoders.image_crop")
def image_crop(
    input: Input,
    /,
    *,
    crop: Annotated[PerSample[ListOf[float]] | None, Len(2, 3)] = None,
    crop_d: PerSample[float] | None = None,
    crop_h: PerSample[float] | None = None,
    crop_w: PerSample[float] | None = None,
    crop_pos_x: Annotated[PerSample[float], Range(0, 1)] = 0.5,
    crop_pos_y: Annotated[PerSample[float], Range(0, 1)] = 0.5,
    crop_pos_z: PerSample[float] = 0.5,
    rounding: Rounding = "round",
    output_type: types.DALIImageType = types.RGB,
    dtype: Annotated[DType, OneOf(*DTYPES)] = types.UINT8,
    adjust_orientation: bool = True,
    use_fast_idct: bool = False,
    jpeg_fancy_upsampling: bool = False,
    on_error: Literal["raise", "replace"] = "raise",
    replace_shape: Annotated[Sequence[int] | None, Len(3), Range(1)] = None,
    max_pixels: Annotated[int, Range(1)] = MAX_PIXELS,
    page: Annotated[PerSample[int], Range(0)] = 0,
    palette: Literal["color", "index"] = "color",
    truncated: Literal["error", "accept"] = "error",
    device: Literal["cpu", "mixed", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[RegionHints],
) -> DataNode:
    """Decodes a window of a given size of each image.

    The pixels are those of `image` followed by a crop, with less work.

    Args:
      input: encoded images, as in `image`.
      crop: (height, width) of the window. Fractions are dropped; an extent below 1 means the image's. May be per
        sample.
      crop_h, crop_w: the same extents, one by one. May be per sample.
      crop_pos_x, crop_pos_y: position of the window, from 0 (left, top) to 1. May be per sample.
      rounding: how the window's first row and column are rounded: "round" (halves up), "truncate" or (not in DALI)
        "torchvision", as its `CenterCrop` does (halves to even).
      crop_d, crop_pos_z: are for volumes and have no effect on images.
      output_type, dtype, adjust_orientation, use_fast_idct, jpeg_fancy_upsampling, device, name: as in `image`.
      replace_shape, max_pixels, page, palette, truncated: as in `image`.
      on_error: as in `image`; a window that reaches outside its image is also an error.

    Returns:
      Images, layout HWC. All have one size if the size is given by numbers and `output_type` determines the channels.

    Raises:
      ValueError: sizes given twice or only in part, an unknown `rounding`, positions outside 0 ... 1, and what `image`
        raises.

    Example:
      >>> images = fn.decoders.image_crop(jpegs, crop=(224, 224), crop_pos_x=fn.random.uniform(range=(0.0, 1.0)))
    """
    args, nodes, extents = crop_arguments(crop, crop_d, crop_h, crop_w, crop_pos_x, crop_pos_y, page_argument(page))
    return add_decoder(
        DecodeCrop,
        functools.partial(CropHeaders, args=args, rounding=rounding),
        (input, *nodes),
        extents,
        output_type=output_type,
        dtype=dtype,
        adjust_orientation=adjust_orientation,
        use_fast_idct=use_fast_idct,
        on_error=on_error,
        replace_shape=replace_shape,
        max_pixels=max_pixels,
        palette=palette,
        truncated=truncated,
        device=device,
        name=name,
    )
