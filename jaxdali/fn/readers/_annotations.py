"""The annotations of COCO's JSON files, and those that were preprocessed, as columns."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import operator
import os
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from ..._data.files import utf8
from ..._data.storage import Path, Store, join


@dataclasses.dataclass
class Annotations:
    """The annotations of all images, one image after another.

    Attributes:
      names: names of the files; ids: ids of the images.
      ends, polygon_ends, vertex_ends: ``i64[images]``, where each image's objects, polygons and vertices end.
      boxes: ``f32[objects, 4]``; labels: ``i32[objects]``; polygons: ``i32[polygons, 3]``: object, first vertex, and
        the vertex after the last; vertices: ``f32[vertices, 2]``.
      sizes: ``f32[images, 2]``, width and height; runs: (object, run-length encoding in COCO's form) for images that
        have some. Both are empty if the annotations were preprocessed.
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
    runs: dict[int, list[tuple[int, Any]]] = dataclasses.field(default_factory=dict)

    def of(self, i: int, values: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """The part of image `i`."""
        return values[ends[i - 1] if i else 0 : ends[i]]

    def pixels(self, i: int, ratio: bool) -> np.ndarray:
        """``i32[H, W, 1]``: the class of each pixel of image `i`, as in DALI; 0 is no class. Where classes overlap, the
        highest is taken.
        """
        masks = mask_functions()
        width, height = map(int, self.sizes[i])
        scale = self.sizes[i] if ratio else np.float32(1)
        classes, vertices = self.of(i, self.labels, self.ends), self.of(i, self.vertices, self.vertex_ends)
        drawn: dict[int, list[Any]] = {}
        for k, first, last in self.of(i, self.polygons, self.polygon_ends).tolist():
            drawn.setdefault(int(classes[k]), []).append(
                (vertices[first:last] * scale).astype(np.float64).ravel().tolist()
            )
        # A class has its polygons, or else its last run-length encoding.
        encoded = {
            int(classes[k]): x if isinstance(x["counts"], (str, bytes)) else masks.frPyObjects(x, *x["size"])
            for k, x in self.runs.get(i, ())
        }
        encoded |= {c: masks.merge(masks.frPyObjects(polygons, height, width)) for c, polygons in drawn.items()}
        found, last = np.zeros(width * height, np.int32), 0
        for c in sorted(encoded):
            if list(encoded[c]["size"]) != [height, width]:
                raise ValueError(f"its masks are for images of size {encoded[c]['size']}, not {[height, width]}")
            mask = masks.decode(encoded[c]).ravel(order="F").astype(bool)
            changes = np.flatnonzero(mask[1:] != mask[:-1])
            last = max(last, int(changes[-1]) + 1) if len(changes) else last
            if found[-1]:  # of the last run of pixels DALI keeps the class that is there
                mask[last:] = False
            found[mask] = c
        return found.reshape(width, height).T[:, :, None]


def mask_functions() -> Any:
    """The mask functions of pycocotools."""
    try:
        from pycocotools import mask
    except ImportError as e:
        raise ImportError('pixelwise_masks of readers.coco need pycocotools: pip install "jaxdali[coco]"') from e
    return mask


def read_annotations(
    path: Path,
    store: Store,
    *,
    images: Sequence[str] | None,
    segmentations: bool,
    ratio: bool,
    ltrb: bool,
    skip_empty: bool,
    size_threshold: float,
    include_iscrowd: bool,
    avoid_class_remapping: bool,
) -> Annotations:
    """Reads the annotations of a JSON file.

    Args:
      segmentations: whether polygons and runs are wanted. The other arguments are the reader's.

    Raises:
      RuntimeError: the file can't be read, or has another form.
    """
    try:
        pictures, objects, categories, get = _document(utf8(store.read(store.named(path))), segmentations)
        ids, names, sizes = _images(pictures, get)
        boxes = _boxes(list(map(get("bbox"), objects)))
        image_ids = np.array(list(map(get("image_id"), objects)), np.int64)
        image = np.searchsorted(ids, image_ids)  # of each object
        kept = (
            (boxes[:, 2:].min(axis=1) >= size_threshold) & (np.append(ids, 0)[image] == image_ids) & (image < len(ids))
        )
        if not include_iscrowd:
            kept &= ~np.array(list(map(get("iscrowd"), objects)), bool)
        labels = np.array(list(map(get("category_id"), objects)), np.int64)
        if not avoid_class_remapping:
            labels = _remapped(labels, kept, list(map(get("id"), categories)))

        order = np.arange(len(ids))
        if images is not None:
            places = {name: i for i, name in enumerate(names)}
            order = np.array([places[n] for n in images if n in places], np.int64)
        index = np.flatnonzero(kept)
        index = index[np.argsort(image[index], kind="stable")]  # of the objects, image by image
        begins = np.searchsorted(image[index], np.arange(len(ids) + 1))
        counts = np.diff(begins)[order]
        if skip_empty:
            order, counts = order[counts > 0], counts[counts > 0]
        ends = np.cumsum(counts)
        place = np.arange(counts.sum()) - np.repeat(ends - counts, counts)  # of each object in its image
        index = index[np.repeat(begins[order], counts) + place]
        rows, scales = boxes[index].astype(np.float32), np.repeat(sizes[order], counts, axis=0)
        if ltrb:
            rows[:, 2:] += rows[:, :2]
        if ratio:
            rows /= np.tile(scales, 2)
        outline = get("segmentation")
        outlines = [outline(objects[k]) for k in index.tolist()] if segmentations else []
        runs: dict[int, list[tuple[int, Any]]] = {}
        for k in [k for k, x in enumerate(outlines) if isinstance(x, dict)]:
            runs.setdefault(int(np.searchsorted(ends, k, "right")), []).append((int(place[k]), outlines[k]))
        return Annotations(
            names=[names[i] for i in order.tolist()],
            ids=_int32(ids[order], "id of an image"),
            ends=ends,
            boxes=rows,
            labels=_int32(labels[index], "category"),
            **_polygons(outlines, place, ends, scales if ratio else None),
            sizes=sizes[order],
            runs=runs,
        )
    except OSError as e:
        raise RuntimeError(f"can't read annotations_file {os.fspath(path)}: {e.strerror}") from e.__cause__
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as e:
        raise RuntimeError(
            f"{os.fspath(path)} does not have the form of COCO's annotations: {type(e).__name__}: {e}"
        ) from e


def _document(
    content: bytes, segmentations: bool
) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any], Callable[[str], Callable[[Any], Any]]]:
    """The images, annotations and categories of a file, and a function that gets their fields by name."""
    try:
        import msgspec
    except ImportError:
        pass
    else:
        # The other parser reports errors, or reads a type that is uncommon.
        with contextlib.suppress(msgspec.MsgspecError):
            document = _decoder(segmentations).decode(content)
            return document.images, document.annotations, document.categories, operator.attrgetter
    document = json.loads(content)
    objects = document.get("annotations", [])
    for x in objects:
        x.setdefault("iscrowd", 0)
        x.setdefault("segmentation", None)
    return document["images"], objects, document.get("categories", []), operator.itemgetter


@functools.cache
def _decoder(segmentations: bool) -> Any:
    """A parser that only makes the wanted fields, in a sixth of the time."""
    import msgspec

    image = msgspec.defstruct("Image", [("id", int), ("file_name", str), ("width", float), ("height", float)], gc=False)
    fields: list[Any] = [("image_id", int), ("category_id", int), ("bbox", tuple[float, float, float, float])]
    fields.append(("iscrowd", int | bool | None, 0))
    if segmentations:
        fields.append(("segmentation", Any, None))
    annotation = msgspec.defstruct("Annotation", fields, gc=segmentations)
    category = msgspec.defstruct("Category", [("id", int)], gc=False)
    parts = [("images", list[image]), ("annotations", list[annotation], []), ("categories", list[category], [])]
    return msgspec.json.Decoder(msgspec.defstruct("Document", parts))


def _images(
    images: Sequence[Any], get: Callable[[str], Callable[[Any], Any]]
) -> tuple[np.ndarray, list[str], np.ndarray]:
    """Sorted ids, names and sizes of images; of images with the same id, the last is taken."""
    ids = np.array(list(map(get("id"), images)), np.int64)
    sizes = np.array([list(map(get(side), images)) for side in ("width", "height")], np.float32).T
    ids, last = np.unique(ids[::-1], return_index=True)
    index = len(images) - 1 - last
    name = get("file_name")
    return ids, [str(name(images[i])) for i in index.tolist()], sizes[index]


def _boxes(boxes: Sequence[Any]) -> np.ndarray:
    sizes = np.fromiter(map(len, boxes), np.int64, len(boxes))
    if len(wrong := np.flatnonzero(sizes != 4)):
        raise ValueError(f"the bbox of annotation {wrong[0]} has {sizes[wrong[0]]} numbers, not 4")
    found = np.fromiter(chain.from_iterable(boxes), np.float64, 4 * len(boxes)).reshape(-1, 4)
    if np.isnan(found).any():  # NumPy makes NaN of None
        raise ValueError(
            f"the bbox of annotation {np.isnan(found).any(axis=1).argmax()} has elements that are not numbers"
        )
    return found


def _remapped(labels: np.ndarray, kept: np.ndarray, categories: Sequence[Any]) -> np.ndarray:
    """Classes numbered from 1, in the order of the categories. Raises ValueError if a kept object has none of these."""
    classes = {int(x): k for k, x in enumerate(categories, 1)}
    values, which = np.unique(labels, return_inverse=True)
    found = np.array([classes.get(x, 0) for x in values.tolist()], np.int64)[which]
    if len(unknown := np.flatnonzero(kept & (found == 0))):
        raise ValueError(
            f"annotation {unknown[0]} is of category {labels[unknown[0]]}, which is not among the categories"
        )
    return found


def _int32(x: np.ndarray, what: str) -> np.ndarray:
    if len(x) and not (-(2**31) <= x.min() and x.max() < 2**31):
        raise ValueError(f"the {what} must fit 32 bits, got {x.min()} .. {x.max()}")
    return x.astype(np.int32)


def _polygons(
    outlines: Sequence[Any], place: np.ndarray, ends: np.ndarray, scales: np.ndarray | None
) -> dict[str, np.ndarray]:
    """Polygons and vertices of objects.

    Args:
      outlines: for each object, the file's lists of polygons, or something else.
      place: the number of each object in its image; ends: where the objects of each image end; scales: ``f32[objects,
        2]``, divisors of the vertices.
    """
    counts = np.fromiter((len(x) if isinstance(x, list) else 0 for x in outlines), np.int64, len(outlines))
    polygons = [p for x in outlines if isinstance(x, list) for p in x]
    points, odd = np.divmod(np.fromiter(map(len, polygons), np.int64, len(polygons)), 2)
    if odd.any():
        raise ValueError("a polygon has an odd number of coordinates")
    vertices = np.fromiter(chain.from_iterable(polygons), np.float32, 2 * int(points.sum())).reshape(-1, 2)
    of = np.repeat(np.arange(len(outlines)), counts)  # of each polygon its object
    if scales is not None:
        vertices /= np.repeat(scales[of], points, axis=0)
    last, polygon_ends = np.cumsum(points), np.searchsorted(of, ends)
    vertex_ends = np.append(0, last)[polygon_ends]
    begin = np.append(0, vertex_ends)[np.searchsorted(ends, of, "right")]  # of the vertices of its image
    return {
        "polygon_ends": polygon_ends,
        "polygons": np.stack([place[of], last - points - begin, last - begin], axis=1).astype(np.int32),
        "vertex_ends": vertex_ends,
        "vertices": vertices,
    }


# Preprocessed annotations have a file for each column: the number of its rows as i32, followed by the rows.
_WIDE = {"polygon_offset", "polygons_count", "vertices_offset", "vertices_count"}  # numbers of 64 bits


def save_annotations(folder: Path, x: Annotations, polygons: bool, ids: bool):
    """Writes annotations as DALI does. polygons, ids: whether to write these, too. Raises RuntimeError if that fails."""
    counts = np.diff(x.ends, prepend=0)
    columns: dict[str, tuple[np.ndarray, int]] = {  # and the number of rows that its values should have
        "offsets": (x.ends - counts, len(x.ends)),
        "boxes": (x.boxes, x.boxes.size),
        "labels": (x.labels, len(x.labels)),
        "counts": (counts, len(counts)),
    }
    if polygons:
        of_images, vertices = np.diff(x.polygon_ends, prepend=0), np.diff(x.vertex_ends, prepend=0)
        columns |= {
            "polygon_data": (x.polygons, len(x.polygons)),
            "polygon_offset": (x.polygon_ends - of_images, len(of_images)),
            "polygons_count": (of_images, len(of_images)),
            "vertices": (x.vertices, len(x.vertices)),
            "vertices_offset": (x.vertex_ends - vertices, len(vertices)),
            "vertices_count": (vertices, len(vertices)),
        }
    if ids:
        columns["original_ids"] = x.ids, len(x.ids)
    try:
        for name, (values, count) in columns.items():
            dtype = np.float32 if values.dtype == np.float32 else np.int64 if name in _WIDE else np.int32
            with open(os.path.join(folder, f"{name}.dat"), "wb") as f:
                f.write(np.int32(count).tobytes() + values.astype(dtype).tobytes())
        with open(os.path.join(folder, "filenames.dat"), "w", encoding="utf-8", errors="surrogateescape") as f:
            f.write("".join(f"{n}\n" for n in x.names))
    except OSError as e:
        raise RuntimeError(f"can't save preprocessed annotations: {e.filename}: {e.strerror}") from None


def load_annotations(folder: Path, store: Store, with_polygons: bool, with_ids: bool) -> Annotations:
    """Reads saved annotations. Raises RuntimeError if they can't be read, or belong to different annotations."""

    def misfit(name: str) -> RuntimeError:
        return RuntimeError(
            f"{os.path.join(folder, name)}.dat does not match the other files: they belong to different annotations"
        )

    def column(name: str, dtype: type = np.int32, width: int = 1) -> np.ndarray:
        path = join(store.named(folder), f"{name}.dat")
        content = np.frombuffer(store.read(path), np.uint8)
        rows = int(content[:4].view(np.int32)[0]) if len(content) >= 4 else -1
        if rows < 0 or len(content) - 4 != rows * width * np.dtype(dtype).itemsize:
            raise RuntimeError(f"{path} has {len(content)} bytes, which differs from what it declares: it is damaged")
        return content[4:].view(dtype)

    def ends(name: str, total: int, dtype: type = np.int32) -> np.ndarray:
        found = np.cumsum(column(name, dtype), dtype=np.int64)
        if len(found) != len(names) or (len(found) and (found[-1] != total or (np.diff(found, prepend=0) < 0).any())):
            raise misfit(name)
        return found

    try:
        names = store.read(join(store.named(folder), "filenames.dat")).decode("utf-8", "surrogateescape").splitlines()
        boxes, labels = column("boxes", np.float32), column("labels")
        if len(boxes) != 4 * len(labels):
            raise misfit("boxes")
        none = np.zeros(len(names), np.int64)
        polygons, vertices, polygon_ends, vertex_ends = (
            np.zeros((0, 3), np.int32),
            np.zeros((0, 2), np.float32),
            none,
            none,
        )
        if with_polygons:
            polygons, vertices = (
                column("polygon_data", width=3).reshape(-1, 3),
                column("vertices", np.float32, 2).reshape(-1, 2),
            )
            polygon_ends = ends("polygons_count", len(polygons), np.int64)
            vertex_ends = ends("vertices_count", len(vertices), np.int64)
        ids = column("original_ids") if with_ids else np.zeros(len(names), np.int32)
        if len(ids) != len(names):
            raise misfit("original_ids")
        object_ends = ends("counts", len(labels))
        return Annotations(
            names, ids, object_ends, boxes.reshape(-1, 4), labels, polygon_ends, polygons, vertex_ends, vertices
        )
    except OSError as e:
        raise RuntimeError(f"can't read preprocessed annotations: {e.filename}: {e.strerror}") from None
