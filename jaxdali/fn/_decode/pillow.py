"""Decoding with Pillow, imagecodecs and pillow-heif in the host pass: what the native decoders do not read."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ..._core.system import show_name
from ..._cpu import Format, Info, Status
from .formats import AS_INDICES, NAMES, DecodeError, errors_of_libraries, heic_image, library, pillow_image

_MODE = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
# Imagecodecs' functions.
_DEEP = {Format.JPEG: "jpeg_decode", Format.JPEG2000: "jpeg2k_decode", Format.PNG: "png_decode"}
_USED = [
    Info.FORMAT,
    Info.HEIGHT,
    Info.WIDTH,
    Info.CHANNELS,
    Info.DEPTH,
    Info.ORIENTATION,
    Info.ORIENTATION_AT,
    Info.PAGE,
    Info.PALETTE,
]


@functools.lru_cache(maxsize=8)
def _threads(num_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(num_threads, "jaxdali-pillow", show_name)


def decode_all(images: Sequence[tuple[np.ndarray, np.ndarray]], num_threads: int) -> list[np.ndarray | DecodeError]:
    """Decodes images on `num_threads` threads (Pillow releases the GIL while it decodes).

    Args:
      images: (encoded bytes u8, info row as `fn.decoders.parse_headers` gives it).
      num_threads: threads to use.

    Returns:
      For each the stored raster, ``[H, W, C]`` as the header says, uint8 or uint16 in full range, or the error.
    """
    if len(images) <= 1 or num_threads <= 1:
        return [_decode_or_error(x) for x in images]
    return list(_threads(num_threads).map(_decode_or_error, images))


def _decode_or_error(image: tuple[np.ndarray, np.ndarray]) -> np.ndarray | DecodeError:
    try:
        with errors_of_libraries():
            return decode(*image)
    except DecodeError as e:
        return e


def decode(encoded: np.ndarray, info: np.ndarray) -> np.ndarray:
    """Decodes one image to its stored raster; raises `DecodeError`, or whatever the codec raises."""
    kind, height, width, channels, depth, orientation, orientation_at, page, palette = info[_USED].tolist()
    data = encoded.tobytes()
    if kind == Format.TIFF and orientation != 1 and orientation_at >= 0:
        # Pillow rotates TIFF images upright by itself, but not others. The images here need no rotation.
        one = b"\1\0" if data[:2] == b"II" else b"\0\1"
        data = data[:orientation_at] + one + data[orientation_at + 2 :]
    codecs = library("imagecodecs")
    if palette == AS_INDICES:
        pixels = _indices(data, kind, page)
    elif kind == Format.HEIC:
        pixels = np.asarray(heic_image(data, page))
    elif kind == Format.JPEG_XL:
        assert codecs is not None  # its header could not be read otherwise
        pixels = _scaled(codecs.jpegxl_decode(data, index=0, keeporientation=True, numthreads=1), channels, depth)
    elif kind == Format.AVIF and codecs is not None and _is_still(data):  # faster than Pillow, and with all bits
        pixels = _scaled(codecs.avif_decode(data, numthreads=1), channels, depth)
    elif kind == Format.PNM and depth > 8:
        pixels = _deep_pnm(data, height, width, channels)
    elif depth > 8:
        pixels = _deep(data, kind, channels, depth)
    else:
        pixels = _pillow(data, kind, channels, height, width, page)
    pixels = pixels.reshape(pixels.shape if pixels.ndim == 3 else (*pixels.shape, 1))
    if pixels.shape != (height, width, channels):
        raise DecodeError(
            Status.SIZE_MISMATCH,
            f"the decoded image has shape {pixels.shape}, its header says {(height, width, channels)}",
        )
    return np.ascontiguousarray(pixels)


def _is_still(avif: bytes) -> bool:
    """Whether imagecodecs can decode a file. It writes outside of its memory when it is asked for one frame of an
    animation.
    """
    with pillow_image(avif, Format.AVIF) as im:
        return im.n_frames == 1


def _pillow(data: bytes, kind: int, channels: int, height: int, width: int, page: int) -> np.ndarray:
    from PIL import Image

    mode = _MODE[channels]

    def load(level: int, factor: int) -> np.ndarray:
        with pillow_image(data, kind) as im:
            if page:
                im.seek(page)
            if level:
                im.reduce = level  # pyright: ignore[reportAttributeAccessIssue]
                im.load()  # sets its size
            whole = im if im.mode == mode else im.convert(mode)
            return np.asarray(Image.Image.reduce(whole, factor) if factor > 1 else whole)

    wanted = 0
    if kind == Format.JPEG2000:
        with pillow_image(data, kind) as im:
            wanted = _level(im.size, (width, height))
    # A level that the file lacks is an error, and so is one whose size Pillow rounds down where the format rounds up:
    # the next larger one is taken then. A damaged file fails at all levels.
    for level in range(wanted, 0, -1):
        with contextlib.suppress(OSError):
            return load(level, 1 << (wanted - level))
    return load(0, 1 << wanted)


def _indices(data: bytes, kind: int, page: int) -> np.ndarray:
    """The indices of a palette. Pillow calls an image gray if the palette's colours are the grays of their indices."""
    with pillow_image(data, kind) as im:
        if page:
            im.seek(page)
        if im.mode not in ("P", "PA", "L", "1"):
            reason = f'palette="index": picture {page} has no palette of its own, Pillow makes it of the colours of the pictures before'
            raise DecodeError(Status.UNSUPPORTED, reason)
        pixels = np.asarray(im)
    return (pixels[..., 0] if pixels.ndim == 3 else pixels).astype(np.uint8)


def _level(size: tuple[int, int], wanted: tuple[int, int]) -> int:
    """The resolution level at which an image has the size that is wanted: each level halves it, rounded up. 0: none
    has, or the whole.
    """
    return next((n for n in range(4) if (-(-size[0] >> n), -(-size[1] >> n)) == wanted), 0)


def _deep(data: bytes, kind: int, channels: int, depth: int) -> np.ndarray:
    """Images of more than 8 bits, as uint16 scaled to full range."""
    codecs = library("imagecodecs")
    white_is_zero = False
    if kind == Format.TIFF:
        with pillow_image(data, kind) as im:
            tags: Any = im.tag_v2
            white_is_zero, planar = tags.get(262) == 0, tags.get(284) == 2
            pixels = np.asarray(im).astype(np.uint16) if codecs is None and im.mode.startswith("I;16") else None
        if codecs is not None:
            pixels = codecs.tiff_decode(data, index=0)
            if planar and pixels.ndim == 3:
                pixels = np.moveaxis(pixels, 0, -1)
        elif pixels is None:
            raise DecodeError(Status.UNSUPPORTED, _needs_imagecodecs("TIFF"))
    elif codecs is None:
        raise DecodeError(Status.UNSUPPORTED, _needs_imagecodecs(NAMES[Format(kind)]))
    else:
        pixels = getattr(codecs, _DEEP[Format(kind)])(data)
    return _scaled(pixels, channels, depth, white_is_zero)


def _scaled(pixels: np.ndarray, channels: int, depth: int, white_is_zero: bool = False) -> np.ndarray:
    """Pixels with these channels, and values of more than 8 bits scaled to those of uint16."""
    if pixels.ndim == 3 and pixels.shape[2] > channels:
        pixels = pixels[:, :, :channels]  # extra samples
    if pixels.dtype != (np.uint16 if depth > 8 else np.uint8):
        raise DecodeError(Status.UNSUPPORTED, f"samples of type {pixels.dtype} are not supported")
    full = (1 << depth) - 1
    if white_is_zero:
        pixels = full - np.minimum(pixels, full)
    if 8 < depth < 16:
        pixels = ((pixels.astype(np.uint32) * 65535 + full // 2) // full).astype(np.uint16)
    return pixels


def _deep_pnm(data: bytes, height: int, width: int, channels: int) -> np.ndarray:
    """PGM and PPM with a maximum above 255. Pillow reduces them to 8 bits if they are in colour."""
    fields, at = [], 2
    while len(fields) < 3:
        if data[at : at + 1] == b"#":
            while data[at : at + 1] not in (b"\n", b"\r", b""):
                at += 1
        elif data[at : at + 1].isspace():
            at += 1
        else:
            end = at
            while data[end : end + 1].isdigit():
                end += 1
            fields.append(int(data[at:end]))
            at = end
    full, count = fields[2], height * width * channels
    if data[1:2] in b"56":
        values = np.frombuffer(data[at + 1 : at + 1 + 2 * count], ">u2")
    else:
        values = np.array(data[at:].split()[:count], np.uint32)
    if values.size < count:
        raise DecodeError(Status.TRUNCATED, "the image data end early (truncated file)")
    values = np.minimum(values, full).astype(np.uint64)
    return ((values * 65535 + full // 2) // full).astype(np.uint16).reshape(height, width, channels)


def _needs_imagecodecs(kind: str) -> str:
    return f"{kind} of more than 8 bits needs the package imagecodecs: pip install jaxdali[formats]"
