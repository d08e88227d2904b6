"""The choice of one augmentation for each sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._pipeline.conditionals import either
from ._augmentation import Augmentation


def select(ops: Sequence[Augmentation], selected_op_idx: DataNode, *op_args: Any, **op_kwargs: Any) -> DataNode:
    """Applies to each sample the augmentation that was chosen for it.

    Args:
      ops: the augmentations.
      selected_op_idx: for each sample, the number of an augmentation.
      *op_args: positional arguments of the augmentations.
      **op_kwargs: arguments of the augmentations by name.
    """
    if not ops:
        raise ArgumentError("select: there is no augmentation to choose from")
    return _select_from(range(len(ops)), selected_op_idx, lambda i: ops[i](*op_args, **op_kwargs))


def _select_from(indices: range, selected: DataNode, call: Callable[[int], DataNode]) -> DataNode:
    """Selects among some of the augmentations by bisection, so that log2 of their number of `if`s are nested."""
    if len(indices) == 1:
        return call(indices[0])
    low, high = indices[: len(indices) // 2], indices[len(indices) // 2 :]
    return either(
        selected < high[0], lambda: _select_from(low, selected, call), lambda: _select_from(high, selected, call)
    )
