"""permute_batch and batch_permutation: the order of samples."""

import collections

import jax
import numpy as np
import places
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from pipelines import run

from jaxdali import OperatorError, fn, pipeline_def
from jaxdali.plugin.jax import data_iterator

RAGGED = [np.full((n, 3), n, np.uint8) for n in (2, 70, 1, 33)]
DENSE = [np.full((2, 3), n, np.float32) for n in range(4)]


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("samples", [RAGGED, DENSE], ids=["ragged", "dense"])
def test_permute_batch(samples, on_device):
    per_sample = [np.int32(i) for i in (3, 3, 0, 1)]
    outputs = run(
        lambda x, i: (
            fn.permute_batch(x.gpu() if on_device else x, indices=i),
            fn.permute_batch(x, indices=[1, 0, 2, 1]),
        ),
        samples,
        per_sample,
        layouts=("HW", ""),
    )
    for output, indices in zip(outputs, (per_sample, (1, 0, 2, 1)), strict=True):
        assert output.layout() == "HW"
        for x, i in zip(map(np.asarray, output), indices, strict=True):
            assert x.dtype == samples[i].dtype
            np.testing.assert_array_equal(x, samples[i])


def test_bad_indices():
    with pytest.raises(OperatorError, match=r"permute_batch .*for each of the 4 samples of the batch, got 2"):
        run(lambda x: fn.permute_batch(x, indices=[0, 1]), DENSE)
    with pytest.raises(OperatorError, match=r"permute_batch .*indices must be from 0 to 3, got 4"):
        run(lambda x: fn.permute_batch(x, indices=[0, 1, 4, 0]), DENSE)
    with pytest.raises(RuntimeError, match=r"permute_batch .*indices must have 1 number per sample, got 2"):
        run(lambda x: fn.permute_batch(x, indices=fn.random.uniform(shape=2)), DENSE)


def drawn(batches, **arguments):
    @pipeline_def(batch_size=4, num_threads=1, seed=7)
    def pipeline():
        return fn.batch_permutation(**arguments)

    pipe = pipeline()
    orders = [tuple(pipe.run()[0].as_array().tolist()) for _ in range(batches)]
    pipe.close()
    return collections.Counter(orders)


@pytest.mark.parametrize(
    ("arguments", "number"),
    [  # of 4 samples; DALI 2.4 gives these, too, each with equal probability
        ({}, 24),  # orders
        ({"no_fixed_points": True}, 6),  # single cycles
        ({"allow_repetitions": True}, 4**4),
        ({"allow_repetitions": True, "no_fixed_points": True}, 3**4),
    ],
)
def test_batch_permutation(arguments, number):
    counts = drawn(2000, **arguments)
    assert len(counts) == number
    if arguments.get("no_fixed_points"):
        assert all(x[i] != i for x in counts for i in range(4))
    if not arguments.get("allow_repetitions"):
        assert all(sorted(x) == [0, 1, 2, 3] for x in counts)
    expected = 2000 / number
    chi2 = sum((n - expected) ** 2 / expected for n in counts.values())
    assert abs(chi2 - (number - 1)) < 5 * np.sqrt(2 * number)


def test_one_sample_keeps_its_place():
    (out,) = run(lambda x: fn.batch_permutation(no_fixed_points=True), DENSE[:1])
    assert out.as_array().tolist() == [0]


def test_samples_stay_on_their_shard():
    sharding = NamedSharding(Mesh(jax.devices()[:2], "batch"), PartitionSpec("batch"))

    @data_iterator(output_map=["x", "y"], reader_name="reader", sharding=sharding)
    def iterator(num_shards, shard_id):
        fn.readers.file(file_root=places.PHOTOS, num_shards=num_shards, shard_id=shard_id, name="reader")
        x = fn.random.uniform(shape=3)
        return x, fn.permute_batch(x.gpu(), indices=fn.batch_permutation(no_fixed_points=True))

    batch = next(iter(iterator(batch_size=8)))
    x, y = np.asarray(batch["x"]), np.asarray(batch["y"])
    for part in (slice(0, 4), slice(4, 8)):
        assert sorted(x[part].tolist()) == sorted(y[part].tolist())
    assert (x != y).all()


def test_short_batches():
    """Missing samples are not drawn."""

    @pipeline_def(batch_size=8, num_threads=1, seed=7)
    def pipeline():
        x = fn.external_source(lambda: DENSE[:3])
        return (
            x,
            fn.permute_batch(x.gpu(), indices=fn.batch_permutation(no_fixed_points=True)),
            fn.permute_batch(x, indices=[2, 2, 1]),
        )

    pipe = pipeline()
    x, mixed, static = (np.asarray(o.as_cpu().as_array()) for o in pipe.run())
    pipe.close()
    assert sorted(mixed.tolist()) == x.tolist()
    np.testing.assert_array_equal(static, x[[2, 2, 1]])


def test_indices_without_a_number_are_named():
    with pytest.raises(
        (ValueError, RuntimeError), match=r"permute_batch.*argument indices must have 1 number per sample, got 0"
    ):
        run(lambda x, i: fn.permute_batch(x, indices=i), [np.zeros(2), np.zeros(2)], [np.zeros(0, np.int32)] * 2)
