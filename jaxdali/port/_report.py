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
    """A sentence with the number of names that work. Uses of arguments are named ``operator(argument=)``."""
    names = {u.name: u.works for u in uses if not u.name.endswith("=)")}
    arguments = {u.name for u in uses if u.name.endswith("=)")}
    text = f"{sum(names.values())} of {len(names)} names work"
    return text + (
        f"; {len(arguments)} argument{'s are' if len(arguments) > 1 else ' is'} unknown" if arguments else ""
    )


def by_line(uses: Sequence[Use]) -> Iterator[str]:
    """Yields a row for each missing use, in the order of one file's lines."""
    missing = list(dict.fromkeys((u.line, u.name) for u in uses if not u.works))
    width = max((len(line) for line, _ in missing), default=0)
    for line, name in missing:
        yield f"  {line:>{width}}  {name}" + (f": {advice}" if (advice := hint(name)) else "")


def by_name(uses: Sequence[Use], columns: int) -> Iterator[str]:
    """Yields a row for each missing name, with its places. Names that most files use come first."""
    return _table("not here", [(u.name, u.file, u.line) for u in uses if not u.works], columns)


def by_text(title: str, remarks: Sequence[Remark], columns: int) -> Iterator[str]:
    """Yields rows as `by_name`, for remarks."""
    return _table(title, [(r.text, r.file, r.line) for r in remarks], columns)


def remarks_by_line(title: str, remarks: Sequence[Remark]) -> Iterator[str]:
    """Yields a row for each remark, in the order of one file's lines."""
    if remarks:
        yield title
    width = max((len(r.line) for r in remarks), default=0)
    for r in remarks:
        yield f"  {r.line:>{width}}  {r.text}"


def _table(title: str, rows: Sequence[tuple[str, str, str]], columns: int) -> Iterator[str]:
    """Yields a table of rows (name, file, line), one row for each name, with as many places as fit into the columns."""
    places_by_name: dict[str, dict[str, list[str]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for name, file, line in rows:
        if line not in places_by_name[name][file]:
            places_by_name[name][file].append(line)
    width = max((len(name) for name in (*places_by_name, title)), default=0)
    if width > columns // 2:  # texts instead of names: the places go below
        width = 0
    if places_by_name:
        yield f"{title:<{width}}  files  lines  where" if width else title
    for name, files in sorted(places_by_name.items(), key=lambda item: (-len(item[1]), item[0])):
        file_lines = [f"{file}:{line}" for file, lines in files.items() for line in lines]
        prefix = f"{name:<{width}}  {len(files):>5}  {len(file_lines):>5}  " if width else "    "
        num_shown = 1
        # With room for the number of places that are not shown.
        while (
            num_shown < len(file_lines)
            and len(prefix) + len(", ".join(file_lines[: num_shown + 1])) + len(" and 999 more") <= columns
        ):
            num_shown += 1
        num_hidden = len(file_lines) - num_shown
        if not width:
            yield f"  {name}"
        yield prefix + ", ".join(file_lines[:num_shown]) + (f" and {num_hidden} more" if num_hidden else "")


_COLOURS = {"runs": "32", "fails": "31", "untried": "33"}
_STATUS_WORDS = {"runs": "runs", "fails": "FAILS", "untried": "not tried"}


def _coloured(text: str, status: str) -> str:
    """The text in the colour of a status, if the output is a terminal."""
    is_terminal = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return f"\x1b[{_COLOURS[status]}m{text}\x1b[0m" if is_terminal else text


def trials(results: Sequence[Mapping[str, Any]], columns: int) -> Iterator[str]:
    """Yields rows with the result of each pipeline definition of a file.

    Args:
      results: each a `_trial.Result` as a dict; if the process died, only with the keys name, line, what and text.
      columns: width of the terminal.
    """
    names = [r["name"] or "(the file)" for r in results]
    lines = [r["line"] for r in results]
    name_width, line_width = max(map(len, [*names, "pipeline"])), max(map(len, [*lines, "line"]))
    if results:
        yield f"  {'line':>{line_width}}  {'pipeline':<{name_width}}  result"
    for name, line, r in zip(names, lines, results):
        yield f"  {line:>{line_width}}  {name:<{name_width}}  {_coloured(_STATUS_WORDS[r['what']], r['what'])}"
        text = r["text"]
        if r.get("where"):
            text = f"{'line ' if ':' not in r['where'] and r['where'][:1].isdigit() else ''}{r['where']}: {text}"
        made_up = [f"made up: {r['made_up']}"] if r.get("made_up") and r["what"] != "runs" else []
        for paragraph in (text, *r.get("hints", ()), *made_up):
            for part in paragraph.splitlines()[:6]:
                indent = " " * (line_width + 6)
                yield from textwrap.wrap(
                    part,
                    max(columns, 60),
                    initial_indent=indent,
                    subsequent_indent=indent,
                    break_long_words=False,
                    break_on_hyphens=False,
                )


def counts(results: Sequence[Mapping[str, Any]]) -> str:
    """A sentence with the numbers of pipelines that run, fail, and could not be tried."""
    num_by_status = collections.Counter(r["what"] for r in results if r["name"])
    total = sum(num_by_status.values())
    if not total:
        return "No pipeline definition is found."
    runs = num_by_status["runs"]
    text = f"{total} pipeline definition{'s' if total > 1 else ''}: {runs} run{'s' if runs == 1 else ''}"
    fails = num_by_status["fails"]
    return f"{text}, {fails} fail{'s' if fails == 1 else ''}, {num_by_status['untried']} could not be tried."
