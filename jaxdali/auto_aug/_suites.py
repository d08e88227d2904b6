"""What the three schemes share: translations, the seeds of their draws, and excluded augmentations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import types
from .._core.errors import ArgumentError
from .._core.graph import DataNode
from . import augmentations as a
from .core import Augmentation, select
from .core._augmentation import MissingArgument

Extent = float | tuple[float, float] | None


def translations(
    use_shape: bool, most_abs: Extent, most_rel: Extent, default_abs: float, default_rel: float
) -> list[Augmentation]:
    """Makes translations along x and y, up to a fraction of the image's shape or up to a number of pixels.

    Raises:
      ArgumentError: the limit that does not match `use_shape` is given.
    """
    if not isinstance(use_shape, bool):
        raise ArgumentError(f"use_shape must be True or False, got {use_shape!r}")
    wrong, other, needs = (
        (most_abs, "max_translate_abs", "without") if use_shape else (most_rel, "max_translate_rel", "with")
    )
    if wrong is not None:
        raise ArgumentError(f"{other} is for translations {needs} the images' shapes")
    most = (
        (default_rel if most_rel is None else most_rel)
        if use_shape
        else (default_abs if most_abs is None else most_abs)
    )
    height, width = pair("max_translate_rel" if use_shape else "max_translate_abs", most)
    x, y = (a.translate_x, a.translate_y) if use_shape else (a.translate_x_no_shape, a.translate_y_no_shape)
    return [x.augmentation((0, width), True), y.augmentation((0, height), True)]


def pair(name: str, most: float | tuple[float, float]) -> tuple[float, float]:
    """The largest translations along y and x. Raises ArgumentError if there are not one or two."""
    if isinstance(most, (list, tuple)) and len(most) != 2:
        raise ArgumentError(f"{name} must be one number, or two for the height and the width, got {most!r}")
    return (most[0], most[1]) if isinstance(most, (list, tuple)) else (most, most)


def seeds(seed: int | None, n: int) -> list[int]:
    """Seeds of n independent draws; -1: the pipeline's."""
    return [-1] * n if seed is None else [seed * n + i for i in range(n)]


def without(augmentations: Sequence[Augmentation], excluded: Sequence[str] | None) -> list[Augmentation]:
    """The augmentations that are not excluded. Raises ArgumentError for an unknown name."""
    names = [x.name for x in augmentations]
    for name in excluded or ():
        if name not in names:
            raise ArgumentError(f"excluded: there is no augmentation {name!r}; there are {', '.join(names)}")
    return [x for x in augmentations if x.name not in (excluded or ())]


def arguments(shape: Any, fill_value: Any, interp_type: types.DALIInterpType | None) -> dict[str, Any]:
    """The arguments that augmentations get by name."""
    given = {"fill_value": fill_value, "interp_type": interp_type}
    return given if shape is None else {**given, "shape": shape}


def chosen(augmentations: Sequence[Augmentation], which: DataNode, caller: str, **arguments: Any) -> DataNode:
    """`select`, with advice if the shape is missing."""
    try:
        return select(augmentations, which, **arguments)
    except MissingArgument as e:
        if e.names != ("shape",):
            raise
        raise ArgumentError(
            f"{caller}: {e}: pass it, e.g. as fn.peek_image_shape gives it, or use translate_x_no_shape and translate_y_no_shape"
        ) from e
