"""`RunResources`: the devices, threads, memory and settings with which an executor makes batches."""

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
      options: how batches are made.
      delivery: the form in which batches are delivered.

    Attributes:
      S: number of local shards; B: samples of each; N: samples of all.
      cpu_shards: the shards on CPU devices, for operators that the user did not place on the accelerator.
      kernels: the native kernels that all accelerators have; empty if the shards are on the CPU.
      seed: of all random numbers; it may come from a checkpoint.
      as_arrays: whether outputs are global jax.Arrays (for an iterator); otherwise values of the single shard.
      x64: whether these arrays keep 64-bit types.
      accelerator: whether the shards' devices are not JAX's CPU devices.
      settings: JAX's settings in the user's thread.
      meter: measures all stages.
      of_operators: objects that operators share or keep, by the names of their nodes, see `HostContext.resource`.
      pool: the pool of operands' buffers.
      output_pool: the pool of buffers for outputs on the host.
      output_reuse: the memory of earlier outputs, see Note [Output reuse].
      num_threads, pool_id: number of native threads, and the id of their pool.
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
        # The nodes whose user functions run now, by the id of the thread. At exit such a thread is interrupted. Each
        # thread changes only its own entry.
        self._called_nodes: dict[int, Node] = {}
        self.meter = Meter(options.statistics or bool(options.tuned))
        self._process = os.getpid()  # that has made the threads, see `close`
        self.of_operators: dict[str, Any] = {}
        self._of_operators_lock = threading.RLock()
        self.pool = BufferPool(functools.partial(_ffi.pinned_memory, shards.primaries[0]) if self.accelerator else None)
        # Not from page-locked memory: users may keep outputs, and fork.
        self.output_pool = BufferPool() if self.accelerator else self.pool
        self.output_reuse = OutputReuse()
        self._thread_pools: dict[int, int] = {}  # pool ids by number of threads
        if options.pool_id is None:
            self.use_threads(options.num_threads)
        else:  # a pool of the caller, who also destroys it
            self.num_threads, self.pool_id = options.num_threads, options.pool_id

    def use_threads(self, num_threads: int):
        """Sets the number of threads for later batches. Batches in flight keep theirs."""
        if num_threads not in self._thread_pools:
            self._thread_pools[num_threads] = _cpu.pool_create(num_threads)
        self.num_threads, self.pool_id = num_threads, self._thread_pools[num_threads]

    @property
    def called_node(self) -> Node | None:
        """A node whose user function runs now in one of our threads; None: there is none."""
        return next(iter(list(self._called_nodes.values())), None)

    def note_call(self, node: Node | None):
        """Notes that this thread begins to run a node's user function; None: that the function has returned."""
        if node is None:
            self._called_nodes.pop(threading.get_ident(), None)
        else:
            self._called_nodes[threading.get_ident()] = node

    @functools.cached_property
    def zeros(self) -> np.ndarray:
        """``i64[N]`` of zeros."""
        return np.zeros(self.N, np.int64)

    @functools.cached_property
    def no_offsets(self) -> np.ndarray:
        """``i32[N]``, the offsets of samples that have no memory."""
        return np.zeros(self.N, np.int32)

    @functools.cached_property
    def all_present(self) -> np.ndarray:
        """``bool[N]``, all True."""
        return np.ones(self.N, bool)

    def resource(self, name: str, make: Callable[[], Any]) -> Any:
        """Returns the object of an operator, by the name of its node. Calls `make` for it the first time."""
        with self._of_operators_lock:
            if name not in self.of_operators:
                self.of_operators[name] = make()
            return self.of_operators[name]

    def close(self):
        """Releases threads, resources and memory for outputs."""
        self.of_operators.clear()
        self.output_reuse.clear()
        # In a forked process the threads of the pools do not exist, and this would wait for them forever.
        if os.getpid() == self._process:
            for pool in self._thread_pools.values():
                _cpu.pool_destroy(pool)
