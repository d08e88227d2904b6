"""Resampling of a window of the resized image: only the window is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Unpack

import numpy as np

from ... import types
from ..._core.arguments import Values
from ..._core.context import HostContext
from ..._core.declaration import DType, Len, Range
from ..._core.graph import DataNode
from ..._core.operator_function import Input, ListOf, OneOrMore, PerSample, operator_function
from .._families.cropping import Rounding, crop_sizes, crop_start
from .resize import Resize, ResizeHints, spatial_axes

_CROP = ("crop", "crop_h", "crop_w", "crop_d")


class ResizeCropMirror(Resize):
    """A resize, of which only a window is computed. Bits 0, 1 and 2 of `mirror` stand for the axes W, H and D."""

    name = "resize_crop_mirror"
    sizeless = (*Resize.sizeless, "mirror", "crop_pos_x", "crop_pos_y", "crop_pos_z")
    rounding: Rounding
    save_attrs: bool = False

    def static_sizes(self, layout: str, extents: Sequence[int | None]) -> Sequence[int | None]:
        """The extents of the window if they are the same for every sample; otherwise None for each axis."""
        if not all(map(self.args.is_static, _CROP)):
            return [None] * len(extents)
        sizes = list(super().static_sizes(layout, extents))
        # A window extent of 0 means the whole axis.
        for k, n in _window(layout, self.arguments(None, ())).items():
            sizes[k] = int(n[0]) or sizes[k]
        return sizes

    def output_windows(
        self, ctx: HostContext, a: Values, sizes: np.ndarray, interval: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Extents of the crops, and the source intervals that they show, reversed along the axes that are mirrored."""
        layout = ctx.spec.layout
        first, count = spatial_axes(layout)
        start, extent = np.zeros_like(sizes), sizes.copy()
        for k, n in _window(layout, a).items():
            extent[:, k] = np.where(n > 0, n, sizes[:, k])
            start[:, k] = crop_start(layout[first + k], sizes[:, k] - extent[:, k], a, self.rounding)
        # The source interval per pixel of the resized image. In DALI's precision: nearest neighbours depend on it.
        step = (interval[..., 1] - interval[..., 0]) / np.maximum(sizes, 1).astype(np.float32)
        low = interval[..., 0] + start.astype(np.float32) * step
        window = np.stack([low, low + extent.astype(np.float32) * step], axis=-1)
        # Bit 0 of `mirror` is for W, bit 1 for H, and bit 2 for D.
        bits = np.array(["WHD".index(layout[first + k]) for k in range(count)])
        is_mirrored = (a.mirror[:, None] >> bits) & 1 != 0
        return extent, np.where(is_mirrored[..., None], window[..., ::-1], window)


def _window(layout: str, a: Values) -> dict[int, np.ndarray]:
    """The window's extents, ``i64[N]``, by spatial axis, counted from 0. As in DALI, frames are not cropped."""
    first, _ = spatial_axes(layout)
    return {d - first: n for d, n in crop_sizes(layout, a).items() if d >= first}


@operator_function(ResizeCropMirror)
def resize_crop_mirror(
    input: Input,
    /,
    *,
    antialias: bool = True,
    crop: Annotated[PerSample[ListOf[float]] | None, Len(2, 3)] = None,
    crop_d: PerSample[float] | None = None,
    crop_h: PerSample[float] | None = None,
    crop_pos_x: Annotated[PerSample[float], Range(0, 1)] = 0.5,
    crop_pos_y: Annotated[PerSample[float], Range(0, 1)] = 0.5,
    crop_pos_z: Annotated[PerSample[float], Range(0, 1)] = 0.5,
    crop_w: PerSample[float] | None = None,
    dtype: DType | None = None,
    interp_type: PerSample[types.DALIInterpType] = types.INTERP_LINEAR,
    mag_filter: PerSample[types.DALIInterpType] | None = None,
    max_size: PerSample[OneOrMore[float]] | None = None,
    min_filter: PerSample[types.DALIInterpType] | None = None,
    mirror: PerSample[int] = 0,
    mode: Literal["default", "stretch", "not_larger", "not_smaller"] | None = None,
    resize_longer: PerSample[float] | None = None,
    resize_shorter: PerSample[float] | None = None,
    resize_x: PerSample[float] | None = None,
    resize_y: PerSample[float] | None = None,
    resize_z: PerSample[float] | None = None,
    roi_end: PerSample[OneOrMore[float]] | None = None,
    roi_relative: bool = False,
    roi_start: PerSample[OneOrMore[float]] | None = None,
    rounding: Rounding = "round",
    size: PerSample[OneOrMore[float]] | None = None,
    subpixel_scale: bool = True,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[ResizeHints],
) -> DataNode:
    """Resizes, crops and mirrors as `resize`, `crop` and `flip` in turn, but computes only the window.

    Where the window reaches outside the resized image, the edge is repeated. Differs from DALI: with INTERP_NN, DALI
    reads whatever lies in memory outside the image, and may take either of two equally near pixels; `mirror` means the
    same axes in all layouts, where DALI mirrors other axes unless the spatial axes come first.

    Args:
      input: as in `resize`.
      crop, crop_d, crop_h, crop_w: extents of the window, as in `crop`. Default: the whole image. May be per sample.
      crop_pos_x, crop_pos_y, crop_pos_z: position of the window, from 0 to 1, as in `crop`. May be per sample.
      mirror: the sum of 1 (left and right are exchanged), 2 (top and bottom) and 4 (front and back). May be per sample.
      rounding: how the window's position is rounded to a whole number: "round" (halves away from 0), "truncate" or (not
        in DALI) "torchvision", as its `CenterCrop` does (halves to even; towards 0 where the window is larger than the
        image).
      antialias, dtype, interp_type, mag_filter, max_size, min_filter, mode: as in `resize`.
      resize_longer, resize_shorter, resize_x, resize_y, resize_z, size, subpixel_scale: as in `resize`.
      roi_start, roi_end, roi_relative: as in `resize`.

    Returns:
      The window, in the input's layout.

    Raises:
      ValueError, TypeError: as in `resize` and `crop`.

    Example:
      >>> fn.resize_crop_mirror(images, resize_shorter=256, crop=(224, 224), mirror=fn.random.coin_flip())
    """
    ...
