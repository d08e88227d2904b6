"""The `repr` of pipelines and iterators."""

from __future__ import annotations

from collections.abc import Sequence

from .._core.graph import DataNode, Graph
from .._core.values import Spec


def describe(title: str, graph: Graph | None, specs: Sequence[Spec | None], batch_size: int) -> str:
    """A pipeline in a few lines: its operators, and its outputs with these `specs`. No graph: it is not defined yet."""
    if graph is None:
        return f"{title}: not defined yet"
    operators = ", ".join(_written(graph))
    outputs = list(zip(graph.outputs, specs, strict=True))
    return "\n".join(
        [
            title,
            f"  operators: {operators}",
            *(f"  output {i}: {value(x, s, [batch_size])}" for i, (x, s) in enumerate(outputs)),
        ]
    )


def _written(graph: Graph) -> list[str]:
    """Names of the operators as the user wrote them. A call that made several nodes of one operator counts once."""
    found, seen = [], set[tuple[int, str]]()
    for n in graph.nodes:
        key = id(n.call or n), n.op.name
        if key not in seen:
            found.append(n.op.name)
        seen.add(key)
    return found


def value(x: DataNode, spec: Spec | None, batch: Sequence[int]) -> str:
    """A value of a graph: type, shape, layout, place, and operator. Extents that vary are "?"."""
    made = f"on the {x.device}, of {x.node.op.name}"
    if spec is None:
        return f"not known before it is built, {made}"
    if spec.is_metadata:
        return f"metadata[{', '.join(map(str, batch))}] {x.metadata!r}, {made}"
    shape = ", ".join(map(str, [*batch, *("?" if n is None else n for n in map(spec.extent, range(spec.ndim)))]))
    return f"{spec.dtype}[{shape}]{f' {spec.layout}' if spec.layout else ''}, {made}"
