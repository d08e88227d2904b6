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

from ..._core.building import warn
from ..._core.context import HostContext
from ..._core.errors import ArgumentError, OutputsError, quoted
from ..._core.jax_settings import UserSettings
from ..._core.operator import SourceOperator
from ..._core.values import METADATA, Spec, metadata_of
from ..._data.source import SampleIds, Saved, Source
from ...types import BatchInfo, SampleInfo
from .external_data import (
    NAME,
    SampleMemory,
    as_array,
    as_batch,
    check_alike,
    check_no_dict,
    kind_of,
    layout_of,
    metadata_batch,
    pack_shards,
    shapes_of,
)
from .pull import Pull, is_state
from .workers import WorkerThreads

_log = logging.getLogger("jaxdali")


class ExternalSource(SourceOperator):
    """The operator `external_source`.

    Attributes:
      feeder: the user's source; None: data are fed.
      arguments: the number of arguments with which it is called; None for an iterable.
      outputs: the argument `num_outputs`. The other attributes are arguments, too.
    """

    name: ClassVar[str] = NAME
    stays: ClassVar[bool] = False  # as in DALI, a source without readers is neither called nor fed

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


class _BaseSource(Source):
    """The base of pulled and fed sources: it checks the data, and moves the cursor.

    A cursor is ``{"epoch": e, "iteration": i, "sample": n}``, where n is the number of this shard's next sample in the
    epoch. A pulled source's cursor may also have its "state". Output k is made of the source's array number
    `_array_of_output[k]`.
    """

    def __init__(self, ops: Sequence[ExternalSource]):
        self._ops = ops
        self._op = ops[0]
        self._specs: tuple[Spec, ...] | None = None
        self._batch_size = 0  # of the last `read`
        self._array_of_output = list(range(self._op.num_arrays))
        self._unused_metadata = frozenset[int]()  # outputs that are metadata and that nothing depends on

    @property
    def _was_read(self) -> bool:
        """Whether the first batch was taken. Then a source must not be asked for its shapes: it may have ended, wait for
        data, or be in use by another thread.
        """
        return self._batch_size > 0

    def set_used_outputs(self, outputs: frozenset[int]) -> None:
        """Gives unused outputs the data of a used one. As in DALI, the source's data for them are not read."""
        n = self._op.num_arrays
        self._unused_metadata = (
            frozenset(range(n, self._op.num_outputs)) - outputs if outputs else self._unused_metadata
        )
        if not outputs or min(outputs) >= n:  # no output is used, or only metadata
            return
        first = min(outputs)
        self._array_of_output = [k if k in outputs else first for k in range(n)]
        names = ("dtypes", "ndims", "shapes", "layouts")
        per_output = {name: tuple(getattr(self._op, name)[k] for k in self._array_of_output) for name in names}
        self._op = dataclasses.replace(self._op, **per_output)

    def fingerprint(self) -> list[dict[str, Any]]:
        """See `Source.fingerprint`; equal for all shards, as nothing is known about the data."""
        op = self._op
        kind = (
            "fed" if op.feeder is None else {None: "iterable", 0: "callable", 1: "callable with an index"}[op.arguments]
        )
        return [{"source": kind, "num_outputs": op.num_outputs, "batch": op.batch} for _ in self._ops]

    def initial(self) -> list[Any]:
        return [{"epoch": 0, "iteration": 0, "sample": 0} for _ in self._ops]

    def after_end(self, cursors: Sequence[Any]) -> list[Any]:
        return [{"epoch": c["epoch"] + 1, "iteration": 0, "sample": 0} for c in cursors]

    def after_error(self, batch_size: int, cursors: Sequence[Any]) -> list[Any]:
        return self._cursors_after(batch_size, cursors)

    def _cursors_after(self, B: int, cursors: Sequence[Any]) -> list[Any]:
        """The cursors after the batch that begins at `cursors`."""
        return [{"epoch": c["epoch"], "iteration": c["iteration"] + 1, "sample": c["sample"] + B} for c in cursors]

    def resume(self, saved: Sequence[Saved], same_shards: bool, same_number: bool = False) -> list[Any]:
        """See `Source.resume`. A cursor's "state" is that of `Pull.state`."""
        for entry in saved:
            if not is_state(entry.cursor.get("state"), self._op.arguments):
                raise ValueError(f"cursor.state is {quoted(entry.cursor['state'])}")
        first = saved[0].cursor
        # A shard's own state: that of its source, or that it has ended.
        states = [entry.cursor.get("state") or {} for entry in saved]
        has_own = any("source" in x or x.get("over") or x.get("ended") for x in states)
        if not same_shards and same_number and has_own:
            raise ValueError(
                "its sources have states of their own, and this checkpoint has those of another process: save a state in each process, "
                "and resume each from its own"
            )
        # Without such a state all shards are at the same place. Where nothing was read before the checkpoint, any number
        # of shards can start from it.
        is_unread = first["iteration"] == 0 and "source" not in states[0] and not states[0].get("open")
        if not same_shards and (same_number or is_unread):
            return super().resume([saved[0]] * len(self._ops), same_shards=True)
        return super().resume(saved, same_shards)

    def specs(self) -> tuple[Spec, ...]:
        return (*self._array_specs(), *[METADATA] * len(self._op.metadata_names))

    def _array_specs(self) -> tuple[Spec, ...]:
        """The specs of the outputs that are no metadata. They may depend on the first batch."""
        if self._specs is None:
            op = self._op
            if all(d is not None and n is not None for d, n in zip(op.dtypes, op.ndims)):
                self._specs = tuple(
                    _spec(d, n, lay, s)  # pyright: ignore[reportArgumentType]
                    for d, n, lay, s in zip(op.dtypes, op.ndims, op.layouts, op.shapes)
                )
            else:
                self._set_specs(*self._peek_first_batch())
        assert self._specs is not None
        return self._specs

    def _peek_first_batch(self) -> tuple[Sequence[np.ndarray | list[np.ndarray]], Sequence[str]]:
        """Returns each output of the first batch, without taking it, and the layouts that come with the data."""
        raise NotImplementedError

    def _set_specs(self, batches: Sequence[np.ndarray | list[np.ndarray]], data_layouts: Sequence[str]):
        """Sets the specs by the first batch and the operator's arguments, and checks that they agree."""
        op = self._op
        specs, kinds = [], [kind_of(b) for b in batches]
        for k, kind in enumerate(kinds):
            if kind is None:
                raise ArgumentError(
                    f"{NAME}: the first batch is an empty list, so the type is not known; pass dtype and ndim"
                )
            dtype, ndim = kind
            layout = op.layouts[k] or data_layouts[k]
            if layout and len(layout) != ndim:
                raise ArgumentError(
                    f"{NAME}: layout {layout!r} describes {len(layout)} dimensions, the data have {ndim}"
                )
            dtype_argument, ndim_argument = op.dtypes[k], op.ndims[k]
            dims = op.shapes[k]
            if dims is None and ndim_argument in (None, ndim):
                dims = _channels(layout, shapes_of(batches[k]))
            specs.append(
                _spec(
                    dtype_argument if dtype_argument is not None else dtype,
                    ndim_argument if ndim_argument is not None else ndim,
                    layout,
                    dims,
                )
            )
        self._specs = tuple(specs)
        for k, kind in enumerate(kinds):
            self._check(k, kind)

    def _check(self, k: int, kind: tuple[np.dtype, int] | None):
        """Raises ArgumentError if the data of output k, whose dtype and rank are `kind`, differ from its spec."""
        spec = self._array_specs()[k]
        if kind is not None and kind != (spec.dtype, spec.ndim):
            raise ArgumentError(
                f"{NAME}: output {k} has samples of {spec.ndim} dimensions and dtype {spec.dtype} (as given by dtype, ndim or "
                f"layout, or by the first batch), got {kind[1]} dimensions and dtype {kind[0]}"
            )

    def _check_extents(self, k: int, batch: np.ndarray | list[np.ndarray]):
        """Raises ArgumentError if a sample of output k has other extents than those that the spec fixes."""
        spec = self._array_specs()[k]
        fixed = [(axis, n) for axis in range(spec.ndim) if (n := spec.extent(axis)) is not None]
        for shape in shapes_of(batch) if fixed and len(batch) else ():
            if any(shape[axis] != n for axis, n in fixed):
                expected = tuple(spec.extent(i) for i in range(spec.ndim))
                if self._op.shapes[k] is not None:
                    raise ArgumentError(
                        f"{NAME}: the samples of output {k} must have the shape {expected} (None: any extent), got {shape}"
                    )
                raise ArgumentError(
                    f"{NAME}: output {k} has a sample of shape {shape}, but the images of the first batch had "
                    f"{expected[spec.layout.index('C')]} channels (layout {spec.layout!r}), for which programs are compiled; pass "
                    f"shape={(None,) * spec.ndim} if their number varies"
                )

    def _make_outputs(self, ctx: HostContext, cursors: Sequence[Any], parts: Sequence[Sequence[Any]]):
        """Checks a batch and packs it.

        Args:
          parts: per shard, the batch of each output; those of metadata are lists.

        Returns:
          The result of `read`: outputs, new cursors, and the identity of the samples.
        """
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
        outputs = tuple(pack_shards(ctx, k, spec, [p[k] for p in parts]) for k, spec in enumerate(specs))
        for k in range(len(specs), self._op.num_outputs):  # metadata; None for missing samples
            outputs += (metadata_of([x for p in parts for x in (*p[k], *[None] * (B - len(p[k])))]),)
        # The position of a sample in the epoch, over all shards: it does not depend on the host.
        place = np.arange(B)[None] + B * np.asarray(ctx.shard_ids)[:, None]
        start = np.array([[c["sample"] * ctx.num_shards] for c in cursors])
        epoch = np.repeat(np.array([c["epoch"] for c in cursors], np.int64), B)
        # Samples that a shard's batch lacks are absent; None: all are present.
        present = None if min(counts) == B else (np.arange(B)[None] < np.array(counts)[:, None]).reshape(-1)
        ids = SampleIds(epoch, (place + start).reshape(-1).astype(np.int64), [""] * ctx.N, [""] * ctx.N, present)
        return outputs, self._cursors_after(B, cursors), ids


def _spec(dtype: np.dtype, ndim: int, layout: str, dims: tuple[int | None, ...] | None) -> Spec:
    """The spec of an output of which some extents may be known; `dims` None: none is."""
    dims = (None,) * ndim if dims is None else dims
    fixed = tuple(n for n in dims if n is not None)
    return (
        Spec(dtype, ndim, fixed, layout)
        if len(fixed) == ndim
        else Spec(dtype, ndim, None, layout, dims if fixed else None)
    )


def _channels(layout: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int | None, ...] | None:
    """The extents that the first images determine: the number of channels, if they agree in it.

    None if the layout is not that of images.
    """
    if not (shapes and layout.count("C") == 1 and "H" in layout and "W" in layout):
        return None
    axis = layout.index("C")
    counts = {s[axis] for s in shapes}
    return tuple(shapes[0][axis] if i == axis and len(counts) == 1 else None for i in range(len(layout)))


@dataclasses.dataclass
class _TakenBatch:
    """A batch that was taken from the sources, so that it can be put back.

    Attributes:
      cursors: the cursors before it.
      items: for each shard, (argument, item) of each call of its source.
    """

    cursors: list[Any]
    items: list[list[tuple[Any, Any]]] = dataclasses.field(default_factory=list)


class _PulledSource(_BaseSource):
    """Calls the user's sources: in the thread that takes the batches, or with `parallel` in background threads.

    An item is what one call of a source, or one step of its iterator, returns: a batch, or a sample. `_pulls` has the
    source of each shard, `_expected` the cursors at which they stand, and `_taken` the batches that were taken and are
    not yet committed.
    """

    def __init__(self, ops: Sequence[ExternalSource]):
        super().__init__(ops)
        self.in_caller = not self._op.parallel
        self._settings = UserSettings()  # JAX's settings of the user's thread, under which background threads call
        self._threads: WorkerThreads | None = None
        self._memory = SampleMemory()  # of samples that workers make
        self._pulls = [Pull(op.feeder, op.arguments, op.cycle, op.parallel) for op in ops]
        self._initial: list[Any] | None = None
        self._expected = self.initial()
        self._taken: collections.deque[_TakenBatch] = collections.deque()
        # Whether a call of a source that takes no index was interrupted, so that the item is perhaps lost.
        self._interrupted = False
        self._gives_rest = False  # whether samples that don't fill a batch are returned, see `give_rest`

    def set_used_outputs(self, outputs: frozenset[int]) -> None:
        super().set_used_outputs(outputs)
        for pull in self._pulls if self._has_workers else ():
            pull.divide(self.workers)

    @property
    def has_own_states(self) -> bool:
        """See `Source`."""
        return any(pull.stateful is not None for pull in self._pulls)

    @property
    def _has_workers(self) -> bool:
        """Whether several workers call the source, each for some samples."""
        return self._op.parallel and not self._op.batch and self._op.arguments == 1 and self.workers > 1

    def doubts(self) -> Sequence[str]:
        return [p.copies.doubt for p in self._pulls if p.copies and p.copies.doubt]

    def initial(self) -> list[Any]:
        if self._initial is None:  # before anything was read
            self._initial = self._add_states(super().initial())
        return self._initial

    @staticmethod
    def _add_state(cursor: dict[str, Any], state: dict[str, Any] | None) -> dict[str, Any]:
        return cursor if state is None else {**cursor, "state": state}

    def _add_states(self, cursors: list[Any]) -> list[Any]:
        return [self._add_state(c, p.state()) for c, p in zip(cursors, self._pulls)]

    def _argument(self, cursor: Any, i: int) -> Any:
        """The argument of the source for a batch, or for sample `i` of it."""
        iteration, epoch = cursor["iteration"], cursor["epoch"]
        if not self._op.batch:
            # The number in the epoch, then that in the batch.
            return SampleInfo(cursor["sample"] + i, i, iteration, epoch)
        return BatchInfo(iteration, epoch) if self._op.batch_info else iteration

    def _outputs(self, item: Any) -> Sequence[Any]:
        """The data of each output in an item. Raises OutputsError if the item has another number of them."""
        num_metadata = len(self._op.metadata_names)
        if self._op.outputs is None and not num_metadata:
            return (item,)
        n = self._op.num_outputs
        check_no_dict(item)
        is_array = hasattr(item, "__array__") and hasattr(item, "__getitem__") and getattr(item, "ndim", 0) > 0
        # Without metadata, values after the last output that is used may be missing.
        min_length = n if num_metadata else max(self._array_of_output) + 1
        if not (isinstance(item, (tuple, list)) or is_array) or not min_length <= len(item) <= n:
            actual = type(item).__name__
            if is_array or isinstance(item, (tuple, list)):
                actual = f"an array of shape {np.shape(item)}" if is_array else f"{len(item)} items"
            arguments = (
                f"num_outputs={self._op.outputs}" if not num_metadata else f"metadata={list(self._op.metadata_names)}"
            )
            raise OutputsError(f"{NAME}: with {arguments} the source must return a tuple of {n} items, got {actual}")
        return [item[k] for k in (*self._array_of_output, *range(self._op.num_arrays, n))]  # the rows of an array, too

    def _convert(self, items: Sequence[Any], copied: bool, memory: SampleMemory | None = None) -> list[Any]:
        """Converts the outputs of a batch or a sample: to arrays, and metadata of a batch to lists.

        Args:
          copied: whether arrays are copied, so that the source may reuse its memory.
          memory: see `as_array`, for a sample.
        """
        n = self._op.num_arrays
        outputs: list[Any] = (
            [as_batch(x, copied) for x in items[:n]]
            if self._op.batch
            else [as_array(x, copied, memory) for x in items[:n]]
        )
        for k, x in enumerate(items[n:], n):
            if k in self._unused_metadata:
                outputs.append([None] * len(outputs[0]) if self._op.batch else None)
            else:
                outputs.append(metadata_batch(self._op.metadata_names[k - n], x) if self._op.batch else x)
        return outputs

    def _peek_first_batch(self):
        """See `_BaseSource._peek_first_batch`. Only the first shard's source is asked, for a batch or a single sample."""
        try:
            items = self._outputs(self._pulls[0].peek(self._argument(self.initial()[0], 0)))
        except StopIteration:
            raise RuntimeError(f"{NAME}: there are no data: the source ended before its first batch") from None
        arrays = items[: self._op.num_arrays]
        layouts = [layout_of(x) for x in arrays]
        return [as_batch(x, copy=False) if self._op.batch else [as_array(x, copy=False)] for x in arrays], layouts

    def first_shape(self, output: int) -> tuple[int, ...] | None:
        """See `Source.first_shape`; () for metadata, which are single objects."""
        if output >= self._op.num_arrays:
            return ()
        if self._was_read:
            return None
        item = self._outputs(self._pulls[0].peek(self._argument(self.initial()[0], 0)))[output]
        sample = as_batch(item, copy=False)[0] if self._op.batch else as_array(item, copy=False)
        return tuple(sample.shape)

    def read(self, ctx: HostContext, cursors: Sequence[Any]):
        if self.in_caller:
            return self._read(ctx, cursors)
        with self._settings.contexts(self._settings.mesh):
            return self._read(ctx, cursors)

    def _read(self, ctx: HostContext, cursors: Sequence[Any]):
        """Takes a batch from the sources of all shards, and notes it in `_taken` until it is committed."""
        self._batch_size = ctx.B
        taken_batch = _TakenBatch(list(cursors))
        self._taken.append(taken_batch)  # first, since `commit` or `undo` takes it, even if an exception is raised
        if self._interrupted:
            self._go_on_after_interrupt(cursors)
        # The sources stand where the last batch ended. After a checkpoint, the cursors are others. `is_there` is True,
        # or says for each source whether it could be set to its cursor.
        is_there = list(cursors) == self._expected or [p.seek(c.get("state")) for p, c in zip(self._pulls, cursors)]
        if is_there is not True and not all(is_there):
            _log.warning(
                "%s: its source takes no index and has no get_state and set_state, so it can't resume where the checkpoint was made: "
                "it starts over, or continues from its present position",
                NAME,
            )
        # Samples are collected before they are packed. They must not change if the source reuses its memory.
        copied = not self._op.no_copy and (ctx.S > 1 or not self._op.batch)
        parts = []
        for pull, cursor in zip(self._pulls, cursors):
            rows: list[Any] = []
            taken_items: list[tuple[Any, Any]] = []
            taken_batch.items.append(taken_items)
            try:
                for argument, call in self._calls_for(
                    pull, [self._argument(cursor, i) for i in range(1 if self._op.batch else ctx.B)], copied
                ):
                    row = call()
                    rows.append(row)
                    # In the form in which the source returns an item, as `put_back` gives it to `_outputs` again.
                    taken_items.append(
                        (argument, row[0] if self._op.num_outputs == 1 and self._op.outputs is None else row)
                    )
            except StopIteration:
                # With `give_rest`, an iterator asks for the samples of an incomplete last batch.
                if not self._gives_rest:
                    taken_batch.items.pop()  # samples of an incomplete batch are dropped, not put back
                    self._count_dropped(ctx, cursors, parts, rows)
                    raise
                pull.has_ended_early = True
            except BaseException as e:
                self._interrupted = self._op.arguments != 1
                if not self._is_interrupt(e):
                    self._drop_rest(taken_batch, 1 if self._op.batch else ctx.B)
                    self._interrupted = False
                raise
            # A batch is a single item; samples become columns.
            if self._op.batch and rows:
                parts.append(rows[0])
                continue
            parts.append(list(map(list, zip(*rows))) if rows else [[] for _ in range(self._op.num_outputs)])
        if all(pull.has_ended_early for pull in self._pulls) and not any(len(part[0]) for part in parts):
            taken_batch.items.clear()
            raise StopIteration
        # Only now, since an error before would leave the sources of later shards a batch behind.
        for part in () if self._op.batch else parts:
            for column in part[: self._op.num_arrays]:
                check_alike(column)
        return self._make_outputs(ctx, cursors, parts)

    def _is_interrupt(self, e: BaseException) -> bool:
        """Whether an exception, such as KeyboardInterrupt, is raised in the user's thread at once, so that the batch is
        not lost but read again.
        """
        return self.in_caller and not isinstance(e, Exception)

    def _go_on_after_interrupt(self, cursors: Sequence[Any]):
        """Makes sources that have states make the interrupted batch anew. Warns if they have none."""
        self._interrupted = False
        if all(Pull.has_source_state(c.get("state")) for c in cursors):
            self._expected = []  # so that they are set to their states
            return
        warn(
            f"{NAME}: its source was interrupted while it made this batch, and may have moved on: from here on its data may belong to "
            "other samples than those of other sources; begin anew with a new source. A source that takes an index, or has "
            "get_state and set_state, continues exactly"
        )

    def _drop_rest(self, failed_batch: _TakenBatch, num_items: int):
        """Takes and drops what a failed batch lacks of iterables, so that their next item is that of the next batch. The
        item that failed counts.

        Callables are not called again. Those that take an index don't need it. Of the others it is not known whether a
        call that fails moves them, and where each call waits for a server, the error would come only after all waits.

        Args:
          num_items: of a batch of one shard.
        """
        if self._op.arguments is not None:
            return
        for k, pull in enumerate(self._pulls):
            num_taken = len(failed_batch.items[k]) if k < len(failed_batch.items) else 0
            num_failed = int(k == len(failed_batch.items) - 1)
            for _ in range(num_items - num_taken - num_failed):
                try:
                    pull.take(None)
                except StopIteration:
                    pull.has_ended_early = True  # or the next read begins the source anew, within this epoch
                    break
                except BaseException as e:
                    if self._is_interrupt(e):
                        raise

    def _count_dropped(
        self, ctx: HostContext, cursors: Sequence[Any], parts: Sequence[Sequence[Any]], rows: Sequence[Any]
    ):
        """Counts samples that are dropped because the source of one shard can't complete a batch.

        The result is in `dropped`, and in `drops_more` whether there may be more, see `Source`. A batch is a list
        by output, so that its element 0 has the samples of the first output.

        Args:
          parts: the batches of the shards before it.
          rows: the samples of this shard.
        """
        self.dropped, self.drops_more = len(rows) + sum(len(part[0]) for part in parts), False
        for k, (pull, cursor) in enumerate(zip(self._pulls, cursors)):
            # This shard's source has ended. A callable (`arguments` is not None) holds no further samples back.
            if k == len(parts) or self._op.arguments is not None:
                continue
            if not self._op.batch and isinstance(pull.feeder, Sized):
                num_taken = cursor["sample"] + (len(parts[k][0]) if k < len(parts) else 0)
                self.dropped += max(len(pull.feeder) - num_taken, 0)
                continue
            # The source has no length: its items for one batch are taken, counted and put back.
            next_items = []
            with contextlib.suppress(StopIteration):
                for _ in range(1 if self._op.batch else ctx.B):
                    next_items.append((None, pull.take(None)))
            pull.put_back(next_items)
            self.dropped += sum(len(self._outputs(x)[0]) for _, x in next_items) if self._op.batch else len(next_items)
            # A whole batch was there, so more samples may follow.
            self.drops_more = self.drops_more or len(next_items) == (1 if self._op.batch else ctx.B)

    def give_rest(self) -> None:
        self._gives_rest = True

    @property
    def why_empty(self) -> str:
        return self._pulls[0].why_empty

    def _calls_for(
        self, pull: Pull, arguments: Sequence[Any], copied: bool
    ) -> list[tuple[Any, Callable[[], list[Any]]]]:
        """Each argument, with a function that returns the outputs of the source's item for it, see `_convert`.

        For a source of samples by index, the calls are scheduled on all workers. A worker also converts its item, since
        the source may reuse its memory in the worker's next call.
        """

        memory = self._memory if self._has_workers else None

        def convert(item: Any) -> list[Any]:
            return self._convert(self._outputs(item), copied, memory)

        def take(argument: Any) -> list[Any]:
            return convert(pull.take(argument))

        calls: list[Callable[[], list[Any]]] = [functools.partial(take, a) for a in arguments]
        if self._has_workers:
            if self._threads is None:
                self._threads = WorkerThreads(self.workers, self._settings)
            # Items that were put back are not made again. They are converted before the workers change their memory.
            new = []
            for i, argument in enumerate(arguments):
                if pull.has_item(argument):
                    calls[i] = _returning(calls[i]())
                elif not pull.has_ended_early:
                    new.append(i)
            scheduled = self._threads.map(pull.callables, [arguments[i] for i in new], len(arguments), convert)
            for i, call in zip(new, scheduled):
                calls[i] = call
        return list(zip(arguments, calls))

    def close(self) -> None:
        if self._threads is not None:
            self._threads.close()
            self._threads = None
        for pull in self._pulls:
            pull.close()

    def commit(self) -> None:
        self._taken.popleft()

    def undo(self) -> None:
        """See `Source.undo`. A shard whose incomplete batch was dropped has no items, and no shard after it has any."""
        batch = self._taken.pop()
        for pull, items in zip(self._pulls, batch.items):
            pull.put_back(items)
        self._expected = batch.cursors

    def after_end(self, cursors: Sequence[Any]) -> list[Any]:
        """The cursors of the next epoch.

        Items that were taken for a batch which another source could not complete are put back. With cycle="raise",
        every epoch starts anew.
        """
        states: list[Any] = []
        for pull in self._pulls:
            pull.has_ended_early = False
        if self._op.cycle == "raise":
            self._taken.clear()
            for pull in self._pulls:
                pull.restart()
        elif self._taken:
            first = self._taken[0]
            # The states of the sources as if the batch had not been taken.
            states = [c.get("state") for c in first.cursors[: len(first.items)]]
            self.reopen()
        states += [p.state() for p in self._pulls[len(states) :]]
        self._expected = [self._add_state(c, state) for c, state in zip(super().after_end(cursors), states)]
        return self._expected

    def reopen(self) -> None:
        while self._taken:
            self.undo()

    def _cursors_after(self, B: int, cursors: Sequence[Any]) -> list[Any]:
        """See `_BaseSource._cursors_after`. The sources go on from where they stand, so the cursors get their states."""
        self._expected = self._add_states(super()._cursors_after(B, cursors))
        return self._expected

    def saved(self, cursors: Sequence[Any]) -> list[Saved]:
        """See `Source.saved`. An error of get_state is raised only here, see `Pull.state`."""
        for c in cursors:
            source = c.get("state", {}).get("source", {})
            if "unknown" in source:
                raise TypeError(
                    f"{NAME}: get_state of the source must return bytes or something that JSON can hold: {source['unknown']}"
                )
        return super().saved(cursors)


def _returning(row: list[Any]) -> Callable[[], list[Any]]:
    """A function that returns `row`."""
    return lambda: row


class FedSource(_BaseSource):
    """Returns the data given to `feed`, in order. `_queues` has the batches of each shard that were not read yet."""

    fed = True
    ends_reads = True

    def __init__(self, ops: Sequence[ExternalSource]):
        super().__init__(ops)
        self._queues: list[collections.deque[Any]] = [collections.deque() for _ in ops]
        self._last: list[Any] = [None] * len(ops)  # the last batch of each shard, for `repeat_last`
        self._repeated = False  # whether the last batch was a repetition
        self._layout = ""
        self._changed = threading.Condition()  # guards the queues, the layout and `_closed`
        self._closed = False

    def feed(self, data: Any, layout: str | None = None, shard: int = 0) -> None:
        """Appends a batch for local shard `shard`.

        The batch is an array or a list of arrays; with metadata, a tuple of these and a list for each name. Arrays are
        copied, unless no_copy=True was given.
        """
        names, metadata = self._op.metadata_names, list[list[Any]]()
        if names:
            if not isinstance(data, tuple) or len(data) != 1 + len(names):
                actual = f"{len(data)} items" if isinstance(data, tuple) else type(data).__name__
                raise ArgumentError(
                    f"{NAME}: with metadata={list(names)} a tuple of {1 + len(names)} items must be fed, got {actual}"
                )
            data, *metadata_lists = data
            metadata = [metadata_batch(n, x) for n, x in zip(names, metadata_lists, strict=True)]
        batch = as_batch(data, copy=not self._op.no_copy)
        layout = layout or layout_of(data)
        kind = kind_of(batch)  # (dtype, number of dimensions of a sample); None: the batch has no sample
        if layout and kind is not None and len(layout) != kind[1]:
            raise ArgumentError(
                f"{NAME}: layout {layout!r} describes {len(layout)} dimensions, the data have {kind[1]}"
            )
        with self._changed:
            fixed_layout = self._op.layouts[0] or self._layout
            if layout and fixed_layout and layout != fixed_layout:
                raise ArgumentError(f"{NAME}: the layout is {fixed_layout!r}, got data of layout {layout!r}")
            self._layout = fixed_layout or layout
            self._queues[shard].append([batch, *metadata])
            self._changed.notify_all()

    @property
    def available(self) -> int:
        """The number of batches that were fed and not yet read, for every shard."""
        return min(map(len, self._queues))

    def _next(self, shard: int, keep: bool) -> list[Any]:
        """Returns the outputs of the next batch of a shard, and takes it from the queue unless `keep` is set.

        With `repeat_last` it is the last batch again if no new one was fed.

        Raises:
          IndexError: there is no batch.
        """
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

    def _peek_first_batch(self):
        # Output 0; all others are metadata.
        return self._next(0, keep=True)[:1], [self._layout]

    def first_shape(self, output: int) -> tuple[int, ...] | None:
        """See `Source.first_shape`: of the first sample of output 0; () for metadata, which are all other outputs."""
        if output != 0:
            return ()
        return None if self._was_read else tuple(self._next(0, keep=True)[0][0].shape)

    def read(self, ctx: HostContext, cursors: Sequence[Any]):
        self.specs()  # if the batch that is taken now is the first one, it determines the specs
        self._repeated = False
        outputs, new_cursors, ids = self._make_outputs(ctx, cursors, [self._next(s, keep=False) for s in range(ctx.S)])
        return outputs, new_cursors, dataclasses.replace(ids, repeated=self._repeated)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def reopen(self) -> None:
        self._closed = False
