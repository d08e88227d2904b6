"""Runs a graph batch by batch: reads the sources, works on the host, launches programs, checks their status."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.profiler import TraceAnnotation
from jax.sharding import Sharding

from .. import _cpu
from .._core import ffi as _ffi
from .._core.context import BuildContext, HostContext
from .._core.graph import Graph, Node
from .._core.operator import EagerOperator, HostOperator, NativeOperator, ProgramOperator, SourceOperator
from .._core.ragged import BufferPool, Capacities, Packed, pack, plan_offsets
from .._core.settings import UserSettings
from .._core.values import Spec, Value
from .._data.source import SampleIds, Source
from ..errors import ArgumentError, OperatorError, SampleError
from .host import BadSample, EagerArrays, SourceError, Work
from .lowering import SMALL_ROW, Layout, Program, Segment, capacities_for, program_for, segments
from .outputs import DifferentShapes, Outputs
from .sharding import Shards, cpu_device

STATE_VERSION = 1


@dataclasses.dataclass
class Batch:
    """A finished batch.

    Attributes:
      outputs: one per pipeline output: a global `jax.Array` (`as_arrays`; or what `finish` made of it) or a `Value` (otherwise).
      state: after this batch.
      ids: epoch, position and presence of each sample.
      names: where the samples of each output came from (not `as_arrays`).
      replaced: file and reason of each sample that was replaced.
    """

    outputs: tuple[Any, ...]
    state: dict
    ids: SampleIds
    names: tuple[Sequence[str], ...]
    replaced: Sequence[tuple[str, str]] = ()


@dataclasses.dataclass
class Phase:
    """What runs without an eager function in between: host operators, and then programs.

    Attributes:
      segments: the programs, with their numbers in the pipeline.
      ragged: under which key the capacity of each ragged value stands that the programs read or make.
      capacities: shared with all iterators that have the same programs.
      last: whether the last program is the pipeline's last.
    """

    segments: tuple[Segment, ...]
    first: int
    ragged: dict[tuple[int, int], Any]
    capacities: Capacities
    last: bool


class Executor:
    """Runs the graphs of all local shards of one iterator, or of one stand-alone pipeline.

    Args:
      graphs: the traced definition, once per local shard; they must have one structure.
      shards: the local shards.
      batch_size: samples per shard.
      num_threads: threads of the native operators, for all shards together.
      num_workers: threads in which a source of samples may be called, where the user wants that.
      seed: of the pipeline.
      as_arrays: outputs are global jax.Arrays (an iterator), else values as they are, of the one shard (Pipeline.run).
      sharding: of the outputs, one for all or one for each; None: the one device.
      stacked: outputs get a leading axis of the shards, ``(shards, B, ...)``, which `sharding` shards.
      padded: batches keep their size where samples are missing.
      sources: those, by node id, that another executor of the one graph opened and did not read.
      reader: name of the source that says which epoch and position a sample has; None: the first.
      x64: whether `as_arrays` keeps 64-bit types; None: as the user has set it in JAX.
      finish: of `as_arrays`, makes another framework's values of a batch's arrays, in the thread that checks it. What it raises is
        that batch's error.
    """

    def __init__(
        self,
        graphs: Sequence[Graph],
        *,
        shards: Shards,
        batch_size: int,
        num_threads: int,
        num_workers: int = 1,
        seed: int,
        as_arrays: bool,
        sharding: Sharding | Sequence[Sharding | None] | None = None,
        stacked: bool = False,
        padded: bool = False,
        reader: str | None = None,
        x64: bool | None = None,
        finish: Callable[[Graph, tuple[jax.Array, ...]], tuple[Any, ...]] | None = None,
        sources: Mapping[int, Source] | None = None,
    ):
        assert as_arrays or len(graphs) == 1
        _check_same_structure(graphs)
        self._graphs = graphs
        self.graph = graphs[0]
        self.shards = shards
        self.accelerator = shards.accelerator
        # The native kernels that run on the accelerator; none when the pipeline is placed on the CPU.
        self.kernels = _ffi.kernels_on(shards.primaries[0]) if self.accelerator else frozenset[str]()
        # Operators that were not asked for on the device run beside it, on the CPU.
        self._cpu_shards = Shards(shards.num, shards.ids, tuple((cpu_device(),) for _ in shards.ids)) if self.accelerator else shards
        self.B = batch_size
        self.num_threads = num_threads
        self.seed = seed
        self.as_arrays = as_arrays
        self.settings = UserSettings()
        self._x64 = self.settings.x64 if x64 is None else x64
        self._finish = finish or (lambda graph, arrays: arrays)
        self._process = os.getpid()
        self.pool_id = _cpu.pool_create(num_threads)
        self._pool = BufferPool()
        self._outputs = Outputs(self._pool, shards, batch_size, stacked=stacked, padded=padded, x64=self._x64)
        if sharding is None or isinstance(sharding, Sharding):
            sharding = [sharding] * len(self.graph.outputs)
        self._shardings: tuple[Sharding | None, ...] = tuple(sharding)
        assert len(self._shardings) == len(self.graph.outputs)
        self._bad: dict[tuple[str, str], int] = {}
        self._phases: list[Phase] = []
        self._last: dict[int, tuple[Program, Any]] = {}
        self._programs: dict[Any, tuple[Layout, Program, Shards]] = {}
        self.sources: dict[int, Source] = {}
        self.calling: Node | None = None  # whose function of the user's a thread of ours is in, for messages
        try:
            for i, node in enumerate(self.graph.nodes):
                if isinstance(node.op, SourceOperator):
                    try:
                        made = sources.get(node.id) if sources else None
                        source = made or node.op.make_source([g.nodes[i].op for g in graphs], seed)
                        source.workers = max(1, num_workers)
                        self.sources[node.id] = source
                    except (ValueError, RuntimeError, OSError) as e:
                        raise e if isinstance(e, OperatorError) else node.error(str(e)) from e
        except BaseException:
            self.close()
            raise
        self._source_nodes = [n for n in self.graph.nodes if isinstance(n.op, SourceOperator)]
        named = [n for n in self._source_nodes if n.name == reader]
        self.primary = (named or self._source_nodes or [None])[0]
        self._built = False

    # --- build ------------------------------------------------------------------------------------------------

    def build(self):
        """Infers the specs, as far as no eager function has to run for that; reads first batches where only these tell the types."""
        if self._built:
            return
        for i, node in enumerate(self.graph.nodes):
            if isinstance(node.op, SourceOperator):  # may call a function of the user's: under the settings of the user's thread
                self._infer(i, node)
        with self.contexts():
            for i, node in enumerate(self.graph.nodes):
                if not isinstance(node.op, SourceOperator):
                    self._infer(i, node)
        self._built = True

    def _infer(self, i: int, node: Node):
        """Infers a node if its inputs' specs are known; those of an eager function are when it has run."""
        if all(x.node.specs for x in node.inputs):
            ops = [g.nodes[i].op for g in self._graphs]

            def first_shape(i: int) -> tuple[int, ...] | None:
                x = node.inputs[i]
                return self.sources[x.node.id].first_shape(x.index) if x.node.id in self.sources else None

            self.graph.infer(
                node, self.sources, BuildContext(self.B, node.stage, node.where, self.kernels, self.settings, ops, first_shape)
            )

    @property
    def initial_state(self) -> dict:
        """The state before the first batch (JSON)."""
        return {
            "version": STATE_VERSION,
            "seed": self.seed,
            "epoch": 0,
            "iteration": 0,
            "sources": {n.name: {"cursors": self.sources[n.id].initial()} for n in self._source_nodes},
        }

    def reseed(self, seed: int):
        """Goes on with another seed, that of a checkpoint. Only while nothing runs."""
        self.seed = seed
        for source in self.sources.values():
            source.reseed(seed)

    @property
    def named_sources(self) -> dict[str, Source]:
        """The sources by their operators' names."""
        return {n.name: self.sources[n.id] for n in self._source_nodes}

    def after_end(self, state: dict) -> dict:
        """The state of the next epoch, when a source has ended this one."""
        state = copy.deepcopy(state)
        state["epoch"] += 1
        state["iteration"] = 0
        for n in self._source_nodes:
            entry = state["sources"][n.name]
            entry["cursors"] = self.sources[n.id].after_end(entry["cursors"])
        return state

    def _phase(self, number: int) -> Phase:
        """The programs of a phase whose host operators have run, and whose nodes' specs are therefore known."""
        if number == len(self._phases):
            later = any(
                n.phase < 0 or (n.phase > number and (n.stage != "host" or isinstance(n.op, EagerOperator))) for n in self.graph.nodes
            )
            ride = self.as_arrays and not later and (any(s is not None for s in self._shardings) or not self.accelerator)
            found = segments(self.graph, number, self.accelerator, self.kernels, ride)
            first = sum(len(p.segments) for p in self._phases)
            capacity_keys: dict[tuple[int, int], Any] = {}
            for at, segment in enumerate(found):
                for i, x in enumerate(segment.operands):
                    if x.spec.shape is None:
                        capacity_keys.setdefault((x.node.id, x.index), (at, "operand", i))
                for i, n in enumerate(segment.nodes):
                    for k, spec in enumerate(n.specs):
                        if spec.shape is None:
                            capacity_keys[n.id, k] = (at, i, k)
            capacities = capacities_for((tuple(s.key for s in found), self.shards.devices), self.B)
            self._phases.append(Phase(found, first, capacity_keys, capacities, not later))
        return self._phases[number]

    def buffer(self, key: tuple[int, int], elements: int, dtype) -> np.ndarray:
        """A pooled buffer ``[S, capacity]`` for a ragged host value, of the capacity that the program reading it has, if that is enough."""
        capacity = max(elements, 1)
        for phase in self._phases:
            if key in phase.ragged:
                capacity = max(capacity, phase.capacities.get(phase.ragged[key]))
        return self._pool.empty((len(self.shards.devices), capacity), dtype)

    def contexts(self) -> contextlib.ExitStack:
        """The JAX settings that everything below runs under: ours where results depend on them, whatever the user's thread has."""
        stack = contextlib.ExitStack()
        stack.enter_context(jax.enable_x64(True))
        stack.enter_context(jax.disable_jit(False))
        stack.enter_context(jax.transfer_guard("allow"))
        stack.enter_context(jax.numpy_dtype_promotion("strict"))
        stack.enter_context(jax.default_device(None))
        return stack

    # --- one batch --------------------------------------------------------------------------------------------

    @property
    def asks(self) -> bool:
        """Whether batches begin with `ask`."""
        return any(s.in_caller for s in self.sources.values())

    def ask(self, state: dict) -> Work:
        """Begins a batch in the thread that takes it, under that thread's settings: reads the sources that belong there.

        Returns:
          What `read` completes. In its `after` only the cursors of these sources have moved on.

        Raises:
          What is no Exception: a KeyboardInterrupt comes out at once, and the next `ask` begins the same batch.
        """
        work = Work(state, _following(state))
        self._read_sources([n for n in self._source_nodes if self.sources[n.id].in_caller], work)
        return work

    def read(self, state: dict, asked: Work | None = None) -> Work:
        """Reads the (other) sources. The batch's `after` is the state to go on from, whatever becomes of it.

        Args:
          asked: what `ask` returned. Its place in those sources is known from there, the rest from `state`.

        Raises:
          StopIteration: a source has no more data.
          SourceError: a source failed otherwise; carries the state to go on from.
        """
        work = asked or Work(state, state)
        if work.ended:
            raise StopIteration
        before, work.before, work.after = work.after, state, _following(state)
        here = []
        for node in self._source_nodes:
            if asked is not None and self.sources[node.id].in_caller:
                work.after["sources"][node.name] = before["sources"][node.name]
            else:
                here.append(node)
        self._read_sources(here, work)
        if work.ended:
            raise StopIteration
        for source in self.sources.values():
            source.commit()
        if work.error is not None:
            raise SourceError(work.after) from work.error
        if work.ids is None:
            N = len(self.shards.devices) * self.B
            place = np.arange(self.B)[None] + self.B * np.asarray(self.shards.ids)[:, None]
            position = (place + state["iteration"] * self.B * self.shards.num).reshape(-1)
            work.ids = SampleIds(epoch=np.full(N, state["epoch"]), position=position, names=[""] * N)
        return work

    def _read_sources(self, nodes: Sequence[Node], work: Work):
        """Reads a batch of some sources. All of them, also when one fails: they stay in step."""
        for k, node in enumerate(nodes):
            entry = work.after["sources"][node.name]
            source, before = self.sources[node.id], entry["cursors"]
            try:
                if not source.in_caller:
                    self.calling = node
                with TraceAnnotation(f"jaxdali read {node.op.name}"):
                    outputs, entry["cursors"], ids = source.read(self._context(node, work, {}), before)
                self._store(node, work, outputs)
                work.names[node.id] = ids.names
                _check_alike(node, ids, work.ids)
                if node is self.primary or work.ids is None:
                    work.ids = ids
            except StopIteration:
                work.ended = True
                return
            except BaseException as e:
                if source.in_caller and not isinstance(e, Exception):  # meant for this thread, and for now
                    for n in nodes[: k + 1]:
                        self.sources[n.id].undo()
                    raise
                if entry["cursors"] is before:
                    entry["cursors"] = source.after_error(before)
                if isinstance(e, ArgumentError):  # ours; others are the user's own, and stay as they are
                    e.args = (f"{node.op.name} (created at {node.where}): {str(e).removeprefix(f'{node.op.name}: ')}",)
                elif not isinstance(e, OperatorError):
                    e.add_note(f"in {node.op.name} (created at {node.where})")
                work.error = work.error or e
            finally:
                self.calling = None

    def launch(self, work: Work) -> Work:
        """Everything but the last wait: host operators and eager functions in turn with programs, which are dispatched, not waited for.

        Raises:
          SampleError: a sample failed on the host; nothing of its phase was launched.
          OperatorError: an operator failed.
        """
        self.build()
        failed: dict[int, dict[int, int]] = {}
        for node in self.graph.nodes:
            for x in node.inputs if node.id in work.bad else ():
                failed[x.node.id] = {**failed.get(x.node.id, {}), **work.bad[node.id]}
        number = 0
        while True:
            for i, node in enumerate(self.graph.nodes):
                if node.phase < 0:
                    self._infer(i, node)  # an eager function before it has run by now, maybe
                if node.phase == number and not isinstance(node.op, SourceOperator):
                    if isinstance(node.op, EagerOperator) and (bad := self._failed(work)):
                        # A function that keeps Python state sees each batch once, whole, and in order.
                        return self.launch(self._again(work, bad))
                    with TraceAnnotation(f"jaxdali host {node.op.name}"):
                        self._run_node(node, work, failed.get(node.id, {}))
                if work.failures:
                    # A sample fails where it was read or looked at first, so the first failing node is the one to name.
                    failing, at, code, reason = work.failures[0]
                    raise self._sample_error(failing, work, at, code, reason)
            phase = self._phase(number)
            self._launch_phase(phase, work)
            number += 1
            if number > max((n.phase for n in self.graph.nodes), default=0):
                return work

    def _context(self, node: Node, work: Work, bad: Mapping[int, int]) -> HostContext:
        ids, S = work.ids, len(self.shards.devices)
        N = S * self.B

        def empty(elements: int, dtype, index: int = 0) -> np.ndarray:
            return self.buffer((node.id, index), elements, dtype)

        def fail(i: int, code: int, reason: str = ""):
            work.failures.append((node, i, code, reason))

        def report_bad(i: int, code: int, reason: str = ""):
            work.replaced.append((work.source_of(node, i), reason or _ffi.STATUS.get(code, str(code))))

        return HostContext(
            S=S,
            B=self.B,
            N=N,
            shard_ids=self.shards.ids,
            num_shards=self.shards.num,
            seed=self.seed,
            num_threads=self.num_threads,
            pool=self.pool_id,
            epoch=ids.epoch if ids is not None else np.zeros(N, np.int64),
            position=ids.position if ids is not None else np.zeros(N, np.int64),
            present=ids.present if ids is not None and ids.present is not None else np.ones(N, bool),
            specs=node.specs,
            random_index=node.random_index,
            bad=bad,
            empty=empty,
            fail=fail,
            report_bad=report_bad,
        )

    def _run_node(self, node: Node, work: Work, bad: Mapping[int, int]):
        ctx, op = self._context(node, work, bad), node.op
        try:
            if isinstance(op, EagerOperator):
                self.calling = node
                self._run_eager(node, op, work, ctx)
                return
            values = [work.values[x.node.id, x.index] for x in node.inputs]
            if node.stage == "host":
                assert isinstance(op, HostOperator)
                self._store(node, work, op.run(ctx, *values))
                return
            assert isinstance(op, ProgramOperator)
            setup = work.setups[node.id] = op.setup(ctx, *values)
        except OperatorError:
            raise
        except (ValueError, TypeError, IndexError, KeyError, ArithmeticError, OSError, MemoryError) as e:
            raise node.error(f"{type(e).__name__}: {e}") from e
        finally:
            self.calling = None
        for i, (spec, shape) in enumerate(zip(node.specs, setup.shapes, strict=True)):
            given = _static_shapes(spec, ctx.N) if spec.shape is not None else np.asarray(shape, np.int64)
            work.values[node.id, i] = Value(spec, given)

    def _run_eager(self, node: Node, op: EagerOperator, work: Work, ctx: HostContext):
        """Calls an eager function on each shard's arrays. Its results are what it returned; later operators see them as host values."""
        inputs = []
        for i, x in enumerate(node.inputs):
            try:
                inputs.append(self._outputs.parts(x, work, narrowed=not self.settings.x64))
            except DifferentShapes as e:
                raise node.error(op.not_uniform(i, e.shapes)) from e
        beside = self.accelerator and node.device not in ("mixed", "gpu") and op.sharding is None
        results = op.call(ctx, inputs, self._cpu_shards if beside else self.shards)
        for i, parts in enumerate(results):
            spec = Spec(parts[0].dtype, parts[0].ndim - 1, None if parts[0].ndim > 1 else (), op.layout_of(i, parts[0].ndim - 1))
            if len(node.specs) <= i:
                node.specs = (*node.specs, spec)
            elif (node.specs[i].dtype, node.specs[i].ndim) != (spec.dtype, spec.ndim):
                before = node.specs[i]
                raise node.error(
                    f"output {i} had {before.ndim} dimensions of {before.dtype}, now {spec.ndim} of {spec.dtype}; these may not change"
                )
            key = (node.id, i)
            work.results[key] = EagerArrays(parts)
            shape = np.asarray(parts[0].shape[1:], np.int64)
            value = work.values[key] = Value(spec, np.broadcast_to(shape, (ctx.N, spec.ndim)))
            if any(x.node is node and x.index == i for n in self.graph.nodes for x in n.inputs):
                made = iter([row for p in parts for row in np.asarray(p)])
                missing = np.zeros(parts[0].shape[1:], spec.dtype)
                rows = [next(made) if here else missing for here in ctx.present.tolist()]
                if spec.shape is not None:
                    value.data = np.asarray(rows, spec.dtype)
                else:
                    value.data = pack(rows, len(parts), lambda n, dtype, key=key: self.buffer(key, n, dtype))

    def _store(self, node: Node, work: Work, outputs: Sequence[Any]):
        N = len(self.shards.devices) * self.B
        for i, (spec, data) in enumerate(zip(node.specs, outputs, strict=True)):
            if spec.shape is not None:
                assert data.shape == (N, *spec.shape) and data.dtype == spec.dtype, (node.op.name, data.shape, data.dtype, spec)
                work.values[node.id, i] = Value(spec, _static_shapes(spec, N), data)
                continue
            if isinstance(data, list):
                data = pack(data, len(self.shards.devices), lambda n, dtype, i=i: self.buffer((node.id, i), n, dtype))
            assert data.data.dtype == spec.dtype and data.shapes.shape == (N, spec.ndim), (
                node.op.name,
                data.data.dtype,
                data.shapes.shape,
                spec,
            )
            work.values[node.id, i] = Value(spec, data.shapes, data)

    def _launch_phase(self, phase: Phase, work: Work):
        """Dispatches the programs of a phase; does not wait for them."""
        S, B = len(self.shards.devices), self.B
        offsets: dict[tuple[int, int], np.ndarray] = {}
        needs: dict[Any, int] = {}
        for key, capacity_key in phase.ragged.items():
            value = work.values[key]
            if isinstance(value.data, Packed):
                offsets[key] = value.data.offsets
                needs[capacity_key] = value.data.used
            else:
                try:
                    offsets[key], needs[capacity_key] = plan_offsets(value.shapes, S)
                except ValueError as e:
                    made = [n for segment in phase.segments for n in segment.nodes if n.id == key[0]]
                    raise (made[0].error(str(e)) if made else e) from e
        for at, segment in enumerate(phase.segments):
            needs |= {(at, i, "scratch"): size for i, n in enumerate(segment.nodes) if (size := work.setups[n.id].scratch)}
        capacities = phase.capacities.fit(needs)
        control = np.empty((S, 1 + B), np.int32)
        control[:, 0] = self.pool_id
        control[:, 1:] = 1 if work.present is None else work.present.reshape(S, B)
        for at, segment in enumerate(phase.segments, phase.first):
            fields: dict[Any, np.ndarray] = {("control",): control}
            buffers: dict[Any, np.ndarray] = {}
            for x in segment.operands:
                value, key = work.values[x.node.id, x.index], ("value", x.node.id, x.index)
                data = value.data
                assert data is not None
                if isinstance(data, Packed):
                    buffers[key] = self._resized(data, capacities[phase.ragged[x.node.id, x.index]])
                    fields[*key, "offsets"] = data.offsets.reshape(S, B)
                    fields[*key, "shapes"] = data.shapes.astype(np.int32).reshape(S, B, -1)
                elif data[:1].nbytes <= SMALL_ROW:
                    fields[key] = data.reshape(S, B, *data.shape[1:])
                else:
                    buffers[key] = self._aligned(data.reshape(S, B, *data.shape[1:]))
            outs: list[tuple[Any, int]] = []
            for place, node in enumerate(segment.nodes):
                if work.setups[node.id].scratch:
                    outs.append(((node.id, "scratch"), capacities[at - phase.first, place, "scratch"]))
                for i, spec in enumerate(node.specs):
                    if spec.shape is None:
                        outs.append(((node.id, i), capacities[phase.ragged[node.id, i]]))
                        fields["out", node.id, i, "offsets"] = offsets[node.id, i].reshape(S, B)
                        fields["out", node.id, i, "shapes"] = work.values[node.id, i].shapes.astype(np.int32).reshape(S, B, -1)
            for node in segment.nodes:
                for name, value in work.setups[node.id].params.items():
                    assert len(value) == S * B, (node.op.name, name, value.shape)
                    fields["param", node.id, name] = value.reshape(S, B, *value.shape[1:])
            layout, program, shards = self._program(at, segment, phase, fields, buffers, outs)
            args = self._pool.empty((S, layout.words), np.int32)
            layout.write(args, fields)
            carried = tuple(work.results[x.node.id, x.index] for x in segment.carried)
            carried = jax.device_put(carried, shards.local) if carried else ()
            operands = (args, tuple(buffers.values()), carried)
            if S > 1 and jax.process_count() > 1:  # with several processes JAX takes no NumPy array to be sharded
                operands = jax.device_put(operands, shards.local)
            with TraceAnnotation(f"jaxdali launch {' '.join(n.op.name for n in segment.nodes)}"):
                exports, codes = program.run(*operands)
            if segment.native:
                codes.copy_to_host_async()
                work.status.append((segment.native, codes))
            self._last[at] = (program, operands)
            work.results |= {(x.node.id, x.index): e for x, e in zip(segment.exports, exports, strict=True)}

    def _program(
        self,
        at: int,
        segment: Segment,
        phase: Phase,
        fields: dict[Any, np.ndarray],
        buffers: dict[Any, np.ndarray],
        outs: list[tuple[Any, int]],
    ) -> tuple[Layout, Program, Shards]:
        """The program for operands of these shapes, and where they stand in its argument buffer."""
        shapes = (
            tuple((v.dtype.num, v.shape) for v in fields.values()),
            tuple(b.shape for b in buffers.values()),
            tuple(c for _, c in outs),
        )
        found = self._programs.get((at, shapes))
        if found is None:
            layout = Layout.of(fields, buffers)
            shards = self.shards if segment.on_device else self._cpu_shards
            last = phase.last and segment is phase.segments[-1]
            # Of an output that is wanted on several shardings the program writes the first.
            wanted = {(x.node.id, x.index): s for x, s in zip(self.graph.outputs[::-1], self._shardings[::-1]) if last and self.as_arrays}
            direct = {key: s for key, s in wanted.items() if s is not None and shards.direct(s)}
            placed = tuple(
                shards.local if x.spec.shape is None else direct.get((x.node.id, x.index), shards.local) for x in segment.exports
            )
            # What a later program reads must keep its type, but after the last program there is none.
            narrowed = last and self.as_arrays and not self._x64
            program = program_for(segment, layout, tuple(outs), shards, self.B, placed, narrowed, bool(direct) and self._outputs.stacked)
            found = self._programs[at, shapes] = layout, program, shards
        return found

    def _failed(self, work: Work) -> dict[int, dict[int, int]]:
        """Waits for the programs launched so far: their samples that failed and can be repaired, per native node, with their codes.

        Raises:
          SampleError: one can't.
        """
        bad: dict[int, dict[int, int]] = {}
        for native, codes in work.status:
            with TraceAnnotation(f"jaxdali check {' '.join(n.op.name for n in native)}"):
                codes = np.asarray(codes)
            if not codes.any():
                continue
            for column, node in enumerate(native):
                failed = {i: int(codes[i, column]) for i in np.flatnonzero(codes[:, column]).tolist()}
                assert isinstance(node.op, NativeOperator)
                for i, code in failed.items():
                    if not node.op.repairs(code):
                        raise self._sample_error(node, work, i, code, "")
                if failed:
                    bad[node.id] = failed
        return bad

    def check(self, work: Work) -> Batch:
        """Waits for a batch, repairs or raises where samples failed, and gives its outputs their final form."""
        if bad := self._failed(work):
            return self.check(self.launch(self._again(work, bad)))
        assert work.ids is not None
        if self.as_arrays:
            arrays = tuple(self._outputs.array(x, s, work) for x, s in zip(self.graph.outputs, self._shardings))
            return Batch(self._finish(self.graph, arrays), work.after, work.ids, (), work.replaced)
        names = tuple([work.source_of(x.node, i) for i in range(self.B)] for x in self.graph.outputs)
        return Batch(tuple(self._outputs.value(x, work) for x in self.graph.outputs), work.after, work.ids, names, work.replaced)

    def _again(self, work: Work, bad: dict[int, dict[int, int]]) -> Work:
        """The same batch, with the samples that failed in it to be replaced, or done on the host; they add to those found before."""
        known = work.bad
        for node, samples in bad.items():
            if samples.keys() <= known.get(node, {}).keys():
                raise AssertionError(f"node {node}: samples {sorted(samples)} failed again")
        merged = {n: {**known.get(n, {}), **bad.get(n, {})} for n in {*known, *bad}}
        read = {(n.id, i): work.values[n.id, i] for n in self._source_nodes for i in range(n.op.num_outputs)}
        return Work(work.before, work.after, read, names=work.names, ids=work.ids, bad=merged)

    # --- help -------------------------------------------------------------------------------------------------

    def _resized(self, packed: Packed, capacity: int) -> np.ndarray:
        data = packed.data
        if data.shape[1] == capacity:
            return data
        grown = self._pool.empty((data.shape[0], capacity), data.dtype)
        used = min(packed.used, data.shape[1])
        grown[:, :used] = data[:, :used]
        return grown

    def _aligned(self, data: np.ndarray) -> np.ndarray:
        copied = self._pool.empty(data.shape, data.dtype)
        copied[...] = data
        return copied

    def _sample_error(self, node: Node, work: Work, i: int, code: int, reason: str) -> SampleError:
        text = _ffi.STATUS.get(code, f"status {code}")
        reason = f"{text}: {reason}" if reason and reason != text else text
        return SampleError(node.op.name, node.where, work.source_of(node, i) or f"sample {i}", reason, code)

    def taken(self, batch: Batch):
        """Counts what was replaced in a batch: when the user takes it, not when it is made ahead."""
        for report in batch.replaced:
            self._bad[report] = self._bad.get(report, 0) + 1

    def bad_samples(self) -> list[BadSample]:
        """What was replaced in the batches taken so far."""
        return [BadSample(file, reason, count) for (file, reason), count in self._bad.items()]

    def lower(self, segment: int = 0) -> jax.stages.Lowered:
        """JAX's own `Lowered` of the program that ran last."""
        if not self._last:
            raise RuntimeError("no program has run yet: take a batch first (and a pipeline without lowered operators has none)")
        if segment not in self._last:
            raise ValueError(f"segment={segment}: this pipeline has {len(self._last)} program(s), numbered from 0")
        program, operands = self._last[segment]
        with self.contexts():
            return program.run.lower(*operands)

    def close(self):
        """Lets go of sources and threads."""
        for source in self.sources.values():
            source.close()
        if os.getpid() == self._process:  # in a fork the threads of the pool, which this waits for, don't exist
            _cpu.pool_destroy(self.pool_id)


def _check_same_structure(graphs: Sequence[Graph]):
    for shard, g in enumerate(graphs[1:], 1):
        if g.key == graphs[0].key:
            continue
        for a, b in zip(graphs[0].nodes, g.nodes, strict=False):
            if (a.op.name, a.stage, len(a.inputs)) != (b.op.name, b.stage, len(b.inputs)) or (
                not isinstance(a.op, SourceOperator) and a.op.key != b.op.key
            ):
                raise b.error(
                    f"the pipeline definition gives another graph for shard {shard} than for shard 0 "
                    f"({a.op.name} created at {a.where}): {a.op} != {b.op}"
                )
        raise ValueError(
            f"the pipeline definition gives {len(g.nodes)} operators for shard {shard}, {len(graphs[0].nodes)} for shard 0, "
            "or connects them differently"
        )


def _following(state: dict) -> dict:
    """The state after a batch, as yet with the sources' cursors from before it."""
    return {**state, "iteration": state["iteration"] + 1, "sources": {k: dict(v) for k, v in state["sources"].items()}}


def _check_alike(node: Node, ids: SampleIds, others: SampleIds | None):
    """All sources give as many samples for a batch."""
    if others is None or (ids.present is None and others.present is None):
        return
    here, there = (np.ones(len(x.epoch), bool) if x.present is None else x.present for x in (ids, others))
    if (here != there).any():
        raise node.error(f"it gave {int(here.sum())} samples for a batch of which another source gave {int(there.sum())}; these must agree")


def _static_shapes(spec: Spec, N: int) -> np.ndarray:
    assert spec.shape is not None
    return _repeated(spec.shape, N)


@functools.lru_cache(maxsize=1024)
def _repeated(shape: tuple[int, ...], N: int) -> np.ndarray:
    return np.broadcast_to(np.asarray(shape, np.int64).reshape(1, -1), (N, len(shape)))
