"""The arguments of decoders of images, and how the host decodes with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import _cpu, types
from ..._core.operator import StageOperator
from ..._cpu import Format, Info, Status
from .._image.resize import Resize
from .formats import AS_INDICES, failure
from .info_rows import output_shapes

OUTPUT_TYPES = tuple(types.DALIImageType)
NO_PALETTE = (
    'palette="index" needs a PNG, GIF, BMP or TIFF whose pixels are indices of a palette; this image has no palette '
    "(without it, output_type=types.GRAY gives the numbers of gray images of 8 bits)"
)
DTYPES = tuple(
    map(np.dtype, ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "bfloat16", "float32", "float64"))
)


class DecodeArguments(StageOperator):
    """The arguments of a decoder of images, and what they mean for the host, which decodes some of the images.

    `DecodeImage` adds what the program does.
    """

    name = "decoders.image"
    kernel = "decode"
    output_type: types.DALIImageType
    dtype: np.dtype
    adjust_orientation: bool
    use_fast_idct: bool
    on_error: str  # "raise" or "replace"
    extents: tuple[int | None, int | None] = (None, None)  # height and width, where they are the same for all images
    palette: str = "color"  # or "index"
    truncated: str = "error"  # or "accept"
    dct_scaling: bool = False
    # The only reader of the images, if they may be scaled; known when the pipeline is built.
    resize: Resize | None = None
    on_gpu: bool = False  # whether the GPU kernels run; known when the pipeline is built

    @property
    def pixel_arguments(self) -> tuple[Any, ...]:
        """The arguments that determine the pixels of an image."""
        return (
            self.output_type,
            self.dtype.str,
            self.adjust_orientation,
            self.use_fast_idct,
            self.palette,
            self.truncated,
        )

    def write_options(self, info: np.ndarray) -> dict[int, str]:
        """Writes the arguments `truncated` and `palette` into info rows.

        Returns:
          Reasons by image, for the images whose status it has set: they have no palette.
        """
        info[:, Info.TRUNCATED] = self.truncated == "accept"
        if self.palette == "color":
            return {}
        is_valid = (info[:, Info.STATUS] == 0) & (info[:, Info.HEIGHT] > 0)
        has_palette = is_valid & (info[:, Info.PALETTE] > 0)
        info[has_palette, Info.PALETTE] = AS_INDICES
        info[has_palette, Info.CHANNELS] = 1
        # A registered decoder may have returned indices: rasters of one channel with 8 bits are taken as such.
        is_raster = (info[:, Info.FORMAT] == Format.RAW) & (info[:, Info.CHANNELS] == 1) & (info[:, Info.DEPTH] == 8)
        without_palette = np.flatnonzero(is_valid & ~has_palette & ~is_raster)
        info[without_palette, Info.STATUS] = Status.UNSUPPORTED
        return dict.fromkeys(without_palette.tolist(), NO_PALETTE)

    def failure(self, row: np.ndarray, code: int, reason: str = "") -> str:
        """The reason why an image can't be decoded, and what users can do about it.

        Args:
          row: its info row; code, reason: as in `formats.failure`.
        """
        text = failure(row[Info.FORMAT], code, reason)
        if code != Status.TRUNCATED:
            return text
        is_jpeg = row[Info.FORMAT] == Format.JPEG
        if self.truncated == "accept":
            text += ", before its picture begins" if is_jpeg else '; truncated="accept" is for JPEG only'
        elif is_jpeg and row[Info.HEIGHT] > 0:
            text += '; truncated="accept" decodes what there is'
        return text if self.on_error == "replace" else f'{text}; on_error="replace" replaces the sample'

    def on_host(self, pool: int, images: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray | int]:
        """Decodes images immediately.

        Args:
          pool: id of the native thread pool; images: (encoded bytes u8, info row) of each.

        Returns:
          For each image its pixels ``[H, W, C]``, or a status code if it can't be decoded.
        """
        if not images:
            return []
        info = np.stack([row for _, row in images])
        out = [
            np.empty(tuple(shape), self.dtype)
            for shape in output_shapes(info, self.output_type, self.adjust_orientation).tolist()
        ]
        codes = _cpu.decode_images(
            [data for data, _ in images],
            info,
            out,
            int(self.output_type),
            self.adjust_orientation,
            self.use_fast_idct,
            pool,
        )
        # The code of a decoded image is 0.
        return [code or pixels for code, pixels in zip(codes, out, strict=True)]
