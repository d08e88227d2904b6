"""Several hundred JPEG files of mixed sizes, samplings, qualities, tables and contents, by several encoders."""

import base64
import contextlib
import dataclasses
import functools
import importlib.util
import io
import itertools
import pathlib
from collections.abc import Iterator
from typing import Any

import golden
import jpeg_encoder
import numpy as np
import places
from images import decode, encode, picture, png
from PIL import Image

from jaxdali import SampleError

PHOTOS = sorted(places.PHOTOS.glob("*/*.jpg"))
GOLDEN = sorted((places.DATA / "golden" / "files").glob("*.jpg"))

# (horizontal, vertical) factors of each component: at most 10 blocks in an MCU.
SAMPLINGS = {
    "4:4:4": ((1, 1), (1, 1), (1, 1)),
    "4:2:2": ((2, 1), (1, 1), (1, 1)),
    "4:2:0": ((2, 2), (1, 1), (1, 1)),
    "4:4:0": ((1, 2), (1, 1), (1, 1)),
    "4:1:1": ((4, 1), (1, 1), (1, 1)),
    "4:1:0": ((4, 2), (1, 1), (1, 1)),
    "1x4": ((1, 4), (1, 1), (1, 1)),
    "2x4": ((2, 4), (1, 1), (1, 1)),
    "3x1": ((3, 1), (1, 1), (1, 1)),
    "3x2, 1x1, 1x2": ((3, 2), (1, 1), (1, 2)),
    "2x2, 1x2, 2x1": ((2, 2), (1, 2), (2, 1)),
    "2x2, 2x1, 1x2": ((2, 2), (2, 1), (1, 2)),
    "1x2, 2x2, 1x1": ((1, 2), (2, 2), (1, 1)),
    "1x1, 2x2, 2x2": ((1, 1), (2, 2), (2, 2)),
    "1x1, 1x1, 4x2": ((1, 1), (1, 1), (4, 2)),
    "2x2, 2x2, 1x1": ((2, 2), (2, 2), (1, 1)),
    "4:4:4 as 2x1": ((2, 1), (2, 1), (2, 1)),
    "4:2:2 as 2x2": ((2, 2), (1, 2), (1, 2)),
}
GRAY = (((1, 1),), ((2, 2),), ((4, 1),), ((1, 3),))


# By libjpeg-turbo's arithmetic coder.
ARITHMETIC = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAoHBwgHBgoICAgLCgoLDhgQDg0NDh0VFhEYIx8lJCIfIiEmKzcvJik0KSEiMEExNDk7Pj4+JS5ESUM8SDc9Pjv/"
    "2wBDAQoLCw4NDhwQEBw7KCIoOzs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozv/yQARCAAYACgDASIAAhEBAxEB/8wA"
    "CgAQEAUBEBEF/9oADAMBAAIRAxEAPwDR1OnHaSYtZKjFJ5LRkMjImI6Y+UIMmZsT40yHgdRe8TfyeWYW7Obz0ASnolRubp0s1ht8JGwK71bu1zcCbcmOaKr2"
    "I1yaDdFTjiy0pwtBvBbfDOyILqi1JQNsDcRwTQ15aoRfp5L565rppb8ww/F8lv8Aa8GG6Wqmzrn1YgnDKupXVrJc+ZfAgiYDJAMWImJyIx9VS+D6lmQExrAL"
    "mFlGmJkLs6CPip0cMtSo/IGNP0mZb3QdsZvhRYuMzhR0EQURC1WnO4ZaRw9qLItKhnVp+qRjh1d60UQEJt8zxH8ECeRruApzxgY9BVunySzHhntiLkQPRKM8"
    "fVyG+maUIXrqBEWZfeso8nY1iVx4KIKkuAj/2Q=="
)


@dataclasses.dataclass(frozen=True)
class File:
    name: str
    data: bytes


def frame(data: bytes) -> tuple[int, int, int]:
    """Kind of a JPEG's frame (0: baseline, 1: extended, 2: progressive...), bits of a sample, number of components."""
    offset = 2
    while True:
        marker, size = data[offset + 1], int.from_bytes(data[offset + 2 : offset + 4], "big")
        if marker == 0xFF:
            offset += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return marker - 0xC0, data[offset + 4], data[offset + 9]
        else:
            offset += 2 + size


def is_covered(data: bytes) -> bool:
    """GPU kernels are to decode it: a JPEG file, Huffman-coded, 8 bits, 1 or 3 components, or 4 of a sequential file."""
    if data[:2] != b"\xff\xd8":
        return False
    kind, bits, components = frame(data)
    return bits == 8 and kind <= 2 and components in ((1, 3) if kind == 2 else (1, 3, 4))


class Contents:
    """Pictures ``[H, W, C]``: photos, noise, gradients, flat areas."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.photos = [np.asarray(Image.open(p).convert("RGB")) for p in PHOTOS]

    def photo(self, height: int, width: int, channels: int = 3) -> np.ndarray:
        image = self.photos[self.rng.integers(len(self.photos))]
        if height > image.shape[0] or width > image.shape[1]:
            image = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BICUBIC))
        y, x = (
            int(self.rng.integers(have - want + 1)) for have, want in zip(image.shape, (height, width), strict=False)
        )
        return image[y : y + height, x : x + width, :channels]

    def any(self, height: int, width: int, channels: int = 3) -> np.ndarray:
        kind, shape = self.rng.integers(8), (height, width, channels)
        if kind < 5:
            return self.photo(*shape)
        if kind == 5:
            return self.rng.integers(0, 256, shape, np.uint8)
        flat = np.full(shape, self.rng.integers(0, 256, channels), np.uint8)
        if kind == 6:  # areas with sharp edges
            for _ in range(4):
                y, x = self.rng.integers(0, height), self.rng.integers(0, width)
                flat[y : y + height // 3, x : x + width // 3] = self.rng.integers(0, 256, channels)
            return flat
        y, x = np.mgrid[:height, :width]
        waves = np.sin(
            (y[..., None] * self.rng.normal(0, 0.1, channels)) + x[..., None] * self.rng.normal(0, 0.1, channels)
        )
        return np.rint(127.5 + 127.5 * waves).astype(np.uint8)


def by_pillow(pixels: np.ndarray, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(file, "JPEG", **options)
    return file.getvalue()


def _pillow(rng: np.random.Generator, contents: Contents) -> Iterator[File]:
    def options(quality: int) -> dict[str, Any]:
        o: dict[str, Any] = {"quality": quality, "subsampling": int(rng.integers(3)), "optimize": bool(rng.integers(2))}
        if rng.integers(4) == 0:
            o |= [{"restart_marker_blocks": int(rng.integers(1, 9))}, {"restart_marker_rows": int(rng.integers(1, 3))}][
                rng.integers(2)
            ]
        if rng.integers(8) == 0:
            o |= {"keep_rgb": True, "subsampling": 0}
        return o

    def file(height: int, width: int, channels: int, o: dict[str, Any]) -> File:
        return File(f"Pillow {height}x{width}x{channels} {o}", by_pillow(contents.any(height, width, channels), **o))

    for quality in range(1, 101):
        yield file(*rng.integers(20, 180, 2).tolist(), 1 if quality % 10 == 0 else 3, options(quality))
    edges = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33)
    for i in range(66):
        yield file(
            edges[i % 11], int(rng.choice(edges)), 3, {"quality": int(rng.integers(1, 101)), "subsampling": i % 3}
        )
    for i in range(12):
        o = {"quality": (50, 75, 90, 95)[i % 4], "subsampling": (2, 2, 1, 0)[i % 4], "optimize": i % 3 == 0}
        size = (450, 600) if i % 2 else (600, 450)
        yield File(f"Pillow {size} {o}", by_pillow(contents.photo(*size), **o))
    yield File("Pillow 1500x2000", by_pillow(contents.photo(1500, 2000), quality=92, subsampling=2))


def _numpy(rng: np.random.Generator, contents: Contents) -> Iterator[File]:
    three = ((0,), (1,), (2,))
    variants: list[dict[str, Any]] = [
        {},
        {"huffman_tables": "optimised"},
        {"huffman_tables": "absent"},
        {"restart": 1, "fill": 1},
        {"restart": 5, "huffman_tables": "optimised", "trailing": b"\xff\x00\xff\xd3 trailing \xff\xd8\xff" * 3},
        {"scans": three},
        {"scans": ((1,), (2,), (0,)), "huffman_tables": "optimised", "restart": 3},
        {"scans": ((0,), (1, 2)), "fill": 3},
        {"slots": (0, 0, 0)},
        {"slots": (0, 1, 2), "huffman_tables": "optimised"},
        {"slots": (3, 1, 1), "huffman_tables": "optimised", "scans": three, "markers": b""},
        {"rgb": True, "markers": jpeg_encoder.ADOBE_RGB, "slots": (0, 0, 0)},
        {"rgb": True, "markers": jpeg_encoder.SHORT_JFIF, "ids": (82, 71, 66)},
        {"markers": jpeg_encoder.ADOBE_YCC, "ids": (82, 71, 66)},
        {"markers": jpeg_encoder.JFIF + jpeg_encoder.ADOBE_RGB},
        {"markers": b"", "ids": (0, 1, 2)},
        {"tables": [jpeg_encoder.LUMA * 8, jpeg_encoder.CHROMA * 3, jpeg_encoder.CHROMA * 5]},
    ]
    for sampling, factors in SAMPLINGS.items():
        for variant in variants:
            size, quality = rng.integers(1, 120, 2).tolist(), int(rng.integers(1, 101))
            shown = {k: v for k, v in variant.items() if k != "tables"}
            name = f"NumPy {sampling} {size} quality {quality} {shown}"
            yield File(name, jpeg_encoder.encode(contents.any(*size), factors, quality, **variant))
    for factors in GRAY:
        for variant in ({}, {"huffman_tables": "optimised", "restart": 2}, {"huffman_tables": "absent", "fill": 2}):
            size = rng.integers(1, 120, 2).tolist()
            yield File(
                f"NumPy {factors} {size} {variant}", jpeg_encoder.encode(contents.any(*size, 1), factors, 80, **variant)
            )
    for restart in (0, 3):
        data = jpeg_encoder.encode(contents.photo(70, 60), quality=85, restart=restart)
        yield File(f"NumPy, surplus bytes of data, restart {restart}", data[:-2] + b"\x12\x34\xff\x00\x56" + data[-2:])
    yield from extreme(rng)


def _inks(rng: np.random.Generator, contents: Contents) -> Iterator[File]:
    """Cyan, magenta, yellow and black, as they are or as YCbCr and black."""
    variants: list[dict[str, Any]] = [
        {"markers": b""},
        {"markers": jpeg_encoder.JFIF, "slots": (0, 0, 0, 0), "huffman_tables": "optimised"},
        {"markers": jpeg_encoder.ADOBE_RGB, "restart": 5},
        {"markers": jpeg_encoder.ADOBE_YCCK, "huffman_tables": "optimised", "restart": 2},
        {"markers": jpeg_encoder.ADOBE_YCC, "scans": ((0,), (1,), (2,), (3,)), "fill": 1},
        {"markers": jpeg_encoder.JFIF + jpeg_encoder.ADOBE_YCCK, "scans": ((3,), (0, 1, 2)), "restart": 3},
    ]
    samplings = [
        ((1, 1),) * 4,
        ((2, 2), (1, 1), (1, 1), (2, 2)),
        ((2, 1), (1, 1), (1, 1), (1, 1)),
        ((2, 2), (1, 2), (2, 1), (1, 1)),
    ]
    for factors, variant in itertools.product(samplings, variants):
        size, options = rng.integers(1, 120, 2).tolist(), {"ids": (1, 2, 3, 4), "slots": (0, 1, 1, 0), **variant}
        luma, chroma = jpeg_encoder.quantisers(int(rng.integers(1, 101)))
        pixels = np.concatenate([contents.any(*size), contents.any(*size)[..., :1]], 2)
        data = jpeg_encoder.encode(pixels, factors, rgb=True, tables=[luma, chroma, chroma, luma], **options)
        yield File(f"inks {factors} {size} {variant}", data)


def _progressive(rng: np.random.Generator, contents: Contents) -> Iterator[File]:
    """Files that refine coefficients scan by scan; `fuzz_jpeg` makes those with other scans."""
    for i in range(60):
        size, channels = rng.integers(1, 180, 2).tolist(), 1 if i % 6 == 0 else 3
        o: dict[str, Any] = {"quality": (100, 95, 85, 70, 40, 5)[i // 10], "subsampling": i % 3, "progressive": True}
        o |= ({}, {"restart_marker_blocks": 3}, {"restart_marker_rows": 1})[int(rng.integers(3))]
        if i % 10 == 5 and channels == 3:
            o |= {"keep_rgb": True, "subsampling": 0}
        yield File(f"progressive {size} {o}", by_pillow(contents.any(*size, channels), **o))
    yield File("progressive 450x600", by_pillow(contents.photo(450, 600), quality=92, progressive=True))


def extreme(rng: np.random.Generator) -> Iterator[File]:
    """Coefficients and quantisers that no picture has, so that the arithmetic saturates and wraps."""
    for i in range(24):
        factors = list(SAMPLINGS.values())[i % 4]
        height, width = rng.integers(8, 60, 2).tolist()
        limit = (1023, 4095, 16383, 300)[i % 4]
        blocks = jpeg_encoder.forward(np.zeros((height, width, 3)), factors, [jpeg_encoder.LUMA] * 3)
        blocks = [
            np.where(rng.random(b.shape) < (0.02, 0.3, 1)[i % 3], rng.integers(-limit, limit + 1, b.shape), 0)
            if i % 5
            else rng.choice([-limit, limit], b.shape)
            for b in blocks
        ]
        tables = [rng.integers(1, (255, 65535, 3)[i % 3] + 1, 64) for _ in range(3)]
        options = {"huffman_tables": "optimised", "restart": i % 3}
        yield File(f"extreme {i}", jpeg_encoder.write(blocks, height, width, factors, tables, **options))


def _imagecodecs(rng: np.random.Generator, contents: Contents) -> Iterator[File]:
    """Samplings and options of libjpeg-turbo that Pillow does not offer."""
    try:
        from imagecodecs import jpeg8_encode
    except ImportError:
        return
    for i in range(40):
        o = {
            "level": int(rng.integers(1, 101)),
            "subsampling": ("440", "411", "420", "422")[i % 4],
            "optimize": i % 3 == 0,
        }
        pixels = np.ascontiguousarray(contents.any(*rng.integers(8, 200, 2).tolist()))
        yield File(f"imagecodecs {pixels.shape} {o}", jpeg8_encode(pixels, **o))


@functools.cache
def corpus(seed: int = 0) -> list[File]:
    """All files; each is one that GPU kernels are to decode."""
    rng = np.random.default_rng(seed)
    contents = Contents(rng)
    files = [File(p.name, p.read_bytes()) for p in (*PHOTOS, *GOLDEN) if not p.name.startswith("bad")]
    files = [*files, *_pillow(rng, contents), *_numpy(rng, contents), *_imagecodecs(rng, contents)]
    files += [*_inks(rng, contents), *_progressive(rng, contents)]
    return [f for f in files if is_covered(f.data)]


def of_all_kinds(seed: int = 0) -> list[bytes]:
    """Files of every kind that decodes, in mixed order: golden ones and some of the corpus, and what both lack."""
    left_out = () if importlib.util.find_spec("imagecodecs") else ("rgb16.tif", "odd_16bit.cropped.jp2")
    files = [p.read_bytes() for p in golden.IMAGES if not p.name.startswith("bad") and p.name not in left_out]
    files += [f.data for f in corpus()[::37] if len(f.data) < 20000]
    files += [encode(picture(33, 20), "JPEG", progressive=True, orientation=o) for o in range(1, 9)]
    files += [jpeg_encoder.encode(picture(33, 20), markers=jpeg_encoder.exif(o)) for o in range(1, 9)]
    files += [png(picture(23, 37, c, t)) for c in (1, 2, 3, 4) for t in (np.uint8, np.uint16)]
    files += [encode(picture(40, 30), "JPEG", mode="CMYK"), encode(picture(21, 30, 1), "JPEG")]
    with contextlib.suppress(SampleError):
        decode([ARITHMETIC])  # unless libjpeg-turbo was built without it
        files.append(ARITHMETIC)
    order = np.random.default_rng(seed).permutation(len(files))
    return [files[i] for i in order]


if __name__ == "__main__":  # python -m jpeg_corpus FOLDER: the smaller files of the corpus, for fuzzers
    import sys

    target = pathlib.Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for i, file in enumerate(f for f in corpus() if len(f.data) < 20000):
        (target / f"{i:04d}.jpg").write_bytes(file.data)
