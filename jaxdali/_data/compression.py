"""Recognizes containers that are compressed as a whole."""

from __future__ import annotations

import zlib

HEAD = 4096  # bytes of a file by which it is recognized
_COMPRESSED = {  # by the first bytes of a file: the format, and the program that decompresses it
    b"\x1f\x8b\x08": ("GZIP", "gunzip"),
    b"\x1f\x9d": ("compress", "uncompress"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ\0": ("XZ", "unxz"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", "unzstd"),
    b"\x04\x22\x4d\x18": ("LZ4", "unlz4"),
    **{bytes([0x78, level]): ("ZLIB", "") for level in (0x01, 0x5E, 0x9C, 0xDA)},
}
# The argument wbits of zlib, by which the data are checked, too: a TFRecord file begins with the size of a record,
# whose bytes may look like these magic numbers.
WINDOW = {"GZIP": 31, "ZLIB": 15}
SUFFIXES = (".gz", ".tgz", ".z", ".bz2", ".tbz", ".tbz2", ".xz", ".txz", ".zst", ".tzst", ".lz4", ".zlib")  # of names


def compression_of(head: bytes) -> str:
    """The name of the format by which a file is compressed, told by its first bytes; "" if it is not compressed."""
    name, _ = next((x for magic, x in _COMPRESSED.items() if head.startswith(magic)), ("", ""))
    # The first bytes alone may be chance.
    if name == "bzip2" and head[4:10] != b"1AY&SY":  # the magic number of its first block
        return ""
    if name in WINDOW:
        try:
            zlib.decompressobj(WINDOW[name]).decompress(head, 1 << 16)
        except zlib.error:
            return ""
    return name


def refusal(compression: str) -> str:
    """The reason why a file that is compressed by this format can't be read; "" if it is not compressed."""
    if not compression:
        return ""
    program = next(program for name, program in _COMPRESSED.values() if name == compression)
    remedy = f"decompress it first, with {program}" if program else "write it without compression"
    return f"it is compressed by {compression}, and records are read at their places in a file: {remedy}"
