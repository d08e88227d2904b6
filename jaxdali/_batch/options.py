"""How an executor makes batches, and how it hands them over."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from jax.sharding import Sharding

from .._core.declaration import Range, Whole, check_fields
from .._plan.plan import Plan

Tuned = Literal["num_threads", "prefetch_queue_depth"]
Finish = Callable[[Plan, tuple[Any, ...]], tuple[Any, ...]]


@dataclasses.dataclass(frozen=True)
class RaggedForm:
    """How an iterator gives an output whose samples differ in shape.

    Attributes:
      limits: the extents of the leading axes that samples are padded to; None: they are not, a list of arrays is given.
      fill: what they are padded with.
      lengths: the sharding of the lengths; None: as the output without one.
    """

    limits: tuple[int, ...] | None
    fill: float = 0
    lengths: Sharding | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How batches are made; of a pipeline, `Settings.run_options`.

    Attributes:
      batch_size: samples per shard.
      seed: of the pipeline.
      num_threads: threads of the native operators, for all shards together.
      num_workers: threads in which a source of samples may be called, where the user wants that.
      statistics: whether the stages are measured.
      fuse: whether native calls on the CPU are made one where that is possible.
      tuned: which of "num_threads" and "prefetch_queue_depth" follow what is measured.
      pool_id: of native threads that others use, too; None: the executor has its own.
    """

    batch_size: Annotated[Whole, Range(1)]
    seed: Whole = 0
    num_threads: Annotated[Whole, Range(1)]
    num_workers: Annotated[Whole, Range(0)] = 1
    statistics: bool = False
    fuse: bool = True
    tuned: tuple[Tuned, ...] = ()
    pool_id: Whole | None = None

    def __post_init__(self):
        check_fields("pipeline", self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Delivery:
    """The form in which batches are given.

    Attributes:
      as_arrays: outputs are global jax.Arrays (an iterator), else values as they are, of the one shard (Pipeline.run).
      shardings: of the outputs, in their order, those beyond lie as the first; None: all on the one device.
      stacked: outputs get a leading axis of the shards, ``(shards, B, ...)``, which the sharding shards.
      padded: batches keep their size where samples are missing.
      reader: name of the source that says which epoch and position a sample has; None: the first.
      x64: whether `as_arrays` keeps 64-bit types; None: as the user has set it in JAX.
      finish: of `as_arrays`, makes another framework's values of a batch's arrays, in the thread that checks it. What it raises is that
        batch's error.
      as_sample_lists: numbers of the outputs that are given as their samples, which may differ in shape; of one graph without a sharding.
      names: what an iterator calls the outputs, for messages.
      ragged: the form of those outputs, by number, whose samples may differ in shape.
    """

    as_arrays: bool = True
    shardings: Sequence[Sharding | None] | None = None
    stacked: bool = False
    padded: bool = False
    reader: str | None = None
    x64: bool | None = None
    finish: Finish | None = None
    as_sample_lists: frozenset[int] = frozenset()
    names: tuple[str, ...] = ()
    ragged: Mapping[int, RaggedForm] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if not self.as_arrays and (self.shardings or self.stacked or self.finish or self.as_sample_lists or self.ragged):
            raise ValueError("only arrays have a sharding, a leading axis of shards, or another form")
        if self.as_sample_lists & {*self.ragged}:
            raise ValueError(f"outputs {sorted(self.as_sample_lists & {*self.ragged})} can't have two forms")

    def of_outputs(self, number: int) -> tuple[Sharding | None, ...]:
        """The sharding of each output, if there are `number` outputs."""
        if self.shardings is None:
            return (None,) * number
        return *self.shardings[:number], *[self.shardings[0]] * (number - len(self.shardings))


VALUES = Delivery(as_arrays=False)
