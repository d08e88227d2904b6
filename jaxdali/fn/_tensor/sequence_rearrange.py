"""sequence_rearrange: the frames of sequences in another order."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import jax.numpy as jnp
import numpy as np

from ..._core.context import HostContext, LowerContext
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator, ProgramOperator, Setup
from ..._core.operator_function import Hints, Input, OneOrMore, PerSample, operator_function
from ..._core.ragged import ALIGNMENT, Ragged
from ..._core.values import Spec, Value
from ..._cpu import Status
from .._families import samples_of_blocks, spec_of


class SequenceRearrange(HostOperator, ProgramOperator):
    """Takes frames along the first axis. In a program, each element of the result computes its place in the input."""

    name = "sequence_rearrange"

    def setup_reads(self, i: int) -> bool:
        return i > 0

    def infer(self, x: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """The input with as many frames as `new_order` has numbers; None: their number varies."""
        if not x.ndim or x.layout[:1] not in ("", "F"):
            raise ArgumentError(
                f"the input must be sequences, whose first axis is F, got {x.ndim}-D data of layout {x.layout!r}"
            )
        length = self.args.width("new_order", (x, *arguments))
        if length == 0:
            raise ArgumentError("new_order is empty, so the sequences would be empty")
        return (spec_of(x.dtype, (length, *map(x.extent, range(1, x.ndim))), x.layout),)

    def _orders(self, ctx: HostContext, *values: Value) -> list[np.ndarray]:
        """The order of each sample, ``i64[length of its result]``. A number that is out of range is replaced by 0."""
        orders = self.arguments(ctx, values).ragged("new_order")
        for i, length in enumerate(values[0].shapes[:, 0].tolist()):
            is_wrong = (orders[i] < 0) | (orders[i] >= length)
            if ctx.present[i] and (is_wrong.any() or not len(is_wrong)):
                actual = f"got {orders[i][is_wrong][0]:g}" if len(is_wrong) else "got none"
                ctx.fail(i, Status.OUT_OF_RANGE, f"argument new_order must be numbers from 0 to {length - 1}, {actual}")
            orders[i] = np.where(is_wrong, 0, orders[i]).astype(np.int64)
        return orders

    def run(self, ctx: HostContext, *values: Value) -> tuple[Any, ...]:
        """Takes the frames of each sample in its order."""
        x, orders = values[0], self._orders(ctx, *values)
        samples = [
            x.sample(i).take(order, axis=0, mode="clip") if len(x.sample(i)) else x.sample(i)
            for i, order in enumerate(orders)
        ]
        return (np.stack(samples) if ctx.spec.shape is not None else samples,)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        """The orders as rows of one array, padded with zeros, and the shapes of the results."""
        x, orders = values[0], self._orders(ctx, *values)
        longest = max(map(len, orders))
        # Lengths that vary are padded to a power of two, so that few programs are compiled.
        width = longest if ctx.spec.extent(0) is not None else 1 << (longest - 1).bit_length()
        order = np.zeros((ctx.N, width), np.int32)
        for row, o in zip(order, orders, strict=True):
            row[: len(o)] = o
        shapes = np.concatenate([np.array([[len(o)] for o in orders]), x.shapes[:, 1:]], axis=1)
        return Setup((shapes if ctx.spec.shape is None else None,), {"order": order})

    def lower(self, ctx: LowerContext, *arrays: Any) -> tuple[Any, ...]:
        """Takes whole frames of a dense batch, or computes for each element of the result its place in the input."""
        x, out, order = arrays[0], ctx.out[0], ctx.params["order"]
        if out is None and not isinstance(x, Ragged):
            return (jnp.take_along_axis(x, order.reshape(*order.shape, *(1,) * (x.ndim - 2)), axis=1),)
        # `first`: the place of each sample's first element in `data`.
        if isinstance(x, Ragged):
            data, first = x.data, x.offsets * ALIGNMENT
            size = jnp.prod(x.shapes[:, 1:], axis=1, dtype=np.int32)  # elements of a frame
        else:
            data, first = x.reshape(-1), jnp.arange(ctx.B, dtype=np.int32) * int(np.prod(x.shape[1:]))
            size = jnp.full((ctx.B,), int(np.prod(x.shape[2:])), np.int32)
        size = jnp.maximum(size, 1)
        if out is None:
            assert ctx.spec.shape is not None
            # For each element of the result: its sample, and its index there.
            sample = jnp.arange(ctx.B, dtype=np.int32)[:, None]
            local = jnp.arange(int(np.prod(ctx.spec.shape)), dtype=np.int32)[None]
        else:
            sample = samples_of_blocks(out.offsets, out.capacity)[:, None]
            local = jnp.arange(out.capacity, dtype=np.int32).reshape(-1, ALIGNMENT) - out.offsets[sample] * ALIGNMENT
        # Element `local` of the result is in frame `local // size`, which is frame `order[...]` of the input. Unused
        # elements at the end of the buffer read some frame.
        frame = jnp.minimum(local // size[sample], order.shape[1] - 1)
        y = jnp.take(data, first[sample] + order[sample, frame] * size[sample] + local % size[sample], mode="clip")
        return (
            y.reshape(ctx.B, *(ctx.spec.shape or ()))
            if out is None
            else Ragged(y.reshape(-1), out.offsets, out.shapes),
        )


@operator_function(SequenceRearrange)
def sequence_rearrange(
    input: Input,
    /,
    *,
    new_order: PerSample[OneOrMore[int]],
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Takes elements of sequences in another order: ``out[i] = x[new_order[i]]``.

    Differs from DALI: the elements may be scalars.

    Args:
      input: sequences such as FHWC, or any tensors without a layout.
      new_order: indices along the first axis, from 0, which may repeat. May be per sample, with different lengths.

    Returns:
      Sequences as long as `new_order`, of the same type and layout.

    Raises:
      ArgumentError: the first axis is not F, or `new_order` is empty.
      OperatorError: a sequence has no such element.

    Example:
      >>> backwards = fn.sequence_rearrange(video, new_order=[3, 2, 1, 0])
    """
    ...
