"""Preemphasis, which amplifies the high frequencies of signals."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from ... import types
from ..._core.context import HostContext, LowerContext
from ..._core.declaration import DType, OneOf
from ..._core.graph import DataNode
from ..._core.operator import ProgramOperator, Setup
from ..._core.operator_function import Hints, Input, PerSample, operator_function
from ..._core.ragged import ALIGNMENT, Ragged
from ..._core.values import Spec, Value
from .._families.conversion import convert
from .._families.ragged import fit, samples_of_blocks, shapes_of

_TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64")


class PreemphasisFilter(ProgramOperator):
    """``x[t] - coefficient * x[t - 1]``, over a signal's elements in the order in which they lie in memory."""

    name = "preemphasis_filter"
    border: str  # the element before the first: "zero", "clamp" or "reflect", see `lower`
    dtype: np.dtype

    def infer(self, x: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        if x.dtype.name not in _TYPES:
            raise TypeError(f"the input must be integers, float32 or float64, got {x.dtype}")
        return (dataclasses.replace(x, dtype=self.dtype),)

    def setup_reads(self, i: int) -> bool:
        return i > 0

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        coefficient = self.arguments(ctx, values).preemph_coeff.astype(np.float32)
        return Setup((shapes_of(values[0]),), {"coefficient": coefficient})

    def lower(self, ctx: LowerContext, x: Any, *arguments: None) -> Any:
        """Subtracts from each element a part of the previous one, in a dense batch or a ragged buffer. The element
        before the first is 0 ("zero"), the first ("clamp"), or the second, or 0 without a second ("reflect").
        """
        out, coefficient = ctx.out[0], ctx.params["coefficient"]
        if not isinstance(x, Ragged):
            rows, factors = x.reshape(x.shape[0], -1), coefficient[:, None]
            begin, second = rows[:, :1], rows[:, 1:2] if rows.shape[1] > 1 else jnp.zeros_like(rows[:, :1])
            result = self._filtered(rows, jax.lax.pad(rows, np.zeros((), rows.dtype), [(0, 0, 0), (1, -1, 0)]), factors)
            result = result.at[:, :1].set(self._filtered(begin, self._before(begin, second), factors))
            return (result.reshape(x.shape),)
        assert out is not None
        data = fit(x, out).data
        # A block is ALIGNMENT elements of one sample of the ragged buffer.
        factors = coefficient[samples_of_blocks(out.offsets, out.capacity)][:, None]
        # Moved by `pad` and not by `concatenate`, so that XLA makes one pass over the elements.
        blocks, previous = (
            y.reshape(-1, ALIGNMENT) for y in (data, jax.lax.pad(data, np.zeros((), data.dtype), [(1, -1, 0)]))
        )
        result = self._filtered(blocks, previous, factors).reshape(-1)
        # The place of each sample's first element. Empty samples have none, and begin where the next one does.
        size = jnp.prod(x.shapes, axis=1, dtype=jnp.int32)
        place = jnp.where(size > 0, x.offsets * ALIGNMENT, data.size)
        begin, second = data[place], jnp.where(size > 1, data[place + 1], jnp.zeros((), data.dtype))
        begin = self._filtered(begin, self._before(begin, second), coefficient)
        return (Ragged(result.at[place].set(begin, mode="drop"), out.offsets, out.shapes),)

    def _before(self, begin: Any, second: Any) -> Any:
        """The element before the first, of the first and the second one, which is 0 where there is none."""
        return {"zero": jnp.zeros_like(begin), "clamp": begin, "reflect": second}[self.border]

    def _filtered(self, x: Any, previous: Any, coefficient: Any) -> Any:
        """The difference in float32, in the type of the result."""
        x, previous = x.astype(jnp.float32), previous.astype(jnp.float32)
        return convert(jnp, x - coefficient * previous, self.dtype)


@operator_function(PreemphasisFilter)
def preemphasis_filter(
    input: Input,
    /,
    *,
    preemph_coeff: PerSample[float] = 0.97,
    border: Literal["clamp", "zero", "reflect"] = "clamp",
    dtype: Annotated[DType, OneOf(*map(np.dtype, _TYPES))] = types.FLOAT,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Makes the high frequencies of signals louder: ``x[t] - preemph_coeff * x[t - 1]``, computed in float32.

    Args:
      input: signals. One of several dimensions is taken as one row of all its elements, as in DALI.
      preemph_coeff: the factor of the element before. May be per sample.
      border: what is before the first element: "clamp" (the same element), "zero", or "reflect" (the second element).
      dtype: element type of the result. Integers are rounded and saturated.

    Returns:
      Signals of the input's shape and layout.

    Raises:
      TypeError: the input is bool or float16.

    Example:
      >>> audio = fn.preemphasis_filter(audio, preemph_coeff=0.97)
    """
    ...
