"""Repair of failed samples: the status of programs shows them, and they are made again, or raise an error. See Note
[Repair alone].
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from .. import _cpu
from .._core import ffi as _ffi
from .._core.errors import SampleError, printable
from .._core.graph import unpacking_hint
from .._core.operator import NativeOperator, ProgramOperator
from .._core.ragged import ALIGNMENT, Ragged
from .._cpu import Status
from .._plan.plan import Plan, Step
from .._program.program import TIME_UNIT
from .batch import InFlightBatch
from .meter import Meter

Bad: TypeAlias = Mapping[int, Mapping[int, int]]  # by native step, the samples that failed, with their codes


def _any_nonzero(codes: Any) -> bool:
    """Waits for the program that writes the codes, ``i32[S*B, steps]``. Returns whether one is not 0: a failure."""
    if isinstance(codes, jax.Array) and len(codes.sharding.device_set) == 1:
        try:
            return _cpu.any_set(codes)  # faster than NumPy
        except (BufferError, RuntimeError):  # they are on an accelerator, or the program has failed
            pass
    return bool(np.asarray(codes).any())


def failed(batch: InFlightBatch, meter: Meter) -> dict[int, dict[int, int]]:
    """Waits for the programs launched so far. Returns the samples that failed and can be repaired, see `Bad`.

    Raises:
      SampleError: a sample can't be repaired.
    """
    bad: dict[int, dict[int, int]] = {}
    for k, status in enumerate(batch.status):
        program, native, codes, times = status
        with meter.stage("check", " ".join(s.op.name for s in native), program):
            has_failures = _any_nonzero(codes)
        if meter.enabled:
            meter.count("check", program, len(codes), codes.nbytes)
        if times is not None:  # of devices that work at the same time, the mean counts
            for step, seconds in zip(native, np.asarray(times).mean(axis=0) * TIME_UNIT, strict=True):
                meter.took("program", step.name, float(seconds), len(codes))
            batch.status[k] = status._replace(times=None)  # counted only once: a later phase reads the status again
        if not has_failures:
            continue
        codes = np.asarray(codes)
        for column, step in enumerate(native):
            code_of_sample = {i: int(codes[i, column]) for i in np.flatnonzero(codes[:, column]).tolist()}
            assert isinstance(step.op, NativeOperator)
            for i, code in code_of_sample.items():
                if not step.op.repairs(code):
                    raise sample_error(step, batch, i, code, step.op.reason(batch.setups[step.id], i, code))
            if code_of_sample:
                bad[step.id] = code_of_sample
    return bad


def batch_to_relaunch(batch: InFlightBatch, bad: Bad) -> InFlightBatch:
    """Returns a new batch of the same samples, as it was read. Its operators replace the samples that failed so far, or
    process them on the host, see `HostContext.bad`.
    """
    return InFlightBatch(
        before=batch.before,
        after=batch.after,
        read=batch.read,
        values=dict(batch.read),
        origins=batch.origins,
        ids=batch.ids,
        random_keys=batch.random_keys,
        bad=all_bad(batch, bad),
        unread=batch.unread,
    )


def all_bad(batch: InFlightBatch, bad: Bad) -> Bad:
    """All samples that failed in a batch: those of earlier launches (`batch.bad`), and those of this one (`bad`)."""
    earlier = batch.bad
    for step, samples in bad.items():
        # A step must not fail again for the same samples, or the batch would be repaired forever.
        if samples.keys() <= earlier.get(step, {}).keys():
            raise AssertionError(f"step {step}: samples {sorted(samples)} failed again")
    return {s: {**earlier.get(s, {}), **bad.get(s, {})} for s in {*earlier, *bad}}


def steps_to_run_again(plan: Plan, batch: InFlightBatch, bad: Bad) -> frozenset[int] | None:
    """The ids of the steps that must run again to repair samples which an accelerator's kernels left to the host: the
    steps that failed, and those that depend on them, in programs that have run.

    None: these samples can't be made again alone, because some failed in another way, or other samples depend on them.

    Args:
      bad: by the id of the native step that failed, the samples and their status codes.
    """
    if any(code != Status.REFUSED for samples in bad.values() for code in samples.values()):
        return None
    affected: set[int] = set()
    for step in plan.steps:
        if step.phase not in batch.memory or not isinstance(step.op, ProgramOperator) or step.stage == "host":
            continue
        if step.id in bad or any(r.step in affected for r in step.inputs):
            affected.add(step.id)
            if step.op.mixes:
                return None
    return frozenset(affected)


def overwritten(
    old: Any, new: Any, repaired: np.ndarray, offsets: np.ndarray | None, shapes: np.ndarray, num_shards: int
) -> Any:
    """Returns the result of a program, in which some samples are replaced by those of another run. Each device
    overwrites its own part.

    Args:
      old, new: ``[N, ...]`` or ``[S, B, ...]``, or `Ragged`.
      repaired: ``bool[N]``, the samples to replace.
      offsets: of ragged values, in blocks of `ALIGNMENT` elements; None for others.
      shapes: ``i64[N, ndim]``.
      num_shards: S. One device may have several shards: the CPU device has all of them.
    """
    if not isinstance(old, Ragged):
        return _with_rows(old, new, repaired)
    assert offsets is not None
    # Each sample of a ragged value is a run of blocks, so blocks are the rows that are replaced.
    is_repaired_block = np.zeros((num_shards, old.data.shape[0] // num_shards // ALIGNMENT), bool)
    for i in np.flatnonzero(repaired).tolist():
        first = int(offsets[i])  # within the row of the sample's shard
        end = first + -(-int(shapes[i].prod()) // ALIGNMENT)
        is_repaired_block[i * num_shards // len(repaired), first:end] = True
    return dataclasses.replace(old, data=_with_rows(old.data, new.data, is_repaired_block.reshape(-1)))


def _with_rows(old: jax.Array, new: jax.Array, is_new: np.ndarray) -> jax.Array:
    """Returns `old` with some rows of `new`. The arrays are viewed as ``len(is_new)`` rows of equal size."""
    new_of_device = {s.device: s.data for s in new.addressable_shards}
    parts = []
    for shard in old.addressable_shards:
        start, stop, _ = shard.index[0].indices(len(old))  # the part of the first axis that this device has
        # The first axis of `old` may be longer, as that of a flat buffer whose rows are blocks, or shorter, as that of
        # ``[S, B, ...]`` whose rows are samples.
        is_new_here = is_new[start * len(is_new) // len(old) : stop * len(is_new) // len(old)]
        parts.append(_select_rows(shard.data, new_of_device[shard.device], is_new_here))
    return jax.make_array_from_single_device_arrays(old.shape, old.sharding, parts)


@jax.jit
def _select_rows(old: jax.Array, new: jax.Array, is_new: jax.Array) -> jax.Array:
    rows = len(is_new), old.size // max(1, len(is_new))
    return jnp.where(is_new[:, None], new.reshape(rows), old.reshape(rows)).reshape(old.shape)


def sample_error(step: Step, batch: InFlightBatch, i: int, code: int, reason: str) -> SampleError:
    """The error for sample `i`, which failed in a step with a status code. `reason`: details, or ""."""
    code %= _cpu.STATUSES_OF_STAGE  # an operator may add to it what only its `reason` reads
    text, path = _ffi.STATUS.get(code, f"status {code}"), batch.path_of(step.node, i)
    reason = printable(reason).removeprefix(f"{printable(path)}: ") or text
    advice = unpacking_hint(step.node)
    return SampleError(
        step.op.name, step.node.where, path or f"sample {i}", f"{reason}; {advice}" if advice else reason, code, index=i
    )


def raise_first_failure(batch: InFlightBatch):
    """Raises the `SampleError` of the sample that failed first in the host pass, if one has failed.

    A sample fails where it was read or looked at first, so the first failing step is the one to name.
    """
    if batch.failures:
        failure = batch.failures[0]
        raise sample_error(failure.step, batch, failure.sample, failure.code, failure.reason)
