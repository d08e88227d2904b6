"""The operators that decode images.

A decoder is two operators. `ImageHeaders` parses the headers of the whole batch on the host, and decodes the images
that the compiled program can't decode. `DecodeImage` decodes the others in the program. On the CPU, the program decodes
JPEG, PNG and WebP. On a GPU with native kernels, it decodes sequential JPEG (``ffi/cuda_jpeg/``). Progressive JPEG
arrives as coefficients, which the host has decoded, and all other images as finished pixels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ... import _cpu
from ..._core import ffi as _ffi
from ..._core.context import BuildContext, HostContext, LowerContext
from ..._core.operator import Operator, Setup
from ..._core.values import Spec, Value
from ..._cpu import Status
from .._families.layouts import spec_of
from .._families.window import Window
from .._families.window_regions import RegionAsWindow, window_of_region
from .._image.resize import Resize
from .._tensor.copy import Copy
from .decode_arguments import DecodeArguments
from .headers import ImageHeaders
from .info_rows import num_channels, output_shapes


class DecodeImage(DecodeArguments):
    """Decodes the outputs of `ImageHeaders` to images HWC."""

    def infer(self, payload: Spec, info: Spec, tables: Spec) -> tuple[Spec, ...]:
        return (spec_of(self.dtype, (*self.extents, num_channels(self.output_type)), "HWC"),)

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        """See `Operator.bind`."""
        # The payload is bytes, 1-D, unless `ImageHeaders` has decoded all images to arrays.
        if specs[0].ndim > 1:
            return Decoded()
        return dataclasses.replace(self, on_gpu=ctx.stage == "device" and self.kernel in ctx.kernels)

    def ahead_of(self, consumers: Sequence[Operator]) -> Operator:
        """See `Operator.ahead_of`. With `dct_scaling`, a resize that alone reads the images is noted as `resize`."""
        only_reader = consumers[0] if len(consumers) == 1 else None
        is_resize = self.dct_scaling and isinstance(only_reader, Resize)
        return dataclasses.replace(self, resize=only_reader) if is_resize else self

    def narrowed(
        self, maker: Operator, consumer: Operator, image: Spec, out: Spec
    ) -> tuple[Operator, Operator, Operator] | None:
        """See `StageOperator.narrowed`. The headers' operator chooses the region that the window `consumer` reads."""
        if (
            type(maker) is not ImageHeaders
            or maker.reader is not None
            or not self.on_gpu
            or not isinstance(consumer, Window)
        ):
            return None  # other headers choose regions already, and on the CPU the chain has the same effect
        if self.on_error != "raise" or maker.cache is not None:
            return None  # an image that replaces a failed one is read in another part, and the cache has whole images
        narrowed = window_of_region(consumer, image, out)
        if narrowed is None:  # the window reads whole images
            return None
        window, last = narrowed
        # `RegionAsWindow`: the decoded region is the window's output already, and has its extents.
        images = (
            dataclasses.replace(self, extents=(out.extent(0), out.extent(1)))
            if isinstance(last, RegionAsWindow)
            else self
        )
        return dataclasses.replace(maker, images=images, reader=window), images, last

    def informed(self, maker: Operator, consumer: Operator) -> Operator | None:
        """See `StageOperator.informed`. The headers' operator chooses scales by the sizes of a resize, which may come per
        sample.
        """
        if self.resize is None or not isinstance(consumer, Resize):
            return None
        if not self.resize.args.inputs or "roi_start" in self.resize.args:
            return None
        if type(maker) is not ImageHeaders or maker.on_gpu or maker.pixels is not None or maker.reads_sizes:
            return None
        return dataclasses.replace(maker, images=self, reads_sizes=True)

    def repairs(self, code: int) -> bool:
        # The host decodes what the kernels have refused; with "replace", another image takes the sample's place.
        return code == Status.REFUSED or self.on_error == "replace"

    def reason(self, setup: Setup, i: int, code: int) -> str:
        return self.failure(setup.params["info"][i], code)

    def setup(self, ctx: HostContext, payload: Value, info: Value, tables: Value) -> Setup:
        """See `ProgramOperator.setup`. The parameters are the info rows, and for GPU kernels the tables."""
        rows = info.data
        assert isinstance(rows, np.ndarray)
        shapes = None if ctx.spec.shape is not None else output_shapes(rows, self.output_type, self.adjust_orientation)
        if not self.on_gpu:
            return Setup((shapes,), {"info": rows})
        assert isinstance(tables.data, np.ndarray)
        return Setup(
            (shapes,), {"info": rows, "tables": tables.data}, scratch=_cpu.plan_jpeg_workspace(tables.data, ctx.S)
        )

    def call(self, ctx: LowerContext) -> _ffi.KernelCall:
        """See `StageOperator.call`. The operands are the info rows and the tables, which only GPU kernels need."""
        tables = ctx.params["tables"] if self.on_gpu else jnp.zeros((ctx.B, 0), jnp.int32)
        attrs = {
            "output_type": int(self.output_type),
            "adjust_orientation": self.adjust_orientation,
            "fast_idct": self.use_fast_idct,
        }
        return _ffi.KernelCall((ctx.params["info"], tables), attrs)

    def lower(self, ctx: LowerContext, image: Any, *arguments: Any) -> Any:
        call = self.call(ctx)
        memory = {"scratch": ctx.scratch, "group_bytes": _cpu.JPEG_GROUP_BYTES}
        y, status = _ffi.call("decode", ctx, image, ctx.spec, ctx.out[0], *call.params, **memory, **call.attrs)
        return (y,), status


class Decoded(Copy):
    """Passes on images HWC or volumes DHWC that `ImageHeaders` had registered decoders decode."""

    name = "decoders.image"

    def infer(self, pixels: Spec, *unused: Spec) -> tuple[Spec, ...]:
        return (pixels,)

    def setup(self, ctx: HostContext, pixels: Value, *unused: Value) -> Setup:
        return super().setup(ctx, pixels)

    def run(self, ctx: HostContext, pixels: Value, *unused: Value) -> tuple[Any, ...]:
        return super().run(ctx, pixels)

    def lower(self, ctx: LowerContext, pixels: Any, *unused: Any) -> tuple[Any, ...]:
        return super().lower(ctx, pixels)
