"""What the iterators of all frameworks share: last-batch policies, epochs, threads, state."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import logging
import typing
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, Self

import jax

from .._core.declaration import checked
from .._data.epoch import EpochCounter, EpochPlan
from .._pipeline import checkpoint
from .._pipeline.describe import value
from .._pipeline.lease import Lease, num_outputs
from .._pipeline.pipeline import Pipeline
from .._run.executor import Executor
from .._run.meter import Statistics
from .._run.prefetch import Prefetch, Turn, close_aside
from .._run.work import BadSample, Batch
from ..errors import TooFewError

_log = logging.getLogger(__name__)
_AUTO_RESET = {"no": False, "yes": True, "True": True}


class LastBatchPolicy(enum.Enum):
    """What an iterator does when the samples of an epoch don't fill its last batch.

    Attributes:
      FILL: the batch is filled, with the last sample again (padded) or with the first ones of the next epoch.
      DROP: an incomplete batch is left out.
      PARTIAL: the batch is shorter. Not for JAX iterators, as JAX needs static shapes.
    """

    FILL = 0
    DROP = 1
    PARTIAL = 2


@dataclasses.dataclass(frozen=True)
class IteratorOptions:
    """The arguments that the iterators of all frameworks have, which document them; None stands for a default.

    Raises:
      ValueError, TypeError: one is wrong, or two exclude each other.
    """

    output_map: Iterable[str]
    size: int = -1
    reader_name: str | None = None
    auto_reset: str | bool | None = False
    last_batch_padded: bool = False
    last_batch_policy: LastBatchPolicy = LastBatchPolicy.FILL
    prepare_first_batch: bool = True

    def __post_init__(self):
        self._set("output_map", self._names())
        self._check("size", "reader_name", "last_batch_padded", "prepare_first_batch")
        self._set("auto_reset", _parse_auto_reset(self.auto_reset))
        if not isinstance(self.last_batch_policy, LastBatchPolicy):
            raise ValueError(f"last_batch_policy must be a LastBatchPolicy, got {self.last_batch_policy!r}")
        if self.size == 0:
            raise ValueError("size must be positive, or -1: until a source ends")
        if self.size > 0 and self.reader_name is not None:
            raise ValueError(f"size={self.size} and reader_name={self.reader_name!r} exclude each other: the reader tells the size")
        if self.last_batch_padded and self.reader_name is not None:
            raise ValueError("last_batch_padded=True and reader_name exclude each other: the reader's pad_last_batch counts")

    def _names(self) -> list[str]:
        try:
            names = list(self.output_map)
        except TypeError:
            raise TypeError(f"output_map must be a list of names, got {self.output_map!r}") from None
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"output_map must be a list of names, got {name!r} in it")
        if len(set(names)) != len(names):
            raise ValueError(f"the names in output_map must be distinct, got {names}")
        return names

    def _check(self, *names: str):
        """Checks arguments by their annotations."""
        hints = typing.get_type_hints(type(self))
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        for name in names:
            x = getattr(self, name)
            self._set(name, defaults[name] if x is None else checked("DALIGenericIterator", name, hints[name], x))

    def _set(self, name: str, x: Any):
        object.__setattr__(self, name, x)

    @property
    def lasting(self) -> Self:
        """All that iterators that take turns over the same pipelines must have in common."""
        return dataclasses.replace(self, auto_reset=False, prepare_first_batch=True)

    @property
    def counted(self) -> bool:
        """Whether the samples of an epoch are counted; if not, it goes on until the data end."""
        return self.size > 0 or self.reader_name is not None

    def check_number(self, pipelines: int):
        """That they suit so many pipelines; called by what users' calls call."""
        if not self.counted and pipelines > 1:
            raise ValueError("with several pipelines pass reader_name (or size), so that all end their epochs together")
        if self.size > 0:
            warnings.warn(
                "size is given: pass reader_name instead where there is a reader, so that it tells the size and padding", stacklevel=4
            )


def list_of(pipelines: Any) -> list[Pipeline]:
    """One pipeline or several, as a list."""
    if isinstance(pipelines, Pipeline):
        return [pipelines]
    try:
        several: list[Any] = list(() if pipelines is None else pipelines)
    except TypeError:
        raise TypeError(f"pipelines must be a Pipeline or a list of them, got {type(pipelines).__name__}") from None
    if not several:
        raise TooFewError("at least one pipeline is needed, got none")
    for p in several:
        if not isinstance(p, Pipeline):
            raise TypeError(f"pipelines must be Pipeline objects, got {type(p).__name__}")
    return several


class BaseIterator:
    """Takes batches from the executors of one or more pipelines, epoch by epoch. Subclasses give them a framework's form.

    A subclass takes a `lease` of the pipelines, calls `_start`, and implements `__next__` with `_take`. Several threads may take
    batches: each gets others.
    """

    _pipes: list[Pipeline]
    _lease: Lease
    _turn: Turn
    output_map: list[str]

    def _start(self, lease: Lease, options: IteratorOptions, *, padded: bool = False):
        """Builds the executors and starts to make batches, or goes on where the iterator before stopped; closes the lease when that fails.

        With `padded`, the reader and the readers that go with it start each epoch at the start of a shard.
        """
        self._pipes = lease.pipelines
        self._lease = lease
        self._options = options
        self.output_map = list(options.output_map)
        self._given = 0
        self._may_restart = False
        self._turn = Turn("iterator")
        self._epochs = checkpoint.Epochs(options.last_batch_policy.name, options.size, options.reader_name, options.last_batch_padded)
        restored = None
        try:
            if not lease.runners:
                for e in lease.executors:
                    if options.prepare_first_batch or all(s.metas for s in e.sources.values()):
                        e.build()  # else it might call the user's source
                    if padded and options.reader_name is not None:
                        _pad_rounds(e, options.reader_name)
                lease.check_outputs()
                names, outputs = self.output_map, num_outputs(lease.pipelines[0])
                if len(names) > outputs:
                    raise TooFewError(f"output_map has {len(names)} names, {names}, but the pipeline has {outputs} output(s)")
                self._plan = _epoch_plan(lease.pipelines, options) if options.counted else None
                self._counter = EpochCounter(self._plan) if self._plan is not None else None
                starts = lease.states
                restored = lease.restored
                if restored is not None:
                    starts = self._go_to(*restored)
                self._runners[:] = self._made(starts)
            else:
                self._plan = self._counter.plan if self._counter is not None else None
                if lease.at_end:
                    self._reset()
                if self._plan is not None and options.last_batch_policy is LastBatchPolicy.FILL:
                    self._counter = EpochCounter(self._plan)  # a whole epoch from here on, as in DALI
            lease.checkpoint_with(self.checkpoints)
        except BaseException:
            lease.close()
            raise
        self._finalizer = lease.lend(self)
        if options.prepare_first_batch:
            try:
                over = self._counter is not None and self._counter.is_over
                if over and restored is None:
                    raise StopIteration
                if restored is None or all(r.wait() for r in self._runners):  # a restored one may be at an epoch's end
                    for r in self._runners:
                        r.peek()
            except StopIteration:
                self.close()
                raise RuntimeError("there are no data in the pipeline: its source ended before the first full batch") from None
            except BaseException:
                self.close()
                raise

    @property
    def _executors(self) -> list[Executor]:
        return self._lease.executors

    @property
    def _runners(self) -> list[Prefetch]:
        return self._lease.runners

    @property
    def _counter(self) -> EpochCounter | None:
        return self._lease.counter

    @_counter.setter
    def _counter(self, counter: EpochCounter | None):
        self._lease.counter = counter

    def _check_turn(self):
        user = self._lease.user
        if user is not None and user() is not self:
            raise RuntimeError("another iterator over the same pipeline has taken the place of this one")

    def _made(self, starts: Sequence[dict[str, Any]]) -> list[Prefetch]:
        # As in DALI, a source is asked for the batch that takes the place of the one just taken before the user gets that.
        depth = self._lease.depth
        return [Prefetch(e, s, depth=depth, ahead=depth + 1) for e, s in zip(self._executors, starts)]

    def __repr__(self) -> str:
        if not self._finalizer.alive:
            return f"{type(self).__name__}: closed"
        epoch = self._counter.epoch if self._counter is not None else self._runners[0].state["epoch"]
        of = f" of {len(self)}" if self._counter is not None else ""
        pipelines = f"{len(self._pipes)} pipelines" if len(self._pipes) > 1 else "1 pipeline"
        lines = [f"{type(self).__name__}: epoch {epoch}, {self._given} batches{of} taken, {self.batch_size} samples of each of {pipelines}"]
        executor = self._executors[0]
        for i, (name, x, spec) in enumerate(zip(self.output_map, executor.graph.outputs, executor.plan.output_specs)):
            lines.append(f"  {name}: {value(x, spec, self._batch_shape)}{self._placed(i)}")
        return "\n".join(lines)

    @property
    def _batch_shape(self) -> tuple[int, ...]:
        """The leading axes of a batch."""
        return (self.batch_size,)

    def _placed(self, i: int) -> str:
        """What `repr` adds to output `i`."""
        return ""

    # --- iteration ----------------------------------------------------------------------------------------------

    def __iter__(self):
        if self._given:
            self.reset()
        return self

    def __next__(self) -> Any:
        raise NotImplementedError(type(self).__name__)

    def next(self) -> Any:
        """The next batch. Raises StopIteration at the end of an epoch."""
        return next(self)

    def _take(self) -> tuple[list[Batch], tuple[int, ...] | None]:
        """The next batch of each executor, and how many of its first samples belong to this epoch, for each pipeline (None: all)."""
        with self._turn:
            self._check_turn()
            if self._counter is not None and self._counter.is_over:
                self._end()
            self._await()
            batches: list[Batch] = []
            error: BaseException | None = None
            for r in self._runners:  # all of them, also when one fails: they must stay in step
                try:
                    batches.append(r.get())
                except BaseException as e:
                    error = error or e
            valid = self._count()  # a failure consumes its batch
            if error is not None:
                try:
                    raise error
                finally:
                    del error  # it refers to this frame
            self._lease.check_outputs()
            return batches, valid

    def _look(self) -> tuple[list[Batch], tuple[int, ...] | None]:
        """What `_take` gives or raises next, without taking it."""
        with self._turn:
            if self._counter is not None and self._counter.is_over:
                self._end()
            self._await()
            return [r.peek() for r in self._runners], self._counter.valid() if self._counter is not None else None

    def _await(self):
        """Waits until the next batch, or its error, is there for every pipeline. Nothing is taken, so an interrupt does no harm."""
        for r in self._runners:
            r.ask()  # of every source first, so that their pipelines work at the same time
        while not all(r.wait() for r in self._runners):
            if not self._may_restart or self._given:
                self._end()
            # Where an epoch's end is counted, the data may end with it too, which shows only now.
            self._may_restart = False
            for r in self._runners:
                r.restart()

    def _check_full(self, batches: Sequence[Batch], instead: str = ""):
        """Where the samples of an epoch are counted, batches must be full. `instead`: what the user may do."""
        for b in batches if self._counter is not None else ():
            if b.ids.present is not None and not b.ids.present.all():
                raise ValueError(
                    f"a source gave {int(b.ids.present.sum())} of {len(b.ids.present)} samples; where size or reader_name is given, "
                    f"batches must be full{instead}"
                )

    def _count(self) -> tuple[int, ...] | None:
        self._given += 1
        return self._counter.advance() if self._counter is not None else None

    def _end(self) -> NoReturn:
        if self._options.auto_reset:
            self.reset()
        raise StopIteration

    def reset(self):
        """Begins the next epoch. Only possible at the end of one: a request before is ignored, with a warning in the log."""
        with self._turn:
            self._check_turn()
            self._reset()

    def _reset(self):
        if self._counter is not None:
            if self._counter.can_reset:
                for _ in range(self._counter.reset()):
                    self._drop()
            elif any(r.at_end for r in self._runners):  # the data ended before the epoch
                self._counter = EpochCounter(self._counter.plan)
            else:
                _log.warning("reset() of %s before the end of the epoch is ignored", type(self).__name__)
                return
            for r in self._runners:
                r.restart()
            self._may_restart = True
        elif all(r.at_end for r in self._runners):
            for r in self._runners:
                r.restart()
        else:
            _log.warning("reset() of %s before the end of the data is ignored", type(self).__name__)
            return
        self._given = 0

    def _drop(self):
        """Takes a batch that nobody gets; what was wrong with it concerns nobody either."""
        for r in self._runners:
            with contextlib.suppress(Exception):
                r.get()

    def __len__(self) -> int:
        """Batches in an epoch; 0 when only the data's end tells."""
        return self._counter.length if self._counter is not None else 0

    @property
    def size(self) -> int:
        """Samples in an epoch, per shard where a reader tells; -1 when only the data's end tells."""
        return self._counter.size if self._counter is not None else -1

    _size = size  # DALI's scripts read this

    @property
    def batch_size(self) -> int:
        """Samples per batch of one shard."""
        return self._executors[0].B

    # --- state --------------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Where the iterator stands after the batch that was taken last, however many were made ahead; for `set_state`.

        Small and JSON-able. It tells where the shards of other processes stand, too.

        Raises:
          TypeError: a source of the user's returned a state that JSON can't hold.
        """
        with self._turn:
            records = [
                record
                for executor, runner, places in zip(self._executors, self._runners, checkpoint.shard_places(self._executors))
                for record in checkpoint.records_of(executor, runner.state, places)
            ]
            state = {"version": checkpoint.STATE_VERSION, "iterator": self._position(), "pipelines": records}
        return json.loads(json.dumps(state))  # a copy

    def _position(self) -> dict[str, Any]:
        return {
            **dataclasses.asdict(self._epochs),
            "given": self._given,
            "may_restart": self._may_restart,
            "counter": self._counter.get_state() if self._counter is not None else None,
        }

    def set_state(self, state: Mapping[str, Any]):
        """Goes on from where `get_state` was called, with its seed: exactly as the iterator it is of did, on another batch size from
        the same sample on, and with another number of shards so that each sample is still read once in the epoch.

        Data that were fed (`Pipeline.feed_input`), and of which batches were made ahead, must be fed again.

        Raises:
          RuntimeError: the state is of another pipeline or iterator (the message says what differs), or what is left of its epoch
            can't be shared out among this number of shards; the iterator stays where it is.
        """
        if not self._finalizer.alive:
            raise RuntimeError("the iterator is closed")
        records, position = checkpoint.parts_of(state)
        with self._turn:
            starts = self._go_to(records, position, self._stop)
            for source in (s for e in self._executors for s in e.sources.values()):
                source.reopen()  # what closed the runners closed it, so that they need not wait for data
            self._runners[:] = self._made(starts)  # in place: what closes the iterator holds this list

    def _stop(self):
        """Ends the threads, which others are to take over from."""
        for r in self._runners:
            r.close()
        for r in self._runners:
            r.join()

    def _go_to(
        self, records: list[dict[str, Any]], position: dict[str, Any] | None, stop: Callable[[], Any] = lambda: None
    ) -> list[dict[str, Any]]:
        """Takes everything but the threads to a state; returns the executors'. Calls `stop` when it is sure that this works."""
        starts, counter = checkpoint.resume(self._executors, records, position, self._epochs, self._plan)
        stop()
        self._counter = counter
        self._given = position["given"] if position is not None else 0
        self._may_restart = position["may_restart"] if position is not None else False
        self._lease.reseed(starts)
        return starts

    def checkpoints(self) -> list[bytes]:
        """`get_state` as bytes, one for each pipeline: for ``checkpoints=`` of a data_iterator function, or a `Pipeline`'s ``checkpoint=``.

        Raises:
          ValueError: the pipelines were made without ``enable_checkpointing=True``.
        """
        if not self._lease.enable_checkpointing:
            raise ValueError("checkpoints() needs pipelines with enable_checkpointing=True")
        state = self.get_state()
        return [checkpoint.to_bytes(record, state["iterator"]) for record in state["pipelines"]]

    # --- life ---------------------------------------------------------------------------------------------------

    def close(self):
        """Stops the threads; no batch can be taken afterwards, nor another iterator made over the pipelines.

        When the iterator is garbage its threads end, too, and everything else does when the pipelines are.
        """
        if self._finalizer.detach() is not None:
            close_aside(self._lease.close)

    def __enter__(self):
        return self

    def __exit__(self, *exc: Any):
        self.close()

    # --- beyond DALI --------------------------------------------------------------------------------------------

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """The pipelines, one per local shard."""
        return tuple(self._pipes)

    def lower(self, segment: int = 0) -> jax.stages.Lowered:
        """JAX's own `Lowered` of the program that ran last; see `Pipeline.lower`."""
        return self._executors[0].lower(segment)

    def statistics(self) -> Statistics:
        """Seconds, calls, samples and bytes of each stage and step so far, see `Pipeline.statistics`. Beyond DALI."""
        return Statistics.merged(e.statistics() for e in self._executors)

    def bad_samples(self) -> list[BadSample]:
        """The samples that operators with ``on_error="replace"`` replaced so far: file, reason, count."""
        return [b for e in self._executors for b in e.bad_samples()]


def _pad_rounds(executor: Executor, reader_name: str):
    """Has a reader, and those that read lists of the same size beside it, fill each round up to full batches."""
    sources = {n.name: executor.sources[n.id] for n in executor.graph.nodes if n.id in executor.sources}
    metas = sources[reader_name].metas if reader_name in sources else ()
    for source in sources.values():
        if source.metas and source.metas == metas:
            source.pad_rounds()


def _parse_auto_reset(x: Any) -> bool:
    if x is None or isinstance(x, bool):
        return bool(x)
    if isinstance(x, str) and x in _AUTO_RESET:
        return _AUTO_RESET[x]
    raise ValueError(f'auto_reset must be True, "yes", "True", False, None or "no", got {x!r}')


def _epoch_plan(pipelines: Sequence[Pipeline], options: IteratorOptions) -> EpochPlan:
    batch_size, policy = pipelines[0].batch_size, options.last_batch_policy.name
    if options.reader_name is None:
        return EpochPlan.of_size(
            size=options.size, num_pipelines=len(pipelines), batch_size=batch_size, padded=options.last_batch_padded, policy=policy
        )
    metas = [p.reader_meta(options.reader_name) for p in pipelines]
    return EpochPlan.of_readers(metas=metas, batch_size=batch_size, policy=policy)
