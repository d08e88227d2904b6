"""Checks of checkpoints and serialized pipelines: their checksum and their form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from .._batch.reading import STATE_VERSION
from .._data.source import Saved, Source

CHECKSUM = "checksum"


def digest(whole: Mapping[str, Any]) -> str:
    """The checksum of all entries but the checksum itself. It does not depend on the JSON's layout."""
    return hashlib.sha256(json.dumps(unsigned(whole), sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]


def unsigned(whole: Mapping[str, Any]) -> dict[str, Any]:
    """The entries without the checksum."""
    return {name: x for name, x in whole.items() if name != CHECKSUM}


def signed(whole: Mapping[str, Any]) -> dict[str, Any]:
    """The entries with a checksum."""
    return {**whole, CHECKSUM: digest(whole)}


def check_digest(x: Any, where: str) -> None:
    """Raises ValueError if the checksum is wrong."""
    if (found := digest(_dictionary(x, where))) != (said := x.get(CHECKSUM, "missing")):
        raise ValueError(
            f"the checksum of {where} is {said}, that of its contents is {found}: it was changed since it was written"
        )


def check_version(version: Any) -> None:
    """Raises RuntimeError if this jaxdali can't read the version."""
    if version != STATE_VERSION or isinstance(version, bool):
        raise RuntimeError(f"the checkpoint has version {version!r}, this jaxdali reads version {STATE_VERSION}")


def check_record(record: Any, where: str) -> dict[str, Any]:
    """A pipeline's record, unchanged. Raises ValueError if it has a wrong form."""
    _dictionary(record, where)
    _integer(record, where, "seed", None)
    _integer(record, where, "batch_size", 1)
    _integer(record, where, "epoch", 0)
    _integer(record, where, "iteration", 0)
    shard = record.get("shard")
    if not (_integers(shard) and len(shard) == 2 and 0 <= shard[0] < shard[1]):
        raise ValueError(f"{where}.shard is {shard!r}, expected its number and how many there are")
    for name, x in _dictionary(record.get("sources"), f"{where}.sources").items():
        if set(_dictionary(x, f"{where}.sources.{name}")) != {"fingerprint", "cursor"}:
            raise ValueError(f"{where}.sources.{name} has {sorted(x)}, expected cursor and fingerprint")
        _dictionary(x["fingerprint"], f"{where}.sources.{name}.fingerprint")
    return record


def check_iterator(x: Any) -> dict[str, Any] | None:
    """The position of an iterator, unchanged; None: there was none. Raises ValueError if it has a wrong form."""
    if x is None:
        return None
    _dictionary(x, "iterator")
    for name, kinds in (("policy", str), ("reader_name", (str, type(None))), ("padded", bool), ("may_restart", bool)):
        if name not in x or not isinstance(x[name], kinds):
            raise ValueError(f"iterator.{name} is {x.get(name, 'missing')!r}")
    _integer(x, "iterator", "size", -1)
    _integer(x, "iterator", "given", 0)
    counter = x.get("counter", "missing")
    if counter is not None:
        _dictionary(counter, "iterator.counter")
        _integer(counter, "iterator.counter", "round", 0)
        _integer(counter, "iterator.counter", "taken", None)
        parts = _dictionary(counter.get("parts", {}), "iterator.counter.parts")
        if not _integers(counter.get("ahead")) or not all(k.isdecimal() and _integers(v) for k, v in parts.items()):
            raise ValueError("iterator.counter.ahead and .parts are not lists of whole numbers")
        if "lacking" in counter:
            _integer(counter, "iterator.counter", "lacking", 0)
        if not isinstance(counter.get("ended", False), bool):
            raise ValueError(f"iterator.counter.ended is {counter['ended']!r}")
    return x


def check_source(saved: Saved, source: Source, where: str) -> None:
    """Raises ValueError if what was saved for a source does not have the form that this source saves."""
    if source.walks:
        shards = _integer(saved.fingerprint, f"{where}.fingerprint", "num_shards", 1)
        if _integer(saved.fingerprint, f"{where}.fingerprint", "shard_id", 0) >= shards:
            raise ValueError(f"{where}.fingerprint.shard_id is {saved.fingerprint['shard_id']} of {shards}")
    # A cursor has at least the entries of the initial one, which are integers.
    for first in source.initial()[:1]:
        _check_cursor(
            saved.cursor,
            [k for k, v in first.items() if type(v) is int] if isinstance(first, dict) else [],
            f"{where}.cursor",
        )


def _check_cursor(cursor: Any, names: list[str], where: str) -> None:
    for name in names:
        _integer(_dictionary(cursor, where), where, name, 0)
    if names and "rest" in cursor and "round" in names:
        rest = _dictionary(cursor["rest"], f"{where}.rest")
        _integer(rest, f"{where}.rest", "start", 0)
        _integer(rest, f"{where}.rest", "num_shards", 1)
        _check_cursor(rest.get("cursor"), names, f"{where}.rest.cursor")


def _dictionary(x: Any, where: str) -> dict[str, Any]:
    if not isinstance(x, dict):
        raise ValueError(f"{where} is {'missing' if x is None else f'{x!r:.60}'}, expected an object")
    return x


def _integer(x: Mapping[str, Any], where: str, name: str, least: int | None) -> int:
    value = x.get(name)
    if type(value) is not int or (least is not None and value < least) or abs(value) >= 1 << 63:
        at_least = "" if least is None else f", at least {least}"
        raise ValueError(
            f"{where}.{name} is {'missing' if name not in x else f'{value!r:.60}'}, expected a whole number{at_least}"
        )
    return value


def _integers(x: Any) -> bool:
    return isinstance(x, list) and all(type(n) is int for n in x)
