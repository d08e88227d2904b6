"""Crop, mirror, normalise, permute and pad in one step."""

from __future__ import annotations

import functools
from typing import Annotated, Literal, Unpack

import numpy as np

from ... import types
from ..._core.arguments import Values
from ..._core.context import HostContext
from ..._core.declaration import DType, Len, OneOf, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.input_warnings import statistics_doubts
from ..._core.operator import NativeOperator, ProgramOperator
from ..._core.operator_function import DTypeImageTypeHints, Input, ListOf, OneOrMore, PerSample, operator_function
from ..._core.values import Spec, Value
from .._families import Part, spec_of
from .._families.cropping import CropWindow, Policy, Rounding
from .._families.window import DenseWindow


class CropMirrorNormalize(CropWindow):
    """A crop that is mirrored, normalised, padded and permuted."""

    name = "crop_mirror_normalize"
    dtype: np.dtype  # of the output
    output_layout: str  # the axes of the output, in their order; "": those of the input
    pad_output: bool  # whether channels are added up to a power of two
    scale: float  # multiplies the normalised elements
    shift: float  # is added to them then

    def doubts(self, *specs: Spec) -> str:
        """A warning about `mean` and `std` that look as if they were for pixels of 0 ... 1, or about a depth; "" if
        there is none.
        """
        return statistics_doubts(self.args, self.scale, specs[0]) or super().doubts(*specs)

    @property
    def has_fill(self) -> bool:
        return self.pad_output or super().has_fill

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """The extents of the crop and of the padded channels, as far as they are known, in the order of
        `output_layout`.
        """
        layout = self.layout(image)
        out = self.output_layout or layout
        if sorted(out) != sorted(layout):
            raise ArgumentError(f"output_layout must have the axes of the input's layout {layout!r}, got {out!r}")
        extents = self.crop_extents(image)
        if self.pad_output and "C" in layout:
            channels = extents[layout.index("C")]
            extents[layout.index("C")] = None if channels is None else int(_padded(np.array(channels)))
        # `extents` is by axis of the input.
        return (spec_of(self.dtype, [extents[layout.index(letter)] for letter in out], out),)

    def mirrored(self, a: Values) -> np.ndarray | None:
        """A mask of the mirrored samples, ``bool[N]``; None: there are none."""
        return a.mirror != 0

    def part(self, ctx: HostContext, image: Value, a: Values) -> Part:
        """The crop of each sample, mirrored, with the scale and offset of its elements, and with more channels if
        `pad_output`.
        """
        layout = self.layout(image.spec)
        window = self.crop(ctx, image, a)
        if "W" in layout and (mirrored := self.mirrored(a)) is not None:
            window.flip(layout.index("W"), mirrored)
        # Checked once if neither the arguments nor the number of channels can change: later batches find the cached
        # numbers.
        has_fixed_channels = "C" not in layout or image.spec.extent(layout.index("C")) is not None
        for name in () if has_fixed_channels and a.samples in self._static_normalisation else ("mean", "std"):
            # The number of values for each sample. The spec may not know the number of channels: then the images tell
            # it.
            n = a[name].size // max(1, len(a[name]))
            if n != 1 and n != (image.spec.extent(layout.index("C")) if "C" in layout else 1):
                channels = image.shapes[:, layout.index("C")][ctx.present] if "C" in layout else np.ones(1, np.int64)
                if (channels != n).any():
                    is_row_per_sample = n == ctx.N * channels.max()
                    raise ArgumentError(
                        f"argument {name} must be 1 number or one per channel, got {n} for {channels.max()} channels"
                        + ("; external_source gives each sample a row" if is_row_per_sample else "")
                    )
        window.scale, window.offset = self._normalisation(a)
        if self.pad_output and "C" in layout:
            axis = layout.index("C")
            window.extent[:, axis] = _padded(window.extent[:, axis])
            if window.fill is None:
                window.fill = np.zeros((ctx.N, 1))
            elif window.fill.shape[1] > 1:  # The last number is that of all further channels, which are 0.
                window.fill = np.pad(window.fill, ((0, 0), (0, 1)))
        return window

    def _normalisation(self, a: Values) -> tuple[np.ndarray, np.ndarray]:
        """Scale and offset of the elements, ``f32[N, 1]`` or ``f32[N, channels]`` each."""
        is_static = self.args.is_static("mean") and self.args.is_static("std")
        if is_static and a.samples in self._static_normalisation:
            return self._static_normalisation[a.samples]
        mean, std = (a[name].reshape(len(a[name]), -1) for name in ("mean", "std"))
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = self.scale / std
            scale, offset = (x.astype(np.float32) for x in np.broadcast_arrays(scale, self.shift - mean * scale))
        if is_static:
            self._static_normalisation[a.samples] = scale, offset
        return scale, offset

    @functools.cached_property
    def _static_normalisation(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """A cache of `_normalisation` by the number of samples, for arguments that are the same in every batch."""
        return {}

    def divided(self, spec: Spec, out: Spec) -> tuple[NativeOperator, ProgramOperator] | None:
        """The CPU crops and mirrors in the input's type. The accelerator normalises, converts, permutes and pads."""
        # Fill is not normalised, but the second operator could not tell it from pixels.
        if out.shape is None or self.out_of_bounds_policy != "error":
            return None
        fields = {f.name: getattr(self, f.name) for f in self.fields()}
        first = _CropMirror(**{**fields, "dtype": spec.dtype, "output_layout": "", "pad_output": False})
        return first, DenseWindow(window=_Normalize(**fields), moves=False)


class _CropMirror(CropMirrorNormalize):
    """The first part of `divided`: the mirrored crop, on the host."""

    def part(self, ctx: HostContext, image: Value, a: Values) -> Part:
        window = super().part(ctx, image, a)
        window.scale = window.offset = None  # `_Normalize` scales
        return window


class _Normalize(CropMirrorNormalize):
    """The second part of `divided`: normalises, and pads the channels, of images that are cropped already."""

    def crop_extents(self, image: Spec) -> list[int | None]:
        return [image.extent(d) for d in range(image.ndim)]

    def crop(self, ctx: HostContext, image: Value, a: Values) -> Part:
        return Part.whole(image.shapes)

    def mirrored(self, a: Values) -> np.ndarray | None:
        return None


def _padded(channels: np.ndarray) -> np.ndarray:
    """The number of channels after `pad_output`: the next power of two."""
    return np.where(channels > 0, 2 ** np.ceil(np.log2(np.maximum(channels, 1))).astype(np.int64), 0)


@operator_function(CropMirrorNormalize)
def crop_mirror_normalize(
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
    dtype: Annotated[DType, OneOf("float32", "float16", "bfloat16", "uint8", "int8")] = types.FLOAT,
    fill_values: Annotated[OneOrMore[float], Range(infinite=True)] = 0.0,
    mean: PerSample[OneOrMore[float]] = 0.0,
    mirror: PerSample[int] = 0,
    out_of_bounds_policy: Policy = "error",
    output_layout: str = "CHW",
    pad_output: bool = False,
    rounding: Rounding = "round",
    scale: float = 1.0,
    shift: float = 0.0,
    std: PerSample[OneOrMore[float]] = 1.0,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[DTypeImageTypeHints],
) -> DataNode:
    """Crops and mirrors images, normalises them, ``scale * (x - mean) / std + shift``, and permutes their axes.

    Differs from DALI: when `fill_values` has one number per channel, a `mean` or `std` of one number still applies to
    all channels. DALI applies it to the first channel, and gives zeros in the others.

    Args:
      input: HWC, CHW, FHWC, FCHW, DHWC or another layout with the axes H and W; data without a layout are HWC, DHWC or
        FDHWC by their rank.
      crop: extents of the window in pixels, (H, W) or (D, H, W). Fractions are dropped; an extent below 1 means the
        image's. Default: the whole image. May be per sample.
      crop_d, crop_h, crop_w: the same extents, one by one; `crop_h` and `crop_w` must be given together. For sequences,
        `crop_d` counts frames; for images it is ignored. May be per sample.
      crop_pos_x, crop_pos_y, crop_pos_z: position of the window along each axis, from 0 (left, top, front) to 1. May be
        per sample.
      dtype: FLOAT, FLOAT16, BFLOAT16 (not in DALI), UINT8 or INT8; integers are rounded and saturated.
      fill_values: the value of elements outside the input, with the policy "pad": one number, or one per channel. For
        integer types the fraction is dropped, and values out of range wrap around, as in DALI. They are not normalised.
      out_of_bounds_policy: what happens when the window reaches outside the image. "error": the sample fails; "pad":
        the missing part is filled with `fill_values`; "trim_to_shape": the window is cut to the image.
      mean: the number subtracted, one or one per channel. May be per sample.
      mirror: if nonzero, left and right are exchanged. May be per sample.
      output_layout: layout of the result, a permutation of the input's; "" keeps the input's layout.
      pad_output: whether to pad the channels with zeros to the next power of two.
      rounding: how the window's position is rounded to a whole number: "round" (halves away from 0), "truncate" or (not
        in DALI) "torchvision", as its `CenterCrop` does (halves to even; towards 0 where the window is larger than the
        image).
      scale: the factor by which normalised values are multiplied.
      shift: the number added after that.
      std: the divisor, one number or one per channel. May be per sample.

    Returns:
      The normalised window in `output_layout`.

    Raises:
      ValueError: wrong layout, sizes or numbers of means. A sample whose window reaches outside fails when its batch is
        made.

    Example:
      >>> fn.crop_mirror_normalize(images, crop=(224, 224), mean=[124.0, 116.0, 104.0], std=[58.0, 57.0, 57.0])
    """
    ...
