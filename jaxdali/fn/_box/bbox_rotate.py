"""bbox_rotate: bounding boxes on rotated images."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Unpack

import numpy as np

from ..._core.arguments import Arguments
from ..._core.building import add, is_node
from ..._core.context import HostContext
from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator
from ..._core.operator_function import Hints, Input, ListOf, OneOrMore, PerSample, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Status
from .._image.rotate import canvas

F32 = np.float32


class BBoxRotate(HostOperator):
    """Rotates boxes. Each result is the upright box around a rotated box, clipped to the image, or removed."""

    name = "bbox_rotate"
    has_labels: bool  # whether the second input is labels, of which those of removed boxes are removed
    bbox_layout: str  # "xyXY": two corners; "xyWH": the upper left corner, width and height
    bbox_normalized: bool  # whether coordinates are relative to the image; if not, they are pixels
    keep_size: bool  # whether the rotated image has the size of the image
    mode: str  # "expand", or how far boxes shrink to their original extents: "fixed" or "halfway"
    remove_threshold: float  # the part of a box that must be left on the image
    shape_layout: str  # the axes of the argument `input_shape`, such as "HWC"

    @property
    def num_outputs(self) -> int:
        return 1 + self.has_labels

    def infer(self, boxes: Spec, *others: Spec) -> tuple[Spec, ...]:
        """The boxes that are kept, and their labels if there are any. Their number varies."""
        if boxes.dtype != F32 or boxes.ndim != 2 or boxes.extent(1) not in (4, None):
            raise ArgumentError(f"the boxes must be float32 [n, 4], got {boxes.ndim}-D {boxes.dtype}")
        outputs = [Spec(boxes.dtype, 2, None, boxes.layout, dims=(None, 4))]
        if self.has_labels:
            labels = others[0]
            if (
                labels.dtype != np.int32
                or labels.ndim not in (1, 2)
                or (labels.ndim == 2 and labels.extent(1) not in (1, None))
            ):
                raise ArgumentError(f"the labels must be int32 [n] or [n, 1], got {labels.ndim}-D {labels.dtype}")
            outputs.append(Spec(labels.dtype, labels.ndim, None, labels.layout, dims=(None, 1)[: labels.ndim]))
        self.args.check_width("size", 2, (boxes, *others))
        return tuple(outputs)

    def run(self, ctx: HostContext, boxes: Value, *others: Value) -> tuple[Any, ...]:
        """Rotates the boxes of each sample. A sample that failed or is not present has none.

        `others`: the labels if there are any, then the arguments.
        """
        a = self.arguments(ctx, others)
        shape, size = a.input_shape.reshape(ctx.N, -1), a.vector("size", 2)
        axes = [self.shape_layout.index(c) for c in "HW"]
        if shape.shape[1] <= max(axes):
            raise ArgumentError(
                f"input_shape must have the axes of shape_layout={self.shape_layout!r}, got {shape.shape[1]} numbers"
            )
        shape = shape[:, axes].astype(np.int64)
        if self.keep_size:
            out = shape
        else:
            out = canvas(shape, a.angle, axis=None) if size is None else np.floor(size).astype(np.int64)
        kept_boxes, labels = [], []
        for i in range(ctx.N):
            b, rows = boxes.sample(i), np.zeros(0, np.int64)
            if not ctx.present[i]:
                b = b[:0]
            elif b.shape[1] != 4 or (self.has_labels and len(others[0].sample(i)) != len(b)):
                ctx.fail(
                    i,
                    Status.INPUT,
                    f"each box must have 4 coordinates and, where there are labels, one; got boxes {b.shape}",
                )
                b = b[:0]
            if len(b):
                # The arguments are (height, width), and boxes are (x, y).
                b, rows = self._rotated(b, F32(a.angle[i]), shape[i, ::-1].astype(F32), out[i, ::-1].astype(F32))
            kept_boxes.append(b.reshape(-1, 4))
            if self.has_labels:
                labels.append(others[0].sample(i)[rows])
        return (kept_boxes, labels) if self.has_labels else (kept_boxes,)

    def _rotated(
        self, boxes: np.ndarray, angle: np.float32, size: np.ndarray, out: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The boxes on the rotated image, and the rows of the input that are kept.

        `size`, `out`: width and height of the image, and of the rotated image.
        """
        has_extents = self.bbox_layout == "xyWH"
        low, high = boxes[:, :2], boxes[:, 2:] + boxes[:, :2] if has_extents else boxes[:, 2:]
        # In pixels from the centre of the image.
        low, high = ((x - F32(0.5)) * size if self.bbox_normalized else x - size / 2 for x in (low, high))
        # The four corners of each box.
        x, y = np.stack([low[:, 0], high[:, 0]] * 2, 1), np.stack([low[:, 1]] * 2 + [high[:, 1]] * 2, 1)
        turn = angle * F32(np.pi / 180)
        c, s = np.cos(turn), np.sin(turn)
        corners = np.stack([x * c + y * s + out[0] / 2, -x * s + y * c + out[1] / 2], 2)  # [n, 4, 2]
        first, last = corners.min(axis=1), corners.max(axis=1)
        # The modes "fixed" and "halfway" shrink the upright box to the original extents, or half of the way. If the
        # longer side is now the other one, the extents are exchanged.
        if self.mode != "expand":
            extent, rotated_extent = high - low, last - first
            is_across = (extent[:, 0] < extent[:, 1]) != (rotated_extent[:, 0] < rotated_extent[:, 1])
            target = np.where(is_across[:, None], extent[:, ::-1], extent)
            margin = (rotated_extent - target) * F32(0.25 if self.mode == "halfway" else 0.5)
            first, last = first + margin, last - margin
        area = (last - first).prod(axis=1)
        first, last = np.clip(first, 0, out), np.clip(last, 0, out)
        with np.errstate(divide="ignore", invalid="ignore"):
            rows = np.flatnonzero((last - first).prod(axis=1) / area >= F32(self.remove_threshold))
        first, last = first[rows], last[rows]
        scale = 1 / out if self.bbox_normalized else np.ones(2, F32)
        return np.concatenate([first * scale, (last - first if has_extents else last) * scale], axis=1).astype(
            F32
        ), rows


@operator_function("bbox_rotate")
def bbox_rotate(
    bboxes: Input,
    labels: Input | None = None,
    /,
    *,
    angle: PerSample[float],
    input_shape: Annotated[PerSample[ListOf[int]], Range(1)],
    bbox_layout: Literal["xyXY", "xyWH"] = "xyXY",
    bbox_normalized: bool = True,
    keep_size: bool = False,
    mode: Literal["expand", "fixed", "halfway"] = "expand",
    remove_threshold: Annotated[float, Range(0, 1)] = 0.1,
    shape_layout: str = "HW",
    size: Annotated[PerSample[OneOrMore[float]] | None, Range(0, above=True)] = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode | list[DataNode]:
    """Rotates bounding boxes as `rotate` rotates their image, and removes boxes with too little left on the image.

    Pass the same arguments as to the image's `rotate`. Boxes are host values.

    Args:
      bboxes: boxes ``[n, 4]``, float32.
      labels: labels of the boxes, int32 ``[n]`` or ``[n, 1]``, which are removed with their boxes. Optional.
      angle: the angle in degrees, as in `rotate`. May be per sample.
      input_shape: shape of the image before it is rotated. May be per sample, as ``images.shape()``.
      bbox_layout: "xyXY" for (left, top, right, bottom), "xyWH" for (left, top, width, height).
      bbox_normalized: whether coordinates are relative to the image, in 0 ... 1; otherwise they are pixels.
      keep_size: whether the rotated image keeps the size of the image.
      mode: with "expand", boxes contain the whole rotated boxes; with "fixed", they keep their extents; "halfway" is
        between the two.
      remove_threshold: a box is removed if a smaller part of its area than this, 0 ... 1, remains on the image.
      shape_layout: the axes of `input_shape`, in their order; H and W are used.
      size: extents (H, W) of the rotated image, if they are given to `rotate`. Default: as large as the rotated image
        needs. May be per sample.
      device: "gpu": the results are moved to the accelerator.

    Returns:
      The boxes ``[m, 4]``, float32, clipped to the rotated image, and their labels if there are any.

    Raises:
      ArgumentError: `size` and `keep_size` together, inputs of other types, or a layout without H and W.
      OperatorError: the numbers of labels and boxes of a sample differ.

    Example:
      >>> boxes, labels = fn.bbox_rotate(boxes, labels, angle=angle, input_shape=images.shape(), keep_size=True)
      >>> images = fn.rotate(images, angle=angle, keep_size=True)
    """
    if keep_size and size is not None:
        raise ArgumentError("size and keep_size can't be given together")
    if not {"H", "W"} <= {*shape_layout}:
        raise ArgumentError(f"shape_layout must have the letters H and W, got {shape_layout!r}")
    args, nodes = Arguments.of({"angle": angle, "input_shape": input_shape, "size": size}, is_node)
    op = BBoxRotate(
        has_labels=labels is not None,
        bbox_layout=bbox_layout,
        bbox_normalized=bbox_normalized,
        keep_size=keep_size,
        mode=mode,
        remove_threshold=remove_threshold,
        shape_layout=shape_layout,
        args=args,
    )
    return add(op, bboxes, *(() if labels is None else (labels,)), *nodes, device=device, name=name)
