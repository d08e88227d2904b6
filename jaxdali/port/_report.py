"""Formats the report."""

from __future__ import annotations

import collections
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .._core.names import hint
from ._reading import Remark, Use


def summary(uses: Sequence[Use]) -> str:
    """A sentence that says how many uses work."""
    names = {u.name: u.works for u in uses if not u.name.endswith("=)")}
    arguments = {u.name for u in uses if u.name.endswith("=)")}
    text = f"{sum(names.values())} of {len(names)} names work"
    return text + (
        f"; {len(arguments)} argument{'s are' if len(arguments) > 1 else ' is'} unknown" if arguments else ""
    )


def by_line(uses: Sequence[Use]) -> Iterator[str]:
    """For one file: a row for each use that is missing."""
    missing = list(dict.fromkeys((u.line, u.name) for u in uses if not u.works))
    width = max((len(line) for line, _ in missing), default=0)
    for line, name in missing:
        yield f"  {line:>{width}}  {name}" + (f": {how}" if (how := hint(name)) else "")


def by_name(uses: Sequence[Use], columns: int) -> Iterator[str]:
    """A row for each missing name, the one that most files use first, with its places."""
    return _table("not here", [(u.name, u.file, u.line) for u in uses if not u.works], columns)


def by_text(title: str, remarks: Sequence[Remark], columns: int) -> Iterator[str]:
    """The same for remarks."""
    return _table(title, [(r.text, r.file, r.line) for r in remarks], columns)


def remarks_by_line(title: str, remarks: Sequence[Remark]) -> Iterator[str]:
    """A row for each remark, for one file."""
    if remarks:
        yield title
    width = max((len(r.line) for r in remarks), default=0)
    for r in remarks:
        yield f"  {r.line:>{width}}  {r.text}"


def _table(title: str, found: Sequence[tuple[str, str, str]], columns: int) -> Iterator[str]:
    places: dict[str, dict[str, list[str]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for name, file, line in found:
        if line not in places[name][file]:
            places[name][file].append(line)
    width = max((len(name) for name in (*places, title)), default=0)
    if width > columns // 2:  # texts instead of names: the places go below
        width = 0
    if places:
        yield f"{title:<{width}}  files  lines  where" if width else title
    for name, files in sorted(places.items(), key=lambda item: (-len(item[1]), item[0])):
        spots = [f"{file}:{line}" for file, lines in files.items() for line in lines]
        head = f"{name:<{width}}  {len(files):>5}  {len(spots):>5}  " if width else "    "
        shown = 1
        while shown < len(spots) and len(head) + len(", ".join(spots[: shown + 1])) + len(" and 999 more") <= columns:
            shown += 1
        rest = len(spots) - shown
        if not width:
            yield f"  {name}"
        yield head + ", ".join(spots[:shown]) + (f" and {rest} more" if rest else "")


_COLOURS = {"runs": "32", "fails": "31", "untried": "33"}
_WORDS = {"runs": "runs", "fails": "FAILS", "untried": "not tried"}


def _coloured(text: str, what: str) -> str:
    wanted = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return f"\x1b[{_COLOURS[what]}m{text}\x1b[0m" if wanted else text


def trials(results: Sequence[Mapping[str, Any]], columns: int) -> Iterator[str]:
    """Rows with the result of each pipeline definition of a file."""
    names = [r["name"] or "(the file)" for r in results]
    lines = [r["line"] for r in results]
    width, at = max(map(len, [*names, "pipeline"])), max(map(len, [*lines, "line"]))
    if results:
        yield f"  {'line':>{at}}  {'pipeline':<{width}}  result"
    for name, line, r in zip(names, lines, results):
        yield f"  {line:>{at}}  {name:<{width}}  {_coloured(_WORDS[r['what']], r['what'])}"
        text = r["text"]
        if r.get("where"):
            text = f"{'line ' if ':' not in r['where'] and r['where'][:1].isdigit() else ''}{r['where']}: {text}"
        made_up = [f"made up: {r['made_up']}"] if r.get("made_up") and r["what"] != "runs" else []
        for paragraph in (text, *r.get("hints", ()), *made_up):
            for part in paragraph.splitlines()[:6]:
                indent = " " * (at + 6)
                yield from textwrap.wrap(
                    part,
                    max(columns, 60),
                    initial_indent=indent,
                    subsequent_indent=indent,
                    break_long_words=False,
                    break_on_hyphens=False,
                )


def counts(results: Sequence[Mapping[str, Any]]) -> str:
    """How many pipelines run, fail, and could not be tried."""
    of = collections.Counter(r["what"] for r in results if r["name"])
    total = sum(of.values())
    if not total:
        return "No pipeline definition is found."
    text = f"{total} pipeline definition{'s' if total > 1 else ''}: {of['runs']} run{'s' if of['runs'] == 1 else ''}"
    return f"{text}, {of['fails']} fail{'s' if of['fails'] == 1 else ''}, {of['untried']} could not be tried."
