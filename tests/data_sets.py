"""A data set for each reader, and ways to read it.

`MAKERS` has a function for each reader of `fn.readers`: it writes a data set of n different records and returns the
reader's arguments. A new reader gets one.
"""

import atexit
import dataclasses
import functools
import json
import pathlib
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
import videos
from faulty import Faulty
from PIL import Image

import jaxdali
from jaxdali import fn, pipeline_def, tfrecord
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


def make_tokens(folder: pathlib.Path, n: int) -> dict[str, Any]:
    """Records of which no two fit into a sequence."""
    for k, part in enumerate(parts(n)):
        records = [f"record {i} ".encode().ljust(10 + i % 7, b".") for i in part]
        riegeli.array_record(folder / f"{k}.array_record", records, zstd=k == 2)
    return {"path": f"{folder}/*.array_record", "length": 18, "dtype": np.uint8}


def make_parquet(folder: pathlib.Path, n: int) -> dict[str, Any]:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for k, part in enumerate(parts(n)):
        images = [{"bytes": payload(i), "path": None} for i in part]
        table = pa.table(
            {
                "image": images,
                "label": part,
                "name": [f"name {i}" for i in part],
                "boxes": [[0.5 * i] * (i % 4) for i in part],
            }
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
    return {
        "path": [
            str(containers.write_lmdb(folder / f"{h[0]}", [containers.datum(payload(i), i) for i in h]))
            for h in parts(n)
        ]
    }


def make_caffe2(folder: pathlib.Path, n: int) -> dict[str, Any]:
    def record(i: int) -> bytes:
        return containers.tensors(
            containers.tensor(containers.STRING, [payload(i)]), containers.tensor(containers.INT32, [i])
        )

    return {"path": [str(containers.write_lmdb(folder / f"{h[0]}", map(record, h))) for h in parts(n)]}


def make_mxnet(folder: pathlib.Path, n: int) -> dict[str, Any]:
    for h in parts(n):
        records = [containers.image_record(float(i), payload(i), i) for i in h]
        containers.write_recordio(folder / f"{h[0]}.rec", records, folder / f"{h[0]}.idx")
    return {
        f"{prefix}path": [str(folder / f"{h[0]}.{end}") for h in parts(n)]
        for prefix, end in (("", "rec"), ("index_", "idx"))
    }


def make_tfrecord(folder: pathlib.Path, n: int) -> dict[str, Any]:
    for h in parts(n):
        records = [containers.example({"image": [payload(i)], "label": [i]}) for i in h]
        containers.write_tfrecord(folder / f"{h[0]}", records, folder / f"{h[0]}.idx")
    features = {
        "image": tfrecord.FixedLenFeature((), tfrecord.string, ""),
        "label": tfrecord.FixedLenFeature([1], tfrecord.int64, 0),
    }
    paths = {
        f"{prefix}path": [str(folder / f"{h[0]}{end}") for h in parts(n)]
        for prefix, end in (("", ""), ("index_", ".idx"))
    }
    return {**paths, "features": features}


def make_tfds(folder: pathlib.Path, n: int) -> dict[str, Any]:
    """Two splits, of which the first has two files, each a part."""
    for k, part in enumerate(parts(n)):
        records = [containers.example({"image": [payload(i)], "label": [i]}) for i in part]
        name = "test.tfrecord-00000-of-00001" if k == 2 else f"train.tfrecord-{k:05}-of-00002"
        containers.write_tfrecord(folder / f"numbers-{name}", records)
    lengths = [str(len(part)) for part in parts(n)]
    splits = [{"name": "train", "shardLengths": lengths[:2]}, {"name": "test", "shardLengths": lengths[2:]}]
    (folder / "dataset_info.json").write_text(json.dumps({"name": "numbers", "splits": splits}))
    core = "tensorflow_datasets.core.features"
    features = {
        "image": {"pythonClassName": f"{core}.image_feature.Image", "image": {}},
        "label": {"pythonClassName": f"{core}.class_label_feature.ClassLabel", "classLabel": {}},
    }
    tree = {"pythonClassName": f"{core}.features_dict.FeaturesDict", "featuresDict": {"features": features}}
    (folder / "features.json").write_text(json.dumps(tree))
    (folder / "label.labels.txt").write_text("".join(f"class {i}\n" for i in range(n)))
    return {"path": str(folder), "split": "train[0shard]+train[1shard]+test"}


@functools.cache
def tfds_arguments() -> dict[str, Any]:
    """Arguments of `readers.tfds`, which reads files of the data set already when it is called."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return make_tfds(pathlib.Path(folder), 4)


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
    return {
        "paths": f"{folder}/*.tar",
        "index_paths": [str(folder / f"{k}.idx") for k in range(3)],
        "ext": ["jpg", "cls"],
    }


def make_nemo_asr(folder: pathlib.Path, n: int) -> dict[str, Any]:
    lines = []
    for i in range(n):
        with wave.open(str(folder / f"{i}.wav"), "wb") as f:
            f.setparams((1, 2, 8000, 0, "NONE", ""))
            f.writeframes(np.int16([i] * (1 + i % 4)).tobytes())
        lines.append(json.dumps({"audio_filepath": f"{folder}/{i}.wav", "text": f"text {i}"}))
    (folder / "manifest.json").write_text("\n".join(lines))
    return {"manifest_filepaths": str(folder / "manifest.json")}


class Items:
    """A data set in Python, of which some files may be missing."""

    def __init__(self, folder: str, n: int):
        self.folder, self.n = folder, n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> tuple[bytes, int]:
        return pathlib.Path(self.folder, f"{i:03}.bin").read_bytes(), i


def make_source(folder: pathlib.Path, n: int) -> dict[str, Any]:
    for i in range(n):
        (folder / f"{i:03}.bin").write_bytes(payload(i))
    return {"dataset": Items(str(folder), n)}


def make_sequence(folder: pathlib.Path, n: int) -> dict[str, Any]:
    """Sequences of two frames, of which each begins with the next one's first; in three videos."""
    for k, part in enumerate(parts(n)):
        (folder / f"{k}").mkdir()
        for j in range(len(part) + 1):
            Image.fromarray(np.full((4 + k, 6, 3), 10 * k + j, np.uint8)).save(folder / f"{k}" / f"{j:03}.png")
    return {"file_root": f"{folder}", "sequence_length": 2}


def make_video(folder: pathlib.Path, n: int) -> dict[str, Any]:
    """Clips of two frames, of which each begins with the next one's first; in three videos."""
    for k, part in enumerate(parts(n)):
        videos.write(folder / f"{k}.mp4", len(part) + 1, "mpeg4", size=(16, 16), gop=4, first=part[0] + k)
    return {"filenames": [f"{folder}/{k}.mp4" for k in range(3)], "sequence_length": 2, "step": 1}


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
    "sequence": Maker(make_sequence),
    "source": Maker(make_source, urls=False),
    "tfds": Maker(make_tfds),
    "tfrecord": Maker(make_tfrecord),
    "tokens": Maker(make_tokens),
    "video": Maker(make_video),
    "video_resize": Maker(lambda folder, n: {**make_video(folder, n), "size": 8}),
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
            (self._top / name).mkdir(exist_ok=True)  # it is there if a package was missing before
            self._made[name] = MAKERS[name].make(self._top / name, SIZE)
        return self._made[name]

    def folder(self, name: str) -> pathlib.Path:
        """The path of the data set."""
        return self._top / name

    def remote(self, name: str) -> dict[str, Any]:
        """The arguments with ``faulty://`` paths, where one request in five is reset."""
        chance = np.random.default_rng(1)
        files = {str(p.relative_to(self._top)): p.read_bytes() for p in (self._top / name).rglob("*") if p.is_file()}
        Faulty.start(
            files, 0.001, lambda file, number: ConnectionResetError() if number == 0 and chance.random() < 0.2 else None
        )
        return replaced(self(name), str(self._top), "faulty:/")


def replaced(x: Any, old: str, new: str) -> Any:
    """Arguments with other paths."""
    if isinstance(x, dict):
        return {k: replaced(v, old, new) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [replaced(e, old, new) for e in x]
    if isinstance(x, Items):
        return Items(replaced(x.folder, old, new).removeprefix("file://"), x.n)
    return new + x.removeprefix(old) if isinstance(x, str) and x.startswith(old) else x


def nodes_in(x: Any) -> list[DataNode]:
    if isinstance(x, DataNode):
        return [x]
    return [n for e in (x.values() if isinstance(x, dict) else x) for n in nodes_in(e)]


def reader_of(node: DataNode) -> Any:
    """The operator that reads what a node is made of."""
    while node.node.inputs:
        node = node.node.inputs[0]
    return node.node.op


class Shards:
    """All shards of a reader, read side by side."""

    def __init__(self, name: str, arguments: dict[str, Any], pool: int, S: int, seed: int = 1):
        function = getattr(fn.readers, name)
        ops = [reader_of(nodes_in(function(**arguments, num_shards=S, shard_id=i))[0]) for i in range(S)]
        self.source, self.S, self.pool = ops[0].make_source(ops, seed), S, pool
        self.cursors = self.source.initial()

    def read(self, B: int, failed: dict[int, str] | None = None) -> list[list[tuple[int, int, Any]]]:
        """The next batch of each shard: (epoch, position, what was read, or None where it was left out) of each sample.

        Args:
          failed: gets those that failed, and why; None: none may.
        """
        N, bad = self.S * B, {} if failed is None else failed
        ctx = HostContext(
            S=self.S, B=B, N=N, shard_ids=tuple(range(self.S)), num_shards=self.S, seed=1, num_threads=2, pool=self.pool,
            epoch=np.zeros(N, np.int64), position=np.zeros(N, np.int64), present=np.ones(N, bool), specs=self.source.specs(),
            random_index=-1, bad={}, source_of=lambda i: "", report_bad=lambda *x: None,
            empty=lambda n, dtype, index=0: np.empty((self.S, n), dtype), fail=lambda i, code, reason="": bad.update({i: reason}),
        )  # fmt: skip
        outputs, self.cursors, ids = self.source.read(ctx, self.cursors)
        assert not bad or failed is not None
        bad.update({i: f"{ids.names[i]}: {reason}" for i, reason in bad.items()})
        rows = [
            (
                epoch,
                position,
                tuple(np.asarray(x[i]).tobytes() for x in outputs) if ids.present is None or ids.present[i] else None,
            )
            for i, (epoch, position) in enumerate(zip(ids.epoch.tolist(), ids.position.tolist()))
        ]
        return [rows[s * B : (s + 1) * B] for s in range(self.S)]

    def epochs(self, B: int, n: int) -> list[list[tuple[int, int, Any]]]:
        """Batches until each shard is at least in epoch n: all that each shard has read."""
        samples: list[list[Any]] = [[] for _ in range(self.S)]
        while min(c["round"] for c in self.cursors) < n:
            for shard, batch in zip(samples, self.read(B)):
                shard += batch
        return samples

    def saved(self) -> list[Saved]:
        """The contents of a checkpoint."""
        return [
            Saved(json.loads(json.dumps(s.fingerprint)), json.loads(json.dumps(s.cursor)))
            for s in self.source.saved(self.cursors)
        ]

    def close(self):
        self.source.close()


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
