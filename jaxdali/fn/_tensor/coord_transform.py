"""Affine transforms of points."""

from __future__ import annotations

from typing import Literal, Unpack

import numpy as np

from ... import types
from ..._core.arguments import Values
from ..._core.declaration import DType
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, PerFrame, operator_function
from ..._core.values import Spec
from .points import PointMap, mapped

_TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32")


class CoordTransform(PointMap):
    """Maps points by a matrix and an offset, both given."""

    name = "coord_transform"
    repeats_input = True
    dtype: np.dtype

    def infer(self, x: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """Points with as many coordinates as the matrix has rows; unknown if the matrix is only known per batch."""
        if "MT" in self.args and ("M" in self.args or "T" in self.args):
            raise ArgumentError("MT can't be given together with M or T")
        if x.ndim < 2:
            raise ArgumentError(f"the input must be points [..., D], at least 2-D, got {x.ndim}-D")
        if x.dtype.name not in _TYPES or self.dtype not in (x.dtype, np.float32):
            raise ArgumentError(
                f"the input must be {', '.join(_TYPES)}, the output the same or float32; got {x.dtype} to {self.dtype}"
            )
        dims, specs = x.extent(x.ndim - 1), (x, *arguments)
        # The number of rows of the matrix; without a matrix, or with a multiple of the identity, that of coordinates.
        rows = dims
        for name, columns in (("M", dims), ("MT", None if dims is None else dims + 1)):
            width = self.args.width(name, specs) if name in self.args else None
            if width is not None and columns is not None and not _is_number(name, width, dims):
                rows = _rows(name, width, columns)
            elif width is None and name in self.args:
                rows = None
        if "T" in self.args and rows is not None:
            self.args.check_width("T", rows, specs, one_for_all=True)
        return mapped(x, rows, self.dtype)

    def affine(self, a: Values, dims: int) -> tuple[np.ndarray, np.ndarray]:
        """Matrices and offsets, see `PointMap.affine`, from MT, or from M and T."""
        # Matrices are flat here, row by row for each sample.
        matrix = a.get("MT")
        if matrix is not None and not _is_number("MT", matrix.shape[1], dims):
            matrix = matrix.reshape(len(matrix), _rows("MT", matrix.shape[1], dims + 1), dims + 1)
            return matrix[:, :, :dims], matrix[:, :, dims]
        m = a.get("M") if matrix is None else matrix  # a single number in MT stands for M
        # One number for each sample is a multiple of the identity.
        if m is None or m.size == len(m):
            m = np.eye(dims) * (np.ones((a.samples, 1, 1)) if m is None else m.reshape(-1, 1, 1))
        else:
            m = m.reshape(len(m), _rows("M", m.shape[1], dims), dims)
        t = a.vector("T", m.shape[1], one_for_all=True)
        return m, np.zeros(m.shape[:2]) if t is None else t


def _is_number(name: str, elements: int, dims: int | None) -> bool:
    """Whether an argument of so many `elements` is a multiple of the identity, and not a matrix with one element."""
    return elements == 1 and (name == "M" or dims != 0)


def _rows(name: str, elements: int, columns: int) -> int:
    """The number of rows of a matrix."""
    if elements % columns:
        raise ArgumentError(
            f"{name} has {elements} elements, which is not a multiple of {columns}, the length of a row"
        )
    return elements // columns


@operator_function(CoordTransform)
def coord_transform(
    input: Input,
    /,
    *,
    M: PerFrame[OneOrMore[float]] | None = None,
    T: PerFrame[OneOrMore[float]] | None = None,
    MT: PerFrame[OneOrMore[float]] | None = None,
    dtype: DType = types.FLOAT,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Applies an affine map to points: ``M x + T``.

    Args:
      input: points ``[..., D]``, e.g. ``[K, 2]``; float32, or an integer type of at most 32 bits. If an argument is per
        frame and the points are not a sequence, they are mapped by the value of each frame, and the result is a
        sequence.
      M: a matrix ``[R, D]``, row by row, or one number, which means a multiple of the identity. Default: the identity.
        May be per sample or frame.
      T: an offset, R numbers or one for all. Default: 0. May be per sample or frame.
      MT: matrix and offset together, ``[R, D+1]``, with the offset as the last column, as `fn.transforms` makes it; or
        one number, as for M. May be per sample or frame.
      dtype: FLOAT, or the input's type (rounded, saturated).

    Returns:
      Points ``[..., R]`` of the input's layout.

    Raises:
      ArgumentError: the sizes don't match, or `MT` is given together with `M` or `T`.

    Example:
      >>> corners = fn.coord_transform(corners, MT=fn.transforms.rotation(angle=angle, center=(0.5, 0.5)))
    """
    ...
