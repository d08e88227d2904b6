"""Several processes: two of them, with four CPU devices each, read one data set together."""

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
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from PIL import Image

import jaxdali
from jaxdali import fn
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import data_iterator

# Each process runs this, and prints its batches as JSON.
SCRIPT = """
import json, sys, threading, warnings
import jax
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 4)
address, rank, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
jax.distributed.initialize(address, num_processes=2, process_id=rank)
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jaxdali import _cpu, fn, pipeline_def
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import DALIGenericIterator, data_iterator
from jaxdali.plugin.jax.fn import jax_function

read = 0
original = _cpu.read_files
def counting(table, index, *rest):
    global read
    read += len(index)
    return original(table, index, *rest)
_cpu.read_files = counting

def define(files, shuffle, num_shards=1, shard_id=0):
    shard = {"num_shards": num_shards, "shard_id": shard_id}
    png, label = fn.readers.file(file_root=folder, files=files, random_shuffle=shuffle, name="reader", **shard)
    image = fn.resize(fn.decoders.image(png), size=(2, 2))
    return label, image, fn.random.uniform(range=(0.0, 1.0)).gpu()

def parts(x):
    return [[s.index[0].start or 0, np.asarray(s.data).tolist()] for s in x.addressable_shards]

def raised(act):
    try:
        act()
    except Exception as e:
        return f"{type(e).__name__}: {e}"

def run(sharding, files, batch_size, epochs=2, shuffle=True, **options):
    global read
    read = 0
    make = data_iterator(define, ["id", "image", "drawn"], reader_name="reader", sharding=sharding, **options)
    out = []
    with make(files, shuffle, batch_size=batch_size, prefetch_queue_depth=1) as it:
        spec = it.element_spec
        for _ in range(epochs):
            for batch in it:
                for name, x in batch.items():
                    assert not x.is_fully_addressable
                    assert x.shape[0] == batch_size and x.sharding.is_equivalent_to(spec[name].sharding, x.ndim), name
                total = jax.jit(jnp.sum, out_shardings=NamedSharding(sharding.mesh, P()))(batch["id"])
                out.append({name: parts(x) for name, x in batch.items()} | {"total": int(total)})
            out.append(None)
    lowered = it.lower().args_info
    rows = jax.tree.leaves(lowered)[0].shape[0]
    return {"batches": out, "read": read, "rows": rows}

def saved(sharding, files):
    make = data_iterator(define, ["id", "image", "drawn"], reader_name="reader", sharding=sharding)
    with make(files, True, batch_size=16) as it:
        next(it)
        return {"state": it.get_state(), "next": {name: parts(x) for name, x in next(it).items()}}

def shared_function(sharding, files):
    # Over the devices of both processes, between the user's own steps, which have collectives, too.
    threads = set()

    def less_the_mean(x):
        threads.add(threading.current_thread() is threading.main_thread())
        return x.astype(jnp.float32) - jnp.mean(x.astype(jnp.float32))

    def define(num_shards=1, shard_id=0):
        _, label = fn.readers.file(file_root=folder, files=files, name="reader", num_shards=num_shards, shard_id=shard_id)
        return label, jax_function(less_the_mean, sharding=sharding)(label)

    out = []
    with data_iterator(define, ["id", "centred"], reader_name="reader", sharding=sharding)(batch_size=16) as it:
        for batch in it:
            total = jax.jit(jnp.sum, out_shardings=NamedSharding(sharding.mesh, P()))(batch["id"])
            out.append({name: parts(x) for name, x in batch.items()} | {"total": int(total)})
    return {"batches": out, "in the user's thread": threads == {True}}

def refused_function(sharding, other_sharding):
    # Its sharding gives this process other slices than the iterator's.
    def define(num_shards=1, shard_id=0):
        _, label = fn.readers.file(file_root=folder, files=files, name="reader", num_shards=num_shards, shard_id=shard_id)
        return jax_function(lambda x: x, sharding=other_sharding)(label)

    return raised(lambda: data_iterator(define, ["id"], reader_name="reader", sharding=sharding)(batch_size=16))

def shared_function_alone(mesh):
    # Taken by Pipeline.run, which makes no batch ahead then, in a thread of its own or in the user's.
    calls = []

    def doubled(x):
        calls.append(threading.current_thread() is threading.main_thread())
        return x * 2

    @pipeline_def(batch_size=4, num_threads=1, prefetch_queue_depth=3)
    def define():
        x = fn.external_source(lambda info: np.arange(4, dtype=np.int32) + 4 * info.iteration, batch=True, batch_info=True)
        return jax_function(doubled, sharding=NamedSharding(mesh, P()), jit=False)(x)

    pipe = define()
    out = []
    for _ in range(3):
        (x,) = pipe.run()
        out.append([np.asarray(x.as_cpu().as_array()).tolist(), len(calls)])
    pipe.close()
    return {"batches": out, "in the user's thread": all(calls)}

def by_size(sharding, **options):
    def define(num_shards=1, shard_id=0):
        # With a mask 19 samples of all shards, of which each process has one with 3; otherwise more than are read.
        count = 2 + (shard_id % 3 == 0) if "mask_name" in options else 100
        return fn.external_source([np.int32(100 * shard_id + i) for i in range(count)], batch=False, cycle="raise")

    with data_iterator(define, ["x"], size=19, sharding=sharding, **options)(batch_size=16) as it:
        epochs = [[{name: parts(x) for name, x in batch.items()} for batch in it] for _ in range(2)]
        return {"epochs": epochs, "length": len(it), "size": it.size}

def same_data(sharding):
    # Definitions of one shard in each process: one forgets the shard, one hands it to the reader, one chooses the data itself.
    def define(way, num_shards=1, shard_id=0):
        shard = {"num_shards": num_shards, "shard_id": shard_id} if way == "handed" else {}
        first, step = (shard_id, num_shards) if way == "chosen" else (0, 1)
        return fn.readers.source([np.int32(i) for i in range(first, 8, step)], name="r", **shard)

    make = data_iterator(define, ["x"], reader_name="r", sharding=sharding)
    ways = []
    for way in ("forgotten", "handed", "chosen"):
        with warnings.catch_warnings(record=True) as caught, make(way, batch_size=2, seed=0):
            ways += [way] * any("same for all 2 shards" in str(w.message) for w in caught)
    return ways

def of_process_0(files):
    # Without a seed; the other process does not take part.
    sharding = NamedSharding(Mesh(devices[:4], ("batch",)), P("batch"))
    make = data_iterator(define, ["id", "image", "drawn"], reader_name="reader", sharding=sharding)
    if rank:
        return raised(lambda: make(files, True, batch_size=16))
    with make(files, True, batch_size=16) as it:
        return sorted(i for batch in it for i in batch["id"].ravel().tolist())

def own_states(sharding):
    class Source:
        def __call__(self):
            return np.zeros(2, np.int32)

        def get_state(self):
            return 0

        def set_state(self, state):
            pass

    make = pipeline_def(lambda: fn.external_source(Source()), batch_size=2)
    pipelines = [make() for _ in DALIGenericIterator.loaded_shards(sharding)]
    with DALIGenericIterator(pipelines, ["x"], size=64, sharding=sharding) as it:
        with warnings.catch_warnings(record=True) as caught:
            state = it.get_state()
    return {"shards": [record["shard"] for record in state["pipelines"]], "warnings": [str(w.message) for w in caught]}

def ragged(sharding, files):
    # Each process has lists of its own samples; padded ones and their lengths are global.
    def define(num_shards=1, shard_id=0):
        _, label = fn.readers.file(file_root=folder, files=files, name="reader", num_shards=num_shards, shard_id=shard_id)
        many = fn.slice(fn.constant(idata=list(range(40))), 0, label, axes=[0])
        return many, many

    names = ["padded", "listed"]
    make = data_iterator(define, names, reader_name="reader", sharding=sharding, ragged={"padded": 40, "listed": None})
    with make(batch_size=16) as it:
        batch = next(it)
    boxes, lengths = batch["padded"]
    assert not boxes.is_fully_addressable and not lengths.is_fully_addressable
    assert boxes.shape == (16, 40) and lengths.shape == (16,)
    total = jax.jit(jnp.sum, out_shardings=NamedSharding(sharding.mesh, P()))(boxes)
    listed = [np.asarray(x).tolist() for x in batch["listed"]]
    return {"boxes": parts(boxes), "lengths": parts(lengths), "listed": listed, "total": int(total)}

files = [str(i) for i in range(32)]
devices = np.array(jax.devices())
flat = NamedSharding(Mesh(devices, ("batch",)), P("batch"))
crossing = NamedSharding(Mesh(devices.reshape(2, 4).T, ("data", "model")), P("data"))  # a pair of replicas has a device in each process
inside = NamedSharding(Mesh(devices.reshape(4, 2), ("data", "model")), P("data"))
one_device_each = NamedSharding(Mesh(devices[[0, 4]], ("batch",)), P("batch"))
mask = {"last_batch_policy": LastBatchPolicy.PARTIAL, "mask_name": "mask"}
print(json.dumps({
    "folder": folder,
    "flat": run(flat, files, 16),
    "crossing": run(crossing, files, 16),
    "inside": run(inside, files, 16),
    "mask": run(flat, files[:19], 16, epochs=3, **mask),
    "saved": saved(flat, files),
    "function": shared_function(flat, files),
    "function refused": refused_function(flat, NamedSharding(Mesh(devices[::-1], ("batch",)), P("batch"))),
    "function alone": shared_function_alone(flat.mesh),
    "by size": {p.name: by_size(flat, **(mask if p.name == "PARTIAL" else {"last_batch_policy": p})) for p in LastBatchPolicy},
    "without size": raised(lambda: data_iterator(lambda num_shards, shard_id: fn.constant(idata=1), ["x"],
                                                 sharding=one_device_each)(batch_size=2)),
    "of process 0": of_process_0(files),
    "own states": own_states(flat),
    "same data": same_data(one_device_each),
    "ragged": ragged(flat, files),
    "in order": run(flat, files, 16, epochs=1, shuffle=False),
}))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The results of each of the two processes."""
    folder = tmp_path_factory.mktemp("files")
    for i in range(32):
        Image.new("RGB", (1, 1), (i, i, i)).save(folder / str(i), "png")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(jaxdali.__file__).parents[1]), "XLA_FLAGS": ""}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, address, str(rank), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(2)
    ]
    try:
        outputs = [p.communicate(timeout=120) for p in processes]
    finally:
        for p in processes:
            p.kill()
    for p, (_, errors) in zip(processes, outputs):
        assert p.returncode == 0, errors
    return [json.loads(out.splitlines()[-1]) for out, _ in outputs]


def epochs_of(result):
    """The batches of a result, by epoch."""
    epochs = [[]]
    for batch in result["batches"]:
        if batch is None:
            epochs.append([])
        else:
            epochs[-1].append(batch)
    return epochs[:-1]


def slices(results, case, epoch, step, name):
    """The values of each slice of an output, a list with those of each device that holds it, by start of the slice."""
    values_by_start = {}
    for result in results:
        for start, values in epochs_of(result[case])[epoch][step][name]:
            values_by_start.setdefault(start, []).append(values)
    return values_by_start


@pytest.mark.parametrize(("case", "num_slices", "copies"), [("flat", 8, 1), ("crossing", 4, 2), ("inside", 4, 2)])
def test_each_sample_once_without_a_seed(results, case, num_slices, copies):
    drawn = []
    for epoch in range(2):
        ids = []
        for step in range(2):
            by_name = {name: slices(results, case, epoch, step, name) for name in ("id", "image", "drawn")}
            for name in by_name:
                assert sorted(by_name[name]) == list(range(0, 16, 16 // num_slices))
                for holders in by_name[name].values():
                    assert len(holders) == copies
                    assert all(h == holders[0] for h in holders)  # replicas are equal, also across processes
            step_ids = [i for holders in by_name["id"].values() for (i,) in holders[0]]
            assert [x for holders in by_name["image"].values() for x in holders[0]] == [
                [[[i] * 3] * 2] * 2 for i in step_ids
            ]
            assert {epochs_of(r[case])[epoch][step]["total"] for r in results} == {sum(step_ids)}
            drawn += [r for holders in by_name["drawn"].values() for r in holders[0]]
            ids += step_ids
        assert sorted(ids) == list(range(32))
    assert len(set(drawn)) >= 63  # two of 64 may be equal by chance, as there are 2^24 values


@pytest.mark.parametrize(("case", "local"), [("flat", 4), ("crossing", 4), ("inside", 2)])
def test_processes_read_only_their_samples(results, case, local):
    for result in results:
        assert result[case]["rows"] == local  # shards in the program; each has 16 / num_slices samples
        per_batch = local * 16 // (8 if case == "flat" else 4)
        assert result[case]["read"] % per_batch == 0
        assert (
            4 * per_batch <= result[case]["read"] <= 8 * per_batch
        )  # four batches that were taken, and those made ahead


def test_shards_are_numbered_by_place(results):
    assert [i for v in slices(results, "in order", 0, 0, "id").values() for (i,) in v[0]] == [
        x for s in range(8) for x in (4 * s, 4 * s + 1)
    ]


def test_functions_over_all_devices(results):
    """They run in the user's thread, so that their collectives and those of the user's steps begin in one order in all
    processes.
    """
    assert all(r["function"]["in the user's thread"] for r in results)
    for step in range(2):
        parts = {
            name: {k: v for r in results for k, v in r["function"]["batches"][step][name]} for name in ("id", "centred")
        }
        ids = np.array([x for _, v in sorted(parts["id"].items()) for x in v])
        assert len(ids) == 16
        np.testing.assert_allclose(
            [x for _, v in sorted(parts["centred"].items()) for x in v], ids - ids.mean(), rtol=1e-6
        )


def test_functions_with_slices_of_other_processes(results):
    for result, ids, reversed_ids in zip(results, ([0, 1, 2, 3], [4, 5, 6, 7]), ([4, 5, 6, 7], [0, 1, 2, 3])):
        assert f"this process holds {reversed_ids}; the iterator's" in result["function refused"]
        assert f"this process holds {ids}, on" in result["function refused"]


def test_masked_tail_over_processes(results):
    """19 samples on 8 shards, two at a time: equally many steps in both processes, and each sample counts once."""
    for epoch in range(3):
        steps = [len(epochs_of(r["mask"])[epoch]) for r in results]
        assert steps == [2, 2]
        counted = Counter()
        for step in range(2):
            ids, mask = slices(results, "mask", epoch, step, "id"), slices(results, "mask", epoch, step, "mask")
            counted.update(i for start in ids for (i,), m in zip(ids[start][0], mask[start][0]) if m)
        assert counted == Counter(range(19))


@pytest.mark.parametrize("policy", LastBatchPolicy)
def test_epochs_of_a_size_equal_one_process(results, policy):
    options = {"mask_name": "mask"} if policy is LastBatchPolicy.PARTIAL else {}

    def define(num_shards=1, shard_id=0):
        count = 2 + (shard_id % 3 == 0) if options else 100  # 19 with a mask
        return fn.external_source([np.int32(100 * shard_id + i) for i in range(count)], batch=False, cycle="raise")

    sharding = NamedSharding(Mesh(np.array(jax.devices()), ("batch",)), PartitionSpec("batch"))
    make = data_iterator(define, ["x"], size=19, sharding=sharding, last_batch_policy=policy, **options)
    with make(batch_size=16) as it:
        expected = [[{name: np.asarray(x).tolist() for name, x in batch.items()} for batch in it] for _ in range(2)]
        assert {(r["length"], r["size"]) for r in (r["by size"][policy.name] for r in results)} == {(len(it), it.size)}

    def joined(name, *processes):
        return [x for _, part in sorted(row for p in processes for row in p[name]) for x in part]

    epochs = zip(*(r["by size"][policy.name]["epochs"] for r in results), strict=True)
    assert [
        [{name: joined(name, *step) for name in step[0]} for step in zip(*epoch, strict=True)] for epoch in epochs
    ] == expected


def test_warning_of_states_for_one_process(results):
    for rank, result in enumerate(results):
        assert result["own states"]["shards"] == [[i, 8] for i in range(4 * rank, 4 * rank + 4)]
        (text,) = result["own states"]["warnings"]
        assert "those of 4 of 8 shards: save a state in each process" in text


def test_one_process_iterates_alone(results):
    assert results[0]["of process 0"] == list(range(32))
    assert "has no device of this process" in results[1]["of process 0"]


def test_warning_for_processes_with_equal_data(results):
    assert [r["same data"] for r in results] == [["forgotten"]] * 2


def test_shards_of_all_processes_need_a_size(results):
    for result in results:
        assert "with several pipelines or shards pass reader_name" in result["without size"]


@pytest.mark.parametrize("rank", [0, 1])
def test_one_process_resumes_from_either_state(results, rank):
    def define(num_shards=1, shard_id=0):
        shard = {"num_shards": num_shards, "shard_id": shard_id}
        root, files = results[0]["folder"], [str(i) for i in range(32)]
        _, label = fn.readers.file(file_root=root, files=files, random_shuffle=True, name="reader", **shard)
        return label, fn.random.uniform(range=(0.0, 1.0))

    sharding = NamedSharding(Mesh(np.array(jax.devices()), ("batch",)), PartitionSpec("batch"))
    with data_iterator(define, ["id", "drawn"], reader_name="reader", sharding=sharding)(
        batch_size=16, num_threads=2
    ) as it:
        it.set_state(results[rank]["saved"]["state"])
        batch = next(it)
    for name in batch:
        expected = sorted(results[0]["saved"]["next"][name] + results[1]["saved"]["next"][name])
        assert np.asarray(batch[name]).tolist() == [row for _, part in expected for row in part]


def test_ragged_outputs(results):
    """Shard i of 8 begins at file 4 i, whose number is the length of the sample."""
    lengths = [4 * shard + k for shard in range(8) for k in range(2)]
    boxes_by_start, listed = {}, []
    for process in results:
        r = process["ragged"]
        assert r["total"] == sum(sum(range(n)) for n in lengths)
        boxes_by_start |= {first: (boxes, n) for (first, boxes), (_, n) in zip(r["boxes"], r["lengths"], strict=True)}
        assert len(r["listed"]) == 8
        listed += r["listed"]
    assert listed == [list(range(n)) for n in lengths]
    for first, (boxes, box_lengths) in boxes_by_start.items():
        assert box_lengths == lengths[first : first + 2]
        assert boxes == [list(range(n)) + [0] * (40 - n) for n in box_lengths]
    assert len(boxes_by_start) == 8


def test_functions_over_processes_in_a_pipeline(results):
    for process in results:
        result = process["function alone"]
        assert [x for x, _ in result["batches"]] == [[2 * (4 * i + k) for k in range(4)] for i in range(3)]
        assert result["in the user's thread"]
        assert [calls for _, calls in result["batches"]] == [1, 2, 3]
