"""`fn._conditional`: the operators that DALI rewrites an `if` on DataNodes to, for users who call them directly."""

from __future__ import annotations

from typing import Any, Literal, Unpack

from .._core.building import add, as_node, current_branch, inside, user_line
from .._core.calls import records
from .._core.errors import ArgumentError
from .._core.graph import Branch, DataNode, check_reach, innermost_branch
from .._core.operator_function import Hints, Input, PerSample, operator_function
from ._tensor.copy import Copy
from ._tensor.merge import logical, predicate_of
from ._tensor.merge import merge as _merge


def _branches(predicate: DataNode, *inputs: DataNode) -> tuple[Branch, Branch]:
    """The two branches of a predicate: for samples where it is not 0, and for the others. They are made once, for all
    inputs that are split by it.
    """
    outer = innermost_branch((predicate, *inputs), current_branch())
    splits = predicate.node.splits
    # By output of the predicate's node, and by the branch of an `if` in which `split` is called.
    if (predicate.index, outer) not in splits:
        condition, line = predicate_of(predicate), user_line()
        # `by_inputs`: an operator belongs to the branch if one of its inputs does, without a block of code of its own.
        if_true, if_false = (Branch(condition, is_true, outer, line, by_inputs=True) for is_true in (True, False))
        splits[predicate.index, outer] = (if_true, if_false)
    return splits[predicate.index, outer]


@operator_function("_conditional.split")
def split(
    input: Input,
    /,
    *,
    predicate: PerSample[float],
    _if_stmt: bool = False,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> list[DataNode]:
    """Splits a value by a predicate, into the samples for which that is not 0, and the others.

    An operator on one part runs for the samples of this part alone, as in a branch of an `if`. `merge` joins the
    results for both parts. Parts by the same predicate can be combined. If an operator combines a part with a value of
    all samples, it takes the samples of the part from this value. Differs from DALI: a part can't be an output of the
    pipeline.

    Args:
      input: any tensor.
      predicate: a number for each sample.
      _if_stmt: without effect: in DALI it says how errors name the predicate.

    Returns:
      Two DataNodes: of the samples for which the predicate is not 0, and of the others.
    """
    node = as_node(input, "_conditional.split")
    parts: list[DataNode] = []
    for branch in _branches(as_node(predicate, "_conditional.split"), node):
        with inside(branch):
            parts.append(add(Copy(), node, device=device or node.device, name=None if parts else name))
    return parts


def merge(
    if_true: Any,
    if_false: Any,
    /,
    *,
    predicate: Any,
    device: Literal["cpu", "gpu"] | None = None,
    **hints: Unpack[Hints],
) -> Any:
    """Joins the results for both parts of a `split` to one value of all samples.

    Args:
      if_true: the value of the samples for which the predicate is not 0. For lists of DataNodes, the result is a list.
      if_false: the value of the other samples.
      predicate: the predicate of the `split`.
      device: the device of the result, "cpu", "gpu" or None.
      **hints: to DALI's executor, without effect here.

    Raises:
      ValueError: lists of different lengths.
      OperatorError: a value belongs to other samples.
    """
    if not isinstance(if_true, list) and not isinstance(if_false, list):
        return _of_both(if_true, if_false, predicate, device)
    n = len(if_true) if isinstance(if_true, list) else len(if_false)
    true_values, false_values = (x if isinstance(x, list) else [x] * n for x in (if_true, if_false))
    if len(true_values) != len(false_values):
        raise ArgumentError(
            "_conditional.merge: lists of inputs must be equally long, "
            f"got lengths {len(true_values)}, {len(false_values)}"
        )
    return [_of_both(a, b, predicate, device) for a, b in zip(true_values, false_values, strict=True)]


@records("_conditional.of_both")
def _of_both(if_true: Any, if_false: Any, predicate: Any, device: str | None) -> DataNode:
    """Joins the value of the samples for which the predicate is not 0 to that of the others. Raises OperatorError if
    one of the values was made for other samples. `device`: of the result; None: wherever the operator runs.
    """
    condition = as_node(predicate, "_conditional.merge")
    true_branch, false_branch = _branches(condition)
    a, b = as_node(if_true, "_conditional.merge"), as_node(if_false, "_conditional.merge")
    check_reach(a, true_branch, "as what _conditional.merge takes where its predicate is true")
    check_reach(b, false_branch, "as what _conditional.merge takes where its predicate is false")
    merged = _merge(a, b, true_branch.predicate)
    return merged if device is None else add(Copy(), merged, device=device)


def not_(input: Any, /, **hints: Unpack[Hints]) -> DataNode:
    """Negates a number of each sample, as `not` does. The result is a truth value. Hints are without effect."""
    return logical(input, "not", "right")


def validate_logical(input: Any, /, *, expression_name: str, expression_side: str, **hints: Unpack[Hints]) -> DataNode:
    """Returns a truth value of each sample unchanged. For anything else, raises an error that names the expression.

    Args:
      input: the value to check.
      expression_name: "and" or "or".
      expression_side: "left" or "right".
      **hints: to DALI's executor, without effect here.
    """
    if expression_name not in ("and", "or") or expression_side not in ("left", "right"):
        raise ArgumentError(
            f"validate_logical: of 'and' or 'or' the 'left' or 'right' side, got {expression_name!r}, {expression_side!r}"
        )
    return logical(input, expression_name, expression_side)
