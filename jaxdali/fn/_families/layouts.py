"""The layouts of images, and specs with some known extents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..._core.values import Spec

DEFAULT_LAYOUTS = {3: "HWC", 4: "FHWC", 5: "FDHWC"}
SPATIAL = "DHW"  # letters of the spatial axes: depth, height, width
# Advice for samples of two axes: gray images, or rows of an image that was taken for a batch.
NO_LAYOUT = "gray images have an axis of channels, images[..., None]; external_source needs batch=False if its source gives samples"
LAYOUT_ADVICE = '; fn.reshape(x, layout="HWC") gives images a layout, layout="DHWC" volumes'  # for names of axes, of data without a layout


def filtered_layout(spec: Spec, reads_images: bool) -> str:
    """The layout of data for an operator that filters spatial axes. Without a layout all axes are spatial, as in DALI,
    or where `Scope.reads_images` is set the data are HWC, FHWC or FDHWC, by their rank.
    """
    return spec.layout or (reads_images and DEFAULT_LAYOUTS.get(spec.ndim)) or SPATIAL[-spec.ndim :]


def image_layout(spec: Spec, among: Sequence[str] = ()) -> str:
    """The layout of an image, sequence or volume. Data without a layout count as HWC, FHWC or FDHWC, by their rank.

    Args:
      among: the layouts that are accepted. Empty: any with an axis H or W.

    Raises:
      ValueError: the layout is not accepted.
    """
    layout = spec.layout or DEFAULT_LAYOUTS.get(spec.ndim, "")
    if layout in among or (not among and set(layout) & set("HW")):
        return layout
    actual = f"layout {spec.layout!r}" if spec.layout else f"{spec.ndim}-D data without a layout"
    expected = f"layout {', '.join(among)}" if among else "a layout with the axes H and W"
    # Only the ranks whose default is accepted do without a layout.
    defaults = ", ".join(f"{n}-D: {name}" for n, name in DEFAULT_LAYOUTS.items() if not among or name in among)
    expected += f" or none ({defaults})" if defaults else ""
    advice = channels_missing(layout, among) or (f"; {NO_LAYOUT}" if not spec.layout and spec.ndim == 2 else "")
    raise ValueError(f"the input must have {expected}, got {actual}{advice}")


def depth_doubt(image: Spec, argument: str) -> str:
    """A warning about an argument for the depth of volumes, if the image has no layout and is read as one without depth;
    "" if there is none.

    Args:
      argument: the name of the argument; "": it is not given.
    """
    layout = DEFAULT_LAYOUTS.get(image.ndim, "")
    if not argument or image.layout or not layout or "D" in layout:
        return ""
    volume = "DHW" if image.ndim == 3 else "DHWC"
    return (
        f"argument {argument} is for volumes, but samples without a layout are read as {layout}: "
        f'fn.reshape(x, layout="{volume}") says that they are volumes'
    )


def channels_missing(layout: str, accepted: Iterable[str]) -> str:
    """The end of an error message about a layout that would be accepted with an axis of channels: how to add one. ""
    for other layouts.
    """
    advice = f'; fn.expand_dims(x, axes=[{len(layout)}], new_axis_names="C") adds the axis of channels'
    return advice if layout and f"{layout}C" in accepted else ""


def spec_of(dtype: np.dtype, extents: Sequence[int | None], layout: str) -> Spec:
    """The spec of an output with these extents. None: the extent varies. The shape is static if all are known."""
    known_extents = tuple(n for n in extents if n is not None)
    shape, dims = (known_extents, None) if len(known_extents) == len(extents) else (None, tuple(extents))
    return Spec(dtype, len(extents), shape, layout, dims)
