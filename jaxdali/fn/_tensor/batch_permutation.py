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
    """For each sample, the number of a sample of its shard."""

    name = "batch_permutation"
    random = True
    of_batch = True
    allow_repetitions: bool
    no_fixed_points: bool
    seed: int

    def infer(self) -> tuple[Spec, ...]:
        return (Spec(np.dtype(np.int32), 0, ()),)

    def run(self, ctx: HostContext) -> tuple[np.ndarray]:
        u = uniforms(ctx, self.seed, 1).reshape(ctx.N)
        out = np.zeros(ctx.N, np.int32)
        for shard in range(ctx.S):
            here = ctx.batch_of(shard)
            out[here] = self._numbers(u[here])
        return (out,)

    def _numbers(self, x: np.ndarray) -> np.ndarray:
        """The permutation of a batch whose samples have each drawn a number in [0, 1)."""
        own = np.arange(len(x))
        if self.no_fixed_points and len(x) == 1:
            return own
        if self.allow_repetitions:
            # Without fixed points: draw one of the others. From i on, their numbers are greater by 1.
            chosen = (x * (len(x) - self.no_fixed_points)).astype(np.int32)
            return chosen + (self.no_fixed_points & (chosen >= own))
        order = np.argsort(x, kind="stable")
        if self.no_fixed_points:  # each is followed by the next, which makes a single cycle, as in DALI
            own[order] = np.roll(order, -1)
            return own
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
