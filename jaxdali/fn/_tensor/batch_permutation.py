"""batch_permutation: random orders of the samples of a batch."""

from __future__ import annotations

from typing import Literal, Unpack

import numpy as np

from ..._core.context import HostContext
from ..._core.graph import DataNode
from ..._core.operator import HostOperator
from ..._core.operator_function import SeededHints, operator_function
from ..._core.values import Spec
from .._families.drawing import uniforms


class BatchPermutation(HostOperator):
    """A permutation of the samples of each shard."""

    name = "batch_permutation"
    random = True
    of_batch = True
    allow_repetitions: bool  # whether each sample draws a number on its own
    no_fixed_points: bool  # whether no sample gets its own number
    seed: int

    def infer(self) -> tuple[Spec, ...]:
        return (Spec(np.dtype(np.int32), 0, ()),)

    def run(self, ctx: HostContext) -> tuple[np.ndarray]:
        """Draws a permutation of the present samples of each shard. Absent samples get 0."""
        u = uniforms(ctx, self.seed, 1).reshape(ctx.N)
        out = np.zeros(ctx.N, np.int32)
        for shard in range(ctx.S):
            samples = ctx.batch_of(shard)  # indices, among all N, of the shard's present samples
            out[samples] = self._numbers(u[samples])
        return (out,)

    def _numbers(self, x: np.ndarray) -> np.ndarray:
        """The permutation of the samples of one shard, by a random number in [0, 1) of each."""
        numbers = np.arange(len(x))
        # A single sample has no other to take the place of.
        if self.no_fixed_points and len(x) == 1:
            return numbers
        if self.allow_repetitions:
            # Without fixed points, sample i draws one of the n - 1 others, and skips its own number.
            chosen = (x * (len(x) - self.no_fixed_points)).astype(np.int32)
            return chosen + (self.no_fixed_points & (chosen >= numbers))
        order = np.argsort(x, kind="stable")
        if self.no_fixed_points:  # In random order, each sample gets the next one: a single cycle, as in DALI.
            numbers[order] = np.roll(order, -1)
            return numbers
        return order


@operator_function(BatchPermutation)
def batch_permutation(
    *,
    allow_repetitions: bool = False,
    no_fixed_points: bool = False,
    seed: int = -1,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """Draws for each sample the number of a sample of the batch, for `permute_batch`.

    The batch is that of one shard. Differs from DALI: the same seed gives other numbers.

    Args:
      allow_repetitions: whether each sample draws independently. By default, every number occurs once.
      no_fixed_points: whether no sample gets its own number (unless it is alone). Without repetitions, the permutation
        is then a single cycle.
      seed: fixes the random numbers regardless of the pipeline's seed and of the operator's place in the pipeline; a
        negative seed counts as not given.

    Returns:
      int32 scalars.

    Example:
      >>> mixed = images * 0.5 + fn.permute_batch(images, indices=fn.batch_permutation(no_fixed_points=True)) * 0.5
    """
    ...
