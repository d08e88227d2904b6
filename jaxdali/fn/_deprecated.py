"""Names that DALI deprecated. Each warns, and calls the function that replaces it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from .._core.building import warn
from . import decoders, random, readers, transforms

F = TypeVar("F", bound=Callable[..., Any])


def renamed(old: str, new: str, function: F) -> F:
    """Returns the function `new` under its `old` name, with a warning. Both names are without `fn.`."""

    @functools.wraps(function)
    def deprecated(*inputs: Any, **arguments: Any) -> Any:
        warn(f"fn.{old} is deprecated: it is fn.{new} now", DeprecationWarning)
        return function(*inputs, **arguments)

    deprecated.__name__ = deprecated.__qualname__ = old.rpartition(".")[2]
    deprecated.__doc__ = f"Deprecated name of `fn.{new}`.\n\n{function.__doc__}"
    return cast(F, deprecated)


def alias(name: str, of: str, function: F) -> F:
    """Returns the function `of` under another `name` of DALI's, without a warning."""

    @functools.wraps(function)
    def renamed_function(*inputs: Any, **arguments: Any) -> Any:
        return function(*inputs, **arguments)

    renamed_function.__name__ = renamed_function.__qualname__ = name.rpartition(".")[2]
    renamed_function.__doc__ = f"Another name of `fn.{of}`.\n\n{function.__doc__}"
    return cast(F, renamed_function)


audio_decoder = renamed("audio_decoder", "decoders.audio", decoders.audio)
coco_reader = renamed("coco_reader", "readers.coco", readers.coco)
coin_flip = renamed("coin_flip", "random.coin_flip", random.coin_flip)
caffe2_reader = renamed("caffe2_reader", "readers.caffe2", readers.caffe2)
caffe_reader = renamed("caffe_reader", "readers.caffe", readers.caffe)
file_reader = renamed("file_reader", "readers.file", readers.file)
image_decoder = renamed("image_decoder", "decoders.image", decoders.image)
image_decoder_crop = renamed("image_decoder_crop", "decoders.image_crop", decoders.image_crop)
image_decoder_random_crop = renamed(
    "image_decoder_random_crop", "decoders.image_random_crop", decoders.image_random_crop
)
image_decoder_slice = renamed("image_decoder_slice", "decoders.image_slice", decoders.image_slice)
mxnet_reader = renamed("mxnet_reader", "readers.mxnet", readers.mxnet)
nemo_asr_reader = renamed("nemo_asr_reader", "readers.nemo_asr", readers.nemo_asr)
normal_distribution = renamed("normal_distribution", "random.normal", random.normal)
numpy_reader = renamed("numpy_reader", "readers.numpy", readers.numpy)
sequence_reader = renamed("sequence_reader", "readers.sequence", readers.sequence)
tfrecord_reader = renamed("tfrecord_reader", "readers.tfrecord", readers.tfrecord)
transform_translation = renamed("transform_translation", "transforms.translation", transforms.translation)
uniform = renamed("uniform", "random.uniform", random.uniform)
video_reader = renamed("video_reader", "readers.video", readers.video)
