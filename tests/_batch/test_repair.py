"""Samples that are made again, and written into the batch."""

import jax
import numpy as np
import pytest
import shardings
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from jaxdali._batch.repair import overwritten
from jaxdali._core.ragged import ALIGNMENT, Ragged, plan_offsets

PLACES = {
    "a device for each shard": shardings.of_batch(2),
    "all shards on one device": SingleDeviceSharding(jax.devices()[0]),
    "replicas": NamedSharding(
        Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("batch", "model")), PartitionSpec("batch")
    ),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("repaired", [(0,), (3,), (1, 2)])
def test_repaired_samples_replace_their_places_only(place, repaired):
    """Two shards of two samples, ragged and dense."""
    sizes = [70, 200, 5, 64]
    offsets, capacity = plan_offsets(np.array(sizes)[:, None], 2)
    begins = offsets * ALIGNMENT + np.repeat([0, capacity], 2)
    is_repaired = np.isin(np.arange(4), repaired)

    def ragged(value):
        flat, shapes = np.full(2 * capacity, value, np.int32), np.array(sizes, np.int32)[:, None]
        return Ragged(*(jax.device_put(x, place) for x in (flat, offsets, shapes)))

    result = overwritten(ragged(1), ragged(2), is_repaired, offsets, np.array(sizes)[:, None], 2)
    samples = [np.unique(np.asarray(result.data)[a : a + n]).tolist() for a, n in zip(begins.tolist(), sizes)]
    assert samples == [[2] if i in repaired else [1] for i in range(4)]
    dense = overwritten(
        *(jax.device_put(np.full((4, 3), v), place) for v in (1, 2)), is_repaired, None, np.ones((4, 1)), 2
    )
    np.testing.assert_array_equal(dense, np.where(is_repaired[:, None], 2, 1) * np.ones((1, 3)))
