"""With many native threads, a thread of its own reads lists ahead of the batches that the user has."""

import gc
import threading
import traceback
from typing import ClassVar

import counts
import numpy as np
import pytest

from jaxdali import fn
from jaxdali._batch.executor import MANY_THREADS, max_dispatched_on_cpu
from jaxdali._core.errors import SampleError
from jaxdali._data.list_source import ListSource
from jaxdali.extend import Reader, Records, Spec, operator_function
from jaxdali.plugin.jax import data_iterator


class Numbers(Records):
    """The numbers from 0 to 9; one of them can't be read, and with 9 the reader itself has an error."""

    specs = (Spec(np.dtype(np.int32), 0, ()),)
    digest = "numbers"

    def __init__(self, missing: int):
        self._missing = missing

    def __len__(self) -> int:
        return 10

    def name(self, i: int) -> str:
        return str(i)

    def read(self, i: int):
        if i == self._missing:
            raise LookupError("a bug") if i == 9 else ValueError("it is not there")
        return (np.int32(i),)


class ReadNumbers(Reader):
    name: ClassVar[str] = "test.numbers_aside"
    missing: int

    def open(self) -> Numbers:
        return Numbers(self.missing)


@operator_function(ReadNumbers)
def numbers(*, missing: int = -1, seed: int = -1, random_shuffle: bool = False, name: str | None = None):
    """Reads numbers."""
    ...


def iterator_of(**arguments):
    @data_iterator(output_map=["x"], reader_name="reader", repeat=True)
    def define():
        return numbers(name="reader", **arguments)

    return define(batch_size=3, num_threads=MANY_THREADS, seed=5)


@pytest.mark.parametrize("collected", [False, True])
def test_the_thread_ends(own_threads, collected):
    iterator = iterator_of()
    next(iterator)
    (thread,) = own_threads("jaxdali-read")
    if collected:
        del iterator
        gc.collect()
    else:
        iterator.close()
    thread.join(10)
    assert not thread.is_alive()


def test_thread_ends_while_it_awaits_an_epoch(own_threads):
    """The reading thread lives on from one epoch to the next, and ends while it waits for another."""

    @data_iterator(output_map=["x"], reader_name="reader")
    def define():
        return numbers(name="reader")

    with define(batch_size=5, num_threads=MANY_THREADS) as iterator:
        assert len(list(iterator)) == 2
        (thread,) = own_threads("jaxdali-read")
        iterator.reset()
        assert len(list(iterator)) == 2
        assert own_threads("jaxdali-read") == [thread]
    assert not thread.is_alive()


def test_user_functions_run_in_other_threads(own_threads):
    called_in = set()

    def supply():
        called_in.add(threading.current_thread().name)
        return np.zeros(3, np.uint8)

    @data_iterator(output_map=["x", "y"])
    def define():
        return numbers(name="reader"), fn.external_source(source=supply, batch=False)

    with define(batch_size=3, num_threads=MANY_THREADS) as iterator:
        next(iterator)
        assert not own_threads("jaxdali-read")
    assert not called_in & {"jaxdali-read"}


def test_errors_reach_the_user():
    """Each error consumes its batch, and names the line of the definition."""
    with iterator_of(missing=4) as iterator:
        np.testing.assert_array_equal(next(iterator)["x"], [0, 1, 2])
        with pytest.raises(
            SampleError, match=r"(?s)test.numbers_aside \(created at .*test_reading_aside.py.*it is not there"
        ):
            next(iterator)
        np.testing.assert_array_equal(next(iterator)["x"], [6, 7, 8])


def test_exceptions_of_readers_have_their_tracebacks():
    with iterator_of(missing=9) as iterator:
        for _ in range(3):
            next(iterator)
        with pytest.raises(LookupError, match="a bug") as caught:
            next(iterator)
    assert any("test.numbers_aside (created at" in note for note in caught.value.__notes__)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "read"


@pytest.mark.parametrize("taken", [1, 3, 5])
def test_state_ignores_batches_read_ahead(monkeypatch, taken):
    """The state is that of the batches taken, also where those read ahead belong to the next epoch."""
    read, done = ListSource.read, []

    def noted(self, *args):
        result = read(self, *args)
        done.append(result)
        return result

    monkeypatch.setattr(ListSource, "read", noted)
    with iterator_of(random_shuffle=True) as iterator, iterator_of(random_shuffle=True) as resumed:
        for _ in range(taken):
            next(iterator)
        assert counts.until(lambda: len(done) > taken)
        resumed.set_state(iterator.get_state())
        for _ in range(6):
            np.testing.assert_array_equal(next(resumed)["x"], next(iterator)["x"])


def test_many_threads_get_more_dispatched_batches():
    assert [max_dispatched_on_cpu(n) for n in (1, 15, 16, 32, 48, 64, 256)] == [2, 2, 3, 4, 5, 6, 6]
