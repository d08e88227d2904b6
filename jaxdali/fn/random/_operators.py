"""Random numbers, one or a tensor of them per sample.

They are drawn on the host by Philox4x32-10 and depend on the seed, the operator's number among the random operators of the pipeline,
and which sample it is (epoch, and position in the data set as shuffled), not on batch size, number of shards or threads. A seed
gives other numbers than in DALI.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..._core.arguments import Arguments
from ..._core.building import add, is_node
from ..._core.context import BuildContext, HostContext
from ..._core.graph import DataNode
from ..._core.operator import HostOperator, Operator
from ..._core.ragged import Packed, plan_offsets
from ..._core.values import Spec, Value
from ...errors import ArgumentError
from ...types import DALIDataType, numpy_dtype
from .._tensor.cast import convert
from .._tensor.constant import narrowed
from ._draw import draw

_UNIFORM_DTYPES = tuple(
    np.dtype(t)
    for t in (np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.uint64, np.int64, np.float16, np.float32, np.float64)
)


@dataclasses.dataclass(frozen=True, kw_only=True)
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
        place = self.args.first + self.args.inputs.index("shape")
        if specs[place].ndim != 1 or specs[place].shape is not None:
            return self
        first = ctx.first_shape(place)
        return self if first is None else dataclasses.replace(self, rank=first[0])

    def _static_shape(self, specs: Sequence[Spec]) -> tuple[int, tuple[int, ...] | None]:
        """(dimensions of a sample's numbers, their shape when it is the same for all samples)."""
        if self.like:
            return specs[0].ndim, specs[0].shape
        if "shape" in self.args.inputs:
            spec = specs[self.args.first + self.args.inputs.index("shape")]
            length = 1 if spec.ndim == 0 else self.rank if spec.shape is None else spec.shape[0]
            if spec.dtype.kind not in "iu" or spec.ndim > 1 or length is None:
                got = f"{spec.ndim}-D {spec.dtype}" + ("" if length is not None else " of a number that may vary")
                raise ArgumentError(f"shape must be an integer or a 1-D list of a fixed number of integers, got {got}")
            return length, None
        shape = self.args.get("shape", ())
        shape = shape if isinstance(shape, tuple) else (shape,)
        return len(shape), shape

    def _shapes(self, ctx: HostContext, values: Sequence[Value]) -> np.ndarray:
        """``i64[N, ndim]``, for this batch."""
        if self.like:
            return values[0].shapes
        if "shape" in self.args.inputs:
            ndim, _ = self._static_shape([v.spec for v in values])
            shapes = self._values(ctx, values, "shape", width=ndim).astype(np.int64)
            if (shapes < 0).any():
                raise ArgumentError(f"{self.name}: shape must not be negative, got {shapes[(shapes < 0).any(axis=1)][0].tolist()}")
            return shapes
        _, shape = self._static_shape(())
        assert shape is not None
        return np.broadcast_to(np.array(shape, np.int64), (ctx.N, len(shape)))

    def _values(self, ctx: HostContext, values: Sequence[Value], name: str, width: int | None = None) -> np.ndarray:
        """A per-sample argument, ``f64[N]`` or ``f64[N, width]``."""
        result = self.args.values(ctx, values, name, width=width)
        assert result is not None
        return result

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


@dataclasses.dataclass(frozen=True, kw_only=True)
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Uniform(_Distribution):
    """Continuous in ``[low, high)``, or one of some values."""

    name: ClassVar[str] = "random.uniform"

    def transform(self, ctx: HostContext, values, u, sizes):
        if "values" in self.args:
            if "values" in self.args.inputs:
                return convert(np, self._chosen(ctx, values, u, sizes), self.dtype)
            choices = np.asarray(self.args.get("values"), np.float64).reshape(-1)
            return convert(np, choices[(u * len(choices)).astype(np.int64)], self.dtype)
        bounds = self._values(ctx, values, "range", width=2)
        if not (bounds[:, 0] < bounds[:, 1]).all():
            low, high = bounds[~(bounds[:, 0] < bounds[:, 1])][0].tolist()
            raise ArgumentError(f"{self.name}: range must be (low, high) with low < high, got ({low}, {high})")
        bounds = self._each(bounds, sizes)
        low, high = bounds[:, 0], bounds[:, 1]
        x = convert(np, low + (high - low) * u, self.dtype)
        if self.dtype.kind == "f":  # rounding may reach the upper bound, which is not part of the range
            top = high.astype(self.dtype)
            top = np.where(top.astype(np.float64) >= high, np.nextafter(top, np.asarray(-np.inf, self.dtype)), top)
            x = np.minimum(x, top)
        return x

    def _chosen(self, ctx: HostContext, values: Sequence[Value], u: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """For each number one of the values of its sample, of which each may have another number."""
        given = values[self.args.first + self.args.inputs.index("values")]
        choices = [np.asarray(given.sample(i), np.float64).reshape(-1) for i in given.indices(ctx.present)]
        counts = np.array([len(c) for c in choices])
        if (counts == 0).any():
            raise ArgumentError(f"{self.name}: values is empty")
        starts = np.cumsum(counts) - counts
        return np.concatenate(choices)[np.repeat(starts, sizes) + (u * np.repeat(counts, sizes)).astype(np.int64)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoinFlip(_Distribution):
    """1 with some probability, else 0."""

    name: ClassVar[str] = "random.coin_flip"

    def transform(self, ctx: HostContext, values, u, sizes):
        p = self._values(ctx, values, "probability")
        if not ((p >= 0) & (p <= 1)).all():
            raise ArgumentError(f"{self.name}: probability must be 0 .. 1, got {p[~((p >= 0) & (p <= 1))][0]}")
        return (u < self._each(p, sizes)).astype(self.dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Normal(_Distribution):
    """Normally distributed."""

    name: ClassVar[str] = "random.normal"

    def transform(self, ctx: HostContext, values, u, sizes):
        mean, stddev = (self._each(self._values(ctx, values, name), sizes) for name in ("mean", "stddev"))
        return convert(np, mean + stddev * u, self.dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
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
        return (Spec(a.dtype, ndim + a.ndim - 1, shape + row if shape is not None and row is not None else None),)

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
        samples = [row[index[s : s + n]].reshape(*shape, *row.shape[1:]) for row, shape, s, n in zip(rows, shapes, starts, sizes)]
        return (samples if spec.shape is None else np.stack(samples),)

    def _indices(self, ctx: HostContext, values, u: np.ndarray, sizes: np.ndarray, counts: np.ndarray) -> np.ndarray:
        if "p" not in self.args:
            return np.minimum(u * np.repeat(counts, sizes), np.repeat(counts - 1, sizes)).astype(np.int64)
        if (counts != counts[0]).any():
            raise ArgumentError(f"{self.name}: p needs the same number of elements in all samples, got {sorted(set(counts.tolist()))}")
        p = self._values(ctx, values, "p", width=int(counts[0]))
        _check_probabilities(p)
        edges = np.cumsum(p, axis=1)
        edges /= edges[:, -1:]
        ends = np.cumsum(sizes)
        parts = [np.searchsorted(e, u[b - n : b], side="right") for e, n, b in zip(edges, sizes, ends)]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _check_probabilities(p: np.ndarray):
    """`p`: ``f64[N, n]``, a distribution per row."""
    bad = ~((p >= 0) & (p <= 1)).all(axis=1) | (abs(p.sum(axis=1) - 1) > 1e-4)
    if bad.any():
        raise ArgumentError(f"random.choice: p must be probabilities 0 .. 1 whose sum is 1, got {p[bad][0].tolist()}")


def _length(x: Any) -> int | None:
    """How many numbers an argument has; None for a DataNode."""
    if is_node(x):
        return None
    return len(x) if isinstance(x, (list, tuple)) else np.size(x)


def _shape_argument(name: str, shape: Any, like: DataNode | None) -> Any:
    if shape is not None and like is not None:
        raise ArgumentError(f"{name}: shape and shape_like can't be given together; pass one of them")
    if shape is None or is_node(shape) or (isinstance(shape, (list, tuple)) and any(is_node(x) for x in shape)):
        return shape
    a = np.asarray(shape)
    if a.size and (a.dtype.kind not in "iu" or a.ndim > 1):
        raise TypeError(f"{name}: shape must be an integer or a list of integers, got {shape!r}")
    if (a < 0).any():
        raise ArgumentError(f"{name}: shape must not be negative, got {shape!r}")
    return int(a) if a.ndim == 0 else tuple(int(x) for x in a)


def _dtype(name: str, dtype: Any, default: type, allowed: Sequence[np.dtype]) -> np.dtype:
    if dtype is None or (isinstance(dtype, DALIDataType) and dtype == DALIDataType.NO_TYPE):
        return np.dtype(default)
    d = np.dtype(numpy_dtype(dtype))
    if d not in allowed:
        raise TypeError(f"{name}: dtype must be one of {', '.join(x.name for x in allowed)}, got {d.name}")
    return d


def _add(
    op: type[_Distribution], shape_like: Any, device: str | None, name: str | None, seed: int, dtype: np.dtype, **arguments: Any
) -> DataNode:
    first = int(shape_like is not None)
    args, nodes = Arguments.split(op.name, first=first, **arguments)
    inputs = (() if shape_like is None else (shape_like,)) + nodes
    result = add(op(like=bool(first), seed=int(seed), args=args, dtype=dtype), *inputs, device=_device(op.name, device), name=name)
    assert isinstance(result, DataNode)
    return result


def _device(name: str, device: str | None) -> str | None:
    if device not in (None, "cpu", "gpu"):
        raise ArgumentError(f"{name}: device must be 'cpu' or 'gpu', got {device!r}")
    return device


def uniform(
    shape_like: Any = None,
    /,
    *,
    range: Any = None,
    values: Any = None,
    dtype: Any = None,
    shape: Any = None,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    bytes_per_sample_hint: int | Sequence[int] = 0,
    preserve: bool = False,
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
      name: of the operator.
      bytes_per_sample_hint: no effect, accepted as a hint of DALI's.
      preserve: no effect (numbers that nobody uses need not be drawn), accepted for DALI's sake.

    Raises:
      ValueError: an empty range or values, shape given twice. DALI ignores `range` when `values` are given; here both are an error.

    Example:
      >>> angle = fn.random.uniform(range=(-10.0, 10.0))
    """
    what = "random.uniform"
    if range is not None and values is not None:
        raise ArgumentError(f"{what}: range and values can't be given together; pass one of them")
    if values is not None and _length(values) == 0:
        raise ArgumentError(f"{what}: values is empty")
    if values is None:
        range = (-1.0, 1.0) if range is None else range
        if not is_node(range):
            if _length(range) != 2:
                raise ArgumentError(f"{what}: range must be (low, high), got {range!r}")
            if not any(is_node(x) for x in range) and not range[0] < range[1]:
                raise ArgumentError(f"{what}: range must be (low, high) with low < high, got {range!r}")
    shape = _shape_argument(what, shape, shape_like)
    number = _dtype(what, dtype, np.float32, _UNIFORM_DTYPES)
    return _add(Uniform, shape_like, device, name, seed, number, range=range, values=values, shape=shape)


def coin_flip(
    shape_like: Any = None,
    /,
    *,
    probability: Any = 0.5,
    dtype: Any = None,
    shape: Any = None,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    bytes_per_sample_hint: int | Sequence[int] = 0,
    preserve: bool = False,
) -> DataNode:
    """1 with some probability, else 0.

    Args:
      shape_like: a value whose samples' shapes the result takes.
      probability: of a 1, in [0, 1]. May be per sample.
      dtype: of the result, by default `types.INT32`; any numeric type (DALI: BOOL, UINT8, INT32).
      shape: of a sample: an integer or a list, may be per sample. By default a sample is one number (no dimensions).
      seed: fixes the numbers, whatever the pipeline's seed and the operator's place; negative: not given.
      device: "gpu": the result is moved to the accelerator. The numbers are the same.
      name: of the operator.
      bytes_per_sample_hint: no effect, accepted as a hint of DALI's.
      preserve: no effect (numbers that nobody uses need not be drawn), accepted for DALI's sake.

    Raises:
      ValueError: a probability outside [0, 1] (DALI clamps it), shape given twice.
    """
    what = "random.coin_flip"
    if not is_node(probability) and not (np.ndim(probability) == 0 and 0 <= probability <= 1):
        raise ArgumentError(f"{what}: probability must be a number 0 .. 1, got {probability!r}")
    shape = _shape_argument(what, shape, shape_like)
    number = _dtype(what, dtype, np.int32, (np.dtype(np.bool_), *_UNIFORM_DTYPES))
    return _add(CoinFlip, shape_like, device, name, seed, number, probability=probability, shape=shape)


def normal(
    shape_like: Any = None,
    /,
    *,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = None,
    shape: Any = None,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    bytes_per_sample_hint: int | Sequence[int] = 0,
    preserve: bool = False,
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
      name: of the operator.
      bytes_per_sample_hint: no effect, accepted as a hint of DALI's.
      preserve: no effect (numbers that nobody uses need not be drawn), accepted for DALI's sake.

    Raises:
      ValueError: shape given twice.
    """
    what = "random.normal"
    shape = _shape_argument(what, shape, shape_like)
    number = _dtype(what, dtype, np.float32, _UNIFORM_DTYPES)
    return _add(Normal, shape_like, device, name, seed, number, mean=mean, stddev=stddev, shape=shape)


def choice(
    a: Any,
    shape_like: Any = None,
    /,
    *,
    p: Any = None,
    shape: Any = None,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    bytes_per_sample_hint: int | Sequence[int] = 0,
    preserve: bool = False,
) -> DataNode:
    """Random elements of an array.

    Args:
      a: what to choose from: the elements (along the first axis) of a list, array or DataNode; an integer n stands for 0 .. n-1.
      shape_like: a value whose samples' shapes the result takes.
      p: probability of each element; their sum is 1. By default all are equally likely. May be per sample.
      shape: of a sample: an integer or a list, may be per sample. By default a sample is one element.
      seed: fixes the numbers, whatever the pipeline's seed and the operator's place; negative: not given.
      device: "cpu" or None.
      name: of the operator.
      bytes_per_sample_hint: no effect, accepted as a hint of DALI's.
      preserve: no effect (numbers that nobody uses need not be drawn), accepted for DALI's sake.

    Returns:
      The elements, of the type of `a` (of an integer: int32).

    Raises:
      ValueError: nothing to choose from, or p is not a distribution over the elements of `a`.
    """
    what = "random.choice"
    if device not in (None, "cpu"):
        raise ArgumentError(f"{what}: device must be 'cpu', got {device!r}")
    shape = _shape_argument(what, shape, shape_like)
    count = dtype = None
    if p is not None and not is_node(p) and not (isinstance(p, (list, tuple)) and any(is_node(x) for x in p)):
        _check_probabilities(np.asarray(p, np.float64).reshape(1, -1))
    if not is_node(a):
        a = narrowed(a)
        if a.ndim == 0:
            if a.dtype.kind not in "iu":
                raise TypeError(f"{what}: `a` must be an integer, a list or a DataNode, got {a.item()!r}")
            count, dtype = int(a), a.dtype
        available = len(a) if count is None else count
        if available < 1:
            raise ArgumentError(f"{what}: there must be at least one element to choose from, got {available}")
        if p is not None and _length(p) not in (None, available):
            raise ArgumentError(f"{what}: p must have a probability for each of the {available} elements, got {_length(p)}")
    inputs = (() if shape_like is None else (shape_like,)) + (() if count is not None else (a,))
    args, nodes = Arguments.split(what, first=len(inputs), p=p, shape=shape)
    op = Choice(like=shape_like is not None, seed=int(seed), args=args, count=count, dtype=dtype)
    result = add(op, *inputs, *nodes, device=device, name=name)
    assert isinstance(result, DataNode)
    return result
