"""JAX's settings in the user's thread, and those for making batches."""

from __future__ import annotations

import contextlib
from typing import Any

import jax


class UserSettings:
    """The JAX settings of the thread that builds a pipeline. User functions run under these, whatever thread calls them."""

    def __init__(self):
        config: Any = jax.config
        self.x64 = bool(config.jax_enable_x64)
        self.disable_jit = bool(config.jax_disable_jit)
        self._promotion = config.jax_numpy_dtype_promotion
        self._default_device = config.jax_default_device

    def contexts(self) -> contextlib.ExitStack:
        """Enters these settings again."""
        stack = contextlib.ExitStack()
        stack.enter_context(jax.enable_x64(self.x64))
        stack.enter_context(jax.disable_jit(self.disable_jit))
        stack.enter_context(jax.numpy_dtype_promotion(self._promotion))
        stack.enter_context(jax.default_device(self._default_device))
        return stack


def own_settings() -> contextlib.ExitStack:
    """Enters the settings for making batches: fixed ones where results depend on them, whatever the user's thread has."""
    stack = contextlib.ExitStack()
    stack.enter_context(jax.enable_x64(True))
    stack.enter_context(jax.disable_jit(False))
    stack.enter_context(jax.transfer_guard_host_to_device("allow"))  # three calls: `jax.transfer_guard` is more expensive
    stack.enter_context(jax.transfer_guard_device_to_device("allow"))
    stack.enter_context(jax.transfer_guard_device_to_host("allow"))
    stack.enter_context(jax.numpy_dtype_promotion("strict"))
    stack.enter_context(jax.default_device(None))
    return stack
