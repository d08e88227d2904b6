"""Writes tf_examples.json.xz: random examples, sequence examples and tensors, sound and damaged, with what TensorFlow
(2.21) makes of them. Needs tensorflow: python tf_examples.py.

The file is an object:

* ``examples``: groups of records that are read with the same features. ``features`` and ``sequence_features`` are
  (name, kind, its arguments). Each record is (its bytes; its outputs by name, null if TensorFlow refuses it; whether
  TensorFlow gives them in any case). If not, one of the functions for one record and for a batch refuses it, or both
  refuse, or misread, a message in an unusual form, which Protocol Buffers' own parser takes: the outputs are those of
  the same message in the usual form.
* ``tensors``: (bytes of a TensorProto, its value; null if TensorFlow refuses it).
* ``files``: by compression, a TFRecord file of the records 0 to 19: the label i, and as text i in digits, 1000 * i
  times.

Bytes are in base64. An array is (dtype, shape, its bytes), or for strings (``"string"``, shape, list of its strings). A
list is (``"ragged"``, its nested lists, whose values are arrays).
"""

import base64
import json
import lzma
import os
import pathlib
import random
import struct
import tempfile
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from tensorflow.core.framework import tensor_pb2, types_pb2

DTYPES = {"int64": tf.int64, "float32": tf.float32, "string": tf.string}
KINDS = {"string": 1, "float32": 2, "int64": 3}  # numbers of the lists in a Feature
NAMES = ["image/encoded", "label", "x", "größe", "", "a b", "boxes/xmin", "y" * 140]
GROUPS, RECORDS, DAMAGED = 60, 24, 10  # groups, records of each, and damaged records of each

rng = random.Random(44)
unusual = False  # whether the message that is made may have unusual forms


# --- the wire format of Protocol Buffers ------------------------------------------------------------------------------


def varint(x: int) -> bytes:
    x &= (1 << 64) - 1
    out = b""
    while x > 127:
        out, x = out + bytes([x & 127 | 128]), x >> 7
    return out + bytes([x])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def unknown() -> bytes:
    """A field that no message of an example has."""
    number = rng.choice([9, 15, 16, 1000])
    return rng.choice([
        varint(number << 3) + varint(rng.getrandbits(40)),
        varint(number << 3 | 1) + rng.randbytes(8),
        field(number, rng.randbytes(rng.randrange(4))),
        varint(number << 3 | 5) + rng.randbytes(4),
    ])  # fmt: skip


def maybe_unknown() -> bytes:
    return unknown() if unusual and rng.random() < 0.1 else b""


def value_list(dtype: str, values: list[Any]) -> bytes:
    """A BytesList, FloatList or Int64List; numbers packed, one by one, or in several parts of both forms."""
    if dtype == "string":
        return b"".join(field(1, v) + maybe_unknown() for v in values)
    encode = varint if dtype == "int64" else lambda x: struct.pack("<f", x)
    form = rng.choice(["packed", "packed", "single"] + ["mixed"] * unusual)
    parts, k = [], 0
    while k < len(values):
        n = {"packed": len(values), "single": 1, "mixed": rng.randrange(1, 3)}[form]
        encoded = b"".join(map(encode, values[k : k + n]))
        if form == "single" or (form == "mixed" and n == 1):
            parts.append(varint(1 << 3 | (0 if dtype == "int64" else 5)) + encoded)
        else:
            parts.append(field(1, encoded))
        k += n
    return b"".join(parts) + maybe_unknown()


def feature(dtype: str, values: list[Any] | None) -> bytes:
    """A Feature. None: without a list."""
    if values is None:
        return b""
    if unusual and rng.random() < 0.1:  # a list in two parts, or two lists, of which the last one counts
        k = rng.randrange(len(values) + 1)
        stored_type = dtype if rng.random() < 0.5 else rng.choice(list(DTYPES))
        first = values[:k] if stored_type == dtype else random_values(stored_type, 2)
        return field(KINDS[stored_type], value_list(stored_type, first)) + field(
            KINDS[dtype], value_list(dtype, values[k:])
        )
    return field(KINDS[dtype], value_list(dtype, values)) + maybe_unknown()


def entry(name: str, message: bytes) -> bytes:
    """An entry of a map, in unusual messages sometimes with its value first."""
    key, value = field(1, name.encode()), field(2, message)
    return field(1, value + key if unusual and rng.random() < 0.2 else key + value)


def features(entries: list[bytes]) -> bytes:
    """The Features of an Example, in unusual messages sometimes in two parts, which a parser merges."""
    if len(entries) > 1 and unusual and rng.random() < 0.2:
        k = rng.randrange(1, len(entries))
        return field(1, b"".join(entries[:k])) + field(1, b"".join(entries[k:]))
    return field(1, b"".join(entries) + maybe_unknown()) + maybe_unknown()


# --- random features and values ---------------------------------------------------------------------------------------


def random_values(dtype: str, n: int) -> list[Any]:
    if dtype == "string":
        return [rng.choice([b"", b"a", b"text", "größe".encode(), rng.randbytes(rng.randrange(9))]) for _ in range(n)]
    if dtype == "float32":
        return [rng.choice([0.0, 1.5, -2.25, 1e30, float("inf"), float("nan"), rng.uniform(-9, 9)]) for _ in range(n)]
    return [rng.choice([0, 1, -1, 7, 300, -(1 << 63), (1 << 63) - 1, rng.randrange(-999, 999)]) for _ in range(n)]


def default(dtype: str, n: int) -> Any:
    """A default value for n elements, as JSON."""
    x = {"string": ["", "none"], "float32": [-1.0, 0.5], "int64": [-1, 0, 9]}[dtype]
    return [rng.choice(x) for _ in range(n)]


def random_feature(sequence: bool, names: list[str]) -> tuple[str, str, dict[str, Any]]:
    """(name, kind, arguments) of a feature; takes its name from `names`."""
    name, dtype = names.pop(), rng.choice(list(DTYPES))
    if sequence:
        kind = rng.choice(["VarLenFeature", "FixedLenSequenceFeature", "FixedLenSequenceFeature", "RaggedFeature"])
    else:
        kind = rng.choice(
            ["FixedLenFeature"] * 4 + ["VarLenFeature"] * 2 + ["FixedLenSequenceFeature", "RaggedFeature"]
        )
    arguments: dict[str, Any] = {"dtype": dtype}
    if kind == "FixedLenFeature":
        shape = rng.choice([[], [], [1], [2], [3], [2, 2], [1, 3]])
        arguments["shape"] = shape
        if rng.random() < 0.5:
            x = default(dtype, int(np.prod(shape, dtype=int)))
            arguments["default_value"] = x if shape else x[0]
    elif kind == "FixedLenSequenceFeature":
        # Outside of feature lists TensorFlow demands allow_missing.
        arguments |= {"shape": rng.choice([[], [1], [2], [2, 2]]), "allow_missing": not sequence or rng.random() < 0.5}
        if not sequence and rng.random() < 0.3:
            arguments["default_value"] = default(dtype, 1)[0]
    elif kind == "RaggedFeature" and not sequence and rng.random() < 0.7:
        arguments["partitions"] = [
            [rng.choice(["row_splits", "row_lengths", "row_starts", "row_limits", "value_rowids"]), f"{name}/{k}"]
            if rng.random() < 0.8
            else ["uniform_row_length", rng.choice([1, 2])]
            for k in range(rng.choice([1, 1, 2]))
        ]
        arguments["value_key"] = f"{name}/values"
    elif kind == "RaggedFeature" and rng.random() < 0.3:
        arguments["value_key"] = f"{name}/values"
    return name, kind, arguments


def keys(name: str, arguments: dict[str, Any]) -> str:
    """The name that the values of a feature have in a record."""
    return arguments.get("value_key", name)


def partition(kind: str, lengths: list[int]) -> list[int]:
    """A partition into rows of these lengths."""
    ends = np.cumsum([0, *lengths]).tolist()
    return {
        "row_splits": ends,
        "row_lengths": lengths,
        "row_starts": ends[:-1],
        "row_limits": ends[1:],
        "value_rowids": [k for k, n in enumerate(lengths) for _ in range(n)],
    }[kind]


def random_entries(
    name: str, kind: str, arguments: dict[str, Any], sound: bool, in_context: bool
) -> list[tuple[str, bytes]]:
    """The entries of one feature of an example, or of the context of a sequence example, as (key, Feature)."""
    dtype, key, chance = arguments["dtype"], keys(name, arguments), 0 if sound else rng.random()
    size = int(np.prod(arguments.get("shape", []), dtype=int))
    n = size if kind == "FixedLenFeature" else size * rng.randrange(5)
    entries = []
    if "partitions" in arguments:
        lengths_by_level, rows = [], rng.randrange(4)
        for kind_of_partition, x in arguments["partitions"]:
            lengths = (
                [x] * rows if kind_of_partition == "uniform_row_length" else [rng.randrange(4) for _ in range(rows)]
            )
            # The last row has a value: value_rowids can't tell empty rows at the end.
            lengths = [*lengths[:-1], max(lengths[-1], 1)] if lengths else []
            lengths_by_level.append(lengths)
            rows = sum(lengths)
        n = rows
        for (kind_of_partition, x), lengths in zip(arguments["partitions"], lengths_by_level):
            if kind_of_partition != "uniform_row_length":
                numbers = partition(kind_of_partition, lengths)
                if not sound and rng.random() < 0.1:
                    numbers = numbers[:-1] if rng.random() < 0.5 else [*numbers, 77]
                entries.append((x, feature("int64", numbers)))
    if chance < 0.4:
        pass
    elif chance < 0.6:
        return entries[1:]  # missing
    elif chance < 0.7:
        n = 0
    elif chance < 0.8:
        n += rng.choice([1, 2, -1])
    elif chance < 0.85:
        dtype = rng.choice(list(DTYPES))
    elif chance < 0.9:
        # TensorFlow's parser of sequence examples refuses a Feature without a list where that of examples takes the default.
        return [] if in_context and kind == "FixedLenFeature" else [*entries, (key, feature(dtype, None))]
    else:  # an earlier entry of the same name
        stored_type = dtype if rng.random() < 0.7 else rng.choice(list(DTYPES))
        entries.append((key, feature(stored_type, random_values(stored_type, rng.randrange(3)))))
    return [*entries, (key, feature(dtype, random_values(dtype, max(n, 0))))]


def random_example(feature_list: list[tuple[str, str, dict[str, Any]]], sound: bool, in_context: bool) -> bytes:
    entries = [entry(*x) for f in feature_list for x in random_entries(*f, sound, in_context)]
    if rng.random() < 0.2:
        entries.append(entry("not read", feature("string", [b"other"])))
    if rng.random() < 0.2 and len({bytes(e) for e in entries}) == len(entries):
        rng.shuffle(entries)
    return features(entries)


def random_feature_list(name: str, kind: str, arguments: dict[str, Any], sound: bool) -> list[tuple[str, bytes]]:
    """The entries of one feature list of a sequence example."""
    dtype, key, chance = arguments["dtype"], keys(name, arguments), 0.5 if sound else rng.random()
    if chance < 0.12:
        return []
    size = int(np.prod(arguments.get("shape", []), dtype=int))
    steps = []
    for _ in range(0 if chance < 0.2 else rng.randrange(5)):
        n = size if kind == "FixedLenSequenceFeature" else rng.randrange(4)
        stored_type = dtype
        if chance < 0.25:
            n += 1
        elif chance < 0.28:
            stored_type = rng.choice(list(DTYPES))
        steps.append(feature(stored_type, None if chance > 0.95 else random_values(stored_type, n)))
    return [(key, b"".join(field(1, s) for s in steps) + maybe_unknown())]


def damaged(record: bytes) -> bytes:
    data = bytearray(record)
    chance = rng.random()
    if chance < 0.3:
        return bytes(data[: rng.randrange(len(data) + 1)])
    if chance < 0.4:
        return bytes(data) + rng.randbytes(rng.randrange(1, 4))
    if chance < 0.5 and data:
        k = rng.randrange(len(data))
        del data[k : k + rng.randrange(1, 4)]
        return bytes(data)
    for _ in range(rng.randrange(1, 4) if data else 0):
        data[rng.randrange(len(data))] = rng.choice([0, 1, 8, 10, 18, 127, 128, 255, rng.randrange(256)])
    return bytes(data)


# --- what TensorFlow makes of them ------------------------------------------------------------------------------------

PARTITIONS = {
    "row_splits": tf.io.RaggedFeature.RowSplits,  # pyright: ignore[reportAttributeAccessIssue]
    "row_lengths": tf.io.RaggedFeature.RowLengths,  # pyright: ignore[reportAttributeAccessIssue]
    "row_starts": tf.io.RaggedFeature.RowStarts,  # pyright: ignore[reportAttributeAccessIssue]
    "row_limits": tf.io.RaggedFeature.RowLimits,  # pyright: ignore[reportAttributeAccessIssue]
    "value_rowids": tf.io.RaggedFeature.ValueRowIds,  # pyright: ignore[reportAttributeAccessIssue]
    "uniform_row_length": tf.io.RaggedFeature.UniformRowLength,  # pyright: ignore[reportAttributeAccessIssue]
}


def tf_feature(kind: str, arguments: dict[str, Any]) -> Any:
    arguments = dict(arguments, dtype=DTYPES[arguments["dtype"]])
    if kind == "RaggedFeature":
        arguments["partitions"] = [PARTITIONS[k](x) for k, x in arguments.get("partitions", [])]
        arguments["validate"] = True
    return getattr(tf.io, kind)(**arguments)


def array(x: Any, dtype: str) -> list[Any]:
    if dtype == "string":
        x = np.array(x, object)  # a scalar is bytes
        return ["string", list(x.shape), [base64.b64encode(s).decode() for s in x.reshape(-1).tolist()]]
    return [dtype, list(x.shape), base64.b64encode(x.tobytes()).decode()]


def nested(x: Any, dtype: str) -> Any:
    """The rows of a tensor or ragged tensor as nested lists, with the innermost as arrays."""
    return array(x.numpy(), dtype) if x.shape.rank == 1 else [nested(row, dtype) for row in x]


def output(x: Any, dtype: str) -> Any:
    if isinstance(x, tf.SparseTensor):
        if len(x.dense_shape) == 1:
            return array(x.values.numpy(), dtype)
        rows = [[] for _ in range(int(x.dense_shape[0]))]  # of a feature list
        for (row, _), value in zip(x.indices.numpy().tolist(), x.values.numpy()):
            rows[row].append(value)
        numpy_type = object if dtype == "string" else dtype
        return ["ragged", [array(np.array(r, numpy_type), dtype) for r in rows]]
    if isinstance(x, tf.RaggedTensor):
        return ["ragged", nested(x, dtype)]
    return array(x.numpy(), dtype)


def outputs(results: dict[str, Any], dtypes: dict[str, str]) -> dict[str, Any]:
    return {name: output(x, dtypes[name]) for name, x in results.items()}


def first_of_batch(x: Any) -> Any:
    """The only sample of a batch."""
    if isinstance(x, tf.SparseTensor):
        return tf.sparse.reshape(x, x.dense_shape[1:])
    return x[0]


ERRORS = (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError, tf.errors.InternalError, ValueError)


def parsed(record: bytes, feature_list: Any, sequence_list: Any) -> list[Any]:
    """The outputs of a record by the function for one record and by that for a batch; None if it is refused."""
    features = {name: tf_feature(kind, a) for name, kind, a in feature_list}
    sequence_features = {name: tf_feature(kind, a) for name, kind, a in sequence_list or []}
    dtypes = {name: a["dtype"] for name, _, a in [*feature_list, *(sequence_list or [])]}
    results = []
    for batch in (False, True):
        try:
            if sequence_list is None and batch:
                x = tf.io.parse_example([record], features)
            elif sequence_list is None:
                x = tf.io.parse_single_example(record, features)
            elif batch:
                context, sequences, _ = tf.io.parse_sequence_example([record], features, sequence_features)
                x = context | sequences
            else:
                context, sequences = tf.io.parse_single_sequence_example(record, features, sequence_features)
                x = context | sequences
            results.append(outputs({k: first_of_batch(v) for k, v in x.items()} if batch else x, dtypes))
        except ERRORS:
            results.append(None)
    return results


def message_of(record: bytes, sequence: bool) -> Any:
    """The message that Protocol Buffers read. Raises DecodeError if they can't."""
    return (tf.train.SequenceExample if sequence else tf.train.Example).FromString(record)


def error_of(record: bytes, sequence: bool) -> str:
    """Why Protocol Buffers can't read a message; "" if they can."""
    try:
        message_of(record, sequence)
    except DecodeError as e:
        return str(e)
    return ""


def drops_entries(record: bytes, sequence: bool) -> bool:
    """Whether entries of a map became unknown fields."""
    if error_of(record, sequence):
        return False
    message = message_of(record, sequence)
    maps = (message.context, message.feature_lists) if sequence else (message.features,)
    return any(f.field_number == 1 and f.wire_type == 2 for m in maps for f in UnknownFieldSet(m))


def usual_form(record: bytes, sequence: bool) -> bytes | None:
    """A message as Protocol Buffers write it; None if they can't read it."""
    if error_of(record, sequence):
        return None
    message = message_of(record, sequence)
    message.DiscardUnknownFields()
    return message.SerializeToString(deterministic=True)


def recorded(record: bytes, feature_list: Any, sequence_list: Any) -> tuple[Any, bool]:
    """The outputs of a record, None if it is refused, and whether TensorFlow gives them in any case."""
    single, batch = parsed(record, feature_list, sequence_list)
    assert single is None or batch is None or json.dumps(single) == json.dumps(batch)
    usual = usual_form(record, sequence_list is not None)
    if usual is None or usual == record:  # TensorFlow takes some messages that are cut off
        return single or batch, usual is not None and single is not None and batch is not None
    # TensorFlow's functions refuse some unusual forms, and overlook features in others.
    usual_single, usual_batch = parsed(usual, feature_list, sequence_list)
    if json.dumps(usual_single or usual_batch) == json.dumps(single or batch):
        return single or batch, single is not None and batch is not None
    return usual_single or usual_batch, False


# --- tensors ----------------------------------------------------------------------------------------------------------


def tensor_protos() -> list[bytes]:
    """Serialized tensors: as TensorFlow writes them, made by hand with typed fields, and damaged."""
    protos = []
    numbers = (
        "float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128"
    )
    for name in numbers.split():
        for shape in ([], [3], [2, 3], [0], [2, 0, 1], [1, 1, 1, 2]):
            x = np.array([rng.randrange(-100, 100) for _ in range(int(np.prod(shape, dtype=int)))]).reshape(shape)
            protos.append(tf.io.serialize_tensor(tf.cast(tf.constant(x), name)).numpy())
    for x in (
        b"",
        "text",
        ["a", b"", b"\0\xff"],
        [["x", "yy"], ["zzz", ""]],
        np.zeros([0], "S1"),
        np.zeros([2, 0], "S1"),
    ):
        protos.append(tf.io.serialize_tensor(tf.constant(x)).numpy())
    typed = {
        "DT_FLOAT": "float_val", "DT_DOUBLE": "double_val", "DT_INT32": "int_val", "DT_INT16": "int_val",
        "DT_INT8": "int_val", "DT_UINT8": "int_val", "DT_UINT16": "int_val", "DT_INT64": "int64_val",
        "DT_UINT32": "uint32_val", "DT_UINT64": "uint64_val", "DT_BOOL": "bool_val", "DT_HALF": "half_val",
        "DT_BFLOAT16": "half_val", "DT_STRING": "string_val", "DT_COMPLEX64": "scomplex_val",
        "DT_COMPLEX128": "dcomplex_val", "DT_QINT8": "int_val", "DT_INVALID": "int_val", "DT_RESOURCE": "int_val",
        "DT_FLOAT8_E5M2": "float8_val",
    }  # fmt: skip
    for dtype, values_name in typed.items():
        # As many values as elements, fewer (the last one is repeated), none, more, and several for a scalar.
        for shape, count in (
            ([4], 4),
            ([2, 2], 1),
            ([3], 2),
            ([2], 0),
            ([2], 5),
            ([], 1),
            ([], 0),
            ([0], 0),
            ([-1], 2),
            (None, 1),
        ):
            proto = tensor_pb2.TensorProto(dtype=getattr(types_pb2, dtype))
            if shape is None:
                proto.tensor_shape.unknown_rank = True
            for n in shape or []:
                proto.tensor_shape.dim.add().size = n
            count *= 2 if "complex" in values_name else 1
            if values_name == "string_val":
                proto.string_val.extend(rng.choice([b"", b"a", b"bytes"]) for _ in range(count))
            elif values_name == "float8_val":
                proto.float8_val = bytes(rng.randrange(100) for _ in range(count))
            else:
                getattr(proto, values_name).extend(
                    rng.randrange(2 if dtype == "DT_BOOL" else 100) for _ in range(count)
                )
            protos.append(proto.SerializeToString())
    for shape, nbytes in (([2], 8), ([2], 7), ([2], 9), ([3], 8), ([1 << 40], 8), ([1 << 62, 4], 8), ([0], 4)):
        proto = tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, tensor_content=rng.randbytes(nbytes))
        for n in shape:
            proto.tensor_shape.dim.add().size = n
        protos.append(proto.SerializeToString())
    # Extents with a name, a version, content beside values, numbers one by one, and a name twice.
    x = tensor_pb2.TensorProto(
        dtype=types_pb2.DT_INT32, int_val=[1, 2], version_number=3, tensor_content=struct.pack("<2i", 8, 9)
    )
    x.tensor_shape.dim.add(size=2, name="rows")
    protos += [x.SerializeToString(), field(4, b"\0\0\0\0")]
    scalar = tensor_pb2.TensorProto(dtype=types_pb2.DT_INT64, tensor_shape={"dim": [{"size": 3}]}).SerializeToString()
    protos.append(scalar + b"".join(varint(10 << 3) + varint(k) for k in (5, -6, 7)))
    protos.append(scalar + field(4, struct.pack("<3q", 1, 2, 3)) + field(4, struct.pack("<3q", 4, 5, 6)))
    protos.append(scalar + field(2, field(2, b"\x08\x02")) + field(4, struct.pack("<6q", *range(6))) + unknown())
    return protos + [damaged(rng.choice(protos)) for _ in range(300)]


def tensor(data: bytes) -> Any:
    """The value of a TensorProto; None if TensorFlow refuses it."""
    try:
        number = tensor_pb2.TensorProto.FromString(data).dtype
        dtype = tf.dtypes.as_dtype(number)
        x = tf.io.parse_tensor(data, dtype)
        return array(x.numpy(), dtype.name)
    except (*ERRORS, tf.errors.UnimplementedError, tf.errors.ResourceExhaustedError, TypeError, DecodeError):
        return None


def compressed_file(compression: str) -> bytes:
    """A TFRecord file."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "x")
        with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type=compression)) as writer:
            for i in range(20):
                label = tf.train.Feature(int64_list=tf.train.Int64List(value=[i]))
                text = tf.train.Feature(bytes_list=tf.train.BytesList(value=[str(i).encode() * 1000 * i]))
                example = tf.train.Example(features=tf.train.Features(feature={"label": label, "text": text}))
                writer.write(example.SerializeToString())
        return path.read_bytes()


def main() -> None:
    global unusual
    groups = []
    for number in range(GROUPS):
        names = rng.sample(NAMES, len(NAMES))
        sequence = number % 3 == 2
        feature_list = [random_feature(False, names) for _ in range(rng.randrange(0 if sequence else 1, 5))]
        sequence_list = [random_feature(True, names) for _ in range(rng.randrange(1, 4))] if sequence else None
        if sequence:  # the parser of sequence examples takes no FixedLenSequenceFeature in the context
            feature_list = [f for f in feature_list if f[1] != "FixedLenSequenceFeature"]
        records = []
        for _ in range(RECORDS):
            sound, unusual = rng.random() < 0.6, rng.random() < 0.2
            record = random_example(feature_list, sound, sequence)
            if sequence_list is not None:
                entries = [entry(*x) for f in sequence_list for x in random_feature_list(*f, sound)]
                lists = field(2, b"".join(entries))
                record = lists + record if unusual and rng.random() < 0.2 else record + lists
            records.append(record)
        while len(records) < RECORDS + DAMAGED:
            record = damaged(rng.choice(records[:RECORDS]))
            # TensorFlow refuses names that are not UTF-8, of any feature. Protocol Buffers' parser for Python drops entries of
            # maps that have unknown fields, unlike that for C++.
            if "UTF-8" not in error_of(record, sequence) and not drops_entries(record, sequence):
                records.append(record)
        group: dict[str, Any] = {"features": feature_list}
        if sequence_list is not None:
            group["sequence_features"] = sequence_list
        results = [recorded(record, feature_list, sequence_list) for record in records]
        group["records"] = [[base64.b64encode(r).decode(), *x] for r, x in zip(records, results, strict=True)]
        groups.append(group)
    unusual = True
    tensors = [[base64.b64encode(x).decode(), tensor(x)] for x in tensor_protos()]
    files = {kind: base64.b64encode(compressed_file(kind)).decode() for kind in ("GZIP", "ZLIB")}
    data = json.dumps({"examples": groups, "tensors": tensors, "files": files}, separators=(",", ":")).encode()
    path = pathlib.Path(__file__).with_suffix(".json.xz")
    path.write_bytes(lzma.compress(data, preset=9))
    for name, kind in (("examples", False), ("sequence examples", True)):
        results = [x for g in groups if ("sequence_features" in g) == kind for _, *x in g["records"]]
        accepted, usual = sum(x[1] for x in results), sum(x[0] is not None and not x[1] for x in results)
        print(
            f"{name}: {accepted} accepted, {usual} in their usual form or by one function, {len(results) - accepted - usual} refused"
        )
    print(f"tensors: {sum(x is not None for _, x in tensors)} accepted, {sum(x is None for _, x in tensors)} refused")
    print(f"{path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
