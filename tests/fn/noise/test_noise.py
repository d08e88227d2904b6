"""noise.*: distributions, and the dependence on seed, sample and operator."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pipelines import run

import jaxdali
from jaxdali import fn, types
from jaxdali.fn._families import ragged
from jaxdali.fn.noise import _noise, _shot

FLAT = [np.full((90, 100, 3), 100, np.float32)] * 2
RAGGED = [np.full((90, 100, 3), 100, np.float32), np.full((60, 80, 3), 100, np.float32)]


def arrays(make, samples, layout="HWC"):
    return list(map(np.array, run(make, samples, layouts=[layout])[0]))


@pytest.mark.parametrize("samples", [FLAT, RAGGED], ids=["dense", "ragged"])
def test_gaussian(samples):
    y = arrays(lambda x: fn.noise.gaussian(x, mean=np.float32(3), stddev=[5.0]), samples)
    for noisy, x in zip(y, samples, strict=True):
        noise = (noisy - x).reshape(-1)
        assert noisy.shape == x.shape
        deviation = 5 / math.sqrt(noise.size)
        assert abs(noise.mean() - 3) < 5 * deviation
        assert abs(noise.std() - 5) < 5 * deviation
        for sigmas, probability in ((1, 0.6827), (2, 0.9545), (3, 0.9973)):
            assert abs(np.mean(np.abs(noise - 3) < sigmas * 5) - probability) < 5 * math.sqrt(
                probability * (1 - probability) / noise.size
            )
        correlation = np.corrcoef(noise[:-1], noise[1:])[0, 1]
        assert abs(correlation) < 5 / math.sqrt(noise.size)
    size = min(map(np.size, y))
    # Samples have noises of their own.
    assert abs(np.corrcoef(y[0].reshape(-1)[:size], y[1].reshape(-1)[:size])[0, 1]) < 0.05


@pytest.mark.parametrize("stddev", [-5.0, [-5.0, -1.0]])
def test_negative_stddev_mirrors_gaussian(stddev):
    def noises(factor):
        def define(x):
            values = fn.external_source(lambda: factor * np.float32(stddev)) if np.ndim(stddev) else factor * stddev
            return fn.noise.gaussian(x, stddev=values, seed=3)

        return arrays(define, [np.zeros((20, 30), np.float32)] * 2, "HW")

    for mirrored, noise in zip(noises(1), noises(-1), strict=True):
        np.testing.assert_array_equal(mirrored, -noise)
        assert mirrored.std() > 0.9


def test_gaussian_rounds_and_saturates():
    samples = [np.full((50, 50), v, np.uint8) for v in (0, 255)]
    low, high = arrays(lambda x: fn.noise.gaussian(x, stddev=0.7), samples, "HW")
    assert low.dtype == np.uint8
    assert set(np.unique(low)) <= {0, 1, 2, 3}
    assert set(np.unique(high)) <= {252, 253, 254, 255}
    share = 0.5 * math.erfc(0.5 / 0.7 / math.sqrt(2))  # above 0.5
    assert abs((low > 0).mean() - share) < 0.05


@pytest.mark.parametrize("mean", [0.05, 3.0, 15.0, 40.0, 2500.0, 4e6])
def test_shot(mean):
    """Mean and variance of a Poisson distribution are equal, and small numbers have its probabilities."""
    (y,) = arrays(lambda x: fn.noise.shot(x, factor=0.5), [np.full((200, 200), mean / 2, np.float32)], "HW")
    events = y.astype(np.float64) / 0.5
    np.testing.assert_array_equal(events, np.rint(events))
    spread = math.sqrt(mean / events.size)
    assert abs(events.mean() - mean) < 5 * spread
    assert abs(events.var() / mean - 1) < 5 * math.sqrt((2 + 1 / mean) / events.size)
    for k in range(6):
        share = math.exp(-mean) * mean**k / math.factorial(k) if mean < 100 else 0
        assert abs((events == k).mean() - share) <= 5 * math.sqrt(share / events.size)


def random_keys(shape):
    """As typed keys, and as their two words."""
    words = np.random.default_rng(3).integers(0, 2**32, (*shape, 2), dtype=np.uint32)
    return jax.random.wrap_key_data(words, impl="threefry2x32"), (words[..., 0], words[..., 1])


def test_keys_equal_jax_keys():
    keys, words = random_keys((5000,))
    numbers = np.random.default_rng(4).integers(0, 2**32, 5000, dtype=np.uint32)
    numbers[:2] = 0, 2**32 - 1
    program = jax.jit(_noise.fold_in).lower(words, numbers).compile()
    expected = jax.random.key_data(jax.vmap(jax.random.fold_in)(keys, numbers))
    np.testing.assert_array_equal(np.stack(program(words, numbers), -1), expected)
    # A loop over the rounds, as in JAX's own function, stores all elements after each.
    assert "while" not in program.as_text()


def test_large_means_are_drawn_as_by_jax():
    keys, words = random_keys((700, 64))
    means = np.exp(np.random.default_rng(5).uniform(np.log(16), np.log(1e6), (700, 64))).astype(np.float32)
    means[:20] = 16
    draw = jax.jit(jax.vmap(jax.vmap(lambda key, mean: jax.random.poisson(key, mean, dtype=jnp.int32))))
    expected = np.asarray(draw(keys, means))
    # XLA may round a sum in another way if the CPU has other instructions.
    assert np.mean(np.asarray(jax.jit(_shot.poisson)(words, means)) != expected) < 1e-4


def test_small_means_are_drawn_by_inversion():
    _, words = random_keys((200, 64))
    means = np.random.default_rng(5).uniform(0, 16, (200, 64)).astype(np.float32)
    events = np.asarray(jax.jit(_shot.poisson)(words, means))
    u = (words[0].astype(np.float64) + 1) / 2**32
    k = np.arange(81)
    log_factorials = np.cumsum(np.log(np.maximum(k, 1)))
    shares = np.exp(k * np.log(means.astype(np.float64))[..., None] - means[..., None] - log_factorials)
    expected = np.sum(np.cumsum(shares, -1) < u[..., None], -1)
    assert np.mean(events != expected) < 1e-3  # where the distribution function is u but for rounding


def test_largest_number_depends_on_no_neighbour():
    """The distribution function in float32 may never reach 1."""
    words = (np.full((1, 64), 2**32 - 1, np.uint32),) * 2
    means = np.linspace(0.05, 15.9, 64, dtype=np.float32)[None]
    poisson = jax.jit(_shot.poisson)
    separate_events = [poisson(words, np.full_like(means, mean))[0, 0] for mean in means[0]]
    np.testing.assert_array_equal(poisson(words, means)[0], separate_events)


def test_quotients_are_exact():
    rng = np.random.default_rng(6)
    x = np.concatenate([rng.integers(0, 2**31, 20000), rng.integers(0, 2**31, 20000) >> rng.integers(0, 31, 20000)])
    x[:3] = 0, 1, 2**31 - 1
    x = x.astype(np.int32)
    for divisor in (1, 2, 3, 7, 50176, 150528, 2**30 - 1, 2**30 + 1, 2**31 - 1):
        for near in (x, x // divisor * divisor, np.maximum(x // divisor * divisor - 1, 0)):
            with jax.enable_x64(True):
                quotients = ragged.quotient(jnp.asarray(near), jnp.int32(divisor))
            np.testing.assert_array_equal(quotients, near // divisor)


@pytest.mark.parametrize("shapes", [[(0, 4, 3)] * 2, [(0, 4, 3), (5, 4, 3)]], ids=["dense", "ragged"])
@pytest.mark.parametrize("noise", [fn.noise.gaussian, fn.noise.salt_and_pepper, fn.noise.shot])
def test_empty_samples(noise, shapes):
    assert [y.shape for y in arrays(noise, [np.zeros(s, np.uint8) for s in shapes])] == shapes


def test_shot_of_invalid_means():
    x = np.array([-5, 0, np.inf, np.nan], np.float32)
    assert np.array_equal(arrays(lambda x: fn.noise.shot(x), [x], "W")[0], [0, 0, np.inf, np.nan], equal_nan=True)
    y = arrays(lambda x: fn.noise.shot(x, factor=0.0), [x], "W")[0]
    assert np.array_equal(y, x, equal_nan=True)


@pytest.mark.parametrize(
    ("layout", "shape"), [("HWC", (80, 90, 3)), ("CHW", (3, 80, 90)), ("", (80, 90, 3)), ("FCHW", (2, 3, 40, 90))]
)
@pytest.mark.parametrize("ragged", [False, True])
def test_salt_and_pepper(layout, shape, ragged):
    samples = [
        np.full(shape, 100, np.int16),
        np.full(shape[::-1] if ragged and shape[0] != 3 else shape, 100, np.int16),
    ]
    if ragged and layout == "HWC":
        samples[1] = np.full((33, 44, 3), 100, np.int16)
    axis = layout.find("C") if layout else -1

    def make(x, **arguments):
        return fn.noise.salt_and_pepper(x, prob=0.3, salt_vs_pepper=0.8, pepper_val=-7.4, **arguments)

    y = arrays(make, samples, layout or None)[0]
    changed = y != 100
    assert np.all(changed == changed.take([0], axis=axis))  # all channels of a pixel
    pixels = changed.take(0, axis=axis)
    assert abs(pixels.mean() - 0.3) < 5 * math.sqrt(0.21 / pixels.size)
    assert set(np.unique(y)) == {-7, 100, 32767}
    assert abs((y == 32767).sum() / changed.sum() - 0.8) < 5 * math.sqrt(0.16 / pixels.sum())
    changed_elements = arrays(lambda x: make(x, per_channel=True), samples, layout or None)[0] != 100
    assert not np.all(changed_elements == changed_elements.take([0], axis=axis))
    assert abs(changed_elements.mean() - 0.3) < 5 * math.sqrt(0.21 / changed_elements.size)


def test_salt_and_pepper_of_floats_per_sample():
    x = [np.full((20, 30), 0.5, np.float32)] * 2
    y = arrays(
        lambda x: fn.noise.salt_and_pepper(
            x, prob=fn.external_source(source=[[np.float32(0), np.float32(1)]], batch=True)
        ),
        x,
        "HW",
    )
    assert np.all(y[0] == 0.5)
    assert set(np.unique(y[1])) == {-1.0, 1.0}


def test_numbers_depend_on_the_sample_alone():
    """And on the seed and the operator, but not on the batch size, nor on whether the batch is ragged."""

    def noises(batch_size, samples, **arguments):
        @jaxdali.pipeline_def(batch_size=batch_size, num_threads=1, device_id=None, seed=5)
        def pipeline():
            x = fn.external_source(
                source=lambda i: samples[i.idx_in_epoch], batch=False, dtype=types.FLOAT, layout="HW"
            )
            return fn.noise.gaussian(x, **arguments), fn.noise.gaussian(x, **arguments)

        p = pipeline()
        outputs = [
            np.array(a)
            for _ in range(4 // batch_size)
            for pair in zip(*(o.as_cpu() for o in p.run()), strict=True)
            for a in pair
        ]
        p.close()  # it holds the error of the source, which is read ahead
        return outputs

    flat, mixed = [np.zeros((5, 30), np.float32)] * 4, [np.zeros((5 + (i == 3), 30), np.float32) for i in range(4)]
    want = noises(4, flat)
    for noise, x in zip(noises(2, flat), want, strict=True):
        np.testing.assert_array_equal(noise, x)
    for noise, x in list(zip(noises(4, mixed), want, strict=True))[:6]:
        np.testing.assert_array_equal(noise, x)
    assert len({x.tobytes() for x in want}) == 8  # samples and operators have noises of their own
    reseeded = noises(4, flat, seed=9)
    assert reseeded[0].tobytes() == reseeded[1].tobytes() != want[0].tobytes()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda x: fn.noise.shot(x, factor=-1.0), "argument factor must be a number .*, or .* got -1.0"),
        (lambda x: fn.noise.salt_and_pepper(x, prob=1.5), "argument prob must be a number in 0 ... 1"),
        (
            lambda x: fn.noise.salt_and_pepper(x, per_channel=True),
            "per_channel needs a layout with an axis C, or none; got 'HW'",
        ),
        (lambda x: fn.noise.shot(fn.cast(x, dtype=types.BOOL)), "the input must be of integers or floats, got bool"),
    ],
)
def test_errors(make, text):
    with pytest.raises(Exception, match=text):
        run(make, [np.zeros((4, 4), np.uint8)], layouts=["HW"])
