"""``fn.reductions``: sums, means and extremes over axes of each sample."""

from ._max import max as max
from ._mean import mean as mean
from ._mean_square import mean_square as mean_square
from ._min import min as min
from ._rms import rms as rms
from ._std_dev import std_dev as std_dev
from ._sum import sum as sum
from ._variance import variance as variance
