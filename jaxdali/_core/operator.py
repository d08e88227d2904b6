"""The contract of an operator: what kinds there are, and what each has to say."""

from __future__ import annotations

import dataclasses
import functools
import threading
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from jax.sharding import Sharding

from .._data.source import Source
from . import ffi as _ffi
from .arguments import NO_ARGUMENTS, Arguments, Values
from .context import BuildContext, HostContext, LowerContext
from .values import Spec, Value

_lock = threading.RLock()
K = typing.TypeVar("K", bound="Operator")

Names = Sequence[str] | None  # where the samples of a value came from, "" where nobody knows; None: of all of them


def joined(names: Sequence[Names]) -> Names:
    """Where what was made of several values came from: all these places."""
    known = [n for n in names if n is not None]
    return [";".join(n for n in each if n) for each in zip(*known, strict=True)] if len(known) > 1 else known[0] if known else None


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Operator:
    """One call of a function of `jaxdali.fn`. Its fields are static attributes: they stand in the key of compiled programs.

    What it does depends on its kind: `HostOperator` and `ProgramOperator` (one with both forms inherits both), `SourceOperator`,
    `EagerOperator`, `SampleOperator`. `bind` and `infer` are called when the pipeline is built.

    Every kind of operator is a frozen dataclass, with keywords alone, and must not say so: it is made one when it is first used, as that
    takes a millisecond each, and most programs use few of the operators that they import.
    """

    name: ClassVar[str]  # as users know it: "decoders.image"
    random: ClassVar[bool] = False  # draws random numbers: is numbered among the random operators of its pipeline

    of_batch: ClassVar[bool] = False  # without inputs, depends on which samples there are: in a branch, on those that take it

    repeats_input: ClassVar[bool] = False  # with arguments per frame, an input that is no sequence is the same in all frames

    args: Arguments = NO_ARGUMENTS  # those that may come per sample

    _is_made: ClassVar[bool] = True  # in the namespace of a class that is a dataclass by now

    def __new__(cls, **_: Any):
        cls.fields()
        return super().__new__(cls)

    @classmethod
    def fields(cls) -> tuple[dataclasses.Field[Any], ...]:
        """The fields, `args` among them."""
        with _lock:
            if "_is_made" not in vars(cls):
                if "__dataclass_fields__" in vars(cls):
                    raise TypeError(f"{cls.__name__} must not say that it is a dataclass: an operator becomes one when it is first used")
                for base in cls.__bases__:
                    if issubclass(base, Operator):
                        base.fields()  # first: `cls` inherits them
                dataclasses.dataclass(frozen=True, kw_only=True)(cls)
                cls._is_made = True
        return dataclasses.fields(cls)

    @property
    def few_shapes(self) -> bool:
        """Whether batches have few shapes by intention, though they vary: then nobody warns of compiling for each."""
        return False

    @property
    def literal(self) -> np.ndarray | None:
        """What every sample of every batch is, where that is known from the definition."""
        return None

    def arguments(self, ctx: HostContext | None, inputs: Sequence[Value]) -> Values:
        """The arguments that may come per sample, for a batch.

        Args:
          ctx: of the batch; None: those that are the same for all samples, for one sample.
          inputs: of the operator, all or only those that are arguments.
        """
        N = 1 if ctx is None else ctx.N
        if self.args.inputs:
            return Values(self.name, self.args, N, ctx, inputs)
        if N not in self._same_for_all:
            self._same_for_all[N] = Values(self.name, self.args, N)
        return self._same_for_all[N]

    @functools.cached_property
    def _same_for_all(self) -> dict[int, Values]:
        """Arguments of which none comes per sample, by the number of samples: the same in every batch."""
        return {}

    def as_kind(self, kind: type[K]) -> K:
        """An operator of another kind with the same fields."""
        return kind(**{f.name: getattr(self, f.name) for f in self.fields()})

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def gives_list(self) -> bool:
        """Whether the user gets a list of a single output, too."""
        return False

    def origins(self, names: Sequence[Names], data: Callable[[int], Value | None], present: Callable[[], Sequence[np.ndarray]]) -> Names:
        """Where the samples of its outputs came from, as source_info has it.

        By default where those of its inputs came from, but for arguments: of a sample "" where these are several places.

        Args:
          names: the same of all inputs.
          data: ``data(i)``: input `i`, if the host has it.
          present: for each shard the places, among all samples of the batch, of those that it is for.
        """
        known = [n for n in names[: len(names) - len(self.args.inputs)] if n is not None]
        if all(n is known[0] for n in known):
            return known[0] if known else None
        return [places.pop() if len(places := {*each} - {""}) == 1 else "" for each in zip(*known, strict=True)]

    @property
    def joins(self) -> Sequence[int]:
        """The inputs that were made in the branches of an `if`, of which it gives one for each sample: all of one type."""
        return ()

    @property
    def preserved(self) -> bool:
        """Whether it runs even when no output depends on it."""
        return False

    @property
    def key(self) -> Any:
        """What distinguishes this operator's programs from another's."""
        return self

    @property
    def has_host_form(self) -> bool:
        """Whether `bind` gives a `HostOperator` where the stage is "host"."""
        return isinstance(self, HostOperator)

    def is_on_device(self, asked: str, follows: bool) -> bool:
        """Whether its outputs are on the accelerator.

        Args:
          asked: the user's `device`: "cpu", "mixed", "gpu" or "".
          follows: whether an input is there.
        """
        return follows or asked in ("mixed", "gpu")

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        """What really runs, for operators that decide it when their inputs' specs are known; perhaps of another kind."""
        return self

    def is_identity(self, *specs: Spec) -> bool:
        """Whether its one output is always its first input; then it is bypassed where both are in the same place."""
        return False

    def absorb(self, i: int, inner: Operator) -> Operator | None:
        """What does both, if `inner` makes this one's input `i`, and nobody else's: its inputs have those of `inner` in place of that.

        None: nothing does.
        """
        return None

    def ahead_of(self, readers: Sequence[Operator]) -> Operator:
        """This operator, when it is known which others read its outputs, and that nobody else does."""
        return self

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        """Specs of the outputs. Raises ValueError or TypeError on inputs it does not take."""
        raise NotImplementedError(self.name)


class HostOperator(Operator):
    """Runs with NumPy, once per batch, on all local shards' samples."""

    def run_reads(self, i: int) -> bool:
        """Whether `run` reads the data of input `i`, which must then be a host value; else only its shapes."""
        return True

    def compute(self, N: int, *specs: Spec) -> Callable[..., np.ndarray] | None:
        """A function of the inputs' data, dense ``[N, *shape]``, that gives the one output, also dense; None: `run` has to do it.

        It is asked for once, and then called in place of `run`: cheaply, without a context, and with NumPy's warnings of numeric
        errors off.
        """
        return None

    def run(self, ctx: HostContext, *values: Value) -> tuple[Any, ...]:
        """Outputs, each an array ``[N, *shape]`` (static), or a list of N arrays or a `Packed` (ragged)."""
        raise NotImplementedError(self.name)


@dataclasses.dataclass
class Setup:
    """What the host says about a batch before the program runs.

    Attributes:
      shapes: ``i64[N, ndim]`` of each output; None where its spec has a static shape.
      params: per-sample parameters ``[N, ...]``, which `lower` finds in ``ctx.params``.
      scratch: bytes of working memory for the native call, for each shard.
    """

    shapes: tuple[np.ndarray | None, ...]
    params: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    scratch: int = 0


class ProgramOperator(Operator):
    """Is part of a compiled program: `setup` is called once per batch on the host, `lower` once per compilation."""

    @property
    def mixes(self) -> bool:
        """Whether samples of its outputs depend on others of the batch than their own: none can be made again without all of them."""
        return False

    def setup_reads(self, i: int) -> bool:
        """Whether `setup` reads the data of input `i`, which must then be a host value; `lower` gets None in its place."""
        return False

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        """Shapes of the outputs, and parameters. The default is for outputs of static shapes."""
        return Setup((None,) * self.num_outputs)

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        """One shard's outputs, traced: a tuple of arrays ``[B, ...]`` or `Ragged`."""
        raise NotImplementedError(self.name)


class NativeOperator(ProgramOperator):
    """Lowers to a native call: `lower` returns ``(outputs, status i32[B])``. Runs on the CPU where an accelerator has no such kernel."""

    kernel: ClassVar[str]  # what lower() calls

    def setup_reads(self, i: int) -> bool:
        return i > 0

    def repairs(self, code: int) -> bool:
        """Whether a sample on which the kernel failed so is made again, or its whole batch, the sample among its `HostContext.bad`."""
        return False


class StageOperator(NativeOperator):
    """One call of its kernel makes one image of one, and may be a stage of a call that does the work of several operators.

    The kernel is one of those that ffi/chain knows.
    """

    def call(self, ctx: LowerContext) -> _ffi.KernelCall:
        """The kernel's operands and attributes."""
        raise NotImplementedError(self.name)

    def lower(self, ctx: LowerContext, image: Any, *arguments: Any) -> Any:
        call = self.call(ctx)
        y, status = _ffi.call(self.kernel, ctx, image, ctx.spec, ctx.out[0], *call.params, **call.attrs)
        return (y,), status


class SourceOperator(Operator):
    """A reader or external_source: one instance and one state per shard."""

    stays: ClassVar[bool] = True  # also where no output depends on it

    def make_source(self, ops: Sequence[Any], seed: int) -> Source:
        """The running source; `ops` are this operator in each local shard's graph, `seed` is the pipeline's."""
        raise NotImplementedError(self.name)


class EagerOperator(Operator):
    """Runs between programs, on arrays of each shard. Its outputs' specs are those of its results."""

    sharding: Sharding | None

    @property
    def compiled(self) -> bool:
        """Whether no code of the user sees the arrays. Known when it has run."""
        return False

    @property
    def unseen(self) -> Spec | None:
        """What stands for an output while no sample takes the branch of an `if` that the operator is in; None: that must be known."""
        return None

    def layout_of(self, i: int, ndim: int) -> str:
        """The layout of output `i`, which has `ndim` dimensions per sample."""
        raise NotImplementedError(self.name)

    def not_uniform(self, i: int, shapes: str) -> str:
        """Why it can't be called: the samples of input `i` are of these shapes, and so no array."""
        raise NotImplementedError(self.name)

    def call(self, ctx: HostContext, inputs: Sequence[Sequence[Any]], shards: Any) -> Sequence[Sequence[Any]]:
        """For each input, one array per shard in; for each output, one array per shard out.

        Args:
          shards: `Shards`: where each shard's arrays are to be.
        """
        raise NotImplementedError(self.name)


class SampleOperator(EagerOperator):
    """Runs between programs, on the host, on samples of any shapes. Its outputs are host values, whatever its inputs are."""

    sharding: Sharding | None = None

    @property
    def compiled(self) -> bool:
        return True  # samples are copies

    def is_on_device(self, asked: str, follows: bool) -> bool:
        return False

    def call_samples(self, ctx: HostContext, inputs: Sequence[Value]) -> Sequence[Sequence[np.ndarray | None]]:
        """For each output N arrays of one type and number of dimensions; None for samples that a short batch lacks.

        Args:
          inputs: host values.
        """
        raise NotImplementedError(self.name)
