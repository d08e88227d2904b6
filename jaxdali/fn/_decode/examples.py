"""The outputs of TensorFlow's examples (``tf.train.Example`` and ``tf.train.SequenceExample``), which native code
parses.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import _cpu
from ..._core.context import HostContext, context_of
from ..._core.errors import ArgumentError, ArgumentTypeError
from ..._core.ragged import Packed, pack
from ..._core.values import Spec
from ..._cpu import RecordFormat, RecordShape, Status, ValueType
from ..._data.containers import RecordField, fill_outputs
from ...tfrecord import Feature, FeatureType, Partition

_DTYPES = {FeatureType.int64: np.int64, FeatureType.float32: np.float32, FeatureType.string: np.uint8}
_VALUES = {
    FeatureType.int64: ValueType.INTS,
    FeatureType.float32: ValueType.FLOATS,
    FeatureType.string: ValueType.BYTES,
}


@dataclasses.dataclass(frozen=True)
class _PartitionedRows:
    """An output of rows, which partitions make of values.

    Attributes:
      values: the number of the native output with the values.
      partitions: each with the number of the native output with its numbers (-1: it has none), the outermost first.
      lengths: whether the output is the lengths of the rows, in place of the rows.
    """

    values: int
    partitions: tuple[tuple[Partition, int], ...]
    lengths: bool = False


@dataclasses.dataclass(frozen=True)
class ExampleOutputs:
    """The outputs that features describe.

    Args:
      features: names and features of an Example, or of the context of a SequenceExample.
      sequence_features: those of the feature lists of a SequenceExample.

    Attributes:
      parts: what native code parses, and what is made of it.

    Raises:
      ArgumentError, ArgumentTypeError: features that contradict each other, or that the argument can't have.
    """

    features: tuple[tuple[str, Feature], ...]
    sequence_features: tuple[tuple[str, Feature], ...] = ()

    def __post_init__(self):
        object.__setattr__(self, "parts", _Parts(self))

    if TYPE_CHECKING:

        @property
        def parts(self) -> _Parts: ...

    @staticmethod
    def of(features: Mapping[str, Feature] | None, sequence_features: Mapping[str, Feature] | None) -> ExampleOutputs:
        """The outputs of the arguments `features` and `sequence_features`, which are checked."""
        dictionaries = {"features": features or {}, "sequence_features": sequence_features or {}}
        for argument, pairs in dictionaries.items():
            if not isinstance(pairs, Mapping):
                raise ArgumentTypeError(f"{argument} must be a dict from names to Features, got {pairs!r}")
            for name, feature in pairs.items():
                if not isinstance(name, str) or not isinstance(feature, Feature):
                    raise ArgumentTypeError(
                        f"{argument} must be a dict from names to Features, got {name!r}: {feature!r}"
                    )
        outputs = outputs_of(*(tuple(d.items()) for d in dictionaries.values()))
        if not outputs.names:
            raise ArgumentError("features and sequence_features are empty: there is nothing to parse")
        if ambiguous := {n for n, _ in outputs.features} & {n for n, _ in outputs.sequence_features}:
            raise ArgumentError(
                f"{min(ambiguous)!r} is in both features and sequence_features: names of outputs must be distinct"
            )
        return outputs

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return tuple(name for name, _ in (*self.features, *self.sequence_features))

    @property
    def specs(self) -> tuple[Spec, ...]:
        """The specs of the outputs."""
        return self.parts.specs

    def new_layout(self, format: RecordFormat) -> _cpu.RecordLayout:
        """The layout of records of this format, without outputs."""
        keys = self.parts.keys
        # DALI's reader of TFRecord files takes the first of several strings.
        firsts = {name for name, f in self.features if f.is_string and f.default is not None}
        firsts -= {f.key for _, f in self.features if f.kind == "RaggedFeature"}
        return _cpu.RecordLayout(
            format,
            [key for key, _ in keys],
            len(keys),
            lists=[is_list for _, is_list in keys],
            first_strings=[format is RecordFormat.EXAMPLE and key in firsts and not is_list for key, is_list in keys],
        )

    @functools.cached_property
    def message_layout(self) -> _cpu.RecordLayout:
        """The layout of records that are messages, with the outputs of native code."""
        layout = self.new_layout(RecordFormat.MESSAGE)
        for field in self.parts.fields:
            field.add_to(layout)
        return layout

    def parse(self, ctx: HostContext, records: Packed | np.ndarray | Sequence[np.ndarray]) -> tuple[Any, ...]:
        """The outputs of a batch of messages, ``uint8[bytes]`` each. Samples that can't be parsed fail."""
        batch = _cpu.RecordBatch(self.message_layout, ctx.N)
        if isinstance(records, Packed):
            sizes = np.where(ctx.present, records.shapes[:, 0], 0)
            batch.scan_rows(records.data, records.starts, sizes, ctx.pool)
        elif isinstance(records, np.ndarray):
            # A copy must live until the outputs are filled: the batch has no reference to it.
            records = np.ascontiguousarray(records)
            size = records.shape[1]
            starts = np.arange(len(records), dtype=np.int64) * size
            batch.scan_rows(records, starts, np.where(ctx.present, size, 0), ctx.pool)
        else:
            records = [*map(np.ascontiguousarray, records)]
            batch.scan_memory(records, ctx.pool)
        return self.filled(ctx, [batch])

    def filled(self, ctx: HostContext, batches: Sequence[_cpu.RecordBatch]) -> tuple[Any, ...]:
        """The outputs of scanned records, see `fill_outputs`."""
        parts = self.parts
        failed = set[int]()

        def fail(i: int, code: int, reason: str):
            failed.add(i)
            ctx.fail(i, code, reason)

        native = fill_outputs(ctx, [f.spec for f in parts.fields], batches, fail)
        return tuple(
            native[source] if isinstance(source, int) else _rows(ctx, native, source, spec, failed)
            for source, spec in zip(parts.sources, parts.specs)
        )

    def parse_one(self, record: np.ndarray) -> tuple[np.ndarray, ...]:
        """The outputs of one message. Raises ValueError if it can't be parsed."""
        reasons: list[str] = []

        def fail(i: int, code: int, reason: str = ""):
            reasons.append(reason)

        ctx = context_of(1, self.specs, fail, lambda n, dtype, k=0: np.empty((1, n), dtype), pool=_single_thread_pool())
        outputs = self.parse(ctx, [record])
        if reasons:
            raise ValueError(reasons[0])
        return tuple(x[0] for x in outputs)


# The outputs of these features, which are computed once for all operators.
outputs_of = functools.lru_cache(maxsize=256)(ExampleOutputs)


class _Parts:
    """The parts of `ExampleOutputs`.

    Attributes:
      keys: (name, whether it is a feature list) of each field that native code parses.
      fields: the outputs of native code. The first ones are outputs of the same numbers, as far as there are so many.
      sources: for each output, the number of its native output, or how it is made from some.
      specs: of the outputs.
    """

    def __init__(self, outputs: ExampleOutputs):
        self.keys: list[tuple[str, bool]] = []
        self.fields: list[RecordField] = []
        self.sources: list[int | _PartitionedRows] = []
        self.specs: tuple[Spec, ...] = ()
        specs: list[Spec] = []
        ragged: list[tuple[int, Feature]] = []  # the outputs that partitions make, which come last
        for is_list, pairs in ((False, outputs.features), (True, outputs.sequence_features)):
            by_name = dict(pairs)
            for name, feature in pairs:
                if is_list:
                    _check_of_list(name, feature)
                referred = feature
                if feature.kind == "LengthsFeature":
                    referred = _referred(name, feature, by_name, is_list)
                if referred.partitions:
                    # Set below, as their native outputs come after all others.
                    ragged.append((len(self.sources), referred if feature is referred else feature))
                    self.sources.append(-1)
                    specs.append(_spec_of_rows(feature, referred))
                    # A native output takes the place, so that buffers have the numbers of outputs.
                    values = RecordField("", 0, Spec(np.dtype(np.int64), 1, None))
                    self.fields.append(values)
                    continue
                key = referred.key if referred.kind == "RaggedFeature" and referred.key is not None else name
                if feature.kind == "LengthsFeature":
                    assert feature.key is not None
                    key = referred.key if referred.kind == "RaggedFeature" and referred.key else feature.key
                field = _field(self._number(key, is_list), key, feature, referred, is_list)
                self.sources.append(len(self.fields))
                self.fields.append(field)
                specs.append(field.spec)
        for k, feature in ragged:
            name = outputs.names[k]
            referred = feature
            if feature.kind == "LengthsFeature":
                assert feature.key is not None
                name, referred = feature.key, dict(outputs.features)[feature.key]
            self._add_rows(k, name, feature, referred)
        self.specs = tuple(specs)

    def _number(self, key: str, is_list: bool) -> int:
        """The number of a field in the layout."""
        if (key, is_list) not in self.keys:
            self.keys.append((key, is_list))
        return self.keys.index((key, is_list))

    def _add_rows(self, k: int, name: str, feature: Feature, referred: Feature):
        """Sets output `k`, which partitions make. Native output `k` becomes that of the values."""
        key = name if referred.key is None else referred.key
        without = dataclasses.replace(referred, partitions=(), key=key)
        self.fields[k] = _field(self._number(key, False), key, without, without, False)
        partitions: list[tuple[Partition, int]] = []
        for p in referred.partitions:
            number = -1
            if isinstance(p.key, str):
                number = len(self.fields)
                numbers = Feature("RaggedFeature", FeatureType.int64, key=p.key)
                self.fields.append(_field(self._number(p.key, False), p.key, numbers, numbers, False))
            partitions.append((p, number))
        self.sources[k] = _PartitionedRows(k, tuple(partitions), lengths=feature.kind == "LengthsFeature")


def _check_of_list(name: str, feature: Feature):
    """Raises ArgumentError if a feature list can't have this feature."""
    if feature.kind == "FixedLenFeature":
        raise ArgumentError(
            f"sequence_features has a FixedLenFeature, {name!r}: each feature list has its own number of steps; use "
            "FixedLenSequenceFeature(shape, dtype)"
        )
    if feature.partitions:
        raise ArgumentError(
            f"{name!r} in sequence_features is a RaggedFeature with partitions: the rows of a feature list are its steps"
        )
    if feature.kind == "VarLenFeature" and feature.shape:
        raise ArgumentError(f"{name!r} in sequence_features has a partial shape: only features outside have one")


def _referred(name: str, feature: Feature, by_name: Mapping[str, Feature], is_list: bool) -> Feature:
    """The feature whose lengths are asked for. Raises ArgumentError if it has none."""
    referred = by_name.get(feature.key or "")
    if referred is None:
        raise ArgumentError(f"{name!r} is LengthsFeature({feature.key!r}), but there is no such feature beside it")
    is_padded = is_list and referred.kind in ("VarLenFeature", "RaggedFeature")
    has_rows = len(referred.partitions) == 1 and referred.dtype != FeatureType.string
    is_list_of_strings = referred.dtype == FeatureType.string and not referred.partitions and not is_padded
    if referred.kind == "LengthsFeature" or not (
        has_rows or is_list_of_strings or (is_padded and referred.dtype != FeatureType.string)
    ):
        raise ArgumentError(
            f"{name!r} is LengthsFeature({feature.key!r}), but {feature.key!r} has no lengths: only lists of strings, and numbers in "
            "rows of a feature list or of one partition have them"
        )
    return referred


def _field(number: int, key: str, feature: Feature, referred: Feature, is_list: bool) -> RecordField:
    """The native output of a feature.

    Args:
      number: of the field in the layout.
      key: the name of the field in the records.
      feature: describes the output.
      referred: the feature itself, or the one whose lengths it gives.
    """
    name = f"{'feature list' if is_list else 'feature'} {key!r}"
    dtype = np.dtype(_DTYPES[referred.dtype])
    values = _VALUES[referred.dtype]
    is_string = referred.dtype == FeatureType.string
    kind, shape, default = referred.kind, referred.shape, referred.default
    required = (kind == "FixedLenFeature" and default is None) or (
        kind == "FixedLenSequenceFeature" and not referred.allow_missing
    )

    def field(spec: Spec, shape_kind: RecordShape | None = None, default: Any = None) -> RecordField:
        return RecordField(name, number, spec, default, False, shape_kind, values, required)

    if feature.kind == "LengthsFeature":
        lengths = None
        if default is not None:
            lengths = np.array([len(x) for x in _elements(default, shape)], np.int64)
        return field(Spec(np.dtype(np.int64), 1, None), RecordShape.LENGTHS, lengths)
    if is_list and kind != "FixedLenSequenceFeature":
        ndim = 3 if is_string else 2
        return field(Spec(dtype, ndim, None), RecordShape.PADDED)
    if referred.is_string:
        return field(Spec(dtype, 1, None), RecordShape.STRING, default)
    dims = shape if kind == "FixedLenFeature" else (None, *shape)
    if is_string:
        spec = Spec(dtype, len(dims) + 1, None, "F*" if len(dims) == 1 else "", (*dims, None))
        return field(spec, RecordShape.STRINGS, None if default is None else _padded(default, dims))
    if None not in dims:
        values_of_all = default if default is None or not isinstance(default, tuple) else np.array(default, dtype)
        return field(Spec(dtype, len(dims), tuple(_known(dims, 0))), None, values_of_all)
    spec = Spec(dtype, len(dims), None, "", dims)
    if default is not None:
        default = np.array(default, dtype).reshape(_known(dims, len(default)))
    # In a feature list the rows are counted, even if a row is one value: each step must have one.
    return field(spec, RecordShape.COUNT if len(dims) == 1 and not is_list else RecordShape.ROWS, default)


def _known(dims: Sequence[int | None], count: int) -> list[int]:
    """A shape of `count` elements, with its unknown extent known."""
    product = math.prod(n for n in dims if n is not None)
    return [count // product if n is None else n for n in dims]


def _elements(default: Any, dims: Sequence[int | None]) -> Sequence[bytes]:
    """The strings of a default value: one for each element."""
    if isinstance(default, tuple):
        return default
    return [default] * math.prod(n or 0 for n in dims)


def _padded(default: Any, dims: Sequence[int | None]) -> np.ndarray:
    """The strings of a default value as ``uint8[*dims, longest]``."""
    strings = _elements(default, dims)
    longest = max(map(len, strings), default=0)
    rows = b"".join(s.ljust(longest, b"\0") for s in strings)
    return np.frombuffer(rows, np.uint8).reshape(*_known(dims, len(strings)), longest)


def _spec_of_rows(feature: Feature, referred: Feature) -> Spec:
    """The spec of an output that partitions make."""
    if feature.kind == "LengthsFeature":
        return Spec(np.dtype(np.int64), 1, None)
    ndim = 1 + len(referred.partitions) + (referred.dtype == FeatureType.string)
    return Spec(np.dtype(_DTYPES[referred.dtype]), ndim, None)


def _rows(ctx: HostContext, native: Sequence[Any], rows: _PartitionedRows, spec: Spec, failed: set[int]) -> Any:
    """An output of rows: the samples, padded."""
    samples: list[np.ndarray] = []
    for i in range(ctx.N):
        sample = np.zeros((0,) * spec.ndim, spec.dtype)
        if ctx.present[i] and i not in failed:
            try:
                sample = _rows_of_sample([x[i] for x in native], rows)
            except ValueError as e:
                failed.add(i)
                ctx.fail(i, Status.RECORD, str(e))
        samples.append(sample)
    return pack(samples, ctx.S, lambda n, dtype: np.empty((ctx.S, n), dtype))


def _rows_of_sample(native: Sequence[np.ndarray], rows: _PartitionedRows) -> np.ndarray:
    """The rows of one sample. Raises ValueError if a partition contradicts the values."""
    values = native[rows.values]
    lengths = np.zeros(0, np.int64)
    # The innermost partition divides the values, and each one before it the rows.
    for partition, number in reversed(rows.partitions):
        lengths = _row_lengths(partition, None if number < 0 else native[number], len(values))
        longest = int(lengths.max(initial=0))
        if len(lengths) * longest * max(math.prod(values.shape[1:]), 1) > 1 << 30:
            raise ValueError(f"its rows of {partition.key!r} are too large: {len(lengths)}, padded to {longest} values")
        values = padded_rows(values, lengths)
    return lengths if rows.lengths else values


def padded_rows(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Values divided into rows, ``[rows, longest, ...]``, where zeros follow shorter ones. The lengths add up to the
    number of values.
    """
    rows = np.zeros((len(lengths), int(lengths.max(initial=0)), *values.shape[1:]), values.dtype)
    row = np.repeat(np.arange(len(lengths)), lengths)
    rows[row, np.arange(len(values)) - (np.cumsum(lengths) - lengths)[row]] = values
    return rows


def _row_lengths(partition: Partition, numbers: np.ndarray | None, count: int) -> np.ndarray:
    """The lengths of the rows into which a partition divides `count` values. Raises ValueError if it does not fit."""
    if numbers is None:
        assert isinstance(partition.key, int)
        if count % partition.key:
            raise ValueError(f"it has {count} values, not a multiple of the rows' length, {partition.key}")
        return np.full(count // partition.key, partition.key, np.int64)
    if partition.kind == "ValueRowIds":
        if len(numbers) != count or (count and (numbers[0] < 0 or numbers[-1] >= 1 << 31)):
            lengths = np.full(1, -1)
        else:
            is_sorted = (np.diff(numbers) >= 0).all()
            lengths = np.bincount(numbers) if is_sorted and (not count or numbers[-1] <= 1 << 26) else np.full(1, -1)
    elif partition.kind == "RowLengths":
        lengths = numbers
    else:
        # A missing partition divides no values.
        ends = numbers if len(numbers) or count else np.zeros(1, np.int64)
        if partition.kind == "RowStarts":
            ends = np.append(numbers, count)
        if partition.kind == "RowLimits":
            ends = np.append(0, numbers)
        lengths = np.diff(ends) if len(ends) and ends[0] == 0 else np.full(1, -1)
        if partition.kind == "RowStarts" and not len(numbers):
            lengths = np.zeros(0, np.int64) if not count else np.full(1, -1)
    if (lengths < 0).any() or int(lengths.sum()) != count or (lengths > count).any():
        raise ValueError(f"its feature {partition.key!r} ({partition.kind}) does not divide {count} values into rows")
    return lengths.astype(np.int64)


@functools.cache
def _single_thread_pool() -> int:
    """A native pool without further threads, for callers that parse different records in parallel themselves."""
    return _cpu.pool_create(1)
