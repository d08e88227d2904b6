"""The family of elementwise operators: one function, written once for NumPy and for programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..._core.context import HostContext, LowerContext
from ..._core.operator import HostOperator, ProgramOperator, Setup
from ..._core.ragged import ALIGNMENT, Packed, Ragged
from ..._core.values import Spec, Value
from .ragged import aligned, fit, samples_of_blocks, shapes_of

_SLAB = 1 << 18  # bytes of the result


class Elementwise(HostOperator, ProgramOperator):
    """A function of elements.

    Inputs without axes, and the arrays that `numbers` returns, have one number per sample, which is used for all its
    elements. The other inputs have the output's shape, or are all dense and broadcast as in NumPy. An operator whose
    output does not have its first input's shape overrides `setup`.
    """

    def element(self, xp: Any, *inputs: Any, **numbers: Any) -> Any:
        """The function of arrays that broadcast against each other, with NumPy (`xp` = numpy) or in a program
        (jax.numpy).

        Args:
          inputs: the operator's inputs, without those that are arguments.
          numbers: the arrays that `numbers` returns.
        """
        raise NotImplementedError(self.name)

    def numbers(self, ctx: HostContext | None, values: Sequence[Value]) -> Mapping[str, np.ndarray]:
        """Parameters of the function by name, one number per sample, ``[N]`` each. `ctx` and `values` are the operands
        of `arguments`.
        """
        return {}

    def infer(self, x: Spec, *others: Spec) -> tuple[Spec, ...]:
        return (x,)

    def setup_reads(self, i: int) -> bool:
        return i > 0 and bool(self.args.inputs)

    def compute(self, N: int, *specs: Spec) -> Callable[..., np.ndarray] | None:
        """A function for dense inputs, see `HostOperator.compute`; None if shapes vary or arguments come per sample."""
        if self.args.inputs or any(s.shape is None for s in specs):
            return None
        ndim = max(s.ndim for s in specs)
        # Without arguments per sample, the numbers of one sample are those of all.
        numbers = {n: x[0] for n, x in self.numbers(None, ()).items()}
        return lambda *data: self.element(np, *(aligned(x, ndim) for x in data), **numbers)

    def run(self, ctx: HostContext, *values: Value) -> tuple[Any, ...]:
        """Computes one sample after the other, or small ones together. Samples that are not present become zeros, or
        empty.
        """
        setup = self.setup(ctx, *values)
        # The last inputs are the arguments that come per sample.
        inputs = values[: len(values) - len(self.args.inputs)]
        with np.errstate(all="ignore"):
            if (data := self._compute_together(ctx, setup, inputs)) is not None:
                return (data,)
            data, samples = ctx.output(setup.shapes[0])
            for i in np.flatnonzero(ctx.present).tolist():
                numbers = {n: np.asarray(x[i]) for n, x in setup.params.items()}
                self._compute_sample(samples[i], [v.sample(i) for v in inputs], numbers)
        return (data,)

    def _compute_together(self, ctx: HostContext, setup: Setup, inputs: Sequence[Value]) -> np.ndarray | Packed | None:
        """The output, computed by few calls, each for several samples; None if the samples are large or differ in
        shape. A call takes longer than the arithmetic of a small sample.
        """
        shapes = np.array([ctx.spec.shape]) if ctx.spec.shape is not None else setup.shapes[0]
        assert shapes is not None
        stacked = [v.stacked() for v in inputs]
        if not ctx.present.all() or (shapes != shapes[:1]).any() or any(x is None for x in stacked):
            return None
        shape = shapes[0].tolist()
        count = _SLAB // max(1, math.prod(shape) * ctx.spec.dtype.itemsize)  # samples in a slab
        data = np.empty((ctx.N, *shape), ctx.spec.dtype) if ctx.spec.shape is not None else ctx.packed(shapes)
        out = data if isinstance(data, np.ndarray) else data.stacked()
        if count < 2 or out is None:
            return None
        for first in range(0, ctx.N, count):
            slab = slice(first, first + count)
            result = self.element(
                np,
                # Samples of a ragged batch have gaps between them.
                *(aligned(np.ascontiguousarray(x[slab]), ctx.spec.ndim) for x in stacked if x is not None),
                **{n: aligned(x[slab], ctx.spec.ndim) for n, x in setup.params.items()},
            )
            assert result.dtype == out.dtype, self.name
            out[slab] = result
        return data

    def _compute_sample(self, out: np.ndarray, inputs: list[np.ndarray], numbers: Mapping[str, np.ndarray]):
        """Writes one sample to `out`, in slabs along its first axis. The intermediate values of a slab stay in the
        caches. malloc would request those of whole images from the system each time, which takes longer than the
        arithmetic.
        """
        out = np.atleast_1d(out)
        rows = max(1, _SLAB // max(1, out[:1].nbytes))
        is_cut = [x.ndim == out.ndim and len(x) == len(out) for x in inputs]
        if rows < len(out):
            # NumPy is slow along short axes, such as the channels of a mean. So values that all rows share are repeated
            # along the inner axes.
            inputs = [
                x if cut or x.size == 1 else np.ascontiguousarray(np.broadcast_to(x, (1, *out.shape[1:])))
                for x, cut in zip(inputs, is_cut, strict=True)
            ]
        for first in range(0, len(out), rows):
            slab = slice(first, first + rows)
            result = self.element(np, *(x[slab] if cut else x for x, cut in zip(inputs, is_cut)), **numbers)
            assert result.dtype == out.dtype, self.name
            out[slab] = result

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        return Setup((shapes_of(values[0]),), self.numbers(ctx, values))

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        """Computes all elements at once: a dense batch ``[B, ...]``, or the blocks of a ragged buffer."""
        inputs, out, spec = arrays[: len(arrays) - len(self.args.inputs)], ctx.out[0], ctx.spec
        # The result is dense.
        if out is None:
            numbers = {n: aligned(x, spec.ndim) for n, x in ctx.params.items()}
            result = self.element(jnp, *(aligned(x, spec.ndim) for x in inputs), **numbers)
            return (jnp.broadcast_to(result, (ctx.B, *(spec.shape or ()))),)
        # Each block of the ragged buffer belongs to one sample, whose numbers broadcast against its elements.
        sample = samples_of_blocks(out.offsets, out.capacity)
        blocks = [
            fit(x, out).data.reshape(-1, ALIGNMENT) if isinstance(x, Ragged) else x[sample][:, None] for x in inputs
        ]
        result = self.element(jnp, *blocks, **{n: x[sample][:, None] for n, x in ctx.params.items()})
        return (Ragged(result.reshape(-1), out.offsets, out.shapes),)
