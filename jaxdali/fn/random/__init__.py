"""``fn.random``: random numbers, one or a tensor of them per sample. This file is the index."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..._core import names as _names
from ._operators import beta as beta
from ._operators import choice as choice
from ._operators import coin_flip as coin_flip
from ._operators import key as key
from ._operators import normal as normal
from ._operators import uniform as uniform

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals())
