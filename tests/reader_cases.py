"""Pipelines of readers of containers: each is run by jaxdali in the tests, and was by real DALI
(tests/data/readers/record.py).
"""

import dataclasses
import json
import pathlib
import tarfile
import wave
from collections.abc import Callable, Sequence
from typing import Any

import containers as c
import numpy as np

# (the package, folder of the containers, arguments) -> outputs.
Define = Callable[[Any, pathlib.Path, dict[str, Any]], Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """A reader; `order`: with which arguments, each tried by itself.

    Attributes:
      define: of a pipeline.
      batch_size, batches: of it that are compared.
    """

    define: Define
    order: tuple[dict[str, Any], ...] = ({},)
    batch_size: int = 3
    batches: int = 1


ORDERS = (
    {},
    {"num_shards": 3, "shard_id": 1},
    {"num_shards": 3, "shard_id": 2, "stick_to_shard": True},
    {"num_shards": 3, "shard_id": 0, "pad_last_batch": True},
    {"pad_last_batch": True},
    {"lazy_init": True, "prefetch_queue_depth": 3, "read_ahead": True, "dont_use_mmap": True, "tensor_init_bytes": 100},
)
SHUFFLED = (
    *ORDERS,
    {"shuffle_after_epoch": True},
    {"shuffle_after_epoch": True, "shuffle_after_epoch_seed": 2**33 + 7, "num_shards": 2, "shard_id": 1},
    {
        "shuffle_after_epoch": True,
        "shuffle_after_epoch_seed": -3,
        "num_shards": 2,
        "shard_id": 0,
        "pad_last_batch": True,
    },
)


def data(i: int) -> bytes:
    """Bytes that stand for an encoded image."""
    return b"image %d " % i * (1 + i * 7 % 5)


def prepare(folder: pathlib.Path):
    """Writes the containers."""
    for name, numbers in (("a", range(5)), ("b", range(5, 9)), ("c", range(9, 11))):
        examples = [c.example({"image": [data(i)], "label": [i], "box": [i + 0.5, 2.0, -1.5, 4.0]}) for i in numbers]
        c.write_tfrecord(folder / f"{name}.tfrecord", examples, folder / f"{name}.tfrecord.idx")
        c.write_lmdb(folder / f"{name}.caffe", [c.datum(data(i), 3 * i - 5) for i in numbers])
        c.write_lmdb(
            folder / f"{name}.caffe2",
            [c.tensors(c.tensor(c.STRING, [data(i)]), c.tensor(c.INT32, [i - 2])) for i in numbers],
        )
    unpacked = [
        c.example({"int": [i, -(2**40)], "float": [0.25 * i] * 6, "text": [b"", b"b"][i : i + 1]}, False)
        for i in range(2)
    ]
    c.write_tfrecord(folder / "unpacked.tfrecord", unpacked, folder / "unpacked.tfrecord.idx")
    large = [
        c.example({"label": [i], "image": [bytes(np.random.default_rng(i).bytes(40_000))], "after": [i + 0.5]})
        for i in range(3)
    ]
    c.write_tfrecord(folder / "large.tfrecord", large, folder / "large.tfrecord.idx")

    c.write_recordio(folder / "a.rec", [c.image_record(float(i), data(i), i) for i in range(11)], folder / "a.idx")
    for name, numbers in (("part1", range(7)), ("part2", range(7, 11))):
        c.write_recordio(
            folder / f"{name}.rec", [c.image_record(float(i), data(i), i) for i in numbers], folder / f"{name}.idx"
        )
    first, odd_membersndors = np.loadtxt(folder / "part1.idx", int), np.loadtxt(folder / "part2.idx", int)
    np.savetxt(
        folder / "parts.idx",
        np.concatenate([first, odd_membersndors + [7, (folder / "part1.rec").stat().st_size]]),
        "%d",
    )
    lines = (folder / "a.idx").read_text().splitlines()
    (folder / "backward.idx").write_text("\n".join(lines[::-2]) + "\n")
    c.write_recordio(
        folder / "labels.rec", [c.image_record([i, 2.5, -1.0], data(i)) for i in range(3)], folder / "labels.idx"
    )

    for i in range(13):
        image, array = folder / "classes" / f"{i % 3}" / f"{i:02}.jpg", folder / "arrays" / f"{i // 5}" / f"{i:02}.npy"
        for path in (image, array):
            path.parent.mkdir(parents=True, exist_ok=True)
        image.write_bytes(data(i))
        np.save(array, np.full((1 + i % 3, 2), i, np.int16))

    rng = np.random.default_rng(2)
    entries: list[dict[str, Any]] = []
    for i, channels in enumerate((1, 2, 1, 3, 1)):
        samples = rng.integers(-(2**15), 2**15, (20 + 9 * i, channels)).astype("<i2")
        with wave.open(str(folder / f"{i}.wav"), "wb") as f:
            f.setparams((channels, 2, 8000 + 3025 * (i % 2), 0, "NONE", ""))
            f.writeframes(samples.tobytes())
        entries.append({"audio_filepath": str(folder / f"{i}.wav"), "text": f" text {i} \u00e4"})
    entries[1] |= {"offset": 0.00061, "duration": 0.0015}
    entries[2] |= {"duration": 0.00337, "more": [1, {}]}
    entries[3] |= {"duration": 2.5}
    entries[4] |= {"offset": 0.001, "duration": 0.5}
    (folder / "speech.json").write_text("\n".join(map(json.dumps, entries)) + "\n")

    pixels = bytes(range(24))
    c.write_lmdb(folder / "raw.caffe", [c.datum(pixels, i, False, (3, 2, 4)) for i in range(3)])
    raw = [((2, 4, 3), 24), ((2, 4), 8), ((1, 2, 1), 2)]
    c.write_lmdb(
        folder / "raw.caffe2", [c.tensors(c.tensor(c.BYTE, pixels[:n], s), c.tensor(c.FLOAT, [n])) for s, n in raw]
    )
    image, label = c.tensor(c.STRING, [b"image", b"other"]), c.tensor(c.INT32, [7])
    odd_membersndors = (
        c.tensor(c.FLOAT, [0.5, 2, 1, 4], (2, 2)),
        c.tensor(c.INT32, [-1, 8], (2,), packed=False),
        c.tensor(c.INT32, [1, 2, 3, 4]),
    )
    c.write_lmdb(folder / "more.caffe2", [c.tensors(image, label, *odd_membersndors)] * 2)
    c.write_lmdb(folder / "label.caffe2", [c.tensors(label)] * 2)
    c.write_lmdb(folder / "dense.caffe2", [c.tensors(image, c.tensor(c.FLOAT, [i, 0.5, -3])) for i in range(2)])

    members = [(f"{i:02}.{e}", x) for i in range(8) for e, x in (("jpg", data(i)), ("cls", bytes([i, 0, 0, 1])))]
    odd = (
        "a.JPG",
        "a.cls",
        "d/b.seg.png",
        "d/b.jpg",
        "d/b.cls",
        ".hidden.jpg",
        "c.cls",
        "none",
        "c.jpg",
        "e.jpg",
        "e.jpg",
        f"{'n' * 120}/f.jpg",
    )
    odd_membersndors = [(name, b"%d %d " % (i, i)) for i, name in enumerate(odd)]
    for name, content in (("a", members[:10]), ("b", members[10:]), ("odd", odd_membersndors)):
        c.write_tar(folder / f"{name}.tar", content, tarfile.GNU_FORMAT)
        (folder / "indices").mkdir(exist_ok=True)
        write_index(folder / f"{name}.tar", folder / "indices" / f"{name}.idx")

    images = [(7, "b.jpg", 20, 10), (3, "a.jpg", 8, 6), (5, "sub/c.jpg", 4, 4), (9, "d.jpg", 5, 5)]
    annotations = [
        (7, 4, [1, 2, 10.5, 5], 0, [[1, 2, 11, 2, 11, 7, 1, 7], [12, 1, 14, 1, 13, 3]]),
        (3, 18, [0, 0, 8, 6], 1, {"size": [6, 8], "counts": [13, 3, 3, 3, 3, 3, 3, 3, 13, 1]}),
        (7, 90, [3, 3, 0.05, 4], 0, [[3, 3, 4, 3, 4, 7]]),
        (7, 18, [3.25, 3, 4, 4], 0, [[3, 3, 7, 3, 7, 7]]),
        (3, 90, [1, 1, 2, 2], 0, [[1, 1, 3, 1, 3, 3, 1, 3]]),
        (9, 90, [1, 1, 0.01, 2], 0, [[1, 1, 3, 1, 3, 3, 1, 3]]),
    ]
    for _, name, _, _ in images:
        (folder / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "images" / name).write_bytes(name.encode() * 2)
    document = {
        "images": [dict(zip(("id", "file_name", "width", "height"), x)) for x in images],
        "categories": [{"id": 18, "name": "dog"}, {"id": 4, "name": "cat"}, {"id": 90, "name": "brush"}],
        "annotations": [
            dict(zip(("image_id", "category_id", "bbox", "iscrowd", "segmentation"), x)) for x in annotations
        ],
    }
    (folder / "coco.json").write_text(json.dumps(document))
    rng = np.random.default_rng(5)
    sizes = rng.integers(3, 15, (12, 2)).tolist()
    objects = [
        (i, [4, 18, 90][rng.integers(3)], segmentation(rng, *sizes[i]))
        for i in range(12)
        for _ in range(rng.integers(5))
    ]
    document["images"] = [{"id": i, "file_name": f"{i}.jpg", "width": w, "height": h} for i, (w, h) in enumerate(sizes)]
    for i in range(12):
        (folder / "images" / f"{i}.jpg").write_bytes(data(i))
    document["annotations"] = [
        {"image_id": i, "category_id": k, "bbox": [0, 0, 3, 3], "iscrowd": int(isinstance(x, dict)), "segmentation": x}
        for i, k, x in objects
    ]
    (folder / "pixels.json").write_text(json.dumps(document))


def coco(**arguments: Any) -> Define:
    def define(p: Any, folder: pathlib.Path, order: dict[str, Any]) -> Any:
        return p.fn.readers.coco(
            file_root=str(folder / "images"), annotations_file=str(folder / "coco.json"), **arguments, **order
        )

    return define


def pixels(p: Any, folder: pathlib.Path, order: dict[str, Any]) -> Any:
    file = str(folder / "pixels.json")
    return tuple(
        p.fn.readers.coco(file_root=str(folder / "images"), annotations_file=file, pixelwise_masks=True, **order)
    )


def segmentation(rng: np.random.Generator, width: int, height: int) -> Any:
    """One or several polygons, which reach outside, or runs of pixels, plain or compressed."""
    kind = rng.integers(4)
    if kind < 2:
        ends = np.array([width, height]) + 1
        return [
            np.round(rng.uniform(-1, ends, (rng.integers(3, 6), 2)), int(rng.integers(3))).ravel().tolist()
            for _ in range(1 + 2 * kind)
        ]
    mask = np.concatenate([[0], rng.random(width * height) < 0.4, [2]])
    counts = np.diff(np.flatnonzero(np.diff(mask)), prepend=0).tolist()
    return {"size": [height, width], "counts": counts if kind == 2 else c.coco_counts(counts)}


def coco_saved(**arguments: Any) -> Define:
    """Annotations that the package has saved, read again."""

    def define(p: Any, folder: pathlib.Path, order: dict[str, Any]) -> Any:
        saved = folder / "saved"
        saved.mkdir(exist_ok=True)
        root, masks = str(folder / "images"), {"polygon_masks": True, "image_ids": True}
        save = {"save_preprocessed_annotations": True, "save_preprocessed_annotations_dir": str(saved)}

        @p.pipeline_def(batch_size=1, num_threads=1, device_id=None)
        def saving():
            return tuple(
                p.fn.readers.coco(
                    file_root=root, annotations_file=str(folder / "coco.json"), **arguments, **masks, **save
                )
            )

        saving().build()
        files = {f.name: np.frombuffer(f.read_bytes(), np.uint8) for f in sorted(saved.iterdir())}
        contents = [p.types.Constant(x) for x in (files[n] for n in sorted(files))]
        return (*p.fn.readers.coco(file_root=root, preprocessed_annotations=str(saved), **masks), *contents)

    return define


def write_index(path: pathlib.Path, index: pathlib.Path):
    """As DALI's wds2idx writes it, of names without spaces."""
    lines: list[list[str]] = []
    previous = None
    with tarfile.open(path) as archive:
        for m in archive:
            stem, _, extension = m.name.rpartition("/")[2].partition(".")
            if stem and extension:
                lines += [[]] if (key := m.name.removesuffix(extension)) != previous else []
                lines[-1].append(f"{extension} {m.offset_data} {m.size} {m.name}")
                previous = key
    index.write_text("\n".join([f"v1.2 {len(lines)}", *map(" ".join, lines)]) + "\n")


def webdataset(names: str, index: bool = True, dtypes: Sequence[str] = (), **arguments: Any) -> Define:
    def define(p: Any, folder: pathlib.Path, order: dict[str, Any]) -> Any:
        paths = [str(folder / f"{n}.tar") for n in names.split()]
        # Beside an archive, the index would be used without being asked for.
        options = {"index_paths": [str(folder / "indices" / f"{n}.idx") for n in names.split()]} if index else {}
        options |= {"dtypes": [getattr(p.types, t) for t in dtypes]} if dtypes else {}
        return p.fn.readers.webdataset(paths=paths, **options, **arguments, **order)

    return define


def tfrecord(p: Any, folder: pathlib.Path, order: dict[str, Any]) -> Any:
    paths = [str(folder / f"{name}.tfrecord") for name in "abc"]
    f = p.tfrecord
    features = {
        "image": f.FixedLenFeature((), f.string, ""),
        "label": f.FixedLenFeature([1], f.int64, -1),
        "box": f.VarLenFeature([2], f.float32, 0.0),
    }
    nodes = p.fn.readers.tfrecord(path=paths, index_path=[f"{x}.idx" for x in paths], features=features, **order)
    return nodes["image"], nodes["label"], nodes["box"]


def tfrecord_of(name: str, make: Callable[[Any], dict[str, Any]]) -> Define:
    def define(p: Any, folder: pathlib.Path, order: dict[str, Any]) -> Any:
        path = str(folder / f"{name}.tfrecord")
        return tuple(p.fn.readers.tfrecord(path=path, index_path=f"{path}.idx", features=make(p.tfrecord)).values())

    return define


def of_paths(reader: str, names: str, **arguments: Any) -> Define:
    """A reader of containers that `path` names."""

    def define(p: Any, folder: pathlib.Path, order: dict[str, Any]) -> Any:
        options = {k: str(folder / v) if k == "index_path" else v for k, v in arguments.items()}
        return getattr(p.fn.readers, reader)(path=[str(folder / n) for n in names.split()], **options, **order)

    return define


def files(p: Any, folder: pathlib.Path, order: dict[str, Any]) -> Any:
    return p.fn.readers.file(file_root=str(folder / "classes"), **order)


def arrays(p: Any, folder: pathlib.Path, order: dict[str, Any]) -> Any:
    return p.fn.readers.numpy(file_root=str(folder / "arrays"), **order)


def speech(dtype: str = "FLOAT", **arguments: Any) -> Define:
    def define(p: Any, folder: pathlib.Path, order: dict[str, Any]) -> Any:
        kind = getattr(p.types, dtype)
        return p.fn.readers.nemo_asr(manifest_filepaths=str(folder / "speech.json"), dtype=kind, **arguments, **order)

    return define


CASES = {
    "file": Case(files, SHUFFLED, 3, 12),
    "numpy": Case(arrays, SHUFFLED, 3, 12),
    "nemo_asr": Case(speech(read_idxs=True), SHUFFLED, 3, 6),
    "nemo_asr_integers": Case(speech(dtype="INT16"), batch_size=5),
    "nemo_asr_channels": Case(speech(dtype="INT32", downmix=False, read_text=False), batch_size=5),
    "nemo_asr_durations": Case(
        speech(min_duration=0.003, max_duration=1.0, read_sample_rate=False, read_idxs=True), batch_size=4
    ),
    "webdataset": Case(webdataset("a b", ext=["jpg", "cls"]), SHUFFLED, 3, 6),
    "webdataset_made": Case(webdataset("odd b", False, ext=["jpg", "cls"]), batch_size=10),
    "webdataset_odd": Case(webdataset("odd", ext=["jpg", "cls"]), batch_size=7),
    "webdataset_skip": Case(webdataset("odd", ext=["jpg", "cls"], missing_component_behavior="skip"), batch_size=2),
    "webdataset_case": Case(webdataset("odd", ext=["jpg", "cls"], case_sensitive_extensions=False), batch_size=7),
    "webdataset_any": Case(webdataset("odd", ext=["JPG;seg.png;jpg", "png", "cls;jpg"]), batch_size=7),
    "webdataset_types": Case(webdataset("a", dtypes=["UINT8", "INT16"], ext=["jpg", "cls"]), batch_size=5),
    "webdataset_float": Case(webdataset("a", dtypes=["FLOAT"], ext="cls"), batch_size=5),
    "coco": Case(coco(), SHUFFLED, 3, 4),
    "coco_boxes": Case(coco(ratio=True, ltrb=True, image_ids=True), batch_size=4),
    "coco_crowd": Case(coco(include_iscrowd=False), batch_size=4),
    "coco_empty": Case(coco(skip_empty=True), batch_size=2),
    "coco_classes": Case(coco(avoid_class_remapping=True, size_threshold=0.0), batch_size=4),
    "coco_images": Case(coco(images=["d.jpg", "b.jpg", "none.jpg", "d.jpg"]), batch_size=3),
    "coco_polygons": Case(coco(polygon_masks=True), batch_size=4),
    "coco_ratio": Case(coco(polygon_masks=True, ratio=True), batch_size=4),
    "coco_pixels": Case(
        pixels,
        ({}, {"ratio": True}, {"avoid_class_remapping": True, "image_ids": True}, {"include_iscrowd": False}),
        12,
    ),
    "coco_saved": Case(coco_saved(ltrb=True, ratio=True), batch_size=4),
    "tfrecord": Case(tfrecord, SHUFFLED, 4, 6),
    "tfrecord_unpacked": Case(
        tfrecord_of(
            "unpacked",
            lambda f: {
                "text": f.FixedLenFeature([], f.string, ""),
                "int": f.FixedLenFeature([2], f.int64, 0),
                "float": f.FixedLenFeature([1, 2, 3], f.float32, 0.0),
            },
        ),
        batch_size=2,
    ),
    "tfrecord_lists": Case(
        tfrecord_of(
            "unpacked", lambda f: {"int": f.VarLenFeature(f.int64, 0), "float": f.VarLenFeature([3], f.float32, 0.0)}
        ),
        batch_size=2,
    ),
    "tfrecord_large": Case(
        tfrecord_of(
            "large",
            lambda f: {"after": f.FixedLenFeature([], f.float32, 0.0), "label": f.FixedLenFeature([], f.int64, 0)},
        )
    ),
    "mxnet": Case(of_paths("mxnet", "a.rec", index_path="a.idx"), SHUFFLED, 4, 6),
    "mxnet_files": Case(of_paths("mxnet", "part1.rec part2.rec", index_path="parts.idx"), SHUFFLED, 4, 6),
    "mxnet_backward": Case(of_paths("mxnet", "a.rec", index_path="backward.idx"), batch_size=6),
    "mxnet_labels": Case(of_paths("mxnet", "labels.rec", index_path="labels.idx")),
    "caffe": Case(of_paths("caffe", "a.caffe b.caffe c.caffe"), ORDERS, 4, 6),
    "caffe_raw": Case(of_paths("caffe", "raw.caffe")),
    "caffe_label": Case(of_paths("caffe", "a.caffe", image_available=False)),
    "caffe_image": Case(of_paths("caffe", "a.caffe", label_available=False)),
    "caffe2": Case(of_paths("caffe2", "a.caffe2 b.caffe2 c.caffe2"), ORDERS, 4, 6),
    "caffe2_raw": Case(of_paths("caffe2", "raw.caffe2")),
    "caffe2_more": Case(of_paths("caffe2", "more.caffe2", additional_inputs=2, bbox=True), batch_size=2),
    "caffe2_label": Case(of_paths("caffe2", "label.caffe2", image_available=False), batch_size=2),
    "caffe2_image": Case(of_paths("caffe2", "more.caffe2", label_type=4), batch_size=2),
    "caffe2_dense": Case(of_paths("caffe2", "dense.caffe2", label_type=2, num_labels=3), batch_size=2),
}


def outputs(package: Any, name: str, k: int, folder: pathlib.Path) -> list[Any]:
    """The results of a case: of each batch its samples' sources, and of each output their types, shapes and bytes (hex).

    Args:
      package: jaxdali, or nvidia.dali.
      k: which of its orders.
    """
    case = CASES[name]

    @package.pipeline_def(batch_size=case.batch_size, num_threads=1, device_id=None, seed=1)
    def pipeline():
        nodes = case.define(package, folder, case.order[k])
        return tuple(nodes) if isinstance(nodes, (list, tuple)) else nodes

    pipe = pipeline()
    pipe.build()
    batches = []
    for _ in range(case.batches):
        results = pipe.run()
        results = [[out[i] for i in range(case.batch_size)] for out in results]
        sources = [x.source_info().replace(f"{folder}/", "") for x in results[0]]
        arrays = [[np.asarray(x) for x in out] for out in results]
        batches.append([sources, *[[[x.dtype.name, list(x.shape), x.tobytes().hex()] for x in out] for out in arrays]])
    return batches
