"""CPU milliseconds per PNG file, beside libpng as others call it, on one thread.

    python tests/benchmarks/bench_png.py [--files 48] [--rounds 9]

Photos of 0.27 megapixels as RGB, RGBA and gray, and label masks (values of one byte in long runs), gray and with a
palette, all written by Pillow. The decoders take turns file by file. Reported are medians over the rounds of the mean
over the files, in CPU time of the thread, and the median of the per-round ratios to libpng as imagecodecs calls it (as
Pillow does, where imagecodecs is not installed). Before that every file's pixels are compared. OpenCV takes part where
it is installed.
"""

import argparse
import functools
import importlib.util
import io
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable

import numpy as np
from photos import make_photos
from PIL import Image

from jaxdali import _cpu, show_config, types


def by_pillow(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB") if image.mode == "P" else image)


def by_jaxdali(pool: int, data: bytes) -> np.ndarray:
    """One file on the calling thread, as the kernel decodes it."""
    file = np.frombuffer(data, np.uint8)
    info = np.empty((1, _cpu.INFO_COLUMNS), np.int32)
    _cpu.parse_headers(file.reshape(1, -1), np.zeros(1, np.int32), np.array([file.size]), info)
    out = np.empty(info[0, [_cpu.Info.HEIGHT, _cpu.Info.WIDTH, _cpu.Info.CHANNELS]], np.uint8)
    (code,) = _cpu.decode_images([file], info, [out], int(types.ANY_DATA), False, False, pool)
    assert code == 0
    return out[..., 0] if out.shape[2] == 1 else out


def decoders(pool: int) -> dict[str, Callable[[bytes], np.ndarray]]:
    """The reference first."""
    decoders_by_name: dict[str, Callable[[bytes], np.ndarray]] = {}
    if importlib.util.find_spec("imagecodecs"):
        import imagecodecs

        decoders_by_name[f"{imagecodecs.png_version()}, imagecodecs"] = imagecodecs.png_decode
    decoders_by_name["libpng, Pillow"] = by_pillow
    if importlib.util.find_spec("cv2"):
        import cv2

        cv2.setNumThreads(1)

        def by_opencv(data: bytes) -> np.ndarray:
            pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
            return pixels if pixels.ndim == 2 else pixels[..., [2, 1, 0, 3][: pixels.shape[2]]]

        decoders_by_name[f"OpenCV {cv2.__version__}"] = by_opencv
    decoders_by_name["jaxdali"] = functools.partial(by_jaxdali, pool)
    return decoders_by_name


def to_png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def mask(photo: Image.Image) -> Image.Image:
    """Areas of a dozen values."""
    small = photo.convert("L").resize((max(photo.width // 16, 1), max(photo.height // 16, 1)))
    return Image.fromarray(np.asarray(small.resize(photo.size, Image.Resampling.BICUBIC)) // 24)


def with_palette(values: Image.Image) -> Image.Image:
    image = values.copy()
    image.putpalette(np.random.default_rng(0).integers(0, 256, 768).tolist())
    return image


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        photos = [Image.open(p) for p in sorted(make_photos(pathlib.Path(scratch), args.files).glob("*/*.jpg"))]
        for photo in photos:
            photo.load()
    kinds = {
        "photos, RGB": photos,
        "photos, RGBA": [p.convert("RGBA") for p in photos],
        "photos, gray": [p.convert("L") for p in photos],
        "label masks, gray": [mask(p) for p in photos],
        "label masks, palette": [with_palette(mask(p)) for p in photos],
    }
    show_config()
    print("\n| files | decoder | CPU ms/file | times as fast |\n|---|---|--:|--:|")
    pool = _cpu.pool_create(1)
    decoders_by_name = decoders(pool)
    for kind, images in kinds.items():
        files = [to_png(image) for image in images]
        for data in files:
            first, *decoded = [decode(data) for decode in decoders_by_name.values()]
            assert all(np.array_equal(first, pixels) for pixels in decoded), kind
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
        for name, ms in rounds.items():
            ratio = statistics.median(r / m for r, m in zip(reference, ms, strict=True))
            print(f"| {kind} | {name} | {statistics.median(ms):.2f} | {ratio:.2f} |")
    _cpu.pool_destroy(pool)


if __name__ == "__main__":
    main()
