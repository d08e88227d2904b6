"""Whether a user's function can be traced into a program: tried, with the Python state it can reach put back
afterwards.

Tracing runs a function once and then never again, so what it reads from Python (`np.random`, a counter, a key it
splits) would be frozen silently. A function is therefore traced twice; only one that gives the same computation both
times is traced into a program. One that names what can't be put back afterwards (a file, memory shared with another
process) is not tried at all. See Note [Snapshot of Python state].
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, PartitionSpec, Sharding

from .reachability import MAX_OBJECTS, children, out_of_reach, reach_of, walk
from .snapshot import NotFaithful as NotFaithful
from .snapshot import no_text, state_restored

MAX_TRACED = 256  # compiled functions; least recently used ones are dropped beyond this


@dataclasses.dataclass(frozen=True)
class Trace:
    """A function as a computation.

    Attributes:
      jaxpr: the computation.
      fingerprint: of its text and constants; equal for equal computations.
    """

    jaxpr: Any = dataclasses.field(compare=False)
    fingerprint: str


def function_of(jaxpr: Any) -> Callable[..., Any]:
    """A computation as a function."""
    from jax.extend.core import jaxpr_as_fun  # not before one is needed: it comes with Pallas, 50 ms

    return jaxpr_as_fun(jaxpr)


@functools.lru_cache(MAX_TRACED)
def compiled(trace: Trace) -> Callable[..., Any]:
    """The computation as a program. Equal computations share it, whichever function and pipeline they come from."""
    return jax.jit(function_of(trace.jaxpr))


def trace(
    function: Callable[..., Any], arguments: Sequence[jax.ShapeDtypeStruct], flatten: Callable[[Any], Any]
) -> Trace:
    """Traces a function, twice.

    Args:
      arguments: shapes and dtypes of what it is called with.
      flatten: checks what the function returns and gives it as a tuple of arrays.

    Raises:
      NotFaithful: tracing raises, the two traces differ, or the function, which is then not called, names what can't be
        put back.
    """
    reach = reach_of(function)
    if found := out_of_reach(reach):
        raise NotFaithful(f"it can reach {found}, whose state can't be put back after a trial")
    with state_restored(reach) as changed:
        first, second = _once(function, arguments, flatten), _once(function, arguments, flatten)
    if changed:
        raise NotFaithful(f"it changes Python state: {', '.join(sorted(set(changed)))}")
    if first.fingerprint != second.fingerprint:
        raise NotFaithful("two traces of it differ: it depends on something outside of it that changes")
    return first


def trace_again(
    function: Callable[..., Any], arguments: Sequence[jax.ShapeDtypeStruct], flatten: Callable[[Any], Any]
) -> Trace:
    """Traces a function once, for comparing it with another that was traced already. Raises NotFaithful."""
    with state_restored(reach_of(function)):
        return _once(function, arguments, flatten)


_OF_MESH = "P PartitionSpec auto_axes explicit_axes get_abstract_mesh get_mesh reshard shard_map with_sharding_constraint".split()


@dataclasses.dataclass(frozen=True)
class MeshUse:
    """Why a function of one shard may need the mesh that its user has set, see Note [Functions that need a mesh].

    Attributes:
      asked: whether its code names a function or a `PartitionSpec` that is for the mesh.
      arrays: whether it names arrays that lie on several devices; explicit: on Explicit axes, which are a part of their
        type.
    """

    asked: bool = False
    arrays: bool = False
    explicit: bool = False

    @staticmethod
    def of(function: Callable[..., Any]) -> MeshUse:
        reach = reach_of(function)
        # Parameters of a model are in attributes that its library names, and not the function.
        inside = list(itertools.islice(walk(list(reach.found), children), MAX_OBJECTS))
        arrays = [x for x in inside if isinstance(x, jax.Array) and not isinstance(x, Tracer)]
        return MeshUse(
            asked=not reach.names.isdisjoint(_OF_MESH)
            or any(isinstance(x, (Mesh, PartitionSpec, Sharding)) for x in inside),
            arrays=any(len(x.sharding.device_set) > 1 for x in arrays),
            explicit=any(jax.typeof(x).sharding.mesh.explicit_axes for x in arrays),
        )


def _once(function, arguments, flatten) -> Trace:
    def fresh(*tracers):  # JAX caches traces by function
        with no_text({type(t) for t in tracers}):
            return flatten(function(*tracers))

    try:
        jaxpr = jax.make_jaxpr(fresh)(*arguments)
    except NotFaithful:
        raise
    except Exception as e:
        raise NotFaithful(f"tracing it raises {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}") from e
    # A computation is one of the mesh that it was traced under, which its text does not say.
    digest = hashlib.sha256(f"{jax.sharding.get_abstract_mesh()}{jaxpr.jaxpr}".encode())
    for c in jaxpr.consts:
        try:
            a = np.asarray(jax.random.key_data(c) if _is_key(c) else c)
        except Exception as e:  # a tracer that leaked from the first trace
            raise NotFaithful("it keeps values of one call for the next") from e
        several = isinstance(c, jax.Array) and len(c.sharding.device_set) > 1
        digest.update(f"{a.dtype}{a.shape}{c.sharding if several else ''}".encode() + a.tobytes())
    return Trace(jaxpr, digest.hexdigest())


def _is_key(x: Any) -> bool:
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def describe(function: Any) -> str:
    """A function's name and place, for messages."""
    inner = inspect.unwrap(function) if callable(function) else function
    code = getattr(inner, "__code__", None)
    return getattr(inner, "__name__", repr(function)) + (f" ({code.co_filename}:{code.co_firstlineno})" if code else "")
