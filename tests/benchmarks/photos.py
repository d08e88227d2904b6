"""Makes a folder of photo-like JPEGs of the sizes ImageNet has, from the sample photos of examples/images.

    python tests/benchmarks/photos.py OUT_DIR [--n 512] [--classes 16] [--seed 0]

About 0.27 megapixels and 105 KB an image on average: crops of the samples, scaled, with sensor noise added until a
pixel takes as many bits as in ImageNet. The same files for a given seed and Pillow version.
"""

import argparse
import pathlib
from collections.abc import Sequence

import numpy as np
from PIL import Image

SAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "images"
SHAPES = [
    ((500, 375), 0.62),
    ((375, 500), 0.20),
    ((500, 500), 0.08),
    ((300, 225), 0.06),
    ((1600, 1200), 0.03),
    ((1200, 1600), 0.01),
]


def draw_size(rng: np.random.Generator, shapes: Sequence[tuple[tuple[int, int], float]] = SHAPES) -> tuple[int, int]:
    """(width, height) of a photo."""
    width, height = shapes[rng.choice(len(shapes), p=[p for _, p in shapes])][0]
    if rng.random() < 0.5:  # half of ImageNet is exactly 500 pixels on its long side, the rest spreads
        width, height = (max(160, round(x * float(np.exp(rng.normal(0, 0.15))))) for x in (width, height))
    return width, height


def make_photos(
    folder: pathlib.Path,
    n: int = 512,
    classes: int = 16,
    seed: int = 0,
    shapes: Sequence[tuple[tuple[int, int], float]] = SHAPES,
    sigma: tuple[float, float] = (5, 13),
) -> pathlib.Path:
    """Writes `n` JPEGs into `classes` folders below `folder`; returns it.

    Args:
      shapes: ((width, height), how often) of the images, which half of them have exactly.
      sigma: range of the noise.
    """
    photos = []
    for path in sorted(SAMPLES.glob("*/*_0.jpg")):
        with Image.open(path) as image:
            photos.append(image.convert("RGB"))
    for i in range(n):
        rng = np.random.default_rng([seed, i])
        photo = photos[rng.integers(len(photos))]
        width, height = draw_size(rng, shapes)
        crop_width = min(photo.width, photo.height * width / height) * rng.uniform(0.65, 1.0)
        crop_height = crop_width * height / width
        x, y = rng.uniform(0, photo.width - crop_width), rng.uniform(0, photo.height - crop_height)
        image = photo.resize((width, height), Image.Resampling.LANCZOS, box=(x, y, x + crop_width, y + crop_height))
        deviation = rng.uniform(*sigma) if width * height < 1e6 else rng.uniform(2, 5)
        noisy = np.asarray(image) + rng.normal(0, deviation, (height, width, 1))
        target = folder / f"class_{i % classes:03d}" / f"{i:05d}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.clip(noisy + 0.5, 0, 255).astype(np.uint8)).save(target, quality=int(rng.integers(87, 96)))
    return folder


def describe(folder: pathlib.Path) -> str:
    """Number, mean bytes and mean pixels of the JPEGs in a folder of class folders."""
    files = sorted(folder.glob("*/*.jp*g"))
    if not files:
        raise SystemExit(f"{folder}: no JPEGs in its sub-folders")
    pixels = []
    for f in files:
        with Image.open(f) as image:
            pixels.append(image.width * image.height)
    size = np.mean([f.stat().st_size for f in files])
    return f"{len(files)} JPEGs of {size / 1e3:.0f} KB and {np.mean(pixels) / 1e6:.2f} megapixels on average"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir", type=pathlib.Path)
    parser.add_argument("--n", type=int, default=512)
    parser.add_argument("--classes", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(describe(make_photos(args.out_dir, args.n, args.classes, args.seed)))
