"""Pipelines lower to jitted computations: the contents of the programs, and the number of compilations."""

import functools
import gc
import math
import re

import counts
import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from PIL import Image

from jaxdali import _cpu, fn, pipeline_def
from jaxdali._core.ragged import ALIGNMENT, LEAST_ROOMY, BufferPool, Capacities, Sizes
from jaxdali._program import program
from jaxdali._program.operands import Operands
from jaxdali.plugin.jax import data_iterator

COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter", "collective-broadcast")


@pytest.fixture(scope="module")
def spread(tmp_path_factory):
    """JPEGs of widely spread sizes: 24 to 900 pixels a side."""
    folder = tmp_path_factory.mktemp("spread")
    rng = np.random.default_rng(5)
    files = []
    for i in range(80):
        w, h = np.exp(rng.uniform(np.log(24), np.log(900), 2)).astype(int)
        ramp = (np.add.outer(np.arange(h), np.arange(w)) % 256).astype(np.uint8)
        path = folder / f"{i}.jpg"
        Image.fromarray(np.stack([ramp, 255 - ramp, ramp // 2], axis=-1)).save(path, quality=80)
        files.append(str(path))
    return files


def definition(files, num_shards=1, shard_id=0):
    jpegs, labels = fn.readers.file(files=files, name="reader", num_shards=num_shards, shard_id=shard_id)
    images = fn.decoders.image(jpegs, device="mixed")
    images = fn.rotate(images, angle=fn.random.uniform(range=(-10.0, 10.0)), fill_value=0)
    return fn.resize(images, resize_x=32, resize_y=32), labels.gpu()


@pytest.mark.parametrize(
    "make",
    [lambda d: Mesh(np.array(d), ("batch",)), lambda d: jax.make_mesh((len(d),), ("batch",))],
    ids=["Mesh", "make_mesh"],
)
def test_program_holds_custom_calls_and_no_collective(spread, make):
    mesh = make(jax.devices())
    sharding = NamedSharding(mesh, PartitionSpec("batch"))
    with data_iterator(definition, ["images", "labels"], reader_name="reader", sharding=sharding)(
        spread, batch_size=16, seed=1, fuse=False
    ) as it:
        batch = next(it)
        lowered = it.pipelines[0].lower()
    assert batch["images"].sharding == sharding
    assert batch["labels"].sharding == sharding
    text = lowered.as_text()
    for kernel in ("decode", "resize", "warp"):
        assert f"@jaxdali_{kernel}" in text
    compiled = lowered.compile()
    assert not [c for c in COLLECTIVES if c in compiled.as_text() or c.replace("-", "_") in text]
    assert compiled.cost_analysis() is not None


def test_few_compilations_and_none_for_second_iterator(spread):
    rng = np.random.default_rng(6)
    files = [spread[i] for i in rng.integers(0, len(spread), 2000)]
    make = functools.partial(
        data_iterator(definition, ["images", "labels"], reader_name="reader"), batch_size=8, fuse=False
    )
    with counts.compilations() as compilations, make(files, seed=1) as it:
        count = sum(1 for _ in it)
        lowered = it.lower()
    assert count == 250
    assert 1 <= compilations.total() <= 12
    # Capacity of the decoded images of the last batch, against its need and the largest batch's.
    sizes = {f: pixels(f) for f in set(files)}
    needs = [sum(-(-sizes[f] // 64) * 64 for f in files[i : i + 8]) for i in range(0, 2000, 8)]
    capacity = max(s.shape[0] for s in custom_call_results(lowered, "jaxdali_decode"))
    assert needs[-1] <= capacity <= max(2 * max(needs), LEAST_ROOMY + ALIGNMENT)
    with counts.compilations() as compilations, make(files[::-1], seed=2) as it:
        assert sum(1 for _ in it) == 250
    # No batch waits; what the first iterator's end has cancelled may be compiled ahead.
    assert set(compilations) <= {"jaxdali-compile"}


def pixels(path):
    with Image.open(path) as image:
        return np.prod(image.size) * 3


def custom_call_results(lowered, target):
    """Returns the shapes of the first results of the custom calls of a target."""
    sizes = re.findall(rf"custom_call @{target}\(.*?-> \(tensor<(\d+)xui8>", lowered.as_text())
    return [jax.ShapeDtypeStruct((int(n),), np.uint8) for n in sizes]


def test_decoding_compiles_by_capacity_not_by_shape(spread):
    @pipeline_def(batch_size=1, num_threads=1)
    def decode():
        jpegs, _ = fn.readers.file(files=spread, name="reader")
        return fn.decoders.image(jpegs)

    pipe = decode()
    with counts.compilations() as compilations:
        shapes = {pipe.run()[0].shape()[0] for _ in range(len(spread))}
    pipe.close()
    assert len(shapes) > 60
    assert compilations.total() <= 8


def test_definition_is_traced_once_per_shard(spread):
    calls = []

    def counted(files, num_shards=1, shard_id=0):
        calls.append((num_shards, shard_id))
        return definition(files, num_shards, shard_id)

    sharding = NamedSharding(Mesh(np.array(jax.devices()), ("batch",)), PartitionSpec("batch"))
    with data_iterator(counted, ["images", "labels"], reader_name="reader", sharding=sharding)(
        spread, batch_size=8
    ) as it:
        for _ in it:
            pass
    assert calls == [(8, i) for i in range(8)]


def test_lower_of_missing_programs_raises(spread):
    @pipeline_def(batch_size=2)
    def decode():
        return fn.decoders.image(fn.readers.file(files=spread)[0])

    pipe = decode()
    with pytest.raises(RuntimeError, match="no program has run yet"):
        pipe.lower()
    pipe.run()
    with pytest.raises(ValueError, match="segment=1"):
        pipe.lower(segment=1)
    pipe.close()


def test_buffers_return_to_the_pool(spread):
    """Batches that are dropped return their memory. Batches that are kept keep their values."""
    make = data_iterator(definition, ["images", "labels"], reader_name="reader")
    with make(spread, batch_size=8, seed=3) as it:
        first_batch = next(it)
        pixels = np.array(first_batch["images"])
        for _ in it:
            pass
        gc.collect()
        np.testing.assert_array_equal(first_batch["images"], pixels)
        free = sum(len(d) for d, _ in it._stream.executors[0].resources.pool._free.values())
    assert 1 <= free <= 40


def test_files_are_not_copied_after_reading(spread, monkeypatch):
    """Files are read into a buffer of the program's capacity, which the program gets, unless an image is bad."""
    read, buffers, read_files, packed = [], [], _cpu.read_files, Operands.packed
    monkeypatch.setattr(_cpu, "read_files", lambda *args: [read.append(args[2]), read_files(*args)][1])
    monkeypatch.setattr(
        Operands, "packed", lambda self, layout: [buffers.append(self.buffers), packed(self, layout)][1]
    )
    make = data_iterator(definition, ["images", "labels"], reader_name="reader")
    with make(spread[:8] * 4, batch_size=8, seed=3) as it:
        for _ in it:
            pass
    assert len(read) >= len(buffers) >= 4  # with batches that were made ahead
    shared = [np.shares_memory(data, b[0]) for data, b in zip(read, buffers)]
    assert shared[1:4] == [True] * 3  # the first batch tells the capacity


def test_capacities_have_little_room_and_few_programs():
    """The sizes vary like those of files: their standard deviation is three quarters of the mean."""
    rng = np.random.default_rng(0)
    for samples, max_ratio in ((8, 1.91), (64, 1.4), (256, 1.2)):
        capacities, programs, needs = Capacities(samples), set(), []
        for _ in range(500):
            needs.append(int(rng.gamma(1.78, 100_000 / 1.78, samples).sum()))
            programs.add(capacities.fit({"x": needs[-1]})["x"])
            assert needs[-1] <= max(programs)
        assert len(programs) <= 2, "two capacities must be enough for 500 batches"
        assert min(programs) <= max_ratio * needs[0], "the first capacity must not be much larger than needed"
    capacities = Capacities(256)  # data that grow a hundredfold: one more program for each 1.9-fold
    assert len({capacities.fit({"x": 10_000 + 2_000 * i})["x"] for i in range(500)}) <= 1 + math.ceil(
        math.log(100) / math.log(1.9)
    )


@pytest.mark.parametrize(("samples", "max_programs"), [(8, 12), (64, 8), (256, 5)])
def test_few_sizes_of_transfers_and_working_memory(samples, max_programs):
    """A decoder's working memory for a photo depends on the number of pixels, which varies for one file size."""
    rng = np.random.default_rng(0)
    capacities, programs, parts = Capacities(samples), set(), []
    for _ in range(1000):
        files = rng.gamma(1.78, 100_000 / 1.78, samples)
        needs = {"files": int(files.sum()), "memory": int((files * rng.uniform(5, 9, samples)).sum())}
        sizes = Sizes.least(capacities.fit({**needs, "results": 30 * needs["files"]}), needs).cut(needs)
        assert all(sizes[k] >= n for k, n in needs.items())
        parts.append(min(sizes[k] / n for k, n in needs.items()))
        programs.add((*sizes.values(), capacities.get("results")))
    assert len(programs) <= max_programs, "few programs must serve all batches"
    assert np.mean(parts) <= 1.25, "transfers and working memory must not be much larger than needed"


def test_huge_batch_has_own_capacities():
    capacities = Capacities(64)
    usual = capacities.fit({"x": 10_000, "y": 5_000})
    huge = capacities.fit({"x": 200_000, "y": 5_000})
    assert huge["x"] >= 200_000
    for x in (9_000, 12_000, 2_000):
        assert capacities.fit({"x": x, "y": 5_000}) == usual
    assert capacities.get("x") == usual["x"]
    assert capacities.fit({"x": 150_000, "y": 5_000}) == huge


def test_unused_sets_of_capacities_are_dropped(monkeypatch):
    monkeypatch.setattr(program, "_capacities", {})
    monkeypatch.setattr(program, "MAX_PROGRAMS", 2)
    sets = {}
    for key in "abacab":
        sets[key] = [*sets.get(key, []), program.capacities_for(key, 8, roomy=False)]
    assert sets["a"][0] is sets["a"][1] is sets["a"][2]
    assert sets["b"][0] is not sets["b"][1]
    assert len(program._capacities) == 2


def test_capacities_of_huge_first_batch_are_dropped():
    capacities = Capacities(64)
    huge = capacities.fit({"x": 200_000})
    later = [capacities.fit({"x": 10_000 + 10 * i})["x"] for i in range(40)]
    assert later[:15] == [huge["x"]] * 15
    assert set(later[15:]) == {later[-1]}
    assert 10_400 <= later[-1] <= 2 * 10_400
    # One small batch at the end of each epoch is no reason.
    assert len({capacities.fit({"x": n})["x"] for n in [12_000, 12_000, 100] * 20}) == 1


def test_capacities_of_tiny_batches_do_not_accumulate():
    capacities = Capacities(64)
    for _ in range(100):
        capacities.fit({"x": 0})
    assert len(capacities._sets) == 1


def test_batches_after_huge_image_run_earlier_program():
    """Arithmetic works on all of a ragged buffer, so it would take longer in a larger one."""
    sizes = [30, 31, 600, 30, 31]

    @pipeline_def(batch_size=2, num_threads=1)
    def pipe():
        images = fn.external_source(
            source=lambda i: np.full((sizes[i.iteration],) * 2, i.idx_in_batch, np.uint8), batch=False
        )
        return images.gpu() * 2 + 1

    p = pipe(exec_pipelined=False, exec_async=False)
    texts = []
    for size in sizes:
        (out,) = p.run()
        np.testing.assert_array_equal(out[1], np.full((size, size), 3))
        texts.append(p.lower().as_text())
    assert texts[0] == texts[1] == texts[3] == texts[4] != texts[2]


def test_buffer_pool_forgets_unused_sizes():
    pool = BufferPool()
    held = [pool.empty((5000,), np.uint8) for _ in range(40)]
    pool.empty((1 << 20,), np.uint8)
    del held
    assert [len(free) for free, _ in pool._free.values()] == [16, 1]
    for _ in range(300):
        pool.empty((5000,), np.uint8)
    assert [len(free) for free, _ in pool._free.values()] == [16]
