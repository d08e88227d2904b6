"""PNG files of all kinds: Pillow writes few of them."""

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

GRAY, RGB, PALETTE, GRAY_ALPHA, RGBA = 0, 2, 3, 4, 6
KINDS = (
    [(GRAY, b) for b in (1, 2, 4, 8, 16)]
    + [(PALETTE, b) for b in (1, 2, 4, 8)]
    + [(c, b) for c in (RGB, GRAY_ALPHA, RGBA) for b in (8, 16)]
)
SAMPLES = {GRAY: 1, RGB: 3, PALETTE: 1, GRAY_ALPHA: 2, RGBA: 4}
ADAM7 = [(0, 8, 0, 8), (0, 8, 4, 8), (4, 8, 0, 4), (0, 4, 2, 4), (2, 4, 0, 2), (0, 2, 1, 2), (1, 2, 0, 1)]
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunk(name: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def packed_row(samples: np.ndarray, bits: int) -> np.ndarray:
    """A row's bytes; its last one is filled up with ones."""
    if bits == 16:
        return np.frombuffer(samples.astype(">u2").tobytes(), np.uint8)
    if bits == 8:
        return samples.astype(np.uint8).reshape(-1)
    flat = samples.reshape(-1)
    flat = np.append(flat, np.full(-len(flat) % (8 // bits), (1 << bits) - 1))
    return (flat.reshape(-1, 8 // bits) << np.arange(8 - bits, -1, -bits)).sum(1).astype(np.uint8)


def filtered(rows: Sequence[np.ndarray], pixel: int, filters: Sequence[int]) -> bytes:
    """Rows with their filters, as the specification of PNG defines them."""
    out = b""
    above = np.zeros(len(rows[0]), int)
    for row, kind in zip(rows, filters, strict=True):
        x = row.astype(int)
        left, corner = (np.concatenate([np.zeros(pixel, int), v])[: len(x)] for v in (x, above))
        distance = np.abs(left + above - corner - np.stack([left, above, corner]))
        paeth = np.stack([left, above, corner])[distance.argmin(0), np.arange(len(x))]
        prediction = (0, left, above, (left + above) // 2, paeth)[kind]
        out += bytes([kind]) + ((x - prediction) & 255).astype(np.uint8).tobytes()
        above = x
    return out


def encode_png(
    samples: np.ndarray,
    color: int,
    bits: int,
    *,
    interlaced: bool = False,
    filters: Sequence[int] = (0, 1, 2, 3, 4),
    palette: np.ndarray | None = None,
    others: Sequence[tuple[bytes, bytes]] = (),
    pieces: int = 1,
    rng: Any = None,
) -> bytes:
    """``[H, W, samples]`` of so many bits as a file.

    Args:
      filters: those of which each row has one, drawn at random.
      others: (name, data) of chunks in front of the image data.
      pieces: in how many chunks these are.
    """
    rng = rng or np.random.default_rng(0)
    height, width, channels = samples.shape
    pixel = max(channels * bits // 8, 1)
    data = b""
    for y, dy, x, dx in ADAM7 if interlaced else [(0, 1, 0, 1)]:
        part = samples[y::dy, x::dx]
        if part.size:
            data += filtered([packed_row(row, bits) for row in part], pixel, rng.choice(filters, len(part)).tolist())
    data = zlib.compress(data, int(rng.integers(1, 10)))
    ends = [*sorted(rng.integers(0, len(data), pieces - 1).tolist()), len(data)]
    file = SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, interlaced))
    if palette is not None:
        file += chunk(b"PLTE", palette.astype(np.uint8).tobytes())
    for name, content in others:
        file += chunk(name, content)
    for start, end in zip([0, *ends], ends, strict=False):
        file += chunk(b"IDAT", data[start:end])
    return file + chunk(b"IEND")
