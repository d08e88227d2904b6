"""patchify: images as rows of patches, as vision transformers of language models take them."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Annotated, Any, Literal, Unpack

import jax.numpy as jnp
import numpy as np

from ... import types
from ..._core import ffi as _ffi
from ..._core.arguments import Arguments, Values
from ..._core.building import add, as_node, is_node
from ..._core.context import HostContext, LowerContext
from ..._core.declaration import DType, Len, OneOf, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.input_warnings import statistics_doubts
from ..._core.operator import HostOperator, NativeOperator, Operator, ProgramOperator, Setup, StageOperator
from ..._core.operator_function import Hints, Input, OneOrMore, PerSample, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Status
from .._families.conversion import convert
from .._families.layouts import image_layout, spec_of

LAYOUTS = ("HWC", "FHWC")
INPUT_TYPES = tuple(map(np.dtype, ("uint8", "int16", "uint16", "float16", "bfloat16", "float32")))
PATCH_TYPES = tuple(map(np.dtype, ("uint8", "float16", "bfloat16", "float32")))
MOST_PIXELS = 1 << 15  # along an axis of a patch
AXES = "FHWC"  # The index of a letter is the number of the axis for the kernel.


class Patches(Operator):
    """The division of images into patches, which all operators of `patchify` share."""

    name = "patchify"
    patch_size: tuple[int, int]  # height and width of a patch
    merge_size: int  # rows and columns of patches in a block
    temporal_patch_size: int  # frames in a patch
    length: int | None  # rows of the outputs; None: as many as the image has patches

    def grids(self, shapes: np.ndarray, layout: str) -> np.ndarray:
        """Numbers of rows and columns of patches, for videos after that of times, ``i64[N, 2]`` or ``i64[N, 3]``.

        Args:
          shapes: of the images, ``i64[N, ndim]``.
          layout: of the images, one of `LAYOUTS`.
        """
        first = layout.index("H")
        grids = shapes[:, first : first + 2] // self.patch_size
        # The last frame of a video is repeated until its patches are full.
        return grids if first == 0 else np.column_stack([-(-shapes[:, 0] // self.temporal_patch_size), grids])

    def num_rows(self, image: Spec) -> int | None:
        """The number of rows of the outputs that have one for each patch; None: it differs between samples."""
        if self.length is not None or image.shape is None:
            return self.length
        return int(self.grids(np.array([image.shape], np.int64), image_layout(image, LAYOUTS)).prod())

    def problem(self, shape: tuple[int, ...], layout: str) -> str:
        """The reason why an image of this shape can't be divided; "" if it can."""
        height, width = shape[layout.index("H") : layout.index("H") + 2]
        frames = f"{shape[0]} frames of " if len(shape) == 4 else ""
        image = f"{frames}{height} x {width} pixels (height x width)"
        sizes = f"patch_size={self.patch_size}, merge_size={self.merge_size}"
        units = [n * self.merge_size for n in self.patch_size]
        if 0 in shape:
            return f"there are no patches in an empty image of shape {shape} ({sizes}, length={self.length})"
        if height % units[0] or width % units[1]:
            return (
                f"an image of {image} can't be divided into patches: with {sizes} the height must be a multiple of {units[0]}, and the "
                f"width one of {units[1]} (length={self.length}); fn.sizes has the rules by which models resize, and for "
                "processors of vlm whose canvas differs from their size, fn.slice makes the canvas"
            )
        tokens = int(self.grids(np.array([shape], np.int64), layout).prod())
        if self.length is not None and tokens > self.length:
            return f"an image of {image} has {tokens} patches, more than length={self.length} ({sizes})"
        return ""


class PatchGrid(Patches, HostOperator):
    """The numbers of rows and columns of an image's patches. It reports the images that can't be divided."""

    def run_reads(self, i: int) -> bool:
        return False

    def infer(self, image: Spec) -> tuple[Spec, ...]:
        return (Spec(np.dtype(np.int32), 1, (len(image_layout(image, LAYOUTS)) - 1,)),)

    def run(self, ctx: HostContext, image: Value) -> tuple[np.ndarray]:
        """See `HostOperator.run`. The grid of a sample that fails is 0."""
        layout = image_layout(image.spec, LAYOUTS)
        shapes = np.ascontiguousarray(image.shapes, np.int64)
        grids = self.grids(shapes, layout)
        first = layout.index("H")
        is_divisible = (shapes > 0).all(axis=1)
        is_divisible &= (shapes[:, first : first + 2] % (np.array(self.patch_size) * self.merge_size) == 0).all(axis=1)
        if self.length is not None:
            is_divisible &= grids.prod(axis=1) <= self.length
        for i in np.flatnonzero(~is_divisible & ctx.present).tolist():
            ctx.fail(i, Status.INPUT, self.problem(tuple(shapes[i].tolist()), layout))
        return (np.where(is_divisible[:, None], grids, 0).astype(np.int32),)


class PatchPositions(Patches, HostOperator):
    """The place of each patch in the grid of its image."""

    def run_reads(self, i: int) -> bool:
        return i > 0  # The spec of the image tells whether the shape is static.

    def infer(self, image: Spec, grid: Spec) -> tuple[Spec, ...]:
        return (spec_of(np.dtype(np.int32), (self.num_rows(image), grid.extent(grid.ndim - 1)), ""),)

    def run(self, ctx: HostContext, image: Value, grid: Value) -> tuple[Any, ...]:
        samples = [np.concatenate([positions(g, self.merge_size) for g in grids]) for grids in grids_of(ctx, grid)]
        return (_padded(ctx, samples),)


class PatchSegments(Patches, HostOperator):
    """The number of its image for each patch, and 0 for padding. The argument `segments` has the numbers; without it,
    images are counted from 1.
    """

    def run_reads(self, i: int) -> bool:
        return i > 0

    def infer(self, image: Spec, grid: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        return (spec_of(np.dtype(np.int32), (self.num_rows(image),), ""),)

    def run(self, ctx: HostContext, image: Value, grid: Value, *arguments: Value) -> tuple[Any, ...]:
        counts = [list(map(math.prod, grids)) for grids in grids_of(ctx, grid)]
        numbers = [np.arange(1, 1 + len(n), dtype=np.int32) for n in counts]
        if "segments" in self.args:
            of_images = self.arguments(ctx, arguments).ragged("segments")
            num_images = grid.shapes[:, 0] if grid.spec.ndim == 2 else np.ones(ctx.N, np.int64)
            for i in np.flatnonzero(ctx.present).tolist():
                if reason := _segments_problem(of_images[i], int(num_images[i])):
                    ctx.fail(i, Status.ARGUMENT, f"argument segments {reason}")
                else:
                    numbers[i] = of_images[i].astype(np.int32)
        samples = [np.repeat(x, n) for x, n in zip(numbers, counts, strict=True)]
        return (_padded(ctx, samples),)


def _padded(ctx: HostContext, samples: list[np.ndarray]) -> Any:
    """Integers of each patch as the output, with zeros behind them if it has a static shape."""
    if ctx.spec.shape is None:
        return samples
    result = np.zeros((ctx.N, *ctx.spec.shape), np.int32)
    for row, sample in zip(result, samples, strict=True):
        row[: len(sample)] = sample
    return result


def _segments_problem(numbers: np.ndarray, num_images: int) -> str:
    """The reason why these can't be the numbers of a sample's images; "" if they can."""
    if len(numbers) != num_images:
        return f"must have a number for each image of the sample: got {numbers.tolist()} for {num_images} images"
    if not ((numbers >= 0) & (numbers <= np.iinfo(np.int32).max)).all():
        return f"must have numbers of 0 ... 2**31 - 1, got {numbers.tolist()}"
    return ""


def grids_of(ctx: HostContext, grid: Value) -> list[list[tuple[int, ...]]]:
    """The grids of the images of each sample. A sample without images, or that is absent, has an empty one."""
    empty = [(0,) * (grid.spec.extent(grid.spec.ndim - 1) or 0)]
    return [
        [tuple(g) for g in np.atleast_2d(grid.sample(i)).tolist()] or empty if is_present else empty
        for i, is_present in enumerate(ctx.present.tolist())
    ]


def num_tokens(ctx: HostContext, grid: Value) -> np.ndarray:
    """The number of patches of each sample, ``i32[N]``, of all its images."""
    return np.array([sum(map(math.prod, grids)) for grids in grids_of(ctx, grid)], np.int32)


def positions(grid: tuple[int, ...], merge_size: int) -> np.ndarray:
    """The row and column of each patch in a grid, for videos after the time, ``i32[tokens, 2]`` or ``i32[tokens, 3]``.

    Args:
      grid: the numbers of rows and columns, for videos after that of times.
    """
    *times, rows, columns = grid
    table = _positions_in_frame(rows, columns, merge_size)
    if not times:
        return table
    time = np.repeat(np.arange(times[0], dtype=np.int32), len(table))
    return np.column_stack([time, np.tile(table, (times[0], 1))])


@functools.lru_cache(maxsize=64)
def _positions_in_frame(rows: int, columns: int, n: int) -> np.ndarray:
    """The row and column of each patch, ``i32[tokens, 2]``, in blocks of n x n patches."""
    # [block row, row, block column, column, 2], in which the two axes in the middle are exchanged.
    places = np.moveaxis(np.indices((rows, columns), np.int32), 0, -1).reshape(rows // n, n, columns // n, n, 2)
    table = places.swapaxes(1, 2).reshape(-1, 2)
    table.setflags(write=False)
    return table


class Patchify(Patches, StageOperator):
    """The patches of an image, one after the other. The inputs are the image and the result of `PatchGrid`."""

    kernel = "patchify"
    patch_layout: str
    dtype: np.dtype
    scale: float
    shift: float
    normalises: bool = True  # whether elements are scaled; otherwise they are only converted

    def __post_init__(self):
        """Raises ArgumentError for arguments that exclude each other."""
        if sorted(self.patch_layout) not in (sorted("HWC"), sorted(AXES)):
            raise ArgumentError(
                f'patch_layout must be a permutation of "HWC", or of "FHWC" with the frames of a patch, got {self.patch_layout!r}'
            )
        if self.temporal_patch_size > 1 and "F" not in self.patch_layout:
            raise ArgumentError(
                f"temporal_patch_size={self.temporal_patch_size} needs a patch_layout with F, the frames of a patch, "
                f"got {self.patch_layout!r}"
            )
        if self.args.is_static("std") and not np.all(self.args.get("std")):
            raise ArgumentError(f"argument std divides, so it must not be 0, got {self.args.get('std')}")

    def takes_image(self, image: Spec) -> bool:
        return True

    def doubts(self, *specs: Spec) -> str:
        """A warning about `mean` and `std` that look as if they were for pixels of 0 ... 1; "" if there is none."""
        return statistics_doubts(self.args, self.scale, specs[0])

    @property
    def pixels(self) -> int:
        """The number of pixels in a patch."""
        return self.temporal_patch_size * math.prod(self.patch_size)

    def infer(self, image: Spec, grid: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """The patches, ``[tokens, D]``. The shape is static if it is known."""
        image_layout(image, LAYOUTS)
        if image.dtype not in INPUT_TYPES:
            raise TypeError(
                f"the input must be uint8, int16, uint16, float16, bfloat16 or float32, got {image.dtype}; fn.cast converts it"
            )
        channels = image.extent(image.ndim - 1)
        widths = {name: self.args.width(name, arguments) for name in ("mean", "std")}
        num_values = max((n for n in (channels, *widths.values()) if n is not None), default=1)
        for name in widths:
            self.args.check_width(
                name,
                channels or num_values,
                arguments,
                one_for_all=True,
                why=f", for images of {channels or num_values} channels",
            )
        return (spec_of(self.dtype, (self.num_rows(image), None if channels is None else self.pixels * channels), ""),)

    def setup(self, ctx: HostContext, image: Value, grid: Value, *arguments: Value) -> Setup:
        """The shapes of the outputs, unless the spec has them, and the kernel's parameters."""
        params = self.normalisation(ctx, image, self.arguments(ctx, arguments))
        if ctx.spec.shape is not None:
            return Setup((None,), params)
        tokens = num_tokens(ctx, grid) if self.length is None else np.full(ctx.N, self.length)
        return Setup((np.column_stack([tokens, self.pixels * image.shapes[:, -1]]).astype(np.int64),), params)

    def normalisation(self, ctx: HostContext, image: Value, a: Values) -> dict[str, np.ndarray]:
        """The parameters `scale` and `offset`, ``f32[N, 1]`` or ``f32[N, channels]``; none if elements are only
        converted.
        """
        if not self.normalises:
            return {}
        is_static = self.args.is_static("mean") and self.args.is_static("std")
        if is_static and a.samples in self._static_normalisation:
            params = self._static_normalisation[a.samples]
        else:
            mean, std = (a[name].reshape(a.samples, -1) for name in ("mean", "std"))
            for i in np.flatnonzero((std == 0).any(axis=1) & ctx.present).tolist():
                ctx.fail(i, Status.ARGUMENT, f"argument std divides, so it must not be 0, got {std[i].tolist()}")
            scale = self.scale / np.where(std == 0, 1, std)
            scale, offset = (x.astype(np.float32) for x in np.broadcast_arrays(scale, self.shift - mean * scale))
            params = {"scale": scale, "offset": offset}
            if is_static:
                params = params if (scale != 1).any() or offset.any() else {}
                self._static_normalisation[a.samples] = params
        n = params["scale"].shape[1] if params else 1
        # If the spec does not know the number of channels, the images tell it.
        if n > 1 and image.spec.extent(image.spec.ndim - 1) is None:
            for i in np.flatnonzero((image.shapes[:, -1] != n) & ctx.present).tolist():
                text = f"there are {n} numbers in mean or std, but the image has {image.shapes[i, -1]} channels"
                ctx.fail(i, Status.INPUT, text)
        return params

    @functools.cached_property
    def _static_normalisation(self) -> dict[int, dict[str, np.ndarray]]:
        """A cache of `normalisation` by the number of samples, for arguments that are the same in every batch."""
        return {}

    def call(self, ctx: LowerContext) -> _ffi.KernelCall:
        """See `StageOperator.call`. The operands are scale, offset, and the place of an image in a row of several."""
        none = jnp.zeros((ctx.B, 0), jnp.float32)
        scale, offset = (ctx.params.get(name, none) for name in ("scale", "offset"))
        place = ctx.params.get("place", jnp.zeros((ctx.B, 0), jnp.int32))
        attrs = {
            "patch_size": self.patch_size,
            "merge_size": self.merge_size,
            "temporal_patch_size": self.temporal_patch_size,
            "axes": tuple(map(AXES.index, self.letters)),
        }
        return _ffi.KernelCall((scale, offset, place), attrs)

    @property
    def letters(self) -> str:
        """The axes of a patch in their order, of which the frames are always one."""
        return self.patch_layout if "F" in self.patch_layout else f"F{self.patch_layout}"

    def portable(self, spec: Spec, out: Spec) -> ProgramOperator | None:
        """See `NativeOperator.portable`: `DensePatches`, if input and output have static shapes."""
        return DensePatches(patchify=self) if spec.shape is not None and out.shape is not None else None

    def divided(self, spec: Spec, out: Spec) -> tuple[NativeOperator, ProgramOperator] | None:
        """The CPU makes patches in the input's type, integers of 16 bits as floats. The accelerator normalises and converts
        them.
        """
        if out.shape is None:
            return None
        dtype = spec.dtype if spec.dtype in PATCH_TYPES else np.dtype(np.float32)
        first = dataclasses.replace(self, dtype=dtype, normalises=False)
        return first, DensePatches(patchify=self, cuts=False)


class DensePatches(ProgramOperator):
    """Patches in JAX's own operations, for accelerators without native kernels, such as TPUs.

    Attributes:
      patchify: the operator that this one stands for.
      cuts: whether the input is images. If not, it is their patches, which are only normalised and converted.
    """

    patchify: Patchify
    cuts: bool = True

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.patchify.name

    def setup_reads(self, i: int) -> bool:
        return i > 0

    def infer(self, image: Spec, grid: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        if self.cuts:
            return self.patchify.infer(image, grid, *arguments)
        return (dataclasses.replace(image, dtype=self.patchify.dtype),)

    def setup(self, ctx: HostContext, image: Value, grid: Value, *arguments: Value) -> Setup:
        """The parameters of the native operator, and the number of patches of each sample."""
        # The spec knows the number of channels, which `Patchify.infer` has compared.
        params = self.patchify.normalisation(ctx, image, self.patchify.arguments(ctx, arguments))
        return Setup((None,), {**params, "tokens": num_tokens(ctx, grid)})

    def lower(self, ctx: LowerContext, image: Any, *arguments: Any) -> tuple[Any]:
        """Cuts, normalises, converts and pads."""
        assert ctx.spec.shape is not None
        num_rows, num_elements = ctx.spec.shape
        x = self._cut(ctx, image) if self.cuts else image
        x = jnp.pad(x[:, :num_rows], ((0, 0), (0, max(0, num_rows - x.shape[1])), (0, 0)))
        if "scale" in ctx.params:
            letters, (height, width) = self.patchify.letters, self.patchify.patch_size
            channels = num_elements // self.patchify.pixels
            extents = dict(zip(AXES, (self.patchify.temporal_patch_size, height, width, channels)))
            # The channel of each element of a patch.
            shape = [extents[a] if a == "C" else 1 for a in letters]
            channel = np.broadcast_to(np.arange(channels).reshape(shape), [extents[a] for a in letters]).reshape(-1)
            scale, offset = (
                (p if p.shape[1] == 1 else p[:, channel])[:, None] for p in (ctx.params["scale"], ctx.params["offset"])
            )
            x = convert(jnp, x, np.dtype(np.float32)) * scale + offset
        x = convert(jnp, x, ctx.spec.dtype)
        is_patch = jnp.arange(num_rows, dtype=jnp.int32) < ctx.params["tokens"][:, None]
        return (jnp.where(is_patch[:, :, None], x, jnp.zeros((), x.dtype)),)

    def _cut(self, ctx: LowerContext, image: Any) -> Any:
        """The patches of a dense batch of images or videos, in the input's type."""
        op = self.patchify
        frames, (height, width), n = op.temporal_patch_size, op.patch_size, op.merge_size
        x = image if ctx.inputs[0].ndim == 4 else image[:, None]
        # The last frame is repeated.
        x = jnp.pad(x, ((0, 0), (0, -x.shape[1] % frames), (0, 0), (0, 0), (0, 0)), mode="edge")
        B, F, H, W, C = x.shape
        rows, columns = H // (height * n), W // (width * n)
        x = x[:, :, : rows * n * height, : columns * n * width]
        x = x.reshape(B, F // frames, frames, rows, n, height, columns, n, width, C)
        axis = {"F": 2, "H": 5, "W": 8, "C": 9}
        # Sample, time, block row, block column, row and column in the block; then the axes of a patch.
        x = x.transpose(0, 1, 3, 6, 4, 7, *(axis[a] for a in op.letters))
        return x.reshape(B, -1, op.pixels * C)


@operator_function("patchify")
def patchify(
    input: Input,
    /,
    *,
    patch_size: Annotated[OneOrMore[int], Len(1, 2), Range(1, MOST_PIXELS)],
    dtype: Annotated[DType, OneOf("float32", "float16", "bfloat16", "uint8")] = types.FLOAT,
    length: Annotated[int | None, Range(1)] = None,
    mean: PerSample[OneOrMore[float]] = 0.0,
    merge_size: Annotated[int, Range(1, MOST_PIXELS)] = 1,
    patch_layout: str = "HWC",
    scale: float = 1.0,
    shift: float = 0.0,
    std: PerSample[OneOrMore[float]] = 1.0,
    temporal_patch_size: Annotated[int, Range(1, MOST_PIXELS)] = 1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> list[DataNode]:
    """Divides images into patches, normalises them, ``scale * (x - mean) / std + shift``, and makes a row of each.

    These are the rows that vision transformers of language models begin with, in the order of the processors of
    `transformers`: Qwen2-VL has ``merge_size=2, temporal_patch_size=2, patch_layout="CFHW"``, SigLIP 2 the defaults,
    with ``mean=127.5, std=127.5``; `vlm.processors` has these arguments for models. Whole tiles of an image are patches,
    too: ``patch_size=448, patch_layout="CHW"``. On a CPU the patches are written while an image is decoded and resized,
    in one native call. Not in DALI.

    Args:
      input: uint8, int16, uint16, float16, bfloat16 or float32 images HWC, or videos FHWC. Their height and width must
        be multiples of ``patch_size * merge_size``.
      patch_size: height and width of a patch in pixels, one number or (H, W).
      dtype: of the patches, FLOAT, FLOAT16, BFLOAT16 or UINT8, which is rounded and saturated.
      length: the number of rows to which patches, segments and positions are padded with 0. None: as many as there are
        patches.
      mean: the number subtracted, one or one per channel, in units of the input: 0 ... 255 for uint8. May be per
        sample.
      merge_size: the patches of a block of this many rows and columns follow one another. With 1, patches go through the
        image row by row.
      patch_layout: the order of the elements in a patch, a permutation of "HWC", or of "FHWC" with the frames of
        `temporal_patch_size`.
      scale: the factor by which normalised values are multiplied.
      shift: the number added after that.
      std: the divisor, one number or one per channel. May be per sample.
      temporal_patch_size: frames in a patch. An image is repeated as often, and so is the last frame of a video whose
        number of frames is no multiple.

    Returns:
      A list of four values. Patches are ordered by time, row of blocks, column of blocks, row in the block and column in
      the block.

      * patches: ``[patches, D]``, ``D = temporal_patch_size * H * W * channels`` of a patch.
      * segments: int32 ``[patches]``, 1 for each patch and 0 behind them, with `length` a mask of the padding.
      * positions: int32 ``[patches, 2]``, row and column of the patch in its image's grid; of videos ``[patches, 3]``, with
        the time before them.
      * grid: int32 ``[2]``, the numbers of rows and columns of patches; of videos ``[3]``, with that of times before them.

      The last three are host values, which can be arguments of other operators, unless `device` is "gpu".

    Raises:
      ValueError, TypeError: a `patch_layout` that is no permutation, or that lacks the F of `temporal_patch_size`; a
        wrong number of means; a `std` of 0; an input type or layout that is not supported. A sample whose height or
        width is no multiple, that is empty, or that has more patches than `length` fails when its batch is made.

    Example:
      >>> images = fn.resize(images, size=(256, 256))
      >>> patches, mask, positions, grid = fn.patchify(images, patch_size=16, mean=127.5, std=127.5, length=256)
    """
    image = as_node(input, "patchify")
    sizes = patch_size if isinstance(patch_size, tuple) else (patch_size,)
    args, nodes = Arguments.of({"mean": mean, "std": std}, is_node)
    cutting: Any = {
        "patch_size": (sizes[0], sizes[-1]),
        "merge_size": merge_size,
        "temporal_patch_size": temporal_patch_size,
        "length": length,
    }
    op = Patchify(
        args=args, patch_layout=patch_layout, dtype=types.numpy_dtype(dtype), scale=scale, shift=shift, **cutting
    )
    grid = add(PatchGrid(**cutting), image)
    facts = [add(PatchSegments(**cutting), image, grid), add(PatchPositions(**cutting), image, grid), grid]
    patches = add(op, image, grid, *nodes, device=device, name=name)
    return [patches, *(x.gpu() if device == "gpu" else x for x in facts)]
