"""`SharedStream`: batches that some processes make and all processes get."""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Sharding

from .._batch.batch import FinishedBatch
from .._batch.delivery import ShardArrays
from .._core.building import refuse_tracing
from .._core.jax_settings import own_settings
from .._data.source import SampleIds
from .._program.transfer import Loading, Messages, PartSpec, Transfer
from .._runner.fork_guard import ExclusiveUse
from .._runner.shutdown import refuse
from .stream import BatchStream

T = TypeVar("T")

_NO_IDS = SampleIds(np.zeros(0, np.int64), np.zeros(0, np.int64), (), ())


@dataclasses.dataclass(frozen=True)
class Facts:
    """Facts about the pipelines, which loading processes tell the others when they have built them.

    Attributes:
      batch_size: samples of a shard.
      metadata: the names of the outputs that are metadata.
      enable_checkpointing: the argument of the pipelines.
      state_warning: a warning that states can't be resumed with other shards; "" if they can.
    """

    batch_size: int
    metadata: frozenset[str]
    enable_checkpointing: bool
    state_warning: str = ""


@dataclasses.dataclass
class _Position:
    """The position of a stream: the values of the `BatchStream`'s attributes of these names."""

    epoch: int
    num_taken: int
    length: int | None
    size: int | None
    needs_reset: bool
    closed: bool
    state: dict[str, Any] | BaseException  # or the error of `get_state`


@dataclasses.dataclass
class _Message:
    """The message of a loading process to the others after each step.

    Attributes:
      error: the exception of the step.
      ended: whether the step raised StopIteration.
      facts, position: the state of the stream after the step.
      outputs: if the step took a batch, for each output the shape and type of its arrays (one, or samples and lengths),
        or its lists by shard.
      rows: ``bool[B]`` by shard, the samples that belong to the epoch.
    """

    error: BaseException | None = None
    ended: bool = False
    facts: Facts | None = None
    position: _Position | None = None
    outputs: list[Any] | None = None
    rows: dict[int, np.ndarray] = dataclasses.field(default_factory=dict)


# Note [Loading processes]
# Only some processes have pipelines. They do each step that concerns all processes: a batch, the end of an epoch, a
# reset. Then all processes exchange messages with the result of the step, and the position afterwards. So an error or
# an end reaches every process in the same step, and none waits for arrays that never come. The arrays follow by a
# program with collectives over the devices. Messages and arrays are sent in the user's thread: collectives, the user's
# own included, must begin in one order in all processes. For the same reason all processes must call the same methods.
# Shards, random numbers and states are those of an iterator whose processes all load.
class SharedStream:
    """The `BatchStream` of an iterator with `loading_processes`, in every process. See Note [Loading processes].

    Args:
      loading: the process and the device that make each shard.
      shardings: the sharding of each output, and that of its lengths if it is ragged.
      user: name of the iterator, for messages.
      masked: whether incomplete batches are allowed.
    """

    executors: Sequence[Any] = ()  # of this process's stream; none if it loads nothing
    counts_samples = False

    def __init__(self, loading: Loading, shardings: Sequence[tuple[Sharding, Sharding]], user: str, masked: bool):
        self.turn = ExclusiveUse("iterator")
        self._loading = loading
        self._shardings = shardings
        self._user = user
        self._masked = masked
        self._inner: BatchStream | None = None  # of this process's shards; None: it loads nothing
        self._closed = False
        self._messages = Messages(loading.everyone)
        self._transfer = Transfer(loading)
        self._facts: Facts | None = None
        self._position: _Position | None = None
        self._peeked: tuple[list[FinishedBatch], Any] | None = None  # the result of `look`, for the next `take`

    # --- life ---------------------------------------------------------------------------------------------------

    def begin(self, make: Callable[[], tuple[BatchStream, frozenset[str]]]):
        """Begins to take batches.

        Args:
          make: is called in loading processes, and returns the stream of their shards, and the names of the outputs
            that are metadata.
        """

        def make_stream() -> None:
            self._inner, metadata = make()
            self.executors = self._inner.executors
            self._facts = Facts(
                self._inner.batch_size, metadata, self._inner.lease.enable_checkpointing, self._inner.state_warning
            )

        try:
            self._run_step(make_stream)
        except BaseException:
            if self._inner is not None:
                self._inner.close()
            raise

    def close(self):
        """Ends this process's part."""
        self._closed = True
        if self._inner is not None:
            self._inner.close()

    @property
    def closed(self) -> bool:
        return self._closed or self._current_position.closed

    @property
    def facts(self) -> Facts:
        assert self._facts is not None
        return self._facts

    @property
    def batch_size(self) -> int:
        return self.facts.batch_size

    @property
    def enable_checkpointing(self) -> bool:
        return self.facts.enable_checkpointing

    @property
    def state_warning(self) -> str:
        return self.facts.state_warning

    def start(self):
        """As `BatchStream.start`, in all processes."""
        with self.turn:
            self._run_step(lambda local_stream: local_stream.start())

    # --- position -----------------------------------------------------------------------------------------------

    @property
    def _current_position(self) -> _Position:
        assert self._position is not None
        return self._position

    @property
    def epoch(self) -> int:
        return self._current_position.epoch

    @property
    def num_taken(self) -> int:
        return self._current_position.num_taken

    @property
    def length(self) -> int | None:
        return self._current_position.length

    @property
    def size(self) -> int | None:
        return self._current_position.size

    @property
    def needs_reset(self) -> bool:
        return self._current_position.needs_reset

    def get_state(self) -> dict[str, Any]:
        """Returns the state after the last step. Other processes need not call this."""
        with self.turn:
            state = self._current_position.state
            if isinstance(state, BaseException):
                raise state
            return json.loads(json.dumps(state))  # a copy

    def set_state(self, state: Mapping[str, Any] | Sequence[bytes], *, restart_epoch: bool = False):
        """As `BatchStream.set_state`, in all processes."""
        with self.turn:
            self._run_step(lambda local_stream: local_stream.set_state(state, restart_epoch=restart_epoch))
            self._peeked = None  # it was the batch after the old state

    # --- batches ------------------------------------------------------------------------------------------------

    def take(self) -> tuple[list[FinishedBatch], Any]:
        """As `BatchStream.take`, but in place of the numbers of samples returns ``bool[shards, B]``, the samples that
        belong to the epoch.
        """
        refuse_tracing(f"next() of {self._user}")
        with self.turn:
            peeked, self._peeked = self._peeked, None
            # An earlier look() has the result already; this process's stream is still advanced.
            return self._batch(lambda local_stream: local_stream.take(), ready=peeked)

    def look(self) -> tuple[list[FinishedBatch], Any]:
        """Returns or raises the same as the next `take`, with the same arrays, without taking the batch."""
        refuse_tracing(f"peek() of {self._user}")
        with self.turn:
            if self._peeked is None:
                self._peeked = self._batch(lambda local_stream: local_stream.look())
            return self._peeked

    def peek(self) -> list[FinishedBatch]:
        """The next batch, even if it belongs to the next epoch."""
        with self.turn:
            # None: all samples belong to the epoch.
            batches, _ = self._batch(lambda local_stream: (local_stream.peek(), None))
            return batches

    def begin_loop(self):
        """As `BatchStream.begin_loop`, in all processes."""
        with self.turn:
            self._run_step(lambda local_stream: local_stream.begin_loop())

    def reset(self, *, in_loop: bool = False):
        """As `BatchStream.reset`, in all processes."""
        with self.turn:
            self._run_step(lambda local_stream: local_stream.reset(in_loop=in_loop))

    def mask(self, rows: np.ndarray | None, sharding: Sharding) -> jax.Array:
        """Returns the mask of a batch: ``rows[shards, B]`` as an array over the batch axis; None: all True."""
        mask = np.ones((self._loading.num, self.batch_size), bool) if rows is None else rows
        with own_settings():
            return jax.make_array_from_callback(
                (mask.size,), sharding, lambda index: mask.reshape(-1)[index], dtype=bool
            )

    def _batch(
        self,
        act: Callable[[BatchStream], tuple[list[FinishedBatch], Any]],
        ready: tuple[list[FinishedBatch], Any] | None = None,
    ) -> tuple[list[FinishedBatch], Any]:
        """Returns a batch of all shards, and its rows as in `take`.

        Args:
          act: takes the batch of this process's shards, or peeks at it.
          ready: the result, if an earlier call returned it already. Then no arrays are sent again.
        """
        # The arrays of this process's shards, by the number of the array: an output is one array, or samples and
        # lengths.
        local_arrays: dict[int, Any] = {}
        ids = self._loading.made_by(jax.process_index())  # the numbers of this process's shards

        def step(inner: BatchStream) -> _Message:
            """Takes the batch of this process. Its arrays go to `local_arrays`, everything else into the message."""
            (batch,), valid = act(inner)
            if not self._masked:
                inner.check_full([batch], " (or pass mask_name, with last_batch_policy=PARTIAL)")
            outputs: list[Any] = []
            for x in batch.outputs[: len(self._shardings)]:
                if isinstance(x, list):  # samples of any shapes, or metadata: they travel in the message itself
                    B = len(x) // len(ids)
                    outputs.append({i: [_picklable(e) for e in x[k * B : (k + 1) * B]] for k, i in enumerate(ids)})
                    continue
                arrays = (x,) if isinstance(x, ShardArrays) else x  # a pair: samples and lengths
                for parts in arrays:
                    local_arrays[len(local_arrays)] = dict(zip(ids, parts, strict=True))
                outputs.append(tuple((parts[0].shape, np.dtype(parts[0].dtype)) for parts in arrays))
            rows = inner.rows([batch.ids], valid)
            return _Message(outputs=outputs, rows=dict(zip(ids, rows, strict=True)))

        messages = self._run_step(step)
        if ready is not None:
            return ready
        rows = {i: r for m in messages for i, r in m.rows.items()}
        outputs = self._global_outputs(messages, local_arrays)
        return [FinishedBatch(outputs, {}, _NO_IDS, ())], np.stack([rows[i] for i in range(self._loading.num)])

    def _global_outputs(self, messages: Sequence[_Message], local_arrays: Mapping[int, Any]) -> tuple[Any, ...]:
        """Sends the arrays of all shards to the processes that hold them. Returns the outputs as the user gets them:
        global arrays, pairs of samples and lengths, or lists.

        Args:
          messages: of all loading processes, after the step that took the batch.
          local_arrays: by the number of each array, which counts over all outputs, the arrays of this process's shards.
        """
        device_of_shard = self._loading.held_by(jax.process_index())
        # Of each loading process: for each output a dict of lists by shard, or a tuple of the shapes and types of its
        # arrays, see `_Message.outputs`.
        descriptions = [m.outputs for m in messages if m.outputs is not None]
        specs: list[PartSpec] = []
        for k, (sharding, lengths_sharding) in enumerate(self._shardings):
            of_output = [outputs[k] for outputs in descriptions]
            if isinstance(of_output[0], dict):  # a list, which the messages contain
                continue
            if any(types != of_output[0] for types in of_output):
                names = sorted({f"{dtype}{list(shape)}" for types in of_output for shape, dtype in types})
                raise ValueError(f"output {k} of the loading processes differs in shape or type: {', '.join(names)}")
            # One array, or samples and lengths, which have a sharding of their own.
            specs += [
                PartSpec(s, d, placement) for (s, d), placement in zip(of_output[0], (sharding, lengths_sharding))
            ]
        arrays = iter(self._transfer.arrays(specs, [local_arrays.get(k, {}) for k in range(len(specs))]))
        result: list[Any] = []
        for k in range(len(self._shardings)):
            description = descriptions[0][k]
            if isinstance(description, dict):
                list_of_shard = {i: x for outputs in descriptions for i, x in outputs[k].items()}
                with own_settings():
                    result.append(
                        [
                            jax.device_put(e.x, d) if isinstance(e, _SentArray) else e
                            for i, d in device_of_shard.items()
                            for e in list_of_shard[i]
                        ]
                    )
            else:
                result.append(next(arrays) if len(description) == 1 else (next(arrays), next(arrays)))
        return tuple(result)

    # --- all processes together ---------------------------------------------------------------------------------

    def _run_step(self, act: Callable[..., Any]) -> list[_Message]:
        """Runs one step: calls `act` in loading processes, and exchanges messages between all processes. Returns the
        messages of the loading processes.

        Raises:
          BaseException: the exception of `act`, in all processes: this process's own exception, or else that of the
            first process that has one.
        """
        if self._closed:
            refuse("iterator")
        # A process without pipelines takes part in the exchange, and sends nothing.
        message, own_error = _Message(), None
        if jax.process_index() in self._loading.processes:
            try:
                # The first step, of `begin`, makes the stream.
                result = act() if self._inner is None else act(self._inner)
                message = result if isinstance(result, _Message) else message
            except StopIteration:
                message.ended = True
            except BaseException as e:
                own_error, message.error = e, _sendable(e)
            if self._inner is not None:
                message.facts = self._facts
                message.position = self._position_of_inner()
        process = jax.process_index()
        received = self._messages.exchange(pickle.dumps(message) if process in self._loading.processes else b"")
        messages = {p: pickle.loads(data) for p, data in zip(self._loading.everyone, received, strict=True) if data}
        # All processes take the position of the first one, so they agree.
        for m in messages.values():
            if m.position is not None:
                self._facts, self._position = m.facts, m.position
                break
        if own_error is not None:
            raise own_error
        for p, m in messages.items():
            if m.error is not None:
                m.error.add_note(f"raised in the loading process {p}")
                raise m.error
        if any(m.ended for m in messages.values()):
            raise StopIteration
        return [messages[p] for p in self._loading.processes]

    def _position_of_inner(self) -> _Position:
        """The position of this process's stream. An error of `get_state` takes the place of the state."""
        inner = self._inner
        assert inner is not None
        state: dict[str, Any] | BaseException = {}
        # Only the first loading process sends its state, which all others take.
        if jax.process_index() == self._loading.processes[0] and not inner.closed:
            try:
                state = inner.get_state()
            except Exception as e:
                state = _sendable(e)
        return _Position(inner.epoch, inner.num_taken, inner.length, inner.size, inner.needs_reset, inner.closed, state)


@dataclasses.dataclass
class _SentArray:
    """An array of a list in a message. The receiver puts it on its device."""

    x: np.ndarray


def _picklable(x: Any) -> Any:
    """Returns an element of a list in the form in which a message contains it."""
    return _SentArray(np.asarray(x)) if isinstance(x, jax.Array) else x


def _sendable(error: BaseException) -> BaseException:
    """Returns an exception that can be pickled: this one, or a RuntimeError with its text."""
    if isinstance(error, Exception):
        try:
            pickle.loads(pickle.dumps(error))
            return error
        except Exception:
            pass
    return RuntimeError(f"{type(error).__name__}: {error}")
