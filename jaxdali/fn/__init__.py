"""The operators, under DALI's names. This file is their index."""

from . import decoders as decoders
from . import random as random
from . import readers as readers
from ._decode.peek_image_shape import peek_image_shape as peek_image_shape
from ._image.brightness_contrast import brightness as brightness
from ._image.brightness_contrast import brightness_contrast as brightness_contrast
from ._image.brightness_contrast import contrast as contrast
from ._image.color_twist import color_twist as color_twist
from ._image.color_twist import hsv as hsv
from ._image.color_twist import hue as hue
from ._image.color_twist import saturation as saturation
from ._image.crop import crop as crop
from ._image.crop_mirror_normalize import crop_mirror_normalize as crop_mirror_normalize
from ._image.flip import flip as flip
from ._image.gaussian_blur import gaussian_blur as gaussian_blur
from ._image.resize import resize as resize
from ._image.rotate import rotate as rotate
from ._source.external_source import external_source as external_source
from ._tensor.cast import cast as cast
from ._tensor.expand_dims import expand_dims as expand_dims
from ._tensor.reshape import reinterpret as reinterpret
from ._tensor.reshape import reshape as reshape
from ._tensor.shapes import shapes as shapes
from ._tensor.squeeze import squeeze as squeeze
