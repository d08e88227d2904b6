"""Properties of all readers: each record once in an epoch, orders, shards, padding, resumption, storage."""

import collections
import inspect
import pathlib
import shutil
import tempfile
from typing import Any

import numpy as np
import pytest
from data_sets import MAKERS, READERS, SIZE, Shards, nodes_in, parts, payload, replaced
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxdali
from jaxdali import fn, pipeline_def
from jaxdali._data.records import Mixed, Records

orders = st.sampled_from(
    [
        {},
        {"random_shuffle": True},
        {"random_shuffle": True, "initial_fill": 4},
        {"shuffle_after_epoch": True},
        {"shuffle": "global"},
    ]
)
few_examples = settings(max_examples=15, deadline=None)


@pytest.mark.parametrize("name", READERS)
@few_examples
@given(order=orders, S=st.integers(1, 4), B=st.integers(1, 7), pad=st.booleans(), seed=st.integers(0, 3))
def test_records_come_once_in_an_epoch(data_sets, pool, name, order, S, B, pad, seed):
    arguments = {**data_sets(name), **order, "pad_last_batch": pad}
    shards = Shards(name, arguments, pool, S, seed)
    samples_of_shards = shards.epochs(B, 2)
    shards.close()
    records = set()
    for epoch in range(2):
        samples = [[x for x in shard if x[0] == epoch] for shard in samples_of_shards]
        if pad:  # all shards are equally long, in full batches; what is added repeats their last sample
            largest_shard = -(-SIZE // S)
            assert {len(shard) for shard in samples} == {-(-largest_shard // B) * B}
            assert all(x == shard[len({*shard}) - 1] for shard in samples for x in shard[len({*shard}) :])
            samples = [shard[: len({*shard})] for shard in samples]
        times = collections.Counter(x[2] for shard in samples for x in shard)
        assert len(times) == SIZE
        assert set(times.values()) == {1}
        assert sorted(x[1] for shard in samples for x in shard) == list(range(SIZE))
        records |= times.keys()
    assert len(records) == SIZE


@pytest.mark.parametrize("name", READERS)
def test_orders_follow_from_seed_and_epoch(data_sets, pool, name):
    def read(seed: int, **order: Any) -> tuple[list[Any], list[Any]]:
        shards = Shards(name, {**data_sets(name), **order}, pool, 1, seed)
        (samples,) = shards.epochs(SIZE, 2)
        shards.close()
        return [x[2] for x in samples[:SIZE]], [x[2] for x in samples[SIZE:]]

    first, second = read(1)
    assert first == second
    for order in ({"random_shuffle": True}, {"shuffle": "global"}):
        shuffled_first, shuffled_second = read(1, **order)
        assert (shuffled_first, shuffled_second) == read(1, **order)
        # List order, and two epochs of each of two seeds: all differ.
        assert len({*map(tuple, (first, shuffled_first, shuffled_second, *read(2, **order)))}) == 5


@pytest.mark.parametrize("name", READERS)
@few_examples
@given(
    order=orders,
    S=st.integers(1, 3),
    B=st.integers(1, 5),
    pad=st.booleans(),
    batches=st.integers(0, 12),
    later_shards=st.integers(1, 4),
)
def test_reading_goes_on_anywhere(data_sets, pool, name, order, S, B, pad, batches, later_shards):
    arguments = {**data_sets(name), **order, "pad_last_batch": pad}
    shards = Shards(name, arguments, pool, S)
    first_samples = [x for _ in range(batches) for shard in shards.read(B) for x in shard]
    saved = shards.saved()
    same_shards, other_shards = Shards(name, arguments, pool, S), Shards(name, arguments, pool, later_shards)
    same_shards.cursors = same_shards.source.resume(saved, True)
    assert [same_shards.read(B) for _ in range(3)] == [shards.read(B) for _ in range(3)]
    # Shards that differ in size drift apart.
    if not (order == {"shuffle_after_epoch": True} or order == {"shuffle": "global"}) or pad:
        other_shards.cursors = other_shards.source.resume(saved, False)
        num_epochs = max(c["round"] for c in other_shards.cursors) + 2
        times = collections.Counter(first_samples + [x for shard in other_shards.epochs(B, num_epochs) for x in shard])
        for epoch in range(num_epochs):
            samples = {x[1]: n for x, n in times.items() if x[0] == epoch}
            assert sorted(samples) == list(range(SIZE))
            assert pad or set(samples.values()) == {1}
    for x in (shards, same_shards, other_shards):
        x.close()


@pytest.mark.parametrize("name", READERS)
def test_names_outlast_the_reader(data_sets, name):
    """They are computed when they are read: after later batches, another epoch, and the end of the pipeline."""

    @pipeline_def(batch_size=3, num_threads=1)
    def pipeline():
        return tuple(nodes_in(getattr(fn.readers, name)(**data_sets(name), random_shuffle=True, seed=1)))

    def names(outputs):
        return [[x.source_info() for x in output] for output in outputs]

    pipe = pipeline()
    batches = [pipe.run() for _ in range(3)]
    pipe.reset()
    pipe.run()
    pipe.close()
    del pipe
    pipe = pipeline()
    assert [names(outputs) for outputs in batches] == [names(pipe.run()) for _ in range(3)]
    assert any(name for output in names(batches[0]) for name in output)
    pipe.close()


# --- data sets of which some records can't be read --------------------------------------------------------------------

# Files that are removed once the list is made, by reader.
GONE = {
    "caffe": "2/data.mdb", "caffe2": "2/data.mdb", "coco": "[135].jpg", "file": "class 1/00?.jpg", "nemo_asr": "2?.wav",
    "numpy": "0?3.npy", "parquet": "1.parquet", "sequence": "1/003.png", "source": "0?3.bin", "video": "1.mp4",
    "video_resize": "1.mp4",
}  # fmt: skip
# (file, bytes to search for, distance): one byte is changed before the list is made, so many bytes before those found.
FLIPPED = {
    "array_record": ("*.array_record", b"record 5 ", 0), "mxnet": ("2.rec", payload(7), 25), "tfrecord": ("[02]", b" 1 record 1 ", 0),
    "webdataset": ("?.tar", b"ustar", 200), "zip": ("0.zip", b"record 1 ", 0),
    "tokens": ("[01].array_record", b"record 1 ", 0), "tfds": ("*.tfrecord*", b" 1 record 1 ", 0),
}  # fmt: skip


class Damaged:
    """A copy of a reader's data set, of which some records can't be read."""

    def __init__(self, name: str, data_sets: Any, top: str):
        self._name, arguments = name, data_sets(name)
        shutil.copytree(data_sets.folder(name), top, dirs_exist_ok=True)
        for manifest in pathlib.Path(top).glob("manifest.json"):
            manifest.write_text(manifest.read_text().replace(str(data_sets.folder(name)), top))
        self._arguments = replaced(arguments, str(data_sets.folder(name)), top)
        self._gone = sorted(pathlib.Path(top).glob(GONE[name])) if name in GONE else []
        if name in FLIPPED:
            pattern, marker, distance = FLIPPED[name]
            for path in pathlib.Path(top).glob(pattern):
                data = bytearray(path.read_bytes())
                if (found_at := data.find(marker)) >= 0:
                    data[found_at - distance] ^= 1
                path.write_bytes(data)

    def open(self, pool: int, S: int, seed: int = 1, **arguments: Any) -> Shards:
        for path in self._gone:
            if not path.exists():
                path.with_name(f"{path.name}.gone").rename(path)
        shards = Shards(self._name, {**self._arguments, **arguments}, pool, S, seed)
        for path in self._gone:
            path.rename(path.with_name(f"{path.name}.gone"))
        return shards


@pytest.mark.parametrize("name", READERS)
def test_unreadable_records_are_left_out(data_sets, pool, name):
    """All other records are read once in an epoch, in any order and by any shards; reading goes on anywhere."""
    with tempfile.TemporaryDirectory() as top:
        damaged = Damaged(name, data_sets, top)
        shards = damaged.open(pool, 1)
        good = set()
        for _ in range(SIZE):
            failed: dict[int, str] = {}
            (((_, _, record),),) = shards.read(1, failed)
            good |= {record} if not failed else set()
        shards.close()
        assert SIZE // 2 <= len(good) < SIZE, (
            f"{len(good)} of {SIZE} records of readers.{name} can be read, but some should be damaged here: a reader "
            f"needs an entry in GONE (files of its data set that are removed once the list is made) or in FLIPPED (a "
            f"byte that is changed before), in {__file__}, by which at most half of its records can't be read. A reader "
            "that reads its file when the list is made needs FLIPPED, with a change that only reading the record notices."
        )

        @few_examples
        @given(
            order=orders,
            S=st.integers(1, 4),
            B=st.integers(1, 7),
            pad=st.booleans(),
            batches=st.integers(0, 12),
            seed=st.integers(0, 3),
        )
        def check(order: dict[str, Any], S: int, B: int, pad: bool, batches: int, seed: int):
            arguments = {**order, "pad_last_batch": pad, "on_error": "skip"}
            shards, resumed = (damaged.open(pool, S, seed, **arguments) for _ in range(2))
            samples_of_shards = shards.epochs(B, 2)
            for epoch in range(2):
                samples = [
                    {x[1:] for x in shard if x[0] == epoch} if pad else [x[1:] for x in shard if x[0] == epoch]
                    for shard in samples_of_shards
                ]
                samples = [x for shard in samples for x in shard]
                assert sorted(position for position, _ in samples) == list(range(SIZE))
                times = collections.Counter(record for _, record in samples)
                assert times == {**dict.fromkeys(good, 1), None: SIZE - len(good)}
            begin = resumed.cursors
            batches_before = [resumed.read(B) for _ in range(batches)]
            saved = resumed.saved()
            batches_after = [resumed.read(B) for _ in range(3)]
            shards.cursors = begin
            assert [shards.read(B) for _ in range(batches)] == batches_before
            shards.cursors = shards.source.resume(saved, True)
            assert [shards.read(B) for _ in range(3)] == batches_after
            shards.close()
            resumed.close()

        check()


@pytest.mark.parametrize("name", READERS)
def test_threads_depth_and_storage_change_nothing(data_sets, name):
    def read(num_threads: int, depth: int, arguments: dict[str, Any]) -> list[Any]:
        @pipeline_def(batch_size=5, num_threads=num_threads, prefetch_queue_depth=depth, seed=3)
        def pipeline():
            return tuple(nodes_in(getattr(fn.readers, name)(**arguments, shuffle="global")))

        pipe = pipeline()
        contents = [[np.asarray(x).tobytes() for x in output] for _ in range(8) for output in pipe.run()]
        pipe.close()
        return contents

    expected = read(1, 1, data_sets(name))
    assert read(3, 3, data_sets(name)) == expected
    folder = str(data_sets.folder(name))
    assert read(2, 2, replaced(data_sets(name), folder, f"file://{folder}")) == expected
    if MAKERS[name].urls:
        for ahead in (0, 9):
            assert read(2, 2, {**data_sets.remote(name), "storage": jaxdali.Storage(read_ahead=ahead)}) == expected


CONTAINERS = [n for n in READERS if "weights" in inspect.signature(getattr(fn.readers, n)).parameters and n != "source"]


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_are_mixed_by_weights(data_sets, pool, name):
    (plain,) = Shards(name, data_sets(name), pool, 1).epochs(1, 1)
    container = {x[2]: k for x, k in zip(plain, [k for k, part in enumerate(parts(SIZE)) for _ in part])}
    weights = (0.5, 0.3, 0.2)  # of 2, 9 and 12 records: the last ones need 60 for all to come
    for order in ({}, {"shuffle": "global"}):
        shards = Shards(name, {**data_sets(name), "weights": weights, **order}, pool, 1)
        samples = [x for _ in range(5) for x in shards.read(6)[0]]
        saved = shards.saved()
        samples += [x for _ in range(5) for x in shards.read(6)[0]]
        resumed = Shards(name, {**data_sets(name), "weights": weights, **order}, pool, 1)
        resumed.cursors = resumed.source.resume(saved, True)
        assert [x for _ in range(5) for x in resumed.read(6)[0]] == samples[30:]
        assert {x[2] for x in samples} == {*container}
        mixed = [container[x[2]] for x in samples]
        assert [mixed.count(k) for k in range(3)] == [30, 18, 12]
        if not order:  # evenly: as many as the weight says, everywhere
            assert all(abs(mixed[:n].count(k) - n * w) <= 1 for n in range(61) for k, w in enumerate(weights))
        shards.close()
        resumed.close()
    for bad_weights, text in (
        ((0.5, 0.5), "weights must have a number for each of the 3 parts to be mixed, got 2"),
        ((1, 0, 1), "must be above 0"),
    ):
        with pytest.raises(ValueError, match=text):
            Shards(name, {**data_sets(name), "weights": bad_weights}, pool, 1)
    records = Records()
    records.bounds = np.array([0, 2, 2])
    with pytest.raises(ValueError, match="weights can't mix part 1 of 2: it has no records"):
        Mixed(records, (0.5, 0.5))


def test_a_reader_without_a_maker_is_noticed():
    assert [name for name in READERS if name not in MAKERS] == []
