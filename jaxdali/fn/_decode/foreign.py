"""Recognizes data that no decoder takes, for messages."""

from __future__ import annotations

import re

import numpy as np

from ..._core.errors import LONGEST_QUOTE

SUPPORTED = "JPEG, PNG, WebP, GIF, BMP, TIFF, PNM, JPEG 2000, AVIF, JPEG XL, HEIC"

# The first bytes of other formats, from their specifications.
_BEGINNINGS = (
    (b"8BPS", "a Photoshop image (PSD)"),
    (b"\0\0\1\0", "an icon (ICO)"),
    (b"icns", "an icon (ICNS)"),
    (b"\xff\xd8\xff", "a JPEG-LS image"),  # a JPEG is known
    (b"II\xbc\1", "a JPEG XR image"),
    *((bytes((0, 0, kind, 0, 0, 0, 0, 0)), "a Targa image (TGA)") for kind in (2, 3, 10, 11)),
    (b"\n\5\1", "a PCX image"),
    (b"\1\xda", "an SGI image"),
    (b"PF\n", "a PFM image"),
    (b"Pf\n", "a PFM image"),
    (b"P7\n", "a PAM image"),
    (b"SIMPLE  =", "a FITS image"),
    (b"%!PS", "a PostScript document"),
    (b"\x8aMNG", "an MNG animation"),
    (b"\x1a\x45\xdf\xa3", "a Matroska or WebM video"),
    (b"RIFF", "a file of the RIFF family, as WAV and AVI are"),
    (b"fLaC", "a FLAC recording"),
    (b"OggS", "an Ogg file"),
    (b"\x76\x2f\x31\x01", "an OpenEXR image"),
    (b"#?RADIANCE", "a Radiance HDR image"),
    (b"DDS ", "a DDS texture"),
    (b"qoif", "a QOI image"),
    (b"%PDF-", "a PDF document"),
    (b"\x93NUMPY", "a NumPy array, which decoders.numpy takes"),
    (b"\x1f\x8b", "compressed by gzip"),
    (b"PK\3\4", "a ZIP archive"),
    (b"version https://git-lfs.github.com/spec/", "a Git LFS pointer: the file was not fetched (git lfs pull)"),
)


def path_advice(data: bytes | memoryview | np.ndarray) -> str:
    """The reason why data can't be decoded if they are the name of a file; otherwise ""."""
    text = bytes(data[: LONGEST_QUOTE + 1]).decode(errors="replace")
    if len(data) > LONGEST_QUOTE or not text.isprintable() or not re.search(r"[^/]\.[A-Za-z]\w{1,4}$", text, re.ASCII):
        return ""
    return f"this is the text {text!r}, not the bytes of a file: fn.io.file.read(x) reads the file of that name"


def describe_unsupported(data: np.ndarray) -> str:
    """Names the format of encoded data that are no supported image, for a message; "" if it is unknown."""
    head = data[:256].tobytes()
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    description = next((name for prefix, name in _BEGINNINGS if head.startswith(prefix)), None)
    if head[128:132] == b"DICM":
        description = "a DICOM file, for which a decoder can be registered"
    elif head[4:8] == b"ftyp":
        description = "a video or another file of the MP4 family"
    elif text.startswith((b"<!doctype html", b"<html")):
        description = "an HTML page, which servers send instead of a missing file"
    elif text.startswith(b"<svg") or (text.startswith(b"<?xml") and b"<svg" in text):
        description = "an SVG drawing"
    return f"this is {description}; supported: {SUPPORTED}" if description else path_advice(data)
