"""Headers of NumPy's ``.npy`` files."""

from __future__ import annotations

import functools
import io
import math
import re
from typing import BinaryIO

import numpy as np


def _check_magic(head: bytes):
    """Raises ValueError unless `head` is the beginning of a .npy file."""
    if len(head) < 8 or head[:6] != b"\x93NUMPY":
        raise ValueError("it is not a .npy file: it does not begin with the magic bytes")


def header_size(head: bytes) -> int:
    """Size in bytes of the header of a file that begins with `head`. Raises ValueError if it is not a .npy file."""
    _check_magic(head)
    # The size of the description has 2 bytes in version 1 of the format, and 4 in later ones.
    num_bytes = 2 if head[6:7] == b"\1" else 4
    return 8 + num_bytes + int.from_bytes(head[8 : 8 + num_bytes], "little")


def read_header(f: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype]:
    """(shape, whether in Fortran order, dtype) from the beginning of a file, for all versions of the format.

    NumPy's own reader compiles the text, which is not thread-safe in CPython 3.11 ("AST constructor recursion depth
    mismatch").
    """
    start = f.read(8)  # the magic bytes, and the two numbers of the version
    _check_magic(start)
    # Then comes the size of the description, in 2 bytes in version 1 and in 4 in later ones.
    return _parse_description(f.read(int.from_bytes(f.read(2 if start[6] == 1 else 4), "little")).decode("latin-1"))


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
        raise ValueError(f"its header does not describe an array of numbers: {text.strip()}")
    try:
        if not re.fullmatch(r"[<>|=]?[A-Za-z?]\d*(\[\w+\])?", descr[1]):  # NumPy would compile a text with commas
            raise TypeError(descr[1])
        dtype = np.dtype(descr[1])
    except TypeError as e:
        raise ValueError(f"{descr[1]!r} in its header is not a type") from e
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise ValueError(f"its elements are of type {dtype}; supported are integers, floats and bool")
    return tuple(map(int, re.findall(r"\d+", shape[1]))), order[1] == "True", dtype
