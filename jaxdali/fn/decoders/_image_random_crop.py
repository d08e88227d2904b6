"""decoders.image_random_crop: decodes a random window."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Literal, Unpack

from ... import types
from ..._core.arguments import Arguments
from ..._core.building import is_node
from ..._core.declaration import DType, Len, OneOf, Range
from ..._core.graph import DataNode
from ..._core.operator_function import Input, PerSample, operator_function
from .._decode.decode_arguments import DTYPES
from .._decode.region import (
    DecodeRandomCrop,
    RandomCropHeaders,
)
from .._families.random_windows import random_range
from ._decoder import MAX_PIXELS, DecoderHints, add_decoder, page_argument


@operator_function("decoders.image_random_crop")
def image_random_crop(
    input: Input,
    /,
    *,
    random_area: Annotated[float | Sequence[float], Len(2), Range(0)] = (0.08, 1.0),
    random_aspect_ratio: Annotated[float | Sequence[float], Len(2), Range(1e-6)] = (3 / 4, 4 / 3),
    num_attempts: Annotated[int, Range(1)] = 10,
    seed: int = -1,
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
    **hints: Unpack[DecoderHints],
) -> DataNode:
    """Decodes a random window of each image, as usual for training.

    The pixels are those of `image` followed by a crop, with less work.

    Args:
      input: encoded images, as in `image`.
      random_area: range of the window's area as a fraction of the image's; uniformly distributed.
      random_aspect_ratio: range of width divided by height; the logarithm is uniformly distributed.
      num_attempts: how many windows are drawn at most until one fits into the image. If none does, the largest window
        of the nearest allowed aspect ratio is taken, at a random place.
      seed: fixes the random numbers regardless of the pipeline's seed and of the operator's place in the pipeline; a
        negative seed counts as not given. The numbers differ from DALI's. Operators with the same seed, ranges and
        `num_attempts` draw the same windows of images of the same shapes, such as an image and its mask.
      output_type, dtype, adjust_orientation, use_fast_idct, jpeg_fancy_upsampling, device, name: as in `image`.
      replace_shape, max_pixels, page, palette, truncated: as in `image`.
      on_error: as in `image`; windows always fit.

    Returns:
      Images, layout HWC, of different sizes.

    Raises:
      ValueError: an empty range, `num_attempts` below 1, and what `image` raises.

    Example:
      >>> images = fn.resize(fn.decoders.image_random_crop(jpegs, device="mixed"), size=(224, 224))
    """
    area, aspect_ratio = (
        random_range("random_area", random_area),
        random_range("random_aspect_ratio", random_aspect_ratio),
    )
    args, nodes = Arguments.of({"page": page_argument(page)}, is_node)
    return add_decoder(
        DecodeRandomCrop,
        functools.partial(
            RandomCropHeaders, args=args, area=area, aspect_ratio=aspect_ratio, num_attempts=num_attempts, seed=seed
        ),
        (input, *nodes),
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
