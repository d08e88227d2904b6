"""``fn.noise``: random changes of elements. This file is the index."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..._core import names as _names
from ._gaussian import gaussian as gaussian
from ._salt_and_pepper import salt_and_pepper as salt_and_pepper
from ._shot import shot as shot

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals())
