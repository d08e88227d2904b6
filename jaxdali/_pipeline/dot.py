"""A graph as text in Graphviz' DOT language."""

from __future__ import annotations

from .._core.graph import Graph, Node

_COLORS = {"host": "gray40", "cpu": "blue", "device": "#76b900"}


def dot(graph: Graph, *, show_tensors: bool, show_ids: bool, use_colors: bool) -> str:
    """Draws the operators of a graph, with an arrow for each value that an operator reads. A dashed arrow is the
    predicate of a branch.

    Args:
      graph: the graph.
      show_tensors: whether values, too, are boxes, including values that no operator reads.
      show_ids: whether labels of operators have their number in the pipeline.
      use_colors: whether operators are coloured by where they run: gray: on the host, before the program; blue: in the
        program, on the CPU; green: in the program, on the accelerator.
    """
    lines = ["digraph graphname {"]
    for node in graph.nodes:
        attributes = {"label": f"{node.name} ({node.id})"} if show_ids else {}
        if use_colors:
            attributes["color"] = _COLORS[node.stage]
        lines.append(f"{_quoted(node.name)}{_attributes(attributes)};")
        if show_tensors:
            for i in range(node.op.num_outputs):
                lines.append(f"{_quoted(_tensor(node, i))}[shape=box];")
                lines.append(f"{_quoted(node.name)} -> {_quoted(_tensor(node, i))}[label={i}];")
        for index, x in enumerate(node.inputs):
            origin = _tensor(x.node, x.index) if show_tensors else x.node.name
            lines.append(
                f"{_quoted(origin)} -> {_quoted(node.name)}{_attributes({'label': str(index)} if show_tensors else {})};"
            )
        if node.branch is not None:
            predicate, label = node.branch.predicate, "if" if node.branch.side else "else"
            origin = _tensor(predicate.node, predicate.index) if show_tensors else predicate.node.name
            lines.append(
                f"{_quoted(origin)} -> {_quoted(node.name)}{_attributes({'label': label, 'style': 'dashed'})};"
            )
    for index, x in enumerate(graph.outputs):
        name = f"output {index}"
        lines.append(f"{_quoted(name)}[shape=plaintext];")
        lines.append(f"{_quoted(_tensor(x.node, x.index) if show_tensors else x.node.name)} -> {_quoted(name)};")
    return "\n".join([*lines, "}"]) + "\n"


def _tensor(node: Node, index: int) -> str:
    return f"{node.name}[{index}]"


def _attributes(attributes: dict[str, str]) -> str:
    return "[" + ", ".join(f"{k}={_quoted(v)}" for k, v in attributes.items()) + "]" if attributes else ""


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
