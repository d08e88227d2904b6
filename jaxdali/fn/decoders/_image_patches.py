"""decoders.image_patches: from encoded images to patches."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Unpack

import numpy as np

from ... import types
from ..._core.arguments import Arguments
from ..._core.building import add, as_node, is_node
from ..._core.declaration import DType, Len, OneOf, Range
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, PerSample, operator_function
from .._decode.headers import ImageHeaders
from .._decode.image_patches import DecodeForPatches, DecodePatches, ImagePositions, ImageSegments, PatchHeaders
from .._image.patchify import MOST_PIXELS, Patchify
from .._image.resize import ByConvention, Resize
from ._decoder import MAX_PIXELS


@operator_function("decoders.image_patches")
def image_patches(
    input: Input,
    /,
    *,
    patch_size: Annotated[OneOrMore[int], Len(1, 2), Range(1, MOST_PIXELS)],
    size: PerSample[OneOrMore[float]],
    adjust_orientation: bool = True,
    antialias: bool = True,
    convention: Literal["dali", "pillow", "tensorflow", "torchvision"] = "dali",
    dct_scaling: bool = False,
    dtype: Annotated[DType, OneOf("float32", "float16", "bfloat16", "uint8")] = types.FLOAT,
    interp_type: PerSample[types.DALIInterpType] = types.INTERP_LINEAR,
    length: Annotated[int | None, Range(1)] = None,
    max_pixels: Annotated[int, Range(1)] = MAX_PIXELS,
    mean: PerSample[OneOrMore[float]] = 0.0,
    merge_size: Annotated[int, Range(1, MOST_PIXELS)] = 1,
    output_type: Annotated[types.DALIImageType, OneOf(types.RGB, types.BGR, types.GRAY, types.YCbCr)] = types.RGB,
    patch_layout: str = "HWC",
    scale: float = 1.0,
    segments: Annotated[PerSample[OneOrMore[int]] | None, Range(0)] = None,
    shift: float = 0.0,
    std: PerSample[OneOrMore[float]] = 1.0,
    temporal_patch_size: Annotated[int, Range(1, MOST_PIXELS)] = 1,
    truncated: Literal["error", "accept"] = "error",
    device: Literal["cpu", "mixed", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> list[DataNode]:
    """Decodes, resizes and divides images into patches, all images of a sample in one row of patches.

    Of one image these are the results of `decoders.image`, `resize` and `patchify`, whose arguments it has. Of a
    sequence of encoded images, which may have any sizes and formats, the patches of all images follow one another: the
    input of models that read several images with one text. All images of the batch are decoded, resized and cut in one
    native call, which writes each patch once, to its final place. Not in DALI.

    Args:
      input: encoded images, 1-D uint8, or sequences of them, 2-D uint8 with a layout that begins with F: a row of bytes
        for each image, in which anything may follow the file. A sequence may have no images. They are host values.
      patch_size: height and width of a patch in pixels, one number or (H, W).
      size: height and width to which the image is resized, or one number for both. May be per sample, and for sequences
        also per image, ``[F, 2]``. The functions of `fn.sizes` compute it from `fn.peek_image_shape`.
      adjust_orientation: as in `decoders.image`.
      antialias: as in `resize`.
      convention: as in `resize`: the library whose pixels the resized images have.
      dct_scaling: as in `decoders.image`: decode JPEG, WebP and JPEG 2000 at a fraction of their size where the result is
        still at least as large as `size`.
      dtype: of the patches, FLOAT, FLOAT16, BFLOAT16 or UINT8, which is rounded and saturated.
      interp_type: filter of the resize. May be per sample.
      length: the number of rows to which patches, segments and positions are padded with 0. Sequences need it. None: as
        many as there are patches.
      max_pixels: as in `decoders.image`, for each image.
      mean: the number subtracted, one or one per channel, in levels of 0 ... 255. May be per sample.
      merge_size: the patches of a block of this many rows and columns follow one another.
      output_type: RGB, BGR, GRAY or YCbCr, as in `decoders.image`.
      patch_layout: the order of the elements in a patch, a permutation of "HWC", or of "FHWC" with the frames of
        `temporal_patch_size`.
      scale: the factor by which normalised values are multiplied.
      segments: the number that the patches of each image get in the output of this name, ``[F]``, e.g. that of the item
        to which the image belongs. Default: 1, 2, ... May be per sample.
      shift: the number added after that.
      std: the divisor, one number or one per channel. May be per sample.
      temporal_patch_size: how often a patch repeats its image, along F of `patch_layout`.
      truncated: as in `decoders.image`.
      device: "cpu"; "mixed" and "gpu" put the patches on the accelerator. Files are always decoded on the CPU.

    Returns:
      A list of four values.

      * patches: ``[patches, D]``, in the order of `patchify`, image after image.
      * segments: int32 ``[patches]``, the number of the image, see the argument; 0 behind the patches.
      * positions: int32 ``[patches, 2]``, row and column of the patch in its image's grid.
      * grid: int32 ``[2]``, the numbers of rows and columns of patches; of sequences ``[F, 2]``.

      The last three are host values, unless `device` puts the patches on the accelerator.

    Raises:
      ValueError, TypeError: arguments that `resize` or `patchify` refuse; a sequence without `length`. A sample fails
        when its batch is made if an image can't be decoded (see `decoders.image`), if a size is no multiple of
        ``patch_size * merge_size``, if there are more patches than `length`, or if `segments` has another number of
        numbers than there are images. The error names the image of a sequence by its index, from 0, while segments
        count images from 1.

    Example:
      >>> size = fn.sizes.patch_budget(fn.peek_image_shape(jpegs), patch_size=16, max_patches=256)
      >>> patches, segments, positions, grid = fn.decoders.image_patches(jpegs, size=size, patch_size=16, length=256)
    """
    encoded = as_node(input, "decoders.image_patches")
    resize_args, resize_nodes = Arguments.of({"size": size, "interp_type": interp_type}, is_node)
    resize = (Resize if convention == "dali" else ByConvention)(
        args=resize_args,
        antialias=antialias,
        convention=convention,
        dtype=None,
        mode=None,
        roi_relative=False,
        save_attrs=False,
        subpixel_scale=None,
    )
    sizes = patch_size if isinstance(patch_size, tuple) else (patch_size,)
    cutting: Any = {
        "patch_size": (sizes[0], sizes[-1]),
        "merge_size": merge_size,
        "temporal_patch_size": temporal_patch_size,
        "length": length,
    }
    patch_args, patch_nodes = Arguments.of({"mean": mean, "std": std}, is_node)
    patchify = Patchify(
        args=patch_args, patch_layout=patch_layout, dtype=types.numpy_dtype(dtype), scale=scale, shift=shift, **cutting
    )
    decode = DecodeForPatches(
        output_type=output_type,
        dtype=np.dtype(np.uint8),
        adjust_orientation=adjust_orientation,
        use_fast_idct=False,
        on_error="raise",
        truncated=truncated,
        dct_scaling=dct_scaling,
        resize=resize if dct_scaling else None,
    )
    headers = ImageHeaders(images=decode, on_device=False, max_pixels=max_pixels, reads_sizes=bool(resize_nodes))
    steps: Any = {"decode": decode, "resize": resize, "patchify": patchify}
    files = PatchHeaders(headers=headers, args=Arguments(inputs=resize_args.inputs), **steps)
    payload, grid, info = add(files, encoded, *resize_nodes, device="cpu")
    op = DecodePatches(args=Arguments(inputs=(*resize_args.inputs, *patch_args.inputs)), **steps)
    segment_args, segment_nodes = Arguments.of({"segments": segments}, is_node)
    facts = [
        add(ImageSegments(args=segment_args, **cutting), payload, grid, *segment_nodes),
        add(ImagePositions(**cutting), payload, grid),
        grid,
    ]
    patches = add(op, payload, grid, info, *resize_nodes, *patch_nodes, device=device, name=name)
    return [patches, *(x.gpu() if device in ("mixed", "gpu") else x for x in facts)]
