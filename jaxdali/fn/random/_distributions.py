"""Random numbers, one or a tensor of them per sample.

They are drawn on the host by Philox4x32-10 and depend on the seed, the operator's number among the random operators of the pipeline,
and which sample it is (epoch, and position in the data set as shuffled), not on batch size, number of shards or threads. A seed
gives other numbers than in DALI.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ... import types
from ..._core.context import BuildContext, HostContext
from ..._core.errors import ArgumentError
from ..._core.operator import HostOperator, Operator
from ..._core.ragged import Packed, plan_offsets
from ..._core.values import Spec, Value
from ..._cpu import Status
from .._families.conversion import convert
from .._families.drawing import draw, uniforms


class Random(HostOperator):
    """What all distributions share: the shape of a sample's numbers, and who draws them.

    Inputs: ``shape_like`` (when `like`), then what the distribution takes, then those of `args`.
    """

    random: ClassVar[bool] = True

    like: bool
    seed: int

    def run_reads(self, i: int) -> bool:
        return not (self.like and i == 0)

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        return dataclasses.replace(self, args=self.args.measure(ctx, specs, "shape"))

    def _static_shape(self, specs: Sequence[Spec]) -> tuple[int, tuple[int, ...] | None]:
        """(dimensions of a sample's numbers, their shape when it is the same for all samples)."""
        if self.like:
            return specs[0].ndim, specs[0].shape
        if "shape" in self.args.inputs:
            spec = specs[self._place_of_shape(specs)]
            length = self.args.width("shape", specs)
            if spec.dtype.kind not in "iu" or spec.ndim > 1 or length is None:
                got = f"{spec.ndim}-D {spec.dtype}" + ("" if length is not None else " of a number that may vary")
                raise ArgumentError(f"shape must be an integer or a 1-D list of a fixed number of integers, got {got}")
            return length, None
        shape = self.args.get("shape") if "shape" in self.args else ()
        shape = shape if isinstance(shape, tuple) else (shape,)
        return len(shape), shape

    def _place_of_shape(self, inputs: Sequence[Any]) -> int:
        return len(inputs) - len(self.args.inputs) + self.args.inputs.index("shape")

    def _shapes(self, ctx: HostContext, values: Sequence[Value]) -> np.ndarray:
        """``i64[N, ndim]``, for this batch."""
        if self.like:
            return values[0].shapes
        ndim, shape = self._static_shape([v.spec for v in values])
        if shape is None:
            shapes = self.arguments(ctx, values).vector("shape", ndim)
            assert shapes is not None
            return shapes
        return np.broadcast_to(np.array(shape, np.int64), (ctx.N, len(shape)))

    def _emit(
        self, ctx: HostContext, flat: np.ndarray, starts: np.ndarray, shapes: np.ndarray, static: tuple[int, ...] | None
    ) -> tuple[Any]:
        """Numbers that lie one sample after another, as the output."""
        if static is not None:
            return (flat.reshape(ctx.N, *static),)
        offsets, need = plan_offsets(shapes, ctx.S)
        packed = Packed(ctx.empty(need, flat.dtype, 0), offsets, shapes)
        ends = np.append(starts[1:], len(flat))
        for i, (a, b) in enumerate(zip(starts.tolist(), ends.tolist())):
            packed[i][...] = flat[a:b].reshape(shapes[i])
        return (packed,)


class Distribution(Random):
    """A distribution of numbers, element by element."""

    dtype: np.dtype

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        ndim, shape = self._static_shape(specs)
        return (Spec(self.dtype, ndim, shape),)

    def run(self, ctx: HostContext, *values: Value):
        shapes = self._shapes(ctx, values)
        sizes = shapes.prod(axis=1, dtype=np.int64)
        flat, starts = draw(ctx, self.seed, sizes, normal=self.name == "random.normal")
        flat = self.transform(ctx, values, flat, sizes)
        return self._emit(ctx, flat, starts, shapes, ctx.spec.shape)

    def transform(self, ctx: HostContext, values: Sequence[Value], u: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Uniform (or normal) numbers to this distribution's, of `dtype`. `sizes`: elements of each sample."""
        raise NotImplementedError

    def _each(self, per_sample: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """``[N, ...]``, a row per sample, as a row per element."""
        first = per_sample[:1]
        return first if (per_sample == first).all() else np.repeat(per_sample, sizes, axis=0)


class Uniform(Distribution):
    """Continuous in ``[low, high)``, or one of some values."""

    name: ClassVar[str] = "random.uniform"

    def __post_init__(self):
        if "range" in self.args and "values" in self.args:
            raise ArgumentError("range and values can't be given together; pass one of them")
        if self.args.is_static("values") and self.args.get("values") == ():
            raise ArgumentError("values is empty")
        if "range" in self.args and self.args.is_static("range"):
            low, high = self.args.get("range")
            if not low < high:
                raise ArgumentError(f"range must be (low, high) with low < high, got ({low}, {high})")

    def transform(self, ctx: HostContext, values: Sequence[Value], u: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        a = self.arguments(ctx, values)
        if self._values is not None:
            return self._values[(u * len(self._values)).astype(np.int64)]
        if "values" in self.args:
            return convert(np, self._chosen(a.ragged("values"), u, sizes), self.dtype)
        bounds = a.vector("range", 2)
        bounds = np.broadcast_to(np.array([-1.0, 1.0]), (ctx.N, 2)) if bounds is None else bounds
        for i in np.flatnonzero(~(bounds[:, 0] < bounds[:, 1]) & ctx.present):
            ctx.fail(int(i), Status.ARGUMENT, f"argument range must be (low, high) with low < high, got {tuple(bounds[i].tolist())}")
        bounds = self._each(bounds if types.is_float(self.dtype) else np.trunc(bounds), sizes)
        low, high = bounds[:, 0], bounds[:, 1]
        x = convert(np, low + (high - low) * u, self.dtype)
        if types.is_float(self.dtype):  # rounding may reach the upper bound, which is not part of the range
            top = high.astype(self.dtype)
            top = np.where(top.astype(np.float64) >= high, np.nextafter(top, np.asarray(-np.inf, self.dtype)), top)
            x = np.minimum(x, top)
        return x

    @functools.cached_property
    def _values(self) -> np.ndarray | None:
        """Those of all samples, of `dtype`."""
        if "values" not in self.args or not self.args.is_static("values"):
            return None
        return convert(np, np.array(self.args.get("values"), np.float64), self.dtype)

    def _chosen(self, choices: Sequence[np.ndarray], u: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """For each number one of the values of its sample, of which each may have another number."""
        counts = np.array([len(c) for c in choices])
        if (counts == 0).any():
            raise ArgumentError(f"{self.name}: values is empty")
        starts = np.cumsum(counts) - counts
        return np.concatenate(choices)[np.repeat(starts, sizes) + (u * np.repeat(counts, sizes)).astype(np.int64)]


class CoinFlip(Distribution):
    """1 with some probability, else 0."""

    name: ClassVar[str] = "random.coin_flip"

    def transform(self, ctx: HostContext, values, u, sizes):
        probability = self.arguments(ctx, values).probability
        return (u < self._each(probability, sizes)).astype(self.dtype)


class Normal(Distribution):
    """Normally distributed."""

    name: ClassVar[str] = "random.normal"

    def transform(self, ctx: HostContext, values, u, sizes):
        a = self.arguments(ctx, values)
        mean, stddev = self._each(a.mean, sizes), self._each(a.stddev, sizes)
        return convert(np, mean + stddev * u, self.dtype)


class Key(HostOperator):
    """Random keys of JAX's generator threefry2x32, as their data."""

    name: ClassVar[str] = "random.key"
    random: ClassVar[bool] = True

    seed: int

    def infer(self) -> tuple[Spec, ...]:
        return (Spec(np.dtype(np.uint32), 1, (2,), keys=True),)

    def run(self, ctx: HostContext):
        return ((uniforms(ctx, self.seed, 2) * 2**32).astype(np.uint32),)  # of 53 random bits the upper 32


class Choice(Random):
    """Elements of an array, each with its probability. `count`: draws from 0 .. count-1, instead of from an input."""

    name: ClassVar[str] = "random.choice"

    count: int | None
    dtype: np.dtype | None  # of 0 .. count-1

    @property
    def _place(self) -> int:
        return int(self.like)  # of the input `a`

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        ndim, shape = self._static_shape(specs)
        if self.dtype is not None:
            return (Spec(self.dtype, ndim, shape),)
        a = specs[self._place]
        if a.ndim == 0:
            if a.dtype.kind not in "iu":
                raise ArgumentError(f"{self.name}: a scalar `a` must be an integer, got {a.dtype}")
            return (Spec(a.dtype, ndim, shape),)
        row = a.shape[1:] if a.shape is not None else (() if a.ndim == 1 else None)
        layout = a.layout[1:] if ndim == 0 else a.layout if ndim == 1 else ""
        return (Spec(a.dtype, ndim + a.ndim - 1, shape + row if shape is not None and row is not None else None, layout),)

    def run(self, ctx: HostContext, *values: Value):
        shapes = self._shapes(ctx, values)
        sizes = shapes.prod(axis=1, dtype=np.int64)
        u, starts = draw(ctx, self.seed, sizes)
        spec = ctx.spec
        a = values[self._place] if self.count is None else None
        if a is None:
            counts = np.full(ctx.N, self.count)
        elif a.spec.ndim:
            counts = a.shapes[a.indices(ctx.present), 0]
        else:
            counts = a.dense(present=ctx.present).astype(np.int64)
        if (counts < 1).any():
            raise ArgumentError(f"{self.name}: there must be at least one element to choose from, got {counts[counts < 1][0]}")
        index = self._indices(ctx, values, u, sizes, counts)
        if a is None or a.spec.ndim == 0:
            return self._emit(ctx, index.astype(spec.dtype), starts, shapes, spec.shape)
        if a.spec.shape is not None and spec.shape is not None:
            whole = a.dense(present=ctx.present)
            return (whole[np.repeat(np.arange(ctx.N), sizes), index].reshape(ctx.N, *spec.shape),)
        rows = [a.sample(i) for i in a.indices(ctx.present)]
        samples = [row[index[s : s + n]].reshape((*shape, *row.shape[1:])) for row, shape, s, n in zip(rows, shapes, starts, sizes)]
        return (samples if spec.shape is None else np.stack(samples),)

    def _indices(self, ctx: HostContext, values, u: np.ndarray, sizes: np.ndarray, counts: np.ndarray) -> np.ndarray:
        if "p" not in self.args:
            return np.minimum(u * np.repeat(counts, sizes), np.repeat(counts - 1, sizes)).astype(np.int64)
        parts, start = [], 0
        for i, (p, count, n) in enumerate(zip(self.arguments(ctx, values).ragged("p"), counts.tolist(), sizes.tolist(), strict=True)):
            if len(p) != count or not is_distribution(p):
                ctx.fail(i, Status.ARGUMENT, f"argument p must be {count} probabilities 0 ... 1 whose sum is 1, got {p.tolist()}")
                p = np.full(count, 1 / count)
            edges = np.cumsum(p)
            parts.append(np.searchsorted(edges / edges[-1], u[start : start + n], side="right"))
            start += n
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)


class Beta(Distribution):
    """Beta-distributed: x / (x + y) of two numbers that are gamma-distributed, by Marsaglia and Tsang (2000)."""

    name: ClassVar[str] = "random.beta"

    def run(self, ctx: HostContext, *values: Value):
        shapes = self._shapes(ctx, values)
        sizes = shapes.prod(axis=1, dtype=np.int64)
        a = self.arguments(ctx, values)
        x, y = (self._log_gamma(ctx, np.repeat(shape, sizes), sizes, part) for shape, part in ((a.alpha, 1), (a.beta, 2)))
        with np.errstate(over="ignore"):
            flat = 1 / (1 + np.exp(y - x))
        return self._emit(ctx, flat.astype(self.dtype), np.cumsum(sizes) - sizes, shapes, ctx.spec.shape)

    def _log_gamma(self, ctx: HostContext, shape: np.ndarray, sizes: np.ndarray, part: int) -> np.ndarray:
        """Logarithms of gamma-distributed numbers, of each its own shape."""
        d = shape + 1 - 1 / 3  # of shape + 1; a power of a uniform number makes it `shape`
        found = np.full(len(shape), np.nan)
        while np.isnan(found).any():  # 95 of 100 are accepted
            n = draw(ctx, self.seed, sizes, normal=True, part=part)[0]
            u = 1 - draw(ctx, self.seed, sizes, part=part + 2)[0]
            part += 4
            with np.errstate(invalid="ignore", divide="ignore"):
                v = (1 + n / np.sqrt(9 * d)) ** 3
                log_v = np.log(v)
                accepted = (v > 0) & (np.log(u) < n * n / 2 + d * (1 - v + log_v)) & np.isnan(found)
            found[accepted] = np.log(d[accepted]) + log_v[accepted]
        return found + np.log(1 - draw(ctx, self.seed, sizes, part=part)[0]) / shape


def is_distribution(p: np.ndarray) -> bool:
    return bool(((p >= 0) & (p <= 1)).all() and abs(p.sum() - 1) <= 1e-4)
