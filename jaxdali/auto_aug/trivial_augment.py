"""TrivialAugment (https://arxiv.org/abs/2103.10158): one random augmentation of random strength for each sample."""

from __future__ import annotations

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


def trivial_augment_wide(
    data: DataNode,
    num_magnitude_bins: int = 31,
    shape: DataNode | Sequence[int] | None = None,
    fill_value: int | None = 128,
    interp_type: types.DALIInterpType | None = None,
    max_translate_abs: _suites.Extent = None,
    max_translate_rel: _suites.Extent = None,
    seed: int | None = None,
    excluded: Sequence[str] | None = None,
) -> DataNode:
    """Applies one random augmentation of 14 to each sample, all equally likely, with a random magnitude.

    Example:
      >>> images = fn.resize(fn.decoders.image(jpegs), size=(224, 224))
      >>> images = trivial_augment.trivial_augment_wide(images, shape=(224, 224))

    Args:
      data: images HWC or sequences FHWC of type uint8, with 1 or 3 channels.
      num_magnitude_bins: the number of magnitude bins.
      shape: height and width, of all images or per sample; translations are then fractions of it.
      fill_value: the value of points outside an image that was sheared, translated or rotated; None: the nearest pixel.
      interp_type: the interpolation of these: INTERP_LINEAR (also None) or INTERP_NN.
      max_translate_abs: without `shape`, the largest translation in pixels, or (along y, along x). Default: 32.
      max_translate_rel: with `shape`, the largest translation as a fraction of it. Default: 1.
      seed: the seed of all draws. Differs from DALI, where the same seed correlates sign and magnitude with the choice.
      excluded: names of augmentations to leave out.

    Raises:
      ArgumentError: an argument is out of range, or can't be combined with another.
    """
    suite = get_trivial_augment_wide_suite(shape is not None, max_translate_abs, max_translate_rel)
    arguments = _suites.arguments(shape, fill_value, interp_type)
    return apply_trivial_augment(_suites.without(suite, excluded), data, num_magnitude_bins, seed, **arguments)


def apply_trivial_augment(
    augmentations: Sequence[Augmentation],
    data: DataNode,
    num_magnitude_bins: int = 31,
    seed: int | None = None,
    **kwargs: Any,
) -> DataNode:
    """Does the same as `trivial_augment_wide`, with user-defined augmentations.

    Args:
      augmentations: to choose from.
      data: the samples.
      num_magnitude_bins: the number of magnitude bins.
      seed: the seed of all draws; None: the pipeline's.
      **kwargs: further arguments of the augmentations; each gets those that it accepts.
    """
    if isinstance(num_magnitude_bins, bool) or not isinstance(num_magnitude_bins, int) or num_magnitude_bins < 1:
        raise ArgumentError(f"num_magnitude_bins must be a positive number, got {num_magnitude_bins!r}")
    if not augmentations:
        raise ArgumentError("apply_trivial_augment: there is no augmentation to choose from")
    check_used(augmentations, kwargs, "apply_trivial_augment")
    seed_of_choice, seed_of_bins, seed_of_signs = _suites.derived_seeds(seed, num_draws=3)
    index = fn.random.uniform(values=list(range(len(augmentations))), dtype=types.INT32, seed=seed_of_choice)
    bins = fn.random.uniform(values=list(range(num_magnitude_bins)), dtype=types.INT32, seed=seed_of_bins)
    magnitude: Any = signed_bin(bins, seed=seed_of_signs) if any(x.randomly_negate for x in augmentations) else bins
    arguments = {"data": data, "magnitude_bin": magnitude, "num_magnitude_bins": num_magnitude_bins, **kwargs}
    return _suites.select_augmentation(augmentations, index, "apply_trivial_augment", **arguments)


def get_trivial_augment_wide_suite(
    use_shape: bool = False, max_translate_abs: _suites.Extent = None, max_translate_rel: _suites.Extent = None
) -> list[Augmentation]:
    """The augmentations of `trivial_augment_wide`.

    Args:
      use_shape: whether translations are fractions of the image's shape.
      max_translate_abs: without `use_shape`, the largest translation in pixels, or (along y, along x). Default: 32.
      max_translate_rel: with `use_shape`, the largest translation as a fraction. Default: 1.
    """
    return [
        *_suites.translations(use_shape, max_translate_abs, max_translate_rel, default_abs=32, default_rel=1.0),
        a.shear_x.augmentation((0, 0.99), randomly_negate=True),
        a.shear_y.augmentation((0, 0.99), randomly_negate=True),
        a.rotate.augmentation((0, 135), randomly_negate=True),
        a.brightness.augmentation((0.01, 0.99), randomly_negate=True, mag_to_param=a.shift_enhance_range),
        a.contrast.augmentation((0.01, 0.99), randomly_negate=True, mag_to_param=a.shift_enhance_range),
        a.color.augmentation((0.01, 0.99), randomly_negate=True, mag_to_param=a.shift_enhance_range),
        a.sharpness.augmentation((0.01, 0.99), randomly_negate=True, mag_to_param=a.sharpness_kernel),
        a.posterize.augmentation((8, 2), randomly_negate=False, mag_to_param=a.poster_mask_uint8),
        a.solarize.augmentation((256, 0)),
        a.equalize,
        a.auto_contrast,
        a.identity,
    ]


if not TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(
        __name__, globals(), "apply_trivial_augment get_trivial_augment_wide_suite trivial_augment_wide"
    )
