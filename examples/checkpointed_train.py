"""Trains a small CNN on photos, with an exact validation and checkpoints from which it continues.

    python examples/checkpointed_train.py [PHOTOS] [--checkpoints DIR] [--steps 50]

It needs Flax, Optax and Orbax: pip install flax optax orbax-checkpoint

PHOTOS holds two folders, `train` and `val`, each with one folder of images per class. Without it,
the script cuts them out of the photos beside it. Every tenth step Orbax saves model, optimizer and
the position in the data. Start the script again with the same DIR: it continues after the last
checkpoint, also in the middle of an epoch, with the batches that come next. Without DIR, it stops
halfway and starts again by itself. The guide "Train a model" explains each part.
"""

import argparse
import pathlib
import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from PIL import Image

from jaxdali import fn
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import data_iterator


def make_photos(source, folder, per_photo, seed):
    """Writes random crops of the photos of `source` into `folder`, with the same classes."""
    rng = np.random.default_rng(seed)
    for path in sorted(pathlib.Path(source).glob("*/*.jpg")):
        photo = Image.open(path).convert("RGB")
        target = folder / path.parent.name
        target.mkdir(parents=True, exist_ok=True)
        for i in range(per_photo):
            side = int(min(photo.size) * rng.uniform(0.5, 0.9))
            x, y = (int(rng.integers(0, extent - side + 1)) for extent in photo.size)
            photo.crop((x, y, x + side, y + side)).save(target / f"{path.stem}_{i}.jpg")


SIZE = 64  # the images that the network sees
MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]  # of ImageNet's bytes


def normalized(images, mirror: Any = 0):
    """Bytes 0 to 255 as floats around 0, with Flax's order of axes."""
    return fn.crop_mirror_normalize(images, mean=MEAN, std=STD, mirror=mirror, output_layout="HWC")


def training(folder, num_shards=1, shard_id=0):
    """The pipeline for training: shuffled, and another part of each photo in each epoch."""
    jpegs, labels = fn.readers.file(
        file_root=str(folder),
        name="photos",
        random_shuffle=True,
        pad_last_batch=True,
        num_shards=num_shards,
        shard_id=shard_id,
    )
    images = fn.decoders.image_random_crop(jpegs, device="mixed", random_area=[0.3, 1.0])
    images = fn.resize(images, size=(SIZE, SIZE))
    return normalized(images, mirror=fn.random.coin_flip()), labels


def validation(folder, num_shards=1, shard_id=0):
    """The pipeline for validation: in order, and nothing random."""
    jpegs, labels = fn.readers.file(
        file_root=str(folder),
        name="photos",
        pad_last_batch=True,
        num_shards=num_shards,
        shard_id=shard_id,
    )
    images = fn.decoders.image(jpegs, device="mixed")
    return normalized(fn.resize(images, size=(SIZE, SIZE))), labels


def make_iterators(photos, sharding, batch_size, seed=0):
    """The iterator for training never ends. A loop over the one for validation is an epoch."""
    classes = [sorted(p.name for p in (photos / part).iterdir()) for part in ("train", "val")]
    assert classes[0] == classes[1], "train and val have different folders of classes"
    common = {"output_map": ["images", "labels"], "reader_name": "photos", "sharding": sharding}
    make_train = data_iterator(
        training, **common, last_batch_policy=LastBatchPolicy.DROP, repeat=True
    )
    make_val = data_iterator(
        validation, **common, last_batch_policy=LastBatchPolicy.PARTIAL, mask_name="valid"
    )
    options = {"batch_size": batch_size, "num_threads": 2, "seed": seed}
    return make_train(photos / "train", **options), make_val(photos / "val", **options)


class CNN(nnx.Module):
    """Three convolutions, the mean over the image, and a linear layer."""

    def __init__(self, classes, rngs):
        widths = [(3, 16), (16, 32), (32, 64)]
        self.convs = nnx.List([nnx.Conv(i, o, (3, 3), strides=2, rngs=rngs) for i, o in widths])
        self.head = nnx.Linear(64, classes, rngs=rngs)

    def __call__(self, images):
        """``f32[N, H, W, 3]`` -> ``f32[N, classes]``."""
        for conv in self.convs:
            images = nnx.relu(conv(images))
        return self.head(images.mean(axis=(1, 2)))


@nnx.jit
def train_step(model, optimizer, images, labels):
    """Changes the model and the optimizer; returns the loss."""

    def loss_of(model):
        loss = optax.softmax_cross_entropy_with_integer_labels
        return loss(model(images), labels[:, 0]).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


@nnx.jit
def count(model, images, labels, valid):
    """How many photos of a batch the model names correctly, and how many it has."""
    correct = model(images).argmax(axis=-1) == labels[:, 0]
    return jnp.sum(correct & valid), jnp.sum(valid)


def train(photos, checkpoints, steps, batch_size=32, save_every=10, seed=0):
    """Trains from the last checkpoint, if there is one, up to step `steps`; returns the losses."""
    mesh = Mesh(jax.devices(), ("batch",))
    sharding = NamedSharding(mesh, PartitionSpec("batch"))
    train_iterator, val_iterator = make_iterators(photos, sharding, batch_size, seed)
    model = CNN(len(list((photos / "train").iterdir())), nnx.Rngs(seed))
    optimizer = nnx.Optimizer(model, optax.adam(3e-3), wrt=nnx.Param)
    state = jax.device_put(nnx.state((model, optimizer)), NamedSharding(mesh, PartitionSpec()))

    losses = []
    manager = ocp.CheckpointManager(
        checkpoints.absolute(), options=ocp.CheckpointManagerOptions(max_to_keep=3)
    )
    with manager, train_iterator, val_iterator:
        start = manager.latest_step() or 0
        if start:
            parts = {"state": ocp.args.StandardRestore(state), "data": ocp.args.JsonRestore()}
            saved = manager.restore(start, args=ocp.args.Composite(**parts))
            state = saved["state"]
            train_iterator.set_state(saved["data"])
            print(f"continues after step {start}")
        nnx.update((model, optimizer), state)

        for step in range(start + 1, steps + 1):
            batch = next(train_iterator)
            losses.append(train_step(model, optimizer, batch["images"], batch["labels"]))
            if step % save_every == 0:
                state = nnx.state((model, optimizer))
                data = train_iterator.get_state()  # the position after this batch
                parts = {"state": ocp.args.StandardSave(state), "data": ocp.args.JsonSave(data)}
                manager.save(step, args=ocp.args.Composite(**parts))
            if step % len(train_iterator) == 0:  # the end of an epoch
                parts = [count(model, b["images"], b["labels"], b["valid"]) for b in val_iterator]
                correct, total = np.sum(jax.device_get(parts), axis=0)
                print(f"step {step}: loss {losses[-1]:.3f}, {correct} of {total} are right")
    return [float(loss) for loss in losses]


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("photos", nargs="?", type=pathlib.Path)
    parser.add_argument("--checkpoints", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", 2)  # without a GPU or TPU, JAX shows two CPU devices
    with tempfile.TemporaryDirectory() as scratch:
        photos = args.photos or pathlib.Path(scratch) / "photos"
        if args.photos is None:
            source = pathlib.Path(__file__).parent / "images"
            make_photos(source, photos / "train", per_photo=12, seed=0)
            make_photos(source, photos / "val", per_photo=4, seed=1)
        if args.checkpoints is None:
            args.checkpoints = pathlib.Path(scratch) / "checkpoints"
            train(photos, args.checkpoints, args.steps // 2)
        train(photos, args.checkpoints, args.steps)


if __name__ == "__main__":
    main()
