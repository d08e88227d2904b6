"""What callers pass, as batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from .._core.declaration import Argument
from ..types import ScalarConstant
from ._batch import Batch, Tensor, of_samples

_FILE = (bytes, bytearray, memoryview)


def batch(samples: Any, layout: str | None = None) -> Batch:
    """A batch of samples.

    Args:
      samples: a list of arrays of one type and number of dimensions, or of files' bytes; an array ``[N, ...]`` of NumPy, JAX or another
        framework with DLPack; or a batch.
      layout: a letter for each axis of a sample, as "HWC". Default: the batch's own; else none.

    Raises:
      ValueError: the samples differ in type or number of dimensions, or the layout has another number of letters.
      TypeError: they are no arrays.
    """
    found = _as_batch(samples)
    if layout is not None and layout != found.layout:
        if layout and len(layout) != found.ndim:
            raise ValueError(f"layout {layout!r} has {len(layout)} letters, but the samples have {found.ndim} dimensions")
        found = Batch(found._data, found._shapes, layout)
    return found


def tensor(sample: Any, layout: str | None = None) -> Tensor:
    """A single sample, which functions take as one, and of which they give single ones.

    Args:
      sample: an array, or a file's bytes.
      layout: a letter for each axis, as "HWC". Default: its own, if it is a `Tensor`.

    Raises:
      ValueError: the layout has another number of letters than the sample dimensions.
    """
    found = Tensor.of(_array(sample), getattr(sample, "layout", "") if layout is None and isinstance(sample, Tensor) else layout or "")
    if found.layout and len(found.layout) != found.ndim:
        raise ValueError(f"layout {found.layout!r} has {len(found.layout)} letters, but the sample has {found.ndim} dimensions")
    return found


def _as_batch(x: Any) -> Batch:
    if isinstance(x, Batch):
        return x
    if isinstance(x, _FILE):
        raise TypeError("a batch is made of a list of files' bytes, got the bytes of one")
    if isinstance(x, (list, tuple)):
        if x and all(isinstance(e, (bool, int, float, np.generic)) for e in x):
            return Batch(np.asarray(x))
        return of_samples([_array(e) for e in x])
    array = x if isinstance(x, jax.Array) else _array(x)
    if array.ndim == 0:
        raise TypeError(f"a batch is made of a list of samples, or of an array with a first axis for them, got {type(x).__name__}")
    return Batch(array)


def _array(x: Any) -> np.ndarray:
    if isinstance(x, Tracer):
        raise TypeError("in a program that JAX traces a batch is an array with a first axis for its samples, not a list: use jnp.stack")
    if isinstance(x, _FILE):
        return np.frombuffer(x, np.uint8)
    if isinstance(x, (np.ndarray, jax.Array)):
        return np.asarray(x)
    if hasattr(x, "__dlpack__"):
        try:
            return np.from_dlpack(x)
        except (BufferError, RuntimeError, TypeError):  # on an accelerator, or of a type that NumPy does not know
            return np.asarray(jax.dlpack.from_dlpack(x))
    array = np.asarray(x)
    if array.dtype.kind not in "biufV":
        raise TypeError(f"a sample must be an array or a file's bytes, got {type(x).__name__}")
    return array


def value_of(x: Any) -> tuple[Batch, bool] | None:
    """An input as a batch, and whether it is a single sample; None: it is a number, the same for all samples."""
    if isinstance(x, Batch):
        return x, False
    if isinstance(x, Tracer):
        return (Batch(x), False) if x.ndim else (Batch(x[None]), True)
    if isinstance(x, (bool, int, float, np.generic, ScalarConstant)) or (isinstance(x, (np.ndarray, jax.Array)) and x.ndim == 0):
        return None
    if isinstance(x, Tensor):
        return of_samples([x], x.layout), True
    single = isinstance(x, _FILE) or (not isinstance(x, (list, tuple)) and _is_sample(x))
    return (of_samples([_array(x)]) if single else _as_batch(x)), single


def _is_sample(x: Any) -> bool:
    """Whether an array is a single sample: a file's bytes, or an image of another library."""
    if hasattr(x, "__array_interface__") and not isinstance(x, np.ndarray) and not hasattr(x, "__dlpack__"):
        return True  # Pillow's
    return getattr(x, "ndim", 0) == 1 and str(getattr(x, "dtype", "")) in ("uint8", "torch.uint8")


def argument_of(a: Argument, x: Any) -> Batch | None:
    """The values of an argument for each sample; None: it is one value for all."""
    if isinstance(x, Batch):
        return x
    if not a.per_sample or isinstance(x, (np.generic, str)) or not (hasattr(x, "__array__") or hasattr(x, "__dlpack__")):
        return None
    shape: Sequence[int] = tuple(x.shape)
    size = int(np.prod(shape))
    if isinstance(x, Tensor) or not shape or (a.many and a.lengths and size in a.lengths):
        return None
    if a.many and not a.lengths and len(shape) == 1:
        if isinstance(x, Tracer):
            raise TypeError(
                f"argument {a.name} takes a list of numbers for all samples, which must be known while JAX traces: "
                "for those of each sample pass an array of two axes, as x[:, None]"
            )
        return None
    return _as_batch(x)
