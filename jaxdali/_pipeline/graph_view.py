"""`Pipeline.show`: the graph of a pipeline as a picture, with where each step runs and how long it takes."""

from __future__ import annotations

import html
import os
import pathlib
from collections.abc import Iterable, Sequence

from .._batch.meter import Measured
from .._core.values import Spec
from .._plan.plan import Plan, Step

_COLORS = {"host": "#e6e6e6", "cpu": "#cfe2ff", "device": "#d7efb3"}
_PLACES = {"host": "on the host", "cpu": "in the program, on the CPU", "device": "in the program, on the device"}
_MEASURED = ("read", "host", "setup", "program", "to host")  # stages of single steps
_CHARACTER, _LINE, _MARGIN, _GAP = 6.7, 15, 8, 26  # pixels


class GraphPicture:
    """The graph of a pipeline. A notebook displays it automatically; elsewhere, use `save`.

    Attributes:
      svg: the picture, as text.
    """

    def __init__(self, svg: str, text: str):
        self.svg = svg
        self._text = text

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the picture as SVG."""
        pathlib.Path(path).write_text(self.svg, encoding="utf-8")

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x: auto">{self.svg}</div>'

    def __repr__(self) -> str:
        return f"<{self._text}; a notebook displays it, .save(path) writes it>"


class _Box:
    """A step, or the steps of one native call: lines of text, and its place.

    Attributes:
      reads: the boxes above it that it depends on.
      level: its row.
    """

    def __init__(self, lines: Sequence[str], color: str, dashed: bool = False):
        self.lines, self.color, self.dashed = list(lines), color, dashed
        self.reads: dict[_Box, None] = {}
        self.level = 0
        self.width = _CHARACTER * max(map(len, lines)) + 2 * _MARGIN
        self.height = _LINE * len(lines) + _MARGIN
        self.x = self.y = 0.0  # of the middle, and of the top


def draw(plan: Plan, names: Sequence[str], batch_size: int, rows: Iterable[Measured] = ()) -> GraphPicture:
    """Draws the steps of a plan from top to bottom.

    Steps that are fused into one native call are one box.

    Args:
      plan: bound as far as it is known.
      names: of the outputs.
      rows: what a meter measured, see `Statistics`; its milliseconds per batch are added to the boxes.
    """
    times = _milliseconds(rows)
    boxes: list[_Box] = []
    box_of: dict[int, _Box] = {}
    for steps in _calls(plan):
        lines = [_written(s) + (f"  {times[s.name]:.2f} ms" if s.name in times else "") for s in steps]
        lines.append(("fused, " if len(steps) > 1 else "") + _PLACES[steps[-1].stage])
        box = _Box(lines, _COLORS[steps[-1].stage])
        box.reads = {box_of[r.step]: None for s in steps for r in s.needs if r.step in box_of}
        box_of |= {s.id: box for s in steps}
        boxes.append(box)
    for name, ref, spec in zip(names, plan.outputs, plan.output_specs, strict=True):
        box = _Box([name, _form(spec, batch_size)], "white", dashed=True)
        box.reads = {box_of[ref.step]: None}
        boxes.append(box)
    return GraphPicture(_svg(boxes), f"graph of {len(plan.steps)} steps and {len(plan.outputs)} outputs")


def _milliseconds(rows: Iterable[Measured]) -> dict[str, float]:
    """The time of each step for a batch, by its name."""
    found: dict[str, float] = {}
    for row in rows:
        if row.stage in _MEASURED and row.calls:
            found[row.step] = found.get(row.step, 0.0) + 1e3 * row.seconds / row.calls
    return found


def _calls(plan: Plan) -> list[list[Step]]:
    """The steps by native call, in an order in which each call stands behind those that it depends on."""
    waiting: dict[int, list[Step]] = {}  # fused steps, by the last of them
    found: list[list[Step]] = []
    for step in plan.steps:
        before = [s for r in step.inputs for s in waiting.pop(r.step, [])]
        if step.fused:
            waiting[step.id] = [*before, step]
        else:
            found.append([*before, step])
    return found


def _written(step: Step) -> str:
    """The operator, and the name that the user gave the step."""
    return step.op.name + ("" if step.name.startswith("__") else f' "{step.name}"')


def _form(spec: Spec | None, batch_size: int) -> str:
    """Type and shape of an output."""
    if spec is None:
        return "not known yet"
    if spec.is_metadata:
        return "metadata"
    extents = ("?" if n is None else str(n) for n in map(spec.extent, range(spec.ndim)))
    return f"{spec.dtype}[{', '.join([str(batch_size), *extents])}]"


def _svg(boxes: Sequence[_Box]) -> str:
    """Places boxes in rows, each below all that it depends on, and draws them."""
    levels: dict[int, list[_Box]] = {}
    for box in boxes:
        box.level = 1 + max((b.level for b in box.reads), default=-1)
    for box in boxes:
        if not box.reads:  # just above what reads it, so that fewer arrows run behind other boxes
            box.level = min((b.level for b in boxes if box in b.reads), default=1) - 1
        levels.setdefault(box.level, []).append(box)
    width = max(sum(b.width + _GAP for b in row) for row in levels.values()) + _GAP
    y = _MARGIN
    for _, row in sorted(levels.items()):
        row.sort(key=lambda b: sum(r.x for r in b.reads) / len(b.reads) if b.reads else 0.0)  # below what they read
        x = (width - sum(b.width + _GAP for b in row) + _GAP) / 2
        for box in row:
            box.x, box.y = x + box.width / 2, y
            x += box.width + _GAP
        y += max(b.height for b in row) + _GAP
    style = 'font-family="monospace" font-size="11"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{y:.0f}" viewBox="0 0 {width:.0f} {y:.0f}" {style}>'
    ]
    for box in boxes:
        for above in box.reads:
            x, top = above.x, above.y + above.height
            middle = (top + box.y) / 2
            curve = f"M{x:.1f},{top:.1f} C{x:.1f},{middle:.1f} {box.x:.1f},{middle:.1f} {box.x:.1f},{box.y:.1f}"
            parts.append(f'<path d="{curve}" fill="none" stroke="#777"/>')
    for box in boxes:
        dashes = ' stroke-dasharray="4"' if box.dashed else ""
        place = f'x="{box.x - box.width / 2:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height}"'
        parts.append(f'<rect {place} rx="4" fill="{box.color}" stroke="#555"{dashes}/>')
        for i, line in enumerate(box.lines):
            at = f'x="{box.x:.1f}" y="{box.y + _LINE * (i + 1):.1f}" text-anchor="middle"'
            parts.append(f'<text {at} fill="#111" xml:space="preserve">{html.escape(line)}</text>')
    return "\n".join([*parts, "</svg>"])
