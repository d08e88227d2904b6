"""NumPy arrays to JPEG files, without a pipeline."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from ... import _cpu, types
from ..._core import ffi as _ffi
from ..._core.kinds import is_foreign
from ..._core.tracebacks import boundary

# The number of samples of luma for one of chroma, along a row and down a column (sampling factors, ITU-T T.81 A.1.1).
SUBSAMPLINGS = {"444": (1, 1), "422": (2, 1), "420": (2, 2), "440": (1, 2), "411": (4, 1)}
INPUT_TYPES = (types.RGB, types.BGR, types.GRAY, types.ANY_DATA)
_MAX_EXTENT = 65500  # JPEG_MAX_DIMENSION of libjpeg


@overload
def encode_jpeg(
    images: Sequence[Any],
    /,
    *,
    quality: int = 95,
    subsampling: str = "420",
    input_type: types.DALIImageType = types.RGB,
    num_threads: int = 1,
) -> list[bytes]: ...


@overload
def encode_jpeg(
    images: Any,
    /,
    *,
    quality: int = 95,
    subsampling: str = "420",
    input_type: types.DALIImageType = types.RGB,
    num_threads: int = 1,
) -> Any: ...


@boundary
def encode_jpeg(
    images: Any,
    /,
    *,
    quality: int = 95,
    subsampling: str = "420",
    input_type: types.DALIImageType = types.RGB,
    num_threads: int = 1,
) -> Any:
    """Encodes images as baseline JPEG files by libjpeg-turbo, outside any pipeline, without the GIL; not in DALI.

    Args:
      images: one image, uint8 ``[height, width, channels]`` or gray ``[height, width]``; or many: a list of images, an
        array ``[N, height, width, channels]``, or a `dynamic.Batch`, whose layout may be HWC, CHW or HW. An array is
        one of NumPy, JAX, PyTorch or whatever NumPy converts. One channel makes a gray file, three make a color file.
      quality: 1 to 100. The tables are those of libjpeg, as in Pillow and OpenCV.
      subsampling: of the colors: "444" (none), "422" (half of the columns), "440" (half of the rows), "420" (half of
        both), "411" (a quarter of the columns). A gray file has no colors.
      input_type: RGB or BGR says the order of three channels. GRAY takes gray images alone. ANY_DATA is what
        `decode_jpeg` gives by that type: gray or RGB.
      num_threads: how many threads encode different images.

    Returns:
      bytes of one image, a list of bytes of many.

    Raises:
      ValueError: an image is empty, larger than 65,500 pixels a side, or has another number of channels; `quality`,
        `subsampling`, `input_type` or `num_threads` is none of the above. Says which image of a list.
      TypeError: an image is no uint8 array.

    Example:
      >>> data = jaxdali.encode_jpeg(jaxdali.decode_jpeg(data), quality=80)
      >>> files = jaxdali.encode_jpeg(jd.resize(jd.decoders.image(files), size=(224, 224)), subsampling="444", num_threads=4)
    """
    if isinstance(quality, bool) or not 1 <= operator.index(quality) <= 100:
        raise ValueError(f"encode_jpeg: quality must be 1 to 100, got {quality}")
    if not isinstance(subsampling, str) or subsampling not in SUBSAMPLINGS:
        raise ValueError(
            f"encode_jpeg: subsampling must be one of {', '.join(map(repr, SUBSAMPLINGS))}, got {subsampling!r}"
        )
    if input_type not in INPUT_TYPES or is_foreign(input_type, types.DALIImageType):
        raise ValueError(
            f"encode_jpeg: input_type must be one of {', '.join(f'types.{t.name}' for t in INPUT_TYPES)}, got {input_type!r}"
        )
    if isinstance(num_threads, bool) or operator.index(num_threads) < 1:
        raise ValueError(f"encode_jpeg: num_threads must be 1 or more, got {num_threads}")

    samples, layout = _samples(images)
    single = samples is None
    arrays: list[np.ndarray] = []
    for i, sample in enumerate([images] if samples is None else samples):
        subject = "images" if single else f"image {i}"
        arrays.append(_pixels(sample, layout, f"encode_jpeg: {subject}", input_type))

    pool = _cpu.pool_create(min(num_threads, len(arrays) or 1))
    try:
        files = _cpu.encode_jpegs(arrays, quality, *SUBSAMPLINGS[subsampling], bgr=input_type == types.BGR, pool=pool)
    finally:
        _cpu.pool_destroy(pool)
    # A number in place of a file is a status code.
    for i, file in enumerate(files):
        if isinstance(file, int):
            raise ValueError(f"encode_jpeg: {'' if single else f'image {i}: '}{_ffi.STATUS[file]}")
    return files[0] if single else files


def _samples(images: Any) -> tuple[Sequence[Any] | None, str]:
    """The images of a batch, or None if `images` is one image, and their layout."""
    if isinstance(images, (list, tuple)):
        return images, ""
    if hasattr(images, "samples"):  # a dynamic.Batch, of a package above this one
        return images.samples(), images.layout
    if getattr(images, "ndim", 0) == 4:
        return list(np.asarray(images)), ""
    layout = getattr(images, "layout", "")  # of a dynamic.Tensor; torch has something else under that name
    return None, layout if isinstance(layout, str) else ""


def _pixels(sample: Any, layout: str, subject: str, input_type: types.DALIImageType) -> np.ndarray:
    """An image as ``u8[height, width, channels]``, without a copy where that is possible."""
    if isinstance(sample, (bytes, bytearray, memoryview, str)):
        raise TypeError(f"{subject} must be a uint8 array of pixels, got {type(sample).__name__}")
    try:
        x = np.asarray(sample)
    except (TypeError, ValueError) as e:
        raise TypeError(f"{subject} must be a uint8 array of pixels, got {type(sample).__name__}: {e}") from None
    if x.dtype != np.uint8:
        raise TypeError(f"{subject} must be uint8, got {x.dtype if x.dtype != object else type(sample).__name__}")
    if layout not in ("", "HWC", "CHW", "HW"):
        raise ValueError(f"{subject} must have the layout HWC, CHW or HW, got {layout!r}")
    if layout == "CHW":
        x = np.moveaxis(x, 0, -1)
    if x.ndim == 2:
        x = x[:, :, None]
    channel_counts = (1,) if input_type == types.GRAY else (1, 3)
    if x.ndim != 3 or x.shape[2] not in channel_counts:
        form = (
            "[height, width] or [height, width, 1]"
            if channel_counts == (1,)
            else "[height, width] or [height, width, 1 or 3]"
        )
        raise ValueError(f"{subject} must be {form}, got {list(np.shape(sample))}")
    if not 1 <= min(x.shape[:2]) <= max(x.shape[:2]) <= _MAX_EXTENT:
        raise ValueError(
            f"{subject} must have 1 to {_MAX_EXTENT} rows and columns, got {x.shape[0]} x {x.shape[1]} (height x width)"
        )
    return np.ascontiguousarray(x)
