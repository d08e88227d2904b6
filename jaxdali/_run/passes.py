"""What makes a plan smaller: functions from plan to plan. They run whenever steps have been bound, and leave others alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from .._core.operator import SourceOperator
from .plan import Plan, Ref


def bypass_identities(plan: Plan) -> Plan:
    """Who reads the output of a step that does nothing reads its input. The step itself is left to `drop_dead`."""
    instead: dict[Ref, Ref] = {}
    steps = []
    for step in plan.steps:
        inputs = tuple(instead.get(r, r) for r in step.inputs)
        if inputs != step.inputs:
            step = dataclasses.replace(step, inputs=inputs)
        if step.known and step.op.is_identity(*map(plan.spec, inputs)):
            same = plan.spec(inputs[0]) == step.specs[0] and plan.maker(inputs[0]).stage == step.stage
            if same:
                instead[step.outputs[0]] = inputs[0]
        steps.append(step)
    if not instead:
        return plan
    outputs, sinks = (tuple(instead.get(r, r) for r in refs) for refs in (plan.outputs, plan.sinks))
    return Plan(tuple(steps), outputs, sinks)


def drop_dead(plan: Plan) -> Plan:
    """Without the steps that no output and no sink depends on. Sources stay, as they have a state, and so does what is to be preserved."""
    needed = {r.step for r in (*plan.outputs, *plan.sinks)}
    for step in reversed(plan.steps):
        if step.id in needed or isinstance(step.op, SourceOperator) or step.op.preserved:
            needed |= {r.step for r in step.inputs} | {step.id}
    return plan if len(needed) == len(plan.steps) else dataclasses.replace(plan, steps=tuple(s for s in plan.steps if s.id in needed))


PASSES: tuple[Callable[[Plan], Plan], ...] = (bypass_identities, drop_dead)


def simplified(plan: Plan) -> Plan:
    """After all passes."""
    for each in PASSES:
        plan = each(plan)
    return plan
