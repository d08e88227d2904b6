"""RandAugment (https://arxiv.org/abs/1909.13719): random augmentations, one after the other, all of the same strength."""

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
    """Applies n random augmentations of 14 to each sample, all equally likely, with the magnitude of bin m.

    Args:
      data: images HWC or sequences FHWC of type uint8, with 1 or 3 channels.
      n: the number of augmentations.
      m: their magnitude bin, 0 to ``num_magnitude_bins - 1``.
      num_magnitude_bins: the number of magnitude bins.
      shape: height and width, of all images or per sample; translations are then fractions of it.
      fill_value: the value of points outside an image that was sheared, translated or rotated; None: the nearest pixel.
      interp_type: the interpolation of these: INTERP_LINEAR (also None) or INTERP_NN.
      max_translate_abs: without `shape`, the largest translation in pixels, or (along y, along x). Default: 100.
      max_translate_rel: with `shape`, the largest translation as a fraction of it. Default: 100 / 224.
      seed: the seed of all draws. Differs from DALI, where the same seed correlates the sign with the choice.
      monotonic_mag: whether a larger bin always means a stronger change; if False, the ranges are those of the paper.
      excluded: names of augmentations to leave out.

    Raises:
      ArgumentError: an argument is out of range, or can't be combined with another.
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
    """The same with user-defined augmentations.

    Args:
      augmentations: to choose from.
      data, n, m, num_magnitude_bins, seed: see `rand_augment`.
      **kwargs: further arguments of the augmentations; each gets those that it accepts.
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
      use_shape: whether translations are fractions of the image's shape.
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
    """The same with AutoAugment's ranges for colours, where a larger bin does not always mean a stronger change."""
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
