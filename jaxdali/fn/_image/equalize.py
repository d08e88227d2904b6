"""Histogram equalization."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, Unpack

import jax.numpy as jnp
import numpy as np

from ..._core import ffi as _ffi
from ..._core.context import HostContext, LowerContext
from ..._core.graph import DataNode
from ..._core.operator import NativeOperator, Setup
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.ragged import Ragged
from ..._core.values import Spec, Value
from .._families import image_layout

_BINS = 256


class Equalize(NativeOperator):
    """The family of equalization: each plane, which is one channel of one frame, is mapped by a table from the
    histogram of the plane or of its tiles.
    """

    name = "equalize"
    kernel = "equalize"
    only_kernels = True

    @property
    def tiles(self) -> tuple[int, int]:
        """The number of tiles of a plane, vertically and horizontally."""
        return 1, 1

    @property
    def stretch(self) -> bool:
        """Whether the smallest value of a plane becomes 0."""
        return True

    @property
    def lightness(self) -> np.ndarray:
        """The tables of L*a*b* (`lab_tables`) if the only plane of images with three channels is their lightness;
        otherwise empty.
        """
        return np.zeros(0, np.int32)

    def takes_image(self, image: Spec) -> bool:
        return True

    def layout(self, image: Spec) -> str:
        """The input's layout. Raises ValueError for an unsupported one."""
        return (
            "HW"
            if image.ndim == 2 and not image.layout
            else image_layout(image, ("HW", "HWC", "CHW", "FHW", "FHWC", "FCHW"))
        )

    def limit(self, ctx: HostContext) -> np.ndarray:
        """The clip limit of CLAHE, ``[N]``: the largest count of one value in a tile's histogram, in units of the
        histogram's mean. 0: no limit.
        """
        return np.zeros(ctx.N)

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        if image.dtype != np.uint8:
            raise TypeError(f"the input must be uint8, got {image.dtype}")
        return (dataclasses.replace(image, layout=self.layout(image)),)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        """The clip limits, the place of each sample's tables in the working memory, and the shapes unless the spec has
        them.
        """
        image = values[0]
        spatial = [self.layout(image.spec).index(letter) for letter in "HW"]
        # One table of 256 numbers for each tile of each plane.
        planes = np.delete(image.shapes, spatial, axis=1).prod(axis=1)
        # By shard: each shard has working memory of its own.
        tables = (planes * np.prod(self.tiles)).reshape(ctx.S, ctx.B)
        first = np.cumsum(tables, axis=1) - tables  # of each sample, in the working memory of its shard
        limit = self.limit(ctx).astype(np.float32)
        params = {"limit": limit, "first": first.reshape(-1).astype(np.int32)}
        scratch = _BINS * int(tables.sum(axis=1).max(initial=1))
        return Setup((None if ctx.spec.shape is not None else image.shapes,), params, scratch=scratch)

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        """Calls the kernel, with working memory for the tables and for the partial histograms of GPUs."""
        image = arrays[0]
        elements = image.data.size if isinstance(image, Ragged) else image.size
        # GPUs make the histograms of parts of large tiles, and add them up: one of 256 counts of 4 bytes for each 8192
        # elements (`kElementsPerPart` in ffi/equalize). The CPU kernel leaves the working memory untouched.
        histograms = elements // 8192 * 4 * _BINS
        y, status = _ffi.call(
            "equalize",
            ctx,
            image,
            ctx.spec,
            ctx.out[0],
            ctx.params["limit"],
            ctx.params["first"],
            jnp.asarray(self.lightness),
            scratch=ctx.scratch + histograms,
            height_axis=self.layout(ctx.inputs[0]).index("H"),
            tiles_y=self.tiles[0],
            tiles_x=self.tiles[1],
            stretch=self.stretch,
        )
        return (y,), status


@operator_function(Equalize)
def equalize(
    input: Input,
    /,
    *,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Equalizes the histogram of each channel, in each frame.

    The smallest value becomes 0 and the largest 255; values between are placed by how many pixels lie below them. A
    channel with a single value does not change. The results equal those of DALI's CPU operator (OpenCV's
    ``equalizeHist``) on every device; the tables of Pillow and torchvision are others.

    Args:
      input: uint8 images or sequences, HW, HWC, CHW, FHW, FHWC or FCHW; without a layout HW, HWC or FHWC.

    Returns:
      The input's shape and layout.

    Raises:
      TypeError: the input is not uint8.
      ValueError: wrong layout.

    Example:
      >>> fn.equalize(images)
    """
    ...
