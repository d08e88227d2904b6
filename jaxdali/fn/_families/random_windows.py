"""Random windows of images: `decoders.image_random_crop`, `random_resized_crop` and others draw theirs so."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._core.errors import ArgumentError


def random_windows(
    u: np.ndarray, extents: np.ndarray, area: tuple[float, float], aspect_ratio: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Random windows as DALI chooses them.

    The first of several attempts counts whose window fits into the image and, rounded to pixels, still has an allowed aspect ratio. When
    none does, or none could be large enough, it is the largest window of the allowed aspect ratio nearest to the image's, shrunk to
    the largest allowed area.

    Args:
      u: ``[N, 2 + 2 * attempts]`` uniform in [0, 1): the place, the attempts' areas, their aspect ratios.
      extents: ``[N, 2]``, height and width of the images.
      area: range of the area, as a fraction of the image's. aspect_ratio: range of width by height.

    Returns:
      (start, size), ``f64[N, 2]`` each.
    """
    attempts = (u.shape[1] - 2) // 2
    height, width = (extents[:, i : i + 1].astype(np.float64) for i in (0, 1))
    narrow, wide = map(np.float32, aspect_ratio)  # DALI's precision: whole images of just the allowed ratio depend on it

    targets = (area[0] + (area[1] - area[0]) * u[:, 2 : 2 + attempts]) * (height * width)
    low, high = np.log(aspect_ratio)
    ratios = np.exp(low + (high - low) * u[:, 2 + attempts :])
    h, w = (np.maximum(np.floor(np.sqrt(x) + 0.5), 1) for x in (targets / ratios, targets * ratios))
    ratios = (w / h).astype(np.float32)
    fits = (h <= height) & (w <= width) & (ratios >= narrow) & (ratios <= wide)

    height, width = height[:, 0], width[:, 0]
    most = np.stack([width.astype(np.float32) * (1 / narrow), height.astype(np.float32) * wide], axis=1)
    best = np.maximum(np.minimum(np.floor(most), extents), 1)
    hopeless = best.prod(axis=1) < area[0] * height * width
    shrink = np.sqrt(np.minimum(area[1] * height * width / best.prod(axis=1), 1))
    best = np.maximum(np.floor(best * shrink[:, None]), 1)

    first = fits.argmax(axis=1)
    rows = np.arange(len(u))
    chosen = np.stack([h[rows, first], w[rows, first]], axis=1)
    size = np.where((fits.any(axis=1) & ~hopeless)[:, None], chosen, best)
    return np.floor(u[:, :2] * (extents - size + 1)), size


def random_range(argument: str, given: Any) -> tuple[float, float]:
    """A range of `image_random_crop`: two numbers, or one for both ends."""
    low, high = given if isinstance(given, tuple) else (given, given)
    if low > high:
        raise ArgumentError(f"{argument} must be (lowest, highest), got {given!r}")
    return low, high
