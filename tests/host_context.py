"""A stand-in for the executor's context, to run host operators and sources without a pipeline."""

import dataclasses

import numpy as np

from jaxdali import _cpu


@dataclasses.dataclass
class Context:
    """S shards of B samples, as `HostContext`."""

    S: int
    B: int
    seed: int = 0
    node: object = None
    epoch: np.ndarray | None = None
    position: np.ndarray | None = None
    present: np.ndarray | None = None
    pool: int = dataclasses.field(default_factory=lambda: _cpu.pool_create(2))
    failures: list = dataclasses.field(default_factory=list)

    @property
    def shard_ids(self):
        return tuple(range(self.S))

    @property
    def num_shards(self):
        return self.S

    @property
    def N(self):
        return self.S * self.B

    def empty(self, elements, dtype, index=0):
        return np.empty((self.S, max(elements, 1)), dtype)

    def fail(self, i, code, reason=""):
        self.failures.append((i, code, reason))

    def __del__(self):
        _cpu.pool_destroy(self.pool)
