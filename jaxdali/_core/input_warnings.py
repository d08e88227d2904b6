"""Probable mistakes: data that an operator accepts, but reads in another way than most users who pass them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .values import Spec

_CHANNELS = (1, 3, 4)
_LAYOUTS = {3: "HWC", 4: "FHWC", 5: "FDHWC"}


def flat_image_warning(image: Spec) -> str:
    """A warning about samples of two axes in an array that a function of values is called with: they may be rows of one
    image.
    """
    if image.ndim != 2 or image.shape is None or image.layout or image.shape[1] not in _CHANNELS or image.shape[0] <= 4:
        return ""
    return (
        f"the samples have the shape {image.shape}, as the first axis of an array counts samples: for one image pass [x], or x[None]; "
        'of gray images jd.batch(x, layout="HW") says so'
    )


def image_layout_warning(image: Spec) -> str:
    """A warning about the axes of an image without a layout; "" if there is none."""
    extents = [image.extent(d) for d in range(image.ndim)]
    last = extents[-1] if extents else None
    if image.layout or last is None:
        return ""
    shape = f"({', '.join('?' if n is None else str(n) for n in extents)})"
    usual = _LAYOUTS.get(image.ndim)
    if usual is None or last <= 4:
        return ""
    axis = next((d for d in range(min(image.ndim - 3, 1), -1, -1) if extents[d] in _CHANNELS), None)
    if axis is None:
        return ""
    spatial = usual.removesuffix("C")
    layout = f"{spatial[:axis]}C{spatial[axis:]}"
    perm = [layout.index(letter) for letter in usual]
    return (
        f"samples of the shape {shape} without a layout are read as {usual}, with {last} channels: if they are {layout}, "
        f'fn.reshape(x, layout="{layout}") says so, and fn.transpose(x, perm={perm}) makes {usual} of them'
    )


def filtered_layout_warning(image: Spec) -> str:
    """The same of an operator that filters all axes of data without a layout."""
    if image.layout or image.ndim != 3 or image.extent(0) not in _CHANNELS or (image.extent(2) or 0) <= 4:
        return ""
    return (
        "of samples without a layout all axes are filtered: if they are CHW, their channels are mixed, too; "
        'fn.reshape(x, layout="CHW") says so'
    )


def byte_statistics_warning(mean: Any, stddev: Any) -> str:
    """A warning about means and deviations of bytes that are all below 1; "" if there is none.

    Args:
      mean, stddev: numbers; None: not given.
    """
    numbers = {
        name: np.atleast_1d(np.asarray(x, np.float64)) for name, x in (("mean", mean), ("std", stddev)) if x is not None
    }
    # Without those that change nothing.
    numbers = {name: x for name, x in numbers.items() if (x != (name == "std")).any()}
    if not numbers or any((np.abs(x) >= 1).any() for x in numbers.values()):
        return ""
    shown = " and ".join(numbers)
    of_bytes = ", ".join(f"{name} {(255 * x).round(3).ravel()[:4].tolist()}" for name, x in numbers.items())
    return f"the numbers of {shown} are below 1, as for images of 0..1, but the input has bytes, of 0..255: for these they are {of_bytes}"
