"""Windows that arguments describe: by size and position as in `crop`, or by axis as in `slice`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from ... import _cpu
from ..._core.arguments import Values
from ..._core.context import HostContext
from ..._core.errors import ArgumentError
from ..._core.values import Spec, Value
from ..._cpu import Status
from .layouts import LAYOUT_ADVICE, SPATIAL, depth_doubt
from .window import Part, Window

Policy = Literal["error", "pad", "trim_to_shape"]
Rounding = Literal["round", "truncate", "torchvision"]
_INSIDE = '; out_of_bounds_policy="pad" fills what is outside, "trim_to_shape" cuts the window'
_FAR = float(1 << 62)  # an index that no window reaches; the sum of two of them still fits into int64
_SIZES = ("crop", *(f"crop_{letter.lower()}" for letter in SPATIAL))  # the arguments for a window's extents


def halves_away(x: np.ndarray) -> np.ndarray:
    """`x` rounded to whole numbers, halves away from zero."""
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def rounded(x: np.ndarray) -> np.ndarray:
    """`x` rounded to ``int64``, halves away from zero. Numbers that are too far away for any window, infinities too,
    are clipped so that sums of two of them still fit.
    """
    return np.clip(halves_away(x), -_FAR, _FAR).astype(np.int64)


def float32_rounded(x: np.ndarray) -> np.ndarray:
    """`x` rounded to float32, as ``f64``. DALI holds fractions of extents in it, and the nearest index can depend on
    it.
    """
    return x.astype(np.float32).astype(np.float64)


@np.errstate(over="ignore", invalid="ignore")  # fractions may be infinite or NaN
def window_bounds(extent: np.ndarray, argument: Callable[[str], np.ndarray | None]) -> tuple[np.ndarray, np.ndarray]:
    """The first index of windows, and the index after the last one, before they are rounded, as ``f64``.

    Args:
      extent: the extents, the unit of relative arguments.
      argument: returns the values of start, rel_start, end, rel_end, shape or rel_shape; None: it is not given.
    """

    def relative(name: str) -> np.ndarray | None:
        x = argument(name)
        return None if x is None else float32_rounded(x)

    extent = extent.astype(np.float64)
    start, end, shape = (argument(n) for n in ("start", "end", "shape"))
    rel_start, rel_end, rel_shape = (relative(n) for n in ("rel_start", "rel_end", "rel_shape"))
    # DALI multiplies in single precision, but a sum of a relative start and a relative shape in double precision.
    begin = np.zeros(extent.shape) if start is None else start.astype(np.float64)
    if rel_start is not None:
        begin = float32_rounded(rel_start * extent)
    if end is not None:
        return begin, end.astype(np.float64)
    if rel_end is not None:
        return begin, float32_rounded(rel_end * extent)
    if shape is not None:
        return begin, begin + shape
    if rel_shape is None:
        return begin, extent
    if rel_start is not None:
        return begin, (rel_start + rel_shape) * extent
    return begin, begin + float32_rounded(rel_shape * extent)


def placed(position: np.ndarray, free: np.ndarray, rounding: Rounding) -> np.ndarray:
    """The first index of each window along an axis, whole numbers as ``f64``.

    Args:
      position: from 0, the window stands at the axis' start, to 1, at its end.
      free: how many elements of the axis are not in the window; negative if the window is larger than the axis.
      rounding: how the index becomes a whole number.
    """
    # Positions have single precision, as DALI's arguments.
    place = position.astype(np.float32).astype(np.float64) * free
    if rounding == "torchvision":
        # torchvision pads a window that is larger than the image by more at its end than at its start.
        return np.where(place < 0, np.trunc(place), np.rint(place))
    return np.trunc(place) if rounding == "truncate" else halves_away(place)


def converted(image: Spec, dtype: np.dtype | None) -> np.dtype:
    """The element type of a window, by the argument `dtype`. Raises ValueError for one that the kernel can't write."""
    if dtype not in (None, image.dtype) and dtype.name not in ("uint8", "float16", "bfloat16", "float32"):
        raise ValueError(
            f"argument dtype must be the input's type, UINT8, FLOAT16, BFLOAT16 or FLOAT; got {dtype}, the input is {image.dtype}"
        )
    return dtype or image.dtype


class Bounded(Window):
    """A window that may reach outside the image."""

    out_of_bounds_policy: Policy
    fill_values: tuple[float, ...] | float  # one number, or one for each channel

    @property
    def has_fill(self) -> bool:
        return self.out_of_bounds_policy == "pad"

    @property
    def reads_region(self) -> bool:
        return True

    def bounded(self, ctx: HostContext, shapes: np.ndarray, start: np.ndarray, extent: np.ndarray) -> Part:
        """The windows after `out_of_bounds_policy` is applied.

        `start` and `extent`, ``i64[N, ndim]``, belong to the result afterwards; they are changed in place.
        """
        window = Part(start, np.full(start.shape, 1, np.int64), extent)
        if self.out_of_bounds_policy == "pad":
            window.fill = np.tile(np.atleast_1d(np.asarray(self.fill_values, np.float64)), (ctx.N, 1))
            return window
        # Trims the windows, or returns the samples whose window reaches outside.
        for i in _cpu.bound_windows(
            np.ascontiguousarray(shapes), self.out_of_bounds_policy == "trim_to_shape", start, extent
        ):
            ranges = [f"{a} ... {a + n}" for a, n in zip(start[i].tolist(), extent[i].tolist(), strict=True)]
            reason = f"the window {', '.join(ranges)} reaches outside the sample, of shape {tuple(shapes[i].tolist())}"
            # The advice is for images: vectors get the reason alone.
            ctx.fail(i, Status.OUT_OF_BOUNDS, reason + _INSIDE * (shapes.shape[1] > 1))
            # A failed sample continues with a window that lies inside.
            start[i], extent[i] = 0, np.minimum(extent[i], shapes[i])
        return window


class ByAxis:
    """Arguments or inputs with one number for each of the axes that `axes` or `axis_names` list, as arrays with a
    number for every axis.

    Attributes:
      is_listed: ``bool[N, ndim]``, the axes that are listed.
    """

    def __init__(self, ctx: HostContext | None, shapes: np.ndarray, a: Values, axes: Sequence[int] | None):
        """Reads the axes.

        Args:
          ctx: None if no argument comes per sample.
          shapes: the shapes of the samples, ``i64[N, ndim]``.
          a: the operator's arguments.
          axes: the axes of all samples. None: each sample has its own in the argument `axes`; an empty list means all.
        """
        self._ctx, self._a = ctx, a
        self.is_listed = np.zeros(shapes.shape, bool)
        # The listed axes: one list for all samples, or, if it is None, a list for each sample.
        self._axes, self._sample_axes = axes, []
        if axes is not None:
            self.is_listed[:, axes] = True
            return
        assert ctx is not None
        for i, numbers in enumerate(a.ragged("axes")):
            try:
                self._sample_axes.append(
                    axes_of("", shapes.shape[1], axis_names=None, axes=numbers.astype(np.int64).tolist() or None)
                )
            except ArgumentError as e:
                ctx.fail(i, Status.ARGUMENT, str(e))
                self._sample_axes.append([])
            self.is_listed[i, self._sample_axes[i]] = True

    def argument(self, name: str) -> np.ndarray | None:
        """An argument, of one number per listed axis or one for all of them, as ``f64[N, ndim]``. Axes that are not
        listed get NaN. None: the argument is not given.
        """
        if name not in self._a:
            return None
        if self._axes is None:
            return self._spread(name, self._a.ragged(name))
        numbers = self._a.vector(name, len(self._axes), one_for_all=True)
        assert numbers is not None
        return self._spread(name, numbers)

    def input(self, name: str, value: Value) -> np.ndarray:
        """An input in the host's memory, of one number per listed axis, as `argument` returns it."""
        assert self._ctx is not None
        if self._axes is not None:
            return self._spread(name, value.vectors(name, self._ctx.present, len(self._axes)))
        return self._spread(name, [value.sample(i).reshape(-1) for i in value.indices(self._ctx.present)])

    def _spread(self, name: str, numbers: np.ndarray | Sequence[np.ndarray]) -> np.ndarray:
        """Numbers of the listed axes, ``[N, axes]`` or one array per sample, as ``f64[N, ndim]`` with NaN elsewhere."""
        out = np.full(self.is_listed.shape, np.nan)
        if isinstance(numbers, np.ndarray):
            assert self._axes is not None
            if numbers.shape[1] not in (1, len(self._axes)):
                raise ArgumentError(
                    f"{name} must have {len(self._axes)} numbers per sample, one per axis, got {numbers.shape[1]}"
                )
            out[:, self._axes] = numbers
            return out
        for i, (axes, x) in enumerate(zip(self._sample_axes, numbers, strict=True)):
            if len(x) in (1, len(axes)):
                out[i, axes] = x
            elif self._ctx is not None and self._ctx.present[i]:
                self._ctx.fail(
                    i, Status.ARGUMENT, f"{name} must have a number for each of the axes {axes}, got {x.tolist()}"
                )
        return out


class CropWindow(Bounded):
    """A crop: the window of the arguments `crop`, `crop_h`, `crop_w`, `crop_d`, `crop_pos_x`, `crop_pos_y`,
    `crop_pos_z` and `rounding`.
    """

    rounding: Rounding

    @property
    def reads_region(self) -> bool:
        return any(n in self.args for n in _SIZES)

    def layout(self, image: Spec) -> str:
        # Four axes without a layout are a volume for crops, as in DALI; for other operators they are a sequence, FHWC.
        return "DHWC" if image.ndim == 4 and not image.layout else super().layout(image)

    def doubts(self, *specs: Spec) -> str:
        """A warning about arguments for a depth; "" if there is none."""
        a = self.args
        arguments = {
            "crop": a.is_static("crop") and len(a.get("crop") or ()) == 3,
            "crop_d": "crop_d" in a,
            "crop_pos_z": not a.is_static("crop_pos_z") or a.get("crop_pos_z") not in (None, 0.5),
        }
        # Four axes are a volume, see `layout`.
        return depth_doubt(specs[0], next((n for n, x in arguments.items() if x and specs[0].ndim == 3), ""))

    def crop_extents(self, image: Spec) -> list[int | None]:
        """The extents of the window that are known when the pipeline is built."""
        extents = [image.extent(d) for d in range(image.ndim)]
        is_static = all(self.args.is_static(n) for n in _SIZES)
        if is_static:
            for d, n in crop_sizes(self.layout(image), self.arguments(None, ())).items():
                extents[d] = int(n[0]) or extents[d]  # 0 means the whole axis
        # Arguments per sample, and trimmed windows, give each sample other extents. But if no size is given, the window
        # is the whole image, which is never trimmed.
        if not is_static or self.out_of_bounds_policy == "trim_to_shape":
            if not is_static or any(n in self.args for n in _SIZES):
                for d in crop_axes(self.layout(image)).values():
                    extents[d] = None
        return extents

    def crop(self, ctx: HostContext, image: Value, a: Values) -> Part:
        """The windows of a batch of images; the whole images if no argument says otherwise."""
        # A window that may have fill goes through `bounded`, which adds the fill values.
        if not self.has_fill and not any(n in self.args for n in _SIZES):
            return Part.whole(image.shapes)
        layout = self.layout(image.spec)
        start, extent = np.zeros(image.shapes.shape, np.int64), image.shapes.copy()
        for d, n in crop_sizes(layout, a).items():
            extent[:, d] = np.where(n > 0, n, extent[:, d])
            start[:, d] = crop_start(layout[d], image.shapes[:, d] - extent[:, d], a, self.rounding)
        return self.bounded(ctx, image.shapes, start, extent)


def crop_axes(layout: str) -> dict[str, int]:
    """The axis of each of the letters D, H and W in the arguments of crops, in the layout's order.

    In a sequence D is the axis of the frames; an image has no D.
    """
    letters = {"F": "D", "H": "H", "W": "W"} if "D" not in layout else dict(zip(SPATIAL, SPATIAL))
    return {letters[letter]: d for d, letter in enumerate(layout) if letter in letters}


def crop_sizes(layout: str, a: Values) -> dict[int, np.ndarray]:
    """The window's extents by axis, ``i64[N]`` each, by the arguments `crop` or `crop_h`, `crop_w` and `crop_d`. 0
    means the whole axis.

    As in DALI, fractions are dropped, numbers below 1 mean the whole axis, and a number for an axis D that the layout
    lacks is ignored. In a sequence D is the axis of the frames.
    """
    axes = crop_axes(layout)
    named = {letter: a.get(f"crop_{letter.lower()}") for letter in SPATIAL}
    named = {letter: x for letter, x in named.items() if x is not None}
    # An argument that is 0 in all samples counts as not given.
    used = [letter for letter, x in named.items() if np.any(x > 0)]
    if "crop" in a:
        if used:
            raise ArgumentError(f"give either crop or {', '.join(f'crop_{x.lower()}' for x in used)}, not both")
        # (H, W) or (D, H, W).
        sizes = dict(zip("DHW"[-a.crop.shape[1] :], a.crop.T, strict=True))
    else:
        if used and not {"H", "W"} <= set(named):
            raise ArgumentError("crop_h and crop_w must be given together")
        sizes = named
    return {axes[letter]: np.clip(x, 0, _FAR).astype(np.int64) for letter, x in sizes.items() if letter in axes}


def crop_start(letter: str, free: np.ndarray, a: Values, rounding: Rounding) -> np.ndarray:
    """The first index of each window along the axis `letter`, ``i64[N]``, by `crop_pos_x`, `crop_pos_y` or
    `crop_pos_z`.

    `free`: how many elements of the axis are not in the window.
    """
    return placed(a[f"crop_pos_{_POSITION[letter]}"], free, rounding).clip(-_FAR, _FAR).astype(np.int64)


# The arguments crop_pos_x, crop_pos_y and crop_pos_z by axis; frames are the third dimension of a sequence.
_POSITION = {"W": "x", "H": "y", "D": "z", "F": "z"}


def axes_of(layout: str, ndim: int, axis_names: str | None, axes: Sequence[int] | None) -> list[int]:
    """Indices of the axes that `axis_names` or `axes` list; without both, of all axes.

    Raises:
      ArgumentError: there is no such axis, or one is listed twice.
    """
    if axis_names:
        missing = [c for c in axis_names if c not in layout]
        if missing:
            advice = "" if layout else LAYOUT_ADVICE
            raise ArgumentError(f"axis_names must be axes of the layout {layout!r}, got {axis_names!r}{advice}")
        indices = [layout.index(c) for c in axis_names]
    else:
        # Negative axes count from the end.
        indices = [d + ndim if d < 0 else d for d in (range(ndim) if axes is None else axes)]
        if any(not 0 <= d < ndim for d in indices):
            raise ArgumentError(f"axes must be in -{ndim} ... {ndim - 1}, got {list(axes or ())}")
    if len(set(indices)) < len(indices):
        raise ArgumentError(f"an axis occurs twice in {axis_names or list(axes or ())}")
    return indices
