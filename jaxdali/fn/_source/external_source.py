"""external_source: data from Python."""

from __future__ import annotations

import collections
import dataclasses
import functools
import inspect
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal, Unpack

import numpy as np

from ..._core.building import add
from ..._core.context import HostContext
from ..._core.declaration import INPUT, DType, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import SourceOperator
from ..._core.operator_function import Hints, operator_function
from ..._core.settings import UserSettings
from ..._core.values import Spec
from ..._data.source import SampleIds, Saved, Source
from ...types import BatchInfo, SampleInfo
from .external_data import NAME, as_array, as_batch, check_alike, kind_of, layout_of, packed, shapes_of
from .pull import Pull, unwrapped
from .workers import Workers

_log = logging.getLogger("jaxdali")


class ExternalSource(SourceOperator):
    """One external_source. `source` is what the user gave; `arguments` is how many it is called with, None for an iterable."""

    name: ClassVar[str] = NAME

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
    def num_outputs(self) -> int:
        return self.outputs or 1

    def make_source(self, ops: Sequence[ExternalSource], seed: int) -> Source:
        """The source of all local shards."""
        return _FedSource(ops) if ops[0].feeder is None else _PulledSource(ops)


# --- sources ------------------------------------------------------------------------------------------------------


class _Base(Source):
    """What pulled and fed sources share: the check of the data, and the cursor ``{"epoch": e, "iteration": i, "sample": n}``.

    The sample is the number of the next one of this shard in the epoch; a pulled source's cursor may also have its "state".
    """

    def __init__(self, ops: Sequence[ExternalSource]):
        self._ops = ops
        self._op = ops[0]
        self._specs: tuple[Spec, ...] | None = None
        self._batch_size = 0  # of the last `read`

    def fingerprint(self) -> list[dict[str, Any]]:
        op = self._op
        kind = "fed" if op.feeder is None else {None: "iterable", 0: "callable", 1: "callable with an index"}[op.arguments]
        return [{"source": kind, "num_outputs": op.num_outputs, "batch": op.batch} for _ in self._ops]

    def initial(self) -> list[Any]:
        return [{"epoch": 0, "iteration": 0, "sample": 0} for _ in self._ops]

    def after_end(self, cursors: Sequence[Any]) -> list[Any]:
        return [{"epoch": c["epoch"] + 1, "iteration": 0, "sample": 0} for c in cursors]

    def after_error(self, cursors: Sequence[Any]) -> list[Any]:
        return [{"epoch": c["epoch"], "iteration": c["iteration"] + 1, "sample": c["sample"] + self._batch_size} for c in cursors]

    def resume(self, saved: Sequence[Saved], same_shards: bool) -> list[Any]:
        first = saved[0].cursor
        state = first.get("state", {})
        if not same_shards and first["iteration"] == 0 and "source" not in state and not state.get("open"):  # nothing of an epoch was read
            return super().resume([saved[0]] * len(self._ops), True)
        return super().resume(saved, same_shards)

    def specs(self) -> tuple[Spec, ...]:
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
        """Each output of the first batch, and the layouts that came with the data."""
        raise NotImplementedError

    def _learn(self, batches: Sequence[np.ndarray | list[np.ndarray]], came_with: Sequence[str]):
        op = self._op
        specs, kinds = [], [kind_of(b) for b in batches]
        for k, kind in enumerate(kinds):
            if kind is None:
                raise ArgumentError(f"{NAME}: the first batch is an empty list, which does not tell the type; pass dtype and ndim")
            dtype, ndim = kind
            layout = op.layouts[k] or came_with[k]
            if layout and len(layout) != ndim:
                raise ArgumentError(f"{NAME}: layout {layout!r} describes {len(layout)} dimensions, the data have {ndim}")
            want, rank = op.dtypes[k], op.ndims[k]
            dims = op.shapes[k]
            if dims is None and rank in (None, ndim):
                dims = _channels(layout, shapes_of(batches[k]))
            specs.append(_spec(want if want is not None else dtype, rank if rank is not None else ndim, layout, dims))
        self._specs = tuple(specs)
        for k, kind in enumerate(kinds):
            self._check(k, kind)

    def _check(self, k: int, kind: tuple[np.dtype, int] | None):
        spec = self.specs()[k]
        if kind is not None and kind != (spec.dtype, spec.ndim):
            raise ArgumentError(
                f"{NAME}: output {k} has samples of {spec.ndim} dimensions and dtype {spec.dtype} (as given by dtype, ndim or "
                f"layout, or by the first batch), got {kind[1]} dimensions and dtype {kind[0]}"
            )

    def _check_extents(self, k: int, batch: np.ndarray | list[np.ndarray]):
        spec = self.specs()[k]
        known = [(axis, n) for axis in range(spec.ndim) if (n := spec.extent(axis)) is not None]
        for shape in shapes_of(batch) if known and len(batch) else ():
            if any(shape[axis] != n for axis, n in known):
                free = tuple(spec.extent(i) for i in range(spec.ndim))
                if self._op.shapes[k] is not None:
                    raise ArgumentError(f"{NAME}: the samples of output {k} must have the shape {free} (None: any extent), got {shape}")
                raise ArgumentError(
                    f"{NAME}: output {k} has a sample of shape {shape}, but the images of the first batch had "
                    f"{free[spec.layout.index('C')]} channels (layout {spec.layout!r}), for which programs are compiled; pass "
                    f"shape={(None,) * spec.ndim} if their number varies"
                )

    def _deliver(self, ctx: HostContext, cursors: Sequence[Any], parts: Sequence[Sequence[Any]]):
        """`parts`: per shard, the batch of each output."""
        B = self._batch_size = ctx.B
        counts = []
        for part in parts:
            lengths = {len(x) for x in part}
            if len(lengths) > 1:
                raise ArgumentError(f"{NAME}: the outputs of one batch have different numbers of samples: {sorted(lengths)}")
            counts.append(lengths.pop())
            if counts[-1] > B:
                raise ArgumentError(f"{NAME}: got a batch of {counts[-1]} samples, expected at most batch_size = {B}")
            for k, x in enumerate(part):
                self._check(k, kind_of(x))
                self._check_extents(k, x)
        specs = self.specs()
        outputs = tuple(packed(ctx, k, spec, [p[k] for p in parts]) for k, spec in enumerate(specs))
        place = np.arange(B)[None] + B * np.asarray(ctx.shard_ids)[:, None]
        start = np.array([[c["sample"] * ctx.num_shards] for c in cursors])
        epoch = np.repeat(np.array([c["epoch"] for c in cursors], np.int64), B)
        present = None if min(counts) == B else (np.arange(B)[None] < np.array(counts)[:, None]).reshape(-1)
        ids = SampleIds(epoch, (place + start).reshape(-1).astype(np.int64), [""] * ctx.N, present)
        return outputs, self.after_error(cursors), ids


def _spec(dtype: np.dtype, ndim: int, layout: str, dims: tuple[int | None, ...] | None) -> Spec:
    dims = (None,) * ndim if dims is None else dims
    known = tuple(n for n in dims if n is not None)
    return Spec(dtype, ndim, known, layout) if len(known) == ndim else Spec(dtype, ndim, None, layout, dims if known else None)


def _channels(layout: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int | None, ...] | None:
    """The extents of images that are known by the first of them: their channels. None: these differ, or it is no layout of images."""
    if not (shapes and layout.count("C") == 1 and "H" in layout and "W" in layout):
        return None
    axis = layout.index("C")
    found = {s[axis] for s in shapes}
    return tuple(shapes[0][axis] if i == axis and len(found) == 1 else None for i in range(len(layout)))


@dataclasses.dataclass
class _Taken:
    """What was taken from the sources for a batch.

    Attributes:
      cursors: before it.
      items: for each shard the sources' arguments and what they gave.
    """

    cursors: list[Any]
    items: list[list[tuple[Any, Any]]] = dataclasses.field(default_factory=list)


class _PulledSource(_Base):
    """Calls the user's sources: in the thread that takes the batches, or with `parallel` in one of ours."""

    def __init__(self, ops: Sequence[ExternalSource]):
        super().__init__(ops)
        self.in_caller = not self._op.parallel
        self._settings = UserSettings()
        self._workers: Workers | None = None
        self._pulls = [Pull(op.feeder, op.arguments, op.cycle) for op in ops]
        self._initial: list[Any] | None = None
        self._expected = self.initial()  # the cursors where the sources are
        self._taken: collections.deque[_Taken] = collections.deque()  # for batches that were not committed

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
        n = self._op.outputs
        if n is None:
            return (item,)
        is_array = hasattr(item, "__array__") and hasattr(item, "__getitem__") and getattr(item, "ndim", 0) > 0
        if not (isinstance(item, (tuple, list)) or is_array) or len(item) != n:
            got = type(item).__name__
            if is_array or isinstance(item, (tuple, list)):
                got = f"an array of shape {np.shape(item)}" if is_array else f"{len(item)} items"
            raise ArgumentError(f"{NAME}: with num_outputs={n} the source must return a tuple of {n} items, got {got}")
        return [item[i] for i in range(n)]  # the rows of an array, too

    def _first(self):
        try:
            items = self._outputs(self._pulls[0].peek(self._argument(self.initial()[0], 0)))
        except StopIteration:
            raise RuntimeError(f"{NAME}: there is no data: the source ended before its first batch") from None
        layouts = [layout_of(x) for x in items]
        return [as_batch(x, False) if self._op.batch else [as_array(x, False)] for x in items], layouts

    def first_shape(self, output: int) -> tuple[int, ...] | None:
        item = self._outputs(self._pulls[0].peek(self._argument(self.initial()[0], 0)))[output]
        sample = as_batch(item, False)[0] if self._op.batch else as_array(item, False)
        return tuple(sample.shape)

    def read(self, ctx: HostContext, cursors: Sequence[Any]):
        if self.in_caller:
            return self._read(ctx, cursors)
        with self._settings.contexts():
            return self._read(ctx, cursors)

    def _read(self, ctx: HostContext, cursors: Sequence[Any]):
        self._batch_size = ctx.B
        there = list(cursors) == self._expected or [p.seek(c.get("state")) for p, c in zip(self._pulls, cursors)]
        if there is not True and not all(there):
            _log.warning(
                "%s: its source takes no index and has no get_state and set_state, so it can't go on where the checkpoint was made: "
                "it starts over, or goes on where it is",
                NAME,
            )
        # Samples that are collected before they are packed must not change when the source reuses its memory.
        copied = not self._op.no_copy and (ctx.S > 1 or not self._op.batch)
        parts = []
        all_taken = _Taken(list(cursors))
        self._taken.append(all_taken)
        for pull, cursor in zip(self._pulls, cursors):
            rows, taken = [], []
            all_taken.items.append(taken)
            try:
                for argument, item in self._asked(pull, [self._argument(cursor, i) for i in range(1 if self._op.batch else ctx.B)]):
                    row = [(as_batch if self._op.batch else as_array)(x, copied) for x in self._outputs(item())]
                    rows.append(row)
                    taken.append((argument, row[0] if self._op.outputs is None else row))
            except StopIteration:
                all_taken.items.pop()  # the samples of an incomplete batch are dropped
                raise
            parts.append(rows[0] if self._op.batch else [check_alike(list(column)) for column in zip(*rows)])
        return self._deliver(ctx, cursors, parts)

    def _asked(self, pull: Pull, arguments: Sequence[Any]) -> list[tuple[Any, Callable[[], Any]]]:
        """Each argument, with a function that returns what the source gives for it. Samples by index are asked for by all workers."""
        calls: list[Callable[[], Any]] = [functools.partial(pull.take, a) for a in arguments]
        if not (self.in_caller or self._op.batch or self._op.arguments != 1 or self.workers == 1):
            if self._workers is None:
                self._workers = Workers(self.workers, self._settings)
            new = [i for i, a in enumerate(arguments) if not pull.keeps(a)]
            for i, call in zip(new, self._workers.map(self._op.feeder, [arguments[i] for i in new])):
                calls[i] = call
        return list(zip(arguments, calls))

    def close(self) -> None:
        if self._workers is not None:
            self._workers.close()
            self._workers = None

    def commit(self) -> None:
        self._taken.popleft()

    def undo(self) -> None:
        taken = self._taken.pop()
        for pull, items in zip(self._pulls, taken.items):
            pull.put_back(items)
        self._expected = taken.cursors

    def after_end(self, cursors: Sequence[Any]) -> list[Any]:
        """What was taken for a batch that another source could not complete is not lost; but "raise" starts every epoch anew."""
        states: list[Any] = []
        if self._op.cycle == "raise":
            self._taken.clear()
            for pull in self._pulls:
                pull.restart()
        elif self._taken:
            first = self._taken[0]
            states = [c.get("state") for c in first.cursors[: len(first.items)]]  # as if it had not been taken
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
                raise TypeError(f"{NAME}: get_state of the source must return bytes or something that JSON can hold: {source['unknown']}")
        return super().saved(cursors)


class _FedSource(_Base):
    """Hands out what `feed` was given, in order."""

    fed = True

    def __init__(self, ops: Sequence[ExternalSource]):
        super().__init__(ops)
        self._queues: list[collections.deque[Any]] = [collections.deque() for _ in ops]
        self._last: list[Any] = [None] * len(ops)
        self._layout = ""
        self._changed = threading.Condition()
        self._closed = False

    def feed(self, data: Any, layout: str | None = None, shard: int = 0) -> None:
        """Appends a batch for local shard `shard`: an array, or a list of arrays. It is copied, unless no_copy=True was given."""
        batch = as_batch(data, copy=not self._op.no_copy)
        layout = layout or layout_of(data)
        kind = kind_of(batch)
        if layout and kind is not None and len(layout) != kind[1]:
            raise ArgumentError(f"{NAME}: layout {layout!r} describes {len(layout)} dimensions, the data have {kind[1]}")
        with self._changed:
            known = self._op.layouts[0] or self._layout
            if layout and known and layout != known:
                raise ArgumentError(f"{NAME}: the layout is {known!r}, got data of layout {layout!r}")
            self._layout = known or layout
            self._queues[shard].append(batch)
            self._changed.notify_all()

    @property
    def available(self) -> int:
        """Batches that were fed and not read yet, for every shard."""
        return min(map(len, self._queues))

    def _next(self, shard: int, keep: bool) -> Any:
        queue = self._queues[shard]
        with self._changed:
            if self._op.blocking and not (self._op.repeat_last and self._last[shard] is not None):
                self._changed.wait_for(lambda: queue or self._closed)
            if not queue:
                if self._op.repeat_last and self._last[shard] is not None:
                    return self._last[shard]
                raise IndexError(f"{NAME}: no data: nothing was fed for this run; call feed_input before it")
            batch = queue[0] if keep else queue.popleft()
            if self._op.repeat_last and not keep:
                self._last[shard] = batch
            return batch

    def _first(self):
        return [self._next(0, keep=True)], [self._layout]

    def first_shape(self, output: int) -> tuple[int, ...] | None:
        return tuple(self._next(0, keep=True)[0].shape)

    def read(self, ctx: HostContext, cursors: Sequence[Any]):
        self.specs()  # of the batch that is taken now, when it is the first
        return self._deliver(ctx, cursors, [[self._next(s, keep=False)] for s in range(ctx.S)])

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def reopen(self) -> None:
        self._closed = False


# --- the public function ------------------------------------------------------------------------------------------


def _how_called(source: Any) -> int | None:
    """How many arguments a source is called with; None for an iterable or a generator function."""
    if inspect.isgeneratorfunction(unwrapped(source)):
        try:
            inspect.signature(source).bind()
        except TypeError:
            raise TypeError(f"{NAME}: a generator function used as source must need no argument, got {inspect.signature(source)}") from None
        return None
    if hasattr(source, "__iter__") or (hasattr(source, "__getitem__") and not callable(source)):
        return None
    if not callable(source):
        raise TypeError(f"{NAME}: source must be a callable, an iterable or a generator function, got {type(source).__name__}")
    parameters = list(inspect.signature(source).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) > 1 or any(p.kind == p.VAR_POSITIONAL for p in parameters):
        raise TypeError(
            f"{NAME}: source must take no or one positional argument (a batch or sample index), got {inspect.signature(source)}"
        )
    return len(positional)


def _per_output(name: str, x: Any, outputs: int) -> tuple[Any, ...]:
    many = x if isinstance(x, tuple) else (x,) * outputs
    if len(many) > outputs:
        raise ArgumentError(f"{NAME}: {name} has {len(many)} entries for {outputs} outputs")
    return many + (None,) * (outputs - len(many))


@operator_function(NAME)
def external_source(
    source: Annotated[Callable[..., Any] | Iterable[Any] | None, INPUT] = None,
    num_outputs: Annotated[int | None, Range(1)] = None,
    *,
    cycle: Literal["no", "quiet", "raise"] | bool | None = None,
    name: str | None = None,
    device: Literal["cpu", "gpu"] = "cpu",
    layout: str | Sequence[str | None] | None = None,
    dtype: DType | Sequence[DType | None] | None = None,
    ndim: Annotated[int | Sequence[int | None] | None, Range(0)] = None,
    shape: Annotated[Sequence[int | None] | Sequence[Sequence[int | None] | None] | None, Range(0)] = None,
    cuda_stream: Any = None,
    use_copy_kernel: bool | None = None,
    blocking: bool | None = None,
    batch: bool | None = True,
    repeat_last: bool = False,
    parallel: bool | None = None,
    no_copy: bool | None = None,
    prefetch_queue_depth: int | None = None,
    batch_info: bool | None = None,
    **hints: Unpack[Hints],
) -> DataNode | tuple[DataNode, ...]:
    """Data from Python: from a callable or an iterable, or fed with `Pipeline.feed_input`.

    Data are NumPy or JAX arrays, or anything with ``__array__`` or DLPack that lies in host memory. A batch is an array with a batch
    axis, or a list of arrays of one dtype and rank; it may have fewer samples than the pipeline's batch size. Type and rank stay
    those of the first batch, at which the pipeline looks when it is built, unless dtype and ndim are given. All sources of a pipeline
    must give as many samples for a batch.

    A source is called in the thread that calls ``next()`` or `run` (and `build`, for the first batch), under its JAX settings, as in
    DALI `prefetch_queue_depth` batches ahead: its objects may belong to that thread, and its time is time of the training loop. With
    ``parallel=True`` it is called in background threads of this process, under the JAX settings of the thread that made the
    iterator or built the pipeline, while the loop goes on: right where it waits, or works in libraries that release the GIL. Measured
    with batches of 32 images (4.8 MB) on a loop of 40 ms, 2 cores: ``next()`` takes 3 ms to fetch a batch from memory, 0.2 ms with
    ``parallel=True``; for samples that wait 1 ms each 46 ms, with ``parallel=True`` 7.5 ms, and with ``py_num_workers=4`` 0.2 ms.
    The first item tells the types, so it is asked for by the thread that builds the pipeline.
    Differs from DALI: no processes are started, and what a source returns is not copied between them.

    A checkpoint goes on with the right index where the source is a callable that takes one. A source with methods ``get_state`` and
    ``set_state`` (a callable, the object whose method it is, an iterable, or the iterators it gives) goes on where it was: its state,
    bytes or something that JSON can hold, is that of the last batch taken, whatever was made ahead. All others start over, with a
    warning.

    Args:
      source: what to ask for data; without it, they are fed. A callable takes no argument, or one: with ``batch=True`` the number
        of the batch in the epoch, with ``batch=False`` a `types.SampleInfo`; it ends the epoch by raising StopIteration, and is asked
        again for the next epoch. An iterable or a generator function gives one item after another.
      num_outputs: how many values the source returns at once, as a tuple, or an array of so many rows; the result is then a tuple of
        DataNodes, even for 1. Without a source: so many nodes, each to be fed on its own.
      cycle: for iterables: None, False, "no": they end once; True, "quiet": they start again by themselves; "raise": StopIteration
        ends each round.
      name: for `feed_input` and error messages.
      device: "cpu", or "gpu": what follows runs on the accelerator.
      layout: one letter per axis of a sample, for each output or for all.
      dtype: the expected type; the data are checked, not converted.
      ndim: the expected dimensions of a sample.
      shape: not in DALI: the expected extents of a sample, None for those that vary, e.g. ``(None, None, 3)``; for all outputs, or a
        list of one for each. What follows is compiled with the extents that are known. Without it, and where dtype and ndim are not both
        given, the number of channels of images (a layout with H, W and C) is that of the first batch if its samples agree;
        a later image with another number is an error that says to pass ``shape=(None, None, None)``.
      cuda_stream: no effect (XLA orders the copies), accepted for DALI's sake.
      use_copy_kernel: no effect, accepted for DALI's sake.
      blocking: fed data: wait for them, instead of raising IndexError when there are none. A source is always waited for.
      batch: True: the source makes whole batches; False: samples. None is True, with `parallel` False.
      repeat_last: fed data: use the last batch again when there is no new one.
      parallel: call the source in the background: a callable that makes samples (``batch=False``) of an index in as many threads as
        the pipeline's `py_num_workers` says, at the same time; any other source in one.
      no_copy: keep the data that are fed by reference until their batch is read, instead of copying them at once. They must
        not change meanwhile.
      prefetch_queue_depth: no effect (the pipeline's depth decides), accepted as a hint of DALI's.
      batch_info: pass a `types.BatchInfo` to a callable that makes batches, not the number alone.

    Returns:
      A DataNode, or a tuple of them.

    Raises:
      TypeError, ValueError: a source or an argument of the wrong kind.
      RuntimeError: data of another type or rank, or too many samples, when the batch is made.
      Exceptions of the source come out as they are.
    """
    modes = {None: "no", False: "no", "no": "no", True: "quiet", "quiet": "quiet", "raise": "raise"}
    if num_outputs is not None and source is None and name is not None:
        raise ArgumentError(f"{NAME}: name={name!r} with num_outputs and without a source: each output is fed on its own, by its node")
    if repeat_last and source is not None:
        raise ArgumentError(f"{NAME}: repeat_last is for data that are fed; it can't be used together with source")
    arguments = 0 if source is None else _how_called(source)
    if cycle is not None and arguments is not None:
        raise ArgumentError(f"{NAME}: cycle can only be used with an iterable source or a generator function")
    if modes[cycle] != "no" and inspect.isgenerator(source):
        raise TypeError(f"{NAME}: a generator can't start again; pass the generator function itself as source to use cycle={cycle!r}")
    if batch is None:
        batch = not parallel
    outputs = num_outputs or 1
    dtypes = _per_output("dtype", dtype, outputs)
    layouts = tuple(x or "" for x in _per_output("layout", layout, outputs))
    ndims = list(_per_output("ndim", ndim, outputs))
    for k, text in enumerate(layouts):
        if text and ndims[k] not in (None, len(text)):
            raise ArgumentError(f"{NAME}: layout {text!r} describes {len(text)} dimensions, but ndim is {ndims[k]}")
        ndims[k] = len(text) if text else ndims[k]
    each_has_one = isinstance(shape, tuple) and any(isinstance(x, tuple) for x in shape)
    shapes: tuple[Any, ...] = _per_output("shape", shape, outputs) if each_has_one else (shape,) * outputs
    for k, extents in enumerate(shapes):
        if extents is not None and ndims[k] not in (None, len(extents)):
            raise ArgumentError(f"{NAME}: shape {extents} has {len(extents)} dimensions, layout or ndim say {ndims[k]}")
        ndims[k] = ndims[k] if extents is None else len(extents)
    op = ExternalSource(
        feeder=source,
        arguments=arguments,
        outputs=num_outputs,
        shapes=shapes,
        cycle=modes[cycle],
        batch=bool(batch),
        batch_info=bool(batch_info),
        parallel=bool(parallel),
        dtypes=dtypes,
        ndims=tuple(ndims),
        layouts=layouts,
        no_copy=bool(no_copy),
        repeat_last=bool(repeat_last),
        blocking=bool(blocking),
    )
    if source is None and num_outputs is not None:
        each = zip(dtypes, ndims, shapes, layouts)
        ops = [dataclasses.replace(op, outputs=None, dtypes=(d,), ndims=(n,), shapes=(s,), layouts=(x,)) for d, n, s, x in each]
        return tuple(add(op, device=device) for op in ops)
    result = add(op, device=device, name=name)
    return (result,) if num_outputs == 1 and isinstance(result, DataNode) else result
