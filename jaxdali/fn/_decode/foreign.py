"""Recognizes data that no decoder takes, for messages."""

from __future__ import annotations

import numpy as np

SUPPORTED = "JPEG, PNG, BMP, TIFF, WebP, PNM, JPEG 2000"

# The first bytes of other formats, from their specifications.
_BEGINNINGS = (
    (b"GIF87a", "a GIF image"),
    (b"GIF89a", "a GIF image"),
    (b"\xff\x0a", "a JPEG XL image"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "a JPEG XL image"),
    (b"8BPS", "a Photoshop image (PSD)"),
    (b"\0\0\1\0", "an icon (ICO)"),
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
# The brands of ISO base media files (ISO/IEC 14496-12), behind "ftyp".
_BRANDS = {
    **dict.fromkeys((b"avif", b"avis"), "an AVIF image"),
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"), "a HEIC image"),
}


def known_as(data: np.ndarray) -> str:
    """Says what encoded data are if they are not an image of a supported format, as the end of a message; "" if they are not recognized."""
    head = data[:256].tobytes()
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    found = next((what for start, what in _BEGINNINGS if head.startswith(start)), None)
    if head[4:8] == b"ftyp":
        brands = [head[8:12], *(head[i : i + 4] for i in range(16, min(int.from_bytes(head[:4]), len(head)), 4))]
        brands.sort(key=lambda b: b in (b"mif1", b"msf1"))  # these brands only say that the file holds images; others say which kind
        found = next((_BRANDS[b] for b in brands if b in _BRANDS), "a video or another file of the MP4 family")
    elif text.startswith((b"<!doctype html", b"<html")):
        found = "an HTML page, which servers send instead of a missing file"
    elif text.startswith(b"<svg") or (text.startswith(b"<?xml") and b"<svg" in text):
        found = "an SVG drawing"
    return f"this is {found}; supported: {SUPPORTED}" if found else ""
