"""Shardings over some of the eight devices."""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def of_batch(n: int) -> NamedSharding:
    """The batch in n parts."""
    return NamedSharding(Mesh(np.array(jax.devices()[:n]), ("batch",)), PartitionSpec("batch"))
