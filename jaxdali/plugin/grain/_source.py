"""`source`: the records of a reader as a source of Grain."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import operator
import threading
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..._batch.executor import Executor
from ..._batch.host_input import InputSource
from ..._core.building import user_line, warn
from ..._core.context import context_of
from ..._core.errors import ArgumentError, SampleError, printable, quoted
from ..._core.graph import DataNode, Graph, Node, dependencies
from ..._core.jax_settings import own_settings
from ..._core.operator import SourceOperator
from ..._core.redaction import redacted, shown_error
from ..._core.tracebacks import boundaries, boundary
from ..._core.values import METADATA, metadata_of
from ..._cpu import Status
from ..._data.list_source import metadata_function
from ..._data.records import Records
from ..._data.source import SampleIds
from ..._data.walk import Order
from ..._plan.run_options import RunOptions
from ...dynamic import _threads
from ...fn.readers._reader import Reader
from ._worker import prepare_worker

_NAME = "plugin.grain.source"
_MAX_IDLE = 16  # executors that wait for the next record: as many as the threads with which Grain reads


@boundary
def source(outputs: Any) -> ReaderSource:
    """Makes a source of Grain (`grain.sources.RandomAccessDataSource`) of a reader's records.

    ``len(source)`` is the number of records, and ``source[i]`` is record i. Grain chooses the order, the shards and the
    epochs. `grain.MapDataset.source` and `grain.DataLoader` read it, in threads and in worker processes.

    Args:
      outputs: what a reader of `jaxdali.fn` returns when it is called outside of a pipeline; or any structure (tuple,
        dictionary) of its outputs, and of values that operators make of them, one record at a time:
        ``{"image": fn.decoders.image(files), "label": labels}``.

    Returns:
      A source whose elements have this structure: an array for each output, as it has in a pipeline. A list
      becomes a tuple. Encoded files are ``uint8[bytes]``, labels ``int32[1]``; metadata are Python objects. `repr` is
      the same for the same records in every process, so that Grain can compare it with a checkpoint's. A worker process
      gets the reader's arguments only, and opens the list when it reads the first record. ``close()`` releases files
      that are open; the source may be used again.

    Raises:
      ArgumentError, TypeError: the outputs are not those of one reader of a list of records, the reader has arguments
        that choose an order, or an operator draws random numbers: `BatchTransform` runs these.
      OperatorError: the list can't be made. In another process: its records have changed.
      SampleError: raised by ``source[i]`` if record i can't be read; `index` is i.

    Example:
      >>> files, labels = fn.readers.webdataset(paths="train-*.tar", index_paths="train-*.idx", ext=["jpg", "cls"])
      >>> source = jaxdali.plugin.grain.source({"image": files, "label": labels})
      >>> dataset = grain.MapDataset.source(source).seed(1).shuffle()
    """
    return ReaderSource(outputs, line=user_line())


@boundaries
class ReaderSource:
    """The records of a reader; `source` makes it."""

    def __init__(self, outputs: Any, line: str):
        self._outputs = tuple(outputs) if isinstance(outputs, list) else outputs
        self._node = _reader_of(jax.tree.leaves(self._outputs, is_leaf=_is_node), line)
        self._length, self._digest = 0, ""  # until the list is opened
        self._set_up()
        records = self._records
        self._length, self._digest = len(records), _digest(records)
        for text in records.doubts:
            warn(f"{self._op.name}: {text}", where=self._node.where)

    def _set_up(self):
        """Sets the attributes that a process makes by itself."""
        self._leaves: list[DataNode]
        self._leaves, self._tree = jax.tree.flatten(self._outputs, is_leaf=_is_node)
        self._op: Reader = self._node.op  # pyright: ignore[reportAttributeAccessIssue]  `_reader_of` has checked it
        self._lock = threading.Lock()  # guards `_opened` while the list is opened
        self._opened: tuple[Records, list[Any]] | None = None  # the list, and the functions of its metadata
        derived_values = [x for x in self._leaves if x.node is not self._node]
        self._operators = _Operators(derived_values, self._node) if derived_values else None

    def __reduce__(self) -> Any:
        return _reopened, (self._outputs, self._node, self._length, self._digest)

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        names = [_shown(x) for x in self._leaves]
        structure = jax.tree.unflatten(self._tree, names)
        return f"{_NAME}({self._op.name}: {self._length} records, digest {self._digest}, outputs {structure})"

    def __getitem__(self, index: int) -> Any:
        i = _number_of(index)
        if not -self._length <= i < self._length:
            raise IndexError(f"{_NAME}: record {i} of {self._length}, which {self._op.name} lists")
        return self._sample(i % self._length, *self._read([i % self._length]))

    def _getitems(self, indices: Sequence[int]) -> list[Any]:
        """The records of these numbers, which native threads read together. Grain calls it where it asks for several."""
        numbers = [range(self._length)[_number_of(i)] for i in indices]
        rows = self._read(numbers) if numbers else []
        return [self._sample(i, row) for i, row in zip(numbers, rows, strict=True)]

    def close(self) -> None:
        """Releases files that are open. The source may be used again."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened[0].close()
        if self._operators is not None:
            self._operators.close()

    @property
    def _records(self) -> Records:
        return self._open()[0]

    def _open(self) -> tuple[Records, list[Any]]:
        """The list and the functions of its metadata; the first call makes them.

        Raises:
          RuntimeError: the process was forked from one that has read records.
        """
        _threads.check_pool()
        opened = self._opened
        if opened is not None:
            return opened
        with self._lock:
            if self._opened is None:
                try:
                    records = self._op.open_mixed()
                    metadata = [metadata_function(records, name) for name in self._op.metadata_names]
                except (ValueError, RuntimeError, OSError) as e:
                    raise self._node.error(str(e)) from shown_error(e)
                if self._digest and (len(records), _digest(records)) != (self._length, self._digest):
                    raise self._node.error(
                        f"its records have changed since {_NAME} listed them: {self._length} then, {len(records)} now"
                    )
                self._opened = records, metadata
            return self._opened

    def _read(self, numbers: list[int]) -> list[list[Any]]:
        """The outputs of the reader for some records: arrays, then metadata."""
        records, metadata = self._open()
        failed: dict[int, str] = {}
        rows: list[list[Any]] = []
        if records.reads_alone:
            for k, i in enumerate(numbers):
                try:
                    rows.append([*map(_owned, records.read(i))])
                except (OSError, ValueError) as e:
                    failed[k] = _reason(e, records, i)
                    break
        else:
            parts = [(records, np.array(numbers))]

            def fail(k: int, code: int, reason: str = ""):
                failed.setdefault(k, reason)

            ctx = context_of(
                len(numbers), records.specs, fail, lambda n, dtype, k=0: np.empty((1, n), dtype), _threads.SHARED
            )
            columns = records.read_batch(ctx, parts, None)  # pyright: ignore[reportArgumentType]  one thread: this one
            rows = [[column[k] for column in columns] for k in range(len(numbers))]
        for k, (i, row) in enumerate(zip(numbers, rows)):
            if k in failed:
                break
            try:
                row += [function(i) for function in metadata]
            except (OSError, ValueError) as e:
                failed[k] = _reason(e, records, i)
        if failed:
            k = min(failed)
            raise self._error(records, numbers[k], failed[k])
        return rows

    def _error(self, records: Records, i: int, reason: str) -> SampleError:
        path = redacted(records.full_name(i))
        reason = printable(reason).removeprefix(f"{printable(path)}: ")
        return SampleError(self._op.name, self._node.where, path, reason, Status.RECORD, index=i)

    def _sample(self, i: int, row: Sequence[Any]) -> Any:
        """Record `i` in the structure of the outputs."""
        values = iter(self._operators.run(self._records, i, row) if self._operators is not None else ())
        return jax.tree.unflatten(
            self._tree, [row[x.index] if x.node is self._node else next(values) for x in self._leaves]
        )


def _number_of(index: Any) -> int:
    """The number of a record, as it was given. Raises TypeError if it is no integer."""
    try:
        return operator.index(index)
    except TypeError:
        raise TypeError(f"{_NAME}: a record has an integer as its number, got {quoted(index)}") from None


def _reopened(outputs: Any, node: Node, length: int, digest: str) -> ReaderSource:
    """The source in another process, which opens the list when it reads the first record."""
    prepare_worker()
    result = ReaderSource.__new__(ReaderSource)
    result._outputs, result._node, result._length, result._digest = outputs, node, length, digest
    result._set_up()
    return result


def _is_node(x: Any) -> bool:
    return isinstance(x, DataNode)


class _Operators:
    """The operators that make values of one record. Threads may run it at the same time.

    Args:
      outputs: the values.
      reader: the node whose outputs they are made of.
    """

    def __init__(self, outputs: Sequence[DataNode], reader: Node):
        self._graph = Graph.collect([], outputs)
        self._reader = self._graph.copies[reader.id]
        # An executor makes one batch at a time, so each thread takes one.
        self._idle: collections.deque[Executor] = collections.deque()

    def run(self, records: Records, i: int, row: Sequence[Any]) -> list[np.ndarray]:
        """The values for record `i`, whose outputs of the reader are `row`."""
        num_arrays = len(records.specs)
        specs = (*records.specs, *[METADATA] * (len(row) - num_arrays))
        values = [x[None] if s.shape is not None else [x] for s, x in zip(records.specs, row[:num_arrays], strict=True)]
        values += [metadata_of([x]) for x in row[num_arrays:]]
        name, zero = records.name(i), np.zeros(1, np.int64)
        ids = SampleIds(zero, zero, [name], [records.full_name(i)], of_output=lambda k: [records.name_of_output(i, k)])
        try:
            executor = self._idle.pop()
        except IndexError:
            options = RunOptions(batch_size=1, num_threads=_threads.get_num_threads(), pool_id=_threads.SHARED)
            executor = Executor.of_values(
                self._graph,
                jax.local_devices(backend="cpu")[0],
                options,
                sources={self._reader.id: InputSource(specs)},
            )
        try:
            with own_settings():
                executor.build()
                batch = executor.batch_of({self._reader.id: values}, ids)
                batch.origins[self._reader.id] = ids  # for messages
                result = executor.check(executor.launch(batch))
            return [np.array(x.data[0]) for x in result.outputs]
        except SampleError as e:
            e.index = i
            raise
        finally:
            self._idle.append(executor)
            while len(self._idle) > _MAX_IDLE:
                with contextlib.suppress(IndexError):
                    self._idle.popleft().close()

    def close(self) -> None:
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.popleft().close()


def _reader_of(outputs: Sequence[Any], line: str) -> Node:
    """The node of the reader that values are made of. Raises ArgumentError or TypeError if Grain can't read it."""
    advice = f"{_NAME} takes what a reader of jaxdali.fn returns, such as fn.readers.file(file_root=...)"
    for x in outputs:
        if not isinstance(x, DataNode):
            raise TypeError(f"{advice}, got {type(x).__name__} (called at {line})")
        if x.node.pipeline:
            raise ArgumentError(
                f"{_NAME}: {x.node.op.name} is called in the definition of a pipeline: call it outside of one (called at {line})"
            )
    pending, nodes = [x.node for x in outputs], dict[int, Node]()
    while pending:
        node = pending.pop()
        if node.id not in nodes:
            nodes[node.id] = node
            pending += [x.node for x in dependencies(node)]
    sources = [n for n in nodes.values() if isinstance(n.op, SourceOperator)]
    if len(sources) != 1:
        names = " and ".join(sorted(f"{n.op.name} (created at {n.where})" for n in sources)) or "no reader"
        raise ArgumentError(f"{_NAME}: the outputs must be those of one reader, got {names} (called at {line})")
    (reader,) = sources
    _check_reader(reader, line)
    for node in nodes.values():
        if node.op.random or node.op.of_batch:
            raise ArgumentError(
                f"{_NAME}: {node.op.name} (created at {node.where}) {'draws random numbers' if node.op.random else 'needs a whole batch'}: "
                f"run it by plugin.grain.BatchTransform, which gives each sample a key (called at {line})"
            )
    return reader


def _check_reader(node: Node, line: str):
    """Raises ArgumentError if an operator is no reader of a list, or chooses an order."""
    op = node.op
    if not isinstance(op, Reader):
        raise ArgumentError(f"{_NAME}: {op.name} (created at {node.where}) has no list of records (called at {line})")
    if op.name == "readers.source":
        packs = getattr(op, "packing", "none") != "none"
        raise ArgumentError(
            f"{_NAME}: {op.name} (created at {node.where}) reads a data set of Python, which Grain takes itself: "
            f"grain.MapDataset.source(dataset){'; its packing is for the iterators of jaxdali' * packs} (called at {line})"
        )
    for f in dataclasses.fields(Order):
        value = getattr(op, f.name)
        if value != f.default and not (f.name == "seed" and value < 0):
            raise ArgumentError(
                f"{_NAME}: {op.name} (created at {node.where}) has {f.name}={quoted(value)}, but Grain chooses the order, by "
                f"MapDataset.shuffle or a sampler, and the shards: leave it out (called at {line})"
            )
    if op.on_error != "raise":
        raise ArgumentError(
            f"{_NAME}: {op.name} (created at {node.where}) has on_error={quoted(op.on_error)}, but each number stands for one "
            f"record of Grain's order: leave it out (called at {line})"
        )


def _digest(records: Records) -> str:
    """A short digest of the list, which tells whether another one has the same records."""
    return hashlib.sha256(records.digest.encode()).hexdigest()[:16]


class _Shown(str):
    """Text that is shown without quotation marks."""

    def __repr__(self) -> str:
        return str(self)


def _shown(x: DataNode) -> _Shown:
    """An output for `repr`: the operator, and which of its outputs it is."""
    return _Shown(x.node.op.name + (f"[{x.index}]" if x.node.op.num_outputs > 1 else ""))


def _owned(x: np.ndarray) -> np.ndarray:
    """A copy of an array that may be a part of the list's own memory, which nobody may change."""
    return x.copy() if x.base is not None and x.flags.writeable else x


def _reason(e: OSError | ValueError, records: Records, i: int) -> str:
    return f"{e.filename or records.full_name(i)}: {e.strerror or e}" if isinstance(e, OSError) else str(e)
