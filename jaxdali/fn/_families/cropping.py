"""Groups of arguments that say which part of an image is meant: those of `crop`, and of `slice`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ... import _cpu
from ..._core.arguments import Values
from ..._core.context import HostContext
from ..._core.errors import ArgumentError
from ..._core.values import Spec, Value
from ..._cpu import Status
from .layouts import SPATIAL
from .window import Part, Window

Policy = Literal["error", "pad", "trim_to_shape"]
Rounding = Literal["round", "truncate", "torchvision"]
_INSIDE = '; out_of_bounds_policy="pad" fills what is outside, "trim_to_shape" cuts the window'
_FAR = float(1 << 62)
_SIZES = ("crop", *(f"crop_{letter.lower()}" for letter in SPATIAL))  # the arguments for a window's extents


def halves_away(x: np.ndarray) -> np.ndarray:
    """The nearest whole numbers, of halves those away from zero."""
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def rounded(x: np.ndarray) -> np.ndarray:
    """To whole numbers, halves away from zero; what no window reaches is as far away as int64 can say and still be
    added to.
    """
    return np.clip(halves_away(x), -_FAR, _FAR).astype(np.int64)


def placed(position: np.ndarray, free: np.ndarray, rounding: Rounding) -> np.ndarray:
    """First elements of windows, whole numbers as ``f64``, at a `position` from 0 to 1 of axes of which they leave
    `free` elements.
    """
    place = position.astype(np.float32).astype(np.float64) * free
    if rounding == "torchvision":  # a window that is larger than the image gets more of what is outside at its end
        return np.where(place < 0, np.trunc(place), np.rint(place))
    return np.trunc(place) if rounding == "truncate" else halves_away(place)


def converted(image: Spec, dtype: np.dtype | None) -> np.dtype:
    """The element type of a window, by the argument `dtype`. Raises ValueError for one that is not made."""
    if dtype not in (None, image.dtype) and dtype.name not in ("uint8", "float16", "bfloat16", "float32"):
        raise ValueError(
            f"argument dtype must be the input's type, UINT8, FLOAT16, BFLOAT16 or FLOAT; got {dtype}, the input is {image.dtype}"
        )
    return dtype or image.dtype


class Bounded(Window):
    """A window that may reach outside the image."""

    out_of_bounds_policy: Policy
    fill_values: tuple[float, ...] | float

    @property
    def has_fill(self) -> bool:
        return self.out_of_bounds_policy == "pad"

    @property
    def cuts(self) -> bool:
        return True

    def bounded(self, ctx: HostContext, shapes: np.ndarray, start: np.ndarray, extent: np.ndarray) -> Part:
        """The window, by the policy for what is outside. `start` and `extent` become parts of the result."""
        part = Part(start, np.full(start.shape, 1, np.int64), extent)
        if self.out_of_bounds_policy == "pad":
            part.fill = np.tile(np.atleast_1d(np.asarray(self.fill_values, np.float64)), (ctx.N, 1))
            return part
        for i in _cpu.bound_windows(
            np.ascontiguousarray(shapes), self.out_of_bounds_policy == "trim_to_shape", start, extent
        ):
            window = [f"{a} ... {a + n}" for a, n in zip(start[i].tolist(), extent[i].tolist(), strict=True)]
            reason = f"the window {', '.join(window)} reaches outside the sample, of shape {tuple(shapes[i].tolist())}"
            ctx.fail(i, Status.OUT_OF_BOUNDS, reason + _INSIDE * (shapes.shape[1] > 1))
            start[i], extent[i] = 0, np.minimum(extent[i], shapes[i])
        return part


class ByAxis:
    """Numbers that arguments or inputs have for some axes of each sample: those of `axes` or `axis_names`.

    Attributes:
      meant: ``bool[N, ndim]``, the axes that they are for.
    """

    def __init__(self, ctx: HostContext | None, shapes: np.ndarray, a: Values, axes: Sequence[int] | None):
        """`axes`: those of all samples; None: each sample has its own in the argument `axes`, of which none means all.

        `ctx` None: nothing comes per sample.
        """
        self._ctx, self._a = ctx, a
        self.meant = np.zeros(shapes.shape, bool)
        self._axes, self._each = axes, []
        if axes is not None:
            self.meant[:, axes] = True
            return
        assert ctx is not None
        for i, given in enumerate(a.ragged("axes")):
            try:
                self._each.append(axes_of("", shapes.shape[1], None, given.astype(np.int64).tolist() or None))
            except ArgumentError as e:
                ctx.fail(i, Status.ARGUMENT, str(e))
                self._each.append([])
            self.meant[i, self._each[i]] = True

    def argument(self, name: str) -> np.ndarray | None:
        """An argument, one number per axis or one for all, as ``f64[N, ndim]``, NaN for the other axes; None: it is not
        given.
        """
        if name not in self._a:
            return None
        if self._axes is None:
            return self._spread(name, self._a.ragged(name))
        numbers = self._a.vector(name, len(self._axes), one_for_all=True)
        assert numbers is not None
        return self._spread(name, numbers)

    def input(self, name: str, value: Value) -> np.ndarray:
        """The same of a host value with one number per axis."""
        assert self._ctx is not None
        if self._axes is not None:
            return self._spread(name, value.dense(name, self._ctx.present).reshape(len(value), -1))
        return self._spread(name, [value.sample(i).reshape(-1) for i in value.indices(self._ctx.present)])

    def _spread(self, name: str, numbers: np.ndarray | Sequence[np.ndarray]) -> np.ndarray:
        out = np.full(self.meant.shape, np.nan)
        if isinstance(numbers, np.ndarray):
            assert self._axes is not None
            if numbers.shape[1] not in (1, len(self._axes)):
                raise ArgumentError(
                    f"{name} must have {len(self._axes)} numbers per sample, one per axis, got {numbers.shape[1]}"
                )
            out[:, self._axes] = numbers
            return out
        for i, (axes, x) in enumerate(zip(self._each, numbers, strict=True)):
            if len(x) in (1, len(axes)):
                out[i, axes] = x
            elif self._ctx is not None and self._ctx.present[i]:
                self._ctx.fail(
                    i, Status.ARGUMENT, f"{name} must have a number for each of the axes {axes}, got {x.tolist()}"
                )
        return out


class CropWindow(Bounded):
    """The window of the arguments `crop`, `crop_h`, `crop_w`, `crop_d`, `crop_pos_x`, `crop_pos_y`, `crop_pos_z` and
    `rounding`.
    """

    rounding: Rounding

    @property
    def cuts(self) -> bool:
        return any(n in self.args for n in _SIZES)

    def layout(self, image: Spec) -> str:
        # As in DALI, but for other operators FHWC.
        return "DHWC" if image.ndim == 4 and not image.layout else super().layout(image)

    def crop_extents(self, image: Spec) -> list[int | None]:
        """The extents of the window that are known when the pipeline is built."""
        extents = [image.extent(d) for d in range(image.ndim)]
        fixed = all(self.args.is_static(n) for n in _SIZES)
        if fixed:
            for d, n in crop_sizes(self.layout(image), self.arguments(None, ())).items():
                extents[d] = int(n[0]) or extents[d]  # 0: all
        if not fixed or self.out_of_bounds_policy == "trim_to_shape":
            if not fixed or any(n in self.args for n in _SIZES):
                for d in crop_axes(self.layout(image)).values():
                    extents[d] = None
        return extents

    def crop(self, ctx: HostContext, image: Value, a: Values) -> Part:
        """The window."""
        if not self.has_fill and not any(n in self.args for n in _SIZES):
            return Part.whole(image.shapes)
        layout = self.layout(image.spec)
        start, extent = np.zeros(image.shapes.shape, np.int64), image.shapes.copy()
        for d, n in crop_sizes(layout, a).items():
            extent[:, d] = np.where(n > 0, n, extent[:, d])
            start[:, d] = crop_start(layout[d], image.shapes[:, d] - extent[:, d], a, self.rounding)
        return self.bounded(ctx, image.shapes, start, extent)


def crop_axes(layout: str) -> dict[str, int]:
    """The axes that arguments of a window call D, H and W, in the layout's order: of sequences D is the frames, of
    images there is none.
    """
    letters = {"F": "D", "H": "H", "W": "W"} if "D" not in layout else dict(zip(SPATIAL, SPATIAL))
    return {letters[letter]: d for d, letter in enumerate(layout) if letter in letters}


def crop_sizes(layout: str, a: Values) -> dict[int, np.ndarray]:
    """The axes of which `crop` or `crop_h`, `crop_w` and `crop_d` give the extents, with these: ``i64[N]``, 0: all.

    As in DALI, fractions are dropped, numbers below 1 mean all, and a number for an axis D that the layout has not is
    ignored. Of sequences it is for the frames.
    """
    axes = crop_axes(layout)
    named = {letter: a.get(f"crop_{letter.lower()}") for letter in SPATIAL}
    named = {letter: x for letter, x in named.items() if x is not None}
    used = [letter for letter, x in named.items() if np.any(x > 0)]
    if "crop" in a:
        if used:
            raise ArgumentError(f"give either crop or {', '.join(f'crop_{x.lower()}' for x in used)}, not both")
        size = a.crop.reshape(len(a.crop), -1)
        if size.shape[1] not in (2, 3):
            raise ArgumentError(f"argument crop must be 2 or 3 numbers, got {size.shape[1]}")
        sizes = dict(zip("DHW"[-size.shape[1] :], size.T, strict=True))
    else:
        if used and not {"H", "W"} <= set(named):
            raise ArgumentError("crop_h and crop_w must be given together")
        sizes = named
    return {axes[letter]: np.maximum(x.astype(np.int64), 0) for letter, x in sizes.items() if letter in axes}


def crop_start(letter: str, free: np.ndarray, a: Values, rounding: Rounding) -> np.ndarray:
    """Where `crop_pos_x`, `crop_pos_y` or `crop_pos_z` puts the window on an axis, of which it leaves `free` elements,
    ``i64[N]``.
    """
    return placed(a[f"crop_pos_{_POSITION[letter]}"], free, rounding).clip(-_FAR, _FAR).astype(np.int64)


_POSITION = {"W": "x", "H": "y", "D": "z", "F": "z"}


def axes_of(layout: str, ndim: int, axis_names: str | None, axes: Sequence[int] | None) -> list[int]:
    """The axes that `axis_names` or `axes` mean.

    Raises:
      ArgumentError: there is no such axis, or one stands twice.
    """
    if axis_names:
        missing = [c for c in axis_names if c not in layout]
        if missing:
            raise ArgumentError(f"axis_names must be axes of the layout {layout!r}, got {axis_names!r}")
        found = [layout.index(c) for c in axis_names]
    else:
        found = [d + ndim if d < 0 else d for d in (range(ndim) if axes is None else axes)]
        if any(not 0 <= d < ndim for d in found):
            raise ArgumentError(f"axes must be in -{ndim} ... {ndim - 1}, got {list(axes or ())}")
    if len(set(found)) < len(found):
        raise ArgumentError(f"an axis occurs twice in {axis_names or list(axes or ())}")
    return found
