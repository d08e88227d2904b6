"""jax_function: user-supplied JAX code as an operator."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from ..._batch.outputs import by_shard, padded
from ..._core import names as _names
from ..._core.building import add, as_node, current_branch, current_scope
from ..._core.context import BuildContext, HostContext, LowerContext
from ..._core.errors import ArgumentError, OperatorError
from ..._core.kinds import device_named
from ..._core.operator import EagerOperator, Names, Operator, ProgramOperator, joined
from ..._core.values import Spec, narrow
from ..._program.sharding import Shards, assemble, on_mesh
from ._tracing.fingerprint import Fingerprint
from ._tracing.trace import MeshUse, NotFaithful, TracedComputation, compiled, describe, to_function, trace, trace_once

_log = logging.getLogger(__name__)

MANY_SHAPES = 8  # a function that was compiled for more shapes than this is warned about


@_names.suggests_names
def jax_function(
    function: Callable[..., Any] | None = None,
    num_outputs: int = 1,
    output_layouts: str | Sequence[str] | None = None,
    sharding: Sharding | PartitionSpec | None = None,
    device: str | None = None,
    preserve: bool = True,
    *,
    jit: bool | None = None,
) -> Any:
    """Turns a function of jax.Arrays into an operator.

    The function gets one array for each input, the whole batch of its shard ``(batch, *sample)``, and returns arrays
    with the same first axis. It is traced into the pipeline's program, without a callback or a copy. A function that
    can't be traced (``float(x)``, ``if x > 0``), or that tracing would freeze (`np.random`, a counter, a key that it
    splits), runs eagerly between two programs instead, once per batch; the log says so. Two trial traces for each shape
    decide this. Afterwards, the Python state that the function's code names is restored. A function that names state
    which can't be restored (files, iterators, memory shared with other processes, arrays of other frameworks or of more
    than 1 GiB) is not tried and runs eagerly. State that the code does not name (`getattr` with a computed name, state
    in C extensions, printed output) is not restored after the trials: pass ``jit=False`` then.

    It can be used as a decorator with or without options, or called; `jax.jit` and `jax.vmap` work inside. The function
    runs under the settings of JAX that its user has. It has the mesh that `jax.set_mesh` sets if it asks for it, uses
    arrays on it, or has a sharding. `jax_debug_nans` and `jax_debug_infs` check eager functions alone: pass
    ``jit=False`` to look for a NaN. Programs are not checked, as gaps in their buffers have any values.

    Example:
      >>> @jax_function
      ... def flip_horizontal(images):
      ...     return images[:, :, ::-1]

    Args:
      function: the function. 64-bit inputs arrive as 32-bit ones unless x64 is enabled; outputs of `fn.random.key`
        arrive as typed random keys, one per sample.
      num_outputs: how many arrays the function returns. 0: it is called eagerly, for its side effects.
      output_layouts: a layout for each output, or one for all. Default: that of the input of the same number, if it has
        as many dimensions.
      sharding: a sharding on which the function sees global arrays of all shards, with zeros in place of samples that a
        short batch lacks; it then runs as a separate program. A bare `jax.sharding.PartitionSpec` is on the mesh that is
        set. A sharding that cuts the batch into other slices than the iterator's has them moved between the devices for
        each batch. With several processes it must give each process the same slices of the batch as the iterator's. If it
        has devices of several processes, batches are made in the thread that takes them, and not ahead: collectives of
        the function and of the training step must begin in the same order in all processes.
      device: "cpu" or "gpu", where all inputs must be; None: wherever they are.
      preserve: whether the function runs even if no output of the pipeline depends on it.
      jit: True: traced without a trial; False: eager; None: decided by the trial. Not in DALI.

    Returns:
      A function of DataNodes (numbers and arrays are repeated for all samples) that returns DataNodes.

    Raises:
      ValueError: an argument is out of range.
      RuntimeError: it is used outside a pipeline definition; or, while running, the samples of an input differ in shape
        within a batch, the number of outputs or their first axis is wrong, or the function raises; the message includes
        its text.

    In a branch of an `if`, the function gets an array of the samples that take the branch. If there are none, it is not
    called (except once with an empty array, if that is needed to know what it returns). It then runs between two
    programs, compiled for each number of samples. With ``jit=True``, it is part of the program in a branch as well,
    gets the whole batch, and nothing is compiled anew; this is for functions that treat each sample independently, and
    results of samples that don't take the branch are dropped. `sharding` can't be used in a branch.

    Differs from DALI: several devices per process are possible with `sharding`; bfloat16 is an ordinary type. A
    function whose samples have another shape in each batch is compiled for each shape. Variables that a traced function
    reads are read once per pipeline; if one has changed when another shape comes, the function runs eagerly from then
    on. An eager function waits for the programs before it, and sees their results after failed samples were replaced; a
    function that does not depend on the decoder is called again for such a batch.
    """
    if function is None:
        return functools.partial(
            jax_function,
            num_outputs=num_outputs,
            output_layouts=output_layouts,
            sharding=sharding,
            device=device,
            preserve=preserve,
            jit=jit,
        )
    if not callable(function):
        raise TypeError(f"jax_function takes a function, got {type(function).__name__}")
    if isinstance(num_outputs, bool) or not isinstance(num_outputs, int) or num_outputs < 0:
        raise ValueError(f"num_outputs must be a number >= 0, got {num_outputs!r}")
    device = device_named(device)
    if device not in (None, "cpu", "gpu"):
        raise ValueError(f"device must be 'cpu', 'gpu' or None, got {device!r}")
    if sharding is not None and not isinstance(sharding, (Sharding, PartitionSpec)):
        raise ValueError(
            f"sharding must be a jax.sharding.Sharding or a jax.sharding.PartitionSpec, got {type(sharding).__name__}"
        )
    if jit not in (None, True, False):
        raise TypeError(f"jit must be True, False or None, got {jit!r}")
    if jit and (num_outputs == 0 or sharding is not None):
        raise ValueError(
            "jit=True can't be combined with num_outputs=0 or with sharding: such a function runs as a separate step"
        )
    if output_layouts is None or isinstance(output_layouts, str):
        layouts = (output_layouts,) * num_outputs
    else:
        if not isinstance(output_layouts, Sequence):
            raise TypeError(f"output_layouts must be a string or a list of strings, got {output_layouts!r}")
        layouts = tuple(output_layouts)
        if len(layouts) != num_outputs:
            raise ArgumentError(
                f"output_layouts has {len(layouts)} layouts for {num_outputs} outputs: pass one for each, or a single string for all"
            )
    for layout in layouts:
        if layout is not None and not isinstance(layout, str):
            raise TypeError(f"output_layouts must be strings, got {layout!r}")
    jit = False if num_outputs == 0 else jit  # without outputs it is called for its side effects
    options = {"function": function, "outputs": num_outputs, "layouts": layouts, "keep": bool(preserve), "jit": jit}
    eager = jit is False or sharding is not None

    @functools.wraps(function)
    def operator(*inputs: Any) -> Any:
        """Adds the operator to the pipeline that is being defined."""
        if current_scope() is None:
            raise RuntimeError(f"jax_function {describe(function)} can only be used inside a pipeline definition")
        nodes = [as_node(x, "jax_function") for x in inputs]
        for i, x in enumerate(nodes):
            input_device = x.device
            if device is not None and input_device != device:
                raise ArgumentError(
                    f"jax_function {describe(function)}: input {i} is on the {input_device}, but device={device!r}; "
                    f"move it with .{device}()"
                )
        if sharding is not None and current_branch() is not None:
            raise ArgumentError(
                f"jax_function {describe(function)} with a sharding sees all samples: it can't be used in a branch of an `if`"
            )
        placed_sharding = on_mesh(sharding, "jax_function: sharding")
        op = EagerFunction(**options, sharding=placed_sharding) if eager else TraceableFunction(**options)
        outputs = add(op, *nodes, device="gpu" if device == "gpu" else None)
        return None if num_outputs == 0 else outputs

    return operator


class _JaxFunction(Operator):
    """Base of the operators that hold a user's function.

    The function is not part of the operator's key, as each shard's definition makes a function of its own.

    Attributes:
      outputs: number of outputs.
      layouts: of each output; None: that of the input with the same number.
      keep: whether it runs even if no output of the pipeline depends on it.
      jit: True: it is traced without a trial, and an error if it can't be; None: the trial decides; False: it runs
        eagerly.
    """

    name = "jax_function"
    function: Any = dataclasses.field(compare=False)
    outputs: int
    layouts: tuple[str | None, ...]
    keep: bool
    jit: bool | None

    @property
    def num_outputs(self) -> int:
        return self.outputs

    @property
    def preserved(self) -> bool:
        return self.keep

    def origins(self, names: Sequence[Names], data: Any, present: Any) -> Names:
        return joined(names)  # as in DALI

    def layout_like(self, i: int, ndim: int, inputs: Sequence[Spec]) -> str:
        """The layout of output `i`, which has `ndim` dimensions per sample; "" if it has none."""
        layout = self.layouts[i]
        if layout is None:
            matching_input = inputs[i] if i < len(inputs) else None
            return matching_input.layout if matching_input is not None and matching_input.ndim == ndim else ""
        if layout and len(layout) != ndim:
            raise ArgumentError(
                f"output_layouts: {layout!r} does not fit output {i}, which has {ndim} dimensions per sample"
            )
        return layout

    def flatten(self, result: Any, samples: int) -> tuple[Any, ...]:
        """Checks the result of the function, and returns it as a tuple of arrays. `samples`: number in the batch."""
        if self.outputs == 0:
            if result is not None:
                raise TypeError(f"it must return None (num_outputs=0), got {type(result).__name__}")
            return ()
        arrays = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        if len(arrays) != self.outputs:
            raise ValueError(f"it returned {len(arrays)} outputs, num_outputs is {self.outputs}")
        for i, a in enumerate(arrays):
            if not isinstance(a, jax.Array):
                raise TypeError(f"output {i} must be a jax.Array, got {type(a).__name__}")
            if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
                raise TypeError(
                    f"output {i} is an array of random keys; return jax.random.key_data of it, or use the keys in the function"
                )
            if a.ndim == 0 or a.shape[0] != samples:
                raise ValueError(
                    f"output {i} must have the batch, {samples} samples, as first axis; its shape is {a.shape}. The function gets "
                    "the batch; jax.vmap(f) gives f one sample"
                )
        return arrays


# Note [Functions that need a mesh]
# A function of one shard gets arrays on one device, while a user's mesh has several. JAX refuses to mix both, so such
# functions, and the programs that they are traced into, run without the mesh. A function that names an array on the
# mesh, or that asks for the mesh, needs it. It runs between two programs, under the mesh, and gets its shard on all
# devices of the mesh. A mesh of several processes has devices that this process can't reach: there such a function runs
# under the axes of the mesh without devices, and gets its shard on one device. A function with a sharding gets global
# arrays, and runs under the mesh, too.


class TraceableFunction(_JaxFunction, ProgramOperator):
    """A function before it is known whether it can be traced; `bind` decides that."""

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        """Chooses the operator that runs in place of this one, when the specs of the inputs are known: a
        `TracedFunction`, or an `EagerFunction` if the function can't be traced or must not be a part of the program.
        """
        functions = _shard_functions(ctx.of_shards)
        # The shards' functions are made by the same definition, so the first one stands for all.
        use = MeshUse.of(functions[0]) if ctx.settings.mesh is not None else MeshUse()

        def make_eager(jit: bool | None) -> Operator:
            """The operator that calls the function between two programs.

            Args:
              jit: whether the calls are compiled; None: decided for each shape.
            """
            options = {"function": self.function, "outputs": self.outputs, "layouts": self.layouts, "keep": self.keep}
            calls = _ShardCalls(functions, ctx, jit, use)
            return EagerFunction(**options, jit=jit, sharding=None, inputs=specs, calls=calls)

        if ctx.settings.disable_jit and self.jit is None:
            return make_eager(jit=False)
        if ctx.in_branch and self.jit is None:
            return make_eager(jit=None)  # in a program, the function would see samples that don't take the branch
        if any(s.shape is None for s in specs):
            return make_eager(jit=self.jit)  # it is compiled for each shape, and runs between two programs
        if use.is_requested or use.has_explicit_axes:  # arrays on Auto axes may be constants of a program
            return make_eager(jit=self.jit)
        B, x64 = ctx.B, ctx.settings.x64
        # The arrays that the function gets: 64-bit types are narrowed unless the user has enabled x64.
        arguments = [
            _with_typed_keys(s, jax.ShapeDtypeStruct((B, *(s.shape or ())), s.dtype if x64 else narrow(s.dtype)))
            for s in specs
        ]
        try:
            with ctx.settings.contexts(mesh=None):
                traced = _common_trace(functions, arguments, lambda r: self.flatten(r, B), self.jit)
        except NotFaithful as e:
            if self.jit:
                raise OperatorError(
                    self.name, ctx.where, f"{describe(self.function)} can't be traced (jit=True): {e}"
                ) from e
            _log.warning(
                "jax_function %s (created at %s) runs eagerly, not in the compiled program: %s",
                describe(self.function),
                ctx.where,
                str(e),
            )
            return make_eager(jit=False)
        outputs = [
            Spec(a.dtype, a.ndim - 1, a.shape[1:], self.layout_like(i, a.ndim - 1, specs))
            for i, a in enumerate(traced.jaxpr.out_avals)
        ]
        return TracedFunction(
            jaxpr=traced.jaxpr, fingerprint=traced.fingerprint, output_specs=tuple(outputs), keep=self.keep, x64=x64
        )


def _common_trace(functions, arguments, flatten, jit):
    """The common trace of all shards' functions. Raises NotFaithful if there is none.

    Args:
      functions: one per shard, often the same one.
      arguments: shapes and dtypes of the functions' arguments.
      flatten: checks the result of a function, and returns it as a tuple of arrays.
      jit: True: each is traced once, as the user promises that it can be; None: the first one is traced twice, as a
        trial.
    """
    first = trace(functions[0], arguments, flatten) if jit is None else trace_once(functions[0], arguments, flatten)
    for f in functions[1:]:
        if f is not functions[0] and trace_once(f, arguments, flatten).fingerprint != first.fingerprint:
            raise NotFaithful("the shards' functions compute different things")
    return first


class TracedFunction(ProgramOperator):
    """A traced function: a computation inside the program."""

    name = "jax_function"
    # The closed jaxpr. The fingerprint stands for it: it is equal only for computations with equal results.
    jaxpr: Any = dataclasses.field(compare=False)
    fingerprint: Fingerprint
    output_specs: tuple[Spec, ...]
    keep: bool
    x64: bool  # whether the function gets 64-bit types

    @property
    def key(self) -> Any:
        # Without the jaxpr, as caches of other things than programs must not keep its constants.
        return self.fingerprint, self.output_specs, self.keep, self.x64

    @property
    def num_outputs(self) -> int:
        return len(self.output_specs)

    @property
    def preserved(self) -> bool:
        return self.keep

    @property
    def mixes(self) -> bool:
        return True  # the function may combine samples

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        return self.output_specs

    def lower(self, ctx: LowerContext, *arrays: Any) -> tuple[Any, ...]:
        inputs = [
            _with_typed_keys(s, a if self.x64 else a.astype(narrow(a.dtype)))
            for s, a in zip(ctx.inputs, arrays, strict=True)
        ]
        return tuple(to_function(self.jaxpr)(*inputs))


class EagerFunction(_JaxFunction, EagerOperator):
    """A function that is called with real arrays, between two programs."""

    calls: _ShardCalls | None = dataclasses.field(default=None, compare=False)  # set by `bind`, as is `inputs`
    inputs: tuple[Spec, ...] = dataclasses.field(default=(), compare=False)

    @property
    def compiled(self) -> bool:
        return self.calls is not None and bool(self.calls.jit)

    def layout_of(self, i: int, ndim: int) -> str:
        return self.layout_like(i, ndim, self.inputs)

    def not_uniform(self, i: int, shapes: str) -> str:
        return (
            f"{describe(self.function)} gets a batch as one array, but the samples of its input {i} differ in shape ({shapes}). "
            "Resize or crop them to one size first, e.g. with fn.resize(..., size=...), or apply it to each sample that the pipeline "
            "returns; jax.vmap can't help, it takes one array, too"
        )

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        """Returns the operator with `calls` and `inputs`, when the specs of the inputs are known."""
        if self.calls is not None:  # a `TraceableFunction` has made it
            return self
        functions = _shard_functions(ctx.of_shards)
        # A function with a sharding runs under the user's mesh in any case, see `call`.
        use = MeshUse.of(functions[0]) if ctx.settings.mesh is not None and self.sharding is None else MeshUse()
        return dataclasses.replace(self, inputs=specs, calls=_ShardCalls(functions, ctx, self.jit, use))

    def call(self, ctx: HostContext, inputs: Sequence[Sequence[Any]], shards: Shards) -> Sequence[Sequence[Any]]:
        """See `EagerOperator.call`. Calls the function of each shard, or with a sharding one function for all shards.

        Args:
          inputs: for each input, an array of each shard, ``[n, ...]`` with the n samples that take the branch.
          shards: with the device of each shard's arrays.

        Returns:
          For each output, an array of each shard.
        """
        assert self.calls is not None
        num_present = ctx.present.reshape(ctx.S, ctx.B).sum(axis=1).tolist()
        if self.sharding is not None:
            with self.calls.settings.contexts(self.calls.settings.mesh):
                return self._call_global(ctx, inputs, shards, self.sharding)
        mesh = self.calls.mesh
        # `num_present`: the samples of each shard that take the branch.
        # The function is not called for a shard of which no sample takes the branch. If that is so for all shards, it
        # is called with empty arrays, as the types of its results must be known.
        per_shard: dict[int, tuple[Any, ...]] = {}
        with self.calls.settings.contexts(mesh):
            for shard, device in enumerate(shards.primaries):
                if num_present[shard] or not any(num_present):
                    placement = NamedSharding(mesh, PartitionSpec()) if isinstance(mesh, Mesh) else device
                    arguments = [
                        _with_typed_keys(spec, jax.device_put(x[shard], placement))
                        for spec, x in zip(self.inputs, inputs, strict=True)
                    ]
                    results = self.calls(
                        shard, arguments, lambda r, num_samples=num_present[shard]: self.flatten(r, num_samples)
                    )
                    per_shard[shard] = (
                        tuple(_on_device(r, device) for r in results) if isinstance(mesh, Mesh) else results
                    )
        sample_results = next(iter(per_shard.values()))
        empty_results = tuple(np.zeros((0, *x.shape[1:]), x.dtype) for x in sample_results)
        return [[per_shard.get(shard, empty_results)[i] for shard in range(ctx.S)] for i in range(self.outputs)]

    def _call_global(
        self, ctx: HostContext, inputs: Sequence[Sequence[Any]], shards: Shards, sharding: Sharding
    ) -> list[list[Any]]:
        """Calls the function once, with global arrays of all shards. Missing samples are zeros: processes don't know how
        many samples others have.
        """
        assert self.calls is not None
        samples = shards.num * ctx.B
        present_in_shards = ctx.present.reshape(ctx.S, ctx.B)
        is_short = not ctx.present.all()
        slices = Shards.of(sharding, samples)  # those of the function, which may lie on other devices than the shards
        is_cut_alike = (slices.num, slices.ids) == (shards.num, shards.ids)
        if not is_cut_alike and not (sharding.is_fully_addressable and len(shards.ids) == shards.num):
            raise ValueError(
                f"its sharding, {sharding}, cuts the batch into {slices.num} slice(s), of which this process holds {list(slices.ids)}; "
                f"the iterator's cuts it into {shards.num}, of which this process holds {list(shards.ids)}, on {list(shards.primaries)}. "
                "With several processes these must be the same: pass the iterator's sharding"
            )

        def global_array(parts: Sequence[Any]) -> jax.Array:
            if is_short:
                parts = [padded(p, present) for p, present in zip(parts, present_in_shards, strict=True)]
            if is_cut_alike:
                return assemble(parts, shards, sharding)
            return jax.device_put(np.concatenate([np.asarray(p) for p in parts]), sharding)

        arguments = [_with_typed_keys(spec, global_array(x)) for spec, x in zip(self.inputs, inputs, strict=True)]
        # The first shard's function is called for all.
        outputs = self.calls(shard=0, arguments=arguments, flatten=lambda r: self.flatten(r, samples))
        if isinstance(sharding, NamedSharding):  # gathers all axes but the batch axis
            sharding = NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[:1]))
        placement, result_shards = (sharding, slices) if is_cut_alike else (shards.local, shards)
        results = [by_shard(jax.device_put(x, placement), result_shards) for x in outputs]
        if is_short:
            results = [[np.asarray(p)[m] for p, m in zip(parts, present_in_shards, strict=True)] for parts in results]
        return results


def _on_device(x: jax.Array, device: jax.Device) -> jax.Array:
    """Moves an array on all devices of a mesh to one of them."""
    # On several devices, JAX runs a callback on the first one, and leaves its results undefined on the others.
    first_part = x.addressable_data(0)
    return jax.device_put(first_part if first_part.shape == x.shape else x, device)


def _with_typed_keys(spec: Spec, x: Any) -> Any:
    """Converts a batch, or its shape and type, for a user's function: key data become typed keys."""
    if not spec.keys:
        return x
    wrap = functools.partial(jax.random.wrap_key_data, impl="threefry2x32")
    return jax.eval_shape(wrap, x) if isinstance(x, jax.ShapeDtypeStruct) else wrap(x)


def _shard_functions(ops: Sequence[Operator]) -> list[Callable[..., Any]]:
    """The functions of the local shards' definitions."""
    return [op.function for op in ops if isinstance(op, _JaxFunction)]


class _ShardCalls:
    """Calls the functions of all shards, compiled for each shape if tracing does not change their results.

    Args:
      functions: one per shard.
      ctx: of `EagerFunction.bind`, with the user's line and the user's settings of JAX.
      jit: None: decided for each shape; True: compiled; False: eager.
      use: the reasons why they may need the mesh.

    Attributes:
      settings: of JAX, as the user has them.
      mesh: under which functions of one shard run; None: without a mesh.
    """

    def __init__(self, functions: Sequence[Callable[..., Any]], ctx: BuildContext, jit: bool | None, use: MeshUse):
        self._functions = list(functions)
        self._where = ctx.where  # the user's line
        self.settings = ctx.settings
        self._is_forced = jit is True
        self.jit = jit
        self.mesh = ctx.settings.mesh_of_shard if use.is_requested or use.has_sharded_arrays else None
        # By the function's id: the arguments and `flatten` of its first trace, and that trace, see `_trace`.
        self._first_traces: dict[int, tuple[Any, Callable[[Any], Any], TracedComputation]] = {}
        # By the function's id, and the shapes and dtypes of the arguments.
        self._programs: dict[tuple[int, Any], Callable[..., Any]] = {}

    def __call__(
        self, shard: int, arguments: Sequence[jax.Array], flatten: Callable[[Any], Any]
    ) -> tuple[jax.Array, ...]:
        """Calls the function of a shard. Its errors become OperatorErrors.

        Args:
          flatten: checks the result of the function, and returns it as a tuple of arrays.
        """
        function = self._functions[shard]
        program = None if self.jit is False else self._program(function, arguments, flatten)
        try:
            return flatten(function(*arguments) if program is None else tuple(program(*arguments)))
        except Exception as e:
            raise OperatorError(_JaxFunction.name, self._where, f"{describe(function)}: {type(e).__name__}: {e}") from e

    def _program(
        self, function: Callable[..., Any], arguments: Sequence[jax.Array], flatten: Callable[[Any], Any]
    ) -> Any:
        """The function compiled for arguments of these shapes; None if it must run eagerly, now and in later calls."""
        key = id(function), tuple((a.shape, a.dtype) for a in arguments)
        if key in self._programs:
            return self._programs[key]
        try:
            program = self._programs[key] = compiled(self._trace(function, arguments, flatten))
        except NotFaithful as e:
            if self._is_forced:
                raise OperatorError(
                    _JaxFunction.name, self._where, f"{describe(function)} can't be traced (jit=True): {e}"
                ) from e
            self.jit = False
            _log.warning(
                "jax_function %s (created at %s) runs eagerly, not compiled: %s",
                describe(function),
                self._where,
                str(e),
            )
            return None
        self.jit = True
        shapes = len({shapes for _, shapes in self._programs})
        if shapes == MANY_SHAPES + 1:
            _log.warning(
                "jax_function %s (created at %s) was compiled for %d shapes: its samples have another shape in each batch; "
                "make them uniform before, e.g. with fn.resize(..., size=...)",
                describe(function),
                self._where,
                shapes,
            )
        return program

    def _trace(
        self, function: Callable[..., Any], arguments: Sequence[jax.Array], flatten: Callable[[Any], Any]
    ) -> TracedComputation:
        """Traces a function for new shapes.

        Raises NotFaithful if it can't be traced, or gives other results than before.

        Args:
          flatten: checks the result of the function, and returns it as a tuple of arrays.
        """
        abstract = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding) for a in arguments]
        if self._is_forced:
            return trace_once(function, abstract, flatten)
        # The first trace is repeated for each new shape: if it differs now, variables of the function have changed.
        traced = trace(function, abstract, flatten)
        shapes, flatten, first_trace = self._first_traces.setdefault(id(function), (abstract, flatten, traced))
        if shapes is not abstract and trace_once(function, shapes, flatten) != first_trace:
            raise NotFaithful("variables that it reads have changed since it was compiled")
        return traced


if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals(), "jax_function")
