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
from .texts import Texts
from .values import Spec, Value

_lock = threading.RLock()  # guards which classes have been made dataclasses; making one makes its bases
K = typing.TypeVar("K", bound="Operator")

# The origin of each sample of a value, as in source_info, "" if it is not known; None: no origin is known.
Names = Sequence[str] | None


def joined(names: Sequence[Names]) -> Names:
    """The origins of a value that is made from several values: for each sample, all its origins, joined by ";". None:
    no value has known origins.
    """
    known_names = [n for n in names if n is not None]
    if len(known_names) < 2:
        return known_names[0] if known_names else None
    return Texts.of(known_names, lambda i: ";".join(name for names in known_names if (name := names[i])))


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Operator:
    """One call of a function of `jaxdali.fn`. Its fields are static attributes: they are part of the key of compiled
    programs.

    Its kind determines how it runs: `HostOperator` and `ProgramOperator` (an operator with both forms inherits both),
    `SourceOperator`, `EagerOperator`, `SampleOperator`. `bind` and `infer` are called when the pipeline is built.

    Do not decorate operator classes: they are turned into frozen, keyword-only dataclasses on first use. That takes a
    millisecond each, and most programs use few of the operators that they import.
    """

    name: ClassVar[str]  # the name that users know: "decoders.image"
    # Whether it draws random numbers: it is then numbered among the random operators of its pipeline.
    random: ClassVar[bool] = False

    # Whether its result depends on the samples that are present even if it has no inputs, like `batch_permutation`. In
    # a branch of an `if`, these are the samples that take the branch.
    of_batch: ClassVar[bool] = False

    # Whether an input that is not a sequence is repeated for all frames, if an argument comes per frame.
    repeats_input: ClassVar[bool] = False

    # Whether it reads sequences itself, also as arguments, so that their frames never become its samples.
    takes_sequences: ClassVar[bool] = False

    # Whether it stands for an array that is passed to a function of values (`jaxdali.dynamic`).
    of_values: ClassVar[bool] = False

    # Whether inputs may be metadata, the Python objects that a source gives for its samples.
    takes_metadata: ClassVar[bool] = False

    args: Arguments = NO_ARGUMENTS  # the arguments that may come per sample

    # Set in the namespace of each class that is already a dataclass, see `fields`.
    _is_dataclass: ClassVar[bool] = True

    def __new__(cls, **_: Any):
        cls.fields()
        return super().__new__(cls)

    @classmethod
    def fields(cls) -> tuple[dataclasses.Field[Any], ...]:
        """The dataclass fields, including `args`. The first call makes the class, and its bases, dataclasses."""
        with _lock:
            if "_is_dataclass" not in vars(cls):  # an inherited one does not count
                if "__dataclass_fields__" in vars(cls):
                    raise TypeError(
                        f"{cls.__name__} must not be decorated as a dataclass: an operator becomes one when it is first used"
                    )
                for base in cls.__bases__:
                    if issubclass(base, Operator):
                        base.fields()  # first: `cls` inherits them
                dataclasses.dataclass(frozen=True, kw_only=True)(cls)
                cls._is_dataclass = True
        return dataclasses.fields(cls)

    def __getstate__(self) -> dict[str, Any]:
        """The fields, for pickling, without values that are computed from them and kept."""
        return {f.name: getattr(self, f.name) for f in self.fields()}

    @property
    def few_shapes(self) -> bool:
        """Whether batches have few different shapes by intention, so that no warning is needed if each is compiled
        for.
        """
        return False

    @property
    def literal(self) -> np.ndarray | None:
        """The value of every sample of every batch, if the definition determines it."""
        return None

    def arguments(self, ctx: HostContext | None, inputs: Sequence[Value]) -> Values:
        """The values of the arguments that may come per sample, for a batch. If none comes per sample, they are computed
        once for each number of samples.

        Args:
          ctx: the context of the batch; None: only arguments that are the same for all samples, for one sample.
          inputs: the operator's inputs, all or only those that are arguments.
        """
        N = 1 if ctx is None else ctx.N
        if self.args.inputs:
            return Values(self.name, self.args, N, ctx, inputs)
        cache = self._static_values  # looked up once, as two threads may each make a dictionary at the first use
        values = cache.get(N)
        if values is None:
            values = cache[N] = Values(self.name, self.args, N)
        return values

    @functools.cached_property
    def _static_values(self) -> dict[int, Values]:
        """The arguments by the number of samples, if none comes per sample: they are the same in every batch."""
        return {}

    def as_kind(self, kind: type[K]) -> K:
        """An operator of another kind with the same fields."""
        return kind(**{f.name: getattr(self, f.name) for f in self.fields()})

    def takes_image(self, image: Spec) -> bool:
        """Whether the first input is read as an image, whose axes are those of its layout."""
        return False

    def about_axes(self, image: Spec) -> str:
        """A warning about an image without a layout; "" if there is none."""
        return image_layout_warning(image)

    def doubts(self, *specs: Spec) -> str:
        """A warning about the arguments, for inputs with these specs; "" if there is none."""
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
        """The origins of the samples of its outputs, such as paths of files, for source_info.

        By default, these are the origins of the samples of its inputs (except arguments); "" for a sample whose inputs
        have different origins. None: no input's origins are known.

        Args:
          names: the origins of the samples of each input.
          data: ``data(i)``: input `i`, if the host has it.
          present: for each shard, the numbers (among all samples of the batch) of the samples that the operator works
            on.
        """
        known_names = [n for n in names[: len(names) - len(self.args.inputs)] if n is not None]
        # The usual case: all inputs descend from one source, and share its list.
        if all(n is known_names[0] for n in known_names):
            return known_names[0] if known_names else None

        def common(i: int) -> str:
            """The origin that all inputs of sample `i` have."""
            origins = {names_of_input[i] for names_of_input in known_names} - {""}
            return origins.pop() if len(origins) == 1 else ""

        return Texts.of(known_names, common)

    @property
    def joins(self) -> Sequence[int]:
        """The inputs that were made in the branches of an `if`. Each sample takes one of them, and all must have the
        same type.
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
        """The operator that runs in place of this one, chosen when the specs of the inputs are known. It may be of
        another kind.
        """
        return self

    def is_identity(self, *specs: Spec) -> bool:
        """Whether its only output always equals its first input; it is then bypassed if both are on the same device."""
        return False

    def absorb(self, i: int, inner: Operator) -> Operator | None:
        """One operator that does the work of `inner` and of this one; None: there is none. See Note [Absorbing merges].

        `inner` makes input `i` of this operator, and nothing else reads that value. The new operator has the inputs of
        this one, with those of `inner` in place of input `i`.
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
        """Whether `run` reads the data of input `i`, which must then be a host value. Otherwise it reads only
        shapes.
        """
        return True

    def compute(self, N: int, *specs: Spec) -> Callable[..., np.ndarray] | None:
        """A function from the inputs' data, dense ``[N, *shape]``, to the only output, also dense; None: `run` is
        called.

        It is requested once, and then called instead of `run`, which is cheaper: without a context, and with NumPy's
        warnings about numeric errors off.
        """
        return None

    def run(self, ctx: HostContext, *values: Value) -> tuple[Any, ...]:
        """Outputs, each an array ``[N, *shape]`` (static), or a list of N arrays or a `Packed` (ragged)."""
        raise NotImplementedError(self.name)


@dataclasses.dataclass
class Setup:
    """The result of `ProgramOperator.setup`: shapes and parameters of a batch, computed before the program runs.

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
        """Whether samples of its outputs depend on other samples of the batch. Then a failed sample can't be made again
        alone.
        """
        return False

    def setup_reads(self, i: int) -> bool:
        """Whether `setup` reads the data of input `i`, which must then be a host value; `lower` gets None in its
        place.
        """
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
        """The reason why the kernel could not process sample `i`, whose status is `code`; "": the text of the
        status.
        """
        return ""

    def portable(self, spec: Spec, out: Spec) -> ProgramOperator | None:
        """An equivalent operator in JAX's own operations, for an accelerator without the kernel; None: there is none.

        Args:
          spec: the spec of the first input.
          out: the spec of the output.
        """
        return None

    def divided(self, spec: Spec, out: Spec) -> tuple[NativeOperator, ProgramOperator] | None:
        """Divides the work between two operators, for an accelerator without the kernel; None: it can't be divided. See
        Note [The cut].

        The first operator runs on the CPU. The second one has JAX's own operations, and runs on the accelerator. Both
        have the inputs of this one, the second with the result of the first in place of the first input.

        Args:
          spec: the spec of the first input.
          out: the spec of the output.
        """
        return None


class StageOperator(NativeOperator):
    """An operator whose kernel makes an image from an image. It can be a stage of one native call that does the work of
    several operators.

    The kernel must be one that ffi/chain supports. See Note [The chain].
    """

    only_kernels = True

    def makes_windows(self, image: Spec, made: Spec) -> bool:
        """Whether a GPU's kernel can compute only a window of the image that this operator makes (ffi/chain/chain.cu).

        Args:
          image: the image that it reads.
          made: the image that it makes.
        """
        return False

    def is_made_in_place(self, image: Spec, out: Spec) -> bool:
        """Whether this operator is a window that the GPU kernel of the operator before it can compute directly, in
        place of the whole image. See `makes_windows`.

        Args:
          image: the image that it reads.
          out: the window.
        """
        return False

    def narrowed(
        self, maker: Operator, consumer: Operator, image: Spec, out: Spec
    ) -> tuple[Operator, Operator, Operator] | None:
        """Rewrites the chain `maker` -> this operator -> `consumer`, so that only the part of the image that `consumer`
        needs is computed.

        `maker` makes all inputs of this operator, and nothing but `consumer` reads the image. See
        Note [Parts of images].

        Args:
          image: the image that this operator makes.
          out: the output of `consumer`.

        Returns:
          The operators that replace the three, in the same order; None: the chain can't be rewritten. The first one
          gets the further inputs of `consumer` after its own. The last one gets the image, the last output of the first
          one, and the further inputs of `consumer`.
        """
        return None

    def informed(self, maker: Operator, consumer: Operator) -> Operator | None:
        """Returns an operator in place of `maker` that gets the further inputs of `consumer` after its own, because it
        prepares what `consumer` needs. None: there is none.

        `maker` and `consumer` are as in `narrowed`.
        """
        return None

    def call(self, ctx: LowerContext) -> _ffi.KernelCall:
        """The kernel's operands and attributes."""
        raise NotImplementedError(self.name)

    def lower(self, ctx: LowerContext, image: Any, *arguments: Any) -> Any:
        """Calls the kernel with the operands of `call`. It has one output."""
        call = self.call(ctx)
        y, status = _ffi.call(self.kernel, ctx, image, ctx.spec, ctx.out[0], *call.params, **call.attrs)
        return (y,), status


class SourceOperator(Operator):
    """A reader or external_source: one instance and one state per shard.

    Its last outputs are metadata: a Python object for each sample, which no program sees (specs are `METADATA`).

    Attributes:
      metadata: the names of the metadata.
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
        """The number of outputs besides metadata."""
        return 1

    @property
    def num_outputs(self) -> int:
        return self.num_arrays + len(self.metadata_names)

    def make_source(self, ops: Sequence[Any], seed: int) -> Source:
        """The source that reads the data.

        Args:
          ops: this operator in the graph of each local shard.
          seed: the pipeline's seed.
        """
        raise NotImplementedError(self.name)


class EagerOperator(Operator):
    """An operator that runs between programs, on arrays of each shard. The specs of its outputs are those of its
    results.
    """

    sharding: Sharding | None

    @property
    def compiled(self) -> bool:
        """Whether no user code sees the arrays. This is known after the operator has run."""
        return False

    @property
    def unseen(self) -> Spec | None:
        """The spec of an output while no sample takes the operator's branch of an `if`; None: it must be known."""
        return None

    def layout_of(self, i: int, ndim: int) -> str:
        """The layout of output `i`, which has `ndim` dimensions per sample."""
        raise NotImplementedError(self.name)

    def changed(self, i: int, before: Spec, now: Spec) -> str:
        """The error message if output `i` has another type, number of dimensions or layout than in earlier batches.

        Args:
          before: the spec in earlier batches.
          now: the spec in this batch.
        """
        return f"output {i} had {before.ndim} dimensions of {before.dtype}, now {now.ndim} of {now.dtype}; these may not change"

    def not_uniform(self, i: int, shapes: str) -> str:
        """The error message if the operator can't run because the samples of input `i` differ in shape."""
        raise NotImplementedError(self.name)

    def call(self, ctx: HostContext, inputs: Sequence[Sequence[Any]], shards: Any) -> Sequence[Sequence[Any]]:
        """Runs the operator. Takes, for each input, one array per shard, and returns the same for each output.

        Args:
          shards: a `Shards`: the device on which each shard's arrays must be.
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
