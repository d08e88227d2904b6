"""`Spec`: the properties of a value that are known when a pipeline is built. `Value`: a value in the host pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from .ragged import Packed


@dataclasses.dataclass(frozen=True)
class Spec:
    """Properties of a value that are known when the pipeline is built.

    Attributes:
      dtype: NumPy dtype of the elements.
      ndim: dimensions of one sample (the batch axis is not counted).
      shape: the shape that all samples have; None: the value is ragged.
      layout: one letter per axis, e.g. ``"HWC"``; ``""`` if unknown.
      dims: for a ragged value, the extents that all samples have nevertheless (None: varies); None: nothing is known.
      keys: whether the samples are the data of JAX random keys, ``uint32[2]`` each, which JAX functions get as keys.
    """

    dtype: np.dtype
    ndim: int
    shape: tuple[int, ...] | None
    layout: str = ""
    dims: tuple[int | None, ...] | None = None
    keys: bool = False

    def __post_init__(self):
        object.__setattr__(self, "dtype", np.dtype(self.dtype))
        assert self.shape is None or len(self.shape) == self.ndim, self
        assert self.layout == "" or len(self.layout) == self.ndim, self
        assert self.dims is None or len(self.dims) == self.ndim, self
        if self.keys and (self.dtype != np.uint32 or self.shape != (2,)):  # made from keys, for example by a cast
            object.__setattr__(self, "keys", False)

    @property
    def is_metadata(self) -> bool:
        """Whether the samples are Python objects, which a source gives besides its arrays. They are part of no
        program.
        """
        return self.dtype.hasobject

    def extent(self, axis: int) -> int | None:
        """The extent that all samples have along `axis`; None: it varies or is unknown."""
        if self.shape is not None:
            return self.shape[axis]
        return self.dims[axis] if self.dims is not None else None


# One Python object for each sample: `Value.data` is an array ``[N]`` of objects.
METADATA = Spec(np.dtype(object), 0, ())


def metadata_of(objects: Sequence[Any]) -> np.ndarray:
    """The data of a `METADATA` value, an array ``[N]`` of objects. (np.array would turn lists of equal length into
    further axes.)
    """
    data = np.empty(len(objects), object)
    for i, x in enumerate(objects):
        data[i] = x
    return data


@dataclasses.dataclass
class Value:
    """A value in the host pass, all local shards at once (N = S*B samples).

    Attributes:
      spec: what is known when the pipeline is built.
      shapes: ``i64[N, ndim]``, always known.
      data: ``[N, *shape]`` array (dense), `Packed` (ragged), or None for a value made in a program.
      present: ``bool[N]``, the samples that were made on the host; None: all. The others are unspecified.
    """

    spec: Spec
    shapes: np.ndarray
    data: np.ndarray | Packed | None = None
    present: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.shapes)

    def sample(self, i: int) -> np.ndarray:
        """Sample `i` of a host value, as a view."""
        assert self.data is not None
        return self.data[i]

    def stacked(self) -> np.ndarray | None:
        """A host value as one array ``[N, ...]``, without a copy; None if its samples do not lie like this."""
        return self.data.stacked() if isinstance(self.data, Packed) else self.data

    def dense(self, what: str = "the input", present: np.ndarray | None = None) -> np.ndarray:
        """A host value as one array ``[N, ...]``. Raises ValueError if the samples differ in shape.

        Args:
          what: the value in the words of the message.
          present: ``bool[N]``, the samples that matter. Other samples that the value lacks, or that have another shape,
            get the value of the first present one.
        """
        assert self.data is not None
        if isinstance(self.data, np.ndarray) and self.spec.shape is not None:
            if self.present is None or present is None:
                return self.data
            return self.data.take(np.where(self.present, np.arange(len(self)), present.argmax()), axis=0)
        # For each sample, the index of the sample whose value it gets: an absent one may get that of the first present.
        indices = np.arange(len(self))
        if present is not None and present.any():
            first = present.argmax()
            is_unusable = (self.shapes != self.shapes[first]).any(axis=1) | (
                False if self.present is None else ~self.present
            )
            indices[is_unusable & ~present] = first
        elif present is not None:  # no sample is present, so any value will do
            indices[:] = indices[:1]
        shapes = self.shapes[indices]
        if len(shapes) and (shapes != shapes[0]).any():
            raise ValueError(
                f"{what} must have one shape for all samples of a batch, got {sorted(set(map(tuple, shapes.tolist())))}"
            )
        return (
            self.data[indices]
            if isinstance(self.data, np.ndarray)
            else np.stack([self.data[i] for i in indices.tolist()])
        )

    def vectors(self, what: str, present: np.ndarray, width: int) -> np.ndarray:
        """A host value as `dense` returns it, with the numbers of each sample in a row: ``[N, numbers]``.

        If no sample is present, the numbers don't matter, and there are `width` of them.
        """
        x = self.dense(what, present).reshape(len(self), -1)
        return x if x.shape[1] == width or present.any() else np.zeros((len(x), width), x.dtype)

    def indices(self, present: np.ndarray | None) -> list[int]:
        """The index of each sample; for absent samples, the index of the first present one."""
        if present is None or not present.any():
            return list(range(len(self)))
        return np.where(present, np.arange(len(self)), int(present.argmax())).tolist()

    def of(self, present: np.ndarray) -> Value:
        """The value with only these samples present. In a ragged value the others have no elements."""
        if not isinstance(self.data, Packed):
            return Value(self.spec, self.shapes, self.data, present)
        shapes = np.where(present[:, None], self.shapes, 0)
        return Value(self.spec, shapes, Packed(self.data.data, self.data.offsets, shapes), present)


def narrow(dtype: np.dtype) -> np.dtype:
    """The 32-bit type of a 64-bit one, as in JAX with x64 disabled; other types are returned unchanged."""
    return _NARROW.get(dtype, dtype)


_NARROW = {
    np.dtype(wide): np.dtype(narrow)
    for wide, narrow in (("int64", "int32"), ("uint64", "uint32"), ("float64", "float32"))
}
