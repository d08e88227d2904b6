"""Headers that only libraries read (AVIF, HEIC, JPEG XL), and files that hold several pictures."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ... import _cpu
from ..._core.ffi import STATUS
from ..._cpu import Format, Info, Status

# What the formats that Pillow decodes are called there.
PILLOW_NAMES = {
    Format.JPEG: "JPEG",
    Format.PNG: "PNG",
    Format.BMP: "BMP",
    Format.TIFF: "TIFF",
    Format.WEBP: "WEBP",
    Format.PNM: "PPM",
    Format.JPEG2000: "JPEG2000",
    Format.GIF: "GIF",
    Format.AVIF: "AVIF",
}
NAMES = {
    kind: kind.name
    for kind in (Format.JPEG, Format.PNG, Format.BMP, Format.TIFF, Format.PNM, Format.GIF, Format.AVIF, Format.HEIC)
}
NAMES |= {Format.WEBP: "WebP", Format.JPEG2000: "JPEG 2000", Format.JPEG_XL: "JPEG XL"}
AS_INDICES = 2  # a value of the column `Info.PALETTE`, see image_header.h
# The usual extensions of each format, in lower case.
EXTENSIONS = {
    Format.JPEG: (".jpg", ".jpeg", ".jpe", ".jfif", ".jfi", ".jif", ".mpo"),
    Format.PNG: (".png", ".apng"),
    Format.BMP: (".bmp", ".dib"),
    Format.TIFF: (".tif", ".tiff"),
    Format.WEBP: (".webp",),
    Format.PNM: (".pnm", ".ppm", ".pgm", ".pbm"),
    Format.JPEG2000: (".jp2", ".j2k", ".j2c", ".jpc", ".jpf", ".jpx"),
    Format.GIF: (".gif",),
    Format.AVIF: (".avif", ".avifs"),
    Format.HEIC: (".heic", ".heif", ".heics", ".heifs", ".hif"),
    Format.JPEG_XL: (".jxl",),
}
_ABOUT_FILES = (Status.TRUNCATED, Status.CORRUPT, Status.UNSUPPORTED, Status.SIZE_MISMATCH, Status.TOO_LARGE)
_BY_LIBRARIES = (Format.AVIF, Format.HEIC, Format.JPEG_XL)  # formats whose headers the native code does not read
# Formats with frames, besides TIFF's pages.
_OF_SEVERAL = (Format.PNG, Format.GIF, Format.WEBP, Format.AVIF, Format.HEIC)


class DecodeError(Exception):
    """A sample that can't be decoded; `code` is its status."""

    def __init__(self, code: int, reason: str):
        super().__init__(reason)
        self.code = code


def parse_header(data: np.ndarray) -> np.ndarray:
    """The info row of one encoded image, ``u8[n]``. Its status says what is wrong."""
    info = np.empty((1, _cpu.INFO_COLUMNS), np.int32)
    _cpu.parse_headers(data.reshape(1, -1), np.zeros(1, np.int32), np.array([data.size]), info)
    complete(info, lambda _: data)
    return info[0]


def failure(kind: int, code: int, reason: str = "") -> str:
    """Why an encoded image can't be decoded. A reason that lies in the file is preceded by the name of its format.

    Args:
      kind: its `Format`; code: its status; reason: what is known in addition to the status.
    """
    name, reason = NAMES.get(Format(kind), ""), reason or STATUS[code]
    return f"{name}: {reason}" if code in _ABOUT_FILES and name and name not in reason else reason


@contextlib.contextmanager
def errors_of_libraries() -> Iterator[None]:
    """Turns what libraries raise on damaged data, which may be anything, into `DecodeError`."""
    from PIL import Image, UnidentifiedImageError

    try:
        yield
    except DecodeError:
        raise
    except MemoryError:
        raise DecodeError(Status.OUT_OF_MEMORY, "out of memory") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as e:
        raise DecodeError(Status.TOO_LARGE, str(e)) from None
    except UnidentifiedImageError:  # its text names an object in memory
        raise DecodeError(Status.CORRUPT, STATUS[Status.CORRUPT]) from None
    except Exception as e:
        code = Status.TRUNCATED if isinstance(e, EOFError) or "truncated" in str(e) else Status.CORRUPT
        raise DecodeError(code, f"{STATUS[code]}: {type(e).__name__}{': ' * bool(str(e))}{e}") from e


def complete(info: np.ndarray, data: Callable[[int], np.ndarray]) -> None:
    """Fills in the rows of formats whose headers libraries read. `data(i)` gives the bytes of a file."""
    for i in np.flatnonzero(
        (info[:, Info.HEIGHT] == 0) & (info[:, Info.STATUS] == 0) & (info[:, Info.FORMAT] != 0)
    ).tolist():
        try:
            _read(data(i).tobytes(), info[i])
        except DecodeError as e:
            info[i, Info.STATUS] = e.code


def reason_of(data: np.ndarray, row: np.ndarray) -> str:
    """Why `complete` refused a file; "" if it did not."""
    row = row.copy()
    if row[Info.FORMAT] not in _BY_LIBRARIES or row[Info.HEIGHT]:
        return ""
    try:
        _read(data.tobytes(), row)
    except DecodeError as e:
        return str(e)
    return ""


def of_page(data: np.ndarray, row: np.ndarray, page: int) -> tuple[np.ndarray, np.ndarray]:
    """A picture of a file that holds several.

    Args:
      data: the file. row: its info row. page: number of the picture, above 0.

    Returns:
      (bytes, info row) from which that picture is decoded.

    Raises:
      DecodeError: there is no such picture, or the file is damaged.
    """
    kind, row = row[Info.FORMAT], row.copy()
    if kind == Format.TIFF:
        data = np.frombuffer(_from_directory(data.tobytes(), page), np.uint8)
        return data, parse_header(data)
    if kind == Format.JPEG_XL:  # imagecodecs gives no error for a frame that does not exist
        raise DecodeError(
            Status.UNSUPPORTED, f"page {page}: of a JPEG XL file only the first frame, page 0, is supported"
        )
    if kind not in _OF_SEVERAL:
        raise _no_page(page, 1)
    row[[Info.PAGE, Info.HOST_DECODE]] = page, 1
    if kind == Format.HEIC:
        _read(data.tobytes(), row)
    else:
        with errors_of_libraries(), pillow_image(data.tobytes(), kind) as image:
            count = getattr(image, "n_frames", 1)
        if page >= count:
            raise _no_page(page, count)
    return data, row


def pillow_image(data: bytes, kind: int) -> Any:
    """A file, opened by Pillow as this format and no other."""
    from PIL import Image

    return Image.open(io.BytesIO(data), formats=(PILLOW_NAMES[Format(kind)],))


def heic_image(data: bytes, page: int) -> Any:
    """A picture of a HEIC file, not yet decoded; 0 is the primary one, the others follow in the order of the file."""
    heif: Any = library("pillow_heif")
    if heif is None:
        raise DecodeError(Status.UNSUPPORTED, "HEIC images need the package pillow-heif: pip install jaxdali[formats]")
    images = heif.open_heif(io.BytesIO(data))
    order = [images.primary_index, *(i for i in range(len(images)) if i != images.primary_index)]
    if page >= len(order):
        raise _no_page(page, len(order))
    return images[order[page]]


@functools.cache
def extensions_here() -> tuple[str, ...]:
    """The extensions of the formats that can be decoded with the packages that are installed."""
    from PIL import Image

    Image.init()
    lacking = {kind for kind, name in PILLOW_NAMES.items() if name not in Image.OPEN}
    lacking |= {Format.HEIC} if library("pillow_heif") is None else set()
    lacking |= {Format.JPEG_XL} if library("imagecodecs") is None else set()
    return tuple(x for kind, extensions in EXTENSIONS.items() if kind not in lacking for x in extensions)


@functools.cache
def library(name: str) -> Any:
    """An optional package, or None."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _no_page(page: int, count: int) -> DecodeError:
    return DecodeError(
        Status.OUT_OF_BOUNDS, f"page {page} does not exist: the file holds {count} picture{'s' * (count != 1)}"
    )


def _read(data: bytes, row: np.ndarray):
    """Reads the header of an AVIF, HEIC or JPEG XL file into its info row. Raises `DecodeError`."""
    kind, depth, orientation = row[Info.FORMAT], 8, 1
    with errors_of_libraries():
        if kind == Format.HEIC:
            image = heic_image(data, int(row[Info.PAGE]))
            (width, height), channels = image.size, len(image.mode.split(";")[0])
        elif kind == Format.AVIF:
            _need_avif()
            with pillow_image(data, kind) as image:
                (width, height), channels, orientation = (
                    image.size,
                    len(image.getbands()),
                    image.getexif().get(0x112, 1),
                )
                still = image.n_frames == 1
            depth = _avif_depth(data) if still and library("imagecodecs") is not None else 8
        else:
            if library("imagecodecs") is None:
                raise DecodeError(
                    Status.UNSUPPORTED, "JPEG XL images need the package imagecodecs: pip install jaxdali[formats]"
                )
            height, width, channels, depth, orientation = _JpegXl(data).header()
    if min(height, width) < 1 or not 1 <= channels <= 4:
        raise DecodeError(Status.CORRUPT, STATUS[Status.CORRUPT])
    if height * width * channels > np.iinfo(np.int32).max:
        raise DecodeError(Status.TOO_LARGE, f"the image is too large: {width} x {height} pixels of {channels} channels")
    values = {
        Info.HEIGHT: height,
        Info.WIDTH: width,
        Info.REGION_H: height,
        Info.REGION_W: width,
        Info.CHANNELS: channels,
    }
    values |= {Info.DEPTH: depth, Info.ORIENTATION: orientation if 1 <= orientation <= 8 else 1}
    row[list(values)] = list(values.values())


def _need_avif():
    from PIL import Image

    Image.init()
    if "AVIF" not in Image.OPEN:
        text = "AVIF images need Pillow 11.3 or newer, built with libavif: pip install jaxdali[formats]"
        raise DecodeError(Status.UNSUPPORTED, text)


def _avif_depth(data: bytes) -> int:
    """Bits of a value, from the configuration of the first AV1 image (AV1-ISOBMFF, 2.3.3)."""
    found = re.search(rb"av1C\x81.(.)", data[: 1 << 16], re.DOTALL)
    flags = found[1][0] if found else 0
    return 8 if not flags & 0x40 else 12 if flags & 0x20 else 10


def _from_directory(data: bytes, page: int) -> bytes:
    """A TIFF file whose first directory is that of a page."""
    order = "little" if data[:2] == b"II" else "big"
    big = int.from_bytes(data[2:4], order) == 43
    start, width, count_width, entry = (8, 8, 8, 20) if big else (4, 4, 2, 12)

    def number(at: int, size: int) -> int:
        if at + size > len(data):
            raise DecodeError(Status.TRUNCATED, STATUS[Status.TRUNCATED])
        return int.from_bytes(data[at : at + size], order)

    at, seen = number(start, width), set[int]()
    for n in range(page):
        seen.add(at)
        at = number(at + count_width + entry * number(at, count_width), width)
        if at == 0 or at in seen:
            raise _no_page(page, n + 1)
    return data[:start] + at.to_bytes(width, order) + data[start + width :]


class _JpegXl:
    """The header of a JPEG XL codestream (ISO/IEC 18181-1, annexes C and D), read bit by bit."""

    RATIOS = ((1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))

    def __init__(self, data: bytes):
        stream = data[:4096] if data[:2] == b"\xff\x0a" else _codestream(data)
        self.bits, self.left, self.at = int.from_bytes(stream, "little"), 8 * len(stream), 16

    def u(self, count: int) -> int:
        if self.at + count > self.left:
            raise EOFError
        self.at += count
        return self.bits >> (self.at - count) & ((1 << count) - 1)

    def choice(self, *options: tuple[int, int]) -> int:
        """A number that is coded as one of four (offset, bits)."""
        offset, bits = options[self.u(2)]
        return offset + self.u(bits)

    def enum(self) -> int:
        return self.choice((0, 0), (1, 0), (2, 4), (18, 6))

    def size(self) -> tuple[int, int]:
        """Height and width."""
        small = self.u(1)

        def extent() -> int:
            return 8 * (self.u(5) + 1) if small else self.choice((1, 9), (1, 13), (1, 18), (1, 30))

        height = extent()
        ratio = self.u(3)
        if not ratio:
            return height, extent()
        over, under = self.RATIOS[ratio - 1]
        return height, height * over // under

    def depth(self) -> int:
        """Bits of a value; floating-point values are refused."""
        if self.u(1):
            raise DecodeError(Status.UNSUPPORTED, "JPEG XL of floating-point values is not supported")
        return self.choice((8, 0), (10, 0), (12, 0), (1, 6))

    def header(self) -> tuple[int, int, int, int, int]:
        """Height, width, channels, bits of a value, and EXIF's orientation."""
        height, width = self.size()
        depth, orientation, alpha = 8, 1, False
        if self.u(1):  # everything else has its default
            return height, width, 3, depth, orientation
        if self.u(1):  # fields that few images have
            orientation = 1 + self.u(3)
            if self.u(1):
                self.size()  # as it is meant to be shown
            if self.u(1):
                self._skip_preview()
            if self.u(1):
                self._skip_animation()
        depth = self.depth()
        self.u(1)  # whether 16-bit buffers suffice for modular coding
        extra = self.choice((0, 0), (1, 0), (2, 4), (1, 12))
        for i in range(extra):
            kind = self._extra_channel()
            alpha |= kind == 0 and i == 0
        self.u(1)  # whether colours are XYB
        gray = not self.u(1) and self._is_gray()
        if depth > 16:
            raise DecodeError(Status.UNSUPPORTED, f"JPEG XL of {depth} bits is not supported")
        return height, width, (1 if gray else 3) + alpha, max(depth, 8), orientation

    def _is_gray(self) -> bool:
        self.u(1)  # whether an ICC profile follows
        return self.enum() == 1

    def _skip_preview(self):
        small = self.u(1)

        def extent():
            options = ((16, 0), (32, 0), (1, 5), (33, 9)) if small else ((1, 6), (65, 8), (321, 10), (1345, 12))
            return self.choice(*options)

        extent()
        if not self.u(3):
            extent()

    def _skip_animation(self):
        self.choice((100, 0), (1000, 0), (1, 10), (1, 30))
        self.choice((1, 0), (1001, 0), (1, 8), (1, 10))
        self.choice((0, 0), (0, 3), (0, 16), (0, 32))
        self.u(1)

    def _extra_channel(self) -> int:
        """What a channel besides the colours is; 0: alpha."""
        if self.u(1):
            return 0
        kind = self.enum()
        self.depth()
        self.choice((0, 0), (3, 0), (4, 0), (1, 3))
        self.u(8 * self.choice((0, 0), (0, 4), (16, 5), (48, 10)))
        if kind == 0:
            self.u(1)
        elif kind == 2:  # a spot colour
            self.u(64)
        elif kind == 5:
            self.choice((1, 0), (0, 2), (3, 4), (19, 8))
        return kind


def _codestream(data: bytes) -> bytes:
    """The beginning of the codestream in the boxes of a JPEG XL file."""
    at, parts = 0, b""
    while at + 8 <= len(data) and len(parts) < 4096:
        size, name, head = int.from_bytes(data[at : at + 4]), data[at + 4 : at + 8], 8
        if size == 1:
            size, head = int.from_bytes(data[at + 8 : at + 16]), 16
        end = at + size if size else len(data)
        if end < at + head:
            break
        if name in (b"jxlc", b"jxlp"):
            parts += data[at + head + 4 * (name == b"jxlp") : min(end, at + head + 4096)]
        at = end
    if parts[:2] != b"\xff\x0a":
        raise EOFError
    return parts
