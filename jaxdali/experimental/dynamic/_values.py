"""`Batch` and `Tensor` with DALI's names, and the functions that make them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from ... import dynamic
from ..._core.building import is_node
from ..._core.expressions import Operators
from ..._core.language import language
from ..._core.tracebacks import boundaries, boundary
from ...dynamic import _batch, _functions
from ...dynamic import _values as plain_values
from ...dynamic._singles import JaxTensor
from ...fn._families.conversion import convert
from ._contexts import Device, device_of
from ._dtypes import DType, dtype_of_numpy, numpy_of

FILE = (bytes, bytearray, memoryview)
_LAYOUT: Any = _batch.Batch.layout  # the descriptor of the slot, which a property of the subclass hides


def pointwise(function: str, *operands: Any) -> Any:
    """Calls a pointwise function of batches, tensors, numbers, and everything that `as_tensor` accepts; NotImplemented
    if an operand is none of them.
    """
    if any(map(is_node, operands)):  # in a function of `jaxdali.dynamic.jit`
        return language().pointwise(function, *(np.asarray(x) if isinstance(x, Tensor) else x for x in operands))
    return to_dali_classes(_functions.pointwise(function, *map(_operand, operands)))


def _operator(function: str, *operands: Any) -> Any:
    """Calls a pointwise function for an operator of Python."""
    result = pointwise(function, *operands)
    if result is NotImplemented and function in ("eq", "ne"):  # Python would compare the identities of the objects
        raise TypeError(f"{function}: operands must be batches, tensors or numbers, got {types_of(operands)}")
    return result


def types_of(operands: Sequence[Any]) -> str:
    """The names of the operands' types, for messages."""
    return ", ".join(type(x).__name__ for x in operands)


def _operand(x: Any) -> Any:
    """Converts an operand for `jaxdali.dynamic`: arrays, NumPy's scalars and lists become samples; numbers, batches,
    tensors, and arrays that JAX traces stay what they are.
    """
    is_value = isinstance(x, (bool, int, float, _batch.Batch, _batch.Tensor, Tensor, Tracer)) and not isinstance(
        x, np.generic
    )
    if is_value or not (is_array(x) or isinstance(x, (list, tuple))):
        return to_plain(x)
    return as_tensor(x)._sample


@jax.tree_util.register_pytree_node_class
@boundaries
class Batch(_batch.Batch):
    """A `jaxdali.dynamic.Batch` with the names of DALI's: `tensors`, `select`, `shape`, `cpu`, `gpu`, `evaluate`, ...

    Construction and arithmetic follow the rules of `Tensor`.
    """

    __slots__ = ()
    __hash__ = None  # pyright: ignore[reportAssignmentType]  a comparison is a batch

    def __init__(
        self, tensors: Any, dtype: Any = None, device: Any = None, layout: str | None = None, copy: bool = False
    ):
        """Does the same as `batch` if `copy`, otherwise as `as_batch`."""
        converted = (batch if copy else as_batch)(tensors, dtype, device, layout)
        super().__init__(converted._data, converted._shapes, converted.layout or "", converted._dims)

    # What the base class does in `__init__`, whose arguments differ here.
    @classmethod
    def _with(cls, data: Any, shapes: Any = None, layout: str = "", dims: Any = None) -> Batch:
        batch = cls.__new__(cls)
        _batch.Batch.__init__(batch, data, shapes, layout, dims)
        return batch

    @staticmethod
    def of(plain_batch: _batch.Batch) -> Batch:
        """Converts a batch of `jaxdali.dynamic`. It shares the samples."""
        return (
            plain_batch
            if isinstance(plain_batch, Batch)
            else Batch._with(plain_batch._data, plain_batch._shapes, plain_batch.layout, plain_batch._dims)
        )

    @property
    def _plain(self) -> _batch.Batch:
        return _batch.Batch(self._data, self._shapes, self.layout or "", self._dims)

    @property
    def layout(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """A letter for each axis of a sample, e.g. "HWC"; None if it is not known."""
        return _LAYOUT.__get__(self) or None

    @layout.setter
    def layout(self, layout: str | None):
        _LAYOUT.__set__(self, layout or "")

    @property
    def dtype(self) -> DType:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Type of the elements."""
        return dtype_of_numpy(self._data.dtype)

    @property
    def device(self) -> Device:
        """The device of the samples."""
        return Device.of(self._device)

    @property
    def _spec(self) -> Any:
        return self._plain._spec

    @staticmethod
    def broadcast(sample: Any, batch_size: int, device: Any = None, dtype: Any = None) -> Batch:
        """Repeats a sample `batch_size` times. Raises ValueError if `sample` is a batch."""
        if isinstance(sample, _batch.Batch):
            raise ValueError("Batch.broadcast takes one sample, got a batch")
        sample_tensor = tensor(sample, dtype)
        repeated = plain_values.as_batch(
            np.broadcast_to(sample_tensor._sample, (batch_size, *sample_tensor.shape)), sample_tensor.layout
        )
        return _to_device(repeated, device)

    _pointwise = staticmethod(_operator)

    @property
    def slice(self) -> Any:
        """Takes a part of each sample, as `jaxdali.dynamic.Batch.slice` does; ``...`` stands for all axes between."""
        return _BatchSlices(self._plain)

    @property
    def batch_size(self) -> int:
        """Number of samples."""
        return len(self)

    @property
    def shape(self) -> list[tuple[int, ...]]:
        """The shape of each sample."""
        return self.shapes

    @property
    def tensors(self) -> _SampleList:
        """The samples as a sequence of `Tensor`s: ``batch.tensors[i]`` is one of them, a slice or a list of numbers
        selects some.
        """
        return _SampleList(self)

    def select(self, sample_range: Any) -> Any:
        """Returns one sample for a number, a batch of some for a slice or a list of numbers, and itself for ``...``."""
        return self if sample_range is Ellipsis else self[sample_range]

    def __getitem__(self, key: Any) -> Any:
        """Does the same as `select`. DALI's batches have no subscripts."""
        part = self._plain[key]
        return Batch.of(part) if isinstance(part, _batch.Batch) else Tensor.of(part, self.layout)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.tensors)

    def cpu(self) -> Batch:
        """The batch on the CPU."""
        return self.to_device("cpu")

    def gpu(self, index: int | None = None) -> Batch:
        """The batch on the accelerator that JAX has, or on its CPU device."""
        return self.to_device(Device("gpu", index))

    def to_device(self, device: Any, force_copy: bool = False) -> Batch:
        """Returns the batch on a device; itself if it is there already, unless `force_copy`."""
        target = device_of(device)
        if self._device == target and not force_copy:
            return self
        return Batch.of(self.to(target))

    def evaluate(self) -> Batch:
        """Waits until the samples are computed."""
        jax.block_until_ready((self._data, self._shapes))
        return self

    def torch(self, copy: bool | None = None, pad: bool = False) -> Any:
        """The samples as one `torch.Tensor` on their device, through DLPack.

        Args:
          copy: True: always copies; False: raises ValueError if a copy is needed; None: copies if it is needed.
          pad: whether samples of different shapes are padded with zeros.
        """
        if copy is False and not self.is_dense:
            raise ValueError("the samples are not one array, so they can't become a torch.Tensor without a copy")
        tensor = self._plain.torch(pad)
        tensor = tensor[0] if pad else tensor  # with `pad`, the tensor and the shapes
        return tensor.clone() if copy else tensor

    def __repr__(self) -> str:
        if isinstance(self._data, Tracer):
            return repr(self._plain)
        shown = [np.array2string(np.asarray(x), prefix="    ", edgeitems=2) for x in self._plain.samples()[:_MAX_SHOWN]]
        ellipsis = ["..."] if len(self) > _MAX_SHOWN else []
        # As NumPy separates the elements of its first axis.
        separator = ", " if self.ndim == 0 else "," + "\n" * max(self.ndim, 1) + "    "
        shapes = ", ".join([*map(str, self.shape[:_MAX_SHOWN]), *ellipsis])
        fields = {"num_samples": len(self), "shape": f"[{shapes}]"}
        return _repr_text("Batch", f"[{separator.join([*shown, *ellipsis])}]", self, fields)

    def _repr_html_(self) -> str | None:
        return self._plain._repr_html_()

    def __reduce__(self) -> Any:
        return Batch._with, self._plain.__reduce__()[1]

    @classmethod
    def tree_unflatten(cls, aux_data: tuple[str | None, Any], children: Sequence[Any]) -> Batch:
        layout, dims = aux_data
        return cls._with(children[0], children[1] if len(children) > 1 else None, layout or "", dims)


_MAX_SHOWN = 8  # samples in the repr of a batch


def _repr_text(name: str, data: str, x: Any, fields: dict[str, Any]) -> str:
    """The text of a `Batch` or a `Tensor` in DALI's form."""
    layout = {} if x.layout is None else {"layout": f'"{x.layout}"'}
    all_fields = {"dtype": x.dtype, **layout, "device": f'"{x.device.device_type}"', **fields}
    return f"{name}(\n    " + ",\n    ".join([data, *(f"{n}={v}" for n, v in all_fields.items())]) + ")"


class _BatchSlices(_batch.Slices):
    """Takes parts of the samples of a batch. An ellipsis stands for all axes between."""

    def __getitem__(self, key: Any) -> Batch:
        keys = key if isinstance(key, tuple) else (key,)
        if any(k is Ellipsis for k in keys):
            # The ellipsis becomes one full slice for each axis that has no key: `keys` without it has one key fewer.
            position = next(i for i, k in enumerate(keys) if k is Ellipsis)
            if any(k is Ellipsis for k in keys[position + 1 :]):
                raise ValueError("a subscript can have one Ellipsis only")
            keys = (*keys[:position], *[slice(None)] * (self._batch.ndim - len(keys) + 1), *keys[position + 1 :])
        return Batch.of(super().__getitem__(tuple(map(_slice_index, keys))) if keys else self._batch)


def _slice_index(x: Any) -> Any:
    """Converts an index of a slice: tensors become numbers, and batches those of `jaxdali.dynamic`."""
    if isinstance(x, slice):
        return slice(_slice_index(x.start), _slice_index(x.stop), _slice_index(x.step))
    return int(x) if isinstance(x, (Tensor, np.integer)) else to_plain(x)


class _SampleList(Sequence[Any]):
    """Some samples of a batch, as `Tensor`s."""

    def __init__(self, batch: Batch, indices: Sequence[int] | None = None):
        self._batch, self._indices = batch, range(len(batch)) if indices is None else indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, key: Any) -> Any:
        """Returns one sample for a number, and a sequence of some for a slice or a list of numbers."""
        if isinstance(key, slice):
            return _SampleList(self._batch, self._indices[key])
        if isinstance(key, list):
            return _SampleList(self._batch, [self._indices[i] for i in key])
        return self._batch[self._indices[key]]

    select = __getitem__

    def tolist(self) -> list[Tensor]:
        """The samples in a list."""
        return list(self)

    def as_batch(self, copy: bool = False) -> Batch:
        """The samples as a batch, which shares no memory with them."""
        return self._batch[list(self._indices)]


@boundaries
class Tensor(Operators):
    """A single sample in the host's memory, with the names of DALI's. The arguments are those of `tensor`.

    Arithmetic, comparisons and `math` follow DALI's rules, also with NumPy's arrays and scalars on the left. It is no
    NumPy array, but NumPy's functions accept it, and ``np.asarray(tensor)`` shares its memory. `jax.numpy.asarray`,
    DLPack and `torch` convert it to other arrays.
    """

    __slots__ = ("_sample",)
    __hash__ = None  # pyright: ignore[reportAssignmentType]  a comparison is a tensor
    __array_priority__ = 1000.0  # NumPy leaves `array * tensor` to this class
    _pointwise = staticmethod(_operator)

    def __init__(self, data: Any, dtype: Any = None, device: Any = None, layout: str | None = None, copy: bool = False):
        self._sample: _batch.Tensor = (tensor if copy else as_tensor)(data, dtype, device, layout)._sample

    @staticmethod
    def of(array: Any, layout: str | None = "") -> Tensor:
        """Makes a tensor of an array, without a copy."""
        sample = Tensor.__new__(Tensor)
        sample._sample = _batch.Tensor.of(array, layout or "")
        return sample

    # --- properties -------------------------------------------------------------------------------------------------

    @property
    def __jaxdali_sample__(self) -> _batch.Tensor:
        return self._sample

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return dtype_of_numpy(self._sample.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the axes."""
        return self._sample.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self._sample.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._sample.size

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self._sample.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._sample.nbytes

    @property
    def layout(self) -> str | None:
        """A letter for each axis, e.g. "HWC"; None if it is not known."""
        return self._sample.layout or None

    @property
    def device(self) -> Device:
        """The device of the sample, always the CPU."""
        return Device("cpu")

    def __repr__(self) -> str:
        return _repr_text(
            "Tensor", np.array2string(np.asarray(self), prefix="    ", edgeitems=2), self, {"shape": self.shape}
        )

    # --- elements ---------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Tensor:
        """Takes a part by NumPy's rules. It keeps the layout's letters of the remaining axes."""
        keys = tuple(_subscript_part(k) for k in key) if isinstance(key, tuple) else _subscript_part(key)
        part = self._sample[keys]
        return Tensor.of(part, getattr(part, "layout", ""))

    def __len__(self) -> int:
        return len(self._sample)

    def __iter__(self) -> Iterator[Tensor]:
        if not self.ndim:
            raise TypeError("a tensor of 0 dimensions can't be iterated over")
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self._sample)

    def __int__(self) -> int:
        return int(self._sample)

    def __float__(self) -> float:
        return float(self._sample)

    def __index__(self) -> int:
        return self._sample.__index__()

    def __divmod__(self, other: Any) -> Any:
        return NotImplemented

    def item(self, *place: int) -> Any:
        """The only element, or the one at index `place`, as a Python number. Raises ValueError if there are several."""
        return self._sample.item(*place)

    def tolist(self) -> Any:
        """The elements as Python numbers in nested lists."""
        return self._sample.tolist()

    # --- exports --------------------------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._sample, dtype, copy=copy)

    def __jax_array__(self) -> jax.Array:
        return jax.numpy.asarray(np.asarray(self))

    def __dlpack__(self, **arguments: Any) -> Any:
        array = np.asarray(self)
        return (array if array.flags.writeable else array.copy()).__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return np.asarray(self).__dlpack_device__()

    def torch(self, copy: bool = False) -> Any:
        """Returns the sample as a `torch.Tensor`."""
        import torch

        return torch.from_numpy(np.array(self) if copy or not self._sample.flags.writeable else np.asarray(self))

    def cpu(self) -> Tensor:
        """Returns the tensor itself."""
        return self

    def gpu(self, index: int | None = None) -> Tensor:
        """Returns the tensor itself: functions with ``device="gpu"`` move it."""
        return self.to_device(Device("gpu", index))

    def to_device(self, device: Any, force_copy: bool = False) -> Tensor:
        """Returns the tensor itself, or a copy if `force_copy`."""
        device_of(device)
        return Tensor.of(self._sample.copy(), self.layout) if force_copy else self

    def evaluate(self) -> Tensor:
        """Returns the tensor itself."""
        return self

    def __reduce__(self) -> Any:
        return Tensor.of, (np.asarray(self), self.layout)


def _subscript_part(k: Any) -> Any:
    """Converts a part of a subscript for NumPy. A bool is an index 0 or 1, as in DALI, and not a mask."""
    if isinstance(k, slice):
        return slice(_subscript_part(k.start), _subscript_part(k.stop), _subscript_part(k.step))
    if isinstance(k, Tensor):
        return np.asarray(k) if k.ndim else k.item()
    return int(k) if isinstance(k, bool) else k


# --- conversions ------------------------------------------------------------------------------------------------------


def to_plain(x: Any) -> Any:
    """Converts an object of this module's classes into that of `jaxdali.dynamic`; returns anything else unchanged."""
    if isinstance(x, Batch):
        return x._plain
    return x._sample if isinstance(x, Tensor) else x


def to_dali_classes(x: Any, single: bool = False) -> Any:
    """Converts the results of a function of `jaxdali.dynamic` into this module's classes. Several outputs are a tuple.

    Args:
      single: whether to return the only sample of each batch as a `Tensor`.
    """

    def convert_leaf(e: Any) -> Any:
        """Converts one output; other objects stay."""
        if isinstance(e, _batch.Batch):
            return Tensor.of(e[0], e.layout) if single else Batch.of(e)
        if isinstance(e, _batch.Tensor):
            return Tensor.of(e, e.layout)
        # A drawn number may be used for all samples of a batch, as in DALI.
        return dynamic.random.broadcast(e) if isinstance(e, JaxTensor) else e

    kinds = (_batch.Batch, _batch.Tensor, JaxTensor)
    return jax.tree.map(convert_leaf, tuple(x) if isinstance(x, list) else x, is_leaf=lambda e: isinstance(e, kinds))


def is_array(x: Any) -> bool:
    """Whether `x` is an array of NumPy, JAX or another library, a NumPy scalar, or a tensor."""
    if isinstance(x, (Tensor, np.ndarray, np.generic, jax.Array)):
        return True
    return not is_node(x) and not isinstance(x, JaxTensor) and (hasattr(x, "__dlpack__") or hasattr(x, "__array__"))


def _sample_array(x: Any, dtype: np.dtype | None) -> np.ndarray:
    """Converts `x` into an array, the data of one sample.

    Args:
      dtype: of the result. Arrays are rounded and saturated to it, as `cast` does; Python numbers are converted by
        NumPy's rules. None: the type of an array, and int32, uint32 or float32 for Python numbers.
    """
    if any(isinstance(e, _batch.Batch) for e in (x if isinstance(x, (list, tuple)) else [x])):
        raise TypeError("a batch can't be a sample, or a part of one")
    if isinstance(x, FILE):
        x = np.frombuffer(x, np.uint8)
    if is_array(x) or hasattr(x, "__array_interface__"):
        array = np.asarray(plain_values.as_tensor(to_plain(x)))
        return array if dtype is None else convert(np, array, dtype)
    try:
        array = np.array(x, dtype)
    except ValueError as e:
        raise ValueError(f"a tensor is made of lists of one length, and of numbers: {e}") from None
    if dtype is not None:
        return array
    if array.dtype in (np.int64, np.uint64) or (
        array.dtype == object and array.size and all(type(e) is int for e in array.flat)
    ):
        return _narrow_integers(array)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"a tensor is made of an array, of numbers or of a file's bytes, got {type(x).__name__}")
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _narrow_integers(integers: np.ndarray) -> np.ndarray:
    """Converts integers to int32, or to uint32 if only that holds them."""
    low, high = (int(integers.min()), int(integers.max())) if integers.size else (0, 0)
    limits = np.iinfo(np.uint32 if low >= 0 and high > np.iinfo(np.int32).max else np.int32)
    if low < limits.min or high > limits.max:
        value = low if low < limits.min else high
        raise OverflowError(f"{value} does not fit into {limits.dtype}: pass dtype, or an array of NumPy")
    return integers.astype(limits.dtype)


def _make_tensor(data: Any, dtype: Any, device: Any, layout: str | None, pad: bool, copy: bool) -> Tensor:
    """Makes a `Tensor`; see `tensor` for the arguments. `copy`: whether it must not share memory with `data`."""
    if device is not None:
        device_of(device)
    numpy_dtype = None if dtype is None else numpy_of(dtype)
    inherited = data.layout or "" if isinstance(data, (_batch.Batch, _batch.Tensor, Tensor)) else ""
    if isinstance(data, _batch.Batch):
        inherited = f"N{inherited}" if inherited or not data.ndim else ""
        padded = to_plain(data).numpy(pad=pad)
        data = padded[0] if pad else padded  # with `pad`, the array and the shapes
    array = _sample_array(data, numpy_dtype)
    if copy and (is_array(data) or isinstance(data, FILE)):
        array = np.array(array)
    sample = plain_values.as_tensor(array, layout or inherited)
    return Tensor.of(sample, sample.layout)


@boundary
def tensor(data: Any, dtype: Any = None, device: Any = None, layout: str | None = None, pad: bool = False) -> Tensor:
    """Makes a single sample as a copy of an array, of numbers in lists, of a file's bytes, or of a whole batch as an
    array ``[N, ...]``.

    Args:
      dtype: by default that of the array, and int32 or float32 for Python numbers (uint32 if only this holds them).
        Arrays are rounded and saturated; Python numbers must fit, and lose their fractions.
      device: only checked; a single sample is in the host's memory.
      layout: a letter for each axis. Default: that of `data`, and "N" before that of a batch.
      pad: whether the samples of a ragged batch are padded with zeros.

    Raises:
      ValueError, TypeError: as of `jaxdali.dynamic.tensor`.
      OverflowError: a number does not fit into the type.
    """
    return _make_tensor(data, dtype, device, layout, pad, copy=True)


@boundary
def as_tensor(data: Any, dtype: Any = None, device: Any = None, layout: str | None = None, pad: bool = False) -> Tensor:
    """Does the same as `tensor`, but shares the memory of an array if possible."""
    return _make_tensor(data, dtype, device, layout, pad, copy=False)


def _to_device(plain_batch: _batch.Batch, device: Any) -> Batch:
    """Converts a batch of `jaxdali.dynamic`, and moves it to a device."""
    return Batch.of(plain_batch) if device is None else Batch.of(plain_batch).to_device(device)


def _make_batch(tensors: Any, dtype: Any, device: Any, layout: str | None, copy: bool) -> Batch:
    """Makes a `Batch`; see `batch` for the arguments. `copy`: whether it must not share the memory of an array."""
    numpy_dtype = None if dtype is None else numpy_of(dtype)
    if isinstance(tensors, _batch.Batch):
        plain_batch = to_plain(tensors)
        if numpy_dtype is not None and numpy_dtype != plain_batch.dtype:
            plain_batch = dynamic.cast(plain_batch, dtype=numpy_dtype)
        return _to_device(plain_values.as_batch(plain_batch, layout), device)
    if isinstance(tensors, (jax.Array, *FILE)) and numpy_dtype is None:
        return _to_device(plain_values.as_batch(tensors, layout), device)
    if is_array(tensors):
        # A tensor is an array ``[N, ...]`` here, and the first letter of its layout stands for the samples.
        inherited = (tensors.layout or "")[1:] if isinstance(tensors, (_batch.Tensor, Tensor)) else ""
        array = _sample_array(tensors, numpy_dtype)
        return _to_device(
            plain_values.as_batch(np.array(array) if copy else array, inherited if layout is None else layout), device
        )
    if not isinstance(tensors, Iterable) or isinstance(tensors, str) or hasattr(tensors, "__array_interface__"):
        raise TypeError(f"a batch is made of a list of samples, an array or a batch, got {type(tensors).__name__}")
    samples: list[np.ndarray] = []
    common_layout = layout or ""
    for i, x in enumerate(tensors):
        if x is None:
            raise TypeError(f"sample {i} is None")
        samples.append(_sample_array(x, numpy_dtype))
        # The first sample determines the type of the others.
        numpy_dtype = samples[0].dtype
        own_layout = x.layout if layout is None and isinstance(x, (_batch.Tensor, Tensor)) else None
        if common_layout and own_layout and own_layout != common_layout:
            raise ValueError(f"the samples of a batch must have one layout, got {common_layout!r} and {own_layout!r}")
        common_layout = common_layout or own_layout or ""
    if numpy_dtype is None:
        raise ValueError("a batch without samples needs a dtype")
    return _to_device(plain_values.as_batch(samples or np.empty(0, numpy_dtype), common_layout), device)


@boundary
def batch(tensors: Any, dtype: Any = None, device: Any = None, layout: str | None = None) -> Batch:
    """Makes a batch as a copy of samples in an iterable, each as for `tensor`, of an array ``[N, ...]``, or of a batch.

    Args:
      dtype: of the samples. Default: that of the first one, by the rules of `tensor`; it is needed if there is no
        sample.
      device: of the batch. Default: that of the samples.
      layout: a letter for each axis of a sample. Default: that of the samples.

    Raises:
      ValueError, TypeError, OverflowError: as of `tensor` and `jaxdali.dynamic.batch`.
    """
    return _make_batch(tensors, dtype, device, layout, copy=True)


@boundary
def as_batch(tensors: Any, dtype: Any = None, device: Any = None, layout: str | None = None) -> Batch:
    """Does the same as `batch`, but shares the memory of an array ``[N, ...]`` if possible."""
    return _make_batch(tensors, dtype, device, layout, copy=False)
