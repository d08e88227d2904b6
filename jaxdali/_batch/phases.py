"""The programs of a pipeline, phase by phase; see Note [Phases]."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from .._core.operator import NativeOperator
from .._core.ragged import Capacities, Sizes
from .._core.values import narrow
from .._plan.binding import BoundPlan
from .._plan.plan import Ref
from .._plan.segments import Segment, segments
from .._program.program import capacities_for
from .resources import RunResources


@dataclasses.dataclass(frozen=True)
class Phase:
    """The work without an eager function in between: host steps, then programs.

    Attributes:
      segments: the programs; first: number of the first one in the pipeline.
      ragged: for each ragged value that the programs read or make, the place of its capacity.
      scratch: the same for each native step's working memory.
      on_accelerator: the places of what an accelerator gets, and of its working memory.
      reads: the earlier phases from whose programs it gets ragged values.
      capacities: shared with all iterators that have the same programs, see Note [Shared capacities].
      last: whether the last program is the pipeline's last.
    """

    segments: tuple[Segment, ...]
    first: int
    ragged: Mapping[Ref, int]
    scratch: Mapping[int, int]
    on_accelerator: frozenset[int]
    reads: tuple[int, ...]
    capacities: Capacities
    last: bool

    def sizes(self, capacities: Mapping[int, int], needs: Mapping[int, int]) -> Sizes:
        """The smallest sizes of these capacities that hold what a batch needs, see `PhaseMemory`."""
        return Sizes.least(capacities, {k: needs[k] for k in self.on_accelerator & needs.keys()})


class Phases:
    """The phases whose host steps have run, so that their programs are known.

    Args:
      bound: the plan.
      resources: the resources for making batches.
      sharded: whether an output has a sharding.
    """

    def __init__(self, bound: BoundPlan, resources: RunResources, sharded: bool):
        self._bound = bound
        self._resources = resources
        self._sharded = sharded
        self._known: list[Phase] = []

    def capacity(self, ref: Ref) -> int:
        """Elements of the largest buffer that a program has for a ragged value; 0: not known."""
        return max((p.capacities.get(p.ragged[ref]) for p in self._known if ref in p.ragged), default=0)

    def of(self, number: int) -> Phase:
        """The programs of a phase whose host steps have run."""
        if number == len(self._known):
            resources, plan = self._resources, self._bound.plan
            last = plan.ends_with(number)
            ride = resources.as_arrays and last and (self._sharded or not resources.accelerator)
            found = segments(plan, number, resources.accelerator, resources.kernels, ride)
            read_or_made = [r for s in found for r in (*s.operands, *(r for step in s.steps for r in step.outputs))]
            ragged = dict.fromkeys(r for r in read_or_made if plan.spec(r).shape is None and not plan.maker(r).fused)
            scratch = [step.id for s in found for step in s.native]
            at_ragged = (
                step
                for s in found
                for step in s.steps
                if any(plan.spec(r).shape is None for r in (*step.inputs, *step.outputs))
            )
            only_kernels = all(isinstance(step.op, NativeOperator) and step.op.only_kernels for step in at_ragged)
            # Otherwise XLA converts whole buffers.
            as_made = all(narrow(plan.spec(r).dtype) == plan.spec(r).dtype for r in ragged)
            roomy = not resources.accelerator and only_kernels and as_made
            capacities = capacities_for((tuple(s.key for s in found), resources.shards.devices), resources.B, roomy)
            carried = {r for s in found for r in s.carried}
            first = sum(len(p.segments) for p in self._known)
            of_ragged = {r: i for i, r in enumerate(ragged)}
            of_scratch = {step: len(ragged) + i for i, step in enumerate(scratch)}
            on_device = [s for s in found if s.on_device]
            crossing = {of_ragged[r] for s in on_device for r in s.operands if r in of_ragged}
            self._known.append(
                Phase(
                    found,
                    first,
                    of_ragged,
                    of_scratch,
                    frozenset(crossing.union(of_scratch[step.id] for s in on_device for step in s.native)),
                    tuple(n for n, earlier in enumerate(self._known) if carried & earlier.ragged.keys()),
                    capacities,
                    last,
                )
            )
        return self._known[number]
