"""RandAugment (https://arxiv.org/abs/1909.13719): some random augmentations, one after the other, all of one strength."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import fn, types
from .._core import names as _names
from .._core.errors import ArgumentError
from .._core.graph import DataNode
from . import _suites
from . import augmentations as a
from .core import Augmentation, signed_bin
from .core._augmentation import check_used


def rand_augment(
    data: DataNode,
    n: int,
    m: int,
    num_magnitude_bins: int = 31,
    shape: DataNode | Sequence[int] | None = None,
    fill_value: int | None = 128,
    interp_type: types.DALIInterpType | None = None,
    max_translate_abs: _suites.Extent = None,
    max_translate_rel: _suites.Extent = None,
    seed: int | None = None,
    monotonic_mag: bool = True,
    excluded: Sequence[str] | None = None,
) -> DataNode:
    """Applies n of 14 augmentations to each sample, each as likely as the others, with a magnitude of bin m.

    Args:
      data: images HWC or sequences FHWC of type uint8, with 1 or 3 channels.
      n: how many.
      m: their magnitude bin, 0 to ``num_magnitude_bins - 1``.
      num_magnitude_bins: how many steps magnitudes have.
      shape: height and width of the images, of all or for each; then translations are parts of it.
      fill_value: what is outside of an image that was sheared, moved or rotated; None: the nearest pixel.
      interp_type: INTERP_LINEAR (None) or INTERP_NN, of these.
      max_translate_abs: the furthest translation in pixels, or (along y, along x), without `shape`. Default: 100.
      max_translate_rel: the same as a part of `shape`. Default: 100 / 224.
      seed: of what is drawn. Differs from DALI, where one seed for all draws ties the sign to the choice.
      monotonic_mag: whether a larger bin is always a stronger change; False: the ranges of the paper.
      excluded: names of augmentations to leave out.

    Raises:
      ArgumentError: an argument is out of range, or does not go with another.
    """
    suite = get_rand_augment_suite if monotonic_mag else get_rand_augment_non_monotonic_suite
    found = _suites.without(suite(shape is not None, max_translate_abs, max_translate_rel), excluded)
    return apply_rand_augment(found, data, n, m, num_magnitude_bins, seed, **_suites.arguments(shape, fill_value, interp_type))


def apply_rand_augment(
    augmentations: Sequence[Augmentation],
    data: DataNode,
    n: int,
    m: int,
    num_magnitude_bins: int = 31,
    seed: int | None = None,
    **kwargs: Any,
) -> DataNode:
    """The same with augmentations of one's own.

    Args:
      augmentations: to choose from.
      data, n, m, num_magnitude_bins, seed: see `rand_augment`.
      **kwargs: further arguments of the augmentations; each gets those that it takes.
    """
    _check("n", n, 0)
    _check("num_magnitude_bins", num_magnitude_bins, 1)
    _check("m", m, 0, num_magnitude_bins - 1)
    if n == 0:
        warnings.warn("apply_rand_augment: n is 0, so nothing is applied", stacklevel=2)
        return data
    if not augmentations:
        raise ArgumentError("apply_rand_augment: there is no augmentation to choose from")
    check_used(augmentations, kwargs, "apply_rand_augment")
    one, sign = _suites.seeds(seed, 2)
    shape = () if n == 1 else (n,)
    which = fn.random.uniform(values=list(range(len(augmentations))), shape=shape, dtype=types.INT32, seed=one)
    signed = any(x.randomly_negate for x in augmentations)
    magnitude: Any = signed_bin(m, seed=sign, shape=shape) if signed else m
    for step in range(n):
        one_of, bin = (which, magnitude) if n == 1 else (which[step], magnitude[step] if signed else m)
        given = {"data": data, "magnitude_bin": bin, "num_magnitude_bins": num_magnitude_bins, **kwargs}
        data = _suites.chosen(augmentations, one_of, "apply_rand_augment", **given)
    return data


def _check(name: str, x: Any, least: int, most: int | None = None):
    if isinstance(x, bool) or not isinstance(x, int) or x < least or (most is not None and x > most):
        raise ArgumentError(f"{name} must be a whole number from {least}{'' if most is None else f' to {most}'}, got {x!r}")


def get_rand_augment_suite(
    use_shape: bool = False, max_translate_abs: _suites.Extent = None, max_translate_rel: _suites.Extent = None
) -> list[Augmentation]:
    """The augmentations of `rand_augment`.

    Args:
      use_shape: whether translations are parts of the image's shape.
      max_translate_abs, max_translate_rel: see there.
    """
    return [
        *_geometric(use_shape, max_translate_abs, max_translate_rel),
        a.brightness.augmentation((0, 0.9), True, a.shift_enhance_range),
        a.contrast.augmentation((0, 0.9), True, a.shift_enhance_range),
        a.color.augmentation((0, 0.9), True, a.shift_enhance_range),
        a.sharpness.augmentation((0, 0.9), True, a.sharpness_kernel),
        a.posterize.augmentation((8, 4), False, a.poster_mask_uint8),
        a.solarize.augmentation((256, 0)),
        a.equalize,
        a.auto_contrast,
        a.identity,
    ]


def get_rand_augment_non_monotonic_suite(
    use_shape: bool = False, max_translate_abs: _suites.Extent = None, max_translate_rel: _suites.Extent = None
) -> list[Augmentation]:
    """The same with the ranges of AutoAugment for colours, of which a larger bin need not be a stronger change."""
    return [
        *_geometric(use_shape, max_translate_abs, max_translate_rel),
        a.brightness.augmentation((0.1, 1.9), False, None),
        a.contrast.augmentation((0.1, 1.9), False, None),
        a.color.augmentation((0.1, 1.9), False, None),
        a.sharpness.augmentation((0.1, 1.9), False, a.sharpness_kernel_shifted),
        a.posterize.augmentation((0, 4), False, a.poster_mask_uint8),
        a.solarize.augmentation((0, 256), False, None),
        a.equalize,
        a.auto_contrast,
        a.identity,
    ]


def _geometric(use_shape: bool, most_abs: _suites.Extent, most_rel: _suites.Extent) -> list[Augmentation]:
    return [
        *_suites.translations(use_shape, most_abs, most_rel, 100, 100 / 224),
        a.shear_x.augmentation((0, 0.3), True),
        a.shear_y.augmentation((0, 0.3), True),
        a.rotate.augmentation((0, 30), True),
    ]


if not TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(
        __name__, globals(), "apply_rand_augment get_rand_augment_non_monotonic_suite get_rand_augment_suite rand_augment"
    )
