"""`Shards`: the slices of a batch and their devices; also the assembly of global arrays, and choice of devices."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from .._core.ffi import TargetDevice, why_no_kernels


@dataclasses.dataclass(frozen=True)
class Shards:
    """The distinct slices of the batch that this process holds, in slice order.

    Devices along a non-batch axis of a mesh are replicas: they hold the same slice.

    Attributes:
      num: number of distinct slices over all processes.
      ids: the place of each local slice among them.
      devices: of each local slice, the devices that hold it; the first one, the primary, computes it. A device may be
        the primary of several slices; all primaries then have as many, which follow each other.
    """

    num: int
    ids: tuple[int, ...]
    devices: tuple[tuple[jax.Device, ...], ...]

    @staticmethod
    def single(device: jax.Device | TargetDevice) -> Shards:
        """A single shard on one device."""
        device_: Any = device  # a `TargetDevice` stands for a `jax.Device`
        return Shards(1, (0,), ((device_,),))

    @staticmethod
    def of(sharding: Sharding, batch_size: int) -> Shards:
        """The shards of a batch of `batch_size` samples.

        Raises:
          ValueError: the shards don't divide the batch, or no shard is local.
        """
        slices = slices_of(sharding, batch_size)
        process = jax.process_index()
        # (number of the slice, this process's devices that hold it)
        local = [(i, [d for d in ds if d.process_index == process]) for i, ds in enumerate(slices)]
        local = [(i, sorted(ds, key=lambda d: d.id)) for i, ds in local if ds]
        if not local:
            raise ValueError(f"{sharding} has no device of this process")
        return Shards(len(slices), tuple(i for i, _ in local), tuple(tuple(ds) for _, ds in local))

    @property
    def primaries(self) -> tuple[jax.Device, ...]:
        """The first device of each local slice, which computes it."""
        return tuple(d[0] for d in self.devices)

    @property
    def accelerator(self) -> bool:
        """Whether the devices are not JAX's CPU devices."""
        return self.primaries[0].platform != "cpu"

    @functools.cached_property
    def local(self) -> Sharding:
        """The sharding of a program's ``[S, ...]`` values: as many rows on each primary device as it has slices."""
        if len(set(self.primaries)) == 1:
            return SingleDeviceSharding(self.devices[0][0])
        return NamedSharding(self.mesh, PartitionSpec("shard"))

    @functools.cached_property
    def mesh(self) -> Mesh:
        """Our own mesh over the primaries. Its axis is always Auto, so that user code in a program sees no mesh."""
        return Mesh(np.array(list(dict.fromkeys(self.primaries))), ("shard",), axis_types=(AxisType.Auto,))

    def direct(self, sharding: Sharding | None) -> bool:
        """Whether a program writes its outputs where `sharding` has them, so that they need not be moved."""
        if sharding is None:
            return True
        # A program writes one row per slice, on its primary. So there must be no replicas, only the batch axis may be
        # cut, and the devices must be in the order of the slices.
        if len(sharding.device_set) != len(self.devices) or any(len(d) > 1 for d in self.devices):
            return False
        if isinstance(sharding, NamedSharding):
            cuts_batch_only = all(axis is None for axis in sharding.spec[1:])
            return cuts_batch_only and tuple(np.asarray(sharding.mesh.devices).flat) == self.primaries
        return isinstance(sharding, SingleDeviceSharding) and sharding.device_set == set(self.primaries)


def on_mesh(sharding: Any, argument: str) -> Any:
    """Returns a bare `PartitionSpec` as a sharding on the mesh that is set, like JAX's own functions; any other object
    unchanged.

    Args:
      argument: the name of the argument, for messages.

    Raises:
      ValueError: no mesh is set, or it lacks an axis of the spec.
    """
    if not isinstance(sharding, PartitionSpec):
        return sharding
    try:
        mesh = jax.sharding.get_mesh()
    except ValueError:  # while JAX traces
        mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        raise ValueError(
            f"{argument}={sharding} names axes of a mesh, but no mesh is set: call jax.set_mesh(mesh) before, or pass "
            f"jax.sharding.NamedSharding(mesh, {sharding})"
        )
    return NamedSharding(mesh, sharding)  # pyright: ignore[reportArgumentType]  an abstract mesh will do


def slices_of(sharding: Sharding, batch_size: int) -> list[list[jax.Device]]:
    """The devices of all processes that hold each slice of a batch of `batch_size` samples, in the order of the slices.

    Raises:
      ValueError: the slices don't divide the batch.
    """
    total = sharding.num_devices
    slices: dict[tuple[int, int], list[jax.Device]] = {}
    # An array of extents `total` stands for the batch, because `total` is divisible by every product of mesh axes. Its
    # first axis is that of the batch.
    for device, index in sharding.devices_indices_map((total,) * _rank(sharding)).items():
        start, stop, _ = index[0].indices(total)
        slices.setdefault((start, stop), []).append(device)
    if batch_size % len(slices):
        raise ValueError(
            f"batch_size={batch_size} is not divisible by the {len(slices)} shards of the batch that {sharding} makes"
        )
    return [slices[s] for s in sorted(slices)]


def _rank(sharding: Sharding) -> int:
    """The number of leading axes that a sharding names, at least 1: the fewest that an array on it can have."""
    return max(1, len(sharding.spec)) if isinstance(sharding, NamedSharding) else 1


def assemble(parts: Sequence[Any], shards: Shards, sharding: Sharding) -> jax.Array:
    """Assembles one global array on `sharding` from the local shards' arrays ``[B, ...]``: NumPy arrays, or jax arrays
    that are each on the shard's primary device, see `Shards.devices`.

    Each device gets its part: replicas get copies, and along other axes than that of the batch the parts are cut out.
    Devices of other processes are not touched, so each process assembles its own part.

    Raises:
      ValueError: the sharding has more axes than the arrays, or does not cut the batch into these shards.
    """
    per_shard = parts[0].shape[0]  # samples of a shard; all parts have one shape
    shape = (shards.num * per_shard, *parts[0].shape[1:])
    if _rank(sharding) > len(shape):
        raise ValueError(f"{sharding} names {_rank(sharding)} axes, the batch has {len(shape)}")
    part_of_shard = {shard: parts[i] for i, shard in enumerate(shards.ids)}
    arrays = []
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        assert index is not None
        # The samples that it holds. An empty index stands for the whole array.
        start, stop, _ = index[0].indices(shape[0]) if index else (0, shape[0], 1)
        part = part_of_shard[start // per_shard]
        if stop - start != per_shard:
            raise ValueError(
                f"{sharding} cuts the batch of {shape[0]} samples at {start}:{stop}, not into shards of {per_shard}"
            )
        inner = index[1:]
        if any(s.indices(n) != (0, n, 1) for s, n in zip(inner, shape[1:], strict=False)):
            part = part[(slice(None), *inner)]  # on its own device, if it is on one
        arrays.append(jax.device_put(part, device))
    return jax.make_array_from_single_device_arrays(shape, sharding, arrays)


def local_devices(platform: str) -> list[jax.Device]:
    """Returns this process's devices of a platform, by the name for which JAX lowers programs: "cpu", "cuda", "rocm" or
    "tpu".
    """
    try:
        return jax.local_devices(backend=platform)
    except RuntimeError:  # it has none, or may use none
        return []


def device_of(platform: str) -> jax.Device | TargetDevice:
    """Returns a device of a platform, if possible one without kernels; a `TargetDevice` if this process has none."""
    if platform == "cpu":
        return cpu_device()
    devices = local_devices(platform)
    return next((d for d in devices if why_no_kernels(d)), devices[0]) if devices else TargetDevice(platform)


def cpu_device() -> jax.Device:
    """The first CPU device.

    Raises:
      RuntimeError: JAX's CPU backend is disabled.
    """
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError as e:
        backend = jax.default_backend()  # "gpu" is CUDA or ROCm
        raise RuntimeError(
            f"jaxdali needs JAX's CPU backend beside the accelerator's: set JAX_PLATFORMS={'cuda' if backend == 'gpu' else backend},cpu"
        ) from e
