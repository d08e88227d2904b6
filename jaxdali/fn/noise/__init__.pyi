"""``fn.noise``: random changes of elements."""

from ._gaussian import gaussian as gaussian
from ._salt_and_pepper import salt_and_pepper as salt_and_pepper
from ._shot import shot as shot
