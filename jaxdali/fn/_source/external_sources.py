"""The sources of `external_source`: data pulled from a function or an iterable, or data that are fed."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import logging
import threading
from collections.abc import Callable, Sequence, Sized
from typing import Any, ClassVar

import numpy as np

from ..._core.context import HostContext
from ..._core.errors import ArgumentError, OutputsError
from ..._core.jax_settings import UserSettings
from ..._core.operator import SourceOperator
from ..._core.values import METADATA, Spec, metadata_of
from ..._data.source import SampleIds, Saved, Source
from ...types import BatchInfo, SampleInfo
from .external_data import (
    NAME,
    as_array,
    as_batch,
    check_alike,
    check_no_dict,
    kind_of,
    layout_of,
    metadata_batch,
    packed,
    shapes_of,
)
from .pull import Pull
from .workers import Workers

_log = logging.getLogger("jaxdali")


class ExternalSource(SourceOperator):
    """One external_source. `source` is what the user gave; `arguments` is how many it is called with, None for an
    iterable.
    """

    name: ClassVar[str] = NAME
    stays: ClassVar[bool] = False  # as in DALI, it is neither called nor fed

    feeder: Any = dataclasses.field(compare=False)
    arguments: int | None
    outputs: int | None
    cycle: str
    batch: bool
    batch_info: bool
    parallel: bool
    dtypes: tuple[np.dtype | None, ...]
    ndims: tuple[int | None, ...]
    shapes: tuple[tuple[int | None, ...] | None, ...]
    layouts: tuple[str, ...]
    no_copy: bool
    repeat_last: bool
    blocking: bool

    @property
    def num_arrays(self) -> int:
        return self.outputs or 1

    def make_source(self, ops: Sequence[ExternalSource], seed: int) -> Source:
        """The source of all local shards."""
        return FedSource(ops) if ops[0].feeder is None else _PulledSource(ops)


# --- sources ------------------------------------------------------------------------------------------------------


class _Base(Source):
    """What pulled and fed sources share: the checks of the data, and the cursor ``{"epoch": e, "iteration": i,
    "sample": n}``.

    The sample is the number of the next one of this shard in the epoch; a pulled source's cursor may also have its
    "state".
    """

    def __init__(self, ops: Sequence[ExternalSource]):
        self._ops = ops
        self._op = ops[0]
        self._specs: tuple[Spec, ...] | None = None
        self._batch_size = 0  # of the last `read`
        self._used = list(range(self._op.num_arrays))  # which of the source's arrays each output is made of
        self._unread = frozenset[int]()  # outputs that are metadata and that nothing depends on

    def use(self, outputs: frozenset[int]) -> None:
        """Gives an unused output the data of another output: as in DALI, the source's data for it are not read."""
        n = self._op.num_arrays
        self._unread = frozenset(range(n, self._op.num_outputs)) - outputs if outputs else self._unread
        if not outputs or min(outputs) >= n:  # nothing, or metadata alone
            return
        first = min(outputs)
        self._used = [k if k in outputs else first for k in range(n)]
        names = ("dtypes", "ndims", "shapes", "layouts")
        given = {name: tuple(getattr(self._op, name)[k] for k in self._used) for name in names}
        self._op = dataclasses.replace(self._op, **given)

    def fingerprint(self) -> list[dict[str, Any]]:
        op = self._op
        kind = (
            "fed" if op.feeder is None else {None: "iterable", 0: "callable", 1: "callable with an index"}[op.arguments]
        )
        return [{"source": kind, "num_outputs": op.num_outputs, "batch": op.batch} for _ in self._ops]

    def initial(self) -> list[Any]:
        return [{"epoch": 0, "iteration": 0, "sample": 0} for _ in self._ops]

    def after_end(self, cursors: Sequence[Any]) -> list[Any]:
        return [{"epoch": c["epoch"] + 1, "iteration": 0, "sample": 0} for c in cursors]

    def after_error(self, cursors: Sequence[Any]) -> list[Any]:
        return [
            {"epoch": c["epoch"], "iteration": c["iteration"] + 1, "sample": c["sample"] + self._batch_size}
            for c in cursors
        ]

    def resume(self, saved: Sequence[Saved], same_shards: bool) -> list[Any]:
        first = saved[0].cursor
        state = first.get("state", {})
        # Nothing was read.
        if not same_shards and first["iteration"] == 0 and "source" not in state and not state.get("open"):
            return super().resume([saved[0]] * len(self._ops), True)
        return super().resume(saved, same_shards)

    def specs(self) -> tuple[Spec, ...]:
        return (*self._array_specs(), *[METADATA] * len(self._op.metadata_names))

    def _array_specs(self) -> tuple[Spec, ...]:
        """Specs of the outputs that are no metadata."""
        if self._specs is None:
            op = self._op
            if all(d is not None and n is not None for d, n in zip(op.dtypes, op.ndims)):
                self._specs = tuple(
                    _spec(d, n, lay, s)  # pyright: ignore[reportArgumentType]
                    for d, n, lay, s in zip(op.dtypes, op.ndims, op.layouts, op.shapes)
                )
            else:
                self._learn(*self._first())
        assert self._specs is not None
        return self._specs

    def _first(self) -> tuple[Sequence[np.ndarray | list[np.ndarray]], Sequence[str]]:
        """Each output of the first batch, and the layouts given with the data."""
        raise NotImplementedError

    def _learn(self, batches: Sequence[np.ndarray | list[np.ndarray]], came_with: Sequence[str]):
        op = self._op
        specs, kinds = [], [kind_of(b) for b in batches]
        for k, kind in enumerate(kinds):
            if kind is None:
                raise ArgumentError(
                    f"{NAME}: the first batch is an empty list, so the type is not known; pass dtype and ndim"
                )
            dtype, ndim = kind
            layout = op.layouts[k] or came_with[k]
            if layout and len(layout) != ndim:
                raise ArgumentError(
                    f"{NAME}: layout {layout!r} describes {len(layout)} dimensions, the data have {ndim}"
                )
            want, rank = op.dtypes[k], op.ndims[k]
            dims = op.shapes[k]
            if dims is None and rank in (None, ndim):
                dims = _channels(layout, shapes_of(batches[k]))
            specs.append(_spec(want if want is not None else dtype, rank if rank is not None else ndim, layout, dims))
        self._specs = tuple(specs)
        for k, kind in enumerate(kinds):
            self._check(k, kind)

    def _check(self, k: int, kind: tuple[np.dtype, int] | None):
        spec = self._array_specs()[k]
        if kind is not None and kind != (spec.dtype, spec.ndim):
            raise ArgumentError(
                f"{NAME}: output {k} has samples of {spec.ndim} dimensions and dtype {spec.dtype} (as given by dtype, ndim or "
                f"layout, or by the first batch), got {kind[1]} dimensions and dtype {kind[0]}"
            )

    def _check_extents(self, k: int, batch: np.ndarray | list[np.ndarray]):
        spec = self._array_specs()[k]
        known = [(axis, n) for axis in range(spec.ndim) if (n := spec.extent(axis)) is not None]
        for shape in shapes_of(batch) if known and len(batch) else ():
            if any(shape[axis] != n for axis, n in known):
                free = tuple(spec.extent(i) for i in range(spec.ndim))
                if self._op.shapes[k] is not None:
                    raise ArgumentError(
                        f"{NAME}: the samples of output {k} must have the shape {free} (None: any extent), got {shape}"
                    )
                raise ArgumentError(
                    f"{NAME}: output {k} has a sample of shape {shape}, but the images of the first batch had "
                    f"{free[spec.layout.index('C')]} channels (layout {spec.layout!r}), for which programs are compiled; pass "
                    f"shape={(None,) * spec.ndim} if their number varies"
                )

    def _deliver(self, ctx: HostContext, cursors: Sequence[Any], parts: Sequence[Sequence[Any]]):
        """`parts`: per shard, the batch of each output; those of metadata are lists."""
        B = self._batch_size = ctx.B
        counts = []
        for part in parts:
            lengths = {len(x) for x in part}
            if len(lengths) > 1:
                raise ArgumentError(
                    f"{NAME}: the outputs of one batch have different numbers of samples: {sorted(lengths)}"
                )
            counts.append(lengths.pop())
            if counts[-1] > B:
                raise ArgumentError(f"{NAME}: got a batch of {counts[-1]} samples, expected at most batch_size = {B}")
            for k, x in enumerate(part[: self._op.num_arrays]):
                self._check(k, kind_of(x))
                self._check_extents(k, x)
        specs = self._array_specs()
        outputs = tuple(packed(ctx, k, spec, [p[k] for p in parts]) for k, spec in enumerate(specs))
        for k in range(len(specs), self._op.num_outputs):
            outputs += (metadata_of([x for p in parts for x in (*p[k], *[None] * (B - len(p[k])))]),)
        place = np.arange(B)[None] + B * np.asarray(ctx.shard_ids)[:, None]
        start = np.array([[c["sample"] * ctx.num_shards] for c in cursors])
        epoch = np.repeat(np.array([c["epoch"] for c in cursors], np.int64), B)
        present = None if min(counts) == B else (np.arange(B)[None] < np.array(counts)[:, None]).reshape(-1)
        ids = SampleIds(epoch, (place + start).reshape(-1).astype(np.int64), [""] * ctx.N, [""] * ctx.N, present)
        return outputs, self.after_error(cursors), ids


def _spec(dtype: np.dtype, ndim: int, layout: str, dims: tuple[int | None, ...] | None) -> Spec:
    dims = (None,) * ndim if dims is None else dims
    known = tuple(n for n in dims if n is not None)
    return (
        Spec(dtype, ndim, known, layout)
        if len(known) == ndim
        else Spec(dtype, ndim, None, layout, dims if known else None)
    )


def _channels(layout: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int | None, ...] | None:
    """The extents that the first images determine: their channels. None if these differ, or if the layout is not one of
    images.
    """
    if not (shapes and layout.count("C") == 1 and "H" in layout and "W" in layout):
        return None
    axis = layout.index("C")
    found = {s[axis] for s in shapes}
    return tuple(shapes[0][axis] if i == axis and len(found) == 1 else None for i in range(len(layout)))


@dataclasses.dataclass
class _Taken:
    """What has been taken from the sources for a batch.

    Attributes:
      cursors: the cursors before it.
      items: for each shard, the arguments of the sources and what they returned.
    """

    cursors: list[Any]
    items: list[list[tuple[Any, Any]]] = dataclasses.field(default_factory=list)


class _PulledSource(_Base):
    """Calls the user's sources: in the thread that takes the batches, or with `parallel` in a background thread."""

    def __init__(self, ops: Sequence[ExternalSource]):
        super().__init__(ops)
        self.in_caller = not self._op.parallel
        self._settings = UserSettings()
        self._workers: Workers | None = None
        self._pulls = [Pull(op.feeder, op.arguments, op.cycle, op.parallel) for op in ops]
        self._initial: list[Any] | None = None
        self._expected = self.initial()  # the current cursors of the sources
        self._taken: collections.deque[_Taken] = collections.deque()  # for batches that are not yet committed
        self._gives_rest = False

    def use(self, outputs: frozenset[int]) -> None:
        super().use(outputs)
        for pull in self._pulls if self._has_workers else ():
            pull.divide(self.workers)

    @property
    def _has_workers(self) -> bool:
        """Whether several workers call the source, each for some samples."""
        return self._op.parallel and not self._op.batch and self._op.arguments == 1 and self.workers > 1

    def doubts(self) -> Sequence[str]:
        return [p.copies.doubt for p in self._pulls if p.copies and p.copies.doubt]

    def initial(self) -> list[Any]:
        if self._initial is None:  # before anything was read
            self._initial = self._with_state(super().initial())
        return self._initial

    @staticmethod
    def _and(cursor: dict[str, Any], state: dict[str, Any] | None) -> dict[str, Any]:
        return cursor if state is None else {**cursor, "state": state}

    def _with_state(self, cursors: list[Any]) -> list[Any]:
        return [self._and(c, p.state()) for c, p in zip(cursors, self._pulls)]

    def _argument(self, cursor: Any, i: int) -> Any:
        iteration, epoch = cursor["iteration"], cursor["epoch"]
        if not self._op.batch:
            return SampleInfo(cursor["sample"] + i, i, iteration, epoch)
        return BatchInfo(iteration, epoch) if self._op.batch_info else iteration

    def _outputs(self, item: Any) -> Sequence[Any]:
        metadata = len(self._op.metadata_names)
        if self._op.outputs is None and not metadata:
            return (item,)
        n = self._op.num_outputs
        check_no_dict(item)
        is_array = hasattr(item, "__array__") and hasattr(item, "__getitem__") and getattr(item, "ndim", 0) > 0
        least = n if metadata else max(self._used) + 1
        if not (isinstance(item, (tuple, list)) or is_array) or not least <= len(item) <= n:
            got = type(item).__name__
            if is_array or isinstance(item, (tuple, list)):
                got = f"an array of shape {np.shape(item)}" if is_array else f"{len(item)} items"
            with_ = f"num_outputs={self._op.outputs}" if not metadata else f"metadata={list(self._op.metadata_names)}"
            raise OutputsError(f"{NAME}: with {with_} the source must return a tuple of {n} items, got {got}")
        return [item[k] for k in (*self._used, *range(self._op.num_arrays, n))]  # the rows of an array, too

    def _converted(self, items: Sequence[Any], copied: bool) -> list[Any]:
        """The outputs of a batch or a sample: arrays, and metadata as they are (of a batch in a list)."""
        n = self._op.num_arrays
        found: list[Any] = [(as_batch if self._op.batch else as_array)(x, copied) for x in items[:n]]
        for k, x in enumerate(items[n:], n):
            if k in self._unread:
                found.append([None] * len(found[0]) if self._op.batch else None)
            else:
                found.append(metadata_batch(self._op.metadata_names[k - n], x) if self._op.batch else x)
        return found

    def _first(self):
        try:
            items = self._outputs(self._pulls[0].peek(self._argument(self.initial()[0], 0)))
        except StopIteration:
            raise RuntimeError(f"{NAME}: there are no data: the source ended before its first batch") from None
        arrays = items[: self._op.num_arrays]
        layouts = [layout_of(x) for x in arrays]
        return [as_batch(x, False) if self._op.batch else [as_array(x, False)] for x in arrays], layouts

    def first_shape(self, output: int) -> tuple[int, ...] | None:
        if output >= self._op.num_arrays:
            return ()
        item = self._outputs(self._pulls[0].peek(self._argument(self.initial()[0], 0)))[output]
        sample = as_batch(item, False)[0] if self._op.batch else as_array(item, False)
        return tuple(sample.shape)

    def read(self, ctx: HostContext, cursors: Sequence[Any]):
        if self.in_caller:
            return self._read(ctx, cursors)
        with self._settings.contexts(self._settings.mesh):
            return self._read(ctx, cursors)

    def _read(self, ctx: HostContext, cursors: Sequence[Any]):
        self._batch_size = ctx.B
        there = list(cursors) == self._expected or [p.seek(c.get("state")) for p, c in zip(self._pulls, cursors)]
        if there is not True and not all(there):
            _log.warning(
                "%s: its source takes no index and has no get_state and set_state, so it can't resume where the checkpoint was made: "
                "it starts over, or continues from its present position",
                NAME,
            )
        # Samples are collected before they are packed, and must not change if the source reuses its memory.
        copied = not self._op.no_copy and (ctx.S > 1 or not self._op.batch)
        parts = []
        all_taken = _Taken(list(cursors))
        self._taken.append(all_taken)
        for pull, cursor in zip(self._pulls, cursors):
            rows: list[Any] = []
            taken: list[tuple[Any, Any]] = []
            all_taken.items.append(taken)
            try:
                for argument, item in self._asked(
                    pull, [self._argument(cursor, i) for i in range(1 if self._op.batch else ctx.B)]
                ):
                    row = self._converted(self._outputs(item()), copied)
                    rows.append(row)
                    taken.append((argument, row[0] if self._op.num_outputs == 1 and self._op.outputs is None else row))
            except StopIteration:
                if not self._gives_rest:
                    all_taken.items.pop()  # the samples of an incomplete batch are dropped
                    self._count_dropped(ctx, cursors, parts, rows)
                    raise
                pull.over = True
            if self._op.batch and rows:
                parts.append(rows[0])
                continue
            columns = list(map(list, zip(*rows))) if rows else [[] for _ in range(self._op.num_outputs)]
            for column in columns[: self._op.num_arrays]:
                check_alike(column)
            parts.append(columns)
        if all(pull.over for pull in self._pulls) and not any(len(part[0]) for part in parts):
            all_taken.items.clear()
            raise StopIteration
        return self._deliver(ctx, cursors, parts)

    def _count_dropped(
        self, ctx: HostContext, cursors: Sequence[Any], parts: Sequence[Sequence[Any]], rows: Sequence[Any]
    ):
        """Counts samples that are dropped because the source of one shard can't complete a batch.

        Args:
          parts: what the shards before it gave for that batch; rows: the samples of this shard.
        """
        self.dropped, self.drops_more = len(rows) + sum(len(part[0]) for part in parts), False
        for k, (pull, cursor) in enumerate(zip(self._pulls, cursors)):
            # A function is only called for samples that are wanted.
            if k == len(parts) or self._op.arguments is not None:
                continue
            if not self._op.batch and isinstance(pull.feeder, Sized):
                given = cursor["sample"] + (len(parts[k][0]) if k < len(parts) else 0)
                self.dropped += max(len(pull.feeder) - given, 0)
                continue
            more = []
            with contextlib.suppress(StopIteration):
                for _ in range(1 if self._op.batch else ctx.B):
                    more.append((None, pull.take(None)))
            pull.put_back(more)
            self.dropped += sum(len(self._outputs(x)[0]) for _, x in more) if self._op.batch else len(more)
            self.drops_more = self.drops_more or len(more) == (1 if self._op.batch else ctx.B)

    def give_rest(self) -> None:
        self._gives_rest = True

    @property
    def why_empty(self) -> str:
        return self._pulls[0].why_empty

    def _asked(self, pull: Pull, arguments: Sequence[Any]) -> list[tuple[Any, Callable[[], Any]]]:
        """Each argument, with a function that returns what the source gives for it. All workers call sources of samples
        by index.
        """
        calls: list[Callable[[], Any]] = [functools.partial(pull.take, a) for a in arguments]
        if self._has_workers:
            if self._workers is None:
                self._workers = Workers(self.workers, self._settings)
            new = [i for i, a in enumerate(arguments) if not (pull.over or pull.keeps(a))]
            for i, call in zip(new, self._workers.map(pull.callables, [arguments[i] for i in new], len(arguments))):
                calls[i] = call
        return list(zip(arguments, calls))

    def close(self) -> None:
        if self._workers is not None:
            self._workers.close()
            self._workers = None
        for pull in self._pulls:
            pull.close()

    def commit(self) -> None:
        self._taken.popleft()

    def undo(self) -> None:
        taken = self._taken.pop()
        for pull, items in zip(self._pulls, taken.items):
            pull.put_back(items)
        self._expected = taken.cursors

    def after_end(self, cursors: Sequence[Any]) -> list[Any]:
        """Keeps what was taken for a batch that another source could not complete; with "raise", every epoch starts
        anew.
        """
        states: list[Any] = []
        for pull in self._pulls:
            pull.over = False
        if self._op.cycle == "raise":
            self._taken.clear()
            for pull in self._pulls:
                pull.restart()
        elif self._taken:
            first = self._taken[0]
            states = [c.get("state") for c in first.cursors[: len(first.items)]]  # as if the batch had not been taken
            self.reopen()
        states += [p.state() for p in self._pulls[len(states) :]]
        self._expected = [self._and(c, state) for c, state in zip(super().after_end(cursors), states)]
        return self._expected

    def reopen(self) -> None:
        while self._taken:
            self.undo()

    def after_error(self, cursors: Sequence[Any]) -> list[Any]:
        self._expected = self._with_state(super().after_error(cursors))
        return self._expected

    def saved(self, cursors: Sequence[Any]) -> list[Saved]:
        for c in cursors:
            source = c.get("state", {}).get("source", {})
            if "unknown" in source:
                raise TypeError(
                    f"{NAME}: get_state of the source must return bytes or something that JSON can hold: {source['unknown']}"
                )
        return super().saved(cursors)


class FedSource(_Base):
    """Returns the data given to `feed`, in order."""

    fed = True
    ends_reads = True

    def __init__(self, ops: Sequence[ExternalSource]):
        super().__init__(ops)
        self._queues: list[collections.deque[Any]] = [collections.deque() for _ in ops]
        self._last: list[Any] = [None] * len(ops)
        self._repeated = False  # whether the last batch was a repetition
        self._layout = ""
        self._changed = threading.Condition()  # guards the queues, the layout and `_closed`
        self._closed = False

    def feed(self, data: Any, layout: str | None = None, shard: int = 0) -> None:
        """Appends a batch for local shard `shard`: an array, or a list of arrays; with metadata a tuple of these and a
        list for each name. Arrays are copied, unless no_copy=True was given.
        """
        names, metadata = self._op.metadata_names, list[list[Any]]()
        if names:
            if not isinstance(data, tuple) or len(data) != 1 + len(names):
                got = f"{len(data)} items" if isinstance(data, tuple) else type(data).__name__
                raise ArgumentError(
                    f"{NAME}: with metadata={list(names)} a tuple of {1 + len(names)} items must be fed, got {got}"
                )
            data, *others = data
            metadata = [metadata_batch(n, x) for n, x in zip(names, others, strict=True)]
        batch = as_batch(data, copy=not self._op.no_copy)
        layout = layout or layout_of(data)
        kind = kind_of(batch)
        if layout and kind is not None and len(layout) != kind[1]:
            raise ArgumentError(
                f"{NAME}: layout {layout!r} describes {len(layout)} dimensions, the data have {kind[1]}"
            )
        with self._changed:
            known = self._op.layouts[0] or self._layout
            if layout and known and layout != known:
                raise ArgumentError(f"{NAME}: the layout is {known!r}, got data of layout {layout!r}")
            self._layout = known or layout
            self._queues[shard].append([batch, *metadata])
            self._changed.notify_all()

    @property
    def available(self) -> int:
        """The number of batches that were fed and not yet read, for every shard."""
        return min(map(len, self._queues))

    def _next(self, shard: int, keep: bool) -> list[Any]:
        """The outputs of the next batch of a shard."""
        queue = self._queues[shard]
        with self._changed:
            if self._op.blocking and not (self._op.repeat_last and self._last[shard] is not None):
                self._changed.wait_for(lambda: queue or self._closed)
            if not queue:
                if self._op.repeat_last and self._last[shard] is not None:
                    self._repeated = True
                    return self._last[shard]
                raise IndexError(f"{NAME}: no data were fed for this run; call feed_input before it")
            batch = queue[0] if keep else queue.popleft()
            if self._op.repeat_last and not keep:
                self._last[shard] = batch
            return batch

    def _first(self):
        return self._next(0, keep=True)[:1], [self._layout]

    def first_shape(self, output: int) -> tuple[int, ...] | None:
        return tuple(self._next(0, keep=True)[0][0].shape) if output == 0 else ()

    def read(self, ctx: HostContext, cursors: Sequence[Any]):
        self.specs()  # of the batch that is taken now, when it is the first
        self._repeated = False
        outputs, after, ids = self._deliver(ctx, cursors, [self._next(s, keep=False) for s in range(ctx.S)])
        return outputs, after, dataclasses.replace(ids, repeated=self._repeated)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def reopen(self) -> None:
        self._closed = False
