"""The family of operators that join samples of several inputs along an axis."""

from __future__ import annotations

import functools
import operator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ..._core.context import BuildContext, HostContext, LowerContext
from ..._core.errors import ArgumentError
from ..._core.operator import HostOperator, NativeOperator, Operator, ProgramOperator, Setup
from ..._core.ragged import Ragged
from ..._core.values import Spec, Value
from .._families import call_window, spec_of


class Join(HostOperator, ProgramOperator):
    """Joins inputs one after the other along an axis. Subclasses define the axis, which may be a new one."""

    axis: int
    axis_name: str | None

    def joined(self, first: Spec) -> tuple[int, bool]:
        """The axis of the output, and whether the inputs lack it."""
        raise NotImplementedError(self.name)

    def layout(self, inputs: tuple[Spec, ...], axis: int) -> str:
        """The output's layout."""
        raise NotImplementedError(self.name)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """The inputs' extents, which must agree. Those along the axis are added up; a new axis has one per input."""
        if not inputs:
            raise ArgumentError("needs at least one input")
        for i, x in enumerate(inputs):
            if (x.dtype, x.ndim) != (inputs[0].dtype, inputs[0].ndim):
                raise ArgumentError(
                    f"the inputs must have one type and number of dimensions: input 0 is {inputs[0].ndim}-D {inputs[0].dtype}, "
                    f"input {i} is {x.ndim}-D {x.dtype}{'; fn.cast converts them' if x.dtype != inputs[0].dtype else ''}"
                )
        axis, is_new = self.joined(inputs[0])
        extents: list[int | None] = []
        for d in range(inputs[0].ndim):
            distinct = {n for x in inputs if (n := x.extent(d)) is not None}
            if d == axis and not is_new:
                parts = [x.extent(d) for x in inputs]
                extents.append(None if None in parts else sum(n for n in parts if n is not None))
            elif len(distinct) > 1:
                raise ArgumentError(f"the inputs differ along axis {d}: extents {sorted(distinct)}")
            else:
                extents.append(distinct.pop() if distinct else None)
        if is_new:
            extents.insert(axis, len(inputs))
        return (spec_of(inputs[0].dtype, extents, self.layout(inputs, axis)),)

    def bind(self, ctx: BuildContext, *inputs: Spec) -> Operator:
        if ctx.stage == "host" or all(x.shape is not None for x in inputs):
            return self
        return _RaggedJoin(join=self)

    def shapes(self, ctx: HostContext, inputs: tuple[Value, ...]) -> tuple[int, list[np.ndarray]]:
        """The axis, and the inputs' shapes, ``i64[N, dimensions of the output]`` each. Raises ValueError if they don't
        match.
        """
        axis, is_new = self.joined(inputs[0].spec)
        shapes = [np.insert(x.shapes, axis, 1, axis=1) if is_new else x.shapes for x in inputs]
        for k, s in enumerate(shapes):
            is_different = np.delete(s != shapes[0], axis, axis=1).any(axis=1) & ctx.present
            if is_different.any():
                i = int(is_different.argmax())
                first_shape, shape = (tuple(v.shapes[i].tolist()) for v in (inputs[0], inputs[k]))
                raise ValueError(f"sample {i}: the inputs have the shapes {first_shape} and {shape}")
        return axis, shapes

    def run(self, ctx: HostContext, *inputs: Value) -> tuple[Any, ...]:
        """Joins sample by sample. A sample that is not present becomes zeros, or empty."""
        axis, shapes = self.shapes(ctx, inputs)
        out = shapes[0].copy()
        out[:, axis] = np.sum([s[:, axis] for s in shapes], axis=0)
        data, samples = ctx.output(out)
        for i in np.flatnonzero(ctx.present).tolist():
            parts = [x.sample(i).reshape(s[i]) for x, s in zip(inputs, shapes)]
            np.concatenate(parts, axis=axis, out=samples[i])
        return (data,)

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        axis, is_new = self.joined(ctx.inputs[0])
        return (jnp.stack(arrays, axis + 1) if is_new else jnp.concatenate(arrays, axis + 1),)


class _RaggedJoin(NativeOperator):
    """Joins inputs of which some are ragged, by the kernel `window`: each input is placed in a window as large as the
    output, with zeros around it. The bits of these windows are united.
    """

    kernel = "window"
    join: Join

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.join.name

    def setup_reads(self, i: int) -> bool:
        return False

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        return self.join.infer(*inputs)

    def setup(self, ctx: HostContext, *inputs: Value) -> Setup:
        """The place of each input in the output, and the output's shapes unless the spec has them."""
        axis, shapes = self.join.shapes(ctx, inputs)
        # The place where each input ends in the output, and the next one begins.
        ends = np.cumsum([s[:, axis] for s in shapes], axis=0)
        out = shapes[0].copy()
        out[:, axis] = ends[-1]
        first = np.zeros((ctx.N, len(inputs)), np.int64)
        first[:, 1:] = ends[:-1].T
        params = {"first": first.astype(np.int32), "extent": out.astype(np.int32)}
        return Setup((None if ctx.spec.shape is not None else out,), params)

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        """Places each input in a window as large as the output, and unites the windows by a bitwise or."""
        axis, is_new = self.join.joined(ctx.inputs[0])
        first, extent = ctx.params["first"], ctx.params["extent"]
        status = jnp.zeros((ctx.B,), jnp.int32)
        windows = []
        for i, x in enumerate(arrays):
            # A new axis has extent 1 in each input.
            if is_new and isinstance(x, Ragged):
                x = Ragged(x.data, x.offsets, jnp.insert(x.shapes, axis, 1, axis=1))
            elif is_new:
                x = jnp.expand_dims(x, axis + 1)
            # The window begins so far before the input that this stands at its place in the output.
            start = jnp.zeros_like(extent).at[:, axis].set(-first[:, i])
            window, code = call_window(
                ctx, x, start, jnp.ones_like(extent), extent, fill=jnp.zeros((ctx.B, 1), jnp.float32)
            )
            # A sample keeps the status of its first failed call; 0: none has failed.
            status = jnp.where(status == 0, code, status)
            windows.append(_bits(window.data if isinstance(window, Ragged) else window))
        dtype, union = ctx.spec.dtype, functools.reduce(operator.or_, windows)
        data = union if dtype.kind in "biu" else lax.bitcast_convert_type(union, dtype)
        out = ctx.out[0]
        return (data if out is None else Ragged(data, out.offsets, out.shapes),), status


def _bits(x: Any) -> Any:
    """The bits of floats as integers, so that the union keeps signs of zeros and payloads of NaN."""
    return x if x.dtype.kind in "biu" else lax.bitcast_convert_type(x, np.dtype(f"uint{8 * x.dtype.itemsize}"))
