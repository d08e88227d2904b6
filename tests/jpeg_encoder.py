"""A sequential JPEG encoder in NumPy, for files that the usual encoders don't write; written from ITU-T T.81 alone."""

import heapq
import itertools
import struct
from collections.abc import Sequence

import numpy as np

# Diagonals, every other one upwards.
ZIGZAG = np.array(sorted(range(64), key=lambda i: (i // 8 + i % 8, i // 8 if (i // 8 + i % 8) % 2 else i % 8)))

# T.81 tables K.1 and K.2, in natural order.
LUMA, CHROMA = (
    np.array(rows.split(), int)
    for rows in (
        "16 11 10 16 24 40 51 61 12 12 14 19 26 58 60 55 14 13 16 24 40 57 69 56 14 17 22 29 51 87 80 62 "
        "18 22 37 56 68 109 103 77 24 35 55 64 81 104 113 92 49 64 78 87 103 121 120 101 72 92 95 98 112 100 103 99",
        "17 18 24 47 99 99 99 99 18 21 26 66 99 99 99 99 24 26 56 99 99 99 99 99 47 66 99 99 99 99 99 99 " + "99 " * 32,
    )
)
# T.81 tables K.3 to K.6 as DHT segments hold them: numbers of codes of each length, then the symbols.
DC_LUMA = bytes.fromhex("00010501010101010100000000000000000102030405060708090a0b")
DC_CHROMA = bytes.fromhex("00030101010101010101010000000000000102030405060708090a0b")
AC_LUMA = bytes.fromhex(
    "0002010303020403050504040000017d01020300041105122131410613516107227114328191a1082342b1c11552d1f02433627282090a1617"
    "18191a25262728292a3435363738393a434445464748494a535455565758595a636465666768696a737475767778797a838485868788898a92"
    "939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2e3e4e5e6e7e8e9eaf1f2f3"
    "f4f5f6f7f8f9fa"
)
AC_CHROMA = bytes.fromhex(
    "00020102040403040705040400010277000102031104052131061241510761711322328108144291a1b1c109233352f0156272d10a162434e1"
    "25f11718191a262728292a35363738393a434445464748494a535455565758595a636465666768696a737475767778797a8283848586878889"
    "8a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae2e3e4e5e6e7e8e9eaf2f3"
    "f4f5f6f7f8f9fa"
)
STANDARD = ((DC_LUMA, AC_LUMA), (DC_CHROMA, AC_CHROMA))

# Segments that tell the colour space.
JFIF = b"\xff\xe0" + struct.pack(">H5sHBHHBB", 16, b"JFIF\0", 0x101, 0, 1, 1, 0, 0)
SHORT_JFIF = b"\xff\xe0" + struct.pack(">H5sHB", 10, b"JFIF\0", 0x101, 0)  # too short to count
ADOBE_RGB, ADOBE_YCC, ADOBE_YCCK = (
    b"\xff\xee" + struct.pack(">H5sHHHB", 14, b"Adobe", 100, 0, 0, t) for t in (0, 1, 2)
)


def exif(orientation: int) -> bytes:
    """An APP1 segment with nothing but the orientation."""
    tiff = struct.pack("<2sHIHHHIHHI", b"II", 42, 8, 1, 0x112, 3, 1, orientation, 0, 0)
    return b"\xff\xe1" + struct.pack(">H", len(tiff) + 8) + b"Exif\0\0" + tiff


def quantisers(quality: int) -> list[np.ndarray]:
    """The tables for luma and chroma that libjpeg calls this quality, 1 to 100."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    return [np.clip((t * scale + 50) // 100, 1, 255) for t in (LUMA, CHROMA)]


def ycbcr(rgb: np.ndarray) -> np.ndarray:
    matrix = np.array([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])
    return rgb @ matrix.T + [0, 128, 128]


def forward(planes: np.ndarray, factors: Sequence[tuple[int, int]], tables: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Subsampled, transformed and quantised: of each component ``[rows, columns, 64]`` of blocks, whole MCUs, zig-zag
    order.

    Args:
      planes: ``[H, W, C]``; factors: (horizontal, vertical) of each component, which divide the largest; tables: of
        each component.
    """
    height, width = planes.shape[:2]
    hmax, vmax = (max(f[i] for f in factors) for i in range(2))
    planes = np.pad(planes, ((0, -height % (8 * vmax)), (0, -width % (8 * hmax)), (0, 0)), "edge")
    frequency, position = np.mgrid[:8, :8]
    dct = np.cos((2 * position + 1) * frequency * np.pi / 16) * np.where(frequency == 0, np.sqrt(1 / 8), 1 / 2)
    result = []
    for c, (h, v) in enumerate(factors):
        assert hmax % h == 0
        assert vmax % v == 0
        rows, columns = planes.shape[0] * v // vmax // 8, planes.shape[1] * h // hmax // 8
        small = planes[..., c].reshape(rows * 8, vmax // v, columns * 8, hmax // h).mean((1, 3)) - 128
        blocks = dct @ small.reshape(rows, 8, columns, 8).transpose(0, 2, 1, 3) @ dct.T
        levels = np.rint(blocks.reshape(rows, columns, 64) / tables[c]).astype(np.int64)
        result.append(np.clip(levels, -1023, 1023)[..., ZIGZAG])
    return result


def huffman(counts: np.ndarray) -> bytes:
    """The table for symbols that occur so often, T.81 K.2: no code longer than 16 bits, none of ones only."""
    # 256: gets a longest code, which is dropped.
    trees = [(int(n), -i, [i]) for i, n in enumerate(counts) if n] + [(0, 1, [256])]
    depth = np.zeros(257, int)
    heapq.heapify(trees)
    while len(trees) > 1:
        a, b = heapq.heappop(trees), heapq.heappop(trees)
        depth[a[2] + b[2]] += 1
        heapq.heappush(trees, (a[0] + b[0], min(a[1], b[1]), a[2] + b[2]))
    bits = np.bincount(depth[depth > 0], minlength=40)
    for long in range(len(bits) - 1, 16, -1):
        while bits[long]:
            short = max(i for i in range(long - 1) if bits[i])
            for length, change in ((long, -2), (long - 1, 1), (short + 1, 2), (short, -1)):
                bits[length] += change
    bits[bits.nonzero()[0][-1]] -= 1
    symbols = sorted(np.flatnonzero(counts), key=lambda s: (depth[s], s))
    return bytes(bits[1:17].tolist()) + bytes(symbols)


def codes(table: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Code and its length of each symbol, T.81 C.2."""
    code, value, lengths = np.zeros(256, np.int64), 0, np.zeros(256, np.int64)
    symbols = iter(table[16:])
    for length, n in enumerate(table[:16], 1):
        for symbol in itertools.islice(symbols, n):
            code[symbol], lengths[symbol] = value, length
            value += 1
        value <<= 1
    return code, lengths


def _events(blocks: np.ndarray, differences: np.ndarray) -> tuple[np.ndarray, ...]:
    """Of each symbol in order: block, whether it is an AC symbol, the symbol, its value and the value's bits."""
    b, k = np.nonzero(blocks[:, 1:])
    k += 1
    first = np.diff(b, prepend=-1) != 0
    run = k - 1 - np.where(first, 0, np.roll(k, 1))
    last = np.zeros(len(blocks), int)
    np.maximum.at(last, b, k)
    everything = np.arange(len(blocks))
    zeros, end = np.repeat(np.arange(len(b)), run // 16), np.flatnonzero(last < 63)
    values = np.concatenate([differences, blocks[b, k], np.zeros(len(zeros) + len(end), int)])
    sizes = np.frexp(np.abs(values))[1].astype(np.int64)
    block = np.concatenate([everything, b, b[zeros], end])
    place = np.concatenate([0 * everything, 2 * k, 2 * k[zeros] - 1, 0 * end + 200])
    symbol = np.concatenate(
        [sizes[: len(blocks)], run % 16 * 16 + sizes[len(blocks) :][: len(b)], 0 * zeros + 0xF0, 0 * end]
    )
    order = np.argsort(block * 256 + place, kind="stable")
    return tuple(
        x[order] for x in (block, place > 0, symbol, np.where(values < 0, values + (1 << sizes) - 1, values), sizes)
    )


def _pack(words: np.ndarray, lengths: np.ndarray, segment: np.ndarray) -> list[bytes]:
    """Words of so many bits as bytes: of each segment, the last byte filled with ones."""
    bits = np.bincount(segment, lengths).astype(np.int64)
    ends = np.searchsorted(segment, np.arange(len(bits)), "right")
    words, lengths = np.insert(words, ends, (1 << (-bits % 8)) - 1), np.insert(lengths, ends, -bits % 8)
    shift = np.repeat(np.cumsum(lengths), lengths) - np.arange(lengths.sum()) - 1
    data = np.packbits((np.repeat(words, lengths) >> shift & 1).astype(np.uint8)).tobytes()
    return [data[i:j] for i, j in itertools.pairwise([0, *np.cumsum((bits + 7) // 8).tolist()])]


def _mcus(
    coefficients: Sequence[np.ndarray], height: int, width: int, factors: Sequence[tuple[int, int]], scan: Sequence[int]
):
    """A scan's blocks ``[MCUs, blocks of one, 64]``, and the component of each block of an MCU; T.81 A.2."""
    hmax, vmax = (max(f[i] for f in factors) for i in range(2))
    if len(scan) == 1:  # its own blocks, not the padded ones
        h, v = factors[scan[0]]
        rows, columns = -(-height * v // (8 * vmax)), -(-width * h // (8 * hmax))
        return coefficients[scan[0]][:rows, :columns].reshape(-1, 1, 64), np.array(scan)
    groups = []
    for c in scan:
        (h, v), (rows, columns, _) = factors[c], coefficients[c].shape
        groups.append(coefficients[c].reshape(rows // v, v, columns // h, h, 64).swapaxes(1, 2).reshape(-1, v * h, 64))
    return np.concatenate(groups, 1), np.repeat(scan, [g.shape[1] for g in groups])


def _differences(mcus: np.ndarray, components: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Of each block: its DC less that of the component's block before, within a restart interval."""
    result = np.empty(mcus.shape[:2], np.int64)
    starts = np.flatnonzero(np.diff(parts, prepend=-1))
    for c in set(components.tolist()):
        dc = mcus[:, components == c, 0]
        change = np.diff(dc.ravel(), prepend=0).reshape(dc.shape)
        change[starts, 0] = dc[starts, 0]
        result[:, components == c] = change
    return result.ravel()


def write(
    coefficients: Sequence[np.ndarray],
    height: int,
    width: int,
    factors: Sequence[tuple[int, int]],
    tables: Sequence[np.ndarray],
    *,
    markers: bytes = JFIF,
    ids: Sequence[int] = (1, 2, 3),
    huffman_tables: str = "standard",
    slots: Sequence[int] = (0, 1, 1),
    scans: Sequence[Sequence[int]] | None = None,
    restart: int = 0,
    fill: int = 0,
    trailing: bytes = b"",
) -> bytes:
    """A JPEG file.

    Args:
      coefficients: of each component, as `forward` gives them.
      factors, tables: sampling factors and quantisers (natural order, 1 to 65535) of each component.
      markers: segments after the start.
      ids: of the components.
      huffman_tables: "standard"; "optimised", anew for each scan; or "absent", for the decoder to know the standard
        ones.
      slots: of the Huffman tables of each component, 0 to 3; above 1 only with optimised ones.
      scans: the components of each scan; default: one for all.
      restart: MCUs between restart markers; 0: no markers.
      fill: surplus FF bytes before each marker.
      trailing: bytes after the end.
    """
    n = len(coefficients)
    slots = slots[:n]
    out = [b"\xff\xd8", markers]

    def segment(marker: int, payload: bytes):
        out.append(b"\xff" * (1 + fill) + bytes([marker]) + struct.pack(">H", len(payload) + 2) + payload)

    distinct = list({t.tobytes(): t for t in tables}.values())
    for i, table in enumerate(distinct):
        wide = bool(table.max() > 255)
        segment(0xDB, bytes([16 * wide + i]) + table[ZIGZAG].astype(">u2" if wide else np.uint8).tobytes())
    extended = any(t.max() > 255 for t in tables) or max(slots) > 1
    destinations = [next(i for i, t in enumerate(distinct) if np.array_equal(t, mine)) for mine in tables]
    parts = b"".join(bytes([ids[c], 16 * factors[c][0] + factors[c][1], destinations[c]]) for c in range(n))
    segment(0xC1 if extended else 0xC0, struct.pack(">BHHB", 8, height, width, n) + parts)
    if huffman_tables == "standard":
        for slot, kind in itertools.product(sorted(set(slots)), range(2)):
            segment(0xC4, bytes([16 * kind + slot]) + STANDARD[slot][kind])
    if restart:
        segment(0xDD, struct.pack(">H", restart))
    for scan in scans or [range(n)]:
        mcus, components = _mcus(coefficients, height, width, factors, scan)
        intervals = np.arange(len(mcus)) // (restart or len(mcus))
        block, ac, symbol, value, size = _events(mcus.reshape(-1, 64), _differences(mcus, components, intervals))
        slot_of = np.array(slots)[components][block % len(components)]
        code, length = np.zeros((2, len(block)), np.int64)
        for slot, kind in itertools.product(sorted({slots[c] for c in scan}), range(2)):
            mine = (slot_of == slot) & (ac == kind)
            if huffman_tables == "optimised":
                table = huffman(np.bincount(symbol[mine], minlength=256))
                segment(0xC4, bytes([16 * kind + slot]) + table)
            else:
                table = STANDARD[slot][kind]
            code[mine], length[mine] = (x[symbol[mine]] for x in codes(table))
        assert length.all()
        segment(0xDA, bytes([len(scan)]) + b"".join(bytes([ids[c], 17 * slots[c]]) for c in scan) + b"\0\x3f\0")
        for i, piece in enumerate(_pack((code << size) + value, length + size, intervals[block // len(components)])):
            if i:
                out.append(b"\xff" * (1 + fill) + bytes([0xD0 + (i - 1) % 8]))
            out.append(piece.replace(b"\xff", b"\xff\0"))
    return b"".join([*out, b"\xff" * (1 + fill) + b"\xd9", trailing])


def encode(
    pixels: np.ndarray,
    factors: Sequence[tuple[int, int]] = ((2, 2), (1, 1), (1, 1)),
    quality: int = 75,
    *,
    rgb: bool = False,
    **options,
) -> bytes:
    """`pixels` ``[H, W, 1 or 3]`` as a JPEG file; `rgb`: stored as it is; options as `write` has them."""
    channels = pixels.shape[2]
    luma, chroma = quantisers(quality)
    tables = options.pop("tables", [luma, luma if rgb else chroma, luma if rgb else chroma])[:channels]
    planes = ycbcr(pixels) if channels == 3 and not rgb else pixels
    factors = factors[:channels]
    return write(forward(planes, factors, tables), *pixels.shape[:2], factors, tables, **options)
