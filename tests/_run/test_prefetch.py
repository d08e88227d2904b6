"""The threads of an iterator end, wherever it becomes garbage."""

import gc
import threading

import numpy as np

from jaxdali import fn
from jaxdali._run.prefetch import close_aside
from jaxdali.plugin.jax import data_iterator


def test_garbage_collected_in_a_producing_thread():
    """Iterators, this one and another, are collected in a thread that makes batches: nobody waits for himself."""

    def make(source):
        @data_iterator(output_map=["x"])
        def define():
            return fn.external_source(source=source, batch=False)

        return define(batch_size=2)

    before = set(threading.enumerate())
    other = [make(lambda: np.zeros(3, np.uint8))]
    other[0].itself = other[0]  # only the garbage collector frees it
    dropped, collected = threading.Event(), threading.Event()

    def collect():
        if dropped.is_set() and not collected.is_set():
            gc.collect()
            collected.set()
        return np.zeros(3, np.uint8)

    iterator = make(collect)
    iterator.itself = iterator
    next(iterator)
    other.clear()
    dropped.set()
    next(iterator)
    del iterator
    assert collected.wait(10)
    for thread in set(threading.enumerate()) - before:
        gc.collect()
        thread.join(10)
        assert not thread.is_alive()


def test_collected_in_a_thread_of_a_source():
    """Readers have threads that a producing thread waits for: none of them may wait for that one."""
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
