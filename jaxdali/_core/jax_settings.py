"""Settings of JAX: those of the user's thread, under which user functions run, and our own, under which batches are
made.
"""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

_NO_MESH = Mesh(np.empty((), object), ())


def devices_are_open() -> bool:
    """Whether JAX has opened its devices. False with a JAX that does not tell."""
    try:
        from jax._src.xla_bridge import backends_are_initialized  # JAX has no public name for it
    except ImportError:
        return False
    return backends_are_initialized()


class UserSettings:
    """The JAX settings of the thread that builds a pipeline. User functions run under these, in whichever thread they
    are called.

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
        with contextlib.suppress(ValueError):  # while JAX traces a function
            mesh = jax.sharding.get_mesh()
            self.mesh = None if mesh.empty else mesh

    @property
    def mesh_of_shard(self) -> Mesh | AbstractMesh | None:
        """The mesh for a function of one shard: an abstract mesh, of its axes only, if it has devices of other
        processes.
        """
        if self.mesh is None or NamedSharding(self.mesh, PartitionSpec()).is_fully_addressable:
            return self.mesh
        return AbstractMesh(
            self.mesh.axis_sizes, self.mesh.axis_names, axis_types=(AxisType.Auto,) * len(self.mesh.axis_names)
        )

    def contexts(self, mesh: Mesh | AbstractMesh | None) -> contextlib.ExitStack:
        """Enters these settings again, with a mesh; None: without one."""
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


# The settings under which batches are made: the context manager and the value of each. Entering one takes about a
# microsecond, and comparing its present value takes a tenth of that.
_OWN_SETTINGS: dict[str, tuple[Any, Any]] = {
    "jax_enable_x64": (jax.enable_x64, True),
    "jax_disable_jit": (jax.disable_jit, False),
    "jax_numpy_dtype_promotion": (jax.numpy_dtype_promotion, "strict"),
    "jax_numpy_rank_promotion": (jax.numpy_rank_promotion, "allow"),
    "jax_default_device": (jax.default_device, None),
    "jax_debug_nans": (jax.debug_nans, False),  # the gaps between samples of a buffer may have any values
    "jax_debug_infs": (jax.debug_infs, False),
}


def own_settings() -> contextlib.ExitStack:
    """Enters the settings under which batches are made, so that results do not depend on the user's settings."""
    stack = contextlib.ExitStack()
    for name, (context, value) in _OWN_SETTINGS.items():
        if getattr(jax.config, name) != value:
            stack.enter_context(context(value))
    # `jax.transfer_guard` sets the three at once, but takes more time.
    stack.enter_context(jax.transfer_guard_host_to_device("allow"))
    stack.enter_context(jax.transfer_guard_device_to_device("allow"))
    stack.enter_context(jax.transfer_guard_device_to_host("allow"))
    stack.enter_context(without_mesh())
    return stack


def without_mesh() -> contextlib.AbstractContextManager[Any]:
    """Leaves the user's mesh, which would decide where our programs run. While JAX traces a function, its mesh can't be
    left.
    """
    if jax.sharding.get_abstract_mesh().empty:
        return contextlib.nullcontext()
    try:
        return jax.set_mesh(_NO_MESH)
    except ValueError:
        return contextlib.nullcontext()
