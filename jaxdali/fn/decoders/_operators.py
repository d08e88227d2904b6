"""``fn.decoders``: encoded images to pixels; the operators are in ``_decode.py`` and ``_decode_region.py``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Unpack

from ... import types
from ..._core.building import add
from ..._core.declaration import DType, Len, OneOf, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, ListOf, OneOrMore, PerSample, SeededHints, operator_function
from .._decode.cache import CacheOptions, parse_bytes
from .._decode.decode import DTYPES, DecodeImage, ImageHeaders, num_channels
from .._decode.region import (
    CropHeaders,
    DecodeCrop,
    DecodeRandomCrop,
    DecodeSlice,
    Extents,
    RandomCropHeaders,
    SliceHeaders,
    crop_arguments,
    slice_arguments,
)
from .._families.random_windows import random_range

MAX_PIXELS = 178_956_970  # Pillow raises above this: twice its MAX_IMAGE_PIXELS


class DecoderHints(SeededHints, total=False):
    """Hints to DALI's decoders on the GPU."""

    affine: bool | None
    device_memory_padding: int | None
    device_memory_padding_jpeg2k: int | None
    host_memory_padding: int | None
    host_memory_padding_jpeg2k: int | None
    hw_decoder_load: float | None
    hybrid_huffman_threshold: int | None
    memory_stats: bool | None
    preallocate_height_hint: int | None
    preallocate_width_hint: int | None
    split_stages: bool | None
    use_chunk_allocator: bool | None


class RegionHints(DecoderHints, Hints, total=False):
    """The same for decoders that draw no random numbers."""


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
    return _add(
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
    rounding: Literal["round", "truncate"] = "round",
    output_type: types.DALIImageType = types.RGB,
    dtype: Annotated[DType, OneOf(*DTYPES)] = types.UINT8,
    adjust_orientation: bool = True,
    use_fast_idct: bool = False,
    jpeg_fancy_upsampling: bool = False,
    on_error: Literal["raise", "replace"] = "raise",
    replace_shape: Annotated[Sequence[int] | None, Len(3), Range(1)] = None,
    max_pixels: Annotated[int, Range(1)] = MAX_PIXELS,
    device: Literal["cpu", "mixed", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[RegionHints],
) -> DataNode:
    """Decodes a window of a given size of each image: the same pixels as `image` and then the cut, with less work.

    Args:
      input: encoded images, as in `image`.
      crop: (height, width) of the window. A fraction is dropped; what is then below 1 is the image's. May be per sample.
      crop_h, crop_w: the same, one by one. May be per sample.
      crop_pos_x, crop_pos_y: where the window is, from 0 (at the left, at the top) to 1. May be per sample.
      rounding: of the window's first row and column: "round" (halves up) or "truncate".
      crop_d, crop_pos_z: of volumes, without effect on images.
      output_type, dtype, adjust_orientation, use_fast_idct, jpeg_fancy_upsampling, replace_shape, max_pixels, device, name: as in
        `image`.
      on_error: as in `image`; a window that reaches outside its image is such an error.

    Returns:
      Images, layout HWC; of one size when that is given by numbers and `output_type` fixes the channels.

    Raises:
      ValueError: sizes given twice or by halves, another `rounding`, positions outside 0 .. 1, and what `image` raises.

    Example:
      >>> images = fn.decoders.image_crop(jpegs, crop=(224, 224), crop_pos_x=fn.random.uniform(range=(0.0, 1.0)))
    """
    args, nodes, extents = crop_arguments(crop, crop_d, crop_h, crop_w, crop_pos_x, crop_pos_y)
    return _add(
        DecodeCrop,
        functools.partial(CropHeaders, args=args, truncate=rounding == "truncate"),
        (input, *nodes),
        extents,
        output_type=output_type,
        dtype=dtype,
        adjust_orientation=adjust_orientation,
        use_fast_idct=use_fast_idct,
        on_error=on_error,
        replace_shape=replace_shape,
        max_pixels=max_pixels,
        device=device,
        name=name,
    )


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
    device: Literal["cpu", "mixed", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[RegionHints],
) -> DataNode:
    """Decodes the window between given coordinates of each image: the same pixels as `image` and then the cut, with less work.

    The window is given by the inputs `anchor` and `shape_input`, or by some of the arguments `start` to `rel_shape`; the numbers of all
    of them may be per sample. What is not given is the start or the end of the image.

    Args:
      data: encoded images, as in `image`.
      anchor: the window's start: integers are pixels, floating-point numbers fractions of the image's extents.
      shape_input: the window's extents, in the same way and of the same type.
      start, rel_start: first pixel, and the same as a fraction.
      end, rel_end: the pixel after the last, and the same as a fraction.
      shape, rel_shape: extents in pixels or as fractions.
      axes: which axes the numbers are for, in their order: 0 is height, 1 width. May be per sample. One number in place of two
        is for both. Default: (1, 0).
      axis_names: the same in letters: "WH" (default), "HW", "W" or "H".
      normalized_anchor, normalized_shape: False: a floating-point `anchor`, `shape_input` is in pixels.
      output_type, dtype, adjust_orientation, use_fast_idct, jpeg_fancy_upsampling, replace_shape, max_pixels, device, name: as in
        `image`.
      on_error: as in `image`; a window that reaches outside its image is such an error.

    Returns:
      Images, layout HWC; of one size when `shape` gives that by numbers and `output_type` fixes the channels.

    Raises:
      ValueError: none, or too many, of the arguments that give the window, or a wrong number of axes, and what `image` raises.
      TypeError: `anchor` and `shape_input` are of different types, and what `image` raises.

    Starts and ends are rounded to the nearest pixel, halves up.

    Example:
      >>> images = fn.decoders.image_slice(jpegs, rel_start=(0.25, 0.25), shape=(224, 224), axis_names="HW")
    """
    named = {"start": start, "rel_start": rel_start, "end": end, "rel_end": rel_end, "shape": shape, "rel_shape": rel_shape}
    args, inputs, extents = slice_arguments((anchor, shape_input), axes, axis_names, named)
    return _add(
        DecodeSlice,
        functools.partial(SliceHeaders, args=args, normalized=None if anchor is None else (normalized_anchor, normalized_shape)),
        (data, *inputs),
        extents,
        output_type=output_type,
        dtype=dtype,
        adjust_orientation=adjust_orientation,
        use_fast_idct=use_fast_idct,
        on_error=on_error,
        replace_shape=replace_shape,
        max_pixels=max_pixels,
        device=device,
        name=name,
    )


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
    device: Literal["cpu", "mixed", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[DecoderHints],
) -> DataNode:
    """Decodes a random window of each image, as usual for training: the same pixels as `image` and then the cut, with less work.

    Args:
      input: encoded images, as in `image`.
      random_area: range of the window's area, as a fraction of the image's, uniformly distributed.
      random_aspect_ratio: range of its width by height; the logarithm is uniformly distributed.
      num_attempts: how many windows may be drawn until one fits into the image. After that it is the largest of the nearest allowed
        aspect ratio, at a random place.
      seed: fixes the numbers, whatever the pipeline's seed and the operator's place; negative: not given. Another sequence than DALI's.
      output_type, dtype, adjust_orientation, use_fast_idct, jpeg_fancy_upsampling, replace_shape, max_pixels, device, name: as in
        `image`.
      on_error: as in `image`; windows always fit.

    Returns:
      Images, layout HWC, of different sizes.

    Raises:
      ValueError: an empty range, `num_attempts` below 1, and what `image` raises.

    Example:
      >>> images = fn.resize(fn.decoders.image_random_crop(jpegs, device="mixed"), size=(224, 224))
    """
    area, aspect_ratio = random_range("random_area", random_area), random_range("random_aspect_ratio", random_aspect_ratio)
    return _add(
        DecodeRandomCrop,
        functools.partial(RandomCropHeaders, area=area, aspect_ratio=aspect_ratio, num_attempts=num_attempts, seed=seed),
        (input,),
        output_type=output_type,
        dtype=dtype,
        adjust_orientation=adjust_orientation,
        use_fast_idct=use_fast_idct,
        on_error=on_error,
        replace_shape=replace_shape,
        max_pixels=max_pixels,
        device=device,
        name=name,
    )


def _add(
    kind: type[DecodeImage],
    headers: Callable[..., ImageHeaders],
    inputs: Sequence[Any],
    extents: Extents = (None, None),
    *,
    output_type: types.DALIImageType,
    on_error: str,
    replace_shape: Any,
    max_pixels: int,
    device: str | None,
    name: str | None,
    **attributes: Any,
) -> DataNode:
    """Adds the two operators of a decoder. `extents`: height and width that all images have, bad ones apart."""
    if replace_shape is not None:
        if on_error != "replace":
            raise ArgumentError("replace_shape is used with on_error='replace' only")
        channels = num_channels(output_type)
        if replace_shape[2] not in ((1, 2, 3, 4) if channels is None else (channels,)):
            raise ArgumentError(f"replace_shape must be (height, width, {channels or 'channels'}), got {replace_shape}")
        height, width = (n if n == replaced else None for n, replaced in zip(extents, replace_shape[:2], strict=True))
        extents = height, width
    decoder = kind(output_type=output_type, on_error=on_error, extents=extents, **attributes)
    op = headers(images=decoder, on_device=device in ("mixed", "gpu"), max_pixels=max_pixels, replace_shape=replace_shape)
    payload, info, tables = add(op, *inputs, device="cpu")
    return add(decoder, payload, info, tables, device=device, name=name)
