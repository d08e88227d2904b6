"""Sizes within a number of patches, for SigLIP 2."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ..._core.declaration import Range
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, operator_function
from ._rule import SizeRule

SMALLEST_SCALE, LARGEST_SCALE = 1e-6, 100.0
STEPS = 24  # until the two scales of the search differ by less than 1e-5


class PatchBudget(SizeRule):
    """The largest size with at most `max_patches` patches, with about the image's aspect ratio."""

    name = "sizes.patch_budget"
    patch_size: int
    max_patches: int

    def rule(self, height: np.ndarray, width: np.ndarray) -> np.ndarray:
        sides = np.stack([height, width])

        def patches(scale: np.ndarray) -> np.ndarray:
            """The patches along each side of the scaled image, ``[2, n]``."""
            return np.maximum(np.ceil(sides * scale / self.patch_size), 1)

        smallest, largest = np.full(len(height), SMALLEST_SCALE), np.full(len(height), LARGEST_SCALE)
        for _ in range(STEPS):
            middle = (smallest + largest) / 2
            fits = patches(middle).prod(axis=0) <= self.max_patches
            smallest, largest = np.where(fits, middle, smallest), np.where(fits, largest, middle)
        counts = patches(smallest)
        return np.where(counts.prod(axis=0) <= self.max_patches, counts * self.patch_size, 0).T

    def reason(self, height: int, width: int) -> str:
        return (
            f"it has more than max_patches={self.max_patches} patches of {self.patch_size} pixels even if it is scaled by "
            f"{SMALLEST_SCALE}"
        )


@operator_function(PatchBudget)
def patch_budget(
    shapes: Input,
    /,
    *,
    patch_size: Annotated[int, Range(1)],
    max_patches: Annotated[int, Range(1)],
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """The size that SigLIP 2 (NaFlex) resizes an image to.

    The image is scaled, up to 100 times, until it has as many patches as fit in `max_patches`; sides are rounded up to
    whole patches. Sizes are those of ``get_image_size_for_max_num_patches`` in the model's image processor, which
    searches the scale by 24 bisections.

    Args:
      shapes: integers whose last axis begins with height and width, as of `peek_image_shape`: one image, or a sequence
        of images. A host value.
      patch_size: the side of a patch in pixels.
      max_patches: the largest number of patches.

    Returns:
      Height and width, int32 of the shape of the input, with 2 elements in the last axis. A host value. `resize` takes it
      as `size`.

    Raises:
      ArgumentError: the input is not integers.
      SampleError: an image is empty, or has more than `max_patches` patches even if it is scaled by 1e-6.

    Example:
      >>> size = fn.sizes.patch_budget(fn.peek_image_shape(jpegs), patch_size=16, max_patches=256)
    """
    ...
