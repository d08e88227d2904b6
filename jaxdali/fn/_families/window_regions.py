"""Windows of images of which a decoder makes only the region that they read; see Note [Parts of images]."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..._core import ffi as _ffi
from ..._core.context import HostContext, LowerContext
from ..._core.operator import NativeOperator, ProgramOperator, Setup, StageOperator
from ..._core.ragged import Ragged
from ..._core.values import Spec, Value
from .ragged import fit, shapes_of
from .window import Window

# The place of a region in its image, a row of 5 numbers for each sample: the shape of the whole image, HWC, and the
# region's first row and column. The last two are -1 if the set-up of the window fails.
PLACE = Spec(np.dtype(np.int64), 1, (5,))


@dataclasses.dataclass(frozen=True)
class ImageWindow:
    """A window that is the only consumer of an image HWC, with the specs of both.

    Attributes:
      window: the operator.
      image, out: specs of the whole image and of the window.
    """

    window: Window
    image: Spec
    out: Spec

    def setup(self, ctx: HostContext, shapes: np.ndarray, *arguments: Value) -> Setup:
        """The window's set-up for whole images.

        Args:
          shapes: the shapes of the whole images, ``i64[N, 3]``.
          arguments: the window's inputs behind the image.
        """
        return self.window.setup(dataclasses.replace(ctx, specs=(self.out,)), Value(self.image, shapes), *arguments)

    def region(self, ctx: HostContext, shapes: np.ndarray, *arguments: Value) -> tuple[np.ndarray, np.ndarray] | None:
        """The smallest region that has all pixels which the window reads, and at least one.

        Returns:
          The region's first row and column, and its extents, ``f64[N, 2]`` each. None: the set-up fails. The window's own
          step fails in the same way, and reports the reason.
        """
        # At least 1: an absent sample may have the extents 0, and the clipping below needs an index inside.
        extents, failed = np.maximum(shapes[:, :2], 1), list[int]()
        try:
            params = self.setup(
                dataclasses.replace(ctx, fail=lambda i, *_: failed.append(i)), shapes, *arguments
            ).params
        except Exception:
            return None
        if ctx.present[failed].any():
            return None
        start, step, extent = (params[name][:, :2].astype(np.int64) for name in ("start", "step", "extent"))
        ends = start, start + step * np.maximum(extent - 1, 0)  # in this order, or reversed where the step is negative
        first = np.clip(np.minimum(*ends), 0, extents - 1)
        last = np.clip(np.maximum(*ends), first, extents - 1)
        return first.astype(np.float64), (last - first + 1).astype(np.float64)


class RegionAsWindow(ProgramOperator):
    """A window that is exactly the region that was decoded for it, so that nothing is left to do.

    Its inputs are the region's pixels, the region's `PLACE`, and the window's arguments.
    """

    image_window: ImageWindow

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.image_window.window.name

    def infer(self, region: Spec, *others: Spec) -> tuple[Spec, ...]:
        return (region,)

    def setup_reads(self, i: int) -> bool:
        return i > 0

    def setup(self, ctx: HostContext, region: Value, place: Value, *arguments: Value) -> Setup:
        """The output has the shapes of the region. The window's own setup is only called to report its errors."""
        # A row of `place` is the shape of the whole image, and the region's first row and column, or -1.
        assert isinstance(place.data, np.ndarray)
        # There is no region for the batch, because a window's set-up fails: repeat it, so that it reports its errors.
        if (place.data[:, 3:] < 0).any():
            self.image_window.setup(ctx, place.data[:, :3], *arguments)
        return Setup((shapes_of(region),))

    def lower(self, ctx: LowerContext, region: Any, *arguments: Any) -> tuple[Any, ...]:
        return (fit(region, ctx.out[0]) if isinstance(region, Ragged) else region,)


class WindowOfRegion(StageOperator):
    """A window of an image of which only a region was decoded.

    Its inputs are the region's pixels, the region's `PLACE`, and the window's arguments.
    """

    kernel = "window"
    image_window: ImageWindow

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.image_window.window.name

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        return (self.image_window.out,)

    def setup(self, ctx: HostContext, region: Value, place: Value, *arguments: Value) -> Setup:
        """The window's own setup for the whole images, with first indices that count from the region's."""
        assert isinstance(place.data, np.ndarray)
        # A row of `place` is the shape of the whole image, and the region's first row and column.
        whole = self.image_window.setup(ctx, place.data[:, :3], *arguments)
        start = whole.params["start"].copy()
        start[:, :2] -= place.data[:, 3:].astype(np.int32)  # relative to the region
        return Setup(whole.shapes, {**whole.params, "start": start})

    def call(self, ctx: LowerContext) -> _ffi.KernelCall:
        return self.image_window.window.call(ctx)


def window_of_region(
    window: Window, image: Spec, out: Spec
) -> tuple[ImageWindow, NativeOperator | ProgramOperator] | None:
    """The window with its specs, and the operator that takes its place if a decoder makes only the region that the
    window reads. None: the window reads whole images.

    Args:
      window: the only consumer of the image.
      image, out: specs of the whole image and of the window.
    """
    if not window.reads_region:
        return None
    image_window = ImageWindow(window, image, out)
    # The decoded region is the output already: only errors are left to report.
    if window.is_plain_crop(image, out):
        return image_window, RegionAsWindow(image_window=image_window)
    return image_window, WindowOfRegion(image_window=image_window)
