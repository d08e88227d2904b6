"""readers.tfrecord: features of the examples in TFRecord files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Unpack

import numpy as np

from ..._core.building import add
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._core.values import Spec
from ..._cpu import RecordFormat
from ..._data.containers import ExtentRecords, Extents, RecordField, check_indices, indexed
from ..._data.examples import features_of
from ..._data.files import Files, Paths
from ..._data.index import tfrecord_extents
from ..._data.listed import ContainerArguments, Reader, by_name
from ...tfrecord import Feature, FeatureType

# Bytes around the data of a record: before them its length (8) and a CRC-32C of that (4), after them their CRC-32C.
_HEADER, _FOOTER = 12, 4
_DTYPES = {FeatureType.int64: np.int64, FeatureType.float32: np.float32, FeatureType.string: np.uint8}


def _field(number: int, name: str, feature: Feature) -> RecordField:
    """The output of a feature. `number` is that of the feature in the records' layout."""
    dtype = np.dtype(_DTYPES[feature.dtype])
    if feature.dtype == FeatureType.string:
        return RecordField(f"feature {name!r}", number, Spec(dtype, 1, None), default=feature.text)
    elif feature.shape is not None:
        spec = Spec(dtype, len(feature.shape), feature.shape)
    else:
        dims = (None, *feature.partial_shape)
        spec = Spec(dtype, len(dims), None, "", dims)
    # A feature without a fixed shape is empty if a record lacks it.
    return RecordField(f"feature {name!r}", number, spec, default=feature.default if spec.shape is not None else None)


class _Examples(ExtentRecords):
    """The examples of TFRecord files."""

    format = RecordFormat.EXAMPLE

    def __init__(self, op: ReadTFRecord):
        """Finds the records by the indices, or in the files if there are none. `fields` are the outputs."""
        self.names = tuple(name for name, _ in op.features)
        self.fields = tuple(_field(k, name, feature) for k, (name, feature) in enumerate(op.features))
        files = Files.of(op.path, op.storage)
        indices = files.store.expand(op.index_path) if op.index_path else [None] * len(files)
        check_indices(files, indices)
        super().__init__(Extents(files, *indexed(op.name, files, indices, tfrecord_extents)))
        # Other metadata are features that are read a second time, see `metadata`.
        self._metadata_features = [n for n in op.metadata_names if n not in self.facts()]
        self._last: tuple[int, dict[str, Any]] = -1, {}  # the number of a record, and its features

    def metadata(self, name: str) -> Callable[[int], Any] | None:
        """See `Records.metadata`. The features of the last record are kept, for the functions of other names."""
        if name not in self._metadata_features:
            return super().metadata(name)

        def feature(i: int) -> Any:
            """The feature of record `i`; None if it has none of this name."""
            number, features = self._last
            if number != i:
                try:
                    features = features_of(self.extents.content(i)[_HEADER:-_FOOTER], self._metadata_features)
                except ValueError as e:
                    raise ValueError(f"{self.name(i)}: {e}") from e
                self._last = i, features
            return features.get(name)

        return feature


class ReadTFRecord(Reader):
    """`readers.tfrecord`; `features` are names and features, one for each output."""

    name: ClassVar[str] = "readers.tfrecord"

    path: Paths
    index_path: Paths | None
    features: tuple[tuple[str, Feature], ...]

    @property
    def num_arrays(self) -> int:
        return len(self.features)

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
    features: Mapping[str, Feature],
    use_o_direct: bool = False,
    **order: Unpack[TFRecordArguments],
) -> dict[str, DataNode]:
    """Reads features of the examples in TFRecord files.

    Differs from DALI: the checksums (CRC) of a record are compared when it is first read; a wrong checksum, including
    zeros, is an error of the record.

    Args:
      path: paths of the TFRecord files, which are read one after another. Patterns (``*``, ``?``, ``[``, ``{a,b}``,
        ``{000..127}``) stand for files, the matches of wildcards in byte order. A path that exists is literal.
      index_path: paths or patterns of their indices, one for each, as ``python -m jaxdali.index`` (or DALI's
        tfrecord2idx) writes them. A missing index is made in memory when the pipeline is built, with a warning.
      features: the features to read, by their names in the examples: `tfrecord.FixedLenFeature` or
        `tfrecord.VarLenFeature`.
      metadata: what to give of each record besides the features, as Python objects for `python_function` and for the
        lists of a batch (see the other readers; not in DALI). "index", "source_info", "filename", "offset", "record"
        (the number of the record in its file), or any other feature of the examples: numbers, or bytes, which are `str`
        if they are UTF-8; a list of them if they are several; None in an example without the feature. The record is
        then read a second time.
      use_o_direct: has no effect, but needs `dont_use_mmap`, as in DALI.

    Returns:
      A dictionary by the names of features and metadata: ``uint8[bytes]`` for strings, ``int64`` or ``float32`` of the
      feature's shape for numbers, objects for metadata. Their source_info is the file's path and the offset in it.

    Raises:
      ValueError, TypeError: arguments that contradict each other or are out of range.
      RuntimeError: when the pipeline is built, a file or an index can't be read. A record that is truncated, has a
        wrong checksum, or is not where the index says, fails when its batch runs, and so does every record of a file
        that has changed since.

    Differs from DALI: checksums are checked once for each record; a feature that a record lacks gets its default (or is
    empty if it has no shape); more or fewer values than the shape needs are an error; and `random_shuffle` gives
    another order.

    Example:
      >>> inputs = fn.readers.tfrecord(path="train-00000", index_path="train-00000.idx",
      ...                              features={"image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, ""),
      ...                                        "image/class/label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1)})
      >>> images = fn.decoders.image(inputs["image/encoded"])
    """
    if use_o_direct and not order.get("dont_use_mmap"):
        raise ArgumentError("use_o_direct=True needs dont_use_mmap=True")
    op = ReadTFRecord(
        path=path,
        index_path=index_path,
        features=tuple(features.items()),
        **ReadTFRecord.shared(order),
    )
    nodes = add(op, device="cpu", name=order.get("name"))
    return by_name(op, [*features], nodes)
