"""Draws the README's picture of speeds, speed.svg, and prints its table, from the numbers in RESULTS.md.

    python tests/benchmarks/draw_speed.py

Run it when RESULTS.md has new numbers, and copy the table into the README; a test compares all three.
"""

from __future__ import annotations

import html
import pathlib
import re

HERE = pathlib.Path(__file__).parent
PICTURE = HERE / "speed.svg"
PIPELINES = {  # the columns in RESULTS.md, and what they do
    "decode": "decode",
    "resize": "decode, resize",
    "rotate": "decode, rotate, resize",
    "train": "ImageNet training",
    "eval": "ImageNet evaluation",
}
LIBRARIES = {  # the first words of the rows in RESULTS.md, and their names here
    "**jaxdali** |": "jaxdali",
    "NVIDIA DALI 2.4": "DALI 2.4",
    "tf.data": "tf.data",
    "Grain": "Grain",
    "threads over OpenCV": "OpenCV",
    "torch ": "torch (a)",
}
_BLUE, _GRAY, _LIGHT, _INK, _FAINT = "#2a6fbb", "#a9b3be", "#d5dbe1", "#1c2733", "#5b6876"
# Pixels: the names of libraries, a panel, and what is between panels; a bar; above.
_NAMES, _PANEL, _GAP, _ROW, _TOP = 84, 146, 42, 24, 66


def numbers() -> dict[str, dict[str, float]]:
    """CPU milliseconds per image by library and pipeline."""
    text = (HERE / "RESULTS.md").read_text().partition("### Pipelines, beside other libraries")[2]
    table_rows = {}
    for start, name in LIBRARIES.items():
        row = re.search(rf"^\| {re.escape(start)}.*$", text, re.MULTILINE)
        assert row, start
        cells = row[0].strip("|").split("|")[1:]
        table_rows[name] = {pipeline: float(cell) for pipeline, cell in zip(PIPELINES, cells, strict=True)}
    return table_rows


def table(found: dict[str, dict[str, float]]) -> str:
    """The README's table."""
    lines = [f"| CPU ms per image | {' | '.join(found)} |", f"|---|{'--:|' * len(found)}"]
    for pipeline, title in PIPELINES.items():
        cells = [_shown(ms[pipeline]) for ms in found.values()]
        lines.append(f"| {title} | **{cells[0]}** | {' | '.join(cells[1:])} |")
    return "\n".join(lines)


def svg(found: dict[str, dict[str, float]]) -> str:
    """A panel for each pipeline, with a bar for each library. Each panel has a scale of its own."""
    width = _NAMES + len(PIPELINES) * (_PANEL + _GAP) + 8
    height = _TOP + _ROW * len(found) + 34
    parts = [_text(8, 24, "CPU time per image, in ms: less is better", 16, weight=600)]
    for k, name in enumerate(found):
        bold = 600 if name == "jaxdali" else 400
        parts.append(_text(_NAMES - 2, _TOP + _ROW * k + 15, name, 13, anchor="end", weight=bold))
    for p, (pipeline, title) in enumerate(PIPELINES.items()):
        x = _NAMES + 8 + p * (_PANEL + _GAP)
        parts.append(_text(x, 52, title, 13, weight=600))
        parts.append(f'<line x1="{x}" x2="{x}" y1="{_TOP - 4}" y2="{_TOP + _ROW * len(found)}" stroke="{_LIGHT}"/>')
        longest = max(ms[pipeline] for ms in found.values())
        for k, (name, ms) in enumerate(found.items()):
            y, long = _TOP + _ROW * k, (_PANEL - 36) * ms[pipeline] / longest
            color = _BLUE if name == "jaxdali" else _LIGHT if name.endswith(")") else _GRAY
            parts.append(f'<rect x="{x}" y="{y + 2}" width="{long:.1f}" height="{_ROW - 7}" rx="2" fill="{color}"/>')
            parts.append(
                _text(x + long + 5, y + 15, _shown(ms[pipeline]), 12, weight=600 if name == "jaxdali" else 400)
            )
    parts.append(
        _text(
            8,
            height - 10,
            "512 JPEGs of 0.27 megapixels, two cores of an AMD EPYC. (a) torch: on a Xeon, in another run.",
            12,
            _FAINT,
        )
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img"'
    body = "\n".join(parts)
    background = '<rect width="100%" height="100%" fill="white"/>'
    return f'{head} font-family="system-ui, Helvetica, Arial, sans-serif">\n{background}\n{body}\n</svg>\n'


def _shown(ms: float) -> str:
    return f"{ms:.1f}" if ms >= 10 else f"{ms:.2f}"


def _text(
    x: float, y: float, text: str, size: int, fill: str = _INK, *, anchor: str = "start", weight: int = 400
) -> str:
    attributes = f'x="{x:.1f}" y="{y}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="{fill}"'
    return f"<text {attributes}>{html.escape(text)}</text>"


if __name__ == "__main__":
    PICTURE.write_text(svg(numbers()))
    print(f"{PICTURE} written\n\n{table(numbers())}")
