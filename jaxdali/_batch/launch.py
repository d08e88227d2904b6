"""`Launcher`: runs the host pass of one batch, and dispatches its programs without waiting for them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from .._core import ffi as _ffi
from .._core.errors import OperatorError
from .._core.ragged import BufferPool, Packed, Ragged, Sizes, plan_offsets
from .._plan.binding import BoundPlan
from .._plan.plan import Ref
from .._plan.segments import Segment
from .._program.compilation import stored
from .._program.operands import Layout, Operands
from .._program.program import Program, ProgramForm, program_for
from .._program.sharding import Shards
from . import repair
from .ahead_compiler import AheadCompiler
from .batch import InFlightBatch, PhaseMemory, ProgramStatus
from .host_pass import HostPass
from .phases import Phase, Phases
from .resources import RunResources


# Note [Repair alone]
# A GPU's decoder leaves some files to the host, but only its status, after the batch, says which. Making the batch
# again would read, decode and transfer everything twice. Instead the host decodes only those samples, and the programs
# that have run do so once more with a mask of these samples (see Note [Presence]); their rows overwrite those of the
# first run. The operands have the same shapes, so nothing is compiled. If other samples depend on one that failed
# (`ProgramOperator.mixes`), the whole batch is made again.
class Launcher:
    """Launches the batches of an executor.

    A phase's programs have buffers of fixed capacities, which are numbered: `Phase.ragged` gives the number for a
    ragged value (one whose samples may differ in shape), `Phase.scratch` for the working memory of a native step. A
    batch has a `PhaseMemory` for each phase: by these numbers, what it needs and what it gets.

    Args:
      bound: the plan.
      host: the host pass.
      phases: the programs.
      resources: the resources for making batches.
      shardings: of the outputs.
      stacked: whether outputs get a leading axis of the shards.

    Attributes:
      ran: each program that has run and its last operands, by the program's number.
    """

    def __init__(
        self,
        bound: BoundPlan,
        host: HostPass,
        phases: Phases,
        resources: RunResources,
        shardings: Sequence[jax.sharding.Sharding | None],
        stacked: bool,
    ):
        self._bound = bound
        self._host = host
        self._phases = phases
        self._resources = resources
        self._shardings = tuple(shardings)
        self._stacked = stacked
        # By number of the program and key of its operands: their layout, the program, and the devices that run it.
        self._programs: dict[Any, tuple[Layout, Program, Shards]] = {}
        self._compiled: set[Program] = set()  # programs that have run
        self._ahead_compiler = AheadCompiler(phases)
        self.ran: dict[int, tuple[Program, Any]] = {}

    def prepare(self, batch: InFlightBatch):
        """Runs the host pass of the first phase (number 0), which needs no program.

        Raises:
          SampleError: a sample failed on the host.
          OperatorError: an operator failed.
        """
        repair.raise_first_failure(batch)  # if a sample failed while it was read, no host step may follow
        # Only programs return samples that failed, and none has run before the first phase.
        if self._host.run(0, batch):
            raise AssertionError("a program has run")

    def dispatch(self, batch: InFlightBatch) -> InFlightBatch:
        """Runs the programs of a prepared batch, alternating with the host steps and eager functions of later phases.

        Returns:
          The batch; or another one, which was launched in its place because samples had failed before an eager
          function.

        Raises:
          SampleError: a sample failed on the host; nothing of its phase was launched.
          OperatorError: an operator failed.
        """
        number = 0
        while True:
            self._run_programs(number, batch)
            number += 1
            if number > self._bound.plan.last_phase:
                return batch
            while bad := self._host.run(number, batch):
                # A function that keeps Python state must see each batch once, whole, and in order.
                if not self._repair_alone(batch, bad):
                    return self._relaunch(batch, bad)

    def repair(self, batch: InFlightBatch, bad: repair.Bad) -> InFlightBatch:
        """Makes the failed samples of a launched batch again: alone if possible, else the whole batch."""
        return batch if self._repair_alone(batch, bad) else self._relaunch(batch, bad)

    def _relaunch(self, batch: InFlightBatch, bad: repair.Bad) -> InFlightBatch:
        """Launches the whole batch again, from what was read."""
        batch = repair.batch_to_relaunch(batch, bad)
        self.prepare(batch)
        return self.dispatch(batch)

    def _repair_alone(self, batch: InFlightBatch, bad: repair.Bad) -> bool:
        """Makes samples again that the kernels of an accelerator left to the host, and writes them into the batch.

        The host decodes them, and the programs that have run do so once more, with only these samples: nothing is
        compiled, and nothing else of the batch is read, decoded or changed. See Note [Repair alone].

        Returns:
          Whether this was done; False: these samples can't be made alone.
        """
        affected_steps = repair.steps_to_run_again(self._bound.plan, batch, bad)
        if affected_steps is None:
            return False
        repaired = np.zeros(self._resources.N, bool)
        repaired[[i for samples in bad.values() for i in samples]] = True
        # A second batch in which only the repaired samples are present. `run_alone` replaces values and setups in it,
        # and `_run_program` its results, so it has its own dicts. Its results are then copied into the first. The cache
        # `_present_in` begins empty, because other samples are present.
        copies = {"values": dict(batch.values), "setups": dict(batch.setups), "results": dict(batch.results)}
        repair_batch = dataclasses.replace(
            batch, **copies, status=[], failures=[], replaced=[], repaired=repaired, _present_in={}
        )
        if not self._host.run_alone(repair_batch, bad):
            return False
        for number, memory in batch.memory.items():
            phase = self._phases.of(number)
            # A program with an affected step runs as a whole, but only results of affected steps are taken from it.
            segments = [s for s in phase.segments if any(step.id in affected_steps for step in s.steps)]
            for segment in segments:
                # Operands that the host pass has replaced, such as a file by its decoded pixels.
                new_operands = {
                    r: v
                    for r in segment.operands
                    if isinstance(v := repair_batch.values[r].data, Packed) and v is not batch.values[r].data
                }
                needs = {phase.ragged[r]: max(v.used, memory.needs[phase.ragged[r]]) for r, v in new_operands.items()}
                needs = {**memory.needs, **needs}
                # Larger operands may need a larger part of the same capacities.
                sizes = max(memory.sizes, phase.sizes(memory.sizes.capacities, needs), key=lambda s: s.sixths)
                offsets = {**memory.offsets, **{r: v.offsets for r, v in new_operands.items()}}
                self._run_program(phase, segment, PhaseMemory(offsets, needs, sizes), repair_batch)
            for ref in (r for s in segments for r in s.exports if r.step in affected_steps):
                new, shapes = repair_batch.results[ref], batch.values[ref].shapes
                batch.results[ref] = repair.overwritten(
                    batch.results[ref], new, repaired, memory.offsets.get(ref), shapes, self._resources.S
                )
        batch.bad, batch.status = repair.all_bad(batch, bad), repair_batch.status
        return True

    def _run_programs(self, number: int, batch: InFlightBatch):
        """Dispatches the programs of a phase."""
        resources, phase = self._resources, self._phases.of(number)
        # The memory that the batch needs, by the numbers of capacities in `Phase`: elements of ragged buffers, and
        # bytes of scratch. Then buffers that are large enough are chosen, from few sizes, so that few programs are
        # compiled.
        offsets: dict[Ref, np.ndarray] = {}
        needs: dict[int, int] = {}
        for ref, index in phase.ragged.items():
            value = batch.values[ref]
            if isinstance(value.data, Packed):
                offsets[ref], needs[index] = value.data.offsets, self._elements_needed(ref, value.data, batch)
            else:
                try:
                    offsets[ref], needs[index] = plan_offsets(value.shapes, resources.S)
                except ValueError as e:
                    raise self._bound.plan.maker(ref).node.error(str(e)) from e
        needs |= {index: size for step, index in phase.scratch.items() if (size := batch.setups[step].scratch)}
        sizes = {n: memory.sizes for n, memory in batch.memory.items() if n < number}
        sizes[number] = self._ahead_compiler.fit(number, needs, sizes)
        memory = batch.memory[number] = PhaseMemory(offsets, needs, sizes[number])
        for segment in phase.segments:
            self._run_program(phase, segment, memory, batch)

        def compilers(sizes: Mapping[int, Sizes]) -> list[Callable[[], None]]:
            """Returns functions that compile the programs of this phase for other sizes, by phase."""
            larger = {
                n: dataclasses.replace(batch.memory[n], sizes=sizes_of_phase) for n, sizes_of_phase in sizes.items()
            }
            return [self._compiler(number, phase, segment, larger, batch) for segment in phase.segments]

        self._ahead_compiler.note_run(number, needs, sizes, compilers)

    def close(self):
        """Cancels compilations that have not begun."""
        self._ahead_compiler.close()

    def _compiler(
        self, number: int, phase: Phase, segment: Segment, memory: Mapping[int, PhaseMemory], batch: InFlightBatch
    ) -> Callable[[], None]:
        """Returns a function that compiles a program for other sizes than those of this batch. The function does not
        refer to the batch, whose memory it would keep.

        Args:
          number: number of the phase.
          phase: the programs of the phase.
          segment: the steps of the program.
          memory: the memory of this phase and of the earlier ones, with the other sizes.
          batch: a batch that the program has just run, from which the shapes and types of its arguments are taken.
        """
        operands = self._operands(phase, segment, memory[number], batch, pool=None)
        program_number = phase.first + phase.segments.index(segment)
        layout, program, shards = self._program(program_number, segment, phase, operands)

        def carried_type(ref: Ref) -> Any:
            """The shapes and types of a value that an earlier program would make with these sizes."""
            result = batch.results[ref]
            if isinstance(result, Ragged):
                # The capacity in the earlier phase that makes the value.
                capacity = next(
                    m.sizes.capacities[p.ragged[ref]]
                    for n, m in memory.items()
                    if ref in (p := self._phases.of(n)).ragged
                )
                result = dataclasses.replace(
                    result, data=jax.ShapeDtypeStruct((self._resources.S * capacity,), result.dtype)
                )
            return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=shards.local), result)

        # On several devices the sharding is a part of an argument's type.
        sharding = shards.local if shards.accelerator or self._over_processes else None
        args = jax.ShapeDtypeStruct((self._resources.S, layout.words), np.int32, sharding=sharding)
        buffers = tuple(jax.ShapeDtypeStruct(b.shape, b.dtype, sharding=sharding) for b in operands.buffers)
        types = args, buffers, tuple(map(carried_type, segment.carried)), tuple(program.donated.values())
        device = shards.primaries[0]

        def compile_program():
            program.run.lower(*types).compile()
            for array_type in program.donated.values():
                _ffi.compile_empty(array_type, device)

        return compile_program

    def _operands(
        self,
        phase: Phase,
        segment: Segment,
        memory: PhaseMemory,
        batch: InFlightBatch,
        pool: BufferPool | None,
    ) -> Operands:
        """Collects the operands of a program.

        Args:
          phase: the phase of the program.
          segment: the steps of the program.
          memory: what the batch needs of the phase's buffers, and the sizes that were chosen for them.
          batch: has the host values and the setups of the steps.
          pool: the pool of their buffers; None: the buffers have no memory, only shapes and types.
        """
        resources, sizes = self._resources, memory.sizes.capacities
        # For an accelerator the buffers that the program reads, and its working memory, are cut to the part that the
        # batch needs (Note [Compiled ahead]). Results keep their capacities.
        if segment.on_device:
            sizes = memory.sizes.cut(phase.on_accelerator & memory.needs.keys())
        operands = Operands(resources.S, resources.B, pool)
        for presence in segment.presences:
            operands.control(resources.pool_id, batch.present_in(presence))
        for ref in segment.operands:
            operands.value(batch.values[ref], sizes[phase.ragged[ref]] if ref in phase.ragged else 0)
        for step in segment.steps:
            setup = batch.setups[step.id]
            placements = [self._placement(r, phase, memory, batch) for r in step.outputs]
            index = phase.scratch.get(step.id)
            # A step may need no working memory for this batch.
            scratch = sizes[index] if index is not None and index in memory.needs else 0
            operands.step(placements, setup.params, scratch)
        return operands

    def _run_program(self, phase: Phase, segment: Segment, memory: PhaseMemory, batch: InFlightBatch):
        """Dispatches a program, and stores its results and status in the batch.

        Args:
          phase: the phase of the program.
          segment: the steps of the program.
          memory: what the batch needs of the phase's buffers, and the sizes that were chosen for them.
          batch: has the host values, the setups of the steps, and the results of earlier programs.
        """
        resources, number = self._resources, phase.first + phase.segments.index(segment)
        label = f"{number}: {segment.name}"
        with resources.meter.stage("launch", segment.names, label):
            operands = self._operands(phase, segment, memory, batch, resources.pool)
            codes, times = self._dispatch(number, segment, phase, operands, batch)
        if segment.native:
            batch.status.append(ProgramStatus(label, segment.native, codes, times))
        if resources.meter.enabled:
            samples = resources.N if batch.repaired is None else int(batch.repaired.sum())
            resources.meter.count("launch", label, samples, operands.nbytes + self._crossing_bytes(segment, batch))

    def _crossing_bytes(self, segment: Segment, batch: InFlightBatch) -> int:
        """Bytes of the values that cross the link between host and accelerator: those that this program reads, and an
        earlier program has made on the other side.
        """
        made_on_device = {
            r: s.on_device for number in batch.memory for s in self._phases.of(number).segments for r in s.exports
        }
        crossing = [r for r in segment.carried if made_on_device.get(r, segment.on_device) != segment.on_device]
        return sum(x.nbytes for r in crossing for x in jax.tree.leaves(batch.results[r]))

    def _placement(
        self, ref: Ref, phase: Phase, memory: PhaseMemory, batch: InFlightBatch
    ) -> tuple[int, np.ndarray, np.ndarray] | None:
        """Capacity (in elements), offsets ``i32[N]`` (in units of `ALIGNMENT` elements) and shapes ``i64[N, ndim]`` of a
        value that a program makes; None if all its samples have one shape.
        """
        if self._bound.plan.spec(ref).shape is not None:
            return None
        if ref in phase.ragged:
            return memory.sizes.capacities[phase.ragged[ref]], memory.offsets[ref], batch.values[ref].shapes
        # A value that is passed on inside a native call has shapes, but no memory.
        return 0, self._resources.no_offsets, batch.values[ref].shapes

    def _elements_needed(self, ref: Ref, data: Packed, batch: InFlightBatch) -> int:
        """Elements of the buffer that a host value needs in each shard. In a branch it is sized as if all samples took
        the branch, so that predicates don't change what is compiled.
        """
        presence = self._bound.plan.maker(ref).presence
        if presence is None:
            return data.used
        present = batch.present_in(presence)
        assert present is not None
        largest_count = int(present.reshape(self._resources.S, -1).sum(axis=1).max())  # present samples of a shard
        return data.used * self._resources.B // max(1, largest_count)

    def _dispatch(
        self, number: int, segment: Segment, phase: Phase, operands: Operands, batch: InFlightBatch
    ) -> tuple[jax.Array, jax.Array | None]:
        """Dispatches a program, and stores its results in the batch. Returns two arrays that are not ready yet: the status
        of its native steps, and the times that they take (None: not measured).

        Args:
          number: of the program, counted over all phases.
          segment: the steps of the program.
          phase: the phase of the program.
          operands: its operands from the host.
          batch: has the results of earlier programs.
        """
        resources = self._resources
        layout, program, shards = self._program(number, segment, phase, operands)
        carried = tuple(batch.results[r] for r in segment.carried)
        carried = jax.device_put(carried, shards.local) if carried else ()
        packed, buffers = operands.packed(layout), tuple(operands.buffers)
        try:
            arguments = (packed, buffers, carried, resources.output_reuse.take(program.donated, shards.primaries[0]))
            if self._over_processes:
                arguments = jax.device_put(arguments, shards.local)
            # The operands' buffers are page-locked where possible, so that a GPU copies them directly, and the program
            # need not wait for another copy on the host (Note [Pinned memory]).
            placed = jax.device_put(arguments, shards.local) if shards.accelerator else arguments
            # The first run compiles the program, unless that was done ahead.
            with contextlib.nullcontext() if program in self._compiled else stored():
                exports, codes, times = program.run(*placed)
            self._compiled.add(program)
        except jax.errors.JaxRuntimeError as e:
            if not str(e).startswith("RESOURCE_EXHAUSTED"):
                raise
            raise _out_of_memory_error(segment, batch, str(e).partition("\n")[0]) from e
        if segment.native and resources.accelerator and segment.on_device:
            codes.copy_to_host_async()  # so that `check` need not wait for the transfer
        self.ran[number] = (program, arguments)
        batch.results |= zip(segment.exports, program.delivered(exports), strict=True)
        return codes, times

    @property
    def _over_processes(self) -> bool:
        """Whether there are several processes. JAX then can't shard a NumPy array itself."""
        return self._resources.S > 1 and jax.process_count() > 1

    def _program(
        self, number: int, segment: Segment, phase: Phase, operands: Operands
    ) -> tuple[Layout, Program, Shards]:
        """Returns the layout of the operands, the program for their shapes, and the shards on whose devices it runs.
        `number`: of the program, counted over all phases.
        """
        key = number, operands.key
        entry = self._programs.get(key)
        if entry is None:
            layout = operands.layout()  # the operands of a later batch with this key have the same
            is_last = phase.last and segment is phase.segments[-1]
            form = self._form(segment, layout, is_last)
            # Only results of programs with native steps: their status tells when a result is finished and can be lent.
            reuse = is_last and bool(segment.native) and self._resources.S == 1 and not self._resources.accelerator
            entry = self._programs[key] = layout, program_for(segment, form, reuse), form.shards
        return entry

    def _form(self, segment: Segment, layout: Layout, is_last: bool) -> ProgramForm:
        """How the program of a segment is made.

        Args:
          layout: of its operands.
          is_last: whether it is the last program of a batch.
        """
        resources, plan = self._resources, segment.plan
        shards = resources.shards if segment.on_device else resources.cpu_shards
        # The last program makes the outputs in the form in which an iterator delivers them.
        makes_outputs = is_last and resources.as_arrays
        # If an output is needed on several shardings, the program writes the first one: in reverse order the first one
        # replaces the others in the dict.
        shardings = dict(zip(plan.outputs[::-1], self._shardings[::-1], strict=True)) if makes_outputs else {}
        direct = {r: s for r, s in shardings.items() if s is not None and shards.direct(s)}
        return ProgramForm(
            layout=layout,
            shards=shards,
            B=resources.B,
            out_shardings=tuple(
                shards.local if plan.spec(r).shape is None else direct.get(r, shards.local) for r in segment.exports
            ),
            # Results that a later program reads must keep their types. After the last program there is none.
            narrowed=makes_outputs and not resources.x64,
            stacked=bool(direct) and self._stacked,
            timed=resources.meter.enabled and bool(segment.native) and shards.primaries[0].platform == "cpu",
        )


def _out_of_memory_error(segment: Segment, batch: InFlightBatch, reason: str) -> OperatorError:
    """The error if a program gets no memory. It names the step with the largest output, and its largest sample.
    `reason`: the first line of JAX's message.
    """
    outputs = ((s, batch.values[r].shapes) for s in segment.steps if not s.fused for r in s.outputs)
    # The largest by the elements of all samples together.
    step, shapes = max(outputs, key=lambda x: x[1].prod(axis=1).sum())
    i = int(shapes.prod(axis=1).argmax())
    return step.node.error(
        f"{reason} Its output is the largest of the program; the largest is sample {i}, of shape {tuple(shapes[i].tolist())}"
    )
