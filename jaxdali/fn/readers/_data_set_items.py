"""The items of a user's data set as records."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ..._core.context import HostContext
from ..._core.jax_settings import UserSettings
from ..._core.values import Spec
from ..._cpu import Status
from ..._data import source_worker
from ..._data.processes import Processes, Row
from ..._data.records import Records
from ._data_set import DataSet


class DataSetItems(Records):
    """The items of a data set.

    Args:
      num_workers: the number of processes that read; 0: items are read in the calling thread.
      mixed: whether the data sets are mixed by weights, so that each is a container.

    `_objects` are the metadata of the items of the last batch, by item.
    """

    def __init__(self, data: DataSet, num_workers: int, mixed: bool):
        """Attributes of `Records` are set here: `specs` of the outputs, `seen_shapes`, the shapes of the first item's
        values, `bounds` if the data sets are mixed, `lengths` if items are grouped by length, and `digest`, by which
        checkpoints recognize the list.
        """
        self._data = data
        self.specs, self.seen_shapes = data.specs, data.seen_shapes
        if mixed:
            self.bounds = data.bounds
        # (module, class, number of items) of each data set: the digest can't depend on the items, which are only known
        # when they are read.
        kinds = [
            (type(p).__module__, type(p).__qualname__, n) for p, n in zip(data.parts, np.diff(data.bounds).tolist())
        ]
        self.digest = f"{kinds}, {[(s.dtype.name, s.ndim) for s in data.specs]}"
        if data.lengths is not None:
            self.lengths = data.lengths
            self.digest += f", lengths {hashlib.sha256(data.lengths.tobytes()).hexdigest()[:16]}"
        self._settings = UserSettings()
        self._processes = Processes(data.parts, num_workers, data.description, data.metadata) if num_workers else None
        self._objects: dict[int, Sequence[Any]] = {}
        self._num_workers = num_workers
        self.ends_reads = num_workers > 0  # `close` ends the processes

    def __len__(self) -> int:
        return len(self._data)

    def name(self, i: int) -> str:
        return self._data.name(i)

    def metadata(self, name: str) -> Callable[[int], Any] | None:
        """See `Records.metadata`. An item's own metadata are there after it was read, until the next batch."""
        if name not in self._data.metadata:
            return super().metadata(name)
        if (arrays := self._data.arrays) is not None:
            return lambda i: arrays[i][name]  # a copy
        k = self._data.metadata.index(name)
        return lambda i: self._objects[i][k]

    @property
    def read_ahead(self) -> int:
        return 4 * self._num_workers

    def ahead(self, index: np.ndarray, now: int) -> None:
        if self._processes is not None:
            # Small enough that all processes get a part of a batch.
            items_at_once = max(1, min(16, now // (4 * self._num_workers)))
            self._processes.ahead(self._data.items(index), items_at_once)

    def _rows(self, index: Sequence[int]) -> list[Row]:
        """Reads items, in worker processes if there are any. A row has the values of an item, or an error."""
        items = self._data.items(np.asarray(index))
        if self._processes is not None:
            return self._processes.take(items)
        with self._settings.contexts(self._settings.mesh):
            results = [source_worker.read(self._data.parts, item, self._data.metadata) for item in items]
        # A str is an error: its row has no keys, values and metadata.
        return [Row(None, (), (), error=x) if isinstance(x, str) else Row(*x) for x in results]

    def _check_row(self, i: int, row: Row) -> list[np.ndarray]:
        """The arrays of item `i`, whose metadata are kept for `metadata`. Raises ValueError."""
        if row.error:
            raise ValueError(f"{self.name(i)}: {row.error}")
        self._objects[i] = row.objects
        try:
            return self._data.check_item(row.keys, row.arrays)
        except ValueError as e:
            raise ValueError(f"{self.name(i)}: {e}") from None

    def read(self, i: int) -> list[np.ndarray]:
        (row,) = self._rows([i])
        return self._check_row(i, row)

    def forget(self) -> None:
        """Drops the metadata of the items that were read."""
        self._objects.clear()

    def values(self, index: Sequence[int]) -> list[list[np.ndarray] | str]:
        """The values of items, or as text the reason why an item can't be read.

        Without processes, one item is read after another, as a data set may keep an open file.
        """
        values: list[list[np.ndarray] | str] = []
        for i, row in zip(index, self._rows(index), strict=True):
            try:
                values.append(self._check_row(i, row))
            except ValueError as e:
                values.append(str(e))
        return values

    @classmethod
    def read_batch(
        cls, ctx: HostContext, parts: Sequence[tuple[DataSetItems, np.ndarray]], threads: ThreadPoolExecutor
    ) -> tuple[Any, ...]:
        """See `Records.read_batch`. Rows of arrays are copied together, without a look at each."""
        rows = [x for items, index in parts if (x := items._data.rows(index)) is not None]
        if len(rows) == len(parts):
            columns = [x[0] if len(x) == 1 else np.concatenate(x) for x in zip(*rows, strict=True)]
            specs = parts[0][0].specs
            return tuple(list(x) if s.shape is None else x for s, x in zip(specs, columns, strict=True))
        for items, _ in parts:
            items.forget()
        return batch_of_rows(
            ctx, parts[0][0].specs, [x for items, index in parts for x in items.values(index.tolist())]
        )

    def close(self) -> None:
        if self._processes is not None:
            self._processes.close()


def batch_of_rows(ctx: HostContext, specs: Sequence[Spec], rows: list[list[np.ndarray] | str]) -> tuple[Any, ...]:
    """The outputs of a batch, as `Records.read_batch` returns them. A row has the outputs of a sample, or as text the
    reason why it fails.
    """
    columns = []
    for k, row in enumerate(rows):
        if isinstance(row, str):
            ctx.fail(k, Status.RECORD, row)
            row = [np.zeros(s.shape or (0,) * s.ndim, s.dtype) for s in specs]
        columns.append(row)
    return tuple(
        np.stack(column) if s.shape is not None else list(column)
        for s, column in zip(specs, zip(*columns), strict=True)
    )
