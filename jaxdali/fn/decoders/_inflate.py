"""decoders.inflate: decompresses LZ4."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, Unpack, cast

import numpy as np

from ... import types
from ..._core.arguments import Arguments
from ..._core.building import add, as_node, is_node
from ..._core.context import BuildContext, HostContext
from ..._core.declaration import DType, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator, Operator
from ..._core.operator_function import Hints, Input, OneOrMore, PerSample, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Status
from ..._data.storage import Storage
from .._tensor.copy import copy_to
from ..readers._reader import storage_of


def _decompressor() -> Callable[..., bytes]:
    """The function that decompresses an LZ4 block. Raises ImportError, which says how to install it."""
    try:
        import lz4.block
    except ImportError as e:
        raise ImportError('decoders.inflate needs the package lz4: pip install "jaxdali[lz4]"') from e
    return lz4.block.decompress


class Inflate(HostOperator):
    """Decompresses LZ4 blocks. A sample has one, or several, which are stacked along a new first axis."""

    name: ClassVar[str] = "decoders.inflate"

    dtype: np.dtype
    layout: str
    storage: Storage  # limits the size of a decompressed sample
    rank: int | None = None  # rank of a block's shape, where the shape comes per sample from a source

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        """See `Operator.bind`. Raises ImportError if lz4 is missing."""
        _decompressor()
        # The shape may be an input, which has a number for each axis; the rank of the first sample is then that of all.
        # Arguments are the last inputs. `place` is the number of the input; -1: the shape is no input.
        place = (
            len(specs) - len(self.args.inputs) + self.args.inputs.index("shape") if "shape" in self.args.inputs else -1
        )
        first_shape = ctx.first_shape(place) if place >= 0 and self.args.width("shape", specs) is None else None
        return self if first_shape is None else dataclasses.replace(self, rank=math.prod(first_shape))

    @property
    def _has_chunks(self) -> bool:
        return "chunk_offsets" in self.args or "chunk_sizes" in self.args

    def infer(self, data: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """See `Operator.infer`. Extents are known if `shape` is the same for all samples."""
        if data.ndim != 1 or data.dtype != np.uint8:
            raise TypeError(f"the input must be compressed bytes, 1-D uint8, got {data.ndim}-D {data.dtype}")
        rank = self.rank if self.rank is not None else self.args.width("shape", arguments)
        if rank is None:
            raise ArgumentError("argument shape must have the same number of elements in all samples")
        if self.layout and len(self.layout) != rank + self._has_chunks:
            raise ArgumentError(f"the layout does not fit a shape of {rank} dimensions")
        dims: list[int | None] = (
            [None] * rank if "shape" in self.args.inputs else np.atleast_1d(self.args.get("shape")).tolist()
        )
        if self._has_chunks:
            counts = [self.args.width(n, arguments) for n in ("chunk_offsets", "chunk_sizes") if n in self.args]
            dims = [next((n for n in counts if n is not None), None), *dims]
        shape = tuple(n for n in dims if n is not None)
        return (Spec(self.dtype, len(dims), shape if len(shape) == len(dims) else None, self.layout, tuple(dims)),)

    def run(self, ctx: HostContext, data: Value, *arguments: Value) -> tuple[Any, ...]:
        """See `HostOperator.run`. A sample without chunks of its own is one chunk."""
        a = self.arguments(ctx, arguments)
        shapes = a.vector("shape", ctx.spec.ndim - self._has_chunks)  # of one chunk, without the axis of chunks
        assert shapes is not None
        offsets, sizes = (a.ragged(n) if n in a else [None] * ctx.N for n in ("chunk_offsets", "chunk_sizes"))
        rows = [np.zeros(ctx.spec.shape or (0,) * ctx.spec.ndim, ctx.spec.dtype)] * ctx.N
        for i in np.flatnonzero(ctx.present).tolist():
            compressed = data.sample(i)
            try:
                if self._has_chunks:
                    chunks = _chunks(len(compressed), offsets[i], sizes[i])
                    rows[i] = self._inflate(compressed, chunks, (len(chunks), *shapes[i].astype(int).tolist()))
                else:
                    rows[i] = self._inflate(compressed, [(0, len(compressed))], tuple(shapes[i].astype(int).tolist()))
            except ValueError as e:
                ctx.fail(i, Status.RECORD, str(e))
        return (np.stack(rows) if ctx.spec.shape is not None else rows,)

    def _inflate(self, compressed: np.ndarray, chunks: list[tuple[int, int]], shape: tuple[int, ...]) -> np.ndarray:
        """Decompresses the chunks (begin, end) of a sample to an array of this shape. Raises ValueError."""
        if reason := self.storage.too_large(math.prod(shape) * self.dtype.itemsize):
            raise ValueError(f"its shape is {shape}: {reason}")
        decompress, result = _decompressor(), np.zeros(shape, self.dtype)
        # A row for each chunk; there may be none.
        bytes_of_chunks = result.reshape(-1).view(np.uint8).reshape(len(chunks), result.nbytes // max(len(chunks), 1))
        for k, (begin, end) in enumerate(chunks):
            try:
                content = decompress(compressed[begin:end], uncompressed_size=bytes_of_chunks.shape[1])
            except Exception as e:  # the package's own
                raise ValueError(
                    f"chunk {k}, bytes {begin} to {end}, is not an LZ4 block of at most {bytes_of_chunks.shape[1]} bytes: {e}"
                ) from e
            bytes_of_chunks[k, : len(content)] = np.frombuffer(content, np.uint8)  # bytes after it stay 0, as in DALI
        return result


def _chunks(size: int, offsets: np.ndarray | None, sizes: np.ndarray | None) -> list[tuple[int, int]]:
    """The begin and the end of each chunk of a sample of `size` bytes, in bytes."""
    if offsets is None:
        assert sizes is not None
        ends = np.cumsum(sizes)
        begins = ends - sizes
    else:
        begins = offsets
        if sizes is not None and len(sizes) != len(begins):
            raise ValueError(f"there must be as many chunk_offsets as chunk_sizes, got {len(begins)} and {len(sizes)}")
        ends = begins + sizes if sizes is not None else np.append(begins[1:], size)
    chunks = [(int(begin), int(end)) for begin, end in zip(begins, ends)]
    for begin, end in chunks:
        if not 0 <= begin < end <= size:
            raise ValueError(f"a chunk from byte {begin} to {end} is outside the sample of {size} bytes")
    return chunks


class InflateHints(Hints, total=False):
    """DALI's switches for checks that are always done here."""

    check_output_size: bool | None


@operator_function("decoders.inflate")
def inflate(
    input: Input,
    /,
    *,
    shape: Annotated[PerSample[OneOrMore[int]], Range(0)],
    dtype: DType = types.UINT8,
    algorithm: Literal["LZ4", "lz4"] = "LZ4",
    chunk_offsets: PerSample[OneOrMore[int]] | None = None,
    chunk_sizes: PerSample[OneOrMore[int]] | None = None,
    layout: str = "",
    sequence_axis_name: str = "F",
    storage: Storage | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[InflateHints],
) -> DataNode:
    """Decompresses tensors.

    A sample is one compressed chunk, or with `chunk_offsets` or `chunk_sizes` several chunks, whose tensors are
    stacked. Chunks are decompressed on the host (with the package lz4, ``pip install "jaxdali[lz4]"``); the result is
    where the input is.

    Args:
      input: 1-D uint8, made on the host, or moved to the accelerator from there. A chunk is an LZ4 block without a size
        before it (``lz4.block.compress(x, store_size=False)``).
      shape: shape of a decompressed chunk. May be per sample.
      dtype: element type of the result.
      algorithm: "LZ4".
      chunk_offsets: where each chunk of a sample begins. Without `chunk_sizes`, each chunk ends where the next one
        begins. May be per sample.
      chunk_sizes: size of each chunk in bytes. Without `chunk_offsets`, the chunks follow one another from the
        beginning. May be per sample.
      layout: layout of a decompressed chunk.
      sequence_axis_name: name of the axis of chunks: one letter, which is put in front of the layout.
      storage: ``Storage(max_record_bytes=)`` limits how many bytes a sample may decompress to. Default: the storage of
        the input's reader. Not in DALI.

    Returns:
      Tensors of that shape, with an axis of chunks in front if there are several. Elements that a chunk lacks are 0.

    Raises:
      TypeError: the input is not 1-D uint8.
      ImportError: at build, lz4 is not installed.
      SampleError: a chunk is damaged, larger than `shape` says, or lies outside its sample; or the sample is larger
        than `storage` allows.

    Differs from DALI, which decompresses only on the GPU, and checks a chunk's size only with `check_output_size`.

    Example:
      >>> frames = fn.decoders.inflate(compressed, chunk_sizes=sizes, shape=(480, 640, 3), layout="HWC")
    """
    if len(sequence_axis_name) != 1:
        raise ArgumentError(f"sequence_axis_name must be one letter, got {sequence_axis_name!r}")
    data = as_node(input, "decoders.inflate")
    values = {"shape": shape, "chunk_offsets": chunk_offsets, "chunk_sizes": chunk_sizes}
    args, nodes = Arguments.of(values, is_node)
    chunked = chunk_offsets is not None or chunk_sizes is not None
    op = Inflate(
        args=args,
        dtype=cast(np.dtype, dtype),
        layout=sequence_axis_name + layout if layout and chunked else layout,
        storage=storage or storage_of(data),
    )
    result = add(op, copy_to(data, "cpu"), *nodes, name=name)
    return result.gpu() if (device or data.device) == "gpu" else result
