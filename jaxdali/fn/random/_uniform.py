"""random.uniform: uniformly distributed numbers, or one of some values."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Unpack

import numpy as np

from ... import types
from ..._core.context import HostContext
from ..._core.declaration import DType, Len, OneOf, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Input, ListOf, OneOrMore, PerSample, SeededHints, operator_function
from ..._core.values import Value
from ..._cpu import Status
from .._families.conversion import convert
from ._distribution import NUMBERS, Distribution, add_distribution


class Uniform(Distribution):
    """The uniform distribution over ``[low, high)``, or over given values."""

    name: ClassVar[str] = "random.uniform"

    def __post_init__(self):
        """Raises ArgumentError for values and a range that are given together, or are not valid."""
        if "range" in self.args and "values" in self.args:
            raise ArgumentError("range and values can't be given together; pass one of them")
        if self.args.is_static("values") and self.args.get("values") == ():
            raise ArgumentError("values is empty")
        if "range" in self.args and self.args.is_static("range"):
            low, high = self.args.get("range")
            if not low < high:
                raise ArgumentError(f"range must be (low, high) with low < high, got ({low}, {high})")

    def transform(
        self, ctx: HostContext, values: Sequence[Value], u: np.ndarray, sizes: np.ndarray | int
    ) -> np.ndarray:
        """See `Distribution.transform`: chooses one of the values, or a number of the range."""
        a = self.arguments(ctx, values)
        if self._values is not None:
            return self._values[(u * len(self._values)).astype(np.int64)]
        if "values" in self.args:
            return convert(np, self._chosen(a.ragged("values"), u, sizes), self.dtype)
        bounds = a.vector("range", 2)
        bounds = np.broadcast_to(np.array([-1.0, 1.0]), (ctx.N, 2)) if bounds is None else bounds
        for i in np.flatnonzero(~(bounds[:, 0] < bounds[:, 1]) & ctx.present):
            ctx.fail(
                int(i),
                Status.ARGUMENT,
                f"argument range must be (low, high) with low < high, got {tuple(bounds[i].tolist())}",
            )
        # Bounds of integers lose their fractions.
        bounds = self._per_element(bounds if types.is_float(self.dtype) else np.trunc(bounds), sizes)
        low, high = bounds[:, 0], bounds[:, 1]
        x = convert(np, low + (high - low) * u, self.dtype)
        if types.is_float(self.dtype):  # Rounding may reach the upper bound, which is not in the range.
            largest = high.astype(self.dtype)
            largest = np.where(
                largest.astype(np.float64) >= high, np.nextafter(largest, np.asarray(-np.inf, self.dtype)), largest
            )
            x = np.minimum(x, largest)
        return x

    @functools.cached_property
    def _values(self) -> np.ndarray | None:
        """The values in `dtype`, if they are the same for all samples."""
        if "values" not in self.args or not self.args.is_static("values"):
            return None
        return convert(np, np.array(self.args.get("values"), np.float64), self.dtype)

    def _chosen(self, choices: Sequence[np.ndarray], u: np.ndarray, sizes: np.ndarray | int) -> np.ndarray:
        """One of the values of the sample, for each number of `u`. Samples may have different numbers of values."""
        counts = np.array([len(c) for c in choices])
        if (counts == 0).any():
            raise ArgumentError(f"{self.name}: values is empty")
        starts = np.cumsum(counts) - counts
        return np.concatenate(choices)[np.repeat(starts, sizes) + (u * np.repeat(counts, sizes)).astype(np.int64)]


@operator_function("random.uniform")
def uniform(
    shape_like: Input | None = None,
    /,
    *,
    range: Annotated[PerSample[ListOf[float]] | None, Len(2)] = None,
    values: PerSample[OneOrMore[float]] | None = None,
    dtype: Annotated[DType, OneOf(*NUMBERS)] = types.FLOAT,
    shape: Annotated[PerSample[OneOrMore[int]] | None, Range(0)] = None,
    seed: int = -1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """Draws uniformly distributed numbers.

    Differs from DALI: if the range exceeds an integer type, the numbers are clamped; DALI's bounds wrap around.

    Args:
      shape_like: a value; each sample of the result has the shape of its sample.
      range: ``(low, high)``: numbers are drawn from ``[low, high)``. Default: (-1, 1). May be per sample.
      values: numbers to choose from with equal probability, instead of a range. May be per sample.
      dtype: element type of the result. For integers the bounds lose their fractions, and the numbers are rounded (so
        that they may reach `high`) and clamped. Default: `types.FLOAT`.
      shape: shape of a sample, an integer or a list. Default: a sample is one number without dimensions. May be per
        sample.
      seed: fixes the random numbers regardless of the pipeline's seed and of the operator's place in the pipeline; a
        negative seed counts as not given.

    Raises:
      ValueError: the range or `values` is empty, the shape is given twice, or both `range` and `values` are given (DALI
        then ignores `range`).

    Example:
      >>> angle = fn.random.uniform(range=(-10.0, 10.0))
    """
    arguments = {"range": range, "values": values, "shape": shape}
    return add_distribution(Uniform, shape_like, arguments, seed=seed, dtype=dtype, device=device, name=name)
