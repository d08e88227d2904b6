"""`Runner`: makes the batches of an executor one after the other."""

from __future__ import annotations

from typing import Any, Protocol

from .._batch.batch import Batch


class Runner(Protocol):
    """Makes batches, ahead or when they are asked for; one thread at a time takes them.

    Attributes:
      state: the executor's, after the batch that `get` returned last, whatever was made ahead.
    """

    state: dict[str, Any]

    @property
    def at_end(self) -> bool:
        """Whether the next `get` raises StopIteration, as far as that is known without waiting."""
        ...

    @property
    def busy(self) -> bool:
        """Whether a thread still runs: after `close`, when it could not be waited for."""
        ...

    def ask(self) -> None:
        """Builds the executor, the first time; has sources read that belong to the caller's thread."""
        ...

    def request(self, batches: int) -> int:
        """Has so many more batches made, if it makes none by itself. Returns how many more `get` will return, or raise errors for."""
        ...

    def get(self) -> Batch:
        """The next batch. Raises what making it raised; StopIteration at the end of the data, until `restart`."""
        ...

    def peek(self) -> Batch:
        """What the next `get` gives or raises, without taking it."""
        ...

    def wait(self) -> bool:
        """Waits until the next `get` need not. Returns False when the data are at their end, True for a batch or an error."""
        ...

    def ended(self) -> bool:
        """`at_end`, once it is known of what was requested."""
        ...

    def restart(self) -> None:
        """Goes on with the next epoch after the end of the data was reached by `get`."""
        ...

    def park(self) -> None:
        """Ends the threads, if there are any, and keeps what was made; they start again when a batch is asked for."""
        ...

    def join(self) -> None:
        """Waits for the threads after `close`, however long it takes."""
        ...

    def close(self, collected: bool = False) -> None:
        """Stops. `collected`: nobody uses it any more; else its user closes it."""
        ...
