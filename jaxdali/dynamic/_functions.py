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
from .._core.errors import ArgumentError, ArgumentTypeError, UnexpectedArgumentError
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
from . import _keys, _threads
from ._batch import Batch, Draw, Tensor, draw_of, set_operations
from ._dense import Dense, NotDense
from ._docstrings import describe, own_arguments, refused
from ._engine import DynamicDataNode, Engine, OtherFirsts, SizeAsked, Trace, current_trace
from ._lowered import in_program, mapped
from ._singles import JaxTensor, for_several, is_drawn
from ._values import argument_of, is_numbers, tensor, value_of

# Reads its input on the host; a list or an array of numbers is for all samples: one of them is chosen.
_WHOLE = ("random.choice",)
MOST = 1024  # compiled functions; those used least recently are dropped

_lock = threading.Lock()  # guards `_made`, and what functions of `jit` have compiled


class Compiled(collections.OrderedDict[Any, Any]):
    """Compiled functions by their keys. A copy for another process is empty, as that process compiles its own."""

    def __reduce__(self) -> Any:
        return Compiled, ()


_made = Compiled()


class _Place:
    """The place of a value among the arguments of a call."""

    def __init__(self, index: int):
        self.index = index


class _Same:
    """An object that can't be hashed, compared by identity. It lives as long as the function compiled for it."""

    def __init__(self, x: Any):
        self._x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other._x is self._x

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
    form: Any = None,
) -> Any:
    """Calls an operator's function with values.

    Args:
      name: what `function` is known by; form: tells apart functions of one name.
      function: of DataNodes.
      inputs, arguments: values, some for each sample, and what is the same for all.
      key, rng: what random numbers are keyed by.
      batch_size: how many samples, where no input says it.
    """
    if any(type(x).__name__ == "BatchTracer" for x in (*inputs, *arguments.values(), key)):
        raise mapped(name)
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
            raise SizeAsked(name, int(batch_size))
        _check_inside(name, inputs, arguments)
        return trace.call(name, function, inputs, arguments, key, batch_size)
    _threads.check_pool()
    if (node := next(filter(is_node, (*inputs, *arguments.values())), None)) is not None:
        text = "jaxdali.dynamic has functions of values: in a pipeline definition, call"
        raise ArgumentError(f"{name}: {text} jaxdali.fn.{name}. A DataNode {missing_value_reason(node.node)}")
    batches: list[Batch] = []
    draws: list[Draw | None] = []
    places: list[bool] = []  # whether they are arguments, which the host reads

    def place(x: Any, found: tuple[Batch, bool] | None, argument: bool = False) -> Any:
        if found is None:
            return x
        batches.append(found[0])
        draws.append(getattr(x, "_draw", Draw.NONE) if found[1] else None)
        places.append(argument)
        return _Place(len(batches) - 1)

    known = declared[name]() if name in declared else {}
    positional, named = [], {}
    fixed = None  # an argument that was drawn, where only one for all samples is accepted
    for x in inputs:
        if name in _WHOLE and ((isinstance(x, (np.ndarray, jax.Array)) and x.ndim == 1) or is_numbers(x)):
            x = tensor(narrowed(x) if isinstance(x, (list, tuple)) else x)
        positional.append(None if x is None else place(x, value_of(x), name in _WHOLE))
    for n, x in arguments.items():
        a = known.get(n)
        if a is None or x is None:
            named[n] = x
        elif a.is_input:
            named[n] = place(x, value_of(x))
        elif a.many and a.per_sample and isinstance(x, (list, tuple)) and any(is_drawn(e) and not e.ndim for e in x):
            named[n] = [place(e, value_of(e) if is_drawn(e) else None, True) for e in x]
        else:
            named[n] = place(x, argument_of(a, x), True)
            if not a.per_sample and any(isinstance(e, Tensor) and e._draw is Draw.ONE for e in calls.flat(x)):
                fixed = n
    if isinstance(key, _keys.RNG):
        key = key.key()
    counts = () if key is None else (_keys.number_of_keys(key),)
    N = size_of(name, batches, draws, counts, batch_size)
    if fixed is not None and N > 1:
        raise for_several(name, f"argument {fixed}", N)

    def traced(trace: Trace, nodes: list[Any], keys: Sequence[Any]) -> Any:
        def node(x: Any) -> Any:
            if isinstance(x, list):
                return [node(e) for e in x]
            return nodes[x.index] if isinstance(x, _Place) else x

        of_named = {n: node(x) for n, x in named.items()}
        return trace.call(name, function, map(node, positional), of_named, keys[0] if keys else None, batch_size)

    at = name, form, frozen(positional), frozen(named), batch_size is None
    keys = () if key is None else (key,)
    return evaluated(_made, at, name, traced, Inputs(batches, places, draws, keys, counts, N, named.get("device")))


def _check_inside(name: str, inputs: Sequence[Any], arguments: Mapping[str, Any]) -> None:
    """Raises an error where a function within a program gets values that the program is not called with."""
    known = declared[name]() if name in declared else {}
    outside = next(("an input" for x in inputs if isinstance(x, Batch) or is_drawn(x)), None)
    for n, x in arguments.items():
        if not is_node(x) and (
            any(isinstance(e, Batch) or is_drawn(e) for e in calls.flat(x))
            or (n in known and not known[n].is_input and argument_of(known[n], x) is not None)
        ):
            outside = f"argument {n}"
    if outside is not None:
        raise ArgumentError(
            f"{name}: {outside} has values that the compiled function is not called with: pass them to it as an argument"
        )


@dataclasses.dataclass
class Inputs:
    """What a function is called with.

    Attributes:
      batches: the values. hosted: which of them the host reads, as they are arguments.
      draws: which of them are single values, see `DynamicDataNode`.
      keys: of random numbers; counts: how many each is, see `number_of_keys`.
      N: samples.
      device: as the caller asks for it.
    """

    batches: list[Batch]
    hosted: Sequence[bool]
    draws: Sequence[Draw | None]
    keys: Sequence[Any]
    counts: Sequence[int | None]
    N: int
    device: str | None = None


def evaluated(made: Compiled, at: Any, name: str, function: Callable[..., Any], given: Inputs) -> Any:
    """The outputs of a function of DataNodes, for values.

    Args:
      made: what was compiled before; at: what distinguishes this function there.
      name: for messages.
      function: of a `Trace`, the values, and the keys.
    """
    N, keys, counts, draws = given.N, given.keys, tuple(given.counts), tuple(given.draws)
    batches = [b if len(b) == N else b[[0] * N] for b in given.batches]
    arrays = [b._data for b in batches]
    inside = any(isinstance(x, Tracer) for x in (*keys, *arrays))
    if inside and not all(b.is_dense for b in batches):
        batches = [b.as_dense() for b in batches]
        arrays = [b._data for b in batches]
    specs, hosted, dense_only = tuple(b._spec for b in batches), tuple(given.hosted), all(b.is_dense for b in batches)
    call_key = at, specs, hosted, N, counts, draws, () if inside else _formats(batches)

    def dense_on(device: jax.Device | TargetDevice) -> Dense | NotDense:
        return _cached(
            made, ("dense", call_key, device), lambda: _dense(function, specs, counts, N, draws, device, hosted)
        )

    if inside:
        if not dense_only:
            raise ArgumentError(
                f"{name}: in a program that JAX traces batches must be dense arrays, but one of these is ragged"
            )
        if isinstance(dense := dense_on(device_of("cpu")), Dense):
            dense.warnings.warn()
        # See Note [Platforms of programs].
        return in_program(name, lambda platform: dense_on(device_of(platform)), arrays, keys, user_line())
    device = _device(batches, given.device)
    if dense_only and not keys:
        dense = dense_on(device)
        if isinstance(dense, Dense) and not dense.calls_back:
            dense.warnings.warn()
            outputs, status = dense.compiled(arrays)
            if not status.shape[1] or not np.asarray(status).any():
                return dense.batches(outputs)
    firsts = [None if b.is_dense or not len(b) else b.shapes[0] for b in batches]

    def run(key: Any) -> Any:
        engine = _cached(made, key, lambda: Engine(function, specs, counts, N, draws, device, firsts))
        return engine(batches, keys, firsts)

    try:
        return run(("any", call_key, device))
    except OtherFirsts:
        return run(("first", call_key, device, tuple(firsts)))


def _formats(batches: Sequence[Batch]) -> tuple[Any, ...]:
    """What registered decoders of images make of each batch, which determines how a function is compiled."""
    if not registered.names():
        return ()
    encoded = [
        b if b._spec.dtype == np.uint8 and b._spec.ndim == 1 and b.device.platform == "cpu" else () for b in batches
    ]
    return (registered.names(), *(registered.kind_of([np.asarray(x) for x in b]) for b in encoded))


def _dense(*arguments: Any) -> Dense | NotDense:
    try:
        return Dense(*arguments)
    except NotDense as e:
        return e


def _cached(made: Compiled, key: Any, make: Callable[[], Any]) -> Any:
    """Returns what was made for this key before, or makes it now."""
    with _lock:
        found = made.get(key)
        if found is not None:
            made.move_to_end(key)
            return found
    new = make()
    with _lock:
        new = made.setdefault(key, new)
        while len(made) > MOST:
            made.popitem(last=False)
    return new


def size_of(
    name: str,
    batches: Sequence[Batch],
    draws: Sequence[Draw | None],
    counts: Sequence[int | None] = (),
    batch_size: int | None = None,
) -> int:
    """The number of samples of a call: of its batches, else of its keys.

    Args:
      draws: which of `batches` are single values; counts: of keys; see `Inputs`.
    """
    lengths = {len(b) for b, draw in zip(batches, draws) if draw is None}
    if batch_size is not None:
        lengths.add(int(batch_size))
    lengths = lengths or {n for n in counts if n is not None}
    if len(lengths) > 1:
        raise ArgumentError(
            f"{name}: all batches of a call must have the same number of samples, got {' and '.join(map(str, sorted(lengths)))}"
        )
    if 0 in lengths:
        raise ArgumentError(f"{name}: there is no sample in the batch")
    return lengths.pop() if lengths else 1


def _device(batches: Sequence[Batch], asked: Any) -> jax.Device:
    there = [b._device for b in batches if b._device.platform != "cpu"]
    if there:
        return there[0]
    if device_named(asked) in ("gpu", "mixed") and jax.default_backend() != "cpu":
        return jax.local_devices()[0]
    return jax.local_devices(backend="cpu")[0]


def frozen(x: Any) -> Any:
    """A key of static arguments."""
    if isinstance(x, _Place):
        return _Place, x.index
    if isinstance(x, slice):
        return slice, frozen((x.start, x.stop, x.step))
    if isinstance(x, (list, tuple)):
        return type(x), tuple(map(frozen, x))
    if isinstance(x, Mapping):
        return tuple((n, frozen(e)) for n, e in x.items())
    if isinstance(x, (np.ndarray, jax.Array)):
        array = np.asarray(x)
        return array.dtype.str, array.shape, array.tobytes()
    try:
        hash(x)
    except TypeError:
        return _Same(x)
    return type(x), x


def pointwise(function: str, *operands: Any) -> Any:
    """A pointwise function of batches and tensors; NotImplemented when an operand is none."""
    kinds = Batch, JaxTensor, bool, int, float, ScalarConstant, np.generic, np.ndarray, jax.Array, list, tuple
    if not all(isinstance(x, kinds) for x in operands):
        return NotImplemented
    draw, axes = draw_of(operands), max((x.ndim for x in operands if isinstance(x, (Tensor, JaxTensor))), default=0)
    plain = [isinstance(x, (np.ndarray, jax.Array)) and not isinstance(x, Tensor) for x in operands]
    # Beside a sample an array with as many axes is one, too.
    if axes and any(isinstance(x, JaxTensor) for x in operands):
        operands = tuple(
            JaxTensor(x) if array and 0 < x.ndim <= axes else x for x, array in zip(operands, plain, strict=True)
        )
    # Beside a drawn value an array with more axes is a batch, which refuses it.
    refuses = draw is Draw.ONE and any(array and x.ndim > axes for x, array in zip(operands, plain, strict=True))
    if refuses or any(isinstance(x, (Batch, JaxTensor, Tracer)) for x in operands):
        return call(f"arithmetic.{function}", functools.partial(language().pointwise, function), operands, {})
    samples = [tensor(x if isinstance(x, (np.ndarray, jax.Array)) else narrowed(x)) for x in operands]
    arrays = [np.asarray(x) for x in samples]
    step = Pointwise(function=function, operands=tuple(range(len(arrays))))
    (spec,) = step.infer(*(Spec(x.dtype, x.ndim, x.shape, x.layout) for x in samples))
    return Tensor.of(step.element(np, *arrays), spec.layout, draw)


def subscript(batch: Batch, key: Any) -> Batch:
    """A part of each sample; indices may be batches, or single values."""
    keys = list(key) if isinstance(key, tuple) else [key]
    indices: list[Any] = []

    def without(x: Any) -> Any:
        if isinstance(x, slice):
            return slice(*map(without, (x.start, x.stop, x.step)))
        if not isinstance(x, Batch) and not is_drawn(x):
            return x
        indices.append(x)
        return _Place(len(indices) - 1)

    template = tuple(map(without, keys))

    def subscripted(node: Any, *nodes: Any) -> Any:
        def found(x: Any) -> Any:
            if isinstance(x, slice):
                return slice(*map(found, (x.start, x.stop, x.step)))
            return nodes[x.index] if isinstance(x, _Place) else x

        return language().subscript(node, tuple(map(found, template)) if isinstance(key, tuple) else found(template[0]))

    return call("subscript", subscripted, (batch, *indices), {}, form=frozen(template))


@boundary
def broadcast(x: Any) -> Any:
    """Returns a single value that was drawn with one key as one that is the same for all samples of a batch.

    Without it, a function of several samples takes no such value: ``jd.flip(images,
    horizontal=jd.random.broadcast(coin))``.

    Args:
      x: a single value, or a number. What is made of the result is for all samples, too.

    Raises:
      TypeError: it is a batch, or no value.
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
    """The functions of an index module of `jaxdali.fn`, and modules with those of its parts; a name that is not there
    is an AttributeError.

    Args:
      functions: the module.
      name: of the module that they are for.
    """

    def __init__(self, functions: types.ModuleType, name: str):
        super().__init__()
        self._functions, self._name = functions, name
        for public, x in members(functions).items():
            if (
                public in ONLY_IN_PIPELINES
                or public.endswith("_reader")
                or getattr(x, "__module__", "").endswith("._deprecated")
            ):
                continue
            if inspect.isfunction(x):
                self[public] = _function_of(x, public, name)
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
    module = sys.modules.get(name) or types.ModuleType(name, f"The functions of `{functions.__name__}`, of values.")
    sys.modules[name] = module
    found = Functions(functions, name)
    vars(module).update(found, __getattr__=found.__getitem__)
    return module


def _function_of(function: Callable[..., Any], public: str, module: str) -> Callable[..., Any]:
    name = ".".join((*module.split(".")[2:], public))
    own = own_arguments(function)
    foreign = refused(function, own)

    @boundary
    @boundary
    @functools.wraps(function)
    def of_values(*inputs: Any, **arguments: Any) -> Any:
        try:
            for n in arguments:
                if n in foreign:
                    raise UnexpectedArgumentError(f"{name}: {foreign[n]}")
                if n not in parameters:
                    named = (p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY)
                    raise UnexpectedArgumentError(unexpected(name, n, named))
            return call(name, function, inputs, arguments, **{n: arguments.pop(n) for n in own if n in arguments})
        except (TypeError, ValueError) as e:
            line = user_line()
            if line not in str(e):
                e.args = (f"{'' if name in str(e) else f'{name}: '}{e} (called at {line})", *e.args[1:])
            raise

    of_values.__module__ = module
    describe(of_values, own)
    parameters = inspect.signature(of_values).parameters
    return of_values
