"""Writes tfds.zip and tfds.json: small data sets as tensorflow-datasets (4.9.10) writes them, and what it reads from
them. Needs that package, with tensorflow and array_record: python -P tfds.py.

tfds.zip has a folder for each data set, in two file formats. tfds.json has, under "records", the features of each
record of `kinds`, with encoded images left encoded; under "splits", the numbers of the records that a split of `parts`
has, or the name of the error; under "legacy", `kinds`'s features in the form of earlier versions.
"""

import base64
import io
import json
import pathlib
import tempfile
import wave
import zipfile

import ml_dtypes
import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

F = tfds.features
HERE = pathlib.Path(__file__)
TYPES = {"bool": np.bool_, "bfloat16": ml_dtypes.bfloat16}  # all others have their names in NumPy
NUMBERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32",
           "float64")  # fmt: skip
ENCODED = ("bool", "uint8", "int16", "uint64", "float16", "bfloat16", "float64")
SPLITS = (
    "train", "test", "all", "train+test", "test + train[:10]", "train[:80%]", "train[80%:]", "train[20%:70%]",
    "train[-10%:]", "train[:-10%]", "train[33.3%:66.7%]", "train[:0.5%]", "train[:1%]", "train[:2.5%]", "train[50%:50%]",
    "train[10:20]", "train[:50]", "train[100:]", "train[-7:]", "train[:-100]", "train[3:4]", "train[:103]", "train[:104]",
    "train[-103:]", "train[-104:]", "train[:3shard]", "train[2shard:]", "train[1shard:3shard]", "train[-1shard]",
    "train[0shard]", "train[6shard]", "train[:-2shard]", "train[-2shard:]", "train[1shard:3]", "train[10:20%]",
    "train[:5]+train[:5]", "test[:50%]+train[5:8]", "nothing", "train[:101%]", "train[5]", "train[5%]", "train[::2]",
    "train[a:b]", "all[:50%]", "train[]", "train[:]", "train[1.5:3]", "train [:5]", "train[:1_0]", "", "train+", "empty",
    "test[:5%]", "test[95%:]", "validation[:7.3%]", "validation[12.2%:]", "train-2[1:3]",
)  # fmt: skip
DROPPED = {
    "validation[:1%]": (None, 1), "validation[:10%]": (None, 10), "validation[90%:]": (90, None),
    "train[-10%:-5%]": (-10, -5),
}  # fmt: skip


def type_of(name):
    return TYPES.get(name) or getattr(np, name)


def numbers(dtype, shape, seed):
    """Numbers of a type, with its limits among them."""
    draw = np.random.default_rng(seed)
    dtype = np.dtype(type_of(dtype))
    if dtype.kind == "b":
        return draw.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        x = draw.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
        x.reshape(-1)[:1] = limits.max if seed % 2 else limits.min
        return x
    return (draw.standard_normal(shape) * 100).astype(dtype)


def wav(i):
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as f:
        f.setnchannels(1)
        f.setsampwidth(2)
        f.setframerate(8000)
        f.writeframes(numbers("int16", (20 + i,), i).tobytes())
    return buffer.getvalue()


def pixels(shape, seed, dtype=np.uint8):
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, shape, dtype=dtype)


KINDS = {
    "jpeg": (F.Image(encoding_format="jpeg"), lambda i: pixels((8 + i, 6, 3), i)),
    "gray": (F.Image(shape=(None, None, 1), encoding_format="png"), lambda i: pixels((4, 5 + i, 1), i)),
    "deep": (F.Image(shape=(4, 4, 1), dtype=np.uint16, encoding_format="png"), lambda i: pixels((4, 4, 1), i, np.uint16)),
    "mask": (F.LabeledImage(labels=["sky", "sea"], shape=(3, None, 1)), lambda i: pixels((3, 2, 1), i) % 2),
    "label": (F.ClassLabel(names=["cat", "dog", "größe"]), lambda i: [0, 1, 2, -1, 0][i]),
    "number": (F.ClassLabel(num_classes=7), lambda i: i),
    "text": (F.Text(), lambda i: ["", "one", "zwölf", "x" * 300, "line\nline"][i]),
    **{f"tensor_{t}": (F.Tensor(shape=(2, 2), dtype=type_of(t)), lambda i, t=t: numbers(t, (2, 2), i))
       for t in NUMBERS},
    **{f"{e}_{t}": (F.Tensor(shape=(3, 2), dtype=type_of(t), encoding=e), lambda i, t=t: numbers(t, (3, 2), i))
       for e in ("bytes", "zlib") for t in ENCODED},
    "strings": (F.Tensor(shape=(2,), dtype=np.object_), lambda i: ["a" * i, "é"]),
    "grid": (F.Tensor(shape=(2, 2), dtype=np.object_), lambda i: [["a", ""], ["", "b" * i]]),
    "one_string": (F.Tensor(shape=(1,), dtype=np.object_), lambda i: ["a" * i]),
    "string_columns": (F.Tensor(shape=(2, None), dtype=np.object_), lambda i: [["a" * i] * i, ["b"] * i]),
    "string_rows": (F.Sequence(F.Tensor(shape=(2,), dtype=np.object_)), lambda i: [["a" * k, "b"] for k in range(i)]),
    "flags": (F.Sequence(np.bool_), lambda i: [True, False][: i % 3]),
    "rows": (F.Tensor(shape=(None, 2), dtype=np.uint8), lambda i: numbers("uint8", (i, 2), i)),
    "columns": (F.Tensor(shape=(2, None), dtype=np.float64), lambda i: numbers("float64", (2, i), i)),
    "vector": (F.Tensor(shape=(None,), dtype=np.bool_), lambda i: numbers("bool", (i,), i)),
    "packed_rows": (F.Tensor(shape=(None, 3), dtype=np.int16, encoding="bytes"), lambda i: numbers("int16", (i, 3), i)),
    "dynamic": (F.Tensor(shape=(None, None, 2), dtype=np.uint16, encoding="zlib"),
                lambda i: numbers("uint16", (i, 3 - i % 2, 2), i)),
    "scalar": (F.Scalar(np.int32), lambda i: -i),
    "flag": (F.Scalar(np.bool_), lambda i: i % 2 == 0),
    "ratio": (F.Scalar(np.float32), lambda i: i / 3),
    "word": (F.Scalar(np.str_), lambda i: "w" * i),
    "box": (F.BBoxFeature(), lambda i: F.BBox(ymin=0.1, xmin=0.2 * i / 4, ymax=0.5, xmax=0.875)),
    "sound": (F.Audio(sample_rate=8000), lambda i: numbers("int64", (i + 1,), i)),
    "stereo": (F.Audio(shape=(None, 2), dtype=np.int16), lambda i: numbers("int16", (i, 2), i)),
    "wav": (F.Audio(file_format="wav", lazy_decode=True), lambda i: io.BytesIO(wav(i))),
    "video": (F.Video(shape=(None, 4, 4, 3)), lambda i: pixels((i, 4, 4, 3), i)),
    "inner": ({"x": np.int32, "deeper": {"y": F.Text(), "label": F.ClassLabel(names=["no", "yes"])}},
              lambda i: {"x": i, "deeper": {"y": "y" * i, "label": "yes"}}),
    "ints": (F.Sequence(np.int16), lambda i: [k - 2 for k in range(i)]),
    "labels": (F.Sequence(F.ClassLabel(names=["p", "q"])), lambda i: ["q"] * i),
    "texts": (F.Sequence(F.Text()), lambda i: ["", "ab", "äöü"][: i % 4]),
    "boxes": (F.Sequence(F.BBoxFeature()), lambda i: [F.BBox(0.0, 0.25, 0.5, k / 8 + 0.25) for k in range(i)]),
    "images": (F.Sequence(F.Image(shape=(None, 4, 3), encoding_format="png")), lambda i: [pixels((k + 1, 4, 3), k) for k in range(i)]),
    "matrices": (F.Sequence(F.Tensor(shape=(2, 3), dtype=np.float32)), lambda i: [numbers("float32", (2, 3), k) for k in range(i)]),
    "packed": (F.Sequence(F.Tensor(shape=(2, 3), dtype=np.int16, encoding="zlib")),
               lambda i: [numbers("int16", (2, 3), k) for k in range(i + 1)]),
    "three": (F.Sequence(np.float32, length=3), lambda i: [i, 0.5, -1]),
    "objects": (F.Sequence({"bbox": F.BBoxFeature(), "label": F.ClassLabel(num_classes=9), "name": F.Text()}),
                lambda i: [{"bbox": F.BBox(0.0, 0.0, 1.0, 0.5), "label": k, "name": "n" * k} for k in range(i)]),
    "ragged": (F.Sequence(F.Sequence(np.int32)), lambda i: [list(range(k)) for k in (i, 0, 2)[: i % 4]]),
    "ragged_texts": (F.Sequence(F.Sequence(F.Text())), lambda i: [["t" * k for k in range(n)] for n in (i, 1)]),
    "cubes": (F.Sequence(F.Sequence(F.Sequence(np.uint8))), lambda i: [[[k] * k for k in range(i)], []]),
    "ragged_boxes": (F.Sequence({"points": F.Sequence(F.Tensor(shape=(2,), dtype=np.float32))}),
                     lambda i: [{"points": [[k, i]] * k} for k in range(i)]),
    "maybe": (F.Scalar(np.int32, optional=True), lambda i: None if i % 2 else i),
    "maybe_text": (F.Text(optional=True), lambda i: None if i % 2 else "t"),
    "maybe_tensor": (F.Tensor(shape=(2,), dtype=np.float32, optional=True), lambda i: None if i % 2 else [i, i]),
}  # fmt: skip
ENCODED_FILES = ("jpeg", "gray", "deep", "mask", "wav", "video", "images")  # features that are not decoded


class OwnFeature(F.Tensor):
    """A feature of a user's own class."""


class Kinds(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = F.FeaturesDict({name: feature for name, (feature, _) in KINDS.items()})
        return tfds.core.DatasetInfo(builder=self, features=features, disable_shuffling=True)

    def _split_generators(self, manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for i in range(5):
            yield i, {name: value(i) for name, (_, value) in KINDS.items()}


class Parts(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("2.0.1")
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name="small", description="")]  # noqa: RUF012

    def _info(self):
        return tfds.core.DatasetInfo(builder=self, features=F.FeaturesDict({"id": np.int64}), disable_shuffling=True)

    def _split_generators(self, manager):
        sizes = {"train": 103, "test": 23, "validation": 250, "train-2": 7}
        return {name: self._generate_examples(1000 * k, n) for k, (name, n) in enumerate(sizes.items())}

    def _generate_examples(self, first, n):
        for i in range(n):
            yield i, {"id": first + i}


class Others(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = F.FeaturesDict({
            "label": F.ClassLabel(names=["a", "b"]),
            "steps": F.Dataset({"action": F.Tensor(shape=(2,), dtype=np.float32)}),
            "translation": F.Translation(["de", "en"]),
            "own": OwnFeature(shape=(), dtype=np.int32),
            "uneven": F.Sequence(F.Tensor(shape=(None,), dtype=np.int32)),
            "shapes": F.Sequence(F.Tensor(shape=(None, None), dtype=np.int32, encoding="zlib")),
            "float_image": F.Image(shape=(2, 2, 1), dtype=np.float32),
        })  # fmt: skip
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for i in range(2):
            yield i, {
                "label": i, "steps": [{"action": [0, k]} for k in range(3)], "translation": {"de": "ja", "en": "yes"},
                "own": 3, "uneven": [[1], [2]], "shapes": [np.ones((1, 2), np.int32)],
                "float_image": np.ones((2, 2, 1), np.float32),
            }  # fmt: skip


def encoded(x):
    """A value as JSON: of a ragged tensor, its flat values and row lengths."""
    if isinstance(x, tf.RaggedTensor):
        return {"flat": encoded(x.flat_values), "row_lengths": [encoded(n) for n in x.nested_row_lengths()]}
    x = x.numpy()
    x = np.array(x, object if isinstance(x, bytes) else None)
    if x.dtype == object:
        items = [base64.b64encode(item).decode() for item in x.reshape(-1).tolist()]
        return {"dtype": "string", "shape": x.shape, "items": items}
    return {"dtype": x.dtype.name, "shape": x.shape, "data": base64.b64encode(x.tobytes()).decode()}


def flat(example, prefix=""):
    """The features of a nested dictionary by their joined names."""
    return {
        name: x
        for key, value in example.items()
        for name, x in (
            flat(value, f"{prefix}{key}/") if isinstance(value, dict) else {f"{prefix}{key}": value}
        ).items()
    }


def made(cls, root, file_format, shards=1, **arguments):
    builder = cls(data_dir=root, file_format=file_format, **arguments)
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=shards))
    return builder


def ids(split, parts):
    """The records of a split, or the error."""
    try:
        tfrecord = parts["tfrecord"].as_dataset(split=split, read_config=tfds.ReadConfig(interleave_cycle_length=1))
        expected = [int(x["id"]) for x in tfrecord]
    except (ValueError, NotImplementedError, AssertionError) as e:
        return type(e).__name__
    source = parts["array_record"].as_data_source(split=split)
    assert [int(source[i]["id"]) for i in range(len(source))] == expected, split
    return expected


with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    kinds = {f: made(Kinds, root / f, f) for f in ("tfrecord", "array_record")}
    parts = {f: made(Parts, root / f, f, 7, config="small") for f in ("tfrecord", "array_record")}
    others = made(Others, root / "array_record", "array_record")

    # A split of `parts` under other names, as tfds.folder_dataset describes it.
    template_folder = root / "template"
    template_folder.mkdir()
    for k, path in enumerate(sorted(pathlib.Path(parts["tfrecord"].data_dir).glob("*-train.*"))):
        (template_folder / f"parts_train_{k:05}.tfrecord").write_bytes(path.read_bytes())
    tfds.folder_dataset.write_metadata(
        data_dir=template_folder, features=parts["tfrecord"].info.features,
        filename_template="{DATASET}_{SPLIT}_{SHARD_INDEX}.{FILEFORMAT}",
    )  # fmt: skip
    template = tfds.builder_from_directory(template_folder).as_dataset(
        split="train[10:90%]", read_config=tfds.ReadConfig(interleave_cycle_length=1)
    )

    decoders = {name: tfds.decode.SkipDecoding() for name in ENCODED_FILES}
    dataset = kinds["tfrecord"].as_dataset(split="train", decoders=decoders)
    records = [{name: encoded(x) for name, x in flat(example).items()} for example in dataset]
    specs = [s for s in SPLITS if s]
    dropped = {
        spec: tfds.core.ReadInstruction(
            spec.partition("[")[0], from_=begin, to=end, unit="%", rounding="pct1_dropremainder"
        )
        for spec, (begin, end) in DROPPED.items()
    }
    recorded = {
        "records": records,
        "splits": {s: ids(s, parts) for s in SPLITS}
        | {f"{s}(pct1_dropremainder)": ids(instruction, parts) for s, instruction in dropped.items()},
        "template": [int(x["id"]) for x in template],
        "legacy": kinds["tfrecord"].info.features.to_json(),
        "tfds_id": [x["tfds_id"].numpy().decode() for x in parts["tfrecord"].as_dataset(
            split="train[12:18]", read_config=tfds.ReadConfig(add_tfds_id=True, interleave_cycle_length=1))],
    }  # fmt: skip
    with zipfile.ZipFile(HERE.with_suffix(".zip"), "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(p for p in root.rglob("*") if p.is_file()):
            if "incomplete" not in str(path):
                archive.writestr(zipfile.ZipInfo(str(path.relative_to(root))), path.read_bytes(), zipfile.ZIP_DEFLATED)
HERE.with_suffix(".json").write_text(json.dumps(recorded, separators=(",", ":")))
