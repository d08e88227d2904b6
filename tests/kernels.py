"""Random batches for the native kernels, to compare two implementations of one."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from images import picture
from kernel_calls import INTERNAL, Case, differences, run
from kernel_calls import assert_agree as assert_agree
from ml_dtypes import bfloat16

from jaxdali import _cpu
from jaxdali._core.ragged import ALIGNMENT, plan_offsets
from jaxdali._cpu import Border, Interp, Points, Reduction, StencilReduction
from jaxdali.types import is_float


def noise(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    dtype = np.dtype(dtype)
    if is_float(dtype):
        return (rng.standard_normal(shape) * 100).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def extents(rng: np.random.Generator, n: int, most: int) -> tuple[int, ...]:
    return tuple(int(x) for x in rng.integers(1, most, n))


def warp_cases(rng: np.random.Generator) -> Iterator[Case]:
    f32 = np.float32
    for in_type, out_type in [
        (t, o) for t in (np.uint8, np.int16, np.int32, np.float16, bfloat16, f32) for o in dict.fromkeys((t, f32))
    ] + [
        (f32, np.float16),
        (f32, bfloat16),
        (f32, np.uint8),
        (f32, np.int16),
        (f32, np.int32),
    ]:
        for dims, first, linear, has_fill in [
            (2, 0, True, True),
            (2, 1, True, False),
            (2, 0, False, True),
            (2, 1, False, False),
            (3, 1, True, True),
            (3, 0, True, False),
            (3, 0, False, False),
        ]:
            samples, shapes, maps = [], [], []
            for i in range(4):
                frames, channels = extents(rng, first, 4), (int(rng.integers(1, 5)),)
                samples.append(noise(rng, (*frames, *extents(rng, dims, 30 if dims == 2 else 9), *channels), in_type))
                shapes.append((*frames, *extents(rng, dims, 40 if dims == 2 else 10), *channels))
                matrix, shift = (
                    np.eye(dims) + rng.standard_normal((dims, dims)) * (0 if i == 0 else 0.5),
                    rng.standard_normal(dims) * 3,
                )
                if i == 3:  # mirrored and scaled
                    matrix = np.diag(rng.uniform(0.2, 3, dims) * np.where(rng.integers(2, size=dims), -1, 1))
                    shift = np.where(np.diag(matrix) < 0, samples[-1].shape[first : first + dims][::-1], 0)
                maps.append(np.concatenate([matrix, shift[:, None]], axis=1))
            attrs = {"dims": dims, "first": first, "linear": linear, "has_fill": has_fill}
            note = f"{np.dtype(in_type)}->{np.dtype(out_type)} {attrs}"
            # Unblended: of the output's type alone.
            fill = np.full(4, 42 if linear or out_type is not f32 else 70000, f32)
            yield Case("warp", samples, np.dtype(out_type), shapes, (np.array(maps), fill), attrs, not linear, note)
    for linear in (True, False):
        samples = [noise(rng, (*extents(rng, 2, 60), channels), np.uint8) for channels in (5, 3, 12, 1)]
        shapes = [(*extents(rng, 2, 90), x.shape[-1]) for x in samples]
        maps = np.concatenate(
            [np.eye(2) + rng.standard_normal((4, 2, 2)) / 4, rng.standard_normal((4, 2, 1)) * 3], axis=2
        )
        attrs = {"dims": 2, "first": 0, "linear": linear, "has_fill": True}
        yield Case(
            "warp",
            samples,
            np.dtype(np.uint8),
            shapes,
            (maps, np.full(4, 42, f32)),
            attrs,
            not linear,
            f"many channels {attrs}",
        )


def remap_cases(rng: np.random.Generator) -> Iterator[Case]:
    """Points of each kind; those of waves and spheres where no pixel is nearest by a hair."""
    for number in range(150):
        points, sampling, border = (
            number % len(Points),
            int(rng.integers(Interp.CUBIC + 1)),
            int(rng.integers(len(Border))),
        )
        types = (np.uint8, np.uint16, np.int16, np.float16, bfloat16, np.float32, *[np.int32] * (sampling == Interp.NN))
        dtype, channels, first = types[int(rng.integers(len(types)))], int(rng.integers(1, 5)), int(rng.integers(2))
        planar, shared = bool(rng.integers(2)), bool(rng.integers(2))
        samples, shapes, numbers, maps = [], [], [], []
        for i in range(5):
            frames, tail = extents(rng, first, 4), () if planar else (channels,)
            size = extents(rng, 2, 40)
            samples.append(noise(rng, (*frames, *size, *tail), dtype))
            shapes.append((*frames, *(size if i in (0, 4) else extents(rng, 2, 50)), *tail))
            shift, key = rng.uniform(-9, 9, 2), rng.random()
            matrix = np.eye(3) + rng.uniform(-0.3, 0.3, (3, 3)) * [[1, 1, 9], [1, 1, 9], [0.01, 0.01, 0]]
            num_points = frames[0] if first and not shared else 1
            numbers.append(
                [
                    [num_points, 0.5],
                    matrix.ravel(),
                    [],
                    [5.3, 0.31, 0.2, 4.1, 0.17, 1.1],
                    [key, rng.integers(1, 9)],
                    [np.cos(key) / 7, np.sin(key) / 7, 0.4, *shift],
                ][points]
            )
            maps.append(
                [rng.uniform(-5, 45, (num_points, *shapes[-1][first : first + 2])).astype(np.float32) for _ in range(2)]
            )
        fill = rng.integers(0, 99, (5, 1 if planar or number % 4 else channels)).astype(np.float32)
        given_points = []
        for axis in range(2):
            offsets, need = plan_offsets(np.array([[m[axis].size] for m in maps]), 1)
            flat = np.zeros(need, np.float32)
            for offset, m in zip(offsets, maps, strict=True):
                flat[offset * ALIGNMENT :][: m[axis].size] = m[axis].ravel()
            given_points += (
                [flat, offsets] if points == Points.GIVEN else [np.zeros(0, np.float32), np.zeros(0, np.int32)]
            )
        params = (*given_points, np.array(numbers, np.float64), fill, np.array([1, 1, 1, 1, number % 2], np.int32))
        attrs = {"points": points, "sampling": sampling, "border": border, "first": first}
        yield Case("remap", samples, np.dtype(dtype), shapes, params, attrs, False, f"{np.dtype(dtype)} {attrs}")


def resize_cases(rng: np.random.Generator) -> Iterator[Case]:
    yield from large_resize_cases(rng)
    for in_type in (np.uint8, np.int16, np.uint16, np.float16, bfloat16, np.float32):
        for out_type in dict.fromkeys(
            (in_type, np.float32, bfloat16, np.float32 if in_type is np.uint16 else np.float16)
        ):  # too large for it
            for interp in map(int, Interp):
                for axes, first, rank in [(2, 0, 3), (1, 1, 3), (2, 1, 3), (3, 0, 4)]:
                    samples, shapes, roi = [], [], []
                    for i in range(4):
                        dims = [*extents(rng, rank, 40 if axes < 3 else 12)]
                        if first + axes < rank:
                            dims[-1] = int(rng.integers(1, 7))
                        samples.append(noise(rng, tuple(dims), in_type))
                        out = list(dims)
                        for a in range(first, first + axes):
                            out[a] = int(rng.integers(1, 40 if axes < 3 else 12))
                        shapes.append(tuple(out))
                        whole = [[0, dims[a]] for a in range(first, first + axes)]
                        part = [sorted(rng.uniform(0, n, 2), reverse=i == 3) for _, n in whole]
                        roi.append(whole if i < 2 else part)
                    antialias = bool(rng.integers(2))
                    filters = np.full((4, 2), interp, np.int32)
                    filters[1] = rng.integers(0, len(Interp), 2)  # different ones for shrinking and enlarging
                    attrs = {"first_axis": first, "num_axes": axes, "antialias": antialias}
                    note = f"{np.dtype(in_type)}->{np.dtype(out_type)} filter {interp} {attrs}"
                    yield Case(
                        "resize",
                        samples,
                        np.dtype(out_type),
                        shapes,
                        (np.array(roi, np.float32), filters),
                        attrs,
                        False,
                        note,
                    )


def large_resize_cases(rng: np.random.Generator) -> Iterator[Case]:
    """Everything that a tile of the CUDA kernel is too small for: extents, taps, channels."""
    images = [
        ((300, 400, 3), (3, 4)),  # hundreds of taps
        ((600, 20, 1), (2, 700)),
        ((7, 9, 3), (150, 260)),
        ((90, 333, 1), (70, 900)),
        ((12, 17, 300), (9, 30)),
        ((61, 50, 130), (20, 11)),
        ((90, 101, 3), (200, 49)),
        ((70, 83, 4), (66, 300)),
    ]
    u8, f16, f32 = np.uint8, np.float16, np.float32
    for in_type, out_type, interps in [(u8, u8, (0, 1, 3)), (u8, f32, (0, 2)), (f16, f16, (1,)), (f32, f32, (0, 4))]:
        for interp in interps:
            samples = [noise(rng, shape, in_type) for shape, _ in images]
            shapes = [(*size, shape[2]) for shape, size in images]
            roi = np.array([[[0, shape[a]] for a in range(2)] for shape, _ in images], np.float32)
            roi[2::2, 0] = roi[2::2, 0, ::-1]  # mirrored
            roi[3::2, 1] = roi[3::2, 1, ::-1]
            roi[5] += [[3.3, -2.7], [-5.2, 4.9]]
            roi[6] *= rng.uniform(0.2, 0.9, (2, 2))
            filters = np.full((len(images), 2), interp, np.int32)
            filters[7] = (interp, 0)
            attrs = {"first_axis": 0, "num_axes": 2, "antialias": True}
            note = f"large {np.dtype(in_type)}->{np.dtype(out_type)} filter {interp}"
            yield Case("resize", samples, np.dtype(out_type), shapes, (roi, filters), attrs, False, note)


def window_cases(rng: np.random.Generator) -> Iterator[Case]:
    none = np.zeros((5, 0), np.float32)
    for dtype in (np.uint8, np.float16, bfloat16, np.int32, np.float64, np.bool_):
        for ndim in (1, 2, 3, 5):
            samples, shapes, params = [], [], []
            for _ in range(5):
                dims = extents(rng, ndim, 9)
                samples.append(noise(rng, dims, dtype))
                ranges = []
                for n in dims:
                    a, b = sorted(rng.integers(0, n + 1, 2))
                    step = int(rng.choice([1, 1, 2, -1, -3]))
                    ranges.append(range(a, b, step) if step > 0 else range(b - 1, a - 1, step))
                shapes.append(tuple(len(r) for r in ranges))
                params.append([(r.start if len(r) else 0, r.step, len(r)) for r in ranges])
            params[-1][0] = (samples[-1].shape[0], 1, max(shapes[-1][0], 1))  # outside
            operands = np.array(params, np.int32)
            attrs = {"permutation": tuple(range(ndim)), "channel": -1}
            yield Case(
                "window",
                samples,
                np.dtype(dtype),
                shapes,
                (*(operands[..., k] for k in range(3)), none, none, none),
                attrs,
                True,
                f"{dtype} {ndim}",
            )
    yield from computed_window_cases(rng)
    yield from planes_of_pixels_cases(rng)
    for channels in (3, 4):  # mirrored crops
        samples = [noise(rng, (*rng.integers(20, 90, 2).tolist(), channels), np.uint8) for _ in range(5)]
        crops = np.array([[rng.integers(1, n + 1) for n in x.shape[:2]] for x in samples])
        first = np.array(
            [
                [rng.integers(n - m + 1) for n, m in zip(x.shape, c, strict=False)]
                for x, c in zip(samples, crops, strict=True)
            ]
        )
        start = np.stack([first[:, 0], first[:, 1] + crops[:, 1] - 1, np.zeros(5, np.int64)], axis=1)
        step, extent = np.tile([1, -1, 1], (5, 1)), np.column_stack([crops, np.full(5, channels)])
        params = (*(x.astype(np.int32) for x in (start, step, extent)), none, none, none)
        attrs = {"permutation": (0, 1, 2), "channel": -1}
        shapes = [tuple(x) for x in extent.tolist()]
        yield Case("window", samples, np.dtype(np.uint8), shapes, params, attrs, True, f"mirrored, {channels} channels")


def computed_window_cases(rng: np.random.Generator) -> Iterator[Case]:
    """Windows with fill, scale and offset, permutations, and other types of results."""
    types = (np.uint8, np.int8, np.int16, np.int32, np.float16, bfloat16, np.float32, np.float64, np.bool_)
    for number in range(120):
        source, result = (np.dtype(t) for t in rng.choice(np.array(types), 2))
        ndim = int(rng.integers(1, 6))
        permutation = tuple(int(d) for d in (rng.permutation(ndim) if number % 2 else range(ndim)))
        channel = int(rng.integers(-1, ndim)) if number % 3 else ndim - 1
        fills, scales = int(rng.integers(0, 4)), int(rng.integers(0, 4))
        if number % 4 == 0:
            source = result = np.dtype(np.uint8)
        if result == np.float16:  # others are too large for it
            source = np.dtype(np.uint8)
        samples, shapes, start, step, extent = [], [], [], [], []
        for _ in range(5):
            dims = extents(rng, ndim, 40 if ndim < 4 else 6)
            if number % 3 == 0:
                dims = (*dims[:-1], int(rng.choice([1, 3, 4])))
            by = rng.choice([1, 1, 1, -1, 2, -3], ndim) if number % 5 else np.where(np.arange(ndim) == ndim - 2, -1, 1)
            first = np.where(by < 0, np.array(dims) - 1, 0) + (rng.integers(-3, 4, ndim) if number % 2 else 0)
            start.append(first)
            step.append(by)
            extent.append(
                np.maximum(0, np.array(dims) // np.abs(by) + (rng.integers(-2, 3, ndim) if number % 2 else 0))
            )
            samples.append(noise(rng, dims, source))
            shapes.append(tuple(int(extent[-1][d]) for d in permutation))
        numbers = [rng.uniform(-3, 3, (5, n)).astype(np.float32) for n in (fills, scales, scales)]
        params = (*(np.array(x, np.int32) for x in (start, step, extent)), *numbers)
        note = f"{source}->{result} {permutation} channel {channel} {fills} {scales}"
        yield Case(
            "window", samples, result, shapes, params, {"permutation": permutation, "channel": channel}, False, note
        )


def planes_of_pixels_cases(rng: np.random.Generator) -> Iterator[Case]:
    """Images of three channels, mirrored or not, partly outside, as planes and as pixels: what the CPU does sixteen
    pixels at a time.
    """
    for number in range(48):
        result = np.dtype((np.uint8, np.float32, np.float16, bfloat16)[(number + number // 4) % 4])
        frames, back = number % 4 == 0, number % 2
        samples, start, extent = [], [], []
        for _ in range(3):
            dims = (*extents(rng, 2 + frames, 60)[-2 - frames :], 3)
            outside = rng.integers(-2, 4, len(dims)) * ([0] * frames + [1, 1, number % 8 == 1])
            samples.append(noise(rng, dims, np.uint8))
            start.append([*[0] * frames, int(outside[-3]), dims[-2] - 1 - outside[-2] if back else outside[-2], 0])
            extent.append([*dims[:-1], 3 + abs(int(outside[-1]))])
        step = [[*[1] * (frames + 1), -1 if back else 1, 1]] * 3
        axes = tuple(range(frames))
        permutation = (
            *axes,
            *(frames + np.array([(2, 0, 1), (2, 0, 1), (2, 1, 0), (0, 1, 2), (1, 2, 0)][number % 5])).tolist(),
        )
        shapes = [tuple(int(e[d]) for d in permutation) for e in extent]
        scales = 0 if result == np.uint8 and number % 2 else (1, 3)[number // 3 % 2]
        numbers = [rng.uniform(-3, 3, (3, n)).astype(np.float32) for n in (3, scales, scales)]
        params = (*(np.array(x, np.int32) for x in (start, step, extent)), *numbers)
        attrs = {"permutation": permutation, "channel": frames + 2}
        yield Case("window", samples, result, shapes, params, attrs, False, f"{result} {permutation} {back} {scales}")


def paste_cases(rng: np.random.Generator) -> Iterator[Case]:
    for number in range(40):
        source, result = (np.dtype(t) for t in rng.choice(np.array([np.uint8, np.int16, np.int32, np.float32]), 2))
        first, channels, num_regions = number % 2, int(rng.integers(1, 5)), int(rng.integers(0, 4))
        frames = extents(rng, first, 3)
        samples = [noise(rng, (*frames, *extents(rng, 2, 30), channels), source) for _ in range(5)]
        shapes = [(*frames, *extents(rng, 2, 50), channels) for _ in range(5)]
        regions = np.zeros((5, num_regions, 7), np.int32)
        for i in range(5):
            for k in range(num_regions):
                source_sample = int(rng.integers(-1, 5)) if number % 5 else 0  # the dense batch is sample 0 alone
                have, to = np.array(samples[source_sample].shape[first:-1]), np.array(shapes[i][first:-1])
                size = rng.integers(0, np.minimum(have, to) + 1)
                place = rng.integers(0, to - size + 1) + (k == 2 and number % 7 == 0) * 50
                regions[i, k] = [source_sample, *rng.integers(0, have - size + 1), *size, *place]
        yield Case(
            "paste", samples, result, shapes, (regions,), {"first": first}, False, f"{source}->{result} {num_regions}"
        )


def expand_cases(rng: np.random.Generator) -> Iterator[Case]:
    for dtype in (np.uint8, np.int16, np.float32, np.int64, np.bool_):
        for ndim, missing in [(1, 0), (2, 1), (3, 0), (3, 2), (4, 1)]:
            shapes = [extents(rng, ndim, 9) for _ in range(5)]
            samples = [noise(rng, tuple(n if rng.integers(2) else 1 for n in s[missing:]), dtype) for s in shapes]
            shapes[-1] = (*shapes[-1][:-1], shapes[-1][-1] + 1)  # does not fit, unless the axis is 1
            yield Case("expand", samples, np.dtype(dtype), shapes, (), {}, True, f"{dtype} {ndim} {missing}")


def merge_cases(rng: np.random.Generator) -> Iterator[Case]:
    for dtype in (np.uint8, np.int16, np.float32, np.int64, np.bool_):
        for ndim in range(1, 5):
            samples = [noise(rng, extents(rng, ndim, 40 if ndim < 4 else 9), dtype) for _ in range(4)]
            yield Case(
                "merge",
                samples,
                np.dtype(dtype),
                [x.shape for x in samples],
                (np.zeros(0, dtype),),
                {},
                True,
                f"{dtype} {ndim}",
            )


def table_cases(rng: np.random.Generator) -> Iterator[Case]:
    for channels in range(1, 5):
        for tables in (1, channels):
            for _ in range(4):
                samples = [noise(rng, (*extents(rng, 2, 60), channels), np.uint8) for _ in range(4)]
                table = rng.integers(0, 256, (4, tables, 256)).astype(np.uint8)
                yield Case(
                    "table",
                    samples,
                    np.dtype(np.uint8),
                    [x.shape for x in samples],
                    (table,),
                    {},
                    True,
                    f"{channels} {tables}",
                )


def patchify_cases(rng: np.random.Generator) -> Iterator[Case]:
    orders = [(0, 1, 2, 3), (3, 0, 1, 2), (0, 3, 1, 2), (1, 2, 3, 0), (2, 3, 0, 1)]
    for number in range(60):
        source = (np.uint8, np.int16, np.uint16, np.float16, bfloat16, np.float32)[max(0, number % 12 - 6)]
        result = (np.uint8, np.float16, bfloat16, np.float32)[number % 4]
        order = orders[number // 2 % 5] if number % 10 else tuple(map(int, rng.permutation(4)))
        channels, merge, frames_of_patch = 3 if number % 3 else int(rng.integers(1, 6)), *extents(rng, 2, 4)
        h, w = (14, 14) if number % 4 == 1 else (16, 16) if number % 4 == 2 else extents(rng, 2, 20)
        samples, shapes = [], []
        for i in range(4):
            frames = (int(rng.integers(1, 6)),) * (number % 5 > 2)
            rows, columns = extents(rng, 2, 4)
            samples.append(
                noise(rng, (*frames, rows * merge * h + (number % 7 == i), columns * merge * w, channels), source)
            )
            tokens = -(-(frames or (1,))[0] // frames_of_patch) * rows * columns * merge**2
            shapes.append((tokens + int(rng.integers(-1, 3)) * (number % 3), frames_of_patch * h * w * channels))
        scales = (0, 1, channels)[number % 3]
        scale, offset = (rng.standard_normal((4, scales)).astype(np.float32) * k for k in (1, 100))
        attrs = {
            "patch_size": (h, w),
            "merge_size": merge,
            "temporal_patch_size": frames_of_patch,
            "axes": order,
        }
        params = (scale, offset, np.zeros((4, 0), np.int32))
        yield Case(
            "patchify", samples, np.dtype(result), shapes, params, attrs, True, f"{source}->{result} {channels} {attrs}"
        )


def color_cases(rng: np.random.Generator) -> Iterator[Case]:
    for source, result in [
        (np.uint8, np.uint8),
        (np.uint8, np.float32),
        (np.float32, np.float16),
        (np.uint8, bfloat16),
        (bfloat16, np.float32),
        (np.int16, np.int8),
        (np.int32, np.float32),
    ]:
        for channels, colors in [(3, 3), (1, 1), (3, 1), (4, 2), (1, 4)]:
            samples = [noise(rng, (*extents(rng, 2, 60), channels), source) for _ in range(4)]
            shapes = [(*x.shape[:2], colors) for x in samples]
            matrix = rng.uniform(-2, 2, (4, colors, channels + 1)).astype(np.float32)
            yield Case(
                "color",
                samples,
                np.dtype(result),
                shapes,
                (matrix,),
                {},
                False,
                f"{source} {result} {channels} {colors}",
            )


def filter_cases(rng: np.random.Generator) -> Iterator[Case]:
    for source, result in [
        (np.uint8, np.uint8),
        (np.uint8, np.float32),
        (np.float32, np.float32),
        (np.int16, np.int16),
        (np.float16, np.float16),
        (bfloat16, bfloat16),
    ]:
        for first, axes, rank in [(0, 1, 1), (0, 2, 3), (1, 2, 3), (0, 3, 4), (1, 2, 4)]:
            samples = [noise(rng, extents(rng, rank, 50 if rank < 4 else 9), source) for _ in range(4)]
            window = rng.uniform(0, 0.1, (4, axes, 9)).astype(np.float32)
            taps = rng.choice([1, 3, 5, 9], (4, axes)).astype(np.int32)
            attrs = {"first": first, "axes": axes, "scratch": 1 << 22}
            shapes = [x.shape for x in samples]
            yield Case(
                "filter", samples, np.dtype(result), shapes, (window, taps), attrs, False, f"{source} {result} {attrs}"
            )


def equalize_cases(rng: np.random.Generator) -> Iterator[Case]:
    from jaxdali.fn._image.clahe import lab_tables

    shapes = [
        (0, 2, 1, 1, 0),
        (1, 4, 1, 1, 0),
        (0, 3, 3, 4, 0),
        (1, 3, 2, 5, 0),
        (2, 4, 1, 3, 0),
        (0, 3, 8, 8, 0),
        (0, 3, 2, 2, 1),
        (1, 4, 3, 2, 1),
    ]
    for height_axis, rank, tiles_y, tiles_x, lab in shapes:
        for stretch in (False, True):
            samples = [
                noise(rng, (*extents(rng, rank - 1, 50 if rank < 4 else 9), 3), np.uint8) // (i + 1) for i in range(4)
            ]
            first = np.array([100 * i * tiles_y * tiles_x for i in range(4)], np.int32)
            tables = lab_tables() if lab else np.zeros(0, np.int32)
            attrs = {
                "height_axis": height_axis,
                "tiles_y": tiles_y,
                "tiles_x": tiles_x,
                "stretch": stretch,
                "scratch": 1 << 24,
            }
            params = (np.array([0, 2, 0.1, 40], np.float32), first, tables)
            yield Case(
                "equalize", samples, np.dtype(np.uint8), [x.shape for x in samples], params, attrs, True, f"{attrs}"
            )


def stencil_cases(rng: np.random.Generator) -> Iterator[Case]:
    for source, result in [
        (np.uint8, np.uint8),
        (np.int16, np.float32),
        (np.float32, np.float32),
        (np.float16, np.float16),
        (bfloat16, bfloat16),
    ]:
        for reduction in map(int, StencilReduction):
            for border, (first, axes, rank) in zip(
                map(int, Border), [(0, 2, 3), (1, 2, 3), (0, 3, 4), (0, 2, 2), (1, 2, 4)], strict=True
            ):
                samples = [noise(rng, extents(rng, rank, 40 if rank < 4 else 7), source) for _ in range(4)]
                window = rng.integers(1, 9 if axes == 2 else 4, (4, axes)).astype(np.int32)
                if axes == 2:
                    window[:3] = np.array([3, 5, 17])[:, None]  # the ways of the CUDA kernel of medians
                anchor = rng.integers(0, window).astype(np.int32)
                weights = rng.uniform(-0.1, 0.1, (4, 512)).astype(np.float32)
                shapes = [x.shape for x in samples]
                shapes[1] = tuple(max(1, n - 2) if first <= d < first + axes else n for d, n in enumerate(shapes[1]))
                attrs = {"first": first, "axes": axes, "reduction": reduction, "border": border}
                params = (weights, window, anchor, rng.uniform(-50, 50, 4).astype(np.float32))
                yield Case(
                    "stencil", samples, np.dtype(result), shapes, params, attrs, False, f"{source} {result} {attrs}"
                )


def jpeg_distortion_cases(rng: np.random.Generator) -> Iterator[Case]:
    for number in range(16):
        frames = extents(rng, number % 2, 4)
        samples = [
            np.broadcast_to(picture(h, w), (*frames, h, w, 3)) for h, w in (extents(rng, 2, 60) for _ in range(4))
        ]
        tables = rng.integers(1, 256, (4, 2, 64)).astype(np.int32)
        first = np.arange(4, dtype=np.int32) * 100
        yield Case(
            "jpeg_distortion",
            samples,
            np.dtype(np.uint8),
            [x.shape for x in samples],
            (tables, first),
            {"scratch": 1 << 18},
            True,
        )


def reduce_cases(rng: np.random.Generator) -> Iterator[Case]:
    for source in (np.uint8, np.int32, np.float16, bfloat16, np.float32, np.bool_):
        for axes in [(), (0,), (0, 1), (1,), (2,), (0, 2), (0, 1, 2)]:
            for reduction in map(int, Reduction):
                samples = [noise(rng, extents(rng, 3, 40), source) for _ in range(3)]
                samples.append(noise(rng, (170, 130, 3), source))  # several parts a result
                shapes = [tuple(n for d, n in enumerate(x.shape) if d not in axes) for x in samples]
                attrs = {"reduction": reduction, "axes": axes, "scratch": 1 << 17}
                yield Case(
                    "reduce",
                    samples,
                    np.dtype(np.float64),
                    shapes,
                    (np.zeros((4, 0)),),
                    attrs,
                    False,
                    f"{source} {attrs}",
                )


CASES = {
    name.removesuffix("_cases"): make
    for name, make in list(globals().items())
    if f"jaxdali_{name.removesuffix('_cases')}" in _cpu.targets()
}


def compare(kernel: str, target: str = "", device: Any = None, seed: int = 0, most: int = 0) -> int:
    """Compares an implementation with the CPU's over all cases, or about `most`; returns their number.

    Raises:
      AssertionError: some differ: lists all of them, in at most 30 lines of 300 characters.
      RuntimeError: a call failed: names its case. The cases that follow are not run.
    """
    cpu = jax.devices("cpu")[0]
    number = runs = 0
    wrong: list[str] = []
    cases = list(CASES[kernel](np.random.default_rng(seed)))
    for number, case in enumerate(cases[:: max(1, len(cases) // most) if most else 1], 1):
        for options in ({}, {"dense": True}, {"present": [1, 0, *[1] * (len(case.samples) - 2)], "broken": 2}):
            if options and number % 5:
                continue
            name = f"case {number}{''.join(f', {key}' for key in options)}: {case.note}"
            runs += 1
            try:
                expected = run(case, device=cpu, **options)
                actual = run(case, target, device=device or cpu, **options)
                if options.get("present"):
                    # Nothing is said about an absent sample's data.
                    actual[0][1] = expected[0][1] = np.zeros_like(expected[0][1])
                    assert (expected[1][1], expected[1][2]) == (0, INTERNAL)
                if lines := differences(case, actual, expected):
                    wrong.append(f"{name}: {len(lines)} of {len(expected[1])} samples: {lines[0]}")
            except AssertionError as e:
                wrong.append(f"{name}: {' '.join(str(e).split())}")
            except Exception as e:
                lines = "".join(f"\n{line[:300]}" for line in wrong[:30])
                raise RuntimeError(
                    f"{kernel}: {name}: {type(e).__name__}: {str(e)[:300]}; {len(wrong)} differed before{lines}"
                ) from e
    if wrong:
        remainder = [f"and {len(wrong) - 29} more"] if len(wrong) > 30 else []
        lines = [line[:300] for line in wrong[: 29 if remainder else 30]] + remainder
        raise AssertionError("\n".join([f"{kernel}: {len(wrong)} of {runs} batches differ", *lines]))
    return number
