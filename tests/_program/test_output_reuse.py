"""Outputs on the CPU reuse the memory of earlier ones, but never memory to which something still refers."""

import collections
import concurrent.futures
import functools
import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxdali import Pipeline, fn
from jaxdali._core import ffi
from jaxdali.plugin.jax import data_iterator

SHAPE = 8, 213, 211, 3  # more than 1 MiB; rows of odd lengths


@functools.cache
def content(i):
    return np.random.default_rng(i).integers(0, 256, SHAPE, np.uint8)


def flipped(i):
    return content(i)[:, :, ::-1]


@pytest.fixture
def fresh(monkeypatch):
    """The shapes and types of the outputs that got new memory."""
    new_types, empty = [], ffi.empty
    monkeypatch.setattr(
        ffi, "empty", lambda array_type, device: new_types.append(array_type) or empty(array_type, device)
    )
    return new_types


def definition(batches=100, num_shards=1, shard_id=0):
    def source(info):
        if info.iteration == batches:
            raise StopIteration
        return list(np.split(content(info.iteration), num_shards)[shard_id])

    images = fn.flip(fn.external_source(source=source, batch=True, batch_info=True, layout="HWC"), horizontal=1)
    return fn.crop(images, crop=SHAPE[1:3])


@pytest.fixture(params=["dense", "ragged"])
def fed(request):
    """A function that flips images in a pipeline. Nothing is made ahead, so arrays can be counted."""
    with Pipeline(batch_size=SHAPE[0], num_threads=2, device_id=None, prefetch_queue_depth=1) as pipe:
        images = fn.flip(fn.external_source(name="images", layout="HWC"), horizontal=1)
        pipe.set_outputs(fn.crop(images, crop=SHAPE[1:3]) if request.param == "dense" else images)

    def run(images):
        pipe.feed_input("images", list(images))
        return pipe.run()[0]

    yield run
    pipe.close()


def iterator(batches=100, **options):
    def pipe(num_shards=1, shard_id=0):
        return definition(batches, num_shards=num_shards, shard_id=shard_id)

    return data_iterator(pipe, ["x"], **options)(batch_size=SHAPE[0], num_threads=2)


def stream(batches=100, **options):
    return (batch["x"] for batch in iterator(batches, **options))


def test_loop_without_references_needs_few_arrays(fresh):
    for i, x in enumerate(stream(30)):
        np.testing.assert_array_equal(x, flipped(i))
    assert i == 29
    # Three made ahead, one just taken, the one before it, one that JAX still holds, and one in place of a third free
    # one, which is dropped.
    assert 1 <= len(fresh) <= 7


def test_loop_over_pipeline_alternates_two_arrays(fresh, fed):
    """It alternates two arrays, or three, because JAX may release an array a batch later."""
    for i in range(12):
        x = fed(content(i))
        np.testing.assert_array_equal(x.as_array(), flipped(i))
    assert 2 <= len(fresh) <= 3


def test_kept_batches_keep_their_values(fresh):
    batches = list(stream(12))
    assert len(fresh) == len(batches) == 12
    for i, x in enumerate(batches):
        np.testing.assert_array_equal(x, flipped(i))


def from_torch(x):
    return pytest.importorskip("torch").from_dlpack(x)


def in_thread(x):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(np.asarray, x).result()


def slowly(x):
    """Reads a batch late, after a long computation, when other batches have been made."""
    wait = jax.lax.fori_loop(0, 20, lambda _, a: jnp.cos(a @ a), jnp.full((300, 300), 0.1))
    return x + (wait[0, 0] * 0).astype(jnp.uint8)


HOLDERS = {
    "numpy": np.asarray,
    "view": lambda x: np.asarray(x).reshape(-1).view(np.int8).view(np.uint8),
    "memoryview": lambda x: memoryview(np.asarray(x)),
    "shard": lambda x: x.addressable_shards[0].data,
    "device_put": lambda x: jax.device_put(x, x.sharding),
    "alias": lambda x: jax.device_put(x, may_alias=True),
    "program": jax.jit(lambda x: x),
    "slow program": jax.jit(slowly),
    "donated": jax.jit(lambda x: x, donate_argnums=0),
    "slow, donated": jax.jit(slowly, donate_argnums=0),
    "reshaped": lambda x: x.reshape(-1, 3),
    "dlpack": jax.dlpack.from_dlpack,
    "dlpack of numpy": np.from_dlpack,
    "torch": from_torch,
    "thread": in_thread,
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.filterwarnings("ignore:Some donated buffers")
def test_views_keep_the_memory_of_a_batch(holder):
    held = []
    for x in stream(10):
        held.append(HOLDERS[holder](x))
        del x
    gc.collect()
    for i, x in enumerate(held):
        np.testing.assert_array_equal(np.asarray(x).reshape(-1), flipped(i).reshape(-1))


def test_memory_is_reused_after_last_view(fresh, fed):
    views = [np.asarray(fed(content(i))[0]) for i in range(10)]
    assert len(fresh) == 10
    for i, view in enumerate(views):
        np.testing.assert_array_equal(view, flipped(i)[0])
    del view, views
    for i in range(20):
        fed(content(i))
    assert len(fresh) <= 11  # JAX may release an array a batch later


def test_batches_dropped_by_several_threads():
    def check(i, x):
        np.testing.assert_array_equal(x, flipped(i))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for f in [pool.submit(check, i, x) for i, x in enumerate(stream(24))]:
            f.result()


def test_batches_outlive_their_iterator():
    it = iterator()
    batches = [next(it)["x"] for _ in range(3)]
    it.close()
    del it
    gc.collect()
    later_batches = list(stream(6))
    for i, x in enumerate(batches):
        np.testing.assert_array_equal(x, flipped(i))
    assert len(later_batches) == 6


def test_a_closed_iterator_keeps_no_memory():
    def live_bytes():
        gc.collect()
        return sum(x.nbytes for x in jax.live_arrays() if x.shape == SHAPE)

    bytes_before = live_bytes()
    with iterator() as it:
        for _ in range(5):
            next(it)
        assert live_bytes() > bytes_before
    assert live_bytes() <= bytes_before


@pytest.mark.parametrize("axis", [8, 1])
def test_batches_on_several_devices(axis):
    sharding = NamedSharding(Mesh(np.array(jax.devices()[:axis]), ("x",)), PartitionSpec("x"))
    batches = [(x, np.asarray(x.addressable_shards[0].data)) for x in stream(8, sharding=sharding, size=8 * SHAPE[0])]
    for i, (x, shard) in enumerate(batches):
        assert x.sharding == sharding
        np.testing.assert_array_equal(x, flipped(i))
        np.testing.assert_array_equal(shard, flipped(i)[: len(shard)])


@pytest.mark.parametrize("fed", ["ragged"], indirect=True)
def test_growing_outputs(fresh, fed, monkeypatch):
    monkeypatch.setattr("jaxdali._core.ragged.LEAST_ROOMY", 0)  # otherwise all fit into the first capacity
    monkeypatch.setattr("jaxdali._program.program._capacities", {})
    kept_batches = {}
    for i in range(30):
        times = 1 if i < 20 else 6
        x = fed(np.tile(content(i), (1, times, 1, 1)))
        expected = np.tile(flipped(i), (1, times, 1, 1))
        if i in (3, 22):
            kept_batches[i] = x, np.asarray(x[2]), expected
        np.testing.assert_array_equal(x.as_array(), expected)
    for x, sample, expected in kept_batches.values():
        np.testing.assert_array_equal(sample, expected[2])
        np.testing.assert_array_equal(x.as_array(), expected)
    num_of_shape = collections.Counter(array_type.shape for array_type in fresh)
    assert 2 <= len(num_of_shape) <= 3  # a program that is compiled ahead may be ready before the batches grow
    assert max(num_of_shape.values()) <= 4  # of each shape one that is kept, and those that alternate
