"""`Outputs`: converts results to the form in which a pipeline or an iterator delivers them. Nothing is compiled."""

from __future__ import annotations

import math
import typing
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

from .._core.errors import DifferentShapes, SampleError
from .._core.ragged import ALIGNMENT, DeviceSamples, Packed, Ragged, is_on_accelerator, plan_offsets
from .._core.values import Value, narrow
from .._plan.plan import Ref, Step
from .._program.sharding import Shards, assemble, cpu_device
from ..types import is_float
from .batch import EagerArrays, InFlightBatch
from .delivery import Delivery, RaggedForm, ShardArrays
from .resources import RunResources

# A result that uses less than 1 / `_LEAST_USED` of a roomy buffer is copied out of it, up to this number of bytes. A
# kept result would otherwise reserve `LEAST_ROOMY` elements of address space.
_LEAST_USED, _LARGEST_COPY = 16, 1 << 16


class Outputs:
    """Converts outputs to their final form.

    A batch has a `Value` for each output: its shapes, and its data if they are on the host. If a program or an eager
    function has made the output, the batch has the data as its result. S local shards have B samples each.

    Args:
      resources: the resources for making batches.
      delivery: the final form.
    """

    def __init__(self, resources: RunResources, delivery: Delivery):
        self._pool = resources.output_pool
        self._shards = resources.shards
        self._B = resources.B
        self._x64 = resources.x64
        self.stacked = delivery.stacked  # whether outputs get a leading axis of the shards
        self._padded = delivery.padded  # whether batches keep their size if samples are missing
        self._per_shard = delivery.per_shard  # whether outputs are `ShardArrays`, instead of global arrays
        # How one of several outputs gets a sharding of its own, for messages.
        names = ", ".join(f"{name!r}: ..." for name in delivery.names)
        self._advice = f"; each output can have its own: sharding={{{names}}}" if len(delivery.names) > 1 else ""
        # The shape of the last samples of each ragged value: a later batch without samples gets the same.
        self._last_shapes: dict[Ref, tuple[int, ...]] = {}

    def value(self, ref: Ref, batch: InFlightBatch) -> Value:
        """Returns an output for a pipeline that runs without an iterator, on one device."""
        value, result = batch.values[ref], batch.results.get(ref)
        if result is None:  # it was made on the host
            return value
        if isinstance(result, Ragged):
            offsets, num_elements = plan_offsets(value.shapes, num_shards=1)
            if is_on_accelerator(result.data):
                samples: Any = DeviceSamples(result.data, offsets, value.shapes)
                return Value(value.spec, value.shapes, samples)
            row = np.asarray(result.data)
            if num_elements * _LEAST_USED < len(row) and num_elements * row.itemsize <= _LARGEST_COPY:
                row = row[:num_elements].copy()
            return Value(value.spec, value.shapes, Packed(row[None], offsets, value.shapes))
        return Value(value.spec, value.shapes, result[0] if isinstance(result, EagerArrays) else result)

    def host_value(self, ref: Ref, batch: InFlightBatch) -> Value:
        """Returns a value of all local shards with its data on the host. Copies them there if necessary."""
        value, result = batch.values[ref], batch.results.get(ref)
        if value.data is not None or result is None:
            return value
        if isinstance(result, Ragged):
            offsets, num_elements = plan_offsets(value.shapes, len(self._shards.devices))
            rows = np.stack([np.asarray(p)[:num_elements] for p in by_shard(result.data, self._shards)])
            return Value(value.spec, value.shapes, Packed(rows, offsets, value.shapes))
        return Value(value.spec, value.shapes, np.concatenate([np.asarray(p) for p in by_shard(result, self._shards)]))

    def array(self, ref: Ref, step: Step, sharding: Sharding | None, batch: InFlightBatch) -> Any:
        """Returns an output for an iterator, made by `step`: a global array on `sharding` (None: on the one device), or
        `ShardArrays`.
        """
        result: Any = batch.results.get(ref)
        short = batch.short
        # The program's result already has the samples and the type of the output.
        is_final = (
            not self._per_shard
            and isinstance(result, jax.Array)
            and (self._padded or not short)
            and (self._x64 or narrow(result.dtype) == result.dtype)
        )
        # An operator without a kernel for the accelerator may have made it on the CPU.
        if is_final and sharding is None and step.stage == "device":
            is_on_device = len(self._shards.devices) > 1 or result.sharding == self._shards.local
            return result if is_on_device else jax.device_put(result, self._shards.primaries[0])
        if is_final and (sharding is None or result.sharding == sharding):
            return result
        parts = self.parts(ref, step, batch, batch.present if short else None, narrowed=not self._x64)
        if short and self._padded:
            assert batch.present is not None
            if batch.values[ref].spec.shape is None and ref not in self._last_shapes:
                raise step.node.error(
                    "no sample of the first batch could be read, so the shape of this output is not known yet"
                )
            parts = [padded(p, present) for p, present in zip(parts, batch.present.reshape(-1, self._B), strict=True)]
        return self._assembled(parts, step, sharding)

    def _assembled(self, parts: list[Any], step: Step, sharding: Sharding | None) -> Any:
        """Makes one array, or `ShardArrays`, of the local shards' arrays ``[samples, ...]``.

        Args:
          parts: the array of each local shard, in NumPy or jax.
          step: the step that has made the output.
          sharding: of the array; None: it is put on the one device.

        Raises:
          OperatorError: the shards have different numbers of samples, or the output does not fit its sharding.
        """
        if len({p.shape[0] for p in parts}) > 1:
            raise step.node.error(
                f"the shards have different numbers of samples in this batch: {[p.shape[0] for p in parts]}"
            )
        if self._per_shard:
            return ShardArrays(
                jax.device_put(p, device) for p, device in zip(parts, self._shards.primaries, strict=True)
            )
        if self.stacked:  # adds the axis of the shards, see `Delivery.stacked`
            parts = [np.asarray(p)[None] for p in parts]
        if sharding is not None:
            try:
                return assemble(parts, self._shards, sharding)
            except ValueError as e:
                shape = list(parts[0].shape[1:])  # of a sample
                raise step.node.error(
                    f"this output, a batch of {shape or 'numbers'}, does not fit its sharding: {e}{self._advice}"
                ) from e
        # Without a sharding there is one shard. Its results of the host stay on the CPU, as in DALI.
        device = cpu_device() if step.stage == "host" and self._shards.accelerator else self._shards.primaries[0]
        return jax.device_put(parts[0], device)

    def metadata(self, ref: Ref, batch: InFlightBatch) -> list[Any]:
        """Returns the objects of an output that is metadata, one for each row of this process's part of the batch; None
        for samples that are missing in a padded batch.
        """
        objects = list(typing.cast(np.ndarray, batch.values[ref].data))
        if not batch.short or batch.present is None:
            return objects
        if self._padded:
            return [x if is_present else None for x, is_present in zip(objects, batch.present.tolist(), strict=True)]
        return [x for x, is_present in zip(objects, batch.present.tolist(), strict=True) if is_present]

    def samples(self, ref: Ref, step: Step, batch: InFlightBatch) -> jax.Array | DeviceSamples:
        """Returns an output for an iterator of one shard without a sharding: an array; or, if it is ragged, its samples,
        of any shapes.
        """
        value, result = batch.values[ref], batch.results.get(ref)
        on_device = not self._shards.accelerator or step.stage == "device"
        device = self._shards.primaries[0] if on_device else cpu_device()
        if isinstance(result, Ragged):
            flat, (offsets, _) = result.data, plan_offsets(value.shapes, num_shards=1)
        elif result is None and isinstance(value.data, Packed):
            flat, offsets = self._copy(value.data.data[0, : value.data.used], value.spec.dtype), value.data.offsets
        else:
            return self.array(ref, step, sharding=None, batch=batch)
        present = range(len(value)) if batch.present is None else np.flatnonzero(batch.present).tolist()
        return DeviceSamples(jax.device_put(flat, device), offsets, value.shapes).of(present)

    def ragged(
        self, ref: Ref, step: Step, sharding: Sharding | None, form: RaggedForm, name: str, batch: InFlightBatch
    ) -> Any:
        """Returns an output whose samples may differ in shape, for an iterator. `name`: of the output, for messages.

        Returns:
          Without limits a list of the samples of all local shards, each on its shard's device. With limits: the
          samples, padded ``[N, *limits, ...]``, and their lengths, i32 ``[N]``, or ``[N, limits]`` of several limits.
          Compiles nothing.

        Raises:
          SampleError: a sample is longer than its limit.
          DifferentShapes: the samples differ in extents that have no limit.
        """
        spec = batch.values[ref].spec
        dtype = spec.dtype if self._x64 else narrow(spec.dtype)
        samples_of_shards = self._samples_of_shards(ref, step, batch)
        if form.limits is None:
            on_host = step.stage == "host" and self._shards.accelerator and sharding is None
            devices = [cpu_device()] if on_host else self._shards.primaries
            empty = np.zeros((0,) * spec.ndim, dtype)  # for missing samples
            return [
                jax.device_put(np.array(samples.get(b, empty), dtype), device)
                for samples, device in zip(samples_of_shards, devices, strict=True)
                for b in (range(self._B) if self._padded else samples)
            ]
        k = len(form.limits)  # the number of leading axes that are padded
        if k > spec.ndim:
            raise step.node.error(
                f"ragged[{name!r}] has {k} limits, but the samples of this output have {spec.ndim} axes"
            )
        all_samples = [x for samples in samples_of_shards for x in samples.values()]
        for s, samples in enumerate(samples_of_shards):
            for b, x in samples.items():
                self._check_limits(x.shape, form.limits, name, step, batch, s * self._B + b)
        # The extents of the axes without limits, in which all samples must agree. An empty sample may have any extents
        # there, so it counts only if all are empty.
        inner_shapes = {x.shape[k:] for x in all_samples if x.size} or {x.shape[k:] for x in all_samples}
        if len(inner_shapes) > 1:
            shapes = [x.shape for x in all_samples if x.size] or [x.shape for x in all_samples]
            raise DifferentShapes(step.op.name, step.node.where, shapes)
        inner_shape = next(iter(inner_shapes), self._last_shapes.get(ref, (0,) * spec.ndim)[k:])
        if any(x.size for x in all_samples):
            self._last_shapes[ref] = (*form.limits, *inner_shape)
        elif ref in self._last_shapes:  # if all samples are empty, an earlier batch decides
            inner_shape = self._last_shapes[ref][k:]
        fill = self._checked_fill(form.fill, dtype, name, step)
        parts, lengths = [], []
        for samples in samples_of_shards:
            # The places in the shard that get a row: all with padding, otherwise those of its samples.
            places = list(range(self._B)) if self._padded or len(samples) == self._B else list(samples)
            part = self._pool.empty((len(places), *form.limits, *inner_shape), dtype)
            part[...] = fill
            length = np.zeros((len(places), k), np.int32)
            for row, b in enumerate(places):
                if (x := samples.get(b)) is not None:
                    length[row] = x.shape[:k]
                    if x.size:
                        part[(row, *map(slice, x.shape[:k]))] = x
            parts.append(part)
            lengths.append(length[:, 0] if k == 1 else length)
        return self._assembled(parts, step, sharding), self._assembled(lengths, step, form.lengths)

    def _samples_of_shards(self, ref: Ref, step: Step, batch: InFlightBatch) -> list[dict[int, np.ndarray]]:
        """Returns the present samples of each local shard, by their places in the shard."""
        value, result = batch.values[ref], batch.results.get(ref)
        present = np.ones(len(value), bool) if batch.present is None else batch.present
        places = [np.flatnonzero(p).tolist() for p in present.reshape(-1, self._B)]
        if isinstance(result, (EagerArrays, jax.Array)) or (result is None and isinstance(value.data, np.ndarray)):
            parts = self.parts(ref, step, batch, batch.present if batch.short else None, narrowed=not self._x64)
            return [
                dict(zip(places_of_shard, np.asarray(part), strict=True))
                for places_of_shard, part in zip(places, parts, strict=True)
            ]
        host = self.host_value(ref, batch)
        return [{b: host.sample(s * self._B + b) for b in places_of_shard} for s, places_of_shard in enumerate(places)]

    def _check_limits(
        self, shape: tuple[int, ...], limits: tuple[int, ...], name: str, step: Step, batch: InFlightBatch, i: int
    ):
        """Raises SampleError if sample `i` of the output `name` is longer than a limit."""
        for axis, (n, limit) in enumerate(zip(shape, limits)):
            if n > limit:
                source = batch.path_of(step.node, i)
                sample_name = f"sample {i} of the batch" + (f", {source}" if source else "")
                raise SampleError(
                    step.op.name,
                    step.node.where,
                    sample_name,
                    f"its shape in the output {name!r} is {tuple(shape)}: {n} elements along axis {axis} are more than the limit {limit}; "
                    f"raise the limit, ragged={{{name!r}: ...}}, or cut it before: fn.slice(x, 0, {limit}, axes=[{axis}], "
                    'out_of_bounds_policy="trim_to_shape")',
                    index=i,
                )

    def _checked_fill(self, fill: float, dtype: np.dtype, name: str, step: Step) -> np.ndarray:
        """Returns the value of the padding as `dtype`. Raises an error if the type does not have this value."""
        limits = None if dtype == np.bool_ or is_float(dtype) else np.iinfo(dtype)
        if (limits is not None and not (fill == int(fill) and limits.min <= fill <= limits.max)) or (
            dtype == np.bool_ and fill not in (0, 1)
        ):
            raise step.node.error(f"the output {name!r}, of type {dtype}, can't be padded with {fill}, its ragged_fill")
        return np.asarray(fill).astype(dtype)

    def parts(
        self, ref: Ref, step: Step, batch: InFlightBatch, present: np.ndarray | None, *, narrowed: bool
    ) -> list[Any]:
        """Returns some samples of a value that `step` makes: for each local shard one dense array ``[samples, ...]``,
        as NumPy or on its device.

        Args:
          ref: the value.
          step: the step that makes the value, for messages.
          batch: has the value.
          present: ``bool[N]``, the samples; None: all.
          narrowed: whether to narrow 64-bit types to 32 bits.

        Raises:
          DifferentShapes: the samples differ in shape.
        """
        value, result = batch.values[ref], batch.results.get(ref)
        dtype = narrow(value.spec.dtype) if narrowed else value.spec.dtype
        S, B = len(self._shards.devices), self._B
        # The rows to take from each shard's array; None: all.
        places = None if present is None else [np.flatnonzero(p) for p in present.reshape(S, B)]

        # Case 1: a program or an eager function has made one dense array for each shard.
        if isinstance(result, (EagerArrays, jax.Array)):
            arrays = list(result) if isinstance(result, EagerArrays) else by_shard(result, self._shards)
            # An eager function in a branch has results of the branch's samples only. The rows are counted among these.
            if isinstance(result, EagerArrays) and result.present is not None:
                assert present is not None
                in_result = result.present.reshape(S, B)  # the samples that have a row
                places = (
                    None
                    if (in_result == present.reshape(S, B)).all()
                    else [np.flatnonzero(p[r]) for p, r in zip(present.reshape(S, B), in_result)]
                )
            if places is None and all(a.dtype == dtype for a in arrays):
                return arrays
            return [
                np.asarray(a)[slice(None) if places is None else places[s]].astype(dtype) for s, a in enumerate(arrays)
            ]

        # Case 2: a dense value on the host.
        rows = [range(s * B, (s + 1) * B) if places is None else (s * B + places[s]).tolist() for s in range(S)]
        shapes = value.shapes[[i for r in rows for i in r]]
        if (shapes != shapes[:1]).any():
            raise DifferentShapes(step.op.name, step.node.where, map(tuple, shapes.tolist()))
        if isinstance(value.data, np.ndarray):
            return [
                self._copy(value.data[r.start : r.stop] if isinstance(r, range) else value.data[r], dtype) for r in rows
            ]

        # Case 3: a ragged value whose samples agree in shape.
        if len(shapes):
            self._last_shapes[ref] = tuple(shapes[0].tolist())
        shape = self._last_shapes.get(ref, (0,) * value.spec.ndim)  # no sample: the shape of earlier ones
        if isinstance(result, Ragged):
            offsets, _ = plan_offsets(value.shapes, S)
            flat = [np.asarray(p) for p in by_shard(result.data, self._shards)]
        else:
            assert isinstance(value.data, Packed)
            offsets, flat = value.data.offsets, list(value.data.data)
        return [self._dense(flat[s], offsets[list(r)], shape, dtype) for s, r in enumerate(rows)]

    def _copy(self, data: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Copies data into a buffer of the pool, as another type."""
        dense = self._pool.empty(data.shape, dtype)
        dense[...] = data
        return dense

    def _dense(self, flat: np.ndarray, offsets: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Copies samples of equal shape from a shard's flat buffer. `offsets`: in units of `ALIGNMENT` elements."""
        size = math.prod(shape)
        dense = self._pool.empty((len(offsets), *shape), dtype)
        rows = dense.reshape(len(offsets), size)
        # The samples follow each other without gaps, so one copy does for all.
        if size % ALIGNMENT == 0 and np.array_equal(offsets, np.arange(len(offsets)) * (size // ALIGNMENT)):
            rows[...] = flat[: rows.size].reshape(rows.shape)
        else:
            for row, offset in zip(rows, offsets.tolist()):
                row[...] = flat[offset * ALIGNMENT : offset * ALIGNMENT + size]
        return dense


def by_shard(x: jax.Array, shards: Shards) -> list[Any]:
    """Divides a program's result into one part for each local shard: jax arrays, or NumPy arrays if several shards are
    on one device.
    """
    data_on_device = {s.device: s.data for s in x.addressable_shards}
    devices = list(dict.fromkeys(shards.primaries))  # distinct ones
    is_on_primaries = all(d in data_on_device for d in devices)
    if len(devices) == len(shards.primaries) and is_on_primaries:
        return [data_on_device[d] for d in devices]
    # Several shards on one device: it is the primary of several, or it is the CPU device that has made the shards of
    # all accelerators.
    arrays = [np.asarray(data_on_device[d]) for d in devices] if is_on_primaries else [np.asarray(x)]
    S = len(shards.devices) // len(arrays)  # shards in each array
    return [a[s * (len(a) // S) : (s + 1) * (len(a) // S)] for a in arrays for s in range(S)]


def padded(part: Any, present: np.ndarray) -> np.ndarray:
    """A shard's array with zeros in place of missing samples. `part`: the present samples; `present`: ``bool[B]``."""
    padded = np.zeros((len(present), *part.shape[1:]), part.dtype)
    padded[present] = part
    return padded
