"""``fn.reductions``: sums, means and extremes over axes of each sample. This file is the index."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..._core import names as _names
from ._operators import max as max
from ._operators import mean as mean
from ._operators import mean_square as mean_square
from ._operators import min as min
from ._operators import rms as rms
from ._operators import std_dev as std_dev
from ._operators import sum as sum
from ._operators import variance as variance

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals())
