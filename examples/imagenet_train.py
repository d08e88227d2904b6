"""Trains a ResNet of Flax NNX as ImageNet is trained on, with checkpoints, over all devices.

    python examples/imagenet_train.py TRAIN_DIR VAL_DIR [--epochs 90] [--checkpoints DIR]

It needs Flax, Optax, Orbax and tqdm: pip install flax optax orbax-checkpoint tqdm

Each folder holds one folder of images per class. Training reads random crops (only the crop is
decoded), resized to 224x224, mirrored at random and normalised. Evaluation reads the centre of the
image whose shorter side is 256, every image once, whatever the batch size.

With --checkpoints, model, optimiser and iterator are saved together by Orbax; a run that was
stopped continues with the very next batch.
"""

import argparse
import functools
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tqdm import tqdm

from jaxdali import fn, types
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import data_iterator

MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]  # of ImageNet's pixels
STAGES = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3), "tiny": (1, 1)}


def normalised(images, crop, mirror: Any = 0):
    return fn.crop_mirror_normalize(
        images, crop=crop, dtype=types.FLOAT, output_layout="HWC", mean=MEAN, std=STD, mirror=mirror
    )


def train_data(folder, size=224, num_shards=1, shard_id=0):
    """The pipeline for training: shuffled, with random crops."""
    jpegs, labels = fn.readers.file(
        file_root=str(folder),
        name="reader",
        random_shuffle=True,
        num_shards=num_shards,
        shard_id=shard_id,
        pad_last_batch=True,
    )
    images = fn.decoders.image_random_crop(
        jpegs, device="mixed", random_area=[0.08, 1.0], random_aspect_ratio=[0.75, 4 / 3]
    )
    images = fn.resize(images, size=(size, size))
    return normalised(images, (size, size), fn.random.coin_flip()), labels.gpu()


def val_data(folder, size=224, num_shards=1, shard_id=0):
    """The pipeline for evaluation: in order, with central crops."""
    jpegs, labels = fn.readers.file(
        file_root=str(folder),
        name="reader",
        num_shards=num_shards,
        shard_id=shard_id,
        pad_last_batch=True,
    )
    images = fn.resize(fn.decoders.image(jpegs, device="mixed"), resize_shorter=size * 256 / 224)
    return normalised(images, (size, size)), labels.gpu()


class Block(nnx.Module):
    """The residual block of ResNet-50: 1x1, 3x3, 1x1."""

    def __init__(self, inputs: int, width: int, stride: int, rngs: nnx.Rngs):
        conv = functools.partial(nnx.Conv, use_bias=False, rngs=rngs)
        outputs = 4 * width
        self.convs = nnx.List(
            [
                conv(inputs, width, (1, 1)),
                conv(width, width, (3, 3), stride),
                conv(width, outputs, (1, 1)),
            ]
        )
        self.norms = nnx.List(
            [nnx.BatchNorm(n, momentum=0.9, rngs=rngs) for n in (width, width, outputs)]
        )
        same_shape = stride == 1 and inputs == outputs
        self.shortcut = None if same_shape else conv(inputs, outputs, (1, 1), stride)

    def __call__(self, x):
        y = nnx.relu(self.norms[0](self.convs[0](x)))
        y = nnx.relu(self.norms[1](self.convs[1](y)))
        y = self.norms[2](self.convs[2](y))
        return nnx.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(nnx.Module):
    """``f32[N, H, W, 3]`` -> logits ``f32[N, classes]``."""

    def __init__(self, stages: tuple[int, ...], classes: int, rngs: nnx.Rngs, width: int = 64):
        self.stem = nnx.Conv(3, width, (7, 7), 2, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(width, momentum=0.9, rngs=rngs)
        blocks, inputs = [], width
        for i, count in enumerate(stages):
            stage_width = width * 2**i
            for k in range(count):
                stride = 2 if i > 0 and k == 0 else 1
                blocks.append(Block(inputs, stage_width, stride, rngs))
                inputs = 4 * stage_width
        self.blocks = nnx.List(blocks)
        self.head = nnx.Linear(inputs, classes, rngs=rngs)

    def __call__(self, images):
        x = nnx.relu(self.norm(self.stem(images)))
        x = nnx.max_pool(x, (3, 3), (2, 2), padding="SAME")
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(axis=(1, 2)))


def train(
    train_dir: pathlib.Path,
    val_dir: pathlib.Path,
    *,
    model: str = "resnet50",
    size: int = 224,
    width: int = 64,
    epochs: int = 90,
    batch_size: int = 256,
    learning_rate: float = 0.1,
    checkpoints: pathlib.Path | None = None,
    threads: int = 4,
    seed: int = 0,
    steps: int | None = None,
) -> dict[str, Any]:
    """Trains, and evaluates after each epoch.

    Args:
      steps: stop after this many steps of this run, as if it had been killed

    Returns:
      the losses of this run's steps, the last accuracy, and the number of all steps
    """
    mesh = Mesh(jax.devices(), ("batch",))
    sharded = NamedSharding(mesh, PartitionSpec("batch"))
    replicated = NamedSharding(mesh, PartitionSpec())
    names = ["images", "labels"]
    make_train_iterator = data_iterator(train_data, names, reader_name="reader", sharding=sharded)
    make_val_iterator = data_iterator(
        val_data,
        names,
        reader_name="reader",
        sharding=sharded,
        last_batch_policy=LastBatchPolicy.PARTIAL,  # each image once
        mask_name="valid",
        auto_reset=True,
    )
    options = {"batch_size": batch_size, "num_threads": threads, "seed": seed}
    train_iterator = make_train_iterator(train_dir, size, **options)
    val_iterator = make_val_iterator(val_dir, size, **options)

    classes = sum(d.is_dir() for d in pathlib.Path(train_dir).iterdir())
    per_epoch = len(train_iterator)
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, learning_rate, min(5, epochs) * per_epoch, max(epochs, 6) * per_epoch
    )
    sgd = optax.sgd(schedule, momentum=0.9, nesterov=True)
    tx = optax.chain(optax.add_decayed_weights(5e-5), sgd)
    net = ResNet(STAGES[model], classes, nnx.Rngs(seed), width)
    graph, params, statistics = nnx.split(net, nnx.Param, ...)
    state = {"params": params, "statistics": statistics, "optimiser": tx.init(params)}
    state = jax.device_put(state, replicated)

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, images, labels):
        def loss_of(params):
            net = nnx.merge(graph, params, state["statistics"], copy=True)
            logits = net(images)
            one_hot = optax.smooth_labels(jax.nn.one_hot(labels[:, 0], classes), 0.1)
            loss = optax.softmax_cross_entropy(logits, one_hot).mean()
            return loss, nnx.split(net, nnx.Param, ...)[2]

        (loss, statistics), gradients = jax.value_and_grad(loss_of, has_aux=True)(state["params"])
        updates, optimiser = tx.update(gradients, state["optimiser"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "statistics": statistics, "optimiser": optimiser}, loss

    @jax.jit
    def count_correct(state, images, labels, valid):
        net = nnx.merge(graph, state["params"], state["statistics"])
        net.eval()
        correct = (net(images).argmax(axis=-1) == labels[:, 0]) & valid
        return jnp.sum(correct), jnp.sum(valid)

    def evaluate(state):
        counts = [
            count_correct(state, batch["images"], batch["labels"], batch["valid"])
            for batch in val_iterator
        ]
        correct, total = np.sum(jax.device_get(counts), axis=0)
        return float(correct / total)

    manager, step = None, 0
    if checkpoints is not None:
        manager_options = ocp.CheckpointManagerOptions(max_to_keep=2)
        manager = ocp.CheckpointManager(checkpoints.absolute(), options=manager_options)
        step = manager.latest_step() or 0
    if manager is not None and step > 0:
        parts = {"state": ocp.args.StandardRestore(state), "data": ocp.args.JsonRestore()}
        saved = manager.restore(step, args=ocp.args.Composite(**parts))
        state = saved["state"]
        train_iterator.set_state(saved["data"])

    losses, accuracy, started = [], 0.0, time.perf_counter()
    bar = tqdm(total=epochs * per_epoch, initial=step, unit="batch")
    while step < epochs * per_epoch and (steps is None or len(losses) < steps):
        try:
            batch = next(train_iterator)
        except StopIteration:
            train_iterator.reset()
            batch = next(train_iterator)
        state, loss = train_step(state, batch["images"], batch["labels"])
        losses.append(loss)
        step += 1
        bar.update()
        if len(losses) % 10 == 0:
            speed = len(losses) * batch_size / (time.perf_counter() - started)
            bar.set_postfix(
                loss=f"{float(losses[-10]):.3f}",  # of a step that ended long ago: nothing waits
                accuracy=f"{accuracy:.1%}",
                speed=f"{speed:.0f} images/s",
            )
        if step % per_epoch == 0:
            accuracy = evaluate(state)
        if manager is not None and (step % per_epoch == 0 or len(losses) == steps):
            parts = {
                "state": ocp.args.StandardSave(state),
                # The position after the batch that was taken last.
                "data": ocp.args.JsonSave(train_iterator.get_state()),
            }
            manager.save(step, args=ocp.args.Composite(**parts))
    bar.close()
    if manager is not None:
        manager.close()
    train_iterator.close()
    val_iterator.close()
    return {"losses": [float(x) for x in losses], "accuracy": accuracy, "step": step}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train_dir", type=pathlib.Path)
    parser.add_argument("val_dir", type=pathlib.Path)
    parser.add_argument("--model", choices=STAGES, default="resnet50")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=4, help="CPU threads of the pipeline")
    parser.add_argument("--checkpoints", type=pathlib.Path)
    result = train(**vars(parser.parse_args()))
    first, last = result["losses"][0], result["losses"][-1]
    print(f"loss {first:.3f} -> {last:.3f}, accuracy {result['accuracy']:.1%}")


if __name__ == "__main__":
    main()
