"""The launch of the kernel `reduce`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..._core import ffi as _ffi
from ..._core.context import LowerContext
from ..._core.ragged import Ragged
from ..._core.values import Spec
from ..._cpu import Reduction


def call_reduce(
    ctx: LowerContext, x: Any, spec: Spec, out: Any, center: Any, reduction: Reduction, axes: Sequence[int]
) -> Any:
    """Reduces the elements over some axes to one number, in double precision. Returns (result, status).

    Args:
      x: the batch, dense ``[B, ...]`` or a `Ragged`.
      spec, out: the spec of the result, and its place if it is ragged (None: it is dense), as in `_ffi.call`.
      center: ``f64``, one number for each result, subtracted before squaring. An array without elements means 0.
      reduction: a sum, a sum of squares, a minimum or a maximum.
      axes: the axes of the samples that are reduced.
    """
    elements = x.data.size if isinstance(x, Ragged) else x.size
    # Partial results of GPUs: 8 bytes for each 32 elements (`kElementsPerPart` in ffi/reduce). The CPU kernel leaves it
    # untouched.
    scratch = elements // 32 * 8
    return _ffi.call("reduce", ctx, x, spec, out, center, scratch=scratch, reduction=int(reduction), axes=tuple(axes))
