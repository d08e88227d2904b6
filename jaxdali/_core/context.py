"""What operators get besides their inputs: when a pipeline is built, in the host pass, and in a program. Plain data and callables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .settings import UserSettings
from .values import Spec


@dataclasses.dataclass(frozen=True)
class BuildContext:
    """What `Operator.bind` gets.

    Attributes:
      B: samples per shard.
      stage: where the operator runs: "host", "cpu" or "device".
      where: the user's line.
      kernels: the native kernels of the accelerator the pipeline is placed on; none when that is the CPU.
      settings: the JAX settings of the user's thread.
      of_shards: this operator as each local shard's definition has it.
      first_shape: of the first sample of input `i`, where that is a source's and can be had before anything is read; else None.
      literals: of the inputs: what every sample is, where the definition says it; else None.
      on_host: whether all inputs are host values.
      in_branch: whether it gets only the samples of a batch that take a branch of an `if`.
    """

    B: int
    stage: str
    where: str
    kernels: frozenset[str]
    settings: UserSettings
    of_shards: Sequence[Any]
    first_shape: Callable[[int], tuple[int, ...] | None]
    literals: Sequence[np.ndarray | None] = ()
    on_host: bool = False
    in_branch: bool = False


@dataclasses.dataclass(slots=True)
class HostContext:
    """What operators get in the host pass. N = S*B samples of all local shards, shard by shard.

    Attributes:
      S: local shards; B: samples per shard; N: S*B.
      shard_ids: place of each local shard among `num_shards`.
      seed: of the pipeline; num_threads: of the pipeline; pool: id of its native thread pool.
      epoch, position: ``i64[N]``, what random numbers are keyed by; present: ``bool[N]``, False for samples that a short batch lacks, and
        for those that don't take the branch of an `if` that the operator is in: to be left alone. See Note [Presence].
      specs: of the outputs.
      random_index: number of the operator among the random ones; -1: it is none.
      bad: samples that failed in an earlier launch of this batch, with their status codes: to be replaced, or (`Status.REFUSED`) to be
        done on the host.
      empty: ``empty(elements, dtype, index=0)``: a pooled buffer ``[S, capacity]``, capacity at least `elements`, for the ragged
        output `index`.
      fail: ``fail(i, code, reason="")`` marks sample `i` as failed; the batch is not launched.
      report_bad: ``report_bad(i, code, reason="")`` reports that sample `i` was replaced.
      source_of: ``source_of(i)``: where sample `i` came from, as source_info has it; "" when nobody knows.
      frames: how many samples one after the other are the frames of one sequence, see `Frames`; 1: samples are samples.
      resource: ``resource(make)``: what the operator keeps while the pipeline is there, and no longer: what ``make()`` returned when it was
        first asked for. Its ``counts()`` are for `Pipeline.statistics`.
    """

    S: int
    B: int
    N: int
    shard_ids: tuple[int, ...]
    num_shards: int
    seed: int
    num_threads: int
    pool: int
    epoch: np.ndarray
    position: np.ndarray
    present: np.ndarray
    specs: tuple[Spec, ...]
    random_index: int
    bad: Mapping[int, int]
    empty: Callable[..., np.ndarray]
    fail: Callable[..., None]
    report_bad: Callable[..., None]
    source_of: Callable[[int], str]
    frames: int = 1
    resource: Callable[[Callable[[], Any]], Any] = lambda make: make()

    @property
    def spec(self) -> Spec:
        """Of the first output."""
        return self.specs[0]

    def batch_of(self, shard: int) -> np.ndarray:
        """The samples of a local shard that are there, by their places among the N: what users know as samples 0, 1, ... of a batch.

        Where samples are frames: the first ones of sequences.
        """
        start = shard * self.B
        return start + self.frames * np.flatnonzero(self.present[start : start + self.B : self.frames])


@dataclasses.dataclass(frozen=True)
class Out:
    """Where a ragged output is written: `capacity` elements, the layout as operands."""

    capacity: int
    offsets: Any  # i32[B]
    shapes: Any  # i32[B, ndim]


@dataclasses.dataclass(frozen=True)
class LowerContext:
    """What `ProgramOperator.lower` gets, for one shard.

    Attributes:
      B: samples in this shard.
      inputs, specs: specs of the inputs and of the outputs.
      control: ``i32[1+B]``, the native calls' control operand (thread pool, presence of each sample).
      out: of each output, where a ragged one is to be written, or None for a static one.
      params: the per-sample parameters that `setup` gave, by name, ``[B, ...]``.
      scratch: bytes of working memory that the native call gets; at least what `setup` asked for.
      times: to which `call` adds what each native call takes, ``i32[]`` in units of 100 ns; None where nobody wants to know.
    """

    B: int
    inputs: tuple[Spec, ...]
    specs: tuple[Spec, ...]
    control: Any
    out: tuple[Out | None, ...]
    params: Mapping[str, Any]
    scratch: int = 0
    times: list[Any] | None = None

    @property
    def spec(self) -> Spec:
        """Of the first output."""
        return self.specs[0]
