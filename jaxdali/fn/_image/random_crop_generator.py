"""random_crop_generator: the coordinates of random windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Unpack

import numpy as np

from ..._core.context import HostContext
from ..._core.declaration import Len, Range
from ..._core.graph import DataNode
from ..._core.operator import HostOperator
from ..._core.operator_function import Input, SeededHints, operator_function
from ..._core.values import Spec, Value
from .._families.drawing import uniforms
from .._families.random_windows import random_range, random_windows


class RandomCropGenerator(HostOperator):
    """Start and size of a random window, given the shape of an image."""

    name = "random_crop_generator"
    random = True
    num_outputs = 2  # pyright: ignore[reportAssignmentType]
    random_area: tuple[float, ...] | float  # range of the window's area, as a fraction of the image's
    random_aspect_ratio: tuple[float, ...] | float  # range of width by height
    num_attempts: int  # windows that are drawn at most until one fits into the image
    seed: int

    def __post_init__(self):
        # Raises ArgumentError for an invalid range.
        self._ranges()

    def _ranges(self) -> tuple[tuple[float, float], tuple[float, float]]:
        return random_range("random_area", self.random_area), random_range(
            "random_aspect_ratio", self.random_aspect_ratio
        )

    def infer(self, shape: Spec) -> tuple[Spec, ...]:
        if shape.dtype.kind not in "iu" or shape.ndim != 1 or shape.extent(0) not in (None, 2, 3):
            raise ValueError(
                f"the input must be shapes (H, W) or (H, W, C), 1-D integers; got {shape.ndim}-D {shape.dtype}"
            )
        return (Spec(np.dtype(np.int32), 1, (2,)),) * 2

    def run(self, ctx: HostContext, shape: Value) -> tuple[Any, ...]:
        extents = shape.dense("the shape", ctx.present)[:, :2].astype(np.int64)
        start, size = random_windows(uniforms(ctx, self.seed, 2 + 2 * self.num_attempts), extents, *self._ranges())
        return start.astype(np.int32), size.astype(np.int32)


@operator_function(RandomCropGenerator)
def random_crop_generator(
    input: Input,
    /,
    *,
    num_attempts: Annotated[int, Range(1)] = 10,
    random_area: Annotated[float | Sequence[float], Len(2), Range(0)] = (0.08, 1.0),
    random_aspect_ratio: Annotated[float | Sequence[float], Len(2), Range(1e-6)] = (3 / 4, 4 / 3),
    seed: int = -1,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> list[DataNode]:
    """Draws windows as `random_resized_crop` does, for `slice` or a `resize` of a region.

    Differs from DALI: the same seed gives other numbers, and at least one attempt is made.

    Args:
      input: shapes of images, (H, W) or (H, W, C), 1-D integers: host values.
      num_attempts, random_area, random_aspect_ratio, seed: as in `random_resized_crop`.

    Returns:
      (start, size): int32, (y, x) and (height, width) of each window.

    Raises:
      ValueError: the input has another shape or type, or a range is empty.

    Example:
      >>> start, size = fn.random_crop_generator(images.shape())
      >>> images = fn.slice(images, start=start, shape=size, axes=(0, 1))
    """
    ...
