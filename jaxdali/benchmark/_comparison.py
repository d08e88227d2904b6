"""Tables and plots that compare image decoders."""

from __future__ import annotations

import html
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from ._decoders import REFERENCE, Group
from ._report import table

PLOTS = (".svg", ".html", ".png")  # PNG needs matplotlib
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


def plot(path: pathlib.Path, groups: Sequence[Group], title: str):
    """Draws megapixels per second into a file, whose suffix, one of PLOTS, selects the format."""
    if path.suffix == ".png":
        _png(path, groups, title)
        return
    drawing = svg(groups, title)
    if path.suffix == ".html":
        drawing = f'<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{html.escape(title)}</title>\n{drawing}</html>\n'
    path.write_text(drawing, encoding="utf-8")


def svg(groups: Sequence[Group], title: str) -> str:
    """Draws a bar for each decoder and category of files. The bars of a category have one scale."""
    name_width, bar_width, bar_height, group_gap = 190, 360, 18, 40  # pixels
    lines, y = [f'<text x="10" y="22" font-size="15">{html.escape(title)}</text>'], 30
    for group in groups:
        y += group_gap
        lines.append(
            f'<text x="10" y="{y - 8}" font-weight="bold">{html.escape(f"{group.category} ({_count_files(len(group.files))})")}</text>'
        )
        fastest = max((r.megapixels for r in group.results), default=1.0)
        for r in group.results:
            width = bar_width * r.megapixels / fastest
            color = "#2a6fbb" if r.decoder.startswith("jaxdali ") else "#b0b7bf"
            lines.append(f'<text x="{name_width - 6}" y="{y + 12}" text-anchor="end">{html.escape(r.decoder)}</text>')
            lines.append(
                f'<rect x="{name_width}" y="{y}" width="{width:.1f}" height="{bar_height - 4}" fill="{color}"/>'
            )
            lines.append(f'<text x="{name_width + width + 5:.1f}" y="{y + 12}">{r.megapixels:.0f} megapixels/s</text>')
            y += bar_height
    size = f'width="{name_width + bar_width + 150}" height="{y + 15}"'
    body = "\n".join(lines)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    return f'{head}\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'


def _png(path: pathlib.Path, groups: Sequence[Group], title: str):
    """Draws the same as `svg` with matplotlib, and writes it as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    heights = [len(g.results) + 1.5 for g in groups]  # in bars; 1.5 for the title
    figure = Figure(figsize=(9, 0.6 + 0.32 * sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    for axes, group in zip(
        figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights)[:, 0], groups, strict=True
    ):
        colors = ["tab:blue" if r.decoder.startswith("jaxdali ") else "lightgray" for r in group.results]
        bars = axes.barh([r.decoder for r in group.results], [r.megapixels for r in group.results], color=colors)
        axes.bar_label(bars, [f"{r.megapixels:.0f}" for r in group.results], padding=3)
        axes.set_title(
            f"{group.category} ({_count_files(len(group.files))}), megapixels/s", fontsize="medium", loc="left"
        )
        axes.invert_yaxis()
        axes.margins(x=0.1)
    figure.savefig(path, format="png", dpi=120)
