"""Cuts the steps of a plan into programs."""

from __future__ import annotations

import dataclasses
import functools

from .._core.operator import NativeOperator
from .plan import Plan, Presence, Ref, Step


@dataclasses.dataclass(frozen=True, eq=False)
class Segment:
    """The steps of one program.

    Attributes:
      plan: the plan that the steps belong to.
      steps: in topological order.
      operands: host values that the program reads.
      carried: values of earlier programs that it reads.
      exports: its results: outputs of the pipeline, and values that later programs read.
      on_device: whether it runs on the pipeline's device; otherwise on the CPU.
    """

    plan: Plan
    steps: tuple[Step, ...]
    operands: tuple[Ref, ...]
    carried: tuple[Ref, ...]
    exports: tuple[Ref, ...]
    on_device: bool

    @functools.cached_property
    def native(self) -> tuple[Step, ...]:
        """The steps with a column in the status, which says for each sample whether it failed."""
        return tuple(s for s in self.steps if isinstance(s.op, NativeOperator))

    @functools.cached_property
    def presences(self) -> dict[Presence | None, int]:
        """The sets of samples that its steps work on, numbered."""
        return {p: i for i, p in enumerate(dict.fromkeys(s.presence for s in self.steps))}

    @functools.cached_property
    def name(self) -> str:
        """The names of its operators, joined."""
        return " ".join(s.op.name for s in self.steps)

    @functools.cached_property
    def names(self) -> str:
        """The same with the names that the user gave, for profiles."""
        return " ".join(profile_name(s.op.name, s.name) for s in self.steps)

    @functools.cached_property
    def key(self) -> tuple:
        """A key for the computation, independent of the graph's numbering, names, places, and host steps."""
        number: dict[Ref, tuple] = {}  # each value's place among operands, carried values or results
        for kind, values in (("operand", self.operands), ("carried", self.carried)):
            number |= {r: (kind, i, self.plan.spec(r)) for i, r in enumerate(values)}
        for i, s in enumerate(self.steps):
            number |= {r: (i, r.index) for r in s.outputs}
        steps = tuple(
            (
                s.op.name,
                s.op.key,
                s.specs,
                self.presences[s.presence],
                s.fused,
                tuple(None if s.reads_on_host(i) else number[r] for i, r in enumerate(s.inputs)),
            )
            for s in self.steps
        )
        return steps, tuple(number[r] for r in self.exports)


def segments(
    plan: Plan, phase: int, accelerator: bool, kernels: frozenset[str], host_outputs: bool
) -> tuple[Segment, ...]:
    """Cuts the steps of a phase that do not run on the host into programs, each on one backend.

    Args:
      accelerator: whether the pipeline's backend is not the CPU: then "cpu" and "device" steps need separate programs.
      kernels: the native kernels that programs on the pipeline's devices can call.
      host_outputs: whether the last program also returns the outputs made on the host.
    """
    # The steps of one level make one program, which reads only results of lower levels.
    level: dict[int, int] = {}
    for step in plan.steps:
        if step.stage == "host" or step.phase != phase:
            continue
        earliest = max((level[r.step] for r in step.inputs if r.step in level), default=0)
        # Even levels run on the CPU, odd ones on the accelerator. A native operator whose kernel the accelerator lacks
        # runs on the CPU, and its results are transferred.
        on_device = step.stage == "device" and (not isinstance(step.op, NativeOperator) or step.op.kernel in kernels)
        # With an accelerator: `earliest`, or the next level if that one is on the other side.
        level[step.id] = earliest if not accelerator else earliest + (earliest % 2 != on_device)
    levels = sorted(set(level.values()))
    result = []
    for current in levels:
        steps = tuple(s for s in plan.steps if level.get(s.id) == current)
        operands: dict[Ref, None] = {}  # as ordered sets
        carried: dict[Ref, None] = {}
        exports: dict[Ref, None] = {}
        inputs = [r for s in steps for i, r in enumerate(s.inputs) if not s.reads_on_host(i)]
        for r in inputs:
            if plan.maker(r).stage == "host":
                operands[r] = None
            elif level.get(r.step, -1) < current:  # -1: of an earlier phase
                carried[r] = None
        other_steps = [s for s in plan.steps if level.get(s.id) != current]
        needed = [r for s in other_steps for i, r in enumerate(s.inputs) if not s.reads_shape_only(i)]
        needed += [r for s in other_steps for r in plan.fetched(s)]  # including predicates
        exports |= {r: None for r in (*plan.outputs, *needed) if level.get(r.step) == current}
        if host_outputs and current == levels[-1]:
            # Outputs of static shape pass through the last program, which returns them on the right devices.
            passed_through = [
                r for r in plan.outputs if plan.maker(r).stage == "host" and plan.spec(r).shape is not None
            ]
            passed_through = [r for r in passed_through if not plan.spec(r).is_metadata]
            operands |= dict.fromkeys(passed_through)
            exports |= dict.fromkeys(passed_through)
        on_device = accelerator and current % 2 == 1
        result.append(Segment(plan, steps, tuple(operands), tuple(carried), tuple(exports), on_device))
    return tuple(result)


def profile_name(operator: str, name: str) -> str:
    """The name of a step in profiles: its operator, and the user's name, which does not begin with two underscores."""
    return operator if name.startswith("__") else f"{operator} ({name})"
