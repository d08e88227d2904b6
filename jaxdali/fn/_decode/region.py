"""Decoders that return a window of each image.

The windows of all three operators refer to the upright image. They become regions of the raster that is stored in the
file. `ImageHeaders` passes each image's region to its decoder, which writes no pixel outside of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ... import _cpu
from ..._core.arguments import Arguments, Values
from ..._core.building import is_node
from ..._core.context import HostContext
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.values import Spec, Value
from ...types import is_float, is_number
from .._families.cropping import Rounding, float32_rounded, halves_away, placed, window_bounds
from .._families.drawing import uniforms
from .._families.random_windows import random_windows
from .decode import DecodeImage
from .headers import ImageHeaders

Extents = tuple[int | None, int | None]


class _RegionHeaders(ImageHeaders):
    """Headers of images of which a window is decoded. Inputs: the encoded images, then those of `windows`."""

    def windows(self, ctx: HostContext, values: Sequence[Value], extents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Chooses the window of each sample in its upright image.

        Args:
          extents: height and width of the upright images, ``i64[N, 2]``.

        Returns:
          (start, size), ``f64[N, 2]`` of whole numbers: rows, then columns.
        """
        raise NotImplementedError(self.name)

    def choose_regions(self, ctx: HostContext, info: np.ndarray, values: Sequence[Value]) -> dict[int, str]:
        """See `ImageHeaders.choose_regions`. The native code turns windows of the upright images into regions."""
        adjust, extents = self.images.adjust_orientation, np.empty((len(info), 2), np.int64)
        _cpu.upright_extents(info, adjust, extents)
        start, size = self.windows(ctx, values, extents)
        bad = _cpu.set_regions(
            info, adjust, np.ascontiguousarray(start, np.float64), np.ascontiguousarray(size, np.float64)
        )
        return {i: _outside(start[i], size[i], extents[i]) for i in bad}


class CropHeaders(_RegionHeaders):
    """Windows of a given size. `args`: crop, or crop_h and crop_w, or neither; crop_pos_x, crop_pos_y.

    Attributes:
      rounding: how the window's first row and column are rounded.
    """

    name: ClassVar[str] = "decoders.image_crop"
    rounding: Rounding

    # Arguments may be infinite or NaN: `set_regions` refuses such windows.
    @np.errstate(invalid="ignore")
    def windows(self, ctx: HostContext, values: Sequence[Value], extents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `_RegionHeaders.windows`. The size is `crop`, or `crop_h` and `crop_w`."""
        a = self.arguments(ctx, values)
        if "crop" in a:
            size = a.crop[:, -2:]  # without the depth, which may be the first number
        elif "crop_h" in a:
            size = np.stack([a.crop_h, a.crop_w], axis=1)
        else:
            size = np.zeros((ctx.N, 2))
        # As in DALI, sizes are rounded down, and one below 1 means the whole extent.
        size = np.where(size >= 1, np.floor(size), extents)
        place = np.stack([a.crop_pos_y, a.crop_pos_x], axis=1)
        return placed(place, extents - size, self.rounding), size


class SliceHeaders(_RegionHeaders):
    """Windows between given coordinates. `args`: start or rel_start; end, rel_end, shape or rel_shape; axes.

    Attributes:
      normalized: whether a floating-point (anchor, shape), which are inputs 1 and 2, are fractions of the extents.
    """

    name: ClassVar[str] = "decoders.image_slice"
    normalized: tuple[bool, bool] | None

    def infer(self, encoded: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        if self.normalized is not None:
            floats = {is_float(a.dtype) for a in arguments[:2]}
            if len(floats) > 1 or not all(is_number(a.dtype) for a in arguments[:2]):
                raise TypeError(
                    f"anchor and shape must both be integers or both be floats, got {arguments[0].dtype} and {arguments[1].dtype}"
                )
        return super().infer(encoded, *arguments)

    # Arguments may be infinite or NaN: `set_regions` refuses such windows.
    @np.errstate(invalid="ignore")
    def windows(self, ctx: HostContext, values: Sequence[Value], extents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `_RegionHeaders.windows`. Start and end are computed along `axes`: one, or both in any order."""
        a = self.arguments(ctx, values)
        axes = a.axes % 2  # -2 and -1 are 0 and 1
        if axes.shape[1] not in (1, 2) or (axes[:, :1] == axes[:, 1:]).any():
            raise ArgumentError("axes must be one or two different ones of 0 (height) and 1 (width)")
        extent = np.take_along_axis(extents, axes, axis=1).astype(np.float64)
        start, end = (
            self._window_from_arguments(a, extent)
            if self.normalized is None
            else self._window_from_inputs(ctx, values, extent)
        )
        start, end = halves_away(start), halves_away(end)
        # An axis that is not named is read whole.
        starts, sizes = np.zeros((ctx.N, 2)), extents.astype(np.float64)
        np.put_along_axis(starts, axes, start, axis=1)
        np.put_along_axis(sizes, axes, end - start, axis=1)
        return starts, sizes

    def _window_from_arguments(self, arguments: Values, extent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Start and end of each window, along the axes of `extent`, from start, end, shape and their rel_ forms."""

        return window_bounds(extent, lambda name: arguments.vector(name, extent.shape[1], one_for_all=True))

    def _window_from_inputs(
        self, ctx: HostContext, values: Sequence[Value], extent: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Start and end of each window, along the axes of `extent`, from the inputs anchor and shape."""
        assert self.normalized is not None
        anchor, shape = (_dense(ctx, x, name) for x, name in zip(values[1:3], ("anchor", "shape"), strict=True))
        for name, x in (("anchor", anchor), ("shape", shape)):
            if x.shape[1] != extent.shape[1]:
                raise ArgumentError(
                    f"{name} must have a number for each of the {extent.shape[1]} axes, got {x.shape[1]}"
                )
        # Integers are pixels. Floats are fractions or pixels, as `normalized` says.
        if not is_float(values[1].spec.dtype):
            return anchor, anchor + shape
        anchor, shape = float32_rounded(anchor), float32_rounded(shape)
        if all(self.normalized):
            return anchor * extent, (anchor + shape) * extent
        start, size = (
            x * extent if is_normalized else x
            for x, is_normalized in zip((anchor, shape), self.normalized, strict=True)
        )
        return start, start + size


class RandomCropHeaders(_RegionHeaders):
    """Random windows, see `random_windows`; `area` and `aspect_ratio` are ranges."""

    name: ClassVar[str] = "decoders.image_random_crop"
    random: ClassVar[bool] = True
    area: tuple[float, float]
    aspect_ratio: tuple[float, float]
    num_attempts: int
    seed: int

    def windows(self, ctx: HostContext, values: Sequence[Value], extents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `_RegionHeaders.windows`. Two random numbers for the place, and two for each attempt."""
        return random_windows(
            uniforms(ctx, self.seed, 2 + 2 * self.num_attempts), extents, self.area, self.aspect_ratio
        )


class DecodeCrop(DecodeImage):
    """`DecodeImage` with the operator's name, for messages. The next two classes do the same."""

    name: ClassVar[str] = CropHeaders.name


class DecodeSlice(DecodeImage):
    name: ClassVar[str] = SliceHeaders.name


class DecodeRandomCrop(DecodeImage):
    name: ClassVar[str] = RandomCropHeaders.name


def _dense(ctx: HostContext, value: Value, name: str) -> np.ndarray:
    """The values of an input, ``f64[N, numbers of a sample]``. `name` is that of the input, for messages."""
    a = value.dense(name, ctx.present).astype(np.float64)
    return a.reshape(len(a), -1)


def _outside(start: np.ndarray, size: np.ndarray, extents: np.ndarray) -> str:
    """The message for a window that is empty or reaches outside of its image."""
    (y, x), (height, width), (H, W) = start.tolist(), size.tolist(), extents.tolist()
    problem = "the window reaches outside the image" if height >= 1 and width >= 1 else "the window is empty"
    advice = (
        '; fn.crop of the whole image, with out_of_bounds_policy="pad", fills what is outside'
        if height >= 1 and width >= 1
        else ""
    )
    return f"{problem}: rows {y:g} to {y + height:g}, columns {x:g} to {x + width:g} of an image of height {H} and width {W}{advice}"


def crop_arguments(
    crop: Any, crop_d: Any, crop_h: Any, crop_w: Any, crop_pos_x: Any, crop_pos_y: Any, page: Any
) -> tuple[Arguments, tuple[DataNode, ...], Extents]:
    """Checks the arguments of `image_crop`.

    Returns:
      (args of `CropHeaders`, its further inputs, height and width of all windows if they don't depend on the sample).
    """
    if (crop_h is None) != (crop_w is None):
        raise ArgumentError("crop_h and crop_w must be given together")
    if crop_d is not None and crop_h is None:
        raise ArgumentError("crop_d must be given together with crop_h and crop_w")
    if crop is not None and crop_h is not None:
        raise ArgumentError("either crop or crop_h and crop_w must be given, not both")
    values = {
        "crop": crop,
        "crop_h": crop_h,
        "crop_w": crop_w,
        "crop_pos_x": crop_pos_x,
        "crop_pos_y": crop_pos_y,
        "page": page,
    }
    args, nodes = Arguments.of(values, is_node)
    size_arguments = [name for name in ("crop", "crop_h", "crop_w") if name in args]
    if not size_arguments or not all(map(args.is_static, size_arguments)):
        return args, nodes, (None, None)
    sizes = [x for name in size_arguments for x in np.atleast_1d(args.get(name)).tolist()]
    # The last two, as `crop` may begin with a depth. A size below 1 means the extent of the image, which is not known.
    height, width = (int(x) if x >= 1 else None for x in sizes[-2:])
    return args, nodes, (height, width)


def slice_arguments(
    positional: tuple[Any, ...], axes: Any, axis_names: str | None, named: Mapping[str, Any], page: Any
) -> tuple[Arguments, tuple[Any, ...], Extents]:
    """Checks the arguments of `image_slice`.

    Args:
      positional: anchor and shape, None where absent. named: start, rel_start, end, rel_end, shape, rel_shape.

    Returns:
      (args of `SliceHeaders`, its further inputs, height and width of all windows if they don't depend on the sample).
    """
    window_arguments = [name for name, x in named.items() if x is not None]
    inputs = tuple(x for x in positional if x is not None)
    if len(inputs) == 1:
        raise ArgumentError("the inputs anchor and shape must be given together")
    if bool(window_arguments) == bool(inputs):
        raise ArgumentError(
            "the window must be given either by the inputs anchor and shape or by some of start, end, shape, rel_start, rel_end, rel_shape"
            + (f"; got the inputs and {', '.join(window_arguments)}" if window_arguments else "")
        )
    for exclusive in (("start", "rel_start"), ("end", "rel_end", "shape", "rel_shape")):
        if sum(name in window_arguments for name in exclusive) > 1:
            raise ArgumentError(
                f"only one of {', '.join(exclusive)} can be given, got {', '.join(n for n in exclusive if n in window_arguments)}"
            )
    if axis_names is not None:
        if axes is not None:
            raise ArgumentError("either axes or axis_names can be given, not both")
        axes = tuple(map("HW".index, axis_names))
    # By default, as in DALI, the first number of each argument is for the width.
    args, nodes = Arguments.of({"axes": (1, 0) if axes is None else axes, **named, "page": page}, is_node)
    if not args.is_static("axes"):
        return args, (*inputs, *nodes), (None, None)
    axis_numbers = np.atleast_1d(args.get("axes"))
    if len(axis_numbers) not in (1, 2) or len({int(a) % 2 for a in axis_numbers}) < len(axis_numbers):
        raise ArgumentError(f"axes must be one or two different ones of 0 (height) and 1 (width), got {axes!r}")
    for name in window_arguments:
        if args.is_static(name) and np.size(args.get(name)) not in (1, len(axis_numbers)):
            raise ArgumentError(
                f"{name} must have a number for each of the {len(axis_numbers)} axes, got {named[name]!r}"
            )
    extents: list[int | None] = [None, None]
    if "shape" in args and args.is_static("shape"):
        for axis, size in zip(axis_numbers, np.broadcast_to(args.get("shape"), axis_numbers.shape), strict=True):
            if not 1 <= size < 2**31:
                raise ArgumentError(f"shape must be positive, got {named['shape']!r}")
            extents[int(axis)] = int(size)  # -2 and -1 are the same axes as 0 and 1
    return args, (*inputs, *nodes), (extents[0], extents[1])
