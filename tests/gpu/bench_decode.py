"""Decoding of a batch of JPEGs by the CUDA kernels, beside nvJPEG through torchvision (bench_nvjpeg.py); see run.sh.

    python tests/gpu/bench_decode.py [--images 256] [--rounds 15] [--dry-run]

The images are those of gpu_photos.py. Our contenders take turns; medians. nvJPEG is measured in a process of its own,
after all of ours is printed. It gets its bytes from the host, as `decode_jpeg` wants them, so the row to compare it
with is the one "with the transfer". "In a row": eight batches are asked for before the first is waited for. XLA should
not take all memory for itself: XLA_PYTHON_CLIENT_PREALLOCATE=false.
"""

import functools
import pathlib
import statistics
import subprocess
import sys
import time
import types
from collections.abc import Callable, Sequence
from typing import Any

import gpu_photos
import jax
import jax.numpy as jnp
import measuring
import numpy as np

from jaxdali import _cpu
from jaxdali import types as dali_types
from jaxdali._core import ffi as _ffi
from jaxdali._core.ragged import BufferPool, Ragged, pack, plan_offsets
from jaxdali._core.values import Spec
from jaxdali.fn._decode import info_rows

IN_A_ROW = 8
TARGET = 3  # times nvJPEG


class Batch:
    """Encoded images as the pipeline hands them to the decoder: on the host (`operands`), and what turns them into
    pixels (`decode`).

    `group_bytes`: how many bytes of coefficients the kernels keep at a time.
    """

    def __init__(
        self,
        files: Sequence[bytes],
        target: str,
        with_tables: bool,
        pool: int,
        group_bytes: int = _cpu.JPEG_GROUP_BYTES,
    ):
        n = len(files)
        buffers = BufferPool(functools.partial(_ffi.pinned_memory, jax.config.jax_default_device or jax.devices()[0]))

        def zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
            x = buffers.empty(shape, dtype)
            x[:] = 0
            return x

        begin = time.perf_counter()
        p = pack([np.frombuffer(f, np.uint8) for f in files], 1, lambda elements, dtype: zeros((1, elements), dtype))
        self.seconds_packing = time.perf_counter() - begin
        begin = time.perf_counter()
        ctx: Any = types.SimpleNamespace(present=None, pool=pool)
        info, _ = info_rows.parse_headers(ctx, p)
        assert not info[:, _cpu.Info.STATUS].any()
        tables = zeros((n, _cpu.TABLE_WORDS if with_tables else 0), np.int32)
        scratch = 0
        if with_tables:
            _cpu.make_jpeg_tables(
                p.data, p.offsets, np.ascontiguousarray(p.shapes[:, 0]), info, np.ones(n, bool), tables, pool
            )
            scratch = _cpu.plan_jpeg_workspace(tables, 1, group_bytes=group_bytes)
            assert tables[:, 0].all(), "not all of the images are for the kernels"
        self.seconds_on_host = time.perf_counter() - begin
        shapes = info_rows.output_shapes(info, dali_types.RGB, False)
        self.offsets, capacity = plan_offsets(shapes, 1)
        self.shapes, self.scratch, self.bytes = shapes, scratch, sum(map(len, files))
        layout = [np.asarray(v, np.int32) for v in (p.offsets, p.shapes, self.offsets, shapes)]
        self.operands = [p.data[0], *layout, np.array([pool] + [1] * n, np.int32), info, tables]

        def decode(data, offsets, sizes, out_offsets, out_shapes, control, info, tables):
            y, status = _ffi.call(
                target,
                types.SimpleNamespace(B=n, control=control, times=None),
                Ragged(data, offsets, sizes),
                Spec(np.dtype(np.uint8), 3, None),
                _ffi.Out(capacity, out_offsets, out_shapes),
                info,
                tables,
                scratch=scratch,
                output_type=int(dali_types.RGB),
                adjust_orientation=False,
                fast_idct=False,
                group_bytes=group_bytes,
            )
            return y.data, status

        self.decode: Callable[..., Any] = jax.jit(decode)

    def images(self, data: jax.Array) -> list[np.ndarray]:
        host = np.asarray(data)
        return [host[o * 64 : o * 64 + s.prod()].reshape(s) for o, s in zip(self.offsets, self.shapes, strict=True)]


def nvjpeg_seconds(args: Any, n: int, rounds: int) -> float:
    """Of a batch. 0: not known. What its process says is printed."""
    command = [
        sys.executable,
        str(pathlib.Path(__file__).with_name("bench_nvjpeg.py")),
        str(n),
        str(rounds),
        *["--dry-run"] * args.dry_run,
    ]
    try:
        process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        print("nvJPEG is not measured: it took more than 60 s", flush=True)
        return 0
    *lines, last = process.stdout.strip().splitlines() or [""]
    if process.returncode:
        print("nvJPEG is not measured:", *[line[:200] for line in [*lines[-3:], last]], sep="\n    ", flush=True)
        return 0
    print(*lines, sep="\n", flush=True)
    return float(last)


def main():
    args = measuring.arguments(__doc__, images=256, rounds=15)
    n, rounds = (8, 2) if args.dry_run else (args.images, args.rounds)
    files = [path.read_bytes() for path in gpu_photos.make(n)]
    print(f"\n{n} JPEGs of about 500x375, {sum(map(len, files)) / n / 1e3:.0f} KB each", flush=True)

    pool = _cpu.pool_create(4)
    device, cpu = measuring.device(args.dry_run), jax.devices("cpu")[0]
    with jax.default_device(device):
        target = measuring.kernel("decode", args.dry_run)
        batch = Batch(files, target, not args.dry_run or target != "decode", pool)
        # Some copies: one alone could stay in the cache.
        device_operands = [[jnp.asarray(x) for x in batch.operands] for _ in range(4)]

        def on_device(count: int):
            jax.block_until_ready([batch.decode(*device_operands[i % len(device_operands)])[1] for i in range(count)])

        def with_transfer(count: int):
            jax.block_until_ready([batch.decode(*jax.device_put(batch.operands, device))[1] for _ in range(count)])

        pixels, status = batch.decode(*device_operands[0])
        assert not np.asarray(status).any(), f"status {np.asarray(status)}"
        actual = batch.images(pixels)
    with jax.default_device(cpu):
        reference = Batch(files, "decode", False, pool)
        begin = time.perf_counter()
        expected = reference.images(jax.block_until_ready(reference.decode(*reference.operands)[0]))
        seconds_cpu = time.perf_counter() - begin
    different = sum(not np.array_equal(a, b) for a, b in zip(actual, expected, strict=True))
    print(f"Images whose pixels differ from libjpeg-turbo's: {different} of {n}", flush=True)

    contenders: dict[str, Callable[[], Any]] = {
        "bytes on the device": lambda: on_device(1),
        "bytes on the device, in a row": lambda: on_device(IN_A_ROW),
        "with the transfer": lambda: with_transfer(1),
        "with the transfer, in a row": lambda: with_transfer(IN_A_ROW),
        "the transfer alone": lambda: jax.block_until_ready(jax.device_put(batch.operands, device)),
    }
    times = measuring.interleaved(contenders, rounds)
    calls = {name: IN_A_ROW if "in a row" in name else 1 for name in times}
    seconds_by_name = {name: statistics.median(t) / calls[name] for name, t in times.items()}
    measuring.table(
        ("decode", "ms per batch", "fastest", "images/s"),
        [
            (name, f"{s * 1e3:.3f}", f"{min(times[name]) / calls[name] * 1e3:.3f}", f"{n / s:,.0f}")
            for name, s in seconds_by_name.items()
        ],
    )
    print(
        f"On the host, once: packing {batch.seconds_packing * 1e3:.1f} ms, headers and tables {batch.seconds_on_host * 1e3:.1f} ms; "
        f"decoding there {seconds_cpu * 1e3:.0f} ms.\nWorkspace: {batch.scratch / 1e6:.0f} MB for {batch.bytes / 1e6:.1f} MB of JPEG and "
        f"{sum(map(np.prod, batch.shapes)) / 1e6:.0f} MB of pixels.",
        flush=True,
    )
    with jax.default_device(device):
        kernels = measuring.kernel_times(lambda: on_device(1))
    if kernels:
        measuring.table(("kernel", "ms per batch"), [(f"`{name[:110]}`", f"{ms:.4f}") for name, ms in kernels])
    _cpu.pool_destroy(pool)
    if peer := nvjpeg_seconds(args, n, rounds):
        print(
            f"nvJPEG (torchvision), bytes on the host: {peer * 1e3:.3f} ms per batch, {n / peer:,.0f} images/s",
            flush=True,
        )
        measuring.table(
            ("decode", f"times nvJPEG (target {TARGET})"),
            [(name, f"{peer / seconds:.2f}") for name, seconds in seconds_by_name.items() if "alone" not in name],
        )
    if different:
        raise SystemExit("wrong pixels")


if __name__ == "__main__":
    main()
