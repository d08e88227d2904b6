"""The family of size rules: integers from the height and the width of an image, made on the host for each image."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._core.context import HostContext
from ..._core.errors import ArgumentError
from ..._core.operator import HostOperator
from ..._core.values import Spec, Value
from ..._cpu import Status

LARGEST = np.iinfo(np.int32).max  # side of an image
_BLOCK = 1 << 14  # images whose intermediate results stay in the cache


class SizeRule(HostOperator):
    """One or more sizes for each image. Subclasses define the rule, for many images at once.

    Rules compute in double precision, as the Python code of the models does, so that all sizes are equal.
    """

    def rule(self, height: np.ndarray, width: np.ndarray) -> np.ndarray:
        """The sizes for images of these heights and widths, ``f64[n]`` of whole numbers from 1 on.

        Returns:
          Whole numbers ``[n, 2 * num_outputs]``: height and width of each output; 0 for an image that the rule can't
          serve.
        """
        raise NotImplementedError(self.name)

    def reason(self, height: int, width: int) -> str:
        """The reason why the rule has 0 for an image of this size."""
        raise NotImplementedError(self.name)

    def sizes(self, shapes: np.ndarray) -> np.ndarray:
        """The sizes ``i32[n, 2 * num_outputs]`` for shapes ``[n, >=2]``, rows of 0 for images that can't be served."""
        sizes = np.zeros((len(shapes), 2 * self.num_outputs), np.int32)
        for begin in range(0, len(shapes), _BLOCK):
            sides = shapes[begin : begin + _BLOCK, :2].astype(np.float64)
            # Images without pixels, and those that a batch lacks, can have any size.
            is_empty = (sides < 1).any(axis=1)
            sides[is_empty] = 1
            block = self.rule(sides[:, 0], sides[:, 1])
            is_impossible = is_empty | (block.min(axis=1) <= 0) | (block.max(axis=1) > LARGEST)
            block[is_impossible] = 0
            sizes[begin : begin + _BLOCK] = block
        return sizes

    def refusal(self, shape: np.ndarray) -> str:
        """The message for an image of this shape whose sizes are 0."""
        height, width = shape[:2].tolist()
        if height < 1 or width < 1:
            return f"the image is empty, {height}x{width} (height x width)"
        image = f"the image is {height}x{width} (height x width)"
        if (self.rule(*np.array([[height], [width]], np.float64)) > LARGEST).any():
            return f"{image}: a side would have more than {LARGEST} pixels"
        return f"{image}: {self.reason(height, width)}"

    def infer(self, shapes: Spec) -> tuple[Spec, ...]:
        check_shapes(shapes)
        extents = (*(shapes.extent(i) for i in range(shapes.ndim - 1)), 2)
        shape, dims = ((*shapes.shape[:-1], 2), None) if shapes.shape is not None else (None, extents)
        return (Spec(np.dtype(np.int32), shapes.ndim, shape, shapes.layout, dims),) * self.num_outputs

    def run(self, ctx: HostContext, shapes: Value) -> tuple[Any, ...]:
        """Computes the sizes of all images of the batch at once."""
        check_shapes(Spec(shapes.spec.dtype, shapes.spec.ndim, None, "", (None, *shapes.shapes[0])[1:]))
        if shapes.spec.shape is not None:
            rows = np.asarray(shapes.dense(present=ctx.present))
            sizes = self._checked(ctx, rows.reshape(-1, rows.shape[-1]), np.arange(ctx.N).repeat(rows[0, ..., 0].size))
            sizes = sizes.reshape(*rows.shape[:-1], -1)
            return tuple(sizes[..., 2 * k : 2 * k + 2] for k in range(self.num_outputs))
        samples = [shapes.sample(i) if ctx.present[i] else np.zeros(shapes.shapes[i], np.int64) for i in range(ctx.N)]
        rows = [x.reshape(-1, x.shape[-1])[:, :2] for x in samples]
        counts = [len(x) for x in rows]
        sizes = self._checked(ctx, np.concatenate(rows), np.arange(ctx.N).repeat(counts))
        by_sample = np.split(sizes, np.cumsum(counts)[:-1])
        return tuple(
            [x[:, 2 * k : 2 * k + 2].reshape(*y.shape[:-1], 2) for x, y in zip(by_sample, samples, strict=True)]
            for k in range(self.num_outputs)
        )

    def _checked(self, ctx: HostContext, rows: np.ndarray, owners: np.ndarray) -> np.ndarray:
        """The sizes for the rows of all samples. Samples with an image that can't be served fail.

        Args:
          owners: the number of each row's sample.
        """
        sizes = self.sizes(rows)
        for k in np.flatnonzero((sizes[:, 0] == 0) & ctx.present[owners]).tolist():
            i = int(owners[k])
            first = int(np.searchsorted(owners, i))
            of_sequence = f"image {k - first}: " if np.searchsorted(owners, i + 1) - first > 1 else ""
            ctx.fail(i, Status.ARGUMENT, of_sequence + self.refusal(rows[k]))
        return sizes


def check_shapes(shapes: Spec) -> None:
    """Raises ArgumentError unless values of this spec can be shapes of images."""
    extent = shapes.extent(shapes.ndim - 1) if shapes.ndim else 0
    if shapes.dtype.kind == "S" or (shapes.dtype == np.uint8 and extent not in (0, 2, 3)):
        raise ArgumentError("the input must be shapes of images, got encoded files: give peek_image_shape(files)")
    if shapes.dtype.kind not in "iu" or (extent is not None and extent not in (2, 3)):
        numbers = "" if extent is None else f" with {extent} numbers there" if shapes.ndim else ", a scalar"
        video = "; of a video take shape[1:]" if extent == 4 else ""
        raise ArgumentError(
            "the input must be integers whose last axis begins with height and width, as those of fn.peek_image_shape, "
            f"got {shapes.ndim}-D {shapes.dtype}{numbers}{video}"
        )
