"""random.choice: random elements of an array."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Unpack

import numpy as np

from ..._core.arguments import Arguments
from ..._core.building import add, is_node
from ..._core.context import HostContext
from ..._core.declaration import Range
from ..._core.errors import ArgumentError, InputTypeError
from ..._core.graph import DataNode
from ..._core.operator_function import Input, OneOrMore, PerSample, SeededHints, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Status
from .._families.drawing import draw
from .._tensor.constant import narrowed
from ._distribution import Random, has_shape


class Choice(Random):
    """Draws elements of the input `a`, or, with `count`, numbers from 0 to count - 1."""

    name: ClassVar[str] = "random.choice"

    count: int | None  # None: there is an input `a`
    dtype: np.dtype | None  # the type of the numbers, with `count`

    @property
    def _input_a(self) -> int:
        """The index of the input `a`, which stands behind `shape_like`."""
        return int(self.like)

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        """The shape of a sample, then that of an element. An element is a row of `a`, or a number."""
        ndim, shape = self._static_shape(specs)
        if self.dtype is not None:
            return (Spec(self.dtype, ndim, shape),)
        a = specs[self._input_a]
        if a.ndim == 0:
            if a.dtype.kind not in "iu":
                raise ArgumentError(f"{self.name}: a scalar `a` must be an integer, got {a.dtype}")
            return (Spec(a.dtype, ndim, shape),)
        row = a.shape[1:] if a.shape is not None else (() if a.ndim == 1 else None)
        # A sample of one element loses the first axis of `a`, and a list of elements keeps it.
        layout = a.layout[1:] if ndim == 0 else a.layout if ndim == 1 else ""
        return (
            Spec(a.dtype, ndim + a.ndim - 1, shape + row if shape is not None and row is not None else None, layout),
        )

    def run(self, ctx: HostContext, *values: Value):
        """Draws indices for all samples at once, and takes the elements."""
        shapes = self._shapes(ctx, values)
        sizes = shapes.prod(axis=1, dtype=np.int64)
        u, starts = draw(ctx, self.seed, sizes)
        spec = ctx.spec
        a = values[self._input_a] if self.count is None else None
        # The number of elements that each sample chooses from: `count`, the rows of `a`, or the number `a`.
        if a is None:
            counts = np.full(ctx.N, self.count)
        elif a.spec.ndim:
            counts = a.shapes[a.indices(ctx.present), 0]
        else:
            counts = a.dense(present=ctx.present).astype(np.int64)
        if (counts < 1).any():
            raise ArgumentError(
                f"{self.name}: there must be at least one element to choose from, got {counts[counts < 1][0]}"
            )
        index = self._indices(ctx, values, u, sizes, counts)
        if a is None or a.spec.ndim == 0:
            return self._output(ctx, index.astype(spec.dtype), starts, shapes, spec.shape)
        if a.spec.shape is not None and spec.shape is not None:
            # Arrays of one shape: one gather for the whole batch.
            arrays = a.dense(present=ctx.present)
            return (arrays[np.repeat(np.arange(ctx.N), sizes), index].reshape(ctx.N, *spec.shape),)
        rows = [a.sample(i) for i in a.indices(ctx.present)]
        samples = [
            row[index[s : s + n]].reshape((*shape, *row.shape[1:]))
            for row, shape, s, n in zip(rows, shapes, starts, sizes)
        ]
        return (samples if spec.shape is None else np.stack(samples),)

    def _indices(self, ctx: HostContext, values, u: np.ndarray, sizes: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """The index of the element for each number of `u`: `sizes` numbers, and `counts` elements, by sample."""
        if "p" not in self.args:
            # Limited, because the product may be rounded up to `counts`.
            return np.minimum(u * np.repeat(counts, sizes), np.repeat(counts - 1, sizes)).astype(np.int64)
        indices, start = [], 0
        for i, (p, count, n) in enumerate(
            zip(self.arguments(ctx, values).ragged("p"), counts.tolist(), sizes.tolist(), strict=True)
        ):
            if len(p) != count or not _is_distribution(p):
                ctx.fail(
                    i,
                    Status.ARGUMENT,
                    f"argument p must be {count} probabilities 0 ... 1 whose sum is 1, got {p.tolist()}",
                )
                p = np.full(count, 1 / count)
            # A number in [0, 1) chooses the element whose interval of the cumulative probabilities it is in.
            edges = np.cumsum(p)
            indices.append(np.searchsorted(edges / edges[-1], u[start : start + n], side="right"))
            start += n
        return np.concatenate(indices) if indices else np.zeros(0, np.int64)


@operator_function("random.choice")
def choice(
    a: Input,
    shape_like: Input | None = None,
    /,
    *,
    p: Annotated[PerSample[OneOrMore[float]] | None, Range(0, 1)] = None,
    shape: Annotated[PerSample[OneOrMore[int]] | None, Range(0)] = None,
    seed: int = -1,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """Draws random elements of an array.

    Args:
      a: the elements to choose from, along the first axis of a list, array or DataNode; an integer n stands for 0 ...
        n-1.
      shape_like: a value; each sample of the result has the shape of its sample.
      p: probability of each element; the sum must be 1. Default: all are equally likely. May be per sample.
      shape: shape of a sample, an integer or a list. Default: a sample is one element. May be per sample.
      seed: fixes the random numbers regardless of the pipeline's seed and of the operator's place in the pipeline; a
        negative seed counts as not given.

    Returns:
      The elements, of the type of `a` (int32 if `a` is an integer).

    Raises:
      ValueError: there is nothing to choose from, or p is not a distribution over the elements of `a`.
    """
    count = dtype = None
    p = (p,) if isinstance(p, (int, float)) else p  # the probability of the only element
    if isinstance(p, tuple) and not _is_distribution(np.array(p)):
        raise ArgumentError(f"argument p must be probabilities 0 ... 1 whose sum is 1, got {p}")
    if not is_node(a):
        elements = narrowed(a)
        if elements.ndim == 0:
            if elements.dtype.kind not in "iu":
                raise InputTypeError(f"`a` must be an integer, a list or a DataNode, got {elements.item()!r}")
            count, dtype = int(elements), elements.dtype
        available = len(elements) if count is None else count
        if available < 1:
            raise ArgumentError(f"there must be at least one element to choose from, got {available}")
        if isinstance(p, tuple) and len(p) != available:
            raise ArgumentError(
                f"argument p must have a probability for each of the {available} elements, got {len(p)}"
            )
    args, nodes = Arguments.of({"p": p, "shape": shape}, is_node)
    op = Choice(like=has_shape(args, shape_like), seed=seed, args=args, count=count, dtype=dtype)
    inputs = (() if shape_like is None else (shape_like,)) + (() if count is not None else (a,))
    return add(op, *inputs, *nodes, device=device, name=name)


def _is_distribution(p: np.ndarray) -> bool:
    """Whether `p` are probabilities, whose sum is 1 but for rounding."""
    return bool(((p >= 0) & (p <= 1)).all() and abs(p.sum() - 1) <= 1e-4)
