"""Random numbers, one or a tensor of them per sample.

They are drawn on the host by Philox4x32-10 (Salmon et al., 2011). They depend on the seed, the operator's number among
the random operators of the pipeline, and the sample's epoch and position in the shuffled data set. Batch size, number
of shards and threads do not change them. The same seed gives other numbers in DALI.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ..._core.arguments import Arguments
from ..._core.building import add, is_node
from ..._core.context import BuildContext, HostContext
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator, Operator
from ..._core.ragged import Packed, plan_offsets
from ..._core.values import Spec, Value
from .._families.drawing import draw

NUMBERS = (
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
)


class Random(HostOperator):
    """The base of all distributions: the shape of a sample's numbers, and the layout of the output.

    The inputs are ``shape_like`` (if `like`), then the distribution's own inputs, then the arguments.
    """

    random: ClassVar[bool] = True

    like: bool  # whether input 0 tells the shape
    seed: int

    def run_reads(self, i: int) -> bool:
        return not (self.like and i == 0)

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        return dataclasses.replace(self, args=self.args.measure(ctx, specs, "shape"))

    def _static_shape(self, specs: Sequence[Spec]) -> tuple[int, tuple[int, ...] | None]:
        """The rank of a sample, and its shape if all samples have the same one."""
        if self.like:
            return specs[0].ndim, specs[0].shape
        if "shape" in self.args.inputs:
            spec = specs[self._shape_input(specs)]
            length = self.args.width("shape", specs)
            if spec.dtype.kind not in "iu" or spec.ndim > 1 or length is None:
                actual = f"{spec.ndim}-D {spec.dtype}" + ("" if length is not None else " of a number that may vary")
                raise ArgumentError(
                    f"shape must be an integer or a 1-D list of a fixed number of integers, got {actual}"
                )
            return length, None
        shape = self.args.get("shape") if "shape" in self.args else ()
        shape = shape if isinstance(shape, tuple) else (shape,)
        return len(shape), shape

    def _shape_input(self, inputs: Sequence[Any]) -> int:
        """The index of the input that is the argument `shape`."""
        return len(inputs) - len(self.args.inputs) + self.args.inputs.index("shape")

    def _shapes(self, ctx: HostContext, values: Sequence[Value]) -> np.ndarray:
        """The shapes of this batch, ``i64[N, ndim]``."""
        if self.like:
            return values[0].shapes
        ndim, shape = self._static_shape([v.spec for v in values])
        if shape is None:
            shapes = self.arguments(ctx, values).vector("shape", ndim)
            assert shapes is not None
            return shapes
        return np.broadcast_to(np.array(shape, np.int64), (ctx.N, len(shape)))

    def _output(
        self, ctx: HostContext, flat: np.ndarray, starts: np.ndarray, shapes: np.ndarray, static: tuple[int, ...] | None
    ) -> tuple[Any]:
        """Makes the output from a flat array with one sample after another.

        Args:
          flat: the numbers of all samples.
          starts: the index of each sample's first number, ``i64[N]``.
          shapes: ``i64[N, ndim]``.
          static: the shape of all samples; None: the samples differ in shape.
        """
        if static is not None:
            return (flat.reshape(ctx.N, *static),)
        # The samples differ in shape: they are copied to their places in a packed batch, in the buffer of output 0.
        offsets, capacity = plan_offsets(shapes, ctx.S)
        packed = Packed(ctx.empty(capacity, flat.dtype, 0), offsets, shapes)
        ends = np.append(starts[1:], len(flat))
        for i, (a, b) in enumerate(zip(starts.tolist(), ends.tolist())):
            packed[i][...] = flat[a:b].reshape(shapes[i])
        return (packed,)


class Distribution(Random):
    """A distribution whose elements are independent."""

    dtype: np.dtype

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        ndim, shape = self._static_shape(specs)
        return (Spec(self.dtype, ndim, shape),)

    def run(self, ctx: HostContext, *values: Value):
        """Draws the numbers of all samples as one array, and transforms them to the distribution."""
        static, normal = ctx.spec.shape, self.name == "random.normal"
        if static is not None:
            sizes = math.prod(static)
            numbers, _ = draw(ctx, self.seed, sizes, normal=normal)
            return (self.transform(ctx, values, numbers, sizes).reshape(ctx.N, *static),)
        shapes = self._shapes(ctx, values)
        sizes = shapes.prod(axis=1, dtype=np.int64)
        flat, starts = draw(ctx, self.seed, sizes, normal=normal)
        return self._output(ctx, self.transform(ctx, values, flat, sizes), starts, shapes, None)

    def transform(
        self, ctx: HostContext, values: Sequence[Value], u: np.ndarray, sizes: np.ndarray | int
    ) -> np.ndarray:
        """Transforms uniform (or normal) numbers to numbers of this distribution, of the type `dtype`.

        `sizes`: the number of elements of each sample, or of all samples.
        """
        raise NotImplementedError

    def _per_element(self, per_sample: np.ndarray, sizes: np.ndarray | int) -> np.ndarray:
        """Repeats a row per sample, ``[N, ...]``, as a row per element; equal rows become one row, which broadcasts."""
        first = per_sample[:1]
        return first if (per_sample == first).all() else np.repeat(per_sample, sizes, axis=0)


def add_distribution(
    kind: type[Distribution], shape_like: Any, arguments: Mapping[str, Any], *, seed: int, dtype: Any, **node: Any
) -> DataNode:
    """Adds a distribution to the pipeline, with its `arguments` by name. `node`: arguments of `add`."""
    args, nodes = Arguments.of(arguments, is_node)
    op = kind(like=has_shape(args, shape_like), seed=seed, args=args, dtype=dtype)
    return add(op, *(() if shape_like is None else (shape_like,)), *nodes, **node)


def has_shape(args: Arguments, shape_like: Any) -> bool:
    """Whether the shape is that of `shape_like`. Raises ArgumentError if there is an argument `shape`, too."""
    if shape_like is not None and "shape" in args:
        raise ArgumentError("shape and shape_like can't be given together; pass one of them")
    return shape_like is not None
