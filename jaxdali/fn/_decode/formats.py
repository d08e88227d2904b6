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
from . import tiff

# Pillow's names of the formats that it decodes.
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
MAX_PIXELS = 178_956_970  # of an image or a frame by default; Pillow raises above this, twice its MAX_IMAGE_PIXELS
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
# Statuses whose reason lies in the file, so that messages name its format.
_FILE_ERRORS = (
    Status.TRUNCATED,
    Status.CORRUPT,
    Status.UNSUPPORTED,
    Status.SIZE_MISMATCH,
    Status.TOO_LARGE,
    Status.TOO_MANY_SCANS,
)
_LIBRARY_FORMATS = (Format.AVIF, Format.HEIC, Format.JPEG_XL)  # formats whose headers the native code does not read
# Formats with frames, besides TIFF's pages.
_FORMATS_WITH_FRAMES = (Format.PNG, Format.GIF, Format.WEBP, Format.AVIF, Format.HEIC)


class DecodeError(Exception):
    """A sample that can't be decoded; `code` is its status."""

    def __init__(self, code: int, reason: str):
        super().__init__(reason)
        self.code = code


def parse_header(data: np.ndarray) -> np.ndarray:
    """The info row of one encoded image, ``u8[n]``. Its status says what is wrong."""
    info = np.empty((1, _cpu.INFO_COLUMNS), np.int32)
    # A packed batch of one file: its bytes, its offset 0, and its size.
    _cpu.parse_headers(data.reshape(1, -1), np.zeros(1, np.int32), np.array([data.size]), info)
    complete_headers(info, lambda _: data)
    return info[0]


def failure(kind: int, code: int, reason: str = "") -> str:
    """The reason why an encoded image can't be decoded. If it lies in the file, the name of the format comes first.

    Args:
      kind: the image's `Format`; code: its status; reason: a more detailed text than that of the status.
    """
    name, reason = NAMES.get(Format(kind), ""), reason or STATUS[code]
    return f"{name}: {reason}" if code in _FILE_ERRORS and name and name not in reason else reason


@contextlib.contextmanager
def errors_of_libraries() -> Iterator[None]:
    """Turns exceptions of any type, which libraries raise on damaged data, into `DecodeError`."""
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


def complete_headers(info: np.ndarray, data: Callable[[int], np.ndarray]) -> None:
    """Fills in the rows of formats whose headers libraries read, and the status of TIFF files that contradict themselves.

    `data(i)` returns the bytes of a file.
    """
    # The native code leaves the height of these images at 0.
    for i in np.flatnonzero(
        (info[:, Info.HEIGHT] == 0) & (info[:, Info.STATUS] == 0) & (info[:, Info.FORMAT] != 0)
    ).tolist():
        try:
            _read_header(data(i).tobytes(), info[i])
        except DecodeError as e:
            info[i, Info.STATUS] = e.code
    for i in np.flatnonzero(info[:, Info.FORMAT] == Format.TIFF).tolist():
        if info[i, Info.STATUS] in (Status.OK, Status.UNSUPPORTED) and _contradiction(data(i), info[i]):
            info[i, Info.STATUS] = Status.CORRUPT


def reason_of(data: np.ndarray, row: np.ndarray) -> str:
    """A detailed reason why a file's header was refused, if there is one; otherwise ""."""
    row = row.copy()
    if row[Info.FORMAT] == Format.TIFF and row[Info.STATUS] == Status.UNSUPPORTED:
        return tiff.Samples.of(data.data).refusal
    if row[Info.FORMAT] == Format.TIFF and row[Info.STATUS] == Status.CORRUPT:
        return _contradiction(data, row)
    if row[Info.FORMAT] not in _LIBRARY_FORMATS or row[Info.HEIGHT]:
        return ""
    try:
        _read_header(data.tobytes(), row)
    except DecodeError as e:
        return str(e)
    return ""


def _contradiction(data: np.ndarray, row: np.ndarray) -> str:
    """The reason if libraries may differ in what they take of a TIFF, so that it counts as damaged; otherwise ""."""
    try:
        samples = tiff.Samples.of(data.data)
    except EOFError:  # its header was refused before
        return ""
    if samples.repeated:
        return f"{STATUS[Status.CORRUPT]}: the tag {samples.repeated} is there twice, with different values"
    # The header has extents if it was read to its end. It leaves out tags of types that libraries may know.
    if row[Info.HEIGHT] and (samples.channels, max(samples.bits, 8)) != (row[Info.CHANNELS], row[Info.DEPTH]):
        return f"{STATUS[Status.CORRUPT]}: the samples of a pixel ({samples}) have tags of unusual types"
    return ""


def select_page(data: np.ndarray, row: np.ndarray, page: int) -> tuple[np.ndarray, np.ndarray]:
    """Selects a picture of a file that holds several.

    Args:
      data: the file.
      row: its info row.
      page: number of the picture, above 0.

    Returns:
      (bytes, info row), from which that picture is decoded.

    Raises:
      DecodeError: there is no such picture, or the file is damaged.
    """
    kind, row = row[Info.FORMAT], row.copy()
    if kind == Format.TIFF:
        data = np.frombuffer(_with_first_directory(data.tobytes(), page), np.uint8)
        row = parse_header(data)
        if reason := reason_of(data, row):  # of this page, not of the file's first
            raise DecodeError(int(row[Info.STATUS]), reason)
        return data, row
    if kind == Format.JPEG_XL:  # imagecodecs gives no error for a frame that does not exist
        raise DecodeError(
            Status.UNSUPPORTED, f"page {page}: of a JPEG XL file only the first frame, page 0, is supported"
        )
    if kind not in _FORMATS_WITH_FRAMES:
        raise _no_page(page, 1)
    row[[Info.PAGE, Info.HOST_DECODE]] = page, 1
    if kind == Format.HEIC:
        _read_header(data.tobytes(), row)
    else:
        with errors_of_libraries(), pillow_image(data.tobytes(), kind) as image:
            count = getattr(image, "n_frames", 1)
        if page >= count:
            raise _no_page(page, count)
    return data, row


def replace_file(row: np.ndarray, pixels: np.ndarray, kind: Format) -> np.ndarray:
    """Writes into an info row that pixels take the place of the file. Returns the pixels as bytes, u8, 1-D.

    Args:
      row: the info row of the file, whose extents and orientation stay.
      pixels: what the host has decoded of the file.
      kind: RAW, the stored raster, which kernels convert and turn upright; or PIXELS, which are finished.
    """
    row[Info.FORMAT], row[Info.DEPTH] = kind, 8 * pixels.itemsize
    row[Info.HOST_DECODE], row[Info.ORIENTATION_AT] = 0, -1  # there is no place of the orientation in a file
    return pixels.reshape(-1).view(np.uint8)


def pillow_image(data: bytes, kind: int) -> Any:
    """A file, opened by Pillow as this format and no other.

    Raises:
      DecodeError: it does not know the samples of this TIFF.
      UnidentifiedImageError: it does not recognize another file.
    """
    from PIL import Image, UnidentifiedImageError

    samples = tiff.Samples.of(data) if kind == Format.TIFF else tiff.Samples()
    if samples.count > tiff.MOST_SAMPLES_OF_PILLOW:
        raise DecodeError(Status.UNSUPPORTED, samples.refusal)
    try:
        return Image.open(io.BytesIO(data), formats=(PILLOW_NAMES[Format(kind)],))
    except UnidentifiedImageError:
        if kind != Format.TIFF:
            raise
        reason = f"the samples of a pixel ({samples}) are not supported, or the file is damaged"
        raise DecodeError(Status.UNSUPPORTED, reason) from None


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
def decodable_extensions() -> tuple[str, ...]:
    """The extensions of the formats that can be decoded with the packages that are installed."""
    from PIL import Image

    Image.init()
    undecodable = {kind for kind, name in PILLOW_NAMES.items() if name not in Image.OPEN}
    undecodable |= {Format.HEIC} if library("pillow_heif") is None else set()
    undecodable |= {Format.JPEG_XL} if library("imagecodecs") is None else set()
    return tuple(x for kind, extensions in EXTENSIONS.items() if kind not in undecodable for x in extensions)


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


def _read_header(data: bytes, row: np.ndarray):
    """Reads the header of an AVIF, HEIC or JPEG XL file into its info row. Raises `DecodeError`."""
    kind, depth, orientation = row[Info.FORMAT], 8, 1
    with errors_of_libraries():
        if kind == Format.HEIC:
            image = heic_image(data, int(row[Info.PAGE]))
            # A mode such as "RGB" or "RGBA;16": a letter for each channel, and then the bits of a value.
            (width, height), channels = image.size, len(image.mode.split(";")[0])
        elif kind == Format.AVIF:
            _check_avif_support()
            with pillow_image(data, kind) as image:
                (width, height), channels, orientation = (
                    image.size,
                    len(image.getbands()),
                    image.getexif().get(0x112, 1),  # EXIF's tag Orientation
                )
                is_still = image.n_frames == 1
            depth = _avif_depth(data) if is_still and library("imagecodecs") is not None else 8
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


def _check_avif_support():
    """Raises DecodeError if Pillow can't decode AVIF."""
    from PIL import Image

    Image.init()
    if "AVIF" not in Image.OPEN:
        text = "AVIF images need Pillow 11.3 or newer, built with libavif: pip install jaxdali[formats]"
        raise DecodeError(Status.UNSUPPORTED, text)


def _avif_depth(data: bytes) -> int:
    """Bits of a value, from the configuration of the first AV1 image (AV1-ISOBMFF, 2.3.3)."""
    # 0x81: marker and version. Then a byte with profile and level, and one with the flags seq_tier_0 (0x80),
    # high_bitdepth (0x40), twelve_bit (0x20), and others.
    match = re.search(rb"av1C\x81.(.)", data[: 1 << 16], re.DOTALL)
    flags = match[1][0] if match else 0
    return 8 if not flags & 0x40 else 12 if flags & 0x20 else 10


def _with_first_directory(data: bytes, page: int) -> bytes:
    """A TIFF file whose first directory is that of a page.

    A directory of TIFF 6.0 is the number of its entries, the entries, and the offset of the next directory (0: none).
    """
    order = "little" if data[:2] == b"II" else "big"
    is_big = int.from_bytes(data[2:4], order) == 43  # the version of BigTIFF; that of TIFF is 42
    # Bytes: place of the first directory's offset, and sizes of an offset, of the number of entries, and of an entry.
    start, offset_size, count_size, entry_size = (8, 8, 8, 20) if is_big else (4, 4, 2, 12)

    def read_number(offset: int, size: int) -> int:
        if offset + size > len(data):
            raise DecodeError(Status.TRUNCATED, STATUS[Status.TRUNCATED])
        return int.from_bytes(data[offset : offset + size], order)

    directory, visited = read_number(start, offset_size), set[int]()
    for n in range(page):
        visited.add(directory)
        entries_end = directory + count_size + entry_size * read_number(directory, count_size)
        directory = read_number(entries_end, offset_size)
        # A damaged file may have a cycle.
        if directory == 0 or directory in visited:
            raise _no_page(page, n + 1)
    return data[:start] + directory.to_bytes(offset_size, order) + data[start + offset_size :]


class _JpegXl:
    """The header of a JPEG XL codestream (ISO/IEC 18181-1), read bit by bit.

    Each method reads a structure of the standard, or skips over it, and has its name: SizeHeader, BitDepth,
    ImageMetadata, ColourEncoding, PreviewHeader, AnimationHeader and ExtraChannelInfo. The standard codes most numbers
    by U32(d0, d1, d2, d3): two bits choose one of four distributions, each an offset and a number of further bits. A
    tuple here is such a distribution: (32, 0) is the constant 32, and (1, 5) means 1 + u(5).
    """

    # Width to height, by SizeHeader's field `ratio`, from 1 on.
    RATIOS = ((1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))

    def __init__(self, data: bytes):
        # FF 0A is the signature of a codestream; otherwise it is in boxes. The header begins after these 16 bits.
        stream = data[:4096] if data[:2] == b"\xff\x0a" else _codestream(data)
        self.bits, self.num_bits, self.position = int.from_bytes(stream, "little"), 8 * len(stream), 16

    def u(self, count: int) -> int:
        """u(n) of the standard: the next bits, the least significant first."""
        if self.position + count > self.num_bits:
            raise EOFError
        self.position += count
        return self.bits >> (self.position - count) & ((1 << count) - 1)

    def u32(self, *distributions: tuple[int, int]) -> int:
        """U32 of the standard: a number that is coded by one of four distributions (offset, bits)."""
        offset, bits = distributions[self.u(2)]
        return offset + self.u(bits)

    def enum(self) -> int:
        """Enum of the standard."""
        return self.u32((0, 0), (1, 0), (2, 4), (18, 6))

    def size(self) -> tuple[int, int]:
        """SizeHeader: height and width."""
        is_multiple_of_8 = self.u(1)

        def extent() -> int:
            return 8 * (self.u(5) + 1) if is_multiple_of_8 else self.u32((1, 9), (1, 13), (1, 18), (1, 30))

        height = extent()
        ratio = self.u(3)
        if not ratio:
            return height, extent()
        numerator, denominator = self.RATIOS[ratio - 1]
        return height, height * numerator // denominator

    def depth(self) -> int:
        """BitDepth: bits of a value; floating-point values are refused."""
        if self.u(1):
            raise DecodeError(Status.UNSUPPORTED, "JPEG XL of floating-point values is not supported")
        return self.u32((8, 0), (10, 0), (12, 0), (1, 6))

    def header(self) -> tuple[int, int, int, int, int]:
        """SizeHeader and ImageMetadata: height, width, channels, bits of a value, and EXIF's orientation."""
        height, width = self.size()
        depth, orientation, has_alpha = 8, 1, False
        if self.u(1):  # all_default of ImageMetadata
            return height, width, 3, depth, orientation
        if self.u(1):  # extra_fields
            orientation = 1 + self.u(3)
            if self.u(1):  # have_intr_size: the size at which the image is meant to be shown
                self.size()
            if self.u(1):  # have_preview
                self._skip_preview()
            if self.u(1):  # have_animation
                self._skip_animation()
        depth = self.depth()
        self.u(1)  # modular_16bit_buffers
        num_extra_channels = self.u32((0, 0), (1, 0), (2, 4), (1, 12))
        for i in range(num_extra_channels):
            kind = self._extra_channel()
            has_alpha |= kind == 0 and i == 0  # alpha, if it is the first one
        self.u(1)  # xyb_encoded
        is_gray = not self.u(1) and self._is_gray()  # all_default of ColourEncoding means sRGB
        if depth > 16:
            raise DecodeError(Status.UNSUPPORTED, f"JPEG XL of {depth} bits is not supported")
        return height, width, (1 if is_gray else 3) + has_alpha, max(depth, 8), orientation

    def _is_gray(self) -> bool:
        """ColourEncoding from its second field on: whether the colour space is grey."""
        self.u(1)  # want_icc: whether an ICC profile follows
        return self.enum() == 1  # colour_space: 0 is RGB, 1 grey, 2 XYB, 3 unknown

    def _skip_preview(self):
        """PreviewHeader: its height, and its width if `ratio` does not give it."""
        is_multiple_of_8 = self.u(1)

        def extent():
            distributions = (
                ((16, 0), (32, 0), (1, 5), (33, 9)) if is_multiple_of_8 else ((1, 6), (65, 8), (321, 10), (1345, 12))
            )
            return self.u32(*distributions)

        extent()
        if not self.u(3):  # ratio
            extent()

    def _skip_animation(self):
        """AnimationHeader."""
        self.u32((100, 0), (1000, 0), (1, 10), (1, 30))  # tps_numerator: ticks per second
        self.u32((1, 0), (1001, 0), (1, 8), (1, 10))  # tps_denominator
        self.u32((0, 0), (0, 3), (0, 16), (0, 32))  # num_loops
        self.u(1)  # have_timecodes

    def _extra_channel(self) -> int:
        """ExtraChannelInfo: the type of a channel besides the colours; 0: alpha."""
        if self.u(1):  # d_alpha: alpha with all defaults
            return 0
        kind = self.enum()
        self.depth()
        self.u32((0, 0), (3, 0), (4, 0), (1, 3))  # dim_shift
        self.u(8 * self.u32((0, 0), (0, 4), (16, 5), (48, 10)))  # the channel's name, after its length in bytes
        if kind == 0:  # alpha
            self.u(1)  # alpha_associated
        elif kind == 2:  # a spot colour
            self.u(64)  # red, green, blue and solidity, F16 each
        elif kind == 5:  # a colour filter array
            self.u32((1, 0), (0, 2), (3, 4), (19, 8))  # cfa_channel
        return kind


def _codestream(data: bytes) -> bytes:
    """The beginning of the codestream in the boxes of a JPEG XL file (ISO/IEC 18181-2).

    A box has its size and its type, 4 bytes each (ISO/IEC 14496-12). Size 1 means that 8 bytes with the size follow,
    and size 0 that the box reaches to the file's end. The codestream is one box jxlc, or parts in boxes jxlp, each of
    which begins with a number of 4 bytes.
    """
    # The first 4096 bytes of the codestream, and some more, suffice for its header.
    box, parts = 0, b""
    while box + 8 <= len(data) and len(parts) < 4096:
        size, name, header_size = int.from_bytes(data[box : box + 4]), data[box + 4 : box + 8], 8
        if size == 1:
            size, header_size = int.from_bytes(data[box + 8 : box + 16]), 16
        end = box + size if size else len(data)
        if end < box + header_size:  # damaged: no box ends within its header
            break
        if name in (b"jxlc", b"jxlp"):
            parts += data[box + header_size + 4 * (name == b"jxlp") : min(end, box + header_size + 4096)]
        box = end
    if parts[:2] != b"\xff\x0a":
        raise EOFError
    return parts
