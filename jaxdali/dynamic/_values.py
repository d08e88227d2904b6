"""Converts the values that callers pass into batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .._core.declaration import Argument
from .._core.errors import ArgumentTypeError
from .._core.kinds import is_foreign
from .._core.tracebacks import boundary
from .._core.words import of_values, sample_advice
from .._data.source_worker import file_rows
from ..types import ScalarConstant, to_dali_type
from ._batch import Batch, Draw, Tensor, of_samples, owned
from ._singles import JaxTensor, is_drawn

FILE = (bytes, bytearray, memoryview)

_COMMON_TYPES = {np.dtype(x) for x in "?bhilBHILefd"}  # types that operators support, by a fast lookup


@boundary
def batch(samples: Any, layout: str | None = None) -> Batch:
    """Makes a batch as a copy of samples, which may change afterwards. Other functions take them without a copy.

    Args:
      samples: a list of arrays of one type and number of dimensions, of files' bytes, or of lists of these, the files of
        each sample, which become rows of layout "F*"; an array ``[N, ...]`` of NumPy, JAX or another framework with
        DLPack; a column of Arrow, pandas or Hugging Face's `datasets`; or a batch. If no sample has files, only the
        layout "F*" tells that the empty lists are for files.
      layout: a letter for each axis of a sample, e.g. "HWC". Default: the layout of the batch, or of tensors in a
        list, else none.

    Raises:
      ValueError: the samples differ in type, number of dimensions or layout, or the layout has another number of
        letters.
      TypeError: the samples are not arrays, or have a type that DALI does not have.
    """
    return owned(as_batch(samples, layout))


def as_batch(samples: Any, layout: str | None = None) -> Batch:
    """Does the same as `batch`, but borrows the memory of an array."""
    if layout == "F*" and _are_empty(samples):
        return of_samples([file_rows([])] * len(samples), layout)
    result = _as_batch(samples)
    if layout is not None and layout != result.layout:
        if layout and len(layout) != result.ndim:
            raise ValueError(
                f"layout {layout!r} has {len(layout)} letters, but the samples have {result.ndim} dimensions"
                f"{': leave out N, a layout is of one sample' if layout[0] == 'N' else ''}"
            )
        result = Batch(result._data, result._shapes, layout, result._dims, result.is_borrowed)
    return result


@boundary
def tensor(sample: Any, layout: str | None = None) -> Tensor:
    """Makes a single sample as a copy of an array or a file's bytes. Functions of single samples return single samples.

    Args:
      sample: an array, or a file's bytes.
      layout: a letter for each axis, e.g. "HWC". Default: the sample's layout, if it is a `Tensor`.

    Raises:
      ValueError: the layout has another number of letters than the sample dimensions.
    """
    result = as_tensor(sample, layout)
    return result if isinstance(sample, (bytes, jax.Array)) else result.copy()  # these two never change


def as_tensor(sample: Any, layout: str | None = None) -> Tensor:
    """Does the same as `tensor`, but shares the memory of the sample."""
    own_layout, draw = (sample.layout, sample._draw) if isinstance(sample, Tensor) else ("", Draw.NONE)
    result = Tensor.of(_array(sample), own_layout if layout is None else layout, draw)
    if result.layout and len(result.layout) != result.ndim:
        raise ValueError(
            f"layout {result.layout!r} has {len(result.layout)} letters, but the sample has {result.ndim} dimensions"
        )
    return result


def _as_batch(x: Any, roomy: bool = False) -> Batch:
    """Converts samples into a batch. `roomy`: whether its buffer is as large as a program's, which then reads it in
    place.
    """
    if isinstance(x, Batch):
        return x
    if isinstance(x, FILE):
        raise TypeError("a batch is made of a list of files' bytes, got the bytes of one file")
    if is_image(x):
        raise TypeError("a batch is made of a list of images, got one image")
    if isinstance(x, jax.Array):
        array = _supported_array(x)
    else:
        if is_column(x):
            x = _column_items(x)
        if isinstance(x, np.ndarray) and x.dtype == object and x.ndim == 1:
            x = list(x)
        if isinstance(x, (list, tuple)):
            if is_numbers(x):
                return Batch(_supported_array(np.asarray(x)))
            if is_files_of_samples(x):
                return of_samples([file_rows(list(map(_array, e))) for e in x], "F*", roomy=roomy)
            return of_samples(list(map(_sample, x, range(len(x)))), _layout_of(x), roomy=roomy)
        array = _array(x)
    if array.ndim == 0:
        raise TypeError(
            f"a batch is made of a list of samples, or of an array with a first axis for them, got {type(x).__name__}"
        )
    return Batch(array, is_borrowed=isinstance(array, np.ndarray))


def is_column(x: Any) -> bool:
    """Whether `x` is a column of Arrow or pandas, or a sequence of another library such as `datasets`."""
    if isinstance(x, (str, *FILE, list, tuple, np.ndarray, jax.Array, Batch)):
        return False
    return isinstance(x, Sequence) or (hasattr(x, "__array__") and (hasattr(x, "to_pylist") or hasattr(x, "to_numpy")))


def _column_items(x: Any) -> Any:
    return list(x) if isinstance(x, Sequence) else np.asarray(x)


def _layout_of(samples: Sequence[Any]) -> str:
    """The common layout of the samples that have one, otherwise ""."""
    layouts = dict.fromkeys(x.layout for x in samples if isinstance(x, Tensor) and x.layout)
    if len(layouts) > 1:
        raise ValueError(f"the samples of a batch must have one layout, got {' and '.join(map(repr, layouts))}")
    return next(iter(layouts), "")


def _sample(x: Any, index: int) -> np.ndarray:
    """Converts sample `index` of a list into a NumPy array."""
    if x is None:
        raise TypeError(f"sample {index} of the list is None: a sample must be an array or a file's bytes")
    return _array(x)


def _array(x: Any) -> np.ndarray:
    """Converts a sample into a NumPy array."""
    x = x._data if isinstance(x, JaxTensor) else x
    if isinstance(x, Tracer):
        raise TypeError(
            "in a program that JAX traces a batch is an array with a first axis for its samples, not a list: use jnp.stack"
        )
    if isinstance(x, FILE):
        return np.frombuffer(x, np.uint8)
    if isinstance(x, jax.Array):
        return np.asarray(_supported_array(x))
    if isinstance(x, np.ndarray):
        return _supported_array(np.asarray(x))
    if hasattr(x, "__dlpack__"):
        try:
            return np.from_dlpack(x)
        except (BufferError, RuntimeError, TypeError):  # it is on an accelerator, or NumPy lacks its type
            return np.asarray(jax.dlpack.from_dlpack(x))
    array = np.asarray(x)
    if array.dtype.kind not in "biufV":  # bool, int, uint, float; "V" is that of bfloat16
        raise TypeError(
            of_values(f"a sample must be an array or a file's bytes, got {type(x).__name__}{sample_advice(x)}")
        )
    return array


def is_numbers(x: Any) -> bool:
    """Whether `x` is a list or a tuple of numbers."""
    return isinstance(x, (list, tuple)) and len(x) > 0 and all(isinstance(e, (bool, int, float, np.generic)) for e in x)


def _is_files(x: Any) -> bool:
    """Whether `x` is a list or a tuple of files' bytes, the images of one sample."""
    return isinstance(x, (list, tuple)) and len(x) > 0 and all(isinstance(e, FILE) for e in x)


def is_files_of_samples(x: Sequence[Any]) -> bool:
    """Whether a list has the files of each sample, of which at least one has files."""
    return any(map(_is_files, x)) and all(_is_files(e) or (isinstance(e, (list, tuple)) and not e) for e in x)


def _are_empty(x: Any) -> bool:
    """Whether `x` is a list of empty lists, which have no type."""
    return isinstance(x, (list, tuple)) and len(x) > 0 and all(isinstance(e, (list, tuple)) and not e for e in x)


def _supported_array(array: Any) -> Any:
    """Checks that operators support the type of an array. Returns it in the machine's byte order."""
    if array.dtype in _COMMON_TYPES:
        return array
    if isinstance(array, np.ndarray) and not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    try:
        to_dali_type(array.dtype)
    except (KeyError, TypeError):
        kind = getattr(array.dtype, "kind", "")
        advice = (
            "; pass bytes of files in a list, as NumPy drops zeros at the end of its bytes type" if kind == "S" else ""
        )
        advice = sample_advice(str(array.flat[0])) if kind == "U" and array.size else advice
        advice = (
            "; a random key is passed by name, as key=key"
            if jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
            else advice
        )
        raise TypeError(f"arrays of type {array.dtype} are not supported{of_values(advice)}") from None
    return array


def value_of(x: Any) -> tuple[Batch, bool] | None:
    """Returns an input as a batch, and whether it is a single sample; None for a number, the same for all samples."""
    x = getattr(x, "__jaxdali_sample__", x)  # set by tensors of `jaxdali.experimental.dynamic`
    if isinstance(x, Batch):
        return x, False
    if is_drawn(x):
        return _batch_of_one(x), True
    if isinstance(x, Tracer):
        if not all(isinstance(n, int) for n in x.shape):
            raise TypeError(
                f"an array [{', '.join(map(str, x.shape))}] has symbolic sizes: functions of values are compiled for sizes that "
                "are known, so export one program for each"
            )
        return (Batch(x), False) if x.ndim else (Batch(x[None]), True)
    if isinstance(x, Tensor):
        return of_samples([x], x.layout), True
    if isinstance(x, (bool, int, float, np.generic, ScalarConstant)):
        return None
    if isinstance(x, (np.ndarray, jax.Array)) and x.ndim == 0:
        _supported_array(x)
        return None
    if _are_empty(x):
        raise TypeError(
            of_values('the samples are empty lists, which have no type; of files give jd.batch(samples, layout="F*")')
        )
    # Only a function sees this batch, so its buffer is as large as a program's, which then reads it in place.
    single = isinstance(x, FILE) or (not isinstance(x, (list, tuple)) and _is_sample(x))
    return (of_samples([_array(x)], roomy=True) if single else _as_batch(x, roomy=True)), single


def _is_sample(x: Any) -> bool:
    """Whether an array is a single sample: a file's bytes, or an image of another library."""
    return is_image(x) or (
        getattr(x, "ndim", 0) == 1 and str(getattr(x, "dtype", "")) in ("uint8", "torch.uint8") and not is_column(x)
    )


def is_image(x: Any) -> bool:
    """Whether `x` is an image of Pillow."""
    # Unlike arrays of other libraries, it has NumPy's interface without DLPack.
    return (
        hasattr(x, "__array_interface__")
        and not isinstance(x, (np.ndarray, np.generic))
        and not hasattr(x, "__dlpack__")
    )


def _batch_of_one(x: Tensor | JaxTensor) -> Batch:
    """Makes a batch of a single value.

    An image becomes a ragged batch, whose program takes any size. Numbers become a dense one, with a program for each
    shape.
    """
    if isinstance(x, Tensor) and x.ndim > 1:
        return of_samples([x], x.layout)
    if isinstance(x, JaxTensor):
        return Batch(x._data[None], layout=x.layout)
    return Batch(np.asarray(x)[None], layout=x.layout, is_borrowed=True)


def _is_per_sample_list(a: Argument, x: Sequence[Any]) -> bool:
    """Whether the list `x` holds a value of the argument for each sample.

    These are numbers if the argument is a number, and vectors if the argument is a list of numbers (`a.many`).
    """
    if any(isinstance(e, Tracer) for e in x):
        raise TypeError(
            f"argument {a.name}: in a program that JAX traces the values of the samples are one array, not a list: use jnp.stack"
        )
    if a.many:
        return all(isinstance(e, (np.ndarray, jax.Array)) and e.ndim == 1 for e in x)
    return all(
        isinstance(e, (bool, int, float, np.generic)) or (isinstance(e, (np.ndarray, jax.Array)) and not e.ndim)
        for e in x
    )


def argument_of(a: Argument, x: Any) -> tuple[Batch, bool] | None:
    """Returns the values of an argument for each sample, and whether they are one single value; None for a static
    value, which is the same for all samples.
    """
    x = getattr(x, "__jaxdali_sample__", x)
    if a.per_sample and is_drawn(x):
        return _batch_of_one(x), True
    if a.per_sample and isinstance(x, Tracer) and not x.ndim:  # the same for all samples
        return Batch(x[None]), True
    batch = x if isinstance(x, Batch) else _argument_batch(a, x)
    return None if batch is None else (batch, False)


def _argument_batch(a: Argument, x: Any) -> Batch | None:
    """The values of an argument per sample as a batch; None if `x` is static, the same for all samples.

    Args:
      a: the declaration. With `a.many`, a value is a list of numbers, of one of the `a.lengths` (empty: of any).
    """
    if a.per_sample and is_column(x):
        x = np.asarray(_column_items(x))
    if a.per_sample and isinstance(x, (list, tuple)) and len(x) and _is_per_sample_list(a, x):
        # A member of another enum than the argument's would pass as a number.
        enum = next((k.enum for k in a.kinds if k.enum is not None), None)
        if (
            foreign_member := next((member for member in x if enum is not None and is_foreign(member, enum)), None)
        ) is not None:
            raise a.error("", foreign_member, ArgumentTypeError)
        return (
            _as_batch(list(x)) if a.many else Batch(_supported_array(np.asarray([np.asarray(member) for member in x])))
        )
    if (
        not a.per_sample
        or isinstance(x, (np.generic, str, type))  # the class of an array has its attributes
        or not (hasattr(x, "__array__") or hasattr(x, "__dlpack__"))
    ):
        return None
    shape: Sequence[int] = tuple(x.shape)  # pyright: ignore[reportAttributeAccessIssue]
    size = int(np.prod(shape))
    # One value for all samples: a single sample, a number, or as many numbers as the argument has for one sample.
    if isinstance(x, Tensor) or not shape or (a.many and a.lengths and size in a.lengths):
        return None
    # The same is a vector, if the argument has any number of numbers for a sample.
    if a.many and not a.lengths and len(shape) == 1:
        if isinstance(x, Tracer):
            raise TypeError(
                f"argument {a.name} takes a list of numbers for all samples, which must be known while JAX traces: "
                "for those of each sample pass an array of two axes, as x[:, None]"
            )
        return None
    return _as_batch(x)
