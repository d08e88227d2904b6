"""Affine maps of images and volumes."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ... import types
from ..._core.context import HostContext
from ..._core.declaration import EXTENTS, DType, OneOf, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import Setup
from ..._core.operator_function import (
    DTypeHints,
    Input,
    InputPerFrame,
    ListOf,
    OneOrMore,
    PerFrame,
    PerSample,
    operator_function,
)
from ..._core.values import Spec, Value
from ..._cpu import Status
from .._families import Warp


class WarpAffine(Warp):
    """An affine map by a matrix."""

    name = "warp_affine"
    inverse_map: bool  # whether the matrix maps points of the result to points of the input, not the other way round

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """The input with the extents of `size`, by default its own."""
        _, first, dims = self.layout(image)
        if ("matrix" in self.args) == (len(arguments) > len(self.args.inputs)):
            raise ArgumentError("the matrix must be given, as an input or as the argument matrix")
        self.args.check_width("matrix", dims * (dims + 1), arguments)
        self.args.check_width("size", dims, arguments)
        size: list[int | None] = [image.extent(d) for d in range(first, first + dims)]
        if "size" in self.args:
            size = [None] * dims
            if self.args.is_static("size"):
                size = self.extents(self.args.get("size")).tolist()
        return (self.output(image, size),)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        """The size of each result, and the map from its pixels to source points. Matrices without an inverse fail if
        one is needed.
        """
        image, a = values[0], self.arguments(ctx, values)
        _, first, dims = self.layout(image.spec)
        if "matrix" in self.args:
            matrix = a.vector("matrix", dims * (dims + 1))
            assert matrix is not None
        else:
            matrix = values[1].vectors("the matrix", ctx.present, dims * (dims + 1)).astype(np.float64)
            if matrix.shape[1] != dims * (dims + 1):
                raise ArgumentError(
                    f"the matrix must be {dims} x {dims + 1} for each sample, got {matrix.shape[1]} numbers"
                )
        matrix = matrix.astype(np.float32).astype(np.float64).reshape(-1, dims, dims + 1)
        linear, offset = matrix[:, :, :dims], matrix[:, :, dims:]
        if not self.inverse_map:
            # The inverse of y = A x + b is x = inv(A) y - inv(A) b.
            linear = self._inverse(ctx, linear)
            offset = -(linear * offset.swapaxes(1, 2)).sum(axis=2, keepdims=True)  # quicker than @ of small matrices
        requested = a.vector("size", dims)
        size = image.shapes[:, first : first + dims] if requested is None else self.extents(requested)
        shift = linear.sum(axis=2, keepdims=True) / 2  # moves the map's points from corners of output pixels to centres
        return self.setup_of(ctx, image, size, lambda _: np.concatenate([linear, offset + shift], axis=2))

    @staticmethod
    def _inverse(ctx: HostContext, linear: np.ndarray) -> np.ndarray:
        """The inverse of each matrix ``[N, D, D]``. Samples whose matrix has no inverse fail."""
        # For small matrices, np.linalg would take longer than the rest of the batch.
        is_2d = linear.shape[1] == 2
        determinant = (
            linear[:, 0, 0] * linear[:, 1, 1] - linear[:, 0, 1] * linear[:, 1, 0] if is_2d else np.linalg.det(linear)
        )
        if not determinant.all():
            is_singular = determinant == 0
            for i in np.flatnonzero(is_singular & ctx.present):
                ctx.fail(int(i), Status.ARGUMENT, f"the matrix must have an inverse, got {linear[i].tolist()}")
            linear = np.where(is_singular[:, None, None], np.eye(linear.shape[1]), linear)
            determinant = np.where(is_singular, 1.0, determinant)
        if not is_2d:
            return np.linalg.inv(linear)
        inverse = np.empty_like(linear)
        inverse[:, 0, 0], inverse[:, 0, 1], inverse[:, 1, 0], inverse[:, 1, 1] = (
            linear[:, 1, 1],
            -linear[:, 0, 1],
            -linear[:, 1, 0],
            linear[:, 0, 0],
        )
        inverse /= determinant[:, None, None]
        return inverse


@operator_function(WarpAffine)
def warp_affine(
    input: Input,
    matrix_input: InputPerFrame | None = None,
    /,
    *,
    dtype: DType | None = None,
    fill_value: Annotated[float | None, Range(infinite=True)] = None,
    interp_type: Annotated[types.DALIInterpType, OneOf(types.INTERP_LINEAR, types.INTERP_NN)] = types.INTERP_LINEAR,
    inverse_map: bool = True,
    matrix: PerFrame[ListOf[float]] | None = None,
    size: Annotated[PerSample[OneOrMore[float]] | None, Range(0, above=True), EXTENTS] = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[DTypeHints],
) -> DataNode:
    """Applies affine maps to images, sequences or volumes.

    Points are (x, y) or (x, y, z) in pixels; the corner of the image is 0.

    Unlike DALI's, coordinates do not depend on how far a pixel is from the left edge, and are inverted in double
    precision: with INTERP_NN, points exactly on the border of two pixels may go to the other one; linear results are
    within 1 level for uint8, and within 2e-4 of the values' range for wider types.

    Args:
      input: HWC, FHWC, DHWC or FDHWC; uint8, int16, int32, float32 or (not in DALI) float16, bfloat16; any number of
        channels. Data without a layout count as HWC, FHWC or FDHWC by their rank.
      matrix_input: the matrix as an input, ``[D, D+1]`` per sample or frame, instead of the argument `matrix`.
      dtype: element type of the result: the input's (default) or FLOAT; from float32 any of the types above.
      fill_value: the value of points outside the image. Default: the nearest pixel of the edge is repeated.
      interp_type: INTERP_LINEAR or INTERP_NN.
      inverse_map: If True, the matrix maps points of the result to points of the input; if False, the other way round.
      matrix: ``D * (D + 1)`` numbers, row by row. May be per sample or frame.
      size: extents of the result, (H, W) or (D, H, W), rounded. Default: the input's. May be per sample; then, and in
        an array, fractions are dropped. Extents are at least 1.

    Returns:
      The mapped data, in the input's layout.

    Raises:
      ValueError: wrong layout or element types, or a wrong number of elements. A sample whose matrix has no inverse
        fails when its batch is made.

    Example:
      >>> fn.warp_affine(images, matrix=[1.0, 0.2, 0.0, 0.0, 1.0, 0.0], fill_value=0)
    """
    ...
