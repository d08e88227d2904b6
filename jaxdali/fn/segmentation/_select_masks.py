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
    """Selects the polygons of some masks, and their vertices, one polygon's after the other's."""

    name = "segmentation.select_masks"
    num_outputs = 2  # pyright: ignore[reportAssignmentType]
    reindex_masks: bool  # whether the selected masks are numbered from 0 on

    def infer(self, ids: Spec, polygons: Spec, vertices: Spec) -> tuple[Spec, ...]:
        """The polygons and the vertices, whose numbers vary."""
        for name, x, ndim in (("mask_ids", ids, 1), ("polygons", polygons, 2)):
            if x.dtype != np.int32 or x.ndim != ndim:
                raise ArgumentError(f"{name} must be {ndim}-D int32, got {x.ndim}-D {x.dtype}")
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
        """Takes the polygon of each mask, and copies its vertices. A sample that failed or is not present has none."""
        selected, points = [], []
        for i in range(ctx.N):
            mask_ids, p, v = (x.sample(i) for x in (ids, polygons, vertices))
            reason = self._problem(mask_ids, p, len(v)) if ctx.present[i] else ""
            if reason:
                ctx.fail(i, Status.OUT_OF_RANGE, reason)
            if reason or not ctx.present[i]:  # its polygons may have any number of columns
                mask_ids, p = mask_ids[:0], p[:0].reshape(0, 3)
            # A polygon is (mask, first vertex, vertex behind the last). The last one of a mask is taken, as in DALI.
            last_row = {mask: row for row, mask in enumerate(p[:, 0].tolist())}
            rows = p[[last_row[mask] for mask in mask_ids.tolist()]].reshape(-1, 3)
            # The vertices are packed anew, so that each polygon begins where the one before ends.
            ends = np.cumsum(rows[:, 2] - rows[:, 1])
            first = np.concatenate([[0], ends[:-1]])[: len(rows)]
            masks = np.arange(len(rows)) if self.reindex_masks else rows[:, 0]
            selected.append(np.stack([masks, first, ends], axis=1).astype(np.int32))
            points.append(np.concatenate([v[a:b] for _, a, b in rows.tolist()] or [v[:0]]))
        return selected, points

    @staticmethod
    def _problem(ids: np.ndarray, polygons: np.ndarray, vertices: int) -> str:
        """The reason why a sample is refused; "" if it is valid."""
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
