"""permute_batch: the samples of a batch in another order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Unpack

import jax.numpy as jnp
import numpy as np

from ..._core.context import HostContext, LowerContext
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator, Names, ProgramOperator, Setup
from ..._core.operator_function import Hints, Input, OneOrMore, PerSample, operator_function
from ..._core.ragged import ALIGNMENT, Ragged
from ..._core.texts import Texts
from ..._core.values import Spec, Value
from ..._cpu import Status
from .._families import samples_of_blocks


class PermuteBatch(HostOperator, ProgramOperator):
    """Replaces each sample by another sample of its shard."""

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

    def origins(
        self, names: Sequence[Names], data: Callable[[int], Value | None], present: Callable[[], Sequence[np.ndarray]]
    ) -> Names:
        """The origins of the samples that take the places; None if they or the indices are not known."""
        is_static, input_names = self.args.is_static("indices"), names[0]
        indices = None if is_static else data(1)
        if input_names is None or (indices is None and not is_static):
            return None
        places: list[int | None] = [None] * len(input_names)  # of the samples that take the places
        # `indices` are numbers of samples of the shard, without the missing ones: one list for the batch, or one number
        # for each sample.
        for samples in present():
            sources = (
                np.atleast_1d(self.args.get("indices"))
                if indices is None
                else [np.ravel(indices.sample(i))[0] for i in samples]
            )
            for i, k in zip(samples.tolist(), sources):
                places[i] = int(samples[int(k)])
        return Texts.of([input_names], lambda i: "" if (place := places[i]) is None else input_names[place])

    def _places(self, ctx: HostContext, values: tuple[Value, ...]) -> np.ndarray:
        """The sample that replaces each sample, ``i64[N]``, counted over all shards. Absent samples stay."""
        places = np.arange(ctx.N)
        arguments = self.arguments(ctx, values)
        # The same indices for all samples are a list for the batch; otherwise each sample has one number.
        indices = arguments.indices if self.args.is_static("indices") else arguments.vector("indices", 1)
        assert indices is not None
        for shard in range(ctx.S):
            samples = ctx.batch_of(shard)
            if self.args.is_static("indices"):
                sources = indices[0]
                if len(samples) not in (0, len(sources)):
                    raise ArgumentError(
                        f"argument indices must have a number for each of the {len(samples)} samples of the batch, got {len(sources)}"
                    )
                sources = sources[: len(samples)]
            else:
                sources = indices[samples, 0]
            is_wrong = (sources < 0) | (sources >= len(samples))
            for k in np.flatnonzero(is_wrong):
                ctx.fail(
                    int(samples[k]),
                    Status.OUT_OF_RANGE,
                    f"argument indices must be from 0 to {len(samples) - 1}, got {sources[k]}",
                )
            places[samples] = samples[np.where(is_wrong, 0, sources)]
        return places

    def run(self, ctx: HostContext, *values: Value) -> tuple[Any, ...]:
        x, places = values[0], self._places(ctx, values)
        if isinstance(x.data, np.ndarray):
            return (x.data[places],)
        return ([x.sample(i) for i in places.tolist()],)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        places = self._places(ctx, values)
        shapes = None if ctx.spec.shape is not None else values[0].shapes[places]
        # `lower` works on one shard: there, the samples count from 0 to B - 1.
        return Setup((shapes,), {"index": (places % ctx.B).astype(np.int32)})

    def lower(self, ctx: LowerContext, *arrays: Any) -> tuple[Any, ...]:
        """Takes the samples of a dense batch, or the blocks of a ragged one."""
        x, out, index = arrays[0], ctx.out[0], ctx.params["index"]
        if out is None:
            return (jnp.take(x, index, axis=0),)
        # Samples begin at block boundaries, so whole blocks are moved.
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

    The batch is that of one shard, as in DALI: samples don't move between devices. In a branch of an `if`, it consists
    of the samples that take the branch.

    Args:
      input: any tensor.
      indices: for each sample, the number of a sample of the batch, from 0. Numbers may repeat. Either a list with a
        number for each sample, or a DataNode with one number per sample.

    Returns:
      A tensor of the same type and layout.

    Raises:
      ArgumentError: the list is not as long as the batch.
      OperatorError: the batch has no such sample.

    Example:
      >>> other = fn.permute_batch(images, indices=fn.batch_permutation())
    """
    ...
