"""readers.mxnet: images and labels of MXNet's RecordIO files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Unpack

import numpy as np

from ..._core.declaration import Range
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._core.values import Spec
from ..._cpu import RecordFormat
from ..._data.containers import ExtentRecords, Extents, Field, check_indices, read_indices
from ..._data.files import Files, Paths, as_list
from ..._data.listed import OnError, Reader, ReaderHints
from ..._data.storage import Storage


class _ImageRecords(ExtentRecords):
    """The records of RecordIO files, in the order in which they lie there."""

    format = RecordFormat.IMAGE_RECORD
    fields = (Field("image", 0, Spec(np.dtype(np.uint8), 1, None)), Field("label", 1, Spec(np.dtype(np.float32), 1, None)))

    def __init__(self, op: ReadMXNet):
        files = Files.of(op.path, op.storage)
        assert files.sizes is not None
        indices = as_list(op.index_path)
        table, bounds = read_indices(indices, files.store)
        if len(indices) == 1 < len(files):  # as of one file that was split: offsets go on from part to part
            begins = np.cumsum([0, *files.sizes])
            table = table[np.argsort(table[:, 1])]
            bounds = np.array([0, *np.searchsorted(table[:, 1], begins[1:-1]), len(table)])
            table[:, 1] -= np.repeat(begins[:-1], np.diff(bounds))
        else:
            check_indices(files, indices)
        for k, size in enumerate(files.sizes):  # the index has keys and offsets: a record reaches to the next one, or to the file's end
            rows = table[bounds[k] : bounds[k + 1]]
            if not len(rows):
                continue
            offsets = rows[:, 0]  # in place: they may be millions
            offsets[:] = rows[:, 1]
            if (offsets[1:] < offsets[:-1]).any():
                offsets.sort()
            np.subtract(offsets[1:], offsets[:-1], out=rows[:-1, 1])
            rows[-1, 1] = max(size - int(offsets[-1]), 0)
        super().__init__(Extents(files, table, bounds))

    def name_of_output(self, i: int, output: int) -> str:
        return "" if output else self.name(i)  # as in DALI


class ReadMXNet(Reader):
    """`readers.mxnet`; the fields are its arguments."""

    name: ClassVar[str] = "readers.mxnet"

    path: Paths
    index_path: Paths

    @property
    def num_outputs(self) -> int:
        return 2

    def open(self) -> _ImageRecords:
        return _ImageRecords(self)


class MXNetHints(ReaderHints, total=False):
    """Those of `mxnet`: files are never mapped here."""

    dont_use_mmap: bool | None


@operator_function(ReadMXNet)
def mxnet(
    *,
    path: Paths,
    index_path: Paths,
    weights: float | Sequence[float] | None = None,
    random_shuffle: bool = False,
    initial_fill: Annotated[int, Range(1)] = 1024,
    shuffle_after_epoch: bool = False,
    shuffle_after_epoch_seed: int | None = None,
    shuffle: Literal["global"] | None = None,
    num_shards: Annotated[int, Range(1)] = 1,
    shard_id: Annotated[int, Range(0)] = 0,
    stick_to_shard: bool = False,
    pad_last_batch: bool = False,
    seed: int = -1,
    on_error: OnError = "raise",
    storage: Storage | None = None,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[MXNetHints],
) -> list[DataNode]:
    """Reads images and labels from MXNet's RecordIO files.

    Args:
      path: of the ``.rec`` files, which are read one after another.
      index_path: of their ``.idx`` files, one for each, as MXNet's im2rec.py writes them: lines of a key and an offset. Or one
        for all, whose offsets go on from file to file, as in DALI.
      weights: how often the files' records come, in proportion, e.g. ``(0.7, 0.3)``: one number for each file that `path` names. They are
        mixed evenly, and an epoch has each record at least once: those of a file that is too small for its weight come again.
      random_shuffle: shuffle the list before it is split into shards, and each epoch of a shard in a new order.
      initial_fill: places of the buffer that this order is drawn with: small ones shuffle only locally, 1 not at all.
      shuffle_after_epoch: shuffle the order of the files anew in each epoch, alike for all shards, and read the same part of the
        list. The records of each stay together, in their order; with `weights` all records are shuffled.
      shuffle_after_epoch_seed: another seed for this than DALI's fixed one.
      shuffle: "global": the order of each epoch is a new permutation of the whole list, by `seed`, which must be one for all shards.
        Beyond DALI.
      num_shards: parts that the list is split into: part i of S begins at entry ``floor(i*N/S)``.
      shard_id: the part to read, ``0 .. num_shards - 1``.
      stick_to_shard: read this part in every epoch, not the next one.
      pad_last_batch: repeat a shard's last sample until all shards are equally long and the last batch is full.
      seed: seed of `random_shuffle`; negative: the pipeline's.
      on_error: what becomes of a record that can't be read: "raise": its batch fails. "replace": a later one of the list takes its place.
        "skip": its batch goes without it. The last two are reported by `Pipeline.bad_samples`. Beyond DALI.
      storage: how URLs are read: `jaxdali.Storage`. Beyond DALI; all paths may be URLs.
      device: "cpu" or None.
      name: of the reader, for ``reader_name`` and error messages.

    Returns:
      (image ``uint8[bytes]``, label ``float32[labels]``) of each record, in the order of their offsets. Their source_info is the file's
      path and the offset in it.

    Raises:
      ValueError, TypeError: arguments that contradict each other or are out of range.
      RuntimeError: at build, a file or an index that can't be read. A record that is truncated, or that is not where the index says, fails
        when its batch runs; also every record of a file that has changed since.

    Unlike in DALI, each file may have its own index, no record may reach from one file into the next, and the order of
    `random_shuffle` is not DALI's own.

    Example:
      >>> jpegs, labels = fn.readers.mxnet(path="train.rec", index_path="train.idx", random_shuffle=True, name="reader")
    """
    ...
