"""Options of JAX iterators, and the placement of their batches on devices."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from ..._batch.delivery import RaggedForm
from ..._batch.remote import WorkerBackend
from ..._core.declaration import Whole, check_fields, checked
from ..._iterator.iterator_options import IteratorOptions, LastBatchPolicy
from ..._program.sharding import Shards, assemble, on_mesh, slices_of
from ..._program.transfer import Loading

Placement: TypeAlias = Sharding | PartitionSpec | Mapping[str, Sharding | PartitionSpec] | None


@dataclasses.dataclass(frozen=True)
class JaxOptions(IteratorOptions):
    """The checked arguments of JAX iterators, see `DALIGenericIterator`, and of `data_iterator`."""

    sharding: Placement = None  # after `on_mesh` without bare PartitionSpecs
    devices: Sequence[jax.Device] | None = None  # of `data_iterator` alone, as are the last two
    mask_name: str | None = None
    _: dataclasses.KW_ONLY
    ragged: Mapping[str, int | Sequence[int] | None] | None = None
    ragged_fill: float | Mapping[str, float] = 0
    workers: WorkerBackend | None = None
    loading_processes: Sequence[int] | None = None
    checkpoints: Sequence[bytes] | None = None
    enable_conditionals: bool = False

    def __post_init__(self):
        super().__post_init__()
        check_fields("iterator", self, ["mask_name"])
        if self.workers is not None and not callable(getattr(self.workers, "start", None)):
            raise TypeError(f"workers must be a jaxdali.ray.Workers, got {self.workers!r}")
        self._check_loading()
        self._check_sharding()
        self._check_ragged()
        is_partial = self.last_batch_policy is LastBatchPolicy.PARTIAL
        if is_partial and self.mask_name is None:
            raise ValueError(
                "JAX needs static shapes, so a JAX iterator has LastBatchPolicy.PARTIAL only with mask_name: a name for the "
                "output that says which samples are valid; else use FILL or DROP"
            )
        if self.mask_name is None:
            return
        if not is_partial:
            raise ValueError(
                f"mask_name={self.mask_name!r} is for last_batch_policy=LastBatchPolicy.PARTIAL, got {self.last_batch_policy}"
            )
        if self.mask_name in self.output_map:
            raise ValueError(
                f"mask_name={self.mask_name!r} is a name in output_map: {self.output_map}; use another one"
            )

    def _check_sharding(self):
        """Raises an error unless `sharding` is a `Placement` whose names, if it has some, are in `output_map`."""
        sharding = self.sharding
        if sharding is not None and not isinstance(sharding, (Sharding, PartitionSpec, Mapping)):
            advice = "; write NamedSharding(mesh, PartitionSpec(...))" if isinstance(sharding, Mesh) else ""
            raise TypeError(
                "sharding must be a jax.sharding.Sharding or a jax.sharding.PartitionSpec, or a dict of one for each output, "
                f"got {type(sharding).__name__}{advice}"
            )
        if isinstance(sharding, Mapping):
            if not sharding or not set(sharding) <= set(self.output_map):
                raise ValueError(
                    f"a dict of shardings must have the names in output_map, {self.output_map}, got {list(sharding)}"
                )
            for name, output_sharding in sharding.items():
                if not isinstance(output_sharding, (Sharding, PartitionSpec)):
                    raise TypeError(
                        f"sharding[{name!r}] must be a jax.sharding.Sharding or a jax.sharding.PartitionSpec, "
                        f"got {type(output_sharding).__name__}"
                    )

    @property
    def common_options(self) -> JaxOptions:
        """See `IteratorOptions.common_options`."""
        return dataclasses.replace(super().common_options, checkpoints=None, enable_conditionals=False)

    def on_mesh(self) -> JaxOptions:
        """Returns the options with bare PartitionSpecs put on the mesh that is set now, see `sharding.on_mesh`."""
        if isinstance(self.sharding, Mapping):
            sharding = {name: on_mesh(s, f"sharding[{name!r}]") for name, s in self.sharding.items()}
        else:
            sharding = on_mesh(self.sharding, "sharding")
        shardings: Any = sharding if isinstance(sharding, Mapping) else {"": sharding}
        for name, x in shardings.items():
            _check_placement(x, f"sharding[{name!r}]" if name else "sharding")
        return dataclasses.replace(self, sharding=sharding)

    def _check_loading(self):
        """Raises an error unless `loading_processes` is None, or numbers of processes that can load for the others."""
        if self.loading_processes is None:
            return
        processes = checked("iterator", "loading_processes", Sequence[Whole], self.loading_processes)
        self._set("loading_processes", processes)
        if self.workers is not None:
            raise ValueError(
                "workers and loading_processes can't be given together: Ray's workers can run where the data are"
            )
        process_count = jax.process_count()
        if not processes or len(set(processes)) < len(processes) or not all(0 <= p < process_count for p in processes):
            raise ValueError(
                f"loading_processes must be distinct numbers of the {process_count} processes, 0 to {process_count - 1}, "
                f"got {list(processes)}"
            )
        if self.sharding is None:
            raise ValueError("loading_processes needs a sharding, which says where the batches go")

    def loading(self, batch_size: int) -> Loading | None:
        """The assignment of the shards of a batch to the loading processes, which make them for all; None: each process
        makes its own. See Note [Loading processes].

        Args:
          batch_size: of all shards together; 0: it is not checked whether they divide it.
        """
        if self.loading_processes is None or jax.process_count() == 1:
            return None
        assert self.any_sharding is not None
        by_name: Any = self.sharding if isinstance(self.sharding, Mapping) else {}
        for name, sharding in by_name.items():
            slices, other_slices = ([set(s) for s in slices_of(x, batch_size)] for x in (self.any_sharding, sharding))
            if other_slices != slices:
                raise ValueError(
                    f"the shardings of all outputs must cut the batch into the same slices, but {name!r} has others: {sharding}"
                )
        return Loading.of(self.any_sharding, batch_size, self.loading_processes)

    def check_metadata(self, metadata: Collection[str]):
        """Checks `sharding` and `ragged`, once it is known which outputs are metadata."""
        if isinstance(self.sharding, Mapping) and not set(self.output_map) <= {*self.sharding, *metadata}:
            raise ValueError(
                f"a dict of shardings must have the names in output_map, {list(self.output_map)}, got {list(self.sharding)}"
            )
        for argument, option in (("sharding", self.sharding), ("ragged", self.ragged)):
            for name in option if isinstance(option, Mapping) else ():
                if name in metadata:
                    raise ValueError(
                        f"{argument}[{name!r}]: this output is metadata, a list of Python objects; it has no {argument}"
                    )

    def _check_ragged(self):
        """Checks `ragged` and `ragged_fill`, and replaces the limits by tuples and the fill values by a dict.

        None as a limit means a list of arrays, which has no fill value.
        """
        ragged = {} if self.ragged is None else self.ragged
        if not isinstance(ragged, Mapping):
            raise TypeError(
                f"ragged must be a dict from names in output_map to limits, or to None, got {type(ragged).__name__}"
            )
        limits: dict[str, tuple[int, ...] | None] = {}
        for name, limit in ragged.items():
            if name not in self.output_map:
                raise ValueError(f"ragged[{name!r}]: there is no such name in output_map, {self.output_map}")
            try:
                entries: Any = limit if isinstance(limit, (tuple, list)) else (limit,)
                limits[name] = None if limit is None else tuple(map(operator.index, entries))
            except TypeError:
                raise TypeError(
                    f"ragged[{name!r}] must be a whole number, a tuple of them, or None, got {limit!r}"
                ) from None
            if limits[name] is not None and not (limits[name] and all(n > 0 for n in limits[name] or ())):
                raise ValueError(f"ragged[{name!r}] must be positive, got {limit!r}")
        fill = (
            self.ragged_fill
            if isinstance(self.ragged_fill, Mapping)
            else {n: self.ragged_fill for n in limits if limits[n] is not None}
        )
        for name, fill_value in fill.items():
            if limits.get(name) is None:
                raise ValueError(f"ragged_fill[{name!r}]: ragged has no limit of this name, {ragged}")
            if isinstance(fill_value, bool) or not isinstance(fill_value, (int, float, np.integer, np.floating)):
                raise TypeError(f"ragged_fill must be a number, or a dict of one for each name, got {fill_value!r}")
        self._set("ragged", limits)
        self._set("ragged_fill", dict(fill))

    @property
    def ragged_forms(self) -> tuple[RaggedForm | None, ...]:
        """The form of each output whose samples may differ in shape, None for other outputs, in their order.

        It is for an executor that makes arrays on the shardings.
        """
        assert isinstance(self.ragged, Mapping) and isinstance(self.ragged_fill, Mapping)
        forms: list[RaggedForm | None] = []
        for name, sharding in zip(self.output_map, self.shardings, strict=True):
            lengths = None if sharding is None else batch_axis_sharding(sharding)
            limits: Any = self.ragged.get(name)
            forms.append(RaggedForm(limits, self.ragged_fill.get(name, 0), lengths) if name in self.ragged else None)
        return tuple(forms)

    @property
    def shardings(self) -> list[Any]:
        """The sharding of each output that has a name."""
        return [self.sharding.get(n) if isinstance(self.sharding, Mapping) else self.sharding for n in self.output_map]

    @property
    def any_sharding(self) -> Sharding | None:
        """The sharding of an output; all cut the batch into the same slices."""
        sharding: Any = self.sharding
        return next(iter(sharding.values())) if isinstance(sharding, Mapping) else sharding

    @property
    def is_over_processes(self) -> bool:
        """Whether batches have shards of several processes."""
        return any(s is not None and not s.is_fully_addressable for s in self.shardings)

    def shards(self, batch_size: int) -> Shards:
        """The shards of a batch. Raises ValueError if the shardings of the outputs cut it differently."""
        sharding: Any = self.sharding
        if not isinstance(sharding, Mapping):
            return Shards.of(sharding, batch_size)
        shards_by_name = {name: Shards.of(s, batch_size) for name, s in sharding.items()}
        first_name, shards = next(iter(shards_by_name.items()))
        for name, other_shards in shards_by_name.items():
            if (other_shards.num, other_shards.ids) != (shards.num, shards.ids):
                raise ValueError(
                    f"the shardings of all outputs must cut the batch into the same slices: {first_name!r} into {shards.num}, "
                    f"of which this process holds {list(shards.ids)}, but {name!r} into {other_shards.num}, "
                    f"of which it holds {list(other_shards.ids)}"
                )
        return shards


@dataclasses.dataclass(frozen=True)
class BatchAxisPlacement:
    """The placement of values ``[batch]`` of one executor: on the same devices as its outputs.

    Attributes:
      shards: of the executor.
      sharding: of the values; None: they are on the device of the only shard.
      stacked: whether the values get a leading axis of the shards, ``[shards, B]``.
    """

    shards: Shards
    sharding: Sharding | None
    stacked: bool

    def put(self, rows: np.ndarray) -> jax.Array:
        """Makes one global array of ``rows[S, B]``, a row for each local shard."""
        if self.sharding is None:
            return jax.device_put(rows[0], self.shards.primaries[0])
        if self.sharding.is_fully_addressable:
            return jax.device_put(rows if self.stacked else rows.reshape(-1), self.sharding)
        return assemble(list(rows), self.shards, self.sharding)


def _check_placement(sharding: Sharding | None, argument: str):
    """Raises ValueError if arrays can't be made on a sharding: it leaves axes to the compiler, or is in another memory
    than the devices' own.
    """
    if sharding is None:
        return
    if isinstance(sharding, NamedSharding) and PartitionSpec.UNCONSTRAINED in sharding.spec:
        raise ValueError(
            f"{argument}: {sharding.spec} leaves a choice to the compiler, but batches are arrays: name an axis of the mesh, or None"
        )
    kind, own_kind = sharding.memory_kind, next(iter(sharding.device_set)).default_memory().kind
    if kind not in (None, own_kind):
        raise ValueError(
            f'{argument} has memory_kind="{kind}", but batches are made in the memory {own_kind!r}: leave memory_kind out, '
            f'and move a batch by jax.device_put(batch, sharding.with_memory_kind("{kind}"))'
        )


def batch_axis_sharding(sharding: Sharding) -> Sharding:
    """The sharding of values ``[batch]`` for outputs on `sharding`: that of their first axis."""
    if isinstance(sharding, NamedSharding):
        return NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[:1]), memory_kind=sharding.memory_kind)
    return sharding
