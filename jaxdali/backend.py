"""The results of `Pipeline.run`: for each output a `TensorListCPU` or a `TensorListGPU`, a list of tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._core import names as _names
from ._core.errors import ArgumentError
from ._core.ragged import DeviceSamples, HostSamples
from ._tensors.copying import copy_from_device as _copy_from_device
from ._tensors.copying import copy_out as _copy_out
from ._tensors.thumbnails import SHOWN as _SHOWN
from ._tensors.thumbnails import page_of as _page_of
from .types import DALIDataType, dali_type_of, numpy_dtype


def _checked_layout(layout: str | None, ndim: int) -> str:
    """Returns the layout, "" for None. Raises ArgumentError unless there is one letter for each dimension."""
    if layout and len(layout) != ndim:
        raise ArgumentError(f"the layout {layout!r} does not fit data of {ndim} dimensions")
    return layout or ""


def _dtype_of_same_size(dtype: Any, new_type: Any) -> np.dtype:
    """The NumPy dtype of `new_type`. Raises RuntimeError if its elements have another size than those of `dtype`."""
    new_dtype = numpy_dtype(new_type)
    if new_dtype.itemsize != np.dtype(dtype).itemsize:
        raise RuntimeError(
            f"reinterpret: elements of {dtype} can't be reinterpreted as {new_dtype}, which has another size"
        )
    return new_dtype


class _Tensor:
    """Base of tensors on the host and on the accelerator."""

    device: str

    def __init__(self, array: Any, layout: str = "", *, source_info: str = ""):
        if layout and len(layout) != array.ndim:
            raise ValueError(f"the layout {layout!r} does not fit a tensor of shape {tuple(array.shape)}")
        self._array = array
        self._layout = layout
        self._source_info = source_info

    def shape(self) -> list[int]:
        """The extents."""
        return list(self._array.shape)

    def ndim(self) -> int:
        """The number of dimensions."""
        return self._array.ndim

    @property
    def dtype(self) -> DALIDataType:
        """The element type. ``dtype()`` is the name of NumPy's type."""
        return dali_type_of(self._array.dtype)

    def layout(self) -> str:
        """One letter per axis, e.g. ``"HWC"``; ``""`` when unknown."""
        return self._layout

    def set_layout(self, layout: str | None) -> None:
        """Sets the layout; None or ``""`` removes it. Raises ValueError unless there is one letter for each axis."""
        self._layout = _checked_layout(layout, self._array.ndim)

    def source_info(self) -> str:
        """Where the sample came from, e.g. a file's path; ``""`` when unknown."""
        return self._source_info

    def get_property(self, name: str) -> str | None:
        """Returns the property ``"layout"`` or ``"source_info"``; None if it is unknown."""
        return {"layout": self._layout, "source_info": self._source_info}.get(name) or None

    def reinterpret(self, new_type: Any) -> None:
        """Reinterprets the elements as another type of the same size, in place. Raises RuntimeError for another size."""
        self._array = self._array.view(_dtype_of_same_size(self._array.dtype, new_type))

    def squeeze(self, dim: int | None = None) -> bool:
        """Removes axes of extent 1, in place.

        Args:
          dim: the axis to remove, if its extent is 1. Default: all of them.

        Returns:
          Whether the shape changed.
        """
        ndim = self._array.ndim
        if dim is not None and not -ndim <= dim < ndim:
            raise ArgumentError(f"squeeze: dim must be in {-ndim} ... {ndim - 1}, got {dim}")
        axes = tuple(d for d in (range(ndim) if dim is None else (dim % ndim,)) if self._array.shape[d] == 1)
        self._array = self._array.reshape([n for d, n in enumerate(self._array.shape) if d not in axes])
        self._layout = "".join(c for d, c in enumerate(self._layout) if d not in axes)
        return bool(axes)

    def block_until_ready(self):
        """Waits for the computation of this tensor, like `jax.Array.block_until_ready`."""
        jax.block_until_ready(self._array)
        return self

    def __repr__(self) -> str:
        dtype = self.dtype if self.dtype != DALIDataType.NO_TYPE else self._array.dtype
        return f'{type(self).__name__}(dtype={dtype}, layout="{self._layout}", device="{self.device}", shape={tuple(self._array.shape)})'


class TensorCPU(_Tensor):
    """A tensor in host memory. NumPy, JAX (via DLPack or ``__array__``) and PyTorch take it without a copy.

    Args:
      array: a NumPy array, or anything that `np.asarray` accepts.
      layout: one letter per axis, or ``""``.
      source_info: where the data came from.
    """

    device = "cpu"

    def __init__(self, array: Any, layout: str = "", *, source_info: str = ""):
        super().__init__(np.asarray(array), layout, source_info=source_info)

    def as_cpu(self) -> TensorCPU:
        """This tensor."""
        return self

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._array.ctypes.data

    def copy_to_external(self, ptr: Any) -> None:
        """Copies the elements, contiguous in C order, to host memory at `ptr` (a ``ctypes.c_void_p`` or an int)."""
        _copy_out([self._array], ptr)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if dtype is not None and np.dtype(dtype) != self._array.dtype:
            return self._array.astype(dtype)
        return self._array.copy() if copy else self._array

    @property
    def __array_interface__(self) -> dict:
        # NumPy would see an array of "two bytes", and would not call `__array__`.
        if dali_type_of(self._array.dtype) == DALIDataType.BFLOAT16:
            raise AttributeError("the array interface has no type bfloat16")
        return self._array.__array_interface__

    def __dlpack__(self, **kwargs: Any) -> Any:
        # DLPack can't mark memory as read-only, and NumPy refuses to export read-only arrays, so those are copied.
        array = self._array if self._array.flags.writeable else self._array.copy()
        if self.dtype == DALIDataType.BFLOAT16:  # NumPy can't export this type, JAX can
            array = jax.device_put(array, jax.local_devices(backend="cpu")[0])
        return array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


class TensorGPU(_Tensor):
    """A tensor on the accelerator, around a `jax.Array`. ``jnp.asarray`` and DLPack take it without a copy."""

    device = "gpu"

    def __init__(self, array: Any, layout: str = "", *, source_info: str = ""):
        super().__init__(array if isinstance(array, jax.Array) else jnp.asarray(array), layout, source_info=source_info)

    def device_id(self) -> int:
        """The index of its device in ``jax.local_devices()``; of the first device if it is on several."""
        return _device_id(self._array)

    def as_cpu(self) -> TensorCPU:
        """A copy in host memory."""
        return TensorCPU(np.asarray(self._array), self._layout, source_info=self._source_info)

    def data_ptr(self) -> int:
        """The address of the first element in the accelerator's memory."""
        return self._array.unsafe_buffer_pointer()

    def copy_to_external(self, ptr: Any, cuda_stream: Any = None, non_blocking: bool = False) -> None:
        """Copies the elements, contiguous in C order, to memory at `ptr`, on the GPU or on the host (without CUDA: on
        the host).

        Args:
          ptr: a ``ctypes.c_void_p`` or an int.
          cuda_stream: the CUDA stream that the copy is ordered on: an int, a ``ctypes.c_void_p`` or an object with such
            a ``cuda_stream``. Default: the default stream.
          non_blocking: has no effect: the copy is complete when this returns.
        """
        _copy_from_device([self._array], ptr, cuda_stream)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("data on the accelerator can't become a NumPy array without a copy")
        return np.array(self._array, dtype=dtype)

    def __jax_array__(self) -> jax.Array:
        return self._array

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    @property
    def __cuda_array_interface__(self) -> dict:
        return self._array.__cuda_array_interface__  # AttributeError if the accelerator is not a CUDA device


def _device_id(array: jax.Array) -> int:
    """The smallest index in ``jax.local_devices()`` of the devices of an array."""
    return min(jax.local_devices().index(d) for d in array.devices() if d in jax.local_devices())


class _TensorList:
    """A batch: either one array ``[N, ...]`` (`_dense`) or a list of arrays of one rank (`_samples`). The other one is
    None or empty. Arguments are those of `TensorListCPU`.

    Subclasses have a class of tensors for single samples (`_tensor`), and stack samples to one array (`_stack`).
    """

    device: str
    _tensor: type

    def __init__(
        self,
        data: Any,
        layout: str = "",
        *,
        source_info: Sequence[str] | None = None,
        owner: Any = None,
        dtype: Any = None,
        ndim: int | None = None,
    ):
        is_ragged = isinstance(data, (DeviceSamples, HostSamples))
        self._dense = None if is_ragged or isinstance(data, (list, tuple)) else data
        self._samples: Sequence[Any] = data if is_ragged else list(data) if self._dense is None else ()
        if self._dense is not None and self._dense.ndim == 0:
            raise ValueError(f"a {type(self).__name__} needs a batch axis, got a scalar")
        # The array of the batch, whose first axis is that of the samples, or the first sample; None: there is no sample.
        first = self._dense if self._dense is not None else next(self._sample_views(), None)
        if first is None:
            self._dtype, self._ndim = np.dtype(dtype or np.float32), ndim or 0
        else:
            self._dtype, self._ndim = np.dtype(first.dtype), first.ndim - (self._dense is not None)
        # Those of a ragged batch have one type and rank.
        for sample in self._samples if isinstance(self._samples, list) else ():
            if sample.dtype != self._dtype or sample.ndim != self._ndim:
                raise ValueError(
                    f"all samples of a batch must have one type and number of dimensions, got {self._dtype} with {self._ndim} "
                    f"and {sample.dtype} with {sample.ndim}"
                )
        if layout and len(layout) != self._ndim:
            raise ValueError(f"the layout {layout!r} does not fit samples of {self._ndim} dimensions")
        self._layout = layout
        self._source_info = source_info
        self._owner = owner  # only kept alive

    def __len__(self) -> int:
        return len(self._samples) if self._dense is None else self._dense.shape[0]

    def _at(self, i: int) -> Any:
        """Sample `i` of the batch, for an `i` that is in range."""
        return self._samples[i] if self._dense is None else self._dense[i, ...]

    def __getitem__(self, i: int) -> Any:
        if not isinstance(i, (int, np.integer)):
            raise TypeError(f"{type(self).__name__}: the index must be an int, got {type(i).__name__}")
        if not -len(self) <= i < len(self):
            raise IndexError(f"sample {i} of a batch of {len(self)}")
        i = int(i) % len(self)
        return self._tensor(self._at(i), self._layout, source_info=self._source_info[i] if self._source_info else "")

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def shape(self) -> list[tuple[int, ...]]:
        """The shape of each sample."""
        if isinstance(self._samples, (DeviceSamples, HostSamples)):
            return list(self._samples.shapes)
        return (
            [tuple(x.shape) for x in self._samples]
            if self._dense is None
            else [tuple(self._dense.shape[1:])] * len(self)
        )

    def ndim(self) -> int:
        """The number of dimensions of a sample."""
        return self._ndim

    @property
    def dtype(self) -> DALIDataType:
        """The element type. ``dtype()`` is the name of NumPy's type."""
        return dali_type_of(self._dtype)

    def layout(self) -> str:
        """The layout of a sample, e.g. ``"HWC"``; ``""`` when unknown."""
        return self._layout

    def set_layout(self, layout: str | None) -> None:
        """Sets the layout of a sample; None or ``""`` removes it. Raises ValueError unless there is one letter for each
        axis.
        """
        self._layout = _checked_layout(layout, self._ndim)

    def reinterpret(self, new_type: Any) -> None:
        """Reinterprets the elements as another type of the same size, in place. Raises RuntimeError for another size."""
        self._dtype = _dtype_of_same_size(self._dtype, new_type)
        self._samples = [x.view(self._dtype) for x in self._samples]
        self._dense = None if self._dense is None else self._dense.view(self._dtype)

    @classmethod
    def broadcast(cls, tensor: Any, num_samples: int) -> Any:
        """Makes a batch that repeats one tensor `num_samples` times; the data are not copied."""
        if num_samples < 0:
            raise ArgumentError(f"broadcast: num_samples must be at least 0, got {num_samples}")
        array = tensor._array
        return cls([array] * num_samples, tensor.layout(), dtype=array.dtype, ndim=array.ndim)

    def data_ptr(self) -> int:
        """The address of the first element. Raises RuntimeError if the samples differ in shape, as each then has its
        own.
        """
        return self._tensor(self._as_array()).data_ptr()

    def is_dense_tensor(self) -> bool:
        """Whether all samples have one shape."""
        return len(set(self.shape())) <= 1

    def _stack(self, samples: list[Any]) -> Any:
        raise NotImplementedError

    def _sample_views(self) -> Iterator[Any]:
        """The samples of a list without copies. Those of `DeviceSamples` are views of its memory."""
        samples = self._samples
        return (samples.view(i) for i in range(len(samples))) if isinstance(samples, DeviceSamples) else iter(samples)

    def _as_array(self) -> Any:
        """The batch as one array. A list of samples is stacked once, on first use. Raises RuntimeError if they differ in
        shape.
        """
        if self._dense is None:
            if not self.is_dense_tensor():
                raise RuntimeError(
                    f"the samples of this batch differ in shape ({sorted(set(self.shape()))[:4]} ...), so they can't become one tensor; "
                    "take them one by one with [i] or at(i)"
                )
            self._dense = (
                self._stack(list(self._sample_views()))
                if self._samples
                else np.empty((0,) * (self._ndim + 1), self._dtype)
            )
            self._samples = ()
        return self._dense

    def as_tensor(self) -> Any:
        """The batch as one tensor, whose layout begins with ``"N"``. Raises RuntimeError if the samples differ in
        shape.
        """
        return self._tensor(self._as_array(), "N" + self._layout if self._layout else "")

    def as_reshaped_tensor(self, shape: Sequence[int]) -> Any:
        """The batch as one tensor of another shape with as many elements.

        Raises RuntimeError if the samples differ in shape, ValueError when the number of elements differs.
        """
        array = self._as_array()
        if math.prod(shape) != array.size:
            raise ArgumentError(f"a batch of {array.size} elements can't have the shape {tuple(shape)}")
        return self._tensor(array.reshape(tuple(shape)))

    def block_until_ready(self):
        """Waits for the computation that makes this batch."""
        samples = self._samples
        jax.block_until_ready(
            self._dense if self._dense is not None else samples.data if isinstance(samples, DeviceSamples) else samples
        )
        return self

    def __repr__(self) -> str:
        dtype = self.dtype if self.dtype != DALIDataType.NO_TYPE else self._dtype
        return (
            f'{type(self).__name__}(dtype={dtype}, layout="{self._layout}", device="{self.device}", num_samples={len(self)}, '
            f"shape={self.shape()})"
        )

    def _repr_html_(self) -> str | None:
        """The first images of a batch, for a notebook; None for other batches."""
        first_samples = [np.asarray(self[i]) for i in range(min(_SHOWN, len(self)))]
        return _page_of(repr(self), first_samples, self._layout, len(self))


class TensorListCPU(_TensorList):
    """A batch in host memory.

    Args:
      data: one array ``[N, ...]`` (NumPy, or a `jax.Array` on the CPU, which is then viewed without a copy), or a list
        of N NumPy arrays (or `TensorCPU`) of one type and rank.
      layout: layout of a sample, e.g. ``"HWC"``.
      source_info: where each sample came from.
      owner: the owner of the memory, which is kept alive as long as this object.
      dtype, ndim: type and rank of the samples if the list is empty.
    """

    device = "cpu"
    _tensor = TensorCPU

    def __init__(
        self,
        data: Any,
        layout: str = "",
        *,
        source_info: Sequence[str] | None = None,
        owner: Any = None,
        dtype: Any = None,
        ndim: int | None = None,
    ):
        if isinstance(data, (list, tuple)):
            data = [np.asarray(x) for x in data]
        elif not isinstance(data, HostSamples):
            data = np.asarray(data)
        super().__init__(data, layout, source_info=source_info, owner=owner, dtype=dtype, ndim=ndim)

    def _stack(self, samples: list[Any]) -> np.ndarray:
        return np.stack(samples)

    def at(self, i: int) -> np.ndarray:
        """Sample `i` as a NumPy array, without a copy. Raises RuntimeError if there is no such sample."""
        if not 0 <= i < len(self):
            raise RuntimeError(f"sample {i} of a batch of {len(self)}")
        return self._at(i)

    def as_array(self) -> np.ndarray:
        """The batch as one NumPy array ``[N, ...]``, without a copy if it is stored as one. Raises RuntimeError if the
        samples differ in shape.
        """
        return self._as_array()

    def as_cpu(self) -> TensorListCPU:
        """This batch."""
        return self

    def copy_to_external(self, ptr: Any) -> None:
        """Copies all samples, one after the other, to host memory at `ptr` (a ``ctypes.c_void_p`` or an int)."""
        _copy_out([self._dense] if self._dense is not None else self._samples, ptr)


class TensorListGPU(_TensorList):
    """A batch on the accelerator, around one `jax.Array` ``[N, ...]`` or N of them. Nothing is copied to the host
    before `as_cpu`.
    """

    device = "gpu"
    _tensor = TensorGPU

    def _stack(self, samples: list[Any]) -> jax.Array:
        return jnp.stack(samples)

    def at(self, i: int) -> TensorGPU:
        """Sample `i`. Raises RuntimeError if there is no such sample."""
        if not 0 <= i < len(self):
            raise RuntimeError(f"sample {i} of a batch of {len(self)}")
        return self[i]

    def as_cpu(self) -> TensorListCPU:
        """A copy in host memory."""
        if isinstance(self._samples, DeviceSamples):
            data = self._samples.to_host()
        else:
            data = np.asarray(self._dense) if self._dense is not None else jax.device_get(self._samples)
        return TensorListCPU(data, self._layout, source_info=self._source_info, dtype=self._dtype, ndim=self._ndim)

    def copy_to_external(self, ptr: Any, cuda_stream: Any = None, non_blocking: bool = False) -> None:
        """Copies all samples, one after the other, to memory at `ptr`; see `TensorGPU.copy_to_external`."""
        _copy_from_device([self._dense] if self._dense is not None else list(self._sample_views()), ptr, cuda_stream)


if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals(), "TensorCPU TensorGPU TensorListCPU TensorListGPU")
