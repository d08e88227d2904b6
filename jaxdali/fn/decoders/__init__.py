"""``fn.decoders``: encoded files to pixels and signals. This file is the index."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..._core import names as _names
from ._audio import audio as audio
from ._image import image as image
from ._image_crop import image_crop as image_crop
from ._image_random_crop import image_random_crop as image_random_crop
from ._image_slice import image_slice as image_slice
from ._inflate import inflate as inflate
from ._numpy import numpy as numpy
from ._video import video as video

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals())
