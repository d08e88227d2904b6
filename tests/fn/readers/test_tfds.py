"""readers.tfds: data sets that tensorflow-datasets wrote, compared with what it reads from them (tests/data/tfds.json);
damaged ones.
"""

import base64
import io
import json
import re
import shutil
import zipfile
import zlib

import containers
import ml_dtypes
import numpy as np
import places
import pytest
from data_sets import Shards
from faulty import Faulty
from PIL import Image

import jaxdali
from jaxdali import SampleError, Storage, fn, pipeline_def, tfrecord
from jaxdali._data.index import write_index
from jaxdali.pack.__main__ import main

RECORDED = json.loads((places.ROOT / "tests/data/tfds.json").read_text())
FORMATS = ("tfrecord", "array_record")
FIRST = {"train": 0, "test": 1000, "validation": 2000, "train-2": 3000}  # the first number in each split of `parts`


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """The folder of the data sets that were recorded."""
    pytest.importorskip("zstandard")  # ArrayRecord files are compressed
    folder = tmp_path_factory.mktemp("tfds")
    zipfile.ZipFile(places.ROOT / "tests/data/tfds.zip").extractall(folder)
    return folder


@pytest.fixture
def copied(sets, tmp_path):
    """A copy of one data set, in which a JSON file can be changed."""

    def copy(name="tfrecord/parts/small/2.0.1"):
        return shutil.copytree(sets / name, tmp_path / "copy", dirs_exist_ok=True)

    return copy


def read(path, split="train", batch_size=5, outputs=None, **arguments):
    """The first batch by name, as lists of arrays."""

    @pipeline_def(batch_size=batch_size, num_threads=2)
    def pipeline():
        data = fn.readers.tfds(path, split=split, **arguments)
        names.extend(data)
        return tuple(data.values())

    names = []
    pipe = pipeline()
    batch = pipe.run()
    result = {name: list(x) if isinstance(x, list) else [np.asarray(s) for s in x] for name, x in zip(names, batch)}
    pipe.close()
    return result


def ids(pool, path, split, n, **arguments):
    """The numbers of the first n records."""
    shards = Shards("tfds", {"path": path, "split": split, **arguments}, pool, 1)
    (rows,) = shards.read(n)
    shards.close()
    return [int(np.frombuffer(row[0], np.int64)[0]) for _, _, row in rows]


def array(x):
    """A recorded value. Of several strings: ``uint8[*shape, longest]``."""
    if x["dtype"] != "string":
        dtype = getattr(ml_dtypes, x["dtype"], x["dtype"])
        return np.frombuffer(base64.b64decode(x["data"]), dtype).reshape(x["shape"])
    items = [base64.b64decode(item) for item in x["items"]]
    longest = max(map(len, items), default=0)
    padded = np.frombuffer(b"".join(item.ljust(longest, b"\0") for item in items), np.uint8)
    return padded.reshape(*x["shape"], longest)


def padded(values, row_lengths):
    """The rows of a ragged array, padded with zeros."""
    *outer, lengths = row_lengths
    rows = np.zeros((len(lengths), max(lengths, default=0), *values.shape[1:]), values.dtype)
    for row, end, n in zip(rows, np.cumsum(lengths), lengths):
        row[:n] = values[end - n : end]
    return padded(rows, outer) if outer else rows


def expected(name, x):
    """The outputs for a recorded feature, by name."""
    if "flat" not in x:
        return {name: array(x)}
    lengths = [array(n) for n in x["row_lengths"]]
    return {name: padded(array(x["flat"]), lengths)} | {f"{name}/row_lengths_{k}": n for k, n in enumerate(lengths)}


def check_records(batch, names=None):
    for i, record in enumerate(RECORDED["records"]):
        outputs = {
            n: y for name, x in record.items() if not names or name in names for n, y in expected(name, x).items()
        }
        assert {*batch} == {*outputs}
        for name, y in outputs.items():
            x = batch[name][i]
            assert x.dtype == y.dtype, name
            assert x.shape == y.shape, name
            assert x.tobytes() == y.tobytes(), name


@pytest.mark.parametrize("file_format", FORMATS)
def test_features_equal_tfds(sets, file_format):
    check_records(read(sets / file_format / "kinds/1.0.0"))


@pytest.mark.parametrize("file_format", FORMATS)
def test_splits_equal_tfds(sets, pool, file_format):
    path = sets / file_format / "parts/small/2.0.1"
    for split, numbers in RECORDED["splits"].items():
        if isinstance(numbers, str):
            with pytest.raises(ValueError, match=r"readers.tfds: .*split"):
                ids(pool, path, split, 1)
        else:
            assert ids(pool, path, split, len(numbers)) == numbers, split
            assert len(fn.readers.tfds(path=path, split=split)["id"].node.op.open()) == len(numbers)


def test_weights_belong_to_parts(sets, pool):
    path = sets / "tfrecord/parts/small/2.0.1"
    numbers = ids(pool, path, "train[:30]+test[:10]", 40, weights=(3, 1))
    assert sorted(numbers) == [*range(30), *range(1000, 1010)]
    assert [sum(i >= 1000 for i in numbers[k : k + 4]) for k in range(0, 40, 4)] == [1] * 10
    with pytest.raises(ValueError, match="for each of the 2 parts to be mixed, got 3"):
        ids(pool, path, "train[:30]+test", 1, weights=(3, 1, 1))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("train[8:5]", r"the slice \[8:5\] ends before it begins"),
        ("train[1.5:3]", "boundaries are whole numbers"),
        ("train[:1.2.3%]", "or numbers of percent"),
    ],
)
def test_wrong_slices_are_refused(sets, pool, split, message):
    with pytest.raises(ValueError, match=message):
        ids(pool, sets / "tfrecord/parts/small/2.0.1", split, 1)


def test_template_of_file_names(sets, copied, pool):
    numbers = RECORDED["template"]
    assert ids(pool, sets / "template", "train[10:90%]", len(numbers)) == numbers
    # Files in a folder of their split.
    folder = copied("template")
    text = (folder / "dataset_info.json").read_text().replace("{DATASET}_{SPLIT}_", "{SPLIT}/{DATASET}-")
    (folder / "dataset_info.json").write_text(text)
    (folder / "train").mkdir()
    for k in range(7):
        (folder / f"parts_train_{k:05}.tfrecord").rename(folder / f"train/parts-{k:05}.tfrecord")
    assert ids(pool, folder, "train[10:90%]", len(numbers)) == numbers


def test_features_of_earlier_versions(copied):
    folder = copied("tfrecord/kinds/1.0.0")
    (folder / "features.json").write_text(json.dumps(RECORDED["legacy"]))
    check_records(read(folder))
    # As the data sets of the public bucket have them, with messages as texts, or without messages.
    core = "tensorflow_datasets.core.features"
    shape = '{"dimensions": ["-1", "-1", "3"]}'
    features = {
        "jpeg": {"type": f"{core}.image_feature.Image", "proto_cls": "x", "content": f'{{"shape": {shape}, "dtype": "uint8"}}'},
        "label": {"type": f"{core}.class_label_feature.ClassLabel", "content": {"num_classes": 3}},
        "text": {"type": f"{core}.text_feature.Text", "content": {}},
        "box": {"type": f"{core}.bounding_boxes.BBoxFeature", "content": {}},
        "columns": {"type": f"{core}.feature.Tensor", "content": {"shape": [2, None], "dtype": "float64"}},
        "objects": {
            "type": f"{core}.sequence_feature.Sequence",
            "content": {
                "feature": {
                    "type": f"{core}.features_dict.FeaturesDict",
                    "content": {"bbox": {"type": f"{core}.bounding_boxes.BBoxFeature", "content": {}}},
                },
                "length": None,
            },
        },
    }  # fmt: skip
    tree = {"type": f"{core}.features_dict.FeaturesDict", "content": features}
    (folder / "features.json").write_text(json.dumps(tree))
    check_records(read(folder), [*list(features)[:-1], "objects/bbox"])


def test_other_features_are_refused_by_name(sets):
    path = sets / "array_record/others/1.0.0"
    with pytest.raises(ValueError, match=r"feature 'float_image' is .*'own' is a __main__.OwnFeature.*'steps' is a Dataset.*"
                       r"'translation' is a Translation.*features=\['label'\].*test_tfds.py"):  # fmt: skip
        read(path)
    for name, kind in {"steps/action": "Dataset", "uneven": "Sequence of a Tensor of varying shape"}.items():
        with pytest.raises(ValueError, match=f"is a {kind}"):
            read(path, features=["label", name])
    with pytest.raises(ValueError, match=r"features has 'lable'.*did you mean 'label'"):
        read(path, features="lable")
    assert sorted(x.item() for x in read(path, features=["label"], batch_size=2)["label"]) == [0, 1]


def test_chosen_features_and_groups(sets):
    path = sets / "tfrecord/kinds/1.0.0"
    batch = read(path, features=["objects", "texts/lengths", "inner/x"])
    assert list(batch) == ["objects/bbox", "objects/label", "objects/name", "texts/lengths", "inner/x"]
    for i, record in enumerate(RECORDED["records"]):
        texts = [len(base64.b64decode(item)) for item in record["texts"]["items"]]
        assert batch["texts/lengths"][i].tolist() == texts
    with pytest.raises(ValueError, match="'ints' is no list of strings"):
        read(path, features=["ints/lengths"])


@pytest.mark.parametrize("file_format", FORMATS)
def test_names_of_classes_and_records(sets, file_format):
    metadata = ["label/name", "labels/name", "inner/deeper/label/name", "tfds_id", "text", "ints", "objects/name"]
    batch = read(sets / file_format / "kinds/1.0.0", features=["label"], metadata=metadata)
    assert batch["tfds_id"] == [f"kinds-train.{file_format}-00000-of-00001__{i}" for i in range(5)]
    assert batch["label/name"] == ["cat", "dog", "größe", None, "cat"]
    assert batch["labels/name"] == [["q"] * n for n in range(5)]
    assert [*map(len, batch["objects/name"])] == [*range(5)]
    assert batch["ints"] == [array(record["ints"]).tolist() for record in RECORDED["records"]]
    assert batch["inner/deeper/label/name"] == ["yes"] * 5
    assert batch["text"][1:3] == ["one", "zwölf"]
    parts = sets / "tfrecord/parts/small/2.0.1"
    batch = read(parts, "train[12:18]", 6, metadata=["tfds_id", "index", "record"])
    assert batch["tfds_id"] == RECORDED["tfds_id"]
    assert batch["index"] == [*range(6)]
    assert batch["record"] == [12, 13, 14, 0, 1, 2]
    with pytest.raises(ValueError, match="the classes of 'number' have no names"):
        read(sets / "tfrecord/kinds/1.0.0", metadata=["number/name"])
    with pytest.raises(ValueError, match=r"there is no metadata 'lable'.*did you mean 'label'"):
        read(sets / "tfrecord/kinds/1.0.0", features=["text"], metadata=["lable"])


def test_images_are_decoded(sets):
    @pipeline_def(batch_size=4, num_threads=2)
    def pipeline():
        data = fn.readers.tfds(sets / "tfrecord/kinds/1.0.0", split="train[1:]", features=["deep", "video"])
        deep = fn.decoders.image(data["deep"], output_type=jaxdali.types.ANY_DATA, dtype=jaxdali.types.UINT16)
        return deep, fn.decoders.image(data["video"])

    pipe = pipeline()
    deep, video = ([np.asarray(s) for s in x] for x in pipe.run())
    pipe.close()
    for i, record in enumerate(RECORDED["records"][1:]):  # the first one has no frames
        (png,) = record["deep"]["items"]
        assert (deep[i][..., 0] == np.asarray(Image.open(io.BytesIO(base64.b64decode(png))))).all()
        frames = [np.asarray(Image.open(io.BytesIO(base64.b64decode(f)))) for f in record["video"]["items"]]
        assert len(video[i]) == len(frames) == i + 1
        assert all((x == y).all() for x, y in zip(video[i], frames))


# --- damaged data sets ------------------------------------------------------------------------------------------------


def change(path, edit):
    tree = json.loads(path.read_text())
    edit(tree)
    path.write_text(json.dumps(tree))


def train(tree):
    return next(s for s in tree["splits"] if s["name"] == "train")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: train(t).update(shardLengths=["15", "x"]), "a length of a file is 'x', not a whole number"),
        (lambda t: train(t).update(shardLengths=["-1"]), "split 'train' has a file of -1 records"),
        (lambda t: train(t).update(shardLengths=15), "shard_lengths is 15, not a list"),
        (lambda t: train(t).update(shardLengths=[], numShards="7"), "before 4.0 can't be read"),
        (lambda t: train(t)["shardLengths"].__setitem__(1, "13"), "00001-of-00007 has 14 records, .* says 13"),
        (lambda t: train(t)["shardLengths"].append("1"), "00000-of-00008: No such file"),
        (lambda t: train(t).update(filepathTemplate="../{SPLIT}-{SHARD_X_OF_Y}"), "leads out of"),
        (lambda t: train(t).update(filepathTemplate="http://a/{SHARD_X_OF_Y}"), "is a URL"),
        (
            lambda t: train(t).update(filepathTemplate="{SPLIT.__class__}"),
            "variable 'SPLIT.__class__', which is unknown",
        ),
        (lambda t: t.update(name="../../x"), "leads out of"),
        (lambda t: t.update(fileFormat="riegeli"), "the files are riegeli; only tfrecord and array_record can be read"),
        (lambda t: t.update(splits={}), "splits is {}, not a list"),
        (lambda t: t.update(splits=["train"]), "an object with 'name' was expected, got 'train'"),
    ],
)
def test_damaged_information_about_splits(copied, edit, message):
    folder = copied()
    change(folder / "dataset_info.json", edit)
    with pytest.raises(jaxdali.OperatorError, match=rf"readers.tfds \(created at .*test_tfds.py.*{message}"):
        read(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "features.json is damaged"),
        ("[" * 100_000, "features.json is damaged"),
        ("[]", "it has no object"),
        ("{}", "the features are '', not a FeaturesDict"),
        ('{"pythonClassName": 3}', "python_class_name is 3, not a text"),
        ('{"pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict", "x": {"features": {"id": 3}}}',
         "a feature is 3"),
    ],
)  # fmt: skip
def test_damaged_information_about_features(copied, text, message):
    folder = copied()
    (folder / "features.json").write_text(text)
    with pytest.raises(jaxdali.OperatorError, match=message):
        read(folder)
    (folder / "features.json").unlink()
    with pytest.raises(jaxdali.OperatorError, match=r"has no features.json: data sets of TFDS before 4.0"):
        read(folder)


def test_other_file_format_is_taken(copied, sets, pool):
    folder = copied()
    change(folder / "dataset_info.json", lambda t: t.update(fileFormat="riegeli", alternativeFileFormats=["tfrecord"]))
    assert ids(pool, folder, "train[50:]", 3) == [50, 51, 52]


def test_folder_of_several_versions_is_named(sets):
    with pytest.raises(jaxdali.OperatorError, match=r"parts has no dataset_info.json.*it has small/2.0.1"):
        read(sets / "tfrecord/parts")


def test_damaged_tensor_fails_with_its_name(copied):
    folder = copied("tfrecord/kinds/1.0.0")
    content = zlib.compress(np.arange(6, dtype=np.int16).tobytes())
    (file,) = folder.glob("*.tfrecord*")

    def example(data):
        return containers.example({"zlib_int16": [data], "dynamic/value": [content], "dynamic/shape": [1, 3, 2]})

    records = [
        example(content),
        example(content[:-3]),
        example(zlib.compress(b"1234")),
        example(zlib.compress(bytes(9999))),
    ]
    containers.write_tfrecord(file, records)
    change(folder / "dataset_info.json", lambda t: train(t).update(shardLengths=["4"]))
    assert read(folder, "train[:1]", 1, features=["zlib_int16"])["zlib_int16"][0].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert read(folder, "train[:1]", 1, features=["dynamic"])["dynamic"][0].shape == (1, 3, 2)
    for k in range(1, 4):
        with pytest.raises(SampleError, match=r"tfrecord-00000-of-00001.*feature 'zlib_int16'"):
            read(folder, f"train[{k}:{k + 1}]", 1, features=["zlib_int16"])
    with pytest.raises(SampleError, match=r"feature 'label'"):
        read(folder, batch_size=1, features=["label"])


def test_remote_records_are_found_once(sets, tmp_path, pool, own_threads, monkeypatch):
    monkeypatch.setattr("jaxdali._data.request_threads._IDLE", 1000)  # idle threads don't end by themselves
    requests = []
    files = {str(p.relative_to(sets)): p.read_bytes() for p in (sets / "tfrecord/parts").rglob("*") if p.is_file()}
    Faulty.start(files, 0, lambda file, number: requests.append(file))
    path = "faulty://tfrecord/parts/small/2.0.1"
    storage = Storage(cache_dir=tmp_path / "cache")
    assert ids(pool, path, "test+train[40:]", 30, storage=storage) == [*range(1000, 1023), *range(40, 47)]
    first = len(requests)
    assert ids(pool, path, "test+train[40:]", 30, storage=storage) == [*range(1000, 1023), *range(40, 47)]
    assert not any("tfrecord-" in file for file in requests[first:])
    with pytest.raises(jaxdali.OperatorError, match=r"dataset_info.json"):
        ids(pool, "faulty://tfrecord/parts/small", "train", 1)
    files[next(file for file in files if "-test.tfrecord-" in file)] += b"more"
    with pytest.raises(RuntimeError, match="it is truncated, damaged, or not a TFRecord file"):
        ids(pool, path, "test", 1)
    own_threads.end()


def test_index_beside_a_file_is_used(copied):
    folder = copied()
    for path in folder.glob("*-train.tfrecord*"):
        index = path.with_name(f"{path.name}.idx")
        write_index(path, index)
        index.write_text(re.sub(r"\A.*\n", "", index.read_text()))  # without the first record
    with pytest.raises(jaxdali.OperatorError, match=r"has 14 records, dataset_info.json says 15"):
        read(folder)


def test_pack_writes_a_split(sets, tmp_path, pool):
    arguments = [f"path={sets}/array_record/parts/small/2.0.1", "split=train[10:90%]", "features=id"]
    assert main(["readers.tfds", *arguments, str(tmp_path), "--format", "tfrecord", "--workers", "1"]) == 0
    features = {"id": tfrecord.FixedLenFeature((), tfrecord.int64)}
    (path,) = map(str, tmp_path.glob("*.tfrecord"))
    shards = Shards("tfrecord", {"path": path, "index_path": f"{path}.idx", "features": features}, pool, 1)
    (rows,) = shards.read(len(RECORDED["template"]))
    shards.close()
    assert [int(np.frombuffer(row[0], np.int64)[0]) for _, _, row in rows] == RECORDED["template"]
