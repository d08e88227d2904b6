"""readers.array_record: the records of ArrayRecord files."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Unpack, overload

import numpy as np

from ..._core.building import add
from ..._core.context import HostContext
from ..._core.declaration import Range, Whole
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._core.ragged import Packed, plan_offsets
from ..._core.values import Spec
from ..._cpu import Status
from ..._data.array_record import BlockedRanges, PlainRecords, chunk_table, only_record_of, record_begin, records_of
from ..._data.examples import FeatureMetadata
from ..._data.files import Files, Paths
from ..._data.records import Records
from ...tfrecord import Feature
from .._decode.examples import ExampleOutputs, outputs_of
from ._reader import ContainerArguments, Reader, by_name

_MAX_DECODED_CHUNKS = 8  # kept in memory, of chunks that hold several records


def _concatenate(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Concatenates parts; a single part is not copied."""
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


class _ArrayRecords(Records):
    """Records of ArrayRecord files, each of which is a sequence of Riegeli chunks.

    If all chunks are uncompressed and have one record each, records are read directly. Otherwise chunks are decoded.
    In a remote file, chunks are decoded in any case. `_first` has the number of each chunk's first record; None if each
    chunk has one record.
    """

    specs = (Spec(np.dtype(np.uint8), 1, None),)

    def __init__(self, op: ReadArrayRecord):
        """Reads the tables of the files. A `ChunkTable` has, for each chunk: `start`, its place in the file; `records`,
        the number of its records; `size`, their total size in bytes. Its `plain` is whether all are uncompressed.

        The attributes of `Records` are set here: `stored`, the place of the chunks or records, `bounds`, the first record
        of each file, and `digest`, by which checkpoints recognize the list.
        """
        files = Files.of(op.path, op.storage)
        tables, digest = [], files.digest.copy()
        for i in range(len(files)):
            try:
                tables.append(chunk_table(files, i, digest))
            except (ValueError, OSError) as e:
                raise RuntimeError(f"{files.path(i)}: {e}") from e
            # A damaged table may parse as another message, whose fields are missing or of other types.
            except (KeyError, IndexError, AttributeError, TypeError, OverflowError) as e:
                raise RuntimeError(f"{files.path(i)}: the table of its chunks is damaged") from e
        self.digest = digest.hexdigest()[:16]
        self.bounds = np.cumsum([0, *(int(t.records.sum()) for t in tables)])
        if not self.bounds[-1]:
            raise RuntimeError(f"there are no records in {', '.join(map(files.path, range(len(files))))}")
        # Of each chunk: the number of its file, and the number of its records.
        file = np.repeat(np.arange(len(files), dtype=np.min_scalar_type(len(files))), [len(t.start) for t in tables])
        counts = _concatenate([t.records for t in tables])
        # Whether records are read in place, without decoding chunks.
        self._direct = all(t.plain for t in tables) and bool((counts == 1).all()) and not files.remote
        self._first = None  # the number of each chunk's first record, if chunks have several records
        self._sizes = _concatenate([t.size for t in tables]) if (counts == 1).all() else None  # in bytes, by record
        if self._direct:
            # From the places of the chunks to those of their only records.
            for t in tables:
                t.start += record_begin(t.size)
            self.stored = PlainRecords(
                files, file, _concatenate([t.start for t in tables]), _concatenate([t.size for t in tables])
            )
        else:
            if (counts != 1).any():
                self._first = np.append(0, np.cumsum(counts, dtype=np.int64))
            sizes = _concatenate([np.diff(t.start, append=t.end) for t in tables])
            self.stored = BlockedRanges(files, file, _concatenate([t.start for t in tables]), sizes)
        self._decoded: collections.OrderedDict[int, list[memoryview]] = collections.OrderedDict()
        self._lock = threading.Lock()  # guards `_decoded`
        if op.group_by_length:
            self.lengths = self.sizes()
            self.digest += f", lengths {hashlib.sha256(self.lengths.tobytes()).hexdigest()[:16]}"

    def __len__(self) -> int:
        return int(self.bounds[-1])

    def name(self, i: int) -> str:
        file = int(np.searchsorted(self.bounds, i, "right")) - 1
        return f"{self._ranges.files.path(file)}, record {i - int(self.bounds[file])}"

    def facts(self) -> dict[str, Callable[[int], Any]]:
        """See `Records.facts`. `stored` has ranges, not whole files, so "filename" is defined here."""

        def file(i: int) -> int:
            return int(np.searchsorted(self.bounds, i, "right")) - 1

        record_facts = {
            "filename": lambda i: self._ranges.files.path(file(i)),
            "record": lambda i: i - int(self.bounds[file(i)]),
        }
        return super().facts() | record_facts

    @property
    def _ranges(self) -> BlockedRanges:
        assert isinstance(self.stored, BlockedRanges)
        return self.stored

    @property
    def reads_alone(self) -> bool:
        return self._first is not None  # otherwise `read_batch` is native

    def sizes(self) -> np.ndarray:
        """The sizes of all records in bytes, ``i64[N]``.

        They are in the tables if each chunk has one record. Otherwise all records are read.

        Raises:
          RuntimeError: a record can't be read.
        """
        if self._sizes is not None:
            return self._sizes.astype(np.int64)
        try:
            return np.array([len(self.read(i)[0]) for i in range(len(self))], np.int64)
        except (OSError, ValueError) as e:
            raise RuntimeError(str(e)) from e

    def _chunk(self, i: Any) -> Any:
        """The chunk of record `i`, or of each record if `i` is an array."""
        return i if self._first is None else np.searchsorted(self._first, i, "right") - 1

    def ahead(self, index: np.ndarray, now: int) -> None:
        """See `Records.ahead`. The ranges that are fetched are chunks, each once."""
        chunks = self._chunk(index)
        self._ranges.ahead(np.array(list(dict.fromkeys(chunks.tolist())), np.int64), len({*chunks[:now].tolist()}))

    def read(self, i: int) -> tuple[np.ndarray]:
        """See `Records.read`: the bytes of record `i`. Its chunk is decoded unless it was kept. The checksum of a record
        that is read directly is not checked here, but when `read_batch` reads it.
        """
        if self._direct:
            return (np.frombuffer(self._ranges.read(i), np.uint8),)
        chunk = int(self._chunk(i))
        with self._lock:
            records = self._decoded.get(chunk)
        if records is None:
            records = self._decode_chunk(chunk, self._ranges.read(chunk))
        # Without `_first`, each chunk has one record, which has the chunk's number.
        return (np.frombuffer(records[i - (chunk if self._first is None else int(self._first[chunk]))], np.uint8),)

    def _decode_chunk(self, chunk: int, data: Any) -> list[memoryview]:
        """The records of a chunk, whose bytes are `data`. The latest chunks of several records are kept.

        Raises:
          ValueError: the chunk is damaged, or too large.
        """
        try:
            records = records_of(data, self._ranges.store.settings)
            if len(records) != (1 if self._first is None else self._first[chunk + 1] - self._first[chunk]):
                raise ValueError(f"a chunk has {len(records)} records, the file's table says another number")
        except ValueError as e:
            raise ValueError(f"{self._ranges.name(chunk)}: {e}") from e
        if self._first is not None:
            with self._lock:
                self._decoded[chunk] = records
                if len(self._decoded) > _MAX_DECODED_CHUNKS:
                    self._decoded.popitem(last=False)
        return records

    def close(self) -> None:
        with self._lock:
            self._decoded.clear()
        super().close()

    @classmethod
    def read_batch(
        cls, ctx: HostContext, parts: Sequence[tuple[_ArrayRecords, np.ndarray]], threads: Any
    ) -> tuple[Any, ...]:
        """See `Records.read_batch`. Records that are read directly, and chunks of one record, are read natively."""
        large = [r._ranges for r, index in parts if r._first is None and r._ranges.oversized(index)]
        # `_without_large` puts the smallest record in place of a large one; here that is too large as well.
        if any(ranges.size.min() > ranges.store.settings.record_bytes for ranges in large):
            return super().read_batch(ctx, parts, threads)
        if all(records._direct for records, _ in parts):
            parts = cls._without_large(ctx, parts)
            return (BlockedRanges.read_batch(ctx, [(records._ranges, index) for records, index in parts]),)
        if large or any(records._first is not None or records._ranges.files.remote for records, _ in parts):
            return super().read_batch(ctx, parts, threads)
        rows: list[Any] = []
        for records, index in parts:
            rows += records._read_compressed(ctx, index, len(rows), threads)
        return (rows,)

    @staticmethod
    def _without_large(
        ctx: HostContext, parts: Sequence[tuple[_ArrayRecords, np.ndarray]]
    ) -> list[tuple[_ArrayRecords, np.ndarray]]:
        """Fails records above `Storage.max_record_bytes`, and replaces each by the smallest record of the files."""
        allowed_parts, first = [], 0
        for records, index in parts:
            ranges, settings = records._ranges, records._ranges.store.settings
            if ranges.oversized(index):
                is_large = ranges.size[index] > settings.record_bytes
                for k in np.flatnonzero(is_large).tolist():
                    reason = settings.too_large(int(ranges.size[index[k]]))
                    ctx.fail(first + k, Status.RECORD, f"{ranges.name(int(index[k]))}: {reason}")
                index = np.where(is_large, int(ranges.size.argmin()), index)
            allowed_parts.append((records, index))
            first += len(index)
        return allowed_parts

    def _read_compressed(self, ctx: HostContext, index: np.ndarray, first: int, threads: Any) -> list[np.ndarray]:
        """Reads records that are a compressed chunk each. Chunks are read natively, and then decoded.

        Args:
          index: the numbers of the records.
          first: the place of the first one in the batch.

        Returns:
          The records; an empty array for one that failed.
        """
        shapes = self._ranges.size[index].astype(np.int64)[:, None]
        offsets, num_bytes = plan_offsets(shapes, num_shards=1)
        packed = Packed(np.empty((1, num_bytes), np.uint8), offsets, shapes)
        reasons = self._ranges.read_to(index, packed, first=0, pool=ctx.pool)
        for k, reason in reasons.items():
            ctx.fail(first + k, Status.RECORD, reason)

        settings = self._ranges.store.settings

        def decode(k: int) -> np.ndarray:
            """The record in chunk `index[k]`; an empty array if it has failed."""
            if k in reasons:
                return np.zeros(0, np.uint8)
            try:
                return np.frombuffer(only_record_of(packed[k].data, settings), np.uint8)
            except ValueError as e:
                ctx.fail(first + k, Status.RECORD, f"{self._ranges.name(int(index[k]))}: {e}")
                return np.zeros(0, np.uint8)

        return list(map(decode, range(len(index))) if ctx.num_threads == 1 else threads.map(decode, range(len(index))))


class _ArrayExamples(_ArrayRecords):
    """Examples in ArrayRecord files, of which each output is a feature."""

    def __init__(self, op: ReadArrayRecord, outputs: ExampleOutputs):
        """Shares the state of a list of the records themselves."""
        self._outputs = outputs
        self._records = _ArrayRecords(op)
        vars(self).update(vars(self._records))
        # Other metadata are features, which are read a second time.
        names = [n for n in op.metadata_names if n not in self.facts()]
        self._features = FeatureMetadata(names, lambda i: self._records.read(i)[0].tobytes(), self.name)

    @property
    def specs(self) -> tuple[Spec, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._outputs.specs

    def metadata(self, name: str) -> Callable[[int], Any] | None:
        return self._features.function(name) or super().metadata(name)

    def sizes(self) -> np.ndarray:
        return self._records.sizes()

    def read(self, i: int) -> tuple[np.ndarray, ...]:
        """See `Records.read`: the outputs of record `i`."""
        (record,) = self._records.read(i)
        try:
            return self._outputs.parse_one(record)
        except ValueError as e:
            raise ValueError(f"{self.name(i)}: {e}") from e

    @classmethod
    def read_batch(
        cls, ctx: HostContext, parts: Sequence[tuple[_ArrayExamples, np.ndarray]], threads: Any
    ) -> tuple[Any, ...]:
        """See `Records.read_batch`. The records are read like those of `_ArrayRecords`, and then parsed together."""
        failed, fail_sample = set[int](), ctx.fail

        def fail(i: int, code: int, reason: str = ""):
            """Fails a record once: one that can't be read can't be parsed, either."""
            if i not in failed:
                failed.add(i)
                fail_sample(i, code, reason)

        ctx = dataclasses.replace(ctx, fail=fail)
        # The buffer of the records, which is that of an output, returns to the pool at the end of this call.
        reading = dataclasses.replace(ctx, specs=_ArrayRecords.specs)
        (records,) = _ArrayRecords.read_batch(reading, [(e._records, index) for e, index in parts], threads)
        return parts[0][0]._outputs.parse(ctx, records)


class ReadArrayRecord(Reader):
    """`readers.array_record`; the fields are its arguments."""

    name: ClassVar[str] = "readers.array_record"

    path: Paths
    features: tuple[tuple[str, Feature], ...] = ()
    sequence_features: tuple[tuple[str, Feature], ...] = ()

    @property
    def outputs(self) -> ExampleOutputs | None:
        """The outputs that are made of the records; None: they are given as they are."""
        pairs = self.features, self.sequence_features
        return outputs_of(*pairs) if any(pairs) else None

    @property
    def num_arrays(self) -> int:
        return (len(self.features) + len(self.sequence_features)) or 1

    def open(self) -> _ArrayRecords:
        outputs = self.outputs
        return _ArrayRecords(self) if outputs is None else _ArrayExamples(self, outputs)


@overload
def array_record(
    *,
    path: Paths,
    features: None = None,
    sequence_features: None = None,
    group_by_length: Annotated[Whole, Range(0)] = 0,
    **order: Unpack[ContainerArguments],
) -> DataNode: ...


@overload
def array_record(
    *,
    path: Paths,
    features: Mapping[str, Feature] | None = None,
    sequence_features: Mapping[str, Feature] | None = None,
    group_by_length: Annotated[Whole, Range(0)] = 0,
    **order: Unpack[ContainerArguments],
) -> dict[str, DataNode]: ...


@operator_function("readers.array_record")
def array_record(
    *,
    path: Paths,
    features: Mapping[str, Feature] | None = None,
    sequence_features: Mapping[str, Feature] | None = None,
    group_by_length: Annotated[Whole, Range(0)] = 0,
    **order: Unpack[ContainerArguments],
) -> Any:
    """Reads the records of ArrayRecord files. Not in DALI.

    Records of files written with ``group_size:1,uncompressed`` are read directly; for other files, whole groups are
    decoded.

    Args:
      path: paths of the files, which are read one after another. Patterns (``*``, ``?``, ``[``, ``{a,b}``,
        ``{000..127}``) stand for files, the matches of wildcards in byte order. A path that exists is literal.
      features: the features to parse, if the records are TensorFlow's examples (``tf.train.Example``, as TFDS and Grain
        store them), by their names, as in `parse_example`. None: the records are given as they are.
      sequence_features: the feature lists to parse, if the records are SequenceExamples, as in `parse_example`.
      group_by_length: the batch size of a shard. Each group of this many consecutive records gets similar numbers of
        bytes, so that padding wastes little, as in `readers.source`. Files that were not written with ``group_size:1``
        are then read completely when the pipeline is built. 0: records come in the shuffled order.
      metadata: names, each of which adds an output of Python objects after the others, for `python_function` and for
        the lists of a batch (not in DALI). "filename"; "record": the number of the record in its file; "index": the
        number in the list; "source_info"; with `features`, any other feature of the examples, as in `readers.tfrecord`.

    Returns:
      The records, ``uint8[bytes]``. With `features` or `sequence_features`, a dictionary by the names of features and
      metadata, as that of `readers.tfrecord`. Their source_info is the file's path and the number of the record in the
      file.

    Raises:
      ValueError, TypeError: arguments that contradict each other or are out of range.
      RuntimeError: when the pipeline is built, a file can't be read or is not an ArrayRecord file. A record that can't
        be read fails when its batch runs.

    The checksums of a chunk are checked whenever it is decoded; those of a record that is read directly are checked the
    first time. Files written with ``transpose:true`` are refused. Files compressed with zstd need
    ``jaxdali[array_record]``; files compressed with Brotli or Snappy need ``jaxdali[parquet]``.

    Example:
      >>> records = fn.readers.array_record(path="gs://bucket/train-*.array_record", shuffle="global")
    """
    shared = ReadArrayRecord.shared(order)
    if features is None and sequence_features is None:
        op = ReadArrayRecord(path=path, group_by_length=group_by_length, **shared)
        return add(op, device="cpu", name=order.get("name"))
    outputs = ExampleOutputs.of(features, sequence_features)
    op = ReadArrayRecord(
        path=path,
        features=outputs.features,
        sequence_features=outputs.sequence_features,
        group_by_length=group_by_length,
        **shared,
    )
    return by_name(op, outputs.names, add(op, device="cpu", name=order.get("name")))
