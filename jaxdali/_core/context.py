"""What operators get in addition to their inputs: when a pipeline is built, in the host pass, and in a program. All are
plain data and callables.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .jax_settings import UserSettings
from .values import Spec


@dataclasses.dataclass(frozen=True)
class BuildContext:
    """What `Operator.bind` gets.

    Attributes:
      B: samples per shard.
      stage: where the operator runs: "host", "cpu" or "device".
      where: the user's line.
      kernels: the native kernels of the pipeline's accelerator; empty on the CPU.
      settings: JAX's settings in the user's thread.
      of_shards: this operator in the definition of each local shard.
      first_shape: the shape of the first sample of input `i`, if it comes from a source and is available before
        anything is read; else None.
      first_samples: the samples of input `i` in the first batch, as far as the host has them; None: there is no batch
        yet. An operator that raises ArgumentError then is bound when the batch is there.
      literals: for each input, the value of every sample if the definition determines it; else None.
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
    first_samples: Callable[[int], Sequence[np.ndarray] | None]
    literals: Sequence[np.ndarray | None] = ()
    on_host: bool = False
    in_branch: bool = False


@dataclasses.dataclass(slots=True)
class HostContext:
    """What operators get in the host pass. N = S*B samples of all local shards, shard by shard.

    Attributes:
      S: local shards; B: samples per shard; N: S*B.
      shard_ids: the number of each local shard among `num_shards`.
      seed, num_threads: of the pipeline; pool: id of its native thread pool.
      epoch, position: ``i64[N]``, the keys of random numbers; present: ``bool[N]``, False for samples that a short
        batch lacks, and for samples that don't take the operator's branch of an `if`: they must not be touched. See
        Note [Presence].
      specs: of the outputs.
      random_index: the number of the operator among the random ones; -1: it is not random.
      bad: samples that failed in an earlier launch of this batch, with their status codes; they must be replaced, or
        (`Status.REFUSED`) be processed on the host.
      empty: ``empty(elements, dtype, index=0)``: a pooled buffer ``[S, capacity]``, capacity at least `elements`, for
        the ragged output `index`.
      fail: ``fail(i, code, reason="")`` marks sample `i` as failed; the batch is not launched.
      report_bad: ``report_bad(i, code, reason="")`` reports that sample `i` was replaced.
      warn: ``warn(about, text)`` warns at the operator's line, once for each `about`, a word for what the data have.
      source_of: ``source_of(i)``: where sample `i` came from, as in source_info; "" if it is not known.
      frames: how many consecutive samples are the frames of one sequence, see `Frames`; 1: samples are not frames.
      resource: ``resource(make)``: an object that the operator keeps as long as the pipeline exists: the result of
        ``make()``, which is called the first time. Its ``counts()`` are for `Pipeline.statistics`.
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
    warn: Callable[[str, str], None] = lambda about, text: None

    @property
    def spec(self) -> Spec:
        """The spec of the first output."""
        return self.specs[0]

    def batch_of(self, shard: int) -> np.ndarray:
        """The samples of a local shard that are there, by their places among the N: what users know as samples 0, 1,
        ... of a batch.

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
      out: for each output, where it must be written if it is ragged, or None if it is static.
      params: the per-sample parameters that `setup` gave, by name, ``[B, ...]``.
      scratch: bytes of working memory that the native call gets; at least what `setup` asked for.
      times: a list to which `call` adds the time of each native call, ``i32[]`` in units of 100 ns; None if it is not
        measured.
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
        """The spec of the first output."""
        return self.specs[0]
