"""`Batch` and `Tensor` with DALI's names, and what makes them."""

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
from ...dynamic._singles import JaxTensor
from ...fn._families.conversion import convert
from ._contexts import Device, device_of
from ._dtypes import DType, numpy_of, of_numpy

FILE = (bytes, bytearray, memoryview)
_LAYOUT: Any = _batch.Batch.layout  # the slot


def pointwise(function: str, *operands: Any) -> Any:
    """A pointwise function of batches, tensors, numbers, and what a tensor is made of; NotImplemented when an operand
    is none of them.
    """
    if any(map(is_node, operands)):  # in a function of `jaxdali.dynamic.jit`
        return language().pointwise(function, *(np.asarray(x) if isinstance(x, Tensor) else x for x in operands))
    return own(_functions.pointwise(function, *map(_operand, operands)))


def _operator(function: str, *operands: Any) -> Any:
    """The same for operators."""
    result = pointwise(function, *operands)
    if result is NotImplemented and function in ("eq", "ne"):  # which Python would answer by identity
        raise TypeError(f"{function}: operands must be batches, tensors or numbers, got {types_of(operands)}")
    return result


def types_of(operands: Sequence[Any]) -> str:
    """The names of their types, for messages."""
    return ", ".join(type(x).__name__ for x in operands)


def _operand(x: Any) -> Any:
    is_value = isinstance(x, (bool, int, float, _batch.Batch, _batch.Tensor, Tensor, Tracer)) and not isinstance(
        x, np.generic
    )
    return plain(x) if is_value or not (is_array(x) or isinstance(x, (list, tuple))) else as_tensor(x)._sample


@jax.tree_util.register_pytree_node_class
@boundaries
class Batch(_batch.Batch):
    """A `jaxdali.dynamic.Batch` with the names of DALI's: `tensors`, `select`, `shape`, `cpu`, `gpu`, `evaluate`, ...

    It is made, and its arithmetic works, by the rules of `Tensor`.
    """

    __slots__ = ()
    __hash__ = None  # pyright: ignore[reportAssignmentType]  a comparison is a batch

    def __init__(
        self, tensors: Any, dtype: Any = None, device: Any = None, layout: str | None = None, copy: bool = False
    ):
        """The same as `batch` with `copy`, else as `as_batch`."""
        made = (batch if copy else as_batch)(tensors, dtype, device, layout)
        super().__init__(made._data, made._shapes, made.layout or "", made._dims)

    @classmethod
    def _with(cls, data: Any, shapes: Any = None, layout: str = "", dims: Any = None) -> Batch:
        batch = cls.__new__(cls)
        _batch.Batch.__init__(batch, data, shapes, layout, dims)
        return batch

    @staticmethod
    def of(found: _batch.Batch) -> Batch:
        """The same samples."""
        return found if isinstance(found, Batch) else Batch._with(found._data, found._shapes, found.layout, found._dims)

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
        return of_numpy(self._data.dtype)

    @property
    def device(self) -> Device:
        """Where the samples are."""
        return Device.of(self._device)

    @property
    def _spec(self) -> Any:
        return self._plain._spec

    @staticmethod
    def broadcast(sample: Any, batch_size: int, device: Any = None, dtype: Any = None) -> Batch:
        """A batch of one sample again and again. ValueError: it is a batch."""
        if isinstance(sample, _batch.Batch):
            raise ValueError("Batch.broadcast takes one sample, got a batch")
        one = tensor(sample, dtype)
        repeated = dynamic.batch(np.broadcast_to(one._sample, (batch_size, *one.shape)), one.layout)
        return _placed(repeated, device)

    _pointwise = staticmethod(_operator)

    @property
    def slice(self) -> Any:
        """Parts of each sample, as of `jaxdali.dynamic.Batch`; ``...`` stands for the axes between."""
        return _Slices(self._plain)

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
        """The samples: ``batch.tensors[i]`` is a `Tensor`, a slice or a list of numbers gives some of them; and
        iteration.
        """
        return _Tensors(self)

    def select(self, sample_range: Any) -> Any:
        """A sample by its number, a batch of some by a slice or a list of numbers, or itself for ``...``."""
        return self if sample_range is Ellipsis else self[sample_range]

    def __getitem__(self, key: Any) -> Any:
        """As `select`; DALI's batches have no subscripts."""
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
        """The batch on a device; itself where it is there, unless `force_copy`."""
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
          copy: True: always copied; False: a batch that must be copied is a ValueError; None: copied if it must be.
          pad: whether samples of different shapes are padded with zeros.
        """
        if copy is False and not self.is_dense:
            raise ValueError("the samples are not one array, so they can't become a torch.Tensor without a copy")
        tensor = self._plain.torch(pad)
        tensor = tensor[0] if pad else tensor
        return tensor.clone() if copy else tensor

    def __repr__(self) -> str:
        if isinstance(self._data, Tracer):
            return repr(self._plain)
        shown = [np.array2string(np.asarray(x), prefix="    ", edgeitems=2) for x in self._plain.samples()[:_SHOWN]]
        more = ["..."] if len(self) > _SHOWN else []
        gap = ", " if self.ndim == 0 else "," + "\n" * max(self.ndim, 1) + "    "
        shapes = ", ".join([*map(str, self.shape[:_SHOWN]), *more])
        parts = {"num_samples": len(self), "shape": f"[{shapes}]"}
        return _described("Batch", f"[{gap.join([*shown, *more])}]", self, parts)

    def _repr_html_(self) -> str | None:
        return self._plain._repr_html_()

    def __reduce__(self) -> Any:
        return Batch._with, self._plain.__reduce__()[1]

    @classmethod
    def tree_unflatten(cls, known: tuple[str | None, Any], children: Sequence[Any]) -> Batch:
        layout, dims = known
        return cls._with(children[0], children[1] if len(children) > 1 else None, layout or "", dims)


_SHOWN = 8  # samples in the text of a batch


def _described(name: str, data: str, x: Any, parts: dict[str, Any]) -> str:
    layout = {} if x.layout is None else {"layout": f'"{x.layout}"'}
    facts = {"dtype": x.dtype, **layout, "device": f'"{x.device.device_type}"', **parts}
    return f"{name}(\n    " + ",\n    ".join([data, *(f"{n}={v}" for n, v in facts.items())]) + ")"


class _Slices(_batch.Slices):
    def __getitem__(self, key: Any) -> Batch:
        keys = key if isinstance(key, tuple) else (key,)
        if any(k is Ellipsis for k in keys):
            at = next(i for i, k in enumerate(keys) if k is Ellipsis)
            if any(k is Ellipsis for k in keys[at + 1 :]):
                raise ValueError("a subscript can have one Ellipsis only")
            keys = (*keys[:at], *[slice(None)] * (self._batch.ndim - len(keys) + 1), *keys[at + 1 :])
        return Batch.of(super().__getitem__(tuple(map(_index, keys))) if keys else self._batch)


def _index(x: Any) -> Any:
    if isinstance(x, slice):
        return slice(_index(x.start), _index(x.stop), _index(x.step))
    return int(x) if isinstance(x, (Tensor, np.integer)) else plain(x)


class _Tensors(Sequence[Any]):
    """Samples of a batch, as `Tensor`s."""

    def __init__(self, of: Batch, places: Sequence[int] | None = None):
        self._of, self._places = of, range(len(of)) if places is None else places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, key: Any) -> Any:
        """A sample by its number, some of them by a slice or a list of numbers."""
        if isinstance(key, slice):
            return _Tensors(self._of, self._places[key])
        if isinstance(key, list):
            return _Tensors(self._of, [self._places[i] for i in key])
        return self._of[self._places[key]]

    select = __getitem__

    def tolist(self) -> list[Tensor]:
        """The samples in a list."""
        return list(self)

    def as_batch(self, copy: bool = False) -> Batch:
        """The samples as a batch, which shares no memory with them."""
        return self._of[list(self._places)]


@boundaries
class Tensor(Operators):
    """A single sample in the host's memory, with the names of DALI's. The arguments are those of `tensor`.

    Arithmetic, comparisons and `math` follow DALI's rules, also with NumPy's arrays and scalars on the left. It is no
    NumPy array, but functions of NumPy take it as one; ``np.asarray(tensor)`` shares its memory; `jax.numpy.asarray`,
    DLPack and `torch` make others of it.
    """

    __slots__ = ("_sample",)
    __hash__ = None  # pyright: ignore[reportAssignmentType]  a comparison is a tensor
    __array_priority__ = 1000.0  # NumPy leaves `array * tensor` to this class
    _pointwise = staticmethod(_operator)

    def __init__(self, data: Any, dtype: Any = None, device: Any = None, layout: str | None = None, copy: bool = False):
        self._sample: _batch.Tensor = (tensor if copy else as_tensor)(data, dtype, device, layout)._sample

    @staticmethod
    def of(array: Any, layout: str | None = "") -> Tensor:
        """An array as a sample, without a copy."""
        sample = Tensor.__new__(Tensor)
        sample._sample = _batch.Tensor.of(array, layout or "")
        return sample

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def __jaxdali_sample__(self) -> _batch.Tensor:
        return self._sample

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return of_numpy(self._sample.dtype)

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
        """Where it is."""
        return Device("cpu")

    def __repr__(self) -> str:
        return _described(
            "Tensor", np.array2string(np.asarray(self), prefix="    ", edgeitems=2), self, {"shape": self.shape}
        )

    # --- elements ---------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Tensor:
        """A part, by NumPy's rules. It keeps the letters of the axes that are left."""
        keys = tuple(_number(k) for k in key) if isinstance(key, tuple) else _number(key)
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
        """The only element, or that at a place, as Python's number. ValueError: there are several."""
        return self._sample.item(*place)

    def tolist(self) -> Any:
        """The elements as Python's numbers, in lists."""
        return self._sample.tolist()

    # --- to others --------------------------------------------------------------------------------------------------

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
        """The same as a `torch.Tensor`."""
        import torch

        return torch.from_numpy(np.array(self) if copy or not self._sample.flags.writeable else np.asarray(self))

    def cpu(self) -> Tensor:
        """Itself."""
        return self

    def gpu(self, index: int | None = None) -> Tensor:
        """Itself: functions that are asked for ``device="gpu"`` move it."""
        return self.to_device(Device("gpu", index))

    def to_device(self, device: Any, force_copy: bool = False) -> Tensor:
        """Itself, or a copy."""
        device_of(device)
        return Tensor.of(self._sample.copy(), self.layout) if force_copy else self

    def evaluate(self) -> Tensor:
        """Itself."""
        return self

    def __reduce__(self) -> Any:
        return Tensor.of, (np.asarray(self), self.layout)


def _number(k: Any) -> Any:
    """A part of a subscript for NumPy, where DALI's True is 1."""
    if isinstance(k, slice):
        return slice(_number(k.start), _number(k.stop), _number(k.step))
    if isinstance(k, Tensor):
        return np.asarray(k) if k.ndim else k.item()
    return int(k) if isinstance(k, bool) else k


# --- conversions ------------------------------------------------------------------------------------------------------


def plain(x: Any) -> Any:
    """The value of `jaxdali.dynamic` for one of this module's classes; anything else is returned unchanged."""
    if isinstance(x, Batch):
        return x._plain
    return x._sample if isinstance(x, Tensor) else x


def own(x: Any, single: bool = False) -> Any:
    """The results of a function of `jaxdali.dynamic` as this module's classes. Several outputs are a tuple.

    Args:
      single: whether a batch is one of one sample, which is wanted alone.
    """

    def leaf(e: Any) -> Any:
        if isinstance(e, _batch.Batch):
            return Tensor.of(e[0], e.layout) if single else Batch.of(e)
        if isinstance(e, _batch.Tensor):
            return Tensor.of(e, e.layout)
        # One number serves all samples, as in DALI.
        return dynamic.random.broadcast(e) if isinstance(e, JaxTensor) else e

    kinds = (_batch.Batch, _batch.Tensor, JaxTensor)
    return jax.tree.map(leaf, tuple(x) if isinstance(x, list) else x, is_leaf=lambda e: isinstance(e, kinds))


def is_array(x: Any) -> bool:
    """Whether it is an array of NumPy, JAX or another library, a NumPy scalar, or a tensor."""
    if isinstance(x, (Tensor, np.ndarray, np.generic, jax.Array)):
        return True
    return not is_node(x) and not isinstance(x, JaxTensor) and (hasattr(x, "__dlpack__") or hasattr(x, "__array__"))


def _array(x: Any, dtype: np.dtype | None) -> np.ndarray:
    """A sample of a type. Arrays are rounded and saturated to it, as by `cast`; of Python's numbers it is made by
    NumPy's rules.
    """
    if any(isinstance(e, _batch.Batch) for e in (x if isinstance(x, (list, tuple)) else [x])):
        raise TypeError("a batch can't be a sample, or a part of one")
    if isinstance(x, FILE):
        x = np.frombuffer(x, np.uint8)
    if is_array(x) or hasattr(x, "__array_interface__"):
        array = np.asarray(dynamic.tensor(plain(x)))
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
        return _of_32_bits(array)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"a tensor is made of an array, of numbers or of a file's bytes, got {type(x).__name__}")
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _of_32_bits(integers: np.ndarray) -> np.ndarray:
    """Integers as int32; those that only uint32 holds as that."""
    low, high = (int(integers.min()), int(integers.max())) if integers.size else (0, 0)
    limits = np.iinfo(np.uint32 if low >= 0 and high > np.iinfo(np.int32).max else np.int32)
    if low < limits.min or high > limits.max:
        wrong = low if low < limits.min else high
        raise OverflowError(f"{wrong} does not fit into {limits.dtype}: pass dtype, or an array of NumPy")
    return integers.astype(limits.dtype)


def _tensor(data: Any, dtype: Any, device: Any, layout: str | None, pad: bool, copy: bool) -> Tensor:
    if device is not None:
        device_of(device)
    element = None if dtype is None else numpy_of(dtype)
    inherited = data.layout or "" if isinstance(data, (_batch.Batch, _batch.Tensor, Tensor)) else ""
    if isinstance(data, _batch.Batch):
        inherited = f"N{inherited}" if inherited or not data.ndim else ""
        whole = plain(data).numpy(pad=pad)
        data = whole[0] if pad else whole
    array = _array(data, element)
    if copy and (is_array(data) or isinstance(data, FILE)):
        array = np.array(array)
    found = dynamic.tensor(array, layout or inherited)
    return Tensor.of(found, found.layout)


@boundary
def tensor(data: Any, dtype: Any = None, device: Any = None, layout: str | None = None, pad: bool = False) -> Tensor:
    """A single sample, as a copy: of an array, numbers in lists, a file's bytes, or a whole batch as an array ``[N,
    ...]``.

    Args:
      dtype: by default that of the array, and int32 or float32 for Python's numbers (uint32 for those that only this
        holds). Arrays are rounded and saturated; Python's numbers must fit, and lose their fractions.
      device: checked; a single sample is in the host's memory.
      layout: a letter for each axis. Default: that of `data`, and "N" before that of a batch.
      pad: whether the samples of a ragged batch are padded with zeros.

    Raises:
      ValueError, TypeError: as of `jaxdali.dynamic.tensor`.
      OverflowError: a number does not fit into the type.
    """
    return _tensor(data, dtype, device, layout, pad, True)


@boundary
def as_tensor(data: Any, dtype: Any = None, device: Any = None, layout: str | None = None, pad: bool = False) -> Tensor:
    """The same as `tensor`, which shares the memory of an array where it can."""
    return _tensor(data, dtype, device, layout, pad, False)


def _placed(found: _batch.Batch, device: Any) -> Batch:
    return Batch.of(found) if device is None else Batch.of(found).to_device(device)


def _batch_of(tensors: Any, dtype: Any, device: Any, layout: str | None, copy: bool) -> Batch:
    element = None if dtype is None else numpy_of(dtype)
    if isinstance(tensors, _batch.Batch):
        found = plain(tensors)
        if element is not None and element != found.dtype:
            found = dynamic.cast(found, dtype=element)
        return _placed(dynamic.batch(found, layout), device)
    if isinstance(tensors, (jax.Array, *FILE)) and element is None:
        return _placed(dynamic.batch(tensors, layout), device)
    if is_array(tensors):
        inherited = (tensors.layout or "")[1:] if isinstance(tensors, (_batch.Tensor, Tensor)) else ""
        array = _array(tensors, element)
        return _placed(
            dynamic.batch(np.array(array) if copy else array, inherited if layout is None else layout), device
        )
    if not isinstance(tensors, Iterable) or isinstance(tensors, str) or hasattr(tensors, "__array_interface__"):
        raise TypeError(f"a batch is made of a list of samples, an array or a batch, got {type(tensors).__name__}")
    samples: list[np.ndarray] = []
    known = layout or ""
    for i, x in enumerate(tensors):
        if x is None:
            raise TypeError(f"sample {i} is None")
        samples.append(_array(x, element))
        element = samples[0].dtype
        here = x.layout if layout is None and isinstance(x, (_batch.Tensor, Tensor)) else None
        if known and here and here != known:
            raise ValueError(f"the samples of a batch must have one layout, got {known!r} and {here!r}")
        known = known or here or ""
    if element is None:
        raise ValueError("a batch without samples needs a dtype")
    return _placed(dynamic.batch(samples or np.empty(0, element), known), device)


@boundary
def batch(tensors: Any, dtype: Any = None, device: Any = None, layout: str | None = None) -> Batch:
    """A batch of samples, as a copy: of an iterable of what `tensor` takes, of an array ``[N, ...]``, or of a batch.

    Args:
      dtype: of the samples. Default: that of the first one, by the rules of `tensor`; it is needed if there is none.
      device: where it is put. Default: it stays.
      layout: a letter for each axis of a sample. Default: that of the samples.

    Raises:
      ValueError, TypeError, OverflowError: as of `tensor` and `jaxdali.dynamic.batch`.
    """
    return _batch_of(tensors, dtype, device, layout, True)


@boundary
def as_batch(tensors: Any, dtype: Any = None, device: Any = None, layout: str | None = None) -> Batch:
    """The same as `batch`, which shares the memory of an array ``[N, ...]`` where it can."""
    return _batch_of(tensors, dtype, device, layout, False)
