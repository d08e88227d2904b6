"""Pointwise functions of one to three operands: arithmetic on DataNodes and `jaxdali.math`, with DALI's type rules.

Differs from NumPy: ``//`` rounds integers towards zero, and divides floats without rounding; ``%`` has the sign of the
dividend; Python's numbers count as int32, float32 and bool. Dividing an integer by zero gives 0. Unlike DALI, this
computes with float16 and bfloat16, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import types
from ..._core import ffi as _ffi
from ..._core.building import add
from ..._core.calls import records
from ..._core.context import BuildContext, HostContext, LowerContext
from ..._core.graph import DataNode
from ..._core.operator import NativeOperator, Operator, Setup
from ..._core.values import Spec, Value
from .._families.elementwise import Elementwise
from .._families.ragged import aligned
from .constant import constant_node, narrowed
from .pointwise import FUNCTIONS, Function


class Pointwise(Elementwise):
    """One of `FUNCTIONS`. Samples are broadcast against each other as in NumPy.

    Operands that are numbers are attributes, not inputs, so that XLA folds them into the computation.
    """

    name = "arithmetic"
    function: str  # a key of `FUNCTIONS`, such as "add"
    # By operand: the index of its input, or (dtype, bytes) of a number. Operators are compared, and bytes tell 1, 1.0
    # and True apart, and are equal for NaN.
    operands: tuple[int | tuple[np.dtype, bytes], ...]

    @functools.cached_property
    def _function(self) -> Function:
        return FUNCTIONS[self.function]

    @functools.cached_property
    def _places(self) -> list[tuple[int, Any]]:
        """By operand: (index of its input, None), or (-1, the number as a NumPy scalar)."""
        return [(x, None) if isinstance(x, int) else (-1, np.frombuffer(x[1], x[0])[0]) for x in self.operands]

    def _values(self, inputs: Sequence[Any]) -> list[Any]:
        """The operands: the inputs, and the numbers as NumPy scalars."""
        return [inputs[place] if number is None else number for place, number in self._places]

    def _specs(self, inputs: Sequence[Spec]) -> list[Spec]:
        """The specs of all operands. A number is a value without axes."""
        return [inputs[x] if isinstance(x, int) else Spec(x[0], 0, ()) for x in self.operands]

    def _show(self, operands: list[str]) -> str:
        """The expression with these names for its operands, for error messages: "a + b" or "sqrt(a)"."""
        symbol = self._function.symbol
        if not symbol:
            return f"{self.function}({', '.join(operands)})"
        return f"{symbol}{operands[0]}" if len(operands) == 1 else f" {symbol} ".join(operands)

    def element(self, xp: Any, *inputs: Any) -> Any:
        return self._function(xp, self._values(inputs))

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        """The type by DALI's rules, and the extents by NumPy's broadcasting; an extent that varies is None."""
        operands = self._specs(specs)
        try:
            dtype = self._function.result([s.dtype for s in operands])
        except TypeError as e:
            raise TypeError(f"{self._show([s.dtype.name for s in operands])}: {e}") from e
        ndim = max(s.ndim for s in operands)
        dims = tuple(self._extent([_extent(s, d, ndim) for s in operands], operands) for d in range(ndim))
        static = tuple(d for d in dims if d is not None)
        shape, dims = (static, None) if len(static) == ndim else (None, dims)
        return (Spec(dtype, ndim, shape, self._layout(operands, ndim), dims),)

    def _extent(self, extents: list[int | None], operands: list[Spec]) -> int | None:
        """The result's extent along an axis, by those of the operands; None: it varies. Raises ValueError if they
        differ.
        """
        distinct = {e for e in extents if e is not None and e != 1}
        if len(distinct) > 1:
            raise ValueError(f"the shapes do not broadcast: {self._show([_show_shape(s) for s in operands])}")
        if distinct:
            return distinct.pop()
        return None if None in extents else 1

    def _layout(self, operands: list[Spec], ndim: int) -> str:
        """The layout of an operand of the result's rank; "" if none has one. Raises ValueError if the layouts do not
        match.
        """
        layout = next((s.layout for s in operands if s.ndim == ndim and s.layout), "")
        for s in operands:
            if layout and s.layout and not layout.endswith(s.layout):
                raise ValueError(f"the layouts do not match: {self._show([s.layout or 'no layout' for s in operands])}")
        return layout

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        if ctx.stage == "host" or not any(self._expanded_inputs(specs)):
            return self
        return _Broadcast(function=self.function, operands=self.operands)

    def _expanded_inputs(self, specs: tuple[Spec, ...]) -> list[bool]:
        """Whether the native kernel must broadcast each input, because a value is ragged."""
        if all(s.shape is not None for s in specs):
            return [False] * len(specs)
        (out,) = self.infer(*specs)
        if out.shape is not None:
            return [s.shape is None for s in specs]  # XLA broadcasts dense inputs.
        # One number per sample needs no kernel either, see `Elementwise`.
        return [
            s.ndim > 0 and not all(_has_full_extent(specs, i, d, out.ndim) for d in range(out.ndim))
            for i, s in enumerate(specs)
        ]

    def is_identity(self, *specs: Spec) -> bool:
        return self.function == "plus"

    def compute(self, N: int, *specs: Spec) -> Callable[..., np.ndarray] | None:
        """A function of dense operands, see `HostOperator.compute`; None if shapes vary. Samples of lower rank get axes
        of extent 1 in front.
        """
        if any(s.shape is None for s in specs):
            return None
        (out,) = self.infer(*specs)
        operands = self._specs(specs)
        function = self._function.of([s.dtype for s in operands])
        has_equal_ranks = all(s.ndim == out.ndim for s in specs)

        def evaluate(*data: np.ndarray) -> np.ndarray:
            return function(*self._values(data if has_equal_ranks else [aligned(x, out.ndim) for x in data]))

        return evaluate

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        """The broadcast shape of each sample. Raises ValueError if the operands of a sample do not fit together."""
        (out,) = self.infer(*(v.spec for v in values))
        if all(v.spec.shape is not None for v in values):
            return Setup((None,))
        # As in NumPy, shapes are aligned at their last axes.
        shapes = np.ones((ctx.N, out.ndim), np.int64)
        for v in values:
            inner = shapes[:, out.ndim - v.spec.ndim :]
            is_wrong = ((inner != v.shapes) & (inner != 1) & (v.shapes != 1)).any(axis=1)
            if (is_wrong & ctx.present).any():
                i = int((is_wrong & ctx.present).argmax())
                raise ValueError(
                    f"sample {i}: the shapes do not broadcast: {self._show(_shown_shapes(self._values(values), i))}"
                )
            inner[...] = np.where(inner == 1, v.shapes, inner)
            shapes[is_wrong] = 0  # Only absent samples, which have no elements in one of the operands.
        return Setup((shapes if out.shape is None else None,))


class _Broadcast(Pointwise, NativeOperator):
    """A pointwise function in a program, with ragged values. A native kernel broadcasts some of the inputs first."""

    kernel = "expand"

    def setup_reads(self, i: int) -> bool:
        return False

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        """Broadcasts the inputs that need it by the kernel `expand`, then computes as `Elementwise`."""
        out = ctx.spec
        status = jnp.zeros((ctx.B,), jnp.int32)
        expanded = list(arrays)
        for i, (spec, expand) in enumerate(zip(ctx.inputs, self._expanded_inputs(ctx.inputs), strict=True)):
            if expand:
                expanded[i], code = _ffi.call(
                    "expand", ctx, arrays[i], Spec(spec.dtype, out.ndim, out.shape), ctx.out[0]
                )
                # A sample keeps the status of its first failed call; 0: none has failed.
                status = jnp.where(status == 0, code, status)
        return super().lower(ctx, *expanded), status


def _extent(spec: Spec, axis: int, ndim: int) -> int | None:
    """The extent of a value along an axis of a result of `ndim` dimensions."""
    axis -= ndim - spec.ndim
    return 1 if axis < 0 else spec.extent(axis)


def _has_full_extent(specs: tuple[Spec, ...], i: int, axis: int, ndim: int) -> bool:
    """Whether input `i` has the result's extent along an axis, for all possible shapes of ragged samples."""
    extent = _extent(specs[i], axis, ndim)
    if extent is not None and extent != 1:
        return True
    return all(_extent(s, axis, ndim) == 1 for k, s in enumerate(specs) if k != i)


def _show_shape(spec: Spec) -> str:
    """A shape for error messages, with "?" for an extent that varies."""
    extents = [spec.extent(d) for d in range(spec.ndim)]
    return f"({', '.join('?' if e is None else str(e) for e in extents)}{',' if len(extents) == 1 else ''})"


def _shown_shapes(operands: list[Any], i: int) -> list[str]:
    """The operands' shapes in sample `i`, for error messages; "()" for numbers."""
    return [str(tuple(x.shapes[i].tolist())) if isinstance(x, Value) else "()" for x in operands]


def is_operand(x: Any) -> bool:
    """Whether arithmetic accepts `x`: a DataNode, number, `types.Constant`, list, NumPy or JAX array."""
    return isinstance(
        x, (DataNode, bool, int, float, types.ScalarConstant, np.generic, np.ndarray, jax.Array, list, tuple)
    )


@records("arithmetic")
def pointwise(function: str, *operands: Any) -> DataNode:
    """Adds a pointwise function of DataNodes, numbers and arrays to the pipeline.

    Args:
      function: a key of `FUNCTIONS`, such as "add" or "sqrt".
      operands: as many as the function takes.

    Raises:
      TypeError: no operand is a DataNode or an array, or one is neither a DataNode nor numeric.
      ValueError: an integer constant does not fit into 32 bits.
    """
    if not any(isinstance(x, DataNode) or np.ndim(x) for x in operands):
        raise TypeError(
            f"{function}: at least one operand must be a DataNode or an array, got {', '.join(type(x).__name__ for x in operands)}"
        )
    # By operand: the index of its input, or (dtype, bytes) of a number, as in `Pointwise.operands`.
    places: list[int | tuple[np.dtype, bytes]] = []
    inputs: list[DataNode] = []
    for x in operands:
        if not is_operand(x):
            raise TypeError(f"{function}: operands must be DataNodes, numbers or arrays, got {type(x).__name__}")
        if not isinstance(x, DataNode) and np.ndim(x) == 0:
            value = narrowed(x[()] if isinstance(x, np.ndarray) else x)  # an array without axes is a NumPy scalar
            places.append((value.dtype, value.tobytes()))
            continue
        node = x if isinstance(x, DataNode) else constant_node(x)
        # A value that is given twice becomes one input.
        earlier = [i for i, n in enumerate(inputs) if n.node is node.node and n.index == node.index]
        places.append(earlier[0] if earlier else len(inputs))
        inputs += [] if earlier else [node]
    return add(Pointwise(function=function, operands=tuple(places)), *inputs)
