"""The contexts that operators get in addition to their inputs: when a pipeline is built, in the host pass, and in a
program. All are plain data and callables.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .jax_settings import UserSettings
from .ragged import Packed, plan_offsets
from .values import Spec


@dataclasses.dataclass(frozen=True)
class BuildContext:
    """The context of `Operator.bind`. Most operators use only the first four attributes; the others name their users.

    Attributes:
      B: samples per shard.
      stage: where the operator runs: "host", "cpu" or "device".
      where: the user's line.
      kernels: the native kernels of the pipeline's accelerator; empty on the CPU.
      settings: JAX's settings in the user's thread. For `jax_function`, which runs the user's function under them.
      of_shards: this operator in the definition of each local shard. For `python_function` and `jax_function`: the
        definition makes one function for each shard.
      first_shape: ``first_shape(i)``: the shape of the first sample of input `i`, if the input comes from a source and
        its shape is available before anything is read; else None. For arguments whose number of values decides the type
        of the output (`Arguments.measure`), as of `normalize`, `one_hot` and `transforms.combine`.
      first_samples: ``first_samples(i)``: the samples of input `i` in the first batch, as far as the host has them;
        None: there is no batch yet. An operator that then raises ArgumentError is bound once the batch is there. For
        image decoders, which read the headers of the first images.
      literals: for each input, the value of every sample if the definition determines it; else None. For `slice`, whose
        output has a static shape if the extent is a constant.
      on_host: whether all inputs are host values. For `slice`: vectors on the host, which are arguments of other
        operators, stay there.
      in_branch: whether the operator gets only the samples of a batch that take a branch of an `if`. For
        `jax_function`, which is not compiled for each number of such samples.
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
    """The context of an operator in the host pass: N = S*B samples of all local shards, shard by shard.

    Attributes:
      S: number of local shards.
      B: samples per shard.
      N: samples of all local shards, S*B.
      shard_ids: the number of each local shard among `num_shards`.
      seed, num_threads: of the pipeline.
      pool: id of the pipeline's native thread pool.
      epoch, position: ``i64[N]``, identify a sample in every run, as keys of its random numbers.
      present: ``bool[N]``, False for samples that a short batch lacks, and for samples that don't take the operator's
        branch of an `if`: they must not be touched. See Note [Presence].
      specs: of the outputs.
      random_index: the number of the operator among the random ones of its pipeline; -1: it is not random.
      bad: samples that failed in an earlier launch of this batch, with their status codes; they must be replaced, or
        (`Status.REFUSED`) be processed on the host.
      empty: ``empty(elements, dtype, index=0)``: a pooled buffer ``[S, capacity]``, capacity at least `elements`, for
        the ragged output `index`.
      free_bytes: ``free_bytes(n)``: the bytes of the `n` largest buffers that `empty` has made and nobody uses any more.
      fail: ``fail(i, code, reason="")`` marks sample `i` as failed; the batch is not launched.
      report_bad: ``report_bad(i, code, reason="")`` reports that sample `i` was replaced.
      warn: ``warn(about, text)`` warns at the operator's line, once for each `about`, a word that names the property of
        the data.
      source_of: ``source_of(i)``: the origin of sample `i`, as in source_info; "" if it is not known.
      frames: the number of consecutive samples that are the frames of one sequence, see `Frames`; 1: samples are not
        frames.
      resource: ``resource(make)``: the result of ``make()``, which is called the first time. The operator keeps it as
        long as the pipeline exists, for example a cache. Its ``counts()`` are for `Pipeline.statistics`.
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
    free_bytes: Callable[[int], int] = lambda n: 0

    @property
    def spec(self) -> Spec:
        """The spec of the first output."""
        return self.specs[0]

    def output(self, shapes: np.ndarray | None) -> tuple[np.ndarray | Packed, list[np.ndarray]]:
        """Memory for the first output, and its samples as views of it: an array ``[N, ...]`` of zeros if the spec has a
        shape, otherwise `Packed` without initial values, where samples that are not present have no elements.

        Args:
          shapes: ``i64[N, ndim]``; None if the spec has a shape.
        """
        if self.spec.shape is not None:
            data = np.zeros((self.N, *self.spec.shape), self.spec.dtype)
            return data, [data[i, ...] for i in range(self.N)]
        assert shapes is not None
        packed = self.packed(np.where(self.present[:, None], shapes, 0))
        return packed, [packed[i] for i in range(self.N)]

    def stored(self, samples: np.ndarray) -> np.ndarray | Packed:
        """The first output with the samples of an array ``[N, ...]``."""
        if self.spec.shape is not None:
            return samples
        packed = self.packed(np.tile(np.array(samples.shape[1:], np.int64), (self.N, 1)))
        if (stacked := packed.stacked()) is not None:
            stacked[...] = samples
        else:  # the samples of several shards do not follow each other
            for i, sample in enumerate(samples):
                packed[i][...] = sample
        return packed

    def packed(self, shapes: np.ndarray) -> Packed:
        """Memory without initial values for the first output, if that is ragged. `shapes`: ``i64[N, ndim]``."""
        offsets, num_elements = plan_offsets(shapes, self.S)
        return Packed(self.empty(num_elements, self.spec.dtype), offsets, shapes)

    def batch_of(self, shard: int) -> np.ndarray:
        """Indices, among the N samples, of the samples that are present in a local shard: samples 0, 1, ... of the
        user's batch.

        If samples are frames, these are the first frames of the sequences.
        """
        start = shard * self.B
        return start + self.frames * np.flatnonzero(self.present[start : start + self.B : self.frames])


def context_of(
    N: int, specs: tuple[Spec, ...], fail: Callable[..., None], empty: Callable[..., np.ndarray], pool: int
) -> HostContext:
    """The context in which N records are read or parsed outside of a pipeline; see `HostContext`."""
    numbers = np.zeros(N, np.int64)
    return HostContext(
        S=1,
        B=N,
        N=N,
        shard_ids=(0,),
        num_shards=1,
        seed=0,
        num_threads=1,
        pool=pool,
        epoch=numbers,
        position=numbers,
        present=np.ones(N, bool),
        specs=specs,
        random_index=-1,
        bad={},
        empty=empty,
        fail=fail,
        report_bad=lambda *_: None,
        source_of=lambda i: "",
    )


@dataclasses.dataclass(frozen=True)
class Out:
    """The place of a ragged output: a buffer of `capacity` elements, and its layout as operands of the program."""

    capacity: int
    offsets: Any  # i32[B]
    shapes: Any  # i32[B, ndim]


@dataclasses.dataclass(frozen=True)
class LowerContext:
    """The context of `ProgramOperator.lower`, for one shard.

    Attributes:
      B: samples in this shard.
      inputs, specs: specs of the inputs and of the outputs.
      control: ``i32[1+B]``, the control operand of native calls: id of the thread pool, then the presence of each
        sample.
      out: for each output, the place where it must be written if it is ragged; None if it is static.
      params: the per-sample parameters that `setup` returned, by name, ``[B, ...]``.
      scratch: bytes of working memory that the native call gets; at least as many as `setup` asked for.
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
