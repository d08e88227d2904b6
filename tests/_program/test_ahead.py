"""Programs that are compiled ahead of the batches that need them, in a thread of their own, and stored in the user's
folder.
"""

import math
import os
import subprocess
import sys
import threading

import counts
import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxdali import fn, pipeline_def
from jaxdali._batch.ahead_compiler import AheadCompiler
from jaxdali._core.ragged import ROOM, Capacities, Sizes, plan_offsets
from jaxdali._program.compilation import Compilation, stored
from jaxdali._program.sharding import Shards
from jaxdali.plugin.jax import data_iterator


def wait():
    """Waits until all compilations that have started are finished."""
    assert counts.until(lambda: not any(isinstance(thread, Compilation) for thread in threading.enumerate()), 60)


def grown(sizes, define, samples=2, **arguments):
    """A pipeline of square images of these sizes: one batch each."""

    def image(info):
        return np.full((sizes[info.iteration],) * 2, info.idx_in_batch + 1, np.uint8)

    @pipeline_def(batch_size=samples, num_threads=1, exec_pipelined=False, exec_async=False)
    def pipe():
        return define(fn.external_source(source=image, batch=False, layout="HW").gpu())

    return pipe(**arguments)


SIZES = [50 + 2 * i for i in range(100)]  # 23 times the pixels at the end


@pytest.mark.parametrize("statistics", [False, True])
def test_growing_batches_find_programs_compiled(statistics):
    pipe = grown(
        SIZES, lambda x: fn.gaussian_blur(x, window_size=3 + 2 * statistics) * 2 + 1, enable_statistics=statistics
    )
    with counts.compilations() as compilations:
        for size in SIZES:
            (out,) = pipe.run()
            wait()
            np.testing.assert_array_equal(out[1], np.full((size, size), 5))
    assert set(compilations) == {"MainThread", "jaxdali-compile"}
    assert compilations["MainThread"] == 1
    assert (
        1 <= compilations["jaxdali-compile"] <= 1 + math.ceil(math.log(SIZES[-1] ** 2 / SIZES[0] ** 2) / math.log(ROOM))
    )


@pytest.mark.parametrize("devices", [1, 2])
def test_compilation_ahead_for_an_accelerator(monkeypatch, devices):
    """Programs also depend on the part of the capacities that is transferred. Each batch gets a larger part than it
    needs until the program for its own is compiled.
    """
    monkeypatch.setattr(Shards, "accelerator", property(lambda self: self.primaries[0] != jax.devices()[0]))
    sizes, last = [60, 70] * 20 + [40] * 3 + [90] * 3 + [115] * 6, [60, 40, 70, 90, 115]
    fitted = []
    monkeypatch.setattr(
        AheadCompiler, "fit", lambda *args, fit=AheadCompiler.fit: fitted.append(fit(*args)) or fitted[-1]
    )

    def image(info):
        return np.full(((sizes + last)[info.iteration],) * 2 + (1,), info.idx_in_batch + 1, np.uint8)

    sharding = NamedSharding(Mesh(np.array(jax.devices()[1 : 1 + devices]), ("batch",)), PartitionSpec("batch"))

    @data_iterator(output_map=["x"], size=1000, sharding=sharding)
    def images(num_shards=1, shard_id=0):
        return fn.resize(fn.external_source(source=image, batch=False, layout="HWC").gpu(), size=(4, 4))

    with (
        counts.compilations() as compilations,
        images(batch_size=2 * devices, num_threads=1, prefetch_queue_depth=1) as it,
    ):
        for _ in sizes + last:
            np.testing.assert_array_equal(next(it)["x"][1], np.full((4, 4, 1), 2))
            wait()
    assert compilations["jaxdali-compile"] >= 3
    # For the batches before `FIRST_BATCH`; the thread may be ahead of the compilations.
    assert compilations["jaxdali-produce"] <= 3
    needs = [plan_offsets(np.full((2 * devices, 3), (size, size, 1)), devices)[1] for size in last]
    assert [s.sixths for s in fitted[-5:]] == [
        Sizes.least({0: s.capacities[0]}, {0: n}).sixths for s, n in zip(fitted[-5:], needs)
    ]
    assert len({s.sixths for s in fitted[-5:]}) > 2


def test_programs_after_a_host_value():
    """The second program gets an array of the first one's capacity."""

    def define(x):
        y = fn.gaussian_blur(x, window_size=3) * 2
        return (
            fn.slice(
                y, fn.reductions.min(y, axes=[0, 1]), [20], axes=[0], normalized_anchor=False, normalized_shape=False
            )
            + 1
        )

    pipe = grown(SIZES, define)
    with counts.compilations() as compilations:
        for size in SIZES:
            (out,) = pipe.run()
            wait()
            np.testing.assert_array_equal(out[1], np.full((20, size), 5))
    assert compilations["MainThread"] == 2
    assert compilations["jaxdali-compile"] <= 24  # both programs, for each 1.9-fold of both arrays


def test_programs_of_several_devices():
    def image(info):
        return np.full((SIZES[info.iteration],) * 2 + (1,), info.idx_in_batch + 1, np.uint8)

    @data_iterator(
        output_map=["x"],
        size=720,
        sharding=NamedSharding(Mesh(np.array(jax.devices()), ("batch",)), PartitionSpec("batch")),
    )
    def images(num_shards=1, shard_id=0):
        return fn.resize(fn.external_source(source=image, batch=False, layout="HWC").gpu(), size=(4, 4))

    with counts.compilations() as compilations, images(batch_size=8, num_threads=1, prefetch_queue_depth=1) as it:
        for _ in range(90):
            batch = next(it)["x"]
            wait()
            np.testing.assert_array_equal(batch, np.ones((8, 4, 4, 1)))
    # The thread that produces may be ahead of the compilations at first, and on a busy machine once more.
    assert compilations["jaxdali-produce"] <= 3 < compilations["jaxdali-produce"] + compilations["jaxdali-compile"]


def test_script_with_one_batch_compiles_one_program():
    """The batches that are made ahead do not start compilations for other sizes."""
    with counts.compilations() as compilations:
        with grown([60] * 9, lambda x: x * 3, exec_pipelined=True, exec_async=True, prefetch_queue_depth=2) as pipe:
            pipe.run()
        wait()
    assert compilations.total() == 1


def photos(rng, samples):
    """Elements of a batch of photos as in ImageNet: most are alike, one of 25 has ten times as many pixels."""
    return {"x": int((570_000 * rng.lognormal(0, 0.3, samples) * np.where(rng.random(samples) < 0.04, 10, 1)).sum())}


def test_few_capacities_for_sizes_of_photos():
    rng = np.random.default_rng(0)
    for samples in (1, 4, 32):
        for roomy in (False, True):
            capacities, missed = Capacities(samples, roomy), 0
            ready = []
            for i in range(1000):
                need = photos(rng, samples)
                fitted = capacities.fit(need, ready.__contains__)
                assert fitted["x"] >= need["x"]
                missed += i > 100 and fitted not in ready
                if i > 3:
                    ready += [x for x in [fitted, *capacities.ahead()] if x not in ready]
            assert not missed, "after a hundred batches every program must be compiled before it is needed"
            assert len(ready) <= 8, "few programs must serve all batches"


@pytest.mark.parametrize("samples", [1, 2, 4, 8, 16, 32, 64, 256])
def test_first_capacities_last_until_others_are_compiled(samples):
    """Until then 150 small batches, or 20 batches of 32 photos, may pass."""
    rng = np.random.default_rng(0)
    exceeded = 0
    for _ in range(100):
        capacities = Capacities(samples, roomy=True)
        first = capacities.fit(photos(rng, samples))
        exceeded += any(
            capacities.fit(photos(rng, samples), first.__eq__) != first for _ in range(max(20, 150 // samples))
        )
    assert exceeded <= 2


def test_capacities_ahead_end_at_addressable_size():
    capacities = Capacities(1)
    capacities.fit({"x": 2**31 * 40})
    largest_sets = capacities.ahead()
    capacities.fit({"x": largest_sets[-1]["x"]})
    assert capacities.ahead() == largest_sets


def test_batch_does_not_wait_for_smaller_program():
    """After a huge first batch smaller capacities are chosen, but used only when they are compiled."""
    ready = []
    capacities = Capacities(64)
    huge = capacities.fit({"x": 200_000}, ready.__contains__)
    ready.append(huge)
    for _ in range(30):
        assert capacities.fit({"x": 10_000}, ready.__contains__) == huge
    small = capacities.ahead()[0]
    assert small["x"] <= 20_000
    ready.append(small)
    assert capacities.fit({"x": 10_000}, ready.__contains__) == small


# --- the thread ---------------------------------------------------------------------------------------------------


@pytest.fixture
def blocked():
    """A compilation that has begun and does not end before the event is set."""
    begun, go = threading.Event(), threading.Event()

    def compile():
        begun.set()
        go.wait(60)

    compilation = Compilation(compile)
    compilation.start()
    assert begun.wait(60)
    yield compilation, go
    go.set()
    compilation.join(60)


def test_batch_waits_only_for_a_begun_compilation(blocked):
    first, go = blocked
    called = []
    second = Compilation(lambda: called.append("second"))
    second.start()
    second.settle()  # at once: it has not begun, and now never does
    waiting = threading.Thread(target=first.settle)
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    go.set()
    waiting.join(60)
    assert first.succeeded
    third = Compilation(lambda: called.append("third"))
    third.start()
    third.join(60)
    assert called == ["third"]


def test_failed_compilation_ahead_is_repeated_when_needed(monkeypatch):
    failed = threading.Event()

    class Failing(Compilation):
        def __init__(self, compile):
            super().__init__(self.fail)

        def fail(self):
            failed.set()
            raise RuntimeError("no memory")

    monkeypatch.setattr("jaxdali._batch.ahead_compiler.Compilation", Failing)
    pipe = grown(SIZES, lambda x: x * 7)
    with counts.compilations() as compilations:
        for size in SIZES[::10]:
            (out,) = pipe.run()
            wait()
            np.testing.assert_array_equal(out[0], np.full((50 + SIZES.index(size) // 5,) * 2, 7))
    assert failed.is_set()
    assert list(compilations) == ["MainThread"]


def test_without_threads_batches_compile_programs(monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    compilation = Compilation(lambda: None)
    compilation.start()
    compilation.settle()
    assert not compilation.succeeded


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork")
@pytest.mark.filterwarnings("ignore")
def test_fork_does_not_wait_for_parents_threads(blocked):
    parents, _ = blocked
    child = os.fork()
    if not child:
        code = 1
        try:
            parents.settle()
            compilation = Compilation(lambda: None)
            compilation.start()
            compilation.join(30)
            with stored():
                code = 0 if compilation.succeeded else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


EXIT = """
import threading
import time
import numpy as np
from jaxdali import fn, pipeline_def
from jaxdali._program.compilation import Compilation

@pipeline_def(batch_size=2, num_threads=1, exec_pipelined=False, exec_async=False)
def define():
    images = fn.external_source(lambda info: np.full((30 + info.iteration, 40, 3), 7, np.uint8), batch=False, layout="HWC")
    return fn.resize(fn.gaussian_blur(images.gpu(), window_size=5), size=(20, 20))

run = Compilation.run

def slowly(thread):
    compile = thread._compile
    thread._compile = lambda: (time.sleep(0.5), compile())
    run(thread)

Compilation.run = slowly
pipe = define()
[pipe.run() for _ in range(4)]
print(sum(isinstance(thread, Compilation) for thread in threading.enumerate()))
"""


def test_exit_while_a_program_is_compiled_ahead():
    done = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


# --- stored programs ----------------------------------------------------------------------------------------------

STORED = """
import sys, threading
import jax
import numpy as np
from jaxdali import fn, pipeline_def
from jaxdali._program.compilation import Compilation

jax.config.update("jax_compilation_cache_dir", sys.argv[1] or None)
seen = []
jax.monitoring.register_event_listener(lambda event, **kwargs: seen.append(event.rpartition("/")[2]))

@pipeline_def(batch_size=2, num_threads=1, exec_pipelined=False, exec_async=False)
def define():
    images = fn.external_source(lambda info: np.full((30 + info.iteration, 40, 3), 7, np.uint8), batch=False, layout="HWC")
    return fn.resize(fn.gaussian_blur(images.gpu(), window_size=5), size=(20, 20))

pipe = define()
for _ in range(5):
    pipe.run()
    for thread in threading.enumerate():
        if isinstance(thread, Compilation):
            thread.join()
jax.jit(lambda x: x + 1)(1)
print(seen.count("cache_hits"), jax.config.jax_persistent_cache_min_compile_time_secs)
"""


def test_programs_are_stored_in_users_folder(tmp_path):
    def start(folder):
        done = subprocess.run(
            [sys.executable, "-c", STORED, folder], capture_output=True, text=True, timeout=120, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        hits, min_seconds = done.stdout.split()
        return int(hits), float(min_seconds), sorted(p.name.split("-")[0] for p in tmp_path.rglob("*-cache*"))

    assert start("") == (0, 1.0, [])
    ours = ["jit_jaxdali_pipeline"] * 2  # of the first batch, and the one compiled ahead; not what others compile
    assert start(str(tmp_path)) == (0, 1.0, ours)
    assert start(str(tmp_path)) == (2, 1.0, ours)
