"""decoders.image: decodes whole images."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Literal, Unpack

from ... import types
from ..._core.declaration import DType, Len, OneOf, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Input, operator_function
from .._decode.cache import CacheOptions, parse_bytes
from .._decode.decode import DTYPES, DecodeImage, ImageHeaders
from ._decoder import MAX_PIXELS, RegionHints, add_decoder


class ImageHints(RegionHints, total=False):
    """Hints about a cache of decoded images."""

    cache_batch_copy: bool | None
    cache_debug: bool | None


@operator_function("decoders.image")
def image(
    input: Input,
    /,
    *,
    output_type: types.DALIImageType = types.RGB,
    dtype: Annotated[DType, OneOf(*DTYPES)] = types.UINT8,
    adjust_orientation: bool = True,
    use_fast_idct: bool = False,
    jpeg_fancy_upsampling: bool = False,
    on_error: Literal["raise", "replace"] = "raise",
    replace_shape: Annotated[Sequence[int] | None, Len(3), Range(1)] = None,
    max_pixels: Annotated[int, Range(1)] = MAX_PIXELS,
    dct_scaling: bool = False,
    cache: int | str | None = None,
    cache_size: Annotated[int, Range(0)] = 0,
    cache_threshold: Annotated[int, Range(0)] = 0,
    cache_type: Literal["", "threshold", "largest"] = "",
    device: Literal["cpu", "mixed", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[ImageHints],
) -> DataNode:
    """Decodes images: JPEG, PNG, BMP, TIFF, WebP, PNM and JPEG 2000, of 1 to 16 bits.

    JPEG is decoded to libjpeg-turbo's pixels (the same as Pillow's), PNG to libpng's. Other formats are decoded by Pillow while
    the batch is prepared; 16-bit TIFF and JPEG 2000 need the package imagecodecs (``pip install jaxdali[formats]``).

    Args:
      input: encoded images, 1-D uint8, as readers and external_source give them. A host value.
      output_type: RGB, BGR, GRAY, YCbCr (ITU-R BT.601, studio range) or ANY_DATA: the channels of the file (gray 1, gray with
        alpha 2, colour 3, colour with alpha 4; palettes and CMYK are colour). Alpha is dropped unless ANY_DATA is asked for.
        GRAY of a YCbCr JPEG is its Y plane; of anything else 0.299 R + 0.587 G + 0.114 B.
      dtype: UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT16, BFLOAT16, FLOAT or FLOAT64. Values are scaled to the full range of the
        type: 255 becomes 65535 in UINT16, 1.0 in FLOAT. 16-bit files keep their precision.
      adjust_orientation: apply the EXIF orientation. False: the raster as it is stored.
      use_fast_idct: JPEG: the fast integer IDCT, up to 6 levels off, instead of the accurate one. Without effect where a GPU's kernels
        decode, as in DALI.
      jpeg_fancy_upsampling: JPEG chroma is always upsampled smoothly, as DALI does on the CPU whatever this says.
      on_error: "raise": a `jaxdali.SampleError` that names the file. "replace": the sample is replaced and reported by
        `Pipeline.bad_samples()`. Not in DALI, which always raises.
      replace_shape: with on_error="replace": the replacement is a black image of this shape, (H, W, C). None: it is the next
        good sample of the batch. Not in DALI.
      max_pixels: a file whose header promises more pixels than this is a bad sample, of which nothing is decoded: a few hundred kB can
        hold gigabytes. The default is where Pillow refuses, 178,956,970. Pillow's own limit (``PIL.Image.MAX_IMAGE_PIXELS``) applies
        besides to what Pillow decodes. Not in DALI, which has no limit.
      dct_scaling: JPEG: decode at 1/2, 1/4 or 1/8 of the size, in a fraction of the time, what a following `resize` or `resize_crop_mirror`
        makes smaller all the same: as small as still leaves it all the pixels of its result. Changes pixels a little, and a size that
        follows from the image's, as with `resize_shorter`, by one at most. Without effect where something else reads the images, where the
        resize takes regions or sizes of each sample, and where a GPU's kernels decode. Not in DALI.
      cache: bytes of decoded images that are kept in memory between epochs: a number, or one with a unit, as "256MB". Those not used for
        the longest time make room. An image is known by the bytes of its file, wherever they come from, and by the arguments that
        decide on its pixels; all decoders of the process with equal cache arguments share one cache, which lives as long as one of
        their pipelines or iterators. `Pipeline.statistics` tells what it served, and its bytes. Not in DALI.
      cache_size: the same in megabytes, as in DALI; there with device="mixed" alone, and in the GPU's memory, here in the host's.
      cache_threshold: bytes of the smallest decoded image that is kept.
      cache_type: what happens when the cache is full: "threshold": nothing is kept any more; "largest": smaller images make room. "": as
        said above, where DALI keeps nothing.
      device: "cpu"; "mixed" puts the result on the accelerator.
      name: name of the node.

    Returns:
      Images, layout HWC, of different sizes.

    Raises:
      ValueError: an unknown `output_type` or `on_error`, a `replace_shape` that does not fit the output type, `max_pixels` below 1, a
        `cache` that is no number of bytes, or both `cache` and `cache_size`.
      TypeError: `dtype` is not one of those above, or the input is not 1-D uint8.

    A file that ends early, is damaged so that nothing can be decoded, or promises more pixels than its bytes can hold or `max_pixels`
    allows fails when the batch is made. Damage inside JPEG scan data gives the pixels that can be had. Unlike DALI, ANY_DATA works on
    gray and CMYK JPEG, PNG with gray and alpha, and 32-bit BMP; WebP with EXIF is decoded.

    Example:
      >>> jpegs, labels = fn.readers.file(file_root="images")
      >>> images = fn.decoders.image(jpegs, device="mixed", output_type=types.RGB)
    """
    if cache is not None and cache_size:
        raise ArgumentError("either cache or cache_size can be given, not both")
    limit = parse_bytes(cache) if cache is not None else cache_size << 20
    options = CacheOptions(limit, cache_threshold, cache_type) if limit else None
    return add_decoder(
        DecodeImage,
        functools.partial(ImageHeaders, cache=options),
        (input,),
        output_type=output_type,
        dtype=dtype,
        adjust_orientation=adjust_orientation,
        use_fast_idct=use_fast_idct,
        on_error=on_error,
        replace_shape=replace_shape,
        max_pixels=max_pixels,
        dct_scaling=dct_scaling,
        device=device,
        name=name,
    )
