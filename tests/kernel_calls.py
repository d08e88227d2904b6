"""Calls of one native kernel, without a pipeline."""

import dataclasses
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdali import _cpu
from jaxdali._core import ffi as _ffi
from jaxdali._core.ragged import Ragged, pack, plan_offsets
from jaxdali._core.values import Spec
from jaxdali.types import is_float

INTERNAL = _cpu.Status.INTERNAL


@dataclasses.dataclass
class Case:
    """A call of a kernel.

    Attributes:
      dtype, shapes: of the outputs.
      params, attrs: as the kernel's binding lists them.
    """

    kernel: str
    samples: list[np.ndarray]
    dtype: np.dtype
    shapes: list[tuple[int, ...]]
    params: tuple[np.ndarray, ...]
    attrs: dict[str, Any]
    exact: bool = False
    note: str = ""


def run(
    case: Case,
    target: str = "",
    dense: bool = False,
    stacked: bool = False,
    present: Any = None,
    broken: int | None = None,
    device: Any = None,
):
    """The outputs and the status of each sample.

    Args:
      target: instead of the case's kernel.
      dense: the first sample alone, as a dense batch with a dense result.
      stacked: the samples, which have one shape, as a dense batch with a ragged result.
      present: which samples are; default: all.
      broken: a sample that is said to lie outside its buffer.
      device: where to run; default: JAX's.
    """
    n = 1 if dense else len(case.samples)
    present = np.ones(n, np.int32) if present is None else np.asarray(present, np.int32)[:n]
    pool = _cpu.pool_create(2)
    try:
        with jax.enable_x64(True), jax.default_device(device):
            ctx: Any = types.SimpleNamespace(B=n, control=jnp.asarray([pool, *present], jnp.int32), times=None)
            shapes = np.array(case.shapes[:n], np.int64).reshape(n, -1)
            params = [jnp.asarray(p[:n] if len(p) == len(case.samples) else p) for p in case.params]
            if dense:
                spec = Spec(case.dtype, shapes.shape[1], tuple(shapes[0].tolist()))
                y, status = _ffi.call(
                    target or case.kernel, ctx, jnp.asarray(case.samples[0][None]), spec, None, *params, **case.attrs
                )
                return [np.asarray(y)[0]], np.asarray(status)
            p = pack(case.samples, 1, lambda elements, dtype: np.zeros((1, elements), dtype))
            starts = p.offsets.copy()
            offsets, need = plan_offsets(shapes, 1)
            if broken is not None:
                starts[broken] = 1 << 24
            x: Any = Ragged(jnp.asarray(p.data[0]), jnp.asarray(starts), jnp.asarray(p.shapes.astype(np.int32)))
            x = jnp.asarray(np.stack(case.samples)) if stacked else x
            out = _ffi.Out(max(need, 1), jnp.asarray(offsets), jnp.asarray(shapes.astype(np.int32)))
            y, status = _ffi.call(
                target or case.kernel, ctx, x, Spec(case.dtype, shapes.shape[1], None), out, *params, **case.attrs
            )
            data = np.asarray(y.data)
    finally:
        _cpu.pool_destroy(pool)
    return [data[o * 64 : o * 64 + s.prod()].reshape(s) for o, s in zip(offsets, shapes, strict=True)], np.asarray(
        status
    )


def assert_agree(
    case: Case, got: tuple[list[np.ndarray], np.ndarray], want: tuple[list[np.ndarray], np.ndarray]
) -> None:
    """Outputs equal, as `differences` has it."""
    lines = differences(case, got, want)
    assert not lines, "\n".join([case.note, *lines])


def differences(
    case: Case, got: tuple[list[np.ndarray], np.ndarray], want: tuple[list[np.ndarray], np.ndarray]
) -> list[str]:
    """Describes the differences, a line for each sample. Outputs are equal within 1 for integers and 1e-5 of the largest value for
    floats, or exactly; status exactly.
    """
    lines = []
    for i, (status, code) in enumerate(zip(got[1], want[1], strict=True)):
        if status != code:
            lines.append(f"sample {i}: status {status} instead of {code}")
        if status != code or code != 0:
            continue
        a, b = got[0][i], want[0][i]
        assert a.shape == b.shape
        if case.exact or a.size == 0:
            wrong = (a != b) & ~((a != a) & (b != b))  # NaN is equal to NaN
        else:
            largest = float(np.abs(b.astype(np.float64)).max())
            atol = 1e-5 * largest if is_float(case.dtype) else max(1, 1e-6 * largest)
            rtol = {"float16": 2**-10, "bfloat16": 2**-7}.get(case.dtype.name, 0)  # the last bit
            wrong = ~np.isclose(a.astype(np.float64), b.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True)
        if wrong.any():
            x, y = (v[wrong].astype(np.float64) for v in (a, b))
            first = tuple(int(k) for k in np.argwhere(wrong)[0])
            lines.append(
                f"sample {i}, {case.samples[i].shape} to {a.shape}: {wrong.sum()} of {a.size} differ by {np.abs(x - y).max():.3g} at most; "
                f"first at {first}: {x[0]:.6g} instead of {y[0]:.6g}"
            )
    return lines
