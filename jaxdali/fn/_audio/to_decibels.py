"""Magnitudes in decibels."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from ..._core.context import HostContext, LowerContext
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import ProgramOperator, Setup
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.ragged import ALIGNMENT, Ragged
from ..._core.values import Spec, Value
from .._families.ragged import fit, samples_of_blocks, shapes_of
from .columns import check_floats, elements_of


class ToDecibels(ProgramOperator):
    """The logarithm of the ratio of each element to a reference."""

    name = "to_decibels"
    multiplier: float  # of the logarithm to the base 10: 10 for powers, 20 for amplitudes
    reference: float | None  # what 0 dB is; None: the largest element of each sample
    cutoff_db: float  # the lowest result

    def __post_init__(self):
        if self.reference == 0:
            raise ArgumentError("argument reference must not be 0")

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        check_floats(x)
        return (x,)

    def setup(self, ctx: HostContext, x: Value) -> Setup:
        return Setup((shapes_of(x),))

    def lower(self, ctx: LowerContext, x: Any) -> Any:
        """Converts a dense batch, or the blocks of a ragged buffer, relative to the reference of each sample."""
        out = ctx.out[0]
        if not isinstance(x, Ragged):
            return (self._decibels(x, self._dense_reference(x)),)
        assert out is not None
        x = fit(x, out)
        reference = self._ragged_reference(x, out)
        if self.reference is None:
            # A block is ALIGNMENT elements of one sample of the ragged buffer.
            reference = reference[samples_of_blocks(out.offsets, out.capacity)][:, None]
        return (Ragged(self._decibels(x.data.reshape(-1, ALIGNMENT), reference).reshape(-1), out.offsets, out.shapes),)

    def _dense_reference(self, x: Any) -> Any:
        """The reference of all samples, or of each sample, of a dense batch."""
        if self.reference is not None:
            return np.float32(self.reference)
        return _positive(jnp.max(x, axis=tuple(range(1, x.ndim)), keepdims=True, initial=0))

    def _ragged_reference(self, x: Ragged, out: Any) -> Any:
        """The reference of all samples, or of each sample, ``[B]``, of a ragged batch."""
        if self.reference is not None:
            return np.float32(self.reference)
        sample, local = elements_of(out)
        # Elements behind the end of a sample, up to the next block, do not count.
        is_element = local < jnp.prod(x.shapes, axis=1, dtype=jnp.int32)[sample][:, None]
        blocks = jnp.max(jnp.where(is_element, x.data.reshape(-1, ALIGNMENT), np.float32(0)), axis=1)
        return _positive(jax.ops.segment_max(blocks, sample, len(x.offsets), indices_are_sorted=True))

    def _decibels(self, x: Any, reference: Any) -> Any:
        """The elements in decibels relative to `reference`, at least `cutoff_db`."""
        # 2**-149 is the smallest number above 0 in float32.
        smallest = max(10.0 ** (self.cutoff_db / self.multiplier), 2.0**-149) if self.multiplier else 0.0
        ratio = x / reference
        is_above = ratio > np.float32(smallest)  # False for NaN, too, which DALI replaces by the smallest.
        # The result of the smallest ratio.
        floor = np.float32(self.multiplier * np.log10(smallest) if self.multiplier else 0)
        return jnp.where(
            is_above, np.float32(self.multiplier) * jnp.log10(jnp.where(is_above, ratio, np.float32(1))), floor
        )


def _positive(largest: Any) -> Any:
    """The largest element as the reference, or 1 if it is not above 0."""
    return jnp.where(largest > 0, largest, np.float32(1))


@operator_function(ToDecibels)
def to_decibels(
    input: Input,
    /,
    *,
    multiplier: float = 10.0,
    reference: float | None = None,
    cutoff_db: float = -200.0,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Magnitudes in decibels: ``multiplier * log10(max(input / reference, 10 ** (cutoff_db / multiplier)))``.

    Args:
      input: positive numbers, float32, of any shape.
      multiplier: 10 for power, 20 for amplitude. ``log(10)`` with ``reference=1`` gives natural logarithms.
      reference: the number that is 0 dB. Default: the largest number of each sample.
      cutoff_db: the lowest result, in decibels.

    Returns:
      float32, of the input's shape and layout.

    Raises:
      TypeError: the input is not float32.
      ArgumentError: `reference` is 0.

    Example:
      >>> decibels = fn.to_decibels(fn.spectrogram(audio), cutoff_db=-80)
    """
    ...
