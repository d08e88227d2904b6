"""Metadata: the Python objects that accompany samples."""

import importlib
import json
import pathlib
import pickle

import containers
import data_sets as sets
import jax
import map_style
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jaxdali
import jaxdali.dynamic as jd
from jaxdali import fn, pipeline_def, tfrecord, types
from jaxdali._core.names import class_name
from jaxdali._data.index import write_index
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import DALIGenericIterator, data_iterator, peekable_data_iterator
from jaxdali.plugin.jax.fn import jax_function

SIZE = sets.SIZE


def place(i):
    """The container of record i, its first record, and the place in it."""
    k, part = next((k, p) for k, p in enumerate(sets.parts(SIZE)) if i in p)
    return k, part[0], part.index(i)


def frames_of(folder, i):
    k, _, row = place(i)
    return [f"{folder}/{k}/{row + j:03}.png" for j in range(2)]


def entry(folder, i):
    return {"audio_filepath": f"{folder}/{i}.wav", "text": f"text {i}"}


TFDS_FILES = "train.tfrecord-00000-of-00002", "train.tfrecord-00001-of-00002", "test.tfrecord-00000-of-00001"

# The metadata of record i by reader and name, from the way in which the data sets are written.
METADATA = {
    "array_record": {"filename": lambda f, i: f"{f}/{place(i)[0]}.array_record", "record": lambda f, i: place(i)[2]},
    "caffe": {"filename": lambda f, i: f"{f}/{place(i)[1]}", "key": lambda f, i: f"{place(i)[2]:08}"},
    "caffe2": {"filename": lambda f, i: f"{f}/{place(i)[1]}", "key": lambda f, i: f"{place(i)[2]:08}"},
    "coco": {"filename": lambda f, i: f"{f}/{i}.jpg", "image_id": lambda f, i: i},
    "file": {
        "filename": lambda f, i: f"{f}/class {i % 3}/{i:03}.jpg",
        "source_info": lambda f, i: f"class {i % 3}/{i:03}.jpg",
    },
    "mxnet": {"filename": lambda f, i: f"{f}/{place(i)[1]}.rec", "record": lambda f, i: place(i)[2]},
    "nemo_asr": {
        "filename": lambda f, i: f"{f}/{i}.wav",
        "text": lambda f, i: f"text {i}",
        "json": entry,
        "index": lambda f, i: i,
    },
    "numpy": {"filename": lambda f, i: f"{f}/{i:03}.npy", "index": lambda f, i: i},
    "parquet": {
        "name": lambda f, i: f"name {i}",
        "boxes": lambda f, i: [0.5 * i] * (i % 4),
        "row": lambda f, i: place(i)[2],
        "filename": lambda f, i: f"{f}/{place(i)[0]}.{'arrow' if place(i)[0] == 2 else 'parquet'}",
    },
    "sequence": {"filenames": frames_of, "filename": lambda f, i: frames_of(f, i)[0]},
    "source": {"index": lambda f, i: i, "source_info": lambda f, i: f"Items[{i}]"},
    "tfds": {
        "label": lambda f, i: i,
        "label/name": lambda f, i: f"class {i}",
        "tfds_id": lambda f, i: f"numbers-{TFDS_FILES[place(i)[0]]}__{place(i)[2]}",
        "index": lambda f, i: i,
    },
    "tfrecord": {
        "label": lambda f, i: i,
        "filename": lambda f, i: f"{f}/{place(i)[1]}",
        "record": lambda f, i: place(i)[2],
    },
    "tokens": {"index": lambda f, i: i},
    "video": {"filename": lambda f, i: f"{f}/{place(i)[0]}.mp4", "frame": lambda f, i: place(i)[2]},
    "video_resize": {
        "filename": lambda f, i: f"{f}/{place(i)[0]}.mp4",
        "frame": lambda f, i: place(i)[2],
        "index": lambda f, i: i,
    },
    "webdataset": {
        "cls": lambda f, i: i,
        "__key__": lambda f, i: f"{i}",
        "__url__": lambda f, i: f"{f}/{place(i)[0]}.tar",
    },
    "zip": {"filename": lambda f, i: f"{f}/{place(i)[0]}.zip", "member": lambda f, i: f"class {i % 3}/{i}.txt"},
}
OTHER_ARGUMENTS = {
    **{name: {"labels": [0, 1, 2], "enable_frame_num": True} for name in ("video", "video_resize")},
    "parquet": {"columns": ["image"]},
    "tfds": {"features": ["image"]},
    "tfrecord": {"features": {"image": tfrecord.FixedLenFeature((), tfrecord.string, "")}},
    "tokens": {"packing": "sequential"},
    "webdataset": {"ext": ["jpg"]},
}


def number_of(name, x):
    """The number of the record, from its first array."""
    x = np.asarray(x)
    if name == "numpy":
        return int(x[0, 0])
    if name == "nemo_asr":
        return round(float(x[0]) * 32768)
    if name.startswith("video"):
        return sets.parts(SIZE)[x[0]][x[1]]
    if name == "sequence":
        k, j = divmod(int(x[0, 0, 0, 0]), 10) if x.shape[1] < 6 else (2, int(x[0, 0, 0, 0]) - 20)
        return sets.parts(SIZE)[k][j]
    return int(x.astype(np.uint8).tobytes().split()[1])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return sets.DataSets(str(tmp_path_factory.mktemp("sets")))


def identity(name, nodes):
    """The identity of a record: its content, or label and frame number of a clip."""
    return fn.cat(nodes[1], nodes[2]) if name.startswith("video") else nodes[0]


def definition(made, name, names, **order):
    arguments = {**made(name), **OTHER_ARGUMENTS.get(name, {})}

    def define(num_shards=1, shard_id=0):
        reader = getattr(fn.readers, name)
        nodes = sets.nodes_in(
            reader(**arguments, metadata=names, name="r", num_shards=num_shards, shard_id=shard_id, **order)
        )
        return identity(name, nodes), *nodes[len(nodes) - len(names) :]

    return define


def mesh(n):
    return NamedSharding(Mesh(np.array(jax.devices()[:n]), ("data",)), PartitionSpec("data"))


def check(made, name, names, batch, rows=None):
    """Every row of a batch has the metadata of its own record. `rows`: which rows there are; None: all."""
    folder = made.folder(name)
    rows = range(len(batch["x"])) if rows is None else rows
    for n in names:
        assert len(batch[n]) == len(batch["x"])
        assert [batch[n][k] for k in rows] == [METADATA[name][n](folder, number_of(name, batch["x"][k])) for k in rows]


def test_every_reader_has_a_row():
    missing = {*sets.READERS} - {*METADATA}
    assert not missing, f"METADATA needs a row, and number_of maybe a branch, for {missing}"


@pytest.mark.parametrize("name", sets.READERS)
# States go on with the same one.
@pytest.mark.filterwarnings("ignore:.*after the first epoch can't go on with another number of shards")
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_metadata_stay_with_their_samples(made, name, data):
    names = data.draw(st.lists(st.sampled_from(sorted(METADATA[name])), min_size=1, max_size=3, unique=True))
    order = data.draw(
        st.sampled_from(
            [{}, {"shuffle": "global"}, {"random_shuffle": True, "initial_fill": 7}, {"shuffle_after_epoch": True}]
        )
    )
    order = {**order, "pad_last_batch": data.draw(st.booleans())}
    S, B = data.draw(st.sampled_from([1, 2, 4])), data.draw(st.integers(1, 5))
    policy = data.draw(st.sampled_from(list(LastBatchPolicy)))
    options = {"last_batch_policy": policy, "mask_name": "mask" if policy is LastBatchPolicy.PARTIAL else None}
    factory = data_iterator(
        definition(made, name, names, **order),
        ["x", *names],
        reader_name="r",
        sharding=mesh(S) if S > 1 else None,
        ragged={"x": None},
        **options,
    )

    def iterator(checkpoints=None):
        return factory(batch_size=S * B, num_threads=2, seed=3, enable_checkpointing=True, checkpoints=checkpoints)

    it, batches = iterator(), []
    resume = data.draw(st.integers(0, 3))
    for step in range(resume + 4):
        if step == resume:
            checkpoints = it.checkpoints()
            it.close()
            it = iterator(checkpoints)
        try:
            batch = next(it)
        except StopIteration:
            it.reset()
            continue
        present = None if policy is not LastBatchPolicy.PARTIAL else np.flatnonzero(np.asarray(batch["mask"])).tolist()
        check(made, name, names, batch, present)
        batches.append(batch)
    it.close()
    assert batches


@pytest.mark.parametrize("name", sets.READERS)
def test_readers_without_a_pipeline_give_metadata(made, name):
    names = sorted(METADATA[name])
    arguments = {**made(name), **OTHER_ARGUMENTS.get(name, {})}
    kind = getattr(jd.readers, class_name(name))
    count = 0
    for batch in kind(**arguments, metadata=names, batch_size=5).next_epoch():
        if isinstance(batch, dict):
            batch = [batch["image"], *(batch[n] for n in names)]
        first = (
            [np.concatenate(x) for x in zip(batch[1].samples(), batch[2].samples())]
            if name.startswith("video")
            else batch[0].samples()
        )
        entries = {"x": [np.asarray(x) for x in first], **dict(zip(names, batch[-len(names) :], strict=True))}
        check(made, name, names, entries)
        count += len(entries["x"])
    assert count >= SIZE - 4


# --- which samples there are ----------------------------------------------------------------------------------------


def content(i):
    return b"record %d" % i


def write(folder, n, missing=()):
    paths = [str(folder / f"{i:02}") for i in range(n)]
    for i in range(n):
        if i not in missing:
            pathlib.Path(paths[i]).write_bytes(content(i))
    return paths


def named(paths, **arguments):
    def define(num_shards=1, shard_id=0):
        return fn.readers.file(
            files=paths, metadata=["filename", "index"], name="r", num_shards=num_shards, shard_id=shard_id, **arguments
        )

    return define


NAMES = ["x", "label", "filename", "index"]


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_unreadable_samples(tmp_path, on_error, shards):
    paths = write(tmp_path, 12, missing=(1, 6, 7))
    make = data_iterator(
        named(paths, on_error=on_error),
        NAMES,
        reader_name="r",
        last_batch_policy=LastBatchPolicy.PARTIAL,
        mask_name="mask",
        ragged={"x": None},
        sharding=mesh(shards) if shards > 1 else None,
    )
    indices = []
    for batch in make(batch_size=4, num_threads=2):
        for is_present, x, label, name, index in zip(
            batch["mask"], batch["x"], batch["label"], batch["filename"], batch["index"], strict=True
        ):
            if not is_present:
                assert name is None
                assert index is None
                continue
            assert (
                pathlib.Path(name).read_bytes() == np.asarray(x).tobytes() == content(index) == content(int(label[0]))
            )
            indices.append(index)
    assert sorted(set(indices)) == [i for i in range(12) if i not in (1, 6, 7)]
    assert len(indices) == (9 if on_error == "skip" else 12)


def test_short_batches_without_a_mask(tmp_path):
    pytest.importorskip("torch")
    torch_iterator = importlib.import_module("jaxdali.plugin.pytorch")
    paths = write(tmp_path, 6, missing=(2,))

    @pipeline_def(batch_size=4, num_threads=1, device_id=None)
    def pipeline():
        _, label, name, index = named(paths, on_error="skip")()
        return label, name, index

    outputs = pipeline().run()
    assert outputs[1] == [paths[i] for i in (0, 1, 3)]
    assert outputs[2] == outputs[0].as_array()[:, 0].tolist() == [0, 1, 3]

    it = torch_iterator.DALIGenericIterator(pipeline(), ["label", "name", "index"], reader_name="r")
    first, last = [x for [x] in it]
    assert first["index"] == first["label"][:, 0].tolist() == [0, 1, 3]
    assert last["index"] == last["label"][:, 0].tolist() == [4, 5]
    assert list(first.arrays) == ["label"]
    assert first.metadata == {"name": [paths[i] for i in (0, 1, 3)], "index": [0, 1, 3]}
    it = torch_iterator.DALIClassificationIterator(two(paths[3:]), reader_name="r")
    [batch] = next(it)
    assert [*batch] == ["data", "label", "filename"]
    assert batch["filename"] == paths[3:5]
    assert [*batch.arrays] == ["data", "label"]
    it = torch_iterator.DALIRaggedIterator(
        two(paths[3:]), ["data", "label", "name"], reader_name="r", output_types=["sparse_list", "dense", "dense"]
    )
    assert [x["name"] for [x] in it] == [paths[3:5], paths[5:]]


@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def two(paths):
    x, label, name = fn.readers.file(files=paths, metadata="filename", name="r")
    return fn.pad(x, axes=[0], shape=[12]), label, name


def archived(folder, members):
    """The arguments that read an archive with these members."""
    write_index(containers.write_tar(folder / "a.tar", members), folder / "a.idx")
    return {"paths": str(folder / "a.tar"), "index_paths": str(folder / "a.idx")}


def test_damaged_metadata_are_errors_of_their_samples(tmp_path):
    members = [
        (f"{i}.{e}", x)
        for i in range(5)
        for e, x in (("cls", b"%d" % i), ("json", b'{"i": %d}' % i if i != 3 else b'{"i": '))
    ]
    archive = archived(tmp_path, [*members, ("5.cls", b"5")])

    @pipeline_def(batch_size=6, num_threads=1, device_id=None)
    def pipeline(on_error):
        return tuple(fn.readers.webdataset(**archive, ext=["cls"], metadata=["json"], on_error=on_error))

    with pytest.raises(jaxdali.SampleError, match=r"a\.tar.*'json' of '3'"):
        pipeline("raise").run()
    records, objects = pipeline("skip").run()
    assert [bytes(np.asarray(x)) for x in records] == [b"0", b"1", b"2", b"4", b"5"]
    assert objects == [{"i": 0}, {"i": 1}, {"i": 2}, {"i": 4}, None]


# --- who takes them -------------------------------------------------------------------------------------------------

REFUSED = {
    "flip": (lambda x, name: fn.flip(name, horizontal=1), "flip: input 0"),
    "flip.horizontal": (lambda x, name: fn.flip(x, horizontal=name), "flip: argument horizontal"),
    "arithmetic": (lambda x, name: x + name, "arithmetic: input 1"),
    "copy": (lambda x, name: name.gpu(), "copy: input 0"),
    "jax_function": (lambda x, name: jax_function(lambda a: a)(name), "jax_function: input 0"),
    "dl_tensor_python_function": (
        lambda x, name: fn.dl_tensor_python_function(name, function=lambda a: a),
        "dl_tensor_python_function: input 0",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_other_operators_refuse_them(tmp_path, what):
    use, said = REFUSED[what]

    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def pipeline():
        _, x, name = fn.readers.file(files=write(tmp_path, 3), metadata=["filename"])
        return use(x, name)

    with pytest.raises(TypeError, match=rf"{said} is the metadata 'filename' of readers\.file .*test_metadata\.py:\d+"):
        pipeline().build()


def test_unknown_names(tmp_path):
    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def pipeline(names):
        return tuple(fn.readers.file(files=write(tmp_path, 3), metadata=names))

    with pytest.raises(
        jaxdali.OperatorError, match=r"readers\.file .*no metadata 'filenam'.*index.*did you mean 'filename'"
    ):
        pipeline(["filenam"]).build()
    with pytest.raises(ValueError, match=r"distinct"):
        pipeline(["index", "index"]).build()


def test_members_with_a_byte_order_mark(tmp_path):
    archive = archived(
        tmp_path,
        [(f"0.{e}", f"\ufeff{text}".encode()) for e, text in (("cls", "3"), ("txt", "zwölf"), ("json", '{"a": 1}'))],
    )

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline():
        return tuple(fn.readers.webdataset(**archive, ext=["cls"], metadata=["cls", "txt", "json"]))

    assert [x[0] for x in pipeline().run()[1:]] == [3, "zwölf", {"a": 1}]


def test_a_function_makes_arrays_of_texts(tmp_path):
    captions = ["one", "", "three words here", "zwölf"]
    members = [
        (f"{i}.{e}", x) for i, text in enumerate(captions) for e, x in (("cls", b"%d" % i), ("txt", text.encode()))
    ]
    archive = archived(tmp_path, members)

    def tokens(text):
        return np.array([len(word) for word in text.split()], np.int32)

    def lengths(texts):
        return [np.int32(len(text)) for text in texts]

    @data_iterator(output_map=["text", "bytes", "tokens", "length"], ragged={"bytes": 20, "tokens": 5}, reader_name="r")
    def iterator():
        encoded, text = fn.readers.webdataset(**archive, ext=["txt"], metadata=["txt"], name="r")
        length = fn.python_function(text, function=lengths, batch_processing=True)
        return text, encoded, fn.python_function(text, function=tokens), length

    batch = next(iterator(batch_size=4, num_threads=1))
    assert batch["text"] == captions
    assert [bytes(np.asarray(x[:n])).decode() for x, n in zip(*batch["bytes"], strict=True)] == captions
    assert [x[:n].tolist() for x, n in zip(*batch["tokens"], strict=True)] == [[3], [], [5, 5, 4], [5]]
    assert batch["length"].tolist() == [3, 0, 16, 5]
    total = jax.jit(lambda arrays: arrays["tokens"][1].sum())(jax.device_put(batch.arrays))
    assert total == 5


def test_functions_in_branches(tmp_path):
    paths = write(tmp_path, 6)

    @pipeline_def(batch_size=6, num_threads=1, device_id=None, enable_conditionals=True)
    def pipeline():
        _, label, _, index = named(paths)()
        if label[0] > 2:
            y = fn.python_function(index, function=lambda i: np.int32(i + 100))
        else:
            y = fn.cast(label[0], dtype=types.INT32)
        return y, index

    y, index = pipeline().run()
    assert y.as_array().tolist() == [0, 1, 2, 103, 104, 105]
    assert index == [*range(6)]


# --- forms ----------------------------------------------------------------------------------------------------------


def test_several_pipelines_and_prefetching_keep_the_order(tmp_path):
    paths = write(tmp_path, 12)

    @pipeline_def(batch_size=2, num_threads=1, prefetch_queue_depth=3)
    def pipeline(shard):
        _, label, name, index = named(paths, shuffle="global")(2, shard)
        return label, name, index

    it = DALIGenericIterator(
        [pipeline(s, device_id=s, seed=5) for s in range(2)], ["label", "name", "index"], reader_name="r"
    )
    indices = []
    for batch in it:
        assert batch["label"].shape == (2, 2, 1)
        assert batch["index"] == batch["label"].reshape(-1).tolist()
        assert batch["name"] == [paths[i] for i in batch["index"]]
        indices += batch["index"]
    assert sorted(indices) == [*range(12)]


def test_peeking_element_spec_and_pickle(tmp_path):
    make = peekable_data_iterator(named(write(tmp_path, 4)), NAMES, reader_name="r", ragged={"x": None})
    it = make(batch_size=2, num_threads=1)
    assert {*it.element_spec} == {"x", "label"}
    peeked = it.peek()
    assert peeked["index"] == next(it)["index"] == [0, 1]
    assert [*peeked.arrays] == ["x", "label"]
    assert pickle.loads(pickle.dumps(peeked)).arrays.keys() == peeked.arrays.keys()
    plain = data_iterator(named(write(tmp_path, 4)), NAMES, reader_name="r", ragged={"x": None})(
        batch_size=2, num_threads=1
    )
    assert {*plain.element_spec} == {"x", "label"}
    assert "filename: metadata[2] 'filename'" in repr(plain)
    with pytest.raises(ValueError, match=r"ragged\['index'\].*metadata"):
        data_iterator(named(write(tmp_path, 4)), NAMES, reader_name="r", ragged={"index": 3})(
            batch_size=2, num_threads=1
        )


def test_a_sharding_for_each_array(tmp_path):
    paths, on = write(tmp_path, 8), mesh(4)

    def padded(num_shards, shard_id):  # in a program, which other outputs of the host go through
        x, *metadata = named(paths)(num_shards, shard_id)
        return fn.pad(x, axes=[0], shape=[10]), *metadata

    batch = next(
        data_iterator(padded, NAMES, reader_name="r", sharding={"x": on, "label": on})(batch_size=4, num_threads=1)
    )
    assert batch["x"].shape == (4, 10)
    assert batch["label"].sharding == on
    assert batch["index"] == batch["label"][:, 0].tolist() == [0, 2, 4, 6]
    with pytest.raises(ValueError, match="output_map"):
        data_iterator(named(paths), NAMES, reader_name="r", sharding={"x": on}, ragged={"x": 10})(
            batch_size=4, num_threads=1
        )


def test_serialized_pipelines_and_statistics(tmp_path):
    paths = write(tmp_path, 4)

    @pipeline_def(batch_size=2, num_threads=1, device_id=None, output_dtype=types.INT32)
    def pipeline():
        _, label, name, _ = named(paths)()
        return label, name

    copy = jaxdali.Pipeline.deserialize(pipeline().serialize(), enable_statistics=True)
    assert copy.run()[1] == paths[:2]
    assert "read" in str(copy.statistics())
    copy.save_graph_to_dot_file(str(tmp_path / "graph.dot"), show_tensors=True)
    assert "metadata[2] 'filename'" in repr(copy)


# --- sources --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 2])
def test_items_keep_objects(num_workers):
    data = map_style.Captioned(9)

    @data_iterator(output_map=["x", "caption", "boxes"], reader_name="r")
    def iterator():
        item = fn.readers.source(
            data, num_workers=num_workers, metadata=["caption", "boxes"], shuffle="global", name="r"
        )
        assert [*item] == ["x", "caption", "boxes"]
        return item["x"], item["caption"], item["boxes"]

    all_numbers = []
    for batch in iterator(batch_size=3, num_threads=1, seed=1):
        numbers = np.asarray(batch["x"])[:, 0, 0].tolist()
        assert batch["caption"] == [f"caption {i}" for i in numbers]
        assert batch["boxes"] == [[{"box": k} for k in range(i % 3)] for i in numbers]
        all_numbers += numbers
    assert sorted(all_numbers) == [*range(9)]


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("batch", [False, True])
def test_external_source(batch, parallel):
    def sample(info):
        if info.idx_in_epoch >= 7:
            raise StopIteration
        i = info.idx_in_epoch
        return np.full(3, i, np.int32), np.float32(i), {"i": i}, [i] * 3

    def whole(iteration):
        if iteration == 3:
            raise StopIteration
        rows = [sample(types.SampleInfo(i, 0, 0, 0)) for i in range(3 * iteration, min(3 * iteration + 3, 7))]
        return [np.stack(x) if k < 2 else list(x) for k, x in enumerate(zip(*rows, strict=True))]

    @pipeline_def(batch_size=3, num_threads=1, device_id=None, py_num_workers=2)
    def pipeline():
        source = whole if batch else sample
        return tuple(
            fn.external_source(source, num_outputs=2, batch=batch, parallel=parallel, metadata=["object", "list"])
        )

    pipe, all_numbers = pipeline(), []
    for _ in range(3 if batch else 2):
        x, y, objects, lists = pipe.run()
        numbers = y.as_array().tolist()
        assert np.asarray(x.as_array())[:, 0].tolist() == numbers
        assert objects == [{"i": i} for i in numbers]
        assert lists == [[i] * 3 for i in numbers]
        all_numbers += numbers
    assert all_numbers == [*range(7 if batch else 6)]


def test_metadata_alone_and_unused_outputs():
    def sample(info):
        return np.zeros(2, np.int32), f"text {info.idx_in_epoch}", object()

    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def pipeline(which):
        nodes = fn.external_source(sample, batch=False, metadata=["text", "other"])
        return tuple(nodes[k] for k in which)

    assert pipeline([1]).run() == (["text 0", "text 1"],)
    x, text = pipeline([0, 1]).run()
    assert (len(x), text) == (2, ["text 0", "text 1"])


def test_fed_data():
    @pipeline_def(batch_size=3, num_threads=1, device_id=None, exec_pipelined=False, exec_async=False)
    def pipeline():
        x, name = fn.external_source(name="fed", metadata=["name"], batch=True)
        return x, name

    pipe = pipeline()
    for n in (3, 2):
        names = [f"{n}, {i}" for i in range(n)]
        pipe.feed_input("fed", (np.arange(n), names))
        x, metadata = pipe.run()
        assert x.as_array().tolist() == [*range(n)]
        assert metadata == names


def test_json_of_a_manifest_is_a_copy(made):
    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline():
        return fn.readers.nemo_asr(**made("nemo_asr"), metadata=["json"])[-1]

    first = pipeline().run()[0][0]
    assert json.dumps(first)
    first["text"] = "changed"
    assert pipeline().run()[0][0]["text"] == "text 0"
