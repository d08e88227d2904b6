"""DALI's readers of dynamic mode: those of `jaxdali.dynamic.readers`, whose batches are of DALI's classes."""

from __future__ import annotations

import inspect
import json
import operator
from collections.abc import Iterator
from typing import Any

from ...dynamic import readers as _readers
from ._values import own as _own


class ReaderState(dict[str, Any]):
    """Where a reader stands; `str` gives JSON."""

    def __str__(self) -> str:
        return json.dumps(self)


def _class_of(base: type[Any]) -> type[Any]:
    def __init__(
        self: Any,
        *positional: Any,
        max_batch_size: int | None = None,
        enable_checkpointing: bool = True,
        **arguments: Any,
    ):
        base.__init__(self, *positional, **arguments)
        self._most = base._checked(self, max_batch_size)
        self._epochs = 0  # that were read to their ends

    def next_epoch(self: Any, batch_size: int | None = None, ctx: Any = None, capture: bool = False) -> Iterator[Any]:
        """Iterates over an epoch: so many batches that they have all samples of a shard, from where the reader stands.

        Each epoch that was read to its end is followed by one of the next shard, unless ``stick_to_shard=True``. One
        that was left early, or before `set_state`, is not continued: the next one is as long as another. `ctx` and
        `capture` have no effect.

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
        return base.next_epoch(self, sized(self, batch_size))

    def sized(self: Any, batch_size: int | None) -> int | None:
        size = self._batch_size if batch_size is None else batch_size
        if self._most is not None and size is not None and size > self._most:
            raise ValueError(f"{self._name}: batch_size={size} exceeds max_batch_size={self._most}")
        return size

    def _epoch(self: Any, size: int | None) -> Iterator[Any]:
        self._run(size)
        meta = base.get_metadata(self)
        shards, shard = meta["number_of_shards"], (meta["shard_id"] + self._epochs) % meta["number_of_shards"]
        begin, end = (i * meta["epoch_size_padded"] // shards for i in (shard, shard + 1))
        for _ in range(begin, end, size or 1):
            yield from one_batch(self, size)
        self._epochs += not meta["stick_to_shard"]

    def one_batch(self: Any, size: int | None) -> Iterator[Any]:
        self._run(size)
        self._left = 1  # the base's epoch ends after a batch
        return map(_own, base._epoch(self, size))

    def __call__(self: Any, *, batch_size: int | None = None) -> Any:
        """Reads the next sample, or the next batch."""
        return next(one_batch(self, self._checked(sized(self, batch_size))))

    def get_metadata(self: Any, batch_size: int | None = None) -> dict[str, int]:
        """As `jaxdali.dynamic.readers.Reader.get_metadata` does; `batch_size` has no effect."""
        return base.get_metadata(self)

    def get_state(self: Any) -> ReaderState:
        """Where the reader stands."""
        return ReaderState(reader=base.get_state(self), epochs=self._epochs)

    def set_state(self: Any, state: Any) -> None:
        """Goes on from a state of `get_state`, or its text. ValueError: it is none."""
        try:
            parts = json.loads(state) if isinstance(state, (str, bytes)) else state
            reader, epochs = parts["reader"], operator.index(parts["epochs"])
        except (ValueError, KeyError, TypeError) as e:
            raise ValueError(f"{self._name}: this is not the state of a reader: {state!r:.200}") from e
        base.set_state(self, reader)
        self._epochs = epochs

    doc = f"{base.__doc__}\n\nmax_batch_size bounds the batch_size of epochs. enable_checkpointing has no effect: all readers have states."
    members = {
        "__init__": __init__,
        "__call__": __call__,
        "next_epoch": next_epoch,
        "_epoch": _epoch,
        "get_state": get_state,
        "set_state": set_state,
        "get_metadata": get_metadata,
        "__module__": __name__,
        "__doc__": doc,
    }
    made = type(base.__name__, (base,), members)
    signature = inspect.signature(base)
    own = [p for p in inspect.signature(__init__).parameters.values() if p.kind is p.KEYWORD_ONLY]
    made.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *own])  # pyright: ignore[reportAttributeAccessIssue]
    return made


_public = {name: _class_of(getattr(_readers, name)) for name in _readers.__all__ if name != "Reader"}
globals().update(_public)
__all__ = sorted(_public)  # pyright: ignore[reportUnsupportedDunderAll]
