"""Checkpoints of user sources, with and without a state of their own."""

import itertools
import json
import logging

import numpy as np
import pytest
import shardings
from pipelines import step

from jaxdali import fn, pipeline_def, types
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import data_iterator


class Stateful:
    """A source of random numbers with a state. It ends after five batches and then starts the next epoch by itself."""

    def __init__(self, as_bytes):
        self.generator = np.random.Generator(np.random.PCG64(5))
        self.position = 0
        self.as_bytes = as_bytes

    def __call__(self):
        if self.position == 5:
            self.position = 0
            raise StopIteration
        self.position += 1
        return self.generator.random((3, 2), np.float32)

    def get_state(self):
        state = {"at": self.position, "generator": self.generator.bit_generator.state}
        return json.dumps(state).encode() if self.as_bytes else state

    def set_state(self, state):
        state = json.loads(state) if self.as_bytes else state
        self.position, self.generator.bit_generator.state = state["at"], state["generator"]


class StatefulIterable:
    """As `Stateful`, but an iterable whose iterators have the state."""

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
def test_external_sources_with_state_continue(source, kwargs, caplog):
    iterator = external(source, **kwargs)
    with iterator() as it:
        checkpoints, steps = [], []
        for _ in range(14):
            checkpoints.append(it.checkpoints())
            steps.append(step(it))
        assert (None in steps) == (kwargs.get("cycle") != "quiet")
        for i in (0, 2, 5, 6, 8):
            with iterator(checkpoints[i], depth=1 + i % 4) as restored:
                assert restored.checkpoints() == checkpoints[i]
                assert list(itertools.islice(iter(lambda o=restored: step(o), 0), 14 - i)) == steps[i:]
    assert not caplog.records


def test_external_sources_without_state_start_over(caplog):
    def generator():
        for i in itertools.count():
            yield np.full((3, 1), i, np.int32)

    iterator = external(lambda: generator)
    with iterator() as it:
        for _ in range(3):
            next(it)
        state = it.get_state()
        with caplog.at_level(logging.WARNING), iterator(it.checkpoints()) as restored:
            assert np.asarray(next(restored)["x"]).ravel().tolist() == [0, 0, 0]
    assert "it starts over" in caplog.text
    with (
        external(lambda: lambda: np.zeros(3, np.int32))() as it,
        pytest.raises(RuntimeError, match="source is 'callable' here and 'iterable'"),
    ):
        it.set_state(state)


def test_ended_callable_without_state_starts_over(caplog):
    """The checkpoint is made after an incomplete last batch, when nothing is left of the epoch."""

    def make_source():
        items = iter([1, 2, 3, 4, None, 5])

        def source():
            if (item := next(items)) is None:
                raise StopIteration
            return np.int32(item)

        return source

    def define():
        return fn.external_source(make_source(), batch=False, dtype=types.INT32, ndim=0)

    factory = data_iterator(define, ["x"], last_batch_policy=LastBatchPolicy.PARTIAL, mask_name="valid")
    options = {"batch_size": 3, "num_threads": 1, "enable_checkpointing": True}
    with factory(**options) as it:
        assert [next(it)["valid"].tolist() for _ in range(2)] == [[True] * 3, [True, False, False]]
        checkpoints = it.checkpoints()
    with caplog.at_level(logging.WARNING), factory(**options, checkpoints=checkpoints) as restored:
        with pytest.raises(StopIteration):
            next(restored)
        restored.reset()
        assert next(restored)["x"].tolist() == [1, 2, 3]
    assert "it starts over" in caplog.text


def test_one_pass_iterator_continues_where_it_is(caplog):
    """The first item, which is read early for its type, is not lost."""
    with external(lambda: iter([np.full((3, 1), i, np.int32) for i in range(9)]))() as it:
        next(it)
        checkpoints = it.checkpoints()
    iterator = external(lambda: (np.full((3, 1), i, np.int32) for i in range(10, 19)))
    with caplog.at_level(logging.WARNING), iterator(checkpoints) as restored:
        assert [np.asarray(next(restored)["x"])[0].item() for _ in range(3)] == [10, 11, 12]
    assert "continues from its present position" in caplog.text
    pipe = pipeline_def(lambda: fn.external_source(iter([np.full(1, i) for i in range(9)])))(
        batch_size=1, enable_checkpointing=True, checkpoint=None
    )
    pipe.run()
    restored_pipe = pipeline_def(lambda: fn.external_source(iter([np.full(1, i) for i in range(10, 19)])))(
        batch_size=1, enable_checkpointing=True, checkpoint=pipe.checkpoint()
    )
    assert [restored_pipe.run()[0].as_array().item() for _ in range(3)] == [10, 11, 12]


def test_state_json_can_not_hold():
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


def test_state_changed_by_the_user_later():
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


def shards_of(make_source):
    """Four shards; and a state of two of them, as one of two processes has it, with the batch after it."""
    make = data_iterator(
        lambda num_shards, shard_id: fn.external_source(make_source(shard_id), batch=False),
        output_map=["x"],
        size=100,
        sharding=shardings.of_batch(4),
    )
    with make(batch_size=8) as it:
        next(it)
        state = it.get_state()
        return make(batch_size=8), {**state, "pipelines": state["pipelines"][2:]}, step(it)


def test_sources_with_index_continue_from_other_shards():
    it, state, expected = shards_of(lambda shard_id: lambda info: np.int32(100 * shard_id + info.idx_in_epoch))
    with it:
        it.set_state(state)
        np.testing.assert_array_equal(step(it)["x"], expected["x"])


def test_sources_with_state_need_their_own():
    it, state, _ = shards_of(lambda shard_id: StatefulIterable())
    with it, pytest.raises(RuntimeError, match="has those of another process: save a state in each process"):
        it.set_state(state)


def test_one_source_ends_before_another_one():
    """The item that the second source returned when the first one ended is not lost, even after a checkpoint."""

    def define():
        return fn.external_source(source=Stateful(False), name="a"), fn.external_source(
            source=by_index, name="b", cycle=None
        )

    def longer():
        source = Stateful(False)
        source.position = -2  # seven batches at first
        return fn.external_source(source=source, name="a"), fn.external_source(source=by_index, name="b")

    for definition in (define, longer):
        iterator = data_iterator(definition, ["x", "y"])
        with iterator(batch_size=3, num_threads=1, enable_checkpointing=True) as it:
            checkpoints, steps = [], []
            for _ in range(15):
                checkpoints.append(it.checkpoints())
                steps.append(step(it))
            assert steps.count(None) >= 2
            for i in range(0, 15, 2):
                with iterator(
                    batch_size=3, num_threads=1, enable_checkpointing=True, checkpoints=checkpoints[i]
                ) as restored:
                    assert [step(restored) for _ in range(15 - i)] == steps[i:]


def test_fed_data():
    def define():
        return fn.external_source(name="fed", blocking=True, dtype=types.INT32, ndim=0), fn.random.uniform(
            range=[0.0, 1.0]
        )

    with data_iterator(define, ["x", "u"], prepare_first_batch=False)(batch_size=2, num_threads=1) as it:
        for i in range(3):
            it.pipelines[0].feed_input("fed", np.full(2, i, np.int32))
        next(it)
        state = it.get_state()
        expected = np.asarray(next(it)["u"]).tolist()
        it.set_state(state)  # stops a thread that waits for data, and starts another one
        it.pipelines[0].feed_input("fed", np.full(2, 5, np.int32))
        batch = next(it)
    assert np.asarray(batch["u"]).tolist() == expected
    assert np.asarray(batch["x"])[0] in (2, 5)  # a batch that was read ahead is lost
