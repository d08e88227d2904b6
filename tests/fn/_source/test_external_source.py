"""external_source: callables, iterables, fed data; ends of data, checks."""

import functools
import threading
import time

import jax.numpy as jnp
import numpy as np
import pytest
from pipelines import external

from jaxdali import fn, pipeline_def, types


def run(source, runs=8, batch_size=3, **kwargs):
    """Batches as nested lists, and "end" for each StopIteration, after which the pipeline is reset.

    A batch of several outputs is a tuple of lists.
    """
    pipe = external(source, batch_size=batch_size, **kwargs)
    batches = []
    for _ in range(runs):
        try:
            outputs = [[np.asarray(x[i]).tolist() for i in range(len(x))] for x in pipe.run()]
            batches.append(outputs[0] if len(outputs) == 1 else tuple(outputs))
        except StopIteration:
            batches.append("end")
            pipe.reset()
    pipe.close()
    return batches


def threes(n):
    return [np.full(3, i) for i in range(n)]


def generator():
    yield from threes(2)


A, B, C = ([i] * 3 for i in range(3))


@pytest.mark.filterwarnings("ignore:.*gave no data for epoch")
@pytest.mark.parametrize(
    ("source", "cycle", "expected"),
    [
        (lambda: threes(3), None, [A, B, C, "end", "end", "end"]),
        (lambda: threes(3), False, [A, B, C, "end", "end", "end"]),
        (lambda: threes(3), "no", [A, B, C, "end", "end", "end"]),
        (lambda: threes(3), "raise", [A, B, C, "end", A, B, C, "end"]),
        (lambda: threes(3), "quiet", [A, B, C, A, B]),
        (lambda: threes(3), True, [A, B, C, A, B]),
        (lambda: generator, None, [A, B, "end", "end"]),
        (lambda: generator, "raise", [A, B, "end", A, B, "end", A]),
        (lambda: functools.partial(generator), "quiet", [A, B, A]),
        (lambda: generator(), None, [A, B, "end", "end"]),
        (lambda: iter(threes(1)), None, [A, "end", "end"]),
        (lambda: np.stack(threes(2)), None, [A, B, "end"]),
    ],
)
def test_iterables(source, cycle, expected):
    assert run(source(), len(expected), cycle=cycle) == expected


def test_callables():
    def until_2(i):
        if i >= 2:
            raise StopIteration
        return np.full(3, i)

    calls = []

    def without_argument():
        calls.append(1)
        if len(calls) % 3 == 0:
            raise StopIteration
        return np.full(3, len(calls))

    def info(i):
        if i.iteration >= 2:
            raise StopIteration
        return np.array([i.iteration, i.epoch_idx, 0])

    assert run(until_2, 7) == [A, B, "end", A, B, "end", A]
    assert run(without_argument, 4) == [[1] * 3, [2] * 3, "end", [4] * 3]
    assert run(info, 5, batch_info=True) == [[0, 0, 0], [1, 0, 0], "end", [0, 1, 0], [1, 1, 0]]
    assert run(functools.partial(lambda a, i: np.full(3, a + i), 1), 2) == [B, C]


@pytest.mark.filterwarnings("ignore:.*(gave no data for epoch|dropped at the end of its data)")
def test_samples():
    def sample(i):
        if i.idx_in_epoch >= 7:
            raise StopIteration
        return np.array([i.idx_in_epoch, i.idx_in_batch, i.iteration, i.epoch_idx])

    def batch(iteration, epoch):
        return [[3 * iteration + k, k, iteration, epoch] for k in range(3)]

    batches = run(sample, 5, batch=False)
    assert batches == [batch(0, 0), batch(1, 0), "end", batch(0, 1), batch(1, 1)]  # sample 6 alone makes no batch
    assert run(sample, 5, batch=None, parallel=True) == batches
    seven = [np.int32(i) for i in range(7)]
    assert run(seven, 4, batch=False) == [[0, 1, 2], [3, 4, 5], "end", "end"]
    assert run(seven, 4, batch=False, cycle="raise") == [[0, 1, 2], [3, 4, 5], "end", [0, 1, 2]]
    assert run(seven, 4, batch=False, cycle="quiet") == [[0, 1, 2], [3, 4, 5], [6, 0, 1], [2, 3, 4]]


def test_forms_of_data():
    ragged = [np.zeros((1, 2), np.float32), np.ones((0, 3), np.float32), np.ones((2, 2), np.float32)]
    assert run(lambda: ragged, 1) == [[x.tolist() for x in ragged]]
    assert run(lambda: tuple(ragged), 1) == [[x.tolist() for x in ragged]]
    assert run(lambda: jnp.arange(6, dtype=jnp.int16).reshape(3, 2), 1) == [[[0, 1], [2, 3], [4, 5]]]
    assert run(lambda: [jnp.arange(i) for i in range(3)], 1) == [[[], [0], [0, 1]]]
    assert run(lambda: np.arange(6, dtype=">i4").reshape(3, 2)[:, ::-1], 1) == [[[1, 0], [3, 2], [5, 4]]]

    class OnlyDLPack:
        def __init__(self, x):
            self.x = x

        def __dlpack__(self, **kwargs):
            return self.x.__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return self.x.__dlpack_device__()

    assert run(lambda: OnlyDLPack(np.arange(3.0)), 1) == [[0.0, 1.0, 2.0]]
    inner_pipe = external(lambda: ragged)
    assert run(lambda: inner_pipe.run()[0], 1) == [[x.tolist() for x in ragged]]


def test_small_batches_pass_through():
    assert run([np.arange(2), np.arange(3), np.arange(0), [np.int64(4)]], 4, cycle="no") == [[0, 1], [0, 1, 2], [], [4]]
    assert run([[np.arange(2)], [np.arange(1), np.arange(3)]], 2) == [[[0, 1]], [[0], [0, 1, 2]]]


@pytest.mark.parametrize("first", [np.zeros((3, 0, 2), np.uint8), []], ids=["empty samples", "no samples"])
def test_a_first_batch_without_an_element(first):
    batches = [first, np.ones((3, 4, 2), np.uint8)]

    @pipeline_def(batch_size=3)
    def define():
        x = fn.external_source(batches, dtype=types.UINT8, ndim=2)
        return x.gpu(), x + 1

    pipe = define()
    assert [x.shape() for x in pipe.run()] == [[np.shape(s) for s in first]] * 2
    assert [x.as_array().tolist() for x in pipe.run()] == [np.full((3, 4, 2), n).tolist() for n in (1, 2)]
    pipe.close()


@pytest.mark.parametrize("joined", [True, False])
def test_sources_must_give_equal_batches(joined):
    """DALI reports "Batch size clash!", also if no operator uses both outputs."""

    def define():
        a, b = fn.external_source([np.zeros(2), np.zeros(1)]), fn.external_source([np.ones(2), np.ones(2)])
        return a + b if joined else (a, b)

    pipe = pipeline_def(define)(batch_size=2)
    assert [len(x) for x in pipe.run()] == [2] * (2 - joined)
    with pytest.raises(RuntimeError, match="gave 2 samples for a batch of which another source gave 1"):
        pipe.run()
    pipe.close()


def test_several_outputs():
    def source(i):
        return np.full(3, i), [np.zeros((2, k), np.uint8) for k in range(3)]

    assert run(source, 2, num_outputs=2) == [
        (A, [[[], []], [[0]] * 2, [[0, 0]] * 2]),
        (B, [[[], []], [[0]] * 2, [[0, 0]] * 2]),
    ]
    assert run(lambda i: (np.int32(i.idx_in_epoch), np.zeros(1)), 1, num_outputs=2, batch=False) == [
        ([0, 1, 2], [[0.0]] * 3)
    ]
    assert run(lambda: (np.zeros(3),), 1, num_outputs=1) == [[0.0] * 3]

    @pipeline_def(batch_size=3)
    def define():
        nodes = fn.external_source(
            lambda: (np.zeros((3, 2, 2)), np.zeros((3, 2))), num_outputs=2, layout=["HW"], ndim=[2, 1]
        )
        assert isinstance(nodes, list)
        return nodes

    x, y = define().run()
    assert (x.layout(), y.layout()) == ("HW", "")


def test_exceptions_of_sources_fail_one_batch():
    class MyError(ValueError):
        def __init__(self, text, more):
            super().__init__(text, more)

    def source(i):
        if i == 1:
            raise MyError("mine", 3)
        return np.full(3, i)

    with pytest.raises(MyError, match="mine"):
        external(lambda: source(1)).run()
    pipe = external(source)
    assert pipe.run()[0].as_array().tolist() == A
    with pytest.raises(MyError, match="mine"):
        pipe.run()
    assert pipe.run()[0].as_array().tolist() == C


def test_the_shortest_source_ends_the_epoch():
    """All sources continue at the right place afterwards: no batch was taken in part."""

    def until_2(i):
        if i == 2:
            raise StopIteration
        return np.full(3, i)

    @pipeline_def(batch_size=3, prefetch_queue_depth=1)
    def define():
        kinds = [(threes(3), "raise"), (threes(5), "quiet"), (until_2, None), (threes(4), "raise")]
        return tuple(fn.external_source(source, cycle=cycle) for source, cycle in kinds)

    pipe = define()
    for epoch in range(3):
        for i in range(2):
            assert [int(x.as_array()[0]) for x in pipe.run()] == [i, (2 * epoch + i) % 5, i, i]
        for _ in range(2):
            with pytest.raises(StopIteration):
                pipe.run()
        pipe.reset()


def test_data_are_copied():
    buffer = np.zeros(3)

    def reuse(info):
        buffer[:] = info.idx_in_epoch
        return buffer[0:1]

    assert run(reuse, 2, batch=False) == [[[0.0], [1.0], [2.0]], [[3.0], [4.0], [5.0]]]
    for no_copy, expected in [(None, 1.0), (True, 2.0)]:
        pipe = external(name="in", no_copy=no_copy)
        data = np.full((3, 1), 1.0)
        pipe.feed_input("in", data)
        data[:] = 2.0
        assert pipe.run()[0].as_array().tolist() == [[expected]] * 3
    # what was given out does not change either
    pipe = external(lambda i: np.full((3, 1000), i))
    first = pipe.run()[0]
    for _ in range(5):
        pipe.run()
    assert not first.as_array().any()


def test_feeding():
    pipe = external(name="in")
    with pytest.raises(IndexError, match="feed_input"):
        pipe.run()
    pipe.feed_input("in", np.zeros((3, 2, 2), np.uint8), layout="HW")
    pipe.feed_input("in", [np.ones((1, k), np.uint8) for k in range(2)])
    x = pipe.run()[0]
    assert (x.layout(), x.shape()) == ("HW", [(2, 2)] * 3)
    assert pipe.run()[0].shape() == [(1, 0), (1, 1)]
    with pytest.raises(IndexError):
        pipe.run()
    with pytest.raises(RuntimeError, match="layout"):
        pipe.feed_input("in", np.zeros((3, 2, 2), np.uint8), layout="HWC")
    with pytest.raises(KeyError, match="other"):
        pipe.feed_input("other", np.zeros(3))
    with pytest.raises(RuntimeError, match="its own data"):
        external(lambda: np.zeros(3), name="in").feed_input("in", np.zeros(3))


def test_repeat_last():
    pipe = external(name="in", repeat_last=True)
    pipe.feed_input("in", np.zeros(3))
    pipe.feed_input("in", np.ones(3))
    assert [pipe.run()[0].as_array().tolist() for _ in range(3)] == [[0.0] * 3, [1.0] * 3, [1.0] * 3]


def test_blocking():
    pipe = external(name="in", blocking=True)
    pipe.build()

    def later():
        time.sleep(0.05)
        pipe.feed_input("in", np.arange(3.0))

    thread = threading.Thread(target=later)
    thread.start()
    assert pipe.run()[0].as_array().tolist() == [0.0, 1.0, 2.0]
    thread.join()


def test_wrong_arguments():
    for kwargs, error, text in [
        ({"source": lambda a, b: 1}, TypeError, "one positional"),
        ({"source": lambda *a: 1}, TypeError, "one positional"),
        ({"source": 5}, TypeError, "callable"),
        ({"source": generator(), "cycle": True}, TypeError, "generator"),
        ({"source": lambda: 1, "cycle": "raise"}, ValueError, "iterable"),
        ({"source": threes(1), "cycle": "often"}, ValueError, "often"),
        ({"source": None, "num_outputs": 2, "name": "in"}, ValueError, "num_outputs"),
        ({"source": threes(1), "num_outputs": 0}, ValueError, "num_outputs"),
        ({"source": threes(1), "shape": (1.5,)}, TypeError, "shape"),
        (
            {"source": threes(1), "shape": 3},
            TypeError,
            "shape must be a list of whole numbers at least 0 or None, or a list of such",
        ),
        ({"source": threes(1), "shape": (-1,)}, ValueError, "shape"),
        ({"source": threes(1), "ndim": [1.5]}, TypeError, "argument ndim must be a whole number"),
        ({"source": threes(1), "batch": "no"}, TypeError, "argument batch must be True or False, got 'no'"),
        ({"source": threes(1), "shape": (None, 3), "ndim": 1}, ValueError, "2 dimensions"),
        ({"source": threes(1), "shape": [(3,), (3,)]}, ValueError, "shape"),
        ({"source": threes(1), "repeat_last": True}, ValueError, "repeat_last"),
        ({"source": threes(1), "device": "npu"}, ValueError, "device"),
        ({"source": threes(1), "num_outputs": 1, "layout": ["H", "W"]}, ValueError, "layout"),
    ]:
        with pytest.raises(error, match=text):
            external(**kwargs).build()
    with pytest.raises(RuntimeError, match="no data"):
        external([]).run()


def test_none_for_some_outputs():
    """None in an argument leaves an output free; the other outputs are checked."""
    pair = [np.zeros(2, np.uint8)] * 3, [np.ones((2, 2), np.float32)] * 3
    for arguments in (
        {"dtype": [types.UINT8, None]},
        {"ndim": (1, None)},
        {"shape": [(2,), None]},
        {"layout": ["A", None]},
    ):
        assert [x.as_array().dtype for x in external(lambda: pair, num_outputs=2, **arguments).run()] == [
            np.uint8,
            np.float32,
        ]
    with pytest.raises(RuntimeError, match="output 1 has samples"):
        external(lambda: pair, num_outputs=2, dtype=[None, types.UINT8]).build()


def test_hints_change_nothing():
    hints = {
        "cuda_stream": 0,
        "use_copy_kernel": True,
        "prefetch_queue_depth": 4,
        "bytes_per_sample_hint": 9,
        "device": "gpu",
    }
    assert run(threes(1), 2, **hints) == run(threes(1), 2)


def test_generator_function_with_a_default():
    def source(n=2):
        yield from threes(n)

    assert run(source, runs=3) == [A, B, "end"]

    def needs(n):
        yield from threes(n)

    with pytest.raises(TypeError, match=r"need no arguments, got \(n\)"):
        run(needs)


def test_arguments_in_a_short_batch():
    images = [np.full((9 + i, 7, 3), 10 * i, np.uint8) for i in range(2)]

    @pipeline_def(batch_size=4, prefetch_queue_depth=1)
    def define():
        x = fn.external_source(source=lambda: images, layout="HWC")
        pairs = fn.external_source(source=lambda: [np.array([3, 4], np.float32), np.array([5, 6], np.float32)])
        return (
            fn.rotate(x, angle=5.0, size=pairs),
            fn.resize(x, size=pairs),
            fn.resize(x, size=[2, 2], roi_start=pairs / 9, roi_end=pairs),
        )

    pipe = define()
    shapes = [[np.asarray(x[i]).shape for i in range(len(x))] for x in pipe.run()]
    assert shapes == [[(3, 4, 3), (5, 6, 3)]] * 2 + [[(2, 2, 3)] * 2]
    pipe.close()


def test_one_output_as_a_tuple_of_one():
    """DALI 2.4 takes a bare array for the tuple of its rows."""

    def define(source, **kwargs):
        pipe = pipeline_def(lambda: fn.external_source(source, num_outputs=1, **kwargs)[0])(
            batch_size=2, prefetch_queue_depth=1
        )
        return pipe.run()[0].as_array().tolist()

    assert define(lambda i: np.array([i.idx_in_epoch]), batch=False) == [0, 1]
    assert define(lambda i: np.array([[i.idx_in_epoch, 5]]), batch=False) == [[0, 5], [1, 5]]
    assert define(lambda: np.zeros((1, 2, 3))) == [[0.0] * 3] * 2
    with pytest.raises(RuntimeError, match=r"a tuple of 1 items, got an array of shape \(2, 3\)"):
        define(lambda: np.zeros((2, 3)))


def test_outputs_are_fed_one_by_one():
    nodes = []

    @pipeline_def(batch_size=2, prefetch_queue_depth=1)
    def define():
        nodes.extend(fn.external_source(num_outputs=2, layout=["", "C"]))
        return tuple(nodes)

    pipe = define()
    pipe.feed_input(nodes[0], np.arange(2))
    pipe.feed_input(nodes[1], np.ones((2, 3)))
    first, second = pipe.run()
    assert (first.as_array().tolist(), second.layout(), second.as_array().tolist()) == ([0, 1], "C", [[1.0] * 3] * 2)


# --- data sets, and outputs without use -----------------------------------------------------------------------------


def test_data_sets_are_advised_of_their_reader():
    class Items:
        def __len__(self):
            return 2

        def __getitem__(self, i):
            return [np.zeros(2), np.ones(2)][i]

    with pytest.warns(UserWarning, match=r"the source, a Items, is a data set .*fn\.readers\.source\(dataset\)"):
        pipeline_def(lambda: fn.external_source(Items(), batch=False))(batch_size=2).build()


ONE = [np.int32(1), np.int32(2)]


@pytest.mark.parametrize(
    ("batch", "item", "used"),
    [
        (True, lambda: (ONE, None), 0),
        (True, lambda: (None, ONE), 1),
        (True, lambda: ("text", ONE), 1),
        (True, lambda: (ONE, [np.float32(1)]), 0),
        (True, lambda: (ONE,), 0),
        (False, lambda info: (None, np.int32(info.idx_in_batch + 1)), 1),
    ],
)
def test_data_of_unused_outputs_are_ignored(batch, item, used):
    """As in DALI 2.4."""

    @pipeline_def(batch_size=2, num_threads=1)
    def definition():
        return fn.external_source(
            source=item, num_outputs=2, batch=batch, dtype=[types.INT32, types.FLOAT][:: 1 - 2 * used]
        )[used]

    pipe = definition()
    for _ in range(3):
        assert pipe.run()[0].as_array().tolist() == [1, 2]
    pipe.close()


def test_unused_sources_are_not_called_or_fed():
    def fails():
        raise AssertionError("asked")

    @pipeline_def(batch_size=2, num_threads=1)
    def definition():
        fn.external_source(source=fails)
        fn.external_source(name="unused")
        return fn.external_source(name="used") + 1

    pipe = definition(prefetch_queue_depth=1)
    pipe.feed_input("used", ONE)
    assert pipe.run()[0].as_array().tolist() == [2, 3]
    with pytest.raises(KeyError, match="no external_source named 'unused' that an output of the pipeline depends on"):
        pipe.feed_input("unused", ONE)
    pipe.close()


def test_repeated_batches_are_cut_to_others():
    pipe = pipeline_def(
        lambda: (
            fn.external_source(name="new") + fn.external_source(name="kept", repeat_last=True),
            fn.random.uniform(),
        ),
        batch_size=4,
        num_threads=1,
        prefetch_queue_depth=1,
    )()
    pipe.feed_input("kept", [np.int32(10 * i) for i in range(4)])
    for n in (4, 2, 3, 4):
        pipe.feed_input("new", [np.int32(i) for i in range(n)])
        result, number = pipe.run()
        assert [np.asarray(x).tolist() for x in result] == [11 * i for i in range(n)]
        assert len(number) == n
    pipe.feed_input("new", [np.int32(i) for i in range(3)])
    pipe.feed_input("kept", [np.int32(i) for i in range(2)])
    with pytest.raises(
        RuntimeError, match=r"2 samples for a batch of which another source gave 3|3 samples .* another source gave 2"
    ):
        pipe.run()
    pipe.close()


@pytest.mark.parametrize("n", [1, 2, 4])
def test_sources_end_before_operators_are_bound(n):
    """How many numbers the sum has is known when the first batch is made. Then the source has been read to its end."""
    batches = [[np.float32([i, 1.5]), np.float32([i + 0.5, 2])] for i in range(n)]

    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def pipeline():
        x, values = (fn.external_source(source=s) for s in (batches, [[np.zeros(4, np.uint8)] * 2] * n))
        y = fn.reshape(fn.reshape(values, shape=fn.cast(x * 0 + 2, dtype=types.INT32)), shape=[-1])
        # The last operator can't be bound until the one before it is.
        return fn.transforms.crop(from_start=x, from_end=x + 1), fn.reshape(y, shape=fn.shapes(values))

    p = pipeline()
    outputs = [[np.asarray(t).tolist() for t in p.run()[0]] for _ in range(n)]
    with pytest.raises(StopIteration):
        p.run()
    # DALI 2.4 gives this: the first corner becomes 0, and the opposite one 1.
    assert outputs == [[[[1, 0, -x], [0, 1, -y]] for x, y in batch] for batch in batches]


def test_sources_are_read_in_one_thread_only():
    threads = set()

    def source():
        threads.add(threading.current_thread())
        return [np.float32([1, 2])] * 3

    @pipeline_def(batch_size=3, num_threads=1, device_id=None)
    def pipeline():
        x = fn.external_source(source=source)
        return fn.transforms.crop(from_start=x, from_end=x + 1)

    p = pipeline()
    for _ in range(3):
        p.run()
    assert threads == {threading.current_thread()}


def test_fed_data_are_not_awaited_twice():
    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline():
        x = fn.external_source(name="x", dtype=types.FLOAT, ndim=1, blocking=True)
        return fn.transforms.crop(from_start=x, from_end=x + 1)

    p, outputs = pipeline(prefetch_queue_depth=1), []
    p.build()
    p.feed_input("x", [np.float32([1, 2])])
    thread = threading.Thread(target=lambda: outputs.extend(p.run()), daemon=True)
    thread.start()
    thread.join(60)
    assert np.asarray(outputs[0].at(0)).tolist() == [[1, 0, -1], [0, 1, -2]]
