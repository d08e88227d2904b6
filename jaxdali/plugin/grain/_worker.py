"""Preparation of the worker processes of Grain."""

from __future__ import annotations

import functools
import multiprocessing

import jax

from ...dynamic import _threads


@functools.cache
def prepare_worker() -> None:
    """Prepares a worker process for functions of values; in any other process it has no effect.

    Grain starts a worker for each core that is to work, so each gets one native thread, unless `set_num_threads` was
    called there (``worker_init_fn``). Accelerators are for training: JAX does not look for them there.
    """
    if multiprocessing.current_process().daemon:  # as Grain starts its workers
        _threads.set_default_num_threads(1)
        jax.config.update("jax_platforms", "cpu")
