"""DALI's readers of dynamic mode: those of `jaxdali.dynamic.readers`, whose batches are of DALI's classes."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

from ...dynamic import readers as _readers
from ._values import own as _own


class ReaderState(dict[str, Any]):
    """Where a reader stands; `str` gives JSON."""

    def __str__(self) -> str:
        return json.dumps(self)


def _class_of(base: type[Any]) -> type[Any]:
    def __init__(self: Any, *positional: Any, max_batch_size: int | None = None, enable_checkpointing: bool = True, **arguments: Any):
        base.__init__(self, *positional, **arguments)
        self._most = base._checked(self, max_batch_size)

    def next_epoch(self: Any, batch_size: int | None = None, ctx: Any = None, capture: bool = False) -> Iterator[Any]:
        """Iterates over the next epoch, as `jaxdali.dynamic.readers.Reader.next_epoch` does; `ctx` and `capture` have no effect."""
        size = self._batch_size if batch_size is None else batch_size
        if self._most is not None and size is not None and size > self._most:
            raise ValueError(f"{self._name}: batch_size={size} exceeds max_batch_size={self._most}")
        return map(_own, base.next_epoch(self, batch_size))

    def get_metadata(self: Any, batch_size: int | None = None) -> dict[str, int]:
        """As `jaxdali.dynamic.readers.Reader.get_metadata` does; `batch_size` has no effect."""
        return base.get_metadata(self)

    def get_state(self: Any) -> ReaderState:
        """Where the reader stands."""
        return ReaderState(base.get_state(self))

    doc = f"{base.__doc__}\n\nmax_batch_size bounds the batch_size of epochs. enable_checkpointing has no effect: all readers have states."
    members = {
        "__init__": __init__,
        "next_epoch": next_epoch,
        "get_state": get_state,
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
