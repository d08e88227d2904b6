"""Other samples of the same batch."""

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
from .._families import OUT_OF_BOUNDS, samples_of_blocks


class PermuteBatch(HostOperator, ProgramOperator):
    """Sample i is another one of its shard."""

    name = "permute_batch"

    @property
    def mixes(self) -> bool:
        return True

    def setup_reads(self, i: int) -> bool:
        return i > 0

    def infer(self, x: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        if not self.args.is_static("indices"):
            self.args.check_width("indices", 1, (x, *arguments))
        return (x,)

    def _indices(self, ctx: HostContext, values: tuple[Value, ...]) -> np.ndarray:
        """For each sample the number in its shard of the one that it becomes, ``i64[N]``; of those that aren't there their own."""
        own = np.tile(np.arange(ctx.B), ctx.S)
        count = np.repeat(ctx.present.reshape(ctx.S, ctx.B).sum(axis=1), ctx.B)
        indices = self.arguments(ctx, values).indices
        if self.args.is_static("indices"):
            given = indices.shape[1]
            for n in count[count != given]:
                raise ArgumentError(f"argument indices must have a number for each of the {n} samples of the batch, got {given}")
            indices = np.tile(np.append(indices[0], np.arange(given, ctx.B)), ctx.S)
        indices = indices.reshape(ctx.N)
        wrong = (indices < 0) | (indices >= count)
        for i in np.flatnonzero(wrong & ctx.present):
            ctx.fail(int(i), OUT_OF_BOUNDS, f"argument indices must be from 0 to {count[i] - 1}, got {indices[i]}")
        return np.where(wrong | ~ctx.present, own, indices)

    def run(self, ctx: HostContext, *values: Value) -> tuple[Any, ...]:
        x = values[0]
        place = self._indices(ctx, values) + np.repeat(np.arange(ctx.S) * ctx.B, ctx.B)
        if isinstance(x.data, np.ndarray):
            return (x.data[place],)
        return ([x.sample(i) for i in place.tolist()],)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        indices = self._indices(ctx, values)
        shapes = values[0].shapes[indices + np.repeat(np.arange(ctx.S) * ctx.B, ctx.B)]
        return Setup((shapes if ctx.spec.shape is None else None,), {"index": indices.astype(np.int32)})

    def lower(self, ctx: LowerContext, *arrays: Any) -> tuple[Any, ...]:
        x, out, index = arrays[0], ctx.out[0], ctx.params["index"]
        if out is None:
            return (jnp.take(x, index, axis=0),)
        # Samples begin at blocks: whole blocks move.
        sample = samples_of_blocks(out.offsets, out.capacity)
        block = jnp.arange(out.capacity // ALIGNMENT, dtype=np.int32) - out.offsets[sample] + x.offsets[index[sample]]
        data = jnp.take(x.data.reshape(-1, ALIGNMENT), block, axis=0, mode="clip").reshape(-1)
        return (Ragged(data, out.offsets, out.shapes),)


@operator_function(PermuteBatch)
def permute_batch(
    input: Input,
    /,
    *,
    indices: PerSample[OneOrMore[int]],
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Takes other samples of the batch: ``out[i] = x[indices[i]]``.

    A batch is that of one shard, as in DALI: samples don't move between devices.

    Args:
      input: any tensor.
      indices: numbers of samples, from 0 to below the samples of the batch, each any number of times: a list of one for each sample, or one
        number per sample.

    Returns:
      A tensor of the same type and layout.

    Raises:
      ArgumentError: the list is not as long as the batch.
      OperatorError: the batch has no such sample.

    Example:
      >>> other = fn.permute_batch(images, indices=fn.batch_permutation())
    """
    ...
