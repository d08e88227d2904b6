"""`SharedStream`: batches that some processes make, and all get."""

from __future__ import annotations

import dataclasses
import json
import logging
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Sharding

from .._batch.batch import Batch
from .._batch.delivery import ShardArrays
from .._core.building import refuse_tracing
from .._core.jax_settings import own_settings
from .._data.source import SampleIds
from .._program.transfer import Loading, Messages, PartSpec, Transfer
from .._runner.fork_guard import ExclusiveUse
from .stream import BatchStream

T = TypeVar("T")

_NO_IDS = SampleIds(np.zeros(0, np.int64), np.zeros(0, np.int64), (), ())


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is known once the loading processes have built their pipelines.

    Attributes:
      batch_size: of a shard; metadata: the names of the outputs that are metadata; enable_checkpointing: of the
        pipelines.
      state_warning: as of `BatchStream`, once the stream has begun.
    """

    batch_size: int
    metadata: frozenset[str]
    enable_checkpointing: bool
    state_warning: str = ""


@dataclasses.dataclass
class _Position:
    """Where a stream is."""

    epoch: int
    num_taken: int
    length: int | None
    size: int | None
    closed: bool
    state: dict[str, Any] | BaseException  # or why it has none


@dataclasses.dataclass
class _Message:
    """What a loading process tells the others after each step.

    Attributes:
      error: the exception of the step; ended: whether it raised StopIteration.
      outputs: of a batch: for each output, the shape and type of its arrays (one, or samples and lengths), or its lists
        by shard.
      rows: ``bool[B]`` by shard, the samples that belong to the epoch.
    """

    error: BaseException | None = None
    ended: bool = False
    facts: Facts | None = None
    position: _Position | None = None
    outputs: list[Any] | None = None
    rows: dict[int, np.ndarray] = dataclasses.field(default_factory=dict)


# Note [Loading processes]
# Only some processes have pipelines. A step that concerns all (a batch, the end of an epoch, a reset) is done by these.
# Then all exchange messages: what came of it, and the position afterwards. So an error or an end reaches every process
# in the same step, and none waits for arrays that never come. The arrays follow by a program with collectives over the
# devices. Messages and arrays are sent in the user's thread: collectives, the user's own included, must begin in one
# order in all processes. For the same reason all processes must call the same methods. Shards, random numbers and
# states are those of an iterator whose processes all load.
class SharedStream:
    """What a `BatchStream` is to an iterator, in each process of an iterator with loading processes. See Note [Loading
    processes].

    Args:
      loading: who makes which shard.
      shardings: of each output, and of its lengths if it is ragged.
      user: name of the iterator, for messages.
      masked: whether incomplete batches are allowed.
    """

    executors: Sequence[Any] = ()
    counts_samples = False

    def __init__(self, loading: Loading, shardings: Sequence[tuple[Sharding, Sharding]], user: str, masked: bool):
        self.turn = ExclusiveUse("iterator")
        self._loading = loading
        self._shardings = shardings
        self._user = user
        self._masked = masked
        self._inner: BatchStream | None = None
        self._closed = False
        self._messages = Messages(loading.everyone)
        self._transfer = Transfer(loading)
        self._facts: Facts | None = None
        self._position: _Position | None = None
        self._looked: tuple[list[Batch], Any] | None = None

    # --- life ---------------------------------------------------------------------------------------------------

    def begin(self, make: Callable[[], tuple[BatchStream, frozenset[str]]]):
        """Begins. `make` is called in loading processes, and makes the stream of their shards."""

        def begin() -> None:
            self._inner, metadata = make()
            self.executors = self._inner.executors
            self._facts = Facts(
                self._inner.batch_size, metadata, self._inner.lease.enable_checkpointing, self._inner.state_warning
            )

        try:
            self._together(begin)
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
        return self._closed or self._at.closed

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

    # --- position -----------------------------------------------------------------------------------------------

    @property
    def _at(self) -> _Position:
        assert self._position is not None
        return self._position

    @property
    def epoch(self) -> int:
        return self._at.epoch

    @property
    def num_taken(self) -> int:
        return self._at.num_taken

    @property
    def length(self) -> int | None:
        return self._at.length

    @property
    def size(self) -> int | None:
        return self._at.size

    def get_state(self) -> dict[str, Any]:
        """The state after the last step. Sends nothing."""
        with self.turn:
            if isinstance(self._at.state, BaseException):
                raise self._at.state
            return json.loads(json.dumps(self._at.state))  # a copy

    def set_state(self, state: Mapping[str, Any] | Sequence[bytes], *, restart_epoch: bool = False):
        """As `BatchStream.set_state`, in all processes."""
        with self.turn:
            self._together(lambda inner: inner.set_state(state, restart_epoch=restart_epoch))
            self._looked = None

    # --- batches ------------------------------------------------------------------------------------------------

    def take(self) -> tuple[list[Batch], Any]:
        """As `BatchStream.take`; in place of the numbers of samples, ``bool[shards, B]``: those that belong to the
        epoch.
        """
        refuse_tracing(f"next() of {self._user}")
        with self.turn:
            looked, self._looked = self._looked, None
            return self._batch(lambda inner: inner.take(), looked)

    def look(self) -> tuple[list[Batch], Any]:
        """What `take` returns or raises next, without taking it; with the same arrays."""
        refuse_tracing(f"peek() of {self._user}")
        with self.turn:
            if self._looked is None:
                self._looked = self._batch(lambda inner: inner.look())
            return self._looked

    def peek(self) -> list[Batch]:
        """The next batch, even if it belongs to the next epoch."""
        with self.turn:
            return self._batch(lambda inner: (inner.peek(), None))[0]

    def begin_loop(self, level: int = logging.WARNING):
        """As `BatchStream.begin_loop`, in all processes."""
        with self.turn:
            self._together(lambda inner: inner.begin_loop(level))

    def reset(self, level: int = logging.WARNING):
        """As `BatchStream.reset`, in all processes."""
        with self.turn:
            self._together(lambda inner: inner.reset(level))

    def mask(self, rows: np.ndarray | None, sharding: Sharding) -> jax.Array:
        """``rows[shards, B]`` of all shards as an array over the batch axis; None: all True."""
        every = np.ones((self._loading.num, self.batch_size), bool) if rows is None else rows
        with own_settings():
            return jax.make_array_from_callback(
                (every.size,), sharding, lambda index: every.reshape(-1)[index], dtype=bool
            )

    def _batch(
        self, act: Callable[[BatchStream], tuple[list[Batch], Any]], ready: tuple[list[Batch], Any] | None = None
    ) -> tuple[list[Batch], Any]:
        """A batch of all shards. `ready`: the same batch, if this process has it already."""
        made: dict[int, Any] = {}  # the arrays of this process's shards, by the number of the array
        ids = self._loading.made_by(jax.process_index())

        def step(inner: BatchStream) -> _Message:
            (batch,), valid = act(inner)
            if not self._masked:
                inner.check_full([batch], " (or pass mask_name, with last_batch_policy=PARTIAL)")
            outputs: list[Any] = []
            for x in batch.outputs[: len(self._shardings)]:
                if isinstance(x, list):
                    per = len(x) // len(ids)
                    outputs.append({i: [_movable(e) for e in x[k * per : (k + 1) * per]] for k, i in enumerate(ids)})
                    continue
                pair = (x,) if isinstance(x, ShardArrays) else x
                for parts in pair:
                    made[len(made)] = dict(zip(ids, parts, strict=True))
                outputs.append(tuple((parts[0].shape, np.dtype(parts[0].dtype)) for parts in pair))
            rows = inner.rows([batch.ids], valid)
            return _Message(outputs=outputs, rows=dict(zip(ids, rows, strict=True)))

        messages = self._together(step)
        if ready is not None:
            return ready
        rows = {i: r for m in messages for i, r in m.rows.items()}
        outputs = self._global(messages, made)
        return [Batch(outputs, {}, _NO_IDS, ())], np.stack([rows[i] for i in range(self._loading.num)])

    def _global(self, messages: Sequence[_Message], made: Mapping[int, Any]) -> tuple[Any, ...]:
        """The outputs as the user gets them."""
        held = self._loading.held_by(jax.process_index())
        described = [m.outputs for m in messages if m.outputs is not None]
        specs: list[PartSpec] = []
        for k, (sharding, lengths) in enumerate(self._shardings):
            each = [outputs[k] for outputs in described]
            if isinstance(each[0], dict):
                continue
            if any(e != each[0] for e in each):
                shapes = sorted({f"{d}{list(s)}" for e in each for s, d in e})
                raise ValueError(f"output {k} of the loading processes differs in shape or type: {', '.join(shapes)}")
            specs += [PartSpec(s, d, where) for (s, d), where in zip(each[0], (sharding, lengths))]
        arrays = iter(self._transfer.arrays(specs, [made.get(k, {}) for k in range(len(specs))]))
        result: list[Any] = []
        for k in range(len(self._shardings)):
            form = described[0][k]
            if isinstance(form, dict):
                of_shard = {i: x for outputs in described for i, x in outputs[k].items()}
                with own_settings():
                    result.append(
                        [
                            jax.device_put(e.x, d) if isinstance(e, _Moved) else e
                            for i, d in held.items()
                            for e in of_shard[i]
                        ]
                    )
            else:
                result.append(next(arrays) if len(form) == 1 else (next(arrays), next(arrays)))
        return tuple(result)

    # --- all processes together ---------------------------------------------------------------------------------

    def _together(self, act: Callable[..., Any]) -> list[_Message]:
        """Does one step: calls `act` in loading processes, and tells all what came of it. Returns the messages of
        loading processes.

        Raises:
          What `act` raised, in all processes: this process's own exception, or else that of the first one.
        """
        if self._closed:
            raise RuntimeError("the iterator is closed")
        message, own = _Message(), None
        if jax.process_index() in self._loading.processes:
            try:
                result = act() if self._inner is None else act(self._inner)
                message = result if isinstance(result, _Message) else message
            except StopIteration:
                message.ended = True
            except BaseException as e:
                own, message.error = e, _sendable(e)
            if self._inner is not None:
                message.facts = self._facts
                message.position = self._where()
        process = jax.process_index()
        sent = self._messages.exchange(pickle.dumps(message) if process in self._loading.processes else b"")
        found = {p: pickle.loads(data) for p, data in zip(self._loading.everyone, sent, strict=True) if data}
        for m in found.values():
            if m.position is not None:
                self._facts, self._position = m.facts, m.position
                break
        if own is not None:
            raise own
        for p, m in found.items():
            if m.error is not None:
                m.error.add_note(f"raised in the loading process {p}")
                raise m.error
        if any(m.ended for m in found.values()):
            raise StopIteration
        return [found[p] for p in self._loading.processes]

    def _where(self) -> _Position:
        inner = self._inner
        assert inner is not None
        state: dict[str, Any] | BaseException = {}
        if jax.process_index() == self._loading.processes[0] and not inner.closed:
            try:
                state = inner.get_state()
            except Exception as e:
                state = _sendable(e)
        return _Position(inner.epoch, inner.num_taken, inner.length, inner.size, inner.closed, state)


@dataclasses.dataclass
class _Moved:
    """An array of a list, on its way."""

    x: np.ndarray


def _movable(x: Any) -> Any:
    return _Moved(np.asarray(x)) if isinstance(x, jax.Array) else x


def _sendable(error: BaseException) -> BaseException:
    """An exception as other processes can get it."""
    if isinstance(error, Exception):
        try:
            pickle.loads(pickle.dumps(error))
            return error
        except Exception:
            pass
    return RuntimeError(f"{type(error).__name__}: {error}")
