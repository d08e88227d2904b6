"""JAX's settings in the user's thread, and those for making batches."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

_NO_MESH = Mesh(np.empty((), object), ())


def devices_are_open() -> bool:
    """Whether JAX has opened its devices. False with a JAX that does not say so."""
    try:
        from jax._src.xla_bridge import backends_are_initialized  # JAX has no public name for it
    except ImportError:
        return False
    return backends_are_initialized()


class UserSettings:
    """The JAX settings of the thread that builds a pipeline. User functions run under these, whatever thread calls
    them.

    Attributes:
      mesh: the mesh that is set; None: there is none, or JAX traces a function, whose mesh is not known.
    """

    def __init__(self):
        config: Any = jax.config
        self.x64 = bool(config.jax_enable_x64)
        self.disable_jit = bool(config.jax_disable_jit)
        self._dtype_promotion = config.jax_numpy_dtype_promotion
        self._rank_promotion = config.jax_numpy_rank_promotion
        self._default_device = config.jax_default_device
        self._debug_nans, self._debug_infs = bool(config.jax_debug_nans), bool(config.jax_debug_infs)
        self.mesh: Mesh | None = None
        with contextlib.suppress(ValueError):
            mesh = jax.sharding.get_mesh()
            self.mesh = None if mesh.empty else mesh

    @property
    def mesh_of_shard(self) -> Mesh | AbstractMesh | None:
        """The mesh for a function of one shard: its axes alone if it has devices of other processes."""
        if self.mesh is None or NamedSharding(self.mesh, PartitionSpec()).is_fully_addressable:
            return self.mesh
        return AbstractMesh(
            self.mesh.axis_sizes, self.mesh.axis_names, axis_types=(AxisType.Auto,) * len(self.mesh.axis_names)
        )

    def contexts(self, mesh: Mesh | AbstractMesh | None) -> contextlib.ExitStack:
        """Enters these settings again, and sets a mesh; None: none."""
        stack = contextlib.ExitStack()
        stack.enter_context(jax.enable_x64(self.x64))
        stack.enter_context(jax.disable_jit(self.disable_jit))
        stack.enter_context(jax.numpy_dtype_promotion(self._dtype_promotion))
        stack.enter_context(jax.numpy_rank_promotion(self._rank_promotion))
        stack.enter_context(jax.default_device(self._default_device))
        stack.enter_context(jax.debug_nans(self._debug_nans))
        stack.enter_context(jax.debug_infs(self._debug_infs))
        stack.enter_context(jax.set_mesh(mesh) if isinstance(mesh, Mesh) else without_mesh())
        if isinstance(mesh, AbstractMesh):
            stack.enter_context(jax.sharding.use_abstract_mesh(mesh))
        return stack


# The settings for making batches. To enter one takes about a microsecond, and to look whether it is there already a
# tenth of that.
_OWN: dict[str, tuple[Any, Any]] = {
    "jax_enable_x64": (jax.enable_x64, True),
    "jax_disable_jit": (jax.disable_jit, False),
    "jax_numpy_dtype_promotion": (jax.numpy_dtype_promotion, "strict"),
    "jax_numpy_rank_promotion": (jax.numpy_rank_promotion, "allow"),
    "jax_default_device": (jax.default_device, None),
    "jax_debug_nans": (jax.debug_nans, False),  # there may be any between the samples of a buffer
    "jax_debug_infs": (jax.debug_infs, False),
}


def own_settings() -> contextlib.ExitStack:
    """Enters the settings for making batches: fixed ones where results depend on them, whatever the user's thread has."""
    stack = contextlib.ExitStack()
    for name, (context, value) in _OWN.items():
        if getattr(jax.config, name) != value:
            stack.enter_context(context(value))
    # Three calls: `jax.transfer_guard` is more expensive.
    stack.enter_context(jax.transfer_guard_host_to_device("allow"))
    stack.enter_context(jax.transfer_guard_device_to_device("allow"))
    stack.enter_context(jax.transfer_guard_device_to_host("allow"))
    stack.enter_context(without_mesh())
    return stack


def without_mesh() -> contextlib.AbstractContextManager[Any]:
    """Leaves the mesh that is set, which would decide where our programs run. While JAX traces a function its mesh
    can't be left.
    """
    if jax.sharding.get_abstract_mesh().empty:
        return contextlib.nullcontext()
    try:
        return jax.set_mesh(_NO_MESH)
    except ValueError:
        return contextlib.nullcontext()
