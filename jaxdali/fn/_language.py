"""The operators behind the methods of DataNodes; see `jaxdali._core.language`."""

from __future__ import annotations

from typing import Any

from .. import types
from .._core.graph import DataNode
from ._tensor import arithmetic
from ._tensor.constant import array_node as array_node
from ._tensor.constant import constant_node as constant_node
from ._tensor.constant import narrowed as narrowed
from ._tensor.constant import stack_nodes as stack_nodes
from ._tensor.copy import copy_to as copy_to
from ._tensor.get_property import get_property as get_property
from ._tensor.merge import logical as logical
from ._tensor.merge import merge as merge
from ._tensor.merge import predicate_of as predicate_of
from ._tensor.shapes import shapes as _shapes
from ._tensor.subscript import subscript as subscript


def pointwise(function: str, *operands: Any) -> Any:
    return arithmetic.pointwise(function, *operands) if all(map(arithmetic.is_operand, operands)) else NotImplemented


def shapes(node: DataNode, dtype: types.DALIDataType | None) -> DataNode:
    return _shapes(node, dtype=types.INT64 if dtype is None else dtype)
