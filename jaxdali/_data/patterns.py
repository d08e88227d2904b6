"""Patterns in paths: wildcards, and braces as in bash. A name that exists is literal, also with special characters."""

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
# Protocol and host of a URL. The host may have brackets: an address of IPv6.
_HOST = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://[^/]*)?")
_PART = re.compile(r"/*[^/]+")
_NUMBERS = re.compile(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})(?:\.\.(-?[0-9]{1,18}))?")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?[0-9]{1,18}))?")
_MAX_PATHS = 1_000_000  # of the braces of one pattern


def expand(path: str, exists: Callable[[str], bool], matches: Callable[[str], Sequence[str]]) -> list[str]:
    """The paths that a path or pattern names: braces in their order, the matches of wildcards in byte order.

    A path that exists is literal, and so are the leading folders of a pattern that do. Wildcards that match a file ``X``
    do not stand for ``X.idx``, which is its index.

    Args:
      exists: tells whether there is a file or folder of this name.
      matches: returns the files that match wildcards.

    Raises:
      RuntimeError: no file matches wildcards, or braces stand for more than a million paths.
    """
    head = _literal_head(path, exists)
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
        files = set(matching)
        without_indices = [m for m in matching if not (m.endswith(".idx") and m.removesuffix(".idx") in files)]
        paths += sorted(without_indices, key=os.fsencode)
    return paths


def _literal_head(path: str, exists: Callable[[str], bool]) -> str:
    """The longest beginning of a path whose parts exist or have no special characters."""
    end = begin = len(_HOST.match(path)[0])  # pyright: ignore[reportOptionalSubscript]: it matches an empty text
    for part in _PART.finditer(path, begin):
        if _SPECIAL.search(part[0]) and not exists(path[: part.end()]):
            return path[:end]
        end = part.end()
    return path


def braces(text: str) -> list[str]:
    """Expands ``{a,b}``, ``{000..127}``, ``{0..8..2}`` and ``{a..e}`` in a text, as bash does. Other braces are
    literal.

    Raises:
      RuntimeError: they stand for more than a million texts.
    """
    for opening in re.finditer("{", text):
        begin, end, commas = opening.end(), *_closing_brace(text, opening.end())
        if end < 0:  # the brace is literal
            continue
        bounds = [begin - 1, *commas, end]
        if commas:
            choices = [x for a, b in itertools.pairwise(bounds) for x in braces(text[a + 1 : b])]
        elif (choices := _range_texts(text, text[begin:end])) is None:
            continue
        tails = braces(text[end + 1 :])
        _check_count(text, len(choices) * len(tails))
        return [text[: begin - 1] + choice + tail for choice in choices for tail in tails]
    return [text]


def _closing_brace(text: str, begin: int) -> tuple[int, list[int]]:
    """(position of the brace that closes the one before `begin`, or -1; positions of the commas that are inside of no
    other braces).
    """
    depth, commas = 1, list[int]()
    for mark in re.compile("[{},]").finditer(text, begin):
        depth += {"{": 1, "}": -1, ",": 0}[mark[0]]
        if not depth:
            return mark.start(), commas
        if mark[0] == "," and depth == 1:
            commas.append(mark.start())
    return -1, commas


def _range_texts(text: str, body: str) -> list[str] | None:
    """The texts of a range such as ``000..127``; None if `body` is no range.

    If a bound begins with 0, all texts have the width of the wider bound.
    """
    if letters := _LETTERS.fullmatch(body):
        first, last, step = ord(letters[1]), ord(letters[2]), int(letters[3] or 1)
    elif numbers := _NUMBERS.fullmatch(body):
        first, last, step = int(numbers[1]), int(numbers[2]), int(numbers[3] or 1)
    else:
        return None
    step = max(abs(step), 1)
    _check_count(text, math.ceil((abs(last - first) + 1) / step))
    values = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    if letters:
        return [chr(x) for x in values]
    bounds = body.split("..")[:2]
    padded = any(re.match("-?0[0-9]", bound) for bound in bounds)
    return [f"{x:0{max(map(len, bounds)) if padded else 0}d}" for x in values]


def _check_count(text: str, count: int):
    """Raises RuntimeError if braces stand for too many paths."""
    if count > _MAX_PATHS:
        raise RuntimeError(f"the braces of {redacted(text)} stand for {count} paths; at most {_MAX_PATHS} are read")
