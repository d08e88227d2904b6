"""Writes ArrayRecord files, byte by byte as their format says, but for the checksums of blocks."""

import pathlib
import struct
from collections.abc import Sequence

import numpy as np

from jaxdali import _cpu

BLOCK = 1 << 16


def varint(x: int) -> bytes:
    out = bytearray()
    while x > 127:
        out.append(x & 127 | 128)
        x >>= 7
    return bytes([*out, x])


def field(number: int, x: int | bytes) -> bytes:
    return varint(number << 3) + varint(x) if isinstance(x, int) else varint(number << 3 | 2) + varint(len(x)) + x


def chunk(records: Sequence[bytes], zstd: bool = False, compression: str = "") -> bytes:
    """A chunk of records: header, sizes, values."""
    zstd = zstd or compression == "zstd"
    parts = [b"".join(varint(len(r)) for r in records), b"".join(records)]
    if zstd:
        import zstandard

        parts = [varint(len(p)) + zstandard.ZstdCompressor().compress(p) for p in parts]
    elif compression:
        import pyarrow as pa

        parts = [varint(len(p)) + pa.compress(p, codec=compression, asbytes=True) for p in parts]
    data = (b"z" if zstd else compression[:1].encode() or b"\0") + varint(len(parts[0])) + b"".join(parts)
    return header(data, ord("r"), len(records), sum(map(len, records))) + data


def header(data: bytes, kind: int, records: int = 0, decoded: int = 0) -> bytes:
    """The header of a chunk, with checksums."""
    fields = struct.pack("<QQQQ", len(data), checksum(data), kind | records << 8, decoded)
    return struct.pack("<Q", checksum(fields)) + fields


def checksum(data: bytes) -> int:
    """HighwayHash, which test_array_record.py compares with published numbers and with files by other programs."""
    return _cpu.highway_hash(np.frombuffer(data, np.uint8))


class Blocks:
    """A file of blocks that begin with headers."""

    def __init__(self):
        self.data = bytearray()

    def add(self, data: bytes) -> int:
        """Where it begins."""
        begin = len(self.data)
        while data:
            if len(self.data) % BLOCK == 0:
                self.data += bytes(24)
            room = BLOCK - len(self.data) % BLOCK
            self.data += data[:room]
            data = data[room:]
        return begin

    def fill(self):
        """To the end of the block."""
        self.data += bytes(-len(self.data) % BLOCK)


def array_record(
    path: pathlib.Path, records: Sequence[bytes], group: int = 1, zstd: bool = False, compression: str = ""
):
    """An ArrayRecord file, with `group` records in a chunk."""
    out = Blocks()
    out.add(header(b"", ord("s")))
    groups = [records[i : i + group] for i in range(0, len(records), group)]
    entries = []
    for g in groups:
        n = sum(map(len, g))
        entries.append(field(1, out.add(chunk(g, zstd, compression))) + (field(2, n) if n else b"") + field(3, len(g)))
    options = f"group_size:{group},transpose:false,{'zstd:3' if zstd else compression or 'uncompressed'}".encode()
    metadata = field(1, field(1, 1) + field(2, len(groups)) + field(3, len(records)) + field(4, options))
    footer = out.add(chunk([metadata, *entries], zstd, compression))
    out.fill()
    out.add(chunk([field(1, footer) + field(2, 0x71930E704FDAE05E)]))
    out.fill()
    path.write_bytes(out.data)
