"""``fn.reductions``: sums, means and extremes over axes of each sample. This file is the index."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..._core import names as _names
from ._max import max as max
from ._mean import mean as mean
from ._mean_square import mean_square as mean_square
from ._min import min as min
from ._rms import rms as rms
from ._std_dev import std_dev as std_dev
from ._sum import sum as sum
from ._variance import variance as variance

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals())
