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


def bind_in_program(name: str, on_platform: OnPlatform, arrays: Sequence[Any], keys: Sequence[Any], line: str) -> Any:
    """Makes a function of values part of the program that JAX traces. Returns its outputs: batches and single values.

    Args:
      name: for messages.
      on_platform: returns the function as it runs in programs of a platform, e.g. "cpu".
      arrays: the inputs, ``[N, ...]`` each.
      keys: of random numbers.
      line: the user's line, which errors of the program name.

    Raises:
      ArgumentError: the function can't be part of a program. JAX also raises it, when it lowers the program for a
        platform that lacks a kernel.
    """
    dense = on_platform("cpu")
    if isinstance(dense, NotDense):
        raise _refused(name, dense)
    words = dense.words(keys)
    # The status of native steps is not needed, as `line` makes failed samples errors of the program.
    if not dense.native:
        results, _ = dense(arrays, words, line)
        return dense.batches(results)

    def outputs(*leaves: Any) -> list[Any]:
        results, _ = dense(leaves[: len(arrays)], leaves[len(arrays) :], line)
        return results

    def bind(*leaves: Any) -> list[Any]:
        return _primitive().bind(
            *leaves, jaxpr=jax.make_jaxpr(outputs)(*leaves), name=name, on=on_platform, arrays=len(arrays), line=line
        )

    with own_settings():  # otherwise JAX narrows NumPy's arrays to 32 bits
        reason = f"{', '.join(dense.native)}: native operators have no derivative"
        return dense.batches(without_derivative(bind, reason)(*arrays, *words))


# Note [Platforms of programs]
# The platform of a program is known only when JAX lowers it: it follows from the arguments' devices, or is an argument
# of `jax.export` and `lower`. Native kernels depend on it: a GPU lacks some of them, so that other steps are fused, and
# only a program on the CPU can raise an error. So a function with native kernels is one primitive, with a lowering rule
# for each platform. The shapes and types of its results are the same on all platforms.
@functools.cache
def _primitive() -> Any:
    """The primitive for functions with native kernels. It is lowered differently for each platform, see
    Note [Platforms of programs].
    """
    from jax.extend.core import Primitive  # imported late, as it loads Pallas, which takes 50 ms

    primitive = Primitive("jaxdali_function")
    primitive.multiple_results = True
    primitive.def_abstract_eval(lambda *_, jaxpr, **__: jaxpr.out_avals)
    primitive.def_impl(_run)
    batching.primitive_batchers[primitive] = _raise_vmap_error
    # The rule for all platforms that are not named below.
    mlir.register_lowering(primitive, functools.partial(_lowering, "this platform"))
    for platform in ("cpu", "cuda", "rocm", "tpu"):
        mlir.register_lowering(primitive, functools.partial(_lowering, platform), platform=platform)
    return primitive


def _run(*leaves: Any, **params: Any) -> Any:
    """Runs the primitive by itself, e.g. when a jaxpr is evaluated."""
    # The primitive has no implementation but its compiled program, also for a user who has disabled jit.
    with jax.disable_jit(False):
        return _jitted(tuple(params.items()))(*leaves)


@functools.lru_cache(maxsize=64)
def _jitted(params: tuple[tuple[str, Any], ...]) -> Any:
    return jax.jit(functools.partial(_primitive().bind, **dict(params)))


def _raise_vmap_error(*_: Any, name: str, **__: Any) -> Any:
    raise vmap_error(name)


def vmap_error(name: str) -> ArgumentError:
    """The error for a function inside of `jax.vmap`, which would add an axis."""
    return ArgumentError(
        f"{name}: functions work on batches, so jax.vmap can't add an axis: call it with the whole batch, [N, ...]. "
        "(jax.lax.map uses jax.vmap if it gets batch_size=.)"
    )


def _lowering(
    platform: str, ctx: Any, *operands: Any, jaxpr: Any, name: str, on: OnPlatform, arrays: int, line: str
) -> Any:
    """Lowers the primitive for a platform.

    The CPU uses the jaxpr that was traced; others trace a function of their own.

    Args:
      ctx, operands: of JAX. The operands are the inputs, then the data of the keys.
      jaxpr: the function as it was traced for the CPU.
      name: of the function, for messages.
      on: returns the function as it runs in programs of a platform.
      arrays: the number of inputs.
      line: the user's line, for errors.
    """
    from jax.extend.core import jaxpr_as_fun

    if platform == "cpu":
        return mlir.lower_fun(jaxpr_as_fun(jaxpr), multiple_results=True)(ctx, *operands)
    dense = on(platform)
    if isinstance(dense, NotDense):
        raise _refused(f"{name} (called at {line})", dense)
    _ffi.load_kernels(local_devices(platform))  # the program calls them by name
    # A program for one device needs no rule for splitting native calls.
    on_one_device = getattr(ctx.module_context.axis_context, "num_devices", None) == 1

    def outputs(*leaves: Any) -> list[Any]:
        results, _ = dense(leaves[:arrays], leaves[arrays:], line, on_one_device)
        return results

    return mlir.lower_fun(outputs, multiple_results=True)(ctx, *operands)


def _refused(name: str, why: NotDense) -> ArgumentError:
    return ArgumentError(f"{name}: it can't be part of a program that JAX traces: {why}")
