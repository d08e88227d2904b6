"""decoders.image_slice: decodes a window of given coordinates."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Literal, Unpack

from ... import types
from ..._core.declaration import DType, Len, OneOf, Range
from ..._core.graph import DataNode
from ..._core.operator_function import Input, OneOrMore, PerSample, operator_function
from .._decode.decode_arguments import DTYPES
from .._decode.region import (
    DecodeSlice,
    SliceHeaders,
    slice_arguments,
)
from ._decoder import MAX_PIXELS, RegionHints, add_decoder, page_argument


@operator_function("decoders.image_slice")
def image_slice(
    data: Input,
    anchor: Input | None = None,
    shape_input: Input | None = None,
    /,
    *,
    start: PerSample[OneOrMore[int]] | None = None,
    rel_start: PerSample[OneOrMore[float]] | None = None,
    end: PerSample[OneOrMore[int]] | None = None,
    rel_end: PerSample[OneOrMore[float]] | None = None,
    shape: PerSample[OneOrMore[int]] | None = None,
    rel_shape: PerSample[OneOrMore[float]] | None = None,
    axes: Annotated[PerSample[OneOrMore[int]] | None, Range(-2, 1)] = None,
    axis_names: Literal["WH", "HW", "W", "H"] | None = None,
    normalized_anchor: bool = True,
    normalized_shape: bool = True,
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
    """Decodes the window between given coordinates of each image.

    The pixels are those of `image` followed by a crop, with less work.

    The window is given by the inputs `anchor` and `shape_input`, or by some of the arguments `start` to `rel_shape`.
    All numbers may be per sample. Without a start or an end, the window begins or ends with the image.

    Args:
      data: encoded images, as in `image`.
      anchor: the window's start. Integers are pixels, floating-point numbers are fractions of the image's extents.
      shape_input: the window's extents, in the same way and of the same type.
      start, rel_start: first pixel, and the same as a fraction.
      end, rel_end: the pixel after the last, and the same as a fraction.
      shape, rel_shape: extents in pixels or as fractions.
      axes: the axes that the numbers refer to, in their order: 0 is height, 1 is width. Where two numbers are expected,
        one number counts for both axes. Default: (1, 0). May be per sample.
      axis_names: the same axes in letters: "WH" (default), "HW", "W" or "H".
      normalized_anchor, normalized_shape: if False, a floating-point `anchor` or `shape_input` is in pixels.
      output_type, dtype, adjust_orientation, use_fast_idct, jpeg_fancy_upsampling, device, name: as in `image`.
      replace_shape, max_pixels, page, palette, truncated: as in `image`.
      on_error: as in `image`; a window that reaches outside its image is also an error.

    Returns:
      Images, layout HWC. All have one size if `shape` is given by numbers and `output_type` determines the channels.

    Raises:
      ValueError: none, or too many, of the arguments that give the window, or a wrong number of axes, and what `image`
        raises.
      TypeError: `anchor` and `shape_input` are of different types, and what `image` raises.

    Starts and ends are rounded to the nearest pixel, halves up.

    Example:
      >>> images = fn.decoders.image_slice(jpegs, rel_start=(0.25, 0.25), shape=(224, 224), axis_names="HW")
    """
    named = {
        "start": start,
        "rel_start": rel_start,
        "end": end,
        "rel_end": rel_end,
        "shape": shape,
        "rel_shape": rel_shape,
    }
    args, inputs, extents = slice_arguments((anchor, shape_input), axes, axis_names, named, page_argument(page))
    return add_decoder(
        DecodeSlice,
        functools.partial(
            SliceHeaders, args=args, normalized=None if anchor is None else (normalized_anchor, normalized_shape)
        ),
        (data, *inputs),
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
