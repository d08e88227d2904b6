"""readers.tfrecord: features of the examples in TFRecord files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Unpack

import numpy as np

from ... import _cpu
from ..._core.building import add
from ..._core.context import HostContext
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._core.values import Spec
from ..._cpu import RecordFormat
from ..._data.compressed_extents import CompressedExtents
from ..._data.containers import ExtentRecords, Extents, check_indices, indexed
from ..._data.examples import FeatureMetadata
from ..._data.files import Files, Paths
from ..._data.index import tfrecord_extents
from ...tfrecord import Feature
from .._decode.examples import ExampleOutputs, outputs_of
from ._reader import ContainerArguments, Reader, by_name

# Bytes around the data of a record: before them its length (8) and a CRC-32C of that (4), after them their CRC-32C.
_HEADER, _FOOTER = 12, 4


class _Examples(ExtentRecords):
    """The examples of TFRecord files."""

    format = RecordFormat.EXAMPLE

    def __init__(self, op: ReadTFRecord):
        """Finds the records by the indices, or in the files if there are none."""
        self._outputs = op.outputs
        self.fields = tuple(self._outputs.parts.fields)
        super().__init__(self._find(op))
        self.doubts = self._doubts(self.extents)
        # Other metadata are features, which are read a second time.
        names = [n for n in op.metadata_names if n not in self.facts()]
        self._features = FeatureMetadata(
            names, lambda i: self.extents.content(i)[_HEADER:-_FOOTER], lambda i: self.name(i)
        )

    @staticmethod
    def _find(op: ReadTFRecord) -> Extents:
        """The records of the files."""
        files = Files.of(op.path, op.storage, compressions=("GZIP", "ZLIB"), known=op.compression_type or "")
        indices = files.store.expand(op.index_path) if op.index_path else None
        if indices is not None:
            check_indices(files, indices)
        if files.compression:
            return CompressedExtents(op.name, files, indices)
        return Extents(files, *indexed(op.name, files, indices, tfrecord_extents))

    @staticmethod
    def _doubts(extents: Extents) -> list[str]:
        """A text for `doubts` about files whose records go on after those of the index; [] if there are none."""
        if isinstance(extents, CompressedExtents):  # the decompressed size is not known
            return []
        ends = [extents.table[i:k].sum(1).max(initial=0) for i, k in zip(extents.bounds, extents.bounds[1:])]
        partial = np.flatnonzero(np.array(ends) < extents.sizes)
        if not len(partial):
            return []
        first = int(partial[0])
        remainder = f" and {len(partial) - 1} more" if len(partial) > 1 else ""
        return [
            f"the index of {extents.files.path(first)}{remainder} ends before the file does, at {ends[first]} of "
            f"{extents.sizes[first]} bytes: the records after that are left out; python -m jaxdali.index writes the index anew"
        ]

    @property
    def specs(self) -> tuple[Spec, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._outputs.specs

    def new_layout(self) -> _cpu.RecordLayout:
        return self._outputs.new_layout(self.format)

    @classmethod
    def read_batch(cls, ctx: HostContext, parts: Sequence[tuple[Any, np.ndarray]], threads: Any) -> tuple[Any, ...]:
        """See `Records.read_batch`. Native code finds, parses and copies the records, without `threads`."""
        outputs: ExampleOutputs = parts[0][0]._outputs
        with contextlib.ExitStack() as stack:
            return outputs.filled(ctx, cls.scanned(ctx, parts, threads, stack))

    def metadata(self, name: str) -> Callable[[int], Any] | None:
        return self._features.function(name) or super().metadata(name)


class ReadTFRecord(Reader):
    """`readers.tfrecord`; `features` and `sequence_features` are names and features, one for each output."""

    name: ClassVar[str] = "readers.tfrecord"

    path: Paths
    index_path: Paths | None
    features: tuple[tuple[str, Feature], ...]
    sequence_features: tuple[tuple[str, Feature], ...] = ()
    compression_type: Literal["", "GZIP", "ZLIB"] | None = None

    @property
    def outputs(self) -> ExampleOutputs:
        return outputs_of(self.features, self.sequence_features)

    @property
    def num_arrays(self) -> int:
        return len(self.features) + len(self.sequence_features)

    def open(self) -> _Examples:
        return _Examples(self)


class TFRecordArguments(ContainerArguments, total=False):
    """DALI's hints to `tfrecord`; files are never mapped here."""

    dont_use_mmap: bool | None


@operator_function("readers.tfrecord")
def tfrecord(
    *,
    path: Paths,
    index_path: Paths | None = None,
    features: Mapping[str, Feature] | None = None,
    sequence_features: Mapping[str, Feature] | None = None,
    compression_type: Literal["", "GZIP", "ZLIB"] | None = None,
    use_o_direct: bool = False,
    **order: Unpack[TFRecordArguments],
) -> dict[str, DataNode]:
    """Reads features of the examples in TFRecord files.

    Files that TensorFlow compressed by GZIP or ZLIB are read, too (not in DALI). Such a file is decompressed once when
    the pipeline is built, to find its records; with an index, only when records are read. Records are read in blocks of
    1 MB (more in lists of more than 2 GB), each from a restart point in memory of about 50 KB, at most 2048 of them.
    Blocks are kept in a cache of 512 MB for each shard of the process. Lists that fit into it are
    shuffled like those of other files; others are shuffled by blocks, which come in random order into a buffer of 256
    MB, from which records are drawn, so that each block is decompressed once in an epoch.

    Differs from DALI: the checksums (CRC) of a record are compared when it is first read; a wrong checksum, including
    zeros, is an error of the record.

    Args:
      path: paths of the TFRecord files, which are read one after another. Patterns (``*``, ``?``, ``[``, ``{a,b}``,
        ``{000..127}``) stand for files, the matches of wildcards in byte order, without ``X.idx`` if they match ``X``. A
        path that exists is literal.
      index_path: paths or patterns of their indices, one for each, as ``python -m jaxdali.index`` (or DALI's
        tfrecord2idx) writes them; one that ends before its file does warns. Without it, the index ``X.idx`` beside a
        file ``X`` is used if it fits it and is not older (not in DALI), but not if ``X`` is compressed, because it can't
        be compared with the file then. A missing index is made in memory when the pipeline is built, with a warning.
      features: the features to read, by their names in the examples, as in `parse_example`: in DALI's forms,
        `tfrecord.FixedLenFeature(shape, dtype, default)` and `tfrecord.VarLenFeature(dtype, default)`, or in those of
        TensorFlow.
      sequence_features: the feature lists to read, if the records are SequenceExamples, as in `parse_example`. Not in
        DALI.
      metadata: what to give of each record besides the features, as Python objects for `python_function` and for the
        lists of a batch (see the other readers; not in DALI). "index", "source_info", "filename", "offset", "record"
        (the number of the record in its file), or any other feature of the examples: numbers, or bytes, which are `str`
        if they are UTF-8; a list of them if they are several; None in an example without the feature. The record is
        then read a second time.
      compression_type: "GZIP" or "ZLIB", by which all files are compressed, as in ``tf.data.TFRecordDataset``. None or
        "": local files are recognized by their first bytes; so are URLs whose names end as those of compressed files
        (".gz", ".zlib"). Not in DALI.
      use_o_direct: has no effect, but needs `dont_use_mmap`, as in DALI.

    Returns:
      A dictionary by the names of features and metadata: ``uint8[bytes]`` for one string, ``uint8[n, longest]`` of
      layout "F*" for several, ``int64`` or ``float32`` of the feature's shape for numbers, objects for metadata. Their
      source_info is the file's path and the offset in it.

    Raises:
      ValueError, TypeError: arguments that contradict each other or are out of range.
      RuntimeError: when the pipeline is built, a file or an index can't be read. A record that is truncated, has a
        wrong checksum, or is not where the index says, fails when its batch runs, and so does every record of a file
        that has changed since.

    Differs from DALI: checksums are checked once for each record; a feature that a record lacks gets its default (or is
    empty if it has no shape), and without a default it is an error; more or fewer values or strings than the shape
    needs are an error; and `random_shuffle` gives another order.

    Example:
      >>> inputs = fn.readers.tfrecord(path="train-00000", index_path="train-00000.idx",
      ...                              features={"image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, ""),
      ...                                        "image/class/label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1)})
      >>> images = fn.decoders.image(inputs["image/encoded"])
    """
    if use_o_direct and not order.get("dont_use_mmap"):
        raise ArgumentError("use_o_direct=True needs dont_use_mmap=True")
    outputs = ExampleOutputs.of(features, sequence_features)
    op = ReadTFRecord(
        path=path,
        index_path=index_path,
        features=outputs.features,
        sequence_features=outputs.sequence_features,
        compression_type=compression_type,
        **ReadTFRecord.shared(order),
    )
    nodes = add(op, device="cpu", name=order.get("name"))
    return by_name(op, outputs.names, nodes)
