"""Decoders of formats that users register."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..._core.errors import ArgumentError, ArgumentTypeError
from ..._core.values import Spec
from ..._cpu import Status
from ...types import to_dali_type
from .formats import DecodeError

LAYOUTS = {3: "HWC", 4: "DHWC"}
THREADS = "jaxdali-decoder"  # the name of the threads that call registered decoders


@dataclasses.dataclass(frozen=True)
class Decoder:
    """A registered decoder; see `register_decoder`."""

    name: str
    matches: Callable[[bytes], Any]
    decode: Callable[[bytes], Any]

    def array(self, data: bytes) -> np.ndarray:
        """The decoded array, ``[H, W, C]`` or ``[D, H, W, C]``, contiguous. Raises `DecodeError`."""
        try:
            x = np.asarray(self.decode(data))
        except MemoryError:
            raise DecodeError(Status.OUT_OF_MEMORY, "out of memory") from None
        except Exception as e:  # the function is the user's, and data may be damaged in any way
            raise DecodeError(Status.CORRUPT, f"the decoder {self.name!r} failed: {type(e).__name__}: {e}") from e
        x = x[..., None] if x.ndim == 2 else x  # a gray image gets an axis of channels
        try:
            to_dali_type(x.dtype.newbyteorder("="))
        except (TypeError, KeyError):
            raise DecodeError(
                Status.UNSUPPORTED, f"the decoder {self.name!r} returned values of type {x.dtype}"
            ) from None
        if x.ndim not in LAYOUTS:
            raise DecodeError(
                Status.UNSUPPORTED,
                f"the decoder {self.name!r} must return an array (H, W, C) or (D, H, W, C), got the shape {x.shape}",
            )
        return np.ascontiguousarray(x, x.dtype.newbyteorder("="))


_decoders: tuple[Decoder, ...] = ()  # in the order in which they are asked, the latest first
_lock = threading.Lock()  # guards changes of `_decoders`; readers need no lock, as the tuple never changes


def register_decoder(
    matches: Callable[[bytes], Any], decode: Callable[[bytes], Any], *, name: str | None = None
) -> None:
    """Makes `decoders.image` and its relatives decode a further format.

    It applies to `decoders.image`, `image_crop`, `image_random_crop` and `image_slice`, `peek_image_shape`, and the
    frames of `readers.sequence`, in all pipelines of the process that are built afterwards, and in `jaxdali.dynamic`. A
    decoder that was registered later is asked earlier, and all are asked before the formats that jaxdali knows.

    While decoders are registered, the first batch determines the outputs of image decoders. If it has a sample that a
    registered decoder matches, they have the type and the number of dimensions of that sample; values are not scaled,
    and `output_type` has no effect on them. All samples must then agree; images of other formats are decoded as RGB (or
    `output_type`). A `dtype` other than UINT8 converts values by rounding and saturation. If the first batch has no
    such sample, images are decoded as usual, and later samples that match must be 8-bit images. In `jaxdali.dynamic`
    this holds for the batch of each call. Windows of a volume are windows of each of its slices.

    Both functions are called in `num_threads` threads at the same time. Where the interpreter has a lock (GIL), only
    work that releases it, as NumPy and many libraries do, uses several cores; a free-threaded Python has none. Any
    exception that `decode` raises is a `SampleError` of its sample, which names the file. Before Python 3.11.8,
    functions that parse Python's literals, as `numpy.load` does, sometimes raise a `SystemError` in threads
    (python/cpython#106905): hold a lock there.

    Args:
      matches: whether some bytes, a whole file, are of the format; should look at their beginning only.
      decode: makes an array of the bytes: an image ``(H, W)`` or ``(H, W, C)``, or a volume ``(D, H, W, C)``.
      name: name of the format in messages and in serialized pipelines, which say when a decoder is missing. A decoder
        of the same name is replaced. Default: module and name of `decode`.

    Example:
      >>> register_decoder(lambda data: data[128:132] == b"DICM", lambda data: pydicom.dcmread(io.BytesIO(data)).pixel_array, name="dicom")
    """
    global _decoders
    for argument, f in (("matches", matches), ("decode", decode)):
        if not callable(f):
            raise ArgumentTypeError(f"register_decoder: {argument} must be a function of bytes, got {type(f).__name__}")
    if name is None:
        name = f"{getattr(decode, '__module__', '')}.{getattr(decode, '__qualname__', type(decode).__qualname__)}"
    if not isinstance(name, str):
        raise ArgumentTypeError(f"register_decoder: name must be a str, got {type(name).__name__}")
    with _lock:
        _decoders = (Decoder(name, matches, decode), *(d for d in _decoders if d.name != name))


def unregister_decoder(name: str) -> None:
    """Removes a decoder that `register_decoder` added, for pipelines that are built afterwards.

    Raises:
      ValueError: there is none of this name.
    """
    global _decoders
    with _lock:
        if name not in names():
            raise ArgumentError(f"there is no registered decoder {name!r}; there are {list(names())}")
        _decoders = tuple(d for d in _decoders if d.name != name)


def registered() -> tuple[Decoder, ...]:
    """All registered decoders, for `use` in another process."""
    return _decoders


def use(decoders: tuple[Decoder, ...]):
    """Registers the decoders of another process in place of those registered here."""
    global _decoders
    with _lock:
        _decoders = decoders


def names() -> tuple[str, ...]:
    """The names of all registered decoders."""
    return tuple(d.name for d in _decoders)


def decoder_of(data: bytes) -> Decoder | None:
    """The decoder for a file; None if no registered decoder matches.

    Raises:
      DecodeError: a function `matches` failed.
    """
    for d in _decoders:
        try:
            is_match = bool(d.matches(data))
        except Exception as e:
            text = f"the function matches of the decoder {d.name!r} failed: {type(e).__name__}: {e}"
            raise DecodeError(Status.UNKNOWN_FORMAT, text) from e
        if is_match:
            return d
    return None


def decode_registered(data: np.ndarray) -> np.ndarray | DecodeError | None:
    """The array of a file, or an error; None if no registered decoder matches."""
    content = data.tobytes()
    try:
        decoder = decoder_of(content)
        return None if decoder is None else decoder.array(content)
    except DecodeError as e:
        return e


def first_spec(samples: Sequence[np.ndarray]) -> Spec | None:
    """The spec of the first sample that a registered decoder decodes; None if there is none."""
    for data in samples:
        x = decode_registered(data)
        if isinstance(x, np.ndarray):
            return Spec(x.dtype, x.ndim, None, LAYOUTS[x.ndim])
    return None


def kind_of(samples: Sequence[np.ndarray]) -> tuple[str, int] | None:
    """The dtype and the rank to which registered decoders decode samples; None if they decode none.

    A program depends on them, so they are part of its key.
    """
    spec = first_spec(samples) if _decoders else None
    return None if spec is None else (spec.dtype.name, spec.ndim)
