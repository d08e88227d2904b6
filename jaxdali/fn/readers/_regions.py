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


@dataclasses.dataclass(frozen=True)
class Region:
    """The meaning of the roi arguments; `cut` gets their values."""

    axes: tuple[int, ...]
    policy: str
    fill: float

    def cut(self, x: np.ndarray, given: Mapping[str, Any]) -> np.ndarray:
        """The part of `x` that the arguments describe. Raises ValueError if there is no such part."""
        axes = self._axes(x.ndim)
        extent = np.array(x.shape, np.int64)[axes]
        low, high = _bounds(extent, given)
        if self.policy == "trim_to_shape":
            low, high = np.clip(low, 0, extent), np.clip(high, 0, extent)
        elif self.policy == "error" and (any(low < 0) or any(high > extent)):
            raise ValueError(
                f"the region from {low.tolist()} to {high.tolist()} reaches outside of the extents {extent.tolist()}; "
                'out_of_bounds_policy="pad" fills what is outside, "trim_to_shape" cuts the region'
            )
        start, stop = np.zeros(x.ndim, np.int64), np.array(x.shape, np.int64)
        start[axes], stop[axes] = low, high
        part = x[tuple(slice(max(a, 0), max(b, 0)) for a, b in zip(start, stop))]
        if part.shape == tuple(stop - start):
            return part
        padded = np.full(stop - start, convert(np, np.asarray(self.fill, np.float32), x.dtype), x.dtype)
        padded[tuple(slice(a, a + n) for a, n in zip(np.maximum(-start, 0), part.shape))] = part
        return padded

    def spec(self, whole: Spec, args: Arguments) -> Spec:
        """The spec of a region, with the extents that the arguments determine."""
        given, axes = dict(args.static), self._axes(whole.ndim)
        dims: list[int | None] = [None] * whole.ndim
        # A relative start is rounded only after a shape was added to it; this may change the shape.
        fixed = "roi_shape" in given or ("roi_end" in given and "roi_start" not in args.inputs)
        if fixed and "rel_roi_start" not in args and self.policy != "trim_to_shape":
            low, high = _bounds(np.zeros(len(axes), np.int64), given)
            for a, n in zip(axes, (high - low).tolist()):
                dims[a] = n
        known = tuple(n for n in dims if n is not None)
        return Spec(whole.dtype, whole.ndim, known if len(known) == whole.ndim else None, "", tuple(dims))

    def _axes(self, ndim: int) -> list[int]:
        axes = [a + ndim if a < 0 else a for a in self.axes] or list(range(ndim))
        if len(set(axes)) < len(axes) or not all(0 <= a < ndim for a in axes):
            raise ValueError(f"roi_axes must be different axes of an array of {ndim} dimensions, got {list(self.axes)}")
        return axes


def _bounds(extent: np.ndarray, given: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The first index of the region along its axes, and the index after its last."""

    def value(name: str) -> np.ndarray:
        x = np.asarray(given[name], np.float32 if name.startswith("rel_") else np.int64).reshape(-1)
        if len(x) not in (1, len(extent)):
            raise ValueError(f"{name} must have 1 or {len(extent)} numbers, got {x.tolist()}")
        return np.broadcast_to(x, extent.shape)

    def scaled(name: str) -> np.ndarray:  # DALI multiplies in single precision, which determines how halves are rounded
        x = value(name)
        return x * extent.astype(np.float32) if name.startswith("rel_") else x

    low = next((scaled(n) for n in ("roi_start", "rel_roi_start") if n in given), np.zeros(len(extent))).astype(
        np.float64
    )
    high = next((scaled(n) for n in ("roi_end", "rel_roi_end") if n in given), extent).astype(np.float64)
    high = next((low + scaled(n) for n in ("roi_shape", "rel_roi_shape") if n in given), high)
    if {"rel_roi_start", "rel_roi_shape"} <= given.keys():  # and computes this in double precision
        high = (value("rel_roi_start").astype(np.float64) + value("rel_roi_shape")) * extent
    if any(high < low):
        raise ValueError(f"the region ends before it starts: from {low.tolist()} to {high.tolist()}")
    low, high = (np.trunc(x + np.copysign(0.5, x)).astype(np.int64) for x in (low, high))  # halves away from zero
    return low, high


class CutRegion(HostOperator):
    """The region of each array, if the arguments differ between samples."""

    name: ClassVar[str] = "readers.numpy"

    region: Region

    def infer(self, x: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        return (self.region.spec(x, self.args),)

    def run(self, ctx: HostContext, x: Value, *arguments: Value) -> tuple[Any, ...]:
        values = self.arguments(ctx, arguments)
        given = {n: a for n in REGION if (a := values.get(n)) is not None}
        rows = []
        for i in range(ctx.N):
            try:
                rows.append(self.region.cut(x.sample(i), {n: a[i] for n, a in given.items()}))
            except ValueError as e:
                ctx.fail(i, Status.RECORD, str(e))
                rows.append(np.zeros(ctx.spec.shape or (0,) * x.spec.ndim, x.spec.dtype))
        return (rows if ctx.spec.shape is None else np.stack(rows),)


REGION = ("roi_start", "rel_roi_start", "roi_end", "rel_roi_end", "roi_shape", "rel_roi_shape")
