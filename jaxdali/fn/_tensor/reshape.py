"""reshape: other shapes for the same elements."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, Unpack

import numpy as np

from ..._core.arguments import Arguments
from ..._core.building import add, is_node
from ..._core.context import BuildContext, HostContext
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import Operator
from ..._core.operator_function import Hints, Input, OneOrMore, PerSample, operator_function
from ..._core.values import Spec, Value
from .reshaped import Reshaped, same_volume


class Reshape(Reshaped):
    """Gives samples a new shape, or one relative to the input's. A negative extent is inferred."""

    name = "reshape"
    src_dims: tuple[int, ...] | None  # for each axis of the output, the input's axis that it refers to; -1: none
    layout: str | None  # None: the input's, if the number of axes stays
    dtype: np.dtype | None = None  # None: the input's

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        return dataclasses.replace(self, args=self.args.measure(ctx, specs, "shape", "rel_shape"))

    def _sources(self, ndim: int, rank: int) -> tuple[int, ...]:
        """The axis of the input that each axis of the output refers to. -1: none."""
        if self.src_dims is not None:
            return self.src_dims
        return tuple(d if d < ndim else -1 for d in range(rank))

    def _rank(self, specs: tuple[Spec, ...]) -> int:
        """The number of axes of the output."""
        for name in ("shape", "rel_shape"):
            if name in self.args:
                rank = self.args.width(name, specs)
                if rank is None:
                    raise ArgumentError(f"argument {name} must have the same number of elements in all samples")
                return rank
        return specs[0].ndim if self.src_dims is None else len(self.src_dims)

    def infer(self, x: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """Checks the arguments against the input, and infers the extents that are the same in all samples."""
        rank = self._rank((x, *arguments))
        dtype = x.dtype if self.dtype is None else self.dtype
        if self.layout and len(self.layout) != rank:
            raise ArgumentError(f"the layout {self.layout!r} does not fit {rank} dimensions")
        for d in self.src_dims or ():
            if d >= x.ndim:
                raise ArgumentError(f"src_dims has the axis {d}, but the input has {x.ndim} dimensions")
        if "rel_shape" in self.args and self.src_dims is None and rank > x.ndim and self.args.is_static("rel_shape"):
            if any(r >= 0 for r in self.args.get("rel_shape")[x.ndim :]):
                raise ArgumentError(
                    f"rel_shape has {rank} elements for {x.ndim} dimensions; src_dims says which of these they refer to"
                )
        if "rel_shape" in self.args and self.src_dims is not None and rank != len(self.src_dims):
            raise ArgumentError(f"rel_shape has {rank} elements, src_dims {len(self.src_dims)}")
        dims = self._static_extents(x, rank)
        layout = x.layout if self.layout is None and rank == x.ndim else self.layout or ""
        if all(d is not None for d in dims):
            return (Spec(dtype, rank, tuple(int(d) for d in dims if d is not None), layout),)
        return (Spec(dtype, rank, None, layout, dims),)

    def _static_extents(self, x: Spec, rank: int) -> tuple[int | None, ...]:
        """The extents of the output. None: unknown, or not the same in all samples."""
        if any(not self.args.is_static(n) for n in ("shape", "rel_shape")):
            return (None,) * rank
        # The input's extent for each axis of the output. With `shape` they are not used, and `src_dims` may be longer.
        source = [1 if d < 0 else x.extent(d) for d in self._sources(x.ndim, rank)][:rank]
        extents = self.args.get("shape")
        if extents is None and "rel_shape" in self.args:
            extents = [
                -1 if r < 0 else None if s is None else _scaled(s, r)
                for s, r in zip(source, self.args.get("rel_shape"))
            ]
        elif extents is None:
            itemsizes = self._itemsizes(x)
            if itemsizes is None or not source:
                return tuple(source)
            # The bytes of the last axis become elements of another size.
            old_size, new_size = itemsizes
            *outer, last = source
            return (*outer, None if last is None else last * old_size // new_size)
        # A negative extent is the volume divided by the other extents.
        inferred = [i for i, n in enumerate(extents) if n is not None and n < 0]
        if inferred and x.shape is not None and None not in extents:
            volume = int(np.prod(x.shape)) * x.dtype.itemsize // (self.dtype or x.dtype).itemsize
            known_volume = int(np.prod([n for n in extents if n is not None and n >= 0]))
            extents = [volume // known_volume if i in inferred and known_volume else n for i, n in enumerate(extents)]
        return tuple(None if n is None or n < 0 else int(n) for n in extents)

    def _itemsizes(self, x: Spec) -> tuple[int, int] | None:
        """Bytes of an element of the input and of the output. None: they are the same."""
        if self.dtype is None or self.dtype.itemsize == x.dtype.itemsize:
            return None
        return x.dtype.itemsize, self.dtype.itemsize

    def shapes(self, ctx: HostContext, x: Value, *arguments: Value) -> np.ndarray:
        """The shape of each sample, with negative extents inferred. Raises ValueError if the bytes do not fill it."""
        a = self.arguments(ctx, arguments)
        # In elements of the output.
        volume = x.shapes.prod(axis=1) * x.spec.dtype.itemsize // ctx.spec.dtype.itemsize
        rank = ctx.spec.ndim
        shapes = a.vector("shape", rank)
        if shapes is None:
            sources = np.array(self._sources(x.spec.ndim, rank)[:rank], np.int64)
            shapes = (
                np.where(sources < 0, 1, x.shapes[:, np.maximum(sources, 0)])
                if x.spec.ndim
                else np.ones((ctx.N, rank), np.int64)
            )
            relative = a.vector("rel_shape", rank)
            if relative is not None:
                shapes = np.where(relative < 0, -1, np.floor(shapes * relative + 0.5).astype(np.int64))
            elif (itemsizes := self._itemsizes(x.spec)) is not None and rank:
                old_size, new_size = itemsizes
                if (shapes[:, -1] * old_size % new_size).any():
                    raise ValueError(
                        f"the last extent of {x.spec.dtype} does not make up whole elements of {ctx.spec.dtype}; give a shape"
                    )
                shapes = np.concatenate([shapes[:, :-1], shapes[:, -1:] * old_size // new_size], axis=1)
        shapes = shapes.astype(np.int64)
        is_inferred = shapes < 0
        if (is_inferred.sum(axis=1) > 1).any():
            raise ValueError("only one extent may be negative (inferred from the others)")
        if is_inferred.any():
            known_volume = np.where(is_inferred, 1, shapes).prod(axis=1)
            for i in np.flatnonzero((known_volume == 0) & is_inferred.any(axis=1) & ctx.present):
                extents = shapes[i].tolist()
                raise ValueError(
                    f"sample {i} of shape {tuple(x.shapes[i].tolist())}: the negative extent can't be inferred, "
                    f"as {extents} has an extent 0"
                )
            shapes = np.where(is_inferred, (volume // np.maximum(known_volume, 1))[:, None], shapes)
        same_volume(ctx, x, shapes)
        return shapes


def _scaled(extent: int, factor: float) -> int:
    """An extent times a factor of `rel_shape`, rounded."""
    return int(np.floor(extent * factor + 0.5))


def add_reshape(
    kind: type[Reshape], dtype: Any, data, shape_input, shape, rel_shape, src_dims, layout, device, name
) -> DataNode:
    """Adds a `Reshape` or `Reinterpret` with the arguments of `fn.reshape`, after checks."""
    names = [n for n, x in (("shape_input", shape_input), ("shape", shape), ("rel_shape", rel_shape)) if x is not None]
    if len(names) > 1:
        raise ArgumentError(f"{' and '.join(names)} can't be given together")
    if not names and src_dims is None and layout is None and dtype is None:
        raise ArgumentError("give a shape, rel_shape, src_dims or layout")
    if isinstance(shape, tuple):
        if sum(n < 0 for n in shape) > 1:
            raise ArgumentError(f"only one extent may be negative (inferred from the others); got shape={list(shape)}")
        if any(n == 0 for n in shape):
            raise ArgumentError(f"an extent may not be 0, got shape={list(shape)}")
    # `shape_input` is another way to give `shape`: as an input, or as an array that is the same for all samples.
    if shape_input is not None:
        shape = shape_input if is_node(shape_input) else tuple(np.asarray(shape_input, np.int64).reshape(-1).tolist())
    shape_arguments = {
        n: x if x is None or is_node(x) or isinstance(x, tuple) else (x,)
        for n, x in (("shape", shape), ("rel_shape", rel_shape))
    }
    args, nodes = Arguments.of(shape_arguments, is_node)
    src_dims = (src_dims,) if isinstance(src_dims, int) else src_dims
    return add(kind(args=args, src_dims=src_dims, layout=layout, dtype=dtype), data, *nodes, device=device, name=name)


@operator_function("reshape")
def reshape(
    data: Input,
    shape_input: Input | None = None,
    /,
    *,
    shape: PerSample[OneOrMore[int]] | None = None,
    rel_shape: PerSample[OneOrMore[float]] | None = None,
    src_dims: OneOrMore[int] | None = None,
    layout: str | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Changes the shape or layout of each sample. The elements keep their order.

    Args:
      data: any tensor.
      shape_input: the shape of each sample, 1-D, a host value; instead of `shape`.
      shape: the extents; one may be negative and is then inferred. May be per sample.
      rel_shape: the extents as multiples of the input's, rounded; one may be negative and is then inferred. May be per
        sample.
      src_dims: for each axis of the output, the axis of the input that gives its extent, or -1 for extent 1. Default:
        the same axis.
      layout: layout of the output. Default: the input's layout if the number of dimensions stays, else none.

    Returns:
      A tensor of the same type and number of elements.

    Raises:
      ArgumentError: more than one of `shape_input`, `shape` and `rel_shape` is given, or none of the arguments.
      OperatorError: a sample does not have the elements that its new shape needs.

    Example:
      >>> digits = fn.reshape(images, shape=[-1], layout="")
    """
    return add_reshape(Reshape, None, data, shape_input, shape, rel_shape, src_dims, layout, device, name)
