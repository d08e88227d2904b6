"""``fn.transforms``: affine transforms as matrices, for `warp_affine` and `coord_transform`."""

from ._combine import combine as combine
from ._crop import crop as crop
from ._rotation import rotation as rotation
from ._scale import scale as scale
from ._shear import shear as shear
from ._translation import translation as translation
