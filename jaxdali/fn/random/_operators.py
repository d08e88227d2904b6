"""Random numbers, one or a tensor of them per sample.

They are drawn on the host by Philox4x32-10 and depend on the seed, the operator's number among the random operators of the pipeline,
and which sample it is (epoch, and position in the data set as shuffled), not on batch size, number of shards or threads. A seed
gives other numbers than in DALI.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Unpack

import numpy as np

from ... import types
from ..._core.arguments import Arguments
from ..._core.building import add, is_node
from ..._core.context import BuildContext, HostContext
from ..._core.declaration import DType, Len, OneOf, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator, Operator
from ..._core.operator_function import Input, ListOf, OneOrMore, PerSample, SeededHints, operator_function
from ..._core.ragged import Packed, plan_offsets
from ..._core.values import Spec, Value
from .._tensor.cast import convert
from .._tensor.constant import narrowed
from ._draw import draw

_NUMBERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64")
_UNSUPPORTED = 4  # kUnsupported of ffi/common/status.h


class _Random(HostOperator):
    """What all distributions share: the shape of a sample's numbers, and who draws them.

    Inputs: ``shape_like`` (when `like`), then what the distribution takes, then those of `args`.
    """

    random: ClassVar[bool] = True

    like: bool
    seed: int
    rank: int | None = None  # of a sample's numbers, where `shape` comes per sample from a source

    def run_reads(self, i: int) -> bool:
        return not (self.like and i == 0)

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        if "shape" not in self.args.inputs:
            return self
        place = self._place_of_shape(specs)
        if specs[place].ndim != 1 or specs[place].shape is not None:
            return self
        first = ctx.first_shape(place)
        return self if first is None else dataclasses.replace(self, rank=first[0])

    def _static_shape(self, specs: Sequence[Spec]) -> tuple[int, tuple[int, ...] | None]:
        """(dimensions of a sample's numbers, their shape when it is the same for all samples)."""
        if self.like:
            return specs[0].ndim, specs[0].shape
        if "shape" in self.args.inputs:
            spec = specs[self._place_of_shape(specs)]
            length = 1 if spec.ndim == 0 else self.rank if spec.shape is None else spec.shape[0]
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


class _Distribution(_Random):
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


class Uniform(_Distribution):
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
        if "values" in self.args:
            return convert(np, self._chosen(a.ragged("values"), u, sizes), self.dtype)
        bounds = a.vector("range", 2)
        bounds = np.broadcast_to(np.array([-1.0, 1.0]), (ctx.N, 2)) if bounds is None else bounds
        for i in np.flatnonzero(~(bounds[:, 0] < bounds[:, 1]) & ctx.present):
            ctx.fail(int(i), _UNSUPPORTED, f"argument range must be (low, high) with low < high, got {tuple(bounds[i].tolist())}")
        bounds = self._each(bounds, sizes)
        low, high = bounds[:, 0], bounds[:, 1]
        x = convert(np, low + (high - low) * u, self.dtype)
        if self.dtype.kind == "f":  # rounding may reach the upper bound, which is not part of the range
            top = high.astype(self.dtype)
            top = np.where(top.astype(np.float64) >= high, np.nextafter(top, np.asarray(-np.inf, self.dtype)), top)
            x = np.minimum(x, top)
        return x

    def _chosen(self, choices: Sequence[np.ndarray], u: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """For each number one of the values of its sample, of which each may have another number."""
        counts = np.array([len(c) for c in choices])
        if (counts == 0).any():
            raise ArgumentError(f"{self.name}: values is empty")
        starts = np.cumsum(counts) - counts
        return np.concatenate(choices)[np.repeat(starts, sizes) + (u * np.repeat(counts, sizes)).astype(np.int64)]


class CoinFlip(_Distribution):
    """1 with some probability, else 0."""

    name: ClassVar[str] = "random.coin_flip"

    def transform(self, ctx: HostContext, values, u, sizes):
        probability = self.arguments(ctx, values).probability
        return (u < self._each(probability, sizes)).astype(self.dtype)


class Normal(_Distribution):
    """Normally distributed."""

    name: ClassVar[str] = "random.normal"

    def transform(self, ctx: HostContext, values, u, sizes):
        a = self.arguments(ctx, values)
        mean, stddev = self._each(a.mean, sizes), self._each(a.stddev, sizes)
        return convert(np, mean + stddev * u, self.dtype)


class Choice(_Random):
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
            if len(p) != count or not _is_distribution(p):
                ctx.fail(i, _UNSUPPORTED, f"argument p must be {count} probabilities 0 ... 1 whose sum is 1, got {p.tolist()}")
                p = np.full(count, 1 / count)
            edges = np.cumsum(p)
            parts.append(np.searchsorted(edges / edges[-1], u[start : start + n], side="right"))
            start += n
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)


class Beta(_Distribution):
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


def _is_distribution(p: np.ndarray) -> bool:
    return bool(((p >= 0) & (p <= 1)).all() and abs(p.sum() - 1) <= 1e-4)


def _add(kind: type[_Distribution], shape_like: Any, arguments: Mapping[str, Any], *, seed: int, dtype: Any, **node: Any) -> DataNode:
    args, nodes = Arguments.of(arguments, is_node)
    op = kind(like=_has_shape(args, shape_like), seed=seed, args=args, dtype=dtype)
    return add(op, *(() if shape_like is None else (shape_like,)), *nodes, **node)


def _has_shape(args: Arguments, shape_like: Any) -> bool:
    """Whether the shape is that of `shape_like`."""
    if shape_like is not None and "shape" in args:
        raise ArgumentError("shape and shape_like can't be given together; pass one of them")
    return shape_like is not None


@operator_function("random.uniform")
def uniform(
    shape_like: Input | None = None,
    /,
    *,
    range: Annotated[PerSample[ListOf[float]] | None, Len(2)] = None,
    values: PerSample[OneOrMore[float]] | None = None,
    dtype: Annotated[DType, OneOf(*_NUMBERS)] = types.FLOAT,
    shape: Annotated[PerSample[OneOrMore[int]] | None, Range(0)] = None,
    seed: int = -1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """Uniformly distributed numbers.

    Args:
      shape_like: a value whose samples' shapes the result takes.
      range: ``(low, high)``, by default (-1, 1): numbers of ``[low, high)``. May be per sample.
      values: numbers, one of which is taken with equal probability, instead of a range. May be per sample.
      dtype: of the result, by default `types.FLOAT`; for integers the numbers are rounded (and may so reach `high`) and clamped.
      shape: of a sample: an integer or a list, may be per sample. By default a sample is one number (no dimensions).
      seed: fixes the numbers, whatever the pipeline's seed and the operator's place; negative: not given.
      device: "gpu": the result is moved to the accelerator. The numbers are the same.
      name: of the node.

    Raises:
      ValueError: an empty range or values, shape given twice. DALI ignores `range` when `values` are given; here both are an error.

    Example:
      >>> angle = fn.random.uniform(range=(-10.0, 10.0))
    """
    arguments = {"range": range, "values": values, "shape": shape}
    return _add(Uniform, shape_like, arguments, seed=seed, dtype=dtype, device=device, name=name)


@operator_function("random.coin_flip")
def coin_flip(
    shape_like: Input | None = None,
    /,
    *,
    probability: Annotated[PerSample[float], Range(0, 1)] = 0.5,
    dtype: Annotated[DType, OneOf("bool", *_NUMBERS)] = types.INT32,
    shape: Annotated[PerSample[OneOrMore[int]] | None, Range(0)] = None,
    seed: int = -1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """1 with some probability, else 0.

    Args:
      shape_like: a value whose samples' shapes the result takes.
      probability: of a 1, in [0, 1]. May be per sample.
      dtype: of the result, by default `types.INT32`; any numeric type (DALI: BOOL, UINT8, INT32).
      shape: of a sample: an integer or a list, may be per sample. By default a sample is one number (no dimensions).
      seed: fixes the numbers, whatever the pipeline's seed and the operator's place; negative: not given.
      device: "gpu": the result is moved to the accelerator. The numbers are the same.
      name: of the node.

    Raises:
      ValueError: a probability outside [0, 1] (DALI clamps it), shape given twice.
    """
    return _add(CoinFlip, shape_like, {"probability": probability, "shape": shape}, seed=seed, dtype=dtype, device=device, name=name)


@operator_function("random.normal")
def normal(
    shape_like: Input | None = None,
    /,
    *,
    mean: PerSample[float] = 0.0,
    stddev: PerSample[float] = 1.0,
    dtype: Annotated[DType, OneOf(*_NUMBERS)] = types.FLOAT,
    shape: Annotated[PerSample[OneOrMore[int]] | None, Range(0)] = None,
    seed: int = -1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """Normally distributed numbers (Box-Muller, in double precision).

    Args:
      shape_like: a value whose samples' shapes the result takes.
      mean: of the distribution. May be per sample.
      stddev: its standard deviation; a negative one mirrors the numbers, as in DALI. May be per sample.
      dtype: of the result, by default `types.FLOAT`; for integers the numbers are rounded and clamped.
      shape: of a sample: an integer or a list, may be per sample. By default a sample is one number (no dimensions).
      seed: fixes the numbers, whatever the pipeline's seed and the operator's place; negative: not given.
      device: "gpu": the result is moved to the accelerator. The numbers are the same.
      name: of the node.

    Raises:
      ValueError: shape given twice.
    """
    arguments = {"mean": mean, "stddev": stddev, "shape": shape}
    return _add(Normal, shape_like, arguments, seed=seed, dtype=dtype, device=device, name=name)


@operator_function("random.beta")
def beta(
    shape_like: Input | None = None,
    /,
    *,
    alpha: Annotated[PerSample[float], Range(0, above=True)] = 1.0,
    beta: Annotated[PerSample[float], Range(0, above=True)] = 1.0,
    dtype: Annotated[DType, OneOf("float32", "float64")] = types.FLOAT,
    shape: Annotated[PerSample[OneOrMore[int]] | None, Range(0)] = None,
    seed: int = -1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """Beta-distributed numbers, of ``[0, 1]``.

    Args:
      shape_like: a value whose samples' shapes the result takes.
      alpha, beta: parameters of the distribution, above 0. May be per sample.
      dtype: of the result: `types.FLOAT`, the default, or `types.FLOAT64`.
      shape: of a sample: an integer or a list, may be per sample. By default a sample is one number (no dimensions).
      seed: fixes the numbers, whatever the pipeline's seed and the operator's place; negative: not given.
      device: "gpu": the result is moved to the accelerator. The numbers are the same.
      name: of the node.

    Raises:
      ValueError: a parameter that is not above 0, shape given twice.

    Example:
      >>> weight = fn.random.beta(alpha=0.2, beta=0.2)
    """
    arguments = {"alpha": alpha, "beta": beta, "shape": shape}
    return _add(Beta, shape_like, arguments, seed=seed, dtype=dtype, device=device, name=name)


@operator_function("random.choice")
def choice(
    a: Input,
    shape_like: Input | None = None,
    /,
    *,
    p: Annotated[PerSample[ListOf[float]] | None, Range(0, 1)] = None,
    shape: Annotated[PerSample[OneOrMore[int]] | None, Range(0)] = None,
    seed: int = -1,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """Random elements of an array.

    Args:
      a: what to choose from: the elements (along the first axis) of a list, array or DataNode; an integer n stands for 0 .. n-1.
      shape_like: a value whose samples' shapes the result takes.
      p: probability of each element; their sum is 1. By default all are equally likely. May be per sample.
      shape: of a sample: an integer or a list, may be per sample. By default a sample is one element.
      seed: fixes the numbers, whatever the pipeline's seed and the operator's place; negative: not given.
      device: "cpu" or None.
      name: of the node.

    Returns:
      The elements, of the type of `a` (of an integer: int32).

    Raises:
      ValueError: nothing to choose from, or p is not a distribution over the elements of `a`.
    """
    count = dtype = None
    if isinstance(p, tuple) and not _is_distribution(np.array(p)):
        raise ArgumentError(f"argument p must be probabilities 0 ... 1 whose sum is 1, got {p}")
    if not is_node(a):
        elements = narrowed(a)
        if elements.ndim == 0:
            if elements.dtype.kind not in "iu":
                raise TypeError(f"`a` must be an integer, a list or a DataNode, got {elements.item()!r}")
            count, dtype = int(elements), elements.dtype
        available = len(elements) if count is None else count
        if available < 1:
            raise ArgumentError(f"there must be at least one element to choose from, got {available}")
        if isinstance(p, tuple) and len(p) != available:
            raise ArgumentError(f"argument p must have a probability for each of the {available} elements, got {len(p)}")
    args, nodes = Arguments.of({"p": p, "shape": shape}, is_node)
    op = Choice(like=_has_shape(args, shape_like), seed=seed, args=args, count=count, dtype=dtype)
    inputs = (() if shape_like is None else (shape_like,)) + (() if count is not None else (a,))
    return add(op, *inputs, *nodes, device=device, name=name)
