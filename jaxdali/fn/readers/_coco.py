"""readers.coco: images with the annotations of COCO's JSON files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np

from ..._core.building import warn
from ..._core.context import HostContext
from ..._core.errors import ArgumentError, cut
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._core.values import Spec
from ..._data.files import Files, Path, as_list
from ..._data.named_in_data import check_names, normal
from ..._data.records import Records
from ..._data.storage import Store
from ..._data.urls import plain
from ._annotations import Annotations, load_annotations, mask_functions, read_annotations, save_annotations
from ._reader import Reader, StoredArguments

FILE = Spec(np.dtype(np.uint8), 1, None)
BOXES = Spec(np.dtype(np.float32), 2, None, "", (None, 4))
LABELS = Spec(np.dtype(np.int32), 1, None)
POLYGONS = Spec(np.dtype(np.int32), 2, None, "", (None, 3))
VERTICES = Spec(np.dtype(np.float32), 2, None, "", (None, 2))
PIXELS = Spec(np.dtype(np.int32), 3, None, "HWC", (None, None, 1))
IMAGE_ID = Spec(np.dtype(np.int32), 1, (1,))

# Deprecated arguments, and their new names.
_RENAMED = {
    "dump_meta_files": "save_preprocessed_annotations",
    "dump_meta_files_path": "save_preprocessed_annotations_dir",
    "meta_files_path": "preprocessed_annotations",
    "save_img_ids": "image_ids",
}


class _AnnotatedImages(Records):
    """Image files with their annotations.

    Args:
      columns: the annotations, image by image in the order of `files`.

    `_parts` has, for each output after the image, its spec, the column of all images, and the ends of each image's rows
    (None: one row each). `_pixels` is the number of a further output, with pixelwise masks; None if there is none.
    """

    def __init__(self, op: ReadCOCO, columns: Annotations, files: Files):
        """Chooses the columns that are outputs.

        Attributes of `Records` are set here: `specs` of the outputs, `stored`, the files of the images, and `digest`, by
        which checkpoints recognize the list.
        """
        self.files = self.stored = files
        self._columns, self._ratio = columns, op.ratio
        parts: list[tuple[Spec, np.ndarray, np.ndarray | None]] = [
            (BOXES, columns.boxes, columns.ends),
            (LABELS, columns.labels, columns.ends),
        ]
        if op.polygon_masks or op.masks:
            # DALI's older form counts coordinates, two for each vertex.
            polygons = columns.polygons * np.array([1, 2, 2], np.int32) if op.masks else columns.polygons
            parts += [(POLYGONS, polygons, columns.polygon_ends), (VERTICES, columns.vertices, columns.vertex_ends)]
        self._pixels = len(parts) + 1 if op.pixelwise_masks else None
        if op.image_ids:
            parts.append((IMAGE_ID, columns.ids[:, None], None))
        self._parts = parts
        specs = [FILE, *(spec for spec, _, _ in parts)]
        digest = files.digest.copy()
        if self._pixels is not None:
            mask_functions()  # ImportError is raised here, before a batch runs
            specs.insert(self._pixels, PIXELS)
            for x in (columns.polygons, columns.vertices, columns.sizes):
                digest.update(np.ascontiguousarray(x).data)
            digest.update(repr(columns.runs).encode())
        self.specs = tuple(specs)
        for _, values, ends in parts:
            digest.update(np.ascontiguousarray(values).data)
            digest.update(b"" if ends is None else ends.data)
        self.digest = digest.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.files)

    def name(self, i: int) -> str:
        return self.files.name(i)

    def name_of_output(self, i: int, output: int) -> str:
        return "" if output else self.name(i)  # as in DALI

    def facts(self) -> dict[str, Callable[[int], Any]]:
        """See `Records.facts`."""
        return super().facts() | {"image_id": lambda i: int(self._columns.ids[i])}

    def _image_annotations(self, i: int) -> list[np.ndarray]:
        """The outputs of image `i` that come after it."""
        outputs = [
            values[i] if ends is None else self._columns.of_image(i, values, ends) for _, values, ends in self._parts
        ]
        if self._pixels is not None:
            width, height = self._columns.sizes[i].tolist()
            if reason := self.files.store.settings.too_large(4 * width * height):
                raise ValueError(f"its masks have {width:.0f}x{height:.0f} pixels: {reason}")
            try:
                outputs.insert(self._pixels - 1, self._columns.pixels(i, self._ratio))
            except Exception as e:  # pycocotools raises any
                if type(e) is ValueError:
                    raise
                raise ValueError(f"its masks are damaged: {type(e).__name__}: {cut(str(e))}") from e
        return outputs

    def read(self, i: int) -> Sequence[np.ndarray]:
        return (np.frombuffer(self.files.read(i), np.uint8), *self._image_annotations(i))

    @classmethod
    def read_batch(cls, ctx: HostContext, parts: Sequence[tuple[Any, np.ndarray]], threads: Any) -> tuple[Any, ...]:
        """See `Records.read_batch`. Local files are read natively, all at once, unless masks have to be drawn."""
        if parts[0][0]._pixels is not None or any(records.files.remote for records, _ in parts):
            return super().read_batch(ctx, parts, threads)  # calls `read` in threads
        images = Files.read_batch(ctx, [(records.files, index) for records, index in parts])
        rows = [records._image_annotations(i) for records, index in parts for i in index.tolist()]
        return images, *(list(x) if s.shape is None else np.stack(x) for s, x in zip(parts[0][0].specs[1:], zip(*rows)))


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
        """Sets the new names of deprecated arguments, and raises ArgumentError if arguments contradict each other."""
        super().__post_init__()
        for old, new in _RENAMED.items():
            if value := getattr(self, old):
                if getattr(self, new):
                    raise ArgumentError(f"{old} is the deprecated name of {new}: pass one of them")
                warn(f"readers.coco: {old} is deprecated: it is {new} now")
                object.__setattr__(self, new, value)  # operators are frozen dataclasses
        if self.file_root is None:
            raise ArgumentError("file_root must be given: the folder of the images")
        if bool(self.annotations_file) == bool(self.preprocessed_annotations):
            raise ArgumentError("one of annotations_file and preprocessed_annotations must be given")
        if self.preprocessed_annotations:
            # Arguments that have another value than their default, as they would have no effect.
            changed = [
                n
                for n in ("images", "ratio", "ltrb", "skip_empty", "avoid_class_remapping", "pixelwise_masks")
                if getattr(self, n)
            ]
            if not self.include_iscrowd:
                changed.append("include_iscrowd")
            if self.size_threshold != 0.1:
                changed.append("size_threshold")
            if self.save_preprocessed_annotations:
                changed.append("save_preprocessed_annotations")
            if changed:
                raise ArgumentError(
                    f"{changed[0]} can't be used with preprocessed_annotations, which are used as they were saved"
                )
        if self.save_preprocessed_annotations and not self.save_preprocessed_annotations_dir:
            raise ArgumentError("save_preprocessed_annotations=True needs save_preprocessed_annotations_dir")
        if self.polygon_masks + self.masks + self.pixelwise_masks > 1:
            raise ArgumentError(
                "polygon_masks, pixelwise_masks and masks (the older form of the first) can't be given together: pass one of them"
            )

    @property
    def num_arrays(self) -> int:
        # Image, boxes and classes; then polygons and vertices.
        return 3 + 2 * (self.polygon_masks or self.masks) + self.pixelwise_masks + self.image_ids

    def open(self) -> _AnnotatedImages:
        """See `Reader.open`. It also saves the annotations, if that is asked for."""
        store, polygons = Store(self.storage), self.polygon_masks or self.masks
        if self.preprocessed_annotations:
            ids = self.image_ids or "image_id" in self.metadata_names
            columns = load_annotations(self.preprocessed_annotations, store, polygons, ids)
        else:
            assert self.annotations_file is not None
            columns = read_annotations(
                self.annotations_file,
                store,
                images=as_list(self.images) if self.images else None,
                segmentations=polygons or self.pixelwise_masks,
                ratio=self.ratio,
                ltrb=self.ltrb,
                skip_empty=self.skip_empty,
                size_threshold=self.size_threshold,
                include_iscrowd=self.include_iscrowd,
                avoid_class_remapping=self.avoid_class_remapping,
            )
        if not columns.names:
            raise RuntimeError(f"{self.annotations_file or self.preprocessed_annotations}: no image is left to read")
        if self.save_preprocessed_annotations:
            assert self.save_preprocessed_annotations_dir is not None
            save_annotations(self.save_preprocessed_annotations_dir, columns, polygons, self.image_ids)
        assert self.file_root is not None
        try:
            check_names(columns.names, plain(self.file_root), store.settings, absolute=False)
        except ValueError as e:
            raise RuntimeError(f"{self.annotations_file or self.preprocessed_annotations}: image {e}") from None
        store.named_by_data(columns.names)
        return _AnnotatedImages(
            self, columns, Files(self.file_root, [os.fsencode(normal(n)) for n in columns.names], store)
        )


class COCOArguments(StoredArguments, total=False):
    """DALI's hints to `coco`; files are never mapped here."""

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
    **order: Unpack[COCOArguments],
) -> list[DataNode]:
    """Reads images with boxes, classes and polygons from COCO data sets.

    Args:
      file_root: the folder that the files' names in the annotations are relative to.
      annotations_file: the JSON file.
      preprocessed_annotations: a folder that was written with `save_preprocessed_annotations` (here or in DALI),
        instead of the JSON file.
      images: names of files as in the annotations. These are read in this order, as often as they are named. None,
        or an empty list: all images, ordered by id.
      polygon_masks: whether to also return polygons and vertices.
      pixelwise_masks: whether to also return the class of each pixel, drawn from polygons and run-length encodings
        (needs the package pycocotools, ``pip install "jaxdali[coco]"``, and a JSON file).
      masks: like `polygon_masks`, with polygons in DALI's older form, which count coordinates instead of vertices.
      image_ids: whether to also return the images' ids.
      ratio: whether boxes and vertices are relative to the images' sizes.
      ltrb: boxes are (left, top, right, bottom), not (left, top, width, height).
      skip_empty: leave images out that have no object.
      size_threshold: leave objects out whose width or height is below this, in pixels.
      include_iscrowd: whether objects with ``iscrowd`` are included.
      avoid_class_remapping: whether to keep the class numbers of the file. By default, classes are numbered from 1, in
        the order of the file's categories.
      save_preprocessed_annotations: whether to write the annotations of the JSON file to a folder when the pipeline is
        built.
      save_preprocessed_annotations_dir: this folder, which must exist.
      dump_meta_files, dump_meta_files_path, meta_files_path, save_img_ids: deprecated names of
        `save_preprocessed_annotations`, `save_preprocessed_annotations_dir`, `preprocessed_annotations` and
        `image_ids`.
      storage: how URLs are read, a `jaxdali.Storage` (not in DALI). `file_root` and `annotations_file` may be URLs.
      metadata: names, each of which adds an output of Python objects after the others, for `python_function` and for
        the lists of a batch (not in DALI). "filename": the path; "image_id": the id of the image, an int; "index": the
        number in the list; "source_info".

    Returns:
      (image ``uint8[bytes]``, boxes ``float32[objects, 4]``, classes ``int32[objects]``); with `polygon_masks` also
      (polygons ``int32[polygons, 3]``: object, first vertex, and the one behind the last; vertices ``float32[vertices,
      2]``: x, y), with `pixelwise_masks` also (classes ``int32[H, W, 1]``, 0 where there is no object), with
      `image_ids` also (id ``int32[1]``). Their source_info is the file's name in the annotations.

    Raises:
      ValueError, TypeError: arguments that contradict each other or are out of range.
      RuntimeError: when the pipeline is built, annotations can't be read or have another form. An image that can't be
        read fails when its batch runs.

    Differs from DALI: `pixelwise_masks` need a JSON file instead of preprocessed annotations, and `random_shuffle`
    gives another order.

    Example:
      >>> jpegs, boxes, classes = fn.readers.coco(file_root="train2017", annotations_file="instances_train2017.json", ratio=True, ltrb=True)
    """
    ...
