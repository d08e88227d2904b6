"""The life of iterators: early breaks, errors, interrupts, batches in flight. No hang, no leak, no lost sample."""

import gc
import os
import pathlib
import signal
import subprocess
import sys
import time

import counts
import numpy as np
import pytest
import shardings

from jaxdali import fn, pipeline_def
from jaxdali.plugin.jax import DALIGenericIterator, data_iterator


@pytest.fixture(scope="module")
def files(files):
    return files[:12]


def definition(files, num_shards=1, shard_id=0):
    x, _ = fn.readers.file(files=files, name="reader", random_shuffle=True, num_shards=num_shards, shard_id=shard_id)
    images = fn.external_source(source=lambda: [np.zeros((200, 200, 3), np.uint8)] * (4 // num_shards), layout="HWC")
    return x, fn.resize(images, size=(64, 64))


def resident() -> int:
    """Bytes of memory in use by this process."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("num_shards", [1, 2])
def test_two_hundred_short_epochs_with_early_breaks(files, num_shards, own_threads):
    """One iterator makes all epochs, and another one is made and dropped in every tenth. Memory and threads do not
    grow.
    """
    sharding = shardings.of_batch(num_shards)
    make = data_iterator(definition, ["x", "image"], reader_name="reader", sharding=sharding)
    leave = np.random.default_rng(0).integers(1, 4, 200).tolist()
    with make(files, batch_size=4, seed=1) as it:
        memory_before, threads = 0, counts.Threads()
        for epoch, n in enumerate(leave):
            samples = [next(it)["x"]]
            for step, batch in enumerate(it, 2):  # goes on with the epoch
                samples.append(batch["x"])
                if step == n:
                    break
            samples += [b["x"] for b in it] if len(samples) < 3 else []
            assert sorted(np.concatenate(samples).ravel()) == list(range(1, 13))
            with pytest.raises(StopIteration):
                next(it)
            it.reset()
            if epoch % 10 == 0:
                dropped = make(files, batch_size=4)
                next(dropped)
                del dropped  # with batches in flight
            if epoch == 60:
                gc.collect()
                memory_before = resident()
        gc.collect()
        assert threads.ended()
        assert resident() - memory_before < 20_000_000  # an epoch's images have 1.4 MB as read
    assert own_threads.ended()


def test_closed_and_dropped_iterators_leave_no_threads(files, own_threads):
    make = data_iterator(definition, ["x", "image"], reader_name="reader")
    first, second = make(files, batch_size=4), make(files, batch_size=4)
    next(first)
    first.close()
    first.close()
    with pytest.raises(RuntimeError, match="closed"):
        next(first)
    for _ in second:
        break
    del second
    gc.collect()
    assert own_threads.ended()


def test_iterator_dropped_by_exception_leaves_no_threads(files, own_threads):

    def train():
        for _ in data_iterator(definition, ["x", "image"], reader_name="reader")(files, batch_size=4):
            raise ArithmeticError("loss is NaN")

    with pytest.raises(ArithmeticError):
        train()
    gc.collect()
    assert own_threads.ended()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_source_errors_cost_one_batch_each(error):
    @pipeline_def(batch_size=2)
    def failing():
        def source(info):
            if info.iteration == 5:
                raise StopIteration
            if info.iteration in (1, 3) and info.epoch_idx == 0:
                raise error("no such luck")
            return np.int32(info.idx_in_epoch)

        # In the user's own thread an interrupt comes out at once.
        return fn.external_source(source=source, batch=False, parallel=not issubclass(error, Exception))

    with DALIGenericIterator(failing(), ["x"]) as it:
        results = []
        for _ in range(5):
            try:
                results.append(next(it)["x"].tolist())
            except error as e:
                results.append(str(e))
        assert results == [[0, 1], "no such luck", [4, 5], "no such luck", [8, 9]]
        with pytest.raises(StopIteration):
            next(it)
        it.reset()
        assert [b["x"].tolist() for b in it] == [[2 * i, 2 * i + 1] for i in range(5)]


def test_failing_pipeline_stays_in_step_with_others(files):
    def numbers(fails):
        def source(info):
            if fails and info.iteration == 1:
                raise LookupError("gone")
            return np.int32(info.iteration)

        return pipeline_def(lambda: fn.external_source(source=source, batch=False))(batch_size=1)

    with DALIGenericIterator([numbers(False), numbers(True)], ["x"], size=8) as it:
        assert next(it)["x"].tolist() == [[0], [0]]
        with pytest.raises(LookupError, match="gone"):
            next(it)
        assert [b["x"].tolist() for b in it] == [[[2], [2]], [[3], [3]]]


def test_data_end_with_counted_epoch_or_before(files):
    def ending(n):
        def source(info):
            if info.iteration == n:
                raise StopIteration
            return np.int32(info.idx_in_epoch + 10 * info.epoch_idx)

        return pipeline_def(lambda: fn.external_source(source=source, batch=False))(batch_size=2)

    for n in (3, 2):  # of the three batches of an epoch
        with DALIGenericIterator(ending(n), ["x"], size=6) as it:
            for epoch in range(3):
                assert [b["x"].tolist() for b in it] == [[10 * epoch + 2 * i, 10 * epoch + 2 * i + 1] for i in range(n)]


INTERRUPTED = """
import signal, sys, time
import numpy as np
from jaxdali import fn, pipeline_def
from jaxdali.plugin.jax import DALIGenericIterator

signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background of a shell is born deaf to it

@pipeline_def(batch_size=1, prefetch_queue_depth=1)
def slow():
    def source(info):
        if info.iteration == 3:  # as far ahead of the third batch as a source is called
            time.sleep({nap})
        return np.int32(info.iteration)
    return fn.external_source(source=source, batch=False)

it = DALIGenericIterator(slow(), ["x"])
next(it), next(it)
try:
    print("waiting", flush=True)
    next(it)
except KeyboardInterrupt:
    if not {catch}:
        raise
    print([next(it)["x"].item() for _ in range(3)])
"""


@pytest.mark.parametrize("catch", [True, False], ids=["caught", "not caught"])
def test_ctrl_c_in_next(catch):
    """A KeyboardInterrupt that is caught costs no batch. Otherwise the process ends, although the source is busy for
    long.
    """
    script = INTERRUPTED.format(nap=1.0 if catch else 60, catch=catch)
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=20)  # 2 s, and what the interpreter needs
    finally:
        process.kill()
    if catch:
        assert out == "[2, 3, 4]\n", errors
        assert process.returncode == 0
    else:
        assert errors.rstrip().endswith("KeyboardInterrupt")
        assert process.returncode in (1, 130, -signal.SIGINT)
