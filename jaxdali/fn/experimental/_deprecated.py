"""Old names of operators that are no longer experimental."""

from __future__ import annotations

from .._audio.audio_resample import audio_resample as _audio_resample
from .._decode.peek_image_shape import peek_image_shape as _peek_image_shape
from .._deprecated import alias, renamed
from .._image.debayer import debayer as _debayer
from .._image.equalize import equalize as _equalize
from .._image.filter import filter as _filter
from .._image.resize import resize as _resize
from .._image.tensor_resize import tensor_resize as _tensor_resize
from ..decoders import inflate as _inflate

audio_resample = renamed("experimental.audio_resample", "audio_resample", _audio_resample)
debayer = renamed("experimental.debayer", "debayer", _debayer)
equalize = renamed("experimental.equalize", "equalize", _equalize)
filter = renamed("experimental.filter", "filter", _filter)
inflate = renamed("experimental.inflate", "decoders.inflate", _inflate)
peek_image_shape = renamed("experimental.peek_image_shape", "peek_image_shape", _peek_image_shape)
resize = alias("experimental.resize", "resize", _resize)
tensor_resize = renamed("experimental.tensor_resize", "tensor_resize", _tensor_resize)
