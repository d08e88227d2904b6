"""``fn.decoders``: encoded images to pixels.

A decoder is two operators. `ImageHeaders`, on the host, parses the headers of the whole batch and decodes what is neither
JPEG nor PNG (see `jaxdali._pillow`); `DecodeImage` decodes JPEG and PNG in the compiled program and copies raw pixels.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _cpu, _ffi, _pillow, types
from ..graph import DataNode, Operator, Spec, Value, add
from ..ragged import Packed, plan_offsets

if TYPE_CHECKING:
    from ..host import HostContext
    from ..lowering import LowerContext

# Columns of an info row; struct ImageInfo of ffi/image_header.h.
STATUS, FORMAT, HEIGHT, WIDTH, CHANNELS, DEPTH, ORIENTATION, HOST_DECODE, ORIENTATION_AT = range(9)
assert _cpu.INFO_COLUMNS == 9

OUTPUT_TYPES = tuple(types.DALIImageType)
DTYPES = tuple(np.dtype(t) for t in (np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.float16, np.float32, np.float64))
_CORRUPT = 2


def parse_headers(encoded: Packed) -> np.ndarray:
    """What the headers of encoded images say: one native call for all of them, without the GIL.

    Args:
      encoded: N byte strings, u8, 1-D.

    Returns:
      ``i32[N, 9]``: status, format, height, width, channels, depth, orientation, host_decode, orientation_at.
    """
    info = np.empty((len(encoded), _cpu.INFO_COLUMNS), np.int32)
    _cpu.parse_headers(encoded.data, encoded.offsets, np.ascontiguousarray(encoded.shapes[:, 0]), info)
    return info


def output_shapes(info: np.ndarray, output_type: types.DALIImageType, adjust_orientation: bool) -> np.ndarray:
    """Shapes ``i64[N, 3]`` of the decoded images."""
    shapes = info[:, [HEIGHT, WIDTH, CHANNELS]].astype(np.int64)
    if adjust_orientation:
        turned = info[:, ORIENTATION] >= 5
        shapes[turned, :2] = shapes[turned, 1::-1]
    channels = num_channels(output_type)
    if channels is not None:
        shapes[:, 2] = channels
    return shapes


def num_channels(output_type: types.DALIImageType) -> int | None:
    """Channels of a decoded image; None: those of the file."""
    return {types.GRAY: 1, types.ANY_DATA: None}.get(output_type, 3)


def check_encoded(encoded: Spec):
    """Raises when an input can't be encoded images."""
    if encoded.dtype != np.uint8 or encoded.ndim != 1:
        raise TypeError(f"the input must be encoded images, 1-D uint8 (a file's bytes), got {encoded.ndim}-D {encoded.dtype}")


def packed(ctx: HostContext, encoded: Value) -> Packed:
    """A host value of encoded images as a packed batch."""
    if isinstance(encoded.data, Packed):
        return encoded.data
    assert encoded.data is not None
    return repack(ctx, list(encoded.data))


def repack(ctx: HostContext, samples: Sequence[np.ndarray]) -> Packed:
    """Copies byte strings into output 0 of a host operator."""
    shapes = np.array([[s.size] for s in samples], np.int64)
    offsets, need = plan_offsets(shapes, ctx.S)
    result = Packed(ctx.empty(need, np.uint8), offsets, shapes)
    for i, sample in enumerate(samples):
        result[i][...] = sample
    return result


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageHeaders(Operator):
    """Encoded images -> (what the kernel decodes, info rows). Bad samples are reported or replaced here."""

    name = "decoders.image"  # what users know; they never see this one
    runs = frozenset({"host"})
    on_error: str = "raise"
    replace_shape: tuple[int, int, int] | None = None

    @property
    def num_outputs(self) -> int:
        return 2

    def infer(self, encoded: Spec) -> tuple[Spec, ...]:
        check_encoded(encoded)
        return Spec(np.dtype(np.uint8), 1, None), Spec(np.dtype(np.int32), 1, (_cpu.INFO_COLUMNS,))

    def run(self, ctx: HostContext, encoded: Value) -> tuple[Packed, np.ndarray]:
        source = packed(ctx, encoded)
        info = parse_headers(source)
        info[~ctx.present] = 0
        if not ctx.bad and not (info[:, STATUS] | info[:, HOST_DECODE]).any():
            return source, info  # as it came: nothing is copied

        failed = {int(i): (int(info[i, STATUS]), "") for i in np.flatnonzero(info[:, STATUS])}
        samples: dict[int, np.ndarray] = {}
        chosen = [int(i) for i in np.flatnonzero(info[:, HOST_DECODE]) if i not in failed and i not in ctx.bad]
        for i, result in zip(chosen, _pillow.decode_all([(source[i], info[i]) for i in chosen], ctx.num_threads), strict=True):
            if isinstance(result, _pillow.DecodeError):
                failed[i] = (result.code, str(result))
            else:
                samples[i] = result.reshape(-1).view(np.uint8)
                info[i] = _raw(info[i, HEIGHT], info[i, WIDTH], info[i, CHANNELS], 8 * result.itemsize, info[i, ORIENTATION])
        for i in ctx.bad:
            failed.setdefault(i, (_CORRUPT, "the image data are damaged or end early"))  # what the kernel found is not passed on
        if failed and self.on_error == "raise":
            for i in sorted(failed):
                ctx.fail(i, *failed[i])
        elif failed:
            self._replace(ctx, source, info, samples, failed)
        info[[i for i in failed if info[i, STATUS]]] = 0
        if not samples:
            return source, info
        return repack(ctx, [samples[i] if i in samples else source[i] for i in range(ctx.N)]), info

    def _replace(
        self, ctx: HostContext, source: Packed, info: np.ndarray, samples: dict[int, np.ndarray], failed: dict[int, tuple[int, str]]
    ):
        """Puts a black image, or the next good sample, in the place of each failed one: of its shard (cyclic), or else of the others."""
        for i in sorted(failed):
            if self.replace_shape is not None:
                samples[i] = np.zeros(int(np.prod(self.replace_shape)), np.uint8)
                info[i] = _raw(*self.replace_shape, 8, 1)
            else:
                first = i - i % ctx.B
                others = itertools.chain(
                    (first + (i + k) % ctx.B for k in range(1, ctx.B)), ((first + k) % ctx.N for k in range(ctx.B, ctx.N))
                )
                good = next((j for j in others if j not in failed and ctx.present[j]), None)
                if good is None:
                    code, reason = failed[i]
                    ctx.fail(i, code, f"{reason}{'; ' if reason else ''}no good sample of its batch can replace it")
                    continue
                samples[i] = samples.get(good, source[good])
                info[i] = info[good]
            ctx.report_bad(i, *failed[i])


def _raw(height: int, width: int, channels: int, depth: int, orientation: int) -> list[int]:
    return [0, _pillow.RAW, height, width, channels, depth, orientation, 0, -1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodeImage(Operator):
    """(payload, info rows) of `ImageHeaders` -> images HWC."""

    name = "decoders.image"
    runs = frozenset({"compute"})
    native = True
    kernel = "decode"
    output_type: types.DALIImageType
    dtype: np.dtype
    adjust_orientation: bool
    use_fast_idct: bool
    on_error: str  # read by the executor when the kernel refuses a sample

    def infer(self, payload: Spec, info: Spec) -> tuple[Spec, ...]:
        return (Spec(self.dtype, 3, None, "HWC", (None, None, num_channels(self.output_type))),)

    def setup(self, ctx: HostContext, payload: Value, info: Value):
        rows = info.data
        assert isinstance(rows, np.ndarray)
        ctx.param("info", rows)
        return (output_shapes(rows, self.output_type, self.adjust_orientation),)

    def lower(self, ctx: LowerContext, payload: Any, info: Any):
        image, status = _ffi.call(
            "decode",
            ctx,
            payload,
            ctx.spec,
            ctx.out[0],
            ctx.params["info"],
            output_type=int(self.output_type),
            adjust_orientation=self.adjust_orientation,
            fast_idct=self.use_fast_idct,
        )
        return (image,), status


def image(
    input: Any,
    /,
    *,
    output_type: types.DALIImageType = types.RGB,
    dtype: Any = types.UINT8,
    adjust_orientation: bool = True,
    use_fast_idct: bool = False,
    jpeg_fancy_upsampling: bool = False,
    on_error: str = "raise",
    replace_shape: Sequence[int] | None = None,
    device: str | None = None,
    name: str | None = None,
    affine: bool = True,
    bytes_per_sample_hint: int | Sequence[int] = 0,
    cache_batch_copy: bool = True,
    cache_debug: bool = False,
    cache_size: int = 0,
    cache_threshold: int = 0,
    cache_type: str = "",
    device_memory_padding: int = 16777216,
    device_memory_padding_jpeg2k: int = 0,
    host_memory_padding: int = 8388608,
    host_memory_padding_jpeg2k: int = 0,
    hw_decoder_load: float = 0.65,
    hybrid_huffman_threshold: int = 1000000,
    memory_stats: bool = False,
    preallocate_height_hint: int = 0,
    preallocate_width_hint: int = 0,
    preserve: bool = False,
    split_stages: bool = False,
    use_chunk_allocator: bool = False,
) -> DataNode:
    """Decodes images: JPEG, PNG, BMP, TIFF, WebP, PNM and JPEG 2000, of 1 to 16 bits.

    JPEG is decoded by libjpeg-turbo (the same pixels as Pillow's), PNG by libpng. Other formats are decoded by Pillow while
    the batch is prepared; 16-bit TIFF and JPEG 2000 need the package imagecodecs (``pip install jaxdali[formats]``).

    Args:
      input: encoded images, 1-D uint8, as readers and external_source give them. A host value.
      output_type: RGB, BGR, GRAY, YCbCr (ITU-R BT.601, studio range) or ANY_DATA: the channels of the file (gray 1, gray with
        alpha 2, colour 3, colour with alpha 4; palettes and CMYK are colour). Alpha is dropped unless ANY_DATA is asked for.
        GRAY of a YCbCr JPEG is its Y plane; of anything else 0.299 R + 0.587 G + 0.114 B.
      dtype: UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT16, FLOAT or FLOAT64. Values are scaled to the full range of the
        type: 255 becomes 65535 in UINT16, 1.0 in FLOAT. 16-bit files keep their precision.
      adjust_orientation: apply the EXIF orientation. False: the raster as it is stored.
      use_fast_idct: JPEG: the fast integer IDCT, up to 6 levels off, instead of the accurate one.
      jpeg_fancy_upsampling: JPEG chroma is always upsampled smoothly, as DALI does on the CPU whatever this says.
      on_error: "raise": a `jaxdali.SampleError` that names the file. "replace": the sample is replaced and reported by
        `Pipeline.bad_samples()`. Not in DALI, which always raises.
      replace_shape: with on_error="replace": the replacement is a black image of this shape, (H, W, C). None: it is the next
        good sample of the batch. Not in DALI.
      device: "cpu"; "mixed" puts the result on the accelerator.
      name: name of the node.
      affine, bytes_per_sample_hint, cache_batch_copy, cache_debug, cache_size, cache_threshold, cache_type, device_memory_padding,
        device_memory_padding_jpeg2k, host_memory_padding, host_memory_padding_jpeg2k, hw_decoder_load, hybrid_huffman_threshold,
        memory_stats, preallocate_height_hint, preallocate_width_hint, preserve, split_stages, use_chunk_allocator: hints to
        DALI's GPU decoder and executor, without effect here.

    Returns:
      Images, layout HWC, of different sizes.

    Raises:
      ValueError: an unknown `output_type` or `on_error`, or a `replace_shape` that does not fit the output type.
      TypeError: `dtype` is not one of those above, or the input is not 1-D uint8.

    A file that ends early, is damaged so that nothing can be decoded, promises more pixels than its bytes can hold, or (where Pillow
    decodes it) has more than ``PIL.Image.MAX_IMAGE_PIXELS`` allows fails when the batch is made. Damage inside JPEG scan data gives
    the pixels that can be had. Unlike DALI, ANY_DATA works on gray and CMYK JPEG, PNG with gray and alpha, and 32-bit BMP; WebP with
    EXIF is decoded.

    Example:
      >>> jpegs, labels = fn.readers.file(file_root="images")
      >>> images = fn.decoders.image(jpegs, device="mixed", output_type=types.RGB)
    """
    kind = checked_output_type("output_type", output_type)
    element = types.numpy_dtype(dtype)
    if element not in DTYPES:
        raise TypeError(f"decoders.image: dtype must be one of {', '.join(types.dali_type_of(t).name for t in DTYPES)}, got {dtype!r}")
    if on_error not in ("raise", "replace"):
        raise ValueError(f"decoders.image: on_error must be 'raise' or 'replace', got {on_error!r}")
    shape = None
    if replace_shape is not None:
        shape = tuple(int(n) for n in replace_shape)
        if on_error != "replace":
            raise ValueError("decoders.image: replace_shape is used with on_error='replace' only")
        channels = num_channels(kind)
        if len(shape) != 3 or min(shape) < 1 or shape[2] not in ((1, 2, 3, 4) if channels is None else (channels,)):
            raise ValueError(f"decoders.image: replace_shape must be (height, width, {channels or 'channels'}), got {tuple(replace_shape)}")
    payload, info = add(ImageHeaders(on_error=on_error, replace_shape=shape), input, device="cpu")
    op = DecodeImage(
        output_type=kind, dtype=element, adjust_orientation=bool(adjust_orientation), use_fast_idct=bool(use_fast_idct), on_error=on_error
    )
    return add(op, payload, info, device=device, name=name)


def checked_output_type(argument: str, value: Any) -> types.DALIImageType:
    """An image type; ValueError otherwise."""
    if value not in OUTPUT_TYPES:
        raise ValueError(f"{argument} must be one of {', '.join('types.' + t.name for t in OUTPUT_TYPES)}, got {value!r}")
    return types.DALIImageType(value)
