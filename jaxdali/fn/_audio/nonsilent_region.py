"""nonsilent_region: the start and length of the part of a signal between leading and trailing silence."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Unpack

import numpy as np

from ... import _cpu
from ..._core.arguments import Arguments
from ..._core.building import add, as_node, is_node
from ..._core.context import HostContext
from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator
from ..._core.operator_function import Hints, Input, PerSample, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Status
from .._tensor.copy import copy_to

_TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32")


def nonsilent(x: np.ndarray, window: int, cutoff_db: float, reference: float | None) -> tuple[int, int]:
    """The start and the length of the nonsilent region of a signal; (0, 0) if all of it is silent.

    The region goes from the first window whose mean power reaches the threshold to the end of the last such window. The
    threshold is `cutoff_db` relative to `reference`, or to the largest mean power if that is None.
    """
    if not len(x):
        return 0, 0
    window = min(window, len(x))
    power = np.empty(len(x) - window + 1, np.float32)
    _cpu.mean_powers(np.square(x, dtype=np.float64), window, power)
    threshold = np.float32((power.max() if reference is None else reference) * 10.0 ** (cutoff_db / 10))
    is_loud = power >= threshold
    begin, end = int(is_loud.argmax()), len(is_loud) - int(is_loud[::-1].argmax())
    return (begin, end - 1 - begin + window) if is_loud[begin] else (0, 0)


class NonsilentRegion(HostOperator):
    """Compares the mean power of each window with a threshold."""

    name = "nonsilent_region"

    @property
    def num_outputs(self) -> int:
        return 2

    def infer(self, x: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        if x.ndim != 1:
            raise ArgumentError(f"the input must be a 1-D signal, got {x.ndim}-D data")
        if x.dtype.name not in _TYPES:
            raise TypeError(f"the input must be integers or float32, got {x.dtype}")
        return (Spec(np.dtype(np.int32), 0, ()),) * 2

    def run(self, ctx: HostContext, x: Value, *arguments: Value) -> tuple[Any, ...]:
        """Finds the region of each sample. It is (0, 0) for one that failed or is not present."""
        a = self.arguments(ctx, arguments)
        reference, reset = a.get("reference_power"), a.reset_interval
        regions = np.zeros((2, ctx.N), np.int32)
        for i in np.flatnonzero(ctx.present).tolist():
            window = int(a.window_length[i])
            # Only checked, as in DALI: here sums are exact, so that powers need not be added up anew.
            if x.spec.dtype.kind == "f" and reset[i] != -1 and reset[i] % window:
                reason = f"argument reset_interval must be -1 or a multiple of window_length={window}, got {reset[i]}"
                ctx.fail(i, Status.ARGUMENT, reason)
                continue
            regions[:, i] = nonsilent(
                x.sample(i), window, a.cutoff_db[i], None if reference is None else float(reference[i])
            )
        return tuple(regions)


@operator_function("nonsilent_region")
def nonsilent_region(
    input: Input,
    /,
    *,
    cutoff_db: PerSample[float] = -60.0,
    window_length: Annotated[PerSample[int], Range(1)] = 2048,
    reference_power: Annotated[PerSample[float] | None, Range(0, above=True)] = None,
    reset_interval: Annotated[PerSample[int], Range(-1)] = 8192,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> list[DataNode]:
    """Finds the part of signals that lies between the silence at their beginning and at their end.

    A window is silent where its mean power is below the cutoff. Computed on the host.

    Args:
      input: 1-D signals, float32 or integers.
      cutoff_db: where silence ends, in decibels relative to the reference. May be per sample.
      window_length: the number of samples of a window. A shorter signal is one window. May be per sample.
      reference_power: what 0 dB is, above 0. Default: the largest power of a window of the signal. May be per sample.
      reset_interval: for float32, -1 or a multiple of `window_length`, as in DALI, which adds up powers anew after so
        many samples. Here sums are exact without that. May be per sample.

    Returns:
      Begin and length of the part, from the first sample of the first window that is not silent to the last sample of
      the last one: ``int32``, scalars. 0 and 0 where all is silent.

    Raises:
      TypeError: the input is bool, float16 or float64.
      ArgumentError: the input is not 1-D.
      SampleError: another `reset_interval`.

    Unlike in DALI, the sums of loud 32-bit integers do not overflow.

    Example:
      >>> begin, length = fn.nonsilent_region(audio, cutoff_db=-40)
      >>> audio = fn.slice(audio, begin, length, axes=[0])
    """
    signal = as_node(input, "nonsilent_region")
    arguments = {
        "cutoff_db": cutoff_db,
        "window_length": window_length,
        "reference_power": reference_power,
        "reset_interval": reset_interval,
    }
    args, nodes = Arguments.of(arguments, is_node)
    outputs = add(NonsilentRegion(args=args), copy_to(signal, "cpu"), *nodes, name=name)
    return [x.gpu() for x in outputs] if (device or signal.device) == "gpu" else outputs
