"""DALI's `Checkpoint`: the states of several readers and generators in one text."""

from __future__ import annotations

import json
import os
import pathlib
import re
import string
from typing import Any

_VERSION = 1


class Checkpoint:
    """Collects the states of registered readers and generators (`random.RNG`), writes them, and restores them.

    Example:
      >>> checkpoint = ndd.checkpoint.Checkpoint()
      >>> checkpoint.register(reader, "reader")
      >>> checkpoint.register(rng, "rng")
      >>> checkpoint.collect()
      >>> checkpoint.save("checkpoint_{seq:04d}.json")

    A later process calls `load` with the same pattern, and registers new objects by the same names, which gives them their states.
    """

    def __init__(self):
        self.clear()

    def clear(self) -> None:
        """Forgets everything: what was registered, and the states."""
        self._registered: dict[str, Any] = {}
        self._states: dict[str, dict[str, str]] = {}
        self._pending: set[str] = set()  # states that no object has got yet
        self._complete = self._loaded = False

    @property
    def is_complete(self) -> bool:
        """Whether `collect` has given the states. Nothing can be registered then."""
        return self._complete

    @property
    def is_loaded(self) -> bool:
        """Whether `load` or `deserialize` has given the states."""
        return self._loaded

    @property
    def names(self) -> list[str]:
        """The names of what is registered."""
        return list(self._registered)

    def register(self, op: Any, name: str | None = None) -> str:
        """Adds a reader or a generator. If the states are loaded, it gets its state.

        Args:
          op: an object with `get_state` and `set_state`.
          name: its name, which replaces an earlier object of that name; None: the name that it has, or ``"__op_0"`` and so on.

        Returns:
          The name.

        Raises:
          TypeError: it has no state.
          RuntimeError: the checkpoint is complete.
          KeyError: a state of this name was not loaded.
          ValueError: the state of this name belongs to an object of another type.
        """
        if not (callable(getattr(op, "get_state", None)) and callable(getattr(op, "set_state", None))):
            raise TypeError(f"Checkpoint.register takes a reader or a generator, got {type(op).__name__}")
        if name is None:
            known = next((n for n, x in self._registered.items() if x is op), None)
            if known is not None:
                return known
            name = f"__op_{sum(n.startswith('__op_') for n in self._registered)}"
        if self._complete:
            raise RuntimeError(f"the checkpoint is complete, so {name!r} can't be registered: call clear() first")
        if self._loaded and name not in self._states:
            raise KeyError(f"the checkpoint that was loaded has no state named {name!r}; there are {sorted(self._states)}")
        self._registered[name] = op
        if self._loaded:
            self._apply(name)
        return name

    def collect(self) -> None:
        """Takes the states of all registered objects."""
        self._states = {n: {"type": type(x).__name__, "state": str(x.get_state())} for n, x in self._registered.items()}
        self._pending.clear()
        self._complete, self._loaded = True, False

    def restore(self) -> None:
        """Gives the objects that were registered before their states were loaded or set these states."""
        for name in [n for n in self._registered if n in self._pending]:
            self._apply(name)

    def get_state(self, name: str) -> str:
        """The state of this name, as a text. Raises KeyError if there is none."""
        return self._states[name]["state"]

    def set_state(self, name: str, value: Any, op_type: Any = None) -> None:
        """Sets a state, which `restore` gives to the object of this name.

        Args:
          name: of the object.
          value: its state.
          op_type: its class; None: that of the object registered by this name.
        """
        kind = type(self._registered[name]) if op_type is None and name in self._registered else op_type
        self._states[name] = {"type": kind if isinstance(kind, str) else getattr(kind, "__name__", ""), "state": str(value)}
        self._pending.add(name)

    def serialize(self) -> str:
        """The states as JSON. Raises RuntimeError if there are none."""
        if not self._states:
            raise RuntimeError("the checkpoint is empty: call collect() first")
        return json.dumps({"version": _VERSION, "states": self._states})

    def deserialize(self, data: str) -> None:
        """Takes the states from the result of `serialize`. Raises ValueError if it is not one, or of another version."""
        try:
            found = json.loads(data)
            version, states = found["version"], found["states"]
            states = {str(n): {"type": str(s["type"]), "state": str(s["state"])} for n, s in states.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise ValueError(f"this is not a checkpoint: {e}") from e
        if version != _VERSION:
            raise ValueError(f"the checkpoint has version {version}; this library reads version {_VERSION}")
        self._states, self._pending = states, {*states}
        self._complete, self._loaded = False, True

    def save(self, filename: str) -> str:
        """Writes the states to a file.

        Args:
          filename: a pattern with ``{seq}`` or, for example, ``{seq:04d}``: the number after the highest one that is there.

        Returns:
          The name of the file.
        """
        data = self.serialize()
        numbers = _numbers(filename)
        path = pathlib.Path(filename.format(seq=max(numbers, default=-1) + 1))
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        beside.write_text(data, encoding="utf-8")
        os.replace(beside, path)  # a process that is killed leaves no half of a file
        return str(path)

    def load(self, filename: str) -> str:
        """Reads the states from the file with the highest number.

        Args:
          filename: the pattern of `save`.

        Returns:
          The name of the file.

        Raises:
          FileNotFoundError: there is none.
        """
        numbers = _numbers(filename)
        if not numbers:
            raise FileNotFoundError(f"there is no checkpoint {filename!r}")
        path = filename.format(seq=max(numbers))
        self.deserialize(pathlib.Path(path).read_text(encoding="utf-8"))
        return path

    def _apply(self, name: str):
        found, op = self._states[name], self._registered[name]
        if found["type"] not in ("", type(op).__name__):
            raise ValueError(f"the state named {name!r} is that of a {found['type']}, not of a {type(op).__name__}")
        op.set_state(found["state"])
        self._pending.discard(name)


def _numbers(pattern: str) -> list[int]:
    """The numbers of the files that a pattern with ``{seq}`` names."""
    parts = list(string.Formatter().parse(pattern))
    if sum(field == "seq" for _, field, _, _ in parts) != 1 or any(field not in (None, "seq") for _, field, _, _ in parts):
        raise ValueError(f"the name of a checkpoint must contain {{seq}} once, got {pattern!r}")
    folder = pathlib.Path(pattern).parent
    expression = re.compile("".join(re.escape(text) + (r"(\d+)" if field else "") for text, field, _, _ in parts))
    there = (expression.fullmatch(str(folder / name)) for name in (os.listdir(folder) if folder.is_dir() else ()))
    plain = (expression.fullmatch(name) for name in (os.listdir(folder) if str(folder) == "." else ()))
    return sorted({int(m[1]) for m in (*there, *plain) if m})
