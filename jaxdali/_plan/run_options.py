"""`RunOptions`: the options for making batches."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from .._core.declaration import Range, Whole, check_fields

Tuned = Literal["num_threads", "prefetch_queue_depth"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options for making batches. For a pipeline, `PipelineSettings.run_options` returns them.

    Attributes:
      batch_size: samples per shard.
      seed: the seed of the pipeline.
      num_threads: number of threads of the native operators, for all shards together.
      num_workers: number of threads in which a source of samples may be called, if the user allows it.
      statistics: whether the stages are measured.
      fuse: whether native calls are fused where possible.
      tuned: the arguments that are tuned by measurements.
      pool_id: a pool of native threads that is shared with others; None: the executor has its own.
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
