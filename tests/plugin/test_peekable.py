"""Peekable iterators: the next batch, its spec, and the mask of padding."""

import dataclasses
import sys
import threading
import types as python_types

import numpy as np
import pytest
import shardings

from jaxdali import fn, pipeline_def
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import DALIGenericPeekableIterator, clu, peekable_data_iterator


@pytest.fixture(scope="module")
def files(files):
    return files[:10]


def definition(files, num_shards=1, shard_id=0, pad=False):
    return fn.readers.file(files=files, name="reader", num_shards=num_shards, shard_id=shard_id, pad_last_batch=pad)


def make(files, n=7, **options):
    return peekable_data_iterator(definition, ["x", "label"], reader_name="reader", **options)(files[:n], batch_size=2)


def numbers(batch):
    return np.ravel(batch["x"]).tolist()


def test_peek_does_not_take_the_batch(files):
    with make(files) as it:
        batch_numbers = []
        for _ in range(2):
            for _ in range(len(it)):
                peeked = [it.peek() for _ in range(3)] + [it.peek_async().result(10)]
                batch = next(it)
                assert all(p[k] is batch[k] for p in peeked for k in ("x", "label"))
                batch_numbers.append(numbers(batch))
            for call in (it.peek, it.__next__, it.peek_async().result):
                with pytest.raises(StopIteration):
                    call()
            it.reset()
    assert batch_numbers == [[1, 2], [3, 4], [5, 6], [7, 1], [2, 3], [4, 5], [6, 7]]


def test_loop_takes_a_peeked_batch(files, caplog):
    with make(files, 6) as it:
        next(it)
        it.peek()
        assert [numbers(b) for b in it] == [[3, 4], [5, 6]]
        assert not caplog.records
        assert [numbers(b) for b in it] == [[1, 2], [3, 4], [5, 6]]


def test_restarted_epochs(files):
    with make(files, 6) as it:
        next(it)
        state = it.get_state()
        it.peek()
        it.set_state(state, restart_epoch=True)
        assert [numbers(b) for b in it] == [[1, 2], [3, 4], [5, 6]]


def test_auto_reset(files):
    with make(files, 4, auto_reset=True) as it:
        for _ in range(2):
            assert [numbers(next(it)) for _ in range(2)] == [[1, 2], [3, 4]]
            with pytest.raises(StopIteration):
                it.peek()
            assert numbers(it.peek()) == [1, 2]


def test_states_ignore_peeked_batches(files):
    with make(files) as it, make(files) as resumed:
        next(it)
        it.peek()
        state = it.get_state()
        assert numbers(next(it)) == [3, 4]
        assert numbers(resumed.peek()) == [1, 2]
        resumed.set_state(state)
        assert numbers(resumed.peek()) == numbers(next(resumed)) == [3, 4]


def test_element_spec(files):
    with make(files) as it:
        spec = it.element_spec
        assert spec == {
            "x": clu.ArraySpec(np.dtype(np.uint8), (2, 1)),
            "label": clu.ArraySpec(np.dtype(np.int32), (2, 1)),
        }
        assert numbers(next(it)) == [1, 2]


def test_element_spec_with_clu(files, monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class TheirSpec:
        dtype: object
        shape: tuple

    package, data, module = (python_types.ModuleType(n) for n in ("clu", "clu.data", "clu.data.dataset_iterator"))
    package.__spec__ = object()  # pyright: ignore[reportAttributeAccessIssue]
    module.ArraySpec = TheirSpec  # pyright: ignore[reportAttributeAccessIssue]
    data.dataset_iterator = module  # pyright: ignore[reportAttributeAccessIssue]
    for m in (package, data, module):
        monkeypatch.setitem(sys.modules, m.__name__, m)
    clu._array_spec.cache_clear()
    with make(files) as it:
        assert it.element_spec["x"] == TheirSpec(np.dtype(np.uint8), (2, 1))
    clu._array_spec.cache_clear()


def test_peek_and_next_raise_errors():
    @pipeline_def(batch_size=1)
    def changing():
        def source(info):
            if info.iteration == 2:
                raise LookupError("no third")
            return np.zeros(3 if info.iteration == 1 else 2, np.uint8)

        return fn.external_source(source=source, batch=False)

    with DALIGenericPeekableIterator(changing(), ["x"]) as it:
        next(it)
        for call, error, text in [
            (it.peek, ValueError, r"'x' changed from uint8\[1, 2\] to uint8\[1, 3\]"),
            (it.__next__, ValueError, "changed"),
            (lambda: it.peek_async().result(10), LookupError, "no third"),
            (it.__next__, LookupError, "no third"),
        ]:
            with pytest.raises(error, match=text):
                call()
        assert it.peek()["x"].shape == next(it)["x"].shape == (1, 2)


@pytest.mark.parametrize("pad", [False, True])
def test_is_nonpadding(files, pad):
    sharding = shardings.of_batch(2)
    with peekable_data_iterator(definition, ["x", "label"], reader_name="reader", sharding=sharding)(
        files[:7], batch_size=4, pad=pad
    ) as it:
        assert it.is_nonpadding.tolist() == [True] * 4
        for want in [[True] * 4, [True, False, True, True]]:
            next(it)
            it.peek() if len(it) < 2 else None
            assert it.is_nonpadding.tolist() == want
            assert it.is_nonpadding.sharding == sharding


def test_threads_share_an_iterator(files):
    with make(files, 10, auto_reset=True, last_batch_policy=LastBatchPolicy.DROP) as it:
        first_numbers: list[int] = []

        def work():
            for _ in range(40):
                try:
                    it.peek()
                    first_numbers.append(numbers(next(it))[0])
                except StopIteration:
                    pass

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert sorted(set(first_numbers)) == [1, 3, 5, 7, 9]
    counts = [first_numbers.count(x) for x in (1, 3, 5, 7, 9)]
    assert max(counts) - min(counts) <= 1


def test_close_ends_a_waiting_peek():
    go_on = threading.Event()

    @pipeline_def(batch_size=1)
    def slow():
        def source(info):
            if info.iteration:
                go_on.wait(10)
            return np.zeros(1, np.uint8)

        return fn.external_source(source=source, batch=False, parallel=True)

    it = DALIGenericPeekableIterator(slow(), ["x"])
    next(it)
    future = it.peek_async()
    closing = threading.Thread(target=it.close)
    closing.start()
    with pytest.raises(RuntimeError, match="closed"):
        future.result(10)
    go_on.set()
    closing.join()
