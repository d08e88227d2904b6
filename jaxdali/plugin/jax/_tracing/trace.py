"""Trial traces: they find out whether a user's function can be traced into a program without changing its results.

Tracing runs a function once and then never again, so that everything it reads from Python (`np.random`, a counter, a
key that it splits) would be frozen silently. A function is therefore traced twice, and becomes part of a program only
if both traces give the same computation. Afterwards, the Python state that it can reach is restored. A function that
names state which can't be restored (a file, memory shared with another process) is not traced at all. See Note
[Snapshot of Python state].
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.core import Tracer
from jax.sharding import Mesh, PartitionSpec, Sharding

from .fingerprint import Fingerprint
from .reachability import MAX_OBJECTS, children, reach_of, unrestorable_state, walk
from .snapshot import NotFaithful as NotFaithful
from .snapshot import formatting_forbidden, state_restored

MAX_TRACED = 256  # compiled functions; least recently used ones are dropped beyond this


@dataclasses.dataclass(frozen=True)
class TracedComputation:
    """The computation that a function was traced into.

    Attributes:
      jaxpr: the computation, a closed jaxpr.
      fingerprint: equal only for computations with equal results, and for all traces of one function. See
        Note [Fingerprints].
    """

    jaxpr: Any = dataclasses.field(compare=False)
    fingerprint: Fingerprint


def to_function(jaxpr: Any) -> Callable[..., Any]:
    """Converts a computation into a function."""
    from jax.extend.core import jaxpr_as_fun  # imported late, as it loads Pallas, which takes 50 ms

    return jaxpr_as_fun(jaxpr)


@functools.lru_cache(MAX_TRACED)
def compiled(trace: TracedComputation) -> Callable[..., Any]:
    """The computation as a compiled program. Equal computations of any functions and pipelines share one."""
    return jax.jit(to_function(trace.jaxpr))


def trace(
    function: Callable[..., Any], arguments: Sequence[jax.ShapeDtypeStruct], flatten: Callable[[Any], Any]
) -> TracedComputation:
    """Traces a function twice, and restores the Python state.

    Args:
      arguments: shapes and dtypes of the function's arguments.
      flatten: checks the result of the function, and returns it as a tuple of arrays.

    Raises:
      NotFaithful: tracing raises, the two traces differ, the function changes Python state, or it names state that
        can't be restored; in this last case it is not called.
    """
    reach = reach_of(function)
    if state := unrestorable_state(reach):
        raise NotFaithful(f"it can reach {state}, whose state can't be put back after a trial")
    with state_restored(reach) as changed:
        first, second = _trace_once(function, arguments, flatten), _trace_once(function, arguments, flatten)
    if changed:
        raise NotFaithful(f"it changes Python state: {', '.join(sorted(set(changed)))}")
    if first.fingerprint != second.fingerprint:
        raise NotFaithful(
            "two traces of it differ: it depends on something outside of it that changes, or makes an object for a callback"
        )
    return first


def trace_once(
    function: Callable[..., Any], arguments: Sequence[jax.ShapeDtypeStruct], flatten: Callable[[Any], Any]
) -> TracedComputation:
    """Traces a function once, and restores the Python state. Raises NotFaithful if tracing raises."""
    with state_restored(reach_of(function)):
        return _trace_once(function, arguments, flatten)


_MESH_NAMES = "P PartitionSpec auto_axes explicit_axes get_abstract_mesh get_mesh reshard shard_map with_sharding_constraint".split()


@dataclasses.dataclass(frozen=True)
class MeshUse:
    """The reasons why a function of one shard may need the user's mesh, see Note [Functions that need a mesh].

    Attributes:
      is_requested: whether its code names a function, a sharding or a `PartitionSpec` that is for the mesh.
      has_sharded_arrays: whether it names arrays on several devices.
      has_explicit_axes: whether it names arrays on Explicit axes, which are a part of their types.
    """

    is_requested: bool = False
    has_sharded_arrays: bool = False
    has_explicit_axes: bool = False

    @staticmethod
    def of(function: Callable[..., Any]) -> MeshUse:
        """Finds the reasons among the names and objects that a function can reach."""
        reach = reach_of(function)
        # All attributes are searched, not only those that the function names: its library names a model's parameters.
        objects = list(itertools.islice(walk(list(reach.objects), children), MAX_OBJECTS))
        arrays = [x for x in objects if isinstance(x, jax.Array) and not isinstance(x, Tracer)]
        return MeshUse(
            is_requested=not reach.names.isdisjoint(_MESH_NAMES)
            or any(isinstance(x, (Mesh, PartitionSpec, Sharding)) for x in objects),
            has_sharded_arrays=any(len(x.sharding.device_set) > 1 for x in arrays),
            has_explicit_axes=any(jax.typeof(x).sharding.mesh.explicit_axes for x in arrays),
        )


def _trace_once(function, arguments, flatten) -> TracedComputation:
    """Traces a function. Raises NotFaithful if that fails, or if a tracer of another trace has become a constant.

    Args:
      arguments: shapes and dtypes of the function's arguments.
      flatten: checks the result of the function, and returns it as a tuple of arrays.
    """

    # A new function for each trace, as JAX caches traces by function.
    def call_function(*tracers):
        with formatting_forbidden({type(t) for t in tracers}):
            return flatten(function(*tracers))

    try:
        jaxpr = jax.make_jaxpr(call_function)(*arguments)
    except NotFaithful:
        raise
    except Exception as e:
        raise NotFaithful(f"tracing it raises {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}") from e
    return TracedComputation(jaxpr, Fingerprint.of(jaxpr))


def describe(function: Any) -> str:
    """A function's name and place, for messages."""
    unwrapped = inspect.unwrap(function) if callable(function) else function
    code = getattr(unwrapped, "__code__", None)
    return getattr(unwrapped, "__name__", repr(function)) + (
        f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    )
