"""A new iterator over the same pipeline for each epoch. The expected batches are those of DALI 2.4."""

import gc
import weakref

import numpy as np
import pytest

from jaxdali import Pipeline, fn, pipeline_def
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import DALIGenericIterator


class Batches:
    """Three batches per epoch: 10, 20, 30."""

    def __iter__(self):
        self.i = 0
        return self

    def __next__(self):
        if self.i == 3:
            raise StopIteration
        self.i += 1
        return np.full(2, 10 * self.i, np.int32)


def by_sample(info):
    if info.iteration >= 3:
        raise StopIteration
    return np.int32(100 * info.epoch_idx + info.idx_in_epoch)


def make(kind):
    @pipeline_def(batch_size=2, num_threads=1)
    def define():
        if kind == "samples":
            return fn.external_source(by_sample, batch=False)
        return fn.external_source(Batches(), cycle=kind)

    return define()


def take(it, n=None):
    return [b["x"].tolist()[0] for b in it] if n is None else [next(it)["x"].tolist()[0] for _ in range(n)]


def iterator(pipe, **options):
    return DALIGenericIterator(pipe, ["x"], **options)


@pytest.mark.parametrize("ending", ["reset", "gone", "exhausted"])
@pytest.mark.parametrize(
    ("kind", "epochs"), [("raise", [[10, 20, 30]] * 3), ("samples", [[0, 2, 4], [100, 102, 104], [200, 202, 204]])]
)
def test_one_per_epoch(kind, epochs, ending):
    pipe, it, first_values = make(kind), None, []
    for _ in range(3):
        if ending == "reset":
            pipe.reset()
        if ending == "gone":
            it = None
        it = iterator(pipe)
        first_values.append(take(it))
    assert first_values == epochs


def test_batches_made_ahead_are_kept():
    """As in DALI: with size=6 all epochs begin with 10, although batches of the next one were made ahead.

    A new iterator in the middle of an epoch continues it.
    """
    pipe, it, first_values = make("quiet"), None, []
    for _ in range(3):
        it = None
        it = iterator(pipe, size=6)
        first_values.append(take(it))
    assert first_values == [[10, 20, 30]] * 3
    pipe, first_values = make("raise"), []
    for _ in range(3):
        pipe.reset()
        it = iterator(pipe)
        first_values += take(it, 1)
    assert first_values == [10, 20, 30]
    with pytest.raises(StopIteration):
        next(it)


@pytest.fixture(scope="module")
def files(files):
    return files[:7]


def read(files):
    pipe = Pipeline(batch_size=2, num_threads=1)
    data, _ = fn.readers.file(files=files, name="r")
    pipe.set_outputs(data)
    return pipe


@pytest.mark.parametrize(
    ("policy", "epochs"),
    [
        (LastBatchPolicy.FILL, [[1, 3, 5, 7], [2, 4, 6, 1], [3, 5, 7, 2]]),
        (LastBatchPolicy.DROP, [[1, 3, 5]] * 2),
    ],
)
def test_readers(files, policy, epochs):
    pipe, first_values = read(files), []
    for _ in epochs:
        first_values.append([b["x"].tolist()[0][0] for b in iterator(pipe, reader_name="r", last_batch_policy=policy)])
    if policy is LastBatchPolicy.DROP:
        assert [len(e) for e in first_values] == [3, 3]
        assert first_values[0] == [1, 3, 5]
    else:
        assert first_values == epochs


def test_masks_count_each_sample_once_per_epoch(files):
    pipe = read(files)
    for _ in range(3):
        it = iterator(pipe, reader_name="r", last_batch_policy=LastBatchPolicy.PARTIAL, mask_name="valid")
        assert sorted(x for b in it for x in np.asarray(b["x"])[np.asarray(b["valid"])].ravel().tolist()) == list(
            range(1, 8)
        )


def test_conflicting_iterators(files):
    pipe = read(files)
    first = iterator(pipe, reader_name="r")
    next(first)
    with pytest.raises(RuntimeError, match="in use already, by another iterator, which is not at the end of its epoch"):
        iterator(pipe, reader_name="r")
    with pytest.raises(RuntimeError, match="in use already, by an iterator with other arguments"):
        DALIGenericIterator(pipe, ["y"], reader_name="r")
    with pytest.raises(RuntimeError, match="used by an iterator"):
        pipe.run()
    pipe.reset()
    second = iterator(pipe, reader_name="r")
    with pytest.raises(RuntimeError, match="has replaced this one"):
        next(first)
    second.close()
    with pytest.raises(RuntimeError, match="by an iterator that was closed"):
        iterator(pipe, reader_name="r")
    pipe = read(files)
    pipe.run()
    with pytest.raises(RuntimeError, match="in use already"):
        iterator(pipe, reader_name="r")


def test_new_iterator_restarts_waiting_threads():
    """The source is called in the user's thread.

    When an iterator is deleted, the pipeline's thread may wait for that.
    """
    pipe, first_values = make("quiet"), []
    for _ in range(20):
        it = iterator(pipe, prepare_first_batch=False)
        first_values += take(it, 2)
        del it
    assert first_values == [10, 20, 30] * 13 + [10]


def test_nothing_is_left_behind(own_threads):
    """Threads end and the pipeline is freed, even if its own source refers to it."""

    class Own(Pipeline):
        def data(self):
            return np.zeros(2, np.int32)

        def define_graph(self):
            return fn.external_source(self.data)

    pipe = Own(batch_size=2, num_threads=1)
    it = iterator(pipe)
    next(it)
    assert own_threads("jaxdali-produce")
    pipe_ref = weakref.ref(pipe)
    del it
    gc.collect()
    assert not own_threads("jaxdali-produce")
    assert next(iterator(pipe))["x"].tolist() == [0, 0]
    del pipe
    gc.collect()
    assert pipe_ref() is None
