"""``fn.random``: random numbers, one or a tensor of them per sample. This file is the index."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..._core import names as _names
from ._beta import beta as beta
from ._choice import choice as choice
from ._coin_flip import coin_flip as coin_flip
from ._key import key as key
from ._normal import normal as normal
from ._uniform import uniform as uniform

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals())
