"""Indexing of DataNodes: ``node[1:-1, ::2]``, ``node[0]``, ``node[:, newaxis]``."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import types
from ..._core.building import add
from ..._core.calls import records
from ..._core.context import BuildContext, HostContext, LowerContext
from ..._core.graph import DataNode
from ..._core.operator import HostOperator, Names, Operator, ProgramOperator, Setup
from ..._core.values import Spec, Value
from ..._cpu import Status
from .._families import Part, Window

_FAR = 1 << 40  # static indices are clipped to this, so that arithmetic on them can't overflow


@dataclasses.dataclass(frozen=True)
class NewAxis:
    """Marks a new axis of extent 1 in a subscript: ``node[:, newaxis]``, or ``node[:, newaxis("Z")]`` to name it in the
    layout.
    """

    letter: str = ""  # its name in the layout; "" if it has none

    def __call__(self, name: str) -> NewAxis:
        if not isinstance(name, str) or len(name) != 1:
            raise ValueError(f"newaxis: the name of an axis must be one letter, got {name!r}")
        return NewAxis(name)


newaxis = NewAxis()


@dataclasses.dataclass(frozen=True)
class Operand:
    """An index that is an input: its position among the operator's inputs."""

    place: int


Index = int | Operand | None


@dataclasses.dataclass(frozen=True)
class IntegerIndex:
    """One element of an axis. The axis is dropped."""

    index: int | Operand

    @property
    def indices(self) -> tuple[Index, ...]:
        return (self.index,)


@dataclasses.dataclass(frozen=True)
class SliceIndex:
    """A slice of an axis."""

    start: Index = None
    stop: Index = None
    step: Index = None

    @property
    def indices(self) -> tuple[Index, ...]:
        return self.start, self.stop, self.step

    @property
    def is_whole(self) -> bool:
        return self.start is None and self.stop is None and self.step in (None, 1)


class Subscript(HostOperator, ProgramOperator):
    """Selects elements of each sample by Python's indexing rules."""

    name = "subscript"
    axes: tuple[IntegerIndex | SliceIndex, ...]  # the index of each of the leading axes
    new: tuple[tuple[int, str], ...]  # new axes as (position among the output's axes, letter)

    def origins(self, names: Sequence[Names], data: Any, present: Any) -> Names:
        return names[0]  # the data's, not those of inputs that are indices

    def infer(self, x: Spec, *indices: Spec) -> tuple[Spec, ...]:
        """The extents of sliced axes, without the axes of integers, and with new axes of extent 1."""
        if len(self.axes) > x.ndim:
            raise ValueError(
                f"{len(self.axes)} indices for {x.ndim}-D data: they are of each sample, without an axis for the batch"
            )
        for s in indices:
            if s.dtype.kind not in "iu" or s.ndim != 0:
                raise TypeError(f"an index must be an integer scalar per sample, got {s.ndim}-D samples of {s.dtype}")
        axes = self._all_axes(x.ndim)
        extents: list[int | None] = []
        letters: list[str] = []
        for d, axis in enumerate(axes):
            if isinstance(axis, SliceIndex):
                extents.append(_known_extent(axis, x.extent(d)))
                letters.append(x.layout[d : d + 1])
            elif not isinstance(axis.index, Operand) and (n := x.extent(d)) is not None and not -n <= axis.index < n:
                raise ValueError(f"index {axis.index} is out of range for axis {d} of extent {n}")
        layout = "".join(letters)
        for place, letter in self.new:
            if place > len(extents):
                raise ValueError(f"newaxis at place {place} of {len(extents)}-D data")
            extents.insert(place, 1)
            # The result has no layout if an axis has no letter.
            layout = layout[:place] + letter + layout[place:] if letter and len(layout) == len(extents) - 1 else ""
        if None in extents:
            return (Spec(x.dtype, len(extents), None, layout, dims=tuple(extents)),)
        return (Spec(x.dtype, len(extents), tuple(n for n in extents if n is not None), layout),)

    def bind(self, ctx: BuildContext, x: Spec, *indices: Spec) -> Operator:
        return (
            self
            if ctx.stage == "host" or self._static(x)
            else _PerSampleSubscript(axes=self.axes, new=self.new, called=self.name)
        )

    def is_identity(self, *specs: Spec) -> bool:
        return not self.new and all(isinstance(a, SliceIndex) and a.is_whole for a in self.axes)

    def _all_axes(self, ndim: int) -> tuple[IntegerIndex | SliceIndex, ...]:
        return self.axes + (SliceIndex(),) * (ndim - len(self.axes))

    def _static(self, x: Spec) -> bool:
        """Whether all samples have one shape and one set of indices."""
        return x.shape is not None and not any(isinstance(i, Operand) for a in self.axes for i in a.indices)

    def _key(self) -> tuple[Any, ...]:
        """The subscript in NumPy's form, for static indices."""
        key: list[Any] = []
        for a in self.axes:
            key.append(a.index if isinstance(a, IntegerIndex) else slice(a.start, a.stop, a.step))
        return tuple(key)

    def window(self, ctx: HostContext, x: Value, values: tuple[Value, ...]) -> Part:
        """The window of each sample, by axes of the input. Samples fail for which an index is out of range."""
        axes = self._all_axes(x.spec.ndim)
        window = Part.whole(x.shapes)

        def value_of(i: Index) -> Any:
            """A static index, or the indices of all samples, ``i64[N]``."""
            return values[i.place].dense("an index").astype(np.int64) if isinstance(i, Operand) else i

        for d, axis in enumerate(axes):
            n = x.shapes[:, d]
            if isinstance(axis, IntegerIndex):
                index = np.broadcast_to(value_of(axis.index), n.shape)
                is_valid = (index >= -n) & (index < n)
                for i in np.flatnonzero(~is_valid & ctx.present):
                    ctx.fail(
                        int(i), Status.OUT_OF_RANGE, f"index {index[i]} is out of range for axis {d} of extent {n[i]}"
                    )
                window.start[:, d] = np.where(is_valid, np.where(index < 0, index + n, index), 0)
                window.extent[:, d] = 1
            elif not axis.is_whole:
                stride = np.broadcast_to(1 if axis.step is None else value_of(axis.step), n.shape)
                for i in np.flatnonzero((stride == 0) & ctx.present):
                    ctx.fail(int(i), Status.OUT_OF_RANGE, f"the step of the slice of axis {d} is 0")
                stride = np.where(stride == 0, 1, stride)
                window.start[:, d], window.step[:, d], window.extent[:, d] = _normalized(
                    n, value_of(axis.start), value_of(axis.stop), stride
                )
        return window

    def shapes(self, x: Spec, out: Spec, part: Part) -> np.ndarray:
        """Shapes of the output, ``i64[N, ndim]``."""
        kept_axes = [d for d, a in enumerate(self._all_axes(x.ndim)) if isinstance(a, SliceIndex)]
        shapes = part.extent[:, kept_axes]
        for place, _ in self.new:
            shapes = np.insert(shapes, place, 1, axis=1)
        return shapes

    def run(self, ctx: HostContext, x: Value, *indices: Value) -> tuple[Any, ...]:
        """Slices the whole batch, or each sample by its own window."""
        if self._static(x.spec):
            # The first slice is for all samples.
            data = x.dense()[(slice(None), *self._key())]
            return (data.reshape(len(data), *(ctx.spec.shape or ())),)
        window = self.window(ctx, x, (x, *indices))
        shapes = self.shapes(x.spec, ctx.spec, window)
        out = []
        for i, shape in enumerate(shapes):
            source = x.sample(i)
            # An empty sample has no elements to take, and the index 0 of a failed sample would not exist.
            if min(x.shapes[i], default=1) == 0:
                out.append(np.zeros(shape, x.spec.dtype))
                continue
            key = tuple(
                _slice(int(a), int(s), int(n))
                for a, s, n in zip(window.start[i], window.step[i], window.extent[i], strict=True)
            )
            out.append(source[key].reshape(shape))
        return (np.stack(out) if ctx.spec.shape is not None else out,)

    def lower(self, ctx: LowerContext, x: Any) -> Any:
        y = x[(slice(None), *map(_small, self._key()))]
        return (y.reshape(ctx.B, *(ctx.spec.shape or ())),)


class _PerSampleSubscript(Subscript, Window):
    """A subscript in a program, of samples that differ in shape, or with indices per sample: a strided window."""

    called: str

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.called

    @property
    def reads_region(self) -> bool:
        return True

    def setup(self, ctx: HostContext, x: Value, *indices: Value) -> Setup:
        return self.setup_of(ctx, x, self.window(ctx, x, (x, *indices)))

    def layout(self, image: Spec) -> str:
        return ""  # Names of axes do not matter.

    def lower(self, ctx: LowerContext, x: Any, *indices: Any) -> Any:
        return Window.lower(self, ctx, x, *indices)


def _small(k: Any) -> Any:
    """Clips a slice to 32 bits, which hold every extent: jax before 0.10 refuses larger numbers."""
    if not isinstance(k, slice):
        return k
    return slice(*(None if v is None else min(max(v, -(2**31)), 2**31 - 1) for v in (k.start, k.stop, k.step)))


def _slice(start: int, step: int, extent: int) -> slice:
    """The slice of a window along one axis. The stop of a reversed slice up to index 0 is None, as -1 means the end."""
    stop = start + extent * step
    return slice(start, stop if stop >= 0 else None, step) if extent else slice(0, 0)


def _known_extent(axis: SliceIndex, n: int | None) -> int | None:
    """The extent of a slice of `n` elements. None: it is unknown, because `n` or an index is."""
    if axis.is_whole:
        return n
    if n is None or any(isinstance(i, Operand) for i in axis.indices):
        return None
    return len(range(*slice(axis.start, axis.stop, axis.step).indices(n)))  # pyright: ignore[reportArgumentType]


def _normalized(n: np.ndarray, start: Any, stop: Any, step: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`slice.indices` over arrays: first index, step and number of indices."""
    # The ends that indices are clipped to. A reversed slice stops before index 0, at -1.
    low = np.where(step < 0, -1, 0)
    high = np.where(step < 0, n - 1, n)

    def bound(x: Any, default: np.ndarray) -> np.ndarray:
        return default if x is None else np.clip(np.where(x < 0, x + n, x), low, high)

    first = bound(start, np.where(step < 0, high, low))
    last = bound(stop, np.where(step < 0, low, high))
    # The distance divided by the step, rounded up.
    extent = np.maximum(0, -((first - last) // step))
    return np.where(extent > 0, first, 0), np.where(extent > 1, step, 1), extent  # a step that matters fits in 32 bits


@records("subscript")
def subscript(node: DataNode, key: Any) -> DataNode:
    """``node[key]``, the implementation of `DataNode.__getitem__`.

    As in Python and NumPy: integers (negative ones count from the end) drop their axis, slices may have any step and
    are clipped to the data, and missing trailing indices take everything. Every index may be a whole `types.Constant`,
    or an integer scalar DataNode, one per sample. The differences from NumPy are those of DALI: None takes the whole
    axis like ``:``, `newaxis` makes a new axis, and neither Ellipsis nor lists are supported.

    Args:
      node: any tensor.
      key: the index, or a tuple of indices.

    Returns:
      The selected part. Its layout loses the letters of dropped axes; it is empty if a new axis has no name.

    Raises:
      TypeError: an index has another type.
      NotImplementedError: an Ellipsis.
      ValueError: a step of 0, too many indices, or an index that is out of range for every sample. An index that is out
        of range for one sample is an error of that sample.
    """
    inputs: list[DataNode] = []

    def index(x: Any) -> Any:
        """An index as an int, or as an `Operand`, for which an input is added. Raises TypeError for anything else."""
        if isinstance(x, DataNode):
            inputs.append(x)
            return Operand(len(inputs))  # input 0 is the data
        number: Any = x
        # operator.index takes neither NumPy's bools nor constants.
        if isinstance(x, np.bool_) or (isinstance(x, types.ScalarConstant) and float(x).is_integer()):
            number = int(x)
        try:
            return max(-_FAR, min(_FAR, operator.index(number)))
        except TypeError:
            expected = "an integer, a slice, a whole types.Constant, an integer scalar DataNode or newaxis"
            by_name = (
                "; the outputs of readers.source have names if its items are dictionaries, those of external_source "
                "have numbers, num_outputs=2"
            )
            raise TypeError(f"an index must be {expected}, got {x!r}{by_name if isinstance(x, str) else ''}") from None

    axes: list[IntegerIndex | SliceIndex] = []
    new: list[tuple[int, str]] = []
    place = 0  # of the next axis of the result; integers make none
    for k in key if isinstance(key, tuple) else (key,):
        if k is Ellipsis:
            raise NotImplementedError("Ellipsis in a subscript is not supported, as in DALI: write `:` for each axis")
        if isinstance(k, NewAxis):
            new.append((place, k.letter))
        elif k is None:
            axes.append(SliceIndex())
        elif isinstance(k, slice):
            axis = SliceIndex(*(None if i is None else index(i) for i in (k.start, k.stop, k.step)))
            if axis.step == 0:
                raise ValueError("the step of a slice must not be 0")
            axes.append(axis)
        else:
            axes.append(IntegerIndex(index(k)))
            continue
        place += 1
    if len({letter == "" for _, letter in new}) > 1:
        raise ValueError("name all new axes of a subscript, or none")
    return add(Subscript(axes=tuple(axes), new=tuple(new)), node, *inputs)
