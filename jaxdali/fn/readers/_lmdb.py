"""Records of LMDB databases, which `readers.caffe` and `readers.caffe2` read."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import _cpu
from ..._cpu import RecordFormat
from ..._data.containers import ContainerRecords, RecordField, describe_records
from ..._data.files import Path
from ..._data.lmdb_files import open_lmdb
from ..._data.storage import Storage


class LmdbRecords(ContainerRecords):
    """The values of databases, one database after another.

    Args:
      paths: paths of the databases.
      format: format of the values.
      num_fields: the number of fields that each value must have.
      fields: makes the outputs from the types ``i32[num_fields]`` and the shapes ``i64[num_fields, 3]`` of the first
        record's fields.
      storage: limits the size of values; None: the default `Storage`.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        format: RecordFormat,
        num_fields: int,
        fields: Callable[[np.ndarray, np.ndarray], tuple[RecordField, ...]],
        storage: Storage | None = None,
    ):
        """Opens the databases, and parses the first record.

        Attributes of `Records` are set here: `bounds`, the first record of each database, and `digest`, by which
        checkpoints recognize the list.
        """
        self._settings = storage or Storage()
        self._databases = [open_lmdb(p) for p in paths]
        self.bounds = np.cumsum([0] + [len(database) for database in self._databases])
        self._format = format
        self._num_fields = num_fields
        digest = hashlib.sha256()
        for database in self._databases:
            digest.update(database.keys)
            digest.update(database.ends.tobytes())
        self.digest = digest.hexdigest()[:16]
        # The first record determines the types of the outputs.
        pool, batch = _cpu.pool_create(1), _cpu.RecordBatch(self.new_layout(), 1)
        try:
            with contextlib.ExitStack() as stack:
                self.scan(batch, np.zeros(1, np.int64), pool, stack, lambda: 0)
                types, _, dims = describe_records(batch, 1, num_fields)
        finally:
            _cpu.pool_destroy(pool)
        for _, reason in batch.errors():
            raise RuntimeError(f"{self.name(0)}: {reason}")
        self.fields = fields(types[0], dims[0])

    def __len__(self) -> int:
        return int(self.bounds[-1])

    def _place(self, i: int) -> tuple[int, int]:
        """The number of the database of record `i`, and the number of the record in it."""
        database = int(np.searchsorted(self.bounds, i, "right")) - 1
        return database, i - int(self.bounds[database])

    def name(self, i: int) -> str:
        database, i = self._place(i)
        return f"{self._databases[database].path} at key {self._databases[database].key(i).decode('utf-8', 'backslashreplace')}"

    def facts(self) -> dict[str, Callable[[int], Any]]:
        """See `Records.facts`. There are no files in `stored`, so "filename" is defined here."""

        def key(i: int) -> str:
            database, i = self._place(i)
            return self._databases[database].key(i).decode("utf-8", "backslashreplace")

        return super().facts() | {"filename": lambda i: str(self._databases[self._place(i)[0]].path), "key": key}

    def name_of_output(self, i: int, output: int) -> str:
        return self.name(i) if self.fields[output].name == "image" else ""  # as in DALI

    def new_layout(self) -> _cpu.RecordLayout:
        return _cpu.RecordLayout(self._format, [], self._num_fields)

    def scan(
        self,
        batch: _cpu.RecordBatch,
        index: np.ndarray,
        pool: int,
        stack: contextlib.ExitStack,
        free_bytes: Callable[[], int],
    ):
        """See `ContainerRecords.scan`. `stack` keeps the values readable until they have been copied."""
        databases = np.searchsorted(self.bounds, index, "right") - 1
        contents: list = [b""] * len(index)
        reasons: dict[int, str] = {}  # by failed sample
        for d in np.unique(databases).tolist():
            samples = np.flatnonzero(databases == d)
            try:
                values = stack.enter_context(self._databases[d].values(index[samples] - self.bounds[d]))
            except OSError as e:
                reasons |= dict.fromkeys(samples.tolist(), f"{e.filename}: {e.strerror}")
                continue
            for i, value in zip(samples.tolist(), values):
                # The record has gone: its empty content fails when it is parsed.
                if value is None:
                    continue
                if reason := self._settings.too_large(len(value)):
                    reasons[i] = reason
                    continue
                contents[i] = value
        batch.scan_memory(contents, pool)
        for i, reason in reasons.items():
            batch.fail(i, reason)
