"""`jit`: compiles several functions of values into one program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

import jax
import numpy as np

from .._core.errors import ArgumentError
from .._core.tracebacks import boundary
from .._core.words import in_values
from .._pipeline.conditionals import converted
from ._batch import Batch, Draw
from ._engine import SizeAsked, Trace, current_trace
from ._functions import MOST, Compiled, Inputs, evaluated, frozen, size_of
from ._keys import RNG, is_key, number_of_keys
from ._singles import JaxTensor
from ._threads import check_pool
from ._values import FILE, is_column, value_of

F = TypeVar("F", bound=Callable[..., Any])


@overload
def jit(function: F, /, *, enable_conditionals: bool = False) -> F: ...


@overload
def jit(function: None = None, /, *, enable_conditionals: bool = False) -> Callable[[F], F]: ...


def jit(function: Any = None, /, *, enable_conditionals: bool = False) -> Any:
    """Compiles the functions of values that a function calls into one program, fused like a pipeline.

    The function is traced once for each structure of its arguments. Inside, values are DataNodes, as in a pipeline
    definition, and functions of this module, arithmetic and subscripts work on them; ``len(x)`` is the number of
    samples of a batch, and a subscript a part of each sample, as that of `Batch.slice`. The results equal those of the
    same calls without `jit`: batches, and a `Tensor` of what is one value, such as a file, or a number drawn with one
    key.

    Args:
      function: a function of values and keys that returns a batch, or a pytree of batches. The result is called with
        batches, lists of arrays, lists and tuples of files' bytes, arrays ``[N, ...]``, columns of other libraries,
        single files, and keys; Python values are static. Keys can be passed to functions, and to `random.split` and
        `random.fold_in` of this module; arrays of keys have subscripts.
      enable_conditionals: whether `if`, `and`, `or` and `not` work on values, sample by sample, as in a pipeline.

    Returns:
      The function of values; a decorator if `function` is None.

    Example:
      >>> @jd.jit
      ... def augment(jpegs, key):
      ...     images = jd.resize(jd.decoders.image_random_crop(jpegs, key=key), size=(224, 224))
      ...     return jd.crop_mirror_normalize(images, mirror=jd.random.coin_flip(key=key, batch_size=len(images)))
    """
    if function is None:
        return functools.partial(jit, enable_conditionals=enable_conditionals)
    if not callable(function):
        raise TypeError(f"jit takes a function, got {type(function).__name__}")
    made, sizes = Compiled(), Compiled()  # sizes: samples that functions ask for, where no value says it
    name = f"jit of {getattr(function, '__name__', type(function).__name__)}"

    @boundary
    @boundary
    @functools.wraps(function)
    @in_values
    def compiled(*arguments: Any, **named: Any) -> Any:
        if current_trace() is not None:
            return function(*arguments, **named)
        check_pool()
        # The arguments are no batch of files, though each may be a file.
        leaves, tree = jax.tree.flatten((arguments, named), is_leaf=lambda x: x is not arguments and _is_leaf(x))
        batches: list[Batch] = []
        draws: list[Draw | None] = []
        keys: list[Any] = []
        counts: list[int | None] = []  # of keys
        kinds: list[Any] = []  # of each leaf: the list that it is in, or what it is
        for x in leaves:
            if isinstance(x, RNG) or is_key(x):
                keys.append(x.key() if isinstance(x, RNG) else x)
                counts.append(number_of_keys(keys[-1]))
                kinds.append("key")
            elif _is_value(x):
                found, alone = value_of(x) or (Batch(np.asarray(x)[None]), True)
                batches.append(found)
                draws.append(getattr(x, "_draw", Draw.NONE) if alone else None)
                kinds.append("value")
            else:
                kinds.append(("static", x))
        at = tree, frozen(kinds), *counts
        size = None if None in draws else sizes.get(at)
        said = None in draws or size is not None
        N = size_of(name, batches, draws, (), size)

        def traced(trace: Trace, nodes: list[Any], places: Any) -> Any:
            trace.N = N if said else None
            values, found = iter(nodes), iter(places)
            whole = [next(values) if k == "value" else next(found) if k == "key" else k[1] for k in kinds]
            arguments, named = jax.tree.unflatten(tree, whole)
            bound = functools.partial(function, *arguments, **named)
            return converted(bound)() if enable_conditionals else bound()

        hosted = [b.is_dense and b.ndim <= 1 for b in batches]
        while True:  # twice at most
            try:
                return evaluated(made, at, name, traced, Inputs(batches, hosted, draws, keys, counts, N))
            except SizeAsked as e:
                if said:
                    raise ArgumentError(
                        f"{e.name}: batch_size={e.size} does not fit a program of {N} samples ({name})"
                    ) from None
                sizes[at] = N = e.size
                said = True
                while len(sizes) > MOST:
                    sizes.popitem(last=False)

    return compiled


def _is_leaf(x: Any) -> bool:
    if isinstance(x, tuple):  # of arrays it is a structure
        return bool(x) and all(isinstance(e, FILE) for e in x)
    if isinstance(x, list):  # of JAX's keys, too
        return bool(x) and all(map(_is_sample, x)) and not all(isinstance(e, jax.Array) and is_key(e) for e in x)
    return isinstance(x, (Batch, JaxTensor))


def _is_sample(x: Any) -> bool:
    known = isinstance(x, (*FILE, np.ndarray, jax.Array))
    return known or hasattr(x, "__dlpack__") or hasattr(x, "__array_interface__")


def _is_value(x: Any) -> bool:
    if is_column(x):
        # One of numbers is static, as a list of them.
        return not isinstance(x, Sequence) or (len(x) > 0 and _is_sample(x[0]))
    return _is_leaf(x) or _is_sample(x)
