"""Writes small containers of every kind that readers read, byte by byte as their formats say."""

import os
import pathlib
import struct
import tarfile
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

# --- protobuf -------------------------------------------------------------------------------------------------------


def varint(x: int) -> bytes:
    x &= 2**64 - 1
    out = bytearray()
    while x > 127:
        out.append(x & 127 | 128)
        x >>= 7
    return bytes([*out, x])


def field(number: int, value: int | float | bytes) -> bytes:
    """One field: integers as varints, floats as 32 bits, bytes with their length."""
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def floats(number: int, values: Iterable[float], packed: bool = True) -> bytes:
    values = list(values)
    if not packed:
        return b"".join(field(number, float(v)) for v in values)
    return field(number, np.asarray(values, "<f4").tobytes())


def ints(number: int, values: Iterable[int], packed: bool = True) -> bytes:
    return field(number, b"".join(map(varint, values))) if packed else b"".join(field(number, v) for v in values)


def feature(values: Sequence, packed: bool = True) -> bytes:
    """A tf.Feature: a list of bytes, of float or of int."""
    kind = type(values[0]) if len(values) else int
    if kind is bytes:
        return field(1, b"".join(field(1, v) for v in values))
    return field(2, floats(1, values, packed)) if kind is float else field(3, ints(1, values, packed))


def example(features: Mapping[str, Sequence], packed: bool = True) -> bytes:
    """A tf.Example: lists of bytes, of float or of int."""
    entries = (field(1, field(1, name.encode()) + field(2, feature(x, packed))) for name, x in features.items())
    return field(1, b"".join(entries))


def sequence_example(context: Mapping[str, Sequence], lists: Mapping[str, Sequence[Sequence]]) -> bytes:
    """A tf.SequenceExample. A feature list has a list of values for each step."""
    entries = b""
    for name, steps in lists.items():
        entries += field(1, field(1, name.encode()) + field(2, b"".join(field(1, feature(x)) for x in steps)))
    return example(context) + field(2, entries)


def datum(
    data: bytes | None, label: int | None, encoded: bool | None = None, shape: tuple[int, int, int] | None = None
) -> bytes:
    """A caffe.Datum; `shape` is (channels, height, width)."""
    out = b"".join(field(n, x) for n, x in zip((1, 2, 3), shape or ()))
    if data is not None:
        out += field(4, data)
    if label is not None:
        out += field(5, label)
    return out + (b"" if encoded is None else field(7, int(encoded)))


FLOAT, INT32, BYTE, STRING, INT64 = 1, 2, 3, 4, 10  # caffe2.TensorProto.DataType


def tensor(kind: int, values, dims: Sequence[int] = (), packed: bool = True) -> bytes:
    """A caffe2.TensorProto."""
    out = b"".join(field(1, d) for d in dims) + field(2, kind)
    if kind == FLOAT:
        return out + floats(3, values, packed)
    if kind in (INT32, INT64):
        return out + ints(4 if kind == INT32 else 10, values, packed)
    return out + (field(5, values) if kind == BYTE else b"".join(field(6, v) for v in values))


def tensors(*protos: bytes) -> bytes:
    """A caffe2.TensorProtos."""
    return b"".join(field(1, p) for p in protos)


# --- containers -----------------------------------------------------------------------------------------------------


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def write_tfrecord(path: pathlib.Path, records: Iterable[bytes], index: pathlib.Path | None = None) -> pathlib.Path:
    """A TFRecord file, and its index as DALI's tfrecord2idx writes it."""
    out, lines = bytearray(), []
    for record in records:
        length = struct.pack("<Q", len(record))
        lines.append(f"{len(out)} {len(record) + 16}\n")
        out += length + masked(length) + record + masked(record)
    path.write_bytes(out)
    if index is not None:
        index.write_text("".join(lines))
    return path


def image_record(label: float | Sequence[float], data: bytes, number: int = 0) -> bytes:
    """The contents of an image's record in MXNet's RecordIO."""
    labels = [] if isinstance(label, float) else list(label)
    return (
        struct.pack("<IfQQ", len(labels), label if isinstance(label, float) else 0.0, number, 0)
        + np.asarray(labels, "<f4").tobytes()
        + data
    )


def write_recordio(path: pathlib.Path, records: Iterable[bytes], index: pathlib.Path | None = None) -> pathlib.Path:
    out, lines = bytearray(), []
    for i, record in enumerate(records):
        lines.append(f"{i}\t{len(out)}\n")
        out += struct.pack("<II", 0xCED7230A, len(record)) + record + bytes(-len(record) % 4)
    path.write_bytes(out)
    if index is not None:
        index.write_text("".join(lines))
    return path


def write_lmdb(path: pathlib.Path, values: Iterable[bytes], map_size: int = 1 << 24) -> pathlib.Path:
    import lmdb

    with lmdb.open(os.fspath(path), map_size=map_size) as env, env.begin(write=True) as txn:
        for i, value in enumerate(values):
            txn.put(b"%08d" % i, value)
    return path


def write_tar(
    path: pathlib.Path, members: Iterable[tuple[str, bytes]], format: int = tarfile.USTAR_FORMAT
) -> pathlib.Path:
    import io

    with tarfile.open(path, "w", format=format) as f:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            f.addfile(info, io.BytesIO(data))
    return path


# --- COCO -----------------------------------------------------------------------------------------------------------


def coco_counts(counts: Sequence[int]) -> str:
    """Lengths of runs as COCO compresses them: from the third on the difference to the one before the last, 5 bits a
    letter.
    """
    text = ""
    for i, n in enumerate(counts):
        x = n - counts[i - 2] if i > 2 else n
        while True:
            bits, x = x & 31, x >> 5
            ended = x == (-1 if bits & 16 else 0)
            text += chr(48 + (bits if ended else bits | 32))
            if ended:
                break
    return text
