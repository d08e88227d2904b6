"""Readers without a pipeline: classes made from the functions of `jaxdali.fn.readers`, which iterate over epochs."""

from __future__ import annotations

import functools
import inspect
import json
import secrets
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar

import jax
import numpy as np

from .._batch.batch import BadSample
from .._batch.batch import Batch as MadeBatch
from .._batch.executor import Executor
from .._core.building import Scope, building
from .._core.declaration import Range, Whole, checked
from .._core.graph import DataNode, Graph
from .._core.names import class_name, did_you_mean, members
from .._core.tracebacks import boundaries
from .._core.words import of_values
from .._data.listed import ListSource
from .._pipeline import checkpoint as checkpoints
from .._pipeline.checks import check_digest, check_record, signed
from .._plan.options import RunOptions
from .._runner.choose import runner_of
from .._runner.shutdown import close_collected, close_together
from . import _threads
from ._batch import Batch, Tensor

_AHEAD = {True: 2, False: 16}  # batches, and single samples, that are read before they are asked for


@boundaries
class Reader:
    """Reads records in epochs. The base of the classes in this module.

    The classes are made from the functions of `jaxdali.fn.readers`, with the same arguments: order, shuffling
    (``shuffle="global"``), shards, padding, ``on_error=``, URLs.

    Args:
      batch_size: number of samples in a batch; None: it is passed to `next_epoch`, or single samples are returned.
      *positional, **arguments: the arguments of the function.

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
        scope = Scope(None, [])
        with building(scope):
            made = type(self).function(*positional, **arguments)
        made = (made,) if isinstance(made, DataNode) else tuple(made) if isinstance(made, list) else made
        leaves, self._tree = jax.tree.flatten(made, is_leaf=lambda x: isinstance(x, DataNode))
        self._graph = Graph.collect(scope.nodes, leaves)
        self._seed = secrets.randbits(31)  # of a reader that has none
        self._start: Mapping[str, Any] | None = None
        self._left = 0  # samples of the epoch that was begun
        self._running: _Running | None = None
        self._bad: list[BadSample] = []

    def _checked(self, batch_size: int | None) -> int | None:
        return None if batch_size is None else checked(self._name, "batch_size", Annotated[Whole, Range(1)], batch_size)

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
        running = self._run(size)
        if self._left <= 0:
            self._left = running.round_size
        while self._left > 0:
            if self._running is not running:
                raise RuntimeError(f"{self._name}: this epoch ended when another one was begun, or a state was set")
            self._left -= running.batch_size
            batch = running.next()
            present = batch.ids.present
            here = range(running.batch_size) if present is None else np.flatnonzero(present).tolist()
            outputs: list[Any] = [
                [x.data[i] for i in here] if x.spec.is_metadata else Batch._of(x) for x in batch.outputs
            ]
            if present is not None:
                outputs = [x if isinstance(x, list) else x[here] for x in outputs]
            if size is None:
                if not here:
                    continue
                outputs = [x[0] if isinstance(x, list) else Tensor.of(x[0], x.layout) for x in outputs]
            yield jax.tree.unflatten(self._tree, outputs)

    def _run(self, size: int | None) -> _Running:
        """What reads batches of this size, from where the reader stands."""
        if self._running is None or (self._running.size, self._running.threads) != (size, _threads.get_num_threads()):
            start = self._start if self._running is None else self._running.record
            self._stop()
            self._running = _Running(self._graph, size, self._seed, start)
            if start is not None and self._running.num_shards != self._shards_of(start):
                # Of an epoch that others had begun it has its part of what they had not read.
                self._left = self._running.round_size if self._left > 0 else 0
        return self._running

    @staticmethod
    def _shards_of(record: Mapping[str, Any]) -> int:
        (source,) = record["sources"].values()
        return int(source["fingerprint"].get("num_shards", 1))

    def _stop(self):
        if self._running is not None:
            self._bad += self._running.executor.bad_samples()
            self._running.close()
            self._running = None

    # --- state ------------------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """The state after the batch that the iterator returned last, as JSON."""
        running = self._run(self._batch_size) if self._running is None else self._running
        return signed({"left": max(self._left, 0), "reader": running.record})

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
            found = json.loads(state) if isinstance(state, (str, bytes, bytearray)) else dict(state)
            check_digest(found, "it")
            record, left = check_record(found["reader"], "reader"), int(found["left"])
        except (ValueError, KeyError, TypeError) as e:
            raise RuntimeError(f"{self._name}: this is not the state of a reader: {e}") from e
        self._stop()
        self._start, self._left, self._seed = record, left, int(record["seed"])

    def checkpoint(self) -> bytes:
        """`get_state` as bytes."""
        return json.dumps(self.get_state(), sort_keys=True, separators=(",", ":")).encode()

    def get_metadata(self) -> dict[str, int]:
        """Information about the records, as returned by `Pipeline.reader_meta`: "epoch_size", "shard_id", ..."""
        running = self._run(self._batch_size) if self._running is None else self._running
        return dict(running.source.metas[0])

    def bad_samples(self) -> list[BadSample]:
        """The samples that ``on_error`` has skipped or replaced so far."""
        return self._bad + ([] if self._running is None else self._running.executor.bad_samples())

    def close(self):
        """Ends the threads and closes the files. This also happens when the reader is garbage-collected."""
        if self._running is not None:
            self._start = self._running.record
            self._stop()


class _Running:
    """Reads a graph of one reader, in batches of one size.

    Attributes:
      size: of batches; None: single samples are wanted. batch_size: the same as a number.
      threads: native threads.
      source: the reader's.
    """

    def __init__(self, graph: Graph, size: int | None, seed: int, start: Mapping[str, Any] | None):
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
                else checkpoints.state_of(self.executor, [start], [(0, 1)])
            )
        except BaseException:
            self.executor.close()
            raise
        depth = _AHEAD[size is not None]
        self._runner = runner_of(self.executor, state, depth, ahead=depth)
        close = functools.partial(close_together, [self._runner], [self.executor], collected=True)
        self._finalizer = weakref.finalize(self, close_collected, close)

    def next(self) -> MadeBatch:
        """The next batch."""
        self._runner.request(1)
        return self._runner.get()

    @property
    def num_shards(self) -> int:
        """Shards of the reader."""
        return self.source.walks[0].num_shards

    @property
    def round_size(self) -> int:
        """Samples of the round where the reader stands."""
        (entry,) = self._runner.state["sources"].values()
        return self.source.walks[0].round_size(entry["cursors"][0])

    @property
    def record(self) -> dict[str, Any]:
        """Where it stands, after the batch that was taken last."""
        return checkpoints.records_of(self.executor, self._runner.state, [(0, 1)])[0]

    def close(self):
        """Ends its threads, and closes the source."""
        if self._finalizer.detach() is not None:
            close_together([self._runner], [self.executor], collected=False)


class Readers(dict[str, Any]):
    """The classes of the readers of a module of functions; a name that is not there is an AttributeError."""

    def __init__(self, functions: types.ModuleType, name: str):
        super().__init__()
        self._name = name
        for public, x in members(functions).items():
            if inspect.isfunction(x):
                self[class_name(public)] = _class_of(x, class_name(public), name)

    def __missing__(self, name: str) -> Any:
        raise AttributeError(
            of_values(f"module {self._name!r} has no attribute {name!r}{did_you_mean(name, self)}"), name=name
        )


def _class_of(function: Callable[..., Any], name: str, module: str) -> type[Reader]:
    own = [p for p in inspect.signature(Reader.__init__).parameters.values() if p.kind is p.KEYWORD_ONLY]
    given = inspect.signature(function).parameters.values()
    summary = (inspect.getdoc(function) or "").splitlines()[0]
    doc = f"{summary}\n\nThe arguments are those of `jaxdali.fn.readers.{function.__name__}`; methods are those of `Reader`."
    attributes = {"function": staticmethod(function), "__doc__": doc, "__module__": module}
    made = type(name, (Reader,), attributes)
    made.__signature__ = inspect.Signature([*given, *own])  # pyright: ignore[reportAttributeAccessIssue]
    return made
