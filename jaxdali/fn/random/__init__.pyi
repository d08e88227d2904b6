"""``fn.random``: random numbers, one or a tensor of them per sample."""

from ._beta import beta as beta
from ._choice import choice as choice
from ._coin_flip import coin_flip as coin_flip
from ._key import key as key
from ._normal import normal as normal
from ._uniform import uniform as uniform
