"""Ray Train runs a training loop in several processes; each reads its part of the data by jaxdali. This example runs on
CPUs.

python examples/ray_train.py
"""

import logging
import pathlib
import socket
import tempfile
from typing import Any

import numpy as np
import ray  # pyright: ignore[reportMissingImports]
from ray.train import Checkpoint, RunConfig, ScalingConfig, get_context, report  # pyright: ignore[reportMissingImports]
from ray.train.v2.jax import JaxTrainer  # pyright: ignore[reportMissingImports]

IMAGES = pathlib.Path(__file__).parent.resolve() / "images"


def train(config):
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec
    from ray.train.collective import broadcast_from_rank_zero  # pyright: ignore[reportMissingImports]

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
    rows, everywhere = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (["data"], []))

    @data_iterator(output_map=["images", "labels"], reader_name="reader", auto_reset=True, sharding=rows)
    def iterator_fn(num_shards=1, shard_id=0):
        jpegs, labels = fn.readers.file(
            file_root=config["images"], name="reader", random_shuffle=True, num_shards=num_shards, shard_id=shard_id
        )
        images = fn.resize(fn.decoders.image(jpegs), size=(32, 32))
        return fn.crop_mirror_normalize(images, mean=128.0, std=64.0, output_layout="HWC"), labels

    @jax.jit
    def step(weights, batch):
        def loss(w):
            logits = batch["images"].mean((1, 2)) @ w
            return -jnp.take_along_axis(jax.nn.log_softmax(logits), batch["labels"], axis=1).mean()

        value, gradient = jax.value_and_grad(loss)(weights)
        return weights - 0.1 * gradient, value

    weights = jax.device_put(jnp.zeros((3, 10)), everywhere)
    for epoch in range(config["epochs"]):
        for batch in iterator_fn(batch_size=4, num_threads=1, seed=epoch):
            weights, loss = step(weights, batch)
        with tempfile.TemporaryDirectory() as folder:
            np.save(pathlib.Path(folder) / "weights.npy", weights)
            saved = Checkpoint.from_directory(folder) if jax.process_index() == 0 else None
            report({"epoch": epoch, "loss": float(loss)}, checkpoint=saved)


if __name__ == "__main__":
    ray.init("local", num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    config = {"images": str(IMAGES), "epochs": 3}
    with tempfile.TemporaryDirectory() as folder:
        run, scaling = RunConfig(storage_path=folder), ScalingConfig(num_workers=2)
        result: Any = JaxTrainer(train, train_loop_config=config, scaling_config=scaling, run_config=run).fit()
    print(f"loss {result.metrics['loss']:.3f} after {result.metrics['epoch'] + 1} epochs in two processes")
    ray.shutdown()
