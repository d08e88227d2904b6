"""Iterators with `peek`, like CLU's PeekableIterator. They don't need the package clu."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any

import jax

from ..._core import names as _names
from ..._core.system import Thread
from ..._core.tracebacks import boundaries
from ..._data.source import SampleIds
from ..._iterator.batch import arrays_of
from ..._iterator.shared import SharedStream
from ._placement import JaxOptions
from .iterator import DALIGenericIterator, iterator_factory, takes_fields_of


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """Type and shape of an array: replaces ``clu.data.dataset_iterator.ArraySpec`` if clu is not installed."""

    dtype: Any
    shape: tuple[int, ...]


@functools.cache
def _array_spec() -> Callable[..., Any]:
    """CLU's `ArraySpec` if clu is installed, so that isinstance checks against it hold.

    It is imported late, as it may import TensorFlow.
    """
    if importlib.util.find_spec("clu") is None:
        return ArraySpec
    from clu.data import dataset_iterator  # pyright: ignore[reportMissingImports]

    return dataset_iterator.ArraySpec


@boundaries
class DALIGenericPeekableIterator(DALIGenericIterator):
    """A `DALIGenericIterator` that can show its next batch without taking it. It is thread-safe.

    Shape and type of the outputs must not change from batch to batch, which would be a ValueError; those of an output
    that is a list (`ragged`) may.

    It takes the arguments of `DALIGenericIterator`.
    """

    def _store_options(self, *args: Any, **kwargs: Any):
        """Stores the options as `DALIGenericIterator` does, and forgets the peeked batch."""
        self._peeked: dict[str, Any] | None = None  # the batch that `next()` will return
        self._expected: dict[str, Any] | None = None  # shapes and types of the first batch
        # Of the batch taken last: the samples of each executor, and the numbers of those that belong to the epoch.
        self._last: tuple[Sequence[SampleIds], Any] = (), None
        super()._store_options(*args, **kwargs)

    def __iter__(self):
        with self._stream.turn:
            if self._peeked is None:
                return super().__iter__()
            self._stream.begin_loop()  # the loop takes the peeked batch
        return self

    def __next__(self) -> dict[str, Any]:
        with self._stream.turn:
            batches, valid = self._take_batches()
            self._last = [b.ids for b in batches], valid
            batch, self._peeked = self._peeked, None
            return self._checked(self._to_dict(batches, valid)) if batch is None else batch

    def reset(self):
        """Begins the next epoch; see `DALIGenericIterator`."""
        with self._stream.turn:
            super().reset()

    def get_state(self) -> dict[str, Any]:
        """The state after the batch that was taken last; a batch that was only peeked at comes again."""
        with self._stream.turn:
            return super().get_state()

    def set_state(self, state: Mapping[str, Any] | Sequence[bytes], *, restart_epoch: bool = False):
        """Goes to a state from `get_state`; see `DALIGenericIterator`. A peeked batch is discarded."""
        with self._stream.turn:
            super().set_state(state, restart_epoch=restart_epoch)
            self._peeked = None
            self._last = (), None

    def peek(self) -> dict[str, Any]:
        """Returns the batch that the next ``next()`` returns, with the same arrays: donating an array removes it from
        that batch, too.

        Raises:
          StopIteration: at the end of an epoch, as ``next()``.
        """
        with self._stream.turn:
            if self._peeked is None:
                self._peeked = self._checked(self._to_dict(*self._take_batches(self._stream.look)))
            return self._peeked.copy()

    def peek_async(self) -> Future[dict[str, Any]]:
        """Returns a future of `peek`. A ``next()`` before the future is done may be served first.

        With `loading_processes` it waits for `peek`, because transfers must begin in one order in all processes.
        """
        future: Future[dict[str, Any]] = Future()

        def run_peek():
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(self.peek())
                except BaseException as e:
                    future.set_exception(e)

        if isinstance(self._stream, SharedStream):
            run_peek()
        else:
            Thread(target=run_peek, name="jaxdali-peek", daemon=True).start()
        return future

    @property
    def element_spec(self) -> dict[str, Any]:
        """Type and shape of each entry: ``{name: ArraySpec(dtype, shape)}``, CLU's class if clu is installed. Peeks if
        necessary.

        Metadata are left out. A ragged output has a tuple of two, or a list with one for each sample of the first
        batch.
        """
        with self._stream.turn:
            if self._expected is None:
                self.peek()
            assert self._expected is not None
            return jax.tree.map(lambda x: _array_spec()(dtype=x.dtype, shape=x.shape), self._expected)

    @property
    def is_nonpadding(self) -> jax.Array:
        """A mask of the samples of the last batch that belong to its epoch: bool, over the batch axis, on the outputs'
        sharding.

        False for samples that repeat a shard's last one, or come from the next epoch.
        """
        with self._stream.turn:
            ids, valid = self._last
            return self._mask(ids, valid)

    def _checked(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Checks that a batch has the shapes and types of the first one, and returns it."""
        specs = {
            name: jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), x)
            for name, x in arrays_of(batch).items()
        }
        if self._expected is None:
            self._expected = specs
        for name, expected in self._expected.items():
            if not isinstance(expected, list) and specs[name] != expected:
                raise ValueError(
                    f"a peekable iterator's outputs must keep their type and shape, but {name!r} changed from "
                    f"{_described(expected)} to {_described(specs[name])}"
                )
        return batch


def _described(specs: Any) -> str:
    return ", ".join(f"{x.dtype}{list(x.shape)}" for x in jax.tree.leaves(specs))


@takes_fields_of(JaxOptions)
def peekable_data_iterator(
    pipeline_fn: Callable[..., Any] | None, options: JaxOptions
) -> Callable[..., DALIGenericPeekableIterator]:
    """`data_iterator` for peekable iterators: the function that it returns makes a `DALIGenericPeekableIterator`.

    Args:
      pipeline_fn: the definition.
      output_map, size, reader_name, auto_reset, last_batch_padded, last_batch_policy: see `data_iterator`.
      prepare_first_batch, sharding, devices, mask_name, ragged, ragged_fill, repeat: the same.
      workers, loading_processes, checkpoints, enable_conditionals: the same.
    """
    return iterator_factory(DALIGenericPeekableIterator, pipeline_fn, options)


if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(
        __name__, globals(), "DALIGenericPeekableIterator peekable_data_iterator"
    )
