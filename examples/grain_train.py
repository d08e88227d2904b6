"""Trains a small network as Grain's programs do, with jaxdali as source, transform and dataset.

    python examples/grain_train.py
    python examples/grain_train.py --checkpoints CHECKPOINTS --kill-at 18
    python examples/grain_train.py --checkpoints CHECKPOINTS --devices 4

It needs Grain, Flax, Optax and Orbax: pip install grain flax optax orbax-checkpoint

The second command is killed after 18 steps. The third continues after its last checkpoint, on
another number of devices, with the same batches as the first. The program prints a checksum of each
batch.
"""

import argparse
import os
import pathlib
import signal
import tempfile
import zlib

import grain  # pyright: ignore[reportMissingImports]
import jax
import numpy as np
import optax  # pyright: ignore[reportMissingImports]
import orbax.checkpoint as ocp  # pyright: ignore[reportMissingImports]
from flax import nnx  # pyright: ignore[reportMissingImports]
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jaxdali.dynamic as jd
from jaxdali import fn
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.grain import BatchTransform, SampleKey, iter_dataset, source
from jaxdali.plugin.jax import data_iterator

PHOTOS = str(pathlib.Path(__file__).parent / "images")
CLASSES, SIZE = 7, 64
NORM = {"mean": [127.5] * 3, "std": [127.5] * 3, "output_layout": "HWC"}


@jd.jit
def augment(image, key):
    """One native program for a batch. It decodes only a window of each photo."""
    crop_key, flip_key = jd.random.split(key)
    images = jd.decoders.image_random_crop(image, key=crop_key, random_area=[0.3, 1.0])
    images = jd.resize(images, size=(SIZE, SIZE))
    mirror = jd.random.coin_flip(key=flip_key)
    return {"image": jd.crop_mirror_normalize(images, mirror=mirror, **NORM)}


def make_iterator(batch_size, seed=0):
    """Batches for training in Grain's order, without end: a reader as source, and a transform."""
    files, labels = fn.readers.file(file_root=PHOTOS)
    photos = source({"image": files, "label": labels})
    dataset = grain.MapDataset.source(photos).seed(seed).shuffle().repeat()
    dataset = dataset[jax.process_index() :: jax.process_count()].random_map(SampleKey())
    dataset = dataset.batch(batch_size // jax.process_count(), batch_fn=BatchTransform(augment))
    return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)))


@data_iterator(
    output_map=["image", "label"], reader_name="photos", sharding=PartitionSpec("batch"),
    last_batch_policy=LastBatchPolicy.PARTIAL, mask_name="valid",
)  # fmt: skip
def evaluation(num_shards=1, shard_id=0):
    """All photos once: a pipeline, whose batches are on the devices of the mesh."""
    files, labels = fn.readers.file(
        file_root=PHOTOS, name="photos", num_shards=num_shards, shard_id=shard_id
    )
    images = fn.resize(fn.decoders.image(files, device="mixed"), size=(SIZE, SIZE))
    return fn.crop_mirror_normalize(images, **NORM), labels


@nnx.jit
def train_step(model, optimizer, batch):
    def loss_of(model):
        loss = optax.softmax_cross_entropy_with_integer_labels
        return loss(model(batch["image"]), batch["label"][:, 0]).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


@nnx.jit
def count(model, batch):
    correct = model(batch["image"]).argmax(axis=-1) == batch["label"][:, 0]
    return (correct & batch["valid"]).sum(), batch["valid"].sum()


def train(checkpoints, steps, batch_size=16, kill_at=None):
    """Trains from the last checkpoint, if there is one, up to step `steps`."""
    iterator, rngs = make_iterator(batch_size), nnx.Rngs(0)
    convolution = nnx.Conv(3, 32, (5, 5), strides=4, rngs=rngs)
    linear = nnx.Linear(32, CLASSES, rngs=rngs)
    model = nnx.Sequential(convolution, nnx.relu, lambda x: x.mean(axis=(1, 2)), linear)
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    mesh = Mesh(jax.devices(), ("batch",))
    sharding = NamedSharding(mesh, PartitionSpec("batch"))
    state = jax.device_put(nnx.state((model, optimizer)), NamedSharding(mesh, PartitionSpec()))
    options = ocp.CheckpointManagerOptions(save_interval_steps=5)
    folder = pathlib.Path(checkpoints).absolute()
    with jax.set_mesh(mesh), ocp.CheckpointManager(folder, options=options) as manager:
        if start := manager.latest_step() or 0:
            data = grain.checkpoint.CheckpointRestore(iterator)
            args = ocp.args.Composite(state=ocp.args.StandardRestore(state), data=data)
            state = manager.restore(start, args=args)["state"]
            print(f"continues after step {start}")
        nnx.update((model, optimizer), state)

        for step in range(start + 1, steps + 1):
            local = next(iterator)
            batch = jax.make_array_from_process_local_data(sharding, local)
            loss = train_step(model, optimizer, batch)
            checksum = zlib.crc32(local["image"].tobytes())
            print(f"step {step}: batch {checksum:08x}, loss {loss:.6f}", flush=True)
            state = ocp.args.StandardSave(nnx.state((model, optimizer)))
            data = grain.checkpoint.CheckpointSave(iterator)
            manager.save(step, args=ocp.args.Composite(state=state, data=data))
            if step == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        counts = [count(model, batch) for batch in iter_dataset(evaluation, batch_size=batch_size)]
    correct, total = np.sum(jax.device_get(counts), axis=0)
    print(f"{correct} of {total} photos are right")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoints", help="a folder; default: a new one")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--devices", type=int, default=8, help="of the CPU, without accelerators")
    parser.add_argument("--kill-at", type=int, metavar="STEP", help="kill the process there")
    args = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", args.devices)
    train(args.checkpoints or tempfile.mkdtemp(), args.steps, kill_at=args.kill_at)
