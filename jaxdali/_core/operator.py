"""The contract of an operator."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .values import Spec, Value

if TYPE_CHECKING:
    from .._data.source import Source
    from .._run.executor import Executor
    from .._run.host import HostContext
    from .._run.lowering import LowerContext
    from .graph import Node


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operator:
    """One call of a function of `jaxdali.fn`. Its fields are static attributes: they stand in the key of compiled programs.

    `infer` is called once, when the pipeline is built; `run` or `setup` once per batch on the host; `lower` once per
    compilation. An operator has `run`, or `lower` (with `setup`, when it is native), or both.
    """

    name: ClassVar[str]  # as users know it: "decoders.image"
    runs: ClassVar[frozenset[str]]  # subset of {"host", "compute"}: which of run and lower exist
    native: ClassVar[bool] = False  # lower() is a native call and also returns status i32[B]
    kernel: ClassVar[str] = ""  # of a native operator: what lower() calls
    reads_shapes_only: ClassVar[bool] = False  # run() works on values made in a program too: it gets their shapes, no data
    source: ClassVar[bool] = False  # reader or external_source: one instance and one state per shard
    random: ClassVar[bool] = False  # draws random numbers: is numbered among the random operators of its pipeline
    moves: ClassVar[bool] = False  # its output lives where `device` says, wherever its input is
    eager: ClassVar[bool] = (
        False  # call(ctx, inputs, shards) runs between programs, on arrays of each shard; specs are those of its results
    )
    setup_reads: ClassVar[tuple[int, ...] | None] = (
        None  # inputs whose values setup reads: they must be host values. None: all but the first
    )

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def preserved(self) -> bool:
        """Whether it runs even when no output depends on it."""
        return False

    @property
    def key(self) -> Any:
        """What distinguishes this operator's programs from another's."""
        return self

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        """Specs of the outputs. Raises ValueError or TypeError on inputs it does not take."""
        raise NotImplementedError(self.name)

    def bind(self, executor: Executor, node: Node, ops: Sequence[Operator], specs: tuple[Spec, ...]) -> Operator:
        """What really runs, for operators that decide it when their inputs' specs are known.

        Args:
          ops: this operator in each local shard's graph.
        """
        return self

    def is_native(self, *specs: Spec) -> bool:
        """Whether `lower` returns ``(outputs, status)`` for inputs of these specs."""
        return self.native

    def make_source(self, ops: Sequence[Any], seed: int) -> Source:
        """The running source of a reader or external_source; `ops` are this operator in each local shard's graph."""
        raise NotImplementedError(self.name)

    def setup(self, ctx: HostContext, *values: Value) -> tuple[np.ndarray | None, ...]:
        """Shapes ``i64[N, ndim]`` of each output, None for a static one. Called when the operator is native or an output ragged.

        Per-sample parameters of the kernel are handed to `lower` with ``ctx.param(name, array)``.
        """
        raise NotImplementedError(self.name)

    def run(self, ctx: HostContext, *values: Value) -> tuple[Any, ...]:
        """Outputs, each an array ``[N, *shape]`` (static), or a list of N arrays or a `Packed` (ragged)."""
        raise NotImplementedError(self.name)

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        """One shard's outputs, traced: a tuple of arrays ``[B, ...]`` or `Ragged`; native: ``(outputs, status)``."""
        raise NotImplementedError(self.name)
