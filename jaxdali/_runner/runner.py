"""`Runner`: makes the batches of an executor one after the other; and what its items stand for."""

from __future__ import annotations

from typing import Any, Protocol

from .._batch.batch import FinishedBatch


class Runner(Protocol):
    """Makes batches, ahead or on demand. One thread at a time takes them.

    Attributes:
      depth: batches that may be requested before the first one is taken.
      state: the executor's state after the batch that `get` returned last, regardless of batches made ahead.
    """

    depth: int
    state: dict[str, Any]

    @property
    def at_end(self) -> bool:
        """Whether the next `get` raises StopIteration, as far as that is known without waiting."""
        ...

    @property
    def busy(self) -> bool:
        """Whether a thread still runs after `close`, which could not wait for it."""
        ...

    def begin_batches(self) -> None:
        """Builds the executor, the first time. Reads the sources that belong to the caller's thread."""
        ...

    def request(self, batches: int) -> int:
        """Makes this many more batches, unless the runner makes batches ahead without requests.

        Returns:
          For how many of them `get` will return a batch or raise an error. These are fewer at the end of the data.
        """
        ...

    def get(self) -> FinishedBatch:
        """The next batch. Raises the error of making it; StopIteration at the end of the data, until `restart`."""
        ...

    def peek(self) -> FinishedBatch:
        """Returns or raises what the next `get` does, without taking it."""
        ...

    def wait(self) -> bool:
        """Waits until the next `get` does not have to wait. Returns False at the end of the data, True for a batch or
        an error.
        """
        ...

    def ended(self) -> bool:
        """Whether the next `get` raises StopIteration. Waits until that is known, for batches that were requested."""
        ...

    def restart(self) -> None:
        """Continues with the next epoch after `get` has reached the end of the data."""
        ...

    def park(self) -> None:
        """Ends the threads, if there are any, and keeps what was made. They start again when a batch is requested."""
        ...

    def join(self) -> None:
        """Waits for the threads after `close`, without a time limit."""
        ...

    def close(self, collected: bool = False) -> None:
        """Stops the runner. `collected`: whether it was garbage-collected; otherwise the user closes it."""
        ...


def result_of(kind: str, content: Any) -> FinishedBatch:
    """Returns `content` if it is a batch. Raises it if it is an error, and StopIteration at the end of the data.

    Args:
      kind: "batch", "error" or "end".
    """
    if kind == "end":
        raise StopIteration
    if kind == "error":
        raise content
    return content
