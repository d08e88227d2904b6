"""Graphs on dense arrays, as functions that JAX traces: inside a user program, or as separate programs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from .._core import ffi as _ffi
from .._core.building import DeferredWarnings, add
from .._core.errors import OperatorError, SampleError
from .._core.jax_settings import own_settings, without_mesh
from .._core.operator import EagerOperator, NativeOperator, ProgramOperator
from .._core.values import Spec, narrow
from .._core.words import in_values
from .._data.source import SampleIds
from .._plan.plan import Ref
from .._program.program import lowered
from .._program.sharding import Shards
from . import _keys
from ._batch import Batch, Draw
from ._engine import DynamicDataNode, Given, Graphed, name_line


class Traced(ProgramOperator):
    """A value that a program has."""

    name = "input"
    of_values = True
    spec: Spec

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        return (self.spec,)


class NotDense(Exception):
    """A graph is not a function of dense arrays; the text says why."""


class Dense:
    """A function of dense arrays.

    A callback brings values that operators need on the host, such as angles; if they only need static arguments, there
    is no callback.

    Args:
      function, specs, keys, N, draws, device: as of `Engine`; all inputs are dense.
      hosted: the inputs whose values the host reads.
      whole: samples of the batch of which this is a part. Default: N.

    Raises:
      NotDense: a shape depends on values, or the host needs results of a program.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        specs: Sequence[Spec],
        keys: Sequence[int | None],
        N: int,
        draws: Sequence[Draw | None],
        device: jax.Device | _ffi.TargetDevice,
        hosted: Sequence[bool],
        whole: int | None = None,
    ):
        whole = N if whole is None else whole
        self._N, self._specs, self._whole = N, specs, whole
        self._of_part = functools.lru_cache(maxsize=4)(
            lambda n: Dense(function, specs, keys, n, draws, device, hosted, whole)
        )
        shards = Shards.single(device)

        def inputs() -> list[DynamicDataNode]:
            on = "gpu" if shards.accelerator else None
            return [
                add(Given(spec=s)) if host else add(Traced(spec=s), device=on)
                for s, host in zip(specs, hosted, strict=True)
            ]

        self.warnings = DeferredWarnings()
        with self.warnings:
            self._graphed = graphed = Graphed(function, keys, whole, draws, inputs)
            self._executor = graphed.executor(N, device)
            with own_settings():
                self._executor.build()
        self._inputs = [None if n is None else Ref(n, 0) for n in graphed.inputs]
        self._hosted = tuple(hosted)
        self._plan = plan = self._executor.plan
        for step in plan.steps:
            if isinstance(step.op, EagerOperator) or not step.known:
                raise NotDense(f"{step.op.name} runs between programs")
            for spec in step.specs:
                if spec.shape is None:
                    raise NotDense(
                        f"the shape of the result of {step.op.name} depends on values: pass a size that is the same for all samples"
                    )
            if step.phase:
                raise NotDense(f"{step.op.name} needs results of the program on the host")
            kernel = step.op.kernel if step.stage != "host" and isinstance(step.op, NativeOperator) else ""
            if kernel and shards.accelerator and kernel not in self._executor.resources.kernels:
                reason = _ffi.why_no_kernels(device)
                raise NotDense(
                    f"{step.op.name} has no kernel for {device.platform}" + (f": {reason}" if reason else "")
                )
        self._steps = tuple(s for s in plan.steps if s.stage != "host" and not isinstance(s.op, Traced))
        read = dict.fromkeys(r for s in self._steps for i, r in enumerate(s.inputs) if not s.reads_on_host(i))
        given = {r for r in self._inputs if r is not None}
        self._made_on_host = tuple(
            r for r in dict.fromkeys((*read, *plan.outputs)) if plan.maker(r).stage == "host" and r not in given
        )
        needed = {r for s in plan.steps for i, r in enumerate(s.inputs) if s.needs_on_host(i)}
        self._asked = tuple(i for i, r in enumerate(self._inputs) if r in needed)
        zeros = [np.zeros((N, *(s.shape or ())), s.dtype) for s in specs]
        try:
            # Which numbers a batch has is not known yet. That these are out of a range says nothing, but where they are
            # all there is.
            self._constant = self._prepared(
                zeros, np.zeros((len(graphed.keys), 2, N), np.int64), any_numbers=self.calls_back
            )
        except (OperatorError, ValueError) as e:
            raise NotDense(str(e)) from e
        self._operands = jax.tree.structure([zeros, *self._constant[:2]])

    def batches(self, outputs: Sequence[Any]) -> Any:
        """Arrays of the outputs as the function gives them."""
        layouts = (self._plan.spec(r).layout for r in self._plan.outputs)
        return self._graphed.results(Batch(x, None, layout) for x, layout in zip(outputs, layouts, strict=True))

    @functools.cached_property
    def compiled(self) -> Callable[[Sequence[Any]], Any]:
        """The function as a separate program, if it needs nothing from the host."""
        program = jax.jit(lambda arrays: self(arrays, (), on_one_device=jax.device_count() == 1))
        # JAX accepts 64 bits only under our settings; entering them takes time.
        wide = any(narrow(s.dtype) != s.dtype for s in self._specs)

        def called(arrays: Sequence[Any]) -> Any:
            with own_settings() if wide else without_mesh():
                return program(arrays)

        return called

    def words(self, keys: Sequence[Any]) -> list[jax.Array]:
        """The keys of random numbers, ``u32[N, words]`` each."""
        return [k.words(keys, self._N) for k in self._graphed.keys] if self._graphed.keyed else []

    @functools.cached_property
    def native(self) -> list[str]:
        """The names of its native operators."""
        return sorted({s.op.name for s in self._steps if isinstance(s.op, NativeOperator)})

    @property
    def calls_back(self) -> bool:
        """Whether a batch needs the host."""
        return bool(self._asked or self._graphed.keyed)

    def __call__(
        self, arrays: Sequence[Any], words: Sequence[Any], line: str | None = None, on_one_device: bool = False
    ) -> tuple[list[Any], Any]:
        """The outputs, and the status of each native step: ``i32[N, steps]``. Traced.

        Args:
          arrays: the inputs, ``[N, ...]``; words: ``u32[N, words]`` of each key.
          line: the user's line, if the caller does not check the status: a failed sample is then an error of the
            program, which names the line. A program on an accelerator can't raise: there the sample is NaN, or 0 if its
            type has no NaN.
          on_one_device: whether the program is known to be for one device.
        """
        with own_settings():
            placed = _of_explicit(arrays)
            if placed is not None and not (self._mixes or placed.mesh.auto_axes):
                return self._by_device(placed, arrays, words, line)
            if self.calls_back:
                structs = jax.tree.map(
                    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), jax.tree.map(_in_words, self._constant[:2])
                )
                asked = _replicated([*(_to_words(jnp.asarray(arrays[i])) for i in self._asked), *words])
                on_host = functools.partial(self._on_host, line)
                prepared = jax.pure_callback(on_host, structs, asked[: len(self._asked)], asked[len(self._asked) :])
                # A callback runs on one device. So that XLA can give others its results, they stand behind a barrier.
                prepared = _replicated(jax.lax.optimization_barrier(prepared))
                made, params = jax.tree.map(lambda x, like: _from_words(x, like.dtype), prepared, self._constant[:2])
            else:
                made, params = self._constant[:2]
            operands = [
                [jnp.asarray(a) for a in arrays],
                jax.tree.map(jnp.asarray, made),
                jax.tree.map(jnp.asarray, params),
            ]
            program = functools.partial(self._program, line)
            if self.native and not (on_one_device or self._alone()):
                program = self._partitioned(line)
            if placed is not None:  # operators are not written for Explicit axes: within them, XLA decides
                automatic: Any = jax.sharding.auto_axes(program, axes=placed.mesh.explicit_axes, out_sharding=placed)
                program = automatic
            *outputs, status = program(*jax.tree.leaves(operands))
            return list(outputs), status

    def _by_device(
        self, placed: NamedSharding, arrays: Sequence[Any], words: Sequence[Any], line: str | None
    ) -> tuple[list[Any], Any]:
        """The outputs and the status, where the arrays' types say which samples each device has, as all axes are
        Explicit.

        Each device calls back for its own samples, so nothing is sent, and numbers that the host refuses are an error
        of the program.
        """
        part = self._of_part(placed.shard_shape((self._N,))[0])

        def outputs(arrays: Sequence[Any], words: Sequence[Any]) -> tuple[list[Any], Any]:
            return part(arrays, words, line, on_one_device=True)

        mesh = placed.mesh
        axes = set(mesh.axis_names) - set(mesh.manual_axes)
        by_device = jax.shard_map(
            outputs, mesh=mesh, in_specs=placed.spec, out_specs=placed.spec, axis_names=axes, check_vma=False
        )
        return by_device(*jax.sharding.reshard((list(arrays), list(words)), placed))

    def _program(self, line: str | None, *leaves: Any) -> tuple[Any, ...]:
        """The outputs, and the status, for some of the samples: the operands' first axis is theirs."""
        arrays, made, params = jax.tree.unflatten(self._operands, leaves)
        B = leaves[0].shape[0] if leaves else self._N
        values: dict[Ref, Any] = {r: a for r, a in zip(self._inputs, arrays, strict=True) if r is not None}
        values |= zip(self._made_on_host, made, strict=True)
        control = jnp.asarray(np.r_[self._executor.resources.pool_id, np.ones(B)].astype(np.int32))
        placed = [
            ((None,) * len(s.specs), p, scratch)
            for s, p, scratch in zip(self._steps, params, self._constant[2], strict=True)
        ]
        codes = lowered(self._plan, self._steps, B, values, [control] * len(self._steps), placed)
        native = [s for s in self._steps if s.id in codes]
        status = jnp.stack([codes[s.id] for s in native], 1) if native else jnp.zeros((B, 0), jnp.int32)
        outputs = [values[r] for r in self._plan.outputs]
        if line is not None and native:
            if self._executor.resources.accelerator:
                outputs = [_without_failed(x, status) for x in outputs]
            else:
                outputs = _ffi.checked(
                    outputs, status, [f"{s.op.name} (called at {line})" for s in native], self._whole
                )
        return *outputs, status

    def _alone(self) -> bool:
        """Whether the program is for one shard of a `jax.shard_map`, or the samples depend on each other."""
        return bool(jax.sharding.get_abstract_mesh().manual_axes) or self._mixes

    @functools.cached_property
    def _mixes(self) -> bool:
        """Whether the samples depend on each other."""
        return any(isinstance(s.op, ProgramOperator) and s.op.mixes for s in self._steps)

    def _partitioned(self, line: str | None) -> Callable[..., Any]:
        """`_program`, of which each device computes its samples where the inputs are sharded: native calls say nothing
        of this to XLA.
        """

        def by_batch(mesh: Any, x: Any) -> NamedSharding:
            spec = getattr(x.sharding, "spec", None) or (None,)
            return NamedSharding(mesh, PartitionSpec(spec[0]))

        def of_results(mesh: Any, operands: Any, results: Any) -> Any:
            first = next(
                (by_batch(mesh, x) for x in operands if by_batch(mesh, x).spec[0] is not None),
                NamedSharding(mesh, PartitionSpec()),
            )
            return tuple(first for _ in results)

        def partition(mesh: Any, operands: Any, results: Any) -> Any:
            placed = of_results(mesh, operands, results)
            return mesh, program_of_part, placed, tuple(placed[0] for _ in operands)

        def rule(rank: int, number: int) -> str:
            return " ".join(["n", *(f"x{number}y{i}" for i in range(rank - 1))])

        arrays = jax.tree.leaves(
            [[jax.ShapeDtypeStruct((self._N, *(s.shape or ())), s.dtype) for s in self._specs], *self._constant[:2]]
        )
        outputs = [(self._N, *(self._plan.spec(r).shape or ())) for r in self._plan.outputs] + [(self._N, 1)]
        reads = ", ".join(rule(len(x.shape), i) for i, x in enumerate(arrays))
        makes = ", ".join(rule(len(x), len(arrays) + i) for i, x in enumerate(outputs))

        def program_of_part(*leaves: Any) -> tuple[Any, ...]:
            # In a program of one device nothing may be said of the mesh's axes.
            with own_settings(), jax.sharding.use_abstract_mesh(AbstractMesh((), ())):
                return self._program(line, *leaves)

        function = custom_partitioning(jax.jit(functools.partial(self._program, line)))  # whose constants stay in it
        function.def_partition(
            partition=partition, infer_sharding_from_operands=of_results, sharding_rule=f"{reads} -> {makes}"
        )
        return function

    @in_values
    def _on_host(self, line: str | None, asked: Sequence[Any], words: Sequence[Any]) -> Any:
        """The values and parameters that the host prepares for the program."""
        arrays: list[Any] = [None] * len(self._inputs)
        for i, x in zip(self._asked, asked, strict=True):
            dtype = np.dtype(self._specs[i].dtype)
            arrays[i] = np.asarray(x).view(dtype)[..., 0] if dtype.itemsize == 8 else np.asarray(x)
        try:
            with own_settings():
                prepared = self._prepared(arrays, [_keys.numbers_of(np.asarray(w)) for w in words])[:2]
        except OperatorError as e:
            if line is not None:
                name_line(e, line)
            raise
        for step, params, like in zip(self._steps, prepared[1], self._constant[1], strict=True):
            if {n: x.shape for n, x in params.items()} != {n: x.shape for n, x in like.items()}:
                raise step.node.error(
                    "the number of parameters depends on the values of a batch; in a compiled program it must stay the same"
                )
        return jax.tree.map(_in_words, prepared)

    def _prepared(self, arrays: Sequence[Any], drawn: Any, any_numbers: bool = False) -> tuple[Any, ...]:
        values: dict[int, tuple[Any, ...]] = {}
        for ref, host, array in zip(self._inputs, self._hosted, arrays, strict=True):
            if ref is not None and host:
                spec = self._plan.spec(ref)
                values[ref.step] = (np.zeros((self._N, *(spec.shape or ())), spec.dtype) if array is None else array,)
        nowhere = [""] * self._N
        ids = SampleIds(self._executor.resources.zeros, np.arange(self._N), names=nowhere, paths=nowhere)
        batch = self._executor.given(values, ids, {step: tuple(drawn[k]) for step, k in self._graphed.keyed.items()})
        try:
            with np.errstate(all="ignore") if any_numbers else contextlib.nullcontext():
                self._executor.prepare(batch)
        except SampleError:
            if not any_numbers or not all(s.id in batch.setups for s in self._steps):
                raise
        made = [np.ascontiguousarray(batch.values[r].data) for r in self._made_on_host]
        params = [{n: np.ascontiguousarray(x) for n, x in batch.setups[s.id].params.items()} for s in self._steps]
        return made, params, [batch.setups[s.id].scratch for s in self._steps]


def _of_explicit(arrays: Sequence[Any]) -> NamedSharding | None:
    """The sharding of the samples, where it is a part of the arrays' types; None: it is not."""
    shardings = [s for s in (jax.typeof(x).sharding for x in arrays) if s.mesh.explicit_axes]
    axes = (s.spec[0] for s in shardings if len(s.spec) and s.spec[0] is not None)
    return NamedSharding(shardings[0].mesh, PartitionSpec(next(axes, None))) if shardings else None


def _replicated(arrays: Any) -> Any:
    """Arrays that all devices of the mesh have, if one is set: otherwise XLA may cut small arrays up, and gather them
    again.
    """
    mesh = jax.sharding.get_abstract_mesh()
    return arrays if mesh.empty or mesh.manual_axes else jax.lax.with_sharding_constraint(arrays, PartitionSpec())


def without_derivative(function: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """The function with a rule for its derivative, which raises an error that names the operators."""
    made = jax.custom_jvp(function)

    @made.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        raise TypeError(
            f"{', '.join(names)}: native operators have no derivative: differentiate with respect to what comes after them, "
            "or use jax.lax.stop_gradient on their inputs"
        )

    return made


def _without_failed(x: Any, status: Any) -> Any:
    """An array in which failed samples are replaced by NaN or 0."""
    failed = (status != 0).any(axis=1).reshape(-1, *[1] * (x.ndim - 1))
    return jnp.where(failed, jnp.array(jnp.nan if jnp.issubdtype(x.dtype, jnp.inexact) else 0, x.dtype), x)


def _in_words(x: np.ndarray) -> np.ndarray:
    """Numbers of 64 bits as pairs of 32: a callback's operands and results are narrowed where the user has them
    narrowed.
    """
    return x[..., None].view(np.uint32) if x.dtype.itemsize == 8 else x


def _to_words(x: Any) -> Any:
    return jax.lax.bitcast_convert_type(x, np.uint32) if x.dtype.itemsize == 8 else x


def _from_words(x: Any, dtype: np.dtype) -> Any:
    return jax.lax.bitcast_convert_type(x, dtype) if dtype.itemsize == 8 else x
