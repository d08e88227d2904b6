"""Iterators in Grain: as datasets (`iter_dataset`), and in its checkpoints. The expected batches are those of a plain
iterator, and of Grain over lists of them.
"""

import json
import os
import pathlib
import pickle
import socket
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jaxdali
from jaxdali import fn, pipeline_def
from jaxdali.plugin.jax import DALIGenericIterator, data_iterator, peekable_data_iterator

grain = pytest.importorskip("grain")
from grain import experimental as ge  # noqa: E402

from jaxdali.plugin.grain import iter_dataset  # noqa: E402

SAMPLES = 40


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A file for each number from 0 to 39, which is its one byte."""
    folder = tmp_path_factory.mktemp("numbers")
    (folder / "class").mkdir()
    for i in range(SAMPLES):
        (folder / "class" / f"{i:02}.jpg").write_bytes(bytes([i]))
    return folder


def on(devices):
    return NamedSharding(Mesh(np.array(jax.devices()[:devices]), ("batch",)), PartitionSpec("batch"))


def numbers(root, num_shards=1, shard_id=0):
    number, _ = fn.readers.file(
        file_root=str(root),
        name="reader",
        random_shuffle=True,
        pad_last_batch=True,
        num_shards=num_shards,
        shard_id=shard_id,
    )
    return number, fn.random.uniform(range=(0.0, 1.0))


def train(devices=8, make=data_iterator, **options):
    """The function for `iter_dataset`."""
    return make(numbers, ["number", "drawn"], reader_name="reader", sharding=on(devices), **options)


def dataset(root, devices=8, seed=3, **options):
    return iter_dataset(train(devices, **options), root=root, batch_size=8, num_threads=2, seed=seed)


@pytest.fixture
def batches(root):
    """All batches of the dataset's epoch as NumPy arrays, from an iterator of jaxdali."""
    with train()(root, batch_size=8, num_threads=2, seed=3) as iterator:
        return [as_numpy(batch) for batch in iterator]


def as_numpy(batch):
    return jax.tree.map(np.asarray, batch)


def rows(batches):
    """The numbers of the samples."""
    return [int(i) for batch in batches for i in np.ravel(batch["number"])]


def manager(folder):
    ocp = pytest.importorskip("orbax.checkpoint")
    return ocp.args, ocp.CheckpointManager(str(folder))


# --- transformations ------------------------------------------------------------------------------------------------


def without_odd_sums(batch):
    return int(batch["number"].astype(np.int32).sum()) % 2 == 0


class Halves(ge.FlatMapTransform):
    max_fan_out = 2

    def flat_map(self, element):
        return [{name: x[half] for name, x in as_numpy(element).items()} for half in (slice(4), slice(4, 8))]


RANGE = grain.MapDataset.range(4)
TRANSFORMATIONS = {
    "none": lambda d: d,
    "map": lambda d: d.map(lambda batch: {"doubled": batch["drawn"] * 2}),
    "filter": lambda d: d.filter(without_odd_sums),
    "random_map": lambda d: d.seed(2).random_map(lambda batch, rng: (batch, rng.integers(0, 1000))),
    "map_with_index": lambda d: d.map_with_index(lambda i, batch: (i, batch)),
    "batch": lambda d: d.batch(3),
    "mix": lambda d: grain.IterDataset.mix([d, RANGE.to_iter_dataset()], [0.3, 0.7]),
    "zip": lambda d: ge.ZipIterDataset([d, RANGE.to_iter_dataset()], strict=False),
    "window_shuffle": lambda d: ge.WindowShuffleIterDataset(d, window_size=3, seed=1),
    "device_put": lambda d: ge.device_put(d, jax.devices()[0]),
    "limit": lambda d: ge.LimitIterDataset(d, 5),
    "repeat": lambda d: ge.RepeatIterDataset(d, 2),
    "interleave": lambda d: ge.InterleaveIterDataset([d, RANGE.to_iter_dataset()], cycle_length=2),
    "cache": ge.CacheIterDataset,
    "rebatch": lambda d: ge.RebatchIterDataset(d.map(as_numpy), 5),
    "flat_map": lambda d: ge.FlatMapIterDataset(d, Halves()),
    "thread_prefetch": lambda d: ge.ThreadPrefetchIterDataset(d, prefetch_buffer_size=2),
    "multithread_prefetch": lambda d: ge.multithread_prefetch(d, 1, 2),
    "mp_prefetch without workers": lambda d: d.mp_prefetch(grain.MultiprocessingOptions(num_workers=0)),
    "several": lambda d: ge.WindowShuffleIterDataset(
        ge.RepeatIterDataset(ge.LimitIterDataset(d.filter(without_odd_sums), 4), 2), window_size=3, seed=2
    ).batch(2),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_transformations_resume_at_each_element(name, root, batches):
    """Each one gives what it gives over a list of the batches, also from each of its states on."""
    transform = TRANSFORMATIONS[name]
    result = transform(dataset(root)).map(as_numpy)
    expected = transform(grain.MapDataset.source(batches).to_iter_dataset()).map(as_numpy)
    np.testing.assert_equal(list(result), list(expected))
    ge.assert_equal_output_after_checkpoint(result)


def test_batches_keep_their_sharding(root):
    parts = [dataset(root, seed=i) for i in range(2)]
    mixed = ge.WindowShuffleIterDataset(grain.IterDataset.mix(parts), window_size=4, seed=1)
    for batch in ge.LimitIterDataset(ge.ThreadPrefetchIterDataset(mixed, prefetch_buffer_size=2), 5):
        assert batch["number"].sharding.is_equivalent_to(on(8), 2)
    moved = next(iter(ge.device_put(parts[0], on(2))))
    assert moved["number"].sharding.is_equivalent_to(on(2), 2)


def test_element_spec(root):
    spec = ge.get_element_spec(dataset(root))
    assert {name: (x.shape, x.dtype) for name, x in spec.items()} == {
        "number": ((8, 1), np.uint8),
        "drawn": ((8,), np.float32),
    }
    assert ge.get_element_spec(dataset(root).batch(3, drop_remainder=True))["number"].shape == (3, 8, 1)
    iterator = iter(dataset(root))
    assert iterator.element_spec == spec
    assert sorted(rows(iterator)) == [*range(SAMPLES)]  # no batch was lost


def test_iterators_of_other_kinds(root):
    """A peekable one, one over several pipelines without a sharding, and one for PyTorch."""
    torch = pytest.importorskip("torch")
    from jaxdali.plugin.pytorch import DALIClassificationIterator

    @pipeline_def(batch_size=8, num_threads=1, seed=3)
    def pipeline(shard_id, num_shards):
        number, _ = numbers(root, num_shards, shard_id)
        return number, fn.cast(number, dtype=jaxdali.types.INT64)

    def stacked():
        return DALIGenericIterator([pipeline(i, 2) for i in range(2)], ["number", "label"], reader_name="reader")

    def for_torch():
        return DALIClassificationIterator([pipeline(i, 2) for i in range(2)], reader_name="reader")

    peekable = iter_dataset(train(make=peekable_data_iterator), root=root, batch_size=8, seed=3)
    for made, shape in ((peekable, (8, 1)), (iter_dataset(stacked), (2, 8, 1))):
        assert made.element_spec["number"].shape == shape
        ge.assert_equal_output_after_checkpoint(made.map(as_numpy))
    made = iter_dataset(for_torch)
    iterator = iter(made)
    assert [(x["label"].shape, x["label"].dtype) for x in iterator.element_spec] == [((8, 1), torch.int64)] * 2
    assert made.element_spec == iterator.element_spec
    assert sorted(i for pair in iterator for x in pair for i in x["label"].flatten().tolist()) == [*range(SAMPLES)]
    ge.assert_equal_output_after_checkpoint(made.map(as_numpy))


# --- ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("auto_reset", [False, True])
def test_end_of_the_epoch_is_final(root, auto_reset):
    made = dataset(root, auto_reset=auto_reset)
    iterator = iter(made)
    assert sorted(rows(iterator)) == [*range(SAMPLES)]
    assert not list(iterator)
    at_end = iterator.get_state()
    restored = iter(made)
    restored.set_state(at_end)
    assert not list(restored)
    assert not list(restored)
    assert rows(made) == rows(dataset(root))  # a new iterator begins anew


def test_repeated_epochs(root, batches):
    """Epochs of jaxdali are shuffled differently, and those of Grain are equal."""
    endless = rows(ge.LimitIterDataset(dataset(root, repeat=True), 10))
    assert endless[:SAMPLES] == rows(batches)
    assert endless[SAMPLES:] != rows(batches)
    assert sorted(endless[SAMPLES:]) == [*range(SAMPLES)]
    assert rows(ge.RepeatIterDataset(dataset(root), 2)) == rows(batches) * 2


def test_data_without_a_known_length():
    @pipeline_def(batch_size=2, num_threads=1)
    def pipeline():
        def source(info):
            if info.idx_in_epoch == 6:
                raise StopIteration
            return np.int32([info.idx_in_epoch])

        return fn.external_source(source, batch=False)

    made = iter_dataset(lambda: DALIGenericIterator(pipeline(), ["number"]))
    assert rows(made) == [*range(6)]
    assert rows(ge.RepeatIterDataset(made, 2)) == [*range(6)] * 2
    ge.assert_equal_output_after_checkpoint(made.map(as_numpy))


def test_several_iterators_over_one_pipeline(root):
    """A function that makes only the iterator anew: the next one goes on with the next epoch."""

    @pipeline_def(batch_size=8, num_threads=1, seed=3)
    def pipeline():
        return numbers(root)

    with pipeline() as pipe:
        made = iter_dataset(lambda: DALIGenericIterator(pipe, ["number", "drawn"], reader_name="reader"))
        first, second = rows(made), rows(made)
    assert sorted(first) == sorted(second) == [*range(SAMPLES)]
    assert first != second


# --- checkpoints ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [8, 4, 1])
def test_model_and_position_in_one_checkpoint(root, batches, tmp_path, devices):
    """In the middle of an epoch: equal batches on as many devices, and each of the other samples once on fewer."""
    args, checkpoints = manager(tmp_path)
    weights = {"w": np.arange(3.0)}
    with checkpoints:
        iterator = iter(dataset(root))
        for _ in range(3):
            next(iterator)
        parts = {"model": args.StandardSave(weights), "data": grain.checkpoint.CheckpointSave(iterator)}
        checkpoints.save(3, args=args.Composite(**parts))
        checkpoints.wait_until_finished()
        restored = iter(dataset(root, devices, seed=9))
        parts = {"model": args.StandardRestore(weights), "data": grain.checkpoint.CheckpointRestore(restored)}
        saved = checkpoints.restore(3, args=args.Composite(**parts))
    np.testing.assert_equal(saved["model"], weights)
    assert saved["data"] is restored
    rest = [as_numpy(batch) for batch in restored]
    if devices == 8:
        np.testing.assert_equal(rest, batches[3:])
    assert sorted(rows(batches[:3]) + rows(rest)) == [*range(SAMPLES)]


def test_transformed_dataset_in_a_checkpoint(root, tmp_path):
    """The state of all transformations is in it, and JSON."""
    args, checkpoints = manager(tmp_path)

    def mixed():
        parts = {"numbers": dataset(root, repeat=True), "range": RANGE.repeat().to_iter_dataset()}
        return ge.WindowShuffleIterDataset(grain.IterDataset.mix(parts), window_size=5, seed=1).map(as_numpy)

    iterator = iter(mixed())
    for _ in range(7):
        next(iterator)
    with checkpoints:
        checkpoints.save(0, args=args.Composite(data=grain.checkpoint.CheckpointSave(iterator)))
        checkpoints.wait_until_finished()
        restored = iter(mixed())
        checkpoints.restore(0, args=args.Composite(data=grain.checkpoint.CheckpointRestore(restored)))
    np.testing.assert_equal([next(restored) for _ in range(9)], [next(iterator) for _ in range(9)])


def test_new_checkpoints_of_orbax(root, batches, tmp_path):
    """Its version 1 has no handlers: it calls the iterator's `save` and `load`."""
    ocp = pytest.importorskip("orbax.checkpoint.experimental.v1")
    iterator, restored = iter(dataset(root)), iter(dataset(root, 4, seed=9))
    next(iterator)
    ocp.save_checkpointables(tmp_path / "checkpoint", {"data": iterator, "model": {"w": np.arange(3.0)}})
    ocp.load_checkpointables(tmp_path / "checkpoint", {"data": restored})
    assert sorted(rows(batches[:1]) + rows(restored)) == [*range(SAMPLES)]


def test_plain_iterators_have_the_same_states(root, batches):
    """Also those of `data_iterator` are `grain.DatasetIterator`, and both kinds go on from each other's states."""
    with train(auto_reset=True)(root, batch_size=8, num_threads=2, seed=3) as plain:
        assert isinstance(plain, grain.DatasetIterator)
        iterator = iter(dataset(root))
        next(iterator)
        plain.set_state(iterator.get_state())
        np.testing.assert_equal(as_numpy(next(plain)), batches[1])
        iterator.set_state(json.loads(json.dumps(plain.get_state())))
        np.testing.assert_equal(as_numpy(next(iterator)), batches[2])


LATE = """
import sys
from jaxdali import fn, pipeline_def
from jaxdali.plugin.jax import DALIGenericIterator

@pipeline_def(batch_size=4, num_threads=1, seed=1)
def numbers():
    return fn.readers.file(file_root=sys.argv[1], random_shuffle=True, name="reader")[0]

def make():
    return DALIGenericIterator(numbers(), ["number"], reader_name="reader", auto_reset=True)

iterator, restored, second = make(), make(), make()
next(iterator), next(second)
assert "grain" not in sys.modules
import grain
import orbax.checkpoint as ocp

parts = {"first": iterator, "second": second}
with ocp.CheckpointManager(sys.argv[2]) as manager:
    saves = {name: grain.checkpoint.CheckpointSave(x) for name, x in parts.items()}
    manager.save(0, args=ocp.args.Composite(**saves))
    manager.wait_until_finished()
    manager.restore(0, args=ocp.args.Composite(first=grain.checkpoint.CheckpointRestore(restored)))
assert isinstance(make(), grain.DatasetIterator)
assert next(restored)["number"].tolist() == next(iterator)["number"].tolist()
assert type(iterator.get_state()) is dict

# A program that only restores.
code = sys.argv[3]
if code:
    sys.argv[3] = ""
    import subprocess
    subprocess.run([sys.executable, "-c", code, *sys.argv[1:]], check=True)
"""

RESTORE = (
    LATE.partition("iterator, restored")[0]
    + """
restored, expected = make(), make()
next(expected)
import grain
import orbax.checkpoint as ocp

with ocp.CheckpointManager(sys.argv[2]) as manager:
    manager.restore(0, args=ocp.args.Composite(first=grain.checkpoint.CheckpointRestore(restored)))
assert next(restored)["number"].tolist() == next(expected)["number"].tolist()
"""
)


def environment():
    return {**os.environ, "PYTHONPATH": str(pathlib.Path(jaxdali.__file__).parents[1]), "JAX_PLATFORMS": "cpu"}


def test_grain_may_be_imported_late(root, tmp_path):
    """Grain is neither imported by jaxdali, nor before its handler gets the iterators."""
    pytest.importorskip("orbax.checkpoint")
    run = subprocess.run(
        [sys.executable, "-c", LATE, root, tmp_path / "checkpoints", RESTORE],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr


PROCESS = """
import json, sys
import jax
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
address, rank, root, folder = sys.argv[1], int(sys.argv[2]), *sys.argv[3:5]
jax.distributed.initialize(address, num_processes=2, process_id=rank)
import grain
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxdali import fn
from jaxdali.plugin.grain import iter_dataset
from jaxdali.plugin.jax import data_iterator

def numbers(num_shards=1, shard_id=0):
    shard = {"num_shards": num_shards, "shard_id": shard_id}
    return fn.readers.file(file_root=root, name="reader", random_shuffle=True, pad_last_batch=True, **shard)[0]

def rows(batch):
    return [int(i) for shard in batch["number"].addressable_shards for i in np.ravel(shard.data)]

def make(devices, **options):
    sharding = NamedSharding(Mesh(np.array(devices), ("batch",)), PartitionSpec("batch"))
    train = data_iterator(numbers, ["number"], reader_name="reader", sharding=sharding, auto_reset=True, **options)
    return iter(iter_dataset(train, batch_size=8, num_threads=1, seed=3).map(lambda batch: batch))

iterator, one_loads = make(jax.devices()), make(jax.devices(), loading_processes=[1])
before = [i for _ in range(3) for i in rows(next(iterator))]
assert [i for _ in range(3) for i in rows(next(one_loads))] == before
with ocp.CheckpointManager(folder) as manager:
    parts = {"data": iterator, "loaded": one_loads}
    saves = {name: grain.checkpoint.CheckpointSave(it) for name, it in parts.items()}
    manager.save(0, args=ocp.args.Composite(**saves))
    manager.wait_until_finished()
    restored = [make(jax.devices(), loading_processes=[0]), make(jax.devices())]
    restored[0].start_prefetch()
    restored.append(make([jax.local_devices(process_index=p)[0] for p in range(2)]))
    for name, it in zip(("data", "loaded", "data"), restored):
        manager.restore(0, args=ocp.args.Composite(**{name: grain.checkpoint.CheckpointRestore(it)}))
rest = [[rows(batch) for batch in it] for it in (iterator, *restored)]
assert not [*restored[0], *restored[1]]
print(json.dumps({"before": before, "rest": rest}))
"""


def test_checkpoint_of_two_processes(root, tmp_path):
    """Saved and restored by two processes that both load or of which one does, with as many devices, and one each."""
    pytest.importorskip("orbax.checkpoint")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, address, str(rank), root, tmp_path / "checkpoints"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment(), "XLA_FLAGS": ""},
        )
        for rank in range(2)
    ]
    try:
        outputs = [p.communicate(timeout=120) for p in processes]
    finally:
        for p in processes:
            p.kill()
    for p, (_, errors) in zip(processes, outputs, strict=True):
        assert p.returncode == 0, errors
    files = sorted(path.name for path in (tmp_path / "checkpoints" / "0" / "data").glob("*.json"))
    assert files == ["process_0-of-2.json", "process_1-of-2.json"]
    results = [json.loads(out.splitlines()[-1]) for out, _ in outputs]
    before = [i for r in results for i in r["before"]]
    for r in results:
        assert r["rest"][1] == r["rest"][2] == r["rest"][0]
    for k in (0, 3):
        assert sorted(before + [i for r in results for batch in r["rest"][k] for i in batch]) == [*range(SAMPLES)]


# --- life, refusals, errors -----------------------------------------------------------------------------------------


def test_start_prefetch_and_close():
    started = threading.Event()

    @pipeline_def(batch_size=2, num_threads=1)
    def pipeline():
        def source():
            started.set()
            return np.zeros((2, 1), np.int32)

        return fn.external_source(source)

    iterator = iter(iter_dataset(lambda: DALIGenericIterator(pipeline(), ["x"], prepare_first_batch=False)))
    time.sleep(0.05)
    assert not started.is_set()
    iterator.start_prefetch()
    iterator.start_prefetch()
    assert started.wait(20)
    next(iterator)
    iterator.close()
    iterator.close()
    with pytest.raises(ValueError, match="the iterator is closed"):
        next(iterator)
    with pytest.raises(RuntimeError, match="the iterator is closed"):
        iterator.start_prefetch()


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_are_refused(root, workers):
    from absl import flags

    flags.FLAGS.mark_as_parsed()  # Grain asks for flags when it starts processes
    for prefetched in (
        lambda d: d.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers)),
        lambda d: ge.multithread_prefetch(d, workers + 1, 2),
    ):
        with pytest.raises(TypeError, match=r"^iter_dataset\(numbers\) can't be divided among workers of Grain"):
            next(iter(prefetched(dataset(root).map(as_numpy))))


def test_wrong_uses_are_refused(root):
    iterator = iter(dataset(root))
    with pytest.raises(TypeError, match=r"^a DALIGenericIterator can't be pickled or copied: create it in the process"):
        pickle.dumps(iterator)
    with pytest.raises(TypeError, match="has no random access; where Grain takes a MapDataset, as in ElasticIterator"):
        next(iter(ge.ElasticIterator(dataset(root), 8, grain.sharding.NoSharding())))
    with pytest.raises(ValueError, match=r"has no index: set_state\(state\) goes to a position"):
        ge.set_next_index(iterator, 3)
    with pytest.raises(AttributeError, match=r"^Grain's transformations don't take a DALIGenericIterator: use the da"):
        _ = iterator.iterator._ctx
    with pytest.raises(TypeError, match=r"^iter_dataset takes a function that makes iterators, .*, got a list$"):
        iter_dataset([])
    with pytest.raises(TypeError, match=r"^iter_dataset\(<lambda>\): the function returned a list, which is not an it"):
        iter(iter_dataset(lambda: []))
    with pytest.raises(TypeError, match="unexpected argument 'rot'; did you mean 'root'"):
        iter(iter_dataset(train(), rot=root, batch_size=8))
    with pytest.raises(RuntimeError, match="has version None"):
        iterator.set_state({"next_index": 3})


def test_errors_pass_through_transformations(tmp_path):
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "broken.jpg").write_bytes(b"no photo")

    @data_iterator(output_map=["image"], reader_name="reader", prepare_first_batch=False)
    def photos():
        return fn.decoders.image(fn.readers.file(file_root=str(tmp_path), name="reader")[0])

    made = iter_dataset(photos, batch_size=1, num_threads=1)
    for transformed in (made, ge.ThreadPrefetchIterDataset(made.map(as_numpy), prefetch_buffer_size=1)):
        with pytest.raises(jaxdali.SampleError, match=r"^decoders.image .*test_grain_iterators.py.*broken\.jpg: "):
            list(transformed)
