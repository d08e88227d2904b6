"""`Loading` and `Transfer`: the division of a batch among loading processes, and the transfer of its shards to the
processes that hold them.
"""

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
    """The division of a batch's shards among the loading processes.

    Attributes:
      processes: the loading processes, in order.
      everyone: the loading processes and those that hold shards, in order.
      holders: for each shard, the devices of all processes that hold it.
      makers: for each shard, the device that makes it.
    """

    processes: tuple[int, ...]
    everyone: tuple[int, ...]
    holders: tuple[tuple[jax.Device, ...], ...]
    makers: tuple[jax.Device, ...]

    @staticmethod
    def of(sharding: Sharding, batch_size: int, processes: Sequence[int]) -> Loading:
        """Divides the shards of a batch. A shard is made where it is held, if a loading process holds it; the other
        shards are divided evenly.

        Raises:
          ValueError: the shards don't divide the batch, or there are more loading processes than shards.
        """
        holders = slices_of(sharding, batch_size)
        order = sorted(processes)
        if len(order) > len(holders):
            raise ValueError(
                f"{len(order)} loading_processes can't share the {len(holders)} shards of the batch that {sharding} makes"
            )
        shards_of_process: dict[int, list[int]] = {p: [] for p in order}
        unheld = []  # shards that no loading process holds
        for i, devices in enumerate(holders):
            holding = [p for p in order if any(d.process_index == p for d in devices)]
            if holding:
                shards_of_process[min(holding, key=lambda p: len(shards_of_process[p]))].append(i)
            else:
                unheld.append(i)
        for i in unheld:
            shards_of_process[min(order, key=lambda p: len(shards_of_process[p]))].append(i)
        platform = holders[0][0].platform
        makers: dict[int, jax.Device] = {}
        for p, unordered in shards_of_process.items():
            shards = sorted(unordered)
            # If possible, the device that holds a shard makes it. Otherwise as many of the process's devices as
            # possible make equal numbers of shards, which `Shards` requires.
            chosen = [
                min((d for d in holders[i] if d.process_index == p), key=lambda d: d.id, default=None) for i in shards
            ]
            if None in chosen or len(set(chosen)) < len(chosen):
                devices = sorted((d for d in jax.devices(platform) if d.process_index == p), key=lambda d: d.id)
                num_used = max(n for n in range(1, len(devices) + 1) if len(shards) % n == 0)
                chosen = [devices[k * num_used // len(shards)] for k in range(len(shards))]
            makers |= {i: d for i, d in zip(shards, chosen, strict=True) if d is not None}
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
        """The shards that this process makes."""
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
        self._local_device = first[jax.process_index()]
        self._capacity = 1 << 12  # bytes of each message, with the 8 bytes of its length; it grows

    def exchange(self, message: bytes) -> list[bytes]:
        """Sends this process's message. Returns the messages of all processes, in their order."""
        rows = self._gather(message)
        lengths = [int.from_bytes(row[:8].tobytes(), "little") for row in rows]
        # A message was cut off. All processes see the same lengths, so all send again with the same capacity.
        if max(lengths) > self._capacity - 8:
            self._capacity = 1 << (max(lengths) + 8).bit_length()
            rows = self._gather(message)
        return [row[8 : 8 + n].tobytes() for row, n in zip(rows, lengths, strict=True)]

    def _gather(self, message: bytes) -> np.ndarray:
        """Returns ``u8[processes, capacity]``: the length of each message, and as much of it as fits."""
        row = np.zeros((1, self._capacity), np.uint8)
        data = len(message).to_bytes(8, "little") + message
        part = np.frombuffer(data[: self._capacity], np.uint8)
        row[0, : len(part)] = part
        shape, by_process = (self._mesh.size, self._capacity), NamedSharding(self._mesh, PartitionSpec("process"))
        with own_settings():
            x = jax.make_array_from_single_device_arrays(shape, by_process, [jax.device_put(row, self._local_device)])
            return np.asarray(_replicated(NamedSharding(self._mesh, PartitionSpec()))(x))


@functools.cache
def _replicated(sharding: Sharding) -> Any:
    """Returns a program that copies its argument to all devices of a replicated sharding."""
    return jax.jit(lambda x: x, out_shardings=sharding)


@dataclasses.dataclass(frozen=True)
class PartSpec:
    """The facts about an array that all processes know before it is transferred.

    Attributes:
      shape: ``[B, ...]``, of a shard.
      dtype: the type.
      sharding: of the global array.
    """

    shape: tuple[int, ...]
    dtype: Any
    sharding: Sharding


class Transfer:
    """Makes global arrays of shards that loading processes have made. All processes call it in the same order.

    Shards are sent in rounds of `jax.lax.ppermute`, in which each device sends to at most one other. A device that
    makes several shards, or one that several devices hold, sends in several rounds. Each device receives in one round
    only, because it holds one shard.
    """

    def __init__(self, loading: Loading):
        self._loading = loading
        # By the device that makes shards: the devices of other processes that hold them.
        receivers: dict[jax.Device, list[jax.Device]] = {}
        for maker, devices in zip(loading.makers, loading.holders, strict=True):
            receivers.setdefault(maker, []).extend(d for d in devices if d.process_index != maker.process_index)
        receivers = {maker: devices for maker, devices in receivers.items() if devices}
        participants = {*receivers, *(d for devices in receivers.values() for d in devices)}
        self._devices = tuple(sorted(participants, key=lambda d: (d.process_index, d.id)))
        number = {d: k for k, d in enumerate(self._devices)}
        # For each round, pairs of sender and receiver, by their numbers in `_devices`.
        self._rounds = tuple(
            tuple((number[maker], number[devices[r]]) for maker, devices in receivers.items() if r < len(devices))
            for r in range(max(map(len, receivers.values()), default=0))
        )
        process = jax.process_index()
        self._local_devices = [d for d in self._devices if d.process_index == process]
        # For each round, the receiver by the sender.
        self._receiver_of = [{self._devices[a]: self._devices[b] for a, b in pairs} for pairs in self._rounds]
        # A device holds one shard, or a piece of it.
        self._shard_of_holder = {d: i for i, devices in enumerate(loading.holders) for d in devices}
        self._zeros: dict[Any, jax.Array] = {}  # by shape, type and device

    def arrays(self, specs: Sequence[PartSpec], parts: Sequence[Mapping[int, Any]]) -> list[jax.Array]:
        """Returns the global arrays.

        Args:
          specs: the facts about each array.
          parts: for each array, the shards that this process has made, by their numbers.

        Raises:
          ValueError: an array does not fit its sharding.
        """
        with own_settings():
            pieces_of_arrays = [self._pieces(spec) for spec in specs]
            # By array, then by round.
            sent = [
                [self._sent_in_round(spec, pieces, part, r) for r in range(len(self._rounds))]
                for spec, pieces, part in zip(specs, pieces_of_arrays, parts)
            ]
            received: list[dict[jax.Device, Any]] = [{} for _ in specs]
            if self._local_devices:
                for k, x in enumerate(_permuted(self._devices, self._rounds)(sent)):
                    received[k] = {s.device: s.data for s in x.addressable_shards}
            process = jax.process_index()
            result = []
            for spec, pieces, part, received_on in zip(specs, pieces_of_arrays, parts, received, strict=True):
                arrays = []
                for d in (d for d in pieces if d.process_index == process):  # the local holders
                    i = self._shard_of_holder[d]
                    is_local = self._loading.makers[i].process_index == process
                    arrays.append(jax.device_put(_piece(part[i], pieces[d]), d) if is_local else received_on[d])
                shape = (self._loading.num * spec.shape[0], *spec.shape[1:])
                result.append(jax.make_array_from_single_device_arrays(shape, spec.sharding, arrays, dtype=spec.dtype))
            return result

    def _pieces(self, spec: PartSpec) -> dict[jax.Device, tuple[slice, ...]]:
        """Returns for each device the piece of its shard that it holds: slices of the axes behind the batch axis."""
        shape = (self._loading.num * spec.shape[0], *spec.shape[1:])
        pieces = {}
        for d, index in spec.sharding.devices_indices_map(shape).items():
            start, stop, _ = index[0].indices(shape[0])  # along the batch axis
            shard = self._shard_of_holder[d]
            if (start, stop) != (shard * spec.shape[0], (shard + 1) * spec.shape[0]):
                raise ValueError(
                    f"{spec.sharding} cuts the batch of {shape[0]} samples at {start}:{stop}, not into shards of {spec.shape[0]}"
                )
            pieces[d] = tuple(
                s if s.indices(n) != (0, n, 1) else slice(None) for s, n in zip(index[1:], shape[1:], strict=False)
            )
        return pieces

    def _sent_in_round(
        self, spec: PartSpec, pieces: Mapping[jax.Device, tuple[slice, ...]], part: Mapping[int, Any], r: int
    ) -> Any:
        """Returns the array of the pieces that the devices send in round `r`; None in a process without devices that
        take part. Devices that send nothing have zeros.
        """
        shape = spec.sharding.shard_shape((self._loading.num * spec.shape[0], *spec.shape[1:]))
        arrays = []
        for d in self._local_devices:
            # None: another device has more receivers than this one, or this one only receives.
            receiver = self._receiver_of[r].get(d)
            if receiver is not None:
                arrays.append(jax.device_put(_piece(part[self._shard_of_holder[receiver]], pieces[receiver]), d))
                continue
            key = shape, np.dtype(spec.dtype), d
            if key not in self._zeros:
                self._zeros[key] = jax.device_put(np.zeros(shape, spec.dtype), d)
            arrays.append(self._zeros[key])
        global_shape = (len(self._devices) * shape[0], *shape[1:])
        return (
            jax.make_array_from_single_device_arrays(
                global_shape, _sharding_over(self._devices), arrays, dtype=spec.dtype
            )
            if arrays
            else None
        )


def _piece(part: Any, slices: tuple[slice, ...]) -> Any:
    """Cuts a piece out of a shard's array, by the slices of the axes behind the batch axis."""
    return part[(slice(None), *slices)] if any(s != slice(None) for s in slices) else part


@functools.cache
def _sharding_over(devices: tuple[jax.Device, ...]) -> NamedSharding:
    return NamedSharding(Mesh(np.array(devices), ("device",)), PartitionSpec("device"))


@functools.cache
def _permuted(devices: tuple[jax.Device, ...], rounds: tuple[tuple[tuple[int, int], ...], ...]) -> Any:
    """Returns a program that sends all rounds of all arrays. Its results have on each device the piece that it
    received.
    """
    round_of_receiver = np.zeros(len(devices), np.int32)
    for r, pairs in enumerate(rounds):
        for _, receiver in pairs:
            round_of_receiver[receiver] = r

    def permute(sent: list[list[Any]]) -> list[Any]:
        """Runs on each device: sends its array of each round, for each of the arrays to make. Returns what it received."""
        my_round = jnp.asarray(round_of_receiver)[jax.lax.axis_index("device")]
        received = [
            [jax.lax.ppermute(x, "device", pairs) for x, pairs in zip(sent_of_array, rounds, strict=True)]
            for sent_of_array in sent
        ]
        # Of each array, one item for each round: the device takes that of the round in which it was the receiver.
        return [jax.lax.select_n(my_round, *xs) if len(xs) > 1 else xs[0] for xs in received]

    spec = PartitionSpec("device")
    mesh = _sharding_over(devices).mesh
    return jax.jit(jax.shard_map(permute, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
