"""The threads of an iterator: how they end, and how many batches they make ahead."""

import concurrent.futures
import gc
import threading
import types

import numpy as np
import pytest

from jaxdali import fn
from jaxdali._batch.batch import InFlightBatch
from jaxdali._batch.executor import Executor
from jaxdali._batch.meter import Meter
from jaxdali._core.ragged import ALIGNMENT, rounded_up
from jaxdali._program.sharding import Shards
from jaxdali._runner import shutdown
from jaxdali._runner.prefetch import Prefetch
from jaxdali._runner.shutdown import close_aside
from jaxdali.plugin.jax import data_iterator


def test_garbage_collected_in_a_producing_thread(own_threads):
    """Two iterators are garbage-collected in a thread that makes batches; the thread must not wait for itself."""

    def make(source):
        @data_iterator(output_map=["x"])
        def define():
            return fn.external_source(source=source, batch=False)

        return define(batch_size=2)

    dropped_iterators = [make(lambda: np.zeros(3, np.uint8))]
    dropped_iterators[0].itself = dropped_iterators[0]  # only the garbage collector frees it
    dropped, collected = threading.Event(), threading.Event()

    def collect():
        if dropped.is_set() and not collected.is_set():
            gc.collect()
            collected.set()
        return np.zeros(3, np.uint8)

    iterator = make(collect)
    iterator.itself = iterator
    next(iterator)
    dropped_iterators.clear()
    dropped.set()
    next(iterator)
    del iterator
    assert collected.wait(10)
    own_threads.end()


def test_collected_while_threads_are_listed(own_threads):
    """`threading.enumerate` allocates under a lock that each thread needs to end."""
    iterator = data_iterator(lambda: fn.random.uniform(shape=[2]), ["x"])(batch_size=1, num_threads=1)
    next(iterator)
    dropped_iterators = [iterator]
    del iterator
    returned = threading.Event()

    def collect():
        with threading._active_limbo_lock:
            dropped_iterators.clear()
            gc.collect()
        returned.set()

    threading.Thread(target=collect, daemon=True).start()
    assert returned.wait(20)
    own_threads.end()


def test_collected_in_a_thread_of_a_source():
    """A producing thread waits for the threads of readers. So none of them may wait for a producing thread."""
    closed_in = []
    done = threading.Event()

    def close():
        closed_in.append(threading.current_thread().name)
        done.set()

    thread = threading.Thread(target=close_aside, args=(close,), name="jaxdali-reader_0")
    thread.start()
    thread.join()
    assert done.wait(10)
    assert closed_in == ["jaxdali-close"]


def test_close_while_another_thread_parks(monkeypatch):
    """A closed runner stays closed. Without its threads, `get` would wait without end."""

    @data_iterator(output_map=["x"])
    def define():
        return fn.external_source(source=lambda: np.zeros(3, np.uint8), batch=False)

    iterator = define(batch_size=2)
    next(iterator)
    runner = iterator._stream.lease.runners[0]
    wait_for = shutdown.wait_for

    def close_while_waiting(*args, **kwargs):
        monkeypatch.setattr(shutdown, "wait_for", wait_for)
        thread = threading.Thread(target=runner.close)
        thread.start()
        thread.join()
        wait_for(*args, **kwargs)

    monkeypatch.setattr(shutdown, "wait_for", close_while_waiting)
    runner.park()
    errors = []

    def take():
        with pytest.raises(RuntimeError) as error:
            runner.get()
        errors.append(str(error.value))

    taker = threading.Thread(target=take, daemon=True)
    taker.start()
    taker.join(10)
    assert errors == [shutdown.CLOSED_ITERATOR]


@pytest.mark.parametrize(("max_dispatched", "has_reader_thread"), [(1, False), (2, False), (2, True)])
def test_reading_overlaps_with_an_accelerator(max_dispatched, has_reader_thread):
    """While a device computes, the next batches are dispatched, one more is read and prepared, and another one is read
    if a thread of its own reads; and no more, so that memory stays bounded.
    """
    read, launched, consumed = [], [], []
    computed = [threading.Event() for _ in range(6)]
    changed = threading.Condition()

    def note(batches, k):
        with changed:
            batches.append(k)
            changed.notify_all()

    class Reader:
        begins_in_caller = False

        def read(self, state, asked):
            assert threading.current_thread().name == ("jaxdali-read" if has_reader_thread else "jaxdali-produce")
            note(read, state["k"])
            return types.SimpleNamespace(k=state["k"], after={"k": state["k"] + 1})

    class Device:
        """An executor whose batches are finished when the test sets their event in `computed`."""

        sources, reader, resources = {}, Reader(), types.SimpleNamespace(meter=Meter(False), called_node=None)

        def __init__(self):
            self.max_dispatched, self.uses_reader_thread = max_dispatched, has_reader_thread

        def build(self):
            pass

        def cancel(self):
            pass

        def prepare(self, work):
            return work

        def dispatch(self, work):
            note(launched, work.k)
            batch = InFlightBatch.__new__(InFlightBatch)
            batch.k = work.k
            return batch

        def check(self, work):
            assert computed[work.k].wait(10)
            return work.k

        def tuner(self, depth):
            return None

        def note_taken(self, batch):
            consumed.append(batch)

    runner = Prefetch(Device(), {"k": 0}, depth=10, ahead=10)
    runner.begin_batches()
    for done in range(4):
        with changed:
            assert changed.wait_for(lambda done=done: len(read) == done + max_dispatched + 1 + has_reader_thread, 10)
        assert len(launched) == done + max_dispatched
        computed[done].set()
        assert runner.get() == done
    for event in computed:
        event.set()
    runner.close()


@pytest.mark.parametrize("accelerator", [True, False])
def test_two_batches_are_dispatched_at_once(monkeypatch, accelerator):
    """With two, an accelerator never waits for the host, and CPU threads not for the slowest image of a batch."""
    launched, computed = threading.Semaphore(0), threading.Event()
    dispatch, check = Executor.dispatch, Executor.check

    def counted(self, work):
        batch = dispatch(self, work)
        launched.release()
        return batch

    def held(self, work):
        assert computed.wait(10)
        return check(self, work)

    monkeypatch.setattr(Shards, "accelerator", property(lambda self: accelerator))
    monkeypatch.setattr(Executor, "dispatch", counted)
    monkeypatch.setattr(Executor, "check", held)

    @data_iterator(output_map=["x"], prepare_first_batch=False)
    def define():
        return fn.external_source(source=lambda i: np.float32(i.idx_in_epoch), batch=False) + 1.0

    with define(batch_size=2, prefetch_queue_depth=5) as it, concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, it)
        try:
            for _ in range(2):
                assert launched.acquire(timeout=10)
            assert not launched.acquire(timeout=0.2)
        finally:
            computed.set()
        np.testing.assert_array_equal(first.result()["x"], [1, 2])


def test_rounded_sizes_of_buffers():
    """Sizes are rounded up by at most an eighth, to few sizes, so that few programs are compiled."""
    sizes = [rounded_up(n) for n in range(1 << 16, 1 << 17)]
    assert all(
        n <= size <= n * 9 / 8 and size % ALIGNMENT == 0 for n, size in zip(range(1 << 16, 1 << 17), sizes, strict=True)
    )
    assert len(set(sizes)) == 9
    assert [rounded_up(n) for n in (0, 1, 64, 65)] == [0, 64, 64, 128]
