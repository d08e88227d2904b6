"""Sources that fail: all sources of a pipeline continue with the same batch."""

import contextlib
import dataclasses
import json

import jax
import numpy as np
import pytest
from map_style import Ends

from jaxdali import Pipeline, fn, pipeline_def
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import data_iterator


class Stop(BaseException):
    """No Exception."""


class Wordless(Exception):
    """It has no text."""

    def __str__(self):
        raise AttributeError("no text")


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    """It takes neither a note nor other arguments."""

    number: int = 0


class Numbers:
    """The numbers 0 to `length` - 1. Item `failing` raises an error the first time."""

    def __init__(self, length, error=None, failing=9):
        self.length, self.error, self.failing = length, error, failing

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        if i == self.failing and self.error is not None:
            error, self.error = self.error, None
            raise error()
        return np.int32(i)


def epochs(it, number):
    """The valid samples of the first output in each batch of some epochs, or the name of the error; checks that the
    other outputs agree.
    """
    lists = []
    for _ in range(number):
        lists.append([])
        while True:
            try:
                batch = next(it)
            except StopIteration:
                break
            except BaseException as e:
                lists[-1].append(type(e).__name__)
                continue
            x, y, mask = (np.asarray(batch[name]) for name in ("x", "y", "mask"))
            assert x.tolist() == y.tolist()
            lists[-1].append(x[mask].tolist())
        it.reset()
    return lists


COMPLETE = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15], [16, 17]]


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize("error", [ValueError, Stop, SystemExit, Wordless])
def test_sources_stay_in_step_after_errors(error, position, depth):
    """A failed batch counts for all readers and for the epoch, whatever the error is."""

    def define(error):
        x, y = (fn.readers.source(Numbers(18, error if k == position else None), name=f"r{k}") for k in range(2))
        return x, y

    make = data_iterator(
        define, ["x", "y"], reader_name="r0", mask_name="mask", last_batch_policy=LastBatchPolicy.PARTIAL
    )
    options = {"batch_size": 4, "prefetch_queue_depth": depth, "num_threads": 1}
    with make(error, **options) as it:
        failed, complete = epochs(it, 2)
        assert [x for x in failed if isinstance(x, list)] == [COMPLETE[i] for i in (0, 1, 3, 4)]
        assert isinstance(failed[2], str)
        assert complete == COMPLETE
    with make(error, **options) as it, make(None, **options) as resumed:
        for _ in range(3):
            with contextlib.suppress(BaseException):  # raised by the third call
                next(it)
        resumed.set_state(json.loads(json.dumps(it.get_state())))
        assert epochs(resumed, 2) == [COMPLETE[3:], COMPLETE]


def test_killed_processes_keep_readers_in_step():
    @data_iterator(output_map=["x", "y"], reader_name="x")
    def define():
        return fn.readers.source(Ends(), name="x", num_workers=1), fn.readers.source(Numbers(8), name="y")

    with define(batch_size=2, num_threads=1) as it:
        assert [next(it)["y"].tolist() for _ in range(2)] == [[0, 1], [2, 3]]
        with pytest.raises(RuntimeError, match="SIGKILL"):
            next(it)
        batch = next(it)
        assert batch["x"].tolist() == batch["y"].tolist() == [6, 7]
        with pytest.raises(StopIteration):
            next(it)


def test_errors_without_notes_cost_one_batch():
    def failing(i):
        if i == 1:
            raise Frozen
        return np.full(2, i, np.int32)

    @data_iterator(output_map=["x", "y"])
    def define():
        return fn.external_source(failing), fn.external_source(np.full(2, i, np.int32) for i in range(4))

    with define(batch_size=2, num_threads=1) as it:
        next(it)
        with pytest.raises(Frozen):
            next(it)
        batch = next(it)
        assert batch["x"].tolist() == batch["y"].tolist() == [2, 2]


class Counter:
    """An iterator that moves before it raises an error, once, at `failing`."""

    def __init__(self, error, failing=5, first=0):
        self.number, self.error, self.failing = first - 1, error, failing

    def __iter__(self):
        return self

    def __next__(self):
        self.number += 1
        if self.number == self.failing:
            raise self.error("no such luck")
        return np.int32(self.number)


@pytest.mark.parametrize(("parallel", "error"), [(False, ValueError), (True, ValueError), (True, SystemExit)])
def test_iterators_of_samples_lose_whole_batches(parallel, error):
    """Also the sources of shards after the one that failed."""

    def define(num_shards=1, shard_id=0):
        numbers = fn.external_source(Counter(error, first=32 * shard_id), batch=False, parallel=parallel)
        return numbers, fn.readers.source(Numbers(64), name="y", num_shards=num_shards, shard_id=shard_id)

    devices = jax.devices()[:2]
    with data_iterator(define, ["x", "y"], reader_name="y", devices=devices)(batch_size=8, num_threads=1) as it:
        assert next(it)["x"].tolist() == [[0, 1, 2, 3], [32, 33, 34, 35]]
        with pytest.raises(error, match="no such luck"):
            next(it)
        batch = next(it)
        assert batch["x"].tolist() == batch["y"].tolist() == [[8, 9, 10, 11], [40, 41, 42, 43]]


class Resumable(Counter):
    def get_state(self):
        return self.number

    def set_state(self, state):
        self.number = state
        self.failing = -5


def test_interrupted_iterators_warn_or_resume():
    """An iterator may have moved before it was interrupted. Only its state shows where the batch begins."""

    def batches(source):
        def define():
            return fn.external_source(source, batch=False), fn.readers.source(Numbers(64), name="y")

        with data_iterator(define, ["x", "y"], prepare_first_batch=False)(batch_size=2, num_threads=1) as it:
            with pytest.raises(KeyboardInterrupt):
                _ = [next(it) for _ in range(3)]
            return [(batch["x"].tolist(), batch["y"].tolist()) for batch in (next(it) for _ in range(4))]

    assert all(x == y for x, y in batches(Resumable(KeyboardInterrupt)))
    with pytest.warns(UserWarning, match="interrupted while it made this batch, and may have moved on"):
        assert any(x != y for x, y in batches(Counter(KeyboardInterrupt)))


def test_interrupts_repeat_no_setup():
    calls = []

    class Legacy(Pipeline):
        def define_graph(self):
            self.fed = fn.external_source(name="fed")
            return self.fed, fn.external_source(Resumable(KeyboardInterrupt), batch=False)

        def iter_setup(self):
            if len(calls) == 5:
                raise StopIteration
            self.feed_input(self.fed, np.array([2 * len(calls), 2 * len(calls) + 1], np.int32))
            calls.append(None)

    pipe = Legacy(batch_size=2, num_threads=1)
    results = []
    for _ in range(9):
        with contextlib.suppress(KeyboardInterrupt, StopIteration):
            results.append([x.as_array().tolist() for x in pipe.run()])
    assert results == [[[2 * i, 2 * i + 1]] * 2 for i in range(5)]
    pipe.close()


class TenNumbers(Counter):
    """It begins anew when it has ended."""

    def __iter__(self):
        self.number = -1
        return self

    def __next__(self):
        if self.number == 9:
            self.number = -1
            raise StopIteration
        return super().__next__()


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("cycle", ["no", "raise"])
@pytest.mark.parametrize("failing", [8, 9])
def test_errors_in_last_batches_end_epochs(failing, cycle, parallel):
    @pipeline_def(batch_size=4, num_threads=1, device_id=None)
    def define():
        return fn.external_source(TenNumbers(ValueError, failing), batch=False, cycle=cycle, parallel=parallel)

    pipe = define()
    for _ in range(2):
        for first in (0, 4):
            assert np.asarray(pipe.run()[0].as_array()).tolist() == list(range(first, first + 4))
        with pytest.raises(ValueError, match="no such luck"):
            pipe.run()
        with pytest.raises(StopIteration):
            pipe.run()
        pipe.reset()


class CounterOfOtherType(Counter):
    """Number `failing` has another dtype."""

    def __next__(self):
        self.number += 1
        return np.float32(self.number) if self.number == self.failing else np.int32(self.number)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("failing", [5, 37])
def test_other_types_cost_all_shards_a_batch(failing, parallel):
    def define(num_shards=1, shard_id=0):
        counter = CounterOfOtherType(ValueError, failing, first=32 * shard_id)
        numbers = fn.external_source(counter, batch=False, parallel=parallel)
        return numbers, fn.readers.source(Numbers(64), name="y", num_shards=num_shards, shard_id=shard_id)

    devices = jax.devices()[:2]
    with data_iterator(define, ["x", "y"], reader_name="y", devices=devices)(batch_size=8, num_threads=1) as it:
        assert next(it)["x"].tolist() == [[0, 1, 2, 3], [32, 33, 34, 35]]
        with pytest.raises(ValueError, match="must have one dtype"):
            next(it)
        batch = next(it)
        assert batch["x"].tolist() == batch["y"].tolist() == [[8, 9, 10, 11], [40, 41, 42, 43]]


def test_callables_rest_after_an_error():
    """Their error comes at once, even if each call waits for a server."""
    calls = []

    def wait():
        calls.append(1)
        if len(calls) > 6:
            raise TimeoutError("no answer")
        return np.int32(0)

    @pipeline_def(batch_size=4, num_threads=1, device_id=None, prefetch_queue_depth=1)
    def define():
        return fn.external_source(wait, batch=False)

    pipe = define()
    pipe.run()
    with pytest.raises(TimeoutError, match="no answer"):
        pipe.run()
    assert len(calls) == 7
