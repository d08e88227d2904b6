"""DALI's readers of dynamic mode: the readers of `jaxdali.dynamic.readers` with batches of DALI's classes."""

from __future__ import annotations

import inspect
import json
import operator
from collections.abc import Iterator
from typing import Any

from ..._core.errors import quoted
from ..._core.names import suggests_names
from ..._core.tracebacks import boundary as _boundary
from ...dynamic import readers as _readers
from ._functions import missing_name_error as _missing_name_error
from ._values import to_dali_classes as _to_dali_classes


class ReaderState(dict[str, Any]):
    """The state of a reader; `str` returns it as JSON."""

    def __str__(self) -> str:
        return json.dumps(self)


def _class_of(base: type[Any]) -> type[Any]:
    """Makes a class with the behaviour of DALI's reader from a class of `jaxdali.dynamic.readers`.

    The functions below are its methods, and replace those of `base`.
    """

    def __init__(
        self: Any,
        *positional: Any,
        max_batch_size: int | None = None,
        enable_checkpointing: bool = True,
        **arguments: Any,
    ):
        base.__init__(self, *positional, **arguments)
        self._max_batch_size = base._checked(self, max_batch_size)
        self._epochs = 0  # number of epochs that were read to their ends

    def next_epoch(self: Any, batch_size: int | None = None, ctx: Any = None, capture: bool = False) -> Iterator[Any]:
        """Iterates over an epoch: as many batches as hold all samples of a shard, from the reader's position.

        An epoch that was read to its end is followed by one of the next shard, unless ``stick_to_shard=True``. An epoch
        that was left early, or before `set_state`, is not continued: the next one has full length. `ctx` and `capture`
        have no effect.

        Args:
          batch_size: number of samples in a batch; None: as in the constructor, or single samples.

        Returns:
          An iterator over tuples (or dicts) with an entry for each output of the reader: a `Batch`, or a `Tensor`
          without a batch size.

        Raises:
          ValueError: `batch_size` exceeds `max_batch_size`.
          SampleError: raised by the iterator if a record can't be read. The next call of `next_epoch` continues with
            the next batch.
        """
        return base.next_epoch(self, checked_size(self, batch_size))

    def checked_size(self: Any, batch_size: int | None) -> int | None:
        """The batch size of an epoch: as passed, or that of the reader; None: single samples. Checks the maximum."""
        size = self._batch_size if batch_size is None else batch_size
        if self._max_batch_size is not None and size is not None and size > self._max_batch_size:
            raise ValueError(f"{self._name}: batch_size={size} exceeds max_batch_size={self._max_batch_size}")
        return size

    def _epoch(self: Any, size: int | None) -> Iterator[Any]:
        """Yields the outputs of each batch of an epoch, see `next_epoch`."""
        self._runner_for(size)
        meta = base.get_metadata(self)
        # The shard of this epoch: a reader moves on to the next shard after each epoch that was read to its end.
        shards, shard = meta["number_of_shards"], (meta["shard_id"] + self._epochs) % meta["number_of_shards"]
        # The samples of the shard, by the number of the first one and that behind the last one.
        begin, end = (i * meta["epoch_size_padded"] // shards for i in (shard, shard + 1))
        for _ in range(begin, end, size or 1):
            yield from read_batch(self, size)
        self._epochs += not meta["stick_to_shard"]

    def read_batch(self: Any, size: int | None) -> Iterator[Any]:
        """Yields the outputs of one batch; or of one sample, if it could be read."""
        self._runner_for(size)
        self._num_remaining = 1  # so that the epoch of the base class ends after one batch
        return map(_to_dali_classes, base._epoch(self, size))

    def __call__(self: Any, *, batch_size: int | None = None) -> Any:
        """Reads the next sample, or the next batch."""
        return next(read_batch(self, self._checked(checked_size(self, batch_size))))

    def get_metadata(self: Any, batch_size: int | None = None) -> dict[str, int]:
        """As `jaxdali.dynamic.readers.Reader.get_metadata` does; `batch_size` has no effect."""
        return base.get_metadata(self)

    def get_state(self: Any) -> ReaderState:
        """The state of the reader."""
        return ReaderState(reader=base.get_state(self), epochs=self._epochs)

    def set_state(self: Any, state: Any) -> None:
        """Continues from a result of `get_state`, or its text. Raises ValueError if `state` is no such state."""
        try:
            parts = json.loads(state) if isinstance(state, (str, bytes)) else state
            reader, epochs = parts["reader"], operator.index(parts["epochs"])
        except (ValueError, KeyError, TypeError, RecursionError) as e:
            raise ValueError(f"{self._name}: this is not the state of a reader: {quoted(state)}") from e
        base.set_state(self, reader)
        self._epochs = epochs

    doc = f"{base.__doc__}\n\nmax_batch_size bounds the batch_size of epochs. enable_checkpointing has no effect: all readers have states."
    for method in (__init__, __call__, next_epoch, _epoch, get_state, set_state, get_metadata):
        method.__qualname__ = f"{base.__name__}.{method.__name__}"  # Python's messages about arguments have it
    members = {
        "__init__": __init__,
        "__call__": __call__,
        "next_epoch": suggests_names(next_epoch),
        "_epoch": _epoch,
        "get_state": get_state,
        "set_state": set_state,
        "get_metadata": get_metadata,
        "__module__": __name__,
        "__doc__": doc,
    }
    cls = type(base.__name__, (base,), members)
    signature = inspect.signature(base)
    extra_parameters = [p for p in inspect.signature(__init__).parameters.values() if p.kind is p.KEYWORD_ONLY]
    cls.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *extra_parameters])  # pyright: ignore[reportAttributeAccessIssue]
    return cls


_public = {name: _class_of(getattr(_readers, name)) for name in _readers.__all__ if name != "Reader"}
globals().update(_public)
__all__ = sorted(_public)  # pyright: ignore[reportUnsupportedDunderAll]


@_boundary
def __getattr__(name: str) -> Any:
    raise _missing_name_error(__name__, name, _public)
