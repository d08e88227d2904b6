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
    """Makes an augmentation from a function of the data and a parameter.

    Example:
      >>> @augmentation(mag_range=(0, 30), randomly_negate=True)
      ... def rotate(data, angle, fill_value=128):
      ...     return fn.rotate(data, angle=angle, fill_value=fill_value, keep_size=True)

    Args:
      function: gets the data and the parameter by position, other arguments by name, and returns one DataNode.
      mag_range: the magnitudes of the first and the last bin, with the others evenly spaced between; or an array of
        all. None: there are no magnitudes, and the parameter is None.
      randomly_negate: whether the magnitude is negated for a random half of the samples.
      mag_to_param: makes the parameter from a magnitude: a number, or an array whose shape and type are the same for
        all bins. It is called once for each bin. None: the magnitude itself.
      param_device: where the parameter is: "cpu", "gpu", or "auto" for the place of the data.
      name: the name. Default: the function's name.
      augmentation_cls: a subclass of `Augmentation`.

    Raises:
      ArgumentError: `function` is not callable, takes fewer than two arguments, or is already an augmentation.
    """

    def decorate(f: Callable[..., Any]) -> Augmentation:
        """Makes the augmentation from its function."""
        if isinstance(f, Augmentation):
            raise ArgumentError(
                f"{f.name} is already an augmentation: use its method `augmentation` for other settings, or decorate its `op`"
            )
        if not callable(f):
            raise ArgumentError(f"augmentation decorates a function, got {f!r}")
        return (augmentation_cls or Augmentation)(f, mag_range, randomly_negate, mag_to_param, param_device, name)

    return decorate if function is None else decorate(function)  # with or without arguments
