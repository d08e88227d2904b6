"""DALI's readers of dynamic mode: those of `jaxdali.dynamic.readers`, whose batches are of DALI's classes."""

from __future__ import annotations

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
    def next_epoch(self: Any, batch_size: int | None = None, ctx: Any = None, capture: bool = False) -> Iterator[Any]:
        """Iterates over the next epoch, as `jaxdali.dynamic.readers.Reader.next_epoch` does; `ctx` and `capture` have no effect."""
        return map(_own, base.next_epoch(self, batch_size))

    def get_state(self: Any) -> ReaderState:
        """Where the reader stands."""
        return ReaderState(base.get_state(self))

    members = {"next_epoch": next_epoch, "get_state": get_state, "__module__": __name__, "__doc__": base.__doc__}
    made = type(base.__name__, (base,), members)
    made.__signature__ = base.__signature__  # pyright: ignore[reportAttributeAccessIssue]
    return made


_public = {name: _class_of(getattr(_readers, name)) for name in _readers.__all__ if name != "Reader"}
globals().update(_public)
__all__ = sorted(_public)  # pyright: ignore[reportUnsupportedDunderAll]
