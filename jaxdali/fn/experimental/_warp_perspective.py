"""experimental.warp_perspective: perspective maps of images."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ... import types
from ..._core.context import HostContext
from ..._core.declaration import Len, OneOf, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import Setup
from ..._core.operator_function import (
    Hints,
    Input,
    InputPerFrame,
    ListOf,
    OneOrMore,
    PerFrame,
    PerSample,
    operator_function,
)
from ..._core.values import Spec, Value
from ..._cpu import Border, Points, Status
from .._families import BORDERS, PointGather


class WarpPerspective(PointGather):
    """Gathers pixels by a perspective map."""

    name = "experimental.warp_perspective"
    points = Points.PROJECTIVE
    layouts = ("HWC", "FHWC", "CHW", "FCHW", "HW")
    border_mode: str
    fill_value: tuple[float, ...] | float
    interp_type: types.DALIInterpType
    inverse_map: bool  # whether the matrix maps points of the result to points of the input
    pixel_origin: str  # the point (0, 0): the "corner" of an image, or the "center" of its first pixel

    @property
    def interpolation(self) -> types.DALIInterpType:
        return self.interp_type

    @property
    def border_type(self) -> Border:
        return BORDERS[self.border_mode]

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """The input with the height and width of `size`, by default its own."""
        layout, first = self.layout(image)
        if ("matrix" in self.args) == (len(arguments) > len(self.args.inputs)):
            raise ArgumentError("the matrix must be given, as an input or as the argument matrix")
        self.args.check_width("matrix", 9, arguments)
        self.args.check_width("size", 2, arguments, one_for_all=True)
        fills, channels = np.size(self.fill_value), image.extent(image.ndim - 1) if layout.endswith("C") else 1
        if fills > 1 and channels not in (None, fills):
            raise ArgumentError(
                f"argument fill_value must be one number or one per channel, of which there are {channels}; got {fills}"
            )
        size: list[int | None] = [image.extent(first), image.extent(first + 1)]
        if "size" in self.args:
            is_static = self.args.is_static("size")
            size = (
                _rounded(np.broadcast_to(np.array(self.args.get("size")).reshape(-1), 2)).tolist()
                if is_static
                else [None, None]
            )
        return (self.output(image, size),)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        """The matrices from output pixels to points of the image, and the sizes of the outputs. Matrices without an
        inverse fail if one is needed.
        """
        image, a = values[0], self.arguments(ctx, values)
        matrix = a.vector("matrix", 9) if "matrix" in self.args else values[1].vectors("the matrix", ctx.present, 9)
        if matrix is None or matrix.shape[1] != 9:
            raise ArgumentError(
                f"the matrix must be 3 x 3 for each sample, got {0 if matrix is None else matrix.shape[1]} numbers"
            )
        matrix = matrix.astype(np.float32).astype(np.float64).reshape(-1, 3, 3)
        if not self.inverse_map:
            is_singular = np.linalg.det(matrix) == 0
            for i in np.flatnonzero(is_singular & ctx.present):
                ctx.fail(int(i), Status.ARGUMENT, f"the matrix must have an inverse, got {matrix[i].tolist()}")
            matrix = np.linalg.inv(np.where(is_singular[:, None, None], np.eye(3), matrix))
        # The kernel maps indices of pixels to points relative to the image's corner. `half` moves points by half a
        # pixel. If the matrix is for points relative to corners, it moves indices to the pixels' centres first. If the
        # matrix is for indices, it moves the result.
        half = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
        matrix = matrix @ half if self.pixel_origin == "corner" else half @ matrix
        fills = np.size(self.fill_value)
        for i in np.flatnonzero((image.shapes[:, -1] != fills) & ctx.present & (fills > 1)):
            ctx.fail(
                int(i), Status.ARGUMENT, f"argument fill_value has {fills} numbers for {image.shapes[i, -1]} channels"
            )
        requested = a.vector("size", 2, one_for_all=True)
        return self.setup_of(
            ctx,
            image,
            matrix.reshape(-1, 9),
            size=None if requested is None else _rounded(requested),
            fill=self.fill_value,
        )


def _rounded(size: np.ndarray) -> np.ndarray:
    """Sizes rounded to whole extents, at least 1."""
    return np.maximum(1, np.floor(size + 0.5)).astype(np.int64)


@operator_function(WarpPerspective)
def warp_perspective(
    input: Input,
    matrix_input: InputPerFrame | None = None,
    /,
    *,
    border_mode: Literal["constant", "replicate", "reflect", "reflect_101", "wrap"] = "constant",
    fill_value: Annotated[OneOrMore[float], Range(infinite=True)] = 0.0,
    interp_type: Annotated[
        types.DALIInterpType, OneOf(types.INTERP_NN, types.INTERP_LINEAR, types.INTERP_CUBIC)
    ] = types.INTERP_LINEAR,
    inverse_map: bool = True,
    matrix: Annotated[PerFrame[ListOf[float]] | None, Len(9)] = None,
    pixel_origin: Literal["corner", "center"] = "corner",
    size: Annotated[PerSample[OneOrMore[float]] | None, Range(0, above=True)] = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Applies projective maps to images.

    The matrix times ``(x, y, 1)`` of the result, divided by its third number, is the point of the image that the result
    shows.

    Differs from DALI on the CPU: linear interpolation of int16 uses coordinates of full precision, where DALI rounds
    them to 1/32 pixel. Cubic interpolation mirrors or repeats images at any distance, where DALI gives a single pixel
    beyond about twice their extents.

    Args:
      input: HWC, FHWC, CHW, FCHW or HW; uint8, int16, uint16, float32 or (not in DALI) float16, bfloat16; any number of
        channels. Data without a layout count as HW, HWC or FHWC by their rank.
      matrix_input: the matrix as an input, ``[3, 3]`` per sample or frame, a host value, instead of the argument
        `matrix`.
      border_mode: what is outside the image. "constant": the fill value; "replicate": the nearest pixel; "reflect": the
        image mirrored at its edge; "reflect_101": the image mirrored about the centres of its outermost pixels; "wrap":
        the image repeated.
      fill_value: one number, or one per channel if the layout ends with C; rounded and clipped to the element type.
      interp_type: INTERP_NN, INTERP_LINEAR or INTERP_CUBIC (Keys' kernel with -0.75, as in OpenCV).
      inverse_map: if True, the matrix maps points of the result to points of the input; if False, the other way round.
      matrix: 9 numbers, row by row. May be per sample or frame.
      pixel_origin: which point is (0, 0): the "corner" of the image, or the "center" of its first pixel, as in OpenCV.
      size: extents of the result, (H, W) or one number for both, rounded. Default: the input's. May be per sample.

    Returns:
      The mapped images, in the input's layout and type.

    Raises:
      ValueError: wrong layout or element type, or a wrong number of elements. A sample whose matrix has no inverse
        fails when its batch is made, if the inverse is needed.

    Example:
      >>> fn.experimental.warp_perspective(images, matrix=[1.0, 0.2, 0.0, 0.0, 1.0, 0.0, 0.0, 0.001, 1.0])
    """
    ...
