"""Warnings about probable mistakes: data that an operator accepts, but reads in another way than most users expect."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arguments import Arguments
from .values import Spec

_CHANNELS = (1, 3, 4)  # usual numbers of channels: gray, RGB, RGBA
_LAYOUTS = {3: "HWC", 4: "FHWC", 5: "FDHWC"}  # assumed for data without a layout, by number of dimensions


def flat_image_warning(image: Spec) -> str:
    """A warning about samples with two axes in an array that is passed to a function of values; "" if there is none.

    The array may be one image, whose rows are taken for samples.
    """
    # The samples may be rows, [W, C], of more than four pixels.
    if image.ndim != 2 or image.shape is None or image.layout or image.shape[1] not in _CHANNELS or image.shape[0] <= 4:
        return ""
    return (
        f"the samples have the shape {image.shape}, as the first axis of an array counts samples: for one image pass [x], or x[None]; "
        'of gray images jd.batch(x, layout="HW") says so'
    )


def image_layout_warning(image: Spec) -> str:
    """A warning about the axes of an image without a layout; "" if there is none."""
    extents = [image.extent(d) for d in range(image.ndim)]
    last_extent = extents[-1] if extents else None
    if image.layout or last_extent is None:
        return ""
    shape = f"({', '.join('?' if extent is None else str(extent) for extent in extents)})"
    usual = _LAYOUTS.get(image.ndim)
    if usual is None or last_extent <= 4:  # up to four channels are plausible
        return ""
    # The axis that may have the channels instead of the last one: the second (FCHW, FCDHW), or the first (CHW, CFHW).
    axis = next((d for d in range(min(image.ndim - 3, 1), -1, -1) if extents[d] in _CHANNELS), None)
    if axis is None:
        return ""
    spatial = usual.removesuffix("C")
    layout = f"{spatial[:axis]}C{spatial[axis:]}"
    perm = [layout.index(letter) for letter in usual]
    return (
        f"samples of the shape {shape} without a layout are read as {usual}, with {last_extent} channels: if they are {layout}, "
        f'fn.reshape(x, layout="{layout}") says so, and fn.transpose(x, perm={perm}) makes {usual} of them'
    )


def filtered_layout_warning(image: Spec) -> str:
    """A warning for an operator that filters all axes of data without a layout; "" if there is none."""
    if image.layout or image.ndim != 3:
        return ""
    first_extent, last_extent = image.extent(0), image.extent(2)
    if first_extent in _CHANNELS and (last_extent or 0) > 4:
        layout = "CHW"
    elif last_extent in _CHANNELS[1:] and first_extent not in range(5):
        layout = "HWC"
    else:
        return ""
    return (
        f"of samples without a layout all axes are filtered: if they are {layout}, their channels are mixed, too; "
        f'fn.reshape(x, layout="{layout}") says so'
    )


def byte_statistics_warning(mean: Any, stddev: Any) -> str:
    """A warning about means and deviations that are all below 1 although the input has bytes; "" if there is none.

    Args:
      mean, stddev: one number or several; None: the argument is not passed.
    """
    statistics = {
        name: np.atleast_1d(np.asarray(x, np.float64)) for name, x in (("mean", mean), ("std", stddev)) if x is not None
    }
    # A mean of 0 and a deviation of 1 change nothing, and a deviation of 0 has no scale: they don't tell it.
    statistics = {name: x for name, x in statistics.items() if ((x != 0) & (x != (name == "std"))).any()}
    if not statistics or any((np.abs(x) >= 1).any() for x in statistics.values()):
        return ""
    names = " and ".join(statistics)
    scaled = ", ".join(f"{name} {(255 * x).round(3).ravel()[:4].tolist()}" for name, x in statistics.items())
    return f"the numbers of {names} are below 1, as for images of 0..1, but the input has bytes, of 0..255: for these they are {scaled}"


def statistics_doubts(args: Arguments, scale: float, image: Spec) -> str:
    """`byte_statistics_warning` for the arguments `mean` and `std` of an operator that multiplies by `scale`."""
    is_static = args.is_static("mean") and args.is_static("std")
    # With another `scale`, the numbers may be meant for another range.
    if not is_static or scale != 1 or image.dtype != np.uint8:
        return ""
    return byte_statistics_warning(args.get("mean"), args.get("std"))
