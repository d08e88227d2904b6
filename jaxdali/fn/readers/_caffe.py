"""readers.caffe: images and labels of Caffe's LMDB databases."""

from __future__ import annotations

from typing import ClassVar, Unpack

import numpy as np

from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._core.values import Spec
from ..._cpu import RecordFormat
from ..._data.containers import RecordField
from ..._data.files import Paths, as_list
from ._lmdb import LmdbRecords
from ._reader import ContainerArguments, Reader

IMAGE = Spec(np.dtype(np.uint8), 1, None)
RAW_IMAGE = Spec(np.dtype(np.uint8), 3, None, "HWC")


class ReadCaffe(Reader):
    """`readers.caffe`; the fields are its arguments."""

    name: ClassVar[str] = "readers.caffe"

    path: Paths
    image_available: bool
    label_available: bool

    def __post_init__(self):
        super().__post_init__()
        if not (self.image_available or self.label_available):
            raise ArgumentError("image_available and label_available are both False: there is nothing to read")

    @property
    def num_arrays(self) -> int:
        return self.image_available + self.label_available

    def open(self) -> LmdbRecords:
        """See `Reader.open`. A value is a message Datum of Caffe, with an image and a label."""

        def fields(types: np.ndarray, dims: np.ndarray) -> tuple[RecordField, ...]:
            """The outputs that are read: of field 0, the image, and of field 1, the label.

            Args:
              types: ``i32[fields]``, the types of the first record's fields.
              dims: ``i64[fields, 3]``, their shapes; zeros: the field states none.
            """
            # Only an image that is not encoded states its shape.
            image = RecordField("image", 0, RAW_IMAGE if dims[0].any() else IMAGE)
            label = RecordField("label", 1, Spec(np.dtype(np.int32), 1, (1,)))
            return (image,) * self.image_available + (label,) * self.label_available

        return LmdbRecords(as_list(self.path), RecordFormat.DATUM, num_fields=2, fields=fields, storage=self.storage)


class LmdbArguments(ContainerArguments, total=False):
    """DALI's hints to readers of LMDB databases, which are always mapped."""

    dont_use_mmap: bool | None


@operator_function(ReadCaffe)
def caffe(
    *,
    path: Paths,
    image_available: bool = True,
    label_available: bool = True,
    **order: Unpack[LmdbArguments],
) -> DataNode | list[DataNode]:
    """Reads images and labels from Caffe's LMDB databases.

    Args:
      path: paths of the databases (folders with a file ``data.mdb``), which are read one after another in the order of
        their keys.
      image_available: whether the images are read.
      label_available: whether the labels are read.
      storage: ``Storage(max_record_bytes=)`` limits the size of values. The databases themselves must be local. Not in
        DALI.
      metadata: names, each of which adds an output of Python objects after the others, for `python_function` and for
        the lists of a batch (not in DALI). "filename": the path of the database; "key": the key of the record, a `str`;
        "index": the number in the list; "source_info".

    Returns:
      (image, label ``int32[1]``), or only the one that is read. Images are ``uint8[bytes]``, encoded. If the first
      record's image is not encoded, they are ``uint8`` pixels of shape (height, width, channels), in the order of the
      database. Their source_info is the database's path and the record's key. A batch of labels is ``[N, 1]``;
      ``labels[:, 0]`` is ``[N]``.

    Raises:
      ValueError, TypeError: arguments that contradict each other or are out of range.
      RuntimeError: when the pipeline is built, a database can't be read, or the package lmdb (``pip install
        "jaxdali[containers]"``) is missing. A damaged record, and every record of a database that has changed, fails
        when its batch runs.

    Differs from DALI: records without a label are an error instead of an empty tensor, and `random_shuffle` gives
    another order.

    Example:
      >>> jpegs, labels = fn.readers.caffe(path="ilsvrc12_train_lmdb", random_shuffle=True, name="reader")
    """
    ...
