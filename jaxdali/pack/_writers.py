"""Writers of the containers, one for each format."""

from __future__ import annotations

import io
import json
import os
import struct
import tarfile
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from .. import _cpu
from .._data.index import write_index

Record = Mapping[str, Any]  # bytes for files and strings, NumPy arrays for numbers


class Writer(Protocol):
    """Writes one file."""

    def write(self, number: int, record: Record) -> None:
        """Adds a record, with its number in the whole data set."""
        ...

    def close(self) -> None:
        """Completes the file."""
        ...


class WebDatasetWriter:
    """A tar archive: a member for each entry of a record, ``{number:09}.{entry}``.

    Bytes are stored as they are, whole numbers as text, and other arrays as npy files.
    """

    def __init__(self, path: str):
        self._tar = tarfile.open(path, "w", format=tarfile.USTAR_FORMAT)

    def write(self, number: int, record: Record):
        """Adds a member for each entry of the record."""
        for name, x in record.items():
            data, extension = _encode_member(name, x)
            # Without times and owners, so that equal records give equal files.
            member = tarfile.TarInfo(f"{number:09}.{extension}")
            member.size = len(data)
            self._tar.addfile(member, io.BytesIO(data))

    def close(self):
        self._tar.close()


# By the first bytes of a file.
_EXTENSIONS = {b"\xff\xd8\xff": "jpg", b"\x89PNG": "png", b"GIF8": "gif", b"fLaC": "flac", b"OggS": "ogg"}


def _encode_member(name: str, x: Any) -> tuple[bytes, str]:
    """Encodes an entry of a record as a member of an archive. Returns its content and its extension."""
    # Names that readers of WebDataset archives expect: the format of a file for usual names, "cls" and "json" for labels.
    if isinstance(x, bytes):
        extension = next(
            (known_extension for magic, known_extension in _EXTENSIONS.items() if x.startswith(magic)),
            "webp" if x[8:12] == b"WEBP" else "",
        )
        return x, extension if name in ("image", "audio", "data") and extension else name
    if x.size == 1 and x.dtype.kind in "iub":
        return str(int(x.reshape(()))).encode(), "cls" if name == "label" else name
    if x.ndim == 1 and x.dtype.kind in "iub":
        return json.dumps(x.tolist()).encode(), "json" if name == "label" else name
    file = io.BytesIO()
    np.save(file, x)
    return file.getvalue(), name if name.endswith("npy") else f"{name}.npy"


class TFRecordWriter:
    """A TFRecord file of `tf.train.Example`s, see `example`."""

    def __init__(self, path: str):
        self._file = open(path, "wb")

    def write(self, number: int, record: Record):
        data = example(record)
        length = struct.pack("<Q", len(data))
        self._file.write(b"".join((length, _masked_crc(length), data, _masked_crc(data))))

    def close(self):
        self._file.close()


class ArrayRecordWriter:
    """An ArrayRecord file of `tf.train.Example`s; a record whose only entry is bytes is stored as these bytes.

    Each group has one record, for random access.
    """

    def __init__(self, path: str):
        try:
            from array_record.python import array_record_module  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]
        except ImportError as e:
            raise ImportError("--format array_record needs the package array_record: pip install array-record") from e
        self._file = array_record_module.ArrayRecordWriter(path, "group_size:1")

    def write(self, number: int, record: Record):
        first_entry = next(iter(record.values()))
        self._file.write(first_entry if len(record) == 1 and isinstance(first_entry, bytes) else example(record))

    def close(self):
        self._file.close()


# By format: what makes the writer of the file at a path, and the extension of these files.
WRITERS: dict[str, tuple[Callable[[str], Writer], str]] = {
    "webdataset": (WebDatasetWriter, "tar"),
    "tfrecord": (TFRecordWriter, "tfrecord"),
    "array_record": (ArrayRecordWriter, "array_record"),
}


def write_index_of(path: str) -> str | None:
    """Writes the index that DALI's readers use for a file. Returns its path; None: the format needs none."""
    if path.endswith(".array_record"):
        return None
    write_index(path, f"{path}.idx")
    return f"{path}.idx"


# --- tf.train.Example -----------------------------------------------------------------------------------------------


def example(record: Record) -> bytes:
    """A serialized `tf.train.Example`: bytes become a bytes_list, whole numbers an int64_list, and floats a float_list.

    Arrays with several axes are flattened, and ``NAME/shape`` has their shape.
    """
    features = []
    for name, x in record.items():
        features.append(_feature(name, x))
        if not isinstance(x, bytes) and x.ndim > 1:
            features.append(_feature(f"{name}/shape", np.array(x.shape)))
    return _field(1, b"".join(features))


def _feature(name: str, x: Any) -> bytes:
    """An entry of the map `Features.feature`: field 1 is the key, field 2 the value, a `tf.train.Feature`."""
    # The fields of Feature: 1 is a BytesList, 2 a FloatList, 3 an Int64List. Each has its values in field 1.
    if isinstance(x, bytes):
        value = _field(1, _field(1, x))
    elif x.dtype.kind == "f":
        value = _field(2, _field(1, np.ascontiguousarray(x, "<f4").tobytes()))
    else:
        value = _field(3, _field(1, b"".join(map(_varint, x.astype(np.int64).ravel().tolist()))))
    return _field(1, _field(1, name.encode()) + _field(2, value))


def _field(number: int, data: bytes) -> bytes:
    """A field of Protocol Buffers with wire type 2, LEN: tag, length, data."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(x: int) -> bytes:
    """A varint of Protocol Buffers: 7 bits in each byte, the lowest first; negative numbers as of 64 bits."""
    x &= (1 << 64) - 1
    out = bytearray()
    while x > 127:
        out.append(x & 127 | 128)
        x >>= 7
    out.append(x)
    return bytes(out)


def _masked_crc(data: bytes) -> bytes:
    """The checksum of a TFRecord file: a CRC-32C, rotated right by 15 bits, plus a constant."""
    crc = _cpu.crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def replace_file(source: str, target: str):
    """Renames a complete file after it is synced to the disk, so that a file with the final name is always complete."""
    fd = os.open(source, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(source, target)
