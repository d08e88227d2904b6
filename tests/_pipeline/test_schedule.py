"""The order of calls: fed data, scheduled runs, iter_setup."""

import contextlib
import threading

import numpy as np
import pytest
from pipelines import numbers, values

from jaxdali import Pipeline, fn, types
from jaxdali.plugin.jax import DALIGenericIterator


def test_feed_input():
    pipe = Pipeline(batch_size=2)
    with pipe:
        x = fn.external_source(name="x")
        pipe.set_outputs(x * 2)
    with pytest.raises(KeyError, match="nothing"):
        pipe.feed_input("nothing", [np.int32(1)])
    for i in range(3):
        pipe.feed_input("x" if i % 2 else x, np.int32([i, i + 1]))
        assert values(pipe.run()) == [2 * i, 2 * i + 2]
    with pytest.raises(IndexError):
        pipe.run()
    pipe.feed_input("x", np.int32([5]))  # a short batch
    assert values(pipe.run()) == [10]


def fed(**options):
    pipe = Pipeline(batch_size=2, **options)
    with pipe:
        pipe.set_outputs(fn.external_source(name="x"))
    return pipe


def feed(pipe, i):
    pipe.feed_input("x", np.int32([i, i]))


@pytest.mark.parametrize("options", [{}, {"prefetch_queue_depth": 3}, {"exec_pipelined": False}])
@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_feeding_ahead(options, ahead):
    """One may feed prefetch_queue_depth batches before the first run, as DALI requires, or fewer."""
    pipe = fed(**options)
    for i in range(ahead):
        feed(pipe, i)
    for i in range(4):
        feed(pipe, ahead + i)
        assert values(pipe.run()) == [i, i]
    for i in range(4, 4 + ahead):
        assert values(pipe.run()) == [i, i]
    with pytest.raises(IndexError, match="no data were fed"):
        pipe.run()


def test_feeding_with_scheduled_calls():
    pipe = fed()
    for i in range(2):
        feed(pipe, i)
    pipe.schedule_run()  # both
    batches = [values(pipe.share_outputs())]
    feed(pipe, 2)
    pipe.schedule_run()
    while not pipe.empty():
        batches.append(values(pipe.outputs()))
    assert batches == [[0, 0], [1, 1], [2, 2]]


def test_run_with_inputs():
    for pipe in (
        fed(prefetch_queue_depth=1),
        fed(exec_pipelined=False),
        fed(prefetch_queue_depth={"cpu_size": 1, "gpu_size": 1}),
    ):
        assert values(pipe.run(x=np.int32([3, 4]))) == [3, 4]
        assert values(pipe.run(None, x=[np.int32(5)])) == [5]
        with pytest.raises(KeyError, match="y"):
            pipe.run(y=np.int32([3, 4]))
    with pytest.raises(RuntimeError, match="prefetch_queue_depth=1 or exec_pipelined=False"):
        fed().run(x=np.int32([3, 4]))


def test_close_frees_a_thread_waiting_for_data():
    pipe = Pipeline(batch_size=1)
    with pipe:
        pipe.set_outputs(fn.external_source(name="x", blocking=True))
    errors = []

    def run():
        try:
            pipe.run()
        except Exception as e:
            errors.append(e)

    pipe.build()
    thread = threading.Thread(target=run)
    thread.start()
    pipe.close()
    thread.join(20)
    assert not thread.is_alive()
    assert len(errors) == 1


class Legacy(Pipeline):
    """DALI's class style: `iter_setup` feeds data, and ends the epoch."""

    def __init__(self, **options):
        super().__init__(2, 1, None, 7, **options)
        self.calls = 0
        self.num_left = 5

    def define_graph(self):
        self.x = fn.external_source()
        return self.x, fn.random.uniform(range=(0.0, 1.0))

    def iter_setup(self):
        if not self.num_left:
            raise StopIteration
        self.num_left -= 1
        self.calls += 1
        self.feed_input(self.x, np.full((2,), self.num_left, np.int32))


@pytest.mark.parametrize(("depth", "calls"), [(1, [1, 2, 3, 4, 5]), (2, [2, 3, 4, 5, 5]), (4, [4, 5, 5, 5, 5])])
def test_iter_setup_runs_ahead_by_the_depth(depth, calls):
    """The counts are those of DALI 2.4."""
    pipe = Legacy(prefetch_queue_depth=depth)
    for _ in range(2):
        pipe.calls, pipe.num_left = 0, 5
        for i in range(5):
            assert values(pipe.run()) == [4 - i] * 2
            assert pipe.calls == calls[i]
        for _ in range(2):
            with pytest.raises(StopIteration):
                pipe.run()
        pipe.reset()


def test_iter_setup_under_an_iterator():
    pipe = Legacy()
    it = DALIGenericIterator(pipe, ["x", "random"])
    drawn = []
    for _ in range(2):
        batches = list(it)
        assert [b["x"].tolist() for b in batches] == [[i] * 2 for i in (4, 3, 2, 1, 0)]
        drawn += [tuple(b["random"].tolist()) for b in batches]
        pipe.num_left = 5
        it.reset()
    it.close()
    assert len(set(drawn)) == 10  # another epoch, other numbers
    pipe = Legacy()
    pipe.num_left = 0
    with pytest.raises(RuntimeError, match="before the first batch"):
        DALIGenericIterator(pipe, ["x", "random"])


def test_failing_iter_setup_loses_no_batch():
    pipe = Legacy(exec_pipelined=False)
    pipe.run()
    feed_input, pipe.feed_input = pipe.feed_input, None
    with pytest.raises(TypeError):
        pipe.run()
    pipe.feed_input = feed_input
    assert values(pipe.run()) == [2, 2]


# The sequences of calls and results of DALI 2.4, with 4 batches of data.
@pytest.mark.parametrize("options", [{}, {"exec_pipelined": False}, {"prefetch_queue_depth": 3}])
def test_scheduled_calls(options):
    pipe = numbers(stop=4, **options)
    assert pipe.empty()
    for _ in range(2):
        batches = []
        pipe.schedule_run()
        while not pipe.empty():
            batches.append(values(pipe.share_outputs()))
            pipe.release_outputs()
            pipe.schedule_run()
        assert batches == [[3 * i, 3 * i + 1, 3 * i + 2] for i in range(4)]
        for _ in range(2):
            with pytest.raises(StopIteration):
                pipe.share_outputs()
        pipe.reset()
    pipe.close()


@pytest.mark.parametrize(("depth", "scheduled"), [(1, 1), (2, 2), (3, 3)])
def test_first_schedule_run_fills_the_queue(depth, scheduled):
    pipe = numbers(prefetch_queue_depth=depth)
    with pytest.raises(StopIteration):
        pipe.outputs()
    pipe.schedule_run()
    for _ in range(scheduled):
        assert not pipe.empty()
        pipe.outputs()
    assert pipe.empty()
    with pytest.raises(StopIteration):
        pipe.outputs()
    pipe.close()


@pytest.mark.parametrize("options", [{}, {"debug": True}, {"exec_pipelined": False}, {"prefetch_queue_depth": 3}])
def test_calls_of_older_versions(options):
    """As iterators in older scripts make them, such as that of NVIDIA's SSD: `_prefetch` before each batch."""
    pipe = numbers(stop=4, **options)
    batches = []
    pipe._prefetch()
    with contextlib.suppress(StopIteration):
        while True:
            pipe._prefetch()
            batches.append(values(pipe._share_outputs()))
            pipe._release_outputs()
            pipe._run()
    assert batches == [[3 * i, 3 * i + 1, 3 * i + 2] for i in range(4)]
    pipe.close()


@pytest.mark.parametrize("depth", [1, 3])
def test_prefetch_fills_the_queue(depth):
    pipe = numbers(prefetch_queue_depth=depth)
    for num_taken in (0, depth, 1):
        for _ in range(num_taken):
            pipe.outputs()
        for _ in range(2):
            pipe._prefetch()
    for _ in range(depth):
        pipe.outputs()
    assert pipe.empty()
    pipe.close()


def test_mixing_calls():
    scheduled, run = numbers(), numbers()
    scheduled.schedule_run()
    run.run()
    with pytest.raises(RuntimeError, match="mixed"):
        scheduled.run()
    for call in (run.schedule_run, run.share_outputs, run.release_outputs, run.outputs):
        with pytest.raises(RuntimeError, match="mixed"):
            call()
    for pipe in (run, scheduled):
        with pytest.raises(RuntimeError, match="in use"):
            DALIGenericIterator(pipe, ["x"])
    run.enable_api_check(False)
    run.schedule_run()
    assert [values(run.outputs()), values(run.outputs())] == [[3, 4, 5], [6, 7, 8]]
    with pytest.raises(StopIteration):
        run.outputs()
    assert values(run.run()) == [9, 10, 11]
    run.enable_api_check(True)
    with pytest.raises(RuntimeError, match="mixed"):
        run.outputs()
    run.close()
    scheduled.close()

    iterated = numbers()
    it = DALIGenericIterator(iterated, ["x"])
    iterated.enable_api_check(False)
    for call in (iterated.run, iterated.schedule_run, iterated.outputs):
        with pytest.raises(RuntimeError, match="iterator"):
            call()
    with pytest.raises(RuntimeError, match=r"from the iterator, not with _prefetch\(\)$"):
        iterated._prefetch()
    it.close()


def test_output_checks_of_fed_data():
    pipe = fed(output_dtype=types.FLOAT)
    feed(pipe, 1)
    with pytest.raises(RuntimeError, match=r"output_dtype: output 0 .* has int32"):
        pipe.run()
