"""Rotation of images and volumes, on the native affine warp."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ... import types
from ..._core.context import HostContext
from ..._core.declaration import EXTENTS, DType, Len, OneOf, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import Setup
from ..._core.operator_function import DTypeHints, Input, ListOf, OneOrMore, PerFrame, PerSample, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Status
from .._families import Warp
from .._families.layouts import depth_doubt


def radians(degrees: np.ndarray) -> np.ndarray:
    """Angles in radians, by DALI's conversion: both the angle and the factor have 32 bits."""
    return (degrees.astype(np.float32) * np.float32(np.pi / 180)).astype(np.float64)


def cos_sin(degrees: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines. They are exact for quarter turns, which therefore only move pixels."""
    a = radians(degrees)
    # float64 has no exact pi: the cosine of 90 degrees would not be 0.
    quarter = np.rint(degrees / 90)
    is_quarter_turn = degrees == quarter * 90
    k = np.where(is_quarter_turn, np.mod(quarter, 4), 0).astype(np.int64)
    c = np.where(is_quarter_turn, np.array([1.0, 0.0, -1.0, 0.0])[k], np.cos(a))
    s = np.where(is_quarter_turn, np.array([0.0, 1.0, 0.0, -1.0])[k], np.sin(a))
    return c, s


def rotation(axis: np.ndarray, c: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Rotation matrices ``[N, 3, 3]`` about `axis` ``[N, 3]`` (x, y, z), by Rodrigues' formula."""
    x, y, z = (axis / np.linalg.norm(axis, axis=1, keepdims=True)).T
    t = 1 - c
    rows = [
        [c + x * x * t, x * y * t - z * s, x * z * t + y * s],
        [y * x * t + z * s, c + y * y * t, y * z * t - x * s],
        [z * x * t - y * s, z * y * t + x * s, c + z * z * t],
    ]
    return np.stack([np.stack(r, axis=-1) for r in rows], axis=-2)


def canvas(
    size: np.ndarray, degrees: np.ndarray, axis: np.ndarray | None, frames: np.ndarray | None = None
) -> np.ndarray:
    """Extents that hold the whole rotated image, or all frames of a sequence.

    Each extent gets the parity of the source axis that contributes most to it (in most frames), so that pixel centres
    stay on pixel centres for small angles.

    Args:
      size: ``i64[N, D]``, extents (z,) y, x.
      degrees: ``f64[N]``.
      axis: ``f64[N, 3]`` for volumes.
      frames: ``bool[sequences, K]``, which frames of each sequence are present; the N images are the frames of all
        sequences. Default: each image is on its own.

    Returns:
      ``i64[N, D]``.
    """
    # `main` is the source extent that contributes most to each extent of the canvas. 0.01 pixel is left out against
    # rounding errors, as in DALI. Volumes are computed in float32, and images in float64, also as in DALI.
    a = radians(degrees)
    if axis is None:
        c, s = np.abs(np.cos(a)), np.abs(np.sin(a))
        h, w = size[:, 0], size[:, 1]
        extent = np.empty((len(size), 2), np.int64)
        extent[:, 0] = np.maximum(np.ceil(s * w + c * h - 0.01), 0)
        extent[:, 1] = np.maximum(np.ceil(c * w + s * h - 0.01), 0)
        main = np.where((s <= c)[:, None], size, size[:, ::-1])
    else:
        source = size[:, ::-1]  # x, y, z
        contribution = np.abs(rotation(axis, np.cos(a), np.sin(a))).astype(np.float32)
        diagonal = np.diagonal(contribution, axis1=1, axis2=2)
        # Of equal contributions, that of the axis itself counts as the largest.
        main_axis = np.where(contribution.max(axis=2) > diagonal, contribution.argmax(axis=2), [[0, 1, 2]])
        extent = np.ceil(
            (contribution * source[:, None].astype(np.float32)).sum(axis=2, dtype=np.float32) - np.float32(0.01)
        )
        extent, main = (
            np.maximum(extent, 0).astype(np.int64)[:, ::-1],
            np.take_along_axis(source, main_axis, axis=1)[:, ::-1],
        )
    # An extent of the wrong parity grows by 1.
    if frames is None:
        return extent + (extent + main) % 2
    is_present = frames[:, :, None]
    # All frames of a sequence get the largest extents of its frames.
    extent = np.where(is_present, extent.reshape(*frames.shape, -1), 0).max(axis=1)
    is_mostly_odd = 2 * (is_present & (main.reshape(*frames.shape, -1) % 2 == 1)).sum(axis=1) > is_present.sum(axis=1)
    return np.repeat(extent + (extent + is_mostly_odd) % 2, frames.shape[1], axis=0)


def source_map(size: np.ndarray, out: np.ndarray, degrees: np.ndarray, axis: np.ndarray | None) -> np.ndarray:
    """The kernel's affine maps ``f64[N, D, D+1]``: from an output pixel (x, y(, z)) to the source point of its centre.
    The centres of both images correspond.
    """
    c, s = cos_sin(degrees)
    # Pixel centres are at 0.5, 1.5, ... The centre of the output, size / 2, is mapped to that of the input.
    if axis is None:
        x, y = 0.5 - out[:, 1] / 2, 0.5 - out[:, 0] / 2
        matrix = np.empty((len(size), 2, 3))
        matrix[:, 0, 0], matrix[:, 0, 1], matrix[:, 0, 2] = c, -s, c * x - s * y + size[:, 1] / 2
        matrix[:, 1, 0], matrix[:, 1, 1], matrix[:, 1, 2] = s, c, s * x + c * y + size[:, 0] / 2
        return matrix
    # From the output to the source: the inverse rotation.
    turn = rotation(axis, c, -s)
    origin = np.einsum("nij,nj->ni", turn, 0.5 - out[:, ::-1] / 2) + size[:, ::-1] / 2
    return np.concatenate([turn, origin[:, :, None]], axis=2)


class Rotate(Warp):
    """Rotation about the centre."""

    name = "rotate"
    keep_size: bool

    def doubts(self, *specs: Spec) -> str:
        return depth_doubt(specs[0], "axis" if "axis" in self.args else "")

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """The input's layout, with the extents of the canvas as far as they are the same for all samples."""
        _, first, dims = self.layout(image)
        if dims == 3 and "axis" not in self.args:
            raise ArgumentError("volumes need the argument axis: (x, y, z)")
        if dims == 3 and self.args.is_static("axis") and not np.any(self.args.get("axis")):
            raise ArgumentError("argument axis must not be the zero vector")
        self.args.check_width("size", dims, arguments)
        extents = [image.extent(d) for d in range(first, first + dims)]
        # Stays unknown if it depends on arguments per sample, or on extents that vary.
        size: list[int | None] = [None] * dims
        if "size" in self.args:
            if self.args.is_static("size"):
                size = self.extents(self.args.get("size")).tolist()
        elif self.keep_size:
            size = extents
        elif None not in extents and self.args.is_static("angle") and self.args.is_static("axis"):
            # All samples have the same canvas: it is computed for one.
            axis = None if dims == 2 else np.array([self.args.get("axis")], np.float64)
            size = canvas(np.array([extents]), np.array([float(self.args.get("angle"))]), axis)[0].tolist()
        return (self.output(image, size),)

    def setup(self, ctx: HostContext, image: Value, *arguments: Value) -> Setup:
        """The size of each result, and the map of its pixels. A volume whose axis is the zero vector fails."""
        _, first, dims = self.layout(image.spec)
        a = self.arguments(ctx, arguments)
        angle = a.angle.astype(np.float32).astype(np.float64)
        axis = a.axis if dims == 3 else None
        if axis is not None:
            is_nonzero = (axis != 0).any(axis=1)
            for i in np.flatnonzero(~is_nonzero & ctx.present):
                ctx.fail(int(i), Status.ARGUMENT, "argument axis must not be the zero vector")
            axis = np.where(is_nonzero[:, None], axis, 1.0)  # a failed sample continues with another axis
        size = image.shapes[:, first : first + dims]
        requested = a.vector("size", dims)
        if requested is not None:
            out = self.extents(requested)
        elif self.keep_size:
            out = size
        else:
            out = canvas(size, angle, axis, ctx.present.reshape(-1, ctx.frames) if ctx.frames > 1 else None)
        # `setup_of` may pass other extents than `out`, where a sample is too large.
        return self.setup_of(ctx, image, out, lambda out: source_map(size, out, angle, axis))


@operator_function(Rotate)
def rotate(
    input: Input,
    /,
    *,
    angle: PerFrame[float],
    axis: Annotated[PerFrame[ListOf[float]] | None, Len(3)] = None,
    dtype: DType | None = None,
    fill_value: Annotated[float | None, Range(infinite=True)] = None,
    interp_type: Annotated[types.DALIInterpType, OneOf(types.INTERP_LINEAR, types.INTERP_NN)] = types.INTERP_LINEAR,
    keep_size: bool = False,
    size: Annotated[PerSample[OneOrMore[float]] | None, Range(0, above=True), EXTENTS] = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[DTypeHints],
) -> DataNode:
    """Rotates images, sequences or volumes about their centre.

    Results are within 1 level of DALI's for uint8, and within 2e-4 of the values' range for wider types. Unlike DALI's,
    rotations by multiples of 90 degrees are exact, results do not depend on how far a pixel is from the left edge, and
    arguments given as inputs may have any numeric type.

    Args:
      input: HWC, FHWC, DHWC or FDHWC; uint8, int16, int32, float32 or (not in DALI) float16, bfloat16; any number
        of channels. Data without a layout count as HWC, FHWC or FDHWC by their rank.
      angle: the angle in degrees: for images counter-clockwise as seen on screen, for volumes positive about `axis`.
        May be per sample or frame.
      axis: for volumes only, and required there: the vector (x, y, z) to rotate about, of any length. May be per sample
        or frame.
      dtype: element type of the result: the input's (default) or FLOAT; from float32 any of the types above.
      fill_value: the value of points outside the image, rounded and clipped to the element type (with INTERP_LINEAR
        also to the input's type, as edges are blended with it over one pixel). Default: the nearest pixel of the edge
        is repeated.
      interp_type: INTERP_LINEAR or INTERP_NN.
      keep_size: Whether the result has the size of the input, so that corners are lost.
      size: extents of the result, (H, W) or (D, H, W), rounded; overrides `keep_size`. Default: as large as the rotated
        image, or all rotated frames of a sequence, need. May be per sample; then, and in an array, fractions are
        dropped. Extents are at least 1.

    Returns:
      The rotated data, in the input's layout.

    Raises:
      ValueError: wrong layout, element types or interpolation, or a wrong number of elements in `size` or `axis`. A
        sample with an argument outside its range fails when its batch is made.

    Example:
      >>> fn.rotate(images, angle=fn.random.uniform(range=(-10.0, 10.0)), fill_value=0, keep_size=True)
    """
    ...
