"""Parses examples in the memory of the caller's bytes objects, which makes a batch of them take half the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._core.context import context_of
from .._core.errors import ArgumentTypeError
from .._core.ragged import Packed
from ..fn._decode.examples import ExampleOutputs
from . import _threads
from ._batch import Batch, Draw, Tensor, buffers
from ._values import FILE


def parsed(inputs: Sequence[Any], arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """The outputs of `parse_example` for a bytes object, or a list of them.

    None: the input is something else, or there is an error. The call then runs like those of all other functions, which
    name the sample and the user's line.
    """
    if any(isinstance(x, Mapping) for x in inputs):  # `tf.io.parse_single_example` takes it so
        raise ArgumentTypeError("parse_example: pass the features by name: features={...}")
    if len(inputs) != 1 or any(
        x is not None and n not in ("features", "sequence_features") for n, x in arguments.items()
    ):
        return None
    (messages,) = inputs
    is_single = isinstance(messages, FILE)
    if is_single:
        messages = [messages]
    if not isinstance(messages, (list, tuple)) or not messages or not all(isinstance(x, FILE) for x in messages):
        return None
    failures: list[int] = []
    try:
        outputs = ExampleOutputs.of(arguments.get("features"), arguments.get("sequence_features"))
        ctx = context_of(
            len(messages),
            outputs.specs,
            lambda i, code, reason="": failures.append(i),
            lambda elements, dtype, index=0: buffers.empty((1, max(elements, 1)), dtype),
            _threads.SHARED,
        )
        values = outputs.parse(ctx, [np.frombuffer(x, np.uint8) for x in messages])
    except (TypeError, ValueError):
        return None
    if failures:
        return None
    batches: dict[str, Any] = {}
    for name, x, spec in zip(outputs.names, values, outputs.specs, strict=True):
        if is_single:
            batches[name] = Tensor.of(x[0], spec.layout, Draw.NONE)
        elif isinstance(x, Packed):
            batches[name] = Batch(x.data[0], x.shapes, spec.layout, spec.dims)
        else:
            batches[name] = Batch(x, layout=spec.layout)
    return batches
