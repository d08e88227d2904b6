"""States made by strangers: each number, replaced by a huge one, is an error that names it, or reading goes on; soon."""

import contextlib
import copy
import json
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import shardings
from data_sets import READERS, SIZE, DataSets, nodes_in

import jaxdali.dynamic as jd
from jaxdali import fn, pipeline_def
from jaxdali._data.shuffle import epoch_order
from jaxdali._pipeline.checks import signed, unsigned
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import data_iterator

pytestmark = pytest.mark.filterwarnings("ignore:.*has samples of another shape in each batch")

HUGE = (2**31, 2**62)
LIMIT = 60  # seconds for a state, which takes 20 ms: only an endless loop takes longer
ORDERS = (
    {},
    {"random_shuffle": True, "initial_fill": 4},
    {"shuffle_after_epoch": True},
    {"shuffle": "global"},
    {"random_shuffle": True, "pad_last_batch": True},
)
# In the errors of numbers that are possible, and contradict others.
CONTRADICTIONS = ("have moved away from those of the reader", "the checkpoints are of different moments")


@pytest.fixture(scope="module")
def data_sets(tmp_path_factory):
    return DataSets(str(tmp_path_factory.mktemp("data_sets")))


def numbers(x: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of the numbers in JSON."""
    for key in x if isinstance(x, dict) else range(len(x)) if isinstance(x, list) else ():
        yield from numbers(x[key], (*path, key))
    if isinstance(x, (int, float)) and not isinstance(x, bool):
        yield path


def changed(x: Any, path: tuple[Any, ...], value: Any) -> Any:
    result = copy.deepcopy(x)
    place = result
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return result


class Attempts:
    """Calls functions in a thread, so that one that does not end fails."""

    def __init__(self):
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while (f := self._calls.get()) is not None:
            try:
                self._results.put((f(), None))
            except Exception as e:
                self._results.put((None, e))

    def __call__(self, f: Callable[[], Any], place: str) -> str:
        """The text of the error; "" if there was none."""
        self._calls.put(f)
        try:
            _, error = self._results.get(timeout=LIMIT)
        except queue.Empty:
            pytest.fail(f"{place}: no end after {LIMIT} s")
        assert error is None or isinstance(error, (RuntimeError, ValueError)), f"{place}: {error!r}"
        return str(error or "")

    def close(self):
        self._calls.put(None)


@pytest.fixture
def attempts():
    result = Attempts()
    yield result
    result.close()


def check_all(state: Any, resume: Callable[[Any], Any], attempts: Attempts, values: tuple[Any, ...] = HUGE):
    """Sets each number to each value. An error must name the number.

    Args:
      resume: continues from a state; asserts that it reads what it should.
    """
    assert attempts(lambda: resume(state), "the state itself") == ""
    errors = 0
    for path in numbers(state):
        for value in values:
            place = f"{'.'.join(map(str, path))} = {value}"
            error = attempts(lambda path=path, value=value: resume(changed(state, path, value)), place)
            name = next(key for key in reversed(path) if isinstance(key, str) and not key.isdecimal())
            assert not error or name in error or any(text in error for text in CONTRADICTIONS), f"{place}: {error}"
            assert len(error) < 600, place
            errors += bool(error)
    assert errors


def resigned(state: Any) -> Any:
    """A state with the checksums of its contents."""
    if isinstance(state, list):  # checkpoints
        return [json.dumps(signed(unsigned(x))).encode() for x in state]
    return {
        **state,
        "iterator": signed(unsigned(state["iterator"])),
        "pipelines": [signed(unsigned(x)) for x in state["pipelines"]],
    }


class Case:
    """An iterator over a reader, in the middle of its second epoch.

    Args:
      shards, later_shards: of the state, and of the iterator that continues.
      resumed: whether the state is of an iterator that continued from another number of shards.
      form: of the state, "state" or "checkpoints".
    """

    def __init__(
        self,
        data_sets: DataSets,
        reader: str,
        order: dict[str, Any],
        policy: str = "FILL",
        shards: int = 1,
        later_shards: int = 1,
        resumed: bool = False,
        form: str = "state",
        restart_epoch: bool = False,
        **options: Any,
    ):
        arguments = data_sets(reader)
        self._batch_size, self._restart = 4, restart_epoch

        def define(num_shards=1, shard_id=0):
            nodes = nodes_in(
                getattr(fn.readers, reader)(
                    **arguments, **order, name="reader", num_shards=num_shards, shard_id=shard_id
                )
            )
            return fn.pad(fn.reshape(nodes[0], shape=[-1])), fn.random.uniform(range=[0.0, 1.0])

        def iterator(shards: int):
            factory = data_iterator(
                define,
                ["x", "u"],
                last_batch_policy=LastBatchPolicy[policy],
                sharding=shardings.of_batch(shards) if shards > 1 else None,
                **{"reader_name": "reader", **options},
            )
            return factory(batch_size=self._batch_size * shards, num_threads=2, enable_checkpointing=True, seed=1)

        with pipeline_def(define)(batch_size=SIZE, num_threads=2) as pipe:
            self._known = self._samples([[x.as_array() for x in pipe.run()]])
        assert len(self._known) == SIZE
        with iterator(shards) as it:
            self._epoch(it)
            self._epoch(it, 2)
            state = it.checkpoints() if form == "checkpoints" else it.get_state()
        if resumed:
            with iterator(later_shards) as it:
                it.set_state(state)
                self._epoch(it, 1)
                state = it.get_state()
        self.state = [json.loads(x) for x in state] if isinstance(state, list) else json.loads(json.dumps(state))
        self._it = iterator(later_shards)

    @staticmethod
    def _epoch(it: Any, most: int = 1000) -> list[Any]:
        """The rest of the epoch, at most so many batches."""
        batches = []
        for _ in range(most):
            try:
                batches.append([np.asarray(x) for x in next(it).values()])
            except StopIteration:
                it.reset()
                break
        return batches

    @staticmethod
    def _samples(batches: list[list[Any]]) -> set[bytes]:
        """The contents of the samples, without padding."""
        return {x.tobytes().rstrip(b"\0") for data, *_ in batches for x in data}

    def resume(self, state: Any):
        """Sets the state, and reads three epochs: no more batches than they have, of samples of the data set, with
        random numbers of their own.
        """
        self._it.set_state(resigned(state), **({"restart_epoch": True} if self._restart else {}))
        max_batches = -(-SIZE // self._batch_size) + 1
        epochs = [self._epoch(self._it, max_batches + 1) for _ in range(3)]
        assert all(len(epoch) <= max_batches for epoch in epochs), "the epoch does not end"
        assert any(epochs)
        assert all(self._samples(epoch) <= self._known for epoch in epochs)
        draws = np.concatenate([x[1] for epoch in epochs for x in epoch])
        assert ((draws >= 0) & (draws < 1)).all()
        assert len(np.unique(draws)) > len(draws) // 2
        json.dumps(self._it.get_state())

    def close(self):
        self._it.close()


@pytest.mark.parametrize("name", READERS)
def test_numbers_of_readers(data_sets, attempts, name):
    with contextlib.closing(Case(data_sets, name, ORDERS[READERS.index(name) % len(ORDERS)])) as case:
        check_all(case.state, case.resume, attempts)


CASES: dict[str, dict[str, Any]] = {
    "shards": {"order": {"random_shuffle": True}, "shards": 2, "later_shards": 2},
    "other shards": {"order": {"random_shuffle": True}, "shards": 3, "later_shards": 2},
    "resumed with other shards": {
        "order": {"random_shuffle": True}, "shards": 3, "later_shards": 2, "resumed": True,
    },
    "restarted": {"order": {"shuffle_after_epoch": True}, "shards": 2, "later_shards": 3, "restart_epoch": True},
    "checkpoints": {"order": {"shuffle": "global"}, "shards": 2, "later_shards": 2, "form": "checkpoints"},
    "dropped": {"order": {"pad_last_batch": True}, "policy": "DROP", "shards": 2, "later_shards": 3},
    "masked": {"order": {"shuffle_after_epoch": True}, "policy": "PARTIAL", "mask_name": "mask"},
    "counted": {"order": {"random_shuffle": True}, "reader_name": None, "size": 21},
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*size is given", "ignore:.*can't go on with another number of shards")
@pytest.mark.parametrize("name", CASES)
def test_numbers_of_iterators(data_sets, attempts, name):
    with contextlib.closing(Case(data_sets, "file", **CASES[name])) as case:
        check_all(case.state, case.resume, attempts, (*HUGE, -1, 10**40, 1.5))


@pytest.mark.many
@pytest.mark.filterwarnings("ignore:.*can't go on with another number of shards")
@pytest.mark.parametrize("policy", ["FILL", "DROP", "PARTIAL"])
@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("shards", [(1, 1), (2, 2), (3, 2)], ids=str)
def test_numbers_in_all_orders(data_sets, attempts, order, policy, shards):
    mask = {"mask_name": "mask"} if policy == "PARTIAL" else {}
    if policy == "DROP" and shards == (3, 2):  # without padding the rest of an epoch can't be divided
        order = order | {"pad_last_batch": True}
    for name in READERS if shards == (1, 1) and policy == "FILL" else ["file"]:
        with contextlib.closing(Case(data_sets, name, order, policy, *shards, **mask)) as case:
            check_all(case.state, case.resume, attempts)


class Counting:
    """An iterable with a state."""

    def __init__(self):
        self.i = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.i += 1
        if self.i > SIZE:
            self.i = 0
            raise StopIteration
        return np.int32([self.i])

    def get_state(self):
        return {"next": self.i}

    def set_state(self, state):
        self.i = state["next"]


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (lambda info: np.int64([info.idx_in_epoch]), {"batch": False}),
        (lambda info: np.int64([info.idx_in_epoch]), {"batch": False, "parallel": True}),
        (lambda: [np.int32([1])] * 4, {}),
        (Counting(), {"batch": False, "cycle": "raise"}),
        ([[np.int32([i])] * 4 for i in range(6)], {"cycle": "raise"}),
    ],
)
def test_numbers_of_external_sources(attempts, source, options):
    factory = data_iterator(lambda: fn.external_source(source, name="numbers", **options), ["x"])
    with factory(batch_size=4, num_threads=2) as it:
        next(it)
        state = json.loads(json.dumps(it.get_state()))

        def resume(state: Any):
            it.set_state(resigned(state))
            for _ in range(3):
                try:
                    assert np.asarray(next(it)["x"]).shape == (4, 1)
                except StopIteration:
                    it.reset()

        check_all(state, resume, attempts, (*HUGE, -1, 10**40))


def test_numbers_of_readers_without_pipelines(data_sets, attempts):
    reader = jd.readers.File(**data_sets("file"), shuffle_after_epoch=True, batch_size=4)
    for _ in range(2):
        next(reader.next_epoch())
    state = json.loads(reader.checkpoint())

    def resume(state: Any):
        reader.set_state(signed(unsigned(state)))
        for _ in range(2):
            assert len(list(reader.next_epoch())) <= 6

    check_all(state, resume, attempts, (*HUGE, -1, 10**40, 1.5))
    reader.close()


def test_numbers_of_pipelines(data_sets, attempts):
    @pipeline_def(batch_size=4, num_threads=2, enable_checkpointing=True)
    def define():
        return tuple(fn.readers.file(**data_sets("file"), random_shuffle=True))

    with define() as pipe:
        pipe.run()
        state = json.loads(pipe.checkpoint())

    def resume(state: Any):
        with define(checkpoint=json.dumps(signed(unsigned(state))).encode()) as pipe:
            pipe.run()

    check_all(state, resume, attempts)


# --- orders that take long --------------------------------------------------------------------------------------------


def test_shuffling_hears_an_interrupt():
    """An interrupt between shuffles ends the computation of an order, and the next one is right."""

    def interrupt(*_: Any):
        raise KeyboardInterrupt

    expected = epoch_order(1001, 5, 3).copy()
    epoch_order.cache_clear()
    old_handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            epoch_order(1001, 5, 10**12)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old_handler)
    assert (epoch_order(1001, 5, 3) == expected).all()
