"""The operators, under DALI's names. This file is their index."""

from . import decoders as decoders
from . import random as random
from . import readers as readers
from ._cast import cast as cast
from ._external_source import external_source as external_source
from ._peek_image_shape import peek_image_shape as peek_image_shape
from ._resize import resize as resize
from ._rotate import rotate as rotate
from ._shapes import shapes as shapes
