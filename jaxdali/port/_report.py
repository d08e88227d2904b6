"""Formats the report."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence

from .._core.names import hint
from ._findings import Remark, Use


def summary(uses: Sequence[Use]) -> str:
    """A sentence with the number of names that work. Uses of arguments are named ``operator(argument=)``, or with a
    value ``operator(argument='value')``.
    """
    names = {u.name: u.works for u in uses if not u.name.endswith(")")}
    arguments = {u.name for u in uses if u.name.endswith(")")}
    text = f"{sum(names.values())} of {len(names)} names work"
    return text + (f"; {len(arguments)} argument{'s do' if len(arguments) > 1 else ' does'} not" if arguments else "")


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
