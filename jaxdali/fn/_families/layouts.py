"""What an image's layout is, and specs of which some extents are known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..._core.values import Spec

DEFAULT_LAYOUTS = {3: "HWC", 4: "FHWC", 5: "FDHWC"}
SPATIAL = "DHW"


def image_layout(spec: Spec, among: Sequence[str] = ()) -> str:
    """The layout of an image, sequence or volume; without one it counts as HWC, FHWC or FDHWC, by its rank.

    Args:
      among: the layouts that are taken; none: any with an axis H or W.

    Raises:
      ValueError: it is another.
    """
    layout = spec.layout or DEFAULT_LAYOUTS.get(spec.ndim, "")
    if layout in among or (not among and set(layout) & set("HW")):
        return layout
    got = f"layout {spec.layout!r}" if spec.layout else f"{spec.ndim}-D data without a layout"
    known = f"layout {', '.join(among)}" if among else "a layout with the axes H and W"
    raise ValueError(
        f"the input must have {known} or none (3-D: HWC, 4-D: FHWC, 5-D: FDHWC), got {got}{channels_missing(layout, among)}"
    )


def channels_missing(layout: str, known: Iterable[str]) -> str:
    """How a message about a layout ends that would be known if it had channels; "" otherwise."""
    added = f'; fn.expand_dims(x, axes=[{len(layout)}], new_axis_names="C") adds the axis of channels'
    return added if layout and f"{layout}C" in known else ""


def spec_of(dtype: np.dtype, extents: Sequence[int | None], layout: str) -> Spec:
    """The spec of an output of which some extents are known (None: not)."""
    known = tuple(n for n in extents if n is not None)
    shape, dims = (known, None) if len(known) == len(extents) else (None, tuple(extents))
    return Spec(dtype, len(extents), shape, layout, dims)
