"""Samples that fail: found in the status of programs, and then raised, or the batch is made again without them."""

from __future__ import annotations

import numpy as np

from .._core import ffi as _ffi
from .._core.errors import SampleError
from .._core.operator import NativeOperator
from .meter import Meter
from .plan import Step
from .work import Work


def failed(work: Work, meter: Meter) -> dict[int, dict[int, int]]:
    """Waits for the programs launched so far: their samples that failed and can be repaired, by native step, with their codes.

    Raises:
      SampleError: one can't.
    """
    bad: dict[int, dict[int, int]] = {}
    for program, native, codes in work.status:
        with meter.stage("check", " ".join(s.op.name for s in native), program):
            codes = np.asarray(codes)
        if meter.enabled:
            meter.count("check", program, len(codes), codes.nbytes)
        if not codes.any():
            continue
        for column, step in enumerate(native):
            found = {i: int(codes[i, column]) for i in np.flatnonzero(codes[:, column]).tolist()}
            assert isinstance(step.op, NativeOperator)
            for i, code in found.items():
                if not step.op.repairs(code):
                    raise sample_error(step, work, i, code, "")
            if found:
                bad[step.id] = found
    return bad


def again(work: Work, bad: dict[int, dict[int, int]]) -> Work:
    """The same batch, with the samples that failed in it to be replaced, or done on the host; they add to those found before."""
    known = work.bad
    for step, samples in bad.items():
        if samples.keys() <= known.get(step, {}).keys():
            raise AssertionError(f"step {step}: samples {sorted(samples)} failed again")
    merged = {s: {**known.get(s, {}), **bad.get(s, {})} for s in {*known, *bad}}
    return Work(work.before, work.after, work.read, dict(work.read), names=work.names, ids=work.ids, bad=merged, unread=work.unread)


def sample_error(step: Step, work: Work, i: int, code: int, reason: str) -> SampleError:
    """The error for a sample that failed in a step."""
    text = _ffi.STATUS.get(code, f"status {code}")
    reason = f"{text}: {reason}" if reason and reason != text else text
    return SampleError(step.op.name, step.node.where, work.source_of(step.node, i) or f"sample {i}", reason, code)
