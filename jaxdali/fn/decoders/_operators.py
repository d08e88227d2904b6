"""``fn.decoders``: encoded images to pixels; the operators are in ``_decode.py`` and ``_decode_region.py``."""

from __future__ import annotations

import functools
import numbers
import operator
from collections.abc import Callable, Sequence
from typing import Any

from ... import types
from ..._core.building import add
from ..._core.graph import DataNode
from ...errors import ArgumentError
from .._decode.decode import DTYPES, DecodeImage, ImageHeaders, checked_output_type, num_channels
from .._decode.region import (
    CropHeaders,
    DecodeCrop,
    DecodeRandomCrop,
    DecodeSlice,
    Extents,
    RandomCropHeaders,
    SliceHeaders,
    crop_arguments,
    random_range,
    slice_arguments,
)

MAX_PIXELS = 178_956_970  # Pillow raises above this: twice its MAX_IMAGE_PIXELS


def image(
    input: Any,
    /,
    *,
    output_type: types.DALIImageType = types.RGB,
    dtype: Any = types.UINT8,
    adjust_orientation: bool = True,
    use_fast_idct: bool = False,
    jpeg_fancy_upsampling: bool = False,
    on_error: str = "raise",
    replace_shape: Sequence[int] | None = None,
    max_pixels: int = MAX_PIXELS,
    device: str | None = None,
    name: str | None = None,
    affine: bool = True,
    bytes_per_sample_hint: int | Sequence[int] = 0,
    cache_batch_copy: bool = True,
    cache_debug: bool = False,
    cache_size: int = 0,
    cache_threshold: int = 0,
    cache_type: str = "",
    device_memory_padding: int = 16777216,
    device_memory_padding_jpeg2k: int = 0,
    host_memory_padding: int = 8388608,
    host_memory_padding_jpeg2k: int = 0,
    hw_decoder_load: float = 0.65,
    hybrid_huffman_threshold: int = 1000000,
    memory_stats: bool = False,
    preallocate_height_hint: int = 0,
    preallocate_width_hint: int = 0,
    preserve: bool = False,
    split_stages: bool = False,
    use_chunk_allocator: bool = False,
) -> DataNode:
    """Decodes images: JPEG, PNG, BMP, TIFF, WebP, PNM and JPEG 2000, of 1 to 16 bits.

    JPEG is decoded to libjpeg-turbo's pixels (the same as Pillow's), PNG by libpng. Other formats are decoded by Pillow while
    the batch is prepared; 16-bit TIFF and JPEG 2000 need the package imagecodecs (``pip install jaxdali[formats]``).

    Args:
      input: encoded images, 1-D uint8, as readers and external_source give them. A host value.
      output_type: RGB, BGR, GRAY, YCbCr (ITU-R BT.601, studio range) or ANY_DATA: the channels of the file (gray 1, gray with
        alpha 2, colour 3, colour with alpha 4; palettes and CMYK are colour). Alpha is dropped unless ANY_DATA is asked for.
        GRAY of a YCbCr JPEG is its Y plane; of anything else 0.299 R + 0.587 G + 0.114 B.
      dtype: UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT16, FLOAT or FLOAT64. Values are scaled to the full range of the
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
      device: "cpu"; "mixed" puts the result on the accelerator.
      name: name of the node.
      affine, bytes_per_sample_hint, cache_batch_copy, cache_debug, cache_size, cache_threshold, cache_type, device_memory_padding,
        device_memory_padding_jpeg2k, host_memory_padding, host_memory_padding_jpeg2k, hw_decoder_load, hybrid_huffman_threshold,
        memory_stats, preallocate_height_hint, preallocate_width_hint, preserve, split_stages, use_chunk_allocator: hints to
        DALI's GPU decoder and executor, without effect here.

    Returns:
      Images, layout HWC, of different sizes.

    Raises:
      ValueError: an unknown `output_type` or `on_error`, a `replace_shape` that does not fit the output type, or `max_pixels` below 1.
      TypeError: `dtype` is not one of those above, or the input is not 1-D uint8.

    A file that ends early, is damaged so that nothing can be decoded, or promises more pixels than its bytes can hold or `max_pixels`
    allows fails when the batch is made. Damage inside JPEG scan data gives the pixels that can be had. Unlike DALI, ANY_DATA works on
    gray and CMYK JPEG, PNG with gray and alpha, and 32-bit BMP; WebP with EXIF is decoded.

    Example:
      >>> jpegs, labels = fn.readers.file(file_root="images")
      >>> images = fn.decoders.image(jpegs, device="mixed", output_type=types.RGB)
    """
    decoder = _decoder(DecodeImage, output_type, dtype, adjust_orientation, use_fast_idct, on_error, replace_shape)
    return _add(ImageHeaders, decoder, (input,), replace_shape, max_pixels, device, name)


def image_crop(
    input: Any,
    /,
    *,
    crop: Any = None,
    crop_d: Any = None,
    crop_h: Any = None,
    crop_w: Any = None,
    crop_pos_x: Any = 0.5,
    crop_pos_y: Any = 0.5,
    crop_pos_z: Any = 0.5,
    rounding: str = "round",
    output_type: types.DALIImageType = types.RGB,
    dtype: Any = types.UINT8,
    adjust_orientation: bool = True,
    use_fast_idct: bool = False,
    jpeg_fancy_upsampling: bool = False,
    on_error: str = "raise",
    replace_shape: Sequence[int] | None = None,
    max_pixels: int = MAX_PIXELS,
    device: str | None = None,
    name: str | None = None,
    affine: bool = True,
    bytes_per_sample_hint: int | Sequence[int] = 0,
    device_memory_padding: int = 16777216,
    device_memory_padding_jpeg2k: int = 0,
    host_memory_padding: int = 8388608,
    host_memory_padding_jpeg2k: int = 0,
    hw_decoder_load: float = 0.65,
    hybrid_huffman_threshold: int = 1000000,
    memory_stats: bool = False,
    preallocate_height_hint: int = 0,
    preallocate_width_hint: int = 0,
    preserve: bool = False,
    split_stages: bool = False,
    use_chunk_allocator: bool = False,
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
      affine, bytes_per_sample_hint, device_memory_padding, device_memory_padding_jpeg2k, host_memory_padding,
        host_memory_padding_jpeg2k, hw_decoder_load, hybrid_huffman_threshold, memory_stats, preallocate_height_hint,
        preallocate_width_hint, preserve, split_stages, use_chunk_allocator: hints to DALI's GPU decoder and executor, without effect here.

    Returns:
      Images, layout HWC; of one size when that is given by numbers and `output_type` fixes the channels.

    Raises:
      ValueError: sizes given twice or by halves, another `rounding`, positions outside 0 .. 1, and what `image` raises.

    Example:
      >>> images = fn.decoders.image_crop(jpegs, crop=(224, 224), crop_pos_x=fn.random.uniform(range=(0.0, 1.0)))
    """
    if rounding not in ("round", "truncate"):
        raise ArgumentError(f"rounding must be 'round' or 'truncate', got {rounding!r}")
    args, nodes, extents = crop_arguments(crop, crop_d, crop_h, crop_w, crop_pos_x, crop_pos_y)
    decoder = _decoder(DecodeCrop, output_type, dtype, adjust_orientation, use_fast_idct, on_error, replace_shape, extents)
    headers = functools.partial(CropHeaders, args=args, truncate=rounding == "truncate")
    return _add(headers, decoder, (input, *nodes), replace_shape, max_pixels, device, name)


def image_slice(
    data: Any,
    anchor: Any = None,
    shape_input: Any = None,
    /,
    *,
    start: Any = None,
    rel_start: Any = None,
    end: Any = None,
    rel_end: Any = None,
    shape: Any = None,
    rel_shape: Any = None,
    axes: Any = None,
    axis_names: str | None = None,
    normalized_anchor: bool = True,
    normalized_shape: bool = True,
    output_type: types.DALIImageType = types.RGB,
    dtype: Any = types.UINT8,
    adjust_orientation: bool = True,
    use_fast_idct: bool = False,
    jpeg_fancy_upsampling: bool = False,
    on_error: str = "raise",
    replace_shape: Sequence[int] | None = None,
    max_pixels: int = MAX_PIXELS,
    device: str | None = None,
    name: str | None = None,
    affine: bool = True,
    bytes_per_sample_hint: int | Sequence[int] = 0,
    device_memory_padding: int = 16777216,
    device_memory_padding_jpeg2k: int = 0,
    host_memory_padding: int = 8388608,
    host_memory_padding_jpeg2k: int = 0,
    hw_decoder_load: float = 0.65,
    hybrid_huffman_threshold: int = 1000000,
    memory_stats: bool = False,
    preallocate_height_hint: int = 0,
    preallocate_width_hint: int = 0,
    preserve: bool = False,
    split_stages: bool = False,
    use_chunk_allocator: bool = False,
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
      affine, bytes_per_sample_hint, device_memory_padding, device_memory_padding_jpeg2k, host_memory_padding,
        host_memory_padding_jpeg2k, hw_decoder_load, hybrid_huffman_threshold, memory_stats, preallocate_height_hint,
        preallocate_width_hint, preserve, split_stages, use_chunk_allocator: hints to DALI's GPU decoder and executor, without effect here.

    Returns:
      Images, layout HWC; of one size when `shape` gives that by numbers and `output_type` fixes the channels.

    Raises:
      ValueError: none, or too many, of the arguments that give the window, or a wrong number of axes, and what `image` raises.
      TypeError: `anchor` and `shape_input` are of different types, and what `image` raises.

    Starts and ends are rounded to the nearest pixel, halves up.

    Example:
      >>> images = fn.decoders.image_slice(jpegs, rel_start=(0.25, 0.25), shape=(224, 224), axis_names="HW")
    """
    args, inputs, extents = slice_arguments(
        (anchor, shape_input),
        axes,
        axis_names,
        start=start,
        rel_start=rel_start,
        end=end,
        rel_end=rel_end,
        shape=shape,
        rel_shape=rel_shape,
    )
    decoder = _decoder(DecodeSlice, output_type, dtype, adjust_orientation, use_fast_idct, on_error, replace_shape, extents)
    normalized = None if anchor is None else (bool(normalized_anchor), bool(normalized_shape))
    return _add(
        functools.partial(SliceHeaders, args=args, normalized=normalized), decoder, (data, *inputs), replace_shape, max_pixels, device, name
    )


def image_random_crop(
    input: Any,
    /,
    *,
    random_area: Any = (0.08, 1.0),
    random_aspect_ratio: Any = (3 / 4, 4 / 3),
    num_attempts: int = 10,
    seed: int = -1,
    output_type: types.DALIImageType = types.RGB,
    dtype: Any = types.UINT8,
    adjust_orientation: bool = True,
    use_fast_idct: bool = False,
    jpeg_fancy_upsampling: bool = False,
    on_error: str = "raise",
    replace_shape: Sequence[int] | None = None,
    max_pixels: int = MAX_PIXELS,
    device: str | None = None,
    name: str | None = None,
    affine: bool = True,
    bytes_per_sample_hint: int | Sequence[int] = 0,
    device_memory_padding: int = 16777216,
    device_memory_padding_jpeg2k: int = 0,
    host_memory_padding: int = 8388608,
    host_memory_padding_jpeg2k: int = 0,
    hw_decoder_load: float = 0.65,
    hybrid_huffman_threshold: int = 1000000,
    memory_stats: bool = False,
    preallocate_height_hint: int = 0,
    preallocate_width_hint: int = 0,
    preserve: bool = False,
    split_stages: bool = False,
    use_chunk_allocator: bool = False,
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
      affine, bytes_per_sample_hint, device_memory_padding, device_memory_padding_jpeg2k, host_memory_padding,
        host_memory_padding_jpeg2k, hw_decoder_load, hybrid_huffman_threshold, memory_stats, preallocate_height_hint,
        preallocate_width_hint, preserve, split_stages, use_chunk_allocator: hints to DALI's GPU decoder and executor, without effect here.

    Returns:
      Images, layout HWC, of different sizes.

    Raises:
      ValueError: an empty range, `num_attempts` below 1, and what `image` raises.

    Example:
      >>> images = fn.resize(fn.decoders.image_random_crop(jpegs, device="mixed"), size=(224, 224))
    """
    area, aspect_ratio = random_range("random_area", random_area, 0), random_range("random_aspect_ratio", random_aspect_ratio, 1e-6)
    if not isinstance(num_attempts, numbers.Integral) or num_attempts < 1:
        raise ArgumentError(f"num_attempts must be at least 1, a whole number, got {num_attempts!r}")
    decoder = _decoder(DecodeRandomCrop, output_type, dtype, adjust_orientation, use_fast_idct, on_error, replace_shape)
    headers = functools.partial(RandomCropHeaders, area=area, aspect_ratio=aspect_ratio, num_attempts=int(num_attempts), seed=int(seed))
    return _add(headers, decoder, (input,), replace_shape, max_pixels, device, name)


def _decoder(
    kind: type[DecodeImage],
    output_type: types.DALIImageType,
    dtype: Any,
    adjust_orientation: bool,
    use_fast_idct: bool,
    on_error: str,
    replace_shape: Sequence[int] | None,
    extents: Extents = (None, None),
) -> DecodeImage:
    """Checks what all decoders share. `extents`: height and width that all images have, bad ones apart."""
    colors = checked_output_type("output_type", output_type)
    element = types.numpy_dtype(dtype)
    if element not in DTYPES:
        raise TypeError(f"dtype must be one of {', '.join(types.dali_type_of(t).name for t in DTYPES)}, got {dtype!r}")
    if on_error not in ("raise", "replace"):
        raise ValueError(f"on_error must be 'raise' or 'replace', got {on_error!r}")
    if replace_shape is not None:
        if on_error != "replace":
            raise ValueError("replace_shape is used with on_error='replace' only")
        channels = num_channels(colors)
        try:
            shape = tuple(map(operator.index, replace_shape))
        except TypeError:
            raise TypeError(f"replace_shape must be three whole numbers, got {replace_shape!r}") from None
        if len(shape) != 3 or min(shape) < 1 or shape[2] not in ((1, 2, 3, 4) if channels is None else (channels,)):
            raise ValueError(f"replace_shape must be (height, width, {channels or 'channels'}), got {shape}")
        extents = (extents[0] if extents[0] == shape[0] else None, extents[1] if extents[1] == shape[1] else None)
    return kind(
        output_type=colors,
        dtype=element,
        adjust_orientation=bool(adjust_orientation),
        use_fast_idct=bool(use_fast_idct),
        on_error=on_error,
        extents=extents,
    )


def _add(
    headers: Callable[..., ImageHeaders],
    decoder: DecodeImage,
    inputs: Sequence[Any],
    replace_shape: Sequence[int] | None,
    max_pixels: int,
    device: str | None,
    name: str | None,
) -> DataNode:
    """Adds the two operators of a decoder."""
    if isinstance(max_pixels, bool) or not isinstance(max_pixels, numbers.Integral) or max_pixels < 1:
        raise ArgumentError(f"max_pixels must be at least 1, a whole number, got {max_pixels!r}")
    shape = None if replace_shape is None else (int(replace_shape[0]), int(replace_shape[1]), int(replace_shape[2]))
    op = headers(images=decoder, on_device=device in ("mixed", "gpu"), max_pixels=int(max_pixels), replace_shape=shape)
    payload, info, tables = add(op, *inputs, device="cpu")
    return add(decoder, payload, info, tables, device=device, name=name)
