"""Runs a graph batch by batch: host pass, launch, check."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

from . import _cpu, _ffi
from .errors import OperatorError, SampleError
from .graph import DataNode, Graph, Node, Spec, Value
from .lowering import SMALL_ROW, Layout, Program, Segment, capacities_for, narrow, program_for, segments
from .ragged import BufferPool, Packed, Ragged, pack, plan_offsets
from .sharding import Shards, assemble
from .source import SampleIds, Source

STATE_VERSION = 1


@dataclasses.dataclass(frozen=True)
class BadSample:
    """A sample that was replaced because it could not be decoded (``on_error="replace"``).

    Attributes:
      file: where it came from; reason: why it was replaced; count: how often that happened so far.
    """

    file: str
    reason: str
    count: int


class HostContext:
    """What operators get in the host pass. N = S*B samples of all local shards, shard by shard.

    Attributes:
      S: local shards; B: samples per shard; N: S*B.
      node: the node that runs; seed: of the pipeline; num_threads: of the pipeline; pool: id of its native thread pool.
      shard_ids: place of each local shard among `num_shards`.
      epoch, position: ``i64[N]``, what random numbers are keyed by; present: ``bool[N]``, False for samples a short batch lacks.
      bad: samples that failed in an earlier launch of this batch and are to be replaced, with their status codes.
    """

    def __init__(self, executor: Executor, node: Node, batch: HostBatch, bad: Mapping[int, int]):
        self._executor = executor
        self._batch = batch
        self.node = node
        self.S = len(executor.shards.devices)
        self.B = executor.B
        self.N = self.S * self.B
        self.shard_ids = executor.shards.ids
        self.num_shards = executor.shards.num
        self.seed = executor.seed
        self.num_threads = executor.num_threads
        self.pool = executor.pool_id
        self.bad = bad
        ids = batch.ids
        self.epoch = ids.epoch if ids is not None else np.zeros(self.N, np.int64)
        self.position = ids.position if ids is not None else np.zeros(self.N, np.int64)
        self.present = ids.present if ids is not None and ids.present is not None else np.ones(self.N, bool)

    def param(self, name: str, value: np.ndarray):
        """Hands ``value[N, ...]`` to `lower` as ``ctx.params[name]``."""
        assert len(value) == self.N, (self.node.op.name, name, value.shape)
        self._batch.params[self.node.id, name] = value

    def fail(self, i: int, code: int, reason: str = ""):
        """Marks sample `i` as failed; the batch is not launched."""
        self._batch.failures.append((self.node, i, code, reason))

    def report_bad(self, i: int, code: int, reason: str = ""):
        """Reports that sample `i` was replaced."""
        if i in self.bad:
            code, reason = self.bad[i], ""
        self._batch.replaced.append((self._batch.source_of(self.node, i), reason or _ffi.STATUS.get(code, str(code))))

    def empty(self, elements: int, dtype, index: int = 0) -> np.ndarray:
        """A pooled buffer ``[S, capacity]``, capacity at least `elements`, for the ragged output `index`."""
        return self._executor.buffer((self.node.id, index), elements, dtype)

    def source_name(self, i: int) -> str:
        """Where sample `i` of this node's inputs came from."""
        return self._batch.source_of(self.node, i)


@dataclasses.dataclass
class HostBatch:
    """The result of the host pass for one batch."""

    before: dict  # state the batch was made from
    after: dict  # state after it
    values: dict[tuple[int, int], Value]
    params: dict[tuple[int, str], np.ndarray]
    names: dict[int, Sequence[str]]  # per source node, where each sample came from
    ids: SampleIds | None = None
    failures: list[tuple[Node, int, int, str]] = dataclasses.field(default_factory=list)
    replaced: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    bad: Mapping[int, Mapping[int, int]] = dataclasses.field(
        default_factory=dict
    )  # after a launch, per native node: samples to replace, and their codes

    def source_of(self, node: Node, i: int) -> str:
        """Where sample `i` of a node came from: the name given by the first source upstream of it."""
        todo = [node]
        for n in todo:
            if n.id in self.names:
                names = self.names[n.id]
                return names[i] if i < len(names) else ""
            todo += [x.node for x in n.inputs]
        return ""


class SourceError(Exception):
    """A source failed (the cause says how); `after` is the state to go on from."""

    def __init__(self, after: dict):
        super().__init__()
        self.after = after


@dataclasses.dataclass
class Launched:
    """A batch whose programs were dispatched."""

    host: HostBatch
    results: dict[tuple[int, int], Any]  # arrays and Ragged, by (node id, output index)
    status: list[tuple[Segment, Any]]


@dataclasses.dataclass
class Batch:
    """A finished batch.

    Attributes:
      outputs: one per pipeline output: a global `jax.Array` (`as_arrays`) or a `Value` (otherwise).
      state: after this batch.
      present: how many samples there really are.
      names: where the samples of each output came from.
    """

    outputs: tuple[Any, ...]
    state: dict
    ids: SampleIds
    names: tuple[Sequence[str], ...]


class Executor:
    """Runs the graphs of all local shards of one iterator, or of one stand-alone pipeline.

    Args:
      graphs: the traced definition, once per local shard; they must have one structure.
      shards: the local shards.
      batch_size: samples per shard.
      num_threads: threads of the native operators, for all shards together.
      seed: of the pipeline.
      as_arrays: outputs are global jax.Arrays (an iterator), else values as they are, of the one shard (Pipeline.run).
      sharding: of the outputs, None: the one device.
      stacked: outputs get a leading axis of the shards, ``(shards, B, ...)``, which `sharding` shards.
      reader: name of the source that says which epoch and position a sample has; None: the first.
    """

    def __init__(
        self,
        graphs: Sequence[Graph],
        *,
        shards: Shards,
        batch_size: int,
        num_threads: int,
        seed: int,
        as_arrays: bool,
        sharding: Sharding | None = None,
        stacked: bool = False,
        reader: str | None = None,
    ):
        assert as_arrays or len(graphs) == 1
        _check_same_structure(graphs)
        self.graph = graphs[0]
        self.shards = shards
        self.B = batch_size
        self.num_threads = num_threads
        self.seed = seed
        self.as_arrays = as_arrays
        self.sharding = sharding
        self.stacked = stacked
        self.user_x64 = bool(jax.config.jax_enable_x64)
        self.pool_id = _cpu.pool_create(num_threads)
        self._pool = BufferPool()
        self._bad: dict[tuple[str, str], int] = {}
        self._last: dict[int, tuple[Program, Any]] = {}
        self._programs: dict[Any, tuple[Layout, Program, Shards]] = {}
        self.sources: dict[int, Source] = {}
        for i, node in enumerate(self.graph.nodes):
            if node.op.source:
                try:
                    self.sources[node.id] = node.op.make_source([g.nodes[i].op for g in graphs], seed)
                except (ValueError, RuntimeError, OSError) as e:
                    raise e if isinstance(e, OperatorError) else node.error(str(e)) from e
        self._source_nodes = [n for n in self.graph.nodes if n.op.source]
        named = [n for n in self._source_nodes if n.name == reader]
        self.primary = (named or self._source_nodes or [None])[0]
        self._segments: tuple[Segment, ...] | None = None

    # --- build ------------------------------------------------------------------------------------------------

    def build(self):
        """Infers all specs; needs the sources' first batches where only these tell the types."""
        if self._segments is not None:
            return
        self.graph.infer(self.sources)
        accelerator = self.shards.primaries[0].platform != "cpu"
        ride = self.as_arrays and (self.sharding is not None or not accelerator)
        self._segments = segments(self.graph, accelerator, ride)
        self._cpu_shards = (
            Shards(self.shards.num, self.shards.ids, tuple((_cpu_device(),) for _ in self.shards.ids)) if accelerator else self.shards
        )
        key = tuple(s.key for s in self._segments), self.shards.devices, self.B
        self._capacities = capacities_for(key)
        self._capacity_keys: dict[tuple[int, int], Any] = {}
        for at, segment in enumerate(self._segments):
            for i, x in enumerate(segment.operands):
                if x.spec.shape is None:
                    self._capacity_keys.setdefault((x.node.id, x.index), (at, "operand", i))
            for i, n in enumerate(segment.nodes):
                for k, spec in enumerate(n.specs):
                    if spec.shape is None:
                        self._capacity_keys[n.id, k] = (at, i, k)

    @property
    def initial_state(self) -> dict:
        """The state before the first batch (JSON)."""
        return {
            "version": STATE_VERSION,
            "seed": self.seed,
            "epoch": 0,
            "iteration": 0,
            "sources": {
                n.name: {"fingerprint": self.sources[n.id].fingerprint(), "cursors": self.sources[n.id].initial()}
                for n in self._source_nodes
            },
        }

    def after_end(self, state: dict) -> dict:
        """The state of the next epoch, when a source has ended this one."""
        state = copy.deepcopy(state)
        state["epoch"] += 1
        state["iteration"] = 0
        for n in self._source_nodes:
            entry = state["sources"][n.name]
            entry["cursors"] = self.sources[n.id].after_end(entry["cursors"])
        return state

    def buffer(self, key: tuple[int, int], elements: int, dtype) -> np.ndarray:
        capacity_key = self._capacity_keys.get(key) if self._segments is not None else None
        capacity = max(elements, self._capacities.get(capacity_key) if capacity_key is not None else 0, 1)
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

    def read(self, state: dict) -> HostBatch:
        """Reads the sources: the batch as yet without anything else. Its `after` is the state to go on from, whatever becomes of it.

        Raises:
          StopIteration: a source has no more data.
          SourceError: a source failed otherwise; carries the state to go on from.
        """
        batch = HostBatch(state, state, {}, {}, {})
        after = {**state, "iteration": state["iteration"] + 1, "sources": {k: dict(v) for k, v in state["sources"].items()}}
        for node in self._source_nodes:
            entry = after["sources"][node.name]
            source = self.sources[node.id]
            try:
                outputs, entry["cursors"], ids = source.read(HostContext(self, node, batch, {}), entry["cursors"])
            except StopIteration:
                raise
            except Exception as e:
                entry["cursors"] = source.after_error(entry["cursors"])
                if not isinstance(e, OperatorError):
                    e.add_note(f"in {node.op.name} (created at {node.where})")
                raise SourceError(after) from e
            batch.names[node.id] = ids.names
            if node is self.primary or batch.ids is None:
                batch.ids = ids
            self._store(node, batch, outputs)
        batch.after = after
        if batch.ids is None:
            N = len(self.shards.devices) * self.B
            place = np.arange(self.B)[None] + self.B * np.asarray(self.shards.ids)[:, None]
            position = (place + state["iteration"] * self.B * self.shards.num).reshape(-1)
            batch.ids = SampleIds(epoch=np.full(N, state["epoch"]), position=position, names=[""] * N)
        return batch

    def run_host(self, batch: HostBatch):
        """The host pass over a batch that was read: host operators, and the shapes of everything.

        Raises:
          SampleError: a sample failed.
          OperatorError: an operator did.
        """
        failed: dict[int, dict[int, int]] = {}
        for node in self.graph.nodes:
            for x in node.inputs if node.id in batch.bad else ():
                failed[x.node.id] = {**failed.get(x.node.id, {}), **batch.bad[node.id]}
        for node in self.graph.nodes:
            if not node.op.source:
                self._run_node(node, batch, failed.get(node.id, {}))
            if batch.failures:
                # A sample fails where it was read or looked at first, so the first failing node is the one to name.
                failing, i, code, reason = batch.failures[0]
                raise self._sample_error(failing, batch, i, code, reason)

    def _run_node(self, node: Node, batch: HostBatch, bad: Mapping[int, int]):
        ctx = HostContext(self, node, batch, bad)
        values = [batch.values[x.node.id, x.index] for x in node.inputs]
        try:
            if node.stage == "host":
                self._store(node, batch, node.op.run(ctx, *values))
                return
            shapes: Sequence[np.ndarray | None] = (None,) * len(node.specs)
            if node.native or any(s.shape is None for s in node.specs):
                shapes = node.op.setup(ctx, *values)
        except OperatorError:
            raise
        except (ValueError, TypeError, IndexError, KeyError, ArithmeticError, OSError) as e:
            raise node.error(f"{type(e).__name__}: {e}") from e
        for i, (spec, shape) in enumerate(zip(node.specs, shapes, strict=True)):
            batch.values[node.id, i] = Value(spec, _static_shapes(spec, ctx.N) if spec.shape is not None else np.asarray(shape, np.int64))

    def _store(self, node: Node, batch: HostBatch, outputs: Sequence[Any]):
        N = len(self.shards.devices) * self.B
        for i, (spec, data) in enumerate(zip(node.specs, outputs, strict=True)):
            if spec.shape is not None:
                assert data.shape == (N, *spec.shape) and data.dtype == spec.dtype, (node.op.name, data.shape, data.dtype, spec)
                batch.values[node.id, i] = Value(spec, _static_shapes(spec, N), data)
                continue
            if isinstance(data, list):
                data = pack(data, len(self.shards.devices), lambda n, dtype, i=i: self.buffer((node.id, i), n, dtype))
            assert data.data.dtype == spec.dtype and data.shapes.shape == (N, spec.ndim), (
                node.op.name,
                data.data.dtype,
                data.shapes.shape,
                spec,
            )
            batch.values[node.id, i] = Value(spec, data.shapes, data)

    def launch(self, host: HostBatch) -> Launched:
        """Dispatches the programs of a batch; does not wait for them."""
        assert self._segments is not None
        S, B = len(self.shards.devices), self.B
        offsets: dict[tuple[int, int], np.ndarray] = {}
        needs: dict[Any, int] = {}
        for key, capacity_key in self._capacity_keys.items():
            value = host.values[key]
            if isinstance(value.data, Packed):
                offsets[key] = value.data.offsets
                needs[capacity_key] = max(needs.get(capacity_key, 0), _used(value.data, S))
            else:
                offsets[key], need = plan_offsets(value.shapes, S)
                needs[capacity_key] = need
        capacities = self._capacities.fit(needs)
        results: dict[tuple[int, int], Any] = {}
        status = []
        for at, segment in enumerate(self._segments):
            fields: dict[Any, np.ndarray] = {}
            buffers: dict[Any, np.ndarray] = {}
            assert host.ids is not None
            control = np.empty((S, 1 + B), np.int32)
            control[:, 0] = self.pool_id
            control[:, 1:] = 1 if host.ids.present is None else host.ids.present.reshape(S, B)
            fields["control",] = control
            for x in segment.operands:
                value, key = host.values[x.node.id, x.index], ("value", x.node.id, x.index)
                data = value.data
                assert data is not None
                if isinstance(data, Packed):
                    buffers[key] = self._resized(data, capacities[self._capacity_keys[x.node.id, x.index]])
                    fields[*key, "offsets"] = data.offsets.reshape(S, B)
                    fields[*key, "shapes"] = data.shapes.astype(np.int32).reshape(S, B, -1)
                elif data[:1].nbytes <= SMALL_ROW:
                    fields[key] = data.reshape(S, B, *data.shape[1:])
                else:
                    buffers[key] = self._aligned(data.reshape(S, B, *data.shape[1:]))
            outs = []
            for node in segment.nodes:
                for i, spec in enumerate(node.specs):
                    if spec.shape is None:
                        outs.append(((node.id, i), capacities[self._capacity_keys[node.id, i]]))
                        fields["out", node.id, i, "offsets"] = offsets[node.id, i].reshape(S, B)
                        fields["out", node.id, i, "shapes"] = host.values[node.id, i].shapes.astype(np.int32).reshape(S, B, -1)
            numbers = {n.id for n in segment.nodes}
            for (node_id, name), value in host.params.items():
                if node_id in numbers:
                    fields["param", node_id, name] = value.reshape(S, B, *value.shape[1:])
            layout, program, shards = self._program(at, segment, fields, buffers, outs)
            args = self._pool.empty((S, layout.words), np.int32)
            layout.write(args, fields)
            carried = tuple(self._moved(results[x.node.id, x.index], shards) for x in segment.carried)
            operands = (args, tuple(buffers.values()), carried)
            exports, codes = program.run(*operands)
            if segment.native:
                codes.copy_to_host_async()
            self._last[at] = (program, operands)
            results |= {(x.node.id, x.index): e for x, e in zip(segment.exports, exports, strict=True)}
            status.append((segment, codes))
        return Launched(host, results, status)

    def _program(
        self, at: int, segment: Segment, fields: dict[Any, np.ndarray], buffers: dict[Any, np.ndarray], outs: list[tuple[Any, int]]
    ) -> tuple[Layout, Program, Shards]:
        """The program for operands of these shapes, and where they stand in its argument buffer."""
        shapes = tuple((v.dtype.num, v.shape) for v in fields.values()), tuple(b.shape for b in buffers.values()), tuple(c for _, c in outs)
        found = self._programs.get((at, shapes))
        if found is None:
            assert self._segments is not None
            layout = Layout.of(fields, buffers)
            shards = self.shards if segment.on_device or self._cpu_shards is self.shards else self._cpu_shards
            last = at == len(self._segments) - 1
            direct = last and self.as_arrays and self.sharding is not None and shards.direct(self.sharding)
            placed = tuple(self.sharding if direct and x.spec.shape is not None else shards.local for x in segment.exports)
            # What a later program reads must keep its type, but after the last program there is none.
            narrowed = last and self.as_arrays and not self.user_x64
            program = program_for(segment, layout, tuple(outs), shards, self.B, placed, narrowed, self.stacked and last)
            found = self._programs[at, shapes] = layout, program, shards
        return found

    def check(self, launched: Launched) -> Batch:
        """Waits for a batch, repairs or raises where samples failed, and gives its outputs their final form."""
        bad: dict[int, dict[int, int]] = {}
        for segment, codes in launched.status:
            if not segment.native:
                continue
            codes = np.asarray(codes)
            if not codes.any():
                continue
            for column, node in enumerate(segment.native):
                failed = np.flatnonzero(codes[:, column])
                if not failed.size:
                    continue
                if getattr(node.op, "on_error", "raise") != "replace":
                    raise self._sample_error(node, launched.host, int(failed[0]), int(codes[failed[0], column]), "")
                bad[node.id] = {i: int(codes[i, column]) for i in failed.tolist()}
        if bad:
            return self._repair(launched, bad)
        for report in launched.host.replaced:
            self._bad[report] = self._bad.get(report, 0) + 1
        assert launched.host.ids is not None
        outputs = tuple(self._finish(x, launched) for x in self.graph.outputs)
        names = tuple(
            [launched.host.source_of(x.node, i) for i in range(len(self.shards.devices) * self.B)] if not self.as_arrays else ()
            for x in self.graph.outputs
        )
        return Batch(outputs, launched.host.after, launched.host.ids, names)

    def _repair(self, launched: Launched, bad: dict[int, dict[int, int]]) -> Batch:
        """Runs a batch again with the samples replaced that failed in it; they add to those replaced before."""
        known = launched.host.bad
        for node, samples in bad.items():
            if samples.keys() <= known.get(node, {}).keys():
                raise AssertionError(f"node {node}: replaced samples {sorted(samples)} failed again")
        merged = {n: {**known.get(n, {}), **bad.get(n, {})} for n in {*known, *bad}}
        old = launched.host
        kept = {(n.id, i): old.values[n.id, i] for n in self._source_nodes for i in range(n.op.num_outputs)}
        host = HostBatch(old.before, old.after, kept, {}, old.names, old.ids, bad=merged)
        self.run_host(host)
        return self.check(self.launch(host))

    # --- outputs ----------------------------------------------------------------------------------------------

    def _finish(self, x: DataNode, launched: Launched) -> Any:
        key = (x.node.id, x.index)
        result = launched.results.get(key)
        value = launched.host.values[key]
        if not self.as_arrays:
            if result is None:
                return value
            if isinstance(result, Ragged):
                offsets, _ = plan_offsets(value.shapes, 1)
                return Value(value.spec, value.shapes, Packed(np.asarray(result.data)[None], offsets, value.shapes))
            return Value(value.spec, value.shapes, result)
        if result is not None and not isinstance(result, Ragged):
            if self.sharding is None or result.sharding == self.sharding:
                return result
            return assemble(_by_shard(result, self.shards), self.shards, self.sharding)
        return self._dense_on_devices(x, value, result)

    def _dense_on_devices(self, x: DataNode, value: Value, result: Ragged | None) -> jax.Array:
        """A ragged output whose samples happen to have one shape, or a host output, as an array on the user's devices. Compiles nothing."""
        if (value.shapes != value.shapes[:1]).any():
            raise x.node.error(
                f"the samples of this output differ in shape ({_describe(value.shapes)}), so they can't become one jax.Array; "
                "make them uniform, e.g. with fn.resize(..., size=...)"
            )
        S, B = len(self.shards.devices), self.B
        shape = tuple(value.shapes[0].tolist())
        size = int(np.prod(shape, dtype=np.int64))
        if result is not None:
            rows = [np.asarray(p) for p in _by_shard(result.data, self.shards)]
            offsets, _ = plan_offsets(value.shapes, S)
            source: Any = [Packed(r[None], offsets[s * B : (s + 1) * B], value.shapes[s * B : (s + 1) * B]) for s, r in enumerate(rows)]
        elif isinstance(value.data, Packed):
            data = value.data
            source = [Packed(data.data[s : s + 1], data.offsets[s * B : (s + 1) * B], data.shapes[s * B : (s + 1) * B]) for s in range(S)]
        else:
            assert value.data is not None
            source = value.data.reshape(S, B, *shape)
        dtype = value.spec.dtype if self.user_x64 else narrow(value.spec.dtype)
        parts = []
        for part in source:
            dense = self._pool.empty((B, *shape), dtype)
            if isinstance(part, Packed) and (size % 64 or dtype != value.spec.dtype):
                for i in range(B):
                    dense[i] = part[i]
            elif isinstance(part, Packed):  # samples stand one behind the other
                dense[...] = part.data[0, : B * size].reshape(dense.shape)
            else:
                dense[...] = part
            parts.append(dense[None] if self.stacked else dense)
        if self.sharding is not None:
            return assemble(parts, self.shards, self.sharding)
        on_host = x.node.stage == "host"
        return jax.device_put(
            parts[0], _cpu_device() if on_host and self.shards.primaries[0].platform != "cpu" else self.shards.primaries[0]
        )

    # --- help -------------------------------------------------------------------------------------------------

    def _resized(self, packed: Packed, capacity: int) -> np.ndarray:
        data = packed.data
        if data.shape[1] == capacity:
            return data
        grown = self._pool.empty((data.shape[0], capacity), data.dtype)
        used = min(_used(packed, data.shape[0]), data.shape[1])
        grown[:, :used] = data[:, :used]
        return grown

    def _aligned(self, data: np.ndarray) -> np.ndarray:
        copied = self._pool.empty(data.shape, data.dtype)
        copied[...] = data
        return copied

    def _moved(self, value: Any, shards: Shards) -> Any:
        return jax.tree.map(lambda a: jax.device_put(a, shards.local), value)

    def _sample_error(self, node: Node, batch: HostBatch, i: int, code: int, reason: str) -> SampleError:
        text = _ffi.STATUS.get(code, f"status {code}")
        reason = f"{text}: {reason}" if reason and reason != text else text
        return SampleError(node.op.name, node.where, batch.source_of(node, i) or f"sample {i}", reason, code)

    def bad_samples(self) -> list[BadSample]:
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
        for source in self.sources.values():
            source.close()
        _cpu.pool_destroy(self.pool_id)


def _check_same_structure(graphs: Sequence[Graph]):
    for shard, g in enumerate(graphs[1:], 1):
        if g.key == graphs[0].key:
            continue
        for a, b in zip(graphs[0].nodes, g.nodes, strict=False):
            if (a.op.name, a.stage, len(a.inputs)) != (b.op.name, b.stage, len(b.inputs)) or (not a.op.source and a.op.key != b.op.key):
                raise b.error(
                    f"the pipeline definition gives another graph for shard {shard} than for shard 0 ({a.op.name} created at {a.where}): {a.op} != {b.op}"
                )
        raise ValueError(f"the pipeline definition gives {len(g.nodes)} operators for shard {shard}, {len(graphs[0].nodes)} for shard 0")


def _static_shapes(spec: Spec, N: int) -> np.ndarray:
    return np.broadcast_to(np.asarray(spec.shape, np.int64).reshape(1, -1), (N, spec.ndim))


def _used(packed: Packed, S: int) -> int:
    """Elements that the fullest row of a packed batch uses."""
    sizes = packed.shapes.prod(axis=1)
    return int((packed.offsets.astype(np.int64) * 64 + sizes).max(initial=0))


def _describe(shapes: np.ndarray) -> str:
    distinct = sorted(set(map(tuple, shapes.tolist())))
    return ", ".join(map(str, distinct[:4])) + (f" and {len(distinct) - 4} more" if len(distinct) > 4 else "")


def _by_shard(x: jax.Array, shards: Shards) -> list[jax.Array]:
    """The parts of a program's result, one per local shard."""
    at = {s.device: s.data for s in x.addressable_shards}
    return [at[d] for d in shards.primaries]


def _cpu_device() -> jax.Device:
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError as e:
        raise RuntimeError("jaxdali needs JAX's CPU backend beside the accelerator's: set JAX_PLATFORMS=cuda,cpu") from e
