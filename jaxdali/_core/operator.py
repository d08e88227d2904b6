"""The contract of an operator: the kinds of operators, and what each kind has to define."""

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
from .errors import ArgumentError
from .input_warnings import image_layout_warning
from .values import Spec, Value

_lock = threading.RLock()  # guards which classes have been made dataclasses; making one makes its bases
K = typing.TypeVar("K", bound="Operator")

# Where the samples of a value came from, "" if it is not known; None: it is not known for any sample.
Names = Sequence[str] | None


def joined(names: Sequence[Names]) -> Names:
    """Where a value made from several values came from: all their places."""
    known = [n for n in names if n is not None]
    return (
        [";".join(n for n in each if n) for each in zip(*known, strict=True)]
        if len(known) > 1
        else known[0]
        if known
        else None
    )


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Operator:
    """One call of a function of `jaxdali.fn`. Its fields are static attributes: they are part of the key of compiled
    programs.

    What it does depends on its kind: `HostOperator` and `ProgramOperator` (one with both forms inherits both),
    `SourceOperator`, `EagerOperator`, `SampleOperator`. `bind` and `infer` are called when the pipeline is built.

    Do not decorate operator classes: they are turned into frozen, keyword-only dataclasses on first use. That takes a
    millisecond each, and most programs use few of the operators that they import.
    """

    name: ClassVar[str]  # the name that users know: "decoders.image"
    # Whether it draws random numbers: it is then numbered among the random operators of its pipeline.
    random: ClassVar[bool] = False

    # Whether, without inputs, it depends on which samples are present: in a branch, on those that take it.
    of_batch: ClassVar[bool] = False

    # With arguments per frame, an input that is not a sequence is the same in all frames.
    repeats_input: ClassVar[bool] = False

    of_values: ClassVar[bool] = False  # whether it is an array that a function of values is called with

    # Whether inputs may be metadata, the Python objects that a source gives for its samples.
    takes_metadata: ClassVar[bool] = False

    args: Arguments = NO_ARGUMENTS  # the arguments that may come per sample

    _is_made: ClassVar[bool] = True  # in the namespace of a class that is already a dataclass

    def __new__(cls, **_: Any):
        cls.fields()
        return super().__new__(cls)

    @classmethod
    def fields(cls) -> tuple[dataclasses.Field[Any], ...]:
        """The fields, including `args`."""
        with _lock:
            if "_is_made" not in vars(cls):
                if "__dataclass_fields__" in vars(cls):
                    raise TypeError(
                        f"{cls.__name__} must not be decorated as a dataclass: an operator becomes one when it is first used"
                    )
                for base in cls.__bases__:
                    if issubclass(base, Operator):
                        base.fields()  # first: `cls` inherits them
                dataclasses.dataclass(frozen=True, kw_only=True)(cls)
                cls._is_made = True
        return dataclasses.fields(cls)

    @property
    def few_shapes(self) -> bool:
        """Whether batches intentionally have few different shapes, so that compiling for each needs no warning."""
        return False

    @property
    def literal(self) -> np.ndarray | None:
        """The value of every sample of every batch, if the definition determines it."""
        return None

    def arguments(self, ctx: HostContext | None, inputs: Sequence[Value]) -> Values:
        """The values of the arguments that may come per sample, for a batch.

        Args:
          ctx: the context of the batch; None: only arguments that are the same for all samples, for one sample.
          inputs: the operator's inputs, all or only those that are arguments.
        """
        N = 1 if ctx is None else ctx.N
        if self.args.inputs:
            return Values(self.name, self.args, N, ctx, inputs)
        same = self._same_for_all  # looked up once: two threads that use it first have a dictionary each
        values = same.get(N)
        if values is None:
            values = same[N] = Values(self.name, self.args, N)
        return values

    @functools.cached_property
    def _same_for_all(self) -> dict[int, Values]:
        """The arguments by the number of samples, if none comes per sample: they are the same in every batch."""
        return {}

    def as_kind(self, kind: type[K]) -> K:
        """An operator of another kind with the same fields."""
        return kind(**{f.name: getattr(self, f.name) for f in self.fields()})

    def takes_image(self, image: Spec) -> bool:
        """Whether the first input is read as an image, of which the layout says what the axes are."""
        return False

    def about_axes(self, image: Spec) -> str:
        """A warning about an image without a layout; "" if there is none."""
        return image_layout_warning(image)

    def doubts(self, *specs: Spec) -> str:
        """The same of the arguments, for these inputs."""
        return ""

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def gives_list(self) -> bool:
        """Whether the user gets a list even for a single output."""
        return False

    def origins(
        self, names: Sequence[Names], data: Callable[[int], Value | None], present: Callable[[], Sequence[np.ndarray]]
    ) -> Names:
        """Where the samples of its outputs came from, for source_info.

        By default, they came from where the samples of its inputs (except arguments) came from; "" for a sample with
        several such places.

        Args:
          names: where the samples of each input came from.
          data: ``data(i)``: input `i`, if the host has it.
          present: for each shard, the numbers (among all samples of the batch) of the samples that the operator works
            on.
        """
        known = [n for n in names[: len(names) - len(self.args.inputs)] if n is not None]
        if all(n is known[0] for n in known):
            return known[0] if known else None
        return [places.pop() if len(places := {*each} - {""}) == 1 else "" for each in zip(*known, strict=True)]

    @property
    def joins(self) -> Sequence[int]:
        """The inputs that were made in the branches of an `if`; each sample takes one of them, and all must have one
        type.
        """
        return ()

    @property
    def preserved(self) -> bool:
        """Whether it runs even if no output depends on it."""
        return False

    @property
    def key(self) -> Any:
        """The key that distinguishes this operator's programs from those of other operators."""
        return self

    @property
    def has_host_form(self) -> bool:
        """Whether `bind` returns a `HostOperator` if the stage is "host"."""
        return isinstance(self, HostOperator)

    def is_on_device(self, asked: str, follows: bool) -> bool:
        """Whether its outputs are on the accelerator.

        Args:
          asked: the user's `device`: "cpu", "mixed", "gpu" or "".
          follows: whether an input is on the accelerator.
        """
        return follows or asked in ("mixed", "gpu")

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        """The operator that really runs, for operators that decide this when the specs of their inputs are known. It
        may be of another kind.
        """
        return self

    def is_identity(self, *specs: Spec) -> bool:
        """Whether its only output always equals its first input; it is then bypassed if both are on the same device."""
        return False

    def absorb(self, i: int, inner: Operator) -> Operator | None:
        """An operator that does the work of both, if `inner` makes this one's input `i` and nothing else reads that.
        Its inputs are this one's, with the inputs of `inner` in place of input `i`. None: there is no such operator.
        See Note [Absorbing merges].
        """
        return None

    def ahead_of(self, consumers: Sequence[Operator]) -> Operator:
        """The operator to run, once the operators that read its outputs, `consumers`, are known."""
        return self

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        """Specs of the outputs. Raises ValueError or TypeError for inputs that are not supported."""
        raise NotImplementedError(self.name)


class HostOperator(Operator):
    """Runs with NumPy, once per batch, on all local shards' samples."""

    def run_reads(self, i: int) -> bool:
        """Whether `run` reads the data of input `i`, which must then be a host value; else only its shapes."""
        return True

    def compute(self, N: int, *specs: Spec) -> Callable[..., np.ndarray] | None:
        """A function from the inputs' data, dense ``[N, *shape]``, to the only output, also dense; None: `run` does it.

        It is requested once, and then called instead of `run`, which is cheaper: without a context, and with NumPy's
        warnings about numeric errors off.
        """
        return None

    def run(self, ctx: HostContext, *values: Value) -> tuple[Any, ...]:
        """Outputs, each an array ``[N, *shape]`` (static), or a list of N arrays or a `Packed` (ragged)."""
        raise NotImplementedError(self.name)


@dataclasses.dataclass
class Setup:
    """What the host determines about a batch before the program runs.

    Attributes:
      shapes: ``i64[N, ndim]`` of each output; None if its spec has a static shape.
      params: per-sample parameters ``[N, ...]``, which `lower` finds in ``ctx.params``.
      scratch: bytes of working memory for the native call, for each shard.
    """

    shapes: tuple[np.ndarray | None, ...]
    params: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    scratch: int = 0


class ProgramOperator(Operator):
    """An operator in a compiled program: `setup` is called once per batch on the host, `lower` once per compilation."""

    @property
    def mixes(self) -> bool:
        """Whether samples of its outputs depend on other samples of the batch. A sample can then not be made again
        alone.
        """
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
    """An operator that lowers to a native call: `lower` returns ``(outputs, status i32[B])``. It runs on the CPU if the
    accelerator has no such kernel.
    """

    kernel: ClassVar[str]  # the kernel that lower() calls
    # Whether lower() does nothing else with ragged values; kernels touch samples only.
    only_kernels: ClassVar[bool] = False

    def setup_reads(self, i: int) -> bool:
        return i > 0

    def repairs(self, code: int) -> bool:
        """Whether a sample that failed with this status can be made again, alone or with its batch. It is then in
        `HostContext.bad`.
        """
        return False

    def reason(self, setup: Setup, i: int, code: int) -> str:
        """Why the kernel could not process sample `i`, whose status it has set; "": the text of the status says it."""
        return ""

    def portable(self, spec: Spec, out: Spec) -> ProgramOperator | None:
        """An operator in JAX's own operations that does the same, for an accelerator without the kernel; None: there is
        none.

        Args:
          spec: of the first input; out: of the output.
        """
        return None

    def divided(self, spec: Spec, out: Spec) -> tuple[NativeOperator, ProgramOperator] | None:
        """Two operators that do the same one after the other, for an accelerator without the kernel: the second one has
        JAX's own operations, and runs there, see Note [The cut]. Both have this one's inputs, the second with the
        result of the first in place of the first input. None: there are none.

        Args:
          spec: of the first input; out: of the output.
        """
        return None


class StageOperator(NativeOperator):
    """A call of its kernel makes an image from an image. It can be a stage of a call that does the work of several
    operators.

    The kernel must be one that ffi/chain supports. See Note [The chain].
    """

    only_kernels = True

    def makes_windows(self, image: Spec, made: Spec) -> bool:
        """Whether a GPU's kernel can make a window of its image in place of the image (ffi/chain/chain.cu).

        Args:
          image: the image that it reads; made: the image that it makes.
        """
        return False

    def is_made_in_place(self, image: Spec, out: Spec) -> bool:
        """Whether it is a window that a GPU's kernel can make in place of the image that it reads.

        Args:
          image: the image that it reads; out: the window.
        """
        return False

    def narrowed(
        self, maker: Operator, consumer: Operator, image: Spec, out: Spec
    ) -> tuple[Operator, Operator, Operator] | None:
        """Rewrites the chain `maker` -> this operator -> `consumer`, so that only the part of the image that `consumer`
        needs is computed.

        `maker` makes all inputs of this operator, and nothing but `consumer` reads the image. See Note [Parts of
        images].

        Args:
          image: the image that this operator makes.
          out: the output of `consumer`.

        Returns:
          The operators that replace the three, in the same order; None: the chain can't be rewritten. The first one gets
          the further inputs of `consumer` after its own. The last one gets the image, the last output of the first one,
          and the further inputs of `consumer`.
        """
        return None

    def call(self, ctx: LowerContext) -> _ffi.KernelCall:
        """The kernel's operands and attributes."""
        raise NotImplementedError(self.name)

    def lower(self, ctx: LowerContext, image: Any, *arguments: Any) -> Any:
        call = self.call(ctx)
        y, status = _ffi.call(self.kernel, ctx, image, ctx.spec, ctx.out[0], *call.params, **call.attrs)
        return (y,), status


class SourceOperator(Operator):
    """A reader or external_source: one instance and one state per shard.

    Its last outputs are metadata: a Python object for each sample, which no program sees (specs are `METADATA`).

    Attributes:
      metadata: their names.
    """

    stays: ClassVar[bool] = True  # whether it stays in the graph even if no output depends on it

    metadata: str | tuple[str, ...] | None = None

    def __post_init__(self):
        if len(set(self.metadata_names)) < len(self.metadata_names):
            raise ArgumentError(f"the names in metadata must be distinct, got {list(self.metadata_names)}")

    @property
    def metadata_names(self) -> tuple[str, ...]:
        """The names of the metadata, in the order of the outputs."""
        return () if self.metadata is None else (self.metadata,) if isinstance(self.metadata, str) else self.metadata

    @property
    def num_arrays(self) -> int:
        """How many outputs it has besides metadata."""
        return 1

    @property
    def num_outputs(self) -> int:
        return self.num_arrays + len(self.metadata_names)

    def make_source(self, ops: Sequence[Any], seed: int) -> Source:
        """The running source; `ops` are this operator in each local shard's graph, `seed` is the pipeline's."""
        raise NotImplementedError(self.name)


class EagerOperator(Operator):
    """An operator that runs between programs, on arrays of each shard. The specs of its outputs are those of its
    results.
    """

    sharding: Sharding | None

    @property
    def compiled(self) -> bool:
        """Whether no user code sees the arrays. This is known after it has run."""
        return False

    @property
    def unseen(self) -> Spec | None:
        """The spec of an output while no sample takes the operator's branch of an `if`; None: it must be known."""
        return None

    def layout_of(self, i: int, ndim: int) -> str:
        """The layout of output `i`, which has `ndim` dimensions per sample."""
        raise NotImplementedError(self.name)

    def changed(self, i: int, before: Spec, now: Spec) -> str:
        """The error message if output `i` has another type, number of dimensions or layout than in earlier batches."""
        return f"output {i} had {before.ndim} dimensions of {before.dtype}, now {now.ndim} of {now.dtype}; these may not change"

    def not_uniform(self, i: int, shapes: str) -> str:
        """The error message if it can't be called because the samples of input `i` differ in shape."""
        raise NotImplementedError(self.name)

    def call(self, ctx: HostContext, inputs: Sequence[Sequence[Any]], shards: Any) -> Sequence[Sequence[Any]]:
        """For each input, one array per shard in; for each output, one array per shard out.

        Args:
          shards: `Shards`: where each shard's arrays must be.
        """
        raise NotImplementedError(self.name)


class SampleOperator(EagerOperator):
    """An operator that runs between programs, on the host, on samples of any shapes. Its outputs are always host
    values.
    """

    sharding: Sharding | None = None

    @property
    def compiled(self) -> bool:
        return True  # samples are copies

    def is_on_device(self, asked: str, follows: bool) -> bool:
        return False

    def call_samples(self, ctx: HostContext, inputs: Sequence[Value]) -> Sequence[Sequence[np.ndarray | None]]:
        """For each output, N arrays of one type and number of dimensions; None for absent samples.

        Args:
          inputs: host values.
        """
        raise NotImplementedError(self.name)
