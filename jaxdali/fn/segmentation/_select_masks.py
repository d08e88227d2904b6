"""segmentation.select_masks: some of the masks that polygons describe."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import numpy as np

from ..._core.context import HostContext
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Status


class SelectMasks(HostOperator):
    """The operator: rows of polygons, and their vertices one after the other."""

    name = "segmentation.select_masks"
    num_outputs = 2  # pyright: ignore[reportAssignmentType]
    reindex_masks: bool

    def infer(self, ids: Spec, polygons: Spec, vertices: Spec) -> tuple[Spec, ...]:
        for what, x, ndim in (("mask_ids", ids, 1), ("polygons", polygons, 2)):
            if x.dtype != np.int32 or x.ndim != ndim:
                raise ArgumentError(f"{what} must be {ndim}-D int32, got {x.ndim}-D {x.dtype}")
        if polygons.extent(1) not in (3, None):
            raise ArgumentError(
                f"polygons must have three columns, mask, first and last vertex, got {polygons.extent(1)}"
            )
        if vertices.ndim != 2:
            raise ArgumentError(f"vertices must be 2-D, got {vertices.ndim}-D")
        return Spec(polygons.dtype, 2, None, dims=(None, 3)), Spec(
            vertices.dtype, 2, None, dims=(None, vertices.extent(1))
        )

    def run(self, ctx: HostContext, ids: Value, polygons: Value, vertices: Value) -> tuple[Any, ...]:
        selected, points = [], []
        for i in range(ctx.N):
            mine, p, v = (x.sample(i) for x in (ids, polygons, vertices))
            reason = self._wrong(mine, p, len(v)) if ctx.present[i] else ""
            if reason:
                ctx.fail(i, Status.OUT_OF_RANGE, reason)
            if reason or not ctx.present[i]:
                mine = mine[:0]
            # The last polygon of a mask is taken, as in DALI.
            last = {mask: row for row, mask in enumerate(p[:, 0].tolist())}
            rows = p[[last[mask] for mask in mine.tolist()]].reshape(-1, 3)
            ends = np.cumsum(rows[:, 2] - rows[:, 1])
            first = np.concatenate([[0], ends[:-1]])[: len(rows)]
            named = np.arange(len(rows)) if self.reindex_masks else rows[:, 0]
            selected.append(np.stack([named, first, ends], axis=1).astype(np.int32))
            points.append(np.concatenate([v[a:b] for _, a, b in rows.tolist()] or [v[:0]]))
        return selected, points

    @staticmethod
    def _wrong(ids: np.ndarray, polygons: np.ndarray, vertices: int) -> str:
        """What is wrong with a sample; "" if nothing is."""
        if polygons.shape[1] != 3:
            return f"polygons must have three columns, mask, first and last vertex, got {polygons.shape[1]}"
        if len(np.unique(ids)) < len(ids):
            return f"a mask occurs twice in mask_ids, {ids.tolist()}"
        if missing := sorted(set(ids.tolist()) - set(polygons[:, 0].tolist())):
            return f"no polygon belongs to mask {missing[0]}"
        for mask, first, last in polygons.tolist():
            if mask in ids and not 0 <= first <= last <= vertices:
                return f"a polygon of mask {mask} has the vertices {first} to {last}, of {vertices}"
        return ""


@operator_function(SelectMasks)
def select_masks(
    mask_ids: Input,
    polygons: Input,
    vertices: Input,
    /,
    *,
    reindex_masks: bool = False,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> list[DataNode]:
    """Selects the polygons of some masks, in the order in which the masks are given.

    If a mask has several polygons, the last one is taken, as in DALI.

    Args:
      mask_ids: the masks, 1-D int32, each only once.
      polygons: ``[n, 3]``, int32: mask, first vertex, and the one after the last.
      vertices: ``[m, coordinates]``, of any type.
      reindex_masks: whether masks are renumbered from 0 in the result, in the order of `mask_ids`.

    Returns:
      (polygons, vertices) of the given masks only.

    Raises:
      ArgumentError: an input has another type or shape.
      OperatorError: a mask is missing or given twice, or a polygon refers to missing vertices.

    Example:
      >>> polygons, vertices = fn.segmentation.select_masks(ids, polygons, vertices)
    """
    ...
