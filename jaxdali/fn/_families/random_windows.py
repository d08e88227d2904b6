"""Random windows of images: `decoders.image_random_crop`, `random_resized_crop` and others draw theirs so."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import _cpu
from ..._core.errors import ArgumentError


def random_windows(
    u: np.ndarray, extents: np.ndarray, area: tuple[float, float], aspect_ratio: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Random windows as DALI chooses them.

    The first of several attempts counts whose window fits into the image and, rounded to pixels, still has an allowed
    aspect ratio. When none does, or none could be large enough, it is the largest window of the allowed aspect ratio
    nearest to the image's, shrunk to the largest allowed area.

    Args:
      u: ``[N, 2 + 2 * attempts]`` uniform in [0, 1): the place, the attempts' areas, their aspect ratios.
      extents: ``[N, 2]``, height and width of the images.
      area: range of the area, as a fraction of the image's. aspect_ratio: range of width by height.

    Returns:
      (start, size), ``f64[N, 2]`` each.
    """
    start, size = np.empty((len(u), 2)), np.empty((len(u), 2))
    _cpu.random_windows(
        np.ascontiguousarray(u), np.ascontiguousarray(extents, np.int64), area, aspect_ratio, start, size
    )
    return start, size


def random_range(argument: str, given: Any) -> tuple[float, float]:
    """A range of `image_random_crop`: two numbers, or one for both ends."""
    low, high = given if isinstance(given, tuple) else (given, given)
    if low > high:
        raise ArgumentError(f"{argument} must be (lowest, highest), got {given!r}")
    return low, high
