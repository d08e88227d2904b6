"""A function of dense arrays within a program that JAX traces."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.interpreters import batching, mlir

from .._core import ffi as _ffi
from .._core.errors import ArgumentError
from .._core.jax_settings import own_settings
from .._program.sharding import local_devices
from ._dense import Dense, NotDense, without_derivative

OnPlatform = Callable[[str], Dense | NotDense]


def in_program(name: str, on: OnPlatform, arrays: Sequence[Any], keys: Sequence[Any], line: str) -> Any:
    """The outputs of a function as a part of a program, see `Dense.batches`.

    Args:
      name: for messages.
      on: the function as programs of a platform run it.
      arrays, line: see `Dense.__call__`; keys: see `Dense.words`.

    Raises:
      ArgumentError: it can't be part of a program. JAX raises it, too, when it lowers the program for a platform that
        lacks a kernel.
    """
    dense = on("cpu")
    if isinstance(dense, NotDense):
        raise _refused(name, dense)
    words = dense.words(keys)
    if not dense.native:
        return dense.batches(dense(arrays, words, line)[0])

    def outputs(*leaves: Any) -> list[Any]:
        return dense(leaves[: len(arrays)], leaves[len(arrays) :], line)[0]

    def bound(*leaves: Any) -> list[Any]:
        return _function().bind(
            *leaves, jaxpr=jax.make_jaxpr(outputs)(*leaves), name=name, on=on, arrays=len(arrays), line=line
        )

    with own_settings():  # or JAX narrows NumPy's arrays to 32 bits
        return dense.batches(without_derivative(bound, dense.native)(*arrays, *words))


# Note [Platforms of programs]
# JAX decides last for which platform it lowers a program: by its arguments' devices, or by what `jax.export` and
# `lower` are told. Native kernels differ: a GPU lacks some, so that other steps are fused, and only a program on the
# CPU can raise an error. So a function with native kernels is one primitive, which is lowered by the rule of the
# platform. What a program sees of it, the shapes and types of the results, is the same everywhere.
@functools.cache
def _function() -> Any:
    from jax.extend.core import Primitive  # not before one is needed: it comes with Pallas, 50 ms

    function = Primitive("jaxdali_function")
    function.multiple_results = True
    function.def_abstract_eval(lambda *_, jaxpr, **__: jaxpr.out_avals)
    function.def_impl(_run)
    batching.primitive_batchers[function] = _mapped
    mlir.register_lowering(function, functools.partial(_lowering, "this platform"))
    for platform in ("cpu", "cuda", "rocm", "tpu"):
        mlir.register_lowering(function, functools.partial(_lowering, platform), platform=platform)
    return function


def _run(*leaves: Any, **params: Any) -> Any:
    """The function alone, e.g. a part of a jaxpr that is evaluated."""
    with jax.disable_jit(False):
        return _jitted(tuple(params.items()))(*leaves)


@functools.lru_cache(maxsize=64)
def _jitted(params: tuple[tuple[str, Any], ...]) -> Any:
    return jax.jit(functools.partial(_function().bind, **dict(params)))


def _mapped(*_: Any, name: str, **__: Any) -> Any:
    raise mapped(name)


def mapped(name: str) -> ArgumentError:
    """The error where `jax.vmap` would add an axis."""
    return ArgumentError(
        f"{name}: functions work on batches, so jax.vmap can't add an axis: call it with the whole batch, [N, ...]"
    )


def _lowering(
    platform: str, ctx: Any, *operands: Any, jaxpr: Any, name: str, on: OnPlatform, arrays: int, line: str
) -> Any:
    from jax.extend.core import jaxpr_as_fun

    if platform == "cpu":
        return mlir.lower_fun(jaxpr_as_fun(jaxpr), multiple_results=True)(ctx, *operands)
    dense = on(platform)
    if isinstance(dense, NotDense):
        raise _refused(f"{name} (called at {line})", dense)
    _ffi.load_kernels(local_devices(platform))
    on_one_device = getattr(ctx.module_context.axis_context, "num_devices", None) == 1

    def outputs(*leaves: Any) -> list[Any]:
        return dense(leaves[:arrays], leaves[arrays:], line, on_one_device)[0]

    return mlir.lower_fun(outputs, multiple_results=True)(ctx, *operands)


def _refused(name: str, why: NotDense) -> ArgumentError:
    return ArgumentError(f"{name}: it can't be part of a program that JAX traces: {why}")
