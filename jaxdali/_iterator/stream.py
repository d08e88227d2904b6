"""`BatchStream`: divides the batches of pipelines into epochs, and keeps the position in them."""

from __future__ import annotations

import dataclasses
import json
import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .._batch.batch import FinishedBatch
from .._batch.executor import Executor
from .._core.building import refuse_tracing, warn
from .._core.errors import TooFewError
from .._core.graph import Node
from .._data.epoch import EpochCounter, EpochPlan
from .._data.source import SampleIds
from .._data.walk import shard_bounds
from .._pipeline import checkpoint
from .._pipeline.lease import Lease, num_outputs
from .._program.sharding import Shards
from .._runner.choose import runner_of
from .._runner.fork_guard import ExclusiveUse
from .._runner.runner import Runner
from .._runner.shutdown import close_aside, refuse
from .iterator_options import IteratorOptions, LastBatchPolicy
from .lockstep import Lockstep

_log = logging.getLogger(__name__)


class BatchStream:
    """The batches that the executors of a lease make in lockstep, divided into epochs. Several threads may take
    batches; each gets different ones.

    Attributes:
      lease: the lease of the pipelines. Its runners and their batches pass on to the stream that replaces this one.
      num_taken: batches taken in this epoch.
      num_resumed: how many of them were taken before the state that was restored; 0: none.
      turn: a lock that is held while batches are taken or peeked at.

    Args:
      options: the options of the iterator.
      user: name of the iterator, for messages.
      instead: how the iterator can give samples that fill no batch, for messages.
      shards: those of the pipelines; None: one for each of them.
      over_processes: whether other processes have pipelines of the same epochs.
    """

    def __init__(
        self,
        lease: Lease,
        options: IteratorOptions,
        user: str,
        instead: str,
        shards: Shards | None = None,
        over_processes: bool = False,
    ):
        self.lease = lease
        self._shards = shards
        self._over_processes = over_processes
        self.num_taken = self.num_resumed = 0
        self.turn = ExclusiveUse("iterator")
        self._runners = Lockstep(lease.runners, lease.executors)  # see Note [Lockstep]
        self._options = options
        self._user = user
        # Whether the runners may still be at the end of the last epoch's data: if samples are counted, an epoch may be
        # over before that end is met.
        self._may_restart = False
        # Whether this epoch goes on within a source's data, of which the last one took a part: if samples are counted.
        self._goes_on = False
        # A loop that takes this batch has taken all samples of the only reader, and goes on without end: it warns. The
        # number counts from 1 in the epoch; 0: no warning.
        self._endless_at = 0
        self._instead = instead
        self._epochs = checkpoint.Epochs(
            options.last_batch_policy.name, options.size, options.reader_name, options.last_batch_padded
        )
        self._plan: EpochPlan | None = None  # the length of epochs; None: only the end of the data shows it
        self._finalizer: weakref.finalize | None = None  # parks the runners if this stream is collected

    # --- life ---------------------------------------------------------------------------------------------------

    def begin(self, *, padded: bool = False):
        """Builds the executors and starts to make batches, or continues where the previous stream stopped. Closes the
        lease if that fails.

        Args:
          padded: whether the last batch of an epoch may have fewer samples. Then the reader, and readers of lists with
            the same size, start each epoch at the start of a shard.
        """
        options, lease = self._options, self.lease
        self._runners.pads_ended = padded and options.size > 0
        restored = None
        try:
            if lease.runners:
                self._take_over()
            else:
                for e in lease.executors:
                    if options.prepare_first_batch or all(s.metas for s in e.sources.values()):
                        e.build()  # otherwise it might call the user's source
                    if padded and options.reader_name is not None:
                        _pad_rounds(e, options.reader_name)
                    for source in e.sources.values() if padded else ():
                        source.give_rest()  # its last batch may be short
                lease.check_outputs()
                names, outputs = list(options.output_map), num_outputs(lease.pipelines[0])
                if len(names) > outputs:
                    raise TooFewError(
                        f"output_map has {len(names)} names, {names}, but the pipeline has {outputs} output(s)"
                    )
                self._plan = self._epoch_plan() if options.has_epoch_size else None
                self._counter = EpochCounter(self._plan) if self._plan is not None else None
                states = lease.states
                restored = lease.restored
                if restored is not None:
                    states = self._go_to(*restored)
                self.lease.runners[:] = self._new_runners(states)
        except BaseException:
            lease.close()
            raise
        self._finalizer = lease.lend(self)
        if options.prepare_first_batch:
            self._prepare(may_be_at_end=restored is not None)

    def _take_over(self):
        """Continues with the runners of the previous stream, in the next epoch if that stream had finished its epoch."""
        self._plan = self._counter.plan if self._counter is not None else None
        if self.lease.at_end:
            self._reset(takes_over=True)
        if self._plan is not None and self._options.last_batch_policy is LastBatchPolicy.FILL:
            self._counter = EpochCounter(self._plan)  # a whole epoch from here on, as in DALI

    def _epoch_plan(self) -> EpochPlan:
        """The length of an epoch, from the metadata of the reader, or from `size`."""
        pipelines, options, shards = self.lease.pipelines, self._options, self._shards
        batch_size, policy = pipelines[0].batch_size, options.last_batch_policy.name
        if options.reader_name is None:
            return EpochPlan.of_size(
                size=options.size,
                num_pipelines=len(pipelines) if shards is None else shards.num,
                batch_size=batch_size,
                padded=options.last_batch_padded,
                policy=policy,
                ids=None if shards is None else shards.ids,
                equal_parts=self._over_processes and policy == "PARTIAL",
            )
        metas = [p.reader_meta(options.reader_name) for p in pipelines]
        return EpochPlan.of_readers(metas=metas, batch_size=batch_size, policy=policy)

    def _prepare(self, may_be_at_end: bool):
        """Makes the first batch. A restored stream may be at the end of an epoch."""
        try:
            if not may_be_at_end and self._counter is not None and self._counter.is_over:
                raise StopIteration
            # `peek` raises the error of the first batch, or StopIteration at the end of the data, where only a restored
            # stream may be.
            if self._runners.wait() or not may_be_at_end:
                self._runners.peek()
        except StopIteration:
            self.close()
            raise RuntimeError(f"there are no data in the pipeline: {self._why_empty}") from None
        except BaseException:
            self.close()
            raise

    @property
    def _why_empty(self) -> str:
        """The reason why there is no first batch."""
        counter = self._counter
        if counter is not None and counter.is_over:  # with DROP
            part = f"{'an epoch' if len(counter.plan.sizes) == 1 else 'a shard'} of {counter.size}"
            return f"{part} does not fill a batch of {counter.plan.unit} samples, and LastBatchPolicy.DROP drops it; FILL repeats samples"
        num_samples = max((s.dropped for e in self.executors for s in e.sources.values()), default=0)
        return f"its source ended after {num_samples} of the {self.batch_size} samples of the first batch"

    def _new_runners(self, states: Sequence[dict[str, Any]]) -> list[Runner]:
        """Returns a runner for each executor, which begins at its state."""
        # As in DALI, a source is called for the batch that replaces the one just taken before the user gets that one:
        # so one more batch is requested ahead than the queue holds.
        depth = self.lease.depth
        return [runner_of(e, s, depth, ahead=depth + 1) for e, s in zip(self.executors, states)]

    @property
    def closed(self) -> bool:
        """Whether it was closed, or replaced by another stream."""
        return self._finalizer is None or not self._finalizer.alive

    def close(self):
        """Stops the threads permanently."""
        if self._finalizer is not None and self._finalizer.detach() is not None:
            close_aside(self.lease.close)

    def _check_use(self):
        """Raises RuntimeError if this stream may not be used any more."""
        user = self.lease.user
        if user is not None and user() is not self:
            raise RuntimeError("another iterator over the same pipeline has replaced this one")
        if self.closed:
            refuse("iterator")

    @property
    def executors(self) -> list[Executor]:
        """One executor for all pipelines, or one for each."""
        return self.lease.executors

    @property
    def _counter(self) -> EpochCounter | None:
        return self.lease.counter

    @_counter.setter
    def _counter(self, counter: EpochCounter | None):
        self.lease.counter = counter

    @property
    def epoch(self) -> int:
        """Number of the epoch."""
        return self._counter.epoch if self._counter is not None else self.lease.runners[0].state["epoch"]

    @property
    def length(self) -> int | None:
        """Number of batches in an epoch; None if only the end of the data shows it."""
        return self._counter.length if self._counter is not None else None

    @property
    def size(self) -> int | None:
        """Number of samples in an epoch (per shard if a reader determines it); None if only the end of the data shows
        it.
        """
        return self._counter.size if self._counter is not None else None

    # --- batches ------------------------------------------------------------------------------------------------

    def take(self) -> tuple[list[FinishedBatch], tuple[int, ...] | None]:
        """Returns the next batch of each executor, and for each pipeline the number of its first samples that belong to
        this epoch (None: all samples belong to it).
        """
        refuse_tracing(f"next() of {self._user}")
        with self.turn:
            self._check_use()
            self._wait_for_batch()
            num_missing = 0
            try:
                batches = self._runners.get()
                num_missing = self._num_missing(batches)
            finally:  # a failure consumes its batch
                valid = self._count(num_missing)
            self.lease.check_outputs()
            return batches, valid

    def look(self) -> tuple[list[FinishedBatch], tuple[int, ...] | None]:
        """Returns or raises the same as the next `take`, without taking the batch."""
        refuse_tracing(f"peek() of {self._user}")
        with self.turn:
            self._wait_for_batch()
            return self._runners.peek(), self._counter.valid() if self._counter is not None else None

    def peek(self) -> list[FinishedBatch]:
        """The next batch of each executor, even if it belongs to the next epoch."""
        with self.turn:
            return self._runners.peek()

    def _wait_for_batch(self):
        """Waits for the next batch. Raises StopIteration at the end of an epoch."""
        is_over = self._counter is not None and self._counter.is_over
        if is_over or not self._has_next():
            for e in self.executors:
                e.warn_at_end(self.epoch, empty=not self.num_taken, instead=self._instead)
            if self._goes_on and not is_over:
                self._goes_on = False  # one warning in each such epoch
                warn(
                    f"{self._user}: this epoch has {self.num_taken} of {self.length} batches: size={self._options.size} is less than a "
                    "source has, so it began with the rest of the source's data, and ended with these; pass the number of "
                    "samples that the source has"
                )
            raise StopIteration

    def start(self):
        """Starts the threads that make batches ahead, if they don't run."""
        with self.turn:
            self._check_use()
            self._runners.begin_batches()

    def _has_next(self) -> bool:
        """Waits for the next batch. Returns False if the data have ended."""
        self._runners.begin_batches()
        # An epoch whose samples are counted may have ended before the runners met the end of their data. Then that end
        # comes before the first batch of the next epoch, and is passed over.
        # With `pads_ended`, `wait` is True as long as a runner has data, so the end of each is looked at, too.
        while not self._runners.wait() or (self._may_restart and not self.num_taken and any(self._runners.at_end)):
            if not self._may_restart or self.num_taken:
                return False
            self._may_restart = self._goes_on = False
            self._runners.restart()
        return True

    def check_full(self, batches: Sequence[FinishedBatch], instead: str = ""):
        """Checks that batches are full if the samples of an epoch are counted. `instead`: advice for the message."""
        for b in batches if self._counter is not None else ():
            if b.ids.present is not None and not b.ids.present.all():
                counts = f"{int(b.ids.present.sum())} of {len(b.ids.present)} samples"
                cause = next((f"; not read: {b.ids.paths[i]}: {reason}" for i, reason in b.ids.unread.items()), "")
                raise ValueError(
                    f"a source gave {counts}; where size or reader_name is given, batches must be full{instead}{cause}"
                )

    @property
    def counts_samples(self) -> bool:
        """Whether an epoch has exactly `size` samples, regardless of how many each batch has. Processes don't know how
        many samples others have, so they count places.
        """
        return self._runners.pads_ended and not self._over_processes

    def rows(self, ids: Sequence[SampleIds], valid: tuple[int, ...] | None) -> np.ndarray:
        """Returns ``bool[pipelines, B]``, whether each sample belongs to the epoch of its batch, and is present.

        Args:
          ids: the ids of the batches.
          valid: for each pipeline, the number of its first samples that belong to the epoch; None: all belong to it.
        """
        B = self.batch_size
        rows = np.arange(B) < (
            np.full((len(self.lease.pipelines), 1), B) if valid is None else np.array(valid)[:, None]
        )
        # If exactly `size` samples are counted, the first ones belong to the epoch, whichever pipelines they come from.
        if ids and self.counts_samples and valid is not None:
            is_supplied = np.concatenate([supplied_samples(i) for i in ids])
            rows = (is_supplied & (np.cumsum(is_supplied) <= sum(valid))).reshape(-1, B)
        if any(i.present is not None for i in ids):
            rows &= np.concatenate(
                [np.ones(len(i.epoch), bool) if i.present is None else i.present for i in ids]
            ).reshape(-1, B)
        return rows

    @property
    def enable_checkpointing(self) -> bool:
        """Whether the pipelines allow checkpoints."""
        return self.lease.enable_checkpointing

    @property
    def batch_size(self) -> int:
        """Samples per batch of one shard."""
        return self.executors[0].B

    def _num_missing(self, batches: Sequence[FinishedBatch]) -> int:
        """Number of empty places in batches after the data of some shards have ended, if samples are counted by `size`."""
        return sum(int((~supplied_samples(b.ids)).sum()) for b in batches) if self.counts_samples else 0

    def _count(self, num_missing: int) -> tuple[int, ...] | None:
        """Counts a batch that is taken, with its empty places. Returns for each pipeline the number of the batch's first
        samples that belong to this epoch; None: all belong to it.
        """
        self.num_taken += 1
        if self.num_taken == self._endless_at:
            self._warn_endless()
        return self._counter.advance(num_missing) if self._counter is not None else None

    # --- loops --------------------------------------------------------------------------------------------------

    def begin_loop(self):
        """Begins a `for` loop. If `needs_reset`, the caller then resets the stream."""
        with self.turn:
            self._check_use()
            if not self._options.repeat:
                batches_of_reader = self._batches_of_reader()
                self._endless_at = max(batches_of_reader, self.num_taken) + 1 if batches_of_reader else 0

    @property
    def needs_reset(self) -> bool:
        """Whether a `for` loop that begins here resets the stream, as in DALI: if batches of the epoch were taken.

        A restored epoch that is not over goes on. With `repeat` there are no ends of epochs for loops.
        """
        if self._options.repeat:
            return False
        return self.num_taken > self.num_resumed or (self.num_taken > 0 and self._is_over)

    def _only_reader(self) -> tuple[Node, Mapping[str, int]] | None:
        """The pipeline's reader and its metadata, if it has exactly one reader; otherwise None."""
        executor = self.executors[0]
        readers = [
            (n, s.metas[0]) for n in executor.graph.nodes if (s := executor.sources.get(n.id)) is not None and s.metas
        ]
        return readers[0] if len(readers) == 1 else None

    def _batches_of_reader(self) -> int:
        """Number of batches that contain all samples of the only reader, if nothing determines the length of an epoch;
        otherwise 0.
        """
        reader = self._only_reader() if self._counter is None else None
        if reader is None:
            return 0
        _, meta = reader
        return -(-_num_samples(meta) // self.executors[0].B)

    def _warn_endless(self):
        """Warns that the loop has taken all samples of the only reader and goes on. `_endless_at` is set only if there is
        such a reader.
        """
        reader = self._only_reader()
        assert reader is not None
        node, meta = reader
        warn(
            f"this loop has taken all {_num_samples(meta)} samples of {node.op.name} (created at {node.where}) and continues without end, "
            "because nothing determines the length of an epoch. To end it with the data, pass "
            f'reader_name="{node.name}" to the iterator (or repeat=True if it should continue)'
        )

    @property
    def _is_over(self) -> bool:
        """Whether `reset` begins the next epoch."""
        at_end = self._runners.at_end
        return all(at_end) if self._counter is None else self._counter.is_over or any(at_end)

    def reset(self, *, in_loop: bool = False):
        """Begins the next epoch. A call before the end of an epoch is ignored, with a warning in the log.

        Args:
          in_loop: whether a `for` loop begins, which the warning is then about.
        """
        with self.turn:
            self._check_use()
            self._reset(in_loop=in_loop)

    def _reset(self, *, in_loop: bool = False, takes_over: bool = False):
        """As `reset`. `takes_over`: whether another iterator takes over the pipelines, which its user has reset."""
        if self._counter is not None:  # the samples of an epoch are counted
            is_source_at_end = any(self._runners.at_end)
            if self._counter.is_over:
                for _ in range(self._counter.reset()):  # batches that belong to no epoch
                    self._runners.drop()
            elif is_source_at_end:  # the data ended before the epoch
                epoch = self._counter.epoch
                self._counter = EpochCounter(self._counter.plan)
                self._counter.begin(epoch + 1)
            else:
                self._log_ignored(in_loop)
                return
            self._may_restart, self._goes_on = True, not is_source_at_end
        elif not all(self._runners.at_end):
            self._log_ignored(in_loop)
            return
        if not takes_over:
            self._reset_pipelines()
        self._runners.restart()
        self.num_taken = self.num_resumed = 0

    def _reset_pipelines(self):
        """Calls `reset` of the pipelines, as DALI's iterators do, because a subclass may override it."""
        released = self.lease.released
        for p in self.lease.pipelines:
            p.reset()
        self.lease.released = released  # only a call of the user allows another iterator

    def _log_ignored(self, in_loop: bool):
        """Logs that an epoch continues although a new one was requested, unless it has just begun."""
        if not self.num_taken:
            return
        progress = f"{self.num_taken} of {self.length}" if self.length is not None else str(self.num_taken)
        event = (
            "this loop continues" if in_loop else "reset() before the end of the epoch is ignored; the epoch continues"
        )
        way = ""
        if all(s.metas for e in self.executors for s in e.sources.values()):  # other sources may not go back
            has_reader = self._options.reader_name is not None
            state = "get_state(), restart_epoch=True" if has_reader else "the get_state() of before its first batch"
            way = f"; set_state({state}) begins it anew"
        _log.warning(
            "%s: %s in the middle of epoch %d (%s batches were taken)%s",
            *(self._user, event, self.epoch, progress, way),
        )

    # --- state --------------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """The JSON-able state after the batch that was taken last."""
        with self.turn:
            records = [
                record
                for executor, runner, places in zip(self.executors, self.lease.runners, self._places)
                for record in checkpoint.records_of(executor, runner.state, places)
            ]
            position, records = json.loads(json.dumps((self._position(), records)))  # a copy of plain types
        signed = checkpoint.signed
        return {
            "version": checkpoint.STATE_VERSION,
            "iterator": signed(position),
            "pipelines": [signed(r) for r in records],
        }

    def _position(self) -> dict[str, Any]:
        """The position in the epoch, for a state. `check_iterator` knows its form; "given" is `num_taken`."""
        return {
            **dataclasses.asdict(self._epochs),
            "given": self.num_taken,
            "may_restart": self._may_restart,
            "counter": self._counter.get_state() if self._counter is not None else None,
        }

    @property
    def _places(self) -> checkpoint.Places:
        return checkpoint.shard_places(self.executors, self._shards)

    @property
    def state_warning(self) -> str:
        """A warning that states of this stream can't be resumed with other shards, with advice; "" if they can."""
        num, num_local = (0, 0) if self._shards is None else (self._shards.num, len(self._shards.ids))
        if num > num_local and any(s.has_own_states for e in self.executors for s in e.sources.values()):
            return (
                f"the state has the states of this process's sources, those of {num_local} of {num} shards: save a state in each process, "
                "and resume each from its own"
            )
        if self._plan is None or not self._plan.moves_away:
            return ""
        return (
            f"with last_batch_policy={self._plan.policy} and without padding, a state that is taken after the first epoch can't go on with "
            f"another number of shards than {len(self._plan.sizes)}: pass pad_last_batch=True to the reader {self._options.reader_name!r}, "
            "or resume by set_state(state, restart_epoch=True), which begins the epoch anew"
        )

    def set_state(self, state: Mapping[str, Any] | Sequence[bytes], *, restart_epoch: bool = False):
        """Continues from the state of a `get_state` or `checkpoints`, also of a stream with other shards or another
        batch size.
        """
        if self.closed:
            refuse("iterator")
        records, position = checkpoint.records_and_position(state)
        with self.turn:
            states = self._go_to(records, position, self._runners.stop, restart_epoch=restart_epoch)
            for source in (s for e in self.executors for s in e.sources.values()):
                source.reopen()  # closing the runners also closed the source, so that they need not wait for data
            self.lease.runners[:] = self._new_runners(states)  # in place, because the finalizer holds this list

    def _go_to(
        self,
        records: list[dict[str, Any]],
        position: dict[str, Any] | None,
        stop: Callable[[], Any] = lambda: None,
        *,
        restart_epoch: bool = False,
    ) -> list[dict[str, Any]]:
        """Sets everything but the runners to a state. Returns the state of each executor.

        Args:
          records: the states of the shards.
          position: the position of the iterator, if the state has one.
          stop: stops the runners. It is called when it is certain that the state can be resumed.
          restart_epoch: whether the epoch of the state begins anew.
        """
        resume = checkpoint.restart if restart_epoch else checkpoint.resume
        states, counter = resume(self.executors, self._places, records, position, self._epochs, self._plan)
        stop()
        if restart_epoch:  # nothing of the epoch was taken then
            position = None
        self._counter = counter
        self.num_taken = self.num_resumed = position["given"] if position is not None else 0
        self._may_restart = position["may_restart"] if position is not None else False
        self.lease.reseed(states)
        return states


def supplied_samples(ids: SampleIds) -> np.ndarray:
    """Returns ``bool[N]``, whether the sources supplied a sample for each place of a batch. A sample that could not be
    read counts.
    """
    is_supplied = np.ones(len(ids.epoch), bool) if ids.present is None else ids.present.copy()
    is_supplied[list(ids.unread)] = True
    return is_supplied


def _pad_rounds(executor: Executor, reader_name: str):
    """Makes a reader, and those that read lists of the same size, pad each round to full batches."""
    sources = executor.reader.named
    metas = sources[reader_name].metas if reader_name in sources else ()
    for source in sources.values():
        if source.metas and source.metas == metas:
            source.pad_rounds()


def _num_samples(meta: Mapping[str, int]) -> int:
    """Number of samples in a reader's first round."""
    first, end = shard_bounds(meta["epoch_size"], meta["number_of_shards"], meta["shard_id"])
    return end - first
