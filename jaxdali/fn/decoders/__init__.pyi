"""``fn.decoders``: encoded files to pixels and signals."""

from ._audio import audio as audio
from ._image import image as image
from ._image_crop import image_crop as image_crop
from ._image_patches import image_patches as image_patches
from ._image_random_crop import image_random_crop as image_random_crop
from ._image_slice import image_slice as image_slice
from ._inflate import inflate as inflate
from ._numpy import numpy as numpy
from ._video import video as video
