"""`Phases`: the programs of a pipeline, phase by phase; see Note [Phases]."""

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
    """The programs of a phase. Capacities of buffers are numbered: first those of ragged values, then those of scratch.

    Attributes:
      segments: the programs.
      first: number of the first program, counted over all phases.
      ragged: for each ragged value that the programs read or make, the number of its capacity.
      scratch: for each native step, by its id, the number of its working memory's capacity.
      on_accelerator: the numbers of the buffers that are sent to an accelerator, and of its working memory.
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
        """The smallest sizes of these capacities that hold what a batch needs. Both are elements, or bytes of scratch, by
        the number of the buffer.
        """
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
        self._phases: list[Phase] = []

    def capacity(self, ref: Ref) -> int:
        """Elements of the largest buffer that a program has for a ragged value; 0: not known."""
        return max((p.capacities.get(p.ragged[ref]) for p in self._phases if ref in p.ragged), default=0)

    def of(self, number: int) -> Phase:
        """Returns the programs of a phase whose host steps have run. The phases must be requested in order."""
        if number == len(self._phases):
            resources, plan = self._resources, self._bound.plan
            last = plan.ends_with(number)
            # The last program also puts outputs of the host where the user wants them.
            host_outputs = resources.as_arrays and last and (self._sharded or not resources.accelerator)
            programs = segments(plan, number, resources.accelerator, resources.kernels, host_outputs)
            # A fused value exists only inside a native call, and has no buffer.
            refs = [r for s in programs for r in (*s.operands, *(r for step in s.steps for r in step.outputs))]
            ragged = dict.fromkeys(r for r in refs if plan.spec(r).shape is None and not plan.maker(r).fused)
            scratch = [step.id for s in programs for step in s.native]
            # Buffers may be larger than needed (`roomy`) only if that costs no time: if only kernels touch them, which
            # depend on shapes, and not XLA's own operations, which work on whole buffers.
            ragged_steps = (
                step
                for s in programs
                for step in s.steps
                if any(plan.spec(r).shape is None for r in (*step.inputs, *step.outputs))
            )
            only_kernels = all(isinstance(step.op, NativeOperator) and step.op.only_kernels for step in ragged_steps)
            # A value that is narrowed to 32 bits is converted by XLA.
            keeps_types = all(narrow(plan.spec(r).dtype) == plan.spec(r).dtype for r in ragged)
            roomy = not resources.accelerator and only_kernels and keeps_types
            capacities = capacities_for((tuple(s.key for s in programs), resources.shards.devices), resources.B, roomy)
            carried = {r for s in programs for r in s.carried}
            first = sum(len(p.segments) for p in self._phases)
            number_of_ragged = {r: i for i, r in enumerate(ragged)}
            number_of_scratch = {step: len(ragged) + i for i, step in enumerate(scratch)}
            on_device = [s for s in programs if s.on_device]
            # Host values in ragged buffers that programs on the accelerator read.
            crossing = {number_of_ragged[r] for s in on_device for r in s.operands if r in number_of_ragged}
            self._phases.append(
                Phase(
                    segments=programs,
                    first=first,
                    ragged=number_of_ragged,
                    scratch=number_of_scratch,
                    on_accelerator=frozenset(
                        crossing.union(number_of_scratch[step.id] for s in on_device for step in s.native)
                    ),
                    reads=tuple(n for n, earlier in enumerate(self._phases) if carried & earlier.ragged.keys()),
                    capacities=capacities,
                    last=last,
                )
            )
        return self._phases[number]
