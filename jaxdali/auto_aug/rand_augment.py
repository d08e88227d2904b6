"""RandAugment (https://arxiv.org/abs/1909.13719): random augmentations, one after the other, all of the same strength."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .. import fn, types
from .._core import names as _names
from .._core.errors import ArgumentError
from .._core.graph import DataNode
from . import _suites
from . import augmentations as a
from .core import Augmentation, signed_bin
from .core._augmentation import check_used

_LEVELS = 31  # of TensorFlow's RandAugment


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
    suite: Literal["dali", "tensorflow"] = "dali",
) -> DataNode:
    """Applies n random augmentations of 14 to each sample, all equally likely, with the magnitude of bin m.

    With suite="tensorflow" (not in DALI) there are the 16 augmentations of RandAugment in TensorFlow's code
    (big_vision, scenic): also inversion, addition to dark pixels and a square that is cut out, but not identity. Then m
    is its level: 10 of 30 is the full strength of the paper, which larger levels exceed; colours hardly change at level
    5. Values are within one level of TensorFlow's, those of `equalize` within three; `sharpness` also changes the
    outermost pixels.

    Args:
      data: images HWC or sequences FHWC of type uint8, with 1 or 3 channels.
      n: the number of augmentations.
      m: their magnitude bin, 0 to ``num_magnitude_bins - 1``.
      num_magnitude_bins: the number of magnitude bins.
      shape: height and width, of all images or per sample; translations are then fractions of it.
      fill_value: the value of points outside an image that was sheared, translated or rotated; None: the nearest pixel.
      interp_type: the interpolation of these: INTERP_LINEAR or INTERP_NN; None: INTERP_LINEAR, and INTERP_NN with
        suite="tensorflow".
      max_translate_abs: without `shape`, the largest translation in pixels, or (along y, along x). Default: 100.
      max_translate_rel: with `shape`, the largest translation as a fraction of it. Default: 100 / 224.
      seed: the seed of all draws. Differs from DALI, where the same seed correlates the sign with the choice.
      monotonic_mag: whether a larger bin always means a stronger change; if False, the ranges are those of the paper.
      excluded: names of augmentations to leave out.
      suite: which augmentations, and what a magnitude means: "dali" or "tensorflow"; the latter has 31 levels and takes
        neither `shape` nor monotonic_mag=False.

    Raises:
      ArgumentError: an argument is out of range, or can't be combined with another.
    """
    if suite not in ("dali", "tensorflow"):
        raise ArgumentError(f"suite must be 'dali' or 'tensorflow', got {suite!r}")
    if suite == "tensorflow":
        if shape is not None or max_translate_rel is not None or not monotonic_mag or num_magnitude_bins != _LEVELS:
            raise ArgumentError(
                f"suite='tensorflow' has {_LEVELS} levels and translates by pixels: leave out shape, max_translate_rel, monotonic_mag and "
                "num_magnitude_bins"
            )
        augmentations = get_rand_augment_tensorflow_suite(max_translate_abs)
        interp_type = types.INTERP_NN if interp_type is None else interp_type
    else:
        make = get_rand_augment_suite if monotonic_mag else get_rand_augment_non_monotonic_suite
        augmentations = make(shape is not None, max_translate_abs, max_translate_rel)
    included = _suites.without(augmentations, excluded)
    return apply_rand_augment(
        included, data, n, m, num_magnitude_bins, seed, **_suites.arguments(shape, fill_value, interp_type)
    )


def apply_rand_augment(
    augmentations: Sequence[Augmentation],
    data: DataNode,
    n: int,
    m: int,
    num_magnitude_bins: int = 31,
    seed: int | None = None,
    **kwargs: Any,
) -> DataNode:
    """Does the same as `rand_augment`, with user-defined augmentations.

    Args:
      augmentations: to choose from.
      data: the samples.
      n: the number of augmentations that each sample gets.
      m: their magnitude bin, 0 to ``num_magnitude_bins - 1``.
      num_magnitude_bins: the number of magnitude bins.
      seed: the seed of all draws; None: the pipeline's.
      **kwargs: further arguments of the augmentations; each gets those that it accepts.
    """
    _check_integer("n", n, minimum=0)
    _check_integer("num_magnitude_bins", num_magnitude_bins, minimum=1)
    _check_integer("m", m, minimum=0, maximum=num_magnitude_bins - 1)
    if n == 0:
        warnings.warn("apply_rand_augment: n is 0, so nothing is applied", stacklevel=2)
        return data
    if not augmentations:
        raise ArgumentError("apply_rand_augment: there is no augmentation to choose from")
    check_used(augmentations, kwargs, "apply_rand_augment")
    seed_of_choice, seed_of_signs = _suites.derived_seeds(seed, num_draws=2)
    shape = () if n == 1 else (n,)  # of the draws of a sample: one for each augmentation
    indices = fn.random.uniform(
        values=list(range(len(augmentations))), shape=shape, dtype=types.INT32, seed=seed_of_choice
    )
    is_signed = any(x.randomly_negate for x in augmentations)
    magnitude: Any = signed_bin(m, seed=seed_of_signs, shape=shape) if is_signed else m
    for step in range(n):
        index, magnitude_bin = (indices, magnitude) if n == 1 else (indices[step], magnitude[step] if is_signed else m)
        arguments = {"data": data, "magnitude_bin": magnitude_bin, "num_magnitude_bins": num_magnitude_bins, **kwargs}
        data = _suites.select_augmentation(augmentations, index, "apply_rand_augment", **arguments)
    return data


def _check_integer(name: str, x: Any, minimum: int, maximum: int | None = None):
    """Raises ArgumentError unless `x` is a whole number in this range. `maximum` None: there is no limit."""
    if isinstance(x, bool) or not isinstance(x, int) or x < minimum or (maximum is not None and x > maximum):
        raise ArgumentError(
            f"{name} must be a whole number from {minimum}{'' if maximum is None else f' to {maximum}'}, got {x!r}"
        )


def get_rand_augment_suite(
    use_shape: bool = False, max_translate_abs: _suites.Extent = None, max_translate_rel: _suites.Extent = None
) -> list[Augmentation]:
    """The augmentations of `rand_augment`.

    Args:
      use_shape: whether translations are fractions of the image's shape.
      max_translate_abs: without `use_shape`, the largest translation in pixels, or (along y, along x). Default: 100.
      max_translate_rel: with `use_shape`, the largest translation as a fraction. Default: 100 / 224.
    """
    return [
        *_geometric(use_shape, max_translate_abs, max_translate_rel),
        a.brightness.augmentation((0, 0.9), randomly_negate=True, mag_to_param=a.shift_enhance_range),
        a.contrast.augmentation((0, 0.9), randomly_negate=True, mag_to_param=a.shift_enhance_range),
        a.color.augmentation((0, 0.9), randomly_negate=True, mag_to_param=a.shift_enhance_range),
        a.sharpness.augmentation((0, 0.9), randomly_negate=True, mag_to_param=a.sharpness_kernel),
        a.posterize.augmentation((8, 4), randomly_negate=False, mag_to_param=a.poster_mask_uint8),
        a.solarize.augmentation((256, 0)),
        a.equalize,
        a.auto_contrast,
        a.identity,
    ]


def get_rand_augment_non_monotonic_suite(
    use_shape: bool = False, max_translate_abs: _suites.Extent = None, max_translate_rel: _suites.Extent = None
) -> list[Augmentation]:
    """The augmentations of `rand_augment` with AutoAugment's ranges for colours, where a larger bin does not always
    mean a stronger change.
    """
    return [
        *_geometric(use_shape, max_translate_abs, max_translate_rel),
        a.brightness.augmentation((0.1, 1.9), randomly_negate=False, mag_to_param=None),
        a.contrast.augmentation((0.1, 1.9), randomly_negate=False, mag_to_param=None),
        a.color.augmentation((0.1, 1.9), randomly_negate=False, mag_to_param=None),
        a.sharpness.augmentation((0.1, 1.9), randomly_negate=False, mag_to_param=a.sharpness_kernel_shifted),
        a.posterize.augmentation((0, 4), randomly_negate=False, mag_to_param=a.poster_mask_uint8),
        a.solarize.augmentation((0, 256), randomly_negate=False, mag_to_param=None),
        a.equalize,
        a.auto_contrast,
        a.identity,
    ]


def get_rand_augment_tensorflow_suite(max_translate_abs: _suites.Extent = None) -> list[Augmentation]:
    """The augmentations of `rand_augment` with suite="tensorflow", whose magnitudes are those of the levels 0 to 30.

    Args:
      max_translate_abs: the largest translation of level 10 in pixels, or (along y, along x). Default: 100.
    """
    height, width = _suites.height_and_width(
        "max_translate_abs", 100 if max_translate_abs is None else max_translate_abs
    )
    # Level 10 has the full strength of the paper; other levels are in proportion.
    tenths = np.arange(_LEVELS) / 10

    # The magnitudes of all levels: fractions or degrees, and whole pixels, values or bits.
    def float_magnitudes(at_level_10: float) -> np.ndarray:
        return (tenths * at_level_10).astype(np.float32)

    def whole_magnitudes(at_level_10: float) -> np.ndarray:
        return np.trunc(tenths * at_level_10)

    factors = (tenths * 1.8 + 0.1).astype(np.float32)  # 0.1 at level 0, 1.9 at level 10; 1 changes nothing
    return [
        a.auto_contrast,
        a.equalize,
        a.invert,
        a.rotate.augmentation(float_magnitudes(30), randomly_negate=True),
        a.posterize.augmentation(whole_magnitudes(4), randomly_negate=False, mag_to_param=_mask_of_bits),
        a.solarize.augmentation(whole_magnitudes(256), randomly_negate=False, mag_to_param=None),
        a.color.augmentation(factors, randomly_negate=False, mag_to_param=None),
        a.contrast_by_area.augmentation(factors, randomly_negate=False, mag_to_param=None),
        a.brightness.augmentation(factors, randomly_negate=False, mag_to_param=None),
        a.sharpness.augmentation(factors, randomly_negate=False, mag_to_param=a.sharpness_kernel_shifted),
        a.pixel_shear_x.augmentation(float_magnitudes(0.3), randomly_negate=True),
        a.pixel_shear_y.augmentation(float_magnitudes(0.3), randomly_negate=True),
        a.translate_x_no_shape.augmentation(float_magnitudes(width), randomly_negate=True),
        a.translate_y_no_shape.augmentation(float_magnitudes(height), randomly_negate=True),
        a.cutout.augmentation(whole_magnitudes(40), randomly_negate=False, mag_to_param=None),
        a.solarize_add.augmentation(whole_magnitudes(110), randomly_negate=False, mag_to_param=_shift),
    ]


def _mask_of_bits(bits: float) -> np.ndarray:
    """The mask that keeps the given number of highest bits; unlike `poster_mask_uint8`, also 0."""
    return np.array(256 - 2 ** (8 - min(int(bits), 8)), np.uint8)  # 0b11100000 for 3 bits


def _shift(shift: float) -> np.ndarray:
    """The number that is added to dark pixels, at most 255."""
    return np.array(min(shift, 255), np.int32)


def _geometric(use_shape: bool, max_abs: _suites.Extent, max_rel: _suites.Extent) -> list[Augmentation]:
    """Translations, shears and rotation: the part that two suites share."""
    return [
        *_suites.translations(use_shape, max_abs, max_rel, default_abs=100, default_rel=100 / 224),
        a.shear_x.augmentation((0, 0.3), randomly_negate=True),
        a.shear_y.augmentation((0, 0.3), randomly_negate=True),
        a.rotate.augmentation((0, 30), randomly_negate=True),
    ]


if not TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(
        __name__,
        globals(),
        "apply_rand_augment get_rand_augment_non_monotonic_suite get_rand_augment_suite get_rand_augment_tensorflow_suite rand_augment",
    )
