"""One batch in the making."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._core.graph import Node
from .._core.operator import Setup
from .._core.values import Value
from .._data.source import SampleIds


@dataclasses.dataclass(frozen=True)
class BadSample:
    """A sample that was replaced because it could not be decoded (``on_error="replace"``).

    Attributes:
      file: where it came from; reason: why it was replaced; count: how often that happened so far.
    """

    file: str
    reason: str
    count: int


class EagerArrays(tuple):
    """The result of an eager function: one array ``[B, ...]`` for each local shard."""


@dataclasses.dataclass
class Work:
    """One batch in the making.

    Attributes:
      before, after: the states it was made from, and after it.
      values: shapes of everything, and the data of host values, by (node id, output index).
      setups: what the operators of programs said, by node id.
      names: where each sample came from, by source node.
      ids: epoch and position of each sample.
      results: what programs and eager functions made: arrays, `Ragged` or `EagerArrays`.
      status: of each program that has native operators: (they, codes ``i32[S*B, operators]``).
      failures: samples that failed in the host pass; replaced: (file, reason) of those replaced.
      bad: after a launch, per native node, the samples that failed and their codes, see `HostContext.bad`.
      error: what a source raised; ended: whether one is at its end. Both stop the batch when the other sources have been read.
    """

    before: dict
    after: dict
    values: dict[tuple[int, int], Value] = dataclasses.field(default_factory=dict)
    setups: dict[int, Setup] = dataclasses.field(default_factory=dict)
    names: dict[int, Sequence[str]] = dataclasses.field(default_factory=dict)
    ids: SampleIds | None = None
    results: dict[tuple[int, int], Any] = dataclasses.field(default_factory=dict)
    status: list[tuple[tuple[Node, ...], Any]] = dataclasses.field(default_factory=list)
    failures: list[tuple[Node, int, int, str]] = dataclasses.field(default_factory=list)
    replaced: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    bad: Mapping[int, Mapping[int, int]] = dataclasses.field(default_factory=dict)
    error: BaseException | None = None
    ended: bool = False

    @property
    def present(self) -> np.ndarray | None:
        """``bool[N]``: the samples that a short batch has; None: all."""
        return self.ids.present if self.ids is not None else None

    def source_of(self, node: Node, i: int) -> str:
        """Where sample `i` of a node came from: the name given by the first source upstream of it."""
        todo = [node]
        for n in todo:
            if n.id in self.names:
                names = self.names[n.id]
                return names[i] if i < len(names) else ""
            todo += [x.node for x in n.inputs]
        return ""


class SourceError(Exception):
    """A source failed (the cause says how); `after` is the state to go on from."""

    def __init__(self, after: dict):
        super().__init__()
        self.after = after
