"""Random windows of images, as `decoders.image_random_crop`, `random_resized_crop` and others draw them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import _cpu
from ..._core.errors import ArgumentError


def random_windows(
    u: np.ndarray, extents: np.ndarray, area: tuple[float, float], aspect_ratio: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Random windows as DALI chooses them.

    Several windows are drawn. The result is the first one that fits into the image and, rounded to pixels, still has an
    allowed aspect ratio. If there is none, or if no window could be large enough, the result is the largest window with
    the allowed aspect ratio nearest to the image's, shrunk to the largest allowed area.

    Args:
      u: ``[N, 2 + 2 * attempts]`` uniform in [0, 1): two for the place, then the attempts' areas and aspect ratios.
      extents: ``[N, 2]``, height and width of the images.
      area: range of the window's area, as a fraction of the image's.
      aspect_ratio: range of width by height.

    Returns:
      (start, size), ``f64[N, 2]`` each.
    """
    start, size = np.empty((len(u), 2)), np.empty((len(u), 2))
    _cpu.random_windows(
        np.ascontiguousarray(u), np.ascontiguousarray(extents, np.int64), area, aspect_ratio, start, size
    )
    return start, size


def random_range(argument: str, value: Any) -> tuple[float, float]:
    """The lowest and highest number of an argument that is a range: two numbers, or one for both ends."""
    low, high = value if isinstance(value, tuple) else (value, value)
    if low > high:
        raise ArgumentError(f"{argument} must be (lowest, highest), got {value!r}")
    return low, high
