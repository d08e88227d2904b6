"""Single values: their class while JAX traces, and the error for a drawn value that meets a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from .._core.building import user_line
from .._core.errors import ArgumentError
from .._core.expressions import Arithmetic
from .._core.tracebacks import boundaries
from ._batch import Batch, Draw, Tensor, is_deferred_by_jax, layout_of_part


@jax.tree_util.register_pytree_node_class
@boundaries
class JaxTensor(Arithmetic):
    """A single sample that is an array of JAX. In a program that JAX traces, functions return it instead of a `Tensor`.

    It is a pytree of its array. Functions of `jax.numpy` accept it. Its own arithmetic has DALI's type rules. Operators
    of a JAX array treat it as an array, except if it was drawn with one key and the array is a batch, ``[N, ...]``.

    Attributes:
      layout: a letter for each axis, e.g. "HWC"; "" if it is not known.
    """

    __slots__ = ("_data", "_draw", "layout")
    __hash__ = None  # pyright: ignore[reportAssignmentType]  a comparison is a value

    def __init__(self, data: Any, layout: str = "", draw: Draw = Draw.NONE):
        """For use in this package only."""
        self._data, self.layout, self._draw = data, layout, draw

    @property
    def dtype(self) -> np.dtype:
        """Type of the elements."""
        return np.dtype(self._data.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return tuple(self._data.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._data.ndim

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[JaxTensor]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> JaxTensor:
        return JaxTensor(self._data[key], layout_of_part(self.layout, self.ndim, key), self._draw)

    def __repr__(self) -> str:
        return f"JaxTensor({self._data})"

    def jax(self) -> Any:
        """Returns the `jax.Array`."""
        return self._data

    def __getattr__(self, name: str) -> Any:
        if name == "__jax_array__" and not (self._draw is Draw.ONE and is_deferred_by_jax(self.ndim)):
            return self.jax
        raise AttributeError(f"a JaxTensor has no attribute {name!r}", name=name, obj=self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._data, dtype) if copy else np.asarray(self._data, dtype)

    def __bool__(self) -> bool:
        return bool(self._data)

    def __int__(self) -> int:
        return int(self._data)

    def __float__(self) -> float:
        return float(self._data)

    def _with_draw(self, draw: Draw) -> JaxTensor:
        return JaxTensor(self._data, self.layout, draw)

    @staticmethod
    def _pointwise(function: str, *operands: Any) -> Any:
        return Batch._pointwise(function, *operands)

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        return (self._data,), (self.layout, self._draw)

    @classmethod
    def tree_unflatten(cls, aux_data: tuple[str, Draw], children: Any) -> JaxTensor:
        return cls(children[0], *aux_data)


def single(batch: Batch, draw: Draw) -> Tensor | JaxTensor:
    """The first sample of a batch, as a single value."""
    if isinstance(batch._data, Tracer):
        return JaxTensor(batch._data[0], batch.layout, draw)
    return Tensor.of(batch[0], batch.layout, draw)


def is_drawn(x: Any) -> bool:
    """Whether `x` is a single value that differs from call to call: drawn from random numbers, or traced by JAX."""
    return isinstance(x, JaxTensor) or (isinstance(x, Tensor) and x._draw is not Draw.NONE)


def ambiguous_draw(name: str, label: str, N: int | None) -> ArgumentError:
    """The error for one drawn value that is used for a batch of several samples, see Note [One key]."""
    return ArgumentError(
        f"{name}: {label} is one value, drawn with one key, for a batch of {N} samples: draw with batch_size=len(images), or a key for "
        f"each sample, for one each; or pass jd.random.broadcast(x) for the same for all (called at {user_line()})"
    )
