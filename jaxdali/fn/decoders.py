"""``fn.decoders``: encoded images to pixels; the operators are in ``_decode.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import types
from ..graph import DataNode, add
from ._decode import DTYPES, DecodeImage, ImageHeaders, checked_output_type, num_channels


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

    JPEG is decoded by libjpeg-turbo (the same pixels as Pillow's), PNG by libpng. Other formats are decoded by Pillow while
    the batch is prepared; 16-bit TIFF and JPEG 2000 need the package imagecodecs (``pip install jaxdali[formats]``).

    Args:
      input: encoded images, 1-D uint8, as readers and external_source give them. A host value.
      output_type: RGB, BGR, GRAY, YCbCr (ITU-R BT.601, studio range) or ANY_DATA: the channels of the file (gray 1, gray with
        alpha 2, colour 3, colour with alpha 4; palettes and CMYK are colour). Alpha is dropped unless ANY_DATA is asked for.
        GRAY of a YCbCr JPEG is its Y plane; of anything else 0.299 R + 0.587 G + 0.114 B.
      dtype: UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT16, FLOAT or FLOAT64. Values are scaled to the full range of the
        type: 255 becomes 65535 in UINT16, 1.0 in FLOAT. 16-bit files keep their precision.
      adjust_orientation: apply the EXIF orientation. False: the raster as it is stored.
      use_fast_idct: JPEG: the fast integer IDCT, up to 6 levels off, instead of the accurate one.
      jpeg_fancy_upsampling: JPEG chroma is always upsampled smoothly, as DALI does on the CPU whatever this says.
      on_error: "raise": a `jaxdali.SampleError` that names the file. "replace": the sample is replaced and reported by
        `Pipeline.bad_samples()`. Not in DALI, which always raises.
      replace_shape: with on_error="replace": the replacement is a black image of this shape, (H, W, C). None: it is the next
        good sample of the batch. Not in DALI.
      device: "cpu"; "mixed" puts the result on the accelerator.
      name: name of the node.
      affine, bytes_per_sample_hint, cache_batch_copy, cache_debug, cache_size, cache_threshold, cache_type, device_memory_padding,
        device_memory_padding_jpeg2k, host_memory_padding, host_memory_padding_jpeg2k, hw_decoder_load, hybrid_huffman_threshold,
        memory_stats, preallocate_height_hint, preallocate_width_hint, preserve, split_stages, use_chunk_allocator: hints to
        DALI's GPU decoder and executor, without effect here.

    Returns:
      Images, layout HWC, of different sizes.

    Raises:
      ValueError: an unknown `output_type` or `on_error`, or a `replace_shape` that does not fit the output type.
      TypeError: `dtype` is not one of those above, or the input is not 1-D uint8.

    A file that ends early, is damaged so that nothing can be decoded, promises more pixels than its bytes can hold, or (where Pillow
    decodes it) has more than ``PIL.Image.MAX_IMAGE_PIXELS`` allows fails when the batch is made. Damage inside JPEG scan data gives
    the pixels that can be had. Unlike DALI, ANY_DATA works on gray and CMYK JPEG, PNG with gray and alpha, and 32-bit BMP; WebP with
    EXIF is decoded.

    Example:
      >>> jpegs, labels = fn.readers.file(file_root="images")
      >>> images = fn.decoders.image(jpegs, device="mixed", output_type=types.RGB)
    """
    kind = checked_output_type("output_type", output_type)
    element = types.numpy_dtype(dtype)
    if element not in DTYPES:
        raise TypeError(f"decoders.image: dtype must be one of {', '.join(types.dali_type_of(t).name for t in DTYPES)}, got {dtype!r}")
    if on_error not in ("raise", "replace"):
        raise ValueError(f"decoders.image: on_error must be 'raise' or 'replace', got {on_error!r}")
    shape = None
    if replace_shape is not None:
        shape = tuple(int(n) for n in replace_shape)
        if on_error != "replace":
            raise ValueError("decoders.image: replace_shape is used with on_error='replace' only")
        channels = num_channels(kind)
        if len(shape) != 3 or min(shape) < 1 or shape[2] not in ((1, 2, 3, 4) if channels is None else (channels,)):
            raise ValueError(f"decoders.image: replace_shape must be (height, width, {channels or 'channels'}), got {tuple(replace_shape)}")
    op = DecodeImage(
        output_type=kind, dtype=element, adjust_orientation=bool(adjust_orientation), use_fast_idct=bool(use_fast_idct), on_error=on_error
    )
    headers = ImageHeaders(images=op, on_device=device in ("mixed", "gpu"), replace_shape=shape)
    payload, info, tables = add(headers, input, device="cpu")
    return add(op, payload, info, tables, device=device, name=name)
