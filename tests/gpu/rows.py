"""Measures one CUDA kernel for timings.py, which starts this.

    python tests/gpu/rows.py KERNEL SHARED [--images 256] [--dry-run]

The file SHARED is locked while the GPU is used, and has the bandwidth of a copy, which the first process measures.
Prints rows.
"""

import argparse
import contextlib
import faulthandler
import fcntl
import types
from collections.abc import Callable
from typing import Any

import bench_decode
import gpu_photos
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
MOST_SECONDS = 60  # of one kernel, with all that compiles
GROUPS = (12, 20, 40, 1000)  # MiB of coefficients that the decoder keeps at a time


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
        self.value: Any = (
            bits if dense else Ragged(bits, jnp.asarray(offsets), jnp.asarray(self.shapes.astype(np.int32)))
        )


class Timings:
    """Times calls of a kernel, and prints a row for each as soon as it is known."""

    def __init__(self, dry_run: bool, n: int, bandwidth: float, pool: int):
        self.dry_run, self.n, self.bandwidth, self.pool = dry_run, n, bandwidth, pool

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
        spec, layout = result(out_shapes, out or images.dtype)
        target = measuring.kernel(kernel, self.dry_run)

        def call(ctx: Any, x: Any, *operands: Any):
            y, status = _ffi.call(target, ctx, x, spec, layout, *operands, scratch=scratch, **attrs)
            return y, [status]

        self.time(name, call, images, out_shapes, used, spec.dtype, params)

    def show_chain(self, name: str, images: Images, used: Any, first: tuple, window: tuple, out_shapes: np.ndarray):
        """Times a chain: a resize or a warp, of whose image a window is made.

        Args:
          first: kernel, shapes of the results, operands and attributes of the first stage, whose results have no
            memory.
          window: operands and attributes of the window, which makes float32.
        """
        kernel, shapes, params, attrs = first
        target = measuring.kernel("chain", self.dry_run)
        intermediate, (spec, layout) = result(shapes, images.dtype), result(out_shapes, np.float32)

        def call(ctx: Any, x: Any, *operands: Any):
            stages = []
            for name, (spec_of, layout_of), attributes, extra in (
                (kernel, intermediate, operands[: len(params)], attrs),
                ("window", (spec, layout), operands[len(params) :], window[1]),
            ):
                stage: Any = types.SimpleNamespace(
                    B=ctx.B, control=ctx.control, times=None, spec=spec_of, out=(layout_of,)
                )
                stages.append((name, stage, _ffi.KernelCall(attributes, extra)))
            return _ffi.call_chain(x, stages, kernel=target)

        self.time(name, call, images, out_shapes, used, spec.dtype, (*params, *window[0]))

    def time(
        self,
        name: str,
        call: Callable[..., Any],
        images: Images,
        out_shapes: np.ndarray,
        used: Any,
        dtype: Any,
        params: Any,
    ):
        """Times ``call(context, images, *params)``, which returns a batch and a list of status."""

        @jax.jit
        def program(x, controls, operands):
            calls = [call(types.SimpleNamespace(B=self.n, control=c, times=None), x, *operands) for c in controls]
            return [y.data if isinstance(y, Ragged) else y for y, _ in calls], [status for _, status in calls]

        operands = [jnp.asarray(p) for p in params]
        read = float(np.sum(used)) * int(images.shapes[0, 2]) * images.dtype.itemsize
        written = float(out_shapes.prod(1).sum()) * dtype.itemsize
        self.row(name, lambda controls: program(images.value, controls, operands), read + written)

    def row(self, name: str, program: Callable[[Any], Any], traffic: float):
        """Times a program of eight calls, which gets the control operand of each. Their status is its second result."""
        # Operands of their own, or else XLA would make one call of several.
        controls = [jnp.asarray(np.array([self.pool] + [1] * self.n, np.int32)) for _ in range(CALLS)]
        assert not any(np.asarray(s).any() for s in jax.tree.leaves(program(controls)[1])), f"{name}: a sample failed"
        seconds = measuring.median(lambda: jax.block_until_ready(program(controls)), 1 if self.dry_run else 20) / CALLS
        print_row(name, seconds, traffic, self.bandwidth)


def print_row(name: str, seconds: float, traffic: float, bandwidth: float):
    ratio = seconds * bandwidth / traffic
    measuring.row(
        (name, f"{seconds * 1e3:.3f}", f"{traffic / 1e6:.0f}", f"{traffic / bandwidth * 1e3:.3f}", f"{ratio:.2f}")
    )


def result(shapes: np.ndarray, dtype: Any) -> tuple[Spec, _ffi.Out | None]:
    """Spec and layout of a kernel's results: dense where their shapes are all the same."""
    if (shapes == shapes[0]).all():
        return Spec(np.dtype(dtype), shapes.shape[1], tuple(shapes[0].tolist())), None
    offsets, elements = plan_offsets(shapes, 1)
    layout = _ffi.Out(elements, jnp.asarray(offsets), jnp.asarray(shapes.astype(np.int32)))
    return Spec(np.dtype(dtype), shapes.shape[1], None), layout


def turn(height: float, width: float, angle: float) -> np.ndarray:
    """Output pixels (y, x) to input pixels, around the centre."""
    c, s = np.cos(angle), np.sin(angle)
    y, x = height / 2, width / 2
    return np.array([[c, -s, y - c * y + s * x], [s, c, x - s * y - c * x]])


def pixels_under(matrix: np.ndarray, shape: np.ndarray) -> int:
    """Number of pixels of an image that a rotation onto a canvas of its size reads."""
    y, x = np.mgrid[: shape[0], : shape[1]] + 0.5
    sy, sx = (np.floor(m[0] * y + m[1] * x + m[2]).astype(int) for m in matrix)
    is_inside = (sy >= 0) & (sy < shape[0]) & (sx >= 0) & (sx < shape[1])
    return min(int(is_inside.sum()), int(shape[0] * shape[1]))


class Batch:
    """The images of a measurement: of one size, or of several.

    Attributes:
      to: side of the squares that images are resized or cut to.
    """

    def __init__(self, dry_run: bool, n: int, dense: bool):
        self.n, (self.height, self.width, self.to) = n, (60, 80, 32) if dry_run else (375, 500, 224)
        self.kind = "one size" if dense else "sizes vary"
        self.images = Images(n, self.height, self.width, dense)
        self.shapes = self.images.shapes
        self.extents = self.shapes[:, :2]
        self.pixels, self.elements = self.extents.prod(1), plan_offsets(self.shapes, 1)[1]
        self.small = np.tile(np.array([self.to, self.to, 3]), (n, 1))

    def crops(self) -> tuple[np.ndarray, np.ndarray]:
        """Random parts of the images as a resize takes them, and the pixels of each."""
        rng = np.random.default_rng(1)
        part = rng.uniform(0.35, 1, (self.n, 2)) * self.extents
        start = rng.uniform(0, 1, (self.n, 2)) * (self.extents - part)
        return np.stack([start, start + part], -1).astype(np.float32), part.prod(1)

    def whole(self) -> np.ndarray:
        return np.stack([np.zeros_like(self.extents), self.extents], -1).astype(np.float32)

    def filters(self, interp: str) -> np.ndarray:
        return np.full((self.n, 2), int(getattr(dali_types, f"INTERP_{interp}")), np.int32)

    def rotations(self) -> np.ndarray:
        """By up to 10 degrees."""
        angles = np.random.default_rng(2).uniform(-0.17, 0.17, self.n)
        return np.stack([turn(h, w, a) for (h, w), a in zip(self.extents, angles, strict=True)])

    def window(self, extents: np.ndarray, mirrored: Any = True) -> list[np.ndarray]:
        """Start, step and extent of a centre crop, mirrored or not, of images of these extents."""
        start, step = (extents - self.to) // 2, np.ones((self.n, 2), int)
        step[:, 1] = np.where(mirrored, -1, 1)
        start[:, 1] += np.where(mirrored, self.to - 1, 0)
        columns = zip((start, step, np.full((self.n, 2), self.to)), (0, 1, 3), strict=True)
        return [np.concatenate([v, np.full((self.n, 1), last)], 1).astype(np.int32) for v, last in columns]

    def scales(self) -> list[np.ndarray]:
        """No fill, and scale and offset of each channel."""
        return [
            np.zeros((self.n, 0), np.float32),
            *np.random.default_rng(3).uniform(0.01, 0.02, (2, self.n, 3)).astype(np.float32),
        ]


RESIZED = {"first_axis": 0, "num_axes": 2, "antialias": True}
WARPED = {"dims": 2, "first": 0, "linear": True, "has_fill": True}


def resize(t: Timings):
    for b in batches(t):
        for interp in ("LINEAR", "CUBIC", "LANCZOS3", "NN"):
            filters = b.filters(interp)
            used = np.minimum(b.extents[:, 0], b.to) * b.extents[:, 1] if interp == "NN" else b.pixels
            t.show(
                f"resize to {b.to}x{b.to}, {interp}, {b.kind}",
                "resize",
                b.images,
                b.small,
                used,
                b.whole(),
                filters,
                **RESIZED,
            )
            if interp == "LINEAR":
                roi, used = b.crops()
                t.show(f"the same, random crops, {b.kind}", "resize", b.images, b.small, used, roi, filters, **RESIZED)
                t.show(
                    f"the same to float32, {b.kind}",
                    "resize",
                    b.images,
                    b.small,
                    used,
                    roi,
                    filters,
                    out=np.float32,
                    **RESIZED,
                )


def warp(t: Timings):
    for b in batches(t):
        maps = b.rotations()
        used = [pixels_under(m, s) for m, s in zip(maps, b.shapes, strict=True)]
        for linear in (True, False):
            name = f"rotate by up to 10 degrees, {'linear' if linear else 'nearest'}, {b.kind}"
            t.show(
                name, "warp", b.images, b.shapes, used, maps, np.zeros(b.n, np.float32), **WARPED | {"linear": linear}
            )


def window(t: Timings):
    for b in batches(t):
        none = [np.zeros((b.n, 0), np.float32)] * 3  # fill, scale, offset
        used, operands = b.to * b.to * np.ones(b.n), b.window(b.extents)
        as_it_is = {"permutation": (0, 1, 2), "channel": -1}
        t.show(
            f"crop to {b.to}x{b.to}, mirrored, {b.kind}",
            "window",
            b.images,
            b.small,
            used,
            *operands,
            *none,
            **as_it_is,
        )
        for permutation, layout in (((2, 0, 1), "CHW"), ((0, 1, 2), "HWC")):
            name, attrs = (
                f"the same, normalised, to {layout} float32, {b.kind}",
                {"permutation": permutation, "channel": 2},
            )
            t.show(
                name, "window", b.images, b.small[:, permutation], used, *operands, *b.scales(), out=np.float32, **attrs
            )


def chain(t: Timings):
    """The last steps of training, evaluation and a rotation. All make float32 in the layout HWC."""
    attrs = {"permutation": (0, 1, 2), "channel": 2}
    for b in batches(t):
        coins, filters, extents = np.random.default_rng(5).integers(0, 2, b.n), b.filters("LINEAR"), b.extents
        roi, used = b.crops()
        train = ("resize", b.small, (roi, filters), RESIZED)
        end = ((*b.window(b.small[:, :2], coins), *b.scales()), attrs)
        t.show_chain(
            f"train: random crops to {b.to}x{b.to}, mirrored at random, normalised, {b.kind}",
            b.images,
            used,
            train,
            end,
            b.small,
        )
        side = b.to * 8 // 7
        resized = np.round(extents * (side / extents.min(1, keepdims=True))).astype(np.int64)
        evaluated = ("resize", np.concatenate([resized, b.shapes[:, 2:]], 1), (b.whole(), filters), RESIZED)
        used = (extents * b.to / resized).prod(1)  # what the crop is made of
        end = ((*b.window(resized, False), *b.scales()), attrs)
        t.show_chain(f"eval: shorter side {side}, crop, normalised, {b.kind}", b.images, used, evaluated, end, b.small)
        rotated = ("warp", b.shapes, (b.rotations(), np.zeros(b.n, np.float32)), WARPED)
        end = ((*b.window(extents, False), *b.scales()), attrs)
        used = b.to * b.to * np.ones(b.n)
        t.show_chain(f"rotate by up to 10 degrees, crop, normalised, {b.kind}", b.images, used, rotated, end, b.small)


def decode(t: Timings):
    """JPEGs from bytes that lie on the device, with groups of several sizes."""
    files = [path.read_bytes() for path in gpu_photos.make(t.n)]
    target = measuring.kernel("decode", t.dry_run)
    for group in GROUPS:
        batch = bench_decode.Batch(files, target, not t.dry_run or target != "decode", t.pool, group << 20)
        written = float(np.sum(batch.shapes.prod(1)))
        t.row(f"decode, groups of {group:,} MiB", several_decoded(batch), batch.bytes + written)


def several_decoded(batch: bench_decode.Batch) -> Callable[[Any], Any]:
    # Number 5: control.
    operands_before, operands_after = (
        [jnp.asarray(x) for x in part] for part in (batch.operands[:5], batch.operands[6:])
    )

    @jax.jit
    def program(operands_before, controls, operands_after):
        calls = [batch.decode(*operands_before, c, *operands_after) for c in controls]
        return [pixels for pixels, _ in calls], [status for _, status in calls]

    return lambda controls: program(operands_before, controls, operands_after)


def batches(t: Timings) -> list[Batch]:
    return [Batch(t.dry_run, t.n, dense) for dense in (True, False)]


def varying(t: Timings, kernel: str) -> tuple[Batch, Callable[..., None]]:
    """Images whose sizes vary, and what times a kernel whose results have their shapes."""
    b = Batch(t.dry_run, t.n, dense=False)
    return b, lambda name, *params, **attrs: t.show(name, kernel, b.images, b.shapes, b.pixels, *params, **attrs)


def color(t: Timings):
    _, show = varying(t, "color")
    show("colours by a matrix", np.random.default_rng(4).uniform(-1, 1, (t.n, 3, 4)).astype(np.float32))


def table(t: Timings):
    _, show = varying(t, "table")
    show("a table for each channel", np.random.default_rng(4).integers(0, 256, (t.n, 3, 256)).astype(np.uint8))


def filter(t: Timings):
    b, show = varying(t, "filter")
    for size in (3, 5, 13):
        weights, taps = np.full((t.n, 2, size), 1 / size, np.float32), np.full((t.n, 2), size, np.int32)
        show(f"blur of {size}x{size}", weights, taps, first=0, axes=2, scratch=4 * b.elements)


def stencil(t: Timings):
    _, show = varying(t, "stencil")
    for reduction, size in (
        (StencilReduction.MEDIAN, 3),
        (StencilReduction.MEDIAN, 5),
        (StencilReduction.MAX, 3),
        (StencilReduction.SUM, 5),
    ):
        weights, extent = np.full((t.n, size * size), 1 / size**2, np.float32), np.full((t.n, 2), size, np.int32)
        attrs = {"first": 0, "axes": 2, "reduction": int(reduction), "border": int(Border.REFLECT_101)}
        show(
            f"{reduction.name.lower()} of {size}x{size}",
            weights,
            extent,
            extent // 2,
            np.zeros(t.n, np.float32),
            **attrs,
        )


def reduce(t: Timings):
    b = Batch(t.dry_run, t.n, dense=False)
    for reduction in (Reduction.SUM, Reduction.MAX):
        attrs = {"reduction": int(reduction), "axes": (0, 1), "out": np.float64, "scratch": b.elements // 32 * 8}
        name = f"{reduction.name.lower()} of each channel"
        t.show(name, "reduce", b.images, np.full((t.n, 1), 3), b.pixels, np.zeros((t.n, 0)), **attrs)


def equalize(t: Timings):
    b, show = varying(t, "equalize")
    for tiles, description in ((1, "of whole channels"), (8, "in 8x8 tiles")):
        first = np.arange(t.n, dtype=np.int32) * 3 * tiles * tiles
        scratch = 256 * (3 * tiles * tiles * t.n + b.elements // 8192 * 4)
        attrs = {"height_axis": 0, "tiles_y": tiles, "tiles_x": tiles, "stretch": tiles == 1, "scratch": scratch}
        show(f"equalization {description}", np.zeros(t.n, np.float32), first, np.zeros(0, np.int32), **attrs)


def jpeg_distortion(t: Timings):
    b, show = varying(t, "jpeg_distortion")
    units = (-(-b.extents // MCU_SIDE)).prod(1)
    first, tables = (
        (units.cumsum() - units).astype(np.int32),
        np.random.default_rng(4).integers(1, 60, (t.n, 2, 64)).astype(np.int32),
    )
    show("JPEG distortion", tables, first, scratch=MCU_BYTES * int(units.sum()))


def remap(t: Timings):
    b, show = varying(t, "remap")
    points = [np.zeros(0, np.float32), np.zeros(0, np.int32)] * 2
    matrices = np.stack([np.concatenate([turn(h, w, 0.1).ravel(), [1e-5, 1e-5, 1]]) for h, w in b.extents])
    for interp in (Interp.NN, Interp.LINEAR, Interp.CUBIC):
        attrs = {"points": int(Points.PROJECTIVE), "sampling": int(interp), "border": int(Border.CONSTANT), "first": 0}
        show(
            f"perspective, {interp.name.lower()}",
            *points,
            matrices,
            np.zeros((t.n, 1), np.float32),
            np.ones(t.n, np.int32),
            **attrs,
        )


def paste(t: Timings):
    b = Batch(t.dry_run, t.n, dense=False)
    half = np.array([b.height // 2, b.width // 2])
    canvas = np.tile([*2 * half, 3], (t.n, 1))
    regions = np.zeros((t.n, 4, 7), np.int32)  # of the sources' corners
    regions[..., 0], regions[..., 3:5] = np.random.default_rng(4).integers(0, t.n, (t.n, 4)), half
    regions[..., 5:] = half * [(0, 0), (0, 1), (1, 0), (1, 1)]
    t.show("mosaics of four images", "paste", b.images, canvas, canvas[:, :2].prod(1), regions, first=0)


def expand(t: Timings):
    b = Batch(t.dry_run, t.n, dense=False)
    gray = Images(t.n, b.height, b.width, dense=False, channels=1)
    t.show("gray to three channels", "expand", gray, b.shapes, b.pixels)


def patchify(t: Timings):
    """The patches of language models, as float32."""
    side = 112 if t.dry_run else 448
    images = Images(t.n, side, side, dense=True)
    _, scale, offset = Batch(t.dry_run, t.n, dense=True).scales()
    for model, patch, merge, frames, axes in (
        ("Qwen2-VL", 14, 2, 2, (3, 0, 1, 2)),
        ("SigLIP 2", 16, 1, 1, (0, 1, 2, 3)),
    ):
        attrs = {"patch_size": (patch, patch), "merge_size": merge, "temporal_patch_size": frames, "axes": axes}
        shapes = np.tile([(side // patch) ** 2, frames * 3 * patch**2], (t.n, 1))
        operands = scale, offset, np.zeros((t.n, 0), np.int32)
        t.show(
            f"patches of {model}, {side}x{side}",
            "patchify",
            images,
            shapes,
            images.shapes[:, :2].prod(1),
            *operands,
            out=np.float32,
            **attrs,
        )


def merge(t: Timings):
    _, show = varying(t, "merge")
    show("copied into a batch", np.zeros(0, np.uint8))


KERNELS: dict[str, Callable[[Timings], None]] = {
    f.__name__: f
    for f in (
        *(
            chain,
            decode,
            resize,
            warp,
            window,
            color,
            filter,
            remap,
            stencil,
            equalize,
            jpeg_distortion,
            paste,
            table,
            reduce,
        ),
        *(expand, merge, patchify),
    )
}


@contextlib.contextmanager
def locked(shared: str):
    """The file that is shared, while no other process uses the GPU. A process that hangs ends, and says where."""
    with open(shared, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        faulthandler.dump_traceback_later(MOST_SECONDS, exit=True)
        file.seek(0)
        yield file


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel", choices=KERNELS)
    parser.add_argument("shared")
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args()
    n = 4 if args.dry_run else args.images
    pool = _cpu.pool_create(4)
    with locked(args.shared) as file, jax.enable_x64(True), jax.default_device(measuring.device(args.dry_run)):
        if not (text := file.read()):
            bandwidth = measuring.copy_bandwidth(args.dry_run)
            print_row(f"a copy of 1 GB, {bandwidth / 1e9:,.0f} GB/s read and written", 2e9 / bandwidth, 2e9, bandwidth)
            print(text := str(bandwidth), file=file, flush=True)
        KERNELS[args.kernel](Timings(args.dry_run, n, float(text), pool))
    _cpu.pool_destroy(pool)


if __name__ == "__main__":
    main()
