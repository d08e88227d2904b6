"""What all readers have in common: each record once in an epoch, orders, shards, padding, going on, storage.

`MAKERS` has a function for each reader of `fn.readers`: it writes a data set of n different records and returns the reader's arguments.
A new reader gets one.
"""

import collections
import dataclasses
import inspect
import json
import os
import pathlib
import re
import shutil
import tempfile
import wave
import zipfile
from collections.abc import Callable
from typing import Any

import containers
import numpy as np
import pytest
import riegeli
from faulty import Faulty
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jaxdali
from jaxdali import _cpu, fn, pipeline_def, tfrecord
from jaxdali._core.context import HostContext
from jaxdali._core.graph import DataNode
from jaxdali._data.index import write_index
from jaxdali._data.source import Saved

SIZE = 23  # records: a prime, so that no number of shards divides it


@dataclasses.dataclass(frozen=True)
class Maker:
    """Makes a data set; `urls`: whether its paths may be URLs."""

    make: Callable[[pathlib.Path, int], dict[str, Any]]
    urls: bool = True


def payload(i: int) -> bytes:
    return f"record {i} ".encode() * (1 + i % 5)


def make_file(folder: pathlib.Path, n: int) -> dict[str, Any]:
    for i in range(n):
        path = folder / f"class {i % 3}" / f"{i:03}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(payload(i))
    return {"file_root": str(folder)}


def make_numpy(folder: pathlib.Path, n: int) -> dict[str, Any]:
    for i in range(n):
        np.save(folder / f"{i:03}.npy", np.full((1 + i % 4, 2), i, np.float32))
    return {"file_root": str(folder)}


def parts(n: int) -> list[list[int]]:
    """Numbers 0 .. n - 1 for three containers, of which one is small."""
    return [list(range(2)), list(range(2, n // 2)), list(range(n // 2, n))]


def make_array_record(folder: pathlib.Path, n: int) -> dict[str, Any]:
    for k, part in enumerate(parts(n)):
        riegeli.array_record(folder / f"{k}.array_record", [payload(i) for i in part], group=1 + k, zstd=k == 2)
    return {"path": [f"{folder}/0.array_record", f"{folder}/[12].array_record"]}


def make_parquet(folder: pathlib.Path, n: int) -> dict[str, Any]:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for k, part in enumerate(parts(n)):
        images = [{"bytes": payload(i), "path": None} for i in part]
        table = pa.table(
            {"image": images, "label": part, "name": [f"name {i}" for i in part], "boxes": [[0.5 * i] * (i % 4) for i in part]}
        )
        if k < 2:
            parquet.write_table(table, folder / f"{k}.parquet", row_group_size=3)
        else:
            with pa.OSFile(str(folder / "2.arrow"), "wb") as f, pa.ipc.new_stream(f, table.schema) as writer:
                writer.write_table(table, max_chunksize=4)
    return {"path": [f"{folder}/*.parquet", f"{folder}/2.arrow"], "columns": ["image", "label", "name", "boxes"]}


def make_zip(folder: pathlib.Path, n: int) -> dict[str, Any]:
    for k, part in enumerate(parts(n)):
        with zipfile.ZipFile(folder / f"{k}.zip", "w", (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)[k % 2]) as archive:
            for i in part:
                archive.writestr(f"class {i % 3}/{i}.txt", payload(i))
    return {"path": f"{folder}/*.zip"}


def make_caffe(folder: pathlib.Path, n: int) -> dict[str, Any]:
    return {"path": [str(containers.write_lmdb(folder / f"{h[0]}", [containers.datum(payload(i), i) for i in h])) for h in parts(n)]}


def make_caffe2(folder: pathlib.Path, n: int) -> dict[str, Any]:
    def record(i: int) -> bytes:
        return containers.tensors(containers.tensor(containers.STRING, [payload(i)]), containers.tensor(containers.INT32, [i]))

    return {"path": [str(containers.write_lmdb(folder / f"{h[0]}", map(record, h))) for h in parts(n)]}


def make_mxnet(folder: pathlib.Path, n: int) -> dict[str, Any]:
    for h in parts(n):
        records = [containers.image_record(float(i), payload(i), i) for i in h]
        containers.write_recordio(folder / f"{h[0]}.rec", records, folder / f"{h[0]}.idx")
    return {f"{what}path": [str(folder / f"{h[0]}.{end}") for h in parts(n)] for what, end in (("", "rec"), ("index_", "idx"))}


def make_tfrecord(folder: pathlib.Path, n: int) -> dict[str, Any]:
    for h in parts(n):
        records = [containers.example({"image": [payload(i)], "label": [i]}) for i in h]
        containers.write_tfrecord(folder / f"{h[0]}", records, folder / f"{h[0]}.idx")
    features = {"image": tfrecord.FixedLenFeature((), tfrecord.string, ""), "label": tfrecord.FixedLenFeature([1], tfrecord.int64, 0)}
    paths = {f"{what}path": [str(folder / f"{h[0]}{end}") for h in parts(n)] for what, end in (("", ""), ("index_", ".idx"))}
    return {**paths, "features": features}


def make_coco(folder: pathlib.Path, n: int) -> dict[str, Any]:
    for i in range(n):
        (folder / f"{i}.jpg").write_bytes(payload(i))
    images = [{"id": i, "file_name": f"{i}.jpg", "width": 4, "height": 4} for i in range(n)]
    objects = [{"image_id": i, "category_id": 1, "bbox": [i, k, 1, 1]} for i in range(n) for k in range(i % 3)]
    (folder / "a.json").write_text(json.dumps({"images": images, "categories": [{"id": 1}], "annotations": objects}))
    return {"file_root": str(folder), "annotations_file": str(folder / "a.json")}


def make_webdataset(folder: pathlib.Path, n: int) -> dict[str, Any]:
    for k, part in enumerate(parts(n)):
        members = [(f"{i}.{e}", x) for i in part for e, x in (("jpg", payload(i)), ("cls", b"%d" % i))]
        write_index(containers.write_tar(folder / f"{k}.tar", members), folder / f"{k}.idx")
    return {"paths": f"{folder}/*.tar", "index_paths": [str(folder / f"{k}.idx") for k in range(3)], "ext": ["jpg", "cls"]}


def make_nemo_asr(folder: pathlib.Path, n: int) -> dict[str, Any]:
    lines = []
    for i in range(n):
        with wave.open(str(folder / f"{i}.wav"), "wb") as f:
            f.setparams((1, 2, 8000, 0, "NONE", ""))
            f.writeframes(np.int16([i] * (1 + i % 4)).tobytes())
        lines.append(json.dumps({"audio_filepath": f"{folder}/{i}.wav", "text": f"text {i}"}))
    (folder / "manifest.json").write_text("\n".join(lines))
    return {"manifest_filepaths": str(folder / "manifest.json")}


MAKERS = {
    "array_record": Maker(make_array_record),
    "caffe": Maker(make_caffe, urls=False),
    "caffe2": Maker(make_caffe2, urls=False),
    "coco": Maker(make_coco),
    "file": Maker(make_file),
    "mxnet": Maker(make_mxnet),
    "nemo_asr": Maker(make_nemo_asr, urls=False),
    "numpy": Maker(make_numpy),
    "parquet": Maker(make_parquet),
    "tfrecord": Maker(make_tfrecord),
    "webdataset": Maker(make_webdataset),
    "zip": Maker(make_zip),
}
READERS = sorted(dir(fn.readers))


class DataSets:
    """One for each reader, made when it is asked for."""

    def __init__(self, top: str):
        self._top = pathlib.Path(top)
        self._made: dict[str, dict[str, Any]] = {}

    def __call__(self, name: str) -> dict[str, Any]:
        """The reader's arguments."""
        if name not in self._made:
            assert name in MAKERS, f"readers.{name} has no maker of a data set here"
            (self._top / name).mkdir()
            self._made[name] = MAKERS[name].make(self._top / name, SIZE)
        return self._made[name]

    def folder(self, name: str) -> pathlib.Path:
        """Where the data set is."""
        return self._top / name

    def remote(self, name: str) -> dict[str, Any]:
        """Those with ``faulty://`` paths, where one request in five is reset."""
        chance = np.random.default_rng(1)
        files = {str(p.relative_to(self._top)): p.read_bytes() for p in (self._top / name).rglob("*") if p.is_file()}
        Faulty.start(files, 0.001, lambda file, number: ConnectionResetError() if number == 0 and chance.random() < 0.2 else None)
        return replaced(self(name), str(self._top), "faulty:/")


@pytest.fixture(scope="module")
def data_sets():
    with tempfile.TemporaryDirectory() as top:
        yield DataSets(top)


def replaced(x: Any, old: str, new: str) -> Any:
    """Arguments with other paths."""
    if isinstance(x, dict):
        return {k: replaced(v, old, new) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [replaced(e, old, new) for e in x]
    return new + x.removeprefix(old) if isinstance(x, str) and x.startswith(old) else x


def nodes_in(x: Any) -> list[DataNode]:
    if isinstance(x, DataNode):
        return [x]
    return [n for e in (x.values() if isinstance(x, dict) else x) for n in nodes_in(e)]


@pytest.fixture(scope="module")
def pool():
    number = _cpu.pool_create(2)
    yield number
    _cpu.pool_destroy(number)


class Shards:
    """All shards of a reader, read side by side."""

    def __init__(self, name: str, arguments: dict[str, Any], pool: int, S: int, seed: int = 1):
        function = getattr(fn.readers, name)
        ops = [nodes_in(function(**arguments, num_shards=S, shard_id=i))[0].node.op for i in range(S)]
        self.source, self.S, self.pool = ops[0].make_source(ops, seed), S, pool
        self.cursors = self.source.initial()

    def read(self, B: int, failed: dict[int, str] | None = None) -> list[list[tuple[int, int, tuple[bytes, ...]]]]:
        """The next batch of each shard: (epoch, position, what was read) of each sample. Why some `failed`, if they may."""
        N, bad = self.S * B, {} if failed is None else failed
        ctx = HostContext(
            S=self.S, B=B, N=N, shard_ids=tuple(range(self.S)), num_shards=self.S, seed=1, num_threads=2, pool=self.pool,
            epoch=np.zeros(N, np.int64), position=np.zeros(N, np.int64), present=np.ones(N, bool), specs=self.source.specs(),
            random_index=-1, bad={}, source_of=lambda i: "", report_bad=lambda *x: None,
            empty=lambda n, dtype, index=0: np.empty((self.S, n), dtype), fail=lambda i, code, reason="": bad.update({i: reason}),
        )  # fmt: skip
        outputs, self.cursors, ids = self.source.read(ctx, self.cursors)
        assert not bad or failed is not None
        bad.update({i: f"{ids.names[i]}: {why}" for i, why in bad.items()})
        rows = [
            (epoch, position, tuple(np.asarray(x[i]).tobytes() for x in outputs))
            for i, (epoch, position) in enumerate(zip(ids.epoch.tolist(), ids.position.tolist()))
        ]
        return [rows[s * B : (s + 1) * B] for s in range(self.S)]

    def epochs(self, B: int, n: int) -> list[list[tuple[int, int, tuple[bytes, ...]]]]:
        """Batches until each shard is at least in epoch n: all that each shard has read."""
        found: list[list[Any]] = [[] for _ in range(self.S)]
        while min(c["round"] for c in self.cursors) < n:
            for have, more in zip(found, self.read(B)):
                have += more
        return found

    def saved(self) -> list[Saved]:
        """What a checkpoint holds."""
        return [Saved(json.loads(json.dumps(s.fingerprint)), json.loads(json.dumps(s.cursor))) for s in self.source.saved(self.cursors)]

    def close(self):
        self.source.close()


orders = st.sampled_from(
    [{}, {"random_shuffle": True}, {"random_shuffle": True, "initial_fill": 4}, {"shuffle_after_epoch": True}, {"shuffle": "global"}]
)
some = settings(max_examples=15, deadline=None)


@pytest.mark.parametrize("name", READERS)
@some
@given(order=orders, S=st.integers(1, 4), B=st.integers(1, 7), pad=st.booleans(), seed=st.integers(0, 3))
def test_each_record_is_read_once_in_an_epoch(data_sets, pool, name, order, S, B, pad, seed):
    arguments = {**data_sets(name), **order, "pad_last_batch": pad}
    shards = Shards(name, arguments, pool, S, seed)
    found = shards.epochs(B, 2)
    shards.close()
    records = set()
    for epoch in range(2):
        samples = [[x for x in shard if x[0] == epoch] for shard in found]
        if pad:  # all shards are equally long, in full batches; what is added repeats their last sample
            most = -(-SIZE // S)
            assert {len(shard) for shard in samples} == {-(-most // B) * B}
            assert all(x == shard[len({*shard}) - 1] for shard in samples for x in shard[len({*shard}) :])
            samples = [shard[: len({*shard})] for shard in samples]
        count = collections.Counter(x[2] for shard in samples for x in shard)
        assert len(count) == SIZE
        assert set(count.values()) == {1}
        assert sorted(x[1] for shard in samples for x in shard) == list(range(SIZE))
        records |= count.keys()
    assert len(records) == SIZE


@pytest.mark.parametrize("name", READERS)
def test_orders_follow_from_seed_and_epoch(data_sets, pool, name):
    def read(seed: int, **order: Any) -> tuple[list[Any], list[Any]]:
        shards = Shards(name, {**data_sets(name), **order}, pool, 1, seed)
        (found,) = shards.epochs(SIZE, 2)
        shards.close()
        return [x[2] for x in found[:SIZE]], [x[2] for x in found[SIZE:]]

    first, second = read(1)
    assert first == second
    for order in ({"random_shuffle": True}, {"shuffle": "global"}):
        one, two = read(1, **order)
        assert (one, two) == read(1, **order)
        assert len({*map(tuple, (first, one, two, *read(2, **order)))}) == 5


@pytest.mark.parametrize("name", READERS)
@some
@given(order=orders, S=st.integers(1, 3), B=st.integers(1, 5), pad=st.booleans(), batches=st.integers(0, 12), then=st.integers(1, 4))
def test_reading_goes_on_anywhere(data_sets, pool, name, order, S, B, pad, batches, then):
    arguments = {**data_sets(name), **order, "pad_last_batch": pad}
    shards = Shards(name, arguments, pool, S)
    before = [x for _ in range(batches) for shard in shards.read(B) for x in shard]
    saved = shards.saved()
    again, others = Shards(name, arguments, pool, S), Shards(name, arguments, pool, then)
    again.cursors = again.source.resume(saved, True)
    assert [again.read(B) for _ in range(3)] == [shards.read(B) for _ in range(3)]
    if not (order == {"shuffle_after_epoch": True} or order == {"shuffle": "global"}) or pad:  # shards that differ in size drift apart
        others.cursors = others.source.resume(saved, False)
        begun = max(c["round"] for c in others.cursors) + 2
        count = collections.Counter(before + [x for shard in others.epochs(B, begun) for x in shard])
        for epoch in range(begun):
            samples = {x[1]: n for x, n in count.items() if x[0] == epoch}
            assert sorted(samples) == list(range(SIZE))
            assert pad or set(samples.values()) == {1}
    for x in (shards, again, others):
        x.close()


@pytest.mark.parametrize("name", READERS)
def test_threads_depth_and_storage_change_nothing(data_sets, name):
    def read(num_threads: int, depth: int, arguments: dict[str, Any]) -> list[Any]:
        @pipeline_def(batch_size=5, num_threads=num_threads, prefetch_queue_depth=depth, seed=3)
        def pipeline():
            return tuple(nodes_in(getattr(fn.readers, name)(**arguments, shuffle="global")))

        pipe = pipeline()
        found = [[np.asarray(x).tobytes() for x in output] for _ in range(8) for output in pipe.run()]
        pipe.close()
        return found

    expected = read(1, 1, data_sets(name))
    assert read(3, 3, data_sets(name)) == expected
    if MAKERS[name].urls:
        for ahead in (0, 9):
            assert read(2, 2, {**data_sets.remote(name), "storage": jaxdali.Storage(read_ahead=ahead)}) == expected


@pytest.mark.parametrize("name", [name for name in READERS if "weights" in inspect.signature(getattr(fn.readers, name)).parameters])
def test_containers_are_mixed_by_weights(data_sets, pool, name):
    (plain,) = Shards(name, data_sets(name), pool, 1).epochs(1, 1)
    container = {x[2]: k for x, k in zip(plain, [k for k, part in enumerate(parts(SIZE)) for _ in part])}
    weights = (0.5, 0.3, 0.2)  # of 2, 9 and 12 records: the last ones need 60 for all to come
    for order in ({}, {"shuffle": "global"}):
        shards = Shards(name, {**data_sets(name), "weights": weights, **order}, pool, 1)
        found = [x for _ in range(5) for x in shards.read(6)[0]]
        saved = shards.saved()
        found += [x for _ in range(5) for x in shards.read(6)[0]]
        again = Shards(name, {**data_sets(name), "weights": weights, **order}, pool, 1)
        again.cursors = again.source.resume(saved, True)
        assert [x for _ in range(5) for x in again.read(6)[0]] == found[30:]
        assert {x[2] for x in found} == {*container}
        mixed = [container[x[2]] for x in found]
        assert [mixed.count(k) for k in range(3)] == [30, 18, 12]
        if not order:  # evenly: as many as the weight says, everywhere
            assert all(abs(mixed[:n].count(k) - n * w) <= 1 for n in range(61) for k, w in enumerate(weights))
        shards.close()
        again.close()
    for wrong, text in (((0.5, 0.5), "weights must be as many as the containers, which are 3, got 2"), ((1, 0, 1), "must be above 0")):
        with pytest.raises(ValueError, match=text):
            Shards(name, {**data_sets(name), "weights": wrong}, pool, 1)


def failing(name: str, arguments: dict[str, Any], batches: int = SIZE) -> tuple[int, list[str]]:
    """How many batches of one sample are read, and the errors of the others."""

    @pipeline_def(batch_size=1, num_threads=1, prefetch_queue_depth=1)
    def pipeline():
        return tuple(nodes_in(getattr(fn.readers, name)(**arguments)))

    good, errors = 0, []
    pipe = pipeline(exec_pipelined=False, exec_async=False)
    for _ in range(batches):
        try:
            pipe.run()
            good += 1
        except jaxdali.SampleError as e:
            errors.append(str(e))
    pipe.close()
    return good, errors


@pytest.mark.parametrize("name", [name for name in READERS if MAKERS[name].urls])
def test_no_permission_is_said_at_once(data_sets, name):
    """Of a store: when the list is made, or of the record; and it is not asked again."""
    data_sets(name)  # before its files are copied
    arguments = {**data_sets.remote(name), "storage": jaxdali.Storage(read_ahead=0)}
    Faulty.fault = staticmethod(lambda file, number: PermissionError(13, "Permission denied"))
    try:
        _, errors = failing(name, arguments)
    except RuntimeError as e:
        errors = [str(e)]
    assert errors
    for e in errors:
        assert re.search(rf"readers.{name}.*faulty://.*Permission denied", e)
    assert max(collections.Counter(Faulty.requests).values()) == 1


@pytest.mark.parametrize("name", READERS)
def test_no_permission_for_files(data_sets, name):
    """Of local files, which root may read: it gives up its rights meanwhile."""
    source = data_sets(name)
    with tempfile.TemporaryDirectory() as top:
        shutil.copytree(data_sets.folder(name), f"{top}/{name}")
        arguments = replaced(source, str(data_sets.folder(name)), f"{top}/{name}")
        assert failing(name, source, 1) == (1, [])  # also imports what is needed
        for path in [p for p in pathlib.Path(top).rglob("*") if p.is_file()]:
            path.chmod(0)
        pathlib.Path(top).chmod(0o755)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            good, errors = failing(name, arguments)
        except RuntimeError as e:
            good, errors = 0, [str(e)]
        finally:
            os.seteuid(user)
        assert (good, bool(errors)) == (0, True)
        for e in errors:
            assert re.search(rf"readers.{name}.*{top}/{name}.*Permission denied", e)


# What may be wrong with a file, of which there is more than one in most data sets: (kind, which, where, value).
KINDS = ["bit", "byte", "cut", "out", "twice", "zeros", "grow"]
damage = st.tuples(st.sampled_from(KINDS), st.integers(0, 99), st.integers(0, 9999), st.integers(0, 255))
CHECKED = {"array_record", "tfrecord", "zip"}  # what the first output has is what was written: it has a checksum


def spoil(data: bytearray, kind: str, at: int, value: int):
    match kind:
        case "bit":
            data[at] ^= 1 << value % 8
        case "byte":
            data[at] = value
        case "cut":
            del data[at:]
        case "out":
            del data[at : at + 1 + value % 16]
        case "twice":
            data[at:at] = data[at : at + 1 + value % 16]
        case "zeros":
            data[at : at + value] = bytes(len(data[at : at + value]))
        case "grow":
            data += bytes([value]) * (1 + value % 16)


@pytest.mark.filterwarnings("ignore::UserWarning")
# LMDB's library trusts its pages: the messages in them are damaged by ffi/fuzz/fuzz_records.cc.
@pytest.mark.parametrize("name", [name for name in READERS if not name.startswith("caffe")])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(wrong=damage, end=st.booleans())
def test_damage_is_an_error_that_names_the_file_or_changes_a_record(data_sets, pool, name, wrong, end):
    kind, which, where, value = wrong
    arguments = data_sets(name)
    top = pathlib.Path(data_sets.folder(name))
    with tempfile.TemporaryDirectory() as other:
        shutil.copytree(top, other, dirs_exist_ok=True)
        files = sorted(p for p in pathlib.Path(other).rglob("*") if p.is_file() and p.stat().st_size)
        path = files[which % len(files)]
        data = bytearray(path.read_bytes())
        first = len(data) * 49 // 50 if end else 0  # tables are at the end of many a container
        spoil(data, kind, first + (len(data) - first) * where // 10000, value)
        path.write_bytes(data)

        def names_a_file(text: str) -> bool:
            return other in text or any(p.name in text for p in files)

        try:
            shards = Shards(name, replaced(arguments, str(top), other), pool, 1)
        except RuntimeError as e:
            assert names_a_file(str(e)), e  # noqa: PT017
            return
        found = set()
        for _ in range(SIZE):
            failed: dict[int, str] = {}
            (((_, _, record),),) = shards.read(1, failed)
            assert all(map(names_a_file, failed.values())), failed
            found |= {record[0]} if not failed else set()
        shards.close()
        if name in CHECKED and path.suffix != ".idx":
            (expected,) = Shards(name, arguments, pool, 1).epochs(1, 1)
            assert found <= {x[2][0] for x in expected}


def test_a_reader_without_a_maker_is_noticed():
    assert [name for name in READERS if name not in MAKERS] == []
