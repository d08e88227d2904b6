"""One-hot encoding."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Unpack

import jax.numpy as jnp
import numpy as np

from ... import types
from ..._core.context import BuildContext, HostContext, LowerContext
from ..._core.declaration import DType, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator, Operator, ProgramOperator, Setup
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.ragged import ALIGNMENT, Ragged
from ..._core.values import Spec, Value
from ..._cpu import Status
from ...types import is_float
from .._families import samples_of_blocks, spec_of
from .._families.conversion import convert, cut
from .._families.ragged import quotient


def _as_index(xp: Any, x: Any, dtype: np.dtype) -> Any:
    """Numbers as indices of an integer type. As in DALI, fractions are dropped."""
    return convert(xp, xp.trunc(x) if is_float(x.dtype) else x, dtype)


class OneHot(HostOperator, ProgramOperator):
    """Adds an axis along which all elements but one have the off value."""

    name = "one_hot"
    num_classes: int
    on_value: float  # of the element with the number of the class
    off_value: float  # of all other elements
    axis: int | None  # None: the last one, and one element is a scalar
    axis_name: str | None  # the letter of the new axis in the layout; None: the result has no layout
    dtype: np.dtype

    def _new_axis(self, x: Spec) -> int:
        """The index of the new axis in the output."""
        axis = -1 if self.axis is None else self.axis
        if not -1 <= axis <= x.ndim:
            raise ArgumentError(f"axis={axis} must be -1 or one of 0 ... {x.ndim}")
        return x.ndim if axis < 0 else axis

    def _is_scalar(self, x: Spec) -> bool:
        """Whether each sample is one number, so that the result is a vector."""
        # As in DALI, one element is a scalar without an axis.
        return self.axis is None and all(x.extent(d) == 1 for d in range(x.ndim))

    def bind(self, ctx: BuildContext, x: Spec) -> Operator:
        """This operator, or one for scalars, if the first sample of a source of varying shapes has one element."""
        if self.axis is None and x.ndim and x.shape is None and ctx.first_shape(0) == (1,) * x.ndim:
            return self.as_kind(_ScalarOneHot)
        return self

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        """A vector for scalars. Otherwise the input with a new axis, in a layout only if that axis has a name."""
        if not types.is_number(x.dtype) or self.dtype == np.bool_:
            raise ArgumentError(f"converts numbers to numbers, got {x.dtype} to {self.dtype}")
        if self.axis_name is not None and len(self.axis_name) != 1:
            raise ArgumentError(f"axis_name must be one letter, got {self.axis_name!r}")
        if self._is_scalar(x):
            return (Spec(self.dtype, 1, (self.num_classes,), self.axis_name or ""),)
        place = self._new_axis(x)
        if self.axis_name and x.ndim and not x.layout:
            raise ArgumentError(
                f"axis_name={self.axis_name!r} needs an input with a layout, of which it becomes a letter; got {x.ndim}-D data"
            )
        extents = [x.extent(d) for d in range(x.ndim)]
        extents.insert(place, self.num_classes)
        layout = x.layout[:place] + self.axis_name + x.layout[place:] if self.axis_name else ""
        return (spec_of(self.dtype, extents, layout),)

    @property
    def _values(self) -> tuple[np.ndarray, np.ndarray]:
        """The on value and the off value, in the type of the result."""
        on, off = cut(np.array([self.on_value, self.off_value], np.float32), self.dtype)
        return on, off

    def run(self, ctx: HostContext, x: Value) -> tuple[Any, ...]:
        """Compares the indices of each sample with the numbers of all classes."""
        place = self._new_axis(x.spec)
        classes = np.arange(self.num_classes)
        on, off = self._values

        def encoded(numbers: np.ndarray, place: int) -> np.ndarray:
            indices = np.expand_dims(_as_index(np, numbers, np.dtype(np.int64)), place)
            return np.where(indices == classes.reshape(-1, *(1,) * (indices.ndim - place - 1)), on, off)

        samples = x.indices(ctx.present)
        # One number for each sample: together, because a call takes longer than to encode a number. A sample that is
        # not a scalar has failed already, and only needs some number.
        if self._is_scalar(x.spec):
            numbers = x.stacked()
            if numbers is None or numbers.size != ctx.N:
                numbers = np.stack([np.resize(x.sample(i), ()) for i in range(ctx.N)])
            return (encoded(numbers.reshape(ctx.N)[samples], 1),)
        encoded_samples = [encoded(x.sample(i), place) for i in samples]
        return (np.stack(encoded_samples) if ctx.spec.shape is not None else encoded_samples,)

    def setup(self, ctx: HostContext, x: Value) -> Setup:
        if ctx.spec.shape is not None:
            return Setup((None,))
        return Setup((np.insert(x.shapes, self._new_axis(x.spec), self.num_classes, axis=1),))

    def lower(self, ctx: LowerContext, x: Any) -> tuple[Any]:
        """Compares indices with classes, along the new axis of a dense batch or for each element of a ragged one."""
        on, off = self._values
        scalar = self._is_scalar(ctx.inputs[0])
        # Ragged samples of one element each become a dense vector.
        if isinstance(x, Ragged) and scalar:
            x = jnp.take(x.data, x.offsets * ALIGNMENT)
        if not isinstance(x, Ragged):
            # Axis 0 of `x` is that of the samples: the new axis is `place + 1`.
            place = 0 if scalar else self._new_axis(ctx.inputs[0])
            indices = jnp.expand_dims(_as_index(jnp, x.reshape(ctx.B) if scalar else x, np.dtype(np.int32)), place + 1)
            classes = jnp.arange(self.num_classes, dtype=np.int32).reshape(-1, *(1,) * (indices.ndim - place - 2))
            return (jnp.where(indices == classes, on, off),)
        out = ctx.out[0]
        assert out is not None
        # For each block of ALIGNMENT elements of the result its sample, and for each element its index there, and the
        # element of the input that it belongs to. The result is ``[outer, classes, inner]``, the input ``[outer, inner]``.
        sample = samples_of_blocks(out.offsets, out.capacity)
        first = (jnp.arange(len(sample), dtype=jnp.int32) - out.offsets[sample]) * ALIGNMENT
        local = first[:, None] + jnp.arange(ALIGNMENT, dtype=jnp.int32)
        inner = jnp.maximum(jnp.prod(x.shapes[:, self._new_axis(ctx.inputs[0]) :], axis=1, dtype=np.int32), 1)
        inner = inner[sample][:, None]
        outer = quotient(local, inner * self.num_classes)
        place = local - outer * (inner * self.num_classes)  # in ``[classes, inner]``
        class_index = quotient(place, inner)
        source = outer * inner + place - class_index * inner
        element = jnp.take(x.data, (x.offsets[sample] * ALIGNMENT)[:, None] + source, mode="clip")
        hot = _as_index(jnp, element, np.dtype(np.int32)) == class_index
        return (Ragged(jnp.where(hot, on, off).reshape(-1), out.offsets, out.shapes),)


class _ScalarOneHot(OneHot):
    """One-hot encoding for a source of tensors whose first sample has one element."""

    def _is_scalar(self, x: Spec) -> bool:
        return True

    def run(self, ctx: HostContext, x: Value) -> tuple[Any, ...]:
        self._check(ctx, x)
        return super().run(ctx, x)

    def setup(self, ctx: HostContext, x: Value) -> Setup:
        self._check(ctx, x)
        return super().setup(ctx, x)

    def _check(self, ctx: HostContext, x: Value) -> None:
        elements = x.shapes.prod(axis=1)
        for i in np.flatnonzero((elements != 1) & ctx.present):
            reason = f"{elements[i]} elements, but the first sample had one, which counts as a scalar; axis=-1 takes any number"
            ctx.fail(int(i), Status.INPUT, reason)


@operator_function(OneHot)
def one_hot(
    input: Input,
    /,
    *,
    num_classes: Annotated[int, Range(1)],
    on_value: Annotated[float, Range(infinite=True)] = 1.0,
    off_value: Annotated[float, Range(infinite=True)] = 0.0,
    axis: int | None = None,
    axis_name: str | None = None,
    dtype: DType = types.FLOAT,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Encodes class indices as vectors in which all elements but one have the off value.

    Args:
      input: class indices, of any shape. Fractions are dropped. An index outside 0 ... num_classes-1 gives a vector of
        `off_value`.
      num_classes: the number of classes.
      on_value, off_value: the values for the class and for all others. For integer types the fraction is dropped, and
        values out of range wrap around, as in DALI.
      axis: position of the new axis in the result, from 0 to the input's number of dimensions; -1 is the last. Default:
        the last; samples with one element (as the first sample shows) then count as scalars.
      axis_name: letter of the new axis in the layout. The input must have a layout, unless it is a scalar. Default: the
        result has no layout.
      dtype: element type of the result.

    Returns:
      A tensor with one more dimension; for a scalar ``[num_classes]``.

    Raises:
      ArgumentError: the position does not exist, or a type is wrong.

    Differs from DALI: `num_classes` is required; in DALI the default is 0, which makes empty vectors. An index beyond
    32 bits is no class; in DALI it wraps around.

    Example:
      >>> labels = fn.one_hot(labels, num_classes=10)
    """
    ...
