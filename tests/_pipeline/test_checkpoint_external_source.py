"""Checkpoints of user sources: what they say of their state, and what resumes without."""

import itertools
import json
import logging

import numpy as np
import pytest
from pipelines import step

from jaxdali import fn, pipeline_def, types
from jaxdali.plugin.jax import data_iterator


class Stateful:
    """Random numbers with a state; ends after five batches, and starts the next epoch by itself."""

    def __init__(self, as_bytes):
        self.generator = np.random.Generator(np.random.PCG64(5))
        self.at = 0
        self.as_bytes = as_bytes

    def __call__(self):
        if self.at == 5:
            self.at = 0
            raise StopIteration
        self.at += 1
        return self.generator.random((3, 2), np.float32)

    def get_state(self):
        state = {"at": self.at, "generator": self.generator.bit_generator.state}
        return json.dumps(state).encode() if self.as_bytes else state

    def set_state(self, state):
        state = json.loads(state) if self.as_bytes else state
        self.at, self.generator.bit_generator.state = state["at"], state["generator"]


class StatefulIterable:
    """The same as an iterable whose iterators have the state."""

    def __iter__(self):
        return StatefulIterator(Stateful(False))


class StatefulIterator:
    def __init__(self, source):
        self.source = source

    def __iter__(self):
        return self

    def __next__(self):
        return self.source()

    def get_state(self):
        return self.source.get_state()

    def set_state(self, state):
        self.source.set_state(state)


def by_index(i):
    if i == 5:
        raise StopIteration
    return np.full((3, 2), i, np.float32)


def by_sample(info):
    if info.iteration == 5:
        raise StopIteration
    return np.full(2, info.idx_in_epoch + 100 * info.epoch_idx, np.float32)


def external(make_source, **kwargs):
    def define():
        return fn.external_source(source=make_source(), **kwargs), fn.random.uniform(range=[0.0, 1.0])

    factory = data_iterator(define, ["x", "u"])

    def iterator(checkpoints=None, depth=2):
        options = {"num_threads": 2, "prefetch_queue_depth": depth, "enable_checkpointing": True}
        return factory(batch_size=3, **options, checkpoints=checkpoints)

    return iterator


@pytest.mark.parametrize(
    ("source", "kwargs"),
    [
        (lambda: by_index, {}),
        (lambda: by_sample, {"batch": False}),
        (lambda: Stateful(False), {}),
        (lambda: Stateful(True), {}),
        (lambda: Stateful(True).__call__, {}),
        (lambda: StatefulIterable(), {"cycle": "raise"}),
        (lambda: StatefulIterable(), {"cycle": "quiet"}),
    ],
)
def test_external_sources_that_go_on(source, kwargs, caplog):
    iterator = external(source, **kwargs)
    with iterator() as it:
        taken, steps = [], []
        for _ in range(14):
            taken.append(it.checkpoints())
            steps.append(step(it))
        assert (None in steps) == (kwargs.get("cycle") != "quiet")
        for at in (0, 2, 5, 6, 8):
            with iterator(taken[at], depth=1 + at % 4) as other:
                assert other.checkpoints() == taken[at]
                assert list(itertools.islice(iter(lambda o=other: step(o), 0), 14 - at)) == steps[at:]
    assert not caplog.records


def test_external_sources_that_start_over(caplog):
    def generator():
        for i in itertools.count():
            yield np.full((3, 1), i, np.int32)

    iterator = external(lambda: generator)
    with iterator() as it:
        for _ in range(3):
            next(it)
        state = it.get_state()
        with caplog.at_level(logging.WARNING), iterator(it.checkpoints()) as other:
            assert np.asarray(next(other)["x"]).ravel().tolist() == [0, 0, 0]
    assert "it starts over" in caplog.text
    with (
        external(lambda: lambda: np.zeros(3, np.int32))() as it,
        pytest.raises(RuntimeError, match="source is 'callable' here and 'iterable'"),
    ):
        it.set_state(state)


def test_an_iterator_that_can_not_start_over_goes_on_where_it_is(caplog):
    """Also with the item that was looked at for its type: none is lost."""
    with external(lambda: iter([np.full((3, 1), i, np.int32) for i in range(9)]))() as it:
        next(it)
        taken = it.checkpoints()
    iterator = external(lambda: (np.full((3, 1), i, np.int32) for i in range(10, 19)))
    with caplog.at_level(logging.WARNING), iterator(taken) as other:
        assert [np.asarray(next(other)["x"])[0].item() for _ in range(3)] == [10, 11, 12]
    assert "continues from its present position" in caplog.text
    pipe = pipeline_def(lambda: fn.external_source(iter([np.full(1, i) for i in range(9)])))(
        batch_size=1, enable_checkpointing=True, checkpoint=None
    )
    pipe.run()
    again = pipeline_def(lambda: fn.external_source(iter([np.full(1, i) for i in range(10, 19)])))(
        batch_size=1, enable_checkpointing=True, checkpoint=pipe.checkpoint()
    )
    assert [again.run()[0].as_array().item() for _ in range(3)] == [10, 11, 12]


def test_state_that_json_cannot_hold():
    class Source(Stateful):
        def get_state(self):
            return {1, 2}

    with external(lambda: Source(False))() as it:
        next(it)
        with pytest.raises(
            TypeError, match="get_state of the source must return bytes or something that JSON can hold"
        ):
            it.get_state()
        next(it)


def test_the_user_goes_on_changing_what_get_state_returned():
    class Source:
        state = [0]  # noqa: RUF012

        def __call__(self):
            self.state[0] += 1
            return np.full(3, self.state[0], np.int32)

        def get_state(self):
            return self.state

        def set_state(self, state):
            self.state = state

    source = Source()
    with external(lambda: source)() as it:
        next(it)
        state = it.get_state()
        assert np.asarray(next(it)["x"]).tolist() == [2, 2, 2]
        it.set_state(state)
        assert [np.asarray(next(it)["x"])[0].item() for _ in range(3)] == [2, 3, 4]


def test_one_source_ends_before_another_one():
    """What the second source was asked for in vain is not lost, neither here nor after a checkpoint."""

    def define():
        return fn.external_source(source=Stateful(False), name="a"), fn.external_source(
            source=by_index, name="b", cycle=None
        )

    def longer():
        source = Stateful(False)
        source.at = -2  # seven batches at first
        return fn.external_source(source=source, name="a"), fn.external_source(source=by_index, name="b")

    for definition in (define, longer):
        iterator = data_iterator(definition, ["x", "y"])
        with iterator(batch_size=3, num_threads=1, enable_checkpointing=True) as it:
            taken, steps = [], []
            for _ in range(15):
                taken.append(it.checkpoints())
                steps.append(step(it))
            assert steps.count(None) >= 2
            for at in range(0, 15, 2):
                with iterator(batch_size=3, num_threads=1, enable_checkpointing=True, checkpoints=taken[at]) as other:
                    assert [step(other) for _ in range(15 - at)] == steps[at:]


def test_data_that_are_fed():
    def define():
        return fn.external_source(name="fed", blocking=True, dtype=types.INT32, ndim=0), fn.random.uniform(
            range=[0.0, 1.0]
        )

    with data_iterator(define, ["x", "u"], prepare_first_batch=False)(batch_size=2, num_threads=1) as it:
        for i in range(3):
            it.pipelines[0].feed_input("fed", np.full(2, i, np.int32))
        next(it)
        state = it.get_state()
        want = np.asarray(next(it)["u"]).tolist()
        it.set_state(state)  # a thread was waiting for data, and one will again
        it.pipelines[0].feed_input("fed", np.full(2, 5, np.int32))
        batch = next(it)
    assert np.asarray(batch["u"]).tolist() == want
    assert np.asarray(batch["x"])[0] in (2, 5)  # what was made ahead is gone
