"""readers.tokens: sequences of one length, packed of token records."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, ClassVar, Unpack

import numpy as np

from ... import types
from ..._core.context import HostContext
from ..._core.declaration import DType, OneOf, Range, Whole
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._core.values import Spec
from ..._cpu import Status
from ..._data.files import Paths
from ..._data.packing import Packing, Sequences, lay_out, pack, packing_order
from ._array_record import ReadArrayRecord
from ._reader import Reader, StoredArguments


class _Sequences(Sequences):
    """The sequences of token records."""

    def __init__(self, op: ReadTokens):
        """Distributes the records among sequences, by their sizes.

        Attributes of `Records` are set here: `specs` of the outputs, `lengths` of the sequences for `group_by_length`, and
        `digest`, by which checkpoints recognize the list.
        """
        records = ReadArrayRecord(path=op.path, storage=op.storage).open()
        self._dtype, self._length, self._pad = op.dtype, op.length, op.pad_id
        sizes = records.sizes()
        odd_sized = np.flatnonzero(sizes % op.dtype.itemsize)
        if len(odd_sized):
            i = int(odd_sized[0])
            raise RuntimeError(
                f"{records.name(i)}: its {sizes[i]} bytes are not a whole number of tokens of type {op.dtype}, "
                f"which have {op.dtype.itemsize} bytes each"
            )
        sizes = sizes // op.dtype.itemsize
        order = packing_order(len(sizes), op.packing_seed)
        super().__init__(records, pack(sizes, order, op.length, op.packing))
        if not len(self):
            raise RuntimeError("all records are empty")
        self._ragged = op.packing == "none"  # whether sequences have lengths of their own
        # Tokens, segments and positions.
        self.specs = (Spec(np.dtype(np.int32), 1, None if self._ragged else (op.length,)),) * 3
        packing = f"{op.packing} of {op.dtype} to {op.length}, pad_id {op.pad_id}, packing_seed {op.packing_seed}"
        self.digest = f"{records.digest}, {packing}"
        if op.group_by_length:
            self.lengths = self._pieces.size
            self.digest += f", lengths {hashlib.sha256(self.lengths.tobytes()).hexdigest()[:16]}"

    @classmethod
    def read_batch(
        cls, ctx: HostContext, parts: Sequence[tuple[_Sequences, np.ndarray]], threads: ThreadPoolExecutor
    ) -> tuple[Any, ...]:
        """See `Records.read_batch`: the outputs of all lists, one list after another."""
        outputs = []
        first = 0
        for sequences, index in parts:
            outputs.append(sequences._make_sequences(ctx, index, first, threads))
            first += len(index)
        if parts[0][0]._ragged:
            return tuple([x for samples in column for x in samples] for column in zip(*outputs))
        return tuple(map(np.concatenate, zip(*outputs))) if len(outputs) > 1 else outputs[0]

    def _make_sequences(
        self, ctx: HostContext, index: np.ndarray, first: int, threads: ThreadPoolExecutor
    ) -> tuple[Any, ...]:
        """Makes tokens, segments and positions of sequences, see `tokens`.

        Each of the three is ``i32[sequences, length]``; with `packing="none"`, a list of ``i32[tokens]``.

        Args:
          index: the numbers of the sequences.
          first: the place of the first one in the batch.
        """
        records, sequence_of_piece = self._records_of(index)
        failed = set[int]()

        def fail(i: int, code: int, reason: str = ""):
            """Reports the sequence of piece `i`, once."""
            sequence = int(sequence_of_piece[i])
            if sequence not in failed:
                failed.add(sequence)
                ctx.fail(first + sequence, code, reason)

        # The records of all sequences are read as one batch of one shard; a record that fails fails its sequence.
        inner = dataclasses.replace(
            ctx, fail=fail, S=1, B=len(records), N=len(records), empty=lambda n, dtype, _: np.empty((1, n), dtype)
        )
        (rows,) = self._records.read_batch(inner, [(self._records, records)], threads)
        sizes = self._pieces.size[index] if self._ragged else None
        width = self._length if sizes is None else int(sizes.max())
        tokens = np.full((len(index), width), self._pad, np.int32)
        segments, positions = np.zeros((2, len(index), width), np.int32)
        for k in range(len(index)):
            pieces, piece_range = list[np.ndarray](), self._pieces_of(int(index[k]))
            first_row = int(np.searchsorted(sequence_of_piece, k))
            for number in range(piece_range.stop - piece_range.start if k not in failed else 0):
                begin, n = (
                    int(self._pieces.begin[piece_range.start + number]),
                    int(self._pieces.size[piece_range.start + number]),
                )
                piece = np.ascontiguousarray(rows[first_row + number]).view(self._dtype)[begin : begin + n]
                # 8 and 16 bits always fit.
                if self._dtype.itemsize > 2 and n and (piece.min() < 0 or piece.max() > np.iinfo(np.int32).max):
                    reason = f"{self._records.name(int(records[first_row + number]))}: its tokens are negative or do not fit into int32"
                    ctx.fail(first + k, Status.RECORD, reason)
                    break
                pieces.append(piece)
            lay_out(pieces, tokens[k], segments[k], positions[k])
        if sizes is not None:
            return tuple(
                [x[:n] for x, n in zip(padded, sizes.tolist(), strict=True)] for padded in (tokens, segments, positions)
            )
        return tokens, segments, positions


class ReadTokens(Reader):
    """`readers.tokens`; the fields are its arguments."""

    name: ClassVar[str] = "readers.tokens"

    path: Paths
    length: int
    dtype: np.dtype
    packing: Packing
    packing_seed: int | None
    pad_id: int

    def __post_init__(self):
        super().__post_init__()
        if not -(2**31) <= self.pad_id < 2**31:
            raise ArgumentError(f"pad_id must be an int32, got {self.pad_id}")
        if self.group_by_length and self.packing != "none":
            raise ArgumentError(
                f'group_by_length is for packing="none": of packing="{self.packing}" all sequences have one length'
            )

    @property
    def num_arrays(self) -> int:
        return 3

    def open(self) -> _Sequences:
        return _Sequences(self)


@operator_function(ReadTokens)
def tokens(
    *,
    path: Paths,
    length: Annotated[int, Range(1)],
    dtype: Annotated[DType, OneOf("uint8", "uint16", "int32", "uint32", "int64")] = types.INT32,
    packing: Packing = "first_fit",
    packing_seed: Annotated[int, Range(0)] | None = None,
    pad_id: int = 0,
    group_by_length: Annotated[Whole, Range(0)] = 0,
    **order: Unpack[StoredArguments],
) -> tuple[DataNode, ...]:
    """Reads token records of ArrayRecord files and packs them into sequences of one length. Not in DALI.

    The records are packed when the pipeline is built, in the same way for all epochs; sequences are then shuffled,
    split into shards, resumed and redistributed like the samples of any other reader. Packing needs only the sizes of
    records. The tables of files written with ``group_size:1`` hold them; other files are read completely when the
    pipeline is built.

    To pad single records instead, use ``packing="none"``, with `group_by_length` for batches of similar lengths. To
    compile for few shapes, ``fn.pad(x, axes=[0], align=[128])`` pads batches to multiples of 128, and an iterator's
    ``ragged={"tokens": 1024}`` pads all batches to one length.

    Args:
      path: paths of the files, which are read one after another. Patterns (``*``, ``?``, ``[``, ``{a,b}``,
        ``{000..127}``) stand for files, the matches of wildcards in byte order. A path that exists is literal.
      length: number of tokens in a sequence. A longer record is cut into pieces of this length and a remainder, each a
        separate segment.
      dtype: the little-endian type of the tokens in the records: UINT8, UINT16, INT32, UINT32 or INT64. The result is
        INT32.
      packing: "first_fit": a record goes to the first of 64 open sequences that has room for it. "sequential": records
        stay in order, and one that does not fit begins the next sequence. "concatenate": all tokens come one after
        another, and are cut where a sequence is full, so that only the last one is padded; each part of a record is a
        separate segment, whose positions begin at 0. "none": each record, or piece of a longer one, is a separate
        sequence, which is not padded.
      packing_seed: a seed to shuffle records before they are packed; None: they are taken in order.
      pad_id: the token that fills the end of a sequence.
      group_by_length: with ``packing="none"``, the batch size of a shard. Each group of this many consecutive sequences
        gets similar numbers of tokens, so that padding wastes little, as in `readers.source`. 0: sequences come in the
        shuffled order.
      shuffle_after_epoch: whether to shuffle the list anew before each epoch, in the same way for all shards, each of
        which keeps reading its part of the list.
      on_error: what happens when a record of a sequence can't be read. "raise": the batch fails; "replace": a later
        sequence of the list replaces it; "skip": the batch is made without it. `Pipeline.bad_samples` reports the
        sequences of the last two.
      metadata: names, each of which adds an output of Python objects after the others, for `python_function` and for
        the lists of a batch (not in DALI). "index": the number of the sequence in the list; "source_info".

    Returns:
      tokens, their segments and their positions, each ``int32[length]``, with ``packing="none"`` ``int32[tokens]``.
      Segments count from 1 in each sequence, and are 0 in the padding; positions count from 0 in each segment. MaxText,
      T5X and Grain call them ``tokens``, ``tokens_segment_ids`` and ``tokens_positions``. Attention is within a
      segment, ``segments[:, :, None] == segments[:, None, :]``, and causal.

    Raises:
      ValueError, TypeError: arguments that contradict each other or are out of range.
      RuntimeError: when the pipeline is built, a file can't be read, or the size of a record is not a multiple of a
        token's.

    Example:
      >>> tokens, segments, positions = fn.readers.tokens(path="gs://bucket/train-*.array_record", length=2048, dtype=types.UINT16)
    """
    ...
