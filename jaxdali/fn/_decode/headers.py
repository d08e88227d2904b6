"""`ImageHeaders`: what the host does with a batch of encoded images before the program decodes them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import threading
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import _cpu
from ..._core import ffi as _ffi
from ..._core.context import BuildContext, HostContext
from ..._core.errors import ArgumentError
from ..._core.operator import HostOperator, Operator
from ..._core.ragged import Packed, pack
from ..._core.system import map_on_threads
from ..._core.values import Spec, Value
from ..._cpu import Format, Info, Status
from ..._data.storage import Storage
from .._families.window_regions import PLACE, ImageWindow
from . import pillow as _pillow
from . import registered
from .cache import CacheOptions, CacheUse, digest
from .decode_arguments import DecodeArguments
from .decoded_arrays import ArrayDecoder
from .formats import DecodeError, replace_file, select_page
from .info_rows import (
    check_encoded,
    is_sequence,
    num_channels,
    output_shapes,
    packed,
    parse_headers,
    refusal,
    row_of_pixels,
)
from .large_images import refuse_large

_PAGE_OF_REGISTERED = "page must be 0 for files that registered decoders decode"


class _Refused:
    """Files that the accelerator's kernels could not decode, identified by size and CRC-32 of their bytes.

    The host decodes them without another attempt by the kernels.
    """

    MAX_FILES = 1 << 17

    def __init__(self):
        self._digests: dict[int, set[int]] = {}  # by the size of the file
        self._count = 0  # number of files
        self._lock = threading.Lock()  # guards both while a file is added

    def add(self, data: np.ndarray):
        """Adds a file, unless there are very many."""
        digest = zlib.crc32(data.data)
        with self._lock:
            digests = self._digests.setdefault(data.size, set())
            if digest not in digests and self._count < self.MAX_FILES:
                digests.add(digest)
                self._count += 1

    def among(self, encoded: Packed) -> np.ndarray:
        """``bool[N]``: whether each sample is a refused file. Its bytes are read only if a file of its size was refused."""
        sizes = encoded.shapes[:, 0].tolist() if self._digests else ()
        is_refused = np.zeros(len(encoded), bool)
        for i, size in enumerate(sizes):
            digests = self._digests.get(size)
            is_refused[i] = digests is not None and zlib.crc32(encoded[i].data) in digests
        return is_refused


_refused = _Refused()  # one per process: the kernels refuse the same files in all pipelines


def _replacement_of(i: int, ctx: HostContext, is_good: Callable[[int], bool]) -> int | None:
    """The good sample that replaces sample `i`: the next one of its shard (cyclic), else the next of other shards."""
    first = i - i % ctx.B
    by_distance = itertools.chain(
        (first + (i + k) % ctx.B for k in range(1, ctx.B)),
        ((first + k) % ctx.N for k in range(ctx.B, ctx.N)),
    )
    return next(filter(is_good, by_distance), None)


@dataclasses.dataclass
class _EncodedBatch:
    """A batch on its way through the host.

    Attributes:
      source: the encoded images.
      info: their info rows.
      tables: the tables of each image for GPU kernels, ``i32[N, 0]`` if no GPU kernel will run.
      rasters: images that registered decoders have decoded, by sample.
      data: bytes that replace the encoded bytes of some samples.
      failed: status code and reason of each sample that can't be decoded.
      keys: the cache keys of samples that are decoded here and then kept in the cache.
    """

    source: Packed
    info: np.ndarray
    tables: np.ndarray
    rasters: dict[int, np.ndarray] = dataclasses.field(default_factory=dict)
    data: dict[int, np.ndarray] = dataclasses.field(default_factory=dict)
    failed: dict[int, tuple[int, str]] = dataclasses.field(default_factory=dict)
    keys: dict[int, Any] = dataclasses.field(default_factory=dict)

    def bytes_of(self, i: int) -> np.ndarray:
        """The bytes that are decoded for sample `i`."""
        return self.data[i] if i in self.data else self.source[i]


class ImageHeaders(HostOperator):
    """Parses the headers of encoded images, and decodes those that the kernel can't decode.

    The outputs are the input of the decoding kernel, info rows, and tables for GPU kernels. Failed samples are reported
    or replaced here. With a `reader`, its arguments come after the other inputs, and a fourth output has the place of
    the part that is decoded. With `reads_sizes`, the arguments of the resize that reads the images come there.

    With registered decoders the first output may be finished images or volumes; see `register_decoder`.
    """

    name = "decoders.image"  # the name that users know; they never see this operator
    images: DecodeArguments  # what decodes them
    on_device: bool  # the user asked for the accelerator
    max_pixels: int  # limit for images that are decoded
    storage: Storage = Storage()  # has the limit on the size of a sequence
    replace_shape: tuple[int, int, int] | None = None
    cache: CacheOptions | None = None
    on_gpu: bool = False  # as in DecodeImage
    pixels: Spec | None = None  # the first output if registered decoders make it; known with the first batch
    # The only window that reads the images, if only the region that it reads is decoded.
    reader: ImageWindow | None = None
    # Whether the resize that reads the images has arguments per sample, which are inputs here.
    reads_sizes: bool = False

    @property
    def num_outputs(self) -> int:
        return 3 if self.reader is None else 4

    def infer(self, encoded: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """See `Operator.infer`. The outputs are those that the class describes."""
        check_encoded(encoded)
        num_words = _cpu.TABLE_WORDS if self.on_gpu else 0
        return (
            self.pixels or Spec(np.dtype(np.uint8), 1, None),
            Spec(np.dtype(np.int32), 1, (_cpu.INFO_COLUMNS,)),
            Spec(np.dtype(np.int32), 1, (num_words,)),
            *(() if self.reader is None else (PLACE,)),
        )

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        """See `Operator.bind`. With `pixels`, all images of a batch are decoded here: sequences, and the first batch's
        images if a registered decoder decodes one of them.
        """
        check_encoded(specs[0])
        if is_sequence(specs[0]):
            if self.replace_shape is not None:
                raise ArgumentError("replace_shape is the shape of an image, but the samples are sequences")
            if "page" in self.args:
                raise ArgumentError("page is the number of a picture in an image file, but the samples are sequences")
            dims = (specs[0].extent(0), *self.images.extents, num_channels(self.images.output_type))
            return dataclasses.replace(self, pixels=Spec(self.images.dtype, 4, None, "FHWC", dims))
        if not registered.names():
            return dataclasses.replace(self, on_gpu=self.on_device and self.images.kernel in ctx.kernels)
        samples = ctx.first_samples(0)
        if samples is None:
            raise ArgumentError("decoders are registered, so the first batch determines the type of the images")
        pixels = registered.first_spec(samples)
        if pixels is None:
            return dataclasses.replace(self, on_gpu=self.on_device and self.images.kernel in ctx.kernels)
        if pixels.ndim != 3 and self.replace_shape is not None:
            raise ArgumentError("replace_shape is the shape of an image, but the samples are volumes")
        # Images HWC or volumes DHWC; UINT8, the default of `dtype`, keeps the type of the registered decoder's arrays.
        dims = (*self.images.extents, None) if pixels.ndim == 3 else (None, *self.images.extents, None)
        dtype = pixels.dtype if self.images.dtype == np.uint8 else self.images.dtype
        return dataclasses.replace(self, pixels=dataclasses.replace(pixels, dtype=dtype, dims=dims))

    def ahead_of(self, consumers: Sequence[Operator]) -> Operator:
        return dataclasses.replace(
            self, images=next((r for r in consumers if isinstance(r, DecodeArguments)), self.images)
        )

    def _choose_scales(self, ctx: HostContext, info: np.ndarray, arguments: Sequence[Value]):
        """Chooses the scale, 1/2, 1/4 or 1/8, at which JPEG, WebP and JPEG 2000 images are decoded.

        It is the smallest scale at which the image is not smaller than the resized result. The scaled extents are
        written into `info`.

        Args:
          arguments: those of the resize that come per sample; empty: none, or they are not known.
        """
        op = self.images
        # Images are scaled only for a resize that is their only reader; GPU kernels decode at full size.
        if op.resize is None or self.on_gpu:
            return
        extents = output_shapes(info, op.output_type, op.adjust_orientation)[:, :2]
        try:
            sizes = op.resize.sizes_of(dataclasses.replace(ctx, fail=lambda *_: None), extents, arguments)
        except (ValueError, TypeError):  # the set-up of the resize fails in the same way, and reports the reason
            return
        if sizes is None:  # the resize has regions, or arguments that are not known here
            return
        kinds = info[:, Info.FORMAT]
        scalable = (kinds == Format.JPEG) | ((kinds == Format.JPEG2000) & (info[:, Info.DEPTH] == 8))
        scalable |= (kinds == Format.WEBP) & (info[:, Info.HOST_DECODE] == 0)
        scalable &= info[:, Info.STATUS] == 0
        # Extents are rounded up, as libjpeg and JPEG 2000 do.
        for scale in (8, 4, 2):
            fits = (-(-extents // scale) >= sizes).all(axis=1) & scalable
            for column in (Info.HEIGHT, Info.WIDTH, Info.REGION_H, Info.REGION_W):
                info[fits, column] = -(-info[fits, column] // scale)
            sizes[fits] = np.iinfo(np.int32).max  # no larger scale fits any more

    def choose_regions(self, ctx: HostContext, info: np.ndarray, values: Sequence[Value]) -> dict[int, str]:
        """Writes the region of each image to decode into `info`; by default the whole image.

        Args:
          values: the values of all inputs.

        Returns:
          Reasons by image, for the images whose status it has set.
        """
        return {}

    def _narrow(
        self, ctx: HostContext, info: np.ndarray, reader: ImageWindow, arguments: Sequence[Value]
    ) -> np.ndarray:
        """Writes the region that a window reads into `info`. Before, the regions are the whole images.

        Returns:
          The place of each region in its image, ``i64[N, 5]``: the shape of the image, HWC, and the region's first row
          and column. These two are -1 if the window's set-up fails, which the window's own step then reports.
        """
        op = self.images
        shapes = output_shapes(info, op.output_type, op.adjust_orientation)
        place = np.full((ctx.N, 5), -1, np.int64)
        place[:, :3] = shapes
        if (part := reader.region(ctx, shapes, *arguments)) is not None:
            start, extents = part
            _cpu.set_regions(info, op.adjust_orientation, start, extents)
            place[:, 3:] = start
        return place

    def run(self, ctx: HostContext, *values: Value) -> tuple[Any, ...]:
        """See `HostOperator.run`. The inputs are the images, then the operator's arguments, then those of `reader` or of
        the resize.
        """
        reads_more = self.reader is not None or self.reads_sizes
        num_inputs = 1 + len(self.args.inputs) if reads_more else len(values)
        values, arguments = values[:num_inputs], values[num_inputs:]
        if self.pixels is not None:
            arrays = self._decode_arrays(ctx, self.pixels, values)
            return arrays, np.zeros((ctx.N, _cpu.INFO_COLUMNS), np.int32), np.zeros((ctx.N, 0), np.int32)
        source = packed(ctx, values[0])
        info, largest = parse_headers(ctx, source)
        rasters, reasons = self._registered_rasters(ctx, source, info)
        pages, page_reasons = self._select_pages(ctx, source, info, rasters, values)
        reasons |= self.images.write_options(info)
        # The common batch, which takes the short way below: native decoders read all images, and none can be too large.
        is_common = 0 <= largest <= self.max_pixels and "page" not in self.args and not rasters
        if not is_common:
            reasons |= page_reasons | refuse_large(
                info, lambda i: pages[i] if i in pages else source[i], self.max_pixels
            )
        reasons |= self.choose_regions(ctx, info, values)
        self._choose_scales(ctx, info, arguments)
        place = () if self.reader is None else (self._narrow(ctx, info, self.reader, arguments),)
        if is_common and not reasons and not ctx.bad and self.cache is None and not self.on_gpu:
            # The kernels decode all images, and the bytes are not copied. Only GPU kernels have a `reader`, and so a place.
            return source, info, np.zeros((ctx.N, 0), np.int32)
        samples = _EncodedBatch(
            source, info, np.zeros((ctx.N, _cpu.TABLE_WORDS if self.on_gpu else 0), np.int32), rasters, pages
        )
        return (*self._decode_rest(ctx, samples, reasons), *place)

    def _decode_rest(
        self, ctx: HostContext, x: _EncodedBatch, reasons: dict[int, str]
    ) -> tuple[Packed, np.ndarray, np.ndarray]:
        """Decodes what the kernels can't decode. Returns the first three outputs.

        Args:
          x: the samples.
          reasons: why some of them, whose status is set, can't be decoded.
        """
        source, info = x.source, x.info
        cache_use = None if self.cache is None else ctx.resource(functools.partial(CacheUse, self.cache))
        if cache_use is not None:
            self._look_up(ctx, x, cache_use)
        remaining = np.zeros(ctx.N, bool)  # images that GPU kernels don't decode, and images for the cache
        candidates: list[int] = []  # images whose coefficients GPU kernels may take
        if self.on_gpu:
            # `ctx.bad` has the samples that the kernels of an earlier attempt at this batch have failed. The host can
            # decode those that they have refused.
            usable = ctx.present & (info[:, Info.STATUS] == 0)
            for i in (i for i, code in ctx.bad.items() if code == Status.REFUSED):
                _refused.add(source[i])
            usable &= ~_refused.among(source)
            # Other pages and pixels from the cache, images for the cache, and those of registered decoders.
            usable[[*x.data, *x.keys, *x.rasters]] = False
            _cpu.make_jpeg_tables(
                source.data, source.offsets, np.ascontiguousarray(source.shapes[:, 0]), info, usable, x.tables, ctx.pool
            )
            # An image without tables is none that the GPU kernels decode.
            remaining = ctx.present & (x.tables[:, 0] == 0)
            candidates = np.flatnonzero(usable & remaining).tolist()
        remaining[[*x.keys]] = True
        remaining &= info[:, Info.FORMAT] != Format.PIXELS  # the cache had them
        if (
            not ctx.bad
            and not x.data
            and not x.rasters
            and not (info[:, Info.STATUS] | info[:, Info.HOST_DECODE] | remaining).any()
        ):
            return source, info, x.tables  # the bytes as they came, without a copy

        x.failed = {
            i: (int(info[i, Info.STATUS]), reasons.get(i) or refusal(source[i], info[i]))
            for i in np.flatnonzero(info[:, Info.STATUS]).tolist()
        }
        self._decode_rasters(ctx, x)
        for i, code in ctx.bad.items():
            if code != Status.REFUSED:
                x.failed.setdefault(i, (code, ""))  # the sample's own failure, not that of the sample which replaced it
        remaining[self._compact(ctx, x, [i for i in candidates if i not in x.failed])] = False
        self._decode_pixels(ctx, x, [int(i) for i in np.flatnonzero(remaining) if i not in x.failed])
        if cache_use is not None:
            cache_use.keep({key: x.data[i] for i, key in x.keys.items() if i not in x.failed})
        x.failed = {i: (code, self.images.failure(info[i], code, reason)) for i, (code, reason) in x.failed.items()}
        if self.images.on_error == "raise":
            for i in sorted(x.failed):
                ctx.fail(i, *x.failed[i])
        else:
            self._replace(ctx, x)
        # Failed samples without a replacement are decoded like absent ones, whose rows are zeros.
        info[[i for i in x.failed if info[i, Info.STATUS]]] = 0
        if x.data:
            source = pack([x.bytes_of(i) for i in range(ctx.N)], ctx.S, ctx.empty)
        return source, info, x.tables

    def _select_pages(
        self,
        ctx: HostContext,
        source: Packed,
        info: np.ndarray,
        rasters: dict[int, np.ndarray],
        values: Sequence[Value],
    ) -> tuple[dict[int, np.ndarray], dict[int, str]]:
        """Sets the info rows of samples with a `page` other than 0.

        Args:
          rasters: the images that registered decoders have decoded, which have no other pages.
          values: the values of all inputs.

        Returns:
          (bytes that replace those of some samples, reasons of the samples that have no such page).
        """
        data: dict[int, np.ndarray] = {}
        reasons: dict[int, str] = {}
        if "page" not in self.args:
            return data, reasons
        pages = self.arguments(ctx, values).page
        for i in np.flatnonzero((pages > 0) & ctx.present & (info[:, Info.STATUS] == 0)).tolist():
            try:
                if i in rasters:
                    raise DecodeError(Status.ARGUMENT, _PAGE_OF_REGISTERED)
                file = source[i]
                page_file, info[i] = select_page(file, info[i], int(pages[i]))
                if page_file is not file:
                    data[i] = page_file
            except DecodeError as e:
                rasters.pop(i, None)
                info[i, Info.STATUS], reasons[i] = e.code, str(e)
        return data, reasons

    def _registered_rasters(
        self, ctx: HostContext, source: Packed, info: np.ndarray
    ) -> tuple[dict[int, np.ndarray], dict[int, str]]:
        """Decodes the samples that registered decoders match, in a pipeline whose outputs are images of 8 bits.

        Returns:
          (images of 8 or 16 bits, reasons of the samples that failed). Their rows of `info` are set.
        """
        rasters: dict[int, np.ndarray] = {}
        reasons: dict[int, str] = {}
        if not registered.names():
            return rasters, reasons
        present = np.flatnonzero(ctx.present).tolist()
        decoded = map_on_threads(
            lambda i: registered.decode_registered(source[i]), present, ctx.num_threads, registered.THREADS
        )
        for i, x in zip(present, decoded, strict=True):
            if x is None:
                continue
            # The kernels decode rasters of 8 or 16 bits, with 1 to 4 channels.
            if isinstance(x, np.ndarray) and (
                x.dtype not in (np.uint8, np.uint16) or x.ndim != 3 or not 1 <= x.shape[2] <= 4
            ):
                text = f"a registered decoder gives {x.dtype}{list(x.shape)}, but the first batch has only 8-bit images of other formats"
                x = DecodeError(Status.UNSUPPORTED, text)
            if isinstance(x, DecodeError):
                info[i] = 0
                info[i, Info.STATUS], reasons[i] = x.code, str(x)
            else:
                rasters[i] = x
                info[i] = row_of_pixels(Format.RAW, *x.shape)
                info[i, Info.DEPTH] = 8 * x.itemsize
        return rasters, reasons

    def _decode_arrays(self, ctx: HostContext, pixels: Spec, values: Sequence[Value]) -> list[np.ndarray]:
        """Decodes a batch to finished arrays: images or volumes of registered decoders, or sequences of images.

        Args:
          pixels: the spec of the arrays, whose dtype and number of dimensions all have.
          values: the values of all inputs, of which the first has the encoded files.

        Returns:
          An array for each sample; an empty one for samples that are absent or that failed.
        """
        source = values[0].data
        assert source is not None
        cache_use = None if self.cache is None else ctx.resource(functools.partial(CacheUse, self.cache))
        pages = self.arguments(ctx, values).page.tolist() if "page" in self.args else [0] * ctx.N
        keys = {
            i: (digest(source[i]), pages[i], registered.names(), pixels, self.images.pixel_arguments)
            for i in np.flatnonzero(ctx.present).tolist()
            if cache_use is not None
        }
        cached = {i: x for i, key in keys.items() if cache_use is not None and (x := cache_use.get(key)) is not None}
        missing = [i for i in np.flatnonzero(ctx.present).tolist() if i not in cached]
        decoder = ArrayDecoder(self.images, self.max_pixels, self.storage)
        decode = decoder.frames if is_sequence(values[0].spec) else registered.decode_registered
        decoded = map_on_threads(lambda i: decode(source[i]), missing, ctx.num_threads, registered.THREADS)
        results: dict[int, Any] = dict(zip(missing, decoded, strict=True))
        # None: no registered decoder takes the file. Those that do have no pages but 0.
        for i, x in results.items():
            if x is None:
                results[i] = decoder.decode_builtin(ctx.pool, source[i], pages[i])
            elif pages[i]:
                results[i] = DecodeError(Status.ARGUMENT, _PAGE_OF_REGISTERED)
        results = cached | {i: decoder.check(x, pixels) for i, x in results.items()}
        info = np.zeros((ctx.N, _cpu.INFO_COLUMNS), np.int32)
        failed = {i: (int(x.code), str(x)) for i, x in results.items() if isinstance(x, DecodeError)}
        arrays = {i: x for i, x in results.items() if isinstance(x, np.ndarray)}
        if cache_use is not None:
            cache_use.keep({keys[i]: x for i, x in arrays.items() if i not in cached})
        for i, x in arrays.items():
            info[i] = row_of_pixels(Format.RAW, *x.shape[-3:])  # of a volume, the row of one slice
        info[[*failed], Info.STATUS] = [code for code, _ in failed.values()]
        # Windows are cut from the finished arrays; `choose_regions` sets the status of those that don't fit.
        reasons = self.choose_regions(ctx, info, values)
        for i, x in arrays.items():
            if info[i, Info.STATUS]:
                failed[i] = int(info[i, Info.STATUS]), reasons.get(i, "")
            else:
                y, x0, h, w = info[i, [Info.REGION_Y, Info.REGION_X, Info.REGION_H, Info.REGION_W]].tolist()
                arrays[i] = x[..., y : y + h, x0 : x0 + w, :]
        empty = np.zeros((0,) * pixels.ndim, pixels.dtype)  # in place of failed and absent samples
        if self.images.on_error != "raise":
            self._replace_arrays(ctx, arrays, failed, pixels)
        for i in sorted(failed):
            ctx.fail(i, *failed[i])
        return [arrays[i] if i in arrays and i not in failed else empty for i in range(ctx.N)]

    def _replace_arrays(
        self, ctx: HostContext, arrays: dict[int, np.ndarray], failed: dict[int, tuple[int, str]], pixels: Spec
    ):
        """Replaces failed samples as `_replace` does. Samples without a replacement stay in `failed`."""
        replaced: list[int] = []
        for i, (code, reason) in failed.items():
            if self.replace_shape is not None:
                arrays[i] = np.zeros(self.replace_shape, pixels.dtype)
            elif (replacement := _replacement_of(i, ctx, lambda j: j in arrays and j not in failed)) is not None:
                arrays[i] = arrays[replacement]
            else:
                failed[i] = code, f"{reason or _ffi.STATUS[code]}; no good sample of its batch can replace it"
                continue
            replaced.append(i)
        for i in replaced:
            ctx.report_bad(i, *failed.pop(i))

    def _look_up(self, ctx: HostContext, x: _EncodedBatch, cache_use: CacheUse):
        """Replaces samples by finished pixels from the cache, and sets the keys of those that it should keep."""
        op = self.images
        sizes = output_shapes(x.info, op.output_type, op.adjust_orientation).prod(axis=1) * op.dtype.itemsize
        for i in np.flatnonzero(ctx.present & (x.info[:, Info.STATUS] == 0)).tolist():
            key = (
                digest(x.bytes_of(i)),
                int(x.info[i, Info.PAGE]),
                op.pixel_arguments,
                int(x.info[i, Info.HEIGHT]),
                int(x.info[i, Info.WIDTH]),
            )
            pixels = cache_use.get(key)
            if pixels is not None:
                x.data[i] = replace_file(x.info[i], pixels, Format.PIXELS)
            elif i not in ctx.bad and cache_use.cache.admits(int(sizes[i])):
                x.keys[i] = key

    def _decode_rasters(self, ctx: HostContext, x: _EncodedBatch):
        """Decodes images without a native decoder to rasters, as they are stored in the file (not turned upright)."""
        # Samples in `data` have been replaced already, by pixels from the cache.
        for i, raster in x.rasters.items():
            if i not in x.failed and i not in x.data:
                x.data[i] = raster.reshape(-1).view(np.uint8)
        chosen = [int(i) for i in np.flatnonzero(x.info[:, Info.HOST_DECODE]) if i not in x.failed]
        for i, result in zip(
            chosen, _pillow.decode_all([(x.bytes_of(i), x.info[i]) for i in chosen], ctx.num_threads), strict=True
        ):
            if isinstance(result, DecodeError):
                x.failed[i] = (result.code, str(result))
            else:
                x.data[i] = replace_file(x.info[i], result, Format.RAW)

    def _compact(self, ctx: HostContext, x: _EncodedBatch, chosen: list[int]) -> list[int]:
        """Decodes the coefficients of progressive JPEG, from which GPU kernels make the pixels.

        A file is left out if its coefficients are more bytes to send to the GPU than its pixels, which is rare for
        photos. With `use_fast_idct` no file is taken: only the host has that transform, and pixels must not depend on
        whether a file is taken.

        Returns:
          The samples among `chosen` that have become coefficients.
        """
        op = self.images
        chosen = [i for i in chosen if x.info[i, Info.FORMAT] == Format.JPEG and not x.info[i, Info.HOST_DECODE]]
        if not chosen or op.use_fast_idct:
            return []
        info, tables = x.info[chosen], x.tables[chosen]
        # The sizes of the pixels, above which a file is left out.
        max_bytes = output_shapes(info, op.output_type, op.adjust_orientation).prod(axis=1) * op.dtype.itemsize
        results = _cpu.compact_jpegs(
            [x.bytes_of(i) for i in chosen], info, max_bytes, tables, int(op.output_type), ctx.pool
        )
        x.tables[chosen] = tables
        compacted = {i: data for i, data in zip(chosen, results, strict=True) if data is not None}
        x.data |= compacted
        x.info[[*compacted], Info.FORMAT] = Format.COMPACT
        return [*compacted]

    def _decode_pixels(self, ctx: HostContext, x: _EncodedBatch, chosen: list[int]):
        """Decodes images that GPU kernels don't take to finished pixels."""
        for i, result in zip(
            chosen, self.images.on_host(ctx.pool, [(x.bytes_of(i), x.info[i]) for i in chosen]), strict=True
        ):
            if isinstance(result, int):
                x.failed[i] = (result, "")
            else:
                x.data[i] = result.reshape(-1).view(np.uint8)
                x.info[i, Info.FORMAT] = Format.PIXELS

    def _replace(self, ctx: HostContext, x: _EncodedBatch):
        """Replaces each failed sample by a black image, or by the next valid sample, see `_replacement_of`."""
        for i in sorted(x.failed):
            if self.replace_shape is not None:
                # GPU programs take finished pixels in the output's dtype; those of the CPU take a raster of 8 bits.
                height, width, channels = self.replace_shape
                x.data[i] = np.zeros(
                    height * width * channels * (self.images.dtype.itemsize if self.on_gpu else 1), np.uint8
                )
                kind = Format.PIXELS if self.on_gpu else Format.RAW
                x.info[i] = row_of_pixels(kind, height, width, channels)
                x.tables[i] = 0  # no image for the GPU kernels
            else:
                replacement = _replacement_of(i, ctx, lambda j: j not in x.failed and bool(ctx.present[j]))
                if replacement is None:
                    code, reason = x.failed[i]
                    ctx.fail(i, code, f"{reason or _ffi.STATUS[code]}; no valid sample of its batch can replace it")
                    continue
                x.data[i] = x.bytes_of(replacement)
                x.info[i] = x.info[replacement]
                x.tables[i] = x.tables[replacement]
                # The kernels might refuse it in this shard's batch as well. They refuse no coefficients.
                if ctx.bad.get(i) == Status.REFUSED and x.info[i, Info.FORMAT] == Format.JPEG:
                    self._decode_pixels(ctx, x, [i])
                    x.tables[i] = 0  # no image for the GPU kernels
            ctx.report_bad(i, *x.failed[i])
