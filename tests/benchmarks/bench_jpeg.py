"""CPU milliseconds per JPEG file of `jaxdali.decode_jpeg`, beside libjpeg-turbo as others call it, on one thread.

    python tests/benchmarks/bench_jpeg.py [--data DIR] [--files 128] [--rounds 9] [--progressive]

The decoders take turns file by file. Reported are medians over the rounds of the mean over the files, in CPU time of
the thread, and the median of the per-round ratios to libjpeg-turbo as imagecodecs calls it (as Pillow does, where
imagecodecs is not installed). Before that every file's pixels are compared.

With --progressive it also says what the host does for a GPU: how many bytes cross, and its CPU time.
"""

import argparse
import importlib.util
import io
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable

import numpy as np
from photos import describe, make_photos
from PIL import Image

import jaxdali
from jaxdali import _cpu, types
from jaxdali._cpu import Info
from jaxdali.fn._decode.formats import parse_header


def by_pillow(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image)


def decoders() -> dict[str, Callable[[bytes], np.ndarray]]:
    """The reference first."""
    decoders_by_name: dict[str, Callable[[bytes], np.ndarray]] = {}
    if importlib.util.find_spec("imagecodecs"):
        import imagecodecs

        decoders_by_name[f"libjpeg-turbo ({imagecodecs.jpeg8_version()}), imagecodecs"] = imagecodecs.jpeg8_decode
    decoders_by_name["libjpeg-turbo, Pillow"] = by_pillow
    decoders_by_name["jaxdali.decode_jpeg"] = jaxdali.decode_jpeg
    return decoders_by_name


def as_progressive(data: bytes) -> bytes:
    """The same pixels' coefficients in progressive scans, as Pillow writes them."""
    file = io.BytesIO()
    with Image.open(io.BytesIO(data)) as image:
        image.save(file, "JPEG", quality="keep", progressive=True)
    return file.getvalue()


def crops(info: np.ndarray) -> np.ndarray:
    """The same images with random windows: 8 to 100 % of the area, aspect ratios 3:4 to 4:3, cut where they leave the
    image.
    """
    rng, info = np.random.default_rng(0), info.copy()
    height, width = info[:, Info.HEIGHT], info[:, Info.WIDTH]
    area, ratio = (
        height * width * rng.uniform(0.08, 1, len(info)),
        np.exp(rng.uniform(-1, 1, len(info)) * np.log(4 / 3)),
    )
    sizes = [
        np.clip(x, 1, limit).astype(int)
        for x, limit in ((np.sqrt(area / ratio), height), (np.sqrt(area * ratio), width))
    ]
    starts = [rng.integers(0, limit - x + 1) for x, limit in zip(sizes, (height, width), strict=True)]
    info[:, [Info.REGION_Y, Info.REGION_X, Info.REGION_H, Info.REGION_W]] = np.stack([*starts, *sizes], axis=1)
    return info


def print_for_gpu(files: list[bytes], rounds: int):
    """The coefficients of progressive files, as they are sent to a GPU, beside the pixels."""
    data = [np.frombuffer(f, np.uint8) for f in files]
    whole, pool = np.stack([parse_header(x) for x in data]), _cpu.pool_create(1)
    print("\n| for a GPU, whole or a random window | KB/image | CPU ms/image |\n|---|--:|--:|")
    for name, info in (("whole", whole), ("window", crops(whole))):
        out = [np.empty((h, w, 3), np.uint8) for h, w in info[:, [Info.REGION_H, Info.REGION_W]].tolist()]
        pixels = np.array([x.nbytes for x in out])
        tables = np.zeros((len(files), _cpu.TABLE_WORDS), np.int32)
        times: dict[str, list[float]] = {"coefficients": [], "pixels": []}
        coefficients: list[np.ndarray | None] = []
        for _ in range(rounds):
            start = time.thread_time()
            coefficients = _cpu.compact_jpegs(data, info, pixels, tables, int(types.RGB), pool)
            middle = time.thread_time()
            assert not any(_cpu.decode_images(data, info, out, int(types.RGB), False, False, pool))
            for kind, seconds in zip(times, (middle - start, time.thread_time() - middle), strict=True):
                times[kind].append(1e3 * seconds / len(files))
        assert all(x is not None for x in coefficients)
        for kind, size in (
            ("coefficients", sum(x.nbytes for x in coefficients if x is not None)),
            ("pixels", pixels.sum()),
        ):
            print(f"| {name}, {kind} | {size / len(files) / 1e3:.0f} | {statistics.median(times[kind]):.2f} |")
    _cpu.pool_destroy(pool)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of class folders of JPEGs; default: made for the occasion")
    parser.add_argument("--files", type=int, default=128, help="how many of them")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--progressive", action="store_true", help="of the same files, written anew with progressive scans"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(args.data) if args.data else make_photos(pathlib.Path(scratch), args.files)
        paths = sorted(folder.glob("*/*.jp*g"))
        files = [p.read_bytes() for p in paths[:: max(1, len(paths) // args.files)][: args.files]]
        if args.progressive:
            files = [as_progressive(data) for data in files]
        print(f"{describe(folder)}, {len(files)} of them{', progressive' * args.progressive}; {args.rounds} rounds\n")
    decoders_by_name = decoders()
    for data in files:
        first, *images = [decode(data) for decode in decoders_by_name.values()]
        assert all(np.array_equal(first, image) for image in images)
    rounds: dict[str, list[float]] = {name: [] for name in decoders_by_name}
    for _ in range(args.rounds):
        spent = dict.fromkeys(decoders_by_name, 0.0)
        for data in files:
            for name, decode in decoders_by_name.items():
                start = time.thread_time()
                decode(data)
                spent[name] += time.thread_time() - start
        for name, seconds in spent.items():
            rounds[name].append(1e3 * seconds / len(files))
    reference = next(iter(rounds.values()))
    print("| decoder | CPU ms/file | times as fast |\n|---|--:|--:|")
    for name, ms in rounds.items():
        ratio = statistics.median(r / m for r, m in zip(reference, ms, strict=True))
        print(f"| {name} | {statistics.median(ms):.2f} | {ratio:.2f} |")
    if args.progressive:
        print_for_gpu(files, args.rounds)


if __name__ == "__main__":
    main()
