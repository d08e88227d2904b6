"""random_bbox_crop: random windows of images that suit the bounding boxes on them."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Unpack

import numpy as np

from ..._core.arguments import Arguments
from ..._core.building import add, is_node
from ..._core.context import HostContext
from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator
from ..._core.operator_function import Input, OneOrMore, PerSample, SeededHints, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Status
from .._families.drawing import draw

_log = logging.getLogger("jaxdali")
# Columns of the boxes by axis: (columns of starts, columns of ends or extents, whether the latter are extents).
_Columns = tuple[list[int], list[int], bool]
_MAX_ATTEMPTS = 1 << 17  # if the user sets no limit
_TOLERANCE = 1e-9  # metrics that differ by less are equal but for rounding
_FIRST_ROUND = 32  # windows that are tried in the first round; each further round tries twice as many


class RandomBBoxCrop(HostOperator):
    """Draws windows until one fits the boxes: until its metric reaches the threshold, and it keeps a box."""

    name = "random_bbox_crop"
    random = True
    has_labels: bool  # whether the second input is labels
    all_boxes_above_threshold: bool  # whether all boxes must reach the threshold, not one
    allow_no_crop: bool  # whether the whole image may be chosen, as if it were a threshold
    aspect_ratio: tuple[float, ...]  # (least, most), or three such ranges, for the pairs of axes of volumes
    bbox_layout: str | None  # the columns of the boxes: xyXY or xyWH in any order, with z, Z and D for volumes
    # the overlap from which a box is kept. None: a box is kept if its centre is inside
    bbox_prune_threshold: float | None
    ltrb: bool | None  # older way to say that `bbox_layout` is "xyXY" (True) or "xyWH" (False)
    num_attempts: int  # windows that are tried at one threshold, before another one is drawn
    output_bbox_indices: bool
    quiet: bool  # whether no warning tells that a sample got the best window in place of one that fits
    scaling: tuple[float, ...]  # (least, most) extent, relative to the image
    shape_layout: str | None  # the axes of `crop_shape` and `input_shape`, in their order; None: WH or WHD
    threshold_type: str  # the metric of a window and a box: "iou", or "overlap", the part of the box inside
    thresholds: tuple[float, ...]  # one of these, or the choice not to crop, is drawn for every `num_attempts` windows
    # windows that are tried at most; then the best is taken. None: `_MAX_ATTEMPTS`, then the sample fails
    total_num_attempts: int | None
    seed: int

    @property
    def num_outputs(self) -> int:
        return 3 + self.has_labels + self.output_bbox_indices

    def infer(self, boxes: Spec, *others: Spec) -> tuple[Spec, ...]:
        """Start and size of the window, the boxes in it, and, if asked for, their labels and indices."""
        f32, i32 = np.dtype(np.float32), np.dtype(np.int32)
        if boxes.dtype != f32 or boxes.ndim != 2 or boxes.extent(1) not in (4, 6, None):
            raise ArgumentError(
                f"the boxes must be float32 [n, 4], or [n, 6] of volumes, got {boxes.ndim}-D {boxes.dtype}"
            )
        ndim = self._ndim(boxes.extent(1))
        # These raise ArgumentError for a layout that does not fit.
        self._columns(ndim)
        self._shape_order(ndim)
        if len(self.aspect_ratio) != 2 and (ndim, len(self.aspect_ratio)) != (3, 6):
            raise ArgumentError(f"aspect_ratio must be 2 numbers, or 6 of volumes, got {len(self.aspect_ratio)}")
        for name in ("crop_shape", "input_shape"):
            self.args.check_width(name, ndim, (boxes, *others))
        outputs = [Spec(f32, 1, (ndim,)), Spec(f32, 1, (ndim,)), Spec(f32, 2, None, dims=(None, 2 * ndim))]
        if self.has_labels:
            labels = others[0]
            if labels.dtype != i32 or labels.ndim not in (1, 2):
                raise ArgumentError(f"the labels must be int32 [n] or [n, 1], got {labels.ndim}-D {labels.dtype}")
            outputs.append(Spec(i32, labels.ndim, None, dims=(None, *map(labels.extent, range(1, labels.ndim)))))
        if self.output_bbox_indices:
            outputs.append(Spec(i32, 1, None))
        return tuple(outputs)

    def _ndim(self, columns: int | None) -> int:
        """The number of axes of the boxes: from their columns, if these are known, or from other arguments; by default
        2.
        """
        return (
            columns // 2
            if columns is not None
            else 3
            if len(self.bbox_layout or "") == 6 or len(self.aspect_ratio) == 6
            else 2
        )

    def _columns(self, ndim: int) -> _Columns:
        """The columns of the boxes, by `bbox_layout` or `ltrb`."""
        layout = self.bbox_layout or ("xyz"[:ndim] + ("WHD" if self.ltrb is False else "XYZ")[:ndim])
        for end_letters, are_extents in (("XYZ"[:ndim], False), ("WHD"[:ndim], True)):
            if sorted(layout) == sorted("xyz"[:ndim] + end_letters):
                return [layout.index(c) for c in "xyz"[:ndim]], [layout.index(c) for c in end_letters], are_extents
        raise ArgumentError(
            f"bbox_layout must be made of {'xyz'[:ndim]} and {'XYZ'[:ndim]} or {'WHD'[:ndim]}, got {layout!r}"
        )

    def _shape_order(self, ndim: int) -> list[int]:
        """The positions of width, height and depth in `crop_shape` and `input_shape`."""
        layout = self.shape_layout or "WHD"[:ndim]
        if sorted(layout) != sorted("WHD"[:ndim]):
            raise ArgumentError(f"shape_layout must be made of {'WHD'[:ndim]}, got {layout!r}")
        return [layout.index(c) for c in "WHD"[:ndim]]

    def run(self, ctx: HostContext, boxes: Value, *others: Value) -> tuple[Any, ...]:
        """Checks the boxes of each sample, searches windows for all samples, and makes the outputs."""
        ndim = self._ndim(boxes.spec.extent(1))
        starts, ends, are_extents = self._columns(ndim)
        order, a = self._shape_order(ndim), self.arguments(ctx, others)
        shapes = {
            n: x[:, order].astype(np.float64)
            for n in ("crop_shape", "input_shape")
            if (x := a.vector(n, ndim)) is not None
        }
        samples: dict[int, _Sample] = {}
        for i in np.flatnonzero(ctx.present).tolist():
            b = boxes.sample(i)
            reason = self._problem(b, ndim, others[0].sample(i) if self.has_labels else None)
            if not reason:
                # Starts and ends along each axis, x first.
                low = b[:, starts]
                high = low + b[:, ends] if are_extents else b[:, ends]
                # Ends may come before starts, as in DALI. The sum of a start and an extent may be rounded above 1.
                if not ((low >= 0) & (high <= 1 + (1e-6 if are_extents else 0))).all():
                    reason = f"boxes must lie in 0 ... 1, got {b.tolist()}"
            if reason:
                ctx.fail(i, Status.INPUT, reason)
                continue
            sample_shapes = {n: x[i] for n, x in shapes.items()}
            samples[i] = _Sample(
                low.astype(np.float64),
                high.astype(np.float64),
                sample_shapes.get("crop_shape"),
                sample_shapes.get("input_shape"),
            )
        self._search(ctx, ndim, samples)
        return self._outputs(ctx, samples, boxes, others, (starts, ends, are_extents))

    def _problem(self, boxes: np.ndarray, ndim: int, labels: np.ndarray | None) -> str:
        """The reason why the boxes of a sample are refused; "" if they are valid."""
        if boxes.shape[1] != 2 * ndim:
            return f"boxes must have {2 * ndim} coordinates, got {boxes.shape[1]}"
        return (
            f"there are {len(boxes)} boxes, but {len(labels)} labels"
            if labels is not None and len(labels) != len(boxes)
            else ""
        )

    def _search(self, ctx: HostContext, ndim: int, samples: dict[int, _Sample]):
        """Finds a window for each sample."""
        limit = _MAX_ATTEMPTS if self.total_num_attempts is None else self.total_num_attempts
        remaining, drawn, count = dict(samples), 0, _FIRST_ROUND
        for substream in itertools.count(1):
            count = -(-count // self.num_attempts) * self.num_attempts  # whole groups of attempts at one threshold
            sizes = np.zeros(ctx.N, np.int64)
            # For each window, the choice of the threshold, its size and its place.
            sizes[[*remaining]] = count * (1 + 2 * ndim)
            numbers, first = draw(ctx, self.seed, sizes, part=substream)
            for i, sample in [*remaining.items()]:
                u = numbers[first[i] : first[i] + sizes[i]].reshape(count, -1)
                if self._attempt(sample, u, ndim, limit) or sample.attempts >= limit:
                    del remaining[i]
            drawn, count = drawn + count, 2 * count
            # Attempts at a threshold may end early, so that fewer windows count as attempts than were drawn. The factor
            # bounds the search if most of them do.
            if not remaining or drawn >= 8 * limit:
                break
        for i, sample in samples.items():
            # A window fits: there is nothing to report.
            if sample.best == np.inf:
                continue
            if self.total_num_attempts is None:
                ctx.fail(
                    i,
                    Status.INPUT,
                    f"no window was found in {_MAX_ATTEMPTS} attempts; pass total_num_attempts to take the best one then",
                )
            elif not self.quiet:
                _log.warning(
                    "random_bbox_crop: no window was found in %d attempts, the best one is used (%s)",
                    limit,
                    sample.best,
                )

    def _attempt(self, sample: _Sample, u: np.ndarray, ndim: int, limit: int) -> bool:
        """Tries windows in turn, up to the limit of attempts, and keeps the best one in `sample`.

        Args:
          sample: the sample, which is changed.
          u: ``[windows, 1 + 2 * ndim]`` uniform in [0, 1): the choice of the threshold, and numbers for the window.

        Returns:
          Whether a window fits.
        """
        has_fixed_size = sample.crop_shape is not None
        # One threshold, or the choice not to crop, is drawn for every `num_attempts` windows.
        options = len(self.thresholds) + self.allow_no_crop
        option = np.repeat((u[:: self.num_attempts, 0] * options).astype(int), self.num_attempts)[: len(u)]
        is_whole = option == len(self.thresholds)
        threshold = np.asarray([*self.thresholds, 0.0])[option]
        # Behind the number for the threshold, `u` has `ndim` numbers for the extents and `ndim` for the place. If the
        # extents are fixed, the first ones are for the place.
        if has_fixed_size:
            assert sample.input_shape is not None
            slack = sample.input_shape - sample.crop_shape
            # A window that is larger than the image hangs over it by a part of the difference.
            place = np.minimum(slack, 0) + np.floor(u[:, 1 : 1 + ndim] * (np.abs(slack) + 1))
            start = place / sample.input_shape
            size = np.broadcast_to(sample.crop_shape / sample.input_shape, start.shape)
            is_valid = np.ones(len(u), bool)
        else:
            low, high = self.scaling
            size, is_valid = self._proportioned(low + (high - low) * u[:, 1 : 1 + ndim], sample.input_shape)
            start = place = u[:, 1 + ndim :] * (1 - size)
        size, start = np.where(is_whole[:, None], 1.0, size), np.where(is_whole[:, None], 0.0, start)
        # Each window is measured by its worst box, or by its best one.
        metric, is_kept = self._compared(sample, start, size)
        if len(sample.low):
            window_metric = metric.min(axis=1) if self.all_boxes_above_threshold else metric.max(axis=1)
            reaches_threshold = is_valid & (window_metric >= threshold)
            fits = is_whole | (reaches_threshold & is_kept.any(axis=1))
        else:
            window_metric, fits = np.zeros(len(u)), is_valid | is_whole
            reaches_threshold = fits
        # As in DALI, a window that reaches the threshold, but keeps no box, ends the attempts at that threshold. Each
        # window gets the number of such windows before it in its group.
        num_ended = (reaches_threshold & ~fits).reshape(-1, self.num_attempts).cumsum(axis=1).reshape(-1) - (
            reaches_threshold & ~fits
        )
        # Later windows are not tried: those of an ended group, and those above the limit of attempts.
        is_tried = num_ended == 0
        is_tried &= is_tried.cumsum() <= limit - sample.attempts
        sample.attempts += int(is_tried.sum())
        fits &= is_tried
        measured = np.where(is_valid & is_tried, window_metric, -1.0)
        # The first of equally good windows, such as all windows within one box, is taken. Without the tolerance,
        # rounding would prefer some places.
        k = int((fits if fits.any() else measured >= measured.max() - _TOLERANCE).argmax())
        score = np.inf if fits[k] else measured[k]
        if score > sample.best + _TOLERANCE:
            sample.best, sample.start, sample.size, sample.kept = score, start[k], size[k], is_kept[k] | is_whole[k]
            sample.anchor, sample.whole = place[k] if has_fixed_size else start[k], bool(is_whole[k])
        return bool(fits[k])

    def _proportioned(self, size: np.ndarray, shape: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """The windows' extents after fixed aspect ratios are applied, and whether each window is in the ranges of
        aspect ratios.

        Args:
          size: ``[windows, ndim]``, relative to the image.
          shape: the image's extents. None: aspect ratios are those of relative extents.
        """
        scale = np.ones(size.shape[1]) if shape is None else shape
        size, is_valid = size * scale, np.ones(len(size), bool)
        pairs = [*itertools.combinations(range(size.shape[1]), 2)]
        ratios = np.asarray(self.aspect_ratio).reshape(-1, 2)
        is_fixed = ratios[:, 0] == ratios[:, 1]
        # Pairs of axes are (x, y), (x, z), (y, z). One range is for all of them. A fixed ratio determines the shorter
        # extent, by the longer one.
        for (i, j), k in zip(pairs, itertools.cycle(range(len(ratios)))):
            if is_fixed[k]:
                longer = np.maximum(size[:, i], size[:, j])
                size[:, i], size[:, j] = longer * min(ratios[k, 0], 1), longer / max(ratios[k, 0], 1)
        for (i, j), k in zip(pairs, itertools.cycle(range(len(ratios)))):
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = size[:, i] / size[:, j]
            slack = 1e-6 * is_fixed[k]  # a fixed ratio holds but for rounding
            is_valid &= (ratio >= ratios[k, 0] * (1 - slack)) & (ratio <= ratios[k, 1] * (1 + slack))
        return size / scale, is_valid

    def _compared(self, sample: _Sample, start: np.ndarray, size: np.ndarray) -> tuple[Any, Any]:
        """The metric of each window and box, and whether the window keeps the box, ``[windows, boxes]`` each."""
        # The windows' corners as ``[windows, 1, ndim]``, against the boxes' ``[boxes, ndim]``.
        first, last = start[:, None], (start + size)[:, None]
        intersection = np.clip(np.minimum(sample.high, last) - np.maximum(sample.low, first), 0, None).prod(axis=2)
        area = (sample.high - sample.low).prod(axis=1)
        overlap = np.divide(intersection, area, out=np.zeros_like(intersection), where=area > 0)
        if self.threshold_type == "overlap":
            metric = overlap
        else:
            union = area + size.prod(axis=1)[:, None] - intersection
            metric = np.divide(intersection, union, out=np.zeros_like(intersection), where=union > 0)
        if self.bbox_prune_threshold is not None:
            # Even at a threshold of 0, a box outside the window is not kept.
            return metric, np.logical_and(overlap >= self.bbox_prune_threshold, overlap > 0)
        center = (sample.low + sample.high) / 2
        return metric, ((first <= center) & (center <= last)).all(axis=2)

    def _outputs(
        self,
        ctx: HostContext,
        samples: dict[int, _Sample],
        boxes: Value,
        others: Sequence[Value],
        columns: _Columns,
    ) -> tuple[Any, ...]:
        """The operator's outputs: the windows, and the boxes, labels and indices that they keep."""
        starts, ends, are_extents = columns
        ndim = len(starts)
        anchor, size = np.zeros((ctx.N, ndim), np.float32), np.zeros((ctx.N, ndim), np.float32)
        mapped, labels, indices = [], [], []
        for i in range(ctx.N):
            sample, rows = samples.get(i), np.zeros(0, np.int32)
            out = np.zeros((0, 2 * ndim), np.float32)
            if sample is not None:
                rows = np.flatnonzero(sample.kept).astype(np.int32)
                anchor[i], size[i] = sample.anchor, sample.size if sample.crop_shape is None else sample.crop_shape
                low, high = ((x[rows] - sample.start) / sample.size for x in (sample.low, sample.high))
                # A window that is the whole image by choice leaves the boxes as they are.
                if not sample.whole:
                    low, high = np.clip(low, 0, 1), np.clip(high, 0, 1)
                out = np.zeros((len(rows), 2 * ndim), np.float32)
                out[:, starts], out[:, ends] = low, high - low if are_extents else high
            mapped.append(out)
            indices.append(rows)
            if self.has_labels:
                labels.append(others[0].sample(i)[rows])
        outputs = [anchor, size, mapped]
        outputs += [labels] if self.has_labels else []
        outputs += [indices] if self.output_bbox_indices else []
        return tuple(outputs)


@dataclasses.dataclass
class _Sample:
    """A sample, and the best window so far; initially the whole image.

    Attributes:
      low, high: starts and ends of the boxes, ``[n, ndim]``, x first.
      crop_shape, input_shape: the arguments, x first.
      start, size: start and size of the window, relative to the image.
      anchor: the window's start in the units of the result: pixels if there is a `crop_shape`, otherwise relative.
      kept: which boxes the window keeps, ``bool[n]``.
      whole: whether the window is the whole image by choice.
      best: the metric of the window; infinite if it fits.
      attempts: the number of windows that were tried.
    """

    low: np.ndarray
    high: np.ndarray
    crop_shape: np.ndarray | None
    input_shape: np.ndarray | None
    best: float = -1.0
    whole: bool = False
    attempts: int = 0

    def __post_init__(self):
        self.start = self.anchor = np.zeros(self.low.shape[1])
        self.size, self.kept = np.ones(self.low.shape[1]), np.ones(len(self.low), bool)


@operator_function("random_bbox_crop")
def random_bbox_crop(
    boxes: Input,
    labels: Input | None = None,
    /,
    *,
    all_boxes_above_threshold: bool = True,
    allow_no_crop: bool | None = None,
    aspect_ratio: Annotated[Sequence[float] | None, Range(0)] = None,
    bbox_layout: str | None = None,
    bbox_prune_threshold: Annotated[float | None, Range(0, 1)] = None,
    crop_shape: Annotated[PerSample[OneOrMore[int]] | None, Range(1)] = None,
    input_shape: Annotated[PerSample[OneOrMore[int]] | None, Range(1)] = None,
    ltrb: bool | None = None,
    num_attempts: Annotated[int, Range(1)] = 1,
    output_bbox_indices: bool = False,
    quiet: bool = False,
    scaling: Annotated[Sequence[float] | None, Range(0)] = None,
    seed: int = -1,
    shape_layout: str | None = None,
    threshold_type: Literal["iou", "overlap"] = "iou",
    thresholds: Annotated[float | Sequence[float], Range(0, 1)] = (0.0,),
    total_num_attempts: int = -1,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> list[DataNode]:
    """Draws a window of each image that overlaps enough with its boxes, and returns the boxes relative to the window.

    Windows are drawn in turn, until one suits: it has the aspect ratio, its metric with the boxes is at least the
    threshold, and at least one box is kept. Boxes and labels are host values.

    Differs from DALI: the same seed gives other numbers; without a limit, a sample fails after 131072 attempts; with a
    limit, nothing is cropped if no window had the aspect ratio.

    Args:
      boxes: ``[n, 4]``, or for volumes ``[n, 6]``, float32 in 0 ... 1.
      labels: ``[n]`` or ``[n, 1]``, int32. Optional.
      all_boxes_above_threshold: whether all boxes must reach the threshold; otherwise one must.
      allow_no_crop: whether "do not crop" is one of the choices beside the thresholds. Default: True; with `crop_shape`
        it is False, and True is refused.
      aspect_ratio: range of width divided by height, in pixels if `input_shape` is given, else relative to the image.
        For volumes also three ranges: x by y, x by z and y by z. Default: 1.
      bbox_layout: the meaning of the columns: xyXY for starts and ends, xyWH for starts and extents, in any order; for
        volumes with z, Z and D. Default: xyXY.
      bbox_prune_threshold: a box is kept if at least this part of it, 0 ... 1, lies in the window. Default: if its
        centre does.
      crop_shape: the window's extents in pixels, instead of `aspect_ratio` and `scaling`; needs `input_shape`. May be
        per sample.
      input_shape: extents of the image in pixels. May be per sample.
      ltrb: former name of ``bbox_layout="xyXY"`` (True) and "xyWH" (False).
      num_attempts: how many windows are drawn for a threshold before another threshold is drawn. A window that reaches
        the threshold but keeps no box also ends the attempts for it.
      output_bbox_indices: whether the indices of the kept boxes are also returned.
      quiet: whether to suppress the warning when the best of `total_num_attempts` is used.
      scaling: range of the window's extents, relative to the image. Default: 1.
      seed: fixes the random numbers regardless of the pipeline's seed and of the operator's place in the pipeline; a
        negative seed counts as not given.
      shape_layout: the order of axes in `crop_shape` and `input_shape`. Default: WH, or WHD for volumes.
      threshold_type: the metric of a box and the window: "iou", their intersection divided by their union, or
        "overlap", their intersection divided by the box.
      thresholds: the thresholds, of which one is drawn.
      total_num_attempts: after this many windows, the one with the best metric is used. Default: no limit.

    Returns:
      (anchor, shape, boxes), then labels if there are any, then indices (int32) if asked for. Anchor and shape are
      float32, x first, for use with `slice`: relative to the image, or in pixels with `crop_shape`.

    Raises:
      ArgumentError: arguments that can't be combined, wrong ranges, or inputs of other types.
      OperatorError: boxes outside 0 ... 1, a different number of labels, or no window was found.

    Example:
      >>> start, shape, boxes, labels = fn.random_bbox_crop(boxes, labels, scaling=(0.3, 1.0), thresholds=(0.1, 0.5))
      >>> images = fn.slice(images, start, shape)
    """
    if bbox_layout is not None and ltrb is not None:
        raise ArgumentError("give either bbox_layout or ltrb")
    if crop_shape is not None and (aspect_ratio is not None or scaling is not None):
        raise ArgumentError("crop_shape can't be given together with aspect_ratio or scaling")
    if crop_shape is not None and allow_no_crop:
        raise ArgumentError("crop_shape can't be given together with allow_no_crop=True: every window has this shape")
    if crop_shape is not None and input_shape is None:
        raise ArgumentError("crop_shape needs input_shape")
    limits = (thresholds,) if isinstance(thresholds, (int, float)) else tuple(thresholds)
    if not limits:
        raise ArgumentError("thresholds is empty")
    if total_num_attempts == 0 or total_num_attempts < -1:
        raise ArgumentError(f"total_num_attempts must be at least 1, or -1 for any number, got {total_num_attempts}")
    aspect, scale = tuple(aspect_ratio or (1.0, 1.0)), tuple(scaling or (1.0, 1.0))
    for argument, ranges, counts in (("aspect_ratio", aspect, (2, 6)), ("scaling", scale, (2,))):
        if len(ranges) not in counts or any(low > high for low, high in zip(ranges[::2], ranges[1::2])):
            raise ArgumentError(
                f"{argument} must be (least, most){' or three such ranges' if 6 in counts else ''}, got {ranges}"
            )
    args, nodes = Arguments.of({"crop_shape": crop_shape, "input_shape": input_shape}, is_node)
    op = RandomBBoxCrop(
        has_labels=labels is not None,
        all_boxes_above_threshold=all_boxes_above_threshold,
        allow_no_crop=crop_shape is None if allow_no_crop is None else allow_no_crop,
        aspect_ratio=aspect,
        bbox_layout=bbox_layout,
        bbox_prune_threshold=bbox_prune_threshold,
        ltrb=ltrb,
        num_attempts=num_attempts,
        output_bbox_indices=output_bbox_indices,
        quiet=quiet,
        scaling=scale,
        shape_layout=shape_layout,
        threshold_type=threshold_type,
        thresholds=limits,
        total_num_attempts=None if total_num_attempts < 0 else total_num_attempts,
        seed=seed,
        args=args,
    )
    return add(op, boxes, *(() if labels is None else (labels,)), *nodes, device=device, name=name)
