"""Random numbers of the host pass. They depend on nothing but (seed, operator, epoch, position, element)."""

from __future__ import annotations

import functools

import numpy as np

from ... import _cpu
from ..._core.context import HostContext

# The number, in place of an operator's, of all operators that have the argument `seed`. The pipeline numbers its random
# operators from 0, so no other operator has this one.
_OWN_SEED = 2**63


def stream(ctx: HostContext, seed: int) -> int:
    """The key of an operator's stream of random numbers: from its own seed if that is >= 0, else from the pipeline's
    seed and the operator's number.
    """
    if seed >= 0:
        return _cpu.stream_key(seed % 2**64, _OWN_SEED)
    return _cpu.stream_key(ctx.seed % 2**64, ctx.random_index)


def draw(
    ctx: HostContext, seed: int, sizes: np.ndarray | int, *, normal: bool = False, part: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Random numbers for every sample of a batch.

    Args:
      ctx: the context of the host pass, which has the samples' epochs and positions.
      seed: the operator's own seed; negative: none.
      sizes: ``i64[N]``, how many numbers each sample needs; or one number for all samples.
      normal: normally distributed (mean 0, deviation 1) instead of uniformly in [0, 1).
      part: the number of an independent stream, for operators that draw several times for a batch.

    Returns:
      (``f64[sum(sizes)]``, ``i64[N]``: the index of each sample's first number).
    """
    if isinstance(sizes, int):
        sizes, total = _equal_sizes(sizes, ctx.N), sizes * ctx.N
    else:
        sizes, total = np.ascontiguousarray(sizes, np.int64), int(sizes.sum())
    starts, out = np.empty(len(sizes), np.int64), np.empty(total)
    epoch, position = np.ascontiguousarray(ctx.epoch, np.int64), np.ascontiguousarray(ctx.position, np.int64)
    key = stream(ctx, seed)
    key = _cpu.stream_key(key, part) if part else key  # part 0 is the operator's stream itself
    _cpu.random_fill(
        key,
        _cpu.Distribution.NORMAL if normal else _cpu.Distribution.UNIT,
        epoch,
        position,
        sizes,
        starts,
        out,
        ctx.pool,
    )
    return out, starts


def uniforms(ctx: HostContext, seed: int, count: int) -> np.ndarray:
    """``f64[N, count]``, uniform in [0, 1)."""
    return draw(ctx, seed, count)[0].reshape(ctx.N, count)


@functools.lru_cache(maxsize=256)
def _equal_sizes(count: int, N: int) -> np.ndarray:
    return np.full(N, count, np.int64)
