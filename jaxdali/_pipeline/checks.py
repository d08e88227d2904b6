"""Checks of checkpoints and serialized pipelines: their checksum and their form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from .._batch.reading import STATE_VERSION
from .._data.source import Saved, Source

CHECKSUM = "checksum"


def digest(entries: Mapping[str, Any]) -> str:
    """The checksum of all entries but the checksum itself: 128 bits of SHA-256. The layout of the JSON has no effect."""
    return hashlib.sha256(json.dumps(unsigned(entries), sort_keys=True, separators=(",", ":")).encode()).hexdigest()[
        :32
    ]


def unsigned(entries: Mapping[str, Any]) -> dict[str, Any]:
    """The entries without the checksum."""
    return {name: x for name, x in entries.items() if name != CHECKSUM}


def signed(entries: Mapping[str, Any]) -> dict[str, Any]:
    """The entries with a checksum."""
    return {**entries, CHECKSUM: digest(entries)}


def check_digest(entries: Any, path: str) -> None:
    """Raises ValueError if the checksum is wrong."""
    if (computed := digest(_checked_dict(entries, path))) != (stored := entries.get(CHECKSUM, "missing")):
        raise ValueError(
            f"the checksum of {path} is {stored}, that of its contents is {computed}: it was changed since it was written"
        )


def check_version(version: Any) -> None:
    """Raises RuntimeError if this jaxdali can't read the version."""
    if version != STATE_VERSION or isinstance(version, bool):
        raise RuntimeError(f"the checkpoint has version {version!r}, this jaxdali reads version {STATE_VERSION}")


def check_record(record: Any, path: str) -> dict[str, Any]:
    """A pipeline's record, unchanged. Raises ValueError if it has a wrong form."""
    _checked_dict(record, path)
    _checked_integer(record, path, "seed", minimum=None)
    _checked_integer(record, path, "batch_size", minimum=1)
    _checked_integer(record, path, "epoch", minimum=0)
    _checked_integer(record, path, "iteration", minimum=0)
    shard = record.get("shard")
    if not (_is_integer_list(shard) and len(shard) == 2 and 0 <= shard[0] < shard[1]):
        raise ValueError(f"{path}.shard is {shard!r}, expected its number and how many there are")
    for name, source in _checked_dict(record.get("sources"), f"{path}.sources").items():
        if set(_checked_dict(source, f"{path}.sources.{name}")) != {"fingerprint", "cursor"}:
            raise ValueError(f"{path}.sources.{name} has {sorted(source)}, expected cursor and fingerprint")
        _checked_dict(source["fingerprint"], f"{path}.sources.{name}.fingerprint")
    return record


def check_iterator(position: Any) -> dict[str, Any] | None:
    """The position of an iterator, unchanged; None: there was none. Raises ValueError if it has a wrong form."""
    if position is None:
        return None
    _checked_dict(position, "iterator")
    for name, kinds in (("policy", str), ("reader_name", (str, type(None))), ("padded", bool), ("may_restart", bool)):
        if name not in position or not isinstance(position[name], kinds):
            raise ValueError(f"iterator.{name} is {position.get(name, 'missing')!r}")
    _checked_integer(position, "iterator", "size", minimum=-1)
    _checked_integer(position, "iterator", "given", minimum=0)
    # `EpochCounter.get_state` makes this entry.
    counter = position.get("counter", "missing")
    if counter is not None:
        _checked_dict(counter, "iterator.counter")
        _checked_integer(counter, "iterator.counter", "round", minimum=0)
        _checked_integer(counter, "iterator.counter", "taken", minimum=None)
        parts = _checked_dict(counter.get("parts", {}), "iterator.counter.parts")
        if not _is_integer_list(counter.get("ahead")) or not all(
            k.isdecimal() and _is_integer_list(v) for k, v in parts.items()
        ):
            raise ValueError("iterator.counter.ahead and .parts are not lists of whole numbers")
        if "lacking" in counter:
            _checked_integer(counter, "iterator.counter", "lacking", minimum=0)
        if not isinstance(counter.get("ended", False), bool):
            raise ValueError(f"iterator.counter.ended is {counter['ended']!r}")
    return position


def check_source(saved: Saved, source: Source, path: str) -> None:
    """Raises ValueError if the saved state of a source has another form than this source saves."""
    if source.walks:  # a reader, whose fingerprint has its shard
        shards = _checked_integer(saved.fingerprint, f"{path}.fingerprint", "num_shards", minimum=1)
        if _checked_integer(saved.fingerprint, f"{path}.fingerprint", "shard_id", minimum=0) >= shards:
            raise ValueError(f"{path}.fingerprint.shard_id is {saved.fingerprint['shard_id']} of {shards}")
    # A cursor has at least the entries of the initial one, which are integers.
    for initial_cursor in source.initial()[:1]:
        _check_cursor(
            saved.cursor,
            [k for k, v in initial_cursor.items() if type(v) is int] if isinstance(initial_cursor, dict) else [],
            f"{path}.cursor",
        )


def _check_cursor(cursor: Any, names: list[str], path: str) -> None:
    """Raises ValueError if a cursor lacks one of the named numbers, or has a wrong entry "rest"."""
    for name in names:
        _checked_integer(_checked_dict(cursor, path), path, name, minimum=0)
    # After redistribution, "rest" has the cursor of the former number of shards; see `Walk`.
    if names and "rest" in cursor and "round" in names:
        remainder = _checked_dict(cursor["rest"], f"{path}.rest")
        _checked_integer(remainder, f"{path}.rest", "start", minimum=0)
        _checked_integer(remainder, f"{path}.rest", "num_shards", minimum=1)
        _check_cursor(remainder.get("cursor"), names, f"{path}.rest.cursor")


def _checked_dict(x: Any, path: str) -> dict[str, Any]:
    """Returns `x`, the value at a path of the JSON. Raises ValueError if it is not a dict."""
    if not isinstance(x, dict):
        raise ValueError(f"{path} is {'missing' if x is None else f'{x!r:.60}'}, expected an object")
    return x


def _checked_integer(x: Mapping[str, Any], path: str, name: str, minimum: int | None) -> int:
    """Returns entry `name` of `x`, the value at a path of the JSON. Raises ValueError if it is not a 64-bit integer, or
    is below `minimum`.
    """
    value = x.get(name)
    if type(value) is not int or (minimum is not None and value < minimum) or abs(value) >= 1 << 63:
        condition = "" if minimum is None else f", at least {minimum}"
        raise ValueError(
            f"{path}.{name} is {'missing' if name not in x else f'{value!r:.60}'}, expected a whole number{condition}"
        )
    return value


def _is_integer_list(x: Any) -> bool:
    return isinstance(x, list) and all(type(n) is int for n in x)
