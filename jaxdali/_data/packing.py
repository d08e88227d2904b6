"""Packing: sequences of a fixed length, made of the records of a list. `readers.tokens` cuts records into pieces,
`readers.source` packs whole ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from .records import Records
from .shuffle import ShufflePurpose, list_order

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


def packing_order(n: int, packing_seed: int | None) -> np.ndarray:
    """``i64[n]``: the order in which records are packed: shuffled by the seed, or as in the list if it is None."""
    return np.arange(n) if packing_seed is None else list_order(n, packing_seed, ShufflePurpose.LIST, epoch=0)


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
    by_sequence, first = _distributed(size[:, None], (length,), packing)
    return Pieces(
        record=order[record_of_piece][by_sequence], begin=begin[by_sequence], size=size[by_sequence], first=first
    )


def pack_whole(
    sizes: np.ndarray, order: np.ndarray, limits: Sequence[int], packing: Literal["first_fit", "sequential"]
) -> Pieces:
    """Distributes whole records among sequences with several limits, such as numbers of tokens and of patches.

    Args:
      sizes: ``i64[records, limits]``, of which none is above its limit. Records of size 0 are packed, too.
      order: ``i64[..]``, the records that are packed, in the order in which they are taken.
      limits: the largest sum of each size in a sequence.
      packing: as in `pack`, where a record fits into a sequence if no limit is exceeded. The fullest sequence is the one
        with the least room in one of the limits, as a fraction of that limit.
    """
    by_sequence, first = _distributed(sizes[order], limits, packing)
    records = order[by_sequence]
    return Pieces(record=records, begin=np.zeros(len(records), np.int64), size=sizes[records, 0], first=first)


def _distributed(sizes: np.ndarray, limits: Sequence[int], packing: str) -> tuple[np.ndarray, np.ndarray]:
    """The pieces sorted by sequence, and the first piece of each sequence, with the number of pieces at the end.

    Args:
      sizes: ``i64[pieces, limits]``.
      packing: "sequential" or "first_fit".
    """
    sequences = (_sequential if packing == "sequential" else _first_fit)(sizes, limits)
    return np.argsort(sequences, kind="stable"), np.append(0, np.cumsum(np.bincount(sequences)))


def _sequential(sizes: np.ndarray, limits: Sequence[int]) -> np.ndarray:
    """``i64[pieces]``: the sequence of each piece; one that does not fit begins the next sequence.

    Args:
      sizes: ``i64[pieces, limits]``, their numbers of tokens, and what else is limited.
      limits: the sums of a full sequence.
    """
    sequences, number, used = np.empty(len(sizes), np.int64), 0, [0] * len(limits)
    for i, piece in enumerate(sizes.tolist()):
        total = [u + n for u, n in zip(used, piece)]
        if any(t > limit for t, limit in zip(total, limits)):
            number, total = number + 1, piece
        used = total
        sequences[i] = number
    return sequences


def _first_fit(sizes: np.ndarray, limits: Sequence[int]) -> np.ndarray:
    """``i64[pieces]``: the sequence of each piece, numbered in the order in which sequences are closed.

    The arguments are those of `_sequential`.
    """
    sequences, closed = np.empty(len(sizes), np.int64), list[int]()
    full = np.array(limits, np.int64)[:, None]
    # Of each open sequence, in the order of opening: how much still fits, by each limit; and its number in that order.
    free, opened = np.repeat(full, _NUM_OPEN, axis=1), np.arange(_NUM_OPEN)
    num_opened = _NUM_OPEN
    first_free, first_sizes = free[0], sizes[:, 0].tolist()
    # (what is free by each further limit, what each piece needs of it)
    more_limits = [(free[j], sizes[:, j].tolist()) for j in range(1, len(limits))]
    for i, n in enumerate(first_sizes):
        fits = first_free >= n
        for free_j, sizes_j in more_limits:
            fits &= free_j >= sizes_j[i]
        k = int(fits.argmax())
        if not fits[k]:  # the fullest one is closed, and a new one comes last
            k = int(first_free.argmin() if not more_limits else (free / full).min(axis=0).argmin())
            closed.append(int(opened[k]))
            free[:, k:-1], opened[k:-1] = free[:, k + 1 :].copy(), opened[k + 1 :].copy()
            k = _NUM_OPEN - 1
            free[:, k], opened[k] = limits, num_opened
            num_opened += 1
        first_free[k] -= n
        for free_j, sizes_j in more_limits:
            free_j[k] -= sizes_j[i]
        sequences[i] = opened[k]
    # Sequences are filled in the order of opening.
    num_filled = int(sequences.max()) + 1 if len(sequences) else 0
    closed += opened[opened < num_filled].tolist()
    order_of_closing = np.zeros(num_opened, np.int64)
    order_of_closing[closed] = np.arange(len(closed))
    return order_of_closing[sequences]


def lay_out(pieces: Iterable[np.ndarray], tokens: np.ndarray, segments: np.ndarray, positions: np.ndarray) -> None:
    """Writes the pieces of a sequence one after another to the beginning of its tokens, with the segment of each token,
    from 1, and its position in the segment. The arrays are one row each, and hold the padding.
    """
    begin = 0
    for number, piece in enumerate(pieces, 1):
        end = begin + len(piece)
        tokens[begin:end] = piece
        segments[begin:end] = number
        positions[begin:end] = np.arange(len(piece))
        begin = end


class Sequences(Records):
    """Sequences as a list of records, so that shuffling, shards and checkpoints work as for all readers.

    Args:
      records: the list of the records that are packed.
      pieces: the pieces of all sequences.
    """

    def __init__(self, records: Records, pieces: Pieces):
        self._records, self._pieces = records, pieces

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
