"""The decorator of augmentations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..._core.errors import ArgumentError
from ._augmentation import Augmentation


def augmentation(
    function: Callable[..., Any] | None = None,
    *,
    mag_range: tuple[float, float] | np.ndarray | None = None,
    randomly_negate: bool | None = None,
    mag_to_param: Callable[[float], Any] | None = None,
    param_device: str | None = None,
    name: str | None = None,
    augmentation_cls: type[Augmentation] | None = None,
) -> Any:
    """Makes an augmentation of a function of the data and a parameter.

    Example:
      >>> @augmentation(mag_range=(0, 30), randomly_negate=True)
      ... def rotate(data, angle, fill_value=128):
      ...     return fn.rotate(data, angle=angle, fill_value=fill_value, keep_size=True)

    Args:
      function: gets the data and the parameter by position, what else it takes by name, and returns one DataNode.
      mag_range: the magnitudes of the first and of the last bin, those between evenly spaced; or an array of all. None: there are none, and
        the parameter is None.
      randomly_negate: whether the magnitude is negated for a random half of the samples.
      mag_to_param: makes the parameter of a magnitude, a number or array of one shape and type; called once for each bin. None: the
        magnitude itself.
      param_device: where the parameter is: "cpu", "gpu" or "auto": where the data are.
      name: default: the function's.
      augmentation_cls: a subclass of `Augmentation`.

    Raises:
      ArgumentError: `function` is not callable, takes less than two arguments, or is an augmentation already.
    """

    def decorate(f: Callable[..., Any]) -> Augmentation:
        if isinstance(f, Augmentation):
            raise ArgumentError(
                f"{f.name} is an augmentation already: use its method `augmentation` for other settings, or decorate its `op`"
            )
        if not callable(f):
            raise ArgumentError(f"augmentation decorates a function, got {f!r}")
        return (augmentation_cls or Augmentation)(f, mag_range, randomly_negate, mag_to_param, param_device, name)

    return decorate if function is None else decorate(function)
