"""`Batch` and `Tensor` with DALI's names, and what makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ... import dynamic, types
from ..._core.tracebacks import boundaries, boundary
from ...dynamic import _batch
from ...dynamic._singles import JaxTensor
from ._contexts import Device, device_of


@jax.tree_util.register_pytree_node_class
@boundaries
class Batch(_batch.Batch):
    """A `jaxdali.dynamic.Batch` with the names of DALI's: `tensors`, `select`, `shape`, `cpu`, `gpu`, `evaluate`, ..."""

    __slots__ = ()
    __hash__ = None  # pyright: ignore[reportAssignmentType]  a comparison is a batch

    def __init__(self, tensors: Any, *parts: Any, dtype: Any = None, device: Any = None, layout: str | None = None):
        """The same as `batch`; with `parts`, as `jaxdali.dynamic.Batch`."""
        if not parts:
            made = batch(tensors, dtype, device, layout)
            tensors, parts = made._data, (made._shapes, made.layout, made._dims)
        super().__init__(tensors, *parts)

    @property
    def device(self) -> Device:
        """Where the samples are."""
        return Device.of(self._device)

    @staticmethod
    def of(found: _batch.Batch) -> Batch:
        """The same samples."""
        return found if isinstance(found, Batch) else Batch(found._data, found._shapes, found.layout)

    @staticmethod
    def broadcast(sample: Any, batch_size: int, device: Any = None, dtype: Any = None) -> Batch:
        """A batch of one sample again and again."""
        one = tensor(sample, dtype)
        return batch(np.broadcast_to(one, (batch_size, *one.shape)), device=device, layout=one.layout or None)

    @staticmethod
    def _pointwise(function: str, *operands: Any) -> Any:
        found = _batch.Batch._pointwise(function, *operands)
        return Batch.of(found) if isinstance(found, _batch.Batch) else found

    @property
    def slice(self) -> Any:
        """Parts of each sample, as of `jaxdali.dynamic.Batch`."""
        return _Slices(self)

    @property
    def batch_size(self) -> int:
        """Number of samples."""
        return len(self)

    @property
    def shape(self) -> list[tuple[int, ...]]:
        """The shape of each sample."""
        return self.shapes

    @property
    def tensors(self) -> _Tensors:
        """The samples: ``batch.tensors[i]``, a batch of some by a slice or a list; and iteration."""
        return _Tensors(self)

    def select(self, sample_range: Any) -> Any:
        """A sample by its number, a batch of some by a slice or a list of numbers."""
        return self.tensors[sample_range]

    def cpu(self) -> Batch:
        """The batch on the CPU."""
        return self.to_device("cpu")

    def gpu(self) -> Batch:
        """The batch on the accelerator that JAX has, or on its CPU device."""
        return self.to_device("gpu")

    def to_device(self, device: Any, force_copy: bool = False) -> Batch:
        """The batch on a device; itself where it is there, unless `force_copy`."""
        target = device_of(device)
        if self._device == target and not force_copy:
            return self
        return Batch.of(self.to(target))

    def evaluate(self) -> Batch:
        """Waits until the samples are computed."""
        jax.block_until_ready((self._data, self._shapes))
        return self


class _Slices(_batch.Slices):
    def __getitem__(self, key: Any) -> Batch:
        return Batch.of(super().__getitem__(key))


class _Tensors(Sequence[Any]):
    """The samples of a batch, as `Tensor`s."""

    def __init__(self, of: Batch):
        self._of = of

    def __len__(self) -> int:
        return len(self._of)

    def __getitem__(self, key: Any) -> Any:
        found = self._of[key]
        return Batch.of(found) if isinstance(found, _batch.Batch) else Tensor.of(found, self._of.layout)


class Tensor(_batch.Tensor):
    """A single sample, in the host's memory: a `jaxdali.dynamic.Tensor` with the names of DALI's. The arguments are those of `tensor`."""

    def __new__(cls, data: Any, dtype: Any = None, device: Any = None, layout: str | None = None, copy: bool = False) -> Tensor:
        made = tensor(data, dtype, device, layout)
        return made.copy() if copy else made

    @staticmethod
    def of(array: Any, layout: str = "") -> Tensor:
        """An array as a sample, without a copy."""
        made = np.asarray(array).view(Tensor)
        made.layout = layout
        return made

    @staticmethod
    def _pointwise(function: str, *operands: Any) -> Any:
        return own(_batch.Tensor._pointwise(function, *operands))

    def cpu(self) -> Tensor:
        """Itself."""
        return self

    def gpu(self) -> Tensor:
        """Itself: functions that are asked for ``device="gpu"`` move it."""
        return self

    def evaluate(self) -> Tensor:
        """Itself."""
        return self

    def to_device(self, device: Any, force_copy: bool = False) -> Tensor:
        """Itself, or a copy."""
        device_of(device)
        return self.copy() if force_copy else self

    @property
    def device(self) -> Device:
        """Where it is."""
        return Device("cpu")

    def torch(self, copy: bool = False) -> Any:
        """The same as a `torch.Tensor`."""
        import torch

        return torch.from_numpy(np.array(self) if copy or not self.flags.writeable else np.asarray(self))


def own(x: Any) -> Any:
    """What a function of `jaxdali.dynamic` gave, as this module's classes."""
    return jax.tree.map(_own, x, is_leaf=lambda e: isinstance(e, (_batch.Batch, _batch.Tensor, JaxTensor)))


def _own(x: Any) -> Any:
    if isinstance(x, _batch.Batch):
        return Batch.of(x)
    if isinstance(x, _batch.Tensor):
        return Tensor.of(x, x.layout)
    return dynamic.random.broadcast(x) if isinstance(x, JaxTensor) else x  # one number serves all samples, as in DALI


def _typed(x: Any, dtype: Any) -> Any:
    """A sample of a type: by default DALI's, int32 and float32, of Python's numbers."""
    array = np.frombuffer(x, np.uint8) if isinstance(x, (bytes, bytearray, memoryview)) else x
    if dtype is not None:
        return np.asarray(array).astype(types.numpy_dtype(dtype))
    if hasattr(array, "dtype"):
        return array
    array = np.asarray(array)
    return array.astype({"i": np.int32, "f": np.float32}.get(array.dtype.kind, array.dtype))


@boundary
def batch(tensors: Any, dtype: Any = None, device: Any = None, layout: str | None = None) -> Batch:
    """A batch of samples: a list of arrays, numbers or files' bytes, an array ``[N, ...]``, or a batch.

    Args:
      dtype: of the samples. Default: their own; int32 and float32 of Python's numbers.
      device: where it is put. Default: it stays.
      layout: a letter for each axis of a sample.

    Raises:
      ValueError, TypeError: as of `jaxdali.dynamic.batch`.
    """
    if isinstance(tensors, _batch.Batch):
        found = tensors if dtype is None or types.numpy_dtype(dtype) == tensors.dtype else dynamic.cast(tensors, dtype=dtype)
        found = dynamic.batch(found, layout)
    else:
        listed = isinstance(tensors, (list, tuple))
        found = dynamic.batch([_typed(x, dtype) for x in tensors] if listed else _typed(tensors, dtype), layout)
        first = tensors[0] if listed and tensors else None
        if layout is None and isinstance(first, _batch.Tensor) and first.layout:
            found = dynamic.batch(found, first.layout)
    found = Batch.of(found)
    return found if device is None else found.to_device(device)


@boundary
def tensor(data: Any, dtype: Any = None, device: Any = None, layout: str | None = None, pad: bool = False) -> Tensor:
    """A single sample: an array, numbers, a file's bytes, or a whole batch as an array ``[N, ...]``.

    Args:
      dtype, layout: as of `batch`.
      device: checked; a single sample is in the host's memory.
      pad: whether the samples of a ragged batch are padded with zeros.

    Raises:
      ValueError, TypeError: as of `jaxdali.dynamic.tensor`.
    """
    if device is not None:
        device_of(device)
    if isinstance(data, _batch.Batch):
        whole = data.numpy(pad=pad)
        data = whole[0] if pad else whole
    known = getattr(data, "layout", None)
    found = dynamic.tensor(_typed(data, dtype), (known if isinstance(known, str) else None) if layout is None else layout)
    return Tensor.of(found, found.layout)


as_batch: Callable[..., Batch] = batch
as_tensor: Callable[..., Tensor] = tensor
