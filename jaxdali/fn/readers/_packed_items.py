"""Sequences of items of a data set, as `readers.source` packs them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np

from ..._core.context import HostContext
from ..._core.errors import ArgumentError
from ..._core.values import Spec
from ..._data import source_worker
from ..._data.packing import Sequences, lay_out, pack_whole, packing_order
from ._data_set import DataSet
from ._data_set_items import DataSetItems, batch_of_rows


class PackedItems(Sequences):
    """Sequences of whole items.

    Args:
      data: the data set, with the lengths of its items.
      num_workers, packing, length, tokens, pad_id, packing_seed: the reader's arguments, sequences as tuples.
    """

    _records: DataSetItems

    def __init__(
        self,
        data: DataSet,
        num_workers: int,
        packing: Literal["first_fit", "sequential"],
        length: Sequence[int],
        tokens: Sequence[str],
        pad_id: int,
        packing_seed: int | None,
    ):
        """Distributes the items among sequences, by their lengths.

        Attributes of `Records` are set here: `specs` of the outputs, `ends_reads`, `doubts`, about items that are left
        out, and `digest`, by which checkpoints recognize the list.
        """
        records, lengths = DataSetItems(data, num_workers, mixed=False), data.lengths
        assert lengths is not None
        self._data, self._lengths, self._length = data, lengths, length[0]
        self._tokens, self._pad = tokens, pad_id
        order, long = packing_order(len(data), packing_seed), long_items(lengths, length)
        if len(long):
            self.doubts = [
                f"{len(long)} of {len(data)} items are left out, as they are too long: "
                f"{excess(data, lengths, int(long[0]), length)}; a larger length packs them"
            ]
            order = order[~np.isin(order, long)]
        super().__init__(records, pack_whole(lengths, order, length, packing))
        self.specs = tuple(packed_specs(data, tokens, length).values())
        self.ends_reads = records.ends_reads
        self.digest = (
            f"{records.digest}, {packing} to {length}, tokens {tokens}, pad_id {pad_id}, packing_seed {packing_seed}"
        )

    @property
    def read_ahead(self) -> int:
        """See `Records.read_ahead`: as many sequences as have the items that are to be read ahead."""
        return -(-self._records.read_ahead * len(self) // len(self._pieces.record))

    def metadata(self, name: str) -> Callable[[int], Any] | None:
        """See `Records.metadata`. Keys of items give a list for each sequence."""
        if name not in self._data.metadata:
            return super().metadata(name)
        function = self._records.metadata(name)
        assert function is not None  # as for every key
        return lambda i: [function(item) for item in self._pieces.record[self._pieces_of(i)].tolist()]

    @classmethod
    def read_batch(
        cls, ctx: HostContext, parts: Sequence[tuple[PackedItems, np.ndarray]], threads: ThreadPoolExecutor
    ) -> tuple[Any, ...]:
        """See `Records.read_batch`."""
        for sequences, _ in parts:
            sequences._records.forget()
        rows = [x for sequences, index in parts for x in sequences._outputs(index)]
        return batch_of_rows(ctx, parts[0][0].specs, rows)

    def _outputs(self, index: np.ndarray) -> list[list[np.ndarray] | str]:
        """The outputs of sequences, or as text the reason why one fails."""
        items, sequence_of_item = self._records_of(index)
        values = self._records.values(items.tolist())
        bounds = np.searchsorted(sequence_of_item, np.arange(len(index) + 1)).tolist()
        outputs: list[list[np.ndarray] | str] = []
        for begin, end in itertools.pairwise(bounds):
            read = [x for x in values[begin:end] if not isinstance(x, str)]
            if len(read) < end - begin:
                outputs.append(next(x for x in values[begin:end] if isinstance(x, str)))
                continue
            try:
                outputs.append(self._sequence(items[begin:end].tolist(), read))
            except ValueError as e:
                outputs.append(str(e))
        return outputs

    def _sequence(self, items: Sequence[int], values: Sequence[list[np.ndarray]]) -> list[np.ndarray]:
        """The outputs of one sequence. Raises ValueError if its items don't fit together.

        Args:
          items: the numbers of its items.
          values: the values of each.
        """
        outputs = []
        keys: Any = self._data.keys  # a tuple, as items are dictionaries
        for key, spec, column in zip(keys, self._data.specs, zip(*values), strict=True):
            if key in self._tokens:
                outputs += self._concatenated(key, items, column)
            elif _is_file(spec):
                outputs.append(_rows(column))
            elif _is_files(spec):
                outputs.append(_rows(column))
                outputs.append(np.repeat(np.arange(1, len(column) + 1, dtype=np.int32), [len(x) for x in column]))
            else:
                for i, x in zip(items, column, strict=True):
                    if x.shape != column[0].shape:
                        files = f'layout={{{key!r}: "F*"}} if its rows are files, '
                        images = "of images the bytes of their files (datasets.Image(decode=False)), "
                        raise ValueError(
                            f"{self._data.name(i)}: key {key!r} has the shape {x.shape}, in {self._data.name(items[0])} "
                            f"of the same sequence it is {column[0].shape}: values of the items of a sequence are "
                            f"stacked; give all one shape, {files * (spec.dtype == np.uint8 and spec.ndim == 2)}"
                            f"{images * (spec.dtype == np.uint8 and spec.ndim == 3)}or take them out of the arrays by "
                            f"metadata=[{key!r}]"
                        )
                outputs.append(np.stack(column))
        return outputs

    def _concatenated(self, key: Any, items: Sequence[int], pieces: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """The tokens of a sequence's items, their segments and positions. Raises ValueError if they have no room, or no
        place in int32.
        """
        limits = np.iinfo(np.int32)
        for i, piece in zip(items, pieces, strict=True):
            if len(piece) and (int(piece.min()) < limits.min or int(piece.max()) > limits.max):
                raise ValueError(f"{self._data.name(i)}: key {key!r} has tokens that do not fit into int32")
        length = self._length
        if sum(map(len, pieces)) > length:
            for i, piece in zip(items, pieces, strict=True):
                if len(piece) > self._lengths[i, 0]:
                    raise ValueError(
                        f"{self._data.name(i)}: key {key!r} has {len(piece)} tokens and lengths says "
                        f"{self._lengths[i, 0]}: its sequence exceeds {length} tokens"
                    )
        tokens = np.full(length, self._pad, np.int32)
        segments, positions = np.zeros((2, length), np.int32)
        lay_out(pieces, tokens, segments, positions)
        return tokens, segments, positions


def _is_file(spec: Spec) -> bool:
    """Whether a value is the bytes of one file."""
    return spec.dtype == np.uint8 and spec.ndim == 1


def _is_files(spec: Spec) -> bool:
    """Whether a value is the bytes of several files, one for each row."""
    return spec.dtype == np.uint8 and spec.layout == "F*"


def _rows(values: Sequence[np.ndarray]) -> np.ndarray:
    """``u8[F, longest]``: the bytes of files, with zeros after shorter ones.

    Args:
      values: the files of each item, ``u8[bytes]`` or ``u8[files, longest]``.
    """
    return source_worker.file_rows([row for x in values for row in (x[None] if x.ndim == 1 else x)])


def packed_specs(data: DataSet, tokens: Sequence[str], length: Sequence[int]) -> dict[Any, Spec]:
    """The outputs of packed items by name. Raises ArgumentError if a value can't be packed, or two have one name.

    Args:
      tokens, length: the reader's arguments, as tuples.
    """
    if not isinstance(data.keys, tuple):
        raise ArgumentError(f"packing is for items that are dictionaries; an item of {data.description} is none")
    if missing := [key for key in tokens if key not in data.keys]:
        raise ArgumentError(
            f"tokens has {missing[0]!r}; the items have the keys {data.keys} (tokens=[] packs items without tokens)"
        )
    outputs: list[tuple[Any, Spec]] = []
    for key, spec in zip(data.keys, data.specs, strict=True):
        if key in tokens:
            if spec.ndim != 1 or spec.dtype.kind not in "iu":
                raise ArgumentError(f"tokens has {key!r}, which must be 1-D integers, got {spec.ndim}-D {spec.dtype}")
            for name in (key, f"{key}_segment_ids", f"{key}_positions"):
                outputs.append((name, Spec(np.dtype(np.int32), 1, (length[0],))))
        elif _is_file(spec):
            outputs.append((key, Spec(spec.dtype, 2, None, "F*")))
        elif _is_files(spec):
            outputs.append((key, spec))
            outputs.append((f"{key}_segment_ids", Spec(np.dtype(np.int32), 1, None, "F")))
        else:
            # Of axes that are frames already no letter is left for the items.
            layout = f"F{spec.layout}" if "F" not in spec.layout and len(spec.layout) == spec.ndim else ""
            extents = (None, *(spec.extent(axis) for axis in range(spec.ndim)))
            outputs.append((key, Spec(spec.dtype, spec.ndim + 1, None, layout, extents)))
    names = [name for name, _ in outputs]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ArgumentError(f"the items have the key {repeated[0]!r}, which packing gives to an output of its own")
    return dict(outputs)


def long_items(lengths: np.ndarray, length: Sequence[int]) -> np.ndarray:
    """``i64[..]``: the items that are longer than a sequence."""
    return np.flatnonzero((lengths > np.array(length)).any(axis=1))


def excess(data: DataSet, lengths: np.ndarray, i: int, length: Sequence[int]) -> str:
    """Describes by how much item `i` is longer than a sequence."""
    limit = int((lengths[i] > np.array(length)).argmax())
    place = f" in column {limit} of lengths" if len(length) > 1 else ""
    return f"{data.name(i)} has {lengths[i, limit]}, more than {length[limit]}{place}"
