"""readers.coco: images with the annotations of COCO's JSON files."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Unpack

import numpy as np

from ..._core.context import HostContext
from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._core.values import Spec
from ..._data.files import Files, Path, as_list
from ..._data.listed import OnError, Reader, ReaderHints, warn
from ..._data.storage import Storage, Store, plain
from ._file import LabelledFiles

BOXES = Spec(np.dtype(np.float32), 2, None, "", (None, 4))
LABELS = Spec(np.dtype(np.int32), 1, None)
POLYGONS = Spec(np.dtype(np.int32), 2, None, "", (None, 3))
VERTICES = Spec(np.dtype(np.float32), 2, None, "", (None, 2))
PIXELS = Spec(np.dtype(np.int32), 3, None, "HWC", (None, None, 1))
IMAGE_ID = Spec(np.dtype(np.int32), 1, (1,))

# Deprecated arguments, and what took their place.
_RENAMED = {
    "dump_meta_files": "save_preprocessed_annotations",
    "dump_meta_files_path": "save_preprocessed_annotations_dir",
    "meta_files_path": "preprocessed_annotations",
    "save_img_ids": "image_ids",
}


@dataclasses.dataclass
class _Columns:
    """What is known of all images, one image after another.

    Attributes:
      names: of the files; ids: of the images.
      ends, polygon_ends, vertex_ends: ``i64[images]``, where each image's objects, polygons and vertices end.
      boxes: ``f32[objects, 4]``; labels: ``i32[objects]``; polygons: ``i32[polygons, 3]``: object, first vertex, and the one behind the
        last; vertices: ``f32[vertices, 2]``.
      sizes: ``f32[images, 2]``, width and height; runs: of each image (object, run-length encoding), as COCO has it. Both are empty where
        annotations were preprocessed.
    """

    names: list[str]
    ids: np.ndarray
    ends: np.ndarray
    boxes: np.ndarray
    labels: np.ndarray
    polygon_ends: np.ndarray
    polygons: np.ndarray
    vertex_ends: np.ndarray
    vertices: np.ndarray
    sizes: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 2), np.float32))
    runs: list[list[tuple[int, Any]]] = dataclasses.field(default_factory=list)

    def of(self, i: int, values: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """The part of image `i`."""
        return values[ends[i - 1] if i else 0 : ends[i]]

    def pixels(self, i: int, ratio: bool) -> np.ndarray:
        """``i32[H, W, 1]``: the class of each pixel of image `i`, as DALI has it; 0: none. Of classes that overlap the highest."""
        masks = _masks()
        width, height = map(int, self.sizes[i])
        scale = self.sizes[i] if ratio else np.float32(1)
        classes, vertices = self.of(i, self.labels, self.ends), self.of(i, self.vertices, self.vertex_ends)
        drawn: dict[int, list[Any]] = {}
        for k, first, last in self.of(i, self.polygons, self.polygon_ends).tolist():
            drawn.setdefault(int(classes[k]), []).append((vertices[first:last] * scale).astype(np.float64).ravel().tolist())
        # A class has its last run-length encoding, or where it has polygons these.
        encoded = {
            int(classes[k]): x if isinstance(x["counts"], (str, bytes)) else masks.frPyObjects(x, *x["size"]) for k, x in self.runs[i]
        }
        encoded |= {c: masks.merge(masks.frPyObjects(polygons, height, width)) for c, polygons in drawn.items()}
        found, last = np.zeros(width * height, np.int32), 0
        for c in sorted(encoded):
            if list(encoded[c]["size"]) != [height, width]:
                raise ValueError(f"its masks are of images of {encoded[c]['size']}, not of {[height, width]}")
            mask = masks.decode(encoded[c]).ravel(order="F").astype(bool)
            changes = np.flatnonzero(mask[1:] != mask[:-1])
            last = max(last, int(changes[-1]) + 1) if len(changes) else last
            if found[-1]:  # of the last run of pixels DALI keeps the class that is there
                mask[last:] = False
            found[mask] = c
        return found.reshape(width, height).T[:, :, None]


def _masks() -> Any:
    try:
        from pycocotools import mask
    except ImportError as e:
        raise ImportError('pixelwise_masks of readers.coco need pycocotools: pip install "jaxdali[coco]"') from e
    return mask


class _Annotated(LabelledFiles):
    """Image files with their annotations."""

    def __init__(self, op: ReadCOCO, columns: _Columns, files: Files):
        super().__init__(files, np.zeros(len(files), np.int32), "labels")
        self._columns, self._ratio = columns, op.ratio
        parts: list[tuple[Spec, np.ndarray, np.ndarray | None]] = [
            (BOXES, columns.boxes, columns.ends),
            (LABELS, columns.labels, columns.ends),
        ]
        if op.polygon_masks or op.masks:
            polygons = columns.polygons * np.array([1, 2, 2], np.int32) if op.masks else columns.polygons
            parts += [(POLYGONS, polygons, columns.polygon_ends), (VERTICES, columns.vertices, columns.vertex_ends)]
        self._pixels = len(parts) + 1 if op.pixelwise_masks else None  # their output
        if op.image_ids:
            parts.append((IMAGE_ID, columns.ids[:, None], None))
        self._parts = parts
        specs = [LabelledFiles.specs[0], *(spec for spec, _, _ in parts)]
        digest = files.digest.copy()
        if self._pixels is not None:
            _masks()
            specs.insert(self._pixels, PIXELS)
            for x in (columns.polygons, columns.vertices, columns.sizes):
                digest.update(np.ascontiguousarray(x).data)
            digest.update(repr(columns.runs).encode())
        self.specs = tuple(specs)
        for _, values, ends in parts:
            digest.update(np.ascontiguousarray(values).data)
            digest.update(b"" if ends is None else ends.data)
        self.digest = digest.hexdigest()[:16]

    def _annotations(self, i: int) -> list[np.ndarray]:
        """The outputs behind the image."""
        found = [values[i] if ends is None else self._columns.of(i, values, ends) for _, values, ends in self._parts]
        if self._pixels is not None:
            found.insert(self._pixels - 1, self._columns.pixels(i, self._ratio))
        return found

    def read(self, i: int) -> Sequence[np.ndarray]:
        return (super().read(i)[0], *self._annotations(i))

    @classmethod
    def read_batch(cls, ctx: HostContext, parts: Sequence[tuple[Any, np.ndarray]], threads: Any) -> tuple[Any, ...]:
        if parts[0][0]._pixels is not None or any(records.files.remote for records, _ in parts):
            return super(LabelledFiles, cls).read_batch(ctx, parts, threads)  # of `read`, in threads
        images, _ = super().read_batch(ctx, parts, threads)
        rows = [records._annotations(i) for records, index in parts for i in index.tolist()]
        return images, *(list(x) if s.shape is None else np.stack(x) for s, x in zip(parts[0][0].specs[1:], zip(*rows)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadCOCO(Reader):
    """`readers.coco`; the fields are its arguments."""

    name: ClassVar[str] = "readers.coco"

    file_root: Path | None
    annotations_file: Path | None
    preprocessed_annotations: Path | None
    images: str | tuple[str, ...] | None
    polygon_masks: bool
    pixelwise_masks: bool
    masks: bool
    image_ids: bool
    ratio: bool
    ltrb: bool
    skip_empty: bool
    size_threshold: float
    include_iscrowd: bool
    avoid_class_remapping: bool
    save_preprocessed_annotations: bool
    save_preprocessed_annotations_dir: Path | None
    dump_meta_files: bool
    dump_meta_files_path: Path | None
    meta_files_path: Path | None
    save_img_ids: bool

    def __post_init__(self):
        super().__post_init__()
        for old, new in _RENAMED.items():
            if value := getattr(self, old):
                if getattr(self, new):
                    raise ArgumentError(f"{old} is the deprecated name of {new}: pass one of them")
                warn(f"readers.coco: {old} is deprecated: it is {new} now")
                object.__setattr__(self, new, value)
        if self.file_root is None:
            raise ArgumentError("file_root must be given: the folder of the images")
        if bool(self.annotations_file) == bool(self.preprocessed_annotations):
            raise ArgumentError("one of annotations_file and preprocessed_annotations must be given")
        if self.preprocessed_annotations:
            given = [n for n in ("images", "ratio", "ltrb", "skip_empty", "avoid_class_remapping", "pixelwise_masks") if getattr(self, n)]
            given += ["include_iscrowd"] * (not self.include_iscrowd) + [
                "save_preprocessed_annotations"
            ] * self.save_preprocessed_annotations
            if given:
                raise ArgumentError(f"{given[0]} can't be used with preprocessed_annotations, which are given as they were saved")
        if self.save_preprocessed_annotations and not self.save_preprocessed_annotations_dir:
            raise ArgumentError("save_preprocessed_annotations=True needs save_preprocessed_annotations_dir")
        if self.polygon_masks + self.masks + self.pixelwise_masks > 1:
            raise ArgumentError(
                "polygon_masks, pixelwise_masks and masks, the older form of the first, exclude each other: pass one of them"
            )

    @property
    def num_outputs(self) -> int:
        return 3 + 2 * (self.polygon_masks or self.masks) + self.pixelwise_masks + self.image_ids

    def open(self) -> _Annotated:
        store = Store(self.storage)
        if self.preprocessed_annotations:
            columns = _load(self.preprocessed_annotations, self)
        else:
            assert self.annotations_file is not None
            columns = self._columns(self.annotations_file, store)
        if not columns.names:
            raise RuntimeError(f"{self.annotations_file}: no image is left to be read")
        if self.save_preprocessed_annotations:
            assert self.save_preprocessed_annotations_dir is not None
            _save(self.save_preprocessed_annotations_dir, columns, self)
        assert self.file_root is not None
        return _Annotated(self, columns, Files(self.file_root, [os.fsencode(n) for n in columns.names], store))

    def _columns(self, path: Path, store: Store) -> _Columns:
        try:
            document = json.loads(store.read(plain(path)))
            images = {int(x["id"]): (str(x["file_name"]), float(x["width"]), float(x["height"])) for x in document["images"]}
            classes = {int(x["id"]): k for k, x in enumerate(document.get("categories", []), 1)}
            objects: dict[int, list[Any]] = {i: [] for i in images}
            for k, a in enumerate(document.get("annotations", [])):
                kept = (self.include_iscrowd or not a.get("iscrowd")) and min(a["bbox"][2:4]) >= self.size_threshold
                if kept and int(a["image_id"]) in objects:
                    label = int(a["category_id"])
                    if not self.avoid_class_remapping:
                        if label not in classes:
                            raise RuntimeError(
                                f"{os.fspath(path)}: annotation {k} is of category {label}, which is not among the categories"
                            )
                        label = classes[label]
                    objects[int(a["image_id"])].append((a["bbox"], label, a.get("segmentation") or []))
        except OSError as e:
            raise RuntimeError(f"can't read annotations_file {os.fspath(path)}: {e.strerror}") from e
        except (ValueError, TypeError, KeyError, AttributeError) as e:
            raise RuntimeError(f"{os.fspath(path)} has not the form of COCO's annotations: {type(e).__name__}: {e}") from e
        order = sorted(images)
        if self.images is not None:
            ids = {images[i][0]: i for i in order}
            order = [ids[n] for n in as_list(self.images) if n in ids]
        if self.skip_empty:
            order = [i for i in order if objects[i]]
        return self._flat(order, images, objects)

    def _flat(self, order: list[int], images: dict[int, Any], objects: dict[int, list[Any]]) -> _Columns:
        boxes, labels, polygons, vertices, ends, polygon_ends, vertex_ends, scales = [], [], [], [], [], [], [], []
        runs: list[list[tuple[int, Any]]] = []
        for i in order:
            vertex = 0
            runs.append([])
            for k, (box, label, segmentation) in enumerate(objects[i]):
                boxes.append(box)
                labels.append(label)
                scales.append(images[i][1:])
                if self.pixelwise_masks and isinstance(segmentation, dict):
                    runs[-1].append((k, segmentation))
                if (self.polygon_masks or self.masks or self.pixelwise_masks) and isinstance(segmentation, list):
                    for polygon in segmentation:
                        points = np.asarray(polygon, np.float32).reshape(-1, 2)
                        polygons.append((k, vertex, vertex := vertex + len(points)))
                        vertices.append(points / np.float32(images[i][1:]) if self.ratio else points)
            ends.append(len(boxes))
            polygon_ends.append(len(polygons))
            vertex_ends.append((vertex_ends[-1] if vertex_ends else 0) + vertex)
        rows = np.array(boxes, np.float32).reshape(-1, 4)
        if self.ltrb:
            rows[:, 2:] += rows[:, :2]
        if self.ratio:
            rows /= np.tile(np.array(scales, np.float32).reshape(-1, 2), 2)
        return _Columns(
            names=[images[i][0] for i in order],
            ids=np.array(order, np.int32),
            ends=np.array(ends, np.int64),
            boxes=rows,
            labels=np.array(labels, np.int32),
            polygon_ends=np.array(polygon_ends, np.int64),
            polygons=np.array(polygons, np.int32).reshape(-1, 3),
            vertex_ends=np.array(vertex_ends, np.int64),
            vertices=np.concatenate([np.zeros((0, 2), np.float32), *vertices]),
            sizes=np.array([images[i][1:] for i in order], np.float32).reshape(-1, 2),
            runs=runs,
        )


# Preprocessed annotations are a file for each column: the number of its rows as i32, and the rows.
_WIDE = {"polygon_offset", "polygons_count", "vertices_offset", "vertices_count"}  # numbers of 64 bits


def _save(folder: Path, x: _Columns, op: ReadCOCO):
    counts = np.diff(x.ends, prepend=0)
    columns: dict[str, tuple[np.ndarray, int]] = {  # and how many rows its values are said to be
        "offsets": (x.ends - counts, len(x.ends)),
        "boxes": (x.boxes, x.boxes.size),
        "labels": (x.labels, len(x.labels)),
        "counts": (counts, len(counts)),
    }
    if op.polygon_masks or op.masks:
        polygons, vertices = np.diff(x.polygon_ends, prepend=0), np.diff(x.vertex_ends, prepend=0)
        columns |= {
            "polygon_data": (x.polygons, len(x.polygons)),
            "polygon_offset": (x.polygon_ends - polygons, len(polygons)),
            "polygons_count": (polygons, len(polygons)),
            "vertices": (x.vertices, len(x.vertices)),
            "vertices_offset": (x.vertex_ends - vertices, len(vertices)),
            "vertices_count": (vertices, len(vertices)),
        }
    if op.image_ids:
        columns["original_ids"] = x.ids, len(x.ids)
    try:
        for name, (values, count) in columns.items():
            dtype = np.float32 if values.dtype == np.float32 else np.int64 if name in _WIDE else np.int32
            with open(os.path.join(folder, f"{name}.dat"), "wb") as f:
                f.write(np.int32(count).tobytes() + values.astype(dtype).tobytes())
        with open(os.path.join(folder, "filenames.dat"), "w") as f:
            f.write("".join(f"{n}\n" for n in x.names))
    except OSError as e:
        raise RuntimeError(f"can't save preprocessed annotations: {e.filename}: {e.strerror}") from e


def _load(folder: Path, op: ReadCOCO) -> _Columns:
    def column(name: str, dtype: type = np.int32, width: int = 1) -> np.ndarray:
        path = os.path.join(folder, f"{name}.dat")
        content = np.fromfile(path, np.uint8)
        rows = int(content[:4].view(np.int32)[0]) if len(content) >= 4 else -1
        if rows < 0 or len(content) - 4 != rows * width * np.dtype(dtype).itemsize:
            raise RuntimeError(f"{path} has {len(content)} bytes, which is not what it says: it is damaged")
        return content[4:].view(dtype)

    def ends(name: str, total: int, dtype: type = np.int32) -> np.ndarray:
        found = np.cumsum(column(name, dtype), dtype=np.int64)
        if len(found) != len(names) or (len(found) and (found[-1] != total or (np.diff(found, prepend=0) < 0).any())):
            raise RuntimeError(f"{os.path.join(folder, name)}.dat does not fit the other files: they are of different annotations")
        return found

    try:
        with open(os.path.join(folder, "filenames.dat")) as f:
            names = f.read().splitlines()
        boxes, labels = column("boxes", np.float32).reshape(-1, 4), column("labels")
        none = np.zeros(len(names), np.int64)
        polygons, vertices, polygon_ends, vertex_ends = np.zeros((0, 3), np.int32), np.zeros((0, 2), np.float32), none, none
        if op.polygon_masks or op.masks:
            polygons, vertices = column("polygon_data", width=3).reshape(-1, 3), column("vertices", np.float32, 2).reshape(-1, 2)
            polygon_ends = ends("polygons_count", len(polygons), np.int64)
            vertex_ends = ends("vertices_count", len(vertices), np.int64)
        ids = column("original_ids") if op.image_ids else np.zeros(len(names), np.int32)
        return _Columns(names, ids, ends("counts", len(labels)), boxes, labels, polygon_ends, polygons, vertex_ends, vertices)
    except OSError as e:
        raise RuntimeError(f"can't read preprocessed annotations: {e.filename}: {e.strerror}") from e


class COCOHints(ReaderHints, total=False):
    """Those of `coco`: files are never mapped here."""

    dont_use_mmap: bool | None


@operator_function(ReadCOCO)
def coco(
    *,
    file_root: Path | None = None,
    annotations_file: Path | None = None,
    preprocessed_annotations: Path | None = None,
    images: str | Sequence[str] | None = None,
    polygon_masks: bool = False,
    pixelwise_masks: bool = False,
    masks: bool = False,
    image_ids: bool = False,
    ratio: bool = False,
    ltrb: bool = False,
    skip_empty: bool = False,
    size_threshold: float = 0.1,
    include_iscrowd: bool = True,
    avoid_class_remapping: bool = False,
    save_preprocessed_annotations: bool = False,
    save_preprocessed_annotations_dir: Path | None = None,
    dump_meta_files: bool = False,
    dump_meta_files_path: Path | None = None,
    meta_files_path: Path | None = None,
    save_img_ids: bool = False,
    random_shuffle: bool = False,
    initial_fill: Annotated[int, Range(1)] = 1024,
    shuffle_after_epoch: bool = False,
    shuffle_after_epoch_seed: int | None = None,
    shuffle: Literal["global"] | None = None,
    num_shards: Annotated[int, Range(1)] = 1,
    shard_id: Annotated[int, Range(0)] = 0,
    stick_to_shard: bool = False,
    pad_last_batch: bool = False,
    storage: Storage | None = None,
    seed: int = -1,
    on_error: OnError = "raise",
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[COCOHints],
) -> tuple[DataNode, ...]:
    """Reads images with boxes, classes and polygons from COCO data sets.

    Args:
      file_root: folder that the files' names in the annotations are relative to.
      annotations_file: the JSON file.
      preprocessed_annotations: instead of it, a folder that `save_preprocessed_annotations` (or DALI's) was given.
      images: names of files as in the annotations: these are read, in this order, as often as they are named. None: all, by their ids.
      polygon_masks: also give polygons and vertices.
      pixelwise_masks: also give the class of each pixel, drawn of the polygons and run-length encodings (package pycocotools,
        ``pip install "jaxdali[coco]"``). Of a JSON file only.
      masks: the same, with polygons in DALI's older form: they count coordinates, not vertices.
      image_ids: also give the images' ids.
      ratio: boxes and vertices are relative to the images' sizes.
      ltrb: boxes are (left, top, right, bottom), not (left, top, width, height).
      skip_empty: leave images out that have no object.
      size_threshold: leave objects out whose width or height is below this, in pixels.
      include_iscrowd: whether objects with ``iscrowd`` are given.
      avoid_class_remapping: give classes as in the file. Else they are numbered from 1, in the order of the file's categories.
      save_preprocessed_annotations: write what was read of the JSON file to a folder, when the pipeline is built.
      save_preprocessed_annotations_dir: this folder, which must be there.
      dump_meta_files, dump_meta_files_path, meta_files_path, save_img_ids: deprecated names of `save_preprocessed_annotations`,
        `save_preprocessed_annotations_dir`, `preprocessed_annotations` and `image_ids`.
      random_shuffle: shuffle the list before it is split into shards, and each epoch of a shard in a new order.
      initial_fill: places of the buffer that this order is drawn with: small ones shuffle only locally, 1 not at all. The buffer
        holds numbers, not files: a large one costs nothing.
      shuffle_after_epoch: shuffle the whole list anew in each epoch, alike for all shards, and read the same part of it.
      shuffle_after_epoch_seed: another seed for this than DALI's fixed one.
      shuffle: "global": the order of each epoch is a new permutation of the whole list, by `seed`, which must be one for all shards.
        Beyond DALI.
      num_shards: parts that the list is split into: part i of S begins at entry ``floor(i*N/S)``.
      shard_id: the part to read, ``0 .. num_shards - 1``.
      stick_to_shard: read this part in every epoch, not the next one.
      pad_last_batch: repeat a shard's last sample until all shards are equally long and the last batch is full.
      storage: how URLs are read: `jaxdali.Storage`. Beyond DALI; all paths may be URLs.
      seed: seed of `random_shuffle`; negative: the pipeline's.
      on_error: what becomes of a file that can't be read: "raise": its batch fails. "replace": a later one of the list takes its place,
        and `Pipeline.bad_samples` reports it.
      device: "cpu" or None.
      name: of the reader, for ``reader_name`` and error messages.

    Returns:
      (image ``uint8[bytes]``, boxes ``float32[objects, 4]``, classes ``int32[objects]``); with `polygon_masks` also (polygons
      ``int32[polygons, 3]``: object, first vertex, and the one behind the last; vertices ``float32[vertices, 2]``: x, y), with
      `pixelwise_masks` also (classes ``int32[H, W, 1]``, 0 where no object is), with `image_ids` also (id ``int32[1]``). Their source_info
      is the file's name in the annotations.

    Raises:
      ValueError, TypeError: arguments that contradict each other or are out of range.
      RuntimeError: at build, annotations that can't be read or have another form. An image that can't be read fails when its batch runs.

    Unlike in DALI, `pixelwise_masks` are not made of preprocessed annotations, and the order of `random_shuffle` is not DALI's own.

    Example:
      >>> jpegs, boxes, classes = fn.readers.coco(file_root="train2017", annotations_file="instances_train2017.json", ratio=True, ltrb=True)
    """
    ...
