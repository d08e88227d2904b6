"""box_encoder: bounding boxes as offsets from anchors, for single-shot detectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Unpack

import numpy as np

from ..._core.context import HostContext
from ..._core.declaration import Len, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Status


class BoxEncoder(HostOperator):
    """Assigns a box and its label to each anchor."""

    name = "box_encoder"
    num_outputs = 2  # pyright: ignore[reportAssignmentType]
    anchors: tuple[float, ...]  # four numbers for each anchor: left, top, right, bottom
    criteria: float  # the overlap above which a box matches an anchor
    offset: bool  # whether results are normalised offsets from the anchors
    scale: float  # multiplies the coordinates before offsets are computed
    means: tuple[float, ...]  # subtracted from the four offsets
    stds: tuple[float, ...]  # divide the four offsets then

    def __post_init__(self):
        if not self.anchors or len(self.anchors) % 4:
            raise ArgumentError(f"argument anchors must have 4 numbers for each anchor, got {len(self.anchors)}")

    def infer(self, boxes: Spec, labels: Spec) -> tuple[Spec, ...]:
        """A box, as four numbers, and a class for each anchor."""
        if boxes.dtype != np.float32 or boxes.ndim != 2 or boxes.extent(1) not in (4, None):
            raise ArgumentError(f"the boxes must be float32 [n, 4], got {boxes.ndim}-D {boxes.dtype}")
        if (
            labels.dtype != np.int32
            or labels.ndim not in (1, 2)
            or (labels.ndim == 2 and labels.extent(1) not in (1, None))
        ):
            raise ArgumentError(f"the labels must be int32 [n] or [n, 1], got {labels.ndim}-D {labels.dtype}")
        count = len(self.anchors) // 4
        return Spec(np.dtype(np.float32), 2, (count, 4)), Spec(np.dtype(np.int32), 1, (count,))

    def run(self, ctx: HostContext, boxes: Value, labels: Value) -> tuple[Any, ...]:
        """Encodes the box that each anchor matches. The others keep the class 0, and their own box or the offset 0."""
        anchors = np.asarray(self.anchors, np.float32).reshape(-1, 4)
        centers = _centers(anchors)
        encoded = np.tile(np.zeros_like(centers) if self.offset else centers, (ctx.N, 1, 1))
        classes = np.zeros((ctx.N, len(anchors)), np.int32)
        for i in np.flatnonzero(ctx.present).tolist():
            b, label = boxes.sample(i), labels.sample(i).reshape(-1)
            if b.shape[1] != 4 or len(b) != len(label):
                ctx.fail(
                    i,
                    Status.INPUT,
                    f"each box must have 4 coordinates and a label, got boxes {b.shape} and {len(label)} labels",
                )
            elif len(b):
                anchor, box = self._matches(b, anchors)
                encoded[i, anchor] = self._offsets(b[box], anchors[anchor]) if self.offset else _centers(b[box])
                classes[i, anchor] = label[box]
        return encoded, classes

    def _matches(self, boxes: np.ndarray, anchors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The anchors that match a box, and the box of each. Among equal matches the last one wins, as in DALI."""
        # Intersection over union of each box with each anchor. `low` and `high` are the corners of the intersection.
        low, high = (
            edge(boxes[:, None, k : k + 2], anchors[:, k : k + 2]) for edge, k in ((np.maximum, 0), (np.minimum, 2))
        )
        intersection = np.clip(high - low, 0, None).prod(axis=2)
        box_area, anchor_area = ((x[:, 2:] - x[:, :2]).prod(axis=1) for x in (boxes, anchors))
        union = box_area[:, None] + anchor_area - intersection
        overlap = np.divide(intersection, union, out=np.zeros_like(union), where=union > 0)
        # The last of the largest: argmax finds the first one in reversed order.
        box = len(boxes) - 1 - overlap[::-1].argmax(axis=0)
        is_matched = overlap.max(axis=0) > np.float32(self.criteria)
        # A box gets its best anchor, however little they overlap.
        best = len(anchors) - 1 - overlap[:, ::-1].argmax(axis=1)
        for b, a in enumerate(best.tolist()):
            box[a] = b
        is_matched[best] = True
        anchor = np.flatnonzero(is_matched)
        return anchor, box[anchor]

    def _offsets(self, boxes: np.ndarray, anchors: np.ndarray) -> np.ndarray:
        """Boxes relative to anchors, as SSD encodes them: offsets of the centres in units of the anchor's extents,
        logarithms of the ratios of extents, then normalised.
        """
        b, a = _centers(boxes * np.float32(self.scale)), _centers(anchors * np.float32(self.scale))
        with np.errstate(divide="ignore", invalid="ignore"):
            raw = np.concatenate([(b[:, :2] - a[:, :2]) / a[:, 2:], np.log(b[:, 2:] / a[:, 2:])], axis=1)
            return (raw - np.asarray(self.means, np.float32)) / np.asarray(self.stds, np.float32)


def _centers(boxes: np.ndarray) -> np.ndarray:
    """(left, top, right, bottom) as (x and y of the centre, width, height)."""
    return np.concatenate([(boxes[:, :2] + boxes[:, 2:]) * np.float32(0.5), boxes[:, 2:] - boxes[:, :2]], axis=1)


@operator_function(BoxEncoder)
def box_encoder(
    input_0: Input,
    input_1: Input,
    /,
    *,
    anchors: Sequence[float],
    criteria: Annotated[float, Range(0, 1)] = 0.5,
    offset: bool = False,
    scale: float = 1.0,
    means: Annotated[Sequence[float], Len(4)] = (0.0, 0.0, 0.0, 0.0),
    stds: Annotated[Sequence[float], Len(4)] = (1.0, 1.0, 1.0, 1.0),
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> list[DataNode]:
    """Assigns boxes to the anchors of a detector, as SSD (Liu et al., 2016) does.

    An anchor gets the box that it overlaps most, if the intersection is more than `criteria` of the union. In addition,
    each box gets the anchor that it overlaps most. The operator runs on the host: the inputs are host values.

    Args:
      input_0: boxes ``[n, 4]``, float32: left, top, right, bottom, in 0 ... 1.
      input_1: their labels, int32, ``[n]`` or ``[n, 1]``.
      anchors: four numbers for each anchor: left, top, right, bottom.
      criteria: the threshold described above, 0 ... 1.
      offset: whether the result is the offset of each box from its anchor: ``((x - ax) / aw, (y - ay) / ah, log(w /
        aw), log(h / ah))``, with x and y of the centres, minus `means` and divided by `stds`; 0 for an anchor without a
        box. By default, the result is the box itself, or the anchor if it has no box.
      scale: a factor for boxes and anchors before offsets are calculated.
      means, stds: 4 numbers each, see `offset`.

    Returns:
      (boxes, labels): ``[anchors, 4]`` float32, x and y of the centre, width and height; ``[anchors]`` int32, 0 if
      there is no box.

    Raises:
      ArgumentError: an anchor does not have 4 numbers, or an input has another type.
      OperatorError: the numbers of labels and boxes of a sample differ.

    Example:
      >>> boxes, labels = fn.box_encoder(boxes, labels, anchors=anchors, offset=True, stds=(0.1, 0.1, 0.2, 0.2))
    """
    ...
