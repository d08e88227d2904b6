"""normalize: elements relative to the mean and standard deviation of their sample or batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Unpack

import jax.numpy as jnp
import numpy as np

from ... import types
from ..._core import ffi as _ffi
from ..._core.building import add, as_node, is_node
from ..._core.context import BuildContext, HostContext, LowerContext
from ..._core.declaration import DType, OneOf, Tensor
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.input_warnings import byte_statistics_warning
from ..._core.operator import HostOperator, Names, NativeOperator, Operator, ProgramOperator, Setup
from ..._core.operator_function import Hints, Input, OneOrMore, PerSample, operator_function
from ..._core.ragged import ALIGNMENT, Ragged
from ..._core.values import Spec, Value
from .._families import call_window, samples_of_blocks
from .._families.conversion import convert
from .._families.ragged import fit, shapes_of
from ..reductions._reduction import Reduction
from ..reductions._variance import Variance

_TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "bfloat16", "float32")


class _Total(Reduction):
    """A sum over the axes, as float64. If the user gives no axes, they are the axes where the second input has extent
    1.
    """

    name = "normalize"
    keep_dims: bool = True

    def result(self, dtype: np.dtype) -> np.dtype:
        return np.dtype(np.float64)

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        """Fixes the axes, if the user gave none but a mean or stddev: those along which that has extent 1."""
        if self.axes is not None or self.axis_names is not None or len(specs) == 1:
            return self
        shape = specs[1].shape or ctx.first_shape(1)
        if shape is None:
            raise ArgumentError(
                "the shape of the given mean or stddev is not known when the pipeline is built: give axes"
            )
        return dataclasses.replace(self, axes=tuple(d for d, n in enumerate(shape) if n == 1))

    def infer(self, x: Spec, *statistics: Spec) -> tuple[Spec, ...]:
        # With axis_names="" each element stands alone, as in DALI.
        if self.axes == ():
            raise ArgumentError("at least one axis must be reduced")
        return super().infer(x, *statistics)


class _Sum(_Total):
    """The sum of the elements."""

    def run(self, ctx: HostContext, x: Value, *statistics: Value) -> tuple[Any, ...]:
        return super().run(ctx, x)

    def run_reads(self, i: int) -> bool:
        return i == 0

    def lower(self, ctx: LowerContext, x: Any, *statistics: Any) -> Any:
        return super().lower(ctx, x)


class _Squares(_Total):
    """The sum of squared differences from a mean, which is a number or the second input."""

    kind = Variance.kind
    mean: float  # if it is not an input

    def origin(self) -> float:
        return self.mean

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        _check(ctx, values[0], values[1:], self._axes(values[0].spec))
        return super().setup(ctx, *values)


class _Statistic(HostOperator, ProgramOperator):
    """The mean of a sample or of the batch from the totals, or the standard deviation from the totals of squares.

    Its inputs are the totals, and the values that were summed, of which only the shapes are read.
    """

    name = "normalize"
    batch: bool  # one statistic for all samples of a shard
    deviation: bool  # the standard deviation, not the mean
    ddof: int  # subtracted from the number of elements
    epsilon: float  # added to the variance

    @property
    def mixes(self) -> bool:
        return self.batch

    def infer(self, total: Spec, x: Spec) -> tuple[Spec, ...]:
        return (dataclasses.replace(total, dtype=np.dtype(np.float32)),)

    def run_reads(self, i: int) -> bool:
        return i == 0

    def run(self, ctx: HostContext, total: Value, x: Value) -> tuple[Any, ...]:
        """Divides the total of each sample, or the sum of all totals of the shard if `batch`."""
        counts, out = self._counts(ctx, total, x), []
        for shard in np.arange(ctx.N).reshape(ctx.S, ctx.B):
            present_samples = shard[ctx.present[shard]] if self.batch else shard
            for i in shard:
                # All present samples of the shard count for the batch; otherwise each sample counts on its own.
                samples = present_samples if self.batch and ctx.present[i] else [i]
                value = sum((total.sample(k) for k in samples), np.zeros(total.shapes[i]))
                out.append(self._from_total(np, value, counts[samples].sum()).astype(np.float32))
        return (np.stack(out) if ctx.spec.shape is not None else out,)

    def setup(self, ctx: HostContext, total: Value, x: Value) -> Setup:
        return Setup((shapes_of(total),), {"count": self._counts(ctx, total, x)})

    def _counts(self, ctx: HostContext, total: Value, x: Value) -> np.ndarray:
        """The number of elements in each total, ``f64[N]``. Raises ValueError if the samples can't be combined."""
        for shard in np.arange(ctx.N).reshape(ctx.S, ctx.B) if self.batch else ():
            shapes = total.shapes[shard[ctx.present[shard]]]
            if len(shapes) and (shapes != shapes[0]).any():
                distinct_shapes = sorted(set(map(tuple, x.shapes[ctx.present].tolist())))
                raise ValueError(
                    f"with batch=True samples may only differ in the reduced axes, got shapes {distinct_shapes}"
                )
        return x.shapes.prod(axis=1) / np.maximum(total.shapes.prod(axis=1), 1)

    def lower(self, ctx: LowerContext, total: Any, x: Any) -> tuple[Any]:
        """Divides the totals of samples ``[B, ...]``, or of the blocks of a ragged buffer; with `batch`, the sum of all
        totals.
        """
        count, out = ctx.params["count"], ctx.out[0]
        # Element 0 of the control operand is the thread pool; the presence of each sample follows.
        present = ctx.control[1:] != 0
        if self.batch:
            count = jnp.broadcast_to(jnp.where(present, count, 0.0).sum(), count.shape)
        if out is None:
            ones = (1,) * (total.ndim - 1)
            if self.batch:
                total = jnp.where(present.reshape(-1, *ones), total, 0.0).sum(0, keepdims=True)
            y = self._from_total(jnp, total, count.reshape(-1, *ones))
            return (jnp.broadcast_to(y, (ctx.B, *y.shape[1:])).astype(np.float32),)
        # A block is ALIGNMENT elements of one sample of the ragged buffer.
        sample = samples_of_blocks(out.offsets, out.capacity)
        data = fit(total, out).data.reshape(-1, ALIGNMENT)
        # With `batch`, all samples have as many blocks: they are added up block by block.
        if self.batch:
            block = jnp.arange(len(sample), dtype=jnp.int32) - out.offsets[sample]
            data = jnp.zeros_like(data).at[block].add(jnp.where(present[sample][:, None], data, 0.0))[block]
        y = self._from_total(jnp, data, count[sample][:, None]).astype(np.float32)
        return (Ragged(y.reshape(-1), out.offsets, out.shapes),)

    def _from_total(self, xp: Any, total: Any, count: Any) -> Any:
        """The mean or the standard deviation from a total of so many elements."""
        if not self.deviation:
            return total / xp.maximum(count, 1.0)
        degrees_of_freedom = count - self.ddof
        return xp.sqrt(
            xp.where(degrees_of_freedom > 0, total / xp.where(degrees_of_freedom > 0, degrees_of_freedom, 1.0), 0.0)
            + self.epsilon
        )


class Standardize(HostOperator, ProgramOperator):
    """``(x - mean) / sqrt(stddev**2 + epsilon) * scale + shift``. Mean and stddev are numbers, or further inputs in
    this order.
    """

    name = "normalize"
    mean: float | None  # None: an input
    stddev: float | None  # None: an input
    epsilon: float  # added to the variance
    scale: float  # a factor of the result
    shift: float  # added after that
    dtype: np.dtype
    doubt: str = dataclasses.field(default="", compare=False)  # a warning for inputs of uint8

    def doubts(self, *specs: Spec) -> str:
        return self.doubt if specs[0].dtype == np.uint8 else ""

    def origins(self, names: Sequence[Names], data: Any, present: Any) -> Names:
        return names[0]  # For the user, statistics are arguments.

    def infer(self, x: Spec, *statistics: Spec) -> tuple[Spec, ...]:
        """The input in the type `dtype`. Statistics must be float32, with the input's extents or 1."""
        if x.dtype.name not in _TYPES:
            raise TypeError(f"the input must be {', '.join(_TYPES)}, got {x.dtype}")
        for s in statistics:
            if s.ndim != x.ndim or any(
                s.extent(d) not in (None, 1) and x.extent(d) not in (None, s.extent(d)) for d in range(x.ndim)
            ):
                c = x.layout.find("C") if x.layout else x.ndim - 1
                is_per_channel = (
                    s.ndim == 1 and x.ndim > 1 and c >= 0 and s.extent(0) in (x.extent(c), x.extent(c) or 3)
                )
                shape = tuple(s.extent(0) if d == c else 1 for d in range(x.ndim))
                raise ArgumentError(
                    f"mean and stddev must have the input's {x.ndim} dimensions, of its extents or 1; got {s.ndim}"
                    + (f": one number per channel has the shape {shape}" if is_per_channel else "")
                )
            if s.dtype != np.float32:
                raise TypeError(f"mean and stddev must be float32, got {s.dtype}")
        return (dataclasses.replace(x, dtype=self.dtype),)

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        """The operator for the kernel that ragged samples need, or this one."""
        statistics = specs[1:]
        if ctx.stage == "host" or not statistics or all(s.shape is not None for s in specs):
            return self
        # Statistics that vary along one axis at most are scale and offset of the kernel `window`.
        by_channel = all(s.shape is not None for s in statistics) and len(_channels(statistics)) < 2
        operator_class = _ByChannel if by_channel else _Expanded
        return self.as_kind(operator_class)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        _check(ctx, values[0], values[1:])
        return Setup((shapes_of(values[0]),))

    def run(self, ctx: HostContext, x: Value, *statistics: Value) -> tuple[Any, ...]:
        """Normalises sample by sample. A sample that is not present becomes zeros, or empty."""
        _check(ctx, x, statistics)
        data, samples = ctx.output(x.shapes)
        with np.errstate(all="ignore"):
            for i in np.flatnonzero(ctx.present).tolist():
                mean, factor = self._parameters(np, [s.sample(i) for s in statistics])
                samples[i][...] = self._applied(np, x.sample(i), mean, factor)
        return (data,)

    def lower(self, ctx: LowerContext, x: Any, *statistics: Any) -> Any:
        if not isinstance(x, Ragged):
            return (self._applied(jnp, x, *self._parameters(jnp, statistics)),)
        x = fit(x, ctx.out[0])
        return (dataclasses.replace(x, data=self._applied(jnp, x.data, *self._parameters(jnp, statistics))),)

    def _parameters(self, xp: Any, statistics: Any) -> tuple[Any, Any]:
        """The mean, and the factor ``scale / sqrt(stddev**2 + epsilon)``, which is 0 for a deviation of 0."""
        inputs = iter(statistics)
        mean = np.float32(self.mean) if self.mean is not None else next(inputs)
        if self.stddev is not None:
            return mean, np.float32(self.scale / np.sqrt(self.stddev**2 + self.epsilon))
        deviation = next(inputs)
        if self.epsilon:
            deviation = xp.sqrt(deviation * deviation + np.float32(self.epsilon))
        is_zero = deviation == 0
        return mean, xp.where(
            is_zero, np.float32(0), np.float32(self.scale) / xp.where(is_zero, np.float32(1), deviation)
        )

    def _applied(self, xp: Any, x: Any, mean: Any, factor: Any) -> Any:
        # In place with NumPy, because the memory of new arrays costs more than the arithmetic.
        y = x.astype(np.float32)
        y -= mean
        y *= factor
        y += np.float32(self.shift)
        return convert(xp, y, self.dtype)


class _ByChannel(Standardize, NativeOperator):
    """Normalises ragged samples by the kernel `window`. The statistics vary along one axis of known extent, or along
    none.
    """

    kernel = "window"

    def setup_reads(self, i: int) -> bool:
        return False

    def lower(self, ctx: LowerContext, x: Any, *statistics: Any) -> Any:
        """Calls the kernel `window` with a factor and an offset for each channel: ``(x - mean) * factor + shift``."""
        mean, factor = self._parameters(jnp, statistics)
        # For each sample, one number per channel. A statistic that is one number for all samples has no axes.
        factor = jnp.broadcast_to(
            factor.reshape(-1, 1) if np.ndim(factor) == 0 else factor.reshape(ctx.B, -1), (ctx.B, self._width(ctx))
        )
        offset = np.float32(self.shift) - (mean if np.ndim(mean) == 0 else mean.reshape(ctx.B, -1)) * factor
        # The kernel `window` takes the whole samples, and computes factor * x + offset.
        zeros = jnp.zeros_like(x.shapes)
        # The axis along which the statistics vary; -1: none.
        channel = next(iter(_channels(ctx.inputs[1:])), -1)
        y, status = call_window(
            ctx, x, zeros, zeros + np.int32(1), x.shapes, scale=factor, offset=offset, channel=channel
        )
        return (y,), status

    def _width(self, ctx: LowerContext) -> int:
        """The number of channels."""
        return max(int(np.prod(s.shape or ())) for s in ctx.inputs[1:])


class _Expanded(Standardize, NativeOperator):
    """Normalises ragged samples with statistics of any shape: a native kernel broadcasts them."""

    kernel = "expand"

    def setup_reads(self, i: int) -> bool:
        return False

    def lower(self, ctx: LowerContext, x: Any, *statistics: Any) -> Any:
        """Broadcasts the statistics to the samples by the kernel `expand`, then computes as `Standardize`."""
        status, expanded = jnp.zeros((ctx.B,), jnp.int32), []
        spec = dataclasses.replace(ctx.spec, dtype=np.dtype(np.float32))
        for s in statistics:
            y, code = _ffi.call("expand", ctx, s, spec, ctx.out[0])
            expanded.append(y.data if isinstance(y, Ragged) else y)
            # A sample keeps the status of its first failed call; 0: none has failed.
            status = jnp.where(status == 0, code, status)
        return super().lower(ctx, x, *expanded), status


def _channels(statistics: Any) -> set[int]:
    """The axes along which statistics of static shapes vary."""
    return {d for s in statistics for d, n in enumerate(s.shape) if n != 1}


def _check(ctx: HostContext, x: Value, statistics: tuple[Value, ...], reduced: tuple[int, ...] | None = None):
    """Raises ValueError unless the extents of a sample's statistics are the sample's or 1. In reduced axes they must be
    1.
    """
    for s in statistics:
        fits = (s.shapes == x.shapes) | (s.shapes == 1)
        if reduced is not None:
            fits = s.shapes == np.where(np.isin(np.arange(x.spec.ndim), reduced), 1, x.shapes)
        is_wrong = ~fits.all(axis=1) & ctx.present
        if is_wrong.any():
            i = int(is_wrong.argmax())
            sample_shape, shape = (tuple(v.shapes[i].tolist()) for v in (x, s))
            axes = f" reduced over the axes {list(reduced)}" if reduced is not None else ""
            raise ValueError(f"sample {i} of shape {sample_shape}{axes} does not fit a mean or stddev of shape {shape}")


def _number_or_tensor(x: Any) -> Any:
    """An array of one element as a number, unless it has the axes of an image."""
    return float(x.item()) if isinstance(x, np.ndarray) and x.size == 1 and x.ndim < 2 else x


@operator_function("normalize")
def normalize(
    input: Input,
    /,
    *,
    axes: OneOrMore[int] | None = None,
    axis_names: str | None = None,
    batch: bool = False,
    ddof: int = 0,
    dtype: Annotated[DType, OneOf(*_TYPES)] = types.FLOAT,
    epsilon: float = 0.0,
    mean: PerSample[Tensor | float] | None = None,
    scale: float = 1.0,
    shift: float = 0.0,
    stddev: PerSample[Tensor | float] | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Normalises elements: ``(x - mean) / sqrt(stddev**2 + epsilon) * scale + shift``.

    Mean and stddev are given, or computed from the data.

    Where the computed or given standard deviation is 0, the result is `shift`.

    Differs from DALI: statistics are computed in double precision; axes may be negative; a `stddev` of 0 without an
    `epsilon` is an error instead of a division by 0. With ``axis_names=""``, each element is its own statistic, where
    DALI mixes elements if `batch` or a tensor `mean` is given. An axis that occurs twice is refused; DALI divides by
    its extent twice.

    Args:
      input: any tensor of integers of at most 32 bits, float32 or (not in DALI) float16 and bfloat16.
      axes: the axes that mean and stddev are computed over, by number. Default: the axes of extent 1 of a given tensor
        `mean` or `stddev`, else all.
      axis_names: the same axes, by their letters in the layout.
      batch: whether mean and stddev are computed over all samples of a shard's batch. The samples may then differ only
        in the reduced axes.
      ddof: the number subtracted from the number of elements in the divisor of the variance.
      dtype: element type of the result, one of those of the input. Integers are rounded and saturated.
      epsilon: a number added to the variance.
      mean: a number, or a float32 tensor of the input's shape with extent 1 in the reduced axes: an array, or a
        DataNode with one per sample (not with `batch`); if the shape is not known when the pipeline is built, the axes
        must be given.
      scale: a factor for the result.
      shift: a number added after that.
      stddev: as `mean`. If only one of the two is given, the other is computed; the deviation is then relative to the
        given mean.

    Returns:
      The input's shape and layout.

    Raises:
      ArgumentError: axes that don't exist, axes given together with numbers for both `mean` and `stddev`, or tensors
        with `batch`.
      OperatorError: a sample does not fit its mean or stddev.

    Example:
      >>> fn.normalize(spectrograms, axes=[1])
    """
    statistics = {"mean": _number_or_tensor(mean), "stddev": _number_or_tensor(stddev)}
    numbers = {n: x if isinstance(x, float) else None for n, x in statistics.items()}
    tensors = {n: as_node(x, "normalize") for n, x in statistics.items() if x is not None and not isinstance(x, float)}
    if axes is not None and axis_names is not None:
        raise ArgumentError("give either axes or axis_names")
    if None not in numbers.values() and (axes is not None or axis_names is not None):
        raise ArgumentError("axes have no meaning if mean and stddev are numbers")
    if batch and tensors:
        raise ArgumentError(f"with batch=True {' and '.join(tensors)} must be a number, not a tensor")
    if numbers["stddev"] is not None and not numbers["stddev"] ** 2 + epsilon > 0:
        raise ArgumentError(f"stddev**2 + epsilon must be above 0, got stddev={numbers['stddev']}, epsilon={epsilon}")
    reduced_axes: tuple[int, ...] | None = (
        None if axes is None else tuple(np.atleast_1d(np.asarray(axes, np.int64)).tolist())
    )
    # A statistic that is not given is a sum over the axes, and a step that divides it by the number of elements.
    if statistics["mean"] is None:
        # `tensors` has the stddev if that is a tensor: without `axes`, `_Total.bind` finds the axes by its shape.
        total = add(_Sum(axes=reduced_axes, axis_names=axis_names), input, *tensors.values(), device=device)
        tensors["mean"] = add(
            _Statistic(batch=batch, deviation=False, ddof=0, epsilon=0.0), total, input, device=device
        )
    if statistics["stddev"] is None:
        center = (tensors["mean"],) if "mean" in tensors else ()
        total = add(
            _Squares(mean=numbers["mean"] or 0.0, axes=reduced_axes, axis_names=axis_names),
            input,
            *center,
            device=device,
        )
        tensors["stddev"] = add(
            _Statistic(batch=batch, deviation=True, ddof=ddof, epsilon=epsilon), total, input, device=device
        )
        epsilon = 0.0  # The computed deviation contains it already.
    inputs = (tensors[n] for n in statistics if n in tensors)
    op = Standardize(
        mean=numbers["mean"],
        stddev=numbers["stddev"],
        epsilon=epsilon,
        scale=scale,
        shift=shift,
        dtype=types.numpy_dtype(dtype),
        doubt=byte_statistics_warning(mean, stddev) if scale == 1 and not is_node(mean) and not is_node(stddev) else "",
    )
    return add(op, input, *inputs, device=device, name=name)
