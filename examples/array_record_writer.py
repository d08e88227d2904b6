"""Writes files into one ArrayRecord file, in plain Python, and reads them back with a pipeline.

    python examples/array_record_writer.py OUTPUT FILES...
    python examples/array_record_writer.py cat.array_record examples/images/cat/*.jpg

It needs no other package, and is for platforms that have no package array_record. Where there is
one, use it for large data: it is faster.

The format is that of a Riegeli file: chunks with headers, in blocks of 64 KiB that begin with
headers of their own, and checksums by HighwayHash.
"""

import argparse
import pathlib
import struct
from collections.abc import Sequence

import numpy as np

_BLOCK = 1 << 16
_MAGIC = 0x71930E704FDAE05E  # the number in the last chunk of an ArrayRecord file
_64 = (1 << 64) - 1
_KEY = (0x2F696C6567656952, 0x0A7364726F636572) * 2  # "Riegeli/records\n"
_MUL0 = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
_MUL1 = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)
_ZIPPER = (3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7)


def write_array_record(path: pathlib.Path, records: Sequence[bytes]) -> pathlib.Path:
    """Writes a file of these records; returns its path.

    The file is the one that the options ``group_size:1,uncompressed`` make.
    """
    file = _File()
    file.add(_chunk(b"", ord("s"), 0, 0))
    entries = []
    for record in records:
        size = _field(2, len(record)) if record else b""
        entries.append(_field(1, file.add(_chunk_of([record]))) + size + _field(3, 1))
    options = b"group_size:1,transpose:false,uncompressed"
    metadata = _field(
        1, _field(1, 1) + _field(2, len(records)) + _field(3, len(records)) + _field(4, options)
    )
    table = file.add(_chunk_of([metadata, *entries]))
    file.pad()
    file.add(_chunk_of([_field(1, table) + _field(2, _MAGIC)]))
    file.pad()
    path.write_bytes(file.finished())
    return path


class _File:
    """A file in the making: its chunks, cut into blocks."""

    def __init__(self):
        self._data = bytearray()
        self._chunks: list[tuple[int, int]] = []  # the first byte and the end of each chunk

    def add(self, chunk: bytes) -> int:
        """Appends a chunk; returns the position where it begins."""
        begin = len(self._data)
        while chunk:
            if len(self._data) % _BLOCK == 0:
                self._data += bytes(24)
            room = _BLOCK - len(self._data) % _BLOCK
            self._data += chunk[:room]
            chunk = chunk[room:]
        self._chunks.append((begin, len(self._data)))
        return begin

    def pad(self):
        """Fills the block with a chunk of zeros.

        If the chunk's header doesn't fit into the rest, the chunk fills the next block, too.
        """
        room = -len(self._data) % _BLOCK
        if room >= 40:
            self.add(_chunk(bytes(room - 40), ord("p"), 0, 0))
        elif room:
            self.add(_chunk(bytes(room + _BLOCK - 24 - 40), ord("p"), 0, 0))

    def finished(self) -> bytes:
        """Returns the file.

        A block's header has distances to the first byte and the end of the chunk that crosses it.
        """
        chunk_pairs = iter(self._chunks)
        begin, end = next(chunk_pairs)
        for block in range(0, len(self._data), _BLOCK):
            while end <= block:
                begin, end = next(chunk_pairs)
            distances = struct.pack("<QQ", block - begin, end - block)
            self._data[block : block + 24] = struct.pack("<Q", _highway_hash(distances)) + distances
        return bytes(self._data)


def _chunk_of(records: Sequence[bytes]) -> bytes:
    """A chunk of records: their sizes, then their bytes."""
    sizes, values = b"".join(_varint(len(r)) for r in records), b"".join(records)
    return _chunk(b"\0" + _varint(len(sizes)) + sizes + values, ord("r"), len(records), len(values))


def _chunk(data: bytes, kind: int, records: int, decoded: int) -> bytes:
    """A chunk: a header with checksums, then the data."""
    header = struct.pack("<QQQQ", len(data), _highway_hash(data), kind | records << 8, decoded)
    return struct.pack("<Q", _highway_hash(header)) + header + data


def _field(number: int, x: int | bytes) -> bytes:
    """A field of a protocol buffer: a number, or bytes with their length."""
    if isinstance(x, int):
        return _varint(number << 3) + _varint(x)
    return _varint(number << 3 | 2) + _varint(len(x)) + x


def _varint(x: int) -> bytes:
    """A number of a protocol buffer: seven bits in each byte, the lowest first."""
    out = bytearray()
    while x > 127:
        out.append(x & 127 | 128)
        x >>= 7
    return bytes([*out, x])


def _highway_hash(data: bytes) -> int:
    """HighwayHash of 64 bits (Alakuijala, Cox, Wassenberg, 2016)."""
    mul0: list[int] = list(_MUL0)
    mul1: list[int] = list(_MUL1)
    v0 = [m ^ k for m, k in zip(mul0, _KEY, strict=True)]
    v1 = [m ^ _halves_swapped(k) for m, k in zip(mul1, _KEY, strict=True)]

    def add_zipped(source: list[int], target: list[int]):
        for pair in (0, 2):
            both = struct.pack("<QQ", source[pair], source[pair + 1])
            for k, word in enumerate(struct.unpack("<QQ", bytes(both[i] for i in _ZIPPER))):
                target[pair + k] = target[pair + k] + word & _64

    def update(lanes: Sequence[int]):
        for i in range(4):
            v1[i] = v1[i] + mul0[i] + lanes[i] & _64
            mul0[i] ^= (v1[i] & 0xFFFFFFFF) * (v0[i] >> 32)
            v0[i] = v0[i] + mul1[i] & _64
            mul1[i] ^= (v0[i] & 0xFFFFFFFF) * (v1[i] >> 32)
        add_zipped(v1, v0)
        add_zipped(v0, v1)

    whole = len(data) // 32 * 32
    for i in range(0, whole, 32):
        update(struct.unpack_from("<4Q", data, i))
    if remainder := data[whole:]:
        n = len(remainder)
        for i in range(4):
            v0[i] = v0[i] + (n << 32 | n) & _64
            halves = (v1[i] & 0xFFFFFFFF, v1[i] >> 32)
            low, high = ((x << n | x >> (32 - n)) & 0xFFFFFFFF for x in halves)
            v1[i] = high << 32 | low
        packet = bytearray(remainder[: n & ~3]) + bytes(32 - (n & ~3))
        if n & 16:
            packet[28:] = remainder[-4:]
        elif n & 3:
            last = remainder[n & ~3 :]
            packet[16:19] = bytes([last[0], last[len(last) >> 1], last[-1]])
        update(struct.unpack("<4Q", packet))
    for _ in range(4):
        update([_halves_swapped(v0[i]) for i in (2, 3, 0, 1)])
    return v0[0] + v1[0] + mul0[0] + mul1[0] & _64


def _halves_swapped(x: int) -> int:
    return (x << 32 | x >> 32) & _64


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    args = parser.parse_args()

    from jaxdali import fn, pipeline_def  # writing needs NumPy alone

    @pipeline_def(num_threads=1, device_id=None)
    def reading():
        return fn.readers.array_record(path=str(args.output))

    records = [file.read_bytes() for file in args.files]
    write_array_record(args.output, records)
    print(f"{args.output.name} has {len(records)} records, of {[len(r) for r in records]} bytes")

    (batch,) = reading(batch_size=len(records)).run()
    assert [np.asarray(record).tobytes() for record in batch] == records
    print("a pipeline reads the same records")


if __name__ == "__main__":
    main()
