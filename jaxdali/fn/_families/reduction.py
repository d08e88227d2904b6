"""The call of the kernel `reduce`."""

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
    """Numbers in double precision from the elements over some axes, and the statuses of the samples.

    Args:
      spec, out: of the result, as `call` gets them.
      center: ``f64``, subtracted before squaring: a number for each result; without elements: 0.
    """
    elements = x.data.size if isinstance(x, Ragged) else x.size
    scratch = elements // 32 * 8  # parts of results on GPUs; the CPU kernel leaves it untouched
    return _ffi.call("reduce", ctx, x, spec, out, center, scratch=scratch, reduction=int(reduction), axes=tuple(axes))
