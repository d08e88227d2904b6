"""The report of a pipeline or of decoders as one HTML page, which needs no other file and no network."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

from ._decoders import DecoderResult
from ._measure import Cost, Run
from ._report import cost_shares

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2733; background: #fff; max-width: 1000px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 1.8em; }
p.verdict { font-size: 1.15em; border-left: 4px solid #2a6fbb; padding-left: .8em; }
div.plots { display: flex; flex-wrap: wrap; gap: 1em; } svg { max-width: 100%; height: auto; }
div.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2em .9em .2em 0; text-align: right; border-bottom: 1px solid #dde3ea; } th { font-weight: 600; }
.text { text-align: left; } footer, .note { color: #5b6876; }
"""
_BLUE, _GRAY, _INK = "#2a6fbb", "#9aa5b1", "#1c2733"
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 480, 300, 64, 16, 40, 46  # of a plot, and its margins, in pixels


def page(title: str, parts: Iterable[str]) -> str:
    """A whole page of HTML parts."""
    head = f'<meta charset="utf-8">\n<meta name="viewport" content="width=device-width">\n<title>{html.escape(title)}</title>'
    body = "\n".join(parts)
    head += f"\n<style>{_STYLE}</style>"
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n<h1>{html.escape(title)}</h1>\n{body}\n</body>\n</html>\n'


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph; `kind` is a class of the style."""
    lines = "<br>".join(html.escape(line) for line in text.splitlines())
    return f'<p class="{kind}">{lines}</p>' if kind else f"<p>{lines}</p>"


def heading(text: str) -> str:
    """The heading of a section."""
    return f"<h2>{html.escape(text)}</h2>"


def table(rows: Sequence[Sequence[str]], texts: int) -> str:
    """A table, its head first. The first `texts` columns are aligned left, the others right."""
    lines = []
    for k, row in enumerate(rows):
        tag, text = "td" if k else "th", ' class="text"'
        cells = (f"<{tag}{text if i < texts else ''}>{html.escape(x)}</{tag}>" for i, x in enumerate(row))
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return '<div class="wide"><table>\n' + "\n".join(lines) + "\n</table></div>"


def pipeline_plots(by_threads: Sequence[Run], by_batch: Sequence[Run], run: Run, costs: Sequence[Cost]) -> str:
    """Draws throughput by threads and by batch size, with equal axes, and the costs of a batch of `run`."""
    highest = max(r.images_per_second for r in (*by_threads, *by_batch))
    first = by_threads[0]
    threads = [(str(r.num_threads), r.images_per_second) for r in by_threads]
    ideal = [first.images_per_second * r.num_threads / first.num_threads for r in by_threads]
    sizes = [(str(r.batch_size), r.images_per_second) for r in by_batch]
    drawings = [
        lines(f"images/s by num_threads (batch_size={first.batch_size})", threads, highest, ideal),
        lines(f"images/s by batch_size (num_threads={by_batch[0].num_threads})", sizes, highest),
        bars(
            f"ms of a batch (num_threads={run.num_threads}, batch_size={run.batch_size})",
            [
                (f"{operator} ({stage})" if stage else operator, 1e3 * seconds, f"{1e3 * seconds:.2f} ms, {share:.0%}")
                for stage, operator, seconds, share in cost_shares(costs)
            ],
        ),
    ]
    return '<div class="plots">\n' + "\n".join(drawings) + "\n</div>"


def decoder_plot(results: Sequence[DecoderResult]) -> str:
    """Draws the speed of each decoder for one category of files. jaxdali's bars are blue, the others gray."""
    rows = [(r.decoder, r.megapixels, f"{r.megapixels:.0f}") for r in results]
    return bars("megapixels/s in one thread", rows, blue="jaxdali ")


def lines(title: str, points: Sequence[tuple[str, float]], highest: float, ideal: Sequence[float] = ()) -> str:
    """Draws a line through points at equal distances along x. The axis is from 0 to at least `highest`. `ideal` has the
    values of a dashed line, which is cut off at the top of the plot.
    """
    step = _step(highest)
    top = step * math.ceil(highest / step) or 1.0
    # The place of point k, and that of a value, in pixels.
    x = lambda k: _LEFT + (_WIDTH - _LEFT - _RIGHT) * (k + 0.5) / len(points)
    y = lambda v: _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * v / top
    parts = []
    for k in range(round(top / step) + 1):
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(k * step):.1f}" y2="{y(k * step):.1f}" stroke="#e3e8ee"/>'
        )
        parts.append(f'<text x="{_LEFT - 8}" y="{y(k * step) + 4:.1f}" text-anchor="end">{k * step:g}</text>')
    if ideal:
        box = f'x="{_LEFT}" y="{_TOP}" width="{_WIDTH - _LEFT - _RIGHT}" height="{_HEIGHT - _TOP - _BOTTOM}"'
        clip_path = f'<clipPath id="plot"><rect {box}/></clipPath>'
        path = " ".join(f"{x(k):.1f},{y(v):.1f}" for k, v in enumerate(ideal))
        parts += [
            clip_path,
            f'<polyline points="{path}" fill="none" stroke="{_GRAY}" stroke-dasharray="5 4" clip-path="url(#plot)"/>',
        ]
        parts.append(
            f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 6}" text-anchor="end" fill="{_GRAY}">dashed: in proportion</text>'
        )
    path = " ".join(f"{x(k):.1f},{y(v):.1f}" for k, (_, v) in enumerate(points))
    parts.append(f'<polyline points="{path}" fill="none" stroke="{_BLUE}" stroke-width="2"/>')
    for k, (name, v) in enumerate(points):
        parts.append(
            f'<circle cx="{x(k):.1f}" cy="{y(v):.1f}" r="4" fill="{_BLUE}"><title>{html.escape(name)}: {v:.0f}</title></circle>'
        )
        parts.append(
            f'<text x="{x(k):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{html.escape(name)}</text>'
        )
    return _svg(title, _WIDTH, _HEIGHT, parts)


def bars(title: str, rows: Sequence[tuple[str, float, str]], blue: str = "") -> str:
    """Draws a bar for each row: its name, its length, and the text beside it. A bar is blue if its name begins with
    `blue`, otherwise gray.
    """
    name_width, row_height, text_width = 260, 24, 130  # pixels
    longest = max((v for _, v, _ in rows), default=0.0) or 1.0
    parts = []
    for k, (name, value, text) in enumerate(rows):
        y, width = _TOP + row_height * k, (2 * _WIDTH - name_width - text_width) * value / longest
        parts.append(f'<text x="{name_width - 8}" y="{y + 15}" text-anchor="end">{html.escape(name)}</text>')
        box = f'x="{name_width}" y="{y + 3}" width="{width:.1f}" height="{row_height - 8}"'
        parts.append(f'<rect {box} rx="2" fill="{_BLUE if name.startswith(blue) else _GRAY}"/>')
        parts.append(f'<text x="{name_width + width + 6:.1f}" y="{y + 15}">{html.escape(text)}</text>')
    return _svg(title, 2 * _WIDTH, _TOP + row_height * len(rows) + 8, parts)


def _step(highest: float) -> float:
    """The distance of grid lines: 1, 2 or 5 times a power of ten, so that at most five reach `highest`."""
    if highest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest / 4))
    return next(power * f for f in (1, 2, 5, 10) if highest / (power * f) <= 5)


def _svg(title: str, width: int, height: int, parts: Iterable[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    text = f'<text x="0" y="18" font-size="14" font-weight="600">{html.escape(title)}</text>'
    return "\n".join(
        [f'{head} font-family="system-ui, sans-serif" font-size="12" fill="{_INK}">', text, *parts, "</svg>"]
    )
