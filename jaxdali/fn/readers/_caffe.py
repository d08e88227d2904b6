"""readers.caffe: images and labels of Caffe's LMDB databases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Unpack

import numpy as np

from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._core.values import Spec
from ..._cpu import RecordFormat
from ..._data.containers import Field
from ..._data.files import Paths, as_list
from ..._data.listed import OnError, Reader, ReaderHints
from ..._data.storage import Storage
from ._lmdb import LmdbRecords

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
            raise ArgumentError("neither image_available nor label_available: nothing is to be read")

    @property
    def num_outputs(self) -> int:
        return self.image_available + self.label_available

    def open(self) -> LmdbRecords:
        def fields(types: np.ndarray, dims: np.ndarray) -> tuple[Field, ...]:
            image = Field("image", 0, RAW_IMAGE if dims[0].any() else IMAGE)
            label = Field("label", 1, Spec(np.dtype(np.int32), 1, (1,)))
            return (image,) * self.image_available + (label,) * self.label_available

        return LmdbRecords(as_list(self.path), RecordFormat.DATUM, 2, fields, self.storage)


class LmdbHints(ReaderHints, total=False):
    """Those of readers of LMDB databases, which are always mapped."""

    dont_use_mmap: bool | None


@operator_function(ReadCaffe)
def caffe(
    *,
    path: Paths,
    image_available: bool = True,
    label_available: bool = True,
    weights: float | Sequence[float] | None = None,
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
    **hints: Unpack[LmdbHints],
) -> DataNode | list[DataNode]:
    """Reads images and labels from Caffe's LMDB databases.

    Args:
      path: of the databases, folders with a file ``data.mdb``, which are read one after another in the order of their keys.
      image_available: whether the images are read.
      label_available: whether the labels are read.
      weights: how often the databases' records come, in proportion, e.g. ``(0.7, 0.3)``: one number for each database. They are mixed
        evenly, and an epoch has each record at least once: those of a database that is too small for its weight come again.
      random_shuffle: shuffle the list before it is split into shards, and each epoch of a shard in a new order.
      initial_fill: places of the buffer that this order is drawn with: small ones shuffle only locally, 1 not at all.
      shuffle_after_epoch: shuffle the order of the databases anew in each epoch, alike for all shards, and read the same part of the
        list. The records of each stay together, in their order; with `weights` all records are shuffled.
      shuffle_after_epoch_seed: another seed for this than the fixed one.
      shuffle: "global": the order of each epoch is a new permutation of the whole list, by `seed`, which must be one for all shards.
        Beyond DALI.
      num_shards: parts that the list is split into: part i of S begins at entry ``floor(i*N/S)``.
      shard_id: the part to read, ``0 .. num_shards - 1``.
      stick_to_shard: read this part in every epoch, not the next one.
      pad_last_batch: repeat a shard's last sample until all shards are equally long and the last batch is full.
      storage: ``Storage(max_record_bytes=)`` bounds the values; the databases themselves must be local. Beyond DALI.
      seed: seed of `random_shuffle`; negative: the pipeline's.
      on_error: what becomes of a record that can't be read: "raise": its batch fails. "replace": a later one of the list takes its place.
        "skip": its batch goes without it. The last two are reported by `Pipeline.bad_samples`. Beyond DALI.
      device: "cpu" or None.
      name: of the reader, for ``reader_name`` and error messages.

    Returns:
      (image, label ``int32[1]``), or the one that is read. Images are ``uint8[bytes]``, encoded, or ``uint8`` pixels of shape (height,
      width, channels), in the order in which the database has them, where the first record's are not encoded. Their source_info is the
      database's path and the record's key.

    Raises:
      ValueError, TypeError: arguments that contradict each other or are out of range.
      RuntimeError: at build, a database that can't be read, or the package lmdb (``pip install "jaxdali[containers]"``) is not there. A
        damaged record, and all of a database that has changed, fail when their batch runs.

    Unlike in DALI, records without a label are an error, not an empty tensor, and the order of `random_shuffle` is not DALI's own.

    Example:
      >>> jpegs, labels = fn.readers.caffe(path="ilsvrc12_train_lmdb", random_shuffle=True, name="reader")
    """
    ...
