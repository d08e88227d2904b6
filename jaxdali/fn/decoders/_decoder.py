"""Base of the image decoders: their hints, and the two operators that each of them adds to the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import types
from ..._core.building import add, as_node, is_node
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, SeededHints
from .._decode.decode import DecodeImage
from .._decode.formats import MAX_PIXELS as MAX_PIXELS
from .._decode.headers import ImageHeaders
from .._decode.info_rows import num_channels
from .._decode.region import Extents
from ..readers._reader import storage_of


class DecoderHints(SeededHints, total=False):
    """Hints to DALI's decoders on the GPU."""

    affine: bool | None
    device_memory_padding: int | None
    device_memory_padding_jpeg2k: int | None
    host_memory_padding: int | None
    host_memory_padding_jpeg2k: int | None
    hw_decoder_load: float | None
    hybrid_huffman_threshold: int | None
    memory_stats: bool | None
    preallocate_height_hint: int | None
    preallocate_width_hint: int | None
    split_stages: bool | None
    use_chunk_allocator: bool | None


class RegionHints(DecoderHints, Hints, total=False):
    """Hints to decoders that draw no random numbers."""


def page_argument(page: Any) -> Any:
    """`page` as an argument of the operator; None if it is 0 for all samples, so that pages cost nothing."""
    return page if is_node(page) or page else None


def add_decoder(
    kind: type[DecodeImage],
    headers: Callable[..., ImageHeaders],
    inputs: Sequence[Any],
    extents: Extents = (None, None),
    *,
    output_type: types.DALIImageType,
    on_error: str,
    replace_shape: Any,
    max_pixels: int,
    palette: str,
    dtype: Any,
    device: str | None,
    name: str | None,
    **attributes: Any,
) -> DataNode:
    """Adds the two operators of a decoder to the graph.

    Args:
      kind: the operator that decodes.
      headers: makes the operator that parses headers, which gets the inputs.
      extents: height and width of all images apart from replaced ones, None where they differ.
      attributes: further attributes of `kind`. The other arguments are those of the public decoders.
    """
    if palette == "index":
        if dtype != np.uint8:
            raise ArgumentError(
                f'dtype must be UINT8 with palette="index", got {dtype}: fn.cast gives indices another type'
            )
        if output_type not in (types.RGB, types.GRAY, types.ANY_DATA):
            raise ArgumentError(
                f'output_type is for colours, got {output_type.name} with palette="index", which gives one channel'
            )
        output_type = types.GRAY
    if replace_shape is not None:
        if on_error != "replace":
            raise ArgumentError("replace_shape is used with on_error='replace' only")
        channels = num_channels(output_type)
        if replace_shape[2] not in ((1, 2, 3, 4) if channels is None else (channels,)):
            raise ArgumentError(f"replace_shape must be (height, width, {channels or 'channels'}), got {replace_shape}")
        # Replaced images have this shape, so an extent is known only if it is that of all other images, too.
        height, width = (n if n == replaced else None for n, replaced in zip(extents, replace_shape[:2], strict=True))
        extents = height, width
    decoder = kind(
        output_type=output_type, dtype=dtype, on_error=on_error, palette=palette, extents=extents, **attributes
    )
    encoded = as_node(inputs[0], kind.name)
    op = headers(
        images=decoder,
        on_device=device in ("mixed", "gpu"),
        max_pixels=max_pixels,
        storage=storage_of(encoded),
        replace_shape=replace_shape,
    )
    payload, info, tables = add(op, encoded, *inputs[1:], device="cpu")
    return add(decoder, payload, info, tables, device=device, name=name)
