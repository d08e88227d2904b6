"""Shows decoders side by side: tables with bars, and plots."""

from __future__ import annotations

import html
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from ._decoders import REFERENCE, Group
from ._report import table

PLOTS = (".svg", ".html", ".png")  # PNG needs matplotlib
_BAR = 24  # characters of the longest
_LISTED = 3  # files of a decoder that are named


def tables(groups: Sequence[Group]) -> Iterator[str]:
    """A table for each kind of files, with bars for megapixels per second."""
    for group in groups:
        name, (head, *rows) = rows_of(group)
        most = max((r.megapixels for r in group.results), default=0.0)
        drawn = ["#" * max(1, round(_BAR * r.megapixels / most)) for r in group.results]
        yield name
        yield ""
        with_bars = [(head[0], "", *head[1:]), *((row[0], bar, *row[1:]) for row, bar in zip(rows, drawn, strict=True))]
        yield from table(with_bars, 2) if rows else ["no decoder takes them"]
        yield ""


def rows_of(group: Group) -> tuple[str, list[tuple[str, ...]]]:
    """What the files of a group are, and the rows of its table, the head first."""
    size = sum(f.size for f in group.files) / len(group.files)
    rows = [("decoder", "CPU ms/image", "megapixels/s", f"times {REFERENCE}", f"from {REFERENCE}", "files")]
    for r in group.results:
        rows.append(
            (
                r.decoder,
                f"{1e3 * r.seconds:.2f}",
                f"{r.megapixels:.0f}",
                _or_dash(r.speed),
                _or_dash(r.difference),
                str(r.decoded),
            )
        )
    return f"{group.kind}: {_files(len(group.files))} of {size / 1e3:.0f} KB on average", rows


def closing(
    failed: Mapping[str, Mapping[str, str]], bad: Mapping[str, str], unusable: Mapping[str, str], missing: Sequence[str]
) -> Iterator[str]:
    """What could not be decoded or measured."""
    yield f'"from {REFERENCE}" is the mean difference of the pixels, in levels of 0 to 255. Each library decodes in one thread.'
    for name, files in failed.items():
        if files:
            yield f"{name} does not decode {_files(len(files))}: {_some(files)}"
    if bad:
        yield f"Not measured: {_files(len(bad))}: {_some(bad)}"
    for name, reason in unusable.items():
        yield f"{name} is installed but can't be used: {reason}"
    if missing:
        yield f"Not installed: {', '.join(missing)}"


def _files(n: int) -> str:
    return f"{n} file{'s' * (n != 1)}"


def _some(files: Mapping[str, str]) -> str:
    named = [f"{path} ({reason})" for path, reason in list(files.items())[:_LISTED]]
    return ", ".join([*named, *["..."] * (len(files) > _LISTED)])


def _or_dash(number: float) -> str:
    return "-" if math.isnan(number) else f"{number:.2f}"


def plot(path: pathlib.Path, groups: Sequence[Group], title: str):
    """Draws megapixels per second. The file's suffix, one of PLOTS, says how."""
    if path.suffix == ".png":
        _png(path, groups, title)
        return
    drawing = svg(groups, title)
    if path.suffix == ".html":
        drawing = f'<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{html.escape(title)}</title>\n{drawing}</html>\n'
    path.write_text(drawing, encoding="utf-8")


def svg(groups: Sequence[Group], title: str) -> str:
    """A drawing with a bar for each decoder and kind of files. The bars of a kind have one scale."""
    left, most, row, gap = 190, 360, 18, 40  # pixels: names, longest bar, height of a bar, space between kinds
    lines, y = [f'<text x="10" y="22" font-size="15">{html.escape(title)}</text>'], 30
    for group in groups:
        y += gap
        lines.append(
            f'<text x="10" y="{y - 8}" font-weight="bold">{html.escape(f"{group.kind} ({_files(len(group.files))})")}</text>'
        )
        longest = max((r.megapixels for r in group.results), default=1.0)
        for r in group.results:
            width = most * r.megapixels / longest
            color = "#2a6fbb" if r.decoder.startswith("jaxdali ") else "#b0b7bf"
            lines.append(f'<text x="{left - 6}" y="{y + 12}" text-anchor="end">{html.escape(r.decoder)}</text>')
            lines.append(f'<rect x="{left}" y="{y}" width="{width:.1f}" height="{row - 4}" fill="{color}"/>')
            lines.append(f'<text x="{left + width + 5:.1f}" y="{y + 12}">{r.megapixels:.0f} megapixels/s</text>')
            y += row
    size = f'width="{left + most + 150}" height="{y + 15}"'
    body = "\n".join(lines)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    return f'{head}\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'


def _png(path: pathlib.Path, groups: Sequence[Group], title: str):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    heights = [len(g.results) + 1.5 for g in groups]
    figure = Figure(figsize=(9, 0.6 + 0.32 * sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    for axes, group in zip(
        figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights)[:, 0], groups, strict=True
    ):
        colors = ["tab:blue" if r.decoder.startswith("jaxdali ") else "lightgray" for r in group.results]
        bars = axes.barh([r.decoder for r in group.results], [r.megapixels for r in group.results], color=colors)
        axes.bar_label(bars, [f"{r.megapixels:.0f}" for r in group.results], padding=3)
        axes.set_title(f"{group.kind} ({_files(len(group.files))}), megapixels/s", fontsize="medium", loc="left")
        axes.invert_yaxis()
        axes.margins(x=0.1)
    figure.savefig(path, format="png", dpi=120)
