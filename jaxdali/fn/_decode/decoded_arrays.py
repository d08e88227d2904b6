"""`ArrayDecoder`: decodes images to arrays that are finished, without a kernel in the program."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from ... import _cpu
from ..._core.values import Spec
from ..._cpu import Format, Info, Status
from ..._data.storage import Storage
from .._families.conversion import convert
from . import pillow as _pillow
from . import registered
from .decode_arguments import DecodeArguments
from .formats import DecodeError, failure, parse_header, replace_file, select_page
from .info_rows import num_channels, refusal
from .large_images import refuse_large
from .rows_of_files import file_of


@functools.cache
def _single_thread_pool() -> int:
    """A native pool without further threads, for callers that decode different images in parallel themselves."""
    return _cpu.pool_create(1)


@dataclasses.dataclass(frozen=True)
class ArrayDecoder:
    """Decodes images one by one to finished arrays.

    Attributes:
      images: the arguments of the decoder.
      max_pixels: limit for images that are decoded.
      storage: has the limit on the size of a sequence.
    """

    images: DecodeArguments
    max_pixels: int
    storage: Storage = dataclasses.field(default_factory=Storage)

    def frames(self, encoded: np.ndarray) -> np.ndarray | DecodeError:
        """The images of a sequence ``[F, H, W, C]``, decoded in this thread."""
        frames = list[np.ndarray]()
        for k, row in enumerate(encoded):
            x = self.frame(file_of(row))
            if isinstance(x, np.ndarray) and frames and x.shape != frames[0].shape:
                x = DecodeError(Status.INPUT, f"it is {x.shape}, but frame 0 is {frames[0].shape}")
            if isinstance(x, DecodeError):
                return DecodeError(x.code, f"frame {k}: {x}")
            if not k and (reason := self.storage.too_large(len(encoded) * x.nbytes)):
                return DecodeError(Status.TOO_LARGE, f"it has {len(encoded)} frames {x.shape}: {reason}")
            frames.append(x)
        return np.stack(frames) if frames else DecodeError(Status.INPUT, "the sequence has no frames")

    def frame(self, data: np.ndarray) -> np.ndarray | DecodeError:
        """An image of a sequence ``[H, W, C]``, decoded in this thread, or the error."""
        x = registered.decode_registered(data)
        channels = num_channels(self.images.output_type)
        if x is None:
            x = self.decode_builtin(_single_thread_pool(), data)
        elif isinstance(x, np.ndarray) and (x.ndim != 3 or x.shape[2] not in (1, channels or x.shape[2])):
            text = f"a frame must be an image of {channels or 'some'} channels, a registered decoder gives {x.dtype}{list(x.shape)}"
            x = DecodeError(Status.UNSUPPORTED, text)
        elif isinstance(x, np.ndarray):  # one channel is repeated
            x = np.broadcast_to(x, (*x.shape[:2], channels or x.shape[2]))
        return self.check(x, Spec(self.images.dtype, 3, None))

    def decode_builtin(self, pool: int, data: np.ndarray, page: int = 0) -> np.ndarray | DecodeError:
        """Decodes an image of a format that jaxdali knows, in this thread. Returns its pixels, or the error.

        `row[None]` below is a batch of one image, whose reasons have the key 0.
        """
        row = parse_header(data)
        if page and not row[Info.STATUS]:
            try:
                data, row = select_page(data, row, page)
            except DecodeError as e:
                return e
        if reasons := self.images.write_options(row[None]):
            return DecodeError(Status.UNSUPPORTED, failure(row[Info.FORMAT], Status.UNSUPPORTED, reasons[0]))
        if code := int(row[Info.STATUS]):
            return DecodeError(code, self.images.failure(row, code, refusal(data, row)))
        if reasons_if_large := refuse_large(row[None], lambda _: data, self.max_pixels):
            return DecodeError(int(row[Info.STATUS]), reasons_if_large[0])
        if row[Info.HOST_DECODE]:
            (raster,) = _pillow.decode_all([(data, row)], num_threads=1)
            if isinstance(raster, DecodeError):
                return DecodeError(raster.code, self.images.failure(row, raster.code, str(raster)))
            data = replace_file(row, raster, Format.RAW)
        (result,) = self.images.on_host(pool, [(data, row)])
        return DecodeError(result, self.images.failure(row, result)) if isinstance(result, int) else result

    def check(self, x: np.ndarray | DecodeError, pixels: Spec) -> np.ndarray | DecodeError:
        """Converts an array to the dtype of the outputs, whose spec is `pixels`.

        Returns the array, or the error if `x` is one, or if its size or type does not fit.
        """
        if isinstance(x, DecodeError):
            return x
        num_pixels = x.size // max(x.shape[-1], 1)
        if num_pixels > self.max_pixels:
            text = (
                f"the image is too large: {' x '.join(map(str, x.shape[:-1]))} pixels, max_pixels is {self.max_pixels}"
            )
            return DecodeError(Status.TOO_LARGE, text)
        if x.ndim != pixels.ndim or (x.dtype != pixels.dtype and self.images.dtype == np.uint8):
            text = (
                f"it is decoded to {x.dtype}{list(x.shape)}, but the samples of the first batch are {pixels.dtype} "
                f"with {pixels.ndim} axes"
            )
            return DecodeError(Status.UNSUPPORTED, text)
        return convert(np, x, pixels.dtype)
