"""Iterators on the hosts of the accelerators, under a single controller.

Here one process with eight devices is both.
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
from collections import Counter

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from PIL import Image

import jaxdali
from jaxdali import SampleError, fn
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import data_iterator

pytest.importorskip("cloudpickle")  # JAX needs it
colocated = pytest.importorskip("jaxdali.plugin.jax.colocated", exc_type=ImportError)  # it needs jax 0.10

NAMES = ["id", "image", "drawn", "padded"]
GRID = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
OPTIONS = {"reader_name": "reader", "ragged": {"padded": 40}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for i in range(19):
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (5 + i % 3, 7, 3), np.uint8)).save(
            folder / f"{i}.png"
        )
    (folder / "bad").write_bytes((folder / "3.png").read_bytes()[:60])
    return str(folder)


def define(folder, bad=False, num_shards=1, shard_id=0):
    files = [f"{i}.png" for i in range(19)]
    if bad:
        files[1] = "bad"
    shard = {"num_shards": num_shards, "shard_id": shard_id}
    png, label = fn.readers.file(file_root=folder, files=files, random_shuffle=not bad, name="reader", **shard)
    many = fn.slice(fn.constant(idata=list(range(40))), 0, label, axes=[0])
    return label, fn.resize(fn.decoders.image(png), size=(4, 2)), fn.random.uniform(range=(0.0, 1.0)), many


def shardings(kind):
    flat = NamedSharding(Mesh(np.array(jax.devices()[::-1]), ("batch",)), PartitionSpec("batch"))
    rows = NamedSharding(GRID, PartitionSpec("data"))
    return (
        flat
        if kind == "flat"
        else {**dict.fromkeys(NAMES, rows), "image": NamedSharding(GRID, PartitionSpec("data", "model"))}
    )


def assert_equal(batch, expected):
    assert batch.keys() == expected.keys()
    for x, y in zip(jax.tree.leaves(batch), jax.tree.leaves(expected), strict=True):
        assert x.sharding.is_equivalent_to(y.sharding, x.ndim)
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


@pytest.mark.parametrize("kind", ["flat", "grid"])
def test_batches_equal_a_local_iterators(folder, kind):
    options = {
        **OPTIONS,
        "sharding": shardings(kind),
        "last_batch_policy": LastBatchPolicy.PARTIAL,
        "mask_name": "mask",
    }
    remote = colocated.data_iterator(define, NAMES, **options)(folder, batch_size=8, seed=3)
    with remote, data_iterator(define, NAMES, **options)(folder, batch_size=8, seed=3) as local:
        assert len(remote) == len(local) == 3
        assert remote.size == local.size
        for _ in range(2):
            count = 0
            for batch, expected in zip(remote, local, strict=True):
                assert_equal(batch, expected)
                count += 1
            assert count == 3
            remote.reset()
            local.reset()


def test_states_go_both_ways(folder):
    options = {**OPTIONS, "sharding": shardings("flat")}
    with colocated.data_iterator(define, NAMES, **options)(folder, batch_size=8, seed=3) as remote:
        next(remote)
        state = remote.get_state()
        second = remote.next()
        with pytest.raises(RuntimeError, match="version"):
            remote.set_state({})
        remote.set_state(state)
        assert_equal(next(remote), second)
    with data_iterator(define, NAMES, **options)(folder, batch_size=8, seed=9) as local:
        local.set_state(state)
        assert_equal(next(local), second)
        local_state = local.get_state()
    with colocated.data_iterator(define, NAMES, **options)(folder, batch_size=8) as remote:
        remote.set_state(local_state)
        assert remote.get_state() == local_state
        remote.set_state(state, restart_epoch=True)
        next(remote)
        assert_equal(next(remote), second)


def test_the_warning_of_the_first_state(folder):
    options = {**OPTIONS, "sharding": shardings("flat"), "last_batch_policy": LastBatchPolicy.DROP}
    with colocated.data_iterator(define, NAMES, **options)(folder, batch_size=8) as remote:
        with pytest.warns(UserWarning, match="ColocatedIterator: .*pad_last_batch=True to the reader 'reader'"):
            state = remote.get_state()
        assert remote.get_state() == state


def test_a_sample_error_reaches_the_controller(folder):
    @colocated.data_iterator(output_map=NAMES, prepare_first_batch=False, sharding=shardings("flat"), **OPTIONS)
    def make(num_shards=1, shard_id=0):
        return define(folder, bad=True, num_shards=num_shards, shard_id=shard_id)

    with make(batch_size=8, seed=3) as it:
        assert np.asarray(next(it)["id"])[0].tolist() == [0]
        with pytest.raises(SampleError, match="/bad"):
            next(it)
        assert np.asarray(next(it)["id"]).shape == (8, 1)  # the next batch, which takes in the next epoch


def test_errors(folder):
    sharding = shardings("flat")
    with pytest.raises(ValueError, match="needs a sharding"):
        colocated.data_iterator(define, NAMES, reader_name="reader")(folder, batch_size=8)
    with pytest.raises(TypeError, match="must be a NamedSharding"):
        colocated.data_iterator(define, NAMES, reader_name="reader", sharding=SingleDeviceSharding(jax.devices()[0]))(
            folder, batch_size=8
        )
    with pytest.raises(TypeError, match="size"):
        colocated.data_iterator(define, NAMES, size="many", sharding=sharding)
    with pytest.raises(TypeError, match="a colocated iterator has no workers"):
        colocated.data_iterator(define, NAMES, sharding=sharding)(folder, batch_size=8, workers=None)
    with pytest.raises(RuntimeError, match="nowhere"):
        colocated.data_iterator(define, NAMES, sharding=sharding, reader_name="reader")("nowhere", batch_size=8)
    with pytest.raises(ValueError, match="are lists"):
        next(
            colocated.data_iterator(define, NAMES, sharding=sharding, reader_name="reader", ragged={"padded": None})(
                folder, batch_size=8
            )
        )
    it = colocated.data_iterator(define, NAMES, sharding=sharding, **OPTIONS)(folder, batch_size=8)
    for state in ({"a": np.int64(1)}, [b"a state"]):
        with pytest.raises(RuntimeError, match=r"this is not a checkpoint of jaxdali.* is not JSON serializable"):
            it.set_state(state)
    it.close()
    it.close()
    with pytest.raises(RuntimeError, match="closed"):
        next(it)


SCRIPT = """
import json, sys
import jax
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 4)
address, rank, folder, results = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
jax.distributed.initialize(address, num_processes=2, process_id=rank)
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jaxdali import fn
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import colocated

sharding = NamedSharding(Mesh(np.array(jax.devices()), ("batch",)), P("batch"))

@colocated.data_iterator(output_map=["id"], reader_name="r", sharding=sharding, last_batch_policy=LastBatchPolicy.PARTIAL, mask_name="mask")
def make(num_shards=1, shard_id=0):
    files = [f"{i}.png" for i in range(19)]
    return fn.readers.file(file_root=folder, files=files, name="r", random_shuffle=True, num_shards=num_shards, shard_id=shard_id)[1]

epochs = []
it = make(batch_size=16)  # without a seed: the processes agree on one
for _ in range(2):
    epoch = []
    for batch in it:
        assert batch["id"].shape == (16, 1) and not batch["id"].is_fully_addressable and batch["id"].sharding == sharding
        for ids, mask in zip(batch["id"].addressable_shards, batch["mask"].addressable_shards):
            epoch += np.asarray(ids.data)[np.asarray(mask.data), 0].tolist()
    epochs.append(epoch)
    it.reset()
json.dump({"epochs": epochs, "state": it.get_state()["iterator"]}, open(results, "w"))
"""


def test_two_processes(folder, tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    path = os.pathsep.join([str(pathlib.Path(jaxdali.__file__).parents[1]), *filter(None, sys.path)])
    processes = []
    try:
        for rank in range(2):
            command = [sys.executable, "-P", "-c", SCRIPT, address, str(rank), folder, str(tmp_path / f"{rank}.json")]
            with open(tmp_path / f"{rank}.log", "w") as log:
                processes.append(
                    subprocess.Popen(
                        command, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": path, "XLA_FLAGS": ""}
                    )
                )
        for rank, p in enumerate(processes):
            text = tmp_path / f"{rank}.log"
            assert p.wait(timeout=100) == 0, text.read_text()
            assert "Exception ignored" not in text.read_text()
    finally:
        for p in processes:
            p.kill()
            p.wait()
    results = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert results[0]["state"] == results[1]["state"]
    for epoch in range(2):
        assert Counter(results[0]["epochs"][epoch] + results[1]["epochs"][epoch]) == Counter(range(19))
        assert min(len(p["epochs"][epoch]) for p in results) > 7
