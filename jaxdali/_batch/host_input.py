"""`HostInput`: an input of a graph, whose values a caller passes with each batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._core.operator import SourceOperator
from .._core.values import Spec
from .._data.source import Source

# Returns the shape of an output's first sample, see `Source.first_shape`.
FirstShape = Callable[[int], tuple[int, ...] | None]


def _no_shape(output: int) -> None:
    """The `FirstShape` of values of which nothing is known before a batch."""


class HostInput(SourceOperator):
    """An input of a graph: a caller passes its values with each batch (`Executor.batch_of`).

    Attributes:
      specs: of the outputs.
      of_values: whether it is an input of a function of values.
      number: its position among these inputs.
      first_shape: of the outputs.
    """

    name = "input"
    stays = False
    specs: tuple[Spec, ...]
    of_values: bool = False  # pyright: ignore[reportIncompatibleVariableOverride]
    number: int = 0
    first_shape: FirstShape = dataclasses.field(default=_no_shape, compare=False)

    @property
    def num_arrays(self) -> int:
        return len(self.specs)

    def make_source(self, ops: Sequence[Any], seed: int) -> Source:
        return InputSource(self.specs, self.first_shape)


class InputSource(Source):
    """A source that is never read, as a caller passes the values (`Executor.batch_of`).

    Args:
      specs: of the outputs.
      first_shape: of the outputs.
      counts: see `Source.counts`.
    """

    def __init__(
        self,
        specs: tuple[Spec, ...],
        first_shape: FirstShape = _no_shape,
        counts: Callable[[], Mapping[str, int]] = dict,
    ):
        self._specs, self._first_shape, self._counts = specs, first_shape, counts

    def specs(self) -> tuple[Spec, ...]:
        return self._specs

    def first_shape(self, output: int) -> tuple[int, ...] | None:
        return self._first_shape(output)

    def initial(self) -> list[Any]:
        return [None]

    def counts(self) -> Mapping[str, int]:
        return self._counts()
