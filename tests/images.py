"""Encoded images for tests, and a pipeline that decodes them."""

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image, ImageOps

import jaxdali
from jaxdali import fn


def picture(height, width, channels=3, dtype: Any = np.uint8, seed=0):
    """Smooth colours and some noise, the whole range of the type."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width] / max(height, width)
    waves = [np.sin(x * (5 + 3 * c) + y * (9 - 2 * c) + c) for c in range(channels)]
    a = np.stack(waves, -1) * 0.45 + 0.5 + rng.normal(size=(height, width, channels)) * 0.03
    return np.rint(np.clip(a, 0, 1) * np.iinfo(dtype).max).astype(dtype)


def encode(pixels, kind, mode=None, **options):
    """`pixels` as a file's bytes, made by Pillow."""
    image = Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)
    if mode is not None:
        image = image.convert(mode) if mode != image.mode else image
    if "orientation" in options:
        exif = Image.Exif()
        exif[0x112] = options.pop("orientation")
        options["exif"] = exif
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png(pixels, interlaced=False):
    """`pixels` ``[H, W, 1 to 4]``, uint8 or uint16, as a PNG file: Pillow neither interlaces nor keeps 16-bit colour."""
    height, width, channels = pixels.shape
    adam7 = [(0, 8, 0, 8), (0, 8, 4, 8), (4, 8, 0, 4), (0, 4, 2, 4), (2, 4, 0, 2), (0, 2, 1, 2), (1, 2, 0, 1)]
    raw = b""
    for y, dy, x, dx in adam7 if interlaced else [(0, 1, 0, 1)]:
        part = pixels[y::dy, x::dx].astype(pixels.dtype.newbyteorder(">"))
        raw += b"".join(b"\0" + row.tobytes() for row in part if part.size)
    header = struct.pack(
        ">IIBBBBB", width, height, 8 * pixels.itemsize, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, interlaced
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data))
        for tag, data in ((b"IHDR", header), (b"IDAT", zlib.compress(raw)), (b"IEND", b""))
    )


def pillow(data, mode="RGB", upright=True):
    """The pixels as Pillow decodes them."""
    image = Image.open(io.BytesIO(data))
    if upright:
        image = ImageOps.exif_transpose(image)
    pixels = np.asarray(image if image.mode == mode else image.convert(mode))
    return pixels if pixels.ndim == 3 else pixels[..., None]


def resize_by_pillow(image, size, resample):
    """Pillow's image resized to `size` (height, width), with any version in the order of Pillow 13.

    Older versions always begin with the horizontal pass, and bytes are rounded after each pass.
    """
    height, width = size
    rows_shrink, columns_shrink = image.height - height, image.width - width
    if rows_shrink > 0 and rows_shrink > 2 * columns_shrink:
        image = image.resize((image.width, height), resample)
    return image.resize((width, height), resample)


def decode_pipeline(files, operator=None, **arguments):
    """A pipeline that decodes `files`, one batch after another."""
    batch = [np.frombuffer(f, np.uint8) for f in files]

    @jaxdali.pipeline_def(batch_size=len(files), num_threads=2, device_id=None, exec_pipelined=False, exec_async=False)
    def pipeline():
        return (operator or fn.decoders.image)(fn.external_source(source=lambda: batch), **arguments)

    return pipeline()


def decode(files, operator=None, **arguments):
    """`files` decoded by ``fn.decoders.image``, or what another operator makes of them: a list of arrays."""
    (result,) = decode_pipeline(files, operator, **arguments).run()
    return [np.array(x) for x in result.as_cpu()]
