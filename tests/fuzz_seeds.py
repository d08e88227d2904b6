"""Small files of all kinds, from which libFuzzer's harnesses (ffi/fuzz/learn_*.cc) start."""

import io
import pathlib
import struct
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence

import containers
import jpeg_corpus
import numpy as np
import places
import png_encoder
import riegeli
from images import encode, picture

CHOICES = 32  # bytes at the start of an input: InputChoices in ffi/fuzz/choices.h
GOLDEN = places.DATA / "golden" / "files"


def golden(*kinds: str) -> Iterator[bytes]:
    """The golden files of these kinds that are small."""
    for path in sorted(GOLDEN.iterdir()):
        if path.suffix in kinds and path.stat().st_size <= 6000:
            yield path.read_bytes()


def jpeg(rng: np.random.Generator) -> Iterator[tuple[Sequence[int], bytes]]:
    files = [*golden(".jpg"), *(f.data for f in jpeg_corpus.corpus() if len(f.data) < 2000)]
    files += [encode(picture(9, 14), "JPEG", quality=q, progressive=p) for q in (5, 95) for p in (False, True)]
    for file in files:
        for mode in range(3):
            yield (mode, *rng.integers(0, 1 << 16, 15).tolist()), file


def png(rng: np.random.Generator) -> Iterator[tuple[Sequence[int], bytes]]:
    files = list(golden(".png"))
    for color, bits in png_encoder.KINDS:
        for interlaced in (False, True):
            shape = (7, 11, png_encoder.SAMPLES[color])
            palette = rng.integers(0, 256, (1 << bits, 3)) if color == png_encoder.PALETTE else None
            samples = rng.integers(0, 1 << bits, shape)
            files.append(
                png_encoder.encode_png(samples, color, bits, interlaced=interlaced, palette=palette, pieces=2, rng=rng)
            )
    # Newer versions of libpng refuse a chunk whose third letter is small.
    files.append(png_encoder.encode_png(np.zeros((2, 3, 1), int), png_encoder.GRAY, 8, others=[(b"prva", b"x")]))
    for file in files:
        others = rng.integers(0, 1 << 16, 15).tolist()
        yield (0, *others), file
        yield (1, *others), uncompressed(file)


def uncompressed(file: bytes) -> bytes:
    """A PNG file whose one chunk IDAT has the rows, not compressed."""
    before, data, after = b"", b"", b""
    offset = 8
    while offset + 12 <= len(file):
        (size,) = struct.unpack_from(">I", file, offset)
        chunk = file[offset : offset + 12 + size]
        if chunk[4:8] == b"IDAT":
            data += chunk[8:-4]
        elif data:
            after += chunk
        else:
            before += chunk
        offset += len(chunk)
    return png_encoder.SIGNATURE + before + png_encoder.chunk(b"IDAT", zlib.decompress(data)) + after


def images(rng: np.random.Generator) -> Iterator[tuple[Sequence[int], bytes]]:
    files = list(golden(".webp", ".bmp", ".tif", ".jp2", ".pgm", ".ppm", ".pbm"))
    for quality in (1, 60, 100):
        files += [
            encode(picture(17, 22, c), "WEBP", quality=quality, lossless=e) for c in (3, 4) for e in (False, True)
        ]
    files += [encode(picture(9, 14), kind) for kind in ("GIF", "JPEG2000", "TIFF", "BMP", "PPM", "AVIF")]
    for file in files:
        yield rng.integers(0, 1 << 16, 16).tolist(), file


def records(rng: np.random.Generator) -> Iterator[tuple[Sequence[int], bytes]]:
    record, archive, index, tar_index, chunks, sparse, chunk = range(7)  # learn_records.cc: Kind
    example, image_record, datum, tensors, member = range(5)  # and its Layouts
    features = {"image": [b"an image", b"more"], "label": [1, -1, 1 << 40], "box": [0.5] * 8, "other": []}
    for packed in (True, False):
        yield (record, example, 1, 1), containers.example(features, packed)
    parts = {0: b"\0" * 24 + b"whole", 1: b"\2\0\0\0" + b"\0" * 28, 2: b"middle", 3: b"last"}
    framed = {k: struct.pack("<II", 0xCED7230A, k << 29 | len(v)) + v + bytes(-len(v) % 4) for k, v in parts.items()}
    yield (record, image_record, 0, 1), framed[0]
    yield (record, image_record, 0, 1), framed[1] + framed[2] + framed[3]
    yield (record, datum, 0, 1), containers.datum(b"\1" * 24, 7, False, (2, 3, 4))
    yield (
        (record, tensors, 0, 1),
        containers.tensors(
            containers.tensor(containers.BYTE, b"\1" * 24, (2, 4, 3)),
            containers.tensor(containers.INT64, [1, -1, 1 << 50], packed=True),
            containers.tensor(containers.FLOAT, [1.0, 2.0], (2,), packed=False),
            containers.tensor(containers.STRING, [b"text", b"more"]),
        ),
    )
    long = "folder/" * 20 + "name.seg.png"
    members = [("folder/a.jpg", b"1" * 700), ("folder/a.seg.png", b""), (long, b"2"), (".hidden", b""), ("b.jpg", b"3")]
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w", format=form) as tar:
            for name, data in members:
                info = tarfile.TarInfo(name if form != tarfile.USTAR_FORMAT else name[-90:])
                info.size = len(data)
                if form == tarfile.PAX_FORMAT:
                    info.pax_headers = (
                        {"comment": "\u00fc", "GNU.sparse.name": "x"} if name == "b.jpg" else {"mtime": "1.5"}
                    )
                tar.addfile(info, io.BytesIO(data))
            link = tarfile.TarInfo("link.jpg")
            link.type, link.linkname = tarfile.SYMTYPE, "b.jpg"
            tar.addfile(link)
        data = file.getvalue()[: file.tell()].rstrip(b"\0")
        data += bytes(-len(data) % 512)
        yield (archive, 1), data
        yield (sparse,), data[:2048]
        yield (record, member, 1, 1), data[:1024]
    yield (index, 11), b"0 40\n40 1040\n1080 36\n\n1116\t9223372036854775807\n"
    text = b"jpg 512 1000 a/0.jpg cls 2048 1 a/0.cls\njpg 3072 9 1.jpg\n\nCLS 4608 2 d/2.CLS\n"
    for width in (0, 1):
        yield (tar_index, 1, 0, 4, width), text
    rows = [(64, 1000, 1), ((1 << 35) - 1, 9, 1)]
    yield (chunks, 9, 11), b"".join(riegeli.field(k, x) for row in rows for k, x in enumerate(row, 1))
    yield (chunk, 3), riegeli.chunk([b"a record"])


SEEDS: dict[str, Callable] = {"learn_jpeg": jpeg, "learn_png": png, "learn_images": images, "learn_records": records}


def write(folder: pathlib.Path, harness: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for i, (choices, file) in enumerate(SEEDS[harness](np.random.default_rng(0))):
        head = struct.pack(f"<{len(choices)}H", *choices)
        (folder / f"seed{i:04d}").write_bytes(head + bytes(CHOICES - len(head)) + file)


if __name__ == "__main__":  # python -m fuzz_seeds HARNESS FOLDER
    write(pathlib.Path(sys.argv[2]), sys.argv[1])
