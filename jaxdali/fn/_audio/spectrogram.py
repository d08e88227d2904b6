"""Spectrograms of signals."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Annotated, Any, Literal, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from ..._core import ffi as _ffi
from ..._core.context import HostContext, LowerContext
from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import ProgramOperator, Setup
from ..._core.operator_function import Hints, Input, ListOf, operator_function
from ..._core.ragged import ALIGNMENT, Ragged
from ..._core.values import Spec, Value
from ..._cpu import Status
from .._families.layouts import spec_of
from .columns import check_floats, from_columns, rows_of_samples
from .power_spectrum import magnitudes


def hann(n: int) -> np.ndarray:
    """DALI's Hann window: sampled at the middles of `n` equal parts of a period, so without zeros at its ends."""
    return 0.5 * (1 - np.cos(2 * np.pi * (np.arange(n) + 0.5) / n))


def _reflected(xp: Any, index: Any, n: Any) -> Any:
    """Indices, which may be outside 0 ... n - 1, reflected into a signal that is mirrored at its first and last
    samples.
    """
    n, zero = xp.asarray(n, np.int32), np.zeros((), np.int32)
    period = xp.maximum(2 * n - 2, 1)
    index = index % period
    return xp.where(n > 1, xp.minimum(index, period - index), zero)


_ROWS = 256  # rows of the matrix that are computed at once, so that they stay in the cache


class Spectrogram(ProgramOperator):
    """The Fourier transforms of windows of a signal. The windows are the rows of a matrix."""

    name = "spectrogram"
    nfft: int | None  # None: `window_length`
    window_length: int  # in samples
    window_step: int  # from one window to the next, in samples
    window_fn: tuple[float, ...] | None  # the window's numbers; None: Hann's
    power: int  # 1: amplitudes; 2: powers
    center_windows: bool  # whether the middle of window i is at sample i * window_step, so that it may reach outside
    reflect_padding: bool  # whether the signal is mirrored outside its ends; if not, it is 0 there
    layout: str  # "ft" or "tf": the order of frequencies and windows

    def __post_init__(self):
        """Raises ArgumentError if `window_fn` or `nfft` does not fit the length of the windows."""
        if self.window_fn is not None and len(self.window_fn) != self.window_length:
            raise ArgumentError(
                f"argument window_fn must have window_length={self.window_length} numbers, got {len(self.window_fn)}"
            )
        if self._nfft < self.window_length:
            raise ArgumentError(f"argument nfft must be at least window_length={self.window_length}, got {self._nfft}")

    @property
    def _nfft(self) -> int:
        return self.window_length if self.nfft is None else self.nfft

    @property
    def _bins(self) -> int:
        """The number of frequencies of a window in the result."""
        return self._nfft // 2 + 1

    @property
    def _before(self) -> int:
        """The number of samples of a window before its reference point."""
        return self.window_length // 2 if self.center_windows else 0

    def _frames(self, n: Any) -> Any:
        """The number of windows of a signal of `n` samples; 0 if it is shorter than a window by a step or more."""
        if self.center_windows:
            return n // self.window_step + 1
        remaining = n - self.window_length
        # Divided towards 0: a signal that lacks less than a step still has one window.
        return np.maximum(
            np.where(remaining < 0, -(-remaining // self.window_step), remaining // self.window_step) + 1, 0
        )

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        """An image of frequencies and windows. The number of windows is known if the signal's length is."""
        check_floats(x)
        if not x.ndim:
            raise ArgumentError(
                "the input must be a signal, got a scalar: the first axis of an array counts samples, so x[None] has one signal"
            )
        frames = None
        if x.shape is not None:
            if problem := self._problem(x.shape):
                raise ArgumentError(problem)
            frames = int(self._frames(int(np.prod(x.shape))))
        extents = {"f": self._bins, "t": frames}
        return (spec_of(np.dtype(np.float32), [extents[axis] for axis in self.layout], self.layout),)

    def _problem(self, shape: tuple[int, ...]) -> str:
        """The reason why a signal of this shape is refused; "" if it is valid."""
        n = int(np.prod(shape))
        if n and max(shape) != n:
            return f"the input must be one channel: all extents but one must be 1, got {shape}"
        if not n or self._frames(n) < 1:
            return f"the signal is too short: {n} samples, with windows of {self.window_length}"
        return ""

    def setup(self, ctx: HostContext, x: Value) -> Setup:
        """The shapes of the results. A sample that is too short, or has several channels, fails."""
        if ctx.spec.shape is not None:
            return Setup((None,))
        for i in np.flatnonzero(ctx.present).tolist():
            if problem := self._problem(tuple(x.shapes[i].tolist())):
                ctx.fail(i, Status.INPUT, problem)
        frames = self._frames(x.shapes.prod(axis=1))
        bins = np.full_like(frames, self._bins)
        return Setup((np.stack([bins, frames] if self.layout == "ft" else [frames, bins], axis=1),))

    def lower(self, ctx: LowerContext, x: Any) -> Any:
        """Calls the native kernel on CPUs, whose threads take a sample each. Other devices, and derivatives, take
        `_in_jnp`.
        """

        out, ragged = ctx.out[0], isinstance(x, Ragged)
        out_arrays = () if out is None else (out.offsets, out.shapes)

        # JAX passes arrays only, so that `out` and `x` are taken apart and put together again.
        def with_arrays(
            f: Callable[[LowerContext, Any], Any], data: Any, control: Any, offsets_and_shapes: Any, out_arrays: Any
        ) -> Any:
            """Calls `f` with the context and the batch that these arrays belong to. Returns the data of its result."""
            out_of_call = None if out is None else dataclasses.replace(out, offsets=out_arrays[0], shapes=out_arrays[1])
            y = f(
                dataclasses.replace(ctx, control=control, out=(out_of_call,)),
                Ragged(data, *offsets_and_shapes) if ragged else data,
            )
            return y.data if isinstance(y, Ragged) else y

        @jax.custom_jvp
        def spectra(*arrays: Any) -> Any:
            cpu, default = (functools.partial(with_arrays, f) for f in (self._native, self._in_jnp))
            return jax.lax.platform_dependent(*arrays, cpu=cpu, default=default)

        # Derivatives are those of `_in_jnp` with respect to the data; the other operands are integers.
        @spectra.defjvp
        def _derivative(primals: Any, tangents: Any) -> Any:
            return jax.jvp(lambda data: with_arrays(self._in_jnp, data, *primals[1:]), primals[:1], tangents[:1])

        y = spectra(
            x.data if isinstance(x, Ragged) else x,
            ctx.control,
            (x.offsets, x.shapes) if isinstance(x, Ragged) else (),
            out_arrays,
        )
        return (y if out is None else Ragged(y, out.offsets, out.shapes),)

    def _native(self, ctx: LowerContext, x: Any) -> Any:
        """The result, dense or a `Ragged`, by the native kernel (ffi/spectrogram)."""
        first, weights = self._filters()
        y, _ = _ffi.call(  # The status is not needed: `setup` has checked the shapes.
            "spectrogram",
            ctx,
            x,
            ctx.spec,
            ctx.out[0],
            jnp.asarray(self._window()),
            jnp.asarray(first),
            jnp.asarray(weights),
            step=self.window_step,
            nfft=self._nfft,
            before=self._before,  # samples of a window before its reference point
            filters=self._bins if len(first) else 0,  # 0: the result has all frequencies
            time=self.layout.index("t"),  # the result's axis of windows
            reflect=self.center_windows and self.reflect_padding,
            squares=self.power == 2,
        )
        return y

    def _filters(self) -> tuple[np.ndarray, np.ndarray]:
        """The first filter that each frequency belongs to, ``i32[bins]``, and its weights in this and in the next one,
        ``f32[bins, 2]``. Empty if there are no filters.
        """
        return np.zeros(0, np.int32), np.zeros((0, 2), np.float32)

    def _window(self) -> np.ndarray:
        return np.asarray(hann(self.window_length) if self.window_fn is None else self.window_fn, np.float32)

    def _in_jnp(self, ctx: LowerContext, x: Any) -> Any:
        """The definition of the operator, in JAX's own operations."""
        out = ctx.out[0]
        if not isinstance(x, Ragged):
            y = self._spectra(self._dense(x.reshape(x.shape[0], -1)))
            return jnp.swapaxes(y, 1, 2) if self.layout == "ft" else y
        assert out is not None
        counts = out.shapes[:, self.layout.index("t")]
        first, spectra = self._ragged(x, counts, max(out.capacity // self._bins, 1))
        return from_columns(spectra, first, counts if self.layout == "ft" else jnp.ones_like(counts), out)

    def _spectra(self, frames: Any) -> Any:
        """The rows of the result, ``[..., bins]``, for windows ``[..., window_length]``."""
        return magnitudes(jnp, frames * self._window(), self._nfft, self.power)

    def _padded_indices(self, xp: Any, position: Any, n: Any) -> tuple[Any, Any]:
        """Indices into a signal of `n` samples for positions that may be outside of it, and the weights of the elements
        there.

        With `reflect_padding` the indices are reflected and the weight is 1. Otherwise they are clamped, and the
        weights are 0 outside the signal.
        """
        if self.center_windows and self.reflect_padding:
            return _reflected(xp, position, n), np.ones((), np.float32)
        return xp.clip(position, 0, xp.maximum(n - 1, 0)), ((position >= 0) & (position < n)).astype(np.float32)

    def _dense(self, x: Any) -> Any:
        """The windows ``[B, frames, window_length]`` of signals ``[B, n]``."""
        n, count = x.shape[1], int(self._frames(x.shape[1]))
        start = np.arange(count) * self.window_step
        end = max(int(start[-1]) + self.window_length - self._before, n)
        pieces = [x]
        # The padding before the signal and behind it.
        for i, outside in enumerate([np.arange(-self._before, 0), np.arange(n, end)]):
            index, weight = self._padded_indices(np, outside, n)
            pieces.insert(2 * i, x[:, index] * weight)  # at 0, before `x`, and at 2, behind it
        padded = jnp.concatenate(pieces, axis=1)
        return jax.vmap(lambda s: jax.lax.dynamic_slice_in_dim(padded, s, self.window_length, axis=1), out_axes=1)(
            start.astype(np.int32)
        )

    def _ragged(self, x: Ragged, counts: Any, capacity: int) -> tuple[Any, Any]:
        """The first row of each sample, and the rows of all windows, ``[at least capacity, bins]``."""
        length, step = self.window_length, self.window_step
        n = jnp.prod(x.shapes, axis=1, dtype=jnp.int32)
        base = x.offsets * ALIGNMENT
        first, sample, number = rows_of_samples(counts, capacity)
        data = jnp.pad(x.data, (0, max(length - x.data.shape[0], 0)))
        # Rows are computed in chunks that stay in the cache, and only as many chunks as the batch needs: the buffer may
        # be twice as large.
        rows = min(capacity, _ROWS)
        start = jnp.pad(base[sample] + number * step - self._before, (0, -capacity % rows))

        def compute_chunk(i: Any, spectra: Any) -> Any:
            starts = jax.lax.dynamic_slice(start, (i * rows,), (rows,))
            frames = jax.vmap(lambda s: jax.lax.dynamic_slice(data, (s,), (length,)))(starts)
            return jax.lax.dynamic_update_slice(spectra, self._spectra(frames), (i * rows, jnp.zeros_like(i)))

        num_chunks = (jnp.sum(counts, dtype=jnp.int32) + (rows - 1)) // rows
        spectra = jax.lax.fori_loop(
            jnp.zeros_like(num_chunks), num_chunks, compute_chunk, jnp.zeros((len(start), self._bins), jnp.float32)
        )
        # The first and the last windows of a sample may reach outside the signal, where the buffer has other samples.
        # These windows are computed once more, with indices for each element. `leading` windows may begin before the
        # signal, and `trailing` ones may end behind it.
        leading = -(-self._before // step) if self.center_windows else 1
        trailing = (length - self._before) // step + 1 if self.center_windows else 0
        last = counts[:, None] - 1 - jnp.arange(trailing, dtype=jnp.int32)
        frame_of_row = jnp.concatenate(
            [jnp.broadcast_to(jnp.arange(leading, dtype=jnp.int32), (len(counts), leading)), last], axis=1
        )
        index, weight = self._padded_indices(
            jnp,
            (frame_of_row * step - self._before)[:, :, None] + jnp.arange(length, dtype=jnp.int32),
            n[:, None, None],
        )
        edges = data.at[base[:, None, None] + index].get(mode="clip") * weight
        # A window that the sample does not have gets a row behind the end, which is dropped.
        rows_to_replace = jnp.where(
            (frame_of_row >= 0) & (frame_of_row < counts[:, None]), first[:, None] + frame_of_row, len(start)
        )
        return first, spectra.at[rows_to_replace.reshape(-1)].set(self._spectra(edges.reshape(-1, length)), mode="drop")


@operator_function(Spectrogram)
def spectrogram(
    input: Input,
    /,
    *,
    nfft: int | None = None,
    window_length: Annotated[int, Range(1)] = 512,
    window_step: Annotated[int, Range(1)] = 256,
    window_fn: ListOf[float] | None = None,
    power: Annotated[int, Range(1, 2)] = 2,
    center_windows: bool = True,
    reflect_padding: bool = True,
    layout: Literal["ft", "tf"] = "ft",
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Spectrograms of signals: magnitudes of the Fourier transforms of their windows.

    Args:
      input: signals of one channel, float32: ``[n]``, ``[n, 1]`` or ``[1, n]``.
      nfft: length of the transform; windows are filled up with zeros. Default: `window_length`.
      window_length, window_step: length of a window, and from one to the next, in samples.
      window_fn: `window_length` numbers that windows are multiplied by. Default: Hann's window, ``0.5 * (1 - cos(2 * pi
        * (i + 0.5) / n))`` as in DALI: neither the periodic nor the symmetric one of other packages.
      power: 2 for power, 1 for amplitude.
      center_windows: window i has its middle at sample ``i * window_step``, and the signal goes on beyond its ends.
        Otherwise windows lie inside the signal, but for a first one that lacks less than `window_step` samples, which
        are 0.
      reflect_padding: whether the signal is mirrored beyond its ends. Otherwise it is 0 there.
      layout: "ft" or "tf": the order of frequencies and times.

    Returns:
      float32 ``[nfft // 2 + 1, windows]``, or with "tf" the other way round. Centered windows are ``n // window_step +
      1``.

    Raises:
      TypeError: the input is not float32.
      ArgumentError: `window_fn` has another length, or `nfft` is less than `window_length`.
      SampleError: a signal of several channels, or one that is too short.

    Example:
      >>> power = fn.spectrogram(audio, nfft=512, window_length=400, window_step=160)
    """
    ...
