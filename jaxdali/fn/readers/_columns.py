"""Columns of Arrow tables as arrays. A `kind` is a data type of pyarrow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from ... import _cpu
from ..._core.context import HostContext
from ..._core.errors import cut
from ..._core.ragged import Packed, plan_offsets
from ..._core.values import Spec


def import_pyarrow() -> Any:
    """The module pyarrow, with its module parquet. Raises ImportError, which says how to install it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as e:
        raise ImportError('readers.parquet needs pyarrow: pip install "jaxdali[parquet]"') from e
    return pyarrow


def _dtype(kind: Any) -> np.dtype:
    """The dtype of numbers. (`to_pandas_dtype` has the same result, but needs pandas in older versions of pyarrow.)"""
    return import_pyarrow().array([], kind).to_numpy(zero_copy_only=False).dtype


def spec_of_column(name: str, kind: Any) -> Spec:
    """The spec of a column. Raises RuntimeError if its type is not supported."""
    pa = import_pyarrow()
    t = pa.types
    if t.is_dictionary(kind):
        kind = kind.value_type
    # An image or sound in the form of Hugging Face's datasets.
    if t.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    if _is_bytes(kind):
        return Spec(np.dtype(np.uint8), 1, None)
    if _is_number(kind):
        return Spec(_dtype(kind), 0, ())
    if _is_list(kind):
        value_type = kind.value_type
        if t.is_fixed_size_list(kind) and kind.list_size < 0:
            raise RuntimeError(f"{name} is of type {cut(str(kind))}, which is damaged")
        if _is_number(value_type):
            return Spec(_dtype(value_type), 1, (kind.list_size,) if t.is_fixed_size_list(kind) else None)
        if _is_bytes(value_type) or (t.is_struct(value_type) and value_type.get_field_index("bytes") >= 0):
            return Spec(np.dtype(np.uint8), 2, None, "F*")
    supported = "numbers, strings, bytes, images (bytes, path), and lists of these"
    raise RuntimeError(f"{name} is of type {cut(str(kind))}; supported are {supported}")


@dataclasses.dataclass(frozen=True)
class Column:
    """The rows of a column, as arrays.

    Attributes:
      values: the values of the rows, one after another.
      offsets: ``i64[rows + 1]``, the place in `values` at which each row begins; None: a row is an element of `values`.
      valid: ``bool[rows]``, whether each row is in `values` as it is; None: all are.
      other: returns a row that is not valid, or raises ValueError; None: such rows are null.
    """

    values: np.ndarray
    offsets: np.ndarray | None
    valid: np.ndarray | None
    other: Callable[[int], np.ndarray] | None = None

    @property
    def nbytes(self) -> int:
        """The size of the arrays that hold the rows."""
        return self.values.nbytes + (0 if self.offsets is None else self.offsets.nbytes)

    def row(self, i: int) -> np.ndarray:
        """Row `i`. Raises ValueError if it is missing."""
        if self.valid is not None and not self.valid[i]:
            if self.other is None:
                raise ValueError("it is null")
            return self.other(i)
        return self.values[i] if self.offsets is None else self.values[self.offsets[i] : self.offsets[i + 1]]


def _is_bytes(kind: Any) -> bool:
    """Whether the type is string or bytes."""
    t = import_pyarrow().types
    return (
        t.is_binary(kind) or t.is_large_binary(kind) or t.is_string(kind) or t.is_large_string(kind) or _is_view(kind)
    )


def _without_views(column: Any) -> Any:
    """Converts views of buffers to contiguous strings or bytes."""
    pa = import_pyarrow()
    return (
        column.cast(pa.large_string() if str(column.type) == "string_view" else pa.large_binary())
        if _is_view(column.type)
        else column
    )


def _is_view(kind: Any) -> bool:
    """Whether the type is Arrow's ``string_view`` or ``binary_view``, which polars writes."""
    return str(kind) in ("string_view", "binary_view")


def _byte_lengths(column: Any) -> np.ndarray:
    """``[rows]``, the size of each row of strings or bytes, in bytes."""
    if not _is_view(column.type):
        import pyarrow.compute

        return pyarrow.compute.call_function("binary_length", [column]).fill_null(0).to_numpy(zero_copy_only=False)
    if not len(column):
        return np.zeros(0, np.int32)
    # pyarrow has no function for views. A view has 16 bytes, of which the first 4 are the length.
    views = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, 4)[column.offset : column.offset + len(column)]
    return np.where(_valid(column), views[:, 0], 0)


def _read_size(column: Any) -> int:
    """The size of a column when it is read, in bytes. A value that is stored once for many rows counts for each."""
    if import_pyarrow().types.is_struct(column.type):
        return sum(_read_size(column.field(k)) for k in range(column.type.num_fields))
    if import_pyarrow().types.is_dictionary(column.type) and _is_bytes(column.dictionary.type):
        counts = np.bincount(column.indices.drop_null().to_numpy(), minlength=len(column.dictionary))
        return int(counts @ _byte_lengths(column.dictionary).astype(np.int64))
    return int(_byte_lengths(column).sum(dtype=np.int64)) if _is_view(column.type) else column.nbytes


def expanded_size(column: Any) -> int:
    """The approximate size of a column when it is read, in bytes.

    Unlike `_read_size` it does not look at the data, which need not be valid.
    """
    if import_pyarrow().types.is_dictionary(column.type):
        values = column.dictionary
        # Each row counts with the mean size of the dictionary's values.
        return column.indices.get_total_buffer_size() + len(column) * values.get_total_buffer_size() // max(
            len(values), 1
        )
    return column.get_total_buffer_size()


def size_without_dictionary(column: Any) -> int:
    """The size in bytes of a column of dictionary-encoded strings or bytes, also in structs of one field and in lists.

    Each value counts as often as it occurs.
    """
    t = import_pyarrow().types
    if t.is_struct(column.type):
        return size_without_dictionary(column.field(0))
    return size_without_dictionary(column.flatten()) if _is_list(column.type) else _read_size(column)


def needs_no_validation(kind: Any) -> bool:
    """Whether `column_of` uses the values of a type in place, in the buffers of pyarrow, which need not validate them.

    The paths of images don't count. They are strings, which are validated, but short.
    """
    t = import_pyarrow().types
    if t.is_struct(kind):
        fields = [kind.field(k) for k in range(kind.num_fields)]
        return all(needs_no_validation(f.type) or f.name == "path" for f in fields)
    if _is_list(kind):
        return needs_no_validation(kind.value_type)
    return t.is_binary(kind) or t.is_large_binary(kind) or _is_number(kind)


def column_of(column: Any, fetch: Callable[[str], bytes], too_large: Callable[[int], str] = lambda size: "") -> Column:
    """The rows of a column of pyarrow.

    Args:
      fetch: returns the contents of an image file, for an image that is given by its path.
      too_large: returns the reason if a number of bytes is too large, otherwise "".

    Raises:
      ValueError: the column is too large.
    """
    pa = import_pyarrow()
    t = pa.types
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if reason := too_large(sum(map(_read_size, chunks))):
        raise ValueError(f"its group of rows is too large: {reason}")
    if isinstance(column, pa.ChunkedArray):
        column = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
    if t.is_dictionary(column.type):
        if _is_view(column.dictionary.type):
            column = pa.DictionaryArray.from_arrays(column.indices, _without_views(column.dictionary))
        column = column.dictionary_decode()
    column = _without_views(column)
    if t.is_struct(column.type):
        paths = column.field("path") if column.type.get_field_index("path") >= 0 else None

        # Hugging Face's images: a row has bytes, or only the path of a file.
        def fetch_row(i: int) -> np.ndarray:
            if paths is None or not paths[i].is_valid:
                raise ValueError("it has neither bytes nor a path")
            return np.frombuffer(fetch(paths[i].as_py()), np.uint8)

        # Without `too_large`: the size was checked above.
        bytes_column = column_of(column.field("bytes"), fetch)
        valid = _valid(column.field("bytes")) & _valid(column)
        return dataclasses.replace(bytes_column, valid=None if valid.all() else valid, other=fetch_row)
    valid = None if not column.null_count else _valid(column)
    if _is_bytes(column.type):
        # Arrow's buffers of strings: validity, offsets (64 bits in large types), bytes.
        offsets = _buffer(
            column, 1, np.int64 if str(column.type).startswith("large") else np.int32, column.offset, len(column) + 1
        )
        data = column.buffers()[2]
        return Column(np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8), offsets, valid)
    if _is_list(column.type) and not _is_number(column.type.value_type):
        return _column_of_byte_lists(column, fetch, too_large)
    if t.is_fixed_size_list(column.type):
        size = column.type.list_size
        first = column.offset * size
        values = _numbers(column.values)[first : first + len(column) * size].reshape(len(column), size)
        begin = first + size * np.arange(len(column))
        return _column_of_lists(column, values, None, begin, begin + size)
    if t.is_list(column.type) or t.is_large_list(column.type):
        offsets = column.offsets.to_numpy()
        return _column_of_lists(column, _numbers(column.values), offsets, offsets[:-1], offsets[1:])
    return Column(_numbers(column), None, valid)


def _column_of_lists(
    column: Any, values: np.ndarray, offsets: np.ndarray | None, begin: np.ndarray, end: np.ndarray
) -> Column:
    """Converts lists of numbers. A list that contains a null is not valid.

    Args:
      values: the numbers of all lists; with `offsets` None, ``[rows, elements]``.
      begin, end: the bounds of each list in `column.values`.
    """
    if not column.null_count and not column.values.null_count:
        return Column(values, offsets, None)
    # `null_counts[k]` is the number of nulls among the first k numbers.
    is_list, null_counts = _valid(column), np.append(0, np.cumsum(~_valid(column.values)))
    valid = is_list & (null_counts[begin] == null_counts[end])

    def fail(i: int) -> NoReturn:
        raise ValueError("one of its numbers is null" if is_list[i] else "it is null")

    return Column(values, offsets, None if valid.all() else valid, fail)


def _column_of_byte_lists(column: Any, fetch: Callable[[str], bytes], too_large: Callable[[int], str]) -> Column:
    """Converts lists of byte strings or images.

    A row is ``uint8[elements, longest]``; shorter elements end with zeros.
    """
    if import_pyarrow().types.is_fixed_size_list(column.type):
        size = column.type.list_size
        begin = size * (column.offset + np.arange(len(column)))
        end = begin + size
    else:
        offsets = column.offsets.to_numpy()
        begin, end = offsets[:-1], offsets[1:]
    elements, is_list = column_of(column.values, fetch), _valid(column)

    def padded_row(i: int) -> np.ndarray:
        """Row `i`. Raises ValueError if it is null or too large, or has an element that is null."""
        if not is_list[i]:
            raise ValueError("it is null")
        parts = [elements.row(k) for k in range(begin[i], end[i])]
        longest = max(map(len, parts), default=0)
        if reason := too_large(len(parts) * longest):
            raise ValueError(f"{len(parts)} elements of up to {longest} bytes are too large: {reason}")
        row = np.zeros((len(parts), longest), np.uint8)
        for k, part in enumerate(parts):
            row[k, : len(part)] = part
        return row

    # No row is valid, so that `padded_row` makes each.
    return Column(elements.values, elements.offsets, np.zeros(len(column), bool), padded_row)


def _is_list(kind: Any) -> bool:
    t = import_pyarrow().types
    return t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind)


def _is_number(kind: Any) -> bool:
    t = import_pyarrow().types
    return t.is_boolean(kind) or t.is_integer(kind) or t.is_floating(kind)


def _valid(column: Any) -> np.ndarray:
    return column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else np.ones(len(column), bool)


def _numbers(column: Any) -> np.ndarray:
    if column.null_count:
        column = column.fill_null(False if import_pyarrow().types.is_boolean(column.type) else 0)
    return column.to_numpy(zero_copy_only=False)


def _buffer(column: Any, number: int, dtype: Any, first: int, count: int) -> np.ndarray:
    """Elements of a buffer of a column, from `first` on; zeros if there is no such buffer."""
    buffer = column.buffers()[number]
    return (
        np.frombuffer(buffer, dtype, count, first * np.dtype(dtype).itemsize)
        if buffer is not None
        else np.zeros(count, dtype)
    )


def gather_rows(
    ctx: HostContext, k: int, spec: Spec, columns: Sequence[Column], group: np.ndarray, row: np.ndarray
) -> Any:
    """Makes output `k` of a batch from rows of one column in several groups of rows. All rows must be valid.

    Returns an array ``[N, ...]`` if `spec` has a shape, otherwise a `Packed`.

    Args:
      columns: the column in each group.
      group: ``[N]``, the group of each sample.
      row: ``[N]``, the row of each sample in its group.
    """
    if spec.shape is not None:
        out = np.empty((ctx.N, *spec.shape), spec.dtype)
        for g, column in enumerate(columns):
            out[group == g] = column.values[row[group == g]]
        return out
    begins, sizes = np.empty(ctx.N, np.int64), np.empty((ctx.N, 1), np.int64)
    for g, column in enumerate(columns):
        assert column.offsets is not None
        rows = row[group == g]
        begins[group == g] = column.offsets[rows]
        sizes[group == g, 0] = column.offsets[rows + 1] - column.offsets[rows]
    offsets, num_elements = plan_offsets(sizes, ctx.S)
    packed = Packed(ctx.empty(num_elements, spec.dtype, k), offsets, sizes)
    item_size, buffers = spec.dtype.itemsize, [column.values.view(np.uint8) for column in columns]
    data = packed.data.reshape(-1).view(np.uint8)
    _cpu.copy_parts(
        buffers, group, begins * item_size, data, packed.starts * item_size, sizes[:, 0] * item_size, ctx.pool
    )
    return packed
