"""``fn.segmentation``: masks, as images and as polygons."""

from ._random_mask_pixel import random_mask_pixel as random_mask_pixel
from ._random_object_bbox import random_object_bbox as random_object_bbox
from ._select_masks import select_masks as select_masks
