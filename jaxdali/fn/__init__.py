"""The operators, under DALI's names. This file is their index."""

from . import decoders as decoders
from . import random as random
from . import readers as readers
from ._decode.peek_image_shape import peek_image_shape as peek_image_shape
from ._image.resize import resize as resize
from ._image.rotate import rotate as rotate
from ._source.external_source import external_source as external_source
from ._tensor.cast import cast as cast
from ._tensor.expand_dims import expand_dims as expand_dims
from ._tensor.reshape import reinterpret as reinterpret
from ._tensor.reshape import reshape as reshape
from ._tensor.shapes import shapes as shapes
from ._tensor.squeeze import squeeze as squeeze
