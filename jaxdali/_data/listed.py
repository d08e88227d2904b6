"""Readers of lists: `Records` is the part that each reader defines, `Reader` and `ListSource` are common to all."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal, Protocol

import numpy as np

from .._core.building import warn
from .._core.context import HostContext
from .._core.declaration import Range
from .._core.errors import ArgumentError, cut, printable, quoted
from .._core.graph import DataNode
from .._core.names import did_you_mean
from .._core.operator import ProgramOperator, SourceOperator
from .._core.operator_function import Default, SeededHints
from .._core.redaction import redacted
from .._core.system import thread_pool
from .._core.values import METADATA, Spec, metadata_of
from .._cpu import Status
from .files import Files, as_list
from .shuffle import Groups
from .source import SampleIds, Saved, Source, check_fingerprints
from .storage import Storage, Store
from .walk import Order, Walk

_LONGEST_NAME = 8192  # characters of the origin of a sample: more than paths have, but names in archives may have any

OnError = Literal["raise", "replace", "skip"]  # the reaction to a record that can't be read, see `Reader`


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


class ReaderHints(SeededHints, total=False):
    """Hints to DALI's readers, which every reader accepts. They have no effect."""

    lazy_init: bool | None
    prefetch_queue_depth: int | None
    read_ahead: bool | None
    skip_cached_images: bool | None
    tensor_init_bytes: int | None


class ReaderArguments(ReaderHints, total=False):
    """The arguments of every reader."""

    random_shuffle: Annotated[
        bool,
        Default(
            False, "whether to shuffle the list before it is split into shards, and each shard anew in each epoch."
        ),
    ]
    initial_fill: Annotated[
        int,
        Range(1),
        Default(
            1024,
            "size of the shuffle buffer. A small buffer shuffles only locally, and 1 does not shuffle. The buffer holds\n"
            "    indices, not data, so a large one is cheap.",
        ),
    ]
    shuffle_after_epoch: Annotated[
        bool,
        Default(
            False,
            "whether to shuffle the whole list anew in each epoch, alike for all shards, each of which reads the same part.",
        ),
    ]
    shuffle_after_epoch_seed: Annotated[
        int | None, Default(None, "a seed for `shuffle_after_epoch`. Default: a fixed seed, as in DALI.")
    ]
    shuffle: Annotated[
        Literal["global"] | None,
        Default(
            None,
            '"global": the order of each epoch is a new permutation of the whole list, by `seed`, which must be the same for\n'
            "    all shards. Not in DALI.",
        ),
    ]
    num_shards: Annotated[
        int, Range(1), Default(1, "number of parts of the list; part i of S begins at entry ``floor(i*N/S)``.")
    ]
    shard_id: Annotated[int, Range(0), Default(0, "the part to read, ``0 .. num_shards - 1``.")]
    stick_to_shard: Annotated[
        bool, Default(False, "whether to read the same part in every epoch, instead of moving on to the next part.")
    ]
    pad_last_batch: Annotated[
        bool,
        Default(
            False,
            "whether to repeat a shard's last sample until all shards are equally long and the last batch is full.",
        ),
    ]
    seed: Annotated[
        int, Default(-1, "the seed of `random_shuffle` and `shuffle`; a negative one means the pipeline's.")
    ]
    on_error: Annotated[
        OnError,
        Default(
            "raise",
            'what happens when a record can\'t be read. "raise": its batch fails; "replace": a later record of the list replaces\n'
            '    it; "skip": its batch is made without it. `Pipeline.bad_samples` reports the last two. Not in DALI.',
        ),
    ]
    metadata: Annotated[
        str | Sequence[str] | None,
        Default(
            None,
            "what to give of each record besides the arrays: names, each of which adds an output of Python objects after the\n"
            "    others. Only `python_function` takes them, and a batch has them as lists, in the order of its samples; they never\n"
            '    become part of a program. Here: "index", the number of the record in the list; "source_info". Not in DALI.',
        ),
    ]
    device: Annotated[Literal["cpu"] | None, Default(None, "")]
    name: Annotated[str | None, Default(None, "the name of the reader, for ``reader_name`` and error messages.")]


class StoredArguments(ReaderArguments, total=False):
    """The arguments of readers whose paths may be URLs."""

    storage: Annotated[
        Storage | None, Default(None, "how URLs are read, a `jaxdali.Storage` (not in DALI). All paths may be URLs.")
    ]


def storage_of(data: DataNode) -> Storage:
    """The `Storage` of the reader that data come from, whose limits apply to what is made of them."""
    # Other sources have none, and some readers are called without one.
    return getattr(data.node.source and data.node.source.op, "storage", None) or Storage()


class MixedArguments(ReaderArguments, total=False):
    """The arguments of readers of containers, which may be mixed."""

    weights: Annotated[
        float | Sequence[float] | None,
        Default(
            None,
            "in what proportion the records of the containers (files, archives, databases) come, e.g. ``(0.7, 0.3)``. They are\n"
            "    mixed evenly, and an epoch has each record at least once: records of a container that is too small for its weight\n"
            "    are repeated. Not in DALI.",
        ),
    ]
    shuffle_after_epoch: Annotated[
        bool,
        Default(
            False,
            "whether to shuffle the order of the containers anew in each epoch, in the same way for all shards, each reading the\n"
            "    same part. The records of each stay together, in their order; with `weights` all records are shuffled.",
        ),
    ]


class ContainerArguments(MixedArguments, StoredArguments, total=False):
    """The arguments of readers of containers whose paths may be URLs."""

    shuffle_after_epoch: Annotated[
        bool,
        Default(
            False,
            "whether to shuffle the order of the containers anew in each epoch, in the same way for all shards, each reading the\n"
            "    same part. The records of each stay together, in their order; with `weights` all records are shuffled.",
        ),
    ]


class Reader(SourceOperator, Order):
    """An operator that reads a list. Its fields besides those of `Order` define the list, and the data of its records.

    Attributes:
      on_error: the reaction to a record that can't be read. "raise": its batch is a `SampleError`; "replace": a later
        record of the list replaces it; "skip": its batch is made without it, and nothing else changes: positions,
        epochs, shards and checkpoints are the same. `bad_samples` reports the last two.
      weights: the weights by which containers are mixed, see `Mixed`; for lists with `bounds`.
      storage: how paths that are URLs are read; `open` passes it to its `Files`.
    """

    on_error: OnError = "raise"
    storage: Storage | None = None
    weights: float | Sequence[float] | None = None

    def __post_init__(self):
        """Checks the arguments. Raises ArgumentError."""
        SourceOperator.__post_init__(self)
        Order.__post_init__(self)
        if self.weights is not None and min(as_list(self.weights), default=0) <= 0:
            raise ArgumentError(f"weights must be above 0, got {list(as_list(self.weights))}")
        if self.shuffle_after_epoch_seed is not None and not self.shuffle_after_epoch:
            warn(f"{self.name}: shuffle_after_epoch_seed has no effect without shuffle_after_epoch=True")

    @classmethod
    def shared(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of `Reader` from a function's `ReaderArguments`, for a function that makes its operator in its
        body.
        """
        names = {f.name for f in cls.fields()}
        return {n: x for n, x in arguments.items() if n in names}

    def open(self) -> Records:
        """Makes the list when the pipeline is built. Raises RuntimeError if there is nothing to list."""
        raise NotImplementedError(self.name)

    def open_mixed(self) -> Records:
        """`open`, mixed by the weights."""
        return self.open() if self.weights is None else Mixed(self.open(), as_list(self.weights))

    def make_source(self, ops: Sequence[Reader], seed: int) -> Source:
        """See `SourceOperator.make_source`. Opens a list for each set of arguments, besides those of the order."""
        lists: dict[Any, Records] = {}
        list_of_shard = []
        order_fields = {f.name for f in dataclasses.fields(Order)}
        for op in ops:
            key = tuple(getattr(op, f.name) for f in dataclasses.fields(op) if f.name not in order_fields)
            if key not in lists:  # shards with the same arguments share one list
                lists[key] = op.open_mixed()
            list_of_shard.append(lists[key])
        # For all shards, on_error and metadata are those of the first one.
        return ListSource(list_of_shard, ops, seed, ops[0].on_error, ops[0].metadata_names)


def by_name(op: Reader, names: Sequence[str], nodes: Any) -> dict[str, Any]:
    """The outputs of a reader as a dictionary: the arrays have the names `names`, and the metadata their own.

    Args:
      nodes: the reader's outputs; a single one is not in a list.

    Raises:
      ArgumentError: metadata and an array have the same name.
    """
    ambiguous = [n for n in op.metadata_names if n in names]
    if ambiguous:
        raise ArgumentError(
            f"metadata has {ambiguous[0]!r}, which is also the name of an array: leave out one of them; "
            "fn.python_function can make an array of the metadata"
        )
    all_names = (*names, *op.metadata_names)
    return dict(zip(all_names, nodes if len(all_names) > 1 else [nodes], strict=True))


class _Texts(Sequence):
    """Strings about the samples of a batch, for messages and source_info. Each is computed only when it is read.

    Args:
      functions: `Records.name` or `Records.full_name` of each list.
      index: the numbers of the records, of one list after another, of each equally many.
    """

    def __init__(self, functions: Sequence[Callable[[int], str]], index: np.ndarray):
        self._functions = functions
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, i):
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        i = range(len(self))[i]  # also from the end; raises IndexError
        k = i * len(self._functions) // len(self)  # the number of the list
        return redacted(cut(self._functions[k](int(self._index[i])), _LONGEST_NAME))


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

    def resume(self, saved: Sequence[Saved], same_shards: bool) -> list[Any]:
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
            _Texts([r.name for r in self._records], index),
            _Texts([r.full_name for r in self._records], index),
        )

        def of_output(k: int) -> Sequence[str]:
            return _Texts([functools.partial(r.name_of_output, output=k) for r in self._records], index)

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
