"""num_threads="auto" and prefetch_queue_depth="auto": the decisions of the tuner, with the waiting times of a model."""

import numpy as np
import pytest

from jaxdali import Pipeline, fn, pipeline_def
from jaxdali._batch import executor, tuning
from jaxdali._batch.tuning import MOST_AHEAD, WINDOW, Tuner
from jaxdali.plugin.jax import data_iterator

BOTH = ("num_threads", "prefetch_queue_depth")


class Machine:
    """A model of a pipeline and its user, in place of a meter: a batch takes `cost(threads)` seconds, the user's step
    with it `step` seconds.

    Until `enough` batches are made ahead, the user waits for the part `uneven` of each step, although batches are made
    fast enough on average.
    """

    def __init__(self, cost, step=0.0, uneven=0.0, enough=0):
        self.cost, self.step, self.uneven, self.enough = cost, step, uneven, enough
        self.now = self.user = self.queue = 0.0

    def seconds(self, stage, step):
        assert stage == "wait"
        return {"user": self.user, "queue": self.queue}[step]

    def run(self, tuner, windows):
        """Returns the threads and the depth after each window."""
        decisions = []
        for _ in range(windows):
            for k in range(WINDOW):
                batch = self.cost(tuner.threads)
                late = self.uneven * self.step if tuner.depth < self.enough else 0.0
                self.user += max(batch - self.step, 0.0) + late
                self.queue += max(self.step - batch, 0.0) + late
                self.now += max(batch, self.step) + late
                changed = tuner.note_taken()
                assert not changed or k == WINDOW - 1
            decisions.append((tuner.threads, tuner.depth))
        return decisions


def tuner_of(machine, tuned=BOTH, threads=4, depth=2, cores=32):
    return Tuner(machine, tuned, threads, depth, cores, clock=lambda: machine.now)


def test_threads_are_doubled_while_batches_get_faster():
    """Up to eight threads help. 16 threads are tried once, and given up."""
    machine = Machine(lambda threads: 8.0 / min(threads, 8))
    assert machine.run(tuner_of(machine), 6) == [(4, 2), (8, 2), (16, 2), (8, 2), (8, 2), (8, 2)]


def test_no_more_threads_than_cores():
    machine = Machine(lambda threads: 8.0 / threads)
    assert machine.run(tuner_of(machine, threads=2, cores=6), 5) == [(2, 2), (4, 2), (6, 2), (6, 2), (6, 2)]


def test_needless_threads_are_released():
    """The user's step takes 8 s. Two threads make a batch in 4 s, one in 8.5 s, so the user would wait for it."""
    machine = Machine(lambda threads: 8.5 / threads if threads < 2 else 8.0 / threads, step=8.0)
    decisions = machine.run(tuner_of(machine, threads=8), 8)
    assert decisions[:4] == [(8, 2), (4, 2), (2, 2), (2, 2)]  # with two there is not time enough left to try one
    machine = Machine(lambda threads: 3.0 if threads > 1 else 9.0, step=8.0)
    assert machine.run(tuner_of(machine, threads=2), 5) == [(2, 2), (1, 2), (2, 2), (2, 2), (2, 2)]


def test_uneven_batches_are_made_farther_ahead():
    """The depth grows until the user does not wait any more, and never beyond the maximum."""
    machine = Machine(lambda threads: 0.7, step=1.0, uneven=0.2, enough=4)
    assert machine.run(tuner_of(machine), 5) == [(4, 2), (4, 3), (4, 4), (4, 4), (4, 4)]
    machine = Machine(lambda threads: 0.7, step=1.0, uneven=0.2, enough=100)
    assert machine.run(tuner_of(machine), 12)[-1] == (4, MOST_AHEAD)


@pytest.mark.parametrize("tuned", [BOTH[:1], BOTH[1:]])
def test_settings_without_auto_stay(tuned):
    slow, uneven = (
        Machine(lambda threads: 8.0 / threads),
        Machine(lambda threads: 0.7, step=1.0, uneven=0.2, enough=100),
    )
    assert slow.run(tuner_of(slow, tuned), 3)[-1] == ((16, 2) if tuned == BOTH[:1] else (4, 2))
    assert uneven.run(tuner_of(uneven, tuned), 3)[-1] == ((4, 2) if tuned == BOTH[:1] else (4, 4))


class Always:
    """Decides on one more thread and one more batch ahead after each batch."""

    def __init__(self, *arguments):
        self.threads, self.depth = 1, 2
        Always.made = self

    def note_taken(self):
        self.threads, self.depth = self.threads % 3 + 1, self.depth + (self.depth < 5)
        return True


def test_changed_settings_compile_nothing(monkeypatch):
    """All numbers of threads make the same batches, from one program. The depth says how far a source is ahead."""
    monkeypatch.setattr(executor, "Tuner", Always)
    read = []

    def source(i):
        read.append(i)
        return np.full((5, 4, 3), i, np.uint8)

    @data_iterator(output_map=["x"])
    def define():
        images = fn.external_source(lambda info: source(info.idx_in_epoch), batch=False, layout="HWC")
        return fn.resize(images, size=(2, 2))

    with define(batch_size=2, num_threads="auto", prefetch_queue_depth="auto") as iterator:
        for k in range(6):
            batch = np.asarray(next(iterator)["x"])
            assert (batch == np.array([2 * k, 2 * k + 1], np.uint8).reshape(2, 1, 1, 1)).all()
        (batch_executor,) = iterator._stream.executors
        assert len(batch_executor._launcher._compiled) == 1
        assert batch_executor.resources._thread_pools.keys() >= {1, 2, 3}
        # Six batches of two samples were taken, and the source was called for five more.
        assert len(read) == 2 * (6 + 5)
        assert iterator.statistics()


def test_epoch_wait_counts_as_queue_time():
    """At the end of an epoch the thread that produces waits for the user. That is no time of a batch."""

    @pipeline_def(batch_size=1, prefetch_queue_depth=8, enable_statistics=True)
    def define():
        return fn.external_source([np.zeros((1, 2), np.uint8)] * 2, cycle="raise")

    with define() as pipe:
        for _ in range(3):
            for _ in range(2):
                pipe.run()
            with pytest.raises(StopIteration):
                pipe.run()
            pipe.reset()
        pipe.run()
        assert [m.calls for m in pipe.statistics() if (m.stage, m.step) == ("wait", "queue")] == [3]


def test_arguments():
    with pytest.raises(TypeError, match="num_threads must be a whole number or 'auto', got 'many'"):
        Pipeline(batch_size=1, num_threads="many")
    with pytest.raises(TypeError, match=r"must be a whole number or 'auto' or a dict {'cpu_size': .*}, got 'deep'"):
        Pipeline(batch_size=1, prefetch_queue_depth="deep")

    @pipeline_def(batch_size=1, num_threads="auto", prefetch_queue_depth="auto")
    def define():
        return fn.random.uniform()

    pipe = define()
    assert 1 <= pipe.num_threads <= 4
    assert pipe.prefetch_queue_depth == "auto"
    restored = Pipeline.deserialize(pipe.serialize())
    assert restored.prefetch_queue_depth == "auto"
    restored.run()
    assert restored.statistics()
    restored.close()


def test_windows_are_whole(monkeypatch):
    """Decisions fall after each window, not before the second: programs are compiled in the first."""
    monkeypatch.setattr(tuning, "WINDOW", 3)
    machine = Machine(lambda threads: 1.0)
    tuner, changes = tuner_of(machine), []
    for _ in range(7):
        machine.now += 1.0
        machine.user += 1.0
        changes.append(tuner.note_taken())
    assert changes == [False] * 5 + [True, False]
