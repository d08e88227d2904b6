"""Sizes within a number of tokens, for Gemma 4."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ..._core.declaration import Range
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, operator_function
from ._rule import SizeRule


class TokenBudget(SizeRule):
    """The largest size with at most `max_tokens` tokens, with the image's aspect ratio rounded down to whole tokens."""

    name = "sizes.token_budget"
    patch_size: int
    pool_size: int
    max_tokens: int

    def rule(self, height: np.ndarray, width: np.ndarray) -> np.ndarray:
        sides = np.stack([height, width], axis=1)
        token_side = self.patch_size * self.pool_size
        largest_area = self.max_tokens * token_side**2
        tokens = np.floor(np.sqrt(largest_area / sides.prod(axis=1))[:, None] * sides / token_side)
        # An image that is too long for one row of tokens gets one, whose length is its ratio, rounded down.
        is_missing = tokens == 0
        ratio = np.floor(sides / sides[:, ::-1])
        tokens = np.where(is_missing[:, ::-1], np.minimum(ratio, self.max_tokens), np.maximum(tokens, 1))
        is_possible = ~is_missing.all(axis=1) & (tokens.prod(axis=1) <= self.max_tokens)
        return np.where(is_possible[:, None], tokens * token_side, 0)

    def reason(self, height: int, width: int) -> str:
        return f"it rounds to no size with at most max_tokens={self.max_tokens} tokens: give a larger one"


@operator_function(TokenBudget)
def token_budget(
    shapes: Input,
    /,
    *,
    patch_size: Annotated[int, Range(1)],
    pool_size: Annotated[int, Range(1)],
    max_tokens: Annotated[int, Range(1)],
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """The size that Gemma 4 resizes an image to.

    The image is scaled to the area of `max_tokens` tokens, and its sides are rounded down to whole tokens, each a square
    of patches. Sizes are those of ``get_aspect_ratio_preserving_size`` in the model's image processor.

    Args:
      shapes: integers whose last axis begins with height and width, as of `peek_image_shape`: one image, or a sequence
        of images. A host value.
      patch_size: the side of a patch in pixels.
      pool_size: the side of the square of patches that becomes a token, in patches.
      max_tokens: the largest number of tokens.

    Returns:
      Height and width, int32 of the shape of the input, with 2 elements in the last axis. A host value. `resize` takes it
      as `size`.

    Raises:
      ArgumentError: the input is not integers.
      SampleError: an image is empty, or its size can't be rounded to a whole number of tokens, at most `max_tokens`.

    Example:
      >>> size = fn.sizes.token_budget(fn.peek_image_shape(jpegs), patch_size=16, pool_size=3, max_tokens=280)
    """
    ...
