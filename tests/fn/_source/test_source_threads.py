"""Threads and JAX settings of sources, how far ahead they are called, and the end of sources that don't return."""

import functools
import gc
import logging
import os
import pathlib
import queue
import sqlite3
import subprocess
import sys
import threading
import time

import counts
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdali
from jaxdali import Pipeline, fn, pipeline_def, types
from jaxdali._runner import shutdown
from jaxdali.fn._source import copies
from jaxdali.plugin.jax import DALIGenericIterator, data_iterator


def pipeline(*args, batch_size=2, depth=2, **kwargs):
    return pipeline_def(lambda: fn.external_source(*args, **kwargs))(
        batch_size=batch_size, num_threads=1, prefetch_queue_depth=depth
    )


class Calls:
    """Gives batches without end; notes the thread and the number of each call."""

    def __init__(self):
        self.threads = []

    def __call__(self):
        self.threads.append(threading.current_thread())
        return np.full(2, len(self.threads))

    @property
    def count(self):
        return len(self.threads)


# The numbers of calls are DALI 2.4's: run() with prefetch_queue_depth=3, and its iterator.
def test_run_calls_sources_ahead_as_dali():
    calls = Calls()
    pipe = pipeline(calls, depth=3)
    call_counts = []
    for _ in range(4):
        pipe.run()
        call_counts.append(calls.count)
    assert call_counts == [3, 4, 5, 6]
    assert set(calls.threads) == {threading.current_thread()}
    second_thread = threading.Thread(target=pipe.run)
    second_thread.start()
    second_thread.join()
    assert calls.threads[6:] == [second_thread]
    pipe.close()


def test_next_calls_sources_ahead_as_dali():
    calls = Calls()
    with DALIGenericIterator(pipeline(calls, depth=3), ["x"]) as it:
        call_counts = [calls.count]
        for _ in range(3):
            next(it)
            call_counts.append(calls.count)
    assert call_counts == [4, 4, 5, 6]
    assert set(calls.threads) == {threading.current_thread()}


def test_iter_setup_is_called_by_next():
    threads = []

    class Fed(Pipeline):
        def define_graph(self):
            self.x = fn.external_source()
            return self.x

        def iter_setup(self):
            threads.append(threading.current_thread())
            self.feed_input(self.x, np.full(1, len(threads)))

    with DALIGenericIterator(Fed(1, 1, prefetch_queue_depth=2), ["x"]) as it:
        assert [next(it)["x"].item() for _ in range(3)] == [1, 2, 3]
    assert set(threads) == {threading.current_thread()}


def test_prepare_first_batch_false_calls_no_source():
    for parallel in (False, True):
        calls = Calls()
        with DALIGenericIterator(
            pipeline(calls, parallel=parallel, batch=True), ["x"], prepare_first_batch=False
        ) as it:
            assert calls.count == 0
            assert next(it)["x"].tolist() == [1, 1]


def test_sources_run_under_their_threads_settings():
    connection = sqlite3.connect(":memory:")
    dtypes = []

    def source():
        connection.execute("select 1")  # refuses other threads
        mixed = jnp.ones(2, jnp.float32) * jnp.ones(2, jnp.int32)
        dtypes.append((jnp.array([3.0]).dtype.name, mixed.dtype.name))
        return np.zeros(2)

    pipe = pipeline(source, depth=1)
    with jax.numpy_dtype_promotion("standard"), DALIGenericIterator(pipeline(source, depth=1), ["x"]) as it:
        pipe.run()
        next(it)
        assert set(dtypes) == {("float32", "float32")}
        with jax.enable_x64(True):
            dtypes.clear()
            pipe.run()
            next(it)
            assert [s[0] for s in dtypes] == ["float64"] * 2
    pipe.close()
    connection.close()


def test_parallel_sources_run_under_the_builders_settings():
    """The threads are those of the pipeline, under the JAX settings of the thread that built it."""
    calls = []

    def source(info):
        calls.append((threading.current_thread(), jnp.array([3.0]).dtype.name))
        return np.int32(info.idx_in_epoch)

    with jax.enable_x64(True):
        pipe = pipeline(source, batch=False, parallel=True, dtype=None)
        pipe.build()  # looks at one sample here
    first = len(calls)
    assert [pipe.run()[0].as_array().tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    assert threading.current_thread() not in {thread for thread, _ in calls[first:]}
    assert {dtype for _, dtype in calls} == {"float64"}
    pipe.close()


@pytest.mark.parametrize("number", [1, 2, 4])
def test_workers_call_a_source_of_samples_concurrently(number):
    barrier = threading.Barrier(number)

    def source(info):
        if info.iteration == 2:
            raise StopIteration
        if info.iteration == 1:  # the very first sample is looked at before
            barrier.wait(20)
        return np.int32(info.idx_in_epoch)

    pipe = pipeline_def(lambda: fn.external_source(source, batch=False, parallel=True))(
        batch_size=4, py_num_workers=number
    )
    assert [pipe.run()[0].as_array().tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    pipe.close()


class Permutes:
    """A callable that shuffles anew when the epoch changes, as that of DALI's tutorial on parallel sources."""

    def __init__(self, samples=23, batch_size=4, pause=0.0005):
        self.samples, self.batches, self.pause = samples, samples // batch_size, pause
        self.epoch, self.order = None, np.arange(samples)

    def __call__(self, info):
        if info.iteration >= self.batches:
            raise StopIteration
        if self.epoch != info.epoch_idx:
            self.epoch = info.epoch_idx
            time.sleep(self.pause)  # another thread would take the old order here
            self.order = np.random.default_rng(self.epoch).permutation(self.samples)
        return np.int32(self.order[info.idx_in_epoch])


class Locked(Permutes):
    """A `Permutes` that can't be copied."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class OnlyAMethod(Permutes):
    __call__ = None  # pyright: ignore[reportAssignmentType]

    def sample(self, info):
        return Permutes.__call__(self, info)


_SHARED = Permutes()


def function(info):
    return _SHARED(info)


class Shuffles(Permutes):
    """A `Permutes` that makes each order from the one before, so that a copy that misses an epoch is out of step."""

    def __init__(self):
        super().__init__()
        self.random = np.random.default_rng(7)

    def __call__(self, info):
        if info.iteration >= self.batches:
            raise StopIteration
        if self.epoch != info.epoch_idx:
            self.epoch = info.epoch_idx
            self.random.shuffle(self.order)
        return np.int32(self.order[info.idx_in_epoch])


@pytest.mark.parametrize("workers", [2, 3, 4, 9])
def test_copies_of_a_source_stay_lockstep(workers):
    random, order = np.random.default_rng(7), np.arange(23)
    definition = pipeline_def(lambda: fn.external_source(Shuffles(), batch=False, parallel=True))
    pipe = definition(batch_size=4, num_threads=1, py_num_workers=workers)
    for epoch in range(12):
        random.shuffle(order)
        assert np.ravel([pipe.run()[0].as_array() for _ in range(5)]).tolist() == order[:20].tolist(), epoch
        with pytest.raises(StopIteration):
            pipe.run()
        pipe.reset()
    pipe.close()


@pytest.mark.parametrize(
    "source", [Permutes(), Locked(), OnlyAMethod().sample, functools.partial(Permutes()), function]
)
def test_workers_and_a_source_with_state(source):
    pipe = pipeline_def(lambda: fn.external_source(source, batch=False, parallel=True))(
        batch_size=4, num_threads=1, py_num_workers=4
    )
    for epoch in range(12):
        batches = [pipe.run()[0].as_array().tolist() for _ in range(5)]
        assert np.ravel(batches).tolist() == np.random.default_rng(epoch).permutation(23)[:20].tolist(), epoch
        with pytest.raises(StopIteration):
            pipe.run()
        pipe.reset()
    pipe.close()


last_samples = queue.SimpleQueue()  # not in the source, so that each worker has a copy of it


class ReusesMemory:
    """Returns the same array for each sample. Sample 1 of a batch waits until the other worker has begun sample 3."""

    def __init__(self):
        self.array = np.zeros((1, 8200), np.int32)

    def __call__(self, info):
        if info.idx_in_batch == 1:
            last_samples.get(timeout=60)
        self.array[...] = info.idx_in_epoch
        if info.idx_in_batch == 3:
            last_samples.put(info)
        return self.array


@pytest.mark.parametrize("dtype", [None, types.INT32])  # without a dtype the first sample is looked at before
def test_samples_may_reuse_memory_with_workers(dtype):
    pipe = pipeline_def(
        lambda: fn.external_source(ReusesMemory(), batch=False, parallel=True, dtype=dtype, ndim=dtype and 2)
    )(batch_size=4, num_threads=1, py_num_workers=2)
    for i in range(3):
        samples = pipe.run()[0].as_array()
        np.testing.assert_array_equal(samples[:, 0], np.repeat(np.arange(4 * i, 4 * i + 4)[:, None], 8200, axis=1))
    pipe.close()


def test_functions_need_no_pickle():
    @jaxdali.pickling.pickle_by_value
    def source(info):
        return np.int32(info.idx_in_epoch)

    pipe = pipeline_def(lambda: fn.external_source(source, batch=False, parallel=True))(
        batch_size=4, num_threads=1, py_num_workers=2, py_start_method="spawn"
    )
    pipe.start_py_workers()
    assert pipe.run()[0].as_array().tolist() == [0, 1, 2, 3]
    pipe.close()
    for value in (int, len, functools.partial(source), 3):
        with pytest.raises(TypeError, match="only functions"):
            jaxdali.pickling.pickle_by_value(value)


def test_workers_call_each_shard_its_own_source():
    """A definition that makes a callable of its shard makes one for each shard."""

    @data_iterator(output_map=["x"], devices=jax.devices()[:2], size=32)
    def iterator(num_shards=1, shard_id=0):
        return fn.external_source(
            lambda info: np.int32([100 * shard_id + info.idx_in_epoch]), batch=False, parallel=True
        )

    with iterator(batch_size=8, py_num_workers=3) as it:
        first = np.arange(4)
        for i in range(2):
            np.testing.assert_array_equal(np.ravel(next(it)["x"]), [*(first + 4 * i), *(first + 4 * i + 100)])


class StartsAgain:
    """The iterator of DALI's documents, which restarts before it raises StopIteration."""

    def __init__(self):
        self.i = 0

    def __iter__(self):
        self.i = 0
        return self

    def __next__(self):
        if self.i == 3:
            self.__iter__()
            raise StopIteration
        self.i += 1
        return np.full(2, self.i)


def test_iterators_may_restart_themselves():
    pipe = pipeline(StartsAgain())
    epochs = []
    for _ in range(3):
        epochs.append([int(pipe.run()[0].as_array()[0]) for _ in range(3)])
        with pytest.raises(StopIteration):
            pipe.run()
        pipe.reset()
    assert epochs == [[1, 2, 3]] * 3
    pipe.close()
    with DALIGenericIterator(pipeline(StartsAgain()), ["x"], auto_reset=True) as it:
        assert [[int(b["x"][0]) for b in it] for _ in range(3)] == [[1, 2, 3]] * 3


class LockedIterator(StartsAgain):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class Counts:
    """A callable whose results depend on its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, i):
        if i == 3:
            self.calls = 0
            raise StopIteration
        self.calls += 1
        return np.full(2, self.calls)

    def generate(self):
        yield from (self(i) for i in range(3))
        self.calls = 0


class LockedCounts(Counts):
    def __init__(self):
        super().__init__()
        self.locks = [threading.Lock(), {"condition": threading.Condition()}]


class CountsSamples(Counts):
    def __call__(self, info):
        return super().__call__(info.iteration)[0]


def epochs_in_turn(pipes, number):
    """Numbers of the batches of each epoch and pipeline; the pipelines are read in turn."""
    epochs = []
    for _ in range(number):
        rows = [[int(pipe.run()[0].as_array()[0]) for pipe in pipes] for _ in range(3)]
        epochs.append([list(row) for row in zip(*rows)])
        for pipe in pipes:
            with pytest.raises(StopIteration):
                pipe.run()
            pipe.reset()
    return epochs


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (StartsAgain(), {"cycle": "raise"}),
        (LockedIterator(), {"cycle": "raise"}),
        (Counts().generate, {"cycle": "raise"}),
        (Counts(), {"batch": True}),
        (functools.partial(LockedCounts()), {"batch": True}),
        (LockedCounts().__call__, {"batch": True}),
        (CountsSamples(), {"batch": False, "batch_size": 1}),
    ],
)
def test_source_of_several_parallel_pipelines(source, options):
    """As in DALI, each pipeline reads a copy, and the object itself is left as it was."""
    pipes = [pipeline(source, parallel=True, **options) for _ in range(2)]
    assert epochs_in_turn(pipes, 2) == [[[1, 2, 3]] * 2] * 2
    for pipe in pipes:
        pipe.close()
    later = pipeline(source, parallel=True, **options)
    assert epochs_in_turn([later], 1) == [[[1, 2, 3]]]
    later.close()


def test_used_iterator_of_several_parallel_pipelines():
    numbers = iter([np.full(2, i) for i in range(4)])
    next(numbers)
    pipes = [pipeline(numbers, parallel=True) for _ in range(2)]
    assert [[int(pipe.run()[0].as_array()[0]) for pipe in pipes] for _ in range(3)] == [[1, 1], [2, 2], [3, 3]]
    assert next(numbers)[0] == 1
    for pipe in pipes:
        pipe.close()


def test_generator_of_several_parallel_pipelines():
    """A generator can't be copied."""
    numbers = (np.full(2, i) for i in range(9))
    first, second = (pipeline(numbers, parallel=True) for _ in range(2))
    first.build()
    with pytest.warns(
        UserWarning, match="another external_source has the same source.*generator.*pass the generator function"
    ):
        second.build()
    first.close()
    second.close()
    pipeline(numbers, parallel=True).build()  # nobody else reads it now


class Fed:
    """An iterator that a thread works for."""

    def __init__(self):
        self.queue = queue.Queue(2)
        threading.Thread(target=lambda: [self.queue.put(np.full(2, i)) for i in range(3)], daemon=True).start()

    def __iter__(self):
        return self

    def __next__(self):
        return self.queue.get(timeout=20)


def test_parallel_source_with_a_thread():
    """A copy has no thread, so it would wait without end."""
    pipe = pipeline(Fed(), parallel=True, depth=1)
    assert [int(pipe.run()[0].as_array()[0]) for _ in range(2)] == [0, 1]
    pipe.close()


class ChoosesState(StartsAgain):
    """Its thread and its file are not part of a copy."""

    def __init__(self, file):
        super().__init__()
        self.file = file
        self.thread = threading.Thread()
        self.queue = queue.Queue()

    def __getstate__(self):
        return {"i": self.i}


def test_shared_source_whose_state_has_no_thread(tmp_path):
    with open(tmp_path / "rows", "wb") as file:
        source = ChoosesState(file)
        pipes = [pipeline(source, parallel=True, cycle="raise") for _ in range(2)]
        assert epochs_in_turn(pipes, 2) == [[[1, 2, 3]] * 2] * 2
    for pipe in pipes:
        pipe.close()


class FileOfBytes:
    def __init__(self, file):
        self.file = file


class IteratesOverFile(FileOfBytes):
    def __iter__(self):
        self.file.seek(0)
        while row := self.file.read(2):
            yield np.frombuffer(row, np.uint8)


class CallsFile(FileOfBytes):
    def __call__(self, info):
        self.file.seek(info.idx_in_epoch)
        return np.frombuffer(self.file.read(1), np.uint8)


@pytest.fixture
def file_of_bytes(tmp_path):
    (tmp_path / "rows").write_bytes(bytes(range(8)))
    with open(tmp_path / "rows", "rb") as file:
        yield file


@pytest.mark.parametrize("source_of", [IteratesOverFile, lambda file: IteratesOverFile(file).__iter__])
def test_file_of_several_parallel_pipelines(source_of, file_of_bytes):
    source = source_of(file_of_bytes)
    first, second = (pipeline(source, parallel=True, cycle="raise") for _ in range(2))
    first.build()
    with pytest.warns(UserWarning, match="has the same source.*it has an open file.*each gets a part"):
        second.build()
    first.close()
    second.close()


def test_file_of_several_workers(file_of_bytes):
    source = CallsFile(file_of_bytes)
    definition = pipeline_def(lambda: fn.external_source(source, parallel=True, batch=False))
    with pytest.warns(UserWarning, match="2 workers share this CallsFile.*open it in __setstate__"):
        definition(batch_size=2, num_threads=1, py_num_workers=2).build()
    definition(batch_size=2, num_threads=1, py_num_workers=1).build()


def test_lists_in_copies_of_parallel_sources():
    """Lists of values that can't change are copied as a whole, and others with what they have."""
    constant = [("a.jpg", 1), (pathlib.Path("b.jpg"), (2.0, None, np.int64(3)))]
    source = [constant, [[1, 2]], {"key": 1}, {"key": [1]}, {1, 2}, [np.arange(2)], constant]
    copied = copies.Copies(functools.partial(Counts(), source)).first.args[0]
    assert repr(copied) == repr(source)
    assert all(x is not y for x, y in zip(copied, source))
    assert copied[0] is copied[-1]
    assert copied[0][1] is constant[1]
    assert copied[1][0] is not source[1][0]
    assert copied[3]["key"] is not source[3]["key"]
    assert copied[5][0] is not source[5][0]


def test_memory_in_copies_of_parallel_sources(tmp_path):
    """Data that are read-only or mapped are shared; other arrays may be changed by the source."""

    class Rows:
        def __init__(self):
            np.save(tmp_path / "rows.npy", np.arange(8).reshape(4, 2))
            self.rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
            self.fixed = np.arange(4)
            self.fixed.setflags(write=False)
            self.order = np.arange(4)
            self.others = [np, jax.devices()[0], jnp.arange(3), {"lock": threading.RLock()}]
            self.arrays = []

        def __iter__(self):
            self.arrays.append((self.rows, self.fixed, self.order))
            return iter(self.rows)

    class ByReference(list):
        def __deepcopy__(self, memo):
            return self

    source = Rows()
    source.arrays = ByReference()
    pipe = pipeline(source, parallel=True)
    assert pipe.run()[0].as_array().tolist() == [0, 1]
    pipe.close()
    ((rows, fixed, order),) = source.arrays
    assert rows is source.rows
    assert fixed is source.fixed
    assert order is not source.order


class Resumed:
    """An iterator with a state."""

    def __init__(self):
        self.i = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.i += 1
        return np.full(2, self.i)

    def get_state(self):
        return self.i

    def set_state(self, state):
        self.i = state


def test_checkpoint_of_a_shared_iterator():
    source, its = Resumed(), list[DALIGenericIterator]()
    for _ in range(2):
        its.append(DALIGenericIterator(pipeline(source, parallel=True), ["x"], prepare_first_batch=False))
    first_values = [[int(next(it)["x"][0]) for it in its] for _ in range(3)]
    assert first_values == [[1, 1], [2, 2], [3, 3]]
    state = its[0].get_state()
    with DALIGenericIterator(pipeline(source, parallel=True), ["x"], prepare_first_batch=False) as resumed:
        resumed.set_state(state)
        assert int(next(resumed)["x"][0]) == 4
    assert [int(next(it)["x"][0]) for it in its] == [4, 4]
    for it in its:
        it.close()


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
def test_iterators_restarting_themselves_stay_lockstep(first, second):
    with Pipeline(batch_size=2, num_threads=1) as pipe:
        pipe.set_outputs(*(fn.external_source(StartsAgain(), parallel=parallel) for parallel in (first, second)))
    for _ in range(3):
        assert [[int(x.as_array()[0]) for x in pipe.run()] for _ in range(3)] == [[1, 1], [2, 2], [3, 3]]
        with pytest.raises(StopIteration):
            pipe.run()
        pipe.reset()
    pipe.close()


@pytest.mark.parametrize("parallel", [False, True])
def test_ends_lose_nothing_of_other_sources(parallel):
    """Nor are items lost that were taken ahead: the end of a parallel source shows later."""

    def until_2(i):
        if i == 2:
            raise StopIteration
        return np.full(2, i)

    def define():
        numbers = (np.full(2, i) for i in range(100))
        return fn.external_source(numbers), fn.external_source(until_2, parallel=parallel, batch=True)

    pipe = pipeline_def(define)(batch_size=2, prefetch_queue_depth=3)
    for epoch in range(3):
        for i in range(2):
            assert [int(x.as_array()[0]) for x in pipe.run()] == [2 * epoch + i, i]
        with pytest.raises(StopIteration):
            pipe.run()
        pipe.reset()
    pipe.close()


def test_errors_keep_other_sources_lockstep():
    def failing(i):
        if i == 1:
            raise LookupError("gone")
        return np.full(2, i)

    def define():
        return fn.external_source(failing), fn.external_source(np.full(2, i) for i in range(9))

    pipe = pipeline_def(define)(batch_size=2)
    assert [int(x.as_array()[0]) for x in pipe.run()] == [0, 0]
    with pytest.raises(LookupError):
        pipe.run()
    assert [int(x.as_array()[0]) for x in pipe.run()] == [2, 2]
    pipe.close()


def test_interrupts_in_sources_lose_nothing():
    interrupt = [False]

    def source(info):
        if interrupt[0] and info.idx_in_batch == 1:
            interrupt[0] = False
            raise KeyboardInterrupt
        return np.int32(info.idx_in_epoch)

    def define():
        return fn.external_source(np.arange(2 * i, 2 * i + 2) for i in range(9)), fn.external_source(
            source, batch=False
        )

    pipe = pipeline_def(define)(batch_size=2, prefetch_queue_depth=2)
    pipe.run()
    interrupt[0] = True
    with pytest.raises(KeyboardInterrupt):
        pipe.run()
    assert [[x.as_array().tolist() for x in pipe.run()] for _ in range(2)] == [[[2, 3]] * 2, [[4, 5]] * 2]
    pipe.close()


def test_threads_share_batches_of_an_iterator():
    with DALIGenericIterator(pipeline(lambda i: np.full(2, i)), ["x"]) as it:
        values = []

        def take():
            for _ in range(50):
                values.append(int(next(it)["x"][0]))

        threads = [threading.Thread(target=take) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert sorted(values) == list(range(200))


# --- sources that don't return --------------------------------------------------------------------------------------


def test_close_names_a_source_without_return(monkeypatch, caplog, own_threads):
    monkeypatch.setattr(shutdown, "PATIENCE", 0.1)
    data = queue.SimpleQueue()
    data.put(np.zeros(2))
    waits = threading.Event()

    def source(i):
        if i == 1:
            waits.set()
        return data.get()

    with caplog.at_level(logging.WARNING, "jaxdali"):
        it = DALIGenericIterator(pipeline(source, parallel=True, batch=True), ["x"])
        assert waits.wait(10)
        assert own_threads("jaxdali-produce")
        it.close()
    assert "external_source (created at" in caplog.text
    assert os.path.basename(__file__) in caplog.text
    data.put(np.zeros(2))
    assert own_threads.ended()  # by themselves
    with pytest.raises(RuntimeError, match="closed"):
        next(it)


def test_collected_iterators_do_not_wait_for_locks(monkeypatch):
    monkeypatch.setattr(shutdown, "COLLECTED_PATIENCE", 0.1)
    lock, waits = threading.Lock(), threading.Event()

    def source(i):
        if i == 1:
            waits.set()
        with lock:
            return np.zeros(2)

    it = DALIGenericIterator(pipeline(source, parallel=True, batch=True, depth=1), ["x"], prepare_first_batch=False)
    next(it)
    with lock:
        waits.wait(10)
        it.itself = it
        del it
        gc.collect()


FORK = """
import os, sys, warnings
import numpy as np
from jaxdali import fn, pipeline_def
from jaxdali.plugin.jax import DALIGenericIterator, data_iterator

warnings.simplefilter("ignore")
pipe = pipeline_def(lambda: fn.external_source(lambda: np.zeros(2)))(batch_size=2)
with_runs = pipeline_def(lambda: fn.external_source(lambda: np.zeros(2)))(batch_size=2)
it = DALIGenericIterator(pipe, ["x"])
next(it), with_runs.run()
if child := os.fork():
    status = os.waitpid(child, 0)[1]
    next(it), with_runs.run()
    sys.exit(os.waitstatus_to_exitcode(status))
for call in (it.__next__, with_runs.run, it.reset, it.get_state):
    try:
        call()
        sys.exit(1)
    except RuntimeError as e:
        if "fork" not in str(e):
            raise
it.close()
del it, with_runs
sys.exit(7)
"""


def test_a_forked_child_is_told_so():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60)
    assert done.returncode == 7, done.stderr


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads as Linux does")
def test_failed_opening_leaks_no_threads(tmp_path):
    def define(path):
        return fn.readers.file(files=[str(path)])[0]

    good = tmp_path / "good"
    good.write_bytes(b"x")
    factory = pipeline_def(define, batch_size=1, num_threads=8)
    with pytest.raises(RuntimeError):
        pipeline_def(
            lambda: fn.readers.file(file_root=str(tmp_path / "missing"))[0], batch_size=1, num_threads=8
        )().build()
    new_threads = counts.kernel_threads()
    for _ in range(5):
        with pytest.raises(RuntimeError, match="missing"):
            pipeline_def(
                lambda: fn.readers.file(file_root=str(tmp_path / "missing"))[0], batch_size=1, num_threads=8
            )().build()
        bad = pipeline_def(
            lambda: fn.readers.file(file_root=str(tmp_path / "missing"))[0], batch_size=1, num_threads=8
        )()
        with pytest.raises(RuntimeError, match="missing"), pytest.warns(UserWarning, match="reader_name"):
            DALIGenericIterator([factory(good), bad], ["x"], size=2)
    assert not new_threads()


def test_too_long_queues_are_refused():
    for depth in (2**31 - 1, {"cpu_size": 2, "gpu_size": 2**31 - 1}):
        with pytest.raises(ValueError, match="prefetch_queue_depth must be a whole number in 1 "):
            pipeline(lambda: np.zeros(2), depth=depth).build()
