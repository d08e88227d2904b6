"""Checks of JPEG decoding by kernels, on a GPU and emulated: libjpeg-turbo's pixels, or a refusal."""

import dataclasses
import io
import re
import types as python_types
from collections.abc import Iterable, Sequence
from typing import Any

import emulated
import jax
import jax.numpy as jnp
import numpy as np
from jpeg_corpus import File, by_pillow, corpus
from PIL import Image, ImageChops

from jaxdali import _cpu, types
from jaxdali._core import ffi as _ffi
from jaxdali._core.ragged import Packed, Ragged, pack, plan_offsets
from jaxdali._core.values import Spec
from jaxdali._cpu import Status
from jaxdali.fn._decode import info_rows
from jaxdali.fn._decode.decode_arguments import DTYPES, OUTPUT_TYPES

BATCH = 64
INTERNAL = _cpu.Status.INTERNAL


@dataclasses.dataclass(frozen=True)
class Kernels:
    """Where JPEG kernels run: the FFI target and the device."""

    target: str
    device: Any
    subsequence_bits: int = 0  # that a thread decodes at a time; 0: chosen by the amount of data
    groups: int = 0  # in which files are decoded; 0: chosen by the amount of data


def emulated_kernels() -> Kernels:
    """The emulated kernels, as `emulated.required`."""
    return Kernels(emulated.required()["decode"], jax.devices("cpu")[0])


def native_calls(kernels: Kernels) -> Any:
    """In the place of `_ffi.call`, for a CPU device that plays a GPU: decoding there is done by `kernels`, all else by
    the CPU's.
    """
    call = _ffi.call

    def routed(kernel, ctx, image, spec, out, *params, **options):
        on_gpu = kernel == "decode" and params[1].shape[1] > 0
        return call(kernels.target if on_gpu else kernel, ctx, image, spec, out, *params, **options)

    return routed


@dataclasses.dataclass
class Decoded:
    pixels: list[np.ndarray]
    status: np.ndarray
    taken: np.ndarray  # the kernels took it


def packed(samples: Sequence[np.ndarray]) -> Packed:
    return pack(samples, 1, lambda elements, dtype: np.zeros((1, elements), dtype))


def with_coefficients(
    p: Packed, info: np.ndarray, chosen: np.ndarray, tables: np.ndarray, kind: types.DALIImageType, pool: int
) -> Packed:
    """Files of which the host decodes the coefficients replaced by these, however many bytes they are."""
    rows, limits = tables[chosen], np.full(len(chosen), 1 << 30)
    coefficients = _cpu.compact_jpegs([p[i] for i in chosen], info[chosen], limits, rows, int(kind), pool)
    tables[chosen] = rows
    compact = {i: x for i, x in zip(chosen.tolist(), coefficients, strict=True) if x is not None}
    info[[*compact], _cpu.Info.FORMAT] = _cpu.Format.COMPACT
    return packed([compact[i] if i in compact else p[i] for i in range(len(p))])


def decode(
    files: Sequence[bytes],
    kernels: Kernels | None = None,
    *,
    kind: types.DALIImageType = types.RGB,
    dtype: Any = np.uint8,
    adjust_orientation: bool = False,
    orientations: Sequence[int] | None = None,
    regions: Sequence[tuple[int, int, int, int]] | None = None,
    present: Sequence[int] | None = None,
    broken: int | None = None,
) -> Decoded:
    """Decodes files in one native call.

    Args:
      kernels: default: libjpeg-turbo on the CPU.
      orientations: instead of the files' own; regions: (y, x, height, width) of each to decode.
      present: which samples are; broken: a sample that is said to lie outside its buffer.
    """
    n, dtype = len(files), np.dtype(dtype)
    device = kernels.device if kernels else jax.devices("cpu")[0]
    pool = _cpu.pool_create(2)
    try:
        with jax.enable_x64(True), jax.default_device(device):
            p = packed([np.frombuffer(f, np.uint8) for f in files])
            ctx: Any = python_types.SimpleNamespace(present=None, pool=pool)
            info, _ = info_rows.parse_headers(ctx, p)
            if orientations is not None:
                info[:, _cpu.Info.ORIENTATION] = orientations
            if regions is not None:
                info[:, _cpu.Info.REGION_Y : _cpu.Info.REGION_W + 1] = regions
            tables = np.zeros((n, _cpu.TABLE_WORDS if kernels else 0), np.int32)
            usable = info[:, _cpu.Info.STATUS] == 0
            scratch = 0
            if kernels:
                _cpu.make_jpeg_tables(
                    p.data, p.offsets, np.ascontiguousarray(p.shapes[:, 0]), info, usable, tables, pool
                )
                p = with_coefficients(p, info, np.flatnonzero(usable & (tables[:, 0] == 0)), tables, kind, pool)
                scratch = _cpu.plan_jpeg_workspace(tables, 1, kernels.subsequence_bits, kernels.groups)
                scratch = max(scratch, kernels.groups * _cpu.JPEG_GROUP_BYTES)
            decoded = tables[:, 0] != 0 if kernels else usable
            shapes = info_rows.output_shapes(info, kind, adjust_orientation)
            shapes[~decoded] = 1
            offsets, need = plan_offsets(shapes, 1)
            starts = p.offsets.copy()
            if broken is not None:
                starts[broken] = 1 << 24
            control = np.ones(1 + n, np.int32)
            control[0] = pool
            if present is not None:
                control[1:] = present
            control[1:][~decoded] = 0
            y, status = _ffi.call(
                kernels.target if kernels else "decode",
                python_types.SimpleNamespace(B=n, control=jnp.asarray(control), times=None),
                Ragged(jnp.asarray(p.data[0]), jnp.asarray(starts), jnp.asarray(p.shapes.astype(np.int32))),
                Spec(dtype, 3, None),
                _ffi.Out(max(need, 1), jnp.asarray(offsets), jnp.asarray(shapes.astype(np.int32))),
                jnp.asarray(info),
                jnp.asarray(tables),
                scratch=scratch,
                output_type=int(kind),
                adjust_orientation=adjust_orientation,
                fast_idct=False,
                group_bytes=_cpu.JPEG_GROUP_BYTES,
            )
            data = np.asarray(y.data)
            status = np.asarray(status)
    finally:
        _cpu.pool_destroy(pool)
    pixels = [data[o * 64 : o * 64 + s.prod()].reshape(s) for o, s in zip(offsets, shapes, strict=True)]
    return Decoded(pixels, status, decoded)


def batches(files: Sequence[Any]):
    for begin in range(0, len(files), BATCH):
        yield files[begin : begin + BATCH]


def assert_same(got: np.ndarray, want: np.ndarray, name: str):
    assert got.shape == want.shape, name
    if not np.array_equal(got, want):
        y, x = np.argwhere((got != want).any(-1))[0]
        raise AssertionError(
            f"{name}: {np.mean(got != want):.3%} of {got.shape} differ, first at {y, x}: {got[y, x]} != {want[y, x]}"
        )


def pillow(data: bytes) -> np.ndarray:
    image = Image.open(io.BytesIO(data))
    if image.mode == "CMYK" and "adobe" not in image.info:
        image = ImageChops.invert(image)  # Pillow takes all such files to be inverted, as Adobe's are
    return np.asarray(image.convert("RGB"))


def turned(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """An image as its EXIF orientation says it is to be shown."""
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    rows, columns = {1: (1, 1), 2: (1, -1), 3: (-1, -1), 4: (-1, 1), 5: (1, 1), 6: (1, -1), 7: (-1, -1), 8: (-1, 1)}[
        orientation
    ]
    return pixels[::rows, ::columns]


def check_corpus(kernels: Kernels, files: Sequence[File] | None = None) -> int:
    """All pixels of all files equal libjpeg-turbo's, and Pillow's. Returns how many files the kernels decoded."""
    files = corpus() if files is None else files
    results = [(batch, decode([f.data for f in batch], kernels)) for batch in batches(files)]
    refused = [
        f.name for batch, actual in results for f, decoded in zip(batch, actual.taken, strict=True) if not decoded
    ]
    assert not refused, f"not for the kernels: {refused}"
    bad = [(f.name, int(s)) for batch, actual in results for f, s in zip(batch, actual.status, strict=True) if s]
    assert not bad, f"refused: {bad}"
    for batch, actual in results:
        expected = decode([f.data for f in batch])
        assert not expected.status.any()
        for f, x, y in zip(batch, actual.pixels, expected.pixels, strict=True):
            assert_same(x, y, f.name)
            assert_same(x, pillow(f.data), f.name)
    return len(files)


def random_regions(rng: np.random.Generator, sizes: Iterable[tuple[int, ...]]) -> list[tuple[int, int, int, int]]:
    """(y, x, height, width) of a region in each image; of every fourth the whole."""
    regions = []
    for i, size in enumerate(sizes):
        (top, bottom), (left, right) = (sorted(rng.choice(n + 1, 2, replace=False).tolist()) for n in size[:2])
        regions.append((top, left, bottom - top, right - left) if i % 4 else (0, 0, *size[:2]))
    return regions


def check_parts(kernels: Kernels, seed: int = 0) -> int:
    """Random regions, all orientations, each output type and element type; returns the number of cases.

    The reference is cut out of, and turned from, what libjpeg-turbo makes of the whole.
    """
    rng = np.random.default_rng(seed)
    files = [f for f in corpus() if pillow(f.data).size < 3 * 30000]
    every = [(kind, np.uint8) for kind in OUTPUT_TYPES] + [(types.RGB, t) for t in DTYPES]
    every += [(types.GRAY, np.float32), (types.YCbCr, np.int16), (types.BGR, np.float16), (types.ANY_DATA, np.uint16)]
    for kind, dtype in every:
        chosen = [files[i] for i in rng.choice(len(files), 60, replace=False)]
        data = [f.data for f in chosen]
        whole = decode(data, kind=kind, dtype=dtype)
        assert not whole.status.any()
        regions = random_regions(rng, [x.shape for x in whole.pixels])
        orientations = [i % 8 + 1 for i in range(len(chosen))]
        adjust = bool(rng.integers(4))
        parts = decode(
            data, kernels, kind=kind, dtype=dtype, regions=regions, orientations=orientations, adjust_orientation=adjust
        )
        assert parts.taken.all()
        assert not parts.status.any()
        for f, x, y, (top, left, height, width), o in zip(
            chosen, parts.pixels, whole.pixels, regions, orientations, strict=True
        ):
            part = y[top : top + height, left : left + width]
            note = f"{f.name}, {kind.name} {np.dtype(dtype)}, region {(top, left, height, width)}, orientation {o if adjust else None}"
            assert_same(x, turned(part, o) if adjust else part, note)
    return len(every)


def damaged(rng: np.random.Generator, number: int) -> list[File]:
    """Files with a few changed bytes, cut short, or with a piece removed or doubled."""
    files = [f for f in corpus() if len(f.data) < 8000]
    result = []
    for i in range(number):
        f = files[rng.integers(len(files))]
        data = bytearray(f.data)
        first = data.rfind(b"\xff\xda") if i % 4 else 2  # mostly what follows the headers
        begin, end = sorted(rng.integers(first, len(data), 2).tolist())
        if i % 5 == 0:
            del data[max(begin, 20) :]
        elif i % 5 == 1:
            del data[begin : min(end, begin + 40)]
        elif i % 5 == 2:
            data[begin:begin] = data[begin:end]
        else:
            for k in rng.integers(first, len(data), int(rng.integers(1, 5))):
                data[k] = rng.choice([0, 255, 0xD0, 0xD9, int(rng.integers(256))])
        result.append(File(f"{f.name}, damaged {i}", bytes(data)))
    return result


def check_damaged(kernels: Kernels, number: int = 600, seed: int = 0) -> tuple[int, int]:
    """A damaged file is decoded as by libjpeg-turbo, or refused; returns the numbers of both, of those the kernels
    took.
    """
    rng = np.random.default_rng(seed)
    good = refused = 0
    for number_of_batch, batch in enumerate(batches(damaged(rng, number))):
        # Sizes are damaged too, and not all have one.
        whole = decode([f.data for f in batch])
        readable = [i for i, has_size in enumerate(whole.taken) if has_size]
        batch = [batch[i] for i in readable]
        options: Any = {}
        if number_of_batch % 3 == 2:
            options["regions"] = random_regions(rng, [whole.pixels[i].shape for i in readable])
        actual, expected = (
            decode([f.data for f in batch], kernels, **options),
            decode([f.data for f in batch], **options),
        )
        for i, f in enumerate(batch):
            if not actual.taken[i]:
                continue
            assert actual.status[i] in (0, Status.REFUSED), f.name
            refused += actual.status[i] != 0
            if actual.status[i] == 0:
                good += 1
                assert expected.status[i] == 0, f"{f.name}: {_ffi.STATUS[int(expected.status[i])]}"
                assert_same(actual.pixels[i], expected.pixels[i], f.name)
    return good, refused


def check_empty_segments(kernels: Kernels):
    """A restart segment without data is an error, wherever it is; also the first one."""
    buffer = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (64, 48, 3), np.uint8)
    Image.fromarray(noise).save(buffer, "JPEG", restart_marker_rows=1)
    data = buffer.getvalue()
    header = data.index(b"\xff\xda")
    begin = header + 2 + int.from_bytes(data[header + 2 : header + 4], "big")
    segments = re.split(rb"\xff[\xd0-\xd7]", data[begin:-2])
    assert len(segments) == 4

    def without(k: int) -> bytes:
        intervals = [b"" if i == k else s for i, s in enumerate(segments)]
        return data[:begin] + b"".join(s + bytes([0xFF, 0xD0 + i]) for i, s in enumerate(intervals))[:-2] + data[-2:]

    actual = decode([without(k) for k in range(-1, 4)], kernels)
    assert all(actual.taken)
    assert actual.status.tolist() == [0] + 4 * [Status.REFUSED]


def check_flat(kernels: Kernels):
    """Areas of one colour, whose bits are periodic, so that guesses settle late: not more than a bounded number of
    look-ups is spent.
    """
    gray, small, large = (np.full(shape, 200, np.uint8) for shape in ((2048, 2048, 1), (768, 736, 3), (1080, 1920, 3)))
    files = [by_pillow(pixels, quality=90) for pixels in (gray, small, large)]
    actual = decode(files, kernels)
    # Gray settles since decodings are remembered, the small one since a block's two symbols are one look-up.
    assert actual.status.tolist() == [0, 0, Status.REFUSED]
    for i, pixels in enumerate(decode(files[:2]).pixels):
        assert_same(actual.pixels[i], pixels, f"file {i}")


def check_dc(kernels: Kernels):
    """DC values are sums over many blocks of threads, which begin anew with each segment, wherever that is."""
    y, x = np.mgrid[:600, :600]
    pixels = np.stack([(x * 3 + y) // 16, (x + y * 2) // 9, x // 5 ^ y // 7], axis=-1).astype(np.uint8)
    restarts = [0, 1, 682, 683, 1365, 3000]  # MCUs of a segment; 2,048 blocks are 682.67 MCUs of three
    files = [by_pillow(pixels, quality=80, subsampling=0, restart_marker_blocks=n) for n in restarts]
    files += [by_pillow(pixels[..., :1], quality=80, restart_marker_blocks=n) for n in (0, 2048, 2049)]
    actual, expected = decode(files, kernels), decode(files)
    assert not actual.status.any()
    for i, pixels in enumerate(expected.pixels):
        assert_same(actual.pixels[i], pixels, f"file {i}")


def check_absent(kernels: Kernels):
    """Samples that are absent or outside the buffer leave the others alone."""
    files = [f for f in corpus() if len(f.data) < 8000][:40:4]
    expected = decode([f.data for f in files])
    actual = decode([f.data for f in files], kernels, present=[i != 2 for i in range(len(files))], broken=5)
    assert actual.status.tolist() == [INTERNAL if i == 5 else 0 for i in range(len(files))]
    for i, f in enumerate(files):
        if i not in (2, 5):
            assert_same(actual.pixels[i], expected.pixels[i], f.name)
