"""The family of tensors of one value: zeros, ones, full, and those like another tensor."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from ..._core import ffi as _ffi
from ..._core.arguments import Values
from ..._core.context import BuildContext, HostContext, LowerContext
from ..._core.errors import ArgumentError
from ..._core.operator import HostOperator, NativeOperator, Operator, ProgramOperator, Setup
from ..._core.ragged import ALIGNMENT, Ragged
from ..._core.values import Spec, Value
from .._families.conversion import convert
from .._families.ragged import samples_of_blocks


class Filled(HostOperator, ProgramOperator):
    """A tensor filled with one value. The value is fixed or an input. The shape is an argument or that of an input."""

    like: ClassVar[bool] = False  # whether the result has the shape of input 0
    value: ClassVar[int | None] = None  # None: the value is an input
    dtype: ClassVar[np.dtype | None] = None
    layout: ClassVar[str | None] = None

    def run_reads(self, i: int) -> bool:
        return not (self.like and i == 0)

    def setup_reads(self, i: int) -> bool:
        return i >= self._inputs

    @property
    def _inputs(self) -> int:
        """The number of inputs that are not arguments."""
        return int(self.like) + int(self.value is None)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """The shape of input 0 if `like`, otherwise that of the argument, or else that of the value."""
        fill = inputs[int(self.like)] if self.value is None else None
        if self.like:
            dtype = self.dtype if self.dtype is not None else inputs[0].dtype
            return (dataclasses.replace(inputs[0], dtype=dtype),)
        dtype = fill.dtype if fill is not None else self.dtype
        assert dtype is not None
        if "shape" not in self.args:
            shape = fill.shape if fill is not None else ()
            return (Spec(dtype, fill.ndim if fill is not None else 0, shape, self.layout or ""),)
        rank = self.args.width("shape", inputs)
        if rank is None:
            raise ArgumentError("argument shape must have the same number of elements in all samples")
        if self.layout and len(self.layout) != rank:
            raise ArgumentError(f"the layout {self.layout!r} does not fit {rank} dimensions")
        if self.args.is_static("shape"):
            return (Spec(dtype, rank, tuple(np.atleast_1d(self.args.get("shape")).tolist()), self.layout or ""),)
        return (Spec(dtype, rank, None, self.layout or ""),)

    def _shapes(self, ctx: HostContext, inputs: tuple[Value, ...], a: Values) -> np.ndarray:
        """Shapes of the output. Raises ValueError if the value can't be broadcast to them."""
        if self.like:
            shapes = inputs[0].shapes
        elif (shapes := a.vector("shape", ctx.spec.ndim)) is not None:
            if (shapes < 0).any():
                raise ValueError(f"extents must not be negative, got {shapes.min()}")
        else:
            shapes = inputs[0].shapes if self.value is None else np.zeros((ctx.N, 0), np.int64)
        if self.value is None:
            fill = inputs[int(self.like)].shapes
            # The last axes, against which the value is broadcast.
            target = shapes[:, max(shapes.shape[1] - fill.shape[1], 0) :]
            # The value must not have more axes than the output, and in each axis the output's extent or 1.
            is_wrong = np.full(ctx.N, fill.shape[1] > shapes.shape[1])
            if not is_wrong.any():
                is_wrong = ((fill != 1) & (fill != target)).any(axis=1)
            if (is_wrong & ctx.present).any():
                i = int((is_wrong & ctx.present).argmax())
                raise ValueError(
                    f"sample {i}: a value of shape {tuple(fill[i].tolist())} can't be broadcast to {tuple(shapes[i].tolist())}"
                )
        return shapes

    def run(self, ctx: HostContext, *inputs: Value) -> tuple[Any, ...]:
        """Fills the samples one by one. The values of inputs are broadcast, and converted."""
        shapes = self._shapes(ctx, inputs, self.arguments(ctx, inputs))
        dtype = ctx.spec.dtype
        if self.value is None:
            fill = inputs[int(self.like)]
            samples = [
                np.broadcast_to(convert(np, fill.sample(i), dtype), s) if is_present else np.zeros(s, dtype)
                for i, (s, is_present) in enumerate(zip(shapes.tolist(), ctx.present.tolist()))
            ]
            return (np.stack(samples) if ctx.spec.shape is not None else samples,)
        if ctx.spec.shape is not None:
            return (np.full((ctx.N, *ctx.spec.shape), self.value, dtype),)
        return ([np.full(s, self.value, dtype) for s in shapes.tolist()],)

    def setup(self, ctx: HostContext, *inputs: Value) -> Setup:
        shapes = self._shapes(ctx, inputs, self.arguments(ctx, inputs))
        return Setup((None if ctx.spec.shape is not None else shapes,))

    def lower(self, ctx: LowerContext, *arrays: Any) -> tuple[Any]:
        """Fills a dense batch ``[B, ...]``, or the blocks of a ragged buffer."""
        spec, out = ctx.spec, ctx.out[0]
        x = (
            jnp.full((ctx.B,), self.value, spec.dtype)
            if self.value is not None
            else convert(jnp, arrays[int(self.like)], spec.dtype)
        )
        # A dense result: axes of extent 1 are inserted into the value, behind the samples.
        if out is None:
            assert spec.shape is not None
            return (
                jnp.broadcast_to(
                    x.reshape(ctx.B, *(1,) * (spec.ndim + 1 - x.ndim), *x.shape[1:]), (ctx.B, *spec.shape)
                ),
            )
        # One number per sample fills all blocks of the sample, of ALIGNMENT elements each. Others are broadcast by
        # `_Expanded`.
        blocks = x.reshape(ctx.B)[samples_of_blocks(out.offsets, out.capacity)]
        return (Ragged(jnp.repeat(blocks, ALIGNMENT), out.offsets, out.shapes),)

    def bind(self, ctx: BuildContext, *inputs: Spec) -> Operator:
        """This operator, or an `_Expanded` if the kernel must broadcast the value in a program."""
        op = dataclasses.replace(self, args=self.args.measure(ctx, inputs, "shape"))
        if ctx.stage == "host" or self.value is not None:
            return op
        fill, (out,) = inputs[int(self.like)], op.infer(*inputs)
        # JAX's own operations can fill dense batches, and ragged ones with one number for each sample.
        if fill.shape is not None and (out.shape is not None or math.prod(fill.shape) == 1):
            return op
        return _Expanded(filled=op)


class _Expanded(NativeOperator):
    """Filling in a program, where shapes differ between samples and a native kernel broadcasts the value."""

    kernel = "expand"
    filled: Filled

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.filled.name

    def setup_reads(self, i: int) -> bool:
        return self.filled.setup_reads(i)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        return self.filled.infer(*inputs)

    def setup(self, ctx: HostContext, *inputs: Value) -> Setup:
        return self.filled.setup(ctx, *inputs)

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        """Converts the value to the type of the result, and broadcasts it by the kernel."""
        x, dtype = arrays[int(self.filled.like)], ctx.spec.dtype
        x = (
            dataclasses.replace(x, data=convert(jnp, x.data, dtype))
            if isinstance(x, Ragged)
            else convert(jnp, x, dtype)
        )
        y, status = _ffi.call("expand", ctx, x, ctx.spec, ctx.out[0])
        return (y,), status
