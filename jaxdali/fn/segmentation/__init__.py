"""``fn.segmentation``: masks, as images and as polygons. This file is the index."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..._core import names as _names
from ._random_mask_pixel import random_mask_pixel as random_mask_pixel
from ._random_object_bbox import random_object_bbox as random_object_bbox
from ._select_masks import select_masks as select_masks

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals())
