"""Readers without a pipeline: epochs, shards, states, errors.

The references are a pipeline with the same reader, and recorded results of DALI.
"""

import copy
import gc
import inspect
import json
import pathlib
import pickle
from collections import Counter

import numpy as np
import pytest
from images import encode, picture

import jaxdali
import jaxdali.dynamic as jd
import jaxdali.experimental.dynamic as ndd
from jaxdali import fn, pipeline_def


@pytest.fixture
def folder(tmp_path):
    for name, count in (("a", 7), ("b", 3)):
        (tmp_path / name).mkdir()
        for i in range(count):
            (tmp_path / name / f"{i}.jpg").write_bytes(f"{name}{i}".encode())
    return str(tmp_path)


def texts(batch):
    return [bytes(np.asarray(x)).decode() for x in batch]


def epoch(reader, batch_size=None):
    if batch_size is None:
        return [texts([files])[0] for files, _ in reader.next_epoch()]
    return [texts(files) for files, _ in reader.next_epoch(batch_size=batch_size)]


def test_epochs_of_dali(folder):
    """Recorded from DALI 2.4: all batches are full, the last one with samples of the next epoch."""
    reader = jd.readers.File(file_root=folder)
    assert epoch(reader, 4) == [["a0", "a1", "a2", "a3"], ["a4", "a5", "a6", "b0"], ["b1", "b2", "a0", "a1"]]
    assert epoch(reader, 4) == [["a2", "a3", "a4", "a5"], ["a6", "b0", "b1", "b2"], ["a0", "a1", "a2", "a3"]]
    reader = jd.readers.File(file_root=folder, num_shards=3, shard_id=1, pad_last_batch=True, batch_size=4)
    assert [texts(files) for files, _ in reader.next_epoch()] == [["a3", "a4", "a5", "a5"]]
    assert [texts(files) for files, _ in reader.next_epoch()] == [["a6", "b0", "b1", "b2"]]
    reader = jd.readers.File(file_root=folder, num_shards=3, shard_id=1, stick_to_shard=True)
    assert [epoch(reader) for _ in range(2)] == [["a3", "a4", "a5"]] * 2
    assert reader.get_metadata() == {
        "epoch_size": 10, "epoch_size_padded": 10, "number_of_shards": 3, "shard_id": 1, "pad_last_batch": 0, "stick_to_shard": 1,
    }  # fmt: skip


def test_values(folder, tmp_path):
    files, label = next(jd.readers.File(file_root=folder).next_epoch())
    assert isinstance(files, jd.Tensor)
    assert (files.dtype, label.tolist(), label.dtype) == (np.uint8, [0], np.int32)
    files, labels = next(jd.readers.File(file_root=folder).next_epoch(batch_size=8))
    assert isinstance(files, jd.Batch)
    assert labels.numpy()[:, 0].tolist() == [0] * 7 + [1]
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(2, 3))
    # One output is a tuple, too.
    (x,) = next(jd.readers.Numpy(files=[str(tmp_path / "x.npy")]).next_epoch(batch_size=1))
    assert x.numpy().tolist() == [[[0, 1, 2], [3, 4, 5]]]


def test_all_readers_have_classes():
    assert set(jd.readers.__all__) == {"Reader", *(n for n in dir(jaxdali.ops.readers) if n[0].isupper())}
    with pytest.raises(AttributeError, match="did you mean 'File'"):
        jd.readers.Fil
    assert "batch_size" in inspect.signature(jd.readers.File).parameters


def test_map_style_data():
    data = [{"x": np.arange(i + 1), "y": i} for i in range(5)]
    (batch,) = jd.readers.Source(data, batch_size=5, pad_last_batch=True).next_epoch()
    assert batch["x"].shapes == [(1,), (2,), (3,), (4,), (5,)]
    assert batch["y"].numpy().tolist() == [0, 1, 2, 3, 4]


def test_epoch_images_equal_a_pipelines(tmp_path):
    for i in range(6):
        (tmp_path / f"{i}.jpg").write_bytes(encode(picture(20 + i, 30), "JPEG"))
    files = [str(tmp_path / f"{i}.jpg") for i in range(6)]
    order = {"files": files, "shuffle": "global", "seed": 5}

    @pipeline_def(batch_size=3, num_threads=1)
    def define():
        data, labels = fn.readers.file(**order)
        return fn.resize(fn.decoders.image(data), size=(8, 8)), labels

    pipe = define()
    reader = jd.readers.File(**order)
    for _ in range(2):
        for data, labels in reader.next_epoch(batch_size=3):
            expected = pipe.run()
            np.testing.assert_array_equal(
                jd.resize(jd.decoders.image(data), size=(8, 8)).numpy(), expected[0].as_array()
            )
            np.testing.assert_array_equal(labels.numpy(), expected[1].as_array())
    pipe.close()


@pytest.mark.parametrize("num_batches", [0, 1, 3, 4, 7])
@pytest.mark.parametrize("other_size", [4, 3, None])
def test_resuming(folder, num_batches, other_size):
    """After any number of batches, with another batch size, in a new reader or in the same one."""

    def new():
        return jd.readers.File(file_root=folder, shuffle="global", seed=3, pad_last_batch=other_size is None)

    def stream(reader, size, epochs):
        return [x for _ in range(epochs) for b in epoch(reader, size) for x in ([b] if size is None else b)]

    reader, num_read = new(), 0
    while num_read < num_batches:
        for _ in reader.next_epoch(batch_size=2):
            num_read += 1
            if num_read == num_batches:
                break
    state = reader.get_state()
    assert json.loads(json.dumps(state)) == state
    expected = stream(reader, other_size, 3)
    resumed = new()
    resumed.set_state(json.dumps(state))
    assert stream(resumed, other_size, 3) == expected
    assert stream(resumed, 2, 1)
    resumed.set_state(state)
    assert stream(resumed, other_size, 3) == expected


def test_another_number_of_shards(folder):
    """Three shards read each record once that two shards had not read of their epoch."""
    read: Counter[str] = Counter()
    states = []
    for shard in range(2):
        reader = jd.readers.File(file_root=folder, shuffle="global", seed=3, num_shards=2, shard_id=shard)
        files, _ = next(reader.next_epoch(batch_size=2))
        read.update(texts(files))
        states.append(reader.checkpoint())
    for shard in range(3):
        reader = jd.readers.File(file_root=folder, shuffle="global", seed=3, num_shards=3, shard_id=shard)
        reader.set_state(states[0])
        read.update(epoch(reader))
    assert read == Counter(f"a{i}" for i in range(7)) + Counter(f"b{i}" for i in range(3))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))])
@pytest.mark.parametrize("module", [jd.readers, ndd.readers])
def test_copies_read_on_by_themselves(folder, copied, module):
    arguments = {"file_root": folder, "shuffle": "global", "batch_size": 2}

    def rest(epoch):
        return [texts([np.asarray(x) for x in files]) for files, _ in epoch]

    first = rest(module.File(**arguments, seed=1).next_epoch())
    reader = module.File(**arguments, seed=1)
    started = reader.next_epoch()
    assert texts([np.asarray(x) for x in next(started)[0]]) == first[0]
    copies = [copied(reader), copied(reader)]
    epochs = [c.next_epoch() for c in copies]
    for batch in first[1:]:
        for e in (started, *epochs):
            assert texts([np.asarray(x) for x in next(e)[0]]) == batch
    assert next(started, None) is None
    for c in copies:
        c.close()
    assert texts([np.asarray(x) for x in next(reader.next_epoch())[0]])  # its runner goes on


def test_invalid_states(folder):
    reader = jd.readers.File(file_root=folder)
    damaged = dict(reader.get_state(), left=3)
    for state in (damaged, b"no state", "{}", {"left": 1}, 7):
        with pytest.raises(RuntimeError, match=r"readers\.File: this is not the state of a reader"):
            reader.set_state(state)
    other_reader = jd.readers.File(files=[f"{folder}/a/0.jpg"])
    other_reader.set_state(reader.get_state())
    with pytest.raises(RuntimeError, match="files is"):
        next(other_reader.next_epoch(batch_size=1))


def test_errors(folder, tmp_path):
    with pytest.raises(TypeError, match="file_root"):
        jd.readers.File(file_rot=folder)
    with pytest.raises(ValueError, match=r"readers\.File: argument batch_size must be a whole number at least 1"):
        jd.readers.File(file_root=folder, batch_size=0)
    reader = jd.readers.File(file_root=folder)
    with pytest.raises(TypeError, match=r"readers\.File: argument batch_size must be a whole number"):
        reader.next_epoch(batch_size=2.5)
    first, second = reader.next_epoch(batch_size=2), reader.next_epoch(batch_size=3)
    next(first)
    next(second)
    with pytest.raises(RuntimeError, match="this epoch ended when another one was begun"):
        next(first)
    with pytest.raises(jaxdali.OperatorError, match=r"readers\.file \(created at .*test_readers.*can't list file_root"):
        next(jd.readers.File(file_root=str(tmp_path / "nowhere")).next_epoch(batch_size=1))


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_unreadable_records(folder, on_error):
    files = [f"{folder}/a/{i}.jpg" for i in range(4)]
    missing = pathlib.Path(files[2])
    reader = jd.readers.File(files=files, on_error=on_error)
    reader.get_metadata()
    missing.unlink()
    if on_error == "raise":
        batches = reader.next_epoch(batch_size=2)
        assert texts(next(batches)[0]) == ["a0", "a1"]
        with pytest.raises(jaxdali.SampleError, match=r"a/2\.jpg"):
            next(batches)
        return
    records = [x for b in epoch(reader, 2) for x in b]
    assert records == (["a0", "a1", "a3"] if on_error == "skip" else ["a0", "a1", "a3", "a3"])
    assert [(b.file.endswith("a/2.jpg"), b.count) for b in reader.bad_samples()] == [(True, 1)]


def test_threads_end(folder, own_threads):
    reader = jd.readers.File(file_root=folder)
    next(reader.next_epoch(batch_size=2))
    assert own_threads()
    reader.close()
    assert own_threads.ended()
    assert epoch(reader, 2)[0] == ["a2", "a3"]  # the next epoch continues where the loop stopped
    del reader
    gc.collect()
    assert own_threads.ended()
