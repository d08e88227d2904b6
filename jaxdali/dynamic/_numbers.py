"""Numbers as arguments per sample: constants that functions are compiled for, or values.

See Note [Constants and values].
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from .._core.declaration import Argument
from .._core.kinds import FLOAT
from ._batch import Batch

# Note [Constants and values]
# A number that is the same for all samples is a constant of the compiled function: a call then takes 0.1 ms, with a value
# 0.4 ms (8 images of 32 x 32 pixels). But a loop that draws a number for each batch would compile for 40 ms and keep 1.6
# MB for each of them. So the first numbers of an argument are constants, and later ones are values, if that changes
# nothing: neither the bits of the results nor that their shapes are known. `evaluate_numbers` compares one call of each
# kind, and `test_numbers_as_constants_and_values` does so for all arguments. Warnings about a number, such as that of
# `crop_mirror_normalize` for a small `mean`, come only while it is a constant.
MAX_CONSTANTS = 8  # numbers of an argument, in calls that are otherwise equal, for which functions are compiled
_MAX_KEYS = 4096

_lock = threading.Lock()  # guards the two below
_constant_keys: set[Any] = set()  # of functions that are compiled for their constants
_histories: dict[Any, _History] = {}


@dataclasses.dataclass
class _History:
    """The numbers that calls have had as arguments, which are otherwise equal.

    Attributes:
      constants: the numbers of each argument for which functions were compiled.
      are_values: for each argument that has had more numbers, whether further ones are passed as values.
    """

    constants: dict[str, set[Any]] = dataclasses.field(default_factory=dict)
    are_values: dict[str, bool] = dataclasses.field(default_factory=dict)


def is_constant(function_key: Any) -> bool:
    """Whether a call of the function was found to pass all numbers as constants."""
    return function_key in _constant_keys


def evaluate_numbers(
    static_key: Any,
    of_call: Any,
    declared_arguments: Mapping[str, Argument],
    named: Mapping[str, Any],
    evaluate_with: Callable[[Mapping[str, Batch]], Any],
) -> Any:
    """Evaluates a function, with its numbers as constants or as values, see Note [Constants and values].

    Args:
      static_key: of the function with all numbers as constants.
      of_call: identifies the call without its arguments by name, with the specs of its batches.
      declared_arguments: the declarations of arguments.
      named: the arguments by name.
      evaluate_with: evaluates the function with these arguments as values.
    """
    numbers: dict[str, np.ndarray] = {}
    # A sample that fails for its value would be replaced, where the constant is an error.
    if named.get("on_error") is None:
        for n, x in named.items():
            a = declared_arguments.get(n)
            if a is not None and a.per_sample and not a.is_input and (array := _as_array(x)) is not None:
                # As a value, a float where integers are expected would lose its fraction without an error.
                if array.dtype.kind != "f" or FLOAT in a.kinds:
                    numbers[n] = array
    if not numbers:
        _record(static_key)
        return evaluate_with({})
    kinds = tuple(sorted((n, x.dtype.kind, x.shape) for n, x in numbers.items()))
    other_arguments = tuple(x for x in static_key[-1] if x[0] not in numbers)
    with _lock:
        if len(_histories) >= _MAX_KEYS:
            _histories.clear()
        history = _histories.setdefault((of_call, kinds, other_arguments), _History())
    values = {n: Batch(x[None]) for n, x in numbers.items() if history.are_values.get(n)}
    constants = {n: x.tobytes() for n, x in numbers.items() if n not in history.are_values}
    surplus = [
        n
        for n, x in constants.items()
        if len(history.constants.setdefault(n, set())) >= MAX_CONSTANTS and x not in history.constants[n]
    ]
    if values and not surplus:
        try:
            result = evaluate_with(values)
        except Exception:  # as a constant the number has another error
            result = evaluate_with({})
    else:
        result = evaluate_with({})
    for n in surplus:
        values_with_it = {**values, n: Batch(numbers[n][None])}
        try:
            history.are_values[n] = _are_equal(evaluate_with(values_with_it), result)
        except Exception:  # it can't be a value
            history.are_values[n] = False
        if history.are_values[n]:
            values = values_with_it
    for n in constants.keys() - history.are_values.keys():
        history.constants[n].add(constants[n])
    if not values:
        _record(static_key)
    return result


def _record(static_key: Any):
    """Records that a call of the function passes all numbers as constants."""
    with _lock:
        if len(_constant_keys) >= _MAX_KEYS:
            _constant_keys.clear()
        _constant_keys.add(static_key)


def _as_array(x: Any) -> np.ndarray | None:
    """A number, or a list of numbers, as an array of 64 bits; None for anything else."""
    if isinstance(x, (list, tuple)):
        if not x or not all(type(e) in (bool, int, float) or isinstance(e, np.number) for e in x):
            return None
    elif not (
        type(x) in (bool, int, float)
        or isinstance(x, np.generic)
        or (isinstance(x, (np.ndarray, jax.Array)) and not x.ndim and not isinstance(x, Tracer))
    ):
        return None
    array = np.asarray(x)
    if array.dtype.kind in "iu":
        # As a value it is a float64 on the way.
        return array.astype(np.int64) if (np.abs(array.astype(np.float64)) < 2.0**53).all() else None
    return array.astype(np.float64) if array.dtype.kind == "f" else array if array.dtype.kind == "b" else None


def _are_equal(result: Any, expected: Any) -> bool:
    """Whether results have the same structure, types, shapes, layouts and bits, and know the same of their shapes."""
    leaves, tree = jax.tree.flatten(result, is_leaf=_is_value)
    expected_leaves, expected_tree = jax.tree.flatten(expected, is_leaf=_is_value)
    return tree == expected_tree and all(map(_are_equal_values, leaves, expected_leaves))


def _is_value(x: Any) -> bool:
    return isinstance(x, (Batch, np.ndarray))


def _are_equal_values(a: Any, b: Any) -> bool:
    if isinstance(a, Batch) and isinstance(b, Batch):
        return a._spec == b._spec and a.shapes == b.shapes and all(map(_are_equal_values, a, b))
    a, b = np.asarray(a), np.asarray(b)
    return (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()
