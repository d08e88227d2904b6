"""Functions of values from the functions of `jaxdali.fn`."""

from __future__ import annotations

import collections
import dataclasses
import functools
import inspect
import sys
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from .._core import calls
from .._core.arguments import declared
from .._core.building import is_node, user_line
from .._core.errors import ArgumentError, ArgumentTypeError, OperatorError, UnexpectedArgumentError
from .._core.ffi import TargetDevice
from .._core.kinds import device_named
from .._core.language import language
from .._core.names import ONLY_IN_PIPELINES, did_you_mean, members, unexpected
from .._core.refusals import missing_value_reason
from .._core.tracebacks import boundary
from .._core.values import Spec
from .._core.words import in_values, of_values
from .._program.sharding import device_of
from ..fn._decode import registered
from ..fn._tensor.arithmetic import Pointwise
from ..fn._tensor.constant import narrowed
from ..types import ScalarConstant
from . import _examples, _keys, _threads
from ._batch import Batch, Draw, Tensor, draw_of, set_operations
from ._dense import Dense, NotDense, sharding_of_keys
from ._docstrings import describe, extra_arguments, refused_arguments
from ._engine import (
    BatchSizeRequest,
    DynamicDataNode,
    Engine,
    FirstShapesChanged,
    TraceState,
    current_trace,
)
from ._lowered import bind_in_program, vmap_error
from ._numbers import evaluate_numbers, is_constant
from ._singles import JaxTensor, ambiguous_draw, is_drawn
from ._tracing import run_untraced
from ._values import argument_of, as_tensor, is_numbers, value_of

# Functions that read their input on the host, and for which a list or an array of numbers is one input of all samples.
_SHARED_INPUT = ("random.choice",)
MAX_COMPILED = 1024  # compiled functions; those used least recently are dropped

_lock = threading.Lock()  # guards `_compiled` and the caches of functions of `jit`


class CompiledCache(collections.OrderedDict[Any, Any]):
    """Compiled functions by their keys, least recently used first.

    It is pickled without its entries, as another process must compile its own.
    """

    def __reduce__(self) -> Any:
        return CompiledCache, ()


_compiled = CompiledCache()


class _Placeholder:
    """Stands for batch `index` of a call in the arguments that a function is compiled for."""

    def __init__(self, index: int):
        self.index = index


class _ByIdentity:
    """An object that can't be hashed, compared by identity. The caches that have it as a key keep it alive."""

    def __init__(self, x: Any):
        self._x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other._x is self._x

    def __hash__(self) -> int:
        return id(self._x)


@in_values
def call(
    name: str,
    function: Callable[..., Any],
    inputs: Sequence[Any],
    arguments: Mapping[str, Any],
    key: Any = None,
    rng: _keys.RNG | None = None,
    batch_size: int | None = None,
    variant: Any = None,
    reads_images: bool = True,
) -> Any:
    """Calls an operator's function with values.

    Args:
      name: identifies `function`, for the cache and for messages.
      function: takes DataNodes.
      inputs, arguments: batches, single values, and values that are the same for all samples.
      key, rng: the key of the random numbers, or a generator of keys; at most one of them.
      batch_size: the number of samples, if no input has it.
      variant: distinguishes functions with the same name.
      reads_images: see `building.reads_images`.

    Returns:
      A batch; a single value if there is no batch, batch size or array of keys; or a structure of these.
    """
    # Inside of `jax.vmap`, arrays are `BatchTracer`s.
    if any(type(x).__name__ == "BatchTracer" for x in (*inputs, *arguments.values(), key)):
        raise vmap_error(name)
    if rng is not None:
        if key is not None:
            raise ArgumentError(f"{name}: key and rng can't be given together; pass one of them")
        key = rng
    key = _keys.listed(key)
    if batch_size is not None and (
        isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)) or batch_size < 1
    ):
        raise ArgumentError(f"{name}: batch_size must be a number of 1 or more, got {batch_size!r}")
    if (trace := current_trace()) is not None:
        if batch_size is not None and batch_size != trace.N:
            raise BatchSizeRequest(name, int(batch_size))
        _check_no_values(name, inputs, arguments)
        return trace.call(name, function, inputs, arguments, key, batch_size, reads_images)
    _threads.check_pool()
    if (node := next(filter(is_node, (*inputs, *arguments.values())), None)) is not None:
        text = "functions of jaxdali.dynamic take arrays and files: in a pipeline definition, call"
        raise ArgumentError(f"{name}: {text} jaxdali.fn.{name}. A DataNode {missing_value_reason(node.node)}")
    if name == "parse_example" and batch_size is None and (parsed := _examples.parsed(inputs, arguments)) is not None:
        return parsed
    batches: list[Batch] = []
    draws: list[Draw | None] = []
    hosted: list[bool] = []  # whether each batch is an argument, which the host reads

    def place(x: Any, value: tuple[Batch, bool] | None, is_argument: bool = False) -> Any:
        """Adds a value to the batches of the call, and returns a placeholder for it. Returns static values unchanged.

        Args:
          value: the batch of `x`, and whether it is a single value; None: `x` is static, the same for all samples.
          is_argument: whether the host reads the value, as it does those of arguments.
        """
        if value is None:
            return x
        batch, is_single = value
        batches.append(batch)
        draws.append(getattr(x, "_draw", Draw.NONE) if is_single else None)
        hosted.append(is_argument)
        return _Placeholder(len(batches) - 1)

    declared_arguments = declared[name]() if name in declared else {}
    positional, named = [], {}
    drawn_argument = None  # the name of a drawn argument that must be the same for all samples
    for x in inputs:
        # A vector is one input for all samples, not a batch of numbers.
        if name in _SHARED_INPUT and ((isinstance(x, (np.ndarray, jax.Array)) and x.ndim == 1) or is_numbers(x)):
            x = as_tensor(narrowed(x) if isinstance(x, (list, tuple)) else x)
        positional.append(None if x is None else place(x, value_of(x), is_argument=name in _SHARED_INPUT))
    for n, x in arguments.items():
        a = declared_arguments.get(n)
        if a is None or x is None:
            named[n] = x
        elif a.is_input:
            named[n] = place(x, value_of(x))
        # A list of numbers of which some are drawn: each of these is a value of its own.
        elif a.many and a.per_sample and isinstance(x, (list, tuple)) and any(is_drawn(e) and not e.ndim for e in x):
            named[n] = [place(e, value_of(e) if is_drawn(e) else None, is_argument=True) for e in x]
        else:
            named[n] = place(x, argument_of(a, x), is_argument=True)
            if not a.per_sample and any(isinstance(e, Tensor) and e._draw is Draw.ONE for e in calls.flat(x)):
                drawn_argument = n
    if isinstance(key, _keys.RNG):
        key = key.key()
    counts = () if key is None else (_keys.number_of_keys(key),)
    try:
        N = size_of(name, batches, draws, counts, batch_size)
    except ArgumentError as e:
        # What the user may have meant for all samples.
        advice = [
            f"a single {n} is a flat list of numbers"
            for n, x in named.items()
            if isinstance(x, _Placeholder) and declared_arguments[n].many and batches[x.index].ndim == 1
        ]
        advice += [
            f"input {i}, {x!r}, has one number for each sample, and arguments are passed by name"
            for i, x in enumerate(inputs)
            if i and is_numbers(x) and len(x) < 5
        ]
        e.args = ("; ".join((str(e), *advice)),)
        raise
    if drawn_argument is not None and N > 1:
        raise ambiguous_draw(name, f"argument {drawn_argument}", N)

    keys = () if key is None else (key,)

    def evaluate_with(numbers: Mapping[str, Batch]) -> Any:
        """Evaluates the function, with `numbers` as values in place of the arguments of these names."""
        arguments, function_key = named, static_key
        inputs = Inputs(batches, hosted, draws, keys, counts, N, named.get("device"))
        if numbers:
            arguments = named | {n: _Placeholder(len(batches) + i) for i, n in enumerate(numbers)}
            function_key = *of_call, hashable(arguments)
            inputs.batches = [*batches, *numbers.values()]
            inputs.hosted = [*hosted, *[True] * len(numbers)]
            inputs.draws = [*draws, *[Draw.NONE] * len(numbers)]

        def trace_function(trace: TraceState, nodes: list[Any], keys: Sequence[Any]) -> Any:
            """Calls the operator's function with a node in place of each placeholder, while it is compiled."""

            def to_node(x: Any) -> Any:
                if isinstance(x, list):
                    return [to_node(e) for e in x]
                return nodes[x.index] if isinstance(x, _Placeholder) else x

            # A call has one key, or none.
            return trace.call(
                name,
                function,
                map(to_node, positional),
                {n: to_node(x) for n, x in arguments.items()},
                keys[0] if keys else None,
                batch_size,
                reads_images,
            )

        return evaluate(_compiled, function_key, name, trace_function, inputs)

    of_call = name, variant, hashable(positional), batch_size is None, reads_images
    static_key = *of_call, hashable(named)
    # In a program that JAX traces, a number is a constant: the function is compiled with the program.
    if is_constant(static_key) or any(isinstance(x, Tracer) for x in (key, *(b._data for b in batches))):
        return evaluate_with({})
    specs = tuple(b._spec for b in batches)
    return evaluate_numbers(static_key, (of_call, specs), declared_arguments, named, evaluate_with)


def _check_no_values(name: str, inputs: Sequence[Any], arguments: Mapping[str, Any]) -> None:
    """Raises an error if a function inside a trace gets values: the compiled function would hold them as constants."""
    declared_arguments = declared[name]() if name in declared else {}
    outside = next(("an input" for x in inputs if isinstance(x, Batch) or is_drawn(x)), None)
    for n, x in arguments.items():
        # A batch, a drawn value, or what `argument_of` makes one, such as a list with a number for each sample.
        if not is_node(x) and (
            any(isinstance(e, Batch) or is_drawn(e) for e in calls.flat(x))
            or (
                n in declared_arguments
                and not declared_arguments[n].is_input
                and argument_of(declared_arguments[n], x) is not None
            )
        ):
            outside = f"argument {n}"
    if outside is not None:
        raise ArgumentError(
            f"{name}: {outside} has values that the compiled function is not called with: pass them to it as an argument"
        )


@dataclasses.dataclass
class Inputs:
    """The values of a call.

    Attributes:
      batches: inputs and arguments.
      hosted: whether the host reads each of them, as it does with arguments.
      draws: how each of them depends on random numbers, if it is a single value; None: it is a batch.
      keys: of random numbers.
      counts: the number of keys in each of `keys`; None: it is a single key.
      N: number of samples.
      device: the argument `device` of the call, such as "gpu"; None: it has none.
    """

    batches: list[Batch]
    hosted: Sequence[bool]
    draws: Sequence[Draw | None]
    keys: Sequence[Any]
    counts: Sequence[int | None]
    N: int
    device: str | None = None


def evaluate(cache: CompiledCache, function_key: Any, name: str, function: Callable[..., Any], inputs: Inputs) -> Any:
    """Returns the outputs of a function of DataNodes for values, and compiles the function if necessary.

    A function of dense batches is compiled as a `Dense`, if that is possible and needs nothing from the host; any other
    one as an `Engine`.

    Args:
      cache: the compiled functions.
      function_key: identifies `function` in `cache`.
      name: for messages.
      function: takes a `TraceState`, DataNodes and keys.
      inputs: the values that the function is called with.
    """
    N, keys, counts, draws = inputs.N, inputs.keys, tuple(inputs.counts), tuple(inputs.draws)
    # A single value is repeated for all samples.
    batches = [b if len(b) == N else b[[0] * N] for b in inputs.batches]
    arrays = [b._data for b in batches]
    is_traced = any(isinstance(x, Tracer) for x in (*keys, *arrays))
    shared_arrays = (
        [] if is_traced else [x for x in arrays if isinstance(x, jax.Array) and len(x.sharding.device_set) > 1]
    )
    # Programs take dense arrays. A single value is a ragged batch.
    if (is_traced or shared_arrays) and not all(b.is_dense for b in batches):
        batches = [b.as_dense() for b in batches]
        arrays = [b._data for b in batches]
    specs, hosted, all_dense = tuple(b._spec for b in batches), tuple(inputs.hosted), all(b.is_dense for b in batches)
    # Programs also depend on the formats of files, which can't be read while JAX traces.
    call_key = function_key, specs, hosted, N, counts, draws, () if is_traced else _formats(batches)

    def dense_on(device: jax.Device | TargetDevice) -> Dense | NotDense:
        dense = _cached(
            cache, ("dense", call_key, device), lambda: _dense(function, specs, counts, N, draws, device, hosted)
        )
        # An engine serves other calls, and does not need the input in a program.
        if isinstance(dense, Dense) or not dense.inputs or not (is_traced or shared_arrays):
            return dense
        return _cached(
            cache,
            ("reads", call_key, device),
            lambda: _dense(function, specs, counts, N, draws, device, hosted, reads_inputs=True),
        )

    if is_traced:
        if not all_dense:
            raise ArgumentError(
                f"{name}: in a program that JAX traces batches must be dense arrays, but one of these is ragged"
            )
        if isinstance(dense := dense_on(device_of("cpu")), Dense):
            dense.warnings.warn()
        # JAX tells the platform only when it lowers the program, see Note [Platforms of programs].
        return bind_in_program(name, _OnPlatform(dense_on, cache, call_key), arrays, keys, user_line())
    device = _device(batches, inputs.device)
    if any(not x.is_fully_addressable and not x.is_fully_replicated for x in shared_arrays):
        raise ArgumentError(
            f"{name}: an array spans processes, and this one has only a part of its samples: call it inside jax.jit"
        )

    # Under a mesh, keys whose types say which samples each device has put the results there.
    is_shared = bool(shared_arrays) or (
        not jax.sharding.get_abstract_mesh().empty
        and any(k.is_fully_addressable for k in keys if sharding_of_keys([k]) is not None)
    )

    def run() -> Any:
        if is_shared or (all_dense and not keys):
            dense = dense_on(device) if all_dense else NotDense("one of its batches is ragged")
            if isinstance(dense, Dense) and (is_shared or not dense.calls_back):
                dense.warnings.warn()
                try:
                    outputs, status = (
                        dense.call_over_devices(arrays, keys) if dense.calls_back else dense.compiled(arrays)
                    )
                    # `status` has a column for each native step; only these can fail.
                    if not status.shape[1] or not np.asarray(status).any():
                        return dense.batches(outputs)
                except OperatorError:
                    if not dense.calls_back:
                        raise
                # A sample failed. The engine runs the call again, and raises the error or replaces the sample.
            elif isinstance(dense, NotDense) and any(
                not x.is_fully_replicated
                for x, is_hosted in zip(arrays, hosted, strict=True)
                if isinstance(x, jax.Array) and not is_hosted
            ):
                raise ArgumentError(
                    f"{name}: a batch on several devices stays there only in what can be a part of jax.jit, which this can't: "
                    f"{dense}. To run it on one device pass jax.device_get(x)"
                )
        # The shape of each ragged batch's first sample. An engine whose operators have read one serves only calls with
        # the same one; in others it raises FirstShapesChanged.
        first_shapes = [None if b.is_dense or not len(b) else b.shapes[0] for b in batches]

        def run_engine(key: Any) -> Any:
            engine = _cached(cache, key, lambda: Engine(function, specs, counts, N, draws, device, first_shapes))
            return engine(batches, keys, first_shapes)

        # Most functions are not bound to first shapes, and one engine serves all. Otherwise there is one for each of
        # them.
        try:
            return run_engine(("any", call_key, device))
        except FirstShapesChanged:
            return run_engine(("first", call_key, device, tuple(first_shapes)))

    # JAX may trace the function that makes this call, such as that of `jax.jit`. No value of the trace takes part, so the
    # results are constants.
    return run_untraced(run)


class _OnPlatform:
    """Returns the function of a call as it runs in programs of a platform, such as "cpu".

    Equal for equal calls, so that two traces of a user's function, which have it as a parameter, are equal.

    Args:
      dense_on: returns the function as it runs on a device.
      cache, call_key: identify the call.
    """

    def __init__(self, dense_on: Callable[[Any], Dense | NotDense], cache: CompiledCache, call_key: Any):
        self._dense_on, self._cache, self._call_key = dense_on, cache, call_key

    def __call__(self, platform: str) -> Dense | NotDense:
        return self._dense_on(device_of(platform))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OnPlatform) and other._cache is self._cache and other._call_key == self._call_key

    def __hash__(self) -> int:
        return hash(self._call_key)


def _formats(batches: Sequence[Batch]) -> tuple[Any, ...]:
    """The names of the registered image decoders, then for each batch of files the dtype and rank to which they decode
    it; () if none is registered. Functions are compiled for these.
    """
    if not registered.names():
        return ()
    # Files are vectors of bytes on the CPU. Other batches count as empty ones.
    encoded = [
        b if b._spec.dtype == np.uint8 and b._spec.ndim == 1 and b.device.platform == "cpu" else () for b in batches
    ]
    return (registered.names(), *(registered.kind_of([np.asarray(x) for x in b]) for b in encoded))


def _dense(
    function: Callable[..., Any],
    specs: Sequence[Spec],
    counts: Sequence[int | None],
    N: int,
    draws: Sequence[Draw | None],
    device: jax.Device | TargetDevice,
    hosted: Sequence[bool],
    reads_inputs: bool = False,
) -> Dense | NotDense:
    """Makes a `Dense`, or returns the reason why that is not possible, so that it can be cached.

    Args:
      reads_inputs: whether the host may also read inputs that are not hosted, such as a matrix that is passed by
        position.
    """
    try:
        return Dense(function, specs, counts, N, draws, device, hosted)
    except NotDense as e:
        if not reads_inputs or not e.inputs:
            return e
        hosted = [host or i in e.inputs for i, host in enumerate(hosted)]
        return _dense(function, specs, counts, N, draws, device, hosted, reads_inputs)


def _cached(cache: CompiledCache, key: Any, make: Callable[[], Any]) -> Any:
    """Returns the cached value, or makes and caches it."""
    with _lock:
        value = cache.get(key)
        if value is not None:
            cache.move_to_end(key)
            return value
    # Made without the lock, as it takes long. If two threads make the same, the value of the first one is kept.
    value = make()
    with _lock:
        value = cache.setdefault(key, value)
        while len(cache) > MAX_COMPILED:
            cache.popitem(last=False)
    return value


def size_of(
    name: str,
    batches: Sequence[Batch],
    draws: Sequence[Draw | None],
    counts: Sequence[int | None] = (),
    batch_size: int | None = None,
) -> int:
    """The number of samples of a call: that of its batches or `batch_size`, else the number of its keys, else 1.

    Args:
      name: for messages.
      batches: inputs and arguments.
      draws: None for each of them that is a batch; others are single values, of which each counts for all samples.
      counts: the number of keys in each key; None: it is a single key.
      batch_size: as the user passes it; None: it is not passed.
    """
    lengths = {len(b) for b, draw in zip(batches, draws) if draw is None}
    if batch_size is not None:
        lengths.add(int(batch_size))
    lengths = lengths or {n for n in counts if n is not None}
    if len(lengths) > 1:
        numbers = " and ".join(map(str, sorted(lengths)))
        raise ArgumentError(
            f"{name}: inputs, and arguments with a value for each sample, must have the same number of samples, got {numbers}"
        )
    if 0 in lengths:
        raise ArgumentError(f"{name}: there is no sample in the batch")
    return lengths.pop() if lengths else 1


def _device(batches: Sequence[Batch], requested: Any) -> jax.Device:
    """The device for a call: that of a batch on an accelerator, the first accelerator if it is requested, or the CPU."""
    accelerators = [b._device for b in batches if b._device.platform != "cpu"]
    if accelerators:
        return accelerators[0]
    # "tpu" is another name of "gpu", and "mixed" puts the output of a decoder on the accelerator. JAX may have none.
    if isinstance(requested, str) and device_named(requested) in ("gpu", "mixed") and jax.default_backend() != "cpu":
        return jax.local_devices()[0]
    return jax.local_devices(backend="cpu")[0]


def hashable(x: Any) -> Any:
    """A hashable key of static arguments, equal for arguments of the same type and value.

    1, 1.0 and True differ, and so do -0.0 and 0.0, which give other results. A NaN equals itself.
    """
    if isinstance(x, _Placeholder):
        return _Placeholder, x.index
    if isinstance(x, slice):
        return slice, hashable((x.start, x.stop, x.step))
    if isinstance(x, (list, tuple)):
        return type(x), tuple(map(hashable, x))
    if isinstance(x, Mapping):
        return tuple((n, hashable(e)) for n, e in x.items())
    if isinstance(x, (float, complex, np.generic, np.ndarray, jax.Array)):
        array = np.asarray(x)
        cls = np.ndarray if isinstance(x, jax.Array) else type(x)
        return cls, array.dtype, array.shape, array.tobytes()
    if isinstance(x, ScalarConstant):
        return ScalarConstant, x.dtype, hashable(x.value)
    try:
        hash(x)
    except TypeError:
        return _ByIdentity(x)
    return type(x), x


def pointwise(function: str, *operands: Any) -> Any:
    """Calls a pointwise function of batches and tensors; NotImplemented if an operand has another type."""
    kinds = Batch, JaxTensor, bool, int, float, ScalarConstant, np.generic, np.ndarray, jax.Array, list, tuple
    if not all(isinstance(x, kinds) for x in operands):
        return NotImplemented
    draw, axes = draw_of(operands), max((x.ndim for x in operands if isinstance(x, (Tensor, JaxTensor))), default=0)
    is_plain = [isinstance(x, (np.ndarray, jax.Array)) and not isinstance(x, Tensor) for x in operands]
    # With a sample as the other operand, an array with at most as many axes is a sample, too.
    if axes and any(isinstance(x, JaxTensor) for x in operands):
        operands = tuple(
            JaxTensor(x) if array and 0 < x.ndim <= axes else x for x, array in zip(operands, is_plain, strict=True)
        )
    # With a drawn value as the other operand, an array with more axes is a batch, and `call` raises an error.
    is_refused = draw is Draw.ONE and any(array and x.ndim > axes for x, array in zip(operands, is_plain, strict=True))
    if is_refused or any(isinstance(x, (Batch, JaxTensor, Tracer)) for x in operands):
        return call(f"arithmetic.{function}", functools.partial(language().pointwise, function), operands, {})
    samples = [as_tensor(x if isinstance(x, (np.ndarray, jax.Array)) else narrowed(x)) for x in operands]
    arrays = [np.asarray(x) for x in samples]
    # All operands are single values in the host's memory: NumPy computes the result at once.
    # Operand i is input i.
    step = Pointwise(function=function, operands=tuple(range(len(arrays))))
    (spec,) = step.infer(*(Spec(x.dtype, x.ndim, x.shape, x.layout) for x in samples))
    return Tensor.of(step.element(np, *arrays), spec.layout, draw)


def subscript(batch: Batch, key: Any) -> Batch:
    """Takes a part of each sample.

    Indices may be numbers, slices, batches with one number per sample, or single values.
    """
    keys = list(key) if isinstance(key, tuple) else [key]
    indices: list[Any] = []

    def to_placeholder(x: Any) -> Any:
        """A placeholder in place of an index that is a value, as `subscript_nodes` gets these as nodes."""
        if isinstance(x, slice):
            return slice(*map(to_placeholder, (x.start, x.stop, x.step)))
        if not isinstance(x, Batch) and not is_drawn(x):
            return x
        indices.append(x)
        return _Placeholder(len(indices) - 1)

    template = tuple(map(to_placeholder, keys))

    def subscript_nodes(node: Any, *nodes: Any) -> Any:
        """The subscript of a node, with `nodes` in place of the placeholders in `template`."""

        def fill(x: Any) -> Any:
            if isinstance(x, slice):
                return slice(*map(fill, (x.start, x.stop, x.step)))
            return nodes[x.index] if isinstance(x, _Placeholder) else x

        # A key that is no tuple is the only entry of `template`.
        return language().subscript(node, tuple(map(fill, template)) if isinstance(key, tuple) else fill(template[0]))

    return call("subscript", subscript_nodes, (batch, *indices), {}, variant=hashable(template))


@boundary
def broadcast(x: Any) -> Any:
    """Returns a single value that was drawn with one key as a value that is the same for all samples of a batch.

    Functions of several samples refuse a drawn value without it: ``jd.flip(images,
    horizontal=jd.random.broadcast(coin))``.

    Args:
      x: a single value, or a number. Values computed from the result are for all samples, too.

    Raises:
      TypeError: `x` is a batch, or no value.
    """
    if isinstance(x, (Tensor, JaxTensor, DynamicDataNode)) and x._draw is not None:
        return x._with_draw(Draw(min(x._draw, Draw.SHARED)))
    of_batch = isinstance(x, (Batch, DynamicDataNode))
    if not of_batch and (isinstance(x, (bool, int, float, np.generic)) or getattr(x, "ndim", None) == 0):
        return x
    raise ArgumentTypeError(
        f"random.broadcast takes a single value, got {'a batch' if of_batch else type(x).__name__} (called at {user_line()})"
    )


set_operations(sys.modules[__name__])  # pyright: ignore[reportArgumentType]


class Functions(dict[str, Any]):
    """Functions of values by name, made from an index module of `jaxdali.fn`, and modules of them for its submodules.

    A missing name raises AttributeError.

    Args:
      functions: the module of `jaxdali.fn`.
      name: of the module that gets the functions.
    """

    def __init__(self, functions: types.ModuleType, name: str):
        super().__init__()
        self._functions, self._name = functions, name
        for public, x in members(functions).items():
            # Names such as `file_reader` are old ones of readers, which are classes here, see `readers`. Deprecated
            # functions are left out, too.
            if (
                public in ONLY_IN_PIPELINES
                or public.endswith("_reader")
                or getattr(x, "__module__", "").endswith("._deprecated")
            ):
                continue
            if inspect.isfunction(x):
                self[public] = _function_of(x, public, name)
            # A submodule, not a module that `functions` imports.
            elif inspect.ismodule(x) and x.__name__ == f"{functions.__name__}.{public}":
                self[public] = _module_of(x, f"{name}.{public}")

    def __missing__(self, name: str) -> Any:
        if name in ONLY_IN_PIPELINES and not name.startswith("_"):
            raise AttributeError(
                f"module {self._name!r} has no {name!r}: it is for pipelines only, as jaxdali.fn.{name}", name=name
            )
        full = f"{self._name}.{name}".removeprefix("jaxdali.dynamic.")
        raise AttributeError(
            of_values(f"module {self._name!r} has no attribute {name!r}{did_you_mean(full, self)}"), name=name
        )


def _module_of(functions: types.ModuleType, name: str) -> types.ModuleType:
    """Makes a module of functions of values from an index module of `jaxdali.fn`."""
    module = sys.modules.get(name) or types.ModuleType(name, f"The functions of `{functions.__name__}`, of values.")
    sys.modules[name] = module
    members_of_module = Functions(functions, name)
    # For a missing name, `Functions.__missing__` raises the AttributeError.
    vars(module).update(members_of_module, __getattr__=boundary(members_of_module.__getitem__))
    return module


def _function_of(function: Callable[..., Any], public: str, module: str) -> Callable[..., Any]:
    """Makes a function of values from a function of `jaxdali.fn`, for a module of `jaxdali.dynamic`."""
    # The name below `jaxdali.dynamic`, such as "random.uniform".
    name = ".".join((*module.split(".")[2:], public))
    extra = extra_arguments(function)  # such as key, rng and batch_size, which `call` takes
    advice = refused_arguments(function, extra)

    def check_and_call(inputs: Sequence[Any], arguments: dict[str, Any], reads_images: bool) -> Any:
        """Checks the names of the arguments, and calls the function. Errors get the user's line."""
        try:
            for n in arguments:
                if n in advice:
                    raise UnexpectedArgumentError(f"{name}: {advice[n]}")
                if n not in parameters:
                    keywords = (p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY)
                    raise UnexpectedArgumentError(unexpected(name, n, keywords))
            extras = {n: arguments.pop(n) for n in extra if n in arguments}
            return call(name, function, inputs, arguments, **extras, reads_images=reads_images)
        except (TypeError, ValueError) as e:
            line = user_line()
            if line not in str(e):
                e.args = (f"{'' if name in str(e) else f'{name}: '}{e} (called at {line})", *e.args[1:])
            raise

    @boundary
    @functools.wraps(function)
    def checked_call(*inputs: Any, **arguments: Any) -> Any:
        return check_and_call(inputs, arguments, reads_images=True)

    def call_by_dali(*inputs: Any, **arguments: Any) -> Any:
        return check_and_call(inputs, arguments, reads_images=False)

    checked_call.call_by_dali = call_by_dali  # pyright: ignore[reportAttributeAccessIssue]  for `experimental.dynamic`
    checked_call.__module__ = module
    describe(checked_call, extra)
    parameters = inspect.signature(checked_call).parameters
    return checked_call
