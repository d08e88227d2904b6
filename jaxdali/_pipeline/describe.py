"""What `repr` says about pipelines and iterators."""

from __future__ import annotations

from collections.abc import Sequence

from .._core.graph import DataNode, Graph


def describe(title: str, graph: Graph | None, batch_size: int) -> str:
    """A pipeline in a few lines: its operators and outputs. None: it is not defined yet."""
    if graph is None:
        return f"{title}: not defined yet"
    operators = ", ".join(n.op.name for n in graph.nodes)
    return "\n".join(
        [title, f"  operators: {operators}", *(f"  output {i}: {value(x, [batch_size])}" for i, x in enumerate(graph.outputs))]
    )


def value(x: DataNode, batch: Sequence[int]) -> str:
    """A value of a graph: type, shape, layout, where it is, and what made it. Extents that vary are "?"."""
    made = f"on the {x.device}, of {x.node.op.name}"
    if not x.node.specs:
        return f"not known before it is built, {made}"
    spec = x.spec
    shape = ", ".join(map(str, [*batch, *("?" if n is None else n for n in map(spec.extent, range(spec.ndim)))]))
    return f"{spec.dtype}[{shape}]{f' {spec.layout}' if spec.layout else ''}, {made}"
