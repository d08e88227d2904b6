"""Items of an external_source: pulled from a callable or iterable of the user, whose state checkpoints hold."""

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
      parallel: whether the items of a copy are taken.

    `_returned` has (argument, item) of items that were put back; they are taken before new ones.
    """

    def __init__(self, feeder: Any, arguments: int | None, cycle: str, parallel: bool):
        self.copies = Copies(feeder) if parallel else None
        self.feeder = feeder if self.copies is None else self.copies.first
        self.callables = [self.feeder]  # the callable of each worker
        self._arguments = arguments
        self._cycle = cycle
        self._iterator: Any = None
        self._is_exhausted = False
        self.has_ended_early = False  # the source ended within a batch, and gives no more items in this epoch
        self._returned: collections.deque[tuple[Any, Any]] = collections.deque()

    def divide(self, number: int) -> None:
        """Makes a copy of the callable for each worker, before the first item is taken."""
        if self.copies is not None and len(self.callables) != number:
            self.callables = self.copies.of_workers(number)

    def peek(self, argument: Any) -> Any:
        """The item that the next `take` of the same argument returns."""
        item = self.take(argument)
        self._returned.append((argument, item))
        return item

    def has_item(self, argument: Any) -> bool:
        """Whether `take` of this argument already has an item."""
        return any(a == argument for a, _ in self._returned)

    def put_back(self, items: Sequence[tuple[Any, Any]]) -> None:
        """Puts back items that were taken for a batch that was not made."""
        self._returned.extendleft(reversed(items))

    # --- state ----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any] | None:
        """The state of the source for a cursor, JSON-serializable; None if it has no state.

        Its keys, which are in checkpoints: "open" and "ended", of an iterable: whether it was begun and has not ended,
        and whether it has ended; "over": it ended within a batch; "source": the result of get_state.
        """
        state = (
            {}
            if self._arguments is not None
            else {"open": self._iterator is not None and not self._is_exhausted, "ended": self._is_exhausted}
        )
        if self.has_ended_early:
            state["over"] = True
        owner = self.stateful
        if owner is not None:
            try:
                state["source"] = _encode_state(owner.get_state())
            except Exception as e:  # raised only when a checkpoint is asked for
                state["source"] = {"unknown": f"{type(e).__name__}: {e}"}
        return state or None

    @staticmethod
    def has_source_state(state: dict[str, Any] | None) -> bool:
        """Whether a result of `state` has the state of the source, which `seek` sets."""
        return state is not None and "unknown" not in state.get("source", {"unknown": ""})

    def seek(self, state: dict[str, Any] | None) -> bool:
        """Sets the source to a result of `state`. Returns False if that is not possible."""
        can_restart = not inspect.isgenerator(self.feeder)
        self.has_ended_early = state is not None and state.get("over", False)
        if self._arguments is None:
            # The items of an iterator that is the source itself come only once, so it is not restarted.
            is_source = self._iterator is not None and self._iterator is self.feeder
            if can_restart and not is_source:
                self.restart()
                if state is not None and state["ended"]:
                    self._iterator = iter(())
                elif state is not None and state["open"]:
                    self._iterator = self._new_iterator()
            self._is_exhausted = state is not None and state["ended"]
        if state is not None and "source" in state:
            owner = self.stateful
            if owner is None:
                raise RuntimeError(
                    f"{NAME}: the checkpoint has a state of the source, but {type(self.feeder).__name__} has no set_state"
                )
            owner.set_state(_decode_state(state["source"]))
            self._returned.clear()
            return True
        # A callable with an index needs no state. An iterable that was not open stands at its beginning or end now.
        # Only states of iterables have "open".
        return self._arguments == 1 or (state is not None and can_restart and not state.get("open", True))

    @property
    def stateful(self) -> Any:
        """The object with get_state and set_state: the source, the object whose method it is, or its iterator. None: there
        is none.
        """
        source = self.feeder
        for x in (source, source.__self__ if inspect.ismethod(source) else None, self._iterator):
            if has_state(x):
                return x
        return None

    def close(self) -> None:
        """Releases the copies: no more items are taken."""
        if self.copies is not None:
            self.copies.close()

    def restart(self) -> None:
        """Restarts an iterable: the next item is the first again."""
        self._iterator = None
        self._returned.clear()

    def take(self, argument: Any) -> Any:
        """Returns the next item, or with an index the item for it. Raises StopIteration at the end of the epoch."""
        while self._returned:
            for_argument, item = self._returned.popleft()
            # Sources without an index have an order of their own. With one, an item for another argument is dropped: it
            # can be made again.
            if self._arguments != 1 or for_argument == argument:
                return item
        if self.has_ended_early:
            raise StopIteration
        if self._arguments is not None:
            return self.feeder(argument) if self._arguments else self.feeder()
        if self._iterator is None:
            self._iterator = self._new_iterator()
        try:
            item = next(self._iterator)
        except StopIteration:
            if self._cycle == "no":  # the next epoch calls it again, as it may have reset itself
                self._is_exhausted = True
                raise
            self._iterator = None
            if self._cycle == "raise":
                raise
            self._iterator = self._new_iterator()
            return next(self._iterator)  # without data, this ends the epoch instead of looping endlessly
        self._is_exhausted = False
        return item

    @property
    def why_empty(self) -> str:
        """The reason why the source has no data at the start of an epoch, and a remedy."""
        if self._arguments is not None:
            return "it raises StopIteration when it is first called; after that it is called again, for the next epoch, and must give data"
        remedy = 'cycle="raise" begins it again in each epoch'
        if inspect.isgenerator(self.feeder):
            return f"its generator is used up; pass the generator function instead: {remedy}"
        feeder_type = type(self.feeder)
        if feeder_type.__module__ in ("builtins", "itertools") and hasattr(feeder_type, "__next__"):
            return f"its {feeder_type.__name__}, an iterator, is used up; pass what it iterates over instead: {remedy}"
        return f"its {'generator function' if callable(self.feeder) else feeder_type.__name__} is used up; {remedy}"

    def _new_iterator(self) -> Any:
        """An iterator over the source from its beginning."""
        source = self.feeder
        return iter(source() if inspect.isgeneratorfunction(unwrap_partial(source)) else source)


def is_state(state: Any, arguments: int | None) -> bool:
    """Whether `state`, from a checkpoint, has the form of `Pull.state` of a source with this number of arguments."""
    if state is None:
        return True
    if not isinstance(state, dict) or (arguments is None and not state.keys() >= {"open", "ended"}):
        return False
    source = state.get("source", {"json": None})  # see `_encode_state`
    return all(isinstance(state.get(name, False), bool) for name in ("open", "ended", "over")) and (
        isinstance(source, dict) and ("json" in source or isinstance(source.get("base64"), str))
    )


def _encode_state(state: Any) -> dict[str, Any]:
    """A copy of the result of a source's get_state, in a form for JSON. The source may change the original later."""
    if isinstance(state, bytes):
        return {"base64": base64.b64encode(state).decode("ascii")}
    return {"json": json.loads(json.dumps(state))}


def _decode_state(state: dict[str, Any]) -> Any:
    return base64.b64decode(state["base64"]) if "base64" in state else copy.deepcopy(state["json"])


def unwrap_partial(f: Any) -> Any:
    """The function behind functools.partial."""
    while hasattr(f, "func") and not inspect.isfunction(f):  # functools.partial
        f = f.func
    return f
