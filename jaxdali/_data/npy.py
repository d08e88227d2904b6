"""Headers of NumPy's ``.npy`` files."""

from __future__ import annotations

import functools
import io
import math
import re
from typing import BinaryIO

import numpy as np

from .._core.errors import cut, quoted

_LONGEST_DESCRIPTION = 0xFFFF  # bytes, as many as version 1 can have: what is supported takes a few hundred
_MAX_DIMENSIONS = 64  # of NumPy's arrays; in NumPy 1 they are 32


def _check_magic(head: bytes):
    """Raises ValueError unless `head` is the beginning of a .npy file."""
    if len(head) < 8 or head[:6] != b"\x93NUMPY":
        raise ValueError("it is not a .npy file: it does not begin with the magic bytes")


def header_size(head: bytes) -> int:
    """Size in bytes of the header of a file that begins with `head`. Raises ValueError if it is not a .npy file."""
    _check_magic(head)
    # The size of the description has 2 bytes in version 1 of the format, and 4 in later ones.
    num_bytes = 2 if head[6:7] == b"\1" else 4
    size = int.from_bytes(head[8 : 8 + num_bytes], "little")
    if size > _LONGEST_DESCRIPTION:
        raise ValueError(f"its header would take {size} bytes, more than {_LONGEST_DESCRIPTION}")
    return 8 + num_bytes + size


def read_header(f: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype]:
    """(shape, whether in Fortran order, dtype) from the beginning of a file, for all versions of the format.

    NumPy's own reader compiles the text, which is not thread-safe in CPython 3.11 ("AST constructor recursion depth
    mismatch").
    """
    start = f.read(12)  # the magic bytes, the two numbers of the version, and the size of the description
    size = header_size(start)
    # In version 1 of the format, the description begins in byte 10, and in byte 12 in later ones.
    begin = 10 if start[6] == 1 else 12
    return _parse_description((start[begin:] + f.read(max(size - len(start), 0))).decode("latin-1"))


@functools.lru_cache(maxsize=256)
def parse_header(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """(shape, whether in Fortran order, dtype, minimum size of the file in bytes) from the first `header_size` bytes of
    a file.
    """
    with io.BytesIO(header) as f:
        shape, fortran, dtype = read_header(f)
    return shape, fortran, dtype, len(header) + math.prod(shape) * dtype.itemsize


# Cached, because the files of a data set have few different headers, and parsing one takes longer than reading the
# file.
@functools.lru_cache(maxsize=256)
def _parse_description(text: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """(shape, whether in Fortran order, dtype) from the text of a header, a Python dictionary."""
    descr = re.search(r"""["']descr["']\s*:\s*["']([^"']*)["']""", text)
    order = re.search(r"""["']fortran_order["']\s*:\s*(True|False)""", text)
    shape = re.search(r"""["']shape["']\s*:\s*\(([\d, L]*)\)""", text)
    if not (descr and order and shape):
        raise ValueError(f"its header does not describe an array of numbers: {cut(text.strip())}")
    try:
        if not re.fullmatch(r"[<>|=]?[A-Za-z?]\d*(\[\w+\])?", descr[1]):  # NumPy would compile a text with commas
            raise TypeError(descr[1])
        dtype = np.dtype(descr[1])
    except TypeError as e:
        raise ValueError(f"{quoted(descr[1])} in its header is not a type") from e
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise ValueError(f"its elements are of type {dtype}; supported are integers, floats and bool")
    numbers = re.findall(r"\d+", shape[1])
    if len(numbers) > _MAX_DIMENSIONS:
        raise ValueError(f"it has {len(numbers)} dimensions, more than {_MAX_DIMENSIONS}")
    largest = np.iinfo(np.int64).max
    # A number of more digits than the largest one is not parsed: Python refuses to do that for thousands of them.
    extents = tuple(int(n) if len(n) <= len(str(largest)) else largest + 1 for n in numbers)
    # As in NumPy, the other extents count where one is 0, too.
    if math.prod(n or 1 for n in extents) * dtype.itemsize > largest:
        raise ValueError(f"its shape ({cut(shape[1])}) is too large: an array can't have so many bytes")
    return extents, order[1] == "True", dtype
