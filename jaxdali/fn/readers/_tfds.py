"""readers.tfds: data sets that TensorFlow Datasets (TFDS) has written."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np

from ... import tfrecord
from ..._core.building import add, user_line
from ..._core.context import HostContext
from ..._core.errors import ArgumentError, OperatorError, cut, quoted
from ..._core.graph import DataNode
from ..._core.names import did_you_mean
from ..._core.operator_function import operator_function
from ..._core.ragged import Packed
from ..._core.values import Spec
from ..._cpu import Status
from ..._data.containers import Extents
from ..._data.files import Files, Path, as_list
from ..._data.records import Entries, Records
from ..._data.storage import Storage, Store
from ..._data.tfds_extents import found_extents
from ..._data.tfds_info import Contents, DataSetInfo, StoredFeature
from ...tfrecord import Feature
from .._decode.examples import ExampleOutputs, padded_rows
from . import _array_record, _tfrecord
from ._reader import ContainerArguments, Reader, by_name

_STORED = {"i": tfrecord.int64, "u": tfrecord.int64, "b": tfrecord.int64, "f": tfrecord.float32}
_FACTS = ("index", "source_info", "filename", "record", "tfds_id")  # metadata of all records
Batch = np.ndarray | Packed | list[np.ndarray]  # an output of `Records.read_batch`


@dataclasses.dataclass(frozen=True)
class _Output:
    """An output of the reader, and how it is made of what is stored.

    Attributes:
      name: of the output.
      stored: the features of the examples of which it is made, by their names; the first is that with the values.
      dtype: to which numbers are cast; None: they are as they are stored.
      item: of an output whose items are stored as bytes: the feature; None for others.
      levels: the number of levels of rows into which the values are divided, by the last of the stored features.
      only_string: whether it is a list of a single string, which the parser takes for a string.
    """

    name: str
    stored: tuple[tuple[str, Feature], ...]
    dtype: np.dtype | None = None
    item: StoredFeature | None = None
    levels: int = 0
    only_string: bool = False

    @property
    def is_stored(self) -> bool:
        """Whether it is as it is stored."""
        return self.dtype is None and self.item is None and not self.levels and not self.only_string

    def spec(self, stored: Spec) -> Spec:
        """The spec of the output. `stored`: that of its first stored feature."""
        if self.only_string:
            return Spec(stored.dtype, 2, None, "F*", (1, None))
        dtype = stored.dtype if self.dtype is None else self.dtype
        if self.item is not None:
            assert self.item.dtype is not None
            dtype, shape = self.item.dtype, (*self.item.lengths, *self.item.shape)
        elif self.levels:
            assert stored.dims is not None
            shape = (*[None] * self.levels, *stored.dims)
        else:
            return dataclasses.replace(stored, dtype=dtype)
        extents = None if None in shape else tuple(n for n in shape if n is not None)
        return Spec(dtype, len(shape), extents, "", shape if extents is None else None)

    def convert(
        self,
        stored: Sequence[Batch],
        first_spec: Spec,
        failed: set[int],
        fail: Callable[..., None],
        settings: Storage,
        run: Callable[..., Iterable[Any]],
    ) -> Batch:
        """Makes the output of a batch of its stored features.

        Args:
          first_spec: of the first stored feature.
          failed: the samples that failed before, and that are not converted.
          fail: is called as `HostContext.fail` for each other sample that can't be converted.
          settings: limit the size of what is decompressed.
          run: `map`, or that of threads.
        """
        x = stored[0]
        if self.only_string:
            assert isinstance(x, Packed)
            return Packed(x.data, x.offsets, np.concatenate([np.ones((len(x), 1), np.int64), x.shapes], axis=1))
        if self.item is None and not self.levels:
            with np.errstate(all="ignore"):  # gaps between samples have any numbers
                if isinstance(x, Packed):
                    return Packed(x.data.astype(self.dtype), x.offsets, x.shapes)
                return (
                    x.astype(self.dtype) if isinstance(x, np.ndarray) else [sample.astype(self.dtype) for sample in x]
                )
        spec = self.spec(first_spec)

        def sample_or_reason(i: int) -> np.ndarray | str:
            """A sample, or the reason why it can't be converted."""
            try:
                return self._sample([s[i] for s in stored], settings)
            except (ValueError, zlib.error) as e:
                return f"feature {self.name!r}: {e}"

        numbers = [i for i in range(len(x)) if i not in failed]
        samples = [np.zeros(spec.shape or (0,) * spec.ndim, spec.dtype)] * len(x)
        for i, sample in zip(numbers, run(sample_or_reason, numbers)):
            if isinstance(sample, str):
                fail(i, Status.RECORD, sample)
            else:
                samples[i] = sample
        return np.stack(samples) if spec.shape is not None else samples

    def _sample(self, stored: Sequence[np.ndarray], settings: Storage) -> np.ndarray:
        """A sample of its stored features. Raises ValueError or zlib.error if it is damaged."""
        values, levels = stored[: len(stored) - self.levels], stored[len(stored) - self.levels :]
        if self.item is not None:
            rows = _decoded(self.item, values, settings)
        else:
            rows = values[0] if self.dtype is None else values[0].astype(self.dtype)
        # The innermost level divides the values, and each one before it the rows.
        for lengths in reversed(levels):
            rows = _divided(rows, lengths, settings)
        return rows


def _divided(values: np.ndarray, lengths: np.ndarray, settings: Storage) -> np.ndarray:
    """Values divided into rows of these lengths, ``[rows, longest, ...]``, where zeros follow shorter ones. Raises
    ValueError if there are not so many, or the result is larger than the settings allow.
    """
    if (len(lengths) and (lengths.min() < 0 or lengths.max() > len(values))) or lengths.sum() != len(values):
        raise ValueError(f"its row lengths don't divide its {len(values)} elements")
    shape = (len(lengths), int(lengths.max(initial=0)), *values.shape[1:])
    if reason := settings.too_large(math.prod(shape) * values.itemsize):
        raise ValueError(reason)
    return padded_rows(values, lengths)


def _decoded(feature: StoredFeature, stored: Sequence[np.ndarray], settings: Storage) -> np.ndarray:
    """The numbers of a sample whose items are stored as bytes.

    Args:
      stored: the bytes; then the shape of the item, if several extents vary; or, of a sequence, the lengths of its
        items.

    Raises:
      ValueError, zlib.error: the sample is damaged.
    """
    assert feature.dtype is not None
    if not feature.lengths:
        return _decoded_item(feature, stored[0].data, stored[1] if len(stored) > 1 else None, settings)
    items = [_decoded_item(feature, row[:n].data, None, settings) for row, n in zip(stored[0], stored[1].tolist())]
    if len(feature.lengths) == 1 and feature.lengths[0] not in (None, len(items)):
        raise ValueError(f"it has {len(items)} items, not {feature.lengths[0]}")
    shape = tuple(n or 0 for n in feature.shape)
    return np.stack(items) if items else np.zeros((0, *shape), feature.dtype)


def _decoded_item(feature: StoredFeature, data: Any, extents: np.ndarray | None, settings: Storage) -> np.ndarray:
    """An item of its bytes. `extents`: its shape, if that is stored."""
    dtype, shape = feature.dtype, feature.shape
    assert dtype is not None
    if extents is not None:
        stated = tuple(extents.tolist())
        if min(stated, default=0) < 0 or any(n not in (None, m) for n, m in zip(shape, stated, strict=True)):
            raise ValueError(f"its shape is stated as {stated}, and must be {shape}")
        shape = stated
    row_bytes = math.prod(n for n in shape if n is not None) * dtype.itemsize
    largest = min(row_bytes, settings.record_bytes) if None not in shape else settings.record_bytes
    if feature.encoding == "zlib":
        inflater = zlib.decompressobj()
        content = inflater.decompress(data, largest + 1)
        if not inflater.eof and len(content) <= largest:
            raise ValueError("its compressed data are cut off")
    else:
        content = data
    if len(content) > settings.record_bytes:
        raise ValueError(settings.too_large(len(content)))
    varying = len(content) // row_bytes if row_bytes else 0  # the extent of None
    shape = tuple(varying if n is None else n for n in shape)
    if len(content) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"it has {len(content)} bytes, which are no array of {dtype} of the shape {feature.shape}")
    return np.frombuffer(content, dtype).reshape(shape)


def _outputs_of(feature: StoredFeature) -> list[_Output]:
    """The outputs of a feature: its values, and of nested sequences the lengths of rows."""
    name, dtype = feature.name, feature.dtype
    stored_type = (
        tfrecord.string
        if dtype is None or feature.encoding != "none"
        else _STORED[dtype.kind if dtype.kind in _STORED else "f"]
    )
    # What examples have is int64, float32, or strings; all else is cast.
    cast = None if dtype is None or dtype.name in ("int64", "float32") or feature.encoding != "none" else dtype
    rows = [f"{name}/ragged_row_lengths_{k}" for k in range(len(feature.lengths) - 1)]
    lengths = [(row, tfrecord.FixedLenFeature((None,), tfrecord.int64, [])) for row in rows]
    row_outputs = [_Output(f"{name}/row_lengths_{k}", (x,)) for k, x in enumerate(lengths)]
    key = f"{name}/ragged_flat_values" if rows else name
    if feature.encoding != "none" and feature.lengths:
        items = tfrecord.FixedLenFeature((None,), tfrecord.string, [])
        sizes = tfrecord.LengthsFeature(key)
        stored = ((key, items), (f"lengths of {name}", sizes), *lengths)
        return [_Output(name, stored, item=feature, levels=len(rows)), *row_outputs]
    if feature.encoding != "none":
        if feature.shape.count(None) < 2:
            return [_Output(name, ((name, tfrecord.FixedLenFeature((), tfrecord.string)),), item=feature)]
        shape = tfrecord.FixedLenFeature((len(feature.shape),), tfrecord.int64)
        value = tfrecord.FixedLenFeature((), tfrecord.string)
        return [_Output(name, ((f"{name}/value", value), (f"{name}/shape", shape)), item=feature)]
    if rows:
        values = tfrecord.FixedLenFeature((None, *feature.shape), stored_type, [])
        return [_Output(name, ((key, values), *lengths), cast, levels=len(rows)), *row_outputs]
    shape = feature.lengths + feature.shape
    default = [] if None in shape else feature.default if feature.optional else None
    values = tfrecord.FixedLenFeature(shape, stored_type, default)
    return [_Output(name, ((name, values),), cast, only_string=stored_type is tfrecord.string and shape == (1,))]


def _selected(info: DataSetInfo, names: Sequence[str] | None) -> tuple[_Output, ...]:
    """The outputs of the features of these names; None: of all. Raises ArgumentError."""
    if names is None:
        features = info.selected(None)
        return tuple(x for f in features for x in _outputs_of(f))
    outputs: dict[str, _Output] = {}
    for name in names:
        owner = info.features.get(name.removesuffix("/lengths"))
        if name.endswith("/lengths") and name not in info.features and owner is not None:
            if not owner.is_list_of_strings:
                raise ArgumentError(
                    f"features has {quoted(name)}, but {quoted(owner.name)} is no list of strings or encoded files"
                )
            values = _outputs_of(owner)[0].stored[0]
            outputs[name] = _Output(name, ((f"lengths of {owner.name}", tfrecord.LengthsFeature(owner.name)), values))
        else:
            outputs |= {x.name: x for f in info.selected([name]) for x in _outputs_of(f)}
    if not outputs:
        raise ArgumentError("features is empty")
    return tuple(outputs.values())


def _classes(info: DataSetInfo, names: Sequence[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The names of metadata that are names of classes, and all classes of each.

    Raises:
      ArgumentError: there is no metadata of a name.
      RuntimeError: the names can't be read.
    """
    result, all_names = [], [*_FACTS]
    for feature in info.features.values():
        if not feature.refusal and len(feature.lengths) < 2 and feature.encoding == "none":
            all_names += [feature.name, f"{feature.name}/name"] if feature.labels else [feature.name]
    for name in names:
        if name not in all_names:
            similar = did_you_mean(name, all_names, use=None)
            raise ArgumentError(f"there is no metadata {quoted(name)}; there are {cut(', '.join(all_names))}{similar}")
        if name in info.features or name in _FACTS:
            continue
        feature = info.features[name.removesuffix("/name")]
        class_names = info.class_names(feature)
        if class_names is None:
            raise ArgumentError(
                f"there is no metadata {quoted(name)}: the classes of {quoted(feature.name)} have no names"
            )
        result.append((name, tuple(class_names)))
    return tuple(result)


class _SplitRecords(Entries):
    """The records of a split.

    Args:
      op: the reader.
      records: all records of the files of which the split has some, with the stored features.
    """

    def __init__(self, op: ReadTFDS, records: Records):
        """Raises RuntimeError if a file has another number of records than ``dataset_info.json`` says."""
        contents, bounds = op.contents, records.bounds
        for path, n, size in zip(contents.files, contents.lengths, np.diff(bounds).tolist(), strict=True):
            if size != n:
                raise RuntimeError(f"{path} has {size} records, dataset_info.json says {n}")
        index = [np.arange(bounds[x.file] + x.begin, bounds[x.file] + x.end) for x in contents.slices]
        super().__init__(records, np.concatenate(index), f"slices {[x[:3] for x in contents.slices]}")
        sizes = np.array([*map(len, index)])
        if op.weights is not None:  # they are those of the parts that "+" joins
            sizes = np.bincount([x.part for x in contents.slices], sizes).astype(np.int64)
        self.bounds = np.cumsum([0, *sizes[sizes > 0]])
        self._op = op
        names = [name for name, _ in op.stored]
        # The numbers of the stored features of which each output is made.
        self._sources = [[names.index(name) for name, _ in x.stored] for x in op.outputs]
        self.specs = tuple(x.spec(records.specs[k[0]]) for x, k in zip(op.outputs, self._sources))
        self.digest += f", outputs {[x.name for x in op.outputs]}"

    @property
    def reads_alone(self) -> bool:
        return False

    def facts(self) -> dict[str, Callable[[int], Any]]:
        """See `Records.facts`. Paths are those of the files, and "record" is the number in one."""
        facts = self._records.facts()

        def of_record(name: str) -> Callable[[int], Any]:
            return lambda i: facts[name](int(self._index[i]))

        filename, record = of_record("filename"), of_record("record")
        return {
            "index": int,
            "source_info": self.name,
            "filename": filename,
            "record": record,
            "tfds_id": lambda i: f"{filename(i).rpartition('/')[2]}__{record(i)}",
        }

    def metadata(self, name: str) -> Callable[[int], Any] | None:
        """See `Records.metadata`. Other names are those of features; that of a class with "/name" gives its name."""
        if name in self.facts():
            return self.facts()[name]
        classes = dict(self._op.classes)
        values = super().metadata(name.removesuffix("/name") if name in classes else name)
        if values is None:
            return None

        def stored(i: int) -> Any:
            x = values(i)
            return [x] if name in self._op.lists and x is not None and not isinstance(x, list) else x

        if name not in classes:
            return stored
        class_names = classes[name]

        def name_of(number: int) -> str | None:
            """The name of a class; None for -1, by which TFDS marks records without a class."""
            if not -1 <= number < len(class_names):
                raise ValueError(f"{name!r}: there is no class {number}, only {len(class_names)}")
            return None if number == -1 else class_names[number]

        def names_of(i: int) -> Any:
            number = stored(i)
            return [*map(name_of, number)] if isinstance(number, list) else None if number is None else name_of(number)

        return names_of

    @classmethod
    def read_batch(
        cls, ctx: HostContext, parts: Sequence[tuple[_SplitRecords, np.ndarray]], threads: Any
    ) -> tuple[Any, ...]:
        """See `Records.read_batch`. The list with the records parses them; what is stored in another form than it is
        given is converted.
        """
        first, failed = parts[0][0], set[int]()
        # By number of a stored feature: the output that it is, whose buffers it may take.
        places = {k[0]: i for i, (x, k) in enumerate(zip(first._op.outputs, first._sources)) if x.is_stored}

        def fail(i: int, code: int, reason: str = ""):
            failed.add(i)
            ctx.fail(i, code, reason)

        def empty(elements: int, dtype: Any, index: int = 0) -> np.ndarray:
            return ctx.empty(elements, dtype, places[index]) if index in places else np.empty((ctx.S, elements), dtype)

        stored_ctx = dataclasses.replace(ctx, specs=first._records.specs, empty=empty, fail=fail)
        stored = super().read_batch(stored_ctx, parts, threads)
        run = map if threads is None or ctx.num_threads == 1 else threads.map
        settings = first._op.storage or Storage()
        return tuple(
            stored[k[0]]
            if x.is_stored
            else x.convert([stored[i] for i in k], first._records.specs[k[0]], failed, fail, settings, run)
            for x, k in zip(first._op.outputs, first._sources)
        )


class _TFRecordExamples(_tfrecord._Examples):
    """The examples of TFRecord files, which need no indices."""

    @staticmethod
    def _find(op: _tfrecord.ReadTFRecord) -> Extents:
        return found_extents(Files.of(op.path, op.storage))


class ReadTFDS(Reader):
    """`readers.tfds`.

    Attributes:
      contents: the records of the split.
      outputs: what is given of each record.
      classes: names of metadata, and the names of the classes of each.
      lists: the names of the metadata that are lists in each record, also if a list has one element.
    """

    name: ClassVar[str] = "readers.tfds"

    contents: Contents
    outputs: tuple[_Output, ...]
    classes: tuple[tuple[str, tuple[str, ...]], ...]
    lists: tuple[str, ...]

    @property
    def num_arrays(self) -> int:
        return len(self.outputs)

    @property
    def stored(self) -> tuple[tuple[str, Feature], ...]:
        """The stored features of all outputs by their names."""
        return tuple(dict(x for output in self.outputs for x in output.stored).items())

    def open(self) -> _SplitRecords:
        # Other metadata than those of all records are stored features, too.
        names = dict.fromkeys(n.removesuffix("/name") if n in dict(self.classes) else n for n in self.metadata_names)
        shared: Any = {"path": self.contents.files, "storage": self.storage, "metadata": tuple(names)}
        if self.contents.format == "array_record":
            op = _array_record.ReadArrayRecord(**shared)
            return _SplitRecords(self, _array_record._ArrayExamples(op, ExampleOutputs(self.stored)))
        op = _tfrecord.ReadTFRecord(features=self.stored, index_path=None, **shared)
        return _SplitRecords(self, _TFRecordExamples(op))


@operator_function("readers.tfds")
def tfds(
    path: Path,
    *,
    split: str,
    features: str | Sequence[str] | None = None,
    **order: Unpack[ContainerArguments],
) -> dict[str, DataNode]:
    """Reads a data set that TensorFlow Datasets (TFDS) has written, by the path of its folder. Not in DALI.

    The JSON files in the folder tell names, types and splits. Neither TensorFlow nor TFDS is needed.

    Args:
      path: the folder of one version of the data set, such as ``~/tensorflow_datasets/mnist/3.0.1``, with
        ``dataset_info.json``, ``features.json`` and the files of records, TFRecord or ArrayRecord.
      split: the split in TFDS's form: "train"; "train[:80%]", "train[-10%:]" (percent, rounded as by TFDS),
        "train[100:200]" (records), "train[:3shard]", "train[2shard]" (files); several with "+"; "all". A slice in percent
        may end with ``(pct1_dropremainder)``, TFDS's other way of rounding.
      features: the names of the features to read, in this order; of nested ones joined by "/": "objects/bbox". The name
        of a group stands for all in it. Default: all.
      metadata: what to give of each record besides the features, as Python objects for `python_function` and for the
        lists of a batch (see the other readers). "index", the number of the record in the split; "source_info",
        "filename"; "record", the number of the record in its file; "tfds_id", as ``ReadConfig(add_tfds_id=True)`` adds it;
        "label/name" for a ClassLabel "label": the name of the class, None for -1 (all names are in the folder, in
        ``label.labels.txt``); or another feature that is not read, as it is stored: numbers, or bytes, which are `str` if
        they are UTF-8. The record is then read a second time.
      weights: in what proportion the records of the parts of `split` come that "+" joins, e.g. ``(0.7, 0.3)`` for
        "train+test". They are mixed evenly, and an epoch has each record at least once: records of a part that is too
        small for its weight are repeated.

    Returns:
      A dictionary by the names of features and metadata. Records come in the order of the files, as ``tfds.data_source``
      gives them, and ``tfds.load`` with ``ReadConfig(interleave_cycle_length=1)``.

      * Image, LabeledImage: the encoded file, ``uint8[bytes]``, for `decoders.image`.
      * Text, Tensor and Scalar of strings, Audio with ``lazy_decode``: ``uint8[bytes]``.
      * ClassLabel: ``int64``, a scalar.
      * BBoxFeature: ``float32[4]``, with TFDS's numbers: ``(ymin, xmin, ymax, xmax)``, unless the data set was made with
        another ``bbox_format``.
      * Tensor, Scalar, Audio: its dtype and shape, decompressed if it is stored so.
      * Sequence: one more axis in front. Several strings or encoded files (Video, too) are ``uint8[n, longest]``, where
        zeros follow shorter ones; `decoders.image` makes a sequence of images of them. "NAME/lengths" in `features`
        gives their numbers of bytes, ``int64[n]``.
      * Sequence of a Sequence: ``[rows, longest, ...]``, where zeros follow shorter rows, and the lengths of the rows as
        "NAME/row_lengths_0" (of the next level "NAME/row_lengths_1", ...), ``int64[rows]``.

      A Sequence of a dictionary is a dictionary of Sequences, as in TFDS.

    Raises:
      ValueError, TypeError: arguments that contradict each other or are out of range; a split or a feature that the data
        set does not have; a feature of another class, such as Dataset or Translation, unless `features` leaves it out.
      OperatorError: there is no data set in the folder, its JSON files are damaged, or its files are in another format
        (Riegeli, Parquet).
      RuntimeError: when the pipeline is built, a file can't be read, or has another number of records than
        ``dataset_info.json`` says. A record that is damaged or has other features fails when its batch runs.

    To find the records of a TFRecord file, its index ``FILE.idx`` is read, as ``python -m jaxdali.index`` writes it. If
    there is none, each record's size is read when the pipeline is built; a remote file is then read once completely,
    unless ``Storage(cache_dir=...)`` has kept the result.

    Example:
      >>> data = fn.readers.tfds("~/tensorflow_datasets/oxford_iiit_pet/4.0.0", split="train[:90%]", features=["image", "label"])
      >>> images = fn.decoders.image(data["image"])
    """
    store = Store(order.get("storage"))
    try:
        info = DataSetInfo(path, store)
        outputs = _selected(info, None if features is None else as_list(features))
        metadata = as_list(order.get("metadata") or ())
        classes = _classes(info, metadata)
        features_of_names = [(n, info.features.get(n) or info.features.get(n.removesuffix("/name"))) for n in metadata]
        lists = tuple(name for name, feature in features_of_names if feature and (feature.lengths or feature.shape))
        contents = info.contents(split)
    except ArgumentError:
        raise
    except RuntimeError as e:
        raise OperatorError(ReadTFDS.name, user_line(), str(e)) from e.__cause__
    finally:
        store.close()
    op = ReadTFDS(contents=contents, outputs=outputs, classes=classes, lists=lists, **ReadTFDS.shared(order))
    nodes = add(op, device="cpu", name=order.get("name"))
    return by_name(op, [x.name for x in outputs], nodes)
