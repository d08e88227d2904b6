"""One batch in the making, and what operators see of it in the host pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import ffi as _ffi
from .._core.graph import Node
from .._core.values import Value
from .._data.source import SampleIds

if TYPE_CHECKING:
    from .executor import Executor, UserSettings


@dataclasses.dataclass(frozen=True)
class BadSample:
    """A sample that was replaced because it could not be decoded (``on_error="replace"``).

    Attributes:
      file: where it came from; reason: why it was replaced; count: how often that happened so far.
    """

    file: str
    reason: str
    count: int


class HostContext:
    """What operators get in the host pass. N = S*B samples of all local shards, shard by shard.

    Attributes:
      S: local shards; B: samples per shard; N: S*B.
      node: the node that runs; seed: of the pipeline; num_threads: of the pipeline; pool: id of its native thread pool.
      shard_ids: place of each local shard among `num_shards`.
      epoch, position: ``i64[N]``, what random numbers are keyed by; present: ``bool[N]``, False for samples a short batch lacks.
      bad: samples that failed in an earlier launch of this batch, with their status codes: to be replaced, or (`_ffi.REFUSED`) to be
        done on the host.
    """

    def __init__(self, executor: Executor, node: Node, work: Work, bad: Mapping[int, int]):
        self._executor = executor
        self._work = work
        self.node = node
        self.S = len(executor.shards.devices)
        self.B = executor.B
        self.N = self.S * self.B
        self.shard_ids = executor.shards.ids
        self.num_shards = executor.shards.num
        self.seed = executor.seed
        self.num_threads = executor.num_threads
        self.pool = executor.pool_id
        self.bad = bad
        ids = work.ids
        self.epoch = ids.epoch if ids is not None else np.zeros(self.N, np.int64)
        self.position = ids.position if ids is not None else np.zeros(self.N, np.int64)
        self.present = ids.present if ids is not None and ids.present is not None else np.ones(self.N, bool)

    def param(self, name: str, value: np.ndarray):
        """Hands ``value[N, ...]`` to `lower` as ``ctx.params[name]``."""
        assert len(value) == self.N, (self.node.op.name, name, value.shape)
        self._work.params[self.node.id, name] = value

    def scratch(self, size: int):
        """Asks for working memory for the native call: `size` bytes for each shard, see `LowerContext.scratch`."""
        self._work.scratch[self.node.id] = size

    def fail(self, i: int, code: int, reason: str = ""):
        """Marks sample `i` as failed; the batch is not launched."""
        self._work.failures.append((self.node, i, code, reason))

    def report_bad(self, i: int, code: int, reason: str = ""):
        """Reports that sample `i` was replaced."""
        self._work.replaced.append((self._work.source_of(self.node, i), reason or _ffi.STATUS.get(code, str(code))))

    def empty(self, elements: int, dtype, index: int = 0) -> np.ndarray:
        """A pooled buffer ``[S, capacity]``, capacity at least `elements`, for the ragged output `index`."""
        return self._executor.buffer((self.node.id, index), elements, dtype)

    @property
    def settings(self) -> UserSettings:
        """The JAX settings of the user's thread."""
        return self._executor.settings

    def source_name(self, i: int) -> str:
        """Where sample `i` of this node's inputs came from."""
        return self._work.source_of(self.node, i)


class EagerArrays(tuple):
    """The result of an eager function: one array ``[B, ...]`` for each local shard."""


@dataclasses.dataclass
class Work:
    """One batch in the making.

    Attributes:
      before, after: the states it was made from, and after it.
      values: shapes of everything, and the data of host values, by (node id, output index).
      params: per-sample parameters of native operators, by (node id, name).
      scratch: bytes of working memory per shard that native operators need, by node id.
      names: where each sample came from, by source node.
      ids: epoch and position of each sample.
      results: what programs and eager functions made: arrays, `Ragged` or `EagerArrays`.
      status: of each program that has native operators: (they, codes ``i32[S*B, operators]``).
      failures: samples that failed in the host pass; replaced: (file, reason) of those replaced.
      bad: after a launch, per native node, the samples that failed and their codes, see `HostContext.bad`.
    """

    before: dict
    after: dict
    values: dict[tuple[int, int], Value] = dataclasses.field(default_factory=dict)
    params: dict[tuple[int, str], np.ndarray] = dataclasses.field(default_factory=dict)
    scratch: dict[int, int] = dataclasses.field(default_factory=dict)
    names: dict[int, Sequence[str]] = dataclasses.field(default_factory=dict)
    ids: SampleIds | None = None
    results: dict[tuple[int, int], Any] = dataclasses.field(default_factory=dict)
    status: list[tuple[tuple[Node, ...], Any]] = dataclasses.field(default_factory=list)
    failures: list[tuple[Node, int, int, str]] = dataclasses.field(default_factory=list)
    replaced: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    bad: Mapping[int, Mapping[int, int]] = dataclasses.field(default_factory=dict)

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
