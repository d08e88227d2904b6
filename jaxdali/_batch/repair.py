"""Samples that fail: found in the status of programs, and then raised or made again; see Note [Repair alone]."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from .. import _cpu
from .._core import ffi as _ffi
from .._core.errors import SampleError
from .._core.graph import unpacking_hint
from .._core.operator import NativeOperator, ProgramOperator
from .._core.ragged import ALIGNMENT, Ragged
from .._core.redaction import redacted
from .._cpu import Status
from .._plan.plan import Plan, Step
from .._program.program import TIME_UNIT
from .batch import InFlightBatch
from .meter import Meter

Bad: TypeAlias = Mapping[int, Mapping[int, int]]  # by native step, the samples that failed, with their codes


def _any_set(codes: Any) -> bool:
    """Whether a code is not 0; waits for the program that writes them."""
    if isinstance(codes, jax.Array) and len(codes.sharding.device_set) == 1:
        try:
            return _cpu.any_set(codes)  # NumPy takes longer
        except (BufferError, RuntimeError):  # it is on an accelerator, or the program has failed
            pass
    return bool(np.asarray(codes).any())


def failed(batch: InFlightBatch, meter: Meter) -> dict[int, dict[int, int]]:
    """Waits for the programs launched so far. Returns the samples that failed and can be repaired, by native step, with
    their codes.

    Raises:
      SampleError: a sample can't be repaired.
    """
    bad: dict[int, dict[int, int]] = {}
    for at, (program, native, codes, times) in enumerate(batch.status):
        with meter.stage("check", " ".join(s.op.name for s in native), program):
            some = _any_set(codes)
        if meter.enabled:
            meter.count("check", program, len(codes), codes.nbytes)
        if times is not None:
            for step, seconds in zip(native, np.asarray(times).mean(axis=0) * TIME_UNIT, strict=True):
                meter.took("program", step.name, float(seconds), len(codes))
            batch.status[at] = program, native, codes, None  # only once: a later phase reads the status again
        if not some:
            continue
        codes = np.asarray(codes)
        for column, step in enumerate(native):
            found = {i: int(codes[i, column]) for i in np.flatnonzero(codes[:, column]).tolist()}
            assert isinstance(step.op, NativeOperator)
            for i, code in found.items():
                if not step.op.repairs(code):
                    raise sample_error(step, batch, i, code, step.op.reason(batch.setups[step.id], i, code))
            if found:
                bad[step.id] = found
    return bad


def again(batch: InFlightBatch, bad: Bad) -> InFlightBatch:
    """The same batch, in which samples that failed are replaced or processed on the host. They are added to those found
    before.
    """
    values, known = dict(batch.read), known_after(batch, bad)
    return InFlightBatch(
        batch.before,
        batch.after,
        batch.read,
        values,
        origins=batch.origins,
        ids=batch.ids,
        drawn=batch.drawn,
        bad=known,
        unread=batch.unread,
    )


def known_after(batch: InFlightBatch, bad: Bad) -> Bad:
    """All samples that failed in a batch so far, including those that failed now."""
    known = batch.bad
    for step, samples in bad.items():
        if samples.keys() <= known.get(step, {}).keys():
            raise AssertionError(f"step {step}: samples {sorted(samples)} failed again")
    return {s: {**known.get(s, {}), **bad.get(s, {})} for s in {*known, *bad}}


def makers_alone(plan: Plan, batch: InFlightBatch, bad: Bad) -> frozenset[int] | None:
    """The steps that make samples again which an accelerator's kernels left to the host, in programs that have run.

    None: these samples can't be made again alone, because some failed in another way, or others depend on them.
    """
    if any(code != Status.REFUSED for samples in bad.values() for code in samples.values()):
        return None
    makers: set[int] = set()
    for step in plan.steps:
        if step.phase not in batch.memory or not isinstance(step.op, ProgramOperator) or step.stage == "host":
            continue
        if step.id in bad or any(r.step in makers for r in step.inputs):
            makers.add(step.id)
            if step.op.mixes:
                return None
    return frozenset(makers)


def written_over(old: Any, new: Any, repaired: np.ndarray, offsets: np.ndarray | None, shapes: np.ndarray) -> Any:
    """The result of a program, with some samples replaced by those of another run; on each device separately.

    Args:
      old, new: ``[N, ...]`` or ``[S, B, ...]``, or `Ragged`.
      repaired: ``bool[N]``, the samples to replace.
      offsets: of ragged values; shapes: of all.
    """
    if not isinstance(old, Ragged):
        return _rows_over(old, new, repaired)
    assert offsets is not None
    shards = len(repaired) // old.shapes.sharding.shard_shape(old.shapes.shape)[0]
    blocks = np.zeros((shards, old.data.shape[0] // shards // ALIGNMENT), bool)
    for i in np.flatnonzero(repaired).tolist():
        first = int(offsets[i])
        blocks[i * shards // len(repaired), first : first + -(-int(shapes[i].prod()) // ALIGNMENT)] = True
    return dataclasses.replace(old, data=_rows_over(old.data, new.data, blocks.reshape(-1)))


def _rows_over(old: jax.Array, new: jax.Array, chosen: np.ndarray) -> jax.Array:
    """Two arrays, viewed as rows: the chosen rows come from the second, all others from the first."""
    there = {s.device: s.data for s in new.addressable_shards}
    parts = []
    for shard in old.addressable_shards:
        start, stop, _ = shard.index[0].indices(len(old))
        parts.append(
            _over(
                shard.data,
                there[shard.device],
                chosen[start * len(chosen) // len(old) : stop * len(chosen) // len(old)],
            )
        )
    return jax.make_array_from_single_device_arrays(old.shape, old.sharding, parts)


@jax.jit
def _over(old: jax.Array, new: jax.Array, chosen: jax.Array) -> jax.Array:
    rows = len(chosen), old.size // max(1, len(chosen))
    return jnp.where(chosen[:, None], new.reshape(rows), old.reshape(rows)).reshape(old.shape)


def sample_error(step: Step, batch: InFlightBatch, i: int, code: int, reason: str) -> SampleError:
    """The error for a sample that failed in a step."""
    text, path = _ffi.STATUS.get(code, f"status {code}"), batch.path_of(step.node, i)
    reason = redacted(reason).removeprefix(f"{path}: ") or text
    advice = unpacking_hint(step.node)
    return SampleError(
        step.op.name, step.node.where, path or f"sample {i}", f"{reason}; {advice}" if advice else reason, code, index=i
    )
