"""Decoding by Pillow, imagecodecs and pillow-heif in the host pass, for images without a native decoder."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np

from ..._core.system import map_on_threads
from ..._cpu import Format, Info, Status
from . import tiff
from .formats import AS_INDICES, NAMES, DecodeError, errors_of_libraries, heic_image, library, pillow_image

_PILLOW_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}  # by the number of channels
# Functions of imagecodecs for images of more than 8 bits, besides TIFF.
_DEEP_DECODERS = {Format.JPEG: "jpeg_decode", Format.JPEG2000: "jpeg2k_decode", Format.PNG: "png_decode"}
_USED_COLUMNS = [
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


def decode_all(images: Sequence[tuple[np.ndarray, np.ndarray]], num_threads: int) -> list[np.ndarray | DecodeError]:
    """Decodes images on `num_threads` threads (Pillow releases the GIL while it decodes).

    Args:
      images: (encoded bytes u8, info row of `info_rows.parse_headers`) of each.
      num_threads: threads to use.

    Returns:
      For each image its stored raster, ``[H, W, C]`` as the header says, uint8 or uint16 in full range or float32, or
      the error.
    """
    return map_on_threads(_decode_or_error, images, num_threads, "jaxdali-pillow")


def _decode_or_error(image: tuple[np.ndarray, np.ndarray]) -> np.ndarray | DecodeError:
    """The result of `decode` for (encoded bytes, info row), or the error that it raises."""
    try:
        with errors_of_libraries():
            return decode(*image)
    except DecodeError as e:
        return e


def decode(encoded: np.ndarray, info: np.ndarray) -> np.ndarray:
    """Decodes one image to its stored raster; raises `DecodeError`, or whatever the codec raises."""
    kind, height, width, channels, depth, orientation, orientation_at, page, palette = info[_USED_COLUMNS].tolist()
    data = encoded.tobytes()
    if kind == Format.TIFF and orientation != 1 and orientation_at >= 0:
        # Pillow turns TIFF images upright, but no others. A raster here must not be turned, so the file's orientation
        # becomes 1, in its byte order.
        upright = b"\1\0" if data[:2] == b"II" else b"\0\1"
        data = data[:orientation_at] + upright + data[orientation_at + 2 :]
    codecs = library("imagecodecs")
    # Without imagecodecs, Pillow makes an opaque alpha of a second gray sample or a fourth of RGB that is no alpha.
    counts_of_pillow = (2, 4) if codecs is None else ()
    if kind == Format.TIFF and (
        depth > 8 or (channels not in counts_of_pillow and not tiff.Samples.of(data).are_common)
    ):
        pixels = _decode_samples(data, channels, depth)
    elif palette == AS_INDICES:
        pixels = _decode_indices(data, kind, page)
    elif kind == Format.HEIC:
        pixels = np.asarray(heic_image(data, page))
    elif kind == Format.JPEG_XL:
        assert codecs is not None  # its header could not be read otherwise
        pixels = _to_full_range(
            codecs.jpegxl_decode(data, index=0, keeporientation=True, numthreads=1), channels, depth
        )
    elif kind == Format.AVIF and codecs is not None and _is_still(data):  # faster than Pillow, and with all bits
        pixels = _to_full_range(codecs.avif_decode(data, numthreads=1), channels, depth)
    elif kind == Format.PNM and depth > 8:
        pixels = _decode_deep_pnm(data, height, width, channels)
    elif depth > 8:
        pixels = _decode_deep(data, kind, channels, depth)
    else:
        pixels = _decode_by_pillow(data, kind, channels, height, width, page)
    pixels = pixels.reshape(pixels.shape if pixels.ndim == 3 else (*pixels.shape, 1))
    if pixels.shape != (height, width, channels):
        raise DecodeError(
            Status.SIZE_MISMATCH,
            f"the decoded image has shape {pixels.shape}, its header says {(height, width, channels)}",
        )
    return np.ascontiguousarray(pixels)


def _is_still(avif: bytes) -> bool:
    """Whether an AVIF file has one frame, so that imagecodecs can decode it.

    imagecodecs writes outside of its memory when it is asked for one frame of an animation.
    """
    with pillow_image(avif, Format.AVIF) as im:
        return im.n_frames == 1


def _decode_by_pillow(data: bytes, kind: int, channels: int, height: int, width: int, page: int) -> np.ndarray:
    """Decodes an image of 8 bits by Pillow, JPEG 2000 also at a reduced size (`height` and `width`)."""
    from PIL import Image

    mode = _PILLOW_MODES[channels]

    def load(level: int, factor: int) -> np.ndarray:
        """The pixels at a resolution level of JPEG 2000, reduced further by a factor."""
        with pillow_image(data, kind) as im:
            if page:
                im.seek(page)
            if level:
                im.reduce = level  # pyright: ignore[reportAttributeAccessIssue]
                im.load()  # sets its size
            if channels in (1, 3):  # without alpha; Pillow would warn that the transparency of a palette is lost
                im.info.pop("transparency", None)
            whole = im if im.mode == mode else im.convert(mode)
            return np.asarray(Image.Image.reduce(whole, factor) if factor > 1 else whole)

    target_level = 0
    if kind == Format.JPEG2000:
        with pillow_image(data, kind) as im:
            target_level = _resolution_level(im.size, (width, height))
    # A resolution level that the file lacks is an error, and so is one whose size Pillow rounds down where the format
    # rounds up. Then the next larger level is taken, and reduced further. A damaged file fails at all levels.
    for level in range(target_level, 0, -1):
        with contextlib.suppress(OSError):
            return load(level, 1 << (target_level - level))
    return load(0, 1 << target_level)


def _decode_indices(data: bytes, kind: int, page: int) -> np.ndarray:
    """Decodes the indices of a palette.

    Pillow gives a gray image if each of the palette's colours is the gray of its index, which is equal.
    """
    with pillow_image(data, kind) as im:
        if page:
            im.seek(page)
        if im.mode not in ("P", "PA", "L", "1"):
            reason = f'palette="index": picture {page} has no palette of its own, Pillow makes it of the colours of the pictures before'
            raise DecodeError(Status.UNSUPPORTED, reason)
        pixels = np.asarray(im)
    return (pixels[..., 0] if pixels.ndim == 3 else pixels).astype(np.uint8)


def _resolution_level(size: tuple[int, int], target: tuple[int, int]) -> int:
    """The resolution level of JPEG 2000 at which an image has the target size; 0 also if no level has it.

    Each level halves the extents, rounded up.
    """
    return next((n for n in range(4) if (-(-size[0] >> n), -(-size[1] >> n)) == target), 0)


def _decode_deep(data: bytes, kind: int, channels: int, depth: int) -> np.ndarray:
    """Decodes an image of more than 8 bits to uint16, scaled to full range.

    Args:
      kind: the file's `Format`.
      channels: the number of channels by the file's header; further ones are dropped.
      depth: the number of bits of a value in the file.

    Raises:
      DecodeError: imagecodecs is missing, or the values are of another type.
    """
    codecs = library("imagecodecs")
    if codecs is None:
        raise DecodeError(Status.UNSUPPORTED, _needs_imagecodecs(f"{NAMES[Format(kind)]} of more than 8 bits"))
    return _to_full_range(getattr(codecs, _DEEP_DECODERS[Format(kind)])(data), channels, depth)


def _decode_samples(data: bytes, channels: int, depth: int) -> np.ndarray:
    """Decodes a TIFF to its samples: uint8, uint16 in full range, or float32. The arguments are as in `_decode_deep`."""
    samples = tiff.Samples.of(data)
    if samples.slices > 1:
        raise DecodeError(Status.UNSUPPORTED, f"a TIFF of {samples.slices} slices is a volume, which is not supported")
    if samples.bits < 8:
        raise DecodeError(Status.UNSUPPORTED, samples.refusal)
    white_is_zero = samples.photometric == 0
    codecs = library("imagecodecs")
    if codecs is not None:
        pixels = codecs.tiff_decode(data, index=0)
        if samples.planar == 2 and pixels.ndim == 3:
            pixels = np.moveaxis(pixels, 0, -1)
        return _to_full_range(pixels, channels, depth, white_is_zero)
    if depth > 8 and samples.count == 1:
        with pillow_image(data, Format.TIFF) as im:
            if im.mode == "F" or im.mode.startswith("I;16"):
                pixels = np.asarray(im).astype(np.float32 if im.mode == "F" else np.uint16)
                return _to_full_range(pixels, channels, depth, white_is_zero)
    kind = "TIFF of more than 8 bits" if depth > 8 else f"TIFF of {samples.count} samples of this kind"
    raise DecodeError(Status.UNSUPPORTED, _needs_imagecodecs(kind))


def _to_full_range(pixels: np.ndarray, channels: int, depth: int, white_is_zero: bool = False) -> np.ndarray:
    """Drops channels beyond `channels`, and scales values of more than 8 bits to the full range of uint16.

    Args:
      pixels: the values as stored, of `depth` bits: u8, u16 above 8 bits, or f32 for 32 bits, which stays as it is.
      white_is_zero: whether 0 stands for white, so that values are inverted.

    Raises:
      DecodeError: the values are of another type.
    """
    if pixels.ndim == 3 and pixels.shape[2] > channels:
        pixels = pixels[:, :, :channels]  # extra samples
    if pixels.dtype != (np.float32 if depth == 32 else np.uint16 if depth > 8 else np.uint8):
        raise DecodeError(Status.UNSUPPORTED, f"samples of type {pixels.dtype} are not supported")
    maximum = 1 if depth == 32 else (1 << depth) - 1
    if white_is_zero:  # integers must not wrap around; floats may lie outside of 0 to 1
        pixels = maximum - (pixels if depth == 32 else np.minimum(pixels, maximum))
    if 8 < depth < 16:
        # Rounded to the nearest.
        pixels = ((pixels.astype(np.uint32) * 65535 + maximum // 2) // maximum).astype(np.uint16)
    return pixels


def _decode_deep_pnm(data: bytes, height: int, width: int, channels: int) -> np.ndarray:
    """Decodes PGM and PPM with a maximum above 255, which Pillow reduces to 8 bits if they are in colour.

    The header is P2, P3 (decimal numbers), P5 or P6 (binary, big-endian), then width, height and maximum, with
    comments from # to the end of a line.
    """
    fields, offset = [], 2  # width, height and maximum
    while len(fields) < 3:
        if data[offset : offset + 1] == b"#":
            while data[offset : offset + 1] not in (b"\n", b"\r", b""):
                offset += 1
        elif data[offset : offset + 1].isspace():
            offset += 1
        else:
            end = offset
            while data[end : end + 1].isdigit():
                end += 1
            fields.append(int(data[offset:end]))
            offset = end
    maximum, count = fields[2], height * width * channels
    # A single white space separates the maximum from binary values.
    if data[1:2] in b"56":
        values = np.frombuffer(data[offset + 1 : offset + 1 + 2 * count], ">u2")
    else:
        values = np.array(data[offset:].split()[:count], np.uint32)
    if values.size < count:
        raise DecodeError(Status.TRUNCATED, "the image data end early (truncated file)")
    values = np.minimum(values, maximum).astype(np.uint64)
    return ((values * 65535 + maximum // 2) // maximum).astype(np.uint16).reshape(height, width, channels)


def _needs_imagecodecs(kind: str) -> str:
    return f"{kind} needs the package imagecodecs: pip install jaxdali[formats]"
