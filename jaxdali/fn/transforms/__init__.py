"""``fn.transforms``: affine transforms as matrices, for `warp_affine` and `coord_transform`. This file is the index."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..._core import names as _names
from ._combine import combine as combine
from ._crop import crop as crop
from ._rotation import rotation as rotation
from ._scale import scale as scale
from ._shear import shear as shear
from ._translation import translation as translation

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals())
