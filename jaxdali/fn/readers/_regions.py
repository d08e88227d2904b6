"""The regions of arrays that `readers.numpy` reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ..._core.arguments import Arguments
from ..._core.context import HostContext
from ..._core.operator import HostOperator
from ..._core.values import Spec, Value
from ..._cpu import Status
from .._families.conversion import convert
from .._families.cropping import window_bounds


@dataclasses.dataclass(frozen=True)
class Region:
    """The arguments of a region that are the same for all samples; `cut` gets the others.

    Attributes:
      axes: the argument `roi_axes`; empty: all axes.
      policy: the argument `out_of_bounds_policy`.
      fill: the value of elements outside of the array, with the policy "pad".
    """

    axes: tuple[int, ...]
    policy: str
    fill: float

    def cut(self, x: np.ndarray, values: Mapping[str, Any]) -> np.ndarray:
        """The region of `x`. Raises ValueError if the arguments describe none.

        Args:
          values: the values of the arguments `REGION` that were given.
        """
        axes = self._axes(x.ndim)
        extent = np.array(x.shape, np.int64)[axes]
        low, high = _bounds(extent, values)
        if self.policy == "trim_to_shape":
            low, high = np.clip(low, 0, extent), np.clip(high, 0, extent)
        elif self.policy == "error" and (any(low < 0) or any(high > extent)):
            raise ValueError(
                f"the region from {low.tolist()} to {high.tolist()} reaches outside of the extents {extent.tolist()}; "
                'out_of_bounds_policy="pad" fills what is outside, "trim_to_shape" cuts the region'
            )
        start, stop = np.zeros(x.ndim, np.int64), np.array(x.shape, np.int64)
        start[axes], stop[axes] = low, high
        # The part inside of the array. Where the region begins before the array (with the policy "pad"), this part
        # begins -start elements after the begin of the result.
        part = x[tuple(slice(max(a, 0), max(b, 0)) for a, b in zip(start, stop))]
        if part.shape == tuple(stop - start):
            return part
        padded = np.full(stop - start, convert(np, np.asarray(self.fill, np.float32), x.dtype), x.dtype)
        padded[tuple(slice(a, a + n) for a, n in zip(np.maximum(-start, 0), part.shape))] = part
        return padded

    def spec(self, whole: Spec, args: Arguments) -> Spec:
        """The spec of a region of arrays with the spec `whole`, with the extents that the arguments determine."""
        static, axes = dict(args.static), self._axes(whole.ndim)
        dims: list[int | None] = [None] * whole.ndim
        # A relative start is rounded only after a shape was added to it; this may change the shape.
        has_fixed_extents = "roi_shape" in static or ("roi_end" in static and "roi_start" not in args.inputs)
        if has_fixed_extents and "rel_roi_start" not in args and self.policy != "trim_to_shape":
            low, high = _bounds(np.zeros(len(axes), np.int64), static)
            for a, n in zip(axes, (high - low).tolist()):
                dims[a] = n
        fixed_dims = tuple(n for n in dims if n is not None)
        return Spec(whole.dtype, whole.ndim, fixed_dims if len(fixed_dims) == whole.ndim else None, "", tuple(dims))

    def _axes(self, ndim: int) -> list[int]:
        """The axes of the region in an array of `ndim` dimensions. Raises ValueError if it lacks one."""
        axes = [a + ndim if a < 0 else a for a in self.axes] or list(range(ndim))
        if len(set(axes)) < len(axes) or not all(0 <= a < ndim for a in axes):
            raise ValueError(f"roi_axes must be different axes of an array of {ndim} dimensions, got {list(self.axes)}")
        return axes


def _bounds(extent: np.ndarray, values: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The first index of the region along each of its axes, and the index after the last one.

    Args:
      extent: the array's extents along these axes, the unit of relative arguments.
      values: the values of the arguments `REGION` that were given.
    """

    def argument(window_name: str) -> np.ndarray | None:
        """The values of roi_start for "start", and of rel_roi_start for "rel_start", for each of the axes."""
        name = f"rel_roi_{window_name[4:]}" if window_name.startswith("rel_") else f"roi_{window_name}"
        if name not in values:
            return None
        x = np.asarray(values[name], np.float32 if name.startswith("rel_") else np.int64).reshape(-1)
        if len(x) not in (1, len(extent)):
            raise ValueError(f"{name} must have 1 or {len(extent)} numbers, got {x.tolist()}")
        return np.broadcast_to(x, extent.shape)

    low, high = window_bounds(extent, argument)
    if any(high < low):
        raise ValueError(f"the region ends before it starts: from {low.tolist()} to {high.tolist()}")
    low, high = (np.trunc(x + np.copysign(0.5, x)).astype(np.int64) for x in (low, high))  # halves away from zero
    return low, high


class CutRegion(HostOperator):
    """Cuts the region of each array, if the arguments differ between samples."""

    name: ClassVar[str] = "readers.numpy"

    region: Region

    def infer(self, x: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        return (self.region.spec(x, self.args),)

    def run(self, ctx: HostContext, x: Value, *arguments: Value) -> tuple[Any, ...]:
        """See `HostOperator.run`. A sample whose region does not fit fails."""
        values = self.arguments(ctx, arguments)
        values_of_samples = {n: a for n in REGION if (a := values.get(n)) is not None}
        rows = []
        for i in range(ctx.N):
            try:
                rows.append(self.region.cut(x.sample(i), {n: a[i] for n, a in values_of_samples.items()}))
            except ValueError as e:
                ctx.fail(i, Status.RECORD, str(e))
                rows.append(np.zeros(ctx.spec.shape or (0,) * x.spec.ndim, x.spec.dtype))
        return (rows if ctx.spec.shape is None else np.stack(rows),)


REGION = ("roi_start", "rel_roi_start", "roi_end", "rel_roi_end", "roi_shape", "rel_roi_shape")
