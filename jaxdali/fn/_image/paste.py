"""Images on larger canvases."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ..._core.arguments import Values
from ..._core.context import HostContext
from ..._core.declaration import Range
from ..._core.errors import ArgumentError, InputTypeError
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, PerSample, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Status
from .._families import Part, Window, image_layout, spec_of


class Paste(Window):
    """A canvas with the image on it: a window of the canvas' size that reaches outside the image on all sides."""

    name = "paste"
    fill_value: tuple[int, ...] | int  # one number, or one for each channel
    n_channels: int | None  # the number of channels that images must have; None: any

    @property
    def has_fill(self) -> bool:
        return True

    def layout(self, image: Spec) -> str:
        return image_layout(image, ("HWC",))

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """A canvas with the image's channels. Its size is known if the image's is, and no argument comes per sample."""
        if image.dtype != np.uint8:
            raise InputTypeError(f"the input must be uint8, got {image.dtype}; multi_paste takes other types")
        layout = self.layout(image)
        channels, fills = image.extent(2), np.size(self.fill_value)
        if self.n_channels is not None and fills not in (1, self.n_channels):
            raise ArgumentError(f"argument fill_value must be 1 number or n_channels={self.n_channels}, got {fills}")
        for name, count in (("n_channels", self.n_channels), ("fill_value", fills if fills > 1 else None)):
            if count is not None and channels not in (None, count):
                raise ArgumentError(f"argument {name} is for images with {count} channels, the input has {channels}")
        extents: list[int | None] = [None, None, channels]
        height, width = image.extent(0), image.extent(1)
        # All samples have the same canvas: it is computed for one.
        if height is not None and width is not None and not self.args.inputs:
            extents[:2] = _canvas(np.array([[height, width]]), self.arguments(None, ()))[0].tolist()
        return (spec_of(image.dtype, extents, layout),)

    def part(self, ctx: HostContext, image: Value, a: Values) -> Part:
        """Windows of the size of the canvas. They begin before the image, at negative indices."""
        fill = np.atleast_1d(np.asarray(self.fill_value, np.float64))
        for i in np.flatnonzero((image.shapes[:, 2] != len(fill)) & ctx.present & (len(fill) > 1)):
            ctx.fail(
                int(i),
                Status.ARGUMENT,
                f"argument fill_value has {len(fill)} numbers for {image.shapes[i, 2]} channels",
            )
        window = Part.whole(image.shapes)
        canvas_size = _canvas(image.shapes[:, :2], a)
        # The free part of the canvas, above and to the left of the image, in float32.
        offset = np.column_stack([a.paste_y, a.paste_x]).astype(np.float32) * (
            canvas_size - image.shapes[:, :2]
        ).astype(np.float32)
        window.start[:, :2] = -offset.astype(np.int64)
        window.extent[:, :2] = canvas_size
        window.fill = np.tile(fill, (ctx.N, 1))
        return window


def _canvas(size: np.ndarray, a: Values) -> np.ndarray:
    """Heights and widths of the canvases, ``i64[N, 2]``, for images of the size ``i64[N, 2]``."""
    grown = (a.ratio.astype(np.float32)[:, None] * size.astype(np.float32)).astype(np.int64)
    return np.maximum(grown, a.min_canvas_size.astype(np.int64)[:, None])


@operator_function(Paste)
def paste(
    input: Input,
    /,
    *,
    fill_value: Annotated[OneOrMore[int], Range(0, 255)],
    ratio: Annotated[PerSample[float], Range(1)],
    min_canvas_size: Annotated[PerSample[float], Range(0)] = 0.0,
    n_channels: int | None = None,
    paste_x: Annotated[PerSample[float], Range(0, 1)] = 0.5,
    paste_y: Annotated[PerSample[float], Range(0, 1)] = 0.5,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Puts images on larger canvases.

    Args:
      input: HWC, uint8, any number of channels.
      fill_value: value of the canvas, one number or one per channel.
      ratio: extents of the canvas in units of the image's; fractions of a pixel are dropped. May be per sample.
      min_canvas_size: minimum height and width of the canvas, in pixels. May be per sample.
      n_channels: the number of channels that the images must have. Default: any (in DALI: 3).
      paste_x, paste_y: position of the image on the canvas, from 0 (left, top) to 1. May be per sample.

    Returns:
      The canvases, HWC.

    Raises:
      ValueError: wrong layout or number of channels. A sample with an argument outside its range fails when its batch
        is made.

    Example:
      >>> fn.paste(images, ratio=fn.random.uniform(range=(1.0, 2.0)), fill_value=(104, 117, 123))
    """
    ...
