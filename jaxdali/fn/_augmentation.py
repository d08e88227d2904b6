"""Operators of `jaxdali.auto_aug`, for augmentations that would take many steps with the operators of `fn`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from .._core import ffi as _ffi
from .._core.building import add
from .._core.calls import records
from .._core.context import BuildContext, HostContext, LowerContext
from .._core.frames import Frames
from .._core.graph import DataNode
from .._core.operator import HostOperator, NativeOperator, Operator, Setup
from .._core.operator_function import Input, operator_function
from .._core.values import Spec, Value
from .._cpu import Reduction
from ._families import call_reduce, image_layout
from ._families.conversion import convert

_VALUES = np.arange(256, dtype=np.uint8)  # all values of a byte: an operator's table is its function of these


class Gather(HostOperator):
    """Takes an entry of a table for each sample."""

    name = "auto_aug.parameter"
    table: Any = dataclasses.field(compare=False)
    text: bytes  # the table's bytes: operators are compared, which arrays can't be

    def infer(self, place: Spec) -> tuple[Spec, ...]:
        return (Spec(self.table.dtype, self.table.ndim - 1, self.table.shape[1:]),)

    def compute(self, N: int, *specs: Spec) -> Callable[..., np.ndarray]:
        return lambda place: self.table.take(place.reshape(N), axis=0, mode="clip")


@records("auto_aug.parameter")
def taken(table: np.ndarray, place: DataNode) -> DataNode:
    """``table[place]``."""
    return add(Gather(table=table, text=table.tobytes()), place)


class LookupOperator(NativeOperator):
    """A function of bytes that depends on a parameter. The kernel gets it as a table for each sample."""

    kernel = "table"
    only_kernels = True

    def table(self, parameter: np.ndarray | None, N: int) -> np.ndarray:
        """The tables by the parameters ``[N, 1]``: ``u8[N, 256]``, or ``[1, 256]`` for all samples."""
        raise NotImplementedError(self.name)

    def infer(self, x: Spec, *parameter: Spec) -> tuple[Spec, ...]:
        if x.dtype != np.uint8:
            raise TypeError(f"the input must be of type uint8, got {x.dtype}")
        return (x,)

    def setup(self, ctx: HostContext, x: Value, *parameter: Value) -> Setup:
        # The kernel takes `u8[N, tables, 256]`, here one table for each sample.
        tables = np.broadcast_to(self._table(ctx, *parameter)[:, None], (ctx.N, 1, 256))
        return Setup((None if ctx.spec.shape is not None else x.shapes,), {"table": tables})

    def lower(self, ctx: LowerContext, x: Any, *parameter: Any) -> Any:
        y, status = _ffi.call("table", ctx, x, ctx.spec, ctx.out[0], ctx.params["table"])
        return (y,), status

    def _table(self, ctx: HostContext, parameter: Value | None = None) -> np.ndarray:
        numbers = None if parameter is None else parameter.vectors("the parameter", ctx.present, 1)
        return self.table(numbers, ctx.N).astype(np.uint8)


class Masked(LookupOperator):
    """``x & mask``."""

    name = "auto_aug.posterize"

    def table(self, parameter: Any, N: int) -> np.ndarray:
        return _VALUES & parameter.astype(np.uint8)


class Solarized(LookupOperator):
    """``255 - x`` from a threshold on."""

    name = "auto_aug.solarize"

    def table(self, parameter: Any, N: int) -> np.ndarray:
        return np.where(_VALUES < parameter, _VALUES, 255 - _VALUES)


class Shifted(LookupOperator):
    """``x + shift`` below 128, at most 255."""

    name = "auto_aug.solarize_add"

    def table(self, parameter: Any, N: int) -> np.ndarray:
        return np.where(_VALUES < 128, np.minimum(_VALUES + parameter.astype(np.int64), 255), _VALUES)


class Inverted(LookupOperator):
    """``255 - x``."""

    name = "auto_aug.invert"

    def table(self, parameter: Any, N: int) -> np.ndarray:
        return (255 - _VALUES)[None]


class FromStatistics(NativeOperator):
    """A function of bytes that depends on statistics of the image, or the frame: on reductions of each channel."""

    kernel = "table"
    reductions: ClassVar[tuple[Reduction, ...]]  # over the pixels of each channel; `table` gets their results

    def table(self, values: Any, totals: list[Any], pixels: Any, parameter: Any) -> Any:
        """The tables, ``f32[images, 1 or channels, 256]``.

        Args:
          values: all values of a byte, ``f32[256]``.
          totals: the result of each reduction, ``f64[images, channels]``.
          pixels: the number of pixels, ``[images, 1]``.
          parameter: ``f32[images]``, if the operator has one.
        """
        raise NotImplementedError(self.name)

    def bind(self, ctx: BuildContext, x: Spec, *parameter: Spec) -> Operator:
        if x.ndim != 4:
            return self
        # A sequence: each of its frames is an image. The parameter is one number for all frames of a sequence.
        # `sequences` tells for each input whether it has frames.
        return Frames(inner=self, sequences=(True, *(False for _ in parameter))).bind(ctx, x, *parameter)

    def infer(self, x: Spec, *parameter: Spec) -> tuple[Spec, ...]:
        """The input, which must be images of bytes with 1 or 3 channels. `lower` makes a table for each channel, so
        that their number must be known.
        """
        layout = image_layout(x, ("HWC",))
        if x.dtype != np.uint8:
            raise TypeError(f"the input must be of type uint8, got {x.dtype}")
        if x.extent(x.ndim - 1) not in (1, 3):
            advice = "known when the pipeline is built (from external_source: by its layout or shape)"
            raise ValueError(f"the input must have 1 or 3 channels, {advice}, got {x.extent(x.ndim - 1)}")
        return (dataclasses.replace(x, layout=layout),)

    def setup(self, ctx: HostContext, x: Value, *parameter: Value) -> Setup:
        params = {"pixels": x.shapes[:, -3:-1].prod(axis=1).astype(np.float64)}
        if parameter:
            params["parameter"] = parameter[0].vectors("the parameter", ctx.present, 1)[:, 0].astype(np.float32)
        return Setup((None if ctx.spec.shape is not None else x.shapes,), params)

    def lower(self, ctx: LowerContext, x: Any, *parameter: Any) -> Any:
        """Reduces the channels of each image, makes tables of the results, and looks up the bytes in the tables."""
        spec, params = ctx.spec, ctx.params
        channels = spec.extent(2)
        assert channels is not None
        total_spec, no_center = Spec(np.dtype(np.float64), 1, (channels,)), jnp.zeros((0,), jnp.float64)
        totals, codes = [], []
        # Over the axes H and W of HWC, for each channel. Sums and extremes need no center.
        for reduction in self.reductions:
            y, code = call_reduce(ctx, x, total_spec, out=None, center=no_center, reduction=reduction, axes=(0, 1))
            totals.append(y)
            codes.append(code)
        table = self.table(
            jnp.arange(256, dtype=jnp.float32), totals, params["pixels"][:, None], params.get("parameter")
        )
        y, code = _ffi.call("table", ctx, x, spec, ctx.out[0], convert(jnp, table, np.dtype(np.uint8)))
        # A sample's status is 0 only if all calls have succeeded.
        return (y,), jnp.max(jnp.stack([*codes, code]), axis=0)


class Contrasted(FromStatistics):
    """Scales the distance from an image's mean brightness, with the weights of ITU-R BT.601, by the parameter."""

    name = "auto_aug.contrast"
    reductions = (Reduction.SUM,)

    def table(self, values: Any, totals: list[Any], pixels: Any, parameter: Any) -> Any:
        mean = (totals[0] / pixels).astype(jnp.float32)
        center = (mean * jnp.array([0.299, 0.587, 0.114], jnp.float32)).sum(axis=1)[:, None, None]
        return center + (values - center) * parameter[:, None, None]


class ContrastedByArea(FromStatistics):
    """Scales the distance from the number of pixels / 256, which TensorFlow's RandAugment uses as the mean brightness,
    by the parameter.
    """

    name = "auto_aug.contrast_by_area"
    reductions = ()

    def table(self, values: Any, totals: list[Any], pixels: Any, parameter: Any) -> Any:
        center = jnp.floor(jnp.minimum(pixels / 256, 255)).astype(jnp.float32)[:, :, None]
        return jnp.floor(center + (values - center) * parameter[:, None, None])


class Stretched(FromStatistics):
    """Stretches each channel to the whole range."""

    name = "auto_aug.auto_contrast"
    reductions = (Reduction.MIN, Reduction.MAX)

    def table(self, values: Any, totals: list[Any], pixels: Any, parameter: Any) -> Any:
        low, high = (x.astype(jnp.float32)[:, :, None] for x in totals)
        is_flat = high <= low
        # A channel that has only one value does not change: it is scaled by 1 from 0 on.
        scale = jnp.float32(255) / jnp.where(is_flat, jnp.float32(255), high - low)
        return (values - jnp.where(is_flat, jnp.float32(0), low)) * scale


def _adder(kind: type[Any]) -> Callable[..., DataNode]:
    """Makes the function that adds an operator to a pipeline. Serialized pipelines call it, too."""

    @records(kind.name)
    def function(data: DataNode, *parameter: DataNode) -> DataNode:
        return add(kind(), data, *parameter)

    return function


posterized, solarized, shifted, inverted = _adder(Masked), _adder(Solarized), _adder(Shifted), _adder(Inverted)


@operator_function(Contrasted)
def contrasted(data: Input, parameter: Input, /) -> DataNode:
    """Contrast with a factor for each sample.

    Args:
      data: images, or sequences of them, each frame of which is one.
      parameter: the factors.
    """
    ...


@operator_function(ContrastedByArea)
def contrasted_by_area(data: Input, parameter: Input, /) -> DataNode:
    """Contrast with a factor for each sample, about a brightness that depends on the number of pixels.

    Args:
      data: images, or sequences of them, each frame of which is one.
      parameter: the factors.
    """
    ...


@operator_function(Stretched)
def stretched(data: Input, /) -> DataNode:
    """Contrast as large as it can be.

    Args:
      data: images, or sequences of them, each frame of which is one.
    """
    ...
