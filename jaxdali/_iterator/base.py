"""`BaseIterator`: the methods that the iterators of all frameworks have."""

from __future__ import annotations

import html
import json
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import jax

from .._batch.batch import BadSample, FinishedBatch
from .._batch.meter import Statistics
from .._core.building import warn
from .._core.declaration import checked
from .._core.names import did_you_mean, foreign
from .._core.tracebacks import boundaries
from .._pipeline import checkpoint
from .._pipeline.describe import describe_value
from .._pipeline.graph_view import draw
from .._pipeline.lease import Lease
from .._pipeline.pipeline import Pipeline
from .._program.sharding import Shards
from . import grain_handler
from .iterator_options import IteratorOptions
from .shared import SharedStream
from .stream import BatchStream


@boundaries
class BaseIterator:
    """The base of iterators. A `BatchStream` makes the batches; subclasses convert them to a framework's form.

    A subclass takes a `lease` of the pipelines, calls `_start`, and implements `__next__` with `_take_batches`.
    """

    # How to get samples that fill no batch, for a warning about them.
    _instead = "; a source of batches (batch=True) may end with a smaller one"
    _stream: BatchStream | SharedStream
    output_map: list[str]
    _warned = False  # whether `get_state` has warned of states that can't go on with other shards
    _begins_loop = False  # whether `reset` is called because a `for` loop begins
    _auto_resets: bool  # whether StopIteration begins the next epoch
    _repeats: bool  # whether there is none at the ends of epochs

    def _start(
        self,
        lease: Lease,
        options: IteratorOptions,
        *,
        padded: bool = False,
        shards: Shards | None = None,
        over_processes: bool = False,
    ):
        """Starts to make batches, or continues where the previous iterator stopped. Closes the lease if that fails.

        Args:
          padded: see `BatchStream.begin`.
          shards, over_processes: see `BatchStream`.
        """
        grain_handler.register(BaseIterator)
        self.output_map = list(options.output_map)
        self._auto_resets, self._repeats = bool(options.auto_reset), options.repeat
        self._stream = stream = BatchStream(lease, options, type(self).__name__, self._instead, shards, over_processes)
        self._pipes = lease.pipelines  # they hold the lease, which has only weak references to them
        self._set_dali_attributes(options, len(self._pipes) if shards is None else shards.num)
        lease.checkpoint_with(self.checkpoints)
        stream.begin(padded=padded)

    def _set_dali_attributes(self, options: IteratorOptions, num_shards: int):
        """Sets the attributes of DALI's iterators that scripts read or set, in subclasses above all, as its constructor
        does. `_size`, `_counter` and `batch_size` are properties. Nothing here reads them, so that setting one changes no
        batch.
        """
        for name in ("_size", "_counter", "_counter_difference", "batch_size"):
            vars(self).pop(name, None)  # it replaces what a subclass has set before
        self._first_batch = None  # DALI's `__next__` returns another one first; here no batch is held
        self._num_gpus, self._reader_name = len(self._pipes), options.reader_name
        self._num_counted = num_shards if options.reader_name is None else 1  # pipelines, by `_counter`
        self._last_batch_policy, self._last_batch_padded = options.last_batch_policy, options.last_batch_padded
        if options.reader_name is not None and self._pipes:  # a process that loads nothing has no pipelines
            meta = self._pipes[0].reader_meta(options.reader_name)
            self._size_no_pad, self._shards_num = meta["epoch_size"], meta["number_of_shards"]
            self._last_batch_padded = bool(meta["pad_last_batch"])

    def __repr__(self) -> str:
        if self._stream.closed:
            return f"{type(self).__name__}: closed"
        stream = self._stream
        total = f" of {len(self)}" if stream.length is not None else ""
        pipelines = "1 pipeline" if len(self._pipes) == 1 else f"{len(self._pipes)} pipelines"
        progress = f"{stream.num_taken} batches{total} taken, {stream.batch_size} samples of each of {pipelines}"
        lines = [f"{type(self).__name__}: epoch {stream.epoch}, {progress}"]
        # The outputs of the first executor stand for all. A process that loads nothing has no executor.
        for executor in stream.executors[:1]:
            for i, (name, x, spec) in enumerate(
                zip(self.output_map, executor.graph.outputs, executor.plan.output_specs)
            ):
                lines.append(f"  {name}: {describe_value(x, spec, self._batch_shape)}{self._placed(i)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str | None:
        """The form in notebooks: the text of `repr`, and the graph with the names of the outputs; None if the iterator
        is closed, or this process loads nothing, so that it has no graph.
        """
        if self._stream.closed or not self._stream.executors:
            return None
        executor = self._stream.executors[0]
        # The costs of the steps, which the graph shows if they are measured.
        rows = BaseIterator.statistics(self) if executor.resources.meter.enabled else ()
        return f"<pre>{html.escape(repr(self))}</pre>{draw(executor.plan, self.output_map, executor.B, rows)._repr_html_()}"

    @property
    def _batch_shape(self) -> tuple[int, ...]:
        """The leading axes of a batch."""
        return (self._stream.batch_size,)

    def _placed(self, i: int) -> str:
        """The text that `repr` adds to output `i`."""
        return ""

    if not TYPE_CHECKING:  # which would know every attribute

        def __getattr__(self, name: str) -> Any:
            """Refuses an attribute that iterators don't have. Those of other libraries' iterators get advice."""
            if name.startswith("_") or not foreign().answer(name, "DALIGenericIterator"):
                return super().__getattribute__(name)  # raises the error again, which may be that of a user's property
            message = f"{type(self).__name__!r} object has no attribute {name!r}{did_you_mean(name, (), 'DALIGenericIterator')}"
            raise AttributeError(message, name=name)

    # --- iteration ----------------------------------------------------------------------------------------------

    def __iter__(self):
        with self._stream.turn:
            self._stream.begin_loop()
            if self._stream.needs_reset:
                self._begins_loop = True
                try:
                    self.reset()
                finally:
                    self._begins_loop = False
        return self

    def _take_batches(self, act: Callable[[], tuple[list[FinishedBatch], Any]] | None = None):
        """Takes the next batches as `BatchStream.take`, or does `act`. Where the epoch ends, calls `reset`, which the
        user may have overridden, if the options say that the next one begins.
        """
        with self._stream.turn:
            while True:
                try:
                    return self._stream.take() if act is None else act()
                except StopIteration:
                    repeats = self._repeats and self._stream.num_taken > 0
                    if repeats or self._auto_resets:
                        self.reset()
                    if not repeats or self._stream.num_taken:  # a user's `reset` need not begin the next epoch
                        raise

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} can't be pickled or copied: create it in the process that uses it; get_state() gives its state"
        )

    def __next__(self) -> Any:
        raise NotImplementedError(type(self).__name__)

    def next(self) -> Any:
        """The next batch. Raises StopIteration at the end of an epoch."""
        return next(self)

    def reset(self):
        """Begins the next epoch. This is only possible at the end of an epoch; earlier calls are ignored, with a
        warning in the log if batches of the epoch were taken.

        It also calls `reset` of each pipeline. A subclass of an iterator or of `Pipeline` may override it, for example
        to give its source another order: as in DALI, it is called at the end of an epoch with ``auto_reset=True``, and
        by a `for` loop unless no batch was taken before.
        """
        self._stream.reset(in_loop=self._begins_loop)

    def __len__(self) -> int:
        """The number of batches in an epoch; 0 if only the end of the data shows it."""
        return self._stream.length or 0

    def __bool__(self) -> bool:
        """True, even if ``len`` is 0 because the length is not known."""
        return True

    @property
    def size(self) -> int:
        """The number of samples in an epoch (per shard if a reader determines it); -1 if only the end of the data shows
        it.
        """
        size = self._stream.size
        return -1 if size is None else size

    @size.setter
    def size(self, value: Any):
        raise AttributeError(
            f"{type(self).__name__}: size can't be set, nor in DALI: the argument size, or the reader, determines it; leave the "
            "line out, or use another name"
        )

    @property
    def _size(self) -> int:
        """The same as `size`. A subclass may set it; DALI then ends epochs by it, so another number is warned of."""
        values = vars(self)
        return values["_size"] if "_size" in values else self.size

    @_size.setter
    def _size(self, value: int):
        if hasattr(self, "_stream") and value != self.size:
            warn(f"{type(self).__name__}: _size = {value} changes no epoch: pass size={value} to the constructor")
        vars(self)["_size"] = value

    @property
    def _counter(self) -> int:
        """The number of samples of the epoch that were taken, of all pipelines, or with `reader_name` of each. A subclass
        may set it. A number goes on counting, until the epoch ends.
        """
        values = vars(self)
        if "_counter" in values:
            return values["_counter"]
        stream, (difference, epoch) = self._stream, values.get("_counter_difference", (0, None))
        num_taken = stream.num_taken * stream.batch_size * self._num_counted
        return num_taken + difference if epoch in (None, stream.epoch) else num_taken

    @_counter.setter
    def _counter(self, value: int):
        values = vars(self)
        for name in ("_counter", "_counter_difference"):
            values.pop(name, None)
        # A subclass may have its own use for the name, and set it before the constructor is called.
        if isinstance(value, numbers.Real) and hasattr(self, "_stream"):
            values["_counter_difference"] = (value - self._counter, self._stream.epoch)
        else:
            values["_counter"] = value

    @property
    def batch_size(self) -> int:
        """Samples per batch of one shard. A subclass may set it, as in DALI; that changes no batch."""
        values = vars(self)
        return values["batch_size"] if "batch_size" in values else self._stream.batch_size

    @batch_size.setter
    def batch_size(self, value: int):
        vars(self)["batch_size"] = value

    def start_prefetch(self):
        """Begins to make batches ahead, which the first ``next()`` does otherwise. Not in DALI.

        After `set_state`, batches are then made while the program restores its model.
        """
        self._stream.start()

    # --- state --------------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Returns the state after the batch that was taken last, regardless of batches made ahead; for `set_state`.

        The state is small and JSON-serializable. With several processes the state of one is that of all, except for
        sources with a state of their own (`get_state` of an `external_source`): then each process needs its own. The
        first call warns of that, and if such states can't be continued with another number of shards, see `set_state`.

        ``grain.checkpoint.CheckpointSave(iterator)`` and ``CheckpointRestore`` save and restore it, too.

        Raises:
          TypeError: a user's source returned a state that JSON can't hold.
        """
        imported_late = grain_handler.register(BaseIterator)
        state = self._stream.get_state()
        if self._stream.state_warning and not self._warned:
            self._warned = True
            warn(f"{type(self).__name__}: {self._stream.state_warning}")
        return grain_handler.DecodableState(state) if imported_late else state

    def set_state(self, state: Mapping[str, Any] | Sequence[bytes], *, restart_epoch: bool = False):
        """Resumes from the state of a `get_state`, with its seed: exactly as the original iterator; with another batch
        size from the same sample on; and with another number of shards so that each sample is still read once in the
        epoch.

        With ``last_batch_policy=DROP``, or PARTIAL of a PyTorch iterator, and no padding, batches read on across the
        ends of epochs, unless they fill every shard exactly. The rest of an epoch after the first one is then no part
        of the data set, and can't be divided among another number of shards: use ``pad_last_batch=True`` in the reader,
        or `restart_epoch`.

        Fed data (`Pipeline.feed_input`) from which batches were made ahead must be fed again.

        Args:
          state: the result of `get_state` or `checkpoints`.
          restart_epoch: whether the epoch of the state begins anew, with all its samples in the order of its number; if
            the state was taken at the end of an epoch, the next one begins. Only the number and the seed come from the
            state, so shards, batch size, `last_batch_policy`, `mask_name`, and the reader's `pad_last_batch`,
            `stick_to_shard` and `group_by_length` may differ from those of the state; the data and all that shuffles
            them must agree. It needs `reader_name`, and all sources must be readers; one of another size than this
            reader begins the epoch that it was in anew.

        Raises:
          RuntimeError: the state belongs to another pipeline or iterator (the message says what differs), or the rest
            of its epoch can't be divided among this number of shards. The iterator then stays where it is.
        """
        if grain_handler.register(BaseIterator) and isinstance(state, bytes):  # see `DecodableState`
            state = json.loads(state)
        self._stream.set_state(state, restart_epoch=checked("set_state", "restart_epoch", bool, restart_epoch))

    def checkpoints(self) -> list[bytes]:
        """Returns `get_state` as bytes, one for each pipeline, for ``checkpoints=`` of a data_iterator function or
        ``checkpoint=`` of a `Pipeline`.

        Raises:
          ValueError: the pipelines were made without ``enable_checkpointing=True``.
        """
        if not self._stream.enable_checkpointing:
            raise ValueError("checkpoints() needs pipelines with enable_checkpointing=True")
        state = self.get_state()
        return [checkpoint.to_bytes(record, state["iterator"]) for record in state["pipelines"]]

    @property
    def _ctx(self) -> NoReturn:
        """Raises AttributeError: a transformation of Grain asks for this attribute of the iterator that it takes."""
        raise AttributeError(
            f"Grain's transformations don't take a {type(self).__name__}: use the dataset that "
            "jaxdali.plugin.grain.iter_dataset makes of the function that makes the iterator"
        )

    # --- life ---------------------------------------------------------------------------------------------------

    def close(self):
        """Stops the threads. Afterwards, no batch can be taken, and no other iterator over the pipelines can be made.

        When the iterator is garbage-collected, its threads also end; everything else ends with the pipelines. Python
        calls `close` at the end of a generator that stands in ``yield from iterator``; ``for batch in iterator: yield
        batch`` leaves the iterator open.
        """
        self._stream.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc: Any):
        self.close()

    # --- beyond DALI --------------------------------------------------------------------------------------------

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """The pipelines, one for each shard that this process makes. A subclass may set an attribute of this name, which
        DALI's iterators lack.
        """
        values = vars(self)
        return values["pipelines"] if "pipelines" in values else tuple(self._pipes)

    @pipelines.setter
    def pipelines(self, value: Any):
        vars(self)["pipelines"] = value

    def lower(self, segment: int = 0) -> jax.stages.Lowered:
        """Returns JAX's `Lowered` of the program that ran last; see `Pipeline.lower`."""
        if not self._stream.executors:
            raise RuntimeError("this process runs no pipeline: it is not among loading_processes")
        return self._stream.executors[0].lower(segment)

    def statistics(self) -> Statistics:
        """Returns seconds, calls, samples and bytes of each stage and step so far; see `Pipeline.statistics`. Not in
        DALI.
        """
        return Statistics.merged(e.statistics() for e in self._stream.executors)

    def bad_samples(self) -> list[BadSample]:
        """Returns the samples that ``on_error`` has replaced or skipped so far: file, reason, count."""
        return [b for e in self._stream.executors for b in e.bad_samples()]
