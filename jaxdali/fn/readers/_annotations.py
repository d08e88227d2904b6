"""Annotations in COCO's form, as columns: from JSON files, and from files that a reader saved before."""

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

from ..._core.errors import cut, quoted, unreadable
from ..._data.files import utf8
from ..._data.storage import Store
from ..._data.urls import Path, join

# pycocotools takes up to 80 bytes and 0.2 us for each pixel along the outline of a polygon, and does not check whether
# it gets the memory. So the outlines of an image may be this long and 4 times as long as it has pixels; but not more
# than the maximum, as pycocotools has 5 times the coordinates, and their differences, in 32 bits.
_MIN_OUTLINES, _MAX_OUTLINES = 1 << 22, 1 << 27


@dataclasses.dataclass
class Annotations:
    """The annotations of all images, one image after another.

    Attributes:
      names: names of the files.
      ids: ids of the images.
      ends, polygon_ends, vertex_ends: ``i64[images]``, the ends of each image's objects, polygons and vertices.
      boxes: ``f32[objects, 4]``.
      labels: ``i32[objects]``.
      polygons: ``i32[polygons, 3]``: object, first vertex, and the vertex after the last.
      vertices: ``f32[vertices, 2]``.
      sizes: ``f32[images, 2]``, width and height.
      runs: (object, run-length encoding in COCO's form) for images that have some. Saved annotations have neither
        `sizes` nor `runs`.
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

    def of_image(self, i: int, values: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """The rows of image `i` in a column, given the column's ends."""
        return values[ends[i - 1] if i else 0 : ends[i]]

    def pixels(self, i: int, ratio: bool) -> np.ndarray:
        """``i32[H, W, 1]``: the class of each pixel of image `i`, as in DALI; 0 is no class.

        Where classes overlap, the highest one is taken.

        Args:
          ratio: whether vertices are relative to the size of the image.
        """
        masks = mask_functions()
        width, height = map(int, self.sizes[i])
        scale = self.sizes[i] if ratio else np.float32(1)
        classes, polygons = self.of_image(i, self.labels, self.ends), self.of_image(i, self.polygons, self.polygon_ends)
        vertices = (self.of_image(i, self.vertices, self.vertex_ends) * scale).astype(np.float64)
        length, limit = _outline_length(polygons, vertices), min(_MIN_OUTLINES + 4 * width * height, _MAX_OUTLINES)
        if not length <= limit:  # it may be NaN
            raise ValueError(
                f"the outlines of its masks are {length:.3g} pixels long, and may be {limit:.3g}: "
                "maybe a vertex is no finite number, or lies far outside of the image"
            )
        drawn: dict[int, list[Any]] = {}
        for k, first, last in polygons.tolist():
            drawn.setdefault(int(classes[k]), []).append(vertices[first:last].ravel().tolist())
        # A class has its polygons, or else its last run-length encoding. Counts that are a list are not compressed yet.
        encoded = {
            int(classes[k]): x if isinstance(x["counts"], (str, bytes)) else masks.frPyObjects(x, *x["size"])
            for k, x in self.runs.get(i, ())
        }
        encoded |= {c: masks.merge(masks.frPyObjects(polygons, height, width)) for c, polygons in drawn.items()}
        # Run-length encodings go down the columns, so the pixels are flat in this order until the end.
        pixel_classes, last_change = np.zeros(width * height, np.int32), 0
        for c in sorted(encoded):
            if list(encoded[c]["size"]) != [height, width]:
                size = quoted(encoded[c]["size"])
                raise ValueError(f"its masks are for images of size {size}, not {[height, width]}")
            mask = masks.decode(encoded[c]).ravel(order="F").astype(bool)
            changes = np.flatnonzero(mask[1:] != mask[:-1])
            last_change = max(last_change, int(changes[-1]) + 1) if len(changes) else last_change
            if pixel_classes[-1]:  # DALI does not overwrite the class of the last run of pixels
                mask[last_change:] = False
            pixel_classes[mask] = c
        return pixel_classes.reshape(width, height).T[:, :, None]


def _outline_length(polygons: np.ndarray, vertices: np.ndarray) -> float:
    """The length of all outlines of an image as pycocotools draws them, or the largest coordinate if that is more, in
    pixels. It is NaN if a vertex is.

    Args:
      polygons: as in `Annotations`.
      vertices: of the image, in pixels.
    """
    if not len(vertices):
        return 0.0
    _, first, last = polygons[polygons[:, 1] < polygons[:, 2]].T
    following = np.arange(1, len(vertices) + 1)
    following[last - 1] = first
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        length = np.abs(vertices - vertices[following]).max(axis=1).sum()
    return float(np.maximum(length, np.abs(vertices).max()))


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
      segmentations: whether to read polygons and runs. The other arguments are the reader's.

    Raises:
      RuntimeError: the file can't be read, or has another form.
    """
    try:
        images_json, objects, categories, getter = _parse(utf8(store.read(store.named(path))), segmentations)
        ids, names, sizes = _images(images_json, getter)
        boxes = _boxes(list(map(getter("bbox"), objects)))
        image_ids = np.array(list(map(getter("image_id"), objects)), np.int64)
        # The number of each object's image; len(ids), for which a 0 is appended, if its id is above all.
        image = np.searchsorted(ids, image_ids)
        # `boxes` are (left, top, width, height). Objects whose image the file does not list are left out, too.
        is_kept = (
            (boxes[:, 2:].min(axis=1) >= size_threshold) & (np.append(ids, 0)[image] == image_ids) & (image < len(ids))
        )
        if not include_iscrowd:
            is_kept &= ~np.array(list(map(getter("iscrowd"), objects)), bool)
        labels = np.array(list(map(getter("category_id"), objects)), np.int64)
        if not avoid_class_remapping:
            labels = _remap_labels(labels, is_kept, list(map(getter("id"), categories)))

        # From here on, `order` are the numbers of the returned images, and `index` those of the returned objects.
        order = np.arange(len(ids))
        if images is not None:
            places = {name: i for i, name in enumerate(names)}
            order = np.array([places[n] for n in images if n in places], np.int64)
        index = np.flatnonzero(is_kept)
        index = index[np.argsort(image[index], kind="stable")]  # numbers of the objects, image by image
        begins = np.searchsorted(image[index], np.arange(len(ids) + 1))
        counts = np.diff(begins)[order]
        if skip_empty:
            order, counts = order[counts > 0], counts[counts > 0]
        ends = np.cumsum(counts)
        place_in_image = np.arange(counts.sum()) - np.repeat(ends - counts, counts)  # of each object
        # An image that is named twice in `images` has its objects twice.
        index = index[np.repeat(begins[order], counts) + place_in_image]
        rows, scales = boxes[index].astype(np.float32), np.repeat(sizes[order], counts, axis=0)
        if ltrb:
            rows[:, 2:] += rows[:, :2]
        if ratio:
            rows /= np.tile(scales, 2)
        get_outline = getter("segmentation")
        outlines = [get_outline(objects[k]) for k in index.tolist()] if segmentations else []
        runs: dict[int, list[tuple[int, Any]]] = {}  # by image: (object in it, encoding); an outline of runs is a dict
        for k in [k for k, x in enumerate(outlines) if isinstance(x, dict)]:
            runs.setdefault(int(np.searchsorted(ends, k, "right")), []).append((int(place_in_image[k]), outlines[k]))
        return Annotations(
            names=[names[i] for i in order.tolist()],
            ids=_int32(ids[order], "id of an image"),
            ends=ends,
            boxes=rows,
            labels=_int32(labels[index], "category"),
            **_polygons(outlines, place_in_image, ends, scales if ratio else None),
            sizes=sizes[order],
            runs=runs,
        )
    except OSError as e:
        raise RuntimeError(f"can't read annotations_file {unreadable(path, e)}") from e.__cause__
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as e:
        raise RuntimeError(
            f"{os.fspath(path)} does not have the form of COCO's annotations: {type(e).__name__}: {cut(str(e))}"
        ) from e


def _parse(
    content: bytes, segmentations: bool
) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any], Callable[[str], Callable[[Any], Any]]]:
    """Parses a file. Returns its images, annotations and categories, and a function that makes getters of fields.

    The getter of a field's name takes one of these objects, and returns the field.
    """
    try:
        import msgspec
    except ImportError:
        pass
    else:
        # On an error, the parser below reports it, or reads a number of a type that msgspec refuses.
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
    """A parser that makes the needed fields only, which takes a sixth of the time of `json`.

    Args:
      segmentations: whether annotations have the field "segmentation", polygons or runs.
    """
    import msgspec

    # With gc=False the garbage collector does not track the objects, which saves time and memory. Only an annotation's
    # segmentation has lists or dicts.
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
    images: Sequence[Any], getter: Callable[[str], Callable[[Any], Any]]
) -> tuple[np.ndarray, list[str], np.ndarray]:
    """Sorted ids, names and sizes of images. If several images have the same id, the last one is taken."""
    ids = np.array(list(map(getter("id"), images)), np.int64)
    sizes = np.array([list(map(getter(side), images)) for side in ("width", "height")], np.float32).T
    # The first of equal ids in the reversed list is the last image.
    ids, last = np.unique(ids[::-1], return_index=True)
    index = len(images) - 1 - last
    names = list(map(getter("file_name"), map(images.__getitem__, index.tolist())))
    if not set(map(type, names)) <= {str, int, float}:
        name = next(n for n in names if not isinstance(n, (str, int, float)))
        raise ValueError(f"the file_name of an image is {quoted(name)}")
    return ids, list(map(str, names)), sizes[index]


def _boxes(boxes: Sequence[Any]) -> np.ndarray:
    """Boxes as ``f64[objects, 4]``. Raises ValueError if one has another form."""
    sizes = np.fromiter(map(len, boxes), np.int64, len(boxes))
    if len(wrong := np.flatnonzero(sizes != 4)):
        raise ValueError(f"the bbox of annotation {wrong[0]} has {sizes[wrong[0]]} numbers, not 4")
    box_array = np.fromiter(chain.from_iterable(boxes), np.float64, 4 * len(boxes)).reshape(-1, 4)
    if np.isnan(box_array).any():  # NumPy makes NaN of None
        raise ValueError(
            f"the bbox of annotation {np.isnan(box_array).any(axis=1).argmax()} has elements that are not numbers"
        )
    return box_array


def _remap_labels(labels: np.ndarray, is_kept: np.ndarray, categories: Sequence[Any]) -> np.ndarray:
    """Classes numbered from 1, in the order of the categories.

    Args:
      labels: the ids of the objects' categories.
      is_kept: whether each object is returned.
      categories: the ids of all categories.

    Raises:
      ValueError: a kept object has none of these.
    """
    classes = {int(x): k for k, x in enumerate(categories, 1)}
    values, inverse = np.unique(labels, return_inverse=True)
    remapped = np.array([classes.get(x, 0) for x in values.tolist()], np.int64)[inverse]
    if len(unknown := np.flatnonzero(is_kept & (remapped == 0))):
        raise ValueError(
            f"annotation {unknown[0]} is of category {labels[unknown[0]]}, which is not among the categories"
        )
    return remapped


def _int32(x: np.ndarray, name: str) -> np.ndarray:
    """Converts to int32. Raises ValueError, with the name, if a number does not fit."""
    if len(x) and not (-(2**31) <= x.min() and x.max() < 2**31):
        raise ValueError(f"the {name} must fit 32 bits, got {x.min()} .. {x.max()}")
    return x.astype(np.int32)


def _polygons(
    outlines: Sequence[Any], place: np.ndarray, ends: np.ndarray, scales: np.ndarray | None
) -> dict[str, np.ndarray]:
    """The polygons and vertices of objects, as columns of `Annotations`.

    Args:
      outlines: for each object, the file's list of polygons, or something else.
      place: the number of each object in its image.
      ends: the ends of the objects of each image.
      scales: ``f32[objects, 2]``, divisors of the vertices.
    """
    counts = np.fromiter((len(x) if isinstance(x, list) else 0 for x in outlines), np.int64, len(outlines))
    polygons = [p for x in outlines if isinstance(x, list) for p in x]
    vertex_counts, remainders = np.divmod(np.fromiter(map(len, polygons), np.int64, len(polygons)), 2)
    if remainders.any():
        raise ValueError("a polygon has an odd number of coordinates")
    vertices = np.fromiter(chain.from_iterable(polygons), np.float32, 2 * int(vertex_counts.sum())).reshape(-1, 2)
    object_of_polygon = np.repeat(np.arange(len(outlines)), counts)
    if scales is not None:
        vertices /= np.repeat(scales[object_of_polygon], vertex_counts, axis=0)
    polygon_vertex_ends, polygon_ends = np.cumsum(vertex_counts), np.searchsorted(object_of_polygon, ends)
    vertex_ends = np.append(0, polygon_vertex_ends)[polygon_ends]
    # For each polygon, the first vertex of its image: vertices are numbered within the image.
    image_begin = np.append(0, vertex_ends)[np.searchsorted(ends, object_of_polygon, "right")]
    return {
        "polygon_ends": polygon_ends,
        "polygons": np.stack(
            [
                place[object_of_polygon],
                polygon_vertex_ends - vertex_counts - image_begin,
                polygon_vertex_ends - image_begin,
            ],
            axis=1,
        ).astype(np.int32),
        "vertex_ends": vertex_ends,
        "vertices": vertices,
    }


# Preprocessed annotations have a file for each column: the number of its rows as i32, followed by the rows.
_INT64_COLUMNS = {"polygon_offset", "polygons_count", "vertices_offset", "vertices_count"}


def save_annotations(folder: Path, x: Annotations, polygons: bool, ids: bool):
    """Writes annotations to a folder, as DALI does.

    Args:
      polygons, ids: whether to write these, too.

    Raises:
      RuntimeError: writing failed.
    """
    counts = np.diff(x.ends, prepend=0)
    # By the name of the file: the column, and the number of rows that is written before it. As in DALI, a box counts as
    # four rows.
    columns: dict[str, tuple[np.ndarray, int]] = {
        "offsets": (x.ends - counts, len(x.ends)),
        "boxes": (x.boxes, x.boxes.size),
        "labels": (x.labels, len(x.labels)),
        "counts": (counts, len(counts)),
    }
    if polygons:
        polygon_counts, vertex_counts = np.diff(x.polygon_ends, prepend=0), np.diff(x.vertex_ends, prepend=0)
        columns |= {
            "polygon_data": (x.polygons, len(x.polygons)),
            "polygon_offset": (x.polygon_ends - polygon_counts, len(polygon_counts)),
            "polygons_count": (polygon_counts, len(polygon_counts)),
            "vertices": (x.vertices, len(x.vertices)),
            "vertices_offset": (x.vertex_ends - vertex_counts, len(vertex_counts)),
            "vertices_count": (vertex_counts, len(vertex_counts)),
        }
    if ids:
        columns["original_ids"] = x.ids, len(x.ids)
    try:
        for name, (values, count) in columns.items():
            dtype = np.float32 if values.dtype == np.float32 else np.int64 if name in _INT64_COLUMNS else np.int32
            # The form of DALI's files: the number of rows as int32, then the values.
            with open(os.path.join(folder, f"{name}.dat"), "wb") as f:
                f.write(np.int32(count).tobytes() + values.astype(dtype).tobytes())
        with open(os.path.join(folder, "filenames.dat"), "w", encoding="utf-8", errors="surrogateescape") as f:
            f.write("".join(f"{n}\n" for n in x.names))
    except OSError as e:
        raise RuntimeError(f"can't save preprocessed annotations: {e.filename}: {e.strerror}") from None


def load_annotations(folder: Path, store: Store, with_polygons: bool, with_ids: bool) -> Annotations:
    """Reads saved annotations. Polygons and vertices that are not read are empty, and ids are 0.

    Raises:
      RuntimeError: they can't be read, or their files belong to different annotations.
    """

    def mismatch(name: str) -> RuntimeError:
        return RuntimeError(
            f"{os.path.join(folder, name)}.dat does not match the other files: they belong to different annotations"
        )

    def read_column(name: str, dtype: type = np.int32, width: int = 1) -> np.ndarray:
        """The numbers of a column with `width` numbers in each of its rows."""
        path = join(store.named(folder), f"{name}.dat")
        content = np.frombuffer(store.read(path), np.uint8)
        rows = int(content[:4].view(np.int32)[0]) if len(content) >= 4 else -1
        if rows < 0 or len(content) - 4 != rows * width * np.dtype(dtype).itemsize:
            raise RuntimeError(f"{path} has {len(content)} bytes, which differs from what it declares: it is damaged")
        return content[4:].view(dtype)

    def read_ends(name: str, total: int, dtype: type = np.int32) -> np.ndarray:
        """The ends of each image's rows, from a column of counts whose sum must be `total`."""
        ends = np.cumsum(read_column(name, dtype), dtype=np.int64)
        if len(ends) != len(names) or (len(ends) and (ends[-1] != total or (np.diff(ends, prepend=0) < 0).any())):
            raise mismatch(name)
        return ends

    try:
        names = store.read(join(store.named(folder), "filenames.dat")).decode("utf-8", "surrogateescape").splitlines()
        boxes, labels = read_column("boxes", np.float32), read_column("labels")
        if len(boxes) != 4 * len(labels):
            raise mismatch("boxes")
        no_ends = np.zeros(len(names), np.int64)
        polygons, vertices, polygon_ends, vertex_ends = (
            np.zeros((0, 3), np.int32),
            np.zeros((0, 2), np.float32),
            no_ends,
            no_ends,
        )
        if with_polygons:
            polygons, vertices = (
                read_column("polygon_data", width=3).reshape(-1, 3),
                read_column("vertices", np.float32, 2).reshape(-1, 2),
            )
            polygon_ends = read_ends("polygons_count", len(polygons), np.int64)
            vertex_ends = read_ends("vertices_count", len(vertices), np.int64)
        ids = read_column("original_ids") if with_ids else np.zeros(len(names), np.int32)
        if len(ids) != len(names):
            raise mismatch("original_ids")
        object_ends = read_ends("counts", len(labels))
        return Annotations(
            names, ids, object_ends, boxes.reshape(-1, 4), labels, polygon_ends, polygons, vertex_ends, vertices
        )
    except OSError as e:
        raise RuntimeError(f"can't read preprocessed annotations: {e.filename}: {e.strerror}") from None
