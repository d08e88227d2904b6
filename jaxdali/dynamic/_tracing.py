"""Calls that JAX must not trace, although it traces the function that makes them."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import TypeVar

import jax

from .._core.building import user_line
from .._core.calls import override_line
from .._core.jax_settings import UserSettings

T = TypeVar("T")


def is_tracing() -> bool:
    """Whether JAX traces a function in this thread."""
    try:
        jax.sharding.get_mesh()  # of all public functions the fastest one that tells, 0.4 us
    except ValueError:
        return True
    return False


def run_untraced(function: Callable[[], T]) -> T:
    """Calls a function so that JAX evaluates at once what it computes.

    If JAX traces in this thread, another one calls it: only there is no trace, and no mesh of `jax.set_mesh` or
    `jax.shard_map`, which can't be left while JAX traces.
    """
    if not is_tracing():
        return function()
    settings, line = UserSettings(), user_line()

    def run() -> T:
        with settings.contexts(None), override_line(line):
            return function()

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()
