"""The iterators as `grain.DatasetIterator`: Grain's checkpoint handler asks for that. Grain is not imported here."""

from __future__ import annotations

import abc
import json
import sys
from typing import Any


def register(cls: type) -> bool:
    """Makes a class of iterators a virtual subclass of `grain.DatasetIterator`, if Grain is imported.

    Returns:
      Whether Grain is imported, and the class was none before.
    """
    base = getattr(sys.modules.get("grain"), "DatasetIterator", None)
    if not isinstance(base, abc.ABCMeta) or issubclass(cls, base):
        return False
    base.register(cls)
    return True


class DecodableState(dict[str, Any]):
    """A state for the handler of a Grain that was imported after the iterator was made.

    The handler asks whether the iterator is a `grain.DatasetIterator` before it asks for the state, so before the class
    could be registered. It then takes the iterator for that of a `grain.DataLoader`, whose states are JSON in bytes:
    it decodes what `get_state` returns, and calls `set_state` with bytes.
    """

    def decode(self) -> str:
        """Returns the state as JSON."""
        return json.dumps(self, indent=4)
