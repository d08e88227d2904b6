"""The end of the data: returned and dropped samples, warnings, and iterators that never end."""

import functools
import io
import itertools
import json
import logging
import operator
import re
import warnings

import jax
import numpy as np
import pytest

from jaxdali import Pipeline, fn, pipeline_def, types
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import DALIGenericIterator, DALIGenericPeekableIterator, data_iterator

HERE = re.escape(__file__)
KINDS = [DALIGenericIterator, DALIGenericPeekableIterator]
try:
    from jaxdali.plugin import pytorch

    KINDS.append(pytorch.DALIGenericIterator)
except ImportError:
    pass
PARTIAL = {"last_batch_policy": LastBatchPolicy.PARTIAL, "mask_name": "m"}


def pipe(define, batch_size=4, **arguments):
    return pipeline_def(define)(batch_size=batch_size, device_id=None, **arguments)


def numbers(batch):
    batch = batch if isinstance(batch, dict) else batch[0]
    x = np.asarray(batch["x"]).ravel()
    return (x[np.asarray(batch["m"]).ravel()] if "m" in batch else x).tolist()


def epoch(it):
    return [x for batch in it for x in numbers(batch)]


def samples(n, start=0):
    return [np.array([i]) for i in range(start, start + n)]


def quietly(action):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return action()


def one_warning(action):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = action()
    (warning,) = caught
    assert warning.category is UserWarning
    return str(warning.message), warning.filename, result


# --- an epoch without data --------------------------------------------------------------------------------------------


def generated():
    yield from (np.array([[i]] * 4) for i in range(3))


SOURCES = {
    "list": (lambda: list(generated()), 'its list is used up; cycle="raise" begins it again'),
    "generator": (generated, r"its generator is used up; pass the generator function instead: cycle=\"raise\" begins"),
    "function": (lambda: generated, 'its generator function is used up; cycle="raise" begins'),
    "iterator": (
        lambda: iter(list(generated())),
        r"its list_iterator, an iterator, is used up; pass what it iterates over instead",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("auto_reset", [True, False])
@pytest.mark.parametrize("size", [-1, 100])
def test_empty_epoch_warns_once(kind, source, auto_reset, size):
    make, reason = SOURCES[source]
    it = kind(pipe(lambda: fn.external_source(make())), ["x"], auto_reset=auto_reset, size=size)
    assert quietly(lambda: len(list(it))) == 3
    text, file, lengths = one_warning(lambda: [len(list(it)) for _ in range(3)])
    assert lengths == [0, 0, 0]
    assert re.match(rf"external_source \(created at {HERE}:\d+\): gave no data for epoch 1: {reason}", text), text
    assert file == __file__


def test_pipeline_warns_but_cycle_raise_never():
    p = pipe(lambda: fn.external_source(list(generated())))

    def round_of(p):
        n = 0
        try:
            while True:
                p.run()
                n += 1
        except StopIteration:
            p.reset()
        return n

    assert quietly(lambda: round_of(p)) == 3
    text, _, n = one_warning(lambda: round_of(p))
    assert (n, 'cycle="raise"' in text) == (0, True)
    it = DALIGenericIterator(pipe(lambda: fn.external_source(list(generated()), cycle="raise")), ["x"])
    assert quietly(lambda: [len(list(it)) for _ in range(3)]) == [3, 3, 3]


# --- a loop without end -----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    for i in range(10):
        (tmp_path / f"{i}.bin").write_bytes(bytes([i]))
    return sorted(map(str, tmp_path.glob("*.bin")))


def read(files, **arguments):
    return fn.readers.file(files=files, labels=list(range(len(files))), **arguments)[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [None, "train"])
def test_loop_past_the_only_reader_warns(folder, kind, name):
    it = kind(pipe(lambda: read(folder, name=name)), ["x"])
    assert (bool(it), len(it), operator.length_hint(it)) == (True, 0, 0)
    quietly(lambda: [next(it) for _ in range(5)])  # no loop: nobody expects an end
    quietly(lambda: list(itertools.islice(it, 0)))
    it = kind(pipe(lambda: read(folder, name=name)), ["x"])
    quietly(lambda: list(itertools.islice(it, 3)))
    text, file, batches = one_warning(lambda: list(itertools.islice(it, 6)))
    assert len(batches) == 6  # nothing ends that does not end in DALI
    assert f'pass reader_name="{name or "__readers.file_0"}"' in text
    assert re.match(rf"this loop has taken all 10 samples of readers.file \(created at {HERE}:\d+\)", text)
    assert file == __file__
    line = re.search(r'reader_name="([^"]*)"', text)[1]
    ends = kind(pipe(lambda: read(folder, name=name)), ["x"], reader_name=line)
    assert quietly(lambda: len(list(ends))) == len(ends) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_tqdm_shows_no_unknown_total(folder, kind):
    tqdm = pytest.importorskip("tqdm").tqdm
    it = kind(pipe(lambda: read(folder)), ["x"])
    bar = tqdm(it, file=io.StringIO())
    next(iter(bar))
    assert not bar.total
    assert "0/0" not in str(bar)
    assert "%" not in str(bar)
    bar = tqdm(kind(pipe(lambda: read(folder, name="r")), ["x"], reader_name="r"), file=io.StringIO())
    assert bar.total == 3


def test_loop_in_mid_epoch_logs(folder, caplog):
    it = DALIGenericIterator(pipe(lambda: read(folder, name="r")), ["x"], reader_name="r")
    next(it)
    with caplog.at_level(logging.WARNING):
        assert len(list(it)) == 2
    (record,) = caplog.records
    assert (
        record.getMessage()
        == "DALIGenericIterator: this loop continues in the middle of epoch 0 (1 of 3 batches were taken); "
        "set_state(get_state(), restart_epoch=True) begins it anew"
    )


@pytest.mark.filterwarnings("ignore:size is given")
@pytest.mark.parametrize("reader_name", ["r", None])
def test_begin_an_epoch_anew(reader_name, caplog):
    """As the message says, for an evaluation of the first batches."""
    size = {"reader_name": reader_name} if reader_name else {"size": 12}
    rows = {"x": np.arange(12)}
    it = data_iterator(lambda: fn.readers.source(rows, shuffle="global", name="r")["x"], ["x"], **size)(batch_size=2)
    firsts = []
    for _ in range(3):
        begin = it.get_state()
        firsts.append([np.asarray(b["x"]).tolist() for b in itertools.islice(it, 2)])
        it.reset()
        way = "get_state(), restart_epoch=True" if reader_name else "the get_state() of before its first batch"
        assert "reset() before the end of the epoch is ignored" in caplog.messages[-1]
        assert caplog.messages[-1].endswith(f"(2 of 6 batches were taken); set_state({way}) begins it anew")
        it.set_state(it.get_state() if reader_name else begin, restart_epoch=reader_name is not None)
    assert firsts == [firsts[0]] * 3
    assert "this loop" not in caplog.text
    it = data_iterator(lambda: fn.external_source(samples(12), batch=False), ["x"], size=12)(batch_size=2)
    next(it)
    it.reset()
    assert caplog.messages[-1].endswith("(1 of 6 batches were taken)")


# --- the last samples of sources of samples ---------------------------------------------------------------------------


class ByIndex:
    def __init__(self, n, start=0):
        self.n, self.start = n, start

    def __call__(self, info):
        if info.idx_in_epoch >= self.n:
            raise StopIteration
        return np.array([self.start + info.idx_in_epoch])


FEEDS = {
    "list": lambda n: {"source": samples(n), "cycle": "raise"},
    "generator function": lambda n: {"source": functools.partial(_each, n), "cycle": "raise"},
    "callable": lambda n: {"source": ByIndex(n)},
    "parallel": lambda n: {"source": ByIndex(n), "parallel": True},
}


def _each(n):
    yield from samples(n)


@pytest.mark.parametrize("feed", FEEDS)
@pytest.mark.parametrize("n", [1, 8, 9, 37])
@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("kind", KINDS[:2])
def test_mask_gives_each_sample_once(feed, n, sized, kind):
    p = pipe(lambda: fn.external_source(batch=False, **FEEDS[feed](n)), batch_size=8, py_num_workers=2)
    it = kind(p, ["x"], size=n if sized else -1, **PARTIAL)
    assert quietly(lambda: [epoch(it) for _ in range(3)]) == [list(range(n))] * 3


def in_batches(n, start, batch_size):
    """Batches of a shard's samples, the last one short."""
    x = np.arange(start, start + n)[:, None]
    return [x[i : i + batch_size] for i in range(0, n, batch_size)]


def shards_of_lengths(counts, B, kind, feed, **arguments):
    """An iterator over a source for each shard, and all of its samples in order."""
    S = len(counts)

    def define(num_shards, shard_id):
        n, start = counts[shard_id], 100 * shard_id
        if feed == "by index":
            return fn.external_source(ByIndex(n, start), batch=False, dtype=types.INT64, ndim=1)
        source = in_batches(n, start, B) if feed == "batches" else samples(n, start)
        return fn.external_source(source, batch=feed == "batches", dtype=types.INT64, ndim=1, cycle="raise")

    if kind == "sharded":
        mesh = jax.make_mesh((S,), ("x",), devices=jax.devices()[:S])
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
        it = data_iterator(define, ["x"], sharding=sharding, **arguments)(batch_size=B * S)
    else:
        it = DALIGenericIterator([pipe(lambda i=i: define(S, i), batch_size=B) for i in range(S)], ["x"], **arguments)
    return it, sorted(100 * s + i for s in range(S) for i in range(counts[s]))


COUNTS = [
    (3, 4),
    (4, 4),
    (5, 8),
    (4, 2),
    (1, 12),
    (12, 1),
    (0, 7),
    (9, 0),
    (2, 17, 5),
    (17, 1, 1),
    (1, 1, 17),
    (8, 8, 8),
    (16, 4, 1, 9),
]


@pytest.mark.parametrize("kind", ["sharded", "pipelines"])
@pytest.mark.parametrize("feed", ["samples", "batches", "by index"])
@pytest.mark.parametrize("counts", COUNTS)
def test_shards_of_different_lengths(counts, feed, kind):
    for B in (1, 4, 5):
        it, expected = shards_of_lengths(counts, B, kind, feed, size=sum(counts), **PARTIAL)
        for _ in range(3):
            assert sorted(epoch(it)) == expected
            it.reset()
        it.close()


@pytest.mark.parametrize("kind", ["sharded", "pipelines"])
@pytest.mark.parametrize("counts", [(1, 12), (2, 17, 5), (8, 3)])
def test_checkpoints_of_shards_of_different_lengths(counts, kind):
    """The rest of an epoch depends on the number of samples in each step, so the state has that number."""

    def make():
        return shards_of_lengths(
            counts, 4, kind, "by index", size=sum(counts), auto_reset=True, repeat=True, **PARTIAL
        )[0]

    it, steps = make(), -(-max(counts) // 4)
    states, batches = [], []
    for _ in range(2 * steps):
        states.append(json.loads(json.dumps(it.get_state())))
        batches.append(numbers(next(it)))
    assert sum(map(len, batches)) == 2 * sum(counts)
    for step, state in enumerate(states):
        resumed = make()
        resumed.set_state(state)
        assert [numbers(next(resumed)) for _ in batches[step:]] == batches[step:]
        resumed.close()


@pytest.mark.parametrize(
    ("feed", "counts", "at_least"),
    [
        ("samples", (4, 7), ""),
        ("samples", (7, 4), ""),
        ("samples", (4, 15), ""),
        ("samples", (15, 4), ""),
        ("samples", (6, 5, 15), ""),
        ("batches", (4, 8), "at least "),
        ("batches", (8, 4), ""),
    ],
)
def test_warning_counts_dropped_samples_of_all_shards(feed, counts, at_least):
    it, expected = shards_of_lengths(counts, 4, "sharded", feed, size=sum(counts))
    text, _, returned = one_warning(lambda: epoch(it))
    dropped = len(expected) - len(returned)
    assert f": {at_least}{dropped} samples are dropped" in text


@pytest.mark.parametrize("feed", FEEDS)
@pytest.mark.parametrize("taken", [1, 4, 5, 6])
def test_checkpoint_around_the_short_batch(feed, taken):
    def make():
        return DALIGenericIterator(
            pipe(lambda: fn.external_source(batch=False, **FEEDS[feed](37)), batch_size=8),
            ["x"],
            auto_reset=True,
            repeat=True,
            **PARTIAL,
        )

    it = make()
    for _ in range(taken):
        next(it)
    state = json.loads(json.dumps(it.get_state()))
    expected = [numbers(next(it)) for _ in range(8)]
    resumed = make()
    if feed in ("callable", "parallel") or taken == 5:
        resumed.set_state(state)
        assert [numbers(next(resumed)) for _ in range(8)] == expected


@pytest.mark.parametrize("kind", KINDS)
def test_warning_counts_dropped_samples(kind):
    it = kind(pipe(lambda: fn.external_source(samples(37), batch=False, cycle="raise"), batch_size=8), ["x"])
    text, file, first = one_warning(lambda: epoch(it))
    assert first == list(range(32))
    assert re.match(
        rf"external_source \(created at {HERE}:\d+\): 5 samples are dropped at the end of its data, as they do not fill a batch of 8",
        text,
    )
    assert ("mask_name" in text) == (kind in KINDS[:2])
    assert file == __file__
    assert quietly(lambda: epoch(it)) == list(range(32))  # said once
    whole = kind(pipe(lambda: fn.external_source(samples(32), batch=False, cycle="raise"), batch_size=8), ["x"])
    assert quietly(lambda: [epoch(whole) for _ in range(2)]) == [list(range(32))] * 2


# --- repeat -----------------------------------------------------------------------------------------------------------

POLICIES = {
    "FILL": {},
    "DROP": {"last_batch_policy": LastBatchPolicy.DROP},
    "masked": PARTIAL,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("source", ["reader", "samples"])
def test_repeat_gives_epoch_after_epoch(folder, kind, policy, source):
    if policy == "masked" and kind not in KINDS[:2]:
        pytest.skip("masks are for JAX")

    def make(**more):
        if source == "reader":
            return kind(
                pipe(lambda: read(folder, name="r", random_shuffle=True), seed=3),
                ["x"],
                reader_name="r",
                **POLICIES[policy],
                **more,
            )
        return kind(
            pipe(lambda: fn.external_source(samples(8), batch=False, cycle="raise")), ["x"], **POLICIES[policy], **more
        )

    plain, endless = make(), make(repeat=True)
    expected = [numbers(batch) for _ in range(3) for batch in plain]
    assert quietly(lambda: [numbers(next(endless)) for _ in expected]) == expected
    assert len(endless) == len(plain)

    middle = make(repeat=True)  # a state of it is one of any other
    for _ in range(len(expected) // 2):
        next(middle)
    state = json.loads(json.dumps(middle.get_state()))
    if source == "reader":
        for repeat in (True, False):
            resumed = make(repeat=repeat)
            resumed.set_state(state)
            batches = [numbers(b) for b in itertools.islice(resumed, len(expected))]
            remaining = expected[len(expected) // 2 :]
            assert batches[: len(remaining)] == remaining[: len(batches)]
            assert (len(batches) == len(expected)) == repeat


def test_repeat_ends_with_used_up_data():
    it = DALIGenericIterator(pipe(lambda: fn.external_source(list(generated()))), ["x"], repeat=True)
    text, _, batches = one_warning(lambda: list(it))
    assert (len(batches), "used up" in text) == (3, True)


def test_repeat_of_peeks(folder):
    it = DALIGenericPeekableIterator(pipe(lambda: read(folder, name="r")), ["x"], reader_name="r", repeat=True)
    for _ in range(8):
        peeked = numbers(it.peek())
        assert numbers(next(it)) == peeked


# --- while JAX traces -------------------------------------------------------------------------------------------------

TRACES = {
    "jit": lambda f: jax.jit(lambda: f())(),
    "vmap": lambda f: jax.vmap(lambda x: x + f())(np.ones(3)),
    "grad": lambda f: jax.grad(lambda x: x * f())(1.0),
    "scan": lambda f: jax.lax.scan(lambda c, _: (c + f(), 0), 0.0, None, length=3),
    "eval_shape": lambda f: jax.eval_shape(f),
}


@pytest.mark.parametrize("trace", TRACES)
def test_taking_a_batch_under_tracing_raises(folder, trace):
    it = DALIGenericPeekableIterator(pipe(lambda: read(folder, name="r")), ["x"], reader_name="r")
    p = pipe(lambda: read(folder))
    for take, method in (
        (lambda: next(it), "next"),
        (lambda: it.next(), "next"),
        (lambda: it.peek(), "peek"),
        (p.run, "run"),
        (p.outputs, "share_outputs"),
    ):
        with pytest.raises(RuntimeError, match=rf"{method}\(\).* at {HERE}:\d+ is called while JAX traces a function"):
            TRACES[trace](lambda take=take: take()["x"].sum())
    assert len(list(it)) == 3  # nothing was lost
    it.reset()
    assert jax.jit(lambda x: x.sum())(next(it)["x"]) == 14
    callback_sum = jax.jit(
        lambda: jax.pure_callback(
            lambda: np.float32(np.asarray(next(it)["x"]).sum()), jax.ShapeDtypeStruct((), np.float32)
        )
    )
    assert callback_sum() == 30  # a callback runs, and is not traced


def counting_resets(kind, depth=2, **options):
    """An iterator and a pipeline whose `reset` adds to the third result, which the source adds to its data."""
    resets = {"iterator": 0, "pipeline": 0}

    def data(info):
        if info.idx_in_epoch >= 4:
            raise StopIteration
        return np.array([100 * resets["iterator"] + 10 * resets["pipeline"] + info.idx_in_epoch])

    class CountingPipeline(Pipeline):
        def define_graph(self):
            return fn.external_source(data, batch=False)

        def reset(self):
            resets["pipeline"] += 1
            super().reset()

    class Counting(kind):
        def reset(self):
            resets["iterator"] += 1
            super().reset()

    p = CountingPipeline(2, 1, None, prefetch_queue_depth=depth)
    return Counting(p, ["x"], **options), p, resets


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize(("auto_reset", "count"), [(True, 3), ("yes", 3), (False, 2)])
@pytest.mark.parametrize("options", [{}, {"size": 4}, {"size": 3, "last_batch_policy": LastBatchPolicy.DROP}])
def test_overridden_resets_are_called(kind, depth, auto_reset, count, options):
    """As often as in DALI 2.4, before the source begins the next epoch."""
    it, _, resets = counting_resets(kind, depth, auto_reset=auto_reset, **options)
    n = 2 if "last_batch_policy" in options else 4
    assert [epoch(it) for _ in range(3)] == [[110 * k + i for i in range(n)] for k in range(3)]
    assert resets == {"iterator": count, "pipeline": count}


@pytest.mark.parametrize("kind", KINDS)
def test_overridden_resets_and_repeat(kind):
    it, _, resets = counting_resets(kind, repeat=True)
    assert [x for _ in range(6) for x in numbers(next(it))] == [110 * k + i for k in range(3) for i in range(4)]
    assert resets == {"iterator": 2, "pipeline": 2}
    it.reset = lambda: None  # begins no epoch
    assert list(it) == []


@pytest.mark.parametrize("kind", KINDS)
def test_only_users_reset_releases_pipelines(kind):
    it, p, resets = counting_resets(kind)
    assert len(epoch(it)) == 4
    next(iter(it))
    with pytest.raises(RuntimeError, match="in use already, by another iterator"):
        type(it)(p, ["x"])
    while next(it, None) is not None:
        pass
    p.reset()
    with type(it)(p, ["x"]) as second:  # begins the next epoch, and calls nothing
        assert epoch(second) == [120 + i for i in range(4)]
    assert resets == {"iterator": 1, "pipeline": 2}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "lengths"), [(4, [2, 1] * 2), (3, [2, 1] * 2), (6, [3] * 4), (8, [3] * 4)])
def test_epoch_of_a_sources_rest_warns(kind, size, lengths):
    """Of six samples, unlike epochs that end with them, or longer ones, which all end with them."""
    it = kind(pipe(lambda: fn.external_source(samples(6), batch=False, cycle="raise"), 2), ["x"], size=size)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [len(list(it)) for _ in lengths] == lengths
    text = f"{kind.__name__}: this epoch has 1 of 2 batches: size=4 is less than a source has"
    # With size=3 the second epoch needs two samples more than the first one has read.
    assert [str(w.message).split(", so")[0] for w in caught] == ([text] * 2 if size == 4 else [])


@pytest.mark.parametrize("kind", KINDS)
def test_ignored_reset_begins_no_rest(kind):
    """The source ends before the epoch of eight samples does, and a `reset` within it changes nothing."""
    it = kind(pipe(lambda: fn.external_source(samples(6), batch=False, cycle="raise"), 2), ["x"], size=8)
    next(it)
    it.reset()
    assert quietly(lambda: [len(list(it)) for _ in range(3)]) == [2, 3, 3]


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_loops_and_resets_of_a_closed_iterator(steps, caplog):
    it = data_iterator(lambda: fn.readers.source(list(range(6)), name="reader"), ["x"], reader_name="reader")(
        batch_size=2, num_threads=1
    )
    for _ in range(steps):
        next(it)
    it.close()
    for begin in (it.reset, it.__iter__, it.__next__):
        with pytest.raises(RuntimeError, match="the iterator is closed"):
            begin()
    assert caplog.messages == []


def test_yield_from_closes_iterators():
    """The message names the way out, which works."""

    def generator(it):
        yield from it

    def open_generator(it):
        for batch in it:  # noqa: UP028
            yield batch

    make_iterator = data_iterator(lambda: fn.readers.source(list(range(6)), name="r"), ["x"], reader_name="r")
    for pass_on in (generator, open_generator):
        it = make_iterator(batch_size=2, num_threads=1)
        batches = pass_on(it)
        assert int(next(batches)["x"][0]) == 0
        batches.close()
        if pass_on is generator:
            with pytest.raises(
                RuntimeError, match="`yield from` it; `for batch in iterator: yield batch` leaves it open"
            ):
                next(it)
    assert int(next(it)["x"][0]) == 2
