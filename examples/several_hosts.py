r"""Trains on several hosts, with checkpoints from which any number of processes continues.

    python examples/several_hosts.py PHOTOS CHECKPOINTS

It needs Orbax: pip install orbax-checkpoint

Start the program once for each process. On SLURM, TPU VMs and GKE, JAX finds the other processes;
elsewhere, tell each of them where process 0 listens, how many there are, and its own number:

    python examples/several_hosts.py PHOTOS CHECKPOINTS \
        --coordinator 10.0.0.1:1234 --num-processes 4 --process-id 0

All processes read the same folder of photos and write to the same folder of checkpoints. Each reads
and decodes its shards only. If a process dies, the others end, too. Start the job again, with as
many processes as there are: it continues after the last checkpoint, and each photo is still seen
once in each epoch.
"""

import argparse
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxdali import fn
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import data_iterator


def photos(folder, num_shards=1, shard_id=0):
    encoded, numbers = fn.readers.file(
        file_root=folder,
        files=sorted(path.name for path in pathlib.Path(folder).iterdir()),
        name="photos",
        random_shuffle=True,
        num_shards=num_shards,
        shard_id=shard_id,
    )
    return fn.resize(fn.decoders.image(encoded), size=(16, 16)), numbers


@jax.jit
def train_step(weights, images, valid):
    """One step of a linear autoencoder. The gradients of all processes are averaged by XLA."""

    def loss_of(weights):
        x = images.reshape(len(images), -1) / 255
        losses = jnp.mean((x - x @ weights @ weights.T) ** 2, axis=1)
        return jnp.sum(losses * valid) / jnp.sum(valid)

    loss, gradient = jax.value_and_grad(loss_of)(weights)
    return weights - 0.01 * gradient, loss


def local_numbers(batch):
    """The numbers of the photos in this process's part of a batch."""
    numbers = []
    parts = zip(batch["number"].addressable_shards, batch["valid"].addressable_shards)
    for number, valid in parts:
        numbers += np.asarray(number.data)[np.asarray(valid.data), 0].tolist()
    return numbers


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos")
    parser.add_argument("checkpoints")
    parser.add_argument("--coordinator", help="address and port of process 0")
    parser.add_argument("--num-processes", type=int)
    parser.add_argument("--process-id", type=int)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=12, help="of all processes together")
    parser.add_argument("--save-every", type=int, default=4, help="steps")
    args = parser.parse_args()

    jax.distributed.initialize(
        args.coordinator, args.num_processes, args.process_id, heartbeat_timeout_seconds=10
    )
    mesh = Mesh(jax.devices(), ("batch",))
    sharding = NamedSharding(mesh, PartitionSpec("batch"))
    replicated = NamedSharding(mesh, PartitionSpec())
    make_iterator = data_iterator(
        photos,
        ["image", "number"],
        reader_name="photos",
        sharding=sharding,
        last_batch_policy=LastBatchPolicy.PARTIAL,
        mask_name="valid",
    )
    weights = jax.device_put(np.full((16 * 16 * 3, 8), 0.01, np.float32), replicated)
    checkpoints = pathlib.Path(args.checkpoints).absolute()
    options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False)
    with (
        ocp.CheckpointManager(checkpoints, options=options) as manager,
        make_iterator(args.photos, batch_size=args.batch_size, seed=0) as iterator,
    ):
        steps_per_epoch = len(iterator)
        step = manager.latest_step() or 0
        first_epoch = 0
        if step > 0:
            model = ocp.args.StandardRestore({"weights": weights})
            parts = ocp.args.Composite(model=model, data=ocp.args.JsonRestore())
            restored = manager.restore(step, args=parts)
            weights, first_epoch = restored["model"]["weights"], restored["data"]["epoch"]
            iterator.set_state(restored["data"]["iterator"])
        host = f"process {jax.process_index()} of {jax.process_count()}"
        print(f"{host}: begins with step {step}, {steps_per_epoch} steps an epoch", flush=True)
        for epoch in range(first_epoch, args.epochs):
            for batch in iterator:  # after a checkpoint in the middle of an epoch, the rest of it
                weights, loss = train_step(weights, batch["image"], batch["valid"])
                progress = f"epoch {epoch}, step {step}, loss {float(loss):.4f}"
                print(f"{host}: {progress}, photos {local_numbers(batch)}", flush=True)
                step += 1
                if step % args.save_every == 0:
                    model = ocp.args.StandardSave({"weights": weights})
                    data = ocp.args.JsonSave({"iterator": iterator.get_state(), "epoch": epoch})
                    manager.save(step, args=ocp.args.Composite(model=model, data=data))


if __name__ == "__main__":
    main()
