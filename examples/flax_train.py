"""Trains a small CNN of Flax NNX from a folder of JPEGs, data-parallel over all devices.

    python examples/flax_train.py [IMAGE_DIR] [--epochs 8] [--batch-size 32]

It needs Flax, Optax and tqdm: pip install flax optax tqdm

IMAGE_DIR holds one folder of images per class. Without it, the script makes such a folder in a
temporary directory: random crops of the photos beside it, with their classes.

The batches come out of the iterator as global arrays on the sharding that the train step is
compiled for: nothing is copied, resharded or moved between the pipeline and the step, and the whole
script runs under ``jax.transfer_guard("disallow")``.
"""

import argparse
import dataclasses
import itertools
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from PIL import Image
from tqdm import tqdm

from jaxdali import fn
from jaxdali.plugin.jax import data_iterator

SIZE = 48  # the images that the network sees


def make_dataset(folder: pathlib.Path, per_photo: int = 20, seed: int = 0) -> pathlib.Path:
    """Writes random crops of the photos into `folder`, with the same classes; returns it."""
    rng = np.random.default_rng(seed)
    for photo in sorted((pathlib.Path(__file__).parent / "images").glob("*/*.jpg")):
        with Image.open(photo) as opened:
            image = opened.convert("RGB")
        target = folder / photo.parent.name
        target.mkdir(parents=True, exist_ok=True)
        for i in range(per_photo):
            width, height = (round(float(rng.uniform(0.35, 0.6)) * n) for n in image.size)
            x = int(rng.integers(0, image.width - width + 1))
            y = int(rng.integers(0, image.height - height + 1))
            crop = image.crop((x, y, x + width, y + height))
            crop.save(target / f"{photo.stem}_{i:03d}.jpg", quality=85)
    return folder


@dataclasses.dataclass(frozen=True)
class Data:
    """The files of a folder and their labels, in a training and a held-out part."""

    classes: list[str]
    train_files: list[str]
    train_labels: list[int]
    held_out_files: list[str]
    held_out_labels: list[int]


def split(folder: pathlib.Path) -> Data:
    """Lists a folder of class folders. Every fifth file is held out."""
    classes = sorted(d.name for d in folder.iterdir() if d.is_dir())
    data = Data(classes, [], [], [], [])
    paths = sorted(path for name in classes for path in (folder / name).glob("*.jp*g"))
    if len(classes) < 2 or len(paths) < 10:
        raise SystemExit(
            f"{folder}: need at least two class folders and ten JPEGs, "
            f"found {len(classes)} and {len(paths)}"
        )
    for i, path in enumerate(paths):
        label = classes.index(path.parent.name)
        if i % 5 == 0:
            data.held_out_files.append(str(path))
            data.held_out_labels.append(label)
        else:
            data.train_files.append(str(path))
            data.train_labels.append(label)
    return data


def make_train_iterator(data: Data, sharding: NamedSharding) -> Callable[..., Any]:
    """The `data_iterator` function for training: shuffled and augmented."""

    @data_iterator(output_map=["images", "labels"], reader_name="reader", sharding=sharding)
    def train_iterator(num_shards=1, shard_id=0):
        jpegs, labels = fn.readers.file(
            files=data.train_files,
            labels=data.train_labels,
            random_shuffle=True,
            num_shards=num_shards,
            shard_id=shard_id,
            name="reader",
        )
        images = fn.decoders.image(jpegs, device="mixed")
        images = fn.rotate(images, angle=fn.random.uniform(range=(-15.0, 15.0)), fill_value=0)
        # Resizing a window of 80 % of the image, at a random place, is a random crop.
        corner = fn.random.uniform(range=(0.0, 0.2), shape=2)
        images = fn.resize(
            images,
            size=(SIZE, SIZE),
            roi_start=corner,
            roi_end=corner + 0.8,
            roi_relative=True,
        )
        return images, labels.gpu()

    return train_iterator


def make_held_out_iterator(data: Data, sharding: NamedSharding) -> Callable[..., Any]:
    """The `data_iterator` function for the held-out part: in order, without augmentation."""

    @data_iterator(output_map=["images", "numbers"], reader_name="reader", sharding=sharding)
    def held_out_iterator(num_shards=1, shard_id=0):
        # Without labels the files are numbered: a sample that fills up the last batch has the
        # number of a sample before it.
        jpegs, numbers = fn.readers.file(
            files=data.held_out_files,
            pad_last_batch=True,
            num_shards=num_shards,
            shard_id=shard_id,
            name="reader",
        )
        images = fn.decoders.image(jpegs, device="mixed")
        return fn.resize(images, size=(SIZE, SIZE)), numbers.gpu()

    return held_out_iterator


class CNN(nnx.Module):
    """Three convolutions, each with stride 2, the mean over the image and a linear layer."""

    def __init__(self, num_classes: int, rngs: nnx.Rngs):
        widths = (3, 16, 32, 64)
        self.convs = nnx.List(
            [
                nnx.Conv(i, o, (3, 3), strides=(2, 2), rngs=rngs)
                for i, o in itertools.pairwise(widths)
            ]
        )
        self.head = nnx.Linear(widths[-1], num_classes, rngs=rngs)

    def __call__(self, images):
        """``u8[N, H, W, 3]`` -> logits ``f32[N, classes]``."""
        x = images.astype(jnp.float32) / 127.5 - 1.0
        for conv in self.convs:
            x = nnx.relu(conv(x))
        return self.head(x.mean(axis=(1, 2)))


@dataclasses.dataclass
class Result:
    """The result of a training run."""

    losses: list[float]  # of each step
    accuracy: float  # on the held-out part
    chance: float
    compiled: Any  # the compiled train step
    batch: dict[str, jax.Array]  # the last batch


def train(folder: pathlib.Path, epochs: int = 8, batch_size: int = 32, seed: int = 0) -> Result:
    """Trains on `folder`, with a progress bar, and measures the accuracy on the held-out part."""
    data = split(folder)
    mesh = Mesh(jax.devices(), ("batch",))
    sharded = NamedSharding(mesh, PartitionSpec("batch"))
    replicated = NamedSharding(mesh, PartitionSpec())
    tx = optax.adam(3e-3)

    # A compiled function makes parameters and optimiser state on the devices, so they are never
    # transferred.
    graph = nnx.eval_shape(lambda: nnx.graphdef(CNN(len(data.classes), nnx.Rngs(seed))))

    def initialise():
        params = nnx.state(CNN(len(data.classes), nnx.Rngs(seed)), nnx.Param)
        return params, tx.init(params)

    params, state = jax.jit(initialise, out_shardings=replicated)()

    def loss_of(params, images, labels):
        logits = nnx.merge(graph, params)(images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels[:, 0]).mean()

    def train_step(params, state, images, labels):
        loss, gradients = jax.value_and_grad(loss_of)(params, images, labels)
        updates, state = tx.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    def predict(params, images):
        return nnx.merge(graph, params)(images).argmax(axis=-1)

    train_step = jax.jit(
        train_step,
        in_shardings=(replicated, replicated, sharded, sharded),
        out_shardings=replicated,
        donate_argnums=(0, 1),
    )
    predict = jax.jit(predict, in_shardings=(replicated, sharded), out_shardings=replicated)

    compiled, batch, losses = None, {}, []
    iterator = make_train_iterator(data, sharded)(batch_size=batch_size, seed=seed)
    for epoch in range(epochs):
        batches = iter(iterator)  # as many batches as the epoch that begins
        bar = tqdm(batches, desc=f"epoch {epoch + 1}/{epochs}", total=len(iterator), unit="batch")
        for batch in bar:
            images, labels = batch["images"], batch["labels"]
            if compiled is None:  # compiled ahead of time, so that the program can be examined
                compiled = train_step.lower(params, state, images, labels).compile()
            params, state, loss = compiled(params, state, images, labels)
            if losses:  # of the step before: waiting for this one would leave the devices idle
                bar.set_postfix(loss=f"{jax.device_get(losses[-1]):.3f}")
            losses.append(loss)

    predictions = np.full(len(data.held_out_files), -1)
    for held_out in make_held_out_iterator(data, sharded)(batch_size=batch_size):
        predicted = predict(params, held_out["images"])
        numbers, predicted = jax.device_get((held_out["numbers"], predicted))
        predictions[numbers[:, 0]] = predicted
    held_out_labels = np.array(data.held_out_labels)
    return Result(
        losses=[float(x) for x in jax.device_get(losses)],
        accuracy=float((predictions == held_out_labels).mean()),
        chance=float(np.bincount(held_out_labels).max() / len(held_out_labels)),
        compiled=compiled,
        batch=batch,
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("image_dir", nargs="?", type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    # Without a GPU, JAX shows the CPU as 8 devices, so that there is something to shard over.
    jax.config.update("jax_num_cpu_devices", 8)
    with tempfile.TemporaryDirectory() as scratch, jax.transfer_guard("disallow"):
        folder = args.image_dir or make_dataset(pathlib.Path(scratch))
        result = train(folder, args.epochs, args.batch_size, args.seed)
    tenth = max(1, len(result.losses) // 10)
    print(f"loss {np.mean(result.losses[:tenth]):.3f} -> {np.mean(result.losses[-tenth:]):.3f}")
    print(f"held-out accuracy {result.accuracy:.1%}, chance {result.chance:.1%}")


if __name__ == "__main__":
    main()
