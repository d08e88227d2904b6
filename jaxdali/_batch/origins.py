"""The sources of samples, for source_info: their names are followed from the sources through the operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._core.graph import DataNode, Node
from .._core.operator import Names
from .._core.values import Value
from .._plan.plan import Ref
from .batch import InFlightBatch


def source_info(batch: InFlightBatch, x: DataNode, B: int) -> Names:
    """Returns the source of each sample of a value, such as its file; None: it is not known for any sample.

    Args:
      batch: keeps the result, and those of the values from which this one was made.
      x: the value.
      B: samples of a shard.
    """
    names = batch.names
    stack = [x]
    while stack:  # not recursive, because a graph may be deep
        missing = [y for y in stack[-1].node.inputs if Ref(y.node.id, y.index) not in names]
        if missing:
            stack += missing
        else:
            y = stack.pop()
            names[Ref(y.node.id, y.index)] = _source_info(batch, y, B)
    return names[Ref(x.node.id, x.index)]


def _source_info(batch: InFlightBatch, x: DataNode, B: int) -> Names:
    """As `source_info`, if `batch.names` has the inputs of the value's operator: from the source that made the value, or
    from the inputs. None: it is not known for any sample.
    """
    node = x.node
    ids = batch.origins.get(node.id)
    if ids is not None:
        names = ids.names if ids.of_output is None else ids.of_output(x.index)
        # Only "": no name is known. Other sequences make names when they are read, which would take long here.
        return None if isinstance(names, (list, tuple)) and not any(names) else names
    inputs = [batch.names[Ref(y.node.id, y.index)] for y in node.inputs]
    if all(names is None for names in inputs):
        return None
    return node.op.origins(inputs, lambda i: _data(batch, node.inputs[i]), lambda: _present(batch, node, B))


def _data(batch: InFlightBatch, x: DataNode) -> Value | None:
    """Returns a value, if it is on the host; otherwise None."""
    while Ref(x.node.id, x.index) not in batch.values:  # skips copies and other operators that do not run
        if len(x.node.inputs) != 1:
            return None
        x = x.node.inputs[0]
    value = batch.values[Ref(x.node.id, x.index)]
    return None if value.data is None else value


def _present(batch: InFlightBatch, node: Node, B: int) -> Sequence[np.ndarray]:
    """Returns for each shard the places in the batch of the samples that a node works on."""
    ids = batch.ids
    assert ids is not None
    present = np.ones(len(ids.epoch), bool) if ids.present is None else ids.present.copy()
    for branch in node.branch.path if node.branch is not None else ():
        predicate = _data(batch, branch.predicate)
        if predicate is not None and isinstance(predicate.data, np.ndarray):
            present &= (predicate.data.reshape(-1) != 0) == branch.side
    return [s * B + np.flatnonzero(present_in_shard) for s, present_in_shard in enumerate(present.reshape(-1, B))]
