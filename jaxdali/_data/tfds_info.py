"""Data sets of TensorFlow Datasets (TFDS): what the JSON files in their folders say of features, splits and files.

``features.json`` describes the features, and ``dataset_info.json`` the splits: the number of records in each file, and
the template of the files' names. TFDS writes both as Protocol Buffers in JSON (``feature.proto`` and
``dataset_info.proto`` in it), where whole numbers may be strings; its earlier versions wrote features in another form,
as ``{"type": class, "content": arguments}``.

Names in these files are data: those of files may only lead to files in the folder.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from .._core.errors import ArgumentError, cut, quoted
from .._core.names import did_you_mean
from .files import Path, utf8
from .named_in_data import check_name
from .storage import Store
from .urls import is_url, join

_INFO, _FEATURES = "dataset_info.json", "features.json"
FORMATS = ("tfrecord", "array_record")
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_MODULE = "tensorflow_datasets.core.features."  # other modules have features of users
_DTYPES = {np.dtype(t).name: np.dtype(t) for t in (
    np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float32,
    np.float64, ml_dtypes.bfloat16,
)}  # fmt: skip
_MOST_AXES = 32
_LARGEST_TENSOR = 1 << 30  # bytes, with 8 for each number: the default of `Storage.max_record_bytes`
_LARGEST = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True)
class StoredFeature:
    """A feature of the examples of a data set, which may be nested in others.

    Attributes:
      name: in the examples. The names of nested features are joined by "/".
      kind: its class in TFDS.
      dtype: of its elements; None: it is a string, or an encoded file.
      shape: of one item; None: the extent varies.
      lengths: the length of each sequence that it is an element of, outermost first; None: it varies.
      encoding: "none", or how the numbers of an item are one string: "bytes" or "zlib" (compressed).
      optional: whether an example may lack it.
      labels: the name of the file with the names of its classes, if it is a class.
      refusal: the reason why it can't be read; "" if it can.
    """

    name: str
    kind: str
    dtype: np.dtype | None = None
    shape: tuple[int | None, ...] = ()
    lengths: tuple[int | None, ...] = ()
    encoding: str = "none"
    optional: bool = False
    labels: str | None = None
    refusal: str = ""

    @property
    def is_list_of_strings(self) -> bool:
        """Whether it is several strings or files, and not in nested sequences."""
        return self.dtype is None and len(self.lengths) < 2 and len(self.lengths + self.shape) > 0

    @property
    def default(self) -> Any:
        """The value of all elements in an example that lacks the feature, which is optional."""
        if self.dtype is None:
            return b""
        if self.dtype == bool:
            return False
        if self.dtype.kind in "iu":
            return int(np.iinfo(self.dtype).min)
        return float(max(ml_dtypes.finfo(self.dtype).min, np.finfo(np.float32).min))  # stored as float32


class FileSlice(NamedTuple):
    """Records ``begin`` to ``end - 1`` of a file, by its number in `Contents.files`.

    Attributes:
      part: the number of the part of the split that they belong to, of those that "+" joins.
    """

    file: int
    begin: int
    end: int
    part: int


@dataclasses.dataclass(frozen=True)
class Contents:
    """The records of a split.

    Attributes:
      format: of the files, one of `FORMATS`.
      files: their paths.
      lengths: the number of records in each.
      slices: the records of the split, in its order.
    """

    format: str
    files: tuple[str, ...]
    lengths: tuple[int, ...]
    slices: tuple[FileSlice, ...]


@dataclasses.dataclass(frozen=True)
class Split:
    """A split as it is stored. See `DataSetInfo.contents` for parts of splits.

    Attributes:
      lengths: the number of records in each file.
      template: of the names of its files.
    """

    name: str
    lengths: tuple[int, ...]
    template: str


class DataSetInfo:
    """A data set, described by its JSON files.

    Args:
      path: its folder, which has these files.
      store: reads them.

    Attributes:
      features: by their names.
      splits: by their names.

    Raises:
      RuntimeError: a file can't be read, or is damaged.
    """

    def __init__(self, path: Path, store: Store):
        self._store = store
        self._folder = store.named(os.path.expanduser(path))
        try:
            info = self._read(_INFO)
        except FileNotFoundError as e:
            raise RuntimeError(self._no_data_set()) from e
        try:
            self._name = _text(info, "name")
            self._formats = [_text(info, "file_format") or FORMATS[0], *_list(info, "alternative_file_formats")]
            splits = [_split(x) for x in _list(info, "splits")]
        except ValueError as e:
            raise RuntimeError(f"{join(self._folder, _INFO)}: {e}") from None
        self.splits = {s.name: s for s in splits}
        try:
            tree, file = self._read(_FEATURES), _FEATURES
        except FileNotFoundError as e:
            tree, file = _field(info, "features"), _INFO
            if not isinstance(tree, dict):
                text = "data sets of TFDS before 4.0 have none, and can't be read"
                raise RuntimeError(f"{self._folder} has no {_FEATURES}: {text}") from e
        try:
            self.features = _features(tree)
        except (ValueError, RecursionError) as e:
            raise RuntimeError(f"{join(self._folder, file)}: {cut(str(e))}") from None

    def _read(self, file: str) -> dict[str, Any]:
        """A JSON file of the folder. Raises RuntimeError, or FileNotFoundError."""
        path = join(self._folder, file)
        try:
            tree = json.loads(utf8(self._store.read(path)))
        except FileNotFoundError:
            raise
        except OSError as e:
            raise RuntimeError(f"can't read {path}: {e.strerror}") from e.__cause__
        except (ValueError, RecursionError) as e:
            raise RuntimeError(f"{path} is damaged: {cut(str(e))}") from None
        if not isinstance(tree, dict):
            raise RuntimeError(f"{path} is damaged: it has no object, but {quoted(tree)}")
        return tree

    def _no_data_set(self) -> str:
        """A message for a folder without the JSON file, which may be the folder of several versions."""
        text = f"{self._folder} has no {_INFO}: path must be the folder of one version of a data set, e.g. mnist/3.0.1"
        if is_url(self._folder):
            return text
        folder = glob.escape(self._folder)
        versions = [v for depth in ("*", "*/*") for v in glob.glob(os.path.join(folder, depth, _INFO))]
        names = sorted(os.path.dirname(os.path.relpath(v, self._folder)) for v in versions)
        return f"{text}; it has {cut(', '.join(names))}" if names else text

    def selected(self, names: Sequence[str] | None) -> list[StoredFeature]:
        """The features of these names, in this order; a name may be that of a group. None: all.

        Raises:
          ArgumentError: there is no such feature, or it can't be read.
        """
        groups = [self._group(name) for name in names] if names is not None else [list(self.features.values())]
        result = list(dict.fromkeys(f for group in groups for f in group))
        refused = [f"{quoted(f.name)} {f.refusal}" for f in result if f.refusal]
        if refused:
            readable = [f.name for f in self.features.values() if not f.refusal]
            advice = f"features={cut(str(readable))} leaves out what can't be read" if readable else "none can be read"
            raise ArgumentError(f"feature {'; '.join(refused)}: {advice}")
        if not result:
            raise ArgumentError("features is empty" if names is not None else "the data set has no features")
        return result

    def _group(self, name: str) -> list[StoredFeature]:
        """The feature of a name, or the features in it."""
        if name in self.features:
            return [self.features[name]]
        group = [f for f in self.features.values() if f.name.startswith(f"{name}/")]
        if not group:
            # Features within one that can't be read have no entries of their own.
            group = [f for f in self.features.values() if f.refusal and name.startswith(f"{f.name}/")]
        if not group:
            similar = did_you_mean(name, self.features, use=None)
            raise ArgumentError(
                f"features has {quoted(name)}, but the data set does not; it has {cut(', '.join(self.features))}{similar}"
            )
        return group

    def contents(self, spec: str) -> Contents:
        """The records of a split, such as ``train[:80%]+test``, in the form that TFDS has.

        Raises:
          ArgumentError: there is no such split, or it is empty.
          RuntimeError: the files are of another format, or their names lead elsewhere.
        """
        parts = [(spec, 0, None)] if spec in self.splits else self._parts(spec)
        file_format = next((f for f in self._formats if f in FORMATS), None)
        if file_format is None:
            raise RuntimeError(
                f"{self._folder}: the files are {cut(', '.join(map(str, self._formats)))}; only {' and '.join(FORMATS)} can be read"
            )
        numbers: dict[tuple[str, int], int] = {}  # of the files in the result, by split and number in it
        slices = list[FileSlice]()
        for part, (name, begin, end) in enumerate(parts):
            first = 0
            for k, n in enumerate(self.splits[name].lengths):
                a, b = max(begin - first, 0), n if end is None else min(end - first, n)
                if a < b:
                    slices.append(FileSlice(numbers.setdefault((name, k), len(numbers)), a, b, part))
                first += n
        if not slices:
            raise ArgumentError(f"split {quoted(spec)} has no records")
        return Contents(
            file_format,
            tuple(self._file(self.splits[name], k, file_format) for name, k in numbers),
            tuple(self.splits[name].lengths[k] for name, k in numbers),
            tuple(slices),
        )

    def _parts(self, spec: str) -> list[tuple[str, int, int | None]]:
        """The parts of splits (name, first record, record after the last; None: up to the end) that a text names."""
        if spec == "all":
            return [(name, 0, None) for name in self.splits]
        return [
            p for x in re.split(r"\s*\+\s*", spec) for p in (self._parts(x) if x == "all" else [self._part(x, spec)])
        ]

    def _part(self, text: str, spec: str) -> tuple[str, int, int | None]:
        """One part. Boundaries are rounded as TFDS rounds them."""
        match = _PART.fullmatch(text)
        if match is None:
            raise ArgumentError(
                f"split {quoted(spec)}: {quoted(text)} is no part of a split; such are 'train', 'train[:80%]', 'train[100:200]', "
                f"'train[-10%:]', 'train[2shard]', 'all', and several with '+'"
            )
        name, rounding = match["name"], match["rounding"]
        if name == "all":
            raise ArgumentError(f"split {quoted(spec)}: 'all' has no slices")
        if name not in self.splits:
            similar = did_you_mean(name, self.splits, use=None)
            raise ArgumentError(f"there is no split {quoted(name)}; there are {cut(', '.join(self.splits))}{similar}")
        split = self.splits[name]
        try:
            begin, end = _boundaries(match, split.lengths, rounding)
        except ValueError as e:
            raise ArgumentError(f"split {quoted(spec)}: {e}") from None
        return name, begin, end

    def _file(self, split: Split, k: int, file_format: str) -> str:
        """The path of a file of a split. Raises RuntimeError if its name leads elsewhere."""
        total = len(split.lengths)
        digits = max(len(str(total)), 5)
        index, count = f"{k:0{digits}}", f"{total:0{digits}}"
        values = {
            "DATASET": self._name, "SPLIT": split.name, "FILEFORMAT": file_format, "SHARD_INDEX": index,
            "NUM_SHARDS": count, "SHARD_X_OF_Y": f"{index}-of-{count}",
        }  # fmt: skip
        try:
            name = re.sub(r"\{([^{}]*)\}", lambda variable: values[variable[1]], split.template)
            check_name(name, self._folder, self._store.settings, absolute=False)
        except KeyError as e:
            raise RuntimeError(
                f"{join(self._folder, _INFO)}: the template {quoted(split.template)} of split {quoted(split.name)} has a "
                f"variable {quoted(e.args[0])}, which is unknown"
            ) from None
        except ValueError as e:
            raise RuntimeError(f"{join(self._folder, _INFO)}: split {quoted(split.name)}: {e}") from None
        self._store.named_by_data([name])
        return join(self._folder, name)

    def class_names(self, feature: StoredFeature) -> list[str] | None:
        """The names of a feature's classes; None if there are none.

        Raises:
          RuntimeError: the file can't be read.
        """
        if feature.labels is None:
            return None
        path = join(self._folder, feature.labels)
        try:
            check_name(feature.labels, self._folder, self._store.settings, absolute=False)
            lines = utf8(self._store.read(path)).decode().split("\n")
        except FileNotFoundError:
            return None
        except OSError as e:
            raise RuntimeError(f"can't read {path}: {e.strerror}") from e.__cause__
        except ValueError as e:
            raise RuntimeError(f"{path}: {cut(str(e))}") from None
        return [line.strip() for line in lines if line.strip()]


# --- splits -----------------------------------------------------------------------------------------------------------

# A split, with a slice and a rounding: train[:80%], train[2shard], train[:80%](pct1_dropremainder)
_BOUNDARY = r"(?:-?[\d_.]+(?:%|shard)?)?"
_PART = re.compile(
    rf"(?P<name>[\w-]+)(?:\[(?:(?P<begin>{_BOUNDARY}):(?P<end>{_BOUNDARY})|(?P<only>-?[\d_]+)shard)\])?(?:\((?P<rounding>\w+)\))?"
)


def _boundaries(match: re.Match[str], lengths: Sequence[int], rounding: str | None) -> tuple[int, int | None]:
    """(first record, record after the last one) of a part of a split. None: it ends with the split.

    Raises:
      ValueError: the boundaries are not in the split.
    """
    total = sum(lengths)
    if match["only"] is not None:
        k = int(match["only"])
        begin, end, unit = k, k + 1, "shard"
    elif match["begin"] is None:
        if rounding is not None:
            raise ValueError("a rounding belongs to a slice in percent")
        return 0, None
    else:
        texts = match["begin"], match["end"]
        if not any(texts):
            raise ValueError("a slice needs a number")
        units = [re.sub(r"[-\d_.]", "", t) for t in texts]
        unit = units[0] or units[1]
        numbers = [t.removesuffix(u) for t, u in zip(texts, units)]
        try:
            begin, end = (None if not x else float(x) if unit == "%" else int(x) for x in numbers)
        except ValueError:
            raise ValueError("boundaries are whole numbers of records or shards, or numbers of percent") from None
    if rounding not in (None, "closest", "pct1_dropremainder"):
        raise ValueError(f"the rounding must be closest or pct1_dropremainder, got {rounding}")
    if rounding and unit != "%":
        raise ValueError("a rounding belongs to a slice in percent")
    if unit == "%":
        if any(x is not None and not abs(x) <= 100 for x in (begin, end)):
            raise ValueError("percent must be between -100 and 100")
        if rounding == "pct1_dropremainder":
            if total < 100:
                raise ValueError(f"pct1_dropremainder needs at least 100 records, the split has {total}")
            begin, end = (None if x is None else math.trunc(x * (total // 100)) for x in (begin, end))
        else:  # half to even, in this order of operations
            begin, end = (None if x is None else round(x * total / 100.0) for x in (begin, end))
    elif unit == "shard":
        assert begin is None or isinstance(begin, int)
        assert end is None or isinstance(end, int)
        begin = None if begin is None else sum(lengths[:begin])
        # Zero means the end, as in TFDS: -1shard is the slice from -1 to 0.
        end = None if end is None else sum(lengths[: end if end > 0 else len(lengths) + end])
    begin, end = int(begin or 0), total if end is None else int(end)
    if abs(begin) > total or abs(end) > total:
        raise ValueError(f"the slice [{begin}:{end}] is not in the split, which has {total} records")
    begin, end = begin + total * (begin < 0), end + total * (end < 0)
    if begin > end:  # TFDS takes a negative number of records then
        raise ValueError(f"the slice [{begin}:{end}] ends before it begins")
    return begin, end


def _split(tree: Any) -> Split:
    """A split of ``dataset_info.json``. Raises ValueError."""
    name = _text(tree, "name")
    lengths = tuple(_whole(n, "a length of a file") for n in _list(tree, "shard_lengths"))
    if any(n < 0 for n in lengths):
        raise ValueError(f"split {quoted(name)} has a file of {min(lengths)} records")
    if not lengths and _field(tree, "num_shards"):
        raise ValueError(f"split {quoted(name)} has no shardLengths: data sets of TFDS before 4.0 can't be read")
    return Split(name, lengths, _text(tree, "filepath_template") or _TEMPLATE)


# --- features ---------------------------------------------------------------------------------------------------------


def _features(tree: Any) -> dict[str, StoredFeature]:
    """The features of ``features.json`` by name. Raises ValueError."""
    kind, content, is_message = _class_of(tree)
    if kind != f"{_MODULE}features_dict.FeaturesDict":
        raise ValueError(f"the features are {quoted(kind)}, not a FeaturesDict")
    result: dict[str, StoredFeature] = {}
    for feature in _features_in(_dictionary(content, is_message), "", "", ()):
        if feature.name in result:
            raise ValueError(f"two features have the name {quoted(feature.name)}")
        result[feature.name] = feature
    return result


def _features_in(
    group: Mapping[str, Any], prefix: str, labels: str, lengths: tuple[int | None, ...]
) -> Iterator[StoredFeature]:
    """The features in a dictionary of features.

    Args:
      prefix: of their names.
      labels: prefix of the names of files with classes.
      lengths: of the sequences that the dictionary is an element of.
    """
    for name, tree in group.items():
        yield from _features_of(tree, f"{prefix}{name}", f"{labels}{name.replace('/', '.')}", lengths)


def _features_of(tree: Any, name: str, labels: str, lengths: tuple[int | None, ...]) -> Iterator[StoredFeature]:
    """The feature `name`, or the features in it."""
    kind, content, is_message = _class_of(tree)
    short = kind.rpartition(".")[2] if kind.startswith(_MODULE) else ""
    if len(lengths) > _MOST_AXES:
        raise ValueError(f"feature {quoted(name)} is in more than {_MOST_AXES} sequences")
    if short == "FeaturesDict":
        yield from _features_in(_dictionary(content, is_message), f"{name}/", f"{labels}-", lengths)
    elif short == "Sequence":
        length = _field(content, "length")
        yield from _features_of(
            _field(content, "feature"), name, labels, (*lengths, _extent(-1 if length is None else length))
        )
    else:
        yield _feature(content, name, kind, short, f"{labels}.labels.txt", lengths)


def _feature(
    content: Any, name: str, kind: str, short: str, labels: str, lengths: tuple[int | None, ...]
) -> StoredFeature:
    """A feature that has no others in it.

    Args:
      kind: its class; `short`: its name, if it is a class of TFDS.
      labels: the name of a file with classes.
    """
    feature = StoredFeature(name, short or kind, lengths=lengths)
    refused = lambda reason: dataclasses.replace(feature, refusal=f"is {reason}")
    if short in ("Image", "LabeledImage"):
        if _text(content, "dtype") == "float32":
            return refused(f"an {short} of float32, which can't be read")
    elif short == "Video":
        shape = _shape(content)
        feature = dataclasses.replace(feature, lengths=(*lengths, shape[0] if shape else None))
    elif short == "ClassLabel":
        feature = dataclasses.replace(feature, dtype=np.dtype(np.int64), labels=labels)
    elif short == "BBoxFeature":
        feature = dataclasses.replace(feature, dtype=np.dtype(np.float32), shape=(4,))
    elif short == "Text":
        if _field(content, "use_encoder"):
            return refused("a Text with an encoder, which can't be read")
        # The file doesn't say whether a text is optional.
        feature = dataclasses.replace(feature, optional=True)
    elif short in ("Tensor", "Scalar", "Audio") and not (short == "Audio" and _field(content, "lazy_decode")):
        dtype = _text(content, "dtype")
        if dtype not in _DTYPES and dtype not in ("string", "object"):
            return refused(f"a {short} of {cut(dtype) or 'no dtype'}, which can't be read")
        encoding = (_text(content, "encoding") or "none").lower()
        if encoding not in ("none", "bytes", "zlib"):
            return refused(f"a {short} with the encoding {quoted(encoding)}, which is unknown")
        feature = dataclasses.replace(
            feature,
            dtype=_DTYPES.get(dtype),
            shape=() if short == "Scalar" else _shape(content),
            encoding=encoding,
            optional=bool(_field(content, "optional")),
        )
    elif short != "Audio":
        return refused(f"a {cut(short or kind)}, which can't be read")
    if 0 in (*feature.lengths, *feature.shape):
        return refused(f"a {short} without elements, which can't be read")
    extents = [n for n in (*feature.lengths, *feature.shape) if n is not None]
    if math.prod(extents) * (8 if feature.dtype is not None else 1) > _LARGEST_TENSOR:
        return refused(f"a {short} of the shape {cut(str((*feature.lengths, *feature.shape)))}, which is too large")
    unknown = feature.shape.count(None)
    article = "an" if short == "Audio" else "a"
    if lengths and unknown:
        return refused(f"a Sequence of a {short} of varying shape, which can't be read")
    if unknown + (len(lengths) == 1 and lengths[0] is None) > 1 and feature.encoding == "none":
        return refused(f"{article} {short} with several varying extents and no encoding, which can't be read")
    return feature


def _class_of(tree: Any) -> tuple[str, Any, bool]:
    """(class, content, whether the content is a message of Protocol Buffers) of a feature. Raises ValueError."""
    if not isinstance(tree, dict):
        raise ValueError(f"a feature is {quoted(tree)}")
    if "type" in tree:
        content = tree.get("content") or {}
        if isinstance(content, str):
            content = json.loads(content)
        return _text(tree, "type"), content, bool(tree.get("proto_cls"))
    if json_feature := _field(tree, "json_feature"):
        return _text(tree, "python_class_name"), json.loads(_text(json_feature, "json")), False
    contents = [x for x in tree.values() if isinstance(x, dict)]
    return _text(tree, "python_class_name"), contents[0] if contents else {}, True


def _dictionary(content: Any, is_message: bool) -> Mapping[str, Any]:
    """The features in a FeaturesDict."""
    features = (_field(content, "features") or {}) if is_message else content
    if not isinstance(features, dict):
        raise ValueError(f"the features of a FeaturesDict are {quoted(features)}")
    return features


def _shape(content: Any) -> tuple[int | None, ...]:
    """The shape of a feature. Raises ValueError."""
    shape = _field(content, "shape")
    extents = _list(shape, "dimensions") if isinstance(shape, dict) else shape or []
    if not isinstance(extents, list) or len(extents) > _MOST_AXES:
        raise ValueError(f"a shape is {quoted(shape)}")
    return tuple(_extent(-1 if n is None else n) for n in extents)


def _extent(x: Any) -> int | None:
    """An extent; None if it is -1."""
    n = _whole(x, "an extent")
    if n < -1:
        raise ValueError(f"an extent is {n}")
    return None if n == -1 else n


# --- messages of Protocol Buffers in JSON -----------------------------------------------------------------------------


def _field(message: Any, name: str) -> Any:
    """A field of a message, whose name may also be in camel case; None if it is not there."""
    if not isinstance(message, dict):
        raise ValueError(f"an object with {name!r} was expected, got {quoted(message)}")
    camel = re.sub(r"_(\w)", lambda letter: letter[1].upper(), name)
    return message.get(camel, message.get(name))


def _text(message: Any, name: str) -> str:
    """A field that is a text; "" if it is not there."""
    x = _field(message, name)
    if x is not None and not isinstance(x, str):
        raise ValueError(f"{name} is {quoted(x)}, not a text")
    return x or ""


def _list(message: Any, name: str) -> list[Any]:
    """A field that is a list; empty if it is not there."""
    x = _field(message, name)
    if x is not None and not isinstance(x, list):
        raise ValueError(f"{name} is {quoted(x)}, not a list")
    return x or []


def _whole(x: Any, name: str) -> int:
    """A whole number, which may be written as a text."""
    if isinstance(x, bool) or not isinstance(x, (int, str)) or not re.fullmatch(r"-?\d{1,19}", str(x)):
        raise ValueError(f"{name} is {quoted(x)}, not a whole number")
    n = int(x)
    if n > _LARGEST:
        raise ValueError(f"{name} is {n}")
    return n
