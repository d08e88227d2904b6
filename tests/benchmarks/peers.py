"""Pools of threads over OpenCV, simplejpeg and Pillow, as one writes them by hand: what `bench_pipelines.py` measures
beside the pipelines.

Each image is read, decoded and worked on by one thread, straight into its row of the batch; images of different sizes
stay a list. None of them antialiases but Pillow, and images stay HWC, which saves a transposition. OpenCV's own threads
are off.
"""

import math
import pathlib
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

MEAN, STD = np.float32([123.675, 116.28, 103.53]), np.float32([58.395, 57.12, 57.375])
SHAPES = {
    "decode": None,
    "resize": (256, 256, 3),
    "rotate": (256, 256, 3),
    "train": (224, 224, 3),
    "eval": (224, 224, 3),
    "large": (256, 256, 3),
    "scaled": (256, 256, 3),
}


class OpenCV:
    """Decoding and all else by OpenCV."""

    def __init__(self):
        import cv2

        self._cv = cv2
        cv2.setNumThreads(0)
        self._table = ((np.arange(256, dtype=np.float32)[:, None] - MEAN) / STD)[None]  # [1, 256, channel]

    def decode(self, data: bytes) -> Any:
        return self._cv.imdecode(np.frombuffer(data, np.uint8), self._cv.IMREAD_COLOR_RGB)

    def size(self, image: Any) -> tuple[int, int]:
        return image.shape[1], image.shape[0]

    def crop(self, image: Any, x: int, y: int, width: int, height: int) -> Any:
        return image[y : y + height, x : x + width]

    def resize(self, image: Any, width: int, height: int) -> Any:
        return self._cv.resize(image, (width, height), interpolation=self._cv.INTER_LINEAR)

    def rotate(self, image: Any, angle: float) -> Any:
        width, height = self.size(image)
        new_width, new_height = rotated_size(width, height, angle)
        matrix = self._cv.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), angle, 1.0)
        matrix[:, 2] += (new_width - width) / 2, (new_height - height) / 2
        return self._cv.warpAffine(image, matrix, (new_width, new_height), flags=self._cv.INTER_LINEAR)

    def mirror(self, image: Any) -> Any:
        return self._cv.flip(image, 1)

    def normalise(self, image: Any, row: np.ndarray):
        self._cv.LUT(np.ascontiguousarray(image), self._table, dst=row)


class SimpleJpeg(OpenCV):
    """Decoding by libjpeg-turbo's own interface, without OpenCV around it."""

    def __init__(self):
        super().__init__()
        import simplejpeg

        self._decode = simplejpeg.decode_jpeg

    def decode(self, data: bytes) -> Any:
        return self._decode(data, "RGB")


class Pillow:
    """The default of torch's datasets."""

    def __init__(self):
        from PIL import Image

        self._image = Image

    def decode(self, data: bytes) -> Any:
        import io

        return self._image.open(io.BytesIO(data)).convert("RGB")

    def size(self, image: Any) -> tuple[int, int]:
        return image.size

    def crop(self, image: Any, x: int, y: int, width: int, height: int) -> Any:
        return image.crop((x, y, x + width, y + height))

    def resize(self, image: Any, width: int, height: int) -> Any:
        return image.resize((width, height), self._image.Resampling.BILINEAR)

    def rotate(self, image: Any, angle: float) -> Any:
        return image.rotate(angle, self._image.Resampling.BILINEAR, expand=True)

    def mirror(self, image: Any) -> Any:
        return image.transpose(self._image.Transpose.FLIP_LEFT_RIGHT)

    def normalise(self, image: Any, row: np.ndarray):
        np.multiply(image, 1 / STD, out=row)
        row -= MEAN / STD


PEERS: dict[str, type] = {"opencv": OpenCV, "simplejpeg": SimpleJpeg, "pillow": Pillow}


def rotated_size(width: int, height: int, degrees: float) -> tuple[int, int]:
    c, s = math.cos(math.radians(degrees)), abs(math.sin(math.radians(degrees)))
    return math.ceil(width * c + height * s), math.ceil(height * c + width * s)


def window(rng: random.Random, width: int, height: int) -> tuple[int, int, int, int]:
    """The window of a random-resized crop: x, y, width, height."""
    for _ in range(10):
        area, aspect = width * height * rng.uniform(0.08, 1), math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return rng.randrange(width - w + 1), rng.randrange(height - h + 1), w, h
    return 0, 0, width, height


def made(peer: Any, pipeline: str, data: bytes, rng: random.Random) -> Any:
    """An image, before it is normalised."""
    image = peer.decode(data)
    width, height = peer.size(image)
    if pipeline == "train":
        image = peer.resize(peer.crop(image, *window(rng, width, height)), 224, 224)
        return peer.mirror(image) if rng.random() < 0.5 else image
    if pipeline == "eval":
        scale = 256 / min(width, height)
        width, height = round(width * scale), round(height * scale)
        return peer.crop(peer.resize(image, width, height), (width - 224) // 2, (height - 224) // 2, 224, 224)
    if pipeline == "rotate":
        image = peer.rotate(image, rng.uniform(-10, 10))
    return image if pipeline == "decode" else peer.resize(image, 256, 256)


def batches(name: str, pipeline: str, folder: str, threads: int, batch: int) -> Callable[[], Any]:
    """A function that makes the next batch."""
    peer, files = PEERS[name](), sorted(pathlib.Path(folder).glob("*/*.jpg"))
    pool, rng = ThreadPoolExecutor(threads), random.Random(1)
    shape = SHAPES[pipeline]
    normalised = pipeline in ("train", "eval")
    order: list[pathlib.Path] = []

    def one(file: pathlib.Path, seed: int, row: np.ndarray | None) -> Any:
        image = made(peer, pipeline, file.read_bytes(), random.Random(seed))
        if row is None:
            return np.asarray(image)
        if normalised:
            peer.normalise(image, row)
        else:
            row[...] = np.asarray(image)
        return None

    def take() -> Any:
        while len(order) < batch:
            order.extend(rng.sample(files, len(files)))
        samples = [order.pop(0) for _ in range(batch)]
        rows = np.empty((batch, *shape), np.float32 if normalised else np.uint8) if shape else [None] * batch
        images = list(pool.map(one, samples, [rng.random() for _ in samples], rows))
        return rows if shape else images

    return take
