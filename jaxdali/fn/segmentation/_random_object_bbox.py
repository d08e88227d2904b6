"""Random objects of segmentation maps, as boxes."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Unpack

import numpy as np

from ..._core.arguments import Values
from ..._core.context import HostContext
from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator
from ..._core.operator_function import Input, OneOrMore, PerSample, SeededHints, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Status
from .._families.drawing import uniforms


class RandomObjectBBox(HostOperator):
    """Draws a class and then one of its objects, or an object of any class. An object is a blob of one label."""

    name = "segmentation.random_object_bbox"
    random = True
    format: str  # "box": one vector; "start_end" or "anchor_shape": two
    ignore_class: bool  # draw among the objects of all classes
    output_class: bool  # whether the class is an output
    k_largest: int | None  # draw among so many largest objects; None: among all
    cache_objects: bool  # whether results for earlier maps are kept, by a digest of the map
    seed: int

    def __post_init__(self):
        if self.ignore_class and (self.output_class or "classes" in self.args or "class_weights" in self.args):
            raise ArgumentError("ignore_class excludes classes, class_weights and output_class")

    @functools.cached_property
    def _cache(self) -> dict[bytes, np.ndarray]:
        """The classes and boxes of earlier maps, by the digest of the map and the class."""
        return {}

    @property
    def num_outputs(self) -> int:
        return (1 if self.format == "box" else 2) + self.output_class

    def infer(self, labels: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """Boxes as one vector or two, by `format`, and the class if asked for."""
        if labels.dtype.kind not in "biu" or not labels.ndim:
            raise ArgumentError(
                f"the input must be a map of integer labels with at least one axis, got {labels.ndim}-D {labels.dtype}"
            )
        self.args.check_width("threshold", labels.ndim, (labels, *arguments), one_for_all=True)
        int32 = np.dtype(np.int32)
        box = [Spec(int32, 1, (2 * labels.ndim,))] if self.format == "box" else [Spec(int32, 1, (labels.ndim,))] * 2
        return (*box, Spec(int32, 0, ())) if self.output_class else tuple(box)

    def run(self, ctx: HostContext, labels: Value, *arguments: Value) -> tuple[Any, ...]:
        """Chooses a box for each sample: that of an object, or, as the background, the whole map."""
        a, u = self.arguments(ctx, arguments), uniforms(ctx, self.seed, 3)
        classes = a.ragged("classes") if "classes" in a else None
        weights = a.ragged("class_weights") if "class_weights" in a else None
        min_extents = a.vector("threshold", labels.spec.ndim, one_for_all=True)
        boxes = np.zeros((ctx.N, 2, labels.spec.ndim), np.int64)
        chosen_class = np.zeros(ctx.N, np.int64)
        for i in np.flatnonzero(ctx.present).tolist():
            sample_classes, sample_weights, background, reason = self._foreground(a, i, classes, weights)
            if reason:
                ctx.fail(i, Status.ARGUMENT, reason)
                continue
            # A box is (start, end): at first the whole map.
            boxes[i, 1], chosen_class[i] = labels.shapes[i], background
            if u[i, 0] < a.foreground_prob[i]:
                objects = _Objects(labels.sample(i), self._cache if self.cache_objects else None)
                choice = self._pick(
                    objects,
                    sample_classes,
                    sample_weights,
                    background,
                    None if min_extents is None else min_extents[i],
                    u[i],
                )
                if choice is not None:
                    chosen_class[i], boxes[i] = choice
        # The end becomes the extents.
        if self.format == "anchor_shape":
            boxes[:, 1] -= boxes[:, 0]
        outputs = [boxes.reshape(ctx.N, -1)] if self.format == "box" else [boxes[:, 0], boxes[:, 1]]
        return tuple(x.astype(np.int32) for x in (*outputs, chosen_class)[: self.num_outputs])

    @staticmethod
    def _foreground(
        a: Values, i: int, classes: Sequence[np.ndarray] | None, weights: Sequence[np.ndarray] | None
    ) -> tuple[np.ndarray | None, np.ndarray | None, int, str]:
        """The classes of sample `i` (None: all), their weights (None: equal), the background, and an error message or
        "".
        """
        sample_weights = weights[i] if weights is not None else None
        sample_classes = classes[i].astype(np.int64) if classes is not None else None
        background_argument = int(a.background[i]) if "background" in a else None
        if sample_classes is None and sample_weights is not None:
            # Weights without classes belong to the labels from 0 on, without the background.
            sample_classes = np.setdiff1d(np.arange(len(sample_weights) + 1), [background_argument or 0])[
                : len(sample_weights)
            ]
        if sample_classes is not None and sample_weights is not None and len(sample_classes) != len(sample_weights):
            return (
                None,
                None,
                0,
                f"class_weights must have a number for each of {len(sample_classes)} classes, got {len(sample_weights)}",
            )
        if background_argument is not None:
            if sample_classes is not None and background_argument in sample_classes:
                return (
                    None,
                    None,
                    0,
                    f"class {background_argument} is the background: "
                    "give another background, or leave it out of classes",
                )
            return sample_classes, sample_weights, background_argument, ""
        if sample_classes is None or 0 not in sample_classes:
            return sample_classes, sample_weights, 0, ""
        # By default the background is 0, or, if that is a class, the label below all classes, which wraps around.
        limits = np.iinfo(np.int32)
        background = int(sample_classes.min()) - 1
        if background < limits.min:
            background = next(n for n in range(limits.max, limits.min, -1) if n not in sample_classes)
        return sample_classes, sample_weights, background, ""

    def _pick(
        self,
        objects: _Objects,
        classes: np.ndarray | None,
        weights: np.ndarray | None,
        background: int,
        min_extents: np.ndarray | None,
        u: np.ndarray,
    ) -> tuple[int, np.ndarray] | None:
        """A class and the box of one of its objects, start and end, ``i64[2, ndim]``; None if there is no object.

        Args:
          objects: the objects of the sample's map.
          classes, weights: the classes to choose from and their weights; None: all classes, and equal weights.
          background: the class that has no objects.
          min_extents: of objects that may be chosen; None: any.
          u: uniform numbers, of which the second chooses the class and the third the object.
        """
        present_classes = objects.classes[objects.classes != background]
        if classes is not None:
            is_present = np.isin(classes, present_classes)
            present_classes, weights = classes[is_present], weights[is_present] if weights is not None else None
        if self.ignore_class:
            # Without classes there is no box; then the number of axes in the empty array does not matter.
            boxes = self._filter(
                np.concatenate([objects.boxes(c) for c in present_classes.tolist()] or [np.zeros((0, 2, 1), np.int64)]),
                min_extents,
            )
            # The class does not matter: `ignore_class` excludes it as an output.
            return (background, boxes[int(u[2] * len(boxes))]) if len(boxes) else None
        weight_by_class = {
            int(c): float(w)
            for c, w in zip(present_classes, np.ones(len(present_classes)) if weights is None else weights, strict=True)
            if w > 0
        }
        u_class = u[1]
        # A class without large enough objects is left out, and the number is rescaled, so that it is uniform again.
        while weight_by_class:
            # Class k has the part from edges[k] to edges[k + 1] of the sum of all weights.
            labels, edges = [*weight_by_class], np.cumsum([0.0, *weight_by_class.values()])
            k = min(int(np.searchsorted(edges, u_class * edges[-1], side="right")) - 1, len(labels) - 1)
            boxes = self._filter(objects.boxes(labels[k]), min_extents)
            if len(boxes):
                return labels[k], boxes[int(u[2] * len(boxes))]
            u_class = (u_class * edges[-1] - edges[k]) / weight_by_class.pop(labels[k])
        return None

    def _filter(self, boxes: np.ndarray, min_extents: np.ndarray | None) -> np.ndarray:
        """The boxes with at least `min_extents`; of these the `k_largest`."""
        extents = boxes[:, 1] - boxes[:, 0]
        if min_extents is not None:
            is_large = (extents >= min_extents).all(axis=1)
            boxes, extents = boxes[is_large], extents[is_large]
        if self.k_largest is not None:
            boxes = boxes[np.argsort(-extents.prod(axis=1), kind="stable")[: self.k_largest]]
        return boxes


class _Objects:
    """The objects of a map: blobs of elements of one label that are connected along axes.

    Args:
      labels: the map.
      cache: results for earlier maps, by digest and class. None: there is no cache.
    """

    def __init__(self, labels: np.ndarray, cache: dict[bytes, np.ndarray] | None):
        """Finds the classes of the map, or looks them up in the cache."""
        self._labels, self._cache = labels, cache
        # Equal maps share the results: the digest is that of type, shape and elements.
        self._digest = (
            hashlib.sha256(repr((labels.dtype, labels.shape)).encode() + labels.tobytes()).digest()
            if cache is not None
            else b""
        )
        self.classes = self._cached("classes", lambda: np.unique(labels).astype(np.int64))

    def boxes(self, label: int) -> np.ndarray:
        """The boxes of a class, ``i64[n, 2, ndim]``, start and end."""
        return self._cached(str(label), lambda: self._find_boxes(label))

    def _cached(self, name: str, compute: Any) -> np.ndarray:
        """The cached result of `compute` for this map."""
        if self._cache is None:
            return compute()
        key = self._digest + name.encode()
        if key not in self._cache:
            self._cache[key] = compute()
        return self._cache[key]

    def _find_boxes(self, label: int) -> np.ndarray:
        """The boxes of the blobs of a label, see `boxes`."""
        from scipy import ndimage  # takes a second to import

        blobs, _ = ndimage.label(self._labels == label)  # pyright: ignore[reportGeneralTypeIssues]
        boxes = [[[s.start for s in box], [s.stop for s in box]] for box in ndimage.find_objects(blobs)]
        return np.array(boxes, np.int64).reshape(-1, 2, self._labels.ndim)


@operator_function(RandomObjectBBox)
def random_object_bbox(
    input: Input,
    /,
    *,
    background: PerSample[int] | None = None,
    cache_objects: bool = False,
    class_weights: Annotated[PerSample[OneOrMore[float]] | None, Range(0)] = None,
    classes: PerSample[OneOrMore[int]] | None = None,
    foreground_prob: Annotated[PerSample[float], Range(0, 1)] = 1.0,
    format: Literal["anchor_shape", "start_end", "box"] = "anchor_shape",
    ignore_class: bool = False,
    k_largest: Annotated[int | None, Range(1)] = None,
    output_class: bool = False,
    seed: int = -1,
    threshold: PerSample[OneOrMore[int]] | None = None,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode | list[DataNode]:
    """Draws a random object of a segmentation map: first a class, then one of its blobs.

    The result is the blob's bounding box.

    A blob is connected along axes, not diagonally. If there is no object, or by chance (`foreground_prob`), the box is
    the whole map.
    Differs from DALI: the same seed gives other numbers, and a probability outside 0 ... 1 or a negative weight is an
    error.

    Args:
      input: maps of integer labels, of any number of axes. Host values.
      background: the label of the background. Default: 0, or if 0 is one of `classes`, one less than the smallest of
        them. May be per sample.
      cache_objects: whether to remember the boxes of all maps, for maps that come again.
      class_weights: relative probabilities of `classes`, or of the classes 0, 1, 2, ... without the background.
        Default: all are equally likely. May be per sample.
      classes: labels that are objects. Default: all but the background. May be per sample.
      foreground_prob: the probability that an object is drawn. May be per sample.
      format: "anchor_shape": first indices, and extents; "start_end": first indices, and those after the last; "box":
        these in one vector.
      ignore_class: whether all blobs are equally likely, regardless of their class.
      k_largest: draw only from this many of the largest boxes of a class, or of all boxes with `ignore_class`.
      output_class: whether the label is also returned.
      seed: fixes the random numbers regardless of the pipeline's seed and of the operator's place in the pipeline; a
        negative seed counts as not given.
      threshold: minimum extents of boxes, one number or one per axis. Default: no minimum. May be per sample.

    Returns:
      One or two 1-D int32, see `format`; with `output_class` also an int32 scalar, the background where there is no
      object.

    Raises:
      ArgumentError: arguments that can't be combined, or a map whose type is not an integer.
      OperatorError: the background is one of the classes, or there are not as many weights as classes.

    Example:
      >>> start, end = fn.segmentation.random_object_bbox(labels, format="start_end", foreground_prob=0.5)
    """
    ...
