"""`jaxdali.ray`: a cluster of two nodes on this machine makes the same batches as the iterator without workers."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from PIL import Image

from jaxdali import OperatorError, SampleError, fn
from jaxdali._batch.remote import RemoteExecutor
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import DALIGenericIterator, data_iterator, peekable_data_iterator
from jaxdali.plugin.jax.fn import jax_function

ray = pytest.importorskip("ray")

from ray.cluster_utils import Cluster  # noqa: E402  # pyright: ignore[reportMissingImports]
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402  # pyright: ignore[reportMissingImports]

from jaxdali.ray import Workers  # noqa: E402

FILES = 26

# Ray starts its processes from this one, which has JAX's threads, and leaves sockets open when it ends.
pytestmark = [pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning", "ignore::ResourceWarning"), pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of two CPUs, and 1 GiB for objects in all. The driver's node has no CPU."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 400 << 20})
    for name in ("first", "second"):
        cluster.add_node(num_cpus=2, object_store_memory=312 << 20, resources={name: 2})
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for i in range(FILES):
        (folder / "ab"[i % 2]).mkdir(exist_ok=True)
        pixels = rng.integers(0, 256, (4 + i, 5, 3), np.uint8).repeat(9, 0).repeat(9, 1)
        Image.fromarray(pixels).save(folder / "ab"[i % 2] / f"{i:02}.jpg", quality=90)
    return folder


@jax_function
def brighter(images):
    return images + 1


def definition(photos, num_shards=1, shard_id=0, slow=None, on_error="raise"):
    jpegs, labels = fn.readers.file(
        file_root=str(photos),
        random_shuffle=True,
        name="reader",
        num_shards=num_shards,
        shard_id=shard_id,
        on_error=on_error,
    )
    images = fn.rotate(fn.decoders.image(jpegs), angle=fn.random.uniform(range=(-20.0, 20.0)))
    if slow is not None:
        labels = fn.python_function(labels, function=slow)
    return brighter(fn.resize(images, size=(16, 16))), labels, fn.shapes(images)


def make(photos, workers=None, names=("images", "labels", "shapes"), kind=data_iterator, options=None, **arguments):
    decorated = kind(definition, names, **{"reader_name": "reader", "auto_reset": True, **(options or {})})
    return decorated(photos, **{"batch_size": 4, "num_threads": 1, "seed": 5, "workers": workers, **arguments})


def assert_same(batches, expected):
    assert len(batches) == len(expected)
    for batch, expected_batch in zip(batches, expected, strict=True):
        assert batch.keys() == expected_batch.keys()
        jax.tree.map(np.testing.assert_array_equal, batch, expected_batch)
        assert jax.tree.map(lambda x: (x.dtype, x.sharding), batch) == jax.tree.map(
            lambda x: (x.dtype, x.sharding), expected_batch
        )


def epochs(iterator, n=3):
    with iterator:
        return [jax.tree.map(lambda x: x, batch) for _ in range(n) for batch in iterator]


def over_devices(n):
    return NamedSharding(Mesh(jax.devices()[:n], ("batch",)), PartitionSpec("batch"))


OPTIONS = {
    "plain": {},
    "peekable": {"kind": peekable_data_iterator},
    "dropped": {"options": {"last_batch_policy": LastBatchPolicy.DROP}},
    "masked": {"options": {"last_batch_policy": LastBatchPolicy.PARTIAL, "mask_name": "valid"}},
    "sharded": {"options": {"sharding": over_devices(2)}},
    "masked shards": {
        "options": {"sharding": over_devices(2), "last_batch_policy": LastBatchPolicy.PARTIAL, "mask_name": "valid"},
    },
    "devices": {"options": {"devices": jax.devices()[:2]}},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_same_batches(options, cluster, photos):
    assert_same(epochs(make(photos, Workers(num_workers=2, num_cpus=1), **options)), epochs(make(photos, **options)))


def test_ragged_outputs(cluster, photos):
    def ragged(photos):
        jpegs, labels = fn.readers.file(file_root=str(photos), name="reader", num_shards=2, shard_id=0)
        images = fn.decoders.image(jpegs)
        return images, labels

    options = {"reader_name": "reader", "ragged": {"images": (300, 60)}}
    results = [
        epochs(
            data_iterator(ragged, ["images", "labels"], **options)(
                photos, batch_size=4, num_threads=1, workers=workers
            ),
            1,
        )
        for workers in (None, Workers(num_workers=1))
    ]
    assert_same(*results)


def test_resume_with_other_numbers_of_workers(cluster, photos):
    expected = epochs(make(photos, enable_checkpointing=True))
    batches, checkpoints = [], None
    for workers, num_batches in (
        (Workers(num_workers=1), 4),
        (Workers(num_workers=3), 7),
        (None, 5),
        (Workers(num_workers=2), 100),
    ):
        with make(photos, workers, enable_checkpointing=True, checkpoints=checkpoints) as iterator:
            while num_batches and len(batches) < len(expected):
                for batch in iterator:
                    batches.append(batch)
                    num_batches -= 1
                    if not num_batches:
                        break
            checkpoints = iterator.checkpoints()
    assert_same(batches, expected)


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return "Z" not in pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2][:3]


def test_killed_workers(cluster, photos, caplog):
    """A worker is killed with SIGKILL in mid-epoch, which is not worth a message. Then a node with all workers is
    removed; they restart on other nodes.
    """
    expected = epochs(make(photos))
    node = cluster.add_node(num_cpus=2, resources={"third": 2})

    for kill in ("process", "node"):
        options = (
            {"scheduling_strategy": NodeAffinitySchedulingStrategy(node.node_id, soft=True)} if kill == "node" else {}
        )
        with make(photos, Workers(num_workers=2, options=options)) as iterator:
            batches = [next(iterator) for _ in range(2)]
            actors = [a for a in ray.util.list_named_actors() if a.startswith("jaxdali-")]
            processes = [ray.get(ray.get_actor(a).__ray_call__.remote(lambda _: os.getpid())) for a in actors]
            if kill == "process":
                os.kill(processes[0], signal.SIGKILL)
            else:
                cluster.remove_node(node, allow_graceful=False)
                deadline = time.monotonic() + 30
                while any(map(is_running, processes)) and time.monotonic() < deadline:
                    time.sleep(0.1)
                assert not any(map(is_running, processes))
            for _ in range(3):
                batches += list(iterator)
            assert_same(batches[: len(expected)], expected)
        if kill == "process":
            assert not [record for record in caplog.records if record.name == "jaxdali"]


LOST = """
import logging, os, pathlib, signal, sys, time

import numpy as np
import ray
from jaxdali import fn
from jaxdali.plugin.jax import data_iterator
from jaxdali.ray import Workers

process, timeout = sys.argv[1], 5

@data_iterator(output_map=["x"], reader_name="reader", repeat=True)
def numbers():
    return fn.readers.numpy(file_root=".", name="reader")

class Told(logging.Handler):
    def emit(self, record):
        print("told", time.monotonic() - killed, record.getMessage(), flush=True)

for i in range(8):
    np.save(f"{i}.npy", np.full(3, i))
ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=200 << 20)
iterator = numbers(batch_size=4, num_threads=1, workers=Workers(num_workers=1, timeout=timeout))
next(iterator)
for file in pathlib.Path("/proc").glob("[0-9]*/comm"):
    if file.read_text() == process + "\\n" and f"PPid:\\t{os.getpid()}\\n" in (file.parent / "status").read_text():
        os.kill(int(file.parent.name), signal.SIGKILL)
killed = time.monotonic()
logging.getLogger("jaxdali").addHandler(Told())
errors = 0
while errors < 3 and time.monotonic() < killed + 60:
    time.sleep(0.1)
    try:
        next(iterator)
    except RuntimeError as e:
        errors += 1
        print("failed", time.monotonic() - killed, e, flush=True)
print("closed", iterator.close(), flush=True)
"""


@pytest.mark.parametrize(("process", "place"), [("raylet", "Ray's agent on this node"), ("gcs_server", "Ray's head")])
def test_loss_of_the_cluster(process, place, tmp_path):
    """It is logged once, within 10 s, then an error within the timeout, and no wait for the batches after it."""
    done = subprocess.run(
        [sys.executable, "-c", LOST, process], cwd=tmp_path, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines() if line.startswith(("told ", "failed "))]
    assert [word for word, _, _ in lines] == ["told", "failed", "failed", "failed"], done.stdout
    assert all(place in text for _, _, text in lines)
    log_time, error_time, _, last_error_time = (float(seconds) for _, seconds, _ in lines)
    assert log_time < 10
    assert error_time < 15  # the timeout is 5 s, and the machine may be busy
    assert last_error_time - error_time < 5
    assert "closed None" in done.stdout


def test_hanging_worker(cluster, photos, tmp_path):
    """It hangs once, for one batch. A file marks that it has hung."""

    def slow(label, flag=str(tmp_path / "hung")):
        if not os.path.exists(flag):
            open(flag, "w").close()
            time.sleep(1000)
        return label

    assert_same(
        epochs(make(photos, Workers(num_workers=2, timeout=12), slow=slow), 1),
        epochs(make(photos, slow=lambda label: label), 1),
    )
    assert (tmp_path / "hung").exists()


def test_interrupted_wait(cluster, photos, monkeypatch):
    """A batch of two shards is interrupted while it waits for the second one. It is the next one nevertheless."""
    monkeypatch.setattr(RemoteExecutor, "must_run_in_callers_thread", True)
    expected, get, waits = epochs(make(photos, **OPTIONS["sharded"]), 1), ray.get, []

    def get_or_interrupt(ref, *, timeout=None):
        waits.append(timeout)
        if len(waits) == 2:
            raise KeyboardInterrupt
        return get(ref, timeout=timeout)

    with make(photos, Workers(num_workers=1), **OPTIONS["sharded"]) as iterator:
        batches = [next(iterator)]
        monkeypatch.setattr(ray, "get", get_or_interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        assert_same(batches + list(iterator), expected)


def test_batch_killing_every_worker(cluster, photos):
    def deadly(label):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(RuntimeError, match="failed to make the same batch"):
        make(photos, Workers(num_workers=1, num_cpus=0.5), slow=deadly)


def test_errors_equal_the_iterators(cluster, photos, tmp_path):
    (tmp_path / "a").mkdir()
    for i, file in enumerate(sorted(photos.rglob("*.jpg"))[:8]):
        (tmp_path / "a" / file.name).write_bytes(file.read_bytes()[: 300 if i == 5 else None])
    results = []
    for workers in (None, Workers(num_workers=2)):
        with make(tmp_path, workers, options={"prepare_first_batch": False}) as iterator:
            caught, batches = [], []
            for _ in range(2):
                try:
                    batches.append(next(iterator))
                except SampleError as e:
                    caught.append((str(e), e.index, e.source, e.operator))
        results.append((caught, batches))
    assert results[0][0] == results[1][0] != []
    assert "05.jpg" in results[0][0][0][0] or "a/" in results[0][0][0][0]
    assert_same(results[1][1], results[0][1])


def test_replaced_samples_are_reported(cluster, photos, tmp_path):
    (tmp_path / "a").mkdir()
    for file in sorted(photos.rglob("*.jpg"))[:8]:
        (tmp_path / "a" / file.name).write_bytes(file.read_bytes())
    missing = sorted(tmp_path.rglob("*.jpg"))[3]
    missing.unlink()
    missing.symlink_to(tmp_path / "nowhere")
    results = []
    for workers in (None, Workers(num_workers=2)):
        with make(tmp_path, workers, on_error="replace") as iterator:
            results.append((list(iterator), iterator.bad_samples()))
    assert results[0][1] == results[1][1] != []
    assert_same(results[1][0], results[0][0])


def test_statistics_of_all_workers(cluster, photos):
    with make(photos, Workers(num_workers=2), enable_statistics=True) as iterator:
        batches = list(iterator)
        rows = {(m.stage, m.step.partition(":")[0]): m for m in iterator.statistics()}
    assert rows["read", "reader"].samples >= 4 * len(batches)
    assert rows["wait", "batch"].calls >= len(batches)


def test_more_workers_than_cpus_of_the_cluster(cluster, photos):
    """Workers that can't start get no batches. If none can start, the error says so."""
    assert_same(epochs(make(photos, Workers(num_workers=7)), 1), epochs(make(photos), 1))
    with pytest.raises(
        RuntimeError, match=r"none of Ray's workers has started in 1 s: the cluster may lack 64 free CPUs"
    ):
        make(photos, Workers(num_workers=1, num_cpus=64, timeout=1))


def test_errors_name_unpicklable_objects(cluster, photos):
    def fed(photos):
        return fn.external_source(lambda info: np.zeros(3), batch=False)

    with pytest.raises(
        OperatorError, match=r"external_source \(created at .*test_ray.py:\d+\): .*only this process has its source"
    ):
        data_iterator(fed, ["x"])(photos, batch_size=2, num_threads=1, workers=Workers(num_workers=1))
    lock = __import__("threading").Lock()
    with pytest.raises(
        TypeError, match=r"python_function \(created at .*test_ray.py:\d+\) holds what can't be sent to Ray's workers"
    ):
        make(photos, Workers(num_workers=1), slow=lambda label: label if lock else None)
    with pytest.raises(TypeError, match=r"workers must be a jaxdali\.ray\.Workers, got 3"):
        make(photos, 3)
    with pytest.raises(ValueError, match="num_workers"):
        Workers(num_workers=0)


def test_other_data_than_here(cluster, photos, tmp_path):
    """A file is added after the iterator has listed the folder and before a worker does."""
    (tmp_path / "a").mkdir()
    file = next(photos.rglob("*.jpg")).read_bytes()
    (tmp_path / "a" / "0.jpg").write_bytes(file)
    iterator = make(tmp_path, Workers(num_workers=1), options={"prepare_first_batch": False})
    (tmp_path / "a" / "1.jpg").write_bytes(file)
    with iterator, pytest.raises(RuntimeError, match="a worker finds other data for 'reader'"):
        next(iterator)


def test_objects_are_released(cluster, tmp_path):
    """Three times the bytes of the object store pass through it."""
    (tmp_path / "a").mkdir()
    for i in range(64):
        np.save(tmp_path / "a" / f"{i}.npy", np.full((1024, 1024), i, np.uint32))

    @data_iterator(output_map=["x"], reader_name="reader", auto_reset=True)
    def big():
        return fn.readers.numpy(file_root=str(tmp_path), name="reader")

    with big(batch_size=8, num_threads=1, workers=Workers(num_workers=2)) as iterator:
        sums = [float(np.asarray(b["x"][:, 0, 0]).sum()) for _ in range(12) for b in iterator]
    assert sum(sums) == 12 * sum(range(64))


def test_pipelines_as_arguments(cluster, photos):
    """Workers for an iterator over pipelines that were made before."""
    from jaxdali import pipeline_def

    results = []
    for workers in (None, Workers(num_workers=1)):
        pipe = pipeline_def(definition)(photos, batch_size=3, num_threads=1, seed=2)
        results.append(
            epochs(
                DALIGenericIterator(pipe, ["i", "l", "s"], reader_name="reader", auto_reset=True, workers=workers), 2
            )
        )
    assert_same(*results)
