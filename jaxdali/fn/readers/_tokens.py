"""readers.tokens: sequences of one length, packed of token records."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, ClassVar, Literal, Unpack

import numpy as np

from ... import types
from ..._core.context import HostContext
from ..._core.declaration import DType, OneOf, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._core.values import Spec
from ..._cpu import Status
from ..._data.files import Paths
from ..._data.listed import Reader, Records, StoredArguments
from ..._data.shuffle import Draw, list_order
from ._array_record import ReadArrayRecord

Packing = Literal["first_fit", "sequential", "concatenate", "none"]

_NUM_OPEN = 64  # sequences that "first_fit" fills at the same time


@dataclasses.dataclass(frozen=True)
class Pieces:
    """The pieces of records of which sequences consist.

    Attributes:
      record, begin, size: ``i64[pieces]``: tokens ``begin .. begin + size - 1`` of a record, one sequence after
        another.
      first: ``i64[sequences + 1]``, the first piece of each sequence, and the piece after the last.
    """

    record: np.ndarray
    begin: np.ndarray
    size: np.ndarray
    first: np.ndarray


def pack(sizes: np.ndarray, order: np.ndarray, length: int, packing: Packing) -> Pieces:
    """Distributes records among sequences of `length` tokens. The result depends only on the arguments.

    Args:
      sizes: ``i64[records]``, the number of tokens of each; empty records are left out.
      order: ``i64[records]``, the order in which they are taken.
      length: the length of a sequence. Longer records are cut into pieces of this length and a remainder.
      packing: "concatenate": all tokens one after another, cut wherever a sequence is full. "sequential": a piece that
        does not fit begins the next sequence. "first_fit": a piece goes to the first of 64 open sequences that has room
        for it; if none has, the fullest one is closed. Sequences come in the order in which they are closed. "none":
        each piece is a separate sequence.
    """
    order = order[sizes[order] > 0]
    sizes = sizes[order].astype(np.int64)
    if packing == "concatenate":
        ends = np.cumsum(sizes)
        total = int(ends[-1]) if len(ends) else 0
        # A piece begins with each record, and with each sequence.
        cuts = np.union1d(np.concatenate([[0], ends[:-1]]) if len(ends) else ends, np.arange(0, total, length))
        record_of_piece = np.searchsorted(ends, cuts, "right")
        first = np.append(np.searchsorted(cuts, np.arange(0, total, length)), len(cuts))
        return Pieces(
            record=order[record_of_piece],
            begin=cuts - (ends[record_of_piece] - sizes[record_of_piece]),
            size=np.diff(np.append(cuts, total)),
            first=first,
        )
    counts = -(-sizes // length)  # of pieces of each record
    record_of_piece = np.repeat(np.arange(len(sizes)), counts)
    begin = (np.arange(len(record_of_piece)) - np.repeat(np.cumsum(counts) - counts, counts)) * length
    size = np.minimum(sizes[record_of_piece] - begin, length)
    if packing == "none":
        return Pieces(record=order[record_of_piece], begin=begin, size=size, first=np.arange(len(record_of_piece) + 1))
    sequence_of_piece = _sequential(size, length) if packing == "sequential" else _first_fit(size, length)
    by_sequence = np.argsort(sequence_of_piece, kind="stable")
    piece_counts = np.bincount(sequence_of_piece)
    return Pieces(
        record=order[record_of_piece][by_sequence],
        begin=begin[by_sequence],
        size=size[by_sequence],
        first=np.append(0, np.cumsum(piece_counts)),
    )


def _sequential(sizes: np.ndarray, length: int) -> np.ndarray:
    """``i64[pieces]``: the sequence of each piece; one that does not fit begins the next sequence.

    Args:
      sizes: ``i64[pieces]``, their numbers of tokens.
      length: the number of tokens of a full sequence.
    """
    sequences, number, used = np.empty(len(sizes), np.int64), 0, 0
    for i, n in enumerate(sizes.tolist()):
        if used + n > length:
            number, used = number + 1, 0
        used += n
        sequences[i] = number
    return sequences


def _first_fit(sizes: np.ndarray, length: int) -> np.ndarray:
    """``i64[pieces]``: the sequence of each piece, numbered in the order in which sequences are closed.

    The arguments are those of `_sequential`.
    """
    sequences, closed = np.empty(len(sizes), np.int64), list[int]()
    # Of each open sequence, in the order of opening: the number of tokens that still fit, and its number in that order.
    free, opened = np.full(_NUM_OPEN, length, np.int64), np.arange(_NUM_OPEN)
    num_opened = _NUM_OPEN
    for i, n in enumerate(sizes.tolist()):
        fits = free >= n
        k = int(fits.argmax())
        if not fits[k]:  # the fullest one is closed, and a new one comes last
            k = int(free.argmin())
            closed.append(int(opened[k]))
            free[k:-1], opened[k:-1] = free[k + 1 :].copy(), opened[k + 1 :].copy()
            k = _NUM_OPEN - 1
            free[k], opened[k] = length, num_opened
            num_opened += 1
        free[k] -= n
        sequences[i] = opened[k]
    closed += opened[free < length].tolist()
    order_of_closing = np.zeros(num_opened, np.int64)
    order_of_closing[closed] = np.arange(len(closed))
    return order_of_closing[sequences]


class _Sequences(Records):
    """The sequences as a list of records, so that shuffling, shards and checkpoints work as for all readers.

    `_records` is the list of token records, and `_pieces` are the pieces of all sequences.
    """

    def __init__(self, op: ReadTokens):
        """Distributes the records among sequences, by their sizes.

        Attributes of `Records` are set here: `specs` of the outputs, `lengths` of the sequences for `group_by_length`, and
        `digest`, by which checkpoints recognize the list.
        """
        self._records = ReadArrayRecord(path=op.path, storage=op.storage).open()
        self._dtype, self._length, self._pad = op.dtype, op.length, op.pad_id
        sizes = self._records.sizes()
        odd_sized = np.flatnonzero(sizes % op.dtype.itemsize)
        if len(odd_sized):
            i = int(odd_sized[0])
            raise RuntimeError(
                f"{self._records.name(i)}: its {sizes[i]} bytes are not a whole number of tokens of type {op.dtype}, "
                f"which have {op.dtype.itemsize} bytes each"
            )
        sizes = sizes // op.dtype.itemsize
        order = (
            np.arange(len(sizes))
            if op.packing_seed is None
            else list_order(len(sizes), op.packing_seed, Draw.LIST, epoch=0)
        )
        self._pieces = pack(sizes, order, op.length, op.packing)
        if not len(self):
            raise RuntimeError("all records are empty")
        self._ragged = op.packing == "none"  # whether sequences have lengths of their own
        # Tokens, segments and positions.
        self.specs = (Spec(np.dtype(np.int32), 1, None if self._ragged else (op.length,)),) * 3
        packing = f"{op.packing} of {op.dtype} to {op.length}, pad_id {op.pad_id}, packing_seed {op.packing_seed}"
        self.digest = f"{self._records.digest}, {packing}"
        if op.group_by_length:
            self.lengths = self._pieces.size
            self.digest += f", lengths {hashlib.sha256(self.lengths.tobytes()).hexdigest()[:16]}"

    def __len__(self) -> int:
        return len(self._pieces.first) - 1

    def _pieces_of(self, i: int) -> slice:
        """The pieces of sequence `i`, as a range of `_pieces`."""
        return slice(int(self._pieces.first[i]), int(self._pieces.first[i + 1]))

    def name(self, i: int) -> str:
        records = self._pieces.record[self._pieces_of(i)]
        return self._records.name(int(records[0])) + (f" and {len(records) - 1} more" if len(records) > 1 else "")

    @property
    def read_ahead(self) -> int:
        return self._records.read_ahead

    def ahead(self, index: np.ndarray, now: int) -> None:
        """See `Records.ahead`. Announces the records of the sequences."""
        records, sequence_of_piece = self._records_of(index)
        self._records.ahead(records, int((sequence_of_piece < now).sum()))

    def counts(self) -> Mapping[str, int]:
        return self._records.counts()

    def close(self) -> None:
        self._records.close()

    def _records_of(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The record of each piece of some sequences, and for each piece the sequence to which it belongs.

        Sequences are numbered by their place in `index`.
        """
        pieces = [self._pieces.record[self._pieces_of(i)] for i in index.tolist()]
        return np.concatenate([np.zeros(0, np.int64), *pieces]), np.repeat(
            np.arange(len(index)), list(map(len, pieces))
        )

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
            filled, piece_range = 0, self._pieces_of(int(index[k]))
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
                tokens[k, filled : filled + n] = piece
                segments[k, filled : filled + n] = number + 1
                positions[k, filled : filled + n] = np.arange(n)
                filled += n
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
    group_by_length: Annotated[int, Range(0)] = 0,
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
