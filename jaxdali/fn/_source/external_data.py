"""Converts data that users pass to external_source to batches."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax.dlpack
import numpy as np

from ..._core.context import HostContext
from ..._core.errors import ArgumentError
from ..._core.ragged import ALIGNMENT, BufferPool, Packed, plan_offsets
from ..._core.values import Spec
from ...types import to_dali_type

NAME = "external_source"
_ADVICE_FOR_BYTES = "convert a file's bytes with np.frombuffer(data, np.uint8), and a string with np.frombuffer(text.encode(), np.uint8)"


def check_no_dict(x: Any):
    """Raises ArgumentError for a dict, whose keys would be taken as items."""
    if isinstance(x, Mapping):
        raise ArgumentError(
            f"{NAME}: got a dict: return a tuple of arrays, with num_outputs={len(x)} (with feed_input, feed each array separately)"
        )


class SampleMemory:
    """Memory for copies of samples that one thread makes and another drops.

    malloc gives such memory back to the system, again and again: the page faults took as long as the copies of images
    of 200 kB, 50 us each.
    """

    LEAST = 1 << 15  # bytes; smaller copies are as fast in memory of malloc

    def __init__(self):
        # Of each size as many buffers as samples of that size have existed at the same time.
        self._pool = BufferPool(most_free=None)

    def copy(self, x: np.ndarray) -> np.ndarray:
        """A copy of an array."""
        if x.nbytes < self.LEAST or x.dtype.hasobject:
            return x.copy()
        # Images of about the same size share buffers, which have up to a quarter more.
        unit = 1 << (x.nbytes.bit_length() - 3)
        buffer = self._pool.empty((-(-x.nbytes // unit) * unit,), np.uint8)
        result = buffer[: x.nbytes].view(x.dtype).reshape(x.shape)
        result[...] = x
        return result


def as_array(x: Any, copy: bool, memory: SampleMemory | None = None) -> np.ndarray:
    """Converts an array of any kind to a NumPy array of a type that a pipeline can hold.

    Args:
      copy: whether the result must not share memory with `x`. Otherwise it may.
      memory: what copies arrays of NumPy; None: NumPy does.

    Raises:
      ArgumentError: it can't be converted.
    """
    check_no_dict(x)
    try:
        if hasattr(x, "as_cpu"):
            x = x.as_cpu()
        if hasattr(x, "__jax_array__"):
            x = x.__jax_array__()
        # NumPy has this type only through ml_dtypes, which PyTorch does not know.
        if str(getattr(x, "dtype", "")) == "torch.bfloat16":
            x = np.asarray(jax.dlpack.from_dlpack(x.detach().cpu().contiguous()))
        if memory is not None and copy and type(x) is np.ndarray:
            array = memory.copy(x)
        elif hasattr(x, "__array__") or hasattr(x, "__array_interface__"):
            array = np.array(x, copy=copy or None)
        elif hasattr(x, "__dlpack__"):
            array = np.array(np.from_dlpack(x), copy=copy or None)
        else:
            advice = (
                _ADVICE_FOR_BYTES
                if isinstance(x, (bytes, bytearray, memoryview, str))
                else "convert numbers and lists of numbers to arrays"
            )
            if isinstance(x, (str, os.PathLike)):
                advice = f"np.fromfile(path, np.uint8) reads a file; {_ADVICE_FOR_BYTES}"
            raise ArgumentError(
                f"{NAME}: expected an array (NumPy, JAX, or anything with __array__ or DLPack), got {type(x).__name__}; {advice}"
            )
    except ArgumentError:
        raise
    except Exception as e:
        raise ArgumentError(f"{NAME}: can't make an array of {type(x).__name__}: {e}") from e
    array = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    try:
        to_dali_type(array.dtype)
    except (TypeError, KeyError):
        advice = f"; {_ADVICE_FOR_BYTES}" if array.dtype.kind in "SU" else ""
        raise ArgumentError(f"{NAME}: arrays of dtype {array.dtype} are not supported{advice}") from None
    return array


def as_batch(x: Any, copy: bool) -> np.ndarray | list[np.ndarray]:
    """Converts a batch to an array ``[n, ...]``, or to a list of arrays of one dtype and rank.

    Args:
      copy: as in `as_array`.

    Raises:
      ArgumentError: it can't be converted.
    """
    check_no_dict(x)
    is_array = any(hasattr(x, a) for a in ("__array__", "__array_interface__", "__dlpack__", "__jax_array__"))
    if is_array:
        a = as_array(x, copy)
        if a.ndim == 0:
            raise ArgumentError(
                f"{NAME}: a batch must have a batch axis, got an array without axes (with batch=False samples are expected)"
            )
        return a
    if x is None or isinstance(x, (str, bytes)) or not hasattr(x, "__len__"):
        raise ArgumentError(f"{NAME}: a batch must be an array or a list of arrays, got {type(x).__name__}")
    return check_alike([as_array(e, copy) for e in x])


def metadata_batch(name: str, x: Any) -> list[Any]:
    """Metadata of a batch as a list, of a list or any other sequence."""
    if isinstance(x, (str, bytes, Mapping)) or not (hasattr(x, "__len__") and hasattr(x, "__getitem__")):
        raise ArgumentError(
            f"{NAME}: metadata {name!r} of a batch must be a list with an object for each sample, got {type(x).__name__}"
        )
    return [x[i] for i in range(len(x))]


def check_alike(samples: list[np.ndarray]) -> list[np.ndarray]:
    """Returns the samples. Raises ArgumentError if they differ in dtype or rank."""
    for i, s in enumerate(samples):
        if s.dtype != samples[0].dtype or s.ndim != samples[0].ndim:
            raise ArgumentError(
                f"{NAME}: all samples of a batch must have one dtype and number of dimensions, got {samples[0].dtype} with "
                f"{samples[0].ndim} and (sample {i}) {s.dtype} with {s.ndim}"
            )
    return samples


def kind_of(batch: np.ndarray | list[np.ndarray]) -> tuple[np.dtype, int] | None:
    """(dtype, number of dimensions of a sample); None for a list without samples, where they are unknown."""
    if isinstance(batch, np.ndarray):
        return batch.dtype, batch.ndim - 1
    return (batch[0].dtype, batch[0].ndim) if batch else None


def shapes_of(batch: np.ndarray | list[np.ndarray]) -> list[tuple[int, ...]]:
    """The different shapes of the samples."""
    return [batch.shape[1:]] if isinstance(batch, np.ndarray) else list({x.shape for x in batch})


def pack_shards(
    ctx: HostContext, index: int, spec: Spec, parts: Sequence[np.ndarray | list[np.ndarray]]
) -> np.ndarray | Packed:
    """Packs the batches of all shards into output `index`. If a batch is smaller, the missing samples are empty."""
    B = ctx.B
    if spec.shape is not None:
        out = np.zeros((ctx.N, *spec.shape), spec.dtype)
        for s, part in enumerate(parts):
            if len(part):
                out[s * B : s * B + len(part)] = part
        return out
    shapes = np.zeros((ctx.N, spec.ndim), np.int64)
    for s, part in enumerate(parts):
        if len(part):
            shapes[s * B : s * B + len(part)] = (
                part.shape[1:] if isinstance(part, np.ndarray) else [x.shape for x in part]
            )
    offsets, num_elements = plan_offsets(shapes, ctx.S)
    batch = Packed(ctx.empty(num_elements, spec.dtype, index), offsets, shapes)
    for s, part in enumerate(parts):
        n = len(part)
        # Samples of one size, each of which begins at a multiple of ALIGNMENT, are copied at once.
        if isinstance(part, np.ndarray) and part.size:
            size = part.size // n
            stride = -(-size // ALIGNMENT) * ALIGNMENT
            batch.data[s, : n * stride].reshape(n, stride)[:, :size] = part.reshape(n, size)
        else:
            for i in range(n):
                batch[s * B + i][...] = part[i]
    return batch


def layout_of(x: Any) -> str:
    """The layout of a TensorList, a tensor, or the first of a list of tensors; "" for other data."""
    if isinstance(x, (list, tuple)):
        return layout_of(x[0]) if x else ""
    layout = getattr(x, "layout", None)
    layout = layout() if callable(layout) and hasattr(x, "as_cpu") else ""
    return layout if isinstance(layout, str) else ""
