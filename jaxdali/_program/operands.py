"""The layout of a program's operands. No other file knows it.

Small operands share the argument buffer ``i32[S, words]``; ragged and large ones have their own buffers ``[S, ...]``.
`Operands` collects them on the host for all local shards, in the order of the segment. `Layout` has the place of each
one, and `Layout.read` extracts those of one shard inside the program.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .. import _cpu
from .._core.context import Out
from .._core.ragged import BufferPool, Packed, Ragged, is_lent
from .._core.values import Value

# A dense host value with rows up to this size goes into the argument buffer.
SMALL_ROW = 256  # bytes


@dataclasses.dataclass(frozen=True)
class OperandField:
    """The place of an operand in the argument buffer."""

    dtype: np.dtype
    shape: tuple[int, ...]  # of one shard's part
    first: int  # the word of a row at which it begins

    @functools.cached_property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def words(self) -> int:
        """The number of 32-bit words that it takes, rounded up."""
        return -(-self.size * self.dtype.itemsize // 4)

    def read(self, row: jax.Array) -> jax.Array:
        """Reads the operand from one shard's row ``i32[words]``, in a program."""
        words = row[self.first : self.first + self.words]
        dtype = np.dtype(np.uint8) if self.dtype == np.bool_ else self.dtype
        if dtype.itemsize == 8:  # two words make one element; otherwise a word makes one element or several
            flat = lax.bitcast_convert_type(words.reshape(-1, 2), dtype)
        else:
            flat = lax.bitcast_convert_type(words, dtype).reshape(-1)
        flat = flat[: self.size].reshape(self.shape)
        return flat != 0 if self.dtype == np.bool_ else flat  # a bool of NumPy is a byte


@dataclasses.dataclass(frozen=True)
class DenseOperand:
    """The place of a dense operand with its own buffer."""

    buffer: int  # its number
    dtype: np.dtype
    shape: tuple[int, ...]  # of one shard's part


@dataclasses.dataclass(frozen=True)
class RaggedOperand:
    """The places of a ragged operand: `data` has its own buffer."""

    data: DenseOperand
    offsets: OperandField
    shapes: OperandField


@dataclasses.dataclass(frozen=True)
class OutputPlacement:
    """The place to which a step writes a ragged value: a buffer of `capacity` elements, made by XLA."""

    capacity: int
    offsets: OperandField
    shapes: OperandField


@dataclasses.dataclass(frozen=True)
class StepLayout:
    """The operands of one step besides its inputs.

    Attributes:
      outputs: for each output, the place of a ragged value; None for one with a static shape.
      params: the places of the parameters, by name.
      scratch: bytes of working memory.
    """

    outputs: tuple[OutputPlacement | None, ...]
    params: tuple[tuple[str, OperandField], ...]
    scratch: int


@dataclasses.dataclass(frozen=True)
class LoadedOperands:
    """The operands of one shard in a program, as `Layout.read` extracts them.

    Attributes:
      controls: the control operands of native calls, one for each set of samples that steps work on.
      values: the segment's operands, in its order: arrays, or `Ragged`.
      steps: for each step, the places of its outputs, its parameters by name, and its working memory in bytes.
    """

    controls: tuple[Any, ...]
    values: tuple[Any, ...]
    steps: tuple[tuple[tuple[Out | None, ...], Mapping[str, Any], int], ...]


@dataclasses.dataclass(frozen=True)
class Layout:
    """The places of a program's operands. It is part of the program's key.

    Attributes:
      controls: the control operands of native calls, one for each set of samples that steps work on.
      values: the segment's operands, in its order.
      steps: the other operands of each step of the segment.
      fields: all fields, in the order of `Operands`.
      words: number of words in a row of the argument buffer.
    """

    controls: tuple[OperandField, ...]
    values: tuple[OperandField | DenseOperand | RaggedOperand, ...]
    steps: tuple[StepLayout, ...]
    fields: tuple[OperandField, ...]
    words: int

    @functools.cached_property
    def places(self) -> list[int]:
        """The byte of a row at which each field begins."""
        return [4 * field.first for field in self.fields]

    def read(self, row: jax.Array, buffers: Sequence[jax.Array], on_cpu: bool) -> LoadedOperands:
        """Reads the operands of one shard, in a program.

        Args:
          row: ``i32[words]``, the shard's row of the argument buffer.
          buffers: the other buffers, each ``[1, ...]``.
          on_cpu: whether the program runs on a CPU. There one native call reads all fields, so that XLA need not
            compile a loop for each.
        """
        fields = self._unpacked(row) if on_cpu else {f: f.read(row) for f in self.fields}

        def value(place: OperandField | DenseOperand | RaggedOperand) -> Any:
            """Returns the operand at a place, of one shard."""
            match place:
                case OperandField():
                    return fields[place]
                case DenseOperand():
                    return buffers[place.buffer][0]
            return Ragged(buffers[place.data.buffer][0], fields[place.offsets], fields[place.shapes])

        steps = tuple(
            (
                tuple(None if o is None else Out(o.capacity, fields[o.offsets], fields[o.shapes]) for o in s.outputs),
                {name: fields[f] for name, f in s.params},
                s.scratch,
            )
            for s in self.steps
        )
        return LoadedOperands(tuple(fields[c] for c in self.controls), tuple(map(value, self.values)), steps)

    def _unpacked(self, row: jax.Array) -> dict[OperandField, jax.Array]:
        """Reads the fields by a native call. Empty fields are made without it."""
        nonempty = [f for f in self.fields if f.size]
        types = [jax.ShapeDtypeStruct(f.shape, np.uint8 if f.dtype == np.bool_ else f.dtype) for f in nonempty]
        # `places`: the byte at which each field begins; `first` counts words of 4 bytes.
        arrays = (
            jax.ffi.ffi_call("jaxdali_unpack", types)(row, places=np.array([4 * f.first for f in nonempty], np.int64))
            if nonempty
            else []
        )
        fields = {f: jnp.zeros(f.shape, f.dtype) for f in self.fields if not f.size}
        # A bool of NumPy may be any byte, one of XLA is 0 or 1.
        return fields | {f: x != 0 if f.dtype == np.bool_ else x for f, x in zip(nonempty, arrays, strict=True)}


class Operands:
    """The operands of one program for one batch. They must be added in this order: each `control`, each `value`, each
    `step`.

    Args:
      S, B: local shards, and samples in each.
      pool: the pool of buffers; None: the buffers have no memory, only shape and dtype.
    """

    def __init__(self, S: int, B: int, pool: BufferPool | None):
        self._S, self._B = S, B
        self._pool = pool
        self._fields: list[np.ndarray] = []  # the contents of the argument buffer, each ``[S, ...]``
        self._num_controls = 0
        # For each value its class (`RaggedOperand`, `OperandField` or `DenseOperand`), then for each step: the
        # capacities of its outputs, the names of its parameters, and its scratch.
        self._kinds: list[Any] = []
        self._buffer_data: list[np.ndarray | Packed] = []  # the values in the other buffers
        self.buffers: list[np.ndarray] = []

    @property
    def nbytes(self) -> int:
        """Bytes of all operands, without the unused parts of buffers."""
        return sum(x.nbytes for x in (*self._fields, *self._buffer_data))

    def control(self, pool_id: int, present: np.ndarray | None):
        """Adds the thread pool of native calls, and the samples that they work on (None: all)."""
        control = _control(pool_id, self._S, self._B)
        if present is not None:
            control = control.copy()  # the original is cached
            control[:, 1:] = present.reshape(self._S, self._B)
        self._fields.append(control)
        self._num_controls += 1

    def value(self, value: Value, capacity: int):
        """Adds a host value. `capacity`: number of elements in each shard's buffer for a ragged value."""
        data = value.data
        assert data is not None
        if isinstance(data, Packed):
            self._kinds.append(RaggedOperand)
            self._buffer_data.append(data)
            self.buffers.append(self._resized(data, capacity))
            self._add_offsets_and_shapes(data.offsets, data.shapes)
        elif data[:1].nbytes <= SMALL_ROW:
            self._kinds.append(OperandField)
            self._add_field(data)
        else:
            self._kinds.append(DenseOperand)
            self._buffer_data.append(data)
            shape = (self._S, self._B, *data.shape[1:])
            if self._pool is None:  # only shape and type, without memory
                self.buffers.append(np.broadcast_to(np.zeros((), data.dtype), shape))
                return
            if is_lent(data):  # a source has written it to memory of the pool
                self.buffers.append(data.reshape(shape))
                return
            buffer = self._pool.empty(shape, data.dtype)
            buffer.reshape(data.shape)[...] = data
            self.buffers.append(buffer)

    def step(
        self,
        outputs: Sequence[tuple[int, np.ndarray, np.ndarray] | None],
        params: Mapping[str, np.ndarray],
        scratch: int,
    ):
        """Adds the operands of a step.

        Args:
          outputs: (capacity, offsets, shapes) of each ragged output, None for a static one.
          params: the parameters, ``[S*B, ...]`` by name.
          scratch: bytes of working memory.
        """
        capacities = tuple(None if o is None else o[0] for o in outputs)
        self._kinds.append((capacities, tuple(params), scratch))
        for o in outputs:
            if o is not None:
                _, offsets, shapes = o
                self._add_offsets_and_shapes(offsets, shapes)
        for x in params.values():
            self._add_field(x)

    @property
    def key(self) -> tuple:
        """A key: operands with equal keys have equal layouts."""
        fields = tuple((f.dtype.num, f.shape) for f in self._fields)
        return self._num_controls, tuple(self._kinds), fields, tuple((b.dtype.num, b.shape) for b in self.buffers)

    def layout(self) -> Layout:
        """The places of all operands."""
        fields, first = [], 0
        for x in self._fields:
            fields.append(OperandField(x.dtype, x.shape[1:], first))
            first += fields[-1].words + (fields[-1].words & 1)  # to the next even word, for 64-bit fields
        # In the order in which `control`, `value` and `step` have added them.
        field = iter(fields)
        dense = iter(DenseOperand(i, b.dtype, b.shape[1:]) for i, b in enumerate(self.buffers))
        controls = tuple(next(field) for _ in range(self._num_controls))
        values: list[OperandField | DenseOperand | RaggedOperand] = []
        steps: list[StepLayout] = []
        for kind in self._kinds:
            if kind is OperandField:
                values.append(next(field))
            elif kind is DenseOperand:
                values.append(next(dense))
            elif kind is RaggedOperand:
                values.append(RaggedOperand(next(dense), next(field), next(field)))
            else:
                capacities, names, scratch = kind
                outputs = tuple(None if c is None else OutputPlacement(c, next(field), next(field)) for c in capacities)
                steps.append(StepLayout(outputs, tuple((name, next(field)) for name in names), scratch))
        words = -(-max(first, 1) // 16) * 16  # each row begins at a multiple of 64 bytes
        return Layout(controls, tuple(values), tuple(steps), tuple(fields), words)

    def packed(self, layout: Layout) -> np.ndarray:
        """Writes the fields into the argument buffer, and returns it."""
        assert self._pool is not None
        args = self._pool.empty((self._S, layout.words), np.int32)
        fields = map(np.ascontiguousarray, self._fields)
        # NumPy exports no buffer of types that it does not have itself, such as bfloat16.
        _cpu.pack_rows([x.view(np.uint8) if x.dtype.kind == "V" else x for x in fields], layout.places, args)
        return args

    def _add_field(self, x: np.ndarray):
        """Adds an array ``[S*B, ...]`` to the argument buffer."""
        assert len(x) == self._S * self._B, x.shape
        self._fields.append(x.reshape(self._S, self._B, *x.shape[1:]))

    def _add_offsets_and_shapes(self, offsets: np.ndarray, shapes: np.ndarray):
        """Adds the two fields of a ragged value. Programs have shapes in 32 bits."""
        self._add_field(offsets)
        self._add_field(shapes.astype(np.int32))

    def _resized(self, packed: Packed, capacity: int) -> np.ndarray:
        """The data of a ragged value in buffers ``[S, capacity]``: in place if they are large enough, else a copy."""
        data = packed.data
        if data.shape[1] >= capacity:
            return data[:, :capacity]
        if self._pool is None:
            return np.broadcast_to(np.zeros((), data.dtype), (data.shape[0], capacity))
        grown = self._pool.empty((data.shape[0], capacity), data.dtype)
        used = min(packed.used, data.shape[1])
        grown[:, :used] = data[:, :used]
        return grown


@functools.lru_cache(maxsize=64)
def _control(pool_id: int, S: int, B: int) -> np.ndarray:
    """A control operand for all samples, ``i32[S, 1 + B]``: the id of the thread pool, and 1 for each sample, which is
    present. The result is cached.
    """
    control = np.ones((S, 1 + B), np.int32)
    control[:, 0] = pool_id
    return control
