"""Reductions over axes of each sample."""

from ._operators import max as max
from ._operators import mean as mean
from ._operators import mean_square as mean_square
from ._operators import min as min
from ._operators import rms as rms
from ._operators import std_dev as std_dev
from ._operators import sum as sum
from ._operators import variance as variance
