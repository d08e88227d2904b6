"""`jit`: compiles several functions of values into one program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

import jax
import numpy as np

from .._core.building import is_node, user_line
from .._core.errors import ArgumentError
from .._core.tracebacks import boundary
from .._core.words import in_values
from .._pipeline.conditionals import converted
from ._batch import Batch, Draw
from ._engine import BatchSizeRequest, DynamicDataNode, TraceState, current_trace
from ._functions import MAX_COMPILED, CompiledCache, Inputs, evaluate, hashable, size_of
from ._keys import RNG, TracedKey, TracedKeys, is_key, number_of_keys
from ._singles import JaxTensor
from ._threads import check_pool
from ._values import FILE, is_column, is_files_of_samples, value_of

F = TypeVar("F", bound=Callable[..., Any])


@overload
def jit(function: F, /, *, enable_conditionals: bool = False) -> F: ...


@overload
def jit(function: None = None, /, *, enable_conditionals: bool = False) -> Callable[[F], F]: ...


def jit(function: Any = None, /, *, enable_conditionals: bool = False) -> Any:
    """Compiles the functions of this module that a function calls into one program, fused like a pipeline.

    The function is traced once for each structure of its arguments. Inside, values are DataNodes, as in a pipeline
    definition, and functions of this module, arithmetic and subscripts work on them; ``len(x)`` is the number of
    samples of a batch, and a subscript a part of each sample, as that of `Batch.slice`. The results equal those of the
    same calls without `jit`: batches, and a `Tensor` of what is one value, such as a file, or a number drawn with one
    key.

    Args:
      function: a function of values and keys that returns a batch, or a pytree of batches. The result is called with
        batches, lists of arrays, lists and tuples of files' bytes, lists of these (the files of each sample), arrays
        ``[N, ...]``, columns of other libraries, single files, and keys; Python values are static. Keys can be passed to
        functions, and to `random.split` and `random.fold_in` of this module; arrays of keys have subscripts.
      enable_conditionals: whether `if`, `and`, `or` and `not` work on values, sample by sample, as in a pipeline.

    Returns:
      The function that runs the program; a decorator if `function` is None.

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
    # `sizes`: the batch size that functions inside ask for, where no argument has one, by the key of the call.
    cache, sizes = CompiledCache(), CompiledCache()
    name = f"jit of {getattr(function, '__name__', type(function).__name__)}"

    @boundary
    @functools.wraps(function)
    @in_values
    def compiled(*arguments: Any, **keywords: Any) -> Any:
        """Calls the function's program for these arguments; it is compiled once for each structure of them."""
        if (trace := current_trace()) is not None:
            leaves = jax.tree.leaves((arguments, keywords), is_leaf=is_node)
            with trace.inlined([x for x in leaves if isinstance(x, TracedKey)]):
                return function(*arguments, **keywords)
        check_pool()
        # The tuple of positional arguments is no batch of files, even if each argument is a file.
        leaves, tree = jax.tree.flatten((arguments, keywords), is_leaf=lambda x: x is not arguments and _is_leaf(x))
        batches: list[Batch] = []
        draws: list[Draw | None] = []
        keys: list[Any] = []
        counts: list[int | None] = []  # number of keys in each of `keys`
        kinds: list[Any] = []  # for each leaf "key", "value", or ("static", x)
        for x in leaves:
            if isinstance(x, RNG) or is_key(x):
                keys.append(x.key() if isinstance(x, RNG) else x)
                counts.append(number_of_keys(keys[-1]))
                kinds.append("key")
            elif _is_value(x):
                # `value_of` gives None for an array without axes, a static number of an operator. Here it is a value.
                value, is_single = value_of(x) or (Batch(np.asarray(x)[None], is_borrowed=True), True)
                batches.append(value)
                draws.append(getattr(x, "_draw", Draw.NONE) if is_single else None)
                kinds.append("value")
            else:
                kinds.append(("static", x))
        function_key = tree, hashable(kinds), *counts
        # An input with the draw None is a batch, and determines the number of samples.
        size = None if None in draws else sizes.get(function_key)
        has_size = None in draws or size is not None
        N = size_of(name, batches, draws, (), size)

        def trace_function(trace: TraceState, nodes: list[Any], input_keys: Any) -> Any:
            """Calls the user's function with a node in place of each value, and a traced key in place of each key."""
            trace.N = N if has_size else None
            node_iterator, key_iterator = iter(nodes), iter(input_keys)
            filled_leaves = [
                next(node_iterator) if k == "value" else next(key_iterator) if k == "key" else k[1] for k in kinds
            ]
            arguments, keywords = jax.tree.unflatten(tree, filled_leaves)
            bound = functools.partial(function, *arguments, **keywords)
            result = converted(bound)() if enable_conditionals else bound()
            for path, x in jax.tree.leaves_with_path(result, is_leaf=is_node):
                if not isinstance(x, DynamicDataNode):
                    kind = "a key" if isinstance(x, (TracedKey, TracedKeys)) else type(x).__name__
                    place = f" in result{jax.tree_util.keystr(path)}" if path else ""
                    raise TypeError(f"{name}: its results must be batches, got {kind}{place} (called at {user_line()})")
            return result

        # Numbers and vectors may become arguments of operators, whose values the host reads.
        hosted = [b.is_dense and b.ndim <= 1 for b in batches]
        # Twice at most: if no argument has a batch size, tracing may raise the request of a function inside.
        while True:
            try:
                return evaluate(
                    cache, function_key, name, trace_function, Inputs(batches, hosted, draws, keys, counts, N)
                )
            except TypeError as e:
                raw = next((k for k in keys if k.dtype == np.uint32 and k.ndim == 2), None)
                if raw is not None and ("TracedKey" in str(e) or "got a key" in str(e)):
                    advice = f"an array uint32{list(raw.shape)} is taken for raw keys of jax.random: pass other numbers as int32"
                    e.args = (f"{e}; {advice}", *e.args[1:])
                raise
            except BatchSizeRequest as e:
                if has_size:
                    raise ArgumentError(
                        f"{e.name}: batch_size={e.size} does not fit a program of {N} samples ({name})"
                    ) from None
                sizes[function_key] = N = e.size
                has_size = True
                while len(sizes) > MAX_COMPILED:
                    sizes.popitem(last=False)

    return compiled


def _is_leaf(x: Any) -> bool:
    """Whether a pytree of arguments ends at `x`: it is a batch, a single value of JAX, or a list or tuple that stands for a
    batch.
    """
    if isinstance(x, tuple):  # a tuple of files is a batch, one of arrays is a structure
        return bool(x) and all(isinstance(e, FILE) for e in x)
    if isinstance(x, list):  # a list of arrays, or of lists of files, is a batch, one of keys is a structure
        if is_files_of_samples(x):
            return True
        return bool(x) and all(map(_is_sample, x)) and not all(isinstance(e, jax.Array) and is_key(e) for e in x)
    return isinstance(x, (Batch, JaxTensor))


def _is_sample(x: Any) -> bool:
    """Whether `x` is a file's bytes, an array, or an image of Pillow."""
    is_array = isinstance(x, (*FILE, np.ndarray, jax.Array))
    return is_array or hasattr(x, "__dlpack__") or hasattr(x, "__array_interface__")


def _is_value(x: Any) -> bool:
    """Whether a leaf of the arguments becomes an input of the compiled function. Others are static."""
    if is_column(x):
        # A column of numbers is static, as a list of numbers is.
        return not isinstance(x, Sequence) or (len(x) > 0 and _is_sample(x[0]))
    return _is_leaf(x) or _is_sample(x)
