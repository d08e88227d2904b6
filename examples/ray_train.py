"""Ray Train runs a training loop in two processes, each of which reads its part of the data.

    python examples/ray_train.py

It needs Ray Train: pip install "ray[train]"

The example runs on CPUs of this machine. On TPUs and GPUs, JaxTrainer initialises `jax.distributed`
itself.
"""

import logging
import pathlib
import socket
import tempfile
from typing import Any

import numpy as np
import ray  # pyright: ignore[reportMissingImports]
from ray.train import (  # pyright: ignore[reportMissingImports]
    Checkpoint,
    RunConfig,
    ScalingConfig,
    get_context,
    report,
)
from ray.train.v2.jax import JaxTrainer  # pyright: ignore[reportMissingImports]

IMAGES = pathlib.Path(__file__).parent.resolve() / "images"


def train(config):
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec
    from ray.train.collective import (  # pyright: ignore[reportMissingImports]
        broadcast_from_rank_zero,
    )

    from jaxdali import fn
    from jaxdali.plugin.jax import data_iterator

    # On TPUs and GPUs, JaxTrainer does this itself.
    context = get_context()
    with socket.socket() as s:
        s.bind(("", 0))
        address = broadcast_from_rank_zero(f"{ray.util.get_node_ip_address()}:{s.getsockname()[1]}")
    jax.config.update("jax_platforms", "cpu")
    jax.distributed.initialize(address, context.get_world_size(), context.get_world_rank())

    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    sharded = NamedSharding(mesh, PartitionSpec("data"))
    replicated = NamedSharding(mesh, PartitionSpec())

    @data_iterator(output_map=["images", "labels"], reader_name="reader", sharding=sharded)
    def iterator_fn(num_shards=1, shard_id=0):
        jpegs, labels = fn.readers.file(
            file_root=config["images"],
            name="reader",
            random_shuffle=True,
            num_shards=num_shards,
            shard_id=shard_id,
        )
        images = fn.resize(fn.decoders.image(jpegs), size=(32, 32))
        return fn.crop_mirror_normalize(images, mean=128.0, std=64.0, output_layout="HWC"), labels

    @jax.jit
    def step(weights, batch):
        def loss_of(weights):
            logits = batch["images"].mean((1, 2)) @ weights
            return -jnp.take_along_axis(jax.nn.log_softmax(logits), batch["labels"], axis=1).mean()

        loss, gradient = jax.value_and_grad(loss_of)(weights)
        return weights - 0.1 * gradient, loss

    weights = jax.device_put(jnp.zeros((3, 10)), replicated)
    iterator = iterator_fn(batch_size=4, num_threads=1, seed=0)
    for epoch in range(config["epochs"]):
        losses = []
        for batch in iterator:
            weights, loss = step(weights, batch)
            losses.append(float(loss))
        with tempfile.TemporaryDirectory() as folder:
            np.save(pathlib.Path(folder) / "weights.npy", weights)
            saved = Checkpoint.from_directory(folder) if jax.process_index() == 0 else None
            report({"epoch": epoch, "loss": np.mean(losses)}, checkpoint=saved)


if __name__ == "__main__":
    ray.init(
        "local",
        num_cpus=3,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = JaxTrainer(
            train,
            train_loop_config={"images": str(IMAGES), "epochs": 3},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=folder),
        )
        result: Any = trainer.fit()
    loss, epoch = result.metrics["loss"], result.metrics["epoch"]
    print(f"loss {loss:.3f} after {epoch + 1} epochs in two processes")
    ray.shutdown()
