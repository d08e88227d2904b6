"""From graph to jitted programs: segments, the layout of their operands, and the program cache."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec, Sharding

from .._core.context import LowerContext, Out
from .._core.graph import DataNode, Graph, Node
from .._core.operator import NativeOperator
from .._core.ragged import Capacities, Ragged
from .sharding import Shards

# A dense host value with rows up to this many bytes travels in the packed argument buffer; a larger one in a buffer of its own.
SMALL_ROW = 256


@dataclasses.dataclass(frozen=True)
class Field:
    """One small operand in the packed argument buffer ``i32[S, words]``."""

    dtype: np.dtype
    shape: tuple[int, ...]  # of one shard's part
    first: int  # word

    @functools.cached_property
    def size(self) -> int:
        return math.prod(self.shape)

    @functools.cached_property
    def words(self) -> int:
        return -(-self.size * self.dtype.itemsize // 4)

    def read(self, row: jax.Array) -> jax.Array:
        """The operand, from one shard's row ``i32[words]``, in a program."""
        words = row[self.first : self.first + self.words]
        dtype = np.dtype(np.uint8) if self.dtype == np.bool_ else self.dtype
        if dtype.itemsize == 8:
            flat = lax.bitcast_convert_type(words.reshape(-1, 2), dtype)
        else:
            flat = lax.bitcast_convert_type(words, dtype).reshape(-1)
        flat = flat[: self.size].reshape(self.shape)
        return flat != 0 if self.dtype == np.bool_ else flat


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the operands of a program stand: fields of the argument buffer, and the bulk buffers ``[S, ...]``."""

    fields: tuple[tuple[Any, Field], ...]
    buffers: tuple[tuple[Any, np.dtype, tuple[int, ...]], ...]  # key, dtype, shape of one shard's part
    words: int

    @staticmethod
    def of(fields: Mapping[Any, np.ndarray], buffers: Mapping[Any, np.ndarray]) -> Layout:
        placed, first = [], 0
        for key, value in fields.items():
            field = Field(value.dtype, value.shape[1:], first)
            placed.append((key, field))
            first += field.words + (field.words & 1)  # 64-bit fields start at even words
        return Layout(tuple(placed), tuple((k, b.dtype, b.shape[1:]) for k, b in buffers.items()), -(-max(first, 1) // 16) * 16)

    def write(self, args: np.ndarray, values: Mapping[Any, np.ndarray]):
        """Puts the small operands, each ``[S, *shape]``, into ``args[S, words]``."""
        raw = args.view(np.uint8)
        for key, field in self.fields:
            value, first = values[key], 4 * field.first
            raw[:, first : first + field.size * field.dtype.itemsize] = np.ascontiguousarray(value).reshape(len(args), -1).view(np.uint8)


@dataclasses.dataclass(frozen=True, eq=False)
class Segment:
    """The nodes of one program.

    Attributes:
      nodes: lowered nodes, in topological order.
      operands: host values the program reads, (node id, output index).
      carried: values of earlier programs it reads.
      exports: its results: outputs of the pipeline and values that later programs read.
      native: the nodes with a column in the status.
      on_device: it runs on the device the pipeline is placed on; else on the CPU.
    """

    nodes: tuple[Node, ...]
    operands: tuple[DataNode, ...]
    carried: tuple[DataNode, ...]
    exports: tuple[DataNode, ...]
    on_device: bool

    @property
    def native(self) -> tuple[Node, ...]:
        return tuple(n for n in self.nodes if isinstance(n.op, NativeOperator))

    @property
    def key(self) -> tuple:
        """The computation, free of this graph's numbering, names, places, and host nodes."""
        number: dict[tuple[int, int], tuple] = {}
        for kind, values in (("operand", self.operands), ("carried", self.carried)):
            for i, x in enumerate(values):
                number[x.node.id, x.index] = (kind, i, x.spec)
        for i, n in enumerate(self.nodes):
            for k in range(len(n.specs)):
                number[n.id, k] = (i, k)
        nodes = tuple(
            (
                n.op.name,
                n.op.key,
                n.specs,
                tuple(None if n.reads_on_host(i) else number[x.node.id, x.index] for i, x in enumerate(n.inputs)),
            )
            for n in self.nodes
        )
        return nodes, tuple(number[x.node.id, x.index] for x in self.exports)


def segments(graph: Graph, phase: int, accelerator: bool, kernels: frozenset[str], host_outputs: bool) -> tuple[Segment, ...]:
    """Splits the lowered nodes of a phase into programs, each on one backend.

    Args:
      accelerator: the pipeline is placed on another backend than the CPU: "cpu" and "device" nodes need programs of their own.
      kernels: the native kernels that programs on the pipeline's devices can call.
      host_outputs: outputs made on the host ride through the last program.
    """
    level: dict[int, int] = {}
    for node in graph.nodes:
        if node.stage == "host" or node.phase != phase:
            continue
        earliest = max((level[x.node.id] for x in node.inputs if x.node.id in level), default=0)
        # Even levels run on the CPU, odd ones on the accelerator. A native operator whose kernel is missing there runs on the
        # CPU, and its results are transferred.
        on_device = node.stage == "device" and (not isinstance(node.op, NativeOperator) or node.op.kernel in kernels)
        level[node.id] = earliest if not accelerator else earliest + (earliest % 2 != on_device)
    levels = sorted(set(level.values()))
    result = []
    for at in levels:
        nodes = tuple(n for n in graph.nodes if level.get(n.id) == at)
        operands: dict[tuple[int, int], DataNode] = {}
        carried: dict[tuple[int, int], DataNode] = {}
        for x in (x for n in nodes for i, x in enumerate(n.inputs) if not n.reads_on_host(i)):
            if x.node.stage == "host":
                operands.setdefault((x.node.id, x.index), x)
            elif level.get(x.node.id, -1) < at:
                carried.setdefault((x.node.id, x.index), x)
        exports: dict[tuple[int, int], DataNode] = {}
        others = [n for n in graph.nodes if level.get(n.id) != at]
        later = [x for n in others for i, x in enumerate(n.inputs) if not n.reads_on_host(i)]
        for x in (*graph.outputs, *later):
            if level.get(x.node.id) == at:
                exports.setdefault((x.node.id, x.index), x)
            elif host_outputs and at == levels[-1] and x.node.stage == "host" and x.spec.shape is not None:
                operands.setdefault((x.node.id, x.index), x)
                exports.setdefault((x.node.id, x.index), x)
        result.append(
            Segment(nodes, tuple(operands.values()), tuple(carried.values()), tuple(exports.values()), accelerator and at % 2 == 1)
        )
    return tuple(result)


def narrow(dtype: np.dtype) -> np.dtype:
    """The 32-bit type of a 64-bit one, as JAX has it with x64 off; other types as they are."""
    return {"int64": np.dtype(np.int32), "uint64": np.dtype(np.uint32), "float64": np.dtype(np.float32)}.get(dtype.name, dtype)


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled program: ``run(args, buffers, carried) -> (exports, status i32[S*B, native nodes])``."""

    run: Callable[..., Any]


_programs: collections.OrderedDict[Any, Program] = collections.OrderedDict()
_programs_lock = threading.Lock()
_capacities: dict[Any, Capacities] = {}
MAX_PROGRAMS = 256  # least recently used ones are dropped beyond this


def capacities_for(key: Any, samples: int) -> Capacities:
    """The capacities of all iterators with the same programs: a second one starts where the first one is and compiles nothing.

    Args:
      samples: in a batch of one shard.
    """
    with _programs_lock:
        return _capacities.setdefault((key, samples), Capacities(samples))


def program_for(
    segment: Segment,
    layout: Layout,
    outs: tuple[tuple[Any, int], ...],
    shards: Shards,
    B: int,
    out_shardings: tuple[Sharding, ...],
    narrowed: bool,
    stacked: bool,
) -> Program:
    """The program of a segment, from the cache or made new.

    Args:
      layout: of the operands; ragged operands' capacities are part of it.
      outs: capacity of each ragged value made in the program, and of the native calls' working memory.
      out_shardings: of each export (a ragged one: of its three parts).
      narrowed: exports are narrowed to 32 bits.
      stacked: dense exports get a leading axis of the shards.
    """
    number = {n.id: i for i, n in enumerate(segment.nodes)}

    def renumber(key):
        return tuple(number.get(k, k) if i == 1 else k for i, k in enumerate(key)) if key[0] in ("out", "param") else key

    # Operand keys hold node ids of this graph: replaced by places, so that equal computations share programs.
    places = {("value", x.node.id, x.index): ("operand", i) for i, x in enumerate(segment.operands)}
    fields = tuple((places.get(k[:3], k[:3]) + k[3:] if k[0] == "value" else renumber(k), f) for k, f in layout.fields)
    buffers = tuple((places[k[:3]], d, s) for k, d, s in layout.buffers)
    key = (
        segment.key,
        fields,
        buffers,
        layout.words,
        tuple((renumber(("out", *k)), c) for k, c in outs),
        shards.devices,
        B,
        out_shardings,
        narrowed,
        stacked,
    )
    with _programs_lock:
        program = _programs.get(key)
        if program is None:
            program = _programs[key] = Program(_jit(segment, layout, dict(outs), shards, B, out_shardings, narrowed, stacked))
            while len(_programs) > MAX_PROGRAMS:
                _programs.popitem(last=False)
        _programs.move_to_end(key)
        return program


def _jit(segment, layout, outs, shards, B, out_shardings, narrowed, stacked):
    fields = dict(layout.fields)
    buffer_at = {key: i for i, (key, _, _) in enumerate(layout.buffers)}

    def operand(x: DataNode, row, buffers):
        key = ("value", x.node.id, x.index)
        if key in fields:
            return fields[key].read(row)
        data = buffers[buffer_at[key]][0]
        if x.spec.shape is not None:
            return data
        return Ragged(data, fields[*key, "offsets"].read(row), fields[*key, "shapes"].read(row))

    def jaxdali_pipeline(args, buffers, carried):
        """One shard."""
        row = args[0]
        values: dict[tuple[int, int], Any] = {(x.node.id, x.index): operand(x, row, buffers) for x in segment.operands}
        values |= {(x.node.id, x.index): c for x, c in zip(segment.carried, carried, strict=True)}
        control = fields["control",].read(row)
        columns = []
        for node in segment.nodes:
            out = tuple(
                None
                if spec.shape is not None
                else Out(outs[node.id, i], fields["out", node.id, i, "offsets"].read(row), fields["out", node.id, i, "shapes"].read(row))
                for i, spec in enumerate(node.specs)
            )
            params = {k[2]: f.read(row) for k, f in layout.fields if k[0] == "param" and k[1] == node.id}
            inputs = tuple(x.spec for x in node.inputs)
            ctx = LowerContext(B, inputs, node.specs, control, out, params, outs.get((node.id, "scratch"), 0))
            with jax.named_scope(node.op.name):
                results = node.op.lower(
                    ctx, *(None if node.reads_on_host(i) else values[x.node.id, x.index] for i, x in enumerate(node.inputs))
                )
            if isinstance(node.op, NativeOperator):
                results, status = results
                columns.append(status)
            _check_results(node, results, B)
            values |= {(node.id, i): r for i, r in enumerate(results)}
        exports = tuple(values[x.node.id, x.index] for x in segment.exports)
        if narrowed:
            exports = tuple(jax.tree.map(lambda a: a.astype(narrow(a.dtype)), exports))
        if stacked:
            exports = tuple(e if isinstance(e, Ragged) else e[None] for e in exports)
        status = jnp.stack(columns, axis=1) if columns else jnp.zeros((B, 0), jnp.int32)
        return exports, status

    outputs = tuple(Ragged(s, s, s) if x.spec.shape is None else s for x, s in zip(segment.exports, out_shardings, strict=True))
    if len(shards.devices) == 1:
        return jax.jit(jaxdali_pipeline, in_shardings=shards.local, out_shardings=(outputs, shards.local))
    if len(set(shards.primaries)) == 1:  # the CPU beside several accelerators: the shards one after the other

        def in_turn(*operands):
            S = len(shards.devices)
            results = [
                jaxdali_pipeline(*jax.tree.map(lambda a, s=s: a[s * (len(a) // S) : (s + 1) * (len(a) // S)], operands)) for s in range(S)
            ]
            return jax.tree.map(lambda *parts: jnp.concatenate(parts), *results)

        return jax.jit(in_turn, in_shardings=shards.local, out_shardings=(outputs, shards.local))
    spec = PartitionSpec("shard")
    mapped = jax.shard_map(jaxdali_pipeline, mesh=shards.mesh, in_specs=spec, out_specs=spec, check_vma=False)
    return jax.jit(mapped, in_shardings=shards.local, out_shardings=(outputs, shards.local))


def _check_results(node: Node, results: Sequence[Any], B: int):
    """Our own invariant: an operator gives what its infer said."""
    assert len(results) == len(node.specs), node.op.name
    for r, spec in zip(results, node.specs, strict=True):
        assert isinstance(r, Ragged) == (spec.shape is None), (node.op.name, spec)
        assert r.dtype == spec.dtype, (node.op.name, r.dtype, spec)
        assert isinstance(r, Ragged) or r.shape == (B, *(spec.shape or ())), (node.op.name, r.shape, spec)
