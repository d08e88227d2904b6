"""The augmentations of AutoAugment, RandAugment and TrivialAugment.

Each is called with the data, a magnitude bin and the number of bins. `Augmentation.augmentation` makes a copy with
other settings: ``shear_x.augmentation(mag_range=(0, 0.5))``. Images are HWC, sequences FHWC, of type uint8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import fn
from .._core import names as _names
from .._core.graph import DataNode
from ..fn import _augmentation as _operators
from .core import augmentation


def warp_x_param(magnitude: float) -> list[float]:
    """The parameter of a warp with a magnitude along x."""
    return [magnitude, 0]


def warp_y_param(magnitude: float) -> list[float]:
    """The parameter of a warp with a magnitude along y."""
    return [0, magnitude]


def shift_enhance_range(magnitude: float) -> float:
    """The factor of brightness, contrast or colour; 1 changes nothing."""
    return 1 + magnitude


def _warp_affine(data: DataNode, matrix: DataNode, fill_value: Any, interp_type: Any) -> DataNode:
    return fn.warp_affine(data, matrix=matrix, fill_value=fill_value, interp_type=interp_type, inverse_map=False)


@augmentation(mag_range=(0, 0.3), randomly_negate=True, mag_to_param=warp_x_param)
def shear_x(data: DataNode, shear: DataNode, fill_value: Any = 128, interp_type: Any = None) -> DataNode:
    """Shears along x."""
    return _warp_affine(data, fn.transforms.shear(shear=shear), fill_value, interp_type)


@augmentation(mag_range=(0, 0.3), randomly_negate=True, mag_to_param=warp_y_param)
def shear_y(data: DataNode, shear: DataNode, fill_value: Any = 128, interp_type: Any = None) -> DataNode:
    """Shears along y."""
    return _warp_affine(data, fn.transforms.shear(shear=shear), fill_value, interp_type)


@augmentation(mag_range=(0, 0.3), randomly_negate=True, mag_to_param=warp_x_param, name="shear_x")
def pixel_shear_x(data: DataNode, shear: DataNode, fill_value: Any = 128, interp_type: Any = None) -> DataNode:
    """Shears along x about the centre of the first pixel, as TensorFlow does, not about its corner."""
    return _warp_affine(data, fn.transforms.shear(shear=shear, center=(0.5, 0.5)), fill_value, interp_type)


@augmentation(mag_range=(0, 0.3), randomly_negate=True, mag_to_param=warp_y_param, name="shear_y")
def pixel_shear_y(data: DataNode, shear: DataNode, fill_value: Any = 128, interp_type: Any = None) -> DataNode:
    """Shears along y about the centre of the first pixel, as TensorFlow does, not about its corner."""
    return _warp_affine(data, fn.transforms.shear(shear=shear, center=(0.5, 0.5)), fill_value, interp_type)


@augmentation(mag_range=(0.0, 1.0), randomly_negate=True, mag_to_param=warp_x_param)
def translate_x(
    data: DataNode, rel_offset: DataNode, shape: Any, fill_value: Any = 128, interp_type: Any = None
) -> DataNode:
    """Translates along x, by a fraction of the width; `shape` is height and width."""
    return _warp_affine(data, fn.transforms.translation(offset=rel_offset * shape[1]), fill_value, interp_type)


@augmentation(mag_range=(0, 250), randomly_negate=True, mag_to_param=warp_x_param, name="translate_x")
def translate_x_no_shape(data: DataNode, offset: DataNode, fill_value: Any = 128, interp_type: Any = None) -> DataNode:
    """Translates along x, by pixels."""
    return _warp_affine(data, fn.transforms.translation(offset=offset), fill_value, interp_type)


@augmentation(mag_range=(0.0, 1.0), randomly_negate=True, mag_to_param=warp_y_param)
def translate_y(
    data: DataNode, rel_offset: DataNode, shape: Any, fill_value: Any = 128, interp_type: Any = None
) -> DataNode:
    """Translates along y, by a fraction of the height; `shape` is height and width."""
    return _warp_affine(data, fn.transforms.translation(offset=rel_offset * shape[0]), fill_value, interp_type)


@augmentation(mag_range=(0, 250), randomly_negate=True, mag_to_param=warp_y_param, name="translate_y")
def translate_y_no_shape(data: DataNode, offset: DataNode, fill_value: Any = 128, interp_type: Any = None) -> DataNode:
    """Translates along y, by pixels."""
    return _warp_affine(data, fn.transforms.translation(offset=offset), fill_value, interp_type)


@augmentation(mag_range=(0, 30), randomly_negate=True)
def rotate(
    data: DataNode, angle: DataNode, fill_value: Any = 128, interp_type: Any = None, rotate_keep_size: bool = True
) -> DataNode:
    """Rotates by degrees."""
    interp = {} if interp_type is None else {"interp_type": interp_type}
    return fn.rotate(data, angle=angle, fill_value=fill_value, keep_size=rotate_keep_size, **interp)


@augmentation(mag_range=(0, 0.9), randomly_negate=True, mag_to_param=shift_enhance_range)
def brightness(data: DataNode, parameter: DataNode) -> DataNode:
    """Multiplies the brightness by a factor."""
    return fn.brightness(data, brightness=parameter)


@augmentation(mag_range=(0, 0.9), randomly_negate=True, mag_to_param=shift_enhance_range)
def contrast(data: DataNode, parameter: DataNode) -> DataNode:
    """Multiplies the distance from the mean brightness of the image or frame by a factor, as Pillow does."""
    return _operators.contrasted(data, parameter)


@augmentation(mag_range=(0, 0.9), randomly_negate=True, mag_to_param=shift_enhance_range)
def color(data: DataNode, parameter: DataNode) -> DataNode:
    """Multiplies the saturation by a factor."""
    return fn.saturation(data, saturation=parameter)


@augmentation(mag_range=(0.1, 1.9), name="contrast")
def contrast_by_area(data: DataNode, parameter: DataNode) -> DataNode:
    """Multiplies the distance from the number of pixels / 256, which is the mean in TensorFlow's RandAugment, by a
    factor.
    """
    return _operators.contrasted_by_area(data, parameter)


@augmentation(mag_range=(0, 40))
def cutout(data: DataNode, radius: DataNode, fill_value: Any = 128) -> DataNode:
    """Fills a square with sides of twice the radius, at a random place. It may reach beyond the image."""
    center = fn.random.uniform(range=(0.0, 1.0), shape=(2,))
    # The centre is a fraction of the image's height and width, the square is in pixels.
    settings = {"normalized_anchor": True, "normalized_shape": False, "centered_anchor": True, "axis_names": "HW"}
    return fn.erase(data, anchor=center, shape=fn.stack(2 * radius, 2 * radius), fill_value=fill_value, **settings)


def sharpness_kernel(magnitude: float) -> np.ndarray:
    """The filter that blurs (-1), changes nothing (0) or sharpens (1)."""
    # Pillow's ImageFilter.SMOOTH.
    blur = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13
    unchanged = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]], np.float32)
    return (1 + magnitude) * unchanged - magnitude * blur


def sharpness_kernel_shifted(magnitude: float) -> np.ndarray:
    """The same as `sharpness_kernel`, with magnitudes 0 to 2 in place of -1 to 1."""
    return sharpness_kernel(magnitude - 1)


@augmentation(mag_range=(0, 0.9), randomly_negate=True, mag_to_param=sharpness_kernel)
def sharpness(data: DataNode, kernel: DataNode) -> DataNode:
    """Sharpens or blurs like Pillow, except for the outermost pixels."""
    return fn.filter(data, kernel)


def poster_mask_uint8(magnitude: float) -> np.ndarray:
    """The mask that keeps the given number of highest bits, at least 1."""
    bits = min(max(int(np.round(magnitude)), 1), 8)
    return np.array(256 - 2 ** (8 - bits), np.uint8)  # 0b11100000 for 3 bits


@augmentation(mag_range=(0, 4), mag_to_param=poster_mask_uint8)
def posterize(data: DataNode, mask: DataNode) -> DataNode:
    """Keeps the highest bits."""
    return _operators.posterized(data, mask)


@augmentation(mag_range=(256, 0))
def solarize(data: DataNode, threshold: DataNode) -> DataNode:
    """Inverts values that are at least a threshold."""
    return _operators.solarized(data, threshold)


def solarize_add_shift(shift: float) -> np.ndarray:
    """The shift as uint8; ValueError for one of 128 or more."""
    if shift >= 128:
        raise ValueError(f"solarize_add takes shifts below 128, got {shift}")
    return np.array(shift, np.uint8)


@augmentation(mag_range=(0, 110), mag_to_param=solarize_add_shift)
def solarize_add(data: DataNode, shift: DataNode) -> DataNode:
    """Brightens values below 128."""
    return _operators.shifted(data, shift)


@augmentation
def invert(data: DataNode, _: None) -> DataNode:
    """Inverts."""
    return _operators.inverted(data)


@augmentation
def equalize(data: DataNode, _: None) -> DataNode:
    """Equalizes the histogram of each channel, like OpenCV."""
    return fn.equalize(data)


@augmentation
def auto_contrast(data: DataNode, _: None) -> DataNode:
    """Stretches each channel to the whole range."""
    return _operators.stretched(data)


@augmentation
def identity(data: DataNode, _: None) -> DataNode:
    """Changes nothing."""
    return data


if not TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(
        __name__,
        globals(),
        "auto_contrast brightness color contrast contrast_by_area cutout equalize identity invert pixel_shear_x pixel_shear_y "
        "poster_mask_uint8 posterize rotate sharpness "
        "sharpness_kernel sharpness_kernel_shifted shear_x shear_y shift_enhance_range solarize solarize_add solarize_add_shift "
        "translate_x translate_x_no_shape translate_y translate_y_no_shape warp_x_param warp_y_param",
    )
