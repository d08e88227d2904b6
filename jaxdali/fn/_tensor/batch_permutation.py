"""Random orders of the samples of a batch."""

from __future__ import annotations

from typing import Literal, Unpack

import numpy as np

from ..._core.context import HostContext
from ..._core.graph import DataNode
from ..._core.operator import HostOperator
from ..._core.operator_function import SeededHints, operator_function
from ..._core.values import Spec
from ..random._draw import uniforms


class BatchPermutation(HostOperator):
    """For each sample the number of a sample of its shard."""

    name = "batch_permutation"
    random = True
    allow_repetitions: bool
    no_fixed_points: bool
    seed: int

    def infer(self) -> tuple[Spec, ...]:
        return (Spec(np.dtype(np.int32), 0, ()),)

    def run(self, ctx: HostContext) -> tuple[np.ndarray]:
        u = uniforms(ctx, self.seed, 1).reshape(ctx.S, ctx.B)
        out = np.tile(np.arange(ctx.B, dtype=np.int32), (ctx.S, 1))
        for row, x, count in zip(out, u, ctx.present.reshape(ctx.S, ctx.B).sum(axis=1).tolist()):
            if not count or (self.no_fixed_points and count == 1):
                continue
            if self.allow_repetitions:
                # Without fixed points: one of the others, of which those from i on have numbers greater by 1.
                chosen = (x[:count] * (count - self.no_fixed_points)).astype(np.int32)
                row[:count] = chosen + (self.no_fixed_points & (chosen >= np.arange(count)))
            elif self.no_fixed_points:
                cycle = np.argsort(x[:count], kind="stable")  # each is followed by the next: as in DALI, a single cycle
                row[cycle] = np.roll(cycle, -1)
            else:
                row[:count] = np.argsort(x[:count], kind="stable")
        return (out.reshape(ctx.N),)


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

    A batch is that of one shard. Differs from DALI: a seed gives other numbers.

    Args:
      allow_repetitions: each sample draws by itself. Default: every number occurs once.
      no_fixed_points: no sample gets its own number, unless it is alone; without repetitions, the permutation is a single cycle.
      seed: fixes the numbers, whatever the pipeline's seed and the operator's place; negative: not given.
      device: "cpu" or None.

    Returns:
      int32 scalars.

    Example:
      >>> mixed = images * 0.5 + fn.permute_batch(images, indices=fn.batch_permutation(no_fixed_points=True)) * 0.5
    """
    ...
