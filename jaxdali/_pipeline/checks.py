"""Checks of checkpoints and serialized pipelines: their checksum and their form.

Anyone can write a checkpoint with a right checksum. So numbers have limits, which no training reaches: sums and products
of them fit into 64 bits, and no loop over shards takes long. `EpochCounter.set_state` and `Walk.check` compare numbers
with the data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from .._batch.reading import STATE_VERSION
from .._core.errors import cut, quoted
from .._data.epoch import MOST_IN_BATCH
from .._data.source import Saved, Source

CHECKSUM = "checksum"
_MOST = 1 << 46  # samples and batches
_MOST_EPOCHS = 1 << 32
_MOST_SHARDS = 1 << 16


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
    computed = digest(_checked_dict(entries, path))
    if computed != entries.get(CHECKSUM):
        stored = quoted(entries[CHECKSUM]) if CHECKSUM in entries else "missing"
        raise ValueError(
            f"the checksum of {path} is {stored}, that of its contents is {computed!r}: it was changed since it was written"
        )


def check_version(version: Any) -> None:
    """Raises RuntimeError if this jaxdali can't read the version."""
    if version != STATE_VERSION or isinstance(version, bool):
        raise RuntimeError(f"the checkpoint has version {quoted(version)}, this jaxdali reads version {STATE_VERSION}")


def check_record(record: Any, path: str) -> dict[str, Any]:
    """A pipeline's record, unchanged. Raises ValueError if it has a wrong form."""
    _checked_dict(record, path)
    checked_integer(record, path, "seed", -(1 << 63), (1 << 63) - 1)
    batch_size = checked_integer(record, path, "batch_size", 1, MOST_IN_BATCH)
    checked_integer(record, path, "epoch", 0, _MOST_EPOCHS)
    iteration = checked_integer(record, path, "iteration", 0)
    shard = record.get("shard")
    if not (_is_integer_list(shard) and len(shard) == 2 and 0 <= shard[0] < shard[1] <= _MOST_SHARDS):
        raise ValueError(f"{path}.shard is {quoted(shard)}, expected its number and how many there are")
    if iteration * batch_size * shard[1] >= 1 << 62:
        raise ValueError(
            f"{path}.iteration is {iteration}, with {path}.batch_size {batch_size} and {shard[1]} shards: no training has as many samples"
        )
    for name, source in _checked_dict(record.get("sources"), f"{path}.sources").items():
        entry = f"{path}.sources.{cut(name)}"
        if set(_checked_dict(source, entry)) != {"fingerprint", "cursor"}:
            raise ValueError(f"{entry} has {quoted(sorted(source))}, expected cursor and fingerprint")
        _checked_dict(source["fingerprint"], f"{entry}.fingerprint")
    return record


def check_iterator(position: Any) -> dict[str, Any] | None:
    """The position of an iterator, unchanged; None: there was none. Raises ValueError if it has a wrong form."""
    if position is None:
        return None
    _checked_dict(position, "iterator")
    for name, kinds in (("policy", str), ("reader_name", (str, type(None))), ("padded", bool), ("may_restart", bool)):
        if name not in position or not isinstance(position[name], kinds):
            raise ValueError(f"iterator.{name} is {quoted(position.get(name, 'missing'))}")
    checked_integer(position, "iterator", "size", -1, (1 << 63) - 1)  # the user's number
    checked_integer(position, "iterator", "given", 0)
    # `EpochCounter.get_state` makes this entry.
    counter = position.get("counter", "missing")
    if counter is not None:
        _checked_dict(counter, "iterator.counter")
        checked_integer(counter, "iterator.counter", "round", 0, _MOST_EPOCHS)
        num_taken = checked_integer(counter, "iterator.counter", "taken", 0)
        parts = _checked_dict(counter.get("parts", {}), "iterator.counter.parts")
        if not _is_integer_list(counter.get("ahead")) or not all(
            k.isdecimal() and len(k) < 20 and _is_integer_list(v) for k, v in parts.items()
        ):
            raise ValueError("iterator.counter.ahead and .parts are not lists of whole numbers")
        if "lacking" in counter:
            checked_integer(counter, "iterator.counter", "lacking", 0, num_taken)
        if not isinstance(counter.get("ended", False), bool):
            raise ValueError(f"iterator.counter.ended is {quoted(counter['ended'])}")
    return position


def check_source(saved: Saved, source: Source, path: str) -> None:
    """Raises ValueError if the saved state of a source has another form than this source saves."""
    if source.walks:  # a reader, whose fingerprint has its shard
        entry = f"{path}.fingerprint"
        shards = checked_integer(saved.fingerprint, entry, "num_shards", 1, _MOST_SHARDS)
        checked_integer(saved.fingerprint, entry, "shard_id", 0, shards - 1)
        for name in ("pad_last_batch", "stick_to_shard"):
            if not isinstance(saved.fingerprint.get(name), bool):
                raise ValueError(f"{entry}.{name} is {quoted(saved.fingerprint.get(name, 'missing'))}")
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
        maximum = _MOST_EPOCHS if name in ("round", "epoch") else _MOST
        checked_integer(_checked_dict(cursor, path), path, name, 0, maximum)
    # After redistribution, "rest" has the cursor of the former number of shards; see `Walk`.
    if names and "rest" in cursor and "round" in names:
        remainder = _checked_dict(cursor["rest"], f"{path}.rest")
        checked_integer(remainder, f"{path}.rest", "start", 0, _MOST_EPOCHS)
        checked_integer(remainder, f"{path}.rest", "num_shards", 1, _MOST_SHARDS)
        _check_cursor(remainder.get("cursor"), names, f"{path}.rest.cursor")


def _checked_dict(x: Any, path: str) -> dict[str, Any]:
    """Returns `x`, the value at a path of the JSON. Raises ValueError if it is not a dict."""
    if not isinstance(x, dict):
        raise ValueError(f"{path} is {'missing' if x is None else quoted(x)}, expected an object")
    return x


def checked_integer(x: Mapping[str, Any], path: str, name: str, minimum: int, maximum: int = _MOST) -> int:
    """Returns entry `name` of `x`, the value at a path of the JSON. Raises ValueError if it is not an integer from
    `minimum` to `maximum`.
    """
    value = x.get(name)
    if type(value) is not int or not minimum <= value <= maximum:
        raise ValueError(
            f"{path}.{name} is {'missing' if name not in x else quoted(value)}, expected a whole number, {minimum} ... {maximum}"
        )
    return value


def _is_integer_list(x: Any) -> bool:
    return isinstance(x, list) and all(type(n) is int for n in x)
