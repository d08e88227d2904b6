"""The family of affine transforms: matrices ``[D, D+1]``, made on the host for each sample."""

from __future__ import annotations

import dataclasses

import numpy as np

from ..._core.arguments import Values
from ..._core.context import BuildContext, HostContext
from ..._core.errors import ArgumentError
from ..._core.operator import HostOperator, Operator
from ..._core.values import Spec, Value

LAYOUT = "**"  # as in DALI: axes without a meaning


class Transform(HostOperator):
    """A new transform, which may be combined with an input. Subclasses define its dimensions and its matrix."""

    reverse_order: bool  # whether the new transform is applied before the input's, not after it

    def dimensions(self, specs: tuple[Spec, ...]) -> int:
        """The number of dimensions D, by the specs of all inputs."""
        raise NotImplementedError(self.name)

    def matrix(self, a: Values, ndim: int) -> np.ndarray:
        """The matrix, ``f64[N, D, D]`` or ``f64[N, D, D+1]``. A matrix without the last column is applied about the
        argument `center`.
        """
        raise NotImplementedError(self.name)

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        return dataclasses.replace(self, args=self.args.measure(ctx, specs, *self.args.inputs))

    def input_dimensions(self, ctx: BuildContext, specs: tuple[Spec, ...]) -> int | None:
        """The number of dimensions of the input transform, if it is known."""
        if len(specs) == len(self.args.inputs):
            return None
        # The first extent of a matrix ``[D, D+1]``, from the spec, or from a source's first sample.
        return specs[0].extent(0) or (ctx.first_shape(0) or (None,))[0]

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        """A transform of `dimensions`. Raises ArgumentError if arguments or the input have another number of them."""
        ndim = self.dimensions(specs)
        if "axis" in self.args:
            self.args.check_width("axis", ndim, specs)
        if "center" in self.args:
            self.args.check_width("center", ndim, specs, one_for_all=True)
        # The input, if there is one: the other specs are of arguments.
        for t in specs[: len(specs) - len(self.args.inputs)]:
            check_transform(t)
            if t.extent(0) not in (None, ndim):
                raise ArgumentError(_dimensions_message(t.extent(0), ndim))
        return (Spec(np.dtype(np.float32), 2, (ndim, ndim + 1), LAYOUT),)

    def run(self, ctx: HostContext, *values: Value) -> tuple[np.ndarray]:
        """Makes the transforms, and combines them with those of the input, if there is one."""
        a = self.arguments(ctx, values)
        assert ctx.spec.shape is not None
        ndim = ctx.spec.shape[0]
        result = self.matrix(a, ndim)
        # A matrix without the column of offsets: it is applied about the centre.
        if result.shape[2] == ndim:
            center, linear = a.vector("center", ndim, one_for_all=True), result
            result = np.zeros((ctx.N, ndim, ndim + 1))
            result[:, :, :ndim] = linear
            if center is not None:  # The offset keeps the centre in its place.
                result[:, :, ndim] = center - np.einsum("nij,nj->ni", linear, center)
        # The input, if there is one: the other values are arguments.
        for t in values[: len(values) - len(self.args.inputs)]:
            transform = t.dense("the input", ctx.present).astype(np.float64)
            check_transform(Spec(t.spec.dtype, 2, transform.shape[1:]))
            if transform.shape[1] != ndim:
                raise ArgumentError(_dimensions_message(transform.shape[1], ndim))
            result = then(result, transform) if self.reverse_order else then(transform, result)
        return (result.astype(np.float32),)


def _dimensions_message(input_ndim: int | None, ndim: int) -> str:
    """The error message for an input with another number of dimensions than the arguments."""
    return f"the input is a {input_ndim}-D transform, the arguments describe a {ndim}-D one"


def check_transform(t: Spec) -> None:
    """Raises ArgumentError unless values of this spec can be transforms ``[D, D+1]``."""
    if t.dtype != np.float32 or t.ndim != 2 or (t.shape is not None and t.shape[1] != t.shape[0] + 1):
        shape = "x".join(map(str, t.shape)) if t.shape is not None else f"{t.ndim}-D"
        raise ArgumentError(f"a transform is float32 of shape [D, D+1], got {t.dtype} of shape {shape}")


def then(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The product of transforms ``[N, D, D+1]``, applied one after the other."""
    ndim = first.shape[1]
    out = np.einsum("nij,njk->nik", second[:, :, :ndim], first)
    out[:, :, ndim] += second[:, :, ndim]
    return out


def known_width(width: int | None, name: str) -> int:
    """The number of elements of an argument, which must be known when the pipeline is built."""
    if width is None:
        raise ArgumentError(f"argument {name} must have the same number of elements in all samples")
    return width
