"""The family of operators that keep a sample's bytes and give them another shape or element type."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ..._core.context import HostContext, LowerContext, Out
from ..._core.operator import HostOperator, ProgramOperator, Setup
from ..._core.ragged import ALIGNMENT, Packed, Ragged
from ..._core.values import Spec, Value


class Reshaped(HostOperator, ProgramOperator):
    """An operator whose output has the bytes of its first input. Subclasses define the shapes."""

    def shapes(self, ctx: HostContext, x: Value, *arguments: Value) -> np.ndarray:
        """Shapes of the output, ``i64[N, ndim]``. The rows of absent samples are not used."""
        raise NotImplementedError(self.name)

    def setup_reads(self, i: int) -> bool:
        return i > 0

    def setup(self, ctx: HostContext, x: Value, *arguments: Value) -> Setup:
        shapes = self._shapes(ctx, x, arguments)  # Static shapes, too, because this checks them.
        return Setup((shapes if ctx.spec.shape is None else None,))

    def run(self, ctx: HostContext, x: Value, *arguments: Value) -> tuple[Any, ...]:
        """Views of the samples in their new shapes. Ragged samples of the same type keep their buffer."""
        spec, shapes = ctx.spec, self._shapes(ctx, x, arguments)
        if isinstance(x.data, Packed) and spec.shape is None and spec.dtype == x.spec.dtype:
            return (Packed(x.data.data, x.data.offsets, shapes),)
        samples = [
            np.ascontiguousarray(x.sample(i)).reshape(-1).view(spec.dtype).reshape(s)
            for i, s in enumerate(shapes.tolist())
        ]
        if spec.shape is None:
            return (samples,)
        # An absent sample has the shape of a vector (see `_shapes`), which can't be stacked: zeros take its place.
        empty = np.zeros(spec.shape, spec.dtype)
        return (np.stack([s if is_present else empty for s, is_present in zip(samples, ctx.present.tolist())]),)

    def lower(self, ctx: LowerContext, x: Any, *arguments: Any) -> tuple[Any, ...]:
        """Reinterprets a batch, dense or ragged, as a dense or ragged one."""
        out, spec = ctx.out[0], ctx.spec
        if isinstance(x, Ragged):
            return (_ragged(x, spec.dtype, out) if out is not None else _dense(x, spec),)
        flat = _viewed(x.reshape(ctx.B, -1), spec.dtype)
        if out is None:
            assert spec.shape is not None
            return (flat.reshape(ctx.B, *spec.shape),)
        # In a ragged buffer, each sample begins at a multiple of ALIGNMENT elements.
        rows = jnp.pad(flat, ((0, 0), (0, -flat.shape[1] % ALIGNMENT))).reshape(-1)
        return (Ragged(_fitted(rows, out.capacity), out.offsets, out.shapes),)

    def _shapes(self, ctx: HostContext, x: Value, arguments: tuple[Value, ...]) -> np.ndarray:
        """The shapes of all samples: those that the subclass defines, and a vector for a sample that is not present."""
        shapes = self.shapes(ctx, x, *arguments)
        # An absent sample keeps its size, as a vector, so that the others keep their places in the buffer.
        if not ctx.present.all() and shapes.shape[1]:
            absent = np.ones_like(shapes)
            absent[:, 0] = x.shapes.prod(axis=1) * x.spec.dtype.itemsize // ctx.spec.dtype.itemsize
            shapes = np.where(ctx.present[:, None], shapes, absent)
        return shapes


def same_volume(ctx: HostContext, x: Value, shapes: np.ndarray) -> None:
    """Raises ValueError if a sample has more or fewer bytes than its new shape needs."""
    available = x.shapes.prod(axis=1) * x.spec.dtype.itemsize
    is_wrong = (available != shapes.prod(axis=1) * ctx.spec.dtype.itemsize) & ctx.present
    if is_wrong.any():
        i = int(is_wrong.argmax())
        # The message counts elements if the type stays, or if both types have one byte; otherwise bytes.
        unit = (
            "elements"
            if x.spec.dtype.itemsize == ctx.spec.dtype.itemsize == 1 or x.spec.dtype == ctx.spec.dtype
            else "bytes"
        )
        size = 1 if unit == "bytes" else x.spec.dtype.itemsize
        required = int(shapes[i].prod()) * ctx.spec.dtype.itemsize // size
        raise ValueError(
            f"sample {i} of shape {tuple(x.shapes[i].tolist())} has {int(available[i]) // size} {unit}, "
            f"the shape {tuple(shapes[i].tolist())} needs {required}"
        )


def _viewed(x: Any, dtype: np.dtype) -> Any:
    """``x[..., n]`` with its bytes reinterpreted as another type."""
    if x.dtype == dtype:
        return x
    # A bool is reinterpreted as the byte that stores it.
    if x.dtype == np.bool_:
        x = x.astype(np.uint8)
    target = np.dtype(np.uint8) if dtype == np.bool_ else dtype
    # XLA's bitcast takes the elements of one wider number along a last axis, and returns them so.
    ratio = target.itemsize // x.dtype.itemsize
    if ratio > 1:
        x = x.reshape(*x.shape[:-1], -1, ratio)
    viewed = lax.bitcast_convert_type(x, target)
    if target.itemsize < x.dtype.itemsize:
        viewed = viewed.reshape(*x.shape[:-1], -1)
    return viewed != 0 if dtype == np.bool_ else viewed


def _fitted(data: Any, capacity: int) -> Any:
    """A buffer cut or padded to a capacity."""
    return data[:capacity] if data.shape[0] >= capacity else jnp.pad(data, (0, capacity - data.shape[0]))


def _ragged(x: Ragged, dtype: np.dtype, out: Out) -> Ragged:
    """The samples at the offsets of `out`, which differ from the input's only if the size of elements changes."""
    old, new = x.dtype.itemsize, dtype.itemsize
    if old == new:
        return Ragged(_fitted(_viewed(x.data, dtype), out.capacity), out.offsets, out.shapes)
    # A sample begins at a multiple of ALIGNMENT elements of either type: whole rows of ALIGNMENT bytes are moved.
    rows = _viewed(x.data, np.dtype(np.uint8)).reshape(-1, ALIGNMENT)
    # ALIGNMENT elements are `old` rows of the input, and `new` rows of the result.
    row = jnp.arange(out.capacity // ALIGNMENT * new, dtype=jnp.int32)
    sample = jnp.searchsorted(out.offsets, row // new, side="right") - 1
    moved = jnp.take(rows, x.offsets[sample] * old + row - out.offsets[sample] * new, axis=0, mode="clip")
    return Ragged(_viewed(moved.reshape(-1), dtype), out.offsets, out.shapes)


def _dense(x: Ragged, spec: Spec) -> Any:
    """Ragged samples of one size as a dense batch."""
    assert spec.shape is not None
    size = int(np.prod(spec.shape)) * spec.dtype.itemsize // x.dtype.itemsize  # of a sample, in elements of `x`
    # The blocks of ALIGNMENT elements that each sample takes up, ``[B, blocks]``.
    rows = x.offsets[:, None] + jnp.arange(-(-size // ALIGNMENT), dtype=jnp.int32)
    flat = jnp.take(x.data.reshape(-1, ALIGNMENT), rows, axis=0, mode="clip").reshape(len(x.offsets), -1)[:, :size]
    return _viewed(flat, spec.dtype).reshape(-1, *spec.shape)
