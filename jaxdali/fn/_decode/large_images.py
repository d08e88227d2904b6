"""Refuses images with more pixels than the limit, before they are decoded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..._cpu import Info, Status
from .coded_pictures import FORMATS as CODED_FORMATS
from .coded_pictures import largest_picture
from .formats import DecodeError


def refuse_large(info: np.ndarray, data: Callable[[int], np.ndarray], max_pixels: int) -> dict[int, str]:
    """Sets the status of images with too many pixels. Returns the reasons, by image.

    Args:
      data: returns the bytes of an image.
      max_pixels: the limit.
    """
    pixels = info[:, Info.HEIGHT].astype(np.int64) * info[:, Info.WIDTH]
    large = pixels > max_pixels
    refused = info[:, Info.STATUS] == Status.TOO_LARGE  # by the limits of what can be decoded, see image_header.h
    large &= info[:, Info.STATUS] == 0  # an image that has failed already keeps its status
    info[large, Info.STATUS] = Status.TOO_LARGE
    reasons = _refuse_large_pictures(info, data, max_pixels)
    if not (large | refused).any():
        return reasons
    for i in np.flatnonzero(large | refused).tolist():
        size, detail = f"{info[i, Info.WIDTH]} x {info[i, Info.HEIGHT]} pixels", ""
        # A header of digits (PNM) may state extents that int32 can't hold; the row has none then.
        if not pixels[i]:
            size = f"its header promises more than {np.iinfo(np.int32).max} pixels"
        elif refused[i] and pixels[i] <= max_pixels:
            channels = max(int(info[i, Info.CHANNELS]), 1)
            has_int32_size = pixels[i] * channels <= np.iinfo(np.int32).max
            detail = (
                ", which is more than its bytes can hold"
                if has_int32_size
                else f" of {channels} channels, more than {np.iinfo(np.int32).max} elements"
            )
        reasons[i] = f"the image is too large: {size}{detail}, max_pixels is {max_pixels}"
    return reasons


def _refuse_large_pictures(info: np.ndarray, data: Callable[[int], np.ndarray], max_pixels: int) -> dict[int, str]:
    """As `refuse_large`, for images of which libraries decode larger pictures than the header says."""
    reasons = {}
    for i in np.flatnonzero(np.isin(info[:, Info.FORMAT], CODED_FORMATS) & (info[:, Info.STATUS] == 0)).tolist():
        try:
            picture = largest_picture(data(i).data, info[i, Info.FORMAT])
            if picture.pixels > max_pixels:
                samples = f" of {picture.samples} samples" if picture.samples > 4 else ""
                text = f"{picture.kind} {picture.width} x {picture.height} pixels{samples}"
                raise DecodeError(Status.TOO_LARGE, f"the image is too large: {text}, max_pixels is {max_pixels}")
        except DecodeError as e:
            info[i, Info.STATUS], reasons[i] = e.code, str(e)
    return reasons
