"""Prints how long the CUDA kernels take for a batch, beside what the memory traffic alone takes; see run.sh."""

import time
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdali import _ffi
from jaxdali import types as dali_types
from jaxdali.graph import Spec

N, H, W = 256, 375, 500


def seconds(f, *args) -> float:
    """Of one call, the median of 20."""
    jax.block_until_ready(f(*args))
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        jax.block_until_ready(f(*args))
        times.append(time.perf_counter() - begin)
    return sorted(times)[10]


def main():
    device = jax.devices("cuda")[0]
    with jax.enable_x64(True), jax.default_device(device):
        images = jax.random.bits(jax.random.key(0), (N, H, W, 3), np.uint8)
        ctx: Any = types.SimpleNamespace(B=N, control=jnp.asarray([0] + [1] * N, jnp.int32))
        copied = seconds(jax.jit(lambda x: x ^ np.uint8(255)), images)
        bandwidth = 2 * images.nbytes / copied
        print(f"{device.device_kind}, jax {jax.__version__}: {N} images {H} x {W} x 3, uint8; copies at {bandwidth / 1e9:.0f} GB/s")

        def show(name, kernel, out_shape, *params, **attrs):
            spec = Spec(np.dtype(np.uint8), 3, out_shape)
            params = [jnp.asarray(np.stack([p] * N)) for p in params]
            took = seconds(jax.jit(lambda x, *p: _ffi.call(kernel, ctx, x, spec, None, *p, **attrs)), images, *params)
            traffic = (images.nbytes + N * int(np.prod(out_shape))) / bandwidth
            print(f"{name:32} {took * 1e3:7.3f} ms = {took / traffic:5.1f} times its memory traffic")

        roi = np.array([[0, H], [0, W]], np.float32)
        for interp in ("LINEAR", "CUBIC", "LANCZOS3", "NN"):
            filters = np.full(2, int(getattr(dali_types, f"INTERP_{interp}")), np.int32)
            show(f"resize to 224 x 224, {interp}", "resize", (224, 224, 3), roi, filters, first_axis=0, num_axes=2, antialias=True)
        c, s = np.cos(0.2), np.sin(0.2)
        turn = np.array([[c, -s, W / 2 * (1 - c) + H / 2 * s], [s, c, H / 2 * (1 - c) - W / 2 * s]])
        show("rotate, linear", "rotate", (H, W, 3), turn, np.float32(0), dims=2, first=0, linear=True, has_fill=True)
        start, step, extent = (np.array(v, np.int32) for v in ([75, 138, 0], [1, -1, 1], [224, 224, 3]))
        start[1] += 223
        show("crop to 224 x 224, mirrored", "window", (224, 224, 3), start, step, extent)


if __name__ == "__main__":
    main()
