"""``fn.experimental.decoders``: old names of decoders."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..._core import names as _names
from .. import decoders as _decoders
from .._deprecated import renamed as _renamed

image = _renamed("experimental.decoders.image", "decoders.image", _decoders.image)
image_crop = _renamed("experimental.decoders.image_crop", "decoders.image_crop", _decoders.image_crop)
image_random_crop = _renamed(
    "experimental.decoders.image_random_crop", "decoders.image_random_crop", _decoders.image_random_crop
)
image_slice = _renamed("experimental.decoders.image_slice", "decoders.image_slice", _decoders.image_slice)
video = _renamed("experimental.decoders.video", "decoders.video", _decoders.video)

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(
        __name__, globals(), "image image_crop image_random_crop image_slice video"
    )
