"""Windows of images of which only the part that they read is made; see Note [Parts of images]."""

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

# Where a part is in its image, a row of 5 numbers for each sample: the shape of the whole image, HWC, and the part's
# first row and column. These are -1 where a window's set-up fails.
PLACE = Spec(np.dtype(np.int64), 1, (5,))


@dataclasses.dataclass(frozen=True)
class Reader:
    """A window that alone reads images HWC.

    Attributes:
      window: the operator.
      image, out: specs of the whole image and of the window.
    """

    window: Window
    image: Spec
    out: Spec

    def setup(self, ctx: HostContext, shapes: np.ndarray, *arguments: Value) -> Setup:
        """What the window is in whole images.

        Args:
          shapes: of the whole images; arguments: the window's inputs behind the image.
        """
        return self.window.setup(dataclasses.replace(ctx, specs=(self.out,)), Value(self.image, shapes), *arguments)

    def part(self, ctx: HostContext, shapes: np.ndarray, *arguments: Value) -> tuple[np.ndarray, np.ndarray] | None:
        """The first row and column of the smallest part with all that the window reads, at least one pixel; and the
        part's extents, ``f64[N, 2]`` each. None: the set-up fails, as that of the window's own step will, which says
        why.
        """
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
        ends = start, start + step * np.maximum(extent - 1, 0)
        first = np.clip(np.minimum(*ends), 0, extents - 1)
        last = np.clip(np.maximum(*ends), first, extents - 1)
        return first.astype(np.float64), (last - first + 1).astype(np.float64)


class PartOfImage(ProgramOperator):
    """(the part that the window reads, its place, the window's arguments) -> the window, which is just that part."""

    reader: Reader

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.reader.window.name

    def infer(self, part: Spec, *others: Spec) -> tuple[Spec, ...]:
        return (part,)

    def setup_reads(self, i: int) -> bool:
        return i > 0

    def setup(self, ctx: HostContext, part: Value, place: Value, *arguments: Value) -> Setup:
        assert isinstance(place.data, np.ndarray)
        if (place.data[:, 3:] < 0).any():
            self.reader.setup(ctx, place.data[:, :3], *arguments)
        return Setup((shapes_of(part),))

    def lower(self, ctx: LowerContext, part: Any, *arguments: Any) -> tuple[Any, ...]:
        return (fit(part, ctx.out[0]) if isinstance(part, Ragged) else part,)


class WindowOfPart(StageOperator):
    """(the part of an image that the window reads, its place, the window's arguments) -> the window of the image."""

    kernel = "window"
    reader: Reader

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.reader.window.name

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        return (self.reader.out,)

    def setup(self, ctx: HostContext, part: Value, place: Value, *arguments: Value) -> Setup:
        assert isinstance(place.data, np.ndarray)
        whole = self.reader.setup(ctx, place.data[:, :3], *arguments)
        start = whole.params["start"].copy()
        start[:, :2] -= place.data[:, 3:].astype(np.int32)
        return Setup(whole.shapes, {**whole.params, "start": start})

    def call(self, ctx: LowerContext) -> _ffi.KernelCall:
        return self.reader.window.call(ctx)


def of_part(window: Window, image: Spec, out: Spec) -> tuple[Reader, NativeOperator | ProgramOperator] | None:
    """What a window becomes where only the part that it reads is made; None: it reads whole images."""
    if not window.cuts:
        return None
    reader = Reader(window, image, out)
    return reader, PartOfImage(reader=reader) if window.is_part(image, out) else WindowOfPart(reader=reader)
