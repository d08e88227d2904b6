"""Examples and tensors: the same as what TensorFlow made of 2,000 random messages, sound and damaged."""

import base64
import functools
import json
import lzma
import pathlib
from typing import Any

import containers
import numpy as np
import places
import pytest
import riegeli

import jaxdali.dynamic as jd
from jaxdali import OperatorError, SampleError, fn, pipeline_def, tfrecord


@functools.cache
def recorded() -> dict[str, Any]:
    """See `data/tf_examples.py`."""
    return json.loads(lzma.decompress((places.DATA / "tf_examples.json.xz").read_bytes()))


GROUPS = range(60)  # of the records
SOUND = 24  # records of each group that are not damaged
PARTITIONS = {
    "row_splits": tfrecord.RaggedFeature.RowSplits,
    "row_lengths": tfrecord.RaggedFeature.RowLengths,
    "row_starts": tfrecord.RaggedFeature.RowStarts,
    "row_limits": tfrecord.RaggedFeature.RowLimits,
    "value_rowids": tfrecord.RaggedFeature.ValueRowIds,
    "uniform_row_length": tfrecord.RaggedFeature.UniformRowLength,
}


def feature(kind: str, arguments: dict[str, Any]) -> Any:
    arguments = dict(arguments)
    if kind == "RaggedFeature":
        arguments["partitions"] = [PARTITIONS[name](x) for name, x in arguments.get("partitions", [])]
    if kind == "FixedLenSequenceFeature":
        arguments.pop("default_value", None)  # only batches of TensorFlow are padded with it
    return getattr(tfrecord, kind)(**arguments)


def array(x: list[Any]) -> Any:
    """A recorded array. Strings are an array of objects."""
    dtype, shape, data = x
    if dtype == "string":
        strings = np.empty(len(data), object)
        strings[:] = [base64.b64decode(s) for s in data]
        return strings.reshape(shape)
    return np.frombuffer(base64.b64decode(data), dtype).reshape(shape)


def is_array(x: Any) -> bool:
    return len(x) == 3 and isinstance(x[0], str)


def padded(rows: list[Any], depth: int, dtype: Any) -> np.ndarray:
    """Nested rows as one array, in which zeros, or empty strings, follow shorter rows."""
    if is_array(rows):
        return array(rows)
    parts = [padded(row, depth - 1, dtype) for row in rows]
    shape = np.max([(0,) * (depth - 1), *(p.shape for p in parts)], axis=0)
    result = np.full((len(parts), *shape), b"" if dtype is object else 0, dtype)
    for i, part in enumerate(parts):
        result[(i, *map(slice, part.shape))] = part
    return result


def bytes_of(strings: np.ndarray) -> np.ndarray:
    """Strings as ``uint8[*shape, longest]``."""
    longest = max(map(len, strings.ravel()), default=0)
    rows = [np.frombuffer(s.ljust(longest, b"\0"), np.uint8) for s in strings.ravel()]
    return np.array(rows, np.uint8).reshape(*strings.shape, longest)


def expected(kind: str, arguments: dict[str, Any], x: Any, sequence: bool) -> np.ndarray:
    """TensorFlow's output in the form that ours has."""
    if x[0] == "ragged":
        depth = 2 if sequence else 1 + len(arguments.get("partitions", []))
        result = padded(x[1], depth, object if arguments["dtype"] == "string" else arguments["dtype"])
    else:
        result = array(x)
    if result.dtype != object:
        return result
    if kind == "FixedLenFeature" and result.shape in ((), (1,)):
        return np.frombuffer(result.reshape(-1)[0], np.uint8)
    return bytes_of(result)


def assert_same(ours: Any, theirs: np.ndarray, dtype: str) -> None:
    ours = np.asarray(ours)
    assert ours.dtype == (np.uint8 if dtype == "string" else dtype)
    if theirs.size:
        assert ours.shape == theirs.shape
        assert ours.tobytes() == theirs.tobytes()  # NaNs, too
    else:  # what a sample without values has no size of is not compared
        assert (ours.size, ours.ndim, ours.shape[:1]) == (0, theirs.ndim, theirs.shape[:1])


class Group:
    """Records that are read with the same features.

    Attributes:
      records: the messages.
      outputs: TensorFlow's, None for those that it refuses.
      is_certain: whether a record must have these outputs. Others are unusual, and may be refused.
    """

    def __init__(self, number: int):
        group = recorded()["examples"][number]
        self.kinds = {name: (kind, a, False) for name, kind, a in group["features"]}
        self.kinds |= {name: (kind, a, True) for name, kind, a in group.get("sequence_features", [])}
        self.arguments: dict[str, Any] = {}
        for name, (kind, arguments, sequence) in self.kinds.items():
            features = self.arguments.setdefault("sequence_features" if sequence else "features", {})
            features[name] = feature(kind, arguments)
        self.records = [base64.b64decode(x) for x, *_ in group["records"]]
        self.outputs = [x for _, x, _ in group["records"]]
        self.is_certain = [x for *_, x in group["records"]]

    def compare(self, ours: dict[str, Any], i: int) -> None:
        """Compares the outputs of record `i` with TensorFlow's."""
        for name, (kind, arguments, sequence) in self.kinds.items():
            theirs = expected(kind, arguments, self.outputs[i][name], sequence)
            assert_same(ours[name], theirs, arguments["dtype"])


@pytest.mark.parametrize("number", GROUPS)
def test_examples_as_in_tensorflow(number):
    group = Group(number)
    certain = [i for i, x in enumerate(group.is_certain) if x]
    if certain:
        batch = jd.parse_example([group.records[i] for i in certain], **group.arguments)
        for k, i in enumerate(certain):
            group.compare({name: x[k] for name, x in batch.items()}, i)
    for i in set(range(len(group.records))) - {*certain}:
        try:
            ours = jd.parse_example(group.records[i], **group.arguments)
        except SampleError:
            continue
        if group.outputs[i] is not None:
            group.compare(ours, i)
        else:  # damage may hide a feature: what is not read is not checked
            assert i >= SOUND, f"record {i} is refused by TensorFlow"
            assert any(np.asarray(x).size == 0 for x in ours.values()), f"record {i} is refused by TensorFlow"


def read_by(source: str, folder: pathlib.Path, group: Group) -> Any:
    """A function that makes the outputs of a pipeline which reads the messages in this way."""
    if source == "tfrecord":
        containers.write_tfrecord(folder / "x", group.records, folder / "x.idx")
        return lambda: fn.readers.tfrecord(path=folder / "x", index_path=folder / "x.idx", **group.arguments)
    if source == "external_source":
        samples = [np.frombuffer(x, np.uint8) for x in group.records]
        return lambda: fn.parse_example(
            fn.external_source(lambda info: samples[info.idx_in_epoch], batch=False), **group.arguments
        )
    riegeli.array_record(folder / "x", group.records, group=5 if source == "array_record, groups" else 1)
    return lambda: fn.readers.array_record(path=folder / "x", **group.arguments)


@pytest.mark.parametrize("source", ["tfrecord", "array_record", "array_record, groups", "external_source"])
@pytest.mark.parametrize("number", [1, 14, 31, 44])
def test_pipelines_give_the_same(tmp_path, number, source):
    """One record in each batch: what `jaxdali.dynamic` makes of it, or an error."""
    group = Group(number)
    outputs_of = read_by(source, tmp_path, group)

    @pipeline_def(batch_size=1, num_threads=2)
    def pipeline():
        outputs = outputs_of()
        assert list(outputs) == [*group.kinds]
        return tuple(outputs.values())

    pipe = pipeline()
    for i, record in enumerate(group.records):
        try:
            expected_outputs = jd.parse_example(record, **group.arguments)
        except SampleError:
            with pytest.raises(SampleError, match="parse_example" if source == "external_source" else f"{tmp_path}/x"):
                pipe.run()
            continue
        for name, x in zip(group.kinds, pipe.run()):
            assert np.asarray(x[0]).tobytes() == np.asarray(expected_outputs[name]).tobytes(), (i, name)
    pipe.close()


# Tensors that TensorFlow takes and `parse_tensor` refuses: by their types, or by the texts of errors. TensorFlow ignores
# values beyond the shape, and takes an unknown shape as that of one value.
REFUSED_TYPES = ("string", "complex64", "complex128", "qint8", "float8_e5m2")
REFUSED_VALUES = ("values, but its shape", "bytes, but its shape", "number of dimensions is unknown")


def test_tensors_as_in_tensorflow():
    for message, theirs in recorded()["tensors"]:
        data = base64.b64decode(message)
        ours, error = None, ""
        try:
            ours = np.asarray(jd.parse_tensor(data))
        except OperatorError as e:
            error = str(e)
        if theirs is None or theirs[0] in REFUSED_TYPES or any(x in error for x in REFUSED_VALUES):
            assert ours is None, data
            continue
        assert ours is not None, (data, error)
        dtype, shape, content = theirs
        assert (ours.dtype.name, ours.shape, ours.tobytes()) == (dtype, tuple(shape), base64.b64decode(content)), data
