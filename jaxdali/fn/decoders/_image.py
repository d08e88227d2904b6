"""decoders.image: decodes whole images."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Literal, Unpack

from ... import types
from ..._core.arguments import Arguments
from ..._core.building import is_node
from ..._core.declaration import DType, Len, OneOf, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Input, PerSample, operator_function
from .._decode.cache import CacheOptions, parse_bytes
from .._decode.decode import DecodeImage
from .._decode.decode_arguments import DTYPES
from .._decode.headers import ImageHeaders
from ._decoder import MAX_PIXELS, RegionHints, add_decoder, page_argument


class ImageHints(RegionHints, total=False):
    """Hints about DALI's cache of decoded images."""

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
    page: Annotated[PerSample[int], Range(0)] = 0,
    palette: Literal["color", "index"] = "color",
    truncated: Literal["error", "accept"] = "error",
    dct_scaling: bool = False,
    cache: int | str | None = None,
    cache_size: Annotated[int, Range(0)] = 0,
    cache_threshold: Annotated[int, Range(0)] = 0,
    cache_type: Literal["", "threshold", "largest"] = "",
    device: Literal["cpu", "mixed", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[ImageHints],
) -> DataNode:
    """Decodes images: JPEG, PNG, WebP, GIF, BMP, TIFF, PNM, JPEG 2000, AVIF, JPEG XL and HEIC, of 1 to 16 bits.

    JPEG is decoded to libjpeg-turbo's pixels (the same as Pillow's), PNG to libpng's, WebP to libwebp's. Other formats
    are decoded while the batch is prepared, by Pillow or by the packages of ``pip install jaxdali[formats]``:
    imagecodecs for JPEG XL, for AVIF, for TIFF and JPEG 2000 of 16 bits, and for TIFF of many bands or of floats (32
    bits), pillow-heif for HEIC, which becomes 8 bits. Without imagecodecs, Pillow decodes AVIF to 8 bits. Of an
    animation the first frame is decoded; see `page`.

    Args:
      input: encoded images, 1-D uint8, as readers and external_source give them. They are host values. Sequences of
        encoded images are 2-D uint8 with a layout that begins with F, a row of bytes for each, in which anything may
        follow the file: they become FHWC, and all images of a sequence must have one size. Not in DALI.
      output_type: RGB, BGR, GRAY, YCbCr (ITU-R BT.601, studio range) or ANY_DATA. ANY_DATA keeps the channels of the
        file: gray 1, gray with alpha 2, colour 3, colour with alpha 4, where palettes and CMYK count as colour; a gray
        or RGB TIFF has any number of bands. The other types drop alpha, and take the first three of more than two bands
        as RGB. GRAY is the Y plane of a YCbCr JPEG, and 0.299 R + 0.587 G + 0.114 B of any other image.
      dtype: UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT16, BFLOAT16, FLOAT or FLOAT64. Values are scaled to the
        full range of the type: 255 becomes 65535 in UINT16, 1.0 in FLOAT. 16-bit files keep their precision. So does a
        TIFF of floats, whose values stay as they are in FLOAT, also beyond 0 to 1. In integer types, those beyond the
        type's range become its limits, and NaN becomes 0. A TIFF of signed integers is refused.
      adjust_orientation: whether to apply the EXIF orientation, the first valid one in the file; if False, the raster
        is returned as it is stored.
      use_fast_idct: for JPEG, use the fast integer IDCT, which is up to 6 levels off, instead of the accurate one. It
        has no effect where a GPU's kernels decode, as in DALI.
      jpeg_fancy_upsampling: has no effect: JPEG chroma is always upsampled smoothly, as by DALI on the CPU.
      on_error: with "raise", a file that can't be decoded is a `jaxdali.SampleError` that names it. With "replace", the
        sample is replaced, and `Pipeline.bad_samples()` reports it. DALI always raises.
      replace_shape: with on_error="replace", the replacement is a black image of this shape, (H, W, C). If None, it is
        the next valid sample of the batch. Not in DALI.
      max_pixels: a file whose header promises more pixels than this fails, and so does an AVIF with a larger frame and
        a TIFF with larger tiles; every four bands of a TIFF count as a pixel, and so does each band of floats. Nothing of
        it is decoded: a file of a few hundred kB can hold gigabytes. The default, 178,956,970, is where Pillow refuses.
        For what Pillow decodes, Pillow's own limit (``PIL.Image.MAX_IMAGE_PIXELS``) applies as well. DALI has no limit.
      page: number of the picture in a file that holds several: pages of a TIFF, pictures of a HEIC (0 is the primary
        one), frames of an animated GIF, PNG, WebP or AVIF. Of a JPEG XL there is only the first. A sample whose file
        has fewer fails. May be per sample. Not in DALI.
      palette: with "index", an image of a palette (PNG, GIF, BMP or TIFF) becomes its indices, uint8 of one channel, as
        ``np.asarray(PIL.Image.open(path))`` gives them: the class numbers of masks such as those of PASCAL VOC and
        DAVIS. A file without a palette fails, and so does a later frame of a GIF, which Pillow makes of colours. Not in
        DALI.
      truncated: with "accept", a JPEG that ends early, progressive or not, becomes what libjpeg-turbo shows of it: what
        is missing is gray, or coarse. With "error" it fails. An end before the first byte of the picture, and every
        other format that ends early, fails in both cases. Not in DALI.
      dct_scaling: decode a JPEG, a WebP, or a JPEG 2000 of 8 bits by its resolution levels, at 1/2, 1/4 or 1/8 of its
        size, in less time (a WebP gains little), if a following `resize` or `resize_crop_mirror` shrinks it anyway. The
        decoded image is never smaller than the result of the resize. This changes pixels a little (a JPEG 2000 moves by
        up to half a decoded pixel), and it changes sizes that follow from the image's, as with `resize_shorter`, by at
        most one. It has no effect where something else reads the images, where the resize has regions, or sizes per
        sample that a program makes, or where a GPU's kernels decode. Not in DALI.
      cache: how many bytes of decoded images to keep in memory between epochs: a number, or a string with a unit such
        as "256MB". The least recently used images are dropped first. An image is identified by the bytes of its file
        and by the arguments that determine its pixels. All decoders of the process with equal cache arguments share one
        cache, which lives as long as one of their pipelines or iterators. `Pipeline.statistics` reports how many images
        it served, and its size in bytes. Not in DALI.
      cache_size: the same in megabytes, as in DALI. DALI's cache works only with device="mixed" and uses the GPU's
        memory; this one uses the host's.
      cache_threshold: the size in bytes of the smallest decoded image that is kept.
      cache_type: what happens when the cache is full. With "threshold", no further image is kept; with "largest",
        smaller images are dropped; with "", the least recently used ones are (with "", DALI keeps nothing).
      device: "cpu"; "mixed" puts the result on the accelerator.
      name: the name of the node.

    Returns:
      Images, layout HWC, of different sizes.

    Raises:
      ValueError: an unknown `output_type`, `on_error`, `palette` or `truncated`, a `replace_shape` that does not fit
        the output type, `max_pixels` below 1, a `cache` that is not a number of bytes, both `cache` and `cache_size`,
        or palette="index" with an `output_type` or a `dtype` that indices can't have.
      TypeError: `dtype` is not one of those above, or the input is not encoded images.

    A file fails when its batch is made if it ends early (see `truncated`), if it is too damaged to be decoded, or if it
    promises more pixels than its bytes can hold or `max_pixels` allows. If JPEG scan data are damaged, the pixels that
    can be recovered are returned. Unlike DALI, ANY_DATA works on gray and CMYK JPEG, PNG with gray and alpha, and
    32-bit BMP; WebP with EXIF is decoded. Colour profiles (ICC) are not applied: the values are those of the file, as
    in DALI, Pillow and OpenCV.

    Example:
      >>> jpegs, labels = fn.readers.file(file_root="images")
      >>> images = fn.decoders.image(jpegs, device="mixed", output_type=types.RGB)
    """
    if cache is not None and cache_size:
        raise ArgumentError("either cache or cache_size can be given, not both")
    limit = parse_bytes(cache) if cache is not None else cache_size << 20
    options = CacheOptions(limit, cache_threshold, cache_type) if limit else None
    args, nodes = Arguments.of({"page": page_argument(page)}, is_node)
    return add_decoder(
        DecodeImage,
        functools.partial(ImageHeaders, args=args, cache=options),
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
        dct_scaling=dct_scaling,
        device=device,
        name=name,
    )
