"""A new iterator over the same pipeline, one per epoch. Batches are those that DALI 2.4 gives."""

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


@pytest.mark.parametrize("how", ["reset", "gone", "exhausted"])
@pytest.mark.parametrize(
    ("kind", "epochs"), [("raise", [[10, 20, 30]] * 3), ("samples", [[0, 2, 4], [100, 102, 104], [200, 202, 204]])]
)
def test_one_per_epoch(kind, epochs, how):
    pipe, it, got = make(kind), None, []
    for _ in range(3):
        if how == "reset":
            pipe.reset()
        if how == "gone":
            it = None
        it = iterator(pipe)
        got.append(take(it))
    assert got == epochs


def test_what_was_made_ahead_is_not_lost():
    """DALI's: of size 6 all epochs begin with 10, though batches of the next were made ahead; and in the midst of an
    epoch.
    """
    pipe, it, got = make("quiet"), None, []
    for _ in range(3):
        it = None
        with pytest.warns(UserWarning, match="size is given"):
            it = iterator(pipe, size=6)
        got.append(take(it))
    assert got == [[10, 20, 30]] * 3
    pipe, got = make("raise"), []
    for _ in range(3):
        pipe.reset()
        it = iterator(pipe)
        got += take(it, 1)
    assert got == [10, 20, 30]
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
    pipe, got = read(files), []
    for _ in epochs:
        got.append([b["x"].tolist()[0][0] for b in iterator(pipe, reader_name="r", last_batch_policy=policy)])
    if policy is LastBatchPolicy.DROP:
        assert [len(e) for e in got] == [3, 3]
        assert got[0] == [1, 3, 5]
    else:
        assert got == epochs


def test_masks_count_each_sample_once_per_epoch(files):
    pipe = read(files)
    for _ in range(3):
        it = iterator(pipe, reader_name="r", last_batch_policy=LastBatchPolicy.PARTIAL, mask_name="valid")
        assert sorted(x for b in it for x in np.asarray(b["x"])[np.asarray(b["valid"])].ravel().tolist()) == list(
            range(1, 8)
        )


def test_what_is_refused(files):
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


def test_the_next_one_starts_threads_that_wait_for_work():
    """The thread of a pipeline whose source is called in the user's thread may wait for that when the iterator goes."""
    pipe, got = make("quiet"), []
    for _ in range(20):
        it = iterator(pipe, prepare_first_batch=False)
        got += take(it, 2)
        del it
    assert got == [10, 20, 30] * 13 + [10]


def test_nothing_is_left_behind(own_threads):
    """Also of a pipeline that its own source refers to."""

    class Own(Pipeline):
        def data(self):
            return np.zeros(2, np.int32)

        def define_graph(self):
            return fn.external_source(self.data)

    pipe = Own(batch_size=2, num_threads=1)
    it = iterator(pipe)
    next(it)
    assert own_threads("jaxdali-produce")
    gone = weakref.ref(pipe)
    del it
    gc.collect()
    assert not own_threads("jaxdali-produce")
    assert next(iterator(pipe))["x"].tolist() == [0, 0]
    del pipe
    gc.collect()
    assert gone() is None
