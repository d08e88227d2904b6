"""The states of several readers and generators, in one file."""

from __future__ import annotations

import json
import os
import pathlib
import re
import string
from typing import Any

VERSION = 1  # of the file's format
_UNNAMED = "__op_"  # begins the names of objects that were registered without one


class Checkpoint:
    """Collects the states of readers and generators, writes them to a file, and gives them back to the objects of
    another process.

    To save, register the objects, and call `collect` and `save`. To restore, call `load`, and register new objects with
    the same names: each gets its state when it is registered, and must not be used before. A checkpoint is for one
    thread.

    Examples:
      >>> state = ndd.checkpoint.Checkpoint()
      >>> state.register(reader, "reader")
      >>> state.register(generator, "generator")
      >>> state.collect()
      >>> state.save("state_{seq:04d}.json")
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Removes all objects and states."""
        self._objects: dict[str, Any] = {}  # registered ones by name
        self._states: dict[str, Any] = {}
        self._types: dict[str, str | None] = {}  # names of the classes of states' objects; None: not checked
        self._pending: set[str] = set()  # names of states that are not yet applied to their objects
        self._complete = self._loaded = False

    @property
    def is_complete(self) -> bool:
        """Whether the states were taken by `collect`."""
        return self._complete

    @property
    def is_loaded(self) -> bool:
        """Whether the states come from a file or a text."""
        return self._loaded

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the registered objects."""
        return tuple(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, name: Any) -> bool:
        return str(name) in self._objects

    def register(self, op: Any, name: str | None = None) -> str:
        """Adds an object. If its state is known and not yet applied, the object gets that state.

        Args:
          op: a reader or a generator.
          name: None: a name by the number of objects registered so far, or the name that the object already has.
            Another object of the same type may take the place of one with this name.

        Returns:
          The name.

        Raises:
          TypeError: the object has no state, or is of another type than the object or the state with this name.
          ValueError: the name is empty, or begins with "__op_".
          RuntimeError: the object already has another name, or the states were collected; call `clear` first.
          KeyError: the checkpoint was loaded, and has no state of this name.
        """
        if not all(callable(getattr(op, method, None)) for method in ("get_state", "set_state")):
            raise TypeError(f"Checkpoint.register takes readers and generators (random.RNG), got {type(op).__name__}")
        registered_name = next((n for n, x in self._objects.items() if x is op), None)
        if name is None:
            name = registered_name or f"{_UNNAMED}{len(self._objects)}"
        elif not name or name.startswith(_UNNAMED):
            raise ValueError(f'a name must not be empty, and must not begin with "{_UNNAMED}", got {name!r}')
        elif registered_name not in (None, name):
            raise RuntimeError(f"the object is registered as {registered_name!r} already, so it can't be {name!r}")
        if name not in self._objects:
            if self._complete:
                raise RuntimeError(f"{name!r} can't be registered after collect(): call clear() first")
            if self._loaded and name not in self._states:
                raise KeyError(
                    f"the loaded checkpoint has no state of {name!r}; it has those of {', '.join(map(repr, self._states))}"
                )
        elif type(self._objects[name]) is not type(op):
            old_type = type(self._objects[name]).__name__
            raise TypeError(f"{name!r} is a {old_type}, so a {type(op).__name__} can't take its place")
        self._check_type(name, op)
        self._objects[name] = op
        self._apply(name)
        return name

    def _check_type(self, name: str, op: Any) -> None:
        """Raises TypeError if the state that the object is to get is that of another class."""
        expected = self._types.get(name) if name in self._pending else None
        if expected is not None and expected != type(op).__qualname__:
            raise TypeError(
                f"the state of {name!r} is that of a {expected}, but the object is a {type(op).__qualname__}"
            )

    def _apply(self, name: str) -> None:
        """Gives an object its state, if it has one that is not yet applied."""
        if name in self._pending:
            self._objects[name].set_state(self._states[name])
            self._pending.discard(name)

    def get_state(self, name: str) -> Any:
        """The state of a registered object as it was collected or set, or as a text after `load`; None if there is none
        yet.
        """
        if name not in self:
            raise KeyError(f"no object is registered as {name!r}")
        return self._states.get(str(name))

    def set_state(self, name: str, value: Any, op_type: type | str | None = None) -> None:
        """Sets a state. Its object gets it from `restore`, or when it is registered.

        Args:
          value: what the object's `get_state` returned, or its text.
          op_type: the class of the object, or its name, which is then checked.

        Raises:
          KeyError: the states were collected, and no object has this name.
          TypeError: `op_type` is neither a class nor a name.
        """
        if self._complete and name not in self:
            raise KeyError(f"no object is registered as {name!r}")
        if op_type is not None and not isinstance(op_type, (str, type)):
            raise TypeError(f"op_type must be a class or its name, got {op_type!r}")
        self._states[str(name)] = value
        self._types[str(name)] = op_type.__qualname__ if isinstance(op_type, type) else op_type
        self._pending.add(str(name))

    def collect(self) -> None:
        """Takes the states of all registered objects."""
        self._states = {n: x.get_state() for n, x in self._objects.items()}
        self._types = {n: type(x).__qualname__ for n, x in self._objects.items()}
        self._pending = set()
        self._complete, self._loaded = True, False

    def restore(self) -> None:
        """Gives the registered objects those states that were not applied to them yet.

        Without any state it does nothing.

        Raises:
          RuntimeError: a state has no object, or an object has no state.
          TypeError: a state is that of another type.
        """
        if not self._states:
            return
        if unused := sorted(self._states.keys() - self._objects.keys()):
            raise RuntimeError(f"no objects are registered for the states {', '.join(map(repr, unused))}")
        if lacking := sorted(self._objects.keys() - self._states.keys()):
            raise RuntimeError(f"the checkpoint has no states of {', '.join(map(repr, lacking))}")
        for name in self._pending:
            self._check_type(name, self._objects[name])
        for name in sorted(self._pending):
            self._apply(name)

    def serialize(self) -> str:
        """The states as JSON. RuntimeError: there are none, because `collect` was not called."""
        if not self._states:
            raise RuntimeError("the checkpoint is empty: call collect() first")
        states = {n: {"state": str(state), "type": self._types[n]} for n, state in self._states.items()}
        return json.dumps({"version": VERSION, "states": states})

    def deserialize(self, data: str) -> None:
        """Replaces all states by those of a text. Objects get them when they are registered, or from `restore`.

        Raises:
          ValueError: the text is not one that `serialize` of this version returned.
        """
        try:
            content = json.loads(data)
            version, entries = content["version"], dict(content["states"])
            states = {n: entry["state"] for n, entry in entries.items()}
            types = {n: entry["type"] for n, entry in entries.items()}
        except (ValueError, KeyError, TypeError) as e:
            raise ValueError(f"this is not a checkpoint: {e}") from e
        if version != VERSION:
            raise ValueError(f"the checkpoint has version {version}, and version {VERSION} can be read")
        if not all(isinstance(x, str) for x in states.values()) or not all(
            x is None or isinstance(x, str) for x in types.values()
        ):
            raise ValueError("this is not a checkpoint: a state or a type is not a text")
        self._states, self._types, self._pending = states, types, set(states)
        self._complete, self._loaded = False, True

    def save(self, filename: str) -> str:
        """Writes the states to a new file.

        Args:
          filename: a path with the field ``{seq}``, e.g. "state_{seq:04d}.json", for the number of the file: one more
            than the highest number of the files there are. The file appears at once, when it is whole.

        Returns:
          The path of the file.

        Raises:
          ValueError: the field is missing, or there is another one.
          RuntimeError: there are no states.
        """
        data = self.serialize()
        path = filename.format(seq=max(_files_by_number(filename), default=-1) + 1)
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        unfinished = f"{path}.tmp"
        with open(unfinished, "w", encoding="utf-8") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.replace(unfinished, path)
        return path

    def load(self, filename: str) -> str:
        """Reads the states of the file with the highest number.

        Args:
          filename: as that of `save`.

        Returns:
          The path of the file.

        Raises:
          FileNotFoundError: there is no such file.
          ValueError: the field is missing, or there is another one; or the file is not a checkpoint.
        """
        files = _files_by_number(filename)
        if not files:
            raise FileNotFoundError(f"no file is named like {filename!r}")
        path = files[max(files)]
        with open(path, encoding="utf-8") as f:
            self.deserialize(f.read())
        return path


def _files_by_number(filename: str) -> dict[int, str]:
    """The existing files with a name pattern that has the field ``{seq}``, by their numbers."""
    filename = os.fspath(filename)
    # Each part is (text, field, format, conversion): a text, and the field behind it, None at the end.
    parts = list(string.Formatter().parse(filename))
    if [field for _, field, _, _ in parts if field is not None] != ["seq"]:
        raise ValueError(
            f'the name of a checkpoint has the field {{seq}} once, and no other, as "state_{{seq:04d}}.json", got {filename!r}'
        )
    field_index = next(i for i, (_, field, _, _) in enumerate(parts) if field is not None)
    texts = [text for text, _, _, _ in parts]  # a brace that the format doubles is single here
    folder, prefix = os.path.split("".join(texts[: field_index + 1]))
    suffix = "".join(texts[field_index + 1 :])
    if os.sep in suffix:
        raise ValueError(f"{{seq}} must be part of the file's name, not of its folder, got {filename!r}")
    expression = re.compile(re.escape(prefix) + r"(\d+)" + re.escape(suffix))
    try:
        names = os.listdir(folder or ".")
    except FileNotFoundError:
        return {}
    return {int(match[1]): os.path.join(folder, n) for n in names if (match := expression.fullmatch(n))}
