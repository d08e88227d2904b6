"""The public functions; `_distributions.py` says what they draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Unpack

import numpy as np

from ... import types
from ..._core.arguments import Arguments
from ..._core.building import add, is_node
from ..._core.declaration import DType, Len, OneOf, Range
from ..._core.errors import ArgumentError, InputTypeError
from ..._core.graph import DataNode
from ..._core.operator_function import Input, ListOf, OneOrMore, PerSample, SeededHints, operator_function
from .._tensor.constant import narrowed
from ._distributions import Beta, Choice, CoinFlip, Distribution, Key, Normal, Uniform, is_distribution

_NUMBERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16", "float32", "float64")


def _add(kind: type[Distribution], shape_like: Any, arguments: Mapping[str, Any], *, seed: int, dtype: Any, **node: Any) -> DataNode:
    args, nodes = Arguments.of(arguments, is_node)
    op = kind(like=_has_shape(args, shape_like), seed=seed, args=args, dtype=dtype)
    return add(op, *(() if shape_like is None else (shape_like,)), *nodes, **node)


def _has_shape(args: Arguments, shape_like: Any) -> bool:
    """Whether the shape is that of `shape_like`."""
    if shape_like is not None and "shape" in args:
        raise ArgumentError("shape and shape_like can't be given together; pass one of them")
    return shape_like is not None


@operator_function("random.uniform")
def uniform(
    shape_like: Input | None = None,
    /,
    *,
    range: Annotated[PerSample[ListOf[float]] | None, Len(2)] = None,
    values: PerSample[OneOrMore[float]] | None = None,
    dtype: Annotated[DType, OneOf(*_NUMBERS)] = types.FLOAT,
    shape: Annotated[PerSample[OneOrMore[int]] | None, Range(0)] = None,
    seed: int = -1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """Uniformly distributed numbers.

    Differs from DALI: of a range that reaches outside of an integer type, the numbers are clamped; DALI's bounds wrap around.

    Args:
      shape_like: a value whose samples' shapes the result takes.
      range: ``(low, high)``, by default (-1, 1): numbers of ``[low, high)``. May be per sample.
      values: numbers, one of which is taken with equal probability, instead of a range. May be per sample.
      dtype: of the result, by default `types.FLOAT`; for integers the bounds lose their fractions, and the numbers are
        rounded (and may so reach `high`) and clamped.
      shape: of a sample: an integer or a list, may be per sample. By default a sample is one number (no dimensions).
      seed: fixes the numbers, whatever the pipeline's seed and the operator's place; negative: not given.

    Raises:
      ValueError: an empty range or values, shape given twice. DALI ignores `range` when `values` are given; here both are an error.

    Example:
      >>> angle = fn.random.uniform(range=(-10.0, 10.0))
    """
    arguments = {"range": range, "values": values, "shape": shape}
    return _add(Uniform, shape_like, arguments, seed=seed, dtype=dtype, device=device, name=name)


@operator_function("random.coin_flip")
def coin_flip(
    shape_like: Input | None = None,
    /,
    *,
    probability: Annotated[PerSample[float], Range(0, 1)] = 0.5,
    dtype: Annotated[DType, OneOf("bool", *_NUMBERS)] = types.INT32,
    shape: Annotated[PerSample[OneOrMore[int]] | None, Range(0)] = None,
    seed: int = -1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """1 with some probability, else 0.

    Args:
      shape_like: a value whose samples' shapes the result takes.
      probability: of a 1, in [0, 1]. May be per sample.
      dtype: of the result, by default `types.INT32`; any numeric type (DALI: BOOL, UINT8, INT32).
      shape: of a sample: an integer or a list, may be per sample. By default a sample is one number (no dimensions).
      seed: fixes the numbers, whatever the pipeline's seed and the operator's place; negative: not given.

    Raises:
      ValueError: a probability outside [0, 1] (DALI clamps it), shape given twice.
    """
    return _add(CoinFlip, shape_like, {"probability": probability, "shape": shape}, seed=seed, dtype=dtype, device=device, name=name)


@operator_function("random.normal")
def normal(
    shape_like: Input | None = None,
    /,
    *,
    mean: PerSample[float] = 0.0,
    stddev: PerSample[float] = 1.0,
    dtype: Annotated[DType, OneOf(*_NUMBERS)] = types.FLOAT,
    shape: Annotated[PerSample[OneOrMore[int]] | None, Range(0)] = None,
    seed: int = -1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """Normally distributed numbers (Box-Muller, in double precision).

    Args:
      shape_like: a value whose samples' shapes the result takes.
      mean: of the distribution. May be per sample.
      stddev: its standard deviation; a negative one mirrors the numbers, as in DALI. May be per sample.
      dtype: of the result, by default `types.FLOAT`; for integers the numbers are rounded and clamped.
      shape: of a sample: an integer or a list, may be per sample. By default a sample is one number (no dimensions).
      seed: fixes the numbers, whatever the pipeline's seed and the operator's place; negative: not given.

    Raises:
      ValueError: shape given twice.
    """
    arguments = {"mean": mean, "stddev": stddev, "shape": shape}
    return _add(Normal, shape_like, arguments, seed=seed, dtype=dtype, device=device, name=name)


@operator_function("random.beta")
def beta(
    shape_like: Input | None = None,
    /,
    *,
    alpha: Annotated[PerSample[float], Range(0, above=True)] = 1.0,
    beta: Annotated[PerSample[float], Range(0, above=True)] = 1.0,
    dtype: Annotated[DType, OneOf("float32", "float64")] = types.FLOAT,
    shape: Annotated[PerSample[OneOrMore[int]] | None, Range(0)] = None,
    seed: int = -1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """Beta-distributed numbers, of ``[0, 1]``.

    Args:
      shape_like: a value whose samples' shapes the result takes.
      alpha, beta: parameters of the distribution, above 0. May be per sample.
      dtype: of the result: `types.FLOAT`, the default, or `types.FLOAT64`.
      shape: of a sample: an integer or a list, may be per sample. By default a sample is one number (no dimensions).
      seed: fixes the numbers, whatever the pipeline's seed and the operator's place; negative: not given.

    Raises:
      ValueError: a parameter that is not above 0, shape given twice.

    Example:
      >>> weight = fn.random.beta(alpha=0.2, beta=0.2)
    """
    arguments = {"alpha": alpha, "beta": beta, "shape": shape}
    return _add(Beta, shape_like, arguments, seed=seed, dtype=dtype, device=device, name=name)


@operator_function("random.choice")
def choice(
    a: Input,
    shape_like: Input | None = None,
    /,
    *,
    p: Annotated[PerSample[OneOrMore[float]] | None, Range(0, 1)] = None,
    shape: Annotated[PerSample[OneOrMore[int]] | None, Range(0)] = None,
    seed: int = -1,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """Random elements of an array.

    Args:
      a: what to choose from: the elements (along the first axis) of a list, array or DataNode; an integer n stands for 0 .. n-1.
      shape_like: a value whose samples' shapes the result takes.
      p: probability of each element; their sum is 1. By default all are equally likely. May be per sample.
      shape: of a sample: an integer or a list, may be per sample. By default a sample is one element.
      seed: fixes the numbers, whatever the pipeline's seed and the operator's place; negative: not given.

    Returns:
      The elements, of the type of `a` (of an integer: int32).

    Raises:
      ValueError: nothing to choose from, or p is not a distribution over the elements of `a`.
    """
    count = dtype = None
    p = (p,) if isinstance(p, (int, float)) else p  # the probability of the only element
    if isinstance(p, tuple) and not is_distribution(np.array(p)):
        raise ArgumentError(f"argument p must be probabilities 0 ... 1 whose sum is 1, got {p}")
    if not is_node(a):
        elements = narrowed(a)
        if elements.ndim == 0:
            if elements.dtype.kind not in "iu":
                raise InputTypeError(f"`a` must be an integer, a list or a DataNode, got {elements.item()!r}")
            count, dtype = int(elements), elements.dtype
        available = len(elements) if count is None else count
        if available < 1:
            raise ArgumentError(f"there must be at least one element to choose from, got {available}")
        if isinstance(p, tuple) and len(p) != available:
            raise ArgumentError(f"argument p must have a probability for each of the {available} elements, got {len(p)}")
    args, nodes = Arguments.of({"p": p, "shape": shape}, is_node)
    op = Choice(like=_has_shape(args, shape_like), seed=seed, args=args, count=count, dtype=dtype)
    inputs = (() if shape_like is None else (shape_like,)) + (() if count is not None else (a,))
    return add(op, *inputs, *nodes, device=device, name=name)


@operator_function("random.key")
def key(
    *,
    seed: int = -1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """A JAX random key for each sample, for random functions of your own. Beyond DALI.

    A `jax_function` gets the keys of a batch as typed keys, ``key<fry>[batch]``, as `jax.random.split` gives them: with `jax.vmap`, each
    sample has its own. As other random numbers, the key of a sample depends on the pipeline's seed, the operator's number among the random
    ones, and the sample's epoch and position alone; not on batch size, number of shards, or device. It comes again after resuming.

    Everywhere else, as an output of the pipeline for instance, a key is its data: ``uint32[2]`` per sample, an ordinary array that can be
    sharded, stored and given to `jax.jit`. ``jax.random.wrap_key_data(batch["key"], impl="threefry2x32")`` makes keys of it there.

    Args:
      seed: fixes the keys, whatever the pipeline's seed and the operator's place; negative: not given.
      device: "gpu": the result is moved to the accelerator. The keys are the same.
      name: of the node.

    Returns:
      Data of keys of the generator threefry2x32, ``uint32[2]`` per sample.

    Example:
      >>> @jax_function
      ... def add_noise(images, keys):
      ...     return jax.vmap(lambda image, key: image + jax.random.normal(key, image.shape))(images, keys)
      >>> noisy = add_noise(images, fn.random.key())
    """
    return add(Key(seed=seed), device=device, name=name)
