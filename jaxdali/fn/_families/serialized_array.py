"""Operators that make an array of the bytes of each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..._core.context import BuildContext, HostContext
from ..._core.operator import Operator, SampleOperator
from ..._core.values import Spec, Value
from ..._cpu import Status


class SerializedArray(SampleOperator):
    """Makes an array of the bytes of each sample. The first batch determines type and number of dimensions.

    Attributes:
      contents: the name of what the bytes are, for messages.
    """

    contents: ClassVar[str]
    dtype: np.dtype | None

    def decode(self, data: np.ndarray) -> np.ndarray:
        """The array in the bytes of a sample, ``uint8[bytes]``. Raises ValueError if they are damaged."""
        raise NotImplementedError(self.name)

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        (data,) = specs
        if data.ndim != 1 or data.dtype != np.uint8:
            raise TypeError(f"the input must be {self.contents} as 1-D uint8, got {data.ndim}-D {data.dtype}")
        return self

    def layout_of(self, i: int, ndim: int) -> str:
        return ""

    def call_samples(self, ctx: HostContext, inputs: Sequence[Value]) -> Sequence[Sequence[np.ndarray | None]]:
        """See `SampleOperator.call_samples`. None stands for a sample that is absent or that failed."""
        (data,) = inputs
        samples: list[np.ndarray | None] = [None] * ctx.N
        reasons: dict[int, str] = {}  # by failed sample
        for i in np.flatnonzero(ctx.present).tolist():
            try:
                samples[i] = self.decode(data.sample(i))
            except ValueError as e:
                reasons[i] = str(e)
        # Failed samples are replaced by arrays of the others' type, so at least one is needed.
        if len(reasons) == np.count_nonzero(ctx.present):
            raise ValueError(f"sample {min(reasons)}: {reasons[min(reasons)]}")
        for i, reason in reasons.items():
            ctx.fail(i, Status.RECORD, reason)
        return [samples]
