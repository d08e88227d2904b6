"""The `repr` of pipelines and iterators."""

from __future__ import annotations

from collections.abc import Sequence

from .._core.graph import DataNode, Graph
from .._core.values import Spec


def describe(title: str, graph: Graph | None, specs: Sequence[Spec | None], batch_size: int) -> str:
    """Describes a pipeline in a few lines: its operators, and its outputs with the given specs. `graph` is None before
    the pipeline is defined.
    """
    if graph is None:
        return f"{title}: not defined yet"
    operators = ", ".join(_operator_names(graph))
    outputs = list(zip(graph.outputs, specs, strict=True))
    return "\n".join(
        [
            title,
            f"  operators: {operators}",
            *(f"  output {i}: {describe_value(x, s, [batch_size])}" for i, (x, s) in enumerate(outputs)),
        ]
    )


def _operator_names(graph: Graph) -> list[str]:
    """Names of the operators as the user wrote them. A call that made several nodes of one operator counts once."""
    names, seen_calls = [], set[tuple[int, str]]()
    for node in graph.nodes:
        key = id(node.call or node), node.op.name
        if key not in seen_calls:
            names.append(node.op.name)
        seen_calls.add(key)
    return names


def describe_value(x: DataNode, spec: Spec | None, batch_shape: Sequence[int]) -> str:
    """Describes a value of a graph: type, shape, layout, device and operator. Extents that vary are "?"."""
    origin = f"on the {x.device}, of {x.node.op.name}"
    if spec is None:
        return f"not known before it is built, {origin}"
    if spec.is_metadata:
        return f"metadata[{', '.join(map(str, batch_shape))}] {x.metadata!r}, {origin}"
    shape = ", ".join(map(str, [*batch_shape, *("?" if n is None else n for n in map(spec.extent, range(spec.ndim)))]))
    return f"{spec.dtype}[{shape}]{f' {spec.layout}' if spec.layout else ''}, {origin}"
