"""Image decoders of several libraries, and their CPU time on the user's files."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import importlib
import importlib.metadata
import importlib.util
import io
import operator
import pathlib
import statistics
import struct
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import PIL
from PIL import Image

from .. import __version__, _cpu, types
from ..fn._decode import pillow as _pillow
from ..fn._decode.formats import failure, parse_header, reason_of, replace_file
from ._definitions import UsageError

# --- decoders --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class LibraryDecoder:
    """A library's decoder.

    Attributes:
      name: library and version.
      decode: function from the bytes of a file to uint8 RGB ``[height, width, 3]``, in one thread. It does not apply
        the EXIF orientation.
      formats: formats that it decodes, by Pillow's names; empty: each file is tried.
    """

    name: str
    decode: Callable[[bytes], np.ndarray]
    formats: frozenset[str] = frozenset()


REFERENCE = "Pillow"  # always installed


@contextlib.contextmanager
def installed() -> Iterator[tuple[list[LibraryDecoder], dict[str, str]]]:
    """The installed decoders, jaxdali's first, and reasons why other installed ones can't be used, by library."""
    with contextlib.ExitStack() as stack:
        decoders, unusable = [_of_jaxdali(stack), _of_pillow()], dict[str, str]()
        for name, module, make in _LIBRARIES:
            try:
                if importlib.util.find_spec(module) is not None:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        decoders.append(make(importlib.import_module(module)))
            except Exception as e:  # for example, a library that a package needs is missing
                unusable[name] = _first_line(e)
        yield decoders, unusable


def _of_jaxdali(stack: contextlib.ExitStack) -> LibraryDecoder:
    """jaxdali's decoder, with a thread pool of one thread that `stack` destroys."""
    pool = _cpu.pool_create(1)
    stack.callback(_cpu.pool_destroy, pool)

    def decode(data: bytes) -> np.ndarray:
        encoded = np.frombuffer(data, np.uint8)
        # The facts about the file, `i32[columns]`. `Info` numbers the columns.
        row, Info = parse_header(encoded), _cpu.Info
        if row[Info.STATUS]:
            raise ValueError(failure(row[Info.FORMAT], int(row[Info.STATUS]), reason_of(encoded, row)))
        # As in pipelines: Pillow or imagecodecs decode, and the kernel converts their raster to RGB.
        if row[Info.HOST_DECODE]:
            encoded = replace_file(row, _pillow.decode(encoded, row), _cpu.Format.RAW)
        out = np.empty((int(row[Info.HEIGHT]), int(row[Info.WIDTH]), 3), np.uint8)
        (code,) = _cpu.decode_images(
            [encoded], row[None], [out], int(types.RGB), adjust_orientation=False, fast_idct=False, pool=pool
        )
        if code:
            raise ValueError(failure(row[Info.FORMAT], code))
        return out

    return LibraryDecoder(f"jaxdali {__version__}", decode)


def _of_pillow() -> LibraryDecoder:
    def decode(data: bytes) -> np.ndarray:
        with Image.open(io.BytesIO(data)) as image:
            return np.asarray(image.convert("RGB"))

    return LibraryDecoder(f"{REFERENCE}{'-SIMD' * ('.post' in PIL.__version__)} {PIL.__version__}", decode)


def _of_simplejpeg(simplejpeg: Any) -> LibraryDecoder:
    return LibraryDecoder(
        f"simplejpeg {_version('simplejpeg')}",
        functools.partial(simplejpeg.decode_jpeg, colorspace="RGB"),
        frozenset({"JPEG"}),
    )


def _of_turbojpeg(turbojpeg: Any) -> LibraryDecoder:
    decode = functools.partial(turbojpeg.TurboJPEG().decode, pixel_format=turbojpeg.TJPF_RGB)
    return LibraryDecoder(f"PyTurboJPEG {_version('PyTurboJPEG')}", decode, frozenset({"JPEG"}))


def _of_opencv(cv2: Any) -> LibraryDecoder:
    """OpenCV's decoder, in one thread."""
    cv2.setNumThreads(1)
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION

    # All versions decode to BGR; newer ones also to RGB, which saves the conversion.
    def decode(data: bytes) -> np.ndarray:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
        if pixels is None:
            raise ValueError("imdecode returns None")
        return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB, pixels)

    def decode_rgb(data: bytes) -> np.ndarray:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)
        if pixels is None:
            raise ValueError("imdecode returns None")
        return pixels

    return LibraryDecoder(f"OpenCV {cv2.__version__}", decode_rgb if hasattr(cv2, "IMREAD_COLOR_RGB") else decode)


def _of_imagecodecs(imagecodecs: Any) -> LibraryDecoder:
    """The decoders of imagecodecs, which has a function for each format. An installation may lack some."""
    names_of_formats = {
        "JPEG": "jpeg8",
        "PNG": "png",
        "WEBP": "webp",
        "TIFF": "tiff",
        "BMP": "bmp",
        "JPEG2000": "jpeg2k",
    }
    functions = {
        container: getattr(imagecodecs, f"{name}_decode")
        for container, name in names_of_formats.items()
        if hasattr(imagecodecs, f"{name}_decode")
    }

    def decode(data: bytes) -> np.ndarray:
        pixels = functions[_container(data)](data)
        if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3):
            raise ValueError(f"it gives {pixels.dtype}{list(pixels.shape)}")
        if pixels.ndim == 2 or pixels.shape[2] < 3:  # gray, perhaps with alpha
            return np.repeat(pixels.reshape(*pixels.shape[:2], -1)[..., :1], 3, axis=2)
        return pixels[..., :3]

    return LibraryDecoder(f"imagecodecs {_version('imagecodecs')}", decode, frozenset(functions))


def _of_torchvision(torchvision: Any) -> LibraryDecoder:
    """torchvision's decoder, in one thread."""
    import torch

    torch.set_num_threads(1)
    read = importlib.import_module("torchvision.io")

    def decode(data: bytes) -> np.ndarray:
        pixels = read.decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode=read.ImageReadMode.RGB)
        return pixels.permute(1, 2, 0).numpy()  # from CHW to HWC

    return LibraryDecoder(f"torchvision {torchvision.__version__}", decode)


def _of_torchcodec(torchcodec: Any) -> LibraryDecoder:
    """torchcodec's decoder of images, in one thread."""
    import torch

    torch.set_num_threads(1)
    decode_image = importlib.import_module("torchcodec.decoders").decode_image  # from version 0.16 on

    def decode(data: bytes) -> np.ndarray:
        pixels = decode_image(data, mode="RGB")
        # The first frame of an animation, from CHW to HWC.
        return (pixels[0] if pixels.ndim == 4 else pixels).permute(1, 2, 0).numpy()

    return LibraryDecoder(f"torchcodec {torchcodec.__version__}", decode)


_LIBRARIES: Sequence[tuple[str, str, Callable[[Any], LibraryDecoder]]] = (  # name, module, decoder
    ("simplejpeg", "simplejpeg", _of_simplejpeg),
    ("PyTurboJPEG", "turbojpeg", _of_turbojpeg),
    ("OpenCV", "cv2", _of_opencv),
    ("imagecodecs", "imagecodecs", _of_imagecodecs),
    ("torchvision", "torchvision", _of_torchvision),
    ("torchcodec", "torchcodec", _of_torchcodec),
)


def library_names() -> list[str]:
    """The names of the libraries that are compared if they are installed, besides jaxdali and Pillow."""
    return [name for name, *_ in _LIBRARIES]


def _version(distribution: str) -> str:
    return importlib.metadata.version(distribution)


def _first_line(e: BaseException) -> str:
    """The first line of an error's message that is not empty; without a message the error's type."""
    return next((line.strip() for line in str(e).splitlines() if line.strip()), type(e).__name__)


# --- files -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Category:
    """A category of files that are shown together. The fields are the words of its heading."""

    format: str
    size: str
    quality: str

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.format, self.size, self.quality)))


@dataclasses.dataclass(frozen=True)
class File:
    """An image file. `container`: its format by Pillow's name; `pixels`: their number; `size`: in bytes."""

    path: str
    category: Category
    container: str
    pixels: int
    size: int


SIZES = (0.1, 0.5, 2, 8)  # megapixels
QUALITIES = (70, 80, 90)
_MODES = {"RGB": "", "L": "gray", "P": "palette", "RGBA": "with alpha", "LA": "gray with alpha", "1": "1 bit"}


def classify_files(paths: Sequence[str]) -> tuple[list[File], dict[str, str]]:
    """Returns the image files, ordered by category; and the reasons why others can't be read, by path."""
    ordered_files, bad = list[tuple[tuple[Any, ...], File]](), dict[str, str]()
    for path in paths:
        try:
            data = pathlib.Path(path).read_bytes()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of large images, and of tags
                with Image.open(io.BytesIO(data)) as image:
                    order, file = _classify_file(path, data, image)
            ordered_files.append((order, file))
        except Exception as e:
            bad[path] = (
                _first_line(e) if not isinstance(e, PIL.UnidentifiedImageError) else "not an image that Pillow knows"
            )
    return [file for _, file in sorted(ordered_files, key=operator.itemgetter(0))], bad


def _classify_file(path: str, data: bytes, image: Image.Image) -> tuple[tuple[Any, ...], File]:
    """Returns a key that orders files by category (format, size, quality) and path, and the file."""
    container = _container(data) or image.format or ""
    traits = [_MODES.get(image.mode, image.mode)]
    quality = None
    if container == "JPEG":
        if image.info.get("progressive"):
            traits.append("progressive")
        quality = jpeg_quality(image)
    elif container == "WEBP":
        traits.append("lossless" if _is_lossless(data) else "lossy")
    megapixels = image.width * image.height / 1e6
    # For example "JPEG progressive", "PNG palette".
    name = " ".join([{"WEBP": "WebP", "JPEG2000": "JPEG 2000"}.get(container, container), *filter(None, traits)])
    category = Category(
        name,
        _interval_text(megapixels, SIZES, "megapixels"),
        "" if quality is None else f"quality {_interval_text(quality, QUALITIES)}",
    )
    file = File(path, category, container, image.width * image.height, len(data))
    return (
        name,
        sum(megapixels >= limit for limit in SIZES),
        sum((quality or 0) >= limit for limit in QUALITIES),
        path,
    ), file


def _interval_text(value: float, limits: Sequence[float], unit: str = "") -> str:
    """Describes the interval of a number between limits: "below 70", "70 to 80", "90 and more"."""
    k = sum(value >= limit for limit in limits)
    text = (
        f"below {limits[0]}"
        if k == 0
        else f"{limits[-1]} and more"
        if k == len(limits)
        else f"{limits[k - 1]} to {limits[k]}"
    )
    return f"{text} {unit}".rstrip()


def _container(data: bytes) -> str:
    """The format by Pillow's name, from the first bytes of a file; "" for other formats."""
    # Not from Pillow itself, which calls JPEG files with more than one image MPO.
    beginnings = {
        b"\xff\xd8\xff": "JPEG", b"\x89PNG\r\n\x1a\n": "PNG", b"BM": "BMP", b"II*\0": "TIFF", b"MM\0*": "TIFF",
        b"\xff\x4f\xff\x51": "JPEG2000", b"\0\0\0\x0cjP  ": "JPEG2000",
    }  # fmt: skip
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    return next((name for start, name in beginnings.items() if data.startswith(start)), "")


def _is_lossless(webp: bytes) -> bool:
    """Whether the first image of a WebP file is lossless."""
    # RIFF chunks begin after 12 bytes: a name, a size, and data of an even number of bytes. The 16 bytes at the
    # beginning of an ANMF chunk, a frame of an animation, are its header; chunks of the image follow.
    offset = 12
    while offset + 8 <= len(webp):
        name, size = struct.unpack_from("<4sI", webp, offset)
        if name in (b"VP8 ", b"VP8L"):
            return name == b"VP8L"
        offset += 8 + (16 if name == b"ANMF" else size + size % 2)
    return False


# The luminance quantization table of the JPEG standard (ITU-T T.81, table K.1), which libjpeg scales by the quality.
# Only its sum is used, so the order of values does not matter.
_LUMINANCE_TABLE = np.array([
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55,
    14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62,
    18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
])  # fmt: skip


@functools.cache
def _table_sums() -> np.ndarray:
    """The sums of libjpeg's luminance tables for the qualities 1 to 100."""
    # As in libjpeg's jpeg_quality_scaling and jpeg_add_quant_table.
    quality = np.arange(1, 101)
    scale = np.where(quality < 50, 5000 // quality, 200 - 2 * quality)
    return np.clip((_LUMINANCE_TABLE * scale[:, None] + 50) // 100, 1, 255).sum(axis=1)


def jpeg_quality(image: Image.Image) -> int:
    """The quality, 1 to 100, at which the sum of libjpeg's luminance table is nearest to that of the file's table."""
    tables = getattr(image, "quantization", None)
    if not tables:
        raise ValueError("the file has no quantization table")
    luminance_table = tables[min(tables)]  # the first one, by convention
    return int(np.argmin(np.abs(_table_sums() - sum(luminance_table)))) + 1


# --- measurement -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class DecoderResult:
    """A decoder's result on the files of one category.

    Attributes:
      decoder: its name.
      seconds: CPU time per image, the mean over the files that it decodes.
      megapixels: per second of CPU time.
      speed: Pillow's time divided by its time, on the files that both decode; NaN: there are none.
      difference: mean absolute difference of its pixels from Pillow's, on these files, in levels of 0 to 255; NaN: as
        for `speed`.
      decoded: number of files that it decodes.
    """

    decoder: str
    seconds: float
    megapixels: float
    speed: float
    difference: float
    decoded: int


@dataclasses.dataclass(frozen=True)
class Group:
    """The files of one category, and the results of the decoders that decode any of them, the fastest first."""

    category: Category
    files: Sequence[File]
    results: Sequence[DecoderResult]


def compare(
    files: Sequence[File], decoders: Sequence[LibraryDecoder], rounds: int, tick: Callable[[float], object]
) -> tuple[list[Group], dict[str, dict[str, str]]]:
    """Measures all decoders on all files.

    Args:
      files: the files.
      decoders: the decoders, among them Pillow.
      rounds: number of times that each file is decoded. A file's time is the median. The decoders take turns file by
        file.
      tick: called with the number of files done, `rounds` + 1 times for each.

    Returns:
      The results by category; and for each decoder the files that it does not decode, with the reasons.

    Raises:
      UsageError: no file can be decoded.
    """
    failed: dict[str, dict[str, str]] = {decoder.name: {} for decoder in decoders}
    differences: dict[str, dict[str, float]] = {decoder.name: {} for decoder in decoders}
    times: dict[tuple[str, str], list[float]] = collections.defaultdict(list)  # by decoder and path
    for file in files:
        _decode_once(file, decoders, failed, differences)  # not timed
        tick(1)
    for k in range(rounds):
        for file in files:
            data = pathlib.Path(file.path).read_bytes()
            # Each round begins with another decoder, so that none always comes first.
            for decoder in [*decoders[k % len(decoders) :], *decoders[: k % len(decoders)]]:
                if file.path in failed[decoder.name] or not _accepts(decoder, file):
                    continue
                start = time.process_time()  # of all threads, for libraries with threads of their own
                decoder.decode(data)
                times[decoder.name, file.path].append(time.process_time() - start)
            tick(1)
    if not times:
        raise UsageError("no file can be decoded")
    median_times = {key: statistics.median(times_of_file) for key, times_of_file in times.items()}
    groups = collections.defaultdict[Category, list[File]](list)
    for file in files:
        groups[file.category].append(file)
    reference = next(decoder.name for decoder in decoders if decoder.name.startswith(REFERENCE))
    results_by_category = []
    for category, files_of_category in groups.items():
        results = [
            r
            for decoder in decoders
            if (r := _result_of_decoder(decoder.name, reference, files_of_category, median_times, differences))
            is not None
        ]
        results_by_category.append(Group(category, files_of_category, sorted(results, key=lambda r: -r.megapixels)))
    return results_by_category, failed


def _accepts(decoder: LibraryDecoder, file: File) -> bool:
    """Whether a decoder is tried on a file."""
    return not decoder.formats or file.container in decoder.formats


def _decode_once(
    file: File,
    decoders: Sequence[LibraryDecoder],
    failed: dict[str, dict[str, str]],
    differences: dict[str, dict[str, float]],
):
    """Decodes a file by each decoder, to warm up and to compare the pixels.

    Args:
      failed: gets the reason why a decoder fails, by decoder and path.
      differences: gets the mean difference from Pillow's pixels, in levels of 0 to 255, by decoder and path.
    """
    data = pathlib.Path(file.path).read_bytes()
    pixels: dict[str, np.ndarray] = {}
    for decoder in filter(lambda decoder: _accepts(decoder, file), decoders):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                decoded = decoder.decode(data)
            if (
                decoded.dtype != np.uint8
                or decoded.ndim != 3
                or decoded.shape[2] != 3
                or decoded.shape[0] * decoded.shape[1] != file.pixels
            ):
                raise ValueError(f"it gives {decoded.dtype}{list(decoded.shape)}")
            pixels[decoder.name] = decoded
        except Exception as e:
            failed[decoder.name][file.path] = _first_line(e)
    reference = next((p for name, p in pixels.items() if name.startswith(REFERENCE)), None)
    for name, decoded in pixels.items():
        if reference is not None and reference.shape == decoded.shape:
            differences[name][file.path] = float(np.abs(decoded.astype(np.int16) - reference).mean())


def _result_of_decoder(
    name: str, reference: str, files: Sequence[File], times: dict[tuple[str, str], float], differences: Any
) -> DecoderResult | None:
    """The result of a decoder on the files of a category; None: it decodes none of them.

    Args:
      name: of the decoder.
      reference: name of the decoder with which it is compared.
      files: the files of the category.
      times: CPU seconds by decoder and path.
      differences: differences of the pixels from the reference's by decoder, then by path.
    """
    decoded_files = [f for f in files if (name, f.path) in times]
    if not decoded_files:
        return None
    # It is a divisor, and is 0 if the clock does not advance while tiny files are decoded.
    seconds = max(sum(times[name, f.path] for f in decoded_files), 1e-9)
    shared_files = [f for f in decoded_files if (reference, f.path) in times]
    reference_seconds, decoder_seconds = (sum(times[n, f.path] for f in shared_files) for n in (reference, name))
    pixel_differences = [differences[name][f.path] for f in shared_files if f.path in differences[name]]
    return DecoderResult(
        decoder=name,
        seconds=seconds / len(decoded_files),
        megapixels=sum(f.pixels for f in decoded_files) / 1e6 / seconds,
        speed=reference_seconds / decoder_seconds if decoder_seconds else float("nan"),
        difference=statistics.fmean(pixel_differences) if pixel_differences else float("nan"),
        decoded=len(decoded_files),
    )
