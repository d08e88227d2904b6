"""readers.mxnet: images and labels of MXNet's RecordIO files."""

from __future__ import annotations

from typing import ClassVar, Unpack

import numpy as np

from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._core.values import Spec
from ..._cpu import RecordFormat
from ..._data.containers import ExtentRecords, Extents, RecordField, check_indices, read_indices
from ..._data.files import Files, Paths
from ._reader import ContainerArguments, Reader


class _ImageRecords(ExtentRecords):
    """The records of RecordIO files, in the order in which they are stored."""

    format = RecordFormat.IMAGE_RECORD
    fields = (
        RecordField("image", 0, Spec(np.dtype(np.uint8), 1, None)),
        RecordField("label", 1, Spec(np.dtype(np.float32), 1, None)),
    )

    def __init__(self, op: ReadMXNet):
        """Makes the table of the records, ``i64[records, 2]``: offset and size of each in its file, from the indices."""
        files = Files.of(op.path, op.storage)
        assert files.sizes is not None
        indices = files.store.expand(op.index_path)
        # Rows of `table` are (key, offset). `bounds` has the first row of each file, and the number of rows.
        table, bounds = read_indices(indices, files.store)
        if len(indices) == 1 < len(files):  # one index for all files: offsets continue from file to file
            begins = np.cumsum([0, *files.sizes])
            table = table[np.argsort(table[:, 1])]
            bounds = np.array([0, *np.searchsorted(table[:, 1], begins[1:-1]), len(table)])
            table[:, 1] -= np.repeat(begins[:-1], np.diff(bounds))
        else:
            check_indices(files, indices)
        # Rows of `table` become offset and size. A record ends where the next one begins, or at the file's end.
        for k, size in enumerate(files.sizes):
            rows = table[bounds[k] : bounds[k + 1]]
            if not len(rows):
                continue
            # All is done in place, as there may be millions of records; the keys in column 0 are not needed.
            offsets = rows[:, 0]
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
    def num_arrays(self) -> int:
        return 2

    def open(self) -> _ImageRecords:
        return _ImageRecords(self)


class MXNetArguments(ContainerArguments, total=False):
    """DALI's hints to `mxnet`; files are never mapped here."""

    dont_use_mmap: bool | None


@operator_function(ReadMXNet)
def mxnet(
    *,
    path: Paths,
    index_path: Paths,
    **order: Unpack[MXNetArguments],
) -> list[DataNode]:
    """Reads images and labels from MXNet's RecordIO files.

    Args:
      path: paths of the ``.rec`` files, which are read one after another. Patterns (``*``, ``?``, ``[``, ``{a,b}``,
        ``{000..127}``) stand for files, the matches of wildcards in byte order. A path that exists is literal.
      index_path: paths or patterns of their ``.idx`` files, one for each, as MXNet's im2rec.py writes them: lines with
        a key and an offset. Or one for all, whose offsets continue from file to file, as in DALI.
      metadata: names, each of which adds an output of Python objects after the others, for `python_function` and for
        the lists of a batch (not in DALI). "filename"; "offset", in bytes, and "record", the number, in the file;
        "index": the number in the list; "source_info".

    Returns:
      (image ``uint8[bytes]``, label ``float32[labels]``) of each record, in the order of their offsets. Their
      source_info is the file's path and the offset in it. A batch of single labels is ``[N, 1]``; ``labels[:, 0]`` is
      ``[N]``.

    Raises:
      ValueError, TypeError: arguments that contradict each other or are out of range.
      RuntimeError: when the pipeline is built, a file or an index can't be read. A record that is truncated, or not
        where the index says, fails when its batch runs, and so does every record of a file that has changed since.

    Differs from DALI: each file may have its own index, no record may reach from one file into the next, and
    `random_shuffle` gives another order.

    Example:
      >>> jpegs, labels = fn.readers.mxnet(path="train.rec", index_path="train.idx", random_shuffle=True, name="reader")
    """
    ...
