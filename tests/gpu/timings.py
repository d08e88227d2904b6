"""How long each CUDA kernel but `decode` takes for a batch, beside the least memory traffic it can have; see run.sh.

    python tests/gpu/timings.py [--images 256] [--dry-run]

The traffic is what must be moved: the input pixels that the output depends on, read once, and the output, written once, at the bandwidth
at which this card copies 1 GB in the same run. Each program makes eight calls on the same images.
"""

import types
from typing import Any

import jax
import jax.numpy as jnp
import measuring
import numpy as np

from jaxdali import _cpu
from jaxdali import types as dali_types
from jaxdali._core import ffi as _ffi
from jaxdali._core.ragged import Ragged, plan_offsets
from jaxdali._core.values import Spec
from jaxdali._cpu import MCU_BYTES, MCU_SIDE, Border, Interp, Points, Reduction, StencilReduction

CALLS = 8
TARGET = 1.5


class Images:
    """A batch of random images: dense, or of sizes that vary by a third."""

    def __init__(self, n: int, height: int, width: int, dense: bool, channels: int = 3):
        rng = np.random.default_rng(0)
        scale = np.ones((n, 2)) if dense else rng.uniform(2 / 3, 4 / 3, (n, 2))
        self.dtype = np.dtype(np.uint8)
        self.shapes = np.concatenate([np.round([height, width] * scale), np.full((n, 1), channels)], 1).astype(np.int64)
        self.dense = dense
        offsets, elements = plan_offsets(self.shapes, 1)
        bits = jax.random.bits(jax.random.key(0), (n, height, width, channels) if dense else (elements,), np.uint8)
        self.value: Any = bits if dense else Ragged(bits, jnp.asarray(offsets), jnp.asarray(self.shapes.astype(np.int32)))


class Timings:
    """Runs kernels and collects the rows of the table.

    Attributes:
      timed: the kernels that have a row.
    """

    def __init__(self, dry_run: bool, bandwidth: float, pool: int):
        self.dry_run, self.bandwidth, self.pool = dry_run, bandwidth, pool
        self.rows: list[tuple[str, ...]] = []
        self.timed: set[str] = set()

    def show(
        self,
        name: str,
        kernel: str,
        images: Images,
        out_shapes: np.ndarray,
        used: Any,
        *params: np.ndarray,
        out: Any = None,
        scratch: int = 0,
        **attrs,
    ):
        """Times a kernel.

        Args:
          out_shapes: ``[N, ndim]``; the output is dense where they are all the same.
          used: how many pixels the output depends on, of each image.
          *params: of all images.
        """
        n, dtype = len(images.shapes), np.dtype(out or images.dtype)
        target = measuring.kernel(kernel, self.dry_run)
        self.timed.add(kernel)
        same = bool((out_shapes == out_shapes[0]).all())
        spec = Spec(dtype, out_shapes.shape[1], tuple(out_shapes[0].tolist()) if same else None)
        layout = None
        if not same:
            offsets, elements = plan_offsets(out_shapes, 1)
            layout = _ffi.Out(elements, jnp.asarray(offsets), jnp.asarray(out_shapes.astype(np.int32)))
        operands = [jnp.asarray(p) for p in params]
        # Operands of their own, or else XLA would make one call of several.
        controls = [jnp.asarray(np.array([self.pool] + [1] * n, np.int32)) for _ in range(CALLS)]

        @jax.jit
        def program(x, controls, operands):
            calls: list[Any] = [types.SimpleNamespace(B=n, control=c, times=None) for c in controls]
            results = [_ffi.call(target, ctx, x, spec, layout, *operands, scratch=scratch, **attrs) for ctx in calls]
            return [y.data if isinstance(y, Ragged) else y for y, _ in results], [status for _, status in results]

        assert not any(np.asarray(s).any() for s in program(images.value, controls, operands)[1]), name
        seconds = (
            measuring.median(lambda: jax.block_until_ready(program(images.value, controls, operands)), 1 if self.dry_run else 20) / CALLS
        )
        traffic = float(np.sum(used)) * int(images.shapes[0, 2]) * images.dtype.itemsize + float(out_shapes.prod(1).sum()) * dtype.itemsize
        ratio = seconds * self.bandwidth / traffic
        self.rows.append((name, f"{seconds * 1e3:.3f}", f"{traffic / 1e6:.0f}", f"{traffic / self.bandwidth * 1e3:.3f}", f"{ratio:.2f}"))


def turn(height: float, width: float, angle: float) -> np.ndarray:
    """Output pixels (y, x) to input pixels, around the centre."""
    c, s = np.cos(angle), np.sin(angle)
    y, x = height / 2, width / 2
    return np.array([[c, -s, y - c * y + s * x], [s, c, x - s * y - c * x]])


def pixels_under(matrix: np.ndarray, shape: np.ndarray) -> int:
    """Number of pixels of an image that a rotation onto a canvas of its size reads."""
    y, x = np.mgrid[: shape[0], : shape[1]] + 0.5
    sy, sx = (np.floor(m[0] * y + m[1] * x + m[2]).astype(int) for m in matrix)
    inside = (sy >= 0) & (sy < shape[0]) & (sx >= 0) & (sx < shape[1])
    return min(int(inside.sum()), int(shape[0] * shape[1]))


def measure(t: Timings, n: int, height: int, width: int, to: int):
    """The kernels of the usual pipelines, of images of one size and of sizes that vary."""
    dense, ragged = (Images(n, height, width, dense) for dense in (True, False))
    small = np.tile(np.array([to, to, 3]), (n, 1))
    for images, kind in ((dense, "one size"), (ragged, "sizes vary")):
        extents = images.shapes[:, :2]
        whole = np.stack([np.zeros_like(extents), extents], -1).astype(np.float32)
        pixels = extents.prod(1)
        for interp in ("LINEAR", "CUBIC", "LANCZOS3", "NN"):
            filters = np.full((n, 2), int(getattr(dali_types, f"INTERP_{interp}")), np.int32)
            used = np.minimum(extents[:, 0], to) * extents[:, 1] if interp == "NN" else pixels
            attrs = {"first_axis": 0, "num_axes": 2, "antialias": True}
            t.show(f"resize to {to}x{to}, {interp}, {kind}", "resize", images, small, used, whole, filters, **attrs)
            if interp == "LINEAR":
                rng = np.random.default_rng(1)
                part = rng.uniform(0.35, 1, (n, 2)) * extents
                start = rng.uniform(0, 1, (n, 2)) * (extents - part)
                roi = np.stack([start, start + part], -1).astype(np.float32)
                t.show(f"the same, random crops, {kind}", "resize", images, small, part.prod(1), roi, filters, **attrs)
                t.show(f"the same to float32, {kind}", "resize", images, small, part.prod(1), roi, filters, out=np.float32, **attrs)
        angles = np.random.default_rng(2).uniform(-0.17, 0.17, n)
        maps = np.stack([turn(h, w, a) for (h, w), a in zip(extents, angles, strict=True)])
        used = [pixels_under(m, s) for m, s in zip(maps, images.shapes, strict=True)]
        for linear in (True, False):
            attrs = {"dims": 2, "first": 0, "linear": linear, "has_fill": True}
            name = f"rotate by up to 10 degrees, {'linear' if linear else 'nearest'}, {kind}"
            t.show(name, "warp", images, images.shapes, used, maps, np.zeros(n, np.float32), **attrs)
        none = [np.zeros((n, 0), np.float32)] * 3  # fill, scale, offset
        window = [(extents - to) // 2, np.tile([1, -1], (n, 1)), np.full((n, 2), to)]
        window[0][:, 1] += to - 1
        window = [np.concatenate([v, np.full((n, 1), last)], 1).astype(np.int32) for v, last in zip(window, (0, 1, 3), strict=True)]
        as_it_is = {"permutation": (0, 1, 2), "channel": -1}
        t.show(f"crop to {to}x{to}, mirrored, {kind}", "window", images, small, to * to, *window, *none, **as_it_is)
        scaled = [none[0], *np.random.default_rng(3).uniform(0.01, 0.02, (2, n, 3)).astype(np.float32)]
        for permutation, layout in (((2, 0, 1), "CHW"), ((0, 1, 2), "HWC")):
            attrs = {"permutation": permutation, "channel": 2, "out": np.float32}
            shapes = small[:, permutation]
            t.show(f"the same, normalised, to {layout} float32, {kind}", "window", images, shapes, to * to, *window, *scaled, **attrs)


def measure_others(t: Timings, n: int, height: int, width: int):
    """All other kernels, of images whose sizes vary."""
    images, gray = (Images(n, height, width, dense=False, channels=channels) for channels in (3, 1))
    shapes = images.shapes
    pixels, elements = shapes[:, :2].prod(1), plan_offsets(shapes, 1)[1]
    rng = np.random.default_rng(4)

    def show(name: str, kernel: str, *params: np.ndarray, **attrs):
        t.show(name, kernel, images, shapes, pixels, *params, **attrs)

    show("colours by a matrix", "color", rng.uniform(-1, 1, (n, 3, 4)).astype(np.float32))
    show("a table for each channel", "table", rng.integers(0, 256, (n, 3, 256)).astype(np.uint8))
    for size in (3, 5, 13):
        weights, taps = np.full((n, 2, size), 1 / size, np.float32), np.full((n, 2), size, np.int32)
        show(f"blur of {size}x{size}", "filter", weights, taps, first=0, axes=2, scratch=4 * elements)
    for reduction, size in (
        (StencilReduction.MEDIAN, 3),
        (StencilReduction.MEDIAN, 5),
        (StencilReduction.MAX, 3),
        (StencilReduction.SUM, 5),
    ):
        weights, extent = np.full((n, size * size), 1 / size**2, np.float32), np.full((n, 2), size, np.int32)
        attrs = {"first": 0, "axes": 2, "reduction": int(reduction), "border": int(Border.REFLECT_101)}
        name = f"{reduction.name.lower()} of {size}x{size}"
        show(name, "stencil", weights, extent, extent // 2, np.zeros(n, np.float32), **attrs)
    for reduction in (Reduction.SUM, Reduction.MAX):
        attrs = {"reduction": int(reduction), "axes": (0, 1), "out": np.float64, "scratch": elements // 32 * 8}
        t.show(f"{reduction.name.lower()} of each channel", "reduce", images, np.full((n, 1), 3), pixels, np.zeros((n, 0)), **attrs)
    for tiles, what in ((1, "of whole channels"), (8, "in 8x8 tiles")):
        first = np.arange(n, dtype=np.int32) * 3 * tiles * tiles
        scratch = 256 * (3 * tiles * tiles * n + elements // 8192 * 4)
        attrs = {"height_axis": 0, "tiles_y": tiles, "tiles_x": tiles, "stretch": tiles == 1, "scratch": scratch}
        show(f"equalization {what}", "equalize", np.zeros(n, np.float32), first, np.zeros(0, np.int32), **attrs)
    units = (-(-shapes[:, :2] // MCU_SIDE)).prod(1)
    first, tables = (units.cumsum() - units).astype(np.int32), rng.integers(1, 60, (n, 2, 64)).astype(np.int32)
    show("JPEG distortion", "jpeg_distortion", tables, first, scratch=MCU_BYTES * int(units.sum()))
    given = [np.zeros(0, np.float32), np.zeros(0, np.int32)] * 2
    matrices = np.stack([np.concatenate([turn(h, w, 0.1).ravel(), [1e-5, 1e-5, 1]]) for h, w in shapes[:, :2]])
    for interp in (Interp.NN, Interp.LINEAR, Interp.CUBIC):
        attrs = {"points": int(Points.PROJECTIVE), "sampling": int(interp), "border": int(Border.CONSTANT), "first": 0}
        name = f"perspective, {interp.name.lower()}"
        show(name, "remap", *given, matrices, np.zeros((n, 1), np.float32), np.ones(n, np.int32), **attrs)
    half = np.array([height // 2, width // 2])
    canvas = np.tile([*2 * half, 3], (n, 1))
    regions = np.zeros((n, 4, 7), np.int32)  # of the sources' corners
    regions[..., 0], regions[..., 3:5] = rng.integers(0, n, (n, 4)), half
    regions[..., 5:] = half * [(0, 0), (0, 1), (1, 0), (1, 1)]
    t.show("mosaics of four images", "paste", images, canvas, canvas[:, :2].prod(1), regions, first=0)
    t.show("gray to three channels", "expand", gray, shapes, pixels)
    show("copied into a batch", "merge", np.zeros(0, np.uint8))


def main():
    args = measuring.arguments(__doc__, images=256)
    n, height, width, to = (4, 60, 80, 32) if args.dry_run else (args.images, 375, 500, 224)
    pool = _cpu.pool_create(2)
    device = measuring.device(args.dry_run)
    with jax.enable_x64(True), jax.default_device(device):
        bandwidth = measuring.copy_bandwidth(args.dry_run)
        print(f"\n{n} images of about {width}x{height}, 3 channels, uint8; the card copies at {bandwidth / 1e9:.0f} GB/s, read and written")
        timings = Timings(args.dry_run, bandwidth, pool)
        measure(timings, n, height, width, to)
        measure_others(timings, n, height, width)
    measuring.table(("kernel", "ms", "traffic MB", "ms for the traffic", f"times that (target {TARGET})"), timings.rows)
    _cpu.pool_destroy(pool)
    others = {"decode", "chain"}  # bench_decode.py; what calls other kernels
    if missing := measuring.kernels(args.dry_run) - timings.timed - others:
        raise SystemExit(f"no row of {', '.join(sorted(missing))}")


if __name__ == "__main__":
    main()
