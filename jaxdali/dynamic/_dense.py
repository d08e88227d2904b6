"""Functions of dense arrays that JAX traces, made from a graph: inside a user's program, or as separate programs."""

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

from .._batch.host_input import HostInput
from .._core import ffi as _ffi
from .._core.arguments import declared
from .._core.building import DeferredWarnings, add
from .._core.errors import OperatorError, SampleError
from .._core.jax_settings import own_settings, without_mesh
from .._core.operator import EagerOperator, NativeOperator, ProgramOperator
from .._core.values import Spec, narrow
from .._core.words import in_values
from .._plan.plan import Ref
from .._program.program import lowered
from .._program.sharding import Shards
from . import _keys
from ._batch import Batch, Draw
from ._engine import DynamicDataNode, FunctionGraph, name_line


class ProgramInput(ProgramOperator):
    """An input of a dense function that stays in the program, and is not read by the host, as a `HostInput` is."""

    name = "input"
    of_values = True
    spec: Spec

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        return (self.spec,)


class NotDense(Exception):
    """A graph can't be a function of dense arrays; the message says why.

    Attributes:
      inputs: the numbers of inputs that stay in the program, and that the host must read.
    """

    def __init__(self, why: str, inputs: Sequence[int] = ()):
        super().__init__(why)
        self.inputs = tuple(inputs)


_OUTSIDE = "call it outside jax.jit, and pass its result as one array"


class Dense:
    """A function of dense arrays.

    If operators need values on the host, such as angles or random keys, the program calls back: the host gets the
    values, and returns the parameters that it prepares from them. Operators with static arguments need no callback.

    Args:
      function: takes a `TraceState`, a `DynamicDataNode` for each input, and the keys; returns a pytree of
        `DynamicDataNode`s, see `FunctionGraph`.
      specs: of the inputs, which are all dense.
      keys: for each key that the function is called with, the number of keys in it; None: it is a single key.
      N: number of samples.
      draws: how each input depends on random numbers, if it is a single value; None: it is a batch.
      device: where the function runs.
      hosted: whether the host reads each of the inputs.
      total_N: number of samples of the batch of which these N are a part. Default: N.

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
        total_N: int | None = None,
    ):
        total_N = N if total_N is None else total_N
        self._N, self._specs, self._total_N, self._device = N, specs, total_N, device
        # The function of n samples that are a part of the batch, for one device of several.
        self._for_part = functools.lru_cache(maxsize=4)(
            lambda n: Dense(function, specs, keys, n, draws, device, hosted, total_N)
        )
        shards = Shards.single(device)

        def inputs() -> list[DynamicDataNode]:
            device_name = "gpu" if shards.accelerator else None
            return [
                add(HostInput(specs=(s,), of_values=True)) if host else add(ProgramInput(spec=s), device=device_name)
                for s, host in zip(specs, hosted, strict=True)
            ]

        self.warnings = DeferredWarnings()
        with self.warnings:
            self._function_graph = function_graph = FunctionGraph(function, keys, total_N, draws, inputs)
            self._executor = function_graph.executor(N, device)
            with own_settings():
                self._executor.build()
        # The value of each input in the plan, output 0 of its node; None: nothing needs it.
        self._inputs = [None if n is None else Ref(n, 0) for n in function_graph.inputs]
        self._hosted = tuple(hosted)
        self._plan = plan = self._executor.plan
        for step in plan.steps:
            # Steps that are not known yet are bound by the values of a batch.
            if isinstance(step.op, EagerOperator) or not step.known:
                raise NotDense(f"{step.op.name} runs between programs")
            for spec in step.specs:
                if spec.shape is None:
                    remedy = (
                        "pass a size that is the same for all samples"
                        if "size" in declared.get(step.op.name, dict)()
                        else _OUTSIDE
                    )
                    raise NotDense(f"the shape of the result of {step.op.name} depends on values: {remedy}")
            if step.phase:  # it runs after a program has run
                numbers = {r: i for i, r in enumerate(self._inputs)}
                read = [numbers[r] for i, r in enumerate(step.inputs) if step.needs_on_host(i) and r in numbers]
                raise NotDense(
                    f"{step.op.name} needs results of the program on the host: {_OUTSIDE}",
                    [i for i in read if not hosted[i]],
                )
            kernel = step.op.kernel if step.stage != "host" and isinstance(step.op, NativeOperator) else ""
            if kernel and shards.accelerator and kernel not in self._executor.resources.kernels:
                reason = _ffi.why_no_kernels(device)
                raise NotDense(
                    f"{step.op.name} has no kernel for {device.platform}" + (f": {reason}" if reason else "")
                )
        # The steps of the program, the values that the host computes for it, and the numbers of the inputs that the host
        # reads for that.
        self._steps = tuple(s for s in plan.steps if s.stage != "host" and not isinstance(s.op, ProgramInput))
        program_inputs = dict.fromkeys(r for s in self._steps for i, r in enumerate(s.inputs) if not s.reads_on_host(i))
        input_refs = {r for r in self._inputs if r is not None}
        self._host_value_refs = tuple(
            r
            for r in dict.fromkeys((*program_inputs, *plan.outputs))
            if plan.maker(r).stage == "host" and r not in input_refs
        )
        host_inputs = {r for s in plan.steps for i, r in enumerate(s.inputs) if s.needs_on_host(i)}
        self._needed_inputs = tuple(i for i, r in enumerate(self._inputs) if r in host_inputs)
        zeros = [np.zeros((N, *(s.shape or ())), s.dtype) for s in specs]
        try:
            # Zeros stand for the values of a batch, which are not known yet, so it does not matter if they are out of
            # an argument's range. Without a callback there are no other values, and errors are real.
            host_values, params, self._scratch_sizes = self._prepare(
                zeros, np.zeros((len(function_graph.keys), 2, N), np.int64), any_numbers=self.calls_back
            )
        except (OperatorError, ValueError) as e:
            raise NotDense(str(e)) from e
        # The host's values, and the parameters of each step. Without a callback they are those of every batch; with one
        # they show the shapes and types.
        self._prepared = host_values, params
        # The pytree of the program's operands: inputs, values and parameters.
        self._operands = jax.tree.structure([zeros, host_values, params])

    def batches(self, outputs: Sequence[Any]) -> Any:
        """Makes batches and single values of the outputs' arrays, in the structure that the function returns."""
        layouts = (self._plan.spec(r).layout for r in self._plan.outputs)
        return self._function_graph.results(Batch(x, layout=layout) for x, layout in zip(outputs, layouts, strict=True))

    @functools.cached_property
    def compiled(self) -> Callable[[Sequence[Any]], Any]:
        """The function as a separate program, if it needs nothing from the host."""
        program = jax.jit(lambda arrays: self(arrays, (), on_one_device=jax.device_count() == 1))
        # JAX accepts 64-bit types only under our settings, but entering these takes time.
        has_64_bits = any(narrow(s.dtype) != s.dtype for s in self._specs)

        is_first_device = self._device == jax.devices()[0]

        def run(arrays: Sequence[Any]) -> Any:
            with own_settings() if has_64_bits else without_mesh():
                # Arrays that are not committed would run on the default device, for which the program is not made.
                # Setting it takes 3 us.
                default = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
                if is_first_device and default is None:
                    return program(arrays)
                with jax.default_device(self._device):
                    return program(arrays)

        return run

    @functools.cached_property
    def _compiled_of_prepared(self) -> Callable[..., Any]:
        """The function as a separate program, with what the host has prepared as operands."""

        def program(arrays: Sequence[Any], host_values: Any, params: Any) -> tuple[list[Any], Any]:
            return self._call_prepared(arrays, host_values, params, _explicit_sharding(arrays), None, False)

        return jax.jit(program)

    def call_over_devices(self, arrays: Sequence[Any], keys: Sequence[Any]) -> tuple[list[Any], Any]:
        """Returns the outputs, and the status of each native step, of arrays over several devices, with their sharding, or
        with that of the keys if these alone have one.

        The host prepares first, and no callback of the program does: if one fails, the process ends.

        Raises:
          OperatorError: the host refuses an argument.
        """
        with own_settings():
            needed = [np.asarray(x) if i in self._needed_inputs else None for i, x in enumerate(arrays)]
            words = self.words(keys)
            host_values, params = self._prepare_of_batch(needed, [np.asarray(w) for w in words])
            outputs, status = self._compiled_of_prepared(arrays, host_values, params)
            if all(len(x.devices()) == 1 for x in arrays if isinstance(x, jax.Array)):
                for w in words:
                    if (sharding := sharding_of_keys([w])) is not None and isinstance(w.sharding, NamedSharding):
                        # The mesh of a type has no devices.
                        outputs = jax.device_put(outputs, NamedSharding(w.sharding.mesh, sharding.spec))
            return outputs, status

    def words(self, keys: Sequence[Any]) -> list[jax.Array]:
        """The data of the keys of random numbers, ``u32[N, words]`` each."""
        return [k.words(keys, self._N) for k in self._function_graph.keys] if self._function_graph.key_of_node else []

    @functools.cached_property
    def native(self) -> list[str]:
        """The names of the native operators."""
        return sorted({s.op.name for s in self._steps if isinstance(s.op, NativeOperator)})

    @property
    def calls_back(self) -> bool:
        """Whether the program calls back to the host for each batch."""
        return bool(self._needed_inputs or self._function_graph.key_of_node)

    def __call__(
        self, arrays: Sequence[Any], words: Sequence[Any], line: str | None = None, on_one_device: bool = False
    ) -> tuple[list[Any], Any]:
        """Returns the outputs, and the status of each native step, ``i32[N, steps]``. JAX traces this.

        Args:
          arrays: the inputs, ``[N, ...]``.
          words: the data of each key, ``u32[N, words]``.
          line: the user's line, if the caller does not check the status: a failed sample is then an error of the
            program, which names the line. A program on an accelerator can't raise: there the sample is NaN, or 0 if its
            type has no NaN.
          on_one_device: whether the program is known to be for one device.
        """
        with own_settings():
            sharding = _explicit_sharding(arrays) or sharding_of_keys(words)
            if sharding is not None and not (self._mixes_samples or sharding.mesh.auto_axes):
                return self._call_per_device(sharding, arrays, words, line)
            if self.calls_back:
                structs = jax.tree.map(
                    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), jax.tree.map(_in_words, self._prepared)
                )
                host_operands = _replicate([*(_to_words(jnp.asarray(arrays[i])) for i in self._needed_inputs), *words])
                callback = functools.partial(jax.pure_callback, functools.partial(self._prepare_on_host, line), structs)
                readers = sorted(
                    {s.op.name for s in self._plan.steps if any(map(s.needs_on_host, range(len(s.inputs))))}
                )
                prepared = without_derivative(
                    callback, f"{', '.join(readers)}: what the host reads, such as arguments, has no derivative"
                )(host_operands[: len(self._needed_inputs)], host_operands[len(self._needed_inputs) :])
                # A callback runs on one device. The barrier lets XLA copy its results to the other devices.
                prepared = _replicate(jax.lax.optimization_barrier(prepared))
                host_values, params = jax.tree.map(
                    lambda x, template: _from_words(x, template.dtype), prepared, self._prepared
                )
            else:
                host_values, params = self._prepared
            return self._call_prepared(arrays, host_values, params, sharding, line, on_one_device)

    def _call_prepared(
        self,
        arrays: Sequence[Any],
        host_values: Any,
        params: Any,
        sharding: NamedSharding | None,
        line: str | None,
        on_one_device: bool,
    ) -> tuple[list[Any], Any]:
        """The outputs and the status, with what the host has prepared. JAX traces this, under our settings.

        Args:
          sharding: of the samples, if it is a part of types.
        """
        operands = [
            [jnp.asarray(a) for a in arrays],
            jax.tree.map(jnp.asarray, host_values),
            jax.tree.map(jnp.asarray, params),
        ]
        program = functools.partial(self._program, line)
        # XLA can't split native calls by itself. Where nothing is to be split, it needs no rule for that.
        if self.native and not (on_one_device or self._is_unpartitioned()):
            program = self._partitioned(line)
        if sharding is not None:  # operators don't support Explicit axes, so XLA chooses the shardings inside
            auto_program: Any = jax.sharding.auto_axes(program, axes=sharding.mesh.explicit_axes, out_sharding=sharding)
            program = auto_program
        *outputs, status = program(*jax.tree.leaves(operands))
        return list(outputs), status

    def _call_per_device(
        self, sharding: NamedSharding, arrays: Sequence[Any], words: Sequence[Any], line: str | None
    ) -> tuple[list[Any], Any]:
        """The outputs and the status where all axes are Explicit, so that each device knows its samples from the types.

        Each device calls back for its own samples: nothing is sent between devices, and an argument that the host
        refuses is an error of the program.
        """
        (num_samples,) = sharding.shard_shape((self._N,))
        part_function = self._for_part(num_samples)

        def outputs(arrays: Sequence[Any], words: Sequence[Any]) -> tuple[list[Any], Any]:
            return part_function(arrays, words, line, on_one_device=True)

        mesh = sharding.mesh
        axes = set(mesh.axis_names) - set(mesh.manual_axes)
        by_device = jax.shard_map(
            outputs, mesh=mesh, in_specs=sharding.spec, out_specs=sharding.spec, axis_names=axes, check_vma=False
        )
        return by_device(*jax.sharding.reshard((list(arrays), list(words)), sharding))

    def _program(self, line: str | None, *leaves: Any) -> tuple[Any, ...]:
        """The outputs and the status of the samples in the operands, which may be a part of the batch.

        Args:
          line: the user's line, if failed samples are errors of the program (on an accelerator: NaN or 0); otherwise
            None, and the caller checks the status.
          leaves: of the inputs, the host's values and its parameters, ``[B, ...]`` each.
        """
        arrays, host_values, params = jax.tree.unflatten(self._operands, leaves)
        B = leaves[0].shape[0] if leaves else self._N
        values: dict[Ref, Any] = {r: a for r, a in zip(self._inputs, arrays, strict=True) if r is not None}
        values |= zip(self._host_value_refs, host_values, strict=True)
        # The control operand of native calls: the id of the thread pool, then 1 for each sample that is present.
        control = jnp.asarray(np.r_[self._executor.resources.pool_id, np.ones(B)].astype(np.int32))
        # For each step: capacities of its outputs (none, as all are dense), parameters, and bytes of scratch memory.
        operands = [
            ((None,) * len(s.specs), p, scratch)
            for s, p, scratch in zip(self._steps, params, self._scratch_sizes, strict=True)
        ]
        status_of_step = lowered(self._plan, self._steps, B, values, [control] * len(self._steps), operands)
        native_steps = [s for s in self._steps if s.id in status_of_step]
        status = (
            jnp.stack([status_of_step[s.id] for s in native_steps], 1) if native_steps else jnp.zeros((B, 0), jnp.int32)
        )
        outputs = [values[r] for r in self._plan.outputs]
        if line is not None and native_steps:
            if self._executor.resources.accelerator:
                outputs = [_mask_failed(x, status) for x in outputs]
            else:
                outputs = _ffi.checked(
                    outputs, status, [f"{s.op.name} (called at {line})" for s in native_steps], self._total_N
                )
        return *outputs, status

    def _is_unpartitioned(self) -> bool:
        """Whether devices must not split the program: it is one shard of a `jax.shard_map`, or samples depend on each
        other.
        """
        return bool(jax.sharding.get_abstract_mesh().manual_axes) or self._mixes_samples

    @functools.cached_property
    def _mixes_samples(self) -> bool:
        """Whether the samples depend on each other."""
        return any(isinstance(s.op, ProgramOperator) and s.op.mixes for s in self._steps)

    def _partitioned(self, line: str | None) -> Callable[..., Any]:
        """Wraps `_program` with a partitioning rule: each device computes its own samples.

        XLA can't tell by itself how to partition a native call.
        """

        def batch_axis_sharding(mesh: Any, x: Any) -> NamedSharding:
            """The sharding of an operand's first axis, the batch; other axes are not sharded."""
            spec = getattr(x.sharding, "spec", None) or (None,)
            return NamedSharding(mesh, PartitionSpec(spec[0]))

        def infer_sharding(mesh: Any, operands: Any, results: Any) -> Any:
            """The sharding of all results: that of the first operand whose batch axis is sharded."""
            sharding = next(
                (batch_axis_sharding(mesh, x) for x in operands if batch_axis_sharding(mesh, x).spec[0] is not None),
                NamedSharding(mesh, PartitionSpec()),
            )
            return tuple(sharding for _ in results)

        def partition(mesh: Any, operands: Any, results: Any) -> Any:
            """The program of one device, and the shardings of results and operands, which are all the same."""
            shardings = infer_sharding(mesh, operands, results)
            return mesh, program_of_part, shardings, tuple(shardings[0] for _ in operands)

        # The first axis of all operands and results is the batch, "n"; all other axes have names of their own.
        def rule(rank: int, number: int) -> str:
            return " ".join(["n", *(f"x{number}y{i}" for i in range(rank - 1))])

        arrays = jax.tree.leaves(
            [[jax.ShapeDtypeStruct((self._N, *(s.shape or ())), s.dtype) for s in self._specs], *self._prepared]
        )
        # Shapes; the last result is the status.
        outputs = [(self._N, *(self._plan.spec(r).shape or ())) for r in self._plan.outputs] + [(self._N, 1)]
        operand_rules = ", ".join(rule(len(x.shape), i) for i, x in enumerate(arrays))
        result_rules = ", ".join(rule(len(x), len(arrays) + i) for i, x in enumerate(outputs))

        def program_of_part(*leaves: Any) -> tuple[Any, ...]:
            # A program of one device must not name the axes of the mesh.
            with own_settings(), jax.sharding.use_abstract_mesh(AbstractMesh((), ())):
                return self._program(line, *leaves)

        # Without `jit`, custom_partitioning would turn the constants of the program into operands.
        function = custom_partitioning(jax.jit(functools.partial(self._program, line)))
        function.def_partition(
            partition=partition,
            infer_sharding_from_operands=infer_sharding,
            sharding_rule=f"{operand_rules} -> {result_rules}",
        )
        return function

    @in_values
    def _prepare_on_host(self, line: str | None, needed: Sequence[Any], words: Sequence[Any]) -> Any:
        """The callback: computes the values and parameters of one batch.

        Args:
          line: the user's line, which errors name; None: they keep the line that they have.
          needed: the inputs that the host reads.
          words: the data of each key.
        """
        arrays: list[Any] = [None] * len(self._inputs)
        for i, x in zip(self._needed_inputs, needed, strict=True):
            dtype = np.dtype(self._specs[i].dtype)
            # 64-bit numbers come as pairs of words, see `_in_words`.
            arrays[i] = np.asarray(x).view(dtype)[..., 0] if dtype.itemsize == 8 else np.asarray(x)
        try:
            with own_settings():
                prepared = self._prepare_of_batch(arrays, words)
        except OperatorError as e:
            if line is not None:
                name_line(e, line)
            raise
        return jax.tree.map(_in_words, prepared)

    def _prepare_of_batch(self, arrays: Sequence[Any], words: Sequence[Any]) -> tuple[Any, Any]:
        """The host's values and parameters of one batch.

        Args:
          arrays: the inputs; None for one that the host does not need.
          words: the data of each key.
        """
        # Without the sizes of scratch memory, which are constants of the program.
        host_values, params_of_steps, _ = self._prepare(arrays, [_keys.key_halves(np.asarray(w)) for w in words])
        _, expected_params = self._prepared
        for step, params, expected in zip(self._steps, params_of_steps, expected_params, strict=True):
            if {n: x.shape for n, x in params.items()} != {n: x.shape for n, x in expected.items()}:
                raise step.node.error(
                    "the number of parameters depends on the values of a batch; in a compiled program it must stay the same"
                )
        return host_values, params_of_steps

    def _prepare(self, arrays: Sequence[Any], random_keys: Any, any_numbers: bool = False) -> tuple[Any, ...]:
        """Runs the host's part of the graph. Returns host values, parameters of each step, and sizes of scratch memory.

        Args:
          arrays: the inputs; None for one that the host does not need.
          random_keys: two ``i64[N]`` for each key.
          any_numbers: whether arguments may be out of their ranges.
        """
        inputs = [
            None if not is_hosted else np.zeros((self._N, *(s.shape or ())), s.dtype) if array is None else array
            for s, is_hosted, array in zip(self._specs, self._hosted, arrays, strict=True)
        ]
        batch = self._function_graph.batch(self._executor, inputs, random_keys)
        try:
            with np.errstate(all="ignore") if any_numbers else contextlib.nullcontext():
                self._executor.prepare(batch)
        except SampleError:  # a sample is out of range, which does not matter if all steps were prepared
            if not any_numbers or not all(s.id in batch.setups for s in self._steps):
                raise
        host_values = [np.ascontiguousarray(batch.values[r].data) for r in self._host_value_refs]
        params = [{n: np.ascontiguousarray(x) for n, x in batch.setups[s.id].params.items()} for s in self._steps]
        return host_values, params, [batch.setups[s.id].scratch for s in self._steps]


def _explicit_sharding(arrays: Sequence[Any]) -> NamedSharding | None:
    """The sharding of the samples if it is a part of the arrays' types (Explicit axes), otherwise None."""
    shardings = [s for s in (jax.typeof(x).sharding for x in arrays) if s.mesh.explicit_axes]
    axes = (s.spec[0] for s in shardings if len(s.spec) and s.spec[0] is not None)
    return NamedSharding(shardings[0].mesh, PartitionSpec(next(axes, None))) if shardings else None


def sharding_of_keys(keys: Sequence[Any]) -> NamedSharding | None:
    """The sharding of the samples if the types of their keys, or of the keys' data, say that devices have different ones;
    otherwise None.
    """
    sharding = _explicit_sharding(keys)
    return None if sharding is None or sharding.spec[0] is None else sharding


def _replicate(arrays: Any) -> Any:
    """Replicates arrays on the mesh, if one is set: XLA might shard small arrays, only to gather them again."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.manual_axes:
        return arrays
    if mesh.explicit_axes:  # there a constraint would only assert
        arrays = jax.sharding.reshard(arrays, PartitionSpec())
    return jax.lax.with_sharding_constraint(arrays, PartitionSpec()) if mesh.auto_axes else arrays


def without_derivative(function: Callable[..., Any], reason: str) -> Callable[..., Any]:
    """Adds a rule for the derivative of a function, which raises an error with this reason."""
    guarded = jax.custom_jvp(function)

    @guarded.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        raise TypeError(
            f"{reason}: differentiate with respect to what comes after, or use jax.lax.stop_gradient on the inputs"
        )

    return guarded


def _mask_failed(x: Any, status: Any) -> Any:
    """Replaces failed samples by NaN, or by 0 if the type has no NaN."""
    failed = (status != 0).any(axis=1).reshape(-1, *[1] * (x.ndim - 1))
    return jnp.where(failed, jnp.array(jnp.nan if jnp.issubdtype(x.dtype, jnp.inexact) else 0, x.dtype), x)


def _in_words(x: np.ndarray) -> np.ndarray:
    """Views 64-bit numbers as pairs of 32-bit words.

    JAX would narrow the operands and results of a callback, unless the user has enabled x64.
    """
    return x[..., None].view(np.uint32) if x.dtype.itemsize == 8 else x


def _to_words(x: Any) -> Any:
    return jax.lax.bitcast_convert_type(x, np.uint32) if x.dtype.itemsize == 8 else x


def _from_words(x: Any, dtype: np.dtype) -> Any:
    return jax.lax.bitcast_convert_type(x, dtype) if dtype.itemsize == 8 else x
