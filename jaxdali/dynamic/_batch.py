"""`Batch`: the inputs and outputs of functions of values."""

from __future__ import annotations

import enum
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec

from .._core.expressions import Arithmetic, Operators, python_number
from .._core.names import did_you_mean
from .._core.ragged import BufferPool, DeviceSamples, Packed, is_on_accelerator, pack, plan_offsets
from .._core.ragged import roomy_size as _roomy
from .._core.tracebacks import boundaries
from .._core.values import Spec, Value, narrow
from .._core.words import of_values
from .._program.sharding import on_mesh
from .._tensors.thumbnails import SHOWN, page_of

_SLICE = slice  # a batch has a property of that name


class Operations(Protocol):
    """The functions behind the operators of batches. `_functions`, which imports this module, implements them."""

    def pointwise(self, function: str, *operands: Any) -> Any:
        """Calls a pointwise function; NotImplemented if an operand is not a value."""
        ...

    def subscript(self, batch: Batch, key: Any) -> Batch:
        """Takes a part of each sample."""
        ...


_operations: Operations | None = None


def set_operations(operations: Operations):
    """Sets the functions behind the operators. `_functions` calls it once."""
    global _operations
    _operations = operations


def _get_operations() -> Operations:
    assert _operations is not None
    return _operations


class Draw(enum.IntEnum):
    """How a single value depends on random numbers, see Note [One key].

    A value that is computed from several others has the greatest of their draws.
    """

    NONE = 0
    SHARED = 1  # drawn, and meant for all samples, see `random.broadcast`
    ONE = 2  # drawn with one key, so that a batch of several samples must not use it


# The ufuncs that are operators of Python, by the names of DALI's functions.
_UFUNCS: dict[str, np.ufunc] = {
    **{name: getattr(np, name) for name in ("add", "abs")},
    **{
        "minus": np.negative,
        "plus": np.positive,
        "sub": np.subtract,
        "mul": np.multiply,
        "fdiv": np.true_divide,
        "div": np.floor_divide,
    },
    **{"mod": np.remainder, "pow": np.power, "shl": np.left_shift, "shr": np.right_shift, "bitnot": np.invert},
    **{"bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor, "eq": np.equal, "ne": np.not_equal},
    **{"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal},
}
_FUNCTIONS = {ufunc: function for function, ufunc in _UFUNCS.items()}

# `by_numpy`: whether this thread runs a function of NumPy, in which operators follow NumPy's rules.
_local = threading.local()


class UnknownAttribute(AttributeError):
    """A `Tensor` or a `Batch` lacks an attribute.

    The message is made when it is shown, as most callers, such as `hasattr`, only ask whether the attribute exists.
    Tracebacks and pickle show the class that users know.
    """

    __module__, __qualname__ = "builtins", "AttributeError"

    def __init__(self, cls: type[Tensor | Batch], name: str):
        super().__init__(cls, name)
        self.name = name

    def __str__(self) -> str:
        cls, name = self.args
        suggestion = (
            ""
            if name.startswith("_")
            else did_you_mean(name, dir(cls), "Tensor" if issubclass(cls, Tensor) else "Batch")
        )
        return of_values(f"a {cls.__name__} has no attribute {name!r}{suggestion}")

    def __reduce__(self) -> Any:
        return AttributeError, (str(self),)


@boundaries
class Tensor(Operators, np.ndarray):
    """A single sample: a NumPy array that functions treat as one sample instead of a batch. Make one with `tensor`.

    Arithmetic and comparisons follow DALI's type rules, as those of a `Batch` do: ``uint8 * 2`` is int32. This holds
    for ``+=`` as well, which makes a new tensor, and with an array or a NumPy scalar on the left. NumPy's functions and
    methods are as for any array.

    Attributes:
      layout: a letter for each axis, e.g. "HWC"; "" if it is not known. A subscript keeps the letters of the axes that
        are left. Other arrays made from a tensor keep its layout if they have as many axes.
    """

    layout: str = ""
    _draw: Draw = Draw.NONE  # how it depends on random numbers
    __hash__ = None  # pyright: ignore[reportAssignmentType]  a comparison is a tensor

    def __array_finalize__(self, source: Any):
        """NumPy calls this for each new array of this class, with the array that it is made from."""
        layout = getattr(source, "layout", "")
        self.layout = layout if len(layout) == self.ndim else ""
        self._draw = getattr(source, "_draw", Draw.NONE)

    def __iter__(self) -> Iterator[Any]:
        # NumPy's scalars would lose the draw.
        return (self[i] for i in range(len(self))) if self._draw else super().__iter__()

    def _with_draw(self, draw: Draw) -> Tensor:
        return Tensor.of(self, self.layout, draw)

    def jax(self) -> jax.Array:
        """Returns the sample as a `jax.Array`, narrowed to 32 bits unless ``jax_enable_x64`` is set."""
        return _to_jax(np.asarray(self))

    @staticmethod
    def _pointwise(function: str, *operands: Any) -> Any:  # for `jaxdali.math`, too
        if getattr(_local, "by_numpy", False):
            return _UFUNCS[function](*operands)
        return _get_operations().pointwise(function, *operands)

    def __array_function__(self, function: Any, types: Any, positional: Any, keywords: Any) -> Any:
        """Runs a function of NumPy. The operators inside it follow NumPy's type rules, see `_pointwise`."""
        outer, _local.by_numpy = getattr(_local, "by_numpy", False), True
        try:
            return super().__array_function__(function, types, positional, keywords)
        finally:
            _local.by_numpy = outer

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **keywords: Any) -> Any:
        """Applies a ufunc as to arrays. The result is a tensor with this one's layout, and the greatest draw of the
        inputs; or `out`, if it is passed.
        """
        if (
            method == "__call__"
            and ufunc in _FUNCTIONS
            and isinstance(inputs[0], np.generic)
            and out is None
            and not keywords
        ):
            # `numpy_scalar + tensor` calls the ufunc. It gets DALI's type rules, as all operators of a tensor do.
            return self._pointwise(_FUNCTIONS[ufunc], python_number(inputs[0]), *inputs[1:])
        if out is not None:  # a tuple with an array for each output
            keywords["out"] = tuple(map(_as_ndarray, out))
        results = getattr(ufunc, method)(*map(_as_ndarray, inputs), **{n: _as_ndarray(x) for n, x in keywords.items()})
        if out is not None:
            return out[0] if len(out) == 1 else out
        draw = draw_of(inputs)
        return tuple(self._like(x, draw) for x in results) if isinstance(results, tuple) else self._like(results, draw)

    def _like(self, array: Any, draw: Draw) -> Any:
        """Makes a tensor of an array, with this tensor's layout if it has as many axes; None for None."""
        return (
            array
            if array is None
            else Tensor.of(array, self.layout if len(self.layout) == np.ndim(array) else "", draw)
        )

    def __divmod__(self, other: Any) -> Any:
        return NotImplemented  # NumPy's type rules would not match those of // and %

    def __rdivmod__(self, other: Any) -> Any:
        return NotImplemented

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        if isinstance(part, Tensor):
            part.layout = layout_of_part(self.layout, self.ndim, key)
        return Tensor.of(part, draw=self._draw) if self._draw and isinstance(part, np.generic) else part

    # NumPy's functions that permute axes, such as moveaxis, call these methods. They permute the layout, too.

    def transpose(self, *axes: Any) -> Any:
        """As `numpy.ndarray.transpose`: takes the axes, or one tuple of them; none of them: all in reverse order."""
        result: Any = super().transpose(*axes)
        if self.layout:
            order = axes[0] if len(axes) == 1 and not isinstance(axes[0], (int, np.integer)) else axes
            result.layout = "".join(self.layout[a] for a in (order or range(self.ndim)[::-1]))
        return result

    def swapaxes(self, axis1: Any, axis2: Any) -> Any:
        order = list(range(self.ndim))
        order[axis1], order[axis2] = order[axis2], order[axis1]
        return self.transpose(order)

    @property
    def T(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride, reportIncompatibleMethodOverride]
        return self.transpose()

    def __getattr__(self, name: str) -> Any:
        if name == "__jax_array__" and self._draw is Draw.ONE and is_deferred_by_jax(self.ndim):
            return lambda: NotImplemented  # so that `array * tensor` is left to this class
        raise UnknownAttribute(type(self), name)

    def __reduce__(self) -> Any:
        return Tensor.of, (np.asarray(self), self.layout, self._draw)

    @staticmethod
    def of(array: Any, layout: str = "", draw: Draw = Draw.NONE) -> Tensor:
        """Makes a tensor of an array, without a copy."""
        result = np.asarray(array).view(Tensor)
        result.layout, result._draw = layout, draw
        return result


# ``t += 1`` makes a new tensor, as ``t = t + 1`` does: the result may have another type than the buffer of `t`.
for _name in "add sub mul truediv floordiv mod pow lshift rshift and or xor".split():
    setattr(Tensor, f"__i{_name}__", getattr(Operators, f"__{_name}__"))


def draw_of(values: Sequence[Any]) -> Draw:
    """The draw of a value that is computed from `values`."""
    return max((x._draw for x in values if isinstance(x, Tensor)), default=Draw.NONE)


def _as_ndarray(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, Tensor) else x


def layout_of_part(layout: str, ndim: int, key: Any) -> str:
    """The letters of the axes that remain after the subscript `key`; "" if it adds or mixes axes."""
    keys = key if isinstance(key, tuple) else (key,)
    # For each key, whether its axis is dropped: it is a whole number.
    dropped = [
        isinstance(k, (int, np.integer)) or (isinstance(k, np.ndarray) and not k.ndim and k.dtype.kind in "iu")
        for k in keys
    ]
    # A bool is an `int` of Python, but as a subscript it adds an axis.
    if not all(d or k is Ellipsis or isinstance(k, _SLICE) for d, k in zip(dropped, keys, strict=True)) or any(
        isinstance(k, bool) for k in keys
    ):
        return ""
    # An ellipsis stands for the axes between, which all remain.
    gap = next((i for i, k in enumerate(keys) if k is Ellipsis), len(keys))
    before_gap, after_gap = dropped[:gap], dropped[gap + 1 :]
    dropped = [*before_gap, *[False] * (ndim - len(before_gap) - len(after_gap)), *after_gap]
    return "".join(letter for letter, d in zip(layout, dropped, strict=False) if not d)


def is_deferred_by_jax(ndim: int) -> bool:
    """Whether an operator of a JAX array, which asks a drawn value for `__jax_array__`, must leave the operation to it.

    This is so if the array is a number, or has more axes than the value, ``ndim``, so that it is a batch. The caller of
    this function must be the value's ``__getattr__``.
    """
    caller = sys._getframe(2)
    # The operators of JAX arrays are named `_operator_...`; in jax 0.9 all of them are one function.
    name = caller.f_code.co_name
    if not name.startswith("_operator_") and name != "deferring_binary_op":
        return False
    array = caller.f_locals.get("self")
    return isinstance(array, jax.Array) and not 0 < array.ndim <= ndim


class Slices:
    """Takes parts of the samples of a batch, by Python's rules: ``batch.slice[1:-1, ::2]``."""

    def __init__(self, batch: Batch):
        self._batch = batch

    def __getitem__(self, key: Any) -> Batch:
        return _get_operations().subscript(self._batch, key)


@jax.tree_util.register_pytree_node_class
@boundaries
class Batch(Arithmetic):
    """Samples of one type and number of dimensions, in one buffer.

    Make one with `batch`, or with a function of this module. If all samples have one shape, it is *dense*, an array
    ``[N, ...]``; otherwise it is *ragged*: a flat buffer with the samples one after the other, and their shapes.

    A batch is a pytree: of one array if its samples have one shape, else of the buffer and the shapes.
    `jax.device_put`, `jax.tree.map` and `jax.jit` accept it, and functions of `jax.numpy` accept samples of one shape.
    Arithmetic and comparisons work sample by sample, with batches, arrays ``[N, ...]`` and numbers, by DALI's type
    rules. A batch is immutable.

    Attributes:
      layout: a letter for each axis of a sample, e.g. "HWC"; "" if it is not known.
    """

    __slots__ = ("_data", "_dims", "_shapes", "is_borrowed", "layout")
    __hash__ = None  # pyright: ignore[reportAssignmentType]  a comparison is a batch

    def __init__(
        self,
        data: Any,
        shapes: Any = None,
        layout: str = "",
        dims: tuple[int | None, ...] | None = None,
        is_borrowed: bool = False,
    ):
        """For use in this package only.

        Args:
          data: ``[N, *shape]``; for ragged samples a flat buffer, where samples begin at multiples of 64 elements, in
            their order.
          shapes: ``i64[N, ndim]`` of ragged samples; None: the batch is dense.
          dims: extents of ragged samples that do not depend on the batch, e.g. the channels of decoded images, see
            `Spec`. A function may make a dense batch because of them.
          is_borrowed: whether `data` is memory of the caller, who may change it. Users get no such batch.
        """
        self._data, self._shapes, self.layout, self._dims = data, shapes, layout, dims
        self.is_borrowed = is_borrowed

    # --- properties -------------------------------------------------------------------------------------------------

    @property
    def is_dense(self) -> bool:
        """Whether the batch is one array. Samples of a ragged batch may also happen to have one shape: JAX then gets
        them as one array.
        """
        return self._shapes is None

    @property
    def dtype(self) -> np.dtype:
        """Type of the elements."""
        return np.dtype(self._data.dtype)

    @property
    def ndim(self) -> int:
        """Number of dimensions of a sample."""
        return self._data.ndim - 1 if self._shapes is None else self._shapes.shape[1]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of each sample."""
        if self._shapes is None:
            return [tuple(self._data.shape[1:])] * len(self)
        if isinstance(self._shapes, Tracer):
            raise ValueError(
                "the samples differ in shape, so they are not one array, and JAX, which traces a function here, does not know the shapes: "
                "resize or pad the samples before"
            )
        return [tuple(s) for s in np.asarray(self._shapes).tolist()]

    @property
    def device(self) -> Any:
        """The device where the samples are: a `jax.Device`."""
        return self._device

    @property
    def _device(self) -> jax.Device:
        if isinstance(self._data, jax.Array):
            return next(iter(self._data.devices()))
        return jax.local_devices(backend="cpu")[0]

    def __len__(self) -> int:
        return len(self._data if self._shapes is None else self._shapes)

    def __bool__(self) -> bool:
        if len(self) == 1 and all(n == 1 for n in self.shapes[0]):
            return bool(np.asarray(self[0]).reshape(()))
        raise ValueError(
            f"a batch of {len(self)} samples has no truth value: use numpy() with any() or all(), len() for whether it has samples, "
            "or, for an `if` sample by sample, jaxdali.dynamic.jit(enable_conditionals=True)"
        )

    def __repr__(self) -> str:
        # A batch that `jax.tree.map` made may hold something else than an array of samples.
        if not hasattr(self._data, "dtype") or not np.ndim(self._data):
            return f"Batch({self._data!r})"
        shapes = [] if isinstance(self._shapes, Tracer) else self.shapes
        shape_text = (
            f"shape={shapes[0]}"
            if len(set(shapes)) == 1
            else f"ndim={self.ndim}"
            if isinstance(self._shapes, Tracer)
            else f"shapes={shapes[:4]}".replace("]", ", ...]" if len(shapes) > 4 else "]")
        )
        layout = f", layout={self.layout!r}" if self.layout else ""
        device = "" if isinstance(self._data, Tracer) else f", device={self.device}"
        return f"Batch({len(self)} samples, {shape_text}, dtype={self.dtype}{layout}{device})"

    def _repr_html_(self) -> str | None:
        """HTML with the first images, for notebooks; None if the samples are not images."""
        if isinstance(self._data, Tracer) or not len(self):
            return None
        return page_of(repr(self), [np.asarray(x) for x in self[:SHOWN].samples()], self.layout, len(self))

    def __getattr__(self, name: str) -> Any:
        raise UnknownAttribute(type(self), name)

    # --- samples ----------------------------------------------------------------------------------------------------

    def samples(self) -> list[Any]:
        """The samples: on a CPU views of NumPy, otherwise arrays of JAX."""
        if self._shapes is None:
            return list(self._data if is_on_accelerator(self._data) else np.asarray(self._data))
        ragged = self._ragged
        return [ragged[i] for i in range(len(self))]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.samples())

    def __getitem__(self, key: Any) -> Any:
        """Returns a sample for a number, or a batch of some samples for a slice or a list of numbers."""
        if isinstance(key, (int, np.integer)):
            N = len(self)
            if not -N <= key < N:
                raise IndexError(f"sample {key} of a batch of {N}")
            if self._shapes is None:
                return (self._data if is_on_accelerator(self._data) else np.asarray(self._data))[key]
            return self._ragged[int(key) % N]
        if key is None or key is Ellipsis or isinstance(key, tuple):
            raise TypeError("a subscript of a batch selects samples: batch.slice[...] takes a part of each sample")
        indices = np.arange(len(self))[key if isinstance(key, _SLICE) else np.asarray(key)]
        if indices.ndim != 1:
            raise TypeError(f"samples are selected by a number, a slice or a list of numbers, got {type(key).__name__}")
        if self._shapes is None:
            data = self._data
            return Batch(data[key] if isinstance(key, _SLICE) else data[indices], layout=self.layout)
        samples = self.samples()
        return of_samples([samples[i] for i in indices.tolist()], self.layout, self._spec)

    @property
    def _ragged(self) -> Packed | DeviceSamples:
        """The samples of a ragged batch."""
        shapes = self._shape_table(np.int64)
        offsets, _ = plan_offsets(shapes, num_shards=1)
        if is_on_accelerator(self._data):
            return DeviceSamples(self._data, offsets, shapes)
        return Packed(np.asarray(self._data)[None], offsets, shapes)

    @property
    def slice(self) -> Slices:
        """Takes a part of each sample: ``batch.slice[16:-16, 8]``. Indices may be numbers, or batches with one number
        per sample.
        """
        return Slices(self)

    @staticmethod
    def _pointwise(function: str, *operands: Any) -> Any:
        return _get_operations().pointwise(function, *operands)

    # --- conversions ------------------------------------------------------------------------------------------------

    def jax(self, pad: bool = False) -> Any:
        """Returns the samples as one `jax.Array`, narrowed to 32 bits unless ``jax_enable_x64`` is set.

        JAX may move it to another device, as it may ``jax.numpy.asarray(numpy_array)``, unless the function that made
        the batch was called with an array that is committed to its devices.

        Args:
          pad: whether to pad samples of different shapes with zeros to the largest.

        Returns:
          The array ``[N, ...]``, and with `pad` also the shapes, ``i32[N, ndim]``.

        Raises:
          ValueError: the samples differ in shape, and `pad` is False.
        """
        dense = _to_jax(self._dense(pad))
        return (dense, jnp.asarray(self._shape_table(np.int32))) if pad else dense

    def numpy(self, pad: bool = False) -> Any:
        """Like `jax`, as a NumPy array; without a copy if the batch is dense and on a CPU."""
        dense = np.asarray(self._dense(pad))
        return (dense, self._shape_table(np.int32)) if pad else dense

    def torch(self, pad: bool = False) -> Any:
        """Like `jax`, as a `torch.Tensor` on the device of the samples, through DLPack."""
        import torch

        dense = self._dense(pad)
        tensor = torch.from_dlpack(dense) if isinstance(dense, jax.Array) else torch.from_numpy(_writable(dense))
        return (tensor, torch.from_numpy(self._shape_table(np.int64))) if pad else tensor

    def to(self, device: Any) -> Batch:
        """Returns the batch on another device.

        Args:
          device: a `jax.Device`, a sharding, a `jax.sharding.PartitionSpec` on the mesh that is set, or a name such as
            "cpu" or "gpu:1".
        """
        if isinstance(device, str):
            device = _device_named(device)
        return jax.device_put(self, on_mesh(device, "Batch.to: device"))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        dense = np.asarray(self._dense(pad=False))
        if dtype is not None and dense.dtype != dtype:
            return dense.astype(dtype)
        return dense.copy() if copy else dense

    def __jax_array__(self) -> jax.Array:
        return self.jax()

    def __dlpack__(self, **arguments: Any) -> Any:
        dense = self._dense(pad=False)
        return (dense if isinstance(dense, jax.Array) else _writable(dense)).__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._dense(pad=False).__dlpack_device__()

    def as_dense(self) -> Batch:
        """For use in this package only: a dense batch, if the samples have one shape, otherwise this batch."""
        return (
            Batch(self._dense(pad=False), layout=self.layout) if self._shapes is not None and self._is_uniform else self
        )

    @property
    def _is_uniform(self) -> bool:
        """Whether the samples have one shape. While JAX traces, a ragged batch counts as not uniform."""
        # In a batch that `jax.tree.map` made, the shapes may be no array.
        if (
            self._shapes is None
            or not isinstance(self._shapes, (np.ndarray, jax.Array))
            or isinstance(self._shapes, Tracer)
        ):
            return self._shapes is None
        shapes = np.asarray(self._shapes)
        return len(shapes) > 0 and bool((shapes == shapes[0]).all())

    def _shape_table(self, dtype: Any) -> np.ndarray:
        """The shapes as an array ``[N, ndim]``."""
        return np.asarray(self.shapes, dtype).reshape(len(self), self.ndim)

    def _dense(self, pad: bool) -> Any:
        """The samples as one array ``[N, ...]``, padded with zeros if `pad`.

        Raises:
          ValueError: the samples differ in shape, and `pad` is False.
        """
        if self._shapes is None:
            return self._data
        shapes = self._shape_table(np.int64)
        if len(shapes) and (shapes != shapes[0]).any() and not pad:
            distinct = sorted(set(map(tuple, shapes.tolist())))
            shown = ", ".join(map(str, distinct[:4])) + (f" and {len(distinct) - 4} more" if len(distinct) > 4 else "")
            raise ValueError(
                f"the samples differ in shape ({shown}), so they are not one array: resize or pad them, pass pad=True, or use samples()"
            )
        largest = tuple(shapes.max(axis=0, initial=0).tolist())
        dense = np.zeros((len(self), *largest), self.dtype)
        for row, sample in zip(dense, self.samples(), strict=True):
            row[tuple(map(_SLICE, sample.shape))] = sample
        return jax.device_put(dense, self._device) if is_on_accelerator(self._data) else dense

    # --- for functions ----------------------------------------------------------------------------------------------

    @property
    def _spec(self) -> Spec:
        """The description of a batch that functions of values are compiled for; that of a ragged one has no shape."""
        return Spec(
            self.dtype,
            self.ndim,
            tuple(self._data.shape[1:]) if self._shapes is None else None,
            self.layout,
            self._dims,
        )

    @property
    def _on_host(self) -> np.ndarray | Packed:
        """The samples in the host's memory."""
        if self._shapes is None:
            return np.asarray(self._data)
        shapes = self._shape_table(np.int64)
        offsets, _ = plan_offsets(shapes, num_shards=1)
        # Its buffer is ``[shards, capacity]``.
        return Packed(np.asarray(self._data)[None], offsets, shapes)

    @staticmethod
    def _of(value: Value) -> Batch:
        """Makes a batch of an output of an executor with one shard."""
        data, layout, dims = value.data, value.spec.layout, value.spec.dims
        if isinstance(data, DeviceSamples):
            return Batch(data.data, value.shapes, layout, dims)
        if isinstance(data, Packed):
            # A view of some samples of another batch has other offsets, and is copied.
            offsets, _ = plan_offsets(data.shapes, num_shards=1)
            if not np.array_equal(data.offsets, offsets):
                return of_samples([data[i] for i in range(len(data))], layout, value.spec)
            return Batch(data.data[0], data.shapes, layout, dims)  # the buffer of the only shard
        return Batch(data, layout=layout)

    def __reduce__(self) -> Any:
        """Pickles the samples without the unused rest of their buffer."""
        data = self._data
        if self._shapes is not None:
            _, num_elements = plan_offsets(self._shape_table(np.int64), num_shards=1)
            data = np.asarray(data)[:num_elements]
        return Batch, (data, self._shapes, self.layout, self._dims)

    # --- pytree ---------------------------------------------------------------------------------------------------

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """The arrays, and (layout, dims). Samples of one shape become one dense array, which needs no `dims`."""
        if self._is_uniform:
            return (_on_mesh(self._dense(pad=False)),), (self.layout, None)
        return (self._data, self._shapes), (self.layout, self._dims)

    @classmethod
    def tree_unflatten(cls, aux_data: tuple[str, Any], children: Sequence[Any]) -> Batch:
        layout, dims = aux_data
        return cls(children[0], children[1] if len(children) > 1 else None, layout, dims)


buffers = BufferPool()  # of batches on the host


def of_samples(samples: Sequence[Any], layout: str = "", like: Spec | None = None, roomy: bool = False) -> Batch:
    """Makes a ragged batch of arrays with one type and number of dimensions; a dense one of numbers.

    Args:
      like: gives type and dimensions if there is no sample.
      roomy: makes the buffer as large as a program's buffer for such batches, so that the program reads it in place.
        For batches that only a function sees.

    Raises:
      ValueError: the arrays differ in type or in number of dimensions, or there is none.
    """
    arrays = [np.asarray(x) for x in samples]
    if not arrays:
        if like is None:
            raise ValueError("a batch without samples has no type: make it with batch(numpy.empty((0, ...), dtype))")
        return Batch(np.empty(0, like.dtype), np.empty((0, like.ndim), np.int64), layout, like.dims)
    for i, x in enumerate(arrays):
        if x.dtype != arrays[0].dtype or x.ndim != arrays[0].ndim:
            raise ValueError(
                f"the samples of a batch must have one type and number of dimensions: sample 0 has {arrays[0].dtype} and {arrays[0].ndim}, "
                f"sample {i} has {x.dtype} and {x.ndim}"
            )
    if arrays[0].ndim == 0:
        return Batch(np.stack(arrays), layout=layout)

    def empty(elements: int, dtype: np.dtype) -> np.ndarray:
        """A buffer ``[1, elements]`` or larger, of one shard."""
        return buffers.empty((1, _roomy(elements) if roomy else max(elements, 1)), dtype)

    packed = pack(arrays, num_shards=1, empty=empty)
    return Batch(packed.data[0], packed.shapes, layout, None if like is None else like.dims)


def owned(batch: Batch) -> Batch:
    """The batch, or a copy of one that is borrowed."""
    return _copied(batch) if batch.is_borrowed else batch


def apart_from(lenders: Sequence[Batch], result: Batch) -> Batch:
    """A result, or a copy of it if it shares the memory of borrowed batches."""
    if isinstance(result._data, np.ndarray) and any(np.may_share_memory(result._data, b._data) for b in lenders):
        return _copied(result)
    return result


def _copied(batch: Batch) -> Batch:
    data = buffers.empty(batch._data.shape, batch._data.dtype)
    data[...] = batch._data
    return Batch(data, batch._shapes, batch.layout, batch._dims)


def is_committed(batch: Batch) -> bool:
    """Whether the samples are an array of JAX that is committed to its devices, so that JAX does not move it."""
    return isinstance(batch._data, jax.Array) and batch._data.committed


def uncommitted(batch: Batch) -> Batch:
    """The batch, which is on one device, not committed to it. It shares the memory."""
    if not is_committed(batch):
        return batch
    array = batch._data
    try:
        data = type(array)(array.aval, array.sharding, array._arrays, committed=False, _skip_checks=True)
    except (AttributeError, TypeError):  # These names are not public. What follows takes 100 us, not 10, or copies.
        with jax.default_device(batch._device):
            data = jax.device_put(np.asarray(array))
    return Batch(data, batch._shapes, batch.layout, batch._dims)


def _on_mesh(array: Any) -> Any:
    """Replicates an array on the mesh that is set.

    Programs under a mesh refuse an array that is committed to a single device.
    """
    if jax.sharding.get_abstract_mesh().empty or not isinstance(array, jax.Array) or isinstance(array, Tracer):
        return array
    try:
        replicated = NamedSharding(jax.sharding.get_mesh(), PartitionSpec())
    except ValueError:  # while JAX traces, `get_mesh` fails; the array becomes a constant of the program
        return array
    is_on_one_device = array.committed and len(array.devices()) == 1
    return jax.device_put(array, replicated) if is_on_one_device and replicated.is_fully_addressable else array


def _device_named(name: str) -> jax.Device:
    """The local device with a name such as "gpu:1". Raises ValueError if there is none."""
    platform, _, number = name.partition(":")
    try:
        return jax.local_devices(backend=platform)[int(number or 0)]
    except (RuntimeError, IndexError, ValueError):
        available = ", ".join(f"{d.platform}:{i}" for i, d in enumerate(jax.local_devices()))
        raise ValueError(f"there is no device {name!r} here; JAX has {available}") from None


def _to_jax(array: Any) -> jax.Array:
    """A `jax.Array`, narrowed to 32 bits unless ``jax_enable_x64`` is set."""
    dtype = array.dtype if jax.config.read("jax_enable_x64") else narrow(np.dtype(array.dtype))
    return jnp.asarray(_on_mesh(array if array.dtype == dtype else array.astype(dtype)))


def _writable(array: np.ndarray) -> np.ndarray:
    return array if array.flags.writeable else array.copy()
