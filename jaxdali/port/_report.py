"""What is printed."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence

from .._core.names import hint
from ._reading import Use


def summary(uses: Sequence[Use]) -> str:
    """How much of it works, in a sentence."""
    names = {u.name: u.works for u in uses if not u.name.endswith("=)")}
    arguments = {u.name for u in uses if u.name.endswith("=)")}
    text = f"{sum(names.values())} of {len(names)} names work"
    return text + (f"; {len(arguments)} argument{'s are' if len(arguments) > 1 else ' is'} unknown" if arguments else "")


def by_line(uses: Sequence[Use]) -> Iterator[str]:
    """A row for each use of what is missing, for one file."""
    missing = list(dict.fromkeys((u.line, u.name) for u in uses if not u.works))
    width = max((len(line) for line, _ in missing), default=0)
    for line, name in missing:
        yield f"  {line:>{width}}  {name}" + (f": {how}" if (how := hint(name)) else "")


def by_name(uses: Sequence[Use], columns: int) -> Iterator[str]:
    """A row for each thing that is missing, the one that most files use first, and where it is used."""
    places: dict[str, dict[str, list[str]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for u in uses:
        if not u.works and u.line not in places[u.name][u.file]:
            places[u.name][u.file].append(u.line)
    width = max((len(name) for name in places), default=0)
    if places:
        yield f"{'not here':<{width}}  files  lines  where"
    for name, files in sorted(places.items(), key=lambda item: (-len(item[1]), item[0])):
        spots = [f"{file}:{line}" for file, lines in files.items() for line in lines]
        head = f"{name:<{width}}  {len(files):>5}  {len(spots):>5}  "
        shown = 1
        while shown < len(spots) and len(head) + len(", ".join(spots[: shown + 1])) + len(" and 999 more") <= columns:
            shown += 1
        rest = len(spots) - shown
        yield head + ", ".join(spots[:shown]) + (f" and {rest} more" if rest else "")
