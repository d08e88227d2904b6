"""Helpers of the three schemes: translations, the seeds of random draws, and exclusion of augmentations."""

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
    use_shape: bool, max_abs: Extent, max_rel: Extent, default_abs: float, default_rel: float
) -> list[Augmentation]:
    """Makes translations along x and y, up to a fraction of the image's shape or up to a number of pixels.

    Args:
      use_shape: whether the limits are fractions.
      max_abs, max_rel: the limit in pixels and as a fraction, of which only one is used; None: its default.
      default_abs, default_rel: these defaults.

    Raises:
      ArgumentError: the limit that does not match `use_shape` is given.
    """
    if not isinstance(use_shape, bool):
        raise ArgumentError(f"use_shape must be True or False, got {use_shape!r}")
    unused, unused_name, preposition = (
        (max_abs, "max_translate_abs", "without") if use_shape else (max_rel, "max_translate_rel", "with")
    )
    if unused is not None:
        raise ArgumentError(f"{unused_name} is for translations {preposition} the images' shapes")
    extent = (
        (default_rel if max_rel is None else max_rel) if use_shape else (default_abs if max_abs is None else max_abs)
    )
    height, width = height_and_width("max_translate_rel" if use_shape else "max_translate_abs", extent)
    x, y = (a.translate_x, a.translate_y) if use_shape else (a.translate_x_no_shape, a.translate_y_no_shape)
    return [
        x.augmentation((0, width), randomly_negate=True),
        y.augmentation((0, height), randomly_negate=True),
    ]


def height_and_width(name: str, extent: float | tuple[float, float]) -> tuple[float, float]:
    """The largest translations along y and x, from one number or two. Raises ArgumentError for another number of them."""
    if isinstance(extent, (list, tuple)) and len(extent) != 2:
        raise ArgumentError(f"{name} must be one number, or two for the height and the width, got {extent!r}")
    return (extent[0], extent[1]) if isinstance(extent, (list, tuple)) else (extent, extent)


def derived_seeds(seed: int | None, num_draws: int) -> list[int]:
    """Seeds of independent draws from a user's seed. Without one they are -1, which stands for the pipeline's seed."""
    return [-1] * num_draws if seed is None else [seed * num_draws + i for i in range(num_draws)]


def without(augmentations: Sequence[Augmentation], excluded: Sequence[str] | None) -> list[Augmentation]:
    """The augmentations that are not excluded. Raises ArgumentError for an unknown name."""
    names = [x.name for x in augmentations]
    for name in excluded or ():
        if name not in names:
            raise ArgumentError(f"excluded: there is no augmentation {name!r}; there are {', '.join(names)}")
    return [x for x in augmentations if x.name not in (excluded or ())]


def arguments(shape: Any, fill_value: Any, interp_type: types.DALIInterpType | None) -> dict[str, Any]:
    """The arguments that augmentations get by name, if they take them."""
    arguments_of_all = {"fill_value": fill_value, "interp_type": interp_type}
    return arguments_of_all if shape is None else {**arguments_of_all, "shape": shape}


def select_augmentation(
    augmentations: Sequence[Augmentation], index: DataNode, caller: str, **arguments: Any
) -> DataNode:
    """Calls `select`, with advice in the error if the shape is missing."""
    try:
        return select(augmentations, index, **arguments)
    except MissingArgument as e:
        if e.names != ("shape",):
            raise
        raise ArgumentError(
            f"{caller}: {e}: pass it, e.g. as fn.peek_image_shape gives it, or use translate_x_no_shape and translate_y_no_shape"
        ) from e
