"""LastBatchPolicy.PARTIAL of JAX iterators: a mask tells which samples belong to the epoch."""

import itertools
import math

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxdali import fn, pipeline_def
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import DALIGenericIterator, data_iterator

P = PartitionSpec
PARTIAL = {"last_batch_policy": LastBatchPolicy.PARTIAL, "mask_name": "mask"}


def definition(files, num_shards=1, shard_id=0, order=None):
    return fn.readers.file(files=files, name="reader", num_shards=num_shards, shard_id=shard_id, **(order or {}))[0]


def mesh(shape, names):
    return Mesh(np.array(jax.devices()[: np.prod(shape)]).reshape(shape), names)


ORDERS = [{}, {"stick_to_shard": True}, {"random_shuffle": True}, {"shuffle_after_epoch": True}]


@pytest.mark.parametrize("S", [1, 2, 3])
@pytest.mark.parametrize("order", ORDERS, ids=lambda o: next(iter(o), "in order"))
def test_each_sample_of_an_epoch_counts_once(files, S, order):
    sharding = NamedSharding(mesh((S,), ("b",)), P("b"))
    for N, B, pad in itertools.product((3, 7, 8, 11), (1, 2, 4), (False, True)):
        make = data_iterator(definition, ["x"], reader_name="reader", sharding=sharding, **PARTIAL)
        with make(files[:N], order={"pad_last_batch": pad, **order}, batch_size=S * B) as it:
            for epoch in range(3):
                batches = list(it)
                assert len(batches) == len(it) == math.ceil(math.ceil(N / S) / B)
                counted = np.concatenate([np.asarray(b["x"])[np.asarray(b["mask"])] for b in batches])
                assert sorted(counted.ravel()) == list(range(1, N + 1)), (N, B, pad, epoch)
                assert all(b["mask"].dtype == bool and b["mask"].shape == (S * B,) for b in batches)
                assert all(b["x"].shape == (S * B, 1) for b in batches)


@pytest.mark.one_device
@pytest.mark.parametrize(
    ("sharding", "mask_spec"),
    [
        (NamedSharding(mesh((4,), ("b",)), P("b")), P("b")),
        (NamedSharding(mesh((4, 2), ("b", "m")), P("b", "m")), P("b")),
        (NamedSharding(mesh((2, 2), ("b", "m")), P(("b", "m"))), P(("b", "m"))),
        (NamedSharding(mesh((4,), ("b",)), P()), P()),
    ],
    ids=str,
)
def test_mask_sharding_is_the_batch_axis(files, sharding, mask_spec):
    def both(num_shards=1, shard_id=0):
        return definition(files[:13], num_shards, shard_id), fn.external_source(
            source=lambda: np.ones((8 // num_shards, 8), np.float32)
        )

    shardings_by_name = {"x": NamedSharding(sharding.mesh, mask_spec), "wide": sharding}
    make = data_iterator(both, ["x", "wide"], reader_name="reader", sharding=shardings_by_name, **PARTIAL)
    with make(batch_size=8) as it:
        first, last = it
    assert last["mask"].sharding == NamedSharding(sharding.mesh, mask_spec)
    assert last["wide"].sharding == sharding
    assert first["mask"].all()
    for x, m in zip(last["x"].addressable_shards, last["mask"].addressable_shards):
        assert (x.device, x.index[0]) == (m.device, m.index[0])
    assert sorted([*np.ravel(first["x"]), *np.ravel(last["x"])[np.asarray(last["mask"])]]) == list(range(1, 14))


def test_masks_of_pipelines_and_devices(files):
    pipes = [pipeline_def(definition)(files[:7], 2, i, batch_size=2) for i in range(2)]
    with DALIGenericIterator(pipes, ["x"], reader_name="reader", **PARTIAL) as it:
        assert [b["mask"].tolist() for b in it] == [[[True, True]] * 2, [[True, False], [True, True]]]
    with data_iterator(definition, ["x"], reader_name="reader", devices=jax.devices()[:2], **PARTIAL)(
        files[:7], batch_size=4
    ) as it:
        batches = list(it)
        assert [b["mask"].tolist() for b in batches] == [[[True, True]] * 2, [[True, False], [True, True]]]
        assert batches[0]["mask"].sharding == batches[0]["x"].sharding
    with DALIGenericIterator(
        pipeline_def(definition)(files[:7], batch_size=4, device_id=3), ["x"], reader_name="reader", **PARTIAL
    ) as it:
        assert [b["mask"].devices() for b in it] == [{jax.devices()[3]}] * 2


def test_partial_needs_a_mask(files):
    with pytest.raises(ValueError, match="PARTIAL only with mask_name"):
        data_iterator(definition, ["x"], reader_name="reader", last_batch_policy=LastBatchPolicy.PARTIAL)


def short_batches(batch_size):
    """7 samples, the last batch short."""

    def source(i):
        if i * batch_size >= 7:
            raise StopIteration
        return [np.full((4, 4, 3), x, np.uint8) for x in range(1, 8)[i * batch_size : (i + 1) * batch_size]]

    @pipeline_def(batch_size=batch_size)
    def define():
        images = fn.external_source(source=source, layout="HWC")
        return images, fn.resize(images, size=(2, 2))

    return define()


@pytest.mark.one_device
@pytest.mark.parametrize("size", [-1, 7])
def test_short_batches_are_padded_and_masked(size, recwarn):
    with DALIGenericIterator(short_batches(4), ["x", "small"], size=size, **PARTIAL) as it:
        for _ in range(2):
            batches = list(it)
            assert [b["mask"].tolist() for b in batches] == [[True] * 4, [True] * 3 + [False]]
            for b in batches:
                assert (b["x"].shape, b["small"].shape) == ((4, 4, 4, 3), (4, 2, 2, 3))
            for name in ("x", "small"):
                assert [int(x[0, 0, 0]) for b in batches for x in b[name][b["mask"]]] == list(range(1, 8))


def test_short_batches_without_a_mask(recwarn):
    with DALIGenericIterator(short_batches(4), ["x", "small"]) as it:
        assert [(b["x"].shape[0], b["small"].shape[0]) for b in it] == [(4, 4), (3, 3)]
    with DALIGenericIterator(short_batches(4), ["x", "small"], size=8) as it:
        next(it)
        with pytest.raises(ValueError, match="3 of 4 samples"):
            next(it)


def test_samples_beyond_size_are_masked(recwarn):
    pipes = [
        pipeline_def(lambda: fn.external_source(source=lambda i: np.int32(i.idx_in_epoch), batch=False))(batch_size=2)
        for _ in "ab"
    ]
    with DALIGenericIterator(pipes, ["x"], size=5, **PARTIAL) as it:
        assert [b["mask"].tolist() for b in it] == [[[True, True]] * 2, [[True, False], [False, False]]]


@pytest.mark.one_device
def test_masks_may_be_donated(files):
    invert = jax.jit(lambda m: ~m, donate_argnums=0)
    with data_iterator(definition, ["x"], reader_name="reader", **PARTIAL)(files[:6], batch_size=4) as it:
        for _ in range(3):
            assert [invert(b["mask"]).tolist() for b in it] == [[False] * 4, [False] * 2 + [True] * 2]
