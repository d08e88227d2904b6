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
from .columns import check_floats, first_of, from_columns
from .power_spectrum import magnitudes


def hann(n: int) -> np.ndarray:
    """DALI's window: samples in the middle of `n` parts of a period."""
    return 0.5 * (1 - np.cos(2 * np.pi * (np.arange(n) + 0.5) / n))


def _reflected(xp: Any, at: Any, n: Any) -> Any:
    """Where an index is that may be outside of 0 ... n - 1, in the signal mirrored at its first and last samples."""
    n, zero = xp.asarray(n, np.int32), np.zeros((), np.int32)
    period = xp.maximum(2 * n - 2, 1)
    at = at % period
    return xp.where(n > 1, xp.minimum(at, period - at), zero)


_ROWS = 256


class Spectrogram(ProgramOperator):
    """Windows of a signal as rows of a matrix, of which the Fourier transform is taken."""

    name = "spectrogram"
    nfft: int | None
    window_length: int
    window_step: int
    window_fn: tuple[float, ...] | None
    power: int
    center_windows: bool
    reflect_padding: bool
    layout: str

    def __post_init__(self):
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
        return self._nfft // 2 + 1

    @property
    def _before(self) -> int:
        """Samples of a window before the place that it stands for."""
        return self.window_length // 2 if self.center_windows else 0

    def _frames(self, n: Any) -> Any:
        """How many windows a signal has; none where it is shorter than one by more than a step."""
        if self.center_windows:
            return n // self.window_step + 1
        beyond = n - self.window_length
        return np.maximum(np.where(beyond < 0, -(-beyond // self.window_step), beyond // self.window_step) + 1, 0)

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        check_floats(x)
        if not x.ndim:
            raise ArgumentError("the input must be a signal, got a scalar")
        frames = None
        if x.shape is not None:
            if wrong := self._wrong(x.shape):
                raise ArgumentError(wrong)
            frames = int(self._frames(int(np.prod(x.shape))))
        extents = {"f": self._bins, "t": frames}
        return (spec_of(np.dtype(np.float32), [extents[axis] for axis in self.layout], self.layout),)

    def _wrong(self, shape: tuple[int, ...]) -> str:
        """Why a signal of this shape is not taken; "" when it is."""
        n = int(np.prod(shape))
        if n and max(shape) != n:
            return f"the input must be one channel: all extents but one must be 1, got {shape}"
        if not n or self._frames(n) < 1:
            return f"the signal is too short: {n} samples, with windows of {self.window_length}"
        return ""

    def setup(self, ctx: HostContext, x: Value) -> Setup:
        if ctx.spec.shape is not None:
            return Setup((None,))
        for i in np.flatnonzero(ctx.present).tolist():
            if wrong := self._wrong(tuple(x.shapes[i].tolist())):
                ctx.fail(i, Status.INPUT, wrong)
        frames = self._frames(x.shapes.prod(axis=1))
        bins = np.full_like(frames, self._bins)
        return Setup((np.stack([bins, frames] if self.layout == "ft" else [frames, bins], axis=1),))

    def lower(self, ctx: LowerContext, x: Any) -> Any:
        """One native call on CPUs, whose threads take a sample each; elsewhere, and for derivatives, `_defined`."""

        out, ragged = ctx.out[0], isinstance(x, Ragged)
        place = () if out is None else (out.offsets, out.shapes)

        def with_arrays(f: Callable[[LowerContext, Any], Any], data: Any, control: Any, at: Any, place: Any) -> Any:
            to = None if out is None else dataclasses.replace(out, offsets=place[0], shapes=place[1])
            y = f(dataclasses.replace(ctx, control=control, out=(to,)), Ragged(data, *at) if ragged else data)
            return y.data if isinstance(y, Ragged) else y

        @jax.custom_jvp
        def spectra(*arrays: Any) -> Any:
            cpu, default = (functools.partial(with_arrays, f) for f in (self._native, self._defined))
            return jax.lax.platform_dependent(*arrays, cpu=cpu, default=default)

        @spectra.defjvp
        def _derivative(primals: Any, tangents: Any) -> Any:
            return jax.jvp(lambda data: with_arrays(self._defined, data, *primals[1:]), primals[:1], tangents[:1])

        y = spectra(
            x.data if isinstance(x, Ragged) else x,
            ctx.control,
            (x.offsets, x.shapes) if isinstance(x, Ragged) else (),
            place,
        )
        return (y if out is None else Ragged(y, out.offsets, out.shapes),)

    def _native(self, ctx: LowerContext, x: Any) -> Any:
        first, weights = self._filters()
        y, _ = _ffi.call(  # the host has checked shapes
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
            before=self._before,
            filters=self._bins if len(first) else 0,
            time=self.layout.index("t"),
            reflect=self.center_windows and self.reflect_padding,
            squares=self.power == 2,
        )
        return y

    def _filters(self) -> tuple[np.ndarray, np.ndarray]:
        """For each bin the first filter that it belongs to, ``i32[bins]``, and its weights there and in the next;
        empty: there are none.
        """
        return np.zeros(0, np.int32), np.zeros((0, 2), np.float32)

    def _window(self) -> np.ndarray:
        return np.asarray(hann(self.window_length) if self.window_fn is None else self.window_fn, np.float32)

    def _defined(self, ctx: LowerContext, x: Any) -> Any:
        """The definition, in jnp."""
        out = ctx.out[0]
        if not isinstance(x, Ragged):
            y = self._spectra(self._dense(x.reshape(x.shape[0], -1)))
            return jnp.swapaxes(y, 1, 2) if self.layout == "ft" else y
        assert out is not None
        counts = out.shapes[:, self.layout.index("t")]
        first, spectra = self._ragged(x, counts, max(out.capacity // self._bins, 1))
        return from_columns(spectra, first, counts if self.layout == "ft" else jnp.ones_like(counts), out)

    def _spectra(self, frames: Any) -> Any:
        """The rows of the result ``[..., bins]`` of windows ``[..., window_length]``."""
        return magnitudes(jnp, frames * self._window(), self._nfft, self.power)

    def _outside(self, xp: Any, at: Any, n: Any) -> tuple[Any, Any]:
        """Where the signal is read at places that may be outside of it, and by what is multiplied what is read there."""
        if self.center_windows and self.reflect_padding:
            return _reflected(xp, at, n), np.ones((), np.float32)
        return xp.clip(at, 0, xp.maximum(n - 1, 0)), ((at >= 0) & (at < n)).astype(np.float32)

    def _dense(self, x: Any) -> Any:
        """The windows ``[B, frames, window_length]`` of ``[B, n]``."""
        n, count = x.shape[1], int(self._frames(x.shape[1]))
        start = np.arange(count) * self.window_step
        end = max(int(start[-1]) + self.window_length - self._before, n)
        parts = [x]
        for i, outside in enumerate([np.arange(-self._before, 0), np.arange(n, end)]):
            at, weight = self._outside(np, outside, n)
            parts.insert(2 * i, x[:, at] * weight)
        padded = jnp.concatenate(parts, axis=1)
        return jax.vmap(lambda s: jax.lax.dynamic_slice_in_dim(padded, s, self.window_length, axis=1), out_axes=1)(
            start.astype(np.int32)
        )

    def _ragged(self, x: Ragged, counts: Any, room: int) -> tuple[Any, Any]:
        """The first row of each sample, and the rows of all windows, ``[at least room, bins]``."""
        length, step = self.window_length, self.window_step
        n = jnp.prod(x.shapes, axis=1, dtype=jnp.int32)
        base = x.offsets * ALIGNMENT
        first, sample, number = first_of(counts, room)
        data = jnp.pad(x.data, (0, max(length - x.data.shape[0], 0)))
        # Rows are made in parts that stay in the cache, and only as many parts as the batch has: a buffer may be twice
        # as large.
        rows = min(room, _ROWS)
        start = jnp.pad(base[sample] + number * step - self._before, (0, -room % rows))

        def part(i: Any, made: Any) -> Any:
            places = jax.lax.dynamic_slice(start, (i * rows,), (rows,))
            frames = jax.vmap(lambda s: jax.lax.dynamic_slice(data, (s,), (length,)))(places)
            return jax.lax.dynamic_update_slice(made, self._spectra(frames), (i * rows, jnp.zeros_like(i)))

        parts = (jnp.sum(counts, dtype=jnp.int32) + (rows - 1)) // rows
        made = jax.lax.fori_loop(jnp.zeros_like(parts), parts, part, jnp.zeros((len(start), self._bins), jnp.float32))
        # What reaches beyond the signal is read once more, by element: the first and the last windows of each sample.
        leading = -(-self._before // step) if self.center_windows else 1
        trailing = (length - self._before) // step + 1 if self.center_windows else 0
        last = counts[:, None] - 1 - jnp.arange(trailing, dtype=jnp.int32)
        of = jnp.concatenate(
            [jnp.broadcast_to(jnp.arange(leading, dtype=jnp.int32), (len(counts), leading)), last], axis=1
        )
        at, weight = self._outside(
            jnp, (of * step - self._before)[:, :, None] + jnp.arange(length, dtype=jnp.int32), n[:, None, None]
        )
        edges = data.at[base[:, None, None] + at].get(mode="clip") * weight
        row = jnp.where((of >= 0) & (of < counts[:, None]), first[:, None] + of, len(start))
        return first, made.at[row.reshape(-1)].set(self._spectra(edges.reshape(-1, length)), mode="drop")


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
      reflect_padding: beyond its ends the signal is mirrored; otherwise 0.
      layout: "ft" or "tf": of frequencies and times.

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
