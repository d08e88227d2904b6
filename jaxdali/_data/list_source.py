"""The source of all readers of lists, which reads `Records` in an `Order`."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np

from .._core.context import HostContext
from .._core.errors import ArgumentError, cut, printable, quoted
from .._core.names import did_you_mean
from .._core.operator import ProgramOperator
from .._core.redaction import redacted
from .._core.system import thread_pool
from .._core.texts import Texts
from .._core.values import METADATA, Spec, metadata_of
from .._cpu import Status
from .records import Records
from .source import SampleIds, Saved, Source, check_fingerprints
from .walk import Order, Walk

_LONGEST_NAME = 8192  # characters of the origin of a sample: more than paths have, but names in archives may have any

OnError = Literal["raise", "replace", "skip"]  # the reaction to a record that can't be read, see `Reader`


class ListSource(Source):
    """The source of all readers of lists: order, shuffling, shards, padding, and resuming from checkpoints.

    Args:
      records: the list of each local shard.
      orders: the order of each.
      seed: the pipeline's seed, for a reader without a seed.
      on_error: the reaction to a record that can't be read: "raise", "replace" or "skip", see `Reader`.
      metadata: names of the metadata that are outputs after the arrays.

    Attributes:
      _one_list: whether all shards read the same list.
      _read_ahead: the least number of records that are announced after a batch; 0: none.
      _metadata: the functions of the metadata, in the order of their names, by `id` of the list.

    Raises:
      ValueError: the lists differ in type, or have no such metadata.
    """

    movable = True

    def __init__(
        self,
        records: Sequence[Records],
        orders: Sequence[Order],
        seed: int,
        on_error: OnError = "raise",
        metadata: Sequence[str] = (),
    ):
        first = records[0]
        if any(r.specs != first.specs for r in records):
            raise ValueError(f"the lists of the shards differ in type or dimensions: {[r.specs for r in records]}")
        self._records = records
        self._on_error = on_error
        self._reader_seed = orders[0].seed  # for all shards, that of the first one
        for r in records:
            r.read_by(sum(x is r for x in records))
        # A list is asked for groups only if it is read in random order.
        groups = {id(r): r.groups() for r, order in zip(records, orders) if order.shuffles(len(r.bounds) > 0)}
        self.walks = [
            order.walk(len(r), seed, r.bounds.tolist(), r.lengths, groups.get(id(r)))
            for r, order in zip(records, orders, strict=True)
        ]
        self.metas = tuple(w.meta() for w in self.walks)
        self.ends_reads = any(r.ends_reads for r in records)
        self._one_list = all(r is first for r in records)
        self._read_ahead = max(r.read_ahead for r in records)
        self._threads: ThreadPoolExecutor | None = None
        self._metadata = {id(r): [metadata_function(r, name) for name in metadata] for r in records} if metadata else {}

    def specs(self) -> tuple[Spec, ...]:
        return (*self._records[0].specs, *[METADATA] * len(self._metadata.get(id(self._records[0]), ())))

    def seen_shape(self, output: int) -> tuple[int, ...] | None:
        shapes = self._records[0].seen_shapes
        return shapes[output] if output < len(shapes) else None

    def compact(self) -> tuple[Spec, ProgramOperator] | None:
        first, *other_forms = (r.compact() for r in self._records)
        return first if all(x == first for x in other_forms) else None

    def doubts(self) -> Sequence[str]:
        return list(dict.fromkeys(text for r in self._records for text in r.doubts))

    def pad_rounds(self) -> None:
        self.walks = [dataclasses.replace(w, pad_last_batch=True) for w in self.walks]
        self.metas = tuple(w.meta() for w in self.walks)

    def fingerprint(self) -> list[dict[str, Any]]:
        """See `Source.fingerprint`. A seed of the reader's own belongs to it; a pipeline's seed is stored elsewhere in
        the checkpoint.
        """
        reader_seed = {"seed": self._reader_seed} if self._reader_seed >= 0 else {}
        return [{"files": r.digest, **w.fingerprint(), **reader_seed} for r, w in zip(self._records, self.walks)]

    def initial(self) -> list[Any]:
        return [w.initial() for w in self.walks]

    def reseed(self, seed: int) -> None:
        if self._reader_seed < 0:
            self.walks = [dataclasses.replace(w, seed=seed) for w in self.walks]

    def resume(self, saved: Sequence[Saved], same_shards: bool, same_number: bool = False) -> list[Any]:
        check_fingerprints(self.fingerprint(), saved, ignored=("num_shards", "shard_id"))
        for i, state in enumerate(saved):
            shard = {name: state.fingerprint[name] for name in ("num_shards", "shard_id")}
            dataclasses.replace(self.walks[min(i, len(self.walks) - 1)], **shard).check(state.cursor)
        return [_cursor(walk, saved) for walk in self.walks]

    def check_restart(self, saved: Sequence[Saved]) -> None:
        """See `Source.check_restart`. Values that only matter within an epoch may differ."""
        check_fingerprints(
            self.fingerprint(),
            saved,
            ignored=("num_shards", "shard_id", "pad_last_batch", "stick_to_shard", "group_by_length"),
        )

    def advance(self, batch_size: int, cursors: Sequence[Any]) -> tuple[list[Any], SampleIds]:
        _, new_cursors, ids = self._next(batch_size, cursors)
        return new_cursors, ids

    def _next(self, B: int, cursors: Sequence[Any]) -> tuple[np.ndarray, list[Any], SampleIds]:
        """(numbers of the next records of all shards, the cursors after them, the identity of the samples)."""
        # (index, epoch, position, new cursor) of each shard. A single shard's arrays need no copy.
        steps = [walk.take(cursor, B, B) for walk, cursor in zip(self.walks, cursors)]
        index, epoch, position = steps[0][:3] if len(steps) == 1 else map(np.concatenate, list(zip(*steps))[:3])
        names, paths = (
            _texts([r.name for r in self._records], index),
            _texts([r.full_name for r in self._records], index),
        )

        def of_output(k: int) -> Sequence[str]:
            return _texts([functools.partial(r.name_of_output, output=k) for r in self._records], index)

        return index, [cursor for *_, cursor in steps], SampleIds(epoch, position, names, paths, of_output=of_output)

    def read(self, ctx: HostContext, cursors: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any], SampleIds]:
        """See `Source.read`. Records that can't be read fail, are replaced, or are left out, as `on_error` says."""
        B, N = ctx.B, ctx.N
        index, new_cursors, ids = self._next(B, cursors)
        if self._read_ahead:
            self._announce_next(index, new_cursors, B)
        if self._on_error == "raise":
            return self._read_batch(ctx, index), new_cursors, ids
        reasons, present = dict[int, str](), None
        outputs, failed = self._read(ctx, index)
        if failed and self._on_error == "replace":
            outputs, failed, reasons = self._replace_failed(ctx, index, failed)
        elif failed and self._on_error == "skip":
            reasons, failed = {i: reason for i, (_, reason) in failed.items()}, {}
            present = np.ones(N, bool)
            present[list(reasons)] = False
        for i, (code, reason) in failed.items():
            ctx.fail(i, code, reason)
        reasons = {i: printable(reason).removeprefix(f"{printable(ids.paths[i])}: ") for i, reason in reasons.items()}
        return outputs, new_cursors, dataclasses.replace(ids, present=present, unread=reasons)

    def _read(self, ctx: HostContext, index: np.ndarray) -> tuple[tuple[Any, ...], dict[int, tuple[int, str]]]:
        """(outputs of the records with these numbers, code and reason of each sample that failed)."""
        failed: dict[int, tuple[int, str]] = {}

        def fail(i: int, code: int, reason: str = ""):
            failed[i] = code, reason

        return self._read_batch(dataclasses.replace(ctx, fail=fail), index), failed

    def _read_batch(self, ctx: HostContext, index: np.ndarray) -> tuple[Any, ...]:
        """The outputs of the records with these numbers: arrays, then metadata. Calls ``ctx.fail`` for each that can't
        be read.
        """
        first = self._records[0]
        parts = [(first, index)] if self._one_list else list(zip(self._records, index.reshape(-1, ctx.B)))
        self._threads = self._threads or thread_pool(ctx.num_threads, "jaxdali-reader")
        if not self._metadata:
            return first.read_batch(ctx, parts, self._threads)
        failed: set[int] = set()

        def fail(i: int, code: int, reason: str = ""):
            failed.add(i)
            ctx.fail(i, code, reason)

        return (
            *first.read_batch(dataclasses.replace(ctx, fail=fail), parts, self._threads),
            *self._metadata_columns(ctx, parts, failed),
        )

    def _metadata_columns(
        self, ctx: HostContext, parts: Sequence[tuple[Records, np.ndarray]], failed: set[int]
    ) -> list[np.ndarray]:
        """The metadata of a batch of records, an array of objects for each name; None for records that failed."""
        rows: list[list[Any]] = []
        for records, index in parts:
            functions = self._metadata[id(records)]
            for i in index.tolist():
                row = [None] * len(functions)
                if len(rows) not in failed:  # len(rows) is the number of this sample in the batch
                    try:
                        row = [function(i) for function in functions]
                    except OSError as e:
                        ctx.fail(len(rows), Status.RECORD, f"{e.filename or records.name(i)}: {e.strerror or e}")
                    except ValueError as e:
                        ctx.fail(len(rows), Status.RECORD, str(e))
                rows.append(row)
        return [metadata_of(column) for column in zip(*rows, strict=True)]

    def _replace_failed(self, ctx: HostContext, index: np.ndarray, failed: dict[int, tuple[int, str]]):
        """Reads the batch again, with each failed record replaced by the one 1, 3, 7, ... positions later in the list,
        so that a few attempts suffice.

        Returns:
          (outputs, code and reason of samples without a replacement, reason of each sample that was replaced).
        """
        reasons = {i: reason for i, (_, reason) in failed.items()}
        index, step, outputs = index.copy(), 1, ()
        while failed and step <= max(map(len, self._records)):
            for i in failed:
                records = self._records[i * len(self._records) // ctx.N]  # the list of the sample's shard
                index[i] = (index[i] + step) % len(records)
            step *= 2
            outputs, failed = self._read(ctx, index)
            reasons |= {i: reason for i, (_, reason) in failed.items() if i not in reasons}
        unreplaced = {
            i: (code, f"{reasons[i]}; no record that could replace it was found") for i, (code, _) in failed.items()
        }
        return outputs, unreplaced, {i: reason for i, reason in reasons.items() if i not in unreplaced}

    def _announce_next(self, index: np.ndarray, cursors: Sequence[Any], B: int):
        """Announces to the lists the records that are read next: this batch, and at least the next one.

        Args:
          index: the records of this batch.
          cursors: the cursors after it.
        """
        lists = {id(r): r for r in self._records}
        per_shard = max(-(-self._read_ahead // len(self.walks)), B)
        current = index.reshape(len(self.walks), B)
        # `take` returns the numbers of the records first.
        following = np.stack([walk.take(cursor, per_shard, B)[0] for walk, cursor in zip(self.walks, cursors)])
        for key, records in lists.items():
            reads_list = [id(r) == key for r in self._records]
            # The following records of the shards are interleaved, because all shards advance together.
            records.ahead(
                np.concatenate([current[reads_list].reshape(-1), following[reads_list].T.reshape(-1)]),
                B * sum(reads_list),
            )

    def counts(self) -> Mapping[str, int]:
        """See `Source.counts`. A list that several shards read counts once."""
        total: Counter[str] = Counter()
        for records in {id(r): r for r in self._records}.values():
            total.update(dict(records.counts()))  # a copy, because a request that is running may add a count
        return total

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None
        for records in self._records:
            records.close()


def _texts(functions: Sequence[Callable[[int], str]], index: np.ndarray) -> Texts:
    """Strings about records, without the secrets in URLs.

    Args:
      functions: `Records.name` or `Records.full_name` of each list.
      index: the numbers of the records, of one list after another, of each equally many.
    """
    N = len(index)
    return Texts(lambda i: redacted(cut(functions[i * len(functions) // N](int(index[i])), _LONGEST_NAME)), N)


def metadata_function(records: Records, name: str) -> Callable[[int], Any]:
    """The function for metadata of this name, see `Records.metadata`. Raises ArgumentError if there is none."""
    function = records.metadata(name)
    if function is None:
        similar = did_you_mean(name, records.facts(), use=None)
        raise ArgumentError(f"there is no metadata {quoted(name)}; there are {', '.join(records.facts())}{similar}")
    if name in ("filename", "source_info"):  # a URL may have credentials
        return lambda i: redacted(function(i))
    return function


def _cursor(walk: Walk, saved: Sequence[Saved]) -> dict[str, Any]:
    """The cursor from which a shard continues.

    It is the saved cursor of this shard, or is derived from that of another shard. If the number of shards has changed,
    the shard continues with its part of the remaining samples. See Note [Redistribution].
    """
    same_division = [s for s in saved if s.fingerprint["num_shards"] == walk.num_shards]
    for s in same_division:
        if s.fingerprint["shard_id"] == walk.shard_id:
            return s.cursor
    # Any state will do, because one cursor determines those of all shards.
    state = (same_division or saved)[0]
    if same_division:
        return dataclasses.replace(walk, shard_id=state.fingerprint["shard_id"]).cursor_of_shard(
            state.cursor, walk.shard_id
        )
    return walk.redistributed(state.cursor, state.fingerprint["num_shards"], state.fingerprint["shard_id"])
