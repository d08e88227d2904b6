"""Tables and sentences that compare image decoders."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from ._decoders import REFERENCE, Group
from ._report import table

_BAR_LENGTH = 24  # characters of the longest bar
_MAX_LISTED = 3  # names of files in a sentence


def tables(groups: Sequence[Group]) -> Iterator[str]:
    """Yields the lines of a table for each category of files, with bars for megapixels per second."""
    for group in groups:
        name, (head, *rows) = table_rows(group)
        fastest = max((r.megapixels for r in group.results), default=0.0)
        bars = ["#" * max(1, round(_BAR_LENGTH * r.megapixels / fastest)) for r in group.results]
        yield name
        yield ""
        with_bars = [(head[0], "", *head[1:]), *((row[0], bar, *row[1:]) for row, bar in zip(rows, bars, strict=True))]
        yield from table(with_bars, texts=2) if rows else ["no decoder takes them"]
        yield ""


def table_rows(group: Group) -> tuple[str, list[tuple[str, ...]]]:
    """Returns a heading for a group of files, and the rows of its table, the head first."""
    size = sum(f.size for f in group.files) / len(group.files)
    rows = [("decoder", "CPU ms/image", "megapixels/s", f"times {REFERENCE}", f"from {REFERENCE}", "files")]
    for r in group.results:
        rows.append(
            (
                r.decoder,
                f"{1e3 * r.seconds:.2f}",
                f"{r.megapixels:.0f}",
                _number_or_dash(r.speed),
                _number_or_dash(r.difference),
                str(r.decoded),
            )
        )
    return f"{group.category}: {_count_files(len(group.files))} of {size / 1e3:.0f} KB on average", rows


def notes(
    failed: Mapping[str, Mapping[str, str]], bad: Mapping[str, str], unusable: Mapping[str, str], missing: Sequence[str]
) -> Iterator[str]:
    """Yields sentences about the columns, and about files and decoders without results.

    Args:
      failed: for each decoder, by its name, the files that it does not decode: the reason by path.
      bad: the files that can't be read as images: the reason by path.
      unusable: the libraries that are installed but can't be used: the reason by name.
      missing: the names of libraries that are not installed.
    """
    yield f'"from {REFERENCE}" is the mean difference of the pixels, in levels of 0 to 255. Each library decodes in one thread.'
    for name, files in failed.items():
        if files:
            yield f"{name} does not decode {_count_files(len(files))}: {_listed(files)}"
    if bad:
        yield f"Not measured: {_count_files(len(bad))}: {_listed(bad)}"
    for name, reason in unusable.items():
        yield f"{name} is installed but can't be used: {reason}"
    if missing:
        yield f"Not installed: {', '.join(missing)}"


def _count_files(n: int) -> str:
    return f"{n} file{'s' * (n != 1)}"


def _listed(files: Mapping[str, str]) -> str:
    """The first files with their reasons, and "..." if there are more. `files`: the reason by path."""
    named = [f"{path} ({reason})" for path, reason in list(files.items())[:_MAX_LISTED]]
    return ", ".join([*named, *["..."] * (len(files) > _MAX_LISTED)])


def _number_or_dash(number: float) -> str:
    """A number as text; "-" for NaN, which stands for a number that could not be measured."""
    return "-" if math.isnan(number) else f"{number:.2f}"
