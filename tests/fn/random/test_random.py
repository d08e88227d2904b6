"""random.*: the generator, the distributions, and what the numbers depend on."""

import math

import jax
import numpy as np
import pytest
import scipy.stats
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxdali import DataNode, Pipeline, _cpu, fn, pipeline_def, types
from jaxdali.fn.random import _beta
from jaxdali.plugin.jax import data_iterator

R = fn.random


def draw(define, batch_size=1, seed=1, batches=1):
    """The samples that the node which `define` makes has in some batches."""

    @pipeline_def(batch_size=batch_size, num_threads=2, seed=seed)
    def pipeline():
        return define()

    pipe = pipeline()
    samples = []
    for _ in range(batches):
        out = pipe.run()[0]
        samples += [np.asarray(out[i]) for i in range(batch_size)]
    return samples


def one(define, **kwargs):
    return draw(define, **kwargs)[0]


@pytest.mark.parametrize(
    ("counter", "key", "want"),
    [
        ([0] * 4, 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ([0xFFFFFFFF] * 4, 0xFFFFFFFFFFFFFFFF, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            0x299F31D0A4093822,
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_numbers_of_random123(counter, key, want):
    assert _cpu.philox(np.array(counter, np.uint32), key) == want


def test_large_and_small_draws_agree():
    """Large ones are drawn by several threads."""
    small = draw(lambda: R.uniform(shape=10), batch_size=8)
    large = draw(lambda: R.uniform(shape=100_001), batch_size=8)
    assert all((a == b[:10]).all() for a, b in zip(small, large))


def uniform_statistics(x):
    """Largest deviation of the empirical distribution on [0, 1), in units of its standard error (Kolmogorov-Smirnov)."""
    x = np.sort(x.ravel())
    return np.abs(x - (np.arange(len(x)) + 0.5) / len(x)).max() * math.sqrt(len(x))


def test_uniform():
    x = np.stack(draw(lambda: R.uniform(shape=100_000, dtype=types.FLOAT64), batch_size=4))
    assert x.min() >= -1
    assert x.max() < 1
    u = (x + 1) / 2
    assert uniform_statistics(u) < 1.63  # 1 %
    assert np.abs(np.asarray(np.corrcoef(u))[np.triu_indices(4, 1)]).max() < 0.01  # samples
    assert abs(np.corrcoef(u[:, :-1].ravel(), u[:, 1:].ravel()).ravel()[1]) < 0.01  # neighbours
    # Seeds.
    assert uniform_statistics(np.stack([one(lambda: R.uniform(range=(0, 1)), seed=s) for s in range(300)])) < 1.63
    assert one(lambda: R.uniform()).dtype == np.float32
    assert one(lambda: R.uniform(range=(5, 6))) >= 5


def test_uniform_never_reaches_the_upper_bound():
    low, high = 1.0, float(np.nextafter(np.float32(1), np.float32(2)))  # neighbours: half of the numbers would round up
    assert (one(lambda: R.uniform(range=(low, high), shape=1000)) == 1).all()
    assert one(lambda: R.uniform(range=(0, 1), shape=100_000, dtype=types.FLOAT16)).max() < 1


def test_uniform_values_and_dtypes():
    x = one(lambda: R.uniform(values=[1.6, 300, -4], shape=9000))
    assert sorted(set(x.tolist())) == [-4.0, np.float32(1.6), 300.0]
    assert all(abs((x == v).sum() - 3000) < 4 * math.sqrt(2000) for v in set(x.tolist()))
    assert set(one(lambda: R.uniform(values=[1.6, 300, -4], shape=50, dtype=types.UINT8)).tolist()) == {0, 2, 255}
    x = one(lambda: R.uniform(range=(-0.4, 3.4), shape=4000, dtype=types.INT64))
    assert x.dtype == np.int64
    assert set(x.tolist()) == {0, 1, 2, 3}
    x = one(lambda: R.uniform(range=(0.9, 3.9), shape=6000, dtype=types.INT32))  # as DALI 2.4: of [0, 3), rounded
    assert np.abs(np.bincount(x, minlength=4) - [1000, 2000, 2000, 1000]).max() < 4 * math.sqrt(6000 / 3 * 2 / 3)
    assert set(draw(lambda: R.uniform(values=R.uniform(shape=3), shape=40))[0].tolist()) == set(
        one(lambda: R.uniform(shape=3)).tolist()
    )


def test_coin_flip():
    for p in (0.1, 0.5):
        x = one(lambda p=p: R.coin_flip(probability=p, shape=40_000))
        assert x.dtype == np.int32
        assert abs(x.mean() - p) < 4 * math.sqrt(p * (1 - p) / 40_000)
    assert not one(lambda: R.coin_flip(probability=0.0, shape=1000)).any()
    assert one(lambda: R.coin_flip(probability=1, shape=1000)).all()
    assert one(lambda: R.coin_flip(dtype=types.BOOL)).dtype == np.bool_
    p = np.stack(draw(lambda: R.uniform(range=(0, 1)), batch_size=8)).astype(np.float64)
    x = np.stack(draw(lambda: R.coin_flip(probability=R.uniform(range=(0, 1)), shape=10_000), batch_size=8))
    assert np.abs(x.mean(axis=1) - p).max() < 0.02


def test_normal():
    x = one(lambda: R.normal(shape=200_000, dtype=types.FLOAT64))
    assert abs(x.mean()) < 4 / math.sqrt(len(x))
    assert abs(x.std() - 1) < 0.01
    assert uniform_statistics(0.5 * (1 + np.array([math.erf(v / math.sqrt(2)) for v in x[:20_000]]))) < 1.63
    assert abs(np.corrcoef(x[::2], x[1::2]).ravel()[1]) < 0.01
    y = one(lambda: R.normal(mean=10, stddev=3, shape=200_000, dtype=types.FLOAT64))
    np.testing.assert_allclose(y, 10 + 3 * x, rtol=1e-12)
    assert one(lambda: R.normal(mean=10, stddev=3, shape=5, dtype=types.INT32)).tolist() == np.rint(y[:5]).tolist()
    mean = draw(lambda: R.uniform(range=(100, 200)), batch_size=3)
    numbers = draw(
        lambda: R.normal(mean=R.uniform(range=(100, 200)), stddev=R.uniform(range=(0, 1e-3)), shape=4), batch_size=3
    )
    np.testing.assert_allclose(np.stack(numbers), np.repeat(np.stack(mean)[:, None], 4, 1), atol=0.01)


def test_beta():
    n = 40_000
    u = np.linspace(0, 1, 2001)[1:]
    for a, b, cdf in (
        (1, 1, lambda x: x),
        (3, 1, lambda x: x**3),
        (1, 0.25, lambda x: 1 - (1 - x) ** 0.25),
        (2, 2, lambda x: 3 * x**2 - 2 * x**3),
        (0.5, 0.5, lambda x: 2 / math.pi * np.arcsin(np.sqrt(x))),
    ):
        x = one(lambda a=a, b=b: R.beta(alpha=a, beta=b, shape=n, dtype=types.FLOAT64))
        # 1.63 is the critical value of the Kolmogorov-Smirnov test at a level of 1 %.
        assert np.abs(np.searchsorted(np.sort(x), u, side="right") / n - cdf(u)).max() * math.sqrt(n) < 1.63
    x = one(lambda: R.beta(alpha=1e-5, beta=1e-5, shape=500))  # nearly all are 0 or 1
    assert (np.abs(x - 0.5) <= 0.5).all()
    assert (x * (1 - x)).mean() < 1e-3
    alpha = np.stack(draw(lambda: R.uniform(range=(1, 9)), batch_size=4))
    x = np.stack(draw(lambda: R.beta(alpha=R.uniform(range=(1, 9)), beta=2, shape=(100, 100)), batch_size=4))
    assert x.dtype == np.float32
    np.testing.assert_allclose(x.mean((1, 2)), alpha / (alpha + 2), atol=0.02)
    shape_like = [np.zeros((2, 1), np.uint8), np.zeros((3, 1), np.uint8)]
    assert [x.shape for x in draw(lambda: R.beta(fn.external_source(lambda: shape_like)), batch_size=2)] == [
        (2, 1),
        (3, 1),
    ]
    with pytest.raises(ValueError, match=r"random.beta: argument alpha must be a number above 0"):
        R.beta(alpha=0.0)
    with pytest.raises(RuntimeError, match=r"random.beta .*argument beta must be above 0, got"):
        one(lambda: R.beta(beta=R.uniform(range=(-2, -1))))


@pytest.mark.parametrize("alpha", [0.2, 1, 5])
@pytest.mark.parametrize("beta", [0.2, 1, 5])
def test_beta_of_many_samples(alpha, beta):
    x = np.stack(draw(lambda: R.beta(alpha=alpha, beta=beta, dtype=types.FLOAT64), batch_size=10_000))
    assert scipy.stats.kstest(x, "beta", (alpha, beta)).pvalue > 0.01


def test_beta_draws_from_a_stream_once(monkeypatch):
    """Otherwise numbers of a sample depend on each other."""
    draws, stream_draw = [], _beta.draw

    def recorded(ctx, *args, part, **kwargs):
        draws.append((ctx, part))
        return stream_draw(ctx, *args, part=part, **kwargs)

    monkeypatch.setattr(_beta, "draw", recorded)
    one(lambda: R.beta(shape=1000))
    parts = [part for ctx, part in draws if ctx is draws[0][0]]  # those of the first batch
    assert len({*parts}) == len(parts) > 6  # x and y take three in each round


def test_choice():
    x = one(lambda: R.choice(5, shape=20_000))
    assert x.dtype == np.int32
    assert np.abs(np.bincount(x, minlength=5) - 4000).max() < 4 * math.sqrt(3200)
    p = [0, 0.25, 0.75, 0]
    counts = np.bincount(one(lambda: R.choice(4, p=p, shape=20_000)), minlength=4)
    assert counts[[0, 3]].tolist() == [0, 0]
    assert abs(counts[1] - 5000) < 4 * math.sqrt(3750)
    assert set(one(lambda: R.choice([1.5, 7], shape=50)).tolist()) == {1.5, 7.0}
    assert one(lambda: R.choice(np.array([200, 3], np.uint8))).dtype == np.uint8
    rows = np.arange(6, dtype=np.int32).reshape(3, 2)
    chosen = one(lambda: R.choice(rows, shape=(4, 5)))
    assert chosen.shape == (4, 5, 2)
    assert (chosen[..., 0] + 1 == chosen[..., 1]).all()
    assert one(lambda: R.choice(types.Constant(3, types.UINT8), shape=100)).max() == 2
    assert one(lambda: R.choice(1, p=1.0)) == 0
    assert one(lambda: R.choice([3.5], p=np.float32(1), shape=2)).tolist() == [3.5, 3.5]
    n = np.stack(draw(lambda: R.uniform(range=(1, 9), dtype=types.INT32), batch_size=5))
    chosen = draw(lambda: R.choice(R.uniform(range=(1, 9), dtype=types.INT32), shape=500), batch_size=5)
    assert [g.max() + 1 for g in chosen] == n.tolist()


def test_choice_from_ragged_samples():
    data = [np.arange(6, dtype=np.int16).reshape(3, 2), np.full((1, 4), 9, np.int16)]
    a, b = draw(lambda: R.choice(fn.external_source(lambda: data), shape=3), batch_size=2)
    assert a.shape == (3, 2)
    assert (a[:, 0] + 1 == a[:, 1]).all()
    assert b.tolist() == [[9] * 4] * 3


def test_shapes():
    assert one(lambda: R.uniform()).shape == ()
    assert one(lambda: R.uniform(shape=3)).shape == (3,)
    assert one(lambda: R.uniform(shape=[])).shape == ()
    assert one(lambda: R.normal(shape=(2, 0, 3))).shape == (2, 0, 3)
    shape_like = np.zeros((2, 5), np.uint8)
    assert one(lambda: R.uniform(shape_like)).tolist() == one(lambda: R.uniform(shape=(2, 5))).tolist()
    assert one(lambda: R.choice(9, shape_like)).shape == (2, 5)
    expected = np.stack(draw(lambda: R.uniform(range=(1, 9), shape=2, dtype=types.INT32), batch_size=4))
    numbers = draw(lambda: R.coin_flip(shape=R.uniform(range=(1, 9), shape=2, dtype=types.INT32)), batch_size=4)
    assert [g.shape for g in numbers] == list(map(tuple, expected.tolist()))
    ragged = [np.zeros((k, 2)) for k in range(3)]
    assert [x.shape for x in draw(lambda: R.normal(fn.external_source(lambda: ragged)), batch_size=3)] == [
        x.shape for x in ragged
    ]


def source(data):
    node = fn.external_source(lambda: data)
    assert isinstance(node, DataNode)
    return node


def test_shape_like_a_program_value():
    data = [np.zeros((k + 1, 2), np.float32) for k in range(2)]
    numbers = draw(lambda: R.normal(source(data).gpu() + 1.0, stddev=R.uniform(range=(1, 2))), batch_size=2)
    assert [x.shape for x in numbers] == [(1, 2), (2, 2)]
    far = draw(lambda: R.normal(mean=source(np.full(1, 1e6, np.float32)).gpu() + 1.0))
    assert all(abs(x - 1e6) < 100 for x in far)


def test_seeds():
    @pipeline_def(batch_size=1)
    def pipeline():
        return R.uniform(shape=4), R.uniform(shape=4)

    def numbers(seed):
        return [x.as_array().ravel().tolist() for x in pipeline(seed=seed).run()]

    a, b = numbers(1)
    assert a != b
    assert numbers(1) == [a, b]
    assert numbers(2)[0] not in (a, b)

    reseeded = [x[0].tolist() for x in (draw(lambda: R.uniform(shape=4, seed=5), seed=s) for s in (1, 2))]
    assert reseeded[0] == reseeded[1] != a  # whatever the pipeline's seed
    after_another = draw(lambda: (R.coin_flip(), R.uniform(shape=4, seed=5))[1])
    assert after_another[0].tolist() == reseeded[0]
    assert draw(lambda: R.uniform(shape=4, seed=6))[0].tolist() != reseeded[0]


DRAWS = {
    "beta": lambda: R.beta(alpha=0.2, beta=R.uniform(range=(0.1, 2)), shape=3),
    "choice": lambda: R.choice(3, p=[0.2, 0.3, 0.5], shape=3),
    "coin_flip": lambda: R.coin_flip(probability=R.uniform(range=(0, 1)), shape=3),
    "key": lambda: R.key(),
    "normal": lambda: R.normal(mean=R.uniform(), shape=3),
    "uniform": lambda: R.uniform(shape=R.uniform(range=(1, 9), shape=1, dtype=types.INT32)),
}


@pytest.mark.parametrize("name", fn.random.__all__)
def test_numbers_do_not_depend_on_batch_size(name):
    """Each sample is what it is alone in a batch."""
    singles = draw(DRAWS[name], batch_size=1, batches=64)
    assert len({x.tobytes() for x in singles}) > 1
    for batch_size in (4, 64):
        batches = draw(DRAWS[name], batch_size=batch_size, batches=64 // batch_size)
        assert all(np.array_equal(x, y) for x, y in zip(batches, singles, strict=True))


def test_numbers_do_not_depend_on_shards(tmp_path):
    for i in range(32):
        (tmp_path / f"{i:02d}").write_bytes(b"x")
    files = [str(tmp_path / f"{i:02d}") for i in range(32)]

    def collect(batch_size, sharding):
        @data_iterator(output_map=["label", "number"], reader_name="reader", sharding=sharding)
        def make(shard_id=0, num_shards=1):
            _, label = fn.readers.file(
                files=files, shard_id=shard_id, num_shards=num_shards, random_shuffle=True, name="reader"
            )
            return label, fn.random.uniform()

        it = make(batch_size=batch_size, num_threads=2, seed=3)
        epochs = []
        for _ in range(2):
            batches = [jax.tree.map(np.asarray, b) for b in it]
            epochs.append({int(k): float(v) for b in batches for k, v in zip(b["label"][:, 0], b["number"])})
        return epochs

    whole = collect(4, None)
    assert [len(e) for e in whole] == [32, 32]
    assert not set(whole[0].values()) & set(whole[1].values())
    sharded = collect(16, NamedSharding(Mesh(np.array(jax.devices()), ("batch",)), PartitionSpec("batch")))
    assert sharded == whole


def test_wrong_arguments():
    for define, error, text in [
        (lambda: R.uniform(range=(1, 0)), ValueError, "low < high"),
        (lambda: R.uniform(range=(1, 1)), ValueError, "low < high"),
        (lambda: R.uniform(range=[1, 2, 3]), ValueError, "range must be a list of 2"),
        (lambda: R.uniform(range=5.0), TypeError, "range must be a list of 2"),
        (lambda: R.uniform(values=[]), ValueError, "empty"),
        (lambda: R.uniform(values=[1], range=[0, 1]), ValueError, "together"),
        (lambda: R.uniform(np.zeros(3), shape=3), ValueError, "shape_like"),
        (lambda: R.uniform(shape=-1), ValueError, "shape must be .* at least 0"),
        (lambda: R.uniform(shape=2.5), TypeError, "shape"),
        (lambda: R.uniform(dtype=types.BOOL), TypeError, "dtype must be .*BOOL"),
        (lambda: R.uniform(device="mixed"), ValueError, "device"),
        (lambda: R.coin_flip(probability=1.5), ValueError, "probability"),
        (lambda: R.choice(0), ValueError, "at least one"),
        (lambda: R.choice([]), ValueError, "at least one"),
        (lambda: R.choice(1.5), TypeError, "integer"),
        (lambda: R.choice(3, p=[0.1, 0.1, 0.1]), ValueError, "sum is 1"),
        (lambda: R.choice(3, p=[-0.5, 0.5, 1.0]), ValueError, "p must be .* in 0 ... 1"),
        (lambda: R.choice(3, p=[0.5, 0.5]), ValueError, "each of the 3"),
        (lambda: R.choice(2, p=1.0), ValueError, "each of the 2"),
        (lambda: R.choice(3, device="gpu"), ValueError, "device"),
        (lambda: R.coin_flip(probability=R.uniform(range=(2, 3))), RuntimeError, "probability"),
        (lambda: R.uniform(range=R.uniform(shape=2, values=[1.0])), RuntimeError, "low < high"),
        (lambda: R.uniform(shape=R.uniform(values=[-2], dtype=types.INT32)), RuntimeError, "shape must be at least 0"),
    ]:
        with pytest.raises(error, match=text):
            draw(define)


def test_hints_do_not_change_the_numbers():
    want = one(lambda: R.uniform(shape=3)).tolist()
    assert (
        one(lambda: R.uniform(shape=3, bytes_per_sample_hint=9, preserve=True, name="me", device="gpu")).tolist()
        == want
    )


def test_values_and_choices_per_sample():
    """Each sample may have another number of values. Missing samples of a short batch have no arguments."""
    values = [np.arange(i + 1, dtype=np.float32) + 10 * i for i in range(3)]

    @pipeline_def(batch_size=4, seed=3)
    def definition():
        choices = fn.external_source(source=lambda: values)
        bounds = fn.external_source(source=lambda: [np.array([v[0], v[0] + 1]) for v in values])
        p = fn.external_source(source=lambda: [np.array([1.0, 0.0])] * 3)
        return (
            fn.random.uniform(values=choices, shape=[200]),
            fn.random.choice(choices, shape=[200]),
            fn.random.uniform(range=bounds, shape=[200]),
            fn.random.choice(2, p=p, shape=[200]),
        )

    pipe = definition(prefetch_queue_depth=1)
    uniform, choice, in_range, weighted = ([np.asarray(x[i]) for i in range(len(x))] for x in pipe.run())
    assert len(uniform) == len(weighted) == 3
    for i, v in enumerate(values):
        assert set(uniform[i].tolist()) == set(choice[i].tolist()) == set(v.tolist())
        assert (in_range[i] >= v[0]).all()
        assert (in_range[i] < v[0] + 1).all()
        assert not weighted[i].any()
    pipe.close()


@pytest.mark.parametrize("batch", [True, False])
def test_shape_per_sample_from_external_source(batch):
    """Its length is that of the first sample's."""
    shapes = [np.array([i + 1, 2], np.int32) for i in range(3)]

    @pipeline_def(batch_size=3, seed=3, prefetch_queue_depth=1)
    def definition():
        if batch:
            shape = fn.external_source(source=lambda: shapes)
        else:
            shape = fn.external_source(source=lambda info: shapes[info.idx_in_batch], batch=False)
        return fn.random.uniform(shape=shape), fn.random.choice(3, shape=shape)

    pipe = definition()
    for _ in range(2):
        for x in pipe.run():
            assert [np.asarray(x[i]).shape for i in range(3)] == [(1, 2), (2, 2), (3, 2)]
    pipe.close()


# Shapes and layouts as DALI 2.4 gives them.
@pytest.mark.parametrize(
    ("sample", "layout", "shape", "result", "result_layout"),
    [
        ([4, 5, 6], "X", None, (), ""),
        ([4, 5, 6], "X", [2], (2,), "X"),
        (np.ones((3, 2)), "XY", None, (2,), "Y"),
        (np.ones((3, 2)), "XY", [2], (2, 2), "XY"),
        (np.ones((3, 2)), "XY", [2, 2], (2, 2, 2), ""),
    ],
)
def test_layout_of_choices(sample, layout, shape, result, result_layout):
    pipe = Pipeline(batch_size=1, num_threads=1)
    with pipe:
        elements = fn.external_source(source=lambda: [np.asarray(sample)], layout=layout)
        pipe.set_outputs(R.choice(elements, shape=shape))
    (out,) = pipe.run()
    assert (np.asarray(out[0]).shape, out.layout()) == (result, result_layout)


def test_probabilities_per_sample():
    pipe = Pipeline(batch_size=2, num_threads=1)
    with pipe:
        elements = fn.external_source(source=lambda: [np.array([4, 5, 6]), np.array([7, 8])])
        p = fn.external_source(source=lambda: [np.float32([0, 0, 1]), np.float32([1, 0])])
        pipe.set_outputs(R.choice(elements, p=p, shape=3), R.choice(elements, p=[0.5, 0.5]))
    with pytest.raises(RuntimeError, match=r"random.choice.*sample 0.*p must be 3 probabilities"):
        pipe.run()
    pipe = Pipeline(batch_size=2, num_threads=1)
    with pipe:
        elements = fn.external_source(source=lambda: [np.array([4, 5, 6]), np.array([7, 8])])
        p = fn.external_source(source=lambda: [np.float32([0, 0, 1]), np.float32([1, 0])])
        pipe.set_outputs(R.choice(elements, p=p, shape=3))
    assert [np.asarray(x).tolist() for x in pipe.run()[0]] == [[6] * 3, [7] * 3]


def test_sets_of_inputs_get_the_same_numbers():
    """As in DALI. The next operator draws other numbers."""
    pipe = Pipeline(batch_size=2, num_threads=1, seed=1)
    with pipe:
        a, b = (fn.external_source(source=lambda: [np.zeros(3)] * 2) for _ in range(2))
        first = R.uniform([a, b])
        assert isinstance(first, list)
        pipe.set_outputs(*first, R.uniform(a))
    first, second, next_numbers = (np.stack([np.asarray(x) for x in out]) for out in pipe.run())
    np.testing.assert_array_equal(first, second)
    assert (first != next_numbers).any()
