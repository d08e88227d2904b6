"""Patterns in paths: wildcards, and braces as the shell has them. What exists is meant literally."""

from __future__ import annotations

import glob
import itertools
import math
import os
import re
from collections.abc import Callable, Sequence

from .._core.redaction import redacted

_SPECIAL = re.compile(r"[*?\[{]")
_WILDCARD = re.compile(r"[*?\[]")
_HOST = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://[^/]*)?")  # which may have brackets: an address of IPv6
_PART = re.compile(r"/*[^/]+")
_NUMBERS = re.compile(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})(?:\.\.(-?[0-9]{1,18}))?")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?[0-9]{1,18}))?")
_MOST = 1_000_000  # paths of one pattern


def expand(path: str, exists: Callable[[str], bool], matches: Callable[[str], Sequence[str]]) -> list[str]:
    """The paths that a path or pattern names: braces in their order, the matches of wildcards in byte order.

    A path that exists is literal, and so are the leading folders of a pattern that do.

    Args:
      exists: whether there is a file or folder of this name; matches: gives the files that match wildcards.

    Raises:
      RuntimeError: no file matches wildcards, or braces stand for more than a million paths.
    """
    head = _literal(path, exists)
    if head == path:
        return [path]
    paths = list[str]()
    for tail in braces(path[len(head) :]):
        if not _WILDCARD.search(tail) or exists(head + tail):
            paths.append(head + tail)
            continue
        matching = matches(glob.escape(head) + tail)
        if not matching:
            raise RuntimeError(f"no file matches {redacted(head + tail)}")
        paths += sorted(matching, key=os.fsencode)
    return paths


def _literal(path: str, exists: Callable[[str], bool]) -> str:
    """The longest beginning of a path whose parts have no special characters, or exist."""
    end = begin = len(_HOST.match(path)[0])  # pyright: ignore[reportOptionalSubscript]: it matches an empty text
    for part in _PART.finditer(path, begin):
        if _SPECIAL.search(part[0]) and not exists(path[: part.end()]):
            return path[:end]
        end = part.end()
    return path


def braces(text: str) -> list[str]:
    """The texts that ``{a,b}``, ``{000..127}``, ``{0..8..2}`` and ``{a..e}`` stand for, as in bash; other braces are
    literal.

    Raises:
      RuntimeError: they are more than a million.
    """
    for opening in re.finditer("{", text):
        begin, end, commas = opening.end(), *_closing(text, opening.end())
        if end < 0:
            continue
        bounds = [begin - 1, *commas, end]
        if commas:
            choices = [x for a, b in itertools.pairwise(bounds) for x in braces(text[a + 1 : b])]
        elif (choices := _range(text, text[begin:end])) is None:
            continue
        tails = braces(text[end + 1 :])
        _check(text, len(choices) * len(tails))
        return [text[: begin - 1] + choice + tail for choice in choices for tail in tails]
    return [text]


def _closing(text: str, begin: int) -> tuple[int, list[int]]:
    """Where the brace that was opened before `begin` is closed, or -1; and where the commas are that stand in no other
    braces.
    """
    depth, commas = 1, list[int]()
    for mark in re.compile("[{},]").finditer(text, begin):
        depth += {"{": 1, "}": -1, ",": 0}[mark[0]]
        if not depth:
            return mark.start(), commas
        if mark[0] == "," and depth == 1:
            commas.append(mark.start())
    return -1, commas


def _range(text: str, body: str) -> list[str] | None:
    """The texts of a range; None if it is none. If a bound begins with 0, all are as wide as the wider bound."""
    if letters := _LETTERS.fullmatch(body):
        first, last, step = ord(letters[1]), ord(letters[2]), int(letters[3] or 1)
    elif numbers := _NUMBERS.fullmatch(body):
        first, last, step = int(numbers[1]), int(numbers[2]), int(numbers[3] or 1)
    else:
        return None
    step = max(abs(step), 1)
    _check(text, math.ceil((abs(last - first) + 1) / step))
    values = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    if letters:
        return [chr(x) for x in values]
    bounds = body.split("..")[:2]
    padded = any(re.match("-?0[0-9]", bound) for bound in bounds)
    return [f"{x:0{max(map(len, bounds)) if padded else 0}d}" for x in values]


def _check(text: str, count: int):
    if count > _MOST:
        raise RuntimeError(f"the braces of {redacted(text)} stand for {count} paths; at most {_MOST} are read")
