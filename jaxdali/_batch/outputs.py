"""The final form of a pipeline's outputs: dense arrays on the user's devices. Nothing is compiled."""

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


class Outputs:
    """Gives outputs their final form.

    Args:
      resources: the resources for making batches.
      delivery: the form.
    """

    def __init__(self, resources: RunResources, delivery: Delivery):
        self._pool = resources.output_pool
        self._shards = resources.shards
        self._B = resources.B
        self._x64 = resources.x64
        self.stacked = delivery.stacked
        self._padded = delivery.padded
        self._per_shard = delivery.per_shard
        self._shapes: dict[Ref, tuple[int, ...]] = {}  # of the last samples of a ragged value

    def value(self, ref: Ref, batch: InFlightBatch) -> Value:
        """An output for a pipeline that runs without an iterator."""
        value, result = batch.values[ref], batch.results.get(ref)
        if result is None:
            return value
        if isinstance(result, Ragged):
            offsets, _ = plan_offsets(value.shapes, 1)
            if is_on_accelerator(result.data):
                samples: Any = DeviceSamples(result.data, offsets, value.shapes)
                return Value(value.spec, value.shapes, samples)
            return Value(value.spec, value.shapes, Packed(np.asarray(result.data)[None], offsets, value.shapes))
        return Value(value.spec, value.shapes, result[0] if isinstance(result, EagerArrays) else result)

    def host_value(self, ref: Ref, batch: InFlightBatch) -> Value:
        """A value of all local shards with its data on the host."""
        value, result = batch.values[ref], batch.results.get(ref)
        if value.data is not None or result is None:
            return value
        if isinstance(result, Ragged):
            offsets, need = plan_offsets(value.shapes, len(self._shards.devices))
            rows = np.stack([np.asarray(p)[:need] for p in by_shard(result.data, self._shards)])
            return Value(value.spec, value.shapes, Packed(rows, offsets, value.shapes))
        return Value(value.spec, value.shapes, np.concatenate([np.asarray(p) for p in by_shard(result, self._shards)]))

    def array(self, ref: Ref, step: Step, sharding: Sharding | None, batch: InFlightBatch) -> Any:
        """An output for an iterator, made by `step`: a global array on `sharding` (None: on the one device), or
        `ShardArrays`.
        """
        result: Any = batch.results.get(ref)
        short = batch.short
        whole = (
            not self._per_shard
            and isinstance(result, jax.Array)
            and (self._padded or not short)
            and (self._x64 or narrow(result.dtype) == result.dtype)
        )
        # Native operators may have made it on the CPU beside the device.
        if whole and sharding is None and step.stage == "device":
            there = len(self._shards.devices) > 1 or result.sharding == self._shards.local
            return result if there else jax.device_put(result, self._shards.primaries[0])
        if whole and (sharding is None or result.sharding == sharding):
            return result
        parts = self.parts(ref, step, batch, batch.present if short else None, narrowed=not self._x64)
        if short and self._padded:
            assert batch.present is not None
            if batch.values[ref].spec.shape is None and ref not in self._shapes:
                raise step.node.error(
                    "no sample of the first batch could be read, so the shape of this output is not known yet"
                )
            parts = [_filled(p, present) for p, present in zip(parts, batch.present.reshape(-1, self._B), strict=True)]
        return self._placed(parts, step, sharding)

    def _placed(self, parts: list[Any], step: Step, sharding: Sharding | None) -> Any:
        """One array, or `ShardArrays`, from the local shards' ``[samples, ...]``."""
        if len({p.shape[0] for p in parts}) > 1:
            raise step.node.error(
                f"the shards have different numbers of samples in this batch: {[p.shape[0] for p in parts]}"
            )
        if self._per_shard:
            return ShardArrays(
                jax.device_put(p, device) for p, device in zip(parts, self._shards.primaries, strict=True)
            )
        if self.stacked:
            parts = [np.asarray(p)[None] for p in parts]
        if sharding is not None:
            try:
                return assemble(parts, self._shards, sharding)
            except ValueError as e:
                raise step.node.error(
                    f"this output, a batch of {list(parts[0].shape[1:])}, does not fit its sharding: {e}"
                ) from e
        # Without a sharding, results of the host stay on the CPU, as in DALI.
        device = cpu_device() if step.stage == "host" and self._shards.accelerator else self._shards.primaries[0]
        return jax.device_put(parts[0], device)

    def metadata(self, ref: Ref, batch: InFlightBatch) -> list[Any]:
        """The objects of an output that is metadata, one for each row of this process's part of the batch; None for
        samples that are missing in a padded batch.
        """
        found = list(typing.cast(np.ndarray, batch.values[ref].data))
        if not batch.short or batch.present is None:
            return found
        if self._padded:
            return [x if here else None for x, here in zip(found, batch.present.tolist(), strict=True)]
        return [x for x, here in zip(found, batch.present.tolist(), strict=True) if here]

    def samples(self, ref: Ref, step: Step, batch: InFlightBatch) -> jax.Array | DeviceSamples:
        """An output for an iterator of one shard without a sharding; if it is ragged, its samples, of any shapes."""
        value, result = batch.values[ref], batch.results.get(ref)
        on_device = not self._shards.accelerator or step.stage == "device"
        device = self._shards.primaries[0] if on_device else cpu_device()
        if isinstance(result, Ragged):
            flat, (offsets, _) = result.data, plan_offsets(value.shapes, 1)
        elif result is None and isinstance(value.data, Packed):
            flat, offsets = self._copy(value.data.data[0, : value.data.used], value.spec.dtype), value.data.offsets
        else:
            return self.array(ref, step, None, batch)
        there = range(len(value)) if batch.present is None else np.flatnonzero(batch.present).tolist()
        return DeviceSamples(jax.device_put(flat, device), offsets, value.shapes).of(there)

    def ragged(
        self, ref: Ref, step: Step, sharding: Sharding | None, form: RaggedForm, name: str, batch: InFlightBatch
    ) -> Any:
        """An output for an iterator whose samples may differ in shape, in the form `form`. `name` of the output is for
        messages.

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
        rows = self._rows(ref, step, batch)
        if form.limits is None:
            on_host = step.stage == "host" and self._shards.accelerator and sharding is None
            devices = [cpu_device()] if on_host else self._shards.primaries
            empty = np.zeros((0,) * spec.ndim, dtype)  # for missing samples
            return [
                jax.device_put(np.array(found.get(b, empty), dtype), device)
                for found, device in zip(rows, devices, strict=True)
                for b in (range(self._B) if self._padded else found)
            ]
        k = len(form.limits)
        if k > spec.ndim:
            raise step.node.error(
                f"ragged[{name!r}] has {k} limits, but the samples of this output have {spec.ndim} axes"
            )
        for s, found in enumerate(rows):
            for b, x in found.items():
                self._check_limits(x.shape, form.limits, name, step, batch, s * self._B + b)
        others = {x.shape[k:] for found in rows for x in found.values() if x.size} or {
            x.shape[k:] for found in rows for x in found.values()
        }
        if len(others) > 1:
            shapes = np.array([x.shape for found in rows for x in found.values() if x.size])
            raise DifferentShapes(step.op.name, step.node.where, _describe(shapes))
        rest = next(iter(others), self._shapes.get(ref, (0,) * spec.ndim)[k:])
        if any(x.size for found in rows for x in found.values()):
            self._shapes[ref] = (*form.limits, *rest)
        elif ref in self._shapes:  # empty samples may not determine the other extents
            rest = self._shapes[ref][k:]
        fill = self._fill(form.fill, dtype, name, step)
        parts, lengths = [], []
        for found in rows:
            places = list(range(self._B)) if self._padded or len(found) == self._B else list(found)
            part = self._pool.empty((len(places), *form.limits, *rest), dtype)
            part[...] = fill
            length = np.zeros((len(places), k), np.int32)
            for row, b in enumerate(places):
                if (x := found.get(b)) is not None:
                    length[row] = x.shape[:k]
                    if x.size:
                        part[(row, *map(slice, x.shape[:k]))] = x
            parts.append(part)
            lengths.append(length[:, 0] if k == 1 else length)
        return self._placed(parts, step, sharding), self._placed(lengths, step, form.lengths)

    def _rows(self, ref: Ref, step: Step, batch: InFlightBatch) -> list[dict[int, np.ndarray]]:
        """For each local shard the present samples, by their places."""
        value, result = batch.values[ref], batch.results.get(ref)
        present = np.ones(len(value), bool) if batch.present is None else batch.present
        places = [np.flatnonzero(p).tolist() for p in present.reshape(-1, self._B)]
        if isinstance(result, (EagerArrays, jax.Array)) or (result is None and isinstance(value.data, np.ndarray)):
            parts = self.parts(ref, step, batch, batch.present if batch.short else None, narrowed=not self._x64)
            return [dict(zip(at, np.asarray(part), strict=True)) for at, part in zip(places, parts, strict=True)]
        host = self.host_value(ref, batch)
        return [{b: host.sample(s * self._B + b) for b in at} for s, at in enumerate(places)]

    def _check_limits(
        self, shape: tuple[int, ...], limits: tuple[int, ...], name: str, step: Step, batch: InFlightBatch, i: int
    ):
        for axis, (n, limit) in enumerate(zip(shape, limits)):
            if n > limit:
                source = batch.path_of(step.node, i)
                which = f"sample {i} of the batch" + (f", {source}" if source else "")
                raise SampleError(
                    step.op.name,
                    step.node.where,
                    which,
                    f"its shape in the output {name!r} is {tuple(shape)}: {n} elements along axis {axis} are more than the limit {limit}; "
                    f"raise the limit, ragged={{{name!r}: ...}}, or cut it before: fn.slice(x, 0, {limit}, axes=[{axis}], "
                    'out_of_bounds_policy="trim_to_shape")',
                    index=i,
                )

    def _fill(self, fill: float, dtype: np.dtype, name: str, step: Step) -> np.ndarray:
        limits = None if dtype == np.bool_ or is_float(dtype) else np.iinfo(dtype)
        if (limits is not None and not (fill == int(fill) and limits.min <= fill <= limits.max)) or (
            dtype == np.bool_ and fill not in (0, 1)
        ):
            raise step.node.error(f"the output {name!r}, of type {dtype}, can't be padded with {fill}, its ragged_fill")
        return np.asarray(fill).astype(dtype)

    def parts(
        self, ref: Ref, step: Step, batch: InFlightBatch, present: np.ndarray | None, *, narrowed: bool
    ) -> list[Any]:
        """A value that `step` makes, for some samples: dense ``[samples, ...]`` for each local shard, as NumPy or on
        its device.

        Args:
          present: ``bool[N]``, the samples; None: all.
          narrowed: whether to narrow it to 32 bits.

        Raises:
          DifferentShapes: the samples differ in shape.
        """
        value, result = batch.values[ref], batch.results.get(ref)
        dtype = narrow(value.spec.dtype) if narrowed else value.spec.dtype
        S, B = len(self._shards.devices), self._B
        places = None if present is None else [np.flatnonzero(p) for p in present.reshape(S, B)]
        if isinstance(result, (EagerArrays, jax.Array)):
            made = list(result) if isinstance(result, EagerArrays) else by_shard(result, self._shards)
            # Contains only these samples, perhaps more than needed.
            if isinstance(result, EagerArrays) and result.present is not None:
                assert present is not None
                has = result.present.reshape(S, B)
                places = (
                    None
                    if (has == present.reshape(S, B)).all()
                    else [np.flatnonzero(a[h]) for a, h in zip(present.reshape(S, B), has)]
                )
            if places is None and all(p.dtype == dtype for p in made):
                return made
            return [
                np.asarray(p)[slice(None) if places is None else places[s]].astype(dtype) for s, p in enumerate(made)
            ]
        rows = [range(s * B, (s + 1) * B) if places is None else (s * B + places[s]).tolist() for s in range(S)]
        there = value.shapes[[i for r in rows for i in r]]
        if (there != there[:1]).any():
            raise DifferentShapes(step.op.name, step.node.where, _describe(there))
        if isinstance(value.data, np.ndarray):
            return [
                self._copy(value.data[r.start : r.stop] if isinstance(r, range) else value.data[r], dtype) for r in rows
            ]
        if len(there):
            self._shapes[ref] = tuple(there[0].tolist())
        shape = self._shapes.get(ref, (0,) * value.spec.ndim)  # no sample: the shape of earlier ones
        if isinstance(result, Ragged):
            offsets, _ = plan_offsets(value.shapes, S)
            flat = [np.asarray(p) for p in by_shard(result.data, self._shards)]
        else:
            assert isinstance(value.data, Packed)
            offsets, flat = value.data.offsets, list(value.data.data)
        return [self._dense(flat[s], offsets[list(r)], shape, dtype) for s, r in enumerate(rows)]

    def _copy(self, data: np.ndarray, dtype: np.dtype) -> np.ndarray:
        dense = self._pool.empty(data.shape, dtype)
        dense[...] = data
        return dense

    def _dense(self, flat: np.ndarray, offsets: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Samples of equal shape from a shard's flat buffer."""
        size = math.prod(shape)
        dense = self._pool.empty((len(offsets), *shape), dtype)
        rows = dense.reshape(len(offsets), size)
        # Contiguous.
        if size % ALIGNMENT == 0 and np.array_equal(offsets, np.arange(len(offsets)) * (size // ALIGNMENT)):
            rows[...] = flat[: rows.size].reshape(rows.shape)
        else:
            for row, offset in zip(rows, offsets.tolist()):
                row[...] = flat[offset * ALIGNMENT : offset * ALIGNMENT + size]
        return dense


def by_shard(x: jax.Array, shards: Shards) -> list[Any]:
    """The parts of a program's result, one per local shard: as jax arrays, or as NumPy if it was made on one CPU
    device.
    """
    at = {s.device: s.data for s in x.addressable_shards}
    distinct = list(dict.fromkeys(shards.primaries))
    if len(distinct) == len(shards.primaries) and all(d in at for d in distinct):
        return [at[d] for d in distinct]
    # Several shards on one device: where it has several, or made beside the accelerators on one CPU device.
    rows = [np.asarray(at[d]) for d in distinct] if all(d in at for d in distinct) else [np.asarray(x)]
    S = len(shards.devices) // len(rows)
    return [r[s * (len(r) // S) : (s + 1) * (len(r) // S)] for r in rows for s in range(S)]


def _filled(part: Any, present: np.ndarray) -> np.ndarray:
    filled = np.zeros((len(present), *part.shape[1:]), part.dtype)
    filled[present] = part
    return filled


def _describe(shapes: np.ndarray) -> str:
    distinct = sorted(set(map(tuple, shapes.tolist())))
    return ", ".join(map(str, distinct[:4])) + (f" and {len(distinct) - 4} more" if len(distinct) > 4 else "")
