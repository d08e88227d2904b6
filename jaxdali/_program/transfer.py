"""Batches that some processes make for all: who makes which shard, and how the others get theirs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from .._core.jax_settings import own_settings
from .sharding import Shards, slices_of


@dataclasses.dataclass(frozen=True)
class Loading:
    """Which of the loading processes makes which shard of a batch.

    Attributes:
      processes: the loading processes, in order.
      everyone: these and the processes that hold shards, in order.
      holders: of each shard, the devices of all processes that hold it.
      makers: of each shard, the device that makes it.
    """

    processes: tuple[int, ...]
    everyone: tuple[int, ...]
    holders: tuple[tuple[jax.Device, ...], ...]
    makers: tuple[jax.Device, ...]

    @staticmethod
    def of(sharding: Sharding, batch_size: int, processes: Sequence[int]) -> Loading:
        """A shard is made where it is held, if a loading process holds it; the other shards are divided evenly.

        Raises:
          ValueError: see `slices_of`; or there are more loading processes than shards.
        """
        holders = slices_of(sharding, batch_size)
        order = sorted(processes)
        if len(order) > len(holders):
            raise ValueError(
                f"{len(order)} loading_processes can't share the {len(holders)} shards of the batch that {sharding} makes"
            )
        of_process: dict[int, list[int]] = {p: [] for p in order}
        rest = []
        for i, devices in enumerate(holders):
            there = [p for p in order if any(d.process_index == p for d in devices)]
            if there:
                of_process[min(there, key=lambda p: len(of_process[p]))].append(i)
            else:
                rest.append(i)
        for i in rest:
            of_process[min(order, key=lambda p: len(of_process[p]))].append(i)
        platform = holders[0][0].platform
        makers: dict[int, jax.Device] = {}
        for p, unordered in of_process.items():
            shards = sorted(unordered)
            own = [
                min((d for d in holders[i] if d.process_index == p), key=lambda d: d.id, default=None) for i in shards
            ]
            if None in own or len(set(own)) < len(own):
                devices = sorted((d for d in jax.devices(platform) if d.process_index == p), key=lambda d: d.id)
                used = max(n for n in range(1, len(devices) + 1) if len(shards) % n == 0)
                own = [devices[k * used // len(shards)] for k in range(len(shards))]
            makers |= {i: d for i, d in zip(shards, own, strict=True) if d is not None}
        everyone = sorted({*order, *(d.process_index for devices in holders for d in devices)})
        return Loading(
            tuple(order), tuple(everyone), tuple(map(tuple, holders)), tuple(makers[i] for i in range(len(holders)))
        )

    @property
    def num(self) -> int:
        """The number of shards."""
        return len(self.holders)

    def made_by(self, process: int) -> tuple[int, ...]:
        """The shards that a process makes, in order."""
        return tuple(i for i, d in enumerate(self.makers) if d.process_index == process)

    def held_by(self, process: int) -> dict[int, jax.Device]:
        """The shards that a process holds, and the first device of each, in order."""
        local = {i: [d for d in devices if d.process_index == process] for i, devices in enumerate(self.holders)}
        return {i: min(devices, key=lambda d: d.id) for i, devices in local.items() if devices}

    @property
    def shards(self) -> Shards:
        """What this process makes."""
        ids = self.made_by(jax.process_index())
        return Shards(self.num, ids, tuple((self.makers[i],) for i in ids))


class Messages:
    """Sends bytes from each process to all: an all-gather over one CPU device of each. All processes call it in the
    same order.
    """

    def __init__(self, processes: Sequence[int]):
        first: dict[int, jax.Device] = {}
        for d in sorted(jax.devices("cpu"), key=lambda d: d.id):
            first.setdefault(d.process_index, d)
        self._mesh = Mesh(np.array([first[p] for p in processes]), ("process",))
        self._own = first[jax.process_index()]
        self._capacity = 1 << 12

    def exchange(self, mine: bytes) -> list[bytes]:
        """The messages of all processes, in their order."""
        found = self._gather(mine)
        lengths = [int.from_bytes(row[:8].tobytes(), "little") for row in found]
        if max(lengths) > self._capacity - 8:  # all processes see that
            self._capacity = 1 << (max(lengths) + 8).bit_length()
            found = self._gather(mine)
        return [row[8 : 8 + n].tobytes() for row, n in zip(found, lengths, strict=True)]

    def _gather(self, mine: bytes) -> np.ndarray:
        row = np.zeros((1, self._capacity), np.uint8)
        whole = len(mine).to_bytes(8, "little") + mine
        part = np.frombuffer(whole[: self._capacity], np.uint8)
        row[0, : len(part)] = part
        shape, by_process = (self._mesh.size, self._capacity), NamedSharding(self._mesh, PartitionSpec("process"))
        with own_settings():
            x = jax.make_array_from_single_device_arrays(shape, by_process, [jax.device_put(row, self._own)])
            return np.asarray(_replicated(NamedSharding(self._mesh, PartitionSpec()))(x))


@functools.cache
def _replicated(sharding: Sharding) -> Any:
    return jax.jit(lambda x: x, out_shardings=sharding)


@dataclasses.dataclass(frozen=True)
class PartSpec:
    """What all processes know of an array before it is transferred: the shape ``[B, ...]`` and the type of a shard, and
    the sharding.
    """

    shape: tuple[int, ...]
    dtype: Any
    sharding: Sharding


class Transfer:
    """Makes global arrays of what loading processes have made. All processes call it in the same order."""

    def __init__(self, loading: Loading):
        self._loading = loading
        edges: dict[jax.Device, list[jax.Device]] = {}
        for maker, devices in zip(loading.makers, loading.holders, strict=True):
            edges.setdefault(maker, []).extend(d for d in devices if d.process_index != maker.process_index)
        edges = {maker: devices for maker, devices in edges.items() if devices}
        used = {*edges, *(d for devices in edges.values() for d in devices)}
        self._devices = tuple(sorted(used, key=lambda d: (d.process_index, d.id)))
        number = {d: k for k, d in enumerate(self._devices)}
        # A device sends to one other in each round. It receives in one round only, because it holds one shard.
        self._rounds = tuple(
            tuple((number[maker], number[devices[r]]) for maker, devices in edges.items() if r < len(devices))
            for r in range(max(map(len, edges.values()), default=0))
        )
        process = jax.process_index()
        self._local = [d for d in self._devices if d.process_index == process]
        self._target = [{self._devices[a]: self._devices[b] for a, b in each} for each in self._rounds]
        self._shard = {d: i for i, devices in enumerate(loading.holders) for d in devices}
        self._nothing: dict[Any, jax.Array] = {}

    def arrays(self, specs: Sequence[PartSpec], parts: Sequence[Mapping[int, Any]]) -> list[jax.Array]:
        """The global arrays.

        Args:
          specs: of the arrays.
          parts: of each array the shards that this process has made.

        Raises:
          ValueError: an array does not fit its sharding.
        """
        with own_settings():
            pieces = [self._pieces(spec) for spec in specs]
            sent = [
                [self._sent(spec, cut, part, r) for r in range(len(self._rounds))]
                for spec, cut, part in zip(specs, pieces, parts)
            ]
            received: list[dict[jax.Device, Any]] = [{} for _ in specs]
            if self._local:
                for k, x in enumerate(_permuted(self._devices, self._rounds)(sent)):
                    received[k] = {s.device: s.data for s in x.addressable_shards}
            process = jax.process_index()
            result = []
            for spec, cut, part, got in zip(specs, pieces, parts, received, strict=True):
                arrays = []
                for d in (d for d in cut if d.process_index == process):
                    i = self._shard[d]
                    own = self._loading.makers[i].process_index == process
                    arrays.append(jax.device_put(_cut(part[i], cut[d]), d) if own else got[d])
                shape = (self._loading.num * spec.shape[0], *spec.shape[1:])
                result.append(jax.make_array_from_single_device_arrays(shape, spec.sharding, arrays, dtype=spec.dtype))
            return result

    def _pieces(self, spec: PartSpec) -> dict[jax.Device, tuple[slice, ...]]:
        """For each device, what it holds of its shard's axes behind the batch axis."""
        shape = (self._loading.num * spec.shape[0], *spec.shape[1:])
        found = {}
        for d, index in spec.sharding.devices_indices_map(shape).items():
            start, stop, _ = index[0].indices(shape[0])
            if (start, stop) != (self._shard[d] * spec.shape[0], (self._shard[d] + 1) * spec.shape[0]):
                raise ValueError(
                    f"{spec.sharding} cuts the batch of {shape[0]} samples at {start}:{stop}, not into shards of {spec.shape[0]}"
                )
            found[d] = tuple(
                s if s.indices(n) != (0, n, 1) else slice(None) for s, n in zip(index[1:], shape[1:], strict=False)
            )
        return found

    def _sent(
        self, spec: PartSpec, cut: Mapping[jax.Device, tuple[slice, ...]], part: Mapping[int, Any], r: int
    ) -> Any:
        """What the devices send in one round; those that send nothing have zeros."""
        shape = spec.sharding.shard_shape((self._loading.num * spec.shape[0], *spec.shape[1:]))
        arrays = []
        for d in self._local:
            to = self._target[r].get(d)
            if to is not None:
                arrays.append(jax.device_put(_cut(part[self._shard[to]], cut[to]), d))
                continue
            key = shape, np.dtype(spec.dtype), d
            if key not in self._nothing:
                self._nothing[key] = jax.device_put(np.zeros(shape, spec.dtype), d)
            arrays.append(self._nothing[key])
        whole = (len(self._devices) * shape[0], *shape[1:])
        return (
            jax.make_array_from_single_device_arrays(whole, _over(self._devices), arrays, dtype=spec.dtype)
            if arrays
            else None
        )


def _cut(part: Any, inner: tuple[slice, ...]) -> Any:
    return part[(slice(None), *inner)] if any(s != slice(None) for s in inner) else part


@functools.cache
def _over(devices: tuple[jax.Device, ...]) -> NamedSharding:
    return NamedSharding(Mesh(np.array(devices), ("device",)), PartitionSpec("device"))


@functools.cache
def _permuted(devices: tuple[jax.Device, ...], rounds: tuple[tuple[tuple[int, int], ...], ...]) -> Any:
    """A program that sends all rounds of all arrays, and gives each device what it received."""
    by_device = np.zeros(len(devices), np.int32)
    for r, each in enumerate(rounds):
        for _, to in each:
            by_device[to] = r

    def permute(sent: list[list[Any]]) -> list[Any]:
        mine = jnp.asarray(by_device)[jax.lax.axis_index("device")]
        received = [
            [jax.lax.ppermute(x, "device", each) for x, each in zip(of_array, rounds, strict=True)] for of_array in sent
        ]
        return [jax.lax.select_n(mine, *xs) if len(xs) > 1 else xs[0] for xs in received]

    spec = PartitionSpec("device")
    return jax.jit(jax.shard_map(permute, mesh=_over(devices).mesh, in_specs=spec, out_specs=spec, check_vma=False))
