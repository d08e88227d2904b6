"""Fingerprints of traced computations, by which traces are compared and programs are shared."""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import functools
import hashlib
import types
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .reachability import attributes, codes_in, is_user_module, package_of
from .snapshot import NotFaithful

SHORT = 64  # bytes of an array up to which a fingerprint has the array itself, and not a digest of it
# Primitives whose equations also have rules: of derivatives, of `jax.vmap`, and for results that are not needed. JAX makes
# functions for them in each trace. No rule changes a result.
_HAVE_RULES = ("custom_jvp_call", "custom_vjp_call", "custom_vmap_call", "custom_dce_call", "linear_call")


# Note [Fingerprints]
# Computations with equal fingerprints share a program. So a fingerprint has everything that decides the results: the
# equations, their parameters, and the constants of all inner jaxprs. (The text of a jaxpr lacks constants and addresses.)
# What can't be compared counts as different, which costs a compilation.
#
# But the traces of one function must be equal, or it would run eagerly. Each of them makes new Python functions: JAX
# makes some, and users write `jax.pure_callback(lambda x: ...)`. So a function is its code, its globals, and what it has
# captured. It is called later, by the program: what a user's function has captured may have changed by then, and is
# compared by identity, unless it is constant. Two callbacks that count into two lists are different. Parameters, and
# what functions of JAX have captured, do not change. They are compared by value.
class Fingerprint:
    """Identifies a computation, see Note [Fingerprints]. It keeps the objects alive that are compared by identity."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, parts: Hashable):
        self._parts, self._hash = parts, hash(parts)

    @staticmethod
    def of(jaxpr: Any) -> Fingerprint:
        """Makes the fingerprint of a closed jaxpr, under the mesh that it was traced under.

        Raises NotFaithful if a constant has no value: a tracer of another trace.
        """
        return Fingerprint((jax.sharding.get_abstract_mesh(), _Parts().part(jaxpr)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Fingerprint) and self._hash == other._hash and self._parts == other._parts
        )


class _Identity:
    """An object that is compared by identity."""

    __slots__ = ("_x",)

    def __init__(self, x: Any):
        self._x = x

    def __hash__(self) -> int:
        return id(self._x)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other._x is self._x


class _Parts:
    """Makes the parts of one fingerprint. Equal parts stand for equal values of the same type."""

    def __init__(self):
        from jax.extend.core import ClosedJaxpr, Jaxpr, Literal  # imported late, as it loads Pallas, which takes 50 ms

        self._closed_jaxpr, self._jaxpr, self._literal = ClosedJaxpr, Jaxpr, Literal
        # Numbers, by id, of jaxprs, functions and objects of JAX whose parts are made, or being made if they contain
        # themselves; with these, so that no other object gets the id.
        self._numbers: dict[tuple[int, bool], tuple[int, Any]] = {}

    def part(self, x: Any, is_captured: bool = False, has_rules: bool = False) -> Hashable:
        """The part of a value.

        Args:
          x: a jaxpr, the parameter of an equation, or something in one of these.
          is_captured: whether a user's function has captured it.
          has_rules: whether functions and objects are rules, see `_HAVE_RULES`.
        """
        cls = type(x)
        if cls in (int, str, bytes, types.NoneType) or isinstance(x, type):
            return x
        if cls is bool:
            return bool, x
        part = functools.partial(self.part, is_captured=is_captured, has_rules=has_rules)
        if isinstance(x, tuple) or (isinstance(x, list) and not is_captured):
            return cls, tuple(map(part, x))
        if isinstance(x, frozenset) or (isinstance(x, set) and not is_captured):
            return cls, frozenset(map(part, x))
        if isinstance(x, Mapping) and not is_captured:
            return cls, tuple((part(k), part(v)) for k, v in x.items())
        if isinstance(x, (float, complex)) or hasattr(cls, "__array__"):
            return _Identity(x) if is_captured and _may_change(x) else (cls, self._part_of_array(x))
        is_jaxpr = isinstance(x, (self._closed_jaxpr, self._jaxpr))
        if has_rules and not is_jaxpr:
            return None
        if dataclasses.is_dataclass(x) and not is_captured:
            return cls, tuple(part(getattr(x, f.name)) for f in dataclasses.fields(x) if f.compare)
        is_function = isinstance(x, (types.FunctionType, types.MethodType, functools.partial))
        if is_jaxpr or is_function or (not is_captured and _has_comparable_attributes(x)):
            count = len(self._numbers)
            number, _ = self._numbers.setdefault((id(x), is_captured), (count, x))
            if number < count:
                return _Parts, number
            if is_jaxpr:
                return cls, self._part_of_jaxpr(x)
            return cls, self._part_of_function(x) if is_function else part(attributes(x))
        if cls.__hash__ not in (None, object.__hash__):
            with contextlib.suppress(TypeError):  # something in it has no hash
                hash(x)
                return cls, x
        return _Identity(x)

    def _part_of_jaxpr(self, jaxpr: Any) -> Hashable:
        """The part of a jaxpr, closed or not. Its variables are numbered."""
        constants: Sequence[Any] = ()
        if isinstance(jaxpr, self._closed_jaxpr):
            jaxpr, constants = jaxpr.jaxpr, jaxpr.consts
        numbers: dict[Any, int] = {}

        def bind(variables: Sequence[Any]) -> tuple[Any, ...]:
            """Numbers variables. Returns their types."""
            for v in variables:
                numbers[v] = len(numbers)
            return tuple(v.aval for v in variables)

        def read(atoms: Sequence[Any]) -> tuple[Any, ...]:
            """The numbers of variables, and the parts of literals."""
            return tuple(
                (a.aval, self._part_of_array(a.val)) if isinstance(a, self._literal) else numbers[a] for a in atoms
            )

        arguments, equations = (bind(jaxpr.constvars), bind(jaxpr.invars)), []
        for e in jaxpr.eqns:
            has_rules = e.primitive.name in _HAVE_RULES
            parameters = tuple((n, self.part(x, has_rules=has_rules)) for n, x in e.params.items())
            # `ctx`: settings of JAX under which the equation was traced, such as `jax_threefry_partitionable`.
            equations.append((e.primitive, e.ctx, read(e.invars), parameters, bind(e.outvars)))
        return tuple(map(self._part_of_array, constants)), arguments, tuple(equations), read(jaxpr.outvars)

    def _part_of_function(self, f: Any) -> Hashable:
        """The part of a Python function, a method, or a `functools.partial`."""
        if isinstance(f, types.MethodType):
            return self.part(f.__func__), self.part(f.__self__, is_captured=True)
        if isinstance(f, functools.partial):
            is_captured = not _is_of_library(f.func)
            return self.part(f.func), self.part(f.args, is_captured), self.part((*f.keywords.items(),), is_captured)
        is_captured = not _is_of_library(f)
        if is_captured and _changes_itself(f):
            return _Identity(f)
        captured = [f.__defaults__, (*(f.__kwdefaults__ or {}).items(),)]
        for cell in f.__closure__ or ():
            try:
                captured.append((cell.cell_contents,))
            except ValueError:  # the cell is still empty
                captured.append(())
        return f.__code__, _Identity(f.__globals__), *(self.part(x, is_captured) for x in captured)

    def _part_of_array(self, x: Any) -> Hashable:
        """The part of a number or an array: its type, shape and bytes, and its sharding over several devices."""
        is_key = isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        try:
            array = np.asarray(jax.random.key_data(x) if is_key else x)
        except Exception as e:  # it is a tracer that leaked from the first trace
            raise NotFaithful("it keeps values of one call for the next") from e
        if array.dtype.hasobject:
            return _Identity(x)
        content = array.tobytes()
        if len(content) > SHORT:
            content = hashlib.sha256(content).digest()
        is_sharded = isinstance(x, jax.Array) and len(x.sharding.device_set) > 1
        return x.dtype if is_key else array.dtype, array.shape, content, x.sharding if is_sharded else None


def _has_comparable_attributes(x: Any) -> bool:
    """Whether `x` is an object of JAX with attributes, and with an equality that takes each jaxpr in it for another one:
    that of `object`, or that of a `HiPrim`, which compares its `params`.
    """
    is_of_jax = any(package_of(c.__module__) == "jax" for c in type(x).__mro__)
    return is_of_jax and any(type(x).__hash__ is object.__hash__ or n == "params" for n in attributes(x))


def _may_change(x: Any) -> bool:
    """Whether the elements of a number or an array can be changed. Arrays of unknown libraries can."""
    if isinstance(x, np.ndarray):
        return x.flags.writeable
    return not isinstance(x, (float, complex, np.generic, jax.Array))


def _is_of_library(f: Any) -> bool:
    """Whether `f` is a Python function of JAX or of another library without state."""
    return isinstance(f, types.FunctionType) and not is_user_module(f.__globals__.get("__name__", ""))


def _changes_itself(f: types.FunctionType) -> bool:
    """Whether calls of a function may change its attributes, or its variables by ``nonlocal``."""
    instructions = (i for c in codes_in(f.__code__) for i in dis.get_instructions(c))
    assigned = {i.argval for i in instructions if i.opname in ("STORE_DEREF", "DELETE_DEREF")}
    return not assigned.isdisjoint(f.__code__.co_freevars) or not vars(f).keys() <= {"__wrapped__"}
