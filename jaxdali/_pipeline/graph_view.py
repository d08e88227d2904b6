"""`Pipeline.show`: a picture of the graph of a pipeline, with the place and the time of each step."""

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
_MEASURED_STAGES = ("read", "host", "setup", "program", "to host")  # stages whose rows belong to one step
# Pixels. The width is that of a character of the 11-pixel monospace font in `_svg`; _GAP is the space between boxes.
_CHARACTER_WIDTH, _LINE_HEIGHT, _MARGIN, _GAP = 6.7, 15, 8, 26


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
    """A step, or the steps of one native call, as a box with lines of text.

    Attributes:
      reads: the boxes above it that it depends on, as an ordered set.
      level: the row that it stands in, from the top.
      x, y: the middle of its upper edge.
    """

    def __init__(self, lines: Sequence[str], color: str, dashed: bool = False):
        self.lines, self.color, self.dashed = list(lines), color, dashed  # `dashed`: its border
        self.reads: dict[_Box, None] = {}
        self.level = 0
        self.width = _CHARACTER_WIDTH * max(map(len, lines)) + 2 * _MARGIN
        self.height = _LINE_HEIGHT * len(lines) + _MARGIN
        self.x = self.y = 0.0


def draw(plan: Plan, names: Sequence[str], batch_size: int, rows: Iterable[Measured] = ()) -> GraphPicture:
    """Draws the steps of a plan from top to bottom.

    Steps that are fused into one native call are one box.

    Args:
      plan: the plan, bound as far as types are known.
      names: of the outputs.
      batch_size: samples per batch.
      rows: measurements of `Statistics`; the boxes show their milliseconds per batch.
    """
    times = _milliseconds(rows)
    boxes: list[_Box] = []
    box_of: dict[int, _Box] = {}
    for steps in _native_calls(plan):
        lines = [_operator_label(s) + (f"  {times[s.name]:.2f} ms" if s.name in times else "") for s in steps]
        lines.append(("fused, " if len(steps) > 1 else "") + _PLACES[steps[-1].stage])
        box = _Box(lines, _COLORS[steps[-1].stage])
        box.reads = {box_of[r.step]: None for s in steps for r in s.needs if r.step in box_of}
        box_of |= {s.id: box for s in steps}
        boxes.append(box)
    for name, ref, spec in zip(names, plan.outputs, plan.output_specs, strict=True):
        box = _Box([name, _spec_text(spec, batch_size)], "white", dashed=True)
        box.reads = {box_of[ref.step]: None}
        boxes.append(box)
    return GraphPicture(_svg(boxes), f"graph of {len(plan.steps)} steps and {len(plan.outputs)} outputs")


def _milliseconds(rows: Iterable[Measured]) -> dict[str, float]:
    """The time of each step for a batch, by its name."""
    milliseconds: dict[str, float] = {}
    for row in rows:
        if row.stage in _MEASURED_STAGES and row.calls:
            milliseconds[row.step] = milliseconds.get(row.step, 0.0) + 1e3 * row.seconds / row.calls
    return milliseconds


def _native_calls(plan: Plan) -> list[list[Step]]:
    """Groups the steps by native call. Each call stands behind the calls that it depends on."""
    unfinished: dict[int, list[Step]] = {}  # the steps of an unfinished call, by the id of its last step
    calls: list[list[Step]] = []
    for step in plan.steps:
        fused_inputs = [s for r in step.inputs for s in unfinished.pop(r.step, [])]
        if step.fused:
            unfinished[step.id] = [*fused_inputs, step]
        else:
            calls.append([*fused_inputs, step])
    return calls


def _operator_label(step: Step) -> str:
    """The operator's name, and the user's name of the step if there is one."""
    return step.op.name + ("" if step.name.startswith("__") else f' "{step.name}"')


def _spec_text(spec: Spec | None, batch_size: int) -> str:
    """Describes the type and shape of an output."""
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
    elements = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{y:.0f}" viewBox="0 0 {width:.0f} {y:.0f}" {style}>'
    ]
    for box in boxes:
        # Curves from the middle of a lower edge to the middle of an upper one, vertical at both ends.
        for above in box.reads:
            x, top = above.x, above.y + above.height
            middle = (top + box.y) / 2
            curve = f"M{x:.1f},{top:.1f} C{x:.1f},{middle:.1f} {box.x:.1f},{middle:.1f} {box.x:.1f},{box.y:.1f}"
            elements.append(f'<path d="{curve}" fill="none" stroke="#777"/>')
    for box in boxes:
        dashes = ' stroke-dasharray="4"' if box.dashed else ""
        rectangle = f'x="{box.x - box.width / 2:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height}"'
        elements.append(f'<rect {rectangle} rx="4" fill="{box.color}" stroke="#555"{dashes}/>')
        for i, line in enumerate(box.lines):
            position = f'x="{box.x:.1f}" y="{box.y + _LINE_HEIGHT * (i + 1):.1f}" text-anchor="middle"'
            elements.append(f'<text {position} fill="#111" xml:space="preserve">{html.escape(line)}</text>')
    return "\n".join([*elements, "</svg>"])
