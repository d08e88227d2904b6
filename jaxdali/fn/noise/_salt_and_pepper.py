"""Salt-and-pepper noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Unpack

import jax.numpy as jnp
import numpy as np

from ..._core.context import HostContext
from ..._core.declaration import Range
from ..._core.graph import DataNode
from ..._core.operator_function import Input, PerSample, SeededHints, operator_function
from ..._core.values import Spec, Value
from ...types import is_float
from .._families.conversion import convert
from .._families.ragged import quotient
from ._noise import Key, Noise, uniform


class SaltAndPepper(Noise):
    """Replaces random elements, or whole pixels, by the salt or the pepper value."""

    name = "noise.salt_and_pepper"
    per_channel: bool  # whether each channel of a pixel is replaced on its own

    def channel(self, x: Spec) -> int:
        """The axis of channels; -1 if there is none. Without a layout it is the last axis."""
        return x.layout.find("C") if x.layout else x.ndim - 1

    def infer(self, x: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        if self.per_channel and self.channel(x) < 0:
            raise ValueError(f"per_channel needs a layout with an axis C, or none; got {x.layout!r}")
        return super().infer(x)

    def numbers(self, ctx: HostContext, values: Sequence[Value]) -> Mapping[str, np.ndarray]:
        """The parameters of each sample, see `Noise.numbers`. `channels` and `inner` tell the place of the axis of
        channels, whose elements are replaced together: without `channels` each element counts as a pixel, and without
        `inner` the axis is the last one.
        """
        a, image = self.arguments(ctx, values), values[0]
        dtype, axis = image.spec.dtype, self.channel(image.spec)
        lowest, highest = (-1, 1) if is_float(dtype) else (np.iinfo(dtype).min, np.iinfo(dtype).max)

        def value(name: str, default: float) -> np.ndarray:
            argument = a.get(name)
            return np.full(ctx.N, default, dtype) if argument is None else convert(np, argument, dtype)

        numbers = {
            "prob": a.prob.astype(np.float32),
            "salt_vs_pepper": a.salt_vs_pepper.astype(np.float32),
            "salt": value("salt_val", highest),
            "pepper": value("pepper_val", lowest),
        }
        if axis >= 0 and not self.per_channel:
            numbers["channels"] = np.maximum(image.shapes[:, axis], 1).astype(np.int32)
            if axis < image.spec.ndim - 1:
                numbers["inner"] = np.maximum(image.shapes[:, axis + 1 :].prod(axis=1), 1).astype(np.int32)
        return numbers

    def key_index(self, index: Any, channels: Any = None, inner: Any = None, **numbers: Any) -> Any:
        # The index of the pixel: that of the element, without the axis of channels ``[outer, channels, inner]``.
        if channels is None:
            return index
        if inner is None:
            return quotient(index, channels)
        return quotient(index, channels * inner) * inner + index - quotient(index, inner) * inner

    def element(self, x: Any, keys: Key, prob: Any, salt_vs_pepper: Any, salt: Any, pepper: Any, **numbers: Any) -> Any:
        u_changed, u_salt = uniform(keys)
        return jnp.where(u_changed <= prob, jnp.where(u_salt <= salt_vs_pepper, salt, pepper), x)


@operator_function(SaltAndPepper)
def salt_and_pepper(
    input: Input,
    /,
    *,
    prob: Annotated[PerSample[float], Range(0, 1)] = 0.05,
    salt_vs_pepper: Annotated[PerSample[float], Range(0, 1)] = 0.5,
    salt_val: PerSample[float] | None = None,
    pepper_val: PerSample[float] | None = None,
    per_channel: bool = False,
    seed: int = -1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """Replaces random pixels by one of two values.

    Args:
      input: any tensor of integers or floats.
      prob: probability that a pixel is replaced. May be per sample.
      salt_vs_pepper: probability that a replaced pixel is salt. May be per sample.
      salt_val: the value of salt, rounded and saturated. Default: the largest value of the input's type, 1 for floats.
        May be per sample.
      pepper_val: the value of pepper, rounded and saturated. Default: the smallest value of the input's type, -1 for
        floats. May be per sample.
      per_channel: whether each channel of a pixel is replaced independently. Default: all channels together. Channels
        are the layout's axis C, or the last axis without a layout; with a layout without C, pixels have one channel.
      seed: a seed for this operator only. Default: the pipeline's seed. The same seed gives other noise in DALI.

    Returns:
      The input's shape, type and layout.

    Raises:
      TypeError: the input is bool.
      ValueError: `per_channel` with a layout without C.

    Example:
      >>> fn.noise.salt_and_pepper(images, prob=0.1)
    """
    ...
