"""The resources that an executor's batches are made with."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _cpu
from .._core import ffi as _ffi
from .._core.graph import Node
from .._core.jax_settings import UserSettings
from .._core.ragged import BufferPool
from .._plan.run_options import RunOptions
from .._program.output_reuse import OutputReuse
from .._program.sharding import Shards, cpu_device
from .delivery import Delivery
from .meter import Meter


class RunResources:
    """Devices, threads, memory and settings.

    Args:
      shards: the local shards.
      options, delivery: see `Executor`.

    Attributes:
      S: local shards; N: samples of all.
      cpu_shards: where operators run that the user did not place on the accelerator.
      kernels: the native kernels that all accelerators have; empty if the shards are on the CPU.
      seed, as_arrays, x64: see the options and the delivery; the seed may come from a checkpoint.
      settings: JAX's settings in the user's thread.
      meter: of all stages.
      of_operators: objects that operators share or keep, by the names of their nodes, see `HostContext.resource`.
      pool: of the buffers of operands; output_pool: of those of outputs on the host; output_reuse: of the memory of
        outputs; num_threads, pool_id: of the native threads.
    """

    def __init__(self, shards: Shards, options: RunOptions, delivery: Delivery):
        self.shards = shards
        self.S = len(shards.devices)
        self.B = options.batch_size
        self.N = self.S * self.B
        self.seed = options.seed
        self.as_arrays = delivery.as_arrays
        self.settings = UserSettings()
        self.x64 = self.settings.x64 if delivery.x64 is None else delivery.x64
        self.accelerator = shards.accelerator
        self.cpu_shards = (
            Shards(shards.num, shards.ids, tuple((cpu_device(),) for _ in shards.ids)) if self.accelerator else shards
        )
        self.kernels = frozenset[str]()
        if self.accelerator:
            self.kernels = frozenset.intersection(*map(_ffi.kernels_on, set(shards.primaries)))
        self._called: dict[int, Node] = {}  # by thread, which changes its own entry alone
        self.meter = Meter(options.statistics or bool(options.tuned))
        self._process = os.getpid()
        self.of_operators: dict[str, Any] = {}
        self._making = threading.RLock()  # guards `of_operators`
        self.pool = BufferPool(functools.partial(_ffi.pinned_memory, shards.primaries[0]) if self.accelerator else None)
        self.output_pool = BufferPool() if self.accelerator else self.pool  # users may keep outputs, and fork
        self.output_reuse = OutputReuse()
        self._pools: dict[int, int] = {}
        if options.pool_id is None:
            self.use_threads(options.num_threads)
        else:
            self.num_threads, self.pool_id = options.num_threads, options.pool_id

    def use_threads(self, num_threads: int):
        """Sets the number of threads for later batches. Batches in flight keep theirs."""
        if num_threads not in self._pools:
            self._pools[num_threads] = _cpu.pool_create(num_threads)
        self.num_threads, self.pool_id = num_threads, self._pools[num_threads]

    @property
    def called_node(self) -> Node | None:
        """A node whose user function one of our threads is currently running, for messages."""
        return next(iter(list(self._called.values())), None)

    def note_call(self, node: Node | None):
        """Notes that this thread begins to run a node's user function; None: that it has ended."""
        if node is None:
            self._called.pop(threading.get_ident(), None)
        else:
            self._called[threading.get_ident()] = node

    @functools.cached_property
    def zeros(self) -> np.ndarray:
        """``i64[N]``."""
        return np.zeros(self.N, np.int64)

    @functools.cached_property
    def no_offsets(self) -> np.ndarray:
        """``i32[N]``: of samples that have no memory."""
        return np.zeros(self.N, np.int32)

    @functools.cached_property
    def everywhere(self) -> np.ndarray:
        """``bool[N]``: all samples are present."""
        return np.ones(self.N, bool)

    def resource(self, name: str, make: Callable[[], Any]) -> Any:
        """See `HostContext.resource`."""
        with self._making:
            if name not in self.of_operators:
                self.of_operators[name] = make()
            return self.of_operators[name]

    def close(self):
        """Releases threads, resources and memory for outputs."""
        self.of_operators.clear()
        self.output_reuse.clear()
        if os.getpid() == self._process:  # in a fork, the threads of the pool, which this would wait for, do not exist
            for pool in self._pools.values():
                _cpu.pool_destroy(pool)
