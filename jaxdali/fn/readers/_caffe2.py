"""readers.caffe2: tensors of Caffe2's LMDB databases."""

from __future__ import annotations

import enum
from typing import Annotated, Any, ClassVar, Unpack

import numpy as np

from ..._core.building import add
from ..._core.context import HostContext
from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator
from ..._core.operator_function import operator_function
from ..._core.values import Spec, Value
from ..._cpu import RecordFormat, Status
from ..._data.containers import RecordField
from ..._data.files import Paths, as_list
from ._caffe import IMAGE, RAW_IMAGE, LmdbArguments
from ._lmdb import LmdbRecords
from ._reader import Reader

_FLOATS = 2  # the type of a tensor of floats in `RecordBatch.describe`


class LabelType(enum.IntEnum):
    """The form of the labels; the numbers are those of DALI's argument `label_type`."""

    SINGLE = 0  # one class index
    SPARSE = 1  # class indices
    DENSE = 2  # one number per class
    WEIGHTED = 3  # class indices, and a weight each
    NONE = 4


class ReadCaffe2(Reader):
    """`readers.caffe2`; the fields are its arguments except `num_labels`. Sparse labels stay as in the file."""

    name: ClassVar[str] = "readers.caffe2"

    path: Paths
    label_type: LabelType
    image_available: bool
    additional_inputs: int
    bbox: bool

    @property
    def num_arrays(self) -> int:
        labels = {LabelType.NONE: 0, LabelType.WEIGHTED: 2}.get(self.label_type, 1)
        return self.image_available + labels + self.additional_inputs + self.bbox

    def open(self) -> LmdbRecords:
        """See `Reader.open`. The label type and the other arguments say which tensors a record has."""

        def fields(types: np.ndarray, dims: np.ndarray) -> tuple[RecordField, ...]:
            """The outputs; the tensors of a record come in their order.

            Args:
              types: ``i32[tensors]``, the types of the first record's tensors.
              dims: ``i64[tensors, 3]``, their shapes; zeros: the tensor states none.
            """
            outputs: list[RecordField] = []

            def add_field(name: str, spec: Spec | None = None):
                """Adds the next tensor; None: a vector of its type."""
                k = len(outputs)
                dtype = np.dtype(np.float32 if types[k] == _FLOATS else np.int32)
                outputs.append(RecordField(name, k, spec or Spec(dtype, 1, None)))

            # Only an image that is not encoded states its shape.
            if self.image_available:
                add_field("image", RAW_IMAGE if dims[0].any() else IMAGE)
            if self.label_type == LabelType.SINGLE:
                add_field("label", Spec(np.dtype(np.float32 if types[len(outputs)] == _FLOATS else np.int32), 1, (1,)))
            elif self.label_type != LabelType.NONE:
                add_field("label")
            if self.label_type == LabelType.WEIGHTED:
                add_field("label's weights", Spec(np.dtype(np.float32), 1, None))
            for i in range(self.additional_inputs):
                add_field(f"additional tensor {i}")
            if self.bbox:
                add_field("bounding box", Spec(np.dtype(np.int32), 1, None))
            return tuple(outputs)

        return LmdbRecords(
            as_list(self.path),
            RecordFormat.TENSOR_PROTOS,
            num_fields=self.num_arrays,
            fields=fields,
            storage=self.storage,
        )


class DenseLabels(HostOperator):
    """Turns class indices, with weights if there are any, into a vector with one element per class."""

    name: ClassVar[str] = "readers.caffe2"

    num_labels: int

    def infer(self, classes: Spec, *weights: Spec) -> tuple[Spec, ...]:
        return (Spec(np.dtype(np.float32 if weights else np.int32), 1, (self.num_labels,)),)

    def run(self, ctx: HostContext, classes: Value, *weights: Value) -> tuple[Any, ...]:
        """See `HostOperator.run`. `classes` are the indices of the classes that apply to each sample. `weights` is one
        input, or none: then each class has the weight 1.
        """
        dense = np.zeros((ctx.N, self.num_labels), ctx.spec.dtype)
        for i in range(ctx.N):
            active = classes.sample(i)
            if active.size and not (0 <= active.min() and active.max() < self.num_labels):
                ctx.fail(
                    i,
                    Status.RECORD,
                    f"its label has the class {active.max() if active.min() >= 0 else active.min()}, but num_labels is {self.num_labels}",
                )
            elif weights and weights[0].sample(i).size != active.size:
                ctx.fail(
                    i, Status.RECORD, f"its label has {active.size} classes and {weights[0].sample(i).size} weights"
                )
            else:
                dense[i, active] = weights[0].sample(i) if weights else 1
        return (dense,)


@operator_function("readers.caffe2")
def caffe2(
    *,
    path: Paths,
    label_type: Annotated[int, Range(0, 4)] = 0,
    num_labels: Annotated[int, Range(1)] = 1,
    image_available: bool = True,
    additional_inputs: Annotated[int, Range(0)] = 0,
    bbox: bool = False,
    **order: Unpack[LmdbArguments],
) -> DataNode | list[DataNode]:
    """Reads images, labels and other tensors from Caffe2's LMDB databases.

    Args:
      path: paths of the databases (folders with a file ``data.mdb``), which are read one after another in the order of
        their keys.
      label_type: 0: one class. 1: the classes that apply, returned as a vector of ones and zeros. 2: a vector, returned
        unchanged. 3: the classes that apply and their weights, returned as a vector of weights. 4: no labels.
      num_labels: number of classes, the length of that vector, for the types 1 and 3.
      image_available: whether records begin with an image.
      additional_inputs: number of tensors of ``int32`` or ``float32`` that follow image and label.
      bbox: whether records end with a bounding box.
      storage: ``Storage(max_record_bytes=)`` limits the size of values. The databases themselves must be local. Not in
        DALI.
      metadata: names, each of which adds an output of Python objects after the others, for `python_function` and for
        the lists of a batch (not in DALI). "filename": the path of the database; "key": the key of the record, a `str`;
        "index": the number in the list; "source_info".

    Returns:
      Image, label, additional tensors and bounding box (``int32[4]``), as far as they are read. Images are
      ``uint8[bytes]``, encoded; if the first record's image is not encoded, they are ``uint8`` pixels of shape (height,
      width, channels). A class is ``int32[1]`` or ``float32[1]``, as in the first record; other tensors are vectors.
      Their source_info is the database's path and the record's key. A batch of classes is ``[N, 1]``; ``labels[:, 0]``
      is ``[N]``.

    Raises:
      ValueError, TypeError: arguments that contradict each other or are out of range.
      RuntimeError: when the pipeline is built, a database can't be read, or the package lmdb (``pip install
        "jaxdali[containers]"``) is missing. A damaged record, and every record of a database that has changed, fails
        when its batch runs.

    Differs from DALI: the label types 1 and 3 work, tensors of 64-bit integers are read as ``int32``, and
    `random_shuffle` gives another order.

    Example:
      >>> jpegs, labels = fn.readers.caffe2(path="c2lmdb", random_shuffle=True, name="reader")
    """
    op = ReadCaffe2(
        path=path,
        label_type=LabelType(label_type),
        image_available=image_available,
        additional_inputs=additional_inputs,
        bbox=bbox,
        **ReadCaffe2.shared(order),
    )
    if not op.num_arrays:
        raise ArgumentError("image_available=False and label_type=4: there is nothing to read")
    nodes = add(op, device="cpu", name=order.get("name"))
    outputs = list(nodes) if op.num_outputs > 1 else [nodes]
    if op.label_type in (LabelType.SPARSE, LabelType.WEIGHTED):
        first, end = int(image_available), int(image_available) + (1 if op.label_type == LabelType.SPARSE else 2)
        # The labels' outputs, one or two, become one vector.
        outputs[first:end] = [add(DenseLabels(num_labels=num_labels), *outputs[first:end])]
    return outputs if len(outputs) > 1 else outputs[0]
