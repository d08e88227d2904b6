"""Where external_source gets its items: a callable or iterable of the user, and its state."""

from __future__ import annotations

import base64
import collections
import copy
import inspect
import json
from collections.abc import Sequence
from typing import Any

from .copies import Copies, has_state
from .external_data import NAME


class Pull:
    """One shard's callable or iterable, item by item: an item is a batch, or with batch=False a sample.

    Args:
      feeder: the user's callable or iterable.
      arguments: the number of arguments of a callable; None: it is an iterable.
      cycle: "no", "raise" or "quiet".
      parallel: whether it takes the items of a copy.
    """

    def __init__(self, feeder: Any, arguments: int | None, cycle: str, parallel: bool):
        self.copies = Copies(feeder) if parallel else None
        self.feeder = feeder if self.copies is None else self.copies.first
        self.callables = [self.feeder]  # what each worker calls
        self._arguments = arguments
        self._cycle = cycle
        self._iterator: Any = None
        self._ended = False
        self.over = False  # it ended within a batch: nothing more comes in this epoch
        # (argument, item), to be taken before new ones.
        self._kept: collections.deque[tuple[Any, Any]] = collections.deque()

    def divide(self, number: int) -> None:
        """Makes a copy of the callable for each worker, before the first item is taken."""
        if self.copies is not None and len(self.callables) != number:
            self.callables = self.copies.of_workers(number)

    def peek(self, argument: Any) -> Any:
        """The item that the next `take` of the same argument returns."""
        item = self.take(argument)
        self._kept.append((argument, item))
        return item

    def keeps(self, argument: Any) -> bool:
        """Whether `take` of this argument already has an item."""
        return any(a == argument for a, _ in self._kept)

    def put_back(self, items: Sequence[tuple[Any, Any]]) -> None:
        """Puts back items that were taken for a batch that was not made."""
        self._kept.extendleft(reversed(items))

    # --- state ----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any] | None:
        """The state of the source for a cursor, JSON-serializable; None if it has no state."""
        state = (
            {}
            if self._arguments is not None
            else {"open": self._iterator is not None and not self._ended, "ended": self._ended}
        )
        if self.over:
            state["over"] = True
        target = self._stateful()
        if target is not None:
            try:
                state["source"] = _encoded(target.get_state())
            except Exception as e:  # raised only when a checkpoint is asked for
                state["source"] = {"unknown": f"{type(e).__name__}: {e}"}
        return state or None

    def seek(self, state: dict[str, Any] | None) -> bool:
        """Sets the source to this state. Returns False if that is not possible."""
        fresh = not inspect.isgenerator(self.feeder)
        self.over = state is not None and state.get("over", False)
        if self._arguments is None:
            # Its items come only once, so none may be lost.
            own = self._iterator is not None and self._iterator is self.feeder
            if fresh and not own:
                self.restart()
                if state is not None and state["ended"]:
                    self._iterator = iter(())
                elif state is not None and state["open"]:
                    self._iterator = self._fresh()
            self._ended = state is not None and state["ended"]
        if state is not None and "source" in state:
            target = self._stateful()
            if target is None:
                raise RuntimeError(
                    f"{NAME}: the checkpoint has a state of the source, but {type(self.feeder).__name__} has no set_state"
                )
            target.set_state(_decoded(state["source"]))
            self._kept.clear()
            return True
        return self._arguments == 1 or (state is not None and fresh and not state["open"])

    def _stateful(self) -> Any:
        """The object with get_state and set_state: the source, the one whose method it is, or the iterator over it."""
        source = self.feeder
        for x in (source, source.__self__ if inspect.ismethod(source) else None, self._iterator):
            if has_state(x):
                return x
        return None

    def close(self) -> None:
        """Says that no more items are taken."""
        if self.copies is not None:
            self.copies.close()

    def restart(self) -> None:
        """Restarts an iterable: the next item is the first again."""
        self._iterator = None
        self._kept.clear()

    def take(self, argument: Any) -> Any:
        while self._kept:
            for_argument, item = self._kept.popleft()
            if self._arguments != 1 or for_argument == argument:  # others define their own order
                return item
        if self.over:
            raise StopIteration
        if self._arguments is not None:
            return self.feeder(argument) if self._arguments else self.feeder()
        if self._iterator is None:
            self._iterator = self._fresh()
        try:
            item = next(self._iterator)
        except StopIteration:
            if self._cycle == "no":  # the next epoch calls it again, as it may have reset itself
                self._ended = True
                raise
            self._iterator = None
            if self._cycle == "raise":
                raise
            self._iterator = self._fresh()
            return next(self._iterator)  # without data, this ends the epoch instead of looping endlessly
        self._ended = False
        return item

    @property
    def why_empty(self) -> str:
        """Why the source has no data at the start of an epoch."""
        if self._arguments is not None:
            return "it raises StopIteration when it is first called; after that it is called again, for the next epoch, and must give data"
        again = 'cycle="raise" begins it again in each epoch'
        if inspect.isgenerator(self.feeder):
            return f"its generator is used up; pass the generator function instead: {again}"
        of = type(self.feeder)
        if of.__module__ in ("builtins", "itertools") and hasattr(of, "__next__"):
            return f"its {of.__name__}, an iterator, is used up; pass what it iterates over instead: {again}"
        return f"its {'generator function' if callable(self.feeder) else of.__name__} is used up; {again}"

    def _fresh(self) -> Any:
        source = self.feeder
        return iter(source() if inspect.isgeneratorfunction(unwrapped(source)) else source)


def _encoded(state: Any) -> dict[str, Any]:
    """A copy of what a source's get_state returned, as the source may change it later."""
    if isinstance(state, bytes):
        return {"base64": base64.b64encode(state).decode("ascii")}
    return {"json": json.loads(json.dumps(state))}


def _decoded(state: dict[str, Any]) -> Any:
    return base64.b64decode(state["base64"]) if "base64" in state else copy.deepcopy(state["json"])


def unwrapped(f: Any) -> Any:
    """The function behind functools.partial."""
    while hasattr(f, "func") and not inspect.isfunction(f):  # functools.partial
        f = f.func
    return f
