"""multi_paste: regions of several images on one canvas."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Unpack

import jax.numpy as jnp
import numpy as np

from ..._core import ffi as _ffi
from ..._core.arguments import Values
from ..._core.context import BuildContext, HostContext, LowerContext
from ..._core.declaration import DType, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import Names, NativeOperator, Operator, Setup, joined
from ..._core.operator_function import Hints, Input, ListOf, OneOrMore, PerFrame, PerSample, operator_function
from ..._core.ragged import ALIGNMENT, Ragged
from ..._core.texts import Texts
from ..._core.values import Spec, Value
from ..._cpu import Status
from ...types import is_number
from .._families import image_layout, spec_of

_PAIRS = ("in_anchors", "shapes", "out_anchors")  # arguments in pixels; each has one in fractions, with _rel


class MultiPaste(NativeOperator):
    """Pastes a list of regions onto each canvas. They come from samples of one input, or one from each input."""

    name = "multi_paste"
    kernel = "paste"
    dtype: np.dtype | None
    count: int = 0  # the number of inputs that are images; `bind` sets it

    def __post_init__(self):
        for name in _PAIRS:
            if name in self.args and f"{name}_rel" in self.args:
                raise ArgumentError(f"give either {name} or {name}_rel, not both")

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        return dataclasses.replace(self, count=len(specs) - len(self.args.inputs))

    def setup_reads(self, i: int) -> bool:
        return i >= self.count

    def takes_image(self, image: Spec) -> bool:
        return True

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        """A canvas of the size `output_size`, by default of the images' size, with their frames and channels."""
        if self.count == 0:
            raise ArgumentError("needs at least one input")
        images = list(specs[: self.count])
        if "in_ids" in self.args and len(images) > 1:
            raise ArgumentError(f"in_ids are samples of one input, got {len(images)}")
        layout, dtype = image_layout(images[0], ("HWC", "FHWC")), self.dtype or images[0].dtype
        for i, x in enumerate(images):
            if (x.dtype, image_layout(x, (layout,))) != (images[0].dtype, layout):
                raise ArgumentError(
                    f"the inputs must have one type: input 0 is {images[0].dtype}, input {i} is {x.dtype}"
                )
        if not (is_number(images[0].dtype) and is_number(dtype)):
            raise ValueError(f"the inputs and the output must be numbers, got {images[0].dtype} to {dtype}")
        first = layout.index("H")
        # An extent is known if all images have the same one.
        known_extents = [{x.extent(d) for x in images} for d in range(images[0].ndim)]
        extents = [next(iter(k)) if len(k) == 1 else None for k in known_extents]
        # Height and width; as in `_size`, further numbers are ignored.
        if "output_size" in self.args:
            is_static = self.args.is_static("output_size")
            extents[first : first + 2] = (
                np.array(self.args.get("output_size"), np.int64)[:2].tolist() if is_static else [None, None]
            )
        return (spec_of(dtype, extents, layout),)

    def origins(
        self, names: Sequence[Names], data: Callable[[int], Value | None], present: Callable[[], Sequence[np.ndarray]]
    ) -> Names:
        """The origins of all samples that are pasted, joined by ";", as in DALI; None if they or `in_ids` are not
        known.
        """
        images = names[: len(names) - len(self.args.inputs)]
        if "in_ids" not in self.args:
            return joined(images)
        is_static, names_of_images = self.args.is_static("in_ids"), images[0]
        ids = None if is_static else data(len(images) + self.args.inputs.index("in_ids"))
        if names_of_images is None or (ids is None and not is_static):
            return None
        places: list[list[int]] = [[]] * len(names_of_images)  # of the images that each sample gets
        # `in_ids` are numbers of samples of the shard, without the missing ones.
        for samples in present():
            for i in samples.tolist():
                ids_of_sample = np.ravel(self.args.get("in_ids") if ids is None else ids.sample(i)).astype(int)
                places[i] = samples[ids_of_sample].tolist()
        return Texts.of([names_of_images], lambda i: ";".join(name for k in places[i] if (name := names_of_images[k])))

    @property
    def mixes(self) -> bool:
        return "in_ids" in self.args

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        """The kernel's operand `regions`, ``i32[N, regions, 7]``, and the canvases' shapes unless the spec has them.

        A region is: the index of its image in the batch that `lower` joins, y and x in the image, height, width, y and
        x on the canvas.
        """
        images, a = values[: self.count], self.arguments(ctx, values)
        first = image_layout(images[0].spec, ("HWC", "FHWC")).index("H")
        sources = self._sources(ctx, images, a)
        size = self._size(ctx, images, a, first)
        shapes = images[0].shapes.copy()
        shapes[:, first : first + 2] = size
        arguments = {n: a.ragged(n) for stem in _PAIRS for n in (stem, f"{stem}_rel") if n in a}
        largest = max(map(len, sources))
        # Padded to a power of two, so that few programs are compiled. Rows of -1 are no regions.
        regions = np.full((ctx.N, 1 << (largest - 1).bit_length() if largest else 0, 7), -1, np.int32)
        for i in np.flatnonzero(ctx.present):
            source_shapes = np.array([images[k].shapes[j] for k, j in sources[i]]).reshape(-1, shapes.shape[1])
            other_axes = [d for d in range(shapes.shape[1]) if not first <= d < first + 2]
            if len(source_shapes):
                # A canvas has the frames and channels of the images that are pasted on it.
                shapes[i, other_axes] = source_shapes[0, other_axes]
            try:
                if np.any(source_shapes[:, other_axes] != shapes[i, other_axes]):
                    raise ValueError(
                        f"pasted images must have the same channels and frames, got shapes {source_shapes.tolist()}"
                    )
                pasted_regions = _regions(
                    {n: x[i] for n, x in arguments.items()}, source_shapes[:, first : first + 2], size[i]
                )
            except ValueError as e:
                ctx.fail(int(i), Status.ARGUMENT, str(e))
                continue
            for k, ((input, j), region) in enumerate(zip(sources[i], pasted_regions, strict=True)):
                # The inputs' samples stand one after the other, B of each.
                regions[i, k] = (input * ctx.B + j % ctx.B, *region)
        return Setup((None if ctx.spec.shape is not None else shapes,), {"regions": regions})

    def _sources(self, ctx: HostContext, images: tuple[Value, ...], a: Values) -> list[list[tuple[int, int]]]:
        """The sources of the regions of each sample: (input, sample among those of all shards)."""
        if "in_ids" not in a:
            return [[(k, i) for k in range(len(images))] for i in range(ctx.N)]
        sources = []
        batches = [ctx.batch_of(shard) for shard in range(ctx.S)]  # `in_ids` are samples of the same shard
        for i, ids in enumerate(a.ragged("in_ids")):
            batch = batches[i // ctx.B]
            invalid = [n for n in ids.tolist() if not 0 <= n < len(batch)]
            if invalid:
                ctx.fail(
                    i,
                    Status.ARGUMENT,
                    f"argument in_ids must be samples of the batch, 0 ... {len(batch) - 1}; got {invalid[0]:g}",
                )
            # Of sequences, the frame with the same number.
            pasted = [int(batch[int(n)]) + i % ctx.frames for n in ids if not invalid]
            if not ctx.present[pasted].all():
                ctx.fail(i, Status.INPUT, f"pasted images must have the same frames; samples {ids.tolist()} differ")
            sources.append([(0, j) for j in pasted])
        return sources

    def _size(self, ctx: HostContext, images: tuple[Value, ...], a: Values, first: int) -> np.ndarray:
        """Height and width of each canvas, ``i64[N, 2]``. `first`: the axis H of the images."""
        size = a.get("output_size")
        if size is not None:
            if size.shape[1] < 2:
                raise ArgumentError(f"argument output_size must be (H, W), got {size.shape[1]} numbers")
            return size[:, :2].astype(np.int64)
        sizes = np.concatenate([x.shapes[ctx.present, first : first + 2] for x in images])
        if len(sizes) and np.any(sizes != sizes[0]):
            distinct_sizes = np.unique(sizes, axis=0).tolist()
            raise ArgumentError(
                f"argument output_size must be given for images of different sizes, got {distinct_sizes}"
            )
        return images[0].shapes[:, first : first + 2]

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        """Joins the images of all inputs to one batch, ``[inputs * B, ...]`` or ragged, and pastes from it."""
        images, first = arrays[: self.count], ctx.inputs[0].ndim - 3  # the axis H of HWC or FHWC
        if len(images) == 1:
            (x,) = images
        elif len({x.shape if not isinstance(x, Ragged) else None for x in images}) == 1 and not isinstance(
            images[0], Ragged
        ):
            x = jnp.concatenate(images)
        else:
            ragged_images = [_ragged(x, ctx.B) for x in images]
            starts = np.cumsum([0, *(x.data.shape[0] // ALIGNMENT for x in ragged_images)])
            x = Ragged(
                jnp.concatenate([x.data for x in ragged_images]),
                jnp.concatenate([x.offsets + np.int32(s) for x, s in zip(ragged_images, starts)]),
                jnp.concatenate([x.shapes for x in ragged_images]),
            )
        y, status = _ffi.call("paste", ctx, x, ctx.spec, ctx.out[0], ctx.params["regions"], first=first)
        return (y,), status


def _regions(arguments: dict[str, np.ndarray], sizes: np.ndarray, canvas: np.ndarray) -> np.ndarray:
    """The regions of one sample, ``i64[regions, 6]``: y and x in the input, height, width, y and x on the canvas.

    Args:
      arguments: the arguments that are given, two numbers for each region.
      sizes: ``[regions, 2]``, height and width of the input of each region.
      canvas: height and width of the canvas.

    Raises:
      ValueError: a region is not inside both, or an argument has the wrong number of elements.
    """

    def read(name: str, extents: np.ndarray, default: np.ndarray, rounding: Any) -> np.ndarray:
        """An argument in pixels, also if it is given in fractions of `extents`, by the name with _rel. Otherwise
        `default`.
        """
        for key in (name, f"{name}_rel"):
            if key not in arguments:
                continue
            if arguments[key].size != sizes.size:
                raise ValueError(
                    f"argument {key} must have {len(sizes)} x 2 numbers, one pair per region; got {arguments[key].size}"
                )
            x = arguments[key].reshape(-1, 2)
            return x.astype(np.int64) if key == name else rounding(extents * x.astype(np.float32)).astype(np.int64)
        return default

    start_in = read("in_anchors", sizes.astype(np.float32), np.zeros_like(sizes), np.floor)
    size = read("shapes", sizes.astype(np.float32), sizes - start_in, np.ceil)
    start_out = read(
        "out_anchors", np.broadcast_to(canvas, sizes.shape).astype(np.float32), np.zeros_like(sizes), np.floor
    )
    for name, start, extent in (
        ("input", start_in, sizes),
        ("output", start_out, np.broadcast_to(canvas, sizes.shape)),
    ):
        for k in np.flatnonzero(((start < 0) | (size < 0) | (start + size > extent)).any(axis=1)):
            place = f"at {start[k].tolist()} and of size {size[k].tolist()}"
            raise ValueError(f"region {k} must lie inside the {name} of size {extent[k].tolist()}, it is {place}")
    return np.concatenate([start_in, size, start_out], axis=1)


def _ragged(x: Any, B: int) -> Ragged:
    """A dense batch as a ragged one."""
    if isinstance(x, Ragged):
        return x
    rows = x.reshape(B, -1)
    rows = jnp.pad(rows, ((0, 0), (0, -rows.shape[1] % ALIGNMENT)))
    offsets = np.arange(B, dtype=np.int32) * np.int32(rows.shape[1] // ALIGNMENT)
    return Ragged(rows.reshape(-1), jnp.asarray(offsets), jnp.tile(jnp.asarray(x.shape[1:], jnp.int32), (B, 1)))


@operator_function(MultiPaste)
def multi_paste(
    *inputs: Input,
    dtype: DType | None = None,
    in_anchors: PerFrame[OneOrMore[int] | ListOf[ListOf[int]]] | None = None,
    in_anchors_rel: Annotated[PerFrame[OneOrMore[float] | ListOf[ListOf[float]]] | None, Range(0, 1)] = None,
    in_ids: PerSample[OneOrMore[int]] | None = None,
    out_anchors: PerFrame[OneOrMore[int] | ListOf[ListOf[int]]] | None = None,
    out_anchors_rel: Annotated[PerFrame[OneOrMore[float] | ListOf[ListOf[float]]] | None, Range(0, 1)] = None,
    output_size: Annotated[PerSample[ListOf[int]] | None, Range(0)] = None,
    shapes: PerFrame[OneOrMore[int] | ListOf[ListOf[int]]] | None = None,
    shapes_rel: Annotated[PerFrame[OneOrMore[float] | ListOf[ListOf[float]]] | None, Range(0, 1)] = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Pastes regions of images on a black canvas. Later regions cover earlier ones.

    With `in_ids`, the regions come from other samples of the batch (of the shard's batch, where there are several
    shards); otherwise each input gives one region.

    Args:
      *inputs: HWC or FHWC, all of one numeric type (in DALI uint8, int16, int32 or float32). Everything pasted on one
        canvas must have the same number of channels and frames.
      dtype: element type of the result; integers are rounded and saturated. Default: the inputs'.
      in_anchors: where the regions begin in the inputs, (y, x) for each region. Default: (0, 0). May be per sample or
        frame.
      in_anchors_rel: the same in units of the input's extents, rounded down. May be per sample or frame.
      in_ids: for each region the number of its sample in the batch. May be per sample, and each sample may have another
        number of regions.
      out_anchors: where the regions begin on the canvas, (y, x) for each. Default: (0, 0). May be per sample or frame.
      out_anchors_rel: the same in units of the canvas's extents, rounded down. May be per sample or frame.
      output_size: (H, W) of the canvas. Default: the size of the images, if all have the same. May be per sample.
      shapes: height and width of each region. Default: everything from the anchor to the image's end. May be per sample
        or frame.
      shapes_rel: the same in units of the input's extents, rounded up. May be per sample or frame.

    Returns:
      The canvases, in the inputs' layout.

    Raises:
      ValueError: arguments that can't be combined, wrong layouts or types, or images of different sizes without
        `output_size`. A sample fails when its batch is made if a region reaches outside, or if the arguments differ in
        their number of regions.

    Example:
      >>> mosaic = fn.multi_paste(images, in_ids=fn.random.uniform(range=(0, 7), shape=4, dtype=types.INT32),
      ...                         output_size=(512, 512), out_anchors=[[0, 0], [0, 256], [256, 0], [256, 256]],
      ...                         shapes=[[256, 256]] * 4)
    """
    ...
