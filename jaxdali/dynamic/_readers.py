"""Readers without a pipeline: classes made from the functions of `jaxdali.fn.readers`, which iterate over epochs."""

from __future__ import annotations

import functools
import inspect
import json
import secrets
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, NoReturn

import jax
import numpy as np

from .._batch.batch import BadSample, FinishedBatch
from .._batch.executor import Executor
from .._core.building import Scope, building
from .._core.declaration import Range, Whole, checked
from .._core.graph import DataNode, Graph
from .._core.names import class_name, did_you_mean, members
from .._core.tracebacks import boundaries
from .._core.words import of_values
from .._data.list_source import ListSource
from .._pipeline import checkpoint as checkpoints
from .._pipeline.checks import check_digest, check_record, checked_integer, signed
from .._plan.run_options import RunOptions
from .._runner.choose import runner_of
from .._runner.shutdown import close_collected, close_together
from . import _threads
from ._batch import Batch, Tensor

# The number that is read ahead: of batches (True), or of single samples (False).
_AHEAD = {True: 2, False: 16}


@boundaries
class Reader:
    """Reads records in epochs. The base of the classes in this module.

    The classes are made from the functions of `jaxdali.fn.readers`, with the same arguments: order, shuffling
    (``shuffle="global"``), shards, padding, ``on_error=``, URLs.

    Args:
      batch_size: number of samples in a batch; None: it is passed to `next_epoch`, or single samples are returned.
      *positional: the arguments of the function.
      **arguments: those by name.

    Raises:
      ArgumentError, TypeError: an argument is wrong. Files are opened by the first epoch, or by `get_metadata`.

    Examples:
      >>> reader = jd.readers.File(file_root="photos", shuffle="global", seed=1)
      >>> for epoch in range(10):
      ...     for files, labels in reader.next_epoch(batch_size=64):
      ...         images = jd.resize(jd.decoders.image(files), size=(224, 224))
    """

    function: ClassVar[Callable[..., Any]]

    def __init__(self, *positional: Any, batch_size: int | None = None, **arguments: Any):
        self._name = f"readers.{type(self).__name__}"
        self._batch_size = self._checked(batch_size)
        scope = Scope(owner=None, nodes=[])
        with building(scope):
            nodes = type(self).function(*positional, **arguments)
        # The function returns one node, a list of them, or a dict by name.
        nodes = (nodes,) if isinstance(nodes, DataNode) else tuple(nodes) if isinstance(nodes, list) else nodes
        leaves, self._tree = jax.tree.flatten(nodes, is_leaf=lambda x: isinstance(x, DataNode))
        self._graph = Graph.collect(scope.nodes, leaves)
        self._seed = secrets.randbits(31)  # for a reader without an argument `seed`
        # The checkpoint record from which the next runner starts; None: from the beginning.
        self._start_record: Mapping[str, Any] | None = None
        self._num_remaining = 0  # samples left in the epoch that was begun
        self._epoch_runner: _EpochRunner | None = None  # None: not begun, or closed
        self._bad: list[BadSample] = []  # of runners that are closed

    def __getstate__(self) -> dict[str, Any]:
        """The contents of a copy or a pickle, which continues from the reader's position by a runner of its own."""
        record = self._start_record if self._epoch_runner is None else self._epoch_runner.record
        return vars(self) | {"_start_record": record, "_epoch_runner": None, "_bad": self.bad_samples()}

    def _checked(self, batch_size: int | None) -> int | None:
        return None if batch_size is None else checked(self._name, "batch_size", Annotated[Whole, Range(1)], batch_size)

    def __iter__(self) -> NoReturn:
        raise TypeError("a reader is not iterable: next_epoch(batch_size=...) iterates over an epoch")

    def next_epoch(self, batch_size: int | None = None) -> Iterator[Any]:
        """Iterates over the next epoch of the shard, or over the rest of an epoch after `set_state` or after a loop
        that ended early.

        As in DALI, all batches are full: the last one continues with the first samples of the next epoch, or repeats
        the last sample with ``pad_last_batch=True``. (With ``on_error="skip"``, a batch lacks samples that can't be
        read.)

        Args:
          batch_size: number of samples in a batch; None: as in the constructor, or single samples.

        Returns:
          An iterator over tuples with an entry for each output of the reader (or over dicts, if the function returns
          one). An entry is a `Batch`, or a `Tensor` without a batch size; metadata are a list of objects, or one
          object.

        Raises:
          SampleError: raised by the iterator if a record can't be read. The next call of `next_epoch` continues with
            the next batch.
          RuntimeError: raised by the iterator if another epoch was begun in the meantime.
        """
        size = self._checked(batch_size)
        return self._epoch(self._batch_size if size is None else size)

    def _epoch(self, size: int | None) -> Iterator[Any]:
        """Yields the outputs of each batch of the rest of an epoch, or of a new one; see `next_epoch`.

        Args:
          size: number of samples in a batch; None: single samples.
        """
        runner = self._runner_for(size)
        if self._num_remaining <= 0:
            self._num_remaining = runner.round_size
        while self._num_remaining > 0:
            if self._epoch_runner is not runner:
                raise RuntimeError(f"{self._name}: this epoch ended when another one was begun, or a state was set")
            try:
                batch = runner.next()
            except Exception:  # it takes its batch; an interrupt does not
                self._num_remaining -= runner.batch_size
                raise
            self._num_remaining -= runner.batch_size
            present = batch.ids.present
            rows = range(runner.batch_size) if present is None else np.flatnonzero(present).tolist()
            outputs: list[Any] = [
                [x.data[i] for i in rows] if x.spec.is_metadata else Batch._of(x) for x in batch.outputs
            ]
            # Rows whose records could not be read have no sample, and are left out.
            if present is not None:
                outputs = [x if isinstance(x, list) else x[rows] for x in outputs]
            if size is None:
                if not rows:  # the only sample could not be read
                    continue
                outputs = [x[0] if isinstance(x, list) else Tensor.of(x[0], x.layout) for x in outputs]
            yield jax.tree.unflatten(self._tree, outputs)

    def _runner_for(self, size: int | None) -> _EpochRunner:
        """Returns the runner for batches of this size; a new one continues at the reader's position."""
        if self._epoch_runner is None or (self._epoch_runner.size, self._epoch_runner.threads) != (
            size,
            _threads.get_num_threads(),
        ):
            start_record = self._start_record if self._epoch_runner is None else self._epoch_runner.record
            self._stop()
            self._epoch_runner = _EpochRunner(self._graph, size, self._seed, start_record)
            if start_record is not None and self._epoch_runner.num_shards != self._num_shards_of(start_record):
                # The epoch was begun with another number of shards: this shard gets its part of the rest.
                self._num_remaining = self._epoch_runner.round_size if self._num_remaining > 0 else 0
        return self._epoch_runner

    @staticmethod
    def _num_shards_of(record: Mapping[str, Any]) -> int:
        """The number of shards in a checkpoint record."""
        (source,) = record["sources"].values()
        return int(source["fingerprint"].get("num_shards", 1))

    def _stop(self):
        """Closes the runner, and keeps its list of bad samples."""
        if self._epoch_runner is not None:
            self._bad += self._epoch_runner.executor.bad_samples()
            self._epoch_runner.close()
            self._epoch_runner = None

    # --- state ------------------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """The state after the batch that the iterator returned last: a dict that can be written as JSON."""
        runner = self._runner_for(self._batch_size) if self._epoch_runner is None else self._epoch_runner
        return signed({"left": max(self._num_remaining, 0), "reader": runner.record})

    def set_state(self, state: Mapping[str, Any] | str | bytes):
        """Resumes from a state of a reader with the same records and order. With another number of shards, each shard
        gets a part of the rest.

        Args:
          state: the result of `get_state` or `checkpoint`, for any batch size.

        Raises:
          RuntimeError: `state` is not a state or is damaged; or, when the next epoch begins, it belongs to another
            reader.
        """
        try:
            parsed = json.loads(state) if isinstance(state, (str, bytes, bytearray)) else dict(state)
            check_digest(parsed, "it")
            record = check_record(parsed.get("reader"), "reader")
            (source,) = record["sources"].values()
            # An epoch has no more samples than the list. Whether the list is this reader's is known when it is opened.
            num_left = checked_integer(
                parsed, "it", "left", 0, checked_integer(source["fingerprint"], "fingerprint", "size", 1)
            )
        except (ValueError, TypeError, RecursionError) as e:
            raise RuntimeError(f"{self._name}: this is not the state of a reader: {e}") from e
        self._stop()
        self._start_record, self._num_remaining, self._seed = record, num_left, int(record["seed"])

    def checkpoint(self) -> bytes:
        """`get_state` as bytes."""
        return json.dumps(self.get_state(), sort_keys=True, separators=(",", ":")).encode()

    def get_metadata(self) -> dict[str, int]:
        """Information about the records, as returned by `Pipeline.reader_meta`: "epoch_size", "shard_id", ..."""
        runner = self._runner_for(self._batch_size) if self._epoch_runner is None else self._epoch_runner
        return dict(runner.source.metas[0])

    def bad_samples(self) -> list[BadSample]:
        """The samples that ``on_error`` has skipped or replaced so far."""
        return self._bad + ([] if self._epoch_runner is None else self._epoch_runner.executor.bad_samples())

    def close(self):
        """Ends the threads and closes the files. This also happens when the reader is garbage-collected."""
        if self._epoch_runner is not None:
            self._start_record = self._epoch_runner.record
            self._stop()


class _EpochRunner:
    """Runs the graph of one reader, in batches of one size.

    Its executor has one shard, so lists with an entry for each shard (walks, metas, cursors) have one entry.

    Attributes:
      size: number of samples in a batch; None: the caller wants single samples.
      batch_size: the same as a number, 1 for single samples.
      threads: number of native threads.
      executor: of the graph.
      source: of the reader.
    """

    def __init__(self, graph: Graph, size: int | None, seed: int, start: Mapping[str, Any] | None):
        """Makes the executor and its runner. `start`: the checkpoint record to continue from; None: from the
        beginning.
        """
        self.size, self.batch_size, self.threads = size, size or 1, _threads.get_num_threads()
        device = jax.local_devices(backend="cpu")[0]
        options = RunOptions(batch_size=self.batch_size, seed=seed, num_threads=self.threads)
        self.executor = Executor.of_values(graph, device, options)
        try:
            (source,) = self.executor.sources.values()
            assert isinstance(source, ListSource)
            self.source = source
            state = (
                self.executor.reader.initial_state
                if start is None
                # (number, number of shards) of the executor's only shard. The reader's argument `num_shards` is not meant.
                else checkpoints.state_of(self.executor, records=[start], places=[(0, 1)])
            )
        except BaseException:
            self.executor.close()
            raise
        depth = _AHEAD[size is not None]
        self._runner = runner_of(self.executor, state, depth, ahead=depth)
        close = functools.partial(close_together, [self._runner], [self.executor], collected=True)
        self._finalizer = weakref.finalize(self, close_collected, close)

    def next(self) -> FinishedBatch:
        """The next batch."""
        self._runner.request(1)
        return self._runner.get()

    @property
    def num_shards(self) -> int:
        """The number of shards of the reader."""
        return self.source.walks[0].num_shards

    @property
    def round_size(self) -> int:
        """The number of samples in the current round of the reader, an epoch of its shard."""
        (entry,) = self._runner.state["sources"].values()
        return self.source.walks[0].round_size(entry["cursors"][0])

    @property
    def record(self) -> dict[str, Any]:
        """The checkpoint record after the batch that was taken last."""
        # (number, number of shards) of the executor's only shard.
        (record,) = checkpoints.records_of(self.executor, self._runner.state, places=[(0, 1)])
        return record

    def close(self):
        """Ends the threads, and closes the source."""
        if self._finalizer.detach() is not None:
            close_together([self._runner], [self.executor], collected=False)


class Readers(dict[str, Any]):
    """Reader classes by name, made from a module of functions. A missing name raises AttributeError."""

    def __init__(self, functions: types.ModuleType, name: str):
        super().__init__()
        self._name = name
        for public, x in members(functions).items():
            if inspect.isfunction(x):
                self[class_name(public)] = _class_of(x, class_name(public), name)

    def __missing__(self, name: str) -> Any:
        raise AttributeError(
            of_values(f"module {self._name!r} has no attribute {name!r}{did_you_mean(f'readers.{name}', self)}"),
            name=name,
        )


def _class_of(function: Callable[..., Any], name: str, module: str) -> type[Reader]:
    """Makes the class of a reader from its function in `jaxdali.fn.readers`."""
    extra_parameters = [p for p in inspect.signature(Reader.__init__).parameters.values() if p.kind is p.KEYWORD_ONLY]
    function_parameters = inspect.signature(function).parameters.values()
    summary = (inspect.getdoc(function) or "").splitlines()[0]
    doc = f"{summary}\n\nThe arguments are those of `jaxdali.fn.readers.{function.__name__}`; methods are those of `Reader`."
    attributes = {"function": staticmethod(function), "__doc__": doc, "__module__": module}
    cls = type(name, (Reader,), attributes)
    cls.__signature__ = inspect.Signature([*function_parameters, *extra_parameters])  # pyright: ignore[reportAttributeAccessIssue]
    return cls
