"""tf.data, torch's DataLoader, Grain and SPDL, as their documentation has it: what `bench_pipelines.py` measures beside
the pipelines.

Each function returns one that makes the next batch of an endless, shuffled epoch. Windows of `train` are what each
library draws by itself; none antialiases but torch's. Images of different sizes stay a list.

    pip install tensorflow-cpu torch torchvision grain spdl opencv-python-headless  # and, for SPDL, FFmpeg's shared
    libraries
"""

import math
import pathlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from peers import MEAN, SHAPES, STD, OpenCV, made, rotated_size, window

Take = Callable[[], Any]


def listed(folder: str) -> tuple[list[str], list[int]]:
    """Files, and their folders as numbers."""
    files = sorted(pathlib.Path(folder).glob("*/*.jpg"))
    classes = {name: i for i, name in enumerate(sorted({f.parent.name for f in files}))}
    return [str(f) for f in files], [classes[f.parent.name] for f in files]


def tf_data(pipeline: str, folder: str, threads: int, batch: int) -> Take:
    """Windows are cut out by the decoder, and the window of `eval` before it is resized."""
    import tensorflow as tf

    def decoded(data: Any) -> Any:
        if pipeline not in ("train", "eval"):
            return tf.io.decode_jpeg(data, channels=3)
        shape = tf.image.extract_jpeg_shape(data)
        if pipeline == "train":
            whole = tf.constant([[[0.0, 0.0, 1.0, 1.0]]])
            begin, size, _ = tf.image.sample_distorted_bounding_box(
                shape, whole, aspect_ratio_range=(3 / 4, 4 / 3), area_range=(0.08, 1.0), max_attempts=10
            )
            cut = tf.concat([begin[:2], size[:2]], 0)
        else:
            side = tf.cast(tf.cast(tf.reduce_min(shape[:2]), tf.float32) * (224 / 256), tf.int32)
            cut = tf.concat([(shape[:2] - side) // 2, [side, side]], 0)
        return tf.io.decode_and_crop_jpeg(data, cut, channels=3)

    def rotated(image: Any) -> Any:
        angle = tf.random.uniform([], -math.pi / 18, math.pi / 18)
        c, s = tf.cos(angle), tf.sin(angle)
        height, width = (tf.cast(x, tf.float32) for x in tf.unstack(tf.shape(image)[:2]))
        new_width, new_height = tf.math.ceil(width * c + height * abs(s)), tf.math.ceil(height * c + width * abs(s))
        x, y = (new_width - 1) / 2, (new_height - 1) / 2
        matrix = [c, s, (width - 1) / 2 - c * x - s * y, -s, c, (height - 1) / 2 + s * x - c * y, 0.0, 0.0]
        size = tf.cast([new_height, new_width], tf.int32)
        return tf.raw_ops.ImageProjectiveTransformV3(
            images=image[None], transforms=[matrix], output_shape=size, fill_value=0.0, interpolation="BILINEAR"
        )[0]

    def made_by_tf(file: Any, label: Any) -> tuple[Any, Any]:
        image = decoded(tf.io.read_file(file))
        if pipeline == "rotate":
            image = rotated(image)
        if shape := SHAPES[pipeline]:
            image = tf.image.resize(image, shape[:2])
            if pipeline == "train":
                image = tf.image.random_flip_left_right(image)
            image = (image - MEAN) / STD if pipeline in ("train", "eval") else tf.cast(image + 0.5, tf.uint8)
        return image, label

    files, labels = listed(folder)
    data = tf.data.Dataset.from_tensor_slices((files, labels)).shuffle(len(files)).repeat()
    data = data.map(made_by_tf, num_parallel_calls=tf.data.AUTOTUNE)
    data = data.batch(batch) if SHAPES[pipeline] else data
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    options.deterministic = False
    iterator = iter(data.prefetch(tf.data.AUTOTUNE).with_options(options))
    return lambda: next(iterator) if SHAPES[pipeline] else [next(iterator) for _ in range(batch)]


def torch_loader(transform: Callable, pipeline: str, folder: str, threads: int, batch: int, **options: Any) -> Take:
    """`threads` worker processes, as the GIL makes one use them."""
    from torch.utils.data import DataLoader, RandomSampler
    from torchvision.datasets import ImageFolder

    data = ImageFolder(folder, transform, **options)
    sampler = RandomSampler(data, num_samples=1 << 20)
    collate = None if SHAPES[pipeline] else list
    return DataLoader(data, batch, sampler=sampler, num_workers=threads, collate_fn=collate).__iter__().__next__


def torch_pillow(pipeline: str, folder: str, threads: int, batch: int) -> Take:
    """Pillow's images until they are batched: the loader and the transforms of torchvision's examples."""
    from torchvision import transforms as T

    normalised = [T.ToTensor(), T.Normalize((MEAN / 255).tolist(), (STD / 255).tolist())]
    resized = [T.Resize((256, 256)), T.PILToTensor()]
    steps = {
        "decode": [T.PILToTensor()],
        "rotate": [T.RandomRotation(10, T.InterpolationMode.BILINEAR, expand=True), *resized],
        "train": [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), *normalised],
        "eval": [T.Resize(256), T.CenterCrop(224), *normalised],
    }
    return torch_loader(T.Compose(steps.get(pipeline, resized)), pipeline, folder, threads, batch)


def torch_tensors(pipeline: str, folder: str, threads: int, batch: int) -> Take:
    """torchvision's own decoder, and its transforms of tensors."""
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg, read_file
    from torchvision.transforms import v2 as T

    normalised = [T.ToDtype(torch.float32, scale=True), T.Normalize((MEAN / 255).tolist(), (STD / 255).tolist())]
    resized = [T.Resize((256, 256))]
    steps = {
        "decode": [T.Identity()],
        "rotate": [T.RandomRotation(10, T.InterpolationMode.BILINEAR, expand=True), *resized],
        "train": [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), *normalised],
        "eval": [T.Resize(256), T.CenterCrop(224), *normalised],
    }

    def load(file: str) -> Any:
        return decode_jpeg(read_file(file), ImageReadMode.RGB)

    return torch_loader(T.Compose(steps.get(pipeline, resized)), pipeline, folder, threads, batch, loader=load)


def grain(pipeline: str, folder: str, threads: int, batch: int) -> Take:
    """OpenCV in Grain's threads."""
    import grain as gr

    peer, shape = OpenCV(), SHAPES[pipeline]

    def transform(item: tuple[str, int], rng: np.random.Generator) -> tuple[np.ndarray, int]:
        file, label = item
        image = made(peer, pipeline, pathlib.Path(file).read_bytes(), random.Random(int(rng.integers(1 << 32))))
        if pipeline in ("train", "eval"):
            row = np.empty(shape, np.float32)
            peer.normalise(image, row)
            return row, label
        return image, label

    data = (
        gr.MapDataset.source(list(zip(*listed(folder), strict=True)))
        .shuffle(seed=1)
        .repeat()
        .random_map(transform, seed=1)
    )
    options = gr.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * batch)
    iterator = iter(data.to_iter_dataset(options).batch(batch, batch_fn=None if shape else list))
    return lambda: next(iterator)


def spdl(pipeline: str, folder: str, threads: int, batch: int) -> Take:
    """Decoded, cropped and resized by FFmpeg's filters, in SPDL's threads."""
    import spdl.io
    from spdl.pipeline import PipelineBuilder

    files, labels = listed(folder)
    rng, shape = random.Random(1), SHAPES[pipeline]

    def source() -> Iterator[tuple[str, int]]:
        while True:
            yield from rng.sample(list(zip(files, labels, strict=True)), len(files))

    def filters(width: int, height: int) -> Iterator[str]:
        if pipeline == "train":
            x, y, w, h = window(rng, width, height)
            yield f"crop=w={w}:h={h}:x={x}:y={y},scale=w=224:h=224:flags=bilinear"
            if rng.random() < 0.5:
                yield "hflip"
        elif pipeline == "eval":
            scale = 256 / min(width, height)
            yield f"scale=w={round(width * scale)}:h={round(height * scale)}:flags=bilinear,crop=w=224:h=224"
        elif shape:
            if pipeline == "rotate":
                angle = rng.uniform(-10, 10)
                new_width, new_height = rotated_size(width, height, angle)
                yield f"rotate=a={math.radians(angle)}:ow={new_width}:oh={new_height}"
            yield f"scale=w={shape[1]}:h={shape[0]}:flags=bilinear"
        yield "format=pix_fmts=rgb24"

    def load(item: tuple[str, int]) -> tuple[Any, int]:
        file, label = item
        packets = spdl.io.demux_image(file)
        frames = spdl.io.decode_packets(packets, filter_desc=",".join(filters(packets.width, packets.height)))
        return frames if shape else spdl.io.to_numpy(spdl.io.convert_frames(frames)), label

    def together(items: list[tuple[Any, int]]) -> Any:
        if not shape:
            return items
        images = spdl.io.to_numpy(spdl.io.convert_frames([frames for frames, _ in items]))
        if pipeline in ("train", "eval"):
            images = np.multiply(images, 1 / STD)
            images -= MEAN / STD
        return images, [label for _, label in items]

    builder = (
        PipelineBuilder()
        .add_source(source())
        .pipe(load, concurrency=threads)
        .aggregate(batch)
        .pipe(together)
        .add_sink(2)
    )
    running = builder.build(num_threads=threads)
    running.start()
    return running.get_item


LOADERS: dict[str, Callable[[str, str, int, int], Take]] = {
    "tf.data": tf_data,
    "torch, Pillow": torch_pillow,
    "torch, tensors": torch_tensors,
    "Grain, OpenCV": grain,
    "SPDL": spdl,
}
