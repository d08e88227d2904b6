"""Model and iterator saved together with Orbax: a training that was killed resumes with equal steps."""

import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxdali import fn
from jaxdali.plugin.jax import data_iterator

STEPS = 23  # more than two epochs
SAVE_EVERY = 4
KILLED_AFTER = 14


def mesh():
    return Mesh(np.array(jax.devices()[:4]), ("batch",))


def initial_weights():
    return {"w": jax.device_put(jnp.zeros(4), NamedSharding(mesh(), PartitionSpec()))}


@jax.jit
def train_step(weights, batch):
    def loss(w):
        x = batch["bytes"].astype(jnp.float32) / 255.0 * batch["scale"][:, None]
        return jnp.mean((x @ w["w"] - batch["label"][:, 0].astype(jnp.float32)) ** 2)

    value, gradient = jax.value_and_grad(loss)(weights)
    return {"w": weights["w"] - 0.05 * gradient["w"]}, value


def definition(root, num_shards=1, shard_id=0):
    data, label = fn.readers.file(
        file_root=root,
        name="reader",
        random_shuffle=True,
        num_shards=num_shards,
        shard_id=shard_id,
        pad_last_batch=True,
    )
    return data, label, fn.random.uniform(range=[0.5, 1.5])


def make_iterator(root):
    sharding = NamedSharding(mesh(), PartitionSpec("batch"))
    factory = data_iterator(
        definition, ["bytes", "label", "scale"], reader_name="reader", sharding=sharding, auto_reset=True
    )
    return factory(str(root), batch_size=8, num_threads=2, prefetch_queue_depth=4)


def train(iterator, weights, steps, after_step=lambda step, weights: None):
    """Yields the number, the loss and the inputs of each step, as exact text."""
    for step in steps:
        try:
            batch = next(iterator)
        except StopIteration:
            batch = next(iterator)
        weights, loss = train_step(weights, batch)
        inputs = np.asarray(batch["bytes"])[:, 0].tolist(), [x.hex() for x in np.asarray(batch["scale"]).tolist()]
        yield f"{step} {float(loss).hex()} {inputs}"
        after_step(step, weights)


def training_process(root, checkpoints, log, kill_after):
    """Trains from the last checkpoint or the start, to the end or until the process kills itself after a step."""
    import orbax.checkpoint as ocp

    options = ocp.CheckpointManagerOptions(max_to_keep=2)
    with ocp.CheckpointManager(checkpoints, options=options) as manager, make_iterator(root) as iterator:
        start, weights = 0, initial_weights()
        last = manager.latest_step()
        if last is None:
            # The seed of the uninterrupted run.
            iterator.set_state(json.loads(pathlib.Path(root, "..", "start").read_text()))
        else:
            restored = manager.restore(
                last, args=ocp.args.Composite(model=ocp.args.StandardRestore(weights), data=ocp.args.JsonRestore())
            )
            weights, start = restored["model"], last + 1
            iterator.set_state(restored["data"])

        def after_step(step, weights):
            if step % SAVE_EVERY == SAVE_EVERY - 1:
                parts = ocp.args.Composite(
                    model=ocp.args.StandardSave(weights), data=ocp.args.JsonSave(iterator.get_state())
                )
                manager.save(step, args=parts)
            if step == kill_after:
                manager.wait_until_finished()
                assert iterator._stream.lease.runners[0].wait()  # a batch is in flight
                os.kill(os.getpid(), signal.SIGKILL)

        with open(log, "a", encoding="utf-8") as f:
            for line in train(iterator, weights, range(start, STEPS), after_step):
                print(line, file=f, flush=True)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("orbax") is None, reason="orbax-checkpoint is not installed")
def test_killed_training_resumes_exactly(tmp_path):
    root = tmp_path / "data"
    for i in range(61):
        folder = root / f"class{i % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{i:02}").with_suffix(".jpg").write_bytes(bytes([i, 255 - i, i * i % 256, 7]))

    def run(kill_after):
        arguments = [sys.executable, __file__, root, tmp_path / "checkpoints", tmp_path / "log", str(kill_after)]
        path = os.pathsep.join(p for p in sys.path if p)
        return subprocess.run(
            arguments, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=120, check=False
        )

    with make_iterator(root) as iterator:
        (tmp_path / "start").write_text(json.dumps(iterator.get_state()))
        whole = list(train(iterator, initial_weights(), range(STEPS)))

    killed = run(KILLED_AFTER)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (tmp_path / "log").read_text().splitlines() == whole[: KILLED_AFTER + 1]
    (tmp_path / "log").unlink()
    resumed = run(-1)
    assert resumed.returncode == 0, resumed.stderr
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0].split()[0] == str(KILLED_AFTER // SAVE_EVERY * SAVE_EVERY)
    assert lines == whole[-len(lines) :]
    assert all(np.isfinite(float.fromhex(line.split()[1])) for line in whole)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    training_process(sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
