"""Decoding of a batch of JPEGs by the CUDA kernels, beside nvJPEG through torchvision in the same process; see run.sh.

    python tests/gpu/bench_decode.py [--images 256] [--rounds 15] [--dry-run]

The images have 500x375 pixels or a few more or less, about 105 KB, 4:2:0. Contenders take turns; medians. nvJPEG gets its bytes from
the host, as `decode_jpeg` wants them, so the row to compare it with is the one "with the transfer". "In a row": eight
batches are asked for before the first is waited for. XLA should not take all memory for itself: XLA_PYTHON_CLIENT_PREALLOCATE=false.
"""

import pathlib
import statistics
import tempfile
import time
import types
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import measuring
import numpy as np
from photos import describe, make_photos

from jaxdali import _cpu
from jaxdali import types as dali_types
from jaxdali._core import ffi as _ffi
from jaxdali._core.ragged import Ragged, pack, plan_offsets
from jaxdali._core.values import Spec
from jaxdali.fn._decode import decode as _decode

SHAPES = [((500, 375), 0.75), ((375, 500), 0.25)]
IN_A_ROW = 8
TARGET = 3  # times nvJPEG


class Batch:
    """Encoded images as the pipeline hands them to the decoder: on the host (`operands`), and what turns them into pixels (`decode`)."""

    def __init__(self, files: Sequence[bytes], target: str, with_tables: bool, pool: int):
        n = len(files)
        begin = time.perf_counter()
        p = pack([np.frombuffer(f, np.uint8) for f in files], 1, lambda elements, dtype: np.zeros((1, elements), dtype))
        self.seconds_packing = time.perf_counter() - begin
        begin = time.perf_counter()
        ctx: Any = types.SimpleNamespace(present=None, pool=pool)
        info, _ = _decode.parse_headers(ctx, p)
        assert not info[:, _cpu.Info.STATUS].any()
        tables = np.zeros((n, _cpu.TABLE_WORDS if with_tables else 0), np.int32)
        scratch = 0
        if with_tables:
            _cpu.make_jpeg_tables(p.data, p.offsets, np.ascontiguousarray(p.shapes[:, 0]), info, np.ones(n, bool), tables, pool)
            scratch = _cpu.plan_jpeg_workspace(tables, 1)
            assert tables[:, 0].all(), "not all of the images are for the kernels"
        self.seconds_on_host = time.perf_counter() - begin
        shapes = _decode.output_shapes(info, dali_types.RGB, False)
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
            )
            return y.data, status

        self.decode: Callable[..., Any] = jax.jit(decode)

    def images(self, data: jax.Array) -> list[np.ndarray]:
        host = np.asarray(data)
        return [host[o * 64 : o * 64 + s.prod()].reshape(s) for o, s in zip(self.offsets, self.shapes, strict=True)]


def nvjpeg(files: Sequence[bytes], dry_run: bool) -> Callable[[], Any] | None:
    """Decodes with torchvision; None where there is none."""
    try:
        import torch
        from torchvision.io import ImageReadMode, decode_jpeg  # pyright: ignore[reportMissingImports]
    except ImportError as e:
        print(f"Without torchvision: {e}\n")
        return None
    encoded = [torch.frombuffer(bytearray(f), dtype=torch.uint8) for f in files]

    def decode():
        result = decode_jpeg(encoded, mode=ImageReadMode.RGB, device="cpu" if dry_run else "cuda")
        if not dry_run:
            torch.cuda.synchronize()
        return result

    return decode


def main():
    args = measuring.arguments(__doc__, images=256, rounds=15)
    n, rounds = (8, 2) if args.dry_run else (args.images, args.rounds)
    with tempfile.TemporaryDirectory() as folder:
        root = make_photos(pathlib.Path(folder), n, 1, shapes=SHAPES, sigma=(12, 30))
        print(f"\n{describe(root)}")
        files = [f.read_bytes() for f in sorted(root.rglob("*.jpg"))]

    pool = _cpu.pool_create(4)
    device, cpu = measuring.device(args.dry_run), jax.devices("cpu")[0]
    with jax.default_device(device):
        target = measuring.kernel("decode", args.dry_run)
        batch = Batch(files, target, not args.dry_run or target != "decode", pool)
        there = [[jnp.asarray(x) for x in batch.operands] for _ in range(4)]  # some copies: one alone could stay in the cache

        def on_device(count: int):
            jax.block_until_ready([batch.decode(*there[i % len(there)])[1] for i in range(count)])

        def with_transfer(count: int):
            jax.block_until_ready([batch.decode(*jax.device_put(batch.operands, device))[1] for _ in range(count)])

        pixels, status = batch.decode(*there[0])
        assert not np.asarray(status).any(), f"status {np.asarray(status)}"
        got = batch.images(pixels)
    with jax.default_device(cpu):
        reference = Batch(files, "decode", False, pool)
        begin = time.perf_counter()
        want = reference.images(jax.block_until_ready(reference.decode(*reference.operands)[0]))
        seconds_cpu = time.perf_counter() - begin
    different = sum(not np.array_equal(a, b) for a, b in zip(got, want, strict=True))
    print(f"Images whose pixels differ from libjpeg-turbo's: {different} of {n}")

    contenders: dict[str, Callable[[], Any]] = {
        "bytes on the device": lambda: on_device(1),
        "bytes on the device, in a row": lambda: on_device(IN_A_ROW),
        "with the transfer": lambda: with_transfer(1),
        "with the transfer, in a row": lambda: with_transfer(IN_A_ROW),
        "the transfer alone": lambda: jax.block_until_ready(jax.device_put(batch.operands, device)),
    }
    peer = nvjpeg(files, args.dry_run)
    if peer is not None:
        other = [np.moveaxis(x.cpu().numpy(), 0, -1).astype(np.int32) for x in peer()]
        print(f"nvJPEG's pixels differ by {np.mean([np.abs(a - b).mean() for a, b in zip(other, want, strict=True)]):.2f} on average")
        contenders["nvJPEG (torchvision)"] = peer
    times = measuring.interleaved(contenders, rounds)
    each = {name: statistics.median(t) / (IN_A_ROW if "in a row" in name else 1) for name, t in times.items()}
    base = each.get("nvJPEG (torchvision)")
    measuring.table(
        ("decode", "ms per batch", "fastest", "images/s", f"times nvJPEG (target {TARGET})"),
        [
            (
                name,
                f"{seconds * 1e3:.3f}",
                f"{min(times[name]) / (IN_A_ROW if 'in a row' in name else 1) * 1e3:.3f}",
                f"{n / seconds:,.0f}",
                f"{base / seconds:.2f}" if base and "alone" not in name else "",
            )
            for name, seconds in each.items()
        ],
    )
    print(
        f"On the host, once: packing {batch.seconds_packing * 1e3:.1f} ms, headers and tables {batch.seconds_on_host * 1e3:.1f} ms; "
        f"decoding there {seconds_cpu * 1e3:.0f} ms.\nWorkspace: {batch.scratch / 1e6:.0f} MB for {batch.bytes / 1e6:.1f} MB of JPEG and "
        f"{sum(map(np.prod, batch.shapes)) / 1e6:.0f} MB of pixels."
    )
    with jax.default_device(device):
        kernels = measuring.kernel_times(lambda: on_device(1))
    if kernels:
        measuring.table(("kernel", "ms per batch"), [(f"`{name[:110]}`", f"{ms:.4f}") for name, ms in kernels])
    _cpu.pool_destroy(pool)
    if different:
        raise SystemExit("wrong pixels")


if __name__ == "__main__":
    main()
