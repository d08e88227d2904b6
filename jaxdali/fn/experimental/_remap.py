"""experimental.remap: pixels gathered at the points of two maps."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Unpack

import numpy as np

from ... import types
from ..._core import ffi as _ffi
from ..._core.context import HostContext, LowerContext
from ..._core.declaration import OneOf
from ..._core.graph import DataNode
from ..._core.operator import Setup
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Points, Status
from .._families import PointGather


class Remap(PointGather):
    """Gathers pixels at points from two maps, one for each coordinate."""

    name = "experimental.remap"
    points = Points.GIVEN
    interp: types.DALIInterpType
    pixel_origin: str  # the point (0, 0) of the maps: the "corner" of the image, or the "center" of its first pixel

    @property
    def interpolation(self) -> types.DALIInterpType:
        return self.interp

    def setup_reads(self, i: int) -> bool:
        return False

    def _map_layout(self, image: Spec, m: Spec) -> str:
        """The layout of a map: HW, with F in front if there is a map for each frame, and C at the end if it has an axis
        of channels, of extent 1.
        """
        # The layouts that a map of this rank may have. Three axes are HWC, or, with a sequence, one map for each frame.
        frames, rank = "F" if image.ndim == 4 else "", m.ndim
        candidates = {2: ("HW",), 3: (f"{frames}HW", "HWC"), 4: ("FHWC",) * bool(frames)}.get(rank, ())
        layouts = [
            x
            for x in candidates
            if len(x) == rank and (not m.layout or x == m.layout or (x[0] == "F" and m.layout[0] == "F"))
        ]
        if not layouts:
            actual = f"layout {m.layout!r}" if m.layout else "no layout"
            expected = "HW, HWC, FHW or FHWC" if frames else "HW or HWC"
            raise ValueError(
                f"the maps of a {image.layout or 'HWC'} input must have the layout {expected}, got {rank}-D data with {actual}"
            )
        return layouts[0]

    def infer(self, image: Spec, *maps: Spec) -> tuple[Spec, ...]:
        """The input with the height and width of the maps."""
        sizes = []
        for m in maps:
            if m.dtype != np.float32:
                raise ValueError(f"the maps must be float32, got {m.dtype}")
            first = self._map_layout(image, m).index("H")
            sizes.append([m.extent(first), m.extent(first + 1)])
        # An extent that one map does not tell is that of the other.
        return (self.output(image, [x if x is not None else y for x, y in zip(*sizes, strict=True)]),)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        """Checks the maps, and makes the kernel's numbers: how many maps there are, and the offset that is added to
        coordinates. The kernel's points are relative to the image's corner.
        """
        image, x, y = values
        first = self._map_layout(image.spec, x.spec).index("H")
        # The number of maps: one, or one for each frame if the axis H is not the first.
        frames = x.shapes[:, 0] if first else np.ones(ctx.N, np.int64)
        is_different = ~(x.shapes == y.shapes).all(axis=1) if x.spec.ndim == y.spec.ndim else np.ones(ctx.N, bool)
        for i in np.flatnonzero(is_different & ctx.present):
            ctx.fail(
                int(i),
                Status.INPUT,
                f"both maps must have one shape, got {x.shapes[i].tolist()} and {y.shapes[i].tolist()}",
            )
        for i in np.flatnonzero((frames != 1) & (frames != image.shapes[:, 0]) & ctx.present):
            ctx.fail(
                int(i),
                Status.INPUT,
                f"there must be one map, or one for each of {image.shapes[i, 0]} frames; got {frames[i]}",
            )
        origin = np.full(ctx.N, 0.5 if self.pixel_origin == "center" else 0.0)
        return self.setup_of(ctx, image, np.column_stack([frames, origin]), size=x.shapes[:, first : first + 2])

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        map_x, map_y = ((data.reshape(-1), offsets) for data, offsets, _ in map(_ffi.flat, arrays[1:]))
        return self.lower_with(ctx, arrays[0], map_x, map_y)


@operator_function(Remap)
def remap(
    input: Input,
    mapx: Input,
    mapy: Input,
    /,
    *,
    interp: Annotated[
        types.DALIInterpType, OneOf(types.INTERP_NN, types.INTERP_LINEAR, types.INTERP_CUBIC)
    ] = types.INTERP_LINEAR,
    pixel_origin: Literal["corner", "center"] = "corner",
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Moves pixels of images by given maps.

    Pixel (x, y) of the result shows the point ``(mapx[y, x], mapy[y, x])`` of the image. Points outside are 0.

    DALI has this operator only on GPUs, where NPP computes it.

    Args:
      input: HWC or FHWC; uint8, int16, uint16, float32 or (not in DALI) float16, bfloat16; any number of channels (in
        DALI 1 or 3).
      mapx: x of the points, in pixels, float32: HW or HWC with one channel, as large as the result; for sequences also
        FHW or FHWC, with a map for each frame.
      mapy: y of the points, of the same shape.
      interp: INTERP_NN, INTERP_LINEAR or INTERP_CUBIC.
      pixel_origin: which point is (0, 0): the "corner" of the image, or the "center" of its first pixel, as in OpenCV.

    Returns:
      The mapped images, in the input's layout and type.

    Raises:
      ValueError: wrong layouts or element types. A sample whose two maps differ in shape fails when its batch is made.

    Example:
      >>> fn.experimental.remap(images, mapx, mapy, pixel_origin="center")
    """
    ...
