"""``fn.decoders``: encoded images to pixels. This file is the index."""

from ._operators import image as image
from ._operators import image_crop as image_crop
from ._operators import image_random_crop as image_random_crop
from ._operators import image_slice as image_slice
