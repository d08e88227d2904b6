"""``fn.random``: random numbers, one or a tensor of them per sample. This file is the index."""

from ._operators import choice as choice
from ._operators import coin_flip as coin_flip
from ._operators import normal as normal
from ._operators import uniform as uniform
