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

from ..._batch.outputs import by_shard
from ..._core import names as _names
from ..._core.building import add, as_node, current_branch, current_scope
from ..._core.context import BuildContext, HostContext, LowerContext
from ..._core.errors import ArgumentError, OperatorError
from ..._core.kinds import device_named
from ..._core.operator import EagerOperator, Names, Operator, ProgramOperator, joined
from ..._core.values import Spec, narrow
from ..._program.sharding import Shards, assemble, on_mesh
from ._tracing.trace import MeshUse, NotFaithful, Trace, compiled, describe, function_of, trace, trace_again

_log = logging.getLogger(__name__)

MANY_SHAPES = 8  # a function that was compiled for more shapes than this is warned about


@_names.named
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
    arrays on it, or has a sharding.

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
      sharding: a sharding on which the function sees global arrays of all shards; it then runs as a separate program. A
        bare `jax.sharding.PartitionSpec` is on the mesh that is set. If the sharding has devices of several processes,
        batches are made in the thread that takes them, and not ahead: collectives of the function and of the training
        step must begin in the same order in all processes.
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
    for text in layouts:
        if text is not None and not isinstance(text, str):
            raise TypeError(f"output_layouts must be strings, got {text!r}")
    options = {"function": function, "outputs": num_outputs, "layouts": layouts, "keep": bool(preserve)}
    eager = jit is False or num_outputs == 0 or sharding is not None

    @functools.wraps(function)
    def operator(*inputs: Any) -> Any:
        if current_scope() is None:
            raise RuntimeError(f"jax_function {describe(function)} can only be used inside a pipeline definition")
        nodes = [as_node(x, "jax_function") for x in inputs]
        for i, x in enumerate(nodes):
            there = x.device
            if device is not None and there != device:
                raise ArgumentError(
                    f"jax_function {describe(function)}: input {i} is on the {there}, but device={device!r}; move it with .{device}()"
                )
        if sharding is not None and current_branch() is not None:
            raise ArgumentError(
                f"jax_function {describe(function)} with a sharding sees all samples: it can't be used in a branch of an `if`"
            )
        placed = on_mesh(sharding, "jax_function: sharding")
        op = EagerFunction(**options, sharding=placed) if eager else TraceableFunction(**options, jit=jit)
        made = add(op, *nodes, device="gpu" if device == "gpu" else None)
        return None if num_outputs == 0 else made

    return operator


class _Function(Operator):
    """What both kinds share. The function itself is not part of the key, as each shard's definition makes its own."""

    name = "jax_function"
    function: Any = dataclasses.field(compare=False)
    outputs: int
    layouts: tuple[str | None, ...]
    keep: bool

    @property
    def num_outputs(self) -> int:
        return self.outputs

    @property
    def preserved(self) -> bool:
        return self.keep

    def origins(self, names: Sequence[Names], data: Any, present: Any) -> Names:
        return joined(names)  # as in DALI

    def layout_like(self, i: int, ndim: int, inputs: Sequence[Spec]) -> str:
        """The layout of output `i`, which has `ndim` dimensions per sample."""
        given = self.layouts[i]
        if given is None:
            like = inputs[i] if i < len(inputs) else None
            return like.layout if like is not None and like.ndim == ndim else ""
        if given and len(given) != ndim:
            raise ArgumentError(
                f"output_layouts: {given!r} does not fit output {i}, which has {ndim} dimensions per sample"
            )
        return given

    def flatten(self, result: Any, samples: int) -> tuple[Any, ...]:
        """The result of the function, as a checked tuple of arrays."""
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
                    f"output {i} must have the batch, {samples} samples, as first axis; its shape is {a.shape}"
                )
        return arrays


# Note [Functions that need a mesh]
# A function of one shard gets arrays that lie on one device, while a user's mesh has several. JAX refuses to mix both,
# so such functions, and the programs that they are traced into, run without the mesh. A function that names an array
# that lies on the mesh, or that asks for the mesh, can't do without. It runs between two programs, under the mesh, and
# gets its shard on all devices of the mesh. The mesh of several processes has devices that this process can't reach:
# there such a function is told the axes, and gets its shard on one device. A function with a sharding gets global
# arrays, and runs under the mesh, too.


class TraceableFunction(_Function, ProgramOperator):
    """A function of which it is not yet known whether it can be traced; `bind` decides."""

    jit: bool | None

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        functions = _functions(ctx.of_shards)
        use = MeshUse.of(functions[0]) if ctx.settings.mesh is not None else MeshUse()

        def eager(jit: bool | None) -> Operator:
            own = {"function": self.function, "outputs": self.outputs, "layouts": self.layouts, "keep": self.keep}
            return EagerFunction(**own, sharding=None, inputs=specs, calls=_Calls(functions, ctx, jit, use))

        if ctx.settings.disable_jit and self.jit is None:
            return eager(False)
        if ctx.in_branch and self.jit is None:
            return eager(None)  # a program would give it absent samples
        if any(s.shape is None for s in specs):
            return eager(self.jit)  # compiled for each shape, between two programs
        if use.asked or use.explicit:  # arrays on Auto axes are constants of a program like others
            return eager(self.jit)
        B, x64 = ctx.B, ctx.settings.x64
        arguments = [
            _as_given(s, jax.ShapeDtypeStruct((B, *(s.shape or ())), s.dtype if x64 else narrow(s.dtype)))
            for s in specs
        ]
        try:
            with ctx.settings.contexts(None):
                traced = _traces(functions, arguments, lambda r: self.flatten(r, B), self.jit)
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
            return eager(False)
        outputs = [
            Spec(a.dtype, a.ndim - 1, a.shape[1:], self.layout_like(i, a.ndim - 1, specs))
            for i, a in enumerate(traced.jaxpr.out_avals)
        ]
        return TracedFunction(
            jaxpr=traced.jaxpr, fingerprint=traced.fingerprint, given=tuple(outputs), keep=self.keep, x64=x64
        )


def _traces(functions, arguments, flatten, jit):
    """The common trace of all shards' functions. Raises NotFaithful if there is none."""
    first = trace(functions[0], arguments, flatten) if jit is None else trace_again(functions[0], arguments, flatten)
    for f in functions[1:]:
        if f is not functions[0] and trace_again(f, arguments, flatten).fingerprint != first.fingerprint:
            raise NotFaithful("the shards' functions compute different things")
    return first


class TracedFunction(ProgramOperator):
    """A traced function: a computation inside the program."""

    name = "jax_function"
    jaxpr: Any = dataclasses.field(compare=False)
    fingerprint: str
    given: tuple[Spec, ...]
    keep: bool
    x64: bool

    @property
    def num_outputs(self) -> int:
        return len(self.given)

    @property
    def preserved(self) -> bool:
        return self.keep

    @property
    def mixes(self) -> bool:
        return True  # as far as is known

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        return self.given

    def lower(self, ctx: LowerContext, *arrays: Any) -> tuple[Any, ...]:
        inputs = [
            _as_given(s, a if self.x64 else a.astype(narrow(a.dtype))) for s, a in zip(ctx.inputs, arrays, strict=True)
        ]
        return tuple(function_of(self.jaxpr)(*inputs))


class EagerFunction(_Function, EagerOperator):
    """A function that is called with real arrays, between two programs."""

    calls: _Calls | None = dataclasses.field(default=None, compare=False)  # known when it is bound, like the inputs
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
        if self.calls is not None:
            return self
        functions, jit = _functions(ctx.of_shards), None if self.sharding is not None else False
        use = MeshUse.of(functions[0]) if ctx.settings.mesh is not None and self.sharding is None else MeshUse()
        return dataclasses.replace(self, inputs=specs, calls=_Calls(functions, ctx, jit, use))

    def call(self, ctx: HostContext, inputs: Sequence[Sequence[Any]], shards: Shards) -> Sequence[Sequence[Any]]:
        assert self.calls is not None
        present = ctx.present.reshape(ctx.S, ctx.B).sum(axis=1).tolist()
        if self.sharding is not None:
            with self.calls.settings.contexts(self.calls.settings.mesh):
                return self._call_global(ctx, inputs, shards, self.sharding)
        mesh = self.calls.mesh
        per_shard: dict[int, tuple[Any, ...]] = {}
        with self.calls.settings.contexts(mesh):
            for s, device in enumerate(shards.primaries):
                if present[s] or not any(present):
                    at = NamedSharding(mesh, PartitionSpec()) if isinstance(mesh, Mesh) else device
                    arguments = [
                        _as_given(spec, jax.device_put(x[s], at)) for spec, x in zip(self.inputs, inputs, strict=True)
                    ]
                    results = self.calls(s, arguments, lambda r, n=present[s]: self.flatten(r, n))
                    per_shard[s] = (
                        tuple(jax.device_put(r, device) for r in results) if isinstance(mesh, Mesh) else results
                    )
        some = next(iter(per_shard.values()))
        empty = tuple(np.zeros((0, *x.shape[1:]), x.dtype) for x in some)
        return [[per_shard.get(s, empty)[i] for s in range(ctx.S)] for i in range(self.outputs)]

    def _call_global(
        self, ctx: HostContext, inputs: Sequence[Sequence[Any]], shards: Shards, batch: Sharding
    ) -> list[list[Any]]:
        """Calls it once, with global arrays of all shards."""
        assert self.calls is not None
        samples = shards.num * ctx.B
        arguments = [_as_given(spec, assemble(x, shards, batch)) for spec, x in zip(self.inputs, inputs, strict=True)]
        outputs = self.calls(0, arguments, lambda r: self.flatten(r, samples))
        if isinstance(batch, NamedSharding):  # axes other than the batch axis are gathered
            batch = NamedSharding(batch.mesh, PartitionSpec(*batch.spec[:1]))
        return [by_shard(jax.device_put(x, batch), shards) for x in outputs]


def _as_given(spec: Spec, x: Any) -> Any:
    """A batch, or its shape and type, in the form that user functions get: key data become typed keys."""
    if not spec.keys:
        return x
    wrap = functools.partial(jax.random.wrap_key_data, impl="threefry2x32")
    return jax.eval_shape(wrap, x) if isinstance(x, jax.ShapeDtypeStruct) else wrap(x)


def _functions(ops: Sequence[Operator]) -> list[Callable[..., Any]]:
    """The functions of the local shards' definitions."""
    return [op.function for op in ops if isinstance(op, _Function)]


class _Calls:
    """Calls the functions of all shards, compiled for each shape if tracing does not change their meaning.

    Args:
      functions: one per shard.
      jit: None: decide for each shape; True: compiled; False: eager.

    Attributes:
      settings: of the user; mesh: that functions of one shard run under; None: under none.
    """

    def __init__(self, functions: Sequence[Callable[..., Any]], ctx: BuildContext, jit: bool | None, use: MeshUse):
        self._functions = list(functions)
        self._where = ctx.where
        self.settings = ctx.settings
        self._forced = jit is True
        self.jit = jit
        self.mesh = ctx.settings.mesh_of_shard if use.asked or use.arrays else None
        self._first: dict[int, tuple[Any, Callable[[Any], Any], Trace]] = {}
        self._programs: dict[tuple[int, Any], Callable[..., Any]] = {}

    def __call__(self, s: int, arguments: Sequence[jax.Array], flatten: Callable[[Any], Any]) -> tuple[jax.Array, ...]:
        function = self._functions[s]
        program = None if self.jit is False else self._program(function, arguments, flatten)
        try:
            return flatten(function(*arguments) if program is None else tuple(program(*arguments)))
        except Exception as e:
            raise OperatorError(_Function.name, self._where, f"{describe(function)}: {type(e).__name__}: {e}") from e

    def _program(
        self, function: Callable[..., Any], arguments: Sequence[jax.Array], flatten: Callable[[Any], Any]
    ) -> Any:
        """The function compiled for arguments of these shapes; None if it must run eagerly, from now on always."""
        key = id(function), tuple((a.shape, a.dtype) for a in arguments)
        if key in self._programs:
            return self._programs[key]
        try:
            program = self._programs[key] = compiled(self._trace(function, arguments, flatten))
        except NotFaithful as e:
            if self._forced:
                raise OperatorError(
                    _Function.name, self._where, f"{describe(function)} can't be traced (jit=True): {e}"
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
    ) -> Trace:
        abstract = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding) for a in arguments]
        if self._forced:
            return trace_again(function, abstract, flatten)
        traced = trace(function, abstract, flatten)
        shapes, flatten, before = self._first.setdefault(id(function), (abstract, flatten, traced))
        if shapes is not abstract and trace_again(function, shapes, flatten) != before:
            raise NotFaithful("variables that it reads have changed since it was compiled")
        return traced


if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals(), "jax_function")
