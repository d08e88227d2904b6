"""Loading processes: three processes with two CPU devices each, compared with one process with six devices."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from PIL import Image

import jaxdali
from jaxdali import fn
from jaxdali._runner.shutdown import CLOSED_ITERATOR
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import data_iterator

# Each process runs this, and writes its batches as JSON. Only loading processes know the folder.
SCRIPT = """
import functools, json, os, sys
import jax
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
address, rank, folder, results = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
jax.distributed.initialize(address, num_processes=3, process_id=rank)
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import jaxdali
from jaxdali import fn, pipeline_def
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import DALIGenericIterator, data_iterator, peekable_data_iterator
from jaxdali.plugin.jax.fn import jax_function

loaders = []

def define(files, num_shards=1, shard_id=0):
    assert rank in loaders, "the definition is called in loading processes only"
    png, label, name = fn.readers.file(file_root=folder, files=files, random_shuffle=True, name="reader", metadata=["filename"],
                                       num_shards=num_shards, shard_id=shard_id)
    image = fn.resize(fn.decoders.image(png, device="mixed"), size=(4, 2))
    many = fn.slice(fn.constant(idata=list(range(40))), 0, label, axes=[0])
    return label, image, fn.random.uniform(range=(0.0, 1.0)), many, many, name

NAMES = ["id", "image", "drawn", "padded", "listed", "name"]
RAGGED = {"padded": 40, "listed": None}

def parts(x):
    return [[[[s.start or 0, s.stop] for s in shard.index], np.asarray(shard.data).tolist()] for shard in x.addressable_shards]

def values_of(batch):
    values = {}
    for name, x in batch.items():
        values[name] = [parts(p) for p in x] if isinstance(x, tuple) else x if name == "name" else (
            [np.asarray(e).tolist() for e in x] if isinstance(x, list) else parts(x))
    return values

def run(sharding, files, load, batch_size=12, make=data_iterator, names=NAMES, epochs=2, **options):
    global loaders
    loaders = load
    out = []
    make_iterator = make(functools.partial(define, files), names, reader_name="reader", sharding=sharding,
                         loading_processes=load, ragged=RAGGED, **options)
    with make_iterator(batch_size=batch_size, seed=5) as it:
        length = len(it)
        for _ in range(epochs):
            for batch in it:
                total = jax.jit(jnp.sum, out_shardings=NamedSharding(batch["id"].sharding.mesh, P()))(batch["id"])
                out.append(values_of(batch) | {"total": int(total)})
                assert batch["image"].sharding == (sharding["image"] if isinstance(sharding, dict) else sharding)
            it.reset()
            out.append(None)
        return {"batches": out, "length": length, "pipelines": len(it.pipelines), "state": it.get_state(), "size": it.size}

def raised(act):
    try:
        act()
    except Exception as e:
        return [type(e).__name__, str(e), getattr(e, "__notes__", [])]

def bad_sample(load):
    # The sample fails in one loading process. The error reaches all processes, which continue with the next batch.
    global loaders
    loaders = load
    def with_error(num_shards=1, shard_id=0):
        png, label = fn.readers.file(file_root=folder, files=[files[0], "bad", *files[2:]], name="reader",
                                     num_shards=num_shards, shard_id=shard_id)
        return label, fn.resize(fn.decoders.image(png), size=(2, 2))
    make = data_iterator(with_error, ["id", "image"], reader_name="reader", sharding=flat, prepare_first_batch=False)
    with make(batch_size=6, seed=1, loading_processes=load) as it:
        first = values_of(next(it))
        error = raised(lambda: next(it))
        return {"first": first["id"], "error": error, "behind": parts(next(it)["id"]), "given": it.get_state()["iterator"]["given"]}

def resumed(load, other):
    global loaders
    loaders = load
    make = data_iterator(functools.partial(define, files), NAMES, reader_name="reader", sharding=flat, ragged=RAGGED)
    with make(batch_size=12, seed=5, loading_processes=load, enable_checkpointing=True) as it:
        next(it)
        state, saved = it.get_state(), it.checkpoints()
        expected = [values_of(next(it)) for _ in range(1)]
        ends = raised(lambda: next(it)), raised(lambda: next(it))
        it.reset()
        expected.append(values_of(next(it)))
        it.set_state(state)
        same_iterator = [values_of(next(it))]
    loaders = other
    with make(batch_size=12, seed=7, loading_processes=other) as it:
        it.set_state(state)
        other_loaders = [values_of(next(it))]
        it.set_state(state, restart_epoch=True)
        restarted = [values_of(next(it)), values_of(next(it))][1:]
    with make(batch_size=12, loading_processes=other, enable_checkpointing=True, checkpoints=saved) as it:
        from_bytes = [values_of(next(it))]
    loaders = [0, 1, 2]
    with make(batch_size=12) as it:
        it.set_state(state)
        without_loaders = [values_of(next(it))]
    loaders = other
    with make(batch_size=12, loading_processes=other) as it:
        broken = raised(lambda: it.set_state({**state, "version": -1}))
    return {"state": state, "expected": expected, "ends": ends, "same_iterator": same_iterator, "other_loaders": other_loaders,
            "bytes": from_bytes, "without_loaders": without_loaders, "restarted": restarted, "broken": broken}

def peeked(load):
    global loaders
    loaders = load
    def pipeline(num_shards=1, shard_id=0):
        return define(files, num_shards, shard_id)[:2]
    make = peekable_data_iterator(pipeline, ["id", "image"], reader_name="reader", sharding=flat, loading_processes=load)
    with make(batch_size=12, seed=5) as it:
        spec = {name: list(s.shape) for name, s in it.element_spec.items()}
        state = it.get_state()
        first, future = it.peek(), it.peek_async().result()
        is_same_state = it.get_state() == state
        batch = next(it)
        return {"spec": spec, "same": is_same_state and first["id"] is batch["id"] is future["id"], "id": parts(batch["id"]),
                "left": parts(it.is_nonpadding), "next": parts(next(it)["id"])}

def by_class(load):
    global loaders
    loaders = load
    ids = DALIGenericIterator.loaded_shards(flat, load)
    make = pipeline_def(lambda i: define(files, 6, i)[:2], batch_size=2, num_threads=1, seed=5)
    with DALIGenericIterator([make(i) for i in ids], ["id", "image"], reader_name="reader", sharding=flat, loading_processes=load) as it:
        text, page = repr(it), it._repr_html_()
        result = {"ids": ids, "id": parts(next(it)["id"]), "text": text, "page": page, "size": it.size}
    return result | {"closed": raised(lambda: next(it)), "shown": repr(it)}  # without the other processes

def overridden_resets(load):
    global loaders
    loaders = load
    calls = []
    class Own(DALIGenericIterator):
        def reset(self):
            calls.append(len(lengths))
            super().reset()
    ids = DALIGenericIterator.loaded_shards(flat, load)
    make = pipeline_def(lambda i: define(files, 6, i)[:2], batch_size=2, num_threads=1, seed=5)
    with Own([make(i) for i in ids], ["id", "image"], reader_name="reader", sharding=flat, loading_processes=load, auto_reset=True) as it:
        lengths = []
        for _ in range(2):
            lengths.append(len(list(it)))
        next(it)
        lengths.append(len(list(it)))
    return calls, lengths

def loader_without_devices():
    # Process 0 loads for the others, and has no device of the sharding.
    sharding = NamedSharding(Mesh(devices[2:], ("batch",)), P("batch"))
    def labels(num_shards=1, shard_id=0):
        return fn.readers.file(file_root=folder, files=files, name="r", num_shards=num_shards, shard_id=shard_id)[1]
    make = data_iterator(labels, ["id"], reader_name="r", sharding=sharding, loading_processes=[0], **mask)
    with make(batch_size=8) as it:
        return [parts(x["id"]) + parts(x["mask"]) for x in it]

def seed_of_two():
    # Processes 0 and 2 agree on a seed without process 1.
    sharding = NamedSharding(Mesh(devices[[0, 4]], ("batch",)), P("batch"))
    def labels(num_shards=1, shard_id=0):
        return fn.readers.file(file_root=folder, files=files, name="r", num_shards=num_shards, shard_id=shard_id)[1]
    if rank != 1:
        with data_iterator(labels, ["id"], reader_name="r", sharding=sharding)(batch_size=8) as it:
            return it.pipelines[0].seed

def over_all(load):
    def centred(num_shards=1, shard_id=0):
        label = fn.readers.file(file_root=folder, files=files, name="r", num_shards=num_shards, shard_id=shard_id)[1]
        return jax_function(lambda x: x - jnp.max(x), sharding=flat)(label)
    data_iterator(centred, ["x"], reader_name="r", sharding=flat, loading_processes=load)(batch_size=12)

files = [f"{i}.png" for i in range(24)]
devices = np.array(jax.devices())
mesh = Mesh(devices, ("batch",))
flat = NamedSharding(mesh, P("batch"))
grid = Mesh(devices.reshape(2, 3).T, ("data", "model"))
crossing = {**{n: NamedSharding(grid, P("data")) for n in NAMES[:5]}, "image": NamedSharding(grid, P("data", "model"))}
mask = {"last_batch_policy": LastBatchPolicy.PARTIAL, "mask_name": "mask"}
first_two = NamedSharding(Mesh(devices[:4], ("batch",)), P("batch"))
json.dump({
    "one": run(flat, files, [1]),
    "two": run(flat, files, [2, 0]),
    "all": run(flat, files, [0, 1, 2], epochs=1),
    "crossing": run(crossing, files, [1]),
    "mask": run(flat, files[:19], [1], epochs=3, **mask),
    "bad": bad_sample([0, 2]),
    "resumed": resumed([1], [2, 0]),
    "peeked": peeked([2]),
    "class": by_class([0, 2]),
    "resets": overridden_resets([0, 2]),
    "no folder": raised(lambda: run(flat, ["missing"], [1])),
    "loader alone": loader_without_devices(),
    "seed of two": seed_of_two(),
    "function": raised(lambda: over_all([1])),
    "own error": raised(lambda: data_iterator(lambda num_shards, shard_id: 1 / 0, ["x"], reader_name="r", sharding=flat,
                                              loading_processes=[0, 1])(batch_size=12)),
}, open(results, "w"))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for i in range(24):
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (5 + i % 3, 7, 3), np.uint8)).save(
            folder / f"{i}.png"
        )
    (folder / "bad").write_bytes((folder / "3.png").read_bytes()[:60])
    return folder


@pytest.fixture(scope="module")
def results(folder, tmp_path_factory):
    """The results of each of the three processes."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(jaxdali.__file__).parents[1]), "XLA_FLAGS": ""}
    out = tmp_path_factory.mktemp("out")
    processes = []
    try:
        for rank in range(3):
            command = [sys.executable, "-P", "-c", SCRIPT, address, str(rank), str(folder), str(out / f"{rank}.json")]
            with open(out / f"{rank}.log", "w") as log:  # not a pipe: they wait for each other at their end
                processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
        for rank, p in enumerate(processes):
            assert p.wait(timeout=150) == 0, (out / f"{rank}.log").read_text()
    finally:
        for p in processes:
            p.kill()
            p.wait()
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(3)]


class Reference:
    """The same iterators in this process, over six of its devices."""

    def __init__(self, folder):
        self._folder = folder
        self.devices = np.array(jax.devices()[:6])
        self.flat = NamedSharding(Mesh(self.devices, ("batch",)), PartitionSpec("batch"))

    def define(self, files, shuffle=True, num_shards=1, shard_id=0):
        shard = {"num_shards": num_shards, "shard_id": shard_id}
        folder = str(self._folder)
        png, label, name = fn.readers.file(
            file_root=folder, files=files, random_shuffle=shuffle, name="reader", metadata=["filename"], **shard
        )
        image = fn.resize(fn.decoders.image(png, device="mixed"), size=(4, 2))
        many = fn.slice(fn.constant(idata=list(range(40))), 0, label, axes=[0])
        return label, image, fn.random.uniform(range=(0.0, 1.0)), many, many, name

    def iterator(self, files=tuple(f"{i}.png" for i in range(24)), sharding=None, batch_size=12, **options):
        def define(num_shards=1, shard_id=0):
            return self.define(list(files), True, num_shards, shard_id)

        names = ["id", "image", "drawn", "padded", "listed", "name"]
        ragged = {"padded": 40, "listed": None}
        make = data_iterator(
            define, names, reader_name="reader", sharding=sharding or self.flat, ragged=ragged, **options
        )
        return make(batch_size=batch_size, seed=5)


@pytest.fixture(scope="module")
def reference(folder):
    return Reference(folder)


def assembled(results, get, shape):
    """Assembles an array from the parts of all processes. Replicas must be equal."""
    result, filled = np.zeros(shape, object), np.zeros(shape, bool)
    for process in results:
        for index, values in get(process):
            index_slices = tuple(slice(a, b) for a, b in index)
            values = np.array(values, object)
            assert (result[index_slices][filled[index_slices]] == values[filled[index_slices]]).all()
            result[index_slices], filled[index_slices] = values, True
    assert filled.all()
    return result


def check_batch(processes, batch):
    for name in ("id", "image", "drawn"):
        expected = np.asarray(batch[name])
        np.testing.assert_array_equal(
            assembled(processes, lambda p, name=name: p[name], expected.shape).astype(expected.dtype), expected
        )
    for k, expected in enumerate(map(np.asarray, batch["padded"])):
        np.testing.assert_array_equal(
            assembled(processes, lambda p, k=k: p["padded"][k], expected.shape).astype(expected.dtype), expected
        )
    # Lists have the samples of the process's own shards, in order.
    held = [sorted({index[0][0] for index, _ in p["id"]}) for p in processes]
    per_shard = min(b - a for p in processes for ((a, b), *_), _ in p["id"])
    for p, starts in zip(processes, held):
        rows = [start + k for start in starts for k in range(per_shard)]
        assert p["listed"] == [np.asarray(batch["listed"][i]).tolist() for i in rows]
        assert p["name"] == [batch["name"][i] for i in rows]


def check_run(results, case, iterator, epochs=2, masked=False):
    iterators = [iter(p[case]["batches"]) for p in results]
    with iterator as it:
        assert {p[case]["length"] for p in results} == {len(it)}
        assert {p[case]["size"] for p in results} == {it.size}
        for _ in range(epochs):
            for batch in it:
                processes = [next(f) for f in iterators]
                check_batch(processes, batch)
                if masked:
                    mask = np.asarray(batch["mask"])
                    np.testing.assert_array_equal(
                        assembled(processes, lambda p: p["mask"], mask.shape).astype(bool), mask
                    )
                assert {p["total"] for p in processes} == {int(np.asarray(batch["id"]).sum())}
            it.reset()
            assert {next(f) for f in iterators} == {None}
    assert all(next(f, "end") == "end" for f in iterators)


@pytest.mark.parametrize(
    ("case", "pipelines", "epochs"), [("one", [0, 6, 0], 2), ("two", [3, 0, 3], 2), ("all", [2, 2, 2], 1)]
)
def test_batches_equal_one_process(results, reference, case, pipelines, epochs):
    assert [p[case]["pipelines"] for p in results] == pipelines
    check_run(results, case, reference.iterator(), epochs)


def test_replicas_and_cuts_along_other_axes(results, reference):
    """Images are also sharded along their rows, and the other outputs have replicas.

    One process makes all three shards.
    """
    grid = Mesh(reference.devices.reshape(2, 3).T, ("data", "model"))
    names = ["id", "drawn", "padded", "listed"]
    sharding = {n: NamedSharding(grid, PartitionSpec("data")) for n in names}
    check_run(
        results,
        "crossing",
        reference.iterator(sharding={**sharding, "image": NamedSharding(grid, PartitionSpec("data", "model"))}),
    )


def test_mask(results, reference):
    options = {"last_batch_policy": LastBatchPolicy.PARTIAL, "mask_name": "mask"}
    check_run(results, "mask", reference.iterator([f"{i}.png" for i in range(19)], **options), 3, masked=True)


def test_a_sample_error_reaches_all_processes(results):
    """Shard 0, of process 0, fails in the second batch. All processes continue with the third one."""
    for rank, p in enumerate(results):
        kind, message, notes = p["bad"]["error"]
        assert kind == "SampleError"
        assert "decoders.image" in message
        assert "/bad" in message
        assert notes == ([] if rank == 0 else ["raised in the loading process 0"])
        assert p["bad"]["given"] == 3
    shards = [4 * i for i in range(6)]
    assert assembled(results, lambda p: p["bad"]["first"], (6, 1))[:, 0].tolist() == shards
    assert assembled(results, lambda p: p["bad"]["behind"], (6, 1))[:, 0].tolist() == [i + 2 for i in shards]


def test_states(results, reference):
    """States are equal in all processes. Iterators with other loading processes, with none, and in one process resume
    from them.
    """
    assert results[0]["resumed"]["state"] == results[1]["resumed"]["state"] == results[2]["resumed"]["state"]
    with reference.iterator() as it:
        next(it)
        state = it.get_state()
        second = next(it)
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(it)
        it.reset()
        third = next(it)
    assert state == results[0]["resumed"]["state"]
    for case in ("same_iterator", "other_loaders", "restarted", "bytes", "without_loaders"):
        check_batch([p["resumed"][case][0] for p in results], second)
    for k, batch in enumerate((second, third)):
        check_batch([p["resumed"]["expected"][k] for p in results], batch)
    for p in results:
        assert [e[0] for e in p["resumed"]["ends"]] == ["StopIteration"] * 2
        assert p["resumed"]["broken"][0] == "RuntimeError"
        assert "version" in p["resumed"]["broken"][1]


def test_peekable(results, reference):
    with reference.iterator() as it:
        batches = [np.asarray(next(it)["id"]) for _ in range(2)]
    for p in results:
        assert p["peeked"]["same"]
        assert p["peeked"]["spec"] == {"id": [12, 1], "image": [12, 4, 2, 3]}
    for name, expected in zip(("id", "next"), batches):
        assert (assembled(results, lambda p, name=name: p["peeked"][name], (12, 1)) == expected).all()
    assert assembled(results, lambda p: p["peeked"]["left"], (12,)).all()


def test_the_class(results, reference):
    assert [p["class"]["ids"] for p in results] == [[0, 1, 2], [], [3, 4, 5]]
    with reference.iterator() as it:
        expected = np.asarray(next(it)["id"])
        assert {p["class"]["size"] for p in results} == {it.size}
    assert (assembled(results, lambda p: p["class"]["id"], (12, 1)) == expected).all()
    for p in results:
        assert p["class"]["closed"][:2] == ["RuntimeError", CLOSED_ITERATOR]
        assert p["class"]["shown"] == "DALIGenericIterator: closed"
        assert (p["class"]["page"] is not None) == bool(p["class"]["ids"])  # a process that loads nothing has no graph
        assert p["class"]["text"].startswith("DALIGenericIterator: epoch 0, 0 batches of 2 taken, 2 samples of each of")


def test_overridden_resets_are_called(results):
    """In all processes: at the three ends, and by the loop that takes the rest of an epoch."""
    assert [p["resets"] for p in results] == [[[0, 1, 2, 2], [2, 2, 1]]] * 3


def test_constructor_errors_reach_all_processes(results):
    for rank, p in enumerate(results):
        kind, message, notes = p["no folder"]
        assert kind in ("OperatorError", "RuntimeError", "SampleError")
        assert "1 samples for 6 shards" in message
        assert notes == ([] if rank == 1 else ["raised in the loading process 1"])
        assert p["own error"][0] == "ZeroDivisionError"


def test_a_loading_process_may_hold_no_shard(results):
    batches = [p["loader alone"] for p in results]
    assert batches[0] == [[]] * 3
    for step in range(3):
        parts = sorted((index[0][0], values) for b in batches[1:] for index, values in b[step] if len(index) == 2)
        assert [i for _, values in parts for (i,) in values] == [
            6 * s + 2 * step + k for s in range(4) for k in range(2)
        ]
        assert [values for b in batches[1:] for index, values in b[step] if len(index) == 1] == [[True, True]] * 4


def test_functions_over_all_processes_are_refused(results):
    for p in results:
        assert p["function"][0] == "OperatorError"
        assert "can't be used with loading_processes" in p["function"][1]


@pytest.mark.parametrize(
    ("processes", "error"),
    [
        ([], "distinct numbers"),
        ([0, 0], "distinct numbers"),
        ([1], "of the 1 processes, 0 to 0"),
        ([-1], "distinct numbers"),
        ([True], "loading_processes"),
        ("0", "loading_processes"),
        (0, "loading_processes"),
        ([0.5], "loading_processes"),
    ],
)
def test_arguments_are_checked(reference, processes, error):
    with pytest.raises((ValueError, TypeError), match=error):
        reference.iterator(loading_processes=processes)


def test_in_one_process(reference):
    """`loading_processes` has no effect in one process, but needs a sharding."""
    with reference.iterator(loading_processes=[0]) as it, reference.iterator() as plain_iterator:
        np.testing.assert_array_equal(np.asarray(next(it)["id"]), np.asarray(next(plain_iterator)["id"]))
    with pytest.raises(ValueError, match="needs a sharding"):
        data_iterator(lambda: (), ["x"], loading_processes=[0])


def test_some_processes_agree_on_a_seed(results):
    seed, none, other_seed = (p["seed of two"] for p in results)
    assert none is None
    assert seed == other_seed
