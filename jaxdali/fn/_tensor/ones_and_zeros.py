"""ones, zeros, ones_like, zeros_like: tensors of one value, with a given shape or the shape of another tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, Unpack

import numpy as np

from ... import types
from ..._core.declaration import DType
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, PerSample, operator_function
from .filled import Filled

F = TypeVar("F", bound=Callable[..., Any])


class Ones(Filled):
    """A tensor of ones, of a given shape."""

    name = "ones"
    value = 1
    dtype: np.dtype
    layout: str | None


class Zeros(Ones):
    name = "zeros"
    value = 0


class OnesLike(Filled):
    """A tensor of ones, with an input's shape."""

    name = "ones_like"
    value = 1
    like = True
    dtype: np.dtype | None


class ZerosLike(OnesLike):
    name = "zeros_like"
    value = 0


def _from_template(kind: type[Filled]) -> Callable[[F], F]:
    """Decorates a function whose signature and docstring two operators share, as the operator function of one of them.
    `{}` in the docstring stands for the operator's name.
    """

    def decorate(f: F) -> F:
        f.__name__ = f.__qualname__ = kind.name
        f.__doc__ = (f.__doc__ or "").replace("{}", kind.name.removesuffix("_like"))
        return operator_function(kind)(f)

    return decorate


def _of_shape(kind: type[Filled]):
    """Makes `ones` or `zeros`."""

    @_from_template(kind)
    def function(
        *,
        shape: PerSample[OneOrMore[int]] | None = None,
        dtype: DType = types.INT32,
        layout: str | None = None,
        device: Literal["cpu", "gpu"] | None = None,
        name: str | None = None,
        **hints: Unpack[Hints],
    ) -> DataNode:
        """Makes a tensor of {}.

        Args:
          shape: the extents. Default: a scalar. May be per sample.
          dtype: element type.
          layout: layout of the tensor.

        Returns:
          A tensor with that shape.

        Raises:
          ArgumentError: the layout does not fit the shape.

        Example:
          >>> fn.{}(shape=(8, 8), dtype=types.FLOAT)
        """
        ...

    return function


def _like(kind: type[Filled]):
    """Makes `ones_like` or `zeros_like`."""

    @_from_template(kind)
    def function(
        data_like: Input,
        /,
        *,
        dtype: DType | None = None,
        device: Literal["cpu", "gpu"] | None = None,
        name: str | None = None,
        **hints: Unpack[Hints],
    ) -> DataNode:
        """Makes a tensor of {} with the shape of another tensor.

        Args:
          data_like: any tensor.
          dtype: element type. Default: the type of `data_like`.

        Returns:
          A tensor with the input's shape and layout.

        Example:
          >>> background = fn.{}_like(images)
        """
        ...

    return function


ones, zeros = _of_shape(Ones), _of_shape(Zeros)
ones_like, zeros_like = _like(OnesLike), _like(ZerosLike)
