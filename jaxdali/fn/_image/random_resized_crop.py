"""random_resized_crop: a random window, resized."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Unpack

import numpy as np

from ... import types
from ..._core.context import HostContext
from ..._core.declaration import DType, Len, Range
from ..._core.graph import DataNode
from ..._core.operator import Setup
from ..._core.operator_function import Input, OneOrMore, PerSample, SeededHints, operator_function
from ..._core.values import Spec, Value
from .._families.drawing import uniforms
from .._families.layouts import spec_of
from .._families.random_windows import random_range, random_windows
from .resize import MAX_EXTENT, Resampling, plan, spatial_axes


class RandomResizedCrop(Resampling):
    """Resamples a random window: it is the source interval of the resize."""

    name = "random_resized_crop"
    random = True
    layouts = ("HWC", "CHW", "FHWC", "FCHW", "CFHW")
    random_area: tuple[float, ...] | float  # range of the window's area, as a fraction of the image's
    random_aspect_ratio: tuple[float, ...] | float  # range of width by height
    num_attempts: int  # windows that are drawn at most until one fits into the image
    seed: int

    def __post_init__(self):
        # Raises ArgumentError for an invalid range.
        self._ranges()

    def _ranges(self) -> tuple[tuple[float, float], tuple[float, float]]:
        return random_range("random_area", self.random_area), random_range(
            "random_aspect_ratio", self.random_aspect_ratio
        )

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """The input with the height and width `size`; they vary if that comes per sample."""
        layout, dtype = self.output(image)
        self.args.check_width("size", 2, arguments, one_for_all=True)
        dims = [image.extent(d) for d in range(image.ndim)]
        size = (
            np.broadcast_to(np.asarray(self.args.get("size"), np.int64), 2).tolist()
            if self.args.is_static("size")
            else (None, None)
        )
        first, _ = spatial_axes(layout)
        dims[first : first + 2] = size
        return (spec_of(dtype, dims, layout),)

    def setup(self, ctx: HostContext, image: Value, *values: Value) -> Setup:
        """Draws the windows, and plans their resizing to `size`."""
        first, _ = spatial_axes(ctx.spec.layout)
        a = self.arguments(ctx, values)
        extents = image.shapes[:, first : first + 2]
        start, size = random_windows(uniforms(ctx, self.seed, 2 + 2 * self.num_attempts), extents, *self._ranges())
        request = a.vector("size", 2, one_for_all=True)
        assert request is not None
        # Fractions of `size` are dropped. All are valid: windows lie in the images, and `size` is at most MAX_EXTENT.
        sizes, interval, _ = plan(extents, np.floor(request), roi=(start, start + size))
        return self.setup_of(ctx, image, a, sizes, interval)


class RandomResizedCropHints(SeededHints, total=False):
    """Hints that only DALI uses."""

    minibatch_size: int | None
    temp_buffer_hint: int | None


@operator_function(RandomResizedCrop)
def random_resized_crop(
    input: Input,
    /,
    *,
    size: Annotated[PerSample[OneOrMore[float]], Range(1, MAX_EXTENT)],
    antialias: bool = True,
    dtype: DType | None = None,
    interp_type: PerSample[types.DALIInterpType] = types.INTERP_LINEAR,
    mag_filter: PerSample[types.DALIInterpType] | None = None,
    min_filter: PerSample[types.DALIInterpType] | None = None,
    num_attempts: Annotated[int, Range(1)] = 10,
    random_area: Annotated[float | Sequence[float], Len(2), Range(0)] = (0.08, 1.0),
    random_aspect_ratio: Annotated[float | Sequence[float], Len(2), Range(1e-6)] = (3 / 4, 4 / 3),
    seed: int = -1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[RandomResizedCropHints],
) -> DataNode:
    """Resizes a random window of each image, as usual for training.

    Filters also read pixels around the window, as in DALI; to read only the window's pixels, decode it with
    `decoders.image_random_crop`.
    Differs from DALI: the same seed gives other numbers.

    Args:
      input: as in `resize`, with layout HWC, CHW, FHWC, FCHW or CFHW; all frames of a sequence get the same window.
      size: (height, width) of the result, or one number for both; fractions are dropped. May be per sample.
      antialias, dtype, interp_type, mag_filter, min_filter: as in `resize`.
      num_attempts: how many windows are drawn at most until one fits into the image. If none does, the largest window
        of the nearest allowed aspect ratio is taken, at a random place.
      random_area: range of the window's area as a fraction of the image's; uniformly distributed.
      random_aspect_ratio: range of width divided by height; the logarithm is uniformly distributed.
      seed: fixes the random numbers regardless of the pipeline's seed and of the operator's place in the pipeline; a
        negative seed counts as not given. Operators with the same seed, ranges and `num_attempts` draw the same windows
        of images of the same shapes, such as an image and its mask.

    Returns:
      Images of the given size, in the input's layout.

    Raises:
      ValueError, TypeError: a range is empty, or an input type or layout is not supported.

    Example:
      >>> fn.random_resized_crop(images, size=(224, 224))
    """
    ...
