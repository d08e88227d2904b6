"""crop: a window of an image, of a given size."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ..._core.arguments import Values
from ..._core.context import HostContext
from ..._core.declaration import DType, Len, Range
from ..._core.graph import DataNode
from ..._core.operator_function import DTypeImageTypeHints, Input, ListOf, OneOrMore, PerSample, operator_function
from ..._core.values import Spec, Value
from .._families import Part, spec_of
from .._families.cropping import CropWindow, Policy, Rounding, converted


class Crop(CropWindow):
    """A crop, which may be converted to another element type."""

    name = "crop"
    dtype: np.dtype | None

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        return (spec_of(converted(image, self.dtype), self.crop_extents(image), self.layout(image)),)

    def is_plain_crop(self, image: Spec, out: Spec) -> bool:
        return not self.has_fill and out.dtype == image.dtype

    def part(self, ctx: HostContext, image: Value, a: Values) -> Part:
        return self.crop(ctx, image, a)


@operator_function(Crop)
def crop(
    input: Input,
    /,
    *,
    crop: Annotated[PerSample[ListOf[float]] | None, Len(2, 3)] = None,
    crop_d: PerSample[float] | None = None,
    crop_h: PerSample[float] | None = None,
    crop_pos_x: Annotated[PerSample[float], Range(0, 1)] = 0.5,
    crop_pos_y: Annotated[PerSample[float], Range(0, 1)] = 0.5,
    crop_pos_z: Annotated[PerSample[float], Range(0, 1)] = 0.5,
    crop_w: PerSample[float] | None = None,
    dtype: DType | None = None,
    fill_values: Annotated[OneOrMore[float], Range(infinite=True)] = 0.0,
    out_of_bounds_policy: Policy = "error",
    rounding: Rounding = "round",
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[DTypeImageTypeHints],
) -> DataNode:
    """Cuts a window out of images, sequences or volumes.

    Differs from DALI: with ``dtype=types.UINT8`` floats are rounded; DALI drops their fraction.

    Args:
      input: any layout with the axes H and W, e.g. HWC, CHW, FHWC, DHWC; data without a layout are HWC, DHWC or FDHWC
        by their rank. Any type.
      crop: extents of the window in pixels, (H, W) or (D, H, W). Fractions are dropped; an extent below 1 means the
        image's. Default: the whole image. May be per sample.
      crop_d, crop_h, crop_w: the same extents, one by one; `crop_h` and `crop_w` must be given together. For sequences,
        `crop_d` counts frames; for images it is ignored. May be per sample.
      crop_pos_x, crop_pos_y, crop_pos_z: position of the window along each axis, from 0 (left, top, front) to 1. May be
        per sample.
      dtype: element type of the result. Values are rounded and saturated. Default: the input's.
      fill_values: the value of elements outside the input, with the policy "pad": one number, or one per channel. For
        integer types the fraction is dropped, and values out of range wrap around, as in DALI.
      out_of_bounds_policy: what happens when the window reaches outside the image. "error": the sample fails; "pad":
        the missing part is filled with `fill_values`; "trim_to_shape": the window is cut to the image.
      rounding: how the window's position is rounded to a whole number: "round" (halves away from 0), "truncate" or (not
        in DALI) "torchvision", as its `CenterCrop` does (halves to even; towards 0 where the window is larger than the
        image).

    Returns:
      The window, in the input's layout.

    Raises:
      ValueError: wrong layout or sizes. A sample whose window reaches outside fails when its batch is made.

    Example:
      >>> fn.crop(images, crop=(224, 224), crop_pos_x=fn.random.uniform(range=(0.0, 1.0)))
    """
    ...
