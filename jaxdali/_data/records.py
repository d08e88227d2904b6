"""Lists of records: `Records` is the part that each reader defines. `Entries` and `Mixed` are made of other lists."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from .._core.context import HostContext
from .._core.errors import ArgumentError
from .._core.operator import ProgramOperator
from .._core.values import Spec
from .._cpu import Status
from .files import Files
from .shuffle import Groups
from .storage import Store


class Stored(Protocol):
    """The place of the bytes of records: `Files`, `Ranges`, or parts of containers."""

    @property
    def store(self) -> Store: ...

    @property
    def read_ahead(self) -> int: ...

    def ahead(self, index: np.ndarray, now: int) -> None: ...


class Records:
    """A list of samples: everything that a reader has to define.

    Attributes:
      specs: specs of the arrays that `read` returns.
      digest: a digest of the list. A checkpoint made with another list is refused.
      bounds: ``i64[containers + 1]``, the first record of each container, and the record after the last; empty if there
        are no containers: `weights` are then refused.
      lengths: the length of each record, for `group_by_length`; `digest` must depend on them.
      stored: the place of the records' bytes: record i is file or range i of this. None: the list accesses its data by
        itself.
      ends_reads: whether `close` may be called while another thread reads, and ends its read.
      seen_shapes: the shapes of the arrays of one of the records, as far as they are known; for messages.
      doubts: for `Source.doubts`: texts about records that the list leaves out, or reads in another way than most users
        expect, with counts and the argument that changes it.
    """

    specs: tuple[Spec, ...]
    digest: str
    stored: Stored | None = None
    ends_reads: bool = False
    bounds: np.ndarray = np.zeros(0, np.int64)
    lengths: np.ndarray | None = None
    seen_shapes: tuple[tuple[int, ...], ...] = ()
    doubts: Sequence[str] = ()

    def __len__(self) -> int:
        raise NotImplementedError(type(self).__name__)

    def groups(self) -> Groups | None:
        """The groups of records that are read as a whole, if a random order of all records would read them again and
        again. It is called only for a list that is shuffled.
        """
        return None

    def read_by(self, shards: int) -> None:
        """Tells the list the number of shards of this process that read it, for the size of a cache."""

    def name(self, i: int) -> str:
        """The origin of record `i`, for source_info."""
        raise NotImplementedError(type(self).__name__)

    def name_of_output(self, i: int, output: int) -> str:
        """The origin of one output of record `i`, if outputs have different origins."""
        return self.name(i)

    def full_name(self, i: int) -> str:
        """The origin of record `i` for messages. A file is named by a path that can be opened."""
        return self.stored.path(i) if isinstance(self.stored, Files) else self.name(i)

    def metadata(self, name: str) -> Callable[[int], Any] | None:
        """The function that computes the metadata of this name, for the argument `metadata`; None: there is none.

        The function takes a record's number, and may raise the errors of `read`. This method is called once for each
        name, before anything is read, so that a list can prepare the function's data.
        """
        return self.facts().get(name)

    def facts(self) -> dict[str, Callable[[int], Any]]:
        """The functions of metadata whose names are known in advance, by name; see `metadata`."""
        functions: dict[str, Callable[[int], Any]] = {"index": int, "source_info": self.name}
        if isinstance(self.stored, Files):
            # Files of the root itself may be listed as "./name", see `in_directories`.
            functions["filename"] = lambda i: self.full_name(i).replace("/./", "/")
        return functions

    def read(self, i: int) -> Sequence[np.ndarray]:
        """One record, as an array for each output. It is called in any thread, and raises OSError or ValueError if the
        record can't be read.
        """
        raise NotImplementedError(type(self).__name__)

    def compact(self) -> tuple[Spec, ProgramOperator] | None:
        """See `Source.compact`. `read_batch` gives the form that `HostContext.spec` has."""
        return None

    @property
    def reads_alone(self) -> bool:
        """Whether `read` is the way to read one record. Other lists have only `read_batch`, or read faster by it."""
        return type(self).read is not Records.read

    @property
    def read_ahead(self) -> int:
        """The least number of records after a batch that `ahead` announces; 0: `ahead` is not called."""
        return 0 if self.stored is None else self.stored.read_ahead

    def ahead(self, index: np.ndarray, now: int) -> None:
        """Announces the records that are read next, in this order, the first `now` of them immediately, so that remote
        ones can be fetched. It replaces what was announced before.
        """
        if self.stored is not None:
            self.stored.ahead(index, now)

    def counts(self) -> Mapping[str, int]:
        """Counts of the requests to the storage, for `Pipeline.statistics`; see `Store.counts`."""
        return {} if self.stored is None else self.stored.store.counts

    def close(self) -> None:
        """Releases fetched data and threads. The list may be used again."""
        if self.stored is not None:
            self.stored.store.close()

    @classmethod
    def read_batch(
        cls, ctx: HostContext, parts: Sequence[tuple[Any, np.ndarray]], threads: ThreadPoolExecutor
    ) -> tuple[Any, ...]:
        """The records of one batch, as `HostOperator.run` returns outputs. This implementation calls `read` in
        `threads`.

        Args:
          parts: (list, indices of records in it), one list after another. All shards read one list, or each its own.
        """

        def read(sample: tuple[Records, int]) -> Sequence[np.ndarray] | str:
            """The arrays of a record; the reason as text if it can't be read."""
            records, i = sample
            try:
                return records.read(i)
            except OSError as e:
                return f"{e.filename or records.name(i)}: {e.strerror or e}"
            except ValueError as e:
                return str(e)

        def read_all(samples: Sequence[tuple[Records, int]]) -> list[Sequence[np.ndarray] | str]:
            return [read(sample) for sample in samples]

        samples = [(records, i) for records, index in parts for i in index.tolist()]
        # Several samples for each task: handing them over one by one takes as long as reading small records. Four tasks
        # for each thread balance the load. With one thread, the calling one reads all.
        samples_per_task = -(-len(samples) // (4 * ctx.num_threads))
        tasks = [samples[k : k + samples_per_task] for k in range(0, len(samples), samples_per_task)]
        rows = [
            row for task_rows in (map if ctx.num_threads == 1 else threads.map)(read_all, tasks) for row in task_rows
        ]
        specs = parts[0][0].specs
        for k, row in enumerate(rows):
            if isinstance(row, str):  # an error: zeros, or an empty array, take the record's place
                ctx.fail(k, Status.RECORD, row)
                rows[k] = [np.zeros(s.shape or (0,) * s.ndim, s.dtype) for s in specs]
        return tuple(
            np.stack(column) if s.shape is not None else list(column)
            for s, column in zip(specs, zip(*rows), strict=True)
        )


class Entries(Records):
    """A list of records of another list, each of which may come several times.

    Args:
      records: the other list.
      index: ``i64[entries]``, the record of `records` that each entry of this list is.
      order: tells in which way they were chosen, for the digest.
    """

    def __init__(self, records: Records, index: np.ndarray, order: str):
        self._records, self._index = records, index
        self.specs, self.stored, self.seen_shapes, self.doubts = (
            records.specs,
            records.stored,
            records.seen_shapes,
            records.doubts,
        )
        self.lengths = None if records.lengths is None else records.lengths[index]
        self.digest = f"{records.digest}, {order}"

    def __len__(self) -> int:
        return len(self._index)

    def groups(self) -> Groups | None:
        """See `Records.groups`: the groups of `records` as groups of entries of this list."""
        groups = self._records.groups()
        if groups is None:
            return None
        first = np.cumsum(groups.sizes) - groups.sizes  # the first record of each group
        # The entries of this list in the order of their records, and the number of earlier entries of the same record.
        by_record = np.argsort(self._index, kind="stable")
        records = self._index[by_record]
        repeat = np.arange(len(records)) - np.searchsorted(records, records)
        # A group whose records come several times is several groups: one for each time. The key of such a group is
        # time * number of groups + group, so that the first times come first.
        keys, sizes = np.unique(repeat * len(first) + np.searchsorted(first, records, "right") - 1, return_counts=True)
        originals = keys % len(first)
        return dataclasses.replace(
            groups,
            sizes=sizes,
            nbytes=groups.nbytes[originals],
            entries=by_record[np.argsort(repeat, kind="stable")],
            containers=np.searchsorted(self._records.bounds, first[originals], "right") - 1,
        )

    def read_by(self, shards: int) -> None:
        self._records.read_by(shards)

    def name(self, i: int) -> str:
        return self._records.name(int(self._index[i]))

    def name_of_output(self, i: int, output: int) -> str:
        return self._records.name_of_output(int(self._index[i]), output)

    def full_name(self, i: int) -> str:
        return self._records.full_name(int(self._index[i]))

    def metadata(self, name: str) -> Callable[[int], Any] | None:
        function = self._records.metadata(name)
        return None if function is None else lambda i: function(int(self._index[i]))

    @property
    def reads_alone(self) -> bool:
        return self._records.reads_alone

    def read(self, i: int) -> Sequence[np.ndarray]:
        return self._records.read(int(self._index[i]))

    def facts(self) -> dict[str, Callable[[int], Any]]:
        return self._records.facts()

    @property
    def read_ahead(self) -> int:
        return self._records.read_ahead

    def ahead(self, index: np.ndarray, now: int) -> None:
        self._records.ahead(self._index[index], now)

    def counts(self) -> Mapping[str, int]:
        return self._records.counts()

    def close(self) -> None:
        self._records.close()

    @classmethod
    def read_batch(
        cls, ctx: HostContext, parts: Sequence[tuple[Entries, np.ndarray]], threads: ThreadPoolExecutor
    ) -> tuple[Any, ...]:
        """See `Records.read_batch`. The class of the lists with the records reads the batch."""
        return parts[0][0]._records.read_batch(ctx, [(e._records, e._index[index]) for e, index in parts], threads)


class Mixed(Entries):
    """A list in which the records of containers come in given proportions, evenly mixed.

    Each record comes at least once. Records of a container that is too small for its weight are repeated, in their
    order.

    Args:
      records: the list, which has `bounds`.
      weights: the weights of the containers, above 0.
    """

    def __init__(self, records: Records, weights: Sequence[float]):
        bounds = records.bounds
        sizes = np.diff(bounds)
        if len(weights) != len(sizes):
            raise ArgumentError(
                f"weights must have a number for each of the {len(sizes)} parts to be mixed, got {len(weights)}"
            )
        if not sizes.all():
            raise ArgumentError(f"weights can't mix part {np.argmin(sizes)} of {len(sizes)}: it has no records")
        # The smallest numbers of records in these proportions with which each record comes at least once.
        share = np.array(weights) / sum(weights)
        counts = np.maximum(np.rint(share * (sizes / share).max()).astype(np.int64), sizes)
        # Record k of n comes at (k + 0.5) / n of the list, which is even and the same everywhere.
        container = np.repeat(np.arange(len(sizes)), counts)
        k = np.arange(len(container)) - np.repeat(np.cumsum(counts) - counts, counts)
        order = np.argsort((k + 0.5) / counts[container], kind="stable")
        super().__init__(records, (bounds[:-1][container] + k % sizes[container])[order], f"weights {share.tolist()}")
